#include "solver/preconditioner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory/error.hpp"
#include "solver/power_of_two.hpp"

namespace lsmr {
namespace {

// One symmetric block, n x n, and its factors: row-major, only what is named is valid.
struct Block {
    std::int64_t n = 0;
    std::vector<double> b;  // the block, full
    std::vector<double> k;  // L^-T, upper triangular

    double& at(std::vector<double>& m, std::int64_t i, std::int64_t j) { return m[static_cast<std::size_t>(i * n + j)]; }

    // L L^T = B + E into `l`, E a diagonal that is zero but where a column depends on those before it, to rounding: there it holds the
    // square of the column's norm, 1 for an empty one. Returns how many such columns there are. Whatever E holds, A K has a singular value 1
    // for each of the other columns and 0 for these. The larger E, the smaller K, which multiplies the rounding in A^T r along the null space.
    std::int64_t factor(std::vector<double>& l) {
        const double least = 1e-14 * static_cast<double>(n);  // of the squared norm
        std::int64_t dependent = 0;
        l.assign(static_cast<std::size_t>(n * n), 0.0);
        for (std::int64_t j = 0; j < n; ++j) {
            const double own = at(b, j, j);
            double pivot = own;
            for (std::int64_t p = 0; p < j; ++p) pivot -= at(l, j, p) * at(l, j, p);
            if (!(pivot > least * own)) {
                pivot = own > 0 ? own : 1.0;
                dependent += own > 0;
            }
            at(l, j, j) = std::sqrt(std::max(pivot, kLeastSquaredNorm));
            for (std::int64_t i = j + 1; i < n; ++i) {
                double sum = at(b, i, j);
                for (std::int64_t p = 0; p < j; ++p) sum -= at(l, i, p) * at(l, j, p);
                at(l, i, j) = sum / at(l, j, j);
            }
        }
        return dependent;
    }

    // K; returns whether columns depend on others.
    bool invert() {
        k.assign(static_cast<std::size_t>(n * n), 0.0);
        std::vector<double> l;
        const bool dependent = factor(l) > 0;
        // Row i of L^-1, by forward substitution; K = L^-T.
        for (std::int64_t j = 0; j < n; ++j) {
            for (std::int64_t i = j; i < n; ++i) {
                double sum = i == j ? 1.0 : 0.0;
                for (std::int64_t p = j; p < i; ++p) sum -= at(l, i, p) * at(k, j, p);
                at(k, j, i) = sum / at(l, i, i);
            }
        }
        return dependent;
    }
};

}  // namespace

std::int64_t ColumnBlocks::largest() const {
    std::int64_t most = 0;
    for (std::size_t b = 0; b + 1 < begins.size(); ++b) most = std::max(most, begins[b + 1] - begins[b]);
    return most;
}

ColumnBlocks detect_blocks(const CsrMatrix& a) {
    const CsrMatrix t = a.transposed();
    ColumnBlocks blocks;
    blocks.begins.push_back(0);
    const auto same_rows = [&t](std::int64_t i, std::int64_t j) {
        const std::int64_t* o = t.offsets();
        return std::equal(t.columns() + o[i], t.columns() + o[i + 1], t.columns() + o[j], t.columns() + o[j + 1]);
    };
    for (std::int64_t j = 1; j < t.rows(); ++j) {
        if (!same_rows(j - 1, j) || j - blocks.begins.back() == kLargestBlock) blocks.begins.push_back(j);
    }
    if (t.rows() > 0) blocks.begins.push_back(t.rows());
    return blocks;
}

ColumnBlocks even_blocks(std::int64_t cols, std::int64_t size) {
    if (size < 1 || size > kLargestBlock) throw InputError("blocks must hold 1 to 32 columns, not " + std::to_string(size));
    ColumnBlocks blocks;
    for (std::int64_t j = 0; j < cols; j += size) blocks.begins.push_back(j);
    blocks.begins.push_back(cols);
    return blocks;
}

int largest_exponent(const CsrMatrix& a, const CsrMatrix* below, const std::vector<double>& column_scale, double damp) {
    const double largest = std::max(max_abs_value(a), below != nullptr ? max_abs_value(*below) : 0.0);
    return binary_exponent(std::max(largest, damp * (column_scale.empty() ? 1.0 : *std::max_element(column_scale.begin(), column_scale.end()))));
}

BlockPreconditioner make_block_preconditioner(const CsrMatrix& a, const CsrMatrix* below, const std::vector<double>& column_scale,
                                              double damp, const ColumnBlocks& blocks) {
    BlockPreconditioner p;
    p.exponent = largest_exponent(a, below, column_scale, damp);
    const PowerOfTwo scale(-p.exponent);
    const std::int64_t cols = a.cols();
    std::vector<std::int32_t> block_of(static_cast<std::size_t>(cols));
    std::vector<Block> list(static_cast<std::size_t>(blocks.count()));
    for (std::size_t b = 0; b < list.size(); ++b) {
        list[b].n = blocks.begins[b + 1] - blocks.begins[b];
        list[b].b.assign(static_cast<std::size_t>(list[b].n * list[b].n), 0.0);
        for (std::int64_t j = blocks.begins[b]; j < blocks.begins[b + 1]; ++j)
            block_of[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(b);
    }
    // Rows ascend in columns, so the entries of a block stand together.
    for (const CsrMatrix* part : {&a, below}) {
        if (part == nullptr) continue;
        for (std::int64_t i = 0; i < part->rows(); ++i) {
            std::int64_t first = part->offsets()[i];  // of the block's entries in this row
            for (std::int64_t k = first; k < part->offsets()[i + 1]; ++k) {
                const auto b = static_cast<std::size_t>(block_of[static_cast<std::size_t>(part->columns()[k])]);
                const std::int64_t begin = blocks.begins[b];
                const double value = scale(part->values()[k]);
                while (part->columns()[first] < begin) ++first;
                for (std::int64_t other = first; other <= k; ++other) {
                    list[b].at(list[b].b, part->columns()[k] - begin, part->columns()[other] - begin) +=
                        value * scale(part->values()[other]);
                }
            }
        }
    }
    CsrBuilder builder;
    double a_k2 = 0;
    double d_k2 = 0;
    for (std::size_t b = 0; b < list.size(); ++b) {
        Block& block = list[b];
        const std::int64_t n = block.n;
        for (std::int64_t i = 0; i < n; ++i) {
            for (std::int64_t j = 0; j < i; ++j) block.at(block.b, j, i) = block.at(block.b, i, j);
        }
        const std::vector<double> gram = block.b;
        for (std::int64_t i = 0; i < n; ++i) {
            const auto j = static_cast<std::size_t>(blocks.begins[b] + i);
            const double d = scale(damp) * (column_scale.empty() ? 1.0 : column_scale[j]);
            block.at(block.b, i, i) += d * d;
        }
        p.singular += block.invert();
        // ||A K_b||_F^2 = sum over columns k of K of k^T (A^T A)_b k.
        for (std::int64_t c = 0; c < n; ++c) {
            for (std::int64_t i = 0; i <= c; ++i) {
                const double ki = block.at(block.k, i, c);
                double sum = 0;
                for (std::int64_t j = 0; j <= c; ++j) sum += gram[static_cast<std::size_t>(i * n + j)] * block.at(block.k, j, c);
                a_k2 += ki * sum;
            }
        }
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t row = blocks.begins[b] + i;
            const double d = column_scale.empty() ? 1.0 : column_scale[static_cast<std::size_t>(row)];
            for (std::int64_t c = i; c < n; ++c) {
                const double value = block.at(block.k, i, c);
                builder.add(static_cast<std::int32_t>(row), static_cast<std::int32_t>(blocks.begins[b] + c), value);
                d_k2 += d * value * d * value;
            }
        }
    }
    p.k = builder.build(cols, cols);
    p.frobenius = std::sqrt(std::max(a_k2, 0.0));
    p.scaled_frobenius = std::sqrt(d_k2);
    return p;
}

BlockPreconditioner given_preconditioner(const CsrMatrix& k, const CsrMatrix& a, const std::vector<double>& column_scale, int exponent) {
    if (k.rows() != a.cols() || k.cols() != a.cols()) {
        throw InputError("preconditioner: K is " + std::to_string(k.rows()) + " x " + std::to_string(k.cols()) + ", A is " +
                         std::to_string(a.rows()) + " x " + std::to_string(a.cols()) + ": a row and a column for each column of A are needed");
    }
    BlockPreconditioner p;
    CsrBuilder builder;
    double d_k2 = 0;
    // Entries near 1, as those of A are in the iteration.
    const int k_exponent = binary_exponent(max_abs_value(k));
    const PowerOfTwo scale(-k_exponent);
    for (std::int64_t i = 0; i < k.rows(); ++i) {
        for (std::int64_t e = k.offsets()[i]; e < k.offsets()[i + 1]; ++e) {
            const double value = scale(k.values()[e]);
            builder.add(static_cast<std::int32_t>(i), k.columns()[e], value / (column_scale.empty() ? 1.0 : column_scale[static_cast<std::size_t>(i)]));
            d_k2 += value * value;
        }
    }
    p.k = builder.build(k.rows(), k.cols());
    p.exponent = exponent - k_exponent;
    p.frobenius = -1;
    p.scaled_frobenius = std::sqrt(d_k2);
    return p;
}

}  // namespace lsmr
