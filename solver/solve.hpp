// The entry points: solve min ||b - A x||^2 + lambda^2 ||x - c||^2 for a sparse matrix, weighted and regularised as PrepareOptions say, or
// for any LinearOperator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "operator/linear_operator.hpp"
#include "solver/method_choice.hpp"
#include "solver/observer.hpp"
#include "solver/options.hpp"
#include "solver/result.hpp"
#include "solver/transform.hpp"

namespace lsmr {

namespace detail {
class Engine;
struct EngineMatrix;
}

// A matrix set up for solving: operator, plan and buffers, on one device, kept for any number of solves.
// One solve at a time; several objects may be used from several threads.
class PreparedProblem {
  public:
    // Chooses the device, uploads, builds the other orientation. The matrix is shared, not copied.
    // Throws DeviceError (unavailable) when options.device is cuda and there is none, OutOfMemory when it does not fit and
    // fall-back is not allowed, InputError when options contradict each other.
    PreparedProblem(std::shared_ptr<const CsrMatrix> a, const PrepareOptions& options);
    ~PreparedProblem();
    PreparedProblem(PreparedProblem&&) noexcept;
    PreparedProblem& operator=(PreparedProblem&&) noexcept;

    // b: rows values; x: cols values, the start x0 on entry where `use_x0`, the solution on return.
    // All in host memory, fp64 whatever the precision of the solve. x may not overlap b. Blocks until done.
    // Throws InputError for wrong lengths, values that are not finite, or a method that does not fit (CG: A is not symmetric);
    // exceptions of the observer pass through.
    // resume: a checkpoint of the same problem with the same options (limits may differ): the solve goes on there, to the bits that it
    // would have had uninterrupted. Its first record is that of the next iteration. Throws InputError, naming what changed.
    SolveResult solve(std::span<const double> b, std::span<double> x, const SolveOptions& options, bool use_x0 = false,
                      Observer* observer = nullptr, const Checkpoint* resume = nullptr);

    // (A^T A + G^T G + lambda^2 I) z = g by CGLS, A weighted and G the rows that regularise, from z = 0 to ||g - ... z|| <= options.atol ||g||.
    // g, z: cols values. options.method, btol and the other tests on residuals are not used; a preconditioner is. In fp64 where the problem's
    // precision is mixed. Throws InputError as solve() does. norms: r is ||A z||, ar the ||g - ... z||.
    SolveResult solve_normal(std::span<const double> g, std::span<double> z, const SolveOptions& options, Observer* observer = nullptr);

    // The undamped solve that a choice of lambda looks at (solver/damping.hpp), in fp64 where the precision is mixed; options.method is lsqr, and
    // options.reorthogonalize keeps its vectors. residual_norm: ||b - A x0|| of the weighted problem, x0 empty: zero. add_kept: x <- x + V y
    // with the vectors that were kept.
    SolveResult bidiagonalize(std::span<const double> b, std::span<double> x, const SolveOptions& options, bool use_x0, Observer* observer);
    double residual_norm(std::span<const double> b, std::span<const double> x0) const;
    void add_kept(std::span<const double> y, std::span<double> x);
    double frobenius() const;  // ||A||_F of the weighted problem

    // k right-hand sides, one after another on the same operator and buffers: b is rows x k, x is cols x k, column-major.
    // observer sees the columns in turn: each begins again at iteration 1. When it stops one, the columns after it are not solved and
    // the result has fewer than k entries.
    std::vector<SolveResult> solve_many(std::span<const double> b, std::span<double> x, std::int64_t k,
                                        const SolveOptions& options, bool use_x0 = false, Observer* observer = nullptr);

    // Weighs the rows by those of the options times factors, one for each row, at least 0: the operator is updated in place, and scaling
    // and preconditioner are made anew. Solves after it are those of a problem that was set up with these weights.
    // Throws as the constructor does; where it throws, solves need a reweight() that succeeds.
    void reweight(std::span<const double> factors);

    // What solve() would take for options.method.
    MethodChoice choose_method(const SolveOptions& options) const;
    const CsrMatrix& matrix() const;
    // As given; its spans are copies.
    const PrepareOptions& options() const { return options_; }
    const PreparedInfo& info() const;
    // Device pool, all zero on the CPU.
    MemoryUse memory() const;

  private:
    SolveIdentity identity(std::span<const double> b, std::span<const double> x0, const SolveOptions& options) const;

    // The transform of the matrix as the options, with these weights, have it; and of that what the engine takes. Notes go to info.
    detail::EngineMatrix transform(std::shared_ptr<const CsrMatrix> a, std::span<const double> weights, SetupSeconds& setup);
    // info_ is that of the engine, its phases of the set-up added to those before it and those of the transform.
    void describe(const PreparedInfo& engine, const SetupSeconds& transform);
    // The engine in fp64: for mixed precision made when first asked for.
    detail::Engine& wide_engine();

    PrepareOptions options_;
    std::vector<double> weights_, column_damp_;  // of the options
    Transform transform_;  // what of it each solve needs: R, D and G
    std::string preconditioner_note_;
    std::vector<std::string> fallbacks_;
    std::unique_ptr<detail::Engine> engine_;
    std::unique_ptr<detail::Engine> wide_engine_;  // of mixed precision
    PreparedInfo info_;
};

// Throws InputError naming the first entry of `values` that is not finite.
void check_finite(std::span<const double> values, const char* what);

// For a user's operator in host memory: b has rows values, x cols values (the start on entry where use_x0). k: a preconditioner K, cols x cols,
// M = (K K^T)^-1 near A^T A, for lsmr, lsqr and cgls; null: none.
template <class T>
SolveResult solve(const LinearOperator<T>& a, std::span<const T> b, std::span<T> x, const SolveOptions& options,
                  bool use_x0 = false, Observer* observer = nullptr, const LinearOperator<T>* k = nullptr);

}  // namespace lsmr
