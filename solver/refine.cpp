#include "solver/refine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "memory/error.hpp"
#include "solver/cpu/host_audit.hpp"
#include "solver/driver.hpp"
#include "solver/power_of_two.hpp"
#include "solver/stopping.hpp"

namespace lsmr::detail {
namespace {

constexpr double kEps64 = std::numeric_limits<double>::epsilon();
constexpr double kEps32 = static_cast<double>(std::numeric_limits<float>::epsilon());
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kReduction = 1e-4;  // of the gradient by one correction, in fp32's own eyes: more of it is rounding
constexpr double kLeastGain = 0.5;   // of a correction, in fp64

// Hands iterations on, counted from `base` on. of_correction: their residuals are those of another problem.
class Renumbered : public Observer {
  public:
    Renumbered(Observer* to, std::int64_t base, double seconds, bool of_correction)
        : to_(to), base_(base), seconds_(seconds), of_correction_(of_correction) {}
    Verdict on_iterations(std::span<const IterationRecord> records) override {
        if (to_ == nullptr) return Verdict::go_on;
        records_.assign(records.begin(), records.end());
        for (IterationRecord& record : records_) {
            record.iteration += base_;
            record.seconds += seconds_;
            if (of_correction_) record.r_norm = record.x_norm = record.compat = record.ls = kUnknown;
        }
        return to_->on_iterations(records_);
    }

  private:
    Observer* to_;
    std::int64_t base_;
    double seconds_;
    bool of_correction_;
    std::vector<IterationRecord> records_;
};

// Safe against underflow of the squares: x may be far smaller than the x0 that decided its scale.
double norm(std::span<const double> p) {
    const int exponent = binary_exponent(max_abs(p.data(), static_cast<std::int64_t>(p.size())));
    const PowerOfTwo scale(-exponent);
    const double sum = pairwise_sum(0, static_cast<std::int64_t>(p.size()), [&](std::int64_t i) { return square(scale(p[static_cast<std::size_t>(i)])); });
    return std::ldexp(std::sqrt(sum), exponent);
}

// One solve. Numbers are scaled: A' = 2^e A and b' = 2^f b have entries near 1, x' = 2^(f - e) x, lambda' = 2^e lambda.
class Refinement {
  public:
    Refinement(Engine& narrow, std::span<const double> b, std::span<double> x, const SolveOptions& options, bool use_x0, Observer* observer)
        : narrow_(narrow),
          m_(narrow.engine_matrix()),
          audit_(*m_.working, m_.below.get()),
          b_(b),
          x_(x),
          options_(options),
          observer_(observer) {
        out_.norms = Norms::unknown();
        if (options.method == Method::cg) throw InputError("mixed precision corrects least-squares solutions: take lsmr, lsqr or cgls");
        if (options.trust_radius > 0) throw InputError("a trust radius bounds a single solve, and mixed precision makes several");
        if (!use_x0) std::fill(x.begin(), x.end(), 0.0);
        x0_.assign(x.begin(), x.end());
        // A centre that stays where it is while solves begin elsewhere.
        if (options_.damp_center == DampCenter::x0) center_ = x0_;
        if (options_.damp_center == DampCenter::given) center_.assign(options.center.begin(), options.center.end());
        options_.damp_center = center_.empty() ? DampCenter::zero : DampCenter::given;
        options_.center = center_;

        e_ = m_.exponent - binary_exponent(m_.max_abs);
        const double damp = options.damp;
        if (damp > 0) e_ = std::min(e_, -binary_exponent(damp));
        sigma_ = std::ldexp(1.0, std::clamp(e_ - m_.exponent, -1074, 1022));  // also where it has few bits: it is a power of two
        lambda_ = std::ldexp(damp, e_);
        const double b_max = max_abs(b.data(), static_cast<std::int64_t>(b.size()));
        double x_max = max_abs(x.data(), static_cast<std::int64_t>(x.size()));
        x_max = std::max(x_max, max_abs(center_.data(), static_cast<std::int64_t>(center_.size())));
        f_ = binary_exponent(b_max);
        if (x_max > 0) f_ = b_max > 0 ? std::max(f_, binary_exponent(x_max) - e_) : binary_exponent(x_max) - e_;
        f_ = -f_;
        const PowerOfTwo scale(f_);
        scaled_b_.assign(b.begin(), b.end());
        for (double& value : scaled_b_) value = scale(value);
        rules_.b_norm = norm(std::span(scaled_b_).first(static_cast<std::size_t>(m_.original->rows())));
        rules_.atol = options.atol;
        rules_.btol = options.btol;
        rules_.eps = kEps64;
        rules_.a_norm = std::hypot(std::ldexp(m_.claim_frobenius, e_ - m_.exponent), lambda_ * std::sqrt(static_cast<double>(x.size())));
        rules_.ar_bound = std::ldexp(options.ar_bound, e_ + f_);
        measure(x_);
        start_ = now_;
        rules_.x0_norm = rules_.b_norm == 0 && center_.empty() ? now_.x : 0.0;  // otherwise b and x say what is small
        rules_.ar_bound = std::max(rules_.ar_bound, options.ar_relative * now_.ar);
        max_iterations_ = resolved_max_iterations(options, m_.original->rows(), m_.original->cols(), Precision::mixed);
    }

    SolveResult operator()(const std::function<Engine&()>& wide) {
        SolveOptions rough = limited(2);
        rough.atol = std::max(rough.atol, 4 * kEps32);
        rough.btol = std::max(rough.btol, 4 * kEps32);
        rough.conlim = resolved_conlim(rough, Precision::fp32);
        std::vector<double> trial(x_.begin(), x_.end());
        take(run(narrow_, {}, trial, rough, false));
        int corrections = 0;
        bool stalled = !keep(trial, 1.0);
        const bool start_solves = start_.r_damped == 0 || start_.ar == 0;
        Status status = start_solves ? Status::start_solves : ended_;
        while (!start_solves && !must_end(status)) {
            const int code = passed_test(rules_, {0, now_.r_damped, now_.ar, rules_.a_norm, kUnknown, now_.x});
            if (code != kGoOn) {
                status = static_cast<Status>(code);
                break;
            }
            // Corrections estimate no condition: a limit that the caller chose, and that fp32 can see, ends the whole.
            if (ended_ == Status::condition_limit && options_.conlim > 0) break;
            if (out_.iterations >= max_iterations_) {
                status = Status::iteration_limit;
                break;
            }
            if (stalled) return in_fp64(wide(), corrections);
            correct(trial);
            ++corrections;
            stalled = !keep(trial, kLeastGain);
            status = ended_;
        }
        out_.status = status;
        out_.notes.push_back(fmt::format("solved in fp32 and corrected {} time{} by the gradient in fp64", corrections, corrections == 1 ? "" : "s"));
        finish();
        return std::move(out_);
    }

  private:
    struct Residuals {  // scaled
        double r = 0, r_damped = 0, ar = 0, x = 0;
    };
    // What ends the whole; other ends of an fp32 solve only say how far fp32 came.
    static bool must_end(Status status) {
        return status == Status::stopped || status == Status::time_limit || status == Status::resource_error;
    }
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
    // For one solve: a part of the iterations that are left, so that fp64 has its share where fp32 gets nowhere.
    SolveOptions limited(std::int64_t part) const {
        SolveOptions options = options_;
        options.max_iterations = (max_iterations_ - out_.iterations + part - 1) / part;
        options.time_limit_seconds = std::max(0.0, options_.time_limit_seconds - seconds());
        return options;
    }
    SolveResult run(Engine& engine, std::span<const double> linear, std::vector<double>& x, const SolveOptions& options, bool of_correction) {
        Renumbered observer(observer_, out_.iterations, seconds(), of_correction);
        const std::vector<double> zero(of_correction ? b_.size() : 0, 0.0);
        return engine.solve(of_correction ? std::span<const double>(zero) : b_, linear, x, options, true, &observer, {});
    }
    // trial <- x + d, (A^T A + lambda^2 I) d = g, the gradient of x.
    void correct(std::vector<double>& trial) {
        SolveOptions inner = limited(4);
        inner.method = Method::cgls;
        inner.atol = inner.btol = inner.ar_bound = 0;
        inner.ar_relative = kReduction;
        inner.damp_center = DampCenter::zero;
        inner.estimate_variances = false;
        inner.reorthogonalize = 0;
        // g by 2^-e, so that d, as A' has it in place of A, comes out near 1 as x' does.
        std::vector<double> g = gradient_;
        std::vector<double> d(x_.size());
        const PowerOfTwo down(-e_);
        for (double& value : g) value = down(value);
        take(run(narrow_, g, d, inner, true));
        const PowerOfTwo back(-f_);  // what was asked for is 2^-e g' = 2^f g
        for (std::size_t j = 0; j < trial.size(); ++j) trial[j] = x_[j] + back(d[j]);
    }
    void take(SolveResult solved) {
        ended_ = solved.status;
        out_.iterations += solved.iterations;
        out_.restarts += solved.restarts;
        out_.solve_seconds += solved.solve_seconds;
        out_.audit_seconds += solved.audit_seconds;
        if (!solved.variances.empty()) out_.variances = std::move(solved.variances);
        if (std::isnan(out_.norms.r_estimated)) {  // of the first: the corrections know no ||r||
            out_.norms.r_estimated = solved.norms.r_estimated;
            out_.norms.cond_estimate = solved.norms.cond_estimate;
            out_.norms.a_estimated = solved.norms.a_estimated;
        }
        out_.norms.ar_estimated = solved.norms.ar_estimated;
    }

    // now_ and gradient_ of x, in fp64.
    void measure(std::span<const double> x) {
        std::vector<double> z(x.begin(), x.end());
        const PowerOfTwo scale(f_ - e_);
        for (std::size_t j = 0; j < z.size(); ++j) z[j] = scale(z[j]) / column_scale(j);
        std::vector<double> r = scaled_b_;
        audit_.subtract_product(sigma_, z.data(), r.data());
        Residuals now;
        now.r = norm(std::span(r).first(static_cast<std::size_t>(m_.original->rows())));
        std::vector<double> damping(z.size());  // lambda (x - c)
        gradient_.assign(z.size(), 0.0);
        audit_.adjoint(sigma_, r.data(), 0.0, gradient_.data());
        for (std::size_t j = 0; j < z.size(); ++j) {
            const double xj = column_scale(j) * z[j];
            const double from_center = center_.empty() ? xj : xj - scale(center_[j]);
            gradient_[j] = gradient_[j] / column_scale(j) - lambda_ * lambda_ * from_center;
            damping[j] = lambda_ * from_center;
            z[j] = xj;
        }
        now.r_damped = std::hypot(norm(r), norm(damping));
        now.ar = norm(gradient_);
        now.x = norm(z);
        now_ = now;
    }
    // x <- trial where that lowers the gradient; whether it does so by the factor.
    bool keep(const std::vector<double>& trial, double factor) {
        const Residuals before = now_;
        const std::vector<double> gradient = gradient_;
        const auto start = std::chrono::steady_clock::now();
        measure(trial);
        out_.audit_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (now_.ar < before.ar) {
            std::copy(trial.begin(), trial.end(), x_.begin());
            return now_.ar <= factor * before.ar;
        }
        now_ = before;
        gradient_ = gradient;
        return false;
    }

    SolveResult in_fp64(Engine& wide, int corrections) {
        SolveOptions options = limited(1);
        options.ar_bound = std::ldexp(rules_.ar_bound, -e_ - f_);
        options.ar_relative = 0;
        std::vector<double> x(x_.begin(), x_.end());
        SolveResult solved = run(wide, {}, x, options, false);
        solved.iterations += out_.iterations;
        solved.restarts += out_.restarts;
        solved.solve_seconds += out_.solve_seconds;
        solved.audit_seconds += out_.audit_seconds;
        solved.notes.push_back(fmt::format(
            "fp32 and {} correction{} in fp64 left ||A'r|| = {:.3e}; fp64 went on from there", corrections, corrections == 1 ? "" : "s",
            std::ldexp(now_.ar, -e_ - f_)));
        std::copy(x.begin(), x.end(), x_.begin());
        for (std::size_t j = 0; j < x.size(); ++j) x[j] -= x0_[j];
        solved.norms.dx = norm(x);
        measure(x_);
        solved.norms.start_ratio = start_ratio();
        return solved;
    }
    double start_ratio() const { return now_.ar / now_.r_damped / (start_.ar / start_.r_damped); }
    void finish() {
        Norms& n = out_.norms;
        n.b = std::ldexp(rules_.b_norm, -f_);
        n.r = std::ldexp(now_.r, -f_);
        n.r_damped = std::ldexp(now_.r_damped, -f_);
        n.ar = std::ldexp(now_.ar, -e_ - f_);
        n.x = std::ldexp(now_.x, e_ - f_);
        n.a_frobenius = std::ldexp(m_.data_frobenius, -m_.exponent);
        n.start_ratio = start_ratio();
        std::vector<double> d(x_.begin(), x_.end());
        for (std::size_t j = 0; j < d.size(); ++j) d[j] -= x0_[j];
        n.dx = norm(d);
        out_.method = options_.method;
        out_.message = outcome_words(out_.status, out_, options_, std::ldexp(rules_.a_norm, -e_), std::ldexp(rules_.x0_norm, e_ - f_),
                                     std::ldexp(rules_.ar_bound, -e_ - f_), kEps64);
    }
    double column_scale(std::size_t j) const { return m_.column_scale.empty() ? 1.0 : m_.column_scale[j]; }

    Engine& narrow_;
    const EngineMatrix& m_;
    HostAudit audit_;
    std::span<const double> b_;
    std::span<double> x_;
    SolveOptions options_;
    Observer* observer_;
    std::vector<double> x0_, center_, scaled_b_, gradient_;
    StopRules rules_;
    std::int64_t max_iterations_ = 0;
    int e_ = 0, f_ = 0;
    double sigma_ = 1, lambda_ = 0;
    Residuals now_, start_;
    SolveResult out_;
    Status ended_ = Status::start_solves;  // of the last fp32 solve
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

SolveResult refine(Engine& narrow, const std::function<Engine&()>& wide, std::span<const double> b, std::span<double> x,
                   const SolveOptions& options, bool use_x0, Observer* observer) {
    return Refinement(narrow, b, x, options, use_x0, observer)(wide);
}

}  // namespace lsmr::detail
