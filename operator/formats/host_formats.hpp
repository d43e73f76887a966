// The formats in host memory: SELL-32-sigma, ELL, COO, and HYB, which is the two together. Each is made from CSR, with values 2^exponent A rounded to T.
#pragma once

#include <cstdint>

#include "memory/host_buffer.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/formats/row_plans.hpp"

namespace lsmr {

// A negative column is padding, with the value 0.
template <class T>
struct SellMatrix {
    SellPlan plan;
    HostBuffer<std::int32_t> columns;
    HostBuffer<T> values;
    std::int64_t bytes() const {
        return columns.bytes() + values.bytes() + static_cast<std::int64_t>(4 * plan.offsets.size()) + plan.order.bytes();
    }
};
template <class T>
SellMatrix<T> make_sell(const CsrMatrix& a, int exponent, int sigma);

// Entry k of row i is number k stride + i; padding as above.
template <class T>
struct EllMatrix {
    std::int64_t rows = 0;
    std::int64_t stride = 0;  // rows, up to a multiple of 32
    std::int64_t width = 0;
    HostBuffer<std::int32_t> columns;
    HostBuffer<T> values;
    std::int64_t bytes() const { return columns.bytes() + values.bytes(); }
};
// Of each row the first `width` entries.
template <class T>
EllMatrix<T> make_ell(const CsrMatrix& a, int exponent, std::int64_t width);

// In the order of the rows, and of the columns within a row.
template <class T>
struct CooMatrix {
    HostBuffer<std::int32_t> rows;
    HostBuffer<std::int32_t> columns;
    HostBuffer<T> values;
    std::int64_t bytes() const { return rows.bytes() + columns.bytes() + values.bytes(); }
};
// Of each row the entries beyond the first `width`.
template <class T>
CooMatrix<T> make_coo(const CsrMatrix& a, int exponent, std::int64_t width);

}  // namespace lsmr
