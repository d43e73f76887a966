#include "solver/sketch.hpp"

#include <fmt/format.h>

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "memory/error.hpp"
#include "operator/order.hpp"
#include "solver/power_of_two.hpp"
#include "solver/sparse_sign.hpp"
#include "solver/transform.hpp"

namespace lsmr {
namespace {

using Dense = Eigen::MatrixXd;
constexpr int kOversampling = 4;

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

SketchPlan plan_sketch(std::shared_ptr<const CsrMatrix> a, std::shared_ptr<const CsrMatrix> below, const std::vector<double>& column_scale,
                       double damp, std::uint64_t seed, std::int64_t limit_bytes) {
    SketchPlan plan;
    plan.seed = seed;
    plan.cols = a->cols();
    plan.rows = std::max<std::int64_t>(kOversampling * plan.cols, kSigns);
    const double bytes = static_cast<double>(plan.rows) * static_cast<double>(plan.cols) * sizeof(double);
    if (bytes > static_cast<double>(limit_bytes)) {
        throw InputError(fmt::format("the sketch of A is a dense {} x {} matrix of {}, more than {}", plan.rows, plan.cols,
                                     format_bytes(static_cast<std::int64_t>(bytes)), format_bytes(limit_bytes)));
    }
    plan.parts.push_back(std::move(a));
    if (below) plan.parts.push_back(std::move(below));
    if (damp > 0) {
        std::vector<double> damping(static_cast<std::size_t>(plan.cols), damp);
        for (std::size_t j = 0; j < column_scale.size(); ++j) damping[j] *= column_scale[j];
        plan.parts.push_back(std::make_shared<const CsrMatrix>(diagonal_matrix(damping)));
    }
    double largest = 0;
    for (const auto& part : plan.parts) largest = std::max(largest, max_abs_value(*part));
    plan.exponent = binary_exponent(largest);
    return plan;
}

std::vector<double> sketched(const SketchPlan& plan, std::span<const double> r) {
    std::vector<double> sr(static_cast<std::size_t>(plan.rows), 0.0);
    // An eighth of the rows for each of the signs: no two threads meet.
#pragma omp parallel for schedule(static)
    for (int k = 0; k < kSigns; ++k) {
        for (std::size_t i = 0; i < r.size(); ++i) {
            const SparseSign sign = sparse_sign(plan.seed, static_cast<std::int64_t>(i), k, plan.rows);
            sr[static_cast<std::size_t>(sign.row)] += sign.value * r[i];
        }
    }
    return sr;
}

std::vector<double> sketched_matrix(const SketchPlan& plan) {
    std::vector<double> sa(static_cast<std::size_t>(plan.rows * plan.cols), 0.0);
    const PowerOfTwo scale(-plan.exponent);
#pragma omp parallel for schedule(static)
    for (int k = 0; k < kSigns; ++k) {
        std::int64_t row = 0;
        for (const auto& part : plan.parts) {
            for (std::int64_t i = 0; i < part->rows(); ++i, ++row) {
                const SparseSign sign = sparse_sign(plan.seed, row, k, plan.rows);
                for (std::int64_t e = part->offsets()[i]; e < part->offsets()[i + 1]; ++e)
                    sa[static_cast<std::size_t>(sign.row + plan.rows * part->columns()[e])] += sign.value * scale(part->values()[e]);
            }
        }
    }
    return sa;
}

void check_sketch_rank(std::span<const double> diagonal) {
    double least = std::numeric_limits<double>::infinity();
    double largest = 0;
    for (const double d : diagonal) {
        least = std::min(least, std::abs(d));
        largest = std::max(largest, std::abs(d));
    }
    // Beyond a condition of about 1e13 the solution of the sketch is noise, and so large that it would pass for a solution of A x = b.
    if (!diagonal.empty() && !(least > 1e-13 * largest)) {
        throw InputError("the sketch of A is singular to rounding: A has dependent or empty columns; damp, or take another preconditioner");
    }
}

struct Sketch::State {
    std::shared_ptr<const SketchPlan> plan;
    Eigen::HouseholderQR<Dense> qr;
    Dense r;
};

Sketch::Sketch(std::shared_ptr<const SketchPlan> plan) : state_(std::make_unique<State>()) {
    State& s = *state_;
    s.plan = std::move(plan);
    {
        const std::vector<double> sa = sketched_matrix(*s.plan);
        s.qr.compute(Eigen::Map<const Dense>(sa.data(), s.plan->rows, s.plan->cols));
    }
    const Eigen::VectorXd diagonal = s.qr.matrixQR().diagonal();
    check_sketch_rank({diagonal.data(), static_cast<std::size_t>(diagonal.size())});
    s.r = s.qr.matrixQR().topRows(s.plan->cols).triangularView<Eigen::Upper>();
}
Sketch::~Sketch() = default;

template <class T>
std::unique_ptr<LinearOperator<T>> Sketch::inverse(const std::vector<std::int32_t>& order) const {
    return std::make_unique<TriangularInverse<T>>(state_->r, order);
}
template std::unique_ptr<LinearOperator<double>> Sketch::inverse(const std::vector<std::int32_t>&) const;
template std::unique_ptr<LinearOperator<float>> Sketch::inverse(const std::vector<std::int32_t>&) const;

std::vector<double> Sketch::solve(std::span<const double> r) const {
    const State& s = *state_;
    std::vector<double> sr = sketched(*s.plan, r);
    Eigen::Map<Eigen::VectorXd> q(sr.data(), s.plan->rows);
    q.applyOnTheLeft(s.qr.householderQ().adjoint());
    Eigen::VectorXd d = q.head(s.plan->cols);
    s.r.triangularView<Eigen::Upper>().solveInPlace(d);
    return {d.data(), d.data() + d.size()};
}

}  // namespace lsmr
