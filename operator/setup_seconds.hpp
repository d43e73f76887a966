// Where the time of a set-up goes.
#pragma once

#include <chrono>

namespace lsmr {

// Seconds of each phase, the device's work included. They add up to PreparedInfo::setup_seconds, but for what lies between them.
struct SetupSeconds {
    double check = 0;           // on the host: the largest entry and the norm; weights, scaling, regularising rows
    double preconditioner = 0;  // on the host and on the device
    double context = 0;         // the device's, where the process has none yet; stream and pool
    double upload = 0;          // to the device, with the conversion of values and offsets
    double transpose = 0;       // the other orientation
    double order = 0;           // of rows and columns: predicted, made, and timed
    double choice = 0;          // profile, choice by timing, plan, and the form that the kernels read
    double one_pass = 0;        // made and timed beside the two products
    double buffers = 0;         // scratch of the products
    double executor = 0;        // the persistent kernel's arrays, or why there are none
    double release = 0;         // of memory that only the set-up needed

    // f(name, seconds) of each, in the order in which they come.
    template <class F>
    void for_each(const F& f) const {
        for (const Phase& phase : kPhases) f(phase.name, this->*phase.seconds);
    }
    SetupSeconds& operator+=(const SetupSeconds& other) {
        for (const Phase& phase : kPhases) this->*phase.seconds += other.*phase.seconds;
        return *this;
    }
    double sum() const {
        double total = 0;
        for_each([&](const char*, double seconds) { total += seconds; });
        return total;
    }

  private:
    using Seconds = double SetupSeconds::*;
    struct Phase {
        const char* name;
        Seconds seconds;
    };
    static const Phase kPhases[11];
};

inline constexpr SetupSeconds::Phase SetupSeconds::kPhases[11] = {{"check", &SetupSeconds::check},
                                                                  {"preconditioner", &SetupSeconds::preconditioner},
                                                                  {"context", &SetupSeconds::context},
                                                                  {"upload", &SetupSeconds::upload},
                                                                  {"transpose", &SetupSeconds::transpose},
                                                                  {"order", &SetupSeconds::order},
                                                                  {"choice", &SetupSeconds::choice},
                                                                  {"one_pass", &SetupSeconds::one_pass},
                                                                  {"buffers", &SetupSeconds::buffers},
                                                                  {"executor", &SetupSeconds::executor},
                                                                  {"release", &SetupSeconds::release}};

class SetupClock {
  public:
    // Adds the seconds since the last lap, or since its making.
    void lap(double& phase) {
        const auto now = std::chrono::steady_clock::now();
        phase += std::chrono::duration<double>(now - start_).count();
        start_ = now;
    }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace lsmr
