// A sum of single terms, formed in blocks and these by halves: errors in norms cost orthogonality.
#pragma once

#include "operator/pairwise_sum.hpp"

namespace lsmr::cpu {

class BlockSum {
  public:
    void add(double value) {
        block_ += value;
        if (++count_ == kBlock) {
            total_.add(block_);
            block_ = 0;
            count_ = 0;
        }
    }
    double value() const { return total_.value() + block_; }

  private:
    static constexpr int kBlock = 16;
    PairwiseSum total_;
    double block_ = 0;
    int count_ = 0;
};

}  // namespace lsmr::cpu
