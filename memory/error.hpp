// The errors of the library. Every `what()` is one sentence for a person.
//
//   Error
//     InputError      a file or an argument is wrong (path:line:column: found, expected)
//     DeviceError     a CUDA, cuSPARSE or cuBLAS call failed, or no device can be used
//       OutOfMemory   device memory ran out (requested, live, free, what to try)
//     InternalError   our bug
//
// "Not converged", "stopped by the user", "time limit" are a Status with numbers (solver/status.hpp), never an exception.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lsmr {

class Error : public std::runtime_error {
  public:
    explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// A file or an argument that cannot be used as it is.
class InputError : public Error {
  public:
    enum class Kind {
        malformed,   // the content is wrong
        unreadable,  // missing, a directory, no permission
        io,          // reading stopped with an error of the system
    };
    explicit InputError(const std::string& what, Kind kind = Kind::malformed) : Error(what), kind_(kind) {}
    // what() is "path:line:column: text"; line and column count from 1.
    InputError(const std::string& path, std::int64_t line, std::int64_t column, const std::string& text);

    Kind kind() const { return kind_; }
    std::int64_t line() const { return line_; }      // 0 where there is none
    std::int64_t column() const { return column_; }  // 0 where there is none

  private:
    Kind kind_ = Kind::malformed;
    std::int64_t line_ = 0;
    std::int64_t column_ = 0;
};

class DeviceError : public Error {
  public:
    enum class Kind {
        unavailable,  // no usable device; nothing was started
        fault,        // a call failed; the context may be lost
    };
    explicit DeviceError(const std::string& what, Kind kind = Kind::fault) : Error(what), kind_(kind) {}
    Kind kind() const { return kind_; }

  private:
    Kind kind_;
};

class OutOfMemory : public DeviceError {
  public:
    OutOfMemory(std::int64_t requested_bytes, std::int64_t live_bytes, std::int64_t free_bytes, const std::string& hint);
    std::int64_t requested_bytes() const { return requested_bytes_; }
    std::int64_t live_bytes() const { return live_bytes_; }
    std::int64_t free_bytes() const { return free_bytes_; }

  private:
    std::int64_t requested_bytes_;
    std::int64_t live_bytes_;
    std::int64_t free_bytes_;
};

class InternalError : public Error {
  public:
    explicit InternalError(const std::string& what) : Error("internal error: " + what) {}
};

// "1.50 GiB", "12 B": for messages.
std::string format_bytes(std::int64_t bytes);

namespace detail {
[[noreturn]] void expect_failed(const char* condition, const char* file, int line);
}

}  // namespace lsmr

// A condition that only a bug of ours can break.
#define LSMR_EXPECT(condition) \
    ((condition) ? static_cast<void>(0) : ::lsmr::detail::expect_failed(#condition, __FILE__, __LINE__))
