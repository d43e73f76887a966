// Conjugate gradients for symmetric positive definite A, and the choice of a method. As solver_suite.hpp: called per
// backend.
#pragma once

#include <doctest/doctest.h>

#include "solver/method_choice.hpp"
#include "solver_suite.hpp"
#include "support/checks.hpp"
#include "support/dense_oracle.hpp"
#include "support/problems.hpp"

namespace lsmr::test {

// The grid's five-point Laplacian, n = side^2, plus shift on the diagonal: symmetric positive definite; strictly
// dominant where shift > 0.
inline Matrix laplacian(std::int64_t side, double shift) {
    Triplets t{side * side, side * side, {}, {}, {}};
    for (std::int64_t i = 0; i < side; ++i) {
        for (std::int64_t j = 0; j < side; ++j) {
            const std::int64_t k = i * side + j;
            t.add(k, k, 4 + shift);
            if (i > 0) t.add(k, k - side, -1);
            if (i + 1 < side) t.add(k, k + side, -1);
            if (j > 0) t.add(k, k - 1, -1);
            if (j + 1 < side) t.add(k, k + 1, -1);
        }
    }
    return t.matrix();
}
// Symmetric positive definite, but not dominant: 0.1 I + M^T M.
inline Matrix spd_matrix() {
    const DenseMatrix m = dense(*random_sparse(40, 40, 3, 701));
    const DenseMatrix product = m.transpose() * m + 0.1L * DenseMatrix::Identity(40, 40);
    Triplets t{40, 40, {}, {}, {}};
    for (std::int64_t i = 0; i < 40; ++i) {
        for (std::int64_t j = 0; j < 40; ++j) {
            const double value = static_cast<double>(i < j ? product(i, j) : product(j, i));
            if (value != 0) t.add(i, j, value);
        }
    }
    return t.matrix();
}

inline void suite_cg_answers(const PrepareOptions& base) {
    for (const Matrix& a : {laplacian(12, 0), laplacian(12, 0.5), spd_matrix()}) {
        const Vector b = random_vector(a->rows(), 711);
        const Vector x0 = random_vector(a->cols(), 712);
        const Oracle oracle = dense_solution(*a, b);
        for (const Precision precision : kPrecisions) {
            for (const bool warm : {false, true}) {
                const PrepareOptions prepare = with_precision(base, precision);
                const SolveOptions options = with_method(Method::cg, precision == Precision::fp64 ? 1e-11 : 1e-5);
                const std::optional<Vector> start = warm ? std::optional<Vector>(x0) : std::nullopt;
                const Answer answer = solve(prepare, a, b, options, start);
                const Truth t = truth(*a, b, answer.x, 0, {}, start.value_or(Vector{}));
                CAPTURE(word(precision));
                CAPTURE(warm);
                CAPTURE(answer.result.message);
                CHECK(answer.result.status == Status::compatible);
                CHECK(answer.result.method == Method::cg);
                check_claim(answer.result, t, options, eps_of(prepare));
                check_norms(answer.result, t);
                // x - x* = A^-1 r
                CHECK(distance(answer.x, oracle.x) <= (t.r + residual_rounding(t)) / oracle.sigma_min);
            }
        }
    }
    // p^T A p below sqrt(eps) ||A|| ||p||^2 is no breakdown.
    const Answer small = solve(base, diagonal({1, 0x1p-30}), {1, 1}, with_method(Method::cg, 1e-12));
    CHECK(small.result.converged());
    CHECK(std::abs(small.x[1] - 0x1p30) <= 1e-6 * 0x1p30);
    // One product an iteration and the condition in place of its square: far fewer iterations than least squares.
    const Matrix a = laplacian(30, 0);
    const Vector b = random_vector(a->rows(), 713);
    SolveOptions options = with_method(Method::cg, 1e-8);
    const std::int64_t cg = solve(base, a, b, options).result.iterations;
    options.method = Method::lsmr;
    options.max_iterations = 20000;
    CHECK(5 * cg < solve(base, a, b, options).result.iterations);
}

inline void suite_cg_statuses(const PrepareOptions& base) {
    const Matrix a = laplacian(10, 0);
    const Vector b = random_vector(a->rows(), 721);
    Recorder recorder;
    const Answer answer = solve(base, a, b, with_method(Method::cg, 1e-10), {}, &recorder);
    REQUIRE(static_cast<std::int64_t>(recorder.all.size()) == answer.result.iterations);
    for (std::size_t k = 0; k < recorder.all.size(); ++k) {
        const IterationRecord& record = recorder.all[k];
        const Answer shorter = solve(base, a, b, exactly(Method::cg, static_cast<std::int64_t>(k) + 1));
        const Truth t = truth(*a, b, shorter.x);
        CHECK(record.iteration == static_cast<std::int64_t>(k) + 1);
        check_within(record.x_norm, t.x, 8 * kEps64 * t.x, "||x|| of a record");
        check_within(record.r_norm, t.r, 1e-10 * t.r + residual_rounding(t), "||r|| of a record");
        CHECK(std::isnan(record.ar_norm));
        CHECK(std::isnan(record.cond));
    }
    CHECK(std::isnan(answer.result.norms.ar_estimated));
    const Truth t = truth(*a, b, answer.x);
    check_within(answer.result.norms.ar, t.ar, gradient_rounding(t), "||A'r||");

    CHECK(solve(base, a, Vector(100, 0.0), with_method(Method::cg)).result.status == Status::start_solves);
    const Answer none = solve(base, a, b, exactly(Method::cg, 0));
    CHECK(none.result.status == Status::iteration_limit);
    CHECK(norm(none.x) == 0);
    const Answer few = solve(base, a, b, exactly(Method::cg, 3));
    CHECK(few.result.status == Status::iteration_limit);
    CHECK(few.result.iterations == 3);
    CHECK(solve(base, a, b, exactly(Method::cg, 10000)).result.status == Status::compatible_eps);
    // Not positive definite: found out in the solve, x is the last good iterate.
    const Answer indefinite = solve(base, diagonal({2, 1, -3, 5}), {1, 1, 1, 1}, with_method(Method::cg, 1e-12));
    CHECK(indefinite.result.status == Status::breakdown);
    CHECK(indefinite.result.message.find("not positive definite") != std::string::npos);
    check_norms(indefinite.result, truth(*diagonal({2, 1, -3, 5}), {1, 1, 1, 1}, indefinite.x));
    const Answer zero = solve(base, zero_matrix(3, 3), {1, 1, 1}, with_method(Method::cg));
    CHECK(zero.result.status == Status::breakdown);
    // Singular but solvable: the answer from zero lies in the range of A.
    const Answer singular = solve(base, diagonal({1, 2, 0}), {1, 4, 0}, with_method(Method::cg, 1e-12));
    CHECK(singular.result.converged());
    CHECK(distance(singular.x, {1, 2, 0}) <= 8 * kEps64 * 3);
}

inline void suite_cg_refusals(const PrepareOptions& base) {
    const auto refused = [&](const Matrix& a, const SolveOptions& options, const std::string& part) {
        PreparedProblem problem(a, base);
        Vector x(index(a->cols()), 0.0);
        std::string message;
        try {
            problem.solve(Vector(index(a->rows()), 1.0), x, options);
        } catch (const InputError& error) {
            message = error.what();
        }
        INFO(message);
        CHECK(message.find(part) != std::string::npos);
    };
    const SolveOptions cg = with_method(Method::cg);
    refused(tall_matrix(), cg, "cg needs a symmetric positive definite A; this one is 120 x 40");
    refused(matrix_of(2, 2, {1, 2, 3, 4}), cg, "entry (1, 2) is 2, entry (2, 1) is 3");
    refused(matrix_of(2, 2, {1, 2, 0, 4}), cg, "entry (1, 2) is 2, entry (2, 1) is 0");
    refused(matrix_of(2, 2, {1, 0, 2, 4}), cg, "entry (2, 1) is 2, entry (1, 2) is 0");
    refused(matrix_of(3, 3, {1, 0, 0, 0, 1, 0, 7, 0, 1}), cg, "entry (3, 1) is 7, entry (1, 3) is 0");
    refused(matrix_of(3, 3, {1, 0, 7, 5, 1, 0, 7, 0, 1}), cg, "entry (2, 1) is 5, entry (1, 2) is 0");
    SolveOptions damped = cg;
    damped.damp = 0.1;
    refused(laplacian(3, 0), damped, "knows no damping");
}

inline void suite_cg_scaled(const PrepareOptions& base) {
    const Matrix a = spd_matrix();
    const Vector b = random_vector(a->rows(), 731);
    for (const Precision precision : kPrecisions) {
        const PrepareOptions prepare = with_precision(base, precision);
        const Answer plain = solve(prepare, a, b, with_method(Method::cg));
        REQUIRE(plain.result.converged());
        for (const auto& [ea, eb] : {std::pair{-27, 0}, {500, 0}, {-500, 500}, {950, 400}}) {
            const Answer other = solve(prepare, std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(ea)),
                                       scaled(b, std::ldexp(1.0, eb)), with_method(Method::cg));
            CHECK(other.result.iterations == plain.result.iterations);
            CHECK(same_bits(other.x, scaled(plain.x, std::ldexp(1.0, eb - ea))));
        }
    }
}

inline void suite_automatic_method(const PrepareOptions& base) {
    SolveOptions options = with_method(Method::automatic, 1e-8);
    const auto chosen = [&](const Matrix& a) {
        PreparedProblem problem(a, base);
        const MethodChoice choice = problem.choose_method(options);
        CHECK(!choice.reason.empty());
        const Answer answer = solve(problem, random_vector(a->rows(), 741), options);
        CHECK(answer.result.method == choice.method);
        CHECK(answer.result.converged());
        return choice.method;
    };
    CHECK(chosen(tall_matrix()) == Method::lsmr);
    CHECK(chosen(wide_matrix()) == Method::lsqr);
    CHECK(chosen(square_matrix()) == Method::lsqr);
    CHECK(chosen(laplacian(6, 0.5)) == Method::cg);
    CHECK(chosen(laplacian(6, 0)) == Method::lsqr);  // dominant, but not strictly: not proved
    CHECK(chosen(scaled(*laplacian(6, 0.5), -1)) == Method::lsqr);
    CHECK(chosen(matrix_of(2, 2, {3, 1, 2, 3})) == Method::lsqr);  // dominant, but not symmetric
    options.damp = 0.1;
    CHECK(chosen(laplacian(6, 0.5)) == Method::lsmr);
    CHECK(chosen(wide_matrix()) == Method::lsmr);
    options = with_method(Method::cgls);
    PreparedProblem problem(tall_matrix(), base);
    CHECK(problem.choose_method(options).method == Method::cgls);
    CHECK(problem.choose_method(options).reason.empty());
}

}  // namespace lsmr::test
