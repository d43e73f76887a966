#include "solver/cuda/cuda_inverse.hpp"

#include <cublas_v2.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "memory/error.hpp"
#include "memory/host_buffer.hpp"
#include "operator/cuda/cusparse_descriptors.hpp"
#include "operator/cuda/uploader.hpp"
#include "operator/cuda/vector_kernels.hpp"
#include "operator/order.hpp"
#include "solver/cuda/preconditioner_kernels.hpp"

namespace lsmr {
namespace {

// y <- a P S T^-1 x + b y and y <- a T^-T S P^T x + b y, T triangular.
template <class T>
class CudaInverse : public LinearOperator<T> {
  public:
    std::int64_t rows() const override { return n_; }
    std::int64_t cols() const override { return n_; }
    Space space() const override { return Space::cuda; }
    bool capturable() const override { return true; }
    std::int32_t max_partials() const override { return cuda::vector_blocks(n_); }

    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        auto& scratch = static_cast<Scratch&>(workspace);
        T* z = scratch.z.data();
        gather(one(), x, nullptr, nullptr, zero(), z, nullptr, scratch);
        solve(z, scratch);
        gather(a, z, order_.data(), ordered_scale_.data(), b, y, norm, scratch);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        auto& scratch = static_cast<Scratch&>(workspace);
        T* z = scratch.z.data();
        gather(one(), x, inverse_order_.data(), scale_.data(), zero(), z, nullptr, scratch);
        solve_adjoint(z, scratch);
        gather(a, z, nullptr, nullptr, b, y, norm, scratch);
    }

  protected:
    struct Scratch : Workspace {
        Scratch(CudaContext* context, std::int64_t n) : Workspace(context), z(*context, n) {}
        DeviceBuffer<T> z;  // what is solved for, in place
    };
    // scale: S, in the caller's order; empty: ones.
    CudaInverse(std::int64_t n, const std::vector<double>& scale, const std::vector<std::int32_t>& order, CudaContext& context)
        : n_(n), constants_(context, 2) {
        const Coefficient<T> constants[2] = {{1.0, T(1)}, {0.0, T(0)}};
        cuda::Uploader up(context);
        up(constants_.data(), constants, 2, [](const Coefficient<T>& c) { return c; });
        const auto upload = [&](auto& buffer, const auto& values) {
            using Value = std::remove_pointer_t<decltype(buffer.data())>;
            if (values.empty()) return;
            buffer = DeviceBuffer<Value>(context, n);
            up(buffer.data(), values.data(), n, [](auto value) { return static_cast<Value>(value); });
        };
        upload(order_, order);
        upload(inverse_order_, lsmr::inverse_order(order));
        upload(scale_, scale);
        upload(ordered_scale_, scale.empty() ? scale : ordered(order, scale));
        context.synchronize();
    }
    std::int64_t size() const { return n_; }
    Scalar<T> one() const { return constants_.data(); }
    Scalar<T> zero() const { return constants_.data() + 1; }

  private:
    virtual void solve(T* z, Scratch& scratch) const = 0;          // z <- T^-1 z
    virtual void solve_adjoint(T* z, Scratch& scratch) const = 0;  // z <- T^-T z

    void gather(Scalar<T> a, const T* x, const std::int32_t* index, const T* scale, Scalar<T> b, T* y, NormPartials* norm, Scratch& scratch) const {
        cuda::launch_gather(n_, a, x, index, scale, b, y, norm != nullptr ? norm->sums + norm->count : nullptr, scratch.context()->stream());
        if (norm != nullptr) norm->count += cuda::vector_blocks(n_);
    }

    std::int64_t n_;
    DeviceBuffer<Coefficient<T>> constants_;  // 1, 0
    DeviceBuffer<std::int32_t> order_, inverse_order_;  // without data: the identity
    DeviceBuffer<T> scale_, ordered_scale_;             // S, and S in the order of the columns
};

// One solve with a stored triangle: descriptors and the buffer that holds the analysis.
template <class T>
class SparseSolve {
  public:
    // a: the triangle with its diagonal. z: what is solved for, in place. one: 1, where cuSPARSE's handle expects scalars.
    SparseSolve(const cuda::DeviceCsr<T>& a, cusparseFillMode_t fill, T* z, const T* one, const CudaContext& context)
        : context_(context), one_(one), matrix_(cuda::describe(a)), z_(cuda::describe(a.rows, z)) {
        cusparseDiagType_t diagonal = CUSPARSE_DIAG_TYPE_NON_UNIT;
        LSMR_CHECK(cusparseSpMatSetAttribute(matrix_.get(), CUSPARSE_SPMAT_FILL_MODE, &fill, sizeof(fill)));
        LSMR_CHECK(cusparseSpMatSetAttribute(matrix_.get(), CUSPARSE_SPMAT_DIAG_TYPE, &diagonal, sizeof(diagonal)));
        cusparseSpSVDescr_t descriptor = nullptr;
        LSMR_CHECK(cusparseSpSV_createDescr(&descriptor));
        solve_.reset(descriptor);
        std::size_t bytes = 0;
        LSMR_CHECK(cusparseSpSV_bufferSize(context.cusparse(), kPlain, one_, matrix_.get(), z_.get(), z_.get(), cuda::kCudaType<T>, kAlgorithm,
                                           solve_.get(), &bytes));
        buffer_ = DeviceBuffer<std::byte>(context, std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 256));
        LSMR_CHECK(cusparseSpSV_analysis(context.cusparse(), kPlain, one_, matrix_.get(), z_.get(), z_.get(), cuda::kCudaType<T>, kAlgorithm,
                                         solve_.get(), buffer_.data()));
    }
    void run() const {
        LSMR_CHECK(cusparseSpSV_solve(context_.cusparse(), kPlain, one_, matrix_.get(), z_.get(), z_.get(), cuda::kCudaType<T>, kAlgorithm, solve_.get()));
    }

  private:
    static constexpr cusparseOperation_t kPlain = CUSPARSE_OPERATION_NON_TRANSPOSE;
    static constexpr cusparseSpSVAlg_t kAlgorithm = CUSPARSE_SPSV_ALG_DEFAULT;
    const CudaContext& context_;
    const T* one_;
    DeviceBuffer<std::byte> buffer_;
    cuda::MatrixDescriptor matrix_;
    cuda::VectorDescriptor z_;
    cuda::SolveDescriptor solve_;
};

template <class T>
class CudaCholeskyInverse final : public CudaInverse<T> {
    using typename CudaInverse<T>::Scratch;
    using Base = CudaInverse<T>;

  public:
    CudaCholeskyInverse(const IncompleteCholesky& factor, const std::vector<std::int32_t>& order, CudaContext& context)
        : Base(factor.cols(), factor.scale(), order, context) {
        const CsrMatrix upper = factor.upper();
        upper_ = uploaded(upper, context);
        lower_ = uploaded(upper.transposed(), context);
    }
    std::unique_ptr<Workspace> make_workspace(CudaContext* context) const override {
        LSMR_EXPECT(context != nullptr);
        return std::make_unique<Solves>(*this, context);
    }

  private:
    struct Solves final : Scratch {
        Solves(const CudaCholeskyInverse& k, CudaContext* context)
            : Scratch(context, k.size()) {
            if (k.size() == 0) return;
            upper.emplace(k.upper_, CUSPARSE_FILL_MODE_UPPER, this->z.data(), k.one().narrow, *context);
            lower.emplace(k.lower_, CUSPARSE_FILL_MODE_LOWER, this->z.data(), k.one().narrow, *context);
        }
        std::optional<SparseSolve<T>> upper, lower;  // in z
    };
    void solve(T*, Scratch& scratch) const override {
        if (const auto& solve = static_cast<Solves&>(scratch).upper) solve->run();
    }
    void solve_adjoint(T*, Scratch& scratch) const override {
        if (const auto& solve = static_cast<Solves&>(scratch).lower) solve->run();
    }

    static cuda::DeviceCsr<T> uploaded(const CsrMatrix& a, CudaContext& context) {
        if (a.nnz() > cuda::kMax32) {
            throw InputError(fmt::format("triangular solves by cuSPARSE are limited to {} entries, the incomplete factor has {}: drop more, or take the CPU",
                                         cuda::kMax32, a.nnz()));
        }
        cuda::DeviceCsr<T> d(context, a.rows(), a.cols(), a.nnz());
        cuda::Uploader up(context);
        up(d.offsets32->data(), a.offsets(), a.rows() + 1, [](std::int64_t k) { return static_cast<std::int32_t>(k); });
        up(d.columns->data(), a.columns(), a.nnz(), [](std::int32_t j) { return j; });
        up(d.values->data(), a.values(), a.nnz(), [](double v) { return static_cast<T>(v); });
        return d;
    }

    cuda::DeviceCsr<T> upper_, lower_;  // L^T and L
};

inline cublasStatus_t triangular_solve(cublasHandle_t handle, cublasOperation_t operation, int n, const double* r, double* z) {
    return cublasDtrsv(handle, CUBLAS_FILL_MODE_UPPER, operation, CUBLAS_DIAG_NON_UNIT, n, r, n, z, 1);
}
inline cublasStatus_t triangular_solve(cublasHandle_t handle, cublasOperation_t operation, int n, const float* r, float* z) {
    return cublasStrsv(handle, CUBLAS_FILL_MODE_UPPER, operation, CUBLAS_DIAG_NON_UNIT, n, r, n, z, 1);
}

template <class T>
class CudaDenseInverse final : public CudaInverse<T> {
    using typename CudaInverse<T>::Scratch;
    using Base = CudaInverse<T>;

  public:
    CudaDenseInverse(std::int64_t n, DeviceBuffer<T> r, const std::vector<std::int32_t>& order, CudaContext& context)
        : Base(n, {}, order, context), r_(std::move(r)) {}
    std::unique_ptr<Workspace> make_workspace(CudaContext* context) const override {
        LSMR_EXPECT(context != nullptr);
        context->cublas();  // made now, for it allocates
        return std::make_unique<Scratch>(context, this->size());
    }

  private:
    void solve(T* z, Scratch& scratch) const override { run(CUBLAS_OP_N, z, scratch); }
    void solve_adjoint(T* z, Scratch& scratch) const override { run(CUBLAS_OP_T, z, scratch); }
    void run(cublasOperation_t operation, T* z, Scratch& scratch) const {
        if (this->size() > 0) LSMR_CHECK(triangular_solve(scratch.context()->cublas(), operation, static_cast<int>(this->size()), r_.data(), z));
    }

    DeviceBuffer<T> r_;
};

}  // namespace

template <class T>
std::unique_ptr<LinearOperator<T>> make_cuda_inverse(const IncompleteCholesky& factor, const std::vector<std::int32_t>& order, CudaContext& context) {
    return std::make_unique<CudaCholeskyInverse<T>>(factor, order, context);
}
template <class T>
std::unique_ptr<LinearOperator<T>> make_cuda_inverse(std::int64_t n, DeviceBuffer<T> r, const std::vector<std::int32_t>& order, CudaContext& context) {
    return std::make_unique<CudaDenseInverse<T>>(n, std::move(r), order, context);
}
#define LSMR_INSTANTIATE(T)                                                                                                              \
    template std::unique_ptr<LinearOperator<T>> make_cuda_inverse(const IncompleteCholesky&, const std::vector<std::int32_t>&, CudaContext&); \
    template std::unique_ptr<LinearOperator<T>> make_cuda_inverse(std::int64_t, DeviceBuffer<T>, const std::vector<std::int32_t>&, CudaContext&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr
