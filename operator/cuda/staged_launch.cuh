// Launches of kernels whose items pass through shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "memory/cuda_check.hpp"
#include "operator/cuda/shared_memory.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cuda {
namespace {

// Thread blocks of `kernel`: as many as the device holds at once, where shared memory may take all it can, bounded by the items and by half of
// kMaxPartials, which leaves the other half to the step after. The kernel is then set to take no more shared memory than these need: the rest of the
// 256 KiB is L1. The hardware has these sizes, and a thread block takes 1 KiB beside its own and the kernel's.
template <class Kernel>
int staged_blocks(Kernel kernel, int threads, std::size_t shared_bytes, std::int64_t items, int multiprocessors) {
    const int bytes = static_cast<int>(shared_bytes);
    allow_shared(reinterpret_cast<const void*>(kernel), bytes);
    cudaFuncAttributes attributes{};
    LSMR_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    int resident = 0;
    LSMR_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes));
    const int needed = resident * (bytes + static_cast<int>(attributes.sharedSizeBytes) + 1024);
    int size = 228;
    for (int kib : {196, 164, 132, 100, 64, 32, 16, 8}) {
        if (kib * 1024 >= needed) size = kib;
    }
    LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, (size * 100 + 227) / 228));
    return static_cast<int>(std::clamp<std::int64_t>(items, 1, std::min(resident * multiprocessors, kMaxPartials / 2)));
}

}  // namespace
}  // namespace lsmr::cuda
