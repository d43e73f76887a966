// What lsmr_bench does on a GPU itself. In a build without CUDA (gpu_absent.cpp) it throws DeviceError (unavailable).
#pragma once

#include <string>

#include "operator/profile.hpp"
#include "solver/options.hpp"

namespace lsmr {

struct GpuProfile {
    MatrixProfile profile;
    double a_seconds = 0;  // on the device, without the copy to it
    double at_seconds = 0;
    double copy_bytes_per_second = 0;
    std::string device_name;
};
enum class Bandwidth { given, measured };
// Both orientations, one after the other, on GPU `device`; then the copy bandwidth, if it is to be measured. Throws
// DeviceError, OutOfMemory.
GpuProfile profile_on_gpu(const CsrMatrix& a, const CsrMatrix& at, Precision precision, int device,
                          Bandwidth bandwidth);

}  // namespace lsmr
