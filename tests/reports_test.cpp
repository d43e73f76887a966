// Reports of users of other solvers, on the CPU; those about users' operators are only here.
#include <doctest/doctest.h>
#include <omp.h>

#include <functional>

#include "memory/error.hpp"
#include "operator/function_operator.hpp"
#include "reports_suite.hpp"
#include "solver/cpu/cpu_backend.hpp"
#include "support/devices.hpp"

using namespace lsmr;
using namespace lsmr::test;

TEST_CASE("reports: zero right-hand side") {
    report_zero_right_hand_side(on_cpu());
}
TEST_CASE("reports: identity") {
    report_identity(on_cpu());
}
TEST_CASE("reports: right-hand side orthogonal to A") {
    report_orthogonal_right_hand_side(on_cpu());
}
TEST_CASE("reports: zero right-hand side with a start") {
    report_zero_right_hand_side_with_start(on_cpu());
}
TEST_CASE("reports: inputs are not written to") {
    report_inputs_unchanged(on_cpu());
}
TEST_CASE("reports: start from an own iterate") {
    report_restart_from_own_iterate(on_cpu());
}
TEST_CASE("reports: damped residual with a start") {
    report_damped_residual_with_start(on_cpu());
}
TEST_CASE("reports: both norms of x") {
    report_both_norms_of_x(on_cpu());
}
TEST_CASE("reports: one equation") {
    report_one_equation(on_cpu());
}
TEST_CASE("reports: no iteration allowed") {
    report_no_iteration(on_cpu());
}
TEST_CASE("reports: one meaning of damping") {
    report_one_meaning_of_damping(on_cpu());
}
TEST_CASE("reports: compatible or not") {
    report_compatible_or_not(on_cpu());
}
TEST_CASE("reports: a huge x solves nothing") {
    report_huge_x(on_cpu());
}
TEST_CASE("reports: scaled right-hand side") {
    report_scaled_right_hand_side(on_cpu());
}
TEST_CASE("reports: damping alone") {
    report_damping_alone(on_cpu());
}
TEST_CASE("reports: condition of a diagonal") {
    report_condition_of_a_diagonal(on_cpu());
}
TEST_CASE("reports: square of the norm overflows") {
    report_overflowing_square(on_cpu());
}
TEST_CASE("reports: scales far apart") {
    report_far_scales(on_cpu());
}
TEST_CASE("reports: norms are against b") {
    report_norms_against_b(on_cpu());
}
TEST_CASE("reports: norms of equal numbers") {
    report_norms_of_equal_numbers(on_cpu());
}
// Many more of them: on the CPU also the blocks' sums are added by halves.
TEST_CASE("reports: norms of a million equal numbers") {
    const std::int64_t n = 1000000;
    const double root = 1000;
    for (const double value : {0.1, 0.3, 0.7, 1.0 / 3}) {
        CAPTURE(value);
        const Answer answer = solve(on_cpu(), diagonal(Vector(index(n), 1.0)), Vector(index(n), 0.0), exactly(Method::lsmr, 0), Vector(index(n), value));
        check_within(answer.result.norms.x, value * root, 4 * kEps64 * value * root, "||x||");
        check_within(answer.result.norms.r, value * root, 4 * kEps64 * value * root, "||r||");
    }
}
TEST_CASE("reports: a start far beyond the solution") {
    for (const Precision precision : {Precision::fp64, Precision::mixed}) {
        PrepareOptions prepare = on_cpu();
        prepare.precision = precision;
        report_start_far_beyond_the_solution(prepare);
    }
}
TEST_CASE("reports: centres of the identity") {
    report_centers_of_the_identity(on_cpu());
}
TEST_CASE("reports: every precision method and storage") {
    report_every_combination(on_cpu());
}
TEST_CASE("reports: answer of least norm") {
    report_least_norm(on_cpu());
}
TEST_CASE("reports: floor of fp32") {
    report_fp32_floor(on_cpu());
}

// NaN from an operator is not "x = 0 solves it" [within 345].
TEST_CASE("reports: operator full of NaN") {
    on_cpu();
    const auto nan = [](const double*, double* out) {
        for (int i = 0; i < 3; ++i) out[i] = std::numeric_limits<double>::quiet_NaN();
    };
    const FunctionOperator<double> a(3, 3, nan, nan);
    const Vector b{1, 2, 3};
    for (const Method method : kMethods) {
        Vector x(3);
        const SolveResult result = solve<double>(a, b, x, with_method(method));
        CHECK(result.status == Status::non_finite);
        CHECK(!result.converged());
        CHECK(result.message.find("A^T") != std::string::npos);
        CHECK(result.message.find("before the first iteration") != std::string::npos);
        CHECK(same_bits(x, {0, 0, 0}));
    }
}

// An operator without its adjoint is refused at once, in words [scipy 18140].
TEST_CASE("reports: operator without an adjoint") {
    const auto product = [](const double*, double*) {};
    CHECK_THROWS_WITH_AS(FunctionOperator<double>(3, 3, product, nullptr),
                         "operator: the function for A^T y is missing; least squares needs both products", InputError);
    CHECK_THROWS_AS(FunctionOperator<double>(3, 3, nullptr, product), InputError);
}

// Norms of fp32 vectors are summed in fp64: 2^25 ones would end at 2^24 in fp32 [TIGRE 774].
TEST_CASE("reports: norm of a long fp32 vector") {
    on_cpu();
    const FunctionOperator<float> a(
        1, 1, [](const float* x, float* y) { *y = *x; }, [](const float* x, float* y) { *y = *x; });
    CpuBackend<float> backend(a);
    const std::int64_t n = std::int64_t{1} << 25;
    HostBuffer<float> p(n, 0.1F);
    const double expected = static_cast<double>(0.1F) * std::sqrt(static_cast<double>(n));
    check_within(backend.norm_now(n, p.data()), expected, 1e-12 * expected, "norm");
}
