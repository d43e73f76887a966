// audit FOLDER [PART [MOST]]: solves every Matrix Market file of a folder (whose name holds PART) by every method and in every precision,
// damped and not, and checks each result against a long double recomputation and, up to MOST singular values (2500), against a dense
// decomposition: the norms that are reported, what is claimed, how far ||r|| is from the least one, and that what is well conditioned is
// solved. Right-hand sides are those beside the matrix, or two made ones. What does not hold is printed; it ends with counts.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <Eigen/SVD>

#include "data/read.hpp"
#include "memory/error.hpp"
#include "solver/power_of_two.hpp"
#include "solver/recurrence.hpp"
#include "support/problems.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

constexpr double kEasy = 1e4;  // cond([A; lambda I]) up to which every method must converge in fp64

struct RightSide {
    std::string name;
    Vector b;
};

// U S V^T of 2^-exponent A.
class Dense {
  public:
    explicit Dense(const CsrMatrix& a) : exponent_(binary_exponent(max_abs(a.values(), a.nnz()))) {
        const PowerOfTwo scale(-exponent_);
        Eigen::MatrixXd full = Eigen::MatrixXd::Zero(a.rows(), a.cols());
        for (std::int64_t i = 0; i < a.rows(); ++i) {
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) full(i, a.columns()[k]) += scale(a.values()[k]);
        }
        const Eigen::BDCSVD<Eigen::MatrixXd> svd(full, Eigen::ComputeThinU | Eigen::ComputeThinV);
        u_ = svd.matrixU();
        v_ = svd.matrixV();
        sigma_ = svd.singularValues();
        const double eps = static_cast<double>(std::max(a.rows(), a.cols())) * kEps64;
        const double off = (u_ * sigma_.asDiagonal() * v_.transpose() - full).norm();
        if (!(off <= eps * full.norm())) throw InternalError(fmt::format("a singular value decomposition is off by {:.2e} of {:.2e}", off, full.norm()));
        for (double& sigma : sigma_) sigma = sigma > eps * sigma_(0) ? sigma : 0;
    }
    int exponent() const { return exponent_; }
    std::int64_t count() const { return sigma_.size(); }
    double sigma(std::int64_t i) const { return sigma_(i); }  // 0: the rank does not count it
    double largest() const { return sigma_.size() > 0 ? sigma_(0) : 0; }
    // Of those that count; 0: none does.
    double smallest() const {
        double least = 0;
        for (const double sigma : sigma_) least = sigma > 0 ? sigma : least;
        return least;
    }
    bool singular() const { return count() > 0 && sigma_(count() - 1) == 0; }

    // The part of p along each left (of `rows` entries) or right singular vector that counts, and the norm of what is left of it.
    struct Parts {
        Eigen::VectorXd along;
        double rest = 0;
    };
    Parts left(const Vector& p) const { return parts(p, u_); }
    Parts right(const Vector& p) const { return parts(p, v_); }

  private:
    Parts parts(const Vector& p, const Eigen::MatrixXd& basis) const {
        const Eigen::Map<const Eigen::VectorXd> whole(p.data(), static_cast<std::int64_t>(p.size()));
        Parts out{basis.transpose() * whole, 0};
        for (std::int64_t i = 0; i < count(); ++i) out.along(i) = sigma_(i) > 0 ? out.along(i) : 0;
        out.rest = (whole - basis * out.along).norm();
        return out;
    }

    int exponent_;
    Eigen::MatrixXd u_, v_;
    Eigen::VectorXd sigma_;  // descending
};

struct Counts {
    std::map<std::string, int> statuses, checks;
    int solves = 0, failures = 0, refused = 0, matrices = 0, unread = 0, dense = 0;
    std::map<std::string, double> worst;  // of a check: the largest part of its bound that was used
    std::map<std::string, int> printed;   // failures of a check, for one matrix
};

// One solve, for the checks.
struct Case {
    std::string words;
    const CsrMatrix& a;
    const Vector& b;
    const PrepareOptions& prepare;
    const SolveOptions& options;
    const Answer& answer;
    const Truth& t;
};

class Checks {
  public:
    Checks(Counts& counts, const Case& c) : counts_(counts), case_(c) {}
    void within(const char* what, double value, double bound) {
        ++counts_.checks[what];
        if (bound > 0) counts_.worst[what] = std::max(counts_.worst[what], value / bound);
        if (value <= bound) return;
        fail(what, fmt::format("is {:.3e}, {:.3e} is allowed", value, bound));
    }
    void holds(const char* what, bool fact, const std::string& words) {
        ++counts_.checks[what];
        if (!fact) fail(what, words);
    }

  private:
    void fail(const char* what, const std::string& words) {
        ++counts_.failures;
        if (++counts_.printed[what] <= 3) std::printf("FAILS %s: %s: %s; %s\n", case_.words.c_str(), what, words.c_str(), case_.answer.result.message.c_str());
    }
    Counts& counts_;
    const Case& case_;
};

// The norms that are reported are those of x.
void check_reported(const Case& c, Checks& checks) {
    const Norms& n = c.answer.result.norms;
    const double plain = 8 * kEps64 * (c.t.a_frobenius * c.t.x + c.t.b);
    const double damped = 8 * kEps64 * (c.t.stacked * c.t.x + c.t.b);
    checks.within("||r|| as reported", std::abs(n.r - c.t.r), plain);
    checks.within("damped ||r|| as reported", std::abs(n.r_damped - c.t.r_damped), damped);
    checks.within("||A^T r|| as reported", std::abs(n.ar - c.t.ar), c.t.stacked * damped);
    checks.within("||b|| as reported", std::abs(n.b - c.t.b), 8 * kEps64 * c.t.b);
    checks.within("||x|| as reported", std::abs(n.x - c.t.x), 8 * kEps64 * c.t.x);
    checks.within("||A||_F as reported", std::abs(n.a_frobenius - c.t.a_frobenius), 8 * kEps64 * c.t.a_frobenius);
}

// What is claimed is met: by the true residuals, in the audit's bounds.
void check_claimed(const Case& c, double eps, Checks& checks) {
    const Status status = c.answer.result.status;
    const double size = c.t.stacked * c.t.x + c.t.b;
    const double rounding = 8 * kEps64 * size;
    const double r_met = 2 * (c.options.btol * c.t.b + c.options.atol * c.t.stacked * c.t.x);
    const double ar_met = 2 * c.options.atol * c.t.stacked * c.t.r_damped;
    const double r_eps = std::max(r_met, 8 * eps * size), ar_eps = std::max(ar_met, c.t.stacked * 8 * eps * size);
    if (status == Status::compatible) checks.within("||r|| as claimed", c.t.r_damped, r_met + rounding);
    if (status == Status::compatible_eps) checks.within("||r|| at eps as claimed", c.t.r_damped, r_eps + rounding);
    if (status == Status::least_squares) checks.within("||A^T r|| as claimed", c.t.ar, ar_met + c.t.stacked * rounding);
    if (status == Status::least_squares_eps || status == Status::start_solves) {
        checks.within("||A^T r|| at eps as claimed", c.t.ar, ar_eps + c.t.stacked * rounding);
    }
    checks.holds("a status is converged or not", c.answer.result.converged() == is_converged(status), status_name(status));
}

// What the singular values say, in units of 2^exponent.
void check_dense(const Case& c, const Dense& d, double eps, Checks& checks) {
    const SolveResult& result = c.answer.result;
    const double unit = std::ldexp(1.0, d.exponent());
    const double lambda = c.options.damp / unit;
    const double stacked = c.t.stacked / unit, x_norm = c.t.x * unit, ar = c.t.ar / unit;
    const bool singular = lambda == 0 && d.singular();
    const double sigma_max = std::hypot(d.largest(), lambda);
    const double sigma_min = std::hypot(lambda > 0 && d.singular() ? 0 : d.smallest(), lambda);  // on the range
    const double cond = sigma_min > 0 ? sigma_max / sigma_min : 1;
    const double rounding = 64 * kEps64 * (stacked * x_norm + c.t.b);

    // The least residual: ||r||^2 = least^2 + ||A (x - x*)||^2.
    const Dense::Parts b = d.left(c.b);
    double least = b.rest * b.rest;
    for (std::int64_t i = 0; i < d.count(); ++i) {
        const double filter = lambda > 0 ? lambda / std::hypot(d.sigma(i), lambda) : 0;
        least += square(filter * b.along(i));
    }
    least = std::sqrt(least);
    checks.within("the least ||r|| is not undercut", least - c.t.r_damped, rounding);
    if (sigma_min > 0 && !singular) checks.within("||r|| is as ||A^T r|| says", c.t.r_damped, std::hypot(least, ar / sigma_min) + rounding + stacked * rounding / sigma_min);

    // The optimal backward error of a least-squares solution, Grcar, Saunders, Su (2007): ||(B^T B + eta^2)^-1/2 B^T r|| / ||x|| with
    // B = [A; lambda I], eta = ||r|| / ||x||, by the gradient g in long double.
    const bool least_squares = result.status == Status::least_squares || result.status == Status::least_squares_eps;
    if (least_squares && x_norm > 0 && c.t.r_damped > 0) {
        Vector r = c.b, g(c.answer.x.size());
        std::vector<long double> sum(g.size());
        for (std::int64_t i = 0; i < c.a.rows(); ++i) {
            long double ri = static_cast<long double>(c.b[index(i)]);
            for (std::int64_t k = c.a.offsets()[i]; k < c.a.offsets()[i + 1]; ++k) {
                ri -= static_cast<long double>(c.a.values()[k]) * static_cast<long double>(c.answer.x[index(c.a.columns()[k])]);
            }
            for (std::int64_t k = c.a.offsets()[i]; k < c.a.offsets()[i + 1]; ++k) sum[index(c.a.columns()[k])] += static_cast<long double>(c.a.values()[k]) * ri;
        }
        const long double lambda2 = static_cast<long double>(c.options.damp) * static_cast<long double>(c.options.damp);
        for (std::size_t j = 0; j < g.size(); ++j) g[j] = static_cast<double>((sum[j] - lambda2 * static_cast<long double>(c.answer.x[j])) / static_cast<long double>(unit));
        const Dense::Parts parts = d.right(g);
        const double eta = c.t.r_damped / x_norm;
        double error = square(parts.rest / std::hypot(lambda, eta));
        for (std::int64_t i = 0; i < d.count(); ++i) error += square(parts.along(i) / std::hypot(std::hypot(d.sigma(i), lambda), eta));
        error = std::sqrt(error) / x_norm / stacked;
        const double allowed = 2 * c.options.atol + 16 * kEps64 * (1 + (stacked * x_norm + c.t.b) / c.t.r_damped);
        if (result.status == Status::least_squares) checks.within("the backward error of least squares", error, allowed);
        else checks.within("the backward error of least squares at eps", error, std::max(allowed, 16 * eps * (1 + (stacked * x_norm + c.t.b) / c.t.r_damped)));
    }
    if (result.status == Status::condition_limit || result.status == Status::condition_eps) {
        checks.holds("a condition limit is one", singular || cond >= 0.1 * resolved_conlim(c.options, c.prepare.precision), fmt::format("cond is {:.3e}", cond));
    }
    if (result.status == Status::start_solves) {
        double gradient = 0;
        for (std::int64_t i = 0; i < d.count(); ++i) gradient += square(d.sigma(i) * b.along(i));
        checks.within("a start that solves", std::sqrt(gradient), stacked * rounding);
    }
    const bool narrow = c.prepare.precision == Precision::fp32;
    if (cond < (narrow ? 30 : kEasy) && !singular && c.options.method != Method::cg) {
        checks.holds("what is well conditioned is solved", result.converged(), fmt::format("cond is {:.3e}, {} iterations", cond, result.iterations));
    }
}

std::vector<RightSide> right_sides(const std::string& path, const CsrMatrix& a) {
    std::vector<RightSide> sides;
    const RhsBeside beside = find_rhs_beside(path);
    std::vector<std::string> files = beside.others;
    if (!beside.chosen.empty()) files.insert(files.begin(), beside.chosen);
    for (const std::string& file : files) {
        DenseFile dense = read_dense(file);
        for (std::int64_t k = 0; k < dense.cols; ++k) {
            const auto begin = dense.values.begin() + k * dense.rows;
            sides.push_back({std::filesystem::path(file).filename().string(), Vector(begin, begin + dense.rows)});
        }
    }
    if (sides.empty()) {
        const double unit = std::ldexp(1.0, -binary_exponent(max_abs(a.values(), a.nnz())));
        sides.push_back({"A ones", product(a, Vector(index(a.cols()), unit))});
        const double size = norm(sides[0].b) / std::sqrt(static_cast<double>(a.rows()));
        sides.push_back({"random", scaled(random_vector(a.rows(), 1), size > 0 ? size : 1.0)});
    }
    return sides;
}

void audit_matrix(const std::string& path, std::int64_t most, Counts& counts) {
    const auto start = std::chrono::steady_clock::now();
    const std::string file = std::filesystem::path(path).filename().string();
    Matrix a;
    try {
        a = std::make_shared<const CsrMatrix>(read_matrix(path).matrix);
    } catch (const InputError& error) {
        ++counts.unread;
        std::printf("%s: %s\n", file.c_str(), error.what());
        return;
    }
    ++counts.matrices;
    const std::int64_t smaller = std::min(a->rows(), a->cols());
    std::unique_ptr<Dense> dense;
    if (smaller <= most) dense = std::make_unique<Dense>(*a);
    counts.dense += dense ? 1 : 0;
    const double cond = dense ? dense->largest() / dense->smallest() : std::numeric_limits<double>::quiet_NaN();
    const int solves = counts.solves;
    std::map<std::string, int> before = counts.statuses;
    counts.printed.clear();
    for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::mixed}) {
        PrepareOptions prepare;
        prepare.device = DeviceKind::cpu;
        prepare.precision = precision;
        std::optional<PreparedProblem> problem;
        try {
            problem.emplace(a, prepare);
        } catch (const InputError&) {
            ++counts.refused;  // values that fp32 does not hold
            continue;
        }
        for (const RightSide& side : right_sides(path, *a)) {
            const Truth start_truth = truth(*a, side.b, Vector(index(a->cols()), 0.0));
            for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls, Method::cg}) {
                for (const double part : {0.0, 0.03}) {
                    for (const double tolerance : {1e-6, 1e-12}) {
                        SolveOptions options = with_method(method, tolerance);
                        options.damp = part * start_truth.a_frobenius / std::sqrt(static_cast<double>(smaller));
                        options.max_iterations = smaller <= most ? std::max<std::int64_t>(40 * smaller, 2000) : 1000;
                        options.time_limit_seconds = 20;
                        Answer answer;
                        try {
                            answer = solve(*problem, side.b, options);
                        } catch (const InputError&) {
                            ++counts.refused;  // CG: A is not symmetric, or there is a damping
                            continue;
                        }
                        ++counts.solves;
                        ++counts.statuses[status_name(answer.result.status)];
                        const Truth t = truth(*a, side.b, answer.x, options.damp);
                        const double eps = precision == Precision::fp32 ? kEps32 : kEps64;
                        const Case c{fmt::format("{} {} {} {} damp {:.3g} tol {:g}", file, side.name, name(method), name(precision), options.damp, tolerance),
                                     *a, side.b, prepare, options, answer, t};
                        Checks checks(counts, c);
                        check_reported(c, checks);
                        check_claimed(c, eps, checks);
                        if (dense) check_dense(c, *dense, eps, checks);
                    }
                }
            }
        }
    }
    std::string words;
    for (const auto& [name, times] : counts.statuses) {
        if (times > before[name]) words += fmt::format(" {} {}", times - before[name], name);
    }
    std::printf("%s: %lld x %lld, cond %.2e, %d solves in %.0f s:%s\n", file.c_str(), static_cast<long long>(a->rows()), static_cast<long long>(a->cols()),
                cond, counts.solves - solves, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), words.c_str());
    std::fflush(stdout);
}

bool is_matrix_file(const std::string& name) {
    const bool market = name.ends_with(".mtx") || name.ends_with(".mtx.gz");
    const std::string stem = name.substr(0, name.find(".mtx"));
    const bool vector = stem.ends_with("_b") || stem.ends_with("_x") || stem.ends_with("_xref") || stem.find("_rhs") != std::string::npos;
    return market && !vector;
}

}  // namespace

int main(int count, char** words) {
    const std::int64_t most = count > 3 ? std::atoll(words[3]) : 2500;
    if (count < 2 || count > 4 || most < 1) {
        std::fprintf(stderr, "usage: audit FOLDER [PART [MOST]]: the matrices of a folder, or those whose names hold PART; MOST singular values\n");
        return 64;
    }
    omp_set_num_threads(1);
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(words[1])) {
        const std::string name = entry.path().filename().string();
        if (is_matrix_file(name) && (count < 3 || name.find(words[2]) != std::string::npos)) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    Counts counts;
    for (const std::string& path : paths) audit_matrix(path, most, counts);
    std::printf("%d matrices (%d with singular values), %d files not read; %d solves, %d refused in words; %d checks do not hold\n", counts.matrices, counts.dense,
                counts.unread, counts.solves, counts.refused, counts.failures);
    for (const auto& [name, times] : counts.statuses) std::printf("%8d  %s\n", times, name.c_str());
    for (const auto& [name, times] : counts.checks) std::printf("%8d  %s, at most %.2g of the bound\n", times, name.c_str(), counts.worst[name]);
    return counts.failures == 0 && counts.matrices > 0 ? 0 : 1;
}
