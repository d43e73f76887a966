// The sentences of a result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "solver/driver.hpp"

namespace lsmr {

std::string suspect_words(Suspect suspect, std::int64_t iteration) {
    const char* what = "a value";
    switch (suspect) {
        case Suspect::beta: what = "||u|| (beta), after the product with A,"; break;
        case Suspect::alpha: what = "||v|| (alpha), after the product with A^T,"; break;
        case Suspect::coefficients: what = "a coefficient of the recurrence"; break;
        case Suspect::iterate: what = "x"; break;
        case Suspect::none: break;
    }
    const std::string when = iteration > 0 ? fmt::format("in iteration {}", iteration) : "before the first iteration";
    return fmt::format("{} is not finite {}", what, when);
}

std::string outcome_words(Status status, const SolveResult& result, const SolveOptions& options, double a_norm, double x0_norm,
                          double ar_bound, double eps) {
    const Norms& n = result.norms;
    const std::string sentence = status_sentence(status);
    const double r = n.r_damped;
    switch (status) {
        case Status::compatible:
            return fmt::format("{}: ||r|| = {:.3e} <= btol ||b|| + atol ||A|| ||x|| = {:.3e}", sentence, r,
                               options.btol * n.b + options.atol * a_norm * n.x);
        case Status::least_squares:
            if (n.ar > 2 * options.atol * a_norm * r) {  // the other bound decided; the audit allows twice each
                return fmt::format("{}: ||A'r|| = {:.3e}, asked for {:.3e}", sentence, n.ar, ar_bound);
            }
            return fmt::format("{}: ||A'r|| / (||A|| ||r||) = {:.3e}, atol = {:.3e}", sentence, n.ar / r / a_norm, options.atol);
        case Status::compatible_eps:
            return fmt::format("{}: ||r|| / (||A|| {} + ||b||) = {:.3e}, machine precision {:.1e}", sentence, x0_norm > n.x ? "||x0||" : "||x||",
                               r / (a_norm * std::max(n.x, x0_norm) + n.b), eps);
        case Status::least_squares_eps:
            // Where ||r|| is small beside what it was formed of, the bound of the audit decided.
            if (n.ar > 2 * std::max(options.atol, eps) * a_norm * r) {
                const bool of_x0 = n.b == 0 && x0_norm > n.x;
                return fmt::format("{}: ||A'r|| / (||A|| (||A|| {} + ||b||)) = {:.3e}, machine precision {:.1e}", sentence, of_x0 ? "||x0||" : "||x||",
                                   n.ar / (a_norm * (a_norm * (of_x0 ? x0_norm : n.x) + n.b)), eps);
            }
            return fmt::format("{}: ||A'r|| / (||A|| ||r||) = {:.3e}, machine precision {:.1e}", sentence, n.ar / r / a_norm, eps);
        case Status::condition_limit:
        case Status::condition_eps: return fmt::format("{}: the estimate is {:.2e}", sentence, n.cond_estimate);
        case Status::breakdown:
            if (options.method == Method::cg) return fmt::format("{}: p^T A p is not above 0, so A is not positive definite", sentence);
            if (options.reorthogonalize != 0) {
                return fmt::format("{}: the kept vectors are no longer orthogonal to each other: keep more of them, or none", sentence);
            }
            return fmt::format("{}: the products with A and with A^T do not belong together", sentence);
        case Status::trust_bound: return fmt::format("{}: ||x - x0|| = {:.6e}, the radius is {:g}", sentence, n.dx, options.trust_radius);
        case Status::audit_refused:
            if (std::isnan(n.ar_estimated)) {
                return fmt::format("{}: recomputed ||r|| = {:.3e}; estimated {:.3e}", sentence, r, n.r_estimated);
            }
            return fmt::format("{}: recomputed ||r|| = {:.3e}, ||A'r|| = {:.3e}; estimated {:.3e}, {:.3e}", sentence, r, n.ar,
                               n.r_estimated, n.ar_estimated);
        default: return sentence;
    }
}

}  // namespace lsmr
