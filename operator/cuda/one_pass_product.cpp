#include "operator/cuda/one_pass_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "memory/host_buffer.hpp"
#include "operator/cuda/choose_product.hpp"
#include "operator/cuda/profile.hpp"

namespace lsmr::cuda {
namespace {

std::int64_t shared_bytes(const CudaContext& context) {
    int bytes = 0;
    LSMR_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.device()));
    return bytes;
}

// Bytes of A x and A^T y: A with 16-bit columns, A^T with those of m rows; y read and written, then gathered.
double pair_bytes(std::int64_t rows, std::int64_t cols, std::int64_t nnz, int value_bytes, int vector_bytes) {
    const auto m = static_cast<double>(rows);
    const auto n = static_cast<double>(cols);
    return (2.0 * value_bytes + 2 + (rows <= kOnePassColumns ? 2 : 4)) * static_cast<double>(nnz) + 2 * m + vector_bytes * (3 * m + 3 * n);
}

std::int64_t slices_of(std::int64_t rows) { return (rows + kSliceRows - 1) / kSliceRows; }

template <class T>
OnePassLaunch launch_for(std::int64_t rows, std::int64_t cols, const CudaContext& context) {
    return choose_one_pass_launch(cols, static_cast<std::int32_t>(slices_of(rows)), sizeof(T), context.multiprocessors(), shared_bytes(context));
}

template <class T>
struct OnePassScratch final : ProductScratch {
    OnePassScratch(const CudaContext& of, std::int64_t values) : context(of), block_sums(of, values) {}
    const CudaContext& context;
    DeviceBuffer<T> block_sums;
};

template <class V, class T>
class PlacedOnePass final : public OnePassProduct<T> {
  public:
    PlacedOnePass(const DeviceCsr<T>& a, const OrientationProfile& profile, double least_gain, bool rounded, const CudaContext& context)
        : nnz_(a.nnz), rounded_(rounded), launch_(launch_for<T>(a.rows, a.cols, context)) {
        const std::int64_t longest_row = profile.longest;
        constexpr double kCopyBytesPerSecond = 4.2e12;
        least_pair_seconds_ = pair_bytes(a.rows, a.cols, a.nnz, profile.exact_bf16 ? 2 : static_cast<int>(sizeof(V)), sizeof(T)) / kCopyBytesPerSecond;
        matrix_.rows = static_cast<std::uint32_t>(a.rows);
        matrix_.cols = static_cast<std::int32_t>(a.cols);
        matrix_.slices = static_cast<std::int32_t>(slices_of(a.rows));
        first_groups_ = DeviceBuffer<std::int32_t>(context, matrix_.slices + 1);
        a.with_offsets([&](const auto* offsets) {
            launch_count_groups<T>(a.rows, matrix_.cols, matrix_.slices, launch_.batch, longest_row, offsets, a.columns->data(), first_groups_.data(),
                                   context.multiprocessors(), context.stream());
        });
        HostBuffer<std::int32_t> first(matrix_.slices + 1);
        LSMR_CHECK(cudaMemcpyAsync(first.data(), first_groups_.data(), static_cast<std::size_t>(matrix_.slices) * sizeof(std::int32_t), cudaMemcpyDeviceToHost,
                                   context.stream()));
        context.synchronize();
        for (std::int32_t s = 0; s < matrix_.slices; ++s) {
            const std::int32_t count = first[s];
            first[s] = static_cast<std::int32_t>(std::min<std::int64_t>(groups_, std::numeric_limits<std::int32_t>::max()));
            groups_ += count;
        }
        first[matrix_.slices] = static_cast<std::int32_t>(std::min<std::int64_t>(groups_, std::numeric_limits<std::int32_t>::max()));
        const double gain = one_pass_gain(a.rows, a.cols, a.nnz, groups_ * kGroupPlaces, sizeof(V), sizeof(T), launch_);
        if (gain < least_gain || groups_ > std::numeric_limits<std::int32_t>::max()) {
            throw InputError(fmt::format(
                "one pass would store {:.2f} places for each entry of A: rows of a slice share columns, or their lengths differ", fill()));
        }
        LSMR_CHECK(cudaMemcpyAsync(first_groups_.data(), first.data(), static_cast<std::size_t>(first.bytes()), cudaMemcpyHostToDevice, context.stream()));
        columns_ = DeviceBuffer<std::uint16_t>(context, groups_ * kGroupPlaces);
        values_ = DeviceBuffer<V>(context, groups_ * kGroupPlaces);
        matrix_.first_groups = first_groups_.data();
        matrix_.columns = columns_.data();
        matrix_.values = values_.data();
        a.with_offsets([&](const auto* offsets) {
            launch_place_entries<V, T>(matrix_, launch_.batch, longest_row, offsets, a.columns->data(), a.values->data(), columns_.data(), values_.data(),
                                       context.multiprocessors(), context.stream());
        });
        context.synchronize();  // `first` goes
    }

    std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const override {
        return std::make_unique<OnePassScratch<T>>(context, std::int64_t{launch_.blocks} * matrix_.cols);
    }
    void apply(typename OnePassProduct<T>::Keep keep, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<OnePassScratch<T>&>(scratch);
        const Pass pass = keep == OnePassProduct<T>::Keep::adjoint ? Pass::both : Pass::forward;
        launch_one_pass<V, T>(launch_, pass, matrix_, a, x, b, y, mine.block_sums.data(), partials, mine.context.stream());
    }
    void apply_kept_adjoint(Scalar<T> a, Scalar<T> b, T* x, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<OnePassScratch<T>&>(scratch);
        launch_add_columns<T>(launch_, matrix_.cols, mine.block_sums.data(), a, b, x, partials, mine.context.stream());
    }
    void apply_adjoint(Scalar<T> a, const T* y, Scalar<T> b, T* x, double* partials, ProductScratch& scratch) const override {
        auto& mine = static_cast<OnePassScratch<T>&>(scratch);
        launch_one_pass_adjoint<V, T>(launch_, matrix_, y, mine.block_sums.data(), mine.context.stream());
        apply_kept_adjoint(a, b, x, partials, scratch);
    }
    bool refill(const DeviceCsr<T>& a, const CudaContext& context) override {
        if (a.nnz != nnz_ || rounded_) return false;
        DeviceBuffer<unsigned> misfits(context, 1);
        a.with_offsets([&](const auto* offsets) {
            launch_refill<V, T>(matrix_, offsets, a.columns->data(), a.values->data(), values_.data(), misfits.data(), context.stream());
        });
        unsigned found = 0;
        LSMR_CHECK(cudaMemcpyAsync(&found, misfits.data(), sizeof found, cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        return found == 0;
    }
    std::int32_t row_partials() const override { return launch_.row_partials(); }
    std::int32_t col_partials() const override { return launch_.col_partials(); }
    std::int64_t bytes() const override { return first_groups_.bytes() + columns_.bytes() + values_.bytes(); }
    std::string words() const override {
        std::string words = fmt::format("{} slices, {} blocks of {} warps with {} sums of A^T y, {:.2f} places an entry, 16-bit columns", matrix_.slices,
                                        launch_.blocks, launch_.warps(), launch_.panels, fill());
        if (!std::is_same_v<V, T>) words += ", values in fp32";
        return words;
    }
    bool rounded_values() const override { return rounded_; }
    double least_pair_seconds() const override { return least_pair_seconds_; }

  private:
    double fill() const { return static_cast<double>(groups_ * kGroupPlaces) / static_cast<double>(std::max<std::int64_t>(nnz_, 1)); }

    std::int64_t nnz_;
    bool rounded_;
    double least_pair_seconds_ = 0;
    OnePassLaunch launch_;
    std::int64_t groups_ = 0;
    OnePassMatrix<V> matrix_;
    DeviceBuffer<std::int32_t> first_groups_;  // while it is built: the groups of each slice
    DeviceBuffer<std::uint16_t> columns_;
    DeviceBuffer<V> values_;
};

}  // namespace

double one_pass_gain(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t places, int value_bytes, int vector_bytes,
                     const OnePassLaunch& launch) {
    const auto m = static_cast<double>(rows);
    const auto n = static_cast<double>(cols);
    const double pair = pair_bytes(rows, cols, nnz, value_bytes, vector_bytes);
    const double once = (value_bytes + 2.0) * static_cast<double>(places) + 4 * m / kSliceRows + vector_bytes * (2 * m + 2 * n + 2.0 * launch.blocks * n);
    constexpr double kBytesPerSecond = 3.7e12;
    constexpr double kTurnSeconds = 130e-9;  // of a group
    const double turns = kTurnSeconds * static_cast<double>(places) / kGroupPlaces / (static_cast<double>(launch.blocks) * launch.panels);
    return pair / kBytesPerSecond / std::max(once / kBytesPerSecond, turns);
}

template <class T>
std::string why_not_one_pass(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t longest_row, const CudaContext& context) {
    if (rows > std::numeric_limits<std::int32_t>::max()) return fmt::format("A has {} rows", rows);
    if (cols > kOnePassColumns || launch_for<T>(rows, cols, context).panels == 0) {
        return fmt::format("A has {} columns, and shared memory must hold x and sums of A^T y", cols);
    }
    if (longest_row > kOnePassLongestRow) return fmt::format("A has a row of {} entries, more than {}", longest_row, kOnePassLongestRow);
    if (placing_bytes(cols, longest_row) > shared_bytes(context)) {
        return fmt::format("A has {} columns and a row of {} entries, too much for shared memory when its entries are placed", cols, longest_row);
    }
    if (nnz / kGroupPlaces > std::numeric_limits<std::int32_t>::max()) return fmt::format("A has {} nonzeros", nnz);
    return {};
}

template <class T>
std::unique_ptr<OnePassProduct<T>> make_one_pass_product(const DeviceCsr<T>& a, NarrowKind narrow, double least_gain, const CudaContext& context) {
    OrientationProfile profile;
    a.with_offsets([&](const auto* offsets) { profile = profile_on_device(a.rows, a.cols, a.nnz, offsets, a.columns->data(), a.values->data(), context); });
    const std::string why_not = why_not_one_pass<T>(a.rows, a.cols, a.nnz, profile.longest, context);
    if (!why_not.empty()) throw InputError("one-pass storage is refused: " + why_not);
    const bool fp32_values = narrow == NarrowKind::fp32_values || (narrow == NarrowKind::lossless && profile.exact_fp32);
    if (std::is_same_v<T, double> && fp32_values) {
        return std::make_unique<PlacedOnePass<float, T>>(a, profile, least_gain, !profile.exact_fp32, context);
    }
    return std::make_unique<PlacedOnePass<T, T>>(a, profile, least_gain, false, context);
}

template <class T>
double time_one_pass(std::int64_t rows, std::int64_t cols, const OnePassProduct<T>& product, int warm_up, int repeats, const CudaContext& context) {
    DeviceBuffer<T> x(context, cols), y(context, rows);
    DeviceBuffer<Coefficient<T>> one(context, 1);
    DeviceBuffer<double> partials(context, std::max(product.row_partials(), product.col_partials()));
    const Coefficient<T> host_one{1, 1};
    LSMR_CHECK(cudaMemcpyAsync(one.data(), &host_one, sizeof host_one, cudaMemcpyHostToDevice, context.stream()));
    LSMR_CHECK(cudaMemsetAsync(x.data(), 0, static_cast<std::size_t>(x.bytes()), context.stream()));
    LSMR_CHECK(cudaMemsetAsync(y.data(), 0, static_cast<std::size_t>(y.bytes()), context.stream()));
    const auto scratch = product.make_scratch(context);
    return median_seconds(
        [&] {
            product.apply(OnePassProduct<T>::Keep::adjoint, one.data(), x.data(), one.data(), y.data(), partials.data(), *scratch);
            product.apply_kept_adjoint(one.data(), one.data(), x.data(), partials.data(), *scratch);
        },
        warm_up, repeats, context);
}

#define LSMR_INSTANTIATE(T)                                                                                                             \
    template std::string why_not_one_pass<T>(std::int64_t, std::int64_t, std::int64_t, std::int64_t, const CudaContext&);               \
    template double time_one_pass(std::int64_t, std::int64_t, const OnePassProduct<T>&, int, int, const CudaContext&);                  \
    template std::unique_ptr<OnePassProduct<T>> make_one_pass_product(const DeviceCsr<T>&, NarrowKind, double, const CudaContext&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
