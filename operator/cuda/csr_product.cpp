#include "operator/cuda/csr_product.hpp"

#include <fmt/format.h>

#include <utility>

#include "operator/cuda/row_kernels.hpp"

namespace lsmr::cuda {
namespace {

struct RowScratch final : ProductScratch {
    RowScratch(const CudaContext& of, std::int64_t pieces) : context(of), piece_sums(of, pieces) {}
    const CudaContext& context;
    DeviceBuffer<double> piece_sums;
};

template <class T>
class RowProduct final : public CsrProduct<T> {
  public:
    RowProduct(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context)
        : a_(a), team_(choice.threads), blocks_(row_blocks(team_, a.rows, context.multiprocessors())) {
        if (team_ == 32) segments_ = segment_launch(a.rows, a.nnz, context.multiprocessors());
    }
    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        return std::make_unique<RowScratch>(context, in_segments() ? segments_.segments * a_.rows : 0);
    }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<RowScratch&>(scratch);
        const cudaStream_t stream = mine.context.stream();
        a_.with_offsets([&](const auto* offsets) {
            using Offset = std::remove_const_t<std::remove_pointer_t<decltype(offsets)>>;
            const CsrDevice<T, Offset> matrix{a_.rows, offsets, a_.columns->data(), a_.values->data()};
            if (in_segments()) launch_segments(segments_, matrix, mine.piece_sums.data(), a, x, b, y, partials, stream);
            else launch_rows(team_, blocks_, matrix, a, x, b, y, partials, stream);
        });
    }
    std::int32_t partials() const override { return in_segments() ? segments_.finish_blocks : blocks_; }
    std::int64_t bytes() const override {
        return (a_.wide() ? a_.offsets64->bytes() : a_.offsets32->bytes()) + a_.columns->bytes() + a_.values->bytes();
    }
    std::string words() const override {
        if (in_segments()) return fmt::format("rows in {} segments, a warp each, {} blocks", segments_.segments, segments_.blocks);
        return fmt::format("{} of them a row, {} blocks", team_ == 1 ? "1 thread" : fmt::format("{} threads", team_), blocks_);
    }

  private:
    bool in_segments() const { return segments_.segments > 1; }

    DeviceCsr<T> a_;
    int team_;
    int blocks_;
    SegmentLaunch segments_;
};

}  // namespace

template <class T>
DeviceCsr<T>::DeviceCsr(const CudaContext& context, std::int64_t rows_, std::int64_t cols_, std::int64_t nnz_) : rows(rows_), cols(cols_), nnz(nnz_) {
    const std::int64_t padded = (nnz + 7) / 8 * 8;
    columns = std::make_shared<DeviceBuffer<std::int32_t>>(context, padded);
    values = std::make_shared<DeviceBuffer<T>>(context, padded);
    if (padded > nnz) {
        const auto rest = static_cast<std::size_t>(padded - nnz);
        LSMR_CHECK(cudaMemsetAsync(columns->data() + nnz, 0, rest * sizeof(std::int32_t), context.stream()));
        LSMR_CHECK(cudaMemsetAsync(values->data() + nnz, 0, rest * sizeof(T), context.stream()));
    }
    if (wide()) offsets64 = std::make_shared<DeviceBuffer<std::int64_t>>(context, rows + 1);
    else offsets32 = std::make_shared<DeviceBuffer<std::int32_t>>(context, rows + 1);
}

template <class T>
std::unique_ptr<CsrProduct<T>> make_csr_product(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice,
                                                const CudaContext& context) {
    switch (choice.kernel) {
        case SpmvKernel::rows: return std::make_unique<RowProduct<T>>(a, choice, context);
        case SpmvKernel::stream:
        case SpmvKernel::merge:
        case SpmvKernel::balanced: return make_stream_product(a, offsets, longest_row, choice, context);
        case SpmvKernel::window:
            // Its kernels count a row's entries in 32 bits, a warp ahead.
            if (longest_row > kMax32 - 64) {
                throw InputError(fmt::format("{} takes rows of up to {} entries; one of this matrix has {}", text(choice), kMax32 - 64, longest_row));
            }
            return make_window_product(a, choice, context);
        case SpmvKernel::sell:
        case SpmvKernel::ell:
        case SpmvKernel::hyb:
        case SpmvKernel::coo: return make_format_product(a, offsets, longest_row, choice, context);
        case SpmvKernel::cusparse_alg1:
        case SpmvKernel::cusparse_alg2:
        case SpmvKernel::cusparse_transposed: return make_cusparse_product(a, choice, context);
        case SpmvKernel::bsr:
        case SpmvKernel::bell: return make_block_product(a, choice, context);
        case SpmvKernel::dia: return make_diagonal_product(a, context);
        case SpmvKernel::dense: return make_dense_product(a, context);
        case SpmvKernel::cusparse_bsr: return make_cusparse_bsr_product(a, choice, context);
    }
    throw InternalError("make_csr_product: no such kernel");
}

#define LSMR_INSTANTIATE(T)   \
    template struct DeviceCsr<T>; \
    template std::unique_ptr<CsrProduct<T>> make_csr_product(const DeviceCsr<T>&, const HostOffsets&, std::int64_t, const SpmvChoice&, const CudaContext&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
