// Robust fits by reweighting, on the CPU, against answers found in another way.
#include "solver/robust.hpp"

#include <doctest/doctest.h>
#include <omp.h>

#include <filesystem>
#include <functional>

#include "data/read.hpp"
#include "memory/error.hpp"
#include "support/checks.hpp"
#include "support/dense_oracle.hpp"
#include "support/devices.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

RobustOptions loss_of(Loss loss, double threshold = 0) {
    RobustOptions robust;
    robust.loss = loss;
    robust.threshold = threshold;
    return robust;
}
SolveOptions to(double atol) {
    SolveOptions options;
    options.atol = atol;
    return options;
}

RobustResult solve_robust(const Matrix& a, const Vector& b, Vector& x, const PrepareOptions& prepare, const SolveOptions& options,
                          const RobustOptions& robust, bool use_x0 = false, Observer* observer = nullptr) {
    PreparedProblem problem(a, prepare);
    return lsmr::solve_robust(problem, b, x, options, robust, use_x0, observer);
}

struct Fit {
    RobustResult result;
    Vector x;
};
Fit fit(const Matrix& a, const Vector& b, const SolveOptions& options, const RobustOptions& robust,
        const PrepareOptions& prepare = on_cpu(), const Vector& x0 = {}) {
    Fit f;
    f.x = x0.empty() ? Vector(index(a->cols()), 0.0) : x0;
    f.result = solve_robust(a, b, f.x, prepare, options, robust, !x0.empty());
    INFO(std::string(name(robust.loss)) << ": " << f.result.result.message);
    CHECK(f.result.converged());
    return f;
}

Matrix ones(std::int64_t rows) {
    Triplets t{rows, 1, {}, {}, {}};
    for (std::int64_t i = 0; i < rows; ++i) t.add(i, 0, 1);
    return t.matrix();
}

// Written from the definitions, apart from the library.
double rho(Loss loss, double t, double r) {
    const double s = std::abs(r);
    switch (loss) {
        case Loss::l2: return r * r;
        case Loss::huber: return s <= t ? s * s : 2 * t * s - t * t;
        case Loss::l1: return s <= t ? s * s / (2 * t) + t / 2 : s;
        case Loss::cauchy: return t * t * std::log(1 + s * s / (t * t));
        case Loss::tukey: return s <= t ? t * t / 3 * (1 - std::pow(1 - s * s / (t * t), 3)) : t * t / 3;
    }
    return 0;
}
double objective(const Matrix& a, const Vector& b, const Vector& x, Loss loss, double t, double damp, const Vector& w) {
    const Vector ax = product(*a, x);
    double sum = 0;
    for (std::size_t i = 0; i < b.size(); ++i) sum += (w.empty() ? 1 : w[i]) * rho(loss, t, b[i] - ax[i]);
    for (const double xj : x) sum += damp * damp * xj * xj;
    return sum;
}

double golden_section(const std::function<double(double)>& f, double low, double high) {
    const double part = (std::sqrt(5.0) - 1) / 2;
    while (high - low > 1e-9) {
        const double p = high - part * (high - low), q = low + part * (high - low);
        if (f(p) < f(q)) high = q;
        else low = p;
    }
    return (low + high) / 2;
}

constexpr Loss kLosses[] = {Loss::l2, Loss::huber, Loss::l1, Loss::cauchy, Loss::tukey};

}  // namespace

TEST_CASE("robust: the l1 fit of a constant is the median") {
    Vector b = scaled(random_vector(31, 11), 5);
    b[3] = 1e6;
    b[4] = 2e6;
    Vector sorted = b;
    std::sort(sorted.begin(), sorted.end());
    RobustOptions robust = loss_of(Loss::l1);
    robust.l1_floor = 1e-9;  // of the mean of |b|, which the outliers raise to 1e5
    const Fit odd = fit(ones(31), b, to(1e-6), robust);
    CHECK(odd.x[0] == doctest::Approx(sorted[15]).epsilon(1e-3));
    double least = 0;
    for (const double value : b) least += std::abs(value - sorted[15]);
    CHECK(odd.result.objective == doctest::Approx(least).epsilon(1e-6));
    // Of an even number, any point between the two in the middle.
    b.push_back(0.5 * (sorted[15] + sorted[16]) + 4);
    std::sort(b.begin(), b.end());
    const Fit even = fit(ones(32), b, to(1e-6), robust);
    CHECK(even.x[0] >= b[15] - 1e-3);
    CHECK(even.x[0] <= b[16] + 1e-3);
    // Weights count rows several times: 0 three times outweighs 1 and 7.
    const Vector w{3, 1, 1};
    PrepareOptions weighted = on_cpu();
    weighted.weights = w;
    CHECK(std::abs(fit(ones(3), {0, 1, 7}, to(1e-6), loss_of(Loss::l1), weighted).x[0]) <= 1e-4);
}

// Rows that end at r = 0, as many as there are columns: without Newton's weights the first takes 159 solves and stops short, well1033 and
// illc1033 do not end in 500. The least sums of |r| are those of SciPy's HiGHS (1.17.1); f of the rounding adds at most f / 2 for a row.
TEST_CASE("robust: l1 meets as many rows as there are columns") {
    struct Case {
        std::string folder, matrix, rhs;
        double tolerance, least;
        Preconditioner preconditioner;
        std::int64_t most;
    };
    const std::string samples = LSMR_SAMPLES_PATH, files = std::string(LSMR_SHARED_DATA) + "/files";
    for (const Case& c : {Case{samples, "levelling.mtx", "levelling_b.mtx", 1e-8, 90.825527354, Preconditioner::none, 60},
                          Case{files, "well1033.mtx", "well1033_b.mtx", 1e-6, 3.93651758517, Preconditioner::none, 250},
                          Case{files, "illc1033.mtx", "illc1033_b.mtx", 1e-6, 5.87510335119, Preconditioner::sketch, 250}}) {
        if (!std::filesystem::exists(c.folder + "/" + c.matrix)) {
            MESSAGE("skipped: " << c.folder << "/" << c.matrix << " is absent");
            continue;
        }
        const auto a = std::make_shared<const CsrMatrix>(read_matrix(c.folder + "/" + c.matrix).matrix);
        const Vector b = read_dense(c.folder + "/" + c.rhs).values;
        CAPTURE(c.matrix);
        PrepareOptions prepare = on_cpu();
        prepare.preconditioner = c.preconditioner;
        RobustOptions robust = loss_of(Loss::l1);
        robust.max_outer = c.most;
        const Fit found = fit(a, b, to(c.tolerance), robust, prepare);
        Vector r = product(*a, found.x);
        double sum = 0, mean = 0;
        for (std::size_t i = 0; i < r.size(); ++i) {
            sum += std::abs(b[i] - r[i]);
            mean += std::abs(b[i]) / static_cast<double>(b.size());
        }
        CHECK(sum >= c.least * (1 - 1e-9));
        // The gradient that is left moves the sum by less than the rounding does.
        CHECK(sum <= c.least + 2 * static_cast<double>(a->cols()) * robust.l1_floor * mean);
    }
}

TEST_CASE("robust: the Huber mean, weighted and damped, against golden section") {
    Vector b = random_vector(40, 21);
    for (std::size_t i = 0; i < 8; ++i) b[i] = 50 + static_cast<double>(i);
    const Matrix a = ones(40);
    Vector w = random_vector(40, 22);
    for (double& value : w) value = std::abs(value) + 0.1;
    for (const double damp : {0.0, 2.0}) {
        for (const bool weighs : {false, true}) {
            PrepareOptions prepare = on_cpu();
            if (weighs) prepare.weights = w;
            SolveOptions options = to(1e-10);
            options.damp = damp;
            const Fit f = fit(a, b, options, loss_of(Loss::huber, 0.4), prepare);
            const Vector used = weighs ? w : Vector();
            const double best =
                golden_section([&](double x) { return objective(a, b, {x}, Loss::huber, 0.4, damp, used); }, -60, 60);
            CHECK(f.x[0] == doctest::Approx(best).epsilon(1e-6));
            CHECK(f.result.objective == doctest::Approx(objective(a, b, f.x, Loss::huber, 0.4, damp, used)).epsilon(1e-12));
            // |r| > 2 t: weight below 1/2.
            std::int64_t far = 0;
            for (const double value : b) far += std::abs(value - f.x[0]) > 0.8 ? 1 : 0;
            CHECK(far >= 8);
            CHECK(f.result.downweighted == far);
        }
    }
}

// Exact data but for noise of 0.01, and every fifth row far off, to one side.
TEST_CASE("robust: gross outliers") {
    const Matrix a = random_sparse(300, 20, 5, 31);
    const Vector truth_x = random_vector(20, 32);
    Vector b = product(*a, truth_x);
    const Vector noise = random_vector(300, 33);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] += i % 5 == 0 ? 30 + 100 * std::abs(noise[i]) : 0.01 * noise[i];
    const double size = norm(truth_x);
    CHECK(distance(fit(a, b, to(1e-8), loss_of(Loss::l2)).x, truth_x) > size);
    const Fit l1 = fit(a, b, to(1e-6), loss_of(Loss::l1));
    CHECK(distance(l1.x, truth_x) < 0.01 * size);
    CHECK(l1.result.outer_iterations <= 45);  // 32; 67 where steps are not stretched
    CHECK(distance(fit(a, b, to(1e-8), loss_of(Loss::huber, 0.02)).x, truth_x) < 0.02 * size);
    for (const Loss loss : {Loss::cauchy, Loss::tukey}) {
        const Fit f = fit(a, b, to(1e-8), loss_of(loss, 0.05));
        CHECK(distance(f.x, truth_x) < 0.01 * size);
        CHECK(f.result.downweighted == 60);
    }
    // A preconditioner is that of the weighted rows: the way there is another, x is the same.
    const Vector plain = fit(a, b, to(1e-9), loss_of(Loss::huber, 0.02)).x;
    for (const Preconditioner preconditioner : {Preconditioner::columns, Preconditioner::blocks, Preconditioner::sketch}) {
        PrepareOptions prepare = on_cpu();
        prepare.preconditioner = preconditioner;
        CHECK(distance(fit(a, b, to(1e-9), loss_of(Loss::huber, 0.02), prepare).x, plain) < 1e-6 * size);
    }
    // The rows that count decide: tukey's x is the least-squares fit of the others, weighted as it says.
    const Fit tukey = fit(a, b, to(1e-12), loss_of(Loss::tukey, 0.05));
    Vector w(b.size());
    const Vector ax = product(*a, tukey.x);
    for (std::size_t i = 0; i < b.size(); ++i) {
        const double u = std::pow((b[i] - ax[i]) / 0.05, 2);
        w[i] = u < 1 ? 1 - u : 0;  // the root of the weight
    }
    Vector rhs = b;
    for (std::size_t i = 0; i < b.size(); ++i) rhs[i] *= w[i];
    const Matrix weighted = with_values(*a, [&](std::int64_t i, std::int64_t, double value) { return value * w[index(i)]; });
    CHECK(distance(dense_solution(*weighted, rhs).x, tukey.x) < 1e-8 * size);
}

// Every loss, method and form: the objective is as defined, its derivative by differences vanishes at x, each step lowers it.
TEST_CASE("robust: x is stationary") {
    const Matrix a = random_sparse(120, 12, 4, 41);
    Vector b = scaled(random_vector(120, 42), 3);
    for (std::size_t i = 0; i < b.size(); i += 10) b[i] += 40;
    Vector w = random_vector(120, 43);
    for (double& value : w) value = value > -0.9 ? std::abs(value) : 0.0;
    for (const Loss loss : kLosses) {
        for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
            for (const bool shaped : {false, true}) {
                CAPTURE(std::string(name(loss)));
                RobustOptions robust = loss_of(loss, 2);
                robust.max_outer = 1000;
                robust.l1_floor = 0.1;  // a floor so high that differences see through it
                double mean = 0;
                for (const double value : b) mean += std::abs(value) / 120;
                const double t = loss == Loss::l1 ? 0.1 * mean : 2;
                PrepareOptions prepare = on_cpu();
                SolveOptions options = to(1e-9);
                options.method = method;
                if (shaped) {
                    prepare.weights = w;
                    prepare.scale = Scaling::columns;
                    options.damp = 0.7;
                }
                const Fit f = fit(a, b, options, robust, prepare);
                const Vector used = shaped ? w : Vector();
                const double at_x = objective(a, b, f.x, loss, t, options.damp, used);
                CHECK(f.result.objective == doctest::Approx(at_x).epsilon(1e-12));
                double gradient = 0;
                for (std::size_t j = 0; j < f.x.size(); ++j) {
                    const double h = 1e-5;
                    Vector up = f.x, down = f.x;
                    up[j] += h;
                    down[j] -= h;
                    const double above = objective(a, b, up, loss, t, options.damp, used);
                    const double below = objective(a, b, down, loss, t, options.damp, used);
                    gradient = std::hypot(gradient, (above - below) / (2 * h));
                }
                CHECK(gradient <= 1e-6 * at_x);
                CHECK(f.result.gradient <= f.result.gradient_bound);
                double before = std::numeric_limits<double>::infinity();
                std::int64_t iterations = 0;
                for (const OuterRecord& record : f.result.history) {
                    CHECK(record.objective <= before * (1 + 64 * kEps64));
                    before = record.objective;
                    iterations += record.iterations;
                }
                CHECK(iterations <= f.result.result.iterations);
            }
        }
    }
}

// Away from the minimum the reported gradient is that of the objective, by differences: weights, centre, L and damping included.
TEST_CASE("robust: the gradient that is reported") {
    const Matrix a = random_sparse(60, 8, 3, 51);
    const Vector b = scaled(random_vector(60, 52), 4);
    const Vector w(60, 0.5), center = random_vector(8, 53), x0 = random_vector(8, 54);
    const Matrix l = random_sparse(8, 8, 2, 55);
    for (const Loss loss : kLosses) {
        PrepareOptions prepare = on_cpu();
        prepare.weights = w;
        prepare.regulariser = l;
        prepare.regulariser_weight = 0.5;
        SolveOptions options = to(1e-14);
        options.damp = 0.3;
        options.damp_center = DampCenter::given;
        options.center = center;
        RobustOptions robust = loss_of(loss, 1.5);
        robust.l1_floor = 0.5;
        robust.max_outer = 1;
        options.max_iterations = 2;
        Vector x = x0;
        const RobustResult result = solve_robust(a, b, x, prepare, options, robust, true);
        CHECK(result.result.status == Status::iteration_limit);
        CHECK(result.outer_iterations == 1);
        CHECK(result.result.iterations == 2);
        CHECK(result.result.message.find("limit of reweighted solves") != std::string::npos);
        double mean = 0;
        for (const double value : b) mean += std::abs(value) / 60;
        const double t = loss == Loss::l1 ? 0.5 * mean : 1.5;
        const auto f = [&](const Vector& p) {
            Vector d = p;
            for (std::size_t j = 0; j < d.size(); ++j) d[j] -= center[j];
            return objective(a, b, p, loss, t, 0, w) + 0.25 * std::pow(norm(product(*l, d)), 2) + 0.09 * std::pow(norm(d), 2);
        };
        CHECK(result.objective == doctest::Approx(f(x)).epsilon(1e-12));
        double gradient = 0;
        for (std::size_t j = 0; j < x.size(); ++j) {
            Vector up = x, down = x;
            up[j] += 1e-5;
            down[j] -= 1e-5;
            gradient = std::hypot(gradient, (f(up) - f(down)) / 2e-5);
        }
        CHECK(result.gradient == doctest::Approx(gradient / 2).epsilon(1e-5));
        CHECK(result.gradient > 0);
        check_within(result.result.norms.dx, distance(x, x0), 1e-12, "||x - x0||");
    }
}

TEST_CASE("robust: corners") {
    const Matrix a = random_sparse(50, 10, 3, 61);
    const Vector zero(50, 0.0);
    for (const Loss loss : kLosses) {
        CHECK(norm(fit(a, zero, to(1e-6), loss_of(loss, 1)).x) == 0);
        // A x = b can be met: x is exact, whatever the loss.
        const Vector x = random_vector(10, 62);
        const Fit met = fit(a, product(*a, x), to(1e-6), loss_of(loss, 1));
        CHECK(distance(met.x, x) < 1e-6);
        const Fit again = fit(a, product(*a, x), to(1e-6), loss_of(loss, 1), on_cpu(), met.x);
        CHECK(again.result.outer_iterations <= 2);
    }
    // From a start that no row agrees with tukey has nothing to go on with.
    const Vector b = random_vector(50, 63);
    Vector far(10, 1e6);
    const RobustResult lost = solve_robust(a, b, far, on_cpu(), to(1e-6), loss_of(Loss::tukey, 1), true);
    CHECK(lost.result.status == Status::breakdown);
    CHECK(lost.result.message.find("leaves no row a weight") != std::string::npos);
    CHECK(far == Vector(10, 1e6));
    // fp32 claims what fp32 can give.
    PrepareOptions narrow = on_cpu();
    narrow.precision = Precision::fp32;
    const Vector wide = fit(a, b, to(1e-10), loss_of(Loss::huber, 0.3)).x;
    CHECK(distance(fit(a, b, to(1e-5), loss_of(Loss::huber, 0.3), narrow).x, wide) < 1e-3 * norm(wide));
    // An observer ends it, a time limit too.
    class Stop : public Observer {
        Verdict on_iterations(std::span<const IterationRecord>) override { return Verdict::stop; }
    } stop;
    Vector x(10);
    CHECK(solve_robust(a, b, x, on_cpu(), to(1e-12), loss_of(Loss::cauchy, 0.3), false, &stop).result.status == Status::stopped);
    SolveOptions no_time = to(1e-12);
    no_time.time_limit_seconds = 0;
    CHECK(solve_robust(a, b, x, on_cpu(), no_time, loss_of(Loss::huber, 0.3)).result.status == Status::time_limit);
}

TEST_CASE("robust: what cannot be asked for") {
    const Matrix a = random_sparse(50, 10, 3, 71);
    const Vector b = random_vector(50, 72);
    Vector x(10);
    const auto refused = [&](const char* words, const RobustOptions& robust, const SolveOptions& options = {},
                             const PrepareOptions& prepare = on_cpu()) {
        try {
            solve_robust(a, b, x, prepare, options, robust);
            FAIL_CHECK("not refused: " << words);
        } catch (const InputError& error) {
            CAPTURE(error.what());
            CHECK(std::string(error.what()).find(words) != std::string::npos);
        }
    };
    for (const double t : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
        refused("the threshold of huber must be a finite number above 0", loss_of(Loss::huber, t));
    }
    const RobustOptions l1 = loss_of(Loss::l1);
    RobustOptions none = l1;
    none.max_outer = 0;
    refused("at least 1 reweighted solve", none);
    none = l1;
    none.l1_floor = 0;
    refused("the floor of l1", none);
    SolveOptions options;
    options.method = Method::cg;
    refused("cg solves A x = b as it is", l1, options);
    options = {};
    options.trust_radius = 1;
    refused("a trust radius", l1, options);
    options = {};
    options.ar_relative = 0.1;
    refused("atol bounds the gradient", l1, options);
    PrepareOptions prepare = on_cpu();
    prepare.scale = Scaling::both;
    refused("scaled rows", l1, {}, prepare);
    const Vector few(3, 1.0);
    prepare = on_cpu();
    prepare.weights = few;
    refused("weights: 3 values, A is 50 x 10", l1, {}, prepare);
    CHECK_THROWS_AS(solve_robust(a, few, x, on_cpu(), {}, l1), InputError);
}

// A problem whose rows are weighed anew gives the bits of one that was set up with those weights, whatever else is asked for; and one
// operator serves all the solves of a fit.
TEST_CASE("robust: rows are reweighted in place") {
    const Matrix a = random_sparse(120, 15, 4, 81);
    const Vector b = random_vector(120, 82);
    Vector w = random_vector(120, 83), factors = random_vector(120, 84);
    for (double& value : w) value = value * value;
    for (double& value : factors) value = 1e3 * std::abs(value);
    factors[7] = 0;
    Vector products = factors;
    for (std::size_t i = 0; i < w.size(); ++i) products[i] *= w[i];
    for (const Precision precision : {Precision::fp64, Precision::fp32}) {
        for (const Scaling scale : {Scaling::none, Scaling::columns}) {
            for (const Preconditioner preconditioner : {Preconditioner::none, Preconditioner::blocks, Preconditioner::sketch}) {
                PrepareOptions prepare = on_cpu();
                prepare.precision = precision;
                prepare.scale = scale;
                prepare.preconditioner = preconditioner;
                const Vector damps(15, 0.2);
                prepare.column_damp = damps;
                prepare.weights = w;
                PreparedProblem problem(a, prepare);
                const Answer before = test::solve(problem, b, to(1e-5));
                problem.reweight(factors);
                const Answer updated = test::solve(problem, b, to(1e-5));
                prepare.weights = products;
                const Answer fresh = test::solve(prepare, a, b, to(1e-5));
                CHECK(updated.result.status == fresh.result.status);
                // fp32 is narrowed after another scaling by a power of two, which rounds nothing.
                CHECK(same_bits(updated.x, fresh.x));
                CHECK(updated.result.norms.a_frobenius == fresh.result.norms.a_frobenius);
                CHECK_FALSE(same_bits(updated.x, before.x));
                problem.reweight(Vector(120, 1.0));
                CHECK(same_bits(test::solve(problem, b, to(1e-5)).x, before.x));
                CHECK_THROWS_AS(problem.reweight(Vector(119, 1.0)), InputError);
                CHECK_THROWS_AS(problem.reweight(Vector(120, -1.0)), InputError);
            }
        }
    }
    // Far from the first scale fp32 is narrowed anew.
    PrepareOptions narrow = on_cpu();
    narrow.precision = Precision::fp32;
    PreparedProblem problem(a, narrow);
    problem.reweight(Vector(120, 0x1p-400));
    const Answer small = test::solve(problem, b, to(1e-5));
    CHECK(small.result.converged());
    CHECK(same_bits(small.x, test::solve(narrow, a, b, to(1e-5)).x));
    // A fit leaves the problem with its last weights, and begins again from those of the options.
    Vector x(15), again(15);
    PreparedProblem fitted(a, on_cpu());
    const RobustResult first = lsmr::solve_robust(fitted, b, x, to(1e-8), loss_of(Loss::huber, 0.3));
    const RobustResult second = lsmr::solve_robust(fitted, b, again, to(1e-8), loss_of(Loss::huber, 0.3));
    CHECK(first.outer_iterations > 3);
    CHECK(first.outer_iterations == second.outer_iterations);
    CHECK(same_bits(x, again));
}
