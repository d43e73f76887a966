// CGLS: conjugate gradients on the normal equations of min ||b - A x||^2 + lambda^2 ||x - c||^2 - 2 g^T x, without forming A^T A; without
// the linear term g, ||r|| falls monotonically, and the iterates are LSQR's. With a preconditioner M = (K K^T)^-1, they are those of A K.
//
// M. R. Hestenes, E. Stiefel (1952), in the form of A. Bjorck, "Numerical Methods for Least Squares Problems" (1996), 7.4,
// DOI 10.1137/1.9781611971484.
//
// Per iteration: one product with A, one with A^T, updates of x and r, then of p. Storage: r, q (m), p, s, x (n).
#pragma once

#include <cmath>
#include <limits>

#include "solver/recurrence.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr {

template <class T>
struct CglsRecurrence {
    Coefficient<T> forward;    // q <- forward A p
    Coefficient<T> zero;       // and nothing of the old q
    Coefficient<T> adjoint;    // s <- adjoint A^T r + shrink s, s holding x - c
    Coefficient<T> shrink;     // -lambda^2; 0 without damping: s is then not read; 1 where there is a linear term, s holding g - lambda^2 (x - c)
    T step;                    // x <- x + step p;  r <- r - step q
    T direction;               // p <- s + direction p
    bool turn_pending;         // p is still that of the iteration that was completed
    bool at_bound;             // the step was cut at the trust radius

    double sigma;
    double lambda;
    StopRules rules;
    RecordRing ring;
    Progress progress;

    double gamma;         // ||s||^2
    double p_norm2;       // ||p||^2, with a preconditioner ||K^-1 p||^2: s is orthogonal to the last p in that metric, so squares add
    double largest_gain;  // max ||[A; lambda I] p||^2 / p_norm2 so far: where ||A||_F (||A K||_F) is not known, its root stands for ||A||
    double least_r;       // the least ||r|| so far: no later one is larger, but for rounding
    StopMemory memory;

    enum Stage { start_adjoint, after_forward, before_step, after_adjoint, host_stop };

    // sigma, lambda scaled.
    void prepare(double sigma_, double lambda_, const StopRules& rules_, const RecordRing& ring_, double /*x0_norm*/) {
        sigma = sigma_;
        lambda = lambda_;
        rules = rules_;
        ring = ring_;
        step = 0;
        set(forward, sigma);
        set(zero, 0.0);
        set(adjoint, sigma);
        set(shrink, rules.only_gradient ? 1.0 : -square(lambda));
    }

    // After a stop: goes on with the same vectors under new rules.
    void resume(const StopRules& rules_, const RecordRing& ring_) {
        rules = rules_;
        ring = ring_;
        progress.code = kGoOn;
        progress.finished = false;
    }

    //   start_adjoint   sums = ||s||^2, ||r||^2, ||x||^2, ||x - c||^2
    //   after_forward   sums = ||q||^2, ||p||^2
    //   before_step     those of part_within(); only where there is a trust radius
    //   after_adjoint   sums = ||s||^2, ||r||^2, ||x||^2, ||x - c||^2     host_stop: code is the status to stop with
    LSMR_HD void finish(int stage, const double* sums, int code) {
        switch (stage) {
            case start_adjoint: on_start(sums); break;
            case after_forward: on_forward(sums); break;
            case before_step: on_reach(sums); break;
            case after_adjoint: on_adjoint(sums); break;
            default:
                if (!progress.stopped()) stop(code);
        }
    }

    LSMR_HD void on_start(const double* sums) {
        gamma = sums[0];
        p_norm2 = 0;
        largest_gain = 0;
        direction = 0;
        step = 0;
        turn_pending = true;
        at_bound = false;
        take_norms(sums);
        progress.r_start = progress.r_norm;
        progress.ar_start = progress.ar_norm;
        rules.take_start(progress.ar_norm);
        least_r = progress.r_norm;
        if (!is_finite(sums[1])) return fail(Suspect::beta, 0);
        if (!is_finite(gamma)) return fail(Suspect::alpha, 0);
        if (gamma == 0) return stop(static_cast<int>(Status::start_solves));
        test();
    }

    LSMR_HD void on_forward(const double* sums) {
        turn_pending = false;
        if (progress.stopped()) return;
        p_norm2 = gamma + square(static_cast<double>(direction)) * p_norm2;
        const double delta = sums[0] + square(lambda) * sums[1];
        if (!is_finite(delta)) return fail(Suspect::beta, progress.iteration + 1);
        // p = A^T r + ... with A p = 0 cannot be unless p is 0: the products do not belong together.
        if (!(delta > 0)) return stop(static_cast<int>(Status::breakdown));
        step = static_cast<T>(gamma / delta);
        // As T holds it: in fp32 a finite double may be too large.
        if (!is_finite(static_cast<double>(step))) return fail(Suspect::coefficients, progress.iteration + 1);
        largest_gain = delta > largest_gain * p_norm2 ? delta / p_norm2 : largest_gain;
    }

    LSMR_HD void on_reach(const double* sums) {
        if (progress.stopped()) return;
        const double part = part_within(rules.trust_radius, static_cast<double>(step), sums);
        at_bound = part < 1;
        if (at_bound) step = static_cast<T>(part * static_cast<double>(step));
    }

    LSMR_HD void on_adjoint(const double* sums) {
        if (progress.stopped()) return;
        const double gamma_new = sums[0];
        ++progress.iteration;
        direction = static_cast<T>(gamma_new / gamma);
        turn_pending = true;
        gamma = gamma_new;
        take_norms(sums);
        publish();
        // Where only ||r|| or ||s|| is not finite, x took a finite step and stands: this iteration counts.
        if (!is_finite(sums[2])) return fail(Suspect::iterate, progress.iteration);
        if (!is_finite(sums[1])) return fail(Suspect::beta, progress.iteration);
        if (!is_finite(gamma)) return fail(Suspect::alpha, progress.iteration);
        if (at_bound) return stop(static_cast<int>(Status::trust_bound));
        // Rounding was seen to raise ||r|| by up to 2e-8 in fp32. More than the root of eps is no rounding: the products with A and A^T
        // do not belong together, and the iterates would grow without bound.
        if (!rules.only_gradient && progress.r_norm > least_r * (1 + std::sqrt(rules.eps))) return stop(static_cast<int>(Status::breakdown));
        least_r = progress.r_norm < least_r ? progress.r_norm : least_r;
        test();
    }

  private:
    LSMR_HD void take_norms(const double* sums) {
        progress.r_norm = std::sqrt(sums[1] + square(lambda) * sums[3]);
        progress.ar_norm = std::sqrt(sums[0]);
        progress.x_norm = std::sqrt(sums[2]);
        progress.a_norm = rules.a_norm > 0 ? rules.a_norm : std::sqrt(largest_gain);
        progress.cond = progress.largest_cond = progress.a_estimated = std::numeric_limits<double>::quiet_NaN();
    }
    LSMR_HD void publish() {
        ring.put({progress.iteration, progress.r_norm, progress.ar_norm, progress.a_norm, progress.cond, progress.x_norm, 0, 0, 0,
                  std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()});
        progress.published = progress.iteration;
    }
    LSMR_HD void test() {
        const int code = stop_code(
            rules, {progress.iteration, progress.r_norm, progress.ar_norm, progress.a_norm, progress.cond, progress.x_norm}, memory);
        if (code != kGoOn) stop(code);
    }
    LSMR_HD void stop(int code) {
        progress.code = code;
        progress.finished = true;
        step = 0;  // iterations that are still queued leave x as it is
    }
    LSMR_HD void fail(Suspect suspect, std::int64_t iteration) {
        progress.suspect = suspect;
        progress.suspect_iteration = iteration;
        stop(static_cast<int>(Status::non_finite));
    }
};

// x <- x + step p;  s <- x - c where there is damping (c null: zero), with g: s <- g - lambda^2 (x - c);  sums = ||x||^2, ||x - c||^2.
// n-vectors.
template <class T>
struct CglsUpdateX {
    const CglsRecurrence<T>* r;
    const T* p;
    const T* center;
    const T* linear;  // g; null: none
    T* x;
    T* s;
    static constexpr int kSums = 2;

    struct Coefficients {
        T step;
        double lambda2;
    };
    LSMR_HD Coefficients load() const { return {r->step, square(r->lambda)}; }
    LSMR_HD void operator()(std::int64_t j, const Coefficients& k, double* sums) const {
        const T xj = k.step != T(0) ? x[j] + k.step * p[j] : x[j];
        x[j] = xj;
        sums[0] += static_cast<double>(xj) * static_cast<double>(xj);
        const T from_center = k.lambda2 > 0 ? (center ? xj - center[j] : xj) : T(0);
        sums[1] += static_cast<double>(from_center) * static_cast<double>(from_center);
        if (linear) s[j] = static_cast<T>(static_cast<double>(linear[j]) - k.lambda2 * static_cast<double>(from_center));
        else if (k.lambda2 > 0) s[j] = from_center;
    }
};

// r <- r - step q;  sums[0] = ||r||^2. m-vectors.
template <class T>
struct CglsUpdateR {
    const CglsRecurrence<T>* recurrence;
    const T* q;
    T* r;
    static constexpr int kSums = 1;

    struct Coefficients {
        T step;
    };
    LSMR_HD Coefficients load() const { return {recurrence->step}; }
    LSMR_HD void operator()(std::int64_t i, const Coefficients& k, double* sums) const {
        const T ri = k.step != T(0) ? r[i] - k.step * q[i] : r[i];
        r[i] = ri;
        sums[0] += static_cast<double>(ri) * static_cast<double>(ri);
    }
};

// p <- s + direction p (s: K K^T s where there is a preconditioner), once an iteration;  sums[0] = ||p||^2. n-vectors. direction = 0: p is not read.
template <class T>
struct CglsDirection {
    const CglsRecurrence<T>* r;
    const T* s;
    T* p;
    static constexpr int kSums = 1;

    struct Coefficients {
        T direction;
        bool active;
    };
    LSMR_HD Coefficients load() const { return {r->direction, r->turn_pending}; }
    LSMR_HD void operator()(std::int64_t j, const Coefficients& k, double* sums) const {
        if (k.active) p[j] = k.direction != T(0) ? s[j] + k.direction * p[j] : s[j];
        sums[0] += static_cast<double>(p[j]) * static_cast<double>(p[j]);
    }
};

template <class T>
struct Cgls {
    using Value = T;
    using Recurrence = CglsRecurrence<T>;
    static constexpr int kRowVectors = 2;  // r, q
    static constexpr int kColVectors = 4;  // p, s, beside x; with a preconditioner t, z
    static constexpr bool kDampsAnyStart = true;

    struct Vectors {
        T* r;
        T* q;
        T* p;
        T* s;
        T* x;
        T* t;  // K^T s
        T* z;  // K t; s where there is no preconditioner
    };
    template <class Backend>
    static Vectors vectors(Backend& backend, T* x, const Anchors<T>& anchors) {
        T* s = backend.col_vector(1);
        return {backend.row_vector(0), backend.row_vector(1), backend.col_vector(0), s, x,
                anchors.preconditioned ? backend.col_vector(2) : nullptr, anchors.preconditioned ? backend.col_vector(3) : s};
    }

    // f(vector, length) for all that the next iteration reads.
    template <class F>
    static void for_each_vector(const Vectors& w, std::int64_t rows, std::int64_t cols, const F& f) {
        f(w.r, rows);
        f(w.q, rows);
        f(w.p, cols);
        f(w.z, cols);
        f(w.x, cols);
    }

    // w.r holds b - A x; x the start. step is 0, so the updates only measure.
    template <class Backend>
    static void start(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& anchors) {
        gradient(backend, w, r, anchors);
        backend.finish(r, Recurrence::start_adjoint, 4);
    }

    template <class Backend>
    static void iterate(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& anchors) {
        backend.elementwise(backend.cols(), CglsDirection<T>{r, w.z, w.p}, 1);
        backend.forward(r, &r->forward, w.p, &r->zero, w.q, 0);
        backend.finish(r, Recurrence::after_forward, 2);
        if (anchors.bounded) {
            backend.elementwise(backend.cols(), Reach<T>{w.x, anchors.start, w.p, nullptr, nullptr}, 0);
            backend.finish(r, Recurrence::before_step, 3);
        }
        gradient(backend, w, r, anchors);
        backend.finish(r, Recurrence::after_adjoint, 4);
    }

  private:
    // The step, and s at its end.
    template <class Backend>
    static void gradient(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& anchors) {
        backend.elementwise(backend.cols(), CglsUpdateX<T>{r, w.p, anchors.center, anchors.linear, w.x, w.s}, 2);
        backend.elementwise(backend.rows(), CglsUpdateR<T>{r, w.q, w.r}, 1);
        backend.adjoint(r, &r->adjoint, w.r, &r->shrink, w.s, 0);
        if (anchors.preconditioned) backend.precondition(r, w.s, w.t, w.z, 0);
    }
};

}  // namespace lsmr
