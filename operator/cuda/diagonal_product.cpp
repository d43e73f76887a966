// Products with A by diagonals, and with A in all its places.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/diagonal_kernels.hpp"
#include "operator/cuda/vector_kernels.hpp"
#include "operator/profile.hpp"

namespace lsmr::cuda {
namespace {

template <class T>
class DiagonalProduct final : public CsrProduct<T> {
  public:
    DiagonalProduct(const DeviceCsr<T>& a, const CudaContext& context) : nnz_(a.nnz) {
        const cudaStream_t stream = context.stream();
        const std::vector<std::int32_t> found = occupied_diagonals(a, context);
        if (static_cast<std::int64_t>(found.size()) > kDiagonalCap) {
            throw InputError(fmt::format("dia: the entries lie on {} diagonals, and at most {} are stored", found.size(), kDiagonalCap));
        }
        matrix_.rows = a.rows;
        matrix_.cols = a.cols;
        matrix_.count = static_cast<int>(found.size());
        matrix_.stride = (a.rows + 31) / 32 * 32;
        offsets_ = DeviceBuffer<std::int32_t>(context, matrix_.count);
        values_ = DeviceBuffer<T>(context, matrix_.count * matrix_.stride);
        if (!found.empty()) {
            LSMR_CHECK(cudaMemcpyAsync(offsets_.data(), found.data(), found.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice, stream));
            a.with_offsets([&](const auto* device) {
                launch_fill_diagonals(a.rows, device, a.columns->data(), a.values->data(), matrix_.count, offsets_.data(), matrix_.stride,
                                      values_.data(), stream);
            });
            context.synchronize();  // the list on the host goes
        }
        matrix_.offsets = offsets_.data();
        matrix_.values = values_.data();
        blocks_ = diagonal_blocks<T>(a.rows, context.multiprocessors());
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override { return std::make_unique<NoScratch>(context); }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        launch_diagonals(blocks_, matrix_, a, x, b, y, partials, static_cast<NoScratch&>(scratch).context.stream());
    }
    std::int32_t partials() const override { return blocks_; }
    std::int64_t bytes() const override { return offsets_.bytes() + values_.bytes(); }
    std::string words() const override {
        const double places = static_cast<double>(matrix_.rows) * matrix_.count;
        return fmt::format("{} diagonals, {:.1f} % of their places hold entries", matrix_.count,
                           places > 0 ? 100.0 * static_cast<double>(nnz_) / places : 100.0);
    }

  private:
    // Columns less rows, ascending.
    static std::vector<std::int32_t> occupied_diagonals(const DeviceCsr<T>& a, const CudaContext& context) {
        std::vector<std::int32_t> found;
        if (a.nnz == 0) return found;
        const std::int64_t all = a.rows + a.cols - 1;
        DeviceBuffer<std::uint8_t> occupied(context, all);
        LSMR_CHECK(cudaMemsetAsync(occupied.data(), 0, static_cast<std::size_t>(all), context.stream()));
        a.with_offsets([&](const auto* device) { launch_mark_diagonals(a.rows, device, a.columns->data(), occupied.data(), context.stream()); });
        HostBuffer<std::uint8_t> host(all);
        LSMR_CHECK(cudaMemcpyAsync(host.data(), occupied.data(), static_cast<std::size_t>(all), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        for (std::int64_t d = 0; d < all; ++d) {
            if (host[d] != 0) found.push_back(static_cast<std::int32_t>(d - (a.rows - 1)));
        }
        return found;
    }

    std::int64_t nnz_;
    int blocks_ = 1;
    DiagonalMatrix<T> matrix_;
    DeviceBuffer<std::int32_t> offsets_;
    DeviceBuffer<T> values_;
};

cublasStatus_t gemv(cublasHandle_t handle, int m, int n, const double* a, const double* matrix, const double* x, const double* b, double* y) {
    return cublasDgemv(handle, CUBLAS_OP_T, m, n, a, matrix, m, x, 1, b, y, 1);
}
cublasStatus_t gemv(cublasHandle_t handle, int m, int n, const float* a, const float* matrix, const float* x, const float* b, float* y) {
    return cublasSgemv(handle, CUBLAS_OP_T, m, n, a, matrix, m, x, 1, b, y, 1);
}

// Row by row, which is A^T by columns to cuBLAS. The handle of the context takes its scalars from the device and works in memory of the pool.
template <class T>
class DenseProduct final : public CsrProduct<T> {
  public:
    DenseProduct(const DeviceCsr<T>& a, const CudaContext& context) : rows_(a.rows), cols_(a.cols), nnz_(a.nnz) {
        if (a.cols > 0 && a.rows > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(T)) / a.cols) {
            throw InputError(fmt::format("dense: {} x {} values do not fit in memory", a.rows, a.cols));
        }
        values_ = DeviceBuffer<T>(context, a.rows * a.cols);
        if (values_.size() == 0) return;
        LSMR_CHECK(cudaMemsetAsync(values_.data(), 0, static_cast<std::size_t>(values_.bytes()), context.stream()));
        a.with_offsets([&](const auto* device) {
            launch_fill_dense(a.rows, a.cols, device, a.columns->data(), a.values->data(), values_.data(), context.stream());
        });
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        context.cublas();  // made now, not in a product
        return std::make_unique<NoScratch>(context);
    }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        const CudaContext& context = static_cast<NoScratch&>(scratch).context;
        if (values_.size() == 0) {
            launch_scale(rows_, b, y, partials, context.stream());  // cuBLAS would leave y as it is
            return;
        }
        LSMR_CHECK(gemv(context.cublas(), static_cast<int>(cols_), static_cast<int>(rows_), a.narrow, values_.data(), x, b.narrow, y));
        if (partials != nullptr) launch_norm(rows_, y, partials, context.stream());
    }
    std::int32_t partials() const override { return vector_blocks(rows_); }
    std::int64_t bytes() const override { return values_.bytes(); }
    std::string words() const override {
        const double places = static_cast<double>(rows_) * static_cast<double>(cols_);
        std::string words = fmt::format("cuBLAS, {:.1f} % of the places hold entries", places > 0 ? 100.0 * static_cast<double>(nnz_) / places : 100.0);
        if (static_cast<double>(nnz_) < places) words += "; a non-finite x reaches all rows, since the others are zeros";
        return words;
    }

  private:
    std::int64_t rows_;
    std::int64_t cols_;
    std::int64_t nnz_;
    DeviceBuffer<T> values_;
};

}  // namespace

template <class T>
std::unique_ptr<CsrProduct<T>> make_diagonal_product(const DeviceCsr<T>& a, const CudaContext& context) {
    return std::make_unique<DiagonalProduct<T>>(a, context);
}
template <class T>
std::unique_ptr<CsrProduct<T>> make_dense_product(const DeviceCsr<T>& a, const CudaContext& context) {
    return std::make_unique<DenseProduct<T>>(a, context);
}

#define LSMR_INSTANTIATE(T)                                                                                                         \
    template std::unique_ptr<CsrProduct<T>> make_diagonal_product(const DeviceCsr<T>&, const CudaContext&);      \
    template std::unique_ptr<CsrProduct<T>> make_dense_product(const DeviceCsr<T>&, const CudaContext&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
