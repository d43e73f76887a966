// Problems with known answers, made from a seed: the same arguments give the same bytes on every machine and for any
// number of threads.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operator/csr_matrix.hpp"

namespace lsmr {

// min ||b - A x||^2 + damp^2 ||x||^2 with its answer.
struct GeneratedProblem {
    CsrMatrix a;
    std::vector<double> b;
    // The x that b was made from: b = A x + noise. Where `x_is_exact` it solves the problem (to rounding); where the
    // columns of A are dependent, it is then one of many solutions.
    std::vector<double> x;
    bool x_is_exact = false;
    double damp = 0;
    double residual_norm = 0;  // ||b - A x|| for the x above
    double cond = 0;           // of A, where the recipe knows it; 0 otherwise
    std::string description;   // one line: recipe, sizes, seed, parameters
};

// One number that a recipe takes. The members' order is that of the table in generators.cpp.
struct GeneratorParameter {
    enum class Number { whole, real };

    std::string_view name;
    double value;  // the default
    double min;
    double max;
    // The default is multiplied by scale^scaling: 1 for lengths, 1/2 and 1/3 for sides of grids, 0 for others.
    double scaling;
    std::string_view help;
    Number number = Number::whole;
};

struct GeneratorInfo {
    std::string_view name;
    std::string_view summary;
    std::vector<GeneratorParameter> parameters;
};

// A recipe with the sizes of a well-known matrix, or of one that our benchmarks use.
struct StandIn {
    std::string_view name;       // "like-sls"
    std::string_view suite;      // "s1": its place in the benchmark suite; empty outside it
    std::string_view generator;  // the recipe behind it
    std::string_view summary;
    std::map<std::string, double> parameters;  // what differs from the recipe's defaults
};

const std::vector<GeneratorInfo>& generators();
const std::vector<StandIn>& stand_ins();

// A name that generate() takes, looked up.
struct GeneratorChoice {
    const GeneratorInfo* info;
    std::map<std::string, double>
        defaults;  // of every parameter: the stand-in's where it has one, else the generator's
};
// Throws InputError for unknown names, with the nearest known one.
GeneratorChoice find_generator(const std::string& name);

// Makes a problem. `name` is a generator's, a stand-in's, or a suite label. Parameters that are not given have the
// generator's (or the stand-in's) defaults; "scale" multiplies the defaults, so that sizes given beside it are taken as
// they are. Besides their own, all recipes but lstp and levelling take "noise" (b = A x + noise, of norm about noise
// ||A x||) and "transpose" (1: the problem is posed with the transposed matrix). Memory: about that of the finished
// arrays; twice that for transposed problems and for lp. Throws InputError for unknown names (with the nearest known
// one), and for values and sizes outside their limits.
GeneratedProblem generate(const std::string& name, const std::map<std::string, double>& parameters = {},
                          std::uint64_t seed = 1);

// The SOL test family P(m, n, duplicates, power, damp): A = Y D Z, dense, with the reflections Y = I - 2 y y^T and
// Z = I - 2 z z^T, and the singular values d_i = (ceil(i / duplicates) duplicates / k)^power, i = 1..k = min(rows,
// cols). The residual is made to satisfy A^T r = damp^2 x, and x to lie in the range of A^T, so x is the solution of
// least norm. At most 10^8 entries. Throws InputError. Source: C. C. Paige and M. A. Saunders, ACM TOMS 8 (1982) 43-71,
// section 8, doi:10.1145/355984.355989.
GeneratedProblem lstp(std::int64_t rows, std::int64_t cols, std::int64_t duplicates, std::int64_t power, double damp);

// The candidate closest to a mistyped name: at most two insertions, deletions or substitutions away. Empty when none is
// near.
std::string nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace lsmr
