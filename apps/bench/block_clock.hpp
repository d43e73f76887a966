// Times a running solver in blocks of iterations.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "stopwatch.hpp"

namespace lsmr {

// A block is `iterations` iterations, or as many as take `most_seconds`, at least one. The first block warms up and is not counted.
class BlockClock {
  public:
    // waits: how often the host has waited for the device, so far.
    BlockClock(std::int64_t iterations, int blocks, double most_seconds, std::function<std::int64_t()> waits)
        : iterations_(iterations), blocks_(blocks), most_seconds_(most_seconds), waits_(std::move(waits)) {}

    // Called while the solver runs: `done` iterations are complete. False once enough was measured.
    bool tick(std::int64_t done) {
        const Point now{done, watch_.seconds()};
        if (!started_) {
            started_ = true;
            begin_ = now;
        }
        const std::int64_t count = now.done - begin_.done;
        const double seconds = now.seconds - begin_.seconds;
        if (count >= iterations_ || (count > 0 && seconds >= most_seconds_)) {
            if (warm_) {
                seconds_.push_back(seconds / static_cast<double>(count));
                measured_ += count;
                waits_end_ = waits_();
            } else {
                warm_ = true;
                waits_begin_ = waits_();
            }
            begin_ = now;
        }
        return static_cast<int>(seconds_.size()) < blocks_;
    }

    // Of an iteration, one for each block.
    const std::vector<double>& seconds() const { return seconds_; }
    std::int64_t measured_iterations() const { return measured_; }
    double waits_per_iteration() const {
        return measured_ > 0 ? static_cast<double>(waits_end_ - waits_begin_) / static_cast<double>(measured_) : 0.0;
    }

  private:
    struct Point {
        std::int64_t done = 0;
        double seconds = 0;
    };
    std::int64_t iterations_;
    int blocks_;
    double most_seconds_;
    std::function<std::int64_t()> waits_;
    Stopwatch watch_;
    bool started_ = false;
    bool warm_ = false;
    Point begin_;
    std::vector<double> seconds_;
    std::int64_t measured_ = 0;
    std::int64_t waits_begin_ = 0;
    std::int64_t waits_end_ = 0;
};

}  // namespace lsmr
