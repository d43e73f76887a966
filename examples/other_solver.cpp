// The operator inside a solver that is not ours: a signal freed of noise by total variation, min 1/2 ||x - b||^2 + mu ||D x||_1, by the
// primal-dual method of Chambolle and Pock (J. Math. Imaging Vis. 40 (2011), DOI 10.1007/s10851-010-0251-1). D holds the differences
// between neighbours, n - 1 x n; the method needs ||D||_2, which power iteration finds first.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numbers>
#include <numeric>
#include <vector>

#include "operator/matrix_operator.hpp"

using lsmr::Coefficient;

int main() {
    const std::int64_t n = 40;
    std::vector<std::int64_t> rows, cols;
    std::vector<double> values;
    for (std::int64_t i = 0; i < n - 1; ++i) {
        rows.insert(rows.end(), {i, i});
        cols.insert(cols.end(), {i, i + 1});
        values.insert(values.end(), {-1.0, 1.0});
    }
    const auto matrix = std::make_shared<const lsmr::CsrMatrix>(lsmr::CsrMatrix::from_coo(n - 1, n, rows, cols, values));
    const std::unique_ptr<const lsmr::LinearOperator<double>> d = lsmr::make_cpu_operator<double>(matrix);
    // The operator is const and may be shared by threads; each of them has a workspace of its own.
    const std::unique_ptr<lsmr::Workspace> workspace = d->make_workspace(nullptr);

    // A product is y <- a A x + b y with a and b by pointer. Here they are constants, and 1 / ||v||, which scales v on its way.
    const Coefficient<double> zero{0.0, 0.0}, one{1.0, 1.0};
    // A product may leave sums behind that add up to ||y||^2, so that no other pass over y is needed.
    std::vector<double> sums(static_cast<std::size_t>(d->max_partials()));
    const auto norm_of = [&](const lsmr::NormPartials& p) { return std::sqrt(std::accumulate(p.sums, p.sums + p.count, 0.0)); };

    std::vector<double> u(n - 1), v(n, 0.0);
    v[0] = 1.0;  // not symmetric: the vector sought is antisymmetric, and must have a part in this one
    double sigma = 0, v_norm = 1;
    for (int k = 0; k < 3000; ++k) {
        const Coefficient<double> scale{1 / v_norm, 1 / v_norm};
        lsmr::NormPartials of_u{sums.data(), 0};
        d->apply(&scale, v.data(), &zero, u.data(), *workspace, &of_u);  // u <- D v / ||v||; what u held is not read
        sigma = norm_of(of_u);
        lsmr::NormPartials of_v{sums.data(), 0};
        d->apply_adjoint(&one, u.data(), &zero, v.data(), *workspace, &of_v);  // v <- D^T u
        v_norm = norm_of(of_v);
    }
    const double known_sigma = 2 * std::cos(std::numbers::pi / (2.0 * static_cast<double>(n)));
    std::printf("||D|| = %.12f, known %.12f\n", sigma, known_sigma);

    // b steps from 0 to 1 in the middle. The known answer: both halves stay flat, and move towards each other by mu / (n / 2).
    const double mu = 2.0, step = 0.99 / sigma;
    const Coefficient<double> plus{step, step}, minus{-step, -step};
    std::vector<double> b(n, 0.0), y(n - 1, 0.0);
    std::fill(b.begin() + n / 2, b.end(), 1.0);
    std::vector<double> x = b, ahead = b, before;
    for (int k = 0; k < 5000; ++k) {
        d->apply(&plus, ahead.data(), &one, y.data(), *workspace);  // y <- y + step D (2 x - x_before)
        for (double& value : y) value = std::clamp(value, -mu, mu);
        before = x;
        d->apply_adjoint(&minus, y.data(), &one, x.data(), *workspace);  // x <- x - step D^T y
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = (x[i] + step * b[i]) / (1 + step);
        for (std::size_t i = 0; i < x.size(); ++i) ahead[i] = 2 * x[i] - before[i];
    }
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) worst = std::fmax(worst, std::abs(x[i] - (b[i] + (b[i] > 0 ? -1 : 1) * mu / (n / 2))));
    std::printf("x steps from %.9f to %.9f, largest error %.1e\n", x.front(), x.back(), worst);
    return std::abs(sigma - known_sigma) < 1e-9 && worst < 1e-8 ? EXIT_SUCCESS : EXIT_FAILURE;
}
