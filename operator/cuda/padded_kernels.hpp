// Launchers of the products with padded rows, SELL-32-sigma and ELL, and of what fills their arrays. Raw device pointers, a stream; they never
// allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "operator/cuda/pack_kernels.hpp"
#include "operator/cuda/stream_kernels.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

// Slices of 32 rows, column by column (operator/formats/row_plans.hpp: SellPlan). A column index that has all bits set is padding: it multiplies
// nothing. V: stored values, double, float or Bf16.
template <class V>
struct SellDevice {
    std::int64_t rows = 0;
    std::int64_t slices = 0;
    const std::uint32_t* offsets = nullptr;  // slices + 1, in columns of 32 places
    const std::uint16_t* order = nullptr;    // of each place: its row, from the first of its window; null: rows keep their order
    int sigma = 1;                           // rows of a window, a power of two
    const V* values = nullptr;
    const std::byte* columns = nullptr;      // 32 bits each, at the places of the values; or as the next two say
    const std::uint32_t* column_places = nullptr;  // of each slice, in units of 64 bytes; null: all columns have 32 bits
    const std::int32_t* column_bases = nullptr;    // of each slice: added to its 16-bit columns; -1: it has 32-bit columns
};

// All rows in one rectangle, column by column: entry k of row i is number k stride + i.
template <class V>
struct EllDevice {
    std::int64_t rows = 0;
    std::int64_t stride = 0;  // rows, up to a multiple of 32
    std::int64_t width = 0;
    const V* values = nullptr;
    const std::int32_t* columns = nullptr;
    const std::uint32_t* with_rest = nullptr;  // a bit a row, 32 rows a word: rows whose sum has a rest, of entries that are not here; null: none
};

// Blocks of a product with so many slices of 32 rows: from the shape alone. most: at most so many.
std::int32_t padded_blocks(std::int64_t slices, std::int32_t most);

// y <- a A x + b y; b = 0: y is not read. partials: null, or `blocks` values, which get partial sums of ||y||^2.
template <class V, class X>
void launch_sell(std::int32_t blocks, const SellDevice<V>& matrix, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials, cudaStream_t stream);
// rest: of the rows that have one; may be null where none has.
template <class V, class X>
void launch_ell(std::int32_t blocks, const EllDevice<V>& matrix, const X* rest, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials, cudaStream_t stream);

// From CSR in device memory: values and columns as the layout says, padding included. The pointers of `layout` to values and columns are not used.
template <class V, class T, class Offset>
void launch_fill_sell(const SellDevice<V>& layout, const Offset* offsets, const std::int32_t* columns, const T* values, V* to_values, std::byte* to_columns,
                      cudaStream_t stream);
// Of each row the first layout.width entries.
template <class V, class T, class Offset>
void launch_fill_ell(const EllDevice<V>& layout, const Offset* offsets, const std::int32_t* columns, const T* values, V* to_values, std::int32_t* to_columns,
                     cudaStream_t stream);
// Least and largest column of each slice.
template <class V, class Offset>
void launch_slice_spans(const SellDevice<V>& layout, const Offset* offsets, const std::int32_t* columns, ColumnSpan* spans, cudaStream_t stream);

}  // namespace lsmr::cuda
