// From CSR to blocks: a warp a block row, a lane a row of it. The lanes walk their rows together, block column by block column, since the columns
// of each ascend: no sort, no atomics, the same arrays at every run.
#include <algorithm>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_kernels.hpp"
#include "operator/cuda/stored_values.cuh"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

unsigned blocks_for(std::int64_t block_rows) { return static_cast<unsigned>(std::clamp<std::int64_t>((block_rows + kWarps - 1) / kWarps, 1, 1 << 20)); }

// f(block, column, k, end, here): the warp's lanes at the block-th block, which has that block column; `here`: the lane's row has entries there,
// from k on; f returns the lane's next entry. All lanes call f.
template <class Offset, class F>
__device__ std::int64_t walk_block_row(std::int64_t block_row, std::int64_t rows, int block_rows, int block_cols, const Offset* offsets,
                                       const std::int32_t* columns, const F& f) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t row = block_row * block_rows + lane;
    const bool has_row = lane < block_rows && row < rows;
    Offset k = has_row ? offsets[row] : 0;
    const Offset end = has_row ? offsets[row + 1] : 0;
    std::int64_t blocks = 0;
    for (;; ++blocks) {
        const std::int32_t mine = k < end ? columns[k] / block_cols : INT32_MAX;
        const std::int32_t column = __reduce_min_sync(0xffffffffu, mine);
        if (column == INT32_MAX) return blocks;
        k = f(blocks, column, k, end, mine == column);
    }
}

template <class Offset>
__global__ void __launch_bounds__(kThreads) count_blocks_kernel(std::int64_t rows, std::int64_t block_row_count, int block_rows, int block_cols,
                                                                const Offset* offsets, const std::int32_t* columns, std::int64_t* counts, int* unsorted) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < block_row_count; i += std::int64_t{gridDim.x} * kWarps) {
        const std::int64_t blocks =
            walk_block_row(i, rows, block_rows, block_cols, offsets, columns, [&](std::int64_t, std::int32_t column, Offset k, Offset end, bool here) {
                for (; here && k < end && columns[k] / block_cols == column; ++k) {
                    if (k + 1 < end && columns[k + 1] <= columns[k]) *unsorted = 1;
                }
                return k;
            });
        if (lane == 0) counts[i + 1] = blocks;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) counts[0] = 0;
}

template <class V, class T, class Offset>
__global__ void __launch_bounds__(kThreads)
    fill_blocks_kernel(std::int64_t rows, std::int64_t block_row_count, int block_rows, int block_cols, bool row_major, bool marked, const Offset* offsets,
                       const std::int32_t* columns, const T* values, const std::int64_t* block_offsets, std::int64_t width, std::int32_t* block_columns,
                       V* block_values) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int places = block_rows * block_cols;
    V empty;
    if (marked) set_absent(empty);
    else empty = V{};
    const auto clear = [&](std::int64_t block) {
        for (int place = lane; place < places; place += 32) block_values[block * places + place] = empty;
    };
    for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < block_row_count; i += std::int64_t{gridDim.x} * kWarps) {
        const std::int64_t begin = width > 0 ? i * width : block_offsets[i];
        const std::int64_t count =
            walk_block_row(i, rows, block_rows, block_cols, offsets, columns, [&](std::int64_t number, std::int32_t column, Offset k, Offset end, bool here) {
                const std::int64_t block = begin + number;
                clear(block);
                if (lane == 0) block_columns[block] = column;
                __syncwarp();  // the entries come over what was cleared
                for (; here && k < end && columns[k] / block_cols == column; ++k) {
                    const int inside = columns[k] - column * block_cols;
                    block_values[block * places + (row_major ? lane * block_cols + inside : inside * block_rows + lane)] = narrowed<V>(values[k]);
                }
                return k;
            });
        for (std::int64_t block = begin + count; block < begin + width; ++block) {  // Blocked-ELL: up to its width
            clear(block);
            if (lane == 0) block_columns[block] = -1;
        }
    }
}

}  // namespace

template <class Offset>
void launch_count_blocks(std::int64_t rows, int block_rows, int block_cols, const Offset* offsets, const std::int32_t* columns, std::int64_t* counts,
                         int* unsorted, cudaStream_t stream) {
    const std::int64_t block_row_count = (rows + block_rows - 1) / block_rows;
    count_blocks_kernel<<<blocks_for(block_row_count), kThreads, 0, stream>>>(rows, block_row_count, block_rows, block_cols, offsets, columns, counts, unsorted);
    LSMR_CHECK(cudaGetLastError());
}

template <class V, class T, class Offset>
void launch_fill_blocks(std::int64_t rows, int block_rows, int block_cols, BlockOrder order, EmptyPlaces empty, const Offset* offsets,
                        const std::int32_t* columns, const T* values, const std::int64_t* block_offsets, std::int64_t width,
                        std::int32_t* block_columns, V* block_values, cudaStream_t stream) {
    const std::int64_t block_row_count = (rows + block_rows - 1) / block_rows;
    if (block_row_count == 0) return;
    fill_blocks_kernel<<<blocks_for(block_row_count), kThreads, 0, stream>>>(rows, block_row_count, block_rows, block_cols, order == BlockOrder::row_major,
                                                                             empty == EmptyPlaces::marked, offsets, columns, values, block_offsets, width,
                                                                             block_columns, block_values);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE_FILL(V, T, Offset)                                                                                                       \
    template void launch_fill_blocks(std::int64_t, int, int, BlockOrder, EmptyPlaces, const Offset*, const std::int32_t*, const T*,              \
                                     const std::int64_t*, std::int64_t, std::int32_t*, V*, cudaStream_t);
#define LSMR_INSTANTIATE(Offset)                                                                                                                  \
    template void launch_count_blocks(std::int64_t, int, int, const Offset*, const std::int32_t*, std::int64_t*, int*, cudaStream_t);            \
    LSMR_INSTANTIATE_FILL(double, double, Offset)                                                                                                 \
    LSMR_INSTANTIATE_FILL(float, double, Offset)                                                                                                  \
    LSMR_INSTANTIATE_FILL(Bf16, double, Offset)                                                                                                   \
    LSMR_INSTANTIATE_FILL(float, float, Offset)                                                                                                   \
    LSMR_INSTANTIATE_FILL(Bf16, float, Offset)
LSMR_INSTANTIATE(std::int32_t)
LSMR_INSTANTIATE(std::int64_t)
#undef LSMR_INSTANTIATE
#undef LSMR_INSTANTIATE_FILL

}  // namespace lsmr::cuda
