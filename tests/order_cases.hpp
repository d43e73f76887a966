// Matrices for the tests of orders.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "operator/order.hpp"
#include "support/problems.hpp"

namespace lsmr::test {

inline std::vector<std::int32_t> shuffled_lines(std::int64_t n, std::uint64_t seed) {
    std::vector<std::int32_t> order(index(n));
    std::iota(order.begin(), order.end(), 0);
    Random random(seed);
    for (std::int64_t i = n - 1; i > 0; --i) std::swap(order[index(i)], order[index(random.below(i + 1))]);
    return order;
}

// 27 neighbours of each point of an n^3 grid.
inline Matrix stencil(std::int64_t n) {
    HostBuffer<std::int64_t> offsets(n * n * n + 1);
    std::vector<std::int32_t> columns;
    offsets[0] = 0;
    for (std::int64_t p = 0; p < n * n * n; ++p) {
        const std::int64_t x = p % n, y = p / n % n, z = p / n / n;
        for (std::int64_t c = std::max<std::int64_t>(z - 1, 0); c <= std::min(z + 1, n - 1); ++c) {
            for (std::int64_t b = std::max<std::int64_t>(y - 1, 0); b <= std::min(y + 1, n - 1); ++b) {
                for (std::int64_t a = std::max<std::int64_t>(x - 1, 0); a <= std::min(x + 1, n - 1); ++a)
                    columns.push_back(static_cast<std::int32_t>((c * n + b) * n + a));
            }
        }
        offsets[p + 1] = static_cast<std::int64_t>(columns.size());
    }
    HostBuffer<std::int32_t> column_buffer(offsets[n * n * n]);
    HostBuffer<double> values(offsets[n * n * n]);
    for (std::int64_t k = 0; k < values.size(); ++k) {
        column_buffer[k] = columns[index(k)];
        values[k] = 1 + static_cast<double>(k % 7);
    }
    return std::make_shared<const CsrMatrix>(CsrMatrix::from_csr(n * n * n, n * n * n, std::move(offsets), std::move(column_buffer), std::move(values)));
}
inline Matrix shuffled(const Matrix& a, std::uint64_t seed) {
    return std::make_shared<const CsrMatrix>(permuted(*a, shuffled_lines(a->rows(), seed), shuffled_lines(a->cols(), seed + 1)));
}
// Rows in random order, each with a patch of `side` x `side` columns of a grid x grid.
inline Matrix patches(std::int64_t rows, std::int64_t grid, std::int64_t side, std::uint64_t seed) {
    Random random(seed);
    Triplets t{rows, grid * grid, {}, {}, {}};
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t x = random.below(grid - side + 1), y = random.below(grid - side + 1);
        for (std::int64_t q = 0; q < side; ++q) {
            for (std::int64_t p = 0; p < side; ++p) t.add(i, (y + q) * grid + x + p, random());
        }
    }
    return t.matrix();
}

// Shapes that orders could stumble over.
inline std::vector<Matrix> odd_matrices() {
    Triplets holes{9, 7, {}, {}, {}};  // empty rows and columns, the first and the last among them
    holes.add(1, 5, 2);
    holes.add(1, 2, -1);
    holes.add(4, 2, 3);
    holes.add(7, 1, 1);
    Triplets blocks{8, 6, {}, {}, {}};  // not connected
    for (std::int64_t k = 0; k < 6; ++k) {
        blocks.add(k, (5 * k) % 6, 1 + static_cast<double>(k));
        blocks.add(k, (5 * (k ^ 1)) % 6, 1);
    }
    return {zero_matrix(0, 0), zero_matrix(0, 3), zero_matrix(3, 0), zero_matrix(4, 5), matrix_of(1, 1, {3}), matrix_of(1, 4, {1, 2, 0, 3}),
            matrix_of(4, 1, {1, 0, 2, 3}), holes.matrix(), blocks.matrix(), random_sparse(3, 40, 5, 801), random_sparse(40, 3, 2, 802)};
}

inline constexpr OrderKind kOrders[] = {OrderKind::length, OrderKind::first, OrderKind::median, OrderKind::spectral};

inline bool is_permutation_of(const std::vector<std::int32_t>& order, std::int64_t n) {
    std::vector<std::int32_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::int32_t> all(index(n));
    std::iota(all.begin(), all.end(), 0);
    return sorted == all;
}

}  // namespace lsmr::test
