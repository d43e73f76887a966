#include "operator/cpu/one_pass.hpp"

#include <algorithm>
#include <type_traits>

#include "operator/cpu/block_sum.hpp"
#include "operator/pairwise_sum.hpp"

namespace lsmr::cpu {
namespace {

constexpr int kMostThreads = 1;
// Terms that are added to one sum, at most.
constexpr std::int32_t kChain = 64;
// Rows of a step. A column occurs once in a row.
constexpr std::int64_t kStepRows = kChain;

}  // namespace

bool one_pass_pays(const OnePassShape& shape) {
    // More threads have more cache and bandwidth for two orientations, and each would fill and add up a z of its own.
    if (shape.threads > kMostThreads || shape.cols >= kMostPairs) return false;
    // The pass is bound by its instructions, one entry after the other, two products by bytes: in fp32 these are few, and so are those of a matrix
    // that stays in the caches. Nor does it gain where z_j is far from z_(j-1), or where rows are so short that they cost more than their entries.
    constexpr std::int64_t kLeastBytes = std::int64_t{16} << 20;
    constexpr std::int64_t kLeastPerRow = 8;
    constexpr double kNear = 0.015;  // cache lines of x for an entry: dozens of entries use each
    return shape.value_bytes == sizeof(double) && shape.nnz * (shape.value_bytes + 4) >= kLeastBytes && shape.nnz >= kLeastPerRow * shape.rows &&
           shape.lines_per_entry <= kNear;
}

template <class T>
OnePassRows<T>::OnePassRows(std::span<const RowChunk<T>> chunks, InstructionSet set, std::int64_t cols, int parts)
    : chunks_(chunks), set_(set), cols_(cols) {
    const auto count = static_cast<std::int64_t>(chunks.size());
    parts_.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(parts, 1, std::max<std::int64_t>(count, 1))));
    for_each_chunk(this->parts(), [&](std::int64_t p) {
        Part& part = parts_[static_cast<std::size_t>(p)];
        part.first_chunk = count * p / this->parts();
        part.end_chunk = count * (p + 1) / this->parts();
        make_steps(part);
    });
    for (Part& part : parts_) {
        part.first_total = totals_;
        totals_ += static_cast<std::int64_t>(part.hot.size());
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
            const auto column = [&](std::int64_t k) {
                return static_cast<std::size_t>(chunk.short_columns ? chunk.first_column + chunk.short_columns[k] : chunk.columns[k]);
            };
            for (std::int64_t k = begin; k < end; ++k) ++in_step[column(k)];
            for (std::int64_t k = begin; k < end; ++k) {
                const std::size_t j = column(k);
                if (in_step[j] == 0) continue;  // seen
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
            }
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
        for (std::int64_t j = 0; j < cols_; ++j) pairs[j] = {kProduct ? x[j] : T(0), T(0)};
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
            T z = scratch.pairs[j].z;
            for (std::int64_t p = 1; p < parts(); ++p) z += scratch.pairs[p * cols_ + j].z;
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
    std::size_t total = 0;
    for (const Part& part : parts_) total += part.steps.size() * sizeof(Step) + (part.hot.size() + part.flush.size()) * sizeof(std::int32_t);
    return static_cast<std::int64_t>(total);
}

template class OnePassRows<double>;
template class OnePassRows<float>;

}  // namespace lsmr::cpu
