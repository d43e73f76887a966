#include "data/matrix_market.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/error.hpp"

namespace lsmr {
namespace {

// ---- numbers
// ------------------------------------------------------------------------------------------------------------

bool is_digit(char c) {
    return static_cast<unsigned char>(c - '0') < 10;
}
bool is_exponent_letter(char c) {
    return c == 'e' || c == 'E' || c == 'd' || c == 'D';
}
char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

std::string lower(std::string_view word) {
    std::string out(word);
    for (char& c : out) c = lower(c);
    return out;
}

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53

// Decimal digits that surely fit a std::uint64_t.
constexpr std::ptrdiff_t kDigits64 = 19;

// The number that eight digits in one register spell, first digit in the lowest byte: pairs, then fours, then all.
std::uint64_t eight_digits(std::uint64_t nibbles) {
    const std::uint64_t pairs = (nibbles * 10 + (nibbles >> 8)) & 0x00ff00ff00ff00ff;
    const std::uint64_t fours = (pairs * 100 + (pairs >> 16)) & 0x0000ffff0000ffff;
    return (fours * 10000 + (fours >> 32)) & 0xffffffff;
}

// Appends the digits at p to `value` (modulo 2^64) and moves p behind them. Eight bytes a step and no branch on the
// number of digits, which no processor could predict. Needs 8 readable bytes at p.
inline void take_digits(const char*& p, std::uint64_t& value) {
    static_assert(std::endian::native == std::endian::little);
    static constexpr std::array<std::uint64_t, 8> kPowers = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    for (;;) {
        std::uint64_t nibbles;
        std::memcpy(&nibbles, p, sizeof(nibbles));
        nibbles ^= 0x3030303030303030;  // digits become 0..9
        // The top bit of each byte above 9. A carry reaches only bytes behind the first such one.
        const std::uint64_t others = (nibbles | (nibbles + 0x7676767676767676)) & 0x8080808080808080;
        if (others != 0) {
            const int digits = std::countr_zero(others) / 8;
            value = value * kPowers[static_cast<std::size_t>(digits)] + eight_digits(nibbles << 8 * (7 - digits) << 8);
            p += digits;
            return;
        }
        value = value * 100000000 + eight_digits(nibbles);
        p += 8;
    }
}

// mantissa * 10^exponent, correctly rounded; false where this quick way cannot be sure.
// A long double of 64 bits holds any mantissa and 5^27 exactly, so its one operation rounds correctly to 64 bits.
// Rounding on to 53 bits is right unless the 64 bits lie halfway between two doubles: then the lost rest of the
// quotient would decide. Elsewhere Clinger's rule for 53 bits (How to read floating point numbers accurately, PLDI
// 1990, doi:10.1145/93542.93557).
bool scale_decimal(std::uint64_t mantissa, int exponent, double& value) {
    if constexpr (LDBL_MANT_DIG == 64) {
        static constexpr std::array<long double, 28> kPowers = {
            1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
            1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
        if (exponent < -27 || exponent > 27) return false;
        // Signed: the only integer that the unit loads directly.
        if (mantissa > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
        const auto exact = static_cast<long double>(static_cast<std::int64_t>(mantissa));
        const long double scaled = exponent < 0 ? exact / kPowers[static_cast<std::size_t>(-exponent)]
                                                : exact * kPowers[static_cast<std::size_t>(exponent)];
        std::uint64_t bits;
        std::memcpy(&bits, &scaled, sizeof(bits));
        if ((bits & 0x7ff) == 0x400) return false;
        value = static_cast<double>(scaled);
        return true;
    } else {
        static constexpr std::array<double, 23> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                           1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                           1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
        if (exponent < -22 || exponent > 22 || mantissa > (std::uint64_t{1} << 53)) return false;
        const auto exact = static_cast<double>(mantissa);
        value = exponent < 0 ? exact / kPowers[static_cast<std::size_t>(-exponent)]
                             : exact * kPowers[static_cast<std::size_t>(exponent)];
        return true;
    }
}

// The usual spellings of a real number, in place: moves p behind it. false (p then means nothing) for anything that
// needs care. Needs a readable window with TextCursor::kSlack behind it.
inline bool quick_real(const char*& p, double& value) {
    const char* const start = p;
    const bool negative = *p == '-';
    p += negative || *p == '+';
    std::uint64_t mantissa = 0;
    const char* const first = p;
    take_digits(p, mantissa);
    std::ptrdiff_t digits = p - first;
    int exponent = 0;
    if (*p == '.') {
        const char* const fraction = ++p;
        take_digits(p, mantissa);
        digits += p - fraction;
        exponent = -static_cast<int>(p - fraction);
    }
    if (digits == 0 || digits > kDigits64) return false;
    const char* const letter = p;
    if (is_exponent_letter(*p)) {
        ++p;
        const bool down = *p == '-';
        if (down || *p == '+') ++p;
        const char* const power_start = p;
        int power = 0;
        for (; is_digit(*p) && p - power_start < 4; ++p) power = power * 10 + (*p - '0');
        if (p == power_start) return false;
        exponent += down ? -power : power;
    }
    if (scale_decimal(mantissa, exponent, value)) {
        value = std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) | std::uint64_t{negative} << 63);
        return true;
    }
    if (lower(*letter) == 'd') return false;
    const auto [end, error] = std::from_chars(*start == '+' ? start + 1 : start, p, value);
    return error == std::errc() && end == p;
}

bool quick_integer(const char*& p, double& value) {
    const bool negative = *p == '-';
    if (negative || *p == '+') ++p;
    std::uint64_t magnitude = 0;
    const char* const first = p;
    take_digits(p, magnitude);
    constexpr std::ptrdiff_t kExactDigits = 15;  // 10^15 < 2^53
    if (p == first || p - first > kExactDigits) return false;
    value = negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
    return true;
}

// Zero-based index from a one-based one in 1..limit.
bool quick_index(const char*& p, std::uint64_t limit, std::int32_t& index) {
    const char* const first = p;
    std::uint64_t number = 0;
    take_digits(p, number);
    if (number - 1 >= limit || p - first > kDigits64) return false;  // 0 wraps to the largest
    index = static_cast<std::int32_t>(number - 1);
    return true;
}

bool quick_blanks(const char*& p) {
    if (*p != ' ' && *p != '\t') return false;
    do ++p;
    while (*p == ' ' || *p == '\t');
    return true;
}

bool quick_line_end(const char*& p) {
    quick_blanks(p);
    if (*p == '\r') ++p;
    return *p++ == '\n';
}

// A spelled real number taken apart: [sign] digits [. digits] [letter [sign] digits], or without the letter as Fortran
// writes exponents of three digits.
struct RealSpelling {
    std::string text;  // as std::from_chars wants it
    bool fortran = false;
    bool zero = true;
    bool magnitude_above_one = false;
};

std::optional<RealSpelling> spell_real(std::string_view word) {
    RealSpelling out;
    std::size_t i = 0;
    if (i < word.size() && (word[i] == '+' || word[i] == '-')) ++i;
    if (word.starts_with('-')) out.text += '-';
    std::int64_t digits = 0;
    std::int64_t leading = 0;  // power of ten of the first nonzero digit, relative to the point
    bool point = false;
    for (; i < word.size() && (is_digit(word[i]) || (word[i] == '.' && !point)); ++i) {
        out.text += word[i];
        if (word[i] == '.') {
            point = true;
            continue;
        }
        ++digits;
        if (word[i] != '0') out.zero = false;
        if (!point && !out.zero) ++leading;
        if (point && out.zero) --leading;
    }
    if (digits == 0) return std::nullopt;
    if (i == word.size()) {
        out.magnitude_above_one = leading > 0;
        return out;
    }
    if (is_exponent_letter(word[i])) {
        ++i;
    } else if (word[i] == '+' || word[i] == '-') {
        out.fortran = true;
    } else {
        return std::nullopt;
    }
    out.text += 'e';
    const bool down = i < word.size() && word[i] == '-';
    if (i < word.size() && (word[i] == '+' || word[i] == '-')) out.text += word[i++];
    if (i == word.size()) return std::nullopt;
    std::int64_t power = 0;
    for (; i < word.size(); ++i) {
        if (!is_digit(word[i])) return std::nullopt;
        out.text += word[i];
        power = std::min<std::int64_t>(power * 10 + (word[i] - '0'),
                                       std::int64_t{1} << 40);  // far beyond any token's length
    }
    out.magnitude_above_one = leading + (down ? -power : power) > 0;
    return out;
}

std::optional<double> spelled_nonfinite(std::string_view word) {
    const bool negative = word.starts_with('-');
    if (negative || word.starts_with('+')) word.remove_prefix(1);
    const std::string name = lower(word);
    const double sign = negative ? -1.0 : 1.0;
    if (name == "nan") return std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
    if (name == "inf" || name == "infinity") return sign * std::numeric_limits<double>::infinity();
    return std::nullopt;
}

// ---- words of the banner
// ------------------------------------------------------------------------------------------------

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

enum class Field { real, integer, pattern };
enum class Symmetry { general, symmetric, skew };

struct Header {
    bool vector = false;
    bool array = false;
    Field field = Field::real;
    Symmetry symmetry = Symmetry::general;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t count = 0;  // entries, or values of an array
    std::int64_t size_line = 0;
    std::int64_t size_column = 0;
};

// ---- warnings: one a kind, with the place of the first and a count
// ------------------------------------------------------

enum class Remark {
    one_percent,
    blank_before,
    extra_words,
    comment_in_body,
    underflow,
    rounded,
    upper_triangle,
    both_triangles
};

class Remarks {
  public:
    void note(Remark kind, std::int64_t line, std::int64_t column) {
        Seen& seen = seen_[static_cast<std::size_t>(kind)];
        if (seen.count++ == 0) {
            seen.line = line;
            seen.column = column;
        }
    }
    std::vector<std::string> sentences(const std::string& name) const {
        static constexpr std::array<const char*, kKinds> kTexts = {
            "the banner starts with one %; it should be %%MatrixMarket",
            "blanks before the banner were skipped",
            "words after the banner's fifth were ignored",
            "a comment below the size line was skipped; the format allows comments only above it",
            "a value too small for a double was taken as 0",
            "an integer beyond 2^53 was rounded to a double",
            "a symmetric file should hold the lower triangle; this one holds the upper one, which was mirrored",
            "a symmetric file that holds entries on both sides of the diagonal; no place is given twice",
        };
        std::vector<std::string> out;
        for (std::size_t kind = 0; kind < kKinds; ++kind) {
            const Seen& seen = seen_[kind];
            if (seen.count == 0) continue;
            out.push_back(fmt::format("{}:{}:{}: {}", name, seen.line, seen.column, kTexts[kind]));
            if (seen.count > 1) out.back() += fmt::format(" ({} times, first here)", seen.count);
        }
        return out;
    }

  private:
    static constexpr std::size_t kKinds = 8;
    struct Seen {
        std::int64_t count = 0;
        std::int64_t line = 0;
        std::int64_t column = 0;
    };
    std::array<Seen, kKinds> seen_;
};

// ---- both triangles of a symmetric file
// ---------------------------------------------------------------------------------

// Remembers the off-diagonal entries of a symmetric file as they were given, 8 bytes each, to tell whether a place was
// given from both sides. Lines are kept from the first entry on whose side differs from those before: the later one of
// any such pair comes no earlier.
class TriangleLog {
  public:
    void add(std::int32_t row, std::int32_t col, std::int64_t line) {
        if (size_ % kBlock == 0) blocks_.push_back(std::unique_ptr<Place[]>(new Place[kBlock]));
        blocks_.back()[size_ % kBlock] = {row, col};
        if (size_ == 0) {
            lower_first_ = row > col;
            start_line_ = line;
        }
        if (first_line_ == kNone && (row > col) != lower_first_) first_line_ = size_;
        if (first_line_ != kNone) lines_.push_back(line);
        ++size_;
    }
    bool holds_both_sides() const { return first_line_ != kNone; }
    bool starts_above() const { return size_ > 0 && !lower_first_; }
    std::int64_t start_line() const { return start_line_; }
    std::int64_t other_side_line() const { return lines_.front(); }

    struct Conflict {
        std::int64_t line = 0;
        std::int64_t row = 0;  // from 1
        std::int64_t col = 0;
    };
    // The first line that gives a place whose mirror image was given before.
    std::optional<Conflict> find_conflict() const {
        struct Given {
            std::uint64_t place;  // of the lower triangle
            std::size_t number;
        };
        std::vector<Given> given(size_);
        for (std::size_t k = 0; k < size_; ++k) {
            const Place& p = at(k);
            given[k] = {static_cast<std::uint64_t>(std::max(p.row, p.col)) << 32 |
                            static_cast<std::uint64_t>(std::min(p.row, p.col)),
                        k};
        }
        std::sort(given.begin(), given.end(), [](const Given& a, const Given& b) {
            return a.place != b.place ? a.place < b.place : a.number < b.number;
        });
        std::size_t first = size_;
        for (std::size_t k = 1; k < size_; ++k) {
            if (given[k].place != given[k - 1].place) continue;
            if (at(given[k].number).row != at(given[k - 1].number).row) first = std::min(first, given[k].number);
        }
        if (first == size_) return std::nullopt;
        return Conflict{lines_[first - first_line_], at(first).row + std::int64_t{1}, at(first).col + std::int64_t{1}};
    }

  private:
    static constexpr std::size_t kBlock = std::size_t{1} << 17;
    static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    struct Place {
        std::int32_t row;
        std::int32_t col;
    };
    const Place& at(std::size_t k) const { return blocks_[k / kBlock][k % kBlock]; }

    std::vector<std::unique_ptr<Place[]>> blocks_;
    std::size_t size_ = 0;
    bool lower_first_ = true;
    std::int64_t start_line_ = 0;
    std::size_t first_line_ = kNone;  // the entry that lines_[0] belongs to
    std::vector<std::int64_t> lines_;
};

// ---- the reader
// ---------------------------------------------------------------------------------------------------------

class Reader {
  public:
    Reader(TextCursor& text, const ReadOptions& options) : text_(text), options_(options) {}

    MatrixFile matrix();
    DenseFile dense();
    DenseFile plain_numbers();

  private:
    void read_banner();
    Token banner_word(const char* what, int words_before);
    void read_sizes();
    void check_sizes(const std::array<std::int64_t, 3>& columns, std::size_t sizes);

    bool go_to_content();
    void expect_line_end(const std::string& expected);
    void expect_end_of_file();
    [[noreturn]] void fail_short(std::int64_t read);

    Token word(const char* what);
    void refuse_odd_bytes(const Token& word);
    std::optional<std::int64_t> integer(const Token& word, const char* what);
    std::int32_t index(const char* what, std::int64_t limit, std::int64_t other_limit);
    double value();
    double real_value(const Token& word);
    double integer_value(const Token& word);
    double overflowed(const Token& word, bool negative);

    void read_entries();
    std::int64_t quick_entries(std::int64_t limit);
    void careful_entry(std::int64_t read);
    void add(std::int32_t row, std::int32_t col, double value, std::int64_t line);
    void check_triangles();

    std::vector<double> read_array();
    void quick_values(std::vector<double>& values, std::size_t limit);
    template <class Add>
    void place_array(const std::vector<double>& values, Add add_at) const;

    void check_claim(std::int64_t count, const char* what) const;
    CsrMatrix build();
    std::vector<std::string> warnings() const { return remarks_.sentences(text_.source().name()); }

    TextCursor& text_;
    const ReadOptions& options_;
    std::string_view comment_marks_ = "%";
    bool in_body_ = false;
    Header header_;
    Remarks remarks_;
    CsrBuilder builder_;
    TriangleLog triangles_;
};

// What text without a banner may be, for a person who took the wrong file.
std::string describe_stray(std::string_view head) {
    if (head.find('\0') != std::string_view::npos) return "this is binary data";
    // Rutherford-Boeing and Harwell-Boeing: the third line starts with a type such as RUA.
    std::string_view third = head;
    for (int line = 0; line < 2; ++line) third.remove_prefix(std::min(third.size(), third.find('\n') + 1));
    const std::string type = lower(third.substr(0, 4));
    if (type.size() == 4 && std::strchr("rcpqi", type[0]) != nullptr && std::strchr("suhzr", type[1]) != nullptr &&
        std::strchr("ae", type[2]) != nullptr && type[3] == ' ') {
        return "this looks like a Harwell-Boeing or Rutherford-Boeing file; convert it to Matrix Market";
    }
    const std::size_t content = head.find_first_not_of(" \t\r\n");
    if (content != std::string_view::npos &&
        (is_digit(head[content]) || head[content] == '#' || head[content] == '-')) {
        return "if this is plain 'i j value' text, put the lines '%%MatrixMarket matrix coordinate real general' and "
               "'rows columns entries' above it";
    }
    return "a Matrix Market file starts with '%%MatrixMarket matrix coordinate real general' or alike";
}

std::string describe_unknown(const char* what, std::string_view word, std::initializer_list<std::string_view> allowed) {
    std::string text = fmt::format("unknown {} {}; expected {}", what, excerpt(word), fmt::join(allowed, ", "));
    const std::string spelled = lower(word.substr(0, 40));
    for (const std::string_view candidate : allowed) {
        if (edit_distance(spelled, candidate) <= 2) return text + fmt::format("; did you mean {}?", candidate);
    }
    return text;
}

Token Reader::banner_word(const char* what, int words_before) {
    text_.skip_blanks();
    if (text_.at_line_end()) {
        text_.fail(
            fmt::format("the banner ends after {} words, its {} is missing; expected '%%MatrixMarket object format "
                        "field symmetry'",
                        words_before, what));
    }
    return text_.token();
}

void Reader::read_banner() {
    const std::string head(text_.peek_ahead(1024));
    text_.skip_blanks();
    while (text_.peek() != TextCursor::kEnd && text_.at_line_end()) {
        text_.next_line();
        text_.skip_blanks();
    }
    if (text_.line() > 1 || text_.column() > 1) remarks_.note(Remark::blank_before, 1, 1);

    const Token banner = text_.token();
    const std::string mark = lower(banner.text.substr(0, 15));
    const std::size_t percents = mark.starts_with("%%") ? 2 : 1;
    if (!mark.starts_with("%") || !mark.substr(percents).starts_with("matrixmarket")) {
        text_.fail_at(banner.column, "no %%MatrixMarket banner; " + describe_stray(head));
    }
    const std::size_t length = percents + std::string_view("matrixmarket").size();
    if (banner.text.size() != length) {
        text_.fail_at(banner.column + static_cast<std::int64_t>(length),
                      "a blank is missing in the banner behind %%MatrixMarket");
    }
    if (percents == 1) remarks_.note(Remark::one_percent, text_.line(), banner.column);

    const Token object = banner_word("object", 1);
    const std::string object_name = lower(object.text);
    header_.vector = object_name == "vector";
    if (!header_.vector && object_name != "matrix") {
        text_.fail_at(object.column, describe_unknown("object", object.text, {"matrix", "vector"}));
    }

    const Token format = banner_word("format", 2);
    const std::string format_name = lower(format.text);
    header_.array = format_name == "array";
    if (!header_.array && format_name != "coordinate") {
        text_.fail_at(format.column, describe_unknown("format", format.text, {"coordinate", "array"}));
    }

    const Token field = banner_word("field", 3);
    const std::string field_name = lower(field.text);
    if (field_name == "real" || field_name == "double") {
        header_.field = Field::real;
    } else if (field_name == "integer" || field_name == "unsigned-integer") {
        header_.field = Field::integer;
    } else if (field_name == "pattern") {
        header_.field = Field::pattern;
        if (header_.array)
            text_.fail_at(field.column, "an array cannot be a pattern; the format allows real or integer arrays");
    } else if (field_name == "complex") {
        text_.fail_at(field.column, "complex matrices are not supported");
    } else {
        text_.fail_at(field.column, describe_unknown("field", field.text,
                                                     {"real", "double", "integer", "unsigned-integer", "pattern"}));
    }

    const Token symmetry = banner_word("symmetry", 4);
    const std::string symmetry_name = lower(symmetry.text);
    const bool hermitian = symmetry_name == "hermitian";
    if (symmetry_name == "general") {
        header_.symmetry = Symmetry::general;
    } else if (symmetry_name == "symmetric" || hermitian) {
        header_.symmetry = Symmetry::symmetric;
    } else if (symmetry_name == "skew-symmetric") {
        header_.symmetry = Symmetry::skew;
    } else {
        text_.fail_at(symmetry.column, describe_unknown("symmetry", symmetry.text,
                                                        {"general", "symmetric", "skew-symmetric", "hermitian"}));
    }
    if (header_.field == Field::pattern && (hermitian || header_.symmetry == Symmetry::skew)) {
        text_.fail_at(symmetry.column,
                      fmt::format("a pattern cannot be {}; expected general or symmetric", symmetry_name));
    }
    if (header_.vector && header_.symmetry != Symmetry::general) {
        text_.fail_at(symmetry.column, fmt::format("a vector cannot be {}; expected general", symmetry_name));
    }

    text_.skip_blanks();
    if (!text_.at_line_end()) remarks_.note(Remark::extra_words, text_.line(), text_.column());
    text_.next_line();
}

void Reader::read_sizes() {
    if (!go_to_content()) text_.fail_at_end("size line missing (end of file)");
    static constexpr std::array<const char*, 3> kMatrix = {"rows", "columns", "entries"};
    static constexpr std::array<const char*, 3> kVector = {"rows", "entries", ""};
    const auto& names = header_.vector ? kVector : kMatrix;
    const std::size_t sizes = 1 + !header_.vector + !header_.array;
    const std::string expected = fmt::format("{}", fmt::join(names.begin(), names.begin() + sizes, " "));

    header_.size_line = text_.line();
    std::array<std::int64_t, 3> numbers{};
    std::array<std::int64_t, 3> columns{};
    for (std::size_t i = 0; i < sizes; ++i) {
        text_.skip_blanks();
        if (text_.at_line_end()) {
            text_.fail(fmt::format("expected {}; {} number{} found{}", expected, i, i == 1 ? "" : "s",
                                   sizes == 3 && i == 2 ? " (array files have 2)" : ""));
        }
        const Token size = text_.token();
        columns[i] = size.column;
        const std::optional<std::int64_t> number = integer(size, names[i]);
        if (!number) text_.fail_at(size.column, fmt::format("{} {} is out of range", names[i], excerpt(size.text)));
        numbers[i] = *number;
        if (numbers[i] < 0) text_.fail_at(size.column, fmt::format("negative {}: {}", names[i], numbers[i]));
        const bool dimension = i == 0 || (i == 1 && !header_.vector);
        if (dimension && numbers[i] > kMaxDimension) {
            text_.fail_at(size.column,
                          fmt::format("{} {} {} are too many; rows and columns are limited to {}", numbers[i], names[i],
                                      header_.array ? "of an array" : "of a matrix", kMaxDimension));
        }
    }
    header_.rows = numbers[0];
    header_.cols = header_.vector ? 1 : numbers[1];
    header_.count = numbers[sizes - 1];
    text_.skip_blanks();
    expect_line_end(fmt::format("nothing behind {}{}", expected,
                                sizes == 2 && !header_.vector ? " (coordinate files have 3 numbers)" : ""));
    check_sizes(columns, sizes);
}

void Reader::check_sizes(const std::array<std::int64_t, 3>& columns, std::size_t sizes) {
    const auto fail = [&](std::int64_t column, const std::string& text) {
        throw InputError(text_.source().name(), header_.size_line, column, text);
    };
    header_.size_column = columns[0];
    if (header_.symmetry != Symmetry::general && header_.rows != header_.cols) {
        fail(columns[0], fmt::format("a symmetric matrix must be square, this is {} x {}", header_.rows, header_.cols));
    }
    if (header_.array) {
        switch (header_.symmetry) {
            case Symmetry::general:
                header_.count = header_.rows * header_.cols;
                break;
            case Symmetry::symmetric:
                header_.count = header_.rows * (header_.rows + 1) / 2;
                break;
            case Symmetry::skew:
                header_.count = header_.rows * (header_.rows - 1) / 2;
                break;
        }
    }
    const std::int64_t left = text_.bytes_left();
    if (left >= 0 && header_.count > left) {
        fail(header_.array ? columns[0] : columns[sizes - 1],
             fmt::format("the {} bytes that follow cannot hold {} {}", left, header_.count,
                         header_.array ? "values" : "entries"));
    }
}

// ---- lines of the body
// --------------------------------------------------------------------------------------------------

// Skips blank lines and comments up to the first word of a line; false at the end of the file.
bool Reader::go_to_content() {
    for (;;) {
        text_.skip_blanks();
        const int next = text_.peek();
        if (next == TextCursor::kEnd) return false;
        const bool comment = comment_marks_.find(static_cast<char>(next)) != std::string_view::npos;
        if (!comment && !text_.at_line_end()) return true;
        if (comment && in_body_) remarks_.note(Remark::comment_in_body, text_.line(), text_.column());
        text_.next_line();
    }
}

void Reader::expect_line_end(const std::string& expected) {
    text_.skip_blanks();
    if (!text_.at_line_end()) {
        const Token extra = text_.token();
        text_.fail_at(extra.column, fmt::format("found {}, expected {}", excerpt(extra.text), expected));
    }
    text_.next_line();
}

void Reader::expect_end_of_file() {
    if (!go_to_content()) return;
    const Token extra = text_.token();
    refuse_odd_bytes(extra);
    text_.fail_at(extra.column, fmt::format("more than {} {}: found {}, expected the end of the file", header_.count,
                                            header_.array ? "values" : "entries", excerpt(extra.text)));
}

void Reader::fail_short(std::int64_t read) {
    text_.fail_at_end(
        fmt::format("the file ended after {} of {} {}", read, header_.count, header_.array ? "values" : "entries"));
}

// ---- words
// --------------------------------------------------------------------------------------------------------------

Token Reader::word(const char* what) {
    text_.skip_blanks();
    if (text_.at_line_end()) {
        const char* line = header_.vector                    ? "row [value]"
                           : header_.field == Field::pattern ? "row column"
                                                             : "row column value";
        text_.fail(fmt::format("{} missing; expected '{}' on one line", what, line));
    }
    return text_.token();
}

// Names the byte that no number can hold, where there is one.
void Reader::refuse_odd_bytes(const Token& word) {
    const auto odd = std::find_if(word.text.begin(), word.text.end(), [](char c) {
        return !is_digit(c) && !(lower(c) >= 'a' && lower(c) <= 'z') && c != '+' && c != '-' && c != '.';
    });
    if (odd == word.text.end()) return;
    const std::int64_t column = word.column + (odd - word.text.begin());
    if (*odd == '\0') text_.fail_at(column, "a NUL byte; the file is binary or damaged");
    const char* hint =
        *odd == ',' ? "; a decimal comma, or commas between numbers? numbers have a point and stand between blanks"
                    : "";
    text_.fail_at(column,
                  fmt::format("found {} in {}, expected a number{}", excerpt({odd, 1}), excerpt(word.text), hint));
}

// The integer that `word` is, nothing when it exceeds 64 bits.
std::optional<std::int64_t> Reader::integer(const Token& word, const char* what) {
    std::string_view digits = word.text;
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool double_sign = digits.size() != word.text.size() && digits.starts_with('-');
    if (error == std::errc::invalid_argument || end != digits.data() + digits.size() || double_sign) {
        refuse_odd_bytes(word);
        text_.fail_at(word.column, fmt::format("found {}, expected an integer ({})", excerpt(word.text), what));
    }
    if (error == std::errc::result_out_of_range) return std::nullopt;
    return number;
}

// Zero-based. The other dimension's limit is for the hint only.
std::int32_t Reader::index(const char* what, std::int64_t limit, std::int64_t other_limit) {
    const Token token = word(what);
    const std::optional<std::int64_t> number = integer(token, what);
    if (!number || *number < 1 || *number > limit) {
        const char* hint = !number        ? ""
                           : *number == 0 ? "; a zero-based file? Matrix Market counts from 1"
                           : *number > limit && *number <= other_limit
                               ? "; it would fit if rows and columns were swapped"
                               : "";
        const std::string range =
            limit > 0 ? fmt::format("outside 1..{}", limit) : fmt::format("but there are no {}s", what);
        text_.fail_at(token.column, fmt::format("{} {} {}{}", what, excerpt(token.text), range, hint));
    }
    return static_cast<std::int32_t>(*number - 1);
}

double Reader::value() {
    const Token token = word("value");
    return header_.field == Field::integer ? integer_value(token) : real_value(token);
}

double Reader::overflowed(const Token& word, bool negative) {
    if (!options_.allow_nonfinite) {
        text_.fail_at(word.column, fmt::format("{} overflows a double (largest: 1.8e308)", excerpt(word.text)));
    }
    const double infinity = std::numeric_limits<double>::infinity();
    return negative ? -infinity : infinity;
}

double Reader::real_value(const Token& word) {
    const std::optional<RealSpelling> spelling = spell_real(word.text);
    if (!spelling) {
        if (const std::optional<double> special = spelled_nonfinite(word.text)) {
            if (options_.allow_nonfinite) return *special;
            text_.fail_at(word.column, fmt::format("{} is not finite; --check --allow-nonfinite counts such values",
                                                   excerpt(word.text)));
        }
        refuse_odd_bytes(word);
        text_.fail_at(word.column, fmt::format("found {}, expected a number", excerpt(word.text)));
    }
    if (spelling->fortran && !options_.fortran_numbers) {
        text_.fail_at(word.column,
                      fmt::format("found {}, an exponent without its letter; --fortran-numbers reads such numbers",
                                  excerpt(word.text)));
    }
    const bool negative = spelling->text.starts_with('-');
    double number = 0;
    const auto [end, error] =
        std::from_chars(spelling->text.data(), spelling->text.data() + spelling->text.size(), number);
    if (error == std::errc()) return number;
    if (spelling->magnitude_above_one) return overflowed(word, negative);
    remarks_.note(Remark::underflow, text_.line(), word.column);
    return negative ? -0.0 : 0.0;
}

double Reader::integer_value(const Token& word) {
    const bool integral = word.text.find_first_of(".eEdDnN") == std::string_view::npos;
    if (!integral) {
        refuse_odd_bytes(word);
        text_.fail_at(word.column,
                      fmt::format("found {}, expected an integer; should the banner say real?", excerpt(word.text)));
    }
    if (const std::optional<std::int64_t> number = integer(word, "value")) {
        const auto rounded = static_cast<double>(*number);
        if (std::abs(rounded) > kLargestExactInteger ||
            (std::abs(rounded) == kLargestExactInteger && *number % 2 != 0)) {
            remarks_.note(Remark::rounded, text_.line(), word.column);
        }
        return rounded;
    }
    remarks_.note(Remark::rounded, text_.line(), word.column);
    const std::string_view digits = word.text.substr(word.text.starts_with('+'));
    double rounded = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
    return error == std::errc() ? rounded : overflowed(word, digits.starts_with('-'));
}

// ---- coordinate files
// ---------------------------------------------------------------------------------------------------

inline void Reader::add(std::int32_t row, std::int32_t col, double value, std::int64_t line) {
    builder_.add(row, col, value);
    if (header_.symmetry == Symmetry::general || row == col) return;
    builder_.add(col, row, header_.symmetry == Symmetry::skew ? -value : value);
    triangles_.add(row, col, line);
}

// Parses entries in place while they are spelled as usual; stops at a line that is something else (for careful_entry to
// judge) or that the window does not hold to its end. Returns how many it took.
std::int64_t Reader::quick_entries(std::int64_t limit) {
    const auto rows = static_cast<std::uint64_t>(header_.rows);
    const auto cols = static_cast<std::uint64_t>(header_.cols);
    const bool skew = header_.symmetry == Symmetry::skew;
    const std::int64_t first_line = text_.line();
    const char* line = text_.window_begin();
    std::int64_t lines = 0;
    for (; lines < limit; ++lines) {
        const char* p = line;
        std::int32_t row = 0;
        std::int32_t col = 0;
        double number = 1;
        quick_blanks(p);
        if (!quick_index(p, rows, row) || !quick_blanks(p) || !quick_index(p, cols, col)) break;
        if (header_.field != Field::pattern) {
            if (!quick_blanks(p)) break;
            if (!(header_.field == Field::real ? quick_real(p, number) : quick_integer(p, number))) break;
        }
        if (!quick_line_end(p)) break;
        if (skew && row == col) break;
        add(row, col, number, first_line + lines);
        line = p;
    }
    if (lines > 0) text_.take_lines(line, lines);
    return lines;
}

void Reader::careful_entry(std::int64_t read) {
    if (!go_to_content()) fail_short(read);
    const std::int64_t line = text_.line();
    const std::int32_t row = index("row", header_.rows, header_.cols);
    const std::int32_t col = header_.vector ? 0 : index("column", header_.cols, header_.rows);
    double number = 1;
    if (header_.field != Field::pattern) {
        text_.skip_blanks();
        const std::int64_t column = text_.column();
        number = value();
        if (header_.symmetry == Symmetry::skew && row == col && number != 0) {
            text_.fail_at(column, fmt::format("the diagonal of a skew-symmetric matrix is zero, found {}", number));
        }
    }
    expect_line_end(header_.field == Field::pattern
                        ? "the end of the line: a pattern file has no values; is its header wrong?"
                        : "the end of the line");
    if (header_.symmetry == Symmetry::skew && row == col) return;
    add(row, col, number, line);
}

void Reader::read_entries() {
    for (std::int64_t read = 0; read < header_.count;) {
        if (!header_.vector) read += quick_entries(header_.count - read);
        if (read < header_.count) careful_entry(read++);
    }
}

void Reader::check_triangles() {
    if (!triangles_.holds_both_sides()) {
        if (triangles_.starts_above()) remarks_.note(Remark::upper_triangle, triangles_.start_line(), 1);
        return;
    }
    if (const auto conflict = triangles_.find_conflict()) {
        throw InputError(
            text_.source().name(), conflict->line, 1,
            fmt::format("({0}, {1}) of a symmetric matrix, but ({1}, {0}) was given before: both triangles are there",
                        conflict->row, conflict->col));
    }
    remarks_.note(Remark::both_triangles, triangles_.other_side_line(), 1);
}

// ---- array files
// --------------------------------------------------------------------------------------------------------

void Reader::quick_values(std::vector<double>& values, std::size_t limit) {
    const char* line = text_.window_begin();
    std::int64_t lines = 0;
    while (values.size() < limit) {
        const char* p = line;
        double number = 0;
        quick_blanks(p);
        if (!(header_.field == Field::real ? quick_real(p, number) : quick_integer(p, number)) || !quick_line_end(p))
            break;
        values.push_back(number);
        line = p;
        ++lines;
    }
    if (lines > 0) text_.take_lines(line, lines);
}

std::vector<double> Reader::read_array() {
    const auto count = static_cast<std::size_t>(header_.count);
    std::vector<double> values;
    while (values.size() < count) {
        quick_values(values, count);
        if (values.size() == count) break;
        if (!go_to_content()) fail_short(static_cast<std::int64_t>(values.size()));
        values.push_back(value());
        expect_line_end("one value per line, column-major");
    }
    return values;
}

// Calls add_at(row, column, value) for every element that the values of an array file stand for.
template <class Add>
void Reader::place_array(const std::vector<double>& values, Add add_at) const {
    const auto rows = static_cast<std::int32_t>(header_.rows);
    const auto cols = static_cast<std::int32_t>(header_.cols);
    auto next = values.begin();
    for (std::int32_t col = 0; col < cols; ++col) {
        if (header_.symmetry == Symmetry::general) {
            for (std::int32_t row = 0; row < rows; ++row) add_at(row, col, *next++);
            continue;
        }
        const bool skew = header_.symmetry == Symmetry::skew;
        if (!skew) add_at(col, col, *next++);
        for (std::int32_t row = col + 1; row < rows; ++row, ++next) {
            add_at(row, col, *next);
            add_at(col, row, skew ? -*next : *next);
        }
    }
}

// ---- whole files
// --------------------------------------------------------------------------------------------------------

// Refuses sizes that ask for `count` numbers of memory which nothing in the file justifies (see ReadOptions).
void Reader::check_claim(std::int64_t count, const char* what) const {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(double));
    if (count <= options_.expansion_free_bytes / kBytes) return;
    const std::int64_t taken = text_.source().bytes_taken();
    if (count / options_.max_expansion_ratio <= taken / kBytes) return;
    throw InputError(text_.source().name(), header_.size_line, header_.size_column,
                     fmt::format("a {} x {} matrix needs memory for {} {}, but the file has only {} bytes; refused",
                                 header_.rows, header_.cols, count, what, taken));
}

// The body of a file whose header was read, up to its end, as a matrix.
CsrMatrix Reader::build() {
    if (header_.array) {
        const std::vector<double> values = read_array();
        expect_end_of_file();
        place_array(values,
                    [this](std::int32_t row, std::int32_t col, double number) { builder_.add(row, col, number); });
    } else {
        read_entries();
        expect_end_of_file();
        check_triangles();
        triangles_ = {};
    }
    check_claim(header_.rows + header_.cols, "row and column offsets");
    return builder_.build(header_.rows, header_.cols);
}

MatrixFile Reader::matrix() {
    read_banner();
    read_sizes();
    in_body_ = true;
    MatrixFile file;
    file.matrix = build();
    file.warnings = warnings();
    if (file.matrix.nnz() == 0 && header_.rows > 0 && header_.cols > 0) {
        file.warnings.push_back(text_.source().name() + ": the matrix has no entries");
    }
    return file;
}

DenseFile Reader::dense() {
    read_banner();
    read_sizes();
    in_body_ = true;
    DenseFile file;
    file.rows = header_.rows;
    file.cols = header_.cols;
    const auto at = [&file](std::int64_t row, std::int64_t col) -> double& {
        return file.values[static_cast<std::size_t>(col * file.rows + row)];
    };
    if (header_.array) {
        file.values = read_array();
        expect_end_of_file();
        if (header_.symmetry != Symmetry::general) {
            const std::vector<double> packed =
                std::exchange(file.values, std::vector<double>(static_cast<std::size_t>(file.rows * file.cols)));
            place_array(packed, [&at](std::int32_t row, std::int32_t col, double number) { at(row, col) = number; });
        }
    } else {
        const CsrMatrix sparse = build();
        check_claim(file.rows * file.cols, "values");
        file.values.resize(static_cast<std::size_t>(file.rows * file.cols));
        for (std::int64_t row = 0; row < file.rows; ++row) {
            for (std::int64_t k = sparse.offsets()[row]; k < sparse.offsets()[row + 1]; ++k)
                at(row, sparse.columns()[k]) = sparse.values()[k];
        }
    }
    file.warnings = warnings();
    return file;
}

DenseFile Reader::plain_numbers() {
    comment_marks_ = "#%";
    DenseFile file;
    for (;;) {
        quick_values(file.values, std::numeric_limits<std::size_t>::max());
        if (!go_to_content()) break;
        file.values.push_back(value());
        expect_line_end("one number a line; several columns need a Matrix Market array file");
    }
    if (file.values.empty()) text_.fail_at_end("no numbers in the file");
    file.rows = static_cast<std::int64_t>(file.values.size());
    file.cols = 1;
    file.warnings = warnings();
    return file;
}

}  // namespace

MatrixFile parse_matrix_market(TextCursor& text, const ReadOptions& options) {
    return Reader(text, options).matrix();
}

DenseFile parse_matrix_market_dense(TextCursor& text, const ReadOptions& options) {
    return Reader(text, options).dense();
}

DenseFile parse_plain_numbers(TextCursor& text, const ReadOptions& options) {
    return Reader(text, options).plain_numbers();
}

}  // namespace lsmr
