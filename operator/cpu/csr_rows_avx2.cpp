// Rows with AVX2 and FMA: 256 bits, 4 lanes for fp64 and 8 lanes for fp32.
#include <immintrin.h>

#include <algorithm>

#include "operator/cpu/csr_rows.hpp"
#include "operator/pairwise_sum.hpp"

#define LSMR_TARGET __attribute__((target("avx2,fma,bmi,bmi2")))

namespace lsmr::cpu {
namespace {

// 8 - n words on from the start of these: a mask of the first n of 8 lanes.
alignas(64) constexpr std::int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
alignas(64) constexpr std::int64_t kWideMasks[8] = {-1, -1, -1, -1, 0, 0, 0, 0};

// kNoColumn once it is 32 bits wide.
template <class C>
constexpr std::int32_t kNoWord = kNoColumn<C>;

LSMR_TARGET inline __m256i load_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Sums of squares of 4 lanes; of 8, the upper on the lower ones.
struct Squares4 {
    __m256d lanes;
    LSMR_TARGET Squares4() : lanes(_mm256_setzero_pd()) {}
    LSMR_TARGET void add(__m256d v) { lanes = _mm256_fmadd_pd(v, v, lanes); }
    LSMR_TARGET void add(__m256 v) {
        add(_mm256_cvtps_pd(_mm256_castps256_ps128(v)));
        add(_mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
    }
    LSMR_TARGET double sum() const { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }
};

template <class T>
struct Lanes;

template <>
struct Lanes<double> {
    using Vector = __m256d;
    using Squares = Squares4;
    static constexpr int kLanes = 4;
    LSMR_TARGET static __m256i first(std::int64_t n) { return load_words(kWideMasks + 4 - std::clamp<std::int64_t>(n, 0, 4)); }
    LSMR_TARGET static Vector zero() { return _mm256_setzero_pd(); }
    LSMR_TARGET static Vector all(double value) { return _mm256_set1_pd(value); }
    LSMR_TARGET static Vector load(__m256i mask, const double* p) { return _mm256_maskload_pd(p, mask); }
    LSMR_TARGET static Vector keep(__m256i mask, Vector v) { return _mm256_and_pd(_mm256_castsi256_pd(mask), v); }
    LSMR_TARGET static Vector drop(__m256i mask, Vector v) { return _mm256_andnot_pd(_mm256_castsi256_pd(mask), v); }
    LSMR_TARGET static void store(__m256i mask, double* p, Vector v) { _mm256_maskstore_pd(p, mask, v); }
    template <class V, class C>
    LSMR_TARGET static Vector add_products(__m256i mask, const V* values, const C* columns, const double* x, Vector s) {
        const Vector gathered =
            _mm256_mask_i32gather_pd(zero(), x, load_columns(mask, columns), _mm256_castsi256_pd(mask), sizeof(double));
        return _mm256_fmadd_pd(load_values(mask, values), gathered, s);
    }
    template <class V, class C>
    LSMR_TARGET static Vector add_padded(const V* values, const C* columns, const double* x, Vector s) {
        const __m256i all = load_words(kWideMasks);
        const __m128i c = load_columns(all, columns);
        const __m256i empty = _mm256_cvtepi32_epi64(_mm_cmpeq_epi32(c, _mm_set1_epi32(kNoWord<C>)));
        const __m256d mask = _mm256_castsi256_pd(_mm256_xor_si256(empty, all));
        return _mm256_fmadd_pd(load_values(all, values), _mm256_mask_i32gather_pd(zero(), x, c, mask, sizeof(double)), s);
    }
    LSMR_TARGET static Vector load_values(__m256i mask, const double* p) { return _mm256_maskload_pd(p, mask); }
    LSMR_TARGET static Vector load_values(__m256i mask, const float* p) { return _mm256_cvtps_pd(_mm_maskload_ps(p, narrow(mask))); }
    LSMR_TARGET static Vector load_all(const double* p) { return _mm256_loadu_pd(p); }
    LSMR_TARGET static void store_all(double* p, Vector v) { _mm256_storeu_pd(p, v); }
    LSMR_TARGET static Vector add_where(__m256i mask, Vector a, Vector b, Vector c) {
        return _mm256_blendv_pd(c, _mm256_fmadd_pd(a, b, c), _mm256_castsi256_pd(mask));
    }
    LSMR_TARGET static double sum(Vector v) { return (v[0] + v[1]) + (v[2] + v[3]); }
    LSMR_TARGET static Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
    LSMR_TARGET static Vector multiply(Vector a, Vector b) { return _mm256_mul_pd(a, b); }
    LSMR_TARGET static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
    LSMR_TARGET static Vector sums(const Vector (&v)[4]) {
        const Vector v01 = _mm256_hadd_pd(v[0], v[1]);
        const Vector v23 = _mm256_hadd_pd(v[2], v[3]);
        return _mm256_add_pd(_mm256_permute2f128_pd(v01, v23, 0x20), _mm256_permute2f128_pd(v01, v23, 0x31));
    }

  private:
    LSMR_TARGET static __m128i narrow(__m256i mask) {
        return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(mask, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6)));
    }
    LSMR_TARGET static __m128i load_columns(__m256i mask, const std::int32_t* p) { return _mm_maskload_epi32(p, narrow(mask)); }
    LSMR_TARGET static __m128i load_columns(__m256i, const std::uint16_t* p) {
        return _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    }
};

template <>
struct Lanes<float> {
    using Vector = __m256;
    using Squares = Squares4;
    static constexpr int kLanes = 8;
    LSMR_TARGET static __m256i first(std::int64_t n) { return load_words(kMasks + 8 - std::clamp<std::int64_t>(n, 0, 8)); }
    LSMR_TARGET static Vector zero() { return _mm256_setzero_ps(); }
    LSMR_TARGET static Vector all(float value) { return _mm256_set1_ps(value); }
    LSMR_TARGET static Vector load(__m256i mask, const float* p) { return _mm256_maskload_ps(p, mask); }
    LSMR_TARGET static Vector keep(__m256i mask, Vector v) { return _mm256_and_ps(_mm256_castsi256_ps(mask), v); }
    LSMR_TARGET static Vector drop(__m256i mask, Vector v) { return _mm256_andnot_ps(_mm256_castsi256_ps(mask), v); }
    LSMR_TARGET static void store(__m256i mask, float* p, Vector v) { _mm256_maskstore_ps(p, mask, v); }
    template <class C>
    LSMR_TARGET static Vector add_products(__m256i mask, const float* values, const C* columns, const float* x, Vector s) {
        const Vector gathered = _mm256_mask_i32gather_ps(zero(), x, load_columns(mask, columns), _mm256_castsi256_ps(mask), sizeof(float));
        return _mm256_fmadd_ps(_mm256_maskload_ps(values, mask), gathered, s);
    }
    template <class C>
    LSMR_TARGET static Vector add_padded(const float* values, const C* columns, const float* x, Vector s) {
        const __m256i all = load_words(kMasks);
        const __m256i c = load_columns(all, columns);
        const __m256i mask = _mm256_xor_si256(_mm256_cmpeq_epi32(c, _mm256_set1_epi32(kNoWord<C>)), all);
        const Vector gathered = _mm256_mask_i32gather_ps(zero(), x, c, _mm256_castsi256_ps(mask), sizeof(float));
        return _mm256_fmadd_ps(_mm256_loadu_ps(values), gathered, s);
    }
    LSMR_TARGET static Vector load_values(__m256i mask, const float* p) { return _mm256_maskload_ps(p, mask); }
    LSMR_TARGET static Vector load_all(const float* p) { return _mm256_loadu_ps(p); }
    LSMR_TARGET static void store_all(float* p, Vector v) { _mm256_storeu_ps(p, v); }
    LSMR_TARGET static Vector add_where(__m256i mask, Vector a, Vector b, Vector c) {
        return _mm256_blendv_ps(c, _mm256_fmadd_ps(a, b, c), _mm256_castsi256_ps(mask));
    }
    LSMR_TARGET static float sum(Vector v) {
        const __m128 fours = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        const __m128 twos = _mm_add_ps(fours, _mm_movehl_ps(fours, fours));
        return _mm_cvtss_f32(_mm_add_ss(twos, _mm_movehdup_ps(twos)));
    }
    LSMR_TARGET static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
    LSMR_TARGET static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
    LSMR_TARGET static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
    LSMR_TARGET static Vector sums(const Vector (&v)[8]) {
        const Vector v0123 = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
        const Vector v4567 = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
        return _mm256_add_ps(_mm256_permute2f128_ps(v0123, v4567, 0x20), _mm256_permute2f128_ps(v0123, v4567, 0x31));
    }

  private:
    LSMR_TARGET static __m256i load_columns(__m256i mask, const std::int32_t* p) { return _mm256_maskload_epi32(p, mask); }
    LSMR_TARGET static __m256i load_columns(__m256i, const std::uint16_t* p) {
        return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
};

#include "operator/cpu/csr_rows_simd.inl"

template <class T, class V>
[[gnu::flatten]] LSMR_TARGET void tile(const std::uint32_t* places, const V* values, std::int64_t count, const T* x, T* sums) {
    add_tile<T, V>(places, values, count, x, sums);
}
template <class T>
[[gnu::flatten]] LSMR_TARGET double finish(std::int64_t count, T a, const T* sums, T b, T* y) {
    return finish_sums(count, a, sums, b, y);
}

template <class T, class V, class C>
[[gnu::flatten]] LSMR_TARGET double both(const RowBlock<T, V, C>& block, T a, Pair<T>* pairs, T b, T* y) {
    return rows_and_adjoint(block, a, pairs, b, y);
}
template <class T, class V, class C>
[[gnu::flatten]] LSMR_TARGET void adjoint(const RowBlock<T, V, C>& block, const T* y, Pair<T>* pairs) {
    add_adjoint(block, y, pairs);
}

}  // namespace

template <class T, class V, class C>
OnePassKernels<T, V, C> one_pass_avx2() {
    return {both<T, V, C>, adjoint<T, V, C>};
}

template <class T, class V, class C>
double rows_avx2(const RowBlock<T, V, C>& block, T a, const T* x, T b, T* y) {
    return rows_simd<Lanes<T>>(block, a, x, b, y);
}

template <class T, class V, class C>
double sliced_avx2(const SlicedBlock<T, V, C>& block, T a, const T* x, T b, T* y) {
    return sliced_simd<Lanes<T>>(block, a, x, b, y);
}

template <class T, class V>
GroupKernels<T, V> group_avx2() {
    return {groups_simd<Lanes<T>, true, T, V, T>,
            [](const GroupBlock<V>& block, const T* y, T* z) { groups_simd<Lanes<T>, false>(block, T(0), static_cast<const T*>(nullptr), T(0), y, z); },
            Lanes<T>::kLanes};
}
#define LSMR_INSTANTIATE(T, V) template GroupKernels<T, V> group_avx2();
LSMR_TILE_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

template <class T, class V>
TileKernels<T, V> tile_avx2() {
    return {tile<T, V>, finish<T>};
}
#define LSMR_INSTANTIATE(T, V) template TileKernels<T, V> tile_avx2();
LSMR_TILE_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

template <class T>
void slice_avx2(const PaddedSlice<T>& slice, const T* x, T* sums) {
    slice_simd<Lanes<T>>(slice, x, sums);
}
template void slice_avx2(const PaddedSlice<double>&, const double*, double*);
template void slice_avx2(const PaddedSlice<float>&, const float*, float*);

#define LSMR_INSTANTIATE(T, V, C)                                                 \
    template double rows_avx2(const RowBlock<T, V, C>&, T, const T*, T, T*);      \
    template double sliced_avx2(const SlicedBlock<T, V, C>&, T, const T*, T, T*); \
    template OnePassKernels<T, V, C> one_pass_avx2();
LSMR_ROW_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cpu
