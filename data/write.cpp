#include "data/write.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

namespace lsmr {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{1} << 20;

[[noreturn]] void fail_to_create(const std::string& path, const std::string& why) {
    throw OutputError(fmt::format("{}: cannot be written: {}", path, why), OutputError::Kind::create);
}

// Repeats a system call that a signal interrupted.
template <class Call>
auto retry(Call call) {
    for (;;) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) return result;
    }
}

// The open descriptor that a path names: "-" and the names that the system has for descriptors.
std::optional<int> descriptor_of(const std::string& path) {
    if (path == "-" || path == "/dev/stdout") return STDOUT_FILENO;
    if (path == "/dev/stderr") return STDERR_FILENO;
    for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
        if (!path.starts_with(folder)) continue;
        int number = -1;
        const char* const end = path.data() + path.size();
        const auto [stop, error] = std::from_chars(path.data() + folder.size(), end, number);
        if (error == std::errc() && stop == end && number >= 0) return number;
    }
    return std::nullopt;
}

// Where the bytes of a path go.
struct Target {
    std::optional<int> descriptor;      // one that is open already
    std::string file;                   // otherwise: the path behind all symbolic links
    std::optional<struct stat> status;  // of what is there now
    bool direct() const { return descriptor || (status && !S_ISREG(status->st_mode)); }
    std::string folder() const {
        const std::string parent = fs::path(file).parent_path().string();
        return parent.empty() ? "." : parent;
    }
};

// Follows symbolic links, so that the file behind them is replaced and not the link. They may point at nothing yet.
std::string follow_links(const std::string& path) {
    constexpr int kMaxLinks = 40;  // as Linux
    fs::path file = path;
    std::error_code error;
    for (int links = 0; fs::is_symlink(fs::symlink_status(file, error)); ++links) {
        if (links == kMaxLinks) fail_to_create(path, std::strerror(ELOOP));
        const fs::path link = fs::read_symlink(file, error);
        if (error) fail_to_create(path, error.message());
        file = file.parent_path() / link;
    }
    return file.string();
}

// Throws OutputError (create) where nothing can be written.
Target find_target(const std::string& path) {
    Target target;
    struct stat status {};
    target.descriptor = descriptor_of(path);
    if (target.descriptor) {
        if (::fstat(*target.descriptor, &status) != 0) fail_to_create(path, std::strerror(errno));
        target.status = status;
        return target;
    }
    target.file = follow_links(path);
    if (::stat(target.file.c_str(), &status) == 0) {
        if (S_ISDIR(status.st_mode)) fail_to_create(path, "it is a directory");
        if (::access(target.file.c_str(), W_OK) != 0) fail_to_create(path, std::strerror(errno));
        target.status = status;
    } else if (errno != ENOENT) {
        fail_to_create(path, std::strerror(errno));
    }
    if (!target.direct()) {
        if (fs::path(target.file).filename().empty()) fail_to_create(path, "it names no file");
        if (::access(target.folder().c_str(), W_OK | X_OK) != 0) {
            fail_to_create(path, fmt::format("folder {}: {}", target.folder(), std::strerror(errno)));
        }
    }
    return target;
}

void append_number(std::string& text, double value) {
    char digits[32];
    text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

void append_number(std::string& text, std::int64_t value) {
    char digits[24];
    text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

std::string banner(std::string_view format, std::string_view comment) {
    std::string text = fmt::format("%%MatrixMarket matrix {} real general\n", format);
    while (!comment.empty()) {
        const std::string_view line = comment.substr(0, comment.find('\n'));
        text += fmt::format("% {}\n", line);
        comment.remove_prefix(std::min(line.size() + 1, comment.size()));
    }
    return text;
}

}  // namespace

struct OutputFile::State {
    std::string path;       // as given
    std::string file;       // what the temporary file becomes; empty when written directly
    std::string folder;     // of both
    std::string temporary;  // empty once there is none
    int fd = -1;
    std::string buffer;

    ~State() { discard(); }

    void discard() {
        if (fd >= 0) ::close(std::exchange(fd, -1));
        if (!temporary.empty()) ::unlink(temporary.c_str());
        temporary.clear();
    }

    [[noreturn]] void fail(int error) {
        discard();
        throw OutputError(fmt::format("{}: writing failed: {}", path, std::strerror(error)), OutputError::Kind::write);
    }

    // A name of its own in the target's folder. The mode is the target's, or what the umask leaves.
    void open_temporary(const std::optional<struct stat>& existing) {
        std::random_device random;
        do {
            temporary = fmt::format("{}/.lsmr-{}-{:08x}.tmp", folder, ::getpid(), random());
            fd = retry([&] { return ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
        } while (fd < 0 && errno == EEXIST);
        if (fd < 0) {
            const int error = errno;
            temporary.clear();
            fail_to_create(path, std::strerror(error));
        }
        constexpr mode_t kPermissions = 0777;
        if (existing && ::fchmod(fd, existing->st_mode & kPermissions) != 0) {
            const int error = errno;
            discard();
            fail_to_create(path, std::strerror(error));
        }
    }

    void flush() {
        LSMR_EXPECT(fd >= 0);
        std::string_view rest = buffer;
        while (!rest.empty()) {
            const ssize_t written = retry([&] { return ::write(fd, rest.data(), rest.size()); });
            if (written < 0) fail(errno);
            rest.remove_prefix(static_cast<std::size_t>(written));
        }
        buffer.clear();
    }

    // Some file systems, and everything that is not a file, cannot be synced; that is no failure.
    static bool cannot_sync(int error) {
        return error == EINVAL || error == ENOSYS || error == ENOTSUP || error == EROFS;
    }

    void commit() {
        flush();
        if (!file.empty() && retry([&] { return ::fsync(fd); }) != 0 && !cannot_sync(errno)) fail(errno);
        // After EINTR Linux has closed the descriptor all the same.
        if (::close(std::exchange(fd, -1)) != 0 && errno != EINTR) fail(errno);
        if (file.empty()) return;
        if (::rename(temporary.c_str(), file.c_str()) != 0) fail(errno);
        temporary.clear();
        const int directory = retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
        if (directory < 0) return;  // a folder that may be written but not read
        const int error = retry([&] { return ::fsync(directory); }) == 0 || cannot_sync(errno) ? 0 : errno;
        ::close(directory);
        if (error != 0) fail(error);
    }
};

OutputFile::OutputFile(const std::string& path) : state_(std::make_unique<State>()) {
    const Target target = find_target(path);
    state_->path = path;
    state_->buffer.reserve(kBuffer);
    if (!target.direct()) {
        state_->file = target.file;
        state_->folder = target.folder();
        state_->open_temporary(target.status);
        return;
    }
    // A descriptor of our own, so that closing, which may report an error, is the same for all.
    constexpr int kAboveStandard = 3;
    state_->fd = target.descriptor
                     ? ::fcntl(*target.descriptor, F_DUPFD_CLOEXEC, kAboveStandard)
                     : retry([&] { return ::open(target.file.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY); });
    if (state_->fd < 0) fail_to_create(path, std::strerror(errno));
}

OutputFile::~OutputFile() = default;
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;

void OutputFile::write(std::string_view bytes) {
    state_->buffer += bytes;
    if (state_->buffer.size() >= kBuffer) state_->flush();
}

void OutputFile::flush() {
    state_->flush();
}
void OutputFile::commit() {
    state_->commit();
}
const std::string& OutputFile::path() const {
    return state_->path;
}

void check_output_path(const std::string& path, std::span<const std::string> inputs) {
    const Target target = find_target(path);
    if (!target.status || S_ISCHR(target.status->st_mode)) return;  // a terminal may be both
    for (const std::string& input : inputs) {
        struct stat status {};
        if ((input == "-" ? ::fstat(STDIN_FILENO, &status) : ::stat(input.c_str(), &status)) != 0) continue;
        if (status.st_dev == target.status->st_dev && status.st_ino == target.status->st_ino) {
            fail_to_create(path, fmt::format("it is the same file as the input {}", input));
        }
    }
}

void write_dense(OutputFile& file, std::int64_t rows, std::int64_t cols, std::span<const double> values,
                 std::string_view comment) {
    LSMR_EXPECT(rows >= 0 && cols >= 0 && static_cast<std::int64_t>(values.size()) == rows * cols);
    file.write(banner("array", comment) + fmt::format("{} {}\n", rows, cols));
    std::string line;
    for (const double value : values) {
        line.clear();
        append_number(line, value);
        line += '\n';
        file.write(line);
    }
}

void write_matrix(OutputFile& file, const CsrMatrix& a, std::string_view comment) {
    file.write(banner("coordinate", comment) + fmt::format("{} {} {}\n", a.rows(), a.cols(), a.nnz()));
    std::string line;
    for (std::int64_t row = 0; row < a.rows(); ++row) {
        for (std::int64_t k = a.offsets()[row]; k < a.offsets()[row + 1]; ++k) {
            line.clear();
            append_number(line, row + 1);
            line += ' ';
            append_number(line, a.columns()[k] + std::int64_t{1});
            line += ' ';
            append_number(line, a.values()[k]);
            line += '\n';
            file.write(line);
        }
    }
}

}  // namespace lsmr
