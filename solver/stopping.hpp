// The stop tests: pure functions of numbers, the same for every method, on the host and in kernels.
//
//   test 1   ||r|| <= btol ||b|| + atol ||A|| ||x||        A x = b is solved (compatible); not while ||r|| > ||b|| / 2: a huge x
//                                                          would pass although A x has nothing of b
//   test 2   ||A^T r|| <= atol ||A|| ||r||                 least squares
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
    double b_norm = 0;
    double a_norm = 0;  // ||[A; lambda I]||_F, exact; 0: unknown, the method's estimate is used
    std::int64_t max_iterations = 0;
    std::int64_t stall_window = 0;
};

// What a method knows after an iteration, all in one metric.
struct Estimates {
    std::int64_t iteration = 0;
    double r_norm = 0;
    double ar_norm = 0;
    double a_norm = 0;
    double cond = 0;  // NaN: none
    double x_norm = 0;
};

// Stagnation: neither test came 10 % closer to its bound over a long window.
struct StallWatch {
    double best_compat = -1;  // r_norm, and ar_norm / r_norm; negative: none yet
    double best_ls = -1;
    std::int64_t last_progress = 0;
};

// The window of iterations in which a converging problem may be quiet: 1,072 were seen with n = 1,794.
LSMR_HD inline std::int64_t stall_window(std::int64_t rows, std::int64_t cols) {
    const std::int64_t smaller = rows < cols ? rows : cols;
    return 2 * smaller > 2000 ? 2 * smaller : 2000;
}

// False while A x is no nearer to b than half of it (b = 0: nothing to be near to).
LSMR_HD inline bool fits(double b_norm, double r_norm) { return b_norm == 0 || r_norm <= 0.5 * b_norm; }

inline constexpr int kGoOn = -1;  // in place of a Status, as an int: kernels keep it in the state

// The code of the first test that passes in the order 1, 2, 3, 4, 5, 6, 7, 12; kGoOn when none does.
LSMR_HD inline int stop_code(const StopRules& rules, const Estimates& e, StallWatch& watch) {
    const double a_times_x = e.a_norm * e.x_norm;
    const double a_times_r = e.a_norm * e.r_norm;
    const bool fit = fits(rules.b_norm, e.r_norm);
    if (e.r_norm == 0) return static_cast<int>(Status::compatible);
    if (fit && e.r_norm <= rules.btol * rules.b_norm + rules.atol * a_times_x) return static_cast<int>(Status::compatible);
    if (e.ar_norm <= rules.atol * a_times_r) return static_cast<int>(Status::least_squares);
    if (rules.conlim > 0 && rules.conlim * rules.eps < 1 && e.cond >= rules.conlim) return static_cast<int>(Status::condition_limit);
    const double atol = rules.atol > rules.eps ? rules.atol : rules.eps;
    const double btol = rules.btol > rules.eps ? rules.btol : rules.eps;
    if (fit && e.r_norm <= btol * rules.b_norm + atol * a_times_x) return static_cast<int>(Status::compatible_eps);
    // Nothing better can be had: b - A x is rounding alone.
    if (e.r_norm <= rules.eps * (rules.b_norm + a_times_x)) return static_cast<int>(Status::compatible_eps);
    if (e.ar_norm <= atol * a_times_r) return static_cast<int>(Status::least_squares_eps);
    if (rules.conlim > 0 && e.cond * rules.eps >= 1) return static_cast<int>(Status::condition_eps);
    if (e.iteration >= rules.max_iterations) return static_cast<int>(Status::iteration_limit);

    const double ls = e.ar_norm / e.r_norm;
    const bool first = watch.best_compat < 0;
    if (first || e.r_norm < 0.9 * watch.best_compat) {
        watch.best_compat = e.r_norm;
        watch.last_progress = e.iteration;
    }
    if (first || ls < 0.9 * watch.best_ls) {
        watch.best_ls = ls;
        watch.last_progress = e.iteration;
    }
    if (e.iteration - watch.last_progress >= rules.stall_window) return static_cast<int>(Status::stagnated);
    return kGoOn;
}

}  // namespace lsmr
