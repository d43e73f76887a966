#include "solver/cuda/small_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "memory/error.hpp"
#include "solver/cuda/mail_kernels.hpp"
#include "solver/cuda/upload_bundle.hpp"

namespace lsmr {
namespace {

using cuda::kMostPersistentBlocks;
using cuda::kProductThreads;

// Entries and rows for which a block is added; up to kOneBlock one block does all: then nothing crosses the device.
constexpr std::int64_t kBlockWork = 1024;
constexpr std::int64_t kOneBlock = 4096;
// The same where the blocks can be a cluster. That takes so much work at most, for each block receives all of both vectors; in fp32 these are half as
// many bytes.
constexpr std::int64_t kClusterBlockWork = 320;
constexpr std::int64_t kLeastClusterWork = 768;
constexpr std::int64_t most_cluster_work(std::int64_t value_bytes) { return value_bytes == 8 ? 24'576 : 32'768; }
// A row is the work of this many entries: its sum, and its values of vectors.
constexpr std::int64_t kRowWork = 2;
// Where a row is longer, its team of threads keeps all others waiting.
constexpr std::int64_t kLongestRow = 4096;
// A vector that is gathered from L2 at full speed has this many bytes at least.
constexpr std::int64_t kSpreadBytes = 640 << 10;
constexpr std::int64_t kMostCopies = 4;
// What is read every iteration must stay in L2, beside what else passes through it: gathers from all over a vector, but little where values are mailed.
constexpr double kL2Share = 2.0 / 3;
constexpr double kMailedL2Share = 0.8;
// Up to so many entries mail takes less time than gathers, rows and columns of up to so many included: those of a block are few, and teams add them.
// Beyond, a thread adds the products of a row: from so many entries on, with so many more for each of the longest row and of the longest column.
constexpr std::int64_t kAlwaysMailed = 200'000;
constexpr std::int64_t kLongestMailed = 1'600;
constexpr std::int64_t kLeastMailed = 100'000;
constexpr std::int64_t kLongestWorth = 1'600;
// Where a thread has one row and keeps its products' places in registers, a row of so many keeps it too long.
constexpr std::int64_t kLongestOfFew = 128;
// Places among a block's products have 16 bits.
constexpr std::int64_t kMostMailProducts = std::int64_t{1} << 16;

std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Threads of a row: the team that needs the fewest steps, a step being a batch of loads.
int choose_team(std::int64_t most_rows, std::int64_t rows, std::int64_t nnz, std::int64_t longest) {
    constexpr double kBatch = 4;
    constexpr double kShuffle = 0.1;  // of a step
    const double mean = rows > 0 ? static_cast<double>(nnz) / static_cast<double>(rows) : 0.0;
    int best = 1;
    double least = std::numeric_limits<double>::infinity();
    for (int team = 1, level = 0; team <= 32; team *= 2, ++level) {
        const double rounds = std::ceil(static_cast<double>(most_rows) / (kProductThreads / team));
        const double steps = std::max(1.0, std::ceil(mean / (kBatch * team)));
        const double most = std::max(steps, std::ceil(static_cast<double>(longest) / (kBatch * team)));
        const double cost = rounds * (steps + kShuffle * level) + (most - steps);
        if (cost < least) {
            least = cost;
            best = team;
        }
    }
    return best;
}

// Threads of a row that read entries from L2: at least half of it at once, so that a warp's reads are long.
int streaming_team(std::int64_t nnz, std::int64_t rows) {
    int team = 1;
    while (team < 32 && rows * 4 * team <= nnz) team *= 2;
    return team;
}

SidePlan plan_side(std::int64_t rows, std::int64_t cols, const std::int64_t* offsets, std::int64_t value_bytes, int blocks) {
    SidePlan plan;
    plan.narrow = cols <= std::int64_t{1} << 16;
    plan.entry_bytes = value_bytes + (plan.narrow ? 2 : 4);
    // Row i goes to the block in whose share the work before it ends.
    const std::int64_t total = offsets[rows] + kRowWork * rows;
    plan.block_rows.assign(static_cast<std::size_t>(blocks) + 1, static_cast<std::int32_t>(rows));
    std::int64_t row = 0;
    for (int b = 0; b < blocks; ++b) {
        const std::int64_t from = total / blocks * b + total % blocks * b / blocks;
        while (row < rows && offsets[row] + kRowWork * row < from) ++row;
        plan.block_rows[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(row);
    }
    for (std::size_t b = 0; b < static_cast<std::size_t>(blocks); ++b) {
        const std::int64_t first = plan.block_rows[b];
        const std::int64_t end = plan.block_rows[b + 1];
        plan.most_rows = std::max(plan.most_rows, end - first);
        plan.most_entries = std::max(plan.most_entries, offsets[end] - offsets[first]);
    }
    for (std::int64_t i = 0; i < rows; ++i) plan.longest_row = std::max(plan.longest_row, offsets[i + 1] - offsets[i]);
    plan.team = choose_team(plan.most_rows, rows, offsets[rows], plan.longest_row);
    return plan;
}

std::int64_t slice_bytes(const SidePlan& plan, std::int64_t value_bytes) {
    return aligned(plan.most_entries * value_bytes) + aligned(plan.most_entries * (plan.entry_bytes - value_bytes));
}

// Slices of rows in a block's shared memory, those of A and of A^T each where they fit.
void plan_slices(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t value_bytes, const PersistentLimits& limits, SmallPlan& plan) {
    const std::int64_t u_bytes = aligned(plan.forward.most_rows * value_bytes);
    const std::int64_t v_bytes = aligned(plan.adjoint.most_rows * value_bytes);
    plan.vector_bytes = 3 * u_bytes + (2 + cuda::kMostStepVectors) * v_bytes + aligned((plan.forward.most_rows + 1) * 4) +
                        aligned((plan.adjoint.most_rows + 1) * 4);
    if (plan.crossing == cuda::Crossing::clustered) {
        plan.vector_bytes += static_cast<std::int64_t>(sizeof(cuda::ClusterExchange)) + aligned(rows * value_bytes) + aligned(cols * value_bytes) +
                             v_bytes;  // products with A^T
    }
    if (plan.vector_bytes > limits.shared_bytes) {
        plan.impossible = fmt::format("a block's part of the vectors needs {}, its shared memory has {}", format_bytes(plan.vector_bytes),
                                      format_bytes(limits.shared_bytes));
        return;
    }
    plan.shared_bytes = plan.vector_bytes;
    // The larger slice first, so that the most is held.
    SidePlan* larger = &plan.adjoint;
    SidePlan* smaller = &plan.forward;
    if (slice_bytes(*smaller, value_bytes) > slice_bytes(*larger, value_bytes)) std::swap(larger, smaller);
    for (SidePlan* side : {larger, smaller}) {
        const std::int64_t bytes = slice_bytes(*side, value_bytes);
        side->resident = plan.shared_bytes + bytes <= limits.shared_bytes;
        if (side->resident) {
            plan.shared_bytes += bytes;
        } else {
            plan.streamed_bytes += nnz * side->entry_bytes;
            side->team = std::max(side->team, streaming_team(nnz, side == &plan.forward ? rows : cols));
        }
    }
    // Who gathers from its own shared memory has its entries there too (all of a vector is there, so that 16 bits are enough for their columns).
    const bool from_own = plan.crossing == cuda::Crossing::none || plan.crossing == cuda::Crossing::clustered;
    if (from_own && !(plan.forward.resident && plan.adjoint.resident && plan.forward.narrow && plan.adjoint.narrow)) {
        plan.impossible = fmt::format("a block's entries need {}, its shared memory has {} for them",
                                      format_bytes(slice_bytes(*larger, value_bytes) + slice_bytes(*smaller, value_bytes)),
                                      format_bytes(limits.shared_bytes - plan.vector_bytes));
        return;
    }
    plan.device_bytes = nnz * (plan.forward.entry_bytes + plan.adjoint.entry_bytes) + (rows + cols) * 4;
    if (plan.crossing == cuda::Crossing::gathered) {
        for (const auto& [side, values] : {std::pair{&plan.forward, rows}, std::pair{&plan.adjoint, cols}}) {
            const std::int64_t bytes = values * 2 * value_bytes;  // each beside its tag
            side->copies = static_cast<int>(std::clamp(kSpreadBytes / std::max<std::int64_t>(bytes, 1), std::int64_t{1}, kMostCopies));
            plan.streamed_bytes += side->copies * bytes;
            plan.device_bytes += side->copies * bytes;
        }
    }
}

// Room in a block's shared memory where values are mailed; false: too little.
bool plan_mail(const std::int64_t* row_offsets, const std::int64_t* col_offsets, std::int64_t value_bytes, const PersistentLimits& limits, SmallPlan& plan) {
    const std::int64_t sector = slots_of_sector(value_bytes);
    const MailRoom of_rows = mail_room(row_offsets, plan.forward.block_rows);
    const MailRoom of_cols = mail_room(col_offsets, plan.adjoint.block_rows);
    const std::int64_t products = std::max(of_rows.products, of_cols.products);
    const auto diagonal_bytes = static_cast<std::int64_t>(sizeof(cuda::MailDiagonal));
    const std::int64_t vector_bytes = 2 * aligned(plan.forward.most_rows * value_bytes) +
                                      (2 + cuda::kMostStepVectors) * aligned(plan.adjoint.most_rows * value_bytes) + aligned(products * value_bytes) +
                                      aligned(of_rows.diagonals * diagonal_bytes) + aligned(of_cols.diagonals * diagonal_bytes);
    if (vector_bytes > limits.shared_bytes || products > kMostMailProducts) return false;
    plan.crossing = cuda::Crossing::mailed;
    plan.mail_products = products;
    plan.mail_diagonals[0] = of_rows.diagonals;
    plan.mail_diagonals[1] = of_cols.diagonals;
    plan.vector_bytes = vector_bytes;
    // Entries fill a mailbox but for the last sector of each run.
    const std::int64_t most_slots = plan.forward.most_entries + plan.blocks * (sector - 1);
    plan.mail_resident = std::min(limits.shared_bytes - vector_bytes, aligned(most_slots * value_bytes)) / 16 * (16 / value_bytes);
    plan.shared_bytes = vector_bytes + plan.mail_resident * value_bytes;
    // Of each slot: its value on the way, its entry's, and where it belongs on four occasions; and where each sector lies.
    const std::int64_t slots = row_offsets[plan.forward.block_rows.back()] + plan.blocks * plan.blocks * (sector - 1);
    const std::int64_t lists = slots * 4 * 2 + slots / sector * 4;
    plan.streamed_bytes = slots * value_bytes + std::max<std::int64_t>(slots - plan.blocks * plan.mail_resident, 0) * value_bytes + lists;
    plan.device_bytes = 2 * slots * value_bytes + lists + (plan.forward.block_rows.back() + plan.adjoint.block_rows.back()) * 4;
    return true;
}

}  // namespace

PersistentLimits persistent_limits(int device) {
    const auto attribute = [device](cudaDeviceAttr which) {
        int value = 0;
        LSMR_CHECK(cudaDeviceGetAttribute(&value, which, device));
        return value;
    };
    constexpr std::int64_t kOfTheKernel = 4096;  // static shared memory, and what the driver keeps
    PersistentLimits limits;
    limits.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    limits.l2_bytes = attribute(cudaDevAttrL2CacheSize);
    limits.shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kOfTheKernel;
    limits.cooperative = attribute(cudaDevAttrCooperativeLaunch) != 0;
    if (attribute(cudaDevAttrClusterLaunch) != 0) {
        const DeviceScope scope(device);
        limits.cluster_blocks = cuda::most_cluster_blocks(limits.shared_bytes);
    }
    return limits;
}

SmallPlan plan_small_problem(std::int64_t rows, std::int64_t cols, const std::int64_t* row_offsets, const std::int64_t* col_offsets,
                             std::int64_t value_bytes, const PersistentLimits& limits, std::optional<cuda::Crossing> wanted) {
    SmallPlan plan;
    const std::int64_t nnz = row_offsets[rows];
    if (!limits.cooperative) plan.impossible = "this device cannot run all blocks of a kernel at once";
    if (nnz > std::numeric_limits<std::int32_t>::max()) plan.impossible = fmt::format("A has {} nonzeros", nnz);
    if (!plan.impossible.empty()) return plan;

    const std::int64_t work = nnz + kRowWork * std::max(rows, cols);
    const auto deal_out = [&](std::int64_t blocks, cuda::Crossing crossing) {
        SmallPlan dealt;
        dealt.crossing = crossing;
        dealt.blocks = static_cast<int>(blocks);
        dealt.forward = plan_side(rows, cols, row_offsets, value_bytes, dealt.blocks);
        dealt.adjoint = plan_side(cols, rows, col_offsets, value_bytes, dealt.blocks);
        return dealt;
    };
    const auto blocks_for = [work](std::int64_t work_of_block) { return (work + work_of_block - 1) / work_of_block; };
    // A cluster needs values of both vectors to count.
    if (limits.cluster_blocks > 1 && rows > 0 && cols > 0 &&
        (wanted ? *wanted == cuda::Crossing::clustered : work > kLeastClusterWork && work <= most_cluster_work(value_bytes))) {
        SmallPlan clustered = deal_out(std::clamp<std::int64_t>(blocks_for(kClusterBlockWork), 2, limits.cluster_blocks), cuda::Crossing::clustered);
        plan_slices(rows, cols, nnz, value_bytes, limits, clustered);
        if (clustered.impossible.empty()) return clustered;
    }
    const std::int64_t most_blocks = std::min(limits.multiprocessors, kMostPersistentBlocks);
    const std::int64_t blocks = work <= kOneBlock ? 1 : std::min(most_blocks, blocks_for(kBlockWork));
    plan = deal_out(blocks, blocks > 1 ? cuda::Crossing::gathered : cuda::Crossing::none);

    const std::int64_t longest_pair = plan.forward.longest_row + plan.adjoint.longest_row;
    const bool worth_mail = (nnz <= kAlwaysMailed && longest_pair <= kLongestMailed) || nnz >= kLeastMailed + kLongestWorth * longest_pair;
    const auto kept_by_l2 = [&](double share) { return static_cast<std::int64_t>(share * static_cast<double>(limits.l2_bytes)); };
    if (plan.blocks > 1 && (wanted ? *wanted == cuda::Crossing::mailed : worth_mail)) {
        SmallPlan mailed = plan;
        if (plan_mail(row_offsets, col_offsets, value_bytes, limits, mailed) &&
            (wanted || mailed.streamed_bytes <= kept_by_l2(kMailedL2Share))) {
            return mailed;
        }
    }
    plan_slices(rows, cols, nnz, value_bytes, limits, plan);
    if (!plan.impossible.empty()) return plan;
    if (const std::int64_t kept = kept_by_l2(kL2Share); plan.streamed_bytes > kept) {
        plan.unwise = fmt::format("an iteration reads {}, the L2 cache keeps {} of it", format_bytes(plan.streamed_bytes), format_bytes(kept));
    } else if (const std::int64_t longest = std::max(plan.forward.longest_row, plan.adjoint.longest_row); longest > kLongestRow) {
        plan.unwise = fmt::format("a row or column has {} nonzeros, more than {}", longest, kLongestRow);
    }
    return plan;
}

std::string SmallPlan::words() const {
    const char* where = forward.resident && adjoint.resident ? "A and A^T in shared memory"
                        : forward.resident                   ? "A in shared memory, A^T in L2"
                        : adjoint.resident                   ? "A^T in shared memory, A in L2"
                                                             : "A and A^T in L2";
    if (crossing == cuda::Crossing::mailed) {
        return fmt::format("one persistent kernel for lsmr, lsqr and cgls, {} blocks of {} threads, which send one another values in runs", blocks,
                           cuda::kPersistentThreads);
    }
    return fmt::format("one persistent kernel for lsmr, lsqr and cgls, {}{} of {} threads, {} and {} of them a row, {}",
                       blocks == 1 ? "1 block" : fmt::format("{} blocks", blocks), crossing == cuda::Crossing::clustered ? " of one cluster" : "",
                       cuda::kPersistentThreads, forward.team, adjoint.team, where);
}

template <class T>
SmallMatrix<T>::SmallMatrix(const CsrMatrix& matrix, int exponent, const CudaContext& context)
    : a(cuda::upload<T>(matrix, exponent, context)), transpose(cuda::transposed(a, context)), row_offsets(matrix.offsets()) {
    LSMR_EXPECT(!a.wide());
    col_offsets.resize(static_cast<std::size_t>(matrix.cols()) + 1);
    cuda::download(context, transpose.offsets32->data(), matrix.cols() + 1,
                   [&](std::int64_t j, std::int32_t offset) { col_offsets[static_cast<std::size_t>(j)] = offset; });
}

template <class T>
SmallPlan SmallMatrix<T>::plan(const PersistentLimits& limits, std::optional<cuda::Crossing> wanted) const {
    return plan_small_problem(a.rows, a.cols, row_offsets, col_offsets.data(), sizeof(T), limits, wanted);
}

template <class T>
SmallProblem<T>::SmallProblem(const SmallMatrix<T>& matrix, const SmallPlan& plan, const CudaContext& context)
    : context_(context), entries_(matrix.a.nnz), sums_(context, 6 * cuda::kReplicas * kMostPersistentBlocks) {
    LSMR_EXPECT(plan.impossible.empty());
    problem_.crossing = plan.crossing;
    problem_.blocks = plan.blocks;
    if (plan.crossing == cuda::Crossing::mailed) make_mailboxes(matrix, plan);
    else make_sides(matrix, plan);
    LSMR_CHECK(cudaMemsetAsync(sums_.data(), 0, static_cast<std::size_t>(sums_.bytes()), context.stream()));
    problem_.u_sums = sums_.data();
    problem_.v_sums = problem_.u_sums + cuda::kReplicas * kMostPersistentBlocks;
    problem_.r_sums = problem_.v_sums + cuda::kReplicas * kMostPersistentBlocks;
    problem_.closing_sums = problem_.r_sums + cuda::kReplicas * kMostPersistentBlocks;
    problem_.x_sums = problem_.closing_sums + cuda::kReplicas * kMostPersistentBlocks;
    place_in_shared(plan);
    cuda::prepare_persistent(problem_);
    cuda::prepare_persistent_cgls(problem_);
    context.synchronize();
}

template <class T>
void SmallProblem<T>::place_in_shared(const SmallPlan& plan) {
    std::int64_t at = 0;
    const auto take = [&at](std::int64_t bytes) {
        const auto begin = static_cast<std::uint32_t>(at);
        at += aligned(bytes);
        return begin;
    };
    constexpr auto kValue = static_cast<std::int64_t>(sizeof(T));
    for (std::uint32_t& u_at : problem_.u_at) u_at = take(plan.forward.most_rows * kValue);
    for (std::uint32_t& v_at : problem_.v_at) v_at = take(plan.adjoint.most_rows * kValue);
    for (std::uint32_t& step_at : problem_.step_at) step_at = take(plan.adjoint.most_rows * kValue);
    if (plan.crossing == cuda::Crossing::mailed) {
        cuda::PersistentMail<T>& mail = problem_.mail;
        mail.products_at = take(plan.mail_products * kValue);
        mail.forward.diagonals_in_shared = take(plan.mail_diagonals[0] * static_cast<std::int64_t>(sizeof(cuda::MailDiagonal)));
        mail.adjoint.diagonals_in_shared = take(plan.mail_diagonals[1] * static_cast<std::int64_t>(sizeof(cuda::MailDiagonal)));
        mail.values_at = take(plan.mail_resident * kValue);
    } else {
        problem_.dots_at = take(plan.forward.most_rows * kValue);
        problem_.forward.offsets_at = take((plan.forward.most_rows + 1) * 4);
        problem_.adjoint.offsets_at = take((plan.adjoint.most_rows + 1) * 4);
        if (plan.crossing == cuda::Crossing::clustered) {
            cuda::PersistentCluster& cluster = problem_.cluster;
            cluster.rows = plan.forward.block_rows.back();
            cluster.cols = plan.adjoint.block_rows.back();
            cluster.exchange_at = take(sizeof(cuda::ClusterExchange));
            cluster.u_at = take(cluster.rows * kValue);
            cluster.v_at = take(cluster.cols * kValue);
            cluster.products_at = take(plan.adjoint.most_rows * kValue);
        }
        const auto take_slice = [&](const SidePlan& side, cuda::PersistentSide<T>& view) {
            if (!side.resident) return;
            view.values_at = take(side.most_entries * kValue);
            view.columns_at = take(side.most_entries * (side.entry_bytes - kValue));
        };
        take_slice(plan.forward, problem_.forward);
        take_slice(plan.adjoint, problem_.adjoint);
    }
    LSMR_EXPECT(at == plan.shared_bytes);
    problem_.shared_bytes = static_cast<std::uint32_t>(at);
}

template <class T>
void SmallProblem<T>::make_mailboxes(const SmallMatrix<T>& matrix, const SmallPlan& plan) {
    const std::vector<std::int32_t>& block_rows = plan.forward.block_rows;
    const std::vector<std::int32_t>& block_cols = plan.adjoint.block_rows;
    Mail<T> made = make_mail(matrix.a, matrix.transpose, matrix.row_offsets, matrix.col_offsets.data(), block_rows, block_cols, plan.mail_products - 1, context_);
    mail_ = std::move(made.slots);
    mail_slots_ = DeviceBuffer<T>(context_, mail_.values.size());
    LSMR_CHECK(cudaMemsetAsync(mail_slots_.data(), 0xff, static_cast<std::size_t>(mail_slots_.bytes()), context_.stream()));  // all last bits 1
    cuda::UploadBundle bundle;
    const auto add = [&](const MailSide& side, const std::vector<std::int32_t>& of_blocks, const std::vector<std::int32_t>& begin) {
        return std::tuple{bundle.add(of_blocks), bundle.add(side.order), bundle.add(side.diagonals_at), bundle.add(side.diagonals), bundle.add(begin)};
    };
    const auto forward = add(made.forward, block_rows, made.runs.mailboxes);
    const auto adjoint = add(made.adjoint, block_cols, made.runs.lists);
    arrays_ = bundle.upload(context_);
    const auto view = [&](const auto& places, const DeviceBuffer<std::uint16_t>& products, const DeviceBuffer<std::uint16_t>& rows) {
        const auto& [of_blocks, order, diagonals_at, diagonals, begin] = places;
        return cuda::PersistentMailSide{of_blocks(arrays_), order(arrays_), diagonals_at(arrays_), diagonals(arrays_), begin(arrays_), products.data(), rows.data()};
    };
    problem_.mail.forward = view(forward, mail_.row_products, mail_.rows);
    problem_.mail.adjoint = view(adjoint, mail_.col_products, mail_.cols);
    problem_.mail.values = mail_.values.data();
    problem_.mail.slots = mail_slots_.data();
    problem_.mail.sectors = mail_.sectors.data();
    problem_.mail.resident = static_cast<std::int32_t>(plan.mail_resident);
    problem_.mail.zero = static_cast<std::int32_t>(plan.mail_products - 2);
    constexpr std::int64_t kFewSlots = cuda::kFewLetters * kProductThreads * (16 / static_cast<std::int64_t>(sizeof(T)));
    const auto few = [](const std::vector<std::int32_t>& begins) {
        return std::adjacent_find(begins.begin(), begins.end(), [](std::int32_t begin, std::int32_t end) { return end - begin > kFewSlots; }) == begins.end();
    };
    problem_.mail.few = few(made.runs.mailboxes) && few(made.runs.lists) && std::max(plan.forward.most_rows, plan.adjoint.most_rows) <= kProductThreads &&
                        std::max(plan.forward.longest_row, plan.adjoint.longest_row) <= kLongestOfFew;
}

template <class T>
void SmallProblem<T>::make_sides(const SmallMatrix<T>& matrix, const SmallPlan& plan) {
    cuda::UploadBundle bundle;
    const auto block_rows = bundle.add(plan.forward.block_rows);
    const auto block_cols = bundle.add(plan.adjoint.block_rows);
    arrays_ = bundle.upload(context_);
    const bool crosses = plan.crossing == cuda::Crossing::gathered;
    make_side(matrix.a, plan.forward, block_rows(arrays_), crosses, forward_, problem_.forward);
    make_side(matrix.transpose, plan.adjoint, block_cols(arrays_), crosses, adjoint_, problem_.adjoint);
}

template <class T>
void SmallProblem<T>::make_side(const cuda::DeviceCsr<T>& a, const SidePlan& plan, const std::int32_t* block_rows, bool crosses, Side& side,
                                cuda::PersistentSide<T>& view) {
    side.a = a;
    if (plan.narrow) {
        side.narrow_columns = DeviceBuffer<std::uint16_t>(context_, std::max<std::int64_t>(a.nnz, 1));
        cuda::launch_narrow_columns(a.nnz, a.columns->data(), side.narrow_columns.data(), context_.stream());
        side.a.columns.reset();
    }
    view.block_rows = block_rows;
    view.offsets = a.offsets32->data();
    view.columns = plan.narrow ? static_cast<const void*>(side.narrow_columns.data()) : a.columns->data();
    view.values = a.values->data();
    view.narrow = plan.narrow;
    view.resident = plan.resident;
    view.team = plan.team;
    if (!crosses) return;
    side.packets = DeviceBuffer<cuda::Packet<T>>(context_, std::max<std::int64_t>(plan.copies * a.rows, 1));
    LSMR_CHECK(cudaMemsetAsync(side.packets.data(), 0, static_cast<std::size_t>(side.packets.bytes()), context_.stream()));
    view.packets = side.packets.data();
    view.copies = plan.copies;
    view.rows = static_cast<std::int32_t>(a.rows);
}

template struct SmallMatrix<double>;
template struct SmallMatrix<float>;
template class SmallProblem<double>;
template class SmallProblem<float>;

}  // namespace lsmr
