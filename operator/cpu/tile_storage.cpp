#include "operator/cpu/tile_storage.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>

#include "operator/cpu/block_sum.hpp"

namespace lsmr::cpu {
namespace {

// Rows or columns of a panel, at most.
constexpr std::int64_t kWidest = std::int64_t{1} << 16;
constexpr std::int64_t kNarrowest = 4096;
// Panels come in so many, where there are rows or columns enough: as many threads have the same work.
constexpr std::int64_t kTilePanels = 16;
// Panels of n rows or columns. Wide ones: each reads all of the vector on the other side.
std::int64_t panel_count(std::int64_t n) {
    constexpr std::int64_t kUsual = kWidest / 8 * 7;  // those with few entries a row are wider
    if (n <= kTilePanels * kNarrowest) return std::max<std::int64_t>((n + kNarrowest - 1) / kNarrowest, 1);
    return (n + kTilePanels * kUsual - 1) / (kTilePanels * kUsual) * kTilePanels;
}
// Terms that are added to one sum, at most.
constexpr int kChain = 64;
// Neighbours in a tile's order come from so many parts of it, so that those of a row, which each wait for the sum before, are apart.
constexpr std::int64_t kParts = 4;

// Panels of about equal work. counts: entries of each row or column.
template <class Count>
std::vector<std::int64_t> panel_firsts(std::int64_t n, std::int64_t nnz, const Count& count) {
    constexpr std::int64_t kOwnCost = 2;  // entries that a row or column costs as much as
    const std::int64_t target = (nnz + kOwnCost * n) / panel_count(n) + 1;
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

// Where the entries of a tile are stored, one after the other.
class PlacesInTile {
  public:
    PlacesInTile(std::int64_t first, std::int64_t count) : first_(first), whole_(count / kParts), longer_(count % kParts) {}
    std::int64_t next() {
        if (at_ == whole_ + (part_ < longer_)) {  // of the first parts some have one entry more
            at_ = 0;
            ++part_;
        }
        return first_ + at_++ * kParts + part_;
    }

  private:
    std::int64_t first_, whole_, longer_;
    std::int64_t at_ = 0;
    std::int64_t part_ = 0;
};

double scaled(double value, int exponent) { return exponent == 0 ? value : std::ldexp(value, exponent); }

}  // namespace

bool tiles_pay(const TileShape& shape) {
    // Below, rows by eights in panels of columns find what they gather in the second-level cache; in fp32 they take half as long, entries of tiles do not.
    const std::int64_t least_bytes = (shape.value_bytes == sizeof(double) ? std::int64_t{5} : std::int64_t{12}) << 20;
    constexpr double kScattered = 0.25;  // as choose_panels() has it
    // What panels read of the other side's vector, for each entry: a gather fetches a line of 64 bytes for each product.
    constexpr std::int64_t kMostVectorBytes = 36;
    const std::int64_t vectors = panel_count(shape.rows) * shape.cols + panel_count(shape.cols) * shape.rows;
    return why_not_tiles(shape.rows, shape.cols).empty() && std::max(shape.rows, shape.cols) * shape.value_bytes >= least_bytes &&
           shape.lines_per_entry >= kScattered && vectors * shape.value_bytes <= kMostVectorBytes * shape.nnz;
}

std::string why_not_tiles(std::int64_t rows, std::int64_t cols) {
    // A partial sum of a norm for each panel. Panels end where they have their work or their width: at most so many more than panel_count() says.
    constexpr std::int64_t kMost = kMaxPartials / 4 * kWidest;
    if (std::max(rows, cols) <= kMost) return {};
    return fmt::format("it takes up to {} rows and columns, the matrix has {} and {}", kMost, rows, cols);
}

template <class T>
TileStorage<T>::TileStorage(const CsrMatrix& a, int exponent, InstructionSet set, Narrowing narrowing) : set_(set), nnz_(a.nnz()) {
    std::vector<std::int64_t> in_column(static_cast<std::size_t>(a.cols()), 0);
    for (std::int64_t k = 0; k < nnz_; ++k) ++in_column[static_cast<std::size_t>(a.columns()[k])];
    rows_.firsts = panel_firsts(a.rows(), nnz_, [&](std::int64_t i) { return a.offsets()[i + 1] - a.offsets()[i]; });
    cols_.firsts = panel_firsts(a.cols(), nnz_, [&](std::int64_t j) { return in_column[static_cast<std::size_t>(j)]; });
    rows_.panels.resize(rows_.firsts.size() - 1);
    cols_.panels.resize(cols_.firsts.size() - 1);
    rows_.by_rows = true;
    std::atomic<bool> exact = std::is_same_v<T, double> && narrowing == Narrowing::lossless && nnz_ > 0;
    for_each_chunk(rows_.count(), [&](std::int64_t p) {
        const auto at = static_cast<std::size_t>(p);
        for (std::int64_t k = a.offsets()[rows_.firsts[at]]; k < a.offsets()[rows_.firsts[at + 1]] && exact; ++k) {
            const double value = scaled(a.values()[k], exponent);
            if (static_cast<double>(static_cast<float>(value)) != value) exact = false;
        }
    });
    make_tiles(a, exponent, exact);
    find_cuts(rows_, cols_);
    find_cuts(cols_, rows_);
}

template <class T>
void TileStorage<T>::make_tiles(const CsrMatrix& a, int exponent, bool exact) {
    places_ = HostBuffer<std::uint32_t>(nnz_);
    if (exact) short_values_ = HostBuffer<float>(nnz_);
    else values_ = HostBuffer<T>(nnz_);
    std::vector<std::int32_t> panel_of(static_cast<std::size_t>(a.cols()));
    for (std::size_t q = 0; q < cols_.panels.size(); ++q) {
        std::fill(panel_of.begin() + cols_.firsts[q], panel_of.begin() + cols_.firsts[q + 1], static_cast<std::int32_t>(q));
    }
    const std::size_t width = cols_.panels.size();
    tiles_.assign(rows_.panels.size() * width + 1, nnz_);
    for_each_chunk(rows_.count(), [&](std::int64_t p) {
        const auto at = static_cast<std::size_t>(p);
        const std::int64_t first_row = rows_.firsts[at], end_row = rows_.firsts[at + 1];
        std::vector<std::int64_t> counts(width, 0);
        std::vector<PlacesInTile> places;
        for (std::int64_t k = a.offsets()[first_row]; k < a.offsets()[end_row]; ++k) {
            ++counts[static_cast<std::size_t>(panel_of[static_cast<std::size_t>(a.columns()[k])])];
        }
        std::int64_t before = a.offsets()[first_row];
        for (std::size_t q = 0; q < width; ++q) {
            tiles_[at * width + q] = before;
            places.emplace_back(before, counts[q]);
            before += counts[q];
        }
        for (std::int64_t i = first_row; i < end_row; ++i) {
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
                const std::int32_t j = a.columns()[k];
                const auto q = static_cast<std::size_t>(panel_of[static_cast<std::size_t>(j)]);
                const std::int64_t place = places[q].next();
                places_[place] = static_cast<std::uint32_t>(i - first_row) << 16 | static_cast<std::uint32_t>(j - cols_.firsts[q]);
                const double value = scaled(a.values()[k], exponent);
                if (exact) short_values_[place] = static_cast<float>(value);
                else values_[place] = static_cast<T>(value);
            }
        }
    });
}

template <class T>
template <class F>
void TileStorage<T>::for_each_tile(const Side& side, const Side& other, std::int64_t panel, const F& f) const {
    for (std::int64_t o = 0; o < other.count(); ++o) {
        const auto tile = static_cast<std::size_t>(side.by_rows ? panel * other.count() + o : o * side.count() + panel);
        f(tiles_[tile], tiles_[tile + 1], static_cast<std::size_t>(o));
    }
}

template <class T>
void TileStorage<T>::find_cuts(Side& side, const Side& other) const {
    for_each_chunk(side.count(), [&](std::int64_t p) {
        Panel& panel = side.panels[static_cast<std::size_t>(p)];
        std::vector<std::uint8_t> terms(kWidest, 0);
        std::vector<std::int32_t> place(kWidest, -1);
        for_each_tile(side, other, p, [&](std::int64_t begin, std::int64_t end, std::size_t) {
            for (std::int64_t k = begin; k < end; ++k) {
                const std::size_t i = side.by_rows ? places_[k] >> 16 : places_[k] & 0xffff;
                if (terms[i] == kChain) {
                    terms[i] = 0;
                    if (place[i] < 0) {
                        place[i] = static_cast<std::int32_t>(panel.hot.size());
                        panel.hot.push_back(static_cast<std::uint16_t>(i));
                    }
                    panel.cuts.push_back({k, place[i]});
                }
                ++terms[i];
            }
        });
        panel.hot.shrink_to_fit();
        panel.cuts.shrink_to_fit();
    });
    for (Panel& panel : side.panels) {
        panel.first_total = side.totals;
        side.totals += static_cast<std::int64_t>(panel.hot.size());
    }
}

template <class T>
void TileStorage<T>::run(const Side& side, const Side& other, double a, const T* x, double b, T* y, Scratch& scratch, NormPartials* norm) const {
    // Of a thread: a panel, in cache lines of its own. In a parallel region of the caller's, this is one thread of it.
    const std::int64_t stride = kWidest;
    const std::int64_t threads = std::max(omp_get_max_threads(), omp_get_num_threads());
    if (scratch.sums.size() < threads * stride) scratch.sums = HostBuffer<T>(threads * stride);
    if (scratch.totals.size() < side.totals) scratch.totals = HostBuffer<Compensated<T>>(side.totals);
    double* squares = norm ? norm->sums + norm->count : nullptr;
    const auto with_values = [&]<class V>(const V* values) {
        const TileKernels<T, V> kernels = tile_kernels<T, V>(set_);
        const auto add = side.by_rows ? kernels.add : kernels.add_adjoint;
        for_each_chunk(side.count(), [&](std::int64_t p) {
            const auto at = static_cast<std::size_t>(p);
            const Panel& panel = side.panels[at];
            const std::int64_t first = side.firsts[at], length = side.firsts[at + 1] - first;
            T* const sums = scratch.sums.data() + omp_get_thread_num() * stride;
            Compensated<T>* const totals = scratch.totals.data() + panel.first_total;
            std::fill_n(sums, length, T(0));
            std::fill_n(totals, panel.hot.size(), Compensated<T>());
            auto cut = panel.cuts.begin();
            for_each_tile(side, other, p, [&](std::int64_t begin, std::int64_t end, std::size_t o) {
                if (!side.by_rows && o + 1 < other.panels.size()) {  // A^T y jumps from tile to tile
                    const std::int64_t next = tiles_[(o + 1) * side.panels.size() + at];
                    for (std::int64_t ahead = 0; ahead < kPrefetchBytes; ahead += kCacheLine) {
                        __builtin_prefetch(reinterpret_cast<const char*>(places_.data() + next) + ahead);
                        __builtin_prefetch(reinterpret_cast<const char*>(values + next) + ahead);
                    }
                }
                const T* const from = x + other.firsts[o];
                for (; cut != panel.cuts.end() && cut->entry >= begin && cut->entry < end; ++cut) {
                    add(places_.data() + begin, values + begin, cut->entry - begin, from, sums);
                    begin = cut->entry;
                    T& sum = sums[panel.hot[static_cast<std::size_t>(cut->place)]];
                    totals[cut->place].add(sum);
                    sum = 0;
                }
                add(places_.data() + begin, values + begin, end - begin, from, sums);
            });
            for (std::size_t h = 0; h < panel.hot.size(); ++h) {
                T& sum = sums[panel.hot[h]];
                totals[h].add(sum);
                sum = totals[h].value();
            }
            const double square = kernels.finish(length, static_cast<T>(a), sums, static_cast<T>(b), y + first);
            if (squares) squares[p] = square;
        });
    };
    if (short_values_.empty()) with_values(values_.data());
    else if constexpr (std::is_same_v<T, double>) with_values(short_values_.data());
    if (norm) norm->count += static_cast<std::int32_t>(side.count());
}

template <class T>
std::int64_t TileStorage<T>::bytes() const {
    std::size_t total = tiles_.size() * sizeof(std::int64_t);
    for (const Side* side : {&rows_, &cols_}) {
        for (const Panel& panel : side->panels) total += panel.hot.size() * sizeof(std::uint16_t) + panel.cuts.size() * sizeof(Cut);
    }
    const std::int64_t scratch = std::max(rows_.totals, cols_.totals) * std::int64_t{sizeof(Compensated<T>)} +
                                 omp_get_max_threads() * kWidest * std::int64_t{sizeof(T)};
    return static_cast<std::int64_t>(total) + scratch + places_.bytes() + values_.bytes() + short_values_.bytes();
}

template <class T>
std::string TileStorage<T>::words() const {
    return fmt::format("{} x {} tiles{}", rows_.count(), cols_.count(), short_values_.empty() ? "" : ", values exact in fp32");
}

template class TileStorage<double>;
template class TileStorage<float>;

}  // namespace lsmr::cpu
