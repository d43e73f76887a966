#include "solver/cuda/small_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "memory/error.hpp"
#include "operator/cuda/uploader.hpp"
#include "solver/power_of_two.hpp"

namespace lsmr {
namespace {

using cuda::kMostPersistentBlocks;
using cuda::kProductThreads;

// Entries and rows for which a block is added; up to kOneBlock one block does all: then nothing crosses the device.
constexpr std::int64_t kBlockWork = 1024;
constexpr std::int64_t kOneBlock = 4096;
// A row is the work of this many entries: its sum, and its values of vectors.
constexpr std::int64_t kRowWork = 2;
// Where a row is longer, its team of threads keeps all others waiting.
constexpr std::int64_t kLongestRow = 4096;
// A vector that is gathered from L2 at full speed has this many bytes at least.
constexpr std::int64_t kSpreadBytes = 640 << 10;
constexpr std::int64_t kMostCopies = 4;
// What is read every iteration must stay in L2, beside what else passes through it.
constexpr double kL2Share = 2.0 / 3;

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
    return limits;
}

SmallPlan plan_small_problem(std::int64_t rows, std::int64_t cols, const std::int64_t* row_offsets, const std::int64_t* col_offsets,
                             std::int64_t value_bytes, const PersistentLimits& limits) {
    SmallPlan plan;
    const std::int64_t nnz = row_offsets[rows];
    if (!limits.cooperative) plan.impossible = "this device cannot run all blocks of a kernel at once";
    if (nnz > std::numeric_limits<std::int32_t>::max()) plan.impossible = fmt::format("A has {} nonzeros", nnz);
    if (!plan.impossible.empty()) return plan;

    const std::int64_t work = nnz + kRowWork * std::max(rows, cols);
    const std::int64_t most_blocks = std::min(limits.multiprocessors, kMostPersistentBlocks);
    plan.blocks = work <= kOneBlock ? 1 : static_cast<int>(std::min(most_blocks, (work + kBlockWork - 1) / kBlockWork));
    plan.forward = plan_side(rows, cols, row_offsets, value_bytes, plan.blocks);
    plan.adjoint = plan_side(cols, rows, col_offsets, value_bytes, plan.blocks);

    const std::int64_t u_bytes = aligned(plan.forward.most_rows * value_bytes);
    const std::int64_t v_bytes = aligned(plan.adjoint.most_rows * value_bytes);
    plan.vector_bytes = 3 * u_bytes + (2 + cuda::kMostStepVectors) * v_bytes + aligned((plan.forward.most_rows + 1) * 4) +
                        aligned((plan.adjoint.most_rows + 1) * 4);
    if (plan.vector_bytes > limits.shared_bytes) {
        plan.impossible = fmt::format("a block's part of the vectors needs {}, its shared memory has {}", format_bytes(plan.vector_bytes),
                                      format_bytes(limits.shared_bytes));
        return plan;
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
    plan.device_bytes = nnz * (plan.forward.entry_bytes + plan.adjoint.entry_bytes) + (rows + cols) * 4;
    if (plan.blocks > 1) {
        for (const auto& [side, values] : {std::pair{&plan.forward, rows}, std::pair{&plan.adjoint, cols}}) {
            const std::int64_t bytes = values * 2 * value_bytes;  // each beside its tag
            side->copies = static_cast<int>(std::clamp(kSpreadBytes / std::max<std::int64_t>(bytes, 1), std::int64_t{1}, kMostCopies));
            plan.streamed_bytes += side->copies * bytes;
            plan.device_bytes += side->copies * bytes;
        }
    }

    const std::int64_t longest = std::max(plan.forward.longest_row, plan.adjoint.longest_row);
    const auto l2_bytes = static_cast<std::int64_t>(kL2Share * static_cast<double>(limits.l2_bytes));
    if (plan.streamed_bytes > l2_bytes) {
        plan.unwise = fmt::format("an iteration reads {}, the L2 cache keeps {} of it", format_bytes(plan.streamed_bytes), format_bytes(l2_bytes));
    } else if (longest > kLongestRow) {
        plan.unwise = fmt::format("a row or column has {} nonzeros, more than {}", longest, kLongestRow);
    }
    return plan;
}

std::string SmallPlan::words() const {
    const char* where = forward.resident && adjoint.resident ? "A and A^T in shared memory"
                        : forward.resident                   ? "A in shared memory, A^T in L2"
                        : adjoint.resident                   ? "A^T in shared memory, A in L2"
                                                             : "A and A^T in L2";
    return fmt::format("one persistent kernel for lsmr and lsqr, {} of {} threads, {} and {} of them a row, {}",
                       blocks == 1 ? "1 block" : fmt::format("{} blocks", blocks), cuda::kPersistentThreads, forward.team, adjoint.team, where);
}

template <class T>
SmallProblem<T>::SmallProblem(const CsrMatrix& a, const CsrMatrix& transpose, int exponent, const SmallPlan& plan, const CudaContext& context)
    : context_(context), sums_(context, 5 * cuda::kReplicas * kMostPersistentBlocks) {
    LSMR_EXPECT(plan.impossible.empty());
    upload(a, exponent, plan.forward, plan.blocks > 1, forward_, problem_.forward);
    upload(transpose, exponent, plan.adjoint, plan.blocks > 1, adjoint_, problem_.adjoint);
    LSMR_CHECK(cudaMemsetAsync(sums_.data(), 0, static_cast<std::size_t>(sums_.bytes()), context.stream()));
    problem_.u_sums = sums_.data();
    problem_.v_sums = problem_.u_sums + cuda::kReplicas * kMostPersistentBlocks;
    problem_.closing_sums = problem_.v_sums + cuda::kReplicas * kMostPersistentBlocks;
    problem_.x_sums = problem_.closing_sums + cuda::kReplicas * kMostPersistentBlocks;
    problem_.blocks = plan.blocks;

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
    problem_.dots_at = take(plan.forward.most_rows * kValue);
    problem_.forward.offsets_at = take((plan.forward.most_rows + 1) * 4);
    problem_.adjoint.offsets_at = take((plan.adjoint.most_rows + 1) * 4);
    const auto take_slice = [&](const SidePlan& side, cuda::PersistentSide<T>& view) {
        if (!side.resident) return;
        view.values_at = take(side.most_entries * kValue);
        view.columns_at = take(side.most_entries * (side.entry_bytes - kValue));
    };
    take_slice(plan.forward, problem_.forward);
    take_slice(plan.adjoint, problem_.adjoint);
    LSMR_EXPECT(at == plan.shared_bytes);
    problem_.shared_bytes = static_cast<std::uint32_t>(at);
    cuda::prepare_persistent(problem_);
    context.synchronize();
}

template <class T>
void SmallProblem<T>::upload(const CsrMatrix& a, int exponent, const SidePlan& plan, bool crosses, Side& side, cuda::PersistentSide<T>& view) {
    const std::int64_t entries = std::max<std::int64_t>(a.nnz(), 1);
    side.block_rows = DeviceBuffer<std::int32_t>(context_, static_cast<std::int64_t>(plan.block_rows.size()));
    side.offsets = DeviceBuffer<std::int32_t>(context_, a.rows() + 1);
    side.columns = DeviceBuffer<std::byte>(context_, entries * (plan.narrow ? 2 : 4));
    side.values = DeviceBuffer<T>(context_, entries);
    cuda::Uploader up(context_);
    const auto same = [](std::int32_t i) { return i; };
    up(side.block_rows.data(), plan.block_rows.data(), side.block_rows.size(), same);
    up(side.offsets.data(), a.offsets(), a.rows() + 1, [](std::int64_t o) { return static_cast<std::int32_t>(o); });
    if (plan.narrow) {
        up(reinterpret_cast<std::uint16_t*>(side.columns.data()), a.columns(), a.nnz(), [](std::int32_t c) { return static_cast<std::uint16_t>(c); });
    } else {
        up(reinterpret_cast<std::int32_t*>(side.columns.data()), a.columns(), a.nnz(), same);
    }
    const PowerOfTwo scale(exponent);
    up(side.values.data(), a.values(), a.nnz(), [scale](double value) { return static_cast<T>(scale(value)); });
    view.block_rows = side.block_rows.data();
    view.offsets = side.offsets.data();
    view.columns = side.columns.data();
    view.values = side.values.data();
    view.narrow = plan.narrow;
    view.resident = plan.resident;
    view.team = plan.team;
    if (!crosses) return;
    side.packets = DeviceBuffer<cuda::Packet<T>>(context_, std::max<std::int64_t>(plan.copies * a.rows(), 1));
    LSMR_CHECK(cudaMemsetAsync(side.packets.data(), 0, static_cast<std::size_t>(side.packets.bytes()), context_.stream()));
    view.packets = side.packets.data();
    view.copies = plan.copies;
    view.rows = static_cast<std::int32_t>(a.rows());
}

template class SmallProblem<double>;
template class SmallProblem<float>;

}  // namespace lsmr
