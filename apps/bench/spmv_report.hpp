// What `lsmr_bench spmv` measures, and its report as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "operator/product_measurement.hpp"
#include "operator/profile.hpp"
#include "solver/options.hpp"

namespace lsmr {

// The products of one orientation in one precision.
struct SpmvTable {
    std::string matrix;     // for people
    std::string direction;  // "A x", "A^T y"
    Precision precision = Precision::fp64;
    OrientationProfile profile;
    std::vector<ProductMeasurement> rows;
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
// The dispatch's choices against the best of what they are compared with, over all tables: geometric mean and least. Where at least
// eight kernels of fixed order were asked for by name: on how many products the choice was within 5 % of the fastest.
std::string spmv_summary(const SpmvReport& report);
// Schema "lsmr_spmv/1".
std::string spmv_json(const SpmvReport& report);

}  // namespace lsmr
