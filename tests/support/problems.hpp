// Small problems for the solver tests, the same at every run, and the truth about an x in long double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "solver/solve.hpp"

namespace lsmr::test {

using Matrix = std::shared_ptr<const CsrMatrix>;
using Vector = std::vector<double>;

inline constexpr double kEps64 = std::numeric_limits<double>::epsilon();
inline constexpr double kEps32 = std::numeric_limits<float>::epsilon();

inline std::size_t index(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

// The entries of A in the order of its rows, to build other matrices from.
struct Triplets {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<std::int64_t> i, j;
    Vector values;

    void add(std::int64_t row, std::int64_t col, double value) {
        i.push_back(row);
        j.push_back(col);
        values.push_back(value);
    }
    Matrix matrix() const { return std::make_shared<const CsrMatrix>(CsrMatrix::from_coo(rows, cols, i, j, values)); }
};

inline Triplets triplets(const CsrMatrix& a) {
    Triplets t{a.rows(), a.cols(), {}, {}, {}};
    for (std::int64_t row = 0; row < a.rows(); ++row) {
        for (std::int64_t k = a.offsets()[row]; k < a.offsets()[row + 1]; ++k)
            t.add(row, a.columns()[k], a.values()[k]);
    }
    return t;
}

// f(i, j, value) in place of every value.
template <class F>
Matrix with_values(const CsrMatrix& a, const F& f) {
    Triplets t = triplets(a);
    for (std::size_t k = 0; k < t.values.size(); ++k) t.values[k] = f(t.i[k], t.j[k], t.values[k]);
    return t.matrix();
}

inline Matrix scaled(const CsrMatrix& a, double factor) {
    return with_values(a, [factor](std::int64_t, std::int64_t, double value) { return value * factor; });
}
inline Vector scaled(const Vector& p, double factor) {
    Vector out = p;
    for (double& value : out) value *= factor;
    return out;
}

// Zeros are not stored.
inline Matrix matrix_of(std::int64_t rows, std::int64_t cols, std::initializer_list<double> row_major) {
    Triplets t{rows, cols, {}, {}, {}};
    std::int64_t k = 0;
    for (double value : row_major) {
        if (value != 0) t.add(k / cols, k % cols, value);
        ++k;
    }
    return t.matrix();
}
inline Matrix zero_matrix(std::int64_t rows, std::int64_t cols) {
    return Triplets{rows, cols, {}, {}, {}}.matrix();
}
inline Matrix diagonal(const Vector& d) {
    Triplets t{static_cast<std::int64_t>(d.size()), static_cast<std::int64_t>(d.size()), {}, {}, {}};
    for (std::size_t i = 0; i < d.size(); ++i) t.add(static_cast<std::int64_t>(i), static_cast<std::int64_t>(i), d[i]);
    return t.matrix();
}

// Uniform in (-1, 1), with all mantissa bits.
class Random {
  public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    double operator()() { return static_cast<double>(engine_() >> 11) * 0x1p-52 - 1.0 + 0x1p-53; }
    std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }

  private:
    std::mt19937_64 engine_;
};

inline Vector random_vector(std::int64_t n, std::uint64_t seed) {
    Random random(seed);
    Vector p(index(n));
    for (double& value : p) value = random();
    return p;
}

// `per_row` random entries in every row, and a diagonal of about `diagonal` that makes the rank min(rows, cols) and
// keeps cond(A) moderate.
inline Matrix random_sparse(std::int64_t rows, std::int64_t cols, std::int64_t per_row, std::uint64_t seed,
                            double diagonal_value = 2.0) {
    Random random(seed);
    Triplets t{rows, cols, {}, {}, {}};
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t k = 0; k < per_row; ++k) t.add(i, random.below(cols), random());
        if (i < cols) t.add(i, i, diagonal_value + 0.5 * random());
    }
    return t.matrix();
}

// Columns scaled from 1 down to 1 / spread: cond(A) grows with spread.
inline Matrix graded(const CsrMatrix& a, double spread) {
    const double last = static_cast<double>(std::max<std::int64_t>(a.cols() - 1, 1));
    return with_values(a, [&](std::int64_t, std::int64_t j, double value) {
        return value * std::pow(spread, -static_cast<double>(j) / last);
    });
}

inline Matrix transposed(const CsrMatrix& a) {
    return std::make_shared<const CsrMatrix>(a.transposed());
}

// [A; L], one above the other.
inline Matrix stacked(const CsrMatrix& top, const CsrMatrix& bottom) {
    Triplets t = triplets(top);
    const Triplets below = triplets(bottom);
    for (std::size_t k = 0; k < below.values.size(); ++k) t.add(top.rows() + below.i[k], below.j[k], below.values[k]);
    t.rows += bottom.rows();
    return t.matrix();
}

// A p, rounded once.
inline Vector product(const CsrMatrix& a, const Vector& p) {
    Vector y(index(a.rows()));
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        long double sum = 0;
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            sum += static_cast<long double>(a.values()[k]) * static_cast<long double>(p[index(a.columns()[k])]);
        }
        y[index(i)] = static_cast<double>(sum);
    }
    return y;
}

inline double norm(std::span<const double> p) {
    long double sum = 0;
    for (double value : p) sum += static_cast<long double>(value) * static_cast<long double>(value);
    return static_cast<double>(std::sqrt(sum));
}
inline double distance(const Vector& p, const Vector& q) {
    long double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const long double difference = static_cast<long double>(p[i]) - static_cast<long double>(q[i]);
        sum += difference * difference;
    }
    return static_cast<double>(std::sqrt(sum));
}

// The problem's numbers for one x, by plain loops in long double (whose range is wide enough for every scale of
// doubles).
struct Truth {
    double b = 0;            // ||b||
    double r = 0;            // ||b - A x||
    double r_damped = 0;     // sqrt(r^2 + lambda^2 ||x - c||^2)
    double ar = 0;           // ||A^T (b - A x) - lambda^2 (x - c)||
    double x = 0;            // ||x||
    double dx = 0;           // ||x - x0||
    double a_frobenius = 0;  // ||A||_F
    double stacked = 0;      // ||[A; lambda I]||_F
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
};

// Empty center or x0: zero.
inline Truth truth(const CsrMatrix& a, const Vector& b, const Vector& x, double damp = 0, const Vector& center = {},
                   const Vector& x0 = {}) {
    using Wide = long double;
    const auto root = [](Wide value) { return static_cast<double>(std::sqrt(value)); };
    const auto at = [](const Vector& p, std::size_t j) { return p.empty() ? Wide(0) : static_cast<Wide>(p[j]); };
    const Wide lambda2 = static_cast<Wide>(damp) * static_cast<Wide>(damp);
    std::vector<Wide> gradient(index(a.cols()));
    Wide b2 = 0, r2 = 0, a2 = 0, ar2 = 0, x2 = 0, dx2 = 0, from_center2 = 0;
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        Wide r = static_cast<Wide>(b[index(i)]);
        b2 += r * r;
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            const Wide value = static_cast<Wide>(a.values()[k]);
            r -= value * static_cast<Wide>(x[index(a.columns()[k])]);
            a2 += value * value;
        }
        r2 += r * r;
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            gradient[index(a.columns()[k])] += static_cast<Wide>(a.values()[k]) * r;
        }
    }
    for (std::size_t j = 0; j < x.size(); ++j) {
        const Wide xj = static_cast<Wide>(x[j]);
        const Wide from_center = xj - at(center, j);
        const Wide g = gradient[j] - lambda2 * from_center;
        ar2 += g * g;
        x2 += xj * xj;
        dx2 += (xj - at(x0, j)) * (xj - at(x0, j));
        from_center2 += from_center * from_center;
    }
    return {root(b2),
            root(r2),
            root(r2 + lambda2 * from_center2),
            root(ar2),
            root(x2),
            root(dx2),
            root(a2),
            root(a2 + static_cast<Wide>(a.cols()) * lambda2),
            a.rows(),
            a.cols(),
            a.nnz()};
}

// A solve and its x.
struct Answer {
    SolveResult result;
    Vector x;
};

inline Answer solve(PreparedProblem& problem, const Vector& b, const SolveOptions& options,
                    const std::optional<Vector>& x0 = {}, Observer* observer = nullptr) {
    // Without a start, x holds rubbish that must not be read.
    Answer answer;
    answer.x = x0 ? *x0 : Vector(index(problem.matrix().cols()), std::numeric_limits<double>::quiet_NaN());
    answer.result = problem.solve(b, answer.x, options, x0.has_value(), observer);
    return answer;
}
inline Answer solve(const PrepareOptions& base, const Matrix& a, const Vector& b, const SolveOptions& options,
                    const std::optional<Vector>& x0 = {}, Observer* observer = nullptr) {
    PreparedProblem problem(a, base);
    return solve(problem, b, options, x0, observer);
}

inline SolveOptions with_method(Method method, double tolerance = 1e-6) {
    SolveOptions options;
    options.method = method;
    options.atol = options.btol = tolerance;
    return options;
}
// Exactly k iterations, unless the problem is solved before: no tolerance, no condition limit.
inline SolveOptions exactly(Method method, std::int64_t iterations, double damp = 0) {
    SolveOptions options = with_method(method, 0.0);
    options.conlim = 0;
    options.max_iterations = iterations;
    options.damp = damp;
    return options;
}
inline PrepareOptions with_precision(PrepareOptions base, Precision precision) {
    base.precision = precision;
    return base;
}
inline double eps_of(const PrepareOptions& base) {
    return base.precision == Precision::fp64 ? kEps64 : kEps32;
}

// For messages.
inline std::string word(Method method) {
    return name(method);
}
inline std::string word(Precision precision) {
    return name(precision);
}
inline std::string word(Status status) {
    return status_name(status);
}

// The methods for least squares; CG has tests of its own (cg_suite.hpp).
inline constexpr Method kMethods[] = {Method::lsmr, Method::lsqr, Method::cgls};
inline constexpr Precision kPrecisions[] = {Precision::fp64, Precision::fp32};

// Keeps every record; may stop, after an iteration.
class Recorder : public Observer {
  public:
    explicit Recorder(std::int64_t stop_after = std::numeric_limits<std::int64_t>::max()) : stop_after_(stop_after) {}
    Verdict on_iterations(std::span<const IterationRecord> records) override {
        ++calls;
        all.insert(all.end(), records.begin(), records.end());
        return static_cast<std::int64_t>(all.size()) >= stop_after_ ? Verdict::stop : Verdict::go_on;
    }
    std::vector<IterationRecord> all;
    int calls = 0;

  private:
    std::int64_t stop_after_;
};

}  // namespace lsmr::test
