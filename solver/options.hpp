// What a caller chooses. Each default is written here once; the command line's help takes it from here.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "operator/operator_options.hpp"

namespace lsmr {

// automatic: by the problem (solver/method_choice.hpp).
enum class Method { automatic, lsmr, lsqr, cgls, cg };
// The point c of the damping term lambda^2 ||x - c||^2; given: SolveOptions::center.
enum class DampCenter { zero, x0, given };
// mixed: fp32, corrected in fp64 (solver/refine.hpp).
enum class Precision { fp64, fp32, mixed };
enum class DeviceKind { automatic, cpu, cuda };
// How iterations run on a GPU. graph: a few kernels each, recorded and replayed. persistent: many iterations of LSMR, LSQR or CGLS in one kernel, for
// small matrices (solver/cuda/persistent_kernel.hpp).
enum class ExecutorKind { automatic, graph, persistent };

// Powers of two that even out norms. columns: the iteration sees A D and D^-1 x, the problem stays. rows: rows are weighted, which
// changes the least-squares problem wherever A x = b cannot be met.
enum class Scaling { none, columns, rows, both };

// M near A^T A, for LSMR, LSQR and CGLS. columns: its diagonal, the squared norms of the columns; blocks: blocks on its diagonal. sketch: R^T R
// of a random sketch of A (solver/sketch.hpp). cholesky: an incomplete factor of A^T A (solver/incomplete_cholesky.hpp).
// given: the caller's K, M = (K K^T)^-1.
enum class Preconditioner { none, columns, blocks, sketch, cholesky, given };

// How the problem is set up: chosen once, kept by a PreparedProblem.
struct PrepareOptions {
    DeviceKind device = DeviceKind::automatic;
    int device_index = 0;                    // which GPU, where the kind is cuda
    Precision precision = Precision::fp64;   // of the matrix copy and the vectors; scalars are always fp64
    SpmvKind spmv = SpmvKind::automatic;
    StorageKind storage = StorageKind::automatic;
    ExecutorKind executor = ExecutorKind::automatic;
    // On a GPU: kernels forced over the choice, as a plan or a saved state names them; and the narrow forms that may be taken.
    std::optional<SpmvChoice> forward_kernel = std::nullopt;
    std::optional<SpmvChoice> adjoint_kernel = std::nullopt;
    NarrowKind narrow = NarrowKind::lossless;
    bool deterministic = false;              // kernels by rule, not by timing; refuse, in words, a product whose bits may vary
    bool allow_fallback = true;              // before the solve: dual -> single -> CPU, each step said
    std::int64_t gpu_memory_limit_bytes = 0;  // 0: what the device has free
    int threads = 0;                         // 0: what OpenMP says
    // Products that the storage must pay for; 0: not known, many are assumed.
    std::int64_t expected_products = 0;
    bool separate_products = false;  // the solves will be CGLS or CG, which gain nothing by one pass over A; on the CPU
    // The order of rows and columns in the operator; automatic: one that pays. b, x and all else stay in the caller's order.
    OrderKind reorder = OrderKind::automatic;
    std::shared_ptr<const MatrixOrder> order = nullptr;  // that of another problem with this structure (PreparedInfo::order), over reorder
    // Iterations of all solves together that an order must pay for; 0: half of expected_products, and where that is not known either, 1,000.
    std::int64_t expected_iterations = 0;
    Scaling scale = Scaling::none;
    Preconditioner preconditioner = Preconditioner::none;
    std::int64_t block_size = 0;       // columns of a block, 1 to 32; 0: neighbours that have entries in the same rows
    std::uint64_t sketch_seed = 1;
    double cholesky_drop = -1;         // entries of the factor below it, beside a diagonal of 1, are dropped; -1: the pattern of A^T A is kept
    double cholesky_shift = 0;         // of that diagonal, to begin with; raised where the factor breaks down
    std::shared_ptr<const CsrMatrix> preconditioner_matrix;  // K, cols x cols, nonsingular
    std::int64_t preconditioner_limit_bytes = std::int64_t{2} << 30;  // of the dense sketch, 4 cols x cols, and of the incomplete factor
    double preconditioner_damp = 0.0;  // the damping that M allows for; solves with another one are right too
    // The next three change the problem; spans are read while it is set up. In every norm and test, A and b stand for the weighted ones.
    std::span<const double> weights;         // w_i >= 0, one for each row: ||b - A x||^2 becomes sum w_i (b - A x)_i^2
    std::span<const double> column_damp;     // d_j >= 0, one for each column: adds sum d_j^2 (x_j - c_j)^2
    std::shared_ptr<const CsrMatrix> regulariser;  // L: adds weight^2 ||L (x - c)||^2, c as of the damping. Null: none
    double regulariser_weight = 1.0;
};

// What the options say about the operator of A, whose values are scaled by 2^exponent.
OperatorOptions operator_options(const PrepareOptions& options, int exponent);
// The same for an operator beside it, as of regularising rows: small, so its kernels are taken by rule and its bits do not depend on timing.
// row, col: the order of its lines.
OperatorOptions small_operator_options(const PrepareOptions& options, int exponent, const std::vector<std::int32_t>& row, const std::vector<std::int32_t>& col);

// One solve.
struct SolveOptions {
    Method method = Method::lsmr;
    double damp = 0.0;                          // lambda >= 0
    DampCenter damp_center = DampCenter::zero;
    std::span<const double> center;             // cols values, for DampCenter::given; the caller keeps them
    double atol = 1e-6;                         // relative error in A
    double btol = 1e-6;                         // relative error in b
    double conlim = -1.0;                       // -1: 1e8 in fp64, 1e6 in fp32; 0: off
    double ar_bound = 0.0;                      // test 2 also passes at ||A^T r|| <= this
    double ar_relative = 0.0;                   // and at ||A^T r|| <= this ||A^T r_0||, r_0 that of the start
    std::int64_t passes = 1;                    // iterations in a row in which a test on residuals or condition must pass
    std::int64_t stall_window = -1;             // iterations without progress; -1: max(2000, 2 min(rows, cols)); 0: off
    bool estimate_variances = false;            // LSQR only: SolveResult::variances
    // LSMR and LSQR: each new v is made orthogonal to so many before it, kept where the vectors live; kAll: to all of them. Fewer iterations
    // where cond(A) is large, for 4 n flops and 2 n values read for each vector.
    static constexpr std::int64_t kAll = -1;
    std::int64_t reorthogonalize = 0;
    std::int64_t basis_limit_bytes = std::int64_t{2} << 30;  // of the vectors kept; more are refused in words
    double trust_radius = 0.0;                  // ends the solve where ||x - x0|| reaches it, on that sphere; 0: off
    std::int64_t max_iterations = -1;           // -1: max(4 min(rows, cols), 200); four times that for all solves of mixed precision
    double time_limit_seconds = std::numeric_limits<double>::infinity();
};

// The values that -1 stands for.
double resolved_conlim(const SolveOptions& options, Precision precision);
std::int64_t resolved_max_iterations(const SolveOptions& options, std::int64_t rows, std::int64_t cols, Precision precision = Precision::fp64);
std::int64_t resolved_stall_window(const SolveOptions& options, std::int64_t rows, std::int64_t cols);
// Throws InputError for damp < 0, tolerances that are negative or NaN, and the like.
void check_options(const SolveOptions& options);

const char* name(Method method);
const char* name(DampCenter center);
const char* name(Precision precision);
const char* name(ExecutorKind executor);
const char* name(Scaling scale);
const char* name(Preconditioner preconditioner);

}  // namespace lsmr
