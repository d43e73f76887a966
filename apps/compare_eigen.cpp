#include "compare_eigen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "eigen_dual.hpp"
#include "exit_codes.hpp"
#include "stopwatch.hpp"

namespace lsmr {
namespace {

using RowMajorView = EigenArrays<double>::View;
using DualOperator = EigenDual<double>;

EigenArrays<double> arrays_of(const CsrMatrix& a) { return {a, {a.values(), static_cast<std::size_t>(a.nnz())}}; }

CsrMatrix stack(const CsrMatrix& a, double damp) {
    HostBuffer<std::int64_t> offsets(a.rows() + a.cols() + 1);
    HostBuffer<std::int32_t> columns(a.nnz() + a.cols());
    HostBuffer<double> values(a.nnz() + a.cols());
    std::copy_n(a.offsets(), a.rows() + 1, offsets.begin());
    std::copy_n(a.columns(), a.nnz(), columns.begin());
    std::copy_n(a.values(), a.nnz(), values.begin());
    for (std::int64_t j = 0; j < a.cols(); ++j) {
        offsets[a.rows() + j + 1] = a.nnz() + j + 1;
        columns[a.nnz() + j] = static_cast<std::int32_t>(j);
        values[a.nnz() + j] = damp;
    }
    return CsrMatrix::from_csr(a.rows() + a.cols(), a.cols(), std::move(offsets), std::move(columns),
                               std::move(values));
}

// The damped problem's r and A^T r, by loops that neither side uses.
struct Residuals {
    double r = 0;
    double ar = 0;
};

double norm(std::span<const double> v) {
    double largest = 0;
    for (const double value : v) largest = std::max(largest, std::abs(value));
    if (largest == 0 || !std::isfinite(largest)) return largest;
    double sum = 0;
    for (const double value : v) sum += (value / largest) * (value / largest);
    return largest * std::sqrt(sum);
}

Residuals residuals(const ComparisonProblem& problem, std::span<const double> x) {
    const CsrMatrix& a = problem.a;
    std::vector<double> r(problem.b.begin(), problem.b.end());
    std::vector<double> ar(static_cast<std::size_t>(a.cols()));
    for (std::size_t j = 0; j < ar.size(); ++j) {
        ar[j] = -problem.damp * problem.damp * (x[j] - (problem.center.empty() ? 0.0 : problem.center[j]));
    }
    for (std::size_t i = 0; i < r.size(); ++i) {
        const std::int64_t first = a.offsets()[i];
        const std::int64_t last = a.offsets()[i + 1];
        for (std::int64_t k = first; k < last; ++k) r[i] -= a.values()[k] * x[static_cast<std::size_t>(a.columns()[k])];
        for (std::int64_t k = first; k < last; ++k)
            ar[static_cast<std::size_t>(a.columns()[k])] += a.values()[k] * r[i];
    }
    return {norm(r), norm(ar)};
}

void fill_in(ComparisonRow& row, const ComparisonProblem& problem, std::span<const double> x) {
    const auto [r, ar] = residuals(problem, x);
    row.r = r;
    row.ar = ar;
    std::vector<double> difference(x.begin(), x.end());
    for (std::size_t j = 0; j < difference.size(); ++j) difference[j] -= problem.x_ours[j];
    const double size = norm(problem.x_ours);
    row.x_difference = size > 0 ? norm(difference) / size : norm(difference);
}

template <class Preconditioner>
ComparisonRow run(const char* name, const ComparisonProblem& problem, const Comparison& settings, const RowMajorView& a,
                  const RowMajorView& at, const Eigen::VectorXd& b, const std::function<bool()>& should_stop) {
    ComparisonRow row;
    row.solver = name;
    const Stopwatch setup;
    Preconditioner preconditioner;
    preconditioner.compute(a);
    row.setup_seconds = setup.seconds();

    Eigen::VectorXd x = Eigen::VectorXd::Zero(a.cols());
    if (!problem.x0.empty()) std::copy(problem.x0.begin(), problem.x0.end(), x.begin());
    const DualOperator matrix(a, at, should_stop);
    Eigen::Index iterations = settings.max_iterations;
    double error = settings.tolerance;
    const Stopwatch solve;
    try {
        Eigen::internal::least_square_conjugate_gradient(matrix, b, x, preconditioner, iterations, error);
        row.ended = error <= settings.tolerance ? "tolerance" : "iteration limit";
    } catch (const DualOperator::Stopped&) {
        row.ended = "stopped";
    }
    row.solve_seconds = solve.seconds();
    row.iterations = matrix.products_in_loop();
    fill_in(row, problem, {x.data(), static_cast<std::size_t>(x.size())});
    return row;
}

}  // namespace

void check_eigen_can_hold(const CsrMatrix& a, bool stacked) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    const std::int64_t more = stacked ? a.cols() : 0;
    if (a.nnz() + more > kMost || a.rows() + more > kMost) {
        throw UsageError(
            fmt::format("--compare eigen: Eigen's sparse matrix has 32-bit indices, and {} entries in {} rows do "
                        "not fit",
                        a.nnz() + more, a.rows() + more));
    }
}

Comparison compare_with_eigen(const ComparisonProblem& problem, ComparisonRow ours,
                              const std::function<bool()>& should_stop) {
    Comparison comparison;
    comparison.version = fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
    comparison.stacked = problem.damp > 0;
    comparison.max_iterations = problem.max_iterations;
    Eigen::setNbThreads(problem.threads);
    comparison.threads = Eigen::nbThreads();
    check_eigen_can_hold(problem.a, comparison.stacked);

    const Stopwatch setup;
    CsrMatrix stacked;
    if (comparison.stacked) stacked = stack(problem.a, problem.damp);
    const CsrMatrix& a = comparison.stacked ? stacked : problem.a;
    const CsrMatrix at = a.transposed();
    const EigenArrays<double> a_arrays = arrays_of(a);
    const EigenArrays<double> at_arrays = arrays_of(at);
    const RowMajorView a_view = a_arrays.view();
    const RowMajorView at_view = at_arrays.view();
    Eigen::VectorXd b = Eigen::VectorXd::Zero(a_view.rows());
    std::copy(problem.b.begin(), problem.b.end(), b.begin());
    for (std::size_t j = 0; j < problem.center.size() && comparison.stacked; ++j) {
        b[static_cast<Eigen::Index>(problem.b.size() + j)] = problem.damp * problem.center[j];
    }
    const double shared_setup_seconds = setup.seconds();

    const Eigen::VectorXd atb = at_view * b;
    const double atb_norm = norm({atb.data(), static_cast<std::size_t>(atb.size())});
    comparison.tolerance = atb_norm > 0 ? problem.achieved_ar / atb_norm : 0;
    // Below this Eigen's loop turns on rounding errors and loses accuracy.
    comparison.tolerance = std::max(comparison.tolerance, std::numeric_limits<double>::epsilon());

    fill_in(ours, problem, problem.x_ours);
    comparison.rows.push_back(std::move(ours));
    comparison.rows.push_back(run<Eigen::LeastSquareDiagonalPreconditioner<double>>(
        "Eigen LSCG, diagonal", problem, comparison, a_view, at_view, b, should_stop));
    comparison.rows.push_back(run<Eigen::IdentityPreconditioner>("Eigen LSCG, identity", problem, comparison, a_view,
                                                                 at_view, b, should_stop));
    for (std::size_t i = 1; i < comparison.rows.size(); ++i) comparison.rows[i].setup_seconds += shared_setup_seconds;
    return comparison;
}

}  // namespace lsmr
