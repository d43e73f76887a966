// What every result must satisfy, whatever the method, the precision and the device: its numbers are true, and it
// claims no more than they show.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "problems.hpp"
#include "solver/status.hpp"

namespace lsmr::test {

// Rounding of an audit in fp64: 8 eps in place of (longest row + 3) eps, since these are norms, whose errors average.
inline double residual_rounding(const Truth& t) {
    return 8 * kEps64 * (t.stacked * (t.x + t.dx) + t.b);
}
inline double gradient_rounding(const Truth& t) {
    return t.stacked * residual_rounding(t);
}

// A sum of n squares in a row has a relative error of at most n eps / 2, its root half of that.
inline double norm_rounding(std::int64_t n) {
    return (0.25 * static_cast<double>(n) + 4) * kEps64;
}

// |value - expected| <= bound, with both in the message.
inline void check_within(double value, double expected, double bound, const std::string& what) {
    INFO(what << ": " << value << ", expected " << expected << " within " << bound);
    CHECK(std::abs(value - expected) <= bound);
}

// The norms of the result are those of x.
inline void check_norms(const SolveResult& result, const Truth& t) {
    check_within(result.norms.b, t.b, norm_rounding(t.rows) * t.b, "||b||");
    // What is 1e-150 of the distance to the start, or less, has a square that underflows.
    check_within(result.norms.x, t.x, norm_rounding(t.cols) * t.x + 1e-150 * t.dx, "||x||");
    check_within(result.norms.dx, t.dx, norm_rounding(t.cols) * (t.x + t.dx), "||x - x0||");
    check_within(result.norms.r, t.r, residual_rounding(t), "||r||");
    check_within(result.norms.r_damped, t.r_damped, residual_rounding(t), "damped ||r||");
    check_within(result.norms.ar, t.ar, gradient_rounding(t), "||A'r||");
    check_within(result.norms.a_frobenius, t.a_frobenius, norm_rounding(t.nnz) * t.a_frobenius, "||A||_F");
}

// "Converged" is no more than the truth allows: twice the tolerance, as the audit has it; codes 4 and 5 may use
// 8 eps ||A|| (||A|| ||x|| + ||b||), where a start x0 counts with the larger of the two norms.
inline void check_claim(const SolveResult& result, const Truth& t, const SolveOptions& options, double eps) {
    CHECK(result.converged() == is_converged(result.status));
    const double size = t.stacked * std::max(t.x, t.x + t.dx) + t.b;
    const double r_met = 2 * (options.btol * t.b + options.atol * t.stacked * t.x);
    const double ar_met = 2 * options.atol * t.stacked * t.r_damped;
    const double r_eps = 8 * eps * size;
    const double ar_eps = t.stacked * r_eps;
    INFO("status " << word(result.status) << ", ||r|| " << t.r_damped << ", ||A'r|| " << t.ar << ", allowed " << r_met
                   << " | " << r_eps << ", " << ar_met << " | " << ar_eps);
    switch (result.status) {
        case Status::compatible:
            CHECK(t.r_damped <= r_met + residual_rounding(t));
            break;
        case Status::compatible_eps:
            CHECK(t.r_damped <= std::max(r_met, r_eps) + residual_rounding(t));
            break;
        case Status::least_squares:
            CHECK(t.ar <= ar_met + gradient_rounding(t));
            break;
        case Status::least_squares_eps:
            CHECK(t.ar <= std::max(ar_met, ar_eps) + gradient_rounding(t));
            break;
        case Status::start_solves:
            CHECK(t.ar <= std::max(ar_met, ar_eps) + gradient_rounding(t));
            break;
        default:
            CHECK(!result.converged());
    }
}

// x - x* = (A^T A + lambda^2)^-1 A^T r, exactly: so the gradient bounds the error of x. `sigma_min` is that of
// [A; lambda I] on its range.
inline double error_bound(const Truth& t, double sigma_min) {
    const double rounding = gradient_rounding(t) + sigma_min * sigma_min * 8 * kEps64 * t.x;
    return (t.ar + rounding) / (sigma_min * sigma_min);
}

inline bool same_bits(const Vector& p, const Vector& q) {
    return p == q;
}  // no NaN in what is compared

inline Status status_of(int code) {
    return static_cast<Status>(code);
}

}  // namespace lsmr::test
