#include "solve_report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "diagnosis.hpp"
#include "environment.hpp"

namespace lsmr {
namespace {

double bytes_of(const SolveTable& table) { return least_iteration_bytes(table.rows, table.cols, table.nnz, table.precision); }

double copy_rate(const SolveBenchReport& report, const SolverMeasurement& row) {
    return row.on_gpu ? report.gpu_copy_bytes_per_second : report.host_copy_bytes_per_second;
}

// Seconds an iteration of what ours is compared with; 0: it was not measured.
double compared_seconds(const SolveBenchReport& report, const SolveTable& table) {
    for (const SolverMeasurement& row : table.solvers) {
        if (row.label == report.comparison && row.failure.empty()) return row.seconds;
    }
    return 0;
}

// Seconds of the set-up beyond the phases that have columns of their own.
double setup_rest(const SolverMeasurement& row) {
    return *row.setup_seconds - row.setup.upload - row.setup.transpose - row.setup.order - row.setup.choice - row.setup.one_pass;
}

std::string milliseconds(std::optional<double> seconds) { return seconds ? fmt::format("{:.1f}", 1e3 * *seconds) : std::string("-"); }

}  // namespace

double least_iteration_bytes(std::int64_t rows, std::int64_t cols, std::int64_t nnz, Precision precision) {
    const auto m = static_cast<double>(rows);
    const auto n = static_cast<double>(cols);
    const auto entries = static_cast<double>(nnz);
    return precision == Precision::fp64 ? 24 * entries + 28 * m + 76 * n : 16 * entries + 16 * m + 40 * n;
}

std::string solve_heading(const SolveBenchReport& report) {
    std::string copies;
    if (report.gpu_copy_bytes_per_second > 0) copies = fmt::format("{:.0f} GB/s on the GPU, ", report.gpu_copy_bytes_per_second * 1e-9);
    return fmt::format(
        "device   {}\ncopy     {}{:.1f} GB/s on the host, read and written\niterate  medians of {} blocks of {} iterations, after a block to warm up; "
        "no stop tests\nsolve    to ||A^T r|| <= {:g} ||A||_F ||r||, with the ||r|| of the solution; at most {:g} s\n",
        report.device, copies, report.host_copy_bytes_per_second * 1e-9, report.blocks, report.block_iterations, report.tolerance, report.time_limit_seconds);
}

std::string solve_table_text(const SolveBenchReport& report, const SolveTable& table) {
    const double bytes = bytes_of(table);
    const double compared = compared_seconds(report, table);
    std::string floors;
    if (report.gpu_copy_bytes_per_second > 0) floors = fmt::format(", {} at the GPU's copy bandwidth", time_text(bytes / report.gpu_copy_bytes_per_second));
    std::string text = fmt::format("\nmatrix   {}\n         m = {}, n = {}, nnz = {}; {}; least {} an iteration{}\n", table.matrix, count_text(table.rows),
                                   count_text(table.cols), count_text(table.nnz), name(table.precision), bytes_text(bytes), floors);
    if (table.ar_bound == 0) {
        text += fmt::format("         not solved: ours in fp64 came to ||A^T r|| = {:.1e} ||A||_F ||r|| in {:g} s\n", table.reference_ls,
                            report.time_limit_seconds);
    }
    text += fmt::format("  {:<24} {:>10} {:>19} {:>7} {:>7} {:>7} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>6} {:>8} {:>8} {:>12}\n", "",
                        "us/iter", "least-most", "kernels", "waits", "GB/s", "copy", "set-up ms", "upload", "transp.", "order", "choice", "rest",
                        "solve ms", "iters", "A^T r", "x", compared > 0 ? "vs " + report.comparison : std::string());
    for (const SolverMeasurement& row : table.solvers) {
        if (!row.failure.empty()) {
            text += fmt::format("  {:<24} {}\n", row.label, row.failure);
            continue;
        }
        const bool timed = row.setup_seconds.has_value();
        const auto part = [&](double seconds) { return timed && seconds > 0 ? fmt::format("{:.1f}", 1e3 * seconds) : std::string("-"); };
        text += fmt::format(
            "  {:<24} {:>10.2f} {:>19} {:>7} {:>7} {:>7.0f} {:>5.1f}% {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>6} {:>8} {:>8} {:>12}\n",
            row.label, 1e6 * row.seconds, fmt::format("{:.2f}-{:.2f}", 1e6 * row.least_seconds, 1e6 * row.most_seconds),
            row.kernels > 0 ? std::to_string(row.kernels) : "-", row.waits ? fmt::format("{:.3f}", *row.waits) : "-", bytes / row.seconds * 1e-9,
            100 * bytes / row.seconds / copy_rate(report, row), milliseconds(row.setup_seconds), part(row.setup.upload), part(row.setup.transpose),
            part(row.setup.order), part(row.setup.choice + row.setup.one_pass), timed ? milliseconds(setup_rest(row)) : "-",
            row.solve_seconds ? (row.reached ? "" : ">") + milliseconds(row.solve_seconds) : "-",
            row.solve_seconds ? std::to_string(row.solve_iterations) : "-", row.solve_seconds ? fmt::format("{:.1e}", row.ls) : "-",
            row.x_difference ? fmt::format("{:.1e}", *row.x_difference) : "-",
            compared > 0 ? fmt::format("{:.2f}x", compared / row.seconds) : std::string());
    }
    for (const SolverMeasurement& row : table.solvers) {
        if (!row.words.empty()) text += fmt::format("  {:<24} {}\n", row.label, row.words);
    }
    return text;
}

std::string solve_summary(const SolveBenchReport& report) {
    struct Ratios {
        double logarithms = 0;
        double least = 0;
        int count = 0;
        std::string least_at;
    };
    std::map<std::string, Ratios> by_label;
    for (const SolveTable& table : report.tables) {
        const double compared = compared_seconds(report, table);
        if (compared == 0) continue;
        for (const SolverMeasurement& row : table.solvers) {
            if (!row.failure.empty() || row.label == report.comparison) continue;
            Ratios& ratios = by_label[row.label];
            const double ratio = compared / row.seconds;
            ratios.logarithms += std::log(ratio);
            if (ratios.count == 0 || ratio < ratios.least) {
                ratios.least = ratio;
                ratios.least_at = fmt::format("{}, {}", table.matrix, name(table.precision));
            }
            ++ratios.count;
        }
    }
    std::string text;
    for (const auto& [label, ratios] : by_label) {
        text += fmt::format("{:<24} {:.3f}x {} an iteration (geometric mean of {}); least {:.2f}x: {}\n", label, std::exp(ratios.logarithms / ratios.count),
                            report.comparison, ratios.count, ratios.least, ratios.least_at);
    }
    return text;
}

std::string solve_json(const SolveBenchReport& report) {
    nlohmann::ordered_json json;
    json["schema"] = "lsmr_bench_solve/1";
    json["version"] = version_text("lsmr_bench");
    json["environment"] = {{"device", report.device},
                           {"gpu_copy_bytes_per_second", report.gpu_copy_bytes_per_second},
                           {"host_copy_bytes_per_second", report.host_copy_bytes_per_second},
                           {"block_iterations", report.block_iterations},
                           {"blocks", report.blocks},
                           {"tolerance", report.tolerance},
                           {"time_limit_seconds", report.time_limit_seconds}};
    json["tables"] = nlohmann::ordered_json::array();
    for (const SolveTable& table : report.tables) {
        const double bytes = bytes_of(table);
        const double compared = compared_seconds(report, table);
        nlohmann::ordered_json one{{"matrix", table.matrix},     {"precision", name(table.precision)}, {"rows", table.rows},
                                   {"cols", table.cols},         {"nnz", table.nnz},                   {"least_bytes", bytes},
                                   {"ar_bound", table.ar_bound}, {"reference_ls", table.reference_ls}};
        one["solvers"] = nlohmann::ordered_json::array();
        for (const SolverMeasurement& row : table.solvers) {
            nlohmann::ordered_json entry{{"label", row.label}};
            if (!row.failure.empty()) {
                entry["failure"] = row.failure;
                one["solvers"].push_back(entry);
                continue;
            }
            entry.update({{"words", row.words},
                          {"on_gpu", row.on_gpu},
                          {"seconds_per_iteration", row.seconds},
                          {"least_seconds", row.least_seconds},
                          {"most_seconds", row.most_seconds},
                          {"iterations_timed", row.iterations},
                          {"bytes_per_second", bytes / row.seconds},
                          {"share_of_copy", bytes / row.seconds / copy_rate(report, row)}});
            if (row.kernels > 0) entry["kernels_per_iteration"] = row.kernels;
            if (row.waits) entry["waits_per_iteration"] = *row.waits;
            if (row.setup_seconds) {
                nlohmann::ordered_json setup{{"seconds", *row.setup_seconds}};
                row.setup.for_each([&](const char* name, double seconds) { setup[fmt::format("{}_seconds", name)] = seconds; });
                setup["rest_seconds"] = setup_rest(row);
                entry["setup"] = setup;
            }
            if (row.x_difference) entry["x_difference"] = *row.x_difference;
            if (row.solve_seconds) {
                entry["solve"] = {{"seconds", *row.solve_seconds}, {"iterations", row.solve_iterations}, {"ls", row.ls}, {"reached", row.reached}};
            }
            if (compared > 0) entry["against_" + report.comparison] = compared / row.seconds;
            one["solvers"].push_back(entry);
        }
        json["tables"].push_back(one);
    }
    return json.dump(2) + "\n";
}

}  // namespace lsmr
