// y <- a A x + b y for CSR, with the partial sums of ||y||^2 in the same pass.
#include <algorithm>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/csr_kernels.hpp"

namespace lsmr::cuda {
namespace {

// Where entry k of a chunk lies in shared memory: every 128 bytes one value is left free, so that threads that walk rows of 2, 4, 8 or 16
// entries side by side do not meet in one bank.
template <class T>
__device__ int slot(int k) {
    constexpr int kValues = 128 / static_cast<int>(sizeof(T));
    return k + k / kValues;
}

// The sum of a row's entries [begin, end) over the block, in every thread; fixed order.
template <class T, class Offset>
__device__ double block_product(Offset begin, Offset end, const std::int32_t* __restrict__ columns, const T* __restrict__ values,
                                const T* __restrict__ x, double* scratch) {
    T sum = 0;
    for (Offset k = begin + static_cast<Offset>(threadIdx.x); k < end; k += kCsrThreads) sum += __ldcs(values + k) * x[__ldcs(columns + k)];
    return block_sum(static_cast<double>(sum), scratch);
}

// Stream: a block loads the entries of an item in order, whatever the lengths of its rows, multiplies, and keeps the products in shared
// memory; then one thread adds up each row. All lanes load, and loads are contiguous, also where rows are short.
// A streams past the caches (read once); x stays in them. Blocks step through the items: as many blocks as the card holds.
// Bytes: (sizeof(T) + 4) nnz + sizeof(Offset) rows + x once + y twice, and 8 per item.
template <class T, class Offset>
__global__ void __launch_bounds__(kCsrThreads, 8)
    csr_stream_kernel(CsrDevice<T, Offset> matrix, const T* a_pointer, const T* __restrict__ x, const T* b_pointer, T* y, double* partials,
                      double* segment_sums) {
    constexpr int kCapacity = static_cast<int>(kCsrCapacity<T>);
    __shared__ T products[kCapacity + kCapacity / (128 / static_cast<int>(sizeof(T))) + 1];
    __shared__ double scratch[32];
    const Offset* __restrict__ offsets = matrix.offsets;
    const std::int32_t* __restrict__ columns = matrix.columns;
    const T* __restrict__ values = matrix.values;
    const T a = *a_pointer;
    const T b = *b_pointer;
    double squares = 0;
    for (std::int32_t turn = static_cast<std::int32_t>(blockIdx.x); turn < matrix.item_count + matrix.segment_count;
         turn += static_cast<std::int32_t>(gridDim.x)) {
        // Pieces of split rows first: they take longest.
        if (turn < matrix.segment_count) {
            const CsrSegment segment = matrix.segments[turn];
            const Offset begin = offsets[segment.row] + static_cast<Offset>(segment.part) * static_cast<Offset>(kCsrSegment);
            const Offset row_end = offsets[segment.row + 1];
            const Offset end = row_end - begin < static_cast<Offset>(kCsrSegment) ? row_end : begin + static_cast<Offset>(kCsrSegment);
            const double sum = block_product(begin, end, columns, values, x, scratch);
            if (threadIdx.x == 0) segment_sums[turn] = sum;
            continue;
        }
        const CsrItem item = matrix.items[turn - matrix.segment_count];
        const Offset begin = offsets[item.first_row];
        const Offset all = offsets[item.end_row] - begin;
        if (all > static_cast<Offset>(kCapacity)) {
            const double sum = block_product(begin, begin + all, columns, values, x, scratch);
            if (threadIdx.x == 0) {
                const T value = b != T(0) ? a * static_cast<T>(sum) + b * y[item.first_row] : a * static_cast<T>(sum);
                y[item.first_row] = value;
                squares += static_cast<double>(value) * static_cast<double>(value);
            }
            continue;
        }
        const int count = static_cast<int>(all);
#pragma unroll
        for (int i = 0; i < kCapacity / kCsrThreads; ++i) {
            const int k = i * kCsrThreads + static_cast<int>(threadIdx.x);
            if (k < count) products[slot<T>(k)] = __ldcs(values + begin + k) * x[__ldcs(columns + begin + k)];
        }
        __syncthreads();
        for (std::int32_t row = item.first_row + static_cast<std::int32_t>(threadIdx.x); row < item.end_row; row += kCsrThreads) {
            const int end = static_cast<int>(offsets[row + 1] - begin);
            T sum = 0;
            for (int k = static_cast<int>(offsets[row] - begin); k < end; ++k) sum += products[slot<T>(k)];
            const T value = b != T(0) ? a * sum + b * y[row] : a * sum;
            y[row] = value;
            squares += static_cast<double>(value) * static_cast<double>(value);
        }
        __syncthreads();
    }
    if (partials != nullptr) {
        const double total = block_sum(squares, scratch);
        if (threadIdx.x == 0) partials[blockIdx.x] = total;
    }
}

// Finishes split rows: a warp adds the segments of a row.
template <class T>
__global__ void __launch_bounds__(kCsrThreads)
    csr_split_rows_kernel(std::int32_t count, const CsrSplitRow* rows, const double* segment_sums, const T* a_pointer, const T* b_pointer, T* y,
                          double* partials) {
    const T a = *a_pointer;
    const T b = *b_pointer;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int32_t warp = static_cast<std::int32_t>(blockIdx.x * (kCsrThreads / 32) + threadIdx.x / 32);
    double squares = 0;
    for (std::int32_t i = warp; i < count; i += static_cast<std::int32_t>(gridDim.x) * (kCsrThreads / 32)) {
        const CsrSplitRow row = rows[i];
        double sum = 0;
        for (std::int32_t s = lane; s < row.count; s += 32) sum += segment_sums[row.first_segment + s];
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (lane == 0) {
            const T value = b != T(0) ? a * static_cast<T>(sum) + b * y[row.row] : a * static_cast<T>(sum);
            y[row.row] = value;
            squares += static_cast<double>(value) * static_cast<double>(value);
        }
    }
    if (partials != nullptr) {
        __shared__ double scratch[32];
        const double total = block_sum(squares, scratch);
        if (threadIdx.x == 0) partials[blockIdx.x] = total;
    }
}

}  // namespace

CsrLaunch choose_csr_launch(const CsrPlan& plan, int multiprocessors) {
    CsrLaunch launch;
    const auto turns = static_cast<std::int64_t>(plan.items.size() + plan.segments.size());
    // Eight blocks of 256 threads fill a multiprocessor.
    launch.blocks = static_cast<int>(std::clamp<std::int64_t>(turns, 1, std::min(8 * multiprocessors, kMaxPartials / 2)));
    const auto split = static_cast<std::int64_t>(plan.split_rows.size());
    constexpr std::int64_t kRowsPerBlock = kCsrThreads / 32;
    if (split > 0) launch.split_blocks = static_cast<int>(std::clamp<std::int64_t>((split + kRowsPerBlock - 1) / kRowsPerBlock, 1, multiprocessors));
    return launch;
}

template <class T, class Offset>
void launch_csr_apply(const CsrDevice<T, Offset>& matrix, const CsrLaunch& launch, Scalar<T> a, const T* x, Scalar<T> b, T* y,
                      double* partials, double* segment_sums, cudaStream_t stream) {
    csr_stream_kernel<T, Offset><<<static_cast<unsigned>(launch.blocks), kCsrThreads, 0, stream>>>(matrix, a.narrow, x, b.narrow, y, partials,
                                                                                                    segment_sums);
    LSMR_CHECK(cudaGetLastError());
    if (launch.split_blocks == 0) return;
    csr_split_rows_kernel<T><<<static_cast<unsigned>(launch.split_blocks), kCsrThreads, 0, stream>>>(
        matrix.split_row_count, matrix.split_rows, segment_sums, a.narrow, b.narrow, y, partials ? partials + launch.blocks : nullptr);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE(T, Offset)                                                                                                   \
    template void launch_csr_apply(const CsrDevice<T, Offset>&, const CsrLaunch&, Scalar<T>, const T*, Scalar<T>, T*, double*, double*, \
                                   cudaStream_t);
LSMR_INSTANTIATE(double, std::int32_t)
LSMR_INSTANTIATE(double, std::int64_t)
LSMR_INSTANTIATE(float, std::int32_t)
LSMR_INSTANTIATE(float, std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
