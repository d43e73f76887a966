// Stored values that are narrower than the vectors.
#pragma once

#include <cstdint>
#include <type_traits>

#include "operator/cuda/stream_kernels.hpp"

namespace lsmr::cuda {
namespace {

template <class X>
__device__ X widened(double v) { return static_cast<X>(v); }
template <class X>
__device__ X widened(float v) { return static_cast<X>(v); }
template <class X>
__device__ X widened(Bf16 v) { return static_cast<X>(__uint_as_float(static_cast<unsigned>(v.bits) << 16)); }

// The value as it is stored: rounded to nearest in fp32; Bf16 only where it is exact.
template <class V, class T>
__device__ V narrowed(T v) {
    if constexpr (std::is_same_v<V, Bf16>) return Bf16{static_cast<std::uint16_t>(__float_as_uint(static_cast<float>(v)) >> 16)};
    else return static_cast<V>(v);
}

// Read once: past the first-level cache, and out of the second before what is read again.
__device__ inline double streamed(const double* p) { return __ldcs(p); }
__device__ inline float streamed(const float* p) { return __ldcs(p); }
__device__ inline Bf16 streamed(const Bf16* p) { return Bf16{__ldcs(&p->bits)}; }
__device__ inline std::int32_t streamed(const std::int32_t* p) { return __ldcs(p); }
__device__ inline std::uint16_t streamed(const std::uint16_t* p) { return __ldcs(p); }

}  // namespace
}  // namespace lsmr::cuda
