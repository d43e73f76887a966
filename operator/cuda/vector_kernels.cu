#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/vector_kernels.hpp"

namespace lsmr::cuda {
namespace {

__device__ std::int64_t first_index() { return static_cast<std::int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x; }
__device__ std::int64_t index_step() { return static_cast<std::int64_t>(gridDim.x) * kVectorThreads; }

__device__ void put_partial(double squares, double* partials) {
    if (partials == nullptr) return;
    __shared__ double scratch[32];
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <class T>
__global__ void __launch_bounds__(kVectorThreads)
    axpby_kernel(std::int64_t n, const double* a_pointer, double scale, const T* x, const T* b_pointer, T* y, double* partials) {
    const T a = static_cast<T>(*a_pointer * scale);
    const T b = *b_pointer;
    double squares = 0;
    for (std::int64_t i = first_index(); i < n; i += index_step()) {
        const T value = b != T(0) ? a * x[i] + b * y[i] : a * x[i];
        y[i] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    put_partial(squares, partials);
}

template <class T>
__global__ void __launch_bounds__(kVectorThreads) scale_kernel(std::int64_t n, const T* b_pointer, T* y, double* partials) {
    const T b = *b_pointer;
    double squares = 0;
    for (std::int64_t i = first_index(); i < n; i += index_step()) {
        const T value = b != T(0) ? b * y[i] : T(0);
        y[i] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    put_partial(squares, partials);
}

template <class T>
__global__ void __launch_bounds__(kVectorThreads) norm_kernel(std::int64_t n, const T* y, double* partials) {
    double squares = 0;
    for (std::int64_t i = first_index(); i < n; i += index_step()) {
        squares += static_cast<double>(y[i]) * static_cast<double>(y[i]);
    }
    put_partial(squares, partials);
}

// Non-negative doubles compare like their bits; NaN is made infinite first.
template <class T>
__global__ void __launch_bounds__(kVectorThreads) max_abs_kernel(std::int64_t n, const T* p, unsigned long long* result) {
    double largest = 0;
    for (std::int64_t i = first_index(); i < n; i += index_step()) {
        const double value = fabs(static_cast<double>(p[i]));
        largest = value <= largest ? largest : isfinite(value) ? value : __longlong_as_double(0x7ff0000000000000ll);
    }
    atomicMax(result, static_cast<unsigned long long>(__double_as_longlong(largest)));
}

}  // namespace

int vector_blocks(std::int64_t n) {
    const std::int64_t needed = (n + kVectorThreads - 1) / kVectorThreads;
    constexpr std::int64_t kMost = 1056;  // eight blocks on each of 132 multiprocessors fill an H200; a constant keeps sums the same everywhere
    return static_cast<int>(needed < 1 ? 1 : needed < kMost ? needed : kMost);
}

template <class T>
void launch_axpby(std::int64_t n, Scalar<T> a, double scale, const T* x, Scalar<T> b, T* y, double* partials, cudaStream_t stream) {
    axpby_kernel<<<static_cast<unsigned>(vector_blocks(n)), kVectorThreads, 0, stream>>>(n, a.wide, scale, x, b.narrow, y, partials);
    LSMR_CHECK(cudaGetLastError());
}
template <class T>
void launch_scale(std::int64_t n, Scalar<T> b, T* y, double* partials, cudaStream_t stream) {
    scale_kernel<<<static_cast<unsigned>(vector_blocks(n)), kVectorThreads, 0, stream>>>(n, b.narrow, y, partials);
    LSMR_CHECK(cudaGetLastError());
}
template <class T>
void launch_norm(std::int64_t n, const T* y, double* partials, cudaStream_t stream) {
    norm_kernel<<<static_cast<unsigned>(vector_blocks(n)), kVectorThreads, 0, stream>>>(n, y, partials);
    LSMR_CHECK(cudaGetLastError());
}
template <class T>
void launch_max_abs(std::int64_t n, const T* p, double* result, cudaStream_t stream) {
    max_abs_kernel<<<static_cast<unsigned>(vector_blocks(n)), kVectorThreads, 0, stream>>>(n, p, reinterpret_cast<unsigned long long*>(result));
    LSMR_CHECK(cudaGetLastError());
}
#define LSMR_INSTANTIATE(T)                                                                                             \
    template void launch_axpby(std::int64_t, Scalar<T>, double, const T*, Scalar<T>, T*, double*, cudaStream_t);       \
    template void launch_scale(std::int64_t, Scalar<T>, T*, double*, cudaStream_t);                                    \
    template void launch_norm(std::int64_t, const T*, double*, cudaStream_t);                                          \
    template void launch_max_abs(std::int64_t, const T*, double*, cudaStream_t);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
