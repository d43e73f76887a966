// Lengths and the plane rotation that all methods share.
#pragma once

#include <cmath>
#include <limits>

#include "memory/host_device.hpp"

namespace lsmr {

// False for NaN and infinities.
LSMR_HD inline bool is_finite(double x) { return x - x == 0; }

// A GPU makes the inverse of a root in less time than a division takes, and the root of it.
struct Length {
    double value;
    double inverse;  // 0 where the length is 0 or not finite
};
// The root of a sum of squares.
LSMR_HD inline Length length_of(double square) {
    if (!(square > 0 && is_finite(square))) return {std::sqrt(square), 0.0};
#ifdef __CUDA_ARCH__
    const double inverse = ::rsqrt(square);
    const double root = square * inverse;
    return {fma(0.5 * inverse, fma(-root, root, square), root), inverse};  // a step of Newton's: the product is off by two roundings
#else
    const double root = std::sqrt(square);
    return {root, 1.0 / root};
#endif
}

struct Rotation {
    double c;
    double s;
    double r;
    double inverse_r;  // infinite where r is 0
};

// [c s; -s c] (a, b)' = (r, 0)', r = sqrt(a^2 + b^2) >= 0. a = b = 0 gives c = 1, s = 0, so that no later division meets 0 / 0.
// Scaled by the larger of the two where squares would overflow or underflow.
LSMR_HD inline Rotation rotate(double a, double b) {
    constexpr double kLeast = 0x1p-900;
    constexpr double kMost = 0x1p+900;
    const double square = a * a + b * b;
    if (square > kLeast && square < kMost) {
        const Length r = length_of(square);
        return {a * r.inverse, b * r.inverse, r.value, r.inverse};
    }
    const double abs_a = a < 0 ? -a : a;
    const double abs_b = b < 0 ? -b : b;
    const double t = abs_a > abs_b ? abs_a : abs_b;
    if (t == 0) return {1.0, 0.0, 0.0, std::numeric_limits<double>::infinity()};
    const double x = a / t;
    const double y = b / t;
    const double length = std::sqrt(x * x + y * y);
    return {x / length, y / length, t * length, 1.0 / (t * length)};
}

}  // namespace lsmr
