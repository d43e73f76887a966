// Golub-Kahan lower bidiagonalisation, beta_{k+1} u_{k+1} = A v_k - alpha_k u_k, alpha_{k+1} v_{k+1} = A^T u_{k+1} - beta_{k+1} v_k, and
// the two QR factorisations on it that LSMR and LSQR read: of B_k (damped), and of its factor's transpose, which estimates cond(A).
//
// G. H. Golub, W. Kahan, "Calculating the singular values and pseudo-inverse of a matrix", SIAM J. Numer. Anal. 2 (1965),
// DOI 10.1137/0702016; the letters are those of Fong and Saunders, DOI 10.1137/10079687X.
//
// Deferred normalisation: the vectors hold u-hat = beta u and v-hat = alpha v; their norms ride along as scalars, so no pass
// scales a vector. The update of iteration k needs v-hat and scalars only and runs beside the forward product of iteration k + 1.
// With a preconditioner M = (K K^T)^-1 this is the bidiagonalisation of A K, in the unknowns of A: p-hat takes the place of v-hat in the
// product with A^T, v-hat <- K K^T p-hat, and alpha = ||K^T p-hat||. ||A^T r|| is then ||K^T A^T r||.
// sigma, a power of two, folds the scaling of A into the coefficients.
#pragma once

#include <cmath>
#include <limits>

#include "solver/recurrence.hpp"

namespace lsmr {

// y <- product A x + vector y
struct ProductFactors {
    double product;
    double vector;
};
// Of u-hat <- c1 A v-hat + c2 u-hat.
LSMR_HD inline ProductFactors forward_factors(double sigma, const Length& alpha, const Length& beta) {
    return {sigma * alpha.inverse, -alpha.value * beta.inverse};
}
// Of v-hat <- d1 A^T u-hat + d2 v-hat. beta = 0: the residual is reached exactly; v-hat becomes 0, so alpha is 0 and the tests then pass.
LSMR_HD inline ProductFactors adjoint_factors(double sigma, const Length& alpha, const Length& beta) {
    return {sigma * beta.inverse, -beta.value * alpha.inverse};
}

template <class T>
struct BidiagonalRecurrence {
    // Coefficients that the products and the update read.
    Coefficient<T> c1, c2;  // u-hat <- c1 A v-hat + c2 u-hat
    Coefficient<T> d1, d2;  // v-hat <- d1 A^T u-hat + d2 v-hat
    bool step_pending;      // the update of the last iteration is still to be made

    // What does not change.
    double sigma;
    double lambda;  // scaled as A is
    StopRules rules;
    RecordRing ring;

    Progress progress;
    IterationRecord record;  // of the last iteration; published once its ||x|| is known

    double alpha, beta;
    double inverse_alpha, inverse_beta;               // as Length has them
    double column_alpha;                              // alpha_k, while alpha is alpha_{k+1} already: column k of B is (alpha_k, beta_{k+1})
    double alpha_bar, rho, inverse_rho;               // of the QR of B_k
    double rho_bar, inverse_rho_bar, c_bar, s_bar;    // of the QR of its factor's transpose
    double a_norm2;                                   // for the estimate of ||A||_F
    double max_rho_bar, min_rho_bar;                  // for the estimate of cond(A)
    StopMemory memory;

    // after_forward is step_made and then forward_norm; after_adjoint is adjoint_coefficients, which the update waits for, and then adjoint_estimates,
    // which nothing but a stop waits for. Where ||x|| comes last, step_made comes between these two.
    enum Stage {
        start_forward,
        start_adjoint,
        before_step,
        after_forward,
        step_made,
        forward_norm,
        after_adjoint,
        adjoint_coefficients,
        adjoint_estimates,
        host_stop
    };

    // sigma, lambda scaled; ||x0|| for the tests before the first iteration.
    void prepare(double sigma_, double lambda_, const StopRules& rules_, const RecordRing& ring_, double x0_norm) {
        sigma = sigma_;
        lambda = lambda_;
        rules = rules_;
        ring = ring_;
        progress.x_norm = x0_norm;
    }

    // After a stop: goes on with the same vectors under new rules. An update that is still to be made is made then.
    void resume(const StopRules& rules_, const RecordRing& ring_) {
        rules = rules_;
        ring = ring_;
        progress.code = kGoOn;
        progress.finished = false;
        set_products();
    }

    LSMR_HD void on_start_forward(const Length& beta_1) {
        progress.code = kGoOn;
        set_beta(beta_1);
        set(d1, sigma * inverse_beta);
        set(d2, 0.0);
    }

    LSMR_HD void on_start_adjoint(const Length& alpha_1) {
        set_alpha(alpha_1);
        alpha_bar = alpha;
        rho = rho_bar = inverse_rho = inverse_rho_bar = c_bar = 1;
        s_bar = 0;
        a_norm2 = alpha * alpha;
        max_rho_bar = 0;  // rho_bar_0 = 1 is a dummy and stays out: the estimate must not depend on the scale of A
        min_rho_bar = std::numeric_limits<double>::infinity();
        step_pending = true;
        set_products();

        progress.r_norm = beta;
        progress.ar_norm = alpha * beta;
        progress.a_estimated = std::sqrt(a_norm2 + lambda * lambda);
        progress.a_norm = rules.a_norm > 0 ? rules.a_norm : progress.a_estimated;
        progress.cond = progress.largest_cond = 1;
        progress.r_start = progress.r_norm;
        progress.ar_start = progress.ar_norm;
        rules.take_start(progress.ar_norm);
        if (!is_finite(beta)) return fail(Suspect::beta, 0);
        if (!is_finite(alpha)) return fail(Suspect::alpha, 0);
        if (beta == 0 || alpha == 0) return stop(static_cast<int>(Status::start_solves));
        test();
    }

    LSMR_HD void on_forward(const Length& new_beta, double x_norm) {
        if (progress.finished) return;
        step_pending = false;
        on_step(x_norm);
        if (!progress.stopped()) on_forward_norm(new_beta);
    }
    // The update that ran beside the product belongs to the iteration before; now its ||x|| is known.
    LSMR_HD void on_step(double x_norm) {
        if (progress.finished) return;
        progress.x_norm = x_norm;
        if (progress.iteration > 0) {
            record.x_norm = x_norm;
            ring.put(record);
        }
        progress.published = progress.iteration;
        if (progress.stopped()) {
            progress.finished = true;
            return;
        }
        if (!is_finite(x_norm)) fail(Suspect::iterate, progress.iteration);
    }
    LSMR_HD void on_forward_norm(const Length& new_beta) {
        if (progress.stopped()) return;
        step_pending = false;
        column_alpha = alpha;
        set_beta(new_beta);
        if (!is_finite(beta)) return fail(Suspect::beta, progress.iteration + 1);
        const ProductFactors factors = adjoint_factors(sigma, {alpha, inverse_alpha}, new_beta);
        set(d1, factors.product);
        set(d2, factors.vector);
    }

    // step: of x along the direction whose sums (part_within()) are given. Where it leads beyond the trust radius it is cut, the solve ends
    // there, and the norms of the full step are no longer those of x.
    LSMR_HD void bound_step(T& step, const double* sums) {
        if (!step_pending) return;
        const double part = part_within(rules.trust_radius, static_cast<double>(step), sums);
        if (!(part < 1)) return;
        step = static_cast<T>(part * static_cast<double>(step));
        progress.r_norm = progress.ar_norm = record.r_norm = record.ar_norm = std::numeric_limits<double>::quiet_NaN();
        stop(static_cast<int>(Status::trust_bound));
    }

    LSMR_HD void on_host_stop(int code) {
        if (!progress.stopped()) stop(code);
    }

    // How many of `window` kept vectors come before the next one.
    LSMR_HD std::int64_t kept(std::int64_t window) const { return progress.iteration + 1 < window ? progress.iteration + 1 : window; }

  protected:
    LSMR_HD void set_alpha(const Length& to) {
        alpha = to.value;
        inverse_alpha = to.inverse;
    }
    LSMR_HD void set_beta(const Length& to) {
        beta = to.value;
        inverse_beta = to.inverse;
    }
    // One more column of both factorisations, with alpha_{k+1} as the last adjoint product gave it.
    struct Factors {
        Rotation hat;      // of alpha_bar and lambda
        Rotation q;        // of the damped alpha_bar and beta_{k+1}: rho and theta_{k+1}
        Rotation q_bar;    // of rho_temp and theta_{k+1}: rho_bar
        double theta;      // theta_{k+1}
        double theta_bar;
        double rho_temp;
        double rho_old, rho_bar_old;
        double inverse_rho_old, inverse_rho_bar_old;
    };
    Factors column;  // the last one
    LSMR_HD const Factors& factor() {
        Factors& f = column;
        f.hat = lambda > 0 ? rotate(alpha_bar, lambda) : Rotation{.c = 1, .s = 0, .r = alpha_bar, .inverse_r = 0};
        f.rho_old = rho;
        f.inverse_rho_old = inverse_rho;
        f.q = rotate(f.hat.r, beta);
        rho = f.q.r;
        inverse_rho = f.q.inverse_r;
        f.theta = f.q.s * alpha;
        alpha_bar = f.q.c * alpha;

        f.rho_bar_old = rho_bar;
        f.inverse_rho_bar_old = inverse_rho_bar;
        f.theta_bar = s_bar * rho;
        f.rho_temp = c_bar * rho;
        f.q_bar = rotate(f.rho_temp, f.theta);
        c_bar = f.q_bar.c;
        s_bar = f.q_bar.s;
        rho_bar = f.q_bar.r;
        inverse_rho_bar = f.q_bar.inverse_r;
        return f;
    }
    // The iteration is done but for its update of x: its norms, and the tests on them.
    LSMR_HD void complete(double r_norm, double ar_norm) {
        const Factors& f = column;
        if (!is_finite(r_norm)) return fail(Suspect::coefficients, progress.iteration + 1);
        ++progress.iteration;
        progress.r_norm = r_norm;
        progress.ar_norm = ar_norm;
        // ||A||_F: the part seen so far, before alpha_{k+1}.
        a_norm2 += square(beta);
        const double k = static_cast<double>(progress.iteration);
        progress.a_estimated = length_of(a_norm2 + k * square(lambda)).value;
        progress.a_norm = rules.a_norm > 0 ? rules.a_norm : progress.a_estimated;
        a_norm2 += square(alpha);
        // cond(A):
        if (progress.iteration > 1) {
            max_rho_bar = f.rho_bar_old > max_rho_bar ? f.rho_bar_old : max_rho_bar;
            min_rho_bar = f.rho_bar_old < min_rho_bar ? f.rho_bar_old : min_rho_bar;
        }
        progress.cond = (f.rho_temp > max_rho_bar ? f.rho_temp : max_rho_bar) / (f.rho_temp < min_rho_bar ? f.rho_temp : min_rho_bar);
        if (progress.cond > progress.largest_cond) progress.largest_cond = progress.cond;

        record = {progress.iteration, progress.r_norm, progress.ar_norm, progress.a_norm, progress.cond, 0, 0, 0, 0, column_alpha, beta};
        test();
    }
    // ||x|| is that of the iteration before: this one's update has not been made yet. It changes no status that was seen.
    LSMR_HD void test() {
        const int code = stop_code(
            rules, {progress.iteration, progress.r_norm, progress.ar_norm, progress.a_norm, progress.cond, progress.x_norm}, memory);
        if (code != kGoOn) stop(code);
    }
    // Coefficients of the next forward product, and of the update.
    LSMR_HD void set_products() {
        const ProductFactors factors = forward_factors(sigma, {alpha, inverse_alpha}, {beta, inverse_beta});
        set(c1, factors.product);
        set(c2, factors.vector);
    }
    LSMR_HD void stop(int code) {
        progress.code = code;
        // Products that are still queued leave u-hat and v-hat as they are.
        set(c1, 0.0);
        set(c2, 1.0);
        set(d1, 0.0);
        set(d2, 1.0);
    }
    // alpha = ||A^T u - beta v|| is at most ||A||, but where v is made orthogonal to kept vectors that are no longer orthogonal to each other
    // (in fp32, a narrow window): I - W W^T is no projection then, and v grows from one iteration to the next.
    LSMR_HD bool has_grown() const { return rules.alpha_limit > 0 && alpha > rules.alpha_limit; }
    // A value that is not finite: x stays that of the last iteration that was completed.
    LSMR_HD void fail(Suspect suspect, std::int64_t iteration) {
        progress.suspect = suspect;
        progress.suspect_iteration = iteration;
        step_pending = false;
        stop(static_cast<int>(Status::non_finite));
    }
};

// basis[k mod window] <- v-hat / alpha, the v of this iteration. n-vectors.
template <class T>
struct KeepVector {
    const BidiagonalRecurrence<T>* r;
    const T* v;
    T* basis;
    std::int64_t n;
    std::int64_t window;
    static constexpr int kSums = 1;  // unused

    struct Coefficients {
        T* slot;
        T inverse_alpha;
    };
    LSMR_HD Coefficients load() const {
        return {r->progress.stopped() ? nullptr : basis + r->progress.iteration % window * n, static_cast<T>(r->inverse_alpha)};
    }
    LSMR_HD void operator()(std::int64_t j, const Coefficients& k, double*) const {
        if (k.slot != nullptr) k.slot[j] = k.inverse_alpha * v[j];
    }
};

}  // namespace lsmr
