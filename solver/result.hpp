// What a solve gives back beside x.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "operator/operator_options.hpp"
#include "solver/options.hpp"
#include "solver/status.hpp"

namespace lsmr {

// One iteration, as its stop tests saw it. All norms in the caller's units.
struct IterationRecord {
    std::int64_t iteration = 0;
    double r_norm = 0;    // estimate of r_damped
    double ar_norm = 0;   // estimate of ||A^T (b - A x) - lambda^2 (x - c)||; NaN where the method has none (CG)
    double a_norm = 0;    // ||[A; lambda I]||_F: exact for matrices, an estimate for users' operators
    double cond = 0;      // estimate of cond([A; lambda I]); NaN where the method has none (CGLS, CG)
    double x_norm = 0;    // ||x||
    double compat = 0;    // r_norm / ||b||
    double ls = 0;        // ar_norm / (a_norm r_norm)
    double seconds = 0;   // since the solve began
    double alpha = std::numeric_limits<double>::quiet_NaN();  // LSMR and LSQR: column k of the bidiagonal B, alpha_k on its diagonal
    double beta = std::numeric_limits<double>::quiet_NaN();   // and beta_{k+1} below; with a preconditioner that of A K
};

// Unless marked as estimated, recomputed from x in fp64 at the end.
struct Norms {
    double b = 0;             // ||b||
    double r = 0;             // ||b - A x||
    double r_damped = 0;      // sqrt(r^2 + lambda^2 ||x - c||^2)
    double ar = 0;            // ||A^T (b - A x) - lambda^2 (x - c)||
    double r_estimated = 0;   // the recurrence's r_damped
    double ar_estimated = 0;  // the recurrence's ar; NaN where there is none
    double a_frobenius = 0;   // ||A||_F, exact for matrices; for users' operators the method's estimate of ||[A; lambda I]||
    double cond_estimate = 0; // usually too low; NaN where there is none
    double x = 0;             // ||x||
    double dx = 0;            // ||x - x0||
    double a_estimated = std::numeric_limits<double>::quiet_NaN();  // of ||[A; lambda I]||_F by the bidiagonalisation of LSMR and LSQR; NaN: none
    double start_ratio = 0;   // (||A^T r|| / ||r||) / (||A^T r_0|| / ||r_0||): free of the scale of A and b; NaN where the start has none

    static Norms unknown() {
        constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
        return {kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown};
    }
};

struct SolveResult {
    Status status = Status::start_solves;
    Method method = Method::lsmr;  // that was used
    std::string message;          // one sentence: the status, and what decided
    // Of all runs. x is that of the last iteration, whose test fired; where a restart did worse, that of the run before it.
    std::int64_t iterations = 0;
    int restarts = 0;             // by the audit, or where kept vectors were no longer orthogonal
    std::vector<std::string> notes;  // what else there is to know of x: sentences
    Norms norms;
    // With SolveOptions::estimate_variances: what LSQR saw of diag((A^T A + ... + lambda^2 I)^-1), none of it above the truth; else empty.
    std::vector<double> variances;
    double solve_seconds = 0;
    double audit_seconds = 0;
    bool converged() const { return is_converged(status); }
};

// Where and how a PreparedProblem runs.
struct PreparedInfo {
    DeviceKind device = DeviceKind::cpu;
    std::string device_name;
    Precision precision = Precision::fp64;
    OperatorPlan plan;
    ExecutorKind executor = ExecutorKind::automatic;  // on a GPU, of lsmr and lsqr: the one that was chosen
    std::string executor_words;                       // the same for people, and why; empty on the CPU
    std::shared_ptr<const MatrixOrder> order;  // of rows and columns in the operator; null: as given
    std::vector<std::string> notes;        // fall-backs taken, and why: each a sentence
    double setup_seconds = 0;
    int threads = 1;
};

struct MemoryUse {
    std::int64_t pool_live_bytes = 0;
    std::int64_t pool_peak_bytes = 0;
    std::int64_t pool_reserved_bytes = 0;
};

}  // namespace lsmr
