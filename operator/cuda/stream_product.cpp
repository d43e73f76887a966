// A product by the stream kernel: the plan, the arrays in their narrow forms, the panels.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/pack_kernels.hpp"
#include "operator/cuda/stream_kernels.hpp"
#include "operator/cuda/uploader.hpp"

namespace lsmr::cuda {
namespace {

// A run of columns of the matrix, or all of it, as the kernel reads it.
template <class V, class T>
class StreamPart {
  public:
    StreamPart(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice, std::int64_t first_column,
               const CudaContext& context)
        : first_column_(first_column) {
        const bool merge = choice.kernel == SpmvKernel::merge;
        const StreamCut cut = choice.kernel == SpmvKernel::balanced || merge ? StreamCut::balanced : StreamCut::rows;
        const StreamOrder order = merge ? StreamOrder::merge : StreamOrder::rows;
        StreamPlan plan;
        offsets.with([&](const auto* host) { plan = make_stream_plan(a.rows, host, longest_row, choice.capacity, choice.threads, cut); });
        for (StreamItem& item : plan.items) {
            item.columns = static_cast<std::uint32_t>(item.begin / 8 * 2);
            if (merge) item.team = 0;  // long rows are like others
        }
        matrix_.item_count = static_cast<std::int32_t>(plan.items.size());
        matrix_.cut_row_count = static_cast<std::int32_t>(plan.cut_rows.size());
        matrix_.piece_count = static_cast<std::int32_t>(plan.piece_rows.size());
        launch_ = choose_stream_launch<V, T>({choice.threads, choice.capacity}, order, matrix_.item_count, matrix_.cut_row_count,
                                             context.multiprocessors());
        if (launch_.blocks == 0) throw InputError(fmt::format("there is no kernel {} for these types of values and vectors", text(choice)));
        cut_rows_ = sent(plan.cut_rows, context);
        piece_rows_ = sent(plan.piece_rows, context);
        items_ = sent(plan.items, context);
        row_starts_ = DeviceBuffer<std::uint16_t>(context, a.rows);
        a.with_offsets([&](const auto* device) { launch_row_starts(matrix_.item_count, items_.data(), device, row_starts_.data(), context.stream()); });
        if (choice.narrow_columns) narrow_columns(a, plan, context);
        if (packed_.size() == 0) columns_ = a.columns;
        if constexpr (std::is_same_v<V, T>) {
            values_ = a.values;
        } else {
            const std::int64_t padded = (a.nnz + 7) / 8 * 8;
            values_ = std::make_shared<DeviceBuffer<V>>(context, padded);
            launch_narrow_values(padded, a.values->data(), values_->data(), context.stream());
        }
        context.synchronize();  // the lists on the host go
        matrix_.items = items_.data();
        matrix_.row_starts = row_starts_.data();
        matrix_.columns = packed_.size() > 0 ? packed_.data() : reinterpret_cast<const std::byte*>(columns_->data());
        matrix_.values = values_->data();
        matrix_.cut_rows = cut_rows_.data();
        matrix_.piece_rows = piece_rows_.data();
    }

    void run(double* piece_sums, bool atomic, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, cudaStream_t stream) const {
        launch_stream<V, T>(launch_, matrix_, piece_sums, atomic, a, x + first_column_, b, y, partials, stream);
    }
    std::int32_t partials() const { return launch_.partials(); }
    std::int32_t pieces() const { return matrix_.piece_count; }
    std::int32_t cut_rows() const { return matrix_.cut_row_count; }
    std::int32_t items() const { return matrix_.item_count; }
    std::int32_t blocks() const { return launch_.blocks; }
    std::int64_t narrow_entries() const { return narrow_entries_; }
    std::int64_t bytes() const {
        return items_.bytes() + row_starts_.bytes() + cut_rows_.bytes() + piece_rows_.bytes() + packed_.bytes() + (columns_ ? columns_->bytes() : 0) +
               values_->bytes();
    }

  private:
    // 16 bits for the columns of every item whose span allows; where less than a quarter of the entries gains, the columns stay as they are.
    void narrow_columns(const DeviceCsr<T>& a, StreamPlan& plan, const CudaContext& context) {
        DeviceBuffer<ColumnSpan> device_spans(context, matrix_.item_count);
        launch_column_spans(matrix_.item_count, items_.data(), a.columns->data(), device_spans.data(), context.stream());
        HostBuffer<ColumnSpan> spans(matrix_.item_count);
        if (spans.size() > 0) {
            LSMR_CHECK(cudaMemcpyAsync(spans.data(), device_spans.data(), static_cast<std::size_t>(spans.bytes()), cudaMemcpyDeviceToHost, context.stream()));
        }
        context.synchronize();
        std::vector<StreamItem> items = plan.items;
        std::int64_t place = 0;  // in units of 16 bytes
        for (std::size_t i = 0; i < items.size(); ++i) {
            const ColumnSpan span = spans[static_cast<std::int64_t>(i)];
            StreamItem& item = items[i];
            const bool narrow = span.most >= span.least && static_cast<std::int64_t>(span.most) - span.least < (1 << 16);
            if (narrow) {
                item.flags |= kNarrowColumns;
                item.column_base = span.least;
                narrow_entries_ += item.count;
            }
            item.columns = static_cast<std::uint32_t>(place);
            const std::int64_t groups = (item.begin % 8 + item.count + 7) / 8;
            place += groups * (narrow ? 1 : 2);
        }
        if (narrow_entries_ < a.nnz / 4 + 1) {
            narrow_entries_ = 0;
            return;
        }
        plan.items = std::move(items);
        LSMR_CHECK(cudaMemcpyAsync(items_.data(), plan.items.data(), plan.items.size() * sizeof(StreamItem), cudaMemcpyHostToDevice, context.stream()));
        packed_ = DeviceBuffer<std::byte>(context, place * 16);
        launch_pack_columns(matrix_.item_count, items_.data(), a.columns->data(), packed_.data(), context.stream());
    }

    StreamLaunch launch_;
    std::int64_t first_column_;
    std::int64_t narrow_entries_ = 0;
    StreamMatrix<V> matrix_;
    DeviceBuffer<StreamItem> items_;
    DeviceBuffer<std::uint16_t> row_starts_;
    DeviceBuffer<CutRow> cut_rows_;
    DeviceBuffer<std::int32_t> piece_rows_;
    DeviceBuffer<std::byte> packed_;
    std::shared_ptr<DeviceBuffer<std::int32_t>> columns_;  // where not packed
    std::shared_ptr<DeviceBuffer<V>> values_;
};

// One after the other on the stream: the panels of a product share nothing but y.
struct StreamProductScratch final : ProductScratch {
    StreamProductScratch(const CudaContext& of, std::int64_t pieces) : context(of), piece_sums(of, pieces) {
        if (pieces > 0) LSMR_CHECK(cudaMemsetAsync(piece_sums.data(), 0, static_cast<std::size_t>(piece_sums.bytes()), of.stream()));
    }
    const CudaContext& context;
    DeviceBuffer<double> piece_sums;
};

template <class V, class T>
class StreamProduct final : public CsrProduct<T> {
  public:
    StreamProduct(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice, const CudaContext& context)
        : atomic_(choice.atomic), nnz_(a.nnz), one_(context, 1) {
        const Coefficient<T> one{1, 1};
        LSMR_CHECK(cudaMemcpyAsync(one_.data(), &one, sizeof one, cudaMemcpyHostToDevice, context.stream()));
        if (choice.panels == 1) parts_.emplace_back(a, offsets, longest_row, choice, 0, context);
        else a.with_offsets([&](const auto* device) { make_panels(a, device, longest_row, choice, context); });
        context.synchronize();
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        std::int64_t pieces = 0;
        for (const Part& part : parts_) pieces = std::max<std::int64_t>(pieces, part.pieces());
        return std::make_unique<StreamProductScratch>(context, pieces);
    }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<StreamProductScratch&>(scratch);
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            const bool last = p + 1 == parts_.size();
            parts_[p].run(mine.piece_sums.data(), atomic_, a, x, p == 0 ? b : Scalar<T>(one_.data()), y, last ? partials : nullptr, mine.context.stream());
        }
    }
    std::int32_t partials() const override { return parts_.back().partials(); }
    std::int64_t bytes() const override {
        std::int64_t bytes = 0;
        for (const Part& part : parts_) bytes += part.bytes();
        return bytes;
    }
    std::string words() const override {
        std::int64_t items = 0, cut_rows = 0, narrow = 0;
        for (const Part& part : parts_) {
            items += part.items();
            cut_rows += part.cut_rows();
            narrow += part.narrow_entries();
        }
        std::string words = fmt::format("{} items, {} blocks", items, parts_.back().blocks());
        if (cut_rows > 0) words += fmt::format(", {} rows cut", cut_rows);
        if (narrow > 0) words += fmt::format(", 16-bit columns for {:.0f} % of the entries", 100.0 * static_cast<double>(narrow) / static_cast<double>(nnz_));
        if (std::is_same_v<V, Bf16>) words += ", values in bf16";
        else if (!std::is_same_v<V, T>) words += ", values in fp32";
        return words;
    }

  private:
    using Part = StreamPart<V, T>;

    template <class Offset>
    void make_panels(const DeviceCsr<T>& a, const Offset* offsets, std::int64_t longest_row, const SpmvChoice& choice, const CudaContext& context) {
        const auto width = static_cast<std::int32_t>(std::max<std::int64_t>((a.cols + choice.panels - 1) / choice.panels, 1));
        const std::int64_t stride = a.rows + 1;
        DeviceBuffer<Offset> counts(context, stride * choice.panels);
        launch_panel_counts(a.rows, choice.panels, width, offsets, a.columns->data(), counts.data(), context.stream());
        const std::size_t scan_bytes = panel_scan_bytes<Offset>(a.rows);
        DeviceBuffer<std::byte> scratch(context, static_cast<std::int64_t>(scan_bytes));
        HostBuffer<Offset> host(stride);
        for (int p = 0; p < choice.panels; ++p) {
            Offset* panel_offsets = counts.data() + p * stride;
            launch_panel_offsets(a.rows, panel_offsets, scratch.data(), scan_bytes, context.stream());
            LSMR_CHECK(cudaMemcpyAsync(host.data(), panel_offsets, static_cast<std::size_t>(host.bytes()), cudaMemcpyDeviceToHost, context.stream()));
            context.synchronize();
            // Of the same offset width as the whole.
            const auto nnz = static_cast<std::int64_t>(host[a.rows]);
            DeviceCsr<T> panel(context, a.rows, std::min<std::int64_t>(width, std::max<std::int64_t>(a.cols - std::int64_t{p} * width, 0)), nnz);
            HostOffsets host_offsets;
            if constexpr (sizeof(Offset) == 4) {
                host_offsets.narrow = host.data();
                LSMR_CHECK(cudaMemcpyAsync(panel.offsets32->data(), panel_offsets, static_cast<std::size_t>(host.bytes()), cudaMemcpyDeviceToDevice,
                                           context.stream()));
            } else {
                host_offsets.wide = host.data();
                if (!panel.wide()) {
                    // A panel of a large matrix that is small itself.
                    HostBuffer<std::int32_t> narrow(stride);
                    for (std::int64_t i = 0; i < stride; ++i) narrow[i] = static_cast<std::int32_t>(host[i]);
                    LSMR_CHECK(cudaMemcpyAsync(panel.offsets32->data(), narrow.data(), static_cast<std::size_t>(narrow.bytes()),
                                               cudaMemcpyHostToDevice, context.stream()));
                    context.synchronize();
                } else {
                    LSMR_CHECK(cudaMemcpyAsync(panel.offsets64->data(), panel_offsets, static_cast<std::size_t>(host.bytes()),
                                               cudaMemcpyDeviceToDevice, context.stream()));
                }
            }
            launch_panel_scatter(a.rows, p, width, offsets, a.columns->data(), a.values->data(), panel_offsets, panel.columns->data(),
                                 panel.values->data(), context.stream());
            parts_.emplace_back(panel, host_offsets, longest_row, choice, std::int64_t{p} * width, context);
        }
    }

    bool atomic_;
    std::int64_t nnz_;
    DeviceBuffer<Coefficient<T>> one_;
    std::vector<Part> parts_;
};

}  // namespace

template <class T>
std::unique_ptr<CsrProduct<T>> make_stream_product(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice,
                                                   const CudaContext& context) {
    if (choice.values == ValueForm::bf16) return std::make_unique<StreamProduct<Bf16, T>>(a, offsets, longest_row, choice, context);
    if (choice.values == ValueForm::fp32) return std::make_unique<StreamProduct<float, T>>(a, offsets, longest_row, choice, context);
    return std::make_unique<StreamProduct<T, T>>(a, offsets, longest_row, choice, context);
}
template std::unique_ptr<CsrProduct<double>> make_stream_product(const DeviceCsr<double>&, const HostOffsets&, std::int64_t, const SpmvChoice&,
                                                                 const CudaContext&);
template std::unique_ptr<CsrProduct<float>> make_stream_product(const DeviceCsr<float>&, const HostOffsets&, std::int64_t, const SpmvChoice&,
                                                                const CudaContext&);

}  // namespace lsmr::cuda
