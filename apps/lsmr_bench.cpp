// lsmr_bench: measures and explains the products with a matrix. `lsmr_bench --help` says how.
#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "signals.hpp"

int main(int argc, char** argv) {
    lsmr::prepare_process();
    const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
    return lsmr::run_bench(args);
}
