// What the recipes share, and their list. Internal to data/generators*.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/generators.hpp"
#include "data/generators_random.hpp"
#include "memory/error.hpp"
#include "memory/host_buffer.hpp"
#include "operator/csr_matrix.hpp"

namespace lsmr::recipes {

// Which of a seed's random sequences: a row's pattern and values, an entry of x, and so on.
enum Stream : std::uint64_t { kRow, kAnswer, kNoise, kPlace, kKind, kOrder };

// The parameters of one call, complete and checked against the table.
class Arguments {
  public:
    explicit Arguments(std::map<std::string, double> values) : values_(std::move(values)) {}
    double real(const std::string& name) const { return values_.at(name); }
    std::int64_t whole(const std::string& name) const { return static_cast<std::int64_t>(values_.at(name)); }

  private:
    std::map<std::string, double> values_;
};

// The row that a recipe is making: entries in any order, if sort() is called at the end.
class Row {
  public:
    std::vector<std::int32_t> columns;
    std::vector<double> values;

    void add(std::int64_t column, double value) {
        columns.push_back(static_cast<std::int32_t>(column));
        values.push_back(value);
    }
    void clear() {
        columns.clear();
        values.clear();
    }
    // Adds up entries of the same column. Few columns repeat, and those that do get their sum in a fixed order.
    void sort();
    // For recipes that choose columns only: sorts them, drops repeated ones, and gives them random values in [-1, 1).
    void sort_and_fill(portable::Random& random);

  private:
    std::vector<std::pair<std::int32_t, double>> scratch_;
};

// Runs body(i, row) for i in 0 .. rows - 1 on all threads. An exception of a body (memory) is thrown here, once all
// have ended.
template <class Body>
void for_each_row(std::int64_t rows, const Body& body) {
    std::exception_ptr failure;
#pragma omp parallel
    {
        Row row;
#pragma omp for schedule(dynamic, 256)
        for (std::int64_t i = 0; i < rows; ++i) {
            try {
                row.clear();
                body(i, row);
            } catch (...) {
#pragma omp critical(lsmr_generators_failure)
                failure = std::current_exception();
            }
        }
    }
    if (failure) std::rethrow_exception(failure);
}

// The matrix whose row i is what make(i, row) adds; `length(i)` says beforehand how many entries that will be.
template <class Length, class Make>
CsrMatrix build_rows(std::int64_t rows, std::int64_t cols, const Length& length, const Make& make) {
    HostBuffer<std::int64_t> offsets(rows + 1);
    offsets[0] = 0;
    for (std::int64_t i = 0; i < rows; ++i) offsets[i + 1] = offsets[i] + length(i);
    HostBuffer<std::int32_t> columns(offsets[rows]);
    HostBuffer<double> values(offsets[rows]);
    for_each_row(rows, [&](std::int64_t i, Row& row) {
        make(i, row);
        LSMR_EXPECT(static_cast<std::int64_t>(row.columns.size()) == offsets[i + 1] - offsets[i]);
        std::copy(row.columns.begin(), row.columns.end(), columns.begin() + offsets[i]);
        std::copy(row.values.begin(), row.values.end(), values.begin() + offsets[i]);
    });
    return CsrMatrix::from_csr(rows, cols, std::move(offsets), std::move(columns), std::move(values));
}

// The same where only making a row tells its length: each row is made twice, which costs less than keeping them all.
template <class Make>
CsrMatrix build_rows(std::int64_t rows, std::int64_t cols, const Make& make) {
    HostBuffer<std::int32_t> lengths(rows);
    for_each_row(rows, [&](std::int64_t i, Row& row) {
        make(i, row);
        lengths[i] = static_cast<std::int32_t>(row.columns.size());
    });
    return build_rows(
        rows, cols, [&](std::int64_t i) { return lengths[i]; }, make);
}

// Throws InputError unless rows and cols are between 1 and kMaxDimension.
void check_shape(const std::string& name, std::int64_t rows, std::int64_t cols);

// `total` things over `places` places as evenly as possible: how many fall to place i.
class Spread {
  public:
    Spread(std::int64_t total, std::int64_t places) : each_(total / places), rest_(total % places), places_(places) {}
    std::int64_t operator()(std::int64_t i) const {
        return each_ + (rest_ * (i + 1) / places_ - rest_ * i / places_);  // rest < places < 2^31: no overflow
    }
    std::int64_t most() const { return each_ + (rest_ > 0); }
    std::int64_t least() const { return each_; }

  private:
    std::int64_t each_, rest_, places_;
};
// `average` a place, rounded to a whole total.
Spread spread_average(double average, std::int64_t places);

// A fixed shuffle of 0 .. n - 1: where the i-th goes. Multiplication by a prime above every n is one-to-one modulo n;
// this prime is the one nearest to 2^32 / (golden ratio), so neighbours land far apart.
inline std::int64_t scatter(std::int64_t i, std::int64_t n) {
    return i * 2654435761 % n;
}

// b = A x + deviation * (normal deviates), and the norm of that residual.
void make_rhs(GeneratedProblem& problem, double deviation, std::uint64_t seed);

// Each makes `a`, may make `x` (otherwise it is random), and may make all the rest (then `b` is not empty).
using Recipe = GeneratedProblem (*)(const Arguments&, std::uint64_t seed);

GeneratedProblem make_lstp(const Arguments&, std::uint64_t seed);
GeneratedProblem make_tomography(const Arguments&, std::uint64_t seed);
GeneratedProblem make_parallel_beam(const Arguments&, std::uint64_t seed);
GeneratedProblem make_levelling(const Arguments&, std::uint64_t seed);
GeneratedProblem make_bundle(const Arguments&, std::uint64_t seed);
GeneratedProblem make_stencil(const Arguments&, std::uint64_t seed);
GeneratedProblem make_spline(const Arguments&, std::uint64_t seed);
GeneratedProblem make_hardesty(const Arguments&, std::uint64_t seed);
GeneratedProblem make_rucci(const Arguments&, std::uint64_t seed);

GeneratedProblem make_sls(const Arguments&, std::uint64_t seed);
GeneratedProblem make_uniform(const Arguments&, std::uint64_t seed);
GeneratedProblem make_short(const Arguments&, std::uint64_t seed);
GeneratedProblem make_powerlaw(const Arguments&, std::uint64_t seed);
GeneratedProblem make_relat(const Arguments&, std::uint64_t seed);
GeneratedProblem make_wide(const Arguments&, std::uint64_t seed);
GeneratedProblem make_lp(const Arguments&, std::uint64_t seed);
GeneratedProblem make_circuit(const Arguments&, std::uint64_t seed);
GeneratedProblem make_web(const Arguments&, std::uint64_t seed);
GeneratedProblem make_star(const Arguments&, std::uint64_t seed);
GeneratedProblem make_arcs(const Arguments&, std::uint64_t seed);
GeneratedProblem make_deficient(const Arguments&, std::uint64_t seed);

}  // namespace lsmr::recipes
