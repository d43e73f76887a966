// The host matrix: what its one checked constructor accepts, sorts, sums and refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "memory/error.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/pairwise_sum.hpp"
#include "operator_suite.hpp"

using namespace lsmr;
using namespace lsmr::test::products;

namespace {

template <class T>
HostBuffer<T> buffer(const std::vector<T>& values) {
    HostBuffer<T> b(static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), b.begin());
    return b;
}

CsrMatrix csr(std::int64_t rows, std::int64_t cols, const std::vector<std::int64_t>& offsets, const std::vector<std::int32_t>& columns,
              const std::vector<double>& values) {
    return CsrMatrix::from_csr(rows, cols, buffer(offsets), buffer(columns), buffer(values));
}

std::vector<std::vector<double>> dense(const CsrMatrix& a) {
    std::vector<std::vector<double>> d(static_cast<std::size_t>(a.rows()), std::vector<double>(static_cast<std::size_t>(a.cols()), 0.0));
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            d[static_cast<std::size_t>(i)][static_cast<std::size_t>(a.columns()[k])] += a.values()[k];
        }
    }
    return d;
}

bool same(const CsrMatrix& a, const CsrMatrix& b) {
    return a.rows() == b.rows() && a.cols() == b.cols() && std::equal(a.offsets(), a.offsets() + a.rows() + 1, b.offsets()) &&
           std::equal(a.columns(), a.columns() + a.nnz(), b.columns()) && std::equal(a.values(), a.values() + a.nnz(), b.values());
}

}  // namespace

TEST_CASE("csr matrix: from rows and columns and coordinates alike") {
    const std::vector<std::int64_t> rows{2, 0, 1, 2, 0}, cols{1, 2, 0, 0, 2};
    const std::vector<double> values{1, 2, 3, 4, 5};
    const CsrMatrix a = CsrMatrix::from_coo(3, 3, rows, cols, values);
    CHECK(a.duplicates_summed() == 1);
    CHECK(dense(a) == std::vector<std::vector<double>>{{0, 0, 7}, {3, 0, 0}, {4, 1, 0}});
    CHECK(same(a, csr(3, 3, {0, 2, 3, 5}, {2, 2, 0, 1, 0}, {2, 5, 3, 1, 4})));
    const CsrMatrix c = CsrMatrix::from_csc(3, 3, buffer<std::int64_t>({0, 2, 3, 5}), buffer<std::int32_t>({2, 1, 2, 0, 0}),
                                            buffer<double>({4, 3, 1, 2, 5}));
    CHECK(same(a, c));
    CHECK(c.duplicates_summed() == 1);
}

TEST_CASE("csr matrix: duplicates are added in the order given") {
    // (1 + 1e16) - 1e16 is 0, (-1e16 + 1e16) + 1 is 1.
    for (const std::size_t size : {31, 200}) {  // short rows are sorted in another way
        std::vector<std::int64_t> rows(size, 0), cols(size);
        std::vector<double> values(size, 0.5);
        double expected = (1 + 1e16) - 1e16;
        for (std::size_t k = 0; k < size; ++k) {
            cols[k] = static_cast<std::int64_t>(k % 50);
            if (cols[k] == 49) expected += 0.5;
        }
        cols[10] = cols[20] = cols[30] = 49;
        values[10] = 1, values[20] = 1e16, values[30] = -1e16;
        const CsrMatrix a = CsrMatrix::from_coo(1, 50, rows, cols, values);
        CHECK(a.values()[a.nnz() - 1] == expected);
    }
}

TEST_CASE("csr matrix: the transpose of the transpose is the matrix") {
    const auto a = matrix_with_rows(random_lengths(777, 0, 30, 1), 123, 2);
    const CsrMatrix t = a->transposed();
    CHECK(t.rows() == 123);
    CHECK(t.nnz() == a->nnz());
    CHECK(same(t.transposed(), *a));
    const auto d = dense(*a);
    const auto dt = dense(t);
    for (std::size_t i = 0; i < d.size(); ++i) {
        for (std::size_t j = 0; j < dt.size(); ++j) REQUIRE(d[i][j] == dt[j][i]);
    }
}

TEST_CASE("csr matrix: what is wrong is refused in words") {
    const auto words = [](auto&& make) -> std::string {
        try {
            make();
        } catch (const InputError& error) {
            return error.what();
        }
        return "accepted";
    };
    CHECK(words([] { csr(-1, 2, {0}, {}, {}); }) == "matrix: -1 x 2 is not a shape");
    CHECK(words([] { csr(std::int64_t{1} << 31, 2, {0}, {}, {}); }) ==
          "matrix: 2147483648 x 2 is too large; rows and columns are limited to 2147483647");
    CHECK(words([] { csr(2, 2, {0, 1}, {0}, {1}); }) == "matrix: offsets has 2 entries, 2 rows need 3");
    CHECK(words([] { csr(1, 2, {1, 1}, {0}, {1}); }) == "matrix: offsets[0] is 1, it must be 0");
    CHECK(words([] { csr(2, 2, {0, 2, 1}, {0, 1}, {1, 2}); }) ==
          "matrix: offsets decrease at row 1 (1 after 2); a 32-bit overflow when it was made?");
    CHECK(words([] { csr(1, 2, {0, 2}, {0}, {1}); }) == "matrix: offsets end at 2, but there are 1 column indices and 1 values");
    CHECK(words([] { csr(1, 2, {0, 1}, {2}, {1}); }) == "matrix: column index 2 at entry 0 is outside 0..1");
    CHECK(words([] { csr(1, 2, {0, 1}, {-1}, {1}); }) == "matrix: column index -1 at entry 0 is outside 0..1");
    CHECK(words([] { csr(1, 2, {0, 1}, {1}, {NAN}); }) == "matrix: value nan at entry 0 is not finite");
    const std::vector<std::int64_t> zero{0}, five{5};
    const std::vector<double> one{1};
    CHECK(words([&] { CsrMatrix::from_coo(2, 2, five, zero, one); }) == "matrix: row index 5 at entry 0 is outside 0..1");
    CHECK(words([&] { CsrMatrix::from_coo(2, 2, zero, five, one); }) == "matrix: column index 5 at entry 0 is outside 0..1");
    const std::vector<std::int64_t> two{2};  // the first that is one too large
    CHECK(words([&] { CsrMatrix::from_coo(2, 2, two, zero, one); }) == "matrix: row index 2 at entry 0 is outside 0..1");
    CHECK(words([&] { CsrMatrix::from_coo(2, 2, zero, two, one); }) == "matrix: column index 2 at entry 0 is outside 0..1");
    CHECK(words([&] { CsrMatrix::from_coo(2, 2, zero, zero, {}); }) == "matrix: 1 row indices, 1 column indices and 0 values");
}

TEST_CASE("csr matrix: summary") {
    const CsrMatrix a = csr(4, 5, {0, 2, 2, 3, 3}, {0, 3, 3}, {3, -4, 0});
    const MatrixSummary s = summarize(a);
    CHECK(s.empty_rows == 2);
    CHECK(s.empty_cols == 3);
    CHECK(s.min == -4);
    CHECK(s.max == 3);
    CHECK(s.sum == -1);
    CHECK(s.max_abs == 4);
    CHECK(s.frobenius == 5);
    CHECK(s.nonfinite == 0);
    const MatrixSummary empty = summarize(CsrMatrix::from_coo(2, 3, {}, {}, {}));
    CHECK(empty.empty_rows == 2);
    CHECK(empty.min == 0);
    CHECK(empty.max == 0);
    CHECK(empty.frobenius == 0);
}

TEST_CASE("csr matrix: the Frobenius norm neither overflows nor underflows") {
    for (int exponent : {1000, 500, 0, -500, -1060}) {
        const double unit = std::ldexp(1.0, exponent);
        const CsrMatrix a = csr(1, 2, {0, 2}, {0, 1}, {3 * unit, -4 * unit});
        CHECK(frobenius_norm(a, max_abs_value(a)) == 5 * unit);
    }
    const auto a = matrix_with_rows(random_lengths(5000, 0, 30, 3), 400, 4);
    long double sum = 0;
    for (std::int64_t k = 0; k < a->nnz(); ++k) sum += static_cast<long double>(a->values()[k]) * a->values()[k];
    CHECK(frobenius_norm(*a, max_abs_value(*a)) == doctest::Approx(static_cast<double>(std::sqrt(sum))).epsilon(1e-14));
}

TEST_CASE("csr matrix: largest entry and norm in one pass are those of two, to the bit") {
    const auto random = matrix_with_rows(random_lengths(20000, 0, 30, 7), 400, 8);
    for (const int exponent : {0, 1, 399, 450, 1000, -399, -450, -1040}) {
        CAPTURE(exponent);
        const CsrMatrix a = random->scaled_by_power_of_two(exponent);
        const EntrySizes sizes = entry_sizes(a);
        CHECK(sizes.max_abs == max_abs_value(a));
        CHECK(sizes.frobenius == frobenius_norm(a, sizes.max_abs));
        if (exponent > -500) CHECK(sizes.frobenius == std::ldexp(entry_sizes(*random).frobenius, exponent));
    }
    // Chunk after chunk, in any order, they are the same; and as exact as sums by halves.
    EntrySizer sizer(*random);
    REQUIRE(random->nnz() > 3 * EntrySizer::kChunk);
    REQUIRE(random->nnz() % EntrySizer::kChunk % 128 != 0);
    for (std::int64_t c = random->nnz() / EntrySizer::kChunk; c >= 0; --c) sizer.add(c);
    CHECK(sizer.sizes().max_abs == entry_sizes(*random).max_abs);
    CHECK(sizer.sizes().frobenius == entry_sizes(*random).frobenius);
    const auto square = [&](std::int64_t k) { return random->values()[k] * random->values()[k]; };
    CHECK(sizer.sizes().frobenius == doctest::Approx(std::sqrt(pairwise_sum(0, random->nnz(), square))).epsilon(4e-16));
    // The largest entry in any place.
    for (std::size_t k = 0; k < 20; ++k) {
        std::vector<double> values(20, 0.5);
        std::vector<std::int64_t> i(20, 0), j(20);
        std::iota(j.begin(), j.end(), 0);
        values[k] = -3;
        const CsrMatrix row = CsrMatrix::from_coo(1, 20, i, j, values);
        CHECK(entry_sizes(row).max_abs == 3);
        CHECK(entry_sizes(row).frobenius == doctest::Approx(std::sqrt(9 + 19 * 0.25)));
    }
    // Entries whose squares underflow beside one whose square does not.
    const CsrMatrix uneven = csr(1, 3, {0, 3}, {0, 1, 2}, {1e-200, 3.0, -1e-300});
    CHECK(entry_sizes(uneven).frobenius == 3);
    CHECK(entry_sizes(CsrMatrix::from_coo(2, 3, {}, {}, {})).frobenius == 0);
    // The largest is found wherever it lies, and counts in the norm.
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{13}, EntrySizer::kChunk - 1, EntrySizer::kChunk, EntrySizer::kChunk + 135}) {
        constexpr std::int64_t kCols = EntrySizer::kChunk + 136;
        HostBuffer<std::int64_t> offsets(2, 0);
        HostBuffer<std::int32_t> columns(kCols);
        HostBuffer<double> values(kCols, 0.0);
        offsets[1] = kCols;
        std::iota(columns.begin(), columns.end(), 0);
        values[at] = -7;
        const EntrySizes sizes = entry_sizes(CsrMatrix::from_csr(1, kCols, std::move(offsets), std::move(columns), std::move(values)));
        CHECK(sizes.max_abs == 7);
        CHECK(sizes.frobenius == 7);
    }
}

TEST_CASE("csr matrix: the largest of some entries is at most that of all, and that of few entries") {
    const auto a = matrix_with_rows(random_lengths(20000, 0, 30, 9), 400, 10);
    CHECK(sampled_max_abs(*a) <= max_abs_value(*a));
    CHECK(sampled_max_abs(*a) >= 0.5 * max_abs_value(*a));
    CHECK(sampled_max_abs(csr(1, 3, {0, 3}, {0, 1, 2}, {1.0, -5.0, 2.0})) == 5);
    CHECK(sampled_max_abs(CsrMatrix::from_coo(2, 3, {}, {}, {})) == 0);
}

// A sum in one row rounds to the same side at every step.
TEST_CASE("csr matrix: the Frobenius norm of many equal entries") {
    const double eps = std::numeric_limits<double>::epsilon();
    for (const std::int64_t rows : {17, 1000, 300000}) {
        std::vector<std::int64_t> i, j;
        for (std::int64_t k = 0; k < 3 * rows; ++k) {
            i.push_back(k / 3);
            j.push_back(k % 3);
        }
        const CsrMatrix a = CsrMatrix::from_coo(rows, 3, i, j, std::vector<double>(i.size(), 0.1));
        const double expected = 0.1 * std::sqrt(3 * static_cast<double>(rows));
        CAPTURE(rows);
        CHECK(std::abs(frobenius_norm(a, 0.1) - expected) <= 8 * eps * expected);
    }
}

TEST_CASE("csr matrix: scaling by a power of two is exact and undone") {
    const auto a = matrix_with_rows(random_lengths(50, 0, 9, 5), 40, 6);
    CHECK(same(a->scaled_by_power_of_two(-300).scaled_by_power_of_two(300), *a));
    CHECK(same(a->clone(), *a));
}
