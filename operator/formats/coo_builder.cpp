#include "operator/formats/coo_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory/error.hpp"

namespace lsmr {
namespace {

// a + b, both sorted by columns within their rows.
CsrMatrix sum_of(const CsrMatrix& a, const CsrMatrix& b) {
    // f(column, value) for every place of row i that has an entry.
    const auto walk = [&](std::int64_t i, const auto& f) {
        std::int64_t p = a.offsets()[i], q = b.offsets()[i];
        const std::int64_t p_end = a.offsets()[i + 1], q_end = b.offsets()[i + 1];
        while (p < p_end || q < q_end) {
            const bool from_a = q == q_end || (p < p_end && a.columns()[p] <= b.columns()[q]);
            const bool from_b = p == p_end || (q < q_end && b.columns()[q] <= a.columns()[p]);
            f(from_a ? a.columns()[p] : b.columns()[q], from_a && from_b ? a.values()[p] + b.values()[q] : from_a ? a.values()[p] : b.values()[q]);
            p += from_a;
            q += from_b;
        }
    };
    HostBuffer<std::int64_t> offsets(a.rows() + 1);
    offsets[0] = 0;
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        offsets[i + 1] = offsets[i];
        walk(i, [&](std::int32_t, double) { ++offsets[i + 1]; });
    }
    HostBuffer<std::int32_t> columns(offsets[a.rows()]);
    HostBuffer<double> values(offsets[a.rows()]);
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        std::int64_t to = offsets[i];
        walk(i, [&](std::int32_t column, double value) {
            columns[to] = column;
            values[to] = value;
            ++to;
        });
    }
    return CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(columns), std::move(values));
}

}  // namespace

CooBuilder::CooBuilder(std::int64_t rows, std::int64_t cols) : merged_(std::make_shared<const CsrMatrix>(CsrMatrix::from_coo(rows, cols, {}, {}, {}))) {}
CooBuilder::CooBuilder(std::shared_ptr<const CsrMatrix> a) : merged_(std::move(a)) { LSMR_EXPECT(merged_ != nullptr); }

void CooBuilder::append(std::span<const std::int64_t> row_indices, std::span<const std::int64_t> column_indices, std::span<const double> values) {
    if (row_indices.size() != values.size() || column_indices.size() != values.size()) {
        throw InputError(fmt::format("append: {} rows, {} columns and {} values were given; expected as many of each", row_indices.size(),
                                     column_indices.size(), values.size()));
    }
    for (std::size_t k = 0; k < values.size(); ++k) {
        if (row_indices[k] < 0 || row_indices[k] >= merged_->rows() || column_indices[k] < 0 || column_indices[k] >= merged_->cols()) {
            throw InputError(fmt::format("append: entry {} is at ({}, {}); expected a place in a matrix of {} x {}, counted from 0", k, row_indices[k],
                                         column_indices[k], merged_->rows(), merged_->cols()));
        }
        if (!std::isfinite(values[k])) throw InputError(fmt::format("append: entry {} is {}; expected a finite value", k, values[k]));
    }
    if (values.empty()) return;
    rows_.insert(rows_.end(), row_indices.begin(), row_indices.end());
    columns_.insert(columns_.end(), column_indices.begin(), column_indices.end());
    values_.insert(values_.end(), values.begin(), values.end());
    ++version_;
}

std::shared_ptr<const CsrMatrix> CooBuilder::csr() {
    if (values_.empty()) return merged_;
    const CsrMatrix appended = CsrMatrix::from_coo(merged_->rows(), merged_->cols(), rows_, columns_, values_);
    merged_ = std::make_shared<const CsrMatrix>(sum_of(*merged_, appended));
    rows_.clear();
    columns_.clear();
    values_.clear();
    return merged_;
}

}  // namespace lsmr
