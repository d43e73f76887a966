// The solve around a recurrence, written once for every method and both executors: scaling, start, run, audit, restart.
//
// A Backend (solver/cpu/cpu_backend.hpp, solver/cuda/cuda_backend.hpp) owns the vectors and runs the steps: products, elementwise
// updates, and `finish`, which hands sums to the recurrence where the vectors live.
//
// Columns may be scaled: the run then sees A D and z = D^-1 x (or A D K, with a preconditioner); norms that are reported and claims that
// are audited are those of x. A claim that holds for z but not for x makes the run go on under smaller tolerances.
//
// Scaling: the run sees A' = 2^e A, lambda' = 2^e lambda, b' = 2^f b, x' = 2^(f - e) x, with e and f such that the largest entries are
// near 1. So no square overflows or underflows, and a problem scaled by powers of two runs through the same bits.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "memory/error.hpp"
#include "operator/pairwise_sum.hpp"
#include "operator/stacked_operator.hpp"
#include "solver/cpu/host_audit.hpp"
#include "solver/observer.hpp"
#include "solver/options.hpp"
#include "solver/power_of_two.hpp"
#include "solver/random_sign.hpp"
#include "solver/recurrence.hpp"
#include "solver/result.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr {

// One problem for drive(), in the caller's units. The operator holds A and, below it, rows G that regularise: the problem is
// min ||b - A x||^2 + ||G (x - c)||^2 + lambda^2 ||x - c||^2. Where columns are scaled, its values are those of [A; G] D.
struct DriveProblem {
    std::span<const double> b;  // [b; G c]: a value for each row of the operator
    std::span<double> x;        // the start on entry where use_x0, the answer on return
    bool use_x0 = false;
    std::span<const double> linear;       // g, for CGLS: the objective gains -2 g^T x, and claims are of the gradient alone; empty: none
    std::span<const double> guess;        // where the iteration begins in place of x0; empty: at x0
    std::int64_t data_rows = 0;           // those of A, the upper ones
    std::span<const double> column_scale;  // D, powers of two; empty: ones. The iteration runs on z = D^-1 x
    double a_frobenius = -1;       // ||[A; G] D||_F in units of 2^a_exponent A; negative: unknown (a user's operator)
    double a_max_abs = 0;          // the same for the largest entry
    double claim_frobenius = -1;   // ||[A; G]||_F in the same units: what claims about x are measured by
    double data_frobenius = -1;    // ||A||_F in the same units: what is reported
    double preconditioned_frobenius = 0;  // ||[A; G] D K||_F in the same units, where there is a preconditioner
    double k_frobenius = 0;               // ||D K||_F
    int k_exponent = 0;                   // 2^-k_exponent K is the K that belongs to A itself
    // All these are those of 2^a_exponent A, and the operator was made from that matrix too: its values are those
    // of 2^(a_exponent + its own exponent()) A.
    int a_exponent = 0;
    std::function<SolveIdentity()> identity;  // for checkpoints; null: none are made
    const Checkpoint* resume = nullptr;       // to go on with; null: from the start
    HostAudit* host_audit = nullptr;  // for residuals in fp64 from the host's matrix, which is 2^a_exponent A; null: by the operator
};

// A sentence on which number was not finite, and when (iteration 0: before the first).
std::string suspect_words(Suspect suspect, std::int64_t iteration);
// A sentence with the numbers that decided.
// a_norm: as the tests used it; ar_bound: what test 2 allows ||A^T r|| whatever ||A|| ||r|| is.
std::string outcome_words(Status status, const SolveResult& result, const SolveOptions& options, double a_norm, double x0_norm,
                          double ar_bound, double eps);

template <class Method, class Backend>
class Drive {
    using T = typename Backend::Value;
    using Recurrence = typename Method::Recurrence;
    using Clock = std::chrono::steady_clock;
    static constexpr double kEps = static_cast<double>(std::numeric_limits<T>::epsilon());
    static constexpr int kMaxRestarts = 3;
    // A run from a guess, under a K that undoes any condition, stops when ||K^T A^T r|| has fallen so far, and starts again from x unless the audit
    // is content: rounding in K parts its residual from that of x, the more the larger cond(A) is and the further x moves, which is this much less in
    // the second run. Their rate is the same, so both together take no more iterations. After E. Epperly, M. Meier, Y. Nakatsukasa,
    // arXiv:2406.03468.
    static constexpr double kHalfway = 1e-6;

  public:
    Drive(Backend& backend, const DriveProblem& problem, const SolveOptions& options, double conlim, Observer* observer)
        : backend_(backend),
          a_(backend.base_operator()),
          problem_(problem),
          options_(options),
          conlim_(conlim),
          observer_(observer) {}

    SolveResult operator()() {
        start_clock_ = Clock::now();
        m_ = a_.rows();
        n_ = a_.cols();
        max_iterations_ = resolved_max_iterations(options_, problem_.data_rows, n_);
        x_ = backend_.col_vector(kX);
        choose_scale();
        load_start();

        SolveResult result;
        result.method = options_.method;
        result.norms.b = own_b_norm_;
        Progress progress;
        std::vector<double>& best_x = best_x_;
        Residuals& best = at_.best;
        Status& best_status = at_.best_status;
        Entry entry = Entry::start;
        const Checkpoint* resume = problem_.resume;
        if (resume != nullptr) {
            take_position(*resume, result);
        } else if (other_metric()) {
            take_start(residuals());
        }
        if (resume == nullptr && !problem_.guess.empty()) {
            upload_x(x_, problem_.guess);
            // The audit's bounds stay those of x0: where the guess is so large that its rounding shows, a restart from x takes it away.
            z0_norm_ = backend_.norm_now(n_, x_);
        }
        for (;;) {
            Residuals now;
            Clock::time_point audit_start;
            try {
                at_.restarts = result.restarts;
                at_.r_estimated = result.norms.r_estimated;
                at_.ar_estimated = result.norms.ar_estimated;
                at_.cond_estimate = result.norms.cond_estimate;
                progress = resume != nullptr        ? run_from(*resume)
                           : entry == Entry::start ? run(result.restarts > 0)
                                                   : go_on();
                resume = nullptr;
                if (is_resumable(static_cast<Status>(progress.code))) offer_checkpoint(Moment::end);
                audit_start = Clock::now();
                now = residuals();
            } catch (...) {
                // From the observer or a user's operator: x so far is handed over.
                hand_over_x();
                // Memory that ran out is a status; everything else goes on unchanged.
                const std::string reason = observer_threw_ ? std::string() : resource_error();
                if (reason.empty()) throw;
                return out_of_resources(result, reason);
            }
            if (result.restarts == 0 && !other_metric()) take_start({.r_damped = progress.r_start, .ar = progress.ar_start});
            const std::int64_t iterations = at_.base_iteration + progress.iteration;
            progress.suspect_iteration += at_.base_iteration;
            a_norm_used_ = progress.a_norm;
            auto status = static_cast<Status>(progress.code);
            if (status != Status::non_finite && !std::isfinite(now.x)) {
                status = Status::non_finite;
                progress.suspect = Suspect::iterate;
                progress.suspect_iteration = iterations;
            }
            const bool claimed = is_converged(status);
            const Status claim = status;
            if (claimed) status = audited(status, now);
            result.audit_seconds += seconds_since(audit_start);
            const bool refused = claimed && status == Status::audit_refused;
            // Kept vectors that are no longer orthogonal say nothing against x: a new run from there keeps new ones.
            const bool starts_again = refused || (status == Status::breakdown && anchors_.window > 0);
            const bool may_go_on = iterations < max_iterations_ && !out_of_time() && can_stack_;  // a new run stacks the damping
            // A run from a guess was to end halfway (kHalfway); those after it begin at the true residual again, too.
            const bool from_guess = !problem_.guess.empty();
            const bool halfway = from_guess && result.restarts == 0;
            if (refused && may_go_on && !halfway && !from_guess && (was_early(progress) || tighten(claim, now, progress))) {
                entry = Entry::go_on;
                continue;
            }
            at_.base_iteration = iterations;
            take_variances();
            // A restart is kept if it converged or improved the gradient.
            if (result.restarts == 0 || is_converged(status) || (std::isfinite(now.ar) && now.ar <= best.ar)) {
                best = now;
                best_status = status;
                result.norms.r_estimated = unscale_r(progress.r_norm);
                result.norms.ar_estimated = unscale_estimate(progress.ar_norm, f_);
                result.norms.cond_estimate = progress.largest_cond;
                result.norms.a_estimated = unscale_estimate(progress.a_estimated, 0);
                best_x.resize(static_cast<std::size_t>(n_));
                download_x(best_x);
            } else if (starts_again) {
                break;  // it got worse
            }
            if (!starts_again || result.restarts == kMaxRestarts || !may_go_on) break;
            ++result.restarts;
            entry = Entry::start;
        }

        std::copy(best_x.begin(), best_x.end(), problem_.x.begin());
        result.variances = variances_;
        result.status = best_status;
        result.iterations = at_.base_iteration;
        result.norms.r = unscale_r(best.r);
        result.norms.r_damped = unscale_r(best.r_damped);
        if (lambda_ > 0 && best.r < 0x1p-500) take_small_residual(best_x, unscale_r(lambda_ * best.from_center), result.norms);
        result.norms.ar = unscale_ar(best.ar);
        // An x that is far smaller than b over A: its squares vanish there.
        const int x_exponent = binary_exponent(max_abs(best_x.data(), n_));
        result.norms.x = best.x < 0x1p-500 ? std::ldexp(host_norm(best_x.data(), n_, -x_exponent), x_exponent) : unscale_x(best.x);
        result.norms.dx = unscale_x(best.dx);
        result.norms.a_frobenius = problem_.data_frobenius >= 0 ? std::ldexp(problem_.data_frobenius, -problem_.a_exponent)
                                                               : std::ldexp(a_norm_used_, -e_);
        if (result.status != Status::non_finite &&
            !std::all_of(best_x.begin(), best_x.end(), [](double xj) { return std::isfinite(xj); })) {
            result.status = Status::non_finite;  // x itself lies outside the range of doubles
            progress.suspect = Suspect::iterate;
            progress.suspect_iteration = at_.base_iteration;
        }
        // (||A^T r|| / ||r||) / (||A^T r_0|| / ||r_0||), free of the scale of A and b.
        result.norms.start_ratio = best.ar / best.r_damped / (at_.ar_start / at_.r_start);
        result.message = result.status == Status::non_finite ? suspect_words(progress.suspect, progress.suspect_iteration)
                                                             : outcome_words(result.status, result, options_, std::ldexp(claim_norm(), -e_),
                                                                             unscale_x(x0_norm_), unscale_ar(at_.ar_bound), kEps);
        result.solve_seconds = seconds_since(start_clock_) - result.audit_seconds;
        return result;
    }

  private:
    // Column vectors of a method come first, then ours.
    static constexpr std::size_t kX = static_cast<std::size_t>(Method::kColVectors);
    static constexpr std::size_t kStart = kX + 1;    // x0, the centre
    static constexpr std::size_t kScratch = kX + 2;  // gradient of the audit
    static constexpr std::size_t kCenter = kX + 3;   // a centre that is not x0
    static constexpr std::size_t kScale = kX + 4;    // D
    static constexpr std::size_t kLinear = kX + 5;   // of a linear term
    static constexpr std::size_t kAuditRow = static_cast<std::size_t>(Method::kRowVectors);

    struct Residuals {  // scaled by powers of two, of x and not of z
        double r = 0, r_all = 0, r_damped = 0, ar = 0, x = 0, dx = 0, from_center = 0;
    };

    void choose_scale() {
        double a_max = problem_.a_max_abs;
        int a_max_exponent = problem_.a_exponent;
        operator_exponent_ = problem_.a_exponent + a_.exponent();
        const bool unknown_a = problem_.a_frobenius < 0;
        if (unknown_a) {
            // A user's operator: measured by one product, |A^T b| against |b|.
            const double b_max = max_abs(problem_.b.data(), m_);
            const int b_exponent = binary_exponent(b_max);
            T* u = backend_.row_vector(0);
            T* g = backend_.col_vector(0);
            backend_.upload_row(u, problem_.b.data(), m_, -b_exponent);
            backend_.adjoint_product(1.0, u, 0.0, g);
            a_max = backend_.max_abs_now(n_, g);
            a_max_exponent = operator_exponent_;
        }
        e_ = binary_exponent(a_max) - a_max_exponent;
        const double damp = options_.damp * largest_scale();
        if (damp > 0) e_ = a_max > 0 ? std::max(e_, binary_exponent(damp)) : binary_exponent(damp);
        e_ = -e_;
        const double b_max = max_abs(problem_.b.data(), m_);
        double x_max = problem_.use_x0 ? max_abs(problem_.x.data(), n_) : 0.0;
        if (has_given_center()) x_max = std::max(x_max, max_abs(options_.center.data(), n_));
        if (!unknown_a && a_max == 0) {
            // Any scale is that of the operator's zeros: the damping sets it, or else x0, which must not vanish beside b.
            if (damp == 0) e_ = binary_exponent(x_max) - binary_exponent(b_max);
            operator_exponent_ = e_;
        }
        can_stack_ = std::ldexp(damp, operator_exponent_) <= static_cast<double>(std::numeric_limits<T>::max());
        // sigma must be a T.
        e_ = std::min(e_, operator_exponent_ + std::numeric_limits<T>::max_exponent - 2);
        // A x0 is at most about 2^-e max |x0|.
        f_ = b_max > 0 ? binary_exponent(b_max) : 0;
        if (x_max > 0) f_ = b_max > 0 ? std::max(f_, binary_exponent(x_max) - e_) : binary_exponent(x_max) - e_;
        // The r with A^T r = g.
        if (has_linear()) {
            const int g_exponent = binary_exponent(max_abs(problem_.linear.data(), n_)) + e_;
            f_ = b_max > 0 || x_max > 0 ? std::max(f_, g_exponent) : g_exponent;
        }
        f_ = -f_;
        sigma_ = std::ldexp(1.0, std::max(e_ - operator_exponent_, -1022));
        lambda_ = std::ldexp(options_.damp, e_);
        at_.ar_bound = std::ldexp(options_.ar_bound, e_ + f_);
        // ||[A'; lambda' D]||_F and ||[A'; lambda' I]||_F; n lambda'^2 is safe: lambda' < 1.
        double scale2 = static_cast<double>(n_);
        if (scales_columns()) {
            scale2 = 0;
            for (const double d : problem_.column_scale) scale2 += square(d);
        }
        const auto stacked_norm = [this](double frobenius, double damping) {
            return frobenius >= 0 ? std::sqrt(square(std::ldexp(frobenius, e_ - problem_.a_exponent)) + damping * square(lambda_)) : 0.0;
        };
        a_norm_ = stacked_norm(problem_.a_frobenius, scale2);
        if (backend_.preconditioned()) {
            a_norm_of_z_ = a_norm_;
            a_norm_ = stacked_norm(problem_.preconditioned_frobenius, square(problem_.k_frobenius));
        }
        claim_norm_ = stacked_norm(problem_.claim_frobenius, static_cast<double>(n_));
        // The iteration will see A K; what claims about x are measured by is A.
        if (unknown_a && backend_.preconditioned()) {
            a_norm_of_z_ = claim_norm_ = std::sqrt(square(probed_frobenius()) + static_cast<double>(n_) * square(lambda_));
        }
        at_.tolerances = {options_.atol, options_.btol, 1.0, 1.0};
    }

    // ||A'||_F by random signs q: the mean of ||A' q||^2 is its square, with a spread of at most the root of 2 over their number.
    double probed_frobenius() {
        constexpr std::int64_t kProbes = 16;
        T* q = backend_.col_vector(0);
        T* u = backend_.row_vector(0);
        std::vector<double> signs(static_cast<std::size_t>(n_));
        double sum = 0;
        for (std::int64_t probe = 0; probe < kProbes; ++probe) {
            for (std::size_t j = 0; j < signs.size(); ++j) signs[j] = random_sign(1, probe, j);
            backend_.upload_col(q, signs.data(), n_, 0);
            backend_.product(sigma_, q, 0.0, u);
            sum += square(backend_.norm_now(m_, u));
        }
        return std::sqrt(sum / static_cast<double>(kProbes));
    }
    void load_start() {
        // ||b|| by its own scaling, since f may be that of A x0, and in fp64 whatever the vectors are.
        const int b_exponent = binary_exponent(max_abs(problem_.b.data(), problem_.data_rows));
        const double b_norm = host_norm(problem_.b.data(), problem_.data_rows, -b_exponent);
        own_b_norm_ = std::ldexp(b_norm, b_exponent);
        b_norm_ = std::ldexp(b_norm, b_exponent + f_);
        if (scales_columns()) {
            T* d = backend_.col_vector(kScale);
            backend_.upload_col(d, problem_.column_scale.data(), n_, 0);
            scale_ = d;
        }
        if (problem_.use_x0) {
            upload_x(x_, problem_.x);
            start_ = backend_.col_vector(kStart);
            upload_x(start_, problem_.x);
            z0_norm_ = backend_.norm_now(n_, x_);
            x0_norm_ = x_norm_now();
        } else {
            backend_.zero(x_, n_);
        }
        anchors_.start = start_;
        anchors_.preconditioned = backend_.preconditioned();
        anchors_.bounded = options_.trust_radius > 0;
        anchors_.variances = options_.estimate_variances;
        make_basis();
        if (has_linear()) {
            host_g_.resize(static_cast<std::size_t>(n_));
            for (std::size_t j = 0; j < host_g_.size(); ++j) host_g_[j] = column_scale(j) * problem_.linear[j];
            T* linear = backend_.col_vector(kLinear);
            backend_.upload_col(linear, host_g_.data(), n_, e_ + f_);
            anchors_.linear = linear;
        }
        if (options_.damp == 0) return;
        if (options_.damp_center == DampCenter::x0) anchors_.center = start_;
        if (options_.damp_center == DampCenter::given) {
            T* center = backend_.col_vector(kCenter);
            upload_x(center, options_.center);
            anchors_.center = center;
        }
    }

    // The residual of x in row vector `into` (upper m rows): r <- b' - A' x'.
    void load_residual(T* into, bool x_is_zero) {
        if (problem_.host_audit != nullptr && !x_is_zero) {
            host_residual();
            backend_.upload_row(into, host_r_.data(), m_, 0);
            return;
        }
        backend_.upload_row(into, problem_.b.data(), m_, f_);
        if (!x_is_zero) backend_.product(-sigma_, x_, 1.0, into);
    }
    void host_residual() {
        host_x_.resize(static_cast<std::size_t>(n_));
        host_r_.resize(static_cast<std::size_t>(m_));
        backend_.download_col(host_x_.data(), x_, n_, 0);
        const PowerOfTwo scale(f_);
        for (std::int64_t i = 0; i < m_; ++i) host_r_[static_cast<std::size_t>(i)] = scale(problem_.b[static_cast<std::size_t>(i)]);
        problem_.host_audit->subtract_product(host_sigma(), host_x_.data(), host_r_.data());
    }
    double host_sigma() const { return std::ldexp(1.0, std::clamp(e_ - problem_.a_exponent, -1022, 1022)); }

    Progress run(bool restarted) {
        state_ = nullptr;
        const bool at_center = !restarted && anchors_.center == start_ && problem_.guess.empty();
        const bool x_is_zero = !restarted && !problem_.use_x0 && problem_.guess.empty();
        // lambda ||x - c|| of x = D z, or in the metric of M, is no scalar damping.
        at_.stacked = lambda_ > 0 && (other_metric() || (!Method::kDampsAnyStart && !at_center));
        if (at_.stacked && !can_stack_)
            throw InputError(
                fmt::format("a damping of {} is beyond the range of {} beside the entries of A", options_.damp, sizeof(T) == 4 ? "fp32" : "doubles"));
        make_stack();
        const typename Backend::StackScope scope(backend_, stack_.get());
        const auto w = Method::vectors(backend_, x_, anchors_);
        T* r0 = backend_.row_vector(0);
        load_residual(r0, x_is_zero);
        if (at_.stacked) backend_.elementwise(n_, FromCenter<T>{lambda_, anchors_.center, x_, scale_, r0 + m_}, 0);

        run_x0_norm_ = restarted && !only_x0_has_size() ? x_norm_now() : x0_norm_;
        Recurrence state{};
        state.prepare(sigma_, at_.stacked ? 0.0 : lambda_, rules(!restarted), backend_.ring(),
                      restarted ? backend_.norm_now(n_, x_) : z0_norm_);
        state_ = backend_.put_state(state);
        seen_ = 0;
        return iterate(w, Entry::start);
    }
    // After a stop: the same vectors, under the tolerances as they are now.
    Progress go_on() {
        const typename Backend::StackScope scope(backend_, stack_.get());
        Recurrence state = backend_.get_state(state_);
        state.resume(rules(false), backend_.ring());
        state.memory.passed = 0;
        state_ = backend_.put_state(state);
        return iterate(Method::vectors(backend_, x_, anchors_), Entry::go_on);
    }
    Progress iterate(const typename Method::Vectors& w, Entry entry) {
        const auto poll = [&](const Progress& progress, const RecordRing& ring) {
            const int code = observe(progress, ring);
            if (code == kGoOn) offer_checkpoint(Moment::between_iterations);
            return code;
        };
        const bool watched = observer_ != nullptr || std::isfinite(options_.time_limit_seconds);
        return backend_.template run<Method>(w, state_, anchors_, entry, watched, poll);
    }
    void make_stack() {
        stack_.reset();
        damping_.reset();
        if (!at_.stacked) return;
        // sigma multiplies the whole stack, so lambda I is given in the operator's units.
        const double lambda = std::ldexp(options_.damp, operator_exponent_);
        if (scales_columns()) {
            std::vector<double> diagonal(problem_.column_scale.begin(), problem_.column_scale.end());
            for (double& d : diagonal) d *= lambda;
            damping_ = backend_.diagonal(diagonal);
        } else {
            damping_ = backend_.scaled_identity(n_, lambda);
        }
        stack_ = std::make_unique<StackedOperator<T>>(a_, *damping_, backend_.one());
    }
    static bool is_resumable(Status status) {
        return status == Status::iteration_limit || status == Status::time_limit || status == Status::stopped;
    }
    // Hands a checkpoint to an observer that wants one. The device may be ahead of what was observed: its records come first.
    void offer_checkpoint(Moment moment) {
        if (observer_ == nullptr || !problem_.identity || !call_observer([&] { return observer_->wants_checkpoint(moment); })) return;
        const Recurrence state = backend_.get_state(state_);
        observe(state.progress, backend_.ring());
        Checkpoint c;
        c.identity = problem_.identity();
        c.iteration = at_.base_iteration + state.progress.iteration;
        c.position = bytes_of(at_);
        c.state = bytes_of(state);
        for_each_state_vector([&](T* p, std::int64_t n) {
            const std::size_t begin = c.vectors.size();
            c.vectors.resize(begin + static_cast<std::size_t>(n) * sizeof(T));
            backend_.get_vector(reinterpret_cast<T*>(c.vectors.data() + begin), p, n);
        });
        c.best_x = best_x_;
        c.variances = variances_;
        call_observer([&] { observer_->on_checkpoint(c); return true; });
    }
    void take_position(const Checkpoint& c, SolveResult& result) {
        if (c.position.size() != sizeof at_ || c.state.size() != sizeof(Recurrence))
            throw InputError("the saved state is of another version of this program");
        std::memcpy(&at_, c.position.data(), sizeof at_);
        best_x_ = c.best_x;
        variances_ = c.variances;
        result.restarts = at_.restarts;
        result.norms.r_estimated = at_.r_estimated;
        result.norms.ar_estimated = at_.ar_estimated;
        result.norms.cond_estimate = at_.cond_estimate;
    }
    // The vectors and scalars of a checkpoint, under limits as they are now; where it is beyond them already, no iteration is made.
    Progress run_from(const Checkpoint& c) {
        make_stack();
        const typename Backend::StackScope scope(backend_, stack_.get());
        const auto w = Method::vectors(backend_, x_, anchors_);
        std::size_t begin = 0;
        for_each_state_vector([&](T* p, std::int64_t n) {
            const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(T);
            if (begin + bytes > c.vectors.size()) throw InputError("the saved state is of another version of this program");
            std::vector<T> host(static_cast<std::size_t>(n));
            std::memcpy(host.data(), c.vectors.data() + begin, bytes);
            backend_.put_vector(p, host.data(), n);
            begin += bytes;
        });
        Recurrence state{};
        std::memcpy(static_cast<void*>(&state), c.state.data(), sizeof state);
        StopRules rules = state.rules;
        rules.max_iterations = max_iterations_ - at_.base_iteration;
        if (state.progress.stopped() && is_resumable(static_cast<Status>(state.progress.code))) {
            state.resume(rules, backend_.ring());
        } else {
            state.rules = rules;
            state.ring = backend_.ring();
        }
        if (!state.progress.stopped() && state.progress.iteration >= rules.max_iterations)
            state.finish(Recurrence::host_stop, nullptr, static_cast<int>(Status::iteration_limit));
        run_x0_norm_ = rules.x0_norm;
        seen_ = state.progress.published;
        state_ = backend_.put_state(state);
        return iterate(w, Entry::go_on);
    }
    template <class F>
    void for_each_state_vector(const F& f) {
        Method::for_each_vector(Method::vectors(backend_, x_, anchors_), at_.stacked ? m_ + n_ : m_, n_, f);
    }
    template <class S>
    static std::vector<std::byte> bytes_of(const S& s) {
        std::vector<std::byte> bytes(sizeof s);
        std::memcpy(bytes.data(), &s, sizeof s);
        return bytes;
    }
    // What the observer throws passes through the solve as it is.
    template <class F>
    auto call_observer(const F& f) {
        observer_threw_ = true;  // unless it comes back
        const auto answer = f();
        observer_threw_ = false;
        return answer;
    }
    StopRules rules(bool at_start) {
        StopRules rules;
        rules.atol = at_.tolerances.atol;
        rules.btol = at_.tolerances.btol;
        rules.conlim = conlim_;
        rules.eps = kEps;
        rules.floor = at_.tolerances.floor;
        rules.b_norm = b_norm_;
        rules.a_norm = a_norm_;
        rules.a_norm_of_x = a_norm_of_z_;
        if (anchors_.window > 0 && !backend_.preconditioned()) rules.alpha_limit = 10 * a_norm_;  // with K ||A|| may be less exact
        rules.x0_norm = run_x0_norm_;
        rules.a_norm_of_x0 = claim_norm_;
        rules.ar_bound = at_.tolerances.ar_part * at_.ar_bound;
        if (at_start && !other_metric()) rules.ar_relative = options_.ar_relative;
        if (at_start && !problem_.guess.empty()) rules.ar_relative = kHalfway;
        rules.trust_radius = std::ldexp(options_.trust_radius, f_ - e_);
        rules.only_gradient = has_linear();
        rules.passes = options_.passes;
        rules.max_iterations = max_iterations_ - at_.base_iteration;
        rules.stall_window = resolved_stall_window(options_, problem_.data_rows, n_);
        return rules;
    }

    // Hands new records to the observer; a status to stop with, or kGoOn.
    int observe(const Progress& progress, const RecordRing& ring) {
        if (observer_ != nullptr) {
            records_.clear();
            const double seconds = seconds_since(start_clock_);
            for (; seen_ < progress.published; ++seen_) {
                IterationRecord record = ring.records[seen_ % ring.size];
                record.compat = b_norm_ > 0 ? record.r_norm / b_norm_ : std::numeric_limits<double>::quiet_NaN();
                record.ls = record.ar_norm == 0 ? 0.0 : record.ar_norm / (record.a_norm * record.r_norm);
                record.iteration += at_.base_iteration;
                record.r_norm = unscale_r(record.r_norm);
                record.ar_norm = unscale_estimate(record.ar_norm, f_);
                record.a_norm = unscale_estimate(record.a_norm, 0);
                record.alpha = unscale_estimate(record.alpha, 0);
                record.beta = unscale_estimate(record.beta, 0);
                record.x_norm = unscale_x(record.x_norm);
                record.seconds = seconds;
                records_.push_back(record);
            }
            if (call_observer([&] { return observer_->on_iterations(records_); }) == Verdict::stop)
                return static_cast<int>(Status::stopped);
        }
        return out_of_time() ? static_cast<int>(Status::time_limit) : kGoOn;
    }

    void take_start(const Residuals& start) {
        at_.r_start = start.r_damped;
        at_.ar_start = start.ar;
        at_.ar_bound = std::max(at_.ar_bound, options_.ar_relative * at_.ar_start);
    }
    void make_basis() {
        if (options_.reorthogonalize == 0) return;
        if (backend_.preconditioned()) throw InputError("reorthogonalisation is in the metric of A^T A: take it or a preconditioner");
        // There are no more than min(m, n) orthogonal vectors, and no more than iterations.
        const std::int64_t most = std::max<std::int64_t>(std::min({m_, n_, max_iterations_}), 1);
        const bool all = options_.reorthogonalize == SolveOptions::kAll;
        anchors_.window = all ? most : std::min(options_.reorthogonalize, most);
        // From half of all that there are on, too little is left of a new v for one pass: fp32 lost orthogonality there, and broke down.
        anchors_.twice = all || 2 * anchors_.window >= std::min(m_, n_);
        const double bytes = static_cast<double>(anchors_.window) * static_cast<double>(n_) * sizeof(T);
        if (bytes > static_cast<double>(options_.basis_limit_bytes)) {
            throw InputError(fmt::format("reorthogonalisation would keep {} vectors of {} values, {:.1f} GiB; the limit is {:.1f} GiB: take a smaller "
                                         "window or fewer iterations",
                                         anchors_.window, n_, bytes / 0x1p30, static_cast<double>(options_.basis_limit_bytes) / 0x1p30));
        }
        anchors_.basis = backend_.basis(anchors_.window * n_);
        backend_.zero(anchors_.basis, anchors_.window * n_);
    }
    // Each run's estimates lie below the truth, so the largest counts. (A'^T A')^-1 = 2^(-2 e) (A^T A)^-1.
    void take_variances() {
        if (!anchors_.variances) return;
        const typename Method::Vectors w = Method::vectors(backend_, x_, anchors_);
        if constexpr (requires { w.variances; }) {
            host_g_.resize(static_cast<std::size_t>(n_));
            backend_.download_col(host_g_.data(), w.variances, n_, 0);
            variances_.resize(host_g_.size(), 0.0);
            for (std::size_t j = 0; j < host_g_.size(); ++j) {
                const double root = std::ldexp(column_scale(j) * std::sqrt(host_g_[j]), e_);
                variances_[j] = std::max(variances_[j], root * root);
            }
        }
    }
    void hand_over_x() {
        try {
            download_x(problem_.x);
        } catch (const Error&) {
            // A device that failed keeps x; what it failed of is the news.
        }
    }
    // In a handler: what memory ran out, or nothing.
    static std::string resource_error() {
        try {
            throw;
        } catch (const OutOfMemory& error) {
            return error.what();
        } catch (const std::bad_alloc&) {
            return "host memory ran out";
        } catch (...) {
            return {};
        }
    }
    // x was handed over; its residuals cannot be had from an operator that has no memory.
    SolveResult out_of_resources(SolveResult result, const std::string& reason) {
        const double b = result.norms.b;
        result.norms = Norms::unknown();
        result.norms.b = b;
        result.norms.x = host_norm(problem_.x.data(), n_);
        result.status = Status::resource_error;
        // On the way to x of iteration k + 1, LSMR and LSQR have published k.
        result.iterations = at_.base_iteration + (state_ != nullptr ? backend_.get_state(state_).progress.published : 0);
        result.message = std::string(status_sentence(result.status)) + ": " + reason;
        result.solve_seconds = seconds_since(start_clock_);
        return result;
    }

    // Of x, scaled, in fp64 where that can be had.
    Residuals residuals() {
        Residuals now = problem_.host_audit != nullptr ? host_residuals() : own_residuals();
        now.r_damped = std::sqrt(now.r_all * now.r_all + lambda_ * lambda_ * now.from_center * now.from_center);
        return now;
    }
    Residuals own_residuals() {
        Residuals now;
        now.x = now.dx = x_norm_now();
        T* scratch = backend_.col_vector(kScratch);
        const auto from = [&](const T* c) {  // D (c - z) into scratch, and its norm
            backend_.elementwise(n_, FromCenter<T>{1.0, c, x_, scale_, scratch}, 0);
            return backend_.norm_now(n_, scratch);
        };
        if (start_ != nullptr) now.dx = from(start_);
        T* r = backend_.row_vector(kAuditRow);
        load_residual(r, false);
        now.r = backend_.norm_now(problem_.data_rows, r);
        now.r_all = problem_.data_rows == m_ ? now.r : backend_.norm_now(m_, r);
        if (lambda_ > 0) {
            now.from_center = from(anchors_.center);
            if (scale_ != nullptr) backend_.elementwise(n_, FromCenter<T>{-1.0, nullptr, scratch, scale_, scratch}, 0);
        }
        // Of z: A'^T r + lambda^2 D^2 (c - z); D^-1 makes it that of x.
        backend_.adjoint_product(sigma_, r, lambda_ * lambda_, scratch);
        if (anchors_.linear != nullptr) backend_.elementwise(n_, AddTo<T>{anchors_.linear, scratch}, 0);
        now.ar = norm_over_scale(scratch);
        return now;
    }
    // ||b - A x|| where lambda dwarfs A: beside lambda x, which sets the scale, its squares vanish, so it has a scale of its own. Overwrites x_.
    void take_small_residual(std::span<const double> x, double damping_part, Norms& norms) {
        upload_x(x_, x);
        T* r = backend_.row_vector(kAuditRow);
        backend_.product(1.0, x_, 0.0, r);
        const int product_exponent = operator_exponent_ + f_ - e_;  // r = 2^that A x
        const double b_max = max_abs(problem_.b.data(), m_);
        const double product_max = backend_.max_abs_now(m_, r);
        int exponent = binary_exponent(product_max) - product_exponent;
        if (b_max > 0) exponent = product_max > 0 ? std::max(exponent, binary_exponent(b_max)) : binary_exponent(b_max);
        backend_.upload_row(r, problem_.b.data(), m_, -exponent);
        backend_.product(-std::ldexp(1.0, -exponent - product_exponent), x_, 1.0, r);
        norms.r = std::ldexp(backend_.norm_now(problem_.data_rows, r), exponent);
        norms.r_damped = std::hypot(std::ldexp(backend_.norm_now(m_, r), exponent), damping_part);
    }
    double norm_over_scale(const T* p) {
        if (scale_ == nullptr) return backend_.norm_now(n_, p);
        backend_.elementwise(n_, DividedNorm<T>{p, scale_}, 0);
        return backend_.root_of_sum(0);
    }
    double x_norm_now() {
        if (scale_ == nullptr) return backend_.norm_now(n_, x_);
        T* scratch = backend_.col_vector(kScratch);
        backend_.elementwise(n_, FromCenter<T>{-1.0, nullptr, x_, scale_, scratch}, 0);
        return backend_.root_of_sum(0);
    }
    // With b, x0 and the centre as the caller gave them, not as T holds them.
    Residuals host_residuals() {
        Residuals now;
        host_residual();
        now.r = host_norm(host_r_.data(), problem_.data_rows);
        now.r_all = host_norm(host_r_.data(), m_);
        host_g_.assign(static_cast<std::size_t>(n_), 0.0);
        const auto from = [&](std::span<const double> c) {  // c - x into host_g_, and its norm
            const PowerOfTwo scale(f_ - e_);
            for (std::size_t j = 0; j < host_g_.size(); ++j) host_g_[j] = (c.empty() ? 0.0 : scale(c[j])) - column_scale(j) * host_x_[j];
            return host_norm(host_g_.data(), n_);
        };
        now.x = now.dx = from({});
        if (start_ != nullptr) now.dx = from(problem_.x);
        if (lambda_ > 0) {
            const bool around_x0 = anchors_.center != nullptr && !has_given_center();
            now.from_center = from(around_x0            ? std::span<const double>(problem_.x)
                                   : has_given_center() ? options_.center
                                                        : std::span<const double>());
            for (std::size_t j = 0; j < host_g_.size(); ++j) host_g_[j] *= column_scale(j);
        }
        problem_.host_audit->adjoint(host_sigma(), host_r_.data(), lambda_ * lambda_, host_g_.data());
        for (std::size_t j = 0; j < host_g_.size(); ++j) host_g_[j] /= column_scale(j);
        if (has_linear()) {
            const PowerOfTwo scale(e_ + f_);
            for (std::size_t j = 0; j < host_g_.size(); ++j) host_g_[j] += scale(problem_.linear[j]);
        }
        now.ar = host_norm(host_g_.data(), n_);
        return now;
    }
    // ||2^exponent p||
    static double host_norm(const double* p, std::int64_t n, int exponent = 0) {
        const PowerOfTwo scale(exponent);
        return std::sqrt(pairwise_sum(0, n, [&](std::int64_t i) { return square(scale(p[i])); }));
    }

    // The status that the recomputed residuals confirm.
    Status audited(Status claimed, const Residuals& now) const {
        const double a_norm = claim_norm();
        const double size = size_of(now);
        const bool solves = fits(b_norm_, now.r_damped / 2) &&
                            now.r_damped <= 2 * (options_.btol * b_norm_ + options_.atol * a_norm * now.x);
        const bool is_least = now.ar <= 2 * std::max(options_.atol * a_norm * now.r_damped, at_.ar_bound);
        const bool solves_eps = now.r_damped <= 8 * kEps * size;
        const bool is_least_eps = now.ar <= 8 * kEps * a_norm * size;
        switch (claimed) {
            case Status::compatible:
                return solves ? claimed : solves_eps ? Status::compatible_eps : Status::audit_refused;
            case Status::least_squares:
                return is_least ? claimed : is_least_eps ? Status::least_squares_eps : Status::audit_refused;
            case Status::compatible_eps:
                return solves || solves_eps ? claimed : Status::audit_refused;
            case Status::least_squares_eps:
                return is_least || is_least_eps ? claimed : Status::audit_refused;
            default:  // the start solves it
                return now.r_damped == 0 || is_least || is_least_eps ? claimed : Status::audit_refused;
        }
    }

    // LSMR and LSQR test with the ||x|| of the iteration before. Where x shrinks, as from an x0 that is far larger than the solution, the
    // claim may not hold with its own; nothing is wrong with the vectors then, and the run goes on with them.
    bool was_early(const Progress& p) {
        return passed_test(backend_.get_state(state_).rules, {p.iteration, p.r_norm, p.ar_norm, p.a_norm, p.cond, p.x_norm}) == kGoOn;
    }

    // After a claim that holds for z and not for x: tolerances below what was reached, as far as x misses its own, and where the claim was of
    // machine precision, which for z is not that of x, a lower floor under them. False where going on cannot meet them: what the estimates
    // are of is rounding by now, and only a restart from x knows its true residual.
    bool tighten(Status claim, const Residuals& now, const Progress& p) {
        if (!other_metric()) return false;
        const bool of_r = claim == Status::compatible || claim == Status::compatible_eps;
        const double a_norm = claim_norm();
        const double rounding = 4 * kEps * size_of(now);
        const double wanted_r = std::max(options_.btol * b_norm_ + options_.atol * a_norm * now.x, rounding) / now.r_damped;
        const double wanted_ar = std::max({options_.atol * a_norm * now.r_damped, at_.ar_bound, a_norm * rounding}) / now.ar;
        const double factor = std::clamp((of_r ? wanted_r : wanted_ar) / 2, 1e-3, 0.5);
        auto& t = at_.tolerances;
        const double size = (a_norm_of_z_ > 0 ? a_norm_of_z_ : p.a_norm) * p.x_norm;
        const double gradient = p.a_norm * p.r_norm;
        const double met = of_r ? p.r_norm / (t.btol * b_norm_ + t.atol * size)
                                : p.ar_norm / std::max(t.atol * gradient, t.ar_part * at_.ar_bound);
        const double smaller = factor * (met < 1 ? met : 1.0);
        t.atol *= smaller;
        t.btol *= smaller;
        t.ar_part *= smaller;
        const double units = (of_r ? p.r_norm / (b_norm_ + size) : p.ar_norm / gradient) / kEps;
        if (claim == Status::compatible_eps || claim == Status::least_squares_eps) t.floor *= factor * std::clamp(units / t.floor, 1e-3, 1.0);
        return units > 1;
    }
    // ||A|| ||x|| + ||b||, of x whatever rounding of a large x0 was left in a run: the next one starts without it.
    double size_of(const Residuals& now) const { return claim_norm() * (only_x0_has_size() ? std::max(now.x, x0_norm_) : now.x) + b_norm_; }
    // Then x may shrink to 0, and nothing else says what is small.
    bool only_x0_has_size() const { return b_norm_ == 0 && !has_linear() && !has_given_center(); }
    double claim_norm() const { return claim_norm_ > 0 ? claim_norm_ : a_norm_used_; }
    // Whether the recurrence measures in another metric than claims about x do.
    bool other_metric() const { return scales_columns() || backend_.preconditioned(); }
    bool scales_columns() const { return !problem_.column_scale.empty(); }
    double column_scale(std::size_t j) const { return scales_columns() ? problem_.column_scale[j] : 1.0; }
    double largest_scale() const {
        return scales_columns() ? *std::max_element(problem_.column_scale.begin(), problem_.column_scale.end()) : 1.0;
    }
    // z <- 2^(f - e) D^-1 x
    void upload_x(T* z, std::span<const double> x) {
        if (!scales_columns()) return backend_.upload_col(z, x.data(), n_, f_ - e_);
        host_x_.assign(x.begin(), x.end());
        for (std::size_t j = 0; j < host_x_.size(); ++j) host_x_[j] /= problem_.column_scale[j];
        backend_.upload_col(z, host_x_.data(), n_, f_ - e_);
    }
    void download_x(std::span<double> x) {
        backend_.download_col(x.data(), x_, n_, e_ - f_);
        if (!scales_columns()) return;
        for (std::size_t j = 0; j < x.size(); ++j) x[j] *= problem_.column_scale[j];
    }
    bool has_linear() const { return !problem_.linear.empty(); }
    bool has_given_center() const { return options_.damp > 0 && options_.damp_center == DampCenter::given; }
    bool out_of_time() const { return seconds_since(start_clock_) >= options_.time_limit_seconds; }
    static double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
    double unscale_r(double value) const { return std::ldexp(value, -f_); }
    double unscale_ar(double value) const { return std::ldexp(value, -e_ - f_); }
    // ||A|| and ||A^T r|| as the recurrence has them: with a preconditioner those of A K, whatever the scale of A is.
    double unscale_estimate(double value, int f) const {
        return std::ldexp(value, -e_ - f - (backend_.preconditioned() ? problem_.k_exponent : 0));
    }
    double unscale_x(double value) const { return std::ldexp(value, e_ - f_); }

    Backend& backend_;
    const LinearOperator<T>& a_;
    const DriveProblem& problem_;
    const SolveOptions& options_;
    double conlim_;
    Observer* observer_;

    Clock::time_point start_clock_;
    std::int64_t m_ = 0;
    std::int64_t n_ = 0;
    std::int64_t max_iterations_ = 0;
    int e_ = 0;
    int f_ = 0;
    int operator_exponent_ = 0;  // the operator's values are those of 2^operator_exponent_ A
    bool can_stack_ = true;      // lambda in the operator's units, as rows that damp hold it, is a T
    double sigma_ = 1;
    double lambda_ = 0;
    double a_norm_ = 0;       // scaled, of z, with the damping; 0: unknown
    double a_norm_of_z_ = 0;  // scaled, without the preconditioner; 0: there is none
    double claim_norm_ = 0;   // scaled, of x, with the damping; 0: unknown
    double a_norm_used_ = 0;  // scaled: as the last run saw it
    double own_b_norm_ = 0;   // as the caller has it
    double b_norm_ = 0;       // scaled
    double x0_norm_ = 0;      // scaled
    double run_x0_norm_ = 0;  // of the start of this run
    double z0_norm_ = 0;
    // Where the solve stands around its recurrence; a checkpoint holds it as it is.
    struct Position {
        std::int64_t base_iteration = 0;  // of the recurrences before this one
        int restarts = 0;
        bool stacked = false;             // the damping is rows under A
        double r_start = 0, ar_start = 0;  // scaled: ||r|| and ||A^T r|| of the start
        double ar_bound = 0;              // scaled: what test 2 allows, however small ||A|| ||r|| is
        struct {
            double atol = 0, btol = 0;
            double ar_part = 1;           // of ar_bound
            double floor = 1;             // times eps
        } tolerances;                     // of the run
        Residuals best;                   // of the runs before
        Status best_status = Status::start_solves;
        double r_estimated = 0, ar_estimated = 0, cond_estimate = 0;  // of the best, in the caller's units
    } at_;
    std::vector<double> best_x_;
    T* x_ = nullptr;
    const T* scale_ = nullptr;  // D; null: ones
    T* start_ = nullptr;        // z of x0; null: zero
    std::unique_ptr<LinearOperator<T>> damping_;
    std::unique_ptr<LinearOperator<T>> stack_;
    std::int64_t seen_ = 0;     // records of the run that the observer has
    Anchors<T> anchors_;
    bool observer_threw_ = false;
    Recurrence* state_ = nullptr;  // in the vectors' space; null: the run is not set up yet
    std::vector<IterationRecord> records_;
    std::vector<double> host_x_, host_r_, host_g_;
    std::vector<double> variances_;  // in the caller's units
};

}  // namespace lsmr
