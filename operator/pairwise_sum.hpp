// Sums whose rounding does not grow with their length.
#pragma once

#include <cstdint>

namespace lsmr {

// f(begin) + ... + f(end - 1) by halves: a relative error of at most (16 + log2(n / 16)) eps for terms of one sign, and an order that
// depends on the length alone.
template <class F>
double pairwise_sum(std::int64_t begin, std::int64_t end, const F& f) {
    constexpr std::int64_t kLeaf = 16;
    if (end - begin > kLeaf) {
        const std::int64_t middle = begin + (end - begin) / 2;
        return pairwise_sum(begin, middle, f) + pairwise_sum(middle, end, f);
    }
    double sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum += f(i);
    return sum;
}

}  // namespace lsmr
