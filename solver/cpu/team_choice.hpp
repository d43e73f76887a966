// How many threads an iteration is fastest with, found by trying.
//
// An iteration of tens of microseconds waits for what threads hand one another: vectors that one wrote and all read, from the caches of others. More threads work
// faster and hand over more; where that turns differs from machine to machine. Products do not depend on who forms them, so a solve may try it on the way.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace lsmr::cpu {

class TeamChoice {
  public:
    // All of `most`, their half, and their quarter.
    explicit TeamChoice(int most = 1) {
        for (int size = std::max(most, 1); sizes_.empty() || (size >= 2 && sizes_.size() < kSizes); size /= 2) sizes_.push_back(size);
        settled_ = sizes_.size() == 1;
    }
    // To use in the next iteration.
    int threads() const { return sizes_[at_]; }
    bool settled() const { return settled_; }
    // The next iteration does not follow the last one.
    void interrupt() {
        in_block_ = 0;
        seconds_ = 0;
    }
    // An iteration with threads() took so long.
    void took(double seconds) {
        if (settled_ || waited_ < kWait) {
            ++waited_;
            return;
        }
        if (in_block_++ >= kWarmUps) seconds_ += seconds;
        if (in_block_ < kBlock) return;
        std::vector<double>& times = times_[at_];
        times.push_back(seconds_ / (kBlock - kWarmUps));
        interrupt();
        if (at_ == 0 && times.back() > kLong) {
            settled_ = true;
            return;
        }
        at_ = (at_ + 1) % sizes_.size();
        if (at_ != 0 || times_[0].size() < kRounds) return;
        const auto median = [&](std::size_t size) {
            std::vector<double>& all = times_[size];
            std::nth_element(all.begin(), all.begin() + kRounds / 2, all.end());
            return all[kRounds / 2];
        };
        std::array<double, kSizes> medians{};
        for (std::size_t size = 0; size < sizes_.size(); ++size) medians[size] = median(size);
        at_ = static_cast<std::size_t>(std::min_element(medians.begin(), medians.begin() + static_cast<std::ptrdiff_t>(sizes_.size())) - medians.begin());
        settled_ = true;
    }

  private:
    static constexpr std::size_t kSizes = 3;
    static constexpr int kWait = 50;            // iterations before the first trial: a solve that ends by then has all threads
    static constexpr int kBlock = 6;            // iterations of a trial
    static constexpr int kWarmUps = 2;          // of them, not counted
    static constexpr std::size_t kRounds = 5;   // trials of each size
    static constexpr double kLong = 1e-3;       // seconds of an iteration: what is handed over is little beside the work

    std::vector<int> sizes_;
    std::array<std::vector<double>, kSizes> times_;
    std::size_t at_ = 0;
    bool settled_ = false;
    int waited_ = 0;
    int in_block_ = 0;
    double seconds_ = 0;
};

}  // namespace lsmr::cpu
