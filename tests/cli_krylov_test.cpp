// lsmr_solve and what it builds its iteration on: lambda chosen, kept vectors, more preconditioners, the picture of the history.
#include "cli_support.hpp"

using namespace cli;

namespace {

const std::string kTomography = LSMR_SAMPLES_PATH "/tomography.mtx";

}  // namespace

TEST_CASE("cli: lambda is chosen") {
    for (const std::string rule : {"auto:gcv", "auto:lcurve", "auto:discrepancy:0.02"}) {
        const Run result = run({kTomography, "--damp", rule, "--damp-range", "1e-3:10:9", "--json", "-"});
        CAPTURE(rule);
        CAPTURE(result.err);
        CHECK(result.code == 0);
        const json report = json::parse(result.out);
        const json damping = report["damping"];
        CHECK(rule.find(damping["rule"].get<std::string>()) != std::string::npos);
        REQUIRE(damping["table"].size() == 9);
        CHECK(damping["table"][0]["damp"].get<double>() == doctest::Approx(1e-3));
        CHECK(damping["table"][8]["damp"].get<double>() == doctest::Approx(10));
        CHECK(result.says("damping "));
        CHECK(result.says("||x - c||"));
        CHECK(report["options"]["damp"] == rule.substr(0, rule.find(':', 5)));
        CHECK(report["options"]["damp_range"].size() == 3);
        // The report is that of a solve with this lambda.
        const double damp = damping["damp"].get<double>();
        std::ostringstream given;
        given.precision(17);
        given << damp;
        const json alone = json::parse(run({kTomography, "--damp", given.str(), "--atol", "1e-10", "--json", "-"}).out);
        CHECK(report["norms"]["r"].get<double>() == doctest::Approx(alone["norms"]["r"].get<double>()).epsilon(1e-4));
        CHECK(report["norms"]["x"].get<double>() == doctest::Approx(alone["norms"]["x"].get<double>()).epsilon(1e-4));
        for (const json& row : damping["table"]) {
            if (row["damp"] == damping["damp"]) CHECK(row["r"].get<double>() == doctest::Approx(alone["norms"]["r"].get<double>()).epsilon(1e-4));
        }
    }
    const json free = json::parse(run({kTomography, "--damp", "auto:gcv", "--json", "-"}).out);
    CHECK(free["damping"]["damp"].get<double>() > 0);
    CHECK(free["damping"]["table"].size() == 40);
    CHECK(json::parse(run({kTomography, "--damp-range", "0.1:1:3", "--json", "-"}).out)["damping"]["rule"] == "gcv");
    CHECK(json::parse(run({kTomography, "--json", "-"}).out)["damping"].is_null());
    const auto refused = [&](const std::vector<std::string>& more, const char* words) {
        const Run result = run(with({kTomography}, more));
        CAPTURE(result.err);
        CHECK(result.code == 64);
        CHECK(result.says(words));
    };
    refused({"--damp", "auto"}, "must be a number, auto:gcv");
    refused({"--damp", "auto:discrepancy:0"}, "must be above 0");
    refused({"--damp-range", "1:10"}, "must be LO:HI:N");
    refused({"--damp-range", "10:1:3"}, "HI no smaller");
    refused({"--damp-range", "1:10:3", "--damp", "2"}, "leaves nothing to choose");
    refused({"--damp", "auto:gcv", "--scale", "cols"}, "in the metric of x");
    refused({"--damp", "auto:gcv", "--precondition", "cols"}, "in the metric of x");
    refused({"--damp", "auto:gcv", "--method", "cg"}, "knows no damping");
    refused({"--damp", "auto:lcurve", "--damp-range", "1:2:2"}, "at least 3 candidates");
    refused({"--damp", "auto:gcv", "--loss", "l1"}, "not for a --loss");
}

TEST_CASE("cli: kept vectors") {
    const std::vector<std::string> base{kTomography, "--atol", "1e-12", "--btol", "1e-12", "--conlim", "0", "--json", "-"};
    const auto iterations = [&](const std::vector<std::string>& more) {
        const Run result = run(with(base, more));
        CAPTURE(result.err);
        CHECK(result.code == 0);
        return json::parse(result.out)["iterations"].get<std::int64_t>();
    };
    const std::int64_t plain = iterations({"--max-iter", "100000"});
    const std::int64_t window = iterations({"--max-iter", "100000", "--reorthogonalize", "30"});
    const std::int64_t full = iterations({"--max-iter", "100000", "--reorthogonalize", "full"});
    CHECK(full <= 150);
    CHECK(full < plain);
    CHECK(window <= plain);
    CHECK(json::parse(run(with(base, {"--max-iter", "100", "--reorthogonalize", "full"})).out)["options"]["reorthogonalize"] == "full");
    CHECK(run({kTomography, "--reorthogonalize", "5", "--method", "cgls"}).code == 64);
    CHECK(run({kTomography, "--reorthogonalize", "5", "--precondition", "cols"}).code == 64);
    CHECK(run({kTomography, "--reorthogonalize", "-2"}).code == 64);
}

TEST_CASE("cli: incomplete Cholesky, and a preconditioner from a file") {
    const Folder folder;
    const auto solve = [&](const std::vector<std::string>& more) {
        const Run result = run(with({kTomography, "--damp", "0.3", "--atol", "1e-10", "--device", "cpu", "--json", "-", "-v"}, more));
        CAPTURE(result.err);
        CHECK(result.code == 0);
        return result;
    };
    const json plain = json::parse(solve({}).out);
    const auto same_x = [&](const Run& result) {
        const json report = json::parse(result.out);
        CHECK(report["norms"]["r_damped"].get<double>() == doctest::Approx(plain["norms"]["r_damped"].get<double>()).epsilon(1e-8));
        return report;
    };
    const Run complete = solve({"--precondition", "ic:0"});
    CHECK(complete.says("incomplete Cholesky of A^T A, entries below 0 dropped"));
    const json report = same_x(complete);
    CHECK(report["iterations"].get<std::int64_t>() <= 5);
    CHECK(report["options"]["precondition"] == "ic");
    CHECK(report["options"]["ic_drop"] == 0.0);
    same_x(solve({"--precondition", "ic:0.02"}));
    same_x(solve({"--precondition", "ic", "--ic-shift", "0.1"}));
    CHECK(solve({"--precondition", "ic", "--ic-shift", "0.1"}).says("level 0"));
    // K = 2 I changes no iterate.
    std::string k = "%%MatrixMarket matrix coordinate real general\n144 144 144\n";
    for (int j = 1; j <= 144; ++j) k += std::to_string(j) + " " + std::to_string(j) + " 2\n";
    const std::string file = folder.write("K.mtx", k);
    const json given = same_x(solve({"--precondition", "file:" + file}));
    CHECK(given["options"]["precondition"] == "file");
    CHECK(given["options"]["precondition_file"] == file);
    CHECK(std::abs(given["iterations"].get<std::int64_t>() - plain["iterations"].get<std::int64_t>()) <= 10);
    const Run wrong = run({kTomography, "--precondition", "file:" + folder.write("L.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1\n")});
    CHECK(wrong.code == 65);
    CHECK(wrong.says("K is 2 x 2, A is 150 x 144: 144 x 144 is needed"));
    CHECK(run({kTomography, "--precondition", "file:" + folder / "none.mtx"}).code == 66);
    CHECK(run({kTomography, "--precondition", "ic:2"}).code == 64);
    CHECK(run({kTomography, "--ic-shift", "1"}).code == 64);
    CHECK(run({kTomography, "--precondition", "ic", "--device", "cuda"}).code != 64);  // on a GPU too, where there is one
}

TEST_CASE("cli: the picture of the history") {
    const Folder folder;
    const std::string svg = folder / "it's.svg";
    // A gnuplot that writes down what it was told, and draws.
    fs::create_directory(folder / "bin");
    const std::string program = folder.write("bin/gnuplot", "#!/bin/sh\nprintf '%s' \"$2\" > \"$TOLD\"\nprintf '<svg/>' > \"$DRAWN\"\n");
    fs::permissions(program, fs::perms::owner_all);
    const std::string bin = folder / "bin", told = folder / "told", drawn = svg;
    const auto path = [&](const std::string& first, const std::string& draws) {
        return [=] {
            setenv("PATH", (first + ":/usr/bin:/bin").c_str(), 1);
            setenv("TOLD", told.c_str(), 1);
            setenv("DRAWN", draws.c_str(), 1);
        };
    };
    const Run result = run({kTomography, "--damp", "0.3", "--plot", svg, "--json", "-"}, {}, path(bin, drawn));
    CAPTURE(result.err);
    CHECK(result.code == 0);
    CHECK(json::parse(result.out)["plot"] == svg);
    const std::string commands = read_file(told);
    CHECK(commands.find("set terminal svg") == 0);
    CHECK(commands.find("it''s.svg'") != std::string::npos);
    CHECK(commands.find("it''s.csv'") != std::string::npos);
    CHECK(read_file(folder / "it's.csv").find("iteration,r_norm") == 0);
    const std::string history = folder / "h.csv";
    CHECK(run({kTomography, "--damp", "0.3", "--plot", svg, "--history", history}, {}, path(bin, drawn)).code == 0);
    CHECK(read_file(told).find("plot '" + history + "'") != std::string::npos);
    // It draws nothing, or is not there: x and the history are kept.
    const std::string other = folder / "other.svg", x = folder / "x.mtx";
    const Run nothing = run({kTomography, "--damp", "0.3", "--plot", other}, {}, path(bin, drawn));
    CHECK(nothing.code == 74);
    CHECK(nothing.says("gnuplot wrote nothing; the history is in "));
    const Run missing = run({kTomography, "--damp", "0.3", "--plot", other, "-o", x}, {}, [] { setenv("PATH", "/nonexistent", 1); });
    CHECK(missing.code == 74);
    CHECK(missing.says("other.svg: not drawn: gnuplot is not installed"));
    CHECK(missing.says("the history is in "));
    CHECK(fs::exists(folder / "other.csv"));
    CHECK(fs::exists(x));
    CHECK(run({kTomography, "--plot", "a.png"}).code == 64);
    CHECK(run({kTomography, "--plot", svg, "--history", "-"}).code == 64);
}
