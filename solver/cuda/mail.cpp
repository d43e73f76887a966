#include "solver/cuda/mail.hpp"

#include <algorithm>
#include <limits>

#include "memory/error.hpp"

namespace lsmr {
namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

// The diagonals of a block, and where the one after the last would begin.
std::int64_t diagonals_of(const std::int64_t* offsets, std::int64_t first, std::int64_t end, std::vector<cuda::MailDiagonal>& diagonals) {
    std::int64_t longest = 0;
    for (std::int64_t i = first; i < end; ++i) longest = std::max(longest, offsets[i + 1] - offsets[i]);
    // Rows longer than d.
    std::vector<std::int64_t> sizes(place(rounded_up(std::max<std::int64_t>(longest, 1), cuda::kMailDiagonals)), 0);
    for (std::int64_t i = first; i < end; ++i) {
        if (offsets[i + 1] > offsets[i]) ++sizes[place(offsets[i + 1] - offsets[i] - 1)];
    }
    for (std::int64_t d = longest - 2; d >= 0; --d) sizes[place(d)] += sizes[place(d + 1)];
    std::int64_t begin = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
        diagonals.push_back({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(sizes[d])});
        begin += d == 0 ? end - first : sizes[d];
    }
    return begin;
}

// Rows of each block by falling length, and the diagonals; lists are left empty. at: of each row, its place in the block.
void arrange(const CsrMatrix& a, const std::vector<std::int32_t>& block_rows, MailSide& side, std::vector<std::int32_t>& at) {
    const std::int64_t* offsets = a.offsets();
    side.order.resize(place(a.rows()));
    side.diagonals_at.assign(1, 0);
    at.resize(place(a.rows()));
    for (std::size_t b = 0; b + 1 < block_rows.size(); ++b) {
        const std::int64_t first = block_rows[b];
        const std::int64_t end = block_rows[b + 1];
        const std::size_t of_block = side.diagonals.size();
        diagonals_of(offsets, first, end, side.diagonals);
        side.diagonals_at.push_back(static_cast<std::int32_t>(side.diagonals.size()));
        // Rows of length l come after all that are longer.
        const std::size_t most = side.diagonals.size() - of_block;
        std::vector<std::int64_t> next(most + 1, 0);
        for (std::size_t l = 0; l < most; ++l) next[l] = side.diagonals[of_block + l].size;
        for (std::int64_t i = first; i < end; ++i) {
            const std::int64_t to = next[place(offsets[i + 1] - offsets[i])]++;
            at[place(i)] = static_cast<std::int32_t>(to);
            side.order[place(first + to)] = static_cast<std::int32_t>(i);
        }
    }
}

std::vector<std::int32_t> owners(const std::vector<std::int32_t>& block_rows) {
    std::vector<std::int32_t> owner(place(block_rows.back()));
    for (std::size_t b = 0; b + 1 < block_rows.size(); ++b) {
        for (std::int32_t i = block_rows[b]; i < block_rows[b + 1]; ++i) owner[place(i)] = static_cast<std::int32_t>(b);
    }
    return owner;
}

// Where what block `from` reads from block `to` comes in its list: all begin with another, so that no block is written to by all at once.
struct Turns {
    std::int64_t blocks;
    std::int64_t sender(std::int64_t reader, std::int64_t turn) const { return (reader - 1 - turn + 2 * blocks) % blocks; }
    std::int64_t reader(std::int64_t sender, std::int64_t turn) const { return (sender + 1 + turn) % blocks; }
};

}  // namespace

MailRoom mail_room(const std::int64_t* offsets, const std::vector<std::int32_t>& block_rows) {
    MailRoom room;
    for (std::size_t b = 0; b + 1 < block_rows.size(); ++b) {
        std::vector<cuda::MailDiagonal> diagonals;
        room.products = std::max(room.products, diagonals_of(offsets, block_rows[b], block_rows[b + 1], diagonals));
        room.diagonals = std::max(room.diagonals, static_cast<std::int64_t>(diagonals.size()));
    }
    ++room.products;
    return room;
}

Mail make_mail(const CsrMatrix& a, const CsrMatrix& transpose, const std::vector<std::int32_t>& block_rows, const std::vector<std::int32_t>& block_cols,
               std::int64_t spare, std::int64_t sector) {
    LSMR_EXPECT(spare <= std::numeric_limits<std::uint16_t>::max());
    const auto blocks = static_cast<std::int64_t>(block_rows.size()) - 1;
    const Turns turns{blocks};
    Mail mail;
    std::vector<std::int32_t> row_at, col_at;
    arrange(a, block_rows, mail.forward, row_at);
    arrange(transpose, block_cols, mail.adjoint, col_at);
    const std::vector<std::int32_t> col_owner = owners(block_cols);

    // counts[r blocks + c]: entries in rows of block r and columns of block c.
    std::vector<std::int32_t> counts(place(blocks * blocks), 0);
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t r = 0; r < blocks; ++r) {
        for (std::int64_t k = a.offsets()[block_rows[place(r)]]; k < a.offsets()[block_rows[place(r + 1)]]; ++k) {
            ++counts[place(r * blocks + col_owner[place(a.columns()[k])])];
        }
    }
    // Where each run begins in the mailbox of its rows' block, and in the list of its columns' block.
    std::vector<std::int32_t> in_mailbox(counts.size()), in_list(counts.size());
    const auto deal = [&](MailSide& side, auto&& pair, std::vector<std::int32_t>& begins) {
        std::int64_t at = 0;
        for (std::int64_t b = 0; b < blocks; ++b) {
            side.begin.push_back(static_cast<std::int32_t>(at));
            for (std::int64_t turn = 0; turn < blocks; ++turn) {
                const std::size_t run = place(pair(b, turn));
                begins[run] = static_cast<std::int32_t>(at);
                at += rounded_up(counts[run], sector);
            }
        }
        side.begin.push_back(static_cast<std::int32_t>(at));
        side.products.assign(place(at), static_cast<std::uint16_t>(spare));
        side.rows.assign(place(at), 0);
    };
    deal(mail.forward, [&](std::int64_t r, std::int64_t turn) { return r * blocks + turns.sender(r, turn); }, in_mailbox);
    deal(mail.adjoint, [&](std::int64_t c, std::int64_t turn) { return turns.reader(c, turn) * blocks + c; }, in_list);
    mail.values.assign(mail.forward.rows.size(), 0.0);
    mail.sectors.assign(mail.adjoint.rows.size() / place(sector), 0);

    // The how-manieth of its column each entry is.
    std::vector<std::uint16_t> of_column(place(a.nnz()));
    std::vector<std::uint16_t> seen(place(a.cols()), 0);
    for (std::int64_t k = 0; k < a.nnz(); ++k) of_column[place(k)] = seen[place(a.columns()[k])]++;

#pragma omp parallel for schedule(dynamic)
    for (std::int64_t r = 0; r < blocks; ++r) {
        // The next slot of each run.
        std::vector<std::int32_t> next(in_mailbox.begin() + r * blocks, in_mailbox.begin() + (r + 1) * blocks);
        const cuda::MailDiagonal* const row_diagonals = mail.forward.diagonals.data() + mail.forward.diagonals_at[place(r)];
        for (std::int64_t i = block_rows[place(r)]; i < block_rows[place(r + 1)]; ++i) {
            const std::int32_t row = row_at[place(i)];
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
                const std::int32_t j = a.columns()[k];
                const std::int32_t c = col_owner[place(j)];
                const std::int32_t col = col_at[place(j)];
                const std::size_t run = place(r * blocks + c);
                const std::size_t slot = place(next[place(c)]++);
                const std::size_t of_list = place(in_list[run]) + slot - place(in_mailbox[run]);
                const cuda::MailDiagonal& col_diagonal = mail.adjoint.diagonals[place(mail.adjoint.diagonals_at[place(c)] + of_column[place(k)])];
                mail.values[slot] = a.values()[k];
                mail.forward.products[slot] = static_cast<std::uint16_t>(row_diagonals[k - a.offsets()[i]].begin + row);
                mail.forward.rows[slot] = static_cast<std::uint16_t>(row);
                mail.adjoint.products[of_list] = static_cast<std::uint16_t>(col_diagonal.begin + col);
                mail.adjoint.rows[of_list] = static_cast<std::uint16_t>(col);
            }
        }
        for (std::int64_t c = 0; c < blocks; ++c) {
            const std::size_t run = place(r * blocks + c);
            const std::int64_t first = in_list[run] / sector;
            for (std::int64_t s = 0; s < (counts[run] + sector - 1) / sector; ++s) {
                mail.sectors[place(first + s)] = static_cast<std::uint32_t>(in_mailbox[run] / sector + s);
            }
        }
    }
    return mail;
}

}  // namespace lsmr
