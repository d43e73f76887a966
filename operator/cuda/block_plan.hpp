// How the threads of the block kernels are dealt to the blocks of a block row: pure functions, shared by the kernels and their launchers. No CUDA
// header is needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "operator/cuda/stream_plan.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr::cuda {

// Blocks are at most so high and so wide: a lane of a warp for each row.
static_assert(kLargestBlockSide == 32);

// Neighbouring values that a lane loads at once, at most 16 bytes: 4, 2 or 1, whatever divides the side along which values are neighbours.
constexpr int block_pack(int side, int value_bytes) { return side % 4 == 0 && value_bytes <= 4 ? 4 : side % 2 == 0 ? 2 : 1; }

// The shapes that have kernels of their own, by columns and by items; others go through the general kernel of the mapping.
constexpr bool has_block_kernel(int rows, int cols) {
    if (rows == cols) return (rows >= 1 && rows <= 9) || rows == 16 || rows == 32;
    return (rows == 2 && cols == 3) || (rows == 3 && cols == 2) || (rows == 9 && cols == 3) || (rows == 3 && cols == 9);
}

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

// The mapping "stream", by items. Its thread blocks are small, so that many share a multiprocessor: while some wait for their items, the others
// multiply.
inline constexpr int kBlockStreamThreads = 64;
inline constexpr std::int64_t kBlockStreamBytes = 16384;      // of values and block columns of an item,
inline constexpr std::int64_t kMostBlockStreamBytes = 24576;  // or up to these, where a block row then needs no cut
// Thread blocks of a multiprocessor for which there are registers.
constexpr int block_stream_resident(int cols) { return cols <= 6 ? 12 : 10; }

constexpr bool is_power(int n) { return n > 0 && (n & (n - 1)) == 0; }

// How the threads of the mapping "stream" are dealt to a block row. A thread keeps a pack of rows: it reads a value of x once for all of them. The
// threads of a team share a pack, each takes every so many-th block. Neighbouring threads keep `beside` neighbouring packs, then come the others of
// their teams: so that they read neighbouring values, where sides are powers of two and other deals would meet in one bank of shared memory.
struct BlockStreamShape {
    int block_rows = 1;
    int pack = 1;    // a divisor of block_rows
    int beside = 1;  // 1, or all packs of a block row
    constexpr int packs() const { return block_rows / pack; }
    constexpr int largest_team() const {  // log2: teams lie in a warp
        int team = 5;
        for (int n = beside; n > 1; n /= 2) --team;
        return team;
    }
};
constexpr BlockStreamShape block_stream_shape(int rows, int cols, int value_bytes) {
    if (!has_block_kernel(rows, cols)) return {rows, 1, 1};
    const int pack = is_power(rows) ? std::min(rows, value_bytes == 8 ? 2 : 4) : rows % 3 == 0 && rows % 2 != 0 ? 3 : rows % 2 == 0 ? 2 : rows;
    return {rows, pack, is_power(rows) && rows >= 16 ? rows / pack : 1};
}
// Blocks that a thread takes at a time: the x of them all are on their way together, 8 to 12 values.
constexpr int block_stream_batch(int cols) { return cols <= 3 ? 4 : cols <= 7 ? 2 : 1; }
// Blocks of an item. longest: of a block row.
constexpr std::int64_t block_stream_capacity(int rows, int cols, int value_bytes, std::int64_t longest) {
    const std::int64_t block_bytes = std::int64_t{rows} * cols * value_bytes + 4;
    const std::int64_t capacity = std::max<std::int64_t>(kBlockStreamBytes / block_bytes, 1);
    return longest * block_bytes <= kMostBlockStreamBytes ? std::max(capacity, longest) : capacity;
}

// The work of one turn of a thread block: up to `capacity` consecutive blocks, which are whole block rows, or a piece of one that is longer.
struct alignas(16) BlockItem {
    std::int64_t begin;       // first block
    std::int32_t first_row;   // block row
    std::int32_t piece;       // of a piece: where the sum of its first row goes in piece_sums; that of row r goes r * pieces further
    std::int32_t pieces;      // of the block row; 0: whole block rows
    std::uint16_t count;      // blocks
    std::uint16_t rows;       // block rows, empty ones among them included
    std::uint8_t team;        // log2 of the threads that share a pack of rows
};

struct BlockPlan {
    std::vector<BlockItem> items;
    std::vector<std::uint16_t> starts;  // of each block row: its first block, counted from the begin of the item where it starts
    std::vector<CutRow> cut_rows;       // rows of cut block rows
    std::int64_t piece_sums = 0;
};

// Block rows of an item, and log2 of the threads of its teams.
struct BlockDeal {
    std::int64_t rows = 1;
    int team = 0;
};
// Of up to most_rows block rows of `blocks` blocks on average: what takes the fewest steps a row, all of them or as many as fill whole rounds of the
// threads. A step is that with a block; the sums of a team take a quarter of one for each exchange, and a turn some four of its own.
inline BlockDeal choose_block_deal(std::int64_t most_rows, std::int64_t blocks, const BlockStreamShape& shape) {
    BlockDeal best;
    std::int64_t least = -1;  // quarters of steps
    for (int team = 0; team <= shape.largest_team(); ++team) {
        const std::int64_t round = kBlockStreamThreads >> team;  // packs
        for (const std::int64_t rows : {most_rows, most_rows * shape.packs() / round * round / shape.packs()}) {
            if (rows < 1) continue;
            const std::int64_t rounds = (rows * shape.packs() + round - 1) / round;
            const std::int64_t steps = 16 + rounds * (4 * ((blocks + (std::int64_t{1} << team) - 1) >> team) + 2 + team);
            if (least >= 0 && steps * best.rows >= least * rows) continue;
            least = steps;
            best = {rows, team};
        }
    }
    return best;
}

// offsets: block_row_count + 1 values. rows: of the matrix.
inline BlockPlan make_block_plan(std::int64_t rows, std::int64_t block_row_count, const std::int64_t* offsets, const BlockStreamShape& shape,
                                 std::int64_t capacity) {
    BlockPlan plan;
    plan.starts.resize(static_cast<std::size_t>(block_row_count));
    const std::int64_t most_rows = std::max<std::int64_t>(capacity, kBlockStreamThreads);  // empty ones cost a turn too
    const std::int64_t block_rows = shape.block_rows;
    for (std::int64_t row = 0; row < block_row_count;) {
        const std::int64_t begin = offsets[row];
        const std::int64_t length = offsets[row + 1] - begin;
        BlockItem item{};
        item.first_row = static_cast<std::int32_t>(row);
        if (length > capacity) {
            item.pieces = static_cast<std::int32_t>((length + capacity - 1) / capacity);
            item.rows = 1;
            for (std::int64_t piece = 0; piece < item.pieces; ++piece) {
                item.begin = begin + length * piece / item.pieces;
                item.piece = static_cast<std::int32_t>(plan.piece_sums + piece);
                item.count = static_cast<std::uint16_t>(begin + length * (piece + 1) / item.pieces - item.begin);
                item.team = static_cast<std::uint8_t>(choose_block_deal(1, item.count, shape).team);
                plan.items.push_back(item);
            }
            for (std::int64_t r = row * block_rows; r < std::min((row + 1) * block_rows, rows); ++r) {
                const std::int64_t first = plan.piece_sums + (r - row * block_rows) * item.pieces;
                plan.cut_rows.push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(first), item.pieces});
            }
            plan.piece_sums += std::int64_t{item.pieces} * block_rows;
            ++row;
            continue;
        }
        std::int64_t end = row + 1;
        while (end < block_row_count && end - row < most_rows && offsets[end + 1] - begin <= capacity) ++end;
        const BlockDeal deal = choose_block_deal(end - row, (offsets[end] - begin + end - row - 1) / (end - row), shape);
        end = row + deal.rows;
        item.begin = begin;
        item.count = static_cast<std::uint16_t>(offsets[end] - begin);
        item.rows = static_cast<std::uint16_t>(deal.rows);
        item.team = static_cast<std::uint8_t>(deal.team);
        plan.items.push_back(item);
        for (; row < end; ++row) plan.starts[static_cast<std::size_t>(row)] = static_cast<std::uint16_t>(offsets[row] - begin);
    }
    return plan;
}

// The lanes of warps that have no block (or column) while their warp works: of its steps, of which a lane takes those with a block, and the warp
// as many as its busiest lane.
struct LaneSteps {
    std::int64_t busy = 0;
    std::int64_t all = 0;
    double idle() const { return all > 0 ? 1 - static_cast<double>(busy) / static_cast<double>(all) : 0; }
};
inline constexpr std::int64_t kSampledWarps = 4096;  // of many warps, or items: as many, at even distances

// By columns or by blocks: a warp has 32 / (unit_lanes * groups) block rows. units: columns, or blocks, of a block.
inline LaneSteps direct_lane_steps(std::int64_t block_row_count, const std::int64_t* offsets, int unit_lanes, int groups, std::int64_t units) {
    LaneSteps steps;
    const std::int64_t teams = 32 / (unit_lanes * groups);
    const std::int64_t warps = (block_row_count + teams - 1) / teams;
    const std::int64_t distance = std::max<std::int64_t>(warps / kSampledWarps, 1);
    for (std::int64_t warp = 0; warp < warps; warp += distance) {
        std::int64_t busiest = 0;
        for (std::int64_t row = warp * teams; row < std::min((warp + 1) * teams, block_row_count); ++row) {
            const std::int64_t count = (offsets[row + 1] - offsets[row]) * units;
            steps.busy += count * unit_lanes;
            busiest = std::max(busiest, (count + groups - 1) / groups);
        }
        steps.all += 32 * busiest;
    }
    return steps;
}

// By items, as make_block_plan deals them.
inline LaneSteps stream_lane_steps(const BlockPlan& plan, const BlockStreamShape& shape) {
    LaneSteps steps;
    const auto items = static_cast<std::int64_t>(plan.items.size());
    const std::int64_t distance = std::max<std::int64_t>(items / kSampledWarps, 1);
    for (std::int64_t i = 0; i < items; i += distance) {
        const BlockItem& item = plan.items[static_cast<std::size_t>(i)];
        const auto start = [&](std::int64_t row) -> std::int64_t {
            return row == item.rows ? item.count : row == 0 ? 0 : plan.starts[static_cast<std::size_t>(item.first_row + row)];
        };
        const std::int64_t packs = std::int64_t{item.rows} * shape.packs();
        const std::int64_t of_warp = 32 >> item.team;
        for (std::int64_t first = 0; first < packs; first += of_warp) {
            std::int64_t busiest = 0;
            for (std::int64_t pack = first; pack < std::min(first + of_warp, packs); ++pack) {
                const std::int64_t row = pack / shape.packs();
                const std::int64_t count = start(row + 1) - start(row);
                steps.busy += count;
                busiest = std::max(busiest, (count + (std::int64_t{1} << item.team) - 1) >> item.team);
            }
            steps.all += 32 * busiest;
        }
    }
    return steps;
}

}  // namespace lsmr::cuda
