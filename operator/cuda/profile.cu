// The counts of a profile. Every sum is of integers by atomics, so the result does not depend on their order.
//   rows_kernel     offsets, first and last column of each row: lengths, spans, padded slices
//   entries_kernel  columns and values in one stream, whatever the rows: order, exactness
//   sample_kernel   a warp a sampled run of entries, row, or block row: sectors, diagonals, similarity, block fill
#include <algorithm>
#include <cstdint>

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
// An H200 has 132 multiprocessors. So many blocks of a kernel are on one of them at the same time, and no more are launched: they would wait for
// the first ones to end, and add atomics at their own ends.
constexpr std::int64_t kMultiprocessors = 132;
constexpr int kRowBlocks = 6;
constexpr int kEntryBlocks = 4;   // with 96 bytes a thread in flight in fp64
constexpr int kSampleBlocks = 8;  // these come and go as their samples are long or short
// In entries_kernel.
constexpr int kFours = 2;
constexpr std::int64_t kChunk = 32 * 4 * kFours;  // entries
constexpr std::int32_t kNoColumn = -2;            // less than every column, and the left neighbour of none

__device__ Count warp_sum(Count value) {
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(kAll, value, d);
    return value;
}

__device__ Count warp_max(Count value) {
    for (int d = 16; d > 0; d /= 2) {
        const Count other = __shfl_xor_sync(kAll, value, d);
        value = other > value ? other : value;
    }
    return value;
}

// The block's sums of values[i] onto *to[i], by one atomic each. All threads call it; of_warps is shared memory of its own.
template <int N>
__device__ void add_block(Count (&of_warps)[kWarps][N], const Count (&values)[N], Count* const (&to)[N]) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const Count sum = warp_sum(values[i]);
        if (thread % 32 == 0) of_warps[thread / 32][i] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
        if (thread != i) continue;
        Count sum = 0;
        for (int w = 0; w < kWarps; ++w) sum += of_warps[w][i];
        if (sum != 0) atomicAdd(to[i], sum);
    }
}

// The same for the greatest value.
template <int N>
__device__ void widen_block(Count (&of_warps)[kWarps][N], const Count (&values)[N], Count* const (&to)[N]) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const Count greatest = warp_max(values[i]);
        if (thread % 32 == 0) of_warps[thread / 32][i] = greatest;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
        if (thread != i) continue;
        Count greatest = 0;
        for (int w = 0; w < kWarps; ++w) greatest = of_warps[w][i] > greatest ? of_warps[w][i] : greatest;
        if (greatest != 0) atomicMax(to[i], greatest);
    }
}

// The warp's sum onto *to, by one atomic of its first lane. All lanes call it.
__device__ void add_to(Count* to, Count value) {
    const Count sum = warp_sum(value);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(to, sum);
}

// What a run of rows adds to its widest span and its narrow entries.
__device__ void count_span(std::int32_t first, std::int32_t last, Count entries, unsigned& widest, Count& narrow) {
    if (entries == 0) return;
    const std::int64_t span = static_cast<std::int64_t>(last) - first + 1;
    if (span > widest) widest = static_cast<unsigned>(span);
    if (span <= kNarrowSpan) narrow += entries;
}

// A block takes aligned runs of 256 rows, a thread a row, so a warp has an aligned run of 32 rows.
template <class Offset>
__global__ void __launch_bounds__(kThreads, kRowBlocks)
    rows_kernel(std::int64_t rows, const Offset* __restrict__ offsets, const std::int32_t* __restrict__ columns, ProfileCounts* counts) {
    __shared__ unsigned bins[detail::kLengthBins];  // at most 2^31 rows
    __shared__ std::int32_t warp_first[kWarps];
    __shared__ std::int32_t warp_last[kWarps];
    __shared__ Count warp_entries[kWarps];
    __shared__ Count sums_of_warps[kWarps][9];
    __shared__ Count maxima_of_warps[kWarps][4];
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = thread / 32;
    for (int bin = thread; bin < detail::kLengthBins; bin += kThreads) bins[bin] = 0;
    __syncthreads();

    Count squares_low = 0, squares_high = 0, longest = 0;      // a thread's rows
    Count narrow_rows = 0;
    unsigned row_span = 0;
    unsigned descents = 0, duplicates = 0, neighbours = 0;     // from the last entry of a row to the first of the next, which do not count
    Count sell_entries = 0, narrow32 = 0, narrow256 = 0;       // lane 0: the warp's runs of 32 rows; thread 0: the block's of 256 rows
    unsigned span32 = 0, span256 = 0;
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
                const std::int32_t before = begin > 0 ? columns[begin - 1] : kNoColumn;
                descents += first < before;
                duplicates += first == before;
                neighbours += first == before + 1;
            }
        }
        const std::int32_t first32 = __reduce_min_sync(kAll, first);
        const std::int32_t last32 = __reduce_max_sync(kAll, last);
        const Count entries32 = warp_sum(length);
        const Count longest32 = warp_max(length);
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

    const Count sums[] = {squares_low, squares_high,        narrow_rows,           sell_entries,         narrow32,
                          narrow256,   Count(0) - descents, Count(0) - duplicates, Count(0) - neighbours};
    Count* const sums_to[] = {&counts->squares_low, &counts->squares_high, &counts->narrow_rows, &counts->sell32_entries, &counts->narrow32,
                              &counts->narrow256,   &counts->descents,     &counts->duplicates,  &counts->neighbours};
    add_block(sums_of_warps, sums, sums_to);
    const Count maxima[] = {longest, row_span, span32, span256};
    Count* const maxima_to[] = {&counts->longest, &counts->row_span, &counts->span32, &counts->span256};
    widen_block(maxima_of_warps, maxima, maxima_to);  // waits for all threads, so that the bins are complete too
    for (int bin = thread; bin < detail::kLengthBins; bin += kThreads) {
        if (bins[bin] > 0) atomicAdd(&counts->lengths[bin], static_cast<Count>(bins[bin]));
    }
}

template <class T>
struct alignas(16) Four {
    T at[4];
};

// from[0], ..., from[3], by loads of 16 bytes where `aligned`.
template <class T>
__device__ Four<T> load_four(const T* __restrict__ from, bool aligned) {
    if (aligned) return *reinterpret_cast<const Four<T>*>(from);
    return {{from[0], from[1], from[2], from[3]}};
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Counts every entry against the one before it in the arrays, whatever rows they lie in; rows_kernel takes off the pairs from two rows. A warp
// takes chunks of kChunk entries, of which a lane has kFours times four neighbouring ones in flight.
template <class T>
__global__ void __launch_bounds__(kThreads, kEntryBlocks)
    entries_kernel(std::int64_t nnz, const std::int32_t* __restrict__ columns, bool columns_aligned, const T* __restrict__ values,
                   bool values_aligned, ProfileCounts* counts) {
    __shared__ Count of_warps[kWarps][6];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const T constant = values[0];
    unsigned descents = 0, duplicates = 0, neighbours = 0, not_fp32 = 0, not_bf16 = 0, not_constant = 0;  // a thread's, far below 2^32
    const auto count = [&](std::int32_t before, std::int32_t column, T value) {
        descents += column < before;
        duplicates += column == before;
        neighbours += column == before + 1;
        not_fp32 += !detail::fits_fp32(value);
        not_bf16 += !detail::fits_bf16(value);
        not_constant += !(value == constant);
    };
    const auto column_before = [&](std::int64_t k) { return k > 0 ? columns[k - 1] : kNoColumn; };

    const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
    const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * kWarps;
    const std::int64_t chunks = nnz / kChunk;
    for (std::int64_t chunk = warp; chunk < chunks; chunk += warps) {
        Four<std::int32_t> column[kFours];
        Four<T> value[kFours];
        std::int32_t before[kFours];
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const std::int64_t k = chunk * kChunk + i * 128 + lane * 4;
            column[i] = load_four(columns + k, columns_aligned);
            value[i] = load_four(values + k, values_aligned);
            before[i] = lane == 0 ? column_before(k) : 0;
        }
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const std::int32_t left = __shfl_up_sync(kAll, column[i].at[3], 1);
            count(lane == 0 ? before[i] : left, column[i].at[0], value[i].at[0]);
#pragma unroll
            for (int j = 1; j < 4; ++j) count(column[i].at[j - 1], column[i].at[j], value[i].at[j]);
        }
    }
    for (std::int64_t k = chunks * kChunk + warp * 32 + lane; k < nnz; k += warps * 32) count(column_before(k), columns[k], values[k]);

    const Count sums[] = {descents, duplicates, neighbours, not_fp32, not_bf16, not_constant};
    Count* const to[] = {&counts->descents, &counts->duplicates, &counts->neighbours,
                         &counts->not_fp32, &counts->not_bf16,   &counts->not_constant};
    add_block(of_warps, sums, to);
}

// Puts a diagonal into the table that all blocks fill, until the cap is passed. Many threads may arrive at once and fill it; then the count
// goes far beyond the cap, and nobody misses what finds no slot.
__device__ void add_diagonal(std::uint32_t key, ProfileCounts* counts) {
    std::uint32_t slot = detail::diagonal_slot(key);
    for (int probe = 0; probe < detail::kDiagonalTable; ++probe) {
        // A slot changes once, so a key that was read is there to stay; a stale 0 is found out by the exchange.
        std::uint32_t found = __ldca(counts->diagonal_keys + slot);
        if (found == key || __ldcg(&counts->diagonals) > static_cast<Count>(kDiagonalCap)) return;
        if (found == 0) {
            found = atomicCAS(counts->diagonal_keys + slot, 0u, key);
            if (found == 0) atomicAdd(&counts->diagonals, Count(1));
            if (found == 0 || found == key) return;
        }
        slot = detail::next_diagonal_slot(slot);
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
    const std::int64_t diagonal_rows = detail::diagonal_row_samples(rows);
    for (std::int64_t s = first; s < diagonal_rows; s += step) {
        const std::int64_t row = detail::sample_at(s, diagonal_rows, rows);
        const auto begin = static_cast<std::int64_t>(offsets[row]);
        const std::int64_t end = detail::diagonal_end(begin, static_cast<std::int64_t>(offsets[row + 1]));
        for (std::int64_t k = begin + lane; k < end; k += 32) add_diagonal(detail::diagonal_key(columns[k], row), counts);
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

unsigned blocks_for(std::int64_t work, std::int64_t per_block, int per_multiprocessor) {
    return static_cast<unsigned>(std::min((work + per_block - 1) / per_block, per_multiprocessor * kMultiprocessors));
}

}  // namespace

template <class T, class Offset>
void launch_profile(std::int64_t rows, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns, const T* values,
                    ProfileCounts* counts, cudaStream_t stream) {
    LSMR_CHECK(cudaMemsetAsync(counts, 0, sizeof(ProfileCounts), stream));
    if (rows == 0) return;
    rows_kernel<<<blocks_for(rows, kThreads, kRowBlocks), kThreads, 0, stream>>>(rows, offsets, columns, counts);
    LSMR_CHECK(cudaGetLastError());
    if (nnz == 0) return;
    entries_kernel<<<blocks_for(nnz, kWarps * kChunk, kEntryBlocks), kThreads, 0, stream>>>(nnz, columns, is_aligned(columns), values,
                                                                                           is_aligned(values), counts);
    LSMR_CHECK(cudaGetLastError());
    const std::int64_t samples =
        std::max({detail::run_samples(nnz), detail::diagonal_row_samples(rows), kBlockShapes * detail::block_row_samples(rows, {1, 1})});
    sample_kernel<<<blocks_for(samples, kWarps, kSampleBlocks), kThreads, 0, stream>>>(rows, nnz, offsets, columns, counts);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE(T, Offset)                                                                                          \
    template void launch_profile(std::int64_t, std::int64_t, const Offset*, const std::int32_t*, const T*, ProfileCounts*, \
                                 cudaStream_t);
LSMR_INSTANTIATE(double, std::int32_t)
LSMR_INSTANTIATE(double, std::int64_t)
LSMR_INSTANTIATE(float, std::int32_t)
LSMR_INSTANTIATE(float, std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
