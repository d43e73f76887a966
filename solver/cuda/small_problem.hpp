// A small matrix in the form of the persistent kernel: rows dealt out to blocks, entries in their shared memory where they fit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/device_buffer.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator/cuda/device_csr.hpp"
#include "solver/cuda/mail.hpp"
#include "solver/cuda/persistent_kernel.hpp"

namespace lsmr {

// What a device offers to a persistent kernel.
struct PersistentLimits {
    int multiprocessors = 0;
    std::int64_t l2_bytes = 0;
    std::int64_t shared_bytes = 0;  // of one block, beside what the kernel itself takes
    bool cooperative = false;       // all blocks of a launch can be made to run at once
    int cluster_blocks = 0;         // of the largest cluster of such blocks
};
PersistentLimits persistent_limits(int device);

// Gathers go to L2; beyond this many entries the products' own kernels, with more threads, hide them better.
inline constexpr std::int64_t kMostSmallEntries = 4'000'000;

// How one orientation is dealt out, on the host.
struct SidePlan {
    std::vector<std::int32_t> block_rows;  // blocks + 1
    std::int64_t most_rows = 0;            // of a block
    std::int64_t most_entries = 0;
    std::int64_t longest_row = 0;
    std::int64_t entry_bytes = 0;          // of a value and its column
    int team = 1;
    int copies = 1;                        // of the vector of its rows
    bool narrow = false;
    bool resident = false;
};
struct SmallPlan {
    SidePlan forward;
    SidePlan adjoint;
    cuda::Crossing crossing = cuda::Crossing::none;
    // Where values are mailed: a block's products and diagonals, and how many slots of its mailbox have their entry's value in shared memory.
    std::int64_t mail_products = 0;
    std::int64_t mail_diagonals[2] = {};  // of A, of A^T
    std::int64_t mail_resident = 0;
    int blocks = 1;
    std::int64_t vector_bytes = 0;    // of a block's shared memory
    std::int64_t shared_bytes = 0;    // the same, entries and offsets included
    std::int64_t streamed_bytes = 0;  // what an iteration reads from the L2 cache, without gathers
    std::int64_t device_bytes = 0;    // memory that the problem takes
    // Why the kernel cannot run it; empty: it can. And why it would, but other kernels are taken to be faster.
    std::string impossible;
    std::string unwise;
    std::string words() const;
};
// offsets: of A and of A^T. value_bytes: of T. wanted: how values cross, where there are several blocks and it can be so; else what is taken to be
// faster.
SmallPlan plan_small_problem(std::int64_t rows, std::int64_t cols, const std::int64_t* row_offsets, const std::int64_t* col_offsets,
                             std::int64_t value_bytes, const PersistentLimits& limits, std::optional<cuda::Crossing> wanted = std::nullopt);

// 2^exponent A and its transpose on the device, of fewer than 2^31 nonzeros. The matrix must outlive it.
template <class T>
struct SmallMatrix {
    SmallMatrix(const CsrMatrix& matrix, int exponent, const CudaContext& context);
    SmallPlan plan(const PersistentLimits& limits, std::optional<cuda::Crossing> wanted = std::nullopt) const;

    cuda::DeviceCsr<T> a, transpose;
    const std::int64_t* row_offsets;  // on the host
    std::vector<std::int64_t> col_offsets;
};
// Device memory for it while it is made.
template <class T>
std::int64_t small_matrix_bytes(std::int64_t rows, std::int64_t cols, std::int64_t nnz) {
    constexpr std::int64_t kOfSorting = 24;  // an entry
    return cuda_operator_bytes<T>(rows, cols, nnz, StorageKind::dual) + kOfSorting * nnz;
}

template <class T>
class SmallProblem {
  public:
    // As the plan for this matrix says. The context must outlive it.
    SmallProblem(const SmallMatrix<T>& matrix, const SmallPlan& plan, const CudaContext& context);
    // At most `iterations` of the method on its vectors; less where the recurrence stops. Asynchronous, on the context's stream. progress: beside r,
    // in memory that the host reads; null: not wanted.
    template <class Method>
    void iterate(const typename Method::Vectors& w, typename Method::Recurrence* r, std::int64_t iterations, const Anchors<T>& anchors = {},
                 Progress* progress = nullptr) {
        const cuda::PersistentVectors<T> vectors = cuda::persistent_vectors<Method>(w, anchors);
        cuda::launch_persistent(problem_, vectors, r, progress, static_cast<int>(iterations), tag_, context_.stream());
        tag_ += static_cast<std::uint64_t>(iterations) + 2;
    }

    // Iterations of some 0.3 ms, where nothing is known yet.
    std::int64_t first_launch() const { return std::clamp(kEntriesOfFirst / std::max<std::int64_t>(entries_, 1), std::int64_t{1}, kMostOfFirst); }

  private:
    static constexpr std::int64_t kEntriesOfFirst = std::int64_t{1} << 24;
    static constexpr std::int64_t kMostOfFirst = 64;
    struct Side {
        cuda::DeviceCsr<T> a;  // without its columns where they are narrow
        DeviceBuffer<std::uint16_t> narrow_columns;
        DeviceBuffer<cuda::Packet<T>> packets;
    };
    void make_mailboxes(const SmallMatrix<T>& matrix, const SmallPlan& plan);
    void make_sides(const SmallMatrix<T>& matrix, const SmallPlan& plan);
    void make_side(const cuda::DeviceCsr<T>& a, const SidePlan& plan, const std::int32_t* block_rows, bool crosses, Side& side, cuda::PersistentSide<T>& view);
    void place_in_shared(const SmallPlan& plan);

    const CudaContext& context_;
    std::int64_t entries_;
    DeviceBuffer<std::byte> arrays_;  // of the plan, and of the mail's sides
    Side forward_, adjoint_;
    MailSlots<T> mail_;
    DeviceBuffer<T> mail_slots_;
    DeviceBuffer<cuda::TaggedSum> sums_;
    cuda::PersistentProblem<T> problem_;
    std::uint64_t tag_ = 1;  // what crosses begins with tag 0
};

}  // namespace lsmr
