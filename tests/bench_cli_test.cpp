// lsmr_bench as people run it: the report as text and as JSON, and what it refuses; and the steps of the diagnosis.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/block_clock.hpp"
#include "bench/diagnosis.hpp"
#include "bench/profile_report.hpp"
#include "bench/spmv_report.hpp"
#include "data/generators.hpp"
#include "data/read.hpp"
#include "operator/profile.hpp"

using namespace lsmr;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

struct Outcome {
    int code = -1;
    std::string text;  // standard output, and standard error where the arguments join them
};

Outcome run(const std::string& arguments) {
    const std::string command = std::string("'") + LSMR_BENCH_PATH + "' " + arguments;
    Outcome outcome;
    std::FILE* pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char buffer[4096];
    while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) outcome.text.append(buffer, count);
    const int status = ::pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::string sample(const std::string& name) {
    return std::string(LSMR_SAMPLES_PATH) + "/" + name;
}

void refuses(const std::string& arguments, int code, const std::string& words) {
    const Outcome outcome = run(arguments + " 2>&1");
    INFO(arguments << ": " << outcome.text);
    CHECK(outcome.code == code);
    CHECK(has(outcome.text, "lsmr_bench: error: "));
    CHECK(has(outcome.text, words));
}

const DiagnosisStep& step(const std::vector<DiagnosisStep>& steps, const std::string& question) {
    const auto found = std::find_if(steps.begin(), steps.end(), [&](const DiagnosisStep& s) { return s.question == question; });
    REQUIRE(found != steps.end());
    return *found;
}

std::vector<DiagnosisStep> diagnose_generated(const std::string& name, const std::map<std::string, double>& parameters) {
    const MatrixProfile p = profile(generate(name, parameters, 1).a);
    return diagnose(p.a, p.at, {8, 8}, {kH200CopyBytesPerSecond, "of an H200", true});
}

}  // namespace

TEST_CASE("bench profile: the text has every step in order, for A and A^T, and the bytes of every format") {
    const Outcome outcome = run("profile " + sample("tomography.mtx") + " --device cpu --copy-bandwidth h200");
    CHECK(outcome.code == 0);
    const MatrixProfile p = profile(read_matrix(sample("tomography.mtx")).matrix);
    CHECK(has(outcome.text, "150 x 144, 2,164 entries"));
    std::size_t at = 0;
    for (const char* part :
         {"A x, fp64", "1. row lengths", "2. regular?", "3. roofline share", "4. x locality", "5. skew", "6. atomics", "A^T y, fp64",
          "1. row lengths", "2. regular?", "3. roofline share", "4. x locality", "5. skew", "6. atomics", "bytes of A x", "  CSR  ",
          "CSR, 16-bit columns", "COO", "ELL", "HYB", "SELL-32", "BSR 16x16", "DIA", "dense", "bytes of A^T y", "COO", "choice", "A x "}) {
        CAPTURE(part);
        at = outcome.text.find(part, at);
        REQUIRE(at != std::string::npos);
        at += 1;
    }
    const auto verdicts = [&] {
        int count = 0;
        for (std::size_t i = 0; (i = outcome.text.find("-> ", i)) != std::string::npos; ++i) ++count;
        return count;
    }();
    CHECK(verdicts == 12);
    CHECK(has(outcome.text, "longest " + std::to_string(p.a.longest)));
    CHECK(has(outcome.text, bytes_text(csr_bytes(p.a, {8, 8}).total())));
}

TEST_CASE("bench profile: JSON holds the profile, the diagnosis and the formats") {
    const Outcome outcome =
        run("profile " + sample("levelling.mtx") + " --device cpu --precision fp32 --copy-bandwidth 100 -q --json - 2>&1");
    CHECK(outcome.code == 0);
    const json report = json::parse(outcome.text);
    CHECK(report["schema"] == "lsmr_profile/1");
    CHECK(report["precision"] == "fp32");
    CHECK(report["copy"]["bytes_per_second"] == 100e9);
    const CsrMatrix a = read_matrix(sample("levelling.mtx")).matrix;
    const MatrixProfile expected = profile(a);
    for (const auto& [key, p] : {std::pair<const char*, const OrientationProfile&>{"a", expected.a}, {"at", expected.at}}) {
        const json& found = report[key]["profile"];
        CHECK(found["rows"] == p.rows);
        CHECK(found["nnz"] == a.nnz());
        CHECK(found["row_length"]["longest"] == p.longest);
        CHECK(found["row_length"]["histogram"].get<std::vector<std::int64_t>>() ==
              std::vector<std::int64_t>(p.length_histogram.begin(), p.length_histogram.end()));
        CHECK(found["columns"]["span256"] == p.span256);
        CHECK(found["locality"]["sectors_fp32"] == p.sectors_fp32);
        CHECK(found["values"]["exact_bf16"] == p.exact_bf16);
        CHECK(found["blocks"].size() == kBlockShapes);
        CHECK(report[key]["diagnosis"].size() == 6);
        CHECK(report[key]["diagnosis"][3]["question"] == "x locality");
        CHECK(report[key]["formats"].size() == 3 * format_bytes(p, {8, 8}).size());
        CHECK(report[key]["formats"][0]["product_bytes"] == csr_bytes(p, {8, 8}).total());
    }
    CHECK(report["choice"].size() >= 5);
    CHECK(report["environment"]["schema"] == "lsmr_env/1");
}

TEST_CASE("bench profile: a generated matrix, the measured bandwidth, and a JSON file") {
    const std::string path = (fs::temp_directory_path() / ("lsmr_bench_" + std::to_string(::getpid()) + ".json")).string();
    const Outcome outcome = run("profile --generate uniform --set rows=300 --set cols=200 --set per_row=5 --seed 3 "
                                "--device cpu --threads 2 -q --json " + path);
    CHECK(outcome.code == 0);
    CHECK(outcome.text.empty());
    std::ifstream file(path);
    const json report = json::parse(file);
    fs::remove(path);
    CHECK(report["matrix"]["rows"] == 300);
    CHECK(report["matrix"]["nnz"] == 1500);
    CHECK(report["device"] == "CPU, 2 threads");
    CHECK(report["copy"]["origin"] == "measured");
    CHECK(report["copy"]["bytes_per_second"] > 1e8);
    const MatrixProfile p = profile(generate("uniform", {{"rows", 300}, {"cols", 200}, {"per_row", 5}}, 3).a);
    CHECK(report["at"]["profile"]["row_length"]["longest"] == p.at.longest);
}

TEST_CASE("bench: help, version, and what is refused") {
    CHECK(has(run("--help").text, "profile "));
    CHECK(run("--help").code == 0);
    CHECK(has(run("--version").text, "lsmr_bench "));
    const std::string help = run("profile --help").text;
    for (const char* flag : {"--generate", "--scale", "--set", "--seed", "--device", "--threads", "--precision",
                             "--copy-bandwidth", "--json", "-q"}) {
        CAPTURE(flag);
        CHECK(has(help, flag));
    }
    CHECK(run(" 2>&1").code == 64);
    const std::string a = sample("tomography.mtx");
    refuses("profil", 64, "did you mean profile?");
    refuses("profile", 64, "no matrix is given");
    refuses("profile " + a + " --jsom x", 64, "did you mean --json?");
    refuses("profile " + a + " b.mtx", 64, "unexpected argument 'b.mtx'");
    refuses("profile " + a + " --generate s1", 64, "given twice");
    refuses("profile " + a + " --scale 2", 64, "--scale goes with --generate only");
    refuses("profile " + a + " --copy-bandwidth 0", 64, "must be positive");
    refuses("profile " + a + " --copy-bandwidth fast", 64, "not a number");
    refuses("profile " + a + " --precision fp16", 64, "must be fp64 or fp32");
    refuses("profile " + a + " --device gpu", 64, "must be auto, cpu, cuda or cuda:N");
    refuses("profile --generate unifrom", 65, "uniform");
    refuses("profile /dev/null", 65, "/dev/null");
    refuses("profile nothing.mtx", 66, "nothing.mtx");
    refuses("profile " + a + " --device cuda:1000", 69, "");
    refuses("profile " + a + " --json /nowhere/x.json", 73, "/nowhere");
    refuses("profile " + a + " --json " + a, 73, "");
}

TEST_CASE("diagnosis: verdicts follow the numbers") {
    const auto local = diagnose_generated("like-rucci1", {{"scale", 0.02}});
    CHECK(has(step(local, "row lengths").verdict, "short rows"));
    CHECK(has(step(local, "regular?").verdict, "yes"));
    CHECK(has(step(local, "roofline share").verdict, "values"));
    CHECK(has(step(local, "skew").verdict, "none"));

    // x of 160 MB, random columns: each gather is a sector from memory.
    OrientationProfile random;
    random.rows = 1000000;
    random.cols = 20000000;
    random.nnz = 8000000;
    random.average = 8;
    random.longest = 8;
    random.span256 = random.cols;
    random.sectors_fp64 = 1;
    OrientationProfile columns = random;
    std::swap(columns.rows, columns.cols);
    columns.longest = 4;
    const Rates rates{kH200CopyBytesPerSecond, "of an H200", true};
    CHECK(has(step(diagnose(random, columns, {8, 8}, rates), "x locality").verdict, "scattered: bound by sectors"));
    CHECK(has(step(diagnose(random, columns, {8, 8}, {100e9, "given", false}), "x locality").verdict, "scattered"));
    CHECK(has(step(diagnose(random, columns, {8, 8}, rates), "atomics").verdict, "no: "));
    random.similarity = 0.99;
    CHECK(has(step(diagnose(random, columns, {8, 8}, rates), "x locality").verdict, "local"));
    random.longest = 100000;
    random.variation = 3;
    random.length_histogram[18] = 1;
    CHECK(has(step(diagnose(random, columns, {8, 8}, rates), "skew").verdict, "must be split"));
    CHECK(has(step(diagnose(random, columns, {8, 8}, rates), "regular?").verdict, "no: lengths vary"));
    random.empty_rows = 500000;
    CHECK(has(step(diagnose(random, columns, {8, 8}, rates), "regular?").verdict, "many rows are empty"));

    // All that a matrix of no entries has: no division by zero, no infinite times.
    const OrientationProfile none = profile_orientation(CsrMatrix());
    for (const DiagnosisStep& s : diagnose(none, none, {4, 4}, rates)) {
        CHECK_FALSE(s.verdict.empty());
        for (const std::string& fact : s.facts) CHECK_FALSE((has(fact, "nan") || has(fact, "inf")));
    }
}

TEST_CASE("diagnosis: numbers for people") {
    CHECK(count_text(0) == "0");
    CHECK(count_text(999) == "999");
    CHECK(count_text(1234567) == "1,234,567");
    CHECK(bytes_text(124e6) == "124 MB");
    CHECK(bytes_text(999) == "999 B");
    CHECK(bytes_text(999.9) == "1 KB");
    CHECK(time_text(0.233e-3) == "0.233 ms");
    CHECK(time_text(8.7e-6) == "8.7 us");
    CHECK(percent_text(0.078) == "7.8 %");
    CHECK(choice_text({"one", "two"}) == "choice\n  one\n  two\n");
}

TEST_CASE("bench: spmv times the products on the CPU beside Eigen and checks them") {
    const Outcome text = run("spmv --device cpu --repeat 2 --warm-up 1 --generate bench-stencil27,like-rucci1 --scale 0.002");
    CHECK(text.code == 0);
    for (const char* words : {"copy ", "bench-stencil27: ", "like-rucci1: ", "A x of it", "A^T y of it", "fp64, 32-bit offsets", "fp32, 32-bit offsets", "own-wide",
                              "eigen", "set-up ms", "the best eigen (geometric mean of 8 products)"}) {
        CAPTURE(words);
        CHECK(has(text.text, words));
    }
    const Outcome report = run("spmv " + sample("tomography.mtx") + " --device cpu --precision fp64 --direction at --repeat 1 --warm-up 0 -q --json -");
    REQUIRE(report.code == 0);
    const json parsed = json::parse(report.text);
    CHECK(parsed["schema"] == "lsmr_spmv/1");
    REQUIRE(parsed["tables"].size() == 1);
    const json& table = parsed["tables"][0];
    CHECK(table["direction"] == "A^T y");
    CHECK(table["precision"] == "fp64");
    const MatrixFile file = read_matrix(sample("tomography.mtx"));
    CHECK(table["rows"] == file.matrix.cols());
    CHECK(table["nnz"] == file.matrix.nnz());
    REQUIRE(table["products"].size() == 3);
    for (const json& product : table["products"]) {
        CHECK(product["seconds"].get<double>() > 0);
        CHECK(product["error"].get<double>() < 1);
        CHECK(product["repeatable"] == true);
        CHECK(product["share_of_copy"].get<double>() > 0);
    }
}

TEST_CASE("bench: spmv times formats on the CPU, and says why one does not fit") {
    const Outcome all = run("spmv --device cpu --precision fp64 --direction a --repeat 1 --warm-up 0 --generate bench-stencil27 --scale 0.002 --format all --json -");
    REQUIRE(all.code == 0);
    const auto parsed = json::parse(all.text);
    std::vector<std::string> kernels;
    for (const json& product : parsed["tables"][0]["products"]) {
        kernels.push_back(product["kernel"].get<std::string>());
        if (product.contains("failure")) continue;
        CHECK(product["error"].get<double>() <= 1);
        CHECK(product["repeatable"] == true);
    }
    // All that suit the matrix: 27 diagonals, nearly full.
    for (const char* kernel : {"sell-32", "sell-32-1024", "ell", "hyb", "hyb-q95", "coo", "dia"}) CHECK(std::count(kernels.begin(), kernels.end(), kernel) == 1);
    const Outcome uneven = run("spmv --device cpu --precision fp64 --direction a --repeat 1 --warm-up 0 --generate bench-powerlaw --scale 0.002 --format ell,sell --json -");
    CHECK(has(uneven.text, "ell would store"));
    refuses("spmv --generate bench-stencil27 --format all,none", 64, "no such format: 'all'");
}

TEST_CASE("bench: spmv times blocks and diagonals by name") {
    const Outcome report = run("spmv --generate bench-stencil27 --scale 0.002 --device cpu --precision fp64 --direction a --repeat 1 --warm-up 0 -q --json - "
                               "--format bsr-3x3-columns,dia,bell-4x4");
    REQUIRE(report.code == 0);
    const json products = json::parse(report.text)["tables"][0]["products"];
    REQUIRE(products.size() == 6);
    for (const json& product : products) {
        CHECK(product["error"].get<double>() < 1);
        CHECK(product["repeatable"] == true);
    }
    CHECK(products[3]["kernel"] == "dia");
    CHECK(has(products[3]["words"].get<std::string>(), "27 diagonals"));
    for (const json& product : products) CHECK(product["own_share_of_copy"].get<double>() > 0);
}

TEST_CASE("bench: spmv times the blocks that suit a matrix by every mapping") {
    const auto kernels = [](const std::string& unknowns) {
        const Outcome report = run("spmv --generate stencil --set nx=6 --set ny=6 --set nz=6 --set unknowns=" + unknowns +
                                   " --device cpu --precision fp64 --direction a --repeat 1 --warm-up 0 -q --json - --format blocks");
        REQUIRE(report.code == 0);
        std::string names;
        const json all = json::parse(report.text);
        for (const json& product : all["tables"][0]["products"]) names += product["kernel"].get<std::string>() + " ";
        return names;
    };
    CHECK(kernels("3") == "csr rows csr rows bsr-3x3-stream bsr-3x3-columns bsr-3x3-columns+rowmajor eigen ");
    CHECK(has(kernels("4"), "bsr-4x4-stream bsr-4x4-columns bsr-4x4-columns+rowmajor bsr-4x4-blocks bsr-4x4-blocks+rowmajor"));
}

TEST_CASE("bench: spmv refuses what it cannot do") {
    refuses("spmv", 64, "no matrix is given");
    refuses("spmv --generate bench-stencil27,nowhere", 65, "nowhere");
    refuses("spmv --generate like-rucci1 --scale 0.01 --device cpu --kernels rows-8", 64, "--kernels names kernels of a GPU");
    refuses("spmv --generate like-rucci1 --scale 0.01 --format bsr-3x3", 64, "no such format: 'bsr-3x3'");
    refuses("spmv --generate like-rucci1 --direction up", 64, "--direction up: must be a, at or both");
    refuses("spmv --generate like-rucci1 --repeat 0", 64, "--repeat 0");
    refuses("smpv", 64, "did you mean spmv?");
}

namespace {

json solver_row(const json& table, const std::string& label) {
    for (const json& row : table["solvers"]) {
        if (row["label"] == label) return row;
    }
    FAIL("no row " << label);
    return {};
}

}  // namespace

TEST_CASE("bench: solve times iterations and solves on the CPU, beside Eigen") {
    const Outcome text = run("solve --device cpu --iterations 5 --repeat 3 --generate bench-small,bench-medium --scale 0.1");
    CHECK(text.code == 0);
    for (const char* words : {"copy ", "medians of 3 blocks of 5 iterations", "bench-small: 2000 x 800", "bench-medium: 20000 x 6000", "fp64; least ", "fp32; least ",
                              "us/iter", "set-up ms", "order", "rest", "LeastSquaresConjugateGradient", "eigen an iteration (geometric mean of 4)"}) {
        CAPTURE(words);
        CHECK(has(text.text, words));
    }
    const Outcome report = run("solve --generate bench-small --scale 0.1 --device cpu --iterations 4 --repeat 3 --tolerance 1e-5 -q --json -");
    REQUIRE(report.code == 0);
    const json parsed = json::parse(report.text);
    CHECK(parsed["schema"] == "lsmr_bench_solve/1");
    REQUIRE(parsed["tables"].size() == 2);
    const CsrMatrix a = generate("bench-small", {{"scale", 0.1}}, 1).a;
    for (const json& table : parsed["tables"]) {
        const bool wide = table["precision"] == "fp64";
        CAPTURE(wide);
        CHECK(table["rows"] == a.rows());
        const double m = static_cast<double>(a.rows()), n = static_cast<double>(a.cols()), nnz = static_cast<double>(a.nnz());
        CHECK(table["least_bytes"] == (wide ? 24 * nnz + 28 * m + 76 * n : 16 * nnz + 16 * m + 40 * n));
        CHECK(table["ar_bound"].get<double>() > 0);
        for (const char* label : {"cpu", "eigen"}) {
            CAPTURE(label);
            const json row = solver_row(table, label);
            CHECK(row["seconds_per_iteration"].get<double>() > 0);
            CHECK(row["least_seconds"] <= row["seconds_per_iteration"]);
            CHECK(row["seconds_per_iteration"] <= row["most_seconds"]);
            CHECK(row["iterations_timed"].get<int>() >= 3);
            CHECK(row["iterations_timed"].get<int>() <= 12);  // fewer where other work makes a block late
            CHECK(row["share_of_copy"].get<double>() > 0);
            const json& setup = row["setup"];
            CHECK(setup["seconds"].get<double>() > 0);
            CHECK(setup["rest_seconds"].get<double>() >= 0);
            CHECK(setup["rest_seconds"].get<double>() == doctest::Approx(setup["seconds"].get<double>() - setup["upload_seconds"].get<double>() -
                                                                         setup["transpose_seconds"].get<double>() - setup["order_seconds"].get<double>() -
                                                                         setup["choice_seconds"].get<double>() - setup["one_pass_seconds"].get<double>()));
            CHECK(row["solve"]["reached"] == true);
            CHECK(row["solve"]["iterations"].get<int>() > 5);
            CHECK(row["solve"]["ls"].get<double>() <= 2.1e-5);
        }
        // Ours in fp64 is the measure itself; in fp32 it differs by rounding. Eigen's method has other iterates.
        const double difference = solver_row(table, "cpu")["x_difference"].get<double>();
        if (wide) CHECK(difference == 0);
        else CHECK((difference > 0 && difference < 1e-4));
        CHECK_FALSE(solver_row(table, "eigen").contains("x_difference"));
        CHECK(solver_row(table, "eigen")["against_eigen"] == 1);
    }
}

TEST_CASE("bench: solve adds rows that others measured") {
    const std::string path = (fs::temp_directory_path() / ("lsmr_peers_" + std::to_string(::getpid()) + ".json")).string();
    const CsrMatrix a = read_matrix(sample("tomography.mtx")).matrix;
    const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
    const auto record = [&](const char* type, std::int64_t rows) {
        return json{{"engine", "cupy-lsmr"}, {"dtype", type}, {"rows", rows}, {"cols", a.cols()}, {"nnz", a.nnz()}, {"seconds_per_iteration", 0.5}, {"spread", {0.25, 1}}}.dump() + "\n";
    };
    // The command must be given a file of the matrix: an archive, whose first bytes are PK.
    const std::string arguments = "solve " + sample("tomography.mtx") + " --device cpu --iterations 2 --repeat 1 --executors eigen --peers ";
    const std::string command = "'f() { head -c 2 \"$1\" | grep -q PK && cat " + path + "; }; f'";
    write(record("f64", a.rows()) + "\n");
    const Outcome report = run(arguments + command + " -q --json -");
    REQUIRE(report.code == 0);
    const json parsed = json::parse(report.text);
    const json row = solver_row(parsed["tables"][0], "cupy-lsmr");
    CHECK(row["seconds_per_iteration"] == 0.5);
    CHECK(row["most_seconds"] == 1);
    CHECK(row["against_eigen"].get<double>() == doctest::Approx(solver_row(parsed["tables"][0], "eigen")["seconds_per_iteration"].get<double>() / 0.5));
    CHECK(parsed["tables"][1]["solvers"].size() == 1);
    write("{\"engine\": \"x\"}\n");
    refuses(arguments + command, 65, ":1:1: expected a JSON object");
    write("\n");
    refuses(arguments + command, 65, "printed no measurements");
    write(record("f16", a.rows()));
    refuses(arguments + command, 65, "dtype is \"f16\", expected f32 or f64");
    write(record("f32", a.rows() + 1));
    refuses(arguments + command, 65, "is of a matrix of");
    fs::remove(path);
    refuses(arguments + "'exit 3;'", 65, "failed, exit code 3");
    refuses(arguments + "''", 64, "--peers: the command is empty");
}

TEST_CASE("bench: solve refuses what it cannot do") {
    CHECK(has(run("solve --help").text, "--executors LIST"));
    refuses("solve", 64, "no matrix is given");
    refuses("solve --generate bench-small,nowhere", 65, "nowhere");
    refuses("solve --generate bench-small --device cpu --executors textbook", 64, "--executors textbook: needs a GPU");
    refuses("solve --generate bench-small --device cpu --executors cpu,rows-8", 64, "--executors rows-8: needs a GPU");
    refuses("solve --generate bench-small --iterations 0", 64, "--iterations 0");
    refuses("solve --generate bench-small --tolerance 0", 64, "must be positive");
    refuses("sovle", 64, "did you mean solve?");
}

TEST_CASE("bench: blocks of iterations, the first of which is not counted") {
    std::int64_t waits = 0;
    BlockClock clock(10, 3, 1e9, [&] { return waits; });
    CHECK(clock.tick(0));
    std::int64_t done = 0;
    // Steps of 4 iterations: blocks end at 12, 24, 36, 48.
    while (clock.tick(done += 4)) waits += 1;
    CHECK(done == 48);
    CHECK(clock.seconds().size() == 3);
    CHECK(clock.measured_iterations() == 36);
    CHECK(clock.waits_per_iteration() == doctest::Approx(9.0 / 36));
    BlockClock impatient(1000, 2, 0.0, [] { return 0; });
    CHECK(impatient.tick(0));
    CHECK(impatient.tick(0));  // no iteration, no block
    CHECK(impatient.tick(1));
    CHECK(impatient.tick(2));
    CHECK_FALSE(impatient.tick(3));
}

TEST_CASE("bench spmv: a sweep says how near the choice of the dispatch comes to the fastest kernel") {
    SpmvReport report;
    report.comparison = "cusparse";
    report.tables.resize(2);
    const std::vector<std::string> kernels{"rows-1", "rows-32", "stream-128x2048", "stream-128x1024", "stream-256x2048", "balanced-128x1024", "merge-128x1024",
                                           "cusparse-alg2", "cusparse-alg1"};
    for (SpmvTable& table : report.tables) {
        for (const std::string& kernel : kernels) {
            ProductMeasurement row;
            row.label = row.kernel = kernel;
            row.seconds = kernel == "merge-128x1024" ? 1e-3 : kernel == "cusparse-alg1" ? 0.5e-3 : 2e-3;  // ALG1's bits vary: not in the sweep
            table.rows.push_back(row);
        }
        ProductMeasurement chosen;
        chosen.label = "auto";
        chosen.kernel = "stream-128x1024";
        chosen.seconds = &table == report.tables.data() ? 1.04e-3 : 1.06e-3;
        table.rows.push_back(chosen);
    }
    CHECK(spmv_summary(report).find("within 5 % of the fastest kernel of the sweep on 1 of 2 products") != std::string::npos);
    for (SpmvTable& table : report.tables) table.rows.erase(table.rows.begin());
    CHECK(spmv_summary(report).find("sweep") == std::string::npos);  // fewer kernels are no sweep
}
