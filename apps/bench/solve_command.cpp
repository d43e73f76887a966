// lsmr_bench solve: whole iterations and whole solves, ours beside what others would write.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "bench.hpp"
#include "console.hpp"
#include "copy_bandwidth.hpp"
#include "data/write.hpp"
#include "exit_codes.hpp"
#include "flags.hpp"
#include "gpu.hpp"
#include "memory/cuda_context.hpp"
#include "memory/error.hpp"
#include "outputs.hpp"
#include "peers.hpp"
#include "solve_report.hpp"
#include "solver_under_test.hpp"

namespace lsmr {
namespace {

// A solver that was asked for: ours under these options, or another.
struct SolverRequest {
    enum class Kind { ours, textbook, eigen };
    std::string label;
    Kind kind = Kind::ours;
    PrepareOptions options;  // of ours, but for the precision
};

struct BenchOptions {
    std::vector<MatrixSource> sources;
    PrepareOptions prepare;
    std::vector<Precision> precisions{Precision::fp64, Precision::fp32};
    std::string executors;  // empty: the usual ones
    std::int64_t iterations = 100;
    int repeats = 7;
    double block_seconds = 0.25;
    double tolerance = 1e-6;
    double time_limit = 5;
    std::string peers;
    std::string json;
    bool quiet = false;
};

std::string solve_help() {
    const BenchOptions defaults;
    return "usage: lsmr_bench solve A [flags]\n"
           "       lsmr_bench solve --generate NAME[,NAME...] [flags]\n\n"
           "Times iterations of LSMR, and solves to a tolerance, side by side. auto: what lsmr_solve does; textbook: LSMR by\n"
           "cuSPARSE (both orientations, preprocess, the faster of two algorithms) and cuBLAS with scalars on the host; cpu:\n"
           "ours on the CPU; eigen: Eigen's LeastSquaresConjugateGradient, A and A^T stored by rows.\n\n" +
           matrix_flags_help() + published_help() + device_flags_help() + "                        [here: both, one after the other]\n" +
           fmt::format(
               "  --executors LIST      with commas: auto, textbook, cpu, eigen; on a GPU also own (without cuSPARSE), cusparse,\n"
               "                        deterministic, an order (none, first, spectral, ...), a kernel (lsmr_bench spmv --help),\n"
               "                        KERNEL/KERNEL for A x/A^T y\n"
               "                        [auto,textbook,cpu,eigen; on the CPU: cpu,eigen]\n"
               "  --iterations N        of a timed block [{}]; a block ends after {:g} s too\n"
               "  --repeat N            timed blocks [{}]\n"
               "  --tolerance T         of the solves, for ||A^T r|| / (||A||_F ||r||) [{:g}]\n"
               "  --time-limit S        of a solve [{:g}]\n"
               "  --peers COMMAND       adds what COMMAND FILE.npz prints of each matrix, as scripts/peers.py does\n"
               "  --json FILE           the report as JSON; - is standard output, the text goes to standard error then\n"
               "  -q, --quiet           no text\n"
               "  -h, --help            this text\n\n",
               defaults.iterations, defaults.block_seconds, defaults.repeats, defaults.tolerance, defaults.time_limit) +
           fmt::format(
               "columns: us/iter: the median block, and the least and most; kernels: of an iteration, by capturing one; waits: of the\n"
               "host for the device, an iteration; GB/s by the least bytes 24 nnz + 28 m + 76 n (fp32: 16 nnz + 16 m + 40 n); copy: the\n"
               "share of the copy bandwidth measured in the same run; set-up: upload, transposition, order and choice of kernels, and the rest;\n"
               "solve: to the tolerance, b and x in host memory, > where it was not reached; A^T r: ||A^T r|| / (||A||_F ||r||)\n"
               "recomputed in fp64; x: relative difference from the x of ours in fp64 after {} iterations.\n",
               kCheckedIterations);
}

BenchOptions bench_options(const boost::program_options::variables_map& given) {
    const auto text = [&given](const char* flag) { return given[flag].as<std::string>(); };
    BenchOptions options;
    options.sources = matrix_sources(given);
    read_device_flags(given, options.prepare);
    if (given.contains("precision")) options.precisions = {options.prepare.precision};
    if (given.contains("executors")) {
        options.executors = text("executors");
        if (options.executors.empty()) throw UsageError("--executors: the list is empty");
    }
    if (given.contains("iterations")) options.iterations = whole_number("--iterations", text("iterations"), 1, 1000000);
    if (given.contains("repeat")) options.repeats = static_cast<int>(whole_number("--repeat", text("repeat"), 1, 100000));
    if (given.contains("tolerance")) options.tolerance = positive_number("--tolerance", text("tolerance"));
    if (given.contains("time-limit")) options.time_limit = positive_number("--time-limit", text("time-limit"));
    if (given.contains("peers")) {
        options.peers = text("peers");
        if (options.peers.empty()) throw UsageError("--peers: the command is empty");
    }
    options.quiet = given.contains("quiet");
    if (given.contains("json")) {
        options.json = text("json");
        if (options.json.empty()) throw UsageError("--json: the file name is empty");
    }
    return options;
}

SolverRequest solver_request(const std::string& word, const PrepareOptions& prepare, bool on_gpu) {
    SolverRequest request{word, SolverRequest::Kind::ours, prepare};
    request.options.device = on_gpu ? DeviceKind::cuda : DeviceKind::cpu;
    request.options.allow_fallback = false;  // a row is what it says
    if (word == "auto") return request;
    if (word == "cpu") {
        request.options.device = DeviceKind::cpu;
        return request;
    }
    if (word == "eigen") {
        request.kind = SolverRequest::Kind::eigen;
        return request;
    }
    if (!on_gpu) throw UsageError(fmt::format("--executors {}: needs a GPU; on the CPU there are auto, cpu and eigen", word));
    if (word == "textbook") {
        request.kind = SolverRequest::Kind::textbook;
    } else if (word == "own") {
        request.options.spmv = SpmvKind::own;
    } else if (word == "cusparse") {
        request.options.spmv = SpmvKind::cusparse;
    } else if (const auto order = order_named(word)) {
        request.options.reorder = *order;
    } else if (word == "deterministic") {
        request.options.deterministic = true;
    } else {
        const std::size_t slash = word.find('/');
        request.options.forward_kernel = parse_spmv_choice(word.substr(0, slash));
        request.options.adjoint_kernel = slash == std::string::npos ? request.options.forward_kernel : parse_spmv_choice(word.substr(slash + 1));
    }
    return request;
}

std::vector<SolverRequest> solver_requests(const BenchOptions& options, bool on_gpu) {
    const std::string list = !options.executors.empty() ? options.executors : on_gpu ? "auto,textbook,cpu,eigen" : "cpu,eigen";
    std::vector<SolverRequest> requests;
    for (const std::string& word : split(list)) requests.push_back(solver_request(word, options.prepare, on_gpu));
    return requests;
}

// A b for a matrix that came without one: A x + noise of 1 % of its norm, so that no x fits exactly (where A has more rows than columns).
std::vector<double> made_rhs(const CsrMatrix& a) {
    std::mt19937_64 generator(1);
    const auto random = [&generator] { return static_cast<double>(static_cast<std::int64_t>(generator() >> 11)) * 0x1p-52 - 1.0; };
    std::vector<double> x(static_cast<std::size_t>(a.cols()));
    for (double& value : x) value = random();
    std::vector<double> b(static_cast<std::size_t>(a.rows()));
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        double sum = 0;
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) sum += a.values()[k] * x[static_cast<std::size_t>(a.columns()[k])];
        b[static_cast<std::size_t>(i)] = sum;
    }
    const double norm2 = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
    const double deviation = 0.01 * std::sqrt(3 * norm2 / std::max(1.0, static_cast<double>(a.rows())));  // that of uniform noise in [-1, 1] is 1 / sqrt(3)
    for (double& value : b) value += deviation * random();
    return b;
}

double relative_difference(std::span<const double> x, std::span<const double> reference) {
    double difference = 0;
    double size = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
        difference += (x[j] - reference[j]) * (x[j] - reference[j]);
        size += reference[j] * reference[j];
    }
    return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

// One matrix with its right-hand side, and what every solver's answers are measured by: ours in fp64.
class Judge {
  public:
    Judge(std::shared_ptr<const CsrMatrix> a, std::vector<double> b, const BenchOptions& options, bool on_gpu)
        : b_(std::move(b)), x_(static_cast<std::size_t>(a->cols())) {
        PrepareOptions prepare = options.prepare;
        prepare.device = on_gpu ? DeviceKind::cuda : DeviceKind::cpu;
        prepare.precision = Precision::fp64;
        prepare.allow_fallback = false;
        problem_ = std::make_shared<PreparedProblem>(std::move(a), prepare);
        RunLimits limits;
        limits.iterations = kCheckedIterations;
        checked_x_ = x_;
        make_our_solver(problem_)->run(b_, checked_x_, limits, nullptr);

        SolveOptions solve;
        solve.atol = options.tolerance;
        solve.btol = solve.conlim = 0;
        solve.stall_window = 0;
        solve.time_limit_seconds = options.time_limit;
        solve.max_iterations = std::numeric_limits<std::int64_t>::max();
        const SolveResult result = problem_->solve(b_, x_, solve);
        solution_ls_ = ls(result.norms);
        if (result.converged()) ar_bound_ = std::max(options.tolerance * result.norms.a_frobenius * result.norms.r, result.norms.ar);
    }
    std::span<const double> b() const { return b_; }
    std::span<const double> checked_x() const { return checked_x_; }
    // What ||A^T r|| of a solution may be; 0: ours did not get there in time.
    double ar_bound() const { return ar_bound_; }
    double solution_ls() const { return solution_ls_; }
    const std::shared_ptr<PreparedProblem>& problem() const { return problem_; }
    // Of any x: the audit of a solve that starts there and makes no step.
    Norms norms(std::span<const double> x) {
        x_.assign(x.begin(), x.end());
        SolveOptions none;
        none.max_iterations = 0;
        return problem_->solve(b_, x_, none, true).norms;
    }
    static double ls(const Norms& norms) { return norms.ar == 0 ? 0.0 : norms.ar / (norms.a_frobenius * norms.r); }

  private:
    std::vector<double> b_;
    std::vector<double> x_;
    std::vector<double> checked_x_;
    std::shared_ptr<PreparedProblem> problem_;
    double ar_bound_ = 0;
    double solution_ls_ = 0;
};

void measure_solver(SolverUnderTest& solver, Judge& judge, const BenchOptions& options, GpuSession* gpu, SolverMeasurement& row) {
    row.words = solver.words();
    row.on_gpu = solver.on_gpu();
    row.setup = solver.setup();
    row.setup_seconds = solver.setup_seconds();
    std::vector<double> x(judge.checked_x().size());
    RunLimits limits;
    if (solver.is_lsmr()) {
        limits.iterations = kCheckedIterations;
        const auto check = [&] { solver.run(judge.b(), x, limits, nullptr); };
        if (solver.on_gpu()) row.kernels = gpu->count_kernels(check);
        else check();
        row.x_difference = relative_difference(x, judge.checked_x());
    }
    BlockClock clock(options.iterations, options.repeats, options.block_seconds, [&] { return solver.on_gpu() ? gpu->waits() : 0; });
    solver.run(judge.b(), x, {}, &clock);
    std::vector<double> seconds = clock.seconds();
    if (seconds.empty()) {
        row.failure = "it ended before a block of iterations was timed: a residual became 0";
        return;
    }
    std::sort(seconds.begin(), seconds.end());
    row.seconds = seconds[seconds.size() / 2];
    row.least_seconds = seconds.front();
    row.most_seconds = seconds.back();
    row.iterations = clock.measured_iterations();
    if (solver.on_gpu()) row.waits = clock.waits_per_iteration();
    if (judge.ar_bound() == 0) return;
    limits = {};
    limits.ar_bound = judge.ar_bound();
    limits.seconds = options.time_limit;
    const SolverRun run = solver.run(judge.b(), x, limits, nullptr);
    const Norms norms = judge.norms(x);
    row.solve_seconds = run.seconds;
    row.solve_iterations = run.iterations;
    row.ls = Judge::ls(norms);
    row.reached = norms.ar <= 2 * judge.ar_bound();
}

SolverMeasurement measure(const SolverRequest& request, const std::shared_ptr<const CsrMatrix>& a, Precision precision, Judge& judge,
                          const BenchOptions& options, GpuSession* gpu) {
    SolverMeasurement row;
    row.label = request.label;
    try {
        std::unique_ptr<SolverUnderTest> solver;
        switch (request.kind) {
            case SolverRequest::Kind::textbook: solver = gpu->textbook(*a, precision); break;
            case SolverRequest::Kind::eigen: solver = make_eigen_solver(*a, precision); break;
            case SolverRequest::Kind::ours:
                PrepareOptions prepare = request.options;
                prepare.precision = precision;
                // The judge's own problem is the same, and has been set up.
                const bool same = precision == Precision::fp64 && (request.label == "auto" || (request.label == "cpu" && gpu == nullptr));
                solver = make_our_solver(same ? judge.problem() : std::make_shared<PreparedProblem>(a, prepare));
                break;
        }
        measure_solver(*solver, judge, options, gpu, row);
    } catch (const InputError& error) {
        row.failure = error.what();
    } catch (const OutOfMemory& error) {
        row.failure = error.what();
    }
    return row;
}

}  // namespace

int solve_command(std::span<const std::string> args) {
    const auto given = parse_flags(args, {{"executors", true},  {"iterations", true}, {"repeat", true}, {"tolerance", true},
                                          {"time-limit", true}, {"peers", true},      {"json", true},   {"quiet,q", false}});
    if (given.contains("help")) {
        write_text("-", solve_help());
        return kExitOk;
    }
    const BenchOptions options = bench_options(given);
    if (!options.json.empty() && options.json != "-") {
        std::vector<std::string> inputs;
        for (const MatrixSource& source : options.sources) {
            if (!source.path.empty() && source.path != "-") inputs.push_back(source.path);
        }
        check_output_path(options.json, inputs);
    }
    if (options.prepare.threads > 0) omp_set_num_threads(options.prepare.threads);

    Console console(options.quiet ? Talk::errors : Talk::normal, ProgressMode::never, "lsmr_bench");
    const auto say = [&](const std::string& text) {
        if (options.json == "-") console.line(text);
        else if (!options.quiet) write_text("-", text);
    };
    bool on_gpu = options.prepare.device == DeviceKind::cuda;
    if (options.prepare.device == DeviceKind::automatic) {
        const CudaProbe probe = probe_cuda(options.prepare.device_index);
        on_gpu = probe.usable;
        if (!on_gpu && probe.built_in) console.warning("running on the CPU: " + probe.reason);
    }
    const std::vector<SolverRequest> requests = solver_requests(options, on_gpu);

    SolveBenchReport report;
    report.comparison = on_gpu ? "textbook" : "eigen";
    report.block_iterations = options.iterations;
    report.blocks = options.repeats;
    report.tolerance = options.tolerance;
    report.time_limit_seconds = options.time_limit;
    std::unique_ptr<GpuSession> gpu;
    if (on_gpu) {
        gpu = open_gpu(options.prepare.device_index);
        report.gpu_copy_bytes_per_second = gpu->copy_bytes_per_second();
        report.device = gpu->device_text() + "; ";
    }
    report.device += fmt::format("CPU, {} thread{}", omp_get_max_threads(), omp_get_max_threads() == 1 ? "" : "s");
    report.host_copy_bytes_per_second = measure_host_copy_bandwidth();
    say(solve_heading(report));

    MatrixQueue queue(options.sources, 1);  // none is made ahead: a set-up has all cores
    while (!queue.empty()) {
        NamedMatrix named = queue.next();
        for (const std::string& warning : named.warnings) console.warning(warning);
        const auto a = std::make_shared<const CsrMatrix>(std::move(named.a));
        std::optional<Peers> peers;
        if (!options.peers.empty()) peers.emplace(options.peers, *a);
        Judge judge(a, named.b.empty() ? made_rhs(*a) : std::move(named.b), options, on_gpu);
        for (const Precision precision : options.precisions) {
            SolveTable table{named.origin, a->rows(), a->cols(), a->nnz(), precision, judge.ar_bound(), judge.solution_ls(), {}};
            for (const SolverRequest& request : requests) table.solvers.push_back(measure(request, a, precision, judge, options, gpu.get()));
            if (peers) peers->add_to(table);
            say(solve_table_text(report, table));
            report.tables.push_back(std::move(table));
        }
    }
    say("\n" + solve_summary(report));
    if (!options.json.empty()) write_text(options.json, solve_json(report));
    return kExitOk;
}

}  // namespace lsmr
