// Shared memory beyond the 48 KiB that every kernel may take.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "memory/cuda_check.hpp"

namespace lsmr::cuda {

// Allows a kernel so many bytes of dynamic shared memory on the current device. Never lowered, also where several threads call it at once: others may
// launch the kernel with more.
inline void allow_shared(const void* kernel, int bytes) {
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    cudaFuncAttributes attributes{};
    LSMR_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    if (attributes.maxDynamicSharedSizeBytes < bytes) LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

}  // namespace lsmr::cuda
