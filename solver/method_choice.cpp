#include "solver/method_choice.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "memory/error.hpp"
#include "solver/solve.hpp"

namespace lsmr {
namespace {

// The first entry, in the order of rows, that has no equal on the other side of the diagonal; row = -1: A is symmetric.
struct Asymmetry {
    std::int64_t row = -1;
    std::int64_t col = 0;
    double value = 0;
    double mirrored = 0;
};

// A is square. One pass over the entries: next[j] walks along row j as its mirrored entries come up, in ascending order.
Asymmetry find_asymmetry(const CsrMatrix& a) {
    const std::int64_t* offsets = a.offsets();
    const std::int32_t* columns = a.columns();
    const double* values = a.values();
    std::vector<std::int64_t> next(offsets, offsets + a.rows());
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        for (std::int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
            const std::int64_t j = columns[k];
            std::int64_t& at = next[static_cast<std::size_t>(j)];
            // Entries of row j left of column i that were not met are zeros, or have no partner.
            for (; at < offsets[j + 1] && columns[at] < i; ++at) {
                if (values[at] != 0) return {j, columns[at], values[at], 0};
            }
            const bool stored = at < offsets[j + 1] && columns[at] == i;
            const double mirrored = stored ? values[at] : 0.0;
            if (values[k] != mirrored) return {i, j, values[k], mirrored};
            if (stored) ++at;
        }
    }
    return {};
}

bool diagonal_dominates(const CsrMatrix& a) {
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        double diagonal = 0;
        double others = 0;
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            if (a.columns()[k] == i) diagonal = a.values()[k];
            else others += std::abs(a.values()[k]);
        }
        if (!(diagonal > others)) return false;
    }
    return true;
}

}  // namespace

MethodChoice choose_method(const SolveOptions& options, std::int64_t rows, std::int64_t cols, const CsrMatrix* a) {
    if (options.method != Method::automatic) return {options.method, {}};
    if (options.damp > 0) return {Method::lsmr, "with damping A x = b is not met, and LSMR's ||A'r|| falls monotonically"};
    // CG does not estimate ||A'r||, and keeps no orthogonal vectors.
    const bool needs_lsqr = options.ar_bound > 0 || options.ar_relative > 0 || options.reorthogonalize != 0;
    if (rows == cols && rows > 0 && a != nullptr && !needs_lsqr && diagonal_dominates(*a) && find_asymmetry(*a).row < 0) {
        return {Method::cg, "A is symmetric and its diagonal dominates every row, so it is positive definite: one product an iteration"};
    }
    if (rows <= cols) {
        return {Method::lsqr, "A has no more rows than columns, so A x = b can be expected to be solvable, and LSQR's ||r|| is the least"};
    }
    return {Method::lsmr, "A has more rows than columns, so a residual remains, and LSMR's ||A'r|| falls monotonically"};
}

namespace {

void check_cg(const SolveOptions& options, std::int64_t rows, std::int64_t cols, const CsrMatrix* a) {
    if (rows != cols) throw InputError(fmt::format("cg needs a symmetric positive definite A; this one is {} x {}", rows, cols));
    if (options.damp > 0) throw InputError("cg solves A x = b and knows no damping: take lsmr, lsqr or cgls");
    if (options.ar_bound > 0 || options.ar_relative > 0)
        throw InputError("cg does not estimate ||A'r||, so it cannot stop at a bound on it");
    if (a == nullptr) return;
    const Asymmetry found = find_asymmetry(*a);
    if (found.row >= 0) {
        throw InputError(fmt::format("cg needs a symmetric A: entry ({}, {}) is {}, entry ({}, {}) is {}", found.row + 1, found.col + 1,
                                     found.value, found.col + 1, found.row + 1, found.mirrored));
    }
}

}  // namespace

SolveOptions resolved_options(const SolveOptions& options, std::int64_t rows, std::int64_t cols, const CsrMatrix* a) {
    check_options(options);
    if (options.damp_center == DampCenter::given) {
        if (static_cast<std::int64_t>(options.center.size()) != cols) {
            throw InputError(fmt::format("solve: the centre has {} entries, A is {} x {}", options.center.size(), rows, cols));
        }
        check_finite(options.center, "centre");
    }
    SolveOptions resolved = options;
    resolved.method = choose_method(options, rows, cols, a).method;
    if (options.method == Method::cg) check_cg(options, rows, cols, a);
    return resolved;
}

}  // namespace lsmr
