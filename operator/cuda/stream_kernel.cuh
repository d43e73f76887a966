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
#include "operator/cuda/stream_kernels.hpp"

namespace lsmr::cuda {
namespace {

__device__ inline std::uint32_t shared_address(const void* p) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(p)); }

// An mbarrier that one thread arms with the bytes of its bulk copies, and all threads wait for.
__device__ inline void barrier_init(std::uint64_t* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_expect(std::uint64_t* barrier, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ inline void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}
// bytes: a multiple of 16, both addresses too.
__device__ inline void bulk_copy(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier, std::uint64_t policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
                 : "memory");
}

template <class X>
__device__ X widened(double v) { return static_cast<X>(v); }
template <class X>
__device__ X widened(float v) { return static_cast<X>(v); }
template <class X>
__device__ X widened(Bf16 v) { return static_cast<X>(__uint_as_float(static_cast<unsigned>(v.bits) << 16)); }

// kAll: all of the kBatch entries exist. rotation: see dot().
template <int kTeam, int kBatch, bool kAll, class V, class X, class C>
__device__ X add_batch(X sum, const V* values, const C* columns, int length, int first, int rotation, const X* __restrict__ x) {
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
        products[i] = exists ? widened<X>(values[k]) * __ldg(x + columns[k]) : X(0);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) sum += products[i];
    return sum;
}

// The dot product of a row in shared memory with x, by kTeam neighbouring threads; the result in each of them; fixed order.
// rotation (one thread a row): entry where this thread begins, so that threads whose rows have the same length of 2^k do not meet in one
// bank of shared memory. kBatch: gathers in flight a thread.
template <int kTeam, int kBatch, class V, class X, class C>
__device__ X dot(const V* values, const C* columns, int length, int lane, int rotation, const X* __restrict__ x) {
    X sum = 0;
    int k = lane;
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

// What a product's blocks share, in registers.
template <class V, class X>
struct StreamFrame {
    const StreamMatrix<V>& matrix;
    const StreamScratch& scratch;
    const X* __restrict__ x;
    X* y;
    X a;
    X b;
    bool atomic;
    double squares;  // of the values of y that this thread wrote

    __device__ void write(std::int32_t row, X sum, X old) {
        const X value = b != X(0) ? a * sum + b * old : a * sum;
        y[row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    __device__ void keep_piece(std::int32_t piece, double sum) {
        if (atomic) atomicAdd(scratch.piece_sums + matrix.piece_rows[piece], sum);
        else scratch.piece_sums[piece] = sum;
    }
};

// All rows of an item, kTeam threads each.
template <int kTeam, int kThreads, int kBatch, class V, class X, class C>
__device__ void item_rows(StreamFrame<V, X>& frame, const StreamItem& item, const V* values, const C* columns, std::uint64_t* barrier,
                          std::uint32_t parity) {
    constexpr int kGroups = kThreads / kTeam;
    // Rows much longer than the team's share are given to the whole warp, one after the other.
    constexpr int kLong = 32 * kTeam;
    const X* __restrict__ x = frame.x + item.column_base;
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kTeam;
    const int rows = item.rows;
    const std::uint16_t* __restrict__ starts = frame.matrix.row_starts + item.first_row;
    int next_start = 0, next_end = 0;
    X next_y = 0;
    const auto fetch = [&](int r) {
        if (r >= rows) {
            next_start = next_end = 0;
            return;
        }
        next_start = r == 0 ? 0 : starts[r];
        next_end = r + 1 == rows ? item.count : starts[r + 1];
        if (frame.b != X(0) && lane == 0) next_y = frame.y[item.first_row + r];
    };
    fetch(thread / kTeam);
    barrier_wait(barrier, parity);
    for (int first = 0; first < rows; first += kGroups) {
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
        X sum = dot<kTeam, kBatch>(values + start, columns + start, short_length, lane, rotation, x);
        if constexpr (kTeam < 32) {
            unsigned waiting = __ballot_sync(0xffffffffu, is_long && lane == 0);
            while (waiting != 0) {
                const int owner = __ffs(static_cast<int>(waiting)) - 1;
                waiting &= waiting - 1;
                const int its_start = __shfl_sync(0xffffffffu, start, owner);
                const int its_length = __shfl_sync(0xffffffffu, length, owner);
                const X its_sum = dot<32, kBatch>(values + its_start, columns + its_start, its_length, thread % 32, 0, x);
                if (thread % 32 == owner) sum = its_sum;
            }
        }
        if (r >= rows || lane != 0) continue;
        if (r == 0 && (item.flags & kFirstIsPiece)) frame.keep_piece(item.piece, static_cast<double>(sum));
        else if (r == rows - 1 && (item.flags & kLastIsPiece)) frame.keep_piece(item.piece + (item.flags & kFirstIsPiece), static_cast<double>(sum));
        else frame.write(item.first_row + r, sum, old);
    }
}

// A single row or piece by all threads: each warp leaves the sum of its part in warp_sums.
template <int kThreads, int kBatch, class V, class X, class C>
__device__ void item_whole(const StreamFrame<V, X>& frame, const StreamItem& item, const V* values, const C* columns, double* warp_sums) {
    constexpr int kWarps = kThreads / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int share = (item.count + kWarps - 1) / kWarps;
    const int begin = min(warp * share, static_cast<int>(item.count));
    const int length = min(share, item.count - begin);
    const X sum = dot<32, kBatch>(values + begin, columns + begin, length, static_cast<int>(threadIdx.x) % 32, 0, frame.x + item.column_base);
    if (threadIdx.x % 32 == 0) warp_sums[warp] = static_cast<double>(sum);
}

template <int kThreads, int kBatch, class V, class X, class C>
__device__ void item_products(StreamFrame<V, X>& frame, const StreamItem& item, const V* values, const C* columns, std::uint64_t* barrier,
                              std::uint32_t parity, double* warp_sums) {
    switch (item.team) {
        case 0: item_rows<1, kThreads, kBatch>(frame, item, values, columns, barrier, parity); break;
        case 1: item_rows<2, kThreads, kBatch>(frame, item, values, columns, barrier, parity); break;
        case 2: item_rows<4, kThreads, kBatch>(frame, item, values, columns, barrier, parity); break;
        case 3: item_rows<8, kThreads, kBatch>(frame, item, values, columns, barrier, parity); break;
        case 4: item_rows<16, kThreads, kBatch>(frame, item, values, columns, barrier, parity); break;
        case 5: item_rows<32, kThreads, kBatch>(frame, item, values, columns, barrier, parity); break;
        default:
            barrier_wait(barrier, parity);
            item_whole<kThreads, kBatch>(frame, item, values, columns, warp_sums);
    }
}

// A piece has been kept: the block that keeps the last one of a row adds them in their order and writes the row's y. By one warp.
template <class V, class X>
__device__ void finish_piece(StreamFrame<V, X>& frame, std::int32_t piece) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int32_t index = frame.matrix.piece_rows[piece];
    const CutRow cut = frame.matrix.cut_rows[index];
    int arrived = 0;
    if (lane == 0) {
        __threadfence();  // the piece is seen before the arrival
        arrived = atomicAdd(frame.scratch.arrivals + index, 1);
    }
    if (__shfl_sync(0xffffffffu, arrived, 0) != cut.count - 1) return;
    __threadfence();
    double sum = 0;
    if (frame.atomic) {
        if (lane == 0) {
            sum = __ldcg(frame.scratch.piece_sums + index);
            frame.scratch.piece_sums[index] = 0;
        }
    } else {
        for (std::int32_t i = lane; i < cut.count; i += 32) sum += __ldcg(frame.scratch.piece_sums + cut.first_piece + i);
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    }
    if (lane == 0) {
        const X value = frame.b != X(0) ? frame.a * static_cast<X>(sum) + frame.b * frame.y[cut.row] : frame.a * static_cast<X>(sum);
        frame.y[cut.row] = value;  // its square is added at the end of the product: who comes last here depends on timing
        frame.scratch.arrivals[index] = 0;
    }
}

template <class V, class X, int kThreads, int kCapacity, int kBatch, int kMinBlocks>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    stream_kernel(StreamMatrix<V> matrix, StreamScratch scratch, bool atomic, const X* a, const X* __restrict__ x, const X* b, X* y, double* partials) {
    constexpr int kRoom = kCapacity + 16;  // an item may begin and end inside a group of 8
    extern __shared__ __align__(128) std::byte room[];
    V* const values = reinterpret_cast<V*>(room);
    std::byte* const columns = room + sizeof(V) * kRoom;
    __shared__ std::uint64_t barrier;
    __shared__ StreamItem items[3];  // of this round, the next and the one after
    __shared__ double warp_sums[2][kThreads / 32];
    __shared__ double sum_scratch[32];
    __shared__ bool is_last;
    std::uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    const auto stride = static_cast<std::int32_t>(gridDim.x);
    std::int32_t turn = static_cast<std::int32_t>(blockIdx.x);
    // The entries of the round's item, and the description of the item two rounds on, so that no round waits for one.
    const auto issue = [&](std::uint32_t round, std::int32_t turn_after_next) {
        const StreamItem& item = items[round % 3];
        const std::int64_t from = item.begin & ~std::int64_t{7};
        const auto count = static_cast<std::uint32_t>(item.begin - from + item.count + 7) & ~7u;
        const std::uint32_t value_bytes = count * static_cast<std::uint32_t>(sizeof(V));
        const std::uint32_t column_bytes = count * (item.flags & kNarrowColumns ? 2u : 4u);
        const bool another = turn_after_next < matrix.item_count;
        barrier_expect(&barrier, value_bytes + column_bytes + (another ? static_cast<std::uint32_t>(sizeof(StreamItem)) : 0u));
        if (count != 0) {  // else only empty rows
            bulk_copy(values, matrix.values + from, value_bytes, &barrier, policy);
            bulk_copy(columns, matrix.columns + std::int64_t{16} * item.columns, column_bytes, &barrier, policy);
        }
        if (another) bulk_copy(items + (round + 1) % 3, matrix.items + turn_after_next, sizeof(StreamItem), &barrier, policy);
    };
    if (threadIdx.x == 0) {
        barrier_init(&barrier);
        if (turn < matrix.item_count) {
            items[0] = matrix.items[turn];
            issue(0, turn + stride);
        }
    }
    __syncthreads();
    StreamFrame<V, X> frame{matrix, scratch, x, y, *a, *b, atomic, 0};
    for (std::uint32_t round = 0; turn < matrix.item_count; turn += stride, ++round) {
        const StreamItem& item = items[round % 3];
        const std::uint32_t parity = round & 1;
        const int shift = static_cast<int>(item.begin & 7);
        if (item.flags & kNarrowColumns) {
            item_products<kThreads, kBatch>(frame, item, values + shift, reinterpret_cast<const std::uint16_t*>(columns) + shift, &barrier, parity, warp_sums[parity]);
        } else {
            item_products<kThreads, kBatch>(frame, item, values + shift, reinterpret_cast<const std::int32_t*>(columns) + shift, &barrier, parity, warp_sums[parity]);
        }
        __syncthreads();  // everyone has read the item
        if (threadIdx.x == 0 && turn + stride < matrix.item_count) issue(round + 1, turn + 2 * stride);
        if (threadIdx.x >= 32) continue;
        if (item.team == kWholeBlock && threadIdx.x == 0) {
            double sum = 0;
            for (int w = 0; w < kThreads / 32; ++w) sum += warp_sums[parity][w];
            if (item.flags & kFirstIsPiece) frame.keep_piece(item.piece, sum);
            else frame.write(item.first_row, static_cast<X>(sum), frame.b != X(0) ? y[item.first_row] : X(0));
        }
        if (item.flags & kFirstIsPiece) finish_piece(frame, item.piece);
        if (item.flags & kLastIsPiece) finish_piece(frame, item.piece + (item.flags & kFirstIsPiece));
    }
    if (partials == nullptr) return;
    const double total = block_sum(frame.squares, sum_scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
    if (matrix.cut_row_count == 0) {
        if (blockIdx.x == 0 && threadIdx.x == 0) partials[gridDim.x] = 0;
        return;
    }
    // The squares of the cut rows, by the block that ends last, in the order of the rows.
    if (threadIdx.x == 0) {
        __threadfence();
        std::int32_t* ended = scratch.arrivals + matrix.cut_row_count;
        is_last = atomicAdd(ended, 1) == stride - 1;
        if (is_last) *ended = 0;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    double squares = 0;
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < matrix.cut_row_count; i += kThreads) {
        const auto value = static_cast<double>(__ldcg(y + matrix.cut_rows[i].row));
        squares += value * value;
    }
    const double cut_total = block_sum(squares, sum_scratch);
    if (threadIdx.x == 0) partials[gridDim.x] = cut_total;
}

// f(kernel, bytes of shared memory) for the kernel of that shape; false where there is none. The table of tunings: threads, capacity, gathers
// in flight a thread, blocks that registers must leave room for. Batches of 4 cost fp32 less on short rows, and let more blocks in.
template <class V, class X, class F>
bool with_stream_kernel(StreamShape shape, const F& f) {
    const auto is = [&](int threads, int capacity) { return shape.threads == threads && shape.capacity == capacity; };
    const int bytes = (shape.capacity + 16) * static_cast<int>(sizeof(V) + sizeof(std::int32_t));
    constexpr int kWide = sizeof(X) == sizeof(double) ? 8 : 4;
    if (is(128, 2048)) f(stream_kernel<V, X, 128, 2048, kWide, 8>, bytes);
    else if (is(128, 1024)) f(stream_kernel<V, X, 128, 1024, kWide, 8>, bytes);
    else if (is(256, 1024)) f(stream_kernel<V, X, 256, 1024, 4, 5>, bytes);
    else if (is(256, 2048)) f(stream_kernel<V, X, 256, 2048, kWide, 4>, bytes);
    else return false;
    return true;
}

}  // namespace

template <class V, class X>
int stream_blocks(StreamShape shape, std::int64_t items, int multiprocessors) {
    int resident = 0;
    with_stream_kernel<V, X>(shape, [&](auto kernel, int bytes) {
        LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        LSMR_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, shape.threads, static_cast<std::size_t>(bytes)));
        // Shared memory for exactly the resident blocks, 1 KiB of system use each; the rest of the 256 KiB is L1.
        const int percent = std::min(100, (resident * (bytes + 1024 + 512) * 100) / (228 * 1024) + 1);
        LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent));
    });
    if (resident == 0) return 0;
    return static_cast<int>(std::clamp<std::int64_t>(items, 1, std::min(resident * multiprocessors, kMaxPartials - 1)));
}

template <class V, class X>
void launch_stream(StreamShape shape, int blocks, const StreamMatrix<V>& matrix, const StreamScratch& scratch, bool atomic, Scalar<X> a,
                   const X* x, Scalar<X> b, X* y, double* partials, cudaStream_t stream) {
    with_stream_kernel<V, X>(shape, [&](auto kernel, int bytes) {
        kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(shape.threads), static_cast<std::size_t>(bytes), stream>>>(
            matrix, scratch, atomic, a.narrow, x, b.narrow, y, partials);
        LSMR_CHECK(cudaGetLastError());
    });
}

#define LSMR_INSTANTIATE_STREAM(V, X)                                                                                               \
    template int stream_blocks<V, X>(StreamShape, std::int64_t, int);                                                               \
    template void launch_stream<V, X>(StreamShape, int, const StreamMatrix<V>&, const StreamScratch&, bool, Scalar<X>, const X*,     \
                                      Scalar<X>, X*, double*, cudaStream_t);

}  // namespace lsmr::cuda
