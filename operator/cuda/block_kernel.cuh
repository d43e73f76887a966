// The block kernels straight from global memory, for comparison and for Blocked-ELL; the instantiations are in block_f64.cu and block_f32.cu.
//
// A team of lanes has a block row, whose values lie side by side; several teams share a warp where block rows are short. Two mappings
// (R. Eberhardt, M. Hoemmen, "Optimization of block sparse matrix-vector multiplication on shared-memory parallel architectures", IPDPS
// Workshops 2016, DOI 10.1109/IPDPSW.2016.42):
//   columns  a team takes whole columns of blocks at a time, a lane keeps its row (or its 2 or 4 rows, by one load); blocks of any size
//   blocks   a team takes whole blocks at a time, a lane keeps its places in the block; sides that are powers of two
// Each lane adds in the order of the block columns, then the lanes of a row are added in a fixed tree.
//
// Bytes: (sizeof(X) r c + 4) blocks + 8 block rows + x once + y twice.
#pragma once

#include <algorithm>
#include <type_traits>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_kernels.hpp"
#include "operator/cuda/block_plan.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/stored_values.cuh"

namespace lsmr::cuda {
namespace {

constexpr int kBlockThreads = 256;
constexpr int kBlockWarps = kBlockThreads / 32;

// The blocks of a block row.
struct Extent {
    std::int64_t begin = 0;
    std::int64_t count = 0;
};
template <bool kUniform, class X>
__device__ Extent extent_of(const BlockMatrix<X>& matrix, std::int64_t block_row, bool exists) {
    if (!exists) return {};
    if constexpr (kUniform) return {block_row * matrix.width, matrix.width};
    const std::int64_t begin = __ldg(matrix.offsets + block_row);
    return {begin, __ldg(matrix.offsets + block_row + 1) - begin};
}

// sums of `count` lanes at distance `stride`, the first of which gets the sum; `index` is the lane's number among them. All lanes call it.
template <int N, class X>
__device__ void add_lanes(X (&sums)[N], int index, int count, int stride) {
    for (int d = 1; d < count; d *= 2) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const X other = __shfl_down_sync(0xffffffffu, sums[i], static_cast<unsigned>(d * stride));
            if (index + d < count) sums[i] += other;
        }
    }
}

// kBatch block columns that a lane needs at `first`, first + step, ...; those beyond `count` are 0. Loaded a batch ahead, since the gathers of x
// wait for them. per_block: 1, or the columns of a block where `first` counts these.
template <int kBatch>
__device__ void load_block_columns(std::int32_t (&to)[kBatch], const std::int32_t* __restrict__ columns, std::uint32_t first, std::uint32_t step,
                                   std::uint32_t count, std::uint32_t per_block) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
        const std::uint32_t k = first + static_cast<std::uint32_t>(i) * step;
        to[i] = k < count ? __ldcs(columns + k / per_block) : 0;
    }
}

// kRows = kCols = 0: the general kernel, whose block size is the matrix's.
template <int kRows, int kCols, bool kRowMajor, class X>
__global__ void __launch_bounds__(kBlockThreads) block_columns_kernel(BlockMatrix<X> matrix, int groups, const X* a_pointer, const X* __restrict__ x,
                                                                      const X* b_pointer, X* y, double* partials) {
    constexpr int kPack = kRowMajor || kRows == 0 ? 1 : block_pack(kRows, sizeof(X));
    // 64 bytes of values in flight a lane, or what comes near; with nine, ten columns at a time take the 81 of a 27-point stencil at once.
    constexpr int kBatch = kPack * sizeof(X) >= 16 ? 4 : 9;
    __shared__ double scratch[32];
    const X a = *a_pointer;
    const X b = *b_pointer;
    const int block_rows = kRows > 0 ? kRows : matrix.block_rows;
    const auto block_cols = static_cast<std::uint32_t>(kCols > 0 ? kCols : matrix.block_cols);
    const auto last_column = static_cast<std::uint32_t>(matrix.cols > 0 ? matrix.cols - 1 : 0);
    const int column_lanes = block_rows / kPack;
    const int team_lanes = column_lanes * groups;
    const int teams = 32 / team_lanes;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int team = lane / team_lanes;
    const int group = lane % team_lanes / column_lanes;
    const int row = lane % column_lanes * kPack;
    const auto start = static_cast<std::uint32_t>(group);
    const auto stride = static_cast<std::uint32_t>(groups);
    double squares = 0;
    const std::int64_t step = std::int64_t{gridDim.x} * kBlockWarps * teams;
    std::int64_t first = (std::int64_t{blockIdx.x} * kBlockWarps + threadIdx.x / 32) * teams;
    const auto extent = [&](std::int64_t of_first) {
        return extent_of<false>(matrix, of_first + team, team < teams && of_first + team < matrix.block_row_count);
    };
    const auto load_first = [&](std::int32_t (&to)[kBatch], const Extent& of) {
        load_block_columns(to, matrix.columns + of.begin, start, stride, static_cast<std::uint32_t>(of.count) * block_cols, block_cols);
    };
    // One block row is worked on, of the next one the first block columns come, of the one after it the extent.
    Extent here = extent(first);
    Extent next = extent(first + step);
    std::int32_t first_columns[kBatch];
    load_first(first_columns, here);
    for (; first < matrix.block_row_count; first += step) {
        std::int32_t block_columns[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) block_columns[i] = first_columns[i];
        load_first(first_columns, next);
        const Extent after = extent(first + 2 * step);
        const std::int64_t block_row = first + team;
        const bool writes = team < teams && group == 0 && block_row < matrix.block_row_count;
        const std::int64_t y_row = block_row * block_rows + row;
        X sums[kPack] = {};
        X old[kPack] = {};
        if (writes && b != X(0)) {
#pragma unroll
            for (int p = 0; p < kPack; ++p) old[p] = y_row + p < matrix.rows ? y[y_row + p] : X(0);
        }
        const X* values = matrix.values + static_cast<std::size_t>(here.begin) * (static_cast<std::size_t>(block_rows) * block_cols);
        const std::uint32_t count = static_cast<std::uint32_t>(here.count) * block_cols;  // columns of the block row
        for (std::uint32_t k = start; k < count; k += kBatch * stride) {
            X stored[kBatch][kPack];
            X gathered[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const std::uint32_t column = k + static_cast<std::uint32_t>(i) * stride;
#pragma unroll
                for (int p = 0; p < kPack; ++p) set_absent(stored[i][p]);
                gathered[i] = 0;
                if (column >= count) continue;
                const std::uint32_t block = column / block_cols;
                const std::uint32_t inside = column - block * block_cols;
                const auto height = static_cast<std::size_t>(block_rows);
                load_streamed(values + (kRowMajor ? (block * height + static_cast<std::size_t>(row)) * block_cols + inside
                                                  : column * height + static_cast<std::size_t>(row)),
                              stored[i]);
                // In a ragged last block a column may lie beyond x, where all places are marked.
                gathered[i] = __ldg(x + min(static_cast<std::uint32_t>(block_columns[i]) * block_cols + inside, last_column));
            }
            load_block_columns(block_columns, matrix.columns + here.begin, k + kBatch * stride, stride, count, block_cols);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
#pragma unroll
                for (int p = 0; p < kPack; ++p) sums[p] = add_product(sums[p], stored[i][p], gathered[i]);
            }
        }
        here = next;
        next = after;
        __syncwarp();
        add_lanes(sums, group, groups, column_lanes);
        if (!writes) continue;
#pragma unroll
        for (int p = 0; p < kPack; ++p) {
            if (y_row + p >= matrix.rows) continue;
            const X value = b != X(0) ? a * sums[p] + b * old[p] : a * sums[p];
            y[y_row + p] = value;
            squares += static_cast<double>(value) * static_cast<double>(value);
        }
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// kSide: of the blocks, a power of two up to 32. kUniform: Blocked-ELL, else BSR.
template <int kSide, bool kRowMajor, bool kUniform, class X>
__global__ void __launch_bounds__(kBlockThreads) whole_blocks_kernel(BlockMatrix<X> matrix, int groups, const X* a_pointer, const X* __restrict__ x,
                                                                     const X* b_pointer, X* y, double* partials) {
    constexpr int kPack = block_pack(kSide, sizeof(X));
    constexpr int kPlaces = kSide * kSide;
    constexpr int kLanes = kPlaces / kPack < 32 ? kPlaces / kPack : 32;  // of a block
    constexpr int kPasses = kPlaces / kPack / kLanes;                    // places of a lane, in packs
    constexpr int kSums = kRowMajor ? kPasses : kPack;
    constexpr int kInFlight = kPack * sizeof(X) >= 16 ? 4 : 8;
    constexpr int kBatch = kPasses >= kInFlight ? 1 : kInFlight / kPasses;
    __shared__ double scratch[32];
    const X a = *a_pointer;
    const X b = *b_pointer;
    const auto last_column = static_cast<std::uint32_t>(matrix.cols > 0 ? matrix.cols - 1 : 0);
    const int team_lanes = kLanes * groups;
    const int teams = 32 / team_lanes;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int in_team = lane % team_lanes;
    const int group = in_team / kLanes;
    const int first_place = lane % kLanes * kPack;
    const auto start = static_cast<std::uint32_t>(group);
    const auto stride = static_cast<std::uint32_t>(groups);
    constexpr int kSideLanes = kSide / kPack;  // of a row by rows, of a column by columns
    const bool writer = kRowMajor ? group == 0 && lane % kSideLanes == 0 : in_team < kSideLanes;
    const auto row_of = [&](int s) { return kRowMajor ? (s * kLanes * kPack + first_place) / kSide : first_place % kSide + s; };
    double squares = 0;
    const std::int64_t step = std::int64_t{gridDim.x} * kBlockWarps * teams;
    std::int64_t first = (std::int64_t{blockIdx.x} * kBlockWarps + threadIdx.x / 32) * teams;
    const auto extent = [&](std::int64_t of_first) {
        const std::int64_t block_row = of_first + lane / team_lanes;
        return extent_of<kUniform>(matrix, block_row, block_row < matrix.block_row_count);
    };
    const auto load_first = [&](std::int32_t (&to)[kBatch], const Extent& of) {
        load_block_columns(to, matrix.columns + of.begin, start, stride, static_cast<std::uint32_t>(of.count), 1u);
    };
    // As in the mapping by columns: of the next block row the first block columns come, of the one after it the extent.
    Extent here = extent(first);
    Extent next = extent(first + step);
    std::int32_t first_columns[kBatch];
    load_first(first_columns, here);
    for (; first < matrix.block_row_count; first += step) {
        std::int32_t block_columns[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) block_columns[i] = first_columns[i];
        load_first(first_columns, next);
        const Extent after = extent(first + 2 * step);
        const std::int64_t block_row = first + lane / team_lanes;
        const bool writes = writer && block_row < matrix.block_row_count;
        X sums[kSums] = {};
        X old[kSums] = {};
        if (writes && b != X(0)) {
#pragma unroll
            for (int s = 0; s < kSums; ++s) {
                const std::int64_t y_row = block_row * kSide + row_of(s);
                old[s] = y_row < matrix.rows ? y[y_row] : X(0);
            }
        }
        const X* values = matrix.values + here.begin * kPlaces + first_place;
        const auto count = static_cast<std::uint32_t>(here.count);
        for (std::uint32_t k = start; k < count; k += kBatch * stride) {
            X stored[kBatch][kPasses][kPack];
            std::uint32_t x_first[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const std::uint32_t block = k + static_cast<std::uint32_t>(i) * stride;
                // Of a block that Blocked-ELL fills up with all places are marked.
                x_first[i] = static_cast<std::uint32_t>(kUniform ? max(block_columns[i], 0) : block_columns[i]) * static_cast<std::uint32_t>(kSide);
#pragma unroll
                for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
                    for (int p = 0; p < kPack; ++p) set_absent(stored[i][pass][p]);
                    if (block < count) load_streamed(values + static_cast<std::size_t>(block) * kPlaces + pass * kLanes * kPack, stored[i][pass]);
                }
            }
            load_block_columns(block_columns, matrix.columns + here.begin, k + kBatch * stride, stride, count, 1u);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
#pragma unroll
                for (int pass = 0; pass < kPasses; ++pass) {
                    const int place = pass * kLanes * kPack + first_place;
                    const auto inside = static_cast<std::uint32_t>(kRowMajor ? place % kSide : place / kSide);
                    if constexpr (kRowMajor) {
#pragma unroll
                        for (int p = 0; p < kPack; ++p) {
                            const X gathered = __ldg(x + min(x_first[i] + inside + static_cast<std::uint32_t>(p), last_column));
                            sums[pass] = add_product(sums[pass], stored[i][pass][p], gathered);
                        }
                    } else {
                        const X gathered = __ldg(x + min(x_first[i] + inside, last_column));
#pragma unroll
                        for (int p = 0; p < kPack; ++p) sums[p] = add_product(sums[p], stored[i][pass][p], gathered);
                    }
                }
            }
        }
        here = next;
        next = after;
        __syncwarp();
        if constexpr (kRowMajor) {
            // First the lanes of a row in a block, then the blocks.
            add_lanes(sums, lane % kSideLanes, kSideLanes, 1);
            add_lanes(sums, group, groups, kLanes);
        } else {
            add_lanes(sums, in_team / kSideLanes, team_lanes / kSideLanes, kSideLanes);
        }
        if (!writes) continue;
#pragma unroll
        for (int s = 0; s < kSums; ++s) {
            const std::int64_t y_row = block_row * kSide + row_of(s);
            if (y_row >= matrix.rows) continue;
            const X value = b != X(0) ? a * sums[s] + b * old[s] : a * sums[s];
            y[y_row] = value;
            squares += static_cast<double>(value) * static_cast<double>(value);
        }
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <bool kRowMajor, class X>
BlockKernel<X> columns_kernel(int rows, int cols) {
    if (rows == cols) {
        switch (rows) {
            case 1: return block_columns_kernel<1, 1, kRowMajor, X>;
            case 2: return block_columns_kernel<2, 2, kRowMajor, X>;
            case 3: return block_columns_kernel<3, 3, kRowMajor, X>;
            case 4: return block_columns_kernel<4, 4, kRowMajor, X>;
            case 5: return block_columns_kernel<5, 5, kRowMajor, X>;
            case 6: return block_columns_kernel<6, 6, kRowMajor, X>;
            case 7: return block_columns_kernel<7, 7, kRowMajor, X>;
            case 8: return block_columns_kernel<8, 8, kRowMajor, X>;
            case 9: return block_columns_kernel<9, 9, kRowMajor, X>;
            case 16: return block_columns_kernel<16, 16, kRowMajor, X>;
            case 32: return block_columns_kernel<32, 32, kRowMajor, X>;
            default: break;
        }
    }
    if (rows == 2 && cols == 3) return block_columns_kernel<2, 3, kRowMajor, X>;
    if (rows == 3 && cols == 2) return block_columns_kernel<3, 2, kRowMajor, X>;
    if (rows == 9 && cols == 3) return block_columns_kernel<9, 3, kRowMajor, X>;
    if (rows == 3 && cols == 9) return block_columns_kernel<3, 9, kRowMajor, X>;
    return block_columns_kernel<0, 0, kRowMajor, X>;
}

template <bool kRowMajor, bool kUniform, class X>
BlockKernel<X> blocks_kernel(int side) {
    switch (side) {
        case 1: return whole_blocks_kernel<1, kRowMajor, kUniform, X>;
        case 2: return whole_blocks_kernel<2, kRowMajor, kUniform, X>;
        case 4: return whole_blocks_kernel<4, kRowMajor, kUniform, X>;
        case 8: return whole_blocks_kernel<8, kRowMajor, kUniform, X>;
        case 16: return whole_blocks_kernel<16, kRowMajor, kUniform, X>;
        case 32: return whole_blocks_kernel<32, kRowMajor, kUniform, X>;
        default: return nullptr;
    }
}

}  // namespace

template <class X>
BlockLaunch<X> choose_block_launch(const SpmvChoice& choice, std::int64_t block_row_count, double units, int multiprocessors) {
    BlockLaunch<X> launch;
    const int rows = choice.block_rows;
    const int cols = choice.block_cols;
    const bool by_rows = choice.order == BlockOrder::row_major;
    if (choice.kernel == SpmvKernel::bell) {
        launch.kernel = blocks_kernel<true, true, X>(rows);
    } else if (choice.mapping == BlockMapping::blocks) {
        launch.kernel = by_rows ? blocks_kernel<true, false, X>(rows) : blocks_kernel<false, false, X>(rows);
    } else {
        launch.kernel = by_rows ? columns_kernel<true, X>(rows, cols) : columns_kernel<false, X>(rows, cols);
    }
    // The general kernel loads value by value.
    const bool general = choice.mapping == BlockMapping::columns && !has_block_kernel(rows, cols);
    launch.unit_lanes = general ? rows : block_unit_lanes(rows, cols, choice.mapping, choice.order, sizeof(X));
    launch.groups = block_groups(launch.unit_lanes, units, choice.mapping);
    // As many blocks as the device holds at once: more would wait, and leave an uneven last wave.
    int resident = 0;
    LSMR_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, launch.kernel, kBlockThreads, 0));
    const std::int64_t per_block = std::int64_t{kBlockWarps} * (32 / (launch.unit_lanes * launch.groups));
    const std::int64_t most = std::min<std::int64_t>(std::int64_t{resident} * multiprocessors, kMaxPartials);
    launch.blocks = static_cast<int>(std::clamp<std::int64_t>((block_row_count + per_block - 1) / per_block, 1, most));
    return launch;
}

template <class X>
void launch_blocks(const BlockLaunch<X>& launch, const BlockMatrix<X>& matrix, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials,
                   cudaStream_t stream) {
    launch.kernel<<<static_cast<unsigned>(launch.blocks), kBlockThreads, 0, stream>>>(matrix, launch.groups, a.narrow, x, b.narrow, y, partials);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE_BLOCKS(X)                                                                                              \
    template BlockLaunch<X> choose_block_launch<X>(const SpmvChoice&, std::int64_t, double, int);                              \
    template void launch_blocks<X>(const BlockLaunch<X>&, const BlockMatrix<X>&, Scalar<X>, const X*, Scalar<X>, X*, double*, cudaStream_t);

}  // namespace lsmr::cuda
