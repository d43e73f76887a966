// Products with A in dense blocks: BSR and Blocked-ELL, converted on the device from CSR.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "operator/cuda/block_arrays.hpp"
#include "operator/cuda/block_plan.hpp"
#include "operator/cuda/block_stream_kernels.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/uploader.hpp"

namespace lsmr::cuda {
namespace {

// How full the blocks are and the lanes are, of BSR and Blocked-ELL by any mapping.
template <class V, class T>
std::string block_words(const SpmvChoice& choice, std::int64_t nnz, std::int64_t blocks, double idle, const std::string& how) {
    const double places = static_cast<double>(blocks) * choice.block_rows * choice.block_cols;
    std::string words = fmt::format("{} blocks, {:.1f} % of their places hold entries, {}, {:.0f} % of the lanes idle", blocks,
                                    places > 0 ? 100.0 * static_cast<double>(nnz) / places : 100.0, how, 100 * idle);
    if (choice.mapping != BlockMapping::blocks && !has_block_kernel(choice.block_rows, choice.block_cols)) {
        words += ", by the general kernel: there is none of this size";
    }
    if (std::is_same_v<V, Bf16>) words += ", values in bf16";
    else if (!std::is_same_v<V, T>) words += ", values in fp32";
    return words;
}

// By columns or by blocks, straight from global memory.
template <class T>
class BlockProduct final : public CsrProduct<T> {
  public:
    BlockProduct(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context)
        : choice_(choice), nnz_(a.nnz), arrays_(a, choice, EmptyPlaces::marked, context) {
        matrix_ = arrays_.matrix(a);
        const double blocks_per_row = matrix_.block_row_count > 0 ? static_cast<double>(arrays_.block_count()) / static_cast<double>(matrix_.block_row_count) : 0;
        const int units = choice.mapping == BlockMapping::columns ? choice.block_cols : 1;
        launch_ = choose_block_launch<T>(choice, matrix_.block_row_count, blocks_per_row * units, context.multiprocessors());
        const HostBuffer<std::int64_t> offsets = arrays_.host_offsets(context);
        idle_ = direct_lane_steps(matrix_.block_row_count, offsets.data(), launch_.unit_lanes, launch_.groups, units).idle();
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override { return std::make_unique<NoScratch>(context); }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        launch_blocks<T>(launch_, matrix_, a, x, b, y, partials, static_cast<NoScratch&>(scratch).context.stream());
    }
    std::int32_t partials() const override { return launch_.blocks; }
    std::int64_t bytes() const override { return arrays_.bytes(); }
    std::optional<double> idle_lanes() const override { return idle_; }
    std::string words() const override {
        const char* units = choice_.mapping == BlockMapping::columns ? "columns " : "";
        return block_words<T, T>(choice_, nnz_, arrays_.block_count(), idle_, fmt::format("{} {}at a time", launch_.groups, units));
    }

  private:
    SpmvChoice choice_;
    std::int64_t nnz_;
    BlockArrays<T> arrays_;
    BlockMatrix<T> matrix_;
    BlockLaunch<T> launch_;
    double idle_ = 0;
};

struct BlockStreamScratch final : ProductScratch {
    BlockStreamScratch(const CudaContext& of, std::int64_t sums) : context(of), piece_sums(of, sums) {}
    const CudaContext& context;
    DeviceBuffer<double> piece_sums;
};

// By items, through shared memory.
template <class V, class T>
class BlockStreamProduct final : public CsrProduct<T> {
  public:
    BlockStreamProduct(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context)
        : choice_(choice), nnz_(a.nnz), arrays_(a, choice, EmptyPlaces::marked, context) {
        const BlockStreamShape shape = block_stream_shape(choice.block_rows, choice.block_cols, sizeof(V));
        matrix_.blocks = arrays_.matrix(a);
        const HostBuffer<std::int64_t> offsets = arrays_.host_offsets(context);
        std::int64_t longest = 0;
        for (std::int64_t row = 0; row < matrix_.blocks.block_row_count; ++row) longest = std::max(longest, offsets[row + 1] - offsets[row]);
        matrix_.capacity = static_cast<std::int32_t>(block_stream_capacity(choice.block_rows, choice.block_cols, sizeof(V), longest));
        const BlockPlan plan = make_block_plan(a.rows, matrix_.blocks.block_row_count, offsets.data(), shape, matrix_.capacity);
        arrays_.forget_offsets();
        matrix_.blocks.offsets = nullptr;
        piece_sums_ = plan.piece_sums;
        idle_ = stream_lane_steps(plan, shape).idle();
        items_ = sent(plan.items, context);
        starts_ = sent(plan.starts, context);
        cut_rows_ = sent(plan.cut_rows, context);
        context.synchronize();  // the lists on the host go
        matrix_.items = items_.data();
        matrix_.item_count = static_cast<std::int32_t>(items_.size());
        matrix_.starts = starts_.data();
        matrix_.cut_rows = cut_rows_.data();
        matrix_.cut_row_count = static_cast<std::int32_t>(cut_rows_.size());
        launch_ = choose_block_stream_launch<V, T>(matrix_, context.multiprocessors());
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        return std::make_unique<BlockStreamScratch>(context, piece_sums_);
    }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<BlockStreamScratch&>(scratch);
        launch_block_stream<V, T>(launch_, matrix_, mine.piece_sums.data(), a, x, b, y, partials, mine.context.stream());
    }
    std::int32_t partials() const override { return launch_.partials(); }
    std::int64_t bytes() const override { return arrays_.bytes() + items_.bytes() + starts_.bytes() + cut_rows_.bytes(); }
    std::optional<double> idle_lanes() const override { return idle_; }
    std::string words() const override {
        std::string how = fmt::format("{} items", matrix_.item_count);
        if (matrix_.cut_row_count > 0) how += fmt::format(", {} rows cut", matrix_.cut_row_count);
        return block_words<V, T>(choice_, nnz_, arrays_.block_count(), idle_, how);
    }

  private:
    SpmvChoice choice_;
    std::int64_t nnz_;
    BlockArrays<V> arrays_;
    BlockStream<V> matrix_;
    DeviceBuffer<BlockItem> items_;
    DeviceBuffer<std::uint16_t> starts_;
    DeviceBuffer<CutRow> cut_rows_;
    BlockStreamLaunch<V, T> launch_;
    std::int64_t piece_sums_ = 0;
    double idle_ = 0;
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
        const HostBuffer<std::int64_t> counts = host_offsets(context);
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
    const auto whole_groups = [](std::int64_t count, std::int64_t bytes) { return (count + 16 / bytes - 1) / (16 / bytes) * (16 / bytes); };
    columns_ = DeviceBuffer<std::int32_t>(context, whole_groups(block_count_, sizeof(std::int32_t)));
    values_ = DeviceBuffer<V>(context, whole_groups(block_count_ * block_rows_ * block_cols_, sizeof(V)));
    if (block_count_ == 0) return;
    // The rest of the last 16 bytes is copied with them, though nothing uses it.
    const auto clear_rest = [&](auto& buffer, std::int64_t used) {
        const std::int64_t rest = buffer.size() - used;
        if (rest > 0) LSMR_CHECK(cudaMemsetAsync(buffer.data() + used, 0, static_cast<std::size_t>(rest) * sizeof(*buffer.data()), stream));
    };
    clear_rest(columns_, block_count_);
    clear_rest(values_, block_count_ * block_rows_ * block_cols_);
    a.with_offsets([&](const auto* device) {
        launch_fill_blocks(a.rows, block_rows_, block_cols_, choice.order, empty, device, a.columns->data(), a.values->data(), offsets_.data(), width_,
                           columns_.data(), values_.data(), stream);
    });
}

template <class V>
HostBuffer<std::int64_t> BlockArrays<V>::host_offsets(const CudaContext& context) const {
    HostBuffer<std::int64_t> host(block_row_count_ + 1);
    if (offsets_.size() > 0) {
        LSMR_CHECK(cudaMemcpyAsync(host.data(), offsets_.data(), static_cast<std::size_t>(host.bytes()), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
    } else {
        for (std::int64_t row = 0; row <= block_row_count_; ++row) host[row] = row * width_;
    }
    return host;
}

template <class V>
std::int64_t BlockArrays<V>::bytes() const {
    return offsets_.bytes() + columns_.bytes() + values_.bytes();
}

template <class T>
std::unique_ptr<CsrProduct<T>> make_block_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context) {
    if (choice.mapping != BlockMapping::stream) return std::make_unique<BlockProduct<T>>(a, choice, context);
    if (choice.values == ValueForm::bf16) return std::make_unique<BlockStreamProduct<Bf16, T>>(a, choice, context);
    if (choice.values == ValueForm::fp32) return std::make_unique<BlockStreamProduct<float, T>>(a, choice, context);
    return std::make_unique<BlockStreamProduct<T, T>>(a, choice, context);
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
