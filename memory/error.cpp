#include "memory/error.hpp"

#include <fmt/format.h>

namespace lsmr {

InputError::InputError(const std::string& path, std::int64_t line, std::int64_t column, const std::string& text)
    : Error(fmt::format("{}:{}:{}: {}", path, line, column, text)), line_(line), column_(column) {}

OutOfMemory::OutOfMemory(std::int64_t requested_bytes, std::int64_t live_bytes, std::int64_t free_bytes,
                         const std::string& hint)
    : DeviceError(fmt::format("out of device memory: {} requested, {} in use by this solver, {} free{}{}",
                              format_bytes(requested_bytes), format_bytes(live_bytes), format_bytes(free_bytes),
                              hint.empty() ? "" : "; ", hint)),
      requested_bytes_(requested_bytes),
      live_bytes_(live_bytes),
      free_bytes_(free_bytes) {}

std::string format_bytes(std::int64_t bytes) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (value >= 1024.0 && unit < 4) {
        value /= 1024.0;
        ++unit;
    }
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, units[unit]);
}

void detail::expect_failed(const char* condition, const char* file, int line) {
    throw InternalError(fmt::format("{} does not hold at {}:{}; please report this", condition, file, line));
}

}  // namespace lsmr
