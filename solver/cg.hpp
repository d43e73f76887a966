// CG: A x = b for a symmetric positive definite A by conjugate gradients: one product an iteration, and the condition of A where least
// squares meets its square. The A-norm of the error falls monotonically; ||r|| need not.
//
// M. R. Hestenes, E. Stiefel, "Methods of conjugate gradients for solving linear systems", J. Res. Natl. Bur. Stand. 49 (1952),
// DOI 10.6028/jres.049.044.
//
// Per iteration: one product with A, the inner product p^T A p, updates of x and r, then of p. Storage: r, q, p, x (n).
// ||A^T r|| and cond(A) are not estimated: NaN in the records. p^T A p <= 0 ends the solve: A is not positive definite.
#pragma once

#include <cmath>
#include <limits>

#include "solver/recurrence.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr {

template <class T>
struct CgRecurrence {
    Coefficient<T> forward;  // q <- forward A p
    Coefficient<T> zero;     // and nothing of the old q
    T step;                  // x <- x + step p;  r <- r - step q
    T direction;             // p <- r + direction p
    bool turn_pending;       // p is still that of the iteration that was completed
    bool at_bound;           // the step was cut at the trust radius

    StopRules rules;
    RecordRing ring;
    Progress progress;

    double gamma;      // ||r||^2
    double curvature;  // largest p^T A p / ||p||^2 so far: where ||A||_F is not known, it stands for ||A||
    StopMemory memory;

    enum Stage { start, after_forward, before_step, after_update, host_stop };

    // sigma scaled. CG knows no damping.
    void prepare(double sigma, double /*lambda*/, const StopRules& rules_, const RecordRing& ring_, double /*x0_norm*/) {
        rules = rules_;
        ring = ring_;
        set(forward, sigma);
        set(zero, 0.0);
    }

    // After a stop: goes on with the same vectors under new rules.
    void resume(const StopRules& rules_, const RecordRing& ring_) {
        rules = rules_;
        ring = ring_;
        progress.code = kGoOn;
        progress.finished = false;
    }

    //   start          sums = ||r||^2, ||x||^2
    //   after_forward  sums = p^T q, ||p||^2
    //   before_step    those of part_within(); only where there is a trust radius
    //   after_update   sums = ||r||^2, ||x||^2          host_stop: code is the status to stop with
    LSMR_HD void finish(int stage, const double* sums, int code) {
        switch (stage) {
            case start: on_start(sums); break;
            case after_forward: on_forward(sums); break;
            case before_step: on_reach(sums); break;
            case after_update: on_update(sums); break;
            default:
                if (!progress.stopped()) stop(code);
        }
    }

  private:
    LSMR_HD void on_start(const double* sums) {
        curvature = 0;
        turn_pending = true;
        at_bound = false;
        gamma = sums[0];
        take_norms(sums);
        progress.r_start = progress.r_norm;
        progress.ar_start = progress.ar_norm;
        if (!is_finite(gamma)) return fail(Suspect::beta, 0);
        if (gamma == 0) return stop(static_cast<int>(Status::start_solves));
        test();
    }

    LSMR_HD void on_forward(const double* sums) {
        turn_pending = false;
        if (progress.stopped()) return;
        const double pq = sums[0];
        if (!is_finite(pq)) return fail(Suspect::beta, progress.iteration + 1);
        if (!(pq > 0)) return stop(static_cast<int>(Status::breakdown));
        step = static_cast<T>(gamma / pq);
        // As T holds it: in fp32 a finite double may be too large.
        if (!is_finite(static_cast<double>(step))) return fail(Suspect::coefficients, progress.iteration + 1);
        curvature = pq > curvature * sums[1] ? pq / sums[1] : curvature;
    }

    LSMR_HD void on_reach(const double* sums) {
        if (progress.stopped()) return;
        const double part = part_within(rules.trust_radius, static_cast<double>(step), sums);
        at_bound = part < 1;
        if (at_bound) step = static_cast<T>(part * static_cast<double>(step));
    }

    LSMR_HD void on_update(const double* sums) {
        if (progress.stopped()) return;
        ++progress.iteration;
        direction = static_cast<T>(sums[0] / gamma);
        turn_pending = true;
        gamma = sums[0];
        take_norms(sums);
        ring.put({progress.iteration, progress.r_norm, progress.ar_norm, progress.a_norm, progress.cond, progress.x_norm, 0, 0, 0});
        progress.published = progress.iteration;
        if (!is_finite(sums[1])) return fail(Suspect::iterate, progress.iteration);
        if (!is_finite(gamma)) return fail(Suspect::beta, progress.iteration);
        if (at_bound) return stop(static_cast<int>(Status::trust_bound));
        test();
    }

    LSMR_HD void take_norms(const double* sums) {
        progress.r_norm = std::sqrt(sums[0]);
        progress.ar_norm = progress.cond = progress.largest_cond = std::numeric_limits<double>::quiet_NaN();
        progress.x_norm = std::sqrt(sums[1]);
        progress.a_norm = rules.a_norm > 0 ? rules.a_norm : curvature;
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

// p <- r + direction p;  sums[0] = ||p||^2. n-vectors. direction = 0: p is not read.
template <class T>
struct CgDirection {
    const CgRecurrence<T>* recurrence;
    const T* r;
    T* p;
    static constexpr int kSums = 1;

    struct Coefficients {
        T direction;
        bool active;
    };
    LSMR_HD Coefficients load() const { return {recurrence->direction, recurrence->turn_pending}; }
    LSMR_HD void operator()(std::int64_t j, const Coefficients& k, double* sums) const {
        if (k.active) p[j] = k.direction != T(0) ? r[j] + k.direction * p[j] : r[j];
        sums[0] += static_cast<double>(p[j]) * static_cast<double>(p[j]);
    }
};

// sums[0] = p^T q. n-vectors.
template <class T>
struct InnerProduct {
    const T* p;
    const T* q;
    static constexpr int kSums = 1;
    struct Coefficients {};
    LSMR_HD Coefficients load() const { return {}; }
    LSMR_HD void operator()(std::int64_t j, const Coefficients&, double* sums) const {
        sums[0] += static_cast<double>(p[j]) * static_cast<double>(q[j]);
    }
};

// x <- x + step p;  r <- r - step q;  sums = ||r||^2, ||x||^2. n-vectors. step = 0: they are only measured.
template <class T>
struct CgUpdate {
    const CgRecurrence<T>* recurrence;
    const T* p;
    const T* q;
    T* x;
    T* r;
    static constexpr int kSums = 2;

    struct Coefficients {
        T step;
    };
    LSMR_HD Coefficients load() const { return {recurrence->step}; }
    LSMR_HD void operator()(std::int64_t j, const Coefficients& k, double* sums) const {
        T rj = r[j];
        T xj = x[j];
        if (k.step != T(0)) {
            rj -= k.step * q[j];
            xj += k.step * p[j];
            r[j] = rj;
            x[j] = xj;
        }
        sums[0] += static_cast<double>(rj) * static_cast<double>(rj);
        sums[1] += static_cast<double>(xj) * static_cast<double>(xj);
    }
};

template <class T>
struct Cg {
    using Value = T;
    using Recurrence = CgRecurrence<T>;
    static constexpr int kRowVectors = 2;  // r, q
    static constexpr int kColVectors = 1;  // p, beside x
    static constexpr bool kDampsAnyStart = true;  // there is no damping

    struct Vectors {
        T* r;
        T* q;
        T* p;
        T* x;
    };
    template <class Backend>
    static Vectors vectors(Backend& backend, T* x) {
        return {backend.row_vector(0), backend.row_vector(1), backend.col_vector(0), x};
    }

    // f(vector, length) for all that the next iteration reads.
    template <class F>
    static void for_each_vector(const Vectors& w, std::int64_t rows, std::int64_t cols, const F& f) {
        f(w.r, rows);
        f(w.p, cols);
        f(w.x, cols);
    }

    // w.r holds b - A x; x the start. step is 0, so the update only measures.
    template <class Backend>
    static void start(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& /*anchors*/) {
        backend.elementwise_finish(backend.cols(), CgUpdate<T>{r, w.p, w.q, w.x, w.r}, 0, r, Recurrence::start, 2, Beside::nothing);
    }

    template <class Backend>
    static void iterate(Backend& backend, const Vectors& w, Recurrence* r, const Anchors<T>& anchors) {
        backend.elementwise(backend.cols(), CgDirection<T>{r, w.r, w.p}, 1);
        backend.forward(r, &r->forward, w.p, &r->zero, w.q, 0);
        backend.elementwise_finish(backend.cols(), InnerProduct<T>{w.p, w.q}, 0, r, Recurrence::after_forward, 2, Beside::nothing);
        if (anchors.bounded) {
            backend.elementwise(backend.cols(), Reach<T>{w.x, anchors.start, w.p, nullptr, nullptr}, 0);
            backend.finish(r, Recurrence::before_step, 3);
        }
        backend.elementwise_finish(backend.cols(), CgUpdate<T>{r, w.p, w.q, w.x, w.r}, 0, r, Recurrence::after_update, 2, Beside::nothing);
    }
};

}  // namespace lsmr
