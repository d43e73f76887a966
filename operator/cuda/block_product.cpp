// Products with A in dense blocks: BSR and Blocked-ELL, converted on the device from CSR.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "operator/cuda/block_arrays.hpp"
#include "operator/cuda/block_plan.hpp"
#include "operator/cuda/csr_product.hpp"

namespace lsmr::cuda {
namespace {

template <class V, class T>
class BlockProduct final : public CsrProduct<T> {
  public:
    BlockProduct(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context)
        : choice_(choice), nnz_(a.nnz), arrays_(a, choice, EmptyPlaces::marked, context) {
        matrix_ = arrays_.matrix(a);
        const double blocks_per_row = matrix_.block_row_count > 0 ? static_cast<double>(arrays_.block_count()) / static_cast<double>(matrix_.block_row_count) : 0;
        const bool by_columns = choice.mapping == BlockMapping::columns;
        launch_ = choose_block_launch<V, T>(choice, matrix_.block_row_count, by_columns ? blocks_per_row * choice.block_cols : blocks_per_row,
                                            context.multiprocessors());
        if (launch_.kernel == nullptr) throw InputError(fmt::format("there is no kernel {} for these types of values and vectors", text(choice)));
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override { return std::make_unique<NoScratch>(context); }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        launch_blocks<V, T>(launch_, matrix_, a, x, b, y, partials, static_cast<NoScratch&>(scratch).context.stream());
    }
    std::int32_t partials() const override { return launch_.blocks; }
    std::int64_t bytes() const override { return arrays_.bytes(); }
    std::string words() const override {
        const double places = static_cast<double>(arrays_.block_count()) * choice_.block_rows * choice_.block_cols;
        std::string words = fmt::format("{} blocks, {:.1f} % of their places hold entries", arrays_.block_count(),
                                        places > 0 ? 100.0 * static_cast<double>(nnz_) / places : 100.0);
        words += choice_.mapping == BlockMapping::columns ? fmt::format(", {} columns at a time", launch_.groups)
                                                          : fmt::format(", {} at a time", launch_.groups);
        if (choice_.mapping == BlockMapping::columns && !has_block_kernel(choice_.block_rows, choice_.block_cols)) {
            words += ", by the general kernel: there is none of this size";
        }
        if (std::is_same_v<V, Bf16>) words += ", values in bf16";
        else if (!std::is_same_v<V, T>) words += ", values in fp32";
        return words;
    }

  private:
    SpmvChoice choice_;
    std::int64_t nnz_;
    BlockArrays<V> arrays_;
    BlockMatrix<V> matrix_;
    BlockLaunch<V, T> launch_;
};

}  // namespace

template <class V>
template <class T>
BlockArrays<V>::BlockArrays(const DeviceCsr<T>& a, const SpmvChoice& choice, EmptyPlaces empty, const CudaContext& context)
    : block_rows_(choice.block_rows), block_cols_(choice.block_cols), block_row_count_((a.rows + choice.block_rows - 1) / choice.block_rows) {
    const bool uniform = choice.kernel == SpmvKernel::bell;
    const cudaStream_t stream = context.stream();
    offsets_ = DeviceBuffer<std::int64_t>(context, block_row_count_ + 1);
    DeviceBuffer<int> unsorted(context, 1);
    LSMR_CHECK(cudaMemsetAsync(unsorted.data(), 0, sizeof(int), stream));
    a.with_offsets([&](const auto* device) {
        launch_count_blocks(a.rows, block_rows_, block_cols_, device, a.columns->data(), offsets_.data(), unsorted.data(), stream);
    });
    int host_unsorted = 0;
    LSMR_CHECK(cudaMemcpyAsync(&host_unsorted, unsorted.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
    if (uniform) {
        HostBuffer<std::int64_t> counts(block_row_count_ + 1);
        LSMR_CHECK(cudaMemcpyAsync(counts.data(), offsets_.data(), static_cast<std::size_t>(counts.bytes()), cudaMemcpyDeviceToHost, stream));
        context.synchronize();
        width_ = *std::max_element(counts.begin(), counts.end());
        block_count_ = width_ * block_row_count_;
        offsets_ = {};
    } else {
        const std::size_t scan_bytes = panel_scan_bytes<std::int64_t>(block_row_count_);
        DeviceBuffer<std::byte> scratch(context, static_cast<std::int64_t>(scan_bytes));
        launch_panel_offsets(block_row_count_, offsets_.data(), scratch.data(), scan_bytes, stream);
        LSMR_CHECK(cudaMemcpyAsync(&block_count_, offsets_.data() + block_row_count_, sizeof block_count_, cudaMemcpyDeviceToHost, stream));
        context.synchronize();
    }
    if (host_unsorted != 0) throw InputError(fmt::format("{} needs rows whose columns ascend; those of this matrix do not", text(choice)));
    columns_ = DeviceBuffer<std::int32_t>(context, block_count_);
    values_ = DeviceBuffer<V>(context, block_count_ * block_rows_ * block_cols_);
    if (block_count_ == 0) return;
    a.with_offsets([&](const auto* device) {
        launch_fill_blocks(a.rows, block_rows_, block_cols_, choice.order, empty, device, a.columns->data(), a.values->data(), offsets_.data(), width_,
                           columns_.data(), values_.data(), stream);
    });
}

template <class V>
std::int64_t BlockArrays<V>::bytes() const {
    return offsets_.bytes() + columns_.bytes() + values_.bytes();
}

template <class T>
std::unique_ptr<CsrProduct<T>> make_block_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context) {
    if (choice.values == ValueForm::bf16) return std::make_unique<BlockProduct<Bf16, T>>(a, choice, context);
    if (choice.values == ValueForm::fp32) return std::make_unique<BlockProduct<float, T>>(a, choice, context);
    return std::make_unique<BlockProduct<T, T>>(a, choice, context);
}

#define LSMR_INSTANTIATE(V, T) template BlockArrays<V>::BlockArrays(const DeviceCsr<T>&, const SpmvChoice&, EmptyPlaces, const CudaContext&);
LSMR_INSTANTIATE(double, double)
LSMR_INSTANTIATE(float, double)
LSMR_INSTANTIATE(Bf16, double)
LSMR_INSTANTIATE(float, float)
LSMR_INSTANTIATE(Bf16, float)
#undef LSMR_INSTANTIATE
template class BlockArrays<double>;
template class BlockArrays<float>;
template class BlockArrays<Bf16>;
template std::unique_ptr<CsrProduct<double>> make_block_product(const DeviceCsr<double>&, const SpmvChoice&, const CudaContext&);
template std::unique_ptr<CsrProduct<float>> make_block_product(const DeviceCsr<float>&, const SpmvChoice&, const CudaContext&);

}  // namespace lsmr::cuda
