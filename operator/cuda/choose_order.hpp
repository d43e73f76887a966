// The order of rows and columns of a matrix on the device: chosen by what its products gather, made, and verified on the permuted matrix.
#pragma once

#include <functional>
#include <memory>

#include "operator/cuda/csr_product.hpp"
#include "operator/operator_options.hpp"

namespace lsmr::cuda {

// a: CSR of A; at: CSR of A^T, or empty (null offsets) with single storage. Both become those of the permuted matrix. transpose: CSR of the transpose,
// whose rows are sorted whatever those given are. Null: as given.
// Throws OutOfMemory where an order was asked for; InputError where a given one is of another matrix. Waits for the stream.
template <class T>
std::shared_ptr<const MatrixOrder> choose_order(DeviceCsr<T>& a, DeviceCsr<T>& at, const OperatorOptions& options,
                                                const std::function<DeviceCsr<T>(const DeviceCsr<T>&)>& transpose, OrderDecision& decision,
                                                const CudaContext& context);

}  // namespace lsmr::cuda
