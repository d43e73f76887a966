// lsmr_solve as a user meets it: the built program is started, and its exit code, outputs and files are looked at.
#include "cli_support.hpp"

using namespace cli;

TEST_CASE("cli: wrong command lines are refused with words that help") {
    struct Case {
        std::vector<std::string> args;
        const char* words;
    };
    const std::vector<Case> cases{
        {{"--dmap", "3", "A"}, "unknown flag --dmap; did you mean --damp?"},
        {{"A", "--transposed"}, "did you mean --transpose?"},
        {{"A", "--maxiter", "3"}, "did you mean --max-iter?"},
        {{"A", "--frobnicate"}, "unknown flag --frobnicate"},
        {{"A", "--dam", "1"}, "unknown flag --dam"},  // no prefix stands for a flag,
        {{"A", "--a", "1"}, "unknown flag --a"},      // unique or not
        {{"A", "-z"}, "unknown flag -z"},
        {{"A", "--damp", "-1e-3"}, "--damp -1e-3: must not be negative"},
        {{"A", "--damp=-1"}, "--damp -1: must not be negative"},
        {{"A", "--damp", "abc"}, "--damp abc: not a number"},
        {{"A", "--damp", "1x"}, "not a number"},
        {{"A", "--damp", "1,5"}, "not a number"},
        {{"A", "--damp", "nan"}, "not a number"},
        {{"A", "--damp", "inf"}, "must be finite"},
        {{"A", "--damp"}, "--damp needs a value"},
        {{"A", "--damp="}, "--damp needs a value"},
        {{"A", "--atol", "-1e-6"}, "must not be negative"},
        {{"A", "--conlim", "-1"}, "must not be negative"},
        {{"A", "--max-iter", "-1"}, "must be at least 0"},
        {{"A", "--max-iter", "1.5"}, "not a whole number"},
        {{"A", "--max-iter", "99999999999999999999"}, "too large"},
        {{"A", "--time-limit", "-1"}, "must not be negative"},
        {{"A", "--threads", "0"}, "must be at least 1"},
        {{"A", "--log-every", "0"}, "must be at least 1"},
        {{"A", "--method", "minres"}, "must be one of auto, lsmr, lsqr, cgls, cg"},
        {{"A", "--method", "cg", "--damp", "1"}, "knows no damping"},
        {{"A", "--method", "cg", "--ar-bound", "1"}, "does not estimate"},
        {{"A", "--ar-relative", "1"}, "must be below 1"},
        {{"A", "--precondition", "ilu"}, "must be none, cols, blocks, blocks:N, ic, ic:DROP, sketch"},
        {{"A", "--precondition", "sketch:x"}, "the seed must be"},
        {{"A", "--precondition", "blocks:0"}, "must be at least 1"},
        {{"A", "--precondition", "blocks:33"}, "at most 32"},
        {{"A", "--precondition", "cols", "--method", "cg"}, "for --method lsmr, lsqr and cgls"},
        {{"A", "--precondition", "cols", "--trust-radius", "1"}, "does not grow steadily"},
        {{"A", "--checkpoint-every", "1"}, "--checkpoint-every needs --save-state"},
        {{"A", "--checkpoint-every", "0", "--save-state", "s"}, "must be above 0"},
        {{"A", "--resume", "-"}, "a state is a file"},
        {{"A", "--check", "--save-state", "s"}, "nothing to write"},
        {{"A", "--scale", "all"}, "must be one of none, cols, rows, both"},
        {{"A", "--reorder", "rcm"}, "must be one of auto, none, length, first, median, spectral"},
        {{"A", "--scale", "cols", "--trust-radius", "1"}, "does not grow steadily"},
        {{"A", "--regularise-weight", "2"}, "needs --regularise"},
        {{"A", "--method", "cg", "--weights", "w"}, "as it is"},
        {{"A", "--compare", "eigen", "--weights", "w"}, "only --damp"},
        {{"A", "--passes", "0"}, "must be at least 1"},
        {{"A", "--trust-radius", "-1"}, "must not be negative"},
        {{"A", "--damp-center", "c.mtx"}, "--damp-center FILE needs --damp, --column-damp or --regularise"},
        {{"-", "b", "--damp", "1", "--damp-center", "-"}, "only one of A, b, x0 and the other inputs"},
        {{"A", "--device", "gpu"}, "must be auto, cpu, cuda or cuda:N"},
        {{"A", "--device", "cuda:-1"}, "must be at least 0"},
        {{"A", "--precision", "fp16"}, "must be one of fp64, fp32, mixed"},
        {{"A", "--gpu-memory-limit", "3 bananas"}, "512MiB"},
        {{"A", "--gpu-memory-limit", "0"}, "at least one byte"},
        {{"A", "--rhs", "Ax:"}, "seed"},
        {{"A", "--rhs", "random:-1"}, "seed"},
        {{"A", "--deterministic=1"}, "--deterministic takes no value"},
        {{"A", "--damp", "1", "--damp", "2"}, "--damp is given 2 times"},
        {{"A", "--transpose", "--transpose"}, "--transpose is given 2 times"},
        {{"A", "b", "c"}, "unexpected argument c"},
        {{"A", "b", "--rhs", "ones"}, "b is given twice"},
        {{"-", "-"}, "only one of A, b, x0"},
        {{"A", "-", "--x0", "-"}, "only one of A, b, x0"},
        {{"A", "-o", "-", "--json", "-"}, "standard output"},
        {{"A", "-q", "-v"}, "-q and -v"},
        {{"A", "--allow-nonfinite"}, "--check only"},
        {{"A", "--check", "-o", "x"}, "--check does not solve"},
        {{"A", "--damp-center", "x0"}, "needs --x0"},
        {{"-q"}, "no matrix is given"},
        {{"--version", "A"}, "unexpected argument A"},
    };
    for (const Case& test : cases) {
        const Run result = run(test.args);
        CAPTURE(test.words);
        CAPTURE(result.err);
        CHECK(result.code == 64);
        CHECK(result.out.empty());
        CHECK(result.says(test.words));
        CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    }
}

TEST_CASE("cli: values may be negative exponents and adjacent or apart") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    const Run result = run({"--damp=1e-3", a, "--atol", "+1e-9", b, "--btol=0", "--json", "-", "--gpu-memory-limit",
                            "1.5GiB", "--time-limit", "inf", "--threads", "1"});
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    const json options = json::parse(result.out)["options"];
    CHECK(options["damp"] == 1e-3);
    CHECK(options["atol"] == 1e-9);
    CHECK(options["btol"] == 0.0);
    CHECK(options["threads"] == 1);
    CHECK(options["gpu_memory_limit_bytes"] == 1610612736);
    CHECK(options["time_limit_seconds"].is_null());
}

TEST_CASE("cli: no arguments at all print the help and end with 64") {
    const Run result = run({});
    CHECK(result.code == 64);
    CHECK(result.out.empty());
    CHECK(result.says("Usage: lsmr_solve"));
}

TEST_CASE("cli: help is short and names examples and exit codes") {
    const Run result = run({"--help"});
    CHECK(result.code == 0);
    CHECK(result.err.empty());
    CHECK(std::count(result.out.begin(), result.out.end(), '\n') <= 72);
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);
    for (const char* words :
         {"Examples:", "-o x.mtx", "Exit codes:", "[1e-06]", "[1e+08 in fp64, 1e+06 in fp32]", "143"}) {
        CAPTURE(words);
        CHECK(result.out.find(words) != std::string::npos);
    }
    CHECK(run({"-h"}).out == result.out);
}

TEST_CASE("cli: version and env describe the build") {
    const Run version = run({"--version"});
    CHECK(version.code == 0);
    CHECK(version.out.starts_with("lsmr_solve "));
    CHECK(std::count(version.out.begin(), version.out.end(), '\n') == 1);

    const Run env = run({"--env"});
    CHECK(env.code == 0);
    CHECK(env.out.find("compiler") != std::string::npos);
    CHECK(env.out.find("GPU") != std::string::npos);
    const json description = json::parse(run({"--env", "--json", "-"}).out);
    CHECK(description["schema"] == "lsmr_env/1");
    CHECK(description["cuda"]["built_in"].is_boolean());
    CHECK(description["cuda"]["usable"].get<bool>() == description["cuda"]["reason"].is_null());
}

TEST_CASE("cli: exit 0 when solved and x reads back exactly") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    const Run result = run({a, b, "-o", folder / "x.mtx", "--atol", "1e-14", "--btol", "1e-14"});
    CAPTURE(result.err);
    CHECK(result.code == 0);
    CHECK(result.out.empty());
    const Array x = parse_array(read_file(folder / "x.mtx"));
    REQUIRE(x.rows == 2);
    REQUIRE(x.cols == 1);
    CHECK(x.values[0] == doctest::Approx(1).epsilon(1e-12));
    CHECK(x.values[1] == doctest::Approx(2).epsilon(1e-12));

    // What was written is a start that solves the problem, and the same bytes come through standard output.
    const Run to_stdout = run({a, b, "-o", "-", "--atol", "1e-14", "--btol", "1e-14"});
    CHECK(parse_array(to_stdout.out).values == x.values);
    CHECK(to_stdout.out == read_file(folder / "x.mtx"));
    const Run again = run({a, b, "--x0", folder / "x.mtx", "--json", "-"});
    CHECK(again.code == 0);
    CHECK(json::parse(again.out)["iterations"] == 0);
}

TEST_CASE("cli: exit 2 at a limit and x is kept") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(50));
    for (const std::vector<std::string>& limit :
         {std::vector<std::string>{"--max-iter", "1"}, {"--max-iter", "0"}, {"--time-limit", "0"}}) {
        const Run result =
            run(with({a, "--rhs", "random:3", "-o", folder / "x.mtx", "--json", folder / "r.json"}, limit));
        CAPTURE(result.err);
        CHECK(result.code == 2);
        CHECK(parse_array(read_file(folder / "x.mtx")).rows == 50);
        const json report = json::parse(read_file(folder / "r.json"));
        CHECK(report["exit_code"] == 2);
        CHECK(report["status"]["converged"] == false);
        CHECK(report["status"]["code"] == (limit[0] == "--max-iter" ? 7 : 8));
        CHECK(report["iterations"].get<int>() <= 1);
        CHECK(result.says("next"));
    }
}

TEST_CASE("cli: exit 65 for bad data") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    const std::string bad = folder.write("bad.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n0 1 5\n");
    const Run malformed = run({bad, "--rhs", "ones", "--json", folder / "r.json"});
    CHECK(malformed.code == 65);
    CHECK(malformed.says("bad.mtx:3:1"));
    CHECK_FALSE(fs::exists(folder / "r.json"));

    const Run bad_b = run({a, folder.write("nan.mtx", "1\n2\nnan\n")});
    CHECK(bad_b.code == 65);
    CHECK(bad_b.says("nan.mtx:3"));
    CHECK(run({a, b, "--x0", folder.write("x0.mtx", "1\nnan\n")}).code == 65);
}

TEST_CASE("cli: lengths that do not fit name both and what would help") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    const std::string short_b = folder.write("short.mtx", array_text(2, 1, {1, 2}));
    const Run as_transposed = run({a, short_b});
    CHECK(as_transposed.code == 65);
    CHECK(as_transposed.says("b has 2 rows, A is 3 x 2"));
    CHECK(as_transposed.says("--transpose"));
    const Run needless = run({a, b, "--transpose"});
    CHECK(needless.code == 65);
    CHECK(needless.says("without --transpose"));
    CHECK(run({a, folder.write("row.mtx", array_text(1, 3, {1, 2, 3}))}).says("a column is needed"));
    const Run bad_x0 = run({a, b, "--x0", b});
    CHECK(bad_x0.code == 65);
    CHECK(bad_x0.says("x0 is 3 x 1"));
}

TEST_CASE("cli: exit 66 for inputs that cannot be read") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    CHECK(run({folder / "missing.mtx", "--rhs", "ones"}).code == 66);
    const Run alone = run({folder / "missing.mtx"});  // a missing A is the news, not the missing b
    CHECK(alone.code == 66);
    CHECK(alone.says("missing.mtx"));
    CHECK(run({a, folder / "missing_b.mtx"}).code == 66);
    for (const std::vector<std::string>& rhs : {std::vector<std::string>{"--rhs", "ones"}, {}}) {
        const Run is_folder = run(with({folder / "."}, rhs));
        CHECK(is_folder.code == 66);
        CHECK(is_folder.says("is a directory"));
    }
}

TEST_CASE("cli: exit 69 for a GPU that is not there") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    if (gpu_is_usable()) {
        CHECK(run({a, "--rhs", "ones", "--device", "cuda:1000"}).code == 69);
        return;
    }
    const Run result = run({a, "--rhs", "ones", "--device", "cuda"});
    CHECK(result.code == 69);
    CHECK(result.says("error: "));
    CHECK(run({a, "--rhs", "ones", "--device", "auto"}).code == 0);
}

#if !defined(__SANITIZE_ADDRESS__)  // which keeps much more memory itself

TEST_CASE("cli: exit 71 without enough memory") {
    const Folder folder;
    // The offsets of its rows alone take 480 MB; the limit leaves room for the libraries of a CUDA build.
    const std::string a = folder.write("A.mtx", "%%MatrixMarket matrix coordinate real general\n60000000 1 1\n1 1 5\n");
    const Run result = run({a, "--rhs", "ones"}, {}, [] {
        const rlimit limit{rlim_t{400} << 20, rlim_t{400} << 20};
        setrlimit(RLIMIT_DATA, &limit);
    });
    CAPTURE(result.err);
    CHECK(result.code == 71);
    CHECK(result.says("out of memory"));
}
#endif

TEST_CASE("cli: exit 73 before the solve for outputs that cannot be made") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    for (const char* flag : {"-o", "--json", "--history"}) {
        for (const std::string& path : {folder / "no/such/folder", folder / "."}) {
            const Run result = run({a, b, flag, path});
            CAPTURE(result.err);
            CHECK(result.code == 73);
            CHECK_FALSE(result.says("itn"));
        }
        for (const std::string& input :
             {a, b, folder / "../" + fs::path(a).parent_path().filename().string() + "/A.mtx"}) {
            const Run result = run({a, b, flag, input});
            CAPTURE(result.err);
            CHECK(result.code == 73);
        }
        CHECK(run({a, b, "--x0", folder.write("x0.mtx", "1\n2\n"), flag, folder / "x0.mtx"}).code == 73);
    }
    CHECK(read_file(a) == kSmallA);
    CHECK(read_file(b) == kSmallB);
    // Known before a long reading: the matrix is not even opened.
    CHECK(run({folder / "missing.mtx", b, "-o", folder / "no/x"}).code == 73);
    CHECK(folder.names() == "A.mtx b.mtx x0.mtx");
}

TEST_CASE("cli: two outputs to one file are refused") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    CHECK(run({a, "--rhs", "ones", "-o", folder / "y", "--json", folder / "y"}).code == 64);
    CHECK(run({a, "--rhs", "ones", "-o", folder / "y", "--history", folder / "./y"}).code == 64);
    CHECK(run({a, "--rhs", "ones", "-o", "/dev/null", "--json", "/dev/null"}).code == 0);
    folder.write("old", "");
    fs::create_symlink(folder / "old", folder / "link");
    CHECK(run({a, "--rhs", "ones", "-o", folder / "old", "--json", folder / "link"}).code == 64);
}

TEST_CASE("cli: exit 74 when an output cannot be written") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    for (const char* flag : {"-o", "--json", "--history"}) {
        const Run result = run({a, "--rhs", "ones", flag, "/dev/full"});
        CAPTURE(result.err);
        CHECK(result.code == 74);
        CHECK(result.says("/dev/full"));
    }
    const auto full_stdout = [] { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); };
    CHECK(run({a, "--rhs", "ones", "-o", "-"}, {}, full_stdout).code == 74);
    CHECK(run({a, "--rhs", "ones", "--json", "-"}, {}, full_stdout).code == 74);
    CHECK(run({"--help"}, {}, full_stdout).code == 74);

    // A history that fails costs neither x nor the report.
    const Run result = run({a, "--rhs", "ones", "--history", "/dev/full", "-o", folder / "x", "--json", folder / "j"});
    CHECK(result.code == 74);
    CHECK(parse_array(read_file(folder / "x")).rows == 2);
    CHECK(json::parse(read_file(folder / "j"))["exit_code"] == 74);

    // Nor does an x that fails cost the report, which then names no file of x.
    const Run lost = run({a, "--rhs", "ones", "-o", "/dev/full", "--json", folder / "j2"});
    CHECK(lost.code == 74);
    CHECK(lost.says("solved "));
    CHECK(lost.says("x               not written"));
    CHECK_FALSE(lost.says("written to"));
    const json report = json::parse(read_file(folder / "j2"));
    CHECK(report["exit_code"] == 74);
    CHECK(report["output"].is_null());
    CHECK(report["status"]["converged"] == true);

    // A file size limit is an error of write(), not a signal that kills.
    const std::string chain = folder.write("chain.mtx", long_chain(2000));
    const Run limited = run({chain, "--rhs", "ones", "--max-iter", "3", "-o", folder / "big"}, {}, [] {
        const rlimit limit{1024, 1024};
        setrlimit(RLIMIT_FSIZE, &limit);
        close(STDERR_FILENO);
    });
    CHECK(limited.code == 74);
    CHECK(folder.names() == "A.mtx chain.mtx j j2 x");
}

TEST_CASE("cli: closed standard descriptors mix nothing up") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const auto close_all = [] {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
    };
    CHECK(
        run({a, "--rhs", "ones", "-o", folder / "x", "--json", folder / "j", "--history", folder / "h"}, {}, close_all)
            .code == 0);
    CHECK(parse_array(read_file(folder / "x")).rows == 2);
    CHECK(json::parse(read_file(folder / "j"))["exit_code"] == 0);
    CHECK(read_file(folder / "h").starts_with("iteration,"));
    CHECK(run({a, "--rhs", "ones", "-o", "-"}, {}, close_all).code == 74);
    CHECK(run({"-", "--rhs", "ones"}, {}, close_all).code == 66);
}

TEST_CASE("cli: quiet says nothing and very quiet not even errors") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const Run quiet = run({a, "--rhs", "ones", "-q", "--progress", "always"});
    CHECK(quiet.code == 0);
    CHECK(quiet.out.size() + quiet.err.size() == 0);
    CHECK_FALSE(run({a, "--rhs", "missing", "-q"}).err.empty());
    for (const std::vector<std::string>& args :
         std::vector<std::vector<std::string>>{{a, "--rhs", "ones", "-qq"},
                                               {a, "--rhs", "missing", "-q", "-q"},
                                               {a, "--dmap", "-qq"},
                                               {"-qq"},
                                               {a, "--rhs", "ones", "-qq", "--max-iter", "0"},
                                               {a, "--rhs", "ones", "-qq", "-o", "/dev/full"}}) {
        const Run silent = run(args);
        CHECK(silent.out.size() + silent.err.size() == 0);
    }
    CHECK(run({a, "--dmap", "-qq"}).code == 64);
    const Run data = run({a, "--rhs", "ones", "-q", "-o", "-"});
    CHECK(parse_array(data.out).rows == 2);
    CHECK(data.err.empty());
    CHECK(run({a, "--rhs", "ones", "-v"}).says("plan"));
}

TEST_CASE("cli: the log has a header and columns and says how x can be kept") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(60));
    const Run result = run({a, "--rhs", "random:5"});
    for (const char* words : {"60 x 60, 178 entries", "uniform in [-1, 1) from seed 5", "lsmr, damp 0, atol 1e-06",
                              "itn", "cond(A)", "recomputed", "add -o x.mtx", "0 duplicates", "0 empty rows"}) {
        CAPTURE(words);
        CAPTURE(result.err);
        CHECK(result.says(words));
    }
    const auto printed = [&](const std::vector<std::string>& more) {
        std::vector<int> iterations;
        std::istringstream lines(run(with({a, "--rhs", "random:5", "--max-iter", "25", "--atol", "0"}, more)).err);
        for (std::string line; std::getline(lines, line);) {
            if (line.size() > 90 && line.ends_with("s")) iterations.push_back(std::stoi(line));
        }
        return iterations;
    };
    CHECK(printed({}) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 25});
    CHECK(printed({"--log-every", "7"}) == std::vector<int>{7, 14, 21, 25});
}

TEST_CASE("cli: progress is for terminals unless it is asked for") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(20000));
    const std::vector<std::string> args{a,          "--rhs", "random:5",     "--atol", "0",          "--btol", "0",
                                        "--conlim", "0",     "--time-limit", "1",      "--max-iter", "1000000"};
    CHECK_FALSE(run(args).says("\r"));
    const Run always = run(with(args, {"--progress", "always"}));
    CHECK(always.says("\ritn "));
    CHECK(always.says(" left"));
    CHECK_FALSE(run(with(args, {"--progress", "never"})).says("\r"));
}

TEST_CASE("cli: b is found beside A and announced") {
    const Folder folder;
    const std::string a = folder.write("small.mtx", kSmallA);
    const Run none = run({a});
    CHECK(none.code == 64);
    CHECK(none.says("small.mtx"));
    CHECK(none.says("--rhs"));
    folder.write("small_rhs.mtx", kSmallB);
    CHECK(run({a}).says("small_rhs.mtx (found beside A)"));
    folder.write("small_b.mtx", kSmallB);
    const Run both = run({a});
    CHECK(both.code == 0);
    CHECK(both.says("small_b.mtx (found beside A; not taken: small_rhs.mtx)"));
}

TEST_CASE("cli: right-hand sides are made from a seed the same way every time") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(30));
    const auto b_norm = [&](const std::string& rhs) {
        return json::parse(run({a, "--rhs", rhs, "--json", "-"}).out)["norms"]["b"].get<double>();
    };
    CHECK(b_norm("ones") == doctest::Approx(std::sqrt(30.0)));
    CHECK(b_norm("random:1") == b_norm("random:1"));
    CHECK(b_norm("random:1") != b_norm("random:2"));
    const Run made = run({a, "--rhs", "Ax:7", "--json", "-", "--atol", "1e-13", "--btol", "1e-13"});
    CHECK(made.code == 0);
    CHECK(made.says("xtrue uniform in [-1, 1) from seed 7"));
    CHECK(json::parse(made.out)["rhs"]["x_true_relative_error"].get<double>() < 1e-8);
}

TEST_CASE("cli: standard input can be A or b or x0") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    CHECK(run({"-", b}, kSmallA).code == 0);
    CHECK(run({a, "-"}, kSmallB).code == 0);
    CHECK(run({a, b, "--x0", "-"}, "1\n2\n").code == 0);
    const Run no_b = run({"-"}, kSmallA);
    CHECK(no_b.code == 64);
    CHECK(no_b.says("standard input"));
    CHECK(run({"-", b}).code == 65);  // empty
}

TEST_CASE("cli: the json report is complete") {
    const Folder folder;
    const std::string a =
        folder.write("A.mtx", "%%MatrixMarket matrix coordinate real general\n4 3 4\n1 1 1\n1 1 2\n2 2 4\n3 2 1\n");
    const Run result = run({a, "--rhs", "ones", "--json", "-", "--method", "cgls"});
    CAPTURE(result.err);
    CHECK(result.code == 0);
    const json report = json::parse(result.out);
    CHECK(report["schema"] == "lsmr_solve/1");
    for (const char* member : {"code", "name", "converged", "message"}) CHECK(report["status"].contains(member));
    CHECK(report["exit_code"] == 0);
    CHECK(report["method"] == "cgls");
    CHECK(report["precision"] == "fp64");
    CHECK(report["device"]["kind"].is_string());
    CHECK(report["device"]["name"].is_string());
    for (const char* member :
         {"b", "r", "r_damped", "ar", "r_estimated", "ar_estimated", "a_frobenius", "cond_estimate", "x", "dx"}) {
        CAPTURE(member);
        CHECK(report["norms"].contains(member));
    }
    CHECK(report["norms"]["cond_estimate"].is_null());
    CHECK(report["norms"]["b"] == 2.0);
    CHECK(report["matrix"] == json{{"path", a},
                                   {"rows", 4},
                                   {"cols", 3},
                                   {"nnz", 3},
                                   {"duplicates_summed", 1},
                                   {"empty_rows", 1},
                                   {"empty_cols", 1}});
    CHECK(report["options"]["conlim"] == 1e8);
    CHECK(report["options"]["max_iterations"] == 200);
    CHECK(report["options"]["threads"].get<int>() >= 1);
    for (const char* member : {"storage", "spmv_a", "spmv_at", "bytes"}) CHECK(report["operator"].contains(member));
    for (const char* member : {"read", "setup", "solve", "audit", "write"}) {
        CHECK(report["timing_seconds"][member].get<double>() >= 0);
    }
    double phases = 0;
    for (const char* phase : {"check", "preconditioner", "context", "upload", "transpose", "order", "choice", "one_pass", "buffers", "executor", "release"}) {
        CAPTURE(phase);
        phases += report["timing_seconds"]["setup_phases"][phase].get<double>();
    }
    CHECK(phases > 0);
    CHECK(phases <= report["timing_seconds"]["setup"].get<double>());
    for (const char* member : {"pool_peak_bytes", "pool_reserved_bytes"}) CHECK(report["memory"].contains(member));
    CHECK(report["environment"]["version"].is_string());
    CHECK(report["warnings"].is_array());
    CHECK_FALSE(report.contains("compare"));
    CHECK_FALSE(report.contains("columns"));
}

TEST_CASE("cli: the history has a row for every iteration and every column of b") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(40));
    const std::string header = "iteration,r_norm,ar_norm,a_norm,cond,x_norm,compat,ls,seconds";
    for (const std::string method : {"lsmr", "lsqr", "cgls"}) {
        const Run result =
            run({a, "--rhs", "random:1", "--method", method, "--history", folder / "h.csv", "--json", "-"});
        std::istringstream lines(read_file(folder / "h.csv"));
        std::string line;
        std::getline(lines, line);
        CHECK(line == header);
        int rows = 0;
        int wrong = 0;
        while (std::getline(lines, line)) {
            std::vector<std::string> cells;
            std::istringstream row(line);
            for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
            const bool right =
                cells.size() == 9 && cells[0] == std::to_string(++rows) && cells[4].empty() == (method == "cgls");
            if (!right) ++wrong;
        }
        CHECK(wrong == 0);
        CHECK(rows == json::parse(result.out)["iterations"]);
    }
    std::vector<double> two(80, 1.0);
    two[3] = -7;
    const Run result =
        run({a, folder.write("b2.mtx", array_text(40, 2, two)), "--history", folder / "h.csv", "--json", "-"});
    const json columns = json::parse(result.out)["columns"];
    const std::string text = read_file(folder / "h.csv");
    CHECK(std::count(text.begin(), text.end(), '\n') ==
          1 + columns[0]["iterations"].get<int>() + columns[1]["iterations"].get<int>());
    CHECK(text.find("\n1,") != text.rfind("\n1,"));
}

TEST_CASE("cli: several columns of b are solved one after another") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", array_text(3, 2, {1, 2, 3, -2, 4, 2}));
    const Run result =
        run({a, b, "-o", folder / "x.mtx", "--json", folder / "j", "--atol", "1e-14", "--btol", "1e-14"});
    CAPTURE(result.err);
    CHECK(result.code == 0);
    const Array x = parse_array(read_file(folder / "x.mtx"));
    REQUIRE(x.rows == 2);
    REQUIRE(x.cols == 2);
    const std::vector<double> expected{1, 2, -2, 4};
    for (std::size_t i = 0; i < 4; ++i) CHECK(x.values[i] == doctest::Approx(expected[i]).epsilon(1e-10));
    const json report = json::parse(read_file(folder / "j"));
    REQUIRE(report["columns"].size() == 2);
    CHECK(report["columns"][1]["norms"]["b"].get<double>() == doctest::Approx(std::sqrt(24.0)));

    // The worst column decides. A zero column is solved at once; the other one cannot be within one iteration.
    const std::string chain = folder.write("chain.mtx", long_chain(30));
    std::vector<double> zero_and_not(60, 0.0);
    for (std::size_t i = 30; i < 60; ++i) zero_and_not[i] = static_cast<double>(i % 7);
    const Run limited =
        run({chain, folder.write("b3.mtx", array_text(30, 2, zero_and_not)), "--max-iter", "1", "--json", "-"});
    CHECK(limited.code == 2);
    const json worst = json::parse(limited.out);
    CHECK(worst["status"]["code"] == 7);
    CHECK(worst["columns"][0]["status"]["code"] == 0);

    // One start for all, or one for each.
    CHECK(run({a, b, "--x0", folder.write("one.txt", "1\n2\n")}).code == 0);
    const Run exact = run({a, b, "--x0", folder / "x.mtx", "--json", "-"});
    for (const json& column : json::parse(exact.out)["columns"]) CHECK(column["iterations"] == 0);
    CHECK(run({a, b, "--x0", folder.write("three.mtx", array_text(2, 3, {1, 2, 3, 4, 5, 6}))}).code == 65);
}

TEST_CASE("cli: transpose solves with the transposed matrix") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string at =
        folder.write("At.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 4\n1 1 1\n2 2 1\n1 3 1\n2 3 1\n");
    const std::string b = folder.write("b.mtx", array_text(2, 1, {3, 5}));
    const Run flag = run({a, b, "--transpose", "-o", "-"});
    const Run file = run({at, b, "-o", "-"});
    CHECK(flag.code == 0);
    CHECK(parse_array(flag.out).values == parse_array(file.out).values);
    CHECK(flag.says("2 x 3"));

    const std::string twice =
        folder.write("twice.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 3\n1 1 1\n1 1 1\n2 2 1\n");
    const json matrix = json::parse(run({twice, "--check", "--transpose", "--json", "-"}).out)["matrix"];
    CHECK(matrix["rows"] == 3);
    CHECK(matrix["duplicates_summed"] == 1);
    CHECK(matrix["empty_rows"] == 1);
    CHECK(matrix["empty_cols"] == 0);
}

TEST_CASE("cli: damping pulls towards its centre") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    const std::string b = folder.write("b.mtx", kSmallB);
    const std::string x0 = folder.write("x0.mtx", "10\n-10\n");
    const auto solve = [&](const std::vector<std::string>& more) {
        return parse_array(run(with({a, b, "-o", "-", "--atol", "1e-14", "--btol", "1e-14"}, more)).out).values;
    };
    // (A^T A + L^2 I) x = A^T b + L^2 c with A^T A = [2 1; 1 2], A^T b = (4, 5).
    const auto expected = [](double damp, double c0, double c1) {
        const double d = 2 + damp * damp;
        const double g0 = 4 + damp * damp * c0;
        const double g1 = 5 + damp * damp * c1;
        return std::vector<double>{(d * g0 - g1) / (d * d - 1), (d * g1 - g0) / (d * d - 1)};
    };
    const auto close = [](const std::vector<double>& x, const std::vector<double>& y) {
        REQUIRE(x.size() == y.size());
        for (std::size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(y[i]).epsilon(1e-9));
    };
    close(solve({"--damp", "2"}), expected(2, 0, 0));
    close(solve({"--damp", "2", "--x0", x0}), expected(2, 0, 0));
    close(solve({"--damp", "2", "--x0", x0, "--damp-center", "x0"}), expected(2, 10, -10));
    close(solve({"--damp", "2", "--x0", x0, "--damp-center", "x0", "--method", "cgls"}), expected(2, 10, -10));
    // A centre of its own, with and without a start.
    const std::string c = folder.write("c.mtx", "3\n7\n");
    close(solve({"--damp", "2", "--damp-center", c}), expected(2, 3, 7));
    close(solve({"--damp", "2", "--x0", x0, "--damp-center", c}), expected(2, 3, 7));
    close(solve({"--damp", "2", "--x0", x0, "--damp-center", c, "--method", "lsqr"}), expected(2, 3, 7));
    const Run report = run({a, b, "--damp", "2", "--damp-center", c, "--json", "-"});
    CHECK(json::parse(report.out)["options"]["damp_center"] == c);
    CHECK(report.says("damp 2 around " + c));
    const Run wrong = run({a, b, "--damp", "2", "--damp-center", folder.write("long.mtx", "1\n2\n3\n")});
    CHECK(wrong.code == 65);
    CHECK(wrong.says("the centre is 3 x 1"));
    CHECK(run({a, b, "--damp", "2", "--damp-center", c, "-o", c}).says("c.mtx"));  // an output may not be an input
}

TEST_CASE("cli: check describes the matrix without a solve") {
    const Folder folder;
    const std::string a =
        folder.write("A.mtx", "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 -2\n2 1 0.5\n2 1 0.25\n");
    const Run result = run({a, "--check", "--json", "-"});
    CAPTURE(result.err);
    CHECK(result.code == 0);
    const json report = json::parse(result.out);
    CHECK(report["schema"] == "lsmr_solve/1");
    CHECK(report["status"].is_null());
    CHECK(report["iterations"].is_null());
    CHECK(report["matrix"]["nnz"] == 3);
    CHECK(report["matrix"]["empty_rows"] == 1);
    CHECK(report["values"]["min"] == -2.0);
    CHECK(report["values"]["max"] == 0.75);
    CHECK(report["values"]["sum"] == -0.5);
    CHECK(report["values"]["nonfinite"] == 0);
    CHECK(report["timing_seconds"]["read"].get<double>() >= 0);
    CHECK(report["timing_seconds"]["solve"].is_null());

    const std::string bad =
        folder.write("bad.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 nan\n2 2 5\n");
    CHECK(run({bad, "--check"}).code == 65);
    const Run counted = run({bad, "--check", "--allow-nonfinite", "--json", "-"});
    CHECK(counted.code == 0);
    CHECK(json::parse(counted.out)["values"]["nonfinite"] == 1);
    CHECK(run({a, folder.write("b.mtx", "1\n"), "--check"}).code == 65);  // a b that is given is checked as well
}

TEST_CASE("cli: signals stop the solve and x and the reports are kept") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(kChainSize));
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        const std::string history = folder / "h.csv";
        fs::remove(history);
        Process process(with({a, "-o", folder / "x.mtx", "--json", folder / "j", "--history", history}, kNeverDone));
        REQUIRE(wait_until([&] { return has_history_rows(history, 3); }));
        process.send(number);
        process.send(number);  // as timeout(1) does: child, then group
        REQUIRE(process.ends_within(20));
        const Run result = process.wait();
        CAPTURE(result.err);
        CHECK(result.code == 128 + number);
        const json report = json::parse(read_file(folder / "j"));
        CHECK(report["status"]["code"] == 9);
        CHECK(report["exit_code"] == 128 + number);
        const Array x = parse_array(read_file(folder / "x.mtx"));
        CHECK(x.rows == kChainSize);
        CHECK(std::any_of(x.values.begin(), x.values.end(), [](double value) { return value != 0; }));
        const std::string text = read_file(history);
        CHECK(text.ends_with("\n"));
        CHECK(folder.names() == "A.mtx h.csv j x.mtx");
    }
}

TEST_CASE("cli: a signal ends the other columns of b too") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(kChainSize));
    std::vector<double> values(3 * static_cast<std::size_t>(kChainSize));
    std::mt19937 random(1);
    for (double& value : values) value = static_cast<double>(random() % 1000);
    const std::string b = folder.write("b.mtx", array_text(kChainSize, 3, values));
    Process process({a, b, "--atol", "0", "--btol", "0", "--conlim", "0", "--max-iter", "1000000000", "-o",
                     folder / "x", "--json", folder / "j", "--history", folder / "h"});
    REQUIRE(wait_until([&] { return has_history_rows(folder / "h", 2); }));
    process.send(SIGINT);
    REQUIRE(process.ends_within(20));
    CHECK(process.wait().code == 130);
    CHECK(parse_array(read_file(folder / "x")).cols == 3);
    const json report = json::parse(read_file(folder / "j"));
    REQUIRE(report["columns"].size() == 3);
    CHECK(report["columns"][2]["iterations"] == 0);
    CHECK(report["columns"][2]["norms"]["r"].is_null());
}

TEST_CASE("cli: a second signal ends the process at once") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(kChainSize));
    REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);  // nobody reads it: writing x waits for ever
    Process process(with({a, "-o", folder / "pipe", "--history", folder / "h"}, kNeverDone));
    REQUIRE(wait_until([&] { return has_history_rows(folder / "h", 2); }));
    process.send(SIGINT);
    CHECK_FALSE(process.ends_within(0.7));
    process.send(SIGTERM);
    CHECK(process.ends_within(5));
    CHECK(process.wait().code == 143);
}

TEST_CASE("cli: a signal while reading ends the process and leaves nothing behind") {
    const Folder folder;
    REQUIRE(mkfifo((folder / "A").c_str(), 0600) == 0);
    Process process({folder / "A", "--rhs", "ones", "-o", folder / "x", "--json", folder / "j"});
    CHECK_FALSE(process.ends_within(0.3));
    process.send(SIGINT);
    CHECK(process.ends_within(5));
    CHECK(process.wait().code == 130);
    CHECK(folder.names() == "A");
}

TEST_CASE("cli: output to a pipe and from one that nobody reads") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", kSmallA);
    REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
    std::string received;
    std::thread reader([&] { received = read_file(folder / "pipe"); });
    const Run result = run({a, "--rhs", "ones", "-o", folder / "pipe"});
    reader.join();
    CHECK(result.code == 0);
    CHECK(parse_array(received).rows == 2);
    CHECK(fs::is_fifo(folder / "pipe"));

    const auto broken = [](int descriptor) {
        return [descriptor] {
            int ends[2];
            if (pipe(ends) != 0) _exit(126);
            dup2(ends[1], descriptor);
            close(ends[0]);
            close(ends[1]);
        };
    };
    for (const char* flag : {"-o", "--json"}) {
        const Run gone = run({a, "--rhs", "ones", "-q", flag, "-"}, {}, broken(STDOUT_FILENO));
        CHECK(gone.code == 141);
        CHECK(gone.err.empty());
    }
    // Nobody listening to the log is no reason to lose the solve.
    CHECK(run({a, "--rhs", "ones", "-o", folder / "x", "--progress", "always"}, {}, broken(STDERR_FILENO)).code == 0);
    CHECK(parse_array(read_file(folder / "x")).rows == 2);
}

TEST_CASE("cli: the locale changes no byte") {
    const Folder folder;
    const std::string a = folder.write("A.mtx", long_chain(20));
    const std::vector<std::string> args{a, "--rhs", "random:9", "-o", "-", "--threads", "1"};
    const Run plain = run(args);
    for (const char* locale : {"de_DE.UTF-8", "C.UTF-8", "nonsense"}) {
        const Run other = run(args, {}, [locale] { setenv("LC_ALL", locale, 1); });
        CHECK(other.code == plain.code);
        CHECK(other.out == plain.out);
    }
}

TEST_CASE("cli: eigen is compared on equal terms") {
    const Folder folder;
    std::mt19937 random(7);
    std::ostringstream text;
    text << "%%MatrixMarket matrix coordinate real general\n60 20 240\n";
    for (int i = 0; i < 240; ++i)
        text << i % 60 + 1 << " " << random() % 20 + 1 << " " << static_cast<double>(random() % 1000) / 500 - 1 << "\n";
    const std::string a = folder.write("A.mtx", text.str());
    const std::string x0 = folder.write("x0.mtx", array_text(20, 1, std::vector<double>(20, 0.5)));
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{},
                                               {"--damp", "0.3"},
                                               {"--damp", "0.3", "--x0", x0, "--damp-center", "x0"},
                                               {"--damp", "0.3", "--x0", x0}}) {
        const Run result = run(with(
            {a, "--rhs", "random:4", "--atol", "1e-11", "--btol", "1e-11", "--compare", "eigen", "--json", "-"}, more));
        CAPTURE(result.err);
        CHECK(result.code == 0);
        CHECK(result.says("Eigen LSCG, diagonal"));
        const json compare = json::parse(result.out)["compare"];
        CHECK(compare["stacked"] == !more.empty());
        CHECK(compare["threads"].get<int>() >= 1);
        CHECK(compare["tolerance"].get<double>() > 0);
        REQUIRE(compare["rows"].size() == 3);
        for (const json& row : compare["rows"]) {
            CAPTURE(row.dump());
            CHECK(row["x_relative_difference"].get<double>() < 1e-7);
            CHECK(row["iterations"].get<int>() > 0);
            CHECK(row["seconds"]["solve"].get<double>() >= 0);
            CHECK(row["r"].get<double>() == doctest::Approx(compare["rows"][0]["r"].get<double>()).epsilon(1e-6));
        }
    }
    CHECK_FALSE(json::parse(run({a, "--rhs", "ones", "--json", "-"}).out).contains("compare"));
}

TEST_CASE("cli: the samples that come with the project are solved") {
    int solved = 0;
    for (const auto& entry : fs::directory_iterator(LSMR_SAMPLES_PATH)) {
        const std::string path = entry.path().string();
        if (!path.ends_with(".mtx") || !fs::exists(path.substr(0, path.size() - 4) + "_b.mtx")) continue;
        const Run result = run({path});
        CAPTURE(path);
        CAPTURE(result.err);
        CHECK(result.code == 0);
        ++solved;
    }
    CHECK(solved > 0);
}
