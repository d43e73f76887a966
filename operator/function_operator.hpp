// FunctionOperator<T>: a user's A given as two functions, y = A x and x = A^T y.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "memory/error.hpp"
#include "memory/host_buffer.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr {

// On the host. forward(x, y) sets y (rows values) to A x, adjoint(y, x) sets x (cols values) to A^T y; both overwrite. They may throw:
// the exception passes through a solve unchanged.
template <class T>
class FunctionOperator final : public LinearOperator<T> {
  public:
    using Product = std::function<void(const T* in, T* out)>;

    FunctionOperator(std::int64_t rows, std::int64_t cols, Product forward, Product adjoint)
        : rows_(rows), cols_(cols), forward_(std::move(forward)), adjoint_(std::move(adjoint)) {
        if (!forward_) throw InputError("operator: the function for A x is missing");
        if (!adjoint_) throw InputError("operator: the function for A^T y is missing; least squares needs both products");
    }
    std::int64_t rows() const override { return rows_; }
    std::int64_t cols() const override { return cols_; }
    Space space() const override { return Space::host; }
    bool capturable() const override { return false; }
    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        product(forward_, *a.wide, x, *b.wide, y, rows_, static_cast<Scratch&>(workspace), norm);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        product(adjoint_, *a.wide, x, *b.wide, y, cols_, static_cast<Scratch&>(workspace), norm);
    }
    std::unique_ptr<Workspace> make_workspace(CudaContext*) const override {
        auto scratch = std::make_unique<Scratch>();
        scratch->product = HostBuffer<T>(rows_ > cols_ ? rows_ : cols_);
        return scratch;
    }

  private:
    struct Scratch : Workspace {
        HostBuffer<T> product;
    };
    static void product(const Product& function, double a, const T* x, double b, T* y, std::int64_t n, Scratch& scratch,
                        NormPartials* norm) {
        T* product = scratch.product.data();
        function(x, product);
        double sum = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            y[i] = static_cast<T>(b != 0 ? a * product[i] + b * y[i] : a * product[i]);
            sum += static_cast<double>(y[i]) * static_cast<double>(y[i]);
        }
        if (norm) norm->sums[norm->count++] = sum;
    }

    std::int64_t rows_;
    std::int64_t cols_;
    Product forward_;
    Product adjoint_;
};

}  // namespace lsmr
