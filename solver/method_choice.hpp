// Which method fits a problem, and what a method asks of it.
#pragma once

#include <string>

#include "operator/csr_matrix.hpp"
#include "solver/options.hpp"

namespace lsmr {

struct MethodChoice {
    Method method = Method::lsmr;
    std::string reason;  // a sentence; empty where the caller chose
};

// What Method::automatic stands for, by shape, values and damping of the problem:
//   CG     where A is symmetric and its positive diagonal dominates every row, which proves it positive definite, and there is no damping
//   LSQR   where there are no more rows than columns and no damping: A x = b can be solved in general, and LSQR's ||r|| is the least
//   LSMR   otherwise: its ||A^T r|| falls monotonically, so that it may stop early
// Another method is returned as it is. a: null for a user's operator, of which only the shape is known.
MethodChoice choose_method(const SolveOptions& options, std::int64_t rows, std::int64_t cols, const CsrMatrix* a);

// The options as a solve takes them: checked, with the method chosen. Throws InputError where check_options() does, for a centre of the
// wrong length, and where the method cannot be used: CG with damping, or with an A that is not symmetric (a: as above).
SolveOptions resolved_options(const SolveOptions& options, std::int64_t rows, std::int64_t cols, const CsrMatrix* a);

}  // namespace lsmr
