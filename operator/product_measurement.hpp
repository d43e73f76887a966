// What a benchmark of products asks for, and what it finds, on any device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
    std::optional<double> idle_lanes;  // share of the lanes without a block while their warp works; of kernels of blocks
    double error = 0;          // largest |y - y_ref| / (eps (|a||A||x| + |b||y0|)) of a checked row, over (entries + 2): below 1 is
                               // within rounding
    bool repeatable = true;    // the same bits in five products
};

}  // namespace lsmr
