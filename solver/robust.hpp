// Robust fits: min sum w_i rho((b - A x)_i) + ||G (x - c)||^2 + lambda^2 ||x - c||^2 for a loss rho that grows more slowly than r^2, by
// iteratively reweighted least squares.
//
// With psi = rho' / 2, the weights psi(r_i) / r_i make the quadratic that touches the objective at x and lies above it elsewhere, for
// every loss here; so the x of a weighted least-squares problem lowers the objective, and x is stationary where A^T W psi(r) -
// G^T G (x - c) - lambda^2 (x - c) = 0. Those weights alone converge slowly: rows that end at r = 0 get there by a factor a solve. For the
// convex losses, psi'(r_i) makes the quadratic of Newton's method, which is 0 for rows beyond the threshold. Each solve takes the larger of
// psi'(r_i) and tau psi(r_i) / r_i, and a step along its answer that lowers the objective; tau falls while whole steps do, and rises where
// they do not. (K. Madsen, H. B. Nielsen, "A finite smoothing algorithm for linear l1 estimation", SIAM J. Optim. 3 (1993),
// DOI 10.1137/0803010, for Newton's method on this l1.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solver/observer.hpp"
#include "solver/options.hpp"
#include "solver/result.hpp"
#include "solver/solve.hpp"

namespace lsmr {

// t: the threshold, in units of b.
//            rho(r)                                                   psi(r) / r
//   l2       r^2                                                      1
//   huber    r^2 up to |r| = t, beyond it 2 t |r| - t^2               min(1, t / |r|)
//   l1       |r|, rounded off at 0: r^2 / (2 f) + f / 2 up to f       1 / (2 max(|r|, f))
//   cauchy   t^2 log(1 + (r / t)^2)                                   1 / (1 + (r / t)^2)
//   tukey    t^2 / 3 (1 - (1 - (r / t)^2)^3) up to t, beyond it t^2 / 3     (1 - (r / t)^2)^2, 0 beyond t
// l2, huber and l1 are convex. The others may have several stationary points; without a start they begin at a rough l1 fit.
enum class Loss { l2, huber, l1, cauchy, tukey };

const char* name(Loss loss);
inline bool has_threshold(Loss loss) { return loss != Loss::l2 && loss != Loss::l1; }

// rho(r) and psi(r) / r. t: the threshold; for l1 the f above.
double loss_value(Loss loss, double t, double r);
double loss_weight(Loss loss, double t, double r);

struct RobustOptions {
    Loss loss = Loss::huber;
    double threshold = 0;          // t > 0 for huber, cauchy and tukey; not read by the others
    double l1_floor = 1e-5;        // f over the mean of |b_i|
    std::int64_t max_outer = 500;  // reweighted solves, those of rough fits included
    double change = 1e-6;          // "converged" also asks that the last step changed the objective and x by less, relatively
};

// The state after one reweighted solve.
struct OuterRecord {
    double objective = 0;
    double gradient = 0;          // ||A^T W psi(r) - G^T G (x - c) - lambda^2 (x - c)||, half of the objective's gradient
    double x_change = 0;          // ||x - x of the solve before|| / ||x||
    std::int64_t iterations = 0;  // of this solve
};

struct RobustResult {
    // status: least_squares where the gradient is at most atol ||A||_F ||psi(r)||, A and psi being those of the stacked, weighted problem;
    // least_squares_eps where it is as small as the precision of the vectors allows; iteration_limit after max_outer solves; stagnated
    // where no step helps; breakdown where tukey leaves no row a weight. iterations: of all solves. norms: of b - A x and of x; ar and the
    // recurrence's estimates are NaN, since no single recurrence has led to x.
    SolveResult result;
    std::int64_t outer_iterations = 0;  // accepted or not
    double objective = 0;
    double gradient = 0;                // as of OuterRecord, recomputed from x in fp64
    double gradient_bound = 0;          // that it was tested against
    std::int64_t downweighted = 0;      // rows with psi(r) / r below half of its value at 0
    std::vector<OuterRecord> history;   // of the loss itself, without rough fits before it
    bool converged() const { return result.converged(); }
};

// As PreparedProblem::solve(), whose rows are reweighted for each set of weights: the weights of its options multiply those of the loss. It
// is left with the last ones: reweight() sets others. options.atol is the tolerance of the gradient, btol is not used; max_iterations
// bounds each reweighted solve, the time limit all of them. The solves end where they have lowered the gradient to a hundredth, so the first are as
// rough as the weights are; a step is then stretched while that
// lowers the objective, or cut until it does. Method::automatic is LSMR.
// The observer sees each solve from its iteration 1 on.
// Throws InputError also for a threshold that is not above 0, and for what does not go with reweighting: CG, scaled rows (they would even
// out the weights), a trust radius, and bounds on ||A^T r||.
RobustResult solve_robust(PreparedProblem& problem, std::span<const double> b, std::span<double> x, const SolveOptions& options,
                          const RobustOptions& robust, bool use_x0 = false, Observer* observer = nullptr);

}  // namespace lsmr
