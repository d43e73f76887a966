// The counts of a profile. Every sum is of integers by atomics, so the result does not depend on their order.
//   rows_kernel     offsets, first and last column of each row: lengths, spans, padded slices
//   entries_kernel  columns and values in chunks of fixed size, whatever the lengths of the rows: order, diagonals, exactness
//   sample_kernel   a warp a sampled run of entries, row, or block row: sectors, similarity, block fill
#include <algorithm>

#include "memory/cuda_check.hpp"
#include "operator/cuda/profile.hpp"
#include "operator/profile_counts.hpp"

namespace lsmr::cuda {
namespace {

using detail::Count;
using detail::ProfileCounts;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAll = 0xffffffffu;
// Eight blocks on each of 132 multiprocessors fill an H200; more would only add atomics at their ends.
constexpr std::int64_t kMostBlocks = 1056;
// Entries that a warp reads from one search for its first row to the next.
constexpr std::int64_t kWarpEntries = 1024;
constexpr std::int64_t kBlockEntries = kWarps * kWarpEntries;
constexpr auto kCap = static_cast<unsigned>(kDiagonalCap);

__device__ Count warp_sum(Count value) {
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(kAll, value, d);
    return value;
}

// The warp's sum onto *to, by one atomic of its first lane. All lanes call it.
__device__ void add_to(Count* to, Count value) {
    const Count sum = warp_sum(value);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(to, sum);
}

// What a run of rows adds to its widest span and its narrow entries.
__device__ void count_span(std::int32_t first, std::int32_t last, Count entries, Count& widest, Count& narrow) {
    if (entries == 0) return;
    const std::int64_t span = static_cast<std::int64_t>(last) - first + 1;
    if (span > 0 && static_cast<Count>(span) > widest) widest = static_cast<Count>(span);
    if (span <= kNarrowSpan) narrow += entries;
}

// A block takes aligned runs of 256 rows, a thread a row, so a warp has an aligned run of 32 rows.
template <class Offset>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(std::int64_t rows, const Offset* __restrict__ offsets, const std::int32_t* __restrict__ columns, ProfileCounts* counts) {
    __shared__ unsigned bins[detail::kLengthBins];  // at most 2^31 rows
    __shared__ std::int32_t warp_first[kWarps];
    __shared__ std::int32_t warp_last[kWarps];
    __shared__ Count warp_entries[kWarps];
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = thread / 32;
    for (int bin = thread; bin < detail::kLengthBins; bin += kThreads) bins[bin] = 0;
    __syncthreads();

    Count squares_low = 0, squares_high = 0, longest = 0;      // a thread's rows
    Count row_span = 0, narrow_rows = 0;
    Count sell_entries = 0, span32 = 0, narrow32 = 0;          // lane 0: the warp's runs of 32 rows
    Count span256 = 0, narrow256 = 0;                          // thread 0: the block's runs of 256 rows
    for (std::int64_t run = blockIdx.x; run * kThreads < rows; run += gridDim.x) {
        const std::int64_t row = run * kThreads + thread;
        std::int32_t first = 2147483647;  // of no columns
        std::int32_t last = -1;
        Count length = 0;
        if (row < rows) {
            const auto begin = static_cast<std::int64_t>(offsets[row]);
            const auto end = static_cast<std::int64_t>(offsets[row + 1]);
            length = static_cast<Count>(end - begin);
            atomicAdd(&bins[detail::length_bin(end - begin)], 1u);
            squares_low += (length * length) & 0xffffffffu;
            squares_high += (length * length) >> 32;
            longest = length > longest ? length : longest;
            if (length > 0) {
                first = columns[begin];
                last = columns[end - 1];
                count_span(first, last, length, row_span, narrow_rows);
            }
        }
        const std::int32_t first32 = __reduce_min_sync(kAll, first);
        const std::int32_t last32 = __reduce_max_sync(kAll, last);
        const Count entries32 = warp_sum(length);
        Count longest32 = length;
        for (int d = 16; d > 0; d /= 2) {
            const Count other = __shfl_xor_sync(kAll, longest32, d);
            longest32 = other > longest32 ? other : longest32;
        }
        if (lane == 0) {
            sell_entries += 32 * longest32;
            count_span(first32, last32, entries32, span32, narrow32);
            warp_first[warp] = first32;
            warp_last[warp] = last32;
            warp_entries[warp] = entries32;
        }
        __syncthreads();
        if (thread == 0) {
            std::int32_t first256 = 2147483647;
            std::int32_t last256 = -1;
            Count entries256 = 0;
            for (int w = 0; w < kWarps; ++w) {
                first256 = warp_first[w] < first256 ? warp_first[w] : first256;
                last256 = warp_last[w] > last256 ? warp_last[w] : last256;
                entries256 += warp_entries[w];
            }
            count_span(first256, last256, entries256, span256, narrow256);
        }
        __syncthreads();  // the warps' values are read
    }

    add_to(&counts->squares_low, squares_low);
    add_to(&counts->squares_high, squares_high);
    add_to(&counts->narrow_rows, narrow_rows);
    for (int d = 16; d > 0; d /= 2) {
        const Count other_length = __shfl_xor_sync(kAll, longest, d);
        const Count other_span = __shfl_xor_sync(kAll, row_span, d);
        longest = other_length > longest ? other_length : longest;
        row_span = other_span > row_span ? other_span : row_span;
    }
    if (lane == 0) {
        atomicMax(&counts->longest, longest);
        atomicMax(&counts->row_span, row_span);
        atomicMax(&counts->span32, span32);
        atomicAdd(&counts->narrow32, narrow32);
        atomicAdd(&counts->sell32_entries, sell_entries);
    }
    if (thread == 0) {
        atomicMax(&counts->span256, span256);
        atomicAdd(&counts->narrow256, narrow256);
    }
    __syncthreads();  // the bins are complete
    for (int bin = thread; bin < detail::kLengthBins; bin += kThreads) {
        if (bins[bin] > 0) atomicAdd(&counts->lengths[bin], static_cast<Count>(bins[bin]));
    }
}

// Puts a diagonal into the block's table, which its other threads fill at the same time; *count is the number in it. The table has room: it
// takes no more once the cap is passed, so it never holds more than the cap, one more, and one for each thread that was on its way.
__device__ void add_diagonal(std::int32_t diagonal, std::int32_t* table, unsigned* count) {
    std::uint32_t slot = detail::diagonal_slot(diagonal);
    while (true) {
        const std::int32_t before = atomicCAS(table + slot, detail::kNoDiagonal, diagonal);
        if (before == diagonal) return;
        if (before == detail::kNoDiagonal) {
            atomicAdd(count, 1u);
            return;
        }
        slot = (slot + 1) % detail::kDiagonalTable;
    }
}

// The same for the table of all blocks, until the cap is passed. Many blocks may arrive at once and fill it; then the count is far beyond
// the cap, and nobody misses what finds no slot.
__device__ void add_to_all_diagonals(std::int32_t diagonal, std::int32_t* table, Count* count) {
    const volatile Count* found = count;
    std::uint32_t slot = detail::diagonal_slot(diagonal);
    for (int probe = 0; probe < detail::kDiagonalTable; ++probe) {
        if (*found > kCap) return;
        const std::int32_t before = atomicCAS(table + slot, detail::kNoDiagonal, diagonal);
        if (before == diagonal) return;
        if (before == detail::kNoDiagonal) {
            atomicAdd(count, Count(1));
            return;
        }
        slot = (slot + 1) % detail::kDiagonalTable;
    }
}

// Whether a block's table holds the diagonal, while nobody changes it.
__device__ bool has_diagonal(std::int32_t diagonal, const std::int32_t* table) {
    std::uint32_t slot = detail::diagonal_slot(diagonal);
    while (table[slot] != detail::kNoDiagonal) {
        if (table[slot] == diagonal) return true;
        slot = (slot + 1) % detail::kDiagonalTable;
    }
    return false;
}

// The first row whose entries begin at or after k, or `rows`.
template <class Offset>
__device__ std::int64_t first_row_from(std::int64_t k, std::int64_t begin, std::int64_t rows, const Offset* __restrict__ offsets) {
    std::int64_t end = rows;
    while (begin < end) {
        const std::int64_t middle = begin + (end - begin) / 2;
        if (static_cast<std::int64_t>(offsets[middle]) < k) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

// A warp walks kWarpEntries entries, 32 at a time. Which of them begin a row, and which row, comes from the offsets, which it walks beside:
// row_at[j] is the row that begins at entry j of the 32, for the set bits j of `heads`.
template <class T, class Offset>
__global__ void __launch_bounds__(kThreads)
    entries_kernel(std::int64_t rows, std::int64_t nnz, const Offset* __restrict__ offsets, const std::int32_t* __restrict__ columns,
                   const T* __restrict__ values, ProfileCounts* counts, std::int32_t* diagonals) {
    __shared__ std::int32_t table[detail::kDiagonalTable];     // the block's diagonals, changed by atomics within a turn
    __shared__ std::int32_t snapshot[detail::kDiagonalTable];  // as it was before this turn: read without atomics
    __shared__ unsigned table_count;
    __shared__ std::int32_t rows_at[kWarps][32];
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    std::int32_t* row_at = rows_at[thread / 32];
    for (int slot = thread; slot < detail::kDiagonalTable; slot += kThreads) table[slot] = snapshot[slot] = detail::kNoDiagonal;
    if (thread == 0) table_count = 0;
    unsigned known = 0;  // diagonals in the snapshot
    const T constant = values[0];
    Count descents = 0, duplicates = 0, neighbours = 0, not_fp32 = 0, not_bf16 = 0, not_constant = 0;

    for (std::int64_t turn = blockIdx.x; turn * kBlockEntries < nnz; turn += gridDim.x) {
        __syncthreads();
        const unsigned found = table_count;
        if (found != known) {
            for (int slot = thread; slot < detail::kDiagonalTable; slot += kThreads) snapshot[slot] = table[slot];
        }
        known = found;
        __syncthreads();

        const std::int64_t begin = turn * kBlockEntries + thread / 32 * kWarpEntries;
        const std::int64_t end = begin + kWarpEntries < nnz ? begin + kWarpEntries : nnz;
        if (begin >= end) continue;  // the whole warp; it meets the others at the next turn
        std::int64_t next = first_row_from(begin, 0, rows, offsets);  // the first row that begins at or after the entries at hand
        std::int32_t current = static_cast<std::int32_t>(next) - 1;   // the row before it, to which entries belong until `next` begins
        std::int32_t before = begin > 0 ? columns[begin - 1] : 0;     // the column before the 32 entries; unused at the first of a row
        for (std::int64_t base = begin; base < end; base += 32) {
            const std::int64_t k = base + lane;
            const bool active = k < end;
            const std::int32_t column = active ? columns[k] : 0;
            const T value = active ? values[k] : constant;

            const std::int64_t limit = base + 32 < end ? base + 32 : end;
            unsigned heads = 0;
            while (true) {
                const std::int64_t row = next + lane;
                const std::int64_t start = row < rows ? static_cast<std::int64_t>(offsets[row]) : limit;
                const bool starts = start < limit;
                const unsigned starting = __ballot_sync(kAll, starts);  // the lowest bits: offsets ascend
                const std::int64_t following = __shfl_down_sync(kAll, start, 1);
                // Of rows that begin at the same entry only the last has entries. That of lane 31 may give way to one of the next 32 rows.
                if (starts && (lane == 31 || following != start)) row_at[start - base] = static_cast<std::int32_t>(row);
                heads |= __reduce_or_sync(kAll, starts ? 1u << (start - base) : 0u);
                next += __popc(starting);
                __syncwarp();
                if (starting != kAll) break;
                // 32 rows that begin at the same entry, 31 of them empty: there may be millions.
                const std::int64_t first_start = __shfl_sync(kAll, start, 0);
                const std::int64_t last_start = __shfl_sync(kAll, start, 31);
                if (first_start == last_start) next = first_row_from(last_start + 1, next, rows, offsets) - 1;
            }

            const unsigned up_to_here = heads & ((2u << lane) - 1);
            const bool head = (heads >> lane & 1u) != 0;
            const std::int32_t row = up_to_here != 0 ? row_at[31 - __clz(static_cast<int>(up_to_here))] : current;
            std::int32_t left = __shfl_up_sync(kAll, column, 1);
            if (lane == 0) left = before;
            if (active) {
                if (!head) {
                    descents += column < left;
                    duplicates += column == left;
                    neighbours += column == left + 1;
                }
                not_fp32 += !detail::fits_fp32(value);
                not_bf16 += !detail::fits_bf16(value);
                not_constant += !(value == constant);
            }
            if (known <= kCap) {
                const std::int32_t diagonal = column - row;
                const bool unknown = active && !has_diagonal(diagonal, snapshot);
                if (__any_sync(kAll, unknown)) {
                    unsigned now = 0;
                    if (lane == 0) now = atomicAdd(&table_count, 0u);
                    if (__shfl_sync(kAll, now, 0) <= kCap && unknown) add_diagonal(diagonal, table, &table_count);
                    __syncwarp();
                }
            }
            before = __shfl_sync(kAll, column, 31);
            current = static_cast<std::int32_t>(next) - 1;
            __syncwarp();  // row_at is read before it is written again
        }
    }

    add_to(&counts->descents, descents);
    add_to(&counts->duplicates, duplicates);
    add_to(&counts->neighbours, neighbours);
    add_to(&counts->not_fp32, not_fp32);
    add_to(&counts->not_bf16, not_bf16);
    add_to(&counts->not_constant, not_constant);
    __syncthreads();  // the table is complete
    if (table_count > kCap) {
        if (thread == 0) atomicMax(&counts->diagonals, static_cast<Count>(table_count));
        return;
    }
    for (int slot = thread; slot < detail::kDiagonalTable; slot += kThreads) {
        if (table[slot] != detail::kNoDiagonal) add_to_all_diagonals(table[slot], diagonals, &counts->diagonals);
    }
}

// Distinct values of column / columns_per_sector among the lanes of `active`, which call it.
__device__ Count distinct_sectors(unsigned active, std::int32_t column, int columns_per_sector) {
    const unsigned same = __match_any_sync(active, column / columns_per_sector);
    return static_cast<Count>(__popc(__ballot_sync(active, __ffs(static_cast<int>(same)) - 1 == static_cast<int>(threadIdx.x) % 32)));
}

template <class Offset>
__global__ void __launch_bounds__(kThreads) sample_kernel(std::int64_t rows, std::int64_t nnz, const Offset* __restrict__ offsets,
                                                          const std::int32_t* __restrict__ columns, ProfileCounts* counts) {
    __shared__ Count run_entries, sectors_fp64, sectors_fp32, similar_of, similar;
    __shared__ Count block_entries[kBlockShapes];
    __shared__ Count blocks[kBlockShapes];
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    if (thread == 0) run_entries = sectors_fp64 = sectors_fp32 = similar_of = similar = 0;
    if (thread < kBlockShapes) block_entries[thread] = blocks[thread] = 0;
    __syncthreads();

    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarps + thread / 32;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
    const std::int64_t runs = detail::run_samples(nnz);
    for (std::int64_t s = first; s < runs; s += step) {
        const std::int64_t k = detail::sample_at(s, runs, detail::run_total(nnz)) * detail::kRun + lane;
        const unsigned active = __ballot_sync(kAll, k < nnz);
        if (k < nnz) {
            const std::int32_t column = columns[k];
            const Count wide = distinct_sectors(active, column, 4);
            const Count narrow = distinct_sectors(active, column, 8);
            if (lane == 0) {
                atomicAdd(&run_entries, static_cast<Count>(__popc(active)));
                atomicAdd(&sectors_fp64, wide);
                atomicAdd(&sectors_fp32, narrow);
            }
        }
        __syncwarp();
    }
    const std::int64_t pairs = detail::similarity_samples(rows);
    for (std::int64_t s = first; s < pairs; s += step) {
        const std::int64_t row = 1 + detail::sample_at(s, pairs, detail::similarity_total(rows));
        const detail::SampleCount count = detail::count_similar(row, offsets, columns, lane, 32);
        add_to(&similar_of, count.of);
        add_to(&similar, count.found);
    }
    for (int shape = 0; shape < kBlockShapes; ++shape) {
        const detail::BlockShape size = detail::block_shape(shape);
        const std::int64_t samples = detail::block_row_samples(rows, size);
        // Each shape begins at another warp, so that few samples do not all fall to the first ones.
        for (std::int64_t s = (first + step - shape * (step / kBlockShapes)) % step; s < samples; s += step) {
            const std::int64_t block_row = detail::sample_at(s, samples, detail::block_row_total(rows, size));
            const detail::SampleCount count = detail::count_blocks(size, block_row, rows, offsets, columns, lane, 32);
            add_to(&block_entries[shape], count.of);
            add_to(&blocks[shape], count.found);
        }
    }

    __syncthreads();
    if (thread == 0) {
        atomicAdd(&counts->run_entries, run_entries);
        atomicAdd(&counts->sectors_fp64, sectors_fp64);
        atomicAdd(&counts->sectors_fp32, sectors_fp32);
        atomicAdd(&counts->similar_of, similar_of);
        atomicAdd(&counts->similar, similar);
    }
    if (thread < kBlockShapes) {
        atomicAdd(&counts->block_entries[thread], block_entries[thread]);
        atomicAdd(&counts->blocks[thread], blocks[thread]);
    }
}

__global__ void clear_kernel(std::int32_t* diagonals) { diagonals[threadIdx.x] = detail::kNoDiagonal; }

unsigned blocks_for(std::int64_t work, std::int64_t per_block) {
    return static_cast<unsigned>(std::min((work + per_block - 1) / per_block, kMostBlocks));
}

}  // namespace

template <class T, class Offset>
void launch_profile(std::int64_t rows, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns, const T* values,
                    ProfileCounts* counts, std::int32_t* diagonals, cudaStream_t stream) {
    LSMR_CHECK(cudaMemsetAsync(counts, 0, sizeof(ProfileCounts), stream));
    if (rows == 0) return;
    rows_kernel<<<blocks_for(rows, kThreads), kThreads, 0, stream>>>(rows, offsets, columns, counts);
    LSMR_CHECK(cudaGetLastError());
    if (nnz == 0) return;
    clear_kernel<<<1, detail::kDiagonalTable, 0, stream>>>(diagonals);
    LSMR_CHECK(cudaGetLastError());
    entries_kernel<<<blocks_for(nnz, kBlockEntries), kThreads, 0, stream>>>(rows, nnz, offsets, columns, values, counts, diagonals);
    LSMR_CHECK(cudaGetLastError());
    const std::int64_t samples = std::max(detail::run_samples(nnz), kBlockShapes * detail::block_row_samples(rows, {1, 1}));
    sample_kernel<<<blocks_for(samples, kWarps), kThreads, 0, stream>>>(rows, nnz, offsets, columns, counts);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE(T, Offset)                                                                                          \
    template void launch_profile(std::int64_t, std::int64_t, const Offset*, const std::int32_t*, const T*, ProfileCounts*, \
                                 std::int32_t*, cudaStream_t);
LSMR_INSTANTIATE(double, std::int32_t)
LSMR_INSTANTIATE(double, std::int64_t)
LSMR_INSTANTIATE(float, std::int32_t)
LSMR_INSTANTIATE(float, std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
