// The 16-bit form of stored values.
#pragma once

#include <cstdint>

namespace lsmr::cuda {

struct Bf16 {
    std::uint16_t bits;  // the upper half of a float
};

}  // namespace lsmr::cuda
