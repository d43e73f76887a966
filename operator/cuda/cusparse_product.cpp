// A product by cuSPARSE: the descriptors and the work buffer belong to the scratch, made once; a run only sets the vectors' addresses.
#include <fmt/format.h>

#include <algorithm>

#include "operator/cuda/cusparse_descriptors.hpp"
#include "operator/cuda/vector_kernels.hpp"

namespace lsmr::cuda {
namespace {

template <class T>
class CusparseScratch final : public ProductScratch {
  public:
    CusparseScratch(const DeviceCsr<T>& a, cusparseOperation_t operation, cusparseSpMVAlg_t algorithm, const CudaContext& context)
        : context_(context), operation_(operation), algorithm_(algorithm) {
        const bool plain = operation == CUSPARSE_OPERATION_NON_TRANSPOSE;
        x_size_ = plain ? a.cols : a.rows;
        y_size_ = plain ? a.rows : a.cols;
        const T one = 1;
        DeviceBuffer<T> device_one(context, 1);  // where cuSPARSE's handle expects scalars
        LSMR_CHECK(cudaMemcpyAsync(device_one.data(), &one, sizeof(T), cudaMemcpyHostToDevice, context.stream()));
        matrix_ = describe(a);
        // Any address will do until the first product.
        x_ = describe(x_size_, a.values->data());
        y_ = describe(y_size_, a.values->data());
        std::size_t bytes = 0;
        LSMR_CHECK(cusparseSpMV_bufferSize(context.cusparse(), operation_, device_one.data(), matrix_.get(), x_.get(), device_one.data(), y_.get(),
                                           kCudaType<T>, algorithm_, &bytes));
        // Never null, even where cuSPARSE asks for nothing.
        buffer_ = DeviceBuffer<std::byte>(context, std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 256));
        LSMR_CHECK(cusparseSpMV_preprocess(context.cusparse(), operation_, device_one.data(), matrix_.get(), x_.get(), device_one.data(), y_.get(),
                                           kCudaType<T>, algorithm_, buffer_.data()));
    }

    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials) {
        // cuSPARSE wants 16-byte alignment; a vector that is not so goes through a copy, for which the first such product takes memory.
        const bool aligned = is_aligned(x) && is_aligned(y);
        const cudaStream_t stream = context_.stream();
        T* to = y;
        if (!aligned) {
            if (copy_x_.size() == 0) copy_x_ = DeviceBuffer<T>(context_, x_size_);
            if (copy_y_.size() == 0) copy_y_ = DeviceBuffer<T>(context_, y_size_);
            LSMR_CHECK(cudaMemcpyAsync(copy_x_.data(), x, static_cast<std::size_t>(x_size_) * sizeof(T), cudaMemcpyDeviceToDevice, stream));
            LSMR_CHECK(cudaMemcpyAsync(copy_y_.data(), y, static_cast<std::size_t>(y_size_) * sizeof(T), cudaMemcpyDeviceToDevice, stream));
            x = copy_x_.data();
            to = copy_y_.data();
        }
        LSMR_CHECK(cusparseDnVecSetValues(x_.get(), const_cast<T*>(x)));
        LSMR_CHECK(cusparseDnVecSetValues(y_.get(), to));
        LSMR_CHECK(cusparseSpMV(context_.cusparse(), operation_, a.narrow, matrix_.get(), x_.get(), b.narrow, y_.get(), kCudaType<T>, algorithm_,
                                buffer_.data()));
        if (!aligned) LSMR_CHECK(cudaMemcpyAsync(y, to, static_cast<std::size_t>(y_size_) * sizeof(T), cudaMemcpyDeviceToDevice, stream));
        if (partials != nullptr) launch_norm(y_size_, y, partials, stream);
    }

  private:
    const CudaContext& context_;
    cusparseOperation_t operation_;
    cusparseSpMVAlg_t algorithm_;
    std::int64_t x_size_ = 0;
    std::int64_t y_size_ = 0;
    DeviceBuffer<std::byte> buffer_;
    MatrixDescriptor matrix_;
    VectorDescriptor x_;
    VectorDescriptor y_;
    DeviceBuffer<T> copy_x_;
    DeviceBuffer<T> copy_y_;
};

template <class T>
class CusparseProduct final : public CsrProduct<T> {
  public:
    CusparseProduct(const DeviceCsr<T>& a, const SpmvChoice& choice)
        : a_(a),
          operation_(choice.kernel == SpmvKernel::cusparse_transposed ? CUSPARSE_OPERATION_TRANSPOSE : CUSPARSE_OPERATION_NON_TRANSPOSE),
          algorithm_(choice.kernel == SpmvKernel::cusparse_alg1 ? CUSPARSE_SPMV_CSR_ALG1 : CUSPARSE_SPMV_CSR_ALG2) {
        if (a.wide()) {
            throw InputError(fmt::format("cuSPARSE products are limited to {} nonzeros, the matrix has {}; use our own kernels (own or auto)", kMax32, a.nnz));
        }
    }
    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        return std::make_unique<CusparseScratch<T>>(a_, operation_, algorithm_, context);
    }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        static_cast<CusparseScratch<T>&>(scratch).run(a, x, b, y, partials);
    }
    std::int32_t partials() const override { return vector_blocks(operation_ == CUSPARSE_OPERATION_TRANSPOSE ? a_.cols : a_.rows); }
    std::int64_t bytes() const override { return a_.offsets32->bytes() + a_.columns->bytes() + a_.values->bytes(); }
    std::string words() const override { return "cusparseSpMV with preprocess"; }

  private:
    DeviceCsr<T> a_;
    cusparseOperation_t operation_;
    cusparseSpMVAlg_t algorithm_;
};

}  // namespace

template <class T>
std::unique_ptr<CsrProduct<T>> make_cusparse_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext&) {
    return std::make_unique<CusparseProduct<T>>(a, choice);
}
template std::unique_ptr<CsrProduct<double>> make_cusparse_product(const DeviceCsr<double>&, const SpmvChoice&, const CudaContext&);
template std::unique_ptr<CsrProduct<float>> make_cusparse_product(const DeviceCsr<float>&, const SpmvChoice&, const CudaContext&);

}  // namespace lsmr::cuda
