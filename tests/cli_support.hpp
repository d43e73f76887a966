// What the tests of the command share: folders, runs, small files.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace cli {

namespace fs = std::filesystem;
using nlohmann::json;

// A folder that goes away with its files.
class Folder {
  public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "lsmr_cli_XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        fs::permissions(path_, fs::perms::owner_all, ignored);
        fs::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(*this / name, std::ios::binary) << text;
        return *this / name;
    }
    // Sorted, with blanks between.
    std::string names() const {
        std::vector<std::string> sorted;
        for (const auto& entry : fs::directory_iterator(path_)) sorted.push_back(entry.path().filename().string());
        std::sort(sorted.begin(), sorted.end());
        std::string names;
        for (const std::string& name : sorted) names += (names.empty() ? "" : " ") + name;
        return names;
    }

  private:
    fs::path path_;
};

inline std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline bool wait_until(const std::function<bool()>& holds, double seconds = 60) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
        if (holds()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
}

struct Run {
    int code = -1;  // as a shell shows it: 128 + n for a signal n
    std::string out;
    std::string err;
    bool says(const std::string& words) const { return err.find(words) != std::string::npos; }
};

// A started lsmr_solve. Its standard output and error go to files of their own folder.
class Process {
  public:
    // in_child: what to change between fork and exec (descriptors, limits).
    explicit Process(
        const std::vector<std::string>& args, const std::string& input = {},
        const std::function<void()>& in_child = [] {}) {
        folder_.write("in", input);
        std::vector<std::string> words{LSMR_SOLVE_PATH};
        words.insert(words.end(), args.begin(), args.end());
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        const std::string in = folder_ / "in";
        const std::string out = folder_ / "out";
        const std::string err = folder_ / "err";
        pid_ = fork();
        REQUIRE(pid_ >= 0);
        if (pid_ != 0) return;
        dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
        dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
        dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        for (int descriptor = 3; descriptor < 16; ++descriptor) close(descriptor);
        in_child();
        execv(argv[0], argv.data());
        _exit(127);
    }
    ~Process() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    void send(int number) const { ::kill(pid_, number); }
    Run wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(folder_ / "out"),
                read_file(folder_ / "err")};
    }
    // False if it did not end in time.
    bool ends_within(double seconds) const {
        return wait_until(
            [this] {
                siginfo_t info{};
                return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                       info.si_pid == pid_;
            },
            seconds);
    }

  private:
    Folder folder_;
    pid_t pid_ = -1;
};

inline Run run(
    const std::vector<std::string>& args, const std::string& input = {},
    const std::function<void()>& in_child = [] {}) {
    return Process(args, input, in_child).wait();
}

inline std::string array_text(std::size_t rows, std::size_t cols, const std::vector<double>& values) {
    std::ostringstream text;
    text.precision(17);
    text << "%%MatrixMarket matrix array real general\n" << rows << " " << cols << "\n";
    for (const double value : values) text << value << "\n";
    return text.str();
}

struct Array {
    std::size_t rows = 0;
    std::size_t cols = 0;
    std::vector<double> values;
};

inline Array parse_array(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    REQUIRE(line == "%%MatrixMarket matrix array real general");
    while (std::getline(lines, line) && line.starts_with("%")) {
    }
    Array array;
    REQUIRE(static_cast<bool>(std::istringstream(line) >> array.rows >> array.cols));
    for (double value = 0; lines >> value;) array.values.push_back(value);
    REQUIRE(array.values.size() == array.rows * array.cols);
    return array;
}

inline const std::string kSmallA = "%%MatrixMarket matrix coordinate real general\n3 2 4\n1 1 1\n2 2 1\n3 1 1\n3 2 1\n";
// A (1, 2)
inline const std::string kSmallB = array_text(3, 1, {1, 2, 3});

// Second differences of a long chain, so ill-conditioned that no test passes for minutes.
inline std::string long_chain(int size) {
    std::string text = "%%MatrixMarket matrix coordinate real general\n" + std::to_string(size) + " " +
                       std::to_string(size) + " " + std::to_string(3 * size - 2) + "\n";
    for (int i = 1; i <= size; ++i) {
        const std::string row = std::to_string(i) + " ";
        if (i > 1) text += row + std::to_string(i - 1) + " -1\n";
        text += row + row + "2\n";
        if (i < size) text += row + std::to_string(i + 1) + " -1\n";
    }
    return text;
}
inline constexpr int kChainSize = 100000;
inline const std::vector<std::string> kNeverDone{"--rhs", "random:1", "--atol", "0",          "--btol",
                                                 "0",     "--conlim", "0",      "--max-iter", "1000000000"};

inline std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

// True when the solve behind this history has done `rows` iterations.
inline bool has_history_rows(const std::string& path, std::ptrdiff_t rows) {
    const std::string text = read_file(path);
    return std::count(text.begin(), text.end(), '\n') > rows;
}

inline bool gpu_is_usable() {
    return json::parse(run({"--env", "--json", "-"}).out)["cuda"]["usable"].get<bool>();
}

}  // namespace cli
