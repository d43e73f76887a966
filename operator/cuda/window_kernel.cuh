// The window kernel: for scattered gathers from an x that fits no first-level cache. A block keeps the x of a window of columns in shared memory, where a
// gather costs a fifth of what it costs through L1 and L2, and the sums of a panel of rows beside it; all of the panel's entries in the window are a cell.
// Blocks are persistent, one a multiprocessor, and take cells in a fixed order. The entries of a warp's share are read straight to registers, a batch
// ahead, also while the next window comes (TMA).
//
// A segment, what a row has in a cell, is summed by one lane, or a team of lanes, and added to the row's sum by one of them: no two warps add to one sum
// between two windows, and the order of additions is that of the windows.
//
// Bytes: (sizeof(V) + 2) nnz + 2 a segment; x once for every panel, from L2; sums of panels that several blocks work at are written and read once more.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/bulk_copy.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/shared_memory.hpp"
#include "operator/cuda/stored_values.cuh"
#include "operator/cuda/window_kernels.hpp"

namespace lsmr::cuda {
namespace {

inline constexpr int kWindowThreads = 32 * kWindowWarps;
template <class X>
inline constexpr int kWindowBatch = sizeof(X) == sizeof(double) ? 4 : 8;

// Of the x of a window and the sums of a panel.
template <class X>
std::size_t window_bytes(const WindowShape& shape) {
    return static_cast<std::size_t>(shape.width + kWindowPlaces + shape.panel_rows) * sizeof(X);
}

// kBatch steps of a warp's share, a lane's part.
template <class V, int kBatch>
struct WindowBatch {
    V values[kBatch];
    uint2 columns[kBatch / 4];

    // left: steps from this one on that exist; the others multiply the zero at `padding` by zero.
    __device__ void load(const V* from, const uint2* from_columns, int left, std::uint32_t padding) {
#pragma unroll
        for (int g = 0; g < kBatch / 4; ++g) columns[g] = 4 * g < left ? __ldcs(from_columns + 32 * g) : make_uint2(padding, padding);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) values[i] = i < left ? streamed(from + 32 * i) : V{};
    }
    __device__ std::uint32_t column(int i) const {
        const std::uint32_t pair = i % 4 < 2 ? columns[i / 4].x : columns[i / 4].y;
        return i % 2 == 0 ? pair & 0xffffu : pair >> 16;
    }
};

// A bulk copy of what other blocks read too, so without a hint for L2.
__device__ inline void bulk_copy_shared(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
                 "r"(shared_address(barrier))
                 : "memory");
}

// x of a window to shared memory, by one thread: in bulk what is aligned, which lies at the same offset from 16 bytes there as here, the rest by itself.
template <class X>
__device__ void issue_window(const WindowCell& cell, const X* x, X* window, std::uint64_t* barrier) {
    constexpr int kElements = 16 / static_cast<int>(sizeof(X));
    constexpr std::uint32_t kPiece = 16384;
    const X* const from = x + cell.first_column;
    const int ahead = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) % 16) / static_cast<int>(sizeof(X));
    const int head = min(cell.width, (kElements - ahead) % kElements);
    const int bulk = (cell.width - head) / kElements * kElements;
    // What was read there, and written, comes before what a bulk copy writes: two ways to shared memory.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int i = 0; i < head; ++i) window[i] = from[i];
    for (int i = head + bulk; i < cell.width; ++i) window[i] = from[i];
    const std::uint32_t bytes = static_cast<std::uint32_t>(bulk) * static_cast<std::uint32_t>(sizeof(X));
    barrier_expect(barrier, bytes);
    for (std::uint32_t at = 0; at < bytes; at += kPiece) {
        bulk_copy_shared(reinterpret_cast<std::byte*>(window + head) + at, reinterpret_cast<const std::byte*>(from + head) + at, min(kPiece, bytes - at),
                         barrier);
    }
}

template <class V, class X, int kBatch>
__global__ void __launch_bounds__(kWindowThreads, 1)
    window_kernel(WindowMatrix<V> matrix, X* sums, const X* a_pointer, const X* x, const X* b_pointer, X* y, double* partials) {
    extern __shared__ __align__(128) std::byte room[];
    __shared__ std::uint64_t full;
    __shared__ double warp_squares[kWindowWarps];  // of y, where this kernel writes it
    const int width = matrix.shape.width;
    // x is where it is aligned as it is in global memory.
    X* const window = reinterpret_cast<X*>(room) + reinterpret_cast<std::uintptr_t>(x) % 16 / sizeof(X);
    X* const panel = reinterpret_cast<X*>(room) + width + kWindowPlaces;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const std::int32_t first = matrix.block_first[blockIdx.x];
    const std::int32_t end = matrix.block_first[blockIdx.x + 1];
    const std::uint32_t padding = static_cast<std::uint32_t>(width) * 0x10001u;
    for (int i = static_cast<int>(threadIdx.x); i < matrix.shape.panel_rows; i += kWindowThreads) panel[i] = 0;
    if (lane == 0) warp_squares[warp] = 0;
    if (threadIdx.x == 0) {
        window[width] = 0;  // what padding multiplies
        barrier_init(&full);
    }
    // Of cell `number`, which may be past the last.
    const auto share_of = [&](std::int32_t number) {
        return number < end ? matrix.shares[std::int64_t{number} * kWindowWarps + warp] : WindowShare{0, 0, 0, 0};
    };
    const auto load = [&](WindowBatch<V, kBatch>& batch, std::int32_t step, std::int32_t group, int left) {
        const uint2* const columns = reinterpret_cast<const uint2*>(matrix.columns) + std::int64_t{32} * group + lane;
        batch.load(matrix.values + std::int64_t{32} * step + lane, columns, left, padding);
    };
    const auto rows_at = [&](std::int32_t group) { return reinterpret_cast<const uint2*>(matrix.rows_of) + std::int64_t{32} * group + lane; };
    WindowShare share = share_of(first);
    WindowBatch<V, kBatch> batch;
    load(batch, share.step, share.group, share.steps);
    // Of four slices, the next one's lowest, and of four more.
    const uint2* rows_from = rows_at(share.row_group);
    uint2 rows = __ldcs(rows_from), more_rows = __ldcs(rows_from + 32);
    // What is begun by now is of the matrix, which no kernel of an iteration writes.
    await_previous();
    admit_next();
    for (std::int32_t number = first; number < end; ++number) {
        const WindowShare next_share = share_of(number + 1);
        const uint2* const next_rows_from = rows_at(next_share.row_group);
        const uint2 next_rows = __ldcs(next_rows_from);
        rows_from += 64;
        int slices = 0;
        __syncthreads();  // all warps are done with the cell before
        if (threadIdx.x == 0) issue_window(matrix.cells[number], x, window, &full);
        barrier_wait(&full, static_cast<std::uint32_t>(number - first) & 1);
        X sum = 0;
        int left = share.steps;
        do {
            WindowBatch<V, kBatch> next;
            if (left > kBatch) {
                share.step += kBatch;
                share.group += kBatch / 4;
                load(next, share.step, share.group, left - kBatch);
            } else {
                load(next, next_share.step, next_share.group, next_share.steps);
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const std::uint32_t column = batch.column(i);
                sum += widened<X>(batch.values[i]) * window[column & (kSliceEnd - 1u)];
                const std::uint32_t heads = __ballot_sync(0xffffffffu, (column & kSliceEnd) != 0);
                if (heads == 0) continue;
                if (heads != 0xffffffffu) {
                    // Teams: as many lanes as lie between two of their first.
                    const std::uint32_t others = heads & (heads - 1);
                    for (int d = (others != 0 ? __ffs(static_cast<int>(others)) - 1 : 32) / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
                }
                const std::uint32_t row = rows.x & 0xffffu;
                if ((column & kSliceEnd) != 0 && row != kNoSegment) panel[row] += sum;
                sum = 0;
                if (++slices % 4 == 0) {
                    rows = more_rows;
                    more_rows = __ldcs(rows_from);
                    rows_from += 32;
                } else {
                    rows.x = __funnelshift_r(rows.x, rows.y, 16);
                    rows.y >>= 16;
                }
            }
            batch = next;
            left -= kBatch;
        } while (left > 0);
        share = next_share;
        rows = next_rows;
        rows_from = next_rows_from;
        more_rows = __ldcs(rows_from + 32);
        const WindowCell cell = matrix.cells[number];
        if (cell.leave < 0) continue;
        __syncthreads();
        const X a = *a_pointer;
        const X b = *b_pointer;
        double squares = 0;
        for (int r = static_cast<int>(threadIdx.x); r < matrix.shape.panel_rows; r += kWindowThreads) {
            if (!matrix.direct) {
                sums[std::int64_t{cell.leave} * matrix.shape.panel_rows + r] = panel[r];
            } else if (const std::int64_t i = window_row(matrix.shape.panels, cell.panel, r); i < matrix.rows) {
                const X value = b != X(0) ? a * panel[r] + b * y[i] : a * panel[r];
                y[i] = value;
                squares += static_cast<double>(value) * static_cast<double>(value);
            }
            panel[r] = 0;
        }
        for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, d);
        if (lane == 0) warp_squares[warp] += squares;
    }
    __syncthreads();
    if (!matrix.direct || partials == nullptr || threadIdx.x != 0) return;
    double total = 0;
    for (int w = 0; w < kWindowWarps; ++w) total += warp_squares[w];
    partials[blockIdx.x] = total;
}

// y from the sums of panels that several blocks have left, in the order of the blocks.
inline constexpr int kFinishThreads = 256;
template <class X>
__global__ void __launch_bounds__(kFinishThreads)
    finish_window_kernel(std::int64_t rows, WindowShape shape, const std::int32_t* panel_leaves, const X* sums, const X* a_pointer, const X* b_pointer, X* y,
                         double* partials) {
    __shared__ double scratch[32];
    await_previous();
    admit_next();
    const X a = *a_pointer;
    const X b = *b_pointer;
    double squares = 0;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kFinishThreads + threadIdx.x; i < rows; i += std::int64_t{gridDim.x} * kFinishThreads) {
        const auto run = static_cast<std::int32_t>(i / 32);
        const std::int32_t panel = run % shape.panels;
        const X* const from = sums + run / shape.panels * 32 + i % 32;
        X sum = 0;
        for (std::int32_t k = panel_leaves[panel]; k < panel_leaves[panel + 1]; ++k) sum += from[std::int64_t{k} * shape.panel_rows];
        const X value = b != X(0) ? a * sum + b * y[i] : a * sum;
        y[i] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

}  // namespace

template <class V, class X>
WindowLaunch choose_window_launch(const WindowPlan& plan, std::int64_t rows, int multiprocessors) {
    WindowLaunch launch;
    launch.blocks = static_cast<std::int32_t>(plan.block_first.size()) - 1;
    if (!plan.direct) {
        const int most = std::min(8 * multiprocessors, kMaxPartials / 2);
        launch.finish_blocks = static_cast<std::int32_t>(std::clamp<std::int64_t>((rows + kFinishThreads - 1) / kFinishThreads, 1, most));
    }
    const auto kernel = window_kernel<V, X, kWindowBatch<X>>;
    allow_shared(reinterpret_cast<const void*>(kernel), static_cast<int>(window_bytes<X>(plan.shape)));
    return launch;
}

template <class V, class X>
void launch_window(const WindowLaunch& launch, const WindowMatrix<V>& matrix, X* sums, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials,
                   cudaStream_t stream) {
    if (launch.blocks > 0) {
        const auto kernel = window_kernel<V, X, kWindowBatch<X>>;
        launch_dependent(kernel, launch.blocks, kWindowThreads, window_bytes<X>(matrix.shape), stream, matrix, sums, a.narrow, x, b.narrow, y, partials);
    }
    if (launch.finish_blocks > 0) {
        launch_dependent(finish_window_kernel<X>, launch.finish_blocks, kFinishThreads, 0, stream, matrix.rows, matrix.shape, matrix.panel_leaves,
                         static_cast<const X*>(sums), a.narrow, b.narrow, y, partials);
    }
}

#define LSMR_INSTANTIATE_WINDOW(V, X)                                                                                                                     \
    template WindowLaunch choose_window_launch<V, X>(const WindowPlan&, std::int64_t, int);                                                               \
    template void launch_window<V, X>(const WindowLaunch&, const WindowMatrix<V>&, X*, Scalar<X>, const X*, Scalar<X>, X*, double*, cudaStream_t);

}  // namespace lsmr::cuda
