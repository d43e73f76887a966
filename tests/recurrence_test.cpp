// The recurrences, the stop tests and their parts, against definitions and closed formulas in long double.
#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "memory/error.hpp"
#include "solver/cgls.hpp"
#include "solver/lsmr.hpp"
#include "solver/lsqr.hpp"
#include "solver/power_of_two.hpp"
#include "solver/rotation.hpp"
#include "solver/stopping.hpp"
#include "support/checks.hpp"
#include "support/dense_oracle.hpp"
#include "support/devices.hpp"
#include "support/problems.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

// x_k of LSMR by its definition: of all x in the Krylov space of A'A and A'b, k dimensions, the one with the least
// ||A'(b - A x) - lambda^2 x||. Dense, in long double.
DenseVector lsmr_by_definition(const DenseMatrix& a, const DenseVector& b, long double damp, int k) {
    const DenseMatrix normal = a.transpose() * a + damp * damp * DenseMatrix::Identity(a.cols(), a.cols());
    const DenseVector gradient = a.transpose() * b;
    DenseMatrix basis(a.cols(), k);
    DenseVector next = gradient;
    for (int j = 0; j < k; ++j) {
        for (int pass = 0; pass < 2; ++pass) {
            next -= basis.leftCols(j) * (basis.leftCols(j).transpose() * next).eval();
        }
        basis.col(j) = next.normalized();
        next = normal * basis.col(j);
    }
    return basis * (normal * basis).eval().colPivHouseholderQr().solve(gradient);
}

// One iterate of LSQR and what its closed formulas say of it.
struct LsqrIterate {
    DenseVector x;
    long double r_damped;
    long double ar;
};
// LSQR with damping (Paige and Saunders 1982): after k steps ||rbar||^2 = phibar^2 + sum psi^2 and ||A'r|| = alpha |s
// phi|.
std::vector<LsqrIterate> lsqr(const DenseMatrix& a, const DenseVector& b, long double damp, int steps) {
    std::vector<LsqrIterate> iterates;
    long double beta = b.norm();
    DenseVector u = b / beta;
    DenseVector v = a.transpose() * u;
    long double alpha = v.norm();
    v /= alpha;
    DenseVector w = v;
    DenseVector x = DenseVector::Zero(a.cols());
    long double rhobar = alpha;
    long double phibar = beta;
    long double psi2 = 0;
    for (int k = 0; k < steps; ++k) {
        u = (a * v - alpha * u).eval();
        beta = u.norm();
        u /= beta;
        v = (a.transpose() * u - beta * v).eval();
        alpha = v.norm();
        v /= alpha;
        const long double rhobar1 = std::hypot(rhobar, damp);
        const long double psi = damp / rhobar1 * phibar;
        phibar *= rhobar / rhobar1;
        psi2 += psi * psi;
        const long double rho = std::hypot(rhobar1, beta);
        const long double c = rhobar1 / rho;
        const long double s = beta / rho;
        const long double theta = s * alpha;
        rhobar = -c * alpha;
        const long double phi = c * phibar;
        phibar *= s;
        x += phi / rho * w;
        w = (v - theta / rho * w).eval();
        iterates.push_back({x, std::sqrt(phibar * phibar + psi2), alpha * std::abs(s * phi)});
    }
    return iterates;
}

StopRules rules_of_one() {
    StopRules rules;
    rules.atol = 1e-6;
    rules.btol = 1e-6;
    rules.conlim = 1e8;
    rules.eps = kEps64;
    rules.b_norm = 1;
    rules.a_norm = 1;
    rules.max_iterations = 100;
    rules.stall_window = 2000;
    return rules;
}
// Passes no test of rules_of_one().
Estimates far_from_done() {
    return {1, 0.1, 0.01, 1, 10, 1};
}

Status code_of(const StopRules& rules, const Estimates& e) {
    StopMemory memory;
    const int code = stop_code(rules, e, memory);
    REQUIRE(code != kGoOn);
    return static_cast<Status>(code);
}
int raw_code(const StopRules& rules, const Estimates& e) {
    StopMemory memory;
    return stop_code(rules, e, memory);
}

}  // namespace

TEST_CASE("recurrence: rotation") {
    const double huge = std::numeric_limits<double>::max() / 4;
    const double tiny = std::numeric_limits<double>::denorm_min() * 1024;
    for (const double a : {0.0, 1.0, -1.0, 3.0, -4.0, 1e-200, -1e200, huge, tiny}) {
        for (const double b : {0.0, 1.0, -1.0, 4.0, 1e-200, 1e200, -huge, tiny}) {
            const Rotation q = rotate(a, b);
            CAPTURE(a);
            CAPTURE(b);
            CHECK(q.r >= 0);
            check_within(q.r, std::hypot(a, b), 4 * kEps64 * std::hypot(a, b), "r");
            check_within(q.c * q.c + q.s * q.s, 1, 4 * kEps64, "c^2 + s^2");
            // -s a + c b = 0, in numbers that cannot overflow.
            const double scale = std::max({std::abs(a), std::abs(b), 1e-300});
            check_within(-q.s * (a / scale) + q.c * (b / scale), 0, 4 * kEps64, "-s a + c b");
        }
    }
    CHECK(rotate(0, 0).c == 1);  // not 0: the next division would be 0 / 0
    CHECK(rotate(0, 0).s == 0);
    CHECK(std::isinf(rotate(0, 0).inverse_r));  // what is divided by r then is not finite
    for (const double a : {1.0, -4.0, 1e-200, 1e-150, 1e150, 1e200}) check_within(rotate(a, 3 * a).inverse_r * rotate(a, 3 * a).r, 1, 4 * kEps64, "r / r");
    for (const double x : {1.0, 3.0, 1e-300, 1e300, 0.7}) {
        const Length root = length_of(x);
        CHECK(root.value == std::sqrt(x));
        check_within(root.value * root.inverse, 1, 2 * kEps64, "value inverse");
    }
    CHECK(length_of(0).value == 0);
    CHECK(length_of(0).inverse == 0);
    for (const double x : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        CHECK_FALSE(is_finite(length_of(x).value));
        CHECK(length_of(x).inverse == 0);
    }
    CHECK(is_finite(0));
    CHECK(is_finite(std::numeric_limits<double>::max()));
    CHECK_FALSE(is_finite(std::numeric_limits<double>::infinity()));
    CHECK_FALSE(is_finite(-std::numeric_limits<double>::infinity()));
    CHECK_FALSE(is_finite(std::numeric_limits<double>::quiet_NaN()));
}

TEST_CASE("recurrence: powers of two") {
    CHECK(binary_exponent(0) == 0);
    CHECK(binary_exponent(1) == 1);
    CHECK(binary_exponent(-0.75) == 0);
    CHECK(binary_exponent(std::numeric_limits<double>::infinity()) == 0);
    for (const int e : {-1070, -1022, -500, -3, 0, 7, 800, 1023}) {
        const double x = std::ldexp(0.5, e);
        CHECK(binary_exponent(x) == e);
        CHECK(PowerOfTwo(e)(0.5) == x);
    }
    // 2^2000 alone overflows, its product with a small number does not.
    CHECK(PowerOfTwo(2000)(std::ldexp(1.0, -1000)) == std::ldexp(1.0, 1000));
    CHECK(PowerOfTwo(-2000)(std::ldexp(1.0, 1000)) == std::ldexp(1.0, -1000));
    CHECK(max_abs(nullptr, 0) == 0);
}

TEST_CASE("recurrence: status table") {
    std::set<std::string> names, sentences;
    for (int code = 0; code <= 15; ++code) {
        const auto status = static_cast<Status>(code);
        names.insert(status_name(status));
        sentences.insert(status_sentence(status));
        const bool converged = code == 0 || code == 1 || code == 2 || code == 4 || code == 5;
        CHECK(is_converged(status) == converged);
        const int expected = converged ? 0 : code == 10 || code == 11 ? 3 : code == 15 ? 71 : 2;
        CHECK(exit_code(status) == expected);
    }
    CHECK(names.size() == 16);
    CHECK(sentences.size() == 16);
}

TEST_CASE("recurrence: defaults of the options") {
    const SolveOptions options;
    CHECK(options.atol == 1e-6);
    CHECK(options.btol == 1e-6);
    CHECK(options.damp == 0);
    CHECK(options.damp_center == DampCenter::zero);
    CHECK(resolved_conlim(options, Precision::fp64) == 1e8);
    CHECK(resolved_conlim(options, Precision::fp32) == 1e6);
    CHECK(resolved_max_iterations(options, 10, 7) == 200);
    CHECK(resolved_max_iterations(options, 1000, 70) == 280);
    // More than 32 bits hold.
    CHECK(resolved_max_iterations(options, 2000000000, 2000000000) == 8000000000);
    CHECK_NOTHROW(check_options(options));
}

// --- stop tests ---

TEST_CASE("recurrence: each stop test alone") {
    const StopRules rules = rules_of_one();
    CHECK(raw_code(rules, far_from_done()) == kGoOn);
    Estimates e = far_from_done();
    e.r_norm = 0.99 * (rules.btol * rules.b_norm + rules.atol * e.a_norm * e.x_norm);
    e.ar_norm = e.r_norm;
    CHECK(code_of(rules, e) == Status::compatible);
    e.r_norm *= 1.02;
    CHECK(raw_code(rules, e) == kGoOn);
    e = far_from_done();
    e.r_norm = 0;  // solved, whatever the tolerances
    StopRules none = rules;
    none.atol = none.btol = 0;
    CHECK(code_of(none, e) == Status::compatible);
    e = far_from_done();
    e.ar_norm = 0.99 * rules.atol * e.a_norm * e.r_norm;
    CHECK(code_of(rules, e) == Status::least_squares);
    e.ar_norm *= 1.02;
    CHECK(raw_code(rules, e) == kGoOn);
    e = far_from_done();
    e.cond = 1e8;
    CHECK(code_of(rules, e) == Status::condition_limit);
    e.cond = 0.99e8;
    CHECK(raw_code(rules, e) == kGoOn);
    e = far_from_done();
    e.iteration = 100;
    CHECK(code_of(rules, e) == Status::iteration_limit);
    e.iteration = 99;
    CHECK(raw_code(rules, e) == kGoOn);
}

TEST_CASE("recurrence: stop tests at machine precision") {
    StopRules rules = rules_of_one();
    rules.atol = rules.btol = 0;
    rules.conlim = 1e300;
    Estimates e = far_from_done();
    e.r_norm = 1.9 * kEps64;
    e.ar_norm = e.r_norm;
    CHECK(code_of(rules, e) == Status::compatible_eps);
    e = far_from_done();
    e.ar_norm = 0.9 * kEps64 * e.r_norm;
    CHECK(code_of(rules, e) == Status::least_squares_eps);
    e = far_from_done();
    e.cond = 1.1 / kEps64;
    CHECK(code_of(rules, e) == Status::condition_eps);
    // b - A x0 was formed with rounding of ||A|| ||x0||, however small x is now.
    rules.x0_norm = 1e3;
    e = far_from_done();
    e.r_norm = 1e3 * kEps64;
    CHECK(code_of(rules, e) == Status::compatible_eps);
    e.r_norm = 1.1e3 * kEps64;
    CHECK(raw_code(rules, e) == kGoOn);
    rules.a_norm_of_x0 = 2;
    CHECK(code_of(rules, e) == Status::compatible_eps);
    rules.x0_norm = rules.a_norm_of_x0 = 0;
    // A lower floor, as under another metric.
    rules.floor = 0.1;
    e = far_from_done();
    e.ar_norm = 0.11 * kEps64 * e.r_norm;
    CHECK(raw_code(rules, e) == kGoOn);
    e.ar_norm = 0.09 * kEps64 * e.r_norm;
    CHECK(code_of(rules, e) == Status::least_squares_eps);
    rules.floor = 1;
    // btol is raised beside an atol that is not.
    rules.atol = 1e-6;
    e = far_from_done();
    e.x_norm = 1e-10;
    e.r_norm = 1.3 * kEps64;
    CHECK(code_of(rules, e) == Status::compatible_eps);
    rules.atol = 0;
    // One tolerance above eps does not lend itself to the other.
    rules.btol = 1e-6;
    e = far_from_done();
    e.ar_norm = 1e-7 * e.r_norm;
    CHECK(raw_code(rules, e) == kGoOn);
    // With a linear term ||r|| tells nothing: the gradient's bound, or its rounding.
    rules = rules_of_one();
    rules.only_gradient = true;
    rules.ar_bound = 1e-3;
    e = far_from_done();
    e.r_norm = 0;
    CHECK(raw_code(rules, e) == kGoOn);
    e.ar_norm = 1e-3;
    CHECK(code_of(rules, e) == Status::least_squares);
    rules.ar_bound = 0;
    CHECK(raw_code(rules, e) == kGoOn);
    e = far_from_done();
    e.ar_norm = 0.9 * kEps64 * e.r_norm;
    CHECK(code_of(rules, e) == Status::least_squares_eps);
    // In fp32 a tolerance of 1e-8 is below eps.
    rules = rules_of_one();
    rules.eps = kEps32;
    rules.atol = rules.btol = 1e-8;
    e = far_from_done();
    e.ar_norm = 0.9 * kEps32 * e.r_norm;
    CHECK(code_of(rules, e) == Status::least_squares_eps);
    e.ar_norm = 0.9e-8 * e.r_norm;
    CHECK(code_of(rules, e) == Status::least_squares);
    // conlim 1e8 is beyond 1 / eps there: reported as machine precision.
    e = far_from_done();
    e.cond = 1e9;
    CHECK(code_of(rules, e) == Status::condition_eps);
}

TEST_CASE("recurrence: precedence of stop tests") {
    StopRules rules = rules_of_one();
    Estimates all = {100, 1e-17, 1e-40, 1, 1e20, 1};  // passes every one
    CHECK(code_of(rules, all) == Status::compatible);
    all.r_norm = 0.1;
    CHECK(code_of(rules, all) == Status::least_squares);
    rules.atol = rules.btol = 0;
    CHECK(code_of(rules, all) == Status::condition_limit);
    rules.conlim = 1e300;
    all.r_norm = 1e-17;
    CHECK(code_of(rules, all) == Status::compatible_eps);
    all.r_norm = 0.1;
    CHECK(code_of(rules, all) == Status::least_squares_eps);
    all.ar_norm = 0.01;
    CHECK(code_of(rules, all) == Status::condition_eps);
    rules.conlim = 0;  // off
    CHECK(code_of(rules, all) == Status::iteration_limit);
    all.cond = std::numeric_limits<double>::quiet_NaN();  // CGLS has none
    rules.conlim = 10;
    CHECK(code_of(rules, all) == Status::iteration_limit);
}

TEST_CASE("recurrence: a huge x is no solution") {
    const StopRules rules = rules_of_one();
    Estimates e = far_from_done();
    e.x_norm = 1e9;  // atol ||A|| ||x|| = 1000 ||b||
    e.r_norm = 0.51;
    CHECK(raw_code(rules, e) == kGoOn);
    e.r_norm = 0.49;
    CHECK(code_of(rules, e) == Status::compatible);
    e.x_norm = 1e16;  // rounding of A x is larger than b
    e.r_norm = 1;
    CHECK(code_of(rules, e) == Status::compatible_eps);
    StopRules zero = rules;  // b = 0: nothing to be near to
    zero.b_norm = 0;
    e = far_from_done();
    e.r_norm = 1e-7;
    CHECK(code_of(zero, e) == Status::compatible);
}

TEST_CASE("recurrence: stagnation") {
    StopRules rules = rules_of_one();
    rules.max_iterations = 1000000;
    rules.stall_window = 50;
    const auto stops_at = [&](auto change) {
        StopMemory memory;
        Estimates e = far_from_done();
        for (e.iteration = 1; e.iteration < 1000; ++e.iteration) {
            change(e);
            const int code = stop_code(rules, e, memory);
            if (code != kGoOn) {
                CHECK(code == static_cast<int>(Status::stagnated));
                return e.iteration;
            }
        }
        return std::int64_t{-1};
    };
    CHECK(stops_at([](Estimates&) {}) == 51);  // the first iteration set the mark
    // Once 10 % better, in either test, and the window begins again.
    CHECK(stops_at([](Estimates& e) {
              if (e.iteration == 40) e.r_norm *= 0.89, e.ar_norm *= 0.89;
          }) == 90);
    CHECK(stops_at([](Estimates& e) {
              if (e.iteration == 40) e.ar_norm *= 0.89;
          }) == 90);
    CHECK(stops_at([](Estimates& e) {
              if (e.iteration == 40) e.ar_norm *= 0.95;
          }) == 51);
    // Slow but steady: 10 % in 45 iterations go on.
    CHECK(stops_at([](Estimates& e) { e.ar_norm *= std::pow(0.89, 1.0 / 45); }) == -1);
    CHECK(default_stall_window(10, 1000000) == 2000);
    CHECK(default_stall_window(5000, 7000) == 10000);
}

// --- iterates ---

TEST_CASE("recurrence: LSMR iterates by their definition") {
    const Matrix a = random_sparse(40, 15, 3, 601);
    const Vector b = random_vector(40, 602);
    for (const double damp : {0.0, 0.5, 3.0}) {
        const Oracle oracle = dense_solution(*a, b, damp);
        const double cond = oracle.sigma_max / oracle.sigma_min;
        for (int k = 1; k <= 8; ++k) {
            const DenseVector expected = lsmr_by_definition(dense(*a), dense(b), static_cast<long double>(damp), k);
            const Answer answer = solve(on_cpu(), a, b, exactly(Method::lsmr, k, damp));
            CAPTURE(damp);
            CAPTURE(k);
            // k steps of a recurrence whose errors grow with cond^2 at most.
            CHECK(distance(answer.x, rounded(expected)) <= 8 * k * cond * cond * kEps64 * norm(answer.x));
        }
    }
}

TEST_CASE("recurrence: LSQR and CGLS iterates by the textbook LSQR") {
    const Matrix a = random_sparse(40, 15, 3, 611);
    const Vector b = random_vector(40, 612);
    for (const double damp : {0.0, 0.5, 3.0}) {
        const Oracle oracle = dense_solution(*a, b, damp);
        const double cond = oracle.sigma_max / oracle.sigma_min;
        const auto expected = lsqr(dense(*a), dense(b), static_cast<long double>(damp), 10);
        for (const Method method : {Method::lsqr, Method::cgls}) {
            Recorder recorder;
            solve(on_cpu(), a, b, exactly(method, 10, damp), {}, &recorder);
            REQUIRE(recorder.all.size() == 10);
            for (std::size_t k = 0; k < 10; ++k) {
                const auto steps = static_cast<std::int64_t>(k) + 1;
                const Answer answer = solve(on_cpu(), a, b, exactly(method, steps, damp));
                CAPTURE(word(method));
                CAPTURE(damp);
                CAPTURE(steps);
                const double growth = 8 * static_cast<double>(steps) * cond * cond * kEps64;
                CHECK(distance(answer.x, rounded(expected[k].x)) <= growth * norm(answer.x));
                const auto r = static_cast<double>(expected[k].r_damped);
                const auto ar = static_cast<double>(expected[k].ar);
                const Truth t = truth(*a, b, answer.x, damp);
                check_within(recorder.all[k].r_norm, r, growth * (r + t.stacked * t.x), "||rbar||");
                check_within(recorder.all[k].ar_norm, ar, t.stacked * growth * (r + t.stacked * t.x), "||A'r||");
            }
        }
    }
}

// LSMR's ||A'r|| is the least of all methods in the same space, LSQR's and CGLS's ||r|| is.
TEST_CASE("recurrence: each method is best at its own") {
    const Matrix a = graded(*random_sparse(100, 40, 3, 621), 5);
    const Vector b = random_vector(100, 622);
    for (const double damp : {0.0, 0.3}) {
        for (std::int64_t k = 1; k <= 15; ++k) {
            const Truth lsmr = truth(*a, b, solve(on_cpu(), a, b, exactly(Method::lsmr, k, damp)).x, damp);
            const Truth cgls = truth(*a, b, solve(on_cpu(), a, b, exactly(Method::cgls, k, damp)).x, damp);
            CHECK(lsmr.ar <= cgls.ar + gradient_rounding(cgls));
            CHECK(cgls.r_damped <= lsmr.r_damped + residual_rounding(lsmr));
            const Truth lsqr = truth(*a, b, solve(on_cpu(), a, b, exactly(Method::lsqr, k, damp)).x, damp);
            CHECK(lsmr.ar <= lsqr.ar + gradient_rounding(lsqr));
            CHECK(lsqr.r_damped <= lsmr.r_damped + residual_rounding(lsmr));
        }
    }
}

// --- the scalar recurrences, driven by hand ---

namespace {

template <class Recurrence>
struct Driven {
    Recurrence r{};
    IterationRecord record;
    explicit Driven(const StopRules& rules, double lambda = 0) { r.prepare(1.0, lambda, rules, {&record, 1}, 0.0); }
    void finish(int stage, std::vector<double> sums_of_squares) {
        sums_of_squares.resize(4, 0.0);
        for (double& value : sums_of_squares) value *= value;
        r.finish(stage, sums_of_squares.data(), kGoOn);
    }
};
using LsmrDriven = Driven<LsmrRecurrence<double>>;
using Stage = LsmrRecurrence<double>;

StopRules no_tolerance() {
    StopRules rules = rules_of_one();
    rules.atol = rules.btol = 0;
    rules.conlim = 0;
    rules.max_iterations = 1000;
    return rules;
}

}  // namespace

// alpha = 0 or beta = 0 at the start, each alone: a product of the two could underflow to 0 where neither is.
TEST_CASE("recurrence: start tests") {
    for (const auto& [beta, alpha] : {std::pair{0.0, 0.0}, {1.0, 0.0}}) {
        LsmrDriven lsmr(no_tolerance());
        lsmr.finish(Stage::start_forward, {beta});
        lsmr.finish(Stage::start_adjoint, {alpha});
        CHECK(lsmr.r.progress.code == static_cast<int>(Status::start_solves));
    }
    StopRules small = no_tolerance();
    small.b_norm = 1e-120;
    small.eps = 0;
    LsmrDriven lsmr(small);
    lsmr.finish(Stage::start_forward, {1e-120});
    lsmr.finish(Stage::start_adjoint, {1e-120});
    CHECK(lsmr.r.progress.code == kGoOn);
}

// LSQR's lucky ends: beta = 0 (x exact), and alpha = 0 alone (least squares). Nothing divides by them.
TEST_CASE("recurrence: lucky end of LSQR") {
    StopRules rules = no_tolerance();
    rules.a_norm = 2;
    using Lsqr = Driven<LsqrRecurrence<double>>;
    Lsqr exact(rules);
    exact.finish(Stage::start_forward, {1});
    exact.finish(Stage::start_adjoint, {2});
    exact.finish(Stage::after_forward, {0, 0});
    exact.finish(Stage::after_adjoint, {0});
    CHECK(exact.r.progress.code == static_cast<int>(Status::compatible));
    CHECK(exact.r.progress.r_norm == 0);
    CHECK(exact.r.progress.ar_norm == 0);
    CHECK(exact.r.step_pending);
    check_within(exact.r.e1, 0.5, 4 * kEps64, "x = (beta / alpha) v");

    Lsqr least(rules);
    least.finish(Stage::start_forward, {1});
    least.finish(Stage::start_adjoint, {1});
    least.finish(Stage::after_forward, {1, 0});
    least.finish(Stage::after_adjoint, {0});
    CHECK(least.r.progress.code == static_cast<int>(Status::least_squares));
    check_within(least.r.progress.r_norm, std::sqrt(0.5), 4 * kEps64, "||r||");

    // The update waits for its forward product; a value that is not finite cancels it.
    Lsqr spoiled(no_tolerance());
    spoiled.finish(Stage::start_forward, {1});
    spoiled.finish(Stage::start_adjoint, {1});
    spoiled.finish(Stage::after_forward, {1, 0});
    spoiled.finish(Stage::after_adjoint, {std::nan("")});
    CHECK(spoiled.r.progress.code == static_cast<int>(Status::non_finite));
    CHECK(spoiled.r.progress.suspect == Suspect::alpha);
    CHECK_FALSE(spoiled.r.step_pending);
}

// beta = 0, then alpha = 0: the lucky end. Nothing divides by them, and x is the exact one.
TEST_CASE("recurrence: lucky end") {
    StopRules rules = no_tolerance();
    rules.a_norm = 2;
    LsmrDriven lsmr(rules);
    lsmr.finish(Stage::start_forward, {1});
    lsmr.finish(Stage::start_adjoint, {2});
    lsmr.finish(Stage::after_forward, {0, 0});
    CHECK(lsmr.r.d1.wide == 0);
    CHECK(lsmr.r.d2.wide == 0);  // v becomes 0
    lsmr.finish(Stage::after_adjoint, {0});
    const int code = lsmr.r.progress.code;
    CHECK((code == static_cast<int>(Status::compatible) || code == static_cast<int>(Status::least_squares)));
    CHECK(lsmr.r.progress.r_norm == 0);
    CHECK(lsmr.r.progress.ar_norm == 0);
    CHECK(lsmr.r.step_pending);
    check_within(lsmr.r.e2, 0.5, 4 * kEps64, "x = (beta / alpha) v");

    LsmrDriven least(rules);  // alpha = 0 alone: least squares
    least.finish(Stage::start_forward, {1});
    least.finish(Stage::start_adjoint, {1});
    least.finish(Stage::after_forward, {1, 0});
    least.finish(Stage::after_adjoint, {0});
    CHECK(least.r.progress.code == static_cast<int>(Status::least_squares));
    CHECK(least.r.progress.ar_norm == 0);
    check_within(least.r.progress.r_norm, std::sqrt(0.5), 4 * kEps64, "||r||");
}

// The condition estimate does not change with the scale of A: 1, the value that the recurrence starts rhobar with, is
// in it neither as the largest nor as the least.
TEST_CASE("recurrence: condition estimate is free of scale") {
    for (const double scale : {1.0, 1e-8, 1e-100, 1e8, 1e120}) {
        StopRules rules = no_tolerance();
        rules.a_norm = 10 * scale;
        LsmrDriven lsmr(rules);
        lsmr.finish(Stage::start_forward, {1});
        lsmr.finish(Stage::start_adjoint, {3 * scale});
        double cond[3];
        const double betas[] = {2, 1, 3}, alphas[] = {4, 2, 1};
        for (int k = 0; k < 3; ++k) {
            lsmr.finish(Stage::after_forward, {betas[k] * scale, 1 / scale});
            lsmr.finish(Stage::after_adjoint, {alphas[k] * scale});
            cond[k] = lsmr.r.progress.cond;
        }
        CHECK(cond[0] == 1);
        CHECK(cond[1] > 1);
        CHECK(cond[2] > 1);
        CHECK(cond[2] < 10);
        CHECK(lsmr.r.progress.code == kGoOn);
    }
}

// A GPU looks at the progress only now and then: what is queued behind a stop leaves the vectors and the count as they are. The update of
// the last iteration is made once, beside the first of these products.
TEST_CASE("recurrence: what is queued behind a stop changes nothing") {
    StopRules rules = no_tolerance();
    rules.a_norm = 10;
    rules.max_iterations = 2;
    const auto check = [](auto& driven) {
        using S = std::decay_t<decltype(driven.r)>;
        driven.finish(S::start_forward, {1});
        driven.finish(S::start_adjoint, {3});
        for (int k = 0; k < 2; ++k) {
            driven.finish(S::after_forward, {2, 1});
            driven.finish(S::after_adjoint, {4});
        }
        REQUIRE(driven.r.progress.code == static_cast<int>(Status::iteration_limit));
        CHECK_FALSE(driven.r.progress.finished);  // x is that of iteration 1 still
        CHECK(driven.r.step_pending);
        for (int queued = 0; queued < 3; ++queued) {
            // u <- u and v <- v
            CHECK(driven.r.c1.wide == 0);
            CHECK(driven.r.c2.wide == 1);
            driven.finish(S::after_forward, {2, 7});
            CHECK_FALSE(driven.r.step_pending);
            CHECK(driven.r.progress.finished);
            CHECK(driven.r.d1.wide == 0);
            CHECK(driven.r.d2.wide == 1);
            driven.finish(S::after_adjoint, {4});
            CHECK(driven.r.progress.iteration == 2);
            CHECK(driven.r.progress.published == 2);
            CHECK(driven.r.progress.x_norm == 7);
        }
    };
    LsmrDriven lsmr(rules);
    check(lsmr);
    Driven<LsqrRecurrence<double>> lsqr(rules);
    check(lsqr);

    Driven<CglsRecurrence<double>> cgls(rules);
    using Cgls = CglsRecurrence<double>;
    cgls.finish(Cgls::start_adjoint, {3, 1, 0, 0});
    for (int k = 0; k < 2; ++k) {
        cgls.finish(Cgls::after_forward, {2, 3});
        cgls.finish(Cgls::after_adjoint, {2, 0.9, 1, 0});
    }
    REQUIRE(cgls.r.progress.code == static_cast<int>(Status::iteration_limit));
    CHECK(cgls.r.progress.finished);
    CHECK(cgls.r.step == 0);
    cgls.finish(Cgls::after_forward, {2, 3});
    CHECK(cgls.r.step == 0);
    cgls.finish(Cgls::after_adjoint, {1, 0.8, 2, 0});
    CHECK(cgls.r.progress.iteration == 2);
    CHECK(cgls.r.progress.x_norm == 1);
}

// Code 6: with exact products test 5 comes first, so numbers that no matrix gives are needed to see it.
TEST_CASE("recurrence: condition at machine precision") {
    StopRules rules = no_tolerance();
    rules.conlim = 1e300;
    rules.a_norm = 1e-30;
    LsmrDriven lsmr(rules);
    lsmr.finish(Stage::start_forward, {1});
    lsmr.finish(Stage::start_adjoint, {1});
    lsmr.finish(Stage::after_forward, {1, 0});
    lsmr.finish(Stage::after_adjoint, {1e-18});
    CHECK(lsmr.r.progress.code == kGoOn);
    lsmr.finish(Stage::after_forward, {1e-18, 1});
    lsmr.finish(Stage::after_adjoint, {1e-18});
    CHECK(lsmr.r.progress.code == static_cast<int>(Status::condition_eps));
    CHECK(lsmr.r.progress.cond >= 1 / kEps64);
}

// What was not finite, and when; the step that waits is cancelled.
TEST_CASE("recurrence: non-finite numbers are named") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double bad : {nan, infinity}) {
        LsmrDriven start(no_tolerance());
        start.finish(Stage::start_forward, {1});
        start.finish(Stage::start_adjoint, {bad});
        CHECK(start.r.progress.code == static_cast<int>(Status::non_finite));
        CHECK(start.r.progress.suspect == Suspect::alpha);
        CHECK(start.r.progress.suspect_iteration == 0);
        CHECK_FALSE(start.r.step_pending);

        LsmrDriven first(no_tolerance());
        first.finish(Stage::start_forward, {bad});
        CHECK(first.r.d1.wide == 0);
        first.finish(Stage::start_adjoint, {0});
        CHECK(first.r.progress.suspect == Suspect::beta);

        for (const bool in_adjoint : {false, true}) {
            LsmrDriven lsmr(no_tolerance());
            lsmr.finish(Stage::start_forward, {1});
            lsmr.finish(Stage::start_adjoint, {1});
            lsmr.finish(Stage::after_forward, {1, 0});
            lsmr.finish(Stage::after_adjoint, {1});
            REQUIRE(lsmr.r.progress.code == kGoOn);
            lsmr.finish(Stage::after_forward, {in_adjoint ? 1 : bad, 1});
            if (in_adjoint) lsmr.finish(Stage::after_adjoint, {bad});
            CHECK(lsmr.r.progress.code == static_cast<int>(Status::non_finite));
            CHECK(lsmr.r.progress.suspect == (in_adjoint ? Suspect::alpha : Suspect::beta));
            CHECK(lsmr.r.progress.suspect_iteration == 2);
            CHECK(lsmr.r.progress.iteration == 1);
            CHECK_FALSE(lsmr.r.step_pending);
        }
    }
}

// In fp32 a coefficient that fp64 holds may be infinite: it must not reach x.
TEST_CASE("recurrence: coefficients too large for fp32") {
    StopRules rules = no_tolerance();
    rules.eps = 0;
    rules.a_norm = 0;
    Driven<LsmrRecurrence<float>> lsmr(rules);
    lsmr.finish(Stage::start_forward, {1});
    lsmr.finish(Stage::start_adjoint, {1e-42});
    lsmr.finish(Stage::after_forward, {1e-42, 0});
    lsmr.finish(Stage::after_adjoint, {1e-42});
    CHECK(lsmr.r.progress.code == static_cast<int>(Status::non_finite));
    CHECK(lsmr.r.progress.suspect == Suspect::coefficients);
    CHECK_FALSE(lsmr.r.step_pending);

    Driven<CglsRecurrence<float>> cgls(rules);
    cgls.finish(CglsRecurrence<float>::start_adjoint, {1, 1, 0, 0});
    REQUIRE(cgls.r.progress.code == kGoOn);
    cgls.finish(CglsRecurrence<float>::after_forward, {1e-21, 1});  // the step is 1e42
    CHECK(cgls.r.progress.code == static_cast<int>(Status::non_finite));
    CHECK(cgls.r.progress.suspect == Suspect::coefficients);
    CHECK(cgls.r.step == 0);
}

// A record of the past is not overwritten before it is read: the ring is indexed by the iteration.
TEST_CASE("recurrence: ring of records") {
    IterationRecord records[4];
    const RecordRing ring{records, 4};
    for (std::int64_t k = 1; k <= 10; ++k) {
        IterationRecord record;
        record.iteration = k;
        ring.put(record);
        for (std::int64_t back = 0; back < std::min<std::int64_t>(4, k); ++back) {
            CHECK(records[(k - back - 1) % 4].iteration == k - back);
        }
    }
}
