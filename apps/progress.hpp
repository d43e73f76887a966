// What the line of progress says, and when it expects the solve to end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "solver/options.hpp"
#include "solver/result.hpp"

namespace lsmr {

// Follows the stop tests of one solve after another. What they test falls roughly like an exponential of the iteration,
// so a straight line through the logarithms tells where it will meet its tolerance.
class Forecast {
  public:
    // options: resolved, that is without -1.
    explicit Forecast(const SolveOptions& options) : options_(options) {}

    void add(const IterationRecord& record);

    // "itn 1200   compat 8.3e-03   LS 1.7e-04   12.0 s, about 5 s left": shorter than a line of any terminal.
    std::string text() const;

    // Seconds until a tolerance or a limit is met; negative where that cannot be told (yet).
    double seconds_left() const;

  private:
    struct Sample {
        double iteration;
        double log_compat;  // log(||r|| / its bound)
        double log_ls;      // log(||A^T r|| / its bound)
    };
    static constexpr std::size_t kMostSamples = 256;    // then every second one goes
    static constexpr std::int64_t kFirstForecast = 20;  // before that the slopes mean nothing

    SolveOptions options_;
    IterationRecord last_;
    std::vector<Sample> samples_;
    std::int64_t stride_ = 1;  // iterations between samples
};

}  // namespace lsmr
