// Solves with a matrix that the CPU keeps in another way than as A and A^T, beside those with both.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "solver_suite.hpp"

namespace lsmr::test {

// So many threads in loops of OpenMP, until the end of the scope.
class Threads {
  public:
    explicit Threads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
    ~Threads() { omp_set_num_threads(before_); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

  private:
    int before_;
};

// Iterates to the given tolerances, and to the same bits at every solve, with any number of threads.
inline void suite_iterates_as_dual(const PrepareOptions& base, const Matrix& a, double tolerance_fp64, double tolerance_fp32) {
    const Vector b = products::random_vector(a->rows(), 92);
    for (const Precision precision : {Precision::fp64, Precision::fp32}) {
        const double tolerance = precision == Precision::fp64 ? tolerance_fp64 : tolerance_fp32;
        for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
            for (const double damp : {0.0, 0.3}) {
                for (const int threads : {1, 3, 17}) {
                    CAPTURE(name(precision));
                    CAPTURE(name(method));
                    CAPTURE(threads);
                    PrepareOptions own = base;
                    own.threads = threads;
                    own.precision = precision;
                    PrepareOptions dual = own;
                    dual.storage = StorageKind::dual;
                    const SolveOptions options = exactly(method, 12, damp);
                    PreparedProblem of_own(a, own), of_dual(a, dual);
                    CHECK(of_own.info().plan.storage == base.storage);
                    Vector x(static_cast<std::size_t>(a->cols()), 0.0), x2 = x;
                    const SolveResult r = of_own.solve(b, x, options), r2 = of_dual.solve(b, x2, options);
                    CHECK(r.iterations == r2.iterations);
                    double difference = 0, size = 0;
                    for (std::size_t j = 0; j < x.size(); ++j) {
                        difference = std::max(difference, std::abs(x[j] - x2[j]));
                        size = std::max(size, std::abs(x2[j]));
                    }
                    CHECK(difference <= tolerance * size);
                    CHECK(r.norms.r == doctest::Approx(r2.norms.r).epsilon(tolerance));
                    Vector again(x.size(), 0.0);
                    of_own.solve(b, again, options);
                    CHECK(again == x);
                }
            }
        }
    }
}

}  // namespace lsmr::test
