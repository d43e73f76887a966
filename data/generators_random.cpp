#include "data/generators_random.hpp"

namespace lsmr::portable {

// log x = e log 2 + 2 artanh((f - 1) / (f + 1)) with f in [sqrt(1/2), sqrt(2)).
double log(double x) {
    constexpr double kLog2 = 0.693147180559945309;
    int exponent = 0;
    double f = std::frexp(x, &exponent);
    if (f < 0.70710678118654752) {
        f *= 2;
        --exponent;
    }
    const double t = (f - 1) / (f + 1);  // |t| < 0.172, so t^24 / 25 < 1e-19
    const double square = t * t;
    double sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
    return exponent * kLog2 + 2 * t * sum;
}

// exp x = 2^k exp r with |r| <= log(2) / 2.
double exp(double x) {
    constexpr double kLog2 = 0.693147180559945309;
    const double k = std::floor(x / kLog2 + 0.5);
    const double r = x - k * kLog2;
    double sum = 1;
    for (int i = 18; i >= 1; --i) sum = 1 + sum * r * (1.0 / i);
    return std::ldexp(sum, static_cast<int>(k));
}

// By the nearest quarter turn and the series of cos or sin for the rest.
double cos_turns(double t) {
    constexpr double kTwoPi = 6.283185307179586477;
    t -= std::floor(t);
    const int quarter = static_cast<int>(std::floor(4 * t + 0.5));
    const double r = (t - quarter / 4.0) * kTwoPi;  // |r| <= pi / 4
    const double square = r * r;
    double sum = 1;
    if (quarter % 2 == 0) {
        for (int k = 18; k >= 0; k -= 2) sum = 1 - sum * square * (1.0 / ((k + 1) * (k + 2)));
    } else {
        for (int k = 19; k >= 1; k -= 2) sum = 1 - sum * square * (1.0 / ((k + 1) * (k + 2)));
        sum *= r;
    }
    return quarter == 1 || quarter == 2 ? -sum : sum;
}

}  // namespace lsmr::portable
