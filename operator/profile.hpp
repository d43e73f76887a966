// The profile of a matrix: what its shape and values say about formats and kernels. Plain data, the same on the host and on the device
// (operator/cuda/profile.hpp), for any number of threads.
#pragma once

#include <array>
#include <cstdint>

#include "operator/csr_matrix.hpp"

namespace lsmr {

// Row lengths by powers of two: bin 0 counts rows of length 0, bin 1 of length 1, bin b of lengths in (2^(b-2), 2^(b-1)].
inline constexpr int kLengthHistogramBins = 33;

// How full dense blocks would be: entries over stored places, where every r x c block (aligned, the last ones padded) that holds an entry is
// stored. 0: not known (no entries, or columns that are not sorted).
struct BlockFill {
    std::int32_t rows = 0;
    std::int32_t cols = 0;
    double fill = 0;
    bool operator==(const BlockFill&) const = default;
};
inline constexpr int kBlockShapes = 10;

// Diagonals are counted up to here; kDiagonalCap + 1 stands for more.
inline constexpr std::int64_t kDiagonalCap = 256;

// Columns minus a base column fit in 16 bits where a span is at most this.
inline constexpr std::int64_t kNarrowSpan = 65536;

// One stored orientation: the rows of CSR(A), or of CSR(A^T), which are the columns of A. Everything is counted over all rows and entries
// but what is marked as sampled: that is over rows or runs at fixed, evenly spaced places.
struct OrientationProfile {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;

    // Row lengths. A quantile is the least length that so many rows do not exceed; exact up to 4,096, beyond at most 1/16 too large.
    double average = 0;
    std::int64_t p95 = 0;
    std::int64_t p99 = 0;
    std::int64_t longest = 0;
    double variation = 0;  // standard deviation over average
    std::int64_t empty_rows = 0;
    std::array<std::int64_t, kLengthHistogramBins> length_histogram{};

    // Entries that padded formats store. HYB: the first hyb_width entries of each row in ELL (the width where one more column of ELL costs more
    // than what it takes off COO, in fp64: 12 rows against 16 longer rows; at most 4,096), the rest in COO.
    std::int64_t sell32_entries = 0;         // slices of 32 rows, as long as their longest row, rows in the given order
    std::int64_t sell32_sorted_entries = 0;  // the same, rows sorted by length; lengths beyond 4,096 as for quantiles
    std::int64_t hyb_width = 0;
    std::int64_t hyb_rest = 0;       // entries in COO
    std::int64_t hyb_rest_rows = 0;  // rows with entries there

    bool sorted_columns = true;   // ascending (or equal) within every row
    std::int64_t duplicates = 0;  // entries whose column equals that of the entry before, in the same row

    // Column spans, last - first + 1, of single rows and of aligned runs of 32 and 256 rows: the widest one, and the share of entries that lie in
    // runs whose span is at most kNarrowSpan. A kernel that keeps one base column for each run of rows can store 16-bit columns exactly
    // where the widest span of such runs is at most kNarrowSpan. Where columns are not sorted, every span counts as cols.
    std::int64_t row_span = 0;
    std::int64_t span32 = 0;
    std::int64_t span256 = 0;
    double narrow_rows = 0;
    double narrow32 = 0;
    double narrow256 = 0;

    std::array<BlockFill, kBlockShapes> blocks{};  // sampled: 1,024 block rows a shape, of a long one the first columns

    // Diagonals that hold an entry, at most kDiagonalCap + 1. Sampled: those of 8,192 rows, of a long one the first 1,024 entries; and at least
    // the length of the longest row (its columns differ). A lower bound, exact up to 8,192 rows: a conversion to DIA must count again.
    std::int64_t diagonals = 0;
    double diagonal_fill = 0;  // nnz over rows x diagonals, so an upper bound; 0 beyond the cap

    // Locality of the gathers from x. A sector is 32 bytes: 4 neighbouring columns in fp64, 8 in fp32.
    double neighbour = 0;     // share of entries whose right neighbour in the row is the next column
    double sectors_fp64 = 0;  // sampled: distinct sectors an entry, in aligned runs of 32 consecutive entries; 1: every gather has its own
    double sectors_fp32 = 0;
    double similarity = 0;    // sampled: share of entries with an entry in the row before at most one column away

    // Values: all of them exactly representable, all of them equal. True where there are none.
    bool exact_fp32 = true;
    bool exact_bf16 = true;
    bool constant = true;

    bool operator==(const OrientationProfile&) const = default;
};

struct MatrixProfile {
    OrientationProfile a;
    OrientationProfile at;  // of A^T
    bool operator==(const MatrixProfile&) const = default;
};

// On the host, with all of OpenMP's threads.
OrientationProfile profile_orientation(const CsrMatrix& stored);
// Both orientations; `at` is CSR of A^T, and made where it is not given.
MatrixProfile profile(const CsrMatrix& a, const CsrMatrix& at);
MatrixProfile profile(const CsrMatrix& a);

}  // namespace lsmr
