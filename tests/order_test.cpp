// Orders of rows and columns on the host, and what decides whether one pays.
#include <doctest/doctest.h>
#include <omp.h>

#include "data/generators.hpp"
#include "memory/error.hpp"
#include "operator/matrix_operator.hpp"
#include "operator/profile.hpp"
#include "order_cases.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

MatrixOrder order_of(OrderKind kind, const CsrMatrix& a) { return make_order(kind, a, a.transposed()); }

bool same(const CsrMatrix& a, const CsrMatrix& b) {
    return a.rows() == b.rows() && a.cols() == b.cols() && std::equal(a.offsets(), a.offsets() + a.rows() + 1, b.offsets(), b.offsets() + b.rows() + 1) &&
           std::equal(a.columns(), a.columns() + a.nnz(), b.columns()) && std::equal(a.values(), a.values() + a.nnz(), b.values());
}

}  // namespace

TEST_CASE("order: a permuted matrix, entry by entry") {
    const Matrix a = random_sparse(50, 30, 4, 701);
    const auto row = shuffled_lines(50, 702);
    const auto col = shuffled_lines(30, 703);
    Triplets t = triplets(*a);
    const auto to_row = inverse_order(row);
    const auto to_col = inverse_order(col);
    for (std::size_t k = 0; k < t.values.size(); ++k) {
        t.i[k] = to_row[index(t.i[k])];
        t.j[k] = to_col[index(t.j[k])];
    }
    CHECK(same(permuted(*a, row, col), *t.matrix()));
    CHECK(same(permuted(*a, {}, {}), *a));
    CHECK_THROWS_WITH_AS(permuted(*a, col, row), "order: it has 30 rows and 50 columns, the matrix is 50 x 30", InputError);
    CHECK(ordered({2, 0, 1}, std::vector<double>{5, 6, 7, 8}) == std::vector<double>{7, 5, 6, 8});
}

TEST_CASE("order: every kind is an order of any matrix, the same for any number of threads") {
    std::vector<Matrix> all = odd_matrices();
    all.push_back(shuffled(stencil(7), 711));
    all.push_back(patches(500, 12, 3, 712));
    all.push_back(shuffled(stencil(18), 713));         // more columns than the coarsest problem has
    all.push_back(random_sparse(6000, 9000, 2, 714));  // the same, many of them empty
    const int threads = omp_get_max_threads();
    for (const Matrix& a : all) {
        for (const OrderKind kind : kOrders) {
            CAPTURE(name(kind));
            CAPTURE(a->rows());
            CAPTURE(a->cols());
            omp_set_num_threads(1);
            const MatrixOrder one = order_of(kind, *a);
            omp_set_num_threads(4);
            const MatrixOrder four = order_of(kind, *a);
            omp_set_num_threads(threads);
            CHECK(one.kind == kind);
            CHECK(one.row == four.row);
            CHECK(one.col == four.col);
            CHECK(one.hash() == four.hash());
            CHECK(is_permutation_of(one.row, a->rows()));
            CHECK((one.col.empty() || is_permutation_of(one.col, a->cols())));
        }
    }
}

TEST_CASE("order: rows by length, first and median column") {
    const Matrix a = matrix_of(5, 4, {0, 0, 1, 1,  //
                                      0, 0, 0, 0,  //
                                      1, 1, 0, 1,  //
                                      0, 1, 0, 0,  //
                                      1, 0, 1, 1});
    CHECK(order_of(OrderKind::length, *a).row == std::vector<std::int32_t>{2, 4, 0, 3, 1});
    CHECK(order_of(OrderKind::first, *a).row == std::vector<std::int32_t>{2, 4, 3, 0, 1});
    CHECK(order_of(OrderKind::median, *a).row == std::vector<std::int32_t>{2, 3, 4, 0, 1});
    CHECK(order_of(OrderKind::median, *a).col.empty());
}

TEST_CASE("order: a symmetric structure stays symmetric") {
    const auto lines = shuffled_lines(125, 721);
    const CsrMatrix a = permuted(*stencil(5), lines, lines);
    for (const OrderKind kind : kOrders) {
        const MatrixOrder order = order_of(kind, a);
        CHECK(order.row == order.col);
    }
    const MatrixOrder free = order_of(OrderKind::spectral, *shuffled(stencil(5), 722));
    CHECK(free.row != free.col);
}

namespace {

// Sectors that the products of both orientations fetch from beyond the first-level cache, an entry.
double far_sectors(const CsrMatrix& a) { return gather_shape(a, 8).window_sectors + gather_shape(a.transposed(), 8).window_sectors; }
double near_sectors(const CsrMatrix& a) { return gather_shape(a, 8).run_sectors; }

CsrMatrix in_order(const CsrMatrix& a, OrderKind kind) {
    const MatrixOrder order = order_of(kind, a);
    return permuted(a, order.row, order.col);
}

}  // namespace

TEST_CASE("order: the spectral one undoes a shuffle") {
    // Wider than rounds of averaging reach: local order alone comes to nearly twice the sectors of the natural one.
    const Matrix natural = stencil(44);
    const Matrix a = shuffled(natural, 731);
    const CsrMatrix found = in_order(*a, OrderKind::spectral);
    MESSAGE("sectors an entry of both products: shuffled " << far_sectors(*a) << ", spectral " << far_sectors(found) << ", natural " << far_sectors(*natural));
    CHECK(far_sectors(*a) > 1.8);
    // Pieces that began anywhere came to 1.02 and 1.2: their lines lie in more sectors than they fill.
    CHECK(far_sectors(found) < 0.98 * far_sectors(*natural));
    CHECK(near_sectors(found) < 1.12 * near_sectors(*natural));
}

TEST_CASE("order: the spectral one follows a long mesh, and one in pieces") {
    // A path of 20,000 nodes, and 5,000 of 4, with rows and columns shuffled.
    for (const std::int64_t piece : {20000, 4}) {
        Triplets t{20000, 20000, {}, {}, {}};
        for (std::int64_t i = 0; i < t.rows; ++i) {
            for (std::int64_t j = i - 1; j <= i + 1; ++j) {
                if (j >= 0 && j < t.cols && j / piece == i / piece) t.add(i, j, 1);
            }
        }
        const Matrix natural = t.matrix();
        const Matrix a = shuffled(natural, 733);
        CAPTURE(piece);
        CHECK(far_sectors(in_order(*a, OrderKind::spectral)) < 0.5 * far_sectors(*a));
    }
}

TEST_CASE("order: the spectral one sorts rays, and leaves runs of cells together") {
    const CsrMatrix rays = generate("tomography", {{"nx", 32}, {"ny", 32}, {"nz", 32}, {"rays", 15000}}).a;
    const CsrMatrix found = in_order(rays, OrderKind::spectral);
    MESSAGE("sectors an entry of both products: as given " << far_sectors(rays) << ", spectral " << far_sectors(found) << "; of runs " << near_sectors(rays) << ", "
                                                           << near_sectors(found));
    // With means in the place of lines, 0.56 and, of the shuffled cells, 0.65.
    CHECK(far_sectors(found) < 0.53 * far_sectors(rays));
    CHECK(near_sectors(found) < 1.03 * near_sectors(rays));
    // Among cells in random order there is nothing to leave together.
    const CsrMatrix mixed = in_order(permuted(rays, {}, shuffled_lines(rays.cols(), 735)), OrderKind::spectral);
    CHECK(near_sectors(mixed) > near_sectors(found));
    MESSAGE("cells shuffled besides: " << far_sectors(mixed) << ", of runs " << near_sectors(mixed));
    CHECK(far_sectors(mixed) < 0.63 * far_sectors(rays));
}

TEST_CASE("order: rows by first column make the adjoint of a collocation matrix local") {
    const Matrix a = patches(20000, 24, 4, 741);
    const MatrixOrder order = order_of(OrderKind::first, *a);
    CHECK(profile(*a).at.sectors_fp64 > 0.9);
    CHECK(profile(permuted(*a, order.row, order.col)).at.sectors_fp64 < 0.35);
}

TEST_CASE("order: orthogonal points, and coordinates that depend on others") {
    // Points of 40 lines, weights 1 to 3; the last two coordinates depend on those before.
    const std::int64_t n = 40;
    std::vector<double> x(index(n * detail::kPoint));
    for (std::int64_t j = 0; j < n; ++j) {
        for (int c = 0; c < 6; ++c) x[index(j * detail::kPoint + c)] = static_cast<double>(detail::start_point(j, c));
        x[index(j * detail::kPoint + 6)] = 2 * x[index(j * detail::kPoint + 3)];
        x[index(j * detail::kPoint + 7)] = 0;
    }
    const auto gram_of = [&] {
        std::vector<double> g(detail::kPoint * detail::kPoint, 0.0);
        for (std::int64_t j = 0; j < n; ++j) {
            for (int r = 0; r < detail::kPoint; ++r) {
                for (int c = 0; c < detail::kPoint; ++c)
                    g[index(r * detail::kPoint + c)] += static_cast<double>(1 + j % 3) * x[index(j * detail::kPoint + r)] * x[index(j * detail::kPoint + c)];
            }
        }
        return g;
    };
    float t[detail::kPoint * detail::kPoint];
    double lengths[detail::kPoint - 1];
    const std::vector<double> before = gram_of();
    detail::orthonormalising(before.data(), t, lengths);
    CHECK(std::is_sorted(std::rbegin(lengths), std::rend(lengths)));
    CHECK(lengths[0] < 2);
    CHECK(lengths[4] > 0.1);
    CHECK(lengths[5] == 0);
    CHECK(detail::mean_length(lengths) == doctest::Approx((lengths[0] + lengths[1] + lengths[2] + lengths[3] + lengths[4]) / 5));
    for (std::int64_t j = 0; j < n; ++j) {
        double q[detail::kPoint] = {};
        for (int r = 0; r < detail::kPoint; ++r) {
            for (int c = 0; c < detail::kPoint; ++c) q[c] += x[index(j * detail::kPoint + r)] * static_cast<double>(t[r * detail::kPoint + c]);
        }
        std::copy(q, q + detail::kPoint, x.begin() + j * detail::kPoint);
        CHECK(q[0] == 1);
        CHECK(q[6] == 0);
        CHECK(q[7] == 0);
    }
    const std::vector<double> after = gram_of();
    for (int r = 0; r < detail::kPoint; ++r) {
        for (int c = 0; c < detail::kPoint; ++c) {
            const double expected = r == c && r < 6 ? before[0] : 0.0;
            CHECK(std::abs(after[index(r * detail::kPoint + c)] - expected) <= 1e-5 * before[0]);
        }
    }
    const std::vector<double> zero(detail::kPoint * detail::kPoint, 0.0);
    detail::orthonormalising(zero.data(), t, lengths);
    CHECK(detail::mean_length(lengths) == 0);
    CHECK(std::all_of(std::begin(t), std::end(t), [](float v) { return v == 0; }));
}

TEST_CASE("order: weights of coordinates, and of which rows are long") {
    double lengths[detail::kPoint - 1] = {0.99, 0.9, 0.5, 0.25};
    const detail::Weights before = detail::coordinate_weights(lengths);
    CHECK(before.of[0] == 1);
    CHECK(before.of[1] == doctest::Approx(10));
    CHECK(before.of[4] == doctest::Approx(1 / std::sqrt(0.75)));
    CHECK(before.of[5] == 0);
    // The Gram matrix without weights, and (x W) W^-1 T V where x has them.
    double gram[detail::kPoint * detail::kPoint];
    float t[detail::kPoint * detail::kPoint];
    for (int r = 0; r < detail::kPoint; ++r) {
        for (int c = 0; c < detail::kPoint; ++c) {
            gram[r * detail::kPoint + c] = static_cast<double>(before.of[r]) * static_cast<double>(before.of[c]) * (r + 3 * c + 1);
            t[r * detail::kPoint + c] = static_cast<float>(r + c + 1);
        }
    }
    detail::take_weights(before, gram);
    lengths[0] = 0.75;
    const detail::Weights after = detail::coordinate_weights(lengths);
    detail::take_weights(before, after, t);
    for (int r = 0; r < detail::kPoint; ++r) {
        for (int c = 0; c < detail::kPoint; ++c) {
            const bool kept = before.of[r] > 0 && before.of[c] > 0;
            CHECK(gram[r * detail::kPoint + c] == doctest::Approx(kept ? r + 3 * c + 1 : 0));
            CHECK(t[r * detail::kPoint + c] == doctest::Approx(before.of[r] > 0 ? after.of[c] / before.of[r] * static_cast<float>(r + c + 1) : 0.0F));
        }
    }
    // A mesh needs all rounds; where a round takes a lot away from every direction, a few will do.
    CHECK_FALSE(detail::has_long_rows(lengths));
    lengths[0] = 0.5;
    CHECK(detail::has_long_rows(lengths));
    CHECK(detail::are_enough(detail::kLongRounds, true, lengths));
    CHECK_FALSE(detail::are_enough(detail::kLongRounds - 1, true, lengths));
    CHECK_FALSE(detail::are_enough(detail::kLongRounds, false, lengths));
    lengths[0] = 0.9;
    CHECK_FALSE(detail::are_enough(detail::kCoarsestRounds, false, lengths));
}

TEST_CASE("order: labels are one to one, and samples lie in their own runs") {
    std::vector<std::uint32_t> labels;
    for (std::int32_t seed = 0; seed < 100'000; ++seed) {
        labels.push_back(detail::label_of(seed));
        CHECK(detail::seed_of(labels.back()) == static_cast<std::uint32_t>(seed));
    }
    std::sort(labels.begin(), labels.end());
    CHECK(std::adjacent_find(labels.begin(), labels.end()) == labels.end());
    std::int64_t first = 0, second = 0;
    for (std::int64_t j = 0; j < 64'000; ++j) {
        first += detail::is_seed(j, 0);
        second += detail::is_seed(j, 1);
        CHECK((!detail::is_seed(j, 0) || detail::is_seed(j, 1)));
        CHECK(detail::is_seed(j, detail::kGroupRounds - 1));
    }
    CHECK(first == doctest::Approx(1000).epsilon(0.1));
    CHECK(second == doctest::Approx(2000).epsilon(0.1));
    std::int64_t places[9] = {};
    for (std::int64_t s = 0; s < 1000; ++s) {
        const std::int64_t k = detail::sampled_entry(s, 36, 35'990);
        CHECK(k >= std::min<std::int64_t>(s * 36, 35'989));
        CHECK(k < std::min<std::int64_t>((s + 1) * 36, 35'990));
        ++places[k % 9];
    }
    for (const std::int64_t count : places) CHECK(count > 60);  // every 36th entry of rows of 27 would show three places of nine
}

TEST_CASE("order: pieces of halvings, and weights") {
    for (const std::int64_t lines : {1, 7, 8, 9, 1000, 54321}) {
        const std::int64_t first = detail::first_piece(lines);
        CHECK(first >= lines);
        CHECK((first == detail::kPiece || first / 2 < lines));
        CHECK((first & (first - 1)) == 0);
    }
    const double lengths[detail::kPoint - 1] = {1, 0.99, 0.96, 0};
    const detail::Weights weights = detail::coordinate_weights(lengths);
    CHECK(weights.of[1] == doctest::Approx(1000));
    CHECK(weights.of[2] == doctest::Approx(10));
    CHECK(weights.of[3] == doctest::Approx(5));
    CHECK(weights.of[4] == 0);
}

TEST_CASE("order: the time of products by their bytes and their sectors") {
    const OrderModel model;
    CHECK(gather_rate(model, 1e3) == doctest::Approx(330e9));
    CHECK(gather_rate(model, 10e6) == doctest::Approx(148e9));
    CHECK(gather_rate(model, 48e6) < 127e9);
    CHECK(gather_rate(model, 48e6) > 75e9);
    CHECK(gather_rate(model, 1e12) == doctest::Approx(47e9));
    // Measured on an H200, fp32, A and A^T each: 0.27 ms shuffled, 0.105 ms in the natural order, 35 M entries.
    const auto stencil_at = [](double run, double window) { return GatherShape{1331000, 1331000, 35'300'000, run, window}; };
    CHECK(product_seconds(model, stencil_at(1, 1), 4) == doctest::Approx(0.27e-3).epsilon(0.15));
    CHECK(product_seconds(model, stencil_at(0.4, 0.08), 4) == doctest::Approx(0.08e-3).epsilon(0.25));
    CHECK(product_seconds(model, stencil_at(0.4, 0.08), 4) == local_seconds(model, stencil_at(0.4, 0.08), 4));
    // A^T of a collocation matrix, fp64: 0.46 ms as given, near 0.19 with rows sorted.
    CHECK(product_seconds(model, {1600, 3820000, 61'000'000, 1, 1}, 8) == doctest::Approx(0.46e-3).epsilon(0.1));
    CHECK(product_seconds(model, {1600, 3820000, 61'000'000, 0.27, 0.26}, 8) == doctest::Approx(0.19e-3).epsilon(0.15));
}

TEST_CASE("order: the window kernel counts where gathers are scattered and rows are long") {
    const OrderModel model;
    const GatherShape rays{400'000, 1'000'000, 66'700'000, 0.9, 0.6};
    for (const int bytes : {8, 4}) {
        CHECK(window_product_seconds(model, rays, bytes) < 0.9 * product_seconds(model, rays, bytes));
        CHECK(window_product_seconds(model, rays, bytes) > local_seconds(model, rays, 4));
        GatherShape local = rays;
        local.run_sectors = 0.3;
        CHECK(window_product_seconds(model, local, bytes) == product_seconds(model, local, bytes));
        const GatherShape short_rows{8'000'000, 2'000'000, 64'000'000, 1, 1};
        CHECK(window_product_seconds(model, short_rows, bytes) == product_seconds(model, short_rows, bytes));
    }
}
TEST_CASE("order: distinct sectors of runs and windows") {
    const auto row = [](std::int64_t n, std::int64_t step) {
        Triplets t{1, n * step, {}, {}, {}};
        for (std::int64_t k = 0; k < n; ++k) t.add(0, k * step, 1);
        return gather_shape(*t.matrix(), 4);
    };
    CHECK(row(4096, 1).run_sectors == 0.125);
    CHECK(row(4096, 1).window_sectors == 0.125);
    CHECK(row(4096, 8).window_sectors == 1);
    CHECK(row(3, 1).run_sectors == doctest::Approx(1.0 / 3));
    // The same 32 columns, again and again: near.
    Triplets again{128, 1024, {}, {}, {}};
    for (std::int64_t i = 0; i < 128; ++i) {
        for (std::int64_t k = 0; k < 32; ++k) again.add(i, 32 * k, 1);
    }
    CHECK(gather_shape(*again.matrix(), 8).run_sectors == 1);
    CHECK(gather_shape(*again.matrix(), 8).window_sectors == 32.0 / kLocalityWindow);
    CHECK(gather_shape(*zero_matrix(3, 4), 8).run_sectors == 1);
    CHECK(gather_shape(*zero_matrix(3, 4), 8).nnz == 0);
}

TEST_CASE("order: what is worth its cost") {
    const OrderModel model;
    const PairShape spline{{3820000, 1600, 61'000'000, 0.4, 0.2}, {1600, 3820000, 61'000'000, 1, 1}};
    const double now = product_seconds(model, spline.a, 8) + product_seconds(model, spline.at, 8);
    const double local = promised_seconds(model, OrderKind::spectral, spline, 8);
    CHECK(local == local_seconds(model, spline.a, 8) + local_seconds(model, spline.at, 8));
    CHECK(promised_seconds(model, OrderKind::first, spline, 8) == product_seconds(model, spline.a, 8) + local_seconds(model, spline.at, 8));
    CHECK(order_seconds(model, OrderKind::first, spline) < order_seconds(model, OrderKind::spectral, spline));
    CHECK(is_worth_trying(model, OrderKind::first, spline, now, local, 1000));
    CHECK_FALSE(is_worth_trying(model, OrderKind::first, spline, now, local, 20));
    CHECK_FALSE(is_worth_trying(model, OrderKind::spectral, spline, now, local, 100));
    CHECK(is_worth_trying(model, OrderKind::spectral, spline, now, local, 1e5));
    // Nothing to win, whatever the number of iterations.
    CHECK_FALSE(is_worth_trying(model, OrderKind::first, spline, local, local, 1e9));
    CHECK(is_worth_keeping(1.0, 0.95, true));
    CHECK_FALSE(is_worth_keeping(1.0, 0.96, true));
    CHECK(is_worth_keeping(1.0, 0.85, false));
    CHECK_FALSE(is_worth_keeping(1.0, 0.86, false));
}

TEST_CASE("order: a shuffled mesh is worth the spectral order, and rows alone are not worth it beside that") {
    const OrderModel model;
    const GatherShape scattered{2744000, 2744000, 73'000'000, 1, 0.99};
    const PairShape mesh{scattered, scattered};
    const double given = 2 * product_seconds(model, scattered, 8);
    const double spectral = promised_seconds(model, OrderKind::spectral, mesh, 8);
    CHECK(is_worth_trying(model, OrderKind::spectral, mesh, given, spectral, 1000));
    // Measured on an H200, making and permuting: 80 and 10.6 ms.
    CHECK(order_seconds(model, OrderKind::spectral, mesh) == doctest::Approx(80e-3).epsilon(0.2));
    CHECK(order_seconds(model, OrderKind::first, mesh) == doctest::Approx(10.6e-3).epsilon(0.2));
    // Rays in random order: 43 ms, for products that then take 0.66 ms in the place of 0.85.
    const PairShape rays{{400'000, 1'000'000, 66'700'000, 0.76, 0.73}, {1'000'000, 400'000, 66'700'000, 1, 0.68}};
    const double scattered_rays = product_seconds(model, rays.a, 8) + product_seconds(model, rays.at, 8);
    CHECK(order_seconds(model, OrderKind::spectral, rays) == doctest::Approx(43e-3).epsilon(0.25));
    CHECK(is_worth_trying(model, OrderKind::spectral, rays, scattered_rays, promised_seconds(model, OrderKind::spectral, rays, 8), 1000));
    // Measuring takes as long as 60 pairs of products: an order that is made in no time must still repay that three times.
    CHECK(is_worth_trying(model, OrderKind::first, {{1000, 1000, 1000}, {1000, 1000, 1000}}, 1e-3, 0.5e-3, 1000));
    CHECK_FALSE(is_worth_trying(model, OrderKind::first, {{1000, 1000, 1000}, {1000, 1000, 1000}}, 1e-3, 0.85e-3, 1000));
    CHECK_FALSE(is_worth_trying(model, OrderKind::first, mesh, 1.2 * spectral, promised_seconds(model, OrderKind::first, mesh, 8), 1e9));
}

TEST_CASE("order: rows by first column are not taken unmeasured for a random matrix") {
    // Eight random columns a row, fp64: an eighth of the entries of A^T become neighbours. Measured, that gains nothing.
    const OrderModel model;
    const GatherShape a{8'000'000, 2'000'000, 64'000'000, 1, 1};
    const auto seconds = [&](double share) { return product_seconds(model, a, 8) + product_seconds(model, {2'000'000, 8'000'000, 64'000'000, share, share}, 8); };
    CHECK_FALSE(is_worth_keeping(seconds(1), seconds(0.875), false));
}

TEST_CASE("order: points of a random matrix shrink, those of a mesh do not") {
    CHECK(detail::lacks_structure(0.28, 8'000'000, 2'000'000, 64'000'000));
    CHECK_FALSE(detail::lacks_structure(0.9, 2'744'000, 2'744'000, 73'000'000));
    CHECK_FALSE(detail::lacks_structure(0.5, 400'000, 1'000'000, 55'000'000));
    CHECK_FALSE(detail::lacks_structure(0.9, 1'000'000, 1'000'000, 2'000'000));
    CHECK(detail::lacks_structure(0, 3, 3, 0));
}

TEST_CASE("order: the CPU's operator in an order, also after an update") {
    const Matrix a = shuffled(patches(300, 10, 3, 751), 752);
    for (const OrderKind kind : kOrders) {
        OperatorOptions options;
        options.reorder = kind;
        const auto op = make_cpu_operator<double>(a, options);
        REQUIRE(op->order() != nullptr);
        CHECK(op->plan().order.kind == kind);
        CHECK(op->plan().order.reason == "asked for");
        const auto check = [&](const CsrMatrix& as_given) {
            const auto plain = make_cpu_operator<double>(std::make_shared<const CsrMatrix>(permuted(as_given, op->order()->row, op->order()->col)));
            const Vector x = random_vector(op->cols(), 753);
            Vector y(index(op->rows())), expected(index(op->rows()));
            const Coefficient<double> one{1, 1}, zero{};
            op->apply(&one, x.data(), &zero, y.data(), *op->make_workspace(nullptr), nullptr);
            plain->apply(&one, x.data(), &zero, expected.data(), *plain->make_workspace(nullptr), nullptr);
            CHECK(y == expected);
        };
        check(*a);
        const auto order = op->order();
        const Matrix other = random_sparse(a->rows(), a->cols(), 3, 754);
        op->update(other);
        CHECK(op->order() == order);
        CHECK(op->plan().order.reason == "asked for");
        check(*other);
    }
    CHECK(make_cpu_operator<double>(a)->order() == nullptr);
    OperatorOptions wrong;
    wrong.order = std::make_shared<const MatrixOrder>(MatrixOrder{OrderKind::first, {0, 1}, {}});
    CHECK_THROWS_AS(make_cpu_operator<double>(a, wrong), InputError);
}
