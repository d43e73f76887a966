// MatrixOperator<T>: a sparse matrix as a LinearOperator, held as CSR(A) and as CSC(A) (= CSR of A^T), so that both products are
// row-wise gathers of fixed order; or, with single storage, as CSR(A) alone.
#pragma once

#include <memory>

#include "operator/csr_matrix.hpp"
#include "operator/linear_operator.hpp"
#include "operator/operator_options.hpp"
#include "operator/order.hpp"

namespace lsmr {

template <class T>
class MatrixOperator : public LinearOperator<T> {
  public:
    bool capturable() const override { return true; }
    virtual const OperatorPlan& plan() const = 0;
    // The order in which its vectors are, where OperatorOptions left that open: it is P_r A P_c^T. Null: as given. Kept by update().
    virtual const std::shared_ptr<const MatrixOrder>& order() const = 0;
    // Puts another matrix of the same rows and columns in the place of A, whose values or structure have changed, and raises version(). Kernels
    // are kept where the dispatch would see no difference, and chosen anew where it does. No product may be under way; workspaces made before
    // adapt at their next product, which therefore must not be one that is being captured. Throws InputError for another shape, and then nothing has
    // changed. Where memory runs out, or a kernel that was asked for does not fit the new matrix (InputError), the operator holds no matrix until an update
    // succeeds: its products throw InputError.
    virtual void update(std::shared_ptr<const CsrMatrix> a) = 0;
    virtual std::int64_t version() const = 0;
};

// In host memory. The matrix is shared: where T is double and options.exponent is 0, the forward product reads it in place.
template <class T>
std::unique_ptr<MatrixOperator<T>> make_cpu_operator(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options = {});

// Whether two stored orientations pay for the products that are expected: fewer than this and the transpose costs more than it saves.
inline constexpr std::int64_t kFewProducts = 16;

}  // namespace lsmr
