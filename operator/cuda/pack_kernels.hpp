// What the stream kernel's arrays are made of: row starts, narrow columns, narrow values, panels of columns. At set-up, on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/cuda/stream_kernels.hpp"

namespace lsmr::cuda {

// row_starts[i] <- offsets[i] - begin of the item where row i starts.
template <class Offset>
void launch_row_starts(std::int32_t items, const StreamItem* list, const Offset* offsets, std::uint16_t* row_starts, cudaStream_t stream);

struct ColumnSpan {
    std::int32_t least;
    std::int32_t most;  // less than `least` where the item has no entries
};
// Least and largest column of each item, from the columns of the whole matrix.
void launch_column_spans(std::int32_t items, const StreamItem* list, const std::int32_t* columns, ColumnSpan* spans, cudaStream_t stream);

// packed <- the columns of each item, 16 or 32 bits each as the item says, less its base, at the item's place.
void launch_pack_columns(std::int32_t items, const StreamItem* list, const std::int32_t* columns, std::byte* packed, cudaStream_t stream);

// to[k] <- from[k] in the stored type.
template <class V, class T>
void launch_narrow_values(std::int64_t n, const T* from, V* to, cudaStream_t stream);

// Panels: a matrix cut into `panels` (at most 16) runs of `width` columns.
// counts[p (rows + 1) + i + 1] <- entries of row i in panel p; counts[p (rows + 1)] <- 0.
template <class Offset>
void launch_panel_counts(std::int64_t rows, int panels, std::int32_t width, const Offset* offsets, const std::int32_t* columns, Offset* counts,
                         cudaStream_t stream);
// Scratch bytes of launch_panel_offsets.
template <class Offset>
std::size_t panel_scan_bytes(std::int64_t rows);
// In place: counts of one panel to offsets.
template <class Offset>
void launch_panel_offsets(std::int64_t rows, Offset* counts, void* scratch, std::size_t scratch_bytes, cudaStream_t stream);
// The entries of panel p in the order of their rows, columns counted from the panel's first.
template <class T, class Offset>
void launch_panel_scatter(std::int64_t rows, int panel, std::int32_t width, const Offset* offsets, const std::int32_t* columns, const T* values,
                          const Offset* panel_offsets, std::int32_t* panel_columns, T* panel_values, cudaStream_t stream);

}  // namespace lsmr::cuda
