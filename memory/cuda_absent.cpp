// The CUDA side of memory/ in a build without CUDA: it says so.
#include "memory/cuda_context.hpp"
#include "memory/error.hpp"

namespace lsmr {

CudaProbe probe_cuda(int) {
    CudaProbe probe;
    probe.reason = "this build has no CUDA (it was configured without nvcc)";
    return probe;
}

}  // namespace lsmr
