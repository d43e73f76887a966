#include "operator/csr_matrix.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "memory/error.hpp"
#include "operator/pairwise_sum.hpp"

namespace lsmr {
namespace {

void check_shape(std::int64_t rows, std::int64_t cols) {
    if (rows < 0 || cols < 0) throw InputError(fmt::format("matrix: {} x {} is not a shape", rows, cols));
    if (rows > kMaxDimension || cols > kMaxDimension) {
        throw InputError(fmt::format("matrix: {} x {} is too large; rows and columns are limited to {}", rows, cols,
                                     kMaxDimension));
    }
}

bool strictly_ascending(const std::int32_t* columns, std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin + 1; k < end; ++k) {
        if (columns[k - 1] >= columns[k]) return false;
    }
    return true;
}

// Stable, so that duplicates are summed in the order given.
void sort_row(std::int32_t* columns, double* values, std::int64_t length) {
    constexpr std::int64_t kInsertionLimit = 32;  // below this, moving beats the allocation of a merge
    if (length <= kInsertionLimit) {
        for (std::int64_t i = 1; i < length; ++i) {
            const std::int32_t column = columns[i];
            const double value = values[i];
            std::int64_t j = i;
            for (; j > 0 && columns[j - 1] > column; --j) {
                columns[j] = columns[j - 1];
                values[j] = values[j - 1];
            }
            columns[j] = column;
            values[j] = value;
        }
        return;
    }
    std::vector<std::pair<std::int32_t, double>> entries(static_cast<std::size_t>(length));
    for (std::int64_t i = 0; i < length; ++i) entries[static_cast<std::size_t>(i)] = {columns[i], values[i]};
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::int64_t i = 0; i < length; ++i) std::tie(columns[i], values[i]) = entries[static_cast<std::size_t>(i)];
}

// Sorts each row and sums repeated columns; returns how many entries were added onto another.
std::int64_t sort_and_sum(std::int64_t rows, HostBuffer<std::int64_t>& offsets, HostBuffer<std::int32_t>& columns,
                          HostBuffer<double>& values) {
    std::int64_t repeated = 0;
#pragma omp parallel for schedule(dynamic, 4096) reduction(+ : repeated)
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t begin = offsets[i];
        const std::int64_t end = offsets[i + 1];
        if (strictly_ascending(columns.data(), begin, end)) continue;
        sort_row(columns.data() + begin, values.data() + begin, end - begin);
        for (std::int64_t k = begin + 1; k < end; ++k) repeated += columns[k] == columns[k - 1];
    }
    if (repeated == 0) return 0;

    // Compact into arrays of the right size, row after row.
    const std::int64_t kept = offsets[rows] - repeated;
    HostBuffer<std::int32_t> new_columns(kept);
    HostBuffer<double> new_values(kept);
    std::int64_t out = 0;
    std::int64_t begin = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t end = offsets[i + 1];
        const std::int64_t row_start = out;
        for (std::int64_t k = begin; k < end; ++k) {
            if (out > row_start && new_columns[out - 1] == columns[k]) {
                new_values[out - 1] += values[k];
            } else {
                new_columns[out] = columns[k];
                new_values[out] = values[k];
                ++out;
            }
        }
        begin = end;
        offsets[i + 1] = out;
    }
    columns = std::move(new_columns);
    values = std::move(new_values);
    return repeated;
}

// `major` names the compressed direction in messages: "row" for CSR, "column" for CSC.
void check_compressed(std::int64_t rows, std::int64_t cols, const HostBuffer<std::int64_t>& offsets,
                      const HostBuffer<std::int32_t>& columns, const HostBuffer<double>& values, const char* major,
                      const char* minor) {
    if (offsets.size() != rows + 1) {
        throw InputError(fmt::format("matrix: offsets has {} entries, {} {}s need {}", offsets.size(), rows, major, rows + 1));
    }
    if (offsets[0] != 0) throw InputError(fmt::format("matrix: offsets[0] is {}, it must be 0", offsets[0]));
    for (std::int64_t i = 0; i < rows; ++i) {
        if (offsets[i + 1] < offsets[i]) {
            throw InputError(fmt::format("matrix: offsets decrease at {} {} ({} after {}); a 32-bit overflow when it was made?",
                                         major, i, offsets[i + 1], offsets[i]));
        }
    }
    const std::int64_t nnz = offsets[rows];
    if (columns.size() != nnz || values.size() != nnz) {
        throw InputError(fmt::format("matrix: offsets end at {}, but there are {} {} indices and {} values", nnz,
                                     columns.size(), minor, values.size()));
    }
    std::int64_t bad = nnz;  // the first bad entry, the same for any number of threads
#pragma omp parallel for schedule(static) reduction(min : bad)
    for (std::int64_t k = 0; k < nnz; ++k) {
        if (columns[k] < 0 || columns[k] >= cols || !std::isfinite(values[k])) bad = std::min(bad, k);
    }
    if (bad == nnz) return;
    if (columns[bad] < 0 || columns[bad] >= cols) {
        throw InputError(fmt::format("matrix: {} index {} at entry {} is outside 0..{}", minor, columns[bad], bad, cols - 1));
    }
    throw InputError(fmt::format("matrix: value {} at entry {} is not finite", values[bad], bad));
}

}  // namespace

CsrMatrix CsrMatrix::from_csr(std::int64_t rows, std::int64_t cols, HostBuffer<std::int64_t> offsets,
                              HostBuffer<std::int32_t> columns, HostBuffer<double> values) {
    check_shape(rows, cols);
    check_compressed(rows, cols, offsets, columns, values, "row", "column");
    CsrMatrix a;
    a.rows_ = rows;
    a.cols_ = cols;
    a.duplicates_summed_ = sort_and_sum(rows, offsets, columns, values);
    a.offsets_ = std::move(offsets);
    a.columns_ = std::move(columns);
    a.values_ = std::move(values);
    return a;
}

CsrMatrix CsrMatrix::from_csc(std::int64_t rows, std::int64_t cols, HostBuffer<std::int64_t> offsets,
                              HostBuffer<std::int32_t> row_indices, HostBuffer<double> values) {
    check_shape(rows, cols);
    check_compressed(cols, rows, offsets, row_indices, values, "column", "row");
    CsrMatrix transpose;
    transpose.rows_ = cols;
    transpose.cols_ = rows;
    transpose.duplicates_summed_ = sort_and_sum(cols, offsets, row_indices, values);
    transpose.offsets_ = std::move(offsets);
    transpose.columns_ = std::move(row_indices);
    transpose.values_ = std::move(values);
    return transpose.transposed();
}

CsrMatrix CsrMatrix::from_coo(std::int64_t rows, std::int64_t cols, std::span<const std::int64_t> row_indices,
                              std::span<const std::int64_t> column_indices, std::span<const double> values) {
    check_shape(rows, cols);
    if (row_indices.size() != values.size() || column_indices.size() != values.size()) {
        throw InputError(fmt::format("matrix: {} row indices, {} column indices and {} values", row_indices.size(),
                                     column_indices.size(), values.size()));
    }
    CsrBuilder builder;
    for (std::size_t k = 0; k < values.size(); ++k) {
        if (row_indices[k] < 0 || row_indices[k] >= rows) {
            throw InputError(fmt::format("matrix: row index {} at entry {} is outside 0..{}", row_indices[k], k, rows - 1));
        }
        if (column_indices[k] < 0 || column_indices[k] >= cols) {
            throw InputError(
                fmt::format("matrix: column index {} at entry {} is outside 0..{}", column_indices[k], k, cols - 1));
        }
        if (!std::isfinite(values[k])) throw InputError(fmt::format("matrix: value {} at entry {} is not finite", values[k], k));
        builder.add(static_cast<std::int32_t>(row_indices[k]), static_cast<std::int32_t>(column_indices[k]), values[k]);
    }
    return builder.build(rows, cols);
}

CsrMatrix CsrMatrix::transposed() const {
    CsrMatrix t;
    t.rows_ = cols_;
    t.cols_ = rows_;
    t.duplicates_summed_ = duplicates_summed_;
    t.offsets_ = HostBuffer<std::int64_t>(cols_ + 1, 0);
    t.columns_ = HostBuffer<std::int32_t>(nnz());
    t.values_ = HostBuffer<double>(nnz());
    if (nnz() == 0) return t;

    // Row panels of equal nnz, one a thread. Each panel counts its entries per column; the prefix over (column, panel) gives each
    // panel its own place to write, so the order within a column is that of the rows, whatever the number of panels.
    // The counts must stay small beside the matrix itself.
    const std::int64_t panels =
        std::max<std::int64_t>(1, std::min<std::int64_t>({omp_get_max_threads(), 16, nnz() / std::max<std::int64_t>(cols_, 1)}));
    std::vector<std::int64_t> panel_rows(static_cast<std::size_t>(panels) + 1, rows_);
    for (std::int64_t p = 0; p < panels; ++p) {
        panel_rows[static_cast<std::size_t>(p)] =
            std::lower_bound(offsets_.begin(), offsets_.end(), nnz() / panels * p) - offsets_.begin();
    }
    panel_rows[0] = 0;
    HostBuffer<std::int64_t> place(panels * cols_, 0);
#pragma omp parallel for schedule(static, 1)
    for (std::int64_t p = 0; p < panels; ++p) {
        std::int64_t* count = place.data() + p * cols_;
        const std::int64_t end = offsets_[panel_rows[static_cast<std::size_t>(p) + 1]];
        for (std::int64_t k = offsets_[panel_rows[static_cast<std::size_t>(p)]]; k < end; ++k) ++count[columns_[k]];
    }
    std::int64_t total = 0;
    for (std::int64_t j = 0; j < cols_; ++j) {
        t.offsets_[j] = total;
        for (std::int64_t p = 0; p < panels; ++p) total += std::exchange(place[p * cols_ + j], total);
    }
    t.offsets_[cols_] = total;
#pragma omp parallel for schedule(static, 1)
    for (std::int64_t p = 0; p < panels; ++p) {
        std::int64_t* next = place.data() + p * cols_;
        for (std::int64_t i = panel_rows[static_cast<std::size_t>(p)]; i < panel_rows[static_cast<std::size_t>(p) + 1]; ++i) {
            for (std::int64_t k = offsets_[i]; k < offsets_[i + 1]; ++k) {
                const std::int64_t out = next[columns_[k]]++;
                t.columns_[out] = static_cast<std::int32_t>(i);
                t.values_[out] = values_[k];
            }
        }
    }
    return t;
}

CsrMatrix CsrMatrix::clone() const {
    CsrMatrix copy;
    copy.rows_ = rows_;
    copy.cols_ = cols_;
    copy.offsets_ = offsets_.clone();
    copy.columns_ = columns_.clone();
    copy.values_ = values_.clone();
    copy.duplicates_summed_ = duplicates_summed_;
    return copy;
}

CsrMatrix CsrMatrix::scaled_by_power_of_two(int exponent) const {
    CsrMatrix copy = clone();
    for (double& value : copy.values_) value = std::ldexp(value, exponent);
    return copy;
}

void CsrBuilder::new_block() {
    blocks_.push_back(std::unique_ptr<Block>(new Block));  // uninitialised, unlike make_unique
    used_ = 0;
}

CsrMatrix CsrBuilder::build(std::int64_t rows, std::int64_t cols) {
    check_shape(rows, cols);
    const std::int64_t count = size();
    CsrMatrix a;
    a.rows_ = rows;
    a.cols_ = cols;
    a.offsets_ = HostBuffer<std::int64_t>(rows + 1, 0);
    if (sorted_by_row_) {
        append_blocks(a, count);
    } else {
        scatter_blocks(a, count);
    }
    blocks_.clear();
    used_ = kBlockEntries;
    sorted_by_row_ = true;
    last_row_ = 0;
    a.duplicates_summed_ = sort_and_sum(rows, a.offsets_, a.columns_, a.values_);
    return a;
}

// Rows came in ascending order: the blocks, one behind the other, are the matrix.
void CsrBuilder::append_blocks(CsrMatrix& a, std::int64_t count) {
    a.columns_ = HostBuffer<std::int32_t>(count);
    a.values_ = HostBuffer<double>(count);
    std::int64_t* const in_row = a.offsets_.data() + 1;
    std::int64_t out = 0;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        const Block& block = *blocks_[b];
        const std::int64_t entries = entries_in(b);
        for (std::int64_t k = 0; k < entries; ++k) ++in_row[block.rows[k]];
        std::copy_n(block.cols, entries, a.columns_.data() + out);
        std::copy_n(block.values, entries, a.values_.data() + out);
        out += entries;
        blocks_[b].reset();
    }
    for (std::int64_t i = 0; i < a.rows_; ++i) a.offsets_[i + 1] += a.offsets_[i];
}

// Any order, in two steps that both stay in the cache: entries go to buckets of neighbouring rows, then each bucket, on
// its own, to its rows. Stable, so that duplicates keep their order. A block is freed once it is distributed, a bucket
// once it is placed.
void CsrBuilder::scatter_blocks(CsrMatrix& a, std::int64_t count) {
    struct Entry {
        std::int32_t row;
        std::int32_t col;
        double value;
    };
    constexpr std::int64_t kBucketEntries =
        1 << 15;                               // 512 KiB: the second-level cache holds it and its share of the result
    constexpr std::int64_t kMaxBuckets = 512;  // each is a stream of writes; more would leave the first-level cache
    const std::int64_t wanted = std::clamp<std::int64_t>(count / kBucketEntries, 1, kMaxBuckets);
    int shift = 0;
    while ((a.rows_ - 1) >> shift >= wanted) ++shift;
    const auto buckets = static_cast<std::size_t>(((a.rows_ - 1) >> shift) + 1);

    std::vector<std::int64_t> sizes(buckets, 0);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        for (std::int64_t k = 0; k < entries_in(b); ++k)
            ++sizes[static_cast<std::size_t>(blocks_[b]->rows[k] >> shift)];
    }
    std::vector<HostBuffer<Entry>> bucket(buckets);
    std::vector<Entry*> next(buckets);
    std::vector<std::int64_t> starts(buckets);
    std::int64_t total = 0;
    for (std::size_t i = 0; i < buckets; ++i) {
        bucket[i] = HostBuffer<Entry>(sizes[i]);
        next[i] = bucket[i].data();
        starts[i] = std::exchange(total, total + sizes[i]);
    }
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        const Block& block = *blocks_[b];
        for (std::int64_t k = 0; k < entries_in(b); ++k) {
            *next[static_cast<std::size_t>(block.rows[k] >> shift)]++ = {block.rows[k], block.cols[k], block.values[k]};
        }
        blocks_[b].reset();
    }

    a.columns_ = HostBuffer<std::int32_t>(count);
    a.values_ = HostBuffer<double>(count);
    // offsets_[i + 1] counts row i, then becomes the place of its next entry, and ends as the end of row i.
    std::int64_t* const place = a.offsets_.data() + 1;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t i = 0; i < buckets; ++i) {
        for (const Entry& entry : bucket[i]) ++place[entry.row];
        const std::int64_t first_row = static_cast<std::int64_t>(i) << shift;
        const std::int64_t last_row = std::min(first_row + (std::int64_t{1} << shift), a.rows_);
        std::int64_t at = starts[i];
        for (std::int64_t row = first_row; row < last_row; ++row) at += std::exchange(place[row], at);
        for (const Entry& entry : bucket[i]) {
            const std::int64_t out = place[entry.row]++;
            a.columns_[out] = entry.col;
            a.values_[out] = entry.value;
        }
        bucket[i] = HostBuffer<Entry>();
    }
}

MatrixSummary summarize(const CsrMatrix& a) {
    MatrixSummary s;
    const std::int64_t nnz = a.nnz();
    for (std::int64_t i = 0; i < a.rows(); ++i) s.empty_rows += a.offsets()[i] == a.offsets()[i + 1];
    std::vector<bool> seen(static_cast<std::size_t>(a.cols()), false);
    for (std::int64_t k = 0; k < nnz; ++k) seen[static_cast<std::size_t>(a.columns()[k])] = true;
    s.empty_cols = a.cols() - std::count(seen.begin(), seen.end(), true);
    s.min = std::numeric_limits<double>::infinity();
    s.max = -s.min;
    for (std::int64_t k = 0; k < nnz; ++k) {
        const double value = a.values()[k];
        if (!std::isfinite(value)) {
            ++s.nonfinite;
            continue;
        }
        s.min = std::min(s.min, value);
        s.max = std::max(s.max, value);
        s.sum += value;
    }
    if (s.nonfinite == nnz) s.min = s.max = 0;
    s.max_abs = std::max(std::abs(s.min), std::abs(s.max));
    s.frobenius = frobenius_norm(a, s.max_abs);
    return s;
}

namespace {

// The largest |f(v)| of `count` values and, in the place of the norm, the sum of f(v)^2. In lanes, which the compiler makes vectors of: terms of a
// lane are added one after another in blocks, lanes and blocks by halves.
template <class F>
EntrySizes squares_and_largest(const double* values, std::int64_t count, const F& f) {
    constexpr std::int64_t kLanes = 8;
    constexpr std::int64_t kBlock = 16 * kLanes;
    double largest[kLanes] = {};
    PairwiseSum squares;
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
        const std::int64_t size = std::min(kBlock, count - begin);
        double sums[kLanes] = {};
        const auto take = [&](std::int64_t k, std::int64_t lane) {
            const double value = f(values[begin + k]);
            const double size_of = std::abs(value);
            largest[lane] = largest[lane] > size_of ? largest[lane] : size_of;
            sums[lane] += value * value;
        };
        const std::int64_t whole = size / kLanes * kLanes;
        for (std::int64_t k = 0; k < whole; k += kLanes) {
#pragma omp simd
            for (std::int64_t lane = 0; lane < kLanes; ++lane) take(k + lane, lane);
        }
        for (std::int64_t k = whole; k < size; ++k) take(k, k - whole);
        squares.add(pairwise_sum<1>(0, kLanes, [&](std::int64_t lane) { return sums[lane]; }));
    }
    return {*std::max_element(largest, largest + kLanes), squares.value()};
}

// Of the chunks of a matrix's values.
EntrySizes together(const std::vector<EntrySizes>& chunks) {
    EntrySizes all;
    for (const EntrySizes& chunk : chunks) all.max_abs = std::max(all.max_abs, chunk.max_abs);
    all.frobenius = pairwise_sum(0, static_cast<std::int64_t>(chunks.size()), [&](std::int64_t c) { return chunks[static_cast<std::size_t>(c)].frobenius; });
    return all;
}

}  // namespace

double frobenius_norm(const CsrMatrix& a, double max_abs) {
    if (max_abs == 0) return 0;
    int exponent = 0;
    std::frexp(max_abs, &exponent);
    // Two factors, since 2^-exponent itself may overflow for subnormal entries.
    const double half = std::ldexp(1.0, -exponent / 2);
    const double rest = std::ldexp(1.0, -exponent + exponent / 2);
    constexpr std::int64_t kChunk = EntrySizer::kChunk;
    std::vector<EntrySizes> chunks(static_cast<std::size_t>((a.nnz() + kChunk - 1) / kChunk));
#pragma omp parallel for schedule(static)
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const std::int64_t begin = static_cast<std::int64_t>(c) * kChunk;
        chunks[c] = squares_and_largest(a.values() + begin, std::min(kChunk, a.nnz() - begin), [=](double value) { return value * half * rest; });
    }
    return std::ldexp(std::sqrt(together(chunks).frobenius), exponent);
}

void EntrySizer::add(std::int64_t c) {
    const std::int64_t begin = c * kChunk;
    chunks_[static_cast<std::size_t>(c)] = squares_and_largest(a_.values() + begin, std::min(kChunk, a_.nnz() - begin), [](double value) { return value; });
}

EntrySizes EntrySizer::sizes() const {
    EntrySizes all = together(chunks_);
    // Here the squares, and those of all entries that count beside the largest, are exact multiples of those of scaled entries.
    constexpr double kSafe = 0x1p400;
    const bool safe = all.max_abs <= kSafe && all.max_abs >= 1 / kSafe;
    all.frobenius = safe ? std::sqrt(all.frobenius) : frobenius_norm(a_, all.max_abs);
    return all;
}

EntrySizes entry_sizes(const CsrMatrix& a) {
    EntrySizer sizer(a);
    const std::int64_t chunks = (a.nnz() + EntrySizer::kChunk - 1) / EntrySizer::kChunk;
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < chunks; ++c) sizer.add(c);
    return sizer.sizes();
}

double sampled_max_abs(const CsrMatrix& a) {
    constexpr std::int64_t kSamples = 4096;
    double largest = 0;
    for (std::int64_t k = 0; k < a.nnz(); k += a.nnz() / kSamples + 1) largest = std::max(largest, std::abs(a.values()[k]));
    return largest;
}

double max_abs_value(const CsrMatrix& a) {
    double largest = 0;
#pragma omp parallel for schedule(static) reduction(max : largest)
    for (std::int64_t k = 0; k < a.nnz(); ++k) largest = std::max(largest, std::abs(a.values()[k]));
    return largest;
}

}  // namespace lsmr
