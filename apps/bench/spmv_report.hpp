// What `lsmr_bench spmv` measures, and its report as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/operator_options.hpp"
#include "operator/profile.hpp"
#include "solver/options.hpp"

namespace lsmr {

// A kernel by its name, or the dispatch's choice under these rules.
struct SpmvRequest {
    std::string label;
    std::optional<SpmvChoice> kernel;
    SpmvKind kind = SpmvKind::automatic;
    NarrowKind narrow = NarrowKind::lossless;
};

struct SpmvMeasurement {
    std::string label;
    std::string kernel;
    std::string words;
    std::string failure;  // why there are no numbers
    double seconds = 0;   // of one product, the median
    double least_seconds = 0;
    double most_seconds = 0;
    double call_seconds = 0;   // of one product in a row of products, by the host's clock
    double setup_seconds = 0;  // choice, plan, conversion
    std::int64_t bytes = 0;    // of the stored matrix
    double error = 0;          // in units of its bound: below 1 is within rounding
    bool repeatable = true;
    std::vector<ProductDecision::Timing> candidates;
};

// The products of one orientation in one precision.
struct SpmvTable {
    std::string matrix;     // for people
    std::string direction;  // "A x", "A^T y"
    Precision precision = Precision::fp64;
    OrientationProfile profile;
    std::vector<SpmvMeasurement> rows;
};

struct SpmvReport {
    std::string device;
    std::string comparison;  // the label's beginning of what ours is compared with: "cusparse", "eigen"
    double copy_bytes_per_second = 0;
    bool sector_bound = false;  // the device's rates of random access are known
    int warm_up = 0;
    int repeats = 0;
    std::vector<SpmvTable> tables;
};

std::string spmv_heading(const SpmvReport& report);
std::string spmv_table_text(const SpmvReport& report, const SpmvTable& table);
// The dispatch's choices against the best of what they are compared with, over all tables: geometric mean and least.
std::string spmv_summary(const SpmvReport& report);
// Schema "lsmr_spmv/1".
std::string spmv_json(const SpmvReport& report);

}  // namespace lsmr
