#include "spmv_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "diagnosis.hpp"
#include "environment.hpp"
#include "operator/byte_model.hpp"

namespace lsmr {
namespace {

ProductWidths widths(Precision precision) { return precision == Precision::fp64 ? ProductWidths{8, 8} : ProductWidths{4, 4}; }

double least_bytes(const SpmvTable& table) { return csr_bytes(table.profile, widths(table.precision)).total(); }

// By the bytes of the kernel's own arrays, x once and y twice.
double own_share_of_copy(const SpmvReport& report, const SpmvTable& table, const ProductMeasurement& row) {
    const auto elements = static_cast<double>(table.profile.cols + 2 * table.profile.rows);
    return (static_cast<double>(row.bytes) + widths(table.precision).vector_bytes * elements) / row.seconds / report.copy_bytes_per_second;
}

double sector_seconds(const SpmvReport& report, const SpmvTable& table) {
    return report.sector_bound ? h200_sector_seconds(table.profile, widths(table.precision).vector_bytes) : 0;
}

// The fastest of what ours is compared with; 0: none was measured.
double best_other(const SpmvReport& report, const SpmvTable& table) {
    double best = 0;
    for (const ProductMeasurement& row : table.rows) {
        if (!row.failure.empty() || !row.label.starts_with(report.comparison)) continue;
        if (best == 0 || row.seconds < best) best = row.seconds;
    }
    return best;
}

// The fastest of all kernels of the GPU that were asked for by name and add in a fixed order; 0: fewer than make a sweep.
double best_of_sweep(const SpmvReport& report, const SpmvTable& table) {
    constexpr int kSweep = 8;
    if (report.comparison != "cusparse") return 0;
    double best = 0;
    int kernels = 0;
    for (const ProductMeasurement& row : table.rows) {
        if (!row.failure.empty() || row.label != row.kernel || !is_deterministic(parse_spmv_choice(row.kernel))) continue;
        ++kernels;
        if (best == 0 || row.seconds < best) best = row.seconds;
    }
    return kernels < kSweep ? 0 : best;
}

struct Ratios {
    double logarithms = 0;
    double least = 0;
    int count = 0;
    std::string least_at;
};

}  // namespace

std::string spmv_heading(const SpmvReport& report) {
    return fmt::format("device   {}\ncopy     {:.0f} GB/s, read and written\nproduct  y <- A x - y / 2; medians of {} after {} warm-ups\n", report.device,
                       report.copy_bytes_per_second * 1e-9, report.repeats, report.warm_up);
}

std::string spmv_table_text(const SpmvReport& report, const SpmvTable& table) {
    const OrientationProfile& p = table.profile;
    const double bytes = least_bytes(table);
    const double sectors = sector_seconds(report, table);
    const double other = best_other(report, table);
    std::string text = fmt::format(
        "\nmatrix   {}\n         {} of it: m = {}, k = {}, nnz = {}, density {:.2e}; rows avg {:.1f}, p95 {}, max {}; csr\n"
        "operator N = 1, {}, {}-bit offsets, 32-bit columns, {}; least {}: {} at the copy bandwidth{}\n",
        table.matrix, table.direction, count_text(p.rows), count_text(p.cols), count_text(p.nnz),
        p.rows > 0 && p.cols > 0 ? static_cast<double>(p.nnz) / static_cast<double>(p.rows) / static_cast<double>(p.cols) : 0.0, p.average, p.p95, p.longest,
        name(table.precision), p.nnz > 0x7fffffff ? 64 : 32, p.sorted_columns ? "sorted" : "unsorted", bytes_text(bytes),
        time_text(bytes / report.copy_bytes_per_second), sectors > 0 ? fmt::format(", {} by sectors of x", time_text(sectors)) : std::string());
    text += fmt::format("  {:<12} {:<32} {:>9} {:>15} {:>7} {:>6} {:>6} {:>5} {:>8} {:>8} {:>9} {:>9} {:>9} {:>6} {:>6} {:>8}\n", "", "kernel", "ms",
                        "least-most", "GB/s", "copy", "own", "idle", "sectors", "GFLOP/s", "call ms", "set-up ms", "+1/1000", "error", "bits",
                        other > 0 ? "vs " + report.comparison : std::string());
    for (const ProductMeasurement& row : table.rows) {
        if (!row.failure.empty()) {
            text += fmt::format("  {:<12} {:<32} {}\n", row.label, row.kernel, row.failure);
            continue;
        }
        text += fmt::format(
            "  {:<12} {:<32} {:>9.4f} {:>15} {:>7.0f} {:>5.1f}% {:>5.1f}% {:>5} {:>8} {:>8.1f} {:>9.4f} {:>9.2f} {:>9.4f} {:>6.2f} {:>6} {:>8}\n",
            row.label, row.kernel, 1e3 * row.seconds, fmt::format("{:.4f}-{:.4f}", 1e3 * row.least_seconds, 1e3 * row.most_seconds),
            bytes / row.seconds * 1e-9, 100 * bytes / row.seconds / report.copy_bytes_per_second, 100 * own_share_of_copy(report, table, row),
            row.idle_lanes ? fmt::format("{:.0f}%", 100 * *row.idle_lanes) : std::string("-"),
            sectors > 0 ? fmt::format("{:.1f}%", 100 * sectors / row.seconds) : std::string("-"), 2e-9 * static_cast<double>(p.nnz) / row.seconds,
            1e3 * row.call_seconds, 1e3 * row.setup_seconds, 1e3 * (row.seconds + row.setup_seconds / 1000), row.error,
            row.repeatable ? "same" : "vary", other > 0 ? fmt::format("{:.2f}x", other / row.seconds) : std::string());
    }
    for (const ProductMeasurement& row : table.rows) {
        if (!row.words.empty() && !row.label.empty() && row.label != row.kernel) text += fmt::format("  {:<12} {}\n", row.label, row.words);
        for (const ProductDecision::Timing& candidate : row.decision.candidates) {
            text += fmt::format("  {:<12} candidate {}: {}{}\n", row.label, candidate.kernel,
                                candidate.seconds > 0 ? fmt::format("{:.4f} ms, ", 1e3 * candidate.seconds) : std::string(), candidate.reason);
        }
    }
    return text;
}

std::string spmv_summary(const SpmvReport& report) {
    std::map<std::string, Ratios> by_label;
    for (const SpmvTable& table : report.tables) {
        const double other = best_other(report, table);
        if (other == 0) continue;
        for (const ProductMeasurement& row : table.rows) {
            if (!row.failure.empty() || row.label == row.kernel || row.label.starts_with(report.comparison)) continue;
            Ratios& ratios = by_label[row.label];
            const double ratio = other / row.seconds;
            ratios.logarithms += std::log(ratio);
            if (ratios.count == 0 || ratio < ratios.least) {
                ratios.least = ratio;
                ratios.least_at = fmt::format("{}, {}, {}", table.matrix, table.direction, name(table.precision));
            }
            ++ratios.count;
        }
    }
    int swept = 0, near_best = 0;
    for (const SpmvTable& table : report.tables) {
        const double best = best_of_sweep(report, table);
        const auto chosen = std::find_if(table.rows.begin(), table.rows.end(), [](const auto& row) { return row.label == "auto" && row.failure.empty(); });
        if (best == 0 || chosen == table.rows.end()) continue;
        ++swept;
        near_best += chosen->seconds <= 1.05 * best;
    }
    std::string text;
    if (swept > 0) text += fmt::format("auto         within 5 % of the fastest kernel of the sweep on {} of {} products\n", near_best, swept);
    for (const auto& [label, ratios] : by_label) {
        text += fmt::format("{:<12} {:.3f}x the best {} (geometric mean of {} products); least {:.2f}x: {}\n", label,
                            std::exp(ratios.logarithms / ratios.count), report.comparison, ratios.count, ratios.least, ratios.least_at);
    }
    return text;
}

std::string spmv_json(const SpmvReport& report) {
    nlohmann::ordered_json json;
    json["schema"] = "lsmr_spmv/1";
    json["version"] = version_text("lsmr_bench");
    json["environment"] = {{"device", report.device}, {"copy_bytes_per_second", report.copy_bytes_per_second}, {"warm_up", report.warm_up},
                           {"repeats", report.repeats}};
    json["tables"] = nlohmann::ordered_json::array();
    for (const SpmvTable& table : report.tables) {
        const OrientationProfile& p = table.profile;
        const double bytes = least_bytes(table);
        const double sectors = sector_seconds(report, table);
        const double other = best_other(report, table);
        nlohmann::ordered_json one{{"matrix", table.matrix},
                                   {"direction", table.direction},
                                   {"precision", name(table.precision)},
                                   {"rows", p.rows},
                                   {"cols", p.cols},
                                   {"nnz", p.nnz},
                                   {"average", p.average},
                                   {"p95", p.p95},
                                   {"longest", p.longest},
                                   {"sorted_columns", p.sorted_columns},
                                   {"least_bytes", bytes},
                                   {"sector_seconds", sectors}};
        one["products"] = nlohmann::ordered_json::array();
        for (const ProductMeasurement& row : table.rows) {
            nlohmann::ordered_json entry{{"label", row.label}, {"kernel", row.kernel}};
            if (!row.failure.empty()) {
                entry["failure"] = row.failure;
            } else {
                entry.update({{"words", row.words},
                              {"seconds", row.seconds},
                              {"least_seconds", row.least_seconds},
                              {"most_seconds", row.most_seconds},
                              {"call_seconds", row.call_seconds},
                              {"setup_seconds", row.setup_seconds},
                              {"matrix_bytes", row.bytes},
                              {"bytes_per_second", bytes / row.seconds},
                              {"share_of_copy", bytes / row.seconds / report.copy_bytes_per_second},
                              {"own_share_of_copy", own_share_of_copy(report, table, row)},
                              {"flops_per_second", 2 * static_cast<double>(p.nnz) / row.seconds},
                              {"error", row.error},
                              {"repeatable", row.repeatable}});
                if (row.idle_lanes) entry["idle_lanes"] = *row.idle_lanes;
                if (sectors > 0) entry["share_of_sector_bound"] = sectors / row.seconds;
                if (other > 0) entry["against_" + report.comparison] = other / row.seconds;
                for (const ProductDecision::Timing& candidate : row.decision.candidates) {
                    entry["candidates"].push_back({{"kernel", candidate.kernel}, {"reason", candidate.reason}, {"seconds", candidate.seconds}});
                }
            }
            one["products"].push_back(entry);
        }
        json["tables"].push_back(one);
    }
    return json.dump(2) + "\n";
}

}  // namespace lsmr
