// Answers about the answer, and mixed precision: what every executor must satisfy, against dense matrices.
#pragma once

#include <doctest/doctest.h>

#include <Eigen/Dense>

#include "memory/error.hpp"
#include "solver/standard_errors.hpp"
#include "support/checks.hpp"
#include "support/dense_oracle.hpp"
#include "support/problems.hpp"

namespace lsmr::test {

// (A^T W A + G^T G + lambda^2 I)^-1
inline DenseMatrix dense_inverse(const CsrMatrix& a, const Vector& weights, const CsrMatrix* g, double damp) {
    DenseMatrix d = dense(a);
    for (std::size_t i = 0; i < weights.size(); ++i)
        d.row(static_cast<Eigen::Index>(i)) *= std::sqrt(static_cast<long double>(weights[i]));
    DenseMatrix n = d.transpose() * d;
    if (g != nullptr) n += dense(*g).transpose() * dense(*g);
    n.diagonal().array() += static_cast<long double>(damp) * static_cast<long double>(damp);
    return n.ldlt().solve(DenseMatrix::Identity(n.rows(), n.cols()));
}

inline Vector positive(Vector p) {
    for (double& value : p) value = 0.2 + std::abs(value);
    return p;
}

// Every form of the problem, any scale, with and without a preconditioner.
inline void suite_normal_solves(const PrepareOptions& base) {
    const Matrix a = random_sparse(90, 25, 3, 2001);
    const Matrix l = random_sparse(12, 25, 2, 2002);
    const Vector g = random_vector(25, 2003), w = positive(random_vector(90, 2004));
    for (const bool shaped : {false, true}) {
        for (const double damp : {0.0, 0.7}) {
            const DenseMatrix inverse = dense_inverse(*a, shaped ? w : Vector(), shaped ? l.get() : nullptr, damp);
            const Vector expected = rounded(inverse * dense(g));
            for (const Scaling scale : {Scaling::none, Scaling::columns}) {
                for (const Preconditioner preconditioner : {Preconditioner::none, Preconditioner::columns, Preconditioner::blocks}) {
                    PrepareOptions prepare = base;
                    prepare.scale = scale;
                    prepare.preconditioner = preconditioner;
                    if (shaped) {
                        prepare.weights = w;
                        prepare.regulariser = l;
                    }
                    SolveOptions options = with_method(Method::lsmr, 1e-13);
                    options.damp = damp;
                    PreparedProblem problem(a, prepare);
                    Vector z(25, std::numeric_limits<double>::quiet_NaN());
                    const SolveResult result = problem.solve_normal(g, z, options);
                    CAPTURE(shaped);
                    CAPTURE(damp);
                    CAPTURE(static_cast<int>(preconditioner));
                    CAPTURE(result.message);
                    CHECK(result.converged());
                    CHECK(result.norms.ar <= 1e-11 * norm(g));
                    CHECK(distance(z, expected) <= 1e-11 * norm(expected));
                }
            }
        }
    }
    const Vector expected = rounded(dense_inverse(*a, {}, nullptr, 0) * dense(g));
    for (const int e : {-300, -40, 40, 300}) {
        PreparedProblem problem(std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(e)), base);
        Vector z(25);
        CHECK(problem.solve_normal(scaled(g, std::ldexp(1.0, 2 * e)), z, with_method(Method::lsmr, 1e-13)).converged());
        CHECK(distance(z, expected) <= 1e-11 * norm(expected));
    }
    PreparedProblem problem(a, base);
    Vector z(25, 1.0);
    CHECK(problem.solve_normal(Vector(25, 0.0), z, with_method(Method::lsmr)).status == Status::start_solves);
    CHECK(norm(z) == 0);
    CHECK_THROWS_AS(problem.solve_normal(Vector(24, 0.0), z, with_method(Method::lsmr)), InputError);
}

inline void suite_standard_errors(const PrepareOptions& base) {
    const Matrix a = random_sparse(80, 20, 3, 2011);
    const Vector b = random_vector(80, 2012);
    Vector w = positive(random_vector(80, 2013));
    w[3] = w[9] = 0;
    for (const bool weighs : {false, true}) {
        for (const double damp : {0.0, 0.5}) {
            PrepareOptions prepare = base;
            if (weighs) prepare.weights = w;
            PreparedProblem problem(a, prepare);
            const DenseMatrix inverse = dense_inverse(*a, weighs ? w : Vector(), nullptr, damp);
            SolveOptions options = exactly(Method::lsqr, 20, damp);
            options.estimate_variances = true;
            const Answer answer = solve(problem, b, options);
            Vector r = product(*a, answer.x);
            double sum = 0;
            for (std::size_t i = 0; i < r.size(); ++i) sum += (weighs ? w[i] : 1) * (b[i] - r[i]) * (b[i] - r[i]);
            const double sigma = std::sqrt(sum / ((weighs ? 78 : 80) - 20));

            StandardErrorOptions wanted;
            wanted.kind = ErrorKind::exact;
            wanted.columns = {17, 0, 5};
            const StandardErrors exact = standard_errors(problem, options, answer.result, wanted);
            CHECK(exact.complete);
            CHECK(exact.columns == wanted.columns);
            CHECK(exact.sigma == doctest::Approx(sigma).epsilon(1e-12));
            const auto truth_of = [&](std::int64_t j) { return std::sqrt(static_cast<double>(inverse(j, j))); };
            for (std::size_t k = 0; k < 3; ++k) CHECK(exact.unit_errors[k] == doctest::Approx(truth_of(wanted.columns[k])).epsilon(1e-9));

            // After as many steps as columns LSQR has seen all of the inverse; before, it sees a part.
            wanted.kind = ErrorKind::estimate;
            const StandardErrors full = standard_errors(problem, options, answer.result, wanted);
            options.max_iterations = 6;
            const Answer early = solve(problem, b, options);
            const StandardErrors part = standard_errors(problem, options, early.result, wanted);
            REQUIRE(full.unit_errors.size() == 20);
            double below = 0;
            for (std::size_t j = 0; j < 20; ++j) {
                const double truth = truth_of(static_cast<std::int64_t>(j));
                CHECK(full.unit_errors[j] == doctest::Approx(truth).epsilon(1e-6));
                CHECK(part.unit_errors[j] <= truth * (1 + 1e-10));
                below += part.unit_errors[j] < 0.95 * truth;
            }
            CHECK(below > 3);
            const double trace = static_cast<double>(inverse.trace());
            const double frobenius = std::hypot(answer.result.norms.a_frobenius, damp * std::sqrt(20.0));
            CHECK(full.cond_frobenius == doctest::Approx(frobenius * std::sqrt(trace)).epsilon(1e-6));

            wanted.kind = ErrorKind::hutchinson;
            wanted.probes = 400;
            options.max_iterations = -1;
            const StandardErrors random = standard_errors(problem, options, answer.result, wanted);
            CHECK(random.complete);
            double off = 0;
            for (std::size_t j = 0; j < 20; ++j) {
                const double error = std::abs(random.unit_errors[j] - truth_of(static_cast<std::int64_t>(j)));
                CHECK(error <= 6 * random.unit_spread[j]);
                CHECK(random.unit_spread[j] < 0.2 * random.unit_errors[j]);
                off += error / random.unit_spread[j] / 20;
            }
            CHECK(off > 0.2);  // the spread is that of the error, not a bound far above it
            const StandardErrors again = standard_errors(problem, options, answer.result, wanted);
            CHECK(same_bits(random.unit_errors, again.unit_errors));
            wanted.seed = 2;
            CHECK_FALSE(same_bits(random.unit_errors, standard_errors(problem, options, answer.result, wanted).unit_errors));
            wanted.kind = ErrorKind::exact;
            wanted.columns = {20};
            CHECK_THROWS_WITH_AS(standard_errors(problem, options, answer.result, wanted), "standard errors: there is no column 21 of 20", InputError);
        }
    }
    // The same variances whatever the iteration runs on.
    SolveOptions options = exactly(Method::lsqr, 40);
    options.estimate_variances = true;
    const DenseMatrix inverse = dense_inverse(*a, {}, nullptr, 0);
    for (const Scaling scale : {Scaling::none, Scaling::columns}) {
        for (const Preconditioner preconditioner : {Preconditioner::none, Preconditioner::blocks}) {
            for (const int e : {0, -200, 300}) {
                PrepareOptions prepare = base;
                prepare.scale = scale;
                prepare.preconditioner = preconditioner;
                const Answer answer = solve(prepare, std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(e)), b, options);
                REQUIRE(answer.result.variances.size() == 20);
                for (std::size_t j = 0; j < 20; ++j) {
                    const double expected = std::ldexp(static_cast<double>(inverse(static_cast<Eigen::Index>(j), static_cast<Eigen::Index>(j))), -2 * e);
                    CHECK(answer.result.variances[j] == doctest::Approx(expected).epsilon(1e-5).scale(0));
                }
            }
        }
    }
    // ||A||_F as the bidiagonalisation sees it: from below while it is orthogonal.
    const Answer answer = solve(base, a, b, exactly(Method::lsqr, 15));
    CHECK(answer.result.norms.a_estimated < answer.result.norms.a_frobenius);
    CHECK(answer.result.norms.a_estimated > 0.5 * answer.result.norms.a_frobenius);
    CHECK(std::isnan(solve(base, a, b, exactly(Method::cgls, 15)).result.norms.a_estimated));
    options.method = Method::lsmr;
    Vector x(20);
    PreparedProblem problem(a, base);
    CHECK_THROWS_WITH_AS(problem.solve(b, x, options), "variances are estimated by lsqr, not by lsmr", InputError);
    PreparedProblem wide(transposed(*a), base);
    StandardErrorOptions wanted;
    wanted.kind = ErrorKind::exact;
    CHECK_THROWS_AS(standard_errors(wide, {}, {}, wanted), InputError);
}

// fp64 answers from fp32 solves, every method and form; what fp32 cannot give is finished in fp64.
inline void suite_mixed_precision(const PrepareOptions& base) {
    PrepareOptions mixed = base;
    mixed.precision = Precision::mixed;
    const Matrix tall = random_sparse(120, 40, 3, 2021), wide = random_sparse(25, 60, 4, 2022);
    for (const Matrix& a : {tall, wide}) {
        const Vector b = random_vector(a->rows(), 2023), c = random_vector(a->cols(), 2024), x0 = random_vector(a->cols(), 2025);
        for (const double damp : {0.0, 0.4}) {
            for (const int start : {0, 1, 2}) {
                const Vector center = damp == 0 || start == 0 ? Vector{} : start == 1 ? x0 : c;
                const std::optional<Vector> given = start > 0 ? std::optional<Vector>(x0) : std::nullopt;
                const Oracle oracle = dense_solution(*a, b, damp, damp > 0 ? center : given.value_or(Vector{}));
                for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
                    for (const Scaling scale : {Scaling::none, Scaling::columns}) {
                        if (damp == 0 && a == wide && scale == Scaling::columns) continue;  // another x of many
                        SolveOptions options = with_method(method, 1e-12);
                        options.damp = damp;
                        options.damp_center = start == 2 ? DampCenter::given : start == 1 ? DampCenter::x0 : DampCenter::zero;
                        options.center = c;
                        PrepareOptions prepare = mixed;
                        prepare.scale = scale;
                        const Answer answer = solve(prepare, a, b, options, given);
                        const Truth t = truth(*a, b, answer.x, damp, center, given.value_or(Vector{}));
                        CAPTURE(word(method));
                        CAPTURE(a->rows());
                        CAPTURE(damp);
                        CAPTURE(start);
                        CAPTURE(answer.result.message);
                        CHECK(answer.result.converged());
                        check_claim(answer.result, t, options, kEps64);
                        check_norms(answer.result, t);
                        REQUIRE(!answer.result.notes.empty());
                        CHECK(answer.result.notes[0].find("solved in fp32 and corrected") == 0);
                        // Of many solutions, the least one as far as fp32 sees.
                        const double unseen = damp == 0 && a == wide ? 8 * kEps32 * (norm(answer.x) + norm(x0)) : 0;
                        CHECK(distance(answer.x, oracle.x) <= unseen + error_bound(t, oracle.sigma_min) +
                                                                   8 * kEps64 * static_cast<double>(answer.result.iterations + 1) * (norm(answer.x) + norm(x0)));
                        CHECK(answer.result.iterations > 5);
                    }
                }
            }
        }
    }
    const Vector b = random_vector(120, 2026);
    for (const int e : {-400, 400}) {
        const Answer answer = solve(mixed, std::make_shared<const CsrMatrix>(tall->scaled_by_power_of_two(e)), scaled(b, std::ldexp(1.0, -e)),
                                    with_method(Method::lsmr, 1e-12));
        CHECK(answer.result.converged());
        CHECK(distance(scaled(answer.x, std::ldexp(1.0, 2 * e)), dense_solution(*tall, b).x) < 1e-10);
    }
    // cond^2 eps_32 above 1: no correction helps, and fp64 goes on.
    const Matrix hard = graded(*tall, 1e5);
    SolveOptions options = with_method(Method::lsmr, 1e-13);
    options.max_iterations = 20000;
    class Count : public Observer {
      public:
        std::int64_t last = 0;
        bool ascending = true;
        Verdict on_iterations(std::span<const IterationRecord> records) override {
            for (const IterationRecord& record : records) {
                ascending = ascending && record.iteration == last + 1;
                last = record.iteration;
            }
            return Verdict::go_on;
        }
    } count;
    const Answer answer = solve(mixed, hard, b, options, {}, &count);
    const Truth t = truth(*hard, b, answer.x);
    CHECK(answer.result.converged());
    check_claim(answer.result, t, options, kEps64);
    check_norms(answer.result, t);
    REQUIRE(!answer.result.notes.empty());
    CHECK(answer.result.notes[0].find("fp64 went on from there") != std::string::npos);
    CHECK(count.ascending);
    CHECK(count.last == answer.result.iterations);
    // A preconditioner serves the corrections too.
    PrepareOptions prepare = mixed;
    prepare.preconditioner = Preconditioner::columns;
    const Answer preconditioned = solve(prepare, hard, b, options);
    CHECK(preconditioned.result.converged());
    CHECK(preconditioned.result.iterations < answer.result.iterations);
    // Limits are those of all solves together.
    options.max_iterations = 7;
    const Answer limited = solve(mixed, tall, b, options);
    CHECK(limited.result.status == Status::iteration_limit);
    CHECK(limited.result.iterations == 7);
    check_norms(limited.result, truth(*tall, b, limited.x));
    PreparedProblem problem(random_sparse(20, 20, 2, 2027), mixed);
    Vector x(20);
    CHECK_THROWS_AS(problem.solve(random_vector(20, 1), x, with_method(Method::cg)), InputError);
    options.trust_radius = 1;
    CHECK_THROWS_AS(problem.solve(random_vector(20, 1), x, options), InputError);
}

}  // namespace lsmr::test
