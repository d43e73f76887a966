#include "command.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "console.hpp"
#include "data/write.hpp"
#include "history.hpp"
#include "json_report.hpp"
#include "options.hpp"
#include "outputs.hpp"
#include "plan_file.hpp"
#include "plot.hpp"
#include "problem.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "signals.hpp"
#include "solver/solve.hpp"
#include "stopwatch.hpp"

namespace lsmr {
namespace {

// Follows the solve: history, log, progress, and the wish to stop.
class Follower : public Observer {
  public:
    Follower(Console& console, const CommandLine& line, HistoryFile* history, bool prints_table)
        : console_(console),
          line_(line),
          history_(history),
          log_(console, line.log_every),
          forecast_(line.solve),
          prints_table_(prints_table) {}

    Verdict on_iterations(std::span<const IterationRecord> records) override {
        if (history_ != nullptr) history_->add(records);
        if (prints_table_) log_.add(records);
        if (console_.shows_progress()) show_progress(records);
        return noted_signal() != 0 ? Verdict::stop : Verdict::go_on;
    }
    bool wants_checkpoint(Moment moment) override {
        if (line_.save_state.empty()) return false;
        const double every = line_.checkpoint_every_seconds;
        return moment == Moment::end || (every > 0 && since_checkpoint_.seconds() >= every);
    }
    // A state that cannot be written does not end the solve: x comes first.
    void on_checkpoint(const Checkpoint& checkpoint) override {
        state_error_.clear();
        try {
            write_state(line_.save_state, checkpoint);
            saved_iteration_ = checkpoint.iteration;
        } catch (const OutputError& error) {
            state_error_ = error.what();
        }
        since_checkpoint_ = Stopwatch();  // the writing does not count
    }
    const std::string& state_error() const { return state_error_; }
    std::int64_t saved_iteration() const { return saved_iteration_; }  // of the last state that was written; -1: none
    void end_column() {
        console_.clear_progress();
        log_.finish();
    }

  private:
    void show_progress(std::span<const IterationRecord> records) {
        constexpr double kSecondsBetween = 0.1;  // as often as an eye can follow
        for (const IterationRecord& record : records) forecast_.add(record);
        if (since_progress_.seconds() < kSecondsBetween) return;
        console_.progress(forecast_.text());
        since_progress_ = Stopwatch();
    }

    Console& console_;
    const CommandLine& line_;
    HistoryFile* history_;
    std::string state_error_;
    std::int64_t saved_iteration_ = -1;
    Stopwatch since_checkpoint_;
    IterationLog log_;
    Forecast forecast_;
    bool prints_table_;
    Stopwatch since_progress_;
};

// A column that a signal kept from being solved: x is its start, and no norm is known.
SolveResult not_begun() {
    SolveResult result;
    result.status = Status::stopped;
    result.message = "stopped before this column was begun; x is its start";
    result.norms = Norms::unknown();
    return result;
}

void find_worst(Outcome& outcome) {
    for (std::size_t i = 1; i < outcome.columns.size(); ++i) {
        if (exit_code(outcome.columns[i].status) > exit_code(outcome.result().status)) outcome.worst = i;
    }
}

// Every column of b in turn; the time limit is for all of them together.
Outcome solve_columns(const CommandLine& line, Problem& problem, PreparedProblem& prepared, Console& console,
                      HistoryFile* history, const Checkpoint* resume) {
    const std::size_t rows = static_cast<std::size_t>(problem.a->rows());
    const std::size_t cols = static_cast<std::size_t>(problem.a->cols());
    const bool several = problem.columns > 1;
    Follower follower(console, line, history, !several || line.log_every > 0 || console.shows_details());
    Outcome outcome;
    const Stopwatch since_start;
    for (std::int64_t column = 0; column < problem.columns; ++column) {
        const std::size_t at = static_cast<std::size_t>(column);
        if (column > 0 && noted_signal() != 0) {
            outcome.columns.push_back(not_begun());
            continue;
        }
        SolveOptions options = line.solve;
        if (!problem.center.empty()) options.center = std::span<const double>(problem.center).subspan(at * cols, cols);
        options.time_limit_seconds = std::max(0.0, options.time_limit_seconds - since_start.seconds());
        options.estimate_variances = line.errors.kind == ErrorKind::estimate;
        const std::span<const double> b = std::span<const double>(problem.b).subspan(at * rows, rows);
        const std::span<double> x = std::span<double>(problem.x).subspan(at * cols, cols);
        if (line.damp_search) {
            outcome.damp.push_back(
                solve_with_chosen_damp(prepared, b, x, options, *line.damp_search, !line.x0.empty(), &follower));
            outcome.columns.push_back(outcome.damp.back().result);
        } else {
            outcome.columns.push_back(prepared.solve(b, x, options, !line.x0.empty(), &follower, resume));
        }
        follower.end_column();
        const SolveResult& result = outcome.columns.back();
        outcome.timing.solve_seconds += result.solve_seconds;
        outcome.timing.audit_seconds += result.audit_seconds;
        if (several) print_column(console, column + 1, result);
    }
    find_worst(outcome);
    outcome.state_error = follower.state_error();
    outcome.saved_iteration = follower.saved_iteration();
    outcome.timing.setup_seconds = prepared.info().setup_seconds;
    outcome.memory = prepared.memory();
    return outcome;
}

// Ends a robust fit at a signal. What its solves report is of weighted problems, so nothing of it is shown.
class SignalWatch : public Observer {
  public:
    Verdict on_iterations(std::span<const IterationRecord>) override {
        return noted_signal() != 0 ? Verdict::stop : Verdict::go_on;
    }
};

// The same as solve_columns() with --loss.
Outcome fit_columns(const CommandLine& line, Problem& problem, PreparedProblem& prepared, Console& console) {
    const std::size_t rows = static_cast<std::size_t>(problem.a->rows());
    const std::size_t cols = static_cast<std::size_t>(problem.a->cols());
    SignalWatch watch;
    Outcome outcome;
    const Stopwatch since_start;
    for (std::int64_t column = 0; column < problem.columns; ++column) {
        const std::size_t at = static_cast<std::size_t>(column);
        RobustResult fitted;
        if (column > 0 && noted_signal() != 0) {
            fitted.result = not_begun();
        } else {
            SolveOptions options = line.solve;
            if (!problem.center.empty())
                options.center = std::span<const double>(problem.center).subspan(at * cols, cols);
            options.time_limit_seconds = std::max(0.0, options.time_limit_seconds - since_start.seconds());
            fitted = solve_robust(prepared, std::span<const double>(problem.b).subspan(at * rows, rows),
                                  std::span<double>(problem.x).subspan(at * cols, cols), options, line.robust,
                                  !line.x0.empty(), &watch);
        }
        outcome.timing.solve_seconds += fitted.result.solve_seconds;
        outcome.timing.audit_seconds += fitted.result.audit_seconds;
        if (problem.columns > 1) print_column(console, column + 1, fitted.result);
        outcome.columns.push_back(fitted.result);
        outcome.robust.push_back(std::move(fitted));
    }
    find_worst(outcome);
    outcome.timing.setup_seconds = prepared.info().setup_seconds;  // that of each set of weights too
    outcome.memory = prepared.memory();
    return outcome;
}

// For every column of b. (A^T A)^-1 is the same for all, so solves for it are made once.
void find_standard_errors(const CommandLine& line, PreparedProblem& prepared, Outcome& outcome) {
    SignalWatch watch;
    for (std::size_t i = 0; i < outcome.columns.size(); ++i) {
        const SolveResult& column = outcome.columns[i];
        SolveOptions options = line.solve;
        if (!outcome.damp.empty()) options.damp = outcome.damp.at(i).damp;
        const bool reuse = line.errors.kind != ErrorKind::estimate && i > 0 && outcome.damp.empty();
        StandardErrorOptions wanted = line.errors;
        if (reuse) wanted.kind = ErrorKind::none;  // sigma alone
        StandardErrors errors = standard_errors(prepared, options, column, wanted, &watch);
        if (reuse) {
            const double sigma = errors.sigma;
            errors = outcome.errors.front();
            errors.sigma = sigma;
        }
        outcome.errors.push_back(std::move(errors));
    }
    outcome.timing.errors_seconds = outcome.errors.front().seconds;
}

double relative_error(std::span<const double> x, std::span<const double> x_true) {
    double difference = 0;
    double size = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
        difference = std::hypot(difference, x[j] - x_true[j]);
        size = std::hypot(size, x_true[j]);
    }
    return size > 0 ? difference / size : difference;
}

// The first column beside Eigen. x_start: what the solve of that column began with.
Comparison compare(const CommandLine& line, const Problem& problem, const Outcome& outcome,
                   std::span<const double> x_start) {
    const SolveResult& result = outcome.columns.front();
    const std::span<const double> start = line.x0.empty() ? std::span<const double>() : x_start;
    const ComparisonProblem comparison{
        .a = *problem.a,
        .b = std::span<const double>(problem.b).first(static_cast<std::size_t>(problem.a->rows())),
        .x0 = start,
        .center = line.solve.damp_center == DampCenter::x0 ? start
                  : problem.center.empty()
                      ? std::span<const double>()
                      : std::span<const double>(problem.center).first(static_cast<std::size_t>(problem.a->cols())),
        .damp = line.solve.damp,
        .x_ours = std::span<const double>(problem.x).first(static_cast<std::size_t>(problem.a->cols())),
        .achieved_ar = result.norms.ar,
        .max_iterations = line.solve.max_iterations,
        .threads = line.prepare.threads,
    };
    ComparisonRow ours;
    ours.solver = fmt::format("lsmr_solve, {}", name(line.solve.method));
    ours.iterations = result.iterations;
    ours.setup_seconds = outcome.timing.setup_seconds;
    ours.solve_seconds = result.solve_seconds;
    ours.ended = status_name(result.status);
    return compare_with_eigen(comparison, std::move(ours), [] { return noted_signal() != 0; });
}

// What has been read and checked by now is not to blame: it is options that contradict each other, or do not fit the problem.
template <class Step>
auto with_options_to_blame(const Step& step) {
    try {
        return step();
    } catch (const InputError& error) {
        throw UsageError(error.what());
    }
}

// Puts the method that auto stands for into the options, and refuses one that does not fit A.
void resolve_method(CommandLine& line, const CsrMatrix& a, const PreparedProblem& prepared) {
    if (is_robust(line) && line.solve.method == Method::automatic) {
        line.solve.method = Method::lsmr;
        line.method_reason = "reweighted solves end early, where its ||A^T r|| has fallen steadily";
        return;
    }
    const MethodChoice choice = prepared.choose_method(line.solve);
    line.method_reason = choice.reason;
    line.solve.method = choice.method;
    SolveOptions options = line.solve;
    options.damp_center = DampCenter::zero;  // the file of the centre has been checked
    with_options_to_blame([&] { resolved_options(options, a.rows(), a.cols(), &a); });
}

PreparedProblem prepare(const CommandLine& line, const Problem& problem) {
    PrepareOptions options = line.prepare;
    options.separate_products = line.solve.method == Method::cgls || line.solve.method == Method::cg;
    return with_options_to_blame([&] { return PreparedProblem(problem.a, options); });
}

// Before the solve, what standard_errors() would refuse after it.
void check_standard_errors(const CommandLine& line, const Problem& problem) {
    if (line.errors.kind == ErrorKind::none) return;
    const std::int64_t cols = problem.a->cols();
    const auto zeros = std::count(problem.weights.begin(), problem.weights.end(), 0.0);
    if (problem.a->rows() - zeros <= cols) {
        throw UsageError(fmt::format("--standard-errors need more equations than unknowns; there are {} and {}",
                                     problem.a->rows() - zeros, cols));
    }
    for (const std::int64_t column : line.errors.columns) {
        if (column >= cols) throw UsageError(fmt::format("--standard-errors: there is no column {}, A has {}", column + 1, cols));
    }
}

int solve(CommandLine& line, Console& console) {
    const std::string rhs_note = resolve_rhs(line);
    check_outputs(line);
    Problem problem = load_problem(line, rhs_note);
    const CsrMatrix& a = *problem.a;
    line.solve.conlim = resolved_conlim(line.solve, line.prepare.precision);
    line.solve.stall_window = resolved_stall_window(line.solve, a.rows(), a.cols());
    line.solve.max_iterations = resolved_max_iterations(line.solve, a.rows(), a.cols(), line.prepare.precision);
    if (line.compare_eigen) check_eigen_can_hold(a, line.solve.damp > 0);
    if (problem.columns > 1 && (!line.save_state.empty() || !line.resume.empty())) {
        throw UsageError(
            fmt::format("--save-state and --resume are for one column of b; this one has {}", problem.columns));
    }
    check_standard_errors(line, problem);
    std::optional<Checkpoint> resume;
    if (!line.resume.empty()) resume = read_state(line.resume);

    print_problem(console, line, problem);
    std::vector<std::string> warnings = problem.warnings;
    if (line.action == Action::check) {
        for (const std::string& warning : warnings) console.warning(warning);
        print_check(console, problem);
        if (!line.json.empty()) write_text(line.json, check_json(line, problem, warnings));
        return kExitOk;
    }

    if (line.prepare.threads == 0) line.prepare.threads = omp_get_max_threads();
    line.prepare.preconditioner_damp = line.solve.damp;
    // Most solves end long before their limit.
    line.prepare.expected_iterations = problem.columns * std::min(line.solve.max_iterations, kCautiousIterations);
    line.prepare.weights = problem.weights;
    line.prepare.column_damp = problem.column_damp;
    line.prepare.regulariser = problem.regulariser;
    line.prepare.preconditioner_matrix = problem.preconditioner;
    if (!line.plan.empty()) read_plan(read_text(line.plan), line.plan, a, line.prepare);
    if (resume) {
        adopt_kernels(*resume, line.prepare);
        adopt_order(*resume, line.prepare);
    }
    PreparedProblem prepared = prepare(line, problem);
    const PreparedInfo info = prepared.info();
    if (!line.save_plan.empty()) write_text(line.save_plan, plan_text(a, line.prepare.precision, info));
    resolve_method(line, a, prepared);
    warnings.insert(warnings.end(), info.notes.begin(), info.notes.end());
    for (const std::string& warning : warnings) console.warning(warning);
    print_setup(console, line, prepared);

    std::optional<HistoryFile> history;
    if (!line.history.empty()) history.emplace(line.history);
    const std::vector<double> x_start(problem.x.begin(), problem.x.begin() + (line.compare_eigen ? a.cols() : 0));
    note_signals();
    const auto solved = [&] {
        return is_robust(line) ? fit_columns(line, problem, prepared, console)
                               : solve_columns(line, problem, prepared, console, history ? &*history : nullptr, resume ? &*resume : nullptr);
    };
    Outcome outcome = resume ? solved() : with_options_to_blame(solved);  // a state is checked by the solve that goes on from it
    if (resume) outcome.resumed_iteration = resume->iteration;

    const Stopwatch writing;
    if (history) {
        try {
            history->finish();
            if (!line.plot.empty()) plot_history(line.history, line.plot);
        } catch (const OutputError& error) {
            outcome.history_error = error.what();  // x and the report come first
        }
    }
    if (!line.output.empty()) {
        try {
            write_x(line, problem, outcome);
        } catch (const OutputError& error) {
            outcome.output_error = error.what();  // what is known of x is still said, and reported
            outcome.output_exit_code = exit_code(error);
        }
    }
    outcome.timing.write_seconds = writing.seconds();
    if (!problem.x_true.empty()) outcome.error_to_x_true = relative_error(problem.x, problem.x_true);
    if (line.errors.kind != ErrorKind::none && noted_signal() == 0) find_standard_errors(line, prepared, outcome);
    print_outcome(console, line, problem, outcome);

    if (line.compare_eigen && noted_signal() == 0) {
        outcome.comparison = compare(line, problem, outcome, x_start);
        print_comparison(console, *outcome.comparison, problem.columns > 1);
    }
    outcome.signal = noted_signal();
    if (!line.json.empty()) write_text(line.json, solve_json(line, problem, info, outcome, warnings));
    for (const std::string& error : {outcome.output_error, outcome.history_error, outcome.state_error}) {
        if (!error.empty()) console.error(error);
    }
    if (outcome.signal != 0 && outcome.output_error.empty()) end_by_signal(outcome.signal);
    return outcome.exit_code();
}

int execute(CommandLine& line, Console& console) {
    switch (line.action) {
        case Action::help:
            write_text("-", help_text());
            return kExitOk;
        case Action::version:
            write_text("-", version_text());
            return kExitOk;
        case Action::environment: {
            const Environment environment = describe_environment();
            if (line.json.empty()) {
                write_text("-", environment_text(environment));
            } else {
                write_text(line.json, environment_json(environment));
            }
            return kExitOk;
        }
        case Action::check:
        case Action::solve:
            return solve(line, console);
    }
    return kExitInternal;
}

}  // namespace

int run_command(std::span<const std::string> args) {
    Console console(asks_for_silence(args) ? Talk::silent : Talk::normal, ProgressMode::never);
    if (args.empty()) {
        console.line(help_text());
        return kExitUsage;
    }
    try {
        CommandLine line = parse_command_line(args);
        console = Console(line.talk, line.progress);
        return execute(line, console);
    } catch (const UsageError& error) {
        console.error(fmt::format("{} (lsmr_solve --help lists the flags)", error.what()));
        return kExitUsage;
    } catch (const std::bad_alloc& error) {
        console.error("out of memory on the host");
        return exit_code(error);
    } catch (const std::exception& error) {
        console.error(error.what());
        return exit_code(error);
    }
}

}  // namespace lsmr
