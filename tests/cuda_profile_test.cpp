// The device's profile is the host's, to the last bit.
#include <algorithm>
#include <random>
#include <vector>

#include "cuda_support.hpp"
#include "memory/device_buffer.hpp"
#include "operator/cuda/profile.hpp"
#include "profile_cases.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

CudaContext& context() {
    // Left alive at exit on purpose: no CUDA call in a static destructor.
    static CudaContext* shared = new CudaContext(0);
    return *shared;
}

// Behind `shift` values that nobody writes.
template <class T>
DeviceBuffer<T> to_device(const std::vector<T>& host, std::int64_t shift = 0) {
    DeviceBuffer<T> buffer(context(), static_cast<std::int64_t>(host.size()) + shift);
    if (host.empty()) return buffer;
    LSMR_CHECK(cudaMemcpyAsync(buffer.data() + shift, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice, context().stream()));
    context().synchronize();
    return buffer;
}

// The columns and the values begin so many places behind an aligned address.
struct Shifts {
    std::int64_t columns = 0;
    std::int64_t values = 0;
};

template <class T, class Offset>
OrientationProfile on_device(const CsrMatrix& a, Shifts shifts = {}) {
    const auto offsets = to_device(std::vector<Offset>(a.offsets(), a.offsets() + a.rows() + 1));
    const auto columns = to_device(std::vector<std::int32_t>(a.columns(), a.columns() + a.nnz()), shifts.columns);
    const auto values = to_device(std::vector<T>(a.values(), a.values() + a.nnz()), shifts.values);
    return profile_on_device(a.rows(), a.cols(), a.nnz(), offsets.data(), columns.data() + shifts.columns, values.data() + shifts.values, context());
}

void check_matrix(const CsrMatrix& a) {
    const OrientationProfile expected = profile_orientation(a);
    CHECK(on_device<double, std::int32_t>(a) == expected);
    CHECK(on_device<double, std::int64_t>(a) == expected);
    const auto narrowed = map_values(a, [](double value) { return static_cast<double>(static_cast<float>(value)); });
    const OrientationProfile expected_fp32 = profile_orientation(*narrowed);
    CHECK(on_device<float, std::int32_t>(a) == expected_fp32);
    CHECK(on_device<float, std::int64_t>(a) == expected_fp32);
}

}  // namespace

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda profile: as on the host, for many shapes") {
    LSMR_NEEDS_GPU();
    for (const ShapeCase& shape : profile_cases()) {
        INFO(shape.name);
        check_matrix(*shape.a);
    }
}

TEST_CASE("cuda profile: a matrix in host memory") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(3000, 0, 60, 7), 500, 8);
    double seconds = 0;
    CHECK(profile_on_device<double>(*a, context(), &seconds) == profile_orientation(*a));
    CHECK(seconds > 0);
    CHECK(profile_on_device<float>(*a, context()).exact_fp32);
}

TEST_CASE("cuda profile: columns that are not sorted, and duplicates") {
    LSMR_NEEDS_GPU();
    const std::vector<std::int32_t> offsets{0, 3, 3, 6};
    const std::vector<std::int32_t> columns{4, 2, 3, 1, 1, 2};
    const std::vector<double> values(6, 1.0);
    const auto o = to_device(offsets);
    const auto c = to_device(columns);
    const auto v = to_device(values);
    const OrientationProfile p = profile_on_device(3, 5, 6, o.data(), c.data(), v.data(), context());
    CHECK_FALSE(p.sorted_columns);
    CHECK(p.duplicates == 1);
    CHECK(p.neighbour == 2.0 / 6.0);
    CHECK(p.row_span == 5);  // all columns, where order does not give the span
    CHECK(p.span256 == 5);
    CHECK(p.blocks[0].fill == 0);
    CHECK(p.similarity == 0);
    CHECK(p.constant);
}

TEST_CASE("cuda profile: duplicates and neighbours in random rows, by plain counting") {
    LSMR_NEEDS_GPU();
    std::mt19937 random(24);
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int32_t> columns;
    std::int64_t duplicates = 0, neighbours = 0;
    for (int row = 0; row < 3000; ++row) {
        const auto length = static_cast<int>(random() % 9);
        for (int k = 0; k < length; ++k) {
            columns.push_back(static_cast<std::int32_t>(random() % 6));
            if (k == 0) continue;
            const std::int32_t before = columns[columns.size() - 2];
            duplicates += columns.back() == before;
            neighbours += columns.back() == before + 1;
        }
        offsets.push_back(static_cast<std::int64_t>(columns.size()));
    }
    const auto nnz = static_cast<std::int64_t>(columns.size());
    const auto o = to_device(offsets);
    const auto c = to_device(columns);
    const auto v = to_device(std::vector<float>(columns.size(), 0.5f));
    const OrientationProfile p = profile_on_device(3000, 6, nnz, o.data(), c.data(), v.data(), context());
    CHECK(p.duplicates == duplicates);
    CHECK(p.neighbour == static_cast<double>(neighbours) / static_cast<double>(nnz));
    CHECK_FALSE(p.sorted_columns);
    // The columns of every row in order: no row descends, whatever the first column after a row's last.
    for (std::size_t row = 0; row < 3000; ++row) std::sort(columns.begin() + offsets[row], columns.begin() + offsets[row + 1]);
    const auto s = to_device(columns);
    CHECK(profile_on_device(3000, 6, nnz, o.data(), s.data(), v.data(), context()).sorted_columns);
}

TEST_CASE("cuda profile: arrays that begin at any address") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(400, 0, 9, 25), 700, 25);
    const auto narrowed = map_values(*a, [](double value) { return static_cast<double>(static_cast<float>(value)); });
    const OrientationProfile expected = profile_orientation(*a);
    const OrientationProfile expected_fp32 = profile_orientation(*narrowed);
    for (std::int64_t columns = 0; columns < 4; ++columns) {
        for (std::int64_t values = 0; values < 4; ++values) {
            CAPTURE(columns);
            CAPTURE(values);
            CHECK(on_device<double, std::int32_t>(*a, {columns, values}) == expected);
            CHECK(on_device<float, std::int32_t>(*a, {columns, values}) == expected_fp32);
        }
    }
}

TEST_SUITE_END();

TEST_CASE("cuda profile: larger matrices") {
    LSMR_NEEDS_GPU();
    check_matrix(*matrix_with_rows(random_lengths(200000, 0, 40, 21), 100003, 21));
    check_matrix(*matrix_with_rows({1000000, 3, 0, 900000}, 1000003, 22));
    std::vector<std::int64_t> sparse(3000000, 0);
    for (std::size_t i = 0; i < sparse.size(); i += 100003) sparse[i] = 1000;
    check_matrix(*matrix_with_rows(sparse, 4001, 23));
}

TEST_CASE("cuda profile: the copy bandwidth is that of a GPU") {
    LSMR_NEEDS_GPU();
    const double bandwidth = measure_copy_bandwidth(context());
    CHECK(bandwidth > 50e9);
    CHECK(bandwidth < 100e12);
}
