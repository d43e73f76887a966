// Why a solve ended. The numbers are stable: they are written to JSON and mapped to exit codes.
#pragma once

namespace lsmr {

enum class Status : int {
    start_solves = 0,          // x0 (or 0) solves the problem: b - A x0 = 0 or A^T (b - A x0) = 0
    compatible = 1,            // ||r|| <= btol ||b|| + atol ||A|| ||x||
    least_squares = 2,         // ||A^T r|| <= atol ||A|| ||r||
    condition_limit = 3,       // the condition estimate passed conlim
    compatible_eps = 4,        // 1, at the machine precision of the vectors
    least_squares_eps = 5,     // 2, at the machine precision of the vectors
    condition_eps = 6,         // 3, at the machine precision of the vectors
    iteration_limit = 7,
    time_limit = 8,
    stopped = 9,               // by the user's observer
    non_finite = 10,           // a NaN or an infinity arose
    breakdown = 11,            // the recurrence cannot go on
    stagnated = 12,            // neither test improved by 10 % over a long window
    audit_refused = 13,        // the recurrence said "converged", the recomputed residuals do not
    trust_bound = 14,          // ||x - x0|| reached the trust radius
    resource_error = 15,       // memory ran out in the middle, in a user's operator or on the device
};

// "compatible", "least_squares", ...: the names of JSON.
const char* status_name(Status status);
// One sentence for a person.
const char* status_sentence(Status status);
// True for 0, 1, 2, 4, 5: x meets the tolerances, or machine precision, and the audit agreed.
bool is_converged(Status status);
// The exit code of lsmr_solve: 0 converged; 2 a limit; 3 non-finite or breakdown; 71 resource error.
int exit_code(Status status);

}  // namespace lsmr
