// lsmr_bench profile: both orientations of a matrix, diagnosed.
#include <fmt/format.h>
#include <omp.h>

#include <memory>
#include <utility>

#include "bench.hpp"
#include "console.hpp"
#include "copy_bandwidth.hpp"
#include "data/write.hpp"
#include "exit_codes.hpp"
#include "flags.hpp"
#include "gpu.hpp"
#include "memory/cuda_context.hpp"
#include "outputs.hpp"
#include "profile_report.hpp"
#include "solver/solve.hpp"
#include "stopwatch.hpp"

namespace lsmr {
namespace {

struct ProfileOptions {
    MatrixSource source;
    PrepareOptions prepare;
    double copy_bytes_per_second = 0;  // 0: measured
    bool as_h200 = false;              // the figures of an H200 in place of this machine's
    std::string json;
    bool quiet = false;
};

std::string profile_help() {
    return "usage: lsmr_bench profile A [flags]\n"
           "       lsmr_bench profile --generate NAME [flags]\n\n"
           "Says what the shape and the values of A mean for y <- a A x + b y and for the product with A^T: row "
           "lengths,\n"
           "regularity, the share of the roofline, locality of x, skew, atomics, each with a verdict; the bytes of "
           "one\n"
           "product in every format; and the kernels that a solve would use.\n\n" +
           matrix_flags_help() + device_flags_help() +
           "  --copy-bandwidth B    in GB/s, read and written, or h200: an H200's, with its rates of random access\n"
           "                        [measured on the device]\n"
           "  --json FILE           the report as JSON; - is standard output, the text goes to standard error then\n"
           "  -q, --quiet           no text\n"
           "  -h, --help            this text\n\n"
           "examples:\n"
           "  lsmr_bench profile A.mtx.gz --json profile.json\n"
           "  lsmr_bench profile --generate like-rucci1 --scale 0.1 --device cpu --copy-bandwidth h200\n";
}

ProfileOptions profile_options(const boost::program_options::variables_map& given) {
    ProfileOptions options;
    options.source = matrix_source(given);
    read_device_flags(given, options.prepare);
    options.quiet = given.contains("quiet");
    if (given.contains("json")) {
        options.json = given["json"].as<std::string>();
        if (options.json.empty()) throw UsageError("--json: the file name is empty");
    }
    if (given.contains("copy-bandwidth")) {
        const std::string text = given["copy-bandwidth"].as<std::string>();
        options.as_h200 = text == "h200";
        options.copy_bytes_per_second =
            options.as_h200 ? kH200CopyBytesPerSecond : 1e9 * positive_number("--copy-bandwidth", text);
    }
    return options;
}

// What a solve with this matrix would multiply by, in words.
std::vector<std::string> chosen_products(std::shared_ptr<const CsrMatrix> a, const PrepareOptions& options) {
    const PreparedProblem prepared(std::move(a), options);
    const OperatorPlan& plan = prepared.info().plan;
    std::vector<std::string> lines{
        fmt::format("storage  {}: {}", name(plan.storage), plan.storage_reason),
        fmt::format("A x      {}", plan.forward),
        fmt::format("A^T y    {}", plan.adjoint),
        fmt::format("memory   {}", format_bytes(plan.bytes)),
        plan.deterministic ? "bits     the same at every run with these kernels" : "bits     may vary between runs",
    };
    lines.insert(lines.end(), plan.notes.begin(), plan.notes.end());
    lines.insert(lines.end(), prepared.info().notes.begin(), prepared.info().notes.end());
    return lines;
}

// Fills in what the device finds out. Returns where that was.
DeviceKind run_profile(const ProfileOptions& options, const CsrMatrix& a, ProfileReport& report) {
    bool on_gpu = options.prepare.device == DeviceKind::cuda;
    if (options.prepare.device == DeviceKind::automatic) {
        const CudaProbe probe = probe_cuda(options.prepare.device_index);
        on_gpu = probe.usable;
        if (!on_gpu && probe.built_in) report.warnings.push_back("running on the CPU: " + probe.reason);
    }
    const Bandwidth bandwidth = options.copy_bytes_per_second > 0 ? Bandwidth::given : Bandwidth::measured;
    const CsrMatrix at = a.transposed();
    double measured = 0;
    if (on_gpu) {
        GpuProfile found = profile_on_gpu(a, at, options.prepare.precision, options.prepare.device_index, bandwidth);
        report.device = "GPU (" + found.device_name + ")";
        report.profile = found.profile;
        report.a_seconds = found.a_seconds;
        report.at_seconds = found.at_seconds;
        measured = found.copy_bytes_per_second;
    } else {
        report.device = fmt::format("CPU, {} thread{}", omp_get_max_threads(), omp_get_max_threads() == 1 ? "" : "s");
        Stopwatch watch;
        report.profile.a = profile_orientation(a);
        report.a_seconds = watch.seconds();
        watch = Stopwatch();
        report.profile.at = profile_orientation(at);
        report.at_seconds = watch.seconds();
        if (bandwidth == Bandwidth::measured) measured = measure_host_copy_bandwidth();
    }
    report.rates.copy_bytes_per_second = bandwidth == Bandwidth::measured ? measured : options.copy_bytes_per_second;
    report.rates.origin = options.as_h200 ? "of an H200" : bandwidth == Bandwidth::measured ? "measured" : "given";
    report.rates.random_access = on_gpu || options.as_h200;
    return on_gpu ? DeviceKind::cuda : DeviceKind::cpu;
}

}  // namespace

int profile_command(std::span<const std::string> args) {
    const auto given = parse_flags(args, {{"copy-bandwidth", true}, {"json", true}, {"quiet,q", false}});
    if (given.contains("help")) {
        write_text("-", profile_help());
        return kExitOk;
    }
    const ProfileOptions options = profile_options(given);
    if (!options.json.empty() && options.json != "-") {
        std::vector<std::string> inputs;
        if (!options.source.path.empty() && options.source.path != "-") inputs.push_back(options.source.path);
        check_output_path(options.json, inputs);
    }
    if (options.prepare.threads > 0) omp_set_num_threads(options.prepare.threads);

    NamedMatrix named = load_matrix(options.source);
    ProfileReport report;
    report.origin = std::move(named.origin);
    report.load_seconds = named.seconds;
    report.precision = options.prepare.precision;
    report.warnings = std::move(named.warnings);
    const auto a = std::make_shared<const CsrMatrix>(std::move(named.a));
    PrepareOptions prepare = options.prepare;
    if (run_profile(options, *a, report) == DeviceKind::cpu) prepare.device = DeviceKind::cpu;
    report.choice = chosen_products(a, prepare);

    Console console(options.quiet ? Talk::errors : Talk::normal, ProgressMode::never, "lsmr_bench");
    for (const std::string& warning : report.warnings) console.warning(warning);
    if (options.json == "-") {
        console.line(profile_text(report));
    } else if (!options.quiet) {
        write_text("-", profile_text(report));
    }
    if (!options.json.empty()) write_text(options.json, profile_json(report));
    return kExitOk;
}

}  // namespace lsmr
