// Scaled rows and columns, row weights, dampings of single columns, and general regularising rows. As solver_suite.hpp:
// called per backend.
#pragma once

#include <doctest/doctest.h>

#include "solver/transform.hpp"
#include "solver_suite.hpp"

namespace lsmr::test {

// What PrepareOptions ask for, built by hand: R A, R b and G.
struct Explicit {
    Matrix a;  // R A
    Vector b;  // R b
    Matrix g;  // null: none
    Matrix stack() const { return g ? stacked(*a, *g) : a; }
    Vector rhs(const Vector& c) const {
        Vector all = b;
        if (!g) return all;
        const Vector gc = c.empty() ? Vector(index(g->rows()), 0.0) : product(*g, c);
        all.insert(all.end(), gc.begin(), gc.end());
        return all;
    }
    // The truth about x: residuals of the stack, ||b||, ||b - A x|| and ||A||_F of A.
    Truth truth_of(const Vector& x, double damp, const Vector& c, const Vector& x0) const {
        Truth t = truth(*stack(), rhs(c), x, damp, c, x0);
        const Truth data = truth(*a, b, x);
        t.b = data.b;
        t.r = data.r;
        t.a_frobenius = data.a_frobenius;
        return t;
    }
};

inline Explicit by_hand(const Matrix& a, const Vector& b, const Vector& weights, const Matrix& g) {
    Explicit e{a, b, g};
    if (weights.empty()) return e;
    e.a = with_values(*a,
                      [&](std::int64_t i, std::int64_t, double value) { return value * std::sqrt(weights[index(i)]); });
    for (std::size_t i = 0; i < b.size(); ++i) e.b[i] *= std::sqrt(weights[i]);
    return e;
}

// Second differences: (n - 2) x n.
inline Matrix second_differences(std::int64_t n) {
    Triplets t{n - 2, n, {}, {}, {}};
    for (std::int64_t i = 0; i < n - 2; ++i) {
        t.add(i, i, 1);
        t.add(i, i + 1, -2);
        t.add(i, i + 2, 1);
    }
    return t.matrix();
}

// Every form of the problem against dense answers: x, its norms, and no more claimed than is true of x.
inline void suite_problem_forms(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(90, 30, 3, 901), 1e3);
    const Vector b = random_vector(a->rows(), 902);
    const Vector x0 = random_vector(a->cols(), 903);
    const Vector c = scaled(random_vector(a->cols(), 904), 3);
    Vector weights = random_vector(a->rows(), 905);
    for (double& w : weights) w = w > -0.9 ? std::abs(w) * 10 : 0.0;  // some rows do not count
    Vector damp_of_column(index(a->cols()), 0.0);
    for (std::size_t j = 0; j < damp_of_column.size(); j += 2) damp_of_column[j] = 0.1 * static_cast<double>(j + 1);
    const Matrix l = second_differences(a->cols());
    for (const Scaling scale : {Scaling::none, Scaling::columns}) {
        for (const int form : {0, 1, 2, 3, 4}) {
            PrepareOptions prepare = base;
            prepare.scale = scale;
            Matrix g;
            Vector w;
            if (form == 1 || form == 4) {
                w = weights;
                prepare.weights = w;
            }
            if (form == 2 || form == 4) {
                prepare.column_damp = damp_of_column;
                Triplets rows{0, a->cols(), {}, {}, {}};
                for (std::size_t j = 0; j < damp_of_column.size(); j += 2)
                    rows.add(rows.rows++, static_cast<std::int64_t>(j), damp_of_column[j]);
                g = rows.matrix();
            }
            if (form == 3 || form == 4) {
                prepare.regulariser = l;
                prepare.regulariser_weight = 0.5;
                const Matrix half = scaled(*l, 0.5);
                g = g ? stacked(*g, *half) : half;
            }
            const Explicit problem = by_hand(a, b, w, g);
            for (const Precision precision : kPrecisions) {
                PreparedProblem prepared(a, with_precision(prepare, precision));
                for (const Method method : kMethods) {
                    for (const double damp : {0.0, 0.05}) {
                        for (const int start :
                             {0, 1, 2, 3}) {  // zero; x0; x0 as the centre; x0 and a centre of its own
                            SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-9 : 1e-4);
                            options.damp = damp;
                            options.max_iterations = 20000;
                            options.conlim = 0;
                            options.damp_center = start == 2   ? DampCenter::x0
                                                  : start == 3 ? DampCenter::given
                                                               : DampCenter::zero;
                            options.center = c;
                            const Vector center = start == 2 ? x0 : start == 3 ? c : Vector{};
                            const std::optional<Vector> given = start > 0 ? std::optional<Vector>(x0) : std::nullopt;
                            const Answer answer = solve(prepared, b, options, given);
                            const Truth t = problem.truth_of(answer.x, damp, damp > 0 || g ? center : Vector{},
                                                             given.value_or(Vector{}));
                            CAPTURE(static_cast<int>(scale));
                            CAPTURE(form);
                            CAPTURE(word(precision));
                            CAPTURE(word(method));
                            CAPTURE(damp);
                            CAPTURE(start);
                            CAPTURE(answer.result.message);
                            CHECK(answer.result.converged());
                            CHECK(answer.result.restarts == 0);
                            check_norms(answer.result, t);
                            check_claim(
                                answer.result, t, options,
                                eps_of(prepare.precision == precision ? prepare : with_precision(prepare, precision)));
                            if (precision == Precision::fp32) continue;
                            const Oracle oracle =
                                dense_solution(*problem.stack(), problem.rhs(damp > 0 || g ? center : Vector{}), damp,
                                               damp > 0 ? center : Vector{});
                            CHECK(distance(answer.x, oracle.x) <= error_bound(t, oracle.sigma_min));
                        }
                    }
                }
            }
        }
    }
}

// Weights and rows below are the same as a matrix that holds them: the same bits.
inline void suite_weights_are_a_weighted_matrix(const PrepareOptions& base) {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 911);
    Vector weights = random_vector(a->rows(), 912);
    for (double& w : weights) w = w * w;
    const Explicit problem = by_hand(a, b, weights, nullptr);
    PrepareOptions prepare = base;
    prepare.weights = weights;
    for (const Method method : kMethods) {
        const Answer weighted = solve(prepare, a, b, with_method(method, 1e-10));
        const Answer plain = solve(base, problem.a, problem.b, with_method(method, 1e-10));
        CHECK(same_bits(weighted.x, plain.x));
        CHECK(weighted.result.iterations == plain.result.iterations);
        CHECK(weighted.result.norms.r == plain.result.norms.r);
    }
    // Rows evened out by powers of two: a weighting, which is said; where A x = b can be met it changes nothing in x.
    const Matrix uneven = with_values(
        *square_matrix(), [](std::int64_t i, std::int64_t, double value) { return value * std::pow(10, i % 7); });
    const Vector x = random_vector(uneven->cols(), 913);
    const Vector compatible = product(*uneven, x);
    PrepareOptions rows = base;
    rows.scale = Scaling::rows;
    PreparedProblem prepared(uneven, rows);
    CHECK(std::any_of(prepared.info().notes.begin(), prepared.info().notes.end(), [](const std::string& note) {
        return note.find("another x is the least-squares solution") != std::string::npos;
    }));
    SolveOptions options = with_method(Method::lsmr, 1e-13);
    options.max_iterations = 20000;
    const Answer even = solve(prepared, compatible, options);
    CHECK(even.result.converged());
    const Transform t = make_transform(uneven, rows);
    REQUIRE(t.row_scale.size() == compatible.size());
    for (const double s : t.row_scale) CHECK(std::ldexp(1.0, std::ilogb(s)) == s);
    const Vector norms = [&] {
        Vector squares(compatible.size(), 0.0);
        const Triplets entries = triplets(*t.a);
        for (std::size_t k = 0; k < entries.values.size(); ++k)
            squares[index(entries.i[k])] += entries.values[k] * entries.values[k];
        return squares;
    }();
    CHECK(*std::max_element(norms.begin(), norms.end()) <= 4.1 * *std::min_element(norms.begin(), norms.end()));
    check_norms(even.result, truth(*t.a, t.right_side(compatible, {}), even.x));
    CHECK(distance(even.x, x) <= 1e-9 * norm(x));
    CHECK(even.result.iterations < solve(base, uneven, compatible, options).result.iterations);
}

// Far fewer iterations where columns are badly scaled; the values of A D are those of A times powers of two.
inline void suite_scaled_columns(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(150, 40, 4, 921), 1e5);
    const Vector b = random_vector(a->rows(), 922);
    PrepareOptions scaled_columns = base;
    scaled_columns.scale = Scaling::columns;
    const Transform t = make_transform(a, scaled_columns);
    for (const double d : t.column_scale) CHECK(std::ldexp(1.0, std::ilogb(d)) == d);
    CHECK(*std::min_element(t.column_scale.begin(), t.column_scale.end()) == 1);
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method, 1e-10);
        options.max_iterations = 20000;
        options.conlim = 0;
        const Answer plain = solve(base, a, b, options);
        const Answer even = solve(scaled_columns, a, b, options);
        CAPTURE(word(method));
        CHECK(plain.result.converged());
        CHECK(even.result.converged());
        CHECK(5 * even.result.iterations < plain.result.iterations);
        check_claim(even.result, truth(*a, b, even.x), options, kEps64);
        check_norms(even.result, truth(*a, b, even.x));
        // Records go on through the tightening of tolerances; a column of zeros keeps x0.
        Recorder recorder;
        solve(scaled_columns, a, b, options, {}, &recorder);
        REQUIRE(static_cast<std::int64_t>(recorder.all.size()) == even.result.iterations);
        for (std::size_t k = 0; k < recorder.all.size(); ++k)
            CHECK(recorder.all[k].iteration == static_cast<std::int64_t>(k) + 1);
    }
    // Few equations, damped around a point: the rows lambda D are long, and claims of z fall to rounding before those of x hold.
    for (const std::uint64_t seed : {7, 152, 161, 230, 295, 323, 7996, 19649}) {
        const auto few = static_cast<std::int64_t>(1 + seed % 7), many = static_cast<std::int64_t>(6 + seed % 31);
        const Matrix wide = graded(*random_sparse(few, many, 3, 10000 + seed), 1e3);
        const Vector right = random_vector(few, 20000 + seed), start = random_vector(many, 30000 + seed);
        const Vector center = random_vector(many, 40000 + seed);
        for (const Method method : {Method::lsmr, Method::lsqr}) {
            for (const double damp : {0.1, 10.0}) {
                SolveOptions options = with_method(method, 1e-12);
                options.damp = damp;
                options.damp_center = DampCenter::given;
                options.center = center;
                options.conlim = 0;
                options.max_iterations = 2000;
                const Answer answer = solve(scaled_columns, wide, right, options, start);
                const Truth now = truth(*wide, right, answer.x, damp, center, start);
                CAPTURE(word(method));
                CAPTURE(seed);
                CAPTURE(damp);
                CAPTURE(answer.result.message);
                CHECK(answer.result.converged());
                CHECK(answer.result.iterations <= 500);
                check_claim(answer.result, now, options, kEps64);
                check_norms(answer.result, now);
            }
        }
    }
    // A narrow window of kept vectors in fp32, whose orthogonality is lost: v grows from one iteration to the next, and that ends the solve.
    for (const std::uint64_t seed : {1482, 2582, 2644}) {
        const auto few = static_cast<std::int64_t>(1 + seed % 7), many = static_cast<std::int64_t>(6 + seed % 31);
        const Matrix wide = graded(*random_sparse(few, many, 3, 10000 + seed), 1e3);
        const Vector right = random_vector(few, 20000 + seed), start = random_vector(many, 30000 + seed);
        for (const Method method : {Method::lsmr, Method::lsqr}) {
            SolveOptions options = with_method(method, 1e-3);
            options.damp = 10;
            options.conlim = 0;
            options.max_iterations = 2000;
            options.reorthogonalize = 3;
            const Answer answer = solve(with_precision(scaled_columns, Precision::fp32), wide, right, options, start);
            CAPTURE(word(method));
            CAPTURE(seed);
            CAPTURE(answer.result.message);
            CHECK(answer.result.status != Status::non_finite);
            check_norms(answer.result, truth(*wide, right, answer.x, 10, {}, start));
            CHECK(norm(answer.x) <= norm(start));
            if (answer.result.status == Status::breakdown) CHECK(answer.result.message.find("kept vectors") != std::string::npos);
        }
    }
    // Any scale of A: powers of two give the same bits.
    const SolveOptions options = with_method(Method::lsmr, 1e-8);
    const Answer plain = solve(scaled_columns, a, b, options);
    for (const int e : {-900, -30, 500, 950}) {
        const Answer other =
            solve(scaled_columns, std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(e)), b, options);
        CHECK(other.result.status == plain.result.status);
        CHECK(same_bits(other.x, scaled(plain.x, std::ldexp(1.0, -e))));
    }
    // An empty column, and the bound relative to the start, which is meant for x and not for z.
    Triplets entries = triplets(*a);
    for (std::size_t k = 0; k < entries.values.size(); ++k) entries.values[k] *= entries.j[k] == 7 ? 0.0 : 1.0;
    const Matrix hole = entries.matrix();
    const Vector x0 = random_vector(a->cols(), 923);
    SolveOptions relative = with_method(Method::lsmr, 0.0);
    relative.ar_relative = 1e-4;
    const Answer from_x0 = solve(scaled_columns, hole, b, relative, x0);
    CHECK(from_x0.result.status == Status::least_squares);
    CHECK(from_x0.x[7] == x0[7]);
    const Truth at_start = truth(*hole, b, x0);
    const Truth at_end = truth(*hole, b, from_x0.x);
    CHECK(at_end.ar <= 2e-4 * at_start.ar);
    const double ratio = at_end.ar / at_end.r / (at_start.ar / at_start.r);
    check_within(from_x0.result.norms.start_ratio, ratio, 1e-8 * ratio, "ratio to the start");
}

// A solution of least norm, and of which norm, is said.
inline void suite_least_norm_is_said(const PrepareOptions& base) {
    const Matrix a = graded(*wide_matrix(), 30);
    const Vector b = random_vector(a->rows(), 931);
    const Vector x0 = random_vector(a->cols(), 932);
    PrepareOptions scaled_columns = base;
    scaled_columns.scale = Scaling::columns;
    const Transform t = make_transform(a, scaled_columns);
    const Matrix even =
        with_values(*a, [&](std::int64_t, std::int64_t j, double value) { return value * t.column_scale[index(j)]; });
    const SolveOptions options = with_method(Method::lsmr, 1e-12);
    for (const bool warm : {false, true}) {
        const std::optional<Vector> start = warm ? std::optional<Vector>(x0) : std::nullopt;
        const Answer plain = solve(base, a, b, options, start);
        const Answer scaled_answer = solve(scaled_columns, a, b, options, start);
        REQUIRE(plain.result.notes.size() == 1);
        REQUIRE(scaled_answer.result.notes.size() == 1);
        CHECK(plain.result.notes[0].find(warm ? "least ||x - x0||" : "least ||x||") != std::string::npos);
        CHECK(scaled_answer.result.notes[0].find("least ||D^-1 (x - x0)||") != std::string::npos);
        const Oracle nearest = dense_solution(*a, b, 0, start.value_or(Vector{}));
        CHECK(distance(plain.x, nearest.x) <= 1e-8 * norm(nearest.x));
        Vector z0 = x0;
        for (std::size_t j = 0; j < z0.size(); ++j) z0[j] /= t.column_scale[j];
        Oracle z = dense_solution(*even, b, 0, warm ? z0 : Vector{});
        for (std::size_t j = 0; j < z.x.size(); ++j) z.x[j] *= t.column_scale[j];
        CHECK(distance(scaled_answer.x, z.x) <= 1e-8 * norm(z.x));
        CHECK(distance(z.x, nearest.x) > 1e-3 * norm(nearest.x));  // the problem shows the difference
    }
    SolveOptions damped = options;
    damped.damp = 0.1;
    CHECK(solve(base, a, b, damped).result.notes.empty());
    CHECK(solve(base, tall_matrix(), random_vector(120, 933), options).result.notes.empty());
    PrepareOptions regularised = base;
    regularised.regulariser = diagonal(Vector(index(a->cols()), 1.0));
    CHECK(solve(regularised, a, b, options).result.notes.empty());
}

inline void suite_transform_refusals(const PrepareOptions& base) {
    {  // Damping that its rows, in the units of the operator's values, cannot hold.
        const Matrix plain = random_sparse(40, 12, 3, 931);
        const Vector right = random_vector(40, 932), start = random_vector(12, 933);
        SolveOptions huge = with_method(Method::lsmr);
        huge.damp = 1e300;
        PrepareOptions columns = base;
        columns.scale = Scaling::columns;
        CHECK_THROWS_WITH_AS(solve(columns, std::make_shared<const CsrMatrix>(plain->scaled_by_power_of_two(-1000)), right, huge),
                             doctest::Contains("beyond the range of doubles"), InputError);
        CHECK_THROWS_WITH_AS(solve(with_precision(base, Precision::fp32), plain, right, huge, start), doctest::Contains("beyond the range of fp32"),
                             InputError);
        CHECK(norm(solve(with_precision(base, Precision::fp32), plain, right, huge).x) == 0);  // no rows are needed
    }
    const Matrix a = tall_matrix();
    const auto refused = [&](auto change, const std::string& part) {
        PrepareOptions options = base;
        change(options);
        std::string message;
        try {
            PreparedProblem problem(a, options);
        } catch (const InputError& error) {
            message = error.what();
        }
        INFO(message << ", expected: " << part);
        CHECK(message.find(part) != std::string::npos);
    };
    const Vector few(7, 1.0);
    Vector negative(120, 1.0), spoiled(40, 1.0);
    negative[4] = -1;
    spoiled[2] = std::nan("");
    refused([&](PrepareOptions& o) { o.weights = few; },
            "weights: 7 values, A is 120 x 40: one for each row is needed");
    refused([&](PrepareOptions& o) { o.weights = negative; }, "weights: entry 5 is -1");
    refused([&](PrepareOptions& o) { o.column_damp = few; },
            "column damping: 7 values, A is 120 x 40: one for each column");
    refused([&](PrepareOptions& o) { o.column_damp = spoiled; }, "column damping: entry 3");
    refused([&](PrepareOptions& o) { o.regulariser = wide_matrix(); }, "regulariser: it is 25 x 60, A is 120 x 40");
    refused([&](PrepareOptions& o) { o.regulariser = a, o.regulariser_weight = -2; }, "the weight is -2");
    PrepareOptions scaled_columns = base;
    scaled_columns.scale = Scaling::columns;
    PreparedProblem problem(a, scaled_columns);
    SolveOptions bounded;
    bounded.trust_radius = 1;
    Vector x(40, 0.0);
    CHECK_THROWS_AS(problem.solve(Vector(120, 1.0), x, bounded), InputError);
    PreparedProblem square(diagonal(Vector(5, 2.0)), scaled_columns);
    Vector y(5, 0.0);
    CHECK_THROWS_AS(square.solve(Vector(5, 1.0), y, with_method(Method::cg)), InputError);
    CHECK(square.choose_method(with_method(Method::automatic)).method == Method::lsqr);
}

}  // namespace lsmr::test
