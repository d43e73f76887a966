#include "profile_report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "environment.hpp"
#include "json_report.hpp"

namespace lsmr {
namespace {

using Json = nlohmann::ordered_json;

std::string diagnosis_text(const std::vector<DiagnosisStep>& steps) {
    std::string text;
    int number = 0;
    for (const DiagnosisStep& step : steps) {
        std::string label = fmt::format("{}. {}", ++number, step.question);
        for (const std::string& fact : step.facts) {
            text += fmt::format("  {:<18} {}\n", label, fact);
            label.clear();
        }
        text += fmt::format("  {:<18} -> {}\n", label, step.verdict);
    }
    return text;
}

// The widths whose accounts are shown side by side.
struct Column {
    const char* title;
    ProductWidths widths;
};
constexpr Column kColumns[] = {{"fp64", {8, 8}}, {"fp32 in fp64", {4, 8}}, {"fp32", {4, 4}}};

std::string accounts_text(const OrientationProfile& p, const ProfileReport& report) {
    std::string text =
        fmt::format("  {:<22}{:>14}{:>14}{:>9}{:>12}", "format", "matrix", "product", "of CSR", "at copy");
    for (const Column& column : kColumns) text += fmt::format("{:>15}", column.title);
    text += "  note\n";
    std::vector<std::vector<FormatBytes>> columns;
    for (const Column& column : kColumns) columns.push_back(format_bytes(p, column.widths));
    const std::vector<FormatBytes> rows = format_bytes(p, report.widths());
    const double csr = rows.front().bytes->total();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const FormatBytes& row = rows[i];
        if (!row.bytes) {
            text += fmt::format("  {:<22}{:>14}{:>14}{:>9}{:>12}{:>15}{:>15}{:>15}  {}\n", row.format, "-", "-", "-",
                                "-", "-", "-", "-", row.note);
            continue;
        }
        text += fmt::format("  {:<22}{:>14}{:>14}{:>9.3g}{:>12}", row.format, bytes_text(row.bytes->matrix()),
                            bytes_text(row.bytes->total()), row.bytes->total() / csr,
                            time_text(row.bytes->total() / report.rates.copy_bytes_per_second));
        for (const auto& column : columns) text += fmt::format("{:>15}", bytes_text(column[i].bytes->total()));
        text += row.note.empty() ? "\n" : fmt::format("  {}\n", row.note);
    }
    return text;
}

Json number(double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json orientation_json(const OrientationProfile& p) {
    Json blocks = Json::array();
    for (const BlockFill& block : p.blocks) {
        blocks.push_back(
            {{"rows", block.rows}, {"cols", block.cols}, {"fill", block.fill > 0 ? Json(block.fill) : Json(nullptr)}});
    }
    return {{"rows", p.rows},
            {"cols", p.cols},
            {"nnz", p.nnz},
            {"row_length",
             {{"average", p.average},
              {"p95", p.p95},
              {"p99", p.p99},
              {"longest", p.longest},
              {"variation", p.variation},
              {"empty_rows", p.empty_rows},
              {"histogram", p.length_histogram}}},
            {"padded",
             {{"sell32_entries", p.sell32_entries},
              {"sell32_sorted_entries", p.sell32_sorted_entries},
              {"hyb_width", p.hyb_width},
              {"hyb_rest", p.hyb_rest},
              {"hyb_rest_rows", p.hyb_rest_rows}}},
            {"columns",
             {{"sorted", p.sorted_columns},
              {"duplicates", p.duplicates},
              {"row_span", p.row_span},
              {"span32", p.span32},
              {"span256", p.span256},
              {"narrow_rows", p.narrow_rows},
              {"narrow32", p.narrow32},
              {"narrow256", p.narrow256}}},
            {"blocks", blocks},
            {"diagonals", p.diagonals <= kDiagonalCap ? Json(p.diagonals) : Json(nullptr)},
            {"diagonal_fill", p.diagonals <= kDiagonalCap ? Json(p.diagonal_fill) : Json(nullptr)},
            {"locality",
             {{"neighbour", p.neighbour},
              {"sectors_fp64", p.sectors_fp64},
              {"sectors_fp32", p.sectors_fp32},
              {"similarity", p.similarity}}},
            {"values", {{"exact_fp32", p.exact_fp32}, {"exact_bf16", p.exact_bf16}, {"constant", p.constant}}}};
}

Json diagnosis_json(const std::vector<DiagnosisStep>& steps) {
    Json list = Json::array();
    for (const DiagnosisStep& step : steps) {
        list.push_back({{"question", step.question}, {"facts", step.facts}, {"verdict", step.verdict}});
    }
    return list;
}

Json accounts_json(const OrientationProfile& p) {
    Json list = Json::array();
    for (const Column& column : kColumns) {
        for (const FormatBytes& row : format_bytes(p, column.widths)) {
            Json entry = {{"format", row.format},
                          {"value_bytes", column.widths.value_bytes},
                          {"vector_bytes", column.widths.vector_bytes},
                          {"matrix_bytes", nullptr},
                          {"product_bytes", nullptr},
                          {"note", row.note}};
            if (row.bytes) {
                entry["matrix_bytes"] = number(row.bytes->matrix());
                entry["product_bytes"] = number(row.bytes->total());
            }
            list.push_back(std::move(entry));
        }
    }
    return list;
}

}  // namespace

std::string choice_text(const std::vector<std::string>& lines) {
    std::string text = "choice\n";
    for (const std::string& line : lines) text += fmt::format("  {}\n", line);
    return text;
}

std::string profile_text(const ProfileReport& report) {
    const OrientationProfile& a = report.profile.a;
    const OrientationProfile& at = report.profile.at;
    const char* precision = name(report.precision);
    std::string text;
    text += fmt::format("A        {}\n         {} x {}, {} entries, loaded in {:.3f} s\n", report.origin,
                        count_text(a.rows), count_text(a.cols), count_text(a.nnz), report.load_seconds);
    text += fmt::format("profile  on {}, A in {}, A^T in {}\n", report.device, time_text(report.a_seconds),
                        time_text(report.at_seconds));
    text += fmt::format("copy     {:.0f} GB/s, {}\n\n", report.rates.copy_bytes_per_second * 1e-9, report.rates.origin);
    text += fmt::format("A x, {}\n{}\n", precision, diagnosis_text(diagnose(a, at, report.widths(), report.rates)));
    text += fmt::format("A^T y, {}: rows are the columns of A\n{}\n", precision,
                        diagnosis_text(diagnose(at, a, report.widths(), report.rates)));
    text += fmt::format("bytes of A x ({}; beside it the whole product in other widths)\n{}\n", precision,
                        accounts_text(a, report));
    text += fmt::format("bytes of A^T y\n{}\n", accounts_text(at, report));
    return text + choice_text(report.choice);
}

std::string profile_json(const ProfileReport& report) {
    const auto orientation = [&](const OrientationProfile& p, const OrientationProfile& other, double seconds) -> Json {
        return {{"profile", orientation_json(p)},
                {"profile_seconds", number(seconds)},
                {"diagnosis", diagnosis_json(diagnose(p, other, report.widths(), report.rates))},
                {"formats", accounts_json(p)}};
    };
    const Json json = {
        {"schema", "lsmr_profile/1"},
        {"matrix",
         {{"origin", report.origin},
          {"rows", report.profile.a.rows},
          {"cols", report.profile.a.cols},
          {"nnz", report.profile.a.nnz},
          {"load_seconds", number(report.load_seconds)}}},
        {"device", report.device},
        {"precision", name(report.precision)},
        {"copy", {{"bytes_per_second", number(report.rates.copy_bytes_per_second)}, {"origin", report.rates.origin}}},
        {"a", orientation(report.profile.a, report.profile.at, report.a_seconds)},
        {"at", orientation(report.profile.at, report.profile.a, report.at_seconds)},
        {"choice", report.choice},
        {"warnings", report.warnings},
        {"environment", Json::parse(environment_json(describe_environment()))}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lsmr
