// Diagonals: a thread a row, neighbouring threads read neighbouring values and neighbouring x, and no index is read but one a diagonal.
// Bytes: sizeof(T) rows diagonals + x once + y twice.
#include <algorithm>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/diagonal_kernels.hpp"
#include "operator/cuda/stored_values.cuh"
#include "operator/profile.hpp"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBatch = 8;

// kBatch diagonals from `first` on, of those below `count`.
template <bool kAll, class T>
__device__ T add_diagonals(T sum, const DiagonalMatrix<T>& matrix, const std::int32_t* offsets, int first, std::int64_t row, const T* __restrict__ x) {
    T stored[kBatch][1];
    T gathered[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
        if (kAll || first + i < matrix.count) {
            load_streamed(matrix.values + (first + i) * matrix.stride + row, stored[i]);
            // Where the diagonal is outside of A its places are marked.
            const std::int64_t column = row + offsets[first + i];
            gathered[i] = column >= 0 && column < matrix.cols ? __ldg(x + column) : T(0);
        } else {
            set_absent(stored[i][0]);
            gathered[i] = 0;
        }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) sum = add_product(sum, stored[i][0], gathered[i]);
    return sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) diagonals_kernel(DiagonalMatrix<T> matrix, const T* a_pointer, const T* __restrict__ x, const T* b_pointer, T* y,
                                                             double* partials) {
    __shared__ double scratch[32];
    __shared__ std::int32_t offsets[kDiagonalCap];
    for (int d = static_cast<int>(threadIdx.x); d < matrix.count; d += kThreads) offsets[d] = matrix.offsets[d];
    __syncthreads();
    const T a = *a_pointer;
    const T b = *b_pointer;
    double squares = 0;
    for (std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; row < matrix.rows; row += std::int64_t{gridDim.x} * kThreads) {
        const T old = b != T(0) ? y[row] : T(0);
        T sum = 0;
        int d = 0;
        for (; d + kBatch <= matrix.count; d += kBatch) sum = add_diagonals<true>(sum, matrix, offsets, d, row, x);
        if (d < matrix.count) sum = add_diagonals<false>(sum, matrix, offsets, d, row, x);
        const T value = b != T(0) ? a * sum + b * old : a * sum;
        y[row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

unsigned blocks_for(std::int64_t n) { return static_cast<unsigned>(std::clamp<std::int64_t>(n, 1, 1 << 20)); }
unsigned warps_for(std::int64_t rows) { return blocks_for((rows + kThreads / 32 - 1) / (kThreads / 32)); }

// f(row, k): every entry, a warp a row.
template <class Offset, class F>
__device__ void for_each_entry(std::int64_t rows, const Offset* offsets, const F& f) {
    const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / 32);
    for (std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32; row < rows; row += warps) {
        const Offset end = offsets[row + 1];
        for (Offset k = offsets[row] + static_cast<Offset>(threadIdx.x % 32); k < end; k += 32) f(row, k);
    }
}

template <class Offset>
__global__ void __launch_bounds__(kThreads) mark_diagonals_kernel(std::int64_t rows, const Offset* offsets, const std::int32_t* columns, std::uint8_t* occupied) {
    for_each_entry(rows, offsets, [&](std::int64_t row, Offset k) { occupied[rows - 1 - row + columns[k]] = 1; });
}

template <class T>
__global__ void __launch_bounds__(kThreads) mark_places_kernel(std::int64_t n, T* places) {
    for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += std::int64_t{gridDim.x} * kThreads) set_absent(places[i]);
}

template <class T, class Offset>
__global__ void __launch_bounds__(kThreads) fill_diagonals_kernel(std::int64_t rows, const Offset* offsets, const std::int32_t* columns, const T* values,
                                                                  int count, const std::int32_t* diagonal_offsets, std::int64_t stride, T* diagonals) {
    for_each_entry(rows, offsets, [&](std::int64_t row, Offset k) {
        const std::int64_t offset = columns[k] - row;
        int low = 0, high = count - 1;  // the diagonal is among them
        while (low < high) {
            const int middle = (low + high) / 2;
            if (diagonal_offsets[middle] < offset) low = middle + 1;
            else high = middle;
        }
        diagonals[low * stride + row] = values[k];
    });
}

template <class T, class Offset>
__global__ void __launch_bounds__(kThreads) fill_dense_kernel(std::int64_t rows, std::int64_t cols, const Offset* offsets, const std::int32_t* columns,
                                                              const T* values, T* dense) {
    for_each_entry(rows, offsets, [&](std::int64_t row, Offset k) { dense[row * cols + columns[k]] = values[k]; });
}

}  // namespace

template <class T>
int diagonal_blocks(std::int64_t rows, int multiprocessors) {
    int resident = 0;
    LSMR_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, diagonals_kernel<T>, kThreads, 0));
    const std::int64_t most = std::min<std::int64_t>(std::int64_t{resident} * multiprocessors, kMaxPartials);
    return static_cast<int>(std::clamp<std::int64_t>((rows + kThreads - 1) / kThreads, 1, most));
}

template <class T>
void launch_diagonals(int blocks, const DiagonalMatrix<T>& matrix, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, cudaStream_t stream) {
    diagonals_kernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(matrix, a.narrow, x, b.narrow, y, partials);
    LSMR_CHECK(cudaGetLastError());
}

template <class Offset>
void launch_mark_diagonals(std::int64_t rows, const Offset* offsets, const std::int32_t* columns, std::uint8_t* occupied, cudaStream_t stream) {
    if (rows == 0) return;
    mark_diagonals_kernel<<<warps_for(rows), kThreads, 0, stream>>>(rows, offsets, columns, occupied);
    LSMR_CHECK(cudaGetLastError());
}

template <class T, class Offset>
void launch_fill_diagonals(std::int64_t rows, const Offset* offsets, const std::int32_t* columns, const T* values, int count,
                           const std::int32_t* diagonal_offsets, std::int64_t stride, T* diagonals, cudaStream_t stream) {
    if (rows == 0 || count == 0) return;
    mark_places_kernel<<<blocks_for((count * stride + kThreads - 1) / kThreads), kThreads, 0, stream>>>(count * stride, diagonals);
    LSMR_CHECK(cudaGetLastError());
    fill_diagonals_kernel<<<warps_for(rows), kThreads, 0, stream>>>(rows, offsets, columns, values, count, diagonal_offsets, stride, diagonals);
    LSMR_CHECK(cudaGetLastError());
}

template <class T, class Offset>
void launch_fill_dense(std::int64_t rows, std::int64_t cols, const Offset* offsets, const std::int32_t* columns, const T* values, T* dense,
                       cudaStream_t stream) {
    if (rows == 0) return;
    fill_dense_kernel<<<warps_for(rows), kThreads, 0, stream>>>(rows, cols, offsets, columns, values, dense);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE_OFFSET(T, Offset)                                                                                                   \
    template void launch_fill_diagonals(std::int64_t, const Offset*, const std::int32_t*, const T*, int, const std::int32_t*, std::int64_t, T*, \
                                        cudaStream_t);                                                                                       \
    template void launch_fill_dense(std::int64_t, std::int64_t, const Offset*, const std::int32_t*, const T*, T*, cudaStream_t);
#define LSMR_INSTANTIATE(T)                                                                                                                  \
    template int diagonal_blocks<T>(std::int64_t, int);                                                                                      \
    template void launch_diagonals(int, const DiagonalMatrix<T>&, Scalar<T>, const T*, Scalar<T>, T*, double*, cudaStream_t);               \
    LSMR_INSTANTIATE_OFFSET(T, std::int32_t)                                                                                                 \
    LSMR_INSTANTIATE_OFFSET(T, std::int64_t)
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE
#undef LSMR_INSTANTIATE_OFFSET
template void launch_mark_diagonals(std::int64_t, const std::int32_t*, const std::int32_t*, std::uint8_t*, cudaStream_t);
template void launch_mark_diagonals(std::int64_t, const std::int64_t*, const std::int32_t*, std::uint8_t*, cudaStream_t);

}  // namespace lsmr::cuda
