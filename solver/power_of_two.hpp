// Scaling by powers of two: exact, unless the result leaves the range of doubles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lsmr {

// x 2^exponent, in two factors, since 2^exponent alone may overflow.
class PowerOfTwo {
  public:
    explicit PowerOfTwo(int exponent)
        : half_(std::ldexp(1.0, exponent / 2)), rest_(std::ldexp(1.0, exponent - exponent / 2)) {}
    double operator()(double x) const { return x * half_ * rest_; }

  private:
    double half_;
    double rest_;
};

// e such that 2^(e-1) <= x < 2^e; 0 for x = 0.
inline int binary_exponent(double x) {
    int exponent = 0;
    if (x != 0 && std::isfinite(x)) std::frexp(x, &exponent);
    return exponent;
}

inline double max_abs(const double* p, std::int64_t n) {
    constexpr std::int64_t kSerial = 1 << 16;  // below, starting threads would take longer
    double largest = 0;
#pragma omp parallel for schedule(static) reduction(max : largest) if (n > kSerial)
    for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(p[i]));
    return largest;
}

}  // namespace lsmr
