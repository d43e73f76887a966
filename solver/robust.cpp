#include "solver/robust.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "memory/error.hpp"
#include "solver/cpu/host_audit.hpp"
#include "solver/method_choice.hpp"
#include "solver/solve.hpp"
#include "solver/transform.hpp"

namespace lsmr {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kReduction = 0.01;         // of the gradient by one reweighted solve: more is lost when the weights change
constexpr double kRoughTolerance = 1e-2;    // of the l1 fits that l1, cauchy and tukey begin with
constexpr std::int64_t kRoughSolves = 20;   // of each of them
constexpr double kLongestStep = 1024;      // by which a step may be stretched, or cut
constexpr double kTauStep = 0.1;            // by which tau falls after a whole step, and rises after one that was cut to a quarter
constexpr double kFirstFloor = 0.1;         // of these fits, over the mean of |b_i|
constexpr double kFloorStep = 0.1;

double norm(std::span<const double> p) {
    double sum = 0;
    for (const double value : p) sum += value * value;
    return std::sqrt(sum);
}

void check(const SolveOptions& options, const PrepareOptions& prepare, const RobustOptions& robust) {
    const auto refuse = [](bool asked, const char* words) {
        if (asked) throw InputError(fmt::format("robust fit: {}", words));
    };
    if (has_threshold(robust.loss) && !(robust.threshold > 0 && std::isfinite(robust.threshold))) {
        throw InputError(
            fmt::format("robust fit: the threshold of {} must be a finite number above 0, not {}", name(robust.loss), robust.threshold));
    }
    if (!(robust.l1_floor > 0 && robust.l1_floor < 1)) {
        throw InputError(fmt::format("robust fit: the floor of l1 must lie between 0 and 1, not at {}", robust.l1_floor));
    }
    if (!(robust.change >= 0)) throw InputError(fmt::format("robust fit: the change must be at least 0, not {}", robust.change));
    if (robust.max_outer < 1) throw InputError(fmt::format("robust fit: at least 1 reweighted solve is needed, not {}", robust.max_outer));
    refuse(options.method == Method::cg, "cg solves A x = b as it is, without weights: take lsmr, lsqr or cgls");
    refuse(prepare.scale == Scaling::rows || prepare.scale == Scaling::both, "scaled rows would even out the weights");
    refuse(options.trust_radius > 0, "a trust radius bounds a single solve, not a sequence of them");
    refuse(options.ar_bound > 0 || options.ar_relative > 0,
           "atol bounds the gradient of the loss; other bounds on ||A'r|| have no meaning");
}

// One robust fit, as long as solve_robust() runs.
class RobustFit {
  public:
    RobustFit(PreparedProblem& problem, std::span<const double> b, std::span<double> x, const SolveOptions& options, bool use_x0,
              Observer* observer)
        : problem_(problem), b_(b), x_(x), options_(options), observer_(observer) {
        PrepareOptions as_given = problem.options();
        as_given.scale = Scaling::none;
        const CsrMatrix& a = problem.matrix();
        // Alive as long as the problem is.
        Transform t = make_transform(std::shared_ptr<const CsrMatrix>(std::shared_ptr<void>(), &a), as_given);
        user_.assign(b.size(), 1.0);
        if (!as_given.weights.empty()) user_.assign(as_given.weights.begin(), as_given.weights.end());
        g_ = t.g;
        data_frobenius_ = t.data_frobenius;
        const double lambda = options.damp;
        stacked_frobenius_ = std::hypot(t.claim_frobenius, lambda * std::sqrt(static_cast<double>(a.cols())));
        if (options.damp_center == DampCenter::given) center_.assign(options.center.begin(), options.center.end());
        if (options.damp_center == DampCenter::x0 && use_x0) center_.assign(x.begin(), x.end());
        options_.damp_center = center_.empty() ? DampCenter::zero : DampCenter::given;
        options_.center = center_;
        t.row_scale.clear();  // [b; G c], its rows not weighted
        right_side_ = t.right_side(b, center_);
        audit_.emplace_back(a, g_.get());
        if (!use_x0) std::fill(x.begin(), x.end(), 0.0);
        x0_.assign(x.begin(), x.end());
    }

    // The least-squares fit, to start from.
    void fit_squares(RobustResult& out) {
        residual(x_);
        weights_.assign(b_.size(), 1.0);
        target_.assign(r_.begin(), r_.begin() + static_cast<std::ptrdiff_t>(b_.size()));
        take(out, solve(0, kReduction));
        for (std::size_t j = 0; j < x_.size(); ++j) x_[j] += step_[j];
    }

    // Reweighted solves from x on, until out.result.status is set to what ended them.
    void fit(RobustResult& out, Loss loss, double t, double atol, double change, std::int64_t max_outer) {
        const double eps = problem_.options().precision == Precision::fp32 ? static_cast<double>(std::numeric_limits<float>::epsilon())
                                                                            : std::numeric_limits<double>::epsilon();
        const bool convex = loss == Loss::huber || loss == Loss::l1;
        const double least_tau = std::sqrt(std::sqrt(eps));  // targets of r / tau cost digits of each solve
        double tau = 1;
        double reduction = kReduction;
        double x_change = std::numeric_limits<double>::infinity();
        double f_change = x_change;
        int idle = 0;  // solves in a row that did not help
        Point now = evaluate(loss, t, atol, eps, x_);
        out.history.clear();
        Status ended = out.result.status;
        for (;;) {
            report(out, now);
            if (!std::isfinite(now.objective)) return end(out, Status::non_finite);
            if (now.idle_rows) return end(out, Status::breakdown);
            if (now.gradient <= now.bound && x_change <= change && f_change <= change) return end(out, Status::least_squares);
            if (now.gradient <= now.eps_bound) {
                out.gradient_bound = now.eps_bound;
                return end(out, Status::least_squares_eps);
            }
            if (must_end(ended)) return end(out, ended);
            if (idle == 2) return end(out, Status::stagnated);
            if (out.outer_iterations >= max_outer) return end(out, Status::iteration_limit);
            if (seconds() >= options_.time_limit_seconds) return end(out, Status::time_limit);

            set_quadratic(now, convex ? t : std::numeric_limits<double>::infinity(), tau);
            const SolveResult solved = solve(kReduction * now.bound, reduction);
            take(out, solved);
            ended = solved.status;
            if (ended == Status::non_finite) return end(out, ended);
            const double step = best_step(loss, t, now);
            std::vector<double> trial(x_.begin(), x_.end());
            for (std::size_t j = 0; j < trial.size(); ++j) trial[j] += step * step_[j];
            Point next = evaluate(loss, t, atol, eps, trial);
            // With tau = 1 the quadratic lies above the objective, so a lower quadratic is a lower objective: only rounding can raise it.
            if (!(next.objective <= now.objective * (1 + 64 * eps))) {
                if (tau == 1) {
                    reduction *= kReduction;
                    ++idle;
                }
                tau = 1;
                continue;
            }
            if (convex && step >= 1) tau = std::max(tau * kTauStep, least_tau);
            if (step <= 0.25) tau = std::min(tau / kTauStep, 1.0);
            double moved = 0;
            for (std::size_t j = 0; j < trial.size(); ++j) moved += (trial[j] - x_[j]) * (trial[j] - x_[j]);
            const double size = std::max(norm(trial), norm(x_));
            x_change = moved > 0 ? std::sqrt(moved) / size : 0;
            f_change = now.objective > 0 ? std::abs(now.objective - next.objective) / now.objective : 0;
            const bool stays = x_change <= 4 * eps && f_change <= 4 * eps;
            idle = stays ? idle + 1 : 0;
            if (stays) reduction *= kReduction;
            std::copy(trial.begin(), trial.end(), x_.begin());
            now = std::move(next);
            out.history.push_back({now.objective, now.gradient, x_change, solved.iterations});
        }
    }

    // What does not depend on the loss.
    void finish(RobustResult& out) {
        residual(x_);
        Norms& n = out.result.norms;
        n = Norms::unknown();
        double b2 = 0, r2 = 0, below2 = 0, dx2 = 0;
        for (std::size_t i = 0; i < b_.size(); ++i) {
            b2 += user_[i] * b_[i] * b_[i];
            r2 += user_[i] * r_[i] * r_[i];
        }
        for (std::size_t i = b_.size(); i < r_.size(); ++i) below2 += r_[i] * r_[i];
        for (std::size_t j = 0; j < x_.size(); ++j) {
            const double from_center = options_.damp * from(center_, j, x_[j]);
            below2 += from_center * from_center;
            dx2 += (x_[j] - x0_[j]) * (x_[j] - x0_[j]);
        }
        n.b = std::sqrt(b2);
        n.r = std::sqrt(r2);
        n.r_damped = std::sqrt(r2 + below2);
        n.x = norm(x_);
        n.dx = std::sqrt(dx2);
        n.a_frobenius = data_frobenius_;
    }

  private:
    // An x as the loss sees it.
    struct Point {
        double objective = 0;
        double gradient = 0;
        double bound = 0;            // atol ||A|| ||psi(r)||
        double eps_bound = 0;        // what rounding of r alone makes of the gradient
        std::int64_t downweighted = 0;
        bool idle_rows = false;      // no row has a weight, though there are rows
        std::vector<double> weights; // psi(r_i) / r_i
        std::vector<double> r;       // [b - A x; G (c - x)]
    };

    static bool must_end(Status status) {
        return status == Status::stopped || status == Status::time_limit || status == Status::breakdown || status == Status::resource_error;
    }
    static double from(const std::vector<double>& center, std::size_t j, double value) {
        return center.empty() ? value : value - center[j];
    }
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

    // r_ <- [b - A x; G (c - x)]
    void residual(std::span<const double> x) {
        r_ = right_side_;
        audit_[0].subtract_product(1, x.data(), r_.data());
    }

    Point evaluate(Loss loss, double t, double atol, double eps, std::span<const double> x) {
        residual(x);
        Point p;
        p.r = r_;
        p.weights.resize(b_.size());
        const double at_zero = loss_weight(loss, t, 0);
        double psi2 = 0, b2 = 0;
        bool any = false, counts = false;
        for (std::size_t i = 0; i < b_.size(); ++i) {
            const double w = loss_weight(loss, t, r_[i]);
            p.weights[i] = w;
            p.objective += user_[i] * loss_value(loss, t, r_[i]);
            any = any || (user_[i] > 0 && w > 0);
            counts = counts || user_[i] > 0;
            p.downweighted += user_[i] > 0 && w < at_zero / 2 ? 1 : 0;
            b2 += user_[i] * w * b_[i] * w * b_[i];
            psi2 += user_[i] * w * r_[i] * w * r_[i];
            r_[i] *= user_[i] * w;
        }
        p.idle_rows = counts && !any;
        for (std::size_t i = b_.size(); i < r_.size(); ++i) {
            p.objective += r_[i] * r_[i];
            psi2 += r_[i] * r_[i];
            b2 += right_side_[i] * right_side_[i];
        }
        std::vector<double> gradient(x.size());
        const double lambda2 = options_.damp * options_.damp;
        double damping = 0;
        for (std::size_t j = 0; j < x.size(); ++j) {
            const double d = from(center_, j, x[j]);
            gradient[j] = -lambda2 * d;
            damping += lambda2 * d * d;
        }
        p.objective += damping;
        audit_[0].adjoint(1, r_.data(), 1, gradient.data());
        p.gradient = norm(gradient);
        p.bound = atol * stacked_frobenius_ * std::sqrt(psi2 + damping);
        p.eps_bound = 8 * eps * stacked_frobenius_ *
                      (at_zero * stacked_frobenius_ * std::max(norm(x), norm(x0_)) + std::sqrt(b2));
        return p;
    }

    // The quadratic of the next solve: weights_, and target_, whose weighted products are psi(r). Rows up to the threshold have psi' = psi / r,
    // those beyond it psi' = 0; without one all have psi / r.
    void set_quadratic(const Point& now, double threshold, double tau) {
        weights_ = now.weights;
        target_.assign(now.r.begin(), now.r.begin() + static_cast<std::ptrdiff_t>(b_.size()));
        for (std::size_t i = 0; i < b_.size(); ++i) {
            if (std::abs(target_[i]) <= threshold) continue;
            weights_[i] *= tau;
            target_[i] /= tau;
        }
    }

    // The power of two by which step_ is taken: longer than 1 while the objective falls, for what reweighting approaches slowly, it
    // approaches from one side; shorter until it is below where it was, and while it falls further. No more products are needed, r being
    // linear in the step.
    double best_step(Loss loss, double t, const Point& now) const {
        const double lambda2 = options_.damp * options_.damp;
        std::vector<double> moved(now.r.size(), 0.0);  // -[A; G] step_
        audit_[0].subtract_product(1, step_.data(), moved.data());
        const auto objective = [&](double step) {
            double sum = 0;
            for (std::size_t i = 0; i < now.r.size(); ++i) {
                const double r = now.r[i] + step * moved[i];
                sum += i < user_.size() ? user_[i] * loss_value(loss, t, r) : r * r;
            }
            for (std::size_t j = 0; lambda2 > 0 && j < step_.size(); ++j) {
                const double d = from(center_, j, x_[j]) + step * step_[j];
                sum += lambda2 * d * d;
            }
            return sum;
        };
        double step = 1;
        double least = objective(step);
        for (; step < kLongestStep; step *= 2) {
            const double longer = objective(2 * step);
            if (!(longer < least)) break;
            least = longer;
        }
        if (step > 1) return step;
        for (; step > 1 / kLongestStep; step /= 2) {
            const double shorter = objective(step / 2);
            if (!(shorter < least) && least < now.objective) break;
            least = shorter;
        }
        return least < now.objective ? step : 1;
    }

    // step_ <- the least-squares fit of target_ under weights_.
    SolveResult solve(double ar_bound, double ar_relative) {
        problem_.reweight(weights_);
        SolveOptions options = options_;
        options.atol = 0;
        options.btol = 0;
        options.ar_bound = ar_bound;
        options.ar_relative = ar_relative;
        options.time_limit_seconds = std::max(0.0, options_.time_limit_seconds - seconds());
        // ||x + step - c|| is what is damped.
        std::vector<double> center(x_.size());
        for (std::size_t j = 0; j < center.size(); ++j) center[j] = -from(center_, j, x_[j]);
        options.damp_center = DampCenter::given;
        options.center = center;
        step_.assign(x_.size(), 0.0);
        return problem_.solve(target_, step_, options, false, observer_);
    }

    static void take(RobustResult& out, const SolveResult& solved) {
        ++out.outer_iterations;
        out.result.status = solved.status;
        out.result.iterations += solved.iterations;
        out.result.restarts += solved.restarts;
        out.result.solve_seconds += solved.solve_seconds;
        out.result.audit_seconds += solved.audit_seconds;
    }
    static void report(RobustResult& out, const Point& p) {
        out.objective = p.objective;
        out.gradient = p.gradient;
        out.gradient_bound = p.bound;
        out.downweighted = p.downweighted;
    }
    static void end(RobustResult& out, Status status) { out.result.status = status; }

    PreparedProblem& problem_;
    std::shared_ptr<const CsrMatrix> g_;  // null: no regularising rows
    std::span<const double> b_;
    std::span<double> x_;
    SolveOptions options_;
    Observer* observer_;
    std::vector<double> user_;        // the caller's weights
    std::vector<double> center_;      // empty: zero
    std::vector<double> right_side_;  // [b; G c]
    std::vector<double> x0_;
    std::vector<HostAudit> audit_;    // one, of [A; G]
    std::vector<double> weights_;     // of the next solve, its right-hand side, and its answer
    std::vector<double> target_;
    std::vector<double> step_;
    std::vector<double> r_;
    double data_frobenius_ = 0;       // as Transform has it, of the caller's weights
    double stacked_frobenius_ = 0;    // ||[R A; G; lambda I]||_F
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string words(const RobustResult& out, const RobustOptions& robust) {
    const std::string counted = fmt::format("{} reweighted solve{}", out.outer_iterations, out.outer_iterations == 1 ? "" : "s");
    const char* what = robust.loss == Loss::cauchy || robust.loss == Loss::tukey ? "a stationary point" : "the minimum";
    const std::string gradient =
        fmt::format("||A' psi(r)|| = {:.3e}, asked for {:.3e}, after {}", out.gradient, out.gradient_bound, counted);
    switch (out.result.status) {
        case Status::least_squares: return fmt::format("{} of the {} loss is found: {}", what, name(robust.loss), gradient);
        case Status::least_squares_eps:
            return fmt::format("{} of the {} loss is found as well as the precision of the vectors allows: {}", what, name(robust.loss),
                               gradient);
        case Status::iteration_limit:
            return fmt::format("the limit of reweighted solves was reached; x is the best so far: {}", gradient);
        case Status::stagnated: return fmt::format("reweighted solves lower the {} loss no more: {}", name(robust.loss), gradient);
        case Status::breakdown:
            return fmt::format("the {} loss leaves no row a weight: every |r_i| is {:g} or more; start nearer, or raise the threshold",
                               name(robust.loss), robust.threshold);
        default: return fmt::format("{}: {}", status_sentence(out.result.status), gradient);
    }
}

}  // namespace

const char* name(Loss loss) {
    switch (loss) {
        case Loss::l2: return "l2";
        case Loss::huber: return "huber";
        case Loss::l1: return "l1";
        case Loss::cauchy: return "cauchy";
        case Loss::tukey: return "tukey";
    }
    return "";
}

double loss_value(Loss loss, double t, double r) {
    const double size = std::abs(r);
    const double u = has_threshold(loss) ? (r / t) * (r / t) : 0;
    switch (loss) {
        case Loss::l2: return r * r;
        case Loss::huber: return size <= t ? r * r : t * (2 * size - t);
        case Loss::l1: return size <= t ? r * (r / (2 * t)) + t / 2 : size;
        case Loss::cauchy: return t * t * std::log1p(u);
        case Loss::tukey: return size < t ? r * r * (1 - u + u * u / 3) : t * t / 3;
    }
    return 0;
}

double loss_weight(Loss loss, double t, double r) {
    const double size = std::abs(r);
    const double u = has_threshold(loss) ? (r / t) * (r / t) : 0;
    switch (loss) {
        case Loss::l2: return 1;
        case Loss::huber: return size <= t ? 1 : t / size;
        case Loss::l1: return 1 / (2 * std::max(size, t));
        case Loss::cauchy: return 1 / (1 + u);
        case Loss::tukey: return size < t ? (1 - u) * (1 - u) : 0;
    }
    return 0;
}

RobustResult solve_robust(PreparedProblem& problem, std::span<const double> b, std::span<double> x, const SolveOptions& options,
                          const RobustOptions& robust, bool use_x0, Observer* observer) {
    const CsrMatrix& a = problem.matrix();
    check(options, problem.options(), robust);
    if (static_cast<std::int64_t>(b.size()) != a.rows() || static_cast<std::int64_t>(x.size()) != a.cols()) {
        throw InputError(fmt::format("robust fit: b has {} entries and x has {}, A is {} x {}", b.size(), x.size(), a.rows(), a.cols()));
    }
    check_finite(b, "b");
    if (use_x0) check_finite(x, "x0");
    SolveOptions resolved = options;
    if (resolved.method == Method::automatic) resolved.method = Method::lsmr;
    resolved = resolved_options(resolved, a.rows(), a.cols(), nullptr);

    double mean = 0;
    for (const double value : b) mean += std::abs(value) / static_cast<double>(b.size());
    const double l1_floor = mean > 0 ? robust.l1_floor * mean : robust.l1_floor;
    const double threshold = robust.loss == Loss::l1 ? l1_floor : robust.threshold;

    RobustResult out;
    out.result.method = resolved.method;
    RobustFit fit(problem, b, x, resolved, use_x0, observer);
    if (!use_x0) fit.fit_squares(out);
    const bool redescends = robust.loss == Loss::cauchy || robust.loss == Loss::tukey;
    if (robust.loss == Loss::l1 || (redescends && !use_x0)) {
        // A row that is met by chance would keep its large weight for long: the floor comes down in steps, each with a rough fit.
        const double infinity = std::numeric_limits<double>::infinity();
        for (double floor = mean * kFirstFloor; floor > l1_floor; floor *= kFloorStep) {
            const std::int64_t most = std::min(out.outer_iterations + kRoughSolves, robust.max_outer);
            fit.fit(out, Loss::l1, floor, kRoughTolerance, infinity, most);
        }
    }
    fit.fit(out, robust.loss, threshold, resolved.atol, robust.change, robust.max_outer);
    fit.finish(out);
    out.result.message = words(out, robust);
    return out;
}

}  // namespace lsmr
