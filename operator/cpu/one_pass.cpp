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

// f(rows, length, runs) of the groups of `count` rows from `row` on, where column(k) is that of entry k; runs are words.
template <class Column, class F>
void for_each_group(const std::int64_t* offsets, std::int64_t row, std::int64_t count, std::int64_t longest_run, const Column& column, const F& f) {
    std::vector<std::uint32_t> runs;
    for (const std::int64_t end_row = row + count; row < end_row;) {
        const std::int64_t begin = offsets[row] - offsets[0], length = offsets[row + 1] - offsets[row];
        std::int64_t rows = 1;
        const auto alike = [&](std::int64_t other) {
            const std::int64_t at = offsets[other] - offsets[0];
            if (offsets[other + 1] - offsets[other] != length) return false;
            for (std::int64_t k = 0; k < length; ++k) {
                if (column(begin + k) != column(at + k)) return false;
            }
            return true;
        };
        while (rows < kGroupRows && row + rows < end_row && alike(row + rows)) ++rows;
        runs.clear();
        for (std::int64_t k = 0; k < length;) {
            std::int64_t in_run = 1;
            while (in_run < longest_run && k + in_run < length && column(begin + k + in_run) == column(begin + k) + in_run) ++in_run;
            runs.push_back(run_word(column(begin + k), in_run));
            k += in_run;
        }
        f(rows, length, runs);
        row += rows;
    }
}

}  // namespace

GroupCounts count_groups(const CsrMatrix& a, std::int64_t longest_run) {
    GroupCounts counts;
    for (std::int64_t i = 0; i < a.rows(); ++i) counts.longest = std::max(counts.longest, a.offsets()[i + 1] - a.offsets()[i]);
    for_each_sample(a, [&](std::int64_t begin, std::int64_t end) {
        const std::int32_t* columns = a.columns() + a.offsets()[begin];
        for_each_group(a.offsets() + begin, 0, end - begin, longest_run, [&](std::int64_t k) { return std::int64_t{columns[k]}; },
                       [&](std::int64_t rows, std::int64_t length, const std::vector<std::uint32_t>& runs) {
                           counts.entries += rows * length;
                           counts.steps += rows * static_cast<std::int64_t>(runs.size());
                       });
    });
    return counts;
}

template <class T>
bool takes_groups(const CsrMatrix& a, const Kernels<T>& kernels) {
    // Entries of a vector: with fewer, single loads are as fast.
    constexpr std::int64_t kLeastPerStep = 3;
    if (kernels.grouping == Grouping::none || a.cols() >= kMostGroupedColumns) return false;
    const GroupCounts counts = count_groups(a, group_kernels<T, T>(kernels.set).longest_run);
    if (counts.longest > kLongestGrouped) return false;
    if (kernels.grouping == Grouping::all) return true;
    return kernels.set != InstructionSet::portable && counts.entries > 0 && counts.entries > kLeastPerStep * counts.steps;
}
template bool takes_groups(const CsrMatrix&, const Kernels<double>&);
template bool takes_groups(const CsrMatrix&, const Kernels<float>&);

bool one_pass_pays(const OnePassShape& shape) {
    // Without groups the pass is bound by its instructions, one entry after the other, two products by bytes: in fp32 these are few, and so are those of a
    // matrix that stays in the caches. Nor does it gain where z_j is far from z_(j-1), or where rows are so short that they cost more than their entries.
    constexpr std::int64_t kLeastBytes = std::int64_t{16} << 20;
    constexpr std::int64_t kLeastPerRow = 8;
    constexpr double kNear = 0.02;  // cache lines of x for an entry: 50 entries use each, as do those of a stencil of 27 points
    return shape.cols < kMostPairs && (shape.grouped || shape.value_bytes == sizeof(double)) && shape.nnz * (shape.value_bytes + 4) >= kLeastBytes &&
           shape.nnz >= kLeastPerRow * shape.rows && shape.lines_per_entry <= kNear;
}

template <class T>
OnePassRows<T>::OnePassRows(std::span<const RowChunk<T>> chunks, InstructionSet set, std::int64_t cols, bool grouped)
    : chunks_(chunks), set_(set), cols_(cols), grouped_(grouped) {
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
        // Each pair, or sum, is written and read once; a quarter of the entries' bytes at most.
        const auto pair_bytes = static_cast<std::int64_t>(2 * sizeof(T)) * sum_stride(), entry_bytes = static_cast<std::int64_t>(sizeof(T) + sizeof(std::int32_t));
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
    const std::int64_t longest_run = group_kernels<T, T>(set_).longest_run;
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
            part.steps.push_back({rows, static_cast<std::int64_t>(part.flush.size()), static_cast<std::int64_t>(part.words.size())});
            if (grouped_) {
                for_each_group(chunk.offsets, row, rows, longest_run, [&](std::int64_t k) { return std::int64_t{chunk.columns[k]}; },
                               [&](std::int64_t in_group, std::int64_t length, const std::vector<std::uint32_t>& runs) {
                                   part.words.push_back(group_word({in_group, static_cast<std::int64_t>(runs.size()), length}));
                                   part.words.insert(part.words.end(), runs.begin(), runs.end());
                               });
            }
            row += rows;
        }
    }
    part.steps.shrink_to_fit();
    part.hot.shrink_to_fit();
    part.flush.shrink_to_fit();
    part.words.shrink_to_fit();
}

template <class T>
T* OnePassRows<T>::first_sum(const Scratch& scratch, std::int64_t part) const {
    if (grouped_) return const_cast<T*>(scratch.sums.data() + part * (cols_ + kGroupPadding));
    return cols_ == 0 ? nullptr : const_cast<T*>(&scratch.pairs.data()[part * cols_].z);
}

template <class T>
template <bool kProduct>
void OnePassRows<T>::run(double a, const T* x, double b, T* y, const T* kept_y, Scratch& scratch, double* sums) const {
    const std::int64_t sums_of_groups = grouped_ ? parts() * (cols_ + kGroupPadding) : 0;
    if (scratch.sums.size() < sums_of_groups) scratch.sums = HostBuffer<T>(sums_of_groups);
    if (!grouped_ && scratch.pairs.size() < parts() * cols_) scratch.pairs = HostBuffer<Pair<T>>(parts() * cols_);
    if (scratch.totals.size() < totals_) scratch.totals = HostBuffer<Compensated<T>>(totals_);
    const T a_t = static_cast<T>(a), b_t = static_cast<T>(b);
    for_each_chunk(parts(), [&](std::int64_t p) {
        const Part& part = parts_[static_cast<std::size_t>(p)];
        Pair<T>* const pairs = grouped_ ? nullptr : scratch.pairs.data() + p * cols_;
        T* const z = first_sum(scratch, p);
        Compensated<T>* const totals = scratch.totals.data() + part.first_total;
        for (std::size_t tile = 0; tile < touched_.size(); ++tile) {
            if ((touched_[tile] >> p & 1) == 0) continue;
            const std::int64_t first = static_cast<std::int64_t>(tile) * kTile, end = std::min(cols_, first + kTile);
            if (grouped_) {
                std::fill(z + first, z + end, T(0));
            } else {
                for (std::int64_t j = first; j < end; ++j) pairs[j] = {kProduct ? x[j] : T(0), T(0)};
            }
        }
        std::fill_n(totals, part.hot.size(), Compensated<T>());
        const auto sum_of = [&](std::int32_t place) -> T& { return z[part.hot[static_cast<std::size_t>(place)] * sum_stride()]; };
        const auto flush = [&](std::int32_t place) {
            totals[place].add(sum_of(place));
            sum_of(place) = 0;
        };
        auto step = part.steps.begin();
        std::int64_t flushed = 0;
        for (std::int64_t c = part.first_chunk; c < part.end_chunk; ++c) {
            const RowChunk<T>& chunk = chunks_[static_cast<std::size_t>(c)];
            PairwiseSum squares;
            visit_entries(chunk, [&]<class V, class C>(const V* values, const C* columns) {
                const GroupKernels<T, V> groups = group_kernels<T, V>(set_);
                const OnePassKernels<T, V, C> kernels = one_pass_kernels<T, V, C>(set_);
                Pair<T>* const first = grouped_ ? nullptr : pairs + chunk.first_column;
                for (std::int64_t row = 0; row < chunk.rows; ++step) {
                    for (; flushed < step->flush_end; ++flushed) flush(part.flush[static_cast<std::size_t>(flushed)]);
                    const std::int64_t k = chunk.offsets[row] - chunk.offsets[0];
                    const std::int64_t at = chunk.first_row + row;
                    const GroupBlock<V> group{step->rows, part.words.data() + step->first_word, values + k};
                    const RowBlock<T, V, C> block{step->rows, chunk.offsets + row, columns + k, values + k};
                    if constexpr (kProduct) {
                        squares.add(grouped_ ? groups.rows_and_adjoint(group, a_t, x, b_t, y + at, z) : kernels.rows_and_adjoint(block, a_t, first, b_t, y + at));
                    } else if (grouped_) {
                        groups.add_adjoint(group, kept_y + at, z);
                    } else {
                        kernels.add_adjoint(block, kept_y + at, first);
                    }
                    row += step->rows;
                }
            });
            if (sums) sums[c] = squares.value();
        }
        for (std::int32_t h = 0; h < static_cast<std::int32_t>(part.hot.size()); ++h) {
            totals[h].add(sum_of(h));
            sum_of(h) = totals[h].value();
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
    const T* const first = first_sum(scratch, 0);
    const std::int64_t stride = sum_stride(), to_next = parts() > 1 ? first_sum(scratch, 1) - first : 0;
    double* sums = norm ? norm->sums + norm->count : nullptr;
    for_each_chunk(chunks.count, [&](std::int64_t c) {
        BlockSum squares;
        for (std::int64_t j = c * chunks.length; j < std::min(cols_, (c + 1) * chunks.length); ++j) {
            T z = 0;
            for (std::uint32_t left = touched_[static_cast<std::size_t>(j / kTile)]; left != 0; left &= left - 1) {
                z += first[std::countr_zero(left) * to_next + j * stride];
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
    for (const Part& part : parts_) {
        total += part.steps.size() * sizeof(Step) + (part.hot.size() + part.flush.size() + part.words.size()) * sizeof(std::int32_t);
    }
    const std::int64_t sums = grouped_ ? cols_ + kGroupPadding : 2 * cols_;
    return static_cast<std::int64_t>(total) + parts() * sums * std::int64_t{sizeof(T)} + totals_ * std::int64_t{sizeof(Compensated<T>)};
}

template class OnePassRows<double>;
template class OnePassRows<float>;

}  // namespace lsmr::cpu
