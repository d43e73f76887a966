// lsmr_bench spmv: the products with a matrix, kernel by kernel.
#include <fmt/format.h>
#include <omp.h>

#include <Eigen/SparseCore>
#include <algorithm>
#include <cmath>
#include <deque>
#include <future>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

#include "bench.hpp"
#include "console.hpp"
#include "copy_bandwidth.hpp"
#include "data/generators.hpp"
#include "data/write.hpp"
#include "exit_codes.hpp"
#include "flags.hpp"
#include "gpu.hpp"
#include "memory/cuda_context.hpp"
#include "memory/error.hpp"
#include "operator/dispatch.hpp"
#include "operator/matrix_operator.hpp"
#include "outputs.hpp"
#include "spmv_report.hpp"
#include "stopwatch.hpp"

namespace lsmr {
namespace {

// What docs/benchmarks publishes: the matrices of the design's measurements, and the suite.
constexpr const char* kPublished[] = {"bench-stencil27", "bench-uniform8", "bench-tomography", "bench-powerlaw", "bench-bundle", "bench-short",
                                      "bench-spline",    "s1",             "s2",               "s3",             "s4",           "s5",
                                      "s6",              "s7",             "s8",               "s9",             "s10",          "s11",
                                      "s12",             "s13"};

struct SpmvOptions {
    std::vector<MatrixSource> sources;
    PrepareOptions prepare;
    std::vector<Precision> precisions{Precision::fp64, Precision::fp32};
    std::vector<std::string> directions{"A x", "A^T y"};
    std::string kernels = "usual";
    int repeats = 15;
    int warm_up = 3;
    std::string json;
    bool quiet = false;
};

std::string spmv_help() {
    std::string published;
    for (const char* name : kPublished) published += fmt::format(" {}", name);
    return "usage: lsmr_bench spmv A [flags]\n"
           "       lsmr_bench spmv --generate NAME[,NAME...] [flags]\n\n"
           "Times y <- a A x + b y and the product with A^T, and checks every result against one in long double.\n"
           "On a GPU: what the dispatch chooses (auto; own: without cuSPARSE; own-wide: without narrow forms), a thread\n"
           "a row, cuSPARSE with preprocess, both algorithms; where blocks or diagonals are nearly full, these too, and\n"
           "cuSPARSE's blocks. On the CPU: the operator of the library, the formats that are named, and Eigen.\n\n" +
           matrix_flags_help() +
           "                        here also several names with commas, or published:\n" +
           [&] {
               std::string lines;
               std::string line = "                       ";
               std::istringstream words(published);
               for (std::string word; words >> word;) {
                   if (line.size() + word.size() > 78) {
                       lines += line + "\n";
                       line = "                       ";
                   }
                   line += " " + word;
               }
               return lines + line + "\n";
           }() +
           device_flags_help() +
           "                        [here: both, one after the other]\n"
           "  --direction D         a, at or both [both]\n"
           "  --kernels LIST        usual, all (every kernel there is), or names with commas, as stream-128x1024,\n"
           "                        rows-8, bsr-3x3-columns, bsr-4x4-blocks+rowmajor, bell-16x16, dia,\n"
           "                        dense, cusparse-alg1, cusparse-bsr-3x3 [usual]\n"
           "  --repeat N            timed products [15]\n"
           "  --warm-up N           products before them [3]\n"
           "  --json FILE           the report as JSON; - is standard output, the text goes to standard error then\n"
           "  -q, --quiet           no text\n"
           "  -h, --help            this text\n\n"
           "columns: GB/s by the least bytes of CSR with 32-bit columns (values, columns, offsets, x once, y twice); copy: the\n"
           "share of the copy bandwidth measured in the same run; sectors: of the bound by random 32-byte sectors of x;\n"
           "call: of one product in a row of products, by the host's clock; set-up: choice, plan and conversion; +1/1000: a\n"
           "product with its part of the set-up when a thousand are made; error: in units of the rounding bound of its row;\n"
           "bits: whether five products gave the same ones.\n";
}

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> words;
    std::istringstream in(list);
    for (std::string word; std::getline(in, word, ',');) words.push_back(word);
    return words;
}

SpmvOptions spmv_options(const boost::program_options::variables_map& given) {
    SpmvOptions options;
    const MatrixSource first = matrix_source(given);
    std::vector<std::string> names = split(first.generator);
    if (first.generator == "published") names.assign(std::begin(kPublished), std::end(kPublished));
    if (names.empty()) options.sources.push_back(first);
    for (const std::string& name : names) {
        find_generator(name);  // a mistyped name is known now, not an hour later
        MatrixSource source = first;
        source.generator = name;
        options.sources.push_back(source);
    }
    read_device_flags(given, options.prepare);
    if (given.contains("precision")) options.precisions = {options.prepare.precision};
    if (given.contains("direction")) {
        const std::string text = given["direction"].as<std::string>();
        if (text == "a") options.directions = {"A x"};
        else if (text == "at") options.directions = {"A^T y"};
        else if (text != "both") throw UsageError(fmt::format("--direction {}: must be a, at or both", text));
    }
    if (given.contains("kernels")) options.kernels = given["kernels"].as<std::string>();
    if (given.contains("repeat")) options.repeats = static_cast<int>(whole_number("--repeat", given["repeat"].as<std::string>(), 1, 100000));
    if (given.contains("warm-up")) options.warm_up = static_cast<int>(whole_number("--warm-up", given["warm-up"].as<std::string>(), 0, 100000));
    options.quiet = given.contains("quiet");
    if (given.contains("json")) {
        options.json = given["json"].as<std::string>();
        if (options.json.empty()) throw UsageError("--json: the file name is empty");
    }
    return options;
}

std::vector<std::string> every_kernel() {
    std::vector<std::string> names;
    for (int threads : {1, 2, 4, 8, 16, 32, 128, 256, 512}) names.push_back(fmt::format("rows-{}", threads));
    for (const char* shape : {"128x2048", "128x1024", "256x1024", "256x2048"}) {
        for (const char* family : {"stream", "products", "balanced"}) {
            for (const char* form : {"", "+columns16", "+panels4"}) names.push_back(fmt::format("{}-{}{}", family, shape, form));
        }
    }
    names.push_back("stream-128x1024+atomic");
    return names;
}

std::vector<ProductRequest> gpu_requests(const std::string& kernels) {
    std::vector<ProductRequest> requests;
    const auto add = [&](const std::string& name) { requests.push_back({name, parse_spmv_choice(name), SpmvKind::automatic, NarrowKind::lossless, true}); };
    if (kernels != "usual" && kernels != "all") {
        for (const std::string& name : split(kernels)) {
            if (name == "auto") requests.push_back({"auto", {}, SpmvKind::automatic, NarrowKind::lossless, true});
            else add(name);
        }
        return requests;
    }
    requests.push_back({"auto", {}, SpmvKind::automatic, NarrowKind::lossless, true});
    requests.push_back({"own", {}, SpmvKind::own, NarrowKind::lossless, true});
    requests.push_back({"own-wide", {}, SpmvKind::own, NarrowKind::none, true});
    if (kernels == "all") {
        for (const std::string& name : every_kernel()) add(name);
    } else {
        add("rows-1");
    }
    add("cusparse-alg1");
    add("cusparse-alg2");
    return requests;
}

// Formats of this matrix, beside "usual" and "all": blocks where they are nearly full, with cuSPARSE's, and diagonals where they are.
std::vector<ProductRequest> format_requests(const OrientationProfile& profile, Precision precision) {
    std::vector<ProductRequest> requests;
    const auto add = [&](const std::string& name) { requests.push_back({name, parse_spmv_choice(name), SpmvKind::automatic, NarrowKind::lossless, true}); };
    const DispatchKey key = make_dispatch_key(profile, precision == Precision::fp64 ? VectorType::fp64 : VectorType::fp32, 90);
    constexpr double kNearlyFull = 0.7;
    if (key.block_fill >= kNearlyFull) {
        add(text(block_choice(key.block_rows, key.block_cols, key.average, ValueForm::as_vectors)));
        add(fmt::format("cusparse-bsr-{}x{}", key.block_rows, key.block_cols));
    }
    if (key.diagonals > 0 && key.diagonals <= kDiagonalCap && profile.diagonal_fill >= kNearlyFull) add("dia");
    return requests;
}

// On the CPU the formats that it has.
std::vector<SpmvChoice> cpu_formats(const std::string& kernels) {
    std::vector<SpmvChoice> formats;
    if (kernels == "usual") return formats;
    for (const std::string& name : split(kernels)) {
        if (name == "all" || !is_padded(parse_spmv_choice(name))) {
            throw UsageError("--kernels names kernels of a GPU; on the CPU there are bsr-RxC-columns, bell-RxR, dia and dense beside the usual one and Eigen's");
        }
        formats.push_back(parse_spmv_choice(name));
    }
    return formats;
}

// On the host: the library's operator, with and without narrow forms and in the formats, and Eigen's product of a row-major matrix.
template <class T>
std::vector<ProductMeasurement> measure_on_host(std::shared_ptr<const CsrMatrix> a, const std::vector<SpmvChoice>& formats, int warm_up, int repeats) {
    const auto random = [](std::int64_t n, std::uint64_t seed) {
        std::mt19937_64 generator(seed);
        std::vector<T> v(static_cast<std::size_t>(n));
        for (T& value : v) value = static_cast<T>(static_cast<double>(static_cast<std::int64_t>(generator() >> 11)) * 0x1p-52 - 1.0);
        return v;
    };
    const std::vector<T> x = random(a->cols(), 1);
    const std::vector<T> y0 = random(a->rows(), 2);
    std::vector<T> y = y0;
    const auto measure = [&](ProductMeasurement& m, const auto& run) {
        y = y0;
        run();
        const std::vector<T> first = y;
        for (int i = 0; i < 4; ++i) {
            y = y0;
            run();
            m.repeatable = m.repeatable && y == first;
        }
        for (std::int64_t i = 0; i < a->rows(); ++i) {
            long double sum = -0.5L * y0[static_cast<std::size_t>(i)];
            long double size = std::abs(sum);
            for (std::int64_t k = a->offsets()[i]; k < a->offsets()[i + 1]; ++k) {
                const long double term = static_cast<long double>(static_cast<T>(a->values()[k])) * x[static_cast<std::size_t>(a->columns()[k])];
                sum += term;
                size += std::abs(term);
            }
            const long double bound = static_cast<long double>(a->offsets()[i + 1] - a->offsets()[i] + 2) * std::numeric_limits<T>::epsilon() * size;
            const auto error = static_cast<double>(std::abs(first[static_cast<std::size_t>(i)] - sum) / bound);
            if (bound > 0) m.error = std::max(m.error, error);
        }
        for (int i = 0; i < warm_up; ++i) run();
        std::vector<double> times(static_cast<std::size_t>(repeats));
        const Stopwatch all;
        for (double& seconds : times) {
            const Stopwatch watch;
            run();
            seconds = watch.seconds();
        }
        m.call_seconds = all.seconds() / repeats;
        std::sort(times.begin(), times.end());
        m.seconds = times[times.size() / 2];
        m.least_seconds = times.front();
        m.most_seconds = times.back();
    };
    std::vector<ProductMeasurement> rows;
    const Coefficient<T> one{1, 1}, half{-0.5, T(-0.5)};
    const auto measure_operator = [&](const std::string& label, const std::string& kernel, const OperatorOptions& options) {
        ProductMeasurement m;
        m.label = label;
        m.kernel = kernel;
        try {
            const Stopwatch setup;
            const auto op = make_cpu_operator<T>(a, options);
            const auto workspace = op->make_workspace(nullptr);
            m.setup_seconds = setup.seconds();
            m.words = op->plan().forward;
            m.bytes = op->plan().bytes;
            measure(m, [&] { op->apply(&one, x.data(), &half, y.data(), *workspace); });
        } catch (const InputError& error) {
            m.failure = error.what();
        }
        rows.push_back(m);
    };
    for (NarrowKind narrow : {NarrowKind::lossless, NarrowKind::none}) {
        OperatorOptions options;
        options.narrow = narrow;
        measure_operator(narrow == NarrowKind::lossless ? "own" : "own-wide", "csr rows", options);
    }
    for (const SpmvChoice& format : formats) {
        OperatorOptions options;
        options.forward = format;
        measure_operator(text(format), text(format), options);
    }
    if (a->nnz() <= std::numeric_limits<int>::max()) {
        ProductMeasurement m;
        m.label = m.kernel = "eigen";
        const Stopwatch setup;
        std::vector<int> offsets(a->offsets(), a->offsets() + a->rows() + 1);
        std::vector<T> values(a->values(), a->values() + a->nnz());
        const Eigen::Map<const Eigen::SparseMatrix<T, Eigen::RowMajor>> matrix(a->rows(), a->cols(), a->nnz(), offsets.data(), a->columns(), values.data());
        m.setup_seconds = setup.seconds();
        const Eigen::Map<const Eigen::Vector<T, Eigen::Dynamic>> from(x.data(), a->cols());
        Eigen::Map<Eigen::Vector<T, Eigen::Dynamic>> to(y.data(), a->rows());
        measure(m, [&] {
            to *= T(-0.5);
            to.noalias() += matrix * from;
        });
        rows.push_back(m);
    }
    return rows;
}

}  // namespace

int spmv_command(std::span<const std::string> args) {
    const auto given = parse_flags(args, {{"direction", true}, {"kernels", true}, {"repeat", true}, {"warm-up", true}, {"json", true}, {"quiet,q", false}});
    if (given.contains("help")) {
        write_text("-", spmv_help());
        return kExitOk;
    }
    const SpmvOptions options = spmv_options(given);
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
    std::vector<ProductRequest> requests;
    std::vector<SpmvChoice> formats;
    if (on_gpu) requests = gpu_requests(options.kernels);
    else formats = cpu_formats(options.kernels);

    SpmvReport report;
    report.warm_up = options.warm_up;
    report.repeats = options.repeats;
    report.comparison = on_gpu ? "cusparse" : "eigen";
    std::unique_ptr<GpuSession> gpu;
    if (on_gpu) {
        gpu = open_gpu(options.prepare.device_index);
        report.device = gpu->device_text();
        report.copy_bytes_per_second = gpu->copy_bytes_per_second();
        report.sector_bound = report.device.find("H200") != std::string::npos;
    } else {
        report.device = fmt::format("CPU, {} thread{}", omp_get_max_threads(), omp_get_max_threads() == 1 ? "" : "s");
        report.copy_bytes_per_second = measure_host_copy_bandwidth();
    }
    say(spmv_heading(report));

    // Matrices are made ahead while the GPU measures; on the CPU that would disturb the times.
    const std::size_t ahead = on_gpu ? 3 : 1;
    std::deque<std::future<NamedMatrix>> coming;
    std::size_t asked = 0;
    for (std::size_t i = 0; i < options.sources.size(); ++i) {
        while (asked < options.sources.size() && coming.size() < ahead) {
            coming.push_back(std::async(ahead > 1 ? std::launch::async : std::launch::deferred, load_matrix, options.sources[asked++]));
        }
        NamedMatrix named = coming.front().get();
        coming.pop_front();
        for (const std::string& warning : named.warnings) console.warning(warning);
        const auto a = std::make_shared<const CsrMatrix>(std::move(named.a));
        for (const std::string& direction : options.directions) {
            const auto stored = direction == "A x" ? a : std::make_shared<const CsrMatrix>(a->transposed());
            const OrientationProfile profile = profile_orientation(*stored);
            for (const Precision precision : options.precisions) {
                const std::string name = options.sources[i].path.empty() ? options.sources[i].generator + ": " + named.origin : named.origin;
                SpmvTable table{name, direction, precision, profile, {}};
                if (on_gpu) {
                    std::vector<ProductRequest> all = requests;
                    if (options.kernels == "usual" || options.kernels == "all") {
                        for (ProductRequest& request : format_requests(profile, precision)) all.push_back(std::move(request));
                    }
                    table.rows = gpu->measure(*stored, precision, all, options.warm_up, options.repeats);
                }
                else if (precision == Precision::fp64) table.rows = measure_on_host<double>(stored, formats, options.warm_up, options.repeats);
                else table.rows = measure_on_host<float>(stored, formats, options.warm_up, options.repeats);
                say(spmv_table_text(report, table));
                report.tables.push_back(std::move(table));
            }
        }
    }
    say("\n" + spmv_summary(report));
    if (!options.json.empty()) write_text(options.json, spmv_json(report));
    return kExitOk;
}

}  // namespace lsmr
