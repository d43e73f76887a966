#include "data/read.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "data/byte_source.hpp"
#include "data/matrix_market.hpp"

namespace lsmr {
namespace {

using std::string_view_literals::operator""sv;

struct LookAlike {
    std::string_view start;
    const char* words;
};

constexpr std::array kLookAlikes = {
    LookAlike{"\x1f\x8b"sv, "gzip inside gzip; decompress it once (gunzip) first"},
    LookAlike{"\x28\xb5\x2f\xfd"sv, "zstd-compressed data; decompress it (unzstd) first"},
    LookAlike{"BZh"sv, "bzip2-compressed data; decompress it (bunzip2) first"},
    LookAlike{"\xfd\x37zXZ\0"sv, "xz-compressed data; decompress it (unxz) first"},
    LookAlike{"PK\x03\x04"sv, "a zip archive (or .npz), not a matrix file"},
    LookAlike{"\x93NUMPY"sv, "a NumPy array file (.npy), not Matrix Market"},
    LookAlike{"\x89HDF\r\n"sv, "an HDF5 file, not Matrix Market"},
    LookAlike{"MATLAB 5.0"sv, "a MATLAB .mat file, not Matrix Market"},
    LookAlike{"%PDF"sv, "a PDF file, not a matrix"},
    LookAlike{"\xff\xfe"sv, "UTF-16 text; convert it to ASCII or UTF-8"},
    LookAlike{"\xfe\xff"sv, "UTF-16 text; convert it to ASCII or UTF-8"},
    LookAlike{"%\0"sv, "UTF-16 text; convert it to ASCII or UTF-8"},
    LookAlike{"\0%"sv, "UTF-16 text; convert it to ASCII or UTF-8"},
};

bool starts_with_word(std::string_view text, std::string_view lower_case) {
    return text.size() >= lower_case.size() &&
           std::equal(lower_case.begin(), lower_case.end(), text.begin(),
                      [](char want, char c) { return want == (c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); });
}

// Refuses, in words, what is plainly something else; skips a byte-order mark.
void check_start(TextCursor& text) {
    constexpr std::size_t kTarMagic = 257;  // offset of "ustar" in the header block of a tar archive
    constexpr std::size_t kHead = 512;
    if (text.peek() == TextCursor::kEnd) text.fail("empty file");
    const std::string_view head = text.peek_ahead(kHead);
    for (const LookAlike& other : kLookAlikes) {
        if (head.starts_with(other.start)) text.fail(other.words);
    }
    if (head.size() > kTarMagic && head.substr(kTarMagic).starts_with("ustar")) {
        text.fail("a tar archive, whatever its name says; unpack it (tar xf) and give the matrix file inside");
    }
    const std::size_t content = std::min(head.find_first_not_of(" \t\r\n"), head.size());
    for (const std::string_view mark : {"<!doctype"sv, "<html"sv, "<head"sv, "<?xml"sv}) {
        if (starts_with_word(head.substr(content), mark)) text.fail("looks like HTML, not a matrix (download failed?)");
    }
    if (head.starts_with("\xef\xbb\xbf")) text.drop_prefix(3);
}

bool has_banner(TextCursor& text) {
    constexpr std::size_t kHead = 512;
    std::string_view head = text.peek_ahead(kHead);
    head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
    return starts_with_word(head, "%%matrixmarket") || starts_with_word(head, "%matrixmarket");
}

bool is_file(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
}

}  // namespace

MatrixFile read_matrix(ByteSource& source, const ReadOptions& options) {
    TextCursor text(source);
    check_start(text);
    return parse_matrix_market(text, options);
}

MatrixFile read_matrix(const std::string& path, const ReadOptions& options) {
    ByteSource source = ByteSource::open(path, options);
    return read_matrix(source, options);
}

DenseFile read_dense(ByteSource& source, const ReadOptions& options) {
    TextCursor text(source);
    check_start(text);
    return has_banner(text) ? parse_matrix_market_dense(text, options) : parse_plain_numbers(text, options);
}

DenseFile read_dense(const std::string& path, const ReadOptions& options) {
    ByteSource source = ByteSource::open(path, options);
    return read_dense(source, options);
}

RhsBeside find_rhs_beside(const std::string& matrix_path) {
    std::string_view stem = matrix_path;
    if (stem.ends_with(".gz")) stem.remove_suffix(3);
    if (!stem.ends_with(".mtx")) return {};
    stem.remove_suffix(4);
    RhsBeside found;
    for (const char* tail : {"_b.mtx", "_b.mtx.gz", "_rhs.mtx", "_rhs.mtx.gz"}) {
        const std::string path = std::string(stem) + tail;
        if (!is_file(path)) continue;
        if (found.chosen.empty()) {
            found.chosen = path;
        } else {
            found.others.push_back(path);
        }
    }
    return found;
}

}  // namespace lsmr
