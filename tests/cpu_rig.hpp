// The CPU's matrix operator under the operator suite.
#pragma once

#include <algorithm>
#include <numeric>

#include "operator_suite.hpp"

namespace lsmr::test::products {

template <class T>
class CpuRig final : public Rig<T> {
  public:
    explicit CpuRig(std::unique_ptr<MatrixOperator<T>> op) : operator_(std::move(op)), workspace_(operator_->make_workspace(nullptr)) {}
    double product(bool adjoint, double a, const std::vector<T>& x, double b, std::vector<T>& y, bool misalign) override {
        std::vector<T> shifted_x(x.size() + 1), shifted_y(y.size() + 1);
        const std::size_t shift = misalign ? 1 : 0;
        std::copy(x.begin(), x.end(), shifted_x.begin() + static_cast<std::ptrdiff_t>(shift));
        std::copy(y.begin(), y.end(), shifted_y.begin() + static_cast<std::ptrdiff_t>(shift));
        Coefficient<T> ca{a, static_cast<T>(a)}, cb{b, static_cast<T>(b)};
        std::vector<double> sums(static_cast<std::size_t>(operator_->max_partials()));
        NormPartials norm{sums.data(), 0};
        if (adjoint) operator_->apply_adjoint(&ca, shifted_x.data() + shift, &cb, shifted_y.data() + shift, *workspace_, &norm);
        else operator_->apply(&ca, shifted_x.data() + shift, &cb, shifted_y.data() + shift, *workspace_, &norm);
        std::copy_n(shifted_y.begin() + static_cast<std::ptrdiff_t>(shift), y.size(), y.begin());
        return std::accumulate(sums.begin(), sums.begin() + norm.count, 0.0);
    }
    const OperatorPlan& plan() const override { return operator_->plan(); }

  private:
    std::unique_ptr<MatrixOperator<T>> operator_;
    std::unique_ptr<Workspace> workspace_;
};

template <class T>
std::unique_ptr<Rig<T>> make_rig(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    return std::make_unique<CpuRig<T>>(make_cpu_operator<T>(std::move(a), options));
}

// Both, against plain loops, with and without y.
template <class T>
void check_both_products(const std::shared_ptr<const CsrMatrix>& a, Rig<T>& rig) {
    for (const bool adjoint : {false, true}) {
        for (const double b : {-0.5, 0.0}) {
            const auto x = narrow<T>(products::random_vector(adjoint ? a->rows() : a->cols(), 71));
            auto y = narrow<T>(products::random_vector(adjoint ? a->cols() : a->rows(), 72));
            if (b == 0) std::fill(y.begin(), y.end(), std::numeric_limits<T>::quiet_NaN());  // not read
            const auto before = y;
            const double squares = rig.product(adjoint, 0.75, x, b, y, false);
            check_product(*a, adjoint, 0.75, x, b, before, y, squares);
        }
    }
}

}  // namespace lsmr::test::products
