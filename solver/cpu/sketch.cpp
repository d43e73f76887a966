#include "solver/sketch.hpp"

#include <fmt/format.h>

#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "memory/error.hpp"
#include "operator/order.hpp"
#include "memory/host_buffer.hpp"
#include "solver/checkpoint.hpp"
#include "solver/power_of_two.hpp"

namespace lsmr {
namespace {

using Dense = Eigen::MatrixXd;
constexpr int kSigns = 8;       // entries in a column of S
constexpr int kOversampling = 4;

// Number `k` of the sequence that `seed` names: splitmix64 by counter, so that any row can be had without those before it.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t k) {
    std::uint64_t z = seed + (k + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

// f(row of S, value) for the entries of column i of S.
template <class F>
void for_each_sign(std::uint64_t seed, std::int64_t i, std::int64_t rows, const F& f) {
    const double size = 1 / std::sqrt(static_cast<double>(kSigns));
    // One in each eighth of the rows: no two in the same.
    for (int k = 0; k < kSigns; ++k) {
        const std::uint64_t word = random_word(seed, static_cast<std::uint64_t>(i) * kSigns + static_cast<std::uint64_t>(k));
        const std::int64_t begin = rows * k / kSigns;
        const std::int64_t end = rows * (k + 1) / kSigns;
        if (begin == end) continue;
        const auto at = static_cast<std::int64_t>((word >> 1) % static_cast<std::uint64_t>(end - begin));
        f(begin + at, (word & 1) != 0 ? size : -size);
    }
}

// y <- a P R^-1 x + b y, and with R^-T P^T, P the order of the columns of A; in T, by substitution.
template <class T>
class TriangularInverse final : public LinearOperator<T> {
    using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
    using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;

  public:
    TriangularInverse(const Dense& r, std::vector<std::int32_t> order) : r_(r.cast<T>()), order_(std::move(order)) {}
    std::int64_t rows() const override { return r_.rows(); }
    std::int64_t cols() const override { return r_.cols(); }
    Space space() const override { return Space::host; }
    bool capturable() const override { return false; }
    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace&, NormPartials* norm) const override {
        Vector t = Eigen::Map<const Vector>(x, r_.rows());
        r_.template triangularView<Eigen::Upper>().solveInPlace(t);
        Vector ordered(t.size());
        for (Eigen::Index i = 0; i < t.size(); ++i) ordered(i) = t(source(order_, i));
        combine(*a.wide, ordered, *b.wide, y, norm);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace&, NormPartials* norm) const override {
        Vector t(r_.rows());
        for (Eigen::Index i = 0; i < t.size(); ++i) t(source(order_, i)) = x[i];
        r_.transpose().template triangularView<Eigen::Lower>().solveInPlace(t);
        combine(*a.wide, t, *b.wide, y, norm);
    }

  private:
    static void combine(double a, const Vector& t, double b, T* y, NormPartials* norm) {
        double sum = 0;
        for (Eigen::Index i = 0; i < t.size(); ++i) {
            y[i] = static_cast<T>(b != 0 ? a * static_cast<double>(t(i)) + b * static_cast<double>(y[i]) : a * static_cast<double>(t(i)));
            sum += static_cast<double>(y[i]) * static_cast<double>(y[i]);
        }
        if (norm) norm->sums[norm->count++] = sum;
    }
    Matrix r_;
    std::vector<std::int32_t> order_;
};

}  // namespace

struct Sketch::State {
    std::uint64_t seed = 0;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    int exponent = 0;
    Eigen::HouseholderQR<Dense> qr;
    Dense r;
};

Sketch::Sketch(const CsrMatrix& a, const CsrMatrix* below, const std::vector<double>& column_scale, double damp, std::uint64_t seed,
               std::int64_t limit_bytes)
    : state_(std::make_unique<State>()) {
    State& s = *state_;
    const std::int64_t n = a.cols();
    s.seed = seed;
    s.cols = n;
    s.rows = std::max<std::int64_t>(kOversampling * n, kSigns);
    const double bytes = static_cast<double>(s.rows) * static_cast<double>(n) * sizeof(double);
    if (bytes > static_cast<double>(limit_bytes)) {
        throw InputError(fmt::format("the sketch of A is a dense {} x {} matrix of {}, more than {}", s.rows, n,
                                     format_bytes(static_cast<std::int64_t>(bytes)), format_bytes(limit_bytes)));
    }
    const auto damping = [&](std::int64_t j) { return damp * (column_scale.empty() ? 1.0 : column_scale[static_cast<std::size_t>(j)]); };
    double largest = std::max(max_abs_value(a), below != nullptr ? max_abs_value(*below) : 0.0);
    for (std::int64_t j = 0; j < n; ++j) largest = std::max(largest, damping(j));
    s.exponent = binary_exponent(largest);
    const PowerOfTwo scale(-s.exponent);

    Dense sa = Dense::Zero(s.rows, n);
    std::int64_t row = 0;
    for (const CsrMatrix* part : {&a, below}) {
        if (part == nullptr) continue;
        for (std::int64_t i = 0; i < part->rows(); ++i, ++row) {
            for_each_sign(seed, row, s.rows, [&](std::int64_t to, double sign) {
                for (std::int64_t k = part->offsets()[i]; k < part->offsets()[i + 1]; ++k)
                    sa(to, part->columns()[k]) += sign * scale(part->values()[k]);
            });
        }
    }
    if (damp > 0) {
        for (std::int64_t j = 0; j < n; ++j, ++row) {
            for_each_sign(seed, row, s.rows, [&](std::int64_t to, double sign) { sa(to, j) += sign * scale(damping(j)); });
        }
    }
    s.qr.compute(sa);
    const Eigen::VectorXd diagonal = s.qr.matrixQR().diagonal().cwiseAbs();
    // Beyond a condition of about 1e13 the solution of the sketch is noise, and so large that it would pass for a solution of A x = b.
    if (n > 0 && !(diagonal.minCoeff() > 1e-13 * diagonal.maxCoeff())) {
        throw InputError("the sketch of A is singular to rounding: A has dependent or empty columns; damp, or take another preconditioner");
    }
    s.r = s.qr.matrixQR().topRows(n).triangularView<Eigen::Upper>();
}
Sketch::~Sketch() = default;

std::int64_t Sketch::rows() const { return state_->rows; }
std::int64_t Sketch::cols() const { return state_->cols; }
int Sketch::exponent() const { return state_->exponent; }
std::uint64_t Sketch::fingerprint() const {
    Fingerprint f;
    f.add(state_->r.data(), state_->r.size());
    return f.value();
}

template <class T>
std::unique_ptr<LinearOperator<T>> Sketch::inverse(const std::vector<std::int32_t>& order) const {
    return std::make_unique<TriangularInverse<T>>(state_->r, order);
}
template std::unique_ptr<LinearOperator<double>> Sketch::inverse(const std::vector<std::int32_t>&) const;
template std::unique_ptr<LinearOperator<float>> Sketch::inverse(const std::vector<std::int32_t>&) const;

std::vector<double> Sketch::solve(std::span<const double> r) const {
    const State& s = *state_;
    Eigen::VectorXd sr = Eigen::VectorXd::Zero(s.qr.rows());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(r.size()); ++i) {
        for_each_sign(s.seed, i, s.rows, [&](std::int64_t to, double sign) { sr(to) += sign * r[static_cast<std::size_t>(i)]; });
    }
    sr.applyOnTheLeft(s.qr.householderQ().adjoint());
    Eigen::VectorXd d = sr.head(s.cols);
    s.r.triangularView<Eigen::Upper>().solveInPlace(d);
    return {d.data(), d.data() + d.size()};
}

}  // namespace lsmr
