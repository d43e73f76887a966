// Orders of rows and columns. Least squares permits any: P_r A P_c^T with P_r b has the solution P_c x, and in exact arithmetic the same
// iterates. An order that brings rows with common columns together makes the gathers of both products local.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/host_device.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/order_choice.hpp"

namespace lsmr {

// Where an entry is from: new row i is the old row row[i], new column j the old column col[j]. Empty: as given.
struct MatrixOrder {
    OrderKind kind = OrderKind::none;
    std::vector<std::int32_t> row;
    std::vector<std::int32_t> col;
    std::uint64_t hash() const;  // of both
};

// The old index of new position i; lines beyond an order's end, as those of rows stacked below, stay where they are.
inline std::int64_t source(const std::vector<std::int32_t>& order, std::int64_t i) {
    const auto place = static_cast<std::size_t>(i);
    return place < order.size() ? order[place] : i;
}
// One value for each line, in this order.
std::vector<double> ordered(const std::vector<std::int32_t>& order, std::span<const double> values);

// old -> new; empty where `order` is.
std::vector<std::int32_t> inverse_order(const std::vector<std::int32_t>& order);
// P_r A P_c^T, columns ascending within rows. A row or column order of another length than A: InputError.
CsrMatrix permuted(const CsrMatrix& a, const std::vector<std::int32_t>& row, const std::vector<std::int32_t>& col);

// An order of this kind (not automatic, not none), on the host with all of OpenMP's threads; the same for any number of them.
// transposed: CSR of A^T. Where the structure is symmetric, columns are in the order of the rows, so that A stays symmetric for CG.
MatrixOrder make_order(OrderKind kind, const CsrMatrix& a, const CsrMatrix& transposed);

// The shape of a stored orientation, for vectors of value_bytes; on the host.
GatherShape gather_shape(const CsrMatrix& stored, int value_bytes);

namespace detail {

// Windows of entries in all, and those that are sampled.
LSMR_HD inline std::int64_t locality_windows(std::int64_t nnz) { return (nnz + kLocalityWindow - 1) / kLocalityWindow; }
LSMR_HD inline std::int64_t locality_samples(std::int64_t nnz) {
    const std::int64_t windows = locality_windows(nnz);
    return windows < kLocalityWindows ? windows : kLocalityWindows;
}
// Of the sampled windows; whole numbers, so that any order of adding gives them.
struct LocalityCounts {
    unsigned long long entries = 0;
    unsigned long long run_sectors = 0;
    unsigned long long window_sectors = 0;
};
GatherShape make_shape(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const LocalityCounts& counts);

// The spectral order, once for the host and the device (operator/cuda/order.cu). Rows and columns get points in R^7 by averaging: a row lies at the mean
// of its columns, a column at the mean of its rows, and after each round the points of the columns are made orthonormal, and orthogonal to
// the constant, in the inner product that weights columns by their entries. That is subspace iteration for the leading singular vectors of
// D_r^(-1/2) |pattern| D_c^(-1/2). A line that does not count has the point 0, so that sums of the constant count the others. Then each coordinate is replaced by its rank among all rows and columns, the bits of the ranks are interleaved (Morton
// order), and rows and columns are sorted. I. Dhillon, "Co-clustering documents and words using bipartite spectral graph partitioning", KDD 2001.
inline constexpr int kPoint = 8;        // floats of a point, 32 bytes: one sector; the first is the constant
inline constexpr int kRounds = 20;
inline constexpr int kRankBits = 9;     // of each of the seven coordinates
// Longer rows and columns than this, and than 16 times the average, tell nothing of neighbours and are left out; they come last.
inline constexpr std::int64_t kLongest = std::int64_t{1} << 17;
inline std::int64_t longest_of_order(std::int64_t rows, std::int64_t nnz) {
    const std::int64_t bound = rows > 0 ? 16 * (nnz / rows) : 0;
    return bound > kLongest ? bound : kLongest;
}

// The start: coordinate c of column j, in (-1, 1).
LSMR_HD inline float start_point(std::int64_t column, int c) {
    if (c == 0) return 1.0F;
    std::uint64_t z = static_cast<std::uint64_t>(column) * kPoint + static_cast<std::uint64_t>(c);  // splitmix64
    z = (z + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    z ^= z >> 31;
    return static_cast<float>(static_cast<std::int32_t>(z >> 32)) * 0x1p-31F;
}

// From the Gram matrix (kPoint x kPoint, row-major) of points: X <- X T makes coordinates orthogonal and as long as the constant one, which stays
// 1. T is upper triangular, row-major. Coordinates that depend on those before become zero. growth: the mean length, over that of the
// constant, of the directions beside it: by how much a round shortened them.
void orthonormalising(const double* gram, float* t, double* growth);

// Whether points that a round shortens by this growth, after kTrialRounds rounds, are those of a random matrix with as many entries: its singular values
// beside the first lie near 1/sqrt(entries a row) + 1/sqrt(entries a column) or below. An order would not make gathers local.
inline constexpr int kTrialRounds = 4;
bool lacks_structure(double growth, std::int64_t rows, std::int64_t cols, std::int64_t nnz);

LSMR_HD inline std::uint64_t morton_key(const std::uint32_t* ranks) {  // of kPoint - 1 ranks
    std::uint64_t key = 0;
    for (int bit = kRankBits - 1; bit >= 0; --bit) {
        for (int c = 0; c < kPoint - 1; ++c) key = key << 1 | (ranks[c] >> bit & 1U);
    }
    return key;
}
// A rank below count in kRankBits bits.
LSMR_HD inline std::uint32_t short_rank(std::int64_t rank, std::int64_t count) {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(rank) << kRankBits) / static_cast<std::uint64_t>(count));
}

// Keys of a row for the row orders.
LSMR_HD inline std::uint64_t row_key(OrderKind kind, const std::int32_t* columns, std::int64_t length) {
    constexpr std::uint64_t kLast = ~std::uint64_t{0};
    switch (kind) {
        case OrderKind::length: return kLast - static_cast<std::uint64_t>(length);  // longest first
        case OrderKind::first:
            if (length == 0) return kLast;
            return static_cast<std::uint64_t>(columns[0]) << 32 | static_cast<std::uint64_t>(columns[length > 1 ? 1 : 0]);
        default: return length == 0 ? kLast : static_cast<std::uint64_t>(columns[length / 2]);  // median
    }
}

}  // namespace detail
}  // namespace lsmr
