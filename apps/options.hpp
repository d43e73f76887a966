// The command line of lsmr_solve: what was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "data/read.hpp"
#include "exit_codes.hpp"
#include "solver/damping.hpp"
#include "solver/options.hpp"
#include "solver/robust.hpp"
#include "solver/standard_errors.hpp"

namespace lsmr {

enum class Action { solve, check, environment, version, help };
// How much goes to standard error.
enum class Talk { silent, errors, normal, verbose };
enum class ProgressMode { automatic, always, never };

// Where the right-hand side comes from.
struct RhsSource {
    enum class Kind {
        beside,  // NAME_b.mtx or NAME_rhs.mtx in the folder of the matrix
        file,
        ones,
        product,  // A xtrue
        random,
    };
    Kind kind = Kind::beside;
    std::string path;        // of a file
    std::uint64_t seed = 0;  // of product and random
};

struct CommandLine {
    Action action = Action::solve;
    std::string matrix;
    RhsSource rhs;
    std::string x0;      // empty: start at zero
    std::string center;  // the file of DampCenter::given
    // Files of prepare.weights, column_damp, regulariser; empty: none
    std::string weights;
    std::string column_damp;
    std::string regulariser;
    bool transpose = false;
    ReadOptions read;
    SolveOptions solve;
    std::string method_reason;  // why --method auto took solve.method; empty: it was asked for
    PrepareOptions prepare;
    RobustOptions robust{.loss = Loss::l2};  // l2: one solve, without reweighting
    StandardErrorOptions errors;
    std::optional<DampSearch> damp_search;  // none: solve.damp is given
    std::string preconditioner;             // the file of Preconditioner::given
    bool compare_eigen = false;

    std::string save_state;               // empty: no checkpoints
    double checkpoint_every_seconds = 0;  // 0: only where the solve stops and could go on
    std::string resume;                   // empty: from the start
    std::string spmv = "auto";            // --spmv and --format as they were given
    std::string format = "auto";
    std::string plan;                     // the kernels of a saved plan; empty: chosen
    std::string save_plan;                // empty: not written
    std::string output;                   // empty: x is not written
    std::string json;                     // empty: none
    std::string history;                  // empty: none
    std::string plot;                     // the SVG picture of the history; empty: none
    std::int64_t log_every = 0;           // 0: 1..10, then every 10th, 100th, 1000th
    Talk talk = Talk::normal;
    ProgressMode progress = ProgressMode::automatic;
};

inline bool is_regularised(const CommandLine& line) {
    return line.solve.damp > 0 || line.damp_search || !line.column_damp.empty() || !line.regulariser.empty();
}

inline bool is_robust(const CommandLine& line) { return line.robust.loss != Loss::l2; }

// args: without the program's name. Throws UsageError.
CommandLine parse_command_line(std::span<const std::string> args);

// Whether the arguments ask for silence, also where they cannot be parsed.
bool asks_for_silence(std::span<const std::string> args);

// One screen: usage, flags with their defaults, examples, exit codes.
std::string help_text();

}  // namespace lsmr
