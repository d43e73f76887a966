// Sketch-and-precondition for tall A of moderate width: a random S with 4 n rows, S A = Q R, and K = R^-1 as the preconditioner, under
// which the condition is near 1 whatever that of A is.
//
// V. Rokhlin, M. Tygert, "A fast randomized algorithm for overdetermined linear least-squares regression", PNAS 105 (2008),
// DOI 10.1073/pnas.0804869105; sparse signs: 8 entries +-1/sqrt(8) in each column of S. The iteration starts from the sketch's own
// solution: from zero it is not stable (M. Meier, Y. Nakatsukasa, A. Townsend, M. Webb, SIAM J. Matrix Anal. Appl. 45 (2024)).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr {

class Sketch {
  public:
    // Of [a; below; damp D], scaled so that its largest entry is near 1. The same seed gives the same S. Dense: throws InputError, with the
    // size, where 4 n x n values are more than limit_bytes; and where S A is singular to rounding.
    Sketch(const CsrMatrix& a, const CsrMatrix* below, const std::vector<double>& column_scale, double damp, std::uint64_t seed,
           std::int64_t limit_bytes);
    ~Sketch();

    std::int64_t rows() const;  // of S
    std::int64_t cols() const;
    int exponent() const;       // R is that of 2^-exponent [a; below; damp D]
    std::uint64_t fingerprint() const;  // of R

    // P R^-1, in host memory, P the order of the columns of A (operator/order.hpp); the sketch must outlive it.
    template <class T>
    std::unique_ptr<LinearOperator<T>> inverse(const std::vector<std::int32_t>& order = {}) const;
    // The d of least ||S (r - 2^-exponent [a; below; damp D] d)||.
    std::vector<double> solve(std::span<const double> r) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lsmr
