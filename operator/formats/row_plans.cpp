#include "operator/formats/row_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "memory/error.hpp"

namespace lsmr {
namespace {

template <class Offset>
std::int64_t length_of(const Offset* offsets, std::int64_t row) {
    return static_cast<std::int64_t>(offsets[row + 1]) - static_cast<std::int64_t>(offsets[row]);
}

// Columns of the slices of a window whose places hold rows of these lengths.
std::int64_t columns_of(const std::vector<std::int64_t>& lengths) {
    std::int64_t columns = 0;
    for (std::size_t first = 0; first < lengths.size(); first += kSliceRows) {
        const std::size_t end = std::min(lengths.size(), first + static_cast<std::size_t>(kSliceRows));
        columns += *std::max_element(lengths.begin() + static_cast<std::ptrdiff_t>(first), lengths.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return columns;
}

// The length that comes at this place when all are sorted.
template <class Offset>
std::int64_t sorted_length(std::int64_t rows, const Offset* offsets, std::int64_t place) {
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) lengths[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(length_of(offsets, i));
    std::nth_element(lengths.begin(), lengths.begin() + place, lengths.end());
    return lengths[static_cast<std::size_t>(place)];
}

}  // namespace

void check_padding(const SpmvChoice& choice, std::int64_t places, std::int64_t nnz, std::int64_t longest_row) {
    if (places <= std::max(kFreePlaces, kMostPlacesPerEntry * nnz)) return;
    throw InputError(fmt::format("{} would store {} places for {} entries, more than {} an entry: the rows differ too much in length (the longest has {}); "
                                 "hyb, coo and the kernels of CSR take such a matrix",
                                 text(choice), places, nnz, kMostPlacesPerEntry, longest_row));
}

template <class Offset>
SellPlan make_sell_plan(std::int64_t rows, const Offset* offsets, int sigma) {
    SellPlan plan;
    plan.rows = rows;
    plan.sigma = sigma;
    const std::int64_t slices = slices_of(rows);
    std::vector<std::int64_t> widths(static_cast<std::size_t>(slices));
    const std::int64_t window_rows = sigma > 1 ? sigma : kSliceRows;
    const std::int64_t windows = (rows + window_rows - 1) / window_rows;
    if (sigma > 1) plan.order.resize(static_cast<std::size_t>(slices * kSliceRows));
    std::int64_t moved = 0;
#pragma omp parallel for schedule(static) reduction(+ : moved) if (rows > (1 << 16))
    for (std::int64_t w = 0; w < windows; ++w) {
        const std::int64_t first = w * window_rows;
        const std::int64_t count = std::min(window_rows, rows - first);
        std::vector<std::int64_t> lengths(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) lengths[static_cast<std::size_t>(i)] = length_of(offsets, first + i);
        if (sigma > 1) {
            std::uint16_t* order = plan.order.data() + first;
            std::iota(order, order + count, std::uint16_t{0});
            std::vector<std::int64_t> sorted = lengths;
            std::sort(sorted.begin(), sorted.end(), std::greater<>());
            if (columns_of(sorted) < columns_of(lengths)) {
                std::stable_sort(order, order + count, [&](std::uint16_t a, std::uint16_t b) { return lengths[a] > lengths[b]; });
                lengths = std::move(sorted);
                ++moved;
            }
        }
        for (std::int64_t i = 0; i < count; ++i) {
            std::int64_t& width = widths[static_cast<std::size_t>((first + i) / kSliceRows)];
            width = std::max(width, lengths[static_cast<std::size_t>(i)]);
        }
    }
    if (moved == 0) plan.order.clear();
    plan.offsets.resize(static_cast<std::size_t>(slices) + 1);
    std::int64_t columns = 0;
    for (std::int64_t s = 0; s < slices; ++s) {
        columns += widths[static_cast<std::size_t>(s)];
        if (columns > std::numeric_limits<std::uint32_t>::max()) {
            throw InputError(fmt::format("SELL: slices of more than 2^32 columns in all are not supported, and these have {} by row {}", columns, s * kSliceRows));
        }
        plan.offsets[static_cast<std::size_t>(s) + 1] = static_cast<std::uint32_t>(columns);
    }
    return plan;
}

template <class Offset>
std::int64_t longest_row(std::int64_t rows, const Offset* offsets) {
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < rows; ++i) longest = std::max(longest, length_of(offsets, i));
    return longest;
}

template <class Offset>
std::int64_t hyb_width(std::int64_t rows, const Offset* offsets, int quantile) {
    if (rows == 0) return 0;
    if (quantile > 0) return sorted_length(rows, offsets, (rows * quantile + 99) / 100 - 1);
    return sorted_length(rows, offsets, rows - (rows + 2) / 3);
}

std::string hyb_width_words(std::int64_t width, int quantile) {
    return quantile > 0 ? fmt::format("{}, what {} % of the rows need", width, quantile) : fmt::format("{}, what a third of the rows fills", width);
}

template <class Offset>
std::vector<std::int64_t> rest_offsets(std::int64_t rows, const Offset* offsets, std::int64_t width) {
    std::vector<std::int64_t> rest(static_cast<std::size_t>(rows) + 1);
    for (std::int64_t i = 0; i < rows; ++i) {
        const auto at = static_cast<std::size_t>(i);
        rest[at + 1] = rest[at] + std::max<std::int64_t>(length_of(offsets, i) - width, 0);
    }
    return rest;
}

#define LSMR_INSTANTIATE(Offset)                                                  \
    template SellPlan make_sell_plan(std::int64_t, const Offset*, int);           \
    template std::int64_t longest_row(std::int64_t, const Offset*);               \
    template std::int64_t hyb_width(std::int64_t, const Offset*, int);            \
    template std::vector<std::int64_t> rest_offsets(std::int64_t, const Offset*, std::int64_t);
LSMR_INSTANTIATE(std::int32_t)
LSMR_INSTANTIATE(std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr
