// The row kernels: a fixed number of threads a row, no plan. Each is right for any matrix and fast for some; the stream kernel beats them
// nearly everywhere (docs/benchmarks/h200_spmv.md), but for long rows of equal length, where a warp a row wins.
#include <algorithm>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/row_kernels.hpp"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 256;

// A thread's share of a row: entries first, first + stride, ... below end. Four loads in flight; A streams past the caches, x stays in them.
template <class T, class Offset>
__device__ T share_of_row(const CsrDevice<T, Offset>& matrix, Offset first, Offset end, int stride, const T* x) {
    constexpr int kBatch = 4;
    T sum = 0;
    Offset k = first;
    for (; k + static_cast<Offset>((kBatch - 1) * stride) < end; k += static_cast<Offset>(kBatch * stride)) {
        std::int32_t columns[kBatch];
        T values[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            columns[i] = __ldcs(matrix.columns + k + i * stride);
            values[i] = __ldcs(matrix.values + k + i * stride);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) sum += values[i] * x[columns[i]];
    }
    for (; k < end; k += static_cast<Offset>(stride)) sum += __ldcs(matrix.values + k) * x[__ldcs(matrix.columns + k)];
    return sum;
}

// kTeam threads a row, 1 to 32. Bytes: (sizeof(T) + 4) nnz + sizeof(Offset) rows + x once + y twice.
template <int kTeam, class T, class Offset>
__global__ void __launch_bounds__(kThreads)
    team_rows_kernel(CsrDevice<T, Offset> matrix, const T* a_pointer, const T* x, const T* b_pointer, T* y, double* partials) {
    __shared__ double scratch[32];
    await_previous();
    admit_next();
    const T a = *a_pointer;
    const T b = *b_pointer;
    constexpr int kGroups = kThreads / kTeam;
    const int lane = static_cast<int>(threadIdx.x) % kTeam;
    double squares = 0;
    for (std::int64_t first = std::int64_t{blockIdx.x} * kGroups; first < matrix.rows; first += std::int64_t{gridDim.x} * kGroups) {
        const std::int64_t row = first + static_cast<int>(threadIdx.x) / kTeam;
        const bool exists = row < matrix.rows;
        T sum = 0;
        if (exists) sum = share_of_row(matrix, matrix.offsets[row] + static_cast<Offset>(lane), matrix.offsets[row + 1], kTeam, x);
#pragma unroll
        for (int d = kTeam / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (!exists || lane != 0) continue;
        const T value = b != T(0) ? a * sum + b * y[row] : a * sum;
        y[row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// Long rows in segments, a warp a segment: those of neighbouring rows run side by side, and the segments of one part of all rows before those
// of the next, so that rows that gather from like places do so at the same time. pieces: segments x rows sums.
constexpr int kSegmentThreads = 1024;
template <class T, class Offset>
__global__ void __launch_bounds__(kSegmentThreads)
    segment_rows_kernel(CsrDevice<T, Offset> matrix, int segments, const T* x, double* pieces) {
    await_previous();
    admit_next();
    constexpr int kGroups = kSegmentThreads / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t groups = (matrix.rows + kGroups - 1) / kGroups;
    for (std::int64_t group = blockIdx.x; group < groups * segments; group += gridDim.x) {
        const std::int64_t segment = group / groups;
        const std::int64_t row = group % groups * kGroups + static_cast<int>(threadIdx.x) / 32;
        __syncthreads();  // side by side: none runs ahead
        if (row >= matrix.rows) continue;
        const Offset begin = matrix.offsets[row];
        const std::int64_t length = static_cast<std::int64_t>(matrix.offsets[row + 1] - begin);
        const auto place = [&](std::int64_t s) { return begin + static_cast<Offset>(length * s / segments); };
        T sum = share_of_row(matrix, place(segment) + static_cast<Offset>(lane), place(segment + 1), 32, x);
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (lane == 0) pieces[segment * matrix.rows + row] = static_cast<double>(sum);
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_segments_kernel(std::int64_t rows, int segments, const double* pieces, const T* a_pointer, const T* b_pointer, T* y, double* partials) {
    __shared__ double scratch[32];
    await_previous();
    admit_next();
    const T a = *a_pointer;
    const T b = *b_pointer;
    double squares = 0;
    for (std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; row < rows; row += std::int64_t{gridDim.x} * kThreads) {
        double sum = 0;
        for (int s = 0; s < segments; ++s) sum += pieces[s * rows + row];
        const T value = b != T(0) ? a * static_cast<T>(sum) + b * y[row] : a * static_cast<T>(sum);
        y[row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// A block a row.
template <class T, class Offset>
__global__ void block_rows_kernel(CsrDevice<T, Offset> matrix, const T* a_pointer, const T* x, const T* b_pointer, T* y, double* partials) {
    __shared__ double scratch[32];
    await_previous();
    admit_next();
    const T a = *a_pointer;
    const T b = *b_pointer;
    double squares = 0;
    for (std::int64_t row = blockIdx.x; row < matrix.rows; row += gridDim.x) {
        const T share = share_of_row(matrix, matrix.offsets[row] + static_cast<Offset>(threadIdx.x), matrix.offsets[row + 1],
                                     static_cast<int>(blockDim.x), x);
        const T sum = static_cast<T>(block_sum(static_cast<double>(share), scratch));
        if (threadIdx.x != 0) continue;
        const T value = b != T(0) ? a * sum + b * y[row] : a * sum;
        y[row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials != nullptr && threadIdx.x == 0) partials[blockIdx.x] = squares;
}

}  // namespace

int row_blocks(int team, std::int64_t rows, int multiprocessors) {
    const int threads = team > 32 ? team : kThreads;
    const std::int64_t rows_per_block = team > 32 ? 1 : kThreads / team;
    const std::int64_t resident = std::int64_t{2048 / threads} * multiprocessors;
    return static_cast<int>(std::clamp<std::int64_t>((rows + rows_per_block - 1) / rows_per_block, 1, std::min<std::int64_t>(resident, kMaxPartials)));
}

template <class T, class Offset>
void launch_rows(int team, int blocks, const CsrDevice<T, Offset>& matrix, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials,
                 cudaStream_t stream) {
    const auto go = [&](auto kernel, int threads) {
        launch_dependent(kernel, blocks, threads, 0, stream, matrix, a.narrow, x, b.narrow, y, partials);
    };
    switch (team) {
        case 1: go(team_rows_kernel<1, T, Offset>, kThreads); break;
        case 2: go(team_rows_kernel<2, T, Offset>, kThreads); break;
        case 4: go(team_rows_kernel<4, T, Offset>, kThreads); break;
        case 8: go(team_rows_kernel<8, T, Offset>, kThreads); break;
        case 16: go(team_rows_kernel<16, T, Offset>, kThreads); break;
        case 32: go(team_rows_kernel<32, T, Offset>, kThreads); break;
        default: go(block_rows_kernel<T, Offset>, team);
    }
}

SegmentLaunch segment_launch(std::int64_t rows, std::int64_t nnz, int multiprocessors) {
    constexpr std::int64_t kSegment = 2048;  // entries of a warp: 64 a lane
    SegmentLaunch launch;
    if (rows == 0) return launch;
    launch.segments = static_cast<int>(std::clamp<std::int64_t>((nnz / rows + kSegment - 1) / kSegment, 1, 64));
    const std::int64_t groups = (rows + kSegmentThreads / 32 - 1) / (kSegmentThreads / 32) * launch.segments;
    launch.blocks = static_cast<int>(std::min<std::int64_t>(groups, multiprocessors));  // one each: what its rows gather stays in L1
    launch.finish_blocks = static_cast<int>(std::min<std::int64_t>((rows + kThreads - 1) / kThreads, kMaxPartials));
    return launch;
}

template <class T, class Offset>
void launch_segments(const SegmentLaunch& launch, const CsrDevice<T, Offset>& matrix, double* pieces, Scalar<T> a, const T* x, Scalar<T> b, T* y,
                     double* partials, cudaStream_t stream) {
    launch_dependent(segment_rows_kernel<T, Offset>, launch.blocks, kSegmentThreads, 0, stream, matrix, launch.segments, x, pieces);
    launch_dependent(add_segments_kernel<T>, launch.finish_blocks, kThreads, 0, stream, matrix.rows, launch.segments, static_cast<const double*>(pieces),
                     a.narrow, b.narrow, y, partials);
}

#define LSMR_INSTANTIATE(T, Offset)                                                                                                   \
    template void launch_rows(int, int, const CsrDevice<T, Offset>&, Scalar<T>, const T*, Scalar<T>, T*, double*, cudaStream_t); \
    template void launch_segments(const SegmentLaunch&, const CsrDevice<T, Offset>&, double*, Scalar<T>, const T*, Scalar<T>, T*, double*, cudaStream_t);
LSMR_INSTANTIATE(double, std::int32_t)
LSMR_INSTANTIATE(double, std::int64_t)
LSMR_INSTANTIATE(float, std::int32_t)
LSMR_INSTANTIATE(float, std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
