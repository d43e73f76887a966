// A small matrix in the form of the persistent kernel: rows dealt out to blocks, entries in their shared memory where they fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/device_buffer.hpp"
#include "operator/csr_matrix.hpp"
#include "solver/cuda/mail.hpp"
#include "solver/cuda/persistent_kernel.hpp"

namespace lsmr {

// What a device offers to a persistent kernel.
struct PersistentLimits {
    int multiprocessors = 0;
    std::int64_t l2_bytes = 0;
    std::int64_t shared_bytes = 0;  // of one block, beside what the kernel itself takes
    bool cooperative = false;       // all blocks of a launch can be made to run at once
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
// offsets: of A and of A^T. value_bytes: of T. wanted: gathered or mailed where there are several blocks; else what is taken to be faster.
SmallPlan plan_small_problem(std::int64_t rows, std::int64_t cols, const std::int64_t* row_offsets, const std::int64_t* col_offsets,
                             std::int64_t value_bytes, const PersistentLimits& limits, std::optional<cuda::Crossing> wanted = std::nullopt);

template <class T>
class SmallProblem {
  public:
    // a, times 2^exponent, and its transpose, as the plan says. The context must outlive it.
    SmallProblem(const CsrMatrix& a, const CsrMatrix& transpose, int exponent, const SmallPlan& plan, const CudaContext& context);
    // At most `iterations` of the method on its vectors; less where the recurrence stops. Asynchronous, on the context's stream.
    template <class Method>
    void iterate(const typename Method::Vectors& w, typename Method::Recurrence* r, std::int64_t iterations, const Anchors<T>& anchors = {}) {
        const cuda::PersistentVectors<T> vectors = cuda::persistent_vectors<Method>(w, anchors);
        cuda::launch_persistent(problem_, vectors, r, static_cast<int>(iterations), tag_, context_.stream());
        tag_ += static_cast<std::uint64_t>(iterations) + 2;
    }

  private:
    struct Side {
        DeviceBuffer<std::int32_t> block_rows, offsets;
        DeviceBuffer<std::byte> columns;
        DeviceBuffer<T> values;
        DeviceBuffer<cuda::Packet<T>> packets;
    };
    struct MailBuffers {
        DeviceBuffer<std::int32_t> block_rows, order, diagonals_at, begin;
        DeviceBuffer<cuda::MailDiagonal> diagonals;
        DeviceBuffer<std::uint16_t> products, rows;
    };
    void upload(const CsrMatrix& a, int exponent, const SidePlan& plan, bool crosses, Side& side, cuda::PersistentSide<T>& view);
    void upload(const MailSide& mail, const std::vector<std::int32_t>& block_rows, MailBuffers& side, cuda::PersistentMailSide& view);
    void make_mailboxes(const CsrMatrix& a, const CsrMatrix& transpose, int exponent, const SmallPlan& plan);
    void place_in_shared(const SmallPlan& plan);

    const CudaContext& context_;
    Side forward_, adjoint_;
    MailBuffers forward_mail_, adjoint_mail_;
    DeviceBuffer<T> mail_values_, mail_slots_;
    DeviceBuffer<std::uint32_t> mail_sectors_;
    DeviceBuffer<cuda::TaggedSum> sums_;
    cuda::PersistentProblem<T> problem_;
    std::uint64_t tag_ = 1;  // what crosses begins with tag 0
};

}  // namespace lsmr
