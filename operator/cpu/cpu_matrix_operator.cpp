// The matrix operator in host memory.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "memory/error.hpp"
#include "operator/cpu/csr_kernels.hpp"
#include "operator/matrix_operator.hpp"

namespace lsmr {
namespace {

// One stored orientation: arrays of its own, or those of the host matrix.
template <class T>
struct Orientation {
    HostBuffer<T> own_values;
    CsrMatrix own_matrix;
    cpu::CsrView<T> view;
    std::vector<std::int64_t> chunks;

    void set(const CsrMatrix& a, int exponent) {
        view = {a.rows(), a.cols(), a.offsets(), a.columns(), nullptr};
        if constexpr (std::is_same_v<T, double>) {
            if (exponent == 0) view.values = a.values();
        }
        if (view.values == nullptr) {
            own_values = HostBuffer<T>(a.nnz());
#pragma omp parallel for schedule(static)
            for (std::int64_t k = 0; k < a.nnz(); ++k) own_values[k] = static_cast<T>(std::ldexp(a.values()[k], exponent));
            view.values = own_values.data();
        }
        chunks = cpu::balanced_chunks(a.rows(), a.offsets());
    }
};

template <class T>
class CpuMatrixOperator final : public MatrixOperator<T> {
  public:
    CpuMatrixOperator(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) : options_(options) { build(std::move(a)); }

    void update(std::shared_ptr<const CsrMatrix> a) override {
        if (a->rows() != rows() || a->cols() != cols()) {
            throw InputError(fmt::format("update: the new matrix is {} x {}, the operator {} x {}", a->rows(), a->cols(), rows(), cols()));
        }
        ++version_;
        build(std::move(a));
    }
    std::int64_t version() const override { return version_; }

  private:
    void build(std::shared_ptr<const CsrMatrix> a) {
        const OperatorOptions& options = options_;
        a_ = std::move(a);
        forward_ = {};
        adjoint_ = {};
        plan_ = {};
        if (options.spmv == SpmvKind::cusparse) throw InputError("cuSPARSE products need a GPU: this operator is on the CPU");
        plan_.storage = options.storage;
        if (options.storage == StorageKind::automatic) {
            const bool few = options.expected_products > 0 && options.expected_products < kFewProducts;
            plan_.storage = few ? StorageKind::single : StorageKind::dual;
            plan_.storage_reason = few ? fmt::format("only {} products are expected", options.expected_products)
                                       : "both products are gathers of fixed order";
        } else {
            plan_.storage_reason = "asked for";
        }
        forward_.set(*a_, options.exponent);
        plan_.forward = "own csr rows (OpenMP)";
        if (plan_.storage == StorageKind::dual) {
            adjoint_.own_matrix = a_->transposed();
            adjoint_.set(adjoint_.own_matrix, options.exponent);
            plan_.adjoint = "own csr rows of A^T (OpenMP)";
        } else {
            plan_.adjoint = "own csr row panels (OpenMP)";
        }
        plan_.bytes = a_->bytes() + adjoint_.own_matrix.bytes() + forward_.own_values.bytes() + adjoint_.own_values.bytes();
    }

  public:

    std::int64_t rows() const override { return a_->rows(); }
    std::int64_t cols() const override { return a_->cols(); }
    Space space() const override { return Space::host; }
    int exponent() const override { return options_.exponent; }
    const OperatorPlan& plan() const override { return plan_; }

    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace&, NormPartials* norm) const override {
        cpu::csr_apply(forward_.view, forward_.chunks, *a.wide, x, *b.wide, y, norm);
    }

    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        if (plan_.storage == StorageKind::dual) {
            cpu::csr_apply(adjoint_.view, adjoint_.chunks, *a.wide, x, *b.wide, y, norm);
            return;
        }
        HostBuffer<T>& panels = static_cast<PanelWorkspace&>(workspace).panels;
        if (panels.size() == 0) panels = HostBuffer<T>(cpu::kPanels * cols());
        cpu::csr_apply_adjoint(forward_.view, *a.wide, x, *b.wide, y, panels.data(), norm);
    }

    std::unique_ptr<Workspace> make_workspace(CudaContext*) const override { return std::make_unique<PanelWorkspace>(); }

  private:
    struct PanelWorkspace : Workspace {
        HostBuffer<T> panels;
    };

    std::shared_ptr<const CsrMatrix> a_;
    OperatorOptions options_;
    std::int64_t version_ = 0;
    Orientation<T> forward_;
    Orientation<T> adjoint_;
    OperatorPlan plan_;
};

}  // namespace

template <class T>
std::unique_ptr<MatrixOperator<T>> make_cpu_operator(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    return std::make_unique<CpuMatrixOperator<T>>(std::move(a), options);
}
template std::unique_ptr<MatrixOperator<double>> make_cpu_operator(std::shared_ptr<const CsrMatrix>, const OperatorOptions&);
template std::unique_ptr<MatrixOperator<float>> make_cpu_operator(std::shared_ptr<const CsrMatrix>, const OperatorOptions&);

}  // namespace lsmr
