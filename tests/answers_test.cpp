// Answers about the answer and mixed precision, on the CPU.
#include <doctest/doctest.h>
#include <omp.h>

#include "answers_suite.hpp"
#include "checkpoint_suite.hpp"
#include "operator/function_operator.hpp"
#include "solver/incomplete_cholesky.hpp"
#include "support/devices.hpp"

using namespace lsmr;
using namespace lsmr::test;

TEST_CASE("answers: solves with A^T A") {
    suite_normal_solves(on_cpu());
}
TEST_CASE("answers: standard errors") {
    suite_standard_errors(on_cpu());
}
TEST_CASE("answers: mixed precision") {
    suite_mixed_precision(on_cpu());
}

TEST_CASE("answers: a v is made orthogonal to those before it") {
    suite_reorthogonalization(on_cpu());
}
TEST_CASE("answers: lambda is chosen") {
    suite_chosen_damping(on_cpu());
}
TEST_CASE("answers: a preconditioner that is given") {
    suite_given_preconditioner(on_cpu());
}

// A user's A and K, as operators; another K than the inverse of anything is right too, if slow.
TEST_CASE("answers: operators as A and K") {
    on_cpu();
    const Matrix a = graded(*random_sparse(120, 40, 3, 2061), 1e4);
    const Vector b = random_vector(120, 2062);
    const auto of = [](const Matrix& m) {
        const Matrix t = transposed(*m);
        const auto multiply = [](const Matrix& by, const double* x, double* y) {
            const Vector p = product(*by, Vector(x, x + by->cols()));
            std::copy(p.begin(), p.end(), y);
        };
        return FunctionOperator<double>(m->rows(), m->cols(), [=](const double* x, double* y) { multiply(m, x, y); },
                                        [=](const double* x, double* y) { multiply(t, x, y); });
    };
    Vector scale(40);
    for (std::size_t j = 0; j < 40; ++j) scale[j] = std::pow(1e4, static_cast<double>(j) / 39);
    const FunctionOperator<double> op = of(a), k = of(diagonal(scale)), small = of(diagonal(Vector(39, 1.0)));
    for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
        for (const double damp : {0.0, 0.05}) {
            SolveOptions options = with_method(method, 1e-10);
            options.conlim = 0;
            options.max_iterations = 5000;
            options.damp = damp;
            Vector x(40), plain(40);
            const SolveResult without = lsmr::solve<double>(op, b, plain, options);
            const SolveResult result = lsmr::solve<double>(op, b, x, options, false, nullptr, &k);
            CAPTURE(word(method));
            CAPTURE(damp);
            CAPTURE(result.message);
            CHECK(result.converged());
            if (damp == 0) CHECK(3 * result.iterations < without.iterations);
            const Oracle oracle = dense_solution(*a, b, damp);
            const Truth t = truth(*a, b, x, damp);
            CHECK(distance(x, oracle.x) <= error_bound(t, oracle.sigma_min));
            // ||A|| of the claim is estimated, to some percent.
            CHECK(t.ar <= 3 * std::max(options.atol * t.stacked * t.r_damped, 8 * kEps64 * t.stacked * (t.stacked * t.x + t.b)));
        }
    }
    Vector x(40);
    CHECK_THROWS_AS(lsmr::solve<double>(op, b, x, with_method(Method::lsmr), false, nullptr, &small), InputError);
    SolveOptions bounded;
    bounded.trust_radius = 1;
    CHECK_THROWS_AS(lsmr::solve<double>(op, b, x, bounded, false, nullptr, &k), InputError);
}

TEST_CASE("answers: incomplete Cholesky") {
    const PrepareOptions base = on_cpu();
    // Complete where nothing is dropped: K^T N K = I.
    const Matrix a = graded(*random_sparse(90, 25, 3, 2071), 1e3);
    const Matrix l = random_sparse(12, 25, 2, 2072);
    for (const bool stacks : {false, true}) {
        for (const double damp : {0.0, 0.3}) {
            const IncompleteCholesky factor(*a, stacks ? l.get() : nullptr, {}, damp, {.drop = 0, .shift = 0, .limit_bytes = 1 << 20});
            CHECK(factor.shift() == 0);
            const auto k = factor.inverse<double>();
            const auto workspace = k->make_workspace(nullptr);
            DenseMatrix kd(25, 25), kt(25, 25);
            Coefficient<double> one{1, 1}, zero{0, 0};
            for (Eigen::Index j = 0; j < 25; ++j) {
                Vector e(25, 0.0), y(25, std::numeric_limits<double>::quiet_NaN());
                e[static_cast<std::size_t>(j)] = 1;
                k->apply(&one, e.data(), &zero, y.data(), *workspace);
                kd.col(j) = dense(y);
                k->apply_adjoint(&one, e.data(), &zero, y.data(), *workspace);
                kt.col(j) = dense(y);
            }
            CHECK(static_cast<double>((kd.transpose() - kt).cwiseAbs().maxCoeff()) <= 1e-12 * static_cast<double>(kd.cwiseAbs().maxCoeff()));
            DenseMatrix n = dense(*a).transpose() * dense(*a);
            if (stacks) n += dense(*l).transpose() * dense(*l);
            n.diagonal().array() += damp * damp;
            const long double scale = std::ldexp(1.0L, -2 * factor.exponent());
            const DenseMatrix identity = scale * kd.transpose() * n * kd - DenseMatrix::Identity(25, 25);
            CHECK(static_cast<double>(identity.cwiseAbs().maxCoeff()) < 1e-8);
        }
    }
    // Level 0 keeps the pattern of A^T A, a threshold less; a limit is kept to.
    const Matrix chain = [] {  // differences of neighbours and a little of each: A^T A is tridiagonal
        Triplets t{400, 200, {}, {}, {}};
        for (std::int64_t i = 0; i < 199; ++i) {
            t.add(i, i, 1);
            t.add(i, i + 1, -1);
        }
        for (std::int64_t i = 0; i < 200; ++i) t.add(200 + i, i, 1e-3);
        return t.matrix();
    }();
    const IncompleteCholesky level_0(*chain, nullptr, {}, 0, {.drop = -1, .shift = 0, .limit_bytes = 1 << 20});
    CHECK(level_0.nnz() == 399);
    CHECK(IncompleteCholesky(*chain, nullptr, {}, 0, {.drop = 0.9, .shift = 0, .limit_bytes = 1 << 20}).nnz() < 399);
    CHECK_THROWS_AS(IncompleteCholesky(*chain, nullptr, {}, 0, {.drop = -1, .shift = 0, .limit_bytes = 100}), InputError);
}

// Kept vectors and variances are part of a state: a resumed solve gives the same bits.
TEST_CASE("answers: states of solves that keep vectors") {
    const Matrix a = graded(*random_sparse(120, 40, 3, 2081), 1e3);
    const Vector b = random_vector(120, 2082);
    for (const std::int64_t window : {std::int64_t{5}, SolveOptions::kAll}) {
        PreparedProblem problem(a, on_cpu());
        SolveOptions options = with_method(Method::lsqr, 1e-10);
        options.reorthogonalize = window;
        options.estimate_variances = true;
        Saver saver({3, 12});
        const Answer whole = solve(problem, b, options, {}, &saver);
        REQUIRE(saver.saved.size() >= 2);
        for (const Checkpoint& from : saver.saved) {
            const Answer again = resumed(problem, b, options, {}, from);
            check_same(again, whole);
            CHECK(same_bits(again.result.variances, whole.result.variances));
        }
        options.reorthogonalize = 0;
        CHECK_THROWS_AS(resumed(problem, b, options, {}, saver.saved[0]), InputError);
    }
}
