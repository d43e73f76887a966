// The whole iteration of LSMR, LSQR and CGLS in one kernel that stays on the device for many iterations: for problems so small that an iteration
// in several launches is bound by their latency. The host's side of it, the plan: solver/cuda/small_problem.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "solver/cgls.hpp"
#include "solver/lsmr.hpp"
#include "solver/lsqr.hpp"

namespace lsmr::cuda {

inline constexpr int kPersistentThreads = 512;
// Two warps of a block make no products: one waits for the other blocks, one runs the recurrence.
inline constexpr int kProductThreads = kPersistentThreads - 64;
// A warp watches the sums of all blocks, kBlocksPerLane a lane.
inline constexpr int kBlocksPerLane = 5;
inline constexpr int kMostPersistentBlocks = 32 * kBlocksPerLane;
// Each sum is published this often, so that fewer blocks wait at one address.
inline constexpr int kReplicas = 4;
// Vectors of n values beside v: h, hbar, x of LSMR; s, x and the centre of the damping of CGLS.
inline constexpr int kMostStepVectors = 3;

// A sum of one block with the number of the pass that it belongs to, written and read as one.
struct alignas(16) TaggedSum {
    double sum;
    std::uint64_t tag;
};
// The same of one value of a vector.
template <class T>
struct alignas(2 * sizeof(T)) Packet {
    T value;
    std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t> tag;
};

// How the values of u-hat and v-hat cross between blocks.
enum class Crossing {
    none,       // there is one block
    clustered,  // the blocks are one cluster, each has all values in its shared memory: persistent_cluster.cuh
    gathered,   // each block reads those that it needs where their owners left them, each by itself
    mailed,     // each block writes for every other block those that this one needs, in one run: solver/cuda/mail.hpp
};

// One orientation: CSR, its rows dealt out to the blocks once and for all.
template <class T>
struct PersistentSide {
    const std::int32_t* block_rows = nullptr;  // block b owns rows block_rows[b] .. block_rows[b + 1] - 1
    const std::int32_t* offsets = nullptr;
    const void* columns = nullptr;  // 16 bits where narrow, else 32
    const T* values = nullptr;
    bool narrow = false;
    bool resident = false;  // a block's entries are held in shared memory
    int team = 1;           // threads of a row, a power of two up to 32
    // The vector that has a value for each row, u-hat or v-hat, where it crosses between blocks; in copies, one after the other, that are
    // read by one block in so many each: few bytes lie in few parts of the L2 cache, which then keep all readers waiting.
    Packet<T>* packets = nullptr;
    int copies = 1;
    std::int32_t rows = 0;
    // Where in a block's shared memory, in bytes:
    std::uint32_t offsets_at = 0;
    std::uint32_t values_at = 0;
    std::uint32_t columns_at = 0;
};

// Blocks of a cluster at most, where the device allows as many.
inline constexpr int kMostClusterBlocks = 16;
// In the shared memory of each block of a cluster. Barriers count the bytes that have come.
struct alignas(16) ClusterSum {
    double parts[kMostClusterBlocks];
    std::uint64_t come;
};
// Sums of a pass, as those between blocks without a cluster (PersistentProblem).
enum ClusterSums { u_sum, v_sum, r_sum, closing_sum, x_sum, kClusterSums = x_sum + 2 };
struct alignas(16) ClusterExchange {
    ClusterSum sums[kClusterSums];
    std::uint64_t u_come;
    std::uint64_t v_come;
};
// Where it lies, and values of u-hat and of v-hat of all blocks, and products of the block's rows of A^T: in bytes.
struct PersistentCluster {
    std::uint32_t exchange_at = 0;
    std::uint32_t u_at = 0;
    std::uint32_t v_at = 0;
    std::uint32_t products_at = 0;
    std::int32_t rows = 0;  // of A
    std::int32_t cols = 0;
};

// Products of a block's rows that lie one after the other, in order of the rows: of each of the first `size` of them, one.
struct alignas(8) MailDiagonal {
    std::int32_t begin;
    std::int32_t size;
};
// So many are added at once.
inline constexpr int kMailDiagonals = 8;
// A letter is 16 bytes of a mailbox, what a thread reads or writes at once. Lists of so many for each product thread have code of their own.
inline constexpr int kFewLetters = 2;

// One orientation of A as the mail has it, in device memory; the meaning is that of MailSide (solver/cuda/mail.hpp).
struct PersistentMailSide {
    const std::int32_t* block_rows = nullptr;
    const std::int32_t* order = nullptr;
    const std::int32_t* diagonals_at = nullptr;
    const MailDiagonal* diagonals = nullptr;
    const std::int32_t* begin = nullptr;
    const std::uint16_t* products = nullptr;
    const std::uint16_t* rows = nullptr;
    std::uint32_t diagonals_in_shared = 0;  // where, in bytes
};
template <class T>
struct PersistentMail {
    PersistentMailSide forward;
    PersistentMailSide adjoint;
    const T* values = nullptr;
    const std::uint32_t* sectors = nullptr;
    // The mailboxes. A value v_j on its way to a row has 0 as its last bit, a_ij u_i on its way back to the column 1: who reads does so until the
    // bit is right. A slot is written only by who has read it, so that one bit is enough. Between launches all bits are 1.
    T* slots = nullptr;
    std::int32_t resident = 0;  // slots of each mailbox whose entries' values are held in shared memory
    std::int32_t zero = 0;      // a product of every block that is 0 and no entry's
    bool few = false;           // no block has more than kFewLetters a product thread each way, nor more rows or columns than product threads; no long ones
    // Where in a block's shared memory, in bytes:
    std::uint32_t products_at = 0;
    std::uint32_t values_at = 0;
};

template <class T>
struct PersistentProblem {
    Crossing crossing = Crossing::none;
    PersistentMail<T> mail;         // where values are mailed; the sides where not
    PersistentCluster cluster;
    PersistentSide<T> forward;  // A: rows are those of u
    PersistentSide<T> adjoint;  // A^T: rows are those of v
    // Sums that cross between blocks: kReplicas lists of kMostPersistentBlocks each. Tags only grow, over all launches.
    TaggedSum* u_sums = nullptr;
    TaggedSum* v_sums = nullptr;
    TaggedSum* r_sums = nullptr;  // of CGLS
    TaggedSum* closing_sums = nullptr;
    TaggedSum* x_sums = nullptr;  // two lists: for even and for odd passes; of CGLS: of p, and of x - c
    // In a block's shared memory, in bytes: u and v twice, the vectors of the step, the products of its rows of A (where they are not mailed).
    std::uint32_t u_at[2] = {};
    std::uint32_t v_at[2] = {};
    std::uint32_t step_at[kMostStepVectors] = {};
    std::uint32_t dots_at = 0;
    std::uint32_t shared_bytes = 0;
    int blocks = 0;
};

// What an iteration reads and changes: u, v, then h, hbar, x of LSMR, w, x of LSQR; of CGLS r, p, then s, x.
template <class T>
struct PersistentVectors {
    T* u = nullptr;
    T* v = nullptr;
    T* step[kMostStepVectors] = {};
    const T* center = nullptr;  // of CGLS's damping; null: 0
};
template <class Method>
PersistentVectors<typename Method::Value> persistent_vectors(const typename Method::Vectors& w, const Anchors<typename Method::Value>& anchors) {
    using T = typename Method::Value;
    if constexpr (std::is_same_v<Method, Lsmr<T>>) return {w.u, w.v, {w.h, w.hbar, w.x}};
    else if constexpr (std::is_same_v<Method, Lsqr<T>>) return {w.u, w.v, {w.w, w.x}};
    else return {w.r, w.p, {w.s, w.x}, anchors.center};
}

template <class Method>
inline constexpr bool kRunsPersistent = false;
template <class T>
inline constexpr bool kRunsPersistent<Lsmr<T>> = true;
template <class T>
inline constexpr bool kRunsPersistent<Lsqr<T>> = true;
template <class T>
inline constexpr bool kRunsPersistent<Cgls<T>> = true;

// Blocks of the largest cluster that the current device can run with so much shared memory a block; 0: it has no clusters.
int most_cluster_blocks(std::int64_t shared_bytes);

// Allow the kernels as much shared memory as the problem takes. For the current device.
template <class T>
void prepare_persistent(const PersistentProblem<T>& problem);
template <class T>
void prepare_persistent_cgls(const PersistentProblem<T>& problem);

// At most `iterations` iterations; fewer where the recurrence stops, and then x is made that of its last iteration, and the recurrence has
// finished. Does nothing where it has finished before. r: in device memory. progress: that of r, for the host once the launch has ended, in
// page-locked memory, so that nothing is copied between launches; null: not wanted. Tags tag .. tag + iterations + 1 are used.
template <class T>
void launch_persistent(const PersistentProblem<T>& problem, const PersistentVectors<T>& vectors, LsmrRecurrence<T>* r, Progress* progress, int iterations,
                       std::uint64_t tag, cudaStream_t stream);
template <class T>
void launch_persistent(const PersistentProblem<T>& problem, const PersistentVectors<T>& vectors, LsqrRecurrence<T>* r, Progress* progress, int iterations,
                       std::uint64_t tag, cudaStream_t stream);
template <class T>
void launch_persistent(const PersistentProblem<T>& problem, const PersistentVectors<T>& vectors, CglsRecurrence<T>* r, Progress* progress, int iterations,
                       std::uint64_t tag, cudaStream_t stream);

}  // namespace lsmr::cuda
