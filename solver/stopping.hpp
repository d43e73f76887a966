// The stop tests: pure functions of numbers, the same for every method, on the host and in kernels.
//
//   test 1   ||r|| <= btol ||b|| + atol ||A|| ||x||        A x = b is solved (compatible); not while ||r|| > ||b|| / 2: a huge x
//                                                          would pass although A x has nothing of b
//   test 2   ||A^T r|| <= atol ||A|| ||r||                 least squares
//            or ||A^T r|| <= a bound that the caller gave, absolute or relative to the start's
//   test 3   cond(A) >= conlim
//   4, 5     1 and 2 with atol, btol raised to eps of the vector type (below it no test can be met honestly);
//   6        3 with conlim lowered to 1 / eps
// With damping, A is [A; lambda I] and r its residual. No test divides, so b = 0 and r = 0 need no case of their own.
// Paige, Saunders, "LSQR" (1982), section 6, DOI 10.1145/355984.355989; Fong, Saunders, "LSMR" (2011), DOI 10.1137/10079687X.
#pragma once

#include <cstdint>

#include "memory/host_device.hpp"
#include "solver/rotation.hpp"
#include "solver/status.hpp"

namespace lsmr {

struct StopRules {
    double atol = 0;
    double btol = 0;
    double conlim = 0;  // 0: tests 3 and 6 are off
    double eps = 0;     // of the vector type
    double floor = 1;   // times eps: what tests 4 and 5 raise tolerances to
    double b_norm = 0;
    double a_norm = 0;       // ||[A; lambda I]||_F, exact; 0: unknown, the method's estimate is used
    double a_norm_of_x = 0;  // the ||A|| that belongs to ||x||, where a preconditioner gives test 2 another metric; 0: the same
    double x0_norm = 0;      // ||x0||: b - A x0 was formed with rounding of its size, however small x becomes
    double a_norm_of_x0 = 0;  // the ||A|| that belongs to it; 0: that of the estimates
    double ar_bound = 0;     // for ||A^T r||
    double ar_relative = 0;  // becomes ar_relative ||A^T r_0|| in ar_bound at the start
    double alpha_limit = 0;  // where vectors are kept: larger alphas say that they are no longer orthogonal; 0: off
    double trust_radius = 0;  // for ||x - x0||; 0: off
    bool only_gradient = false;  // there is a linear term, so ||r|| says nothing: test 2 by its bound, and test 5
    std::int64_t passes = 1;  // iterations in a row in which tests 1 to 6 must pass
    std::int64_t max_iterations = 0;
    std::int64_t stall_window = 0;  // 0: off

    LSMR_HD void take_start(double ar_norm) {
        const double bound = ar_relative * ar_norm;
        ar_bound = bound > ar_bound ? bound : ar_bound;
    }
};

// What a method knows after an iteration, all in one metric.
struct Estimates {
    std::int64_t iteration = 0;
    double r_norm = 0;
    double ar_norm = 0;  // NaN: none
    double a_norm = 0;
    double cond = 0;  // NaN: none
    double x_norm = 0;
};

// What the tests remember between iterations. Stagnation: neither test came 10 % closer to its bound over a long window.
struct StopMemory {
    double best_compat = -1;  // r_norm, and ar_norm / r_norm; negative: none yet
    double best_ls = -1;
    std::int64_t last_progress = 0;
    std::int64_t passed = 0;  // iterations in a row
};

// The window of iterations in which a converging problem may be quiet: 1,072 were seen with n = 1,794.
LSMR_HD inline std::int64_t default_stall_window(std::int64_t rows, std::int64_t cols) {
    const std::int64_t smaller = rows < cols ? rows : cols;
    return 2 * smaller > 2000 ? 2 * smaller : 2000;
}

// False while A x is no nearer to b than half of it (b = 0: nothing to be near to).
LSMR_HD inline bool fits(double b_norm, double r_norm) { return (b_norm == 0) | (r_norm <= 0.5 * b_norm); }

inline constexpr int kGoOn = -1;  // in place of a Status, as an int: kernels keep it in the state

// The first of the tests 1 to 6 that passes, in this order; kGoOn when none does.
LSMR_HD inline int passed_test(const StopRules& rules, const Estimates& e) {
    const double a_times_x = (rules.a_norm_of_x > 0 ? rules.a_norm_of_x : e.a_norm) * e.x_norm;
    const double a_times_r = e.a_norm * e.r_norm;
    if (rules.only_gradient) {
        if (e.ar_norm <= rules.ar_bound) return static_cast<int>(Status::least_squares);
        return e.ar_norm <= rules.eps * a_times_r ? static_cast<int>(Status::least_squares_eps) : kGoOn;
    }
    const double floor = rules.floor * rules.eps;
    const double atol = rules.atol > floor ? rules.atol : floor;
    const double btol = rules.btol > floor ? rules.btol : floor;
    const double a_times_x0 = (rules.a_norm_of_x0 > 0 ? rules.a_norm_of_x0 : e.a_norm) * rules.x0_norm;
    // All at once, without a branch for each: that is what a GPU waits for.
    const bool fit = fits(rules.b_norm, e.r_norm);
    const bool has_limit = rules.conlim > 0;
    const bool compatible = (e.r_norm == 0) | (fit & (e.r_norm <= rules.btol * rules.b_norm + rules.atol * a_times_x));
    const bool least_squares = (e.ar_norm <= rules.atol * a_times_r) | (e.ar_norm <= rules.ar_bound);
    const bool limit = has_limit & (rules.conlim * rules.eps < 1) & (e.cond >= rules.conlim);
    // The second: nothing better can be had, b - A x is rounding alone.
    const bool compatible_eps = (fit & (e.r_norm <= btol * rules.b_norm + atol * a_times_x)) |
                                (e.r_norm <= floor * (rules.b_norm + (a_times_x > a_times_x0 ? a_times_x : a_times_x0)));
    const bool least_squares_eps = e.ar_norm <= atol * a_times_r;
    const bool limit_eps = has_limit & (e.cond * rules.eps >= 1);
    if (!(compatible | least_squares | limit | compatible_eps | least_squares_eps | limit_eps)) return kGoOn;
    return static_cast<int>(compatible          ? Status::compatible
                            : least_squares     ? Status::least_squares
                            : limit             ? Status::condition_limit
                            : compatible_eps    ? Status::compatible_eps
                            : least_squares_eps ? Status::least_squares_eps
                                                : Status::condition_eps);
}

// The code to stop with: of the tests 1 to 6 once they passed often enough, then 7, 12; kGoOn when none does.
LSMR_HD inline int stop_code(const StopRules& rules, const Estimates& e, StopMemory& memory) {
    const int code = passed_test(rules, e);
    memory.passed = code == kGoOn ? 0 : memory.passed + 1;
    // Where a residual is 0 the recurrence has nowhere to go on to.
    if (code != kGoOn && (memory.passed >= rules.passes || e.r_norm == 0 || e.ar_norm == 0)) return code;

    const bool first = memory.best_compat < 0;
    if (first || e.r_norm < 0.9 * memory.best_compat) {
        memory.best_compat = e.r_norm;
        memory.last_progress = e.iteration;
    }
    if (first || e.ar_norm < 0.9 * memory.best_ls * e.r_norm) {
        memory.best_ls = e.ar_norm / e.r_norm;
        memory.last_progress = e.iteration;
    }
    if (e.iteration >= rules.max_iterations) return static_cast<int>(Status::iteration_limit);
    if (rules.stall_window > 0 && e.iteration - memory.last_progress >= rules.stall_window) return static_cast<int>(Status::stagnated);
    return kGoOn;
}

}  // namespace lsmr
