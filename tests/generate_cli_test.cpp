// lsmr_generate as people run it: files, messages, exit codes.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "data/generators.hpp"
#include "data/read.hpp"

using namespace lsmr;
namespace fs = std::filesystem;

namespace {

struct Outcome {
    int code = -1;
    std::string text;  // both standard output and standard error
};

class Folder {
  public:
    Folder() {
        static int count = 0;
        path_ =
            fs::temp_directory_path() / ("lsmr_generate_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
        fs::create_directory(path_);
    }
    ~Folder() { fs::remove_all(path_); }
    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const auto& entry : fs::directory_iterator(path_)) all.push_back(entry.path().filename().string());
        std::sort(all.begin(), all.end());
        return all;
    }

  private:
    fs::path path_;
};

Outcome run(const std::string& arguments) {
    const std::string command = std::string("'") + LSMR_GENERATE_PATH + "' " + arguments + " 2>&1";
    Outcome outcome;
    std::FILE* pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char buffer[4096];
    while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) outcome.text.append(buffer, count);
    const int status = ::pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("generate: the files hold the problem that the library makes") {
    const Folder folder;
    const Outcome outcome = run("uniform --set rows=30 --set cols=20 --set per_row=4 --seed 5 -o " + folder / "u");
    CHECK(outcome.code == 0);
    CHECK(has(outcome.text, "uniform: 30 x 20, 120 nonzeros; seed=5"));
    CHECK(folder.names() == std::vector<std::string>{"u.mtx", "u_b.mtx", "u_x.mtx"});

    const GeneratedProblem problem = generate("uniform", {{"rows", 30}, {"cols", 20}, {"per_row", 4}}, 5);
    const CsrMatrix a = read_matrix(folder / "u.mtx").matrix;
    REQUIRE(a.nnz() == 120);
    CHECK(std::equal(a.columns(), a.columns() + 120, problem.a.columns()));
    CHECK(std::equal(a.values(), a.values() + 120, problem.a.values()));
    CHECK(read_dense(folder / "u_b.mtx").values == problem.b);
    CHECK(read_dense(folder / "u_x.mtx").values == problem.x);
    CHECK(has(content(folder / "u.mtx"), "% lsmr_generate uniform: 30 x 20"));
}

TEST_CASE("generate: a folder as output and quiet") {
    const Folder folder;
    fs::create_directory(folder / "out");
    CHECK(run("levelling --set width=4 --set height=3 -q -o " + folder / "out").text.empty());
    CHECK(fs::exists(folder / "out/levelling_b.mtx"));
    CHECK(run("star --scale 0.01 --quiet -o " + folder / "out/").code == 0);
    CHECK(fs::exists(folder / "out/star.mtx"));
}

TEST_CASE("generate: short flags for common parameters") {
    const Folder folder;
    const Outcome outcome = run("wide --noise 0 --scale 0.1 --transpose -o " + folder / "w");
    CHECK(outcome.code == 0);
    CHECK(has(outcome.text, "wide: 900 x 300,"));
    CHECK(has(outcome.text, "noise=0"));
    CHECK(has(outcome.text, "transpose=1"));
    CHECK(has(run("lstp --set damp=0.5 -o " + folder / "l").text, "x is the solution with --damp 0.5"));
}

TEST_CASE("generate: npz output") {
    const Folder folder;
    CHECK(run("short --scale 0.01 --format npz -o " + folder / "s").code == 0);
    CHECK(folder.names() == std::vector<std::string>{"s.npz", "s_b.npy", "s_x.npy"});
    CHECK(content(folder / "s.npz").starts_with("PK\x03\x04"));
    CHECK(content(folder / "s_b.npy").substr(1, 5) == "NUMPY");
    const std::string first = content(folder / "s.npz");
    CHECK(run("short --scale 0.01 --format=npz -o " + folder / "s").code == 0);
    CHECK(content(folder / "s.npz") == first);
}

TEST_CASE("generate: help and lists") {
    CHECK(run("--help").code == 0);
    CHECK(has(run("-h").text, "usage: lsmr_generate NAME -o PREFIX"));
    const Outcome list = run("--list");
    CHECK(list.code == 0);
    for (const GeneratorInfo& info : generators()) CHECK(has(list.text, std::string(info.name) + " "));
    for (const StandIn& s : stand_ins()) CHECK(has(list.text, std::string(s.name) + " "));
    const Outcome parameters = run("like-sls --help");
    CHECK(parameters.code == 0);
    CHECK(has(parameters.text, "students       students [54711]"));
    CHECK(run("unifrm --help").code == 65);
    CHECK(run("--list > /dev/full").code == 74);
}

TEST_CASE("generate: wrong usage ends with 64 and says what is meant") {
    const Folder folder;
    const std::string out = " -o " + folder / "n";
    const auto usage = [&](const std::string& arguments, const std::string& words) {
        CAPTURE(arguments);
        const Outcome outcome = run(arguments);
        CHECK(outcome.code == 64);
        CHECK_MESSAGE(has(outcome.text, words), outcome.text);
        CHECK(has(outcome.text, "lsmr_generate --help shows how to use it"));
    };
    usage("", "no generator is named");
    usage("uniform", "-o PREFIX is missing");
    usage("uniform -o ''", "-o needs a prefix");
    usage("uniform --sed 3" + out, "unknown flag --sed; did you mean --set?");
    usage("uniform --frobnicate" + out, "unknown flag --frobnicate");
    usage("uniform star" + out, "unexpected argument 'star'");
    usage("uniform --seed -1" + out, "--seed: '-1' is not a number");
    usage("uniform --seed 1 --seed 2" + out, "--seed");
    usage("uniform --seed" + out, "--seed");
    usage("uniform --noise abc" + out, "--noise: 'abc' is not a number");
    usage("uniform --set rows" + out, "--set rows: expected KEY=VALUE");
    usage("uniform --set =3" + out, "expected KEY=VALUE");
    usage("uniform --set rows=1e" + out, "--set rows: '1e' is not a number");
    usage("uniform --set rows=3 --set rows=4" + out, "rows is given twice");
    usage("uniform --set noise=3 --noise 4" + out, "noise is given twice");
    usage("uniform --format csv" + out, "--format csv: expected mtx or npz");
    usage("uniform --transpose=1" + out, "--transpose");
    CHECK(folder.names().empty());
}

TEST_CASE("generate: wrong names and values end with 65 and leave nothing behind") {
    const Folder folder;
    const std::string out = " -o " + folder / "n";
    const auto refused = [&](const std::string& arguments, const std::string& words) {
        CAPTURE(arguments);
        const Outcome outcome = run(arguments + out);
        CHECK(outcome.code == 65);
        CHECK_MESSAGE(has(outcome.text, words), outcome.text);
    };
    refused("tomografy", "did you mean 'tomography'?");
    refused("uniform --set row=3", "did you mean 'rows'?");
    refused("uniform --set rows=-3", "rows is -3; it must be between 1 and");
    refused("uniform --set rows=nan", "rows is nan");
    refused("uniform --scale -1", "scale is -1");
    refused("lstp --noise 1", "lstp has no parameter 'noise'");
    CHECK(folder.names().empty());
}

TEST_CASE("generate: outputs that cannot be made or written end with 73 and 74") {
    const Folder folder;
    CHECK(run("star --scale 0.01 -o " + folder / "missing/x").code == 73);
    fs::create_directory(folder / "d.mtx");
    CHECK(run("star --scale 0.01 -o " + folder / "d").code == 73);
    fs::create_symlink("/dev/full", folder / "f.mtx");
    const Outcome full = run("star --scale 0.01 -o " + folder / "f");
    CHECK(full.code == 74);
    CHECK(has(full.text, "No space left on device"));
}
