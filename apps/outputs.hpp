// The files that the command writes: checked before the work, written after it.
#pragma once

#include <string_view>

#include "options.hpp"
#include "outcome.hpp"
#include "problem.hpp"
#include "solver/checkpoint.hpp"

namespace lsmr {

// Throws OutputError (create) if an output cannot be written or is one of the inputs, UsageError if two are the same
// file.
void check_outputs(const CommandLine& line);

// x as a Matrix Market array, with the problem and the status as comments. Throws OutputError.
void write_x(const CommandLine& line, const Problem& problem, const Outcome& outcome);

// A whole text file. Throws InputError.
std::string read_text(const std::string& path);
// The whole text, at once: the file appears complete or not at all. "-" is standard output.
// The state of a solve, whole or not at all.
void write_state(const std::string& path, const Checkpoint& checkpoint);
// Throws InputError where it cannot be read, or is none.
Checkpoint read_state(const std::string& path);
void write_text(const std::string& path, std::string_view text);

}  // namespace lsmr
