// A product by cuSPARSE with A in dense blocks, for comparison: places without an entry are zeros, so a non-finite x spreads.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "operator/cuda/block_arrays.hpp"
#include "operator/cuda/cusparse_descriptors.hpp"
#include "operator/cuda/vector_kernels.hpp"

namespace lsmr::cuda {
namespace {

// cuSPARSE does not take every size of block; which, only its answer says.
void check_supported(cusparseStatus_t status) {
    if (status == CUSPARSE_STATUS_NOT_SUPPORTED || status == CUSPARSE_STATUS_INVALID_VALUE) {
        throw InputError(fmt::format("cuSPARSE refuses blocks of this size: {}", cusparseGetErrorString(status)));
    }
    LSMR_CHECK(status);
}

// cuSPARSE's product is by whole blocks: x and y of whole blocks too, so vectors that are shorter, or not aligned, go through copies.
template <class T>
class CusparseBsrScratch final : public ProductScratch {
  public:
    CusparseBsrScratch(cusparseSpMatDescr_t matrix, std::int64_t rows, std::int64_t cols, std::int64_t padded_rows, std::int64_t padded_cols,
                       const CudaContext& context)
        : context_(context), matrix_(matrix), rows_(rows), cols_(cols), exact_(rows == padded_rows && cols == padded_cols), copy_x_(context, padded_cols),
          copy_y_(context, padded_rows) {
        const T one = 1;
        DeviceBuffer<T> device_one(context, 1);
        LSMR_CHECK(cudaMemcpyAsync(device_one.data(), &one, sizeof one, cudaMemcpyHostToDevice, context.stream()));
        LSMR_CHECK(cudaMemsetAsync(copy_x_.data(), 0, static_cast<std::size_t>(copy_x_.bytes()), context.stream()));
        LSMR_CHECK(cudaMemsetAsync(copy_y_.data(), 0, static_cast<std::size_t>(copy_y_.bytes()), context.stream()));
        x_ = describe(padded_cols, copy_x_.data());
        y_ = describe(padded_rows, copy_y_.data());
        std::size_t bytes = 0;
        check_supported(cusparseSpMV_bufferSize(context.cusparse(), CUSPARSE_OPERATION_NON_TRANSPOSE, device_one.data(), matrix_, x_.get(),
                                                device_one.data(), y_.get(), kCudaType<T>, CUSPARSE_SPMV_BSR_ALG1, &bytes));
        buffer_ = DeviceBuffer<std::byte>(context, std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 256));
        context.synchronize();  // `one` goes
    }

    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials) {
        const cudaStream_t stream = context_.stream();
        const bool in_place = exact_ && is_aligned(x) && is_aligned(y);
        const auto copy = [&](T* to, const T* from, std::int64_t n) {
            LSMR_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(n) * sizeof(T), cudaMemcpyDeviceToDevice, stream));
        };
        if (!in_place) {
            copy(copy_x_.data(), x, cols_);
            copy(copy_y_.data(), y, rows_);
        }
        LSMR_CHECK(cusparseDnVecSetValues(x_.get(), in_place ? const_cast<T*>(x) : copy_x_.data()));
        LSMR_CHECK(cusparseDnVecSetValues(y_.get(), in_place ? y : copy_y_.data()));
        check_supported(cusparseSpMV(context_.cusparse(), CUSPARSE_OPERATION_NON_TRANSPOSE, a.narrow, matrix_, x_.get(), b.narrow, y_.get(), kCudaType<T>,
                                     CUSPARSE_SPMV_BSR_ALG1, buffer_.data()));
        if (!in_place) copy(y, copy_y_.data(), rows_);
        if (partials != nullptr) launch_norm(rows_, y, partials, stream);
    }

  private:
    const CudaContext& context_;
    cusparseSpMatDescr_t matrix_;
    std::int64_t rows_;
    std::int64_t cols_;
    bool exact_;
    DeviceBuffer<T> copy_x_;
    DeviceBuffer<T> copy_y_;
    DeviceBuffer<std::byte> buffer_;
    VectorDescriptor x_;
    VectorDescriptor y_;
};

template <class T>
class CusparseBsrProduct final : public CsrProduct<T> {
  public:
    CusparseBsrProduct(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context)
        : choice_(choice), rows_(a.rows), cols_(a.cols), arrays_(a, choice, EmptyPlaces::zero, context) {
        if (arrays_.block_count() == 0) throw InputError("cusparse-bsr: the matrix has no entries");
        if (arrays_.block_count() > kMax32) {
            throw InputError(fmt::format("cuSPARSE products are limited to {} blocks, the matrix has {}", kMax32, arrays_.block_count()));
        }
        const std::int64_t count = arrays_.block_row_count() + 1;
        std::vector<std::int64_t> wide(static_cast<std::size_t>(count));
        LSMR_CHECK(cudaMemcpyAsync(wide.data(), arrays_.offsets().data(), wide.size() * sizeof(std::int64_t), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        const std::vector<std::int32_t> narrow(wide.begin(), wide.end());
        offsets_ = DeviceBuffer<std::int32_t>(context, count);
        LSMR_CHECK(cudaMemcpyAsync(offsets_.data(), narrow.data(), narrow.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice, context.stream()));
        context.synchronize();
        block_cols_ = (cols_ + choice.block_cols - 1) / choice.block_cols;
        cusparseSpMatDescr_t descriptor = nullptr;
        check_supported(cusparseCreateBsr(&descriptor, arrays_.block_row_count(), block_cols_, arrays_.block_count(), choice.block_rows, choice.block_cols,
                                          offsets_.data(), arrays_.columns().data(), arrays_.values().data(), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                          CUSPARSE_INDEX_BASE_ZERO, kCudaType<T>, CUSPARSE_ORDER_COL));
        matrix_.reset(descriptor);
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        return std::make_unique<CusparseBsrScratch<T>>(matrix_.get(), rows_, cols_, arrays_.block_row_count() * choice_.block_rows,
                                                       block_cols_ * choice_.block_cols, context);
    }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        static_cast<CusparseBsrScratch<T>&>(scratch).run(a, x, b, y, partials);
    }
    std::int32_t partials() const override { return vector_blocks(rows_); }
    std::int64_t bytes() const override { return offsets_.bytes() + arrays_.bytes() - arrays_.offsets().bytes(); }
    std::string words() const override { return "cusparseSpMV of blocks by columns"; }

  private:
    SpmvChoice choice_;
    std::int64_t rows_;
    std::int64_t cols_;
    std::int64_t block_cols_ = 0;
    BlockArrays<T> arrays_;
    DeviceBuffer<std::int32_t> offsets_;
    MatrixDescriptor matrix_;
};

}  // namespace

template <class T>
std::unique_ptr<CsrProduct<T>> make_cusparse_bsr_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context) {
    return std::make_unique<CusparseBsrProduct<T>>(a, choice, context);
}
template std::unique_ptr<CsrProduct<double>> make_cusparse_bsr_product(const DeviceCsr<double>&, const SpmvChoice&, const CudaContext&);
template std::unique_ptr<CsrProduct<float>> make_cusparse_bsr_product(const DeviceCsr<float>&, const SpmvChoice&, const CudaContext&);

}  // namespace lsmr::cuda
