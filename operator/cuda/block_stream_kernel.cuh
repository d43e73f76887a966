// The block stream kernel. One text for every stored type; the instantiations are in block_stream_*.cu, one a pair of types.
//
// A thread block takes an item: its values and block columns come into shared memory by two bulk copies, while the threads fetch where block rows
// begin, and y. Then teams of threads walk the block rows there: a thread keeps a pack of neighbouring rows, whose x it reads once a column, and
// takes every so many-th block; the threads of a team are added in a fixed tree. Thread blocks are persistent, step through the items in a fixed
// way, and several of them share a multiprocessor and cover one another's waits.
//
// Bytes: (sizeof(V) r c + 4) blocks + 2 block rows + x once + y twice + 32 an item.
#pragma once

#include <algorithm>
#include <type_traits>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_stream_kernels.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/bulk_copy.cuh"
#include "operator/cuda/cut_rows.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/staged_launch.cuh"
#include "operator/cuda/stored_values.cuh"

namespace lsmr::cuda {
namespace {

// Where the values of an item lie in shared memory, and its block columns: each may begin inside a group of 16 bytes.
template <class V>
__host__ __device__ std::uint32_t item_value_bytes(std::int32_t capacity, int places) {
    return (static_cast<std::uint32_t>(capacity) * static_cast<std::uint32_t>(places) * static_cast<std::uint32_t>(sizeof(V)) + 31u) / 16u * 16u;
}
template <class V>
std::size_t item_bytes(std::int32_t capacity, int places) {
    return item_value_bytes<V>(capacity, places) + (static_cast<std::size_t>(capacity) + 7) / 4 * 16;
}

// N neighbouring values of a column in shared memory, by loads as wide as their place allows: a pack begins at a multiple of N values.
template <int N, class V>
__device__ void load_pack(const V* from, V (&to)[N]) {
    constexpr std::size_t kBytes = sizeof(V) * N;
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
        for (std::size_t i = 0; i < kBytes / 16; ++i) {
            const uint4 raw = reinterpret_cast<const uint4*>(from)[i];
            memcpy(reinterpret_cast<std::byte*>(to) + 16 * i, &raw, 16);
        }
    } else if constexpr (kBytes % 8 == 0 && sizeof(V) < 8) {
#pragma unroll
        for (std::size_t i = 0; i < kBytes / 8; ++i) {
            const uint2 raw = reinterpret_cast<const uint2*>(from)[i];
            memcpy(reinterpret_cast<std::byte*>(to) + 8 * i, &raw, 8);
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = from[i];
    }
}

// The products of a thread's pack of rows with x: blocks first, first + step, ... below `end` of an item, whose values begin at `values` for the
// pack's first row. kRows = 0: blocks of any size, a row a thread. place: of the thread among those that read blocks beside one another.
template <int kRows, int kCols, int kPack, class V, class X>
__device__ void walk_blocks(X (&sums)[kPack], const V* values, const std::int32_t* columns, int first, int end, int step, int place, int rows, int cols,
                            const X* x, std::uint32_t last_column) {
    if constexpr (kRows == 0) {
        for (int k = first; k < end; k += step) {
            const V* block = values + k * rows * cols;
            const std::uint32_t from = static_cast<std::uint32_t>(columns[k]) * static_cast<std::uint32_t>(cols);
#pragma unroll 4
            for (int c = 0; c < cols; ++c) {
                sums[0] = add_product(sums[0], block[c * rows], load_unwritten(x + min(from + static_cast<std::uint32_t>(c), last_column)));
            }
        }
    } else {
        constexpr int kChunk = kCols <= 9 ? kCols : 8;  // columns whose x a thread holds at a time
        static_assert(kCols % kChunk == 0);
        constexpr int kBatch = block_stream_batch(kCols);
        // Blocks that together fill a row of the banks of shared memory, 128 bytes; threads beyond those would meet in the same banks where sides are
        // powers of two, so they begin at other columns.
        constexpr bool kRotates = is_power(kRows) && is_power(kCols);
        constexpr int kBeside = kRotates ? std::max(128 / (kRows * kCols * static_cast<int>(sizeof(V))), 1) : 1;
        const int rotation = kRotates ? place / kBeside : 0;
        const auto column = [&](int c) { return kRotates ? (c + rotation) & (kCols - 1) : c; };
        for (int k = first; k < end; k += kBatch * step) {
            std::uint32_t from[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) from[i] = k + i * step < end ? static_cast<std::uint32_t>(columns[k + i * step]) * kCols : 0;
#pragma unroll
            for (int chunk = 0; chunk < kCols; chunk += kChunk) {
                X gathered[kBatch][kChunk];
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
#pragma unroll
                    for (int c = 0; c < kChunk; ++c) {
                        // In a ragged last block a column may lie beyond x, where all places are marked.
                        gathered[i][c] = load_unwritten(x + min(from[i] + static_cast<std::uint32_t>(column(chunk + c)), last_column));
                    }
                }
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    if (k + i * step >= end) continue;
                    const V* block = values + (k + i * step) * (kRows * kCols);
#pragma unroll
                    for (int c = 0; c < kChunk; ++c) {
                        V stored[kPack];
                        load_pack(block + column(chunk + c) * kRows, stored);
#pragma unroll
                        for (int p = 0; p < kPack; ++p) sums[p] = add_product(sums[p], stored[p], gathered[i][c]);
                    }
                }
            }
        }
    }
}

template <int kRows, int kCols, class V, class X>
__global__ void __launch_bounds__(kBlockStreamThreads, block_stream_resident(kCols))
    block_stream_kernel(BlockStream<V> matrix, double* piece_sums, const X* a_pointer, const X* x, const X* b_pointer, X* y, double* partials) {
    constexpr BlockStreamShape kShape = kRows > 0 ? block_stream_shape(kRows, kCols, sizeof(V)) : BlockStreamShape{};
    constexpr int kPack = kShape.pack;
    constexpr int kBeside = kShape.beside;
    constexpr std::int64_t kGroup = 16 / sizeof(V);  // values of 16 bytes
    const int block_rows = kRows > 0 ? kRows : matrix.blocks.block_rows;
    const int block_cols = kCols > 0 ? kCols : matrix.blocks.block_cols;
    const std::int64_t places = block_rows * block_cols;
    const auto last_column = static_cast<std::uint32_t>(matrix.blocks.cols > 0 ? matrix.blocks.cols - 1 : 0);
    extern __shared__ __align__(128) std::byte room[];
    std::byte* const column_room = room + item_value_bytes<V>(matrix.capacity, static_cast<int>(places));
    __shared__ std::uint64_t barrier;
    __shared__ BlockItem items[3];  // of this round, the next and the one after
    __shared__ double scratch[32];
    const std::uint64_t policy = evict_first_policy();
    const auto stride = static_cast<std::int32_t>(gridDim.x);
    std::int32_t turn = static_cast<std::int32_t>(blockIdx.x);
    // The blocks of the round's item, and the description of the next round's, so that no round waits for one.
    const auto issue = [&](std::uint32_t round, std::int32_t next_turn) {
        const BlockItem& item = items[round % 3];
        const std::int64_t end = item.begin + item.count;
        const std::int64_t first_value = item.begin * places / kGroup * kGroup;
        const std::int64_t first_column = item.begin / 4 * 4;
        const auto value_bytes = static_cast<std::uint32_t>((end * places - first_value + kGroup - 1) / kGroup * 16);
        const auto column_bytes = static_cast<std::uint32_t>((end - first_column + 3) / 4 * 16);
        const bool empty = item.count == 0;
        const bool another = next_turn < matrix.item_count;
        barrier_expect(&barrier, (empty ? 0u : value_bytes + column_bytes) + (another ? static_cast<std::uint32_t>(sizeof(BlockItem)) : 0u));
        if (!empty) {
            bulk_copy(room, matrix.blocks.values + first_value, value_bytes, &barrier, policy);
            bulk_copy(column_room, matrix.blocks.columns + first_column, column_bytes, &barrier, policy);
        }
        if (another) bulk_copy(items + (round + 1) % 3, matrix.items + next_turn, sizeof(BlockItem), &barrier, policy);
    };
    if (threadIdx.x == 0) {
        barrier_init(&barrier);
        if (turn < matrix.item_count) {
            items[0] = matrix.items[turn];
            issue(0, turn + stride);
        }
    }
    // What is begun by now is of the matrix, which no kernel of an iteration writes.
    await_previous();
    admit_next();
    __syncthreads();
    const X a = *a_pointer;
    const X b = *b_pointer;
    const int thread = static_cast<int>(threadIdx.x);
    const int packs = block_rows / kPack;  // of a block row
    double squares = 0;
    for (std::uint32_t round = 0; turn < matrix.item_count; turn += stride, ++round) {
        // In registers: writes to y might change what lies in shared memory, as the compiler sees it.
        const BlockItem item = items[round % 3];
        const V* const values = reinterpret_cast<const V*>(room) + item.begin * places % kGroup;
        const std::int32_t* const columns = reinterpret_cast<const std::int32_t*>(column_room) + item.begin % 4;
        const std::uint16_t* __restrict__ starts = matrix.starts + item.first_row;
        const int team = 1 << item.team;
        const int member = thread / kBeside & (team - 1);
        const int first_unit = thread / kBeside / team * kBeside + thread % kBeside;
        const int step = kBlockStreamThreads >> item.team;
        const int units = item.rows * packs;
        int next_start = 0, next_end = 0;
        X next_y[kPack] = {};
        const auto first_y = [&](int unit) { return (std::int64_t{item.first_row} + unit / packs) * block_rows + unit % packs * kPack; };
        const auto fetch = [&](int unit) {
            next_start = next_end = 0;
            if (unit >= units) return;
            const int block_row = unit / packs;
            next_start = block_row == 0 ? 0 : starts[block_row];
            next_end = block_row + 1 == item.rows ? item.count : starts[block_row + 1];
            if (b == X(0) || member != 0 || item.pieces > 0) return;
            const std::int64_t row = first_y(unit);
#pragma unroll
            for (int p = 0; p < kPack; ++p) next_y[p] = row + p < matrix.blocks.rows ? y[row + p] : X(0);
        };
        fetch(first_unit);
        barrier_wait(&barrier, round & 1);
        for (int first = 0; first < units; first += step) {
            const int unit = first + first_unit;
            const int start = next_start;
            const int end = next_end;
            X old[kPack];
#pragma unroll
            for (int p = 0; p < kPack; ++p) old[p] = next_y[p];
            fetch(unit + step);
            X sums[kPack] = {};
            walk_blocks<kRows, kCols>(sums, values + unit % packs * kPack, columns, start + member, end, team, thread / kBeside, block_rows, block_cols, x, last_column);
            for (int d = team / 2; d > 0; d /= 2) {
#pragma unroll
                for (int p = 0; p < kPack; ++p) sums[p] += __shfl_xor_sync(0xffffffffu, sums[p], d * kBeside);
            }
            if (unit >= units || member != 0) continue;
            const std::int64_t row = first_y(unit);
#pragma unroll
            for (int p = 0; p < kPack; ++p) {
                if (item.pieces > 0) {
                    piece_sums[item.piece + std::int64_t{item.pieces} * (unit % packs * kPack + p)] = static_cast<double>(sums[p]);
                } else if (row + p < matrix.blocks.rows) {
                    const X value = b != X(0) ? a * sums[p] + b * old[p] : a * sums[p];
                    y[row + p] = value;
                    squares += static_cast<double>(value) * static_cast<double>(value);
                }
            }
        }
        // Everyone has read the item, and seen it come: the barrier tells two phases apart, not three.
        __syncthreads();
        if (thread == 0 && turn + stride < matrix.item_count) issue(round + 1, turn + 2 * stride);
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (thread == 0) partials[blockIdx.x] = total;
}

template <class V, class X>
BlockStreamKernel<V, X> block_stream_kernel_of(int rows, int cols) {
    if (rows == cols) {
        switch (rows) {
            case 1: return block_stream_kernel<1, 1, V, X>;
            case 2: return block_stream_kernel<2, 2, V, X>;
            case 3: return block_stream_kernel<3, 3, V, X>;
            case 4: return block_stream_kernel<4, 4, V, X>;
            case 5: return block_stream_kernel<5, 5, V, X>;
            case 6: return block_stream_kernel<6, 6, V, X>;
            case 7: return block_stream_kernel<7, 7, V, X>;
            case 8: return block_stream_kernel<8, 8, V, X>;
            case 9: return block_stream_kernel<9, 9, V, X>;
            case 16: return block_stream_kernel<16, 16, V, X>;
            case 32: return block_stream_kernel<32, 32, V, X>;
            default: break;
        }
    }
    if (rows == 2 && cols == 3) return block_stream_kernel<2, 3, V, X>;
    if (rows == 3 && cols == 2) return block_stream_kernel<3, 2, V, X>;
    if (rows == 9 && cols == 3) return block_stream_kernel<9, 3, V, X>;
    if (rows == 3 && cols == 9) return block_stream_kernel<3, 9, V, X>;
    return block_stream_kernel<0, 0, V, X>;
}

}  // namespace

template <class V, class X>
BlockStreamLaunch<V, X> choose_block_stream_launch(const BlockStream<V>& matrix, int multiprocessors) {
    BlockStreamLaunch<V, X> launch;
    launch.kernel = block_stream_kernel_of<V, X>(matrix.blocks.block_rows, matrix.blocks.block_cols);
    launch.shared_bytes = item_bytes<V>(matrix.capacity, matrix.blocks.block_rows * matrix.blocks.block_cols);
    launch.blocks = staged_blocks(launch.kernel, kBlockStreamThreads, launch.shared_bytes, matrix.item_count, multiprocessors);
    launch.cut_blocks = cut_row_blocks(matrix.cut_row_count, multiprocessors);
    return launch;
}

template <class V, class X>
void launch_block_stream(const BlockStreamLaunch<V, X>& launch, const BlockStream<V>& matrix, double* piece_sums, Scalar<X> a, const X* x, Scalar<X> b,
                         X* y, double* partials, cudaStream_t stream) {
    launch_dependent(launch.kernel, launch.blocks, kBlockStreamThreads, launch.shared_bytes, stream, matrix, piece_sums, a.narrow, x, b.narrow, y, partials);
    if (launch.cut_blocks == 0) return;
    launch_dependent(cut_rows_kernel<X>, launch.cut_blocks, kCutThreads, 0, stream, matrix.cut_row_count, matrix.cut_rows, piece_sums, false, a.narrow,
                     b.narrow, y, partials ? partials + launch.blocks : nullptr);
}

#define LSMR_INSTANTIATE_BLOCK_STREAM(V, X)                                                                                                  \
    template BlockStreamLaunch<V, X> choose_block_stream_launch<V, X>(const BlockStream<V>&, int);                                          \
    template void launch_block_stream<V, X>(const BlockStreamLaunch<V, X>&, const BlockStream<V>&, double*, Scalar<X>, const X*, Scalar<X>, \
                                            X*, double*, cudaStream_t);

}  // namespace lsmr::cuda
