// The stream kernel. One text for every stored type; the instantiations are in stream_*.cu, one a pair of types.
//
// A block takes an item: its values and columns come into shared memory by two bulk copies (TMA; no registers, no load instructions, evicted
// first from L2), while the threads fetch row starts and y. Then each row is a dot product read from shared memory: by one thread where rows
// are many, so that neighbouring threads gather neighbouring x of neighbouring rows; by more threads, or the whole block, where rows are long.
// Blocks are persistent and step through the items in a fixed way; several of them share a multiprocessor and cover one another's waits.
//
// Bytes: (sizeof(V) + 4 or 2) nnz + 2 rows + x once + y twice + 32 an item. Shared memory is the budget: what it takes, L1 loses, and with
// it the misses that scattered gathers can have in flight.
#pragma once

#include <algorithm>
#include <type_traits>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/cut_rows.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/merge_kernel.cuh"
#include "operator/cuda/staged_launch.cuh"
#include "operator/cuda/stream_frame.cuh"

namespace lsmr::cuda {
namespace {

// kAll: all of the kBatch entries exist. rotation: see dot().
template <int kTeam, int kBatch, bool kAll, class V, class X, class C>
__device__ X add_batch(X sum, const V* values, const C* columns, int length, int first, int rotation, const X* x) {
    X products[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
        int k = first + i * kTeam;
        const bool exists = kAll || k < length;
        if constexpr (kTeam == 1) {
            k += rotation;
            k = k >= length ? k - length : k;
        }
        // An entry that does not exist adds nothing: no product with a zero, which a non-finite x would turn into NaN.
        products[i] = exists ? widened<X>(values[k]) * x[columns[k]] : X(0);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) sum += products[i];
    return sum;
}

// The dot product of a row in shared memory with x, by kTeam neighbouring threads; the result in each of them; fixed order.
// rotation (one thread a row): entry where this thread begins, so that threads whose rows have the same length of 2^k do not meet in one
// bank of shared memory. kBatch: gathers in flight a thread; kUnroll: batches of a turn.
template <int kTeam, int kBatch, int kUnroll, class V, class X, class C>
__device__ X dot(const V* values, const C* columns, int length, int lane, int rotation, const X* x) {
    X sum = 0;
    int k = lane;
#pragma unroll kUnroll
    for (; k + kTeam * (kBatch - 1) < length; k += kTeam * kBatch) {
        sum = add_batch<kTeam, kBatch, true>(sum, values, columns, length, k, rotation, x);
    }
    if constexpr (kBatch == 8) {
        if (k + kTeam * 3 < length) {
            sum = add_batch<kTeam, 4, true>(sum, values, columns, length, k, rotation, x);
            k += kTeam * 4;
        }
    }
    if (k < length) sum = add_batch<kTeam, 4, false>(sum, values, columns, length, k, rotation, x);
#pragma unroll
    for (int d = kTeam / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    return sum;
}

// The rows of an item, kTeam threads each: sum(start, length, lane, rotation) is a row's, by those threads.
template <int kTeam, int kThreads, class V, class X, class Ready, class Sum, class LongSum>
__device__ void item_rows(StreamFrame<V, X>& frame, const StreamItem& shared_item, const Ready& ready, const Sum& sum_of, const LongSum& long_sum_of) {
    constexpr int kGroups = kThreads / kTeam;
    // Rows much longer than the team's share are given to the whole warp, one after the other.
    constexpr int kLong = 32 * kTeam;
    const ItemRows item(shared_item);
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kTeam;
    const std::uint16_t* __restrict__ starts = frame.matrix.row_starts + item.first_row;
    int next_start = 0, next_end = 0;
    X next_y = 0;
    const auto fetch = [&](int r) {
        if (r >= item.rows) {
            next_start = next_end = 0;
            return;
        }
        next_start = r == 0 ? 0 : starts[r];
        next_end = r + 1 == item.rows ? item.count : starts[r + 1];
        if (frame.b != X(0) && lane == 0) next_y = frame.y[item.first_row + r];
    };
    fetch(thread / kTeam);
    ready();
    for (int first = 0; first < item.rows; first += kGroups) {
        const int r = first + thread / kTeam;
        const int start = next_start;
        const int length = next_end - next_start;
        const X old = next_y;
        fetch(r + kGroups);
        const bool is_long = kTeam < 32 && length > kLong;
        const int short_length = is_long ? 0 : length;
        int rotation = 0;
        if constexpr (kTeam == 1) {
            const int power = min(short_length & -short_length, 16);  // the power of two in the length, where banks repeat
            rotation = power > 1 ? (thread * power >> 4) & (power - 1) : 0;
        }
        X sum = sum_of(start, short_length, lane, rotation);
        if constexpr (kTeam < 32) {
            unsigned waiting = __ballot_sync(0xffffffffu, is_long && lane == 0);
            while (waiting != 0) {
                const int owner = __ffs(static_cast<int>(waiting)) - 1;
                waiting &= waiting - 1;
                const int its_start = __shfl_sync(0xffffffffu, start, owner);
                const int its_length = __shfl_sync(0xffffffffu, length, owner);
                const X its_sum = long_sum_of(its_start, its_length, thread % 32);
                if (thread % 32 == owner) sum = its_sum;
            }
        }
        if (r < item.rows && lane == 0) frame.finish_row(item, r, sum, old);
    }
}

// Order "rows": each row gathers.
template <int kTeam, int kThreads, int kBatch, class V, class X, class C>
__device__ void gather_rows(StreamFrame<V, X>& frame, const StreamItem& item, const V* values, const C* columns, std::uint64_t* barrier,
                            std::uint32_t parity) {
    const X* x = frame.x + item.column_base;
    // Two batches a turn: 0.215 ms against 0.251 on rows of 72 entries in fp64. Not where they would cost other paths registers: one thread a
    // row, and batches of 4 in fp64, which belong to shapes with few registers.
    constexpr int kUnroll = kTeam == 1 || (kBatch == 4 && sizeof(X) == 8) ? 1 : 2;
    item_rows<kTeam, kThreads>(
        frame, item, [&] { barrier_wait(barrier, parity); },
        [&](int start, int length, int lane, int rotation) {
            return dot<kTeam, kBatch, kUnroll>(values + start, columns + start, length, lane, rotation, x);
        },
        [&](int start, int length, int lane) { return dot<32, kBatch, 1>(values + start, columns + start, length, lane, 0, x); });
}

// The part of a long row that falls to a thread, entries first, first + stride, ..., straight from global memory: what shared memory holds does
// not bound the loads in flight. Out of line, so that rare rows cost the others no registers.
template <class V, class X, class C>
__device__ X share_of_long_row(const X* x, int count, const V* __restrict__ values, const C* __restrict__ columns, int first, int stride) {
    constexpr int kBatch = 8;
    X sum = 0;
    int k = first;
    for (; k + stride * (kBatch - 1) < count; k += stride * kBatch) {
        C column[kBatch];
        V value[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            column[i] = columns[k + i * stride];
            value[i] = values[k + i * stride];
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) sum += widened<X>(value[i]) * x[column[i]];
    }
    for (; k < count; k += stride) sum += widened<X>(values[k]) * x[columns[k]];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    return sum;
}

template <class V, class X, int kThreads, int kCapacity, int kBatch, int kMinBlocks>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    stream_kernel(StreamMatrix<V> matrix, double* piece_sums, bool atomic, const X* a, const X* x, const X* b, X* y, double* partials) {
    constexpr int kRoom = kCapacity + 16;  // an item may begin and end inside a group of 8
    extern __shared__ __align__(128) std::byte room[];
    V* const values = reinterpret_cast<V*>(room);
    std::byte* const columns = room + sizeof(V) * kRoom;
    __shared__ std::uint64_t barrier;
    __shared__ StreamItem items[3];  // of this round, the next and the one after
    __shared__ double warp_sums[2][kThreads / 32];
    __shared__ double sum_scratch[32];
    const std::uint64_t policy = evict_first_policy();
    const auto stride = static_cast<std::int32_t>(gridDim.x);
    std::int32_t turn = static_cast<std::int32_t>(blockIdx.x);
    // The entries of the round's item, and the description of the item two rounds on, so that no round waits for one.
    const auto issue = [&](std::uint32_t round, std::int32_t turn_after_next) {
        issue_item(matrix, items[round % 3], values, columns, turn_after_next, items + (round + 1) % 3, &barrier, policy);
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
    StreamFrame<V, X> frame{matrix, piece_sums, x, y, *a, *b, atomic, 0};
    for (std::uint32_t round = 0; turn < matrix.item_count; turn += stride, ++round) {
        const StreamItem& item = items[round % 3];
        const std::uint32_t parity = round & 1;
        const int shift = static_cast<int>(item.begin & 7);
        const std::uint8_t team = item.team;
        if (team >= kWholeBlock) {
            barrier_wait(&barrier, parity);
            // Shared memory is free: the next item may come. But only when all threads have seen this one come: the barrier tells two phases
            // apart, not three, and a thread that is late would wait for one that never ends.
            __syncthreads();
            if (threadIdx.x == 0 && turn + stride < matrix.item_count) issue(round + 1, turn + 2 * stride);
            const int lane = static_cast<int>(threadIdx.x) % 32;
            const int warp = static_cast<int>(threadIdx.x) / 32;
            const ItemRows rows(item);
            // All of a row, or the row of this warp.
            const bool mine = team == kWholeBlock || warp < rows.rows;
            const std::uint16_t* starts = matrix.row_starts + rows.first_row;
            const int start = team == kWholeBlock || warp == 0 ? 0 : mine ? starts[warp] : 0;
            const int end = team == kWholeBlock || warp + 1 >= rows.rows ? rows.count : starts[warp + 1];
            X sum = 0;
            with_columns(item, matrix.columns + std::int64_t{16} * item.columns, [&](const auto* c) {
                if (!mine) return;
                sum = share_of_long_row(x + item.column_base, end - start, matrix.values + item.begin + start, c + start,
                                        team == kWholeBlock ? static_cast<int>(threadIdx.x) : lane, team == kWholeBlock ? kThreads : 32);
            });
            if (lane == 0) {
                if (team == kWholeBlock) warp_sums[parity][warp] = static_cast<double>(sum);
                else if (mine) frame.write(rows.first_row + warp, sum, frame.b != X(0) ? y[rows.first_row + warp] : X(0));
            }
        } else {
            with_columns(item, columns, [&](const auto* c) {
                const V* v = values + shift;
                switch (team) {
                    case 0: gather_rows<1, kThreads, kBatch>(frame, item, v, c, &barrier, parity); break;
                    case 1: gather_rows<2, kThreads, kBatch>(frame, item, v, c, &barrier, parity); break;
                    case 2: gather_rows<4, kThreads, kBatch>(frame, item, v, c, &barrier, parity); break;
                    case 3: gather_rows<8, kThreads, kBatch>(frame, item, v, c, &barrier, parity); break;
                    case 4: gather_rows<16, kThreads, kBatch>(frame, item, v, c, &barrier, parity); break;
                    default: gather_rows<32, kThreads, kBatch>(frame, item, v, c, &barrier, parity);
                }
            });
        }
        __syncthreads();  // everyone has read the item
        if (threadIdx.x != 0) continue;
        if (team < kWholeBlock) {
            if (turn + stride < matrix.item_count) issue(round + 1, turn + 2 * stride);
            continue;
        }
        if (team == kWarpRows) continue;
        double sum = 0;
        for (int w = 0; w < kThreads / 32; ++w) sum += warp_sums[parity][w];
        if (item.flags & kFirstIsPiece) frame.keep_piece(item.piece, sum);
        else frame.write(item.first_row, static_cast<X>(sum), frame.b != X(0) ? y[item.first_row] : X(0));
    }
    if (partials == nullptr) return;
    const double total = block_sum(frame.squares, sum_scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// f(kernel, bytes of shared memory) for the kernel of that shape and order; false where there is none. The table of tunings: threads, capacity;
// rows: gathers in flight a thread, blocks that registers must leave room for. Batches of 4 cost fp32 less on short rows, and let more blocks in.
template <class V, class X, class F>
bool with_stream_kernel(StreamShape shape, StreamOrder order, const F& f) {
    const auto is = [&](int threads, int capacity) { return shape.threads == threads && shape.capacity == capacity; };
    if (order == StreamOrder::merge) {
        // Products take the place of the values, so they must be as wide.
        if constexpr (std::is_same_v<V, X>) {
            if (is(128, 1024)) f(merge_kernel<X, 128, 8, 2, 8>, 2 * stage_bytes<X>(shape.capacity));
            else if (is(256, 1024)) f(merge_kernel<X, 256, 4, 1, 5>, stage_bytes<X>(shape.capacity));
            else return false;
            return true;
        }
        return false;
    }
    constexpr int kWide = sizeof(X) == sizeof(double) ? 8 : 4;
    if (is(128, 2048)) f(stream_kernel<V, X, 128, 2048, kWide, 8>, stage_bytes<V>(shape.capacity));
    else if (is(128, 1024)) f(stream_kernel<V, X, 128, 1024, kWide, 8>, stage_bytes<V>(shape.capacity));
    else if (is(256, 1024)) f(stream_kernel<V, X, 256, 1024, 4, 5>, stage_bytes<V>(shape.capacity));
    else if (is(256, 2048)) f(stream_kernel<V, X, 256, 2048, kWide, 4>, stage_bytes<V>(shape.capacity));
    else return false;
    return true;
}

}  // namespace

template <class V, class X>
StreamLaunch choose_stream_launch(StreamShape shape, StreamOrder order, std::int64_t items, std::int64_t cut_rows, int multiprocessors) {
    StreamLaunch launch{shape, order, 0, 0};
    with_stream_kernel<V, X>(shape, order, [&](auto kernel, int bytes) {
        launch.blocks = staged_blocks(kernel, shape.threads, static_cast<std::size_t>(bytes), items, multiprocessors);
    });
    launch.cut_blocks = cut_row_blocks(cut_rows, multiprocessors);
    return launch;
}

template <class V, class X>
void launch_stream(const StreamLaunch& launch, const StreamMatrix<V>& matrix, double* piece_sums, bool atomic, Scalar<X> a, const X* x, Scalar<X> b,
                   X* y, double* partials, cudaStream_t stream) {
    with_stream_kernel<V, X>(launch.shape, launch.order, [&](auto kernel, int bytes) {
        launch_dependent(kernel, launch.blocks, launch.shape.threads, static_cast<std::size_t>(bytes), stream, matrix, piece_sums,
                         atomic, a.narrow, x, b.narrow, y, partials);
    });
    if (launch.cut_blocks == 0) return;
    launch_dependent(cut_rows_kernel<X>, launch.cut_blocks, kCutThreads, 0, stream, matrix.cut_row_count, matrix.cut_rows, piece_sums, atomic, a.narrow,
                     b.narrow, y, partials ? partials + launch.blocks : nullptr);
}

#define LSMR_INSTANTIATE_STREAM(V, X)                                                                                               \
    template StreamLaunch choose_stream_launch<V, X>(StreamShape, StreamOrder, std::int64_t, std::int64_t, int);                    \
    template void launch_stream<V, X>(const StreamLaunch&, const StreamMatrix<V>&, double*, bool, Scalar<X>, const X*, Scalar<X>,    \
                                      X*, double*, cudaStream_t);

}  // namespace lsmr::cuda
