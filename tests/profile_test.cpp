// The host's profile against plain counting, and the byte accounts against what is known by hand.
#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>
#include <map>
#include <set>

#include "operator/byte_model.hpp"
#include "operator/profile.hpp"
#include "operator/profile_counts.hpp"
#include "profile_cases.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

// Row by row, by sets; nothing shared with the code under test but the places of the samples.
OrientationProfile plain_profile(const CsrMatrix& a) {
    OrientationProfile p;
    p.rows = a.rows();
    p.cols = a.cols();
    p.nnz = a.nnz();
    std::vector<std::vector<std::int64_t>> row_columns(static_cast<std::size_t>(a.rows()));
    for (std::size_t i = 0; i < row_columns.size(); ++i) row_columns[i].assign(a.columns() + a.offsets()[i], a.columns() + a.offsets()[i + 1]);
    std::vector<std::int64_t> lengths;
    for (const auto& row : row_columns) lengths.push_back(static_cast<std::int64_t>(row.size()));

    for (std::int64_t length : lengths) {
        p.empty_rows += length == 0;
        p.longest = std::max(p.longest, length);
        p.length_histogram[length == 0 ? 0 : static_cast<std::size_t>(1 + std::ceil(std::log2(static_cast<double>(length))))] += 1;
    }
    std::vector<std::int64_t> sorted = lengths;
    std::sort(sorted.begin(), sorted.end());
    if (a.rows() > 0) {
        p.average = static_cast<double>(a.nnz()) / static_cast<double>(a.rows());
        p.p95 = sorted[static_cast<std::size_t>((95 * a.rows() + 99) / 100 - 1)];
        p.p99 = sorted[static_cast<std::size_t>((99 * a.rows() + 99) / 100 - 1)];
        double variance = 0;
        for (std::int64_t length : lengths) variance += std::pow(static_cast<double>(length) - p.average, 2) / static_cast<double>(a.rows());
        if (a.nnz() > 0) p.variation = std::sqrt(variance) / p.average;
    }
    std::vector<std::int64_t> descending(sorted.rbegin(), sorted.rend());
    const auto padded = [](const std::vector<std::int64_t>& order) {
        std::int64_t entries = 0;
        for (std::size_t i = 0; i < order.size(); i += 32) {
            std::int64_t longest = 0;
            for (std::size_t row = i; row < std::min(i + 32, order.size()); ++row) longest = std::max(longest, order[row]);
            entries += 32 * longest;
        }
        return entries;
    };
    p.sell32_entries = padded(lengths);
    p.sell32_sorted_entries = padded(descending);
    // The width of HYB that costs least in fp64, the least one of these; and no wider than 4,096.
    std::int64_t best = -1;
    for (std::int64_t width = 0; width <= std::min<std::int64_t>(p.longest, 4096); ++width) {
        std::int64_t rest = 0, rest_rows = 0;
        for (std::int64_t length : lengths) {
            rest += std::max<std::int64_t>(length - width, 0);
            rest_rows += length > width;
        }
        const std::int64_t cost = 12 * a.rows() * width + 16 * rest;
        if (best < 0 || cost < best) {
            best = cost;
            p.hyb_width = width;
            p.hyb_rest = rest;
            p.hyb_rest_rows = rest_rows;
        }
    }

    const auto spans = [&](std::size_t run, std::int64_t& widest, double& narrow) {
        std::int64_t in_narrow = 0;
        for (std::size_t i = 0; i < row_columns.size(); i += run) {
            std::set<std::int64_t> columns;
            std::int64_t entries = 0;
            for (std::size_t r = i; r < std::min(i + run, row_columns.size()); ++r) {
                columns.insert(row_columns[r].begin(), row_columns[r].end());
                entries += lengths[r];
            }
            if (columns.empty()) continue;
            const std::int64_t span = *columns.rbegin() - *columns.begin() + 1;
            widest = std::max(widest, span);
            if (span <= 65536) in_narrow += entries;
        }
        narrow = a.nnz() > 0 ? static_cast<double>(in_narrow) / static_cast<double>(a.nnz()) : 0;
    };
    spans(1, p.row_span, p.narrow_rows);
    spans(32, p.span32, p.narrow32);
    spans(256, p.span256, p.narrow256);

    std::set<std::int64_t> diagonals;
    const std::int64_t diagonal_rows = std::min<std::int64_t>(a.rows(), 8192);
    for (std::int64_t s = 0; s < diagonal_rows; ++s) {
        const std::int64_t row = s * a.rows() / diagonal_rows;
        const auto& columns = row_columns[static_cast<std::size_t>(row)];
        for (std::size_t k = 0; k < std::min<std::size_t>(columns.size(), 1024); ++k) diagonals.insert(columns[k] - row);
    }
    p.diagonals = std::min<std::int64_t>(std::max(static_cast<std::int64_t>(diagonals.size()), p.longest), 257);
    if (p.diagonals > 0 && p.diagonals <= 256) {
        p.diagonal_fill = static_cast<double>(a.nnz()) / static_cast<double>(a.rows()) / static_cast<double>(p.diagonals);
    }
    std::int64_t neighbours = 0;
    for (const auto& columns : row_columns) {
        for (std::int64_t column : columns) neighbours += std::binary_search(columns.begin(), columns.end(), column + 1);
    }
    if (a.nnz() > 0) p.neighbour = static_cast<double>(neighbours) / static_cast<double>(a.nnz());

    const std::int64_t runs = a.nnz() >= 32 ? a.nnz() / 32 : std::min<std::int64_t>(a.nnz(), 1);
    const std::int64_t run_samples = std::min<std::int64_t>(runs, 8192);
    std::int64_t in_runs = 0, wide = 0, narrow = 0;
    for (std::int64_t s = 0; s < run_samples; ++s) {
        std::set<std::int64_t> wide_sectors, narrow_sectors;
        const std::int64_t begin = s * runs / run_samples * 32;
        for (std::int64_t k = begin; k < std::min(begin + 32, a.nnz()); ++k) {
            wide_sectors.insert(static_cast<std::int64_t>(a.columns()[k]) * 8 / 32);
            narrow_sectors.insert(static_cast<std::int64_t>(a.columns()[k]) * 4 / 32);
            ++in_runs;
        }
        wide += static_cast<std::int64_t>(wide_sectors.size());
        narrow += static_cast<std::int64_t>(narrow_sectors.size());
    }
    if (in_runs > 0) {
        p.sectors_fp64 = static_cast<double>(wide) / static_cast<double>(in_runs);
        p.sectors_fp32 = static_cast<double>(narrow) / static_cast<double>(in_runs);
    }

    const std::int64_t pairs = std::max<std::int64_t>(a.rows() - 1, 0);
    const std::int64_t pair_samples = std::min<std::int64_t>(pairs, 4096);
    std::int64_t looked_at = 0, similar = 0;
    for (std::int64_t s = 0; s < pair_samples; ++s) {
        const auto row = static_cast<std::size_t>(1 + s * pairs / pair_samples);
        const std::set<std::int64_t> above(row_columns[row - 1].begin(), row_columns[row - 1].end());
        for (std::size_t k = 0; k < std::min<std::size_t>(row_columns[row].size(), 256); ++k) {
            const std::int64_t column = row_columns[row][k];
            ++looked_at;
            similar += above.contains(column - 1) || above.contains(column) || above.contains(column + 1);
        }
    }
    if (looked_at > 0) p.similarity = static_cast<double>(similar) / static_cast<double>(looked_at);

    constexpr std::int64_t kShapes[kBlockShapes][2] = {{2, 2}, {3, 3}, {4, 4}, {6, 6}, {8, 8}, {16, 16}, {2, 3}, {3, 2}, {9, 3}, {3, 9}};
    for (std::size_t shape = 0; shape < kBlockShapes; ++shape) {
        const auto [r, c] = kShapes[shape];
        const std::int64_t block_rows = (a.rows() + r - 1) / r;
        const std::int64_t samples = std::min<std::int64_t>(block_rows, 1024);
        std::int64_t entries = 0, blocks = 0;
        for (std::int64_t s = 0; s < samples; ++s) {
            const std::int64_t first = s * block_rows / samples * r;
            const std::int64_t last = std::min(first + r, a.rows());
            std::int64_t window = std::int64_t{1} << 31;
            for (std::int64_t row = first; row < last; ++row) {
                const auto& columns = row_columns[static_cast<std::size_t>(row)];
                const auto most = static_cast<std::size_t>(4096 / r);
                if (columns.size() > most) window = std::min(window, columns[most] / c * c + c);
            }
            std::set<std::int64_t> seen;
            for (std::int64_t row = first; row < last; ++row) {
                for (std::int64_t column : row_columns[static_cast<std::size_t>(row)]) {
                    if (column >= window) continue;
                    ++entries;
                    seen.insert(column / c);
                }
            }
            blocks += static_cast<std::int64_t>(seen.size());
        }
        p.blocks[shape] = {static_cast<std::int32_t>(r), static_cast<std::int32_t>(c),
                           blocks > 0 ? static_cast<double>(entries) / static_cast<double>(blocks * r * c) : 0.0};
    }

    for (std::int64_t k = 0; k < a.nnz(); ++k) {
        const double value = a.values()[k];
        int exponent = 0;
        const double mantissa = std::frexp(value, &exponent);  // in [1/2, 1)
        const auto has_bits = [&](int bits) {
            return std::ldexp(mantissa, bits) == std::trunc(std::ldexp(mantissa, bits)) && std::abs(exponent) < 120;
        };
        p.exact_fp32 = p.exact_fp32 && has_bits(24);
        p.exact_bf16 = p.exact_bf16 && has_bits(8);
        p.constant = p.constant && value == a.values()[0];
    }
    return p;
}

// Of what depends on lengths: exact where these are at most 4,096, else at most a sixteenth too large.
void check_length(std::int64_t value, std::int64_t expected, bool exact) {
    CHECK(value >= expected);
    CHECK(value <= (exact ? expected : expected + expected / 16));
}

void check_same(const OrientationProfile& p, const OrientationProfile& expected) {
    CHECK(p.rows == expected.rows);
    CHECK(p.cols == expected.cols);
    CHECK(p.nnz == expected.nnz);
    CHECK(p.average == expected.average);
    check_length(p.p95, expected.p95, expected.p95 <= 4096);
    check_length(p.p99, expected.p99, expected.p99 <= 4096);
    CHECK(p.longest == expected.longest);
    CHECK(p.variation == doctest::Approx(expected.variation).epsilon(1e-6));  // a difference of squares here
    CHECK(p.empty_rows == expected.empty_rows);
    CHECK(p.length_histogram == expected.length_histogram);
    CHECK(p.sell32_entries == expected.sell32_entries);
    check_length(p.sell32_sorted_entries, expected.sell32_sorted_entries, expected.longest <= 4096);
    CHECK(p.hyb_width == expected.hyb_width);
    CHECK(p.hyb_rest == expected.hyb_rest);
    CHECK(p.hyb_rest_rows == expected.hyb_rest_rows);
    CHECK(p.sorted_columns);
    CHECK(p.duplicates == 0);
    CHECK(p.row_span == expected.row_span);
    CHECK(p.span32 == expected.span32);
    CHECK(p.span256 == expected.span256);
    CHECK(p.narrow_rows == expected.narrow_rows);
    CHECK(p.narrow32 == expected.narrow32);
    CHECK(p.narrow256 == expected.narrow256);
    CHECK(p.blocks == expected.blocks);
    CHECK(p.diagonals == expected.diagonals);
    CHECK(p.diagonal_fill == doctest::Approx(expected.diagonal_fill).epsilon(1e-14));
    CHECK(p.neighbour == expected.neighbour);
    CHECK(p.sectors_fp64 == expected.sectors_fp64);
    CHECK(p.sectors_fp32 == expected.sectors_fp32);
    CHECK(p.similarity == expected.similarity);
    CHECK(p.exact_fp32 == expected.exact_fp32);
    CHECK(p.exact_bf16 == expected.exact_bf16);
    CHECK(p.constant == expected.constant);
}

}  // namespace

TEST_CASE("profile: as plain counting has it, for many shapes") {
    for (const ShapeCase& shape : profile_cases()) {
        INFO(shape.name);
        check_same(profile_orientation(*shape.a), plain_profile(*shape.a));
    }
}

TEST_CASE("profile: both orientations, and the same for any number of threads") {
    const auto a = matrix_with_rows(random_lengths(3000, 0, 60, 7), 500, 8);
    const MatrixProfile both = profile(*a);
    CHECK(both.a == profile_orientation(*a));
    CHECK(both.at == profile_orientation(a->transposed()));
    CHECK(both == profile(*a, a->transposed()));
    CHECK(both.at.rows == 500);
    CHECK_FALSE(both.a == both.at);
    const int threads = omp_get_max_threads();
    for (int count : {1, 3, 7}) {
        omp_set_num_threads(count);
        CHECK(profile(*a) == both);
    }
    omp_set_num_threads(threads);
}

TEST_CASE("profile: a tridiagonal matrix, by hand") {
    std::vector<std::int64_t> rows, cols;
    std::vector<double> values;
    for (std::int64_t i = 0; i < 1000; ++i) {
        for (std::int64_t j = std::max<std::int64_t>(i - 1, 0); j <= std::min<std::int64_t>(i + 1, 999); ++j) {
            rows.push_back(i);
            cols.push_back(j);
            values.push_back(i == j ? 2 : -1);
        }
    }
    const OrientationProfile p = profile_orientation(CsrMatrix::from_coo(1000, 1000, rows, cols, values));
    CHECK(p.nnz == 2998);
    CHECK(p.average == 2.998);
    CHECK(p.p95 == 3);
    CHECK(p.longest == 3);
    CHECK(p.length_histogram[2] == 2);
    CHECK(p.length_histogram[3] == 998);
    CHECK(p.diagonals == 3);
    CHECK(p.diagonal_fill == doctest::Approx(2998.0 / 3000.0));
    CHECK(p.row_span == 3);
    CHECK(p.span32 == 34);
    CHECK(p.span256 == 258);
    CHECK(p.similarity == 1.0);
    CHECK(p.neighbour == doctest::Approx(1998.0 / 2998.0));
    CHECK(p.exact_bf16);
    CHECK_FALSE(p.constant);
    CHECK(p.hyb_width == 3);
    CHECK(p.hyb_rest == 0);
}

TEST_CASE("profile: diagonals are those of a sample, and at least the longest row's") {
    CHECK(profile_orientation(*diagonal_and(16384, 16384, {8001}, {17})).diagonals == 2);  // not in the sample, but two entries in a row
    CHECK(profile_orientation(*diagonal_and(16384, 16384, {8001, 8003}, {17, 29})).diagonals == 2);
    CHECK(profile_orientation(*diagonal_and(16384, 16384, {8000, 8002}, {17, 29})).diagonals == 3);
    CHECK(profile_orientation(*diagonal_and(8192, 8192, {4001, 4003}, {17, 29})).diagonals == 3);  // all rows
    const std::vector<std::int64_t> row{1}, col{2};
    const OrientationProfile p = profile_orientation(CsrMatrix::from_coo(16384, 3, row, col, std::vector<double>{1.0}));
    CHECK(p.diagonals == 1);
    CHECK(p.diagonal_fill == 1.0 / 16384);
    CHECK(profile_orientation(CsrMatrix::from_coo(5, 3, {}, {}, {})).diagonals == 0);
}

TEST_CASE("profile: quantiles of long rows are at most a sixteenth too large") {
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < 300; ++i) lengths.push_back(4000 + 37 * i);
    const OrientationProfile p = profile_orientation(*matrix_with_rows(lengths, 20011, 3));
    const std::int64_t p95 = lengths[284];
    const std::int64_t p99 = lengths[296];
    CHECK(p.p95 >= p95);
    CHECK(static_cast<double>(p.p95) <= static_cast<double>(p95) * 17 / 16 + 1);
    CHECK(p.p99 >= p99);
    CHECK(p.p99 <= p.longest);
    CHECK(p.longest == lengths[299]);
    CHECK(p.length_histogram[13] == 3);    // 4,000, 4,037, 4,074
    CHECK(p.length_histogram[14] == 111);  // to 8,192
    CHECK(p.length_histogram[15] == 186);
    CHECK(p.sell32_sorted_entries >= p.nnz);
}

TEST_CASE("profile: bins of lengths have no gaps") {
    for (std::int64_t length : {0, 1, 4095, 4096, 4097, 4352, 4353, 8192, 8193, 1000000, 1 << 30}) {
        const int bin = detail::length_bin(length);
        CAPTURE(length);
        CHECK(detail::bin_length(bin) >= length);
        CHECK((bin == 0 || detail::bin_length(bin - 1) < length));
        CHECK(static_cast<double>(detail::bin_length(bin)) <= static_cast<double>(length) * 17 / 16);
    }
    for (int bin = 0; bin < detail::kLengthBins; ++bin) CHECK(detail::length_bin(detail::bin_length(bin)) == bin);
    CHECK(detail::length_bin(std::int64_t{1} << 40) == detail::kLengthBins - 1);
}

TEST_CASE("byte model: a million rows with ten million entries") {
    OrientationProfile p;
    p.rows = p.cols = 1000000;
    p.nnz = 10000000;
    p.longest = 12;
    p.span256 = 70000;
    p.sell32_entries = 11000000;
    p.sell32_sorted_entries = 10500000;
    p.hyb_width = 9;
    p.hyb_rest = 1200000;
    p.hyb_rest_rows = 300000;
    p.diagonals = 11;
    CHECK(coo_bytes(p, {8, 8}).matrix() == 160e6);
    CHECK(csr_bytes(p, {8, 8}).matrix() == 124000004);
    CHECK(csr_bytes(p, {8, 8}).total() == 148000004);  // x once, y twice: 24 MB
    CHECK(csr_bytes(p, {4, 4}).total() == 96000004);
    CHECK(csr_bytes(p, {4, 8}).total() == 108000004);
    CHECK(csr_bytes(p, {2, 4}).matrix() == 64000004);
    CHECK(csr_bytes(p, {8, 8}, ColumnWidth::bits16).matrix() == 104000004 + 4 * 3907);
    CHECK(ell_bytes(p, {8, 8}).matrix() == 144e6);
    CHECK(hyb_bytes(p, {8, 8}).matrix() == 108e6 + 16 * 1.2e6);
    CHECK(hyb_bytes(p, {8, 8}).vectors == 24e6 + 16 * 3e5);
    CHECK(sell32_bytes(p, {8, 8}, RowOrder::given).matrix() == 132e6 + 4 * 31251);
    CHECK(sell32_bytes(p, {8, 8}, RowOrder::by_length).matrix() == 126e6 + 4 * 31251 + 4e6);
    CHECK(dia_bytes(p, {8, 8}).matrix() == 88e6 + 44);
    CHECK(dense_bytes(p, {8, 8}).matrix() == 8e12);
    const ByteAccount bsr = bsr_bytes(p, {8, 8}, {3, 3, 0.8});
    CHECK(bsr.values == doctest::Approx(100e6));
    CHECK(bsr.indices == doctest::Approx(4 * 12.5e6 / 9 + 4 * 333335.0));
    // In full blocks of 16 x 16 the indices are next to nothing: 4 bytes for 256 entries, and the offsets.
    const ByteAccount large = bsr_bytes(p, {8, 8}, {16, 16, 1.0});
    CHECK(large.values == 80e6);
    CHECK(large.indices == doctest::Approx(4 * 1e7 / 256 + 4 * 62501.0));
    CHECK(large.indices < 0.006 * large.values);

    p.nnz = std::int64_t{1} << 31;  // offsets of 64 bits
    CHECK(csr_bytes(p, {4, 4}).matrix() == 8 * 0x1p31 + 8 * 1000001.0);
}

TEST_CASE("byte model: formats that cannot hold the matrix say why") {
    const auto a = matrix_with_rows(random_lengths(400, 1, 9, 3), 100000, 5);
    std::map<std::string, FormatBytes> formats;
    for (FormatBytes& format : format_bytes(profile_orientation(*a), {8, 8})) formats[format.format] = std::move(format);
    CHECK(formats.size() == 9 + kBlockShapes);
    CHECK(formats.at("CSR").bytes.has_value());
    CHECK(formats.at("BSR 3x3").bytes.has_value());
    CHECK_FALSE(formats.at("CSR, 16-bit columns").bytes.has_value());
    CHECK(formats.at("CSR, 16-bit columns").note.find("more than 65536") != std::string::npos);
    CHECK_FALSE(formats.at("DIA").bytes.has_value());
    CHECK(formats.at("DIA").note == "more than 256 diagonals");
    const CsrMatrix empty = CsrMatrix::from_coo(3, 2, {}, {}, {});
    for (const FormatBytes& format : format_bytes(profile_orientation(empty), {8, 8})) {
        if (format.format.starts_with("BSR")) CHECK(format.note == "the fill is not known");
        else CHECK(format.bytes->values == (format.format == "dense" ? 48 : 0));
    }
}

TEST_CASE("byte model: rates of an H200 and the bound by sectors") {
    CHECK(h200_gathers_per_second(1000) == 330e9);
    CHECK(h200_gathers_per_second(8 * 1048576) == 148e9);
    CHECK(h200_gathers_per_second(32 * 1048576) == doctest::Approx(127e9));
    CHECK(h200_gathers_per_second(1e12) == 47e9);
    double last = 400e9;
    for (double size = 1e5; size < 1e9; size *= 1.5) {
        CHECK(h200_gathers_per_second(size) <= last);
        last = h200_gathers_per_second(size);
    }
    CHECK(h200_atomics_per_second(1e6) == 100e9);
    CHECK(h200_atomics_per_second(64 * 1048576) == 32e9);

    // 8 random columns a row: 64 M gathers from 16 MB, 0.43 ms; in A^T the same from 64 MB.
    OrientationProfile uniform8;
    uniform8.rows = 8000000;
    uniform8.cols = 2000000;
    uniform8.nnz = 64000000;
    uniform8.sectors_fp64 = 1;
    CHECK(h200_sector_seconds(uniform8, 8) == doctest::Approx(0.43e-3).epsilon(0.02));
    std::swap(uniform8.rows, uniform8.cols);
    CHECK(h200_sector_seconds(uniform8, 8) == doctest::Approx(0.85e-3).epsilon(0.03));
    uniform8.similarity = 0.75;
    CHECK(sector_fetches(uniform8, 8) == 16e6);
}
