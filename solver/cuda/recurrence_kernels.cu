#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/vector_kernels.hpp"
#include "solver/cg.hpp"
#include "solver/cgls.hpp"
#include "solver/cuda/recurrence_kernels.hpp"
#include "solver/lsmr.hpp"
#include "solver/lsqr.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr::cuda {
namespace {

// The sums of the lists in a fixed order, in every thread. They were written by this kernel's blocks or by kernels before it.
template <int kThreads>
__device__ void add_lists(const PartialLists& lists, double* sums, double* scratch) {
    for (int s = 0; s < lists.lists; ++s) {
        double sum = 0;
        for (int i = static_cast<int>(threadIdx.x); i < lists.count[s]; i += kThreads) sum += __ldcg(lists.sums[s] + i);
        sums[s] = block_sum(sum, scratch);
    }
}

template <class F>
__device__ void run_elements(std::int64_t n, const F& f, const SumTargets& targets, double* scratch) {
    const auto coefficients = f.load();
    double sums[F::kSums] = {};
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kVectorThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x; i < n; i += step) f(i, coefficients, sums);
#pragma unroll
    for (int s = 0; s < F::kSums; ++s) {
        const double total = block_sum(sums[s], scratch);
        if (threadIdx.x == 0) targets.sums[s][blockIdx.x] = total;
    }
}

template <class F>
__global__ void __launch_bounds__(kVectorThreads) elementwise_kernel(std::int64_t n, F f, SumTargets targets) {
    __shared__ double scratch[32];
    await_previous();
    admit_next();
    run_elements(n, f, targets, scratch);
}

// The same; the block that ends last adds the lists and runs the recurrence. *ended: 0 before and after.
template <class F, class R>
__global__ void __launch_bounds__(kVectorThreads)
    elementwise_finish_kernel(std::int64_t n, F f, SumTargets targets, R* r, int stage, PartialLists lists, unsigned* ended, bool beside_product) {
    __shared__ double scratch[32];
    __shared__ bool is_last;
    // A step beside a product shares nothing with it that either writes, so it does not wait for it. What the step needs had been done when
    // the product began, or the product would not have admitted it.
    if (!beside_product) await_previous();
    run_elements(n, f, targets, scratch);
    if (beside_product) await_previous();
    admit_next();
    if (threadIdx.x == 0) {
        __threadfence();  // the partials of this block are seen by whoever sees its count
        is_last = atomicAdd(ended, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    double sums[kMaxSlots] = {};
    add_lists<kVectorThreads>(lists, sums, scratch);
    if (threadIdx.x != 0) return;
    *ended = 0;
    r->finish(stage, sums, kGoOn);
}

// parts[k gridDim.x + block] <- this block's part of w_k^T v. blockIdx.y walks over the kept vectors.
template <class T>
__global__ void __launch_bounds__(kVectorThreads)
    basis_dots_kernel(const BidiagonalRecurrence<T>* r, std::int64_t n, const T* basis, std::int64_t window, const T* v, double* parts) {
    if (r->progress.stopped()) return;
    const std::int64_t count = r->kept(window);
    __shared__ double scratch[32];
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kVectorThreads;
    for (std::int64_t k = blockIdx.y; k < count; k += gridDim.y) {
        const T* w = basis + k * n;
        double sum = 0;
        for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x; i < n; i += step) {
            sum += static_cast<double>(w[i]) * static_cast<double>(v[i]);
        }
        const double total = block_sum(sum, scratch);
        if (threadIdx.x == 0) parts[k * gridDim.x + blockIdx.x] = total;
    }
}
// dots[k] <- the sum of its parts, in a fixed order: a thread for each k.
template <class T>
__global__ void basis_sums_kernel(const BidiagonalRecurrence<T>* r, std::int64_t window, const double* parts, std::int32_t blocks, double* dots) {
    if (r->progress.stopped()) return;
    const std::int64_t k = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k >= r->kept(window)) return;
    double total = 0;
    for (std::int32_t b = 0; b < blocks; ++b) total += parts[k * blocks + b];
    dots[k] = total;
}
template <class T>
__global__ void __launch_bounds__(kVectorThreads)
    basis_subtract_kernel(const BidiagonalRecurrence<T>* r, std::int64_t n, const T* basis, std::int64_t window, T* v, const double* dots, double* sums) {
    const bool active = !r->progress.stopped();
    const std::int64_t count = active ? r->kept(window) : 0;
    double sum = 0;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kVectorThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x; active && i < n; i += step) {
        double away = 0;
        for (std::int64_t k = 0; k < count; ++k) away += dots[k] * static_cast<double>(basis[k * n + i]);
        const T value = static_cast<T>(static_cast<double>(v[i]) - away);
        v[i] = value;
        sum += static_cast<double>(value) * static_cast<double>(value);
    }
    __shared__ double scratch[32];
    const double total = block_sum(sum, scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

constexpr int kFinishThreads = 512;

template <class R>
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(R* r, int stage, PartialLists lists, int code) {
    __shared__ double scratch[32];
    await_previous();
    admit_next();
    double sums[kMaxSlots] = {};
    add_lists<kFinishThreads>(lists, sums, scratch);
    if (threadIdx.x == 0) r->finish(stage, sums, code);
}

}  // namespace

template <class F>
void launch_elementwise(std::int64_t n, const F& f, const SumTargets& targets, cudaStream_t stream) {
    launch_dependent(elementwise_kernel<F>, vector_blocks(n), kVectorThreads, 0, stream, n, f, targets);
}

template <class F, class R>
void launch_elementwise_finish(std::int64_t n, const F& f, const SumTargets& targets, R* r, int stage, const PartialLists& lists, unsigned* ended,
                               bool beside_product, cudaStream_t stream) {
    launch_dependent(elementwise_finish_kernel<F, R>, vector_blocks(n), kVectorThreads, 0, stream, n, f, targets, r, stage, lists, ended, beside_product);
}

template <class T>
void launch_orthogonalize(const BidiagonalRecurrence<T>* r, std::int64_t n, const T* basis, std::int64_t window, T* v, double* dots, double* sums,
                          cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(vector_blocks(n));
    double* parts = dots + window;
    constexpr std::int64_t kMostRows = 65535;  // of a grid
    const dim3 grid(blocks, static_cast<unsigned>(window < kMostRows ? window : kMostRows));
    basis_dots_kernel<T><<<grid, kVectorThreads, 0, stream>>>(r, n, basis, window, v, parts);
    LSMR_CHECK(cudaGetLastError());
    constexpr unsigned kSumThreads = 128;
    const auto sum_blocks = static_cast<unsigned>((window + kSumThreads - 1) / kSumThreads);
    basis_sums_kernel<T><<<sum_blocks, kSumThreads, 0, stream>>>(r, window, parts, static_cast<std::int32_t>(blocks), dots);
    LSMR_CHECK(cudaGetLastError());
    basis_subtract_kernel<T><<<blocks, kVectorThreads, 0, stream>>>(r, n, basis, window, v, dots, sums);
    LSMR_CHECK(cudaGetLastError());
}

template <class R>
void launch_finish(R* r, int stage, const PartialLists& lists, int code, cudaStream_t stream) {
    launch_dependent(finish_kernel<R>, 1, kFinishThreads, 0, stream, r, stage, lists, code);
}

#define LSMR_INSTANTIATE(T)                                                                                                   \
    template void launch_elementwise(std::int64_t, const CglsUpdateX<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const CglsUpdateR<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const CglsDirection<T>&, const SumTargets&, cudaStream_t);                 \
    template void launch_elementwise(std::int64_t, const CgDirection<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const Reach<T>&, const SumTargets&, cudaStream_t);                         \
    template void launch_elementwise(std::int64_t, const SquaredNorm<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const KeepVector<T>&, const SumTargets&, cudaStream_t);                    \
    template void launch_orthogonalize(const BidiagonalRecurrence<T>*, std::int64_t, const T*, std::int64_t, T*, double*, double*, cudaStream_t); \
    template void launch_elementwise(std::int64_t, const AddTo<T>&, const SumTargets&, cudaStream_t);                         \
    template void launch_elementwise(std::int64_t, const DividedNorm<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const FromCenter<T>&, const SumTargets&, cudaStream_t);                    \
    template void launch_elementwise_finish(std::int64_t, const LsmrStep<T>&, const SumTargets&, LsmrRecurrence<T>*, int,     \
                                            const PartialLists&, unsigned*, bool, cudaStream_t);                              \
    template void launch_elementwise_finish(std::int64_t, const LsqrStep<T>&, const SumTargets&, LsqrRecurrence<T>*, int,     \
                                            const PartialLists&, unsigned*, bool, cudaStream_t);                              \
    template void launch_elementwise_finish(std::int64_t, const InnerProduct<T>&, const SumTargets&, CgRecurrence<T>*, int,   \
                                            const PartialLists&, unsigned*, bool, cudaStream_t);                              \
    template void launch_elementwise_finish(std::int64_t, const CgUpdate<T>&, const SumTargets&, CgRecurrence<T>*, int,       \
                                            const PartialLists&, unsigned*, bool, cudaStream_t);                              \
    template void launch_finish(LsmrRecurrence<T>*, int, const PartialLists&, int, cudaStream_t);                             \
    template void launch_finish(LsqrRecurrence<T>*, int, const PartialLists&, int, cudaStream_t);                             \
    template void launch_finish(CglsRecurrence<T>*, int, const PartialLists&, int, cudaStream_t);                             \
    template void launch_finish(CgRecurrence<T>*, int, const PartialLists&, int, cudaStream_t);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
