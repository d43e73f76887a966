// lsmr_generate: writes a least-squares problem with a known answer to files. `lsmr_generate --help` says how.
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "data/generators.hpp"
#include "data/npz_writer.hpp"
#include "data/write.hpp"
#include "exit_codes.hpp"

namespace lsmr {
namespace {

namespace po = boost::program_options;

constexpr const char* kHelp =
    R"(usage: lsmr_generate NAME -o PREFIX [flags]

Writes a sparse least-squares problem with a known answer: the matrix PREFIX.mtx, the right-hand side
PREFIX_b.mtx, and the solution that it was made from, PREFIX_x.mtx. The same command writes the same
bytes everywhere.

  -o, --output PREFIX   where to write; a folder: its files are named NAME
  --set KEY=VALUE       a parameter of the generator; may be repeated
  --seed N              the random numbers [1]
  --noise X             short for --set noise=X
  --scale X             multiplies the sizes that are not set: 0.01 makes a hundredth of the problem [1]
  --transpose           short for --set transpose=1
  --format mtx|npz      mtx: Matrix Market; npz: PREFIX.npz (scipy.sparse.load_npz), PREFIX_b.npy, PREFIX_x.npy [mtx]
  -q, --quiet           nothing but errors
  --list                the generators, and the stand-ins for well-known matrices
  -h, --help            this text; NAME --help: the parameters of that generator

examples:
  lsmr_generate tomography -o rays --set rays=20000
  lsmr_generate like-sls --scale 0.1 -o sls --format npz

exit codes: 0 written, 64 wrong usage, 65 wrong name or value, 71 out of memory,
            73 cannot create the output, 74 write error
)";

enum class Format { mtx, npz };
enum class Action { generate, help, list };

struct CommandLine {
    Action action = Action::generate;
    std::string name;
    std::string output;
    std::map<std::string, double> parameters;
    std::uint64_t seed = 1;
    Format format = Format::mtx;
    bool quiet = false;
};

template <class T>
T parse_number(const std::string& flag, std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        throw UsageError(fmt::format("{}: '{}' is not a number that fits here", flag, std::string(text)));
    }
    return value;
}

po::options_description flags() {
    po::options_description all;
    all.add_options()("output,o", po::value<std::string>())("set", po::value<std::vector<std::string>>())(
        "seed", po::value<std::string>())("noise", po::value<std::string>())("scale", po::value<std::string>())(
        "transpose", "")("format", po::value<std::string>())("quiet,q", "")("list", "")("help,h", "")(
        "name", po::value<std::vector<std::string>>());
    return all;
}

po::variables_map tokenize(int argc, char** argv) {
    po::positional_options_description positional;
    positional.add("name", -1);
    const po::options_description all = flags();
    po::variables_map given;
    try {
        const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
        po::store(po::command_line_parser(argc, argv).options(all).positional(positional).style(style).run(), given);
    } catch (const po::unknown_option& error) {
        std::vector<std::string_view> known;
        for (const auto& option : all.options()) {
            if (option->long_name() != "name") known.push_back(option->long_name());
        }
        const std::string flag = error.get_option_name();
        const std::string nearest = nearest_name(std::string_view(flag).substr(flag.find_first_not_of('-')), known);
        throw UsageError(nearest.empty() ? fmt::format("unknown flag {}", flag)
                                         : fmt::format("unknown flag {}; did you mean --{}?", flag, nearest));
    } catch (const po::error& error) {
        throw UsageError(error.what());
    }
    return given;
}

void set_once(std::map<std::string, double>& parameters, const std::string& key, double value) {
    if (!parameters.emplace(key, value).second) throw UsageError(fmt::format("{} is given twice", key));
}

CommandLine parse(int argc, char** argv) {
    const po::variables_map given = tokenize(argc, argv);
    const auto text = [&given](const char* flag) { return given[flag].as<std::string>(); };
    CommandLine line;
    line.quiet = given.contains("quiet");
    if (given.contains("name")) {
        const auto& names = given["name"].as<std::vector<std::string>>();
        if (names.size() > 1) throw UsageError(fmt::format("unexpected argument '{}'", names[1]));
        line.name = names[0];
    }
    if (given.contains("help")) line.action = Action::help;
    if (given.contains("list")) line.action = Action::list;
    if (line.action != Action::generate) return line;

    if (line.name.empty()) throw UsageError("no generator is named; --list shows them");
    if (!given.contains("output")) throw UsageError("-o PREFIX is missing");
    line.output = text("output");
    if (line.output.empty()) throw UsageError("-o needs a prefix or a folder");
    if (given.contains("set")) {
        for (const std::string& pair : given["set"].as<std::vector<std::string>>()) {
            const std::size_t equals = pair.find('=');
            if (equals == 0 || equals == std::string::npos) {
                throw UsageError(fmt::format("--set {}: expected KEY=VALUE", pair));
            }
            const std::string key = pair.substr(0, equals);
            set_once(line.parameters, key,
                     parse_number<double>("--set " + key, std::string_view(pair).substr(equals + 1)));
        }
    }
    for (const char* key : {"noise", "scale"}) {
        if (given.contains(key))
            set_once(line.parameters, key, parse_number<double>(std::string("--") + key, text(key)));
    }
    if (given.contains("transpose")) set_once(line.parameters, "transpose", 1);
    if (given.contains("seed")) line.seed = parse_number<std::uint64_t>("--seed", text("seed"));
    if (given.contains("format")) {
        if (text("format") != "mtx" && text("format") != "npz") {
            throw UsageError(fmt::format("--format {}: expected mtx or npz", text("format")));
        }
        line.format = text("format") == "npz" ? Format::npz : Format::mtx;
    }
    return line;
}

void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        throw OutputError("standard output: writing failed", OutputError::Kind::write);
    }
}

// A message that cannot be delivered changes nothing.
void tell(const std::string& text) {
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

std::string list_text() {
    std::string text = "generators (NAME --help: their parameters):\n";
    const auto add = [&text](std::string_view name, std::string_view suite, std::string_view summary) {
        text += fmt::format("  {:<21} {:<5}{}\n", std::string(name), std::string(suite), std::string(summary));
    };
    for (const GeneratorInfo& g : generators()) add(g.name, "", g.summary);
    text += "\nstand-ins at full size (--scale makes them smaller), with their label in the benchmark suite:\n";
    for (const StandIn& s : stand_ins()) add(s.name, s.suite, s.summary);
    return text;
}

std::string parameters_text(const std::string& name) {
    const GeneratorChoice choice = find_generator(name);
    const GeneratorInfo& info = *choice.info;
    std::string text =
        fmt::format("{}: {}\n\nparameters (--set KEY=VALUE):\n", std::string(info.name), std::string(info.summary));
    for (const GeneratorParameter& p : info.parameters) {
        text += fmt::format("  {:<14} {} [{}]\n", std::string(p.name), std::string(p.help),
                            choice.defaults.at(std::string(p.name)));
    }
    return text;
}

// The three files are opened before the work, so that a bad path is known at once, and appear together after it.
void write_problem(const CommandLine& line) {
    const bool is_folder = line.output.ends_with('/') || std::filesystem::is_directory(line.output);
    const std::string prefix = is_folder ? (std::filesystem::path(line.output) / line.name).string() : line.output;
    const bool npz = line.format == Format::npz;
    OutputFile a(prefix + (npz ? ".npz" : ".mtx"));
    OutputFile b(prefix + (npz ? "_b.npy" : "_b.mtx"));
    OutputFile x(prefix + (npz ? "_x.npy" : "_x.mtx"));

    const GeneratedProblem problem = generate(line.name, line.parameters, line.seed);
    if (npz) {
        write_npz(a, problem.a);
        write_npy(b, problem.b);
        write_npy(x, problem.x);
    } else {
        const std::string origin = "lsmr_generate " + problem.description;
        write_matrix(a, problem.a, origin);
        write_dense(b, problem.a.rows(), 1, problem.b, origin);
        write_dense(x, problem.a.cols(), 1, problem.x, origin);
    }
    for (OutputFile* file : {&x, &b, &a}) file->commit();
    if (line.quiet) return;
    tell(fmt::format("{}\nwrote {}, {} and {}\n", problem.description, a.path(), b.path(), x.path()));
    if (problem.damp > 0) tell(fmt::format("x is the solution with --damp {}\n", problem.damp));
}

int run(int argc, char** argv) {
    const CommandLine line = parse(argc, argv);
    switch (line.action) {
        case Action::help:
            print(line.name.empty() ? kHelp : parameters_text(line.name));
            break;
        case Action::list:
            print(list_text());
            break;
        case Action::generate:
            write_problem(line);
            break;
    }
    return kExitOk;
}

int fail(int code, const char* what) {
    tell(fmt::format("lsmr_generate: error: {}\n", what));
    if (code == kExitUsage) tell("lsmr_generate --help shows how to use it\n");
    return code;
}

}  // namespace
}  // namespace lsmr

int main(int argc, char** argv) {
    using namespace lsmr;
    try {
        return run(argc, argv);
    } catch (const UsageError& error) {
        return fail(kExitUsage, error.what());
    } catch (const InputError& error) {
        return fail(kExitBadData, error.what());
    } catch (const OutputError& error) {
        return fail(error.kind() == OutputError::Kind::create ? kExitCannotCreate : kExitWriteError, error.what());
    } catch (const std::bad_alloc&) {
        return fail(kExitNoMemory, "the problem does not fit into memory; --scale makes it smaller");
    } catch (const std::exception& error) {
        return fail(kExitInternal, error.what());
    }
}
