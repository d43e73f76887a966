// Observer: how a caller follows a solve, and stops it.
#pragma once

#include <span>

#include "solver/result.hpp"

namespace lsmr {

enum class Verdict { go_on, stop };

class Observer {
  public:
    virtual ~Observer() = default;
    // Called on the thread of solve(), every iteration on the CPU and every few iterations on the GPU, with the iterations that
    // are new since the last call (none of them is left out; the span may be empty when only time has passed).
    // Verdict::stop ends the solve with Status::stopped; the iterate is kept.
    // An exception passes through solve() unchanged; the solver stays usable.
    virtual Verdict on_iterations(std::span<const IterationRecord> records) = 0;
};

}  // namespace lsmr
