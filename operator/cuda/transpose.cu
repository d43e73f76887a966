// A sort by column that keeps the order of rows. Chunks of rows go through a stable radix sort by column; each sorted run is
// appended to its row of A^T, and one chunk is A^T. No atomic decides a place, so the result is the same at every run.
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include <algorithm>

#include "memory/cuda_check.hpp"
#include "operator/cuda/transpose.hpp"
#include "operator/cuda/vector_kernels.hpp"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 256;
__device__ std::int64_t first_index() { return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; }
__device__ std::int64_t index_step() { return static_cast<std::int64_t>(gridDim.x) * kThreads; }

// Counts are the same in any order of the atomics.
template <class Offset>
__global__ void count_kernel(std::int64_t nnz, const std::int32_t* columns, Offset* counts) {
    using Counter = std::conditional_t<sizeof(Offset) == 8, unsigned long long, unsigned>;
    for (std::int64_t k = first_index(); k < nnz; k += index_step()) atomicAdd(reinterpret_cast<Counter*>(counts) + columns[k], Counter(1));
}

template <class Offset>
__global__ void cursor_kernel(std::int64_t cols, const Offset* out_offsets, std::int64_t* cursor) {
    for (std::int64_t j = first_index(); j < cols; j += index_step()) cursor[j] = out_offsets[j];
}

// The row in [first, end) that holds entry k, which one of them does.
template <class Offset>
__device__ std::int64_t row_of(const Offset* offsets, std::int64_t first, std::int64_t end, std::int64_t k) {
    while (end - first > 1) {
        const std::int64_t middle = first + (end - first) / 2;
        if (static_cast<std::int64_t>(offsets[middle]) <= k) first = middle;
        else end = middle;
    }
    return first;
}

// The row of each entry, and its place in the chunk, by blocks of equal entries: rows may be of any length.
template <class Offset>
__global__ void rows_kernel(std::int64_t first_row, std::int64_t end_row, const Offset* offsets, std::int64_t base, std::int64_t count, std::int32_t* entry_row,
                            std::int32_t* positions) {
    constexpr std::int64_t kTile = 8 * kThreads;
    __shared__ std::int64_t bounds[2];  // rows of the first and the last entry of the tile
    for (std::int64_t begin = blockIdx.x * kTile; begin < count; begin += gridDim.x * kTile) {
        const std::int64_t end = begin + kTile < count ? begin + kTile : count;
        __syncthreads();  // all have read those of the tile before
        if (threadIdx.x < 2) bounds[threadIdx.x] = row_of(offsets, first_row, end_row, base + (threadIdx.x == 0 ? begin : end - 1));
        __syncthreads();
        for (std::int64_t k = begin + threadIdx.x; k < end; k += kThreads) {
            entry_row[k] = static_cast<std::int32_t>(row_of(offsets, bounds[0], bounds[1] + 1, base + k));
            positions[k] = static_cast<std::int32_t>(k);
        }
    }
}

__global__ void head_kernel(std::int64_t count, const std::int32_t* keys, std::int64_t* head) {
    for (std::int64_t t = first_index(); t < count; t += index_step()) {
        if (t == 0 || keys[t] != keys[t - 1]) head[keys[t]] = t;
    }
}

template <class T>
__global__ void place_kernel(std::int64_t count, const std::int32_t* keys, const std::int32_t* order, const std::int32_t* entry_row,
                             const T* values, const std::int64_t* cursor, const std::int64_t* head, std::int32_t* out_columns, T* out_values) {
    for (std::int64_t t = first_index(); t < count; t += index_step()) {
        const std::int32_t column = keys[t];
        const std::int64_t out = cursor[column] + (t - head[column]);
        out_columns[out] = entry_row[order[t]];
        out_values[out] = values[order[t]];
    }
}

__global__ void advance_kernel(std::int64_t count, const std::int32_t* keys, const std::int64_t* head, std::int64_t* cursor) {
    for (std::int64_t t = first_index(); t < count; t += index_step()) {
        if (t + 1 == count || keys[t + 1] != keys[t]) cursor[keys[t]] += t + 1 - head[keys[t]];
    }
}

// Where each column's run begins in all entries.
template <class Offset>
__global__ void bounds_kernel(std::int64_t cols, std::int64_t nnz, const std::int32_t* keys, Offset* out_offsets) {
    for (std::int64_t j = first_index(); j <= cols; j += index_step()) {
        std::int64_t begin = 0, end = nnz;  // of those whose keys may be the first that is not below j
        while (begin < end) {
            const std::int64_t middle = begin + (end - begin) / 2;
            if (keys[middle] < j) begin = middle + 1;
            else end = middle;
        }
        out_offsets[j] = static_cast<Offset>(begin);
    }
}

template <class T>
__global__ void gather_kernel(std::int64_t nnz, const std::int32_t* order, const std::int32_t* entry_row, const T* values, std::int32_t* out_columns,
                              T* out_values) {
    for (std::int64_t t = first_index(); t < nnz; t += index_step()) {
        const std::int32_t from = order[t];
        out_columns[t] = entry_row[from];
        out_values[t] = values[from];
    }
}

// scratch.keys and scratch.order <- the columns of `count` entries from `base` on, sorted, and where each was; scratch.entry_row <- their rows.
template <class Offset>
void launch_sort(std::int64_t first_row, std::int64_t end_row, std::int64_t base, std::int64_t count, std::int64_t cols, const Offset* offsets,
                 const std::int32_t* columns, TransposeScratch& scratch, cudaStream_t stream) {
    rows_kernel<<<static_cast<unsigned>(vector_blocks(count)), kThreads, 0, stream>>>(first_row, end_row, offsets, base, count, scratch.entry_row.data(),
                                                                                      scratch.positions.data());
    LSMR_CHECK(cudaGetLastError());
    int key_bits = 1;
    while ((std::int64_t{1} << key_bits) < cols) ++key_bits;
    std::size_t bytes = scratch.temporary_bytes;
    LSMR_CHECK(cub::DeviceRadixSort::SortPairs(scratch.temporary.data(), bytes, columns + base, scratch.keys.data(), scratch.positions.data(),
                                               scratch.order.data(), count, 0, key_bits, stream));
}

}  // namespace

TransposeScratch::TransposeScratch(const CudaContext& context, std::int64_t cols, std::int64_t chunk)
    : chunk_entries(chunk),
      keys(context, chunk),
      positions(context, chunk),
      order(context, chunk),
      entry_row(context, chunk),
      cursor(context, cols),
      head(context, cols) {
    std::size_t sort_bytes = 0;
    LSMR_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, keys.data(), keys.data(), positions.data(), order.data(), chunk));
    std::size_t scan_bytes = 0;
    LSMR_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, scan_bytes, cursor.data(), cursor.data(), cols + 1));
    temporary_bytes = std::max(sort_bytes, scan_bytes);
    temporary = DeviceBuffer<std::byte>(context, static_cast<std::int64_t>(temporary_bytes));
}

template <class T, class Offset>
void launch_transpose(std::int64_t rows, std::int64_t cols, const std::int64_t* host_offsets, const Offset* offsets,
                      const std::int32_t* columns, const T* values, Offset* out_offsets, std::int32_t* out_columns, T* out_values,
                      TransposeScratch& scratch, cudaStream_t stream) {
    const std::int64_t nnz = host_offsets[rows];
    LSMR_CHECK(cudaMemsetAsync(out_offsets, 0, static_cast<std::size_t>(cols + 1) * sizeof(Offset), stream));
    if (nnz == 0) return;
    const auto blocks = [](std::int64_t n) { return static_cast<unsigned>(vector_blocks(n)); };
    count_kernel<<<blocks(nnz), kThreads, 0, stream>>>(nnz, columns, out_offsets);
    LSMR_CHECK(cudaGetLastError());
    std::size_t bytes = scratch.temporary_bytes;
    LSMR_CHECK(cub::DeviceScan::ExclusiveSum(scratch.temporary.data(), bytes, out_offsets, out_offsets, cols + 1, stream));
    cursor_kernel<<<blocks(cols), kThreads, 0, stream>>>(cols, out_offsets, scratch.cursor.data());
    LSMR_CHECK(cudaGetLastError());

    for (std::int64_t row = 0; row < rows;) {
        const std::int64_t base = host_offsets[row];
        // The last row whose end still fits the chunk.
        std::int64_t end_row = std::upper_bound(host_offsets + row, host_offsets + rows + 1, base + scratch.chunk_entries) - host_offsets - 1;
        LSMR_EXPECT(end_row > row);  // the chunk holds the longest row
        const std::int64_t count = host_offsets[end_row] - base;
        if (count > 0) {
            launch_sort(row, end_row, base, count, cols, offsets, columns, scratch, stream);
            head_kernel<<<blocks(count), kThreads, 0, stream>>>(count, scratch.keys.data(), scratch.head.data());
            LSMR_CHECK(cudaGetLastError());
            place_kernel<<<blocks(count), kThreads, 0, stream>>>(count, scratch.keys.data(), scratch.order.data(), scratch.entry_row.data(),
                                                                values + base, scratch.cursor.data(), scratch.head.data(), out_columns,
                                                                out_values);
            LSMR_CHECK(cudaGetLastError());
            advance_kernel<<<blocks(count), kThreads, 0, stream>>>(count, scratch.keys.data(), scratch.head.data(), scratch.cursor.data());
            LSMR_CHECK(cudaGetLastError());
        }
        row = end_row;
    }
}

template <class T, class Offset>
void launch_whole_transpose(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns, const T* values,
                            Offset* out_offsets, std::int32_t* out_columns, T* out_values, TransposeScratch& scratch, cudaStream_t stream) {
    LSMR_EXPECT(nnz <= scratch.chunk_entries);
    if (nnz == 0) {
        LSMR_CHECK(cudaMemsetAsync(out_offsets, 0, static_cast<std::size_t>(cols + 1) * sizeof(Offset), stream));
        return;
    }
    launch_sort(0, rows, 0, nnz, cols, offsets, columns, scratch, stream);
    bounds_kernel<<<static_cast<unsigned>(vector_blocks(cols + 1)), kThreads, 0, stream>>>(cols, nnz, scratch.keys.data(), out_offsets);
    LSMR_CHECK(cudaGetLastError());
    gather_kernel<<<static_cast<unsigned>(vector_blocks(nnz)), kThreads, 0, stream>>>(nnz, scratch.order.data(), scratch.entry_row.data(), values, out_columns,
                                                                                     out_values);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE(T, Offset)                                                                                                    \
    template void launch_whole_transpose(std::int64_t, std::int64_t, std::int64_t, const Offset*, const std::int32_t*, const T*, Offset*,   \
                                         std::int32_t*, T*, TransposeScratch&, cudaStream_t);                                               \
    template void launch_transpose(std::int64_t, std::int64_t, const std::int64_t*, const Offset*, const std::int32_t*, const T*, Offset*, \
                                   std::int32_t*, T*, TransposeScratch&, cudaStream_t);
LSMR_INSTANTIATE(double, std::int32_t)
LSMR_INSTANTIATE(double, std::int64_t)
LSMR_INSTANTIATE(float, std::int32_t)
LSMR_INSTANTIATE(float, std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
