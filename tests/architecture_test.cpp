// Rules of the house that a compiler does not check.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> sources(const std::vector<std::string>& rooms) {
    std::vector<fs::path> found;
    for (const std::string& room : rooms) {
        for (const auto& entry : fs::recursive_directory_iterator(fs::path(LSMR_SOURCE_DIR) / room)) {
            const std::string extension = entry.path().extension().string();
            if (extension == ".hpp" || extension == ".cpp" || extension == ".cu" || extension == ".cuh") found.push_back(entry.path());
        }
    }
    REQUIRE(found.size() > 3);
    return found;
}

std::vector<std::string> lines_of(const fs::path& path) {
    std::ifstream in(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::string name_of(const fs::path& path) { return fs::relative(path, LSMR_SOURCE_DIR).generic_string(); }

const std::vector<std::string> kRooms{"memory", "operator", "solver", "data", "apps"};

}  // namespace

TEST_CASE("architecture: CUDA headers appear only where CUDA code lives") {
    const std::regex cuda_header("^\\s*#\\s*include\\s*<(cu[^>]*|cublas[^>]*|cusparse[^>]*|cub/[^>]*|thrust/[^>]*)>");
    for (const fs::path& path : sources(kRooms)) {
        const std::string name = name_of(path);
        const bool allowed = name.starts_with("memory/") || name.starts_with("operator/cuda/") || name.starts_with("solver/cuda/") ||
                             name.starts_with("apps/bench/cuda/");
        for (const std::string& line : lines_of(path)) {
            CAPTURE(name);
            CAPTURE(line);
            if (std::regex_search(line, cuda_header)) CHECK(allowed);
            CHECK(line.find("<thrust/") == std::string::npos);
            CHECK(line.find("<cub/cub.cuh>") == std::string::npos);
        }
    }
}

TEST_CASE("architecture: what a host-only user includes needs no CUDA") {
    // These headers name CUDA's types by forward declarations alone.
    for (const char* name : {"memory/cuda_context.hpp", "memory/memory_pool.hpp", "operator/linear_operator.hpp", "solver/solve.hpp", "solver/solve_cuda.hpp"}) {
        for (const std::string& line : lines_of(fs::path(LSMR_SOURCE_DIR) / name)) CHECK(line.find("#include <cu") == std::string::npos);
    }
}

TEST_CASE("architecture: no source file is longer than 1200 lines") {
    auto rooms = kRooms;
    rooms.insert(rooms.end(), {"tests", "examples"});
    for (const fs::path& path : sources(rooms)) {
        CAPTURE(name_of(path));
        CHECK(lines_of(path).size() <= 1200);
    }
}

TEST_CASE("architecture: one place asks whether nvcc compiles") {
    int count = 0;
    for (const fs::path& path : sources(kRooms)) {
        for (const std::string& line : lines_of(path)) count += line.find("__CUDACC__") != std::string::npos && line.starts_with("#");
    }
    CHECK(count == 1);
}

TEST_CASE("architecture: an example is short, says first what it shows, and includes no inner part") {
    const std::regex inner_header("^\\s*#\\s*include\\s*(<cu|\"(apps|tests|[a-z]+/(cpu|cuda))/)");
    for (const fs::path& path : sources({"examples"})) {
        const std::vector<std::string> lines = lines_of(path);
        CAPTURE(name_of(path));
        CHECK(lines.size() < 80);
        REQUIRE_FALSE(lines.empty());
        CHECK(lines.front().starts_with("// "));
        for (const std::string& line : lines) {
            CAPTURE(line);
            CHECK_FALSE(std::regex_search(line, inner_header));
        }
    }
}

TEST_CASE("architecture: only apps and examples print") {
    const std::regex prints("std::(cout|cerr|clog|printf|fprintf|puts)\\b|\\b(printf|fprintf|puts)\\s*\\(|fmt::print");
    for (const fs::path& path : sources({"memory", "operator", "solver", "data"})) {
        for (const std::string& line : lines_of(path)) {
            CAPTURE(name_of(path));
            CAPTURE(line);
            CHECK_FALSE(std::regex_search(line, prints));
        }
    }
}
