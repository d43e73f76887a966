// What a person reads on standard error: the header, the iterations, the final block.
#pragma once

#include <cstdint>
#include <span>

#include "console.hpp"
#include "options.hpp"
#include "outcome.hpp"
#include "problem.hpp"
#include "solver/solve.hpp"

namespace lsmr {

void print_problem(Console& console, const CommandLine& line, const Problem& problem);
void print_setup(Console& console, const CommandLine& line, const PreparedProblem& prepared);

// The table of iterations: 1 to 10, then every 10th, 100th, 1000th, or every Nth, and the last.
class IterationLog {
  public:
    IterationLog(Console& console, std::int64_t every) : console_(console), every_(every) {}
    void add(std::span<const IterationRecord> records);
    // The last iteration, if it is not there yet; the next one begins a new table.
    void finish();

  private:
    void print(const IterationRecord& record);
    bool is_due(std::int64_t iteration) const;

    Console& console_;
    std::int64_t every_;
    IterationRecord last_;
    std::int64_t printed_ = 0;  // the last iteration in the table; 0: the heading is still to come
};

// One line for one of several columns.
void print_column(Console& console, std::int64_t column, const SolveResult& result);
void print_outcome(Console& console, const CommandLine& line, const Problem& problem, const Outcome& outcome);
void print_comparison(Console& console, const Comparison& comparison, bool several_columns);
void print_check(Console& console, const Problem& problem);

}  // namespace lsmr
