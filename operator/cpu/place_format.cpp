#include "operator/cpu/place_format.hpp"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "memory/error.hpp"
#include "memory/host_buffer.hpp"
#include "operator/cpu/csr_kernels.hpp"
#include "operator/cpu/csr_rows.hpp"
#include "operator/cpu/row_chunks.hpp"
#include "operator/profile.hpp"

namespace lsmr::cpu {
namespace {

// What a place without an entry holds: no entry is a NaN, so it is skipped, and a non-finite x reaches only rows with an entry there.
template <class T>
constexpr T kAbsent = std::numeric_limits<T>::quiet_NaN();

template <class T>
T add_product(T sum, T stored, T x) {
    return stored == stored ? sum + stored * x : sum;
}

template <class T>
T stored_value(double value, int exponent) {
    return static_cast<T>(std::ldexp(value, exponent));
}

std::string fill_words(std::int64_t nnz, double places) {
    return fmt::format("{:.1f} % of the places hold entries", places > 0 ? 100.0 * static_cast<double>(nnz) / places : 100.0);
}

// The first rows of `count` chunks of equal length, and the end.
std::vector<std::int64_t> even_chunks(std::int64_t rows, std::int64_t count) {
    const std::int64_t length = std::max<std::int64_t>(1, (rows + count - 1) / count);
    std::vector<std::int64_t> first{0};
    while (first.back() < rows) first.push_back(std::min(rows, first.back() + length));
    return first;
}

// BSR, and Blocked-ELL: there every block row has as many blocks, of column -1 after its last one.
template <class T>
class BlockFormat final : public RowFormat<T> {
  public:
    BlockFormat(const CsrMatrix& a, int exponent, const SpmvChoice& choice)
        : rows_(a.rows()), cols_(a.cols()), nnz_(a.nnz()), block_rows_(choice.block_rows), block_cols_(choice.block_cols), order_(choice.order),
          offsets_((a.rows() + choice.block_rows - 1) / choice.block_rows + 1) {
        const std::int64_t block_row_count = offsets_.size() - 1;
        // f(block, column, i, k): the blocks of a block row, and in each the entries.
        const auto walk = [&](std::int64_t block_row, const auto& open, const auto& put) {
            std::vector<std::int64_t> next;
            const std::int64_t first = block_row * block_rows_;
            const std::int64_t height = std::min<std::int64_t>(block_rows_, rows_ - first);
            for (std::int64_t r = 0; r < height; ++r) next.push_back(a.offsets()[first + r]);
            for (std::int64_t number = 0;; ++number) {
                std::int64_t column = -1;
                for (std::int64_t r = 0; r < height; ++r) {
                    const std::int64_t k = next[static_cast<std::size_t>(r)];
                    if (k == a.offsets()[first + r + 1]) continue;
                    const std::int64_t here = a.columns()[k] / block_cols_;
                    column = column < 0 ? here : std::min(column, here);
                }
                if (column < 0) return number;
                open(number, column);
                for (std::int64_t r = 0; r < height; ++r) {
                    std::int64_t& k = next[static_cast<std::size_t>(r)];
                    for (; k < a.offsets()[first + r + 1] && a.columns()[k] / block_cols_ == column; ++k) put(number, r, a.columns()[k] - column * block_cols_, k);
                }
            }
        };
        const auto nothing = [](auto...) {};
        std::vector<std::int64_t> counts(static_cast<std::size_t>(block_row_count));
#pragma omp parallel for schedule(static)
        for (std::int64_t i = 0; i < block_row_count; ++i) counts[static_cast<std::size_t>(i)] = walk(i, nothing, nothing);
        if (choice.kernel == SpmvKernel::bell && block_row_count > 0) {
            std::fill(counts.begin(), counts.end(), *std::max_element(counts.begin(), counts.end()));
        }
        offsets_[0] = 0;
        for (std::int64_t i = 0; i < block_row_count; ++i) offsets_[i + 1] = offsets_[i] + counts[static_cast<std::size_t>(i)];
        const std::int64_t places = block_rows_ * block_cols_;
        columns_ = HostBuffer<std::int32_t>(offsets_[block_row_count]);
        values_ = HostBuffer<T>(offsets_[block_row_count] * places);
        std::vector<std::int64_t> place_offsets(offsets_.begin(), offsets_.end());
        for (std::int64_t& offset : place_offsets) offset *= places;
        chunks_ = balanced_chunks(block_row_count, place_offsets.data());
        for_each_chunk(static_cast<std::int64_t>(chunks_.size()) - 1, [&](std::int64_t c) {
            for (std::int64_t i = chunks_[static_cast<std::size_t>(c)]; i < chunks_[static_cast<std::size_t>(c) + 1]; ++i) {
                std::fill(columns_.data() + offsets_[i], columns_.data() + offsets_[i + 1], -1);
                std::fill(values_.data() + offsets_[i] * places, values_.data() + offsets_[i + 1] * places, kAbsent<T>);
                walk(
                    i, [&](std::int64_t number, std::int64_t column) { columns_[offsets_[i] + number] = static_cast<std::int32_t>(column); },
                    [&](std::int64_t number, std::int64_t r, std::int64_t inside, std::int64_t k) {
                        const std::int64_t place = order_ == BlockOrder::row_major ? r * block_cols_ + inside : inside * block_rows_ + r;
                        values_[(offsets_[i] + number) * places + place] = stored_value<T>(a.values()[k], exponent);
                    });
            }
        });
    }

    void apply(double a, const T* x, double b, T* y, NormPartials* norm) const override {
        run_chunks(chunks_, a, b, y, norm, [&](std::int64_t chunk_first, std::int64_t chunk_end, Finish<T>& finish) {
            for (std::int64_t i = chunk_first; i < chunk_end; ++i) {
                T sums[kLargestBlockSide] = {};
                add_blocks(offsets_[i], offsets_[i + 1], x, sums);
                const std::int64_t row = i * block_rows_;
                for (std::int64_t r = 0; r < std::min(block_rows_, rows_ - row); ++r) finish(row + r, sums[r]);
            }
        });
    }
    std::int64_t bytes() const override { return offsets_.bytes() + columns_.bytes() + values_.bytes(); }
    std::string words() const override {
        return fmt::format("OpenMP, {} blocks, {}", columns_.size(), fill_words(nnz_, static_cast<double>(values_.size())));
    }

  private:
    // sums += blocks [begin, end) times x: long rows by halves.
    void add_blocks(std::int64_t begin, std::int64_t end, const T* x, T* sums) const {
        if (end - begin > kRowSteps) {
            const std::int64_t middle = begin + half_of_row(end - begin, 1);
            T right[kLargestBlockSide] = {};
            add_blocks(begin, middle, x, sums);
            add_blocks(middle, end, x, right);
            for (std::int64_t r = 0; r < block_rows_; ++r) sums[r] += right[r];
            return;
        }
        const T* block = values_.data() + begin * block_rows_ * block_cols_;
        for (std::int64_t k = begin; k < end && columns_[k] >= 0; ++k, block += block_rows_ * block_cols_) {
            const std::int64_t first = columns_[k] * block_cols_;
            const std::int64_t width = std::min(block_cols_, cols_ - first);  // of a ragged last block
            if (order_ == BlockOrder::column_major) {
                for (std::int64_t j = 0; j < width; ++j) {
                    for (std::int64_t r = 0; r < block_rows_; ++r) sums[r] = add_product(sums[r], block[j * block_rows_ + r], x[first + j]);
                }
            } else {
                for (std::int64_t r = 0; r < block_rows_; ++r) {
                    for (std::int64_t j = 0; j < width; ++j) sums[r] = add_product(sums[r], block[r * block_cols_ + j], x[first + j]);
                }
            }
        }
    }

    std::int64_t rows_;
    std::int64_t cols_;
    std::int64_t nnz_;
    std::int64_t block_rows_;
    std::int64_t block_cols_;
    BlockOrder order_;
    HostBuffer<std::int64_t> offsets_;  // of block rows, in blocks
    HostBuffer<std::int32_t> columns_;
    HostBuffer<T> values_;
    std::vector<std::int64_t> chunks_;  // of block rows
};

template <class T>
class DiagonalFormat final : public RowFormat<T> {
  public:
    DiagonalFormat(const CsrMatrix& a, int exponent)
        : rows_(a.rows()), cols_(a.cols()), nnz_(a.nnz()), chunks_(even_chunks(a.rows(), VectorChunks(a.rows()).count)) {
        if (nnz_ > 0) {
            std::vector<char> occupied(static_cast<std::size_t>(rows_ + cols_ - 1), 0);
            for (std::int64_t i = 0; i < rows_; ++i) {
                for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) occupied[static_cast<std::size_t>(rows_ - 1 - i + a.columns()[k])] = 1;
            }
            for (std::size_t d = 0; d < occupied.size(); ++d) {
                if (occupied[d] != 0) diagonals_.push_back(static_cast<std::int64_t>(d) - (rows_ - 1));
            }
        }
        if (static_cast<std::int64_t>(diagonals_.size()) > kDiagonalCap) {
            throw InputError(fmt::format("dia: the entries lie on {} diagonals, and at most {} are stored", diagonals_.size(), kDiagonalCap));
        }
        values_ = HostBuffer<T>(static_cast<std::int64_t>(diagonals_.size()) * rows_);
        std::fill(values_.begin(), values_.end(), kAbsent<T>);
        for (std::int64_t i = 0; i < rows_; ++i) {
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
                const auto d = std::lower_bound(diagonals_.begin(), diagonals_.end(), a.columns()[k] - i) - diagonals_.begin();
                values_[d * rows_ + i] = stored_value<T>(a.values()[k], exponent);
            }
        }
    }

    void apply(double a, const T* x, double b, T* y, NormPartials* norm) const override {
        run_chunks(chunks_, a, b, y, norm, [&](std::int64_t chunk_first, std::int64_t chunk_end, Finish<T>& finish) {
            for (std::int64_t first = chunk_first; first < chunk_end; first += kTile) {
                const std::int64_t count = std::min(kTile, chunk_end - first);
                T sums[kTile] = {};
                add_diagonals(0, static_cast<std::int64_t>(diagonals_.size()), first, count, x, sums);
                for (std::int64_t i = 0; i < count; ++i) finish(first + i, sums[i]);
            }
        });
    }
    std::int64_t bytes() const override { return values_.bytes() + static_cast<std::int64_t>(diagonals_.size() * sizeof(std::int64_t)); }
    std::string words() const override { return fmt::format("OpenMP, {} diagonals, {}", diagonals_.size(), fill_words(nnz_, static_cast<double>(values_.size()))); }

  private:
    static constexpr std::int64_t kTile = 512;  // sums of so many rows stay in the first-level cache

    // sums += diagonals [begin, end) times x, in `count` rows: many by halves.
    void add_diagonals(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t count, const T* x, T* sums) const {
        if (end - begin > 2 * kRowSteps) {  // a stencil's 27 in one go
            const std::int64_t middle = begin + half_of_row(end - begin, 1);
            T right[kTile] = {};
            add_diagonals(begin, middle, first, count, x, sums);
            add_diagonals(middle, end, first, count, x, right);
            for (std::int64_t i = 0; i < count; ++i) sums[i] += right[i];
            return;
        }
        for (std::int64_t d = begin; d < end; ++d) {
            const T* values = values_.data() + d * rows_ + first;
            const std::int64_t column = first + diagonals_[static_cast<std::size_t>(d)];  // of the tile's first row
            const std::int64_t stop = std::min(count, cols_ - column);
            for (std::int64_t i = std::max<std::int64_t>(0, -column); i < stop; ++i) sums[i] = add_product(sums[i], values[i], x[column + i]);
        }
    }

    std::int64_t rows_;
    std::int64_t cols_;
    std::int64_t nnz_;
    std::vector<std::int64_t> diagonals_;  // columns less rows, ascending
    HostBuffer<T> values_;
    std::vector<std::int64_t> chunks_;  // of rows
};

// All places, row by row, by Eigen: a non-finite x reaches every row.
template <class T>
class DenseFormat final : public RowFormat<T> {
  public:
    DenseFormat(const CsrMatrix& a, int exponent) : rows_(a.rows()), cols_(a.cols()), nnz_(a.nnz()) {
        if (cols_ > 0 && rows_ > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(T)) / cols_) {
            throw InputError(fmt::format("dense: {} x {} values do not fit in memory", rows_, cols_));
        }
        values_ = HostBuffer<T>(rows_ * cols_);
        std::fill(values_.begin(), values_.end(), T(0));
        for (std::int64_t i = 0; i < rows_; ++i) {
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) values_[i * cols_ + a.columns()[k]] = stored_value<T>(a.values()[k], exponent);
        }
        constexpr std::int64_t kChunkPlaces = 32 * 1024;
        chunks_ = even_chunks(rows_, std::clamp<std::int64_t>(values_.size() / kChunkPlaces, 1, kMaxPartials));
    }

    void apply(double a, const T* x, double b, T* y, NormPartials* norm) const override {
        run_chunks(chunks_, a, b, y, norm, [&](std::int64_t first, std::int64_t end, Finish<T>& finish) {
            const Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>> matrix(values_.data() + first * cols_, end - first, cols_);
            const Eigen::Map<const Eigen::Vector<T, Eigen::Dynamic>> from(x, cols_);
            Eigen::Vector<T, Eigen::Dynamic> sums(end - first);
            sums.noalias() = matrix * from;
            for (std::int64_t i = first; i < end; ++i) finish(i, sums[i - first]);
        });
    }
    std::int64_t bytes() const override { return values_.bytes(); }
    std::string words() const override {
        return "OpenMP, " + fill_words(nnz_, static_cast<double>(values_.size())) +
               (nnz_ < values_.size() ? "; a non-finite x reaches all rows, since the others are zeros" : "");
    }

  private:
    std::int64_t rows_;
    std::int64_t cols_;
    std::int64_t nnz_;
    HostBuffer<T> values_;
    std::vector<std::int64_t> chunks_;  // of rows
};

}  // namespace

template <class T>
std::unique_ptr<RowFormat<T>> make_place_format(const CsrMatrix& a, int exponent, const SpmvChoice& choice) {
    switch (choice.kernel) {
        case SpmvKernel::bsr:
        case SpmvKernel::bell: return std::make_unique<BlockFormat<T>>(a, exponent, choice);
        case SpmvKernel::dia: return std::make_unique<DiagonalFormat<T>>(a, exponent);
        case SpmvKernel::dense: return std::make_unique<DenseFormat<T>>(a, exponent);
        default: throw InternalError("make_place_format: no such format");
    }
}
template std::unique_ptr<RowFormat<double>> make_place_format(const CsrMatrix&, int, const SpmvChoice&);
template std::unique_ptr<RowFormat<float>> make_place_format(const CsrMatrix&, int, const SpmvChoice&);

}  // namespace lsmr::cpu
