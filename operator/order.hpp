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

// The spectral order, once for the host and the device (operator/cuda/order.cu). Rows and columns get points in R^7 by averaging: a row lies at the
// mean of its columns, a column at the mean of its rows, and after each round the points of the columns are made orthonormal, and orthogonal to
// the constant, in the inner product that weights columns by their entries. That is subspace iteration for the leading singular vectors of
// D_r^(-1/2) |pattern| D_c^(-1/2). From random points a round spreads them over its neighbours only, and a mesh needs as many rounds as it is
// wide, so the start is the answer of a coarser problem: columns and rows join groups around seeds, the groups of a sample of entries are the
// entries of the coarse matrix, and so on down to kCoarsest groups. A line that does not count has the point 0, so that sums of the constant count
// the others. Then columns, and rows, are cut in halves of equal size, again and again, each time across the coordinate that spreads widest.
// I. Dhillon, "Co-clustering documents and words using bipartite spectral graph partitioning", KDD 2001.
inline constexpr int kPoint = 8;  // floats of a point, 32 bytes: one sector; the first is the constant
inline constexpr int kRounds = 10;  // from the points of a coarser problem
inline constexpr int kFlatRounds = 20;  // from random points, where no coarser problem is much smaller
inline constexpr std::int64_t kCoarsest = 4096;  // columns of the coarsest problem, at most
// With more entries each column is a group of its own, so that a sample of the entries remains.
inline constexpr std::int64_t kCoarsestEntries = std::int64_t{1} << 19;
inline constexpr int kCoarsestRounds = 200;  // from random points
inline bool is_coarsest(std::int64_t cols, std::int64_t nnz) { return cols <= kCoarsest && nnz <= kCoarsestEntries; }
inline constexpr int kEntriesOfGroup = 48;  // of the coarse matrix, sampled; up to twice as many, where they are not a multiple
static_assert(2 * kEntriesOfGroup * kCoarsest <= kCoarsestEntries);
inline bool are_few_groups(std::int64_t groups, std::int64_t cols) { return groups > 0 && (cols <= kCoarsest || groups <= cols / 2); }
// Longer rows and columns than this, and than 16 times the average, tell nothing of neighbours and are left out; they come last.
inline constexpr std::int64_t kLongest = std::int64_t{1} << 17;
inline std::int64_t longest_of_order(std::int64_t rows, std::int64_t nnz) {
    const std::int64_t bound = rows > 0 ? 16 * (nnz / rows) : 0;
    return bound > kLongest ? bound : kLongest;
}

LSMR_HD inline std::uint64_t mixed(std::uint64_t z) {  // splitmix64
    z = (z + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}
// The start: coordinate c of column j, in (-1, 1).
LSMR_HD inline float start_point(std::int64_t column, int c) {
    if (c == 0) return 1.0F;
    const std::uint64_t z = mixed(static_cast<std::uint64_t>(column) * kPoint + static_cast<std::uint64_t>(c));
    return static_cast<float>(static_cast<std::int32_t>(z >> 32)) * 0x1p-31F;
}

// Groups. A label is the number of a seed, scrambled (one to one), so that the least of several is a fair choice. In each round one column of 64 becomes a
// seed, in the next of those without a label one of 32, and in the last every one; then rows take the least label of their columns and columns the
// least of their rows, where they have none.
inline constexpr std::uint32_t kNoLabel = ~std::uint32_t{0};
inline constexpr int kGroupRounds = 7;
inline int first_group_round(std::int64_t cols) { return cols <= kCoarsest ? kGroupRounds - 1 : 0; }
inline constexpr std::int64_t kLabelEntries = 512;  // of a longer row or column as many are asked
LSMR_HD inline constexpr std::uint32_t label_of(std::int32_t seed) {
    std::uint32_t z = static_cast<std::uint32_t>(seed) * 0x9e3779b1U;
    z ^= z >> 16;
    return z * 0x85ebca6bU;
}
LSMR_HD inline constexpr std::uint32_t seed_of(std::uint32_t label) {
    std::uint32_t z = label * 0xa5cb9243U;
    z ^= z >> 16;
    return z * 0x0e8b2f51U;
}
static_assert(seed_of(label_of(0)) == 0 && seed_of(label_of(1'234'567'890)) == 1'234'567'890 && seed_of(kNoLabel) > std::uint32_t{1} << 31);
LSMR_HD inline bool is_seed(std::int64_t column, int round) {
    return round + 1 >= kGroupRounds || mixed(static_cast<std::uint64_t>(column)) >> 38 < std::uint64_t{1} << (20 + round);
}
LSMR_HD inline std::int64_t label_step(std::int64_t length) { return (length + kLabelEntries - 1) / kLabelEntries; }
// The s-th sampled entry: one of each run of `step`, at a random place, since rows of equal length would show every step-th entry the same neighbour.
LSMR_HD inline std::int64_t sampled_entry(std::int64_t s, std::int64_t step, std::int64_t nnz) {
    const std::int64_t k = s * step + static_cast<std::int64_t>(mixed(static_cast<std::uint64_t>(s)) % static_cast<std::uint64_t>(step));
    return k < nnz ? k : nnz - 1;
}
inline std::int64_t sample_step(std::int64_t nnz, std::int64_t groups) {
    const std::int64_t step = groups > 0 ? nnz / (kEntriesOfGroup * groups) : 0;
    const std::int64_t least = 1 + (nnz >> 30);  // coarse matrices have 32-bit offsets
    return step > least ? step : least;
}

// From the Gram matrix (kPoint x kPoint, row-major, upper triangle) of points: X <- X T makes coordinates orthogonal and as long as the constant one, which
// stays 1, the longest before first. Directions that depend on others become zero coordinates, the last ones. lengths: of the kPoint - 1 directions
// beside the constant, over its own: by how much a round shortened them.
void orthonormalising(const double* gram, float* t, double* lengths);
double mean_length(const double* lengths);  // of those that are not 0

// Whether points that a round shortens by this mean length, after kTrialRounds rounds, are those of a random matrix with as many entries: its singular
// values beside the first lie near 1/sqrt(entries a row) + 1/sqrt(entries a column) or below. An order would not make gathers local.
inline constexpr int kTrialRounds = 3;
bool lacks_structure(double growth, std::int64_t rows, std::int64_t cols, std::int64_t nnz);

// Slow coordinates tell more of what is far: they weigh as in the commute time distance, 1/(1 - length) squared.
struct Weights {
    float of[kPoint];  // 1 of the constant
};
Weights coordinate_weights(const double* lengths);
// T <- diag(before)^-1 T diag(after), and for the Gram matrix of points with weights that of those without.
void take_weights(const Weights& before, double* gram);
void take_weights(const Weights& before, const Weights& after, float* t);

// Lines. Where rows reach far, as rays through cells do, the mean of a row says little of where its columns lie: means of means shorten all points, and what
// chance adds to the point of a column is as large as a row over the root of the column's entries. A line through the row's points says more: mean y and
// direction d of the widest spread, which is e = s d with s^2 its variance. A column then lies at the mean of its nearest points on its rows' lines,
// y + (e . (x - y)) / s^2 e. Points of straight rows stay where they are in such a round, so that coordinates that are no longer than before are
// curved or chance, and weigh little. Rows are told apart by y and e: 2 kPoint floats, with 1/s^2 in the place of the constant of e.
inline constexpr double kLongRows = 0.75;  // of the slowest direction: what a round leaves of it at most
inline constexpr int kLongRounds = 6;  // from the points of a coarser problem; more would leave chance as large
inline constexpr int kLineRounds = 1;
inline constexpr int kLineSteps = 2;  // of the power method for d, from the row's first and last point
inline constexpr int kLine = 2 * kPoint;
inline bool has_long_rows(const double* lengths) { return lengths[0] < kLongRows; }
// Whether so many rounds will do.
inline bool are_enough(int rounds, bool from_coarser, const double* lengths) {
    return rounds >= (from_coarser ? kLongRounds : kFlatRounds) && has_long_rows(lengths);
}

// Runs of kKeptRun columns as given stay together where they are within half of the scatter that columns have anywhere: what lies in a sector already is
// best left there, and the mean of a run is less noisy than a column's own point.
inline constexpr std::int64_t kKeptRun = 4;
inline constexpr double kRunScatter = 0.5;
// Pieces have a power of two of lines, but for the last one, so that the lines of one sector, and of one cache line, are those of one piece. All are cut
// in two, those of first_piece() lines at first, down to kPiece. Lines of one pattern stay in pairs and fours.
inline constexpr std::int64_t kPiece = 2;
inline constexpr std::int64_t kPieceSample = 512;  // lines of a piece that tell its widest coordinate
inline std::int64_t first_piece(std::int64_t lines) {
    std::int64_t size = kPiece;
    while (size < lines) size *= 2;
    return size;
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
