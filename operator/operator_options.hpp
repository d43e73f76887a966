// Choices about the matrix operator, and the plan that came of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "operator/order_choice.hpp"
#include "operator/setup_seconds.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr {

struct MatrixOrder;

// Which kernel computes the products.
enum class SpmvKind {
    automatic,
    own,       // our kernels: fixed order, same bits at every run
    cusparse,  // cusparseSpMV, CSR_ALG2 on a stored orientation (fixed order); transposed for single storage (order varies)
};
// dual keeps CSR(A) and CSC(A) (= CSR of A^T); single keeps CSR(A) and multiplies by A^T from it; one_pass keeps A once, for a pass that gives
// A x and A^T (A x) together: on a GPU for matrices with few columns, on a CPU for near ones; tiles keeps both on a CPU, in tiles without a transpose:
// for large matrices whose entries are scattered.
enum class StorageKind { automatic, dual, single, one_pass, tiles };
// Narrow forms of columns and values: lossless takes those that change no product, where they pay; none keeps 32-bit columns and full values;
// fp32_values rounds fp64 values to fp32 in storage, while vectors and arithmetic stay fp64 (A is then another matrix, and the plan says so).
enum class NarrowKind { lossless, none, fp32_values };

const char* name(SpmvKind kind);
const char* name(StorageKind kind);
const char* name(NarrowKind kind);

struct OperatorOptions {
    SpmvKind spmv = SpmvKind::automatic;
    StorageKind storage = StorageKind::automatic;
    // Forced kernels, over all other choices: of A x, and of A^T y. On the CPU those of is_format() only.
    std::optional<SpmvChoice> forward = std::nullopt;
    std::optional<SpmvChoice> adjoint = std::nullopt;
    NarrowKind narrow = NarrowKind::lossless;
    // The same choice at every run, by rule, not by timing; and only kernels whose bits do not vary.
    bool deterministic = false;
    std::int64_t expected_products = 0;  // 0: many
    // Products with A^T are those of another y than A x just gave (CGLS, CG): on the CPU, one pass is then not chosen by itself.
    bool separate_products = false;
    // The order of rows and columns, which a solver may leave to the operator: its vectors are then those of MatrixOperator::order().
    OrderKind reorder = OrderKind::none;
    std::shared_ptr<const MatrixOrder> order = nullptr;  // one that is given, over reorder
    std::int64_t expected_iterations = 0;                // a pair of products each, that an order must pay for; 0: not known
    // The operator stands for 2^exponent A, exactly, and its values are rounded to its type after that scaling.
    int exponent = 0;
};

// How the kernel of one product was chosen.
struct ProductDecision {
    struct Timing {
        std::string kernel;
        std::string reason;     // why it was a candidate
        double seconds = 0;     // of one product, the median; 0: not timed
    };
    std::optional<SpmvChoice> choice;  // to force again; none on the CPU
    std::string reason;
    std::string key;  // of the dispatch
    std::vector<Timing> candidates;
};

// What was chosen, for people: printed by -v and written to JSON.
struct OperatorPlan {
    StorageKind storage = StorageKind::dual;
    std::string storage_reason;
    std::string forward;          // kernel of A x, e.g. "stream-128x2048 (35662 items, 1056 blocks)", "cusparse-alg2"
    std::string adjoint;          // kernel of A^T y
    ProductDecision forward_decision;
    ProductDecision adjoint_decision;
    OrderDecision order;
    bool deterministic = true;    // the same plan gives the same bits at every run
    std::int64_t bytes = 0;       // the stored matrix, and on the CPU what one workspace takes for sums of one pass or of tiles
    std::optional<EntrySizes> entries;  // of the matrix as given, where they were found on the way to the device
    SetupSeconds setup;
    std::vector<std::string> notes;
};

}  // namespace lsmr
