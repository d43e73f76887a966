#include "bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <string_view>
#include <vector>

#include "console.hpp"
#include "data/generators.hpp"
#include "environment.hpp"
#include "exit_codes.hpp"
#include "outputs.hpp"

namespace lsmr {
namespace {

struct Subcommand {
    std::string_view name;
    std::string_view summary;
    int (*run)(std::span<const std::string> args);
};

constexpr std::array kSubcommands{
    Subcommand{"profile", "what a matrix's shape and values say about formats and kernels", profile_command},
    Subcommand{"spmv", "times the products with a matrix, kernel by kernel, beside cuSPARSE or Eigen", spmv_command},
    Subcommand{"solve", "times iterations and solves, beside cuSPARSE with cuBLAS, and Eigen", solve_command},
};

std::string bench_help() {
    std::string text =
        "usage: lsmr_bench SUBCOMMAND [flags]\n\nMeasures and explains the sparse products y <- a A x + b y and "
        "y <- a A^T x + b y, and the solver.\n\nsubcommands (lsmr_bench SUBCOMMAND --help lists the flags):\n";
    for (const Subcommand& subcommand : kSubcommands) {
        text += fmt::format("  {:<10} {}\n", std::string(subcommand.name), std::string(subcommand.summary));
    }
    text +=
        "\n  -h, --help   this text\n  --version    the version, in one line\n  --env        this build and its "
        "devices\n\nexit codes: 0 done, 64 wrong usage, 65 bad data, 66 no input, 69 no device, 70 internal or device "
        "fault,\n            71 out of memory, 73 cannot create an output, 74 cannot write one\n";
    return text;
}

[[noreturn]] void refuse_subcommand(const std::string& word) {
    std::vector<std::string_view> names;
    for (const Subcommand& subcommand : kSubcommands) names.push_back(subcommand.name);
    const std::string nearest = nearest_name(word, names);
    throw UsageError(fmt::format("unknown subcommand '{}'{}", word,
                                 nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
}

int dispatch(std::span<const std::string> args) {
    const std::string& word = args.front();
    const auto found = std::find_if(kSubcommands.begin(), kSubcommands.end(),
                                    [&word](const Subcommand& subcommand) { return subcommand.name == word; });
    if (found != kSubcommands.end()) return found->run(args.subspan(1));
    const bool is_help = word == "--help" || word == "-h";
    if (!is_help && word != "--version" && word != "--env") refuse_subcommand(word);
    if (args.size() > 1) throw UsageError(fmt::format("unexpected argument '{}'", args[1]));
    if (is_help) {
        write_text("-", bench_help());
    } else if (word == "--env") {
        write_text("-", environment_text(describe_environment(), "lsmr_bench"));
    } else {
        write_text("-", version_text("lsmr_bench"));
    }
    return kExitOk;
}

}  // namespace

int run_bench(std::span<const std::string> args) {
    Console console(Talk::normal, ProgressMode::never, "lsmr_bench");
    if (args.empty()) {
        console.line(bench_help());
        return kExitUsage;
    }
    try {
        return dispatch(args);
    } catch (const UsageError& error) {
        console.error(
            fmt::format("{} (lsmr_bench --help, or --help after a subcommand, lists what there is)", error.what()));
        return kExitUsage;
    } catch (const std::bad_alloc& error) {
        console.error("out of memory on the host");
        return exit_code(error);
    } catch (const std::exception& error) {
        console.error(error.what());
        return exit_code(error);
    }
}

}  // namespace lsmr
