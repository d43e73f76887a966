// What stands behind a PreparedProblem: one device, one precision.
#pragma once

#include <memory>
#include <span>

#include "operator/csr_matrix.hpp"
#include "solver/observer.hpp"
#include "solver/options.hpp"
#include "solver/result.hpp"

namespace lsmr::detail {

// The matrix as engines take it. `working` is the caller's matrix, or, where its entries lie near the ends of the range of doubles, a
// copy scaled by 2^exponent.
struct EngineMatrix {
    std::shared_ptr<const CsrMatrix> original;
    std::shared_ptr<const CsrMatrix> working;
    int exponent = 0;
    double max_abs = 0;    // of working
    double frobenius = 0;  // of working
};
EngineMatrix make_engine_matrix(std::shared_ptr<const CsrMatrix> a);

class Engine {
  public:
    virtual ~Engine() = default;
    virtual SolveResult solve(std::span<const double> b, std::span<double> x, const SolveOptions& options, bool use_x0,
                              Observer* observer) = 0;
    virtual const CsrMatrix& matrix() const = 0;
    virtual const PreparedInfo& info() const = 0;
    virtual MemoryUse memory() const = 0;
};

std::unique_ptr<Engine> make_cpu_engine(const EngineMatrix& a, const PrepareOptions& options);
// Throws DeviceError (unavailable) in builds without CUDA.
std::unique_ptr<Engine> make_cuda_engine(const EngineMatrix& a, const PrepareOptions& options);

}  // namespace lsmr::detail
