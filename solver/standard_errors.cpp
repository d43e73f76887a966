#include "solver/standard_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "memory/error.hpp"
#include "solver/random_sign.hpp"

namespace lsmr {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::int64_t counting_rows(const PreparedProblem& problem) {
    const std::span<const double> w = problem.options().weights;
    return w.empty() ? problem.matrix().rows() : std::count_if(w.begin(), w.end(), [](double value) { return value > 0; });
}

// Solves with N, one after another.
class NormalSolves {
  public:
    NormalSolves(PreparedProblem& problem, const SolveOptions& options, const StandardErrorOptions& wanted, Observer* observer, StandardErrors& out)
        : problem_(problem), options_(options), observer_(observer), out_(out) {
        options_.atol = wanted.tolerance;
        out_.complete = true;
    }
    // False: stopped, z is not to be used.
    bool operator()(std::span<const double> g, std::span<double> z) {
        SolveOptions options = options_;
        options.time_limit_seconds = std::max(0.0, options_.time_limit_seconds - seconds());
        const SolveResult result = problem_.solve_normal(g, z, options, observer_);
        out_.iterations += result.iterations;
        out_.seconds = seconds();
        if (result.converged()) return true;
        if (out_.complete) out_.notes.push_back("a solve for the standard errors did not converge: " + result.message);
        out_.complete = false;
        return result.status != Status::stopped && result.status != Status::time_limit && result.status != Status::non_finite;
    }

  private:
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
    PreparedProblem& problem_;
    SolveOptions options_;
    Observer* observer_;
    StandardErrors& out_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double root(double variance) { return variance >= 0 ? std::sqrt(variance) : kUnknown; }

}  // namespace

const char* name(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::none: return "none";
        case ErrorKind::estimate: return "estimate";
        case ErrorKind::exact: return "exact";
        case ErrorKind::hutchinson: return "hutchinson";
    }
    return "";
}

StandardErrors standard_errors(PreparedProblem& problem, const SolveOptions& options, const SolveResult& solved,
                               const StandardErrorOptions& wanted, Observer* observer) {
    const std::int64_t cols = problem.matrix().cols();
    const std::int64_t rows = counting_rows(problem);
    if (rows <= cols) {
        throw InputError(fmt::format("standard errors need more equations than unknowns; there are {} of weight above 0, and {} unknowns", rows, cols));
    }
    StandardErrors out;
    out.kind = wanted.kind;
    out.cond_frobenius = kUnknown;
    out.sigma = solved.norms.r / std::sqrt(static_cast<double>(rows - cols));
    const auto n = static_cast<std::size_t>(cols);
    const auto take_all = [&out, n] {
        out.columns.resize(n);
        std::iota(out.columns.begin(), out.columns.end(), std::int64_t{0});
    };
    switch (wanted.kind) {
        case ErrorKind::none: break;
        case ErrorKind::estimate: {
            if (solved.variances.size() != n) throw InputError("standard errors: the solve has estimated no variances");
            take_all();
            double sum = 0;
            std::int64_t unknown = 0;
            for (const double variance : solved.variances) {
                out.unit_errors.push_back(variance > 0 ? std::sqrt(variance) : kUnknown);  // N^-1_jj is not 0: nothing was seen of it
                unknown += !(variance > 0);
                sum += variance;
            }
            if (unknown > 0) out.notes.push_back(fmt::format("{} of {} standard errors are not known: LSQR's iterations did not reach them", unknown, cols));
            out.cond_frobenius = std::hypot(solved.norms.a_frobenius, options.damp * std::sqrt(static_cast<double>(cols))) * std::sqrt(sum);
            out.complete = true;
            break;
        }
        case ErrorKind::exact: {
            out.columns = wanted.columns;
            if (out.columns.empty()) take_all();
            NormalSolves solve(problem, options, wanted, observer, out);
            std::vector<double> g(n, 0.0);
            std::vector<double> z(n);
            for (const std::int64_t column : out.columns) {
                if (column < 0 || column >= cols) throw InputError(fmt::format("standard errors: there is no column {} of {}", column + 1, cols));
                const auto j = static_cast<std::size_t>(column);
                g[j] = 1;
                const bool known = solve(g, z);
                g[j] = 0;
                out.unit_errors.push_back(known ? root(z[j]) : kUnknown);
                if (!known) break;
            }
            out.unit_errors.resize(out.columns.size(), kUnknown);
            break;
        }
        case ErrorKind::hutchinson: {
            if (wanted.probes < 2) throw InputError(fmt::format("standard errors: at least 2 probes are needed, not {}", wanted.probes));
            take_all();
            NormalSolves solve(problem, options, wanted, observer, out);
            std::vector<double> q(n), z(n), sum(n, 0.0), squares(n, 0.0);
            std::int64_t probes = 0;
            for (; probes < wanted.probes; ++probes) {
                for (std::size_t j = 0; j < n; ++j) q[j] = random_sign(wanted.seed, probes, j);
                if (!solve(q, z)) break;
                for (std::size_t j = 0; j < n; ++j) {
                    const double sample = q[j] * z[j];
                    sum[j] += sample;
                    squares[j] += sample * sample;
                }
            }
            const double k = static_cast<double>(probes);
            std::int64_t unknown = 0;
            for (std::size_t j = 0; j < n; ++j) {
                const double mean = probes > 0 ? sum[j] / k : kUnknown;
                const double value = mean > 0 ? std::sqrt(mean) : kUnknown;
                const double deviation = probes > 1 ? std::sqrt(std::max(squares[j] / k - mean * mean, 0.0) / (k - 1)) : kUnknown;
                out.unit_errors.push_back(value);
                out.unit_spread.push_back(value * 0.5 * deviation / mean);  // of a root
                unknown += !(mean > 0);
            }
            if (unknown > 0) out.notes.push_back(fmt::format("{} of {} standard errors are not known: raise the number of probes", unknown, cols));
            break;
        }
    }
    return out;
}

}  // namespace lsmr
