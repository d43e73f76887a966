// lsmr_bench spmv: the products with a matrix, kernel by kernel.
#include <fmt/format.h>
#include <omp.h>

#include <Eigen/SparseCore>
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
#include "operator/dispatch.hpp"
#include "operator/matrix_operator.hpp"
#include "outputs.hpp"
#include "spmv_report.hpp"
#include "stopwatch.hpp"

namespace lsmr {
namespace {

struct SpmvOptions {
    std::vector<MatrixSource> sources;
    PrepareOptions prepare;
    std::vector<Precision> precisions{Precision::fp64, Precision::fp32};
    std::vector<std::string> directions{"A x", "A^T y"};
    std::string kernels = "usual";
    std::vector<SpmvChoice> formats;  // measured beside the kernels
    bool all_formats = false;         // these, and those that suit the matrix
    bool block_mappings = false;      // blocks of the size that suits the matrix, by every mapping
    int repeats = 15;
    int warm_up = 3;
    std::string json;
    bool quiet = false;
};

std::string spmv_help() {
    return "usage: lsmr_bench spmv A [flags]\n"
           "       lsmr_bench spmv --generate NAME[,NAME...] [flags]\n\n"
           "Times y <- a A x + b y and the product with A^T, and checks every result against one in long double.\n"
           "On a GPU: what the dispatch chooses (auto; own: without cuSPARSE; own-wide: without narrow forms), a thread\n"
           "a row, cuSPARSE with preprocess, both algorithms; where blocks or diagonals are nearly full, these too, and\n"
           "cuSPARSE's blocks. On the CPU: the operator of the library, the formats that are named, and Eigen.\n\n" +
           matrix_flags_help() +
           published_help() +
           device_flags_help() +
           "                        [here: both, one after the other]\n"
           "  --direction D         a, at or both [both]\n"
           "  --kernels LIST        usual, all (every kernel there is), or names with commas, as auto, own-wide, stream-128x1024,\n"
           "                        rows-8, bsr-3x3-columns, cusparse-alg1, cusparse-bsr-3x3 [usual]\n"
           "  --format LIST         also these formats, on the GPU and on the CPU: all (those that the matrix suits), blocks (of\n"
           "                        the size that it fills best, by every mapping), or names with commas, as sell, sell-32,\n"
           "                        ell, hyb, hyb-q95, coo, bsr-3x3-stream, bsr-4x4-blocks, bell-16x16, dia, dense [none]\n"
           "  --repeat N            timed products [15]\n"
           "  --warm-up N           products before them [3]\n"
           "  --json FILE           the report as JSON; - is standard output, the text goes to standard error then\n"
           "  -q, --quiet           no text\n"
           "  -h, --help            this text\n\n"
           "columns: GB/s by the least bytes of CSR with 32-bit columns (values, columns, offsets, x once, y twice); copy: the\n"
           "share of the copy bandwidth measured in the same run; own: that share by the bytes of the kernel's own arrays, x\n"
           "once and y twice; idle: lanes without a block while their warp works; sectors: of the bound by random 32-byte sectors of x;\n"
           "call: of one product in a row of products, by the host's clock; set-up: choice, plan and conversion; +1/1000: a\n"
           "product with its part of the set-up when a thousand are made; error: in units of the rounding bound of its row;\n"
           "bits: whether five products gave the same ones.\n";
}

SpmvOptions spmv_options(const boost::program_options::variables_map& given) {
    SpmvOptions options;
    options.sources = matrix_sources(given);
    read_device_flags(given, options.prepare);
    if (given.contains("precision")) options.precisions = {options.prepare.precision};
    if (given.contains("direction")) {
        const std::string text = given["direction"].as<std::string>();
        if (text == "a") options.directions = {"A x"};
        else if (text == "at") options.directions = {"A^T y"};
        else if (text != "both") throw UsageError(fmt::format("--direction {}: must be a, at or both", text));
    }
    if (given.contains("kernels")) options.kernels = given["kernels"].as<std::string>();
    if (given.contains("format")) {
        const std::string text = given["format"].as<std::string>();
        options.all_formats = text == "all";
        options.block_mappings = text == "blocks";
        const std::string names = options.all_formats ? "sell-32,sell-32-1024,ell,hyb,hyb-q95,coo" : options.block_mappings ? "" : text;
        try {
            for (const std::string& name : split(names)) options.formats.push_back(parse_format(name));
        } catch (const InputError& error) {
            throw UsageError(fmt::format("--format: {}", error.what()));
        }
    }
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
        for (const char* family : {"stream", "balanced"}) {
            for (const char* form : {"", "+columns16", "+panels4"}) names.push_back(fmt::format("{}-{}{}", family, shape, form));
        }
    }
    for (const char* shape : {"128x1024", "256x1024"}) names.push_back(fmt::format("merge-{}", shape));
    for (const char* name : {"stream-128x1024+atomic", "window", "window-4096"}) names.push_back(name);
    for (const char* name : {"sell-32", "sell-32+columns16", "sell-32-256", "sell-32-1024", "sell-32-1024+columns16", "sell-32-16384", "ell", "hyb", "hyb-q95",
                             "coo", "coo+atomic"}) {
        names.push_back(name);
    }
    return names;
}

ProductRequest request(const SpmvChoice& kernel) { return {text(kernel), kernel, SpmvKind::automatic, NarrowKind::lossless, true}; }

std::vector<ProductRequest> gpu_requests(const std::string& kernels) {
    std::vector<ProductRequest> requests;
    const auto add = [&](const std::string& name) {
        if (name == "auto") requests.push_back({name, {}, SpmvKind::automatic, NarrowKind::lossless, true});
        else if (name == "own") requests.push_back({name, {}, SpmvKind::own, NarrowKind::lossless, true});
        else if (name == "own-wide") requests.push_back({name, {}, SpmvKind::own, NarrowKind::none, true});
        else requests.push_back(request(parse_spmv_choice(name)));
    };
    if (kernels != "usual" && kernels != "all") {
        for (const std::string& name : split(kernels)) add(name);
        return requests;
    }
    for (const char* name : {"auto", "own", "own-wide"}) add(name);
    if (kernels == "all") {
        for (const std::string& name : every_kernel()) add(name);
    } else {
        add("rows-1");
    }
    add("cusparse-alg1");
    add("cusparse-alg2");
    return requests;
}

// The formats with places between entries of which this matrix fills nearly all: blocks, diagonals, dense storage.
std::vector<SpmvChoice> suited_formats(const OrientationProfile& profile, Precision precision) {
    constexpr double kNearlyFull = 0.7;
    constexpr int kArch = 90;  // formats do not depend on it
    std::vector<SpmvChoice> formats;
    const DispatchKey key = make_dispatch_key(profile, precision == Precision::fp64 ? VectorType::fp64 : VectorType::fp32, kArch);
    if (key.block_fill >= kNearlyFull) {
        const SpmvChoice blocks = block_choice(key.block_rows, key.block_cols, ValueForm::as_vectors);
        formats.push_back(blocks);
        // Blocked-ELL fills all block rows up to the longest.
        const bool even = key.average >= kNearlyFull * static_cast<double>(key.longest);
        if (even && is_power_square(blocks)) formats.push_back(parse_format(fmt::format("bell-{}x{}", key.block_rows, key.block_cols)));
    }
    if (key.diagonals > 0 && key.diagonals <= kDiagonalCap && profile.diagonal_fill >= kNearlyFull) formats.push_back(parse_format("dia"));
    if (key.nnz > 0 && key.average >= kNearlyFull * static_cast<double>(key.cols)) formats.push_back(parse_format("dense"));
    return formats;
}

// Blocks of the size that needs the fewest bytes, by every mapping and in either order.
std::vector<SpmvChoice> block_mappings(const OrientationProfile& profile, Precision precision) {
    constexpr int kArch = 90;
    const DispatchKey key = make_dispatch_key(profile, precision == Precision::fp64 ? VectorType::fp64 : VectorType::fp32, kArch);
    if (!(key.block_fill > 0)) return {};
    std::vector<SpmvChoice> formats{block_choice(key.block_rows, key.block_cols, ValueForm::as_vectors)};
    for (const BlockMapping mapping : {BlockMapping::columns, BlockMapping::blocks}) {
        for (const BlockOrder order : {BlockOrder::column_major, BlockOrder::row_major}) {
            SpmvChoice direct = formats.front();
            direct.mapping = mapping;
            direct.order = order;
            if (mapping == BlockMapping::columns || is_power_square(direct)) formats.push_back(direct);
        }
    }
    return formats;
}

std::vector<SpmvChoice> formats_of(const SpmvOptions& options, const OrientationProfile& profile, Precision precision) {
    std::vector<SpmvChoice> formats = options.formats;
    if (options.block_mappings) formats = block_mappings(profile, precision);
    if (options.all_formats) {
        for (const SpmvChoice& format : suited_formats(profile, precision)) formats.push_back(format);
    }
    return formats;
}

// The formats that are asked for, each once; beside the usual kernels, or all, also those that suit the matrix, with cuSPARSE's blocks beside ours.
void add_formats(std::vector<ProductRequest>& requests, const SpmvOptions& options, const OrientationProfile& profile, Precision precision) {
    const auto add = [&](const SpmvChoice& kernel) {
        if (std::none_of(requests.begin(), requests.end(), [&](const ProductRequest& r) { return r.kernel == kernel; })) requests.push_back(request(kernel));
    };
    for (const SpmvChoice& format : formats_of(options, profile, precision)) add(format);
    if (options.block_mappings) {
        for (const SpmvChoice& format : block_mappings(profile, precision))
            add(parse_spmv_choice(fmt::format("cusparse-bsr-{}x{}", format.block_rows, format.block_cols)));
    }
    if (options.kernels != "usual" && options.kernels != "all") return;
    for (const SpmvChoice& format : suited_formats(profile, precision)) {
        add(format);
        if (format.kernel == SpmvKernel::bsr) add(parse_spmv_choice(fmt::format("cusparse-bsr-{}x{}", format.block_rows, format.block_cols)));
    }
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
    const auto given = parse_flags(
        args, {{"direction", true}, {"kernels", true}, {"format", true}, {"repeat", true}, {"warm-up", true}, {"json", true}, {"quiet,q", false}});
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
    if (on_gpu) requests = gpu_requests(options.kernels);
    else if (options.kernels != "usual") throw UsageError("--kernels names kernels of a GPU; on the CPU there is one, Eigen's, and the formats of --format");

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
    MatrixQueue queue(options.sources, on_gpu ? 3 : 1);
    while (!queue.empty()) {
        NamedMatrix named = queue.next();
        for (const std::string& warning : named.warnings) console.warning(warning);
        const auto a = std::make_shared<const CsrMatrix>(std::move(named.a));
        for (const std::string& direction : options.directions) {
            const auto stored = direction == "A x" ? a : std::make_shared<const CsrMatrix>(a->transposed());
            OrientationProfile profile;
            if (!on_gpu) profile = profile_orientation(*stored);
            for (const Precision precision : options.precisions) {
                SpmvTable table{named.origin, direction, precision, profile, {}};
                if (on_gpu) {
                    const auto all = [&](const OrientationProfile& found) {
                        std::vector<ProductRequest> list = requests;
                        add_formats(list, options, found, precision);
                        return list;
                    };
                    GpuProducts products = gpu->measure(*stored, precision, all, options.warm_up, options.repeats);
                    table.profile = products.profile;
                    table.rows = std::move(products.measured);
                } else {
                    const std::vector<SpmvChoice> formats = formats_of(options, profile, precision);
                    table.rows = precision == Precision::fp64 ? measure_on_host<double>(stored, formats, options.warm_up, options.repeats)
                                                              : measure_on_host<float>(stored, formats, options.warm_up, options.repeats);
                }
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
