// The exit codes of the command, and which error ends with which. How a finished solve maps to 0, 2, 3 or 71 is in
// solver/status.hpp; after a signal the shell sees 130 (INT), 143 (TERM) or 129 (HUP).
#pragma once

#include <exception>
#include <string>

#include "memory/error.hpp"

namespace lsmr {

enum Exit : int {
    kExitOk = 0,
    kExitUsage = 64,         // the command line is wrong
    kExitBadData = 65,       // an input's content is wrong
    kExitNoInput = 66,       // an input is missing or cannot be read
    kExitUnavailable = 69,   // the device that was asked for cannot be used
    kExitInternal = 70,      // our bug, or a fault of the device
    kExitNoMemory = 71,      // host or device memory ran out
    kExitCannotCreate = 73,  // an output cannot be created
    kExitWriteError = 74,    // an output cannot be written
};

// The command line cannot be understood, or asks for things that exclude each other.
class UsageError : public Error {
  public:
    explicit UsageError(const std::string& what) : Error(what) {}
};

int exit_code(const std::exception& error);

}  // namespace lsmr
