#include "gpu.hpp"

#include "memory/cuda_context.hpp"
#include "operator/cuda/profile.hpp"

namespace lsmr {

GpuProfile profile_on_gpu(const CsrMatrix& a, const CsrMatrix& at, Precision precision, int device,
                          Bandwidth bandwidth) {
    const CudaContext context(device);
    GpuProfile found;
    found.device_name = context.device_name();
    const auto profile_both = [&]<class T>(T) {
        // Once before it is timed: the first launch loads the kernels.
        profile_on_device<T>(CsrMatrix(), context);
        found.profile.a = profile_on_device<T>(a, context, &found.a_seconds);
        found.profile.at = profile_on_device<T>(at, context, &found.at_seconds);
    };
    if (precision == Precision::fp64) {
        profile_both(double{});
    } else {
        profile_both(float{});
    }
    if (bandwidth == Bandwidth::measured) found.copy_bytes_per_second = measure_copy_bandwidth(context);
    return found;
}

}  // namespace lsmr
