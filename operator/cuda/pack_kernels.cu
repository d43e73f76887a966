#include <algorithm>
#include <limits>

#include <cub/device/device_scan.cuh>

#include "memory/cuda_check.hpp"
#include "operator/cuda/pack_kernels.hpp"
#include "operator/cuda/stored_values.cuh"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 128;

unsigned blocks_for(std::int64_t n) { return static_cast<unsigned>(std::clamp<std::int64_t>(n, 1, 1 << 20)); }

template <class Offset>
__global__ void row_starts_kernel(std::int32_t items, const StreamItem* list, const Offset* offsets, std::uint16_t* row_starts) {
    for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x); i < items; i += static_cast<std::int32_t>(gridDim.x)) {
        const StreamItem item = list[i];
        for (int r = static_cast<int>(threadIdx.x); r < item.rows; r += kThreads) {
            const std::int64_t start = static_cast<std::int64_t>(offsets[item.first_row + r]) - item.begin;
            if (start >= 0) row_starts[item.first_row + r] = static_cast<std::uint16_t>(start);  // else the row starts in an item before
        }
    }
}

__global__ void column_spans_kernel(std::int32_t items, const StreamItem* list, const std::int32_t* columns, ColumnSpan* spans) {
    __shared__ std::int32_t least[kThreads / 32], most[kThreads / 32];
    for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x); i < items; i += static_cast<std::int32_t>(gridDim.x)) {
        const StreamItem item = list[i];
        std::int32_t low = INT32_MAX, high = -1;
        for (int k = static_cast<int>(threadIdx.x); k < item.count; k += kThreads) {
            const std::int32_t column = columns[item.begin + k];
            low = min(low, column);
            high = max(high, column);
        }
        low = __reduce_min_sync(0xffffffffu, low);
        high = __reduce_max_sync(0xffffffffu, high);
        if (threadIdx.x % 32 == 0) {
            least[threadIdx.x / 32] = low;
            most[threadIdx.x / 32] = high;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < kThreads / 32; ++w) {
                low = min(low, least[w]);
                high = max(high, most[w]);
            }
            spans[i] = {low, high};
        }
        __syncthreads();
    }
}

__global__ void pack_columns_kernel(std::int32_t items, const StreamItem* list, const std::int32_t* columns, std::byte* packed) {
    for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x); i < items; i += static_cast<std::int32_t>(gridDim.x)) {
        const StreamItem item = list[i];
        std::byte* to = packed + std::int64_t{16} * item.columns;
        const int shift = static_cast<int>(item.begin & 7);
        const int padded = (shift + item.count + 7) & ~7;
        for (int k = static_cast<int>(threadIdx.x); k < padded; k += kThreads) {
            const bool exists = k >= shift && k < shift + item.count;
            const std::int32_t column = exists ? columns[item.begin - shift + k] - item.column_base : 0;
            if (item.flags & kNarrowColumns) reinterpret_cast<std::uint16_t*>(to)[k] = static_cast<std::uint16_t>(column);
            else reinterpret_cast<std::int32_t*>(to)[k] = column;
        }
    }
}

template <class V, class T>
__global__ void narrow_values_kernel(std::int64_t n, const T* from, V* to) {
    for (std::int64_t k = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; k < n; k += std::int64_t{gridDim.x} * kThreads) to[k] = narrowed<V>(from[k]);
}

template <class Offset>
__global__ void panel_counts_kernel(std::int64_t rows, int panels, std::int32_t width, const Offset* offsets, const std::int32_t* columns, Offset* counts) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / 32);
    for (std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32; i < rows; i += warps) {
        std::int32_t mine[16] = {};
        for (Offset k = offsets[i] + static_cast<Offset>(lane); k < offsets[i + 1]; k += 32) {
            const int p = columns[k] / width;
#pragma unroll
            for (int q = 0; q < 16; ++q) mine[q] += p == q;
        }
#pragma unroll
        for (int q = 0; q < 16; ++q) {
            const std::int32_t total = __reduce_add_sync(0xffffffffu, mine[q]);
            if (q < panels && lane == 0) counts[q * (rows + 1) + i + 1] = static_cast<Offset>(total);
        }
    }
    if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < panels) counts[std::int64_t{threadIdx.x} * (rows + 1)] = 0;
}

template <class T, class Offset>
__global__ void panel_scatter_kernel(std::int64_t rows, int panel, std::int32_t width, const Offset* offsets, const std::int32_t* columns,
                                     const T* values, const Offset* panel_offsets, std::int32_t* panel_columns, T* panel_values) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / 32);
    for (std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32; i < rows; i += warps) {
        Offset to = panel_offsets[i];
        const Offset end = offsets[i + 1];
        for (Offset first = offsets[i]; first < end; first += 32) {
            const Offset k = first + static_cast<Offset>(lane);
            const std::int32_t column = k < end ? columns[k] : -1;
            const bool here = k < end && column / width == panel;
            const unsigned all = __ballot_sync(0xffffffffu, here);
            if (here) {
                const Offset place = to + static_cast<Offset>(__popc(all & ((1u << lane) - 1)));
                panel_columns[place] = column - panel * width;
                panel_values[place] = values[k];
            }
            to += static_cast<Offset>(__popc(all));
        }
    }
}

}  // namespace

template <class Offset>
void launch_row_starts(std::int32_t items, const StreamItem* list, const Offset* offsets, std::uint16_t* row_starts, cudaStream_t stream) {
    if (items == 0) return;
    row_starts_kernel<<<blocks_for(items), kThreads, 0, stream>>>(items, list, offsets, row_starts);
    LSMR_CHECK(cudaGetLastError());
}

void launch_column_spans(std::int32_t items, const StreamItem* list, const std::int32_t* columns, ColumnSpan* spans, cudaStream_t stream) {
    if (items == 0) return;
    column_spans_kernel<<<blocks_for(items), kThreads, 0, stream>>>(items, list, columns, spans);
    LSMR_CHECK(cudaGetLastError());
}

void launch_pack_columns(std::int32_t items, const StreamItem* list, const std::int32_t* columns, std::byte* packed, cudaStream_t stream) {
    if (items == 0) return;
    pack_columns_kernel<<<blocks_for(items), kThreads, 0, stream>>>(items, list, columns, packed);
    LSMR_CHECK(cudaGetLastError());
}

template <class V, class T>
void launch_narrow_values(std::int64_t n, const T* from, V* to, cudaStream_t stream) {
    if (n == 0) return;
    narrow_values_kernel<<<blocks_for((n + kThreads - 1) / kThreads), kThreads, 0, stream>>>(n, from, to);
    LSMR_CHECK(cudaGetLastError());
}

template <class Offset>
void launch_panel_counts(std::int64_t rows, int panels, std::int32_t width, const Offset* offsets, const std::int32_t* columns, Offset* counts,
                         cudaStream_t stream) {
    panel_counts_kernel<<<blocks_for((rows + 3) / 4), kThreads, 0, stream>>>(rows, panels, width, offsets, columns, counts);
    LSMR_CHECK(cudaGetLastError());
}

template <class Offset>
std::size_t panel_scan_bytes(std::int64_t rows) {
    std::size_t bytes = 0;
    LSMR_CHECK(cub::DeviceScan::InclusiveSum(nullptr, bytes, static_cast<Offset*>(nullptr), static_cast<Offset*>(nullptr), rows + 1));
    return bytes;
}

template <class Offset>
void launch_panel_offsets(std::int64_t rows, Offset* counts, void* scratch, std::size_t scratch_bytes, cudaStream_t stream) {
    LSMR_CHECK(cub::DeviceScan::InclusiveSum(scratch, scratch_bytes, counts, counts, rows + 1, stream));
}

template <class T, class Offset>
void launch_panel_scatter(std::int64_t rows, int panel, std::int32_t width, const Offset* offsets, const std::int32_t* columns, const T* values,
                          const Offset* panel_offsets, std::int32_t* panel_columns, T* panel_values, cudaStream_t stream) {
    if (rows == 0) return;
    panel_scatter_kernel<<<blocks_for((rows + 3) / 4), kThreads, 0, stream>>>(rows, panel, width, offsets, columns, values, panel_offsets,
                                                                              panel_columns, panel_values);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE_OFFSET(Offset)                                                                                                       \
    template void launch_row_starts(std::int32_t, const StreamItem*, const Offset*, std::uint16_t*, cudaStream_t);                            \
    template void launch_panel_counts(std::int64_t, int, std::int32_t, const Offset*, const std::int32_t*, Offset*, cudaStream_t);            \
    template std::size_t panel_scan_bytes<Offset>(std::int64_t);                                                                              \
    template void launch_panel_offsets(std::int64_t, Offset*, void*, std::size_t, cudaStream_t);                                              \
    template void launch_panel_scatter(std::int64_t, int, std::int32_t, const Offset*, const std::int32_t*, const double*, const Offset*,     \
                                       std::int32_t*, double*, cudaStream_t);                                                                 \
    template void launch_panel_scatter(std::int64_t, int, std::int32_t, const Offset*, const std::int32_t*, const float*, const Offset*,      \
                                       std::int32_t*, float*, cudaStream_t);
LSMR_INSTANTIATE_OFFSET(std::int32_t)
LSMR_INSTANTIATE_OFFSET(std::int64_t)
#undef LSMR_INSTANTIATE_OFFSET
template void launch_narrow_values(std::int64_t, const double*, float*, cudaStream_t);
template void launch_narrow_values(std::int64_t, const double*, Bf16*, cudaStream_t);
template void launch_narrow_values(std::int64_t, const float*, Bf16*, cudaStream_t);

}  // namespace lsmr::cuda
