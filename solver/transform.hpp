// The transformed copy that a solve runs on: row weights, scaled rows and columns, and rows that regularise.
//
// What a caller asks for is min ||R (b - A x)||^2 + ||G (x - c)||^2 + lambda^2 ||x - c||^2 with R = diag(sqrt(w_i) 2^(k_i)); the iteration
// sees [R A; G] D and z = D^-1 x. D holds powers of two, so scaling columns rounds nothing: A x and A^T y keep their bits but for the order
// that a stop comes in.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "solver/options.hpp"

namespace lsmr {

struct Transform {
    std::shared_ptr<const CsrMatrix> a;      // R A D; the caller's own matrix where nothing is scaled
    std::shared_ptr<const CsrMatrix> below;  // G D; null: no regularising rows
    std::shared_ptr<const CsrMatrix> g;      // G
    std::vector<double> row_scale;           // the diagonal of R; empty: ones
    std::vector<double> column_scale;        // of D, from 1 up; empty: ones
    bool sized = true;                       // false: what follows is not known
    double max_abs = 0;                      // of [R A D; G D]
    double data_frobenius = 0;               // ||R A||_F
    double claim_frobenius = 0;              // ||[R A; G]||_F

    bool changes_the_problem() const { return !row_scale.empty() || g != nullptr; }
    // [R b; G c]: what stands on the right of the stacked operator. c empty: zero.
    std::vector<double> right_side(std::span<const double> b, std::span<const double> c) const;
};

// When the largest entry and the norms are to be found: they take a pass over the values.
enum class Sizing { at_once, later_where_plain };  // plain: nothing is weighted, scaled or added

// Throws InputError for weights, dampings or regularising rows of the wrong size or value.
Transform make_transform(std::shared_ptr<const CsrMatrix> a, const PrepareOptions& options, Sizing sizing = Sizing::at_once);

// diag(values).
CsrMatrix diagonal_matrix(std::span<const double> values);

}  // namespace lsmr
