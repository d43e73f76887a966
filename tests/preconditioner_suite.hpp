// Preconditioners of A^T A: block-Jacobi, sketches, incomplete factors. As solver_suite.hpp: called per backend.
#pragma once

#include <doctest/doctest.h>

#include <numeric>

#include "checkpoint_suite.hpp"
#include "solver/preconditioner.hpp"
#include "transform_suite.hpp"

namespace lsmr::test {

// Cameras of 9 columns and points of 3, as in bundle adjustment: every row pair sees one of each. Columns of a block
// are nearly dependent and of very different size, which is what a block preconditioner undoes.
inline Matrix bundle_matrix(std::int64_t cameras = 4, std::int64_t points = 14, std::uint64_t seed = 1101) {
    Random random(seed);
    const std::int64_t sizes[] = {9, 3};
    const auto mixed = [&](std::int64_t size) {  // rows of coefficients that leave columns nearly parallel
        Vector row(index(size));
        const double common = random();
        for (std::int64_t j = 0; j < size; ++j)
            row[index(j)] = (common + 0.02 * random()) * std::pow(10.0, static_cast<double>(j % 4) - 2);
        return row;
    };
    Triplets t{0, cameras * sizes[0] + points * sizes[1], {}, {}, {}};
    for (std::int64_t c = 0; c < cameras; ++c) {
        for (std::int64_t p = 0; p < points; ++p) {
            if ((c + p) % 3 == 0) continue;
            for (int k = 0; k < 4; ++k, ++t.rows) {
                const Vector camera = mixed(sizes[0]);
                const Vector point = mixed(sizes[1]);
                for (std::int64_t j = 0; j < sizes[0]; ++j) t.add(t.rows, c * sizes[0] + j, camera[index(j)]);
                for (std::int64_t j = 0; j < sizes[1]; ++j)
                    t.add(t.rows, cameras * sizes[0] + p * sizes[1] + j, point[index(j)]);
            }
        }
    }
    return t.matrix();
}

inline PrepareOptions with_blocks(PrepareOptions base, std::int64_t size = 0) {
    base.preconditioner = size == 1 ? Preconditioner::columns : Preconditioner::blocks;
    base.block_size = size == 1 ? 0 : size;
    return base;
}

// The iterates are those of the method on A K, mapped back by x = K z.
inline void suite_preconditioned_iterates(const PrepareOptions& base) {
    const Matrix a = random_sparse(60, 24, 3, 1111);
    const Vector b = random_vector(a->rows(), 1112);
    for (const std::int64_t size : {1, 4}) {
        const BlockPreconditioner p = make_block_preconditioner(*a, nullptr, {}, 0, even_blocks(a->cols(), size));
        const DenseMatrix k = dense(p.k) * std::ldexp(1.0L, -p.exponent);  // for A itself
        const DenseMatrix ak = dense(*a) * k;
        check_within(p.frobenius, std::sqrt(24.0), 1e-12, "||A K||_F");
        Triplets t{a->rows(), a->cols(), {}, {}, {}};
        for (std::int64_t i = 0; i < a->rows(); ++i) {
            for (std::int64_t j = 0; j < a->cols(); ++j) {
                if (ak(i, j) != 0) t.add(i, j, static_cast<double>(ak(i, j)));
            }
        }
        const Matrix explicit_ak = t.matrix();
        for (const Method method : {Method::lsmr, Method::lsqr}) {
            for (std::int64_t steps = 1; steps <= 10; ++steps) {
                const Answer answer = solve(with_blocks(base, size), a, b, exactly(method, steps));
                const Answer z = solve(base, explicit_ak, b, exactly(method, steps));
                const Vector x = rounded(k * dense(z.x));
                CAPTURE(word(method));
                CAPTURE(size);
                CAPTURE(steps);
                CHECK(distance(answer.x, x) <= 1e-12 * norm(x));
                check_within(answer.result.norms.r_estimated, z.result.norms.r, 1e-12 * norm(b), "||r||");
                check_within(answer.result.norms.ar_estimated, z.result.norms.ar, 1e-11 * norm(b), "||K^T A^T r||");
                check_norms(answer.result, truth(*a, b, answer.x));
            }
        }
    }
}

// Every form of the problem against dense answers.
inline void suite_preconditioned_answers(const PrepareOptions& base) {
    const Matrix a = bundle_matrix();
    const Vector b = random_vector(a->rows(), 1121);
    const Vector x0 = random_vector(a->cols(), 1122);
    const Vector c = random_vector(a->cols(), 1123);
    const Matrix l = scaled(*second_differences(a->cols()), 0.01);
    for (const std::int64_t size : {0, 1, 5}) {
        for (const Scaling scale : {Scaling::none, Scaling::columns}) {
            for (const bool regularised : {false, true}) {
                for (const double damp : {0.0, 0.01}) {
                    PrepareOptions prepare = with_blocks(base, size);
                    prepare.scale = scale;
                    if (regularised) prepare.regulariser = l;
                    prepare.preconditioner_damp = damp;
                    const Explicit problem = by_hand(a, b, {}, regularised ? l : nullptr);
                    const bool has_center = regularised || damp > 0;
                    for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
                        for (const bool warm : {false, true}) {
                            SolveOptions options = with_method(method, 1e-9);
                            options.damp = damp;
                            options.conlim = 0;
                            options.max_iterations = 20000;
                            options.damp_center = warm ? DampCenter::given : DampCenter::zero;
                            options.center = c;
                            const Vector center = warm && has_center ? c : Vector{};
                            const std::optional<Vector> start = warm ? std::optional<Vector>(x0) : std::nullopt;
                            const Answer answer = solve(prepare, a, b, options, start);
                            const Truth t = problem.truth_of(answer.x, damp, center, start.value_or(Vector{}));
                            CAPTURE(size);
                            CAPTURE(static_cast<int>(scale));
                            CAPTURE(regularised);
                            CAPTURE(damp);
                            CAPTURE(word(method));
                            CAPTURE(warm);
                            CAPTURE(answer.result.message);
                            CHECK(answer.result.converged());
                            check_claim(answer.result, t, options, kEps64);
                            check_norms(answer.result, t);
                            const Oracle oracle = dense_solution(*problem.stack(), problem.rhs(center), damp,
                                                                 damp > 0 ? center : Vector{});
                            CHECK(distance(answer.x, oracle.x) <= error_bound(t, oracle.sigma_min));
                        }
                    }
                }
            }
        }
    }
    // Columns that depend on others of their block, at any tolerance: x stays of the solution's size, though A^T r in their direction is rounding.
    const Triplets some = triplets(*random_sparse(60, 12, 3, 1124));
    Triplets repeated{60, 12, {}, {}, {}};
    for (std::size_t k = 0; k < some.values.size(); ++k) {
        if (some.j[k] % 3 < 2) repeated.add(some.i[k], some.j[k], some.values[k]);
        if (some.j[k] % 3 == 0) repeated.add(some.i[k], some.j[k] + 2, -3 * some.values[k]);
    }
    const Matrix dependent = repeated.matrix();
    for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
        const SolveOptions options = with_method(method, 1e-12);
        const Answer answer = solve(with_blocks(base, 3), dependent, random_vector(60, 1125), options);
        CAPTURE(word(method));
        CAPTURE(answer.result.message);
        CHECK(answer.result.converged());
        check_claim(answer.result, truth(*dependent, random_vector(60, 1125), answer.x), options, kEps64);
        CHECK(norm(answer.x) <= 4 * norm(dense_solution(*dependent, random_vector(60, 1125)).x));
    }
    // A column too short for fp32, and no A at all but a damping far from 1: K stays in range.
    const Matrix uneven = with_values(*random_sparse(60, 12, 3, 1126), [](std::int64_t, std::int64_t j, double value) {
        return j == 7 ? value * 0x1p-200 : value;
    });
    for (const Precision precision : {Precision::fp64, Precision::fp32}) {
        for (const Preconditioner kind : {Preconditioner::columns, Preconditioner::blocks, Preconditioner::cholesky}) {
            for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
                PrepareOptions prepare = with_precision(base, precision);
                prepare.preconditioner = kind;
                SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-10 : 1e-5);
                options.conlim = 0;
                const Vector rhs = random_vector(60, 1127);
                const Answer answer = solve(prepare, uneven, rhs, options);
                CAPTURE(word(precision));
                CAPTURE(static_cast<int>(kind));
                CAPTURE(word(method));
                CAPTURE(answer.result.message);
                CHECK(answer.result.converged());
                check_claim(answer.result, truth(*uneven, rhs, answer.x), options, eps_of(prepare));
                for (const int exponent : {-300, 300}) {
                    options.damp = prepare.preconditioner_damp = std::ldexp(1.0, exponent);
                    options.damp_center = DampCenter::given;
                    const Vector center = random_vector(12, 1128);
                    options.center = center;
                    const Answer damped = solve(prepare, zero_matrix(60, 12), Vector(60, 0.0), options, random_vector(12, 1129));
                    CAPTURE(exponent);
                    CAPTURE(damped.result.message);
                    CHECK(damped.result.converged());
                    CHECK(distance(damped.x, center) <= 1e-4 * norm(center));
                }
            }
        }
    }
    // fp32: claims are audited on the matrix of the host.
    for (const Method method : {Method::lsmr, Method::lsqr}) {
        const PrepareOptions prepare = with_precision(with_blocks(base), Precision::fp32);
        SolveOptions options = with_method(method, 1e-4);
        options.max_iterations = 20000;
        const Answer answer = solve(prepare, a, b, options);
        CAPTURE(answer.result.message);
        CHECK(answer.result.converged());
        check_claim(answer.result, truth(*a, b, answer.x), options, kEps32);
        check_norms(answer.result, truth(*a, b, answer.x));
    }
}

// What it is for: blocks beat columns, and columns beat none. Any scale of A by powers of two: the same bits.
inline void suite_preconditioners_save_iterations(const PrepareOptions& base) {
    const Matrix a = bundle_matrix();
    const Vector b = random_vector(a->rows(), 1131);
    for (const Method method : {Method::lsmr, Method::lsqr}) {
        SolveOptions options = with_method(method, 1e-8);
        options.conlim = 0;
        options.max_iterations = 100000;
        const Answer none = solve(base, a, b, options);
        const Answer columns = solve(with_blocks(base, 1), a, b, options);
        const Answer blocks = solve(with_blocks(base), a, b, options);
        CAPTURE(word(method));
        CHECK(columns.result.converged());
        CHECK(blocks.result.converged());
        CHECK(columns.result.iterations < none.result.iterations);
        CHECK(3 * blocks.result.iterations < columns.result.iterations);
        for (const int e : {-900, -30, 500, 950}) {
            const Answer other =
                solve(with_blocks(base), std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(e)), b, options);
            CHECK(other.result.status == blocks.result.status);
            CHECK(same_bits(other.x, scaled(blocks.x, std::ldexp(1.0, -e))));
        }
        Saver saver({2, 4});
        PreparedProblem problem(a, with_blocks(base));
        const Answer watched = solve(problem, b, options, {}, &saver);
        check_same(watched, blocks);
        REQUIRE(saver.saved.size() >= 1);
        for (const Checkpoint& from : saver.saved) check_same(resumed(problem, b, options, {}, from), blocks);
        PreparedProblem plain(a, base);
        CHECK_THROWS_AS(resumed(plain, b, options, {}, saver.saved[0]), InputError);
    }
}

inline void suite_preconditioner_refusals(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 1141);
    PreparedProblem problem(a, with_blocks(base, 1));
    Vector x(40, 0.0);
    PreparedProblem spd(laplacian(4, 0.5), with_blocks(base));
    Vector y(index(spd.matrix().cols()));
    CHECK_THROWS_WITH_AS(spd.solve(random_vector(spd.matrix().rows(), 1143), y, with_method(Method::cg)),
                         "cg takes no preconditioner: lsmr, lsqr and cgls do", InputError);
    SolveOptions bounded;
    bounded.trust_radius = 1;
    CHECK_THROWS_AS(problem.solve(b, x, bounded), InputError);
    CHECK_THROWS_AS(PreparedProblem(a, with_blocks(base, 33)), InputError);
    PrepareOptions negative = with_blocks(base);
    negative.preconditioner_damp = -1;
    CHECK_THROWS_AS(PreparedProblem(a, negative), InputError);
    const Matrix tiny = std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(-1000));
    for (const Preconditioner kind : {Preconditioner::blocks, Preconditioner::cholesky, Preconditioner::sketch}) {
        PrepareOptions huge = base;
        huge.preconditioner = kind;
        huge.preconditioner_damp = 1e300;
        CHECK_THROWS_WITH_AS(PreparedProblem(tiny, huge), doctest::Contains("beyond the range of doubles"), InputError);
    }
    PreparedProblem square(laplacian(4, 0.5), with_blocks(base));
    CHECK(square.choose_method(with_method(Method::automatic)).method == Method::lsqr);
    const Answer wide = solve(with_blocks(base, 1), wide_matrix(), random_vector(25, 1142), with_method(Method::lsmr));
    REQUIRE(wide.result.notes.size() == 1);
    CHECK(wide.result.notes[0].find("of the preconditioner's metric") != std::string::npos);
}

// A handful of iterations at any condition, from the sketch's own solution; the same seed gives the same bits.
inline void suite_sketch(const PrepareOptions& base) {
    PrepareOptions sketch = base;
    sketch.preconditioner = Preconditioner::sketch;
    for (const std::int64_t power : {1, 4, 7}) {  // cond 40, 2.6e6, 1.6e11
        GeneratedProblem p = lstp(400, 40, 1, power, 0);
        const auto a = std::make_shared<const CsrMatrix>(std::move(p.a));
        for (const Method method : {Method::lsmr, Method::lsqr}) {
            // Above 1 / cond a perturbation of A makes any x a solution.
            SolveOptions options = with_method(method, 1e-13);
            options.conlim = 0;
            const Answer answer = solve(sketch, a, p.b, options);
            const Truth t = truth(*a, p.b, answer.x);
            CAPTURE(power);
            CAPTURE(word(method));
            CAPTURE(answer.result.message);
            CHECK(answer.result.converged());
            CHECK(answer.result.iterations <= 60);
            check_claim(answer.result, t, options, kEps64);
            check_norms(answer.result, t);
            // x as near as the data allow: eps cond ||x|| + eps cond^2 ||r||.
            const double cond = std::pow(40.0, static_cast<double>(power));
            CHECK(distance(answer.x, p.x) <= 1e3 * kEps64 * (cond * norm(p.x) + cond * cond * t.r));
            CHECK(same_bits(solve(sketch, a, p.b, options).x, answer.x));
            PrepareOptions other = sketch;
            other.sketch_seed = 2;
            const Answer reseeded = solve(other, a, p.b, options);
            CHECK(reseeded.result.converged());
            CHECK_FALSE(same_bits(reseeded.x, answer.x));
            if (power == 7) {  // which the plain method cannot do
                for (std::uint64_t seed = 3; seed <= 16; ++seed) {
                    other.sketch_seed = seed;
                    const Answer any = solve(other, a, p.b, options);
                    CAPTURE(seed);
                    CHECK(any.result.converged());
                    CHECK(any.result.iterations <= 60);
                }
                options.max_iterations = 2000;
                CHECK(solve(base, a, p.b, options).result.iterations > 5 * answer.result.iterations);
            }
        }
    }
    // Damped around a centre of its own, from x0, regularised, scaled; and in fp32.
    const Matrix a = graded(*random_sparse(150, 30, 4, 1151), 1e3);
    const Matrix l = second_differences(30);
    const Vector b = random_vector(150, 1152), x0 = random_vector(30, 1153), c = random_vector(30, 1154);
    for (const double damp : {0.0, 0.3}) {
        for (const bool regularised : {false, true}) {
            for (const Scaling scale : {Scaling::none, Scaling::columns}) {
                for (const bool warm : {false, true}) {
                    for (const double hint : {0.0, damp}) {  // of another damping than the solve's, too
                        PrepareOptions prepare = sketch;
                        prepare.scale = scale;
                        prepare.preconditioner_damp = hint;
                        if (regularised) prepare.regulariser = l;
                        SolveOptions options = with_method(Method::lsmr, 1e-10);
                        options.damp = damp;
                        options.damp_center = warm ? DampCenter::given : DampCenter::zero;
                        options.center = c;
                        const Vector center = warm && (damp > 0 || regularised) ? c : Vector{};
                        const std::optional<Vector> start = warm ? std::optional<Vector>(x0) : std::nullopt;
                        const Explicit problem = by_hand(a, b, {}, regularised ? l : nullptr);
                        const Answer answer = solve(prepare, a, b, options, start);
                        const Truth t = problem.truth_of(answer.x, damp, center, start.value_or(Vector{}));
                        CAPTURE(damp);
                        CAPTURE(regularised);
                        CAPTURE(static_cast<int>(scale));
                        CAPTURE(warm);
                        CAPTURE(hint);
                        CAPTURE(answer.result.message);
                        CHECK(answer.result.converged());
                        if (hint == damp) CHECK(answer.result.iterations <= 60);
                        check_claim(answer.result, t, options, kEps64);
                        check_norms(answer.result, t);
                        const Oracle oracle =
                            dense_solution(*problem.stack(), problem.rhs(center), damp, damp > 0 ? center : Vector{});
                        CHECK(distance(answer.x, oracle.x) <= error_bound(t, oracle.sigma_min));
                    }
                }
            }
        }
    }
    // One sketch, many dampings: those far from its own are solved as well, only not as fast.
    const Matrix steep = graded(*random_sparse(300, 30, 7, 1155), 1e4);
    const Vector d = random_vector(300, 1156);
    for (const double hint : {0.0, 10.0}) {
        PrepareOptions prepare = sketch;
        prepare.preconditioner_damp = hint;
        PreparedProblem problem(steep, prepare);
        for (const double damp : {0.0, 1e-3, 0.1, 10.0, 1e3}) {
            for (const Method method : kMethods) {
                SolveOptions options = with_method(method, 1e-8);
                options.damp = damp;
                options.conlim = 0;
                options.max_iterations = 2000;
                const Answer answer = solve(problem, d, options);
                CAPTURE(hint);
                CAPTURE(damp);
                CAPTURE(word(method));
                CAPTURE(answer.result.message);
                CHECK(answer.result.converged());
                CHECK(answer.result.iterations <= 300);
                check_claim(answer.result, truth(*steep, d, answer.x, damp), options, kEps64);
            }
        }
    }
    const SolveOptions rough = with_method(Method::lsqr, 1e-4);
    const Answer narrow = solve(with_precision(sketch, Precision::fp32), a, b, rough);
    CHECK(narrow.result.converged());
    check_claim(narrow.result, truth(*a, b, narrow.x), rough, kEps32);
    // Powers of two, a checkpoint, and what is refused.
    const SolveOptions options = with_method(Method::lsmr, 1e-10);
    const Answer plain = solve(sketch, a, b, options);
    for (const int e : {-900, 30, 950}) {
        const Answer other = solve(sketch, std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(e)), b, options);
        CHECK(same_bits(other.x, scaled(plain.x, std::ldexp(1.0, -e))));
    }
    Saver saver({3});
    PreparedProblem problem(a, sketch);
    check_same(solve(problem, b, options, {}, &saver), plain);
    REQUIRE(saver.saved.size() == 1);
    check_same(resumed(problem, b, options, {}, saver.saved[0]), plain);
    PrepareOptions other_seed = sketch;
    other_seed.sketch_seed = 9;
    PreparedProblem reseeded(a, other_seed);
    CHECK_THROWS_AS(resumed(reseeded, b, options, {}, saver.saved[0]), InputError);
    PrepareOptions small = sketch;
    small.preconditioner_limit_bytes = 1000;
    CHECK_THROWS_WITH_AS(PreparedProblem(a, small), doctest::Contains("a dense 120 x 30 matrix of 28"), InputError);
    CHECK_THROWS_WITH_AS(PreparedProblem(matrix_of(3, 2, {1, 1, 2, 2, 3, 3}), sketch),
                         doctest::Contains("singular to rounding"), InputError);
}

// Claims, answers and refusals under an incomplete factor of A^T A.
inline void suite_incomplete_cholesky(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(90, 25, 3, 2071), 1e3);
    const Matrix chain = [] {  // differences of neighbours and a little of each: A^T A is tridiagonal
        Triplets t{400, 200, {}, {}, {}};
        for (std::int64_t i = 0; i < 199; ++i) {
            t.add(i, i, 1);
            t.add(i, i + 1, -1);
        }
        for (std::int64_t i = 0; i < 200; ++i) t.add(200 + i, i, 1e-3);
        return t.matrix();
    }();
    // Tridiagonal, so level 0 is complete: a few iterations in place of hundreds. Any scale.
    const Vector rhs = random_vector(400, 2073);
    for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
        SolveOptions options = with_method(method, 1e-10);
        options.conlim = 0;
        options.max_iterations = 20000;
        const Answer plain = solve(base, chain, rhs, options);
        PrepareOptions prepare = base;
        prepare.preconditioner = Preconditioner::cholesky;
        CHECK(plain.result.iterations > 100);
        for (const int e : {0, -900, 500}) {
            const Matrix scaled_a = std::make_shared<const CsrMatrix>(chain->scaled_by_power_of_two(e));
            const Answer answer = solve(prepare, scaled_a, rhs, options);
            CAPTURE(word(method));
            CAPTURE(e);
            CAPTURE(answer.result.message);
            CHECK(answer.result.converged());
            CHECK(answer.result.iterations <= 6);
            check_norms(answer.result, truth(*scaled_a, rhs, answer.x));
        }
    }
    // Columns of any size: ||A K||, which is estimated, is free of it, so every method ends as soon.
    for (const double grade : {1.0, 1e6, 1e12}) {
        const Matrix columns = graded(*random_sparse(300, 60, 3, 2077), grade);
        const Vector right = random_vector(300, 2078);
        PrepareOptions prepare = base;
        prepare.preconditioner = Preconditioner::cholesky;
        prepare.cholesky_drop = 0.05;
        SolveOptions options = with_method(Method::lsqr, 1e-8);
        options.conlim = 0;
        const Answer lsqr = solve(prepare, columns, right, options);
        options.method = Method::cgls;
        const Answer cgls = solve(prepare, columns, right, options);
        CAPTURE(grade);
        CHECK(lsqr.result.converged());
        CHECK(cgls.result.converged());
        CHECK(std::abs(cgls.result.iterations - lsqr.result.iterations) <= 1);
        check_claim(cgls.result, truth(*columns, right, cgls.x), options, kEps64);
    }
    // Every form of the problem: claims, norms and answers. Dropping much, and of a singular A^T A, takes shifts.
    const Vector b = random_vector(90, 2074), x0 = random_vector(25, 2076);
    for (const double drop : {-1.0, 0.0, 0.05, 0.5}) {
        for (const bool shaped : {false, true}) {
            for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::mixed}) {
                PrepareOptions prepare = base;
                prepare.preconditioner = Preconditioner::cholesky;
                prepare.cholesky_drop = drop;
                prepare.precision = precision;
                if (shaped) prepare.scale = Scaling::columns;
                SolveOptions options = with_method(Method::lsmr, precision == Precision::fp32 ? 1e-4 : 1e-10);
                options.conlim = 0;
                options.max_iterations = 5000;
                options.damp = shaped ? 0.01 : 0;
                prepare.preconditioner_damp = options.damp;
                const Answer answer = solve(prepare, a, b, options, shaped ? std::optional<Vector>(x0) : std::nullopt);
                const Truth t = truth(*a, b, answer.x, options.damp, {}, shaped ? x0 : Vector{});
                CAPTURE(drop);
                CAPTURE(shaped);
                CAPTURE(word(precision));
                CAPTURE(answer.result.message);
                CHECK(answer.result.converged());
                check_claim(answer.result, t, options, precision == Precision::fp32 ? kEps32 : kEps64);
                check_norms(answer.result, t);
                if (precision != Precision::fp32) {
                    const Oracle oracle = dense_solution(*a, b, options.damp);
                    CHECK(distance(answer.x, oracle.x) <= error_bound(t, oracle.sigma_min));
                }
            }
        }
    }
    Triplets twice = triplets(*a);  // a column again, and an empty one
    for (std::size_t k = 0, count = twice.values.size(); k < count; ++k) {
        if (twice.j[k] == 3) twice.add(twice.i[k], 25, twice.values[k]);
    }
    twice.cols = 27;
    PrepareOptions prepare = base;
    prepare.preconditioner = Preconditioner::cholesky;
    PreparedProblem singular(twice.matrix(), prepare);
    REQUIRE(!singular.info().plan.notes.empty());
    CHECK(singular.info().plan.notes.back().find("level 0") != std::string::npos);
    CHECK(singular.info().plan.notes.back().find("shift 0 of") == std::string::npos);
    SolveOptions options = with_method(Method::lsmr, 1e-8);
    const Answer answer = solve(singular, b, options);
    CHECK(answer.result.converged());
    CHECK(answer.x[26] == 0);
    // The state of one knows it: another factor is another solve.
    prepare.cholesky_drop = -1;
    const SolveOptions exact = with_method(Method::lsmr, 1e-10);
    PreparedProblem level_0(a, prepare);
    Saver saver({3});
    const Answer watched = solve(level_0, b, exact, {}, &saver);
    REQUIRE(saver.saved.size() == 1);
    check_same(resumed(level_0, b, exact, {}, saver.saved[0]), watched);
    check_same(solve(prepare, a, b, exact), watched);
    prepare.cholesky_drop = 0.05;
    PreparedProblem dropped(a, prepare);
    CHECK_THROWS_AS(resumed(dropped, b, exact, {}, saver.saved[0]), InputError);
    prepare.cholesky_drop = 2;
    CHECK_THROWS_AS(PreparedProblem(a, prepare), InputError);
    prepare.cholesky_drop = 0;
    prepare.cholesky_shift = -1;
    CHECK_THROWS_AS(PreparedProblem(a, prepare), InputError);
}

}  // namespace lsmr::test
