// Stored values in kernels: narrower than the vectors, read without staying in the caches, widened to the type of the arithmetic, or absent.
//
// Blocks and diagonals have places where A has no entry. Such a place holds a NaN, which no entry is (a CsrMatrix holds finite
// values), and a kernel skips it: a place with a zero would turn a non-finite x into NaN in rows that have no entry there. The mark costs no
// bytes and one comparison, and a place outside of A, in a ragged last block, is marked the same way.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "operator/cuda/bf16.hpp"

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

// A place without an entry.
__device__ inline void set_absent(double& v) { v = __longlong_as_double(0x7ff8000000000000ll); }
__device__ inline void set_absent(float& v) { v = __uint_as_float(0x7fc00000u); }
__device__ inline void set_absent(Bf16& v) { v.bits = 0x7fc0; }

// sum + v x where the place holds an entry.
template <class X, class V>
__device__ X add_product(X sum, V stored, X x) {
    const X v = widened<X>(stored);
    return v == v ? sum + v * x : sum;
}

// N values by one load of at most 16 bytes; `from` is aligned to them.
template <int N, class V>
__device__ void load_streamed(const V* from, V (&to)[N]) {
    constexpr std::size_t kBytes = sizeof(V) * N;
    static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16);
    if constexpr (kBytes == 2) {
        const unsigned short raw = __ldcs(reinterpret_cast<const unsigned short*>(from));
        memcpy(to, &raw, kBytes);
    } else if constexpr (kBytes == 4) {
        const unsigned raw = __ldcs(reinterpret_cast<const unsigned*>(from));
        memcpy(to, &raw, kBytes);
    } else if constexpr (kBytes == 8) {
        const uint2 raw = __ldcs(reinterpret_cast<const uint2*>(from));
        memcpy(to, &raw, kBytes);
    } else {
        const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(from));
        memcpy(to, &raw, kBytes);
    }
}

}  // namespace
}  // namespace lsmr::cuda
