// One iteration, as solver/lsmr.hpp and solver/lsqr.hpp have it, with the update of x one stage later: beside the product with A^T of the next
// iteration, whose threads hold the same columns. Each block owns rows of A and of A^T, and keeps its parts of all vectors in shared memory;
// only u-hat and v-hat, which others gather, and sums travel through the L2 cache.
//
//   the first warp      waits for the sums of all blocks, adds them in a fixed order; alpha or beta and the coefficients that the product needs
//   the last warp       the recurrence, in every block with the same bits. The step's coefficients, for which it has the time of a whole
//                       product; then the estimates and stop tests, beside the step and the exchange that follows. So a stop is known
//                       when the next v-hat is: u-hat and v-hat are then put back, which is why they are kept twice
//   all others          the products of the block's rows, which need no scalar; then u-hat or v-hat, the step, and the sums of squares
//
// An exchange: a block writes its part of a vector, then its sum with a tag, in one store of 16 bytes that releases what it wrote; others read
// the sums of all blocks until all tags are there, which acquires. So vector and sum cross together, in one trip through L2.
// A block may not write the sums of an exchange before all have read those that they replace: each of u_sums, v_sums is read by all blocks
// before any can pass the other exchange; x_sums are read later, beside the next product, and alternate.
#include "memory/cuda_check.hpp"
#include "solver/cuda/persistent_kernel.hpp"

namespace lsmr::cuda {
namespace {

constexpr int kWarps = kPersistentThreads / 32;
constexpr int kFirstProductWarp = 1;
constexpr int kRecurrenceWarp = kWarps - 1;
static_assert((kRecurrenceWarp - kFirstProductWarp) * 32 == kProductThreads);

__device__ inline void publish(TaggedSum* to, double sum, std::uint64_t tag) {
    asm volatile("{ .reg .b128 both; mov.b128 both, {%1, %2}; st.release.gpu.global.b128 [%0], both; }" ::"l"(to),
                 "l"(__double_as_longlong(sum)), "l"(tag)
                 : "memory");
}
// Relaxed: several can be under way at once. acquire() follows when all have come.
__device__ inline TaggedSum observe(const TaggedSum* from) {
    long long sum;
    std::uint64_t tag;
    asm volatile("{ .reg .b128 both; ld.relaxed.gpu.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
                 : "=l"(sum), "=l"(tag)
                 : "l"(from)
                 : "memory");
    return {__longlong_as_double(sum), tag};
}

__device__ inline void acquire() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// All warps but the last.
__device__ inline void sync_workers() { asm volatile("bar.sync 1, %0;" ::"n"(kPersistentThreads - 32) : "memory"); }

__device__ inline double warp_sum(double value) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

// By one whole warp: makes the block's sum known. What the block's threads wrote before a barrier of the block becomes known with it.
__device__ inline void publish_all(TaggedSum* sums, double sum, std::uint64_t tag) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
    if (lane < kReplicas) publish(sums + lane * kMostPersistentBlocks + static_cast<int>(blockIdx.x), sum, tag);
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
                const TaggedSum part = observe(list + lane + 32 * i);
                parts[i] = part.sum;
                missing = missing || part.tag != tag;
            }
        }
    } while (missing);
    acquire();
    __syncwarp();
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kBlocksPerLane; ++i) sum += parts[i];
    return warp_sum(sum);
}
// The same, once for all: the block's sum goes out, the sum of all blocks comes back.
__device__ inline double exchange(TaggedSum* sums, double sum, std::uint64_t tag) {
    if (gridDim.x == 1) return sum;
    publish_all(sums, sum, tag);
    return collect(sums, tag);
}

// dots[row] = sum of values x[column] over the row, for all rows of the block. By the product threads, `thread` of them 0 .. kProductThreads - 1.
template <bool kResident, class T, class Column>
__device__ inline void row_products(const T* values, const Column* columns, const std::int32_t* offsets, int rows, int team, const T* x, T* dots,
                                    int thread) {
    constexpr int kBatch = 4;  // loads in flight
    const int lane = thread & (team - 1);
    const int teams = kProductThreads / team;
    for (int first = 0; first < rows; first += teams) {
        const int row = first + thread / team;
        T sum = 0;
        if (row < rows) {
            const int end = offsets[row + 1];
            for (int k = offsets[row] + lane; k < end; k += kBatch * team) {
                Column column[kBatch];
                T value[kBatch];
                T gathered[kBatch];
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    const int entry = k + i * team;
                    const bool exists = entry < end;
                    if constexpr (kResident) {
                        column[i] = exists ? columns[entry] : Column(0);
                        value[i] = exists ? values[entry] : T(0);
                    } else {
                        column[i] = exists ? __ldg(columns + entry) : Column(0);
                        value[i] = exists ? __ldg(values + entry) : T(0);
                    }
                }
                // x was written by other blocks in this kernel: not by __ldg. What does not exist is not multiplied: x may not be finite.
#pragma unroll
                for (int i = 0; i < kBatch; ++i) gathered[i] = k + i * team < end ? x[column[i]] : T(0);
#pragma unroll
                for (int i = 0; i < kBatch; ++i) sum += value[i] * gathered[i];
            }
        }
        for (int d = team / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (row < rows && lane == 0) dots[row] = sum;
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
    template <class Column>
    __device__ void multiply_as(const T* x, T* dots, int thread) const {
        if (side.resident) {
            row_products<true>(reinterpret_cast<const T*>(shared + side.values_at), reinterpret_cast<const Column*>(shared + side.columns_at),
                               offsets(), rows, side.team, x, dots, thread);
        } else {
            row_products<false>(side.values + first_entry, static_cast<const Column*>(side.columns) + first_entry, offsets(), rows, side.team, x,
                                dots, thread);
        }
    }
    // By the product threads.
    __device__ void multiply(const T* x, T* dots, int thread) const {
        if (side.narrow) multiply_as<std::uint16_t>(x, dots, thread);
        else multiply_as<std::int32_t>(x, dots, thread);
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
    bool failed;                  // the recurrence, before the step
    bool stopped;                 // the recurrence, by its tests
    double u2, v2;                // of the exchanges, for the recurrence
    T product, vector;            // coefficients: y <- product A x + vector y
    double sums[2][kWarps];
    IterationRecord unread;       // of all blocks but the first, which alone writes records
};

// The sum over the product warps of what each left; by one whole warp.
__device__ inline double sum_of_warps(const double* sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return warp_sum(lane >= kFirstProductWarp && lane < kRecurrenceWarp ? sums[lane] : 0.0);
}

template <class T, class R>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    persistent_kernel(const __grid_constant__ PersistentProblem<T> problem, const __grid_constant__ PersistentVectors<T> vectors, R* r,
                      int iterations, std::uint64_t tag) {
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

    const Slice<T> forward(problem.forward, shared);
    const Slice<T> adjoint(problem.adjoint, shared);
    T* u_own = reinterpret_cast<T*>(shared + problem.u_at[0]);       // u-hat of the last iteration that was completed
    T* u_next = reinterpret_cast<T*>(shared + problem.u_at[1]);      // of the one under way
    T* v_own = reinterpret_cast<T*>(shared + problem.v_at[0]);       // the same of v-hat
    T* v_next = reinterpret_cast<T*>(shared + problem.v_at[1]);
    T* dots = reinterpret_cast<T*>(shared + problem.dots_at);
    constexpr int kVectors = kStepVectors<R>;
    T* step_own[kVectors];
#pragma unroll
    for (int s = 0; s < kVectors; ++s) step_own[s] = reinterpret_cast<T*>(shared + problem.step_at[s]);
    forward.load(thread);
    adjoint.load(thread);
    for (int i = thread; i < forward.rows; i += kPersistentThreads) u_own[i] = vectors.u[forward.first_row + i];
    for (int j = thread; j < adjoint.rows; j += kPersistentThreads) {
        v_own[j] = vectors.v[adjoint.first_row + j];
#pragma unroll
        for (int s = 0; s < kVectors; ++s) step_own[s][j] = vectors.step[s][adjoint.first_row + j];
    }
    // The first warp's own view of the recurrence.
    double alpha = recurrence.alpha;
    double beta = recurrence.beta;
    const double sigma = recurrence.sigma;
    double u2 = 0;
    if (thread == 0) {
        handed.failed = handed.stopped = false;
        handed.product = recurrence.c1.narrow;
        handed.vector = recurrence.c2.narrow;
        if (block != 0) recurrence.ring = {&handed.unread, 1};
    }
    const auto swap = [](T*& p, T*& q) {
        T* const swapped = p;
        p = q;
        q = swapped;
    };
    bool x_is_last = false;  // the last update of x has been made
    const bool stopped_at_entry = recurrence.progress.stopped();

    // By one whole warp: ||x||^2 after the update of pass `pass`.
    const auto x_norm2 = [&](int pass) {
        const double* list = problem.x_sums + (pass & 1) * kMostPersistentBlocks;
        double x2 = 0;
        for (int b = lane; b < static_cast<int>(gridDim.x); b += 32) x2 += __ldcg(list + b);
        return warp_sum(x2);
    };
    int k = 0;
    for (;; ++k) {
        double v2 = 0;
        if (k > 0 && warp == 0) {
            v2 = gridDim.x == 1 ? handed.v2 : collect(problem.v_sums, tag + static_cast<std::uint64_t>(k));
            if (lane == 0) {
                handed.u2 = u2;
                if (gridDim.x > 1) handed.v2 = v2;
            }
        }
        __syncthreads();  // v-hat is known, ||x||^2, and whether the pass before was one too many
        if (handed.stopped) {
            swap(u_own, u_next);
            swap(v_own, v_next);
            x_is_last = true;
            break;
        }
        if (k > 0 && warp == kRecurrenceWarp) {
            const double x2 = x_norm2(k - 1);
            if (lane == 0) {
                const double forward_sums[2] = {handed.u2, x2};
                recurrence.finish(R::after_forward, forward_sums, kGoOn);
                const double adjoint_sums[1] = {handed.v2};
                recurrence.finish(R::adjoint_coefficients, adjoint_sums, kGoOn);
                if (k == iterations) recurrence.finish(R::adjoint_estimates, nullptr, kGoOn);
                handed.failed = recurrence.progress.stopped();
            }
            __syncwarp();
        }
        if (warp == kRecurrenceWarp && lane == 0) handed.step = own_step(&recurrence, v_own, step_own).load();
        if (k == iterations || (k == 0 && stopped_at_entry)) break;

        // Stage A: u-hat <- c1 A v-hat + c2 u-hat.
        if (warp != kRecurrenceWarp) {
            if (makes_products) {
                forward.multiply(vectors.v, dots, product_thread);
            } else if (k > 0 && lane == 0) {
                alpha = std::sqrt(v2);
                const ProductFactors factors = forward_factors(sigma, alpha, beta);
                handed.product = static_cast<T>(factors.product);
                handed.vector = static_cast<T>(factors.vector);
            }
            sync_workers();  // dots, coefficients
            if (makes_products) {
                const T c1 = handed.product;
                const T c2 = handed.vector;
                double squares = 0;
                for (int i = product_thread; i < forward.rows; i += kProductThreads) {
                    const T value = c2 != T(0) ? c1 * dots[i] + c2 * u_own[i] : c1 * dots[i];
                    u_next[i] = value;
                    vectors.u[forward.first_row + i] = value;
                    squares += static_cast<double>(value) * static_cast<double>(value);
                }
                squares = warp_sum(squares);
                if (lane == 0) handed.sums[0][warp] = squares;
            }
            sync_workers();  // the block's u-hat is written
            if (warp == 0) u2 = exchange(problem.u_sums, sum_of_warps(handed.sums[0]), tag + static_cast<std::uint64_t>(k));
            sync_workers();  // u-hat of all blocks is known

            // Stage B: v-hat <- d1 A^T u-hat + d2 v-hat, after the step of the iteration before.
            if (makes_products) {
                adjoint.multiply(vectors.u, dots, product_thread);
            } else if (lane == 0) {
                beta = std::sqrt(u2);
                const ProductFactors factors = adjoint_factors(sigma, alpha, beta);
                handed.product = static_cast<T>(factors.product);
                handed.vector = static_cast<T>(factors.vector);
            }
        }
        __syncthreads();  // dots, coefficients
        if (handed.failed) break;
        swap(u_own, u_next);
        swap(v_own, v_next);
        if (warp == kRecurrenceWarp) {
            if (k > 0 && lane == 0) {
                recurrence.finish(R::adjoint_estimates, nullptr, kGoOn);
                handed.stopped = recurrence.progress.stopped();
            }
            __syncwarp();
        } else {
            if (makes_products) {
                const T d1 = handed.product;
                const T d2 = handed.vector;
                const Step step = own_step(&recurrence, v_next, step_own);
                const auto coefficients = handed.step;
                double x_squares[1] = {0};
                double squares = 0;
                for (int j = product_thread; j < adjoint.rows; j += kProductThreads) {
                    step(j, coefficients, x_squares);
                    const T value = d2 != T(0) ? d1 * dots[j] + d2 * v_next[j] : d1 * dots[j];
                    v_own[j] = value;
                    vectors.v[adjoint.first_row + j] = value;
                    squares += static_cast<double>(value) * static_cast<double>(value);
                }
                squares = warp_sum(squares);
                const double x_sum = warp_sum(x_squares[0]);
                if (lane == 0) {
                    handed.sums[0][warp] = squares;
                    handed.sums[1][warp] = x_sum;
                }
            }
            sync_workers();  // the block's v-hat is written
            if (warp == 0) {
                const double v_part = sum_of_warps(handed.sums[0]);
                const double x_part = sum_of_warps(handed.sums[1]);
                if (lane == 0) {
                    __stcg(problem.x_sums + (k & 1) * kMostPersistentBlocks + block, x_part);
                    handed.v2 = v_part;  // of all blocks where this is the only one
                }
                if (gridDim.x > 1) publish_all(problem.v_sums, v_part, tag + static_cast<std::uint64_t>(k + 1));
                __syncwarp();
            }
        }
    }
    __syncthreads();  // the recurrence is that of the last iteration

    if (x_is_last) {
        if (warp == 0) {
            const double sums[2] = {0, x_norm2(k - 1)};
            if (lane == 0) recurrence.finish(R::after_forward, sums, kGoOn);
        }
        __syncthreads();
    }
    // Another stop: the last update of x, which the recurrence then knows of.
    if (recurrence.progress.stopped() && !recurrence.progress.finished) {
        double x_squares[1] = {0};
        const Step step = own_step(&recurrence, v_own, step_own);
        const auto coefficients = step.load();
        if (makes_products) {
            for (int j = product_thread; j < adjoint.rows; j += kProductThreads) step(j, coefficients, x_squares);
            const double x_sum = warp_sum(x_squares[0]);
            if (lane == 0) handed.sums[1][warp] = x_sum;
        }
        __syncthreads();
        if (warp == 0) {
            double x2 = sum_of_warps(handed.sums[1]);
            if (gridDim.x > 1) {
                const std::uint64_t closing = tag + static_cast<std::uint64_t>(k) + 1;
                publish_all(problem.closing_sums, x2, closing);
                if (block == 0) x2 = collect(problem.closing_sums, closing);
            }
            if (thread == 0) {
                const double sums[2] = {0, x2};
                recurrence.finish(R::after_forward, sums, kGoOn);
            }
        }
        __syncthreads();
    }
    for (int i = thread; i < forward.rows; i += kPersistentThreads) vectors.u[forward.first_row + i] = u_own[i];
    for (int j = thread; j < adjoint.rows; j += kPersistentThreads) {
        vectors.v[adjoint.first_row + j] = v_own[j];
#pragma unroll
        for (int s = 0; s < kVectors; ++s) vectors.step[s][adjoint.first_row + j] = step_own[s][j];
    }
    if (block != 0) return;
    for (int i = thread; i < static_cast<int>(sizeof(R) / sizeof(std::uint64_t)); i += kPersistentThreads) {
        reinterpret_cast<std::uint64_t*>(r)[i] = reinterpret_cast<const std::uint64_t*>(recurrence_bytes)[i];
    }
}

template <class Method>
constexpr auto* kKernel = &persistent_kernel<typename Method::Value, typename Method::Recurrence>;

}  // namespace

template <class T>
void prepare_persistent(const PersistentProblem<T>& problem) {
    const auto allow = [&](auto* kernel) {
        cudaFuncAttributes attributes;
        LSMR_CHECK(cudaFuncGetAttributes(&attributes, kernel));
        if (static_cast<int>(problem.shared_bytes) <= attributes.maxDynamicSharedSizeBytes) return;  // never lowered: others may need it
        LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(problem.shared_bytes)));
    };
    allow(kKernel<Lsmr<T>>);
    allow(kKernel<Lsqr<T>>);
}

template <class Method>
void launch_persistent(const PersistentProblem<typename Method::Value>& problem, const PersistentVectors<typename Method::Value>& vectors,
                       typename Method::Recurrence* r, int iterations, std::uint64_t tag, cudaStream_t stream) {
    PersistentProblem<typename Method::Value> of = problem;
    PersistentVectors<typename Method::Value> with = vectors;
    void* arguments[] = {&of, &with, &r, &iterations, &tag};
    LSMR_CHECK(cudaLaunchCooperativeKernel(kKernel<Method>, dim3(static_cast<unsigned>(problem.blocks)), dim3(kPersistentThreads), arguments,
                                           problem.shared_bytes, stream));
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
