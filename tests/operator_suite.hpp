// What must hold of every matrix operator: products in both directions against plain loops in long double, on any backend.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "operator/matrix_operator.hpp"
#include "operator/profile.hpp"

namespace lsmr::test::products {

// A backend under test: products with vectors given and taken in host memory.
template <class T>
class Rig {
  public:
    virtual ~Rig() = default;
    // y <- a op(A) x + b y; returns ||y||^2 from the partials. misalign: the device vectors start one element past an aligned address.
    virtual double product(bool adjoint, double a, const std::vector<T>& x, double b, std::vector<T>& y, bool misalign = false) = 0;
    virtual const OperatorPlan& plan() const = 0;
};

template <class T>
using MakeRig = std::unique_ptr<Rig<T>> (*)(std::shared_ptr<const CsrMatrix>, const OperatorOptions&);

// Uniform in (-1, 1), full mantissa.
inline std::vector<double> random_vector(std::int64_t n, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::vector<double> v(static_cast<std::size_t>(n));
    for (double& value : v) value = static_cast<double>(static_cast<std::int64_t>(generator() >> 11)) * 0x1p-52 - 1.0;
    return v;
}

inline std::shared_ptr<const CsrMatrix> share(CsrMatrix a) { return std::make_shared<const CsrMatrix>(std::move(a)); }

// A with f(value) for each value.
template <class F>
std::shared_ptr<const CsrMatrix> with_values(const CsrMatrix& a, const F& f) {
    HostBuffer<std::int64_t> offsets(a.rows() + 1);
    HostBuffer<std::int32_t> columns(a.nnz());
    HostBuffer<double> values(a.nnz());
    std::copy(a.offsets(), a.offsets() + a.rows() + 1, offsets.data());
    std::copy(a.columns(), a.columns() + a.nnz(), columns.data());
    std::transform(a.values(), a.values() + a.nnz(), values.data(), f);
    return share(CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(columns), std::move(values)));
}

// A diagonal matrix, and one of the same shape and number of entries, on more diagonals than are stored as such.
struct DiagonalAndScattered {
    std::shared_ptr<const CsrMatrix> diagonal, scattered;
};
inline DiagonalAndScattered diagonal_and_scattered() {
    constexpr std::int64_t n = 2 * kDiagonalCap;
    std::vector<std::int64_t> along(static_cast<std::size_t>(n)), columns;
    std::iota(along.begin(), along.end(), 0);
    for (const std::int64_t i : along) columns.push_back(i / 2 * (i % 2));
    return {share(CsrMatrix::from_coo(n, n, along, along, random_vector(n, 89))), share(CsrMatrix::from_coo(n, n, along, columns, random_vector(n, 88)))};
}

// Row lengths given, columns random without repetition.
inline std::shared_ptr<const CsrMatrix> matrix_with_rows(const std::vector<std::int64_t>& lengths, std::int64_t cols, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::vector<std::int64_t> rows, columns;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::int64_t length = std::min(lengths[i], cols);
        // A random arithmetic progression modulo cols visits `length` different columns when the step is coprime to cols.
        std::int64_t step = 1 + static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(std::max<std::int64_t>(cols - 1, 1)));
        while (std::gcd(step, cols) != 1) ++step;
        std::int64_t column = cols > 0 ? static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(cols)) : 0;
        for (std::int64_t k = 0; k < length; ++k) {
            rows.push_back(static_cast<std::int64_t>(i));
            columns.push_back(column);
            column = (column + step) % cols;
        }
    }
    const std::vector<double> values = random_vector(static_cast<std::int64_t>(rows.size()), seed + 1);
    return share(CsrMatrix::from_coo(static_cast<std::int64_t>(lengths.size()), cols, rows, columns, values));
}

struct ShapeCase {
    std::string name;
    std::shared_ptr<const CsrMatrix> a;
};

inline std::vector<std::int64_t> random_lengths(std::int64_t rows, std::int64_t least, std::int64_t most, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(rows));
    for (auto& length : lengths) length = least + static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(most - least + 1));
    return lengths;
}

// Rectangular only: a product that ignored the direction would pass on a square one.
inline std::vector<ShapeCase> shape_cases() {
    std::vector<ShapeCase> cases;
    const auto add = [&](const std::string& name, std::shared_ptr<const CsrMatrix> a) { cases.push_back({name, std::move(a)}); };
    add("0x0", share(CsrMatrix::from_coo(0, 0, {}, {}, {})));
    add("0x5", share(CsrMatrix::from_coo(0, 5, {}, {}, {})));
    add("5x0", share(CsrMatrix::from_coo(5, 0, {}, {}, {})));
    add("7x3 empty", share(CsrMatrix::from_coo(7, 3, {}, {}, {})));
    add("1x1", matrix_with_rows({1}, 1, 1));
    for (std::int64_t m : {31, 32, 33, 255, 256, 257}) {
        add(std::to_string(m) + "x40", matrix_with_rows(random_lengths(m, 0, 9, static_cast<std::uint64_t>(m)), 40, 3));
        add("40x" + std::to_string(m), matrix_with_rows(random_lengths(40, 0, 9, static_cast<std::uint64_t>(m)), m, 4));
    }
    std::vector<std::int64_t> ends(500, 4);
    for (std::size_t i = 0; i < 50; ++i) ends[i] = ends[499 - i] = 0;
    add("empty rows first and last", matrix_with_rows(ends, 91, 5));
    std::vector<std::int64_t> dense(300, 2);
    dense[17] = 5000;
    add("one dense row", matrix_with_rows(dense, 5000, 6));
    add("one dense column", share(matrix_with_rows(dense, 5000, 6)->transposed()));
    std::vector<std::int64_t> last(300, 2);
    last[299] = 4097;
    add("long last row", matrix_with_rows(last, 5000, 7));
    add("alternating", [] {
        std::vector<std::int64_t> lengths(1000);
        for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i % 2 == 0 ? 0 : 70;
        return matrix_with_rows(lengths, 333, 8);
    }());
    add("all lengths", [] {
        std::vector<std::int64_t> lengths(100);
        for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int64_t>(i * i / 2);
        return matrix_with_rows(lengths, 5003, 9);
    }());
    add("near columns and far ones", [] {  // rows of neighbouring columns, then rows across all of them
        const std::int64_t m = 30000, n = 200000;
        std::vector<std::int64_t> rows, columns;
        for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t k = 0; k < 2 + i % 5; ++k) {
                rows.push_back(i);
                columns.push_back(i < 27000 ? 6 * i + k * k : (i * 7919 + k * 40009) % n);
            }
        }
        return share(CsrMatrix::from_coo(m, n, rows, columns, random_vector(static_cast<std::int64_t>(rows.size()), 12)));
    }());
    add("tall", matrix_with_rows(random_lengths(6000, 1, 6, 10), 77, 10));
    add("wide", share(matrix_with_rows(random_lengths(6000, 1, 6, 11), 77, 11)->transposed()));
    return cases;
}

// y_ref and the bound of ARCHITECTURE: |y - y_ref|_i <= c (k_i + 2) eps (|a| |A| |x| + |b| |y0|)_i.
template <class T>
void check_product(const CsrMatrix& stored, bool adjoint, double a, const std::vector<T>& x, double b, const std::vector<T>& y0,
                   const std::vector<T>& y, double squares) {
    const CsrMatrix op = adjoint ? stored.transposed() : stored.clone();
    const long double eps = std::numeric_limits<T>::epsilon();
    long double norm2 = 0;
    for (std::int64_t i = 0; i < op.rows(); ++i) {
        long double sum = 0, size = 0;
        for (std::int64_t k = op.offsets()[i]; k < op.offsets()[i + 1]; ++k) {
            // The operator's values are rounded to T; so is the reference's.
            const long double term = static_cast<long double>(static_cast<T>(op.values()[k])) * static_cast<long double>(x[static_cast<std::size_t>(op.columns()[k])]);
            sum += term;
            size += std::abs(term);
        }
        const auto at = static_cast<std::size_t>(i);
        sum *= a;
        size *= std::abs(a);
        if (b != 0) {
            sum += static_cast<long double>(b) * y0[at];
            size += std::abs(static_cast<long double>(b) * y0[at]);
        }
        const auto length = static_cast<long double>(op.offsets()[i + 1] - op.offsets()[i]);
        const long double bound = 2 * (length + 2) * eps * size;
        const long double error = std::abs(static_cast<long double>(y[at]) - sum);
        if (!(error <= bound)) {
            CAPTURE(i);
            CHECK_MESSAGE(error <= bound, "row " << i << ": " << static_cast<double>(y[at]) << " against " << static_cast<double>(sum));
            return;
        }
        norm2 += static_cast<long double>(y[at]) * y[at];
    }
    CHECK(std::abs(static_cast<long double>(squares) - norm2) <= 1e-12L * norm2);
}

template <class T>
std::vector<T> narrow(const std::vector<double>& v) {
    return std::vector<T>(v.begin(), v.end());
}

// a with its values rounded to fp32, for operators that store those in fewer bytes.
inline std::shared_ptr<const CsrMatrix> rounded_to_fp32(const CsrMatrix& a) {
    HostBuffer<std::int64_t> offsets(a.rows() + 1);
    HostBuffer<std::int32_t> columns(a.nnz());
    HostBuffer<double> values(a.nnz());
    std::copy_n(a.offsets(), a.rows() + 1, offsets.begin());
    std::copy_n(a.columns(), a.nnz(), columns.begin());
    for (std::int64_t k = 0; k < a.nnz(); ++k) values[k] = static_cast<double>(static_cast<float>(a.values()[k]));
    return share(CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(columns), std::move(values)));
}

enum class Values { full_mantissa, exact_in_fp32 };

// All shapes, both directions, b = 0 with y full of NaN, b != 0.
template <class T>
void suite_products(MakeRig<T> make, const OperatorOptions& options, Values values = Values::full_mantissa) {
    for (ShapeCase& shape : shape_cases()) {
        if (values == Values::exact_in_fp32) shape.a = rounded_to_fp32(*shape.a);
        CAPTURE(shape.name);
        const auto rig = make(shape.a, options);
        for (bool adjoint : {false, true}) {
            CAPTURE(adjoint);
            const std::int64_t in = adjoint ? shape.a->rows() : shape.a->cols();
            const std::int64_t out = adjoint ? shape.a->cols() : shape.a->rows();
            const auto x = narrow<T>(random_vector(in, 21));
            for (double b : {0.0, -0.5, 1.0}) {
                CAPTURE(b);
                auto y0 = narrow<T>(random_vector(out, 22));
                if (b == 0) std::fill(y0.begin(), y0.end(), std::numeric_limits<T>::quiet_NaN());
                auto y = y0;
                const double squares = rig->product(adjoint, 1.75, x, b, y);
                check_product(*shape.a, adjoint, 1.75, x, b, y0, y, squares);
            }
        }
    }
}

// The rounding of long rows of equal entries, which falls to the same side at every step, does not grow with their length.
template <class T>
void suite_long_rows(MakeRig<T> make, const OperatorOptions& options) {
    const std::int64_t rows = 36, n = 5000;
    const T value = T(0.1), x = T(0.7);
    const auto a = with_values(*matrix_with_rows(std::vector<std::int64_t>(static_cast<std::size_t>(rows), n), n, 61), [&](double) { return static_cast<double>(value); });
    const double expected = static_cast<double>(static_cast<long double>(n) * static_cast<long double>(value) * static_cast<long double>(x));
    for (const bool adjoint : {false, true}) {
        CAPTURE(adjoint);
        std::vector<T> y(static_cast<std::size_t>(rows), T(0));
        make(adjoint ? share(a->transposed()) : a, options)->product(adjoint, 1.0, std::vector<T>(static_cast<std::size_t>(n), x), 0.0, y);
        for (const T yi : y) REQUIRE(std::abs(static_cast<double>(yi) - expected) <= 12 * static_cast<double>(std::numeric_limits<T>::epsilon()) * expected);
    }
}

// The same bits at every product, whatever ran between, and through vectors that are not aligned.
template <class T>
void suite_repeats(MakeRig<T> make, const OperatorOptions& options, int repeats) {
    const auto a = matrix_with_rows(random_lengths(3001, 0, 40, 31), 997, 31);
    const auto other = matrix_with_rows(random_lengths(500, 0, 40, 32), 313, 32);
    const auto rig = make(a, options);
    const auto other_rig = make(other, options);
    const auto x = narrow<T>(random_vector(a->cols(), 33));
    const auto u = narrow<T>(random_vector(a->rows(), 34));
    const auto y0 = narrow<T>(random_vector(a->rows(), 35));
    const auto z0 = narrow<T>(random_vector(a->cols(), 36));
    std::vector<T> y_first, z_first;
    double y_squares = 0, z_squares = 0;
    for (int i = 0; i < repeats; ++i) {
        auto y = y0;
        auto z = z0;
        const bool misalign = i % 2 == 1;
        const double ys = rig->product(false, 0.5, x, 1.0, y, misalign);
        std::vector<T> noise(static_cast<std::size_t>(other->rows()));
        other_rig->product(false, 1.0, narrow<T>(random_vector(other->cols(), static_cast<std::uint64_t>(i))), 0.0, noise);
        const double zs = rig->product(true, 0.5, u, 1.0, z, misalign);
        if (i == 0) {
            y_first = y;
            z_first = z;
            y_squares = ys;
            z_squares = zs;
        }
        REQUIRE(y == y_first);
        REQUIRE(z == z_first);
        REQUIRE(ys == y_squares);
        REQUIRE(zs == z_squares);
    }
}

// A NaN or an infinity in x reaches the rows that have an entry there, and no other; the sum of squares is then no number, or infinite.
template <class T>
void suite_nonfinite(MakeRig<T> make, const OperatorOptions& options) {
    for (std::int64_t longest : {3, 9, 40}) {
        CAPTURE(longest);
        const auto a = matrix_with_rows(random_lengths(203, 0, longest, 91), 89, 91);
        const auto rig = make(a, options);
        for (bool adjoint : {false, true}) {
            CAPTURE(adjoint);
            const CsrMatrix op = adjoint ? a->transposed() : a->clone();
            for (const T special : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
                for (const std::int64_t place : {std::int64_t{0}, op.cols() / 2, op.cols() - 1}) {
                    auto x = narrow<T>(random_vector(op.cols(), 92));
                    x[static_cast<std::size_t>(place)] = special;
                    std::vector<T> y(static_cast<std::size_t>(op.rows()));
                    const double squares = rig->product(adjoint, 1.0, x, 0.0, y);
                    bool any = false;
                    for (std::int64_t i = 0; i < op.rows(); ++i) {
                        const auto* begin = op.columns() + op.offsets()[i];
                        const auto* end = op.columns() + op.offsets()[i + 1];
                        const auto* at = std::find(begin, end, place);
                        const T value = y[static_cast<std::size_t>(i)];
                        if (at == end) {
                            CHECK(std::isfinite(value));
                        } else if (std::isnan(special)) {
                            CHECK(std::isnan(value));
                        } else {
                            CHECK(value == (op.values()[at - op.columns()] > 0 ? special : -special));
                        }
                        any = any || at != end;
                    }
                    REQUIRE(any);
                    CHECK(std::isnan(squares) == std::isnan(special));
                    CHECK(!std::isfinite(squares));
                }
            }
        }
    }
}

// An infinite coefficient makes every row infinite, and their sum of squares: nothing beside the rows takes part in it.
template <class T>
void suite_infinite_coefficient(MakeRig<T> make, const OperatorOptions& options) {
    const auto a = matrix_with_rows(random_lengths(203, 1, 9, 93), 89, 93);
    const auto x = narrow<T>(random_vector(a->cols(), 94));
    std::vector<T> y(static_cast<std::size_t>(a->rows()));
    const double squares = make(a, options)->product(false, std::numeric_limits<double>::infinity(), x, 0.0, y);
    CHECK(std::all_of(y.begin(), y.end(), [](T value) { return std::isinf(value); }));
    CHECK(squares == std::numeric_limits<double>::infinity());
}

// One kernel for both products.
inline OperatorOptions forced(const std::string& kernel) {
    OperatorOptions options;
    options.forward = options.adjoint = parse_spmv_choice(kernel);
    return options;
}

// Whether padding lets this orientation be stored so, by plain counting: at most 4 places an entry, or 65,536 in all.
inline bool fits(const CsrMatrix& op, const SpmvChoice& choice) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < op.rows(); ++i) lengths.push_back(op.offsets()[i + 1] - op.offsets()[i]);
    lengths.resize((lengths.size() + 31) / 32 * 32);
    const auto at = [&](std::size_t i) { return lengths.begin() + static_cast<std::ptrdiff_t>(std::min(i, lengths.size())); };
    std::int64_t places = 0;
    if (choice.kernel == SpmvKernel::ell && !lengths.empty()) {
        places = static_cast<std::int64_t>(lengths.size()) * *std::max_element(lengths.begin(), lengths.end());
    } else if (choice.kernel == SpmvKernel::sell) {
        const auto sigma = static_cast<std::size_t>(choice.sigma);
        for (std::size_t i = 0; choice.sigma > 1 && i < lengths.size(); i += sigma) std::sort(at(i), at(i + sigma), std::greater<>());
        for (std::size_t i = 0; i < lengths.size(); i += 32) places += 32 * *std::max_element(at(i), at(i + 32));
    }
    return places <= std::max<std::int64_t>(65536, 4 * op.nnz());
}
// The operator with its forced formats in the directions that they fit.
template <class T, MakeRig<T> make>
std::unique_ptr<Rig<T>> where_it_fits(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    OperatorOptions fitting = options;
    if (!fits(*a, *options.forward)) fitting.forward.reset();
    if (!fits(a->transposed(), *options.adjoint)) fitting.adjoint.reset();
    return make(std::move(a), fitting);
}

// <A x, y> = <x, A^T y> to rounding.
template <class T>
void suite_adjoint(MakeRig<T> make, const OperatorOptions& options) {
    const auto a = matrix_with_rows(random_lengths(801, 0, 25, 41), 233, 41);
    const auto rig = make(a, options);
    const auto x = narrow<T>(random_vector(a->cols(), 42));
    const auto y = narrow<T>(random_vector(a->rows(), 43));
    std::vector<T> ax(y.size()), aty(x.size());
    rig->product(false, 1.0, x, 0.0, ax);
    rig->product(true, 1.0, y, 0.0, aty);
    long double left = 0, right = 0, size = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
        left += static_cast<long double>(ax[i]) * y[i];
        size += std::abs(static_cast<long double>(ax[i]) * y[i]);
    }
    for (std::size_t j = 0; j < x.size(); ++j) {
        right += static_cast<long double>(x[j]) * aty[j];
        size += std::abs(static_cast<long double>(x[j]) * aty[j]);
    }
    CHECK(std::abs(left - right) <= 60 * std::numeric_limits<T>::epsilon() * size);
}

// The operator stands for 2^exponent A, exactly.
template <class T>
void suite_exponent(MakeRig<T> make, const OperatorOptions& options) {
    const auto a = matrix_with_rows(random_lengths(100, 0, 9, 51), 37, 51);
    OperatorOptions scaled = options;
    scaled.exponent = -7;
    const auto x = narrow<T>(random_vector(a->cols(), 52));
    std::vector<T> y(100), y_scaled(100);
    make(a, options)->product(false, 1.0, x, 0.0, y);
    make(a, scaled)->product(false, 128.0, x, 0.0, y_scaled);
    CHECK(y == y_scaled);
}

}  // namespace lsmr::test::products
