// Launchers of the kernels for diagonals and for dense places: y <- a A x + b y, and what makes their arrays from CSR. Raw device pointers, a
// stream; they never allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

// A by diagonals: entry (i, i + offsets[d]) at values[d stride + i]. A place without an entry is marked (stored_values.cuh).
template <class T>
struct DiagonalMatrix {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    int count = 0;  // at most kDiagonalCap
    const std::int32_t* offsets = nullptr;  // ascending
    const T* values = nullptr;
    std::int64_t stride = 0;  // rows, up to a multiple of 32
};

// Blocks of a launch: from the shape and the device.
template <class T>
int diagonal_blocks(std::int64_t rows, int multiprocessors);

// b = 0: y is not read. partials: null, or `blocks` values, which get partial sums of ||y||^2.
template <class T>
void launch_diagonals(int blocks, const DiagonalMatrix<T>& matrix, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, cudaStream_t stream);

// occupied[rows - 1 + j - i] <- 1 for every entry (i, j); rows + cols - 1 flags, 0 before.
template <class Offset>
void launch_mark_diagonals(std::int64_t rows, const Offset* offsets, const std::int32_t* columns, std::uint8_t* occupied, cudaStream_t stream);
// The values by diagonals; all places without an entry are marked.
template <class T, class Offset>
void launch_fill_diagonals(std::int64_t rows, const Offset* offsets, const std::int32_t* columns, const T* values, int count,
                           const std::int32_t* diagonal_offsets, std::int64_t stride, T* diagonals, cudaStream_t stream);
// dense[i cols + j] <- a_ij; zeros before.
template <class T, class Offset>
void launch_fill_dense(std::int64_t rows, std::int64_t cols, const Offset* offsets, const std::int32_t* columns, const T* values, T* dense,
                       cudaStream_t stream);

}  // namespace lsmr::cuda
