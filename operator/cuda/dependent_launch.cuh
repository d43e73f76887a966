// Programmatic dependent launch: a kernel comes up while the one before it on the stream still runs, so that its launch and what it does
// before await_previous() cost no time of their own. Rules:
//   - every block of a kernel that is launched so calls await_previous() before it ends, and before it touches what a kernel on the stream
//     writes (or writes what one reads);
//   - admit_next() is called after that, but for steps whose text says why not. It promises nothing: the next kernel waits for the end of
//     this one;
//   - what a kernel before may have written is not read by __ldg, nor through a const __restrict__ pointer: these loads need not see it.
// Kernels of others are launched as ever, and begin when all before them have ended.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "memory/cuda_check.hpp"

namespace lsmr::cuda {

__device__ inline void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void admit_next() { asm volatile("griddepcontrol.launch_dependents;"); }

// *p in global memory by a plain load, which the compiler may move past stores to other arrays all the same: this kernel does not write *p. Where p lies
// must be known after await_previous() only, as the place of a gather is that comes from shared memory.
__device__ inline double load_unwritten(const double* p) {
    double value;
    asm("ld.global.f64 %0, [%1];" : "=d"(value) : "l"(p));
    return value;
}
__device__ inline float load_unwritten(const float* p) {
    float value;
    asm("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(p));
    return value;
}

template <class... Parameters, class... Arguments>
void launch_dependent(void (*kernel)(Parameters...), int blocks, int threads, std::size_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    LSMR_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace lsmr::cuda
