// lsmr_solve from its arguments to its exit code.
#pragma once

#include <span>
#include <string>

namespace lsmr {

// args: without the program's name. Returns the exit code; a solve that a signal stopped ends the process by that
// signal.
int run_command(std::span<const std::string> args);

}  // namespace lsmr
