// What became of the solve: one result for each column of b, and where the time went.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compare_eigen.hpp"
#include "exit_codes.hpp"
#include "solver/damping.hpp"
#include "solver/result.hpp"
#include "solver/robust.hpp"
#include "solver/standard_errors.hpp"

namespace lsmr {

struct Timing {
    double setup_seconds = 0;
    double solve_seconds = 0;
    double audit_seconds = 0;
    double errors_seconds = 0;  // of the standard errors
    double write_seconds = 0;  // x, and the end of the history
};

struct Outcome {
    std::vector<SolveResult> columns;
    std::vector<RobustResult> robust;  // with --loss: one for each of these columns; empty otherwise
    std::vector<DampChoice> damp;        // with --damp auto: the same, without their results
    std::vector<StandardErrors> errors;  // with --standard-errors: one for each of these columns; empty otherwise
    std::size_t worst = 0;  // the column whose status decides: the highest exit code, and the first of these
    Timing timing;
    MemoryUse memory;
    int signal = 0;                         // that stopped the solve, or arrived after it
    std::string state_error;                // why the last state was not written; empty: it was, or none was due
    std::int64_t saved_iteration = -1;      // of the state that was written last; -1: none
    std::int64_t resumed_iteration = -1;    // that the solve went on from; -1: it began at the start
    std::string output_error;               // why x is not written; empty: it is, or was not asked for
    int output_exit_code = kExitOk;         // of that
    std::string history_error;              // why the history is not complete; empty: it is
    std::optional<double> error_to_x_true;  // ||x - xtrue|| / ||xtrue||
    std::optional<Comparison> comparison;

    const SolveResult& result() const { return columns.at(worst); }
    // That of an x that is lost, 128 + the signal as the shell shows it, a failed history, or the worst column's.
    int exit_code() const {
        if (!output_error.empty()) return output_exit_code;
        if (signal != 0) return 128 + signal;
        return history_error.empty() && state_error.empty() ? lsmr::exit_code(result().status)
                                                            : static_cast<int>(kExitWriteError);
    }
};

}  // namespace lsmr
