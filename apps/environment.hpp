// What this build is and what it runs on: --env, --version, and a part of every report.
#pragma once

#include <string>

#include "memory/cuda_context.hpp"

namespace lsmr {

struct Environment {
    std::string version;
    std::string compiler;
    std::string build_type;
    std::string eigen;
    int openmp_threads = 1;
    CudaProbe cuda;
};
Environment describe_environment();

std::string version_text(const char* program = "lsmr_solve");
std::string environment_text(const Environment& environment, const char* program = "lsmr_solve");

}  // namespace lsmr
