#include "operator/cpu/row_storage.hpp"

#include <fmt/format.h>

#include <algorithm>
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
    constexpr std::size_t kSamples = 16;
    constexpr std::int64_t kSampleWork = 32 * 1024;  // about what a first-level cache sees of x
    const std::vector<std::int64_t> firsts = balanced_chunks(a.rows(), a.offsets(), kSampleWork);
    const std::size_t count = firsts.size() - 1;
    const std::size_t samples = std::min(count, kSamples);
    std::int64_t lines = 0;
    std::int64_t entries = 0;
    std::vector<bool> seen(static_cast<std::size_t>(a.cols() / values_per_line + 1));
    for (std::size_t s = 0; s < samples; ++s) {
        const std::size_t c = count * s / samples;
        std::fill(seen.begin(), seen.end(), false);
        for (std::int64_t k = a.offsets()[firsts[c]]; k < a.offsets()[firsts[c + 1]]; ++k) {
            const auto line = static_cast<std::size_t>(a.columns()[k] / values_per_line);
            lines += !seen[line];
            seen[line] = true;
        }
        entries += a.offsets()[firsts[c + 1]] - a.offsets()[firsts[c]];
    }
    return entries == 0 ? 0 : static_cast<double>(lines) / static_cast<double>(entries);
}

std::int64_t choose_panels(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t value_bytes, double lines_per_entry) {
    // Half of a usual second-level cache; the entries and y stream through the other half.
    constexpr std::int64_t kPanelBytes = std::int64_t{1} << 20;
    // Below, neighbouring rows find what they need in the first-level cache.
    constexpr double kScattered = 0.25;
    // A panel reads offsets and y again, and makes short rows of long ones: fewer entries a row do not pay for that.
    constexpr std::int64_t kLeastPerRow = 2;
    const std::int64_t x_bytes = cols * value_bytes;
    if (lines_per_entry < kScattered || 2 * x_bytes < 3 * kPanelBytes) return 1;
    const std::int64_t wanted = (x_bytes + kPanelBytes - 1) / kPanelBytes;
    return nnz >= kLeastPerRow * rows * wanted ? wanted : 1;
}

template <class T>
RowPanel<T>::RowPanel(const CsrView<double>& a, const std::vector<std::int64_t>& firsts, int exponent, Narrowing narrowing, Sharing sharing) {
    const std::int64_t nnz = a.offsets[a.rows];
    const auto count = static_cast<std::int64_t>(firsts.size()) - 1;
    chunks_.resize(static_cast<std::size_t>(count));
    const auto first_entry = [&](std::int64_t c) { return a.offsets[firsts[static_cast<std::size_t>(c)]]; };
    const auto value_at = [&](std::int64_t k) { return exponent == 0 ? a.values[k] : std::ldexp(a.values[k], exponent); };

    // What can be narrowed.
    std::vector<Span> spans(static_cast<std::size_t>(count));
    std::atomic<bool> exact = std::is_same_v<T, double> && narrowing == Narrowing::lossless && nnz > 0;
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
    const bool shorten = narrowing == Narrowing::lossless && in_short > 0 && 2 * in_short >= nnz;
    if (!shorten) in_short = 0;
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
RowStorage<T>::RowStorage(const CsrMatrix& a, int exponent, const Kernels<T>& kernels, Sharing sharing) : set_(kernels.set), nnz_(a.nnz()) {
    const std::int64_t count =
        kernels.panels > 0 ? kernels.panels
                           : choose_panels(a.rows(), a.cols(), a.nnz(), sizeof(T), lines_per_entry(a, kCacheLine / std::int64_t{sizeof(T)}));
    if (count == 1) {
        panels_.emplace_back(CsrView<double>{a.rows(), a.cols(), a.offsets(), a.columns(), a.values()}, balanced_chunks(a.rows(), a.offsets()), exponent,
                             kernels.narrowing, sharing);
        return;
    }
    const std::vector<std::int64_t> firsts = balanced_chunks(a.rows(), a.offsets(), count * kChunkWork);
    HostBuffer<std::int64_t> next(a.rows());
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) next[i] = a.offsets()[i];
    for (std::int64_t p = 0; p < count; ++p) {
        CsrArrays panel = take_columns(a, a.cols() * (p + 1) / count, next);
        panels_.emplace_back(CsrView<double>{a.rows(), a.cols(), panel.offsets.data(), panel.columns.data(), panel.values.data()}, firsts, exponent,
                             kernels.narrowing, Sharing::copied);
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
