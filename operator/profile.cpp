#include "operator/profile.hpp"

#include <algorithm>
#include <cmath>

#include "operator/profile_counts.hpp"

namespace lsmr {
namespace detail {
namespace {

// The least length that at least `percent` of the rows do not exceed.
std::int64_t length_quantile(const ProfileCounts& counts, std::int64_t rows, std::int64_t percent) {
    const std::int64_t needed = (rows * percent + 99) / 100;
    std::int64_t seen = 0;
    for (int bin = 0; bin < kLengthBins; ++bin) {
        seen += static_cast<std::int64_t>(counts.lengths[bin]);
        if (seen >= needed) return std::min(bin_length(bin), static_cast<std::int64_t>(counts.longest));
    }
    return static_cast<std::int64_t>(counts.longest);
}

void set_lengths(OrientationProfile& p, const ProfileCounts& counts) {
    p.longest = static_cast<std::int64_t>(counts.longest);
    p.empty_rows = static_cast<std::int64_t>(counts.lengths[0]);
    if (p.rows == 0) return;
    const auto rows = static_cast<double>(p.rows);
    p.average = static_cast<double>(p.nnz) / rows;
    p.p95 = length_quantile(counts, p.rows, 95);
    p.p99 = length_quantile(counts, p.rows, 99);
    if (p.nnz > 0) {
        const double squares = static_cast<double>(counts.squares_high) * 0x1p32 + static_cast<double>(counts.squares_low);
        const double variance = squares / rows - p.average * p.average;
        p.variation = std::sqrt(std::max(variance, 0.0)) / p.average;
    }
    for (int bin = 0; bin < kLengthBins; ++bin) {
        int power = 0;  // the length is at most 2^power
        while (std::int64_t{1} << power < bin_length(bin)) ++power;
        const int coarse = bin == 0 ? 0 : std::min(power + 1, kLengthHistogramBins - 1);
        p.length_histogram[static_cast<std::size_t>(coarse)] += static_cast<std::int64_t>(counts.lengths[bin]);
    }
}

void set_padded_formats(OrientationProfile& p, const ProfileCounts& counts) {
    p.sell32_entries = static_cast<std::int64_t>(counts.sell32_entries);
    // Longest rows first: a slice is as long as the first of its 32 rows.
    std::int64_t place = 0;
    for (int bin = kLengthBins - 1; bin > 0; --bin) {
        const auto rows = static_cast<std::int64_t>(counts.lengths[bin]);
        const std::int64_t slices = (place + rows + 31) / 32 - (place + 31) / 32;  // that begin among these rows
        p.sell32_sorted_entries += 32 * slices * std::min(bin_length(bin), p.longest);
        place += rows;
    }

    std::int64_t longer = p.rows - p.empty_rows;  // rows longer than the width
    std::int64_t kept = 0;
    while (p.hyb_width < kExactLength && 12 * p.rows < 16 * longer) {
        ++p.hyb_width;
        kept += longer;
        longer -= static_cast<std::int64_t>(counts.lengths[p.hyb_width]);
    }
    p.hyb_rest = p.nnz - kept;
    p.hyb_rest_rows = longer;
}

}  // namespace

OrientationProfile make_profile(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const ProfileCounts& counts) {
    const auto share = [](Count part, Count of) { return of > 0 ? static_cast<double>(part) / static_cast<double>(of) : 0.0; };
    const auto entries = static_cast<Count>(nnz);
    OrientationProfile p;
    p.rows = rows;
    p.cols = cols;
    p.nnz = nnz;
    set_lengths(p, counts);
    set_padded_formats(p, counts);

    p.sorted_columns = counts.descents == 0;
    p.duplicates = static_cast<std::int64_t>(counts.duplicates);
    p.row_span = static_cast<std::int64_t>(counts.row_span);
    p.span32 = static_cast<std::int64_t>(counts.span32);
    p.span256 = static_cast<std::int64_t>(counts.span256);
    p.narrow_rows = share(counts.narrow_rows, entries);
    p.narrow32 = share(counts.narrow32, entries);
    p.narrow256 = share(counts.narrow256, entries);
    if (!p.sorted_columns) {
        p.row_span = p.span32 = p.span256 = cols;
        p.narrow_rows = p.narrow32 = p.narrow256 = cols <= kNarrowSpan ? 1.0 : 0.0;
    }

    for (int shape = 0; shape < kBlockShapes; ++shape) {
        const BlockShape size = block_shape(shape);
        const Count places = counts.blocks[shape] * static_cast<Count>(size.rows * size.cols);
        p.blocks[static_cast<std::size_t>(shape)] = {size.rows, size.cols, p.sorted_columns ? share(counts.block_entries[shape], places) : 0.0};
    }
    // The entries of a row lie on as many diagonals.
    p.diagonals = std::min(std::max(static_cast<std::int64_t>(counts.diagonals), p.longest), kDiagonalCap + 1);
    if (p.diagonals > 0 && p.diagonals <= kDiagonalCap) {
        p.diagonal_fill = static_cast<double>(nnz) / (static_cast<double>(rows) * static_cast<double>(p.diagonals));
    }

    p.neighbour = share(counts.neighbours, entries);
    p.sectors_fp64 = share(counts.sectors_fp64, counts.run_entries);
    p.sectors_fp32 = share(counts.sectors_fp32, counts.run_entries);
    p.similarity = p.sorted_columns ? share(counts.similar, counts.similar_of) : 0.0;
    p.exact_fp32 = counts.not_fp32 == 0;
    p.exact_bf16 = counts.not_bf16 == 0;
    p.constant = counts.not_constant == 0;
    return p;
}

}  // namespace detail

namespace {

using detail::Count;
using detail::ProfileCounts;

// Puts a diagonal into the table, up to one more than the cap.
void add_diagonal(ProfileCounts& counts, std::uint32_t key) {
    if (counts.diagonals > static_cast<Count>(kDiagonalCap)) return;
    std::uint32_t slot = detail::diagonal_slot(key);
    while (counts.diagonal_keys[slot] != 0 && counts.diagonal_keys[slot] != key) slot = detail::next_diagonal_slot(slot);
    if (counts.diagonal_keys[slot] == key) return;
    counts.diagonal_keys[slot] = key;
    ++counts.diagonals;
}

void add(Count& to, Count value) { to += value; }
void widen(Count& to, Count value) { to = std::max(to, value); }

void merge(ProfileCounts& to, const ProfileCounts& from) {
    for (int bin = 0; bin < detail::kLengthBins; ++bin) add(to.lengths[bin], from.lengths[bin]);
    for (Count ProfileCounts::*member :
         {&ProfileCounts::squares_low, &ProfileCounts::squares_high, &ProfileCounts::sell32_entries, &ProfileCounts::narrow_rows,
          &ProfileCounts::narrow32, &ProfileCounts::narrow256, &ProfileCounts::descents, &ProfileCounts::duplicates,
          &ProfileCounts::neighbours, &ProfileCounts::not_fp32, &ProfileCounts::not_bf16, &ProfileCounts::not_constant,
          &ProfileCounts::run_entries, &ProfileCounts::sectors_fp64, &ProfileCounts::sectors_fp32, &ProfileCounts::similar_of,
          &ProfileCounts::similar}) {
        add(to.*member, from.*member);
    }
    for (Count ProfileCounts::*member :
         {&ProfileCounts::longest, &ProfileCounts::row_span, &ProfileCounts::span32, &ProfileCounts::span256}) {
        widen(to.*member, from.*member);
    }
    for (int shape = 0; shape < kBlockShapes; ++shape) {
        add(to.block_entries[shape], from.block_entries[shape]);
        add(to.blocks[shape], from.blocks[shape]);
    }
    for (std::uint32_t key : from.diagonal_keys) {
        if (key != 0) add_diagonal(to, key);
    }
}

// First and last columns and entries of a run of sorted rows.
struct Run {
    std::int64_t first = std::int64_t{1} << 31;
    std::int64_t last = -1;
    std::int64_t entries = 0;
    std::int64_t longest = 0;

    void add(std::int64_t first_column, std::int64_t last_column, std::int64_t length) {
        first = std::min(first, first_column);
        last = std::max(last, last_column);
        entries += length;
        longest = std::max(longest, length);
    }
    void count(Count& widest, Count& narrow) const {
        if (entries == 0) return;
        const std::int64_t span = last - first + 1;
        if (span > 0) widen(widest, static_cast<Count>(span));
        if (span <= kNarrowSpan) narrow += static_cast<Count>(entries);
    }
};

constexpr std::int64_t kTileRows = 256;

// Rows [256 tile, 256 tile + 256): everything that is counted over all rows and entries.
void count_tile(std::int64_t tile, const CsrMatrix& a, ProfileCounts& counts) {
    const std::int32_t* columns = a.columns();
    const double* values = a.values();
    const double constant = a.nnz() > 0 ? values[0] : 0.0;
    Run run256;
    Run run32;
    const std::int64_t end_row = std::min((tile + 1) * kTileRows, a.rows());
    for (std::int64_t row = tile * kTileRows; row < end_row; ++row) {
        const std::int64_t begin = a.offsets()[row];
        const std::int64_t end = a.offsets()[row + 1];
        const auto length = static_cast<Count>(end - begin);
        ++counts.lengths[detail::length_bin(end - begin)];
        counts.squares_low += (length * length) & 0xffffffffu;
        counts.squares_high += (length * length) >> 32;
        widen(counts.longest, length);
        if (length > 0) {
            Run single;
            single.add(columns[begin], columns[end - 1], end - begin);
            single.count(counts.row_span, counts.narrow_rows);
            run32.add(columns[begin], columns[end - 1], end - begin);
            run256.add(columns[begin], columns[end - 1], end - begin);
        }
        for (std::int64_t k = begin; k < end; ++k) {
            if (k > begin) {
                counts.descents += columns[k] < columns[k - 1];
                counts.duplicates += columns[k] == columns[k - 1];
                counts.neighbours += columns[k] == columns[k - 1] + 1;
            }
            counts.not_fp32 += !detail::fits_fp32(values[k]);
            counts.not_bf16 += !detail::fits_bf16(values[k]);
            counts.not_constant += !(values[k] == constant);
        }
        if ((row + 1) % 32 == 0 || row + 1 == end_row) {
            run32.count(counts.span32, counts.narrow32);
            counts.sell32_entries += 32 * static_cast<Count>(run32.longest);
            run32 = Run();
        }
    }
    run256.count(counts.span256, counts.narrow256);
}

Count distinct_sectors(const std::int32_t* columns, std::int64_t entries, int columns_per_sector) {
    std::int32_t sectors[detail::kRun];
    for (std::int64_t k = 0; k < entries; ++k) sectors[k] = columns[k] / columns_per_sector;
    std::sort(sectors, sectors + entries);
    return static_cast<Count>(std::unique(sectors, sectors + entries) - sectors);
}

void count_run(std::int64_t run, const CsrMatrix& a, ProfileCounts& counts) {
    const std::int64_t begin = run * detail::kRun;
    const std::int64_t entries = std::min(detail::kRun, a.nnz() - begin);
    counts.run_entries += static_cast<Count>(entries);
    counts.sectors_fp64 += distinct_sectors(a.columns() + begin, entries, 4);
    counts.sectors_fp32 += distinct_sectors(a.columns() + begin, entries, 8);
}

}  // namespace

OrientationProfile profile_orientation(const CsrMatrix& stored) {
    const std::int64_t rows = stored.rows();
    const std::int64_t nnz = stored.nnz();
    const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    const std::int64_t runs = detail::run_samples(nnz);
    const std::int64_t diagonal_rows = detail::diagonal_row_samples(rows);
    const std::int64_t similar = detail::similarity_samples(rows);
    ProfileCounts total{};
#pragma omp parallel
    {
        ProfileCounts counts{};
#pragma omp for schedule(dynamic, 16) nowait
        for (std::int64_t tile = 0; tile < tiles; ++tile) count_tile(tile, stored, counts);
#pragma omp for schedule(dynamic, 64) nowait
        for (std::int64_t s = 0; s < runs; ++s) count_run(detail::sample_at(s, runs, detail::run_total(nnz)), stored, counts);
#pragma omp for schedule(dynamic, 64) nowait
        for (std::int64_t s = 0; s < diagonal_rows; ++s) {
            const std::int64_t row = detail::sample_at(s, diagonal_rows, rows);
            const std::int64_t end = detail::diagonal_end(stored.offsets()[row], stored.offsets()[row + 1]);
            for (std::int64_t k = stored.offsets()[row]; k < end; ++k) add_diagonal(counts, detail::diagonal_key(stored.columns()[k], row));
        }
#pragma omp for schedule(dynamic, 64) nowait
        for (std::int64_t s = 0; s < similar; ++s) {
            const std::int64_t row = 1 + detail::sample_at(s, similar, detail::similarity_total(rows));
            const detail::SampleCount count = detail::count_similar(row, stored.offsets(), stored.columns(), 0, 1);
            counts.similar_of += count.of;
            counts.similar += count.found;
        }
        for (int shape = 0; shape < kBlockShapes; ++shape) {
            const detail::BlockShape size = detail::block_shape(shape);
            const std::int64_t samples = detail::block_row_samples(rows, size);
#pragma omp for schedule(dynamic, 16) nowait
            for (std::int64_t s = 0; s < samples; ++s) {
                const std::int64_t block_row = detail::sample_at(s, samples, detail::block_row_total(rows, size));
                const detail::SampleCount count = detail::count_blocks(size, block_row, rows, stored.offsets(), stored.columns(), 0, 1);
                counts.block_entries[shape] += count.of;
                counts.blocks[shape] += count.found;
            }
        }
#pragma omp critical
        merge(total, counts);
    }
    return detail::make_profile(rows, stored.cols(), nnz, total);
}

MatrixProfile profile(const CsrMatrix& a, const CsrMatrix& at) { return {profile_orientation(a), profile_orientation(at)}; }

MatrixProfile profile(const CsrMatrix& a) { return profile(a, a.transposed()); }

}  // namespace lsmr
