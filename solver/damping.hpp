// The choice of lambda: from the bidiagonalisation of A that an undamped LSQR makes anyway, without products of its own.
//
// With A V_k = U_{k+1} B_k and r_0 = beta_1 u_1, the damped problem on the Krylov space is min ||beta_1 e_1 - B_k y||^2 + lambda^2 ||y||^2 for
// every lambda at once; ||r||, ||x - c|| and the filter factors come from the singular values of B_k, and x = c + V_k y. All v are kept and
// each new one is made orthogonal to them: otherwise B_k would hold copies of singular values, which the trace would count.
// D. P. O'Leary, J. A. Simmons, SIAM J. Sci. Stat. Comput. 2 (1981), DOI 10.1137/0902037.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "solver/observer.hpp"
#include "solver/options.hpp"
#include "solver/result.hpp"
#include "solver/solve.hpp"

namespace lsmr {

// gcv: least m ||r||^2 / (m - t)^2, t = sum sigma_i^2 / (sigma_i^2 + lambda^2) over the singular values of B_k, m the rows of weight above 0
//   (G. Golub, M. Heath, G. Wahba, Technometrics 21 (1979), DOI 10.1080/00401706.1979.10489751).
// discrepancy: ||r|| = deviation sqrt(m) (V. A. Morozov).
// lcurve: the largest curvature of (log ||r||, log ||x - c||) (P. C. Hansen, SIAM Review 34 (1992), DOI 10.1137/1034115).
enum class DampRule { gcv, discrepancy, lcurve };
const char* name(DampRule rule);

struct DampSearch {
    DampRule rule = DampRule::gcv;
    double deviation = 0;  // for discrepancy: the standard deviation of the errors of b
    // Candidates, evenly in the logarithm; count 0: any lambda.
    double low = 0;
    double high = 0;
    std::int64_t count = 0;
};

struct DampRow {
    double damp = 0;
    double r = 0;           // ||b - A x||
    double x = 0;           // ||x - c||
    double gcv = 0;
    double curvature = 0;   // of the L-curve; NaN at the ends
};

struct DampChoice {
    double damp = 0;
    std::vector<DampRow> table;  // of the candidates; without any, 40 lambdas across the singular values
    std::int64_t steps = 0;      // k
    bool settled = false;        // more steps would not change lambda by 1 %, nor x beyond atol; or there are none
    std::vector<std::string> notes;
    SolveResult result;          // of the damped solve that ends it, which begins at c + V_k y; iterations: k and those of that solve
};

// As problem.solve() with the lambda that is found; options.damp must be 0. The centre is where the iteration starts: zero, or x0 with
// DampCenter::x0. options.max_iterations bounds k and, apart, the damped solve; options.basis_limit_bytes bounds k too.
// Throws InputError for what does not go with it: another centre, scaled columns, a preconditioner, CG, regularising rows, a trust radius.
DampChoice solve_with_chosen_damp(PreparedProblem& problem, std::span<const double> b, std::span<double> x, const SolveOptions& options,
                                  const DampSearch& search, bool use_x0 = false, Observer* observer = nullptr);

}  // namespace lsmr
