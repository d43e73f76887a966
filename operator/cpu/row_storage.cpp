#include "operator/cpu/row_storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>

namespace lsmr::cpu {
namespace {

constexpr std::int64_t kShortColumns = std::int64_t{std::numeric_limits<std::uint16_t>::max()} + 1;

struct Span {
    std::int32_t first = 0;
    std::int64_t length = 0;
};
// The columns between the first and the last one of some rows.
Span column_span(const CsrMatrix& a, std::int64_t begin, std::int64_t end) {
    std::int64_t first = a.cols();
    std::int64_t last = -1;
    for (std::int64_t i = begin; i < end; ++i) {
        if (a.offsets()[i] == a.offsets()[i + 1]) continue;
        first = std::min<std::int64_t>(first, a.columns()[a.offsets()[i]]);  // columns ascend
        last = std::max<std::int64_t>(last, a.columns()[a.offsets()[i + 1] - 1]);
    }
    if (last < 0) return {};
    return {static_cast<std::int32_t>(first), last - first + 1};
}

bool exact_in_fp32(double value) { return static_cast<double>(static_cast<float>(value)) == value; }

}  // namespace

template <class T>
RowStorage<T>::RowStorage(const CsrMatrix& a, int exponent, Narrowing narrowing, Sharing sharing) {
    const std::vector<std::int64_t> firsts = balanced_chunks(a.rows(), a.offsets());
    const auto count = static_cast<std::int64_t>(firsts.size()) - 1;
    chunks_.resize(static_cast<std::size_t>(count));
    const auto first_entry = [&](std::int64_t c) { return a.offsets()[firsts[static_cast<std::size_t>(c)]]; };
    const auto value_at = [&](std::int64_t k) { return exponent == 0 ? a.values()[k] : std::ldexp(a.values()[k], exponent); };

    // What can be narrowed.
    std::vector<Span> spans(static_cast<std::size_t>(count));
    std::atomic<bool> exact = std::is_same_v<T, double> && narrowing == Narrowing::lossless && a.nnz() > 0;
    for_each_chunk(count, [&](std::int64_t c) {
        const auto at = static_cast<std::size_t>(c);
        spans[at] = column_span(a, firsts[at], firsts[at + 1]);
        for (std::int64_t k = first_entry(c); k < first_entry(c + 1) && exact; ++k) {
            if (!exact_in_fp32(value_at(k))) exact = false;
        }
    });
    std::int64_t in_short = 0;  // entries
    for (std::int64_t c = 0; c < count; ++c) {
        if (spans[static_cast<std::size_t>(c)].length <= kShortColumns) in_short += first_entry(c + 1) - first_entry(c);
    }
    // A few narrow chunks do not pay for arrays of their own.
    const bool shorten = narrowing == Narrowing::lossless && in_short > 0 && 2 * in_short >= a.nnz();
    if (!shorten) in_short = 0;
    const bool convert = !exact && (!std::is_same_v<T, double> || exponent != 0);
    const bool copy = sharing == Sharing::copied && (shorten || exact || convert);
    const bool own_values = convert || (copy && !exact);

    // Arrays of our own, each page first written by the thread that will read it.
    if (shorten) short_columns_ = HostBuffer<std::uint16_t>(in_short + kPadding);
    if (copy) {
        offsets_ = HostBuffer<std::int64_t>(a.rows() + 1);
        columns_ = HostBuffer<std::int32_t>(a.nnz() - in_short);
    }
    if (exact) short_values_ = HostBuffer<float>(a.nnz());
    if (own_values) values_ = HostBuffer<T>(a.nnz());
    std::vector<std::int64_t> column_place(static_cast<std::size_t>(count));  // of a chunk's first column, in the array that holds it
    std::int64_t next_short = 0;
    std::int64_t next_long = 0;
    for (std::int64_t c = 0; c < count; ++c) {
        const auto at = static_cast<std::size_t>(c);
        RowChunk<T>& chunk = chunks_[at];
        const std::int64_t begin = first_entry(c);
        const bool short_here = shorten && spans[at].length <= kShortColumns;
        std::int64_t& next = short_here ? next_short : next_long;
        column_place[at] = next;
        next += first_entry(c + 1) - begin;

        chunk.first_row = firsts[at];
        chunk.rows = firsts[at + 1] - firsts[at];
        chunk.offsets = (copy ? offsets_.data() : a.offsets()) + firsts[at];
        if (short_here) {
            chunk.short_columns = short_columns_.data() + column_place[at];
            chunk.first_column = spans[at].first;
        } else {
            chunk.columns = copy ? columns_.data() + column_place[at] : a.columns() + begin;
        }
        if (exact) chunk.short_values = short_values_.data() + begin;
        else if (own_values) chunk.values = values_.data() + begin;
        else if constexpr (std::is_same_v<T, double>) chunk.values = a.values() + begin;
    }

    if (copy) offsets_[0] = 0;
    for_each_chunk(count, [&](std::int64_t c) {
        const auto at = static_cast<std::size_t>(c);
        const RowChunk<T>& chunk = chunks_[at];
        const std::int64_t begin = first_entry(c);
        const std::int64_t end = first_entry(c + 1);
        if (copy) std::copy_n(a.offsets() + chunk.first_row + 1, chunk.rows, offsets_.data() + chunk.first_row + 1);
        if (chunk.short_columns) {
            std::transform(a.columns() + begin, a.columns() + end, short_columns_.data() + column_place[at],
                           [&](std::int32_t column) { return static_cast<std::uint16_t>(column - chunk.first_column); });
        } else if (copy) {
            std::copy(a.columns() + begin, a.columns() + end, columns_.data() + column_place[at]);
        }
        if (exact) {
            for (std::int64_t k = begin; k < end; ++k) short_values_[k] = static_cast<float>(value_at(k));
        } else if (own_values) {
            for (std::int64_t k = begin; k < end; ++k) values_[k] = static_cast<T>(value_at(k));
        }
    });
    if (shorten) std::fill_n(short_columns_.data() + in_short, kPadding, std::uint16_t{0});
    reads_matrix_ = !copy;

    if (shorten) {
        narrowed_ += ", 16-bit columns";
        if (in_short < a.nnz()) {
            narrowed_ += fmt::format(" for {:.0f} % of the entries", 100.0 * static_cast<double>(in_short) / static_cast<double>(a.nnz()));
        }
    }
    if (exact) narrowed_ += ", values exact in fp32";
}

template class RowStorage<double>;
template class RowStorage<float>;

}  // namespace lsmr::cpu
