#include "signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

namespace lsmr {
namespace {

volatile std::sig_atomic_t first_signal = 0;
timespec first_time{};  // written once, before first_signal

// timeout(1) signals its child and then the child's whole group: the same request arrives twice within microseconds.
// Only a signal that comes later than this is a second request.
constexpr double kSameRequestSeconds = 0.2;

double seconds_between(const timespec& from, const timespec& to) {
    return static_cast<double>(to.tv_sec - from.tv_sec) + 1e-9 * static_cast<double>(to.tv_nsec - from.tv_nsec);
}

extern "C" void on_signal(int number) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (first_signal == 0) {
        first_time = now;
        first_signal = number;
    } else if (seconds_between(first_time, now) > kSameRequestSeconds) {
        _exit(128 + number);
    }
}

void set_action(int number, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    for (const int other : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&action.sa_mask, other);
    sigaction(number, &action, nullptr);
}

}  // namespace

void prepare_process() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(descriptor, F_GETFD) >= 0) continue;
        // open() takes the lowest free number, which is this one. The wrong direction for 0 and 1: what was closed must
        // fail when it is used, not read as empty or swallow x.
        const int mode = descriptor == STDOUT_FILENO ? O_RDONLY : O_WRONLY;
        if (open("/dev/null", mode) != descriptor) std::abort();
    }
    set_action(SIGPIPE, SIG_IGN);
    set_action(SIGXFSZ, SIG_IGN);
    set_action(SIGINT, SIG_DFL);  // a shell script starts background jobs with INT ignored; here it always means "stop"
}

void note_signals() {
    set_action(SIGINT, on_signal);
    set_action(SIGTERM, on_signal);
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) set_action(SIGHUP, on_signal);
}

int noted_signal() {
    return first_signal;
}

void end_by_signal(int number) {
    set_action(number, SIG_DFL);
    raise(number);
    _exit(128 + number);  // where the signal is blocked
}

PipeEndsProcess::PipeEndsProcess(const std::string& path) {
    if (path == "-") set_action(SIGPIPE, SIG_DFL);
}
PipeEndsProcess::~PipeEndsProcess() {
    set_action(SIGPIPE, SIG_IGN);
}

}  // namespace lsmr
