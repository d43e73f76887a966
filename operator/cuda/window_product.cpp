// A product by the window kernel: the shape, the cells, the arrays in their narrow forms.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/uploader.hpp"
#include "operator/cuda/window_kernels.hpp"

namespace lsmr::cuda {
namespace {

// Of a block's shared memory, without what the kernel has of its own.
std::int64_t room_bytes(const CudaContext& context) {
    int bytes = 0;
    LSMR_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.device()));
    return bytes - 1024;
}

template <class T>
struct WindowScratch final : ProductScratch {
    WindowScratch(const CudaContext& of, std::int64_t count) : context(of), sums(of, count) {}
    const CudaContext& context;
    DeviceBuffer<T> sums;
};

template <class V, class T>
class WindowProduct final : public CsrProduct<T> {
  public:
    WindowProduct(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context) : nnz_(a.nnz) {
        WindowPlan plan;
        plan.shape = choose_window_shape(a.rows, a.cols, a.nnz, static_cast<int>(sizeof(T)), choice.capacity, room_bytes(context), context.multiprocessors());
        if (plan.shape.panels == 0) throw InputError(fmt::format("{}: the shared memory of the GPU has no room for it", text(choice)));
        matrix_.shape = plan.shape;
        matrix_.rows = a.rows;
        a.with_offsets([&](const auto* device) { fill(a, device, plan, context); });
        launch_ = choose_window_launch<V, T>(plan, a.rows, context.multiprocessors());
        block_first_ = sent(plan.block_first, context);
        panel_leaves_ = sent(plan.panel_leaves, context);
        context.synchronize();  // the lists on the host go
        places_ = 32 * plan.steps;
        segments_ = 32 * plan.slices;
        sums_ = plan.direct ? 0 : std::int64_t{plan.panel_leaves.back()} * plan.shape.panel_rows;
        matrix_.direct = plan.direct;
        matrix_.cells = cells_.data();
        matrix_.shares = shares_.data();
        matrix_.block_first = block_first_.data();
        matrix_.values = values_.data();
        matrix_.columns = columns_.data();
        matrix_.rows_of = rows_of_.data();
        matrix_.panel_leaves = panel_leaves_.data();
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override { return std::make_unique<WindowScratch<T>>(context, sums_); }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<WindowScratch<T>&>(scratch);
        launch_window<V, T>(launch_, matrix_, mine.sums.data(), a, x, b, y, partials, mine.context.stream());
    }
    std::int32_t partials() const override { return launch_.partials(); }
    std::int64_t bytes() const override {
        return values_.bytes() + columns_.bytes() + rows_of_.bytes() + shares_.bytes() + cells_.bytes() + block_first_.bytes() + panel_leaves_.bytes();
    }
    std::string words() const override {
        const auto share = [&](std::int64_t whole) { return whole == 0 ? 100.0 : 100.0 * static_cast<double>(nnz_) / static_cast<double>(whole); };
        std::string words = fmt::format("{} panels of rows, {} windows of {} columns, {} blocks, {:.1f} entries a segment, "
                                        "{:.1f} % of the places filled",
                                        matrix_.shape.panels, matrix_.shape.windows, matrix_.shape.width, launch_.blocks, share(segments_) / 100,
                                        share(places_));
        if (std::is_same_v<V, Bf16>) words += ", values in bf16";
        else if (!std::is_same_v<V, T>) words += ", values in fp32";
        return words;
    }

  private:
    template <class Offset>
    void fill(const DeviceCsr<T>& a, const Offset* offsets, WindowPlan& plan, const CudaContext& context) {
        const std::int64_t shares = std::int64_t{plan.shape.panels} * plan.shape.windows * kWindowWarps;
        DeviceBuffer<std::int32_t> starts(context, a.rows * (std::int64_t{plan.shape.windows} + 1));
        DeviceBuffer<WindowCount> device_counts(context, shares);
        const WindowSource<Offset> source{a.rows, plan.shape, offsets, a.columns->data(), starts.data()};
        launch_window_starts(source, context.stream());
        launch_window_counts(source, device_counts.data(), context.stream());
        std::vector<WindowCount> counts(static_cast<std::size_t>(shares));
        download(context, device_counts.data(), shares, [to = counts.data()](std::int64_t i, WindowCount count) { to[i] = count; });
        deal_window_cells(counts, kWindowWarps, a.cols, context.multiprocessors(), plan);
        cells_ = sent(plan.cells, context);
        shares_ = sent(plan.shares, context);
        const DeviceBuffer<std::int32_t> numbers = sent(plan.numbers, context);
        values_ = DeviceBuffer<V>(context, 32 * plan.steps);
        columns_ = DeviceBuffer<std::uint16_t>(context, 128 * plan.groups);
        rows_of_ = DeviceBuffer<std::uint16_t>(context, 128 * (plan.row_groups + kRowGroupsAhead));
        LSMR_CHECK(cudaMemsetAsync(rows_of_.data(), 0xff, static_cast<std::size_t>(rows_of_.bytes()), context.stream()));
        DeviceBuffer<std::int32_t> slots(context, 4 * plan.row_groups), forms(context, 4 * plan.row_groups);
        launch_window_fill(source, static_cast<std::int32_t>(plan.cells.size()), numbers.data(), shares_.data(), a.values->data(), values_.data(),
                           columns_.data(), rows_of_.data(), slots.data(), forms.data(), context.stream());
    }

    std::int64_t nnz_;
    std::int64_t places_ = 0;
    std::int64_t segments_ = 0;  // lanes of all slices
    std::int64_t sums_ = 0;
    WindowLaunch launch_;
    WindowMatrix<V> matrix_;
    DeviceBuffer<V> values_;
    DeviceBuffer<std::uint16_t> columns_;
    DeviceBuffer<std::uint16_t> rows_of_;
    DeviceBuffer<WindowShare> shares_;
    DeviceBuffer<WindowCell> cells_;
    DeviceBuffer<std::int32_t> block_first_;
    DeviceBuffer<std::int32_t> panel_leaves_;
};

}  // namespace

template <class T>
std::unique_ptr<CsrProduct<T>> make_window_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context) {
    if (choice.values == ValueForm::bf16) return std::make_unique<WindowProduct<Bf16, T>>(a, choice, context);
    if (choice.values == ValueForm::fp32) return std::make_unique<WindowProduct<float, T>>(a, choice, context);
    return std::make_unique<WindowProduct<T, T>>(a, choice, context);
}
template std::unique_ptr<CsrProduct<double>> make_window_product(const DeviceCsr<double>&, const SpmvChoice&, const CudaContext&);
template std::unique_ptr<CsrProduct<float>> make_window_product(const DeviceCsr<float>&, const SpmvChoice&, const CudaContext&);

}  // namespace lsmr::cuda
