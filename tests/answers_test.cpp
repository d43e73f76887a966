// Answers about the answer and mixed precision, on the CPU.
#include <doctest/doctest.h>
#include <omp.h>

#include "answers_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

PrepareOptions on_cpu() {
    PrepareOptions base;
    base.device = DeviceKind::cpu;
    omp_set_num_threads(1);
    return base;
}

}  // namespace

TEST_CASE("answers: solves with A^T A") {
    suite_normal_solves(on_cpu());
}
TEST_CASE("answers: standard errors") {
    suite_standard_errors(on_cpu());
}
TEST_CASE("answers: mixed precision") {
    suite_mixed_precision(on_cpu());
}
