// LSQR: min ||b - A x||^2 + lambda^2 ||x||^2 by Golub-Kahan bidiagonalisation; ||r|| falls monotonically. The iterates are those of
// conjugate gradients on the normal equations (solver/cgls.hpp), formed without squaring the condition.
//
// C. C. Paige, M. A. Saunders, "LSQR: an algorithm for sparse linear equations and sparse least squares", ACM Trans. Math. Softw. 8
// (1982), DOI 10.1145/355984.355989; its letters are kept, but for signs: rotations here have r >= 0, as in LSMR.
//
// Per iteration: one product with A, one with A^T, one update of two n-vectors. Storage: u (m), v, w, x (n): one n-vector less than
// LSMR. The update of x and w of iteration k runs beside the forward product of iteration k + 1 (solver/bidiagonal.hpp).
#pragma once

#include <cmath>

#include "solver/bidiagonal.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr {

template <class T>
struct LsqrRecurrence : BidiagonalRecurrence<T> {
    using Base = BidiagonalRecurrence<T>;

    T e1, e2;       // x <- x + e1 w;  w <- inverse_alpha v-hat - e2 w
    T inverse_rho;  // variances <- variances + (w / rho)^2

    double phi, phi_bar;
    double psi2;  // sum of psi^2: what the damping rows keep of ||rbar||^2

    // The only entry of executors, as LsmrRecurrence::finish.
    LSMR_HD void finish(int stage, const double* sums, int code) {
        switch (stage) {
            case Base::start_forward: this->on_start_forward(length_of(sums[0])); break;
            case Base::start_adjoint: on_start(length_of(sums[0])); break;
            case Base::before_step: this->bound_step(e1, sums); break;
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
        phi_bar = this->beta;
        phi = psi2 = 0;
        // The first "update" makes w = v and leaves x alone, since w = 0.
        e1 = e2 = inverse_rho = 0;
        this->on_start_adjoint(alpha_1);
    }

    LSMR_HD void coefficients(const Length& new_alpha) {
        if (this->progress.stopped()) return;
        this->set_alpha(new_alpha);
        if (!is_finite(new_alpha.value)) return this->fail(Suspect::alpha, this->progress.iteration + 1);
        if (this->has_grown()) return this->stop(static_cast<int>(Status::breakdown));

        const typename Base::Factors& f = this->factor();
        const double phi_hat = f.hat.c * phi_bar;
        psi2 += square(f.hat.s * phi_bar);
        phi = f.q.c * phi_hat;
        phi_bar = -f.q.s * phi_hat;
        e1 = static_cast<T>(phi * f.q.inverse_r);
        e2 = static_cast<T>(f.theta * f.q.inverse_r);
        inverse_rho = static_cast<T>(f.q.inverse_r);
        this->set_products();
        // As T holds them: in fp32 a finite double may be too large.
        if (!is_finite(static_cast<double>(e1)) || !is_finite(static_cast<double>(e2))) {
            return this->fail(Suspect::coefficients, this->progress.iteration + 1);
        }
        this->step_pending = true;
    }

    LSMR_HD void estimates() {
        if (this->progress.stopped()) return;
        // Abar^T rbar = phi_bar alpha_bar v: its size is that of theta phi.
        const double ar = this->column.theta * phi;
        this->complete(length_of(square(phi_bar) + psi2).value, ar < 0 ? -ar : ar);
    }
};

// x <- x + e1 w;  variances <- variances + (w / rho)^2;  w <- v-hat / alpha - e2 w;  sums[0] = ||x||^2. n-vectors.
template <class T>
struct LsqrStep {
    const LsqrRecurrence<T>* r;
    const T* v;
    T* w;
    T* x;
    T* variances;  // null: not wanted
    static constexpr int kSums = 1;

    struct Coefficients {
        T e1, e2, inverse_alpha, inverse_rho;
        bool active;
    };
    LSMR_HD Coefficients load() const { return {r->e1, r->e2, static_cast<T>(r->inverse_alpha), r->inverse_rho, r->step_pending}; }
    LSMR_HD void operator()(std::int64_t j, const Coefficients& k, double* sums) const {
        T xj = x[j];
        if (k.active) {
            const T wj = w[j];
            xj += k.e1 * wj;
            x[j] = xj;
            if (variances) {
                const T part = k.inverse_rho * wj;
                variances[j] += part * part;
            }
            w[j] = k.inverse_alpha * v[j] - k.e2 * wj;
        }
        sums[0] += static_cast<double>(xj) * static_cast<double>(xj);
    }
};

template <class T>
struct Lsqr {
    using Value = T;
    using Recurrence = LsqrRecurrence<T>;
    static constexpr int kRowVectors = 1;  // u
    static constexpr int kColVectors = 5;  // v, w, beside x; with a preconditioner p, t; variances
    // The damping needs the start to be the centre; otherwise it is stacked under A.
    static constexpr bool kDampsAnyStart = false;

    struct Vectors {
        T* u;
        T* v;
        T* w;
        T* x;
        T* p;  // v where there is no preconditioner
        T* t;  // K^T p
        // sum of (w_j / rho)^2: diag((A^T A + lambda^2 I)^-1) restricted to the Krylov space, so too small; null: not wanted
        T* variances;
        T* basis;  // of kept vectors
        std::int64_t kept;
    };
    template <class Backend>
    static Vectors vectors(Backend& backend, T* x, const Anchors<T>& anchors) {
        T* v = backend.col_vector(0);
        return {backend.row_vector(0), v, backend.col_vector(1), x, anchors.preconditioned ? backend.col_vector(2) : v,
                anchors.preconditioned ? backend.col_vector(3) : nullptr, anchors.variances ? backend.col_vector(4) : nullptr,
                anchors.basis, anchors.window};
    }

    // f(vector, length) for all that the next iteration reads.
    template <class F>
    static void for_each_vector(const Vectors& w, std::int64_t rows, std::int64_t cols, const F& f) {
        f(w.u, rows);
        f(w.v, cols);
        f(w.w, cols);
        f(w.x, cols);
        if (w.kept > 0) f(w.basis, cols * w.kept);
        if (w.p != w.v) f(w.p, cols);
        if (w.variances != nullptr) f(w.variances, cols);
    }

    // u-hat holds b - A x; x the start.
    template <class Backend>
    static void start(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& anchors) {
        backend.zero(w.w, backend.cols());
        if (w.variances != nullptr) backend.zero(w.variances, backend.cols());
        backend.norm(backend.rows(), w.u, 0);
        backend.finish(r, Recurrence::start_forward, 1);
        backend.adjoint(r, &r->d1, w.u, &r->d2, w.p, 0);
        if (anchors.preconditioned) backend.precondition(r, w.p, w.t, w.v, 0);
        backend.finish(r, Recurrence::start_adjoint, 1);
    }

    template <class Backend>
    static void iterate(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& anchors) {
        if (anchors.bounded) {
            backend.elementwise(backend.cols(), Reach<T>{w.x, anchors.start, w.w, nullptr, nullptr}, 0);
            backend.finish(r, Recurrence::before_step, 3);
        }
        // Stage A, and beside it the update of the iteration before.
        backend.forward_of_pair(r, &r->c1, w.v, &r->c2, w.u, 0);
        backend.elementwise_finish(backend.cols(), LsqrStep<T>{r, w.v, w.w, w.x, w.variances}, 1, r, Recurrence::after_forward, 2, Beside::product);
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
