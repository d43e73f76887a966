// One orientation of a matrix as the CPU's products read it: panels of columns, in chunks of rows, narrowed where nothing is lost.
//
// Products are bound by memory. Fewer bytes an entry are time: 12 in fp64 become 10 where columns fit in 16 bits (those of a chunk
// count from its first one), 8 where all values are exact in fp32, 6 where both hold; the arithmetic stays that of T and no bit of a
// product changes. And where rows gather from all over a long x, panels of columns keep the part of x in use in the second-level cache:
// y <- a A_1 x_1 + b y, then y <- a A_p x_p + y for the others. In the caches gathers bind: rows of like length go in slices.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/cpu/csr_kernels.hpp"
#include "operator/matrix_operator.hpp"

namespace lsmr::cpu {

enum class Narrowing { none, values, lossless };  // values: these alone; lossless: columns too
enum class Slicing { none, where_it_pays, all };  // all: of rows that are not too long
enum class Grouping { none, where_it_pays, all };  // of one pass; all: where the groups can hold the rows
// Whether arrays that need no other form are read where they are, or copied as soon as one array is, so that the matrix can go.
enum class Sharing { in_place, copied };

// How the matrix is stored and multiplied; tests and measurements force what make_cpu_operator() would not choose.
template <class T>
struct Kernels {
    InstructionSet set = best_instruction_set<T>();
    Narrowing narrowing = Narrowing::lossless;
    std::int64_t panels = 0;  // of columns; 0: as many as choose_panels() says
    Slicing slicing = Slicing::where_it_pays;
    Grouping grouping = Grouping::where_it_pays;
};

// How many panels of columns pay. lines_per_entry: cache lines of x that a chunk of rows touches, for each of its entries.
std::int64_t choose_panels(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t value_bytes, double lines_per_entry);

// Cache lines of x, each of so many values, that some neighbouring rows touch, for each of their entries: few where neighbouring rows have
// neighbouring columns. Samples.
double lines_per_entry(const CsrMatrix& a, std::int64_t values_per_line);
inline constexpr std::int64_t kCacheLine = 64;

// f(begin, end) of some runs of rows all over the matrix, about what a first-level cache sees of x each.
template <class F>
void for_each_sample(const CsrMatrix& a, const F& f) {
    constexpr std::size_t kSamples = 16;
    constexpr std::int64_t kSampleWork = 32 * 1024;
    const std::vector<std::int64_t> firsts = balanced_chunks(a.rows(), a.offsets(), kSampleWork);
    const std::size_t count = firsts.size() - 1;
    const std::size_t samples = std::min(count, kSamples);
    for (std::size_t s = 0; s < samples; ++s) f(firsts[count * s / samples], firsts[count * s / samples + 1]);
}

// What slices would hold.
struct SliceCounts {
    std::int64_t entries = 0;
    std::int64_t places = 0;
    std::int64_t longest = 0;  // row
};
bool slices_pay(const SliceCounts& counts);
inline constexpr std::int64_t kLongestSliced = 512;  // row, entries

struct CsrArrays {
    HostBuffer<std::int64_t> offsets;
    HostBuffer<std::int32_t> columns;
    HostBuffer<double> values;
    std::int64_t bytes() const { return offsets.bytes() + columns.bytes() + values.bytes(); }
};

// A panel, or the whole matrix.
template <class T>
class RowPanel {
  public:
    // 2^exponent a, rounded to T, in chunks of rows that begin at `firsts`, the last being the end.
    RowPanel(const CsrView<double>& a, const std::vector<std::int64_t>& firsts, int exponent, const Kernels<T>& kernels, Sharing sharing);

    const std::vector<RowChunk<T>>& chunks() const { return chunks_; }
    // Whether arrays of the matrix are read in place: they must outlive this.
    bool reads_matrix() const { return reads_matrix_; }
    // Of arrays of its own.
    std::int64_t bytes() const {
        return offsets_.bytes() + columns_.bytes() + short_columns_.bytes() + values_.bytes() + short_values_.bytes() + order_.bytes();
    }
    // Entries whose columns, and whose values, are narrowed, and those in slices.
    std::int64_t short_columns() const { return in_short_; }
    std::int64_t short_values() const { return short_values_.empty() ? 0 : nnz_; }
    std::int64_t sliced() const { return order_.empty() ? 0 : nnz_; }

  private:
    // The rows of all chunks, whose columns are known to span what 16 bits hold where `in_short` says so.
    template <class ValueAt>
    void make_slices(const CsrView<double>& a, const std::vector<bool>& in_short, bool exact, const ValueAt& value_at);

    std::int64_t nnz_ = 0;
    std::int64_t in_short_ = 0;
    std::vector<RowChunk<T>> chunks_;
    HostBuffer<std::int64_t> offsets_;
    HostBuffer<std::int32_t> columns_;
    HostBuffer<std::uint16_t> short_columns_;
    HostBuffer<T> values_;
    HostBuffer<float> short_values_;
    HostBuffer<std::uint16_t> order_;  // of slices
    bool reads_matrix_ = true;
};

template <class T>
class RowStorage {
  public:
    RowStorage() = default;
    // 2^exponent a, rounded to T.
    RowStorage(const CsrMatrix& a, int exponent, const Kernels<T>& kernels, Sharing sharing);

    // y <- a A x + b y
    void apply(double a, const T* x, double b, T* y, NormPartials* norm) const;
    // Of the only panel.
    std::span<const RowChunk<T>> chunks() const { return panels_.front().chunks(); }
    // Whether an array of the matrix is read in place: it must outlive this.
    bool reads_matrix() const { return panels_.size() == 1 && panels_.front().reads_matrix(); }
    // Of arrays of its own.
    std::int64_t bytes() const;
    // What was done: empty, or such as ", 3 column panels, 16-bit columns, values exact in fp32".
    std::string words() const;
    // All values, one after the other, where they were neither narrowed from T nor put into panels.
    const T* values() const;

  private:
    InstructionSet set_ = InstructionSet::portable;
    std::int64_t nnz_ = 0;
    std::vector<CsrArrays> panel_arrays_;  // where there are several panels, what they read
    std::vector<RowPanel<T>> panels_;
};

template <class T>
std::unique_ptr<MatrixOperator<T>> make_operator(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options, const Kernels<T>& kernels);

}  // namespace lsmr::cpu
