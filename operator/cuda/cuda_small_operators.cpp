// lambda I and users' functions as operators in device memory.
#include <utility>

#include "memory/device_buffer.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator/cuda/vector_kernels.hpp"
#include "operator/stacked_operator.hpp"

namespace lsmr {
namespace {

template <class T>
class CudaScaledIdentity final : public LinearOperator<T> {
  public:
    CudaScaledIdentity(std::int64_t n, double lambda) : n_(n), lambda_(lambda) {}
    std::int64_t rows() const override { return n_; }
    std::int64_t cols() const override { return n_; }
    Space space() const override { return Space::cuda; }
    bool capturable() const override { return true; }
    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        cuda::launch_axpby(n_, a, lambda_, x, b, y, norm ? norm->sums + norm->count : nullptr, workspace.context()->stream());
        if (norm) norm->count += cuda::vector_blocks(n_);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        apply(a, x, b, y, workspace, norm);
    }

  private:
    std::int64_t n_;
    double lambda_;
};

template <class T>
class CudaFunctionOperator final : public LinearOperator<T> {
  public:
    CudaFunctionOperator(std::int64_t rows, std::int64_t cols, CudaProduct<T> forward, CudaProduct<T> adjoint)
        : rows_(rows), cols_(cols), forward_(std::move(forward)), adjoint_(std::move(adjoint)) {
        if (!forward_) throw InputError("operator: the function for A x is missing");
        if (!adjoint_) throw InputError("operator: the function for A^T y is missing; least squares needs both products");
    }
    std::int64_t rows() const override { return rows_; }
    std::int64_t cols() const override { return cols_; }
    Space space() const override { return Space::cuda; }
    bool capturable() const override { return false; }
    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        product(forward_, rows_, a, x, b, y, static_cast<Scratch&>(workspace), norm);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        product(adjoint_, cols_, a, x, b, y, static_cast<Scratch&>(workspace), norm);
    }
    std::unique_ptr<Workspace> make_workspace(CudaContext* context) const override {
        LSMR_EXPECT(context != nullptr);
        auto scratch = std::make_unique<Scratch>(context);
        scratch->product = DeviceBuffer<T>(*context, rows_ > cols_ ? rows_ : cols_);
        return scratch;
    }

  private:
    struct Scratch : Workspace {
        using Workspace::Workspace;
        DeviceBuffer<T> product;
    };
    static void product(const CudaProduct<T>& function, std::int64_t n, Scalar<T> a, const T* x, Scalar<T> b, T* y, Scratch& scratch,
                        NormPartials* norm) {
        CUstream_st* stream = scratch.context()->stream();
        function(x, scratch.product.data(), stream);
        cuda::launch_axpby(n, a, 1.0, scratch.product.data(), b, y, norm ? norm->sums + norm->count : nullptr, stream);
        if (norm) norm->count += cuda::vector_blocks(n);
    }

    std::int64_t rows_;
    std::int64_t cols_;
    CudaProduct<T> forward_;
    CudaProduct<T> adjoint_;
};

}  // namespace

template <class T>
std::unique_ptr<LinearOperator<T>> make_cuda_scaled_identity(std::int64_t n, double lambda) {
    return std::make_unique<CudaScaledIdentity<T>>(n, lambda);
}
template std::unique_ptr<LinearOperator<double>> make_cuda_scaled_identity(std::int64_t, double);
template std::unique_ptr<LinearOperator<float>> make_cuda_scaled_identity(std::int64_t, double);

template <class T>
std::unique_ptr<LinearOperator<T>> make_cuda_function_operator(std::int64_t rows, std::int64_t cols, CudaProduct<T> forward,
                                                               CudaProduct<T> adjoint) {
    return std::make_unique<CudaFunctionOperator<T>>(rows, cols, std::move(forward), std::move(adjoint));
}
template std::unique_ptr<LinearOperator<double>> make_cuda_function_operator(std::int64_t, std::int64_t, CudaProduct<double>, CudaProduct<double>);
template std::unique_ptr<LinearOperator<float>> make_cuda_function_operator(std::int64_t, std::int64_t, CudaProduct<float>, CudaProduct<float>);

}  // namespace lsmr
