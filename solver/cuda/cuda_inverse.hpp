// K of preconditioners by triangular solves in device memory. See solver/preconditioner.hpp for what K is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memory/cuda_context.hpp"
#include "memory/device_buffer.hpp"
#include "operator/linear_operator.hpp"
#include "solver/incomplete_cholesky.hpp"

namespace lsmr {

// P S L^-T and L^-1 S P^T of an incomplete factor, P the order of the columns of A (operator/order.hpp), by cuSPARSE, which analyses L and L^T for
// each workspace. L is kept twice, by rows and by columns, so that both solves have a fixed order. The context must outlive it.
// Throws OutOfMemory; InputError beyond 2^31 - 1 entries.
template <class T>
std::unique_ptr<LinearOperator<T>> make_cuda_inverse(const IncompleteCholesky& factor, const std::vector<std::int32_t>& order, CudaContext& context);

// P R^-1 and R^-T P^T of an upper triangular R, n x n, by columns, by cuBLAS.
template <class T>
std::unique_ptr<LinearOperator<T>> make_cuda_inverse(std::int64_t n, DeviceBuffer<T> r, const std::vector<std::int32_t>& order, CudaContext& context);

}  // namespace lsmr
