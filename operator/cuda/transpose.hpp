// CSR of A^T from CSR of A on the device, for any number of entries: the order within a row of A^T is that of the rows of A, always.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "memory/device_buffer.hpp"

namespace lsmr::cuda {

// Scratch for launch_transpose, for chunks of up to chunk_entries.
struct TransposeScratch {
    TransposeScratch(const CudaContext& context, std::int64_t cols, std::int64_t chunk_entries);
    std::int64_t chunk_entries;
    DeviceBuffer<std::int32_t> keys;       // columns of a chunk, sorted
    DeviceBuffer<std::int32_t> positions;  // 0, 1, ... of the chunk
    DeviceBuffer<std::int32_t> order;      // positions, sorted by column
    DeviceBuffer<std::int32_t> entry_row;  // row of each entry of the chunk
    DeviceBuffer<std::int64_t> cursor;     // next free place in each row of A^T
    DeviceBuffer<std::int64_t> head;       // where each column's run begins in the sorted chunk
    DeviceBuffer<std::byte> temporary;     // of the radix sort and the scan
    std::size_t temporary_bytes = 0;
};

// Of at most scratch.chunk_entries; the scratch may be that of a matrix without columns.
template <class T, class Offset>
void launch_whole_transpose(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns, const T* values,
                            Offset* out_offsets, std::int32_t* out_columns, T* out_values, TransposeScratch& scratch, cudaStream_t stream);

// Of any number, in chunks. host_offsets: the offsets of A on the host, used to cut chunks at rows. out_offsets has cols + 1 entries, out_columns
// and out_values nnz.
// No chunk may hold more than scratch.chunk_entries, so no row may.
template <class T, class Offset>
void launch_transpose(std::int64_t rows, std::int64_t cols, const std::int64_t* host_offsets, const Offset* offsets,
                      const std::int32_t* columns, const T* values, Offset* out_offsets, std::int32_t* out_columns, T* out_values,
                      TransposeScratch& scratch, cudaStream_t stream);

}  // namespace lsmr::cuda
