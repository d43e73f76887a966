// The operator suite on a GPU, for our kernels and cuSPARSE, both storages, both precisions; and what only a GPU operator has.
#include <cuda_runtime_api.h>

#include <numeric>

#include "cuda_rig.hpp"
#include "memory/cuda_capture.hpp"
#include "memory/cuda_check.hpp"
#include "memory/device_buffer.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator/cuda/transpose.hpp"
#include "operator/stacked_operator.hpp"
#include "operator_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

OperatorOptions with(SpmvKind spmv, StorageKind storage = StorageKind::automatic) {
    OperatorOptions options;
    options.spmv = spmv;
    options.storage = storage;
    return options;
}

}  // namespace

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda operator: own products fp64") { LSMR_NEEDS_GPU(); suite_products<double>(from_csr<double>, with(SpmvKind::own)); }
TEST_CASE("cuda operator: own products fp32") { LSMR_NEEDS_GPU(); suite_products<float>(from_csr<float>, with(SpmvKind::own)); }
TEST_CASE("cuda operator: cusparse products fp64") { LSMR_NEEDS_GPU(); suite_products<double>(from_csr<double>, with(SpmvKind::cusparse)); }
TEST_CASE("cuda operator: cusparse products fp32") { LSMR_NEEDS_GPU(); suite_products<float>(from_csr<float>, with(SpmvKind::cusparse)); }
TEST_CASE("cuda operator: chosen products") {
    LSMR_NEEDS_GPU();
    suite_products<double>(from_csr<double>, {});
    suite_products<float>(from_csr<float>, {});
}
TEST_CASE("cuda operator: given as columns") {
    LSMR_NEEDS_GPU();
    suite_products<double>(from_csc<double>, with(SpmvKind::own));
    suite_products<float>(from_csc<float>, with(SpmvKind::cusparse));
}
TEST_CASE("cuda operator: single storage") {
    LSMR_NEEDS_GPU();
    suite_products<double>(from_csr<double>, with(SpmvKind::automatic, StorageKind::single));
    suite_products<float>(from_csr<float>, with(SpmvKind::cusparse, StorageKind::single));
    suite_products<double>(from_csc<double>, with(SpmvKind::automatic, StorageKind::single));
}
TEST_CASE("cuda operator: repeats are bit-identical") {
    LSMR_NEEDS_GPU();
    suite_repeats<double>(from_csr<double>, with(SpmvKind::own), 20);
    suite_repeats<float>(from_csr<float>, with(SpmvKind::own), 20);
    suite_repeats<double>(from_csr<double>, with(SpmvKind::cusparse), 20);
    suite_repeats<float>(from_csr<float>, with(SpmvKind::cusparse), 20);
}
TEST_CASE("cuda operator: adjoint identity") {
    LSMR_NEEDS_GPU();
    suite_adjoint<double>(from_csr<double>, {});
    suite_adjoint<float>(from_csr<float>, with(SpmvKind::cusparse));
}
TEST_CASE("cuda operator: exponent") {
    LSMR_NEEDS_GPU();
    suite_exponent<double>(from_csr<double>, {});
    suite_exponent<float>(from_csr<float>, {});
}

namespace {

// The transpose in small chunks, with 64-bit offsets: the path of matrices beyond 2^31 entries, on a small one; and in one (chunk 0).
template <class T, class Offset>
void check_transpose(const CsrMatrix& a, std::int64_t chunk) {
    const CudaContext& context = shared_context();
    DeviceBuffer<Offset> offsets(context, a.rows() + 1), out_offsets(context, a.cols() + 1);
    DeviceBuffer<std::int32_t> columns(context, a.nnz()), out_columns(context, a.nnz());
    DeviceBuffer<T> values(context, a.nnz()), out_values(context, a.nnz());
    to_device(offsets, 0, std::vector<Offset>(a.offsets(), a.offsets() + a.rows() + 1), context);
    to_device(columns, 0, std::vector<std::int32_t>(a.columns(), a.columns() + a.nnz()), context);
    to_device(values, 0, std::vector<T>(a.values(), a.values() + a.nnz()), context);
    const bool whole = chunk == 0;
    cuda::TransposeScratch scratch(context, whole ? 0 : a.cols(), whole ? a.nnz() : chunk);
    if (whole) {
        cuda::launch_whole_transpose(a.rows(), a.cols(), a.nnz(), offsets.data(), columns.data(), values.data(), out_offsets.data(), out_columns.data(),
                                     out_values.data(), scratch, context.stream());
    } else cuda::launch_transpose(a.rows(), a.cols(), a.offsets(), offsets.data(), columns.data(), values.data(), out_offsets.data(), out_columns.data(),
                           out_values.data(), scratch, context.stream());
    std::vector<Offset> host_offsets(static_cast<std::size_t>(a.cols() + 1));
    std::vector<std::int32_t> host_columns(static_cast<std::size_t>(a.nnz()));
    std::vector<T> host_values(static_cast<std::size_t>(a.nnz()));
    to_host(host_offsets, out_offsets, 0, context);
    to_host(host_columns, out_columns, 0, context);
    to_host(host_values, out_values, 0, context);
    const CsrMatrix expected = a.transposed();
    CHECK(std::equal(host_offsets.begin(), host_offsets.end(), expected.offsets()));
    CHECK(std::equal(host_columns.begin(), host_columns.end(), expected.columns()));
    CHECK(host_values == std::vector<T>(expected.values(), expected.values() + expected.nnz()));
}

}  // namespace

TEST_CASE("cuda operator: our transpose equals the host's for any chunk") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(2000, 0, 50, 91), 301, 91);
    for (std::int64_t chunk : {0, 50, 51, 1000, 100000}) {
        check_transpose<double, std::int64_t>(*a, chunk);
        check_transpose<float, std::int32_t>(*a, chunk);
    }
    for (std::int64_t chunk : {0, 1}) check_transpose<double, std::int64_t>(*share(CsrMatrix::from_coo(5, 7, {}, {}, {})), chunk);
    check_transpose<double, std::int32_t>(*matrix_with_rows({0, 3, 0}, 100000, 92), 0);  // columns without entries
    check_transpose<double, std::int32_t>(*matrix_with_rows({0, 5, 30000, 0, 0, 1, 0}, 70000, 94), 0);  // a row of many tiles
    check_transpose<double, std::int64_t>(*matrix_with_rows({0, 5, 30000, 0, 0, 1, 0}, 70000, 94), 30003);
    check_transpose<float, std::int32_t>(*matrix_with_rows(random_lengths(300000, 0, 6, 93), 70001, 93), 0);
}

TEST_CASE("cuda operator: stack and functions") {
    LSMR_NEEDS_GPU();
    CudaContext& context = shared_context();
    const auto a = matrix_with_rows(random_lengths(40, 0, 6, 81), 23, 81);
    const auto top = make_cuda_operator<double>(*a, context);
    const auto bottom = make_cuda_scaled_identity<double>(23, 0.25);
    DeviceBuffer<Coefficient<double>> coefficients(context, 3);
    const std::vector<Coefficient<double>> host{{1, 1}, {2, 2}, {-1, -1}};
    to_device(coefficients, 0, host, context);
    const StackedOperator<double> stack(*top, *bottom, coefficients.data());
    const auto workspace = stack.make_workspace(&context);
    const auto x = random_vector(23, 82);
    const auto y0 = random_vector(63, 84);
    DeviceBuffer<double> dx(context, 23), dy(context, 63), dz(context, 23), sums(context, stack.max_partials());
    to_device(dx, 0, x, context);
    to_device(dy, 0, y0, context);
    NormPartials norm{sums.data(), 0};
    stack.apply(coefficients.data() + 1, dx.data(), coefficients.data() + 2, dy.data(), *workspace, &norm);
    std::vector<double> y(63);
    to_host(y, dy, 0, context);
    std::vector<double> upper(40), z(23), lower(23);
    from_csr<double>(a, {})->product(false, 1.0, x, 0.0, upper);
    for (std::size_t i = 0; i < 63; ++i) CHECK(y[i] == doctest::Approx(2 * (i < 40 ? upper[i] : 0.25 * x[i - 40]) - y0[i]).epsilon(1e-13));
    LSMR_CHECK(cudaMemsetAsync(dz.data(), 0, 23 * 8, context.stream()));
    norm.count = 0;
    stack.apply_adjoint(coefficients.data(), dy.data(), coefficients.data(), dz.data(), *workspace, &norm);
    to_host(z, dz, 0, context);
    from_csr<double>(a, {})->product(true, 1.0, std::vector<double>(y.begin(), y.begin() + 40), 0.0, lower);
    for (std::size_t j = 0; j < 23; ++j) CHECK(z[j] == doctest::Approx(lower[j] + 0.25 * y[40 + j]).epsilon(1e-12));

    CHECK_THROWS_AS(make_cuda_function_operator<double>(2, 2, nullptr, nullptr), InputError);
}

TEST_CASE("cuda operator: several workspaces of one operator at once") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(3000, 0, 40, 95), 700, 95);
    CudaContext first(0), second(0);
    for (SpmvKind spmv : {SpmvKind::own, SpmvKind::cusparse}) {
        const auto op = make_cuda_operator<double>(*a, first, with(spmv));
        first.synchronize();
        const auto x = random_vector(700, 96);
        std::vector<double> y1(3000), y2(3000);
        auto run = [&](CudaContext& context, std::vector<double>& y) {
            const auto workspace = op->make_workspace(&context);
            DeviceBuffer<double> dx(context, 700), dy(context, 3000);
            DeviceBuffer<Coefficient<double>> coefficients(context, 2);
            const std::vector<Coefficient<double>> host{{1, 1}, {0, 0}};
            to_device(coefficients, 0, host, context);
            to_device(dx, 0, x, context);
            for (int i = 0; i < 20; ++i) op->apply(coefficients.data(), dx.data(), coefficients.data() + 1, dy.data(), *workspace);
            to_host(y, dy, 0, context);
        };
        run(first, y1);
        run(second, y2);
        CHECK(y1 == y2);
    }
}

TEST_SUITE_END();

TEST_CASE("cuda operator: 200 repeats of each product are bit-identical") {
    LSMR_NEEDS_GPU();
    suite_repeats<double>(from_csr<double>, {}, 200);
    suite_repeats<float>(from_csr<float>, {}, 200);
}

TEST_CASE("cuda operator: a cusparse product with vectors that are not aligned is captured once its copies exist, and not before") {
    LSMR_NEEDS_GPU();
    CudaContext& context = shared_context();
    const auto a = matrix_with_rows(random_lengths(300, 0, 9, 85), 70, 85);
    const auto op = make_cuda_operator<double>(*a, context, with(SpmvKind::cusparse));
    REQUIRE(op->capturable());
    const auto workspace = op->make_workspace(&context);
    DeviceBuffer<Coefficient<double>> coefficients(context, 2);
    to_device(coefficients, 0, {{2, 2}, {-1, -1}}, context);
    DeviceBuffer<double> dx(context, 71), dy(context, 301);
    const auto x = random_vector(70, 86);
    const auto y0 = random_vector(300, 87);
    const auto product = [&] { op->apply(coefficients.data(), dx.data() + 1, coefficients.data() + 1, dy.data() + 1, *workspace); };
    CHECK_THROWS_AS(CapturedGraph(context.stream(), product), DeviceError);
    to_device(dx, 1, x, context);
    to_device(dy, 1, y0, context);
    product();
    std::vector<double> once(300), replayed(300);
    to_host(once, dy, 1, context);
    to_device(dy, 1, y0, context);
    const CapturedGraph graph(context.stream(), product);
    cudaGraphExec_t executable = nullptr;
    LSMR_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
    LSMR_CHECK(cudaGraphLaunch(executable, context.stream()));
    to_host(replayed, dy, 1, context);
    LSMR_CHECK(cudaGraphExecDestroy(executable));
    CHECK(replayed == once);
    check_product(*a, false, 2.0, x, -1.0, y0, replayed, std::inner_product(replayed.begin(), replayed.end(), replayed.begin(), 0.0));
}

TEST_CASE("cuda operator: the plan says what was chosen and refuses what cannot be") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(3000, 0, 40, 97), 700, 97);
    CHECK(from_csr<double>(a, {})->plan().storage == StorageKind::dual);
    CHECK(from_csr<double>(a, {})->plan().deterministic);
    const auto single = from_csr<double>(a, with(SpmvKind::automatic, StorageKind::single));
    CHECK_FALSE(single->plan().deterministic);
    REQUIRE(single->plan().notes.size() == 1);
    OperatorOptions few;
    few.expected_products = 4;
    CHECK(from_csr<double>(a, few)->plan().storage == StorageKind::single);
    few.deterministic = true;
    CHECK(from_csr<double>(a, few)->plan().storage == StorageKind::dual);
    OperatorOptions refused = with(SpmvKind::automatic, StorageKind::single);
    refused.deterministic = true;
    CHECK_THROWS_WITH_AS(from_csr<double>(a, refused),
                         "storage single is refused: the product with A^T of single storage adds in an order that varies, and a deterministic solve was asked for",
                         InputError);
    CHECK_THROWS_AS(from_csr<double>(a, with(SpmvKind::own, StorageKind::single)), InputError);
    CHECK(cuda_operator_bytes<float>(4936800, 1000000, 19747202, StorageKind::dual) < std::int64_t{340} << 20);
}

TEST_CASE("cuda operator: the limit of memory decides the storage") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(std::vector<std::int64_t>(200000, 20), 50000, 98);
    const std::int64_t dual = cuda_operator_bytes<double>(200000, 50000, a->nnz(), StorageKind::dual);
    CudaContext context(0, dual - (1 << 20));
    const auto op = make_cuda_operator<double>(*a, context);
    CHECK(op->plan().storage == StorageKind::single);
    CHECK(op->plan().storage_reason.find("both orientations need") != std::string::npos);
    CudaContext tiny(0, 1 << 20);
    CHECK_THROWS_AS(make_cuda_operator<double>(*a, tiny), OutOfMemory);
    CHECK(tiny.pool().live_bytes() == 0);
}
