// The merge kernel: items of equal entries, whatever their rows, so that rows of unlike length cost what rows of like length do. All entries of
// an item gather, their products take the place of the values in shared memory, then each thread sums a run of kEach of them; what rows have
// in several threads is carried from thread to thread by a segmented scan, in an order that depends on the plan alone. With two stages the next
// item comes while this one is worked at; with one, L1 has more room for x.
//
// Bytes: as the stream kernel's.
#pragma once

#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/stream_frame.cuh"

namespace lsmr::cuda {
namespace {

// Where the product of entry k lies: inside the same thread's run, turned so that the threads of a warp, each in its own run, meet in no bank.
template <int kEach, class X>
__device__ constexpr int merge_place(int k) {
    constexpr int kBanks = 128 / static_cast<int>(sizeof(X));
    return k ^ ((k / kBanks) & (kEach - 1));
}

// threadIdx.x, as if it were not the same in every round: what is computed from it would be kept in registers from round to round.
__device__ inline int this_thread() {
    int thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+r"(thread));
    return thread;
}

// What the warps of a block tell one another of the row that is open where their entries end.
template <class X, int kThreads>
struct MergeCarries {
    X sums[kThreads / 32];
    bool has_end[kThreads / 32];
};

// Leaves the sum of each row in the place of its last product. ends: a bit an entry, set for the last of a row. All threads call it; the
// sums can be read after the next barrier of the block.
template <int kThreads, int kEach, class X>
__device__ void sum_merge_runs(int count, X* products, const std::uint32_t* ends, MergeCarries<X, kThreads>& carries) {
    const int thread = this_thread();
    const int lane = thread % 32;
    const int warp = thread / 32;
    const int begin = thread * kEach;
    const std::uint32_t my_ends = (ends[begin / 32] >> (begin % 32)) & ((1u << kEach) - 1u);
    X head = 0;  // up to the first end
    X open = 0;  // since the last end
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (begin + i >= count) break;
        X& place = products[merge_place<kEach, X>(begin + i)];
        open += place;
        if (my_ends >> i & 1u) {
            if ((my_ends & ((1u << i) - 1u)) == 0) head = open;
            else place = open;
            open = 0;
        }
    }
    // Inclusive sums of what is open, since the last thread with an end.
    const std::uint32_t with_end = __ballot_sync(0xffffffffu, my_ends != 0);
    const std::uint32_t up_to_me = with_end & (0xffffffffu >> (31 - lane));
    const int since = up_to_me != 0 ? 31 - __clz(static_cast<int>(up_to_me)) : 0;
    X sum = open;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const X before = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane - d >= since) sum += before;
    }
    X carry = __shfl_up_sync(0xffffffffu, sum, 1);
    if (lane == 0) carry = 0;
    if (lane == 31) {
        carries.sums[warp] = sum;
        carries.has_end[warp] = with_end != 0;
    }
    __syncthreads();
    if (my_ends == 0) return;
    if ((with_end & ((1u << lane) - 1u)) == 0) {
        X earlier = 0;
        for (int w = 0; w < warp; ++w) earlier = carries.has_end[w] ? carries.sums[w] : earlier + carries.sums[w];
        carry += earlier;
    }
    products[merge_place<kEach, X>(begin + __ffs(static_cast<int>(my_ends)) - 1)] = carry + head;
}

// All entries of an item gather; the products take the places of the values.
template <int kThreads, int kEach, class X, class C>
__device__ void gather_products(const X* x, int count, X* values, const C* columns) {
    const int thread = this_thread();
    X products[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int k = i * kThreads + thread;
        products[i] = k < count ? values[k] * x[columns[k]] : X(0);
    }
    __syncwarp();  // a place belongs to a run of 32 entries, which one warp has read
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int k = i * kThreads + thread;
        if (k < count) values[merge_place<kEach, X>(k)] = products[i];
    }
}

template <class X, int kThreads, int kEach, int kStages, int kMinBlocks>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    merge_kernel(StreamMatrix<X> matrix, double* piece_sums, bool atomic, const X* a_pointer, const X* x, const X* b_pointer, X* y, double* partials) {
    constexpr int kCapacity = kThreads * kEach;
    constexpr int kStageBytes = stage_bytes<X>(kCapacity);
    static_assert(kStageBytes % 16 == 0);
    extern __shared__ __align__(128) std::byte room[];
    __shared__ std::uint64_t barriers[kStages];
    __shared__ StreamItem items[3];  // of this round, the next and the one after
    __shared__ std::uint32_t ends[kCapacity / 32];
    __shared__ MergeCarries<X, kThreads> carries;
    __shared__ double sum_scratch[32];
    const std::uint64_t policy = evict_first_policy();
    const auto stride = static_cast<std::int32_t>(gridDim.x);
    std::int32_t turn = static_cast<std::int32_t>(blockIdx.x);
    const int thread = static_cast<int>(threadIdx.x);
    const auto values_of = [&](std::uint32_t round) { return reinterpret_cast<X*>(room + (round % kStages) * kStageBytes); };
    const auto columns_of = [&](std::uint32_t round) { return room + (round % kStages) * kStageBytes + sizeof(X) * (kCapacity + 16); };
    // The entries of the round's item, and the description of the item after it.
    const auto issue = [&](std::uint32_t round, std::int32_t turn_after_next) {
        issue_item(matrix, items[round % 3], values_of(round), columns_of(round), turn_after_next, items + (round + 1) % 3, barriers + round % kStages, policy);
    };
    for (int i = thread; i < kCapacity / 32; i += kThreads) ends[i] = 0;
    if (thread == 0) {
        for (std::uint64_t& barrier : barriers) barrier_init(&barrier);
        if (turn < matrix.item_count) {
            items[0] = matrix.items[turn];
            issue(0, turn + stride);
        }
    }
    // What is begun by now is of the matrix, which no kernel of an iteration writes.
    await_previous();
    admit_next();
    __syncthreads();
    StreamFrame<X, X> frame{matrix, piece_sums, x, y, *a_pointer, *b_pointer, atomic, 0};
    for (std::uint32_t round = 0; turn < matrix.item_count; turn += stride, ++round) {
        const StreamItem& shared_item = items[round % 3];
        const ItemRows item(shared_item);
        X* const products = values_of(round) + (shared_item.begin & 7);
        const std::uint16_t* __restrict__ starts = matrix.row_starts + item.first_row;
        const auto start_of = [&](int r) { return r == 0 ? 0 : static_cast<int>(starts[r]); };
        const auto end_of = [&](int r) { return r + 1 == item.rows ? item.count : static_cast<int>(starts[r + 1]); };
        const auto old_of = [&](int r) { return frame.b != X(0) ? y[item.first_row + r] : X(0); };
        const auto mark_end = [&](int start, int end) {
            if (end > start) atomicOr(ends + (end - 1) / 32, 1u << ((end - 1) % 32));
        };
        // Of the first rows, one a thread, in registers: most items have no more.
        const bool has_row = thread < item.rows;
        const int start = has_row ? start_of(thread) : 0;
        const int end = has_row ? end_of(thread) : 0;
        const X old = has_row ? old_of(thread) : X(0);
        mark_end(start, end);
        for (int r = thread + kThreads; r < item.rows; r += kThreads) mark_end(start_of(r), end_of(r));

        barrier_wait(barriers + round % kStages, (round / kStages) & 1);
        // Its description has come with this item, and all threads are done with that stage since the end of the round before.
        if (kStages == 2 && thread == 0 && turn + stride < matrix.item_count) issue(round + 1, turn + 2 * stride);
        with_columns(shared_item, columns_of(round),
                     [&](const auto* c) { gather_products<kThreads, kEach>(x + shared_item.column_base, item.count, products, c); });
        __syncthreads();
        sum_merge_runs<kThreads, kEach>(item.count, products, ends, carries);
        __syncthreads();
        for (int i = thread; i < kCapacity / 32; i += kThreads) ends[i] = 0;
        const auto sum_of = [&](int its_start, int its_end) { return its_end > its_start ? products[merge_place<kEach, X>(its_end - 1)] : X(0); };
        if (has_row) frame.finish_row(item, thread, sum_of(start, end), old);
        for (int r = thread + kThreads; r < item.rows; r += kThreads) frame.finish_row(item, r, sum_of(start_of(r), end_of(r)), old_of(r));
        // Products were written where a bulk copy is to write next: ordered between the two ways to shared memory.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();  // everyone has read the item
        if (kStages == 1 && thread == 0 && turn + stride < matrix.item_count) issue(round + 1, turn + 2 * stride);
    }
    if (partials == nullptr) return;
    const double total = block_sum(frame.squares, sum_scratch);
    if (thread == 0) partials[blockIdx.x] = total;
}

}  // namespace
}  // namespace lsmr::cuda
