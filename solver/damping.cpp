#include "solver/damping.hpp"

#include <fmt/format.h>

#include <Eigen/Core>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "memory/error.hpp"

namespace lsmr {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kSettled = 0.01;           // of lambda, from one look to the next
constexpr std::int64_t kFirstLook = 8;      // steps; the next looks come a quarter later each
constexpr std::int64_t kGrid = 240;         // lambdas among which gcv and lcurve look
constexpr std::int64_t kTable = 40;

// What an undamped solve shows of its bidiagonalisation: (alpha_k, beta_{k+1}) for each k.
struct Bidiagonal {
    double beta_1 = 0;
    std::vector<double> alpha, beta;
    std::int64_t steps() const { return static_cast<std::int64_t>(alpha.size()); }
};

// The damped problems on the first k steps.
class Projected {
  public:
    Projected(const Bidiagonal& b, std::int64_t k, double rows) : k_(k), rows_(rows) {
        Eigen::MatrixXd matrix = Eigen::MatrixXd::Zero(k + 1, k);
        for (std::int64_t i = 0; i < k; ++i) {
            matrix(i, i) = b.alpha[static_cast<std::size_t>(i)];
            matrix(i + 1, i) = b.beta[static_cast<std::size_t>(i)];
        }
        const Eigen::BDCSVD<Eigen::MatrixXd> svd(matrix, Eigen::ComputeFullU | Eigen::ComputeThinV);
        sigma_ = svd.singularValues();
        c_ = b.beta_1 * svd.matrixU().row(0).transpose();
        v_ = svd.matrixV();
    }
    double largest() const { return sigma_(0); }
    double smallest() const { return sigma_(k_ - 1); }
    DampRow at(double damp) const {
        DampRow row{.damp = damp, .r = c_(k_) * c_(k_), .x = 0, .gcv = 0, .curvature = kUnknown};
        double trace = 0;
        for (std::int64_t i = 0; i < k_; ++i) {
            const double f = filter(i, damp);
            row.r += square((1 - f) * c_(i));
            if (f > 0) row.x += square(f * c_(i) / sigma_(i));
            trace += f;
        }
        row.gcv = rows_ > trace ? rows_ * row.r / square(rows_ - trace) : std::numeric_limits<double>::infinity();
        row.r = std::sqrt(row.r);
        row.x = std::sqrt(row.x);
        return row;
    }
    // y: x = c + V_k y
    std::vector<double> coefficients(double damp) const {
        Eigen::VectorXd z = Eigen::VectorXd::Zero(k_);
        for (std::int64_t i = 0; i < k_; ++i) {
            const double f = filter(i, damp);
            if (f > 0) z(i) = f * c_(i) / sigma_(i);
        }
        const Eigen::VectorXd y = v_ * z;
        return {y.data(), y.data() + y.size()};
    }
    // Rows with their curvature, lambdas evenly in the logarithm.
    std::vector<DampRow> rows(double low, double high, std::int64_t count) const {
        std::vector<DampRow> list;
        for (std::int64_t i = 0; i < count; ++i) {
            const double part = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0;
            list.push_back(at(i + 1 == count && count > 1 ? high : low * std::pow(high / low, part)));
        }
        for (std::size_t i = 1; i + 1 < list.size(); ++i) {
            const auto slope = [&](double DampRow::*of, double& first, double& second) {
                const double before = std::log(list[i - 1].*of), here = std::log(list[i].*of), after = std::log(list[i + 1].*of);
                first = (after - before) / 2;
                second = after - 2 * here + before;
            };
            double r1 = 0, r2 = 0, x1 = 0, x2 = 0;
            slope(&DampRow::r, r1, r2);
            slope(&DampRow::x, x1, x2);
            const double speed2 = r1 * r1 + x1 * x1;
            // Both are flat beyond the singular values: curvature there is rounding.
            if (speed2 > 1e-12) list[i].curvature = (r1 * x2 - r2 * x1) / (speed2 * std::sqrt(speed2));
        }
        return list;
    }

  private:
    static double square(double value) { return value * value; }
    double filter(std::int64_t i, double damp) const {
        const double s = sigma_(i);
        return s > 0 ? 1 / (1 + square(damp / s)) : 0;
    }
    std::int64_t k_;
    double rows_;
    Eigen::VectorXd sigma_, c_;
    Eigen::MatrixXd v_;
};

struct Picked {
    double damp = 0;
    std::string note;
};

Picked pick_discrepancy(const Projected& p, double target) {
    double low = 1e-8 * p.largest(), high = 1e8 * p.largest();
    if (p.at(0).r >= target) {
        return {0, fmt::format("||r|| is at least {:.3e} for every lambda, and the errors of b are said to be {:.3e}: lambda is 0", p.at(0).r, target)};
    }
    if (p.at(high).r <= target) {
        return {high, fmt::format("the start is within the errors of b, {:.3e}: lambda keeps x there", target)};
    }
    while (high / low > 1 + 1e-10) {
        const double middle = std::sqrt(low * high);
        (p.at(middle).r < target ? low : high) = middle;
    }
    return {std::sqrt(low * high), {}};
}

std::size_t pick_row(const std::vector<DampRow>& list, const DampSearch& search, double target) {
    std::size_t best = 0;
    const auto better = [&](const DampRow& a, const DampRow& b) {
        switch (search.rule) {
            case DampRule::gcv: return a.gcv < b.gcv;
            case DampRule::discrepancy: return std::abs(std::log(a.r / target)) < std::abs(std::log(b.r / target));
            case DampRule::lcurve: return a.curvature > b.curvature || (std::isnan(b.curvature) && !std::isnan(a.curvature));
        }
        return false;
    };
    for (std::size_t i = 1; i < list.size(); ++i) {
        if (better(list[i], list[best])) best = i;
    }
    return best;
}

Picked pick(const Projected& p, const DampSearch& search, double target) {
    if (search.count > 0) {
        const std::vector<DampRow> list = p.rows(search.low, search.high, search.count);
        return {list[pick_row(list, search, target)].damp, {}};
    }
    if (search.rule == DampRule::discrepancy) return pick_discrepancy(p, target);
    const double low = std::max(p.smallest(), 1e-14 * p.largest());
    const std::vector<DampRow> list = p.rows(low / 4, 4 * p.largest(), kGrid);
    const std::size_t best = pick_row(list, search, target);
    const bool at_end = best == 0 || best + 1 == list.size();
    if (search.rule == DampRule::lcurve || at_end) {
        return {list[best].damp, at_end ? "no lambda is singled out: the best is at the end of the range of singular values" : ""};
    }
    // Golden section between the neighbours.
    const double part = (std::sqrt(5.0) - 1) / 2;
    double low_log = std::log(list[best - 1].damp), high_log = std::log(list[best + 1].damp);
    while (high_log - low_log > 1e-7) {
        const double a = high_log - part * (high_log - low_log), b = low_log + part * (high_log - low_log);
        if (p.at(std::exp(a)).gcv < p.at(std::exp(b)).gcv) high_log = b;
        else low_log = a;
    }
    return {std::exp((low_log + high_log) / 2), {}};
}

// Follows the undamped solve, and ends it once more steps would not change what is chosen.
class Scan : public Observer {
  public:
    Scan(const DampSearch& search, double beta_1, double rows, double target, double atol, double a_norm, Observer* observer)
        : search_(search), rows_(rows), target_(target), atol_(atol), a_norm_(a_norm), observer_(observer) {
        b_.beta_1 = beta_1;
    }
    Verdict on_iterations(std::span<const IterationRecord> records) override {
        for (const IterationRecord& record : records) {
            b_.alpha.push_back(record.alpha);
            b_.beta.push_back(record.beta);
        }
        if (observer_ != nullptr && observer_->on_iterations(records) == Verdict::stop) stopped_ = true;
        if (stopped_) return Verdict::stop;
        if (settled_) return Verdict::stop;
        if (b_.steps() < next_look_) return Verdict::go_on;
        look();
        return settled_ ? Verdict::stop : Verdict::go_on;
    }
    const Bidiagonal& bidiagonal() const { return b_; }
    bool settled() const { return settled_; }
    bool stopped() const { return stopped_; }

  private:
    void look() {
        const std::int64_t k = b_.steps() - 1;  // so that alpha_{k+1} is known
        next_look_ = b_.steps() + std::max<std::int64_t>(b_.steps() / 4, 4);
        if (k < 1 || !(b_.alpha[0] > 0)) return;
        const Projected p(b_, k, rows_);
        const double damp = pick(p, search_, target_).damp;
        // ||A^T r - lambda^2 (x - c)|| of x = c + V_k y
        const auto solved = [&](double lambda) {
            const DampRow row = p.at(lambda);
            const double ar = b_.alpha[static_cast<std::size_t>(k)] * b_.beta[static_cast<std::size_t>(k) - 1] * std::abs(p.coefficients(lambda).back());
            return ar <= atol_ * std::hypot(a_norm_, lambda) * std::hypot(row.r, lambda * row.x);
        };
        // The least candidate takes the most steps; the table is right once that is solved.
        const bool is_solved = solved(search_.count > 0 ? search_.low : damp);
        settled_ = is_solved && std::abs(std::log(damp / last_)) < kSettled;
        if (damp == 0) settled_ = is_solved && last_ == 0;
        last_ = damp;
    }
    const DampSearch& search_;
    double rows_, target_, atol_, a_norm_;
    Observer* observer_;
    Bidiagonal b_;
    std::int64_t next_look_ = kFirstLook;
    double last_ = kUnknown;
    bool settled_ = false;
    bool stopped_ = false;
};

void check(const PreparedProblem& problem, const SolveOptions& options, const DampSearch& search, bool use_x0) {
    const auto refuse = [](bool asked, const char* words) {
        if (asked) throw InputError(fmt::format("choice of lambda: {}", words));
    };
    const PrepareOptions& prepare = problem.options();
    refuse(options.damp > 0, "lambda is given");
    refuse(options.method == Method::cg, "cg knows no damping: take lsmr, lsqr or cgls");
    refuse(options.damp_center == DampCenter::given || use_x0 != (options.damp_center == DampCenter::x0),
           "the centre of the damping must be where the iteration starts: zero without x0, or x0");
    refuse(prepare.scale == Scaling::columns || prepare.scale == Scaling::both, "the damping would be in another metric with scaled columns");
    refuse(prepare.preconditioner != Preconditioner::none, "the damping would be in another metric with a preconditioner");
    refuse(prepare.regulariser != nullptr || !prepare.column_damp.empty(), "other regularisation leaves no single lambda to choose");
    refuse(options.trust_radius > 0, "a trust radius is a choice of its own");
    refuse(search.rule == DampRule::discrepancy && !(search.deviation > 0 && std::isfinite(search.deviation)),
           "the standard deviation of the errors of b must be a finite number above 0");
    refuse(search.count < 0 || (search.count > 0 && !(search.low > 0 && search.low <= search.high && std::isfinite(search.high))),
           "candidates must lie between two finite numbers above 0, the smaller one first");
    refuse(search.rule == DampRule::lcurve && search.count > 0 && search.count < 3, "a curvature needs at least 3 candidates");
}

}  // namespace

const char* name(DampRule rule) {
    switch (rule) {
        case DampRule::gcv: return "gcv";
        case DampRule::discrepancy: return "discrepancy";
        case DampRule::lcurve: return "lcurve";
    }
    return "";
}

DampChoice solve_with_chosen_damp(PreparedProblem& problem, std::span<const double> b, std::span<double> x, const SolveOptions& options,
                                  const DampSearch& search, bool use_x0, Observer* observer) {
    check(problem, options, search, use_x0);
    const CsrMatrix& a = problem.matrix();
    const std::span<const double> weights = problem.options().weights;
    const double rows = static_cast<double>(
        weights.empty() ? a.rows() : std::count_if(weights.begin(), weights.end(), [](double w) { return w > 0; }));
    const double target = search.deviation * std::sqrt(rows);
    const std::vector<double> x0 = use_x0 ? std::vector<double>(x.begin(), x.end()) : std::vector<double>();
    const std::int64_t limit = resolved_max_iterations(options, a.rows(), a.cols());

    SolveOptions undamped = options;
    undamped.method = Method::lsqr;
    undamped.damp_center = DampCenter::zero;
    undamped.atol = undamped.btol = undamped.conlim = undamped.ar_bound = undamped.ar_relative = 0;
    undamped.stall_window = 0;
    undamped.passes = std::numeric_limits<std::int64_t>::max();  // no test ends it, and so no audit restarts it
    undamped.reorthogonalize = SolveOptions::kAll;
    const std::int64_t most = std::min({limit, a.rows(), a.cols()});
    const std::int64_t room = options.basis_limit_bytes / std::max<std::int64_t>(static_cast<std::int64_t>(sizeof(double)) * a.cols(), 1);
    undamped.max_iterations = std::min(most, room);
    const double beta_1 = problem.residual_norm(b, x0);
    Scan scan(search, beta_1, rows, target, options.atol, problem.frobenius(), observer);
    DampChoice out;
    SolveResult first;
    std::vector<double> at(x.begin(), x.end());
    if (!use_x0) std::fill(at.begin(), at.end(), 0.0);
    const std::vector<double> start = at;
    first = problem.bidiagonalize(b, at, undamped, use_x0, &scan);
    const Bidiagonal& bidiagonal = scan.bidiagonal();
    out.steps = bidiagonal.steps();
    // It also ends where the Krylov space does: then there is nothing more to see.
    const bool complete = is_converged(first.status) || out.steps >= std::min(a.rows(), a.cols());
    out.settled = scan.settled() || complete;
    at = start;
    if (out.steps > 0 && std::isfinite(bidiagonal.alpha.back()) && bidiagonal.alpha[0] > 0) {
        const Projected p(bidiagonal, out.steps, rows);
        const Picked picked = pick(p, search, target);
        out.damp = picked.damp;
        if (!picked.note.empty()) out.notes.push_back(picked.note);
        out.table = search.count > 0 ? p.rows(search.low, search.high, search.count)
                                     : p.rows(std::max(p.smallest(), 1e-14 * p.largest()) / 4, 4 * p.largest(), kTable);
        problem.add_kept(p.coefficients(out.damp), at);
    }
    if (!out.settled && !scan.stopped()) {
        out.notes.push_back(fmt::format("lambda may still change: the bidiagonalisation ended after {} steps{}", out.steps,
                                        room < most && out.steps >= room ? ", the vectors that fit the limit of memory" : ""));
    }
    SolveOptions damped = options;
    damped.damp = out.damp;
    if (damped.method == Method::automatic) damped.method = Method::lsmr;
    damped.damp_center = use_x0 ? DampCenter::given : DampCenter::zero;
    damped.center = x0;
    damped.time_limit_seconds = std::max(0.0, options.time_limit_seconds - first.solve_seconds - first.audit_seconds);
    if (scan.stopped()) damped.max_iterations = 0;  // what is true of c + V_k y, and no more
    out.result = problem.solve(b, at, damped, true, scan.stopped() ? nullptr : observer);
    if (scan.stopped()) {
        out.result.status = Status::stopped;
        out.result.message = status_sentence(Status::stopped);
        out.result.notes.clear();
    }
    out.result.iterations += first.iterations;
    out.result.solve_seconds += first.solve_seconds;
    out.result.audit_seconds += first.audit_seconds;
    double moved = 0;
    for (std::size_t j = 0; j < at.size(); ++j) moved = std::hypot(moved, at[j] - start[j]);
    out.result.norms.dx = moved;
    out.result.norms.start_ratio = kUnknown;  // of the solve that ended it, not of the whole
    std::copy(at.begin(), at.end(), x.begin());
    return out;
}

}  // namespace lsmr
