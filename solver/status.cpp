#include "solver/status.hpp"

#include <array>
#include <cstddef>

namespace lsmr {
namespace {

struct Row {
    const char* name;
    const char* sentence;
    int exit_code;
};

constexpr std::array<Row, 16> kTable{{
    {"start_solves", "the starting point solves the problem", 0},
    {"compatible", "A x = b is solved to the tolerances btol and atol", 0},
    {"least_squares", "the least-squares solution is found to the tolerance atol", 0},
    {"condition_limit", "the condition estimate passed conlim; x is the best so far", 2},
    {"compatible_eps", "A x = b is solved as well as the precision of the vectors allows", 0},
    {"least_squares_eps", "the least-squares solution is found as well as the precision of the vectors allows", 0},
    {"condition_eps", "A looks singular at the precision of the vectors; x is the best so far", 2},
    {"iteration_limit", "the iteration limit was reached; x is the best so far", 2},
    {"time_limit", "the time limit was reached; x is the best so far", 2},
    {"stopped", "stopped by the user; x is the best so far", 2},
    {"non_finite", "a value that is not finite arose; x is the last finite iterate", 3},
    {"breakdown", "the recurrence broke down; x is the last good iterate", 3},
    {"stagnated", "no test improved by 10 % over a long window of iterations; x is the best so far", 2},
    {"audit_refused", "the recurrence called x converged, but the recomputed residuals do not confirm it", 2},
    {"trust_bound", "the trust radius was reached; x lies on it", 2},
    {"resource_error", "a resource ran out during the solve; x is the last good iterate", 71},
}};

const Row& row(Status status) { return kTable.at(static_cast<std::size_t>(status)); }

}  // namespace

const char* status_name(Status status) { return row(status).name; }
const char* status_sentence(Status status) { return row(status).sentence; }
int exit_code(Status status) { return row(status).exit_code; }
bool is_converged(Status status) { return exit_code(status) == 0; }

}  // namespace lsmr
