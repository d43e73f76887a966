#include "json_report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <nlohmann/json.hpp>

namespace lsmr {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
}
Json text_or_null(const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

// A path need not be UTF-8; JSON must.
std::string to_text(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json status_json(const SolveResult& result) {
    return {{"code", static_cast<int>(result.status)},
            {"name", status_name(result.status)},
            {"converged", result.converged()},
            {"message", result.message}};
}

Json norms_json(const Norms& norms) {
    return {{"b", number(norms.b)},
            {"r", number(norms.r)},
            {"r_damped", number(norms.r_damped)},
            {"ar", number(norms.ar)},
            {"r_estimated", number(norms.r_estimated)},
            {"ar_estimated", number(norms.ar_estimated)},
            {"a_frobenius", number(norms.a_frobenius)},
            {"a_frobenius_estimated", number(norms.a_estimated)},
            {"cond_estimate", number(norms.cond_estimate)},
            {"x", number(norms.x)},
            {"dx", number(norms.dx)},
            {"start_ratio", number(norms.start_ratio)}};
}

Json robust_json(const RobustOptions& options, const RobustResult& fit) {
    Json solves = Json::array();
    for (const OuterRecord& record : fit.history) {
        solves.push_back({{"objective", number(record.objective)},
                          {"gradient", number(record.gradient)},
                          {"x_change", number(record.x_change)},
                          {"iterations", record.iterations}});
    }
    return {{"loss", name(options.loss)},
            {"threshold", has_threshold(options.loss) ? number(options.threshold) : Json(nullptr)},
            {"outer_iterations", fit.outer_iterations},
            {"iterations", fit.result.iterations},
            {"objective", number(fit.objective)},
            {"gradient", number(fit.gradient)},
            {"gradient_bound", number(fit.gradient_bound)},
            {"downweighted_rows", fit.downweighted},
            {"solves", std::move(solves)}};
}

Json errors_json(const StandardErrors& errors, std::span<const double> x) {
    Json columns = Json::array();
    Json values = Json::array();
    Json at = Json::array();
    Json spread = Json::array();
    for (std::size_t k = 0; k < errors.columns.size(); ++k) {
        columns.push_back(errors.columns[k] + 1);
        at.push_back(number(x[static_cast<std::size_t>(errors.columns[k])]));
        values.push_back(number(errors.sigma * errors.unit_errors[k]));
        if (!errors.unit_spread.empty()) spread.push_back(number(errors.sigma * errors.unit_spread[k]));
    }
    return {{"kind", name(errors.kind)},
            {"complete", errors.complete},
            {"sigma", number(errors.sigma)},
            {"cond_frobenius", number(errors.cond_frobenius)},
            {"iterations", errors.iterations},
            {"columns", std::move(columns)},
            {"x", std::move(at)},
            {"values", std::move(values)},
            {"spread", errors.unit_spread.empty() ? Json(nullptr) : std::move(spread)},
            {"notes", errors.notes}};
}

Json damp_json(const DampSearch& search, const DampChoice& choice) {
    Json table = Json::array();
    for (const DampRow& row : choice.table) {
        table.push_back({{"damp", number(row.damp)},
                         {"r", number(row.r)},
                         {"x", number(row.x)},
                         {"gcv", number(row.gcv)},
                         {"curvature", number(row.curvature)}});
    }
    return {{"rule", name(search.rule)},
            {"deviation", search.rule == DampRule::discrepancy ? number(search.deviation) : Json(nullptr)},
            {"damp", number(choice.damp)},
            {"steps", choice.steps},
            {"settled", choice.settled},
            {"notes", choice.notes},
            {"table", std::move(table)}};
}

Json matrix_json(const CommandLine& line, const Problem& problem) {
    const CsrMatrix& a = *problem.a;
    return {{"path", line.matrix},
            {"rows", a.rows()},
            {"cols", a.cols()},
            {"nnz", a.nnz()},
            {"duplicates_summed", problem.duplicates_summed},
            {"empty_rows", problem.summary.empty_rows},
            {"empty_cols", problem.summary.empty_cols}};
}

Json rhs_json(const Problem& problem, const std::optional<double>& error_to_x_true) {
    if (problem.columns == 0) return nullptr;
    Json rhs = {{"origin", problem.b_origin}, {"columns", problem.columns}};
    if (error_to_x_true) rhs["x_true_relative_error"] = number(*error_to_x_true);
    return rhs;
}

const char* device_name(DeviceKind kind) {
    return kind == DeviceKind::automatic ? "auto" : kind == DeviceKind::cpu ? "cpu" : "cuda";
}

// The options as the solve used them: -1 and 0 have been replaced by what they stand for.
Json options_json(const CommandLine& line) {
    const SolveOptions& solve = line.solve;
    const PrepareOptions& prepare = line.prepare;
    return {
        {"method", name(solve.method)},
        {"damp", line.damp_search ? Json("auto:" + std::string(name(line.damp_search->rule))) : number(solve.damp)},
        {"damp_range", line.damp_search && line.damp_search->count > 0
                           ? Json({line.damp_search->low, line.damp_search->high, line.damp_search->count})
                           : Json(nullptr)},
        {"damp_center", line.center.empty() ? name(solve.damp_center) : line.center},
        {"column_damp", text_or_null(line.column_damp)},
        {"regularise", text_or_null(line.regulariser)},
        {"regularise_weight", number(prepare.regulariser_weight)},
        {"weights", text_or_null(line.weights)},
        {"scale", name(prepare.scale)},
        {"precondition", prepare.block_size > 0 ? Json("blocks:" + std::to_string(prepare.block_size))
                                                : Json(name(prepare.preconditioner))},
        {"precondition_file", text_or_null(line.preconditioner)},
        {"ic_drop", prepare.preconditioner == Preconditioner::cholesky && prepare.cholesky_drop >= 0 ? number(prepare.cholesky_drop)
                                                                                                     : Json(nullptr)},
        {"ic_shift", prepare.preconditioner == Preconditioner::cholesky ? number(prepare.cholesky_shift) : Json(nullptr)},
        {"reorthogonalize", solve.reorthogonalize == SolveOptions::kAll ? Json("full") : Json(solve.reorthogonalize)},
        {"sketch_seed", prepare.preconditioner == Preconditioner::sketch ? Json(prepare.sketch_seed) : Json(nullptr)},
        {"atol", number(solve.atol)},
        {"btol", number(solve.btol)},
        {"conlim", number(solve.conlim)},
        {"ar_bound", number(solve.ar_bound)},
        {"ar_relative", number(solve.ar_relative)},
        {"passes", solve.passes},
        {"stall_window", solve.stall_window},
        {"trust_radius", number(solve.trust_radius)},
        {"max_iterations", solve.max_iterations},
        {"time_limit_seconds", number(solve.time_limit_seconds)},
        {"x0", text_or_null(line.x0)},
        {"loss", has_threshold(line.robust.loss) ? Json(fmt::format("{}:{}", name(line.robust.loss), line.robust.threshold))
                                                 : Json(name(line.robust.loss))},
        {"max_outer", is_robust(line) ? Json(line.robust.max_outer) : Json(nullptr)},
        {"transpose", line.transpose},
        {"fortran_numbers", line.read.fortran_numbers},
        {"allow_nonfinite", line.read.allow_nonfinite},
        {"device", device_name(prepare.device)},
        {"device_index", prepare.device_index},
        {"precision", name(prepare.precision)},
        {"spmv", line.spmv},
        {"format", line.format},
        {"narrow", name(prepare.narrow)},
        {"plan", text_or_null(line.plan)},
        {"executor", name(prepare.executor)},
        {"storage", name(prepare.storage)},
        {"reorder", name(prepare.reorder)},
        {"gpu_memory_limit_bytes",
         prepare.gpu_memory_limit_bytes > 0 ? Json(prepare.gpu_memory_limit_bytes) : Json(nullptr)},
        {"allow_fallback", prepare.allow_fallback},
        {"threads", prepare.threads},
        {"deterministic", prepare.deterministic},
        {"standard_errors", line.errors.kind == ErrorKind::none ? Json(nullptr) : Json(name(line.errors.kind))},
        {"standard_errors_probes", line.errors.kind == ErrorKind::hutchinson ? Json(line.errors.probes) : Json(nullptr)},
        {"standard_errors_seed", line.errors.kind == ErrorKind::hutchinson ? Json(line.errors.seed) : Json(nullptr)},
        {"compare", line.compare_eigen ? Json("eigen") : Json(nullptr)}};
}

Json environment_members(const Environment& environment) {
    const CudaProbe& cuda = environment.cuda;
    return {{"version", environment.version},
            {"compiler", environment.compiler},
            {"build_type", environment.build_type},
            {"eigen", environment.eigen},
            {"openmp_threads", environment.openmp_threads},
            {"cuda",
             {{"built_in", cuda.built_in},
              {"usable", cuda.usable},
              {"reason", text_or_null(cuda.reason)},
              {"driver", text_or_null(cuda.driver)},
              {"runtime", text_or_null(cuda.runtime)},
              {"devices", cuda.devices}}}};
}

// How a kernel was chosen; null on the CPU.
Json decision_json(const ProductDecision& decision) {
    if (!decision.choice) return nullptr;
    Json candidates = Json::array();
    for (const ProductDecision::Timing& candidate : decision.candidates) {
        candidates.push_back({{"kernel", candidate.kernel},
                              {"reason", candidate.reason},
                              {"seconds", candidate.seconds > 0 ? Json(candidate.seconds) : Json(nullptr)}});
    }
    return {{"kernel", text(*decision.choice)}, {"reason", decision.reason}, {"key", text_or_null(decision.key)}, {"candidates", std::move(candidates)}};
}

Json order_json(const OrderDecision& order) {
    const auto seconds_or_null = [](double seconds) { return seconds > 0 ? Json(seconds) : Json(nullptr); };
    Json candidates = Json::array();
    for (const OrderDecision::Candidate& candidate : order.candidates) {
        candidates.push_back({{"order", name(candidate.kind)},
                              {"predicted_seconds", seconds_or_null(candidate.predicted_seconds)},
                              {"measured_seconds", seconds_or_null(candidate.measured_seconds)},
                              {"seconds", candidate.seconds}});
    }
    return {{"kind", name(order.kind)},
            {"reason", order.reason},
            {"seconds", order.setup_seconds},
            {"break_even_iterations", seconds_or_null(order.break_even)},
            {"predicted_seconds",
             {{"given", seconds_or_null(order.given_seconds)},
              {"local", seconds_or_null(order.local_seconds)},
              {"taken", seconds_or_null(order.predicted_seconds)}}},
            {"measured_seconds", {{"given", seconds_or_null(order.given_measured_seconds)}, {"taken", seconds_or_null(order.measured_seconds)}}},
            {"candidates", std::move(candidates)}};
}

Json comparison_json(const Comparison& comparison) {
    Json rows = Json::array();
    for (const ComparisonRow& row : comparison.rows) {
        rows.push_back({{"solver", row.solver},
                        {"iterations", row.iterations},
                        {"ended_by", row.ended},
                        {"seconds", {{"setup", number(row.setup_seconds)}, {"solve", number(row.solve_seconds)}}},
                        {"r", number(row.r)},
                        {"ar", number(row.ar)},
                        {"x_relative_difference", number(row.x_difference)}});
    }
    return {{"with", "Eigen " + comparison.version},
            {"column", 1},
            {"precision", "fp64"},
            {"threads", comparison.threads},
            {"stacked", comparison.stacked},
            {"tolerance", number(comparison.tolerance)},
            {"tolerance_on", "||A^T r|| / ||A^T b||"},
            {"max_iterations", comparison.max_iterations},
            {"iterations_count", "products with A in the loop"},
            {"rows", std::move(rows)}};
}

Json phases_json(const SetupSeconds& setup) {
    Json phases = Json::object();
    setup.for_each([&](const char* name, double seconds) { phases[name] = seconds; });
    return phases;
}

}  // namespace

std::string solve_json(const CommandLine& line, const Problem& problem, const PreparedInfo& prepared,
                       const Outcome& outcome, const std::vector<std::string>& warnings) {
    const SolveResult& result = outcome.result();
    Json json;
    json["schema"] = "lsmr_solve/1";
    json["status"] = status_json(result);
    json["exit_code"] = outcome.exit_code();
    json["method"] = name(line.solve.method);
    json["method_reason"] = text_or_null(line.method_reason);
    json["precision"] = name(line.prepare.precision);
    json["device"] = {{"kind", device_name(prepared.device)}, {"name", prepared.device_name}};
    json["iterations"] = result.iterations;
    json["restarts"] = result.restarts;
    json["norms"] = norms_json(result.norms);
    json["robust"] = outcome.robust.empty() ? Json(nullptr) : robust_json(line.robust, outcome.robust.at(outcome.worst));
    const auto x_of = [&](std::size_t column) {
        const auto cols = static_cast<std::size_t>(problem.a->cols());
        return std::span<const double>(problem.x).subspan(column * cols, cols);
    };
    json["damping"] = outcome.damp.empty() ? Json(nullptr) : damp_json(*line.damp_search, outcome.damp.at(outcome.worst));
    json["standard_errors"] =
        outcome.errors.empty() ? Json(nullptr) : errors_json(outcome.errors.at(outcome.worst), x_of(outcome.worst));
    json["matrix"] = matrix_json(line, problem);
    json["rhs"] = rhs_json(problem, outcome.error_to_x_true);
    json["options"] = options_json(line);
    json["operator"] = {{"storage", name(prepared.plan.storage)},
                        {"storage_reason", prepared.plan.storage_reason},
                        {"spmv_a", prepared.plan.forward},
                        {"spmv_at", prepared.plan.adjoint},
                        {"decision_a", decision_json(prepared.plan.forward_decision)},
                        {"decision_at", decision_json(prepared.plan.adjoint_decision)},
                        {"executor", prepared.executor == ExecutorKind::automatic ? Json(nullptr) : Json(name(prepared.executor))},
                        {"executor_words", text_or_null(prepared.executor_words)},
                        {"order", order_json(prepared.plan.order)},
                        {"deterministic", prepared.plan.deterministic},
                        {"bytes", prepared.plan.bytes},
                        {"notes", prepared.plan.notes}};
    json["timing_seconds"] = {{"read", number(problem.read_seconds)},
                              {"setup", number(outcome.timing.setup_seconds)},
                              {"setup_phases", phases_json(prepared.plan.setup)},
                              {"solve", number(outcome.timing.solve_seconds)},
                              {"audit", number(outcome.timing.audit_seconds)},
                              {"standard_errors", number(outcome.timing.errors_seconds)},
                              {"write", number(outcome.timing.write_seconds)}};
    json["memory"] = {{"pool_peak_bytes", outcome.memory.pool_peak_bytes},
                      {"pool_reserved_bytes", outcome.memory.pool_reserved_bytes}};
    json["output"] = text_or_null(outcome.output_error.empty() ? line.output : std::string());
    json["plot"] = text_or_null(line.plot);
    json["state"] = {
        {"path", text_or_null(line.save_state)},
        {"iteration", outcome.saved_iteration >= 0 ? Json(outcome.saved_iteration) : Json(nullptr)},
        {"resumed_after", outcome.resumed_iteration >= 0 ? Json(outcome.resumed_iteration) : Json(nullptr)}};
    json["environment"] = environment_members(describe_environment());
    json["warnings"] = warnings;
    json["notes"] = result.notes;
    if (outcome.comparison) json["compare"] = comparison_json(*outcome.comparison);
    if (outcome.columns.size() > 1) {
        Json columns = Json::array();
        for (std::size_t i = 0; i < outcome.columns.size(); ++i) {
            const SolveResult& column = outcome.columns[i];
            columns.push_back({{"status", status_json(column)},
                               {"iterations", column.iterations},
                               {"restarts", column.restarts},
                               {"notes", column.notes},
                               {"norms", norms_json(column.norms)}});
            if (!outcome.damp.empty()) columns.back()["damping"] = damp_json(*line.damp_search, outcome.damp[i]);
            if (!outcome.errors.empty()) columns.back()["standard_errors"] = errors_json(outcome.errors[i], x_of(i));
            if (!outcome.robust.empty()) columns.back()["robust"] = robust_json(line.robust, outcome.robust[i]);
        }
        json["columns"] = std::move(columns);
    }
    return to_text(json);
}

std::string check_json(const CommandLine& line, const Problem& problem, const std::vector<std::string>& warnings) {
    const MatrixSummary& summary = problem.summary;
    Json json;
    json["schema"] = "lsmr_solve/1";
    json["status"] = nullptr;
    json["exit_code"] = 0;
    for (const char* of_a_solve : {"method", "method_reason", "precision", "device", "iterations", "norms"})
        json[of_a_solve] = nullptr;
    json["matrix"] = matrix_json(line, problem);
    json["values"] = {{"min", number(summary.min)},         {"max", number(summary.max)},
                      {"sum", number(summary.sum)},         {"nonfinite", summary.nonfinite},
                      {"max_abs", number(summary.max_abs)}, {"frobenius", number(summary.frobenius)}};
    json["rhs"] = rhs_json(problem, {});
    json["options"] = options_json(line);
    json["operator"] = nullptr;
    json["timing_seconds"] = {{"read", number(problem.read_seconds)},
                              {"setup", nullptr},
                              {"solve", nullptr},
                              {"audit", nullptr},
                              {"write", nullptr}};
    json["memory"] = {{"csr_bytes", problem.a->bytes()}};
    json["environment"] = environment_members(describe_environment());
    json["warnings"] = warnings;
    return to_text(json);
}

std::string environment_json(const Environment& environment) {
    Json json = {{"schema", "lsmr_env/1"}};
    json.update(environment_members(environment));
    return to_text(json);
}

}  // namespace lsmr
