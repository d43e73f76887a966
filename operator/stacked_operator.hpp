// [A; L]: two operators one above the other, and lambda I to stack.
#pragma once

#include <memory>
#include <string>

#include "memory/error.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr {

// (A over L): rows = A.rows + L.rows, cols = A.cols = L.cols. Both in the same space. Holds references.
template <class T>
class StackedOperator final : public LinearOperator<T>, private OnePass<T> {
  public:
    // one: a coefficient of value 1 in the operators' space, kept by the caller.
    StackedOperator(const LinearOperator<T>& top, const LinearOperator<T>& bottom, Scalar<T> one)
        : top_(top), bottom_(bottom), one_(one) {
        if (top.cols() != bottom.cols()) {
            throw InputError("stack: the upper operator has " + std::to_string(top.cols()) + " columns, the lower " +
                             std::to_string(bottom.cols()));
        }
        LSMR_EXPECT(top.space() == bottom.space());
    }

    std::int64_t rows() const override { return top_.rows() + bottom_.rows(); }
    std::int64_t cols() const override { return top_.cols(); }
    Space space() const override { return top_.space(); }
    bool capturable() const override { return top_.capturable() && bottom_.capturable(); }
    int exponent() const override { return top_.exponent(); }
    std::int32_t max_partials() const override { return top_.max_partials() + bottom_.max_partials(); }

    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        auto& both = static_cast<BothWorkspaces&>(workspace);
        top_.apply(a, x, b, y, *both.top, norm);
        bottom_.apply(a, x, b, y + top_.rows(), *both.bottom, norm);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        auto& both = static_cast<BothWorkspaces&>(workspace);
        top_.apply_adjoint(a, x, b, y, *both.top, nullptr);
        bottom_.apply_adjoint(a, x + top_.rows(), one_, y, *both.bottom, norm);
    }
    // Where the upper operator's is read once, and the lower one's rows, which are few, once for each product.
    const OnePass<T>* one_pass() const override { return top_.one_pass() ? this : nullptr; }
    std::unique_ptr<Workspace> make_workspace(CudaContext* context) const override {
        auto both = std::make_unique<BothWorkspaces>(context);
        both->top = top_.make_workspace(context);
        both->bottom = bottom_.make_workspace(context);
        return both;
    }

  private:
    struct BothWorkspaces : Workspace {
        using Workspace::Workspace;
        std::unique_ptr<Workspace> top;
        std::unique_ptr<Workspace> bottom;
        const T* kept = nullptr;  // the lower part of y after apply_both()
    };
    void apply_both(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        auto& both = static_cast<BothWorkspaces&>(workspace);
        top_.one_pass()->apply_both(a, x, b, y, *both.top, norm);
        both.kept = y + top_.rows();
        bottom_.apply(a, x, b, y + top_.rows(), *both.bottom, norm);
    }
    void apply_kept_adjoint(Scalar<T> a, Scalar<T> b, T* x, Workspace& workspace, NormPartials* norm) const override {
        auto& both = static_cast<BothWorkspaces&>(workspace);
        top_.one_pass()->apply_kept_adjoint(a, b, x, *both.top, nullptr);
        bottom_.apply_adjoint(a, both.kept, one_, x, *both.bottom, norm);
    }
    const LinearOperator<T>& top_;
    const LinearOperator<T>& bottom_;
    Scalar<T> one_;
};

// lambda I (n x n), in host memory.
template <class T>
std::unique_ptr<LinearOperator<T>> make_cpu_scaled_identity(std::int64_t n, double lambda);
// The same on the GPU; only in builds with CUDA.
template <class T>
std::unique_ptr<LinearOperator<T>> make_cuda_scaled_identity(std::int64_t n, double lambda);

}  // namespace lsmr
