// Launchers of the block kernels: y <- a A x + b y for BSR and Blocked-ELL, and what makes their arrays from CSR. Raw device pointers, a
// stream; they never allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/cuda/bf16.hpp"
#include "operator/linear_operator.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr::cuda {

// A in dense blocks, in device memory, block rows one after the other. V: stored values, double, float or Bf16. A place without an entry is
// marked (stored_values.cuh).
template <class V>
struct BlockMatrix {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t block_row_count = 0;
    std::int32_t block_rows = 1;
    std::int32_t block_cols = 1;
    const std::int64_t* offsets = nullptr;  // BSR: blocks before each block row, and all; null in Blocked-ELL
    std::int64_t width = 0;                 // Blocked-ELL: blocks of every block row
    const std::int32_t* columns = nullptr;  // block columns; Blocked-ELL: -1 where a block row has ended
    const V* values = nullptr;              // block after block, each by columns or by rows
};

template <class X>
using BlockKernel = void (*)(BlockMatrix<X> matrix, int groups, const X* a, const X* x, const X* b, X* y, double* partials);

// By columns or by blocks. groups: columns or blocks that a team of lanes takes at a time (block_plan.hpp).
template <class X>
struct BlockLaunch {
    BlockKernel<X> kernel = nullptr;
    int unit_lanes = 1;  // of a column, or a block
    int groups = 1;
    int blocks = 1;
};
// choice: bsr or bell. units: columns (mapping by columns) or blocks of a block row, on average.
template <class X>
BlockLaunch<X> choose_block_launch(const SpmvChoice& choice, std::int64_t block_row_count, double units, int multiprocessors);

// b = 0: y is not read. partials: null, or launch.blocks values, which get partial sums of ||y||^2.
template <class X>
void launch_blocks(const BlockLaunch<X>& launch, const BlockMatrix<X>& matrix, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials,
                   cudaStream_t stream);

// counts[i + 1] <- blocks of block row i that hold an entry, counts[0] <- 0. *unsorted <- 1 where the columns of a row do not ascend, else it
// stays as it is.
template <class Offset>
void launch_count_blocks(std::int64_t rows, int block_rows, int block_cols, const Offset* offsets, const std::int32_t* columns, std::int64_t* counts,
                         int* unsorted, cudaStream_t stream);
// The blocks that hold an entry, in ascending order, each at its place; width > 0: Blocked-ELL of that width, block_offsets is not read.
// Places without an entry: marked, or zero.
enum class EmptyPlaces { marked, zero };
template <class V, class T, class Offset>
void launch_fill_blocks(std::int64_t rows, int block_rows, int block_cols, BlockOrder order, EmptyPlaces empty, const Offset* offsets,
                        const std::int32_t* columns, const T* values, const std::int64_t* block_offsets, std::int64_t width,
                        std::int32_t* block_columns, V* block_values, cudaStream_t stream);

}  // namespace lsmr::cuda
