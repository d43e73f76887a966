// Incomplete Cholesky of A^T A + G^T G + damp^2 D^2, without forming it: its columns are made one at a time.
//
// N is scaled to a unit diagonal, S N S + shift I ~ L L^T, and K = S L^-T, so that K K^T ~ N^-1. Where a pivot is not above rounding the
// factorisation begins again under a larger shift (T. A. Manteuffel, Math. Comp. 34 (1980), DOI 10.1090/S0025-5718-1980-0559197-0).
// Left-looking by columns, as in C.-J. Lin, J. J. More, SIAM J. Sci. Comput. 21 (1999), DOI 10.1137/S1064827597327334.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "operator/order.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr {

struct IncompleteCholeskyOptions {
    double drop = -1;  // entries of L below it are dropped; negative: what lies outside the pattern of N is (level 0)
    double shift = 0;  // of the unit diagonal, to begin with
    std::int64_t limit_bytes = 0;  // of L
};

class IncompleteCholesky {
  public:
    // Of [a; below; damp D], scaled so that its largest entry is near 1; below may be null, column_scale (D) empty. An empty column of N has
    // a 1 in L. Throws InputError where L would take more than limit_bytes.
    IncompleteCholesky(const CsrMatrix& a, const CsrMatrix* below, const std::vector<double>& column_scale, double damp,
                       const IncompleteCholeskyOptions& options);

    std::int64_t cols() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
    std::int64_t nnz() const { return static_cast<std::int64_t>(rows_.size()); }
    double shift() const { return shift_; }  // that was needed
    int exponent() const { return exponent_; }  // K is that of 2^-exponent [a; below; damp D]
    const std::vector<double>& values() const { return values_; }
    const std::vector<double>& scale() const { return scale_; }  // S
    CsrMatrix upper() const;                                     // L^T

    // K in host memory, by triangular solves, for columns of A in this order; the factor must outlive it. T: double, float.
    template <class T>
    std::unique_ptr<LinearOperator<T>> inverse(const std::vector<std::int32_t>& order = {}) const;

  private:
    template <class T>
    friend class TriangularInverse;
    bool factor(const CsrMatrix& a, const CsrMatrix& at, const CsrMatrix* below, const CsrMatrix* below_t, const std::vector<double>& diagonal,
                const IncompleteCholeskyOptions& options);

    // L by columns, the diagonal first.
    std::vector<std::int64_t> begins_;
    std::vector<std::int32_t> rows_;
    std::vector<double> values_;
    std::vector<double> scale_;  // S
    double shift_ = 0;
    int exponent_ = 0;
};

}  // namespace lsmr
