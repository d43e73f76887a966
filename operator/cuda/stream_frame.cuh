// What the kernels that take items of a stream plan have in common.
#pragma once

#include "operator/cuda/bulk_copy.cuh"
#include "operator/cuda/stored_values.cuh"
#include "operator/cuda/stream_kernels.hpp"

namespace lsmr::cuda {
namespace {

// What the loop over an item's rows needs of it, in registers: writes to y might change what lies in shared memory, as the compiler sees it.
struct ItemRows {
    std::int32_t first_row;
    std::int32_t piece;
    int rows;
    int count;
    int flags;
    __device__ explicit ItemRows(const StreamItem& item)
        : first_row(item.first_row), piece(item.piece), rows(item.rows), count(item.count), flags(item.flags) {}
    __device__ bool first_is_piece() const { return (flags & kFirstIsPiece) != 0; }
    __device__ bool last_is_piece() const { return (flags & kLastIsPiece) != 0; }
};

// What a product's blocks share, in registers.
template <class V, class X>
struct StreamFrame {
    const StreamMatrix<V>& matrix;
    double* piece_sums;
    const X* x;
    X* y;
    X a;
    X b;
    bool atomic;
    double squares;  // of the values of y that this thread wrote

    __device__ void write(std::int32_t row, X sum, X old) {
        const X value = b != X(0) ? a * sum + b * old : a * sum;
        y[row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    __device__ void keep_piece(std::int32_t piece, double sum) {
        if (atomic) atomicAdd(piece_sums + matrix.piece_rows[piece], sum);
        else piece_sums[piece] = sum;
    }
    // The sum of an item's row: to y, or to the pieces.
    __device__ void finish_row(const ItemRows& item, int r, X sum, X old) {
        if (r == 0 && item.first_is_piece()) keep_piece(item.piece, static_cast<double>(sum));
        else if (r == item.rows - 1 && item.last_is_piece()) keep_piece(item.piece + (item.first_is_piece() ? 1 : 0), static_cast<double>(sum));
        else write(item.first_row + r, sum, old);
    }
};

// The values, then the columns of an item in shared memory: an item may begin and end inside a group of 8.
template <class V>
constexpr int stage_bytes(int capacity) { return (capacity + 16) * static_cast<int>(sizeof(V) + sizeof(std::int32_t)); }

// Asks for the entries of an item, to values and columns in shared memory, and for the description of the item after it, where there is one.
template <class V>
__device__ void issue_item(const StreamMatrix<V>& matrix, const StreamItem& item, V* values, std::byte* columns, std::int32_t another_turn, StreamItem* another,
                           std::uint64_t* barrier, std::uint64_t policy) {
    const std::int64_t from = item.begin & ~std::int64_t{7};
    std::uint32_t count = static_cast<std::uint32_t>(item.begin - from + item.count + 7) & ~7u;
    if (item.count == 0 || item.team >= kWholeBlock) count = 0;  // only empty rows; or rows that do not come through here
    const std::uint32_t value_bytes = count * static_cast<std::uint32_t>(sizeof(V));
    const std::uint32_t column_bytes = count * (item.flags & kNarrowColumns ? 2u : 4u);
    const bool exists = another_turn < matrix.item_count;
    barrier_expect(barrier, value_bytes + column_bytes + (exists ? static_cast<std::uint32_t>(sizeof(StreamItem)) : 0u));
    if (count != 0) {
        bulk_copy(values, matrix.values + from, value_bytes, barrier, policy);
        bulk_copy(columns, matrix.columns + std::int64_t{16} * item.columns, column_bytes, barrier, policy);
    }
    if (exists) bulk_copy(another, matrix.items + another_turn, sizeof(StreamItem), barrier, policy);
}

// f(the columns of an item, of their type, from its first entry on); at: those of entry (begin & ~7).
template <class F>
__device__ void with_columns(const StreamItem& item, const std::byte* at, const F& f) {
    const int shift = static_cast<int>(item.begin & 7);
    if (item.flags & kNarrowColumns) f(reinterpret_cast<const std::uint16_t*>(at) + shift);
    else f(reinterpret_cast<const std::int32_t*>(at) + shift);
}

}  // namespace
}  // namespace lsmr::cuda
