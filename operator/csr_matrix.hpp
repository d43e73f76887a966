// CsrMatrix: the sparse matrix in host memory, compressed by rows, fp64 values. Checked once, here, and trusted after.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/host_buffer.hpp"

namespace lsmr {

// A (rows x cols): row i holds columns[k], values[k] for k in [offsets[i], offsets[i + 1]); columns ascend within a row and do
// not repeat. Explicit zeros are kept. offsets has rows + 1 entries. rows and cols are at most 2^31 - 1, nnz is not bounded.
class CsrMatrix {
  public:
    CsrMatrix() : offsets_(1, 0) {}

    // Checks everything that the kernels rely on (shape, monotone offsets, column range, finite values), sorts rows whose
    // columns are not ascending, and sums duplicates in the order given. Takes the arrays over.
    // Throws InputError, naming the position.
    static CsrMatrix from_csr(std::int64_t rows, std::int64_t cols, HostBuffer<std::int64_t> offsets,
                              HostBuffer<std::int32_t> columns, HostBuffer<double> values);
    // The same from compressed columns: offsets has cols + 1 entries, row_indices holds rows.
    static CsrMatrix from_csc(std::int64_t rows, std::int64_t cols, HostBuffer<std::int64_t> offsets,
                              HostBuffer<std::int32_t> row_indices, HostBuffer<double> values);
    // The same from coordinates (row_indices[k], column_indices[k], values[k]), zero-based, in any order.
    static CsrMatrix from_coo(std::int64_t rows, std::int64_t cols, std::span<const std::int64_t> row_indices,
                              std::span<const std::int64_t> column_indices, std::span<const double> values);

    std::int64_t rows() const { return rows_; }
    std::int64_t cols() const { return cols_; }
    std::int64_t nnz() const { return offsets_[rows_]; }
    const std::int64_t* offsets() const { return offsets_.data(); }
    const std::int32_t* columns() const { return columns_.data(); }
    const double* values() const { return values_.data(); }
    std::int64_t bytes() const { return offsets_.bytes() + columns_.bytes() + values_.bytes(); }

    // How many entries were added onto an earlier one at the same place when the matrix was made.
    std::int64_t duplicates_summed() const { return duplicates_summed_; }

    // CSR of A^T, whose arrays are CSC of A. Order within a row of the result: ascending.
    CsrMatrix transposed() const;
    CsrMatrix clone() const;
    // 2^exponent A.
    CsrMatrix scaled_by_power_of_two(int exponent) const;

  private:
    friend class CsrBuilder;
    std::int64_t rows_ = 0;
    std::int64_t cols_ = 0;
    HostBuffer<std::int64_t> offsets_;
    HostBuffer<std::int32_t> columns_;
    HostBuffer<double> values_;
    std::int64_t duplicates_summed_ = 0;
};

// Collects entries in any order, then makes the CsrMatrix: memory grows with what was added (16 bytes an entry, in blocks that
// are freed as they are used), never with what a file's header promised.
class CsrBuilder {
  public:
    CsrBuilder() = default;
    CsrBuilder(CsrBuilder&&) noexcept = default;
    CsrBuilder& operator=(CsrBuilder&&) noexcept = default;

    // Zero-based; the caller has checked 0 <= row < rows, 0 <= col < cols of the later build() and that value is finite.
    void add(std::int32_t row, std::int32_t col, double value) {
        if (used_ == kBlockEntries) new_block();
        Block& block = *blocks_.back();
        sorted_by_row_ &= row >= last_row_;
        last_row_ = row;
        block.rows[used_] = row;
        block.cols[used_] = col;
        block.values[used_] = value;
        ++used_;
    }
    std::int64_t size() const {
        return blocks_.empty() ? 0 : static_cast<std::int64_t>(blocks_.size() - 1) * kBlockEntries + used_;
    }
    // Sorts by row and column, sums duplicates in the order in which they were added. Empties the builder.
    CsrMatrix build(std::int64_t rows, std::int64_t cols);

  private:
    static constexpr std::int64_t kBlockEntries = 1 << 16;  // 1 MiB a block
    struct Block {
        std::int32_t rows[kBlockEntries];
        std::int32_t cols[kBlockEntries];
        double values[kBlockEntries];
    };
    void new_block();
    std::int64_t entries_in(std::size_t block) const { return block + 1 == blocks_.size() ? used_ : kBlockEntries; }
    void append_blocks(CsrMatrix& a, std::int64_t count);
    void scatter_blocks(CsrMatrix& a, std::int64_t count);

    std::vector<std::unique_ptr<Block>> blocks_;
    std::int64_t used_ = kBlockEntries;  // entries in the last block
    bool sorted_by_row_ = true;          // so far
    std::int32_t last_row_ = 0;
};

// What a person wants to know of a matrix before solving with it.
struct MatrixSummary {
    std::int64_t empty_rows = 0;
    std::int64_t empty_cols = 0;
    double min = 0;   // over stored values; 0 where there are none
    double max = 0;
    double sum = 0;
    std::int64_t nonfinite = 0;
    double max_abs = 0;
    double frobenius = 0;  // ||A||_F, safe against overflow and underflow of the squares
};
MatrixSummary summarize(const CsrMatrix& a);

// max |a_ij|, 0 for an empty matrix.
double max_abs_value(const CsrMatrix& a);
// The same of some thousand entries at even distances.
double sampled_max_abs(const CsrMatrix& a);
// ||A||_F for entries of magnitude up to max_abs. The same bits for any number of threads.
double frobenius_norm(const CsrMatrix& a, double max_abs);
// Both, the same bits, in one pass over the values but for entries near the ends of the range.
struct EntrySizes {
    double max_abs = 0;
    double frobenius = 0;
};
EntrySizes entry_sizes(const CsrMatrix& a);
// The same, to the bit, from who reads the values anyway: chunk after chunk, in any order and from several threads, each once.
class EntrySizer {
  public:
    static constexpr std::int64_t kChunk = 1 << 16;  // entries; fixed, so that the sum does not depend on the number of threads
    explicit EntrySizer(const CsrMatrix& a) : a_(a), chunks_(static_cast<std::size_t>((a.nnz() + kChunk - 1) / kChunk)) {}
    // The entries from c kChunk on.
    void add(std::int64_t c);
    // Once all were added.
    EntrySizes sizes() const;

  private:
    const CsrMatrix& a_;
    std::vector<EntrySizes> chunks_;  // frobenius: the sum of squares
};

// Largest row or column count that the kernels address with 32-bit indices.
inline constexpr std::int64_t kMaxDimension = (std::int64_t{1} << 31) - 1;
// Most entries that offsets of 32 bits count on a GPU: a loop over a row steps past its end before it stops, by less than 2^16.
inline constexpr std::int64_t kMaxNarrowEntries = (std::int64_t{1} << 31) - 1 - (1 << 16);

}  // namespace lsmr
