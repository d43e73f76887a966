#include "operator/cuda/choose_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "memory/error.hpp"
#include "operator/cuda/order.hpp"
#include "operator/cuda/uploader.hpp"
#include "operator/dispatch.hpp"

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
    download(context, order.data(), order.size(), [&](std::int64_t i, std::int32_t line) { host[static_cast<std::size_t>(i)] = line; });
    return host;
}

std::shared_ptr<const MatrixOrder> downloaded(const DeviceOrder& order, const CudaContext& context) {
    return std::make_shared<const MatrixOrder>(MatrixOrder{order.kind, downloaded(order.row, context), downloaded(order.col, context)});
}

// CSR of A and of A^T in an order.
template <class T>
struct Ordered {
    DeviceCsr<T> a;
    DeviceCsr<T> at;
};

template <class T>
class Orders {
  public:
    Orders(DeviceCsr<T>& a, DeviceCsr<T>& at, const OperatorOptions& options, const OrderTools<T>& tools, OrderDecision& decision, const CudaContext& context)
        : a_(a), at_(at), dual_(at.columns != nullptr), options_(options), tools_(tools), decision_(decision), context_(context) {}

    std::shared_ptr<const MatrixOrder> given(std::shared_ptr<const MatrixOrder> order) {
        const auto fits = [](const std::vector<std::int32_t>& lines, std::int64_t n) { return lines.empty() || static_cast<std::int64_t>(lines.size()) == n; };
        if (!fits(order->row, a_.rows) || !fits(order->col, a_.cols)) {
            throw InputError(
                fmt::format("order: it has {} rows and {} columns, the matrix is {} x {}", order->row.size(), order->col.size(), a_.rows, a_.cols));
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

    ChosenOrder best() {
        const bool known = options_.expected_iterations > 0;
        const auto iterations = static_cast<double>(known ? options_.expected_iterations : kCautiousIterations);
        const std::string expected = fmt::format("{:g} iterations{}", iterations, known ? "" : ", which are assumed");
        ChosenOrder chosen;
        if (!dual_) {
            decision_.reason = "an order is made from both orientations, and the storage is single";
            return chosen;
        }
        const auto start = Clock::now();
        const double bound = 2 * static_cast<double>(a_.nnz) / gather_rate(model_, 1e12);
        if (iterations * bound < kPromise * model_.fixed_seconds) {
            decision_.reason = fmt::format("the products are so short that no order pays in {}", expected);
            return chosen;
        }
        const PairShape given = shapes(a_, at_);
        const double predicted = pair_seconds(given);
        decision_.given_seconds = decision_.predicted_seconds = predicted;
        decision_.local_seconds = promised_seconds(model_, OrderKind::spectral, given, kValueBytes);

        // What has been made: its products' seconds, measured, or predicted where nothing is measured; the fastest one stays.
        Ordered<T> kept;
        DeviceOrder kept_order;
        double now = predicted;
        std::string failed;
        const auto attempt = [&](OrderKind kind) {
            const auto begin = Clock::now();
            OrderDecision::Candidate candidate{kind};
            try {
                DeviceOrder order;
                if (make(kind, true, order)) {
                    Ordered<T> then = permuted(order);
                    candidate.predicted_seconds = pair_seconds(shapes(then.a, then.at));
                    double found = candidate.predicted_seconds;
                    std::optional<PairTiming> timing;
                    if (tools_.measure && is_worth_keeping(predicted, found, true)) {
                        if (!chosen.timing) {  // no order was measured before
                            chosen.timing = tools_.measure(a_, at_);
                            now = decision_.given_measured_seconds = decision_.measured_seconds = chosen.timing->seconds;
                        }
                        timing = tools_.measure(then.a, then.at);
                        found = candidate.measured_seconds = timing->seconds;
                    }
                    if ((!tools_.measure || timing) && is_worth_keeping(now, found, timing.has_value())) {
                        now = found;
                        kept = std::move(then);
                        kept_order = std::move(order);
                        decision_.predicted_seconds = candidate.predicted_seconds;
                        decision_.measured_seconds = candidate.measured_seconds;
                        if (timing) chosen.timing = std::move(timing);
                    }
                }
            } catch (const OutOfMemory&) {
                failed = fmt::format("; no memory to make the order {}", name(kind));
                return;
            } catch (const InputError& error) {
                // A kernel that was asked for does not take the matrix in this order; if it does not take the one given either, its preparation says so.
                failed = fmt::format("; {}: {}", name(kind), error.what());
                return;
            }
            context_.synchronize();
            candidate.seconds = seconds_since(begin);
            decision_.candidates.push_back(candidate);
        };
        // The one that promises most first. An order of the rows of a symmetric structure has to be that of the columns too, and does little.
        for (const OrderKind kind : {OrderKind::spectral, OrderKind::first}) {
            const double found = kept_order.kind != OrderKind::none ? decision_.predicted_seconds : predicted;
            if (!is_worth_trying(model_, kind, given, found, promised_seconds(model_, kind, given, kValueBytes), iterations)) continue;
            if (kind == OrderKind::first && has_symmetric_structure()) continue;
            attempt(kind);
            // A row that shares its first column with another shares no more of its columns with it either.
            if (!decision_.candidates.empty() && decision_.candidates.back().predicted_seconds == 0) {
                failed += "; the pattern is like a random one";
                break;
            }
        }
        const bool tried = !decision_.candidates.empty() || !failed.empty();
        if (kept_order.kind != OrderKind::none) {
            a_ = std::move(kept.a);
            at_ = std::move(kept.at);
            chosen.order = downloaded(kept_order, context_);
            decision_.kind = kept_order.kind;
        }
        decision_.setup_seconds = seconds_since(start);
        const double before = tools_.measure ? decision_.given_measured_seconds : predicted;
        if (chosen.order != nullptr) {
            decision_.break_even = decision_.setup_seconds / (before - now);
            decision_.reason = fmt::format("A x and A^T y {} {:.0f} us in place of {:.0f}, repaid by {:.0f} iterations of {}{}",
                                           tools_.measure ? "take" : "should take", 1e6 * now, 1e6 * before, std::ceil(decision_.break_even), expected, failed);
        } else if (!tried) {
            decision_.reason = fmt::format("A x and A^T y should take {:.0f} us, {:.0f} with local gathers: no order pays in {}", 1e6 * predicted,
                                           1e6 * decision_.local_seconds, expected);
        } else {
            decision_.reason = fmt::format("no order takes {:.0f} % of the {:.0f} us of A x and A^T y away{}",
                                           100 * (tools_.measure ? kLeastGain : kLeastPredictedGain), 1e6 * (before > 0 ? before : predicted), failed);
        }
        return chosen;
    }

  private:
    static constexpr int kValueBytes = static_cast<int>(sizeof(T));

    GatherShape shape(const DeviceCsr<T>& a) const { return gather_shape(a.rows, a.cols, a.nnz, a.columns->data(), kValueBytes, context_); }
    PairShape shapes(const DeviceCsr<T>& a, const DeviceCsr<T>& at) const { return {shape(a), shape(at)}; }
    double pair_seconds(const PairShape& p) const { return seconds(p.a, options_.forward) + seconds(p.at, options_.adjoint); }
    // By the kernels that the choice of a product would propose.
    double seconds(const GatherShape& p, const std::optional<SpmvChoice>& forced) const {
        const bool windows = !forced && options_.spmv != SpmvKind::cusparse && p.nnz >= kEntriesForWindows &&
                             (options_.expected_products == 0 || options_.expected_products >= kProductsForFormats);
        return windows ? window_product_seconds(model_, p, kValueBytes) : product_seconds(model_, p, kValueBytes);
    }

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
        if (!dual_ && (kind == OrderKind::spectral || a_.rows == a_.cols)) made = tools_.transpose(a_);
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
        if (dual_ || renamed) to.at = tools_.transpose(to.a);
        if (renamed) to.a = tools_.transpose(to.at);  // which sorts the columns
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
    const OrderTools<T>& tools_;
    OrderDecision& decision_;
    const CudaContext& context_;
};

}  // namespace

template <class T>
ChosenOrder choose_order(DeviceCsr<T>& a, DeviceCsr<T>& at, const OperatorOptions& options, const OrderTools<T>& tools, OrderDecision& decision,
                         const CudaContext& context) {
    Orders<T> orders(a, at, options, tools, decision, context);
    if (options.order != nullptr) return {orders.given(options.order), std::nullopt};
    if (options.reorder == OrderKind::automatic) return orders.best();
    if (options.reorder != OrderKind::none) return {orders.forced(options.reorder), std::nullopt};
    decision.reason = "asked for";
    return {};
}

template ChosenOrder choose_order(DeviceCsr<double>&, DeviceCsr<double>&, const OperatorOptions&, const OrderTools<double>&, OrderDecision&,
                                  const CudaContext&);
template ChosenOrder choose_order(DeviceCsr<float>&, DeviceCsr<float>&, const OperatorOptions&, const OrderTools<float>&, OrderDecision&, const CudaContext&);

}  // namespace lsmr::cuda
