// solve() for a user's operator in device memory. Only in builds with CUDA; no CUDA header is needed to include this one.
#pragma once

#include "memory/cuda_context.hpp"
#include "solver/solve.hpp"

namespace lsmr {

// As solve() in solver/solve.hpp, the operator's products running on the context's stream. b and x lie in host memory, fp64; the context is
// the caller's.
template <class T>
SolveResult solve(const LinearOperator<T>& a, CudaContext& context, std::span<const double> b, std::span<double> x,
                  const SolveOptions& options, bool use_x0 = false, Observer* observer = nullptr, const LinearOperator<T>* k = nullptr);

}  // namespace lsmr
