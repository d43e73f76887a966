// property SECONDS [SEED | FIRST..]: random problems, solved in random ways, against dense answers in long double. Shapes, scales, ranks, damping,
// starts, centres, weights, methods, precisions and preconditioners vary; what does not hold is printed with the number that repeats it.
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <fmt/format.h>

#include "memory/error.hpp"
#include "support/dense_oracle.hpp"
#include "support/problems.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

struct Case {
    Matrix a;  // as given
    Vector b, x0, c, w, d;
    PrepareOptions prepare;
    SolveOptions options;
    bool warm = false;
    std::string words;
};

template <class Value>
Value one_of(Random& random, std::initializer_list<Value> values) {
    return *(values.begin() + random.below(static_cast<std::int64_t>(values.size())));
}

Case make_case(std::uint64_t seed) {
    Random random(seed);
    Case p;
    const std::int64_t rows = 1 + random.below(60), cols = 1 + random.below(40);
    Triplets t{rows, cols, {}, {}, {}};
    const std::int64_t per_row = random.below(50) == 0 ? 0 : 1 + random.below(4);
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t k = 0; k < per_row; ++k) t.add(i, random.below(cols), random());
        if (i < cols && per_row > 0) t.add(i, i, 2 + random());
    }
    const int defect = static_cast<int>(random.below(4));  // 0, 1: none; 2: a column twice; 3: an empty column
    if (defect >= 2 && cols > 1) {
        Triplets kept{rows, cols, {}, {}, {}};
        for (std::size_t k = 0; k < t.values.size(); ++k) {
            if (t.j[k] != cols - 1) kept.add(t.i[k], t.j[k], t.values[k]);
            if (defect == 2 && t.j[k] == 0) kept.add(t.i[k], cols - 1, t.values[k]);
        }
        t = kept;
    }
    const double spread = one_of(random, {1.0, 1.0, 10.0, 1e3});
    const int exponent = one_of(random, {0, 0, 0, -30, 40, -300, 300});
    p.a = scaled(*graded(*t.matrix(), spread), std::ldexp(1.0, exponent));
    const int b_exponent = one_of(random, {0, 0, 20, -200, 200});
    p.b = scaled(random_vector(rows, seed + 1), std::ldexp(1.0, b_exponent));
    if (random.below(4) == 0) p.b = product(*p.a, scaled(random_vector(cols, seed + 2), std::ldexp(1.0, b_exponent - exponent)));
    if (random.below(20) == 0) p.b.assign(p.b.size(), 0.0);
    const double x_size = std::ldexp(1.0, b_exponent - exponent);
    p.warm = random.below(3) == 0;
    p.x0 = scaled(random_vector(cols, seed + 3), x_size);
    p.c = scaled(random_vector(cols, seed + 4), x_size);
    p.prepare.device = DeviceKind::cpu;
    if (random.below(4) == 0) {
        p.w = random_vector(rows, seed + 5);
        for (double& value : p.w) value = value < -0.8 ? 0 : std::abs(value) + 0.05;
    }
    p.options.method = one_of(random, {Method::lsmr, Method::lsmr, Method::lsqr, Method::cgls});
    p.prepare.precision = one_of(random, {Precision::fp64, Precision::fp64, Precision::fp64, Precision::fp32, Precision::mixed});
    p.prepare.scale = one_of(random, {Scaling::none, Scaling::none, Scaling::columns});
    p.prepare.preconditioner = one_of(random, {Preconditioner::none, Preconditioner::none, Preconditioner::none, Preconditioner::columns,
                                               Preconditioner::blocks, Preconditioner::cholesky});
    if (random.below(2) == 0) p.prepare.cholesky_drop = 1e-2;
    if (random.below(2) == 0) p.options.damp = std::ldexp(one_of(random, {1e-3, 0.1, 1.0, 10.0}), exponent);
    if (random.below(3) == 0) {
        p.d = random_vector(cols, seed + 6);
        for (double& value : p.d) value = value < 0 ? 0 : std::ldexp(value, exponent);
    }
    const bool regularised = p.options.damp > 0 || !p.d.empty();
    p.options.damp_center = one_of(random, {DampCenter::zero, DampCenter::given, p.warm ? DampCenter::x0 : DampCenter::zero});
    if (!regularised) p.options.damp_center = DampCenter::zero;
    p.prepare.preconditioner_damp = random.below(2) == 0 ? p.options.damp : 0;
    const double tolerance = p.prepare.precision == Precision::fp32 ? one_of(random, {1e-3, 1e-5}) : one_of(random, {1e-4, 1e-8, 1e-12});
    p.options.atol = p.options.btol = tolerance;
    p.options.conlim = 0;
    p.options.max_iterations = 20000;
    const bool bidiagonal = p.options.method == Method::lsmr || p.options.method == Method::lsqr;
    if (bidiagonal && p.prepare.preconditioner == Preconditioner::none) p.options.reorthogonalize = one_of<std::int64_t>(random, {0, 0, 3, SolveOptions::kAll});
    if (p.prepare.precision == Precision::mixed) p.options.reorthogonalize = 0;
    p.prepare.storage = one_of(random, {StorageKind::automatic, StorageKind::dual, StorageKind::single, StorageKind::one_pass, StorageKind::tiles});
    p.words = fmt::format("{} x {}, {} entries, spread {:g}, 2^{}, b 2^{}, defect {}; {}, {}, scale {}, precondition {}, damp {:g}{}, {}{}{}, tol {:g}, reorth {}, storage {}",
                          rows, cols, p.a->nnz(), spread, exponent, b_exponent, defect, name(p.options.method), name(p.prepare.precision),
                          name(p.prepare.scale), name(p.prepare.preconditioner), p.options.damp, p.d.empty() ? "" : ", column damps",
                          name(p.options.damp_center), p.warm ? ", x0" : "", p.w.empty() ? "" : ", weights", tolerance, p.options.reorthogonalize,
                          name(p.prepare.storage));
    return p;
}

// What does not hold; empty: all holds.
std::string failure_of(Case& p, std::map<std::string, int>& statuses) {
    p.prepare.weights = p.w;
    p.prepare.column_damp = p.d;
    p.options.center = p.c;
    Vector x = p.warm ? p.x0 : Vector(index(p.a->cols()), std::numeric_limits<double>::quiet_NaN());
    SolveResult result;
    PreparedProblem problem(p.a, p.prepare);
    result = problem.solve(p.b, x, p.options, p.warm);
    ++statuses[status_name(result.status)];

    // The same problem by hand: weighted rows, dampings as rows.
    Triplets t = triplets(*p.a);
    for (std::size_t k = 0; k < t.values.size(); ++k) t.values[k] *= p.w.empty() ? 1 : std::sqrt(p.w[index(t.i[k])]);
    Vector b = p.b;
    for (std::size_t i = 0; i < p.w.size(); ++i) b[i] *= std::sqrt(p.w[i]);
    const Vector center = p.options.damp_center == DampCenter::given ? p.c : p.options.damp_center == DampCenter::x0 ? p.x0 : Vector{};
    for (std::size_t j = 0; j < p.d.size(); ++j) {
        if (p.d[j] == 0) continue;
        t.add(t.rows++, static_cast<std::int64_t>(j), p.d[j]);
        b.push_back(center.empty() ? 0 : p.d[j] * center[j]);
    }
    const Matrix a = t.matrix();
    const double damp = p.options.damp;
    const Vector start = p.warm ? p.x0 : Vector{};
    const Truth now = truth(*a, b, x, damp, damp > 0 ? center : Vector{}, start);
    const double eps = p.prepare.precision == Precision::fp32 ? kEps32 : kEps64;
    for (const double value : x) {
        if (!std::isfinite(value)) return "x is not finite";
    }
    const double r_rounding = 64 * kEps64 * (now.stacked * (now.x + now.dx) + now.b + now.r_damped) + 1e-300;
    if (std::abs(result.norms.r_damped - now.r_damped) > r_rounding) return fmt::format("||r|| {} is not {}", result.norms.r_damped, now.r_damped);
    if (std::abs(result.norms.ar - now.ar) > now.stacked * r_rounding) return fmt::format("||A'r|| {} is not {}", result.norms.ar, now.ar);
    if (std::abs(result.norms.x - now.x) > 64 * kEps64 * (now.x + now.dx)) return fmt::format("||x|| {} is not {}", result.norms.x, now.x);
    const double size = now.stacked * std::max(now.x, now.x + now.dx) + now.b;
    const double r_met = 2 * (p.options.btol * now.b + p.options.atol * now.stacked * now.x) + r_rounding;
    const double ar_met = 2 * p.options.atol * now.stacked * now.r_damped + now.stacked * r_rounding;
    const double r_eps = 8 * eps * size + r_rounding, ar_eps = now.stacked * r_eps;
    bool honest = true;
    switch (result.status) {
        case Status::compatible: honest = now.r_damped <= r_met; break;
        case Status::compatible_eps: honest = now.r_damped <= std::max(r_met, r_eps); break;
        case Status::least_squares: honest = now.ar <= ar_met; break;
        case Status::least_squares_eps:
        case Status::start_solves: honest = now.ar <= std::max(ar_met, ar_eps); break;
        default: break;
    }
    if (!honest) return fmt::format("{} is claimed with ||r|| {:g}, ||A'r|| {:g}, allowed {:g}, {:g}", status_name(result.status), now.r_damped, now.ar, r_met, ar_met);
    if (now.stacked == 0) {
        // No entries, or none of a row that counts: any x solves it, and the one nearest to the start is the start.
        const Vector nearest = start.empty() ? Vector(index(p.a->cols()), 0.0) : start;
        const double moved = distance(x, nearest);
        return moved <= eps * norm(nearest) ? "" : fmt::format("A is zero, and x is {:g} from the start", moved);
    }
    const Oracle oracle = dense_solution(*a, b, damp, damp > 0 ? center : start);
    const double cond = oracle.sigma_max / oracle.sigma_min;
    // A preconditioner that does not know the damping, or scaled columns under a damping that outweighs them in fp32, are another problem's.
    const bool foreign = (p.prepare.preconditioner != Preconditioner::none && p.prepare.preconditioner_damp != damp) ||
                         (p.prepare.precision == Precision::fp32 && p.prepare.scale == Scaling::columns && damp > 0);
    const bool easy = cond < (p.prepare.precision == Precision::fp32 ? 30 : 1e4) && !foreign;
    if (easy && !result.converged()) return fmt::format("cond {:g}, and not converged: {}", cond, result.message);
    const bool unique = damp > 0 || oracle.rank == a->cols();
    const bool least = p.prepare.scale == Scaling::none && p.prepare.preconditioner == Preconditioner::none;
    if (!unique && (!least || p.prepare.precision == Precision::mixed)) return {};
    const double rounding = now.stacked * r_rounding + oracle.sigma_min * oracle.sigma_min * 64 * kEps64 * now.x;
    const double bound = (now.ar + rounding) / (oracle.sigma_min * oracle.sigma_min) +
                         (unique ? 0 : 64 * eps * static_cast<double>(result.iterations + 1) * (now.x + norm(start)));
    const double error = distance(x, oracle.x);
    if (!(error <= bound * (1 + 1e-9))) return fmt::format("x is off by {:g} of {:g}, {:g} is allowed, cond {:g}", error, now.x, bound, cond);
    return {};
}

}  // namespace

int main(int count, char** words) {
    const double seconds = count > 1 ? std::atof(words[1]) : 0;
    if (!(seconds > 0) || count > 3) {
        std::fprintf(stderr, "usage: property SECONDS [SEED | FIRST..]: one seed alone repeats its problem, 5000.. begins with problem 5000\n");
        return 64;
    }
    omp_set_num_threads(1);
    const std::string from = count == 3 ? words[2] : "1..";
    const bool single = !from.ends_with("..");
    const auto start = std::chrono::steady_clock::now();
    std::map<std::string, int> statuses;
    int failures = 0;
    std::uint64_t cases = 0;
    for (std::uint64_t seed = std::strtoull(from.c_str(), nullptr, 10);; ++seed) {
        if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) break;
        Case p = make_case(seed);
        std::string failure;
        try {
            failure = failure_of(p, statuses);
        } catch (const std::exception& error) {
            failure = fmt::format("threw: {}", error.what());
        }
        ++cases;
        if (!failure.empty()) {
            ++failures;
            std::printf("seed %llu: %s\n    %s\n", static_cast<unsigned long long>(seed), failure.c_str(), p.words.c_str());
        } else if (single) {
            std::printf("seed %llu holds\n    %s\n", static_cast<unsigned long long>(seed), p.words.c_str());
        }
        if (single) break;
    }
    std::printf("%llu problems, %d do not hold\n", static_cast<unsigned long long>(cases), failures);
    for (const auto& [name, times] : statuses) std::printf("%8d  %s\n", times, name.c_str());
    return failures == 0 ? 0 : 1;
}
