// Matrices whose profiles differ in every way: for the host's profile and the device's.
#pragma once

#include "operator_suite.hpp"

namespace lsmr::test {

// f(a_ij) in place of every value.
template <class F>
std::shared_ptr<const CsrMatrix> map_values(const CsrMatrix& a, const F& f) {
    HostBuffer<std::int64_t> offsets(a.rows() + 1);
    HostBuffer<std::int32_t> columns(a.nnz());
    HostBuffer<double> values(a.nnz());
    std::copy(a.offsets(), a.offsets() + a.rows() + 1, offsets.begin());
    std::copy(a.columns(), a.columns() + a.nnz(), columns.begin());
    std::transform(a.values(), a.values() + a.nnz(), values.begin(), f);
    return products::share(CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(columns), std::move(values)));
}

// The entries (i, j) with holds(i, j), values 1, 2, 3, ...
template <class F>
std::shared_ptr<const CsrMatrix> matrix_where(std::int64_t rows, std::int64_t cols, const F& holds) {
    std::vector<std::int64_t> i, j;
    std::vector<double> values;
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t col = 0; col < cols; ++col) {
            if (!holds(row, col)) continue;
            i.push_back(row);
            j.push_back(col);
            values.push_back(static_cast<double>(values.size() + 1));
        }
    }
    return products::share(CsrMatrix::from_coo(rows, cols, i, j, values));
}

// `rows` rows with their own number for a column, and the places given.
inline std::shared_ptr<const CsrMatrix> diagonal_and(std::int64_t rows, std::int64_t cols, std::vector<std::int64_t> i, std::vector<std::int64_t> j) {
    for (std::int64_t row = 0; row < rows; ++row) {
        i.push_back(row);
        j.push_back(row);
    }
    return products::share(CsrMatrix::from_coo(rows, cols, i, j, std::vector<double>(i.size(), 3.0)));
}

inline std::vector<products::ShapeCase> profile_cases() {
    using namespace products;
    std::vector<ShapeCase> cases = shape_cases();
    const auto add = [&](const std::string& name, std::shared_ptr<const CsrMatrix> a) { cases.push_back({name, std::move(a)}); };
    add("one row", matrix_with_rows({4097}, 5001, 11));
    add("one column", matrix_with_rows(random_lengths(3000, 0, 1, 12), 1, 12));
    add("10 rows of 3,000 beside short ones", [] {
        std::vector<std::int64_t> lengths = random_lengths(2000, 0, 12, 13);
        for (std::size_t i = 0; i < 10; ++i) lengths[37 + 190 * i] = 3000;
        return matrix_with_rows(lengths, 3001, 13);
    }());
    add("wide columns", matrix_with_rows(random_lengths(700, 0, 5, 14), 2000000000, 14));
    add("narrow and wide runs", matrix_where(600, 70000, [](std::int64_t i, std::int64_t j) {
            return (i < 256 && (j == i || j == i + 9)) || (i >= 256 && i < 300 && (j == 0 || j == 66000)) || (i >= 512 && j == 65536 + i % 3);
        }));
    add("3 x 3 blocks", matrix_where(90, 120, [](std::int64_t i, std::int64_t j) { return (i / 3 * 7 + j / 3 * 5) % 11 == 0; }));
    add("9 x 3 blocks, ragged", matrix_where(100, 47, [](std::int64_t i, std::int64_t j) { return (i / 9 + j / 3) % 4 == 0; }));
    add("dense", matrix_where(40, 300, [](std::int64_t, std::int64_t) { return true; }));
    add("256 diagonals", matrix_where(600, 700, [](std::int64_t i, std::int64_t j) { return j >= i && j - i < 256; }));
    add("257 diagonals", matrix_where(600, 700, [](std::int64_t i, std::int64_t j) { return j >= i && j - i < 257; }));
    // More rows than are looked at for diagonals: of 16,384 every second one.
    add("a diagonal in an odd row", diagonal_and(16384, 16384, {8001}, {17}));
    add("a diagonal in an even row", diagonal_and(16384, 16384, {8000}, {17}));
    add("20,000 rows, 3 of them longer", diagonal_and(20000, 20011, {0, 0, 9999, 9999, 19999, 19999, 19999}, {3, 9, 0, 20000, 5, 20000, 20010}));
    add("all entries in odd rows", [] {
        std::vector<std::int64_t> lengths(16384, 0);
        for (std::size_t i = 1; i < lengths.size(); i += 2) lengths[i] = 2;
        return matrix_with_rows(lengths, 17000, 19);
    }());
    for (std::int64_t length : {255, 256, 257, 511, 512, 515}) {  // around the pieces that the device's warps read
        add(std::to_string(length) + " entries", matrix_with_rows({length / 3, 0, length - length / 3}, 601, static_cast<unsigned>(length)));
    }
    add("long block rows", matrix_with_rows(random_lengths(64, 500, 5000, 15), 20011, 15));
    // Runs of empty rows of all lengths around 32 between rows with one to three entries.
    std::vector<std::int64_t> gaps;
    for (std::int64_t gap = 0; gap < 70; ++gap) {
        gaps.insert(gaps.end(), static_cast<std::size_t>(gap), 0);
        gaps.push_back(1 + gap % 3);
    }
    gaps.insert(gaps.begin(), 100, 0);
    gaps.insert(gaps.end(), 1000, 0);
    add("gaps", matrix_with_rows(gaps, 97, 16));
    std::vector<std::int64_t> star(50000, 0);
    star[49000] = 40000;
    add("one row among empty ones", matrix_with_rows(star, 50021, 17));

    const auto a = matrix_with_rows(random_lengths(300, 0, 9, 18), 77, 18);
    add("constant", map_values(*a, [](double) { return -0.1; }));
    add("exact in bf16", map_values(*a, [](double v) { return v > 0 ? 1.5 : -255.0; }));
    add("exact in fp32", map_values(*a, [](double v) { return v > 0 ? 257.0 : 16777215.0; }));
    add("one value not exact", map_values(*a, [first = a->values()[0]](double v) { return v == first ? 0.1 : 1.0; }));
    return cases;
}

}  // namespace lsmr::test
