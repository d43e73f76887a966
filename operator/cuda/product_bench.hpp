// Measures products with one stored orientation on a GPU: for benchmarks. No CUDA header is needed to include this one.
#pragma once

#include <memory>
#include <string>

#include "memory/cuda_context.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/product_measurement.hpp"
#include "operator/profile.hpp"

namespace lsmr {

// One orientation on the device, with vectors; y <- A x - y / 2 is measured.
template <class T>
class ProductBench {
  public:
    ProductBench(const CsrMatrix& stored, const CudaContext& context);
    ~ProductBench();
    ProductBench(const ProductBench&) = delete;
    ProductBench& operator=(const ProductBench&) = delete;
    OrientationProfile profile() const;
    // Never throws for what a kernel refuses: that is the measurement's failure.
    ProductMeasurement measure(const ProductRequest& request, int warm_up, int repeats);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// Of the device and the libraries: "NVIDIA H200, 132 multiprocessors, 60 MiB of L2, up to 1980 MHz, memory up to 3201 MHz; CUDA 13.0, cuSPARSE
// 12.6.3".
std::string benchmark_device_text(const CudaContext& context);

}  // namespace lsmr
