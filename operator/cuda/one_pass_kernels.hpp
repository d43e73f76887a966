// Launchers of the one-pass kernel: y <- a A x + b y and z <- A^T y from one reading of A, for matrices with few columns. Raw device pointers, a
// stream; they never allocate and never wait.
//
// A lies in slices of 32 rows, a lane of a warp each. Its entries come in groups of 4 a lane, placed so that in a batch of 1, 2 or 4 steps
// no column occurs twice: a warp adds a batch to sums of z in shared memory by plain loads and stores, no order varies, and no atomic is
// needed. Warps that share sums take turns. Lanes beside one another are placed in different banks where entries leave the choice. A place
// without an entry has a column of its lane's own beyond n: there x holds a zero, and z what nobody reads.
//
// Bytes: places (sizeof(V) + 2) + 4 a slice + y twice + what each block leaves of z, twice.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

inline constexpr int kSliceRows = 32;
inline constexpr int kGroupSteps = 4;
inline constexpr int kGroupPlaces = kSliceRows * kGroupSteps;
inline constexpr std::int64_t kOnePassColumns = 65536 - kSliceRows;  // and those of places without entries, as 16 bits tell them apart
inline constexpr std::int64_t kOnePassLongestRow = 1024;

// The matrix in device memory. V: stored values, double or float.
template <class V>
struct OnePassMatrix {
    std::uint32_t rows = 0;  // below 2^31
    std::int32_t cols = 0;
    std::int32_t slices = 0;
    const std::int32_t* first_groups = nullptr;  // slices + 1
    const std::uint16_t* columns = nullptr;      // [group][lane][step]
    const V* values = nullptr;                   // the same; those of 8 bytes as [group][step / 2][lane][step % 2], so that loads of 16 bytes are neighbours
};

// --- set-up ---
// Bytes of shared memory that placing takes.
std::int64_t placing_bytes(std::int64_t cols, std::int64_t longest_row);
// group_counts[s] <- groups of slice s. batch: OnePassLaunch::batch; longest_row: an upper bound; X: the vectors, whose width decides the banks.
template <class X, class Offset>
void launch_count_groups(std::int64_t rows, std::int32_t cols, std::int32_t slices, int batch, std::int64_t longest_row, const Offset* offsets,
                         const std::int32_t* columns, std::int32_t* group_counts, int multiprocessors, cudaStream_t stream);
// columns and values of `matrix` <- the entries, each in its place.
template <class V, class X, class Offset>
void launch_place_entries(const OnePassMatrix<V>& matrix, int batch, std::int64_t longest_row, const Offset* offsets, const std::int32_t* columns, const X* values,
                          std::uint16_t* placed_columns, V* placed_values, int multiprocessors, cudaStream_t stream);
// Values of another matrix into the places of `matrix`. *misfits, in device memory, <- 0 where both have entries at the same places, no row has more than 64,
// none has a column twice, and all values are those of V; else the values are worth nothing.
template <class V, class X, class Offset>
void launch_refill(const OnePassMatrix<V>& matrix, const Offset* offsets, const std::int32_t* columns, const X* values, V* placed_values, unsigned* misfits,
                   cudaStream_t stream);

// --- products ---
// Blocks, one a multiprocessor, each with `panels` sums of z in shared memory, which `team` warps share each. No panels: the columns are too many.
struct OnePassLaunch {
    int blocks = 0;
    int panels = 0;
    int team = 0;
    int batch = 0;          // steps in which no column of a slice occurs twice
    int column_blocks = 0;  // of add_columns
    std::int64_t most_shared_bytes = 0;  // what a block may take, the kernel's own aside
    int warps() const { return panels * team; }
    std::int32_t row_partials() const { return blocks; }
    std::int32_t col_partials() const { return column_blocks; }
};
// vector_bytes: of an element of x and y. shared_bytes: what a block may take.
OnePassLaunch choose_one_pass_launch(std::int64_t cols, std::int32_t slices, int vector_bytes, int multiprocessors, std::int64_t shared_bytes);

// What a pass does: A x, A^T y, or both.
enum class Pass { forward, adjoint, both };

// forward, both: y <- a A x + b y; b = 0: y is not read. partials: null, or launch.row_partials() values, which get partial sums of ||y||^2.
// both: also block_sums[k n + j] <- the part of (A^T y)_j of block k; launch.blocks n values.
template <class V, class X>
void launch_one_pass(const OnePassLaunch& launch, Pass pass, const OnePassMatrix<V>& matrix, Scalar<X> a, const X* x, Scalar<X> b, X* y, X* block_sums,
                     double* partials, cudaStream_t stream);
// block_sums <- those of A^T y.
template <class V, class X>
void launch_one_pass_adjoint(const OnePassLaunch& launch, const OnePassMatrix<V>& matrix, const X* y, X* block_sums, cudaStream_t stream);
// x <- a z + b x with z the sum of the blocks', in a fixed order; b = 0: x is not read. partials: null, or launch.col_partials() values.
template <class X>
void launch_add_columns(const OnePassLaunch& launch, std::int64_t cols, const X* block_sums, Scalar<X> a, Scalar<X> b, X* x, double* partials,
                        cudaStream_t stream);

}  // namespace lsmr::cuda
