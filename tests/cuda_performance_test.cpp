// Speeds that must not be lost: each is a fault that other libraries had, with a bound well above the noise of a run.
#include <algorithm>
#include <cmath>

#include "cuda_rig.hpp"
#include "operator/cuda/product_bench.hpp"
#include "operator/cuda/profile.hpp"
#include "operator_suite.hpp"
#include "solver/solve.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

ProductRequest chosen() { return {"auto", std::nullopt, SpmvKind::automatic, NarrowKind::lossless, true}; }
ProductRequest kernel(const char* name) { return {name, parse_spmv_choice(name), SpmvKind::automatic, NarrowKind::lossless, true}; }

// Seconds of our choice, and of the best of cuSPARSE with preprocess.
template <class T>
std::pair<double, double> ours_and_theirs(const CsrMatrix& stored) {
    ProductBench<T> bench(stored, shared_context());
    const ProductMeasurement ours = bench.measure(chosen(), 5, 31);
    REQUIRE(ours.failure.empty());
    CHECK(ours.error <= 1);
    CHECK(ours.repeatable);
    double theirs = 1e9;
    for (const char* name : {"cusparse-alg1", "cusparse-alg2"}) {
        const ProductMeasurement m = bench.measure(kernel(name), 5, 31);
        REQUIRE(m.failure.empty());
        theirs = std::min(theirs, m.seconds);
    }
    return {ours.seconds, theirs};
}

// Rows of one length with columns near one another, moving along with the row.
std::shared_ptr<const CsrMatrix> local_rows(std::int64_t rows, std::int64_t cols, std::int64_t length) {
    HostBuffer<std::int64_t> offsets(rows + 1);
    HostBuffer<std::int32_t> columns(rows * length);
    HostBuffer<double> values(rows * length);
    const auto random = random_vector(1 << 20, 3);
    for (std::int64_t i = 0; i <= rows; ++i) offsets[i] = i * length;
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t first = i * (cols - 2 * length) / rows;
        for (std::int64_t k = 0; k < length; ++k) {
            columns[i * length + k] = static_cast<std::int32_t>(first + 2 * k);
            values[i * length + k] = random[static_cast<std::size_t>((i * length + k) & ((1 << 20) - 1))];
        }
    }
    return share(CsrMatrix::from_csr(rows, cols, std::move(offsets), std::move(columns), std::move(values)));
}

}  // namespace

TEST_SUITE_BEGIN("alone");

TEST_CASE("cuda performance: A^T of a tall and narrow matrix costs at most 1.5 times A") {
    LSMR_NEEDS_GPU();
    // 43,374 x 181, 7.35 million entries: an explicit transpose with a row a warp was 14 times slower than A elsewhere.
    const auto a = matrix_with_rows(std::vector<std::int64_t>(43374, 169), 181, 91);
    const auto [forward, forward_theirs] = ours_and_theirs<double>(*a);
    const auto [adjoint, adjoint_theirs] = ours_and_theirs<double>(a->transposed());
    CAPTURE(forward);
    CAPTURE(forward_theirs);
    CAPTURE(adjoint);
    CAPTURE(adjoint_theirs);
    CHECK(adjoint <= 1.5 * forward);
}

TEST_CASE("cuda performance: short rows of every length are not slower than cuSPARSE") {
    LSMR_NEEDS_GPU();
    for (std::int64_t length : {3, 5, 7, 12, 16}) {
        CAPTURE(length);
        const auto a = local_rows(30000000 / length, 2000000, length);
        const auto [ours, theirs] = ours_and_theirs<double>(*a);
        const auto [ours32, theirs32] = ours_and_theirs<float>(*a);
        CHECK(ours <= theirs / 1.1);
        CHECK(ours32 <= theirs32);
    }
}

TEST_CASE("cuda performance: a profile costs less than three products") {
    LSMR_NEEDS_GPU();
    const auto a = local_rows(4000000, 2000000, 12);
    ProductBench<double> bench(*a, shared_context());
    const double product = bench.measure(kernel("cusparse-alg1"), 5, 31).seconds;
    double profile = 1e9;
    for (int i = 0; i < 3; ++i) {
        double seconds = 0;
        profile_on_device<double>(*a, shared_context(), &seconds);
        profile = std::min(profile, seconds);
    }
    CAPTURE(product);
    CHECK(profile <= 3 * product);
}

// Microseconds of an iteration: the difference of two solves of different length, the best of five. No test may end them.
template <class Matrix>
double iteration_us(const Matrix& a, ExecutorKind executor, Precision precision, Method method, std::string& words) {
    PrepareOptions prepare;
    prepare.device = DeviceKind::cuda;
    prepare.executor = executor;
    prepare.precision = precision;
    PreparedProblem problem(a, prepare);
    words = problem.info().executor_words;
    const auto b = random_vector(a->rows(), 5);
    std::vector<double> x(static_cast<std::size_t>(a->cols()));
    SolveOptions options;
    options.method = method;
    options.atol = options.btol = options.conlim = 0;
    options.stall_window = 0;
    options.passes = std::int64_t{1} << 40;
    std::int64_t made = 0;
    const auto seconds = [&](std::int64_t iterations) {
        options.max_iterations = iterations;
        double best = 1e9;
        for (int i = 0; i < 5; ++i) {
            const SolveResult result = problem.solve(b, x, options);
            made = result.iterations;
            best = std::min(best, result.solve_seconds);
        }
        return best;
    };
    seconds(10);
    const double few = seconds(500);
    REQUIRE(made == 500);
    const double many = seconds(4500);
    REQUIRE(made > 1500);
    return 1e6 * (many - few) / static_cast<double>(made - 500);
}

// Columns at random; values that fall off over the columns, so that no solve ends early. longer: entries of the first row beside.
std::shared_ptr<const CsrMatrix> scattered_rows(std::int64_t rows, std::int64_t cols, std::int64_t length, std::int64_t longer = 0) {
    const auto given = local_rows(rows, cols, length);
    const std::int64_t nnz = rows * length + longer;
    HostBuffer<std::int64_t> offsets(rows + 1);
    HostBuffer<std::int32_t> columns(nnz);
    HostBuffer<double> values(nnz);
    std::uint64_t state = 88172645463325252u;
    for (std::int64_t i = 0; i <= rows; ++i) offsets[i] = i * length + (i > 0 ? longer : 0);
    for (std::int64_t k = 0; k < nnz; ++k) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        columns[k] = static_cast<std::int32_t>(state % static_cast<std::uint64_t>(cols));
        values[k] = given->values()[k % (rows * length)] * std::pow(10.0, -6.0 * static_cast<double>(columns[k]) / static_cast<double>(cols));
    }
    return share(CsrMatrix::from_csr(rows, cols, std::move(offsets), std::move(columns), std::move(values)));
}

TEST_CASE("cuda performance: an iteration of a small problem") {
    LSMR_NEEDS_GPU();
    struct Size {
        std::int64_t rows, cols, length;
        double most_us;       // of one persistent kernel; an H200 took 1.9, 2.0, 2.3, 2.7, 3.4 and 22 (fp64)
        double most_cgls_us;  // 3.6, 3.7, 4.0, 4.4, 7.3 and 29
    };
    for (const Size& size : {Size{300, 100, 8, 3, 6}, Size{700, 280, 8, 3, 6}, Size{1400, 560, 8, 3.2, 6}, Size{2000, 800, 8, 3.3, 7}, Size{20000, 8000, 10, 8, 15},
                             Size{200000, 60000, 10, 30, 42}}) {
        const auto a = scattered_rows(size.rows, size.cols, size.length);
        for (const Precision precision : {Precision::fp64, Precision::fp32}) {
            for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
                std::string words, other;
                const double ours = iteration_us(a, ExecutorKind::persistent, precision, method, words);
                const double graph = iteration_us(a, ExecutorKind::graph, precision, method, other);
                MESSAGE(size.rows << " x " << size.cols << ", " << a->nnz() << " nonzeros, " << name(precision) << ", " << name(method) << ": persistent " << ours
                                  << " us, graph " << graph << " us an iteration; " << words);
                CHECK(ours <= (method == Method::cgls ? size.most_cgls_us : size.most_us));
                CHECK(ours <= graph);
            }
        }
    }
}

TEST_CASE("cuda performance: an iteration of a small problem with a long row") {
    LSMR_NEEDS_GPU();
    std::string words;
    const double us = iteration_us(scattered_rows(8000, 3200, 8, 1200), ExecutorKind::persistent, Precision::fp64, Method::lsmr, words);
    MESSAGE(us << " us an iteration; " << words);
    CHECK(us <= 7);
}

TEST_SUITE_END();
