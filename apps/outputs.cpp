#include "outputs.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "data/write.hpp"
#include "environment.hpp"
#include "signals.hpp"

namespace lsmr {
namespace {

// Two names of one file that writing would mix up; a device or a pipe may be named twice.
bool same_file(const std::string& first, const std::string& second) {
    struct stat a {};
    struct stat b {};
    const bool first_exists = stat(first.c_str(), &a) == 0;
    const bool second_exists = stat(second.c_str(), &b) == 0;
    if (first_exists && second_exists) return S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    if (first_exists || second_exists) return false;
    std::error_code ignored;  // an empty path then, which equals no other
    const auto canonical = [&ignored](const std::string& path) {
        return std::filesystem::weakly_canonical(path, ignored);
    };
    return !canonical(first).empty() && canonical(first) == canonical(second);
}

}  // namespace

void check_outputs(const CommandLine& line) {
    const std::vector<std::string> inputs = input_paths(line);
    std::vector<std::string> outputs;
    for (const std::string& path : {line.output, line.json, line.history, line.save_state, line.save_plan, line.plot}) {
        if (path.empty() || path == "-") continue;
        for (const std::string& other : outputs) {
            if (same_file(path, other)) throw UsageError(fmt::format("two outputs go to the same file: {}", path));
        }
        check_output_path(path, inputs);
        // A state may be gone on with in its own file; another output would take its place.
        if (!line.resume.empty() && path != line.save_state) check_output_path(path, {&line.resume, 1});
        outputs.push_back(path);
    }
}

void write_x(const CommandLine& line, const Problem& problem, const Outcome& outcome) {
    const SolveResult& result = outcome.result();
    const std::string comment = fmt::format(
        "{}A: {}{}\nb: {}\nmethod {}, damp {}, {}\nstatus {} {}: {}", version_text(), line.matrix,
        line.transpose ? ", transposed" : "", problem.b_origin, name(line.solve.method), line.solve.damp,
        name(line.prepare.precision), static_cast<int>(result.status), status_name(result.status), result.message);
    const PipeEndsProcess rule(line.output);
    OutputFile file(line.output);
    write_dense(file, problem.a->cols(), problem.columns, problem.x, comment);
    file.commit();
}

void write_state(const std::string& path, const Checkpoint& checkpoint) {
    OutputFile file(path);
    file.write(checkpoint_bytes(checkpoint));
    file.commit();
}

std::string read_text(const std::string& path) {
    if (std::filesystem::is_directory(path)) throw InputError(path + ": is a directory", InputError::Kind::unreadable);
    std::ifstream file(path, std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(file), {});
    if (!file.good() && !file.eof()) throw InputError(path + ": cannot be read", InputError::Kind::unreadable);
    return bytes;
}

Checkpoint read_state(const std::string& path) { return read_checkpoint(read_text(path), path); }

void write_text(const std::string& path, std::string_view text) {
    const PipeEndsProcess rule(path);
    OutputFile file(path);
    file.write(text);
    file.commit();
}

}  // namespace lsmr
