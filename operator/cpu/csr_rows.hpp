// The inner loops of the CSR products, one a set of instructions: y <- a A x + b y for a block of neighbouring rows.
//
// Bits: a set of instructions fixes how many partial sums a row has and in which order they are added, and whether a product and a sum
// are rounded once or twice. Results of two sets differ by rounding, within the usual bound; on one set the bits depend on the matrix
// alone, narrowed or not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "operator/formats/row_plans.hpp"
#include "operator/pairwise_sum.hpp"

namespace lsmr::cpu {

// Longer rows are added by halves of whole steps, so that rounding does not grow with their length. A step: what a kernel takes at once.
inline constexpr std::int64_t kRowSteps = 16;
inline constexpr std::int64_t half_of_row(std::int64_t length, std::int64_t step) { return (length / step + 1) / 2 * step; }

// One core has too few loads in flight to use the memory's bandwidth, however wide they are: kernels ask for the entries of later rows
// this many bytes ahead, beyond what the hardware's own prefetcher does.
inline constexpr std::int64_t kPrefetchBytes = 2048;
// Inlined in any case: GCC takes a function that does nothing else for one without effects, and drops its calls.
[[gnu::always_inline]] inline void prefetch_ahead(const void* p) { __builtin_prefetch(static_cast<const char*>(p) + kPrefetchBytes); }

// An element of x beside that of z = A^T y, where one pass over A gives both products: they are used one after the other, and share a cache line.
template <class T>
struct Pair {
    T x;
    T z;
};
inline double element(double x) { return x; }
inline float element(float x) { return x; }
template <class T>
T element(const Pair<T>& pair) {
    return pair.x;
}

// Four sums, so that the additions of a row do not wait for each other; combined in a fixed order.
template <class V, class C, class X, class T = decltype(element(std::declval<X>()))>
[[gnu::always_inline]] inline T short_row_product(const V* values, const C* columns, std::int64_t length, const X* x) {
    T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    std::int64_t k = 0;
    for (; k + 4 <= length; k += 4) {
        prefetch_ahead(values + k);
        prefetch_ahead(columns + k);
        s0 += values[k] * element(x[columns[k]]);
        s1 += values[k + 1] * element(x[columns[k + 1]]);
        s2 += values[k + 2] * element(x[columns[k + 2]]);
        s3 += values[k + 3] * element(x[columns[k + 3]]);
    }
    for (; k < length; ++k) s0 += values[k] * element(x[columns[k]]);
    return (s0 + s1) + (s2 + s3);
}
// Long rows by pieces that are added two by two, and so their sums. No recursion, which could not be inlined to the end: what is left out would not be
// compiled for the caller's instructions.
template <class V, class C, class X, class T = decltype(element(std::declval<X>()))>
[[gnu::always_inline]] inline T row_product(const V* values, const C* columns, std::int64_t length, const X* x) {
    constexpr std::int64_t kPiece = 4 * kRowSteps;
    if (length <= kPiece) return short_row_product(values, columns, length, x);
    T sums[32];  // of 2^level pieces each; no row has more than 2^31 entries
    int levels = 0;
    std::uint64_t pieces = 0;
    for (std::int64_t k = 0; k < length; k += kPiece, ++pieces) {
        sums[levels++] = short_row_product(values + k, columns + k, std::min(kPiece, length - k), x);
        for (std::uint64_t full = pieces; (full & 1) != 0; full >>= 1, --levels) sums[levels - 2] += sums[levels - 1];
    }
    for (; levels > 1; --levels) sums[levels - 2] += sums[levels - 1];
    return sums[0];
}

enum class InstructionSet { portable, avx2, avx512 };
const char* name(InstructionSet set);
// Of those that this CPU has, the one with the fastest kernels for T; found out once.
template <class T>
InstructionSet best_instruction_set();

// Row i of a block holds the entries [offsets[i], offsets[i + 1]) - offsets[0] of columns and values; columns count from the block's
// first column. After the last of them kPadding more 16-bit columns may be read. V is T, or narrower where nothing is lost.
template <class T, class V, class C>
struct RowBlock {
    std::int64_t rows = 0;
    const std::int64_t* offsets = nullptr;
    const C* columns = nullptr;
    const V* values = nullptr;
};
inline constexpr std::int64_t kPadding = 8;

// y <- a A x + b y, where y is not read if b is 0; returns ||y||^2. x starts at the block's first column, y at its first row.
template <class T, class V, class C>
double rows_portable(const RowBlock<T, V, C>& block, T a, const T* x, T b, T* y);
template <class T, class V, class C>
double rows_avx2(const RowBlock<T, V, C>& block, T a, const T* x, T b, T* y);
template <class V, class C>
double rows_avx512(const RowBlock<double, V, C>& block, double a, const double* x, double b, double* y);

// One of these; set is at most best_instruction_set<T>().
template <class T, class V, class C>
using RowsKernel = double (*)(const RowBlock<T, V, C>& block, T a, const T* x, T b, T* y);
template <class T, class V, class C>
RowsKernel<T, V, C> rows_kernel(InstructionSet set);

// Rows in slices: kSlicedRows at once, a row a lane, where rows of a window are sorted by length so that those of a slice have few padded places. No lane
// of a gather is idle, as it is at the end of each row, and no sum over lanes is formed. Slice s of a block has (offsets[s + 1] - offsets[s]) / kSlicedRows
// places a row, stored place by place; a place without an entry has the column kNoColumn and multiplies nothing.
inline constexpr std::int64_t kSlicedRows = 8;
inline constexpr std::int64_t kWindowRows = 512;  // whose sums stay in the first-level cache
template <class C>
inline constexpr C kNoColumn = C(-1);
template <class T, class V, class C>
struct SlicedBlock {
    std::int64_t rows = 0;
    const std::int64_t* offsets = nullptr;  // of its slices, into the whole matrix; columns and values are those of the block
    const std::uint16_t* order = nullptr;   // row of each lane, from the first row of its window; kWindowRows for lanes without one
    const C* columns = nullptr;
    const V* values = nullptr;
};
// y <- a A x + b y and ||y||^2, as a RowsKernel has them.
template <class T, class V, class C>
using SlicedKernel = double (*)(const SlicedBlock<T, V, C>& block, T a, const T* x, T b, T* y);
template <class T, class V, class C>
double sliced_portable(const SlicedBlock<T, V, C>& block, T a, const T* x, T b, T* y);
template <class T, class V, class C>
double sliced_avx2(const SlicedBlock<T, V, C>& block, T a, const T* x, T b, T* y);
template <class V, class C>
double sliced_avx512(const SlicedBlock<double, V, C>& block, double a, const double* x, double b, double* y);
template <class T, class V, class C>
SlicedKernel<T, V, C> sliced_kernel(InstructionSet set);

// z <- z + A^T y, entry by entry in their order.
template <class T, class V, class C>
inline void add_adjoint(const RowBlock<T, V, C>& block, const T* y, Pair<T>* pairs) {
    const std::int64_t first = block.offsets[0];
    for (std::int64_t i = 0; i < block.rows; ++i) {
        const T yi = y[i];
        std::int64_t k = block.offsets[i] - first;
        const std::int64_t end = block.offsets[i + 1] - first;
        for (; k + 2 <= end; k += 2) {  // two columns of a row are never the same
            Pair<T>& p = pairs[block.columns[k]];
            Pair<T>& q = pairs[block.columns[k + 1]];
            const T zp = p.z + static_cast<T>(block.values[k]) * yi;
            const T zq = q.z + static_cast<T>(block.values[k + 1]) * yi;
            p.z = zp;
            q.z = zq;
        }
        if (k < end) pairs[block.columns[k]].z += static_cast<T>(block.values[k]) * yi;
    }
}
// y <- product + b y of a row, whose old y is not read if b is 0; returns its square.
template <class T>
[[gnu::always_inline]] inline double finish_row(T product, T b, T* y) {
    *y = b != T(0) ? product + b * *y : product;
    return static_cast<double>(*y) * static_cast<double>(*y);
}

// y <- a A x + b y, and z <- z + A^T y, two rows at a time, so that one's gathers run beside the other's sums; returns ||y||^2.
template <class T, class V, class C>
inline double rows_and_adjoint(const RowBlock<T, V, C>& block, T a, Pair<T>* pairs, T b, T* y) {
    double squares = 0;
    for (std::int64_t i = 0; i < block.rows; i += 2) {
        const std::int64_t end = std::min(block.rows, i + 2);
        for (std::int64_t r = i; r < end; ++r) {
            const std::int64_t k = block.offsets[r] - block.offsets[0];
            const T product = a * row_product(block.values + k, block.columns + k, block.offsets[r + 1] - block.offsets[r], pairs);
            squares += finish_row(product, b, y + r);
        }
        const std::int64_t k = block.offsets[i] - block.offsets[0];
        add_adjoint(RowBlock<T, V, C>{end - i, block.offsets + i, block.columns + k, block.values + k}, y + i, pairs);
    }
    return squares;
}
// Both, compiled for a set of instructions.
template <class T, class V, class C>
struct OnePassKernels {
    double (*rows_and_adjoint)(const RowBlock<T, V, C>& block, T a, Pair<T>* pairs, T b, T* y);
    void (*add_adjoint)(const RowBlock<T, V, C>& block, const T* y, Pair<T>* pairs);
};
template <class T, class V, class C>
OnePassKernels<T, V, C> one_pass_portable();
template <class T, class V, class C>
OnePassKernels<T, V, C> one_pass_avx2();
template <class T, class V, class C>
OnePassKernels<T, V, C> one_pass_kernels(InstructionSet set);

// Rows in groups: one or two neighbouring rows of the same columns. As far as columns follow one another, x and z = A^T y are read and written in
// vectors, without gathers, and a column is stored once for such a run and for both rows. A group is a word, then one for each of its runs.
inline constexpr std::int64_t kGroupRows = 2;
inline constexpr std::int64_t kLongestGrouped = 512;                       // row, entries
inline constexpr std::int64_t kMostGroupedColumns = std::int64_t{1} << 29;  // of the matrix; a run has its first column above and its length below
struct Group {
    std::int64_t rows;
    std::int64_t runs;
    std::int64_t length;  // of a row
};
inline constexpr std::uint32_t group_word(Group group) {
    return static_cast<std::uint32_t>(group.length << 11 | group.runs << 1 | (group.rows - 1));
}
inline constexpr Group group_of(std::uint32_t word) { return {1 + (word & 1), word >> 1 & 1023, word >> 11}; }
inline constexpr std::uint32_t run_word(std::int64_t column, std::int64_t length) { return static_cast<std::uint32_t>(column << 3 | (length - 1)); }
inline constexpr std::uint32_t column_of_run(std::uint32_t word) { return word >> 3; }
inline constexpr std::int64_t length_of_run(std::uint32_t word) { return 1 + (word & 7); }
// Neighbouring groups, with the values of their rows as CSR has them. z has kGroupPadding more than the columns, which are read and written as they are.
template <class V>
struct GroupBlock {
    std::int64_t rows = 0;
    const std::uint32_t* words = nullptr;
    const V* values = nullptr;
};
inline constexpr std::int64_t kGroupPadding = 8;
// As OnePassKernels.
template <class T, class V>
struct GroupKernels {
    double (*rows_and_adjoint)(const GroupBlock<V>& block, T a, const T* x, T b, T* y, T* z);
    void (*add_adjoint)(const GroupBlock<V>& block, const T* y, T* z);
    std::int64_t longest_run;  // that they take
};
template <class T, class V>
GroupKernels<T, V> group_portable();
template <class T, class V>
GroupKernels<T, V> group_avx2();
template <class V>
GroupKernels<double, V> group_avx512();
template <class T, class V>
GroupKernels<T, V> group_kernels(InstructionSet set);

// Entries of a tile: a place has the row above and the column in kTileColumnBits below.
inline constexpr int kTileColumnBits = 16;
template <class T, class V>
struct TileKernels {
    void (*add)(const std::uint32_t* places, const V* values, std::int64_t count, const T* x, T* sums);  // sums <- sums + A x
    double (*finish)(std::int64_t count, T a, const T* sums, T b, T* y);                                 // y <- a sums + b y; returns ||y||^2
};
template <class T, class V>
[[gnu::always_inline]] inline void add_tile(const std::uint32_t* places, const V* values, std::int64_t count, const T* x, T* sums) {
    const auto add = [&](std::int64_t k) {
        constexpr std::uint32_t kColumn = (std::uint32_t{1} << kTileColumnBits) - 1;
        sums[places[k] >> kTileColumnBits] += static_cast<T>(values[k]) * x[places[k] & kColumn];
    };
    std::int64_t k = 0;
    for (; k + 8 <= count; k += 8) {
        prefetch_ahead(places + k);
        prefetch_ahead(values + k);
        for (std::int64_t i = 0; i < 8; ++i) add(k + i);
    }
    for (; k < count; ++k) add(k);
}
template <class T>
[[gnu::always_inline]] inline double finish_sums(std::int64_t count, T a, const T* sums, T b, T* y) {
    constexpr std::int64_t kBlock = 32, kLanes = 8;
    PairwiseSum total;
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
        const std::int64_t end = std::min(count, begin + kBlock);
        for (std::int64_t i = begin; i < end; ++i) y[i] = b != T(0) ? a * sums[i] + b * y[i] : a * sums[i];
        double squares[kLanes] = {};
        for (std::int64_t i = begin; i < end; ++i) squares[i % kLanes] += static_cast<double>(y[i]) * static_cast<double>(y[i]);
        total.add(((squares[0] + squares[1]) + (squares[2] + squares[3])) + ((squares[4] + squares[5]) + (squares[6] + squares[7])));
    }
    return total.value();
}
template <class T, class V>
TileKernels<T, V> tile_portable();
template <class T, class V>
TileKernels<T, V> tile_avx2();
template <class T, class V>
TileKernels<T, V> tile_kernels(InstructionSet set);

// 32 neighbouring rows that are stored padded, column by column: row i holds values[i + k step], columns[i + k step] for k < width; a negative
// column is padding, which multiplies nothing.
template <class T>
struct PaddedSlice {
    const T* values = nullptr;
    const std::int32_t* columns = nullptr;
    std::int64_t step = kSliceRows;
    std::int64_t width = 0;
    PaddedSlice columns_from(std::int64_t first, std::int64_t end) const { return {values + first * step, columns + first * step, step, end - first}; }
};
// sums[i] <- row i times x, of 32 rows. The order of the additions is the same on every set: that of the columns, by halves of wide slices.
template <class T>
void slice_portable(const PaddedSlice<T>& slice, const T* x, T* sums);
template <class T>
void slice_avx2(const PaddedSlice<T>& slice, const T* x, T* sums);
void slice_avx512(const PaddedSlice<double>& slice, const double* x, double* sums);
template <class T>
using SliceKernel = void (*)(const PaddedSlice<T>& slice, const T* x, T* sums);
template <class T>
SliceKernel<T> slice_kernel(InstructionSet set);

// The types that products are made for: T, V; T, V, C.
#define LSMR_TILE_TYPES(INSTANTIATE) \
    INSTANTIATE(double, double)      \
    INSTANTIATE(double, float)       \
    INSTANTIATE(float, float)
#define LSMR_ROW_TYPES_FP64(INSTANTIATE)        \
    INSTANTIATE(double, double, std::int32_t)   \
    INSTANTIATE(double, double, std::uint16_t)  \
    INSTANTIATE(double, float, std::int32_t)    \
    INSTANTIATE(double, float, std::uint16_t)
#define LSMR_ROW_TYPES(INSTANTIATE)             \
    LSMR_ROW_TYPES_FP64(INSTANTIATE)            \
    INSTANTIATE(float, float, std::int32_t)     \
    INSTANTIATE(float, float, std::uint16_t)

}  // namespace lsmr::cpu
