// A x and A^T (A x) from one reading of A in CSR: a row's product is formed, and at once its entries are added into z, while they are in the
// first-level cache. Half of the bytes of two stored orientations, and no transpose to make.
//
// x and z lie side by side (Pair), so that what the product fetched is there for the sum. Rows are in parts, each of which adds into a z of its own,
// as far as it has columns; threads take parts, so that the bits do not depend on how many there are. Terms of a column come row by row and cannot be
// added by halves: no more than kChain of them are added to z_j, then these go into a compensated total.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/cpu/row_storage.hpp"

namespace lsmr::cpu {

// Columns, at most: places of pairs are counted in 32 bits.
inline constexpr std::int64_t kMostPairs = std::int64_t{1} << 30;

// Parts, at most: threads that can work at once.
inline constexpr int kMostParts = 16;

// The numbers by which one pass is chosen.
struct OnePassShape {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
    std::int64_t value_bytes = 0;
    double lines_per_entry = 0;  // as choose_panels() has it
    bool grouped = false;        // rows go in groups
};
// Whether one pass in kMostParts is expected to take less time than two products.
bool one_pass_pays(const OnePassShape& shape);

// What groups would hold, of a sample of the rows.
struct GroupCounts {
    std::int64_t entries = 0;
    std::int64_t steps = 0;    // vectors that their rows are read in
    std::int64_t longest = 0;  // row, of all
};
GroupCounts count_groups(const CsrMatrix& a, std::int64_t longest_run);
// Whether the rows are to go in groups, and can.
template <class T>
bool takes_groups(const CsrMatrix& a, const Kernels<T>& kernels);

template <class T>
class OnePassRows {
  public:
    OnePassRows() = default;
    // chunks: of one panel that holds all columns, in groups as 32-bit numbers; they must outlive this. As many parts as leave what they write and
    // read of z few bytes beside the entries.
    OnePassRows(std::span<const RowChunk<T>> chunks, InstructionSet set, std::int64_t cols, bool grouped);

    struct Scratch {
        HostBuffer<Pair<T>> pairs;           // of each part, cols
        HostBuffer<T> sums;                  // in their place where rows go in groups; of each part, cols and kGroupPadding
        HostBuffer<Compensated<T>> totals;   // of each part, those of its hot columns
    };
    // y <- a A x + b y, and z = A^T y stays in the scratch.
    void apply_both(double a, const T* x, double b, T* y, Scratch& scratch, NormPartials* norm) const;
    // z = A^T y stays in the scratch.
    void keep_adjoint(const T* y, Scratch& scratch) const;
    // x <- a z + b x
    void apply_kept(double a, double b, T* x, const Scratch& scratch, NormPartials* norm) const;

    std::int64_t parts() const { return static_cast<std::int64_t>(parts_.size()); }
    bool grouped() const { return grouped_; }
    // Of its lists and of one scratch.
    std::int64_t bytes() const;

  private:
    // Some neighbouring rows of a chunk; before them, the sums of the hot columns up to flush_end go into their totals.
    struct Step {
        std::int64_t rows;
        std::int64_t flush_end;
        std::int64_t first_word;  // of its groups
    };
    struct Part {
        std::int64_t first_chunk = 0;
        std::int64_t end_chunk = 0;
        std::int64_t first_total = 0;
        std::vector<Step> steps;
        std::vector<std::int32_t> hot;    // columns with a total
        std::vector<std::int32_t> flush;  // places in hot
        std::vector<std::uint32_t> words;  // of its groups
    };
    void choose_parts();
    void make_steps(Part& part) const;
    // The place of z_0 of a part, and how far z_1 is from it.
    T* first_sum(const Scratch& scratch, std::int64_t part) const;
    std::int64_t sum_stride() const { return grouped_ ? 1 : 2; }
    // Product: y <- a A x + b y as well.
    template <bool kProduct>
    void run(double a, const T* x, double b, T* y, const T* kept_y, Scratch& scratch, double* sums) const;

    std::span<const RowChunk<T>> chunks_;
    InstructionSet set_ = InstructionSet::portable;
    std::int64_t cols_ = 0;
    bool grouped_ = false;
    std::int64_t totals_ = 0;
    std::vector<Part> parts_;
    std::vector<std::uint32_t> touched_;  // by each kTile columns: bits of the parts with entries there
};

}  // namespace lsmr::cpu
