// A sum formed in blocks, so that its rounding does not grow with the number of terms: errors in norms cost orthogonality.
#pragma once

namespace lsmr::cpu {

class BlockSum {
  public:
    void add(double value) {
        block_ += value;
        if (++count_ == kBlock) {
            total_ += block_;
            block_ = 0;
            count_ = 0;
        }
    }
    double value() const { return total_ + block_; }

  private:
    static constexpr int kBlock = 64;
    double total_ = 0;
    double block_ = 0;
    int count_ = 0;
};

}  // namespace lsmr::cpu
