// One pass over A for both products: against plain loops, against the two products, at every run the same bits, and when it is taken.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "checkpoint_suite.hpp"
#include "cuda_rig.hpp"
#include "operator/cuda/device_csr.hpp"
#include "operator/cuda/one_pass_kernels.hpp"
#include "operator/cuda/one_pass_product.hpp"
#include "preconditioner_suite.hpp"
#include "solver_suite.hpp"
#include "stop_suite.hpp"
#include "transform_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

OperatorOptions once(NarrowKind narrow = NarrowKind::lossless) {
    OperatorOptions options;
    options.storage = StorageKind::one_pass;
    options.narrow = narrow;
    return options;
}

// y <- a A x + b y, then x2 <- c (A^T y) + d x2, in one pass.
template <class T>
struct Pair {
    std::vector<T> y;
    std::vector<T> x2;
    double y_squares = 0;
    double x2_squares = 0;
};
template <class T>
Pair<T> run_pair(const MatrixOperator<T>& op, double a, const std::vector<T>& x, double b, std::vector<T> y, double c, double d, std::vector<T> x2) {
    const CudaContext& context = shared_context();
    REQUIRE(op.one_pass() != nullptr);
    const auto workspace = op.make_workspace(&shared_context());
    DeviceBuffer<T> dx(context, static_cast<std::int64_t>(x.size()) + 1), dy(context, static_cast<std::int64_t>(y.size()) + 1);
    DeviceBuffer<T> dx2(context, static_cast<std::int64_t>(x2.size()) + 1);
    DeviceBuffer<Coefficient<T>> coefficients(context, 4);
    DeviceBuffer<double> row_sums(context, op.max_partials()), col_sums(context, op.max_partials());
    std::vector<Coefficient<T>> host;
    for (const double value : {a, b, c, d}) host.push_back({value, static_cast<T>(value)});
    to_device(coefficients, 0, host, context);
    to_device(dx, 0, x, context);
    to_device(dy, 0, y, context);
    to_device(dx2, 0, x2, context);
    NormPartials rows{row_sums.data(), 0}, cols{col_sums.data(), 0};
    op.one_pass()->apply_both(coefficients.data(), dx.data(), coefficients.data() + 1, dy.data(), *workspace, &rows);
    op.one_pass()->apply_kept_adjoint(coefficients.data() + 2, coefficients.data() + 3, dx2.data(), *workspace, &cols);
    Pair<T> pair{std::move(y), std::move(x2), 0, 0};
    std::vector<double> host_rows(static_cast<std::size_t>(rows.count)), host_cols(static_cast<std::size_t>(cols.count));
    to_host(host_rows, row_sums, 0, context);
    to_host(host_cols, col_sums, 0, context);
    to_host(pair.y, dy, 0, context);
    to_host(pair.x2, dx2, 0, context);
    pair.y_squares = std::accumulate(host_rows.begin(), host_rows.end(), 0.0);
    pair.x2_squares = std::accumulate(host_cols.begin(), host_cols.end(), 0.0);
    return pair;
}

template <class T>
void check_pair(const CsrMatrix& a, const OperatorOptions& options) {
    const auto op = make_cuda_operator<T>(a, shared_context(), options);
    CHECK(op->plan().storage == StorageKind::one_pass);
    const auto x = narrow<T>(products::random_vector(a.cols(), 71));
    const auto y0 = narrow<T>(products::random_vector(a.rows(), 72));
    const auto z0 = narrow<T>(products::random_vector(a.cols(), 73));
    for (const double b : {-0.5, 0.0}) {
        // Where b is 0, y and x2 are not read.
        const std::vector<T> nothing_y(y0.size(), std::numeric_limits<T>::quiet_NaN()), nothing_z(z0.size(), std::numeric_limits<T>::quiet_NaN());
        const auto& y = b == 0 ? nothing_y : y0;
        const auto& z = b == 0 ? nothing_z : z0;
        const Pair<T> pair = run_pair<T>(*op, 0.75, x, b, y, 1.5, b, z);
        check_product(a, false, 0.75, x, b, y, pair.y, pair.y_squares);
        // The second product is that of the y which the first one left.
        check_product(a, true, 1.5, pair.y, b, z, pair.x2, pair.x2_squares);
    }
}

// Tall shapes that make each part of the kernel work.
std::vector<ShapeCase> tall_cases() {
    std::vector<ShapeCase> cases;
    for (ShapeCase& shape : shape_cases()) {
        std::int64_t longest = 0;
        for (std::int64_t i = 0; i < shape.a->rows(); ++i) longest = std::max(longest, shape.a->offsets()[i + 1] - shape.a->offsets()[i]);
        if (shape.a->cols() <= 1000 && longest <= cuda::kOnePassLongestRow) cases.push_back(std::move(shape));
    }
    REQUIRE(cases.size() > 15);
    const auto add = [&](const std::string& name, std::shared_ptr<const CsrMatrix> a) { cases.push_back({name, std::move(a)}); };
    add("teams of two, few columns", matrix_with_rows(random_lengths(70000, 0, 9, 21), 300, 21));
    add("several turns of each warp", matrix_with_rows(random_lengths(300000, 1, 3, 22), 50, 22));
    add("teams of two", matrix_with_rows(random_lengths(70000, 10, 20, 23), 1600, 23));
    add("teams of four", matrix_with_rows(random_lengths(70000, 1, 20, 24), 4700, 24));
    add("teams of three", matrix_with_rows(random_lengths(70000, 1, 20, 29), 3000, 29));
    add("nearly the most columns for fp64", matrix_with_rows(random_lengths(20000, 5, 6, 25), 8000, 25));
    add("rows beyond the registers", matrix_with_rows(random_lengths(3000, 30, 200, 26), 1000, 26));
    add("every row the same columns", [] {
        std::vector<std::int64_t> rows, columns;
        for (std::int64_t i = 0; i < 5000; ++i) {
            for (std::int64_t k = 0; k < 7; ++k) {
                rows.push_back(i);
                columns.push_back(3 * k);
            }
        }
        return share(CsrMatrix::from_coo(5000, 40, rows, columns, products::random_vector(static_cast<std::int64_t>(rows.size()), 27)));
    }());
    add("a column in every row", [] {
        std::vector<std::int64_t> rows, columns;
        for (std::int64_t i = 0; i < 5000; ++i) {
            for (std::int64_t k = 0; k < 4; ++k) {
                rows.push_back(i);
                columns.push_back(k == 0 ? 0 : 1 + (i * 37 + k * 101) % 499);
            }
        }
        return share(CsrMatrix::from_coo(5000, 500, rows, columns, products::random_vector(static_cast<std::int64_t>(rows.size()), 28)));
    }());
    return cases;
}

// Tall enough for timing: more than 2^20 entries.
std::shared_ptr<const CsrMatrix> large_tall(std::int64_t cols, std::uint64_t seed) { return matrix_with_rows(random_lengths(300000, 8, 8, seed), cols, seed); }

PrepareOptions one_pass_on_graph() {
    PrepareOptions options;
    options.device = DeviceKind::cuda;
    options.storage = StorageKind::one_pass;
    options.executor = ExecutorKind::graph;
    return options;
}

}  // namespace

TEST_CASE("one pass: the bytes that it saves") {
    // 10 bytes a place and y twice, where two products move 22 bytes an entry and y three times.
    const auto gain = [](std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t places) {
        const auto launch = cuda::choose_one_pass_launch(cols, static_cast<std::int32_t>(rows / 32), 8, 132, 232448);
        return cuda::one_pass_gain(rows, cols, nnz, places, 8, 8, launch);
    };
    const double spline = gain(3820000, 1600, 61120000, 61120000);
    CHECK(spline == doctest::Approx((22.0 * 61.12 + 2 * 3.82 + 24 * 3.82) / (10.0 * 61.12 + 4 * 3.82 / 32 + 16 * 3.82)).epsilon(0.01));
    CHECK(spline > cuda::kOnePassGainUntimed);
    // Twice as many places as entries leave nothing.
    CHECK(gain(3820000, 1600, 61120000, 2 * 61120000) < cuda::kOnePassGainToTry);
    // Nor does a matrix so low that the blocks' sums of A^T y are as long as it is.
    CHECK(gain(20000, 6000, 160000, 160000) < 1);
}

TEST_CASE("one pass: columns that shared memory holds") {
    const auto launch = [](std::int64_t cols, int width) { return cuda::choose_one_pass_launch(cols, 100000, width, 132, 232448); };
    CHECK(launch(100, 8).panels == 8);
    CHECK(launch(100, 8).batch == 1);
    CHECK(launch(1600, 8).panels == 8);
    CHECK(launch(1600, 8).warps() == 16);
    CHECK(launch(4000, 8).panels == 5);
    CHECK(launch(4000, 8).batch == 2);
    CHECK(launch(4000, 4).panels == 8);
    CHECK(launch(8000, 8).panels == 2);
    CHECK(launch(8000, 8).batch == 4);
    CHECK(launch(12000, 8).panels == 0);
    CHECK(launch(12000, 4).panels == 3);
    CHECK(cuda::choose_one_pass_launch(100, 3, 8, 132, 232448).blocks == 1);
}

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda one pass: both products against plain loops") {
    LSMR_NEEDS_GPU();
    for (const ShapeCase& shape : tall_cases()) {
        CAPTURE(shape.name);
        check_pair<double>(*shape.a, once());
        check_pair<float>(*shape.a, once());
        check_pair<double>(*rounded_to_fp32(*shape.a), once());  // stored in fp32
    }
}

TEST_CASE("cuda one pass: each product alone") {
    LSMR_NEEDS_GPU();
    for (const ShapeCase& shape : tall_cases()) {
        CAPTURE(shape.name);
        check_products(*shape.a, *from_csr<double>(shape.a, once()));
        check_products(*shape.a, *from_csr<float>(shape.a, once()));
        check_products(*shape.a, *from_csc<double>(shape.a, once()));
    }
}

TEST_CASE("cuda one pass: an update keeps the places where the structure is the same, and only there") {
    LSMR_NEEDS_GPU();
    const CudaContext& context = shared_context();
    const auto on_device = [&](const CsrMatrix& m) { return cuda::upload<double>(m, 0, context); };
    const auto refills = [&](const CsrMatrix& first, const CsrMatrix& second) {
        return cuda::make_one_pass_product(on_device(first), NarrowKind::lossless, 0.0, context)->refill(on_device(second), context);
    };
    const std::vector<std::int64_t> rows{0, 0, 1, 3, 3, 3}, columns{1, 4, 2, 0, 3, 4};
    const auto matrix = [&](const std::vector<std::int64_t>& i, const std::vector<std::int64_t>& j, double value) {
        return CsrMatrix::from_coo(40, 5, i, j, std::vector<double>(i.size(), value));
    };
    const CsrMatrix first = matrix(rows, columns, 0.1);
    CHECK(refills(first, matrix(rows, columns, 0.3)));
    CHECK(refills(first, matrix(rows, columns, 0.25)));
    CHECK(refills(matrix(rows, columns, 0.5), matrix(rows, columns, 0.25)));
    CHECK_FALSE(refills(matrix(rows, columns, 0.5), matrix(rows, columns, 0.1)));  // stored in fp32
    CHECK_FALSE(refills(first, matrix(rows, {1, 3, 2, 0, 3, 4}, 0.1)));           // another column
    CHECK_FALSE(refills(first, matrix({0, 0, 2, 3, 3, 3}, columns, 0.1)));        // another row
    CHECK_FALSE(refills(first, matrix({0, 1, 3, 3, 3}, {1, 2, 0, 3, 4}, 0.1)));   // fewer
    // Longer rows are placed anew.
    CHECK(refills(*matrix_with_rows({64, 3}, 90, 32), *matrix_with_rows({64, 3}, 90, 32)));
    CHECK_FALSE(refills(*matrix_with_rows({65, 3}, 90, 32), *matrix_with_rows({65, 3}, 90, 32)));
}

TEST_CASE("cuda one pass: an update gives the bits of an operator made anew") {
    LSMR_NEEDS_GPU();
    for (const ShapeCase& shape : tall_cases()) {
        CAPTURE(shape.name);
        std::vector<double> values = products::random_vector(shape.a->nnz(), 33);
        HostBuffer<double> changed(shape.a->nnz());
        std::copy(values.begin(), values.end(), changed.begin());
        HostBuffer<std::int64_t> offsets(shape.a->rows() + 1);
        std::copy(shape.a->offsets(), shape.a->offsets() + shape.a->rows() + 1, offsets.begin());
        HostBuffer<std::int32_t> its_columns(shape.a->nnz());
        std::copy(shape.a->columns(), shape.a->columns() + shape.a->nnz(), its_columns.begin());
        const auto other = share(CsrMatrix::from_csr(shape.a->rows(), shape.a->cols(), std::move(offsets), std::move(its_columns), std::move(changed)));
        const auto x = products::random_vector(shape.a->cols(), 34);
        const auto y = products::random_vector(shape.a->rows(), 35);
        const std::vector<double> z(x.size(), 0.0);
        const auto op = make_cuda_operator<double>(*shape.a, shared_context(), once());
        op->update(other);
        const Pair<double> found = run_pair<double>(*op, 0.5, x, 2, y, 1, 0, z);
        const Pair<double> expected = run_pair<double>(*make_cuda_operator<double>(*other, shared_context(), once()), 0.5, x, 2, y, 1, 0, z);
        CHECK(found.y == expected.y);
        CHECK(found.x2 == expected.x2);
    }
}

TEST_CASE("cuda one pass: places without entries spread no infinity") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(1000, 0, 5, 31), 60, 31);
    const auto op = make_cuda_operator<double>(*a, shared_context(), once());
    std::vector<double> x(60, 1.0);
    x[7] = std::numeric_limits<double>::infinity();
    const Pair<double> pair = run_pair<double>(*op, 1, x, 0, std::vector<double>(1000, 0.0), 1, 0, std::vector<double>(60, 0.0));
    std::vector<bool> reached(60, false);
    for (std::int64_t i = 0; i < a->rows(); ++i) {
        const auto* begin = a->columns() + a->offsets()[i];
        const auto* end = a->columns() + a->offsets()[i + 1];
        const bool has = std::find(begin, end, 7) != end;
        CHECK(std::isfinite(pair.y[static_cast<std::size_t>(i)]) == !has);
        for (const auto* c = begin; has && c != end; ++c) reached[static_cast<std::size_t>(*c)] = true;
    }
    for (std::size_t j = 0; j < 60; ++j) CHECK(std::isfinite(pair.x2[j]) == !reached[j]);
}

TEST_SUITE_END();

TEST_CASE("cuda one pass: the same bits at every run and from every operator") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(200000, 4, 16, 41), 1600, 41);
    const auto x = products::random_vector(a->cols(), 42);
    const auto y = products::random_vector(a->rows(), 43);
    const std::vector<double> z(static_cast<std::size_t>(a->cols()), 0.0);
    std::vector<Pair<double>> runs;
    for (int build = 0; build < 3; ++build) {
        const auto op = make_cuda_operator<double>(*a, shared_context(), once());
        for (int run = 0; run < 5; ++run) runs.push_back(run_pair<double>(*op, 0.5, x, -1, y, 1, 0, z));
    }
    for (const Pair<double>& run : runs) {
        CHECK(std::memcmp(run.y.data(), runs[0].y.data(), run.y.size() * sizeof(double)) == 0);
        CHECK(std::memcmp(run.x2.data(), runs[0].x2.data(), run.x2.size() * sizeof(double)) == 0);
        CHECK(run.y_squares == runs[0].y_squares);
        CHECK(run.x2_squares == runs[0].x2_squares);
    }
}

TEST_CASE("cuda one pass: values of fp32 where they are exact, and only there") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(3000, 4, 9, 51), 90, 51);
    const auto forward = [&](const CsrMatrix& of, const OperatorOptions& options) { return make_cuda_operator<double>(of, shared_context(), options)->plan(); };
    CHECK(forward(*a, once()).forward.find("fp32") == std::string::npos);
    CHECK(forward(*rounded_to_fp32(*a), once()).forward.find("values in fp32") != std::string::npos);
    CHECK(forward(*rounded_to_fp32(*a), once()).notes.empty());
    CHECK(forward(*rounded_to_fp32(*a), once(NarrowKind::none)).forward.find("fp32") == std::string::npos);
    const OperatorPlan rounded = forward(*a, once(NarrowKind::fp32_values));
    CHECK(rounded.forward.find("values in fp32") != std::string::npos);
    REQUIRE(rounded.notes.size() == 1);
    CHECK(rounded.notes[0].find("rounded") != std::string::npos);
}

TEST_CASE("cuda one pass: refused in words") {
    LSMR_NEEDS_GPU();
    const auto refused = [](const CsrMatrix& a, const OperatorOptions& options, const std::string& words) {
        try {
            make_cuda_operator<double>(a, shared_context(), options);
            FAIL_CHECK("not refused: " << words);
        } catch (const InputError& error) {
            CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
        }
    };
    refused(*matrix_with_rows({3, 3}, 20000, 61), once(), "A has 20000 columns, and shared memory must hold");
    refused(*matrix_with_rows({2000, 3}, 3000, 61), once(), "a row of 2000 entries, more than 1024");
    OperatorOptions forced = once();
    forced.spmv = SpmvKind::cusparse;
    refused(*matrix_with_rows({3, 3}, 20, 61), forced, "storage one-pass is refused");
}

TEST_CASE("cuda one pass: taken where it is faster than two products, kept by update") {
    LSMR_NEEDS_GPU();
    const auto tall = large_tall(500, 81);
    const auto op = make_cuda_operator<double>(*tall, shared_context(), {});
    const OperatorPlan& plan = op->plan();
    MESSAGE(plan.storage_reason << "; " << plan.forward << (plan.notes.empty() ? "" : "; " + plan.notes[0]));
    if (plan.storage == StorageKind::one_pass) {
        CHECK(plan.storage_reason.find("A is read once for both products, ") == 0);
        CHECK((plan.setup.transpose == 0) == (plan.storage_reason.find("at least") != std::string::npos));
        CHECK(plan.deterministic);
        CHECK(plan.adjoint == "the same pass");
        CHECK(plan.bytes < cuda_operator_bytes<double>(tall->rows(), tall->cols(), tall->nnz(), StorageKind::single));
    } else {
        REQUIRE(plan.notes.size() == 1);
        CHECK(plan.notes[0].find("no pass for both products: it takes") == 0);
    }
    // Not where other storage, kernels or few products are meant, nor where entries are few.
    OperatorOptions options;
    options.storage = StorageKind::dual;
    CHECK(make_cuda_operator<double>(*tall, shared_context(), options)->one_pass() == nullptr);
    options = {};
    options.expected_products = 40;
    CHECK(make_cuda_operator<double>(*tall, shared_context(), options)->one_pass() == nullptr);
    CHECK(make_cuda_operator<double>(*matrix_with_rows(random_lengths(3000, 4, 9, 82), 90, 82), shared_context(), {})->one_pass() == nullptr);
    // By rule alone, before anything else is made.
    options = {};
    options.deterministic = true;
    options.reorder = OrderKind::automatic;
    const auto by_rule = make_cuda_operator<double>(*tall, shared_context(), options);
    CHECK(by_rule->plan().storage == StorageKind::one_pass);
    CHECK(by_rule->plan().storage_reason == "A is read once for both products");
    CHECK(by_rule->plan().setup.transpose == 0);
    CHECK(by_rule->plan().setup.one_pass > 0);
    CHECK(by_rule->order() == nullptr);
    CHECK(by_rule->plan().order.reason == "one pass gathers from shared memory, whatever the order");
    // Another matrix of the same shape, without timing; and one with a row that is too long for it.
    const auto other = large_tall(500, 83);
    by_rule->update(other);
    CHECK(by_rule->plan().storage == StorageKind::one_pass);
    const auto x = products::random_vector(other->cols(), 84);
    const auto y = products::random_vector(other->rows(), 85);
    const Pair<double> pair = run_pair<double>(*by_rule, 1, x, 1, y, 1, 0, std::vector<double>(500, 0.0));
    check_product(*other, false, 1, x, 1, y, pair.y, pair.y_squares);
    std::vector<std::int64_t> lengths = random_lengths(300000, 8, 8, 86);
    const auto wider = large_tall(2000, 86);
    lengths[5] = 2000;
    const auto long_row = matrix_with_rows(lengths, 2000, 87);
    const auto changed = make_cuda_operator<double>(*wider, shared_context(), options);
    CHECK(changed->plan().storage == StorageKind::one_pass);
    changed->update(long_row);
    CHECK(changed->plan().storage == StorageKind::dual);
    CHECK(changed->one_pass() == nullptr);
}

TEST_CASE("cuda one pass: iterations as with two products") {
    LSMR_NEEDS_GPU();
    const Matrix a = large_tall(700, 91);
    const Vector b = products::random_vector(a->rows(), 92);
    for (const Precision precision : {Precision::fp64, Precision::fp32}) {
        for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
            CAPTURE(name(precision));
            CAPTURE(name(method));
            PrepareOptions pass = one_pass_on_graph();
            PrepareOptions two = pass;
            pass.precision = two.precision = precision;
            two.storage = StorageKind::dual;
            const SolveOptions options = exactly(method, 12);
            PreparedProblem of_pass(a, pass), of_two(a, two);
            CHECK(of_pass.info().plan.storage == StorageKind::one_pass);
            CHECK(of_pass.info().executor == ExecutorKind::graph);
            Vector x(static_cast<std::size_t>(a->cols()), 0.0), x2 = x;
            const SolveResult r = of_pass.solve(b, x, options), r2 = of_two.solve(b, x2, options);
            CHECK(r.iterations == r2.iterations);
            const double tolerance = precision == Precision::fp64 ? 1e-12 : 1e-4;
            double difference = 0, size = 0;
            for (std::size_t j = 0; j < x.size(); ++j) {
                difference = std::max(difference, std::abs(x[j] - x2[j]));
                size = std::max(size, std::abs(x2[j]));
            }
            CHECK(difference <= tolerance * size);
            CHECK(r.norms.r == doctest::Approx(r2.norms.r).epsilon(tolerance));
            // And again, to the same bits.
            Vector again(x.size(), 0.0);
            of_pass.solve(b, again, options);
            CHECK(again == x);
        }
    }
}

TEST_CASE("cuda one pass: long runs come from a graph") {
    LSMR_NEEDS_GPU();
    // Columns graded over two decades, so that more than 64 iterations are needed; b is in the range of A.
    const std::int64_t m = 4000, n = 150;
    const std::vector<double> factors = products::random_vector(5 * m, 95);
    std::vector<std::int64_t> rows, columns;
    std::vector<double> values;
    Vector b(static_cast<std::size_t>(m), 0.0);
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t k = 0; k < 5; ++k) {
            const std::int64_t column = (i * 37 + i / n + k * (7 + i % 11)) % n;
            rows.push_back(i);
            columns.push_back(column);
            values.push_back(factors[values.size()] * std::pow(10.0, -2.0 * static_cast<double>(column) / static_cast<double>(n)));
            b[static_cast<std::size_t>(i)] += values.back();
        }
    }
    const Matrix a = share(CsrMatrix::from_coo(m, n, rows, columns, values));
    SolveOptions options = with_method(Method::lsmr, 1e-12);
    options.btol = 1e-12;
    options.max_iterations = 4000;
    Vector x(static_cast<std::size_t>(n), 0.0);
    const SolveResult result = PreparedProblem(a, one_pass_on_graph()).solve(b, x, options);
    CHECK(result.converged());
    CHECK(result.iterations > 64);  // a graph holds 16, and comes after 31
    for (const double value : x) CHECK(value == doctest::Approx(1).epsilon(1e-6));
}

TEST_CASE("cuda one pass: start centre and damping against dense answers") { LSMR_NEEDS_GPU(); suite_start_and_center(one_pass_on_graph()); }
TEST_CASE("cuda one pass: damping is stacked rows") { LSMR_NEEDS_GPU(); suite_damping_is_stacked_rows(one_pass_on_graph()); }
TEST_CASE("cuda one pass: scaled by powers of two") { LSMR_NEEDS_GPU(); suite_scaled_by_powers_of_two(one_pass_on_graph()); }
TEST_CASE("cuda one pass: status 1 compatible") { LSMR_NEEDS_GPU(); suite_status_compatible(one_pass_on_graph()); }
TEST_CASE("cuda one pass: status 2 least squares") { LSMR_NEEDS_GPU(); suite_status_least_squares(one_pass_on_graph()); }
TEST_CASE("cuda one pass: records are complete and in order") { LSMR_NEEDS_GPU(); suite_records(one_pass_on_graph()); }
TEST_CASE("cuda one pass: empty rows and columns") { LSMR_NEEDS_GPU(); suite_empty_rows_and_columns(one_pass_on_graph()); }
TEST_CASE("cuda one pass: degenerate shapes") { LSMR_NEEDS_GPU(); suite_degenerate_shapes(one_pass_on_graph()); }
TEST_CASE("cuda one pass: early breakdown") { LSMR_NEEDS_GPU(); suite_early_breakdown(one_pass_on_graph()); }
TEST_CASE("cuda one pass: one problem many solves") { LSMR_NEEDS_GPU(); suite_reuse(one_pass_on_graph()); }
TEST_CASE("cuda one pass: repeats give the same bits") { LSMR_NEEDS_GPU(); suite_repeats(one_pass_on_graph()); }
TEST_CASE("cuda one pass: scaled columns") { LSMR_NEEDS_GPU(); suite_scaled_columns(one_pass_on_graph()); }
TEST_CASE("cuda one pass: preconditioned iterates") { LSMR_NEEDS_GPU(); suite_preconditioned_iterates(one_pass_on_graph()); }
TEST_CASE("cuda one pass: trust radius") { LSMR_NEEDS_GPU(); suite_trust_radius(one_pass_on_graph()); }
TEST_CASE("cuda one pass: an interrupted solve goes on to the same bits") { LSMR_NEEDS_GPU(); suite_checkpoints(one_pass_on_graph()); }
