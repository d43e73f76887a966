// LSMR as a good engineer writes it on a GPU in an afternoon: what ours is compared with. No part of the library, and nothing of its
// solver: cuSPARSE on both stored orientations, cuBLAS for the vectors, scalars on the host. No CUDA header is needed to include this one.
#pragma once

#include <memory>

#include "bench/solver_under_test.hpp"
#include "memory/cuda_context.hpp"

namespace lsmr {

// The context must outlive it. Throws InputError where cuSPARSE's 32-bit indices do not reach, OutOfMemory.
std::unique_ptr<SolverUnderTest> make_textbook_solver(const CsrMatrix& a, Precision precision, const CudaContext& context);

}  // namespace lsmr
