// The GPU's matrix operator under the operator suite: vectors given and taken in host memory.
#pragma once

#include <cuda_runtime_api.h>

#include <numeric>

#include "cuda_support.hpp"
#include "memory/cuda_check.hpp"
#include "memory/device_buffer.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator_suite.hpp"

namespace lsmr::test::products {

inline CudaContext& shared_context() {
    // Left alive at exit on purpose: no CUDA call in a static destructor.
    static CudaContext* context = new CudaContext(0);
    return *context;
}

template <class T>
void to_device(DeviceBuffer<T>& buffer, std::size_t shift, const std::vector<T>& host, const CudaContext& context) {
    if (host.empty()) return;
    LSMR_CHECK(cudaMemcpyAsync(buffer.data() + shift, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice, context.stream()));
}
template <class T>
void to_host(std::vector<T>& host, const DeviceBuffer<T>& buffer, std::size_t shift, const CudaContext& context) {
    if (!host.empty()) {
        LSMR_CHECK(cudaMemcpyAsync(host.data(), buffer.data() + shift, host.size() * sizeof(T), cudaMemcpyDeviceToHost, context.stream()));
    }
    context.synchronize();
}

template <class T>
class CudaRig final : public Rig<T> {
  public:
    explicit CudaRig(std::unique_ptr<MatrixOperator<T>> a) : operator_(std::move(a)), workspace_(operator_->make_workspace(&shared_context())) {}
    double product(bool adjoint, double a, const std::vector<T>& x, double b, std::vector<T>& y, bool misalign) override {
        const CudaContext& context = shared_context();
        const std::size_t shift = misalign ? 1 : 0;
        DeviceBuffer<T> dx(context, static_cast<std::int64_t>(x.size()) + 4), dy(context, static_cast<std::int64_t>(y.size()) + 4);
        DeviceBuffer<Coefficient<T>> coefficients(context, 2);
        DeviceBuffer<double> sums(context, operator_->max_partials());
        const std::vector<Coefficient<T>> host{{a, static_cast<T>(a)}, {b, static_cast<T>(b)}};
        to_device(coefficients, 0, host, context);
        to_device(dx, shift, x, context);
        to_device(dy, shift, y, context);
        NormPartials norm{sums.data(), 0};
        if (adjoint) operator_->apply_adjoint(coefficients.data(), dx.data() + shift, coefficients.data() + 1, dy.data() + shift, *workspace_, &norm);
        else operator_->apply(coefficients.data(), dx.data() + shift, coefficients.data() + 1, dy.data() + shift, *workspace_, &norm);
        REQUIRE(norm.count <= operator_->max_partials());
        std::vector<double> host_sums(static_cast<std::size_t>(norm.count));
        to_host(host_sums, sums, 0, context);
        to_host(y, dy, shift, context);
        return std::accumulate(host_sums.begin(), host_sums.end(), 0.0);
    }
    const OperatorPlan& plan() const override { return operator_->plan(); }

  private:
    std::unique_ptr<MatrixOperator<T>> operator_;
    std::unique_ptr<Workspace> workspace_;
};

template <class T>
std::unique_ptr<Rig<T>> from_csr(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    return std::make_unique<CudaRig<T>>(make_cuda_operator<T>(*a, shared_context(), options));
}
template <class T>
std::unique_ptr<Rig<T>> from_csc(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    return std::make_unique<CudaRig<T>>(make_cuda_operator_from_csc<T>(a->transposed(), shared_context(), options));
}

}  // namespace lsmr::test::products
