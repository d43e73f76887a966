// What a profile means for a product, step by step, each with a verdict of one line.
#pragma once

#include <string>
#include <vector>

#include "operator/byte_model.hpp"
#include "operator/profile.hpp"

namespace lsmr {

// What the times of a diagnosis are reckoned with.
struct Rates {
    double copy_bytes_per_second = 0;
    std::string origin;          // "measured", "given", "an H200"
    bool random_access = false;  // an H200's rates of gathers and atomics hold (operator/byte_model.hpp)
};

struct DiagnosisStep {
    std::string question;            // "row lengths"
    std::vector<std::string> facts;  // lines
    std::string verdict;
};

// Of the product with the rows that `rows` describes; `columns` is the other orientation. In order: row lengths,
// regular, roofline share, x locality, skew, atomics.
std::vector<DiagnosisStep> diagnose(const OrientationProfile& rows, const OrientationProfile& columns,
                                    ProductWidths widths, const Rates& rates);

// "1,234,567"; "12.3 MB"; "0.233 ms", "8.7 us"; "7.8 %".
std::string count_text(std::int64_t count);
std::string bytes_text(double bytes);
std::string time_text(double seconds);
std::string percent_text(double share);

}  // namespace lsmr
