// CUDA tests run where a GPU can be used and are skipped visibly elsewhere.
#pragma once

#include <doctest/doctest.h>

#include "memory/cuda_context.hpp"

namespace lsmr::test {

inline bool have_gpu() {
    static const CudaProbe probe = probe_cuda(0);
    if (!probe.usable) MESSAGE("skipped: no GPU can be used: " << probe.reason);
    return probe.usable;
}

}  // namespace lsmr::test

// Leaves the test case, with a message, where there is no GPU.
#define LSMR_NEEDS_GPU() \
    if (!::lsmr::test::have_gpu()) return
