// Measures products with one stored orientation on a GPU: for benchmarks. No CUDA header is needed to include this one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "memory/cuda_context.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/operator_options.hpp"

namespace lsmr {

// What to measure: a kernel by its name, or the choice of the dispatch under these rules.
struct ProductRequest {
    std::string label;
    std::optional<SpmvChoice> kernel;
    SpmvKind kind = SpmvKind::automatic;
    NarrowKind narrow = NarrowKind::lossless;
    bool timing = true;  // false: the dispatch's first guess
};

struct ProductMeasurement {
    std::string label;
    std::string kernel;   // as spmv_choice.hpp writes it
    std::string words;
    std::string failure;  // why there are no numbers
    ProductDecision decision;
    double seconds = 0;  // of one product, the median; by events, warm
    double least_seconds = 0;
    double most_seconds = 0;
    double call_seconds = 0;   // of one product in a row of products, by the host's clock
    double setup_seconds = 0;  // choice, plan, conversion: from CSR on the device to the first product
    std::int64_t bytes = 0;    // of the arrays that the kernel reads
    double error = 0;          // largest |y - y_ref| / (eps (|a||A||x| + |b||y0|)) of a checked row, over (entries + 2): below 1 is within rounding
    bool repeatable = true;    // the same bits in five products
};

// One orientation on the device, with vectors; y <- A x - y / 2 is measured.
template <class T>
class ProductBench {
  public:
    ProductBench(const CsrMatrix& stored, const CudaContext& context);
    ~ProductBench();
    ProductBench(const ProductBench&) = delete;
    ProductBench& operator=(const ProductBench&) = delete;
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
