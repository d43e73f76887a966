#include "history.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "data/write.hpp"

namespace lsmr {
namespace {

void append_number(std::string& row, double value) {
    row += ',';
    if (!std::isfinite(value)) return;
    char digits[32];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
    row.append(digits, end);
}

}  // namespace

HistoryFile::HistoryFile(const std::string& path) : path_(path) {
    descriptor_ = path == "-" ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                              : open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
        throw OutputError(fmt::format("{}: cannot be created: {}", path, std::strerror(errno)),
                          OutputError::Kind::create);
    }
    write("iteration,r_norm,ar_norm,a_norm,cond,x_norm,compat,ls,seconds\n");
}

HistoryFile::~HistoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

void HistoryFile::add(std::span<const IterationRecord> records) noexcept {
    if (records.empty()) return;
    try {
        std::string rows;
        for (const IterationRecord& record : records) {
            rows += std::to_string(record.iteration);
            for (const double value : {record.r_norm, record.ar_norm, record.a_norm, record.cond, record.x_norm,
                                       record.compat, record.ls, record.seconds}) {
                append_number(rows, value);
            }
            rows += '\n';
        }
        write(rows);
    } catch (const std::bad_alloc&) {
        error_ = ENOMEM;
    }
}

void HistoryFile::write(const std::string& bytes) noexcept {
    std::size_t done = 0;
    while (error_ == 0 && done < bytes.size()) {
        const ssize_t count = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
        if (count >= 0) {
            done += static_cast<std::size_t>(count);
        } else if (errno != EINTR) {
            error_ = errno;
        }
    }
}

void HistoryFile::finish() {
    // EINVAL and EROFS: a FIFO, a terminal or a device, which cannot be synced.
    if (error_ == 0 && fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) error_ = errno;
    if (close(descriptor_) != 0 && error_ == 0) error_ = errno;
    descriptor_ = -1;
    if (error_ != 0) {
        throw OutputError(fmt::format("{}: writing failed: {}", path_, std::strerror(error_)),
                          OutputError::Kind::write);
    }
}

}  // namespace lsmr
