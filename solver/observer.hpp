// Observer: how a caller follows a solve, and stops it.
#pragma once

#include <span>

#include "solver/checkpoint.hpp"
#include "solver/result.hpp"

namespace lsmr {

enum class Verdict { go_on, stop };
// end: the solve stopped at a limit, or because the observer wished so, and could go on.
enum class Moment { between_iterations, end };

class Observer {
  public:
    virtual ~Observer() = default;
    // Called on the thread of solve(), every iteration on the CPU and every few iterations on the GPU, with the iterations that
    // are new since the last call (none of them is left out; the span may be empty when only time has passed).
    // Verdict::stop ends the solve with Status::stopped, after the iterations that are under way: their records are handed over too, and x is
    // that of the last.
    // An exception passes through solve() unchanged; the solver stays usable.
    virtual Verdict on_iterations(std::span<const IterationRecord> records) = 0;

    // Asked as often as on_iterations() is called, and at the end; where it says yes, on_checkpoint() is called with the state of the
    // solve, after all of its iterations were handed over. Not for users' operators. On the GPU this waits for the device.
    virtual bool wants_checkpoint(Moment) { return false; }
    virtual void on_checkpoint(const Checkpoint&) {}
};

}  // namespace lsmr
