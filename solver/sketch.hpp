// Sketch-and-precondition for tall A of moderate width: a random S with 4 n rows, S A = Q R, and K = R^-1 as the preconditioner, under
// which the condition is near 1 whatever that of A is.
//
// V. Rokhlin, M. Tygert, "A fast randomized algorithm for overdetermined linear least-squares regression", PNAS 105 (2008),
// DOI 10.1073/pnas.0804869105; sparse signs (solver/sparse_sign.hpp). The iteration starts from the sketch's own solution: from zero it is
// not stable (M. Meier, Y. Nakatsukasa, A. Townsend, M. Webb, SIAM J. Matrix Anal. Appl. 45 (2024)).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr {

// What is sketched, and by which S; the same on every device.
struct SketchPlan {
    std::vector<std::shared_ptr<const CsrMatrix>> parts;  // [A; G; damp D], one below the other
    std::int64_t rows = 0;  // of S
    std::int64_t cols = 0;
    std::uint64_t seed = 0;
    int exponent = 0;  // S and R are those of 2^-exponent times the parts, whose largest entry is then near 1
};

// below may be null, column_scale (D) empty. Dense: throws InputError, with the size, where 4 n x n values are more than limit_bytes.
SketchPlan plan_sketch(std::shared_ptr<const CsrMatrix> a, std::shared_ptr<const CsrMatrix> below, const std::vector<double>& column_scale,
                       double damp, std::uint64_t seed, std::int64_t limit_bytes);
// S r; r may be shorter than the parts, and is zero from there on.
std::vector<double> sketched(const SketchPlan& plan, std::span<const double> r);
// S A, in fp64, by columns.
std::vector<double> sketched_matrix(const SketchPlan& plan);
// Throws InputError where R, of this diagonal, is singular to rounding.
void check_sketch_rank(std::span<const double> diagonal);

// The factors in host memory.
class Sketch {
  public:
    // Throws InputError where S A is singular to rounding.
    explicit Sketch(std::shared_ptr<const SketchPlan> plan);
    ~Sketch();

    // P R^-1, in host memory, P the order of the columns of A (operator/order.hpp); the sketch must outlive it.
    template <class T>
    std::unique_ptr<LinearOperator<T>> inverse(const std::vector<std::int32_t>& order = {}) const;
    // The d of least ||S (r - 2^-exponent [A; G; damp D] d)||.
    std::vector<double> solve(std::span<const double> r) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lsmr
