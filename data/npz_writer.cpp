#include "data/npz_writer.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <bit>
#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lsmr {
namespace {

static_assert(std::endian::native == std::endian::little, "the files hold little-endian numbers, as memory does");

void put(OutputFile& file, std::string_view bytes) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;  // OutputFile keeps what it is given until a buffer is full
    for (; bytes.size() > kPiece; bytes.remove_prefix(kPiece)) file.write(bytes.substr(0, kPiece));
    file.write(bytes);
}

template <class T>
std::string_view bytes_of(std::span<const T> values) {
    return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// The header of a .npy file, version 1.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
std::string npy_header(std::string_view type, const std::string& shape) {
    constexpr std::size_t kPrefix = 10;     // magic, version, length of the rest
    constexpr std::size_t kAlignment = 64;  // of the data behind it
    std::string text =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", std::string(type), shape);
    text.append(kAlignment - 1 - (kPrefix + text.size()) % kAlignment, ' ');
    text += '\n';
    const auto length = static_cast<std::uint16_t>(text.size());
    std::string header("\x93NUMPY\x01\x00", 8);
    header += static_cast<char>(length & 0xFF);
    header += static_cast<char>(length >> 8);
    return header + text;
}

std::string shape_of(std::size_t size) {
    return fmt::format("{},", size);
}

// A zip archive of uncompressed members. Source: PKWARE APPNOTE 6.3.10, sections 4.3 to 4.5.
class ZipWriter {
  public:
    ZipWriter(OutputFile& file, std::uint64_t zip64_from) : file_(file), zip64_from_(zip64_from) {}

    void add(const std::string& name, const std::string& header, std::string_view data) {
        Member member{name, offset_, header.size() + data.size(), 0};
        const auto update = [&member](std::string_view bytes) {
            member.crc = crc32_z(member.crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
        };
        update(header);
        update(data);
        std::string local;
        append<std::uint32_t>(local, 0x04034B50);
        append_common(local, member, is_large(member.size), {member.size, member.size});
        local += name;
        if (is_large(member.size)) append_zip64(local, {member.size, member.size});
        write(local);
        write(header);
        write(data);
        members_.push_back(std::move(member));
    }

    // Writes the directory: nothing may be added after it.
    void finish() {
        const std::uint64_t directory = offset_;
        for (const Member& member : members_) {
            const bool large = is_large(member.size) || is_large(member.offset);
            std::string entry;
            append<std::uint32_t>(entry, 0x02014B50);
            append<std::uint16_t>(entry, kVersionZip64);  // made by
            append_common(entry, member, large, {member.size, member.size, member.offset});
            entry.append(10, '\0');  // comment length, disk, attributes
            append<std::uint32_t>(entry, large ? kInZip64 : static_cast<std::uint32_t>(member.offset));
            entry += member.name;
            if (large) append_zip64(entry, {member.size, member.size, member.offset});
            write(entry);
        }
        const std::uint64_t size = offset_ - directory;
        const std::uint64_t count = members_.size();
        const bool large = is_large(directory) || is_large(size);
        std::string end;
        if (large) {
            append<std::uint32_t>(end, 0x06064B50);
            append<std::uint64_t>(end, 44);  // bytes that follow in this record
            append<std::uint16_t>(end, kVersionZip64);
            append<std::uint16_t>(end, kVersionZip64);
            append<std::uint64_t>(end, 0);  // this disk, and that of the directory
            for (const std::uint64_t value : {count, count, size, directory}) append(end, value);
            append<std::uint32_t>(end, 0x07064B50);
            append<std::uint32_t>(end, 0);
            append<std::uint64_t>(end, offset_);  // of the record above
            append<std::uint32_t>(end, 1);        // disks
        }
        append<std::uint32_t>(end, 0x06054B50);
        append<std::uint32_t>(end, 0);
        append(end, static_cast<std::uint16_t>(count));
        append(end, static_cast<std::uint16_t>(count));
        append<std::uint32_t>(end, large ? kInZip64 : static_cast<std::uint32_t>(size));
        append<std::uint32_t>(end, large ? kInZip64 : static_cast<std::uint32_t>(directory));
        append<std::uint16_t>(end, 0);  // comment
        write(end);
    }

  private:
    static constexpr std::uint16_t kVersion = 20;
    static constexpr std::uint16_t kVersionZip64 = 45;
    static constexpr std::uint16_t kDate = 1 << 5 | 1;     // 1 January 1980, so that equal contents are equal files
    static constexpr std::uint32_t kInZip64 = 0xFFFFFFFF;  // "see the zip64 record"

    struct Member {
        std::string name;
        std::uint64_t offset;
        std::uint64_t size;
        std::uint64_t crc;
    };

    template <std::unsigned_integral T>
    static void append(std::string& bytes, T value) {
        bytes += bytes_of(std::span<const T>(&value, 1));
    }
    // The fields that the local header and the directory share, from the version to the length of the extra field.
    static void append_common(std::string& bytes, const Member& member, bool large,
                              std::initializer_list<std::uint64_t> extra) {
        append(bytes, large ? kVersionZip64 : kVersion);
        append<std::uint32_t>(bytes, 0);  // flags, method: stored
        append<std::uint16_t>(bytes, 0);  // time
        append(bytes, kDate);
        append(bytes, static_cast<std::uint32_t>(member.crc));
        const std::uint32_t size = large ? kInZip64 : static_cast<std::uint32_t>(member.size);
        append(bytes, size);
        append(bytes, size);
        append(bytes, static_cast<std::uint16_t>(member.name.size()));
        append(bytes, static_cast<std::uint16_t>(large ? 4 + 8 * extra.size() : 0));
    }
    static void append_zip64(std::string& bytes, std::initializer_list<std::uint64_t> values) {
        append<std::uint16_t>(bytes, 1);
        append(bytes, static_cast<std::uint16_t>(8 * values.size()));
        for (const std::uint64_t value : values) append(bytes, value);
    }

    bool is_large(std::uint64_t value) const { return value >= zip64_from_; }
    void write(std::string_view bytes) {
        put(file_, bytes);
        offset_ += bytes.size();
    }

    OutputFile& file_;
    std::uint64_t zip64_from_;
    std::uint64_t offset_ = 0;
    std::vector<Member> members_;
};

}  // namespace

void write_npz(OutputFile& file, const CsrMatrix& a, std::uint64_t zip64_from) {
    const auto nnz = static_cast<std::size_t>(a.nnz());
    const auto ends = static_cast<std::size_t>(a.rows()) + 1;
    const std::int64_t shape[] = {a.rows(), a.cols()};
    ZipWriter zip(file, zip64_from);
    zip.add("indices.npy", npy_header("<i4", shape_of(nnz)), bytes_of(std::span(a.columns(), nnz)));
    zip.add("indptr.npy", npy_header("<i8", shape_of(ends)), bytes_of(std::span(a.offsets(), ends)));
    zip.add("format.npy", npy_header("|S3", ""), "csr");
    zip.add("shape.npy", npy_header("<i8", shape_of(2)), bytes_of(std::span<const std::int64_t>(shape)));
    zip.add("data.npy", npy_header("<f8", shape_of(nnz)), bytes_of(std::span(a.values(), nnz)));
    zip.finish();
}

void write_npy(OutputFile& file, std::span<const double> values) {
    put(file, npy_header("<f8", shape_of(values.size())));
    put(file, bytes_of(values));
}

}  // namespace lsmr
