// Answers about the answer and mixed precision, on a GPU.
#include <doctest/doctest.h>

#include "answers_suite.hpp"
#include "cuda_support.hpp"
#include "support/devices.hpp"

using namespace lsmr;
using namespace lsmr::test;

TEST_CASE("cuda answers: solves with A^T A") { LSMR_NEEDS_GPU(); suite_normal_solves(gpu()); }
TEST_CASE("cuda answers: standard errors") { LSMR_NEEDS_GPU(); suite_standard_errors(gpu()); }
TEST_CASE("cuda answers: mixed precision") { LSMR_NEEDS_GPU(); suite_mixed_precision(gpu()); }
TEST_CASE("cuda answers: a v is made orthogonal to those before it") { LSMR_NEEDS_GPU(); suite_reorthogonalization(gpu()); }
TEST_CASE("cuda answers: lambda is chosen") { LSMR_NEEDS_GPU(); suite_chosen_damping(gpu()); }
TEST_CASE("cuda answers: a preconditioner that is given") { LSMR_NEEDS_GPU(); suite_given_preconditioner(gpu()); }
