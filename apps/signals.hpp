// Signals and inherited descriptors of the command. The library knows nothing of them.
#pragma once

#include <string>

namespace lsmr {

// At the very start: makes sure that descriptors 0 to 2 are open, so that no file of ours lands on them; ignores
// SIGPIPE and SIGXFSZ, so that they become errors of write().
void prepare_process();

// From here on the first INT, TERM or HUP is only noted; a second one ends the process at once with 128 + its number.
// Until then they end the process, as usual. A HUP that was ignored at the start (nohup) stays ignored.
void note_signals();
// The signal that was noted, or 0.
int noted_signal();
// Ends the process by the signal's default action, so that the shell sees it.
[[noreturn]] void end_by_signal(int number);

// While it lives, and `path` is standard output ("-"), writing to a pipe that nobody reads ends the process quietly
// (141), as users expect there; for every other path it stays an error of write().
class PipeEndsProcess {
  public:
    explicit PipeEndsProcess(const std::string& path);
    ~PipeEndsProcess();
    PipeEndsProcess(const PipeEndsProcess&) = delete;
    PipeEndsProcess& operator=(const PipeEndsProcess&) = delete;
};

}  // namespace lsmr
