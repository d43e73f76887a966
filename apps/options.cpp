#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "plot.hpp"
#include "solver/preconditioner.hpp"

namespace lsmr {
namespace {

namespace po = boost::program_options;

// Values. Each function throws UsageError without the flag's name, which the caller puts before it.

double parse_number(const std::string& text) {
    const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
    const char* last = text.data() + text.size();
    double value = 0;
    const auto [end, error] = std::from_chars(first, last, value);
    if (error != std::errc() || end != last || std::isnan(value)) throw UsageError("not a number");
    return value;
}

double parse_non_negative(const std::string& text) {
    const double value = parse_number(text);
    if (std::signbit(value) && value != 0) throw UsageError("must not be negative");
    return value;
}

double parse_finite(const std::string& text) {
    const double value = parse_non_negative(text);
    if (std::isinf(value)) throw UsageError("must be finite");
    return value;
}

std::int64_t parse_integer(const std::string& text, std::int64_t least) {
    const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
    const char* last = text.data() + text.size();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(first, last, value);
    if (error == std::errc::result_out_of_range) throw UsageError("too large");
    if (error != std::errc() || end != last) throw UsageError("not a whole number");
    if (value < least) throw UsageError(fmt::format("must be at least {}", least));
    return value;
}

std::uint64_t parse_seed(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        throw UsageError("the seed must be a whole number from 0 to 2^64 - 1");
    }
    return value;
}

// "512MiB", "2GiB", "1000000".
std::int64_t parse_bytes(const std::string& text) {
    const std::size_t unit_at = std::min(text.find_first_not_of("0123456789.+"), text.size());
    const std::string unit = text.substr(unit_at);
    const std::vector<std::string> units{"", "KiB", "MiB", "GiB", "TiB"};
    const auto found = std::find(units.begin(), units.end(), unit == "B" ? "" : unit);
    if (found == units.end() || unit_at == 0)
        throw UsageError("expected a size such as 512MiB, 2GiB or a number of bytes");
    const double bytes =
        std::ldexp(parse_number(text.substr(0, unit_at)), 10 * static_cast<int>(found - units.begin()));
    if (!(bytes >= 1)) throw UsageError("must be at least one byte");
    if (bytes >= 0x1p62) throw UsageError("too large");
    return static_cast<std::int64_t>(bytes);
}

template <class Enum>
Enum parse_choice(const std::string& text, std::initializer_list<std::pair<const char*, Enum>> choices) {
    std::string names;
    for (const auto& [name, value] : choices) {
        if (text == name) return value;
        names += names.empty() ? name : std::string(", ") + name;
    }
    throw UsageError("must be one of " + names);
}

std::string parse_path(const std::string& text) {
    if (text.empty()) throw UsageError("the file name is empty");
    return text;
}

RhsSource parse_rhs(const std::string& text) {
    RhsSource rhs;
    if (text == "ones") {
        rhs.kind = RhsSource::Kind::ones;
    } else if (text.starts_with("Ax:")) {
        rhs.kind = RhsSource::Kind::product;
        rhs.seed = parse_seed(std::string_view(text).substr(3));
    } else if (text.starts_with("random:")) {
        rhs.kind = RhsSource::Kind::random;
        rhs.seed = parse_seed(std::string_view(text).substr(7));
    } else {
        rhs.kind = RhsSource::Kind::file;
        rhs.path = parse_path(text);
    }
    return rhs;
}

// A family of kernels, or one kernel for both products.
void parse_spmv(CommandLine& line, const std::string& text) {
    PrepareOptions& prepare = line.prepare;
    line.spmv = text;
    if (text == "cusparse") prepare.spmv = SpmvKind::cusparse;
    else if (text == "own") prepare.spmv = SpmvKind::own;
    else if (text != "auto") {
        try {
            prepare.forward_kernel = prepare.adjoint_kernel = parse_spmv_choice(text);
        } catch (const InputError& error) {
            throw UsageError(fmt::format("must be cusparse, own, auto or a kernel; {}", error.what()));
        }
    }
}

// A format for both products; auto: what the dispatch chooses.
void parse_format_flag(CommandLine& line, const std::string& text) {
    line.format = text;
    if (text == "auto") return;
    try {
        line.prepare.forward_kernel = line.prepare.adjoint_kernel = parse_format(text);
    } catch (const InputError& error) {
        throw UsageError(error.what());
    }
}

void parse_device(PrepareOptions& prepare, const std::string& text) {
    if (text.starts_with("cuda:")) {
        prepare.device = DeviceKind::cuda;
        const std::int64_t index = parse_integer(text.substr(5), 0);
        if (index > 1023) throw UsageError("there is no such GPU");
        prepare.device_index = static_cast<int>(index);
        return;
    }
    try {
        prepare.device = parse_choice<DeviceKind>(
            text, {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}});
    } catch (const UsageError&) {
        throw UsageError("must be auto, cpu, cuda or cuda:N");
    }
}

void parse_preconditioner(CommandLine& line, const std::string& text) {
    PrepareOptions& prepare = line.prepare;
    if (text.starts_with("blocks:")) {
        prepare.preconditioner = Preconditioner::blocks;
        prepare.block_size = parse_integer(text.substr(7), 1);
        if (prepare.block_size > kLargestBlock)
            throw UsageError(fmt::format("blocks of at most {} columns", kLargestBlock));
        return;
    }
    if (text.starts_with("sketch:")) {
        prepare.preconditioner = Preconditioner::sketch;
        prepare.sketch_seed = parse_seed(std::string_view(text).substr(7));
        return;
    }
    if (text.starts_with("ic:")) {
        prepare.preconditioner = Preconditioner::cholesky;
        prepare.cholesky_drop = parse_non_negative(text.substr(3));
        if (!(prepare.cholesky_drop < 1)) throw UsageError("the drop tolerance must be below 1");
        return;
    }
    if (text.starts_with("file:")) {
        prepare.preconditioner = Preconditioner::given;
        line.preconditioner = parse_path(text.substr(5));
        return;
    }
    try {
        prepare.preconditioner = parse_choice<Preconditioner>(text, {{"none", Preconditioner::none},
                                                                     {"cols", Preconditioner::columns},
                                                                     {"blocks", Preconditioner::blocks},
                                                                     {"ic", Preconditioner::cholesky},
                                                                     {"sketch", Preconditioner::sketch}});
    } catch (const UsageError&) {
        throw UsageError("must be none, cols, blocks, blocks:N, ic, ic:DROP, sketch, sketch:SEED or file:K.mtx");
    }
}

// "1,5,10-20": columns from 1, in the order given.
std::vector<std::int64_t> parse_columns(const std::string& text) {
    std::vector<std::int64_t> columns;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string part = text.substr(begin, end - begin);
        const std::size_t dash = part.find('-', 1);
        const std::int64_t first = parse_integer(part.substr(0, dash), 1);
        const std::int64_t last = dash == std::string::npos ? first : parse_integer(part.substr(dash + 1), first);
        if (last - first >= kMaxDimension) throw UsageError("too many columns");
        for (std::int64_t column = first; column <= last; ++column) columns.push_back(column - 1);
        begin = end + 1;
    }
    return columns;
}

// estimate, exact[:COLS], hutchinson[:K[:SEED]].
void parse_standard_errors(StandardErrorOptions& errors, const std::string& text) {
    const std::size_t colon = text.find(':');
    const bool given = colon != std::string::npos;
    try {
        errors.kind = parse_choice<ErrorKind>(text.substr(0, colon), {{"estimate", ErrorKind::estimate},
                                                                      {"exact", ErrorKind::exact},
                                                                      {"hutchinson", ErrorKind::hutchinson}});
    } catch (const UsageError&) {
        throw UsageError("must be estimate, exact, exact:COLS (as 1,5,10-20), hutchinson or hutchinson:K[:SEED]");
    }
    if (!given) return;
    if (errors.kind == ErrorKind::estimate) throw UsageError("estimate takes nothing after it");
    std::string rest = text.substr(colon + 1);
    if (errors.kind == ErrorKind::exact) {
        errors.columns = parse_columns(rest);
        return;
    }
    const std::size_t second = rest.find(':');
    if (second != std::string::npos) errors.seed = parse_seed(std::string_view(rest).substr(second + 1));
    errors.probes = parse_integer(rest.substr(0, second), 2);
}

// l2, l1, or a loss with its threshold, as huber:1.5.
void parse_loss(RobustOptions& robust, const std::string& text) {
    const std::size_t colon = text.find(':');
    try {
        robust.loss = parse_choice<Loss>(text.substr(0, colon), {{"l2", Loss::l2},
                                                                 {"huber", Loss::huber},
                                                                 {"l1", Loss::l1},
                                                                 {"cauchy", Loss::cauchy},
                                                                 {"tukey", Loss::tukey}});
    } catch (const UsageError&) {
        throw UsageError("must be l2, l1, huber:T, cauchy:T or tukey:T");
    }
    const bool given = colon != std::string::npos;
    if (!has_threshold(robust.loss)) {
        if (given) throw UsageError(fmt::format("{} has no threshold", name(robust.loss)));
        return;
    }
    if (!given) throw UsageError(fmt::format("needs its threshold, in units of b, as in {}:1.5", name(robust.loss)));
    robust.threshold = parse_finite(text.substr(colon + 1));
    if (robust.threshold == 0) throw UsageError("the threshold must be above 0");
}

// A number, auto:gcv, auto:lcurve, or auto:discrepancy:S.
void parse_damp(CommandLine& line, const std::string& text) {
    if (!text.starts_with("auto")) {
        line.solve.damp = parse_finite(text);
        return;
    }
    if (!line.damp_search) line.damp_search.emplace();
    DampSearch& search = *line.damp_search;
    if (text == "auto:gcv") search.rule = DampRule::gcv;
    else if (text == "auto:lcurve") search.rule = DampRule::lcurve;
    else if (text.starts_with("auto:discrepancy:")) {
        search.rule = DampRule::discrepancy;
        search.deviation = parse_finite(text.substr(17));
        if (search.deviation == 0) throw UsageError("the standard deviation of the errors of b must be above 0");
    } else throw UsageError("must be a number, auto:gcv, auto:lcurve or auto:discrepancy:S, S the standard deviation of the errors of b");
}

void parse_damp_range(CommandLine& line, const std::string& text) {
    if (!line.damp_search) line.damp_search.emplace();
    DampSearch& search = *line.damp_search;
    const std::size_t first = text.find(':');
    const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
    if (second == std::string::npos) throw UsageError("must be LO:HI:N, as 1e-4:10:20");
    search.low = parse_finite(text.substr(0, first));
    search.high = parse_finite(text.substr(first + 1, second - first - 1));
    search.count = parse_integer(text.substr(second + 1), 1);
    if (!(search.low > 0) || search.low > search.high) throw UsageError("LO must be above 0, and HI no smaller");
    if (search.count > 100000) throw UsageError("too many");
}

void parse_center(CommandLine& line, const std::string& text) {
    line.solve.damp_center = text == "zero" ? DampCenter::zero : text == "x0" ? DampCenter::x0 : DampCenter::given;
    if (line.solve.damp_center == DampCenter::given) line.center = parse_path(text);
}

// The table of flags: the parser, the dispatch, the suggestions and the help all come from it.

struct Flag {
    const char* name;
    const char* letter;    // "" where there is none
    const char* argument;  // "" for a switch
    std::string help;
    void (*apply)(CommandLine& line, const std::string& value);
};

struct FlagGroup {
    const char* title;
    std::vector<Flag> flags;
};

std::vector<FlagGroup> make_flag_groups() {
    const SolveOptions solve;
    const std::string conlim = fmt::format("{:g} in fp64, {:g} in fp32", resolved_conlim(solve, Precision::fp64),
                                           resolved_conlim(solve, Precision::fp32));
    return {
        {"Problem",
         {
             {"rhs", "", "B", "b: a file, ones, random:SEED, or Ax:SEED (A times a random vector)",
              [](CommandLine& line, const std::string& value) { line.rhs = parse_rhs(value); }},
             {"x0", "", "FILE", "start, n x 1 or one column for each column of b [zero]",
              [](CommandLine& line, const std::string& value) { line.x0 = parse_path(value); }},
             {"damp", "", "L",
              fmt::format("add L^2 ||x - c||^2; or auto:gcv, auto:lcurve, auto:discrepancy:S [{}]", solve.damp),
              [](CommandLine& line, const std::string& value) { parse_damp(line, value); }},
             {"damp-range", "", "LO:HI:N", "N candidates for --damp auto (gcv without it), with their table",
              [](CommandLine& line, const std::string& value) { parse_damp_range(line, value); }},
             {"damp-center", "", "C", fmt::format("the point c: zero, x0 or a file [{}]", name(solve.damp_center)),
              [](CommandLine& line, const std::string& value) { parse_center(line, value); }},
             {"column-damp", "", "FILE", "add sum d_j^2 (x_j - c_j)^2 with d, n x 1",
              [](CommandLine& line, const std::string& value) { line.column_damp = parse_path(value); }},
             {"regularise", "", "FILE", "add W^2 ||L (x - c)||^2 with the matrix L, kept apart from A",
              [](CommandLine& line, const std::string& value) { line.regulariser = parse_path(value); }},
             {"regularise-weight", "", "W", fmt::format("its weight [{}]", PrepareOptions{}.regulariser_weight),
              [](CommandLine& line, const std::string& value) {
                  line.prepare.regulariser_weight = parse_finite(value);
              }},
             {"weights", "", "FILE", "w, m x 1: sum w_i (b - A x)_i^2 in place of ||b - A x||^2",
              [](CommandLine& line, const std::string& value) { line.weights = parse_path(value); }},
             {"loss", "", "R", fmt::format("l1, huber:T, cauchy:T, tukey:T in place of squares [{}]", name(Loss::l2)),
              [](CommandLine& line, const std::string& value) { parse_loss(line.robust, value); }},
             {"transpose", "", "", "solve with A^T in place of A",
              [](CommandLine& line, const std::string&) { line.transpose = true; }},
             {"fortran-numbers", "", "", "also read exponents without their letter, as in 1.5+02",
              [](CommandLine& line, const std::string&) { line.read.fortran_numbers = true; }},
         }},
        {"Method and stopping",
         {
             {"method", "", "M", fmt::format("lsmr, lsqr, cgls, cg (SPD A) or auto [{}]", name(solve.method)),
              [](CommandLine& line, const std::string& value) {
                  line.solve.method = parse_choice<Method>(value, {{"auto", Method::automatic},
                                                                   {"lsmr", Method::lsmr},
                                                                   {"lsqr", Method::lsqr},
                                                                   {"cgls", Method::cgls},
                                                                   {"cg", Method::cg}});
              }},
             {"scale", "", "S", "even out the norms of cols, rows (weights them!), both, or none [none]",
              [](CommandLine& line, const std::string& value) {
                  line.prepare.scale = parse_choice<Scaling>(value, {{"none", Scaling::none},
                                                                     {"cols", Scaling::columns},
                                                                     {"rows", Scaling::rows},
                                                                     {"both", Scaling::both}});
              }},
             {"precondition", "", "P", "cols, blocks[:N], ic[:DROP], sketch[:SEED], file:K.mtx or none [none]",
              [](CommandLine& line, const std::string& value) { parse_preconditioner(line, value); }},
             {"ic-shift", "", "S", "of the diagonal of 1, with --precondition ic [0, raised where needed]",
              [](CommandLine& line, const std::string& value) { line.prepare.cholesky_shift = parse_finite(value); }},
             {"reorthogonalize", "", "K", "lsmr, lsqr: each v against K before it, or full; 0: none [0]",
              [](CommandLine& line, const std::string& value) {
                  line.solve.reorthogonalize = value == "full" ? SolveOptions::kAll : parse_integer(value, 0);
              }},
             {"atol", "", "R", fmt::format("relative error of A [{:g}]", solve.atol),
              [](CommandLine& line, const std::string& value) { line.solve.atol = parse_finite(value); }},
             {"btol", "", "R", fmt::format("relative error of b [{:g}]", solve.btol),
              [](CommandLine& line, const std::string& value) { line.solve.btol = parse_finite(value); }},
             {"conlim", "", "R", fmt::format("largest condition; 0: any [{}]", conlim),
              [](CommandLine& line, const std::string& value) { line.solve.conlim = parse_finite(value); }},
             {"ar-bound", "", "R", "also stop at ||A'r|| <= R [off]",
              [](CommandLine& line, const std::string& value) { line.solve.ar_bound = parse_finite(value); }},
             {"ar-relative", "", "R", "also stop at ||A'r|| <= R ||A'r0||, r0 of the start [off]",
              [](CommandLine& line, const std::string& value) {
                  line.solve.ar_relative = parse_finite(value);
                  if (line.solve.ar_relative >= 1) throw UsageError("must be below 1");
              }},
             {"passes", "", "N", fmt::format("iterations in a row in which a test must pass [{}]", solve.passes),
              [](CommandLine& line, const std::string& value) { line.solve.passes = parse_integer(value, 1); }},
             {"stall-window", "", "N", "stop after N without progress; 0: off [2 min(rows, cols), 2000 or more]",
              [](CommandLine& line, const std::string& value) { line.solve.stall_window = parse_integer(value, 0); }},
             {"trust-radius", "", "R", "stop where ||x - x0|| = R; 0: anywhere [0]",
              [](CommandLine& line, const std::string& value) { line.solve.trust_radius = parse_finite(value); }},
             {"max-iter", "", "N", "iteration limit [4 min(rows, cols), at least 200]",
              [](CommandLine& line, const std::string& value) { line.solve.max_iterations = parse_integer(value, 0); }},
             {"max-outer", "", "N", fmt::format("with --loss: reweighted solves [{}]", RobustOptions{}.max_outer),
              [](CommandLine& line, const std::string& value) { line.robust.max_outer = parse_integer(value, 1); }},
             {"time-limit", "", "SEC", "for the solve, all columns of b together [none]",
              [](CommandLine& line, const std::string& value) {
                  line.solve.time_limit_seconds = parse_non_negative(value);
              }},
         }},
        {"Device",
         {
             {"device", "", "D", "auto, cpu, cuda or cuda:N [auto]",
              [](CommandLine& line, const std::string& value) { parse_device(line.prepare, value); }},
             {"precision", "", "P",
              fmt::format("fp64, fp32, or mixed: fp32, corrected in fp64 [{}]", name(PrepareOptions{}.precision)),
              [](CommandLine& line, const std::string& value) {
                  line.prepare.precision = parse_choice<Precision>(
                      value, {{"fp64", Precision::fp64}, {"fp32", Precision::fp32}, {"mixed", Precision::mixed}});
              }},
             {"spmv", "", "S", "products by cusparse, own, auto, or a kernel, as stream-128x2048 [auto]",
              [](CommandLine& line, const std::string& value) { parse_spmv(line, value); }},
             {"executor", "", "E", "iterations on a GPU: graph, persistent (one kernel), auto [auto]",
              [](CommandLine& line, const std::string& value) {
                  line.prepare.executor = parse_choice<ExecutorKind>(
                      value,
                      {{"auto", ExecutorKind::automatic}, {"graph", ExecutorKind::graph}, {"persistent", ExecutorKind::persistent}});
              }},
             {"format", "", "F", "A as sell, ell, hyb, coo, bsr-RxC-stream, bell-RxR, dia, dense [auto]",
              [](CommandLine& line, const std::string& value) { parse_format_flag(line, value); }},
             {"narrow", "", "N", "less bits a column or value: lossless, none, fp32-values [lossless]",
              [](CommandLine& line, const std::string& value) {
                  line.prepare.narrow = parse_choice<NarrowKind>(value, {{"lossless", NarrowKind::lossless},
                                                                        {"none", NarrowKind::none},
                                                                        {"fp32-values", NarrowKind::fp32_values}});
              }},
             {"reorder", "", "O", fmt::format("rows, columns: none, length, first, median, spectral, auto [{}]", name(PrepareOptions{}.reorder)),
              [](CommandLine& line, const std::string& value) {
                  line.prepare.reorder = parse_choice<OrderKind>(value, {{"auto", OrderKind::automatic},
                                                                         {"none", OrderKind::none},
                                                                         {"length", OrderKind::length},
                                                                         {"first", OrderKind::first},
                                                                         {"median", OrderKind::median},
                                                                         {"spectral", OrderKind::spectral}});
              }},
             {"plan", "", "FILE", "the kernels and the storage of a saved plan",
              [](CommandLine& line, const std::string& value) { line.plan = parse_path(value); }},
             {"save-plan", "", "FILE", "write the kernels and the storage that were chosen",
              [](CommandLine& line, const std::string& value) { line.save_plan = parse_path(value); }},
             {"storage", "", "S", "dual (A, A^T), single (A), one-pass (A once), tiles (CPU), auto [auto]",
              [](CommandLine& line, const std::string& value) {
                  line.prepare.storage = parse_choice<StorageKind>(
                      value,
                      {{"dual", StorageKind::dual},
                       {"single", StorageKind::single},
                       {"one-pass", StorageKind::one_pass},
                       {"tiles", StorageKind::tiles},
                       {"auto", StorageKind::automatic}});
              }},
             {"gpu-memory-limit", "", "SIZE", "such as 512MiB or 2GiB [what is free]",
              [](CommandLine& line, const std::string& value) {
                  line.prepare.gpu_memory_limit_bytes = parse_bytes(value);
              }},
             {"no-fallback", "", "", "fail rather than take less storage or the CPU",
              [](CommandLine& line, const std::string&) { line.prepare.allow_fallback = false; }},
             {"threads", "", "N", "on the CPU [all that OpenMP offers]",
              [](CommandLine& line, const std::string& value) {
                  const std::int64_t threads = parse_integer(value, 1);
                  if (threads > 65536) throw UsageError("too large");
                  line.prepare.threads = static_cast<int>(threads);
              }},
             {"deterministic", "", "", "kernels by rule, not by timing; the same bits at every run",
              [](CommandLine& line, const std::string&) { line.prepare.deterministic = true; }},
         }},
        {"Output",
         {
             {"output", "o", "FILE", "write x; - is standard output",
              [](CommandLine& line, const std::string& value) { line.output = parse_path(value); }},
             {"json", "", "FILE", "write the report as JSON; - is standard output",
              [](CommandLine& line, const std::string& value) { line.json = parse_path(value); }},
             {"history", "", "FILE", "write every iteration as CSV, column after column of b",
              [](CommandLine& line, const std::string& value) { line.history = parse_path(value); }},
             {"plot", "", "F.svg", "draw the history with gnuplot, from F.csv or the --history file",
              [](CommandLine& line, const std::string& value) {
                  if (!value.ends_with(".svg") || value.size() == 4) throw UsageError("must be the name of an .svg file");
                  line.plot = value;
                  if (line.history.empty()) line.history = history_of_plot(value);
              }},
             {"save-state", "", "FILE", "where a limit or a signal stops the solve, write its state",
              [](CommandLine& line, const std::string& value) { line.save_state = parse_path(value); }},
             {"checkpoint-every", "", "SEC", "also write it every SEC seconds meanwhile [never]",
              [](CommandLine& line, const std::string& value) {
                  line.checkpoint_every_seconds = parse_finite(value);
                  if (line.checkpoint_every_seconds == 0) throw UsageError("must be above 0");
              }},
             {"resume", "", "FILE", "go on with a saved state, to the bits of a solve not interrupted",
              [](CommandLine& line, const std::string& value) { line.resume = parse_path(value); }},
             {"log-every", "", "N", "log every Nth iteration [1 to 10, then 10th, 100th, 1000th]",
              [](CommandLine& line, const std::string& value) { line.log_every = parse_integer(value, 1); }},
             {"quiet", "q", "", "nothing but errors; -qq not even those",
              [](CommandLine& line, const std::string&) {
                  line.talk = line.talk == Talk::errors ? Talk::silent : Talk::errors;
              }},
             {"verbose", "v", "", "also the plan, the device and the memory",
              [](CommandLine& line, const std::string&) { line.talk = Talk::verbose; }},
             {"progress", "", "P", "auto (on a terminal), always or never [auto]",
              [](CommandLine& line, const std::string& value) {
                  line.progress = parse_choice<ProgressMode>(value, {{"auto", ProgressMode::automatic},
                                                                     {"always", ProgressMode::always},
                                                                     {"never", ProgressMode::never}});
              }},
         }},
        {"Instead of a solve, or after it",
         {
             {"check", "", "", "read and describe the inputs, do not solve",
              [](CommandLine& line, const std::string&) { line.action = Action::check; }},
             {"allow-nonfinite", "", "", "with --check: count NaN and infinities, do not refuse them",
              [](CommandLine& line, const std::string&) { line.read.allow_nonfinite = true; }},
             {"standard-errors", "", "K", "of x, in the report: estimate, exact[:COLS], hutchinson[:K[:SEED]]",
              [](CommandLine& line, const std::string& value) { parse_standard_errors(line.errors, value); }},
             {"compare", "", "eigen", "solve with Eigen's least-squares CG too, to the same accuracy",
              [](CommandLine& line, const std::string& value) {
                  line.compare_eigen = parse_choice<bool>(value, {{"eigen", true}});
              }},
             {"env", "", "", "describe this build and its devices",
              [](CommandLine& line, const std::string&) { line.action = Action::environment; }},
             {"version", "", "", "the version, in one line",
              [](CommandLine& line, const std::string&) { line.action = Action::version; }},
             {"help", "h", "", "this screen",
              [](CommandLine& line, const std::string&) { line.action = Action::help; }},
         }},
    };
}

const std::vector<FlagGroup>& flag_groups() {
    static const std::vector<FlagGroup> groups = make_flag_groups();
    return groups;
}

const Flag* find_flag(const std::string& name) {
    for (const FlagGroup& group : flag_groups()) {
        for (const Flag& flag : group.flags) {
            if (name == flag.name) return &flag;
        }
    }
    return nullptr;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

// "; did you mean --damp?", or nothing where no flag is near.
std::string suggestion(std::string_view unknown) {
    const std::string_view word = unknown.substr(std::min(unknown.find_first_not_of('-'), unknown.size()));
    if (!unknown.starts_with("--") || word.size() < 2) return {};
    std::string nearest;
    std::size_t best = 3;  // a distance of at most 2 is near
    for (const FlagGroup& group : flag_groups()) {
        for (const Flag& flag : group.flags) {
            const std::size_t distance =
                std::string_view(flag.name).starts_with(word) ? 1 : edit_distance(word, flag.name);
            if (distance < best) {
                best = distance;
                nearest = flag.name;
            }
        }
    }
    return nearest.empty() ? std::string() : fmt::format("; did you mean --{}?", nearest);
}

po::parsed_options tokenize(std::span<const std::string> args) {
    po::options_description description;
    for (const FlagGroup& group : flag_groups()) {
        for (const Flag& flag : group.flags) {
            const std::string names = fmt::format("{}{}{}", flag.name, *flag.letter != '\0' ? "," : "", flag.letter);
            if (*flag.argument != '\0') {
                description.add_options()(names.c_str(), po::value<std::string>());
            } else {
                description.add_options()(names.c_str(), "");
            }
        }
    }
    namespace style = po::command_line_style;
    const int flags_in_full = style::unix_style & ~style::allow_guessing;
    try {
        return po::command_line_parser(std::vector<std::string>(args.begin(), args.end()))
            .options(description)
            .style(flags_in_full)
            .run();
    } catch (const po::unknown_option& error) {
        throw UsageError(
            fmt::format("unknown flag {}{}", error.get_option_name(), suggestion(error.get_option_name())));
    } catch (const po::invalid_command_line_syntax& error) {
        const std::string flag = error.get_option_name();
        switch (error.kind()) {
            case po::invalid_syntax::missing_parameter:
            case po::invalid_syntax::empty_adjacent_parameter:
                throw UsageError(flag + " needs a value");
            case po::invalid_syntax::extra_parameter:
                throw UsageError(flag + " takes no value");
            default:
                throw UsageError(error.what());
        }
    } catch (const po::error& error) {
        throw UsageError(error.what());
    }
}

void check_combinations(const CommandLine& line) {
    if (line.action != Action::solve && line.action != Action::check) return;
    const auto refuse_together = [](bool asked, const char* words) {
        if (asked) throw UsageError(words);
    };
    const bool check = line.action == Action::check;
    refuse_together(line.read.allow_nonfinite && !check, "--allow-nonfinite goes with --check only");
    refuse_together(check && !line.output.empty(), "--check does not solve, so -o has nothing to write");
    refuse_together(check && !line.history.empty(), "--check does not solve, so --history has nothing to write");
    refuse_together(check && line.compare_eigen, "--check does not solve, so --compare has nothing to compare");
    refuse_together(line.solve.method == Method::cg && line.solve.damp > 0,
                    "--method cg solves A x = b and knows no damping: take lsmr, lsqr or cgls with --damp");
    refuse_together(line.solve.method == Method::cg && (line.solve.ar_bound > 0 || line.solve.ar_relative > 0),
                    "--method cg does not estimate ||A'r||, so --ar-bound and --ar-relative cannot stop it");
    refuse_together(!line.center.empty() && !is_regularised(line),
                    "--damp-center FILE needs --damp, --column-damp or --regularise");
    refuse_together(line.regulariser.empty() && line.prepare.regulariser_weight != PrepareOptions{}.regulariser_weight,
                    "--regularise-weight needs --regularise");
    const bool scales_columns = line.prepare.scale == Scaling::columns || line.prepare.scale == Scaling::both;
    refuse_together(scales_columns && line.solve.trust_radius > 0,
                    "--trust-radius bounds ||x - x0||, which does not grow steadily with --scale cols");
    refuse_together(line.solve.method == Method::cg && (line.prepare.scale != Scaling::none || !line.weights.empty() ||
                                                        !line.column_damp.empty() || !line.regulariser.empty()),
                    "--method cg solves A x = b as it is, without weights, scaling or regularisation");
    const bool changes_the_problem = line.prepare.scale == Scaling::rows || line.prepare.scale == Scaling::both ||
                                     !line.weights.empty() || !line.column_damp.empty() || !line.regulariser.empty();
    const bool preconditioned = line.prepare.preconditioner != Preconditioner::none;
    refuse_together(preconditioned && line.solve.method == Method::cg, "--precondition is for --method lsmr, lsqr and cgls");
    refuse_together(line.prepare.cholesky_shift > 0 && line.prepare.preconditioner != Preconditioner::cholesky,
                    "--ic-shift needs --precondition ic");
    const bool reorthogonalized = line.solve.reorthogonalize != 0;
    refuse_together(reorthogonalized && (line.solve.method == Method::cg || line.solve.method == Method::cgls),
                    "--reorthogonalize is for --method lsmr and lsqr");
    refuse_together(reorthogonalized && preconditioned,
                    "--reorthogonalize is in the metric of A^T A, which --precondition changes: take one of the two");
    const bool searches = line.damp_search.has_value();
    refuse_together(searches && line.solve.damp > 0, "--damp L leaves nothing to choose in a --damp-range");
    refuse_together(searches && line.solve.method == Method::cg, "--method cg knows no damping: take lsmr, lsqr or cgls");
    refuse_together(searches && (preconditioned || line.prepare.scale != Scaling::none),
                    "--damp auto chooses in the metric of x, which --precondition and --scale change");
    refuse_together(searches && (!line.column_damp.empty() || !line.regulariser.empty()),
                    "--damp auto chooses the only regularisation: without --column-damp and --regularise");
    refuse_together(searches && (line.solve.damp_center == DampCenter::x0) != !line.x0.empty(),
                    "--damp auto needs the centre where the iteration starts: with --x0 also --damp-center x0");
    refuse_together(searches && !line.center.empty(), "--damp auto needs the centre where the iteration starts: zero or x0");
    refuse_together(searches && line.solve.trust_radius > 0, "--damp auto and --trust-radius are two choices of one size");
    refuse_together(searches && is_robust(line), "--damp auto chooses for least squares, not for a --loss");
    refuse_together(searches && (!line.save_state.empty() || !line.resume.empty()),
                    "--save-state and --resume are for one solve, --damp auto makes two");
    refuse_together(searches && check, "--check does not solve, so --damp auto has nothing to choose from");
    refuse_together(searches && line.compare_eigen, "--compare takes a --damp that is given");
    refuse_together(searches && line.damp_search->rule == DampRule::lcurve && line.damp_search->count > 0 && line.damp_search->count < 3,
                    "--damp auto:lcurve needs at least 3 candidates");
    const bool mixed = line.prepare.precision == Precision::mixed;
    refuse_together(mixed && line.solve.method == Method::cg,
                    "--precision mixed corrects least-squares solutions: take --method lsmr, lsqr or cgls");
    refuse_together(mixed && line.solve.trust_radius > 0, "--trust-radius bounds one solve, --precision mixed makes several");
    refuse_together(mixed && (!line.save_state.empty() || !line.resume.empty()),
                    "--save-state and --resume are for one solve, --precision mixed makes several: go on with --x0");
    refuse_together(mixed && (!line.plan.empty() || !line.save_plan.empty()),
                    "--plan and --save-plan are for one precision, --precision mixed may use two");
    const bool errors = line.errors.kind != ErrorKind::none;
    refuse_together(errors && check, "--check does not solve, so --standard-errors has nothing to say");
    refuse_together(line.errors.kind == ErrorKind::estimate && line.solve.method != Method::lsqr,
                    "--standard-errors estimate is what LSQR sees on its way: it needs --method lsqr");
    refuse_together(errors && is_robust(line), "--standard-errors are those of least squares, not of a --loss");
    refuse_together(errors && (line.prepare.scale == Scaling::rows || line.prepare.scale == Scaling::both),
                    "--standard-errors need rows of equal error, which --scale rows undoes: take --weights");
    refuse_together(preconditioned && line.solve.trust_radius > 0,
                    "--trust-radius bounds ||x - x0||, which does not grow steadily with --precondition");
    const bool robust = is_robust(line);
    refuse_together(!robust && line.robust.max_outer != RobustOptions{}.max_outer,
                    "--max-outer counts reweighted solves, so it needs a --loss other than l2");
    refuse_together(robust && line.solve.method == Method::cg,
                    "--loss weights the rows, and --method cg solves A x = b as it is: take lsmr, lsqr or cgls");
    refuse_together(robust && (line.prepare.scale == Scaling::rows || line.prepare.scale == Scaling::both),
                    "--scale rows would even out the weights of --loss: take --scale cols");
    refuse_together(robust && line.solve.trust_radius > 0, "--trust-radius bounds one solve, --loss makes several");
    refuse_together(robust && (line.solve.ar_bound > 0 || line.solve.ar_relative > 0),
                    "with --loss, --atol bounds the gradient: --ar-bound and --ar-relative have no meaning");
    refuse_together(robust && (!line.save_state.empty() || !line.resume.empty()),
                    "--save-state and --resume are for one solve, --loss makes several: go on with --x0");
    refuse_together(robust && (!line.plan.empty() || !line.save_plan.empty()),
                    "--plan and --save-plan are for one matrix, --loss weights its rows anew for each solve");
    refuse_together(robust && !line.history.empty(),
                    "--history is of one solve, --loss makes several: --json holds the reweighted solves");
    refuse_together(robust && line.compare_eigen, "--compare knows no --loss: only least squares");
    const bool names_kernel = line.spmv != "auto" && line.prepare.spmv == SpmvKind::automatic;
    refuse_together(names_kernel && line.format != "auto", "--spmv with a kernel and --format both say how A is stored: take one of the two");
    refuse_together(!line.plan.empty() && (line.spmv != "auto" || line.format != "auto" || line.prepare.storage != StorageKind::automatic),
                    "--plan says which kernels and storage: without --spmv, --format and --storage");
    refuse_together(line.compare_eigen && changes_the_problem,
                    "--compare knows no weights, scaled rows or regularising rows: only --damp");
    refuse_together(line.checkpoint_every_seconds > 0 && line.save_state.empty(),
                    "--checkpoint-every needs --save-state");
    refuse_together(check && !line.save_state.empty(), "--check does not solve, so --save-state has nothing to write");
    refuse_together(line.save_state == "-" || line.resume == "-", "a state is a file, not standard input or output");
    refuse_together(line.solve.damp_center == DampCenter::x0 && line.x0.empty(), "--damp-center x0 needs --x0");
    refuse_together(!line.plot.empty() && line.history == "-", "--plot needs the history as a file, not on standard output");
    refuse_together(!line.plot.empty() && line.history == line.plot, "--plot and --history are the same file");
    const auto from_stdin = {line.matrix == "-",  line.rhs.path == "-",    line.x0 == "-",         line.center == "-",
                             line.weights == "-", line.column_damp == "-", line.regulariser == "-",
                             line.preconditioner == "-"};
    refuse_together(std::count(from_stdin.begin(), from_stdin.end(), true) > 1,
                    "only one of A, b, x0 and the other inputs can be read from standard input");
    const auto to_stdout = {line.output == "-", line.json == "-", line.history == "-"};
    refuse_together(std::count(to_stdout.begin(), to_stdout.end(), true) > 1,
                    "only one of -o, --json and --history can go to standard output");
}

}  // namespace

CommandLine parse_command_line(std::span<const std::string> args) {
    const po::parsed_options parsed = tokenize(args);
    CommandLine line;
    std::vector<std::string> files;
    std::map<std::string, int> times_given;
    for (const po::option& option : parsed.options) {
        if (option.string_key.empty()) {
            files.push_back(parse_path(option.value.at(0)));
            continue;
        }
        const Flag* flag = find_flag(option.string_key);
        const int times = ++times_given[option.string_key];
        const int allowed = option.string_key == "quiet" ? 2 : 1;
        if (times > allowed) throw UsageError(fmt::format("--{} is given {} times", flag->name, times));
        const std::string value = option.value.empty() ? std::string() : option.value[0];
        try {
            flag->apply(line, value);
        } catch (const UsageError& error) {
            throw UsageError(fmt::format("--{} {}: {}", flag->name, value, error.what()));
        }
    }
    if (times_given.contains("quiet") && times_given.contains("verbose"))
        throw UsageError("-q and -v exclude each other");

    if (files.size() > 2) throw UsageError(fmt::format("unexpected argument {}: A and b are given already", files[2]));
    if (!files.empty()) line.matrix = files[0];
    if (files.size() == 2) {
        if (times_given.contains("rhs")) throw UsageError(fmt::format("b is given twice: {} and --rhs", files[1]));
        line.rhs.kind = RhsSource::Kind::file;
        line.rhs.path = files[1];
    }
    const bool needs_matrix = line.action == Action::solve || line.action == Action::check;
    if (needs_matrix && line.matrix.empty()) throw UsageError("no matrix is given");
    if (!needs_matrix && !files.empty()) throw UsageError(fmt::format("unexpected argument {}", files[0]));
    check_combinations(line);
    return line;
}

bool asks_for_silence(std::span<const std::string> args) {
    std::ptrdiff_t quiet = 0;
    for (const std::string& arg : args) {
        if (arg == "--quiet") ++quiet;
        if (arg.size() >= 2 && arg[0] == '-' && arg.find_first_not_of('q', 1) == std::string::npos) {
            quiet += std::ssize(arg) - 1;
        }
    }
    return quiet >= 2;
}

std::string help_text() {
    std::string text =
        "Usage: lsmr_solve A.mtx [b.mtx] [flags]     solves min ||b - A x||^2 + L^2 ||x - c||^2 for sparse A\n"
        "A, b: Matrix Market, plain or gzip (b also one number a line); - is standard input.\n"
        "Without b: A_b.mtx or A_rhs.mtx beside A. Values after a flag's name; [defaults] in brackets.\n";
    for (const FlagGroup& group : flag_groups()) {
        text += fmt::format("{}:\n", group.title);
        for (const Flag& flag : group.flags) {
            const std::string letter = *flag.letter != '\0' ? fmt::format("-{}, ", flag.letter) : std::string();
            text += fmt::format("  {:<25} {}\n", fmt::format("{}--{} {}", letter, flag.name, flag.argument), flag.help);
        }
    }
    text +=
        "Examples: lsmr_solve A.mtx b.mtx -o x.mtx;  zcat A.mtx.gz | lsmr_solve - b.mtx -o - > x.mtx\n"
        "Exit codes: 0 solved, 2 limit reached, 3 diverged, 130/143 INT/TERM (x is kept), 64 usage,\n"
        "  65 bad data, 66 no input, 69 no device, 70 internal, 71 out of memory, 73, 74 output fails\n";
    return text;
}

}  // namespace lsmr
