// How the entries of a COO matrix are dealt to warps: chunks of equal length, whatever the rows. Plain data; no CUDA header is needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "operator/cuda/stream_plan.hpp"

namespace lsmr::cuda {

// What a warp takes in one step: 4 neighbouring entries a thread.
inline constexpr std::int64_t kCooStep = 128;

// A row that ends where a chunk ends, or goes on there, is cut. Chunk c leaves the sum of its part of a row that began before it in piece 2 c,
// and of one that goes on after it in piece 2 c + 1; where both are the same row, the sum is piece 2 c and piece 2 c + 1 is 0. So the
// pieces of a row are neighbours.
struct CooPlan {
    std::int64_t entries = 0;
    std::int64_t chunk_entries = kCooStep;  // a multiple of kCooStep
    std::int64_t chunks = 0;
    std::vector<CutRow> cut_rows;
    std::vector<std::int32_t> piece_rows;  // of each piece: an index of cut_rows, or -1
};

// offsets: where the entries of each row begin, rows + 1 values. Chunks depend on the number of entries alone: about 2^13 of them, longer ones
// rather than more, up to 2,048 entries, so that neighbouring warps are near each other in x.
template <class Offset>
CooPlan make_coo_plan(std::int64_t rows, const Offset* offsets) {
    constexpr std::int64_t kChunks = 8192;
    constexpr std::int64_t kLongest = 2048;
    CooPlan plan;
    plan.entries = static_cast<std::int64_t>(offsets[rows]);
    const std::int64_t steps = (plan.entries + kChunks * kCooStep - 1) / (kChunks * kCooStep);
    plan.chunk_entries = std::clamp(steps * kCooStep, kCooStep, kLongest);
    plan.chunks = (plan.entries + plan.chunk_entries - 1) / plan.chunk_entries;
    plan.piece_rows.assign(static_cast<std::size_t>(2 * plan.chunks), -1);
    for (std::int64_t c = 1; c < plan.chunks; ++c) {
        const std::int64_t first = c * plan.chunk_entries;
        const auto row =
            static_cast<std::int32_t>(std::upper_bound(offsets, offsets + rows + 1, first,
                                                       [](std::int64_t entry, Offset begin) { return entry < static_cast<std::int64_t>(begin); }) -
                                      offsets - 1);
        if (static_cast<std::int64_t>(offsets[row]) == first) continue;  // a row begins with the chunk
        const auto piece = static_cast<std::int32_t>(2 * c - 1);
        if (plan.cut_rows.empty() || plan.cut_rows.back().row != row) plan.cut_rows.push_back({row, piece, 0});
        CutRow& cut = plan.cut_rows.back();
        cut.count = piece + 2 - cut.first_piece;
        for (std::int32_t p : {piece, piece + 1}) plan.piece_rows[static_cast<std::size_t>(p)] = static_cast<std::int32_t>(plan.cut_rows.size()) - 1;
    }
    return plan;
}

}  // namespace lsmr::cuda
