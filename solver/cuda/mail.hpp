// Who writes what for whom where the blocks of a persistent kernel send one another values by mail, on the host.
//
// Gathers from L2 are 4 million random reads an iteration for 2 million entries. Here instead the owner of column j, which has v_j, writes it for
// every entry a_ij of the column into the mailbox of the block that owns row i, block by block in one run each; that block multiplies each with its
// entry and adds by rows in its own shared memory. Then it writes a_ij u_i into the same slots, on the way back to the owners of the columns, who
// add by columns. So all that crosses is read and written in long runs, A is stored once, and a gather is one from shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "solver/cuda/persistent_kernel.hpp"

namespace lsmr {

// A sector of the L2 cache has so many slots. What goes from one block to another fills whole sectors.
inline constexpr std::int64_t slots_of_sector(std::int64_t value_bytes) { return 32 / value_bytes; }

// One orientation. A block adds its products by rows where they lie in jagged diagonals: rows by falling length, diagonal d one product of each
// row that has more than d, so that threads with neighbouring rows read neighbours. The first one has room for all rows, for it will hold their
// sums. Empty ones fill up a batch of kMailDiagonals.
struct MailSide {
    std::vector<std::int32_t> order;         // the rows of each block, by falling length
    std::vector<std::int32_t> diagonals_at;  // of each block and beyond the last, in `diagonals`
    std::vector<cuda::MailDiagonal> diagonals;
    // Lists with a place for each slot that the block reads: begin[b] .. begin[b + 1] - 1.
    std::vector<std::int32_t> begin;
    std::vector<std::uint16_t> products;  // where among the block's products
    std::vector<std::uint16_t> rows;      // which of the block's rows
};
struct Mail {
    MailSide forward;                    // lists in the order of the mailboxes, block after block
    MailSide adjoint;                    // of columns
    std::vector<double> values;          // in the order of the mailboxes; 0 where a slot only fills a sector
    std::vector<std::uint32_t> sectors;  // of the mailboxes, for each sector of the adjoint's lists
};

// What a block's products take: room for the largest block's, and one beyond for slots that belong to no entry.
struct MailRoom {
    std::int64_t products = 0;
    std::int64_t diagonals = 0;
};
MailRoom mail_room(const std::int64_t* offsets, const std::vector<std::int32_t>& block_rows);

// block_rows, block_cols: rows and columns of each block. What fills a sector, of so many slots, goes to product `spare`, the last of the room.
Mail make_mail(const CsrMatrix& a, const CsrMatrix& transpose, const std::vector<std::int32_t>& block_rows, const std::vector<std::int32_t>& block_cols,
               std::int64_t spare, std::int64_t sector);

}  // namespace lsmr
