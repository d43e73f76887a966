// LSMR: min ||b - A x||^2 + lambda^2 ||x||^2 by Golub-Kahan bidiagonalisation; ||A^T r|| falls monotonically.
//
// D. C.-L. Fong, M. Saunders, "LSMR: an iterative algorithm for sparse least-squares problems", SIAM J. Sci. Comput. 33 (2011),
// DOI 10.1137/10079687X; its letters are kept; docs/architecture.md writes the iteration out.
//
// Per iteration: one product with A, one with A^T, one update of three n-vectors. Storage: u (m), v, h, hbar, x (n).
// Deferred normalisation: the vectors hold u-hat = beta u and v-hat = alpha v; their norms ride along as scalars, so no pass
// scales a vector. The update of x, h, hbar of iteration k needs v-hat and scalars only and runs beside the forward product of
// iteration k + 1. sigma, a power of two, folds the scaling of A into the coefficients.
#pragma once

#include <cmath>
#include <limits>

#include "solver/recurrence.hpp"

namespace lsmr {

template <class T>
struct LsmrRecurrence {
    // Coefficients that the products and the update read.
    Coefficient<T> c1, c2;  // u-hat <- c1 A v-hat + c2 u-hat
    Coefficient<T> d1, d2;  // v-hat <- d1 A^T u-hat + d2 v-hat
    T e1, e2, e3;           // hbar <- h - e1 hbar;  x <- x + e2 hbar;  h <- inverse_alpha v-hat - e3 h
    T inverse_alpha;
    bool step_pending;      // the update of the last iteration is still to be made

    // What does not change.
    double sigma;
    double lambda;  // scaled as A is
    StopRules rules;
    RecordRing ring;

    Progress progress;
    IterationRecord record;  // of the last iteration; published once its ||x|| is known

    double alpha, beta;
    double alpha_bar, zeta_bar, rho, rho_bar, c_bar, s_bar;
    double beta_dd, beta_d, rho_dot, tau_tilde, theta_tilde, zeta, d;  // for ||r||
    double a_norm2;                                                    // for the estimate of ||A||_F
    double max_rho_bar, min_rho_bar;                                   // for the estimate of cond(A)
    StallWatch watch;

    enum Stage { start_forward, start_adjoint, after_forward, after_adjoint, host_stop };

    // sigma, lambda scaled; ||x0|| for the tests before the first iteration.
    void prepare(double sigma_, double lambda_, const StopRules& rules_, const RecordRing& ring_, double x0_norm) {
        sigma = sigma_;
        lambda = lambda_;
        rules = rules_;
        ring = ring_;
        progress.x_norm = x0_norm;
    }

    // The only entry of executors: runs `stage` with the sums of squares it asks for.
    //   start_forward   sums[0] = ||u-hat||^2            start_adjoint   sums[0] = ||v-hat||^2
    //   after_forward   sums[0] = ||u-hat||^2, sums[1] = ||x||^2 after the update beside it
    //   after_adjoint   sums[0] = ||v-hat||^2            host_stop       code: the status to stop with
    LSMR_HD void finish(int stage, const double* sums, int code) {
        switch (stage) {
            case start_forward: on_start_forward(std::sqrt(sums[0])); break;
            case start_adjoint: on_start_adjoint(std::sqrt(sums[0])); break;
            case after_forward: on_forward(std::sqrt(sums[0]), std::sqrt(sums[1])); break;
            case after_adjoint: on_adjoint(std::sqrt(sums[0])); break;
            default:
                if (!progress.stopped()) stop(code);
        }
    }

    LSMR_HD void on_start_forward(double beta_1) {
        progress.code = kGoOn;
        beta = beta_1;
        set(d1, beta > 0 && is_finite(beta) ? sigma / beta : 0.0);
        set(d2, 0.0);
    }

    LSMR_HD void on_start_adjoint(double alpha_1) {
        alpha = alpha_1;
        alpha_bar = alpha;
        zeta_bar = alpha * beta;
        rho = rho_bar = c_bar = 1;
        s_bar = 0;
        beta_dd = beta;
        beta_d = 0;
        rho_dot = 1;
        tau_tilde = theta_tilde = zeta = d = 0;
        a_norm2 = alpha * alpha;
        max_rho_bar = 0;  // rho_bar_0 = 1 is a dummy and stays out: the estimate must not depend on the scale of A
        min_rho_bar = std::numeric_limits<double>::infinity();
        // The first "update" makes h = v and leaves x alone, since h = hbar = 0.
        e1 = e2 = e3 = 0;
        step_pending = true;
        set_products();

        progress.r_norm = beta;
        progress.ar_norm = zeta_bar;
        progress.a_norm = rules.a_norm > 0 ? rules.a_norm : std::sqrt(a_norm2 + lambda * lambda);
        progress.cond = progress.largest_cond = 1;
        if (!is_finite(beta)) return fail(Suspect::beta, 0);
        if (!is_finite(alpha)) return fail(Suspect::alpha, 0);
        if (beta == 0 || alpha == 0) return stop(static_cast<int>(Status::start_solves));
        const int code = stop_code(rules, {0, beta, zeta_bar, progress.a_norm, 1.0, progress.x_norm}, watch);
        if (code != kGoOn) stop(code);
    }

    LSMR_HD void on_forward(double new_beta, double x_norm) {
        if (progress.finished) return;
        // The update that ran beside the product belongs to the iteration before; now its ||x|| is known.
        progress.x_norm = x_norm;
        step_pending = false;
        if (progress.iteration > 0) {
            record.x_norm = x_norm;
            ring.put(record);
        }
        progress.published = progress.iteration;
        if (progress.stopped()) {
            progress.finished = true;
            return;
        }
        if (!is_finite(x_norm)) return fail(Suspect::iterate, progress.iteration);
        beta = new_beta;
        if (!is_finite(beta)) return fail(Suspect::beta, progress.iteration + 1);
        // beta = 0: the residual is reached exactly; v-hat becomes 0, so alpha is 0 and the tests below pass.
        set(d1, beta > 0 ? sigma / beta : 0.0);
        set(d2, beta > 0 ? -beta / alpha : 0.0);
    }

    LSMR_HD void on_adjoint(double new_alpha) {
        if (progress.stopped()) return;
        alpha = new_alpha;
        if (!is_finite(alpha)) return fail(Suspect::alpha, progress.iteration + 1);

        // Coefficients first: the vectors wait for them.
        const Rotation hat = lambda > 0 ? rotate(alpha_bar, lambda) : Rotation{1.0, 0.0, alpha_bar};
        const double rho_old = rho;
        const Rotation q = rotate(hat.r, beta);
        rho = q.r;
        const double theta_new = q.s * alpha;
        alpha_bar = q.c * alpha;

        const double rho_bar_old = rho_bar;
        const double zeta_old = zeta;
        const double theta_bar = s_bar * rho;
        const double rho_temp = c_bar * rho;
        const Rotation q_bar = rotate(rho_temp, theta_new);
        c_bar = q_bar.c;
        s_bar = q_bar.s;
        rho_bar = q_bar.r;
        zeta = c_bar * zeta_bar;
        zeta_bar = -s_bar * zeta_bar;

        const double to_hbar = theta_bar * rho / (rho_old * rho_bar_old);
        const double to_x = zeta / (rho * rho_bar);
        const double to_h = theta_new / rho;
        e1 = static_cast<T>(to_hbar);
        e2 = static_cast<T>(to_x);
        e3 = static_cast<T>(to_h);
        set_products();
        // As T holds them: in fp32 a finite double may be too large.
        if (!is_finite(static_cast<double>(e1)) || !is_finite(static_cast<double>(e2)) || !is_finite(static_cast<double>(e3))) {
            return fail(Suspect::coefficients, progress.iteration + 1);
        }
        // Estimates. ||r||:
        const double beta_acute = hat.c * beta_dd;
        const double beta_check = -hat.s * beta_dd;
        const double beta_hat = q.c * beta_acute;
        beta_dd = -q.s * beta_acute;
        const double theta_tilde_old = theta_tilde;
        const Rotation tilde = rotate(rho_dot, theta_bar);
        theta_tilde = tilde.s * rho_bar;
        rho_dot = tilde.c * rho_bar;
        beta_d = -tilde.s * beta_d + tilde.c * beta_hat;
        tau_tilde = (zeta_old - theta_tilde_old * tau_tilde) / tilde.r;
        const double tau_dot = (zeta - theta_tilde * tau_tilde) / rho_dot;
        d += square(beta_check);
        // rho_dot = 0 only where the residual is reached exactly (rho_bar = 0 or a zero cosine): no tau term is left then.
        const double tau_term = rho_dot != 0 ? square(beta_d - tau_dot) : 0.0;
        const double r_norm = std::sqrt(d + tau_term + square(beta_dd));
        if (!is_finite(r_norm)) return fail(Suspect::coefficients, progress.iteration + 1);
        step_pending = true;
        ++progress.iteration;
        progress.r_norm = r_norm;
        progress.ar_norm = zeta_bar < 0 ? -zeta_bar : zeta_bar;
        // ||A||_F: the part seen so far, before alpha_{k+1}.
        a_norm2 += square(beta);
        const double k = static_cast<double>(progress.iteration);
        progress.a_norm = rules.a_norm > 0 ? rules.a_norm : std::sqrt(a_norm2 + k * square(lambda));
        a_norm2 += square(alpha);
        // cond(A):
        if (progress.iteration > 1) {
            max_rho_bar = rho_bar_old > max_rho_bar ? rho_bar_old : max_rho_bar;
            min_rho_bar = rho_bar_old < min_rho_bar ? rho_bar_old : min_rho_bar;
        }
        progress.cond = (rho_temp > max_rho_bar ? rho_temp : max_rho_bar) / (rho_temp < min_rho_bar ? rho_temp : min_rho_bar);
        if (progress.cond > progress.largest_cond) progress.largest_cond = progress.cond;

        record = {progress.iteration, progress.r_norm, progress.ar_norm, progress.a_norm, progress.cond, 0, 0, 0, 0};
        // ||x|| of the iteration before: this one's update has not been made yet. It changes no status that was seen.
        const int code = stop_code(rules, {progress.iteration, progress.r_norm, progress.ar_norm, progress.a_norm, progress.cond, progress.x_norm}, watch);
        if (code != kGoOn) stop(code);
    }

  private:
    // Coefficients of the next forward product, and of the update.
    LSMR_HD void set_products() {
        const double inverse = alpha > 0 && is_finite(alpha) ? 1.0 / alpha : 0.0;
        inverse_alpha = static_cast<T>(inverse);
        set(c1, sigma * inverse);
        set(c2, beta > 0 ? -alpha / beta : 0.0);
    }
    LSMR_HD void stop(int code) {
        progress.code = code;
        // Products that are still queued leave u-hat and v-hat as they are.
        set(c1, 0.0);
        set(c2, 1.0);
        set(d1, 0.0);
        set(d2, 1.0);
    }
    // A value that is not finite: x stays that of the last iteration that was completed.
    LSMR_HD void fail(Suspect suspect, std::int64_t iteration) {
        progress.suspect = suspect;
        progress.suspect_iteration = iteration;
        step_pending = false;
        stop(static_cast<int>(Status::non_finite));
    }
};

// hbar <- h - e1 hbar;  x <- x + e2 hbar;  h <- v-hat / alpha - e3 h;  sums[0] = ||x||^2. n-vectors.
template <class T>
struct LsmrStep {
    const LsmrRecurrence<T>* r;
    const T* v;
    T* h;
    T* hbar;
    T* x;
    static constexpr int kSums = 1;

    struct Coefficients {
        T e1, e2, e3, inverse_alpha;
        bool active;
    };
    LSMR_HD Coefficients load() const { return {r->e1, r->e2, r->e3, r->inverse_alpha, r->step_pending}; }
    LSMR_HD void operator()(std::int64_t j, const Coefficients& k, double* sums) const {
        T xj = x[j];
        if (k.active) {
            const T hj = h[j];
            const T hbar_j = hj - k.e1 * hbar[j];
            xj += k.e2 * hbar_j;
            hbar[j] = hbar_j;
            x[j] = xj;
            h[j] = k.inverse_alpha * v[j] - k.e3 * hj;
        }
        sums[0] += static_cast<double>(xj) * static_cast<double>(xj);
    }
};

template <class T>
struct Lsmr {
    using Value = T;
    using Recurrence = LsmrRecurrence<T>;
    static constexpr int kRowVectors = 1;  // u
    static constexpr int kColVectors = 3;  // v, h, hbar, beside x
    // The damping needs the start to be the centre; otherwise it is stacked under A.
    static constexpr bool kDampsAnyStart = false;

    struct Vectors {
        T* u;
        T* v;
        T* h;
        T* hbar;
        T* x;
    };
    template <class Backend>
    static Vectors vectors(Backend& backend, T* x) {
        return {backend.row_vector(0), backend.col_vector(0), backend.col_vector(1), backend.col_vector(2), x};
    }

    // u-hat holds b - A x; x the start.
    template <class Backend>
    static void start(Backend& backend, const Vectors& w, Recurrence* r, const T* /*center*/) {
        backend.zero(w.h, backend.cols());
        backend.zero(w.hbar, backend.cols());
        backend.norm(backend.rows(), w.u, 0);
        backend.finish(r, Recurrence::start_forward, 1);
        backend.adjoint(r, &r->d1, w.u, &r->d2, w.v, 0);
        backend.finish(r, Recurrence::start_adjoint, 1);
    }

    template <class Backend>
    static void iterate(Backend& backend, const Vectors& w, Recurrence* r, const T* /*center*/) {
        // Stage A, and beside it the update of the iteration before.
        backend.forward(r, &r->c1, w.v, &r->c2, w.u, 0);
        backend.elementwise(backend.cols(), LsmrStep<T>{r, w.v, w.h, w.hbar, w.x}, 1);
        backend.finish(r, Recurrence::after_forward, 2);
        // Stage B.
        backend.adjoint(r, &r->d1, w.u, &r->d2, w.v, 0);
        backend.finish(r, Recurrence::after_adjoint, 1);
    }
};

}  // namespace lsmr
