// Launchers of elementwise kernels that operators need.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

inline constexpr int kVectorThreads = 256;
// Blocks for a loop over n values: depends on n alone.
int vector_blocks(std::int64_t n);

// y <- a scale x + b y; partials (vector_blocks(n), or null) get partial sums of ||y||^2. b = 0: y is not read.
template <class T>
void launch_axpby(std::int64_t n, Scalar<T> a, double scale, const T* x, Scalar<T> b, T* y, double* partials, cudaStream_t stream);
// y <- b y.
template <class T>
void launch_scale(std::int64_t n, Scalar<T> b, T* y, double* partials, cudaStream_t stream);
// Partial sums of ||y||^2, vector_blocks(n) of them.
template <class T>
void launch_norm(std::int64_t n, const T* y, double* partials, cudaStream_t stream);
// max |p_i| as a double into *result (set to 0 before); infinite where an element is not finite.
template <class T>
void launch_max_abs(std::int64_t n, const T* p, double* result, cudaStream_t stream);

}  // namespace lsmr::cuda
