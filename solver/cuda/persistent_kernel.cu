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
// A single block gathers from its own shared memory; so do the blocks of a cluster, into which the others write (persistent_cluster.cuh). Where values
// are mailed (solver/cuda/mail.hpp, persistent_mail.cuh) no one gathers from L2: the products of stage A begin with v-hat as it comes, those of stage B
// with what the rows' owners made of u-hat; their tag is a bit. Where a block has few of them (persistent_few.cuh), a thread updates u-hat and v-hat
// where it has added their products itself, and the first warp adds the squares.
#include "solver/cuda/persistent_block.cuh"
#include "solver/cuda/persistent_cluster.cuh"
#include "solver/cuda/persistent_few.cuh"
#include "solver/cuda/persistent_kernel.hpp"
#include "solver/cuda/persistent_mail.cuh"
#include "solver/cuda/persistent_slice.cuh"

namespace lsmr::cuda {
namespace {

// Barriers of a block. Who arrives goes on at once, who syncs waits for all. The recurrence may arrive for a pass while the pass before is
// still at its first product: that barrier has two places in turn.
enum Barrier {
    u_known = 1,    // coefficients of u-hat, products with A, and whether the pass before was one too many: products and the first warp sync
    u_written = 3,  // the block's u-hat: products arrive, the first warp syncs
    v_known,        // the same of v-hat, A^T and the step's coefficients, and whether the recurrence has failed
    v_written,
    x_written,   // the squares of x: products arrive, the first warp syncs, or the recurrence (kFirstWarpAddsX)
    x_known,     // ||x|| of the pass before: the first warp arrives, the recurrence syncs
    sums_known,  // ||u-hat||, ||v-hat|| of the pass before: the first warp arrives, the recurrence syncs
    products,    // what the product warps wrote, where they read it themselves
};
constexpr int kAll = kPersistentThreads;
constexpr int kWorkers = kPersistentThreads - 32;  // all but the recurrence
constexpr int kTwoWarps = 64;
__device__ inline int u_known_in(int pass) { return u_known + (pass & 1); }

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
    double u2, v2, x2;                   // of the exchanges, for the recurrence
    T u_product, u_vector;               // coefficients: u-hat <- product A v-hat + vector u-hat
    T v_product, v_vector;
    PartialSums u_squares, v_squares, x_squares;
    IterationRecord unread;              // of all blocks but the first, which alone writes records
};

// kFew: values are mailed, and no block has more than PersistentMail::few says.
template <class T, class R, Crossing kCrossing, bool kFew = false>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    persistent_kernel(const __grid_constant__ PersistentProblem<T> problem, const __grid_constant__ PersistentVectors<T> vectors, R* r,
                      Progress* progress, int iterations, std::uint64_t tag) {
    constexpr bool kAlone = kCrossing == Crossing::none;
    constexpr bool kClustered = kCrossing == Crossing::clustered;
    constexpr bool kGathered = kCrossing == Crossing::gathered;
    constexpr bool kMailed = kCrossing == Crossing::mailed;
    extern __shared__ __align__(16) unsigned char shared[];
    using Step = decltype(own_step(static_cast<const R*>(nullptr), static_cast<const T*>(nullptr), static_cast<T* const*>(nullptr)));
    __shared__ InShared<R> kept;
    __shared__ InShared<Handed<T, Step>> between_warps;
    R& recurrence = kept.get();
    Handed<T, Step>& handed = between_warps.get();

    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int product_thread = thread - 32 * kFirstProductWarp;
    const bool makes_products = warp >= kFirstProductWarp && warp < kRecurrenceWarp;
    const int block = static_cast<int>(blockIdx.x);

    copy_words(&recurrence, r);
    __syncthreads();
    if (recurrence.progress.finished) return;

    using Part = std::conditional_t<kMailed, MailPart<T>, std::conditional_t<kClustered, ClusterPart<T>, SlicePart<T>>>;
    const Part part = [&] {
        if constexpr (kMailed) return MailPart<T>(problem.mail, shared);
        else if constexpr (kClustered) return ClusterPart<T>(problem, shared);
        else return SlicePart<T>(problem, shared);
    }();
    const auto& forward = part.forward;
    const auto& adjoint = part.adjoint;
    // After p passes u-hat and v-hat lie in places p mod 2; in the others, those of the pass before.
    const auto u_of = [&](int passes) { return reinterpret_cast<T*>(shared + ((passes & 1) == 0 ? problem.u_at[0] : problem.u_at[1])); };
    const auto v_of = [&](int passes) { return reinterpret_cast<T*>(shared + ((passes & 1) == 0 ? problem.v_at[0] : problem.v_at[1])); };
    // Products with rows of A; those with A^T lie where v-hat will, those of mailed values where all their parts lay.
    T* const dots = reinterpret_cast<T*>(shared + (kMailed ? problem.mail.products_at : problem.dots_at));
    T* const col_products = reinterpret_cast<T*>(shared + problem.cluster.products_at);
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
    if (kMailed && thread == 0) dots[problem.mail.zero] = 0;
    if (thread == 0) {
        handed.failed = handed.stopped[0] = handed.stopped[1] = false;
        handed.passes = 0;
        handed.u_product = recurrence.c1.narrow;
        handed.u_vector = recurrence.c2.narrow;
        if (block != 0) recurrence.ring = {&handed.unread, 1};
    }
    __syncthreads();
    if constexpr (kClustered) cluster_wait();

    // ||x||^2 after the update of pass `pass`, by one whole warp: this block's part once it is there, and that of all blocks. By the first warp where
    // sums do not cross L2, for there it has the time, before the next u-hat is made; else by the recurrence.
    constexpr bool kFirstWarpAddsX = kAlone || kClustered;
    const auto x_list = [&](int pass) { return problem.x_sums + (pass & 1) * kReplicas * kMostPersistentBlocks; };
    const auto own_x_norm2 = [&](int pass) {
        sync(x_written, kWorkers);
        const double x2 = handed.x_squares.sum();
        if constexpr (kClustered) part.publish(x_sum + (pass & 1), x2);
        else if constexpr (!kAlone) publish(x_list(pass), x2, tag + static_cast<std::uint64_t>(pass));
        return x2;
    };
    const auto x_norm2 = [&](int pass, double own) {
        if constexpr (kClustered) return part.collect(x_sum + (pass & 1), pass / 2);
        else return kAlone ? own : collect(x_list(pass), tag + static_cast<std::uint64_t>(pass));
    };

    if (recurrence.progress.stopped() || iterations == 0) {
        // Nothing but the last update of x.
    } else if (makes_products) {
        [[maybe_unused]] const auto few = [&] {
            if constexpr (kFew) return FewMail<T>(part, product_thread);
            else return 0;
        }();
        if constexpr (kFew) few.send_columns(v_of(0));
        else if constexpr (kMailed) part.send_columns(v_of(0), product_thread);
        if constexpr (kClustered) part.v.send(product_thread, iterations > 0, [&](int j) { return v_of(0)[j]; }, [](int, T) {});
        for (int k = 0; k < iterations; ++k) {
            const std::uint64_t pass_tag = tag + static_cast<std::uint64_t>(k);
            [[maybe_unused]] T own_dot = 0;
            // Stage A: u-hat <- c1 A v-hat + c2 u-hat.
            if constexpr (kAlone) {
                own_products(forward, v_of(k), dots, product_thread);
            } else if constexpr (kClustered) {
                part.v.receive(k, product_thread);
                own_products(forward, part.v.values, dots, product_thread);
            } else if constexpr (kGathered) {
                forward.multiply(CrossingVector<T>{adjoint.received(), pass_tag}, dots, product_thread);
            } else if constexpr (kFew) {
                few.receive_columns();
                sync(products, kProductThreads);
                own_dot = few.row.sum(dots);
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
            const auto new_u = [&](int i, T dot) { return c1 * dot + c2 * (c2 != T(0) ? u[i] : T(0)); };
            double squares = 0;
            const auto keep_u = [&](int i, T value) {
                u_next[i] = value;
                squares += static_cast<double>(value) * static_cast<double>(value);
            };
            if constexpr (kFew) {
                if (const int i = few.row.own(); i >= 0) keep_u(i, new_u(i, own_dot));
                sync(u_written, kWorkers);
                few.send_rows(u_next);
            } else {
                if constexpr (kClustered) {
                    part.u.send(product_thread, true, [&](int i) { return new_u(i, dots[i]); }, keep_u);
                } else {
#pragma unroll 1
                    for (int i = product_thread; i < forward.rows; i += kProductThreads) {
                        const T value = new_u(i, dots[i]);
                        if constexpr (kGathered) forward.send(i, value, pass_tag);
                        keep_u(i, value);
                    }
                }
                handed.u_squares.put(product_thread, squares);
                arrive(u_written, kWorkers);
                if (kAlone || kMailed) sync(products, kProductThreads);
                if constexpr (kMailed) part.send_rows(u_next, product_thread);
            }

            // Stage B: v-hat <- d1 A^T u-hat + d2 v-hat, and the step of the iteration before.
            const T* const v = v_of(k);
            T* const v_next = v_of(k + 1);
            const T* const v_dots = kMailed ? dots : kClustered ? col_products : v_next;
            if constexpr (kAlone) {
                own_products(adjoint, u_next, v_next, product_thread);
            } else if constexpr (kClustered) {
                part.u.receive(k, product_thread);
                own_products(adjoint, part.u.values, col_products, product_thread);
            } else if constexpr (kGathered) {
                adjoint.multiply(CrossingVector<T>{forward.received(), pass_tag}, v_next, product_thread);
            } else if constexpr (kFew) {
                few.receive_rows();
                sync(products, kProductThreads);
                own_dot = few.column.sum(dots);
            } else {
                part.receive_rows(product_thread);
                sync(products, kProductThreads);
                part.add(adjoint, product_thread);
            }
            sync(v_known, kAll);
            if (handed.failed) break;
            const T d1 = handed.v_product;
            const T d2 = handed.v_vector;
            const auto new_v = [&](int j, T dot) { return d1 * dot + d2 * (d2 != T(0) ? v[j] : T(0)); };
            double x_squares[1] = {0};
            squares = 0;
            const auto keep_v = [&](int j, T value) {
                v_next[j] = value;
                squares += static_cast<double>(value) * static_cast<double>(value);
            };
            if constexpr (kFew) {
                if (const int j = few.column.own(); j >= 0) keep_v(j, mailable(new_v(j, own_dot)));
                sync(v_written, kWorkers);
                if (k + 1 < iterations) few.send_columns(v_next);
            } else {
                if constexpr (kClustered) {
                    part.v.send(product_thread, k + 1 < iterations, [&](int j) { return new_v(j, v_dots[j]); }, keep_v);
                } else {
#pragma unroll 1
                    for (int j = product_thread; j < adjoint.rows; j += kProductThreads) {
                        T value = new_v(j, v_dots[j]);
                        if constexpr (kGathered) adjoint.send(j, value, pass_tag + 1);
                        if constexpr (kMailed) value = mailable(value);
                        keep_v(j, value);
                    }
                }
                handed.v_squares.put(product_thread, squares);
                arrive(v_written, kWorkers);
                if constexpr (kMailed) {
                    sync(products, kProductThreads);
                    if (k + 1 < iterations) part.send_columns(v_next, product_thread);
                }
            }
            const Step step = own_step(&recurrence, v, step_own);
            const auto coefficients = handed.step;
#pragma unroll 1
            for (int j = product_thread; j < adjoint.rows; j += kProductThreads) step(j, coefficients, x_squares);
            handed.x_squares.put(product_thread, x_squares[0]);
            arrive(x_written, kWorkers);
            if (kAlone) sync(products, kProductThreads);
        }
    } else if (warp == 0) {
        // Its own view of the recurrence.
        const double sigma = recurrence.sigma;
        Length alpha{recurrence.alpha, recurrence.inverse_alpha};
        double own_x2 = 0;
        const auto hand_x_norm2 = [&](int pass) {
            const double x2 = x_norm2(pass, own_x2);
            if (lane == 0) handed.x2 = x2;
            __syncwarp();
            arrive(x_known, kTwoWarps);
        };
        int k = 0;
        for (; k < iterations; ++k) {
            const std::uint64_t pass_tag = tag + static_cast<std::uint64_t>(k);
            if (kFirstWarpAddsX && k > 0) own_x2 = own_x_norm2(k - 1);
            sync(u_known_in(k), kAll);
            if (handed.stopped[k & 1]) break;
            if (kFirstWarpAddsX && k > 0) hand_x_norm2(k - 1);
            sync(u_written, kWorkers);
            double u2 = kFew ? squares_of(u_of(k + 1), forward.rows) : handed.u_squares.sum();
            if constexpr (kClustered) {
                part.publish(u_sum, u2);
                u2 = part.collect(u_sum, k);
            } else if constexpr (!kAlone) {
                publish(problem.u_sums, u2, pass_tag);
                let_sums_cross(kFew ? kCrossingCyclesBeside : kCrossingCycles);
                u2 = collect(problem.u_sums, pass_tag);
            }
            const Length beta = length_of(u2);
            const ProductFactors of_v = adjoint_factors(sigma, alpha, beta);
            if (lane == 0) {
                handed.v_product = static_cast<T>(of_v.product);
                handed.v_vector = static_cast<T>(of_v.vector);
            }
            sync(v_known, kAll);
            if (handed.failed) break;
            sync(v_written, kWorkers);
            double v2 = kFew ? squares_of(v_of(k + 1), adjoint.rows) : handed.v_squares.sum();
            if constexpr (kClustered) {
                part.publish(v_sum, v2);
                v2 = part.collect(v_sum, k);
            } else if constexpr (!kAlone) {
                publish(problem.v_sums, v2, pass_tag + 1);
                let_sums_cross(kFew ? kCrossingCyclesBeside : kCrossingCycles);
                v2 = collect(problem.v_sums, pass_tag + 1);
            }
            if (lane == 0) {
                handed.u2 = u2;
                handed.v2 = v2;
            }
            arrive(sums_known, kTwoWarps);
            alpha = length_of(v2);
            const ProductFactors of_u = forward_factors(sigma, alpha, beta);
            if (lane == 0) {
                handed.u_product = static_cast<T>(of_u.product);
                handed.u_vector = static_cast<T>(of_u.vector);
            }
        }
        if (kFirstWarpAddsX && k > 0 && !handed.failed) {
            if (k == iterations) own_x2 = own_x_norm2(k - 1);
            hand_x_norm2(k - 1);
        }
    } else {
        // Pass k: the recurrence of the pass before, whose sums are known; that of x last.
        // (Where values are mailed no register is left.)
        R& state = kMailed ? recurrence : held(recurrence);
        auto& given = kMailed ? handed : held(handed);
        const auto up_to_coefficients = [&] {
            sync(sums_known, kTwoWarps);
            if (lane == 0) {
                const double forward_sums[1] = {given.u2};
                state.finish(R::forward_norm, forward_sums, kGoOn);
                const double adjoint_sums[1] = {given.v2};
                state.finish(R::adjoint_coefficients, adjoint_sums, kGoOn);
            }
            __syncwarp();
        };
        double own_x2 = 0;
        const auto all_x_norm2 = [&](int pass) {
            if constexpr (kFirstWarpAddsX) {
                sync(x_known, kTwoWarps);
                return given.x2;
            } else {
                return x_norm2(pass, own_x2);
            }
        };
        const auto the_rest = [&](int k) {
            const double x2[1] = {all_x_norm2(k - 1)};
            if (lane == 0) {
                state.finish(R::step_made, x2, kGoOn);
                state.finish(R::adjoint_estimates, nullptr, kGoOn);
            }
            __syncwarp();
        };
        arrive(u_known_in(0), kAll);
        int k = 0;
        for (; k < iterations; ++k) {
            if (k > 0) up_to_coefficients();
            const bool failed = state.progress.stopped();
            if (lane == 0) {
                given.failed = failed;
                given.step = own_step(&state, v_of(k), step_own).load();
            }
            __syncwarp();
            arrive(v_known, kAll);
            if (k > 0) the_rest(k);
            if (failed) break;
            if (lane == 0) given.stopped[(k + 1) & 1] = state.progress.stopped();
            __syncwarp();
            if (k + 1 < iterations) arrive(u_known_in(k + 1), kAll);
            if constexpr (!kFirstWarpAddsX) own_x2 = own_x_norm2(k);
            if (state.progress.stopped()) {
                // The pass is one too many, but for its step.
                sync(sums_known, kTwoWarps);
                const double sums[2] = {0, all_x_norm2(k)};
                if (lane == 0) state.finish(R::after_forward, sums, kGoOn);
                break;
            }
        }
        if (k == iterations) {
            up_to_coefficients();
            the_rest(k);
        }
        if (lane == 0) given.passes = k;
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
            handed.x_squares.put(product_thread, x_squares[0]);
        }
        __syncthreads();
        if (warp == 0) {
            double x2 = handed.x_squares.sum();
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
    if constexpr (kClustered) leave_cluster();
    leave(recurrence, r, progress);
}

template <class R, class T>
const void* kernel_of(const PersistentProblem<T>& problem) {
    const auto kernel = [&] {
        switch (problem.crossing) {
            case Crossing::none: return &persistent_kernel<T, R, Crossing::none>;
            case Crossing::clustered: return &persistent_kernel<T, R, Crossing::clustered>;
            case Crossing::gathered: return &persistent_kernel<T, R, Crossing::gathered>;
            default: return problem.mail.few ? &persistent_kernel<T, R, Crossing::mailed, true> : &persistent_kernel<T, R, Crossing::mailed>;
        }
    }();
    return reinterpret_cast<const void*>(kernel);
}

}  // namespace

int most_cluster_blocks(std::int64_t shared_bytes) {
    PersistentProblem<double> clustered;
    clustered.crossing = Crossing::clustered;
    return most_cluster_blocks(kernel_of<LsmrRecurrence<double>>(clustered), static_cast<int>(shared_bytes));
}

template <class T>
void prepare_persistent(const PersistentProblem<T>& problem) {
    for (const void* kernel : {kernel_of<LsmrRecurrence<T>>(problem), kernel_of<LsqrRecurrence<T>>(problem)}) {
        allow_shared(kernel, static_cast<int>(problem.shared_bytes));
        if (problem.crossing == Crossing::clustered) allow_cluster(kernel);
    }
}
template <class T>
void launch_persistent(const PersistentProblem<T>& problem, const PersistentVectors<T>& vectors, LsmrRecurrence<T>* r, Progress* progress, int iterations,
                       std::uint64_t tag, cudaStream_t stream) {
    launch(kernel_of<LsmrRecurrence<T>>(problem), problem, vectors, r, progress, iterations, tag, stream);
}
template <class T>
void launch_persistent(const PersistentProblem<T>& problem, const PersistentVectors<T>& vectors, LsqrRecurrence<T>* r, Progress* progress, int iterations,
                       std::uint64_t tag, cudaStream_t stream) {
    launch(kernel_of<LsqrRecurrence<T>>(problem), problem, vectors, r, progress, iterations, tag, stream);
}

#define LSMR_LAUNCH(T, R) \
    template void launch_persistent(const PersistentProblem<T>&, const PersistentVectors<T>&, R<T>*, Progress*, int, std::uint64_t, cudaStream_t);
#define LSMR_INSTANTIATE(T)                                        \
    template void prepare_persistent(const PersistentProblem<T>&); \
    LSMR_LAUNCH(T, LsmrRecurrence)                                 \
    LSMR_LAUNCH(T, LsqrRecurrence)
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE
#undef LSMR_LAUNCH

}  // namespace lsmr::cuda
