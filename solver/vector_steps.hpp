// Vector steps that every method uses, elementwise, written once for both executors.
#pragma once

#include <cstdint>

#include "memory/host_device.hpp"

namespace lsmr {

// sums[0] = ||p||^2
template <class T>
struct SquaredNorm {
    const T* p;
    static constexpr int kSums = 1;
    struct Coefficients {};
    LSMR_HD Coefficients load() const { return {}; }
    LSMR_HD void operator()(std::int64_t i, const Coefficients&, double* sums) const {
        sums[0] += static_cast<double>(p[i]) * static_cast<double>(p[i]);
    }
};

// out <- scale d (c - x), d elementwise; c null: zero; d null: ones.  sums[0] = ||out||^2. out may be c or x.
template <class T>
struct FromCenter {
    double scale;
    const T* center;
    const T* x;
    const T* d;
    T* out;
    static constexpr int kSums = 1;
    struct Coefficients {};
    LSMR_HD Coefficients load() const { return {}; }
    LSMR_HD void operator()(std::int64_t i, const Coefficients&, double* sums) const {
        const double difference = (center ? static_cast<double>(center[i]) : 0.0) - static_cast<double>(x[i]);
        const T value = static_cast<T>(scale * (d ? static_cast<double>(d[i]) * difference : difference));
        out[i] = value;
        sums[0] += static_cast<double>(value) * static_cast<double>(value);
    }
};

// p <- p + q
template <class T>
struct AddTo {
    const T* q;
    T* p;
    static constexpr int kSums = 1;  // unused
    struct Coefficients {};
    LSMR_HD Coefficients load() const { return {}; }
    LSMR_HD void operator()(std::int64_t i, const Coefficients&, double*) const { p[i] += q[i]; }
};

// sums[0] = ||p / d||^2, elementwise; d null: ones.
template <class T>
struct DividedNorm {
    const T* p;
    const T* d;
    static constexpr int kSums = 1;
    struct Coefficients {};
    LSMR_HD Coefficients load() const { return {}; }
    LSMR_HD void operator()(std::int64_t i, const Coefficients&, double* sums) const {
        const double value = d ? static_cast<double>(p[i]) / static_cast<double>(d[i]) : static_cast<double>(p[i]);
        sums[0] += value * value;
    }
};

// How far x is from the start, and where the step p - e q leads (q null: p): sums = d^T d, d^T s, s^T s with d = x - start, s the step.
template <class T>
struct Reach {
    const T* x;
    const T* start;  // null: zero
    const T* p;
    const T* q;
    const T* e;
    static constexpr int kSums = 3;
    struct Coefficients {
        T e;
    };
    LSMR_HD Coefficients load() const { return {q ? *e : T(0)}; }
    LSMR_HD void operator()(std::int64_t j, const Coefficients& k, double* sums) const {
        const double d = static_cast<double>(x[j]) - (start ? static_cast<double>(start[j]) : 0.0);
        const double s = static_cast<double>(q ? p[j] - k.e * q[j] : p[j]);
        sums[0] += d * d;
        sums[1] += d * s;
        sums[2] += s * s;
    }
};

}  // namespace lsmr
