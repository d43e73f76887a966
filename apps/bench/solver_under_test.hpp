// What `lsmr_bench solve` runs: a solver set up for one matrix, ours or one that ours is compared with.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "block_clock.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/operator_options.hpp"
#include "solver/options.hpp"
#include "solver/solve.hpp"

namespace lsmr {

struct RunLimits {
    std::int64_t iterations = std::numeric_limits<std::int64_t>::max();
    double ar_bound = 0;  // stops where the solver's own ||A^T r|| is at most this; 0: no test stops the run
    double seconds = std::numeric_limits<double>::infinity();
};

struct SolverRun {
    std::int64_t iterations = 0;
    double seconds = 0;  // from b to x, both in host memory
};

class SolverUnderTest {
  public:
    virtual ~SolverUnderTest() = default;
    // From x = 0. clock: null, or it is told of the iterations and ends the run.
    virtual SolverRun run(std::span<const double> b, std::span<double> x, const RunLimits& limits, BlockClock* clock) = 0;
    // Where the time of the set-up went, of setup_seconds().
    virtual SetupSeconds setup() const = 0;
    virtual double setup_seconds() const = 0;
    virtual std::string words() const = 0;  // what computes the products
    virtual bool on_gpu() const = 0;
    virtual bool is_lsmr() const = 0;  // its x after k iterations is that of LSMR
};

// Ours, on the device that the options name. Shares the problem.
std::unique_ptr<SolverUnderTest> make_our_solver(std::shared_ptr<PreparedProblem> problem);
// Eigen's LeastSquaresConjugateGradient with its usual preconditioner (diagonal), A and A^T both stored by rows. Throws InputError where
// its 32-bit indices do not reach.
std::unique_ptr<SolverUnderTest> make_eigen_solver(const CsrMatrix& a, Precision precision);

}  // namespace lsmr
