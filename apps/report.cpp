#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace lsmr {
namespace {

std::string counted(std::int64_t count, const char* one, const char* many) {
    return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string number(double value) {
    return std::isnan(value) ? std::string("-") : fmt::format("{:.6e}", value);
}

// What may help after this status. Names only flags that exist.
std::string next_step(const CommandLine& line, const Outcome& outcome) {
    const SolveResult& result = outcome.result();
    const bool is_kept = !line.output.empty() && line.output != "-" && outcome.output_error.empty();
    std::string go_on = is_kept ? fmt::format("go on from this x with --x0 {}", line.output)
                                : "keep x with -o x.mtx to go on from it with --x0 x.mtx";
    const bool fp32 = line.prepare.precision == Precision::fp32;
    if (is_robust(line) && result.status == Status::iteration_limit)
        return fmt::format("raise --max-outer or --atol, or {}", go_on);
    if (is_robust(line) && result.status == Status::breakdown)
        return "raise the threshold of --loss, or leave --x0 out: the fit then begins at a rough l1 fit";
    switch (result.status) {
        case Status::start_solves:
        case Status::compatible:
        case Status::least_squares:
            return {};
        case Status::compatible_eps:
        case Status::least_squares_eps:
            return fp32 ? "for a more accurate x: --precision fp64" : "";
        case Status::condition_limit:
            return "A is nearly rank-deficient: --damp L regularises, --conlim 0 goes on regardless";
        case Status::condition_eps:
            return fmt::format("A is singular to this precision: --damp L regularises{}",
                               fp32 ? ", or --precision fp64" : "");
        case Status::iteration_limit:
            return fmt::format("raise --max-iter or --atol and --btol, or {}", go_on);
        case Status::time_limit:
            return fmt::format("raise --time-limit, or {}", go_on);
        case Status::stopped:
            return go_on;
        case Status::non_finite:
            return fmt::format("look at the values with --check{}", fp32 ? ", or try --precision fp64" : "");
        case Status::breakdown:
            if (line.solve.reorthogonalize != 0) return fmt::format("raise K of --reorthogonalize, or leave it out, or {}", go_on);
            return line.solve.method == Method::cg ? "take --method lsqr or lsmr, which need no positive definite A"
                                                   : "try another --method, or --damp L";
        case Status::stagnated:
        case Status::audit_refused:
            return fmt::format(
                "this precision allows no better x: raise --atol and --btol{}, or regularise with --damp L",
                fp32 ? ", take --precision fp64" : "");
        case Status::trust_bound:
            return fmt::format("raise --trust-radius, or {}", go_on);
        case Status::resource_error:
            return "try --storage single or --device cpu";
    }
    return {};
}

// " around x0": the centre of the damping, where it is not zero.
std::string around(const CommandLine& line) {
    if (!is_regularised(line) || line.solve.damp_center == DampCenter::zero) return {};
    return " around " + (line.center.empty() ? std::string("x0") : line.center);
}

// What the recurrence estimated, beside what is true of x.
void print_norms(Console& console, const CommandLine& line, const Norms& norms) {
    console.line("                recomputed     by the recurrence");
    const bool damped = is_regularised(line);
    const bool scaled = line.prepare.scale == Scaling::columns || line.prepare.scale == Scaling::both;
    const bool preconditioned = line.prepare.preconditioner != Preconditioner::none;
    if (damped) console.line(fmt::format("||r||           {}", number(norms.r)));
    console.line(fmt::format("{:<15} {}   {}", damped ? "||r|| damped" : "||r||", number(norms.r_damped),
                             number(norms.r_estimated)));
    console.line(fmt::format("{:<15} {}   {}{}", damped ? "||A'r|| damped" : "||A'r||", number(norms.ar),
                             number(norms.ar_estimated),
                             preconditioned ? " preconditioned"
                             : scaled       ? " with scaled columns"
                                            : ""));
    console.line(fmt::format("||x||           {}   cond(A) at least {}", number(norms.x), number(norms.cond_estimate)));
    console.line(fmt::format("||A||_F         {}   {}", number(norms.a_frobenius), number(norms.a_estimated)));
}

// The same of a robust fit.
void print_fit(Console& console, const CommandLine& line, const Problem& problem, const RobustResult& fit) {
    console.line("                in " + counted(fit.outer_iterations, "reweighted solve", "reweighted solves"));
    console.line(fmt::format("objective       {}", number(fit.objective)));
    console.line(fmt::format("gradient        {}   ||A' psi(r)||{}, asked for {}", number(fit.gradient),
                             is_regularised(line) ? " damped" : "", number(fit.gradient_bound)));
    console.line(fmt::format("downweighted    {} of {}: below half of the full weight", fit.downweighted,
                             counted(problem.a->rows(), "row", "rows")));
    console.line(fmt::format("||r||           {}", number(fit.result.norms.r)));
    console.line(fmt::format("||x||           {}", number(fit.result.norms.x)));
}

void print_damping(Console& console, const CommandLine& line, const DampChoice& choice) {
    console.line(fmt::format("damping         {:.6e}   by {}, from {} of bidiagonalisation{}", choice.damp, name(line.damp_search->rule),
                             counted(choice.steps, "step", "steps"), choice.settled ? "" : ", not settled"));
    for (const std::string& note : choice.notes) console.line("note            " + note);
    if (line.damp_search->count == 0 && !console.shows_details()) return;
    console.line(fmt::format("{:>12} {:>13} {:>13} {:>13}", "lambda", "||r||", "||x - c||", "gcv"));
    for (const DampRow& row : choice.table) {
        console.line(fmt::format("{:>12.5e} {:>13} {:>13} {:>13}", row.damp, number(row.r), number(row.x), number(row.gcv)));
    }
}

// The first few; the JSON report holds all.
void print_errors(Console& console, const Problem& problem, const Outcome& outcome) {
    const StandardErrors& errors = outcome.errors.at(outcome.worst);
    const char* how = errors.kind == ErrorKind::estimate ? "as LSQR saw them: too small, often by a lot"
                      : errors.kind == ErrorKind::exact  ? "by a solve for each"
                                                         : "by random probes";
    console.line(fmt::format("standard errors {}; sigma = ||r|| / sqrt(rows - cols) = {:.6e}", how, errors.sigma));
    constexpr std::size_t kShown = 8;
    const std::size_t first = outcome.worst * static_cast<std::size_t>(problem.a->cols());
    for (std::size_t k = 0; k < std::min(kShown, errors.columns.size()); ++k) {
        console.line(fmt::format("  x_{:<12} {} +- {}", errors.columns[k] + 1,
                                 number(problem.x[first + static_cast<std::size_t>(errors.columns[k])]),
                                 number(errors.sigma * errors.unit_errors[k])));
    }
    if (errors.columns.size() > kShown) console.line(fmt::format("  ... {} in all: see --json", errors.columns.size()));
    for (const std::string& note : errors.notes) console.line("note            " + note);
}

}  // namespace

void print_problem(Console& console, const CommandLine& line, const Problem& problem) {
    if (!console.shows_lines()) return;
    const CsrMatrix& a = *problem.a;
    const double cells = static_cast<double>(a.rows()) * static_cast<double>(a.cols());
    console.line(fmt::format("A       {}{}: {} x {}, {} ({:.3g} % full)",
                             line.matrix == "-" ? "standard input" : line.matrix, line.transpose ? ", transposed" : "",
                             a.rows(), a.cols(), counted(a.nnz(), "entry", "entries"),
                             cells > 0 ? 100.0 * static_cast<double>(a.nnz()) / cells : 0.0));
    console.line(fmt::format("        {} summed, {}, {}", counted(problem.duplicates_summed, "duplicate", "duplicates"),
                             counted(problem.summary.empty_rows, "empty row", "empty rows"),
                             counted(problem.summary.empty_cols, "empty column", "empty columns")));
    if (problem.columns > 0) {
        console.line(fmt::format("b       {}{}", problem.b_origin,
                                 problem.columns > 1 ? fmt::format(", {} columns", problem.columns) : ""));
    }
    if (!line.x0.empty()) console.line(fmt::format("x0      {}", line.x0));
    if (!line.weights.empty()) console.line(fmt::format("w       {}: A and b are weighted below", line.weights));
    if (is_robust(line)) {
        console.line(fmt::format("loss    {}{}, by reweighted solves, at most {}", name(line.robust.loss),
                                 has_threshold(line.robust.loss) ? fmt::format(", threshold {:g}", line.robust.threshold)
                                                                 : "",
                                 line.robust.max_outer));
    }
    if (!line.column_damp.empty()) console.line(fmt::format("d       {}", line.column_damp));
    if (problem.regulariser) {
        console.line(fmt::format("L       {}: {} x {}, {}, weight {:g}", line.regulariser, problem.regulariser->rows(),
                                 problem.regulariser->cols(), counted(problem.regulariser->nnz(), "entry", "entries"),
                                 line.prepare.regulariser_weight));
    }
}

void print_setup(Console& console, const CommandLine& line, const PreparedProblem& prepared) {
    if (!console.shows_lines()) return;
    const SolveOptions& solve = line.solve;
    const PreparedInfo& info = prepared.info();
    console.line(fmt::format(
        "solve   {}, damp {}{}, {}{}atol {:g}, btol {:g}, conlim {:g}, at most {}{}", name(solve.method),
        line.damp_search ? fmt::format("by {}", name(line.damp_search->rule)) : fmt::format("{:g}", solve.damp), around(line),
        line.prepare.scale == Scaling::none ? "" : fmt::format("scale {}, ", name(line.prepare.scale)),
        line.prepare.preconditioner == Preconditioner::none
            ? ""
            : fmt::format("precondition {}, ", name(line.prepare.preconditioner)),
        solve.atol, solve.btol, solve.conlim, counted(solve.max_iterations, "iteration", "iterations"),
        std::isfinite(solve.time_limit_seconds) ? fmt::format(" and {:g} s", solve.time_limit_seconds) : ""));
    const std::string device = info.device == DeviceKind::cuda
                                   ? fmt::format("GPU ({})", info.device_name)
                                   : fmt::format("CPU, {}", counted(info.threads, "thread", "threads"));
    console.line(fmt::format("on      {}, {}, storage {}{}", device, name(line.prepare.precision),
                             name(info.plan.storage),
                             info.plan.storage_reason.empty() ? "" : ": " + info.plan.storage_reason));
    if (!console.shows_details()) return;
    if (!line.method_reason.empty()) {
        console.detail(fmt::format("method  {}: {}", name(solve.method), line.method_reason));
    }
    console.detail(
        fmt::format("plan    A x by {}, A^T y by {}, {} stored{}", info.plan.forward, info.plan.adjoint,
                    format_bytes(info.plan.bytes),
                    info.plan.deterministic ? ", with it the same bits at every run" : ", bits may vary between runs"));
    for (const auto* decision : {&info.plan.forward_decision, &info.plan.adjoint_decision}) {
        if (!decision->choice) continue;
        console.detail(
            fmt::format("        {} {}: {}", decision == &info.plan.forward_decision ? "A x  " : "A^T y", text(*decision->choice), decision->reason));
        if (!decision->key.empty()) console.detail("          of " + decision->key);
        for (const ProductDecision::Timing& candidate : decision->candidates) {
            console.detail(fmt::format("          {:<40} {:>10}  {}", candidate.kernel,
                                       candidate.seconds > 0 ? fmt::format("{:.1f} us", 1e6 * candidate.seconds) : "not timed", candidate.reason));
        }
    }
    const OrderDecision& order = info.plan.order;
    console.detail(fmt::format("order   {}: {}", name(order.kind), order.reason));
    for (const OrderDecision::Candidate& candidate : order.candidates) {
        const std::string found = candidate.measured_seconds > 0    ? fmt::format("{:.0f} us", 1e6 * candidate.measured_seconds)
                                  : candidate.predicted_seconds > 0 ? fmt::format("{:.0f} us", 1e6 * candidate.predicted_seconds)
                                                                    : "given up";
        console.detail(fmt::format("          {:<40} {:>10}  {}made in {:.1f} ms", name(candidate.kind), found,
                                   candidate.measured_seconds > 0 ? fmt::format("measured, {:.0f} predicted, ", 1e6 * candidate.predicted_seconds) : "",
                                   1e3 * candidate.seconds));
    }
    if (order.setup_seconds > 0) {
        console.detail(fmt::format("          took {:.1f} ms of the setup{}", 1e3 * order.setup_seconds,
                                   order.break_even > 0 ? fmt::format(", repaid by {:.0f} iterations", order.break_even) : ""));
    }
    for (const std::string& note : info.plan.notes) console.detail("        " + note);
    if (!info.executor_words.empty()) console.detail("runs as " + info.executor_words);
    console.detail(fmt::format("setup   {:.3f} s", info.setup_seconds));
    const auto phase = [&](const char* name, double seconds) {
        if (seconds >= 5e-5) console.detail(fmt::format("          {:<40} {:>8.1f} ms", name, 1e3 * seconds));
    };
    info.plan.setup.for_each(phase);
    phase("other", info.setup_seconds - info.plan.setup.sum());
    if (info.device == DeviceKind::cuda) {
        const MemoryUse memory = prepared.memory();
        console.detail(fmt::format("memory  {} in use on the device, {} reserved", format_bytes(memory.pool_live_bytes),
                                   format_bytes(memory.pool_reserved_bytes)));
    }
}

void IterationLog::add(std::span<const IterationRecord> records) {
    if (!console_.shows_lines()) return;
    for (const IterationRecord& record : records) {
        last_ = record;
        if (is_due(record.iteration)) print(record);
    }
}

void IterationLog::finish() {
    if (last_.iteration > printed_) print(last_);
    last_ = {};
    printed_ = 0;
}

bool IterationLog::is_due(std::int64_t iteration) const {
    if (every_ > 0) return iteration % every_ == 0;
    std::int64_t step = 1;
    while (step < 1000 && iteration > 10 * step) step *= 10;
    return iteration % step == 0;
}

void IterationLog::print(const IterationRecord& record) {
    if (printed_ == 0) {
        console_.line(fmt::format("\n{:>8} {:>11} {:>11} {:>10} {:>10} {:>10} {:>9} {:>11} {:>9}", "itn", "||r||",
                                  "||A'r||", "compat", "LS", "||A||", "cond(A)", "||x||", "time"));
    }
    const auto cell = [](double value, int digits) {
        return std::isnan(value) ? std::string("-") : fmt::format("{:.{}e}", value, digits);
    };
    console_.line(fmt::format("{:>8} {:>11} {:>11} {:>10} {:>10} {:>10} {:>9} {:>11} {:>8.2f}s", record.iteration,
                              cell(record.r_norm, 4), cell(record.ar_norm, 4), cell(record.compat, 3), cell(record.ls, 3),
                              cell(record.a_norm, 3), cell(record.cond, 2), cell(record.x_norm, 4), record.seconds));
    printed_ = record.iteration;
}

void print_column(Console& console, std::int64_t column, const SolveResult& result) {
    if (!console.shows_lines()) return;
    console.line(fmt::format("column {:>4}: {:>7} iterations, {}, ||r|| {:.4e}, ||A'r|| {:.4e}", column,
                             result.iterations, status_name(result.status), result.norms.r, result.norms.ar));
}

void print_outcome(Console& console, const CommandLine& line, const Problem& problem, const Outcome& outcome) {
    if (!console.shows_lines()) return;
    const SolveResult& result = outcome.result();
    const Norms& norms = result.norms;
    console.line("");
    if (outcome.columns.size() > 1) {
        std::size_t converged = 0;
        for (const SolveResult& column : outcome.columns) converged += column.converged() ? 1 : 0;
        console.line(fmt::format("columns         {} of {} converged; the rest of this block is about column {}",
                                 converged, outcome.columns.size(), outcome.worst + 1));
    }
    console.line(fmt::format("{:<15} {}", result.converged() ? "solved" : "not solved", result.message));
    console.line(fmt::format(
        "iterations      {}{}", result.iterations,
        result.restarts > 0 ? fmt::format(", {} from the x so far", counted(result.restarts, "restart", "restarts")) : ""));
    if (outcome.resumed_iteration >= 0) {
        console.line(fmt::format("resumed         after iteration {} of {}", outcome.resumed_iteration, line.resume));
    }
    if (outcome.saved_iteration >= 0) {
        console.line(fmt::format("state           of iteration {} in {}: go on with --resume {}",
                                 outcome.saved_iteration, line.save_state, line.save_state));
    }
    if (!outcome.damp.empty()) print_damping(console, line, outcome.damp.at(outcome.worst));
    if (outcome.robust.empty()) {
        print_norms(console, line, norms);
    } else {
        print_fit(console, line, problem, outcome.robust.at(outcome.worst));
    }
    if (line.solve.trust_radius > 0) {
        console.line(fmt::format("||x - x0||      {}   trust radius {:g}", number(norms.dx), line.solve.trust_radius));
    }
    if (outcome.error_to_x_true) {
        console.line(fmt::format("error           {:.3e}   ||x - xtrue|| / ||xtrue||", *outcome.error_to_x_true));
    }
    if (!outcome.errors.empty()) print_errors(console, problem, outcome);
    for (const std::string& note : result.notes) console.line("note            " + note);
    const Timing& timing = outcome.timing;
    console.line(fmt::format(
        "time            read {:.3f} s, setup {:.3f} s, solve {:.3f} s, audit {:.3f} s, write {:.3f} s",
        problem.read_seconds, timing.setup_seconds, timing.solve_seconds, timing.audit_seconds, timing.write_seconds));
    if (outcome.memory.pool_peak_bytes > 0) {
        console.line(fmt::format("device memory   {} at the peak, {} reserved",
                                 format_bytes(outcome.memory.pool_peak_bytes),
                                 format_bytes(outcome.memory.pool_reserved_bytes)));
    }
    if (const std::string step = next_step(line, outcome); !step.empty()) console.line("next            " + step);
    if (line.output.empty()) {
        console.line("x               not written: add -o x.mtx, or -o - for standard output");
    } else if (!outcome.output_error.empty()) {
        console.line("x               not written: see below");
    } else {
        console.line(
            fmt::format("x               written to {}", line.output == "-" ? "standard output" : line.output));
    }
}

void print_comparison(Console& console, const Comparison& comparison, bool several_columns) {
    if (!console.shows_lines()) return;
    console.line(
        fmt::format("\nBeside Eigen {} (fp64, {}{}{}), asked for the ||A'r|| / ||A'b|| that was reached: {:.3e}",
                    comparison.version, counted(comparison.threads, "thread", "threads"),
                    comparison.stacked ? ", stacked with the damping rows" : "",
                    several_columns ? ", the first column" : "", comparison.tolerance));
    console.line(fmt::format("{:<24} {:>9} {:>10} {:>10} {:>12} {:>12} {:>10}  {}", "", "products", "setup", "solve",
                             "||r||", "||A'r||", "x differs", "ended by"));
    for (const ComparisonRow& row : comparison.rows) {
        console.line(fmt::format("{:<24} {:>9} {:>9.4f}s {:>9.4f}s {:>12.5e} {:>12.5e} {:>10.2e}  {}", row.solver,
                                 row.iterations, row.setup_seconds, row.solve_seconds, row.r, row.ar, row.x_difference,
                                 row.ended));
    }
}

void print_check(Console& console, const Problem& problem) {
    if (!console.shows_lines()) return;
    const MatrixSummary& summary = problem.summary;
    console.line(fmt::format("values  {:.17g} to {:.17g}, sum {:.17g}, {} not finite, ||A||_F {:.6e}", summary.min,
                             summary.max, summary.sum, summary.nonfinite, summary.frobenius));
    console.line(
        fmt::format("memory  {} as CSR, read in {:.3f} s", format_bytes(problem.a->bytes()), problem.read_seconds));
}

}  // namespace lsmr
