// y <- a A x + b y for CSR, with the partial sums of ||y||^2 in the same pass.
#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/csr_kernels.hpp"

namespace lsmr::cuda {
namespace {

// LANES threads of a warp share a row: neighbouring entries are loaded by neighbouring threads, then added by shuffles in a fixed order.
// A streams past the caches (read once); x stays in them.
// Bytes: (sizeof(T) + 4) nnz + sizeof(Offset) rows + x once + y twice.
template <class T, class Offset, int LANES>
__global__ void __launch_bounds__(kCsrThreads)
    csr_lanes_kernel(std::int64_t rows, const Offset* __restrict__ offsets, const std::int32_t* __restrict__ columns,
                     const T* __restrict__ values, const T* a_pointer, const T* __restrict__ x, const T* b_pointer, T* y,
                     double* partials) {
    const T a = *a_pointer;
    const T b = *b_pointer;
    const int lane = static_cast<int>(threadIdx.x) % LANES;
    const std::int64_t groups = static_cast<std::int64_t>(gridDim.x) * (kCsrThreads / LANES);
    std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kCsrThreads / LANES) + threadIdx.x / LANES;
    // Every thread of a warp takes the same number of turns, so that shuffles meet.
    const std::int64_t turns = (rows + groups - 1) / groups;
    double squares = 0;
    for (std::int64_t turn = 0; turn < turns; ++turn, row += groups) {
        T sum = 0;
        if (row < rows) {
            const Offset end = offsets[row + 1];
            Offset k = offsets[row] + lane;
            T sum2 = 0;
            for (; k + LANES < end; k += 2 * LANES) {
                sum += __ldcs(values + k) * x[__ldcs(columns + k)];
                sum2 += __ldcs(values + k + LANES) * x[__ldcs(columns + k + LANES)];
            }
            if (k < end) sum += __ldcs(values + k) * x[__ldcs(columns + k)];
            sum += sum2;
        }
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (row < rows && lane == 0) {
            const T value = b != T(0) ? a * sum + b * y[row] : a * sum;
            y[row] = value;
            squares += static_cast<double>(value) * static_cast<double>(value);
        }
    }
    if (partials != nullptr) {
        __shared__ double scratch[32];
        const double total = block_sum(squares, scratch);
        if (threadIdx.x == 0) partials[blockIdx.x] = total;
    }
}

}  // namespace

CsrLaunch choose_csr_launch(std::int64_t rows, std::int64_t nnz, int multiprocessors) {
    const double average = rows > 0 ? static_cast<double>(nnz) / static_cast<double>(rows) : 0.0;
    CsrLaunch launch;
    launch.lanes = average <= 2 ? 1 : average <= 6 ? 2 : average <= 12 ? 4 : average <= 24 ? 8 : average <= 64 ? 16 : 32;
    const std::int64_t rows_per_block = kCsrThreads / launch.lanes;
    const std::int64_t needed = (rows + rows_per_block - 1) / rows_per_block;
    // Two full waves (8 blocks of 256 fill a multiprocessor) even out rows of different length; more partials than kMaxPartials are not
    // foreseen.
    std::int64_t most = static_cast<std::int64_t>(multiprocessors) * 16;
    if (most > kMaxPartials) most = kMaxPartials;
    launch.blocks = static_cast<int>(needed < 1 ? 1 : needed < most ? needed : most);
    return launch;
}

template <class T, class Offset>
void launch_csr_apply(const CsrDevice<T, Offset>& matrix, const CsrLaunch& launch, Scalar<T> a, const T* x, Scalar<T> b, T* y,
                      double* partials, cudaStream_t stream) {
    const auto run = [&](auto kernel) {
        kernel<<<static_cast<unsigned>(launch.blocks), kCsrThreads, 0, stream>>>(matrix.rows, matrix.offsets, matrix.columns,
                                                                                  matrix.values, a.narrow, x, b.narrow, y, partials);
    };
    switch (launch.lanes) {
        case 1: run(csr_lanes_kernel<T, Offset, 1>); break;
        case 2: run(csr_lanes_kernel<T, Offset, 2>); break;
        case 4: run(csr_lanes_kernel<T, Offset, 4>); break;
        case 8: run(csr_lanes_kernel<T, Offset, 8>); break;
        case 16: run(csr_lanes_kernel<T, Offset, 16>); break;
        default: run(csr_lanes_kernel<T, Offset, 32>); break;
    }
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE(T, Offset)                                                                                                  \
    template void launch_csr_apply(const CsrDevice<T, Offset>&, const CsrLaunch&, Scalar<T>, const T*, Scalar<T>, T*, double*, cudaStream_t);
LSMR_INSTANTIATE(double, std::int32_t)
LSMR_INSTANTIATE(double, std::int64_t)
LSMR_INSTANTIATE(float, std::int32_t)
LSMR_INSTANTIATE(float, std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
