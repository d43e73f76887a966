// The report of `lsmr_bench profile`, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnosis.hpp"
#include "operator/byte_model.hpp"
#include "operator/profile.hpp"
#include "solver/options.hpp"

namespace lsmr {

struct ProfileReport {
    std::string origin;  // of the matrix
    double load_seconds = 0;
    std::string device;  // that made the profile
    Precision precision = Precision::fp64;
    Rates rates;
    MatrixProfile profile;
    double a_seconds = 0;  // of the profile
    double at_seconds = 0;
    std::vector<std::string> choice;  // which format and kernel a solve would use, and why
    std::vector<std::string> warnings;

    ProductWidths widths() const { return precision == Precision::fp64 ? ProductWidths{8, 8} : ProductWidths{4, 4}; }
};

// The diagnosis of A x and of A^T y, the bytes of every format, the choice.
std::string profile_text(const ProfileReport& report);
// Schema "lsmr_profile/1".
std::string profile_json(const ProfileReport& report);

// The section that says which format and kernel would be used: a line each.
std::string choice_text(const std::vector<std::string>& lines);

}  // namespace lsmr
