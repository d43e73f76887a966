// The plane rotation that all methods share.
#pragma once

#include <cmath>

#include "memory/host_device.hpp"

namespace lsmr {

struct Rotation {
    double c;
    double s;
    double r;
};

// [c s; -s c] (a, b)' = (r, 0)', r = sqrt(a^2 + b^2) >= 0. a = b = 0 gives c = 1, s = 0, so that no later division meets 0 / 0.
// Scaled by the larger of the two: no overflow or underflow of squares.
LSMR_HD inline Rotation rotate(double a, double b) {
    const double abs_a = a < 0 ? -a : a;
    const double abs_b = b < 0 ? -b : b;
    const double t = abs_a > abs_b ? abs_a : abs_b;
    if (t == 0) return {1.0, 0.0, 0.0};
    const double x = a / t;
    const double y = b / t;
    const double length = std::sqrt(x * x + y * y);
    return {x / length, y / length, t * length};
}

// False for NaN and infinities.
LSMR_HD inline bool is_finite(double x) { return x - x == 0; }

}  // namespace lsmr
