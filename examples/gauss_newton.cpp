// A nonlinear fit by Gauss-Newton: the Jacobian keeps its pattern while its values change, so one operator is kept and updated.
//
// E decays are measured at T times each, y_e(t) = a_e exp(-p t) + b_e exp(-q t). The rates p and q are common to all, the amplitudes are
// each decay's own: 2 + 2 E parameters, ordered p, q, a_0, b_0, a_1, ..., and four nonzeros in each of the E T rows of the Jacobian.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "operator/matrix_operator.hpp"
#include "solver/solve.hpp"

constexpr std::int64_t kDecays = 50, kTimes = 40, kRows = kDecays * kTimes, kParameters = 2 + 2 * kDecays;
using Vector = std::vector<double>;

double time_of(std::int64_t k) { return 0.1 * static_cast<double>(k); }

Vector model(const Vector& x) {
    Vector y;
    for (std::size_t e = 2; e < kParameters; e += 2) {
        for (std::int64_t k = 0; k < kTimes; ++k) y.push_back(x[e] * std::exp(-x[0] * time_of(k)) + x[e + 1] * std::exp(-x[1] * time_of(k)));
    }
    return y;
}

std::shared_ptr<const lsmr::CsrMatrix> jacobian(const Vector& x) {
    lsmr::HostBuffer<std::int64_t> offsets(kRows + 1);
    lsmr::HostBuffer<std::int32_t> columns(4 * kRows);
    lsmr::HostBuffer<double> values(4 * kRows);
    for (std::int64_t row = 0; row < kRows; ++row) {
        const std::int32_t e = static_cast<std::int32_t>(2 + 2 * (row / kTimes));
        const double t = time_of(row % kTimes), slow = std::exp(-x[0] * t), fast = std::exp(-x[1] * t);
        const double a = x[static_cast<std::size_t>(e)], b = x[static_cast<std::size_t>(e) + 1];
        offsets[row] = 4 * row;
        std::ranges::copy(std::initializer_list<std::int32_t>{0, 1, e, e + 1}, columns.begin() + 4 * row);
        std::ranges::copy(std::initializer_list<double>{-t * a * slow, -t * b * fast, slow, fast}, values.begin() + 4 * row);
    }
    offsets[kRows] = 4 * kRows;
    return std::make_shared<const lsmr::CsrMatrix>(
        lsmr::CsrMatrix::from_csr(kRows, kParameters, std::move(offsets), std::move(columns), std::move(values)));
}

int main() {
    Vector truth(kParameters), x(kParameters, 1.0), step(kParameters);
    for (std::size_t j = 2; j < truth.size(); ++j) truth[j] = 1.0 + 0.1 * static_cast<double>(j * 7 % 10);
    truth[0] = 0.5, truth[1] = 3.0;
    x[0] = 0.7, x[1] = 2.0;  // the start: rates that are off, every amplitude 1
    const Vector measured = model(truth);

    lsmr::SolveOptions options;
    options.atol = options.btol = 1e-10;
    const auto a = lsmr::make_cpu_operator<double>(jacobian(x));
    for (int k = 1; k <= 20; ++k) {
        if (k > 1) a->update(jacobian(x));  // same shape; kernels and buffers stay, workspaces adapt
        Vector r = model(x);
        std::ranges::transform(measured, r, r.begin(), std::minus{});
        const lsmr::SolveResult result = lsmr::solve<double>(*a, r, step, options);  // min ||r - J step||
        if (!result.converged()) {
            std::printf("step %d: %s\n", k, result.message.c_str());
            return EXIT_FAILURE;
        }
        std::ranges::transform(x, step, x.begin(), std::plus{});
        std::printf("%2d  ||r|| %.3e  ||step|| %.3e  %3lld iterations\n", k, result.norms.b, result.norms.x,
                    static_cast<long long>(result.iterations));
        if (result.norms.x < 1e-10) break;
    }
    double worst = 0;
    for (std::size_t j = 0; j < x.size(); ++j) worst = std::fmax(worst, std::abs(x[j] - truth[j]));
    std::printf("rates %.12g and %.12g, largest error of a parameter %.1e, %lld updates\n", x[0], x[1], worst,
                static_cast<long long>(a->version()));
    return worst < 1e-8 ? EXIT_SUCCESS : EXIT_FAILURE;
}
