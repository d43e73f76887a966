// What users of other least-squares solvers reported, as tests: a right behaviour each, on any device. The numbers in
// brackets name the project and its issue.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/checks.hpp"
#include "support/dense_oracle.hpp"
#include "support/problems.hpp"

namespace lsmr::test {

inline bool all_finite(const SolveResult& result) {
    const Norms& n = result.norms;
    for (const double value :
         {n.b, n.r, n.r_damped, n.ar, n.r_estimated, n.ar_estimated, n.a_frobenius, n.x, n.dx, result.solve_seconds}) {
        if (!std::isfinite(value)) return false;
    }
    return !result.message.empty() && result.message.find("nan") == std::string::npos;
}

// b = 0 gives x = 0 at once and no NaN [IterativeSolvers.jl 202; matfree 283; pytorch-minimize 20].
inline void report_zero_right_hand_side(const PrepareOptions& base) {
    for (const Matrix& a :
         {matrix_of(2, 2, {1, 1, 1, 2}), diagonal(Vector(10, 1.0)), matrix_of(2, 3, {1, 2, 3, 4, 5, 6})}) {
        for (const Method method : kMethods) {
            for (const double damp : {0.0, 1.0}) {
                SolveOptions options = with_method(method);
                options.damp = damp;
                Recorder recorder;
                const Answer answer = solve(base, a, Vector(index(a->rows()), 0.0), options, {}, &recorder);
                CHECK(answer.result.status == Status::start_solves);
                CHECK(answer.result.iterations == 0);
                CHECK(recorder.all.empty());
                CHECK(same_bits(answer.x, Vector(index(a->cols()), 0.0)));
                CHECK(all_finite(answer.result));
                for (const double value : {answer.result.norms.b, answer.result.norms.r, answer.result.norms.r_damped,
                                           answer.result.norms.ar, answer.result.norms.x, answer.result.norms.dx}) {
                    CHECK(value == 0);
                }
            }
        }
    }
}

// The identity is solved in one iteration; beta_2 = 0 is no division by zero [pytorch-minimize 20].
inline void report_identity(const PrepareOptions& base) {
    for (const Method method : kMethods) {
        Recorder recorder;
        const Answer answer =
            solve(base, diagonal(Vector(10, 1.0)), Vector(10, 1.0), with_method(method), {}, &recorder);
        CHECK(answer.result.status == Status::compatible);
        CHECK(answer.result.iterations == 1);
        REQUIRE(recorder.all.size() == 1);
        CHECK(std::isfinite(recorder.all[0].ls));  // ||A'r|| / ||r|| with both 0
        CHECK(distance(answer.x, Vector(10, 1.0)) <= 8 * kEps64 * std::sqrt(10.0));
        CHECK(all_finite(answer.result));
    }
}

// b in the null space of A^T: x = 0 is the answer, with all norms filled in [lineax 193, 202; scipy 2466, 2467].
inline void report_orthogonal_right_hand_side(const PrepareOptions& base) {
    for (const Method method : kMethods) {
        const Answer answer = solve(base, matrix_of(2, 1, {1, 1}), {1, -1}, with_method(method));
        CHECK(answer.result.status == Status::start_solves);
        CHECK(answer.result.iterations == 0);
        CHECK(same_bits(answer.x, {0}));
        CHECK(all_finite(answer.result));
        check_within(answer.result.norms.r, std::sqrt(2.0), 4 * kEps64, "||r||");
        CHECK(answer.result.norms.ar == 0);
        check_within(answer.result.norms.a_frobenius, std::sqrt(2.0), 4 * kEps64, "||A||_F");
    }
}

// b = 0 with a start: back to 0, and the norms are those of the answer, not of the start [scipy 17012].
inline void report_zero_right_hand_side_with_start(const PrepareOptions& base) {
    Triplets t{10, 1, {}, {}, {}};
    for (std::int64_t i = 0; i < 10; ++i) t.add(i, 0, 1.0);
    const Matrix a = t.matrix();
    for (const Method method : kMethods) {
        const Answer answer = solve(base, a, Vector(10, 0.0), with_method(method), Vector{1});
        CHECK(answer.result.converged());
        REQUIRE(answer.x.size() == 1);
        CHECK(std::abs(answer.x[0]) <= 8 * kEps64);
        CHECK(all_finite(answer.result));
        check_norms(answer.result, truth(*a, Vector(10, 0.0), answer.x, 0, {}, {1}));
        CHECK(answer.result.norms.r <= 32 * kEps64);
        check_within(answer.result.norms.dx, 1, 8 * kEps64, "||x - x0||");
    }
    // Columns of very different size: x shrinks by powers of ten from one iterate to the next, and what is left is rounding of A x0.
    const Matrix uneven = graded(*random_sparse(40, 30, 3, 305), 300);
    const Vector zero(40, 0.0);
    for (const Method method : kMethods) {
        for (const double tolerance : {1e-4, 1e-10}) {
            for (const int exponent : {0, -200, 200}) {
                const Vector x0 = scaled(random_vector(30, 306), std::ldexp(1.0, exponent));
                Recorder recorder;
                const Answer answer = solve(base, uneven, zero, with_method(method, tolerance), x0, &recorder);
                const Truth now = truth(*uneven, zero, answer.x, 0, {}, x0);
                CAPTURE(word(method));
                CAPTURE(tolerance);
                CAPTURE(exponent);
                CAPTURE(answer.result.message);
                CHECK(answer.result.converged());
                CHECK(answer.result.restarts == 0);
                recorder.all.pop_back();
                for (const IterationRecord& record : recorder.all) CHECK(record.r_norm > kEps64 * now.a_frobenius * norm(x0));
                check_claim(answer.result, now, with_method(method, tolerance), kEps64);
                check_norms(answer.result, now);
            }
        }
    }
}

// The caller's b and matrix are not written to; x0 only as the answer that it becomes [scipy 15020].
inline void report_inputs_unchanged(const PrepareOptions& base) {
    const Matrix a = random_sparse(30, 12, 3, 301);
    const Matrix copy = std::make_shared<const CsrMatrix>(a->clone());
    const Vector b = random_vector(30, 302);
    const Vector b_copy = b;
    const Vector x0 = random_vector(12, 303);
    for (const Precision precision : kPrecisions) {
        for (const Method method : kMethods) {
            SolveOptions options = with_method(method);
            options.damp = 0.1;
            options.damp_center = DampCenter::x0;
            solve(with_precision(base, precision), a, b, options, x0);
        }
    }
    CHECK(same_bits(b, b_copy));
    CHECK(std::equal(a->values(), a->values() + a->nnz(), copy->values()));
    CHECK(std::equal(a->columns(), a->columns() + a->nnz(), copy->columns()));
}

// A start from one iteration of the solver itself ends as well as a cold one [scipy 8163, 12139].
inline void report_restart_from_own_iterate(const PrepareOptions& base) {
    Random random(311);
    Triplets t{35, 35, {}, {}, {}};
    for (std::int64_t k = 0; k < 35 * 35; ++k) t.add(k / 35, k % 35, random());
    const Matrix a = t.matrix();
    const Vector b = random_vector(35, 312);
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method);
        options.max_iterations = 2000;
        const Vector first = solve(base, a, b, exactly(method, 1)).x;
        const Answer cold = solve(base, a, b, options);
        const Answer warm = solve(base, a, b, options, first);
        CHECK(cold.result.converged());
        CHECK(warm.result.converged());
        CHECK(std::abs(warm.result.iterations - cold.result.iterations) <= 1);
        // Residuals are compared, not x: A is badly conditioned.
        for (const Answer* answer : {&cold, &warm}) {
            const Truth term = truth(*a, b, answer->x);
            CHECK(term.r <= 2 * (1e-6 * term.b + 1e-6 * term.a_frobenius * term.x));
        }
    }
}

// Damping with a start: the damped residual is that of the centre asked for [scipy 14028, 14837; CIL 2357].
inline void report_damped_residual_with_start(const PrepareOptions& base) {
    // Four diagonal blocks of 5 x 3 zeros and ones.
    Triplets t{20, 12, {}, {}, {}};
    const int block[5][3] = {{1, 0, 1}, {0, 1, 0}, {1, 1, 0}, {0, 0, 1}, {1, 1, 1}};
    for (std::int64_t k = 0; k < 4; ++k) {
        for (std::int64_t i = 0; i < 5; ++i) {
            for (std::int64_t j = 0; j < 3; ++j) {
                if (block[i][j]) t.add(5 * k + i, 3 * k + j, 1.0);
            }
        }
    }
    const Matrix a = t.matrix();
    Vector b(20), x0(12);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i + 1);
    for (std::size_t j = 0; j < x0.size(); ++j) x0[j] = 1.0 + 0.5 * static_cast<double>(j % 5);
    const double damp = 5;
    for (const Method method : kMethods) {
        for (const DampCenter where : {DampCenter::zero, DampCenter::x0}) {
            SolveOptions options = with_method(method, 1e-10);
            options.damp = damp;
            options.damp_center = where;
            const Vector center = where == DampCenter::x0 ? x0 : Vector(12, 0.0);
            const Answer answer = solve(base, a, b, options, x0);
            CHECK(answer.result.converged());
            const Truth term = truth(*a, b, answer.x, damp, center, x0);
            check_norms(answer.result, term);
            const double from_center = distance(answer.x, center);
            check_within(answer.result.norms.r_damped,
                         std::sqrt(term.r * term.r + damp * damp * from_center * from_center), residual_rounding(term),
                         "damped ||r||");
            const Oracle oracle = dense_solution(*a, b, damp, center);
            CHECK(distance(answer.x, oracle.x) <= error_bound(term, oracle.sigma_min));
        }
    }
}

// ||x|| and ||x - x0|| are two numbers [scipy 15017, 15166].
inline void report_both_norms_of_x(const PrepareOptions& base) {
    const Matrix a = matrix_of(3, 2, {1, 2, 3, 4, 5, 6});
    const Vector x0{1, 2};
    for (const Method method : kMethods) {
        const Answer answer = solve(base, a, {1, 2, 3}, with_method(method, 1e-12), x0);
        // The solution is (0, 1/2), exactly.
        check_within(answer.result.norms.x, 0.5, 1e-11, "||x||");
        check_within(answer.result.norms.dx, std::hypot(1.0, 1.5), 1e-11, "||x - x0||");
        check_norms(answer.result, truth(*a, {1, 2, 3}, answer.x, 0, {}, x0));
    }
}

// One equation, two unknowns: the answer of least norm in one iteration [scipy 2900; Krylov.jl 1050, 1054].
inline void report_one_equation(const PrepareOptions& base) {
    for (const Method method : kMethods) {
        const auto check = [&](const Matrix& a, double b, const Vector& expected) {
            const Answer answer = solve(base, a, {b}, with_method(method));
            CHECK(answer.result.status == Status::compatible);
            CHECK(answer.result.iterations == 1);
            CHECK(distance(answer.x, expected) <= 8 * kEps64 * norm(expected));
            CHECK(all_finite(answer.result));
        };
        check(matrix_of(1, 2, {1, 4}), 1, {1.0 / 17, 4.0 / 17});
        check(matrix_of(1, 2, {-1, 0}), -3, {3, 0});
        check(matrix_of(1, 2, {0, 1}), 1, {0, 1});
    }
}

// No iteration allowed: the start comes back, with its own norms [scipy 23748, 24120].
inline void report_no_iteration(const PrepareOptions& base) {
    const Matrix a = matrix_of(3, 2, {1, 2, 3, 4, 5, 6});
    for (const Method method : kMethods) {
        Recorder recorder;
        const Answer answer = solve(base, a, {1, 2, 4}, exactly(method, 0), Vector{1, 2}, &recorder);
        CHECK(answer.result.status == Status::iteration_limit);
        CHECK(answer.result.iterations == 0);
        CHECK(recorder.all.empty());
        CHECK(same_bits(answer.x, {1, 2}));
        CHECK(all_finite(answer.result));
        check_norms(answer.result, truth(*a, {1, 2, 4}, answer.x, 0, {}, {1, 2}));
        CHECK(answer.result.norms.dx == 0);
    }
}

// lambda means lambda^2 ||x||^2 in every method [Krylov.jl 1039].
inline void report_one_meaning_of_damping(const PrepareOptions& base) {
    const Matrix a = matrix_of(3, 2, {1, 2, 3, 4, 5, 6});
    const Vector b{1, -1, 2};
    // (A'A + 100 I) x = A'b:  [135 44; 44 156] x = [8; 10]
    const double determinant = 135.0 * 156 - 44 * 44;
    const Vector expected{(8 * 156 - 44 * 10) / determinant, (135 * 10 - 44 * 8) / determinant};
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method, 1e-12);
        options.damp = 10;
        const Answer answer = solve(base, a, b, options);
        CHECK(distance(answer.x, expected) <= error_bound(truth(*a, b, answer.x, 10), 10));
    }
}

// Compatible or not is told by the true residual [Krylov.jl 469, 470], and "converged" by the status
// [IterativeSolvers.jl 64, 117].
inline void report_compatible_or_not(const PrepareOptions& base) {
    const Matrix a = random_sparse(40, 15, 3, 321);
    const Vector fits_exactly = product(*a, random_vector(15, 322));
    for (const Method method : kMethods) {
        CHECK(solve(base, a, fits_exactly, with_method(method)).result.status == Status::compatible);
        CHECK(solve(base, a, random_vector(40, 323), with_method(method)).result.status == Status::least_squares);
        const SolveResult limited = solve(base, a, random_vector(40, 323), exactly(method, 2)).result;
        CHECK(!limited.converged());
    }
}

// A huge ||x|| does not make A x = b solved [Krylov.jl 125]: here x0 lies in the null space of A, and A x0 has nothing
// of b.
inline void report_huge_x(const PrepareOptions& base) {
    for (const Method method : kMethods) {
        const Answer start = solve(base, matrix_of(1, 2, {1, 0}), {1}, with_method(method), Vector{0, 1e10});
        CHECK(start.result.converged());
        CHECK(start.result.norms.r <= 0.5);
        check_within(start.x[0], 1, 1e-3, "x_1");
        // Ill-conditioned, with an x of norm 1e10 and more: never "compatible" while ||r|| is near ||b||.
        Triplets t{12, 12, {}, {}, {}};
        for (std::int64_t k = 0; k < 144; ++k) t.add(k / 12, k % 12, 1.0 / static_cast<double>(k / 12 + k % 12 + 1));
        const Matrix hilbert = t.matrix();
        SolveOptions options = with_method(method, 1e-3);
        options.conlim = 0;
        options.max_iterations = 5000;
        const Answer answer = solve(base, hilbert, random_vector(12, 331), options);
        if (answer.result.status == Status::compatible) CHECK(answer.result.norms.r <= answer.result.norms.b);
        check_claim(answer.result, truth(*hilbert, random_vector(12, 331), answer.x), options, kEps64);
    }
}

// Powers of two leave status and count alone, other factors nearly [Krylov.jl 279].
inline void report_scaled_right_hand_side(const PrepareOptions& base) {
    const Matrix a = random_sparse(60, 25, 3, 341);
    const Vector b = random_vector(60, 342);
    for (const Method method : kMethods) {
        const SolveResult plain = solve(base, a, b, with_method(method)).result;
        for (const double factor : {std::ldexp(1.0, 300), std::ldexp(1.0, -300), 1e-150, 1e150, 3e7}) {
            for (const bool scale_a : {false, true}) {
                const SolveResult other =
                    solve(base, scale_a ? scaled(*a, factor) : a, scaled(b, factor), with_method(method)).result;
                CHECK(other.status == plain.status);
                CHECK(std::abs(other.iterations - plain.iterations) <= 1 + plain.iterations / 50);
            }
        }
    }
}

// A start off the centre: with A = 0 the answer is the centre, whichever it is [IterativeSolvers.jl 327].
inline void report_damping_alone(const PrepareOptions& base) {
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method, 1e-12);
        options.damp = 1;
        const Answer to_zero = solve(base, zero_matrix(5, 5), Vector(5, 1.0), options, Vector(5, 1.0));
        CHECK(to_zero.result.converged());
        CHECK(norm(to_zero.x) <= 1e-11);
        options.damp_center = DampCenter::x0;
        const Answer to_start = solve(base, zero_matrix(5, 5), Vector(5, 1.0), options, Vector(5, 1.0));
        CHECK(to_start.result.converged());
        CHECK(same_bits(to_start.x, Vector(5, 1.0)));
    }
}

// diag(1..n): the condition estimate is no overestimate [Trilinos 478].
inline void report_condition_of_a_diagonal(const PrepareOptions& base) {
    for (const double tolerance : {1e-6, 1e-14}) {
        Vector d(100);
        for (std::size_t i = 0; i < d.size(); ++i) d[i] = -static_cast<double>(i + 1);
        const SolveResult result =
            solve(base, diagonal(d), Vector(100, 1.0), with_method(Method::lsmr, tolerance)).result;
        CHECK(result.converged());
        CHECK(result.norms.cond_estimate <= 100 * (1 + 1e-10));
        CHECK(result.norms.cond_estimate >= 1);
    }
}

// ||A||_F^2 overflows, ||A||_F does not [within 361].
inline void report_overflowing_square(const PrepareOptions& base) {
    const Matrix a = diagonal({1.2e154, 1e154});
    for (const Method method : kMethods) {
        const Answer answer = solve(base, a, {1.2e154, 3e154}, with_method(method, 1e-12));
        CHECK(answer.result.converged());
        CHECK(answer.result.iterations == 2);
        CHECK(distance(answer.x, {1, 3}) <= 64 * kEps64);
        CHECK(std::isfinite(answer.result.norms.a_frobenius));
    }
}

// Numbers far apart, and a start at half of the answer: not certified with half of the residual left [within 368].
inline void report_far_scales(const PrepareOptions& base) {
    const Matrix a = matrix_of(1, 1, {1e-170});
    for (const Method method : kMethods) {
        const Answer answer = solve(base, a, {2e130}, with_method(method), Vector{1e300});
        CHECK(answer.result.converged());
        check_within(answer.x[0], 2e300, 2e300 * 1e-5, "x");
        check_within(answer.result.norms.b, 2e130, 2e130 * 4 * kEps64, "||b||");
        CHECK(answer.result.norms.r <= 1e-5 * 2e130);
        // A b far below A x0, and an x0 far below b over A: each norm is of the numbers as they are.
        const Answer small_b = solve(base, matrix_of(2, 1, {1, 1}), {3e-305, 4e-305}, exactly(method, 0), Vector{7.0});
        check_within(small_b.result.norms.b, 5e-305, 5e-305 * 4 * kEps64, "||b||");
        const Answer small_x = solve(base, matrix_of(2, 1, {1, 1}), {3e300, -3e300}, exactly(method, 0), Vector{7.0});
        check_within(small_x.result.norms.x, 7.0, 7.0 * 4 * kEps64, "||x||");
    }
}

// A warm start that hits the limit reports norms against b, not against b - A x0 [within 344, 372].
inline void report_norms_against_b(const PrepareOptions& base) {
    const Matrix a = random_sparse(60, 25, 3, 351);
    const Vector b = random_vector(60, 352);
    const Vector x0 = scaled(random_vector(25, 353), 100.0);
    for (const Method method : kMethods) {
        Recorder recorder;
        const Answer answer = solve(base, a, b, exactly(method, 3), x0, &recorder);
        CHECK(answer.result.status == Status::iteration_limit);
        const Truth t = truth(*a, b, answer.x, 0, {}, x0);
        check_norms(answer.result, t);
        REQUIRE(recorder.all.size() == 3);
        check_within(recorder.all[2].compat, t.r / norm(b), 1e-9 * t.r / norm(b), "compat");
    }
}

// Norms of many equal numbers, whose sum in one row would round to the same side at every step [own].
inline void report_norms_of_equal_numbers(const PrepareOptions& base) {
    const std::int64_t n = 50000;
    const Matrix a = diagonal(Vector(index(n), 0.7));
    for (const Method method : kMethods) {
        const Answer answer = solve(base, a, Vector(index(n), 0.3), exactly(method, 0), Vector(index(n), 0.1));
        const Norms& norms = answer.result.norms;
        const double root = std::sqrt(static_cast<double>(n));
        check_within(norms.b, 0.3 * root, 8 * kEps64 * norms.b, "||b||");
        check_within(norms.x, 0.1 * root, 16 * kEps64 * norms.x, "||x||");
        check_within(norms.r, 0.23 * root, 16 * kEps64 * norms.r, "||r||");
        check_within(norms.ar, 0.161 * root, 32 * kEps64 * norms.ar, "||A^T r||");
        check_within(norms.a_frobenius, 0.7 * root, 8 * kEps64 * norms.a_frobenius, "||A||_F");
    }
}

// A start that is larger than the solution by far more than 1 / eps: its rounding is not the answer [own].
inline void report_start_far_beyond_the_solution(const PrepareOptions& base) {
    const Matrix a = random_sparse(40, 20, 6, 71);
    const Vector x0 = scaled(random_vector(20, 72), 1e18);
    const Vector sides[] = {product(*a, Vector(20, 1.0)), random_vector(40, 73)};
    for (const Vector& b : sides) {
        for (const Method method : kMethods) {
            for (const double damp : {0.0, 0.5}) {
                SolveOptions options = with_method(method, 1e-10);
                options.damp = damp;
                const Answer far = solve(base, a, b, options, x0), near = solve(base, a, b, options);
                CAPTURE(word(method));
                CAPTURE(damp);
                CAPTURE(far.result.message);
                CHECK(far.result.converged());
                CHECK(distance(far.x, near.x) <= 1e-7 * norm(near.x));
                check_norms(far.result, truth(*a, b, far.x, damp, {}, x0));
            }
        }
    }
}

// Damping with a warm start: both centres, against the formula for the identity [CIL 2357].
inline void report_centers_of_the_identity(const PrepareOptions& base) {
    const Vector b{1, 2, 3}, x0{4, -5, 6};
    const double lambda2 = 0.25;
    for (const Method method : kMethods) {
        for (const DampCenter where : {DampCenter::zero, DampCenter::x0}) {
            SolveOptions options = with_method(method, 1e-14);
            options.damp = 0.5;
            options.damp_center = where;
            Vector expected(3);
            for (std::size_t j = 0; j < 3; ++j) {
                expected[j] = (b[j] + lambda2 * (where == DampCenter::x0 ? x0[j] : 0.0)) / (1 + lambda2);
            }
            const Answer answer = solve(base, diagonal({1, 1, 1}), b, options, x0);
            CHECK(answer.result.converged());
            CHECK(distance(answer.x, expected) <= 32 * kEps64 * (norm(expected) + norm(x0)));
        }
    }
}

// Every pair of precision and method, and either storage [FixedEffectModels.jl 110, 170, 172].
inline void report_every_combination(const PrepareOptions& base) {
    const Matrix a = random_sparse(60, 25, 3, 361);
    const Vector b = random_vector(60, 362);
    const Oracle oracle = dense_solution(*a, b);
    for (const Precision precision : kPrecisions) {
        for (const Method method : kMethods) {
            for (const StorageKind storage : {StorageKind::automatic, StorageKind::dual, StorageKind::single}) {
                PrepareOptions prepare = with_precision(base, precision);
                prepare.storage = storage;
                const SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-10 : 1e-5);
                const Answer answer = solve(prepare, a, b, options);
                CHECK(answer.result.status == Status::least_squares);
                CHECK(distance(answer.x, oracle.x) <= error_bound(truth(*a, b, answer.x), oracle.sigma_min));
                CHECK(all_finite(answer.result));
            }
        }
    }
}

// Wide and with repeated columns: the answer of least norm, which shares out equally between them [scikit-learn 22947].
inline void report_least_norm(const PrepareOptions& base) {
    Triplets t = triplets(*random_sparse(20, 12, 3, 371));
    const std::size_t count = t.values.size();
    for (std::size_t k = 0; k < count; ++k) t.add(t.i[k], t.j[k] + 12, t.values[k]);
    t.cols = 24;
    const Matrix a = t.matrix();
    const Vector b = random_vector(20, 372);
    const Oracle oracle = dense_solution(*a, b);
    CHECK(oracle.rank == 12);
    for (const Method method : kMethods) {
        const Answer answer = solve(base, a, b, with_method(method, 1e-12));
        CHECK(answer.result.converged());
        const double drift = 8 * kEps64 * static_cast<double>(answer.result.iterations) * norm(answer.x);
        CHECK(distance(answer.x, oracle.x) <= error_bound(truth(*a, b, answer.x), oracle.sigma_min) + drift);
        for (std::size_t j = 0; j < 12; ++j) CHECK(std::abs(answer.x[j] - answer.x[j + 12]) <= drift);
    }
}

// fp32 asked for more than it can give says so, in words [own].
inline void report_fp32_floor(const PrepareOptions& base) {
    const Matrix a = random_sparse(60, 25, 3, 381);
    const Vector b = random_vector(60, 382);
    for (const Method method : kMethods) {
        const Answer answer = solve(with_precision(base, Precision::fp32), a, b, with_method(method, 1e-10));
        CHECK(answer.result.status == Status::least_squares_eps);
        CHECK(answer.result.message.find("machine precision") != std::string::npos);
        CHECK(answer.result.message.find("1.2e-07") != std::string::npos);
    }
}

}  // namespace lsmr::test
