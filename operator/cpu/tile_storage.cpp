#include "operator/cpu/tile_storage.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <utility>

namespace lsmr::cpu {
namespace {

constexpr std::int64_t kSlice = std::int64_t{1} << kTileColumnBits;
// Rows of a panel, at most.
constexpr std::int64_t kWidest = std::int64_t{1} << (32 - kTileColumnBits);
constexpr std::int64_t kNarrowest = 4096;
// Panels come in so many, where there are rows enough: as many threads have the same work.
constexpr std::int64_t kTilePanels = 16;
// Panels of n rows, whose sums are of so many bytes. Wide ones, since each reads all of x, but of a quarter of a megabyte: two threads may share a cache. Those
// with few entries a row are wider.
std::int64_t panel_count(std::int64_t n, std::int64_t value_bytes) {
    const std::int64_t usual = value_bytes == sizeof(double) ? kWidest / 2 : kWidest / 8 * 7;
    if (n <= kTilePanels * kNarrowest) return std::max<std::int64_t>((n + kNarrowest - 1) / kNarrowest, 1);
    return (n + kTilePanels * usual - 1) / (kTilePanels * usual) * kTilePanels;
}
// Terms that are added to one sum, at most.
constexpr int kChain = 64;

// Panels of about equal work. counts: entries of each row.
template <class Count>
std::vector<std::int64_t> panel_firsts(std::int64_t n, std::int64_t nnz, std::int64_t value_bytes, const Count& count) {
    constexpr std::int64_t kOwnCost = 2;  // entries that a row costs as much as
    const std::int64_t target = (nnz + kOwnCost * n) / panel_count(n, value_bytes) + 1;
    std::vector<std::int64_t> firsts{0};
    std::int64_t work = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        if (work >= target || i - firsts.back() == kWidest) {
            firsts.push_back(i);
            work = 0;
        }
        work += count(i) + kOwnCost;
    }
    firsts.push_back(n);
    return firsts;
}

std::int64_t slice_count(std::int64_t cols) { return std::max<std::int64_t>((cols + kSlice - 1) / kSlice, 1); }

double scaled(double value, int exponent) { return exponent == 0 ? value : std::ldexp(value, exponent); }

}  // namespace

bool tiles_pay(const TileShape& shape) {
    // Below, rows in panels of columns find what they gather in the second-level cache. In fp32 they take half as long, by eights above all; entries of tiles
    // do not.
    const bool wide = shape.value_bytes == sizeof(double);
    const std::int64_t least_bytes = (shape.eights ? (wide ? 5 : 12) : (wide ? 4 : 6)) * (std::int64_t{1} << 20);
    constexpr double kScattered = 0.25;  // as choose_panels() has it
    // What panels read of x in both products, for each entry: from caches that threads share, in order; a gather fetches a line of 64 bytes in each.
    constexpr std::int64_t kMostVectorBytes = 150;
    const std::int64_t vectors = panel_count(shape.rows, shape.value_bytes) * shape.cols + panel_count(shape.cols, shape.value_bytes) * shape.rows;
    return why_not_tiles(shape.rows, shape.cols).empty() && std::max(shape.rows, shape.cols) * shape.value_bytes >= least_bytes &&
           shape.lines_per_entry >= kScattered && vectors * shape.value_bytes <= kMostVectorBytes * shape.nnz;
}

std::string why_not_tiles(std::int64_t rows, std::int64_t cols) {
    // A partial sum of a norm for each panel. Panels end where they have their work, at most panel_count() of them, or their width.
    constexpr std::int64_t kMost = kMaxPartials / 4 * kWidest;
    if (std::max(rows, cols) <= kMost) return {};
    return fmt::format("it takes up to {} rows and columns, the matrix has {} and {}", kMost, rows, cols);
}

template <class T>
TileStorage<T>::TileStorage(const CsrMatrix& a, Orientation orientation, int exponent, InstructionSet set, Narrowing narrowing) : set_(set) {
    const bool forward = orientation == Orientation::forward;
    const std::int64_t nnz = a.nnz();
    std::atomic<bool> exact = std::is_same_v<T, double> && narrowing != Narrowing::none && nnz > 0;
    const std::int64_t parts = std::clamp<std::int64_t>(nnz / kSlice, 1, 4096);
    for_each_chunk(parts, [&](std::int64_t p) {
        for (std::int64_t k = nnz * p / parts; k < nnz * (p + 1) / parts && exact; ++k) {
            const double value = scaled(a.values()[k], exponent);
            if (static_cast<double>(static_cast<float>(value)) != value) exact = false;
        }
    });
    places_ = HostBuffer<std::uint32_t>(nnz);
    if (exact) short_values_ = HostBuffer<float>(nnz);
    else values_ = HostBuffer<T>(nnz);
    const auto put = [&](std::int64_t place, std::int64_t row, std::int64_t column, std::int64_t k) {
        places_[place] = static_cast<std::uint32_t>(row << kTileColumnBits | column);
        const double value = scaled(a.values()[k], exponent);
        if (exact) short_values_[place] = static_cast<float>(value);
        else values_[place] = static_cast<T>(value);
    };
    slices_ = slice_count(forward ? a.cols() : a.rows());
    if (forward) place_rows(a, put);
    else place_columns(a, put);
    find_cuts();
}

// The panels' rows are those of A.
template <class T>
template <class Put>
void TileStorage<T>::place_rows(const CsrMatrix& a, const Put& put) {
    firsts_ = panel_firsts(a.rows(), a.nnz(), sizeof(T), [&](std::int64_t i) { return a.offsets()[i + 1] - a.offsets()[i]; });
    panels_.resize(firsts_.size() - 1);
    tiles_.assign(panels_.size() * static_cast<std::size_t>(slices_) + 1, a.nnz());
    for_each_chunk(panels(), [&](std::int64_t p) {
        const std::int64_t first = firsts_[static_cast<std::size_t>(p)], end = firsts_[static_cast<std::size_t>(p) + 1];
        std::vector<std::int64_t> next(static_cast<std::size_t>(slices_ * kSlice) + 1, 0);  // place for an entry of each column
        for (std::int64_t k = a.offsets()[first]; k < a.offsets()[end]; ++k) ++next[static_cast<std::size_t>(a.columns()[k]) + 1];
        next[0] = a.offsets()[first];
        for (std::size_t j = 1; j < next.size(); ++j) next[j] += next[j - 1];
        for (std::int64_t s = 0; s < slices_; ++s) tiles_[static_cast<std::size_t>(p * slices_ + s)] = next[static_cast<std::size_t>(s * kSlice)];
        for (std::int64_t i = first; i < end; ++i) {
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
                const std::int64_t j = a.columns()[k];
                put(next[static_cast<std::size_t>(j)]++, i - first, j % kSlice, k);
            }
        }
    });
}

// The panels' rows are A's columns; its rows come in their order, in slices.
template <class T>
template <class Put>
void TileStorage<T>::place_columns(const CsrMatrix& a, const Put& put) {
    std::vector<std::int64_t> in_column(static_cast<std::size_t>(a.cols()), 0);
    for (std::int64_t k = 0; k < a.nnz(); ++k) ++in_column[static_cast<std::size_t>(a.columns()[k])];
    firsts_ = panel_firsts(a.cols(), a.nnz(), sizeof(T), [&](std::int64_t j) { return in_column[static_cast<std::size_t>(j)]; });
    panels_.resize(firsts_.size() - 1);
    std::vector<std::int32_t> panel_of(static_cast<std::size_t>(a.cols()));
    for (std::size_t p = 0; p < panels_.size(); ++p) std::fill(panel_of.begin() + firsts_[p], panel_of.begin() + firsts_[p + 1], static_cast<std::int32_t>(p));
    const auto tile_of = [&](std::int64_t k, std::int64_t slice) {
        return static_cast<std::size_t>(panel_of[static_cast<std::size_t>(a.columns()[k])] * slices_ + slice);
    };
    const auto end_row = [&](std::int64_t slice) { return std::min(a.rows(), (slice + 1) * kSlice); };
    tiles_.assign(panels_.size() * static_cast<std::size_t>(slices_) + 1, 0);
    for_each_chunk(slices_, [&](std::int64_t s) {
        for (std::int64_t k = a.offsets()[s * kSlice]; k < a.offsets()[end_row(s)]; ++k) ++tiles_[tile_of(k, s)];
    });
    std::int64_t before = 0;
    for (std::int64_t& tile : tiles_) before += std::exchange(tile, before);
    std::vector<std::int64_t> next = tiles_;
    for_each_chunk(slices_, [&](std::int64_t s) {
        for (std::int64_t i = s * kSlice; i < end_row(s); ++i) {
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
                const std::size_t tile = tile_of(k, s);
                put(next[tile]++, a.columns()[k] - firsts_[tile / static_cast<std::size_t>(slices_)], i - s * kSlice, k);
            }
        }
    });
}

template <class T>
void TileStorage<T>::find_cuts() {
    for_each_chunk(panels(), [&](std::int64_t p) {
        Panel& panel = panels_[static_cast<std::size_t>(p)];
        std::vector<std::uint8_t> terms(kWidest, 0);
        std::vector<std::int32_t> place(kWidest, -1);
        for (std::int64_t k = tiles_[static_cast<std::size_t>(p * slices_)]; k < tiles_[static_cast<std::size_t>((p + 1) * slices_)]; ++k) {
            const std::size_t i = places_[k] >> kTileColumnBits;
            if (terms[i] == kChain) {
                terms[i] = 0;
                if (place[i] < 0) {
                    place[i] = static_cast<std::int32_t>(panel.hot.size());
                    panel.hot.push_back(static_cast<std::int32_t>(i));
                }
                panel.cuts.push_back({k, place[i]});
            }
            ++terms[i];
        }
        panel.hot.shrink_to_fit();
        panel.cuts.shrink_to_fit();
    });
    for (Panel& panel : panels_) {
        panel.first_total = totals_;
        totals_ += static_cast<std::int64_t>(panel.hot.size());
    }
}

template <class T>
void TileStorage<T>::apply(double a, const T* x, double b, T* y, Scratch& scratch, NormPartials* norm) const {
    // Of a thread: a panel, in cache lines of its own. In a parallel region of the caller's, this is one thread of it.
    const std::int64_t threads = std::max(omp_get_max_threads(), omp_get_num_threads());
    if (scratch.sums.size() < threads * kWidest) scratch.sums = HostBuffer<T>(threads * kWidest);
    if (scratch.totals.size() < totals_) scratch.totals = HostBuffer<Compensated<T>>(totals_);
    double* squares = norm ? norm->sums + norm->count : nullptr;
    const auto with_values = [&]<class V>(const V* values) {
        const TileKernels<T, V> kernels = tile_kernels<T, V>(set_);
        for_each_chunk(panels(), [&](std::int64_t p) {
            const Panel& panel = panels_[static_cast<std::size_t>(p)];
            const std::int64_t first = firsts_[static_cast<std::size_t>(p)], length = firsts_[static_cast<std::size_t>(p) + 1] - first;
            T* const sums = scratch.sums.data() + omp_get_thread_num() * kWidest;
            Compensated<T>* const totals = scratch.totals.data() + panel.first_total;
            std::fill_n(sums, length, T(0));
            std::fill_n(totals, panel.hot.size(), Compensated<T>());
            auto cut = panel.cuts.begin();
            for (std::int64_t s = 0; s < slices_; ++s) {
                std::int64_t begin = tiles_[static_cast<std::size_t>(p * slices_ + s)];
                const std::int64_t end = tiles_[static_cast<std::size_t>(p * slices_ + s) + 1];
                const T* const from = x + s * kSlice;
                for (; cut != panel.cuts.end() && cut->entry < end; ++cut) {
                    kernels.add(places_.data() + begin, values + begin, cut->entry - begin, from, sums);
                    begin = cut->entry;
                    T& sum = sums[panel.hot[static_cast<std::size_t>(cut->place)]];
                    totals[cut->place].add(sum);
                    sum = 0;
                }
                kernels.add(places_.data() + begin, values + begin, end - begin, from, sums);
            }
            for (std::size_t h = 0; h < panel.hot.size(); ++h) {
                T& sum = sums[panel.hot[h]];
                totals[h].add(sum);
                sum = totals[h].value();
            }
            const double square = kernels.finish(length, static_cast<T>(a), sums, static_cast<T>(b), y + first);
            if (squares) squares[p] = square;
        }, {.large = true});
    };
    if (short_values_.empty()) with_values(values_.data());
    else if constexpr (std::is_same_v<T, double>) with_values(short_values_.data());
    if (norm) norm->count += static_cast<std::int32_t>(panels());
}

template <class T>
std::int64_t TileStorage<T>::bytes() const {
    std::size_t total = tiles_.size() * sizeof(std::int64_t);
    for (const Panel& panel : panels_) total += panel.hot.size() * sizeof(std::int32_t) + panel.cuts.size() * sizeof(Cut);
    return static_cast<std::int64_t>(total) + places_.bytes() + values_.bytes() + short_values_.bytes();
}

template <class T>
std::int64_t TileStorage<T>::scratch_bytes(std::int64_t totals) {
    return totals * std::int64_t{sizeof(Compensated<T>)} + omp_get_max_threads() * kWidest * std::int64_t{sizeof(T)};
}

template <class T>
std::string TileStorage<T>::words() const {
    return fmt::format("{} x {} tiles{}", panels(), slices_, short_values_.empty() ? "" : ", values exact in fp32");
}

template class TileStorage<double>;
template class TileStorage<float>;

}  // namespace lsmr::cpu
