#include "operator/cpu/one_pass.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "operator/cpu/block_sum.hpp"
#include "operator/pairwise_sum.hpp"

namespace lsmr::cpu {
namespace {

// Terms that are added to one sum, at most.
constexpr std::int32_t kChain = 64;
// Rows of a step. A column occurs once in a row.
constexpr std::int64_t kStepRows = kChain;

constexpr std::int64_t kTile = 64;  // columns

// f(column) of each of a chunk's entries from begin to end.
template <class T, class F>
void for_each_column(const RowChunk<T>& chunk, std::int64_t begin, std::int64_t end, const F& f) {
    for (std::int64_t k = begin; k < end; ++k) {
        f(static_cast<std::size_t>(chunk.short_columns ? chunk.first_column + chunk.short_columns[k] : chunk.columns[k]));
    }
}

}  // namespace

bool one_pass_pays(const OnePassShape& shape) {
    // The pass is bound by its instructions, one entry after the other, two products by bytes: in fp32 these are few, and so are those of a matrix
    // that stays in the caches. Nor does it gain where z_j is far from z_(j-1), or where rows are so short that they cost more than their entries.
    constexpr std::int64_t kLeastBytes = std::int64_t{16} << 20;
    constexpr std::int64_t kLeastPerRow = 8;
    constexpr double kNear = 0.015;  // cache lines of x for an entry: dozens of entries use each
    return shape.cols < kMostPairs && shape.value_bytes == sizeof(double) && shape.nnz * (shape.value_bytes + 4) >= kLeastBytes &&
           shape.nnz >= kLeastPerRow * shape.rows && shape.lines_per_entry <= kNear;
}

template <class T>
OnePassRows<T>::OnePassRows(std::span<const RowChunk<T>> chunks, InstructionSet set, std::int64_t cols) : chunks_(chunks), set_(set), cols_(cols) {
    choose_parts();
    for_each_chunk(parts(), [&](std::int64_t p) { make_steps(parts_[static_cast<std::size_t>(p)]); });
    for (Part& part : parts_) {
        part.first_total = totals_;
        totals_ += static_cast<std::int64_t>(part.hot.size());
    }
}

template <class T>
void OnePassRows<T>::choose_parts() {
    const auto count = static_cast<std::int64_t>(chunks_.size());
    std::int64_t parts = std::clamp<std::int64_t>(count, 1, kMostParts);
    const auto first_chunk = [&](std::int64_t p) { return count * p / parts; };
    const std::int64_t tiles = (cols_ + kTile - 1) / kTile;
    std::vector<std::vector<std::uint8_t>> has(static_cast<std::size_t>(parts));  // tiles of each part
    std::vector<std::int64_t> entries(static_cast<std::size_t>(parts), 0);
    const auto look = [&] {
        for_each_chunk(parts, [&](std::int64_t p) {
            auto& mine = has[static_cast<std::size_t>(p)];
            mine.assign(static_cast<std::size_t>(tiles), 0);
            entries[static_cast<std::size_t>(p)] = 0;
            for (std::int64_t c = first_chunk(p); c < first_chunk(p + 1); ++c) {
                const RowChunk<T>& chunk = chunks_[static_cast<std::size_t>(c)];
                const std::int64_t end = chunk.offsets[chunk.rows] - chunk.offsets[0];
                entries[static_cast<std::size_t>(p)] += end;
                for_each_column(chunk, 0, end, [&](std::size_t j) { mine[j / kTile] = 1; });
            }
        });
    };
    for (;; parts /= 2) {
        look();
        std::int64_t pairs = 0, nnz = 0;
        for (std::int64_t p = 0; p < parts; ++p) {
            const auto& mine = has[static_cast<std::size_t>(p)];
            pairs += kTile * std::count(mine.begin(), mine.end(), std::uint8_t{1});
            nnz += entries[static_cast<std::size_t>(p)];
        }
        // Each pair is written and read once; a quarter of the entries' bytes at most.
        const auto pair_bytes = static_cast<std::int64_t>(2 * sizeof(Pair<T>)), entry_bytes = static_cast<std::int64_t>(sizeof(T) + sizeof(std::int32_t));
        if (parts == 1 || 4 * pairs * pair_bytes <= nnz * entry_bytes) break;
    }
    touched_.assign(static_cast<std::size_t>(tiles), 0);
    parts_.resize(static_cast<std::size_t>(parts));
    for (std::int64_t p = 0; p < parts; ++p) {
        parts_[static_cast<std::size_t>(p)].first_chunk = first_chunk(p);
        parts_[static_cast<std::size_t>(p)].end_chunk = first_chunk(p + 1);
        for (std::size_t tile = 0; tile < touched_.size(); ++tile) touched_[tile] |= static_cast<std::uint32_t>(has[static_cast<std::size_t>(p)][tile]) << p;
    }
}

template <class T>
void OnePassRows<T>::make_steps(Part& part) const {
    std::vector<std::int32_t> terms(static_cast<std::size_t>(cols_), 0);  // in z_j, with those of the step
    std::vector<std::int32_t> place(static_cast<std::size_t>(cols_), -1);  // in hot
    std::vector<std::int32_t> in_step(static_cast<std::size_t>(cols_), 0);
    for (std::int64_t c = part.first_chunk; c < part.end_chunk; ++c) {
        const RowChunk<T>& chunk = chunks_[static_cast<std::size_t>(c)];
        for (std::int64_t row = 0; row < chunk.rows;) {
            const std::int64_t rows = std::min(kStepRows, chunk.rows - row);
            const std::int64_t begin = chunk.offsets[row] - chunk.offsets[0];
            const std::int64_t end = chunk.offsets[row + rows] - chunk.offsets[0];
            for_each_column(chunk, begin, end, [&](std::size_t j) { ++in_step[j]; });
            for_each_column(chunk, begin, end, [&](std::size_t j) {
                if (in_step[j] == 0) return;  // seen
                if (terms[j] + in_step[j] > kChain) {
                    terms[j] = 0;
                    if (place[j] < 0) {
                        place[j] = static_cast<std::int32_t>(part.hot.size());
                        part.hot.push_back(static_cast<std::int32_t>(j));
                    }
                    part.flush.push_back(place[j]);
                }
                terms[j] += in_step[j];
                in_step[j] = 0;
            });
            part.steps.push_back({rows, static_cast<std::int64_t>(part.flush.size())});
            row += rows;
        }
    }
    part.steps.shrink_to_fit();
    part.hot.shrink_to_fit();
    part.flush.shrink_to_fit();
}

template <class T>
template <bool kProduct>
void OnePassRows<T>::run(double a, const T* x, double b, T* y, const T* kept_y, Scratch& scratch, double* sums) const {
    if (scratch.pairs.size() < parts() * cols_) scratch.pairs = HostBuffer<Pair<T>>(parts() * cols_);
    if (scratch.totals.size() < totals_) scratch.totals = HostBuffer<Compensated<T>>(totals_);
    for_each_chunk(parts(), [&](std::int64_t p) {
        const Part& part = parts_[static_cast<std::size_t>(p)];
        Pair<T>* const pairs = scratch.pairs.data() + p * cols_;
        Compensated<T>* const totals = scratch.totals.data() + part.first_total;
        for (std::size_t tile = 0; tile < touched_.size(); ++tile) {
            if ((touched_[tile] >> p & 1) == 0) continue;
            const std::int64_t first = static_cast<std::int64_t>(tile) * kTile;
            for (std::int64_t j = first; j < std::min(cols_, first + kTile); ++j) pairs[j] = {kProduct ? x[j] : T(0), T(0)};
        }
        std::fill_n(totals, part.hot.size(), Compensated<T>());
        const auto flush = [&](std::int32_t place) {
            T& z = pairs[part.hot[static_cast<std::size_t>(place)]].z;
            totals[place].add(z);
            z = 0;
        };
        auto step = part.steps.begin();
        std::int64_t flushed = 0;
        for (std::int64_t c = part.first_chunk; c < part.end_chunk; ++c) {
            const RowChunk<T>& chunk = chunks_[static_cast<std::size_t>(c)];
            PairwiseSum squares;
            visit_entries(chunk, [&]<class V, class C>(const V* values, const C* columns) {
                const OnePassKernels<T, V, C> kernels = one_pass_kernels<T, V, C>(set_);
                Pair<T>* const first = pairs + chunk.first_column;
                for (std::int64_t row = 0; row < chunk.rows; ++step) {
                    for (; flushed < step->flush_end; ++flushed) flush(part.flush[static_cast<std::size_t>(flushed)]);
                    const std::int64_t k = chunk.offsets[row] - chunk.offsets[0];
                    const RowBlock<T, V, C> block{step->rows, chunk.offsets + row, columns + k, values + k};
                    const std::int64_t at = chunk.first_row + row;
                    if constexpr (kProduct) squares.add(kernels.rows_and_adjoint(block, static_cast<T>(a), first, static_cast<T>(b), y + at));
                    else kernels.add_adjoint(block, kept_y + at, first);
                    row += step->rows;
                }
            });
            if (sums) sums[c] = squares.value();
        }
        for (std::size_t h = 0; h < part.hot.size(); ++h) {
            T& z = pairs[part.hot[h]].z;
            totals[h].add(z);
            z = totals[h].value();
        }
    });
}

template <class T>
void OnePassRows<T>::apply_both(double a, const T* x, double b, T* y, Scratch& scratch, NormPartials* norm) const {
    run<true>(a, x, b, y, nullptr, scratch, norm ? norm->sums + norm->count : nullptr);
    if (norm) norm->count += static_cast<std::int32_t>(chunks_.size());
}

template <class T>
void OnePassRows<T>::keep_adjoint(const T* y, Scratch& scratch) const {
    run<false>(0, nullptr, 0, nullptr, y, scratch, nullptr);
}

template <class T>
void OnePassRows<T>::apply_kept(double a, double b, T* x, const Scratch& scratch, NormPartials* norm) const {
    const VectorChunks chunks(cols_);
    const T a_t = static_cast<T>(a);
    const T b_t = static_cast<T>(b);
    double* sums = norm ? norm->sums + norm->count : nullptr;
    for_each_chunk(chunks.count, [&](std::int64_t c) {
        BlockSum squares;
        for (std::int64_t j = c * chunks.length; j < std::min(cols_, (c + 1) * chunks.length); ++j) {
            T z = 0;
            for (std::uint32_t left = touched_[static_cast<std::size_t>(j / kTile)]; left != 0; left &= left - 1) {
                z += scratch.pairs[std::countr_zero(left) * cols_ + j].z;
            }
            const T product = a_t * z;
            x[j] = b_t != T(0) ? product + b_t * x[j] : product;
            squares.add(static_cast<double>(x[j]) * static_cast<double>(x[j]));
        }
        if (sums) sums[c] = squares.value();
    });
    if (norm) norm->count += static_cast<std::int32_t>(chunks.count);
}

template <class T>
std::int64_t OnePassRows<T>::bytes() const {
    std::size_t total = touched_.size() * sizeof(std::uint32_t);
    for (const Part& part : parts_) total += part.steps.size() * sizeof(Step) + (part.hot.size() + part.flush.size()) * sizeof(std::int32_t);
    const auto pair = std::int64_t{sizeof(Pair<T>)}, hot = std::int64_t{sizeof(Compensated<T>)};
    return static_cast<std::int64_t>(total) + parts() * cols_ * pair + totals_ * hot;
}

template class OnePassRows<double>;
template class OnePassRows<float>;

}  // namespace lsmr::cpu
