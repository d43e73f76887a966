// Eigen's sparse matrices, by rows and by columns, handed to CsrMatrix and solved on whatever device there is; x is compared with that
// of Eigen's own dense QR.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <Eigen/Dense>
#include <Eigen/SparseCore>

#include "operator/csr_matrix.hpp"
#include "solver/solve.hpp"

// Copies the three arrays of a compressed Eigen matrix; they mean the same here, only offsets are 64 bits wide.
template <int Order>
lsmr::CsrMatrix to_csr(const Eigen::SparseMatrix<double, Order>& a) {
    lsmr::HostBuffer<std::int64_t> offsets(a.outerSize() + 1);
    lsmr::HostBuffer<std::int32_t> indices(a.nonZeros());
    lsmr::HostBuffer<double> values(a.nonZeros());
    std::copy_n(a.outerIndexPtr(), offsets.size(), offsets.begin());
    std::copy_n(a.innerIndexPtr(), indices.size(), indices.begin());
    std::copy_n(a.valuePtr(), values.size(), values.begin());
    if constexpr (Order == Eigen::RowMajor) {
        return lsmr::CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(indices), std::move(values));
    } else {
        return lsmr::CsrMatrix::from_csc(a.rows(), a.cols(), std::move(offsets), std::move(indices), std::move(values));
    }
}

// x of min ||b - A x||; Eigen's vectors are handed over as spans, without a copy.
template <int Order>
Eigen::VectorXd solve(const Eigen::SparseMatrix<double, Order>& a, const Eigen::VectorXd& b) {
    lsmr::PreparedProblem problem(std::make_shared<const lsmr::CsrMatrix>(to_csr(a)), lsmr::PrepareOptions{});
    lsmr::SolveOptions options;
    options.atol = options.btol = 1e-13;
    Eigen::VectorXd x(a.cols());
    const lsmr::SolveResult result = problem.solve(std::span(b.data(), static_cast<std::size_t>(b.size())),
                                                   std::span(x.data(), static_cast<std::size_t>(x.size())), options);
    std::printf("%s: %s\n", Order == Eigen::RowMajor ? "rows   " : "columns", result.message.c_str());
    return x;
}

int main() {
    // A spline-like fit: 60 measurements, each of which sees three neighbours among 20 unknowns.
    const int rows = 60, cols = 20;
    std::vector<Eigen::Triplet<double>> entries;
    Eigen::VectorXd b(rows);
    for (int i = 0; i < rows; ++i) {
        const int first = i * (cols - 2) / rows;
        for (int k = 0; k < 3; ++k) entries.emplace_back(i, first + k, 1.0 / (1.0 + (i + 2 * k) % 5));
        b[i] = (i * 7) % 11 - 5.0;
    }
    Eigen::SparseMatrix<double, Eigen::RowMajor> by_rows(rows, cols);
    by_rows.setFromTriplets(entries.begin(), entries.end());  // leaves it compressed; after insert(), call makeCompressed()
    const Eigen::SparseMatrix<double, Eigen::ColMajor> by_columns = by_rows;

    const Eigen::VectorXd expected = Eigen::MatrixXd(by_rows).colPivHouseholderQr().solve(b);
    const double of_rows = (solve(by_rows, b) - expected).norm() / expected.norm();
    const double of_columns = (solve(by_columns, b) - expected).norm() / expected.norm();
    std::printf("differ from dense QR by %.1e and %.1e\n", of_rows, of_columns);
    return of_rows < 1e-10 && of_columns < 1e-10 ? EXIT_SUCCESS : EXIT_FAILURE;
}
