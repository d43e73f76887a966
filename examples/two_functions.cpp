// An A that is two functions, y = A x and x = A^T y, solved by LSMR: the derivative of a measured curve.
//
// A is integration over [0, 1] in n steps of h: y_i = h (x_0 + ... + x_i). As a matrix it is full below its diagonal, n^2 / 2 entries;
// as a running sum it costs n additions and no memory. Its transpose sums from the other end.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numbers>
#include <vector>

#include "operator/function_operator.hpp"
#include "solver/solve.hpp"

int main() {
    const std::int64_t n = 400;
    const double h = 1.0 / static_cast<double>(n);
    const auto integrate = [n, h](const double* x, double* y) {
        double sum = 0;
        for (std::int64_t i = 0; i < n; ++i) y[i] = h * (sum += x[i]);
    };
    const auto integrate_from_the_end = [n, h](const double* y, double* x) {
        double sum = 0;
        for (std::int64_t i = n - 1; i >= 0; --i) x[i] = h * (sum += y[i]);
    };
    const lsmr::FunctionOperator<double> a(n, n, integrate, integrate_from_the_end);

    // Do the two belong together? <A p, q> = <p, A^T q> for any p and q; a wrong adjoint is the usual reason why a solve goes nowhere.
    std::vector<double> p(n), q(n), ap(n), atq(n);
    for (std::size_t i = 0; i < p.size(); ++i) {
        p[i] = std::sin(1.0 + 3.0 * static_cast<double>(i));
        q[i] = std::cos(2.0 + 5.0 * static_cast<double>(i));
    }
    integrate(p.data(), ap.data());
    integrate_from_the_end(q.data(), atq.data());
    double left = 0, right = 0, size = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        left += ap[i] * q[i];
        right += p[i] * atq[i];
        size += std::abs(ap[i] * q[i]);
    }
    const bool belong = std::abs(left - right) <= 1e-12 * size;
    std::printf("<A p, q> = %.15g, <p, A^T q> = %.15g\n", left, right);

    // The curve sin(2 pi t), measured at t = h, 2 h, ..., 1. What A reaches exactly are the means of its derivative over the steps.
    const double w = 2 * std::numbers::pi;
    std::vector<double> curve(n), slope(n);
    for (std::size_t i = 0; i < curve.size(); ++i) curve[i] = std::sin(w * h * static_cast<double>(i + 1));
    lsmr::SolveOptions options;
    options.atol = options.btol = 1e-12;
    const lsmr::SolveResult result = lsmr::solve<double>(a, curve, slope, options);

    double worst = 0;
    for (std::size_t i = 0; i < slope.size(); ++i) {
        worst = std::fmax(worst, std::abs(slope[i] - (curve[i] - (i > 0 ? curve[i - 1] : 0.0)) / h));
    }
    std::printf("%s\n%lld iterations, ||b - A x|| = %.1e, largest error of the slope %.1e (it goes up to %.2f)\n", result.message.c_str(),
                static_cast<long long>(result.iterations), result.norms.r, worst, w);
    return belong && result.converged() && worst < 1e-6 ? EXIT_SUCCESS : EXIT_FAILURE;
}
