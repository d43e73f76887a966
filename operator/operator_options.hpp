// Choices about the matrix operator, and the plan that came of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lsmr {

// Which kernel computes the products.
enum class SpmvKind {
    automatic,
    own,       // our kernels: fixed order, same bits at every run
    cusparse,  // cusparseSpMV, CSR_ALG2 on a stored orientation (fixed order); transposed for single storage (order varies)
};
// dual keeps CSR(A) and CSC(A) (= CSR of A^T); single keeps CSR(A) and multiplies by A^T from it.
enum class StorageKind { automatic, dual, single };

const char* name(SpmvKind kind);
const char* name(StorageKind kind);

struct OperatorOptions {
    SpmvKind spmv = SpmvKind::automatic;
    StorageKind storage = StorageKind::automatic;
    bool deterministic = false;
    std::int64_t expected_products = 0;  // 0: many
    // The operator stands for 2^exponent A, exactly, and its values are rounded to its type after that scaling.
    int exponent = 0;
};

// What was chosen, for people: printed by -v and written to JSON.
struct OperatorPlan {
    StorageKind storage = StorageKind::dual;
    std::string storage_reason;
    std::string forward;          // kernel of A x, e.g. "own sub-warp 8", "cusparse csr_alg2"
    std::string adjoint;          // kernel of A^T y
    bool deterministic = true;    // the same plan gives the same bits at every run
    std::int64_t bytes = 0;       // the stored matrix
    std::vector<std::string> notes;
};

}  // namespace lsmr
