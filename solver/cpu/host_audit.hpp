// Residuals recomputed from the host's fp64 matrix: for solves in lower precision, whose own operator is not exact.
#pragma once

#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/cpu/csr_kernels.hpp"

namespace lsmr {

class HostAudit {
  public:
    // Of [a; below]; below null: of a.
    explicit HostAudit(const CsrMatrix& a, const CsrMatrix* below = nullptr) : parts_{Part(a)} {
        if (below != nullptr) parts_.emplace_back(*below);
    }

    // r <- r - scale A x
    void subtract_product(double scale, const double* x, double* r) const {
        for (const Part& part : parts_) {
            cpu::csr_apply(part.view, part.chunks, -scale, x, 1.0, r, nullptr);
            r += part.view.rows;
        }
    }
    // g <- scale A^T r + beta g
    void adjoint(double scale, const double* r, double beta, double* g) {
        if (scratch_.empty()) scratch_ = HostBuffer<cpu::Compensated<double>>(cpu::kPanels * parts_[0].view.cols);
        for (const Part& part : parts_) {
            cpu::csr_apply_adjoint(part.view, scale, r, beta, g, scratch_.data(), nullptr);
            r += part.view.rows;
            beta = 1;
        }
    }

  private:
    struct Part {
        explicit Part(const CsrMatrix& a)
            : view{a.rows(), a.cols(), a.offsets(), a.columns(), a.values()}, chunks(cpu::balanced_chunks(a.rows(), a.offsets())) {}
        cpu::CsrView<double> view;
        std::vector<std::int64_t> chunks;
    };
    std::vector<Part> parts_;
    HostBuffer<cpu::Compensated<double>> scratch_;
};

}  // namespace lsmr
