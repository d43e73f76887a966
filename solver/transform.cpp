#include "solver/transform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory/error.hpp"
#include "solver/power_of_two.hpp"
#include "solver/solve.hpp"

namespace lsmr {
namespace {

// A row or column is scaled up by at most 2^60: its norm then lies that far below the largest, and D^2 is finite in fp32.
constexpr int kMostDoublings = 60;

double at(const std::vector<double>& scale, std::int64_t i) { return scale.empty() ? 1.0 : scale[static_cast<std::size_t>(i)]; }

void check_values(std::span<const double> values, std::int64_t expected, const char* what, const char* of, const CsrMatrix& a) {
    if (static_cast<std::int64_t>(values.size()) != expected) {
        throw InputError(
            fmt::format("{}: {} values, A is {} x {}: one for each {} is needed", what, values.size(), a.rows(), a.cols(), of));
    }
    check_finite(values, what);
    const auto negative = std::find_if(values.begin(), values.end(), [](double v) { return v < 0; });
    if (negative != values.end()) {
        throw InputError(fmt::format("{}: entry {} is {}, not at least 0", what, negative - values.begin() + 1, *negative));
    }
}

// f(i, j, value) for every entry.
template <class F>
void for_each_entry(const CsrMatrix& a, const F& f) {
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) f(i, a.columns()[k], a.values()[k]);
    }
}

// The matrix with rows and columns scaled.
CsrMatrix scaled(const CsrMatrix& a, const std::vector<double>& rows, const std::vector<double>& cols) {
    HostBuffer<std::int64_t> offsets(a.rows() + 1);
    HostBuffer<std::int32_t> columns(a.nnz());
    HostBuffer<double> values(a.nnz());
    std::copy(a.offsets(), a.offsets() + a.rows() + 1, offsets.data());
    std::copy(a.columns(), a.columns() + a.nnz(), columns.data());
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k)
            values.data()[k] = at(rows, i) * a.values()[k] * at(cols, columns.data()[k]);
    }
    return CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(columns), std::move(values));
}

// Powers of two that bring norms near the largest one: 2^(K - k) for norms near 2^k. squares: of the norms, over unit^2; 0: an empty line.
std::vector<double> evening_scale(const std::vector<double>& squares) {
    std::vector<int> exponents(squares.size(), 0);
    bool any = false;
    int largest = 0;
    for (std::size_t j = 0; j < squares.size(); ++j) {
        if (!(squares[j] > 0)) continue;
        exponents[j] = static_cast<int>(std::lround(0.5 * std::log2(squares[j])));
        largest = any ? std::max(largest, exponents[j]) : exponents[j];
        any = true;
    }
    std::vector<double> scale(squares.size(), 1.0);
    for (std::size_t j = 0; j < squares.size(); ++j) {
        if (squares[j] > 0) scale[j] = std::ldexp(1.0, std::min(largest - exponents[j], kMostDoublings));
    }
    return scale;
}

// G: the rows of the column dampings, then weight L. Null where there is neither.
std::shared_ptr<const CsrMatrix> make_regulariser(const CsrMatrix& a, const PrepareOptions& options) {
    const CsrMatrix* l = options.regulariser.get();
    if (l != nullptr && l->cols() != a.cols()) {
        throw InputError(
            fmt::format("regulariser: it is {} x {}, A is {} x {}: both need as many columns", l->rows(), l->cols(), a.rows(), a.cols()));
    }
    if (!(options.regulariser_weight >= 0) || std::isinf(options.regulariser_weight)) {
        throw InputError(fmt::format("regulariser: the weight is {}, not a finite number of at least 0", options.regulariser_weight));
    }
    if (!options.column_damp.empty()) check_values(options.column_damp, a.cols(), "column damping", "column", a);
    CsrBuilder builder;
    std::int32_t rows = 0;
    for (std::size_t j = 0; j < options.column_damp.size(); ++j) {
        if (options.column_damp[j] > 0) builder.add(rows++, static_cast<std::int32_t>(j), options.column_damp[j]);
    }
    if (l != nullptr && options.regulariser_weight > 0) {
        if (rows + l->rows() > kMaxDimension) throw InputError("regulariser: it has too many rows");
        for_each_entry(*l, [&](std::int64_t i, std::int32_t j, double value) {
            builder.add(rows + static_cast<std::int32_t>(i), j, options.regulariser_weight * value);
        });
        rows += static_cast<std::int32_t>(l->rows());
    }
    if (rows == 0) return nullptr;
    return std::make_shared<const CsrMatrix>(builder.build(rows, a.cols()));
}

std::vector<double> row_scale(const CsrMatrix& a, const PrepareOptions& options) {
    std::vector<double> scale;
    if (!options.weights.empty()) {
        check_values(options.weights, a.rows(), "weights", "row", a);
        scale.assign(options.weights.begin(), options.weights.end());
        for (double& s : scale) s = std::sqrt(s);
    }
    if (options.scale != Scaling::rows && options.scale != Scaling::both) return scale;
    double largest = 0;
    for_each_entry(a, [&](std::int64_t i, std::int64_t, double value) { largest = std::max(largest, std::abs(value) * at(scale, i)); });
    std::vector<double> squares(static_cast<std::size_t>(a.rows()), 0.0);
    if (largest > 0) {
        for_each_entry(a, [&](std::int64_t i, std::int64_t, double value) {
            const double v = value * at(scale, i) / largest;
            squares[static_cast<std::size_t>(i)] += v * v;
        });
    }
    std::vector<double> even = evening_scale(squares);
    for (std::size_t i = 0; i < even.size(); ++i) even[i] *= at(scale, static_cast<std::int64_t>(i));
    return even;
}

}  // namespace

CsrMatrix diagonal_matrix(std::span<const double> values) {
    const auto n = static_cast<std::int64_t>(values.size());
    HostBuffer<std::int64_t> offsets(n + 1);
    HostBuffer<std::int32_t> columns(n);
    HostBuffer<double> entries(n);
    for (std::int64_t i = 0; i <= n; ++i) offsets.data()[i] = i;
    for (std::int64_t i = 0; i < n; ++i) {
        columns.data()[i] = static_cast<std::int32_t>(i);
        entries.data()[i] = values[static_cast<std::size_t>(i)];
    }
    return CsrMatrix::from_csr(n, n, std::move(offsets), std::move(columns), std::move(entries));
}

Transform make_transform(std::shared_ptr<const CsrMatrix> a, const PrepareOptions& options, Sizing sizing) {
    Transform t;
    t.row_scale = row_scale(*a, options);
    t.g = make_regulariser(*a, options);
    const bool scales_columns = options.scale == Scaling::columns || options.scale == Scaling::both;
    if (t.row_scale.empty() && !t.g && !scales_columns) {
        // As it is: nothing needs the columns' sums below, which take longer than the matrix does to the GPU.
        t.a = std::move(a);
        t.sized = sizing == Sizing::at_once;
        if (!t.sized) return t;
        const EntrySizes sizes = entry_sizes(*t.a);
        t.max_abs = sizes.max_abs;
        t.data_frobenius = t.claim_frobenius = sizes.frobenius;
        return t;
    }

    double largest = 0;
    for_each_entry(*a,
                   [&](std::int64_t i, std::int64_t, double value) { largest = std::max(largest, std::abs(value) * at(t.row_scale, i)); });
    if (t.g) largest = std::max(largest, max_abs_value(*t.g));
    if (std::isinf(largest)) throw InputError("weights: an entry of A times the root of its weight is beyond the range of doubles");
    // Squares of entries over the largest: they neither overflow nor all vanish.
    const double unit = largest > 0 ? largest : 1.0;
    double data = 0;
    double regularising = 0;
    std::vector<double> columns(static_cast<std::size_t>(a->cols()), 0.0);
    for_each_entry(*a, [&](std::int64_t i, std::int32_t j, double value) {
        const double v = value * at(t.row_scale, i) / unit;
        data += v * v;
        columns[static_cast<std::size_t>(j)] += v * v;
    });
    if (t.g) {
        for_each_entry(*t.g, [&](std::int64_t, std::int32_t j, double value) {
            const double v = value / unit;
            regularising += v * v;
            columns[static_cast<std::size_t>(j)] += v * v;
        });
    }
    t.data_frobenius = std::sqrt(data) * unit;
    t.claim_frobenius = std::sqrt(data + regularising) * unit;
    if (scales_columns) t.column_scale = evening_scale(columns);

    t.a = t.row_scale.empty() && t.column_scale.empty() ? a : std::make_shared<const CsrMatrix>(scaled(*a, t.row_scale, t.column_scale));
    if (t.g) t.below = t.column_scale.empty() ? t.g : std::make_shared<const CsrMatrix>(scaled(*t.g, {}, t.column_scale));
    t.max_abs = std::max(max_abs_value(*t.a), t.below ? max_abs_value(*t.below) : 0.0);
    return t;
}

std::vector<double> Transform::right_side(std::span<const double> b, std::span<const double> c) const {
    std::vector<double> all(b.begin(), b.end());
    for (std::size_t i = 0; i < row_scale.size(); ++i) all[i] *= row_scale[i];
    if (!g) return all;
    const std::size_t m = all.size();
    all.resize(m + static_cast<std::size_t>(g->rows()), 0.0);
    if (!c.empty()) {
        for_each_entry(*g, [&](std::int64_t i, std::int32_t j, double value) {
            all[m + static_cast<std::size_t>(i)] += value * c[static_cast<std::size_t>(j)];
        });
    }
    return all;
}

}  // namespace lsmr
