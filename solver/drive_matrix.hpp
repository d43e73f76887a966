// An Engine from a backend and an operator: the part that does not depend on the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "solver/cg.hpp"
#include "solver/cgls.hpp"
#include "solver/driver.hpp"
#include "solver/engine.hpp"
#include "solver/lsmr.hpp"
#include "solver/lsqr.hpp"
#include "solver/power_of_two.hpp"

namespace lsmr::detail {

// Runs the method that the options name; they went through resolved_options().
template <class Backend>
SolveResult drive(Backend& backend, const DriveProblem& problem, const SolveOptions& options, double conlim, Observer* observer) {
    using T = typename Backend::Value;
    switch (options.method) {
        case Method::lsmr: return Drive<Lsmr<T>, Backend>(backend, problem, options, conlim, observer)();
        case Method::lsqr: return Drive<Lsqr<T>, Backend>(backend, problem, options, conlim, observer)();
        case Method::cgls: return Drive<Cgls<T>, Backend>(backend, problem, options, conlim, observer)();
        case Method::cg: return Drive<Cg<T>, Backend>(backend, problem, options, conlim, observer)();
        case Method::automatic: break;
    }
    throw InternalError("the method was not chosen");
}

// x <- x + sum_k y_k v_k with the kept vectors.
template <class Backend>
void add_kept_vectors(Backend& backend, std::span<const double> y, std::span<double> x) {
    const auto n = static_cast<std::int64_t>(x.size());
    const typename Backend::Value* v = backend.basis(0);
    std::vector<double> vk(x.size());
    for (const double yk : y) {
        backend.download_col(vk.data(), v, n, 0);
        for (std::size_t j = 0; j < x.size(); ++j) x[j] += yk * vk[j];
        v += n;
    }
}

// A user's K for a user's A.
template <class T>
void check_preconditioner(const LinearOperator<T>& k, const LinearOperator<T>& a, const SolveOptions& options) {
    if (k.rows() != a.cols() || k.cols() != a.cols() || k.space() != a.space()) {
        throw InputError(fmt::format("solve: the preconditioner is {} x {}, A is {} x {}: it must be {} x {}, where A is", k.rows(), k.cols(), a.rows(),
                                     a.cols(), a.cols(), a.cols()));
    }
    if (options.method == Method::cg) throw InputError("cg takes no preconditioner: lsmr, lsqr and cgls do");
    if (options.trust_radius > 0) {
        throw InputError("a trust radius bounds ||x - x0||, which does not grow steadily with a preconditioner: take one of the two");
    }
}

// damp: of this solve; sketch_damp: that of a sketch.
inline DriveProblem drive_problem(const EngineMatrix& a, std::span<const double> b, std::span<const double> linear, std::span<double> x,
                                  bool use_x0, HostAudit* audit, const Resumption& resumption, double damp, double sketch_damp) {
    DriveProblem problem;
    problem.linear = linear;
    problem.b = b;
    problem.x = x;
    problem.use_x0 = use_x0;
    problem.data_rows = a.original->rows();
    problem.column_scale = a.column_scale;
    problem.a_frobenius = a.frobenius;
    problem.claim_frobenius = a.claim_frobenius;
    problem.data_frobenius = a.data_frobenius;
    if (a.preconditioner) {
        problem.preconditioned_frobenius = a.preconditioner->frobenius < 0 ? -1 : std::ldexp(a.preconditioner->frobenius, a.preconditioner->exponent);
        problem.k_exponent = a.preconditioner->exponent - a.exponent;
        problem.k_frobenius = a.preconditioner->scaled_frobenius;
    }
    if (a.sketch) {
        // S A K has orthonormal columns, so ||A K||_F is sqrt(cols) but for the sketch's distortion: A with the damping of the sketch, no other.
        problem.preconditioned_frobenius = damp == sketch_damp ? std::ldexp(std::sqrt(static_cast<double>(a.sketch->cols)), a.sketch->exponent) : -1;
        problem.k_exponent = a.sketch->exponent - a.exponent;
    }
    if (a.cholesky) {
        problem.preconditioned_frobenius = -1;
        problem.k_exponent = a.cholesky->exponent() - a.exponent;
    }
    problem.a_max_abs = a.max_abs;
    problem.a_exponent = a.exponent;
    problem.host_audit = audit;
    problem.identity = resumption.identity;
    problem.resume = resumption.from;
    return problem;
}

// x0 + d, d the solution of the sketched problem: where a sketch-preconditioned run begins. Empty where it is not finite. x0 empty: zero.
// factors.solve(r): the d of least ||S (r - 2^-exponent [A; G; damp D] d)||.
template <class Factors>
std::vector<double> sketch_solution(Factors& factors, const EngineMatrix& m, std::span<const double> b, std::span<const double> x0,
                                    const SolveOptions& options, double sketch_damp) {
    const auto n = static_cast<std::size_t>(m.original->cols());
    const auto scale = [&m](std::size_t j) { return m.column_scale.empty() ? 1.0 : m.column_scale[j]; };
    const auto x0_at = [&x0](std::size_t j) { return x0.empty() ? 0.0 : x0[j]; };
    // The residual of x0 in units in which b is near 1, and z = D^-1 x in those in which A is.
    const int f = binary_exponent(std::max(max_abs(b.data(), static_cast<std::int64_t>(b.size())), std::numeric_limits<double>::min()));
    std::vector<double> r(b.begin(), b.end());
    for (double& ri : r) ri = PowerOfTwo(-f)(ri);
    if (!x0.empty()) {
        std::vector<double> z(n);
        for (std::size_t j = 0; j < n; ++j) z[j] = PowerOfTwo(-m.exponent - f)(x0[j] / scale(j));
        HostAudit(*m.working, m.below.get()).subtract_product(1.0, z.data(), r.data());
    }
    if (sketch_damp > 0) {
        const bool around_x0 = options.damp_center == DampCenter::x0;
        for (std::size_t j = 0; j < n; ++j) {
            const double center = options.damp_center == DampCenter::given ? options.center[j] : around_x0 ? x0_at(j) : 0.0;
            r.push_back(PowerOfTwo(-f)(options.damp * (center - x0_at(j))));
        }
    }
    std::vector<double> x = factors.solve(r);
    const PowerOfTwo back(f + m.exponent - m.sketch->exponent);
    for (std::size_t j = 0; j < n; ++j) {
        x[j] = x0_at(j) + scale(j) * back(x[j]);
        if (!std::isfinite(x[j])) return {};
    }
    return x;
}

}  // namespace lsmr::detail
