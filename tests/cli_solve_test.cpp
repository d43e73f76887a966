// lsmr_solve as a user meets it: methods, stops, weights and regularisation, preconditioners, states.
#include "cli_support.hpp"
#include "plan_file.hpp"

using namespace cli;

TEST_CASE("cli: the method, and why auto took it") {
    const Folder folder;
    // Symmetric, diagonally dominant: (4 1; 1 3) x = (5, 4).
    const std::string spd =
        folder.write("S.mtx", "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 4\n2 1 1\n2 2 3\n");
    const std::string b = folder.write("b.mtx", "%%MatrixMarket matrix array real general\n2 1\n5\n4\n");
    const Run chosen = run({spd, b, "--method", "auto", "-v", "--btol", "1e-12", "--json", "-"});
    const json report = json::parse(chosen.out);
    CHECK(chosen.code == 0);
    CHECK(chosen.says("method  cg: A is symmetric"));
    CHECK(report["method"] == "cg");
    CHECK(report["options"]["method"] == "cg");
    CHECK(report["method_reason"].get<std::string>().starts_with("A is symmetric"));
    CHECK(report["status"]["name"] == "compatible");
    CHECK(report["norms"]["ar_estimated"].is_null());
    CHECK(report["norms"]["ar"].is_number());
    CHECK(report["norms"]["x"].get<double>() == doctest::Approx(std::sqrt(2.0)));
    CHECK_FALSE(chosen.says("nan"));
    const Run asked = run({spd, b, "--method", "lsqr", "-v", "--json", "-"});
    CHECK(json::parse(asked.out)["method"] == "lsqr");
    CHECK(json::parse(asked.out)["method_reason"].is_null());
    CHECK_FALSE(asked.says("method  "));
    // What CG cannot solve is said before the solve, or in it.
    const std::string skew =
        folder.write("G.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 4\n2 1 1\n2 2 3\n");
    const Run refused = run({skew, b, "--method", "cg"});
    CHECK(refused.code == 64);
    CHECK(refused.says("entry (2, 1) is 1, entry (1, 2) is 0"));
    const std::string indefinite =
        folder.write("I.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 -4\n2 2 3\n");
    const Run broken = run({indefinite, b, "--method", "cg", "--json", "-"});
    CHECK(broken.code == 3);
    CHECK(json::parse(broken.out)["status"]["name"] == "breakdown");
    CHECK(broken.says("not positive definite"));
    CHECK(broken.says("--method lsqr or lsmr"));
}

TEST_CASE("cli: a centre for each column of b") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b2.mtx", array_text(3, 2, {1, 2, 3, -3, 0, 4}));
    const std::string c = folder.write("c2.mtx", array_text(2, 2, {3, 7, -1, 5}));
    const auto x =
        parse_array(run({a, b, "--damp", "2", "--damp-center", c, "--atol", "1e-14", "--btol", "1e-14", "-o", "-"}).out)
            .values;
    REQUIRE(x.size() == 4);
    const std::vector<std::vector<double>> bs{{1, 2, 3}, {-3, 0, 4}}, cs{{3, 7}, {-1, 5}};
    for (std::size_t j = 0; j < 2; ++j) {
        const std::string bj = folder.write("bj.mtx", array_text(3, 1, bs[j]));
        const std::string cj = folder.write("cj.mtx", array_text(2, 1, cs[j]));
        const auto alone =
            parse_array(
                run({a, bj, "--damp", "2", "--damp-center", cj, "--atol", "1e-14", "--btol", "1e-14", "-o", "-"}).out)
                .values;
        CHECK(std::vector<double>(x.begin() + static_cast<std::ptrdiff_t>(2 * j),
                                  x.begin() + static_cast<std::ptrdiff_t>(2 * j + 2)) == alone);
    }
}

TEST_CASE("cli: weights, scaling and regularisation") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    const auto solve = [&](const std::vector<std::string>& more) {
        const Run result = run(with({a, b, "-o", "-", "--atol", "1e-14", "--btol", "1e-14"}, more));
        CAPTURE(result.err);
        CHECK(result.code == 0);
        return parse_array(result.out).values;
    };
    const auto close = [](const std::vector<double>& x, double x0, double x1) {
        REQUIRE(x.size() == 2);
        CHECK(x[0] == doctest::Approx(x0).epsilon(1e-9));
        CHECK(x[1] == doctest::Approx(x1).epsilon(1e-9));
    };
    // A^T A = [2 1; 1 2], A^T b = (4, 5), b = (1, 2, 3). Weights (0, 1, 4): x_2 = 2, x_1 + x_2 = 3.
    const std::string w = folder.write("w.mtx", "0\n1\n4\n");
    close(solve({"--weights", w}), 1, 2);
    // d = (0, 2): [2 1; 1 6] x = (4, 5).
    const std::string d = folder.write("d.mtx", "0\n2\n");
    close(solve({"--column-damp", d}), 19.0 / 11, 6.0 / 11);
    close(solve({"--column-damp", d, "--scale", "cols"}), 19.0 / 11, 6.0 / 11);
    // L = (1 -1), weight 3: [2 + 9, 1 - 9; 1 - 9, 2 + 9] x = (4, 5).
    const std::string l =
        folder.write("L.mtx", "%%MatrixMarket matrix coordinate real general\n1 2 2\n1 1 1\n1 2 -1\n");
    close(solve({"--regularise", l, "--regularise-weight", "3"}), (4 * 11 + 5 * 8) / 57.0, (5 * 11 + 4 * 8) / 57.0);
    // Around c = (5, 0): the right side gains 9 (5, -5).
    const std::string c = folder.write("c.mtx", "5\n0\n");
    close(solve({"--regularise", l, "--regularise-weight", "3", "--damp-center", c}), (49 * 11 - 40 * 8) / 57.0,
          (-40 * 11 + 49 * 8) / 57.0);

    const Run report =
        run({a, b, "--regularise", l, "--column-damp", d, "--weights", w, "--scale", "cols", "-v", "--json", "-"});
    CHECK(report.code == 0);
    const json options = json::parse(report.out)["options"];
    CHECK(options["regularise"] == l);
    CHECK(options["regularise_weight"] == 1.0);
    CHECK(options["column_damp"] == d);
    CHECK(options["weights"] == w);
    CHECK(options["scale"] == "cols");
    CHECK(report.says("L       " + l + ": 1 x 2, 2 entries, weight 1"));
    CHECK(report.says("columns scaled by powers of two"));
    CHECK(report.says("||r|| damped"));
    CHECK(report.says("scale cols"));
    CHECK(run({a, b, "--scale", "both"}).says("another x is the least-squares solution"));

    const Run wrong = run({a, b, "--weights", d});
    CHECK(wrong.code == 65);
    CHECK(wrong.says("the weights are 2 x 1, A is 3 x 2: one for each row is needed"));
    const Run negative = run({a, b, "--column-damp", folder.write("n.mtx", "1\n-1\n")});
    CHECK(negative.code == 65);
    CHECK(negative.says("entry 2 is -1"));
    const Run shape = run({a, b, "--regularise",
                           folder.write("L3.mtx", "%%MatrixMarket matrix coordinate real general\n1 3 1\n1 3 1\n")});
    CHECK(shape.code == 65);
    CHECK(shape.says("L is 1 x 3, A is 3 x 2: both need as many columns"));
    const std::string wide =
        folder.write("W.mtx", "%%MatrixMarket matrix coordinate real general\n1 2 2\n1 1 3\n1 2 4\n");
    const Run least = run({wide, "--rhs", "ones", "--json", "-"});
    CHECK(least.says("of all solutions, x is the one of least ||x||"));
    CHECK(json::parse(least.out)["notes"].size() == 1);
}

// Flags that say the same thing twice are refused, and the report has them as they were given.
TEST_CASE("cli: formats, kernels and plans") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::vector<std::string> base{a, "--rhs", "ones", "--device", "cpu"};
    const std::string plan = folder / "plan";
    const Run saved = run(with(base, {"--format", "sell", "--narrow", "none", "--save-plan", plan, "--json", "-"}));
    CAPTURE(saved.err);
    CHECK(saved.code == 0);
    const json options = json::parse(saved.out)["options"];
    CHECK(options["format"] == "sell");
    CHECK(options["spmv"] == "auto");
    CHECK(options["narrow"] == "none");
    CHECK(options["plan"].is_null());
    const Run replayed = run(with(base, {"--plan", plan, "--json", "-"}));
    CHECK(replayed.code == 0);
    CHECK(json::parse(replayed.out)["options"]["plan"] == plan);
    CHECK(json::parse(replayed.out)["operator"]["spmv_a"] == json::parse(saved.out)["operator"]["spmv_a"]);
    for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
             {"--plan", plan, "--format", "coo"}, {"--plan", plan, "--storage", "single"}, {"--plan", plan, "--spmv", "own"},
             {"--spmv", "stream-128x2048", "--format", "sell"}, {"--format", "sell", "--spmv", "stream-128x2048"}}) {
        const Run refused = run(with(base, more));
        CAPTURE(refused.err);
        CHECK(refused.code == 64);
        CHECK((refused.says("--plan says which kernels") || refused.says("both say how A is stored")));
    }
}

// A state that is gone on with may be written again, but nothing else in its place.
TEST_CASE("cli: outputs in the place of a state") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA), state = folder / "state";
    const std::vector<std::string> base{a, "--rhs", "ones", "--device", "cpu", "--atol", "0", "--btol", "0"};
    CHECK(run(with(base, {"--max-iter", "1", "--save-state", state})).code == 2);
    const std::string bytes = read_file(state);
    fs::create_symlink(state, folder / "link");
    for (const char* flag : {"-o", "--json", "--history"}) {
        for (const char* name : {"state", "link"}) {
            const Run refused = run(with(base, {"--resume", state, flag, folder / name}));
            CAPTURE(refused.err);
            CHECK(refused.code == 73);
            CHECK(read_file(state) == bytes);
        }
    }
    CHECK(run(with(base, {"--resume", state, "--save-state", state, "-o", folder / "x"})).code == 0);
    for (const char* flag : {"--resume", "--plan"}) {
        const Run unreadable = run(with(base, {flag, folder / "."}));
        CHECK(unreadable.code == 66);
        CHECK(unreadable.says("is a directory"));
    }
}

// Killed at any moment, without a word; gone on with until it is done: x to the bit, and the state file is never half.
TEST_CASE("cli: a solve that is killed again and again ends with the same x") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(3000));
    const std::vector<std::string> solve = {
        a,      "--rhs", "random:1",    "--atol",         "0", "--btol", "0",        "--conlim", "0",          "--damp",
        "1e-6", "--x0",  folder / "x0", "--stall-window", "0", "-q",     "--method", "lsmr",     "--max-iter", "12000"};
    std::vector<double> x0(3000);
    for (std::size_t j = 0; j < x0.size(); ++j) x0[j] = static_cast<double>(j % 17) - 8;
    folder.write("x0", array_text(3000, 1, x0));
    CHECK(run(with(solve, {"-o", folder / "whole"})).code == 2);
    const std::vector<double> whole = parse_array(read_file(folder / "whole")).values;

    std::mt19937 random(7);
    int kills = 0;
    int states = 0;
    Run last;
    for (int round = 0; round < 200; ++round) {
        std::vector<std::string> args = with(solve, {"-o", folder / "x", "--json", folder / "j", "--save-state",
                                                     folder / "s", "--checkpoint-every", "0.005"});
        if (fs::exists(folder / "s")) {
            args = with(args, {"--resume", folder / "s"});
            ++states;
        }
        Process process(args);
        if (kills < 12) {
            // The first states are waited for; then any moment.
            if (states == 0) REQUIRE(wait_until([&] { return fs::exists(folder / "s"); }));
            std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
            process.send(SIGKILL);
        }
        last = process.wait();
        if (last.code != 128 + SIGKILL) break;
        ++kills;
    }
    CAPTURE(last.err);
    CHECK(last.code == 2);  // the iteration limit
    CHECK(kills >= 3);
    CHECK(parse_array(read_file(folder / "x")).values == whole);
    const json report = json::parse(read_file(folder / "j"));
    CHECK(report["iterations"] == 12000);
    CHECK(report["state"]["resumed_after"].get<int>() > 0);
    CHECK(report["state"]["iteration"] == 12000);
    // No temporary file is left by the last, complete run; killed ones may leave theirs.
    CHECK(fs::exists(folder / "s"));
}

TEST_CASE("cli: a state keeps the storage of A that was asked for") {
    const Folder folder;
    const std::string a = std::string(LSMR_SAMPLES_PATH) + "/tomography.mtx";
    const std::vector<std::string> solve{a, "--device", "cpu", "--atol", "1e-10", "--btol", "1e-10", "--conlim", "0", "-q"};
    for (const char* storage : {"dual", "single", "one-pass", "tiles"}) {
        CAPTURE(storage);
        const std::string state = folder / storage;
        CHECK(run(with(solve, {"--storage", storage, "--max-iter", "5", "--save-state", state})).code == 2);
        const Run rest = run(with(solve, {"--resume", state, "-o", "-"}));
        CHECK(rest.code == 0);
        CHECK(rest.out == run(with(solve, {"--storage", storage, "-o", "-"})).out);
    }
    CHECK(run(with(solve, {"--resume", folder / "tiles", "--storage", "dual"})).says("the storage of A was tiles, now it is dual"));
}

TEST_CASE("cli: states are saved where a solve stops, and refused where they do not fit") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(400));
    const std::vector<std::string> solve = {a,        "--rhs", "random:1", "--atol", "1e-10",
                                            "--btol", "1e-10", "--conlim", "0"};
    const std::string state = folder / "s";
    const Run part = run(with(solve, {"--max-iter", "50", "--save-state", state}));
    CHECK(part.code == 2);
    CHECK(part.says("state           of iteration 50 in " + state + ": go on with --resume " + state));
    const Run rest =
        run(with(solve, {"--max-iter", "5000", "--resume", state, "-o", folder / "x", "--history", folder / "h"}));
    CHECK(rest.code == 0);
    CHECK(rest.says("resumed         after iteration 50 of " + state));
    const Run whole = run(with(solve, {"--max-iter", "5000", "-o", folder / "y"}));
    CHECK(whole.code == 0);
    CHECK(parse_array(read_file(folder / "x")).values == parse_array(read_file(folder / "y")).values);
    CHECK(read_file(folder / "h").find("seconds\n51,") != std::string::npos);  // the history goes on

    const auto refused = [&](const std::vector<std::string>& args, int code, const std::string& words) {
        const Run result = run(args);
        CAPTURE(result.err);
        CHECK(result.code == code);
        CHECK(result.says(words));
    };
    refused(with(solve, {"--resume", state, "--method", "cgls"}), 65, "the method was lsmr, now it is cgls");
    refused({a, "--rhs", "random:2", "--atol", "1e-10", "--btol", "1e-10", "--conlim", "0", "--resume", state}, 65,
            "another b");
    refused(with(solve, {"--resume", state, "--x0", folder / "y"}), 65, "another x0");
    refused(with(solve, {"--resume", folder / "none"}), 66, "cannot be read");
    refused(with(solve, {"--resume", a}), 65, "this is no saved state");
    std::string bytes = read_file(state);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    refused(with(solve, {"--resume", folder.write("flipped", bytes)}), 65, "damaged");
    refused(with(solve, {"--save-state", a}), 73, a);
    const std::string two = folder.write("b2.mtx", array_text(400, 2, std::vector<double>(800, 1.0)));
    refused({a, two, "--save-state", state}, 64, "for one column of b; this one has 2");
    // A state that cannot be written costs neither x nor the report.
    const Run full = run(with(solve, {"--max-iter", "50", "--save-state", "/dev/full", "-o", folder / "z"}));
    CHECK(full.code == 74);
    CHECK(parse_array(read_file(folder / "z")).rows == 400);
}

TEST_CASE("cli: SIGTERM leaves a state to go on with") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(kChainSize));
    Process process(with({a, "-o", folder / "x", "--save-state", folder / "s", "--history", folder / "h"}, kNeverDone));
    REQUIRE(wait_until([&] { return read_file(folder / "h").find("\n20,") != std::string::npos; }));
    process.send(SIGTERM);
    const Run result = process.wait();
    CHECK(result.code == 143);
    CHECK(result.says("--resume"));
    CHECK(run(with({a, "--resume", folder / "s", "--time-limit", "0.2", "-q"}, kNeverDone)).code == 2);
}

TEST_CASE("cli: preconditioners") {
    const Folder folder;
    // Columns 1 and 2 have the same rows and are nearly parallel; 3 stands alone.
    const std::string a = folder.write("A.mtx",
                                       "%%MatrixMarket matrix coordinate real general\n4 3 8\n1 1 1\n2 1 2\n3 1 3\n1 2 "
                                       "1.001\n2 2 2\n3 2 3\n3 3 100\n4 3 7\n");
    const auto solve = [&](const std::string& preconditioner) {
        return run({a, "--rhs", "ones", "--atol", "1e-12", "--btol", "1e-12", "--conlim", "0", "--precondition",
                    preconditioner, "-v", "--json", "-"});
    };
    const Run none = solve("none");
    const Run sketch = solve("sketch:5");
    CHECK(sketch.code == 0);
    CHECK(sketch.says("R of a sketch of 12 rows, seed 5"));
    CHECK(json::parse(sketch.out)["options"]["precondition"] == "sketch");
    CHECK(json::parse(sketch.out)["options"]["sketch_seed"] == 5);
    CHECK(json::parse(sketch.out)["norms"]["r"].get<double>() ==
          doctest::Approx(json::parse(none.out)["norms"]["r"].get<double>()).epsilon(1e-9));
    CHECK(run({folder.write("Z.mtx", "%%MatrixMarket matrix coordinate real general\n3 2 1\n1 1 1\n"), "--rhs", "ones",
               "--precondition", "sketch"})
              .says("singular to rounding"));
    for (const std::string preconditioner : {"cols", "blocks", "blocks:2"}) {
        const Run result = solve(preconditioner);
        CAPTURE(preconditioner);
        CAPTURE(result.err);
        const json report = json::parse(result.out);
        CHECK(result.code == 0);
        CHECK(report["options"]["precondition"] == preconditioner);
        CHECK(report["norms"]["r"].get<double>() ==
              doctest::Approx(json::parse(none.out)["norms"]["r"].get<double>()).epsilon(1e-9));
        CHECK(result.says(preconditioner == "cols" ? "3 blocks of A^T A, at most 1 columns each"
                                                   : "2 blocks of A^T A, at most 2 columns each"));
        CHECK(result.says(" preconditioned"));
    }
}

TEST_CASE("cli: other stops") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    const Run bound = run({a, b, "--trust-radius", "0.5", "--json", "-"});
    CHECK(bound.code == 2);
    CHECK(bound.says("the trust radius was reached"));
    CHECK(bound.says("raise --trust-radius"));
    const json report = json::parse(bound.out);
    CHECK(report["status"]["code"] == 14);
    CHECK(report["norms"]["dx"].get<double>() == doctest::Approx(0.5));
    CHECK(report["norms"]["start_ratio"].get<double>() > 0);
    CHECK(report["options"]["trust_radius"] == 0.5);
    CHECK(report["options"]["stall_window"] == 2000);
    const json gradient = json::parse(run({a, b, "--atol", "0", "--btol", "0", "--ar-bound", "3", "--json", "-"}).out);
    CHECK(gradient["status"]["name"] == "least_squares");
    CHECK(gradient["norms"]["ar"].get<double>() <= 6);
    CHECK(gradient["options"]["ar_bound"] == 3.0);
}

TEST_CASE("cli: kernels by name, and narrow forms, are refused where there is no GPU, and mistyped ones everywhere") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", array_text(3, 1, {1, 2, 3}));
    const Run mistyped = run({a, b, "--spmv", "stream-128"});
    CHECK(mistyped.code == 64);
    CHECK(mistyped.says("no such product kernel: 'stream-128'"));
    CHECK(mistyped.says("merge-TxC"));
    const Run elsewhere = run({a, b, "--device", "cpu", "--spmv", "stream-128x2048"});
    CHECK(elsewhere.code == 64);
    CHECK(elsewhere.says("the kernel stream-128x2048 needs a GPU"));
    // A format is a kernel too, and one that the CPU has.
    const Run in_format = run({a, b, "--device", "cpu", "--spmv", "bsr-2x2-columns", "-v"});
    CHECK(in_format.code == 0);
    CHECK(in_format.says("bsr-2x2-columns (OpenMP"));
    const Run rounded = run({a, b, "--device", "cpu", "--narrow", "fp32-values"});
    CHECK(rounded.code == 64);
    CHECK(rounded.says("need a GPU"));
    const Run persistent = run({a, b, "--device", "cpu", "--executor", "persistent"});
    CHECK(persistent.code == 64);
    CHECK(persistent.says("the persistent executor needs a GPU"));
    CHECK(run({a, b, "--executor", "fast"}).says("graph"));
    // Integers are exact in fp32, and taken so unless that is forbidden; x has the same bits.
    const Run narrow = run({a, b, "--device", "cpu", "-v", "-o", "-"});
    const Run wide = run({a, b, "--device", "cpu", "-v", "--narrow", "none", "-o", "-"});
    CHECK(narrow.says("values exact in fp32"));
    CHECK_FALSE(wide.says("values exact in fp32"));
    CHECK(parse_array(narrow.out).values == parse_array(wide.out).values);
    const Run saved = run({a, b, "--device", "cpu", "--save-plan", folder / "plan.json"});
    CHECK(saved.code == 64);
    CHECK(saved.says("a plan is of kernels on a GPU"));
}

TEST_CASE("cli: a format is forced by name, on the CPU too, and gives the same solution") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", array_text(3, 1, {1, 2, 3}));
    const auto csr = parse_array(run({a, b, "--device", "cpu", "-o", "-"}).out).values;
    for (const char* format : {"sell", "sell-32", "ell", "hyb", "hyb-q95", "coo", "bsr-2x2-columns", "bsr-3x3-columns+rowmajor", "bell-2x2", "dia", "dense"}) {
        CAPTURE(format);
        const Run forced = run({a, b, "--device", "cpu", "--format", format, "-v", "-o", "-"});
        REQUIRE(forced.code == 0);
        CHECK(forced.says(std::string(format) == "sell" ? "sell-32-1024 (OpenMP" : std::string(format) + " (OpenMP"));
        const auto values = parse_array(forced.out).values;
        REQUIRE(values.size() == csr.size());
        for (std::size_t i = 0; i < csr.size(); ++i) CHECK(values[i] == doctest::Approx(csr[i]).epsilon(1e-5));
    }
    CHECK(run({a, b, "--device", "cpu", "--format", "auto"}).code == 0);
    const Run wrong = run({a, b, "--format", "csr5"});
    CHECK(wrong.code == 64);
    CHECK(wrong.says("--format csr5"));
    CHECK(wrong.says("There are sell"));
    const Run narrow = run({a, b, "--device", "cpu", "--format", "ell+fp32"});
    CHECK(narrow.code == 64);
    CHECK(narrow.says("the kernel ell+fp32 needs a GPU"));
    const Run single = run({a, b, "--device", "cpu", "--format", "ell", "--storage", "single"});
    CHECK(single.code == 64);
    CHECK(single.says("storage single is refused"));
    // Written as a plan, and taken from it.
    const std::string plan = folder / "plan.json";
    CHECK(run({a, b, "--device", "cpu", "--format", "hyb", "--save-plan", plan}).code == 0);
    CHECK(run({a, b, "--device", "cpu", "--plan", plan, "-v"}).says("hyb (OpenMP"));
}
TEST_CASE("cli: an order of rows and columns changes no answer, and a state keeps it") {
    const Folder folder;
    const std::string a = std::string(LSMR_SAMPLES_PATH) + "/tomography.mtx";
    const std::vector<std::string> solve{a, "--device", "cpu", "--atol", "1e-10", "--btol", "1e-10", "--conlim", "0"};
    const auto x = [&](const std::vector<std::string>& flags) {
        const Run r = run(with(with(solve, flags), {"-q", "-o", "-"}));
        REQUIRE(r.code == 0);
        return parse_array(r.out).values;
    };
    const auto plain = x({"--reorder", "none"});
    CHECK(x({}) == plain);
    for (const char* order : {"length", "first", "median", "spectral"}) {
        const auto other = x({"--reorder", order});
        CHECK(other != plain);
        for (std::size_t j = 0; j < plain.size(); ++j) CHECK(other[j] == doctest::Approx(plain[j]).epsilon(1e-6));
    }
    const Run said = run(with(solve, {"--reorder", "spectral", "-v", "--json", folder / "r.json"}));
    CHECK(said.says("order   spectral: asked for"));
    CHECK(said.says("ms of the setup"));
    const json report = json::parse(read_file(folder / "r.json"));
    CHECK(report["options"]["reorder"] == "spectral");
    CHECK(report["operator"]["order"]["kind"] == "spectral");
    CHECK(report["operator"]["order"]["seconds"].get<double>() > 0);
    CHECK(run(with(solve, {"-v"})).says("order   none: on the CPU"));

    const std::string state = folder / "s";
    CHECK(run(with(solve, {"--reorder", "spectral", "--max-iter", "5", "--save-state", state, "-q"})).code == 2);
    CHECK(x({"--resume", state}) == x({"--reorder", "spectral"}));
    const Run refused = run(with(solve, {"--resume", state, "--reorder", "first"}));
    CHECK(refused.code == 65);
    CHECK(refused.says("the order of rows and columns was spectral"));
}

TEST_CASE("cli: of a state of the other kind of device nothing is taken over, so that the solve names the device") {
    lsmr::Checkpoint state;
    state.identity.settings = {{"the device", "CPU"}, {"the storage of A", "tiles"}, {"the product with A", "stream-128x2048 (some words)"}};
    const auto adopted = [&](lsmr::DeviceKind device) {
        lsmr::PrepareOptions options;
        options.device = device;
        lsmr::adopt_kernels(state, options);
        return options;
    };
    CHECK(adopted(lsmr::DeviceKind::cpu).storage == lsmr::StorageKind::tiles);
    CHECK(adopted(lsmr::DeviceKind::cpu).forward_kernel.has_value());
    CHECK(adopted(lsmr::DeviceKind::cuda).storage == lsmr::StorageKind::automatic);
    CHECK_FALSE(adopted(lsmr::DeviceKind::cuda).forward_kernel.has_value());
    state.identity.settings = {{"the device", "NVIDIA H200"}, {"the storage of A", "single"}, {"the executor", "persistent"}};
    CHECK(adopted(lsmr::DeviceKind::cuda).storage == lsmr::StorageKind::single);
    CHECK(adopted(lsmr::DeviceKind::cuda).executor == lsmr::ExecutorKind::persistent);
    CHECK(adopted(lsmr::DeviceKind::cpu).storage == lsmr::StorageKind::automatic);
    CHECK(adopted(lsmr::DeviceKind::cpu).executor == lsmr::ExecutorKind::automatic);
}

TEST_CASE("cli: an option that does not fit the matrix is wrong usage, also where only the solve sees it") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", array_text(3, 1, {1, 2, 3}));
    const Run refused = run({a, b, "--device", "cpu", "--precision", "fp32", "--scale", "cols", "--damp", "1e200"});
    CHECK(refused.code == 64);
    CHECK(refused.says("a damping of 1e+200 is beyond the range of fp32 beside the entries of A"));
}

TEST_CASE("cli: a plan of another matrix, precision or kernel is refused") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", array_text(3, 1, {1, 2, 3}));
    const json good{{"schema", "lsmr_plan/1"}, {"rows", 3}, {"cols", 2}, {"nnz", json::parse(run({a, b, "--json", "-"}).out)["matrix"]["nnz"]},
                    {"precision", "fp64"}, {"storage", "dual"}, {"kernel_a", "stream-128x2048"}, {"kernel_at", "rows-8"}};
    const auto with = [&](const char* member, const json& value) {
        json plan = good;
        if (value.is_null()) plan.erase(member);
        else plan[member] = value;
        return run({a, b, "--device", "cpu", "--plan", folder.write("plan.json", plan.dump())});
    };
    const auto refuses = [&](const Run& r, const char* words) {
        CAPTURE(words);
        CHECK(r.code == 65);
        CHECK(r.says(words));
    };
    refuses(run({a, b, "--plan", folder.write("text", "no json")}), "is not a plan");
    refuses(with("schema", "lsmr_solve/1"), "is not a plan");
    refuses(with("rows", 4), "the plan is of a matrix 4 x 2");
    refuses(with("nnz", "six"), "has no whole number \"nnz\"");
    refuses(with("precision", "fp32"), "the plan is for fp32");
    refuses(with("storage", "triple"), "expected dual, single or one-pass");
    refuses(with("executor", "fast"), "expected graph or persistent");
    refuses(with("order", "sorted"), "order \"sorted\": expected none, length, first, median or spectral");
    refuses(with("kernel_a", "stream"), "no such product kernel: 'stream'");
    refuses(with("kernel_at", nullptr), "has no text \"kernel_at\"");
    // A good one gets as far as the kernel, which needs a GPU.
    const Run far = with("cols", 2);
    CHECK(far.code == 64);
    CHECK(far.says("the kernel stream-128x2048 needs a GPU"));
    CHECK(run({a, b, "--plan", folder / "nowhere.json"}).code == 66);
}

TEST_CASE("cli: robust fits") {
    const Folder folder;
    const std::string a =
        folder.write("A.mtx", "%%MatrixMarket matrix coordinate real general\n5 1 5\n1 1 1\n2 1 1\n3 1 1\n4 1 1\n5 1 1\n");
    const std::string b = folder.write("b.mtx", array_text(5, 1, {1, 2, 3, 4, 1000}));
    const auto solve = [&](const std::vector<std::string>& more) {
        const Run result = run(with({a, b, "-o", "-", "--atol", "1e-10"}, more));
        CAPTURE(result.err);
        CHECK(result.code == 0);
        return parse_array(result.out).values.at(0);
    };
    CHECK(solve({}) == doctest::Approx(202));
    CHECK(solve({"--loss", "l2"}) == doctest::Approx(202));
    // Huber: the sum of psi is (1 - x) + (2 - x) + (3 - x) + (4 - x) + 2 = 0 while all four lie within 2 of x.
    CHECK(solve({"--loss", "huber:2"}) == doctest::Approx(3));
    CHECK(solve({"--loss", "l1"}) == doctest::Approx(3).epsilon(1e-2));
    // With damping 1 around 0: 10 - 4 x + 2 - x = 0 for T = 2, where 2.4 still lies within 2 of 1 and 4.
    CHECK(solve({"--loss", "huber:2", "--damp", "1"}) == doctest::Approx(2.4));
    // Weights (0, 1, 1, 1, 1): 9 - 3 x + 2 = 0.
    const std::string w = folder.write("w.mtx", "0\n1\n1\n1\n1\n");
    CHECK(solve({"--loss", "huber:2", "--weights", w}) == doctest::Approx(11.0 / 3));
    // Beyond T a row of tukey's does not count: 1 to 4 lie evenly around 2.5.
    CHECK(solve({"--loss", "tukey:20"}) == doctest::Approx(2.5));

    const Run fit = run({a, b, "--loss", "huber:2", "--method", "auto", "--json", "-"});
    const json report = json::parse(fit.out);
    CHECK(fit.code == 0);
    CHECK(report["options"]["loss"] == "huber:2");
    CHECK(report["options"]["max_outer"] == 500);
    CHECK(report["method"] == "lsmr");
    CHECK(report["status"]["name"] == "least_squares");
    CHECK(report["norms"]["ar"].is_null());
    CHECK(report["norms"]["r"].get<double>() == doctest::Approx(std::sqrt(4 + 1 + 0 + 1 + 997.0 * 997)));
    const json& robust = report["robust"];
    CHECK(robust["loss"] == "huber");
    CHECK(robust["threshold"] == 2.0);
    CHECK(robust["objective"].get<double>() == doctest::Approx(4 + 1 + 0 + 1 + 4.0 * 997 - 4));
    CHECK(robust["downweighted_rows"] == 1);
    CHECK(robust["gradient"].get<double>() <= robust["gradient_bound"].get<double>());
    CHECK(robust["outer_iterations"].get<int>() == static_cast<int>(robust["solves"].size()) + 1);  // after that of squares
    CHECK(robust["iterations"] == report["iterations"]);
    CHECK(fit.says("loss    huber, threshold 2, by reweighted solves, at most 500"));
    CHECK(fit.says("downweighted    1 of 5 rows"));
    CHECK(fit.says("the minimum of the huber loss is found"));
    CHECK(json::parse(run({a, b, "--json", "-"}).out)["robust"].is_null());

    // Columns one by one; a limit is said.
    const std::string b2 = folder.write("b2.mtx", array_text(5, 2, {1, 2, 3, 4, 1000, -1, -2, -3, -4, -1000}));
    const Run both = run({a, b2, "--loss", "huber:2", "--atol", "1e-10", "-o", folder / "x2", "--json", "-"});
    const auto x = parse_array(read_file(folder / "x2")).values;
    REQUIRE(x.size() == 2);
    CHECK(x[0] == -x[1]);
    CHECK(json::parse(both.out)["columns"][1]["robust"]["downweighted_rows"] == 1);
    const Run limited = run({a, b, "--loss", "huber:2", "--max-outer", "2", "--atol", "1e-12", "--json", "-"});
    CHECK(limited.code == 2);
    CHECK(json::parse(limited.out)["status"]["name"] == "iteration_limit");
    CHECK(limited.says("raise --max-outer"));
    const std::string far = folder.write("far.mtx", "1e6\n");
    const Run lost = run({a, b, "--loss", "tukey:2", "--x0", far});
    CHECK(lost.code == 3);
    CHECK(lost.says("leaves no row a weight"));

    const auto refused = [&](const std::vector<std::string>& more, const std::string& words) {
        const Run result = run(with({a, b}, more));
        CAPTURE(result.err);
        CHECK(result.code == 64);
        CHECK(result.says(words));
    };
    refused({"--loss", "hubert:2"}, "must be l2, l1, huber:T, cauchy:T or tukey:T");
    refused({"--loss", "huber"}, "needs its threshold");
    refused({"--loss", "huber:0"}, "must be above 0");
    refused({"--loss", "cauchy:-1"}, "must not be negative");
    refused({"--loss", "tukey:inf"}, "must be finite");
    refused({"--loss", "l1:3"}, "l1 has no threshold");
    refused({"--max-outer", "3"}, "needs a --loss");
    for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{{"--method", "cg"},
                                                                                       {"--scale", "rows"},
                                                                                       {"--trust-radius", "1"},
                                                                                       {"--ar-bound", "1"},
                                                                                       {"--save-state", "s"},
                                                                                       {"--resume", "s"},
                                                                                       {"--plan", "p"},
                                                                                       {"--save-plan", "p"},
                                                                                       {"--history", "h"},
                                                                                       {"--compare", "eigen"}}) {
        refused(with({"--loss", "l1"}, flags), flags[0]);
    }
}
