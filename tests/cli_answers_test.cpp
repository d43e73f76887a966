// lsmr_solve about its answer: standard errors, precision.
#include "cli_support.hpp"

using namespace cli;

TEST_CASE("cli: standard errors") {
    const Folder folder;
    // A^T A = diag(2, 8), its inverse diag(1/2, 1/8).
    const std::string a = folder.write(
        "A.mtx", "%%MatrixMarket matrix coordinate real general\n4 2 4\n1 1 1\n2 1 1\n3 2 2\n4 2 2\n");
    const std::string b = folder.write("b.mtx", array_text(4, 1, {1, 3, 4, 8}));  // x = (2, 3), r = (-1, 1, -2, 2)
    const double sigma = std::sqrt(10.0 / 2);
    for (const std::string kind : {"exact", "exact:2,1", "hutchinson:4:7", "estimate"}) {
        const Run result = run(with({a, b, "--json", "-", "--atol", "1e-14", "--standard-errors", kind},
                                    kind == "estimate" ? std::vector<std::string>{"--method", "lsqr"} : std::vector<std::string>{}));
        CAPTURE(kind);
        CAPTURE(result.err);
        CHECK(result.code == 0);
        const json errors = json::parse(result.out)["standard_errors"];
        CHECK(errors["kind"] == kind.substr(0, kind.find(':')));
        CHECK(errors["complete"] == true);
        CHECK(errors["sigma"].get<double>() == doctest::Approx(sigma));
        const bool swapped = kind == "exact:2,1";
        CHECK(errors["columns"] == (swapped ? json{2, 1} : json{1, 2}));
        // Diagonal, so that random signs are exact too.
        CHECK(errors["values"][swapped ? 1 : 0].get<double>() == doctest::Approx(sigma * std::sqrt(0.5)));
        CHECK(errors["values"][swapped ? 0 : 1].get<double>() == doctest::Approx(sigma * std::sqrt(0.125)));
        CHECK(errors["x"][swapped ? 1 : 0].get<double>() == doctest::Approx(2));
        CHECK(result.says("standard errors"));
        CHECK(result.says("x_1 "));
        if (kind == "estimate") CHECK(errors["cond_frobenius"].get<double>() == doctest::Approx(std::sqrt(10.0 * 0.625)));
    }
    // Two columns of b: one (A^T A)^-1, two sigmas.
    const std::string two = folder.write("b2.mtx", array_text(4, 2, {1, 3, 4, 8, 2, 6, 8, 16}));
    const json columns = json::parse(run({a, two, "--json", "-", "--atol", "1e-14", "--standard-errors", "exact"}).out)["columns"];
    for (std::size_t j = 0; j < 2; ++j) {
        const double factor = j == 0 ? 1 : 2;
        CHECK(columns[j]["standard_errors"]["sigma"].get<double>() == doctest::Approx(factor * sigma));
        CHECK(columns[j]["standard_errors"]["values"][0].get<double>() == doctest::Approx(factor * sigma * std::sqrt(0.5)));
        CHECK(columns[j]["standard_errors"]["x"][0].get<double>() == doctest::Approx(factor * 2));
    }
    const auto refused = [&](const std::vector<std::string>& more, const char* words) {
        const Run result = run(with({a, b}, more));
        CAPTURE(result.err);
        CHECK(result.code == 64);
        CHECK(result.says(words));
    };
    refused({"--standard-errors", "estimate"}, "needs --method lsqr");
    refused({"--standard-errors", "exact:3"}, "there is no column 3, A has 2");
    refused({"--standard-errors", "exact:2-1"}, "must be at least 2");
    refused({"--standard-errors", "exact:"}, "not a whole number");
    refused({"--standard-errors", "hutchinson:1"}, "must be at least 2");
    refused({"--standard-errors", "half"}, "must be estimate, exact");
    refused({"--standard-errors", "exact", "--loss", "l1"}, "not of a --loss");
    refused({"--standard-errors", "exact", "--weights", folder.write("w.mtx", "1\n1\n0\n0\n")}, "more equations than unknowns; there are 2 and 2");
}

TEST_CASE("cli: mixed precision") {
    const Folder folder;
    const std::string a = LSMR_SAMPLES_PATH "/tomography.mtx";
    const std::vector<std::string> base{a, "--damp", "0.3", "--atol", "1e-12", "--btol", "1e-12", "--json", "-"};
    const Run mixed = run(with(base, {"--precision", "mixed", "--history", folder / "h.csv"}));
    CAPTURE(mixed.err);
    CHECK(mixed.code == 0);
    const json report = json::parse(mixed.out);
    CHECK(report["precision"] == "mixed");
    CHECK(report["norms"]["ar"].get<double>() <= 1e-12 * 41 * 2.2);
    CHECK(report["notes"][0].get<std::string>().find("solved in fp32 and corrected") == 0);
    CHECK(mixed.says("solved in fp32 and corrected"));
    CHECK_FALSE(mixed.says("nan"));  // what corrections do not know is a dash
    // Iterations are counted on; a correction has no ||r||.
    const std::string history = read_file(folder / "h.csv");
    CHECK(std::count(history.begin(), history.end(), '\n') == report["iterations"].get<std::int64_t>() + 1);
    CHECK(history.find(",,") != std::string::npos);
    const json fp32 = json::parse(run(with(base, {"--precision", "fp32"})).out);
    CHECK(fp32["norms"]["ar"].get<double>() > 10 * report["norms"]["ar"].get<double>());
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{"--method", "cg", "--damp", "0"}, {"--trust-radius", "1"}, {"--save-state", folder / "s"}}) {
        CHECK(run(with({a, "--precision", "mixed"}, more)).code == 64);
    }
}
