// The order of rows and columns of a matrix on the device: chosen by what its products gather, made, and verified on the permuted matrix.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "operator/cuda/csr_product.hpp"
#include "operator/operator_options.hpp"

namespace lsmr::cuda {

// Both products of a pair of orientations by the kernels that are the fastest for it.
struct PairTiming {
    double seconds = 0;  // of A x and A^T y
    ProductDecision forward;
    ProductDecision adjoint;
};
// What an order is made and verified with.
template <class T>
struct OrderTools {
    std::function<DeviceCsr<T>(const DeviceCsr<T>&)> transpose;  // CSR of the transpose, whose rows are sorted whatever those given are
    std::function<PairTiming(const DeviceCsr<T>& a, const DeviceCsr<T>& at)> measure;  // empty: predictions decide, the same at every run
};
struct ChosenOrder {
    std::shared_ptr<const MatrixOrder> order;  // null: as given
    std::optional<PairTiming> timing;          // of the matrix that was left in a and at, where it was measured
};

// a: CSR of A; at: CSR of A^T, or empty (null offsets) with single storage. Both become those of the permuted matrix.
// Throws OutOfMemory where an order was asked for; InputError where a given one is of another matrix. Waits for the stream.
template <class T>
ChosenOrder choose_order(DeviceCsr<T>& a, DeviceCsr<T>& at, const OperatorOptions& options, const OrderTools<T>& tools, OrderDecision& decision,
                         const CudaContext& context);

}  // namespace lsmr::cuda
