// Dense answers in long double, by Eigen's orthogonal factorisations.
#pragma once

#include <Eigen/Dense>
#include <cstddef>

#include "problems.hpp"

namespace lsmr::test {

using DenseMatrix = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>;
using DenseVector = Eigen::Matrix<long double, Eigen::Dynamic, 1>;

inline DenseMatrix dense(const CsrMatrix& a) {
    DenseMatrix d = DenseMatrix::Zero(a.rows(), a.cols());
    const Triplets t = triplets(a);
    for (std::size_t k = 0; k < t.values.size(); ++k) d(t.i[k], t.j[k]) += static_cast<long double>(t.values[k]);
    return d;
}
inline DenseVector dense(const Vector& p) {
    DenseVector d(static_cast<Eigen::Index>(p.size()));
    for (std::size_t i = 0; i < p.size(); ++i) d(static_cast<Eigen::Index>(i)) = static_cast<long double>(p[i]);
    return d;
}
inline Vector rounded(const DenseVector& d) {
    Vector p(static_cast<std::size_t>(d.size()));
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<double>(d(static_cast<Eigen::Index>(i)));
    return p;
}
// [A; lambda I]
inline DenseMatrix dense_stacked(const CsrMatrix& a, double damp) {
    DenseMatrix d = DenseMatrix::Zero(a.rows() + (damp > 0 ? a.cols() : 0), a.cols());
    d.topRows(a.rows()) = dense(a);
    if (damp > 0) d.bottomRows(a.cols()).diagonal().setConstant(static_cast<long double>(damp));
    return d;
}

// The x of least ||x - c|| that minimises ||b - A x||^2 + lambda^2 ||x - c||^2, and the extreme singular values of
// [A; lambda I] (those of its range).
struct Oracle {
    Vector x;
    double sigma_max = 0;
    double sigma_min = 0;
    std::int64_t rank = 0;
};
inline Oracle dense_solution(const CsrMatrix& a, const Vector& b, double damp = 0, const Vector& center = {}) {
    const DenseMatrix matrix = dense_stacked(a, damp);
    // A (x - c) = b - A c
    const DenseVector c = center.empty() ? DenseVector(DenseVector::Zero(a.cols())) : dense(center);
    DenseVector rhs = DenseVector::Zero(matrix.rows());
    rhs.head(a.rows()) = dense(b) - dense(a) * c;
    const Eigen::JacobiSVD<DenseMatrix, Eigen::ColPivHouseholderQRPreconditioner> svd(
        matrix, Eigen::ComputeThinU | Eigen::ComputeThinV);
    Oracle oracle;
    const auto& sigma = svd.singularValues();
    // Entries are doubles: what lies below their rounding is no rank.
    while (oracle.rank < sigma.size() && sigma(oracle.rank) > 1e-14L * sigma(0)) ++oracle.rank;
    const DenseVector coefficients =
        (svd.matrixU().leftCols(oracle.rank).adjoint() * rhs).cwiseQuotient(sigma.head(oracle.rank));
    oracle.x = rounded(c + svd.matrixV().leftCols(oracle.rank) * coefficients);
    oracle.sigma_max = static_cast<double>(sigma(0));
    oracle.sigma_min = static_cast<double>(sigma(oracle.rank - 1));
    return oracle;
}

}  // namespace lsmr::test
