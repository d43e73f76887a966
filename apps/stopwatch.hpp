// Seconds since its making, by a clock that nobody sets.
#pragma once

#include <chrono>

namespace lsmr {

class Stopwatch {
  public:
    double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point start_ = Clock::now();
};

}  // namespace lsmr
