// Residuals recomputed from the host's fp64 matrix: for solves in lower precision, whose own operator is not exact.
#pragma once

#include "memory/host_buffer.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/cpu/csr_kernels.hpp"

namespace lsmr {

class HostAudit {
  public:
    explicit HostAudit(const CsrMatrix& a)
        : view_{a.rows(), a.cols(), a.offsets(), a.columns(), a.values()}, chunks_(cpu::balanced_chunks(a.rows(), a.offsets())) {}

    // r <- r - scale A x
    void subtract_product(double scale, const double* x, double* r) const {
        cpu::csr_apply(view_, chunks_, -scale, x, 1.0, r, nullptr);
    }
    // g <- scale A^T r + beta g
    void adjoint(double scale, const double* r, double beta, double* g) {
        if (scratch_.empty()) scratch_ = HostBuffer<double>(cpu::kPanels * view_.cols);
        cpu::csr_apply_adjoint(view_, scale, r, beta, g, scratch_.data(), nullptr);
    }

  private:
    cpu::CsrView<double> view_;
    std::vector<std::int64_t> chunks_;
    HostBuffer<double> scratch_;
};

}  // namespace lsmr
