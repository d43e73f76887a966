#include "operator/order_choice.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "operator/cuda/window_plan.hpp"

namespace lsmr {

const char* name(OrderKind kind) {
    switch (kind) {
        case OrderKind::automatic: return "auto";
        case OrderKind::none: return "none";
        case OrderKind::length: return "length";
        case OrderKind::first: return "first";
        case OrderKind::median: return "median";
        case OrderKind::spectral: return "spectral";
    }
    return "";
}
std::optional<OrderKind> order_named(std::string_view word) {
    for (const OrderKind kind : {OrderKind::none, OrderKind::length, OrderKind::first, OrderKind::median, OrderKind::spectral}) {
        if (word == name(kind)) return kind;
    }
    return std::nullopt;
}

double gather_rate(const OrderModel& model, double vector_bytes) {
    const auto& rates = model.rates;
    if (vector_bytes <= rates[0].bytes) return rates[0].sectors;
    for (std::size_t i = 1; i < std::size(rates); ++i) {
        if (vector_bytes > rates[i].bytes) continue;
        const double share = std::log(vector_bytes / rates[i - 1].bytes) / std::log(rates[i].bytes / rates[i - 1].bytes);
        return rates[i - 1].sectors + share * (rates[i].sectors - rates[i - 1].sectors);
    }
    return rates[std::size(rates) - 1].sectors;
}

double local_seconds(const OrderModel& model, const GatherShape& p, int value_bytes) {
    const double bytes = static_cast<double>(p.nnz) * (value_bytes + 4.0) + static_cast<double>(p.rows) * (4.0 + 2.0 * value_bytes) +
                         static_cast<double>(p.cols) * value_bytes;
    return bytes / model.copy_bytes;
}

double product_seconds(const OrderModel& model, const GatherShape& p, int value_bytes) {
    // What a block gathers again it finds in its first-level cache.
    const double far_rate = gather_rate(model, static_cast<double>(p.cols) * value_bytes);
    const double near = std::max(p.run_sectors - p.window_sectors, 0.0);
    const double gathers = static_cast<double>(p.nnz) * (near / model.near_sectors + p.window_sectors / far_rate);
    return std::max(local_seconds(model, p, value_bytes), gathers);
}

double window_product_seconds(const OrderModel& model, const GatherShape& p, int value_bytes) {
    const double gathers = product_seconds(model, p, value_bytes);
    if (p.run_sectors <= 0.5) return gathers;
    const double window = cuda::least_window_seconds(p.rows, p.cols, p.nnz, value_bytes, value_bytes);
    return window > 0 ? std::min(gathers, window) : gathers;
}

double order_seconds(const OrderModel& model, OrderKind kind, const PairShape& p) {
    const auto entries = static_cast<double>(p.a.nnz);
    const auto rows = static_cast<double>(p.a.rows);
    const auto cols = static_cast<double>(p.a.cols);
    double seconds = model.fixed_seconds + entries * model.seconds_an_entry + rows * model.seconds_a_line;
    if (kind != OrderKind::spectral) return seconds;
    // A round gathers a point of 32 bytes for each entry, in both orientations.
    const double gathers = entries / gather_rate(model, 32 * rows) + entries / gather_rate(model, 32 * cols);
    const double passes = 32 * (6 * cols + 2 * rows) / model.copy_bytes;
    const double groups = model.group_passes * (entries / gather_rate(model, 4 * rows) + entries / gather_rate(model, 4 * cols));
    const double halvings = std::log2(rows + cols + 2) * (rows + cols) * model.seconds_a_halving;
    return seconds + model.spectral_seconds + entries * model.seconds_an_entry + groups + model.spectral_rounds * (gathers + passes) + halvings;
}

double promised_seconds(const OrderModel& model, OrderKind kind, const PairShape& p, int value_bytes) {
    const double forward = kind == OrderKind::spectral ? local_seconds(model, p.a, value_bytes) : product_seconds(model, p.a, value_bytes);
    return forward + local_seconds(model, p.at, value_bytes);
}

bool is_worth_trying(const OrderModel& model, OrderKind kind, const PairShape& p, double now_seconds, double promised_seconds, double iterations) {
    if (!is_worth_keeping(now_seconds, promised_seconds, true)) return false;
    return iterations * (now_seconds - promised_seconds) >= kPromise * (order_seconds(model, kind, p) + kMeasuredPairs * now_seconds);
}

bool is_worth_keeping(double now_seconds, double then_seconds, bool measured) {
    return then_seconds <= (1 - (measured ? kLeastGain : kLeastPredictedGain)) * now_seconds;
}

}  // namespace lsmr
