// What lsmr_bench does on a GPU itself. In a build without CUDA (gpu_absent.cpp) it throws DeviceError (unavailable).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "operator/profile.hpp"
#include "solver/options.hpp"
#include "solver_under_test.hpp"
#include "spmv_report.hpp"

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

// Products timed on a GPU: y <- A x - y / 2 with the rows of `stored`, for each request.
struct GpuProducts {
    OrientationProfile profile;
    std::vector<ProductMeasurement> measured;
};
// What to measure of an orientation with this profile, which is made on the GPU: on the host it would take longer than all products.
using ProductRequests = std::function<std::vector<ProductRequest>(const OrientationProfile&)>;
struct GpuSession {
    virtual ~GpuSession() = default;
    virtual std::string device_text() const = 0;
    virtual double copy_bytes_per_second() const = 0;
    virtual GpuProducts measure(const CsrMatrix& stored, Precision precision, const ProductRequests& requests, int warm_up, int repeats) = 0;
    // The textbook solver (bench/cuda/textbook.hpp), made for `a`, which it does not keep.
    virtual std::unique_ptr<SolverUnderTest> textbook(const CsrMatrix& a, Precision precision) = 0;
    // How often this process has waited for a device so far.
    virtual std::int64_t waits() const = 0;
    // Calls `work`, which runs a solver on the GPU: the kernels of one of its iterations, by capture; 0 where it cannot be captured.
    virtual std::int64_t count_kernels(const std::function<void()>& work) = 0;
};
std::unique_ptr<GpuSession> open_gpu(int device);

}  // namespace lsmr
