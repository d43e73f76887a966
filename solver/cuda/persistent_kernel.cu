// One iteration, as solver/lsmr.hpp and solver/lsqr.hpp have it, with the update of x one stage later: beside the product with A^T of the next
// iteration, whose threads hold the same columns. Each block owns rows of A and of A^T, and keeps its parts of all vectors in shared memory;
// only u-hat and v-hat, which others gather, and sums travel through the L2 cache.
//
//   the first warp      waits for the sums of all blocks, adds them in a fixed order; alpha or beta and the coefficients that the product needs
//   the last warp       the recurrence, in every block with the same bits. The step's coefficients, for which it has the time until the
//                       second product is there; then the estimates and stop tests, until the next first product is. So a stop is known
//                       one pass late: u-hat and v-hat are then put back, which is why they are kept twice
//   all others          the products of the block's rows, which need no scalar; then u-hat or v-hat, the step, and the sums of squares
//
// Nothing waits for all blocks at once. Every number that crosses blocks travels in one store beside a tag, the number of its pass: values of
// u-hat and v-hat (Packet) as well as sums (TaggedSum). Who gathers one reads it until the tag is right, so that it has crossed as soon as it
// can be read, without a fence; the sums cross meanwhile. A place is written again only when all have read it, for then the writer holds a
// sum of all blocks to which each could add only after reading: u-hat and its sums before the sums of v-hat, these before the next sums of
// u-hat. Sums of x are read beside all this, before the sums of the next u-hat but one: they have two places in turn.
// A single block gathers from its own shared memory. Where values are mailed (solver/cuda/mail.hpp, persistent_mail.cuh) no one gathers from L2:
// the products of stage A begin with v-hat as it comes, those of stage B with what the rows' owners made of u-hat; their tag is a bit.
#include "memory/cuda_check.hpp"
#include "solver/cuda/persistent_kernel.hpp"
#include "solver/cuda/persistent_mail.cuh"

namespace lsmr::cuda {
namespace {

constexpr int kWarps = kPersistentThreads / 32;
constexpr int kFirstProductWarp = 1;
constexpr int kRecurrenceWarp = kWarps - 1;
static_assert((kRecurrenceWarp - kFirstProductWarp) * 32 == kProductThreads);

// Barriers of a block. Who arrives goes on at once, who syncs waits for all. The recurrence may arrive for a pass while the pass before is
// still at its first product: that barrier has two places in turn.
enum Barrier {
    u_known = 1,    // coefficients of u-hat, products with A, and whether the pass before was one too many: products and the first warp sync
    u_written = 3,  // the block's u-hat: products arrive, the first warp syncs
    v_known,        // the same of v-hat, A^T and the step's coefficients, and whether the recurrence has failed
    v_written,
    sums_known,  // ||u-hat||, ||v-hat|| of the pass before: the first warp arrives, the recurrence syncs
    products,    // what the product warps wrote, where they read it themselves
};
constexpr int kAll = kPersistentThreads;
constexpr int kWorkers = kPersistentThreads - 32;  // all but the recurrence
constexpr int kTwoWarps = 64;
__device__ inline void sync(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
__device__ inline void arrive(int barrier, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
__device__ inline int u_known_in(int pass) { return u_known + (pass & 1); }

// Relaxed, for what is read beside its tag needs no order with anything else.
__device__ inline void put(TaggedSum* to, double sum, std::uint64_t tag) {
    asm volatile("{ .reg .b128 both; mov.b128 both, {%1, %2}; st.relaxed.gpu.global.b128 [%0], both; }" ::"l"(to),
                 "l"(__double_as_longlong(sum)), "l"(tag)
                 : "memory");
}
__device__ inline TaggedSum get(const TaggedSum* from) {
    long long sum;
    std::uint64_t tag;
    asm volatile("{ .reg .b128 both; ld.relaxed.gpu.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
                 : "=l"(sum), "=l"(tag)
                 : "l"(from)
                 : "memory");
    return {__longlong_as_double(sum), tag};
}
__device__ inline void put(Packet<double>* to, double value, std::uint64_t tag) { put(reinterpret_cast<TaggedSum*>(to), value, tag); }
__device__ inline void put(Packet<float>* to, float value, std::uint64_t tag) {
    const std::uint64_t both = tag << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(both) : "memory");
}
// Whether `value` is that of the tag.
__device__ inline bool get(const Packet<double>* from, std::uint64_t tag, double& value) {
    const TaggedSum both = get(reinterpret_cast<const TaggedSum*>(from));
    value = both.sum;
    return both.tag == tag;
}
__device__ inline bool get(const Packet<float>* from, std::uint64_t tag, float& value) {
    std::uint64_t both;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(both) : "l"(from) : "memory");
    value = __uint_as_float(static_cast<std::uint32_t>(both));
    return static_cast<std::uint32_t>(both >> 32) == static_cast<std::uint32_t>(tag);
}

__device__ inline double warp_sum(double value) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

// By one whole warp: makes the block's sum known.
__device__ inline void publish(TaggedSum* sums, double sum, std::uint64_t tag) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < kReplicas) put(sums + lane * kMostPersistentBlocks + static_cast<int>(blockIdx.x), sum, tag);
}
// By one whole warp: the sum of all blocks, once all are there.
__device__ inline double collect(const TaggedSum* sums, std::uint64_t tag) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int blocks = static_cast<int>(gridDim.x);
    const TaggedSum* list = sums + (static_cast<int>(blockIdx.x) % kReplicas) * kMostPersistentBlocks;
    double parts[kBlocksPerLane];
    bool missing;
    do {
        missing = false;
#pragma unroll
        for (int i = 0; i < kBlocksPerLane; ++i) {
            parts[i] = 0;
            if (lane + 32 * i < blocks) {
                const TaggedSum part = get(list + lane + 32 * i);
                parts[i] = part.sum;
                missing = missing || part.tag != tag;
            }
        }
    } while (missing);
    __syncwarp();
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kBlocksPerLane; ++i) sum += parts[i];
    return warp_sum(sum);
}

// What products gather from: a vector of all blocks, or that of a block alone. get() returns whether the value is there.
template <class T>
struct CrossingVector {
    const Packet<T>* packets;
    std::uint64_t tag;
    __device__ bool get(std::int32_t i, T& value) const { return cuda::get(packets + i, tag, value); }
};
template <class T>
struct OwnVector {
    const T* values;
    __device__ bool get(std::int32_t i, T& value) const {
        value = values[i];
        return true;
    }
};

// dots[row] = sum of values x[column] over the row, for all rows of the block. By the product threads, `thread` of them 0 .. kProductThreads - 1.
template <bool kResident, class T, class Column, class Vector>
__device__ inline void row_products(const T* values, const Column* columns, const std::int32_t* offsets, int rows, int team, const Vector& x,
                                    T* dots, int thread) {
    constexpr int kBatch = 4;  // reads under way
    const int level = 31 - __clz(team);
    const int lane = thread & (team - 1);
    const int teams = kProductThreads >> level;
    // The next batch: of this row, its first entry, and how many are left for the thread.
    int row = thread >> level;
    int next = 0;
    int left = 0;
    int row_steps = 0;
    const auto enter_row = [&] {
        left = row_steps = 0;
        if (row >= rows) return;
        const int begin = offsets[row];
        const int entries = offsets[row + 1] - begin;
        next = begin + lane;
        left = (entries - lane + team - 1) >> level;
        row_steps = (((entries + team - 1) >> level) + kBatch - 1) / kBatch;
    };
    struct Batch {
        Column column[kBatch];
        T value[kBatch];
        int size;
    };
    const auto fetch = [&](Batch& batch) {
        batch.size = left;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int entry = next + (i << level);
            if constexpr (kResident) {
                batch.column[i] = i < left ? columns[entry] : Column(0);
                batch.value[i] = i < left ? values[entry] : T(0);
            } else {
                batch.column[i] = i < left ? __ldg(columns + entry) : Column(0);
                batch.value[i] = i < left ? __ldg(values + entry) : T(0);
            }
        }
    };
    Batch batch;
    enter_row();
    fetch(batch);
    for (int first = 0; first < rows; first += teams) {
        const int this_row = row;
        // As many for all lanes of the warp.
        const int steps = max(1, static_cast<int>(__reduce_max_sync(0xffffffffu, static_cast<unsigned>(row_steps))));
        T sum = 0;
        for (int step = 0; step < steps; ++step) {
            T gathered[kBatch];
            bool come[kBatch];
            // What does not exist is not read, nor multiplied but by its own 0.
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                gathered[i] = 0;
                come[i] = i < batch.size ? x.get(batch.column[i], gathered[i]) : true;
            }
            next += kBatch << level;
            left -= kBatch;
            if (step == steps - 1) {
                row += teams;
                enter_row();
            }
            // What comes from L2 comes while the gathers do.
            Batch following;
            if constexpr (!kResident) fetch(following);
            bool missing;
            do {
                missing = false;
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    if (!come[i]) come[i] = x.get(batch.column[i], gathered[i]);
                    missing = missing || !come[i];
                }
            } while (missing);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) sum += batch.value[i] * gathered[i];
            if constexpr (kResident) fetch(batch);
            else batch = following;
        }
        for (int d = team / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (this_row < rows && lane == 0) dots[this_row] = sum;
    }
}

// A block's part of one orientation, as it is used.
template <class T>
struct Slice {
    const PersistentSide<T>& side;
    unsigned char* shared;
    int first_row;
    int rows;
    std::int32_t first_entry;

    __device__ Slice(const PersistentSide<T>& of, unsigned char* shared_)
        : side(of),
          shared(shared_),
          first_row(of.block_rows[blockIdx.x]),
          rows(of.block_rows[blockIdx.x + 1] - first_row),
          first_entry(of.offsets[first_row]) {}
    // Where the block's row i lies in a vector.
    __device__ int index(int i) const { return first_row + i; }
    __device__ std::int32_t* offsets() const { return reinterpret_cast<std::int32_t*>(shared + side.offsets_at); }
    template <class Column>
    __device__ void load_entries(int thread) const {
        const std::int32_t entries = side.offsets[first_row + rows] - first_entry;
        T* values = reinterpret_cast<T*>(shared + side.values_at);
        auto* columns = reinterpret_cast<Column*>(shared + side.columns_at);
        const T* from_values = side.values + first_entry;
        const Column* from_columns = static_cast<const Column*>(side.columns) + first_entry;
#pragma unroll 4
        for (int i = thread; i < entries; i += kPersistentThreads) {
            values[i] = __ldg(from_values + i);
            columns[i] = __ldg(from_columns + i);
        }
    }
    // By all threads of the block.
    __device__ void load(int thread) const {
        for (int i = thread; i <= rows; i += kPersistentThreads) offsets()[i] = side.offsets[first_row + i] - first_entry;
        if (!side.resident) return;
        if (side.narrow) load_entries<std::uint16_t>(thread);
        else load_entries<std::int32_t>(thread);
    }
    // The value of the vector of this side's rows in the block's row i, to all blocks; and where this block reads those of all.
    __device__ void send(int i, T value, std::uint64_t tag) const {
        for (int copy = 0; copy < side.copies; ++copy) put(side.packets + copy * side.rows + first_row + i, value, tag);
    }
    __device__ const Packet<T>* received() const { return side.packets + static_cast<int>(blockIdx.x) % side.copies * side.rows; }
    template <class Column, class Vector>
    __device__ void multiply_as(const Vector& x, T* dots, int thread) const {
        if (side.resident) {
            row_products<true>(reinterpret_cast<const T*>(shared + side.values_at), reinterpret_cast<const Column*>(shared + side.columns_at),
                               offsets(), rows, side.team, x, dots, thread);
        } else {
            row_products<false>(side.values + first_entry, static_cast<const Column*>(side.columns) + first_entry, offsets(), rows, side.team, x,
                                dots, thread);
        }
    }
    // By the product threads.
    template <class Vector>
    __device__ void multiply(const Vector& x, T* dots, int thread) const {
        if (side.narrow) multiply_as<std::uint16_t>(x, dots, thread);
        else multiply_as<std::int32_t>(x, dots, thread);
    }
};

// A block's part of A where it is not mailed: entries of its rows, and of its columns.
template <class T>
struct SlicePart {
    Slice<T> forward;
    Slice<T> adjoint;
    __device__ SlicePart(const PersistentProblem<T>& problem, unsigned char* shared) : forward(problem.forward, shared), adjoint(problem.adjoint, shared) {}
    __device__ void load(int thread) const {
        forward.load(thread);
        adjoint.load(thread);
    }
};

template <class T>
__device__ inline LsmrStep<T> own_step(const LsmrRecurrence<T>* r, const T* v, T* const* step) {
    return {r, v, step[0], step[1], step[2]};
}
template <class T>
__device__ inline LsqrStep<T> own_step(const LsqrRecurrence<T>* r, const T* v, T* const* step) {
    return {r, v, step[0], step[1]};
}
// Vectors that the step changes; the last of them is x.
template <class R>
constexpr int kStepVectors = 0;
template <class T>
constexpr int kStepVectors<LsmrRecurrence<T>> = 3;
template <class T>
constexpr int kStepVectors<LsqrRecurrence<T>> = 2;

// What the warps of a block hand to one another.
template <class T, class Step>
struct Handed {
    typename Step::Coefficients step;
    bool failed;                         // the recurrence, before the step
    bool stopped[2];                     // the recurrence, by its tests; for even and for odd passes
    int passes;                          // that are kept
    double u2, v2;                       // of the exchanges, for the recurrence
    T u_product, u_vector;               // coefficients: u-hat <- product A v-hat + vector u-hat
    T v_product, v_vector;
    double u_squares[kWarps], v_squares[kWarps], x_squares[kWarps];
    IterationRecord unread;              // of all blocks but the first, which alone writes records
};

// The sum over the product warps of what each left; by one whole warp.
__device__ inline double sum_of_warps(const double* sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return warp_sum(lane >= kFirstProductWarp && lane < kRecurrenceWarp ? sums[lane] : 0.0);
}

template <class T, class R, Crossing kCrossing>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    persistent_kernel(const __grid_constant__ PersistentProblem<T> problem, const __grid_constant__ PersistentVectors<T> vectors, R* r,
                      int iterations, std::uint64_t tag) {
    constexpr bool kAlone = kCrossing == Crossing::none;
    constexpr bool kGathered = kCrossing == Crossing::gathered;
    constexpr bool kMailed = kCrossing == Crossing::mailed;
    extern __shared__ __align__(16) unsigned char shared[];
    // A recurrence and what is handed, without their constructors, which shared memory cannot have.
    __shared__ __align__(16) unsigned char recurrence_bytes[sizeof(R)];
    using Step = decltype(own_step(static_cast<const R*>(nullptr), static_cast<const T*>(nullptr), static_cast<T* const*>(nullptr)));
    __shared__ __align__(16) unsigned char handed_bytes[sizeof(Handed<T, Step>)];
    R& recurrence = *reinterpret_cast<R*>(recurrence_bytes);
    Handed<T, Step>& handed = *reinterpret_cast<Handed<T, Step>*>(handed_bytes);
    static_assert(sizeof(R) % sizeof(std::uint64_t) == 0 && alignof(R) <= 16);

    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int product_thread = thread - 32 * kFirstProductWarp;
    const bool makes_products = warp >= kFirstProductWarp && warp < kRecurrenceWarp;
    const int block = static_cast<int>(blockIdx.x);

    for (int i = thread; i < static_cast<int>(sizeof(R) / sizeof(std::uint64_t)); i += kPersistentThreads) {
        reinterpret_cast<std::uint64_t*>(recurrence_bytes)[i] = reinterpret_cast<const std::uint64_t*>(r)[i];
    }
    __syncthreads();
    if (recurrence.progress.finished) return;

    using Part = std::conditional_t<kMailed, MailPart<T>, SlicePart<T>>;
    const Part part = [&] {
        if constexpr (kMailed) return MailPart<T>(problem.mail, shared);
        else return SlicePart<T>(problem, shared);
    }();
    const auto& forward = part.forward;
    const auto& adjoint = part.adjoint;
    // After p passes u-hat and v-hat lie in places p mod 2; in the others, those of the pass before.
    const auto u_of = [&](int passes) { return reinterpret_cast<T*>(shared + problem.u_at[passes & 1]); };
    const auto v_of = [&](int passes) { return reinterpret_cast<T*>(shared + problem.v_at[passes & 1]); };
    // Products with rows of A; those with A^T lie where v-hat will, those of mailed values where all their parts lay.
    T* const dots = reinterpret_cast<T*>(shared + (kMailed ? problem.mail.products_at : problem.dots_at));
    constexpr int kVectors = kStepVectors<R>;
    T* step_own[kVectors];
#pragma unroll
    for (int s = 0; s < kVectors; ++s) step_own[s] = reinterpret_cast<T*>(shared + problem.step_at[s]);
    for (int j = thread; j < adjoint.rows; j += kPersistentThreads) {
        const int at = adjoint.index(j);
        const T value = kMailed ? mailable(vectors.v[at]) : vectors.v[at];
        v_of(0)[j] = value;
        if constexpr (kGathered) adjoint.send(j, value, tag);
#pragma unroll
        for (int s = 0; s < kVectors; ++s) step_own[s][j] = vectors.step[s][at];
    }
    for (int i = thread; i < forward.rows; i += kPersistentThreads) u_of(0)[i] = vectors.u[forward.index(i)];
    part.load(thread);
    if (thread == 0) {
        handed.failed = handed.stopped[0] = handed.stopped[1] = false;
        handed.passes = 0;
        handed.u_product = recurrence.c1.narrow;
        handed.u_vector = recurrence.c2.narrow;
        if (block != 0) recurrence.ring = {&handed.unread, 1};
    }
    __syncthreads();

    // ||x||^2 after the update of pass `pass`, by one whole warp.
    const auto x_list = [&](int pass) { return problem.x_sums + (pass & 1) * kReplicas * kMostPersistentBlocks; };
    const auto x_norm2 = [&](int pass) {
        return kAlone ? sum_of_warps(handed.x_squares) : collect(x_list(pass), tag + static_cast<std::uint64_t>(pass));
    };

    if (recurrence.progress.stopped() || iterations == 0) {
        // Nothing but the last update of x.
    } else if (makes_products) {
        if constexpr (kMailed) part.send_columns(v_of(0), product_thread);
        for (int k = 0; k < iterations; ++k) {
            const std::uint64_t pass_tag = tag + static_cast<std::uint64_t>(k);
            // Stage A: u-hat <- c1 A v-hat + c2 u-hat.
            const T* const v = v_of(k);
            if constexpr (kAlone) {
                forward.multiply(OwnVector<T>{v}, dots, product_thread);
            } else if constexpr (kGathered) {
                forward.multiply(CrossingVector<T>{adjoint.received(), pass_tag}, dots, product_thread);
            } else {
                part.receive_columns(product_thread);
                sync(products, kProductThreads);
                part.add(forward, product_thread);
            }
            sync(u_known_in(k), kAll);
            if (handed.stopped[k & 1]) {
                if constexpr (kMailed) part.clear(product_thread);
                break;
            }
            const T* const u = u_of(k);
            T* const u_next = u_of(k + 1);
            const T c1 = handed.u_product;
            const T c2 = handed.u_vector;
            double squares = 0;
            for (int i = product_thread; i < forward.rows; i += kProductThreads) {
                const T value = c2 != T(0) ? c1 * dots[i] + c2 * u[i] : c1 * dots[i];
                if constexpr (kGathered) forward.send(i, value, pass_tag);
                u_next[i] = value;
                squares += static_cast<double>(value) * static_cast<double>(value);
            }
            squares = warp_sum(squares);
            if (lane == 0) handed.u_squares[warp] = squares;
            arrive(u_written, kWorkers);
            if (!kGathered) sync(products, kProductThreads);
            if constexpr (kMailed) part.send_rows(u_next, product_thread);

            // Stage B: v-hat <- d1 A^T u-hat + d2 v-hat, and the step of the iteration before.
            T* const v_next = v_of(k + 1);
            const T* const v_dots = kMailed ? dots : v_next;
            if constexpr (kAlone) {
                adjoint.multiply(OwnVector<T>{u_next}, v_next, product_thread);
            } else if constexpr (kGathered) {
                adjoint.multiply(CrossingVector<T>{forward.received(), pass_tag}, v_next, product_thread);
            } else {
                part.receive_rows(product_thread);
                sync(products, kProductThreads);
                part.add(adjoint, product_thread);
            }
            sync(v_known, kAll);
            if (handed.failed) break;
            const T d1 = handed.v_product;
            const T d2 = handed.v_vector;
            double x_squares[1] = {0};
            squares = 0;
            for (int j = product_thread; j < adjoint.rows; j += kProductThreads) {
                T value = d2 != T(0) ? d1 * v_dots[j] + d2 * v[j] : d1 * v_dots[j];
                if constexpr (kGathered) adjoint.send(j, value, pass_tag + 1);
                if constexpr (kMailed) value = mailable(value);
                v_next[j] = value;
                squares += static_cast<double>(value) * static_cast<double>(value);
            }
            squares = warp_sum(squares);
            if constexpr (kMailed) {
                sync(products, kProductThreads);
                if (k + 1 < iterations) part.send_columns(v_next, product_thread);
            }
            const Step step = own_step(&recurrence, v, step_own);
            const auto coefficients = handed.step;
            for (int j = product_thread; j < adjoint.rows; j += kProductThreads) step(j, coefficients, x_squares);
            const double x_sum = warp_sum(x_squares[0]);
            if (lane == 0) {
                handed.v_squares[warp] = squares;
                handed.x_squares[warp] = x_sum;
            }
            arrive(v_written, kWorkers);
            if (kAlone) sync(products, kProductThreads);
        }
    } else if (warp == 0) {
        // Its own view of the recurrence.
        const double sigma = recurrence.sigma;
        double alpha = recurrence.alpha;
        for (int k = 0; k < iterations; ++k) {
            const std::uint64_t pass_tag = tag + static_cast<std::uint64_t>(k);
            sync(u_known_in(k), kAll);
            if (handed.stopped[k & 1]) break;
            sync(u_written, kWorkers);
            double u2 = sum_of_warps(handed.u_squares);
            if constexpr (!kAlone) {
                publish(problem.u_sums, u2, pass_tag);
                u2 = collect(problem.u_sums, pass_tag);
            }
            const double beta = std::sqrt(u2);
            const ProductFactors of_v = adjoint_factors(sigma, alpha, beta);
            if (lane == 0) {
                handed.v_product = static_cast<T>(of_v.product);
                handed.v_vector = static_cast<T>(of_v.vector);
            }
            sync(v_known, kAll);
            if (handed.failed) break;
            sync(v_written, kWorkers);
            double v2 = sum_of_warps(handed.v_squares);
            if constexpr (!kAlone) {
                publish(problem.v_sums, v2, pass_tag + 1);
                publish(x_list(k), sum_of_warps(handed.x_squares), pass_tag);
                v2 = collect(problem.v_sums, pass_tag + 1);
            }
            if (lane == 0) {
                handed.u2 = u2;
                handed.v2 = v2;
            }
            arrive(sums_known, kTwoWarps);
            alpha = std::sqrt(v2);
            const ProductFactors of_u = forward_factors(sigma, alpha, beta);
            if (lane == 0) {
                handed.u_product = static_cast<T>(of_u.product);
                handed.u_vector = static_cast<T>(of_u.vector);
            }
        }
    } else {
        // Pass k: the recurrence of the pass before, whose sums are known.
        const auto up_to_coefficients = [&](int k) {
            sync(sums_known, kTwoWarps);
            const double x2 = x_norm2(k - 1);
            if (lane == 0) {
                const double forward_sums[2] = {handed.u2, x2};
                recurrence.finish(R::after_forward, forward_sums, kGoOn);
                const double adjoint_sums[1] = {handed.v2};
                recurrence.finish(R::adjoint_coefficients, adjoint_sums, kGoOn);
            }
            __syncwarp();
        };
        arrive(u_known_in(0), kAll);
        int k = 0;
        for (; k < iterations; ++k) {
            if (k > 0) up_to_coefficients(k);
            const bool failed = recurrence.progress.stopped();
            if (lane == 0) {
                handed.failed = failed;
                handed.step = own_step(&recurrence, v_of(k), step_own).load();
            }
            __syncwarp();
            arrive(v_known, kAll);
            if (failed) break;
            if (k == 0) {
                if (iterations > 1) arrive(u_known_in(1), kAll);
                continue;
            }
            if (lane == 0) {
                recurrence.finish(R::adjoint_estimates, nullptr, kGoOn);
                handed.stopped[(k + 1) & 1] = recurrence.progress.stopped();
            }
            __syncwarp();
            if (k + 1 < iterations) arrive(u_known_in(k + 1), kAll);
            if (recurrence.progress.stopped()) {
                // The pass is one too many, but for its step.
                sync(sums_known, kTwoWarps);
                const double sums[2] = {0, x_norm2(k)};
                if (lane == 0) recurrence.finish(R::after_forward, sums, kGoOn);
                break;
            }
        }
        if (k == iterations) {
            up_to_coefficients(k);
            if (lane == 0) recurrence.finish(R::adjoint_estimates, nullptr, kGoOn);
        }
        if (lane == 0) handed.passes = k;
    }
    __syncthreads();  // the recurrence is that of the last iteration
    const int passes = handed.passes;

    // A stop that was not one pass late: the last update of x, which the recurrence then knows of.
    if (recurrence.progress.stopped() && !recurrence.progress.finished) {
        double x_squares[1] = {0};
        const Step step = own_step(&recurrence, v_of(passes), step_own);
        const auto coefficients = step.load();
        __syncthreads();
        if (makes_products) {
            for (int j = product_thread; j < adjoint.rows; j += kProductThreads) step(j, coefficients, x_squares);
            const double x_sum = warp_sum(x_squares[0]);
            if (lane == 0) handed.x_squares[warp] = x_sum;
        }
        __syncthreads();
        if (warp == 0) {
            double x2 = sum_of_warps(handed.x_squares);
            if constexpr (!kAlone) {
                const std::uint64_t closing = tag + static_cast<std::uint64_t>(passes) + 1;
                publish(problem.closing_sums, x2, closing);
                if (block == 0) x2 = collect(problem.closing_sums, closing);
            }
            if (thread == 0) {
                const double sums[2] = {0, x2};
                recurrence.finish(R::after_forward, sums, kGoOn);
            }
        }
        __syncthreads();
    }
    for (int i = thread; i < forward.rows; i += kPersistentThreads) vectors.u[forward.index(i)] = u_of(passes)[i];
    for (int j = thread; j < adjoint.rows; j += kPersistentThreads) {
        const int at = adjoint.index(j);
        vectors.v[at] = v_of(passes)[j];
#pragma unroll
        for (int s = 0; s < kVectors; ++s) vectors.step[s][at] = step_own[s][j];
    }
    if (block != 0) return;
    for (int i = thread; i < static_cast<int>(sizeof(R) / sizeof(std::uint64_t)); i += kPersistentThreads) {
        reinterpret_cast<std::uint64_t*>(r)[i] = reinterpret_cast<const std::uint64_t*>(recurrence_bytes)[i];
    }
}

template <class Method, Crossing kCrossing>
constexpr auto* kKernel = &persistent_kernel<typename Method::Value, typename Method::Recurrence, kCrossing>;
template <class Method>
auto* kernel_of(Crossing crossing) {
    switch (crossing) {
        case Crossing::none: return kKernel<Method, Crossing::none>;
        case Crossing::gathered: return kKernel<Method, Crossing::gathered>;
        default: return kKernel<Method, Crossing::mailed>;
    }
}

}  // namespace

template <class T>
void prepare_persistent(const PersistentProblem<T>& problem) {
    const auto allow = [&](auto* kernel) {
        cudaFuncAttributes attributes;
        LSMR_CHECK(cudaFuncGetAttributes(&attributes, kernel));
        if (static_cast<int>(problem.shared_bytes) <= attributes.maxDynamicSharedSizeBytes) return;  // never lowered: others may need it
        LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(problem.shared_bytes)));
    };
    allow(kernel_of<Lsmr<T>>(problem.crossing));
    allow(kernel_of<Lsqr<T>>(problem.crossing));
}

template <class Method>
void launch_persistent(const PersistentProblem<typename Method::Value>& problem, const PersistentVectors<typename Method::Value>& vectors,
                       typename Method::Recurrence* r, int iterations, std::uint64_t tag, cudaStream_t stream) {
    PersistentProblem<typename Method::Value> of = problem;
    PersistentVectors<typename Method::Value> with = vectors;
    void* arguments[] = {&of, &with, &r, &iterations, &tag};
    LSMR_CHECK(cudaLaunchCooperativeKernel(kernel_of<Method>(problem.crossing), dim3(static_cast<unsigned>(problem.blocks)), dim3(kPersistentThreads),
                                           arguments, problem.shared_bytes, stream));
}

template void prepare_persistent(const PersistentProblem<double>&);
template void prepare_persistent(const PersistentProblem<float>&);
#define LSMR_INSTANTIATE(Method)                                                                                                            \
    template void launch_persistent<Method>(const PersistentProblem<Method::Value>&, const PersistentVectors<Method::Value>&, Method::Recurrence*, \
                                            int, std::uint64_t, cudaStream_t);
LSMR_INSTANTIATE(Lsmr<double>)
LSMR_INSTANTIATE(Lsmr<float>)
LSMR_INSTANTIATE(Lsqr<double>)
LSMR_INSTANTIATE(Lsqr<float>)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
