#include "solver/cuda/preconditioner_kernels.hpp"

#include <algorithm>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/vector_kernels.hpp"
#include "solver/sparse_sign.hpp"

namespace lsmr::cuda {
namespace {

__device__ std::int64_t first_index() { return static_cast<std::int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x; }
__device__ std::int64_t index_step() { return static_cast<std::int64_t>(gridDim.x) * kVectorThreads; }

template <class T>
__global__ void __launch_bounds__(kVectorThreads) gather_kernel(std::int64_t n, const T* a_pointer, const T* x, const std::int32_t* index,
                                                                const T* scale, const T* b_pointer, T* y, double* partials) {
    const T a = *a_pointer;
    const T b = *b_pointer;
    double squares = 0;
    for (std::int64_t i = first_index(); i < n; i += index_step()) {
        T value = x[index != nullptr ? index[i] : i];
        if (scale != nullptr) value *= scale[i];
        value = b != T(0) ? a * value + b * y[i] : a * value;
        y[i] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    __shared__ double scratch[32];
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kVectorThreads) signs_kernel(std::uint64_t seed, std::int64_t first, std::int64_t count, std::int64_t rows,
                                                               std::int32_t* offsets, std::int32_t* columns, double* values) {
    for (std::int64_t t = first_index(); t < count * kSigns; t += index_step()) {
        const std::int64_t i = t / kSigns;
        const SparseSign sign = sparse_sign(seed, first + i, static_cast<int>(t % kSigns), rows);
        columns[t] = static_cast<std::int32_t>(sign.row);
        values[t] = sign.value;
        if (t % kSigns == 0) offsets[i] = static_cast<std::int32_t>(t);
        if (t + 1 == count * kSigns) offsets[count] = static_cast<std::int32_t>(t + 1);
    }
}

constexpr int kWarp = 32;
constexpr std::int64_t kPanel = 4096;  // columns that a warp sums in shared memory at a time: 32 KiB

// A warp for each row of S and panel of columns. A row of A has no column twice, so its entries are added at once; rows follow one another, and
// the first entries of the next one are on their way meanwhile.
__global__ void __launch_bounds__(kWarp) sketch_kernel(std::int64_t rows, std::int64_t n, const std::int32_t* s_offsets, const std::int32_t* s_columns,
                                                       const double* s_values, const std::int32_t* a_offsets, const std::int32_t* a_columns,
                                                       const double* a_values, double* sa) {
    extern __shared__ double sums[];
    const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x);
    const std::int64_t row = blockIdx.x;
    const std::int64_t panel = blockIdx.y * kPanel;
    const auto width = static_cast<std::int32_t>(n - panel < kPanel ? n - panel : kPanel);
    const std::int32_t begin = s_offsets[row];
    const std::int32_t end = s_offsets[row + 1];
    if (begin == end) return;
    double* const out = sa + row + panel * rows;
    for (std::int32_t j = lane; j < width; j += kWarp) sums[j] = out[j * rows];
    __syncwarp();
    const auto add = [&](double sign, std::int64_t column, double value) {
        const std::int64_t j = column - panel;
        if (j >= 0 && j < width) sums[j] = __dadd_rn(sums[j], __dmul_rn(sign, value));
    };
    for (std::int32_t group = begin; group < end; group += kWarp) {
        const std::int32_t count = end - group < kWarp ? end - group : kWarp;
        std::int32_t from = 0, to = 0;  // of this lane's row of A
        double sign = 0;
        if (lane < count) {
            const std::int32_t i = s_columns[group + lane];
            sign = s_values[group + lane];
            from = a_offsets[i];
            to = a_offsets[i + 1];
        }
        std::int32_t row_from = __shfl_sync(0xffffffffu, from, 0), row_to = __shfl_sync(0xffffffffu, to, 0);
        std::int64_t column = -1;
        double value = 0;
        if (row_from + lane < row_to) {
            column = a_columns[row_from + lane];
            value = a_values[row_from + lane];
        }
        for (std::int32_t k = 0; k < count; ++k) {
            const std::int32_t next = k + 1 < count ? k + 1 : k;
            const std::int32_t next_from = __shfl_sync(0xffffffffu, from, next), next_to = __shfl_sync(0xffffffffu, to, next);
            std::int64_t next_column = -1;
            double next_value = 0;
            if (next_from + lane < next_to) {
                next_column = a_columns[next_from + lane];
                next_value = a_values[next_from + lane];
            }
            const double row_sign = __shfl_sync(0xffffffffu, sign, k);
            add(row_sign, column, value);  // column -1 lies before every panel
            for (std::int32_t e = row_from + kWarp + lane; e < row_to; e += kWarp) add(row_sign, a_columns[e], a_values[e]);
            __syncwarp();
            row_from = next_from;
            row_to = next_to;
            column = next_column;
            value = next_value;
        }
    }
    for (std::int32_t j = lane; j < width; j += kWarp) out[j * rows] = sums[j];
}

template <class T>
__global__ void __launch_bounds__(kVectorThreads) upper_triangle_kernel(std::int64_t n, const double* qr, std::int64_t ld, T* r) {
    for (std::int64_t t = first_index(); t < n * n; t += index_step()) {
        const std::int64_t i = t % n;
        const std::int64_t j = t / n;
        r[t] = i <= j ? static_cast<T>(qr[i + j * ld]) : T(0);
    }
}

}  // namespace

template <class T>
void launch_gather(std::int64_t n, Scalar<T> a, const T* x, const std::int32_t* index, const T* scale, Scalar<T> b, T* y, double* partials,
                   cudaStream_t stream) {
    gather_kernel<<<static_cast<unsigned>(vector_blocks(n)), kVectorThreads, 0, stream>>>(n, a.narrow, x, index, scale, b.narrow, y, partials);
    LSMR_CHECK(cudaGetLastError());
}

void launch_signs(std::uint64_t seed, std::int64_t first, std::int64_t count, std::int64_t rows, std::int32_t* offsets, std::int32_t* columns,
                  double* values, cudaStream_t stream) {
    if (count == 0) return;
    signs_kernel<<<static_cast<unsigned>(vector_blocks(count * kSigns)), kVectorThreads, 0, stream>>>(seed, first, count, rows, offsets, columns, values);
    LSMR_CHECK(cudaGetLastError());
}

void launch_sketch(std::int64_t rows, std::int64_t n, const std::int32_t* s_offsets, const std::int32_t* s_columns, const double* s_values,
                   const std::int32_t* a_offsets, const std::int32_t* a_columns, const double* a_values, double* sa, cudaStream_t stream) {
    if (rows == 0 || n == 0) return;
    const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>((n + kPanel - 1) / kPanel));
    const std::size_t shared_bytes = static_cast<std::size_t>(std::min(n, kPanel)) * sizeof(double);
    sketch_kernel<<<grid, kWarp, shared_bytes, stream>>>(rows, n, s_offsets, s_columns, s_values, a_offsets, a_columns, a_values, sa);
    LSMR_CHECK(cudaGetLastError());
}

template <class T>
void launch_upper_triangle(std::int64_t n, const double* qr, std::int64_t ld, T* r, cudaStream_t stream) {
    if (n == 0) return;
    upper_triangle_kernel<<<static_cast<unsigned>(vector_blocks(n * n)), kVectorThreads, 0, stream>>>(n, qr, ld, r);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE(T)                                                                                                                       \
    template void launch_gather(std::int64_t, Scalar<T>, const T*, const std::int32_t*, const T*, Scalar<T>, T*, double*, cudaStream_t);         \
    template void launch_upper_triangle(std::int64_t, const double*, std::int64_t, T*, cudaStream_t);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
