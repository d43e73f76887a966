// lsmr_bench from its arguments to its exit code. A subcommand is a function in a file of its own, and a line in the
// table of bench.cpp.
#pragma once

#include <span>
#include <string>

namespace lsmr {

// args: without the program's name. Returns the exit code (exit_codes.hpp).
int run_bench(std::span<const std::string> args);

// The subcommands. args: what follows the subcommand's name. Each throws what exit_code() maps, and answers --help.
int profile_command(std::span<const std::string> args);
int spmv_command(std::span<const std::string> args);
int solve_command(std::span<const std::string> args);

}  // namespace lsmr
