#include "flags.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>

#include "data/generators.hpp"
#include "exit_codes.hpp"
#include "stopwatch.hpp"

namespace lsmr {
namespace {

namespace po = boost::program_options;

const FlagTable& shared_flags() {
    static const FlagTable flags{{"generate", true}, {"scale", true},   {"set", true},       {"seed", true},
                                 {"device", true},   {"threads", true}, {"precision", true}, {"help,h", false}};
    return flags;
}

template <class T>
T parse_number(const std::string& flag, std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        throw UsageError(fmt::format("{}: '{}' is not a number that fits here", flag, std::string(text)));
    }
    return value;
}

void set_once(std::map<std::string, double>& parameters, const std::string& key, double value) {
    if (!parameters.emplace(key, value).second) throw UsageError(fmt::format("{} is given twice", key));
}

}  // namespace

po::variables_map parse_flags(std::span<const std::string> args, const FlagTable& own) {
    po::options_description all;
    std::vector<std::string_view> known;
    for (const FlagTable* table : {&shared_flags(), &own}) {
        for (const auto& [name, takes_value] : *table) {
            known.push_back(std::string_view(name).substr(0, name.find(',')));
            if (name == "set") {
                all.add_options()("set", po::value<std::vector<std::string>>());
            } else if (takes_value) {
                all.add_options()(name.c_str(), po::value<std::string>());
            } else {
                all.add_options()(name.c_str(), "");
            }
        }
    }
    all.add_options()("matrix", po::value<std::vector<std::string>>());
    po::positional_options_description positional;
    positional.add("matrix", -1);
    po::variables_map given;
    try {
        const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
        po::store(po::command_line_parser(std::vector<std::string>(args.begin(), args.end()))
                      .options(all)
                      .positional(positional)
                      .style(style)
                      .run(),
                  given);
    } catch (const po::unknown_option& error) {
        const std::string flag = error.get_option_name();
        const std::size_t word = flag.find_first_not_of('-');
        const std::string nearest =
            word == std::string::npos ? std::string() : nearest_name(std::string_view(flag).substr(word), known);
        throw UsageError(nearest.empty() ? fmt::format("unknown flag {}", flag)
                                         : fmt::format("unknown flag {}; did you mean --{}?", flag, nearest));
    } catch (const po::error& error) {
        throw UsageError(error.what());
    }
    return given;
}

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> words;
    std::istringstream in(list);
    for (std::string word; std::getline(in, word, ',');) words.push_back(word);
    return words;
}

double positive_number(const std::string& flag, const std::string& text) {
    const auto value = parse_number<double>(flag, text);
    if (!(value > 0) || !std::isfinite(value)) throw UsageError(fmt::format("{} {}: must be positive", flag, text));
    return value;
}

std::int64_t whole_number(const std::string& flag, const std::string& text, std::int64_t least, std::int64_t most) {
    const auto value = parse_number<std::int64_t>(flag, text);
    if (value < least || value > most) {
        throw UsageError(fmt::format("{} {}: must be from {} to {}", flag, text, least, most));
    }
    return value;
}

void read_device_flags(const po::variables_map& given, PrepareOptions& options) {
    if (given.contains("device")) {
        const std::string text = given["device"].as<std::string>();
        if (text == "auto") {
            options.device = DeviceKind::automatic;
        } else if (text == "cpu") {
            options.device = DeviceKind::cpu;
        } else if (text == "cuda") {
            options.device = DeviceKind::cuda;
        } else if (text.starts_with("cuda:")) {
            options.device = DeviceKind::cuda;
            options.device_index = static_cast<int>(whole_number("--device cuda:", text.substr(5), 0, 1023));
        } else {
            throw UsageError(fmt::format("--device {}: must be auto, cpu, cuda or cuda:N", text));
        }
    }
    if (given.contains("threads")) {
        options.threads = static_cast<int>(whole_number("--threads", given["threads"].as<std::string>(), 1, 65536));
    }
    if (given.contains("precision")) {
        const std::string text = given["precision"].as<std::string>();
        if (text != "fp64" && text != "fp32") {
            throw UsageError(fmt::format("--precision {}: must be fp64 or fp32", text));
        }
        options.precision = text == "fp64" ? Precision::fp64 : Precision::fp32;
    }
}

MatrixSource matrix_source(const po::variables_map& given) {
    const auto text = [&given](const char* flag) { return given[flag].as<std::string>(); };
    MatrixSource source;
    if (given.contains("matrix")) {
        const auto& paths = given["matrix"].as<std::vector<std::string>>();
        if (paths.size() > 1) throw UsageError(fmt::format("unexpected argument '{}'", paths[1]));
        source.path = paths[0];
        if (source.path.empty()) throw UsageError("the file name is empty");
    }
    const bool generated = given.contains("generate");
    if (generated && !source.path.empty()) {
        throw UsageError(fmt::format("the matrix is given twice: {} and --generate {}", source.path, text("generate")));
    }
    if (!generated && source.path.empty()) throw UsageError("no matrix is given: a file, or --generate NAME");
    if (!generated) {
        for (const char* flag : {"scale", "set", "seed"}) {
            if (given.contains(flag)) throw UsageError(fmt::format("--{} goes with --generate only", flag));
        }
        return source;
    }
    source.generator = text("generate");
    if (given.contains("set")) {
        for (const std::string& pair : given["set"].as<std::vector<std::string>>()) {
            const std::size_t equals = pair.find('=');
            if (equals == 0 || equals == std::string::npos) {
                throw UsageError(fmt::format("--set {}: expected KEY=VALUE", pair));
            }
            const std::string key = pair.substr(0, equals);
            set_once(source.parameters, key,
                     parse_number<double>("--set " + key, std::string_view(pair).substr(equals + 1)));
        }
    }
    if (given.contains("scale")) set_once(source.parameters, "scale", positive_number("--scale", text("scale")));
    if (given.contains("seed")) source.seed = parse_number<std::uint64_t>("--seed", text("seed"));
    return source;
}

std::vector<MatrixSource> matrix_sources(const po::variables_map& given) {
    const MatrixSource first = matrix_source(given);
    if (first.generator.empty()) return {first};
    std::vector<std::string> names = split(first.generator);
    if (first.generator == "published") names.assign(std::begin(kPublished), std::end(kPublished));
    std::vector<MatrixSource> sources;
    for (const std::string& name : names) {
        find_generator(name);  // a mistyped name is known now, not an hour later
        MatrixSource source = first;
        source.generator = name;
        sources.push_back(source);
    }
    return sources;
}

NamedMatrix load_matrix(const MatrixSource& source) {
    if (source.path == "-" && isatty(STDIN_FILENO) == 1) {
        throw UsageError("standard input is a terminal: give a file, or a pipe");
    }
    const Stopwatch watch;
    NamedMatrix named;
    if (source.path.empty()) {
        GeneratedProblem problem = generate(source.generator, source.parameters, source.seed);
        named.a = std::move(problem.a);
        named.b = std::move(problem.b);
        named.origin = std::move(problem.description);
    } else {
        MatrixFile file = read_matrix(source.path);
        named.a = std::move(file.matrix);
        named.warnings = std::move(file.warnings);
        named.origin = source.path == "-" ? "standard input" : source.path;
    }
    named.seconds = watch.seconds();
    return named;
}

NamedMatrix MatrixQueue::next() {
    while (asked_ < sources_.size() && coming_.size() < ahead_) {
        coming_.push_back(std::async(ahead_ > 1 ? std::launch::async : std::launch::deferred, load_matrix, sources_[asked_++]));
    }
    NamedMatrix named = coming_.front().get();
    coming_.pop_front();
    return named;
}

std::string matrix_flags_help() {
    return "  A                     a matrix file, plain or gzip; - is standard input\n"
           "  --generate NAME       in place of A: a generator, a stand-in or a suite label (lsmr_generate --list)\n"
           "  --scale S             of a generated matrix: multiplies the sizes that are not set [1]\n"
           "  --set KEY=VALUE       a parameter of the generator; may be repeated\n"
           "  --seed N              its random numbers [1]\n";
}

std::string published_help() {
    std::string lines = "                        here also several names with commas, or published:\n";
    std::string line = "                       ";
    for (const std::string name : kPublished) {
        if (line.size() + name.size() > 78) {
            lines += line + "\n";
            line = "                       ";
        }
        line += " " + name;
    }
    return lines + line + "\n";
}

std::string device_flags_help() {
    const PrepareOptions defaults;
    return fmt::format(
        "  --device D            auto, cpu, cuda or cuda:N [auto]\n"
        "  --threads N           on the CPU [all that OpenMP offers]\n"
        "  --precision P         fp64 or fp32, of matrix and vectors [{}]\n",
        name(defaults.precision));
}

}  // namespace lsmr
