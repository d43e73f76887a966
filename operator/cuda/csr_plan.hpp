// How the rows of a CSR matrix are dealt to thread blocks: from the shape alone, so that a plan, and the bits it gives, never depend
// on timing.
#pragma once

#include <cstdint>
#include <vector>

namespace lsmr::cuda {

// A run of whole rows, for one turn of a thread block: with at most the capacity of a chunk in entries, or a single longer row.
struct CsrItem {
    std::int32_t first_row;
    std::int32_t end_row;
};
// A piece of a row that is too long for one block: entries [part * kSegment, (part + 1) * kSegment) of it.
struct CsrSegment {
    std::int32_t row;
    std::int32_t part;
};
// A row in pieces: its sums are segments [first_segment, first_segment + count).
struct CsrSplitRow {
    std::int32_t row;
    std::int32_t first_segment;
    std::int32_t count;
};

struct CsrPlan {
    std::vector<CsrItem> items;
    std::vector<CsrSegment> segments;
    std::vector<CsrSplitRow> split_rows;
};

// Entries of one segment; a row is split from twice as many on. A block sums 16k entries in a few microseconds, which is short beside any
// product that fills the card.
inline constexpr std::int64_t kCsrSegment = 16 * 1024;

// capacity: entries that a block's shared memory holds.
template <class Offset>
CsrPlan make_csr_plan(std::int64_t rows, const Offset* offsets, std::int64_t capacity) {
    CsrPlan plan;
    std::int64_t first = 0;
    while (first < rows) {
        const auto begin = static_cast<std::int64_t>(offsets[first]);
        const std::int64_t length = static_cast<std::int64_t>(offsets[first + 1]) - begin;
        if (length >= 2 * kCsrSegment) {
            const auto parts = static_cast<std::int32_t>((length + kCsrSegment - 1) / kCsrSegment);
            plan.split_rows.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(plan.segments.size()), parts});
            for (std::int32_t part = 0; part < parts; ++part) plan.segments.push_back({static_cast<std::int32_t>(first), part});
            ++first;
            continue;
        }
        std::int64_t end = first + 1;
        // Empty rows cost a turn of a thread too, so their number is bounded as well.
        while (end < rows && static_cast<std::int64_t>(offsets[end + 1]) - begin <= capacity && end - first < capacity) ++end;
        plan.items.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(end)});
        first = end;
    }
    return plan;
}

}  // namespace lsmr::cuda
