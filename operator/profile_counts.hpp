// What a profile counts: integers only, so that host and device, counting in any order, agree to the last bit; and the functions that both
// share. The profile is computed from the counts in one place (operator/profile.cpp).
#pragma once

#include <cstdint>
#include <cstring>

#include "memory/host_device.hpp"
#include "operator/profile.hpp"

namespace lsmr::detail {

using Count = unsigned long long;  // the type of CUDA's 64-bit atomics

// Lengths up to kExactLength have a bin each; beyond, an octave of (length - 1) has 16 bins. The last bin takes what is longer still.
inline constexpr std::int64_t kExactLength = 4096;
inline constexpr int kLengthBins = 4096 + 1 + 16 * 20;

// Diagonals go into a table of this size, with linear probing, as keys.
inline constexpr int kDiagonalTable = 1024;

// All zeros before anything is counted.
struct ProfileCounts {
    Count lengths[kLengthBins];
    Count squares_low;  // of lengths: the sums of the lower and upper 32 bits of each square
    Count squares_high;
    Count longest;
    Count sell32_entries;
    Count row_span, span32, span256;                  // widest, of sorted rows
    Count narrow_rows, narrow32, narrow256;           // entries in runs of at most kNarrowSpan
    Count descents, duplicates, neighbours;
    Count not_fp32, not_bf16, not_constant;
    Count diagonals;                                  // of the sampled rows; any number above kDiagonalCap stands for more
    std::uint32_t diagonal_keys[kDiagonalTable];      // 0: free
    Count run_entries, sectors_fp64, sectors_fp32;    // of the sampled runs
    Count similar_of, similar;                        // entries looked at, entries with a near one in the row before
    Count block_entries[kBlockShapes];                // of the sampled block rows
    Count blocks[kBlockShapes];
};

// The profile that the counts give.
OrientationProfile make_profile(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const ProfileCounts& counts);

struct BlockShape {
    std::int32_t rows;
    std::int32_t cols;
};
// 2 x 3 and 9 x 3 come from bundle adjustment; 3 x 2 and 3 x 9 are theirs in A^T.
LSMR_HD inline BlockShape block_shape(int shape) {
    switch (shape) {
        case 0: return {2, 2};
        case 1: return {3, 3};
        case 2: return {4, 4};
        case 3: return {6, 6};
        case 4: return {8, 8};
        case 5: return {16, 16};
        case 6: return {2, 3};
        case 7: return {3, 2};
        case 8: return {9, 3};
        default: return {3, 9};
    }
}

LSMR_HD inline int length_bin(std::int64_t length) {
    if (length <= kExactLength) return static_cast<int>(length);
    int shift = 0;
    while ((length - 1) >> shift >= 32) ++shift;  // leaves five bits: a one, and the number of the bin within its octave
    const std::int64_t bin = kExactLength + 1 + (shift + 4 - 12) * 16 + (((length - 1) >> shift) - 16);
    return bin < kLengthBins ? static_cast<int>(bin) : kLengthBins - 1;
}
// The greatest length of a bin.
inline std::int64_t bin_length(int bin) {
    if (bin <= kExactLength) return bin;
    const std::int64_t beyond = bin - kExactLength - 1;
    return (17 + beyond % 16) << (beyond / 16 + 12 - 4);
}

template <class T>
LSMR_HD bool fits_fp32(T value) {
    return static_cast<T>(static_cast<float>(value)) == value;
}
// bf16 is the upper half of fp32.
template <class T>
LSMR_HD bool fits_bf16(T value) {
    const float narrow = static_cast<float>(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &narrow, sizeof(bits));
    return static_cast<T>(narrow) == value && (bits & 0xffffu) == 0;
}

// Samples: `count` of `total` things, thing sample_at(s, ...) for s < count.
inline constexpr std::int64_t kRun = 32;  // entries: what a warp gathers at once
LSMR_HD inline std::int64_t sample_count(std::int64_t total, std::int64_t most) { return total < most ? total : most; }
LSMR_HD inline std::int64_t sample_at(std::int64_t sample, std::int64_t count, std::int64_t total) { return sample * total / count; }

// Whole runs of kRun entries; one shorter run where there are fewer entries.
LSMR_HD inline std::int64_t run_total(std::int64_t nnz) { return nnz >= kRun ? nnz / kRun : (nnz > 0 ? 1 : 0); }
LSMR_HD inline std::int64_t run_samples(std::int64_t nnz) { return sample_count(run_total(nnz), 8192); }
LSMR_HD inline std::int64_t diagonal_row_samples(std::int64_t rows) { return sample_count(rows, 8192); }
// Rows that have one before: 1, 2, ..., rows - 1.
LSMR_HD inline std::int64_t similarity_total(std::int64_t rows) { return rows > 1 ? rows - 1 : 0; }
LSMR_HD inline std::int64_t similarity_samples(std::int64_t rows) { return sample_count(similarity_total(rows), 4096); }
LSMR_HD inline std::int64_t block_row_total(std::int64_t rows, BlockShape shape) { return (rows + shape.rows - 1) / shape.rows; }
LSMR_HD inline std::int64_t block_row_samples(std::int64_t rows, BlockShape shape) { return sample_count(block_row_total(rows, shape), 1024); }

// The first place in [begin, end) whose column is at least `column`, or end.
LSMR_HD inline std::int64_t first_at_least(const std::int32_t* columns, std::int64_t begin, std::int64_t end, std::int64_t column) {
    while (begin < end) {
        const std::int64_t middle = begin + (end - begin) / 2;
        if (columns[middle] < column) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

struct SampleCount {
    Count of = 0;
    Count found = 0;
};

// One lane's part of a sampled row (`lanes` lanes share its first 256 entries): entries with one in the row before at most one column away.
template <class Offset>
LSMR_HD SampleCount count_similar(std::int64_t row, const Offset* offsets, const std::int32_t* columns, int lane, int lanes) {
    constexpr std::int64_t kMost = 256;
    const auto before = static_cast<std::int64_t>(offsets[row - 1]);
    const auto begin = static_cast<std::int64_t>(offsets[row]);
    const auto row_end = static_cast<std::int64_t>(offsets[row + 1]);
    const std::int64_t end = row_end - begin < kMost ? row_end : begin + kMost;
    SampleCount count;
    for (std::int64_t k = begin + lane; k < end; k += lanes) {
        const auto column = static_cast<std::int64_t>(columns[k]);
        const std::int64_t near = first_at_least(columns, before, begin, column - 1);
        ++count.of;
        if (near < begin && columns[near] <= column + 1) ++count.found;
    }
    return count;
}

// One lane's part of a sampled block row: entries, and blocks that hold one. Of a row with more than 4,096 / r entries only the first columns
// count, for all rows of the block row the same ones, so that the cost is bounded.
template <class Offset>
LSMR_HD SampleCount count_blocks(BlockShape shape, std::int64_t block_row, std::int64_t rows, const Offset* offsets,
                                 const std::int32_t* columns, int lane, int lanes) {
    const std::int64_t most = 4096 / shape.rows;
    const std::int64_t first = block_row * shape.rows;
    const std::int64_t last = first + shape.rows < rows ? first + shape.rows : rows;
    std::int64_t window = std::int64_t{1} << 31;  // columns below it count; a multiple of shape.cols, or beyond all columns
    for (std::int64_t row = first; row < last; ++row) {
        const auto begin = static_cast<std::int64_t>(offsets[row]);
        if (static_cast<std::int64_t>(offsets[row + 1]) - begin <= most) continue;
        const std::int64_t bound = (static_cast<std::int64_t>(columns[begin + most]) / shape.cols + 1) * shape.cols;
        window = bound < window ? bound : window;
    }
    // Entries of a sorted row below the window: at most so many, since the entry at `most` lies in its last block column or beyond.
    const auto bounded_end = [&](std::int64_t row) {
        const std::int64_t end = static_cast<std::int64_t>(offsets[row]) + most + shape.cols;
        const auto row_end = static_cast<std::int64_t>(offsets[row + 1]);
        return row_end < end ? row_end : end;
    };
    SampleCount count;
    for (std::int64_t row = first; row < last; ++row) {
        const auto begin = static_cast<std::int64_t>(offsets[row]);
        const std::int64_t end = first_at_least(columns, begin, bounded_end(row), window);
        for (std::int64_t k = begin + lane; k < end; k += lanes) {
            ++count.of;
            const std::int32_t block = columns[k] / shape.cols;
            bool seen = k > begin && columns[k - 1] / shape.cols == block;
            for (std::int64_t above = row - 1; above >= first && !seen; --above) {
                const std::int64_t above_end = bounded_end(above);
                const std::int64_t at = first_at_least(columns, static_cast<std::int64_t>(offsets[above]), above_end,
                                                       static_cast<std::int64_t>(block) * shape.cols);
                seen = at < above_end && columns[at] / shape.cols == block;
            }
            if (!seen) ++count.found;
        }
    }
    return count;
}

// Of a sampled row the first 1,024 entries tell their diagonals.
LSMR_HD inline std::int64_t diagonal_end(std::int64_t begin, std::int64_t end) { return end - begin < 1024 ? end : begin + 1024; }
// The diagonal column - row, above -2^31, as a number that is never 0: 2^31 more.
LSMR_HD inline std::uint32_t diagonal_key(std::int32_t column, std::int64_t row) {
    return static_cast<std::uint32_t>(column - row + (std::int64_t{1} << 31));
}
LSMR_HD inline std::uint32_t diagonal_slot(std::uint32_t key) { return key * 2654435761u >> 22; }
LSMR_HD inline std::uint32_t next_diagonal_slot(std::uint32_t slot) { return (slot + 1) % kDiagonalTable; }

}  // namespace lsmr::detail
