// Whether an order of rows and columns pays: what the products cost by the sectors that they gather, and what an order costs. Pure functions of plain
// numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lsmr {

// Rows by length, longest first; by first column, then second; by median column; rows and columns by halvings of a spectral embedding.
// automatic: one that pays, or none.
enum class OrderKind { automatic, none, length, first, median, spectral };
const char* name(OrderKind kind);
// The kind of that name, but for automatic: one that a solve can have run in.
std::optional<OrderKind> order_named(std::string_view word);

// How an order was chosen, for people: printed by -v and written to JSON.
struct OrderDecision {
    struct Candidate {
        OrderKind kind = OrderKind::none;
        double predicted_seconds = 0;  // of A x and A^T y in this order; 0: given up before it was made
        double measured_seconds = 0;   // the same; 0: not measured
        double seconds = 0;            // that it took to make and to measure
    };
    OrderKind kind = OrderKind::none;
    std::string reason;
    double given_seconds = 0;      // predicted of A x and A^T y as given; 0: not predicted
    double local_seconds = 0;      // the same if no gather were scattered
    double predicted_seconds = 0;  // the same in the order that was taken
    double given_measured_seconds = 0;  // of A x and A^T y as given, by the fastest kernels; 0: not measured
    double measured_seconds = 0;        // the same in the order that was taken
    double setup_seconds = 0;      // all orders that were made, also those not taken
    double break_even = 0;         // iterations that repay setup_seconds; 0: none does
    std::vector<Candidate> candidates;
};

// Constants of a device, measured on one H200 (copies of 1 GiB; gathers of random sectors of 32 bytes; the orders of 30 to 60 M entries).
struct OrderModel {
    double copy_bytes = 4.2e12;        // a second, read and written
    double near_sectors = 330e9;       // a second, from the first-level cache
    // A second, from a vector of so many bytes; in between by the logarithm of the bytes.
    struct Rate { double bytes, sectors; };
    Rate rates[6] = {{256e3, 330e9}, {4e6, 148e9}, {16e6, 148e9}, {32e6, 127e9}, {64e6, 75e9}, {256e6, 47e9}};
    double fixed_seconds = 3e-3;       // of any order
    double spectral_seconds = 20e-3;   // of the coarser problems
    double seconds_an_entry = 0.08e-9;  // of permuting and the other orientation
    double seconds_a_line = 1e-9;      // of sorting rows by a key
    double group_passes = 2.5;         // over all entries, of 4 bytes each
    double spectral_rounds = 10;
    double seconds_a_halving = 0.1e-9;  // of cutting all rows and columns in two once, each of them
};

// One stored orientation, and how local its gathers are. A sector is 32 bytes, so 4 columns in fp64 and 8 in fp32.
struct GatherShape {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
    double run_sectors = 1;     // sampled: distinct sectors an entry, in runs of 32 entries, which a warp gathers at once
    double window_sectors = 1;  // in windows of kLocalityWindow entries, which a block gathers and its first-level cache holds
};
struct PairShape {
    GatherShape a;
    GatherShape at;  // of A^T
};
inline constexpr int kLocalityWindow = 2048;
inline constexpr int kLocalityWindows = 1024;  // at most, at evenly spaced places

double gather_rate(const OrderModel& model, double vector_bytes);
// Seconds of one product with this orientation: the larger of its bytes by the copy bandwidth and its sectors by the rates of gathers.
double product_seconds(const OrderModel& model, const GatherShape& p, int value_bytes);
// The same where the window kernel, which gathers from shared memory, is among the kernels; it is for scattered gathers.
double window_product_seconds(const OrderModel& model, const GatherShape& p, int value_bytes);
// The same without a scattered gather.
double local_seconds(const OrderModel& model, const GatherShape& p, int value_bytes);
// Of making a row order, or the spectral one, and permuting A.
double order_seconds(const OrderModel& model, OrderKind kind, const PairShape& p);

// Iterations that an order must pay for: the expected ones, or kCautiousIterations where they are not known.
inline constexpr std::int64_t kCautiousIterations = 1000;
// An attempt may fail, so it must promise so many times its cost.
inline constexpr double kPromise = 3;
// What measuring both products before and after takes, in pairs of products as they are: several kernels are prepared, and each runs six times.
inline constexpr double kMeasuredPairs = 60;
// An order is kept where it takes this share of the products' time away, as measured on the permuted matrix.
inline constexpr double kLeastGain = 0.05;
// The same where nothing is measured, and a prediction, which is off by that much, decides.
inline constexpr double kLeastPredictedGain = 0.15;

// Seconds of A x and A^T y that an order of this kind can come to: all gathers local; with an order of the rows alone those of A^T y, while A x gathers
// what it did, from rows with other neighbours.
double promised_seconds(const OrderModel& model, OrderKind kind, const PairShape& p, int value_bytes);
// Whether to make an order of this kind, where the products take now_seconds and could take promised_seconds.
bool is_worth_trying(const OrderModel& model, OrderKind kind, const PairShape& p, double now_seconds, double promised_seconds, double iterations);
// Whether an order in which the products take then_seconds takes the place of one, or none, in which they take now_seconds; both measured, or both
// predicted. measured: whether what they take is, or will be, measured.
bool is_worth_keeping(double now_seconds, double then_seconds, bool measured);

}  // namespace lsmr
