// The textbook iteration: D. C.-L. Fong, M. Saunders, "LSMR", SIAM J. Sci. Comput. 33 (2011), DOI 10.1137/10079687X, as its authors' own
// code has it. Twelve library calls an iteration, of which three norms are read by the host:
//   u <- A v - alpha u     cusparseSpMV      beta = ||u||, nrm2, read      u <- u / beta, scal
//   v <- A^T u - beta v    cusparseSpMV      alpha = ||v||, nrm2, read     v <- v / alpha, scal
//   hbar <- h - (theta_bar rho / (rho_old rho_bar_old)) hbar       scal, axpy
//   x <- x + (zeta / (rho rho_bar)) hbar                           axpy
//   h <- v - (theta / rho) h                                       scal, axpy
//   ||x||                                                          nrm2, read
#include "bench/cuda/textbook.hpp"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "memory/cuda_capture.hpp"
#include "memory/device_buffer.hpp"
#include "operator/cuda/cusparse_descriptors.hpp"
#include "operator/cuda/uploader.hpp"
#include "stopwatch.hpp"

namespace lsmr {
namespace {

using cuda::DeviceCsr;
using cuda::kCudaType;

cublasStatus_t nrm2(cublasHandle_t handle, int n, const double* x, double* result) { return cublasDnrm2(handle, n, x, 1, result); }
cublasStatus_t nrm2(cublasHandle_t handle, int n, const float* x, float* result) { return cublasSnrm2(handle, n, x, 1, result); }
cublasStatus_t scal(cublasHandle_t handle, int n, double a, double* x) { return cublasDscal(handle, n, &a, x, 1); }
cublasStatus_t scal(cublasHandle_t handle, int n, float a, float* x) { return cublasSscal(handle, n, &a, x, 1); }
cublasStatus_t axpy(cublasHandle_t handle, int n, double a, const double* x, double* y) { return cublasDaxpy(handle, n, &a, x, 1, y, 1); }
cublasStatus_t axpy(cublasHandle_t handle, int n, float a, const float* x, float* y) { return cublasSaxpy(handle, n, &a, x, 1, y, 1); }

// Handles of its own: the library's expect scalars on the device.
struct Handles {
    explicit Handles(const CudaContext& context) : workspace(context, kWorkspaceBytes) {
        LSMR_CHECK(cusparseCreate(&sparse));
        LSMR_CHECK(cusparseSetStream(sparse, context.stream()));
        LSMR_CHECK(cublasCreate(&dense));
        LSMR_CHECK(cublasSetStream(dense, context.stream()));
        LSMR_CHECK(cublasSetWorkspace(dense, workspace.data(), kWorkspaceBytes));
    }
    ~Handles() {
        if (dense) LSMR_CHECK_NOTHROW(cublasDestroy(dense));
        if (sparse) LSMR_CHECK_NOTHROW(cusparseDestroy(sparse));
        // The libraries free what they took while their calls were captured, which CUDA refuses: the next check must not find that.
        cudaGetLastError();
    }
    Handles(const Handles&) = delete;
    Handles& operator=(const Handles&) = delete;

    static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;  // what cuBLAS asks for on Hopper
    DeviceBuffer<std::byte> workspace;
    cusparseHandle_t sparse = nullptr;
    cublasHandle_t dense = nullptr;
};

// A vector of the iteration, and its descriptor.
template <class T>
struct Vector {
    Vector(const CudaContext& context, std::int64_t n) : values(context, n), size(static_cast<int>(n)), descriptor(cuda::describe(n, values.data())) {}

    DeviceBuffer<T> values;
    int size;
    cuda::VectorDescriptor descriptor;
};

// y <- a A x + b y of one stored orientation by one algorithm, preprocessed.
template <class T>
class SparseProduct {
  public:
    SparseProduct(const DeviceCsr<T>& a, const Vector<T>& x, const Vector<T>& y, cusparseSpMVAlg_t algorithm, cusparseHandle_t handle,
                  const CudaContext& context)
        : x_(x), y_(y), algorithm_(algorithm), handle_(handle), matrix_(cuda::describe(a)) {
        const T one = 1;
        std::size_t bytes = 0;
        LSMR_CHECK(cusparseSpMV_bufferSize(handle_, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix_.get(), x_.descriptor.get(), &one,
                                           y_.descriptor.get(), kCudaType<T>, algorithm_, &bytes));
        buffer_ = DeviceBuffer<std::byte>(context, std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 256));
        LSMR_CHECK(cusparseSpMV_preprocess(handle_, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix_.get(), x_.descriptor.get(), &one,
                                           y_.descriptor.get(), kCudaType<T>, algorithm_, buffer_.data()));
    }

    void run(T a, T b) const {
        LSMR_CHECK(cusparseSpMV(handle_, CUSPARSE_OPERATION_NON_TRANSPOSE, &a, matrix_.get(), x_.descriptor.get(), &b, y_.descriptor.get(),
                                kCudaType<T>, algorithm_, buffer_.data()));
    }
    const char* name() const { return algorithm_ == CUSPARSE_SPMV_CSR_ALG1 ? "cusparse-alg1" : "cusparse-alg2"; }

  private:
    const Vector<T>& x_;
    const Vector<T>& y_;
    cusparseSpMVAlg_t algorithm_;
    cusparseHandle_t handle_;
    mutable DeviceBuffer<std::byte> buffer_;
    cuda::MatrixDescriptor matrix_;
};

struct Event {
    Event() { LSMR_CHECK(cudaEventCreate(&event)); }
    ~Event() { LSMR_CHECK_NOTHROW(cudaEventDestroy(event)); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    cudaEvent_t event = nullptr;
};

// Of a product, the median, in milliseconds.
template <class T>
float measured(const SparseProduct<T>& product, cudaStream_t stream) {
    constexpr int kWarmUp = 3;
    constexpr std::size_t kRuns = 11;
    const Event from, to;
    for (int i = 0; i < kWarmUp; ++i) product.run(1, T(-0.5));
    std::vector<float> times(kRuns);
    for (float& time : times) {
        LSMR_CHECK(cudaEventRecord(from.event, stream));
        product.run(1, T(-0.5));
        LSMR_CHECK(cudaEventRecord(to.event, stream));
        LSMR_CHECK(cudaEventSynchronize(to.event));
        LSMR_CHECK(cudaEventElapsedTime(&time, from.event, to.event));
    }
    std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
    return times[kRuns / 2];
}

// The scalars of the iteration, on the host; the names are the paper's.
struct Scalars {
    double alpha = 0, beta = 0;
    double zeta_bar = 0, alpha_bar = 0, rho = 1, rho_bar = 1, c_bar = 1, s_bar = 0, zeta = 0;
    double beta_dd = 0, beta_d = 0, rho_d = 1, tau_tilde = 0, theta_tilde = 0;  // for ||r||
    double a_norm2 = 0, r_norm = 0, x_norm = 0;
};

template <class T>
class Textbook final : public SolverUnderTest {
  public:
    Textbook(const CsrMatrix& a, const CudaContext& context)
        : context_(context), handles_(context), u_(context, a.rows()), v_(context, a.cols()), h_(context, a.cols()), hbar_(context, a.cols()),
          x_(context, a.cols()), norm_(context, 1) {
        auto lap = [this, last = watch_.seconds()](double& seconds) mutable {
            context_.synchronize();
            const double now = watch_.seconds();
            seconds = now - std::exchange(last, now);
        };
        DeviceCsr<T> stored = upload(a);
        lap(setup_.upload);
        DeviceCsr<T> other = transposed(stored);
        lap(setup_.transpose);
        a_ = std::move(stored);
        at_ = std::move(other);
        clear();  // the products are timed on zeros
        forward_ = faster(a_, v_, u_);
        adjoint_ = faster(at_, u_, v_);
        lap(setup_.choice);
        setup_seconds_ = watch_.seconds();
    }
    ~Textbook() override { LSMR_CHECK_NOTHROW(cudaStreamSynchronize(context_.stream())); }

    SolverRun run(std::span<const double> b, std::span<double> x, const RunLimits& limits, BlockClock* clock) override {
        const DeviceScope scope(context_.device());
        const Stopwatch watch;
        clear();
        cuda::Uploader up(context_);
        up(u_.values.data(), b.data(), u_.size, [](double value) { return static_cast<T>(value); });
        const auto read_norm = [this](const Vector<T>& vector) { return norm(vector); };
        Scalars s;
        const double b_norm = s.beta = norm(u_);
        if (s.beta > 0) {
            scale(1 / s.beta, u_);
            adjoint_->run(1, 0);
            s.alpha = norm(v_);
        }
        if (s.alpha > 0) scale(1 / s.alpha, v_);
        LSMR_CHECK(cudaMemcpyAsync(h_.values.data(), v_.values.data(), static_cast<std::size_t>(v_.values.bytes()), cudaMemcpyDeviceToDevice,
                                   context_.stream()));
        s.zeta_bar = s.alpha * s.beta;
        s.alpha_bar = s.alpha;
        s.beta_dd = s.beta;
        s.a_norm2 = s.alpha * s.alpha;
        s.r_norm = s.beta;
        std::int64_t done = 0;
        while (done < limits.iterations && s.zeta_bar != 0) {
            iterate(s, read_norm);
            ++done;
            if (clock != nullptr && !clock->tick(done)) break;
            // ||A^T r|| is small enough, or r is rounding alone.
            constexpr double kEps = std::numeric_limits<T>::epsilon();
            if (limits.ar_bound > 0 &&
                (std::abs(s.zeta_bar) <= limits.ar_bound || s.r_norm <= kEps * (b_norm + std::sqrt(s.a_norm2) * s.x_norm))) {
                break;
            }
            if (watch.seconds() >= limits.seconds) break;
        }
        std::vector<T> host(x.size());
        if (!host.empty()) {
            LSMR_CHECK(cudaMemcpyAsync(host.data(), x_.values.data(), host.size() * sizeof(T), cudaMemcpyDeviceToHost, context_.stream()));
        }
        context_.synchronize();
        std::copy(host.begin(), host.end(), x.begin());
        const SolverRun result{done, watch.seconds()};
        if (cuda_counters().count_kernels) count_kernels();
        return result;
    }
    SetupSeconds setup() const override { return setup_; }
    double setup_seconds() const override { return setup_seconds_; }
    std::string words() const override { return fmt::format("A x: {}; A^T y: {}", forward_->name(), adjoint_->name()); }
    bool on_gpu() const override { return true; }
    bool is_lsmr() const override { return true; }

  private:
    // One iteration. norm_of: a norm, as a number on the host.
    template <class Norm>
    void iterate(Scalars& s, const Norm& norm_of) {
        forward_->run(1, static_cast<T>(-s.alpha));
        s.beta = norm_of(u_);
        if (s.beta > 0) scale(1 / s.beta, u_);
        adjoint_->run(1, static_cast<T>(-s.beta));
        s.alpha = norm_of(v_);
        if (s.alpha > 0) scale(1 / s.alpha, v_);

        const double rho_old = s.rho;
        s.rho = std::hypot(s.alpha_bar, s.beta);
        const double c = s.alpha_bar / s.rho;
        const double sn = s.beta / s.rho;
        const double theta = sn * s.alpha;
        s.alpha_bar = c * s.alpha;
        const double rho_bar_old = s.rho_bar;
        const double zeta_old = s.zeta;
        const double theta_bar = s.s_bar * s.rho;
        const double rho_temp = s.c_bar * s.rho;
        s.rho_bar = std::hypot(rho_temp, theta);
        s.c_bar = rho_temp / s.rho_bar;
        s.s_bar = theta / s.rho_bar;
        s.zeta = s.c_bar * s.zeta_bar;
        s.zeta_bar = -s.s_bar * s.zeta_bar;

        scale(-theta_bar * s.rho / (rho_old * rho_bar_old), hbar_);
        add(1, h_, hbar_);
        add(s.zeta / (s.rho * s.rho_bar), hbar_, x_);
        scale(-theta / s.rho, h_);
        add(1, v_, h_);

        const double beta_hat = c * s.beta_dd;
        s.beta_dd = -sn * s.beta_dd;
        const double theta_tilde_old = s.theta_tilde;
        const double rho_tilde = std::hypot(s.rho_d, theta_bar);
        const double c_tilde = s.rho_d / rho_tilde;
        const double s_tilde = theta_bar / rho_tilde;
        s.theta_tilde = s_tilde * s.rho_bar;
        s.rho_d = c_tilde * s.rho_bar;
        s.beta_d = -s_tilde * s.beta_d + c_tilde * beta_hat;
        s.tau_tilde = (zeta_old - theta_tilde_old * s.tau_tilde) / rho_tilde;
        const double tau_d = (s.zeta - s.theta_tilde * s.tau_tilde) / s.rho_d;
        s.r_norm = std::hypot(s.beta_d - tau_d, s.beta_dd);
        s.a_norm2 += s.beta * s.beta + s.alpha * s.alpha;
        s.x_norm = norm_of(x_);
    }

    // Waits: the host reads the result.
    double norm(const Vector<T>& vector) {
        T result = 0;
        LSMR_CHECK(nrm2(handles_.dense, vector.size, vector.values.data(), &result));
        ++cuda_counters().synchronizations;
        return static_cast<double>(result);
    }
    void scale(double a, Vector<T>& vector) { LSMR_CHECK(scal(handles_.dense, vector.size, static_cast<T>(a), vector.values.data())); }
    void add(double a, const Vector<T>& from, Vector<T>& to) {
        LSMR_CHECK(axpy(handles_.dense, to.size, static_cast<T>(a), from.values.data(), to.values.data()));
    }
    // The same calls, captured, with norms that stay on the device (one copy to the host less each).
    void count_kernels() {
        Scalars s;
        s.alpha_bar = s.zeta_bar = s.beta_dd = 1;
        const auto queue_norm = [this](const Vector<T>& vector) {
            LSMR_CHECK(cublasSetPointerMode(handles_.dense, CUBLAS_POINTER_MODE_DEVICE));
            const cublasStatus_t queued = nrm2(handles_.dense, vector.size, vector.values.data(), norm_.data());
            LSMR_CHECK(cublasSetPointerMode(handles_.dense, CUBLAS_POINTER_MODE_HOST));
            LSMR_CHECK(queued);
            return 1.0;
        };
        const CapturedGraph graph(context_.stream(), [&] { iterate(s, queue_norm); });
        cuda_counters().iteration_kernels = graph.kernels();
    }
    void clear() {
        for (Vector<T>* vector : {&u_, &v_, &h_, &hbar_, &x_}) {
            LSMR_CHECK(cudaMemsetAsync(vector->values.data(), 0, static_cast<std::size_t>(vector->values.bytes()), context_.stream()));
        }
    }

    DeviceCsr<T> upload(const CsrMatrix& a) {
        if (a.nnz() > cuda::kMax32)
            throw InputError(fmt::format("cuSPARSE takes at most {} entries with 32-bit columns, the matrix has {}", cuda::kMax32, a.nnz()));
        if (a.nnz() == 0) throw InputError("a matrix without entries has no products to time");
        DeviceCsr<T> device(context_, a.rows(), a.cols(), a.nnz());
        cuda::Uploader up(context_);
        up(device.offsets32->data(), a.offsets(), a.rows() + 1, [](std::int64_t offset) { return static_cast<std::int32_t>(offset); });
        up(device.columns->data(), a.columns(), a.nnz(), [](std::int32_t column) { return column; });
        up(device.values->data(), a.values(), a.nnz(), [](double value) { return static_cast<T>(value); });
        return device;
    }
    DeviceCsr<T> transposed(const DeviceCsr<T>& a) {
        DeviceCsr<T> t(context_, a.cols, a.rows, a.nnz);
        const auto m = static_cast<int>(a.rows);
        const auto n = static_cast<int>(a.cols);
        const auto nnz = static_cast<int>(a.nnz);
        std::size_t bytes = 0;
        LSMR_CHECK(cusparseCsr2cscEx2_bufferSize(handles_.sparse, m, n, nnz, a.values->data(), a.offsets32->data(), a.columns->data(), t.values->data(),
                                                 t.offsets32->data(), t.columns->data(), kCudaType<T>, CUSPARSE_ACTION_NUMERIC,
                                                 CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG_DEFAULT, &bytes));
        DeviceBuffer<std::byte> buffer(context_, static_cast<std::int64_t>(bytes));
        LSMR_CHECK(cusparseCsr2cscEx2(handles_.sparse, m, n, nnz, a.values->data(), a.offsets32->data(), a.columns->data(), t.values->data(),
                                      t.offsets32->data(), t.columns->data(), kCudaType<T>, CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO,
                                      CUSPARSE_CSR2CSC_ALG_DEFAULT, buffer.data()));
        return t;
    }
    std::unique_ptr<SparseProduct<T>> faster(const DeviceCsr<T>& a, const Vector<T>& x, const Vector<T>& y) {
        auto first = std::make_unique<SparseProduct<T>>(a, x, y, CUSPARSE_SPMV_CSR_ALG1, handles_.sparse, context_);
        auto second = std::make_unique<SparseProduct<T>>(a, x, y, CUSPARSE_SPMV_CSR_ALG2, handles_.sparse, context_);
        return measured(*first, context_.stream()) < measured(*second, context_.stream()) ? std::move(first) : std::move(second);
    }

    Stopwatch watch_;
    SetupSeconds setup_;
    double setup_seconds_ = 0;
    const CudaContext& context_;
    Handles handles_;
    DeviceCsr<T> a_, at_;
    Vector<T> u_, v_, h_, hbar_, x_;
    DeviceBuffer<T> norm_;
    std::unique_ptr<SparseProduct<T>> forward_, adjoint_;
};

}  // namespace

std::unique_ptr<SolverUnderTest> make_textbook_solver(const CsrMatrix& a, Precision precision, const CudaContext& context) {
    const DeviceScope scope(context.device());
    if (precision == Precision::fp64) return std::make_unique<Textbook<double>>(a, context);
    return std::make_unique<Textbook<float>>(a, context);
}

}  // namespace lsmr
