// Block-Jacobi preconditioners of A^T A. As solver_suite.hpp: called per backend.
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
    PreparedProblem square(laplacian(4, 0.5), with_blocks(base));
    CHECK(square.choose_method(with_method(Method::automatic)).method == Method::lsqr);
    const Answer wide = solve(with_blocks(base, 1), wide_matrix(), random_vector(25, 1142), with_method(Method::lsmr));
    REQUIRE(wide.result.notes.size() == 1);
    CHECK(wide.result.notes[0].find("of the preconditioner's metric") != std::string::npos);
}

}  // namespace lsmr::test
