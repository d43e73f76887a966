// Rows in plain C++.
#include "operator/cpu/block_sum.hpp"
#include "operator/cpu/csr_rows.hpp"

namespace lsmr::cpu {

template <class T, class V, class C>
double rows_portable(const RowBlock<T, V, C>& block, T a, const T* x, T b, T* y) {
    BlockSum squares;
    for (std::int64_t i = 0; i < block.rows; ++i) {
        const std::int64_t k = block.offsets[i] - block.offsets[0];
        const T product = a * row_product(block.values + k, block.columns + k, block.offsets[i + 1] - block.offsets[i], x);
        y[i] = b != T(0) ? product + b * y[i] : product;
        squares.add(static_cast<double>(y[i]) * static_cast<double>(y[i]));
    }
    return squares.value();
}

template <class T, class V, class C>
double sliced_portable(const SlicedBlock<T, V, C>& block, T a, const T* x, T b, T* y) {
    BlockSum squares;
    const std::uint16_t* order = block.order;
    for (std::int64_t row = 0, s = 0; row < block.rows; row += kSlicedRows, ++s, order += kSlicedRows) {
        T* window = y + row / kWindowRows * kWindowRows;
        for (std::int64_t i = 0; i < std::min(kSlicedRows, block.rows - row); ++i) {
            T sum = 0;
            const std::int64_t end = block.offsets[s + 1] - block.offsets[0];
            for (std::int64_t k = block.offsets[s] - block.offsets[0]; k < end;) {
                T piece = 0;
                for (const std::int64_t piece_end = std::min(end, k + kRowSteps * kSlicedRows); k < piece_end; k += kSlicedRows) {
                    if (block.columns[k + i] != kNoColumn<C>) piece += block.values[k + i] * x[block.columns[k + i]];
                }
                sum += piece;
            }
            T& value = window[order[i]];
            value = b != T(0) ? a * sum + b * value : a * sum;
            squares.add(static_cast<double>(value) * static_cast<double>(value));
        }
    }
    return squares.value();
}

template <class T, class V, class C>
OnePassKernels<T, V, C> one_pass_portable() {
    return {rows_and_adjoint<T, V, C>, add_adjoint<T, V, C>};
}

namespace {

template <bool kProduct, class T, class V, class Y>
double groups(const GroupBlock<V>& block, T a, const T* x, T b, Y* y, T* z) {
    const std::uint32_t* words = block.words;
    const V* values = block.values;
    double squares = 0;
    for (const Y* const end = y + block.rows; y < end;) {
        const Group group = group_of(*words++);
        for (std::int64_t r = 0; r < group.rows; ++r, ++y, values += group.length) {
            if constexpr (kProduct) {
                T sum = 0;
                const V* from = values;
                for (std::int64_t p = 0; p < group.runs;) {  // by pieces: rounding grows with their length and their number
                    T piece = 0;
                    for (const std::int64_t piece_end = std::min(group.runs, p + kRowSteps); p < piece_end; ++p) {
                        const T* const at = x + column_of_run(words[p]);
                        T run = 0;
                        for (std::int64_t k = 0; k < length_of_run(words[p]); ++k) run += static_cast<T>(*from++) * at[k];
                        piece += run;
                    }
                    sum += piece;
                }
                squares += finish_row(a * sum, b, y);
            }
            const V* from = values;
            for (std::int64_t p = 0; p < group.runs; ++p) {
                T* const at = z + column_of_run(words[p]);
                for (std::int64_t k = 0; k < length_of_run(words[p]); ++k) at[k] += static_cast<T>(*from++) * *y;
            }
        }
        words += group.runs;
    }
    return squares;
}

}  // namespace

template <class T, class V>
GroupKernels<T, V> group_portable() {
    return {groups<true, T, V, T>,
            [](const GroupBlock<V>& block, const T* y, T* z) { groups<false>(block, T(0), static_cast<const T*>(nullptr), T(0), y, z); }, 8};
}
#define LSMR_INSTANTIATE(T, V) template GroupKernels<T, V> group_portable();
LSMR_TILE_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

template <class T, class V>
TileKernels<T, V> tile_portable() {
    return {add_tile<T, V>, finish_sums<T>};
}
#define LSMR_INSTANTIATE(T, V) template TileKernels<T, V> tile_portable();
LSMR_TILE_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

template <class T>
void slice_portable(const PaddedSlice<T>& slice, const T* x, T* sums) {
    for (std::int64_t i = 0; i < kSliceRows; ++i) sums[i] = 0;
    if (slice.width > kRowSteps) {
        const std::int64_t middle = half_of_row(slice.width, 1);
        T right[kSliceRows];
        slice_portable(slice.columns_from(0, middle), x, sums);
        slice_portable(slice.columns_from(middle, slice.width), x, right);
        for (std::int64_t i = 0; i < kSliceRows; ++i) sums[i] += right[i];
        return;
    }
    for (std::int64_t k = 0; k < slice.width; ++k) {
        const T* values = slice.values + k * slice.step;
        const std::int32_t* columns = slice.columns + k * slice.step;
        for (std::int64_t i = 0; i < kSliceRows; ++i) {
            if (columns[i] >= 0) sums[i] += values[i] * x[columns[i]];
        }
    }
}
template void slice_portable(const PaddedSlice<double>&, const double*, double*);
template void slice_portable(const PaddedSlice<float>&, const float*, float*);

#define LSMR_INSTANTIATE(T, V, C)                                                     \
    template double rows_portable(const RowBlock<T, V, C>&, T, const T*, T, T*);      \
    template double sliced_portable(const SlicedBlock<T, V, C>&, T, const T*, T, T*); \
    template OnePassKernels<T, V, C> one_pass_portable();
LSMR_ROW_TYPES(LSMR_INSTANTIATE)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cpu
