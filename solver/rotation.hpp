// Lengths and the plane rotation that all methods share.
#pragma once

#include <cmath>
#include <limits>

#include "memory/host_device.hpp"

namespace lsmr {

// False for NaN and infinities.
LSMR_HD inline bool is_finite(double x) {
#ifdef __CUDA_ARCH__
    return (__double2hiint(x) & 0x7ff00000) != 0x7ff00000;  // sooner known than a difference
#else
    return x - x == 0;
#endif
}

// Whether no square of it, nor root, nor inverse is far from what numbers can hold: 2^-900 <= x < 2^900.
LSMR_HD inline bool is_moderate(double x) {
#ifdef __CUDA_ARCH__
    constexpr unsigned kLeast = (1023u - 900) << 20;  // the upper half of 2^-900
    constexpr unsigned kMost = (1023u + 900) << 20;
    return static_cast<unsigned>(__double2hiint(x)) - kLeast < kMost - kLeast;
#else
    return x >= 0x1p-900 && x < 0x1p+900;
#endif
}

// A GPU makes the inverse of a root in less time than a division takes, and the root of it.
struct Length {
    double value;
    double inverse;  // 0 where the length is 0 or not finite
};
// The root of a sum of squares.
LSMR_HD inline Length length_of(double square) {
#ifdef __CUDA_ARCH__
    // Without a branch, of which an iteration would have many. 0, infinity and NaN are their own roots; a sum below the
    // normal numbers, of lengths below 1.5e-154 where A is near 1, is taken for its root: no length beside the others, and without an inverse.
    constexpr unsigned kLeast = 1u << 20;
    constexpr unsigned kMost = 0x7ffu << 20;
    const bool normal = static_cast<unsigned>(__double2hiint(square)) - kLeast < kMost - kLeast;
    // To 20 bits, then to all.
    double inverse;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(square));
    const double off = fma(square, -(inverse * inverse), 1.0);
    inverse = fma(fma(off, 0.375, 0.5), inverse * off, inverse);
    const double product = square * inverse;
    const double root = fma(0.5 * inverse, fma(-product, product, square), product);  // a step of Newton's: the product is off by two roundings
    return {normal ? root : square, normal ? inverse : 0.0};
#else
    const double root = std::sqrt(square);
    return {root, square > 0 && is_finite(square) ? 1.0 / root : 0.0};
#endif
}

struct Rotation {
    double c;
    double s;
    double r;
    double inverse_r;  // infinite where r is 0
};

// Scaled by the larger of the two.
LSMR_HD_SELDOM inline Rotation rotate_scaled(double a, double b) {
    const double abs_a = a < 0 ? -a : a;
    const double abs_b = b < 0 ? -b : b;
    const double t = abs_a > abs_b ? abs_a : abs_b;
    if (t == 0) return {1.0, 0.0, 0.0, std::numeric_limits<double>::infinity()};
    const double x = a / t;
    const double y = b / t;
    const double length = std::sqrt(x * x + y * y);
    return {x / length, y / length, t * length, 1.0 / (t * length)};
}
// [c s; -s c] (a, b)' = (r, 0)', r = sqrt(a^2 + b^2) >= 0. a = b = 0 gives c = 1, s = 0, so that no later division meets 0 / 0.
// Scaled where squares would overflow or underflow.
LSMR_HD inline Rotation rotate(double a, double b) {
    const double square = a * a + b * b;
    if (!is_moderate(square)) return rotate_scaled(a, b);
    const Length r = length_of(square);
    return {a * r.inverse, b * r.inverse, r.value, r.inverse};
}

}  // namespace lsmr
