// The least bytes that one product y <- a A x + b y moves, by the format of A: a function of the profile alone; and the rates of random
// access that bound a product whose columns are scattered.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/profile.hpp"

namespace lsmr {

// Widths of the stored values (2: bf16, 4: fp32, 8: fp64) and of x and y (4 or 8).
struct ProductWidths {
    int value_bytes = 8;
    int vector_bytes = 8;
};

// Bytes, as doubles: padded and dense accounts may exceed 63 bits.
struct ByteAccount {
    double values = 0;
    double indices = 0;  // columns, offsets, permutations
    double vectors = 0;  // x read once, y read and written
    double matrix() const { return values + indices; }
    double total() const { return matrix() + vectors; }
    bool operator==(const ByteAccount&) const = default;
};

// m rows, n columns, k nonzeros, v bytes a value, w bytes of an element of x or y, 8 bytes an offset in place of 4 beyond
// kMaxNarrowEntries nonzeros.
// All contain w n + 2 w m for the vectors.
enum class ColumnWidth { bits16 = 2, bits32 = 4 };
// v k + 4 k + 4 (m + 1); with 16-bit columns v k + 2 k + 4 (m + 1) + 4 a run of 256 rows (its base column).
ByteAccount csr_bytes(const OrientationProfile& p, ProductWidths widths, ColumnWidth columns = ColumnWidth::bits32);
// (v + 8) k.
ByteAccount coo_bytes(const OrientationProfile& p, ProductWidths widths);
// (v + 4) m longest.
ByteAccount ell_bytes(const OrientationProfile& p, ProductWidths widths);
// (v + 4) m width + (v + 8) rest, and 2 w more for each row with a rest.
ByteAccount hyb_bytes(const OrientationProfile& p, ProductWidths widths);
// (v + 4) padded entries + 4 a slice; 4 m more for the permutation of sorted rows.
enum class RowOrder { given, by_length };
ByteAccount sell32_bytes(const OrientationProfile& p, ProductWidths widths, RowOrder order);
// With k / fill stored places: (v + 4 / (r c)) k / fill + 4 (m / r + 1). The fill must be known (> 0).
ByteAccount bsr_bytes(const OrientationProfile& p, ProductWidths widths, const BlockFill& block);
// v m diagonals + 4 diagonals. At most kDiagonalCap diagonals.
ByteAccount dia_bytes(const OrientationProfile& p, ProductWidths widths);
// v m n.
ByteAccount dense_bytes(const OrientationProfile& p, ProductWidths widths);

// The account of every format; no bytes, but the reason, where a format cannot hold the matrix.
struct FormatBytes {
    std::string format;  // "CSR", "BSR 3x3"
    std::optional<ByteAccount> bytes;
    std::string note;  // fill, width, or why there are no bytes
};
std::vector<FormatBytes> format_bytes(const OrientationProfile& p, ProductWidths widths);

// Measured on one H200 (60 MB of L2) with 2^27 random indices; between the sizes measured, interpolated in the logarithm of the size.
// footprint_bytes: of the vector that is accessed.
double h200_gathers_per_second(double footprint_bytes);
double h200_atomics_per_second(double footprint_bytes);
inline constexpr double kH200HotAtomicsPerSecond = 0.57e9;  // all on one address
inline constexpr double kH200CopyBytesPerSecond = 4.234e12;  // device to device, read and written

// Sectors of x that a product fetches from beyond the first-level cache: k, times the distinct ones of 32 neighbouring entries, without those
// that the row before has fetched.
double sector_fetches(const OrientationProfile& p, int vector_bytes);
// The time that these take at least on an H200.
double h200_sector_seconds(const OrientationProfile& p, int vector_bytes);

}  // namespace lsmr
