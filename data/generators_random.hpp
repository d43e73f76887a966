// Random numbers and elementary functions that give the same bits on every machine: only + - * / and sqrt, frexp,
// ldexp, floor, which IEEE 754 fixes. The C library's log, exp and sin differ from system to system, and std::
// distributions from compiler to compiler. (The build turns off fused multiply-add for these files.)
#pragma once

#include <cmath>
#include <cstdint>

namespace lsmr::portable {

double log(double x);  // x > 0, normal
double exp(double x);  // where the result is neither huge nor tiny
inline double power(double x, double exponent) {
    return exp(exponent * log(x));
}  // x > 0
double cos_turns(double t);  // cos(2 pi t); exact at multiples of a quarter
inline double sin_turns(double t) {
    return cos_turns(t - 0.25);
}

// A generator whose start is a function of (seed, stream, index): each row of a matrix has its own, so rows can be made
// in any order and twice. SplitMix64: G. Steele, D. Lea, C. Flood, OOPSLA 2014, doi:10.1145/2660193.2660195.
class Random {
  public:
    Random(std::uint64_t seed, std::uint64_t stream, std::int64_t index)
        : state_(mix(mix(mix(seed) + stream) + static_cast<std::uint64_t>(index))) {}

    std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15); }
    // [0, 1), 53 bits
    double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    // [-1, 1), 54 bits
    double symmetric() { return static_cast<double>(static_cast<std::int64_t>(next()) >> 10) * 0x1p-53; }
    // 0 .. n - 1, for 1 <= n <= 2^32
    std::int64_t below(std::int64_t n) {
        return static_cast<std::int64_t>(((next() >> 32) * static_cast<std::uint64_t>(n)) >> 32);
    }
    // Mean 0, variance 1. Box and Muller, Ann. Math. Stat. 29 (1958) 610.
    double normal() {
        const double radius = std::sqrt(-2 * log(1 - unit()));
        return radius * cos_turns(unit());
    }

  private:
    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        return z ^ (z >> 31);
    }
    std::uint64_t state_;
};

}  // namespace lsmr::portable
