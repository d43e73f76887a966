#include "operator/formats/host_formats.hpp"

#include <algorithm>
#include <cmath>

namespace lsmr {
namespace {

template <class T>
T stored_value(double value, int exponent) {
    return static_cast<T>(exponent == 0 ? value : std::ldexp(value, exponent));
}

// Row `row` (none where it is negative) into the places first, first + step, ... of which there are `width`.
template <class T>
void fill_row(const CsrMatrix& a, int exponent, std::int64_t row, std::int64_t first, std::int64_t step, std::int64_t width, std::int32_t* columns, T* values) {
    const std::int64_t begin = row < 0 ? 0 : a.offsets()[row];
    const std::int64_t length = row < 0 ? 0 : std::min(a.offsets()[row + 1] - begin, width);
    for (std::int64_t k = 0; k < width; ++k) {
        columns[first + k * step] = k < length ? a.columns()[begin + k] : -1;
        values[first + k * step] = k < length ? stored_value<T>(a.values()[begin + k], exponent) : T(0);
    }
}

}  // namespace

template <class T>
SellMatrix<T> make_sell(const CsrMatrix& a, int exponent, int sigma) {
    SellMatrix<T> sell;
    sell.plan = make_sell_plan(a.rows(), a.offsets(), sigma);
    sell.columns = HostBuffer<std::int32_t>(sell.plan.places());
    sell.values = HostBuffer<T>(sell.plan.places());
#pragma omp parallel for schedule(static)
    for (std::int64_t s = 0; s < sell.plan.slices(); ++s) {
        const std::int64_t begin = sell.plan.offsets[static_cast<std::size_t>(s)];
        const std::int64_t width = sell.plan.offsets[static_cast<std::size_t>(s) + 1] - begin;
        for (std::int64_t i = 0; i < kSliceRows; ++i) {
            const std::int64_t place = s * kSliceRows + i;
            const std::int64_t row = place < a.rows() ? sell.plan.row_of(place) : -1;
            fill_row(a, exponent, row, begin * kSliceRows + i, kSliceRows, width, sell.columns.data(), sell.values.data());
        }
    }
    return sell;
}

template <class T>
EllMatrix<T> make_ell(const CsrMatrix& a, int exponent, std::int64_t width) {
    EllMatrix<T> ell;
    ell.rows = a.rows();
    ell.stride = kSliceRows * slices_of(a.rows());
    ell.width = width;
    ell.columns = HostBuffer<std::int32_t>(ell.stride * width);
    ell.values = HostBuffer<T>(ell.stride * width);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < ell.stride; ++i) {
        fill_row(a, exponent, i < a.rows() ? i : -1, i, ell.stride, width, ell.columns.data(), ell.values.data());
    }
    return ell;
}

template <class T>
CooMatrix<T> make_coo(const CsrMatrix& a, int exponent, std::int64_t width) {
    const std::vector<std::int64_t> places = rest_offsets(a.rows(), a.offsets(), width);
    CooMatrix<T> coo;
    coo.rows = HostBuffer<std::int32_t>(places.back());
    coo.columns = HostBuffer<std::int32_t>(places.back());
    coo.values = HostBuffer<T>(places.back());
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        const std::int64_t first = places[static_cast<std::size_t>(i)];
        const std::int64_t count = places[static_cast<std::size_t>(i) + 1] - first;
        for (std::int64_t k = 0; k < count; ++k) {
            const std::int64_t from = a.offsets()[i] + width + k;
            coo.rows[first + k] = static_cast<std::int32_t>(i);
            coo.columns[first + k] = a.columns()[from];
            coo.values[first + k] = stored_value<T>(a.values()[from], exponent);
        }
    }
    return coo;
}

#define LSMR_INSTANTIATE(T)                                                \
    template SellMatrix<T> make_sell(const CsrMatrix&, int, int);          \
    template EllMatrix<T> make_ell(const CsrMatrix&, int, std::int64_t);   \
    template CooMatrix<T> make_coo(const CsrMatrix&, int, std::int64_t);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr
