#include "gpu.hpp"
#include "memory/cuda_context.hpp"
#include "memory/error.hpp"

namespace lsmr {

GpuProfile profile_on_gpu(const CsrMatrix&, const CsrMatrix&, Precision, int device, Bandwidth) {
    throw DeviceError("the GPU cannot be used: " + probe_cuda(device).reason, DeviceError::Kind::unavailable);
}

std::unique_ptr<GpuSession> open_gpu(int device) {
    throw DeviceError("the GPU cannot be used: " + probe_cuda(device).reason, DeviceError::Kind::unavailable);
}

}  // namespace lsmr
