// How a CSR matrix is dealt to the thread blocks of the stream kernel: from its shape alone, so that a plan, and the bits it gives, never
// depend on timing. Plain data for the host and the device; no CUDA header is needed.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "operator/formats/row_plans.hpp"

namespace lsmr::cuda {

// The work of one turn of a thread block: up to `capacity` consecutive entries, which are whole rows, but for the first and the last,
// which may be pieces of a row that other items continue; or one long row, or a piece of it, of up to 32 entries a thread.
struct alignas(16) StreamItem {
    std::int64_t begin;         // first entry
    std::uint32_t columns;      // where the column of entry (begin & ~7) lies, in units of 16 bytes
    std::int32_t column_base;   // added to every column
    std::int32_t first_row;
    std::int32_t piece;         // the first of its pieces, an index of the plan's pieces
    std::uint16_t count;        // entries
    std::uint16_t rows;         // rows that have entries here, empty ones between them included
    std::uint8_t team;          // log2 of the threads that share a row, or kWholeBlock, or kWarpRows
    std::uint8_t flags;
    std::uint16_t unused;
};
inline constexpr std::uint8_t kWholeBlock = 6;    // a single row, or piece, for all threads, past shared memory
inline constexpr std::uint8_t kWarpRows = 7;      // long rows side by side, as many as there are warps, past shared memory
inline constexpr std::uint8_t kFirstIsPiece = 1;  // the sum of the first row goes to piece_sums[piece]
inline constexpr std::uint8_t kLastIsPiece = 2;   // the sum of the last row goes to the next piece
inline constexpr std::uint8_t kNarrowColumns = 4; // 16-bit columns

// A row in pieces: its sum is that of the pieces [first_piece, first_piece + count), added in that order.
struct CutRow {
    std::int32_t row;
    std::int32_t first_piece;
    std::int32_t count;
};

struct StreamPlan {
    std::vector<StreamItem> items;
    std::vector<CutRow> cut_rows;
    std::vector<std::int32_t> piece_rows;  // the cut row of each piece, an index of cut_rows
};

// rows: items end where rows end; rows of more than half the capacity have items of their own, and are cut beyond 32 entries a thread.
// balanced: every item is full, and rows are cut where items end.
enum class StreamCut { rows, balanced };
inline constexpr std::int64_t kEntriesPerThread = 32;

// Threads that share each of `rows` rows of `count` entries in a block of `threads`: as many as there are, never more than entries.
inline std::uint8_t choose_team(std::int64_t rows, std::int64_t count, std::int64_t capacity, int threads) {
    if (rows == 1 && count > std::min<std::int64_t>(threads, capacity)) return kWholeBlock;
    std::uint8_t team = 0;
    while (team < 5 && (rows << (team + 1)) <= threads && (rows << (team + 1)) <= count) ++team;
    return team;
}

// offsets: rows + 1 values. capacity: a multiple of 8, at most 2^15. Items end where bisection finds.
// longest_row: an upper bound, to spare a look at every row.
template <class Offset>
StreamPlan make_stream_plan(std::int64_t rows, const Offset* offsets, std::int64_t longest_row, std::int64_t capacity, int threads, StreamCut cut) {
    StreamPlan plan;
    const auto offset = [&](std::int64_t row) { return static_cast<std::int64_t>(offsets[row]); };
    // First row after `first` whose entries do not all lie below `limit`, at most `capacity` rows on: empty rows cost a turn too. Looked for from
    // where it lay in the item before: a look at a far offset waits for memory.
    std::int64_t rows_before = 1;
    const auto rows_within = [&](std::int64_t first, std::int64_t limit) {
        std::int64_t low = first;  // offset(low) <= limit < offset(high), or high is too far
        std::int64_t high = std::min(rows, first + capacity) + 1;
        std::int64_t step = 8;
        if (const std::int64_t guess = std::min(first + rows_before, high - 1); offset(guess) <= limit) {
            low = guess;
            for (; low + step < high && offset(low + step) <= limit; step *= 2) low += step;
            high = std::min(high, low + step);
        } else {
            high = guess;
            for (; high - step > low && offset(high - step) > limit; step *= 2) high -= step;
            low = std::max(low, high - step);
        }
        while (high - low > 1) {
            const std::int64_t middle = low + (high - low) / 2;
            if (offset(middle) <= limit) low = middle;
            else high = middle;
        }
        rows_before = low - first;
        return low;
    };
    const auto add_piece = [&](std::int64_t row, bool continues) {
        if (!continues) plan.cut_rows.push_back({static_cast<std::int32_t>(row), static_cast<std::int32_t>(plan.piece_rows.size()), 0});
        ++plan.cut_rows.back().count;
        plan.piece_rows.push_back(static_cast<std::int32_t>(plan.cut_rows.size()) - 1);
    };
    const std::int64_t long_row = capacity / 2;
    // Long rows of like length, from `row` on, which the warps of a block take side by side: what neighbouring rows gather is often the same.
    constexpr std::int64_t kLongestWarpRow = 4096;
    const auto warp_rows = [&](std::int64_t row) {
        std::int64_t end = row, least = kLongestWarpRow, most = 0;
        while (end < rows && end - row < threads / 32) {
            const std::int64_t length = offset(end + 1) - offset(end);
            least = std::min(least, length);
            most = std::max(most, length);
            if (length <= long_row || most > kLongestWarpRow || most > 2 * least) break;
            ++end;
        }
        return end - row;
    };
    std::vector<std::int32_t> long_rows;
    if (cut == StreamCut::rows && longest_row > long_row) long_rows = rows_longer_than(long_row, rows, offsets);
    auto next_long = long_rows.begin();  // the first that is not before `row`
    const std::int64_t longest_item = cut == StreamCut::rows ? std::max(capacity, kEntriesPerThread * threads) : capacity;
    std::int64_t row = 0;
    std::int64_t begin = 0;  // the entry that comes next; inside `row` where that is cut
    while (row < rows) {
        StreamItem item{};
        item.begin = begin;
        item.first_row = static_cast<std::int32_t>(row);
        item.piece = static_cast<std::int32_t>(plan.piece_rows.size());
        const bool continues = begin > offset(row);
        const bool is_long = cut == StreamCut::rows && offset(row + 1) - offset(row) > long_row;
        const std::int64_t side_by_side = is_long && !continues ? warp_rows(row) : 0;
        std::int64_t end_row = side_by_side > 1 ? row + side_by_side : is_long ? row + 1 : rows_within(row, begin + capacity);
        while (next_long != long_rows.end() && *next_long < row) ++next_long;
        if (!is_long && next_long != long_rows.end()) end_row = std::min<std::int64_t>(end_row, *next_long);  // a long row ends the item before it
        const bool overlong = end_row == row || (side_by_side <= 1 && offset(end_row) - begin > longest_item);  // not even the first row ends here
        std::int64_t end = overlong ? begin + longest_item : offset(end_row);
        std::int64_t item_rows = overlong ? 1 : end_row - row;
        if (overlong) end_row = row;
        if (continues || overlong) {
            item.flags |= kFirstIsPiece;
            add_piece(row, continues);
        }
        if (cut == StreamCut::balanced && !overlong && end_row < rows && end < begin + capacity && item_rows < capacity) {
            // The next row begins here and does not end here.
            end = begin + capacity;
            item.flags |= kLastIsPiece;
            add_piece(end_row, false);
            ++item_rows;
        }
        item.count = static_cast<std::uint16_t>(end - begin);
        item.rows = static_cast<std::uint16_t>(item_rows);
        item.team = side_by_side > 1 ? kWarpRows : choose_team(item_rows, end - begin, capacity, threads);
        plan.items.push_back(item);
        begin = end;
        row = end_row;
    }
    return plan;
}

}  // namespace lsmr::cuda
