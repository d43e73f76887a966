#include "solver/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "memory/error.hpp"
#include "operator/order.hpp"
#include "solver/stopping.hpp"

namespace lsmr {

double resolved_conlim(const SolveOptions& options, Precision precision) {
    if (options.conlim >= 0) return options.conlim;
    return precision == Precision::fp32 ? 1e6 : 1e8;  // in fp32 1e8 lies beyond 1 / eps and could never be met as such
}

std::int64_t resolved_max_iterations(const SolveOptions& options, std::int64_t rows, std::int64_t cols, Precision precision) {
    if (options.max_iterations >= 0) return options.max_iterations;
    return std::max<std::int64_t>(4 * std::min(rows, cols), 200) * (precision == Precision::mixed ? 4 : 1);
}

std::int64_t resolved_stall_window(const SolveOptions& options, std::int64_t rows, std::int64_t cols) {
    return options.stall_window >= 0 ? options.stall_window : default_stall_window(rows, cols);
}

void check_options(const SolveOptions& options) {
    const auto require = [](bool holds, const char* what, double value) {
        if (!holds) throw InputError(fmt::format("{}, not {}", what, value));
    };
    require(options.damp >= 0 && std::isfinite(options.damp), "damp must be a finite number of at least 0", options.damp);
    require(options.atol >= 0 && std::isfinite(options.atol), "atol must be a finite number of at least 0", options.atol);
    require(options.btol >= 0 && std::isfinite(options.btol), "btol must be a finite number of at least 0", options.btol);
    require(options.conlim >= 0 || options.conlim == -1, "conlim must be at least 0", options.conlim);
    require(options.ar_bound >= 0 && std::isfinite(options.ar_bound), "the bound on ||A'r|| must be a finite number of at least 0",
            options.ar_bound);
    require(options.ar_relative >= 0 && options.ar_relative < 1, "the relative bound on ||A'r|| must be at least 0 and below 1",
            options.ar_relative);
    require(options.passes >= 1, "a test must pass at least once", static_cast<double>(options.passes));
    require(options.stall_window >= -1, "the window of stagnation must be at least 0", static_cast<double>(options.stall_window));
    if (options.estimate_variances && options.method != Method::lsqr) {
        throw InputError(fmt::format("variances are estimated by lsqr, not by {}", name(options.method)));
    }
    if (options.reorthogonalize != 0) {
        if (options.reorthogonalize < SolveOptions::kAll)
            throw InputError(fmt::format("the window of reorthogonalisation must be at least 0, not {}", options.reorthogonalize));
        if (options.method == Method::cgls || options.method == Method::cg)
            throw InputError(fmt::format("{} keeps no orthogonal vectors: reorthogonalisation is for lsmr and lsqr", name(options.method)));
    }
    require(options.trust_radius >= 0 && std::isfinite(options.trust_radius), "the trust radius must be a finite number of at least 0",
            options.trust_radius);
    require(options.max_iterations >= -1, "the iteration limit must be at least 0", static_cast<double>(options.max_iterations));
    require(options.time_limit_seconds >= 0, "the time limit must be at least 0", options.time_limit_seconds);
}

const char* name(Method method) {
    switch (method) {
        case Method::automatic: return "auto";
        case Method::lsmr: return "lsmr";
        case Method::lsqr: return "lsqr";
        case Method::cgls: return "cgls";
        case Method::cg: return "cg";
    }
    return "";
}
const char* name(DampCenter center) {
    switch (center) {
        case DampCenter::zero: return "zero";
        case DampCenter::x0: return "x0";
        case DampCenter::given: return "given";
    }
    return "";
}
const char* name(Scaling scale) {
    switch (scale) {
        case Scaling::none: return "none";
        case Scaling::columns: return "cols";
        case Scaling::rows: return "rows";
        case Scaling::both: return "both";
    }
    return "";
}
const char* name(Preconditioner preconditioner) {
    switch (preconditioner) {
        case Preconditioner::none: return "none";
        case Preconditioner::columns: return "cols";
        case Preconditioner::blocks: return "blocks";
        case Preconditioner::sketch: return "sketch";
        case Preconditioner::cholesky: return "ic";
        case Preconditioner::given: return "file";
    }
    return "";
}
const char* name(Precision precision) {
    switch (precision) {
        case Precision::fp64: return "fp64";
        case Precision::fp32: return "fp32";
        case Precision::mixed: return "mixed";
    }
    return "";
}
const char* name(ExecutorKind executor) {
    switch (executor) {
        case ExecutorKind::automatic: return "auto";
        case ExecutorKind::graph: return "graph";
        case ExecutorKind::persistent: return "persistent";
    }
    return "";
}

OperatorOptions operator_options(const PrepareOptions& options, int exponent) {
    OperatorOptions of;
    of.spmv = options.spmv;
    of.storage = options.storage;
    of.forward = options.forward_kernel;
    of.adjoint = options.adjoint_kernel;
    of.narrow = options.narrow;
    of.deterministic = options.deterministic;
    of.expected_products = options.expected_products;
    of.separate_products = options.separate_products;
    of.reorder = options.reorder;
    of.order = options.order;
    of.expected_iterations = options.expected_iterations > 0 ? options.expected_iterations : (options.expected_products + 1) / 2;
    of.exponent = exponent;
    return of;
}

OperatorOptions small_operator_options(const PrepareOptions& options, int exponent, const std::vector<std::int32_t>& row,
                                       const std::vector<std::int32_t>& col) {
    OperatorOptions of;
    of.deterministic = true;
    if (!row.empty() || !col.empty()) of.order = std::make_shared<const MatrixOrder>(MatrixOrder{options.reorder, row, col});
    of.expected_products = options.expected_products;
    of.exponent = exponent;
    return of;
}

}  // namespace lsmr
