// Rows in fp64 with AVX-512 (F, BW, DQ, VL): 8 lanes in 512 bits. In fp32 AVX2 has as many lanes, and more do not make it faster.
#include <immintrin.h>

#include <algorithm>

#include "operator/cpu/csr_rows.hpp"
#include "operator/pairwise_sum.hpp"

#define LSMR_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2")))

namespace lsmr::cpu {
namespace {

// n is at most the length of a row.
LSMR_TARGET inline __mmask8 first_lanes(std::int64_t n) {
    return _mm256_cmpgt_epi32_mask(_mm256_set1_epi32(static_cast<std::int32_t>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LSMR_TARGET inline __m256i load_columns(__mmask8 mask, const std::int32_t* p) { return _mm256_maskz_loadu_epi32(mask, p); }
LSMR_TARGET inline __m256i load_columns(__mmask8 mask, const std::uint16_t* p) {
    return _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, p));
}
LSMR_TARGET inline __m512d load_values(__mmask8 mask, const double* p) { return _mm512_maskz_loadu_pd(mask, p); }
LSMR_TARGET inline __m512d load_values(__mmask8 mask, const float* p) { return _mm512_cvtps_pd(_mm256_maskz_loadu_ps(mask, p)); }

// Sums of squares of 8 lanes.
struct Squares8 {
    __m512d lanes;
    LSMR_TARGET Squares8() : lanes(_mm512_setzero_pd()) {}
    LSMR_TARGET void add(__m512d v) { lanes = _mm512_fmadd_pd(v, v, lanes); }
    LSMR_TARGET double sum() const { return _mm512_reduce_add_pd(lanes); }
};

struct Lanes {
    using Vector = __m512d;
    using Squares = Squares8;
    static constexpr int kLanes = 8;
    LSMR_TARGET static __mmask8 first(std::int64_t n) { return first_lanes(n); }
    LSMR_TARGET static Vector zero() { return _mm512_setzero_pd(); }
    LSMR_TARGET static Vector all(double value) { return _mm512_set1_pd(value); }
    LSMR_TARGET static Vector load(__mmask8 mask, const double* p) { return _mm512_maskz_loadu_pd(mask, p); }
    LSMR_TARGET static Vector keep(__mmask8 mask, Vector v) { return _mm512_maskz_mov_pd(mask, v); }
    LSMR_TARGET static Vector drop(__mmask8 mask, Vector v) { return keep(static_cast<__mmask8>(~mask), v); }
    LSMR_TARGET static void store(__mmask8 mask, double* p, Vector v) { _mm512_mask_storeu_pd(p, mask, v); }
    template <class V, class C>
    LSMR_TARGET static Vector add_products(__mmask8 mask, const V* values, const C* columns, const double* x, Vector s) {
        const Vector gathered = _mm512_mask_i32gather_pd(zero(), mask, load_columns(mask, columns), x, sizeof(double));
        return _mm512_fmadd_pd(load_values(mask, values), gathered, s);
    }
    template <class V>
    LSMR_TARGET static Vector add_padded(const V* values, const std::int32_t* columns, const double* x, Vector s) {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(columns));
        const Vector gathered = _mm512_mask_i32gather_pd(zero(), _mm256_cmpgt_epi32_mask(c, _mm256_set1_epi32(-1)), c, x, sizeof(double));
        return _mm512_fmadd_pd(load_values(0xff, values), gathered, s);
    }
    template <class V>
    LSMR_TARGET static Vector add_padded(const V* values, const std::uint16_t* columns, const double* x, Vector s) {
        const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(columns));
        const Vector gathered =
            _mm512_mask_i32gather_pd(zero(), _mm_cmpneq_epi16_mask(c, _mm_set1_epi16(-1)), _mm256_cvtepu16_epi32(c), x, sizeof(double));
        return _mm512_fmadd_pd(load_values(0xff, values), gathered, s);
    }
    template <class V>
    LSMR_TARGET static Vector load_values(__mmask8 mask, const V* p) {
        return cpu::load_values(mask, p);
    }
    LSMR_TARGET static Vector load_all(const double* p) { return _mm512_loadu_pd(p); }
    LSMR_TARGET static void store_all(double* p, Vector v) { _mm512_storeu_pd(p, v); }
    LSMR_TARGET static Vector add_where(__mmask8 mask, Vector a, Vector b, Vector c) { return _mm512_mask3_fmadd_pd(a, b, c, mask); }
    LSMR_TARGET static double sum(Vector v) { return _mm512_reduce_add_pd(v); }
    LSMR_TARGET static Vector add(Vector a, Vector b) { return _mm512_add_pd(a, b); }
    LSMR_TARGET static Vector multiply(Vector a, Vector b) { return _mm512_mul_pd(a, b); }
    LSMR_TARGET static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
    LSMR_TARGET static Vector sums(const Vector (&v)[8]) {
        const Vector v01 = _mm512_add_pd(_mm512_unpacklo_pd(v[0], v[1]), _mm512_unpackhi_pd(v[0], v[1]));
        const Vector v23 = _mm512_add_pd(_mm512_unpacklo_pd(v[2], v[3]), _mm512_unpackhi_pd(v[2], v[3]));
        const Vector v45 = _mm512_add_pd(_mm512_unpacklo_pd(v[4], v[5]), _mm512_unpackhi_pd(v[4], v[5]));
        const Vector v67 = _mm512_add_pd(_mm512_unpacklo_pd(v[6], v[7]), _mm512_unpackhi_pd(v[6], v[7]));
        const Vector v0123 = add_quarters(v01, v23);
        const Vector v4567 = add_quarters(v45, v67);
        return add_quarters(v0123, v4567);
    }

  private:
    // Quarters (128 bits) a0 + a1, a2 + a3, b0 + b1, b2 + b3.
    LSMR_TARGET static Vector add_quarters(Vector a, Vector b) {
        return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x88), _mm512_shuffle_f64x2(a, b, 0xdd));
    }
};

#include "operator/cpu/csr_rows_simd.inl"

}  // namespace

template <class V, class C>
double rows_avx512(const RowBlock<double, V, C>& block, double a, const double* x, double b, double* y) {
    return rows_simd<Lanes>(block, a, x, b, y);
}

template <class V, class C>
double sliced_avx512(const SlicedBlock<double, V, C>& block, double a, const double* x, double b, double* y) {
    return sliced_simd<Lanes>(block, a, x, b, y);
}

template <class V>
GroupKernels<double, V> group_avx512() {
    return {groups_simd<Lanes, true, double, V, double>,
            [](const GroupBlock<V>& block, const double* y, double* z) { groups_simd<Lanes, false>(block, 0.0, static_cast<const double*>(nullptr), 0.0, y, z); },
            Lanes::kLanes};
}
template GroupKernels<double, double> group_avx512();
template GroupKernels<double, float> group_avx512();

void slice_avx512(const PaddedSlice<double>& slice, const double* x, double* sums) { slice_simd<Lanes>(slice, x, sums); }

#define LSMR_INSTANTIATE(T, V, C)                                              \
    template double rows_avx512(const RowBlock<T, V, C>&, T, const T*, T, T*); \
    template double sliced_avx512(const SlicedBlock<T, V, C>&, T, const T*, T, T*);
LSMR_ROW_TYPES_FP64(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cpu
