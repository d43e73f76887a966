#include "gpu.hpp"

#include "bench/cuda/textbook.hpp"
#include "memory/cuda_check.hpp"
#include "memory/cuda_context.hpp"
#include "operator/cuda/product_bench.hpp"
#include "operator/cuda/profile.hpp"

namespace lsmr {
namespace {

class OpenGpu final : public GpuSession {
  public:
    explicit OpenGpu(int device) : context_(device), copy_(measure_copy_bandwidth(context_)) {}
    std::string device_text() const override { return benchmark_device_text(context_); }
    double copy_bytes_per_second() const override { return copy_; }
    GpuProducts measure(const CsrMatrix& stored, Precision precision, const ProductRequests& requests, int warm_up, int repeats) override {
        if (precision == Precision::fp64) return measure_as<double>(stored, requests, warm_up, repeats);
        return measure_as<float>(stored, requests, warm_up, repeats);
    }

    std::unique_ptr<SolverUnderTest> textbook(const CsrMatrix& a, Precision precision) override {
        return make_textbook_solver(a, precision, context_);
    }
    std::int64_t waits() const override { return cuda_counters().synchronizations; }
    std::int64_t count_kernels(const std::function<void()>& work) override {
        CudaCounters& counters = cuda_counters();
        counters.iteration_kernels = 0;
        counters.count_kernels = true;
        try {
            work();
        } catch (...) {
            counters.count_kernels = false;
            throw;
        }
        counters.count_kernels = false;
        return counters.iteration_kernels;
    }

  private:
    template <class T>
    GpuProducts measure_as(const CsrMatrix& stored, const ProductRequests& requests, int warm_up, int repeats) {
        ProductBench<T> bench(stored, context_);
        GpuProducts products{bench.profile(), {}};
        for (const ProductRequest& request : requests(products.profile)) products.measured.push_back(bench.measure(request, warm_up, repeats));
        return products;
    }

    CudaContext context_;
    double copy_;
};

}  // namespace

std::unique_ptr<GpuSession> open_gpu(int device) { return std::make_unique<OpenGpu>(device); }


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
