// Bytes of a file, standard input or memory, inflated when they are gzip; and a cursor over them as text.
// Both hold a fixed amount of memory, whatever the input is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "data/read.hpp"

namespace lsmr {

class ByteSource {
  public:
    // path "-" is standard input. Throws InputError (unreadable).
    static ByteSource open(const std::string& path, const ReadOptions& options = {});
    // Reads `bytes`, which must outlive the source; `name` stands in messages where a file's path would.
    static ByteSource from_memory(std::string_view bytes, std::string name, const ReadOptions& options = {});

    ByteSource(ByteSource&&) noexcept;
    ByteSource& operator=(ByteSource&&) noexcept;
    ~ByteSource();

    // Writes up to `capacity` content bytes to `to` and returns their number, 0 at the end.
    // Throws InputError (io) when the system fails, GzipError when the compressed stream is wrong.
    std::size_t read(char* to, std::size_t capacity);

    const std::string& name() const;
    bool compressed() const;
    // Bytes of the file that were used up so far: of the compressed ones where it is compressed.
    std::int64_t bytes_taken() const;
    // Content bytes that read() has yet to give; -1 where nobody knows (a pipe, a device, compressed).
    std::int64_t bytes_left() const;

  private:
    struct State;
    explicit ByteSource(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

// A compressed stream that cannot be inflated. TextCursor turns it into an InputError with its position.
class GzipError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// A word of text: what lies between blanks. `text` is valid until the cursor moves on.
struct Token {
    std::string_view text;
    std::int64_t column = 0;
};

// Walks over text, word by word and line by line. Lines and columns count from 1; a column counts bytes.
// A line ends with LF or CR LF; blanks are space and tab. Lines may be of any length, words of up to 1 MiB.
class TextCursor {
  public:
    static constexpr std::size_t kMaxToken = std::size_t{1} << 20;
    static constexpr int kEnd = -1;

    explicit TextCursor(ByteSource& source);

    // The next byte, or kEnd.
    int peek() { return begin_ != end_ || refill() ? static_cast<unsigned char>(*begin_) : kEnd; }
    // Up to `count` bytes that come next, fewer only where the text ends. count <= kMaxToken.
    std::string_view peek_ahead(std::size_t count);
    // Forgets bytes that stand before the first column (a byte-order mark).
    void drop_prefix(std::size_t count);

    void skip_blanks();
    // After skip_blanks(): is nothing left on this line? Throws on a carriage return that no newline follows.
    bool at_line_end();
    // Goes to the start of the next line, whatever is left on this one.
    void next_line();
    // The word that starts here; empty at the end of a line. Throws when it is longer than kMaxToken.
    Token token();

    std::int64_t line() const { return line_; }
    std::int64_t column() const { return window_offset_ + (begin_ - buffer_.get()) - line_start_ + 1; }

    // Throws InputError at this position, at a column of this line, or (for a missing tail) at the line after the last.
    [[noreturn]] void fail(const std::string& text) const { fail_at(column(), text); }
    [[noreturn]] void fail_at(std::int64_t column, const std::string& text) const;
    [[noreturn]] void fail_at_end(const std::string& text) const;

    ByteSource& source() { return source_; }
    // Bytes of text that come after this position; -1 where nobody knows.
    std::int64_t bytes_left() const;

    // For a loop that parses whole lines in place. The window is [begin, end): *end is NUL, and kSlack bytes from there
    // on may be read (their values mean nothing). take_lines says that `lines` lines were used up and `begin` starts
    // the next.
    static constexpr std::size_t kSlack = 16;
    const char* window_begin() const { return begin_; }
    const char* window_end() const { return end_; }
    void take_lines(const char* begin, std::int64_t lines);

  private:
    bool refill();
    bool read_more();

    ByteSource& source_;
    std::string fault_;  // what is wrong with the stream behind the window; raised when the text up to there is used up
    std::size_t block_;  // bytes that are asked for at once
    std::unique_ptr<char[]> buffer_;
    std::size_t capacity_ = 0;
    const char* begin_ = nullptr;
    const char* end_ = nullptr;
    std::int64_t window_offset_ = 0;  // of buffer_[0] in the text
    std::int64_t line_start_ = 0;     // offset of this line's first byte in the text
    std::int64_t line_ = 1;
};

// `text` for a message: control bytes and non-ASCII escaped, cut at 40 characters, in quotes.
std::string excerpt(std::string_view text);

}  // namespace lsmr
