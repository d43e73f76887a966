// What stands behind a PreparedProblem: one device, one precision.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "solver/incomplete_cholesky.hpp"
#include "solver/observer.hpp"
#include "solver/options.hpp"
#include "solver/preconditioner.hpp"
#include "solver/result.hpp"
#include "solver/sketch.hpp"
#include "solver/transform.hpp"

namespace lsmr::detail {

// The matrix as engines take it. `working` and `below` are those of the transform, or, where entries lie near the ends of the range of
// doubles, copies scaled by 2^exponent.
struct EngineMatrix {
    std::shared_ptr<const CsrMatrix> original;
    std::shared_ptr<const CsrMatrix> working;
    std::shared_ptr<const CsrMatrix> below;  // regularising rows; null: none
    std::vector<double> column_scale;        // empty: ones
    int exponent = 0;
    std::shared_ptr<const BlockPreconditioner> preconditioner;  // of working, below and column_scale; null: none
    std::shared_ptr<const SketchPlan> sketch;            // the same, in its place: each engine factors it
    std::shared_ptr<const Sketch> host_sketch;           // the factors, once an engine on the CPU has made them
    std::shared_ptr<const IncompleteCholesky> cholesky;  // the same, in the place of both
    // False: max_abs is that of some entries, and the norms are not known. Then `working` is `original`, and all between them is as it is here.
    bool sized = true;
    double max_abs = 0;          // of working and below
    double frobenius = 0;        // of both, one above the other
    double claim_frobenius = 0;  // the same before columns were scaled
    double data_frobenius = 0;   // of working alone, before columns were scaled
};
EngineMatrix make_engine_matrix(std::shared_ptr<const CsrMatrix> original, const Transform& transform);
// Of one that is not sized, once the sizes of the original's entries are known; `working` may then be a scaled copy.
EngineMatrix sized(const EngineMatrix& a, const EntrySizes& entries);

// Of checkpoints: what tells solves apart, asked for only when one is made or used, and the one to go on with.
struct Resumption {
    std::function<SolveIdentity()> identity;  // null: none can be made
    const Checkpoint* from = nullptr;         // its identity has been checked
};

class Engine {
  public:
    virtual ~Engine() = default;
    // b: [R b; G c], a value for each row of working and below. linear: as in DriveProblem.
    virtual SolveResult solve(std::span<const double> b, std::span<const double> linear, std::span<double> x, const SolveOptions& options,
                              bool use_x0, Observer* observer, const Resumption& resumption) = 0;
    // x <- x + sum_k y_k v_k with the vectors that the last solve kept (SolveOptions::reorthogonalize).
    virtual void add_kept(std::span<const double> y, std::span<double> x) = 0;
    // Another matrix of the same shape, with or without regularising rows as before, in the place of the present one: device, kernels and
    // buffers stay. Where it throws, the engine holds no matrix until an update succeeds.
    virtual void update(const EngineMatrix& a) = 0;
    virtual const EngineMatrix& engine_matrix() const = 0;
    virtual const CsrMatrix& matrix() const = 0;
    virtual const PreparedInfo& info() const = 0;
    virtual MemoryUse memory() const = 0;
};

// What entries are scaled by before they are narrowed to fp32, so that the largest is near 1; fp64 is not scaled.
int narrowing_exponent(const EngineMatrix& a, Precision precision);
// Whether an operator whose values were scaled by 2^exponent can take those of `a` too: far enough from the ends of the range of fp32.
bool keeps_exponent(const EngineMatrix& a, Precision precision, int exponent);

// The matrix must be sized.
std::unique_ptr<Engine> make_cpu_engine(const EngineMatrix& a, const PrepareOptions& options);
// Sizes a matrix that is not while it uploads it. Throws DeviceError (unavailable) in builds without CUDA.
std::unique_ptr<Engine> make_cuda_engine(const EngineMatrix& a, const PrepareOptions& options);

}  // namespace lsmr::detail
