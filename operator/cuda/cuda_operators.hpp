// Operators in device memory.
#pragma once

#include <functional>
#include <memory>

#include "memory/cuda_context.hpp"
#include "operator/matrix_operator.hpp"

namespace lsmr {

// The matrix operator on the GPU. Uploads A, completes the other orientation there, plans both products.
// The context must outlive it. Throws OutOfMemory with the bytes it needs, InputError where options contradict the device.
template <class T>
std::unique_ptr<MatrixOperator<T>> make_cuda_operator(const CsrMatrix& a, CudaContext& context, const OperatorOptions& options = {});

// The same for a matrix given as compressed columns: `transpose` is CSR of A^T, whose arrays are CSC of A. CSR(A) is made on the device.
template <class T>
std::unique_ptr<MatrixOperator<T>> make_cuda_operator_from_csc(const CsrMatrix& transpose, CudaContext& context,
                                                               const OperatorOptions& options = {});

// Device bytes of the operator, by the storage: values, columns, offsets.
template <class T>
std::int64_t cuda_operator_bytes(std::int64_t rows, std::int64_t cols, std::int64_t nnz, StorageKind storage);

// A user's A as two functions on device memory: forward(x, y, stream) sets y = A x, adjoint(y, x, stream) sets x = A^T y, in the order of
// the stream (a CUstream_st*, which is a cudaStream_t). Combined with a, b and the norm through a buffer of the pool.
template <class T>
using CudaProduct = std::function<void(const T* in, T* out, CUstream_st* stream)>;
template <class T>
std::unique_ptr<LinearOperator<T>> make_cuda_function_operator(std::int64_t rows, std::int64_t cols, CudaProduct<T> forward,
                                                               CudaProduct<T> adjoint);

}  // namespace lsmr
