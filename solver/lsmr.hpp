// LSMR: min ||b - A x||^2 + lambda^2 ||x||^2 by Golub-Kahan bidiagonalisation; ||A^T r|| falls monotonically.
//
// D. C.-L. Fong, M. Saunders, "LSMR: an iterative algorithm for sparse least-squares problems", SIAM J. Sci. Comput. 33 (2011),
// DOI 10.1137/10079687X; its letters are kept; docs/architecture.md writes the iteration out.
//
// Per iteration: one product with A, one with A^T, one update of three n-vectors. Storage: u (m), v, h, hbar, x (n).
// Normalisation is deferred (solver/bidiagonal.hpp), and the update of x, h, hbar of iteration k runs beside the forward product of
// iteration k + 1.
#pragma once

#include <cmath>

#include "solver/bidiagonal.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr {

template <class T>
struct LsmrRecurrence : BidiagonalRecurrence<T> {
    using Base = BidiagonalRecurrence<T>;

    T e1, e2, e3;  // hbar <- h - e1 hbar;  x <- x + e2 hbar;  h <- inverse_alpha v-hat - e3 h

    double zeta_bar;
    double beta_dd, beta_d, rho_dot, tau_tilde, theta_tilde, zeta_old, zeta, d;  // for ||r||

    // The only entry of executors: runs `stage` with the sums of squares it asks for.
    //   start_forward   sums[0] = ||u-hat||^2            start_adjoint   sums[0] = ||v-hat||^2
    //   after_forward   sums[0] = ||u-hat||^2, sums[1] = ||x||^2 after the update beside it
    //   step_made       sums[0] = ||x||^2                forward_norm    sums[0] = ||u-hat||^2
    //   after_adjoint   sums[0] = ||v-hat||^2            host_stop       code: the status to stop with
    //   adjoint_coefficients as after_adjoint; adjoint_estimates none
    //   before_step     those of part_within(); only where there is a trust radius
    LSMR_HD void finish(int stage, const double* sums, int code) {
        switch (stage) {
            case Base::start_forward: this->on_start_forward(length_of(sums[0])); break;
            case Base::start_adjoint: on_start(length_of(sums[0])); break;
            case Base::before_step: this->bound_step(e2, sums); break;
            case Base::after_forward: this->on_forward(length_of(sums[0]), length_of(sums[1]).value); break;
            case Base::step_made: this->on_step(length_of(sums[0]).value); break;
            case Base::forward_norm: this->on_forward_norm(length_of(sums[0])); break;
            case Base::after_adjoint:
                coefficients(length_of(sums[0]));
                estimates();
                break;
            case Base::adjoint_coefficients: coefficients(length_of(sums[0])); break;
            case Base::adjoint_estimates: estimates(); break;
            default: this->on_host_stop(code);
        }
    }

  private:
    LSMR_HD void on_start(const Length& alpha_1) {
        zeta_bar = alpha_1.value * this->beta;
        beta_dd = this->beta;
        beta_d = 0;
        rho_dot = 1;
        tau_tilde = theta_tilde = zeta_old = zeta = d = 0;
        // The first "update" makes h = v and leaves x alone, since h = hbar = 0.
        e1 = e2 = e3 = 0;
        this->on_start_adjoint(alpha_1);
    }

    LSMR_HD void coefficients(const Length& new_alpha) {
        if (this->progress.stopped()) return;
        this->set_alpha(new_alpha);
        if (!is_finite(new_alpha.value)) return this->fail(Suspect::alpha, this->progress.iteration + 1);
        if (this->has_grown()) return this->stop(static_cast<int>(Status::breakdown));

        const typename Base::Factors& f = this->factor();
        zeta_old = zeta;
        zeta = f.q_bar.c * zeta_bar;
        zeta_bar = -f.q_bar.s * zeta_bar;
        e1 = static_cast<T>(f.theta_bar * f.q.r * (f.inverse_rho_old * f.inverse_rho_bar_old));
        e2 = static_cast<T>(zeta * (f.q.inverse_r * f.q_bar.inverse_r));
        e3 = static_cast<T>(f.theta * f.q.inverse_r);
        this->set_products();
        // As T holds them: in fp32 a finite double may be too large.
        if (!is_finite(static_cast<double>(e1)) || !is_finite(static_cast<double>(e2)) || !is_finite(static_cast<double>(e3))) {
            return this->fail(Suspect::coefficients, this->progress.iteration + 1);
        }
        this->step_pending = true;
    }

    LSMR_HD void estimates() {
        if (this->progress.stopped()) return;
        const typename Base::Factors& f = this->column;
        // ||r||:
        const double beta_acute = f.hat.c * beta_dd;
        const double beta_check = -f.hat.s * beta_dd;
        const double beta_hat = f.q.c * beta_acute;
        beta_dd = -f.q.s * beta_acute;
        const double theta_tilde_old = theta_tilde;
        const Rotation tilde = rotate(rho_dot, f.theta_bar);
        theta_tilde = tilde.s * f.q_bar.r;
        rho_dot = tilde.c * f.q_bar.r;
        beta_d = -tilde.s * beta_d + tilde.c * beta_hat;
        tau_tilde = (zeta_old - theta_tilde_old * tau_tilde) * tilde.inverse_r;
        const double tau_dot = (zeta - theta_tilde * tau_tilde) / rho_dot;
        d += square(beta_check);
        // rho_dot = 0 only where the residual is reached exactly (rho_bar = 0 or a zero cosine): no tau term is left then.
        const double tau_term = rho_dot != 0 ? square(beta_d - tau_dot) : 0.0;
        this->complete(length_of(d + tau_term + square(beta_dd)).value, zeta_bar < 0 ? -zeta_bar : zeta_bar);
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
    LSMR_HD Coefficients load() const { return {r->e1, r->e2, r->e3, static_cast<T>(r->inverse_alpha), r->step_pending}; }
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
    static constexpr int kColVectors = 5;  // v, h, hbar, beside x; with a preconditioner p, t
    // The damping needs the start to be the centre; otherwise it is stacked under A.
    static constexpr bool kDampsAnyStart = false;

    struct Vectors {
        T* u;
        T* v;
        T* h;
        T* hbar;
        T* x;
        T* p;  // v where there is no preconditioner
        T* t;  // K^T p
        T* basis;  // of kept vectors
        std::int64_t kept;
    };
    template <class Backend>
    static Vectors vectors(Backend& backend, T* x, const Anchors<T>& anchors) {
        T* v = backend.col_vector(0);
        return {backend.row_vector(0), v, backend.col_vector(1), backend.col_vector(2), x, anchors.preconditioned ? backend.col_vector(3) : v,
                anchors.preconditioned ? backend.col_vector(4) : nullptr, anchors.basis, anchors.window};
    }

    // f(vector, length) for all that the next iteration reads.
    template <class F>
    static void for_each_vector(const Vectors& w, std::int64_t rows, std::int64_t cols, const F& f) {
        f(w.u, rows);
        f(w.v, cols);
        f(w.h, cols);
        f(w.hbar, cols);
        f(w.x, cols);
        if (w.kept > 0) f(w.basis, cols * w.kept);
        if (w.p != w.v) f(w.p, cols);
    }

    // u-hat holds b - A x; x the start.
    template <class Backend>
    static void start(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& anchors) {
        backend.zero(w.h, backend.cols());
        backend.zero(w.hbar, backend.cols());
        backend.norm(backend.rows(), w.u, 0);
        backend.finish(r, Recurrence::start_forward, 1);
        backend.adjoint(r, &r->d1, w.u, &r->d2, w.p, 0);
        if (anchors.preconditioned) backend.precondition(r, w.p, w.t, w.v, 0);
        backend.finish(r, Recurrence::start_adjoint, 1);
    }

    template <class Backend>
    static void iterate(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& anchors) {
        if (anchors.bounded) {
            backend.elementwise(backend.cols(), Reach<T>{w.x, anchors.start, w.h, w.hbar, &r->e1}, 0);
            backend.finish(r, Recurrence::before_step, 3);
        }
        // Stage A, and beside it the update of the iteration before.
        backend.forward_of_pair(r, &r->c1, w.v, &r->c2, w.u, 0);
        backend.elementwise_finish(backend.cols(), LsmrStep<T>{r, w.v, w.h, w.hbar, w.x}, 1, r, Recurrence::after_forward, 2, Beside::product);
        // Stage B.
        if (anchors.window > 0) {
            backend.elementwise(backend.cols(), KeepVector<T>{r, w.v, anchors.basis, backend.cols(), anchors.window}, 3);
        }
        backend.adjoint_of_pair(r, &r->d1, w.u, &r->d2, w.p, 0);
        if (anchors.preconditioned) backend.precondition(r, w.p, w.t, w.v, 0);
        for (int pass = 0; anchors.window > 0 && pass < (anchors.twice ? 2 : 1); ++pass) {
            backend.orthogonalize(static_cast<const BidiagonalRecurrence<T>*>(r), anchors.basis, anchors.window, w.v, 0);
        }
        backend.finish(r, Recurrence::after_adjoint, 1);
    }
};

}  // namespace lsmr
