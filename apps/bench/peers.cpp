#include "peers.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/npz_writer.hpp"
#include "data/write.hpp"
#include "memory/error.hpp"

namespace lsmr {
namespace {

// Standard output of `command PATH`.
std::string run_command(const std::string& command, const std::string& path) {
    std::FILE* pipe = ::popen((command + " '" + path + "'").c_str(), "r");
    if (pipe == nullptr) throw InputError(fmt::format("--peers {}: cannot be started", command));
    std::string text;
    std::array<char, 4096> block{};
    for (std::size_t count = 0; (count = std::fread(block.data(), 1, block.size(), pipe)) > 0;) text.append(block.data(), count);
    const int status = ::pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw InputError(fmt::format("--peers {}: failed, {}", command,
                                     WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status)) : fmt::format("signal {}", WTERMSIG(status))));
    }
    return text;
}

// A of the tables as a file, for as long as this lives.
struct MatrixOnDisk {
    explicit MatrixOnDisk(const CsrMatrix& a) : path((std::filesystem::temp_directory_path() / fmt::format("lsmr_bench_{}.npz", ::getpid())).string()) {
        OutputFile file(path);
        write_npz(file, a);
        file.commit();
    }
    ~MatrixOnDisk() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
    MatrixOnDisk(const MatrixOnDisk&) = delete;
    MatrixOnDisk& operator=(const MatrixOnDisk&) = delete;
    std::string path;
};

}  // namespace

Peers::Peers(const std::string& command, const CsrMatrix& a) {
    const MatrixOnDisk matrix(a);
    std::istringstream lines(run_command(command, matrix.path));
    const std::string where = "--peers " + command;
    std::int64_t number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        try {
            const auto json = nlohmann::json::parse(line);
            const auto type = json.at("dtype").get<std::string>();
            if (type != "f32" && type != "f64") throw InputError(where, number, 1, fmt::format("dtype is \"{}\", expected f32 or f64", type));
            const auto rows = json.at("rows").get<std::int64_t>(), cols = json.at("cols").get<std::int64_t>(), nnz = json.at("nnz").get<std::int64_t>();
            if (rows != a.rows() || cols != a.cols() || nnz != a.nnz()) {
                throw InputError(
                    where, number, 1,
                    fmt::format("is of a matrix of {} x {} with {} entries, expected {} x {} with {}", rows, cols, nnz, a.rows(), a.cols(), a.nnz()));
            }
            Record record{type == "f64" ? Precision::fp64 : Precision::fp32, {}};
            record.row.label = json.at("engine").get<std::string>();
            record.row.on_gpu = record.row.label.starts_with("cupy");
            record.row.seconds = json.at("seconds_per_iteration").get<double>();
            record.row.least_seconds = json.at("spread").at(0).get<double>();
            record.row.most_seconds = json.at("spread").at(1).get<double>();
            if (!(record.row.seconds > 0))
                throw InputError(where, number, 1, fmt::format("seconds_per_iteration is {}, expected a positive number", record.row.seconds));
            records_.push_back(std::move(record));
        } catch (const nlohmann::json::exception& error) {
            throw InputError(
                where, number, 1,
                fmt::format("expected a JSON object with engine, dtype, rows, cols, nnz, seconds_per_iteration and spread: {}", error.what()));
        }
    }
    if (records_.empty()) throw InputError(where + ": printed no measurements, expected one JSON object a line");
}

void Peers::add_to(SolveTable& table) const {
    for (const Record& record : records_) {
        if (record.precision == table.precision) table.solvers.push_back(record.row);
    }
}

}  // namespace lsmr
