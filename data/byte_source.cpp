#include "data/byte_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "memory/error.hpp"

namespace lsmr {
namespace {

constexpr std::size_t kBlock = std::size_t{1}
                               << 18;  // bytes a read: few system calls, and still in the second-level cache

[[noreturn]] void fail_to_open(const std::string& name, const std::string& why) {
    throw InputError(fmt::format("{}: cannot be read: {}", name, why), InputError::Kind::unreadable);
}

}  // namespace

struct ByteSource::State {
    std::string name;
    ReadOptions options;
    int fd = -1;
    bool owns_fd = false;
    std::int64_t file_bytes_left = -1;  // in fd, behind the bytes that `input` holds; -1 where unknown

    // Bytes of the file that wait to be used: a slice of `block`, or of the caller's memory.
    std::unique_ptr<char[]> block;
    std::string_view input;

    bool gzip = false;
    z_stream inflater{};
    bool member_open = false;    // inside a gzip member; false between two of them
    std::string damage;          // found behind bytes that were still given
    std::int64_t bytes_in = 0;   // of the file, used up
    std::int64_t bytes_out = 0;  // of content, given

    ~State() {
        if (gzip) inflateEnd(&inflater);
        if (owns_fd) ::close(fd);
    }

    std::size_t read_file(char* to, std::size_t capacity) {
        if (fd < 0) return 0;
        for (;;) {
            const ssize_t got = ::read(fd, to, capacity);
            if (got >= 0) {
                if (file_bytes_left >= 0) file_bytes_left = std::max<std::int64_t>(0, file_bytes_left - got);
                return static_cast<std::size_t>(got);
            }
            if (errno == EINTR) continue;
            throw InputError(fmt::format("{}: reading failed: {}", name, std::strerror(errno)), InputError::Kind::io);
        }
    }

    // Gets more of the file when `input` is used up. false at the end of the file.
    bool fill_input() {
        if (!input.empty()) return true;
        if (fd < 0) return false;
        input = {block.get(), read_file(block.get(), kBlock)};
        return !input.empty();
    }

    // A pipe may give its first bytes one by one.
    void look_for_gzip() {
        if (fd >= 0) {
            block = std::make_unique<char[]>(kBlock);
            std::size_t have = 0;
            while (have < 2) {
                const std::size_t got = read_file(block.get() + have, kBlock - have);
                if (got == 0) break;
                have += got;
            }
            input = {block.get(), have};
        }
        if (!input.starts_with("\x1f\x8b")) return;
        gzip = true;
        constexpr int kGzipOnly = 16;  // zlib: window bits + 16 takes a gzip header
        if (inflateInit2(&inflater, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
        member_open = true;
    }

    std::size_t read_plain(char* to, std::size_t capacity) {
        if (input.empty()) return read_file(to, capacity);
        const std::size_t count = std::min(capacity, input.size());
        std::memcpy(to, input.data(), count);
        input.remove_prefix(count);
        return count;
    }

    // Between two members: true when another one follows. Zero bytes that pad a tape block are skipped.
    bool next_member() {
        while (fill_input()) {
            const std::size_t zeros = std::min(input.find_first_not_of('\0'), input.size());
            bytes_in += static_cast<std::int64_t>(zeros);
            input.remove_prefix(zeros);
            if (input.empty()) continue;
            if (input[0] != '\x1f') throw GzipError("gzip: other bytes follow the end of the compressed data");
            inflateReset(&inflater);
            member_open = true;
            return true;
        }
        return false;
    }

    std::size_t read_gzip(char* to, std::size_t capacity) {
        if (!damage.empty()) throw GzipError(damage);
        while (member_open || next_member()) {
            if (!fill_input()) throw GzipError(fmt::format("gzip stream ends early after {} bytes", bytes_in));
            const uInt in = static_cast<uInt>(std::min<std::size_t>(input.size(), kBlock));
            const uInt out = static_cast<uInt>(std::min<std::size_t>(capacity, kBlock));
            inflater.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
            inflater.avail_in = in;
            inflater.next_out = reinterpret_cast<Bytef*>(to);
            inflater.avail_out = out;
            const int status = inflate(&inflater, Z_NO_FLUSH);
            input.remove_prefix(in - inflater.avail_in);
            bytes_in += in - inflater.avail_in;
            const uInt made = out - inflater.avail_out;
            bytes_out += made;
            if (status == Z_MEM_ERROR) throw std::bad_alloc();
            if (status != Z_OK && status != Z_STREAM_END) {
                damage = fmt::format("gzip: {}", inflater.msg != nullptr ? inflater.msg : "damaged data");
                if (made > 0) return made;
                throw GzipError(damage);
            }
            if (status == Z_STREAM_END) member_open = false;
            if (bytes_out > options.expansion_free_bytes && bytes_out / options.max_expansion_ratio > bytes_in) {
                throw GzipError(
                    fmt::format("gzip: {} bytes of file became more than {}, over {} times as much; refused", bytes_in,
                                format_bytes(bytes_out), options.max_expansion_ratio));
            }
            if (made > 0) return made;
        }
        return 0;
    }
};

ByteSource::ByteSource(std::unique_ptr<State> state) : state_(std::move(state)) {}
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() = default;

ByteSource ByteSource::open(const std::string& path, const ReadOptions& options) {
    auto state = std::make_unique<State>();
    state->options = options;
    if (path == "-") {
        state->name = "<stdin>";
        state->fd = STDIN_FILENO;
    } else {
        state->name = path;
        do {
            state->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
        } while (state->fd < 0 && errno == EINTR);
        if (state->fd < 0) fail_to_open(path, std::strerror(errno));
        state->owns_fd = true;
    }
    struct stat status {};
    if (::fstat(state->fd, &status) != 0) fail_to_open(state->name, std::strerror(errno));
    if (S_ISDIR(status.st_mode)) fail_to_open(state->name, "it is a directory");
    // Files of /proc say that they hold 0 bytes.
    if (S_ISREG(status.st_mode) && status.st_size > 0) {
        const off_t position = ::lseek(state->fd, 0, SEEK_CUR);
        if (position >= 0) state->file_bytes_left = std::max<std::int64_t>(0, status.st_size - position);
    }
    state->look_for_gzip();
    return ByteSource(std::move(state));
}

ByteSource ByteSource::from_memory(std::string_view bytes, std::string name, const ReadOptions& options) {
    auto state = std::make_unique<State>();
    state->name = std::move(name);
    state->options = options;
    state->file_bytes_left = 0;
    state->input = bytes;
    state->look_for_gzip();
    return ByteSource(std::move(state));
}

std::size_t ByteSource::read(char* to, std::size_t capacity) {
    if (state_->gzip) return state_->read_gzip(to, capacity);
    const std::size_t got = state_->read_plain(to, capacity);
    state_->bytes_in += static_cast<std::int64_t>(got);
    return got;
}

const std::string& ByteSource::name() const {
    return state_->name;
}
bool ByteSource::compressed() const {
    return state_->gzip;
}
std::int64_t ByteSource::bytes_taken() const {
    return state_->bytes_in;
}

std::int64_t ByteSource::bytes_left() const {
    if (state_->gzip || state_->file_bytes_left < 0) return -1;
    return state_->file_bytes_left + static_cast<std::int64_t>(state_->input.size());
}

TextCursor::TextCursor(ByteSource& source) : source_(source), block_(kBlock) {
    // A small file needs no large buffer.
    constexpr std::int64_t kSmallest = 4096;
    const std::int64_t known = source.bytes_left();
    if (known >= 0 && known < static_cast<std::int64_t>(kBlock)) {
        block_ = static_cast<std::size_t>(std::max(known, kSmallest));
    }
}

// Moves what is left, at most kMaxToken bytes, to the front and reads on behind it. false where nothing can be had.
bool TextCursor::read_more() {
    const auto left = static_cast<std::size_t>(end_ - begin_);
    window_offset_ += begin_ - buffer_.get();
    if (capacity_ < left + block_ + kSlack) {
        capacity_ = left + block_ + kSlack;
        auto larger = std::make_unique_for_overwrite<char[]>(capacity_);
        std::copy(begin_, end_, larger.get());
        buffer_ = std::move(larger);
    } else {
        std::memmove(buffer_.get(), begin_, left);
    }
    begin_ = buffer_.get();
    end_ = begin_ + left;
    std::size_t got = 0;
    try {
        if (fault_.empty()) got = source_.read(buffer_.get() + left, block_);
    } catch (const GzipError& error) {
        fault_ = error.what();
    }
    end_ += got;
    std::memset(buffer_.get() + left + got, 0, kSlack);
    return got > 0;
}

// For text that is wanted now: false at its end.
bool TextCursor::refill() {
    if (read_more()) return true;
    if (!fault_.empty()) fail_at(column() + (end_ - begin_), fmt::format("{} (line {})", fault_, line_));
    return false;
}

std::string_view TextCursor::peek_ahead(std::size_t count) {
    while (static_cast<std::size_t>(end_ - begin_) < count && read_more()) {
    }
    return {begin_, std::min(count, static_cast<std::size_t>(end_ - begin_))};
}

void TextCursor::drop_prefix(std::size_t count) {
    begin_ += count;
    line_start_ += static_cast<std::int64_t>(count);
}

void TextCursor::skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++begin_;
}

bool TextCursor::at_line_end() {
    const int next = peek();
    if (next != '\r') return next == '\n' || next == kEnd;
    const std::string_view ahead = peek_ahead(2);
    if (ahead.size() == 2 && ahead[1] != '\n') {
        fail("a carriage return without a newline (a file of an old Mac?); convert its line ends to newlines");
    }
    return true;
}

void TextCursor::next_line() {
    while (begin_ != end_ || refill()) {
        const void* newline = std::memchr(begin_, '\n', static_cast<std::size_t>(end_ - begin_));
        if (newline != nullptr) {
            take_lines(static_cast<const char*>(newline) + 1, 1);
            return;
        }
        begin_ = end_;
    }
}

Token TextCursor::token() {
    const std::int64_t start = column();
    std::size_t length = 0;
    for (;;) {
        while (begin_ + length != end_) {
            const char c = begin_[length];
            if (c == ' ' || c == '\t' || c == '\n' || c == '\r') break;
            ++length;
        }
        if (length > kMaxToken) fail("token longer than 1 MiB; this is not a number");
        if (begin_ + length != end_ || !refill()) break;
    }
    const Token word{{begin_, length}, start};
    begin_ += length;
    return word;
}

void TextCursor::take_lines(const char* begin, std::int64_t lines) {
    begin_ = begin;
    line_ += lines;
    line_start_ = window_offset_ + (begin_ - buffer_.get());
}

void TextCursor::fail_at(std::int64_t column, const std::string& text) const {
    throw InputError(source_.name(), line_, column, text);
}

void TextCursor::fail_at_end(const std::string& text) const {
    if (column() == 1) fail(text);
    throw InputError(source_.name(), line_ + 1, 1, text);
}

std::int64_t TextCursor::bytes_left() const {
    const std::int64_t unread = source_.bytes_left();
    return unread < 0 ? -1 : unread + (end_ - begin_);
}

std::string excerpt(std::string_view text) {
    constexpr std::size_t kLimit = 40;
    std::string out = "'";
    for (const char c : text) {
        const std::string shown =
            c >= ' ' && c <= '~' ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        if (out.size() + shown.size() > kLimit + 1) return out + "'...";
        out += shown;
    }
    return out + "'";
}

}  // namespace lsmr
