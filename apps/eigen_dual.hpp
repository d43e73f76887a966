// A matrix as Eigen's LeastSquaresConjugateGradient is fastest with: A by rows (the only sparse product that Eigen runs in parallel), and
// an explicit A^T by rows as well, so that A^T r is parallel too.
#pragma once

#include <Eigen/IterativeLinearSolvers>
#include <Eigen/SparseCore>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "operator/csr_matrix.hpp"

namespace lsmr {

// CSR arrays as Eigen wants them: 32-bit offsets.
template <class T>
struct EigenArrays {
    using View = Eigen::Map<const Eigen::SparseMatrix<T, Eigen::RowMajor, int>>;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<int> offsets;
    std::span<const int> columns;
    std::span<const T> values;

    // values: those of `a` in type T.
    EigenArrays(const CsrMatrix& a, std::span<const T> values_of_a)
        : rows(a.rows()), cols(a.cols()), offsets(static_cast<std::size_t>(a.rows()) + 1), columns{a.columns(), static_cast<std::size_t>(a.nnz())}, values(values_of_a) {
        std::transform(a.offsets(), a.offsets() + a.rows() + 1, offsets.begin(), [](std::int64_t offset) { return static_cast<int>(offset); });
    }
    View view() const {
        return {static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols), static_cast<Eigen::Index>(values.size()),
                offsets.data(), columns.data(), values.data()};
    }
};

// What Eigen's loop needs of a matrix: rows(), cols(), mat * x, mat.adjoint() * y.
template <class T>
class EigenDual {
  public:
    using View = typename EigenArrays<T>::View;
    struct Stopped {};

    // should_stop is asked once an iteration; where it says yes, Stopped is thrown out of the loop.
    EigenDual(const View& a, const View& at, const std::function<bool()>& should_stop) : a_(a), at_(at), should_stop_(should_stop) {}
    Eigen::Index rows() const { return a_.rows(); }
    Eigen::Index cols() const { return a_.cols(); }
    template <class Vector>
    auto operator*(const Vector& x) const {
        if (should_stop_()) throw Stopped();
        ++products_;
        return a_ * x;
    }
    const View& adjoint() const { return at_; }
    // Without the one before the loop, which forms the first residual.
    std::int64_t products_in_loop() const { return std::max<std::int64_t>(products_ - 1, 0); }

  private:
    const View& a_;
    const View& at_;
    const std::function<bool()>& should_stop_;
    mutable std::int64_t products_ = 0;
};

}  // namespace lsmr
