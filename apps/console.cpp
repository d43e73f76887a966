#include "console.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace lsmr {
namespace {

// A terminal that understands "erase to the end of the line".
bool stderr_is_terminal() {
    const char* terminal = std::getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace

Console::Console(Talk talk, ProgressMode progress, const char* program)
    : talk_(talk),
      program_(program),
      shows_progress_(talk >= Talk::normal && (progress == ProgressMode::always ||
                                               (progress == ProgressMode::automatic && stderr_is_terminal()))) {}

void Console::error(std::string_view text) {
    if (talk_ >= Talk::errors) write(fmt::format("{}: error: {}\n", program_, text));
}

void Console::warning(std::string_view text) {
    if (shows_lines()) write(fmt::format("warning: {}\n", text));
}

void Console::line(std::string_view text) {
    if (shows_lines()) write(fmt::format("{}\n", text));
}

void Console::detail(std::string_view text) {
    if (shows_details()) write(fmt::format("{}\n", text));
}

void Console::progress(std::string_view text) {
    if (!shows_progress_) return;
    progress_is_visible_ = false;  // overwritten below, not erased first: no flicker
    write(fmt::format("\r{}\033[K", text));
    progress_is_visible_ = true;
}

void Console::clear_progress() {
    if (!progress_is_visible_) return;
    progress_is_visible_ = false;
    write("\r\033[K");
}

void Console::write(std::string_view text) {
    clear_progress();
    // A message that cannot be delivered (a closed pipe) is no reason to lose the solve.
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

}  // namespace lsmr
