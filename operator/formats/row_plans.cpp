#include "operator/formats/row_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "memory/error.hpp"

namespace lsmr {
namespace {

template <class Offset>
std::int64_t length_of(const Offset* offsets, std::int64_t row) {
    return static_cast<std::int64_t>(offsets[row + 1]) - static_cast<std::int64_t>(offsets[row]);
}

// A window of rows of SELL: their lengths, and their order by falling length, rows of one length as they come. Kept by a thread for all its windows.
class SellWindow {
  public:
    template <class Offset>
    void read(const Offset* offsets, std::int64_t first, std::int64_t count) {
        lengths_.resize(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) lengths_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(length_of(offsets, first + i));
    }
    // The order, written where it makes the slices narrower in all.
    bool sort(std::uint16_t* order) {
        const auto longest = static_cast<std::size_t>(most(0, lengths_.size()));
        order_.resize(lengths_.size());
        if (longest < kCounted) {
            // next_[l]: where the next row of length l goes, after all that are longer.
            next_.assign(longest + 2, 0);
            for (const std::int32_t length : lengths_) ++next_[static_cast<std::size_t>(length)];
            std::uint16_t before = 0;
            for (std::size_t l = longest + 1; l-- > 0;) before = static_cast<std::uint16_t>(before + std::exchange(next_[l], before));
            for (std::size_t i = 0; i < lengths_.size(); ++i) order_[next_[static_cast<std::size_t>(lengths_[i])]++] = static_cast<std::uint16_t>(i);
        } else {
            std::iota(order_.begin(), order_.end(), std::uint16_t{0});
            std::stable_sort(order_.begin(), order_.end(), [&](std::uint16_t a, std::uint16_t b) { return lengths_[a] > lengths_[b]; });
        }
        std::int64_t given = 0, sorted = 0;
        for (std::size_t first = 0; first < lengths_.size(); first += kSliceRows) {
            given += width(first);
            sorted += lengths_[order_[first]];
        }
        const bool narrower = sorted < given;
        if (narrower) {
            std::copy(order_.begin(), order_.end(), order);
            sorted_lengths_.resize(lengths_.size());
            for (std::size_t i = 0; i < lengths_.size(); ++i) sorted_lengths_[i] = lengths_[order_[i]];
            lengths_.swap(sorted_lengths_);
        } else {
            std::iota(order, order + lengths_.size(), std::uint16_t{0});
        }
        return narrower;
    }
    // Of the slice that begins at this place.
    std::int64_t width(std::size_t first) const {
        return most(first, std::min(lengths_.size(), first + static_cast<std::size_t>(kSliceRows)));
    }

  private:
    std::int32_t most(std::size_t first, std::size_t end) const {
        std::int32_t longest = 0;
        for (std::size_t i = first; i < end; ++i) longest = std::max(longest, lengths_[i]);
        return longest;
    }

    static constexpr std::size_t kCounted = 1 << 12;  // longer rows are compared
    std::vector<std::int32_t> lengths_, sorted_lengths_;
    std::vector<std::uint16_t> order_, next_;
};

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
    if (sigma > 1) plan.order = HostBuffer<std::uint16_t>(slices * kSliceRows);
    std::int64_t moved = 0;
#pragma omp parallel reduction(+ : moved) if (rows > (1 << 16))
    {
        SellWindow window;
#pragma omp for schedule(static)
        for (std::int64_t w = 0; w < windows; ++w) {
            const std::int64_t first = w * window_rows;
            const std::int64_t count = std::min(window_rows, rows - first);
            window.read(offsets, first, count);
            if (sigma > 1) moved += window.sort(plan.order.data() + first);
            for (std::int64_t i = 0; i < count; i += kSliceRows) widths[static_cast<std::size_t>((first + i) / kSliceRows)] = window.width(static_cast<std::size_t>(i));
        }
    }
    if (sigma > 1) std::fill(plan.order.begin() + rows, plan.order.end(), std::uint16_t{0});
    if (moved == 0) plan.order = {};
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
std::vector<std::int32_t> rows_longer_than(std::int64_t length, std::int64_t rows, const Offset* offsets) {
    constexpr std::int64_t kStretch = 1 << 16;  // rows
    const std::int64_t stretches = (rows + kStretch - 1) / kStretch;
    std::vector<std::vector<std::int32_t>> found(static_cast<std::size_t>(stretches));
#pragma omp parallel for schedule(static) if (stretches > 1)
    for (std::int64_t s = 0; s < stretches; ++s) {
        constexpr std::int64_t kAtOnce = 256;  // few are long: the longest of so many tells
        const std::int64_t end = std::min(rows, (s + 1) * kStretch);
        for (std::int64_t first = s * kStretch; first < end; first += kAtOnce) {
            const std::int64_t beyond = std::min(first + kAtOnce, end);
            Offset longest = 0;
            for (std::int64_t i = first; i < beyond; ++i) longest = std::max<Offset>(longest, offsets[i + 1] - offsets[i]);
            if (static_cast<std::int64_t>(longest) <= length) continue;
            for (std::int64_t i = first; i < beyond; ++i) {
                if (length_of(offsets, i) > length) found[static_cast<std::size_t>(s)].push_back(static_cast<std::int32_t>(i));
            }
        }
    }
    std::vector<std::int32_t> all;
    for (const std::vector<std::int32_t>& some : found) all.insert(all.end(), some.begin(), some.end());
    return all;
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
    template std::vector<std::int32_t> rows_longer_than(std::int64_t, std::int64_t, const Offset*); \
    template std::int64_t hyb_width(std::int64_t, const Offset*, int);            \
    template std::vector<std::int64_t> rest_offsets(std::int64_t, const Offset*, std::int64_t);
LSMR_INSTANTIATE(std::int32_t)
LSMR_INSTANTIATE(std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr
