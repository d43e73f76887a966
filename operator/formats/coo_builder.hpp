// A matrix that grows between products: entries are appended in any order, and merged into CSR when it is used again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "operator/csr_matrix.hpp"

namespace lsmr {

// builder.append(...); op->update(builder.csr()); products with op; and again.
class CooBuilder {
  public:
    // Without entries. Throws InputError for sizes that CsrMatrix refuses.
    CooBuilder(std::int64_t rows, std::int64_t cols);
    explicit CooBuilder(std::shared_ptr<const CsrMatrix> a);

    // Appends (row_indices[k], column_indices[k], values[k]), zero-based; what stands at that place already is added to, in the order of the calls.
    // All of them or, with an InputError that names the first wrong one, none.
    void append(std::span<const std::int64_t> row_indices, std::span<const std::int64_t> column_indices, std::span<const double> values);
    // Raised by every append that had entries.
    std::int64_t version() const { return version_; }
    // Entries that no csr() has merged yet.
    std::int64_t pending() const { return static_cast<std::int64_t>(values_.size()); }
    // The matrix as it is now; the same object until the next append. One pass over the matrix, where entries are pending.
    std::shared_ptr<const CsrMatrix> csr();

  private:
    std::shared_ptr<const CsrMatrix> merged_;
    std::vector<std::int64_t> rows_;
    std::vector<std::int64_t> columns_;
    std::vector<double> values_;
    std::int64_t version_ = 0;
};

}  // namespace lsmr
