#include "environment.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <Eigen/Core>

namespace lsmr {

// LSMR_VERSION, LSMR_COMPILER and LSMR_BUILD_TYPE come from CMake.
Environment describe_environment() {
    Environment environment;
    environment.version = LSMR_VERSION;
    environment.compiler = LSMR_COMPILER;
    environment.build_type = LSMR_BUILD_TYPE;
    environment.eigen = fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
    environment.openmp_threads = omp_get_max_threads();
    environment.cuda = probe_cuda();
    return environment;
}

std::string version_text(const char* program) {
    return fmt::format("{} {}\n", program, LSMR_VERSION);
}

std::string environment_text(const Environment& environment, const char* program) {
    const CudaProbe& cuda = environment.cuda;
    std::string text = version_text(program);
    text += fmt::format("compiler   {}, {}\n", environment.compiler, environment.build_type);
    text += fmt::format("libraries  Eigen {}{}\n", environment.eigen,
                        cuda.runtime.empty() ? "" : fmt::format(", CUDA runtime {}", cuda.runtime));
    text += fmt::format("CPU        {} OpenMP thread{}\n", environment.openmp_threads,
                        environment.openmp_threads == 1 ? "" : "s");
    if (!cuda.driver.empty()) text += fmt::format("driver     CUDA {}\n", cuda.driver);
    for (std::size_t i = 0; i < cuda.devices.size(); ++i) text += fmt::format("cuda:{}     {}\n", i, cuda.devices[i]);
    text += fmt::format("GPU        {}\n", cuda.usable ? "usable" : "not usable: " + cuda.reason);
    return text;
}

}  // namespace lsmr
