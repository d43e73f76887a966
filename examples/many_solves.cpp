// One PreparedProblem, many right-hand sides: an Observer follows each solve and stops one of them, and an exception that leaves the
// observer comes out of solve() as it was thrown, after which the problem is as good as before.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "solver/solve.hpp"

using Vector = std::vector<double>;

struct Cancelled {
    std::int64_t iteration;
};

struct Follower final : lsmr::Observer {
    std::int64_t stop_at = -1, throw_at = -1;  // iterations; -1: never
    std::vector<double> history;               // ||r|| of every iteration
    lsmr::Verdict on_iterations(std::span<const lsmr::IterationRecord> records) override {
        for (const lsmr::IterationRecord& record : records) {
            history.push_back(record.r_norm);
            if (record.iteration == throw_at) throw Cancelled{record.iteration};
            if (record.iteration == stop_at) return lsmr::Verdict::stop;
        }
        return lsmr::Verdict::go_on;
    }
};

int main() {
    const std::int64_t rows = 400, cols = 100;  // five entries a row; b_k = A x_k with x_k known
    std::mt19937_64 random(1);
    std::vector<std::int64_t> i, j;
    Vector values;
    for (std::int64_t entry = 0; entry < 5 * rows; ++entry) {
        i.push_back(entry / 5);
        j.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(cols)));
        values.push_back(static_cast<double>(random() % 1000) / 500.0 - 1.0);
    }
    const auto a = std::make_shared<const lsmr::CsrMatrix>(lsmr::CsrMatrix::from_coo(rows, cols, i, j, values));
    lsmr::PrepareOptions prepare;
    prepare.device = lsmr::DeviceKind::cpu;  // asks the observer after every iteration; a GPU runs some iterations ahead of it
    lsmr::PreparedProblem problem(a, prepare);
    lsmr::SolveOptions options;
    options.atol = options.btol = 1e-12;
    bool good = true;
    for (int k = 0; k < 6; ++k) {
        Vector truth(cols), b(rows, 0.0), x(cols);
        for (std::size_t c = 0; c < truth.size(); ++c) truth[c] = std::sin((k + 1.0) * static_cast<double>(c));
        for (std::size_t e = 0; e < values.size(); ++e) b[static_cast<std::size_t>(i[e])] += values[e] * truth[static_cast<std::size_t>(j[e])];

        Follower follower;
        if (k == 3) follower.stop_at = 10;
        if (k == 5) follower.throw_at = 7;
        try {
            const lsmr::SolveResult result = problem.solve(b, x, options, false, &follower);
            double worst = 0;
            for (std::size_t c = 0; c < x.size(); ++c) worst = std::fmax(worst, std::abs(x[c] - truth[c]));
            std::printf("%d  %3zu iterations seen, ||r|| %.1e, error %.1e: %s\n", k, follower.history.size(), result.norms.r, worst,
                        result.message.c_str());
            good &= static_cast<std::int64_t>(follower.history.size()) == result.iterations;
            // The iteration that is under way when the observer says stop is finished and handed over: 10 or 11 of them.
            if (k == 3) good &= result.status == lsmr::Status::stopped && (result.iterations == 10 || result.iterations == 11);
            else good &= k != 5 && result.converged() && worst < 1e-8;
        } catch (const Cancelled& cancelled) {
            std::printf("%d  cancelled at iteration %lld\n", k, static_cast<long long>(cancelled.iteration));
            good &= k == 5 && cancelled.iteration == 7;
            // The same solve, undisturbed, gives the bits of a problem that never saw an exception.
            Vector again(cols), fresh(cols);
            good &= problem.solve(b, again, options).converged();
            lsmr::PreparedProblem(a, prepare).solve(b, fresh, options);
            good &= again == fresh;
        }
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
