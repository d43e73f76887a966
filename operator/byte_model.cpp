#include "operator/byte_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lsmr {
namespace {

double rows(const OrientationProfile& p) { return static_cast<double>(p.rows); }
double nnz(const OrientationProfile& p) { return static_cast<double>(p.nnz); }

double vector_bytes(const OrientationProfile& p, ProductWidths widths) {
    return widths.vector_bytes * (static_cast<double>(p.cols) + 2 * rows(p));
}
double offset_bytes(const OrientationProfile& p, double count) { return (p.nnz <= kMaxNarrowEntries ? 4 : 8) * count; }

struct Rate {
    double footprint_bytes;
    double per_second;
};

template <std::size_t N>
double interpolate(const Rate (&rates)[N], double footprint_bytes) {
    if (footprint_bytes <= rates[0].footprint_bytes) return rates[0].per_second;
    for (std::size_t i = 1; i < N; ++i) {
        const Rate& low = rates[i - 1];
        const Rate& high = rates[i];
        if (footprint_bytes > high.footprint_bytes) continue;
        const double part = std::log(footprint_bytes / low.footprint_bytes) / std::log(high.footprint_bytes / low.footprint_bytes);
        return low.per_second + part * (high.per_second - low.per_second);
    }
    return rates[N - 1].per_second;
}

}  // namespace

ByteAccount csr_bytes(const OrientationProfile& p, ProductWidths widths, ColumnWidth columns) {
    double indices = static_cast<int>(columns) * nnz(p) + offset_bytes(p, rows(p) + 1);
    if (columns == ColumnWidth::bits16) indices += 4 * std::ceil(rows(p) / 256);
    return {widths.value_bytes * nnz(p), indices, vector_bytes(p, widths)};
}

ByteAccount coo_bytes(const OrientationProfile& p, ProductWidths widths) {
    return {widths.value_bytes * nnz(p), 8 * nnz(p), vector_bytes(p, widths)};
}

ByteAccount ell_bytes(const OrientationProfile& p, ProductWidths widths) {
    const double places = rows(p) * static_cast<double>(p.longest);
    return {widths.value_bytes * places, 4 * places, vector_bytes(p, widths)};
}

ByteAccount hyb_bytes(const OrientationProfile& p, ProductWidths widths) {
    const double places = rows(p) * static_cast<double>(p.hyb_width);
    const auto rest = static_cast<double>(p.hyb_rest);
    return {widths.value_bytes * (places + rest), 4 * places + 8 * rest,
            vector_bytes(p, widths) + 2 * widths.vector_bytes * static_cast<double>(p.hyb_rest_rows)};
}

ByteAccount sell32_bytes(const OrientationProfile& p, ProductWidths widths, RowOrder order) {
    const bool sorted = order == RowOrder::by_length;
    const auto places = static_cast<double>(sorted ? p.sell32_sorted_entries : p.sell32_entries);
    const double slices = std::ceil(rows(p) / 32);
    return {widths.value_bytes * places, 4 * places + offset_bytes(p, slices + 1) + (sorted ? 4 * rows(p) : 0), vector_bytes(p, widths)};
}

ByteAccount bsr_bytes(const OrientationProfile& p, ProductWidths widths, const BlockFill& block) {
    const double places = nnz(p) / block.fill;
    const double blocks = places / (block.rows * block.cols);
    return {widths.value_bytes * places, 4 * blocks + offset_bytes(p, std::ceil(rows(p) / block.rows) + 1), vector_bytes(p, widths)};
}

ByteAccount dia_bytes(const OrientationProfile& p, ProductWidths widths) {
    const auto diagonals = static_cast<double>(p.diagonals);
    return {widths.value_bytes * rows(p) * diagonals, 4 * diagonals, vector_bytes(p, widths)};
}

ByteAccount dense_bytes(const OrientationProfile& p, ProductWidths widths) {
    return {widths.value_bytes * rows(p) * static_cast<double>(p.cols), 0, vector_bytes(p, widths)};
}

std::vector<FormatBytes> format_bytes(const OrientationProfile& p, ProductWidths widths) {
    const auto fill_note = [&](double places) {
        return fmt::format("{:.3g} % of the places hold entries", places > 0 ? 100 * nnz(p) / places : 100.0);
    };
    std::vector<FormatBytes> all;
    all.push_back({"CSR", csr_bytes(p, widths), "32-bit columns"});
    if (p.span256 <= kNarrowSpan) {
        all.push_back({"CSR, 16-bit columns", csr_bytes(p, widths, ColumnWidth::bits16), "a base column for each run of 256 rows"});
    } else {
        all.push_back({"CSR, 16-bit columns", std::nullopt,
                       fmt::format("a run of 256 rows spans {} columns, more than {}", p.span256, kNarrowSpan)});
    }
    all.push_back({"COO", coo_bytes(p, widths), ""});
    all.push_back({"ELL", ell_bytes(p, widths), fill_note(rows(p) * static_cast<double>(p.longest))});
    all.push_back({"HYB", hyb_bytes(p, widths), fmt::format("ELL of width {}, {} entries in COO", p.hyb_width, p.hyb_rest)});
    all.push_back({"SELL-32", sell32_bytes(p, widths, RowOrder::given), fill_note(static_cast<double>(p.sell32_entries))});
    all.push_back({"SELL-32, rows sorted", sell32_bytes(p, widths, RowOrder::by_length), fill_note(static_cast<double>(p.sell32_sorted_entries))});
    for (const BlockFill& block : p.blocks) {
        std::string name = fmt::format("BSR {}x{}", block.rows, block.cols);
        if (block.fill > 0) {
            all.push_back({std::move(name), bsr_bytes(p, widths, block), fmt::format("blocks {:.0f} % full, by a sample", 100 * block.fill)});
        } else {
            all.push_back({std::move(name), std::nullopt, "the fill is not known"});
        }
    }
    if (p.diagonals <= kDiagonalCap) {
        all.push_back({"DIA", dia_bytes(p, widths), fmt::format("at least {} diagonals, {:.0f} % full", p.diagonals, 100 * p.diagonal_fill)});
    } else {
        all.push_back({"DIA", std::nullopt, fmt::format("more than {} diagonals", kDiagonalCap)});
    }
    all.push_back({"dense", dense_bytes(p, widths), fill_note(rows(p) * static_cast<double>(p.cols))});
    return all;
}

double h200_gathers_per_second(double footprint_bytes) {
    constexpr double kMiB = 1024 * 1024;
    static constexpr Rate kGathers[] = {{kMiB / 4, 330e9}, {4 * kMiB, 148e9}, {16 * kMiB, 148e9},
                                        {32 * kMiB, 127e9}, {64 * kMiB, 75e9}, {256 * kMiB, 47e9}};
    return interpolate(kGathers, footprint_bytes);
}

double h200_atomics_per_second(double footprint_bytes) {
    constexpr double kMiB = 1024 * 1024;
    static constexpr Rate kAtomics[] = {{16 * kMiB, 100e9}, {64 * kMiB, 32e9}};
    return interpolate(kAtomics, footprint_bytes);
}

double sector_fetches(const OrientationProfile& p, int vector_bytes) {
    return nnz(p) * (vector_bytes == 8 ? p.sectors_fp64 : p.sectors_fp32) * (1 - p.similarity);
}

double h200_sector_seconds(const OrientationProfile& p, int vector_bytes) {
    return sector_fetches(p, vector_bytes) / h200_gathers_per_second(static_cast<double>(p.cols) * vector_bytes);
}

}  // namespace lsmr
