// Standard errors of x: sigma sqrt(N^-1_jj) with N = A^T A + G^T G + lambda^2 I, A weighted, and sigma^2 = ||r||^2 / (rows - cols), for
// errors of b that are independent and, after weighting, of equal size. With damping or regularising rows these are the errors of x around
// its own mean, as N has them; what the damping bends away from the truth is not in them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "solver/observer.hpp"
#include "solver/options.hpp"
#include "solver/result.hpp"
#include "solver/solve.hpp"

namespace lsmr {

// estimate: what LSQR's bidiagonalisation saw of N^-1 (SolveResult::variances): free, and too small, often by a lot; exact where it ran its
//   full course with its orthogonality intact.
// exact: N z = e_j for each column asked for, z_j = N^-1_jj, by CGLS.
// hutchinson: N^-1_jj ~ the mean of q_j z_j over random signs q, N z = q (M. F. Hutchinson, 1990, DOI 10.1080/03610919008812866); its error
//   is that of the off-diagonal part of row j over the root of the number of probes.
enum class ErrorKind { none, estimate, exact, hutchinson };
const char* name(ErrorKind kind);

struct StandardErrorOptions {
    ErrorKind kind = ErrorKind::none;
    std::vector<std::int64_t> columns;  // for exact, from 0; empty: all
    std::int64_t probes = 32;           // for hutchinson
    std::uint64_t seed = 1;             // of its signs
    double tolerance = 1e-8;            // of each N z = ..., relative
};

struct StandardErrors {
    ErrorKind kind = ErrorKind::none;
    std::vector<std::int64_t> columns;  // from 0: for which there are values
    std::vector<double> unit_errors;    // sqrt(N^-1_jj), to be multiplied by sigma; NaN: not known (a hutchinson mean that is not above 0, what LSQR did not see)
    std::vector<double> unit_spread;    // hutchinson: the standard deviation of unit_errors by the choice of signs; else empty
    double sigma = 0;
    double cond_frobenius = 0;  // estimate: ||[A; G; lambda I]||_F sqrt(sum of variances), LSQR's own estimate of cond; else NaN
    std::int64_t iterations = 0;  // of the solves with N
    double seconds = 0;
    bool complete = false;      // every solve with N converged, and none was stopped
    std::vector<std::string> notes;
};

// solved: what problem.solve() gave for these options (for ErrorKind::estimate with options.estimate_variances).
// Throws InputError where there are no more rows (of weight above 0) than columns, for columns that A has not, and for an estimate without variances.
StandardErrors standard_errors(PreparedProblem& problem, const SolveOptions& options, const SolveResult& solved,
                               const StandardErrorOptions& wanted, Observer* observer = nullptr);

}  // namespace lsmr
