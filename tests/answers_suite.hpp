// Answers about the answer, and mixed precision: what every executor must satisfy, against dense matrices.
#pragma once

#include <doctest/doctest.h>

#include <Eigen/Dense>

#include "memory/error.hpp"
#include "solver/damping.hpp"
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

            SolveOptions keeping = options;  // of the solve, not of those for the errors
            keeping.reorthogonalize = 3;
            CHECK(same_bits(standard_errors(problem, keeping, answer.result, wanted).unit_errors, exact.unit_errors));

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
    // Of what LSQR did not see nothing is known: of all where the start solves it, else of a column without entries.
    Triplets with_hole = triplets(*a);
    with_hole.cols += 1;
    const Matrix hole = with_hole.matrix();
    PreparedProblem holey(hole, base);
    Vector at(21, 0.0);
    const SolveResult first = holey.solve(b, at, options);
    const SolveResult again = holey.solve(b, at, [&] {
        SolveOptions easy = options;
        easy.atol = 1e-6;
        return easy;
    }(), true);
    CHECK(again.iterations == 0);
    StandardErrorOptions estimate;
    estimate.kind = ErrorKind::estimate;
    for (const SolveResult* seen : {&first, &again}) {
        const StandardErrors errors = standard_errors(holey, options, *seen, estimate);
        for (std::size_t j = 0; j < 21; ++j) CHECK(std::isnan(errors.unit_errors[j]) == (seen == &again || j == 20));
        REQUIRE(errors.notes.size() == 1);
        CHECK(errors.notes[0].find(seen == &again ? "21 of 21" : "1 of 21") == 0);
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
    // A limit on the condition ends the whole; the start is called what fp64 calls it.
    SolveOptions limited_condition = with_method(Method::lsmr, 1e-12);
    limited_condition.conlim = 100;
    CHECK(solve(base, hard, b, limited_condition).result.status == Status::condition_limit);
    const Answer ended = solve(mixed, hard, b, limited_condition);
    CHECK(ended.result.status == Status::condition_limit);
    CHECK(ended.result.norms.cond_estimate >= 100);
    check_norms(ended.result, truth(*hard, b, ended.x));
    CHECK(solve(mixed, tall, Vector(120, 0.0), options).result.status == Status::start_solves);
    CHECK(solve(mixed, diagonal(Vector(4, 0.0)), Vector(4, 1.0), options).result.status == Status::start_solves);
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

// v_k of the last solve that kept them.
inline DenseMatrix kept_vectors(PreparedProblem& problem, std::int64_t count) {
    DenseMatrix v(problem.matrix().cols(), count);
    for (std::int64_t k = 0; k < count; ++k) {
        Vector y(index(k + 1), 0.0), x(index(problem.matrix().cols()), 0.0);
        y.back() = 1;
        problem.add_kept(y, x);
        v.col(k) = dense(x);
    }
    return v;
}

inline void suite_reorthogonalization(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(120, 40, 3, 2031), 1e5);
    const Vector b = random_vector(120, 2032);
    for (const Method method : {Method::lsmr, Method::lsqr}) {
        SolveOptions options = with_method(method, 1e-12);
        options.conlim = 0;
        options.max_iterations = 4000;
        CAPTURE(word(method));
        const Answer plain = solve(base, a, b, options);
        CHECK(plain.result.iterations > 100);
        std::int64_t before = plain.result.iterations;
        for (const std::int64_t window : {std::int64_t{20}, SolveOptions::kAll}) {
            options.reorthogonalize = window;
            for (const int e : {0, -300}) {
                const Matrix scaled_a = std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(e));
                const Answer answer = solve(base, scaled_a, b, options);
                const Truth t = truth(*scaled_a, b, answer.x);
                CHECK(answer.result.converged());
                check_claim(answer.result, t, options, kEps64);
                check_norms(answer.result, t);
                CHECK(answer.result.iterations <= before);
                if (e == 0) before = answer.result.iterations;
            }
        }
        CHECK(before <= 45);  // in exact arithmetic 40
        // A window of at least as many vectors as columns is all of them; damping, a start and a centre change nothing about it.
        const Vector x0 = random_vector(40, 2033), c = random_vector(40, 2034);
        options.damp = 1e-4;
        options.damp_center = DampCenter::given;
        options.center = c;
        for (const std::int64_t window : {std::int64_t{1000}, SolveOptions::kAll}) {
            options.reorthogonalize = window;
            const Answer damped = solve(base, a, b, options, x0);
            CHECK(damped.result.converged());
            CHECK(damped.result.iterations <= 50);
            check_norms(damped.result, truth(*a, b, damped.x, 1e-4, c, x0));
        }
    }
    // The vectors that are kept: orthonormal, and with B a bidiagonalisation of A.
    class Column : public Observer {
      public:
        Vector alpha, beta;
        Verdict on_iterations(std::span<const IterationRecord> records) override {
            for (const IterationRecord& record : records) {
                alpha.push_back(record.alpha);
                beta.push_back(record.beta);
            }
            return Verdict::go_on;
        }
    } column;
    PreparedProblem problem(a, base);
    SolveOptions options = exactly(Method::lsqr, 30);
    options.reorthogonalize = SolveOptions::kAll;
    Vector x(40);
    problem.solve(b, x, options, false, &column);
    REQUIRE(column.alpha.size() == 30);
    const DenseMatrix v = kept_vectors(problem, 30);
    const DenseMatrix gram = v.transpose() * v - DenseMatrix::Identity(30, 30);
    CHECK(static_cast<double>(gram.cwiseAbs().maxCoeff()) < 1e-13);
    DenseMatrix lower = DenseMatrix::Zero(31, 30);
    for (Eigen::Index k = 0; k < 30; ++k) {
        lower(k, k) = column.alpha[static_cast<std::size_t>(k)];
        lower(k + 1, k) = column.beta[static_cast<std::size_t>(k)];
    }
    // A^T A V = V B^T B but for its last column.
    const DenseMatrix ata_v = dense(*a).transpose() * (dense(*a) * v);
    const DenseMatrix difference = (ata_v - v * (lower.transpose() * lower)).leftCols(29);
    CHECK(static_cast<double>(difference.cwiseAbs().maxCoeff()) < 1e-12 * static_cast<double>(ata_v.cwiseAbs().maxCoeff()));
    // Without it they are far from orthogonal by then, and B is another.
    const Vector alpha = std::exchange(column.alpha, {});
    options.reorthogonalize = 0;
    problem.solve(b, x, options, false, &column);
    CHECK(distance(column.alpha, alpha) > 1e-3 * norm(alpha));

    // fp32.
    PrepareOptions narrow = base;
    narrow.precision = Precision::fp32;
    options = with_method(Method::lsmr, 1e-5);
    options.max_iterations = 4000;
    const Matrix mild = graded(*random_sparse(120, 40, 3, 2031), 100);
    const Answer slow = solve(narrow, mild, b, options);
    options.reorthogonalize = SolveOptions::kAll;
    const Answer fast = solve(narrow, mild, b, options);
    CHECK(fast.result.converged());
    CHECK(fast.result.iterations <= slow.result.iterations);
    check_norms(fast.result, truth(*mild, b, fast.x));

    // A wide window in fp32, of a condition beyond it.
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        const Matrix square = graded(*random_sparse(60, 60, 4, seed), 1e6);
        const Vector right = random_vector(60, seed + 7);
        for (const Method method : {Method::lsmr, Method::lsqr}) {
            SolveOptions wide = with_method(method, 0.0);
            wide.conlim = 0;
            wide.max_iterations = 800;
            wide.reorthogonalize = 42;
            const Answer answer = solve(narrow, square, right, wide);
            CAPTURE(word(method));
            CAPTURE(seed);
            CAPTURE(answer.result.message);
            CHECK(answer.result.status != Status::breakdown);
            check_norms(answer.result, truth(*square, right, answer.x));
        }
    }
    // Fewer v than the window leads one to expect, columns being multiples of others: a new run from x goes on where the last broke down.
    int broken = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        Triplets columns = triplets(*graded(*random_sparse(90, 30, 4, seed), 1e6));
        for (std::size_t k = 0, count = columns.values.size(); k < count; ++k) {
            columns.add(columns.i[k], columns.j[k] + 30, columns.values[k]);
            columns.add(columns.i[k], columns.j[k] + 60, -2 * columns.values[k]);
        }
        columns.cols = 90;
        const Matrix dependent = columns.matrix();
        const Vector right = random_vector(90, seed + 7);
        for (const Method method : {Method::lsmr, Method::lsqr}) {
            SolveOptions few = with_method(method, 0.0);
            few.conlim = 0;
            few.max_iterations = 800;
            few.reorthogonalize = 25;
            const Answer answer = solve(narrow, dependent, right, few);
            broken += answer.result.status == Status::breakdown ? 1 : 0;
            check_norms(answer.result, truth(*dependent, right, answer.x));
        }
    }
    CHECK(broken <= 2);  // of 8
    options.basis_limit_bytes = 100;
    CHECK_THROWS_AS(problem.solve(b, x, options), InputError);
    options.basis_limit_bytes = 1 << 30;
    options.method = Method::cgls;
    CHECK_THROWS_AS(problem.solve(b, x, options), InputError);
    options.method = Method::lsmr;
    PrepareOptions blocks = base;
    blocks.preconditioner = Preconditioner::columns;
    PreparedProblem preconditioned(a, blocks);
    CHECK_THROWS_AS(preconditioned.solve(b, x, options), InputError);
}

// ||r||, ||x - c||, and GCV of a damped problem by a dense SVD.
struct DenseDamping {
    Eigen::VectorXd sigma, c;
    double outside = 0;  // ||b||^2 outside the range of A
    double rows = 0;
    DenseDamping(const CsrMatrix& a, const Vector& b) : rows(static_cast<double>(a.rows())) {
        const Eigen::MatrixXd d = dense(a).cast<double>();
        const Eigen::JacobiSVD<Eigen::MatrixXd> svd(d, Eigen::ComputeThinU | Eigen::ComputeThinV);
        sigma = svd.singularValues();
        const Eigen::VectorXd rhs = dense(b).cast<double>();
        c = svd.matrixU().transpose() * rhs;
        outside = std::max((rhs - svd.matrixU() * c).squaredNorm(), 0.0);
    }
    DampRow at(double damp) const {
        DampRow row{.damp = damp, .r = outside, .x = 0, .gcv = 0, .curvature = 0};
        double trace = 0;
        for (Eigen::Index i = 0; i < sigma.size(); ++i) {
            const double s2 = sigma(i) * sigma(i), f = s2 / (s2 + damp * damp);
            row.r += std::pow((1 - f) * c(i), 2);
            row.x += std::pow(f * c(i) / sigma(i), 2);
            trace += f;
        }
        row.gcv = rows * row.r / std::pow(rows - trace, 2);
        row.r = std::sqrt(row.r);
        row.x = std::sqrt(row.x);
        return row;
    }
    template <class F>
    double best(const F& cost) const {
        double best = 0, least = std::numeric_limits<double>::infinity();
        for (double damp = 1e-6 * sigma(0); damp < 10 * sigma(0); damp *= 1.02) {
            const double value = cost(damp);
            if (value < least) {
                least = value;
                best = damp;
            }
        }
        return best;
    }
    double curvature(double damp) const {
        const double step = 0.02;
        const DampRow before = at(damp * std::exp(-step)), here = at(damp), after = at(damp * std::exp(step));
        const double r1 = std::log(after.r / before.r) / 2, x1 = std::log(after.x / before.x) / 2;
        const double r2 = std::log(after.r * before.r / (here.r * here.r)), x2 = std::log(after.x * before.x / (here.x * here.x));
        return (r1 * x2 - r2 * x1) / std::pow(r1 * r1 + x1 * x1, 1.5);
    }
};

inline void suite_chosen_damping(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(90, 30, 3, 2041), 1e4);
    const Vector truth_x = random_vector(30, 2042), noise = random_vector(90, 2043);
    Vector b = product(*a, truth_x);
    const double deviation = 0.02;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] += deviation * std::sqrt(3.0) * noise[i];
    const DenseDamping exact(*a, b);
    SolveOptions options = with_method(Method::lsmr, 1e-10);
    options.conlim = 0;
    PreparedProblem problem(a, base);
    for (const DampRule rule : {DampRule::gcv, DampRule::discrepancy, DampRule::lcurve}) {
        DampSearch search;
        search.rule = rule;
        search.deviation = deviation;
        Vector x(30, std::numeric_limits<double>::quiet_NaN());
        const DampChoice choice = solve_with_chosen_damp(problem, b, x, options, search);
        CAPTURE(std::string(name(rule)));
        CAPTURE(choice.damp);
        CHECK(choice.settled);
        CHECK(choice.result.converged());
        CHECK(choice.damp > 0);
        const Oracle oracle = dense_solution(*a, b, choice.damp);
        CHECK(distance(x, oracle.x) <= 1e-6 * norm(oracle.x));
        check_norms(choice.result, truth(*a, b, x, choice.damp));
        // x comes from the bidiagonalisation: the solve that ends it has next to nothing to do.
        CHECK(choice.result.iterations - choice.steps <= 3);
        CHECK(choice.steps <= 30);
        switch (rule) {
            case DampRule::gcv: {
                const double best = exact.best([&](double damp) { return exact.at(damp).gcv; });
                CHECK(exact.at(choice.damp).gcv <= exact.at(best).gcv * (1 + 1e-3));
                break;
            }
            case DampRule::discrepancy: CHECK(choice.result.norms.r == doctest::Approx(deviation * std::sqrt(90.0)).epsilon(1e-6)); break;
            case DampRule::lcurve: {
                const double best = exact.best([&](double damp) { return -exact.curvature(damp); });
                CHECK(exact.curvature(choice.damp) >= 0.9 * exact.curvature(best));
                break;
            }
        }
        // Candidates: each row of the table is that of a damped solve, and the best of them is taken.
        search.low = 1e-4;
        search.high = 10;
        search.count = 7;
        const DampChoice among = solve_with_chosen_damp(problem, b, x, options, search);
        REQUIRE(among.table.size() == 7);
        bool found = false;
        for (std::size_t i = 0; i < 7; ++i) {
            const DampRow& row = among.table[i];
            CHECK(row.damp == doctest::Approx(1e-4 * std::pow(1e5, static_cast<double>(i) / 6)));
            CHECK(row.r == doctest::Approx(exact.at(row.damp).r).epsilon(1e-6));
            CHECK(row.x == doctest::Approx(exact.at(row.damp).x).epsilon(1e-4));
            found = found || row.damp == among.damp;
        }
        CHECK(found);
    }
    // Around x0, and with weighted rows: those of the problem by hand.
    const Vector x0 = random_vector(30, 2044), w = positive(random_vector(90, 2045));
    PrepareOptions prepare = base;
    prepare.weights = w;
    PreparedProblem weighted(a, prepare);
    const Matrix by_hand = with_values(*a, [&](std::int64_t i, std::int64_t, double value) { return value * std::sqrt(w[index(i)]); });
    Vector rhs = b;
    for (std::size_t i = 0; i < rhs.size(); ++i) rhs[i] *= std::sqrt(w[i]);
    Vector x = x0;
    options.damp_center = DampCenter::x0;
    const DampChoice moved = solve_with_chosen_damp(weighted, b, x, options, {}, true);
    CHECK(moved.result.converged());
    CHECK(distance(x, dense_solution(*by_hand, rhs, moved.damp, x0).x) <= 1e-6 * norm(x));
    check_within(moved.result.norms.dx, distance(x, x0), 1e-12, "||x - x0||");
    Vector residual = rhs;
    const Vector ax0 = product(*by_hand, x0);
    for (std::size_t i = 0; i < residual.size(); ++i) residual[i] -= ax0[i];
    const DenseDamping around(*by_hand, residual);
    const double best = around.best([&](double damp) { return around.at(damp).gcv; });
    CHECK(around.at(moved.damp).gcv <= around.at(best).gcv * (1 + 1e-3));
    // Cut short, it says so.
    options.damp_center = DampCenter::zero;
    options.max_iterations = 4;
    const DampChoice cut = solve_with_chosen_damp(problem, b, x, options, {});
    CHECK_FALSE(cut.settled);
    CHECK(cut.steps == 4);
    REQUIRE(!cut.notes.empty());
    CHECK(cut.notes.back().find("after 4 steps") != std::string::npos);
    options.max_iterations = -1;
    // Stopped: the norms are those of the x that is handed over.
    for (const std::int64_t after : {1, 5, 12}) {
        Recorder stopper(after);
        const DampChoice stopped = solve_with_chosen_damp(problem, b, x, options, {}, false, &stopper);
        CAPTURE(after);
        if (stopped.result.converged()) continue;  // a GPU was done before it heard of it
        CHECK(stopped.result.status == Status::stopped);
        CHECK(stopped.result.iterations == stopped.steps);
        CHECK(stopped.damp > 0);
        check_norms(stopped.result, truth(*a, b, x, stopped.damp));
    }
    // More noise than there is b: lambda stays out of x's way; less than there can be: none.
    DampSearch search{.rule = DampRule::discrepancy, .deviation = 1e3};
    solve_with_chosen_damp(problem, b, x, options, search);
    CHECK(norm(x) < 1e-6 * norm(truth_x));
    search.deviation = 1e-12;
    CHECK(solve_with_chosen_damp(problem, b, x, options, search).damp == 0);
    options.damp = 1;
    CHECK_THROWS_AS(solve_with_chosen_damp(problem, b, x, options, {}), InputError);
    options.damp = 0;
    options.damp_center = DampCenter::given;
    CHECK_THROWS_AS(solve_with_chosen_damp(problem, b, x, options, {}), InputError);
    search.deviation = 0;
    options.damp_center = DampCenter::zero;
    CHECK_THROWS_AS(solve_with_chosen_damp(problem, b, x, options, search), InputError);
}

// A K of the caller's: the same iterations as the preconditioner that it is, and answers against dense ones.
inline void suite_given_preconditioner(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(120, 40, 3, 2051), 1e4);
    const Vector b = random_vector(120, 2052);
    Vector squares(40, 0.0);
    const Triplets t = triplets(*a);
    for (std::size_t k = 0; k < t.values.size(); ++k) squares[index(t.j[k])] += t.values[k] * t.values[k];
    for (double& value : squares) value = 1 / std::sqrt(value);
    const Matrix k = diagonal(squares);
    for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
        SolveOptions options = with_method(method, 1e-10);
        options.conlim = 0;
        options.max_iterations = 5000;
        PrepareOptions given = base;
        given.preconditioner = Preconditioner::given;
        given.preconditioner_matrix = k;
        PrepareOptions columns = base;
        columns.preconditioner = Preconditioner::columns;
        const Answer plain = solve(base, a, b, options);
        CAPTURE(word(method));
        for (const Scaling scale : {Scaling::none, Scaling::columns}) {
            for (const int e : {0, -900}) {
                given.scale = scale;
                const Matrix scaled_a = std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(e));
                given.preconditioner_matrix = e == 0 ? k : std::make_shared<const CsrMatrix>(k->scaled_by_power_of_two(-e));
                const Answer answer = solve(given, scaled_a, b, options);
                const Answer same = solve(columns, scaled_a, b, options);
                CHECK(answer.result.converged());
                // ||A K|| is exact for columns, and estimated here.
                CHECK(std::abs(answer.result.iterations - same.result.iterations) <= same.result.iterations / 4 + 5);
                CHECK(answer.result.iterations < plain.result.iterations);
                check_norms(answer.result, truth(*scaled_a, b, answer.x));
                check_claim(answer.result, truth(*scaled_a, b, answer.x), options, kEps64);
            }
        }
        options.damp = 0.01;
        given.scale = Scaling::none;
        given.preconditioner_matrix = k;
        const Answer damped = solve(given, a, b, options);
        const Truth now = truth(*a, b, damped.x, 0.01);
        CHECK(damped.result.converged());
        check_claim(damped.result, now, options, kEps64);
        const Oracle oracle = dense_solution(*a, b, 0.01);
        CHECK(distance(damped.x, oracle.x) <= error_bound(now, oracle.sigma_min));
    }
    PrepareOptions wrong = base;
    wrong.preconditioner = Preconditioner::given;
    CHECK_THROWS_AS(PreparedProblem(a, wrong), InputError);
    wrong.preconditioner_matrix = a;
    CHECK_THROWS_AS(PreparedProblem(a, wrong), InputError);
}

}  // namespace lsmr::test
