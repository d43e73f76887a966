// The stops beside atol, btol and conlim: bounds on ||A'r||, several passes, stagnation, the trust radius. As
// solver_suite.hpp.
#pragma once

#include <doctest/doctest.h>

#include "cg_suite.hpp"
#include "solver_suite.hpp"

namespace lsmr::test {

// An absolute and a relative bound on ||A'r||, with and without damping, from zero and from x0.
inline void suite_gradient_bounds(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(150, 50, 4, 801), 10);
    const Vector b = random_vector(a->rows(), 802);
    const Vector x0 = random_vector(a->cols(), 803);
    for (const Method method : kMethods) {
        for (const double damp : {0.0, 0.2}) {
            for (const bool warm : {false, true}) {
                const std::optional<Vector> start = warm ? std::optional<Vector>(x0) : std::nullopt;
                const Truth at_start =
                    truth(*a, b, warm ? x0 : Vector(x0.size(), 0.0), damp, {}, start.value_or(Vector{}));
                for (const bool relative : {false, true}) {
                    SolveOptions options = with_method(method, 0.0);
                    options.damp = damp;
                    (relative ? options.ar_relative : options.ar_bound) = 1e-5;
                    const double bound = relative ? 1e-5 * at_start.ar : 1e-5;
                    Recorder recorder;
                    const Answer answer = solve(base, a, b, options, start, &recorder);
                    const Truth t = truth(*a, b, answer.x, damp, {}, start.value_or(Vector{}));
                    CAPTURE(word(method));
                    CAPTURE(damp);
                    CAPTURE(warm);
                    CAPTURE(relative);
                    CAPTURE(answer.result.message);
                    CHECK(answer.result.status == Status::least_squares);
                    CHECK(answer.result.message.find("asked for") != std::string::npos);
                    CHECK(t.ar <= 2 * bound);
                    check_norms(answer.result, t);
                    // The first iteration that meets it.
                    REQUIRE(recorder.all.size() >= 2);
                    CHECK(recorder.all.back().ar_norm <= bound * (1 + 1e-12));
                    CHECK(recorder.all[recorder.all.size() - 2].ar_norm > bound * (1 - 1e-12));
                    const double ratio = t.ar / t.r_damped / (at_start.ar / at_start.r_damped);
                    check_within(answer.result.norms.start_ratio, ratio, 1e-6 * ratio, "ratio to the start");
                    CHECK(answer.result.norms.start_ratio < 1e-3);
                }
            }
        }
    }
}

// A test must pass in so many iterations in a row.
inline void suite_passes(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(150, 50, 4, 811), 10);
    const Vector b = random_vector(a->rows(), 812);
    const auto passes = [](const IterationRecord& record) { return record.ls <= 1e-4 || record.compat <= 1e-4; };
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method, 1e-4);
        const Answer once = solve(base, a, b, options);
        options.passes = 4;
        Recorder recorder;
        const Answer answer = solve(base, a, b, options, {}, &recorder);
        CAPTURE(word(method));
        CHECK(answer.result.status == Status::least_squares);
        CHECK(answer.result.iterations >= once.result.iterations + 3);
        REQUIRE(recorder.all.size() >= 5);
        const std::size_t last = recorder.all.size() - 1;
        for (std::size_t k = 0; k < 4; ++k) CHECK(passes(recorder.all[last - k]));
        CHECK_FALSE(passes(recorder.all[last - 4]));
        check_claim(answer.result, truth(*a, b, answer.x), options, kEps64);
        // Nowhere to go on to: once is enough.
        const Answer exact = solve(base, diagonal(Vector(5, 2.0)), {2, 4, 6, 8, 10}, options);
        CHECK(exact.result.converged());
        CHECK(exact.result.iterations <= 5);
        // The limit comes first.
        options.max_iterations = once.result.iterations + 1;
        CHECK(solve(base, a, b, options).result.status == Status::iteration_limit);
    }
}

// Condition 1e16: without a tolerance nothing improves any more.
inline Matrix lstp_matrix() {
    return std::make_shared<const CsrMatrix>(lstp(40, 40, 1, 10, 0).a.clone());
}

// 12: a window that the caller chose; 0 switches it off.
inline void suite_stall_window(const PrepareOptions& base) {
    const Matrix a = lstp_matrix();
    const Vector b = random_vector(a->rows(), 822);
    for (const Method method : kMethods) {
        SolveOptions options = exactly(method, 3000);
        options.stall_window = 50;
        const Answer stalled = solve(base, a, b, options);
        CAPTURE(word(method));
        CAPTURE(stalled.result.message);
        CHECK(stalled.result.status == Status::stagnated);
        CHECK(stalled.result.iterations < 3000);
        check_norms(stalled.result, truth(*a, b, stalled.x));
        options.stall_window = 0;
        const Answer limited = solve(base, a, b, options);
        CHECK(limited.result.status != Status::stagnated);
        CHECK(limited.result.iterations > stalled.result.iterations);
    }
}

// 14: x ends on the sphere ||x - x0|| = radius, on the way from one iterate to the next.
inline void suite_trust_radius(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(150, 50, 4, 831), 10);
    const Vector b = random_vector(a->rows(), 832);
    const Vector x0 = random_vector(a->cols(), 833);
    const Vector c = random_vector(a->cols(), 834);
    for (const Precision precision : kPrecisions) {
        PrepareOptions prepare = with_precision(base, precision);
        prepare.executor = ExecutorKind::graph;  // a bounded solve runs there, and bits are compared
        const double eps = eps_of(prepare);
        for (const Method method : kMethods) {
            for (const double damp : {0.0, 0.2}) {
                for (const bool warm : {false, true}) {
                    const std::optional<Vector> start = warm ? std::optional<Vector>(x0) : std::nullopt;
                    const Vector from = start.value_or(Vector(x0.size(), 0.0));
                    SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-8 : 1e-4);
                    options.damp = damp;
                    options.damp_center = damp > 0 ? DampCenter::given : DampCenter::zero;
                    options.center = c;
                    const Answer free = solve(prepare, a, b, options, start);
                    REQUIRE(free.result.converged());
                    const double reach = distance(free.x, from);
                    CAPTURE(word(precision));
                    CAPTURE(word(method));
                    CAPTURE(damp);
                    CAPTURE(warm);
                    // Far enough away it changes nothing, not a bit.
                    options.trust_radius = 2 * reach;
                    CHECK(same_bits(solve(prepare, a, b, options, start).x, free.x));
                    for (const double part : {0.05, 0.6, 0.99}) {
                        options.trust_radius = part * reach;
                        Recorder recorder;
                        const Answer bound = solve(prepare, a, b, options, start, &recorder);
                        CAPTURE(part);
                        CHECK(bound.result.status == Status::trust_bound);
                        CHECK(!bound.result.converged());
                        CHECK(bound.result.message.find("the radius is") != std::string::npos);
                        check_within(distance(bound.x, from), options.trust_radius,
                                     32 * eps * (norm(bound.x) + norm(from)), "||x - x0||");
                        check_norms(bound.result,
                                    truth(*a, b, bound.x, damp, damp > 0 ? c : Vector{}, start.value_or(Vector{})));
                        const std::int64_t k = bound.result.iterations;
                        CHECK(static_cast<std::int64_t>(recorder.all.size()) == k);
                        SolveOptions step = exactly(method, k, damp);
                        step.damp_center = options.damp_center;
                        step.center = c;
                        const Answer after = solve(prepare, a, b, step, start);
                        step.max_iterations = k - 1;
                        const Answer before = solve(prepare, a, b, step, start);
                        CHECK(distance(before.x, from) <= options.trust_radius * (1 + 16 * eps));
                        CHECK(distance(after.x, from) >= options.trust_radius * (1 - 16 * eps));
                        // On the line between them.
                        CHECK(distance(before.x, bound.x) + distance(bound.x, after.x) <=
                              distance(before.x, after.x) + 64 * eps * (norm(after.x) + norm(from)));
                        // The estimates of the step that was cut are not those of x: none is given, or they are true.
                        const double r = bound.result.norms.r_estimated;
                        CHECK((std::isnan(r) ||
                               std::abs(r - bound.result.norms.r_damped) <= 1e3 * eps * bound.result.norms.b));
                    }
                }
            }
        }
    }
    const Matrix spd = spd_matrix();
    const Vector rhs = random_vector(spd->rows(), 835);
    SolveOptions options = with_method(Method::cg, 1e-8);
    const double reach = norm(solve(base, spd, rhs, options).x);
    options.trust_radius = 0.5 * reach;
    const Answer bound = solve(base, spd, rhs, options);
    CHECK(bound.result.status == Status::trust_bound);
    check_within(norm(bound.x), options.trust_radius, 16 * kEps64 * reach, "||x||");
    check_norms(bound.result, truth(*spd, rhs, bound.x));
}

inline void suite_stop_options_refused(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 841);
    PreparedProblem problem(a, base);
    const auto refused = [&](auto change, const std::string& part) {
        SolveOptions options;
        change(options);
        Vector x(index(a->cols()), 0.0);
        std::string message;
        try {
            problem.solve(b, x, options);
        } catch (const InputError& error) {
            message = error.what();
        }
        INFO(message << ", expected: " << part);
        CHECK(message.find(part) != std::string::npos);
    };
    const double nan = std::nan("");
    refused([&](SolveOptions& o) { o.ar_bound = -1; }, "bound on ||A'r||");
    refused([&](SolveOptions& o) { o.ar_relative = 1; }, "relative bound");
    refused([&](SolveOptions& o) { o.ar_relative = nan; }, "relative bound");
    refused([&](SolveOptions& o) { o.passes = 0; }, "at least once");
    refused([&](SolveOptions& o) { o.stall_window = -2; }, "stagnation");
    refused([&](SolveOptions& o) { o.trust_radius = nan; }, "trust radius");
    const Vector few(3, 1.0);
    refused([&](SolveOptions& o) { o.damp_center = DampCenter::given, o.center = few; },
            "the centre has 3 entries, A is 120 x 40");
    Vector spoiled(40, 1.0);
    spoiled[6] = nan;
    refused([&](SolveOptions& o) { o.damp_center = DampCenter::given, o.center = spoiled; }, "centre: entry 7");
    PreparedProblem spd(laplacian(3, 0), base);
    SolveOptions cg = with_method(Method::cg);
    cg.ar_bound = 1;
    Vector x(9, 0.0);
    CHECK_THROWS_WITH_AS(spd.solve(Vector(9, 1.0), x, cg),
                         "cg does not estimate ||A'r||, so it cannot stop at a bound on it", InputError);
}

}  // namespace lsmr::test
