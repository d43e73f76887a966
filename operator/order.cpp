#include "operator/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "memory/error.hpp"

namespace lsmr {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<std::int32_t> iota(std::int64_t n) {
    std::vector<std::int32_t> order(at(n));
    std::iota(order.begin(), order.end(), 0);
    return order;
}

// Indices by key, and by index where keys are equal.
std::vector<std::int32_t> sorted_by(const std::vector<std::uint64_t>& keys) {
    std::vector<std::int32_t> order = iota(static_cast<std::int64_t>(keys.size()));
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t i, std::int32_t j) { return keys[at(i)] < keys[at(j)]; });
    return order;
}

using Points = std::vector<float>;  // kPoint a row or column
constexpr int kPoint = detail::kPoint;

// to[i] <- the mean of `from` over the entries of row i that count, zero where none does; weight[i] <- how many, where it is wanted.
void average(const CsrMatrix& a, std::int64_t longest, const Points& from, Points& to, std::vector<float>* weight) {
#pragma omp parallel for schedule(dynamic, 256)
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        float sum[kPoint] = {};
        const std::int64_t begin = a.offsets()[i];
        const std::int64_t end = a.offsets()[i + 1];
        if (end - begin <= longest) {
            for (std::int64_t k = begin; k < end; ++k) {
                const float* p = from.data() + std::int64_t{kPoint} * a.columns()[k];
                for (int c = 0; c < kPoint; ++c) sum[c] += p[c];
            }
        }
        for (int c = 0; c < kPoint; ++c) to[at(kPoint * i + c)] = sum[0] > 0 ? sum[c] / sum[0] : 0.0F;
        if (weight != nullptr) (*weight)[at(i)] = sum[0];
    }
}

void orthonormalise(Points& x, const std::vector<float>& weight) {
    constexpr std::int64_t kChunk = 4096;
    const auto n = static_cast<std::int64_t>(weight.size());
    const std::int64_t chunks = (n + kChunk - 1) / kChunk;
    std::vector<std::array<double, kPoint * kPoint>> partial(at(chunks));
#pragma omp parallel for schedule(static)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        auto& g = partial[at(chunk)];
        g.fill(0.0);
        for (std::int64_t j = chunk * kChunk; j < std::min(n, (chunk + 1) * kChunk); ++j) {
            const float* p = x.data() + kPoint * j;
            for (std::size_t r = 0; r < kPoint; ++r) {
                const double left = static_cast<double>(weight[at(j)]) * static_cast<double>(p[r]);
                for (std::size_t c = r; c < kPoint; ++c) g[r * kPoint + c] += left * static_cast<double>(p[c]);
            }
        }
    }
    std::array<double, kPoint * kPoint> gram{};
    for (const auto& g : partial) {
        for (std::size_t k = 0; k < gram.size(); ++k) gram[k] += g[k];
    }
    float t[kPoint * kPoint];
    double growth = 0;
    detail::orthonormalising(gram.data(), t, &growth);
#pragma omp parallel for schedule(static)
    for (std::int64_t j = 0; j < n; ++j) {
        float* p = x.data() + kPoint * j;
        float q[kPoint] = {};
        for (std::size_t r = 0; r < kPoint; ++r) {
            for (std::size_t c = r; c < kPoint; ++c) q[c] += p[r] * t[r * kPoint + c];
        }
        std::copy(q, q + kPoint, p);
    }
}

MatrixOrder spectral_order(const CsrMatrix& a, const CsrMatrix& transposed) {
    const std::int64_t m = a.rows();
    const std::int64_t n = a.cols();
    const std::int64_t longest_row = detail::longest_of_order(m, a.nnz());
    const std::int64_t longest_col = detail::longest_of_order(n, a.nnz());
    std::vector<float> weight(at(n));
    Points x(at(kPoint * n));
    Points y(at(kPoint * m));
    for (std::int64_t j = 0; j < n; ++j) {
        const bool counts = transposed.offsets()[j + 1] - transposed.offsets()[j] <= longest_col;
        for (int c = 0; c < kPoint; ++c) x[at(kPoint * j + c)] = counts ? detail::start_point(j, c) : 0.0F;
    }
    for (int round = 0; round < detail::kRounds; ++round) {
        average(a, longest_row, x, y, nullptr);
        average(transposed, longest_col, y, x, &weight);
        orthonormalise(x, weight);
    }
    average(a, longest_row, x, y, nullptr);

    // Ranks among columns and rows together, columns first where coordinates are equal.
    const std::int64_t count = n + m;
    std::vector<std::array<std::uint32_t, kPoint - 1>> ranks(at(count));
    std::vector<std::pair<float, std::int64_t>> line(at(count));
    for (int c = 1; c < kPoint; ++c) {
        for (std::int64_t i = 0; i < count; ++i) line[at(i)] = {i < n ? x[at(kPoint * i + c)] : y[at(kPoint * (i - n) + c)], i};
        std::sort(line.begin(), line.end());
        for (std::int64_t r = 0; r < count; ++r) ranks[at(line[at(r)].second)][at(c - 1)] = detail::short_rank(r, count);
    }
    // Those without a point come last.
    const auto keys = [&](std::int64_t first, const Points& points) {
        std::vector<std::uint64_t> all(points.size() / kPoint);
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(all.size()); ++i) {
            all[at(i)] = points[at(kPoint * i)] > 0 ? detail::morton_key(ranks[at(first + i)].data()) : ~std::uint64_t{0};
        }
        return all;
    };
    MatrixOrder order;
    order.kind = OrderKind::spectral;
    order.col = sorted_by(keys(0, x));
    order.row = sorted_by(keys(n, y));
    return order;
}

}  // namespace

namespace detail {

GatherShape make_shape(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const LocalityCounts& counts) {
    GatherShape shape{rows, cols, nnz};
    if (counts.entries == 0) return shape;
    shape.run_sectors = static_cast<double>(counts.run_sectors) / static_cast<double>(counts.entries);
    shape.window_sectors = static_cast<double>(counts.window_sectors) / static_cast<double>(counts.entries);
    return shape;
}

void orthonormalising(const double* gram, float* t, double* growth) {
    // Cholesky: G = L L^T, T = l_00 L^-T. A pivot that vanished beside its diagonal entry belongs to a coordinate that depends on those before.
    double l[kPoint][kPoint] = {};
    double inverse[kPoint][kPoint] = {};  // of L, lower triangular
    double sum = 0;
    int counted = 0;
    for (int j = 0; j < kPoint; ++j) {
        const double diagonal = gram[j * kPoint + j];
        double pivot = diagonal;
        for (int k = 0; k < j; ++k) pivot -= l[j][k] * l[j][k];
        const bool independent = pivot > 1e-10 * diagonal && pivot > 0;
        if (!independent) continue;  // row and column j of L stay zero
        l[j][j] = std::sqrt(pivot);
        if (j > 0) {
            sum += l[j][j];
            ++counted;
        }
        for (int i = j + 1; i < kPoint; ++i) {
            double v = gram[j * kPoint + i];
            for (int k = 0; k < j; ++k) v -= l[i][k] * l[j][k];
            l[i][j] = v / l[j][j];
        }
    }
    for (int j = 0; j < kPoint; ++j) {
        if (l[j][j] == 0) continue;
        inverse[j][j] = 1 / l[j][j];
        for (int i = j + 1; i < kPoint; ++i) {
            if (l[i][i] == 0) continue;
            double v = 0;
            for (int k = j; k < i; ++k) v -= l[i][k] * inverse[k][j];
            inverse[i][j] = v / l[i][i];
        }
    }
    for (int r = 0; r < kPoint; ++r) {
        for (int c = 0; c < kPoint; ++c) t[r * kPoint + c] = static_cast<float>(inverse[c][r] * l[0][0]);
    }
    *growth = counted > 0 && l[0][0] > 0 ? sum / counted / l[0][0] : 0.0;
}

bool lacks_structure(double growth, std::int64_t rows, std::int64_t cols, std::int64_t nnz) {
    if (nnz == 0) return true;
    const auto entries = static_cast<double>(nnz);
    const double singular = std::sqrt(static_cast<double>(rows) / entries) + std::sqrt(static_cast<double>(cols) / entries);
    // A round multiplies by the square of a singular value. Meshes of few entries a row have growths near 1.
    return growth < std::min(1.5 * singular * singular, 0.8);
}

}  // namespace detail

GatherShape gather_shape(const CsrMatrix& stored, int value_bytes) {
    detail::LocalityCounts counts;
    const std::int64_t samples = detail::locality_samples(stored.nnz());
    std::vector<std::int32_t> sectors;
    const auto distinct = [&](std::int64_t begin, std::int64_t end) {
        sectors.assign(stored.columns() + begin, stored.columns() + end);
        for (std::int32_t& sector : sectors) sector /= 32 / value_bytes;
        std::sort(sectors.begin(), sectors.end());
        return static_cast<unsigned long long>(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
    };
    for (std::int64_t s = 0; s < samples; ++s) {
        const std::int64_t begin = s * detail::locality_windows(stored.nnz()) / samples * kLocalityWindow;
        const std::int64_t end = std::min(begin + kLocalityWindow, stored.nnz());
        counts.entries += static_cast<unsigned long long>(end - begin);
        counts.window_sectors += distinct(begin, end);
        for (std::int64_t run = begin; run < end; run += 32) counts.run_sectors += distinct(run, std::min(run + 32, end));
    }
    return detail::make_shape(stored.rows(), stored.cols(), stored.nnz(), counts);
}

std::uint64_t MatrixOrder::hash() const {
    std::uint64_t h = 0xcbf29ce484222325U;
    for (const auto* part : {&row, &col}) {
        for (const std::int32_t i : *part) h = (h ^ static_cast<std::uint32_t>(i)) * 0x100000001b3U;
        h = (h ^ part->size()) * 0x100000001b3U;
    }
    return h;
}

std::vector<double> ordered(const std::vector<std::int32_t>& order, std::span<const double> values) {
    std::vector<double> to(values.size());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) to[at(i)] = values[at(source(order, i))];
    return to;
}

std::vector<std::int32_t> inverse_order(const std::vector<std::int32_t>& order) {
    std::vector<std::int32_t> inverse(order.size());
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(order.size()); ++i) inverse[at(order[at(i)])] = static_cast<std::int32_t>(i);
    return inverse;
}

CsrMatrix permuted(const CsrMatrix& a, const std::vector<std::int32_t>& row, const std::vector<std::int32_t>& col) {
    const auto fits = [](const std::vector<std::int32_t>& order, std::int64_t n) { return order.empty() || static_cast<std::int64_t>(order.size()) == n; };
    if (!fits(row, a.rows()) || !fits(col, a.cols())) {
        throw InputError(fmt::format("order: it has {} rows and {} columns, the matrix is {} x {}", row.size(), col.size(), a.rows(), a.cols()));
    }
    const std::vector<std::int32_t> to = inverse_order(col);
    const auto from_row = [&](std::int64_t i) { return source(row, i); };
    HostBuffer<std::int64_t> offsets(a.rows() + 1);
    offsets[0] = 0;
    for (std::int64_t i = 0; i < a.rows(); ++i) offsets[i + 1] = offsets[i] + a.offsets()[from_row(i) + 1] - a.offsets()[from_row(i)];
    HostBuffer<std::int32_t> columns(a.nnz());
    HostBuffer<double> values(a.nnz());
#pragma omp parallel
    {
        std::vector<std::pair<std::int32_t, double>> entries;
#pragma omp for schedule(dynamic, 1024)
        for (std::int64_t i = 0; i < a.rows(); ++i) {
            const std::int64_t from = a.offsets()[from_row(i)];
            const std::int64_t length = offsets[i + 1] - offsets[i];
            if (to.empty()) {
                std::copy(a.columns() + from, a.columns() + from + length, columns.data() + offsets[i]);
                std::copy(a.values() + from, a.values() + from + length, values.data() + offsets[i]);
                continue;
            }
            entries.clear();
            for (std::int64_t k = from; k < from + length; ++k) entries.emplace_back(to[at(a.columns()[k])], a.values()[k]);
            std::sort(entries.begin(), entries.end(), [](const auto& p, const auto& q) { return p.first < q.first; });
            for (std::int64_t k = 0; k < length; ++k) {
                columns[offsets[i] + k] = entries[at(k)].first;
                values[offsets[i] + k] = entries[at(k)].second;
            }
        }
    }
    return CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(columns), std::move(values));
}

MatrixOrder make_order(OrderKind kind, const CsrMatrix& a, const CsrMatrix& transposed) {
    LSMR_EXPECT(kind != OrderKind::automatic && kind != OrderKind::none);
    const bool symmetric = a.rows() == a.cols() && std::equal(a.offsets(), a.offsets() + a.rows() + 1, transposed.offsets()) &&
                           std::equal(a.columns(), a.columns() + a.nnz(), transposed.columns());
    if (kind == OrderKind::spectral) {
        MatrixOrder order = spectral_order(a, transposed);
        if (symmetric) order.row = order.col;
        return order;
    }
    std::vector<std::uint64_t> keys(at(a.rows()));
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        keys[at(i)] = detail::row_key(kind, a.columns() + a.offsets()[i], a.offsets()[i + 1] - a.offsets()[i]);
    }
    MatrixOrder order;
    order.kind = kind;
    order.row = sorted_by(keys);
    if (symmetric) order.col = order.row;
    return order;
}

}  // namespace lsmr
