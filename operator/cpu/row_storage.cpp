#include "operator/cpu/row_storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

namespace lsmr::cpu {
namespace {

constexpr std::int64_t kShortColumns = std::int64_t{std::numeric_limits<std::uint16_t>::max()} + 1;

struct Span {
    std::int32_t first = 0;
    std::int64_t length = 0;
};
// The columns between the first and the last one of some rows.
Span column_span(const CsrView<double>& a, std::int64_t begin, std::int64_t end) {
    std::int64_t first = a.cols;
    std::int64_t last = -1;
    for (std::int64_t i = begin; i < end; ++i) {
        if (a.offsets[i] == a.offsets[i + 1]) continue;
        first = std::min<std::int64_t>(first, a.columns[a.offsets[i]]);  // columns ascend
        last = std::max<std::int64_t>(last, a.columns[a.offsets[i + 1] - 1]);
    }
    if (last < 0) return {};
    return {static_cast<std::int32_t>(first), last - first + 1};
}

// f(first row of the window, its rows) of some rows.
template <class F>
void for_each_window(std::int64_t begin, std::int64_t end, const F& f) {
    for (std::int64_t row = begin; row < end; row += kWindowRows) f(row, std::min(kWindowRows, end - row));
}
// Rows of a window by their length, which is at most kLongestSliced; longest first, and those of one length in their order. counts: room.
using LengthCounts = std::array<std::int64_t, kLongestSliced + 2>;
void sort_window(const std::int64_t* offsets, std::int64_t rows, std::uint16_t* order, LengthCounts& counts) {
    counts.fill(0);
    const auto place_of = [&](std::int64_t i) -> std::int64_t& { return counts[static_cast<std::size_t>(kLongestSliced - (offsets[i + 1] - offsets[i]))]; };
    for (std::int64_t i = 0; i < rows; ++i) ++place_of(i);
    std::int64_t before = 0;
    for (std::int64_t& count : counts) before += std::exchange(count, before);
    for (std::int64_t i = 0; i < rows; ++i) order[place_of(i)++] = static_cast<std::uint16_t>(i);
}

SliceCounts count_slices(const CsrView<double>& a, const std::vector<std::int64_t>& firsts) {
    const auto count = static_cast<std::int64_t>(firsts.size()) - 1;
    std::vector<SliceCounts> parts(static_cast<std::size_t>(count));
    for_each_chunk(count, [&](std::int64_t c) {
        SliceCounts& part = parts[static_cast<std::size_t>(c)];
        const std::int64_t begin = firsts[static_cast<std::size_t>(c)], end = firsts[static_cast<std::size_t>(c) + 1];
        const auto length = [&](std::int64_t i) { return a.offsets[i + 1] - a.offsets[i]; };
        for (std::int64_t i = begin; i < end; ++i) part.longest = std::max(part.longest, length(i));
        part.entries = a.offsets[end] - a.offsets[begin];
        if (part.longest > kLongestSliced) return;
        std::array<std::uint16_t, kWindowRows> order;
        LengthCounts counts;
        for_each_window(begin, end, [&](std::int64_t row, std::int64_t rows) {
            sort_window(a.offsets + row, rows, order.data(), counts);
            for (std::int64_t i = 0; i < rows; i += kSlicedRows) part.places += kSlicedRows * length(row + order[static_cast<std::size_t>(i)]);
        });
    });
    SliceCounts all;
    for (const SliceCounts& part : parts) {
        all.entries += part.entries;
        all.places += part.places;
        all.longest = std::max(all.longest, part.longest);
    }
    return all;
}

// Chunks for slices: with more rows to sort, and whole slices.
std::vector<std::int64_t> slice_chunks(std::int64_t rows, const std::int64_t* offsets, std::int64_t chunk_work) {
    std::vector<std::int64_t> firsts = balanced_chunks(rows, offsets, chunk_work);
    for (std::size_t c = 1; c + 1 < firsts.size(); ++c) firsts[c] = firsts[c] / kSlicedRows * kSlicedRows;
    firsts.erase(std::unique(firsts.begin(), firsts.end()), firsts.end());
    return firsts;
}

template <class T>
bool takes_slices(const CsrView<double>& a, const std::vector<std::int64_t>& firsts, const Kernels<T>& kernels) {
    if (kernels.slicing == Slicing::none) return false;
    const SliceCounts counts = count_slices(a, firsts);
    if (kernels.slicing == Slicing::all) return counts.entries > 0 && counts.longest <= kLongestSliced;
    return kernels.set != InstructionSet::portable && slices_pay(counts);
}

bool exact_in_fp32(double value) { return static_cast<double>(static_cast<float>(value)) == value; }

// Takes the entries of every row from next[row] on whose columns are below end, and moves next behind them.
CsrArrays take_columns(const CsrMatrix& a, std::int64_t end, HostBuffer<std::int64_t>& next) {
    CsrArrays panel;
    panel.offsets = HostBuffer<std::int64_t>(a.rows() + 1);
    panel.offsets[0] = 0;
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        std::int64_t k = next[i];
        while (k < a.offsets()[i + 1] && a.columns()[k] < end) ++k;
        panel.offsets[i + 1] = k - next[i];
    }
    for (std::int64_t i = 0; i < a.rows(); ++i) panel.offsets[i + 1] += panel.offsets[i];
    panel.columns = HostBuffer<std::int32_t>(panel.offsets[a.rows()]);
    panel.values = HostBuffer<double>(panel.offsets[a.rows()]);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        const std::int64_t count = panel.offsets[i + 1] - panel.offsets[i];
        std::copy_n(a.columns() + next[i], count, panel.columns.data() + panel.offsets[i]);
        std::copy_n(a.values() + next[i], count, panel.values.data() + panel.offsets[i]);
        next[i] += count;
    }
    return panel;
}

}  // namespace

double lines_per_entry(const CsrMatrix& a, std::int64_t values_per_line) {
    std::int64_t lines = 0;
    std::int64_t entries = 0;
    std::vector<bool> seen(static_cast<std::size_t>(a.cols() / values_per_line + 1));
    for_each_sample(a, [&](std::int64_t begin, std::int64_t end) {
        std::fill(seen.begin(), seen.end(), false);
        for (std::int64_t k = a.offsets()[begin]; k < a.offsets()[end]; ++k) {
            const auto line = static_cast<std::size_t>(a.columns()[k] / values_per_line);
            lines += !seen[line];
            seen[line] = true;
        }
        entries += a.offsets()[end] - a.offsets()[begin];
    });
    return entries == 0 ? 0 : static_cast<double>(lines) / static_cast<double>(entries);
}

std::int64_t choose_panels(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t value_bytes, double lines_per_entry) {
    // Half of a usual second-level cache; the entries and y stream through the other half.
    constexpr std::int64_t kPanelBytes = std::int64_t{1} << 20;
    // Below, neighbouring rows find what they need in the first-level cache.
    constexpr double kScattered = 0.25;
    // A panel reads offsets and y again, and makes short rows of long ones: fewer entries a row do not pay for that; panels up to twice as wide still do.
    constexpr std::int64_t kLeastPerRow = 2;
    const std::int64_t x_bytes = cols * value_bytes;
    if (lines_per_entry < kScattered || 2 * x_bytes < 3 * kPanelBytes) return 1;
    const std::int64_t wanted = (x_bytes + kPanelBytes - 1) / kPanelBytes;
    const std::int64_t affordable = nnz / (kLeastPerRow * std::max<std::int64_t>(rows, 1));
    return 2 * affordable >= wanted ? std::clamp<std::int64_t>(affordable, 1, wanted) : 1;
}

bool slices_pay(const SliceCounts& counts) {
    // Padded places are read from memory like entries.
    return counts.longest <= kLongestSliced && counts.entries > 0 && 10 * counts.places <= 11 * counts.entries;
}

template <class T>
RowPanel<T>::RowPanel(const CsrView<double>& a, const std::vector<std::int64_t>& firsts, int exponent, const Kernels<T>& kernels, Sharing sharing)
    : nnz_(a.offsets[a.rows]) {
    const std::int64_t nnz = nnz_;
    const Narrowing narrowing = kernels.narrowing;
    const auto count = static_cast<std::int64_t>(firsts.size()) - 1;
    chunks_.resize(static_cast<std::size_t>(count));
    const auto first_entry = [&](std::int64_t c) { return a.offsets[firsts[static_cast<std::size_t>(c)]]; };
    const auto value_at = [&](std::int64_t k) { return exponent == 0 ? a.values[k] : std::ldexp(a.values[k], exponent); };

    // What can be narrowed.
    std::vector<Span> spans(static_cast<std::size_t>(count));
    std::atomic<bool> exact = std::is_same_v<T, double> && narrowing != Narrowing::none && nnz > 0;
    for_each_chunk(count, [&](std::int64_t c) {
        const auto at = static_cast<std::size_t>(c);
        spans[at] = column_span(a, firsts[at], firsts[at + 1]);
        for (std::int64_t k = first_entry(c); k < first_entry(c + 1) && exact; ++k) {
            if (!exact_in_fp32(value_at(k))) exact = false;
        }
    });
    const bool sliced = takes_slices(a, firsts, kernels);
    const std::int64_t most_short = sliced ? kShortColumns - 1 : kShortColumns;  // one says that there is none
    std::int64_t in_short = 0;  // entries
    for (std::int64_t c = 0; c < count; ++c) {
        if (spans[static_cast<std::size_t>(c)].length <= most_short) in_short += first_entry(c + 1) - first_entry(c);
    }
    // A few narrow chunks do not pay for arrays of their own.
    const bool shorten = narrowing == Narrowing::lossless && in_short > 0 && 2 * in_short >= nnz;
    if (!shorten) in_short = 0;
    in_short_ = in_short;
    if (sliced) {
        std::vector<bool> short_chunks(static_cast<std::size_t>(count));
        for (std::size_t c = 0; c < spans.size(); ++c) {
            short_chunks[c] = shorten && spans[c].length <= most_short;
            chunks_[c].first_row = firsts[c];
            chunks_[c].rows = firsts[c + 1] - firsts[c];
            chunks_[c].first_column = short_chunks[c] ? spans[c].first : 0;
        }
        make_slices(a, short_chunks, exact, value_at);
        return;
    }
    const bool convert = !exact && (!std::is_same_v<T, double> || exponent != 0);
    const bool copy = sharing == Sharing::copied && (shorten || exact || convert);
    const bool own_values = convert || (copy && !exact);

    // Arrays of our own, each page first written by the thread that will read it.
    if (shorten) short_columns_ = HostBuffer<std::uint16_t>(in_short + kPadding);
    if (copy) {
        offsets_ = HostBuffer<std::int64_t>(a.rows + 1);
        columns_ = HostBuffer<std::int32_t>(nnz - in_short);
    }
    if (exact) short_values_ = HostBuffer<float>(nnz);
    if (own_values) values_ = HostBuffer<T>(nnz);
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
        chunk.offsets = (copy ? offsets_.data() : a.offsets) + firsts[at];
        if (short_here) {
            chunk.short_columns = short_columns_.data() + column_place[at];
            chunk.first_column = spans[at].first;
        } else {
            chunk.columns = copy ? columns_.data() + column_place[at] : a.columns + begin;
        }
        if (exact) chunk.short_values = short_values_.data() + begin;
        else if (own_values) chunk.values = values_.data() + begin;
        else if constexpr (std::is_same_v<T, double>) chunk.values = a.values + begin;
    }

    if (copy) offsets_[0] = 0;
    for_each_chunk(count, [&](std::int64_t c) {
        const auto at = static_cast<std::size_t>(c);
        const RowChunk<T>& chunk = chunks_[at];
        const std::int64_t begin = first_entry(c);
        const std::int64_t end = first_entry(c + 1);
        if (copy) std::copy_n(a.offsets + chunk.first_row + 1, chunk.rows, offsets_.data() + chunk.first_row + 1);
        if (chunk.short_columns) {
            std::transform(a.columns + begin, a.columns + end, short_columns_.data() + column_place[at],
                           [&](std::int32_t column) { return static_cast<std::uint16_t>(column - chunk.first_column); });
        } else if (copy) {
            std::copy(a.columns + begin, a.columns + end, columns_.data() + column_place[at]);
        }
        if (exact) {
            for (std::int64_t k = begin; k < end; ++k) short_values_[k] = static_cast<float>(value_at(k));
        } else if (own_values) {
            for (std::int64_t k = begin; k < end; ++k) values_[k] = static_cast<T>(value_at(k));
        }
    });
    if (shorten) std::fill_n(short_columns_.data() + in_short, kPadding, std::uint16_t{0});
    reads_matrix_ = !copy;
}

template <class T>
template <class ValueAt>
void RowPanel<T>::make_slices(const CsrView<double>& a, const std::vector<bool>& in_short, bool exact, const ValueAt& value_at) {
    reads_matrix_ = false;
    const auto count = static_cast<std::int64_t>(chunks_.size());
    std::vector<std::int64_t> first_slice(chunks_.size() + 1, 0);
    for (std::size_t c = 0; c < chunks_.size(); ++c) first_slice[c + 1] = first_slice[c] + (chunks_[c].rows + kSlicedRows - 1) / kSlicedRows;
    const std::int64_t slices = first_slice.back();
    offsets_ = HostBuffer<std::int64_t>(slices + 1);
    order_ = HostBuffer<std::uint16_t>(slices * kSlicedRows);

    // f(slice, its lanes in order_, first row of the window, rows in the slice)
    const auto for_each_slice = [&](std::int64_t c, const auto& f) {
        const RowChunk<T>& chunk = chunks_[static_cast<std::size_t>(c)];
        std::int64_t slice = first_slice[static_cast<std::size_t>(c)];
        for_each_window(chunk.first_row, chunk.first_row + chunk.rows, [&](std::int64_t row, std::int64_t rows) {
            for (std::int64_t i = 0; i < rows; i += kSlicedRows, ++slice) f(slice, order_.data() + slice * kSlicedRows, row, std::min(kSlicedRows, rows - i));
        });
    };
    for_each_chunk(count, [&](std::int64_t c) {
        const RowChunk<T>& chunk = chunks_[static_cast<std::size_t>(c)];
        std::uint16_t* order = order_.data() + first_slice[static_cast<std::size_t>(c)] * kSlicedRows;
        LengthCounts counts;
        for_each_window(chunk.first_row, chunk.first_row + chunk.rows, [&](std::int64_t row, std::int64_t rows) {
            sort_window(a.offsets + row, rows, order, counts);
            const std::int64_t end = (rows + kSlicedRows - 1) / kSlicedRows * kSlicedRows;
            std::fill(order + rows, order + end, static_cast<std::uint16_t>(kWindowRows));
            order += end;
        });
        for_each_slice(c, [&](std::int64_t slice, const std::uint16_t* lanes, std::int64_t window, std::int64_t) {
            offsets_[slice + 1] = kSlicedRows * (a.offsets[window + lanes[0] + 1] - a.offsets[window + lanes[0]]);  // the longest
        });
    });
    offsets_[0] = 0;
    for (std::int64_t s = 0; s < slices; ++s) offsets_[s + 1] += offsets_[s];
    std::int64_t short_places = 0, long_places = 0;
    std::vector<std::int64_t> column_place(chunks_.size());
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
        std::int64_t& next = in_short[c] ? short_places : long_places;
        column_place[c] = next;
        next += offsets_[first_slice[c + 1]] - offsets_[first_slice[c]];
    }
    if (short_places > 0) short_columns_ = HostBuffer<std::uint16_t>(short_places);
    columns_ = HostBuffer<std::int32_t>(long_places);
    if (exact) short_values_ = HostBuffer<float>(offsets_[slices]);
    else values_ = HostBuffer<T>(offsets_[slices]);
    for_each_chunk(count, [&](std::int64_t c) {
        const auto at = static_cast<std::size_t>(c);
        RowChunk<T>& chunk = chunks_[at];
        const std::int64_t first = offsets_[first_slice[at]];
        chunk.offsets = offsets_.data() + first_slice[at];
        chunk.order = order_.data() + first_slice[at] * kSlicedRows;
        if (exact) chunk.short_values = short_values_.data() + first;
        else chunk.values = values_.data() + first;
        const auto fill = [&]<class C>(C* columns) {
            for_each_slice(c, [&](std::int64_t slice, const std::uint16_t* lanes, std::int64_t window, std::int64_t rows) {
                for (std::int64_t i = 0; i < kSlicedRows; ++i) {
                    std::int64_t k = i < rows ? a.offsets[window + lanes[i]] : 0;
                    const std::int64_t end = i < rows ? a.offsets[window + lanes[i] + 1] : 0;
                    for (std::int64_t place = offsets_[slice] + i; place < offsets_[slice + 1]; place += kSlicedRows, ++k) {
                        const double value = k < end ? value_at(k) : 0.0;
                        columns[place - first] = k < end ? static_cast<C>(a.columns[k] - chunk.first_column) : kNoColumn<C>;
                        if (exact) short_values_[place] = static_cast<float>(value);
                        else values_[place] = static_cast<T>(value);
                    }
                }
            });
        };
        if (in_short[at]) {
            chunk.short_columns = short_columns_.data() + column_place[at];
            fill(short_columns_.data() + column_place[at]);
        } else {
            chunk.columns = columns_.data() + column_place[at];
            fill(columns_.data() + column_place[at]);
        }
    });
}

template <class T>
RowStorage<T>::RowStorage(const CsrMatrix& a, int exponent, const Kernels<T>& kernels, Sharing sharing) : set_(kernels.set), nnz_(a.nnz()) {
    const std::int64_t count =
        kernels.panels > 0 ? kernels.panels
                           : choose_panels(a.rows(), a.cols(), a.nnz(), sizeof(T), lines_per_entry(a, kCacheLine / std::int64_t{sizeof(T)}));
    if (count == 1) {
        const CsrView<double> view{a.rows(), a.cols(), a.offsets(), a.columns(), a.values()};
        Kernels<T> chosen = kernels;
        std::vector<std::int64_t> firsts = slice_chunks(a.rows(), a.offsets(), 2 * kChunkWork);
        if (!takes_slices(view, firsts, kernels)) {
            chosen.slicing = Slicing::none;
            firsts = balanced_chunks(a.rows(), a.offsets());
        }
        panels_.emplace_back(view, firsts, exponent, chosen, sharing);
        return;
    }
    const std::vector<std::int64_t> firsts = slice_chunks(a.rows(), a.offsets(), count * kChunkWork);
    HostBuffer<std::int64_t> next(a.rows());
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) next[i] = a.offsets()[i];
    for (std::int64_t p = 0; p < count; ++p) {
        CsrArrays panel = take_columns(a, a.cols() * (p + 1) / count, next);
        panels_.emplace_back(CsrView<double>{a.rows(), a.cols(), panel.offsets.data(), panel.columns.data(), panel.values.data()}, firsts, exponent,
                             kernels, Sharing::copied);
        if (panels_.back().reads_matrix()) panel_arrays_.push_back(std::move(panel));
    }
}

template <class T>
void RowStorage<T>::apply(double a, const T* x, double b, T* y, NormPartials* norm) const {
    std::vector<std::span<const RowChunk<T>>> panels;
    for (const RowPanel<T>& panel : panels_) panels.emplace_back(panel.chunks());
    csr_apply<T>(panels, set_, a, x, b, y, norm);
}

template <class T>
std::int64_t RowStorage<T>::bytes() const {
    std::int64_t total = 0;
    for (const RowPanel<T>& panel : panels_) total += panel.bytes();
    for (const CsrArrays& arrays : panel_arrays_) total += arrays.bytes();
    return total;
}

template <class T>
std::string RowStorage<T>::words() const {
    std::string text;
    if (panels_.size() > 1) text += fmt::format(", {} column panels", panels_.size());
    const auto add = [&](const char* what, auto count_of) {
        std::int64_t entries = 0;
        for (const RowPanel<T>& panel : panels_) entries += (panel.*count_of)();
        if (entries == 0) return;
        text += what;
        if (entries < nnz_) text += fmt::format(" for {:.0f} % of the entries", 100.0 * static_cast<double>(entries) / static_cast<double>(nnz_));
    };
    add(", rows by eights", &RowPanel<T>::sliced);
    add(", 16-bit columns", &RowPanel<T>::short_columns);
    add(", values exact in fp32", &RowPanel<T>::short_values);
    return text;
}

template <class T>
const T* RowStorage<T>::values() const {
    const std::vector<RowChunk<T>>& chunks = panels_.front().chunks();
    return chunks.empty() ? nullptr : chunks.front().values;
}

template class RowPanel<double>;
template class RowPanel<float>;
template class RowStorage<double>;
template class RowStorage<float>;

}  // namespace lsmr::cpu
