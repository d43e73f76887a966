// Sums whose rounding does not grow with their length.
#pragma once

#include <cstdint>

namespace lsmr {

// f(begin) + ... + f(end - 1) by halves: a relative error of at most (16 + log2(n / 16)) eps for terms of one sign, and an order that
// depends on the length alone. Up to kLeaf terms are added one after another.
template <std::int64_t kLeaf = 16, class F>
double pairwise_sum(std::int64_t begin, std::int64_t end, const F& f) {
    if (end - begin > kLeaf) {
        const std::int64_t middle = begin + (end - begin) / 2;
        return pairwise_sum<kLeaf>(begin, middle, f) + pairwise_sum<kLeaf>(middle, end, f);
    }
    double sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum += f(i);
    return sum;
}

// The same for terms that come one after another, most usefully sums of short blocks: term k is added to the sum of the 2^l terms before it
// while k has l more bits set at its end, as a counter carries.
class PairwiseSum {
  public:
    void add(double term) {
        int level = 0;
        for (std::uint64_t k = count_; (k & 1) != 0; k >>= 1) term += sums_[level++];
        sums_[level] = term;
        ++count_;
    }
    double value() const {
        double total = 0;
        int level = 0;
        for (std::uint64_t k = count_; k != 0; k >>= 1, ++level) {
            if ((k & 1) != 0) total += sums_[level];
        }
        return total;
    }

  private:
    std::uint64_t count_ = 0;
    double sums_[64];  // [l]: of 2^l terms, where bit l of the count is set
};

}  // namespace lsmr
