// The files that the command writes: checked before the work, written after it.
#pragma once

#include <string_view>

#include "options.hpp"
#include "outcome.hpp"
#include "problem.hpp"

namespace lsmr {

// Throws OutputError (create) if an output cannot be written or is one of the inputs, UsageError if two are the same
// file.
void check_outputs(const CommandLine& line);

// x as a Matrix Market array, with the problem and the status as comments. Throws OutputError.
void write_x(const CommandLine& line, const Problem& problem, const Outcome& outcome);

// The whole text, at once: the file appears complete or not at all. "-" is standard output.
void write_text(const std::string& path, std::string_view text);

}  // namespace lsmr
