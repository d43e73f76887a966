// Speeds that must not be lost: each is a fault that other libraries had, with a bound well above the noise of a run.
#include <algorithm>

#include "cuda_rig.hpp"
#include "operator/cuda/product_bench.hpp"
#include "operator/cuda/profile.hpp"
#include "operator_suite.hpp"

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

TEST_SUITE_BEGIN("performance");

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

TEST_SUITE_END();
