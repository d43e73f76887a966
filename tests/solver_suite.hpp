// What every executor of the solver must satisfy. Each function takes the device (and whatever else should differ) in
// `base`; a backend's test file calls them, one test case each.
#pragma once

#include <doctest/doctest.h>

#include <Eigen/IterativeLinearSolvers>
#include <Eigen/Sparse>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "data/generators.hpp"
#include "memory/error.hpp"
#include "support/checks.hpp"
#include "support/dense_oracle.hpp"
#include "support/problems.hpp"

namespace lsmr::test {

// Shapes that the tests share: tall, wide and square, all of rank min(rows, cols), cond(A) below 100.
inline Matrix tall_matrix() {
    return random_sparse(120, 40, 3, 11);
}
inline Matrix wide_matrix() {
    return random_sparse(25, 60, 4, 12);
}
inline Matrix square_matrix() {
    return random_sparse(30, 30, 3, 13);
}

// Where x may drift out of the range of A^T (rank below cols, no damping): rounding adds about eps ||x|| an iteration
// there, and nothing takes it away.
inline double drift(const Answer& answer, double eps, const Vector& x0 = {}) {
    return 8 * eps * static_cast<double>(answer.result.iterations + 1) * (norm(answer.x) + norm(x0));
}

// --- answers ---

// The SOL family P(m, n, duplicates, power, damp), whose solution is known.
inline void suite_lstp(const PrepareOptions& base) {
    const std::pair<std::int64_t, std::int64_t> shapes[] = {{40, 40}, {80, 40}, {40, 80}};
    for (const auto& [rows, cols] : shapes) {
        for (const std::int64_t duplicates : {1, 2, 4}) {
            for (const std::int64_t power : {1, 2, 3, 4}) {
                for (const double damp : {0.0, 1e-6, 0.1}) {
                    GeneratedProblem p = lstp(rows, cols, duplicates, power, damp);
                    const auto a = std::make_shared<const CsrMatrix>(std::move(p.a));
                    const double sigma_1 = std::pow(static_cast<double>(duplicates) / 40.0, static_cast<double>(power));
                    const double sigma_min = std::hypot(sigma_1, damp);
                    PreparedProblem problem(a, base);
                    for (const Method method : kMethods) {
                        SolveOptions options = with_method(method, 1e-9);
                        options.conlim = 0;
                        options.max_iterations = 20000;
                        options.damp = damp;
                        const Answer answer = solve(problem, p.b, options);
                        const Truth t = truth(*a, p.b, answer.x, damp);
                        CAPTURE(word(method));
                        CAPTURE(rows);
                        CAPTURE(cols);
                        CAPTURE(duplicates);
                        CAPTURE(power);
                        CAPTURE(damp);
                        CAPTURE(answer.result.iterations);
                        CHECK(answer.result.converged());
                        check_claim(answer.result, t, options, kEps64);
                        check_norms(answer.result, t);
                        // The stored matrix is that of the recipe within rounding, which moves the solution by
                        // eps (cond ||x|| + cond^2 ||r|| / ||A||); the largest singular value is 1.
                        const double data =
                            16 * kEps64 * (norm(p.x) / sigma_min + t.r_damped / (sigma_min * sigma_min));
                        CHECK(distance(answer.x, p.x) <= error_bound(t, sigma_min) + drift(answer, kEps64) + data);
                    }
                }
            }
        }
    }
}

// Start, centre and damping, tall, wide and square, against dense answers.
inline void suite_start_and_center(const PrepareOptions& base) {
    for (const Matrix& a : {tall_matrix(), wide_matrix(), square_matrix()}) {
        const Vector b = random_vector(a->rows(), 21);
        const Vector x0 = scaled(random_vector(a->cols(), 22), 3.0);
        const Vector c = scaled(random_vector(a->cols(), 23), 5.0);
        for (const double damp : {0.0, 0.3, 5.0}) {
            // None; x0 with centre zero; x0 as the centre; x0 and a centre of its own; a centre alone.
            for (const int start : {0, 1, 2, 3, 4}) {
                const Vector center = start == 2 ? x0 : start >= 3 ? c : Vector{};
                const bool from_x0 = start >= 1 && start <= 3;
                // Without damping the solution nearest to the start is found.
                const Oracle oracle = dense_solution(*a, b, damp, damp > 0 ? center : from_x0 ? x0 : Vector{});
                for (const Precision precision : kPrecisions) {
                    for (const Method method : kMethods) {
                        const PrepareOptions prepare = with_precision(base, precision);
                        SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-11 : 1e-6);
                        options.damp = damp;
                        options.damp_center = start == 2   ? DampCenter::x0
                                              : start >= 3 ? DampCenter::given
                                                           : DampCenter::zero;
                        options.center = c;
                        const std::optional<Vector> given = from_x0 ? std::optional<Vector>(x0) : std::nullopt;
                        const Answer answer = solve(prepare, a, b, options, given);
                        const Truth t = truth(*a, b, answer.x, damp, center, given.value_or(Vector{}));
                        CAPTURE(word(method));
                        CAPTURE(word(precision));
                        CAPTURE(a->rows());
                        CAPTURE(damp);
                        CAPTURE(start);
                        CAPTURE(answer.result.message);
                        CHECK(answer.result.converged());
                        check_claim(answer.result, t, options, eps_of(prepare));
                        check_norms(answer.result, t);
                        const Vector from = given.value_or(Vector{});
                        CHECK(distance(answer.x, oracle.x) <=
                              error_bound(t, oracle.sigma_min) + drift(answer, eps_of(prepare), from));
                    }
                }
            }
        }
    }
}

// A damping beside which the squares of b - A x vanish: x stays at the centre, and its residual is still known.
inline void suite_damping_dwarfs_the_matrix(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 24);
    const Vector x0 = random_vector(a->cols(), 25);
    for (const double damp : {1e160, 1e200, 1e308}) {
        for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::mixed}) {
            for (const Method method : kMethods) {
                if (precision == Precision::mixed && method != Method::cgls) continue;  // they hold the damping in rows, in fp32
                SolveOptions options = with_method(method, 1e-6);
                options.damp = damp;
                options.damp_center = DampCenter::x0;
                const Answer answer = solve(with_precision(base, precision), a, b, options, x0);
                CAPTURE(word(method));
                CAPTURE(word(precision));
                CAPTURE(damp);
                const double eps = precision == Precision::fp32 ? 1e-6 : 1e-14;
                CHECK(answer.result.converged());
                CHECK(distance(answer.x, x0) <= eps * norm(x0));
                const Truth t = truth(*a, b, answer.x, damp, x0);
                CHECK(answer.result.norms.r == doctest::Approx(t.r).epsilon(eps));
                CHECK(answer.result.norms.r_damped == doctest::Approx(t.r_damped).epsilon(eps));
            }
        }
    }
}

inline void suite_damping_is_stacked_rows(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 31);
    const double damp = 0.7;
    const Matrix both = stacked(*a, *diagonal(Vector(index(a->cols()), damp)));
    Vector b_both = b;
    b_both.resize(index(both->rows()), 0.0);
    const double sigma_min = dense_solution(*a, b, damp).sigma_min;
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method, 1e-10);
        const Answer rows = solve(base, both, b_both, options);
        options.damp = damp;
        const Answer damped = solve(base, a, b, options);
        const Truth t_rows = truth(*both, b_both, rows.x);
        const Truth t_damped = truth(*a, b, damped.x, damp);
        CAPTURE(word(method));
        CHECK(rows.result.status == damped.result.status);
        CHECK(std::abs(rows.result.iterations - damped.result.iterations) <= 1);
        CHECK(distance(rows.x, damped.x) <= error_bound(t_rows, sigma_min) + error_bound(t_damped, sigma_min));
        // Both residuals are the least one but for (||A'r|| / sigma)^2, which is smaller than rounding here.
        check_within(damped.result.norms.r_damped, rows.result.norms.r, 2 * residual_rounding(t_rows), "damped ||r||");
        check_norms(damped.result, t_damped);
    }
}

inline void suite_permuted_problem(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 41);
    std::vector<std::int64_t> row(index(a->rows())), col(index(a->cols()));
    std::iota(row.begin(), row.end(), 0);
    std::iota(col.begin(), col.end(), 0);
    std::mt19937_64 engine(42);
    std::shuffle(row.begin(), row.end(), engine);
    std::shuffle(col.begin(), col.end(), engine);
    Triplets t = triplets(*a);
    Vector b_permuted(b.size());
    for (std::size_t k = 0; k < t.values.size(); ++k) {
        t.i[k] = row[index(t.i[k])];
        t.j[k] = col[index(t.j[k])];
    }
    for (std::size_t i = 0; i < b.size(); ++i) b_permuted[index(row[i])] = b[i];
    const Matrix permuted = t.matrix();
    const double sigma_min = dense_solution(*a, b).sigma_min;
    for (const Method method : kMethods) {
        const SolveOptions options = with_method(method, 1e-10);
        const Answer plain = solve(base, a, b, options);
        const Answer other = solve(base, permuted, b_permuted, options);
        Vector back(plain.x.size());
        for (std::size_t j = 0; j < back.size(); ++j) back[j] = other.x[index(col[j])];
        CHECK(plain.result.status == other.result.status);
        CHECK(distance(plain.x, back) <=
              error_bound(truth(*a, b, plain.x), sigma_min) + error_bound(truth(*a, b, back), sigma_min));
    }
}

// All methods meet in the same x.
inline void suite_methods_meet(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(200, 60, 4, 51), 100);
    const Vector b = random_vector(a->rows(), 52);
    for (const double damp : {0.0, 0.05}) {
        const double sigma_min = dense_solution(*a, b, damp).sigma_min;
        Answer first;
        double first_bound = 0;
        for (const Method method : kMethods) {
            SolveOptions options = with_method(method, 1e-11);
            options.damp = damp;
            options.max_iterations = 2000;
            const Answer answer = solve(base, a, b, options);
            CAPTURE(word(method));
            CHECK(answer.result.converged());
            CHECK(answer.result.method == method);
            const double bound = error_bound(truth(*a, b, answer.x, damp), sigma_min);
            if (first.x.empty()) {
                first = answer;
                first_bound = bound;
            }
            CHECK(distance(answer.x, first.x) <= first_bound + bound);
        }
    }
}

// Columns scaled to norm 1: the same x where the rank is full, in far fewer iterations where they were badly scaled.
// With damping the rows lambda D take part in the scaling.
inline void suite_equilibrated(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(150, 40, 4, 61), 1e4);
    const Vector b = random_vector(a->rows(), 62);
    for (const double damp : {0.0, 1e-3}) {
        const Matrix full = damp > 0 ? stacked(*a, *diagonal(Vector(index(a->cols()), damp))) : a;
        Vector rhs = b;
        rhs.resize(index(full->rows()), 0.0);
        Vector scale(index(a->cols()), 0.0);
        const Triplets t = triplets(*full);
        for (std::size_t k = 0; k < t.values.size(); ++k) scale[index(t.j[k])] += t.values[k] * t.values[k];
        for (double& s : scale) s = 1 / std::sqrt(s);
        const Matrix even =
            with_values(*full, [&](std::int64_t, std::int64_t j, double value) { return value * scale[index(j)]; });
        const Oracle oracle = dense_solution(*a, b, damp);
        for (const Method method : kMethods) {
            SolveOptions options = with_method(method, 1e-12);
            options.max_iterations = 20000;
            const Answer equilibrated = solve(base, even, rhs, options);
            Vector x = equilibrated.x;
            for (std::size_t j = 0; j < x.size(); ++j) x[j] *= scale[j];
            options.damp = damp;
            const Answer plain = solve(base, a, b, options);
            CAPTURE(word(method));
            CAPTURE(damp);
            CHECK(plain.result.converged());
            CHECK(equilibrated.result.converged());
            CHECK(distance(x, oracle.x) <= error_bound(truth(*a, b, x, damp), oracle.sigma_min));
            CHECK(distance(plain.x, oracle.x) <= error_bound(truth(*a, b, plain.x, damp), oracle.sigma_min));
            CHECK(5 * equilibrated.result.iterations < plain.result.iterations);
        }
    }
}

// Eigen's conjugate gradients for least squares, without a preconditioner, on the row-major matrix: the same iterates,
// so the same
// ||A'r|| after as many steps; and LSMR's ||A'r|| is never larger.
inline void suite_against_eigen(const PrepareOptions& base) {
    const Matrix a = random_sparse(300, 80, 4, 71);
    const Vector b = random_vector(a->rows(), 72);
    using Sparse = Eigen::SparseMatrix<double, Eigen::RowMajor>;
    Sparse sparse(a->rows(), a->cols());
    {
        const Triplets t = triplets(*a);
        std::vector<Eigen::Triplet<double>> list;
        for (std::size_t k = 0; k < t.values.size(); ++k) {
            list.emplace_back(static_cast<int>(t.i[k]), static_cast<int>(t.j[k]), t.values[k]);
        }
        sparse.setFromTriplets(list.begin(), list.end());
    }
    const Eigen::VectorXd rhs = Eigen::Map<const Eigen::VectorXd>(b.data(), a->rows());
    const double at_b = truth(*a, b, Vector(index(a->cols()), 0.0)).ar;
    const double tolerance = 1e-8;
    Eigen::LeastSquaresConjugateGradient<Sparse, Eigen::IdentityPreconditioner> eigen;
    eigen.setTolerance(tolerance);
    eigen.compute(sparse);
    const Eigen::VectorXd x = eigen.solve(rhs);
    const Vector x_eigen(x.data(), x.data() + x.size());
    REQUIRE(eigen.info() == Eigen::Success);
    const std::int64_t steps = eigen.iterations() + 1;  // its count leaves out the last step

    const Answer cgls = solve(base, a, b, exactly(Method::cgls, steps));
    const Answer lsmr = solve(base, a, b, exactly(Method::lsmr, steps));
    const double ar_eigen = truth(*a, b, x_eigen).ar;
    const double ar_cgls = truth(*a, b, cgls.x).ar;
    const double ar_lsmr = truth(*a, b, lsmr.x).ar;
    CHECK(ar_eigen <= tolerance * at_b);
    CHECK(ar_cgls <= tolerance * at_b);
    CHECK(ar_lsmr <= ar_cgls + gradient_rounding(truth(*a, b, lsmr.x)));
    // One step less does not reach the tolerance: the counts are equal, not only the answers.
    CHECK(truth(*a, b, solve(base, a, b, exactly(Method::cgls, steps - 1)).x).ar > tolerance * at_b);
    const double sigma_min = dense_solution(*a, b).sigma_min;
    CHECK(distance(x_eigen, cgls.x) <= (ar_eigen + ar_cgls) / (sigma_min * sigma_min) + 64 * kEps64 * norm(x_eigen));
}

// --- scale ---

// A, b (and x0, damping) times powers of two: the same bits, shifted.
inline void suite_scaled_by_powers_of_two(const PrepareOptions& base) {
    const std::pair<int, int> shifts[] = {{-27, 0},     {0, -27},   {-27, -27},  {500, 0},     {-500, 0},
                                          {0, 500},     {0, -500},  {500, 500},  {-500, -500}, {450, -450},
                                          {-800, -100}, {950, 400}, {-960, -300}};
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 81);
    const Vector x0 = random_vector(a->cols(), 82);
    for (const Precision precision : kPrecisions) {
        const PrepareOptions prepare = with_precision(base, precision);
        for (const Method method : kMethods) {
            for (const bool damped_from_x0 : {false, true}) {
                SolveOptions options = with_method(method);
                options.damp = damped_from_x0 ? 0.4 : 0.0;
                const auto start = [&](int shift) -> std::optional<Vector> {
                    if (!damped_from_x0) return std::nullopt;
                    return scaled(x0, std::ldexp(1.0, shift));
                };
                const Answer plain = solve(prepare, a, b, options, start(0));
                REQUIRE(plain.result.converged());
                for (const auto& [ea, eb] : shifts) {
                    CAPTURE(word(method));
                    CAPTURE(word(precision));
                    CAPTURE(damped_from_x0);
                    CAPTURE(ea);
                    CAPTURE(eb);
                    SolveOptions shifted = options;
                    shifted.damp = std::ldexp(options.damp, ea);
                    const Answer other =
                        solve(prepare, std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(ea)),
                              scaled(b, std::ldexp(1.0, eb)), shifted, start(eb - ea));
                    CHECK(other.result.status == plain.result.status);
                    CHECK(other.result.iterations == plain.result.iterations);
                    CHECK(same_bits(other.x, scaled(plain.x, std::ldexp(1.0, eb - ea))));
                    CHECK(other.result.norms.r == std::ldexp(plain.result.norms.r, eb));
                    CHECK(other.result.norms.ar == std::ldexp(plain.result.norms.ar, ea + eb));
                    CHECK(other.result.norms.r_estimated == std::ldexp(plain.result.norms.r_estimated, eb));
                    CHECK(other.result.norms.x == std::ldexp(plain.result.norms.x, eb - ea));
                    CHECK(other.result.norms.a_frobenius == std::ldexp(plain.result.norms.a_frobenius, ea));
                    CHECK((std::isnan(plain.result.norms.cond_estimate) ||
                           other.result.norms.cond_estimate == plain.result.norms.cond_estimate));
                }
            }
        }
    }
}

// The largest entry is not among the few that are looked at first, and beyond what those would have let expect of the range of T.
inline void suite_hidden_largest_entry(const PrepareOptions& base) {
    Triplets t = triplets(*random_sparse(2000, 500, 10, 85));
    const Vector b = random_vector(t.rows, 86);
    for (const auto& [precision, exponent] : {std::pair{Precision::fp32, 140}, {Precision::fp32, 1000}, {Precision::fp64, 1000}}) {
        CAPTURE(word(precision));
        const double ordinary = t.values[8001];
        t.values[8001] = std::ldexp(1.0, exponent);
        const Matrix a = t.matrix();
        t.values[8001] = ordinary;
        REQUIRE(max_abs_value(*a) == std::ldexp(1.0, exponent));
        REQUIRE(sampled_max_abs(*a) < 16);
        SolveOptions options;
        options.max_iterations = 3;
        options.atol = options.btol = options.conlim = 0;
        const PrepareOptions prepare = with_precision(base, precision);
        // With weights, all entries are looked at first.
        const Vector ones(b.size(), 1.0);
        PrepareOptions weighted = prepare;
        weighted.weights = ones;
        const Answer other = solve(weighted, a, b, options);
        const Answer plain = solve(prepare, a, b, options);
        CHECK(plain.result.status == other.result.status);
        CHECK(plain.result.status != Status::non_finite);
        CHECK(plain.result.iterations == other.result.iterations);
        CHECK(same_bits(plain.x, other.x));
        CHECK(plain.result.norms.r == other.result.norms.r);
        CHECK(plain.result.norms.ar == other.result.norms.ar);
        CHECK(plain.result.norms.a_frobenius == frobenius_norm(*a, max_abs_value(*a)));
        PreparedProblem problem(a, prepare);
        CHECK(problem.frobenius() == frobenius_norm(*a, max_abs_value(*a)));
    }
}

// Other factors round, so bits differ: the same status, iterations within 2 % + 1.
inline void suite_scaled_by_powers_of_ten(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(200, 80, 4, 91), 5);
    const Vector b = random_vector(a->rows(), 92);
    const std::pair<double, double> factors[] = {
        {1e-4, 1},   {1e-5, 1},  {1e-6, 1},   {1e-7, 1},  {1e-8, 1},   {1e-9, 1},  {1e9, 1},        {1e100, 1},
        {1e-100, 1}, {1e160, 1}, {1e-160, 1}, {1, 1e-20}, {1, 1e-200}, {1, 1e160}, {1e-150, 1e150}, {1e150, 1e-150}};
    for (const double damp : {0.0, 0.02}) {
        const Oracle oracle = dense_solution(*a, b, damp);
        const double cond = oracle.sigma_max / oracle.sigma_min;
        for (const Method method : kMethods) {
            SolveOptions options = with_method(method, 1e-8);
            options.damp = damp;
            const Answer plain = solve(base, a, b, options);
            REQUIRE(plain.result.status == Status::least_squares);
            for (const auto& [fa, fb] : factors) {
                CAPTURE(word(method));
                CAPTURE(damp);
                CAPTURE(fa);
                CAPTURE(fb);
                options.damp = damp * fa;
                const Answer other = solve(base, scaled(*a, fa), scaled(b, fb), options);
                CHECK(other.result.status == plain.result.status);
                const double difference =
                    std::abs(static_cast<double>(other.result.iterations - plain.result.iterations));
                CHECK(difference <= 0.02 * static_cast<double>(plain.result.iterations) + 1);
                if (method != Method::cgls) {
                    // Never above the condition (rounding moves it below that), whatever the scale of A.
                    CHECK(other.result.norms.cond_estimate <= cond);
                    CHECK(other.result.norms.cond_estimate >= plain.result.norms.cond_estimate / 3);
                }
            }
        }
    }
}

// --- statuses ---

inline void suite_status_start_solves(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector zero(index(a->rows()), 0.0);
    const Vector x0 = random_vector(a->cols(), 101);
    for (const Precision precision : kPrecisions) {
        for (const Method method : kMethods) {
            const PrepareOptions prepare = with_precision(base, precision);
            const Answer nothing = solve(prepare, a, zero, with_method(method));
            CHECK(nothing.result.status == Status::start_solves);
            CHECK(nothing.result.iterations == 0);
            CHECK(same_bits(nothing.x, Vector(x0.size(), 0.0)));
        }
    }
    // Entries and x0 that multiply exactly: r is 0 to the bit.
    const Matrix whole =
        with_values(*a, [](std::int64_t, std::int64_t, double value) { return std::round(8 * value); });
    const Vector ones(x0.size(), 1.0);
    for (const Method method : kMethods) {
        const Answer exact = solve(base, whole, product(*whole, ones), with_method(method), ones);
        CHECK(exact.result.status == Status::start_solves);
        CHECK(exact.result.iterations == 0);
        CHECK(same_bits(exact.x, ones));
        CHECK(exact.result.norms.r == 0);
    }
}

inline void suite_status_compatible(const PrepareOptions& base) {
    for (const Matrix& a : {tall_matrix(), wide_matrix()}) {
        const Vector b = product(*a, random_vector(a->cols(), 111));
        for (const Precision precision : kPrecisions) {
            for (const Method method : kMethods) {
                const PrepareOptions prepare = with_precision(base, precision);
                const SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-8 : 1e-4);
                const Answer answer = solve(prepare, a, b, options);
                CAPTURE(answer.result.message);
                CHECK(answer.result.status == Status::compatible);
                check_claim(answer.result, truth(*a, b, answer.x), options, eps_of(prepare));
            }
        }
    }
}

inline void suite_status_least_squares(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 121);
    for (const Precision precision : kPrecisions) {
        for (const Method method : kMethods) {
            const PrepareOptions prepare = with_precision(base, precision);
            const SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-8 : 1e-4);
            const Answer answer = solve(prepare, a, b, options);
            CAPTURE(answer.result.message);
            CHECK(answer.result.status == Status::least_squares);
            check_claim(answer.result, truth(*a, b, answer.x), options, eps_of(prepare));
        }
    }
}

// CGLS has no condition estimate, so neither 3 nor 6.
inline void suite_status_condition_limit(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(200, 80, 4, 131), 1e3);
    const Vector b = random_vector(a->rows(), 132);
    SolveOptions options = with_method(Method::lsmr, 1e-12);
    options.max_iterations = 5000;
    for (const Method method : {Method::lsmr, Method::lsqr}) {
        options.method = method;
        options.conlim = 30;
        Recorder recorder;
        const Answer answer = solve(base, a, b, options, {}, &recorder);
        CHECK(answer.result.status == Status::condition_limit);
        CHECK(answer.result.norms.cond_estimate >= 30);
        REQUIRE(recorder.all.size() >= 2);
        CHECK(recorder.all.back().cond >= 30);
        CHECK(recorder.all[recorder.all.size() - 2].cond < 30);
        check_norms(answer.result, truth(*a, b, answer.x));
        options.conlim = 0;  // off
        CHECK(solve(base, a, b, options).result.converged());
    }
    options.method = Method::cgls;
    options.conlim = 30;
    const Answer cgls = solve(base, a, b, options);
    CHECK(cgls.result.converged());
    CHECK(std::isnan(cgls.result.norms.cond_estimate));
}

// 4 and 5: a tolerance below the machine precision of the vectors is never called met.
inline void suite_status_machine_precision(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector consistent = product(*a, random_vector(a->cols(), 141));
    const Vector inconsistent = random_vector(a->rows(), 142);
    int compatible_at_eps = 0;
    for (const Precision precision : kPrecisions) {
        const PrepareOptions prepare = with_precision(base, precision);
        for (const Method method : kMethods) {
            for (const double tolerance : {0.0, precision == Precision::fp64 ? 1e-18 : 1e-10}) {
                const SolveOptions options = with_method(method, tolerance);
                const Answer compatible = solve(prepare, a, consistent, options);
                const Answer least = solve(prepare, a, inconsistent, options);
                CAPTURE(word(method));
                CAPTURE(word(precision));
                CAPTURE(tolerance);
                CAPTURE(compatible.result.message);
                CAPTURE(least.result.message);
                CHECK((compatible.result.status == Status::compatible_eps ||
                       compatible.result.status == Status::least_squares_eps));
                compatible_at_eps += compatible.result.status == Status::compatible_eps;
                CHECK(least.result.status == Status::least_squares_eps);
                CHECK(least.result.message.find("machine precision") != std::string::npos);
                check_claim(compatible.result, truth(*a, consistent, compatible.x), options, eps_of(prepare));
                check_claim(least.result, truth(*a, inconsistent, least.x), options, eps_of(prepare));
            }
        }
    }
    CHECK(compatible_at_eps > 0);  // 4 is reached, and not only 5
}

inline void suite_status_iteration_limit(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 151);
    const Vector x0 = random_vector(a->cols(), 152);
    for (const Method method : kMethods) {
        const Answer none = solve(base, a, b, exactly(method, 0));
        CHECK(none.result.status == Status::iteration_limit);
        CHECK(none.result.iterations == 0);
        CHECK(same_bits(none.x, Vector(x0.size(), 0.0)));
        check_norms(none.result, truth(*a, b, none.x));
        for (const double damp : {0.0, 0.5}) {
            const Answer start = solve(base, a, b, exactly(method, 0, damp), x0);
            CHECK(start.result.status == Status::iteration_limit);
            CHECK(start.result.iterations == 0);
            CHECK(same_bits(start.x, x0));
            check_norms(start.result, truth(*a, b, start.x, damp, {}, x0));
        }
        Recorder recorder;
        const Answer one = solve(base, a, b, exactly(method, 1), {}, &recorder);
        CHECK(one.result.status == Status::iteration_limit);
        CHECK(one.result.iterations == 1);
        CHECK(recorder.all.size() == 1);
        CHECK(norm(one.x) > 0);
        check_norms(one.result, truth(*a, b, one.x));
    }
}

inline void suite_status_time_limit(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 161);
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method, 0);
        options.time_limit_seconds = 0;
        const Answer answer = solve(base, a, b, options);
        CHECK(answer.result.status == Status::time_limit);
        check_norms(answer.result, truth(*a, b, answer.x));
    }
}

// Stopped by the observer: x is that of the iteration the result names.
inline void suite_status_stopped(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(200, 80, 4, 171), 1e4);
    const Vector b = random_vector(a->rows(), 172);
    for (const Method method : kMethods) {
        SolveOptions options = exactly(method, 100000);
        Recorder recorder(5);
        const Answer answer = solve(base, a, b, options, {}, &recorder);
        CHECK(answer.result.status == Status::stopped);
        CHECK(answer.result.iterations >= 5);
        CHECK(static_cast<std::int64_t>(recorder.all.size()) == answer.result.iterations);
        options.max_iterations = answer.result.iterations;
        CHECK(same_bits(answer.x, solve(base, a, b, options).x));
        check_norms(answer.result, truth(*a, b, answer.x));
    }
}

// --- records and estimates ---

inline void suite_records(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(150, 50, 4, 181), 10);
    const Vector b = random_vector(a->rows(), 182);
    const Vector x0 = random_vector(a->cols(), 183);
    for (const Precision precision : kPrecisions) {
        const PrepareOptions prepare = with_precision(base, precision);
        for (const Method method : kMethods) {
            for (const double damp : {0.0, 0.2}) {
                for (const bool warm : {false, true}) {
                    SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-9 : 1e-5);
                    options.damp = damp;
                    const std::optional<Vector> start = warm ? std::optional<Vector>(x0) : std::nullopt;
                    Recorder recorder;
                    const Answer answer = solve(prepare, a, b, options, start, &recorder);
                    CAPTURE(word(method));
                    CAPTURE(word(precision));
                    CAPTURE(damp);
                    CAPTURE(warm);
                    REQUIRE(answer.result.status == Status::least_squares);
                    REQUIRE(answer.result.restarts == 0);
                    // An observer changes nothing.
                    CHECK(same_bits(answer.x, solve(prepare, a, b, options, start).x));
                    const auto& records = recorder.all;
                    REQUIRE(static_cast<std::int64_t>(records.size()) == answer.result.iterations);
                    const double frobenius = truth(*a, b, answer.x, damp).stacked;
                    for (std::size_t k = 0; k < records.size(); ++k) {
                        const IterationRecord& record = records[k];
                        CHECK(record.iteration == static_cast<std::int64_t>(k) + 1);
                        check_within(record.a_norm, frobenius, 8 * kEps64 * frobenius, "a_norm");
                        check_within(record.compat, record.r_norm / answer.result.norms.b, 4 * kEps64 * record.compat,
                                     "compat");
                        check_within(record.ls, record.ar_norm / (record.a_norm * record.r_norm),
                                     4 * kEps64 * record.ls, "ls");
                        if (k == 0) continue;
                        const IterationRecord& before = records[k - 1];
                        CHECK(record.seconds >= before.seconds);
                        // ||r|| falls in all methods, ||A'r|| in LSMR; in CGLS ||r|| is measured, so rounding shows.
                        const double slack = 1 + 16 * eps_of(prepare);
                        CHECK(record.r_norm <= before.r_norm * slack);
                        if (method == Method::lsmr) CHECK(record.ar_norm <= before.ar_norm);
                    }
                    // ||A||_F as the bidiagonalisation has seen it: that of B, with a row of lambda for each column, or of the stack's.
                    if (method != Method::cgls) {
                        double squares = damp > 0 && !warm ? static_cast<double>(records.size()) * damp * damp : 0.0;
                        for (const IterationRecord& record : records) squares += record.alpha * record.alpha + record.beta * record.beta;
                        check_within(answer.result.norms.a_estimated, std::sqrt(squares), norm_rounding(a->cols()) * std::sqrt(squares), "||B||_F");
                    }
                    CHECK(records.back().r_norm == answer.result.norms.r_estimated);
                    CHECK(records.back().ar_norm == answer.result.norms.ar_estimated);
                    for (const std::size_t k : {std::size_t{1}, std::size_t{2}, std::size_t{7}, records.size()}) {
                        SolveOptions shorter = options;
                        shorter.max_iterations = static_cast<std::int64_t>(k);
                        const double x_norm = norm(solve(prepare, a, b, shorter, start).x);
                        check_within(records[k - 1].x_norm, x_norm, 8 * kEps64 * x_norm, "||x|| of a record");
                    }
                }
            }
        }
    }
}

// While the basis is orthogonal the estimates are the truth.
inline void suite_estimates(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(200, 80, 4, 191), 10);
    const Vector b = random_vector(a->rows(), 192);
    const Vector x0 = random_vector(a->cols(), 193);
    for (const Method method : kMethods) {
        for (const double damp : {0.0, 0.2}) {
            for (const int start : {0, 1, 2}) {
                for (std::int64_t k = 1; k <= 20; ++k) {
                    SolveOptions options = exactly(method, k, damp);
                    options.damp_center = start == 2 ? DampCenter::x0 : DampCenter::zero;
                    const std::optional<Vector> given = start > 0 ? std::optional<Vector>(x0) : std::nullopt;
                    const Answer answer = solve(base, a, b, options, given);
                    CAPTURE(word(method));
                    CAPTURE(damp);
                    CAPTURE(start);
                    CAPTURE(k);
                    REQUIRE(answer.result.iterations == k);
                    const Truth t = truth(*a, b, answer.x, damp, start == 2 ? x0 : Vector{}, given.value_or(Vector{}));
                    check_norms(answer.result, t);
                    check_within(answer.result.norms.r_estimated, t.r_damped, 1e-10 * t.r_damped + residual_rounding(t),
                                 "estimate of ||r||");
                    check_within(answer.result.norms.ar_estimated, t.ar, 1e-10 * t.ar + gradient_rounding(t),
                                 "estimate of ||A'r||");
                }
            }
        }
    }
}

// The condition estimate of LSMR and LSQR is below the condition, and near it once the whole space is seen: the extremes of the diagonal of R-bar, where
// Q R = [B; lambda I] and Q-bar R-bar = R^T.
inline void suite_condition_estimate(const PrepareOptions& base) {
    Vector d(50);
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = static_cast<double>(i + 1);
    Vector of_small(50);  // begins where A is small: the least of the diagonal is not its last
    for (std::size_t i = 0; i < d.size(); ++i) of_small[i] = std::pow(0.3, static_cast<double>(i));
    for (const Method method : {Method::lsmr, Method::lsqr}) {
        for (const auto& [damp, right] : {std::pair{0.0, random_vector(50, 191)}, {3.0, random_vector(50, 191)}, {0.0, of_small}}) {
            CAPTURE(word(method));
            CAPTURE(damp);
            SolveOptions options = exactly(method, 12, damp);
            Recorder recorder;
            solve(base, diagonal(d), right, options, std::nullopt, &recorder);
            REQUIRE(recorder.all.size() == 12);
            bool least_is_last = true;
            DenseMatrix b = DenseMatrix::Zero(13 + 12, 12);
            for (Eigen::Index k = 0; k < 12; ++k) {
                const IterationRecord& record = recorder.all[static_cast<std::size_t>(k)];
                b(k, k) = record.alpha;
                b(k + 1, k) = record.beta;
                b(13 + k, k) = damp;
                const Eigen::Index n = k + 1;
                const DenseMatrix r = Eigen::HouseholderQR<DenseMatrix>(b.leftCols(n)).matrixQR().topRows(n).triangularView<Eigen::Upper>();
                const DenseMatrix r_bar = Eigen::HouseholderQR<DenseMatrix>(r.transpose()).matrixQR();
                const DenseVector sizes = r_bar.diagonal().cwiseAbs();
                least_is_last = least_is_last && sizes(k) == sizes.minCoeff();
                const auto cond = static_cast<double>(sizes.maxCoeff() / sizes.minCoeff());
                check_within(record.cond, cond, 1e-10 * cond, "estimate of cond(A)");
            }
            CHECK(least_is_last == (right != of_small));
        }
    }
    for (const Method method : {Method::lsmr, Method::lsqr}) {
        const Answer answer = solve(base, diagonal(d), Vector(50, 1.0), with_method(method, 1e-12));
        CHECK(answer.result.norms.cond_estimate <= 50 * (1 + 1e-10));
        CHECK(answer.result.norms.cond_estimate >= 10);
    }
}

// --- edges ---

inline void suite_empty_rows_and_columns(const PrepareOptions& base) {
    // Empty rows 0, 5, last; empty columns 0, 7, last.
    Triplets t = triplets(*random_sparse(40, 15, 3, 201));
    for (std::size_t k = 0; k < t.values.size(); ++k) {
        t.i[k] += 1 + (t.i[k] >= 4);
        t.j[k] += 1 + (t.j[k] >= 6);
    }
    t.rows = 43;
    t.cols = 18;
    const Matrix a = t.matrix();
    const Vector b = random_vector(a->rows(), 202);
    const Vector x0 = random_vector(a->cols(), 203);
    for (const Precision precision : kPrecisions) {
        for (const Method method : kMethods) {
            const PrepareOptions prepare = with_precision(base, precision);
            SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-10 : 1e-6);
            const Answer cold = solve(prepare, a, b, options);
            const Answer warm = solve(prepare, a, b, options, x0);
            CHECK(cold.result.converged());
            CHECK(warm.result.converged());
            options.damp = 0.5;
            const Answer damped = solve(prepare, a, b, options, x0);
            CHECK(damped.result.converged());
            for (const std::size_t j : {std::size_t{0}, std::size_t{7}, std::size_t{17}}) {
                CHECK(cold.x[j] == 0);
                const double kept =
                    precision == Precision::fp64 ? x0[j] : static_cast<double>(static_cast<float>(x0[j]));
                CHECK(warm.x[j] == kept);
                // The damping alone acts on this one: its minimum is the centre, zero.
                CHECK(std::abs(damped.x[j]) <= error_bound(truth(*a, b, damped.x, 0.5), 0.5));
            }
        }
    }
}

inline void suite_degenerate_shapes(const PrepareOptions& base) {
    for (const Precision precision : kPrecisions) {
        for (const Method method : kMethods) {
            const PrepareOptions prepare = with_precision(base, precision);
            const double tolerance = precision == Precision::fp64 ? 1e-12 : 1e-6;
            SolveOptions options = with_method(method, tolerance);
            const auto check_zero = [&](std::int64_t rows, std::int64_t cols) {
                CAPTURE(rows);
                CAPTURE(cols);
                const Matrix a = zero_matrix(rows, cols);
                const Vector b = random_vector(rows, 211);
                const Vector x0 = random_vector(cols, 212);
                const Answer cold = solve(prepare, a, b, options);
                CHECK(cold.result.status == Status::start_solves);
                CHECK(same_bits(cold.x, Vector(index(cols), 0.0)));
                check_norms(cold.result, truth(*a, b, cold.x));
                const Answer warm = solve(prepare, a, b, options, x0);
                CHECK(warm.result.status == Status::start_solves);
                CHECK(distance(warm.x, x0) <= eps_of(prepare) * norm(x0));
                for (const int exponent : {-300, 300}) {  // however far x0 is from b
                    const Vector far = scaled(x0, std::ldexp(1.0, exponent));
                    CHECK(distance(solve(prepare, a, b, options, far).x, far) <= eps_of(prepare) * norm(far));
                }
                SolveOptions damped = options;
                damped.damp = 2;
                const Answer to_zero = solve(prepare, a, b, damped, x0);
                CHECK(to_zero.result.converged());
                CHECK(norm(to_zero.x) <= error_bound(truth(*a, b, to_zero.x, 2), 2));
                check_norms(to_zero.result, truth(*a, b, to_zero.x, 2, {}, x0));
                // The damping is then the only scale there is.
                for (const int exponent : {-300, 300}) {
                    damped.damp = std::ldexp(1.0, exponent);
                    damped.damp_center = DampCenter::given;
                    damped.center = x0;
                    const Vector far = random_vector(cols, 213);
                    const Answer to_center = solve(prepare, a, Vector(index(rows), 0.0), damped, far);
                    CAPTURE(exponent);
                    CAPTURE(to_center.result.message);
                    CHECK(to_center.result.converged());
                    CHECK(distance(to_center.x, x0) <= 8 * std::max(tolerance, eps_of(prepare)) * (norm(x0) + norm(far)));
                }
            };
            check_zero(0, 0);
            check_zero(0, 5);
            check_zero(5, 0);
            check_zero(4, 3);
            check_zero(1, 1);

            const auto check_exact = [&](const Matrix& a, const Vector& b, const Vector& expected) {
                const Answer answer = solve(prepare, a, b, options);
                CAPTURE(a->rows());
                CAPTURE(a->cols());
                CAPTURE(answer.result.message);
                CHECK(answer.result.converged());
                CHECK(answer.result.iterations <= 1);
                CHECK(distance(answer.x, expected) <= 8 * eps_of(prepare) * norm(expected));
            };
            check_exact(matrix_of(1, 1, {-3}), {6}, {-2});
            check_exact(matrix_of(1, 3, {1, 2, 2}), {9}, {1, 2, 2});  // least norm
            check_exact(matrix_of(3, 1, {1, 2, 2}), {1, 2, 3}, {11.0 / 9});
            check_exact(matrix_of(2, 2, {0, 5, 0, 0}), {1, 1}, {0, 0.2});
        }
    }
}

// Identity, rank 1, two distinct singular values: done in as many iterations as there are distinct singular values.
inline void suite_early_breakdown(const PrepareOptions& base) {
    const Vector b = random_vector(10, 221);
    for (const Method method : kMethods) {
        for (const double tolerance : {1e-6, 0.0}) {
            const SolveOptions options = with_method(method, tolerance);
            const Answer identity = solve(base, diagonal(Vector(10, 1.0)), b, options);
            CHECK(identity.result.converged());
            // Without a tolerance the test against machine precision sees ||x|| of the iteration before, here 0.
            CHECK(identity.result.iterations <= (tolerance > 0 ? 1 : 2));
            CHECK(distance(identity.x, b) <= 8 * kEps64 * norm(b));

            Triplets rank_one{10, 10, {}, {}, {}};
            for (std::int64_t i = 0; i < 10; ++i) {
                for (std::int64_t j = 0; j < 10; ++j) rank_one.add(i, j, static_cast<double>((i + 1) * (j + 1)));
            }
            const Matrix r1 = rank_one.matrix();
            const Answer one = solve(base, r1, b, options);
            CAPTURE(one.result.message);
            CHECK(one.result.converged());
            CHECK(one.result.iterations <= 2);
            CHECK(distance(one.x, dense_solution(*r1, b).x) <= 64 * kEps64 * norm(one.x));

            const Answer two = solve(base, diagonal({1, 1, 1, 1, 1, 3, 3, 3, 3, 3}), b, options);
            CAPTURE(two.result.message);
            CHECK(two.result.converged());
            CHECK(two.result.iterations <= 3);
            CHECK(two.result.iterations >= 2);
        }
        // ||A p|| below sqrt(eps) ||A|| ||p||, and alpha (of the first b) or beta (of the second) below sqrt(eps) ||A||, are no breakdown: the
        // second step has all of x_2, without a restart.
        SolveOptions options = with_method(method, 1e-12);
        options.conlim = 0;
        for (const double b_2 : {1.0, 0x1p-30}) {
            const Answer small = solve(base, diagonal({1, 0x1p-30}), {1, b_2}, options);
            CAPTURE(word(method));
            CAPTURE(b_2);
            CAPTURE(small.result.message);
            CHECK(small.result.converged());
            CHECK(small.result.restarts == 0);
            CHECK(std::abs(small.x[0] - 1) <= 1e-6);
            CHECK(std::abs(small.x[1] - 0x1p30 * b_2) <= 1e-6 * 0x1p30 * b_2);
        }
    }
}

inline void suite_bad_input(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 231);
    PreparedProblem problem(a, base);
    const Answer before = solve(problem, b, with_method(Method::lsmr));
    const auto refused = [&](const Vector& rhs, Vector x, const SolveOptions& options, bool use_x0, const char* part) {
        const Vector untouched = x;
        std::string message;
        try {
            problem.solve(rhs, x, options, use_x0);
        } catch (const InputError& error) {
            message = error.what();
        }
        INFO("message: " << message << ", expected part: " << part);
        CHECK(message.find(part) != std::string::npos);
        CHECK(std::equal(x.begin(), x.end(), untouched.begin(),
                         [](double p, double q) { return p == q || (std::isnan(p) && std::isnan(q)); }));
    };
    const Vector x(index(a->cols()), 0.0);
    const SolveOptions options = with_method(Method::lsmr);
    refused(Vector(7, 1.0), x, options, false, "b has 7 entries, A is 120 x 40");
    refused(b, Vector(3, 1.0), options, false, "x has 3 entries, A is 120 x 40");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double bad : {nan, infinity, -infinity}) {
        Vector spoiled = b;
        spoiled[4] = bad;
        refused(spoiled, x, options, false, "b: entry 5");
        Vector spoiled_start = x;
        spoiled_start[39] = bad;
        refused(b, spoiled_start, options, true, "x0: entry 40");
        CHECK_NOTHROW(problem.solve(b, spoiled_start, options, false));  // not a start: not read
    }
    const auto with = [&](auto change) {
        SolveOptions changed = options;
        change(changed);
        return changed;
    };
    refused(b, x, with([](SolveOptions& o) { o.damp = -1; }), false, "damp");
    refused(b, x, with([&](SolveOptions& o) { o.damp = nan; }), false, "damp");
    refused(b, x, with([&](SolveOptions& o) { o.damp = infinity; }), false, "damp");
    refused(b, x, with([](SolveOptions& o) { o.atol = -1e-9; }), false, "atol");
    refused(b, x, with([&](SolveOptions& o) { o.btol = nan; }), false, "btol");
    refused(b, x, with([](SolveOptions& o) { o.conlim = -2; }), false, "conlim");
    refused(b, x, with([](SolveOptions& o) { o.max_iterations = -2; }), false, "iteration limit");
    refused(b, x, with([&](SolveOptions& o) { o.time_limit_seconds = nan; }), false, "time limit");
    Vector many(index(a->cols()) * 2, 0.0);
    CHECK_THROWS_AS(problem.solve_many(b, many, 2, options), InputError);
    CHECK_THROWS_AS(problem.solve_many({}, {}, -1, options), InputError);
    // After all that it works as before.
    CHECK(same_bits(solve(problem, b, options).x, before.x));
}

// --- one problem, many solves ---

inline void suite_reuse(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 241);
    const Vector c = random_vector(a->rows(), 242);
    const Vector x0 = random_vector(a->cols(), 243);
    for (const Precision precision : kPrecisions) {
        const PrepareOptions prepare = with_precision(base, precision);
        PreparedProblem problem(a, prepare);
        SolveOptions damped = with_method(Method::lsmr);
        damped.damp = 0.3;
        for (int round = 0; round < 2; ++round) {
            for (const Method method : kMethods) {
                CHECK(same_bits(solve(problem, b, with_method(method)).x, solve(prepare, a, b, with_method(method)).x));
                damped.method = method;
                // The stack that a start off the centre needs is gone again afterwards.
                CHECK(same_bits(solve(problem, c, damped, x0).x, solve(prepare, a, c, damped, x0).x));
                CHECK(same_bits(solve(problem, c, damped).x, solve(prepare, a, c, damped).x));
            }
        }
        PreparedProblem moved = std::move(problem);
        CHECK(same_bits(solve(moved, b, damped).x, solve(prepare, a, b, damped).x));
    }
}

// The phases of a set-up are all of it: none counted twice, and next to nothing between them.
inline void suite_setup_phases(const PrepareOptions& base) {
    const Matrix a = random_sparse(60000, 20000, 8, 244);
    const auto check = [&](const PreparedInfo& info) {
        const SetupSeconds& setup = info.plan.setup;
        setup.for_each([&](const char* phase, double seconds) {
            CAPTURE(phase);
            CHECK(seconds >= 0);
        });
        CHECK(setup.check > 0);
        CHECK(setup.transpose > 0);
        CHECK(setup.choice > 0);
        CHECK(setup.sum() <= info.setup_seconds);
        CHECK(info.setup_seconds - setup.sum() <= 0.1 * info.setup_seconds + 5e-3);
    };
    for (const Precision precision : kPrecisions) {
        CAPTURE(name(precision));
        PreparedProblem problem(a, with_precision(base, precision));
        check(problem.info());
        const PreparedInfo before = problem.info();
        CHECK((before.plan.setup.context > 0) == (before.device == DeviceKind::cuda));
        CHECK((before.plan.setup.upload > 0) == (before.device == DeviceKind::cuda));
        // Those of an update are added.
        problem.reweight(Vector(static_cast<std::size_t>(a->rows()), 2.0));
        check(problem.info());
        CHECK(problem.info().setup_seconds > before.setup_seconds);
        CHECK(problem.info().plan.setup.context == before.plan.setup.context);
        CHECK(problem.info().plan.setup.transpose > before.plan.setup.transpose);
    }
}

inline void suite_many_right_hand_sides(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const auto m = index(a->rows());
    const auto n = index(a->cols());
    // Columns: random, zero, equal to the first, compatible.
    Vector b = random_vector(a->rows(), 251);
    b.resize(2 * m, 0.0);
    b.insert(b.end(), b.begin(), b.begin() + static_cast<std::ptrdiff_t>(m));
    const Vector compatible = product(*a, random_vector(a->cols(), 252));
    b.insert(b.end(), compatible.begin(), compatible.end());
    for (const Method method : kMethods) {
        const SolveOptions options = with_method(method);
        PreparedProblem problem(a, base);
        Vector x(4 * n, std::numeric_limits<double>::quiet_NaN());
        const std::vector<SolveResult> results = problem.solve_many(b, x, 4, options);
        REQUIRE(results.size() == 4);
        for (std::size_t j = 0; j < 4; ++j) {
            const Vector bj(b.begin() + static_cast<std::ptrdiff_t>(j * m),
                            b.begin() + static_cast<std::ptrdiff_t>((j + 1) * m));
            const Vector xj(x.begin() + static_cast<std::ptrdiff_t>(j * n),
                            x.begin() + static_cast<std::ptrdiff_t>((j + 1) * n));
            const Answer alone = solve(base, a, bj, options);
            CHECK(same_bits(xj, alone.x));
            CHECK(results[j].status == alone.result.status);
            CHECK(results[j].iterations == alone.result.iterations);
        }
        CHECK(results[0].status == Status::least_squares);
        CHECK(results[1].status == Status::start_solves);
        CHECK(results[3].status == Status::compatible);
        CHECK(problem.solve_many({}, {}, 0, options).empty());

        // An observer that stops a column ends the rest: they keep what x held.
        class StopSecond : public Observer {
          public:
            Verdict on_iterations(std::span<const IterationRecord> records) override {
                for (const IterationRecord& record : records) columns += record.iteration == 1;
                return columns == 2 ? Verdict::stop : Verdict::go_on;
            }
            int columns = 0;
        } observer;
        std::fill(x.begin(), x.end(), 7.0);
        const std::vector<SolveResult> stopped = problem.solve_many(b, x, 4, options, false, &observer);
        REQUIRE(stopped.size() == 3);  // the zero column has no iteration: the third is the second with one
        CHECK(stopped.back().status == Status::stopped);
        CHECK(std::all_of(x.begin() + static_cast<std::ptrdiff_t>(3 * n), x.end(), [](double v) { return v == 7.0; }));
    }
}

// An exception of the observer comes out as it was; x holds the iterate; the problem stays usable.
inline void suite_observer_throws(const PrepareOptions& base) {
    struct Interrupt : std::runtime_error {
        Interrupt() : std::runtime_error("enough") {}
    };
    class Thrower : public Observer {
      public:
        Verdict on_iterations(std::span<const IterationRecord> records) override {
            for (const IterationRecord& record : records) {
                if (record.iteration >= 3) throw Interrupt();
            }
            return Verdict::go_on;
        }
    };
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 261);
    for (const Method method : kMethods) {
        PreparedProblem problem(a, base);
        const SolveOptions options = with_method(method, 1e-12);
        const Vector before = solve(problem, b, options).x;
        Thrower thrower;
        Vector x(index(a->cols()), std::numeric_limits<double>::quiet_NaN());
        CHECK_THROWS_WITH_AS(problem.solve(b, x, options, false, &thrower), "enough", Interrupt);
        const double start = norm(b);
        CHECK(truth(*a, b, x).r < start);  // some iterations were made
        CHECK(same_bits(solve(problem, b, options).x, before));
    }
}

// --- bits ---

inline void suite_repeats(const PrepareOptions& base) {
    const Matrix a = random_sparse(2000, 700, 6, 271);
    const Vector b = random_vector(a->rows(), 272);
    for (const Precision precision : kPrecisions) {
        for (const Method method : kMethods) {
            PreparedProblem problem(a, with_precision(base, precision));
            const Answer first = solve(problem, b, with_method(method));
            int different = 0;
            for (int repeat = 0; repeat < 50; ++repeat) {
                const Answer again = solve(problem, b, with_method(method));
                different += !same_bits(again.x, first.x) || again.result.iterations != first.result.iterations ||
                             again.result.norms.ar != first.result.norms.ar;
            }
            CHECK(different == 0);
        }
    }
}

// A stored once or twice: the same up to the order of additions.
inline void suite_storage(const PrepareOptions& base) {
    const Matrix a = random_sparse(600, 200, 5, 281);
    const Vector b = random_vector(a->rows(), 282);
    for (const Precision precision : kPrecisions) {
        for (const Method method : kMethods) {
            PrepareOptions single = with_precision(base, precision);
            single.storage = StorageKind::single;
            PrepareOptions dual = single;
            dual.storage = StorageKind::dual;
            // After few steps rounding has not grown: each differs from the exact iterate by about
            // (steps) (row length) eps cond ||x||, cond < 20.
            const Answer one = solve(single, a, b, exactly(method, 5));
            const Answer two = solve(dual, a, b, exactly(method, 5));
            CHECK(distance(one.x, two.x) <= 5 * 8 * 20 * eps_of(single) * norm(two.x));
            const SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-9 : 1e-5);
            const Answer one_full = solve(single, a, b, options);
            const Answer two_full = solve(dual, a, b, options);
            CHECK(one_full.result.status == two_full.result.status);
            CHECK(std::abs(one_full.result.iterations - two_full.result.iterations) <= 1);
            check_claim(one_full.result, truth(*a, b, one_full.x), options, eps_of(single));
            PreparedProblem problem(a, single);
            CHECK(problem.info().plan.storage == StorageKind::single);
        }
    }
}

}  // namespace lsmr::test
