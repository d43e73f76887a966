// +1 or -1 for each place of each probe, from a counter: the same seed gives the same signs everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lsmr {

// The finaliser of SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014, DOI 10.1145/2660193.2660195).
inline double random_sign(std::uint64_t seed, std::int64_t probe, std::size_t j) {
    std::uint64_t z = seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(probe) * 0xd1342543de82ef95U + j;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return ((z ^ (z >> 31)) & 1U) != 0 ? 1.0 : -1.0;
}

}  // namespace lsmr
