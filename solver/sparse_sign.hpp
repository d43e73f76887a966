// S of sketch-and-precondition: 8 entries +-1/sqrt(8) in each column, one in each eighth of the rows, by counter: the same seed gives the same S
// on every device, and any column can be had without those before it.
#pragma once

#include <cstdint>

#include "memory/host_device.hpp"

namespace lsmr {

inline constexpr int kSigns = 8;                           // entries in a column of S
inline constexpr double kSignSize = 0.35355339059327373;  // 1 / sqrt(kSigns)

struct SparseSign {
    std::int64_t row;
    double value;
};

// Entry k of column i of an S with `rows` >= kSigns rows; rows ascend in k.
LSMR_HD inline SparseSign sparse_sign(std::uint64_t seed, std::int64_t i, int k, std::int64_t rows) {
    std::uint64_t z = seed + (static_cast<std::uint64_t>(i) * kSigns + static_cast<std::uint64_t>(k) + 1) * 0x9e3779b97f4a7c15U;  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    z ^= z >> 31;
    const std::int64_t begin = rows * k / kSigns;
    const std::int64_t end = rows * (k + 1) / kSigns;
    return {begin + static_cast<std::int64_t>((z >> 1) % static_cast<std::uint64_t>(end - begin)), (z & 1) != 0 ? kSignSize : -kSignSize};
}

}  // namespace lsmr
