// Real problems with reference answers, and SciPy's lsmr beside ours.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "data/read.hpp"
#include "support/checks.hpp"
#include "support/devices.hpp"
#include "support/problems.hpp"

using namespace lsmr;
using namespace lsmr::test;
using nlohmann::json;

namespace {

const std::filesystem::path kShared = LSMR_SHARED_DATA;

json parsed(const std::filesystem::path& path) {
    std::ifstream file(path);
    REQUIRE(file.good());
    return json::parse(file);
}

// The file, or its .gz; empty where there is neither.
std::string found(const std::filesystem::path& folder, const std::string& name) {
    for (const char* suffix : {"", ".gz"}) {
        if (std::filesystem::exists(folder / (name + suffix))) return (folder / (name + suffix)).string();
    }
    return {};
}

struct Reference {
    std::string name;
    Matrix a;
    Vector b;
    json answer;
    Vector xref;  // the solution of least norm; empty: not given
    double cond = 0;
    double sigma_min = 0;  // the least that is not 0
    bool full_rank = false;
};

// f(reference) for every problem of reference.json; says so where they are absent.
void for_every_reference(const std::function<void(const Reference&)>& f) {
    if (!std::filesystem::exists(kShared / "reference.json")) {
        MESSAGE("skipped: no reference problems at " << kShared.string());
        return;
    }
    const json all = parsed(kShared / "reference.json");
    int count = 0;
    for (const auto& [key, answer] : all.items()) {
        if (key[0] == '_') continue;
        const auto matrix = answer["matrix"].get<std::string>();
        const auto rhs = answer["rhs"].get<std::string>();
        const std::string path = found(kShared / "files", matrix);
        REQUIRE(!path.empty());
        Reference problem;
        problem.name = key;
        problem.a = std::make_shared<const CsrMatrix>(read_matrix(path).matrix);
        problem.b = read_dense(found(kShared / "files", rhs)).values;
        problem.answer = answer;
        const std::string stem = matrix.substr(0, matrix.rfind(".mtx"));
        const std::string xref = rhs == stem + "_b.mtx" ? found(kShared / "files", stem + "_xref.mtx") : "";
        if (!xref.empty()) problem.xref = read_dense(xref).values;
        problem.cond = answer["cond_nonzero"];
        problem.sigma_min = answer["sigma_min_nonzero"];
        problem.full_rank = answer["rank"] == answer["cols"];
        REQUIRE(problem.a->nnz() == answer["nnz"]);
        f(problem);
        ++count;
    }
    CHECK(count >= 40);
}

// Above this the plain methods give no accurate x, and take very long.
constexpr double kHard = 1e6;

bool scipy_converged(const json& run) {
    const int istop = run["istop"];
    return istop == 1 || istop == 2 || istop == 4 || istop == 5;
}

// ||A'r|| / (||A||_F ||r||), or ||r|| / ||b|| where the run ended on that.
double quality(const Truth& t, bool compatible) {
    return compatible ? t.r_damped / t.b : t.ar / (t.stacked * t.r_damped);
}

SolveOptions reference_options(Method method, const Reference& problem) {
    SolveOptions options = with_method(method, 1e-10);
    options.conlim = 1e12;
    options.max_iterations = problem.cond < kHard ? 60000 : 3000;
    return options;
}

// x is as near to the reference as its gradient says: ||x - x*|| = ||(A'A + lambda^2)^-1 A'r|| <= ||A'r|| /
// sigma_min^2. The reference has rounding errors of its own, eps (cond ||x|| + cond^2 ||r|| / ||A||), and so has ours
// outside of the range of A'.
double distance_allowed(const Reference& problem, const Answer& answer, const Truth& t, double sigma_min) {
    const double sigma_max = problem.answer["sigma_max"];
    const double cond = sigma_max / sigma_min;
    const double reference = 16 * kEps64 * (cond * t.x + cond * cond * t.r_damped / sigma_max);
    const double drift = 8 * kEps64 * static_cast<double>(answer.result.iterations) * t.x;
    return error_bound(t, sigma_min) + reference + (problem.full_rank ? 0.0 : drift);
}

// ||r||^2 = ||r*||^2 + ||A (x - x*)||^2, and the last term is at most (||A'r|| / sigma_min)^2.
void check_residual(double r, double least, const Truth& t, double sigma_min) {
    CHECK(r >= least - 2 * residual_rounding(t));
    CHECK(r <= std::hypot(least, t.ar / sigma_min) + 2 * residual_rounding(t));
}

struct Ratios {
    double least = 1e300;
    double most = 0;
    std::string worst;
    int compared = 0;
    void add(const std::string& name, std::int64_t ours, std::int64_t theirs) {
        const double ratio = static_cast<double>(ours) / static_cast<double>(theirs);
        least = std::min(least, ratio);
        if (ratio > most) worst = name;
        most = std::max(most, ratio);
        ++compared;
    }
    std::string text() const {
        return fmt::format("iterations by SciPy's over {} problems: {:.2f} to {:.2f} ({})", compared, least, most,
                           worst);
    }
};

void compare_with_scipy(const std::string& name, const Answer& answer, const Truth& t, const json& scipy,
                        double norm_fro, Ratios& ratios) {
    REQUIRE(answer.result.converged());
    const bool compatible =
        answer.result.status == Status::compatible || answer.result.status == Status::compatible_eps;
    // Of its lsqr there are its own estimates only.
    const bool recomputed = scipy.contains("true_rnorm");
    const double r = scipy[recomputed ? "true_rnorm" : "r1norm"];
    const double ar = scipy[recomputed ? "true_normar" : "arnorm"];
    const double theirs = compatible ? r / t.b : ar / (norm_fro * r);
    CHECK(quality(t, compatible) <= std::max(3 * theirs, 3e-10));
    const std::int64_t itn = scipy["itn"];
    // SciPy's test uses an estimate of ||A|| that grows as it runs. Where that made it stop far from the tolerance (on
    // these problems up to 60 times too large), its count is no measure.
    if (!compatible && theirs > 10 * 1e-10) return;
    CHECK(std::abs(static_cast<double>(answer.result.iterations - itn)) <= 0.4 * static_cast<double>(itn) + 5);
    ratios.add(name, answer.result.iterations, itn);
}

void reference_problems(Method method) {
    Ratios ratios;
    for_every_reference([&](const Reference& problem) {
        const SolveOptions options = reference_options(method, problem);
        const Answer answer = solve(on_cpu(), problem.a, problem.b, options);
        const Truth t = truth(*problem.a, problem.b, answer.x);
        const json& scipy = problem.answer[method == Method::lsqr ? "lsqr" : "lsmr"];
        INFO(problem.name << ": " << answer.result.message << " after " << answer.result.iterations
                          << " iterations; SciPy istop " << scipy["istop"].dump() << ", itn " << scipy["itn"].dump());
        check_norms(answer.result, t);
        check_claim(answer.result, t, options, kEps64);
        if (problem.cond >= kHard) return;
        if (!answer.result.converged()) {
            CHECK(!(method != Method::cgls && scipy_converged(scipy)));
            return;
        }
        check_residual(t.r, problem.answer["r_norm"], t, problem.sigma_min);
        if (!problem.xref.empty()) {
            CHECK(distance(answer.x, problem.xref) <= distance_allowed(problem, answer, t, problem.sigma_min));
        }
        if (method != Method::cgls && scipy_converged(scipy)) {
            compare_with_scipy(problem.name, answer, t, scipy, problem.answer["norm_fro"], ratios);
        }
    });
    if (ratios.compared > 0) MESSAGE(ratios.text());
}

void damped_problems(Method method) {
    Ratios ratios;
    int count = 0;
    for_every_reference([&](const Reference& problem) {
        for (const json& expected : problem.answer["damped"]) {
            ++count;
            SolveOptions options = reference_options(method, problem);
            options.max_iterations = 60000;
            options.damp = expected["damp"];
            const Answer answer = solve(on_cpu(), problem.a, problem.b, options);
            const Truth t = truth(*problem.a, problem.b, answer.x, options.damp);
            INFO(problem.name << " with damping " << options.damp << ": " << answer.result.message << " after "
                              << answer.result.iterations << " iterations");
            CHECK(answer.result.converged());
            check_norms(answer.result, t);
            check_claim(answer.result, t, options, kEps64);
            // Of the stack, where it acts: the solution lies in the range of A'.
            const double sigma_min = std::hypot(problem.full_rank ? problem.sigma_min : 0.0, options.damp);
            check_residual(t.r_damped, expected["rbar_norm"], t, sigma_min);
            check_within(t.x, expected["x_norm"], distance_allowed(problem, answer, t, sigma_min), "||x||");
            const json& scipy = expected["lsmr"];
            if (method == Method::lsmr && scipy_converged(scipy)) {
                compare_with_scipy(problem.name, answer, t, scipy, t.stacked, ratios);
            }
        }
    });
    if (ratios.compared > 0) MESSAGE(ratios.text());
    CHECK((count == 0 || count >= 10));
}

}  // namespace

TEST_CASE("reference: LSMR on real problems") {
    reference_problems(Method::lsmr);
}
TEST_CASE("reference: LSQR on real problems") {
    reference_problems(Method::lsqr);
}
TEST_CASE("reference: CGLS on real problems") {
    reference_problems(Method::cgls);
}
TEST_CASE("reference: LSMR damped") {
    damped_problems(Method::lsmr);
}
TEST_CASE("reference: LSQR damped") {
    damped_problems(Method::lsqr);
}
TEST_CASE("reference: CGLS damped") {
    damped_problems(Method::cgls);
}

// Rank-deficient by 2. At zero tolerance SciPy's solvers hold the answer for 200 iterations, then walk into the null
// space until
// ||x|| is 1e12 times too large. Here the floor of the tolerances ends it in time.
TEST_CASE("reference: zero tolerance does not drift away") {
    const std::string matrix = found(kShared / "files", "insteval.mtx");
    if (matrix.empty()) {
        MESSAGE("skipped: no reference problems at " << kShared.string());
        return;
    }
    const json expected = parsed(kShared / "reference.json")["insteval/insteval_rhs.mtx"];
    const auto a = std::make_shared<const CsrMatrix>(read_matrix(matrix).matrix);
    const Vector b = read_dense(found(kShared / "files", "insteval_rhs.mtx")).values;
    const double sigma_min = expected["sigma_min_nonzero"];
    for (const Method method : kMethods) {
        const Answer answer = solve(on_cpu(), a, b, exactly(method, 100000));
        const Truth t = truth(*a, b, answer.x);
        CAPTURE(answer.result.message);
        CHECK(answer.result.status == Status::least_squares_eps);
        CHECK(answer.result.iterations < 600);
        const double drift = 8 * kEps64 * static_cast<double>(answer.result.iterations) * t.x;
        check_within(t.x, expected["x_norm"], error_bound(t, sigma_min) + drift, "||x||");
        check_residual(t.r, expected["r_norm"], t, sigma_min);
    }
}

TEST_CASE("reference: same iterations as SciPy") {
    const json fixture = parsed(std::filesystem::path(LSMR_SOURCE_DIR) / "tests/fixtures/scipy_history.json");
    int compared = 0;
    for (const json& expected : fixture["problems"]) {
        const auto matrix = expected["matrix"].get<std::string>();
        const std::filesystem::path folder =
            expected["folder"] == "samples" ? std::filesystem::path(LSMR_SAMPLES_PATH) : kShared / "files";
        if (!std::filesystem::exists(folder / matrix)) {
            MESSAGE("skipped: " << (folder / matrix).string() << " is absent");
            continue;
        }
        const auto a = std::make_shared<const CsrMatrix>(read_matrix((folder / matrix).string()).matrix);
        const Vector b = read_dense((folder / expected["rhs"].get<std::string>()).string()).values;
        CAPTURE(matrix);
        // Otherwise the fixture was made from another file; its script makes it again.
        REQUIRE(a->nnz() == expected["nnz"]);
        check_within(norm(b), expected["bnorm"], 1e-12 * norm(b), "||b||");
        const auto normr = expected["normr"].get<Vector>();
        const auto normar = expected["normar"].get<Vector>();
        Recorder recorder;
        const auto k_max = static_cast<std::int64_t>(normr.size());
        solve(on_cpu(), a, b, exactly(Method::lsmr, k_max, expected["damp"]), {}, &recorder);
        REQUIRE(recorder.all.size() == normr.size());
        for (std::size_t k = 0; k < normr.size(); ++k) {
            check_within(recorder.all[k].r_norm, normr[k], 1e-8 * normr[k], "||r||");
            check_within(recorder.all[k].ar_norm, normar[k], 1e-8 * normar[k], "||A'r||");
        }
        ++compared;
    }
    CHECK(compared >= 2);  // the samples come with the project
}
