// lsmr_solve: solves a sparse least-squares problem that lies in files. `lsmr_solve --help` says how.
#include <string>
#include <vector>

#include "command.hpp"
#include "signals.hpp"

int main(int argc, char** argv) {
    lsmr::prepare_process();
    const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
    return lsmr::run_command(args);
}
