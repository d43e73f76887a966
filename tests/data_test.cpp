// What the readers take, what they refuse and where they say so; what the writers leave behind.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <clocale>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <locale>
#include <random>
#include <sstream>
#include <thread>

#include "data/byte_source.hpp"
#include "data/read.hpp"
#include "data/write.hpp"
#include "memory/error.hpp"

using namespace lsmr;
using namespace std::string_literals;
namespace fs = std::filesystem;

namespace {

const std::string kReal = "%%MatrixMarket matrix coordinate real general\n";
const std::string kInteger = "%%MatrixMarket matrix coordinate integer general\n";
const std::string kPattern = "%%MatrixMarket matrix coordinate pattern general\n";
const std::string kSymmetric = "%%MatrixMarket matrix coordinate real symmetric\n";
const std::string kSkew = "%%MatrixMarket matrix coordinate real skew-symmetric\n";
const std::string kArray = "%%MatrixMarket matrix array real general\n";

std::string repeat(const std::string& text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
}

MatrixFile read(const std::string& bytes, const ReadOptions& options = {}) {
    ByteSource source = ByteSource::from_memory(bytes, "x.mtx", options);
    return read_matrix(source, options);
}

DenseFile dense(const std::string& bytes, const ReadOptions& options = {}) {
    ByteSource source = ByteSource::from_memory(bytes, "b.txt", options);
    return read_dense(source, options);
}

// The matrix as rows of a dense table.
std::vector<std::vector<double>> table(const CsrMatrix& a) {
    std::vector<std::vector<double>> out(static_cast<std::size_t>(a.rows()),
                                         std::vector<double>(static_cast<std::size_t>(a.cols()), 0.0));
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            out[static_cast<std::size_t>(i)][static_cast<std::size_t>(a.columns()[k])] = a.values()[k];
        }
    }
    return out;
}

using Table = std::vector<std::vector<double>>;

void reads(const std::string& bytes, const Table& expected, const std::string& warning = "",
           const ReadOptions& options = {}) {
    const MatrixFile file = read(bytes, options);
    CHECK(table(file.matrix) == expected);
    if (warning.empty()) {
        CHECK(file.warnings.empty());
    } else {
        REQUIRE(file.warnings.size() == 1);
        CAPTURE(file.warnings[0]);
        CHECK(file.warnings[0].find(warning) != std::string::npos);
    }
}

// `read_it` throws an InputError that starts with name:line:column and says `words`.
template <class Read>
void fails(Read read_it, const std::string& name, std::int64_t line, std::int64_t column, const std::string& words) {
    try {
        read_it();
        FAIL("accepted");
    } catch (const InputError& error) {
        const std::string what = error.what();
        CAPTURE(what);
        CHECK(error.kind() == InputError::Kind::malformed);
        CHECK(error.line() == line);
        CHECK(error.column() == column);
        CHECK(what.starts_with(fmt::format("{}:{}:{}: ", name, line, column)));
        CHECK(what.find(words) != std::string::npos);
        CHECK(std::all_of(what.begin(), what.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    }
}

void refuses(const std::string& bytes, std::int64_t line, std::int64_t column, const std::string& words,
             const ReadOptions& options = {}) {
    fails([&] { read(bytes, options); }, "x.mtx", line, column, words);
}

void refuses_dense(const std::string& bytes, std::int64_t line, std::int64_t column, const std::string& words) {
    fails([&] { dense(bytes); }, "b.txt", line, column, words);
}

// Members of several calls may be concatenated.
std::string gzip(const std::string& bytes) {
    z_stream stream{};
    REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
    std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

// One ustar member, checksum and all.
std::string tar(const std::string& name, const std::string& bytes) {
    std::string header(512, '\0');
    header.replace(0, name.size(), name);
    header.replace(100, 7, "0000644");
    header.replace(124, 11, fmt::format("{:011o}", bytes.size()));
    header.replace(257, 5, "ustar");
    header.replace(148, 8, "        ");
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
    return header + bytes + std::string(512 - bytes.size() % 512, '\0') + std::string(1024, '\0');
}

// A folder that is gone with the object.
class Folder {
  public:
    Folder() {
        std::string pattern = (fs::temp_directory_path() / "lsmr_data_XXXXXX").string();
        REQUIRE(::mkdtemp(pattern.data()) != nullptr);
        path_ = pattern;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { fs::remove_all(path_); }

    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    std::string path() const { return path_.string(); }
    std::string file(const std::string& name, const std::string& bytes) const {
        std::ofstream(*this / name, std::ios::binary) << bytes;
        return *this / name;
    }
    std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(path_), fs::directory_iterator()); }

  private:
    fs::path path_;
};

std::string contents(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
}

// A pipe that a thread fills, as a path to read.
class Pipe {
  public:
    explicit Pipe(std::function<void(int)> fill) {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        read_end_ = ends[0];
        writer_ = std::thread([fill = std::move(fill), fd = ends[1]] {
            fill(fd);
            ::close(fd);
        });
    }
    ~Pipe() {
        ::close(read_end_);  // ends a writer that was not read to its end, where SIGPIPE is ignored
        writer_.join();
    }
    std::string path() const { return fmt::format("/dev/fd/{}", read_end_); }

  private:
    int read_end_;
    std::thread writer_;
};

void write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd, bytes.data(), bytes.size());
        if (written <= 0) return;
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
}

// Sets a signal's action to "ignore" for a while.
class IgnoreSignal {
  public:
    explicit IgnoreSignal(int number) : number_(number), old_(std::signal(number, SIG_IGN)) {}
    IgnoreSignal(const IgnoreSignal&) = delete;
    IgnoreSignal& operator=(const IgnoreSignal&) = delete;
    ~IgnoreSignal() { std::signal(number_, old_); }

  private:
    int number_;
    void (*old_)(int);
};

// Peak resident memory in MiB that `work` adds; negative where this system, or a sanitizer, does not let us know.
double peak_mib(const std::function<void()>& work) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    work();
    return -1;
#else
    const auto high_water = [] {
        std::ifstream status("/proc/self/status");
        for (std::string word; status >> word;) {
            double kib = -1;
            if (word == "VmHWM:" && status >> kib) return kib / 1024;
        }
        return -1.0;
    };
    std::ofstream reset("/proc/self/clear_refs");
    reset << "5" << std::flush;  // the high-water mark falls to what is resident now
    const double before = reset ? high_water() : -1;
    work();
    return before < 0 ? -1 : high_water() - before;
#endif
}

void stays_below(double limit_mib, const std::function<void()>& work) {
    const double peak = peak_mib(work);
    if (peak < 0) {
        MESSAGE("skipped: peak memory is not known here");
    } else {
        CHECK(peak < limit_mib);
    }
}

bool same_bits(double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

double read_value(const std::string& spelling) {
    const MatrixFile file = read(kReal + "1 1 1\n1 1 " + spelling + "\n");
    REQUIRE(file.matrix.nnz() == 1);
    return file.matrix.values()[0];
}

OutputError::Kind output_kind(const std::function<void()>& work, const std::string& words) {
    try {
        work();
    } catch (const OutputError& error) {
        const std::string what = error.what();
        CAPTURE(what);
        CHECK(what.find(words) != std::string::npos);
        return error.kind();
    }
    FAIL("no OutputError");
    return OutputError::Kind::create;
}

}  // namespace

// ---- header
// -------------------------------------------------------------------------------------------------------------

TEST_CASE("data: M01 an empty file is refused") {
    refuses("", 1, 1, "empty file");
}
TEST_CASE("data: M02 a banner alone lacks its size line") {
    refuses(kReal, 2, 1, "size line missing (end of file)");
    refuses(kReal.substr(0, kReal.size() - 1), 2, 1, "size line missing (end of file)");
    refuses(kReal + "% a\n% b\n", 4, 1, "size line missing (end of file)");
}
TEST_CASE("data: M03 one percent sign in the banner is read with a warning") {
    reads("%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 5\n", {{5, 0}, {0, 0}},
          "x.mtx:1:1: the banner starts with one %");
}
TEST_CASE("data: M04 text without a banner is refused") {
    refuses("2 2 1\n1 1 5\n", 1, 1, "no %%MatrixMarket banner; if this is plain 'i j value' text");
    refuses("# Nodes: 4\n1\t2\n", 1, 1, "no %%MatrixMarket banner");
}
TEST_CASE("data: M05 the words of the banner may be in any case") {
    reads("%%matrixmarket MATRIX Coordinate REAL General\n1 1 1\n1 1 5\n", {{5}});
}
TEST_CASE("data: M06 CRLF line ends are read") {
    reads("%%MatrixMarket matrix coordinate real general\r\n% c\r\n1 1 1\r\n1 1 5\r\n", {{5}});
    reads("%%MatrixMarket matrix array real general\r\n1 1\r\n5\r", {{5}});
}
TEST_CASE("data: M07 carriage returns alone are refused") {
    refuses("%%MatrixMarket matrix coordinate real general\r2 2 1\r1 1 5\r", 1, 46,
            "carriage return without a newline");
    refuses(kReal + "2 2 1\n1 1 5\r2 2 6\n", 3, 6, "carriage return without a newline");
}
TEST_CASE("data: M09 UTF-16 text is refused by name") {
    std::string wide = "\xff\xfe"s;
    for (const char c : kReal) wide += {c, '\0'};
    refuses(wide, 1, 1, "UTF-16 text");
    refuses(wide.substr(2), 1, 1, "UTF-16 text");
}
TEST_CASE("data: M09 a UTF-8 byte-order mark is skipped") {
    reads("\xef\xbb\xbf" + kReal + "1 1 1\n1 1 5\n", {{5}});
    refuses("\xef\xbb\xbf%%MatrixMarket graph", 1, 16, "unknown object");
}
TEST_CASE("data: M10 gzip bytes are told by their magic") {
    reads(gzip(kReal + "1 1 1\n1 1 5\n"), {{5}});
    std::string damaged = gzip(kReal + "1 1 1\n1 1 5\n");
    damaged[damaged.size() - 6] ^= 1;  // in the checksum
    refuses(damaged, 4, 1, "gzip: incorrect data check");
    refuses("\x1f\x8bnot at all", 1, 1, "gzip: ");
}
TEST_CASE("data: M12 an HTML page is refused by name") {
    refuses("<!DOCTYPE html><html>404", 1, 1, "looks like HTML, not a matrix (download failed?)");
    refuses("\n  <HTML>", 1, 1, "looks like HTML");
}
TEST_CASE("data: M13 an unknown field is refused and the known ones listed") {
    refuses("%%MatrixMarket matrix coordinate quaternion general\n1 1 1\n", 1, 34,
            "unknown field 'quaternion'; expected real, double, integer, unsigned-integer, pattern");
}
TEST_CASE("data: M14 a typing error in the banner gets a suggestion") {
    refuses("%%MatrixMarket matrix coodinate real general\n1 1 1\n", 1, 23, "did you mean coordinate?");
    refuses("%%MatrixMarket matrix coordinate reel general\n1 1 1\n", 1, 34, "did you mean real?");
    refuses("%%MatrixMarket matrix coordinate real symetric\n1 1 1\n", 1, 39, "did you mean symmetric?");
    refuses("%%MatrixMarket matrx coordinate real general\n1 1 1\n", 1, 16, "did you mean matrix?");
}
TEST_CASE("data: M15 complex matrices are refused") {
    refuses("%%MatrixMarket matrix coordinate complex Hermitian\n", 1, 34, "complex matrices are not supported");
}
TEST_CASE("data: M16 a banner with a word missing is refused") {
    refuses("%%MatrixMarket matrix coordinate real\n1 1 1\n", 1, 38, "its symmetry is missing");
    refuses("%%MatrixMarketmatrix coordinate real general\n", 1, 15, "a blank is missing");
}
TEST_CASE("data: M17 more words in the banner are ignored with a warning") {
    reads("%%MatrixMarket matrix coordinate real general extra\n1 1 1\n1 1 5\n", {{5}},
          "x.mtx:1:47: words after the banner's fifth");
}
TEST_CASE("data: M18 a vector object is one column") {
    reads("%%MatrixMarket vector coordinate real general\n5 1\n3 7\n", {{0}, {0}, {7}, {0}, {0}});
    reads("%%MatrixMarket vector array real general\n2\n3\n7\n", {{3}, {7}});
    refuses("%%MatrixMarket vector coordinate real symmetric\n5 1\n3 7\n", 1, 39, "a vector cannot be symmetric");
    refuses("%%MatrixMarket vector coordinate real general\n5 1 1\n3 7\n", 2, 5,
            "expected nothing behind rows entries");
}
TEST_CASE("data: M20 an array cannot be a pattern") {
    refuses("%%MatrixMarket matrix array pattern general\n2 2\n", 1, 29, "an array cannot be a pattern");
    refuses("%%MatrixMarket matrix coordinate pattern hermitian\n1 1 1\n", 1, 42, "a pattern cannot be hermitian");
    refuses("%%MatrixMarket matrix coordinate pattern skew-symmetric\n1 1 1\n", 1, 42,
            "a pattern cannot be skew-symmetric");
}
TEST_CASE("data: M21 a comment line of 5 MB is skipped") {
    reads(kReal + "%" + std::string(5'000'000, 'x') + "\n1 1 1\n1 1 5\n", {{5}});
}
TEST_CASE("data: M22 a million comment lines are skipped in flat memory") {
    stays_below(8, [] {
        Pipe pipe([](int fd) {
            write_all(fd, kReal);
            const std::string lines = repeat("% a comment of an ordinary length, as writers put it\n", 1000);
            for (int i = 0; i < 1000; ++i) write_all(fd, lines);
            write_all(fd, "1 1 1\n1 1 5\n");
        });
        CHECK(table(read_matrix(pipe.path()).matrix) == Table{{5}});
    });
}
TEST_CASE("data: M24 M25 negative sizes are refused") {
    refuses(kReal + "-2 2 1\n", 2, 1, "negative rows");
    refuses(kReal + "2 -2 1\n", 2, 3, "negative columns");
    refuses(kReal + "2 2 -1\n", 2, 5, "negative entries");
}
TEST_CASE("data: M26 two sizes in a coordinate file are refused") {
    refuses(kReal + "2 2\n1 1 5\n", 2, 4, "expected rows columns entries; 2 numbers found (array files have 2)");
    refuses(kReal + "2\n", 2, 2, "1 number found");
    refuses(kArray + "2\n", 2, 2, "expected rows columns; 1 number found");
}
TEST_CASE("data: M27 a fourth size is refused") {
    refuses(kReal + "2 2 1 7\n1 1 5\n", 2, 7, "found '7', expected nothing behind rows columns entries");
    refuses(kArray + "2 2 4\n1\n2\n3\n4\n", 2, 5, "coordinate files have 3 numbers");
    reads(kReal + " 1\t1 1 \t \n1 1 5\n", {{5}});
}
TEST_CASE("data: M28 sizes that are no integers are refused") {
    refuses(kReal + "2.0 2.0 1\n1 1 5\n", 2, 1, "expected an integer");
    refuses(kReal + "1e3 2 1\n1 1 5\n", 2, 1, "expected an integer");
    refuses(kReal + "+-2 2 1\n1 1 5\n", 2, 1, "expected an integer");
    reads(kReal + "+1 +1 +1\n+1 +1 +5\n", {{5}});
}
TEST_CASE("data: M30 M31 M32 empty shapes are read") {
    for (const auto& [sizes, rows, cols] : {std::tuple{"0 0 0", 0, 0}, {"0 3 0", 0, 3}, {"3 0 0", 3, 0}}) {
        const MatrixFile file = read(kReal + sizes + "\n");
        CHECK(file.matrix.rows() == rows);
        CHECK(file.matrix.cols() == cols);
        CHECK(file.matrix.nnz() == 0);
        CHECK(file.warnings.empty());
    }
    CHECK(dense(kArray + "0 1\n").values.empty());
    refuses(kReal + "0 3 1\n1 1 5\n", 3, 1, "row '1' but there are no rows");
}
TEST_CASE("data: M33 a zero matrix is read with a warning") {
    reads(kReal + "1 2 0\n", {{0, 0}}, "the matrix has no entries");
}
TEST_CASE("data: M34 M38 numbers beyond 64 bits are out of range") {
    refuses(kReal + "2 2 18446744073709551615\n1 1 5\n", 2, 5, "out of range");
    refuses(kReal + "9223372036854775808 2 1\n1 1 5\n", 2, 1, "out of range");
}
TEST_CASE("data: M35 more entries than the file has bytes are refused") {
    refuses(kReal + "2 2 9223372036854775807\n1 1 5\n", 2, 5,
            "the 6 bytes that follow cannot hold 9223372036854775807 entries");
}
TEST_CASE("data: M36 a size line that lies allocates nothing") {
    stays_below(8, [] { refuses(kReal + "1000000 1000000 1000000000000\n1 1 5\n", 2, 17, "cannot hold"); });
    stays_below(8, [] { refuses(kArray + "1000000 1000000\n1\n", 2, 1, "cannot hold 1000000000000 values"); });
    Folder folder;
    const std::string path = folder.file("a.mtx", kReal + "1000000 1000000 1000000000000\n1 1 5\n");
    fails([&] { read_matrix(path); }, path, 2, 17, "the 6 bytes that follow");
}
TEST_CASE("data: M36 where the length is unknown the end of the file decides") {
    stays_below(8, [] {
        Pipe pipe([](int fd) { write_all(fd, kReal + "100000 100000 6986952691\n1 1 5\n"); });
        fails([&] { read_matrix(pipe.path()); }, pipe.path(), 4, 1, "ended after 1 of 6986952691 entries");
    });
}
TEST_CASE("data: M36 rows and columns that nothing justifies are refused") {
    stays_below(8, [] { refuses(kReal + "2147483647 1 1\n1 1 5\n", 2, 1, "the file has only"); });
    stays_below(8, [] { refuses(kReal + "1 2147483647 1\n1 1 5\n", 2, 1, "the file has only"); });
    ReadOptions small;
    small.expansion_free_bytes = 1000;
    refuses(kReal + "100 100000 1\n1 1 5\n", 2, 1, "the file has only", small);
    CHECK(read(kReal + "100 1000 1\n1 1 5\n", small).matrix.nnz() == 1);
}
TEST_CASE("data: M39 an array of 2^64 values is refused") {
    refuses(kArray + "4294967296 4294967296\n1\n", 2, 1, "4294967296 rows of an array are too many");
    refuses(kReal + "2147483648 1 1\n1 1 5\n", 2, 1, "limited to 2147483647");
    refuses(kReal + "1 2147483648 1\n1 1 5\n", 2, 3, "limited to 2147483647");
}

// ---- body
// ---------------------------------------------------------------------------------------------------------------

TEST_CASE("data: M41 row 0 is refused with a hint") {
    refuses(kReal + "2 2 1\n0 1 5\n", 3, 1, "row '0' outside 1..2; a zero-based file?");
}
TEST_CASE("data: M42 a negative row is refused") {
    refuses(kReal + "2 2 1\n-1 1 5\n", 3, 1, "row '-1' outside 1..2");
}
TEST_CASE("data: M43 indices beyond the sizes are refused") {
    refuses(kReal + "2 2 1\n3 1 5\n", 3, 1, "row '3' outside 1..2");
    refuses(kReal + "2 2 1\n1 3 5\n", 3, 3, "column '3' outside 1..2");
    refuses(kReal + "2 3 1\n3 1 5\n", 3, 1, "row '3' outside 1..2; it would fit if rows and columns were swapped");
    try {
        read(kReal + "2 3 1\n4 1 5\n");
        FAIL("row 4 of 2 was accepted");
    } catch (const InputError& error) {
        CHECK(std::string(error.what()).ends_with("row '4' outside 1..2"));
    }
    refuses(kReal + "2 3 1\n3 1 5\n", 3, 1, "if rows and columns were swapped");
}
TEST_CASE("data: M44 M45 large indices do not wrap") {
    refuses(kReal + "2 2 1\n4294967297 1 5\n", 3, 1, "row '4294967297' outside");
    refuses(kReal + "2 2 1\n18446744073709551617 1 5\n", 3, 1, "outside 1..2");
    refuses(kReal + "2 2 1\n99999999999999999999 1 5\n", 3, 1, "outside 1..2");
    reads(kReal + "1 1 1\n00000000000000000000000001 1 5\n", {{5}});
}
TEST_CASE("data: M46 indices that are no integers are refused") {
    refuses(kReal + "2 2 1\n1.5 1 5\n", 3, 1, "expected an integer");
    refuses(kReal + "2 2 1\n1e0 1 5\n", 3, 1, "expected an integer");
    refuses(kReal + "2 2 1\n1 x 5\n", 3, 3, "expected an integer");
}
TEST_CASE("data: M49 too few entries are named at the line after the last") {
    refuses(kReal + "2 2 2\n1 1 5\n", 4, 1, "ended after 1 of 2 entries");
    refuses(kReal + "2 2 2\n1 1 5", 4, 1, "ended after 1 of 2 entries");
    refuses(kReal + "2 2 2\n1 1 5\n\n", 5, 1, "ended after 1 of 2 entries");
}
TEST_CASE("data: M50 too many entries are refused") {
    refuses(kReal + "2 2 1\n1 1 5\n2 2 6\n", 4, 1, "more than 1 entries");
    refuses(kReal + "2 2 0\n1 1 5\n", 3, 1, "more than 0 entries");
    refuses(kReal + "2 2 1\n1 1 5\n\0\0\0"s, 4, 1, "a NUL byte");
}
TEST_CASE("data: M51 blank lines at the end are read") {
    reads(kReal + "1 1 1\n1 1 5\n\n \t \n\r\n", {{5}});
}
TEST_CASE("data: M52 duplicates are summed and counted") {
    const MatrixFile file = read(kReal + "2 2 2\n1 1 5\n1 1 7\n");
    CHECK(table(file.matrix) == Table{{12, 0}, {0, 0}});
    CHECK(file.matrix.duplicates_summed() == 1);
    CHECK(read(kReal + "1 1 3\n1 1 5\n1 1 -5\n1 1 0\n").matrix.nnz() == 1);
}
TEST_CASE("data: M53 values that are not finite are refused") {
    for (const char* word : {"nan", "NaN", "-inf", "Infinity", "+inf", "-nan"})
        refuses(kReal + "2 2 1\n1 1 " + word + "\n", 3, 5, "is not finite");
}
TEST_CASE("data: M53 values that are not finite are kept on demand") {
    ReadOptions options;
    options.allow_nonfinite = true;
    const MatrixFile file = read(kReal + "1 4 4\n1 1 nan\n1 2 -inf\n1 3 1e999\n1 4 -1e999\n", options);
    CHECK(std::isnan(file.matrix.values()[0]));
    CHECK(file.matrix.values()[1] == -std::numeric_limits<double>::infinity());
    CHECK(file.matrix.values()[2] == std::numeric_limits<double>::infinity());
    CHECK(file.matrix.values()[3] == -std::numeric_limits<double>::infinity());
}
TEST_CASE("data: M54 an overflow is refused") {
    refuses(kReal + "2 2 1\n1 1 1e999\n", 3, 5, "overflows a double");
    refuses(kReal + "2 2 1\n1 1 -1.8e308\n", 3, 5, "overflows a double");
    refuses(kReal + "2 2 1\n1 1 1e99999999999999999999\n", 3, 5, "overflows a double");
    refuses(kReal + "2 2 1\n1 1 1" + std::string(400, '0') + "\n", 3, 5, "overflows a double");
}
TEST_CASE("data: M56 an underflow is 0 with one warning") {
    reads(kReal + "1 2 2\n1 1 1e-400\n1 2 1e-99999999999999999999\n", {{0, 0}},
          "x.mtx:3:5: a value too small for a double was taken as 0 (2 times");
    CHECK(std::signbit(read_value("-1e-400")));
    reads(kReal + "1 2 2\n1 1 0e-400\n1 2 0.000e999\n", {{0, 0}});
    CHECK(read_value("0." + std::string(400, '0') + "1e401") == 1);
    CHECK(read_value("1e-320") == 1e-320);
}
TEST_CASE("data: M57 D exponents are read") {
    reads(kReal + "1 4 4\n1 1 1.5D+02\n1 2 1.5d2\n1 3 -1.5D-1\n1 4 1.00000000000000000000000000D+308\n",
          {{150, 150, -0.15, 1e308}});
}
TEST_CASE("data: M58 exponents without a letter need an option") {
    refuses(kReal + "2 2 1\n1 1 1.5+02\n", 3, 5, "--fortran-numbers");
    ReadOptions options;
    options.fortran_numbers = true;
    reads(kReal + "1 3 3\n1 1 1.5+02\n1 2 -1.5-1\n1 3 1-300\n", {{150, -0.15, 1e-300}}, "", options);
}
TEST_CASE("data: M59 hexadecimal numbers are refused") {
    refuses(kReal + "2 2 1\n1 1 0x1p3\n", 3, 5, "found '0x1p3', expected a number");
}
TEST_CASE("data: M60 a decimal comma is refused where it stands") {
    refuses(kReal + "2 2 1\n1 1 5,25\n", 3, 6, "a decimal comma");
}
TEST_CASE("data: M61 commas between numbers are refused") {
    refuses(kReal + "2 2 1\n1,1,5\n", 3, 2, "commas between numbers");
}
TEST_CASE("data: M62 underscores are refused") {
    refuses(kReal + "2 2 1\n1 1 1_000\n", 3, 6, "found '_' in '1_000'");
}
TEST_CASE("data: M64 parts of numbers are refused") {
    for (const char* word : {".", "5e", "-", "+", "5e+", "e5", "1.2.3", "--5", "+-5", "5e5.0", "infinite", "forty-two",
                             "5f", "1e5d3", "-.e1"}) {
        CAPTURE(word);
        refuses(kReal + "2 2 1\n1 1 "s + word + "\n", 3, 5, "expected a number");
    }
}
TEST_CASE("data: M65 a missing value is refused where it should stand") {
    refuses(kReal + "2 2 2\n1 1\n2 2 6\n", 3, 4, "value missing");
    refuses(kReal + "2 2 2\n1 1 5\n2 2", 4, 4, "value missing");
}
TEST_CASE("data: M66 a NUL byte is refused where it stands") {
    refuses(kReal + "2 2 2\n1 1 5\0\n2 2 6\n"s, 3, 6, "a NUL byte");
    refuses(kReal + "2 2 2\n1 1 5\n\0\0\0 2 6\n"s, 4, 1, "a NUL byte");
}
TEST_CASE("data: M67 an entry on three lines is refused") {
    refuses(kReal + "2 2 1\n1\n1\n5\n", 3, 2, "column missing");
}
TEST_CASE("data: M68 tabs and many blanks are read") {
    reads(kReal + "1 1 1\n \t 1\t\t1   \t5  \n", {{5}});
}
TEST_CASE("data: M69 M70 the last line may lack its newline") {
    reads(kReal + "1 1 1\n1 1 5", {{5}});
    reads(kReal + "1 1 1\n1 1 5 ", {{5}});
    reads(kReal + "1 1 1\n1 1 5\r", {{5}});
}
TEST_CASE("data: M72 a fourth word on a line is refused") {
    refuses(kReal + "2 2 1\n1 1 5 9\n", 3, 7, "found '9', expected the end of the line");
}
TEST_CASE("data: M73 comments between entries are read with one warning") {
    reads(kReal + "1 2 2\n% a\n1 1 5\n  % b\n1 2 6\n% c\n", {{5, 6}},
          "x.mtx:3:1: a comment below the size line was skipped; the format allows comments only above it (3 times");
}
TEST_CASE("data: M74 blank lines between entries are read") {
    reads(kReal + "\n1 2 2\n\n1 1 5\n \n1 2 6\n", {{5, 6}});
}
TEST_CASE("data: M76 5 MB of blanks on a line are read in flat memory") {
    const std::string blanks(5'000'000, ' ');
    const std::string bytes = kReal + "1 1 1\n1" + blanks + "1 5" + blanks + "\n";
    stays_below(8, [&] { reads(bytes, {{5}}); });
    refuses(kReal + "1 1 1\n1" + blanks + "2 5\n", 3, 5'000'002, "column '2' outside");
}
TEST_CASE("data: M77 a number of 64 MB is refused in flat memory") {
    stays_below(8, [] {
        const IgnoreSignal ignore(SIGPIPE);
        Pipe pipe([](int fd) {
            write_all(fd, kReal + "1 1 1\n1 1 ");
            const std::string digits(1 << 20, '7');
            for (int i = 0; i < 64; ++i) write_all(fd, digits);
        });
        fails([&] { read_matrix(pipe.path()); }, pipe.path(), 3, 5, "token longer than 1 MiB");
    });
}
TEST_CASE("data: M78 pattern entries are 1") {
    reads(kPattern + "2 2 2\n1 1\n2 1 \n", {{1, 0}, {1, 0}});
}
TEST_CASE("data: M79 values in a pattern file are refused") {
    refuses(kPattern + "2 2 1\n1 1 9\n", 3, 5, "a pattern file has no values; is its header wrong?");
}
TEST_CASE("data: M80 real numbers in an integer file are refused") {
    refuses(kInteger + "2 2 1\n1 1 7.5\n", 3, 5, "expected an integer; should the banner say real?");
    refuses(kInteger + "2 2 1\n1 1 1e+16\n", 3, 5, "expected an integer");
    refuses(kInteger + "2 2 1\n1 1 nan\n", 3, 5, "expected an integer");
    reads("%%MatrixMarket matrix coordinate unsigned-integer general\n1 1 1\n1 1 +7\n", {{7}});
    reads("%%MatrixMarket matrix coordinate double general\n1 1 1\n1 1 7.5\n", {{7.5}});
}
TEST_CASE("data: M81 integers beyond 2^53 are rounded with one warning") {
    reads(kInteger + "1 3 3\n1 1 9007199254740993\n1 2 -123456789012345678901234567890\n1 3 9007199254740992\n",
          {{9007199254740992.0, -123456789012345678901234567890.0, 9007199254740992.0}},
          "x.mtx:3:5: an integer beyond 2^53 was rounded to a double (2 times");
    refuses(kInteger + "1 1 1\n1 1 1" + std::string(400, '0') + "\n", 3, 5, "overflows a double");
}
TEST_CASE("data: M82 a symmetric file is mirrored and its diagonal is not doubled") {
    const MatrixFile file = read(kSymmetric + "3 3 4\n1 1 4\n2 1 6\n3 2 7\n3 3 5\n");
    CHECK(table(file.matrix) == Table{{4, 6, 0}, {6, 0, 7}, {0, 7, 5}});
    CHECK(file.matrix.nnz() == 2 * 2 + 2);
    reads("%%MatrixMarket matrix coordinate real hermitian\n2 2 1\n2 1 6\n", {{0, 6}, {6, 0}});
    reads("%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n", {{0, 1}, {1, 0}});
}
TEST_CASE("data: M83 a symmetric file with the upper triangle is mirrored with a warning") {
    reads(kSymmetric + "2 2 2\n1 1 5\n1 2 6\n", {{5, 6}, {6, 0}},
          "x.mtx:4:1: a symmetric file should hold the lower triangle");
}
TEST_CASE("data: M84 both triangles in a symmetric file are refused at the later line") {
    refuses(kSymmetric + "2 2 2\n2 1 6\n1 2 6\n", 4, 1, "(1, 2) of a symmetric matrix, but (2, 1) was given before");
    refuses(kSymmetric + "2 2 3\n1 2 7\n2 1 7\n2 2 1\n", 4, 1,
            "(2, 1) of a symmetric matrix, but (1, 2) was given before");
    refuses(kSymmetric + "3 3 5\n3 2 1\n1 3 1\n2 1 1\n\n2 1 5\n1 2 1\n", 8, 1, "(1, 2)");
    refuses(kSymmetric + "3 3 4\n2 1 6\n2 1 6\n1 2 6\n2 1 6\n", 5, 1, "(1, 2)");
    refuses(kSkew + "2 2 2\n2 1 6\n1 2 -6\n", 4, 1, "both triangles");
}
TEST_CASE("data: M84 entries on both sides that do not meet are read with a warning") {
    reads(kSymmetric + "3 3 3\n2 1 6\n1 3 7\n2 1 1\n", {{0, 7, 7}, {7, 0, 0}, {7, 0, 0}},
          "x.mtx:4:1: a symmetric file that holds entries on both sides");
}
TEST_CASE("data: M85 a symmetric matrix must be square") {
    refuses(kSymmetric + "3 2 1\n3 1 5\n", 2, 1, "must be square");
    refuses("%%MatrixMarket matrix array real skew-symmetric\n3 2\n", 2, 1, "must be square");
}
TEST_CASE("data: M87 a skew file changes the sign of the mirror image") {
    reads(kSkew + "2 2 1\n2 1 6\n", {{0, -6}, {6, 0}});
    std::string bytes = kSkew + "20 20 190\n";
    for (int col = 1; col <= 20; ++col) {
        for (int row = col + 1; row <= 20; ++row) bytes += fmt::format("{} {} {}\n", row, col, 100 * row + col);
    }
    const Table a = table(read(bytes).matrix);
    for (std::size_t i = 0; i < 20; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            CHECK(a[i][j] == static_cast<double>(100 * (i + 1) + j + 1));
            CHECK(a[j][i] == -a[i][j]);
        }
    }
}
TEST_CASE("data: M87 the diagonal of a skew file is zero") {
    const MatrixFile file = read(kSkew + "2 2 2\n1 1 0\n2 1 6\n");
    CHECK(table(file.matrix) == Table{{0, -6}, {6, 0}});
    CHECK(file.matrix.nnz() == 2);
    refuses(kSkew + "2 2 1\n1 1 5\n", 3, 5, "the diagonal of a skew-symmetric matrix is zero");
}
TEST_CASE("data: M88 an array is read by columns and keeps its zeros") {
    reads(kArray + "2 1\n1\n2\n", {{1}, {2}});
    reads(kArray + "2 2\n1\n2\n\n 3\n4 \n", {{1, 3}, {2, 4}});
    CHECK(read(kArray + "2 2\n0\n0\n0\n1\n").matrix.nnz() == 4);
}
TEST_CASE("data: M88 symmetric and skew arrays hold the lower triangle") {
    reads("%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n3\n", {{1, 2}, {2, 3}});
    const MatrixFile file = read("%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n");
    CHECK(table(file.matrix) == Table{{0, -1, -2}, {1, 0, -3}, {2, 3, 0}});
    CHECK(file.matrix.nnz() == 6);
}
TEST_CASE("data: M89 two array values on a line are refused") {
    refuses(kArray + "2 2\n1 2\n3 4\n", 3, 3, "one value per line, column-major");
}
TEST_CASE("data: M90 short arrays are refused") {
    refuses(kArray + "2 2\n1\n2\n3\n", 6, 1, "ended after 3 of 4 values");
    refuses("%%MatrixMarket matrix array real symmetric\n2 2\n1\n2\n", 5, 1, "ended after 2 of 3 values");
    refuses(kArray + "2 1\n1\n2\n3\n", 5, 1, "more than 2 values");
}
TEST_CASE("data: M92 the order of entries does not matter") {
    const Table sorted = {{1, 2}, {3, 4}};
    reads(kReal + "2 2 4\n1 1 1\n1 2 2\n2 1 3\n2 2 4\n", sorted);
    reads(kReal + "2 2 4\n2 2 4\n2 1 3\n1 2 2\n1 1 1\n", sorted);
}
TEST_CASE("data: M93 M94 empty rows and columns are read") {
    reads(kReal + "3 3 1\n2 2 5\n", {{0, 0, 0}, {0, 5, 0}, {0, 0, 0}});
}
TEST_CASE("data: M96 the whole range of doubles is read") {
    reads(kReal + "1 3 3\n1 1 1e-300\n1 2 1.7976931348623157e308\n1 3 4.9e-324\n",
          {{1e-300, 1.7976931348623157e308, 4.9e-324}});
}

// ---- right-hand sides
// ---------------------------------------------------------------------------------------------------

TEST_CASE("data: V02 several right-hand sides are the columns of an array") {
    const DenseFile b = dense(kArray + "3 2\n1\n2\n3\n4\n5\n6\n");
    CHECK(b.rows == 3);
    CHECK(b.cols == 2);
    CHECK(b.values == std::vector<double>{1, 2, 3, 4, 5, 6});
}
TEST_CASE("data: V04 a sparse right-hand side is densified") {
    CHECK(dense(kReal + "4 1 3\n3 1 -2\n1 1 1\n1 1 1\n").values == std::vector<double>{2, 0, -2, 0});
    CHECK(dense("%%MatrixMarket vector coordinate real general\n3 1\n2 7\n").values == std::vector<double>{0, 7, 0});
    CHECK(dense(kSymmetric + "2 2 1\n2 1 7\n").values == std::vector<double>{0, 7, 7, 0});
    CHECK(dense("%%MatrixMarket matrix array real skew-symmetric\n2 2\n7\n").values ==
          std::vector<double>{0, 7, -7, 0});
}
TEST_CASE("data: V04 a sparse right-hand side cannot ask for any memory it likes") {
    // MiB: the reader's blocks and the heap's own growth; the values would take terabytes.
    stays_below(
        16, [] { refuses_dense(kReal + "1000000 1000000 1\n1 1 5\n", 2, 1, "needs memory for 1000000000000 values"); });
    stays_below(16, [] { refuses_dense(kReal + "2147483647 2147483647 1\n1 1 5\n", 2, 1, "needs memory"); });
}
TEST_CASE("data: V05 a zero right-hand side is read") {
    CHECK(dense(kArray + "3 1\n0\n0\n0\n").values == std::vector<double>{0, 0, 0});
}
TEST_CASE("data: V06 V07 a value that is not finite is refused at its line") {
    refuses_dense(kArray + "4 1\n1\n2\nnan\n4\n", 5, 1, "is not finite");
    refuses_dense("1\n2\n inf\n", 3, 2, "is not finite");
}
TEST_CASE("data: V09 plain text holds one number a line") {
    const DenseFile b = dense("# a comment\n% another\n1\n\n -2.5 \n\t1.5D+02\r\n+3");
    CHECK(b.rows == 4);
    CHECK(b.cols == 1);
    CHECK(b.values == std::vector<double>{1, -2.5, 150, 3});
    CHECK(b.warnings.empty());
}
TEST_CASE("data: V09 plain text that is something else is refused") {
    refuses_dense("1\n2 3\n", 2, 3, "one number a line; several columns need a Matrix Market array file");
    refuses_dense("1\n2,5\n", 2, 2, "a decimal comma");
    refuses_dense("1\nx\n", 2, 1, "expected a number");
    refuses_dense("# nothing\n", 2, 1, "no numbers");
    refuses_dense("", 1, 1, "empty file");
    refuses_dense("<html>", 1, 1, "looks like HTML");
}
TEST_CASE("data: integer and gzip right-hand sides are read") {
    CHECK(dense("%%MatrixMarket matrix array integer general\n2 1\n1\n-2\n").values == std::vector<double>{1, -2});
    CHECK(dense(gzip("1\n2\n")).values == std::vector<double>{1, 2});
}

TEST_CASE("data: the right-hand side beside a matrix is found") {
    const Folder folder;
    const std::string matrix = folder.file("A.mtx", "");
    CHECK(find_rhs_beside(matrix).chosen.empty());
    fs::create_directory(folder / "A_b.mtx.gz");
    CHECK(find_rhs_beside(matrix).chosen.empty());
    const std::string rhs = folder.file("A_rhs.mtx", "");
    CHECK(find_rhs_beside(matrix).chosen == rhs);
    CHECK(find_rhs_beside(matrix).others.empty());
    const std::string b = folder.file("A_b.mtx", "");
    for (const std::string& path : {matrix, folder / "A.mtx.gz"}) {
        CHECK(find_rhs_beside(path).chosen == b);
        CHECK(find_rhs_beside(path).others == std::vector<std::string>{rhs});
    }
    CHECK(find_rhs_beside(folder / "A.txt").chosen.empty());
    CHECK(find_rhs_beside("-").chosen.empty());
}

// ---- gzip and files
// -----------------------------------------------------------------------------------------------------

TEST_CASE("data: C01 a truncated gzip stream is refused with its line") {
    const std::string whole = gzip(kReal + "1 1 1\n1 1 5\n");
    refuses(whole.substr(0, whole.size() - 8), 4, 1,
            fmt::format("gzip stream ends early after {} bytes (line 4)", whole.size() - 8));
    for (const std::size_t length : {2u, 10u}) refuses(whole.substr(0, length), 1, 1, "gzip stream ends early after");
    for (std::size_t length = 2; length < whole.size(); ++length)
        CHECK_THROWS_AS(read(whole.substr(0, length)), InputError);
}
TEST_CASE("data: C02 a damaged gzip stream is refused") {
    const std::string whole = gzip(kReal + "1 1 1\n1 1 5\n");
    for (std::size_t byte = 10; byte < whole.size(); ++byte) {
        std::string damaged = whole;
        damaged[byte] = static_cast<char>(damaged[byte] ^ 0x55);
        CHECK_THROWS_AS(read(damaged), InputError);
    }
}
TEST_CASE("data: C03 concatenated gzip members are read") {
    reads(gzip(kReal + "1 2 2\n1 1") + gzip("") + gzip(" 5\n1 2 6\n") + std::string(512, '\0'), {{5, 6}});
    refuses(gzip(kReal + "1 1 1\n1 1 5\n") + "more", 4, 1, "gzip: other bytes follow");
}
TEST_CASE("data: C05 a decompression bomb is stopped in flat memory") {
    const std::string member = gzip(std::string(16 << 20, ' '));
    std::string bomb = gzip(kReal);
    for (int i = 0; i < 200; ++i) bomb += member;
    stays_below(8, [&] {
        const auto start = std::chrono::steady_clock::now();
        CHECK_THROWS_WITH_AS(read(bomb), doctest::Contains("over 1000 times as much; refused"), InputError);
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
    });
}
TEST_CASE("data: C06 gzip inside gzip is refused with a hint") {
    refuses(gzip(gzip(kReal)), 1, 1, "gzip inside gzip; decompress it once");
}
TEST_CASE("data: a tar archive is refused whatever its name says") {
    const std::string archive = tar("a/a.mtx", kReal + "1 1 1\n1 1 5\n");
    refuses(archive, 1, 1, "a tar archive");
    refuses(gzip(archive), 1, 1, "a tar archive");
}
TEST_CASE("data: other formats are refused by name") {
    refuses("PK\x03\x04"s, 1, 1, "a zip archive");
    refuses("\x28\xb5\x2f\xfd\x04"s, 1, 1, "zstd");
    refuses("BZh91AY", 1, 1, "bzip2");
    refuses("\xfd\x37zXZ\0\0"s, 1, 1, "xz-compressed");
    refuses("\x93NUMPY\x01", 1, 1, "NumPy");
    refuses("\x89HDF\r\n\x1a\n", 1, 1, "HDF5");
    refuses("MATLAB 5.0 MAT-file", 1, 1, "MATLAB");
    refuses("Title                     KEY\n 3 1 1 1 0\nRUA   2   2   2   0\n", 1, 1, "Harwell-Boeing");
    refuses("\x7f\x45LF\0"s, 1, 1, "binary data");
}
TEST_CASE("data: F01 a directory is unreadable") {
    try {
        read_matrix("/");
        FAIL("accepted");
    } catch (const InputError& error) {
        CHECK(error.kind() == InputError::Kind::unreadable);
        CHECK(std::string(error.what()) == "/: cannot be read: it is a directory");
    }
}
TEST_CASE("data: F02 files that cannot be opened say why") {
    const Folder folder;
    const std::string locked = folder.file("locked", "");
    ::chmod(locked.c_str(), 0);
    std::vector<std::pair<std::string, int>> cases = {
        {folder / "missing", ENOENT}, {folder / std::string(300, 'x'), ENAMETOOLONG}, {locked + "/a", ENOTDIR}};
    if (::geteuid() == 0) {
        MESSAGE("skipped: root may read everything");
    } else {
        cases.emplace_back(locked, EACCES);
    }
    for (const auto& [path, code] : cases) {
        try {
            read_dense(path);
            FAIL("accepted");
        } catch (const InputError& error) {
            CHECK(error.kind() == InputError::Kind::unreadable);
            CHECK(std::string(error.what()).find(std::strerror(code)) != std::string::npos);
        }
    }
}
TEST_CASE("data: F05 endless devices stop at the first bad byte") {
    stays_below(8, [] {
        for (const char* device : {"/dev/zero", "/dev/urandom"}) {
            CHECK_THROWS_AS(read_matrix(device), InputError);
            CHECK_THROWS_AS(read_dense(device), InputError);
        }
    });
    CHECK_THROWS_WITH_AS(read_matrix("/dev/null"), "/dev/null:1:1: empty file", InputError);
}
TEST_CASE("data: F06 positions above 4 GiB are counted right") {
    Pipe pipe([](int fd) {
        write_all(fd, kReal + "1 1 1\n%");
        const std::string chunk(1 << 20, 'x');
        for (int i = 0; i < 4097; ++i) write_all(fd, chunk);
        write_all(fd, "\n1 1 5,\n");
    });
    fails([&] { read_matrix(pipe.path()); }, pipe.path(), 4, 6, "found ','");
}
TEST_CASE("data: a pipe that gives single bytes is read") {
    for (const bool compressed : {false, true}) {
        const std::string plain = kReal + "2 2 2\n1 1 1.25\n2 2 -3e2\n";
        const std::string bytes = compressed ? gzip(plain) : plain;
        Pipe pipe([&](int fd) {
            for (const char c : bytes) write_all(fd, {&c, 1});
        });
        CHECK(table(read_matrix(pipe.path()).matrix) == Table{{1.25, 0}, {0, -300}});
    }
}

// ---- numbers
// ------------------------------------------------------------------------------------------------------------

TEST_CASE("data: every spelling of a number gives the bits that strtod gives") {
    std::mt19937_64 random(20240607);
    std::string bytes;
    std::vector<double> expected;
    for (int i = 0; i < 100'000; ++i) {
        const int digits = 1 + static_cast<int>(random() % 21);
        std::string spelling;
        for (int d = 0; d < digits; ++d) spelling += static_cast<char>('0' + random() % 10);
        if (random() % 4 != 0) spelling.insert(random() % (spelling.size() + 1), ".");
        if (random() % 2 != 0) spelling += fmt::format("e{}", static_cast<int>(random() % 61) - 30);
        if (random() % 3 == 0) spelling.insert(0, random() % 2 == 0 ? "-" : "+");
        expected.push_back(std::strtod(spelling.c_str(), nullptr));
        bytes += spelling + '\n';
    }
    const DenseFile file = dense(bytes);
    REQUIRE(file.values.size() == expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), file.values.begin(), same_bits));
}
TEST_CASE("data: numbers halfway between two doubles round to even") {
    for (const char* spelling :
         {"9007199254740993", "9007199254740995", "900719925474099.3e1", "0.9007199254740993e16", "4503599627370496.5",
          "4503599627370497.5", "9007199254740993.0", "1152921504606847104", "1152921504606847232",
          "1152921504606847105", "1152921504606847103", "9223372036854775808", "18446744073709551615"}) {
        CAPTURE(spelling);
        CHECK(same_bits(read_value(spelling), std::strtod(spelling, nullptr)));
    }
}
TEST_CASE("data: spellings of zero keep their sign") {
    for (const char* spelling : {"0", "+0", "0.", ".0", "0e5", "00.00"}) CHECK(same_bits(read_value(spelling), 0.0));
    for (const char* spelling : {"-0", "-0.0", "-.0", "-0e-5"}) CHECK(same_bits(read_value(spelling), -0.0));
}
TEST_CASE("data: report scipy 19949 numbers of any precision are read") {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    for (int precision = 1; precision <= 60; ++precision) {
        for (int i = 0; i < 20; ++i) {
            const std::string spelling = fmt::format("{:.{}e}", normal(random), precision);
            CHECK(same_bits(read_value(spelling), std::strtod(spelling.c_str(), nullptr)));
        }
    }
}
TEST_CASE("data: the locale changes nothing") {
    struct Commas : std::numpunct<char> {
        char do_decimal_point() const override { return ','; }
    };
    const std::locale plain = std::locale::global(std::locale(std::locale(), new Commas));
    CHECK(read_value("5.25") == 5.25);
    CHECK(read_value("5.25000000000000000000000000") == 5.25);
    std::locale::global(plain);
    const std::string before = std::setlocale(LC_ALL, nullptr);
    if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) {
        MESSAGE("no German locale here, for what goes by that of C");
        return;
    }
    CHECK(read_value("5.25") == 5.25);
    CHECK(read_value("5.25000000000000000000000000") == 5.25);
    std::setlocale(LC_ALL, before.c_str());
}

// ---- writing and reading back
// -------------------------------------------------------------------------------------------

namespace {

CsrMatrix random_matrix(std::int32_t rows, std::int32_t cols, int entries) {
    std::mt19937_64 random(11);
    CsrBuilder builder;
    for (int k = 0; k < entries; ++k) {
        // Any finite double, by its bits.
        double value = 0;
        do value = std::bit_cast<double>(random());
        while (!std::isfinite(value));
        builder.add(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(rows)),
                    static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(cols)), value);
    }
    return builder.build(rows, cols);
}

void check_same(const CsrMatrix& a, const CsrMatrix& b) {
    REQUIRE(a.rows() == b.rows());
    REQUIRE(a.cols() == b.cols());
    REQUIRE(a.nnz() == b.nnz());
    CHECK(std::equal(a.offsets(), a.offsets() + a.rows() + 1, b.offsets()));
    CHECK(std::equal(a.columns(), a.columns() + a.nnz(), b.columns()));
    CHECK(std::equal(a.values(), a.values() + a.nnz(), b.values(), same_bits));
}

template <class Write>
std::string write_file(const std::string& path, Write write) {
    OutputFile file(path);
    write(file);
    file.commit();
    return path;
}

}  // namespace

TEST_CASE("data: a matrix comes back bit for bit") {
    const Folder folder;
    const CsrMatrix a = random_matrix(3000, 2000, 100'000);
    const std::string path =
        write_file(folder / "a.mtx", [&](OutputFile& file) { write_matrix(file, a, "two\nlines"); });
    CHECK(contents(path).starts_with(kReal + "% two\n% lines\n3000 2000 "));
    check_same(read_matrix(path).matrix, a);
    check_same(read_matrix(folder.file("a.gz", gzip(contents(path)))).matrix, a);
}
TEST_CASE("data: a dense array comes back bit for bit") {
    const Folder folder;
    const std::vector<double> values = {1, -0.0, 0.1, 5e-324, 1.7976931348623157e308, -1.0 / 3};
    const std::string path =
        write_file(folder / "x.mtx", [&](OutputFile& file) { write_dense(file, 3, 2, values, "x"); });
    CHECK(contents(path) == kArray + "% x\n3 2\n1\n-0\n0.1\n5e-324\n1.7976931348623157e+308\n-0.3333333333333333\n");
    const DenseFile back = read_dense(path);
    CHECK(back.rows == 3);
    CHECK(back.cols == 2);
    CHECK(std::equal(values.begin(), values.end(), back.values.begin(), back.values.end(), same_bits));
}
TEST_CASE("data: empty shapes come back") {
    const Folder folder;
    const std::string path =
        write_file(folder / "a.mtx", [](OutputFile& file) { write_matrix(file, CsrBuilder().build(0, 3)); });
    CHECK(read_matrix(path).matrix.cols() == 3);
    const std::string x = write_file(folder / "x.mtx", [](OutputFile& file) { write_dense(file, 0, 1, {}); });
    CHECK(read_dense(x).cols == 1);
}
TEST_CASE("data: report scipy 4865 large indices are written whole") {
    const Folder folder;
    CsrBuilder builder;
    builder.add(12345677, 9999999, 2.5);
    const std::string path =
        write_file(folder / "a.mtx", [&](OutputFile& file) { write_matrix(file, builder.build(12345678, 10000000)); });
    CHECK(contents(path) == kReal + "12345678 10000000 1\n12345678 10000000 2.5\n");
}
TEST_CASE("data: report scipy 11209 a large file is read in little more than its matrix") {
    static constexpr int kEntries = 4'000'000;
    Pipe pipe([](int fd) {
        write_all(fd, kReal + fmt::format("100000 50000 {}\n", kEntries));
        std::string chunk;
        for (int k = 0; k < kEntries; ++k) {
            chunk += fmt::format("{} {} {}.{}\n", k / 40 + 1, k % 40 * 1000 + k % 7 + 1, k % 1000, k);
            if (chunk.size() > 60'000 || k + 1 == kEntries) {
                write_all(fd, chunk);
                chunk.clear();
            }
        }
    });
    const double csr_mib = (kEntries * 12.0 + 100'001 * 8.0) / (1 << 20);
    stays_below(2.6 * csr_mib, [&] { CHECK(read_matrix(pipe.path()).matrix.nnz() == kEntries); });
}
TEST_CASE("data: report ginkgo 1557 a carriage return behind the banner is read") {
    reads("%%MatrixMarket matrix coordinate real general\r\n1 1 1\n1 1 5\n", {{5}});
}

// ---- output files
// -------------------------------------------------------------------------------------------------------

TEST_CASE("data: an output file appears only when it is whole") {
    const Folder folder;
    const std::string path = folder.file("x", "old");
    {
        OutputFile file(path);
        file.write("half");
        file.flush();
        CHECK(contents(path) == "old");
        CHECK(folder.entries() == 2);
    }
    CHECK(contents(path) == "old");
    CHECK(folder.entries() == 1);
    OutputFile file(path);
    OutputFile moved = std::move(file);
    moved.write("new");
    moved.commit();
    CHECK(moved.path() == path);
    CHECK(contents(path) == "new");
    CHECK(folder.entries() == 1);
}
TEST_CASE("data: an output file keeps the mode of the file it replaces") {
    const Folder folder;
    const mode_t old = ::umask(027);
    const std::string fresh = write_file(folder / "fresh", [](OutputFile& file) { file.write("x"); });
    const std::string existing = folder.file("existing", "old");
    ::chmod(existing.c_str(), 0604);
    write_file(existing, [](OutputFile& file) { file.write("x"); });
    ::umask(old);
    CHECK(fs::status(fresh).permissions() == fs::perms(0640));
    CHECK(fs::status(existing).permissions() == fs::perms(0604));
}
TEST_CASE("data: an output file replaces what a symbolic link points at") {
    const Folder folder;
    const std::string real = folder.file("real", "old");
    fs::create_symlink("real", folder / "link");
    fs::create_symlink("absent", folder / "dangling");
    fs::create_symlink("loop", folder / "loop");
    write_file(folder / "link", [](OutputFile& file) { file.write("new"); });
    write_file(folder / "dangling", [](OutputFile& file) { file.write("new"); });
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(contents(real) == "new");
    CHECK(contents(folder / "absent") == "new");
    CHECK(output_kind([&] { OutputFile(folder / "loop"); }, std::strerror(ELOOP)) == OutputError::Kind::create);
}
TEST_CASE("data: R18 ten writers of one file leave one whole file") {
    const Folder folder;
    const std::string path = folder / "x";
    std::vector<std::thread> writers;
    for (int i = 0; i < 10; ++i) {
        writers.emplace_back([&path, i] {
            OutputFile file(path);
            file.write(std::string(100'000, static_cast<char>('a' + i)));
            file.commit();
        });
    }
    for (std::thread& writer : writers) writer.join();
    const std::string bytes = contents(path);
    CHECK(bytes == std::string(100'000, bytes[0]));
    CHECK(folder.entries() == 1);
}
TEST_CASE("data: R19 a full device is an error that says so") {
    CHECK(output_kind(
              [] {
                  OutputFile file("/dev/full");
                  file.write("x");
                  file.commit();
              },
              std::strerror(ENOSPC)) == OutputError::Kind::write);
    CHECK(output_kind([] { OutputFile("/dev/full").write(std::string(2 << 20, 'x')); }, std::strerror(ENOSPC)) ==
          OutputError::Kind::write);
}
TEST_CASE("data: R20 a file size limit is an error and leaves nothing behind") {
    const Folder folder;
    const std::string path = folder.file("x", "old");
    const IgnoreSignal ignore(SIGXFSZ);
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    const rlimit small = {4096, old.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const auto kind = output_kind(
        [&] {
            OutputFile file(path);
            file.write(std::string(10'000, 'x'));
            file.commit();
        },
        std::strerror(EFBIG));
    ::setrlimit(RLIMIT_FSIZE, &old);
    CHECK(kind == OutputError::Kind::write);
    CHECK(contents(path) == "old");
    CHECK(folder.entries() == 1);
}
TEST_CASE("data: R22 outputs that cannot be written are refused before the work") {
    const Folder folder;
    const std::string input = folder.file("a.mtx", "");
    fs::create_symlink("a.mtx", folder / "link");
    fs::create_hard_link(input, folder / "hard");
    const std::vector<std::string> inputs = {folder / "missing", input, "-"};
    const auto refused = [&](const std::string& path, const std::string& words) {
        CAPTURE(path);
        CHECK(output_kind([&] { check_output_path(path, inputs); }, words) == OutputError::Kind::create);
    };
    refused(folder.path(), "it is a directory");
    refused(folder / "no/x", std::strerror(ENOENT));
    refused(folder / "x/", "");
    refused("", "");
    refused(input + "/x", std::strerror(ENOTDIR));
    refused(folder / std::string(300, 'x'), std::strerror(ENAMETOOLONG));
    refused(input, "it is the same file as the input");
    refused(folder / "link", "it is the same file as the input");
    refused(folder / "hard", "it is the same file as the input");
    refused("/dev/fd/987", std::strerror(EBADF));
    check_output_path(folder / "x", inputs);
    check_output_path("/dev/null", std::vector<std::string>{"/dev/null"});
    CHECK(contents(input).empty());
    CHECK(output_kind([&] { OutputFile(folder.path()); }, "it is a directory") == OutputError::Kind::create);
    CHECK(output_kind([&] { OutputFile(folder / "no/x"); }, std::strerror(ENOENT)) == OutputError::Kind::create);
}
TEST_CASE("data: R22 a folder or file without permission is refused") {
    if (::geteuid() == 0) {
        MESSAGE("skipped: root may write everywhere");
        return;
    }
    const Folder folder;
    const std::string file = folder.file("x", "");
    ::chmod(file.c_str(), 0444);
    CHECK(output_kind([&] { check_output_path(file, {}); }, std::strerror(EACCES)) == OutputError::Kind::create);
    ::chmod(folder.path().c_str(), 0555);
    CHECK(output_kind([&] { check_output_path(folder / "y", {}); }, std::strerror(EACCES)) ==
          OutputError::Kind::create);
    ::chmod(folder.path().c_str(), 0755);
}
TEST_CASE("data: R23 a FIFO is written directly") {
    const Folder folder;
    const std::string path = folder / "fifo";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    std::string got;
    std::thread reader([&] { got = contents(path); });
    write_file(path, [](OutputFile& file) { file.write("through the pipe"); });
    reader.join();
    CHECK(got == "through the pipe");
    CHECK(fs::is_fifo(path));
    CHECK(folder.entries() == 1);
}
TEST_CASE("data: R23 a reader that goes away is a write error") {
    const IgnoreSignal ignore(SIGPIPE);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    OutputFile file(fmt::format("/dev/fd/{}", ends[1]));
    ::close(ends[0]);
    ::close(ends[1]);
    file.write("x");
    CHECK(output_kind([&] { file.commit(); }, std::strerror(EPIPE)) == OutputError::Kind::write);
}
TEST_CASE("data: R23 a socket is written directly") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    write_file(fmt::format("/proc/self/fd/{}", ends[1]), [](OutputFile& file) { file.write("x"); });
    char got = 0;
    CHECK(::read(ends[0], &got, 1) == 1);
    CHECK(got == 'x');
    ::close(ends[0]);
    ::close(ends[1]);
}
