// Products with the formats that keep arrays of their own: SELL-32-sigma, ELL, HYB, COO. Each is made on the device from CSR, which goes then.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/cuda/coo_kernels.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/padded_kernels.hpp"
#include "operator/cuda/uploader.hpp"
#include "operator/formats/row_plans.hpp"

namespace lsmr::cuda {
namespace {

template <class V, class T>
std::string value_words() {
    if (std::is_same_v<V, T>) return {};
    return std::is_same_v<V, Bf16> ? ", values in bf16" : ", values in fp32";
}

double share(std::int64_t part, std::int64_t whole) { return whole == 0 ? 100.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole); }

// The sums of rows that a product cuts; zero at first.
struct FormatScratch : ProductScratch {
    FormatScratch(const CudaContext& of, std::int64_t pieces) : context(of), piece_sums(of, pieces) {
        if (pieces > 0) LSMR_CHECK(cudaMemsetAsync(piece_sums.data(), 0, static_cast<std::size_t>(piece_sums.bytes()), of.stream()));
    }
    const CudaContext& context;
    DeviceBuffer<double> piece_sums;
};

template <class V, class T>
class SellProduct final : public CsrProduct<T> {
  public:
    SellProduct(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice, const CudaContext& context)
        : nnz_(a.nnz) {
        SellPlan plan;
        offsets.with([&](const auto* host) { plan = make_sell_plan(a.rows, host, choice.sigma); });
        check_padding(choice, plan.places(), a.nnz, longest_row);
        places_ = plan.places();
        sorted_ = !plan.order.empty();
        offsets_ = sent(plan.offsets, context);
        order_ = DeviceBuffer<std::uint16_t>(context, plan.order.size());
        Uploader(context).fill(order_.data(), plan.order.size(), [&](std::int64_t place) { return plan.order[place]; });
        matrix_.rows = a.rows;
        matrix_.slices = plan.slices();
        matrix_.offsets = offsets_.data();
        matrix_.order = order_.data();
        matrix_.sigma = plan.sigma;
        a.with_offsets([&](const auto* device) {
            if (choice.narrow_columns) narrow_columns(a, device, plan, context);
            if (columns_.size() == 0) columns_ = DeviceBuffer<std::byte>(context, 4 * places_);
            values_ = DeviceBuffer<V>(context, places_);
            launch_fill_sell(matrix_, device, a.columns->data(), a.values->data(), values_.data(), columns_.data(), context.stream());
        });
        matrix_.values = values_.data();
        matrix_.columns = columns_.data();
        blocks_ = padded_blocks(matrix_.slices, kMaxPartials / 2);
        context.synchronize();  // the lists on the host go
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override { return std::make_unique<FormatScratch>(context, 0); }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        launch_sell(blocks_, matrix_, a, x, b, y, partials, static_cast<FormatScratch&>(scratch).context.stream());
    }
    std::int32_t partials() const override { return blocks_; }
    std::int64_t bytes() const override {
        return offsets_.bytes() + order_.bytes() + columns_.bytes() + column_places_.bytes() + column_bases_.bytes() + values_.bytes();
    }
    std::string words() const override {
        std::string words = fmt::format("{} slices, {:.1f} % of the places filled, {}", matrix_.slices, share(nnz_, places_),
                                        sorted_ ? fmt::format("rows sorted within {}", matrix_.sigma) : std::string("rows in their order"));
        if (narrow_places_ > 0) words += fmt::format(", 16-bit columns for {:.0f} % of the places", share(narrow_places_, places_));
        return words + value_words<V, T>();
    }

  private:
    // 16 bits for the columns of every slice whose span leaves a value for padding; where less than a quarter of the places gains, none.
    template <class Offset>
    void narrow_columns(const DeviceCsr<T>& a, const Offset* offsets, const SellPlan& plan, const CudaContext& context) {
        DeviceBuffer<ColumnSpan> device_spans(context, plan.slices());
        launch_slice_spans(matrix_, offsets, a.columns->data(), device_spans.data(), context.stream());
        std::vector<ColumnSpan> spans(static_cast<std::size_t>(plan.slices()));
        if (!spans.empty()) {
            LSMR_CHECK(cudaMemcpyAsync(spans.data(), device_spans.data(), spans.size() * sizeof(ColumnSpan), cudaMemcpyDeviceToHost, context.stream()));
        }
        context.synchronize();
        std::vector<std::uint32_t> places(spans.size());
        std::vector<std::int32_t> bases(spans.size());
        std::int64_t place = 0;  // in units of 32 columns of 16 bits
        for (std::size_t s = 0; s < spans.size(); ++s) {
            const std::int64_t width = plan.offsets[s + 1] - plan.offsets[s];
            const bool narrow = spans[s].most >= spans[s].least && static_cast<std::int64_t>(spans[s].most) - spans[s].least < 0xffff;
            bases[s] = narrow ? spans[s].least : -1;
            if (narrow) narrow_places_ += kSliceRows * width;
            places[s] = static_cast<std::uint32_t>(place);
            place += width * (narrow ? 1 : 2);
        }
        if (narrow_places_ < places_ / 4 + 1 || place > std::int64_t{UINT32_MAX}) {
            narrow_places_ = 0;
            return;
        }
        column_places_ = sent(places, context);
        column_bases_ = sent(bases, context);
        columns_ = DeviceBuffer<std::byte>(context, 64 * place);
        matrix_.column_places = column_places_.data();
        matrix_.column_bases = column_bases_.data();
        context.synchronize();
    }

    std::int64_t nnz_;
    std::int64_t places_ = 0;
    std::int64_t narrow_places_ = 0;
    bool sorted_ = false;
    std::int32_t blocks_ = 0;
    SellDevice<V> matrix_;
    DeviceBuffer<std::uint32_t> offsets_;
    DeviceBuffer<std::uint16_t> order_;
    DeviceBuffer<std::byte> columns_;
    DeviceBuffer<std::uint32_t> column_places_;
    DeviceBuffer<std::int32_t> column_bases_;
    DeviceBuffer<V> values_;
};

// The first `width` entries of each row, in ELL.
template <class V, class T>
class EllPart {
  public:
    EllPart(const DeviceCsr<T>& a, std::int64_t width, std::int32_t most_blocks, const CudaContext& context) {
        matrix_.rows = a.rows;
        matrix_.stride = kSliceRows * slices_of(a.rows);
        matrix_.width = width;
        values_ = DeviceBuffer<V>(context, places());
        columns_ = DeviceBuffer<std::int32_t>(context, places());
        a.with_offsets([&](const auto* device) {
            launch_fill_ell(matrix_, device, a.columns->data(), a.values->data(), values_.data(), columns_.data(), context.stream());
        });
        matrix_.values = values_.data();
        matrix_.columns = columns_.data();
        blocks_ = padded_blocks(slices_of(a.rows), most_blocks);
    }
    void mark_rows_with(const std::vector<std::int64_t>& rest, const CudaContext& context) {
        std::vector<std::uint32_t> words(static_cast<std::size_t>(slices_of(matrix_.rows)));
        for (std::size_t i = 0; i + 1 < rest.size(); ++i) {
            if (rest[i + 1] > rest[i]) words[i / 32] |= std::uint32_t{1} << i % 32;
        }
        with_rest_ = sent(words, context);
        matrix_.with_rest = with_rest_.data();
        context.synchronize();
    }
    void run(const T* rest, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, cudaStream_t stream) const {
        launch_ell(blocks_, matrix_, rest, a, x, b, y, partials, stream);
    }
    std::int64_t places() const { return matrix_.stride * matrix_.width; }
    std::int32_t partials() const { return blocks_; }
    std::int64_t bytes() const { return values_.bytes() + columns_.bytes() + with_rest_.bytes(); }

  private:
    EllDevice<V> matrix_;
    std::int32_t blocks_ = 0;
    DeviceBuffer<V> values_;
    DeviceBuffer<std::int32_t> columns_;
    DeviceBuffer<std::uint32_t> with_rest_;
};

// The entries of each row beyond the first `width`, in COO; width 0: all of them, and then columns and values are those of CSR where their
// form is the same.
template <class V, class T>
class CooPart {
  public:
    template <class Place>
    CooPart(const DeviceCsr<T>& a, std::int64_t width, const Place* host_places, std::int32_t most_blocks, const CudaContext& context) {
        const CooPlan plan = make_coo_plan(a.rows, host_places);
        const std::int64_t padded = (plan.entries + 7) / 8 * 8;
        rows_ = DeviceBuffer<std::int32_t>(context, padded);
        const bool share_columns = width == 0;
        const bool share_values = width == 0 && std::is_same_v<V, T>;
        columns_ = share_columns ? a.columns : std::make_shared<DeviceBuffer<std::int32_t>>(context, padded);
        if constexpr (std::is_same_v<V, T>) values_ = share_values ? a.values : std::make_shared<DeviceBuffer<V>>(context, padded);
        else values_ = std::make_shared<DeviceBuffer<V>>(context, padded);
        const auto fill = [&](const auto* offsets, const auto* places) {
            launch_fill_coo(a.rows, offsets, width, places, plan.entries, a.columns->data(), a.values->data(), rows_.data(),
                            share_columns ? nullptr : columns_->data(), share_values ? nullptr : values_->data(), context.stream());
        };
        a.with_offsets([&](const auto* offsets) {
            if (width == 0) {
                fill(offsets, offsets);
            } else {
                const DeviceBuffer<std::int64_t> places = sent(std::vector<std::int64_t>(host_places, host_places + a.rows + 1), context);
                fill(offsets, places.data());
                context.synchronize();
            }
        });
        cut_rows_ = sent(plan.cut_rows, context);
        piece_rows_ = sent(plan.piece_rows, context);
        matrix_ = {plan.entries, plan.chunk_entries, plan.chunks, rows_.data(), columns_->data(), values_->data(), cut_rows_.data(),
                   static_cast<std::int32_t>(plan.cut_rows.size()), piece_rows_.data()};
        launch_ = choose_coo_launch(plan.chunks, matrix_.cut_row_count, most_blocks);
        context.synchronize();  // the lists on the host go
    }
    void run(double* piece_sums, bool atomic, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, cudaStream_t stream) const {
        launch_coo(launch_, matrix_, piece_sums, atomic, a, x, b, y, partials, stream);
    }
    std::int64_t entries() const { return matrix_.entries; }
    std::int64_t pieces() const { return 2 * matrix_.chunks; }
    std::int32_t cut_rows() const { return matrix_.cut_row_count; }
    std::int32_t partials() const { return launch_.partials(); }
    std::int64_t bytes() const { return rows_.bytes() + columns_->bytes() + values_->bytes() + cut_rows_.bytes() + piece_rows_.bytes(); }

  private:
    CooDevice<V> matrix_;
    CooLaunch launch_;
    DeviceBuffer<std::int32_t> rows_;
    std::shared_ptr<DeviceBuffer<std::int32_t>> columns_;
    std::shared_ptr<DeviceBuffer<V>> values_;
    DeviceBuffer<CutRow> cut_rows_;
    DeviceBuffer<std::int32_t> piece_rows_;
};

template <class V, class T>
class EllProduct final : public CsrProduct<T> {
  public:
    EllProduct(const DeviceCsr<T>& a, std::int64_t longest_row, const CudaContext& context)
        : nnz_(a.nnz), width_(longest_row), part_(a, longest_row, kMaxPartials / 2, context) {
        context.synchronize();
    }
    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override { return std::make_unique<FormatScratch>(context, 0); }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        part_.run(nullptr, a, x, b, y, partials, static_cast<FormatScratch&>(scratch).context.stream());
    }
    std::int32_t partials() const override { return part_.partials(); }
    std::int64_t bytes() const override { return part_.bytes(); }
    std::string words() const override {
        return fmt::format("width {}, {:.1f} % of the places filled", width_, share(nnz_, part_.places())) + value_words<V, T>();
    }

  private:
    std::int64_t nnz_;
    std::int64_t width_;
    EllPart<V, T> part_;
};

// The sums of what COO holds first, by row; the ELL part adds them to its own, so that a coefficient multiplies the sum of all entries: parts of unlike
// sign, each times an infinite coefficient, would add up to NaN.
template <class V, class T>
class HybProduct final : public CsrProduct<T> {
  public:
    HybProduct(const DeviceCsr<T>& a, std::int64_t width, const std::vector<std::int64_t>& rest, const SpmvChoice& choice, const CudaContext& context)
        : atomic_(choice.atomic), width_words_(hyb_width_words(width, choice.quantile)), ell_(a, width, kMaxPartials / 2, context),
          coo_(a, width, rest.data(), kMaxPartials / 2, context), one_and_zero_(context, 2), rows_(a.rows) {
        const Coefficient<T> host[2] = {{1, 1}, {0, 0}};
        LSMR_CHECK(cudaMemcpyAsync(one_and_zero_.data(), host, sizeof host, cudaMemcpyHostToDevice, context.stream()));
        if (coo_.entries() > 0) ell_.mark_rows_with(rest, context);
        context.synchronize();
    }
    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        return std::make_unique<Scratch>(context, coo_.pieces(), coo_.entries() > 0 ? rows_ : 0);
    }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<Scratch&>(scratch);
        coo_.run(mine.piece_sums.data(), atomic_, one_and_zero_.data(), x, one_and_zero_.data() + 1, mine.rest.data(), nullptr, mine.context.stream());
        ell_.run(mine.rest.data(), a, x, b, y, partials, mine.context.stream());
    }
    std::int32_t partials() const override { return ell_.partials(); }
    std::int64_t bytes() const override { return ell_.bytes() + coo_.bytes() + one_and_zero_.bytes(); }
    std::string words() const override {
        return fmt::format("ELL of width {}, {} places; {} entries in COO, {} rows cut", width_words_, ell_.places(), coo_.entries(), coo_.cut_rows()) +
               value_words<V, T>();
    }

  private:
    struct Scratch final : FormatScratch {
        Scratch(const CudaContext& of, std::int64_t pieces, std::int64_t rows) : FormatScratch(of, pieces), rest(of, rows) {}
        DeviceBuffer<T> rest;  // by row; only rows that have one are written and read
    };

    bool atomic_;
    std::string width_words_;
    EllPart<V, T> ell_;
    CooPart<V, T> coo_;
    DeviceBuffer<Coefficient<T>> one_and_zero_;
    std::int64_t rows_;
};

template <class V, class T>
class CooProduct final : public CsrProduct<T> {
  public:
    template <class Offset>
    CooProduct(const DeviceCsr<T>& a, const Offset* offsets, const SpmvChoice& choice, const CudaContext& context)
        : atomic_(choice.atomic), part_(a, 0, offsets, kMaxPartials / 2, context) {
        std::vector<std::int32_t> empty;
        for (std::int64_t i = 0; i < a.rows; ++i) {
            if (offsets[i] == offsets[i + 1]) empty.push_back(static_cast<std::int32_t>(i));
        }
        empty_rows_ = sent(empty, context);
        scale_blocks_ = scale_rows_blocks(empty_rows_.size(), kMaxPartials / 2);
        context.synchronize();
    }
    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        return std::make_unique<FormatScratch>(context, part_.pieces());
    }
    void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<FormatScratch&>(scratch);
        part_.run(mine.piece_sums.data(), atomic_, a, x, b, y, partials, mine.context.stream());
        launch_scale_rows(scale_blocks_, empty_rows_.size(), empty_rows_.data(), b, y, partials ? partials + part_.partials() : nullptr, mine.context.stream());
    }
    std::int32_t partials() const override { return part_.partials() + scale_blocks_; }
    std::int64_t bytes() const override { return part_.bytes() + empty_rows_.bytes(); }
    std::string words() const override {
        std::string words = fmt::format("{} entries, {} rows cut", part_.entries(), part_.cut_rows());
        if (empty_rows_.size() > 0) words += fmt::format(", {} empty rows", empty_rows_.size());
        return words + value_words<V, T>();
    }

  private:
    bool atomic_;
    CooPart<V, T> part_;
    DeviceBuffer<std::int32_t> empty_rows_;
    std::int32_t scale_blocks_ = 0;
};

template <class V, class T>
std::unique_ptr<CsrProduct<T>> make(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest, const SpmvChoice& choice,
                                    const CudaContext& context) {
    std::unique_ptr<CsrProduct<T>> product;
    offsets.with([&](const auto* host) {
        switch (choice.kernel) {
            case SpmvKernel::sell: product = std::make_unique<SellProduct<V, T>>(a, offsets, longest, choice, context); break;
            case SpmvKernel::ell: {
                const std::int64_t width = longest_row(a.rows, host);  // `longest` may be more
                check_padding(choice, kSliceRows * slices_of(a.rows) * width, a.nnz, width);
                product = std::make_unique<EllProduct<V, T>>(a, width, context);
                break;
            }
            case SpmvKernel::hyb: {
                const std::int64_t width = hyb_width(a.rows, host, choice.quantile);
                check_padding(choice, kSliceRows * slices_of(a.rows) * width, a.nnz, longest);
                product = std::make_unique<HybProduct<V, T>>(a, width, rest_offsets(a.rows, host, width), choice, context);
                break;
            }
            case SpmvKernel::coo: product = std::make_unique<CooProduct<V, T>>(a, host, choice, context); break;
            default: throw InternalError("make_format_product: no such format");
        }
    });
    return product;
}

}  // namespace

template <class T>
std::unique_ptr<CsrProduct<T>> make_format_product(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice,
                                                   const CudaContext& context) {
    if (choice.values == ValueForm::bf16) return make<Bf16, T>(a, offsets, longest_row, choice, context);
    if (choice.values == ValueForm::fp32) return make<float, T>(a, offsets, longest_row, choice, context);
    return make<T, T>(a, offsets, longest_row, choice, context);
}
template std::unique_ptr<CsrProduct<double>> make_format_product(const DeviceCsr<double>&, const HostOffsets&, std::int64_t, const SpmvChoice&,
                                                                 const CudaContext&);
template std::unique_ptr<CsrProduct<float>> make_format_product(const DeviceCsr<float>&, const HostOffsets&, std::int64_t, const SpmvChoice&,
                                                                const CudaContext&);

}  // namespace lsmr::cuda
