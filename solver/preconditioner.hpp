// Preconditioners of least squares: M = (K K^T)^-1 near A^T A, given by K. LSMR and LSQR run on A K without forming it, in x itself:
// v <- K K^T p, alpha = ||K^T p|| (solver/bidiagonal.hpp), so that M is positive definite by construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "solver/options.hpp"

namespace lsmr {

// Columns that belong together: block b holds the columns from begins[b] to begins[b + 1].
struct ColumnBlocks {
    std::vector<std::int64_t> begins;  // the last one is cols
    std::int64_t count() const { return static_cast<std::int64_t>(begins.size()) - 1; }
    std::int64_t largest() const;
};
inline constexpr std::int64_t kLargestBlock = 32;
// Of a column, beside a largest entry near 1: a shorter one is scaled by K as if it were so long, by at most 2^60, which fp32 holds.
inline constexpr double kLeastSquaredNorm = 0x1p-120;

// Neighbouring columns that have entries in the same rows of A, as the unknowns of one camera or one point have: at most kLargestBlock
// each.
ColumnBlocks detect_blocks(const CsrMatrix& a);
// Blocks of `size` columns; the last one may be smaller.
ColumnBlocks even_blocks(std::int64_t cols, std::int64_t size);

// Of the largest entry of [a; below; damp D]; below may be null, column_scale (D) empty: ones.
int largest_exponent(const CsrMatrix& a, const CsrMatrix* below, const std::vector<double>& column_scale, double damp);

// Block-Jacobi of A^T A + damp^2 D^2: K is block diagonal, K_b = L_b^-T with L_b L_b^T the block. Where a column depends on
// others of its block, to rounding, its squared norm is added to the diagonal; 1 where it is empty.
struct BlockPreconditioner {
    CsrMatrix k;                 // for 2^-exponent [A; G; damp D]
    int exponent = 0;
    double frobenius = 0;        // ||2^-exponent [A; G] K||_F, exact; negative: not known
    double scaled_frobenius = 0;  // ||D K||_F: what scalar damping adds, times lambda
    std::int64_t singular = 0;   // blocks with columns that depend on others
};
// The matrix is [a; below]; below may be null. column_scale: D, empty: ones. damp: in the units of a.
BlockPreconditioner make_block_preconditioner(const CsrMatrix& a, const CsrMatrix* below, const std::vector<double>& column_scale,
                                              double damp, const ColumnBlocks& blocks);

// The caller's K, cols x cols, for 2^exponent [A; G] D: D^-1 K. Throws InputError for another shape.
BlockPreconditioner given_preconditioner(const CsrMatrix& k, const CsrMatrix& a, const std::vector<double>& column_scale, int exponent);

}  // namespace lsmr
