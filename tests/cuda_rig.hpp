// The GPU's matrix operator under the operator suite: vectors given and taken in host memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <numeric>
#include <string>

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

// Values that fp32 holds, or that bf16 holds; otherwise random shapes.
inline std::shared_ptr<const CsrMatrix> with_exact_values(const CsrMatrix& a, int bits) {
    return with_values(a, [bits](double v) { return std::ldexp(std::round(std::ldexp(v, bits - 1)), 1 - bits); });
}

// Bands here, rows over all of 300,000 columns there: some items can have 16-bit columns and some cannot. And rows of many lengths.
inline std::shared_ptr<const CsrMatrix> mixed_spans() {
    std::vector<std::int64_t> rows, columns;
    const std::int64_t cols = 300000;
    for (std::int64_t i = 0; i < 6000; ++i) {
        const bool wide = i / 500 % 3 == 1;
        const std::int64_t length = i % 1999 == 7 ? 5000 : i % 13;
        for (std::int64_t k = 0; k < length; ++k) {
            rows.push_back(i);
            columns.push_back(wide ? (k * 48611 + i * 97) % cols : (i * 40 + k * 3) % cols);
        }
    }
    return share(CsrMatrix::from_coo(6000, cols, rows, columns, random_vector(static_cast<std::int64_t>(rows.size()), 5)));
}

// Both products, captured in global mode, where nothing may be allocated or waited for, give for new vectors what they give at once.
inline void check_captured(const MatrixOperator<double>& op) {
    CudaContext& context = shared_context();
    const auto workspace = op.make_workspace(&context);
    DeviceBuffer<double> x(context, op.cols()), y(context, op.rows()), z(context, op.cols()), sums(context, op.max_partials());
    DeviceBuffer<Coefficient<double>> coefficients(context, 2);
    to_device(coefficients, 0, {{1, 1}, {0, 0}}, context);
    const auto both = [&] {
        NormPartials norm{sums.data(), 0};
        op.apply(coefficients.data(), x.data(), coefficients.data() + 1, y.data(), *workspace, &norm);
        op.apply_adjoint(coefficients.data(), y.data(), coefficients.data() + 1, z.data(), *workspace);
    };
    context.synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t run = nullptr;
    LSMR_CHECK(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeGlobal));
    both();
    LSMR_CHECK(cudaStreamEndCapture(context.stream(), &graph));
    LSMR_CHECK(cudaGraphInstantiate(&run, graph, 0));
    for (std::uint64_t seed : {76, 77}) {
        to_device(x, 0, random_vector(op.cols(), seed), context);
        LSMR_CHECK(cudaGraphLaunch(run, context.stream()));
        std::vector<double> replayed(static_cast<std::size_t>(op.cols())), direct(replayed.size());
        to_host(replayed, z, 0, context);
        both();
        to_host(direct, z, 0, context);
        CHECK(replayed == direct);
    }
    LSMR_CHECK(cudaGraphExecDestroy(run));
    LSMR_CHECK(cudaGraphDestroy(graph));
}

template <class T>
void check_products(const CsrMatrix& a, Rig<T>& rig) {
    for (bool adjoint : {false, true}) {
        CAPTURE(adjoint);
        const auto x = narrow<T>(random_vector(adjoint ? a.rows() : a.cols(), 61));
        const auto y0 = narrow<T>(random_vector(adjoint ? a.cols() : a.rows(), 62));
        for (int repeat = 0; repeat < 3; ++repeat) {  // atomic pieces must be back at zero after each
            auto y = y0;
            const double squares = rig.product(adjoint, -0.75, x, 0.5, y);
            check_product(a, adjoint, -0.75, x, 0.5, y0, y, squares);
        }
    }
}

}  // namespace lsmr::test::products
