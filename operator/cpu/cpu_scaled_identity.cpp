// lambda I in host memory.
#include <algorithm>

#include "operator/cpu/csr_kernels.hpp"
#include "operator/stacked_operator.hpp"

namespace lsmr {
namespace {

template <class T>
class CpuScaledIdentity final : public LinearOperator<T> {
  public:
    CpuScaledIdentity(std::int64_t n, double lambda) : n_(n), lambda_(lambda) {}
    std::int64_t rows() const override { return n_; }
    std::int64_t cols() const override { return n_; }
    Space space() const override { return Space::host; }
    bool capturable() const override { return true; }
    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace&, NormPartials* norm) const override {
        const T scale = static_cast<T>(*a.wide * lambda_);
        const T keep = static_cast<T>(*b.wide);
        const cpu::VectorChunks chunks(n_);
        double* sums = norm ? norm->sums + norm->count : nullptr;
        cpu::for_each_chunk(chunks.count, [&](std::int64_t c) {
            double sum = 0;
            for (std::int64_t i = c * chunks.length; i < std::min(n_, (c + 1) * chunks.length); ++i) {
                y[i] = keep != T(0) ? scale * x[i] + keep * y[i] : scale * x[i];
                sum += static_cast<double>(y[i]) * static_cast<double>(y[i]);
            }
            if (sums) sums[c] = sum;
        });
        if (norm) norm->count += static_cast<std::int32_t>(chunks.count);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        apply(a, x, b, y, workspace, norm);
    }

  private:
    std::int64_t n_;
    double lambda_;
};

}  // namespace

template <class T>
std::unique_ptr<LinearOperator<T>> make_cpu_scaled_identity(std::int64_t n, double lambda) {
    return std::make_unique<CpuScaledIdentity<T>>(n, lambda);
}
template std::unique_ptr<LinearOperator<double>> make_cpu_scaled_identity(std::int64_t, double);
template std::unique_ptr<LinearOperator<float>> make_cpu_scaled_identity(std::int64_t, double);

}  // namespace lsmr
