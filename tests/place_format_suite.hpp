// What must hold of the formats with places that hold no entry, on any backend: products, the same bits again, and a non-finite x that reaches
// only the rows with an entry there.
#pragma once

#include <string>
#include <vector>

#include "operator/spmv_choice.hpp"
#include "operator_suite.hpp"

namespace lsmr::test::products {

// Shapes at edges, but for those of many places.
inline std::vector<ShapeCase> small_cases() {
    std::vector<ShapeCase> cases = shape_cases();
    std::erase_if(cases, [](const ShapeCase& shape) { return shape.a->rows() * shape.a->cols() > 2000000; });
    return cases;
}

// Block rows of 0 to `most` blocks of r x c at scattered places; of each block the entries with hash % 8 < eighths, never none; the last block row
// and block column ragged by one.
inline std::shared_ptr<const CsrMatrix> block_matrix(std::int64_t r, std::int64_t c, std::int64_t block_rows, std::int64_t block_cols, std::int64_t most,
                                                     std::uint64_t eighths, std::uint64_t seed) {
    const std::int64_t rows = std::max<std::int64_t>(block_rows * r - 1, 1), cols = std::max<std::int64_t>(block_cols * c - 1, 1);
    std::mt19937_64 random(seed);
    std::vector<std::int64_t> i, j;
    for (std::int64_t block_row = 0; block_row < block_rows; ++block_row) {
        const auto blocks = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(std::min(most, block_cols) + 1));
        const auto first = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(block_cols));
        for (std::int64_t b = 0; b < blocks; ++b) {
            const std::int64_t block_col = (first + b * b) % block_cols;  // some come twice: their entries are added
            for (std::int64_t place = 0; place < r * c; ++place) {
                const std::int64_t row = block_row * r + place / c, col = block_col * c + place % c;
                if (row < rows && col < cols && (place == 0 || random() % 8 < eighths)) {
                    i.push_back(row);
                    j.push_back(col);
                }
            }
        }
    }
    return share(CsrMatrix::from_coo(rows, cols, i, j, random_vector(static_cast<std::int64_t>(i.size()), seed + 1)));
}

inline std::vector<ShapeCase> block_cases(const SpmvChoice& choice) {
    const std::int64_t r = choice.block_rows, c = choice.block_cols;
    return {{"full blocks", block_matrix(r, c, 70, 41, 9, 8, 101)},
            {"blocks with gaps", block_matrix(r, c, 33, 90, 30, 5, 102)},
            {"few entries a block", block_matrix(r, c, 300, 57, 3, 1, 103)},
            {"long block rows", block_matrix(r, c, 5, 700, 400, 8, 104)}};
}

// Diagonals: full ones and some with gaps, wide and tall, beyond the corners.
inline std::vector<ShapeCase> band_cases() {
    const auto band = [](std::int64_t rows, std::int64_t cols, const std::vector<std::int64_t>& offsets, std::int64_t gap) {
        std::vector<std::int64_t> i, j;
        for (std::int64_t row = 0; row < rows; ++row) {
            for (const std::int64_t offset : offsets) {
                const std::int64_t col = row + offset;
                if (col < 0 || col >= cols || (gap > 0 && (row + 3 * offset + 3000) % gap == 0)) continue;
                i.push_back(row);
                j.push_back(col);
            }
        }
        return share(CsrMatrix::from_coo(rows, cols, i, j, random_vector(static_cast<std::int64_t>(i.size()), 7)));
    };
    std::vector<std::int64_t> all;
    for (std::int64_t d = -128; d < 128; ++d) all.push_back(d);
    return {{"0x0", share(CsrMatrix::from_coo(0, 0, {}, {}, {}))},
            {"0x5", share(CsrMatrix::from_coo(0, 5, {}, {}, {}))},
            {"5x0", share(CsrMatrix::from_coo(5, 0, {}, {}, {}))},
            {"7x3 empty", share(CsrMatrix::from_coo(7, 3, {}, {}, {}))},
            {"1x1", band(1, 1, {0}, 0)},
            {"tridiagonal", band(257, 257, {-1, 0, 1}, 0)},
            {"five points", band(3000, 3000, {-50, -1, 0, 1, 50}, 0)},
            {"27 diagonals with gaps", band(2111, 2300, {-111, -110, -109, -11, -10, -9, -1, 0, 1, 9, 10, 11, 109, 110, 111, 210, 211, 212, 310, 311, 312,
                                                       400, 401, 402, 500, 501, 502}, 7)},
            {"tall", band(900, 33, {-800, -300, -1, 0, 5, 32}, 0)},
            {"wide", band(31, 1000, {-30, 0, 1, 500, 968, 999}, 2)},
            {"as many as there may be", band(400, 411, all, 5)}};
}

enum class Absent { skipped, zero };  // what a place without an entry does

// A non-finite element of x: rows without an entry there stay finite.
template <class T>
void check_nonfinite(const CsrMatrix& a, Rig<T>& rig) {
    for (const bool adjoint : {false, true}) {
        const CsrMatrix op = adjoint ? a.transposed() : a.clone();
        for (const std::int64_t place : {std::int64_t{0}, op.cols() / 2, op.cols() - 1}) {
            if (op.cols() == 0) continue;
            CAPTURE(adjoint);
            CAPTURE(place);
            for (const T special : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
                auto x = narrow<T>(random_vector(op.cols(), 92));
                x[static_cast<std::size_t>(place)] = special;
                std::vector<T> y(static_cast<std::size_t>(op.rows()));
                rig.product(adjoint, 1.0, x, 0.0, y, false);
                for (std::int64_t i = 0; i < op.rows(); ++i) {
                    const auto* end = op.columns() + op.offsets()[i + 1];
                    const bool uses = std::find(op.columns() + op.offsets()[i], end, place) != end;
                    if (std::isfinite(y[static_cast<std::size_t>(i)]) == uses) {
                        CAPTURE(i);
                        CHECK(std::isfinite(y[static_cast<std::size_t>(i)]) != uses);
                        return;
                    }
                }
            }
        }
    }
}

template <class T>
void suite_format(MakeRig<T> make, const OperatorOptions& options, const std::vector<ShapeCase>& cases, Absent absent = Absent::skipped,
                  Values values = Values::full_mantissa) {
    for (const ShapeCase& shape : cases) {
        CAPTURE(shape.name);
        const auto a = values == Values::exact_in_fp32 ? rounded_to_fp32(*shape.a) : shape.a;
        const auto rig = make(a, options);
        REQUIRE(rig->plan().forward.find(text(*options.forward) + " (") == 0);
        REQUIRE(rig->plan().adjoint.find(text(*options.adjoint) + " (") == 0);
        for (const bool adjoint : {false, true}) {
            CAPTURE(adjoint);
            const auto x = narrow<T>(random_vector(adjoint ? a->rows() : a->cols(), 21));
            const auto out = adjoint ? a->cols() : a->rows();
            for (const double b : {0.0, -0.5}) {
                CAPTURE(b);
                auto y0 = narrow<T>(random_vector(out, 22));
                if (b == 0) std::fill(y0.begin(), y0.end(), std::numeric_limits<T>::quiet_NaN());
                auto y = y0;
                const double squares = rig->product(adjoint, 1.75, x, b, y, false);
                check_product(*a, adjoint, 1.75, x, b, y0, y, squares);
                for (int repeat = 0; repeat < 4; ++repeat) {  // the same bits; our kernels' from vectors that are not aligned too
                    auto again = y0;
                    const bool misalign = repeat % 2 == 1;
                    const double again_squares = rig->product(adjoint, 1.75, x, b, again, misalign);
                    if (misalign && absent == Absent::zero) {
                        check_product(*a, adjoint, 1.75, x, b, y0, again, again_squares);
                    } else {
                        REQUIRE(again_squares == squares);
                        REQUIRE(again == y);
                    }
                }
            }
        }
        if (absent == Absent::skipped) check_nonfinite(*a, *rig);
    }
}

}  // namespace lsmr::test::products
