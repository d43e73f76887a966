// Products with padded rows, a thread a row: the warp reads a column of its slice of 32 rows in one go, values and columns streamed, several columns
// at once; neighbouring threads gather neighbouring x of neighbouring rows. No shared memory, so all of it is L1 for the gathers.
//
// Bytes: (sizeof(V) + 4 or 2) places + 4 a slice (12 with 16-bit columns) + 2 rows where they are sorted + x once + y twice.
#include <algorithm>
#include <type_traits>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/padded_kernels.hpp"
#include "operator/cuda/stored_values.cuh"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Adds kBatch columns, or, where !kAll, the first `left` of them; the same for the whole warp.
template <int kBatch, bool kAll, class V, class X, class C>
__device__ X add_columns(X sum, const V* __restrict__ values, const C* __restrict__ columns, std::int64_t step, int left, const X* x) {
    using Bits = std::make_unsigned_t<C>;
    constexpr std::uint32_t kPadding = static_cast<Bits>(-1);
    V value[kBatch];
    std::uint32_t column[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
        column[i] = kPadding;
        if (kAll || i < left) {
            column[i] = static_cast<Bits>(streamed(columns + i * step));
            value[i] = streamed(values + i * step);
        }
    }
    X products[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
        // Padding adds nothing: no product with a zero, which a non-finite x would turn into NaN.
        products[i] = column[i] != kPadding ? widened<X>(value[i]) * x[column[i]] : X(0);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) sum += products[i];
    return sum;
}

// Adds `count` columns, at most kMost: a text for each number, whose loads have no conditions.
template <int kMost, class V, class X, class C>
__device__ X add_few_columns(X sum, const V* __restrict__ values, const C* __restrict__ columns, std::int64_t step, int count, const X* x) {
    if constexpr (kMost == 0) return sum;
    else if (count == kMost) return add_columns<kMost, true>(sum, values, columns, step, kMost, x);
    else return add_few_columns<kMost - 1>(sum, values, columns, step, count, x);
}

// A row: `width` places, `step` apart. Conditional loads are best for 32-bit columns (bench-short in fp32 0.052 ms against 0.055); with 16-bit ones
// they nearly double the time of its A^T in fp32 (0.095 ms against 0.053).
template <int kBatch, class V, class X, class C>
__device__ X dot(const V* __restrict__ values, const C* __restrict__ columns, std::int64_t step, std::int32_t width, const X* x) {
    constexpr bool kConditional = sizeof(C) == 4;
    X sum = 0;
    if (kConditional && width <= kBatch) return add_columns<kBatch, false>(sum, values, columns, step, width, x);
#pragma unroll 1  // registers are for the batch
    for (; width >= (kConditional ? 1 : kBatch); width -= kBatch) {
        sum = add_columns<kBatch, !kConditional>(sum, values, columns, step, width, x);
        values += kBatch * step;
        columns += kBatch * step;
    }
    if constexpr (!kConditional) sum = add_few_columns<kBatch - 1>(sum, values, columns, step, width, x);
    return sum;
}

// What a warp knows of a slice before it comes to it.
struct SellSlice {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t column_place = 0;
    std::int32_t column_base = -1;
    std::int32_t row = -1;  // of this thread; -1: none
};

// kNarrow: some slices have 16-bit columns.
template <class V, bool kNarrow>
struct SellRows {
    SellDevice<V> matrix;
    using Slice = SellSlice;
    __device__ std::int32_t slices() const { return static_cast<std::int32_t>(matrix.slices); }
    // Rows are below 2^31, and so is the place of the last one; those of padding may be negative as 32 bits.
    __device__ std::int32_t row_of(std::int32_t s, int lane) const {
        const std::uint32_t place = static_cast<std::uint32_t>(s) * 32 + static_cast<std::uint32_t>(lane);
        if (place >= static_cast<std::uint32_t>(matrix.rows)) return -1;
        if (matrix.order == nullptr) return static_cast<std::int32_t>(place);
        return static_cast<std::int32_t>((place & ~static_cast<std::uint32_t>(matrix.sigma - 1)) + __ldg(matrix.order + place));
    }
    __device__ Slice slice(std::int32_t s, int lane) const {
        Slice slice;
        slice.begin = __ldg(matrix.offsets + s);
        slice.end = __ldg(matrix.offsets + s + 1);
        if constexpr (kNarrow) {
            slice.column_place = __ldg(matrix.column_places + s);
            slice.column_base = __ldg(matrix.column_bases + s);
        }
        slice.row = row_of(s, lane);
        return slice;
    }
    template <int kBatch, class X>
    __device__ X sum(const Slice& slice, int lane, const X* x) const {
        const auto width = static_cast<std::int32_t>(slice.end - slice.begin);
        const V* const values = matrix.values + std::int64_t{32} * slice.begin + lane;
        if constexpr (kNarrow) {
            const std::byte* const columns = matrix.columns + std::int64_t{64} * slice.column_place;
            if (slice.column_base >= 0) {
                return dot<kBatch>(values, reinterpret_cast<const std::uint16_t*>(columns) + lane, 32, width, x + slice.column_base);
            }
            return dot<kBatch>(values, reinterpret_cast<const std::int32_t*>(columns) + lane, 32, width, x);
        } else {
            return dot<kBatch>(values, reinterpret_cast<const std::int32_t*>(matrix.columns) + std::int64_t{32} * slice.begin + lane, 32, width, x);
        }
    }
};

template <class V, class X>
struct EllRows {
    EllDevice<V> matrix;
    const X* rest;
    struct Slice {
        std::int32_t row = -1;
        std::uint32_t place = 0;
        bool has_rest = false;
    };
    __device__ std::int32_t slices() const { return static_cast<std::int32_t>(matrix.stride / 32); }
    __device__ Slice slice(std::int32_t s, int lane) const {
        const std::uint32_t place = static_cast<std::uint32_t>(s) * 32 + static_cast<std::uint32_t>(lane);
        return {place < static_cast<std::uint32_t>(matrix.rows) ? static_cast<std::int32_t>(place) : -1, place,
                matrix.with_rest != nullptr && (__ldg(matrix.with_rest + s) >> lane & 1) != 0};
    }
    template <int kBatch>
    __device__ X sum(const Slice& slice, int, const X* x) const {
        // Asked for before the gathers.
        const X more = slice.has_rest ? rest[slice.place] : X(0);
        const X sum = dot<kBatch>(matrix.values + slice.place, matrix.columns + slice.place, matrix.stride, static_cast<std::int32_t>(matrix.width), x);
        return slice.has_rest ? sum + more : sum;
    }
};

template <class Rows, class X, int kBatch, int kMinBlocks>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    padded_rows_kernel(Rows rows, const X* a_pointer, const X* x, const X* b_pointer, X* y, double* partials) {
    __shared__ double scratch[32];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto stride = static_cast<std::int32_t>(gridDim.x) * kWarps;
    auto s = static_cast<std::int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
    double squares = 0;
    typename Rows::Slice next;
    if (s < rows.slices()) next = rows.slice(s, lane);
    await_previous();
    admit_next();
    const X a = *a_pointer;
    const X b = *b_pointer;
    for (; s < rows.slices(); s += stride) {
        const typename Rows::Slice slice = next;
        const X old = b != X(0) && slice.row >= 0 ? y[slice.row] : X(0);
        if (s + stride < rows.slices()) next = rows.slice(s + stride, lane);
        const X sum = rows.template sum<kBatch>(slice, lane, x);
        if (slice.row < 0) continue;
        const X value = b != X(0) ? a * sum + b * old : a * sum;
        y[slice.row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// The tuning: columns that a thread asks for at once, blocks that registers must leave room for. 4 blocks, on an H200's 132 multiprocessors, are 3.9
// waves of 2,048; with 5 the fourth wave is nearly empty, which cost fp32 8 to 12 %.
template <class X, class Rows>
void launch(const Rows& rows, std::int32_t blocks, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials, cudaStream_t stream) {
    launch_dependent(padded_rows_kernel<Rows, X, 6, 4>, blocks, kThreads, 0, stream, rows, a.narrow, x, b.narrow, y, partials);
}

// What fills the arrays: a warp a slice.

unsigned fill_blocks(std::int64_t slices) { return static_cast<unsigned>(std::clamp<std::int64_t>((slices + kWarps - 1) / kWarps, 1, 1 << 20)); }

template <class V, class T, class Offset>
__global__ void fill_sell_kernel(SellRows<V, false> rows, const Offset* offsets, const std::int32_t* columns, const T* values, V* to_values,
                                 std::byte* to_columns) {
    const SellDevice<V>& layout = rows.matrix;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (std::int64_t s = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; s < layout.slices; s += std::int64_t{gridDim.x} * kWarps) {
        const std::int64_t row = rows.row_of(static_cast<std::int32_t>(s), lane);
        const std::int64_t begin = row >= 0 ? static_cast<std::int64_t>(offsets[row]) : 0;
        const std::int64_t length = row >= 0 ? static_cast<std::int64_t>(offsets[row + 1]) - begin : 0;
        const std::int64_t first = std::int64_t{32} * layout.offsets[s] + lane;
        const std::int64_t width = static_cast<std::int64_t>(layout.offsets[s + 1]) - layout.offsets[s];
        const bool placed = layout.column_places != nullptr;
        const std::int32_t base = placed ? layout.column_bases[s] : -1;
        std::byte* const slice_columns = to_columns + std::int64_t{64} * (placed ? std::int64_t{layout.column_places[s]} : std::int64_t{2} * layout.offsets[s]);
        for (std::int64_t k = 0; k < width; ++k) {
            const bool exists = k < length;
            const std::int32_t column = exists ? columns[begin + k] : -1;
            to_values[first + 32 * k] = exists ? narrowed<V>(values[begin + k]) : V{};
            if (base >= 0) reinterpret_cast<std::uint16_t*>(slice_columns)[32 * k + lane] = static_cast<std::uint16_t>(exists ? column - base : -1);
            else reinterpret_cast<std::int32_t*>(slice_columns)[32 * k + lane] = column;
        }
    }
}

template <class V, class T, class Offset>
__global__ void fill_ell_kernel(EllDevice<V> layout, const Offset* offsets, const std::int32_t* columns, const T* values, V* to_values,
                                std::int32_t* to_columns) {
    for (std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; row < layout.stride; row += std::int64_t{gridDim.x} * kThreads) {
        const std::int64_t begin = row < layout.rows ? static_cast<std::int64_t>(offsets[row]) : 0;
        const std::int64_t length = row < layout.rows ? static_cast<std::int64_t>(offsets[row + 1]) - begin : 0;
        for (std::int64_t k = 0; k < layout.width; ++k) {
            const bool exists = k < length;
            to_values[k * layout.stride + row] = exists ? narrowed<V>(values[begin + k]) : V{};
            to_columns[k * layout.stride + row] = exists ? columns[begin + k] : -1;
        }
    }
}

template <class V, class Offset>
__global__ void slice_spans_kernel(SellRows<V, false> rows, const Offset* offsets, const std::int32_t* columns, ColumnSpan* spans) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (std::int64_t s = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; s < rows.matrix.slices; s += std::int64_t{gridDim.x} * kWarps) {
        const std::int64_t row = rows.row_of(static_cast<std::int32_t>(s), lane);
        std::int32_t low = INT32_MAX, high = -1;
        if (row >= 0) {
            for (Offset k = offsets[row]; k < offsets[row + 1]; ++k) {
                low = min(low, columns[k]);
                high = max(high, columns[k]);
            }
        }
        low = __reduce_min_sync(0xffffffffu, low);
        high = __reduce_max_sync(0xffffffffu, high);
        if (lane == 0) spans[s] = {low, high};
    }
}

}  // namespace

std::int32_t padded_blocks(std::int64_t slices, std::int32_t most) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>((slices + kWarps - 1) / kWarps, 1, most));
}

template <class V, class X>
void launch_sell(std::int32_t blocks, const SellDevice<V>& matrix, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials,
                 cudaStream_t stream) {
    if (matrix.column_places != nullptr) launch<X>(SellRows<V, true>{matrix}, blocks, a, x, b, y, partials, stream);
    else launch<X>(SellRows<V, false>{matrix}, blocks, a, x, b, y, partials, stream);
}

template <class V, class X>
void launch_ell(std::int32_t blocks, const EllDevice<V>& matrix, const X* rest, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials,
                cudaStream_t stream) {
    launch<X>(EllRows<V, X>{matrix, rest}, blocks, a, x, b, y, partials, stream);
}

template <class V, class T, class Offset>
void launch_fill_sell(const SellDevice<V>& layout, const Offset* offsets, const std::int32_t* columns, const T* values, V* to_values, std::byte* to_columns,
                      cudaStream_t stream) {
    if (layout.slices == 0) return;
    fill_sell_kernel<<<fill_blocks(layout.slices), kThreads, 0, stream>>>(SellRows<V, false>{layout}, offsets, columns, values, to_values, to_columns);
    LSMR_CHECK(cudaGetLastError());
}

template <class V, class T, class Offset>
void launch_fill_ell(const EllDevice<V>& layout, const Offset* offsets, const std::int32_t* columns, const T* values, V* to_values, std::int32_t* to_columns,
                     cudaStream_t stream) {
    if (layout.stride == 0 || layout.width == 0) return;
    fill_ell_kernel<<<fill_blocks(layout.stride / 32), kThreads, 0, stream>>>(layout, offsets, columns, values, to_values, to_columns);
    LSMR_CHECK(cudaGetLastError());
}

template <class V, class Offset>
void launch_slice_spans(const SellDevice<V>& layout, const Offset* offsets, const std::int32_t* columns, ColumnSpan* spans, cudaStream_t stream) {
    if (layout.slices == 0) return;
    slice_spans_kernel<<<fill_blocks(layout.slices), kThreads, 0, stream>>>(SellRows<V, false>{layout}, offsets, columns, spans);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE_FILL(V, T, Offset)                                                                                                                \
    template void launch_fill_sell(const SellDevice<V>&, const Offset*, const std::int32_t*, const T*, V*, std::byte*, cudaStream_t);                      \
    template void launch_fill_ell(const EllDevice<V>&, const Offset*, const std::int32_t*, const T*, V*, std::int32_t*, cudaStream_t);
#define LSMR_INSTANTIATE(V, X)                                                                                                                             \
    template void launch_sell(std::int32_t, const SellDevice<V>&, Scalar<X>, const X*, Scalar<X>, X*, double*, cudaStream_t);                      \
    template void launch_ell(std::int32_t, const EllDevice<V>&, const X*, Scalar<X>, const X*, Scalar<X>, X*, double*, cudaStream_t);                                \
    LSMR_INSTANTIATE_FILL(V, X, std::int32_t)                                                                                                              \
    LSMR_INSTANTIATE_FILL(V, X, std::int64_t)
LSMR_INSTANTIATE(double, double)
LSMR_INSTANTIATE(float, double)
LSMR_INSTANTIATE(Bf16, double)
LSMR_INSTANTIATE(float, float)
LSMR_INSTANTIATE(Bf16, float)
#undef LSMR_INSTANTIATE
#undef LSMR_INSTANTIATE_FILL
#define LSMR_INSTANTIATE(V, Offset) \
    template void launch_slice_spans(const SellDevice<V>&, const Offset*, const std::int32_t*, ColumnSpan*, cudaStream_t);
LSMR_INSTANTIATE(double, std::int32_t)
LSMR_INSTANTIATE(double, std::int64_t)
LSMR_INSTANTIATE(float, std::int32_t)
LSMR_INSTANTIATE(float, std::int64_t)
LSMR_INSTANTIATE(Bf16, std::int32_t)
LSMR_INSTANTIATE(Bf16, std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
