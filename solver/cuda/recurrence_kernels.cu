#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/vector_kernels.hpp"
#include "solver/cg.hpp"
#include "solver/cgls.hpp"
#include "solver/cuda/recurrence_kernels.hpp"
#include "solver/lsmr.hpp"
#include "solver/lsqr.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr::cuda {
namespace {

template <class F>
__global__ void __launch_bounds__(kVectorThreads) elementwise_kernel(std::int64_t n, F f, SumTargets targets) {
    const auto coefficients = f.load();
    double sums[F::kSums] = {};
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kVectorThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x; i < n; i += step) f(i, coefficients, sums);
    __shared__ double scratch[32];
#pragma unroll
    for (int s = 0; s < F::kSums; ++s) {
        const double total = block_sum(sums[s], scratch);
        if (threadIdx.x == 0) targets.sums[s][blockIdx.x] = total;
    }
}

constexpr int kFinishThreads = 512;

template <class R>
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(R* r, int stage, PartialLists lists, int code) {
    __shared__ double scratch[32];
    double sums[kMaxSlots] = {};
    for (int s = 0; s < lists.lists; ++s) {
        double sum = 0;
        for (int i = static_cast<int>(threadIdx.x); i < lists.count[s]; i += kFinishThreads) sum += lists.sums[s][i];
        sums[s] = block_sum(sum, scratch);
    }
    if (threadIdx.x == 0) r->finish(stage, sums, code);
}

}  // namespace

template <class F>
void launch_elementwise(std::int64_t n, const F& f, const SumTargets& targets, cudaStream_t stream) {
    elementwise_kernel<F><<<static_cast<unsigned>(vector_blocks(n)), kVectorThreads, 0, stream>>>(n, f, targets);
    LSMR_CHECK(cudaGetLastError());
}

template <class R>
void launch_finish(R* r, int stage, const PartialLists& lists, int code, cudaStream_t stream) {
    finish_kernel<R><<<1, kFinishThreads, 0, stream>>>(r, stage, lists, code);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE(T)                                                                                                    \
    template void launch_elementwise(std::int64_t, const LsmrStep<T>&, const SumTargets&, cudaStream_t);                      \
    template void launch_elementwise(std::int64_t, const LsqrStep<T>&, const SumTargets&, cudaStream_t);                      \
    template void launch_elementwise(std::int64_t, const CglsUpdateX<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const CglsUpdateR<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const CglsDirection<T>&, const SumTargets&, cudaStream_t);                 \
    template void launch_elementwise(std::int64_t, const CgDirection<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const CgUpdate<T>&, const SumTargets&, cudaStream_t);                      \
    template void launch_elementwise(std::int64_t, const InnerProduct<T>&, const SumTargets&, cudaStream_t);                  \
    template void launch_elementwise(std::int64_t, const Reach<T>&, const SumTargets&, cudaStream_t);                         \
    template void launch_elementwise(std::int64_t, const SquaredNorm<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const AddTo<T>&, const SumTargets&, cudaStream_t);                         \
    template void launch_elementwise(std::int64_t, const DividedNorm<T>&, const SumTargets&, cudaStream_t);                   \
    template void launch_elementwise(std::int64_t, const FromCenter<T>&, const SumTargets&, cudaStream_t);                    \
    template void launch_finish(LsmrRecurrence<T>*, int, const PartialLists&, int, cudaStream_t);                             \
    template void launch_finish(LsqrRecurrence<T>*, int, const PartialLists&, int, cudaStream_t);                             \
    template void launch_finish(CglsRecurrence<T>*, int, const PartialLists&, int, cudaStream_t);                             \
    template void launch_finish(CgRecurrence<T>*, int, const PartialLists&, int, cudaStream_t);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
