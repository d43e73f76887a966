#include "operator/cuda/choose_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "memory/error.hpp"
#include "operator/cuda/order.hpp"
#include "operator/cuda/uploader.hpp"

namespace lsmr::cuda {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

DeviceBuffer<std::int32_t> uploaded(const std::vector<std::int32_t>& order, const CudaContext& context) {
    const auto n = static_cast<std::int64_t>(order.size());
    DeviceBuffer<std::int32_t> device(context, n);
    Uploader up(context);
    up(device.data(), order.data(), n, [](std::int32_t i) { return i; });
    return device;
}

std::vector<std::int32_t> downloaded(const DeviceBuffer<std::int32_t>& order, const CudaContext& context) {
    std::vector<std::int32_t> host(static_cast<std::size_t>(order.size()));
    if (!host.empty()) LSMR_CHECK(cudaMemcpyAsync(host.data(), order.data(), static_cast<std::size_t>(order.bytes()), cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
    return host;
}

std::shared_ptr<const MatrixOrder> downloaded(const DeviceOrder& order, const CudaContext& context) {
    return std::make_shared<const MatrixOrder>(MatrixOrder{order.kind, downloaded(order.row, context), downloaded(order.col, context)});
}

// What has been found so far: CSR of A and of A^T in an order, and what their products should take.
template <class T>
struct Ordered {
    DeviceCsr<T> a;
    DeviceCsr<T> at;
    double seconds = 0;
};

template <class T>
class Orders {
  public:
    using Transpose = std::function<DeviceCsr<T>(const DeviceCsr<T>&)>;
    Orders(DeviceCsr<T>& a, DeviceCsr<T>& at, const OperatorOptions& options, const Transpose& transpose, OrderDecision& decision, const CudaContext& context)
        : a_(a), at_(at), dual_(at.columns != nullptr), options_(options), transpose_(transpose), decision_(decision), context_(context) {}

    std::shared_ptr<const MatrixOrder> given(std::shared_ptr<const MatrixOrder> order) {
        const auto fits = [](const std::vector<std::int32_t>& lines, std::int64_t n) { return lines.empty() || static_cast<std::int64_t>(lines.size()) == n; };
        if (!fits(order->row, a_.rows) || !fits(order->col, a_.cols)) {
            throw InputError(fmt::format("order: it has {} rows and {} columns, the matrix is {} x {}", order->row.size(), order->col.size(), a_.rows, a_.cols));
        }
        Ordered<T> now = permuted({order->kind, uploaded(order->row, context_), uploaded(order->col, context_)});
        take(now);
        decision_.kind = order->kind;
        decision_.reason = "given";
        return order;
    }

    std::shared_ptr<const MatrixOrder> forced(OrderKind kind) {
        const auto start = Clock::now();
        DeviceOrder order;
        make(kind, false, order);
        Ordered<T> now = permuted(order);
        take(now);
        decision_.kind = kind;
        decision_.reason = "asked for";
        auto host = downloaded(order, context_);
        decision_.setup_seconds = seconds_since(start);
        return host;
    }

    std::shared_ptr<const MatrixOrder> best() {
        const bool known = options_.expected_iterations > 0;
        const auto iterations = static_cast<double>(known ? options_.expected_iterations : kCautiousIterations);
        const std::string expected = fmt::format("{:g} iterations{}", iterations, known ? "" : ", which are assumed");
        const auto stay = [&](const std::string& why) { decision_.reason = why; };
        if (!dual_) {
            stay("an order is made from both orientations, and the storage is single");
            return nullptr;
        }
        const auto start = Clock::now();
        const double bound = 2 * static_cast<double>(a_.nnz) / gather_rate(model_, 1e12);
        if (iterations * bound < kPromise * model_.fixed_seconds) {
            stay(fmt::format("the products are so short that no order pays in {}", expected));
            return nullptr;
        }
        const PairShape given = shapes(a_, at_);
        decision_.given_seconds = pair_seconds(given);
        decision_.local_seconds = local_seconds(model_, given.a, kValueBytes) + local_seconds(model_, given.at, kValueBytes);
        double now = decision_.given_seconds;
        Ordered<T> kept;
        DeviceOrder kept_order;
        bool tried = false;
        std::string failed;
        const auto attempt = [&](OrderKind kind, double local) {
            if (!is_worth_trying(model_, kind, given, now, local, iterations)) return;
            tried = true;
            const auto begin = Clock::now();
            try {
                DeviceOrder order;
                Ordered<T> then;
                bool made = make(kind, true, order);
                if (made) {
                    then = permuted(order);
                    then.seconds = pair_seconds(shapes(then.a, then.at));
                }
                context_.synchronize();
                decision_.candidates.push_back({kind, made ? then.seconds : 0.0, seconds_since(begin)});
                if (!made || !is_worth_keeping(now, then.seconds)) return;
                now = then.seconds;
                kept = std::move(then);
                kept_order = std::move(order);
            } catch (const OutOfMemory&) {
                failed = fmt::format("; no memory to make the order {}", name(kind));
            }
        };
        // Orders of the rows change what A^T y gathers; of what A x gathers they change only which rows are neighbours.
        // One of a symmetric structure has to be that of the columns too, and does little.
        if (!has_symmetric_structure()) attempt(OrderKind::first, local_seconds(model_, given.at, kValueBytes) + product_seconds(model_, given.a, kValueBytes));
        attempt(OrderKind::spectral, decision_.local_seconds);
        decision_.predicted_seconds = now;
        std::shared_ptr<const MatrixOrder> order;
        if (kept_order.kind != OrderKind::none) {
            a_ = std::move(kept.a);
            at_ = std::move(kept.at);
            order = downloaded(kept_order, context_);
            decision_.kind = kept_order.kind;
        }
        decision_.setup_seconds = seconds_since(start);
        if (order != nullptr) {
            decision_.break_even = decision_.setup_seconds / (decision_.given_seconds - now);
            stay(fmt::format("gathers become local: A x and A^T y should take {:.0f} us in place of {:.0f}; for {}{}", 1e6 * now,
                             1e6 * decision_.given_seconds, expected, failed));
        } else if (tried) {
            stay(fmt::format("no order was found that makes the gathers local{}", failed));
        } else {
            stay(fmt::format("A x and A^T y should take {:.0f} us, {:.0f} with local gathers: no order pays in {}", 1e6 * now, 1e6 * decision_.local_seconds,
                             expected));
        }
        return order;
    }

  private:
    static constexpr int kValueBytes = static_cast<int>(sizeof(T));

    GatherShape shape(const DeviceCsr<T>& a) const { return gather_shape(a.rows, a.cols, a.nnz, a.columns->data(), kValueBytes, context_); }
    PairShape shapes(const DeviceCsr<T>& a, const DeviceCsr<T>& at) const { return {shape(a), shape(at)}; }
    double pair_seconds(const PairShape& p) const { return product_seconds(model_, p.a, kValueBytes) + product_seconds(model_, p.at, kValueBytes); }

    bool has_symmetric_structure() const {
        bool symmetric = false;
        with_pattern(at_, [&](const auto& pattern) { symmetric = is_symmetric(pattern, context_); });
        return symmetric;
    }
    // f(pattern of A and A^T).
    template <class F>
    void with_pattern(const DeviceCsr<T>& at, const F& f) const {
        a_.with_offsets([&](const auto* offsets) {
            using Offset = std::remove_const_t<std::remove_pointer_t<decltype(offsets)>>;
            DevicePattern<Offset> pattern{a_.rows, a_.cols, a_.nnz, offsets, a_.columns->data()};
            if (at.columns != nullptr) {
                at.with_offsets([&](const auto* transposed) {
                    // (decltype of the captured `offsets` would be another type here: GCC 12.)
                    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*transposed)>, Offset>) pattern.transposed_offsets = transposed;
                });
                LSMR_EXPECT(pattern.transposed_offsets != nullptr);
                pattern.transposed_columns = at.columns->data();
            }
            f(pattern);
        });
    }
    // False: given up.
    bool make(OrderKind kind, bool may_give_up, DeviceOrder& order) const {
        DeviceCsr<T> made;
        if (!dual_ && (kind == OrderKind::spectral || a_.rows == a_.cols)) made = transpose_(a_);
        const DeviceCsr<T>& at = dual_ ? at_ : made;
        bool done = false;
        with_pattern(at, [&](const auto& pattern) { done = make_order(kind, pattern, may_give_up, order, context_); });
        return done;
    }

    Ordered<T> permuted(const DeviceOrder& order) const {
        Ordered<T> to;
        to.a = DeviceCsr<T>(context_, a_.rows, a_.cols, a_.nnz);
        const DeviceBuffer<std::int32_t> new_column = inverse_order(order.col, context_);
        const auto lines = [](const DeviceBuffer<std::int32_t>& buffer) { return buffer.size() > 0 ? buffer.data() : nullptr; };
        a_.with_offsets([&](const auto* offsets) {
            using Given = std::remove_const_t<std::remove_pointer_t<decltype(offsets)>>;
            to.a.with_offsets([&](auto* out) {
                using Offset = std::remove_pointer_t<decltype(out)>;
                if constexpr (std::is_same_v<Offset, Given>) {  // as both are: they have as many entries
                    permute_rows<T, Offset>(a_.rows, a_.nnz, lines(order.row), lines(new_column), offsets, a_.columns->data(), a_.values->data(), out,
                                            to.a.columns->data(), to.a.values->data(), context_);
                }
            });
        });
        const bool renamed = new_column.size() > 0;
        if (dual_ || renamed) to.at = transpose_(to.a);
        if (renamed) to.a = transpose_(to.at);  // which sorts the columns
        if (!dual_) to.at = {};
        return to;
    }
    void take(Ordered<T>& now) {
        a_ = std::move(now.a);
        if (dual_) at_ = std::move(now.at);
    }

    const OrderModel model_{};
    DeviceCsr<T>& a_;
    DeviceCsr<T>& at_;
    bool dual_;
    const OperatorOptions& options_;
    const Transpose& transpose_;
    OrderDecision& decision_;
    const CudaContext& context_;
};

}  // namespace

template <class T>
std::shared_ptr<const MatrixOrder> choose_order(DeviceCsr<T>& a, DeviceCsr<T>& at, const OperatorOptions& options,
                                                const std::function<DeviceCsr<T>(const DeviceCsr<T>&)>& transpose, OrderDecision& decision,
                                                const CudaContext& context) {
    Orders<T> orders(a, at, options, transpose, decision, context);
    if (options.order != nullptr) return orders.given(options.order);
    if (options.reorder == OrderKind::automatic) return orders.best();
    if (options.reorder != OrderKind::none) return orders.forced(options.reorder);
    decision.reason = "asked for";
    return nullptr;
}

#define LSMR_INSTANTIATE(T)                                                                                                               \
    template std::shared_ptr<const MatrixOrder> choose_order(DeviceCsr<T>&, DeviceCsr<T>&, const OperatorOptions&,                         \
                                                             const std::function<DeviceCsr<T>(const DeviceCsr<T>&)>&, OrderDecision&,      \
                                                             const CudaContext&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
