// Solves in an order of rows and columns. As solver_suite.hpp: called per backend.
#pragma once

#include <doctest/doctest.h>

#include "cg_suite.hpp"
#include "checkpoint_suite.hpp"
#include "order_cases.hpp"
#include "preconditioner_suite.hpp"
#include "solver_suite.hpp"
#include "transform_suite.hpp"

namespace lsmr::test {

inline PrepareOptions in_order(PrepareOptions base, OrderKind kind) {
    base.reorder = kind;
    base.executor = ExecutorKind::graph;  // bits and states of two orders are compared; the persistent kernel takes matrices as given only
    return base;
}

// All that crosses between the caller's order and that of the operator, against dense answers.
inline void suite_orders(const PrepareOptions& base) {
    for (const OrderKind kind : kOrders) {
        CAPTURE(name(kind));
        suite_start_and_center(in_order(base, kind));
        suite_problem_forms(in_order(base, kind));
    }
    const PrepareOptions spectral = in_order(base, OrderKind::spectral);
    suite_scaled_columns(spectral);
    suite_preconditioned_answers(spectral);
    suite_checkpoints(spectral);
    suite_cg_answers(spectral);
    suite_empty_rows_and_columns(spectral);
    suite_degenerate_shapes(spectral);
    suite_many_right_hand_sides(spectral);
    suite_repeats(spectral);
}

// The same x but for rounding, and a plan that says the order.
inline void suite_orders_beside_none(const PrepareOptions& base) {
    const Matrix a = shuffled(patches(400, 8, 3, 1201), 1202);
    const Vector b = random_vector(a->rows(), 1203);
    PreparedProblem plain(a, in_order(base, OrderKind::none));
    CHECK(plain.info().plan.order.kind == OrderKind::none);
    CHECK(plain.info().order == nullptr);
    SolveOptions options = with_method(Method::lsmr, 1e-11);
    options.damp = 0.1;
    const Answer expected = solve(plain, b, options);
    for (const OrderKind kind : kOrders) {
        PreparedProblem problem(a, in_order(base, kind));
        CAPTURE(name(kind));
        CHECK(problem.info().plan.order.kind == kind);
        CHECK(problem.info().plan.order.reason == "asked for");
        REQUIRE(problem.info().order != nullptr);
        const Answer answer = solve(problem, b, options);
        CHECK(answer.result.status == expected.result.status);
        CHECK(std::abs(answer.result.iterations - expected.result.iterations) <= 1);
        CHECK(distance(answer.x, expected.x) <= error_bound(truth(*a, b, answer.x, 0.1), 0.1) + error_bound(truth(*a, b, expected.x, 0.1), 0.1));
        // Another order adds in another order; by length, rows of the same length stay as they are.
        CHECK((answer.x != expected.x) == (kind != OrderKind::length));
    }
    // The order of another problem.
    PrepareOptions given = in_order(base, OrderKind::first);
    given.order = PreparedProblem(a, in_order(base, OrderKind::spectral)).info().order;
    PreparedProblem same(a, given);
    CHECK(same.info().order == given.order);
    CHECK(same.info().plan.order.kind == OrderKind::spectral);
    CHECK(same.info().plan.order.reason == "given");
    CHECK(same_bits(solve(same, b, options).x, solve(in_order(base, OrderKind::spectral), a, b, options).x));
    CHECK_THROWS_AS(PreparedProblem(random_sparse(20, 10, 3, 1204), given), InputError);
    // Too small to gain anything.
    PreparedProblem automatic(a, in_order(base, OrderKind::automatic));
    CHECK(automatic.info().plan.order.kind == OrderKind::none);
    CHECK_FALSE(automatic.info().plan.order.reason.empty());
    CHECK(same_bits(solve(automatic, b, options).x, expected.x));
}

// A state goes on in its own order only.
inline void suite_order_of_checkpoints(const PrepareOptions& base) {
    const Matrix a = shuffled(patches(400, 8, 3, 1211), 1212);
    const Vector b = random_vector(a->rows(), 1213);
    const SolveOptions options = with_method(Method::lsmr, 1e-10);
    PreparedProblem spectral(a, in_order(base, OrderKind::spectral));
    Saver saver({3});
    const Answer whole = solve(spectral, b, options, {}, &saver);
    REQUIRE(!saver.saved.empty());
    PreparedProblem again(a, in_order(base, OrderKind::spectral));
    check_same(resumed(again, b, options, {}, saver.saved.front()), whole);
    for (const OrderKind kind : {OrderKind::none, OrderKind::first}) {
        PreparedProblem other(a, in_order(base, kind));
        CHECK_THROWS_WITH_AS(resumed(other, b, options, {}, saver.saved.front()), doctest::Contains("the order of rows and columns"), InputError);
    }
}

// R of a sketch and L of an incomplete factor are in the caller's order, whatever that of A is.
inline void suite_preconditioned_orders(const PrepareOptions& base) {
    const Matrix a = shuffled(patches(400, 8, 3, 1221), 1222);
    const Vector b = random_vector(a->rows(), 1223);
    const SolveOptions options = with_method(Method::lsmr, 1e-12);
    const double sigma_min = dense_solution(*a, b).sigma_min;
    for (const Preconditioner preconditioner : {Preconditioner::sketch, Preconditioner::cholesky}) {
        PrepareOptions prepare = base;
        prepare.preconditioner = preconditioner;
        CAPTURE(name(preconditioner));
        const Answer plain = solve(in_order(prepare, OrderKind::none), a, b, options);
        for (const OrderKind kind : kOrders) {
            const Answer answer = solve(in_order(prepare, kind), a, b, options);
            CAPTURE(name(kind));
            CHECK(answer.result.converged());
            CHECK(answer.result.iterations <= plain.result.iterations + 1);
            CHECK(distance(answer.x, plain.x) <= error_bound(truth(*a, b, answer.x), sigma_min) + error_bound(truth(*a, b, plain.x), sigma_min));
        }
    }
}

}  // namespace lsmr::test
