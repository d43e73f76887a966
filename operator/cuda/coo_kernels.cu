// Products with COO: a segmented reduction in a fixed order. A warp walks a chunk of entries, 4 neighbouring ones a thread at a time: a thread adds
// runs of equal rows among its own, a scan over the warp adds the runs that go on from thread to thread, and the last run is carried to the
// next step. Rows that chunks cut are left in pieces, and a second kernel adds those.
//
// Bytes: (sizeof(V) + 8) entries + x once + y twice.
#include <algorithm>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/coo_kernels.hpp"
#include "operator/cuda/cut_rows.cuh"
#include "operator/cuda/stored_values.cuh"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kEach = static_cast<int>(kCooStep) / 32;  // entries of a thread in a step
static_assert(kEach == 4);

// Four neighbouring values, from an address that is a multiple of their size.
__device__ inline void load_four(const std::int32_t* p, std::int32_t (&to)[kEach]) {
    const int4 v = __ldcs(reinterpret_cast<const int4*>(p));
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
__device__ inline void load_four(const double* p, double (&to)[kEach]) {
    const double2 low = __ldcs(reinterpret_cast<const double2*>(p));
    const double2 high = __ldcs(reinterpret_cast<const double2*>(p) + 1);
    to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
}
__device__ inline void load_four(const float* p, float (&to)[kEach]) {
    const float4 v = __ldcs(reinterpret_cast<const float4*>(p));
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
__device__ inline void load_four(const Bf16* p, Bf16 (&to)[kEach]) {
    const ushort4 v = __ldcs(reinterpret_cast<const ushort4*>(p));
    to[0].bits = v.x, to[1].bits = v.y, to[2].bits = v.z, to[3].bits = v.w;
}

// Where the sums of a warp's chunk go.
template <class X>
struct ChunkSink {
    double* piece_sums;
    const std::int32_t* piece_rows;
    bool atomic;
    X a;
    X b;
    X* y;
    double squares;
    std::int64_t piece;     // of a row that began before the chunk; of one that goes on after it: the next
    std::int32_t head_row;  // -1: there is none
    std::int32_t tail_row;

    __device__ void keep(std::int64_t at, X sum) {
        if (atomic) atomicAdd(piece_sums + piece_rows[at], static_cast<double>(sum));
        else piece_sums[at] = static_cast<double>(sum);
    }
    // The sum of all entries of a row that lie in the chunk.
    __device__ void finish(std::int32_t row, X sum) {
        if (row == kNoRow) return;
        if (row == head_row) {
            keep(piece, sum);
        } else if (row == tail_row) {
            keep(piece + 1, sum);
        } else {
            const X value = b != X(0) ? a * sum + b * y[row] : a * sum;
            y[row] = value;
            squares += static_cast<double>(value) * static_cast<double>(value);
        }
    }
};

template <class V, class X>
__global__ void __launch_bounds__(kThreads, 4)
    coo_kernel(CooDevice<V> matrix, double* piece_sums, bool atomic, const X* a_pointer, const X* __restrict__ x, const X* b_pointer, X* y, double* partials) {
    __shared__ double scratch[32];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    constexpr unsigned kAll = 0xffffffffu;
    const unsigned up_to_lane = kAll >> (31 - lane);
    ChunkSink<X> sink{piece_sums, matrix.piece_rows, atomic, *a_pointer, *b_pointer, y, 0, 0, -1, -1};
    const std::int64_t stride = std::int64_t{gridDim.x} * kWarps;
    for (std::int64_t chunk = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; chunk < matrix.chunks; chunk += stride) {
        const std::int64_t begin = chunk * matrix.chunk_entries;
        const std::int64_t end = min(begin + matrix.chunk_entries, matrix.entries);
        const std::int32_t first_row = matrix.rows[begin];
        const std::int32_t last_row = matrix.rows[end - 1];
        sink.piece = 2 * chunk;
        sink.head_row = begin > 0 && matrix.rows[begin - 1] == first_row ? first_row : -1;
        sink.tail_row = end < matrix.entries && matrix.rows[end] == last_row ? last_row : -1;
        std::int32_t carried_row = kNoRow;  // the run that the step before left open
        X carried = 0;
        for (std::int64_t from = begin; from < end; from += kCooStep) {
            const std::int64_t k = from + kEach * lane;
            std::int32_t row[kEach] = {kNoRow, kNoRow, kNoRow, kNoRow};
            X product[kEach] = {0, 0, 0, 0};
            // A chunk but for the last is whole steps; the last is readable, and padded, to the next multiple of 8.
            if (k < end) {
                std::int32_t column[kEach];
                V value[kEach];
                load_four(matrix.rows + k, row);
                load_four(matrix.columns + k, column);
                load_four(matrix.values + k, value);
#pragma unroll
                for (int i = 0; i < kEach; ++i) {
                    if (row[i] != kNoRow) product[i] = widened<X>(value[i]) * __ldg(x + column[i]);  // padding multiplies nothing
                }
            }
            // The thread's runs: `leading`, whole ones, and the last one.
            X run = product[0];
            X leading = 0;
            std::int32_t run_row = row[0];
            bool broken = false;  // more than one
#pragma unroll
            for (int i = 1; i < kEach; ++i) {
                if (row[i] == run_row) {
                    run += product[i];
                    continue;
                }
                if (broken) sink.finish(run_row, run);
                else leading = run;
                broken = true;
                run_row = row[i];
                run = product[i];
            }
            // Runs over several threads: an inclusive scan from the thread where each begins.
            std::int32_t row_before = __shfl_up_sync(kAll, run_row, 1);
            if (lane == 0) row_before = carried_row;
            const bool joined = row[0] == row_before;
            if (lane == 0 && joined && !broken) run = carried + run;
            const unsigned begins = __ballot_sync(kAll, broken || !joined) & up_to_lane;
            const int first_lane = begins == 0 ? 0 : 31 - __clz(static_cast<int>(begins));
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const X other = __shfl_up_sync(kAll, run, d);
                if (lane - d >= first_lane) run = other + run;
            }
            X before = __shfl_up_sync(kAll, run, 1);
            if (lane == 0) before = carried;
            const std::int32_t row_after = __shfl_down_sync(kAll, row[0], 1);
            if (broken) sink.finish(row[0], joined ? before + leading : leading);
            if (lane == 0 && !joined) sink.finish(carried_row, carried);
            if (lane < 31 && row_after != run_row) sink.finish(run_row, run);
            carried_row = __shfl_sync(kAll, run_row, 31);
            carried = __shfl_sync(kAll, run, 31);
        }
        if (lane == 0) {
            sink.finish(carried_row, carried);
            if (!atomic && sink.head_row >= 0 && sink.head_row == sink.tail_row) piece_sums[sink.piece + 1] = 0;
        }
    }
    if (partials == nullptr) return;
    const double total = block_sum(sink.squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <class X>
__global__ void __launch_bounds__(kThreads) scale_rows_kernel(std::int64_t count, const std::int32_t* list, const X* b_pointer, X* y, double* partials) {
    __shared__ double scratch[32];
    const X b = *b_pointer;
    double squares = 0;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += std::int64_t{gridDim.x} * kThreads) {
        const std::int32_t row = list[i];
        const X value = b != X(0) ? b * y[row] : X(0);
        y[row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// A warp a row.
template <class V, class T, class Offset, class Place>
__global__ void fill_coo_kernel(std::int64_t rows, const Offset* offsets, std::int64_t width, const Place* places, std::int64_t entries,
                                const std::int32_t* columns, const T* values, std::int32_t* to_rows, std::int32_t* to_columns, V* to_values) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < rows; i += std::int64_t{gridDim.x} * kWarps) {
        const std::int64_t from = static_cast<std::int64_t>(offsets[i]) + width;
        const auto first = static_cast<std::int64_t>(places[i]);
        const std::int64_t count = static_cast<std::int64_t>(places[i + 1]) - first;
        for (std::int64_t k = lane; k < count; k += 32) {
            to_rows[first + k] = static_cast<std::int32_t>(i);
            if (to_columns != nullptr) to_columns[first + k] = columns[from + k];
            if (to_values != nullptr) to_values[first + k] = narrowed<V>(values[from + k]);
        }
    }
    const std::int64_t pad = entries + threadIdx.x;
    if (blockIdx.x == 0 && pad < (entries + 7) / 8 * 8) {
        to_rows[pad] = kNoRow;
        if (to_columns != nullptr) to_columns[pad] = 0;
        if (to_values != nullptr) to_values[pad] = V{};
    }
}

}  // namespace

CooLaunch choose_coo_launch(std::int64_t chunks, std::int64_t cut_rows, std::int32_t most) {
    constexpr std::int64_t kCutRows = kCutThreads / 32;
    CooLaunch launch;
    launch.blocks = static_cast<std::int32_t>(std::min<std::int64_t>((chunks + kWarps - 1) / kWarps, most / 2));
    launch.cut_blocks = static_cast<std::int32_t>(std::min<std::int64_t>((cut_rows + kCutRows - 1) / kCutRows, most / 2));
    return launch;
}

template <class V, class X>
void launch_coo(const CooLaunch& launch, const CooDevice<V>& matrix, double* piece_sums, bool atomic, Scalar<X> a, const X* x, Scalar<X> b, X* y,
                double* partials, cudaStream_t stream) {
    if (launch.blocks == 0) return;
    coo_kernel<V, X><<<static_cast<unsigned>(launch.blocks), kThreads, 0, stream>>>(matrix, piece_sums, atomic, a.narrow, x, b.narrow, y, partials);
    LSMR_CHECK(cudaGetLastError());
    if (launch.cut_blocks == 0) return;
    cut_rows_kernel<X><<<static_cast<unsigned>(launch.cut_blocks), kCutThreads, 0, stream>>>(
        matrix.cut_row_count, matrix.cut_rows, piece_sums, atomic, a.narrow, b.narrow, y, partials ? partials + launch.blocks : nullptr);
    LSMR_CHECK(cudaGetLastError());
}

std::int32_t scale_rows_blocks(std::int64_t count, std::int32_t most) {
    return static_cast<std::int32_t>(std::min<std::int64_t>((count + kThreads - 1) / kThreads, most));
}

template <class X>
void launch_scale_rows(std::int32_t blocks, std::int64_t count, const std::int32_t* list, Scalar<X> b, X* y, double* partials, cudaStream_t stream) {
    if (blocks == 0) return;
    scale_rows_kernel<X><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(count, list, b.narrow, y, partials);
    LSMR_CHECK(cudaGetLastError());
}

template <class V, class T, class Offset, class Place>
void launch_fill_coo(std::int64_t rows, const Offset* offsets, std::int64_t width, const Place* places, std::int64_t entries, const std::int32_t* columns,
                     const T* values, std::int32_t* to_rows, std::int32_t* to_columns, V* to_values, cudaStream_t stream) {
    if (entries == 0) return;
    const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>((rows + kWarps - 1) / kWarps, 1, 1 << 20));
    fill_coo_kernel<<<blocks, kThreads, 0, stream>>>(rows, offsets, width, places, entries, columns, values, to_rows, to_columns, to_values);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE_FILL(V, T, Offset, Place)                                                                                                       \
    template void launch_fill_coo(std::int64_t, const Offset*, std::int64_t, const Place*, std::int64_t, const std::int32_t*, const T*, std::int32_t*,   \
                                  std::int32_t*, V*, cudaStream_t);
#define LSMR_INSTANTIATE(V, X)                                                                                                                           \
    template void launch_coo(const CooLaunch&, const CooDevice<V>&, double*, bool, Scalar<X>, const X*, Scalar<X>, X*, double*, cudaStream_t);           \
    LSMR_INSTANTIATE_FILL(V, X, std::int32_t, std::int64_t)                                                                                              \
    LSMR_INSTANTIATE_FILL(V, X, std::int64_t, std::int64_t)                                                                                              \
    LSMR_INSTANTIATE_FILL(V, X, std::int32_t, std::int32_t)
LSMR_INSTANTIATE(double, double)
LSMR_INSTANTIATE(float, double)
LSMR_INSTANTIATE(Bf16, double)
LSMR_INSTANTIATE(float, float)
LSMR_INSTANTIATE(Bf16, float)
#undef LSMR_INSTANTIATE
#undef LSMR_INSTANTIATE_FILL
template void launch_scale_rows(std::int32_t, std::int64_t, const std::int32_t*, Scalar<double>, double*, double*, cudaStream_t);
template void launch_scale_rows(std::int32_t, std::int64_t, const std::int32_t*, Scalar<float>, float*, double*, cudaStream_t);

}  // namespace lsmr::cuda
