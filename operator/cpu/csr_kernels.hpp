// Products with a CSR matrix in host memory, OpenMP over chunks of rows that do not depend on the number of threads: the same bits
// for any of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "operator/cpu/csr_rows.hpp"
#include "operator/cpu/team.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cpu {

template <class T>
struct CsrView {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const std::int64_t* offsets = nullptr;
    const std::int32_t* columns = nullptr;
    const T* values = nullptr;
};

// Entries of work of a chunk: a microsecond or two, so that there are many for each thread. Less than two run on one thread.
inline constexpr std::int64_t kChunkWork = 2 * 1024;
// First rows of the chunks, and the end: at most kMaxPartials chunks of about equal work.
std::vector<std::int64_t> balanced_chunks(std::int64_t rows, const std::int64_t* offsets, std::int64_t chunk_work = kChunkWork);

// f(chunk) for every chunk below count, by the team of the solve or, where there is none, by threads of its own.
template <class F>
void for_each_chunk(std::int64_t count, const F& f, Team::Grain grain = {}) {
    Team::loop(count, f, grain);
}

// A chunk of rows as it is stored, in rows or, where it has an order, in slices. Columns are those of the matrix, or 16-bit ones that count from
// first_column and are followed by kPadding more; values are of type T or, where T is double and all are exact in it, float. What is not used is null.
template <class T>
struct RowChunk {
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
    const std::int64_t* offsets = nullptr;  // of its rows or slices, into the whole matrix; columns and values are those of the chunk
    const std::uint16_t* order = nullptr;   // as SlicedBlock has it
    const std::int32_t* columns = nullptr;
    const std::uint16_t* short_columns = nullptr;
    std::int32_t first_column = 0;
    const T* values = nullptr;
    const float* short_values = nullptr;
};

// f(values, columns) of a chunk, in the types that it has them in.
template <class T, class F>
auto visit_entries(const RowChunk<T>& chunk, const F& f) {
    const auto with_values = [&](const auto* values) { return chunk.short_columns ? f(values, chunk.short_columns) : f(values, chunk.columns); };
    if constexpr (std::is_same_v<T, double>) {
        if (chunk.short_values) return with_values(chunk.short_values);
    }
    return with_values(chunk.values);
}

// y <- a A x + b y, A in one panel of columns or in several, whose chunks are of the same rows. One partial of ||y||^2 a chunk of rows.
template <class T>
void csr_apply(std::span<const std::span<const RowChunk<T>>> panels, InstructionSet set, double a, const T* x, double b, T* y, NormPartials* norm);
// The same for a view; chunks from balanced_chunks().
template <class T>
void csr_apply(const CsrView<T>& matrix, const std::vector<std::int64_t>& chunks, double a, const T* x, double b, T* y,
               NormPartials* norm);

// A sum and what its roundings lost: Knuth's exact sum of two numbers, The Art of Computer Programming 2, 4.2.2, theorem B.
template <class T>
class Compensated {
  public:
    void add(T term) {
        const T sum = sum_ + term;
        const T added = sum - sum_;
        lost_ += (sum_ - (sum - added)) + (term - added);
        sum_ = sum;
    }
    T value() const { return std::isfinite(sum_) ? sum_ + lost_ : sum_; }

  private:
    T sum_ = 0;
    T lost_ = 0;
};

// y <- a A^T x + b y from CSR(A): each of kPanels row panels adds into a vector of its own (scratch: kPanels cols sums), then these
// are added in order. Terms of a column cannot be added by halves, since they come row by row: long columns need the compensation.
inline constexpr std::int64_t kPanels = 8;
template <class T>
void csr_apply_adjoint(const CsrView<T>& matrix, double a, const T* x, double b, T* y, Compensated<T>* scratch, NormPartials* norm);

// The chunks in which loops over a vector of n values run, and in which their sums are formed.
struct VectorChunks {
    explicit VectorChunks(std::int64_t n);
    // Of such loops: some thousand values are done sooner than another thread has fetched its part from where it was written.
    static constexpr Team::Grain kGrain{.least = 4};
    std::int64_t count;
    std::int64_t length;
};

}  // namespace lsmr::cpu
