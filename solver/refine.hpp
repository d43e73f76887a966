// Mixed precision: an fp32 solve, then corrections by the gradient in fp64.
//
// Correcting by the residual fails where A x = b cannot be met: r - A d is as large as r itself, and fp32 sees no more of it than before.
// The gradient g = A^T (b - A x) - lambda^2 (x - c) does vanish at the solution; it is formed in fp64 from the host's matrix, and
// (A^T A + lambda^2 I) d = g is solved in fp32 by CGLS with g as its linear term. A correction leaves about cond(A)^2 eps_32 of the error;
// where one does not halve the gradient, fp64 takes over from the best x.
#pragma once

#include <functional>
#include <span>

#include "solver/engine.hpp"
#include "solver/observer.hpp"
#include "solver/options.hpp"
#include "solver/result.hpp"

namespace lsmr::detail {

// narrow: in fp32. wide: makes an engine of the same matrix in fp64 when first asked. b, x, use_x0: as Engine::solve() has them. Every norm
// and claim is of x in fp64. The observer sees the fp32 solve, the corrections (of which only iteration, ar_norm and seconds are known), and
// what fp64 does, iterations counted on. Throws InputError for CG and a trust radius.
SolveResult refine(Engine& narrow, const std::function<Engine&()>& wide, std::span<const double> b, std::span<double> x,
                   const SolveOptions& options, bool use_x0, Observer* observer);

}  // namespace lsmr::detail
