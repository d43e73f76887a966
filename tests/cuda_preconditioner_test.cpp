// Preconditioners that are factors, on a GPU: sketches and incomplete factors, under the suites and beside the CPU.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <Eigen/Dense>
#include <cmath>
#include <cstring>
#include <limits>

#include "cuda_rig.hpp"
#include "memory/cuda_capture.hpp"
#include "operator/cuda/csr_product.hpp"
#include "order_suite.hpp"
#include "preconditioner_suite.hpp"
#include "solver/cuda/cuda_inverse.hpp"
#include "solver/cuda/cuda_sketch.hpp"
#include "solver/cuda/preconditioner_kernels.hpp"
#include "solver/sparse_sign.hpp"
#include "support/devices.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

// y <- a K x + b y, or with K^T, from and to host memory; also by a captured graph, to the same bits, and without an allocation.
template <class T>
std::vector<T> product(const LinearOperator<T>& k, Workspace& workspace, bool adjoint, double a, const std::vector<T>& x, double b, const std::vector<T>& y0,
                       std::size_t shift) {
    const CudaContext& context = products::shared_context();
    const auto n = static_cast<std::int64_t>(x.size());
    DeviceBuffer<T> dx(context, n + 4), dy(context, n + 4);
    DeviceBuffer<Coefficient<T>> coefficients(context, 2);
    DeviceBuffer<double> sums(context, k.max_partials());
    const std::vector<Coefficient<T>> host{{a, static_cast<T>(a)}, {b, static_cast<T>(b)}};
    products::to_device(coefficients, 0, host, context);
    products::to_device(dx, shift, x, context);
    NormPartials norm;
    const auto run = [&] {
        norm = {sums.data(), 0};
        if (adjoint) k.apply_adjoint(coefficients.data(), dx.data() + shift, coefficients.data() + 1, dy.data() + shift, workspace, &norm);
        else k.apply(coefficients.data(), dx.data() + shift, coefficients.data() + 1, dy.data() + shift, workspace, &norm);
    };
    std::vector<T> y(x.size()), captured(x.size());
    products::to_device(dy, shift, y0, context);
    run();
    products::to_host(y, dy, shift, context);
    std::vector<double> host_sums(static_cast<std::size_t>(norm.count));
    products::to_host(host_sums, sums, 0, context);
    double squares = 0;
    for (const T value : y) squares += static_cast<double>(value) * static_cast<double>(value);
    CHECK(norm.count <= k.max_partials());
    CHECK(std::abs(std::accumulate(host_sums.begin(), host_sums.end(), 0.0) - squares) <= 1e-12 * squares);
    const std::int64_t allocations = cuda_counters().allocations;
    const CapturedGraph graph(context.stream(), run);
    cudaGraphExec_t executable = nullptr;
    LSMR_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
    for (int repeat = 0; repeat < 3; ++repeat) {
        products::to_device(dy, shift, y0, context);
        LSMR_CHECK(cudaGraphLaunch(executable, context.stream()));
        products::to_host(captured, dy, shift, context);
        CHECK(std::memcmp(captured.data(), y.data(), y.size() * sizeof(T)) == 0);
    }
    LSMR_CHECK(cudaGraphExecDestroy(executable));
    CHECK(cuda_counters().allocations == allocations);
    return y;
}

// The columns of K, from products with unit vectors; and that K^T is its transpose, also for other coefficients and vectors that lie askew.
template <class T>
DenseMatrix dense_inverse_of(const LinearOperator<T>& k, double tolerance) {
    const auto n = static_cast<std::size_t>(k.cols());
    const auto workspace = k.make_workspace(&products::shared_context());
    const std::vector<T> unread(n, std::numeric_limits<T>::quiet_NaN());
    const auto size = static_cast<Eigen::Index>(n);
    DenseMatrix plain(size, size), transposed(size, size);
    for (std::size_t j = 0; j < n; ++j) {
        std::vector<T> e(n, T(0));
        e[j] = T(1);
        const std::vector<T> kj = product(k, *workspace, false, 1.0, e, 0.0, unread, j % 2), tj = product(k, *workspace, true, 1.0, e, 0.0, unread, j % 2);
        for (std::size_t i = 0; i < n; ++i) {
            plain(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) = kj[i];
            transposed(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) = tj[i];
        }
    }
    const auto largest = static_cast<double>(plain.cwiseAbs().maxCoeff());
    CHECK(static_cast<double>((plain.transpose() - transposed).cwiseAbs().maxCoeff()) <= tolerance * largest);
    const Vector x = random_vector(k.cols(), 71), y0 = random_vector(k.cols(), 72);
    const std::vector<T> narrow_x(x.begin(), x.end()), narrow_y(y0.begin(), y0.end());
    for (const bool adjoint : {false, true}) {
        const std::vector<T> y = product(k, *workspace, adjoint, -0.75, narrow_x, 0.5, narrow_y, 1);
        for (std::size_t i = 0; i < n; ++i) {
            long double expected = 0.5L * narrow_y[i];
            for (std::size_t j = 0; j < n; ++j) {
                const auto row = static_cast<Eigen::Index>(adjoint ? j : i), col = static_cast<Eigen::Index>(adjoint ? i : j);
                expected += -0.75L * plain(row, col) * narrow_x[j];
            }
            CHECK(std::abs(static_cast<double>(expected - y[i])) <= tolerance * static_cast<double>(n) * largest);
        }
    }
    return plain;
}

}  // namespace

TEST_CASE("cuda preconditioner: sketch") { LSMR_NEEDS_GPU(); suite_sketch(gpu()); }
TEST_CASE("cuda preconditioner: incomplete Cholesky") { LSMR_NEEDS_GPU(); suite_incomplete_cholesky(gpu()); }
TEST_CASE("cuda order: solves under a sketch and an incomplete factor") { LSMR_NEEDS_GPU(); suite_preconditioned_orders(gpu()); }

TEST_CASE("cuda preconditioner: a sketch has the bits of the host's") {
    LSMR_NEEDS_GPU();
    CudaContext& context = products::shared_context();
    const auto check = [&](const SketchPlan& plan) {
        const std::vector<double> expected = sketched_matrix(plan);
        const DeviceBuffer<double> sa = cuda_sketched_matrix(plan, context);
        std::vector<double> found(expected.size());
        products::to_host(found, sa, 0, context);
        CHECK(same_bits(found, expected));
    };
    constexpr std::int64_t kLimit = std::int64_t{1} << 30;
    // Empty rows and columns, rows below, damping, scaled columns, entries far from 1.
    Triplets t = triplets(*random_sparse(300, 40, 3, 1701));
    t.rows = 340;
    t.cols = 50;
    const Matrix a = t.matrix();
    check(plan_sketch(a, nullptr, {}, 0, 1, kLimit));
    check(plan_sketch(a, random_sparse(20, 50, 4, 1702), {}, 0.3, 2, kLimit));
    check(plan_sketch(std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(-700)), second_differences(50), Vector(50, 4.0), 1e-3, 3, kLimit));
    check(plan_sketch(zero_matrix(7, 5), nullptr, {}, 0, 1, kLimit));
    check(plan_sketch(zero_matrix(0, 5), nullptr, {}, 0, 1, kLimit));
    check(plan_sketch(zero_matrix(5, 0), nullptr, {}, 0, 1, kLimit));
    // More rows than pass through at a time; rows of more columns than are summed at a time, and more entries.
    check(plan_sketch(random_sparse(300000, 20, 4, 1703), nullptr, {}, 0, 4, kLimit));
    SketchPlan wide = plan_sketch(random_sparse(900, 9000, 6000, 1704), random_sparse(30, 9000, 2, 1705), {}, 0.5, 5, std::int64_t{1} << 40);
    wide.rows = 24;
    check(wide);
}

TEST_CASE("cuda preconditioner: solves with the factors of a sketch") {
    LSMR_NEEDS_GPU();
    CudaContext& context = products::shared_context();
    const Matrix a = random_sparse(120, 33, 4, 1711);
    const auto plan = std::make_shared<const SketchPlan>(plan_sketch(a, nullptr, {}, 0.2, 7, std::int64_t{1} << 30));
    CudaSketch sketch(plan, context);
    // (S A)^T S A = R^T R.
    const std::vector<double> values = sketched_matrix(*plan);
    const DenseMatrix sa = Eigen::Map<const Eigen::MatrixXd>(values.data(), plan->rows, plan->cols).cast<long double>();
    std::vector<std::int32_t> order(33);
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<std::int32_t>((j * 10 + 4) % 33);
    const auto check = [&](auto type, double tolerance) {
        using T = decltype(type);
        const DenseMatrix k = dense_inverse_of<T>(*sketch.inverse<T>({}), tolerance);
        const DenseMatrix q = sa * k;
        CHECK(static_cast<double>((q.transpose() * q - DenseMatrix::Identity(33, 33)).cwiseAbs().maxCoeff()) <= 100 * tolerance);
        const DenseMatrix permuted = dense_inverse_of<T>(*sketch.inverse<T>(order), tolerance);
        for (Eigen::Index i = 0; i < 33; ++i) CHECK(permuted.row(i) == k.row(order[static_cast<std::size_t>(i)]));
    };
    check(double{}, 1e-13);
    check(float{}, 1e-5);
    // Its own solution, beside that of the host; a right side that ends before the damping is zero there.
    const Sketch host(plan);
    const Vector r = random_vector(120, 1712);
    const Vector d = sketch.solve(r), expected = host.solve(r);
    CHECK(distance(d, expected) <= 1e-12 * norm(expected));
    CHECK(same_bits(sketch.solve(r), d));
}

TEST_SUITE_BEGIN("sanitizer");

// Without the sort that stands between them.
TEST_CASE("cuda preconditioner: kernels of a sketch") {
    LSMR_NEEDS_GPU();
    CudaContext& context = products::shared_context();
    const Matrix a = random_sparse(70, 150, 40, 1751);
    SketchPlan plan = plan_sketch(a, nullptr, {}, 0, 11, std::int64_t{1} << 30);
    plan.rows = 24;
    plan.exponent = 0;
    std::vector<std::int64_t> rows, cols;
    std::vector<std::int32_t> targets;
    Vector signs;
    for (std::int64_t i = 0; i < a->rows(); ++i) {
        for (int k = 0; k < kSigns; ++k) {
            const SparseSign sign = sparse_sign(plan.seed, i, k, plan.rows);
            CHECK(sign.row / 3 == k);
            targets.push_back(static_cast<std::int32_t>(sign.row));
            rows.push_back(sign.row);
            cols.push_back(i);
            signs.push_back(sign.value);
        }
    }
    const auto count = static_cast<std::int64_t>(signs.size());
    DeviceBuffer<std::int32_t> st_offsets(context, 71), st_columns(context, count);
    DeviceBuffer<double> st_values(context, count);
    cuda::launch_signs(plan.seed, 0, 70, plan.rows, st_offsets.data(), st_columns.data(), st_values.data(), context.stream());
    std::vector<std::int32_t> offsets(71), found_targets(targets.size());
    Vector found_signs(signs.size());
    products::to_host(offsets, st_offsets, 0, context);
    products::to_host(found_targets, st_columns, 0, context);
    products::to_host(found_signs, st_values, 0, context);
    for (std::size_t i = 0; i < offsets.size(); ++i) CHECK(offsets[i] == static_cast<std::int32_t>(i) * kSigns);
    CHECK(found_targets == targets);
    CHECK(same_bits(found_signs, signs));

    const auto uploaded = [&](const CsrMatrix& m) {
        cuda::DeviceCsr<double> d(context, m.rows(), m.cols(), m.nnz());
        products::to_device(*d.offsets32, 0, std::vector<std::int32_t>(m.offsets(), m.offsets() + m.rows() + 1), context);
        products::to_device(*d.columns, 0, std::vector<std::int32_t>(m.columns(), m.columns() + m.nnz()), context);
        products::to_device(*d.values, 0, std::vector<double>(m.values(), m.values() + m.nnz()), context);
        context.synchronize();
        return d;
    };
    const cuda::DeviceCsr<double> s = uploaded(CsrMatrix::from_coo(plan.rows, a->rows(), rows, cols, signs)), da = uploaded(*a);
    DeviceBuffer<double> sa(context, plan.rows * plan.cols);
    LSMR_CHECK(cudaMemsetAsync(sa.data(), 0, static_cast<std::size_t>(sa.bytes()), context.stream()));
    cuda::launch_sketch(plan.rows, plan.cols, s.offsets32->data(), s.columns->data(), s.values->data(), da.offsets32->data(), da.columns->data(),
                        da.values->data(), sa.data(), context.stream());
    Vector found(static_cast<std::size_t>(sa.size()));
    products::to_host(found, sa, 0, context);
    CHECK(same_bits(found, sketched_matrix(plan)));
    DeviceBuffer<float> upper(context, 9);
    cuda::launch_upper_triangle(3, sa.data(), plan.rows, upper.data(), context.stream());
    std::vector<float> r(9);
    products::to_host(r, upper, 0, context);
    for (std::size_t t = 0; t < 9; ++t) CHECK(r[t] == (t % 3 <= t / 3 ? static_cast<float>(found[t % 3 + t / 3 * 24]) : 0.0F));
}

TEST_SUITE_END();

// Not in the suite for the sanitizers: the blocks of cuSPARSE's solve wait for each other, which does not end in time under racecheck.
TEST_CASE("cuda preconditioner: triangular solves with an incomplete factor") {
    LSMR_NEEDS_GPU();
    CudaContext& context = products::shared_context();
    const Matrix a = random_sparse(90, 33, 3, 1721);
    std::vector<std::int32_t> order(33);
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<std::int32_t>((j * 10 + 4) % 33);
    for (const double drop : {-1.0, 0.1}) {
        const IncompleteCholesky factor(*a, nullptr, {}, 0.3, {.drop = drop, .shift = 0, .limit_bytes = 1 << 20});
        for (const std::vector<std::int32_t>& columns : {std::vector<std::int32_t>(), order}) {
            const auto host = factor.inverse<double>(columns);
            const auto workspace = host->make_workspace(nullptr);
            DenseMatrix expected(33, 33);
            Coefficient<double> one{1, 1}, zero{0, 0};
            for (Eigen::Index j = 0; j < 33; ++j) {
                Vector e(33, 0.0), y(33);
                e[static_cast<std::size_t>(j)] = 1;
                host->apply(&one, e.data(), &zero, y.data(), *workspace, nullptr);
                expected.col(j) = dense(y);
            }
            const auto largest = static_cast<double>(expected.cwiseAbs().maxCoeff());
            const DenseMatrix k = dense_inverse_of<double>(*make_cuda_inverse<double>(factor, columns, context), 1e-13);
            CHECK(static_cast<double>((k - expected).cwiseAbs().maxCoeff()) <= 1e-13 * largest);
            const DenseMatrix narrow = dense_inverse_of<float>(*make_cuda_inverse<float>(factor, columns, context), 1e-5);
            CHECK(static_cast<double>((narrow - expected).cwiseAbs().maxCoeff()) <= 1e-5 * largest);
        }
    }
}

// A deep factor of many entries, and iterations enough that they are replayed as a graph.
TEST_CASE("cuda preconditioner: long solves run in graphs") {
    LSMR_NEEDS_GPU();
    const Matrix a = laplacian(60, 1e-4);  // 3,600 unknowns
    const Vector b = random_vector(a->rows(), 1731);
    SolveOptions options = with_method(Method::lsmr, 1e-10);
    options.conlim = 0;
    options.max_iterations = 20000;
    PrepareOptions prepare = gpu();
    prepare.preconditioner = Preconditioner::cholesky;
    PreparedProblem problem(a, prepare);
    CHECK(problem.info().device == DeviceKind::cuda);
    CHECK(problem.info().executor_words == "kernels in a graph: there is a preconditioner");
    const Answer answer = solve(problem, b, options);
    CHECK(answer.result.converged());
    CHECK(answer.result.iterations > 50);
    check_norms(answer.result, truth(*a, b, answer.x));
    CHECK(same_bits(solve(problem, b, options).x, answer.x));
    prepare.device = DeviceKind::cpu;
    const Answer here = solve(prepare, a, b, options);
    CHECK(std::abs(here.result.iterations - answer.result.iterations) <= 2 + here.result.iterations / 20);
    prepare.executor = ExecutorKind::persistent;
    prepare.device = DeviceKind::cuda;
    CHECK_THROWS_WITH_AS(PreparedProblem(a, prepare), "the persistent executor is refused: there is a preconditioner", InputError);
}

// What does not fit the device: said with its size, and run on the CPU where that is allowed.
TEST_CASE("cuda preconditioner: a sketch that does not fit") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(20000, 400, 4, 1741);
    PrepareOptions prepare = gpu();
    prepare.preconditioner = Preconditioner::sketch;
    prepare.gpu_memory_limit_bytes = std::int64_t{8} << 20;
    CHECK_THROWS_WITH_AS(PreparedProblem(a, prepare), doctest::Contains("the sketch of A, 1600 x 400, and its QR need that much"), OutOfMemory);
    prepare.device = DeviceKind::automatic;
    PreparedProblem problem(a, prepare);
    CHECK(problem.info().device == DeviceKind::cpu);
    REQUIRE(!problem.info().notes.empty());
    CHECK(problem.info().notes.back().find("running on the CPU instead") != std::string::npos);
    const Vector b = random_vector(20000, 1742);
    CHECK(solve(problem, b, with_method(Method::lsmr, 1e-10)).result.iterations <= 60);
    // Other weights make another sketch of the same problem.
    prepare.device = DeviceKind::cuda;
    prepare.gpu_memory_limit_bytes = 0;
    PreparedProblem reweighted(a, prepare);
    Vector w = random_vector(20000, 1743);
    for (double& value : w) value = 0.5 + std::abs(value);
    reweighted.reweight(w);
    PrepareOptions weighted = prepare;
    weighted.weights = w;
    const SolveOptions options = with_method(Method::lsmr, 1e-10);
    const Answer answer = solve(reweighted, b, options);
    CHECK(answer.result.converged());
    CHECK(same_bits(answer.x, solve(weighted, a, b, options).x));
}
