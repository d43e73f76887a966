// Who writes what for whom where the blocks of a persistent kernel send one another values by mail.
//
// Gathers from L2 are 4 million random reads an iteration for 2 million entries. Here instead the owner of column j, which has v_j, writes it for
// every entry a_ij of the column into the mailbox of the block that owns row i, block by block in one run each; that block multiplies each with its
// entry and adds by rows in its own shared memory. Then it writes a_ij u_i into the same slots, on the way back to the owners of the columns, who
// add by columns. So all that crosses is read and written in long runs, A is stored once, and a gather is one from shared memory.
//
// What follows from the lengths of rows and columns alone is made on the host; what has a place for every entry, on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/device_buffer.hpp"
#include "operator/cuda/csr_product.hpp"
#include "solver/cuda/persistent_kernel.hpp"

namespace lsmr {

// A sector of the L2 cache has so many slots. What goes from one block to another fills whole sectors.
inline constexpr std::int64_t slots_of_sector(std::int64_t value_bytes) { return 32 / value_bytes; }

// One orientation. A block adds its products by rows where they lie in jagged diagonals: rows by falling length, diagonal d one product of each
// row that has more than d, so that threads with neighbouring rows read neighbours. The first one has room for all rows, for it will hold their
// sums. Empty ones fill up a batch of kMailDiagonals.
struct MailSide {
    std::vector<std::int32_t> order;         // the rows of each block, by falling length
    std::vector<std::int32_t> at;            // of each row, its place among those of its block
    std::vector<std::int32_t> diagonals_at;  // of each block and beyond the last, in `diagonals`
    std::vector<cuda::MailDiagonal> diagonals;
};
// block_rows: rows of each block.
MailSide arrange_mail(const std::int64_t* offsets, const std::vector<std::int32_t>& block_rows);

// What a block's products take: room for the largest block's, and two beyond: one that is 0, and the last for slots that belong to no entry.
struct MailRoom {
    std::int64_t products = 0;
    std::int64_t diagonals = 0;
};
MailRoom mail_room(const std::int64_t* offsets, const std::vector<std::int32_t>& block_rows);

// Where each run lies: run [r blocks + c] is what crosses between rows of block r and columns of block c.
struct MailRuns {
    std::vector<std::int32_t> in_mailbox;  // where it begins among the slots, which are in the order of the mailboxes, those of the rows' blocks
    std::vector<std::int32_t> in_list;     // and where among the slots as the columns' blocks list them
    std::vector<std::int32_t> mailboxes;   // where that of each block begins, and the end of the last
    std::vector<std::int32_t> lists;       // the same of the lists
    std::int64_t slots() const { return mailboxes.back(); }
};
// counts: entries of each run. A run fills whole sectors of so many slots.
MailRuns deal_mail(const std::vector<std::int32_t>& counts, std::int64_t blocks, std::int64_t sector);

// What has a place for every slot, in device memory.
template <class T>
struct MailSlots {
    DeviceBuffer<T> values;                // in the order of the mailboxes; 0 where a slot only fills a sector
    DeviceBuffer<std::uint32_t> sectors;   // of the mailboxes, for each sector of the lists
    // Where the slot's product lies among those of the block, and in which of its rows; columns: in the order of the lists.
    DeviceBuffer<std::uint16_t> row_products, rows;
    DeviceBuffer<std::uint16_t> col_products, cols;
};
template <class T>
struct Mail {
    MailSide forward;  // of rows
    MailSide adjoint;  // of columns
    MailRuns runs;
    MailSlots<T> slots;
};
// offsets: those of a and of its transpose on the host; block_rows, block_cols: rows and columns of each block. What fills a sector goes to product
// `spare`, the last of the room.
template <class T>
Mail<T> make_mail(const cuda::DeviceCsr<T>& a, const cuda::DeviceCsr<T>& transpose, const std::int64_t* row_offsets, const std::int64_t* col_offsets,
                  const std::vector<std::int32_t>& block_rows, const std::vector<std::int32_t>& block_cols, std::int64_t spare, const CudaContext& context);

}  // namespace lsmr
