// Launchers of the kernels that make and apply preconditioners. Raw device pointers, sizes, a stream; they never allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

// y_i <- a scale_i x[index_i] + b y_i. index null: the identity; scale null: ones; partials (vector_blocks(n), or null) get partial sums of
// ||y||^2. b = 0: y is not read. x and y may not overlap.
template <class T>
void launch_gather(std::int64_t n, Scalar<T> a, const T* x, const std::int32_t* index, const T* scale, Scalar<T> b, T* y, double* partials,
                   cudaStream_t stream);

// S^T (solver/sparse_sign.hpp) for the columns first ... first + count - 1 of S, as CSR: kSigns entries a row; offsets from 0.
void launch_signs(std::uint64_t seed, std::int64_t first, std::int64_t count, std::int64_t rows, std::int32_t* offsets, std::int32_t* columns,
                  double* values, cudaStream_t stream);

// sa <- sa + S A for a piece of the rows of A. S: CSR, `rows` rows, whose columns are the piece's rows; A: CSR, n columns; sa: rows x n, by columns.
// Terms are added one after another in the order of the rows of A, each product rounded: the bits are those of a loop on the host.
void launch_sketch(std::int64_t rows, std::int64_t n, const std::int32_t* s_offsets, const std::int32_t* s_columns, const double* s_values,
                   const std::int32_t* a_offsets, const std::int32_t* a_columns, const double* a_values, double* sa, cudaStream_t stream);

// r <- the upper triangle of the first n rows of qr (leading dimension ld), zeros below it; n x n, by columns.
template <class T>
void launch_upper_triangle(std::int64_t n, const double* qr, std::int64_t ld, T* r, cudaStream_t stream);

}  // namespace lsmr::cuda
