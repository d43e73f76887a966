#include "operator/cuda/profile.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "memory/device_buffer.hpp"
#include "operator/cuda/device_csr.hpp"
#include "operator/profile_counts.hpp"

namespace lsmr {

template <class T, class Offset>
OrientationProfile profile_on_device(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns,
                                     const T* values, const CudaContext& context) {
    const DeviceScope scope(context.device());
    DeviceBuffer<detail::ProfileCounts> counts(context, 1);
    cuda::launch_profile(rows, nnz, offsets, columns, values, counts.data(), context.stream());
    detail::ProfileCounts host;
    LSMR_CHECK(cudaMemcpyAsync(&host, counts.data(), sizeof(host), cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
    return detail::make_profile(rows, cols, nnz, host);
}

template <class T>
OrientationProfile profile_on_device(const CsrMatrix& stored, const CudaContext& context, double* device_seconds) {
    const DeviceScope scope(context.device());
    const cuda::DeviceCsr<T> a = cuda::upload<T>(stored, 0, context);
    context.synchronize();
    const auto start = std::chrono::steady_clock::now();
    OrientationProfile profile;
    a.with_offsets([&](const auto* offsets) {
        profile = profile_on_device(stored.rows(), stored.cols(), stored.nnz(), offsets, a.columns->data(), a.values->data(), context);
    });
    if (device_seconds != nullptr) *device_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return profile;
}

namespace {

class Event {
  public:
    Event() { LSMR_CHECK(cudaEventCreate(&event_)); }
    ~Event() { LSMR_CHECK_NOTHROW(cudaEventDestroy(event_)); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    cudaEvent_t get() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace

double measure_copy_bandwidth(const CudaContext& context) {
    constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // far beyond any second-level cache
    constexpr int kWarmUps = 3;
    constexpr int kCopies = 15;
    const DeviceScope scope(context.device());
    const std::int64_t bytes = std::clamp(context.free_bytes() / 4, std::int64_t{1} << 20, kMostBytes);
    DeviceBuffer<std::byte> from(context, bytes);
    DeviceBuffer<std::byte> to(context, bytes);
    LSMR_CHECK(cudaMemsetAsync(from.data(), 0, static_cast<std::size_t>(bytes), context.stream()));
    const Event begin;
    const Event end;
    std::vector<float> milliseconds;
    for (int i = 0; i < kWarmUps + kCopies; ++i) {
        LSMR_CHECK(cudaEventRecord(begin.get(), context.stream()));
        LSMR_CHECK(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, context.stream()));
        LSMR_CHECK(cudaEventRecord(end.get(), context.stream()));
        context.synchronize();
        float elapsed = 0;
        LSMR_CHECK(cudaEventElapsedTime(&elapsed, begin.get(), end.get()));
        if (i >= kWarmUps) milliseconds.push_back(elapsed);
    }
    std::nth_element(milliseconds.begin(), milliseconds.begin() + kCopies / 2, milliseconds.end());
    return 2.0 * static_cast<double>(bytes) / (1e-3 * static_cast<double>(milliseconds[kCopies / 2]));
}

#define LSMR_INSTANTIATE(T)                                                                                                                \
    template OrientationProfile profile_on_device(std::int64_t, std::int64_t, std::int64_t, const std::int32_t*, const std::int32_t*,    \
                                                  const T*, const CudaContext&);                                                         \
    template OrientationProfile profile_on_device(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*, const std::int32_t*,    \
                                                  const T*, const CudaContext&);                                                         \
    template OrientationProfile profile_on_device<T>(const CsrMatrix&, const CudaContext&, double*);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr
