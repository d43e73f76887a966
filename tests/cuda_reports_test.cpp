// Reports of users of other solvers, on a GPU.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <bit>

#include "cuda_support.hpp"
#include "memory/cuda_check.hpp"
#include "memory/device_buffer.hpp"
#include "memory/error.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "reports_suite.hpp"
#include "solver/cuda/cuda_backend.hpp"
#include "solver/solve_cuda.hpp"
#include "support/devices.hpp"

using namespace lsmr;
using namespace lsmr::test;

TEST_CASE("cuda reports: zero right-hand side") { LSMR_NEEDS_GPU(); report_zero_right_hand_side(gpu()); }
TEST_CASE("cuda reports: identity") { LSMR_NEEDS_GPU(); report_identity(gpu()); }
TEST_CASE("cuda reports: right-hand side orthogonal to A") { LSMR_NEEDS_GPU(); report_orthogonal_right_hand_side(gpu()); }
TEST_CASE("cuda reports: zero right-hand side with a start") { LSMR_NEEDS_GPU(); report_zero_right_hand_side_with_start(gpu()); }
TEST_CASE("cuda reports: inputs are not written to") { LSMR_NEEDS_GPU(); report_inputs_unchanged(gpu()); }
TEST_CASE("cuda reports: start from an own iterate") { LSMR_NEEDS_GPU(); report_restart_from_own_iterate(gpu()); }
TEST_CASE("cuda reports: damped residual with a start") { LSMR_NEEDS_GPU(); report_damped_residual_with_start(gpu()); }
TEST_CASE("cuda reports: both norms of x") { LSMR_NEEDS_GPU(); report_both_norms_of_x(gpu()); }
TEST_CASE("cuda reports: one equation") { LSMR_NEEDS_GPU(); report_one_equation(gpu()); }
TEST_CASE("cuda reports: no iteration allowed") { LSMR_NEEDS_GPU(); report_no_iteration(gpu()); }
TEST_CASE("cuda reports: one meaning of damping") { LSMR_NEEDS_GPU(); report_one_meaning_of_damping(gpu()); }
TEST_CASE("cuda reports: compatible or not") { LSMR_NEEDS_GPU(); report_compatible_or_not(gpu()); }
TEST_CASE("cuda reports: a huge x solves nothing") { LSMR_NEEDS_GPU(); report_huge_x(gpu()); }
TEST_CASE("cuda reports: scaled right-hand side") { LSMR_NEEDS_GPU(); report_scaled_right_hand_side(gpu()); }
TEST_CASE("cuda reports: damping alone") { LSMR_NEEDS_GPU(); report_damping_alone(gpu()); }
TEST_CASE("cuda reports: condition of a diagonal") { LSMR_NEEDS_GPU(); report_condition_of_a_diagonal(gpu()); }
TEST_CASE("cuda reports: square of the norm overflows") { LSMR_NEEDS_GPU(); report_overflowing_square(gpu()); }
TEST_CASE("cuda reports: scales far apart") { LSMR_NEEDS_GPU(); report_far_scales(gpu()); }
TEST_CASE("cuda reports: norms are against b") { LSMR_NEEDS_GPU(); report_norms_against_b(gpu()); }
TEST_CASE("cuda reports: a start far beyond the solution") { LSMR_NEEDS_GPU(); report_start_far_beyond_the_solution(gpu()); }
TEST_CASE("cuda reports: norms of equal numbers") { LSMR_NEEDS_GPU(); report_norms_of_equal_numbers(gpu()); }
TEST_CASE("cuda reports: centres of the identity") { LSMR_NEEDS_GPU(); report_centers_of_the_identity(gpu()); }
TEST_CASE("cuda reports: every precision method and storage") { LSMR_NEEDS_GPU(); report_every_combination(gpu()); }
TEST_CASE("cuda reports: answer of least norm") { LSMR_NEEDS_GPU(); report_least_norm(gpu()); }
TEST_CASE("cuda reports: floor of fp32") { LSMR_NEEDS_GPU(); report_fp32_floor(gpu()); }

// NaN from an operator is not "x = 0 solves it" [within 345]. Bytes of ones are a NaN.
TEST_CASE("cuda reports: operator full of NaN") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    const auto nan = [](const double*, double* out, CUstream_st* stream) { LSMR_CHECK(cudaMemsetAsync(out, 0xff, 3 * sizeof(double), stream)); };
    const auto a = make_cuda_function_operator<double>(3, 3, nan, nan);
    const Vector b{1, 2, 3};
    for (const Method method : kMethods) {
        Vector x(3);
        const SolveResult result = solve<double>(*a, context, b, x, with_method(method));
        CHECK(result.status == Status::non_finite);
        CHECK(!result.converged());
        CHECK(result.message.find("A^T") != std::string::npos);
        CHECK(result.message.find("before the first iteration") != std::string::npos);
        CHECK(same_bits(x, {0, 0, 0}));
    }
}

// Norms of fp32 vectors are summed in fp64: a billion equal numbers, of equal bytes [TIGRE 774].
TEST_CASE("cuda reports: norm of a long fp32 vector") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    const auto nothing = [](const float*, float*, CUstream_st*) {};
    const auto a = make_cuda_function_operator<float>(1, 1, nothing, nothing);
    CudaBackend<float> backend(*a, context);
    for (const std::int64_t n : {std::int64_t{1} << 25, std::int64_t{1000000000}}) {
        try {
            DeviceBuffer<float> p(context, n);
            LSMR_CHECK(cudaMemsetAsync(p.data(), 0x3c, static_cast<std::size_t>(n) * sizeof(float), context.stream()));
            const double value = static_cast<double>(std::bit_cast<float>(0x3c3c3c3cU));
            const double expected = value * std::sqrt(static_cast<double>(n));
            check_within(backend.norm_now(n, p.data()), expected, 1e-12 * expected, "norm");
        } catch (const OutOfMemory& error) {
            MESSAGE("skipped: " << error.what());
        }
    }
}
