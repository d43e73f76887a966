// --compare eigen: the same problem, from the same arrays, solved by Eigen's LeastSquaresConjugateGradient in fp64 on
// the CPU.
//
// As fast as Eigen can be: its own stop rule, its own loop, A by rows (the only sparse product that it runs in
// parallel) and an explicit A^T by rows as well, so that A^T r is parallel too. With damping it solves the stacked
// problem [A; lambda I].
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"

namespace lsmr {

// One solver's answer. r and ar are recomputed here, for both sides by the same fp64 loops.
struct ComparisonRow {
    std::string solver;
    std::int64_t iterations = 0;  // products with A in the loop: Eigen's own iterations() is one less when it converges
    double setup_seconds = 0;     // the transpose and the preconditioner are in it
    double solve_seconds = 0;
    double r = 0;             // ||b - A x||
    double ar = 0;            // ||A^T (b - A x) - lambda^2 (x - c)||
    double x_difference = 0;  // ||x - x_ours|| / ||x_ours||
    std::string ended;        // "tolerance", "iteration limit", "stopped"
};

struct Comparison {
    std::string version;  // of Eigen
    int threads = 1;
    bool stacked = false;
    double tolerance = 0;  // Eigen's, on ||A^T r|| / ||A^T b||, of the stacked problem where there is damping
    std::int64_t max_iterations = 0;
    std::vector<ComparisonRow> rows;  // ours first
};

struct ComparisonProblem {
    const CsrMatrix& a;
    std::span<const double> b;
    std::span<const double> x0;      // empty: zero
    std::span<const double> center;  // empty: zero
    double damp = 0;
    std::span<const double> x_ours;
    double achieved_ar = 0;  // audited; Eigen is asked for as much
    std::int64_t max_iterations = 0;
    int threads = 1;
};

// Throws UsageError where Eigen's 32-bit indices do not reach.
void check_eigen_can_hold(const CsrMatrix& a, bool stacked);

// ours: its row, of which r, ar and x_difference are filled in here. should_stop is asked once an iteration.
Comparison compare_with_eigen(const ComparisonProblem& problem, ComparisonRow ours,
                              const std::function<bool()>& should_stop);

}  // namespace lsmr
