#include "plot.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "data/write.hpp"

extern char** environ;  // NOLINT: as POSIX has it

namespace lsmr {
namespace {

// In single quotes gnuplot takes every character but the quote itself as it is.
std::string quoted(const std::string& path) {
    std::string text = "'";
    for (const char c : path) text += c == '\'' ? "''" : std::string(1, c);
    return text + "'";
}

std::string script(const std::string& csv, const std::string& svg) {
    return fmt::format(
        "set terminal svg size 900,600 dynamic background rgb 'white'\n"
        "set output {}\n"
        "set datafile separator ','\n"
        "set logscale y\n"
        "set format y '%.0e'\n"
        "set grid\n"
        "set xlabel 'iteration'\n"
        "set key outside top center horizontal noenhanced\n"
        "plot {} using 1:2 skip 1 with lines lw 2 title '||r||', '' using 1:3 skip 1 with lines lw 2 title '||A^T r||', "
        "'' using 1:8 skip 1 with lines lw 2 title '||A^T r|| / (||A|| ||r||)'\n",
        quoted(svg), quoted(csv));
}

[[noreturn]] void fail(const std::string& svg, const std::string& csv, const std::string& why) {
    throw OutputError(fmt::format("{}: not drawn: {}; the history is in {}", svg, why, csv), OutputError::Kind::write);
}

}  // namespace

std::string history_of_plot(const std::string& svg) { return svg.substr(0, svg.size() - 4) + ".csv"; }

void plot_history(const std::string& csv, const std::string& svg) {
    std::string program = "gnuplot", flag = "-e", commands = script(csv, svg);
    char* argv[] = {program.data(), flag.data(), commands.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    const int error = posix_spawnp(&child, program.c_str(), &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT) fail(svg, csv, "gnuplot is not installed (Debian: gnuplot-nox)");
    if (error != 0) fail(svg, csv, fmt::format("gnuplot cannot be run: {}", std::strerror(error)));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail(svg, csv, "gnuplot failed");
    struct stat file {};
    if (stat(svg.c_str(), &file) != 0 || file.st_size == 0) fail(svg, csv, "gnuplot wrote nothing");
}

}  // namespace lsmr
