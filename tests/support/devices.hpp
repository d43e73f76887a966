// Where a test's solves run.
#pragma once

#include <omp.h>

#include "solver/options.hpp"

namespace lsmr::test {

inline PrepareOptions on_cpu() {
    PrepareOptions options;
    options.device = DeviceKind::cpu;
    omp_set_num_threads(1);  // the same bits as more, and no waiting for other programs on the cores
    return options;
}

inline PrepareOptions gpu() {
    PrepareOptions options;
    options.device = DeviceKind::cuda;
    return options;
}

}  // namespace lsmr::test
