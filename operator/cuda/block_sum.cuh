// Sums of fixed order inside a thread block.
#pragma once

namespace lsmr {

// The sum of `value` over the block, in every thread. `scratch`: 32 doubles of shared memory. All threads must call it; blockDim.x is a
// multiple of 32.
__device__ inline double block_sum(double value, double* scratch) {
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncthreads();  // scratch may still be read from a call before
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    double total = 0;
    for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) total += scratch[w];
    return total;
}

}  // namespace lsmr
