#include "solver/cuda/mail.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "memory/error.hpp"
#include "operator/cuda/uploader.hpp"
#include "solver/cuda/mail_kernels.hpp"
#include "solver/cuda/upload_bundle.hpp"

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
    room.products += 2;
    return room;
}

MailSide arrange_mail(const std::int64_t* offsets, const std::vector<std::int32_t>& block_rows) {
    const std::size_t blocks = block_rows.size() - 1;
    MailSide side;
    side.diagonals_at.assign(1, 0);
    for (std::size_t b = 0; b < blocks; ++b) {
        diagonals_of(offsets, block_rows[b], block_rows[b + 1], side.diagonals);
        side.diagonals_at.push_back(static_cast<std::int32_t>(side.diagonals.size()));
    }
    side.order.resize(place(block_rows.back()));
    side.at.resize(place(block_rows.back()));
    for (std::size_t b = 0; b < blocks; ++b) {
        // Rows of length l come after all that are longer.
        std::vector<std::int32_t> next;
        for (std::int32_t d = side.diagonals_at[b]; d < side.diagonals_at[b + 1]; ++d) next.push_back(side.diagonals[place(d)].size);
        next.push_back(0);
        for (std::int32_t i = block_rows[b]; i < block_rows[b + 1]; ++i) {
            const std::int32_t to = next[place(offsets[i + 1] - offsets[i])]++;
            side.at[place(i)] = to;
            side.order[place(block_rows[b] + to)] = i;
        }
    }
    return side;
}

MailRuns deal_mail(const std::vector<std::int32_t>& counts, std::int64_t blocks, std::int64_t sector) {
    const Turns turns{blocks};
    MailRuns runs;
    const auto deal = [&](auto&& run_of, std::vector<std::int32_t>& run_at, std::vector<std::int32_t>& block_at) {
        run_at.resize(counts.size());
        std::int64_t at = 0;
        for (std::int64_t b = 0; b < blocks; ++b) {
            block_at.push_back(static_cast<std::int32_t>(at));
            for (std::int64_t turn = 0; turn < blocks; ++turn) {
                const std::size_t run = place(run_of(b, turn));
                run_at[run] = static_cast<std::int32_t>(at);
                at += rounded_up(counts[run], sector);
            }
        }
        LSMR_EXPECT(at <= std::numeric_limits<std::int32_t>::max());
        block_at.push_back(static_cast<std::int32_t>(at));
    };
    deal([&](std::int64_t r, std::int64_t turn) { return r * blocks + turns.sender(r, turn); }, runs.in_mailbox, runs.mailboxes);
    deal([&](std::int64_t c, std::int64_t turn) { return turns.reader(c, turn) * blocks + c; }, runs.in_list, runs.lists);
    return runs;
}

template <class T>
Mail<T> make_mail(const cuda::DeviceCsr<T>& a, const cuda::DeviceCsr<T>& transpose, const std::int64_t* row_offsets, const std::int64_t* col_offsets,
                  const std::vector<std::int32_t>& block_rows, const std::vector<std::int32_t>& block_cols, std::int64_t spare, const CudaContext& context) {
    LSMR_EXPECT(spare <= std::numeric_limits<std::uint16_t>::max());
    const auto blocks = static_cast<std::int64_t>(block_rows.size()) - 1;
    const std::int64_t sector = slots_of_sector(sizeof(T));
    LSMR_EXPECT(blocks <= cuda::kMostPersistentBlocks);
    cuda::UploadBundle known;
    const auto rows_at = known.add(block_rows);
    const auto cols_at = known.add(block_cols);
    const DeviceBuffer<std::byte> known_here = known.upload(context);
    DeviceBuffer<std::int32_t> counts_here(context, blocks * blocks);
    const cuda::MailPattern pattern{static_cast<int>(blocks),     rows_at(known_here),           cols_at(known_here),
                                    a.offsets32->data(),          a.columns->data(),             transpose.offsets32->data(),
                                    transpose.columns->data()};
    cuda::launch_count_mail(pattern, counts_here.data(), context.stream());
    // While they are counted.
    Mail<T> mail;
    mail.forward = arrange_mail(row_offsets, block_rows);
    mail.adjoint = arrange_mail(col_offsets, block_cols);
    std::vector<std::int32_t> counts(place(blocks * blocks));
    cuda::download(context, counts_here.data(), counts_here.size(), [&](std::int64_t i, std::int32_t count) { counts[place(i)] = count; });
    mail.runs = deal_mail(counts, blocks, sector);

    cuda::UploadBundle arranged;
    const auto in_mailbox = arranged.add(mail.runs.in_mailbox);
    const auto in_list = arranged.add(mail.runs.in_list);
    const auto row_at = arranged.add(mail.forward.at);
    const auto row_diagonals_at = arranged.add(mail.forward.diagonals_at);
    const auto row_diagonals = arranged.add(mail.forward.diagonals);
    const auto col_at = arranged.add(mail.adjoint.at);
    const auto col_diagonals_at = arranged.add(mail.adjoint.diagonals_at);
    const auto col_diagonals = arranged.add(mail.adjoint.diagonals);
    const DeviceBuffer<std::byte> here = arranged.upload(context);
    const std::int64_t size = std::max<std::int64_t>(mail.runs.slots(), 1);
    MailSlots<T>& slots = mail.slots;
    slots.values = DeviceBuffer<T>(context, size);
    slots.sectors = DeviceBuffer<std::uint32_t>(context, (size + sector - 1) / sector);
    for (auto* lines : {&slots.row_products, &slots.rows, &slots.col_products, &slots.cols}) *lines = DeviceBuffer<std::uint16_t>(context, size);
    const cuda::MailPlaces places{counts_here.data(),
                                  in_mailbox(here),
                                  in_list(here),
                                  {row_at(here), row_diagonals_at(here), row_diagonals(here), slots.row_products.data(), slots.rows.data()},
                                  {col_at(here), col_diagonals_at(here), col_diagonals(here), slots.col_products.data(), slots.cols.data()},
                                  slots.sectors.data(),
                                  static_cast<std::int32_t>(sector),
                                  static_cast<std::uint16_t>(spare)};
    cuda::launch_fill_mail(pattern, a.values->data(), places, slots.values.data(), context.stream());
    return mail;
}

template Mail<double> make_mail(const cuda::DeviceCsr<double>&, const cuda::DeviceCsr<double>&, const std::int64_t*, const std::int64_t*,
                                const std::vector<std::int32_t>&, const std::vector<std::int32_t>&, std::int64_t, const CudaContext&);
template Mail<float> make_mail(const cuda::DeviceCsr<float>&, const cuda::DeviceCsr<float>&, const std::int64_t*, const std::int64_t*,
                               const std::vector<std::int32_t>&, const std::vector<std::int32_t>&, std::int64_t, const CudaContext&);

}  // namespace lsmr
