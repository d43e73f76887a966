// How the lanes of a warp are dealt to the blocks of a block row: pure functions, shared by the kernels and their launchers.
#pragma once

#include <algorithm>

#include "operator/spmv_choice.hpp"

namespace lsmr::cuda {

// Blocks are at most so high and so wide: a lane of a warp for each row.
static_assert(kLargestBlockSide == 32);

// Neighbouring values that a lane loads at once, at most 16 bytes: 4, 2 or 1, whatever divides the side along which values are neighbours.
constexpr int block_pack(int side, int value_bytes) { return side % 4 == 0 && value_bytes <= 4 ? 4 : side % 2 == 0 ? 2 : 1; }

// The shapes that have kernels of their own; others go through the general kernel of the mapping by columns.
constexpr bool has_block_kernel(int rows, int cols) {
    if (rows == cols) return (rows >= 1 && rows <= 9) || rows == 16 || rows == 32;
    return (rows == 2 && cols == 3) || (rows == 3 && cols == 2) || (rows == 9 && cols == 3) || (rows == 3 && cols == 9);
}
// The mapping by blocks deals lanes in powers of two.
constexpr bool has_blocks_mapping(int rows, int cols) { return rows == cols && rows >= 1 && rows <= 32 && (rows & (rows - 1)) == 0; }

// Lanes of one column (mapping by columns), or of one block (mapping by blocks).
constexpr int block_unit_lanes(int rows, int cols, BlockMapping mapping, BlockOrder order, int value_bytes) {
    if (mapping == BlockMapping::columns) return order == BlockOrder::column_major ? rows / block_pack(rows, value_bytes) : rows;
    return std::min(32, rows * cols / block_pack(rows, value_bytes));
}

// Columns, or blocks, that a team of lanes takes at a time; the rest of the warp takes other block rows. As few as leave a lane so many loads
// that two batches of four are in flight, so that short block rows share a warp and long ones have it alone.
// units: columns, or blocks, of a block row, on average.
constexpr int block_groups(int unit_lanes, double units, BlockMapping mapping) {
    constexpr double kUnitsPerLane = 8;
    const int most = 32 / unit_lanes;
    const int wanted = static_cast<int>(std::clamp(units / kUnitsPerLane, 1.0, static_cast<double>(most)));
    if (mapping == BlockMapping::blocks) {
        int groups = 1;
        while (2 * groups <= wanted) groups *= 2;
        return groups;
    }
    return most / (most / wanted);  // the most that leave room for as many teams
}

}  // namespace lsmr::cuda
