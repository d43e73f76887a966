// How a CSR matrix is dealt for the window kernel: from its shape and counts alone, so that a plan, and the bits it gives, never depend on timing.
// Plain data for the host and the device; no CUDA header is needed.
//
// Runs of 32 rows are dealt to panels in turn, so that panels are alike; columns are cut into windows; where both meet is a cell. A thread block, which has a
// multiprocessor to itself, keeps the sums of a panel and the x of a window in shared memory, and takes cells in turn, window by window of a panel. A cell
// holds segments, what a row has in the window, laid out in slices: 32 segments of like length side by side, a lane each, entry by entry. A long segment
// takes the lanes of a team.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "memory/host_device.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr::cuda {

// Steps of a slice: a segment with more entries has a team of 2, 4, .. 32 lanes; only where those do not do is a slice longer.
inline constexpr int kSliceSteps = 16;
inline constexpr int kTeamLevels = 6;  // teams of 1, 2, .. 32 lanes
// A column takes 15 bits, and the one past the window's last is that of padding.
inline constexpr std::int32_t kWidestWindow = kLargestWindow;
static_assert(kWidestWindow < (1 << 15) && kWidestWindow % 8 == 0);
inline constexpr std::uint16_t kSliceEnd = 1 << 15;  // of a column: the slice's last step, set for the first lane of each team
inline constexpr std::uint16_t kNoSegment = 0xffff;  // the row of lanes without one
inline constexpr std::int32_t kWindowPlaces = 8;     // of a window in shared memory, beside its columns: a zero, and up to three before it

struct WindowShape {
    std::int32_t panels = 1;
    std::int32_t windows = 1;
    std::int32_t width = 8;       // columns of a window, a multiple of 8
    std::int32_t panel_rows = 0;  // a multiple of 32; the last ones may lie past the matrix
};
// The row of the matrix that is number r of a panel.
LSMR_HD inline std::int64_t window_row(std::int32_t panels, std::int32_t panel, std::int32_t r) {
    return (std::int64_t{r / 32} * panels + panel) * 32 + r % 32;
}

// What a block does in turn.
struct alignas(16) WindowCell {
    std::int32_t first_column;
    std::int32_t width;  // columns that exist
    std::int32_t panel;
    std::int32_t leave;  // the panel's sums go there after this cell, in units of panel_rows sums; -1: more of them come
};

// What a warp does in a cell. Values lie at 32 a step, columns in groups of 4 steps, 4 for each lane side by side, and the rows of slices like those, in groups
// of 4 slices.
struct alignas(16) WindowShare {
    std::int32_t step;
    std::int32_t steps;
    std::int32_t group;
    std::int32_t row_group;
};
// Its size, before it has a place.
struct WindowCount {
    std::int32_t steps;
    std::int32_t slices;
};

// Constants of an H200: they give the measured times of rays through 100^3 cells and of their transpose, in six shapes, to 8 %.
struct WindowModel {
    double matrix_bytes = 3.9e12;      // a second, of values, columns and rows of segments
    double x_bytes = 3.5e12;           // a second, of all blocks' loads of x from L2
    double hidden = 0.8;               // of the shorter of these two
    double segment_seconds = 0.5e-12;  // of adding a segment's sum
    double cell_seconds = 0.6e-6;      // of beginning a cell
    double sum_bytes = 3e12;           // a second, of sums of panels, written and read again
    double finish_seconds = 3e-6;      // of the second kernel, beside its bytes
};

// Seconds of a product in that shape. Segments as of random columns, which share windows least.
// value_bytes: of a stored value.
inline double window_seconds(const WindowModel& model, const WindowShape& shape, std::int64_t rows, std::int64_t cols, std::int64_t nnz, int element_bytes,
                             double value_bytes, int multiprocessors) {
    const double x = static_cast<double>(shape.panels) * static_cast<double>(cols) * element_bytes / model.x_bytes;
    const double places = static_cast<double>(rows) * shape.windows;
    const double segments = places > 0 ? places * -std::expm1(-static_cast<double>(nnz) / places) : 0;
    const double matrix = (static_cast<double>(nnz) * (value_bytes + 2) + 2 * segments) / model.matrix_bytes;
    // Blocks take whole cells, which are not all alike.
    const double cells = static_cast<double>(shape.panels) * shape.windows / multiprocessors;
    const double uneven = cells > 1 ? (std::ceil(cells) + 0.25) / cells : 1;
    const double begins = std::ceil(cells) * model.cell_seconds;
    // About as many blocks leave sums of a panel as work at it.
    const double leaves = std::max(static_cast<double>(multiprocessors) / shape.panels, 1.0);
    const double sums = leaves > 1 ? 2 * leaves * static_cast<double>(rows) * element_bytes / model.sum_bytes + model.finish_seconds : 0;
    return uneven * (std::max(matrix, x) + (1 - model.hidden) * std::min(matrix, x) + segments * model.segment_seconds) + begins + sums;
}

// The shape that promises to take the least time, or no panels where none fits. room_bytes: of a block's shared memory. most_columns: of a window; 0: as
// many as fit.
inline WindowShape choose_window_shape(std::int64_t rows, std::int64_t cols, std::int64_t nnz, int element_bytes, std::int32_t most_columns,
                                       std::int64_t room_bytes, int multiprocessors, const WindowModel& model = {}) {
    WindowShape best{0, 1, 8, 0};
    double least = 0;
    const std::int64_t runs = std::max<std::int64_t>((rows + 31) / 32, 1);
    const auto consider = [&](std::int64_t count) {
        WindowShape shape;
        const std::int64_t panels = std::clamp<std::int64_t>(count, 1, runs);
        const std::int64_t panel_rows = (runs + panels - 1) / panels * 32;
        const std::int64_t room = (room_bytes / element_bytes - panel_rows - kWindowPlaces) / 8 * 8;
        const std::int64_t widest = std::min<std::int64_t>({room, kWidestWindow, most_columns > 0 ? most_columns : kWidestWindow});
        if (panel_rows > kNoSegment || widest < 8) return;
        shape.panels = static_cast<std::int32_t>(panels);
        shape.panel_rows = static_cast<std::int32_t>(panel_rows);
        // Narrower windows may be dealt more evenly: up to a quarter more of them, few enough widths that the search takes no time where x is huge.
        const std::int64_t fewest = std::max<std::int64_t>((cols + widest - 1) / widest, 1);
        for (std::int64_t windows = fewest; windows <= fewest + std::min<std::int64_t>(fewest / 4, 64); ++windows) {
            const std::int64_t width = std::max<std::int64_t>((cols + windows - 1) / windows, 1);
            shape.windows = static_cast<std::int32_t>(windows);
            shape.width = static_cast<std::int32_t>((width + 7) / 8 * 8);
            const double seconds = window_seconds(model, shape, rows, cols, nnz, element_bytes, element_bytes, multiprocessors);
            if (best.panels != 0 && seconds >= least) continue;
            best = shape;
            least = seconds;
        }
    };
    for (int blocks = 6; blocks > 1; --blocks) consider(multiprocessors / blocks);
    for (int turns = 1; turns <= 4; ++turns) consider(std::int64_t{multiprocessors} * turns);
    for (std::int64_t count = std::int64_t{multiprocessors} * 8; best.panels == 0 && count / 2 < runs; count *= 2) consider(count);
    return best;
}

// Seconds that a product takes at least on an H200, by the model; 0 where no shape fits.
inline double least_window_seconds(std::int64_t rows, std::int64_t cols, std::int64_t nnz, int element_bytes, double value_bytes,
                                   const WindowModel& model = {}) {
    constexpr int kMultiprocessors = 132;
    constexpr std::int64_t kRoomBytes = std::int64_t{226} << 10;
    const WindowShape shape = choose_window_shape(rows, cols, nnz, element_bytes, 0, kRoomBytes, kMultiprocessors, model);
    return shape.panels > 0 ? window_seconds(model, shape, rows, cols, nnz, element_bytes, value_bytes, kMultiprocessors) : 0;
}

// The cells in turn, their warps' shares, what each block takes, and where sums of panels go.
struct WindowPlan {
    WindowShape shape;
    std::vector<std::int32_t> numbers;       // of each cell that has entries: panel x windows + window, in ascending order
    std::vector<WindowCell> cells;           // those
    std::vector<WindowShare> shares;         // of their warps
    std::vector<std::int32_t> block_first;   // blocks + 1 cells
    std::vector<std::int32_t> panel_leaves;  // panels + 1: where the sums of each panel are left, one after the other
    std::int64_t steps = 0;
    std::int64_t groups = 0;
    std::int64_t row_groups = 0;
    std::int64_t slices = 0;
    bool direct = false;  // every panel's sums are left once, so they are complete then
};

// counts: of each cell, panels x windows, `warps` each. Fills in all but the shape. Blocks take equal shares of the steps, by whole cells.
inline void deal_window_cells(const std::vector<WindowCount>& counts, int warps, std::int64_t cols, int blocks, WindowPlan& plan) {
    const std::int32_t windows = plan.shape.windows;
    std::vector<double> weights;  // up to each cell
    weights.push_back(0);
    for (std::int32_t number = 0; number < plan.shape.panels * windows; ++number) {
        const std::int64_t before = plan.steps;
        const std::size_t first = plan.shares.size();
        for (int w = 0; w < warps; ++w) {
            const WindowCount& count = counts[static_cast<std::size_t>(number) * static_cast<std::size_t>(warps) + static_cast<std::size_t>(w)];
            plan.shares.push_back({static_cast<std::int32_t>(plan.steps), count.steps, static_cast<std::int32_t>(plan.groups),
                                   static_cast<std::int32_t>(plan.row_groups)});
            plan.steps += count.steps;
            plan.groups += (count.steps + 3) / 4;
            plan.row_groups += (count.slices + 3) / 4;
            plan.slices += count.slices;
        }
        if (plan.steps == before) {
            plan.shares.resize(first);
            continue;
        }
        const std::int32_t panel = number / windows;
        const std::int64_t column = std::int64_t{number % windows} * plan.shape.width;
        plan.numbers.push_back(number);
        plan.cells.push_back(
            {static_cast<std::int32_t>(column), static_cast<std::int32_t>(std::min<std::int64_t>(plan.shape.width, cols - column)), panel, -1});
        // The columns of x count as a quarter of as many entries.
        weights.push_back(weights.back() + 32 * static_cast<double>(plan.steps - before) + plan.shape.width / 4.0);
    }
    const auto cells = static_cast<std::int32_t>(plan.cells.size());
    blocks = std::min(blocks, cells);
    plan.block_first.assign(1, 0);
    for (std::int32_t b = 1; b <= blocks; ++b) {
        const double bound = weights.back() * b / blocks;
        std::int32_t cell = plan.block_first.back();
        while (cell < cells && (weights[static_cast<std::size_t>(cell)] + weights[static_cast<std::size_t>(cell) + 1]) / 2 < bound) ++cell;
        plan.block_first.push_back(b == blocks ? cells : cell);
    }
    plan.panel_leaves.assign(static_cast<std::size_t>(plan.shape.panels) + 1, 0);
    std::int32_t leaves = 0;
    for (std::int32_t b = 0; b < blocks; ++b) {
        const std::int32_t end = plan.block_first[static_cast<std::size_t>(b) + 1];
        for (std::int32_t c = plan.block_first[static_cast<std::size_t>(b)]; c < end; ++c) {
            WindowCell& cell = plan.cells[static_cast<std::size_t>(c)];
            if (c + 1 < end && plan.cells[static_cast<std::size_t>(c) + 1].panel == cell.panel) continue;
            cell.leave = leaves++;
            ++plan.panel_leaves[static_cast<std::size_t>(cell.panel) + 1];
        }
    }
    plan.direct = blocks > 0 && std::all_of(plan.panel_leaves.begin() + 1, plan.panel_leaves.end(), [](std::int32_t count) { return count == 1; });
    std::partial_sum(plan.panel_leaves.begin(), plan.panel_leaves.end(), plan.panel_leaves.begin());
}

}  // namespace lsmr::cuda
