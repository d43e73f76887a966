// Orders on the device: the same orders as on the host where keys are whole numbers, the same matrix in them, and the choice.
#include <doctest/doctest.h>

#include "cuda_rig.hpp"
#include "data/generators.hpp"
#include "operator/cuda/order.hpp"
#include "operator/profile.hpp"
#include "order_cases.hpp"
#include "order_suite.hpp"
#include "support/devices.hpp"

using namespace lsmr;
using namespace lsmr::test;
using lsmr::test::products::CudaRig;
using lsmr::test::products::shared_context;

namespace {

OperatorOptions in_order(OrderKind kind) {
    OperatorOptions options;
    options.reorder = kind;
    options.deterministic = true;
    return options;
}

// Products of whole numbers in fp64, so that no order of additions shows: those of the device's operator are those of the host's permuted matrix.
template <class T>
void check_products(const CsrMatrix& a, std::unique_ptr<MatrixOperator<T>> op) {
    const std::shared_ptr<const MatrixOrder> order = op->order();
    REQUIRE(order != nullptr);
    REQUIRE((order->row.empty() || is_permutation_of(order->row, a.rows())));
    REQUIRE((order->col.empty() || is_permutation_of(order->col, a.cols())));
    const CsrMatrix expected = permuted(a, order->row, order->col);
    CudaRig<T> rig(std::move(op));
    for (const bool adjoint : {false, true}) {
        std::vector<T> x(index(adjoint ? a.rows() : a.cols())), y(index(adjoint ? a.cols() : a.rows())), sums(y.size(), 0);
        for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<T>(k % 11) - 5;
        for (std::int64_t i = 0; i < a.rows(); ++i) {
            for (std::int64_t k = expected.offsets()[i]; k < expected.offsets()[i + 1]; ++k) {
                const std::size_t row = index(i), col = index(expected.columns()[k]);
                const T value = static_cast<T>(expected.values()[k]);
                if (adjoint) sums[col] += value * x[row];
                else sums[row] += value * x[col];
            }
        }
        rig.product(adjoint, 1, x, 0, y, false);
        CHECK(y == sums);
    }
}

Matrix whole_numbers(const Matrix& a) {
    return with_values(*a, [](std::int64_t i, std::int64_t j, double) { return static_cast<double>((3 * i + 5 * j) % 13) - 6; });
}

std::vector<Matrix> test_matrices() {
    std::vector<Matrix> all = odd_matrices();
    all.push_back(shuffled(stencil(9), 761));
    all.push_back(patches(3000, 12, 3, 762));
    all.push_back(shuffled(stencil(18), 768));         // more columns than the coarsest graph has
    all.push_back(random_sparse(6000, 9000, 2, 769));  // the same, many of them empty
    all.push_back(zero_matrix(0, 9000));
    all.push_back(zero_matrix(9000, 9000));
    Triplets t{3000, 2000, {}, {}, {}};  // rows and columns of more than 512 entries among short ones
    Random random(763);
    for (std::int64_t i = 0; i < t.rows; ++i) {
        for (std::int64_t k = 0; k < (i % 500 == 7 ? 900 : 3); ++k) t.add(i, random.below(2000), 1);
        t.add(i, 17, 1);
    }
    all.push_back(t.matrix());
    Triplets wide{5, 4000, {}, {}, {}};  // long rows only
    for (std::int64_t i = 0; i < wide.rows; ++i) {
        for (std::int64_t j = i; j < 4000; j += 2) wide.add(i, j, 1);
    }
    all.push_back(wide.matrix());
    return all;
}

}  // namespace

TEST_CASE("cuda order: the matrix in every order, from rows and from columns") {
    LSMR_NEEDS_GPU();
    for (const Matrix& given : test_matrices()) {
        const Matrix a = whole_numbers(given);
        for (const OrderKind kind : kOrders) {
            CAPTURE(name(kind));
            CAPTURE(a->rows());
            CAPTURE(a->cols());
            check_products(*a, make_cuda_operator<double>(*a, shared_context(), in_order(kind)));
            check_products(*a, make_cuda_operator<float>(*a, shared_context(), in_order(kind)));
            check_products(*a, make_cuda_operator_from_csc<double>(a->transposed(), shared_context(), in_order(kind)));
            OperatorOptions single = in_order(kind);
            single.deterministic = false;
            single.storage = StorageKind::single;
            check_products(*a, make_cuda_operator<double>(*a, shared_context(), single));
        }
    }
}

TEST_CASE("cuda order: row orders are those of the host, the spectral one repeats") {
    LSMR_NEEDS_GPU();
    for (const Matrix& a : test_matrices()) {
        for (const OrderKind kind : kOrders) {
            CAPTURE(name(kind));
            const auto one = make_cuda_operator<double>(*a, shared_context(), in_order(kind));
            const auto two = make_cuda_operator<double>(*a, shared_context(), in_order(kind));
            CHECK(one->order()->row == two->order()->row);
            CHECK(one->order()->col == two->order()->col);
            if (kind == OrderKind::spectral) continue;
            const MatrixOrder host = make_order(kind, *a, a->transposed());
            CHECK(one->order()->row == host.row);
            CHECK(one->order()->col == host.col);
        }
    }
}

TEST_CASE("cuda order: distinct sectors as the host counts them") {
    LSMR_NEEDS_GPU();
    const CudaContext& context = shared_context();
    std::vector<Matrix> all = test_matrices();
    all.push_back(random_sparse(90'000, 70'000, 40, 765));  // more windows than are sampled
    for (const Matrix& a : all) {
        DeviceBuffer<std::int32_t> columns(context, a->nnz());
        if (a->nnz() > 0) {
            LSMR_CHECK(cudaMemcpyAsync(columns.data(), a->columns(), static_cast<std::size_t>(columns.bytes()), cudaMemcpyHostToDevice, context.stream()));
        }
        for (const int bytes : {4, 8}) {
            const GatherShape host = gather_shape(*a, bytes);
            const GatherShape device = cuda::gather_shape(a->rows(), a->cols(), a->nnz(), columns.data(), bytes, context);
            CHECK(device.run_sectors == host.run_sectors);
            CHECK(device.window_sectors == host.window_sectors);
        }
    }
}

TEST_CASE("cuda order: the spectral one undoes a shuffle, and keeps symmetry") {
    LSMR_NEEDS_GPU();
    const auto far_sectors = [](const CsrMatrix& a) { return gather_shape(a, 8).window_sectors + gather_shape(a.transposed(), 8).window_sectors; };
    const auto in_spectral_order = [](const CsrMatrix& a) {
        const auto op = make_cuda_operator<float>(a, shared_context(), in_order(OrderKind::spectral));
        return permuted(a, op->order()->row, op->order()->col);
    };
    const Matrix natural = stencil(44);
    CHECK(far_sectors(in_spectral_order(*shuffled(natural, 771))) < 0.98 * far_sectors(*natural));
    const CsrMatrix rays = generate("tomography", {{"nx", 32}, {"ny", 32}, {"nz", 32}, {"rays", 15000}}).a;
    const CsrMatrix found = in_spectral_order(rays);
    CHECK(far_sectors(found) < 0.53 * far_sectors(rays));
    CHECK(gather_shape(found, 8).run_sectors < 1.03 * gather_shape(rays, 8).run_sectors);
    const auto lines = shuffled_lines(8000, 772);
    const auto symmetric = make_cuda_operator<float>(permuted(*stencil(20), lines, lines), shared_context(), in_order(OrderKind::spectral));
    CHECK(symmetric->order()->row == symmetric->order()->col);
}

TEST_CASE("cuda order: the choice takes what pays, and nothing else") {
    LSMR_NEEDS_GPU();
    const Matrix natural = stencil(60);
    const Matrix mesh = shuffled(natural, 781);
    const Matrix spline = patches(400'000, 40, 4, 782);
    const Matrix uniform = random_sparse(600'000, 500'000, 8, 783);
    OperatorOptions options = in_order(OrderKind::automatic);
    const auto decide = [&](const Matrix& a) {
        const OrderDecision decision = make_cuda_operator<float>(*a, shared_context(), options)->plan().order;
        MESSAGE(name(decision.kind) << ": " << decision.reason << ", " << 1e3 * decision.setup_seconds << " ms");
        return decision;
    };
    // By prediction, and verified by timing.
    for (const bool deterministic : {true, false}) {
        CAPTURE(deterministic);
        options.deterministic = deterministic;
        options.expected_iterations = 1'000'000;
        const OrderDecision taken = decide(mesh);
        CHECK(taken.kind == OrderKind::spectral);
        CHECK(taken.predicted_seconds < 0.6 * taken.given_seconds);
        CHECK(taken.break_even > 0);
        CHECK(taken.setup_seconds > 0);
        CHECK(taken.candidates.front().kind == OrderKind::spectral);
        CHECK((taken.given_measured_seconds > 0) == !deterministic);
        CHECK((taken.candidates.front().measured_seconds > 0) == !deterministic);
        if (!deterministic) {
            CHECK(taken.measured_seconds == taken.candidates.front().measured_seconds);
            CHECK(taken.measured_seconds < 0.9 * taken.given_measured_seconds);
        }
        CHECK(decide(natural).kind == OrderKind::none);
        // Predicted; 50 us of products in L2 need not gain by the clock.
        options.storage = StorageKind::dual;
        const OrderDecision of_spline = decide(spline);
        options.storage = StorageKind::automatic;
        if (deterministic) CHECK(of_spline.kind != OrderKind::none);
        // A random matrix has no order that helps; the spectral one is given up early, and no other is made.
        const OrderDecision random = decide(uniform);
        CHECK(random.kind == OrderKind::none);
        REQUIRE(random.candidates.size() == 1);
        CHECK(random.candidates.front().predicted_seconds == 0);
        // Ten iterations repay nothing.
        options.expected_iterations = 10;
        CHECK(decide(mesh).kind == OrderKind::none);
    }
    options.expected_iterations = 1'000'000;
    options.storage = StorageKind::single;
    CHECK(decide(mesh).reason == "an order is made from both orientations, and the storage is single");
}

TEST_CASE("cuda order: kernels are those that the order was measured with") {
    LSMR_NEEDS_GPU();
    OperatorOptions options = in_order(OrderKind::automatic);
    options.deterministic = false;
    options.expected_iterations = 1'000'000;
    const auto op = make_cuda_operator<double>(*shuffled(stencil(60), 784), shared_context(), options);
    REQUIRE(op->plan().order.kind == OrderKind::spectral);
    CHECK(op->plan().forward_decision.candidates.size() > 1);
    CHECK(op->plan().forward_decision.candidates.front().seconds > 0);
}

TEST_CASE("cuda order: an update keeps the order") {
    LSMR_NEEDS_GPU();
    const Matrix a = whole_numbers(patches(3000, 12, 3, 791));
    for (const OrderKind kind : kOrders) {
        auto op = make_cuda_operator<double>(*a, shared_context(), in_order(kind));
        const auto order = op->order();
        const Matrix other = whole_numbers(random_sparse(a->rows(), a->cols(), 4, 792));
        op->update(other);
        CHECK(op->order() == order);
        CHECK(op->plan().order.kind == kind);
        check_products(*other, std::move(op));
    }
    // Where none was taken, none is taken later.
    auto op = make_cuda_operator<double>(*a, shared_context(), in_order(OrderKind::automatic));
    op->update(a);
    CHECK(op->order() == nullptr);
}

TEST_CASE("cuda order: solves against dense answers") { LSMR_NEEDS_GPU(); suite_orders(gpu()); }
TEST_CASE("cuda order: solves beside those without an order") { LSMR_NEEDS_GPU(); suite_orders_beside_none(gpu()); }
TEST_CASE("cuda order: states go on in their own order") { LSMR_NEEDS_GPU(); suite_order_of_checkpoints(gpu()); }
