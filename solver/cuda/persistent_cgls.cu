// One iteration of CGLS, as solver/cgls.hpp has it, in a kernel that stays. Blocks, exchanges and tags are those of persistent_kernel.cu; but p
// and r cross only when their norms' quotients are known, for p is not sent before the direction, nor r before the step: two exchanges of values
// and two of sums follow one another, where LSMR has them side by side. What nothing waits for, ||r||, ||x|| and the stop tests, runs beside the
// next product with A; so a stop is known before the step that would be one too many.
//
//   the first warp      adds the sums of all blocks in a fixed order, and runs the recurrence, in every block with the same bits
//   the last warp       nothing
//   all others          p, products with A, r and x, products with A^T, s, of the block's rows and columns
//
// A sum's place, and a value's, is written again only when all have read it: each block adds to the sum of q only after reading p, and to that of s
// after reading r and all sums before; who writes the next holds that sum of all blocks.
#include "solver/cgls.hpp"
#include "solver/cuda/persistent_block.cuh"
#include "solver/cuda/persistent_cluster.cuh"
#include "solver/cuda/persistent_kernel.hpp"
#include "solver/cuda/persistent_mail.cuh"
#include "solver/cuda/persistent_slice.cuh"

namespace lsmr::cuda {
namespace {

enum Barrier {
    direction_known = 1,  // the first warp arrives, products sync
    p_written,            // the squares of p: products arrive, the first warp syncs
    q_written,            // of q
    step_known,           // and whether the solve has stopped: the first warp arrives, products sync
    updated,              // the squares of r and x: products arrive, the first warp syncs
    s_written,            // of s
    products,             // what the product warps wrote, where they read it themselves
};
constexpr int kBoth = kProductThreads + 32;  // the products and the first warp

template <class T>
struct Handed {
    typename CglsDirection<T>::Coefficients direction;
    T step;
    bool stopped;
    PartialSums p_squares, q_squares, r_squares, x_squares, from_center_squares, s_squares;
    IterationRecord unread;  // of all blocks but the first, which alone writes records
};

template <class T, Crossing kCrossing>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    persistent_cgls_kernel(const __grid_constant__ PersistentProblem<T> problem, const __grid_constant__ PersistentVectors<T> vectors,
                           CglsRecurrence<T>* global_recurrence, Progress* progress, int iterations, std::uint64_t tag) {
    using R = CglsRecurrence<T>;
    constexpr bool kAlone = kCrossing == Crossing::none;
    constexpr bool kClustered = kCrossing == Crossing::clustered;
    constexpr bool kGathered = kCrossing == Crossing::gathered;
    constexpr bool kMailed = kCrossing == Crossing::mailed;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ InShared<R> kept;
    __shared__ InShared<Handed<T>> between_warps;
    R& recurrence = kept.get();
    Handed<T>& handed = between_warps.get();

    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int product_thread = thread - 32 * kFirstProductWarp;
    const bool makes_products = warp >= kFirstProductWarp && warp < kRecurrenceWarp;

    copy_words(&recurrence, global_recurrence);
    __syncthreads();
    if (recurrence.progress.finished || iterations == 0) return;

    using Part = std::conditional_t<kMailed, MailPart<T>, std::conditional_t<kClustered, ClusterPart<T>, SlicePart<T>>>;
    const Part part = [&] {
        if constexpr (kMailed) return MailPart<T>(problem.mail, shared);
        else if constexpr (kClustered) return ClusterPart<T>(problem, shared);
        else return SlicePart<T>(problem, shared);
    }();
    const auto& forward = part.forward;
    const auto& adjoint = part.adjoint;
    const auto in_shared = [&](std::uint32_t at) { return reinterpret_cast<T*>(shared + at); };
    T* const r = in_shared(problem.u_at[0]);
    T* const q = in_shared(problem.u_at[1]);
    T* const p = in_shared(problem.v_at[0]);
    T* const s = in_shared(problem.step_at[0]);
    T* const x = in_shared(problem.step_at[1]);
    T* const center = vectors.center != nullptr ? in_shared(problem.step_at[2]) : nullptr;
    // Products of the block's rows of A and of A^T; those of mailed values lie where all their parts lay.
    T* const row_dots = kMailed ? in_shared(problem.mail.products_at) : q;
    T* const col_dots = kMailed ? row_dots : in_shared(problem.v_at[1]);
    for (int i = thread; i < forward.rows; i += kPersistentThreads) r[i] = vectors.u[forward.index(i)];
    for (int j = thread; j < adjoint.rows; j += kPersistentThreads) {
        const int at = adjoint.index(j);
        p[j] = vectors.v[at];
        s[j] = vectors.step[0][at];
        x[j] = vectors.step[1][at];
        if (center != nullptr) center[j] = vectors.center[at];
    }
    part.load(thread);
    if (thread == 0) {
        handed.direction = CglsDirection<T>{&recurrence, s, p}.load();
        handed.stopped = false;
        if (blockIdx.x != 0) recurrence.ring = {&handed.unread, 1};
    }
    __syncthreads();
    if constexpr (kClustered) cluster_wait();

    if (makes_products) {
        // Constants are read where they are used: held over the products they would take registers from these.
        const CglsDirection<T> turn{&recurrence, s, p};
        const CglsUpdateX<T> update_x{&recurrence, p, center, nullptr, x, s};
        const CglsUpdateR<T> update_r{&recurrence, q, r};
        for (int k = 0; k < iterations; ++k) {
            const std::uint64_t pass_tag = tag + static_cast<std::uint64_t>(k);
            // p <- s + direction p
            if (k > 0) sync(direction_known, kBoth);
            const auto direction = handed.direction;
            double p_squares[1] = {0};
            for (int j = product_thread; j < adjoint.rows; j += kProductThreads) {
                turn(j, direction, p_squares);
                if constexpr (kMailed) p[j] = mailable(p[j]);
                if constexpr (kGathered) adjoint.send(j, p[j], pass_tag);
            }
            if constexpr (!kGathered) sync(products, kProductThreads);
            if constexpr (kMailed) part.send_columns(p, product_thread);
            if constexpr (kClustered) part.v.send(product_thread, true, [&](int j) { return p[j]; }, [](int, T) {});
            handed.p_squares.put(product_thread, p_squares[0]);
            arrive(p_written, kBoth);

            // q <- A p
            if constexpr (kAlone) {
                own_products(forward, p, row_dots, product_thread);
            } else if constexpr (kClustered) {
                part.v.receive(k, product_thread);
                own_products(forward, part.v.values, row_dots, product_thread);
            } else if constexpr (kGathered) {
                forward.multiply(CrossingVector<T>{adjoint.received(), pass_tag}, row_dots, product_thread);
            } else {
                part.receive_columns(product_thread);
                sync(products, kProductThreads);
                part.add(forward, product_thread);
            }
            sync(products, kProductThreads);
            const T factor_of_q = recurrence.forward.narrow;
            double q_squares = 0;
#pragma unroll 1
            for (int i = product_thread; i < forward.rows; i += kProductThreads) {
                const T value = factor_of_q * row_dots[i];
                q[i] = value;
                q_squares += static_cast<double>(value) * static_cast<double>(value);
            }
            handed.q_squares.put(product_thread, q_squares);
            arrive(q_written, kBoth);

            // r <- r - step q, x <- x + step p
            sync(step_known, kBoth);
            if (handed.stopped) {
                if constexpr (kMailed) part.clear(product_thread);
                break;
            }
            const T step = handed.step;
            double r_squares[1] = {0};
#pragma unroll 1
            for (int i = product_thread; i < forward.rows; i += kProductThreads) {
                update_r(i, {step}, r_squares);
                if constexpr (kGathered) forward.send(i, r[i], pass_tag);
            }
            handed.r_squares.put(product_thread, r_squares[0]);
            if constexpr (!kGathered) sync(products, kProductThreads);
            if constexpr (kMailed) part.send_rows(r, product_thread);
            if constexpr (kClustered) part.u.send(product_thread, true, [&](int i) { return r[i]; }, [](int, T) {});
            const double lambda2 = square(recurrence.lambda);
            double x_squares[2] = {0, 0};
#pragma unroll 1
            for (int j = product_thread; j < adjoint.rows; j += kProductThreads) update_x(j, {step, lambda2}, x_squares);
            handed.x_squares.put(product_thread, x_squares[0]);
            handed.from_center_squares.put(product_thread, x_squares[1]);
            arrive(updated, kBoth);

            // s <- A^T r - lambda^2 (x - c), which s holds
            if constexpr (kAlone) {
                own_products(adjoint, r, col_dots, product_thread);
            } else if constexpr (kClustered) {
                part.u.receive(k, product_thread);
                own_products(adjoint, part.u.values, col_dots, product_thread);
            } else if constexpr (kGathered) {
                adjoint.multiply(CrossingVector<T>{forward.received(), pass_tag}, col_dots, product_thread);
            } else {
                part.receive_rows(product_thread);
                sync(products, kProductThreads);
                part.add(adjoint, product_thread);
            }
            sync(products, kProductThreads);
            const T factor_of_s = recurrence.adjoint.narrow;
            const T shrink = recurrence.shrink.narrow;
            double s_squares = 0;
#pragma unroll 1
            for (int j = product_thread; j < adjoint.rows; j += kProductThreads) {
                const T value = shrink != T(0) ? factor_of_s * col_dots[j] + shrink * s[j] : factor_of_s * col_dots[j];
                s[j] = value;
                s_squares += static_cast<double>(value) * static_cast<double>(value);
            }
            handed.s_squares.put(product_thread, s_squares);
            arrive(s_written, kBoth);
        }
    } else if (warp == 0) {
        // Makes the block's sum known, and adds those of all blocks.
        constexpr int p_sum = x_sum;
        constexpr int from_center_sum = x_sum + 1;
        const auto list = [&](int which) {
            switch (which) {
                case u_sum: return problem.u_sums;
                case v_sum: return problem.v_sums;
                case r_sum: return problem.r_sums;
                case closing_sum: return problem.closing_sums;
                default: return problem.x_sums + (which - x_sum) * kReplicas * kMostPersistentBlocks;
            }
        };
        for (int k = 0; k < iterations; ++k) {
            const std::uint64_t pass_tag = tag + static_cast<std::uint64_t>(k);
            const auto announce = [&](int which, double sum) {
                if constexpr (kClustered) part.publish(which, sum);
                else if constexpr (!kAlone) publish(list(which), sum, pass_tag);
            };
            const auto total = [&](int which, double sum) {
                if constexpr (kClustered) return part.collect(which, k);
                else return kAlone ? sum : collect(list(which), pass_tag);
            };
            sync(p_written, kBoth);
            double p2 = handed.p_squares.sum();
            announce(p_sum, p2);
            sync(q_written, kBoth);
            double q2 = handed.q_squares.sum();
            announce(u_sum, q2);
            if constexpr (kGathered || kMailed) let_sums_cross();
            q2 = total(u_sum, q2);
            p2 = total(p_sum, p2);
            if (lane == 0) {
                const double sums[2] = {q2, p2};
                recurrence.finish(R::after_forward, sums, kGoOn);
                handed.step = recurrence.step;
                handed.stopped = recurrence.progress.stopped();
            }
            __syncwarp();
            arrive(step_known, kBoth);
            if (handed.stopped) break;
            sync(updated, kBoth);
            double r2 = handed.r_squares.sum();
            double x2 = handed.x_squares.sum();
            double from_center2 = handed.from_center_squares.sum();
            announce(r_sum, r2);
            announce(closing_sum, x2);
            announce(from_center_sum, from_center2);
            sync(s_written, kBoth);
            double s2 = handed.s_squares.sum();
            announce(v_sum, s2);
            if constexpr (kGathered || kMailed) let_sums_cross();
            s2 = total(v_sum, s2);
            if (k + 1 < iterations) {
                // As the recurrence will have it.
                if (lane == 0) handed.direction = {static_cast<T>(s2 / recurrence.gamma), true};
                __syncwarp();
                arrive(direction_known, kBoth);
            }
            r2 = total(r_sum, r2);
            x2 = total(closing_sum, x2);
            from_center2 = total(from_center_sum, from_center2);
            if (lane == 0) {
                const double sums[4] = {s2, r2, x2, from_center2};
                recurrence.finish(R::after_adjoint, sums, kGoOn);
            }
            __syncwarp();
        }
    }
    __syncthreads();

    for (int i = thread; i < forward.rows; i += kPersistentThreads) vectors.u[forward.index(i)] = r[i];
    for (int j = thread; j < adjoint.rows; j += kPersistentThreads) {
        const int at = adjoint.index(j);
        vectors.v[at] = p[j];
        vectors.step[0][at] = s[j];
        vectors.step[1][at] = x[j];
    }
    if constexpr (kClustered) leave_cluster();
    leave(recurrence, global_recurrence, progress);
}

template <class T>
auto* kernel_of(Crossing crossing) {
    switch (crossing) {
        case Crossing::none: return &persistent_cgls_kernel<T, Crossing::none>;
        case Crossing::clustered: return &persistent_cgls_kernel<T, Crossing::clustered>;
        case Crossing::gathered: return &persistent_cgls_kernel<T, Crossing::gathered>;
        default: return &persistent_cgls_kernel<T, Crossing::mailed>;
    }
}

}  // namespace

template <class T>
void prepare_persistent_cgls(const PersistentProblem<T>& problem) {
    const auto kernel = reinterpret_cast<const void*>(kernel_of<T>(problem.crossing));
    allow_shared(kernel, static_cast<int>(problem.shared_bytes));
    if (problem.crossing == Crossing::clustered) allow_cluster(kernel);
}
template <class T>
void launch_persistent(const PersistentProblem<T>& problem, const PersistentVectors<T>& vectors, CglsRecurrence<T>* r, Progress* progress, int iterations,
                       std::uint64_t tag, cudaStream_t stream) {
    launch(reinterpret_cast<const void*>(kernel_of<T>(problem.crossing)), problem, vectors, r, progress, iterations, tag, stream);
}

#define LSMR_INSTANTIATE(T)                                                  \
    template void prepare_persistent_cgls(const PersistentProblem<T>&);      \
    template void launch_persistent(const PersistentProblem<T>&, const PersistentVectors<T>&, CglsRecurrence<T>*, Progress*, int, std::uint64_t, cudaStream_t);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
