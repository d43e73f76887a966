// How the formats lay out the rows of a matrix: from its shape alone, the same for the host and the device. Offsets are those of CSR, of 32
// or 64 bits, rows + 1 of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr {

// Padded formats keep slices of so many neighbouring rows, column by column: a warp reads a column of a slice at once.
inline constexpr std::int64_t kSliceRows = 32;
inline std::int64_t slices_of(std::int64_t rows) { return (rows + kSliceRows - 1) / kSliceRows; }

// A padded format is refused where it stores more places an entry than this, unless there are few of them in all.
inline constexpr std::int64_t kMostPlacesPerEntry = 4;
inline constexpr std::int64_t kFreePlaces = std::int64_t{1} << 16;
// Throws InputError that names both counts and the longest row.
void check_padding(const SpmvChoice& choice, std::int64_t places, std::int64_t nnz, std::int64_t longest_row);

// SELL-32-sigma. Place p holds row order(p); its entry k is number 32 (offsets[p / 32] + k) + p % 32.
struct SellPlan {
    std::int64_t rows = 0;
    int sigma = 1;
    std::vector<std::uint32_t> offsets;  // of each slice and of the end, in columns
    HostBuffer<std::uint16_t> order;     // row of each place, from the first row of its window of sigma; empty: rows keep their order
    std::int64_t slices() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
    std::int64_t places() const { return kSliceRows * static_cast<std::int64_t>(offsets.back()); }
    std::int64_t row_of(std::int64_t place) const {
        return order.empty() ? place : place / sigma * sigma + order[place];
    }
};
// Windows whose places do not become fewer keep their order. Throws InputError where there are more columns than 32 bits count.
template <class Offset>
SellPlan make_sell_plan(std::int64_t rows, const Offset* offsets, int sigma);

template <class Offset>
std::int64_t longest_row(std::int64_t rows, const Offset* offsets);
// Rows of more entries than that, ascending.
template <class Offset>
std::vector<std::int32_t> rows_longer_than(std::int64_t length, std::int64_t rows, const Offset* offsets);

// The ELL part of HYB: the least width that `quantile` % of the rows do not exceed; or, for 0, the largest that a third of the rows fills.
template <class Offset>
std::int64_t hyb_width(std::int64_t rows, const Offset* offsets, int quantile);
// "12, what 95 % of the rows need", "12, what a third of the rows fills".
std::string hyb_width_words(std::int64_t width, int quantile);

// Where the entries of each row beyond the first `width` begin, counted from the first of them all; rows + 1 values.
template <class Offset>
std::vector<std::int64_t> rest_offsets(std::int64_t rows, const Offset* offsets, std::int64_t width);

}  // namespace lsmr
