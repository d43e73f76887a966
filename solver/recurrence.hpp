// What the recurrences of all methods share: the status, the records, and the rules that end them.
#pragma once

#include <cmath>
#include <cstdint>

#include "memory/host_device.hpp"
#include "operator/linear_operator.hpp"
#include "solver/result.hpp"
#include "solver/stopping.hpp"

namespace lsmr {

// How an executor begins: with the method's start, or in the middle, with state and vectors as they are.
enum class Entry { start, go_on };

// Whether an elementwise step may run at the same time as the product that was called just before it.
enum class Beside { nothing, product };

// Where a recurrence leaves its records: a ring that the host reads behind it. In memory that both sides can address.
struct RecordRing {
    IterationRecord* records = nullptr;
    std::int64_t size = 0;  // a power of two: a GPU divides integers in many steps
    LSMR_HD void put(const IterationRecord& record) const { records[(record.iteration - 1) & (size - 1)] = record; }
};

// Which number was not finite.
enum class Suspect : int { none, beta, alpha, coefficients, iterate };

// The part of a recurrence's state that the host looks at between iterations.
struct Progress {
    int code = kGoOn;             // Status as an int, or kGoOn
    Suspect suspect = Suspect::none;
    std::int64_t suspect_iteration = 0;  // the iteration in which it arose; 0: before the first
    bool finished = false;        // stopped, and x is that of `iteration`
    std::int64_t iteration = 0;   // the last that was completed
    std::int64_t published = 0;   // records 1..published can be read
    double r_norm = 0;            // the estimates of that iteration
    double ar_norm = 0;
    double a_norm = 0;
    double cond = 0;
    double largest_cond = 0;  // of all iterations: the estimate is a lower bound each time
    double x_norm = 0;
    double a_estimated = 0;   // of ||A||_F, by the bidiagonalisation
    double r_start = 0;       // ||r|| and ||A^T r|| of the start
    double ar_start = 0;
    LSMR_HD bool stopped() const { return code != kGoOn; }
};

LSMR_HD inline double square(double x) { return x * x; }

// How much of the step t p keeps d + t p within the radius: 1, or where ||d + t p|| would pass it, the root tau in [0, 1] of
// ||d + tau t p|| = radius. sums = d^T d, d^T p, p^T p; ||d|| <= radius.
LSMR_HD inline double part_within(double radius, double t, const double* sums) {
    const double dp = t * sums[1];
    const double pp = t * t * sums[2];
    if (sums[0] + 2 * dp + pp <= square(radius)) return 1;
    const double room = square(radius) - sums[0] > 0 ? square(radius) - sums[0] : 0.0;
    const double root = std::sqrt(square(dp) + pp * room);
    // The form of the root that does not cancel.
    return dp > 0 ? room / (dp + root) : (root - dp) / pp;
}

// What a solve is tied to beside A and b, in the vectors' space.
template <class T>
struct Anchors {
    const T* center = nullptr;  // of the damping; null: zero
    const T* start = nullptr;   // x0; null: zero
    const T* linear = nullptr;  // g, for CGLS: the gradient A^T r - lambda^2 (x - c) gains it; null: none
    bool bounded = false;       // by rules.trust_radius around the start
    bool preconditioned = false;  // LSMR and LSQR: v <- K K^T p; CGLS: the direction is that of K K^T s
    bool variances = false;       // LSQR: estimates them
    T* basis = nullptr;           // LSMR and LSQR: the last `window` v, normalised, one after another; null: not kept
    std::int64_t window = 0;
    bool twice = false;           // the new v is made orthogonal twice: what is left of it where the Krylov space ends is rounding
};

template <class T>
LSMR_HD inline void set(Coefficient<T>& coefficient, double value) {
    coefficient.wide = value;
    coefficient.narrow = static_cast<T>(value);
}

}  // namespace lsmr
