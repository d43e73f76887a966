#include "diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lsmr {
namespace {

// From this length on a row deserves more than one thread block: a block adds up 16 k entries in a few microseconds.
constexpr std::int64_t kLongRow = 8192;
// Vectors up to this size can be kept in the shared memory of a multiprocessor of an H200, beside scratch.
constexpr double kSharedBytes = 200e3;

double share_of(double part, double whole) {
    return whole > 0 ? part / whole : 0.0;
}

DiagnosisStep row_lengths(const OrientationProfile& p) {
    DiagnosisStep step{"row lengths", {}, {}};
    step.facts.push_back(
        fmt::format("{} rows, average {:.3g}, p95 {}, p99 {}, longest {}, {} empty", count_text(p.rows), p.average,
                    count_text(p.p95), count_text(p.p99), count_text(p.longest),
                    percent_text(share_of(static_cast<double>(p.empty_rows), static_cast<double>(p.rows)))));
    constexpr double kBarWidth = 40;
    for (std::size_t bin = 0; bin < p.length_histogram.size(); ++bin) {
        const std::int64_t rows = p.length_histogram[bin];
        if (rows == 0) continue;
        const std::int64_t last = bin == 0 ? 0 : std::int64_t{1} << (bin - 1);
        const std::int64_t first = bin < 2 ? last : last / 2 + 1;
        const double share = share_of(static_cast<double>(rows), static_cast<double>(p.rows));
        step.facts.push_back(fmt::format("{:>23} {:>13} rows {:>7}  {}",
                                         first == last ? count_text(last) : count_text(first) + "-" + count_text(last),
                                         count_text(rows), percent_text(share),
                                         std::string(static_cast<std::size_t>(std::ceil(share * kBarWidth)), '#')));
    }
    if (p.nnz == 0) {
        step.verdict = "no entries: the product is a scaling of y";
    } else if (p.average <= 12) {
        step.verdict = "short rows: several a warp, staged through shared memory";
    } else if (p.average <= 64) {
        step.verdict = "rows of medium length: a part of a warp for each";
    } else {
        step.verdict = "long rows: a warp or more for each";
    }
    return step;
}

DiagnosisStep regular(const OrientationProfile& p) {
    DiagnosisStep step{"regular?", {}, {}};
    const double stretch = share_of(static_cast<double>(p.longest), p.average);
    step.facts.push_back(
        fmt::format("coefficient of variation {:.3g}, longest {:.3g} times the average", p.variation, stretch));
    step.facts.push_back(fmt::format(
        "padded to the longest row {:.3g} times the entries, in slices of 32 rows {:.3g}, of sorted rows {:.3g}",
        share_of(static_cast<double>(p.longest) * static_cast<double>(p.rows), static_cast<double>(p.nnz)),
        share_of(static_cast<double>(p.sell32_entries), static_cast<double>(p.nnz)),
        share_of(static_cast<double>(p.sell32_sorted_entries), static_cast<double>(p.nnz))));
    const bool many_empty = 5 * p.empty_rows > p.rows;
    if (p.nnz == 0) {
        step.verdict = "yes: every row is empty";
    } else if (p.variation < 0.3 && stretch <= 4) {
        step.verdict = "yes: equal numbers of rows are equal work, and padding costs little";
    } else if (p.variation < 1 && stretch <= 64 && !many_empty) {
        step.verdict = "nearly: work is dealt by entries, whole rows to a block";
    } else {
        step.verdict = many_empty ? "no: many rows are empty, work is dealt by entries"
                                  : "no: lengths vary widely, work is dealt by entries";
    }
    return step;
}

DiagnosisStep roofline(const OrientationProfile& p, ProductWidths widths, const Rates& rates) {
    DiagnosisStep step{"roofline share", {}, {}};
    const ByteAccount csr = csr_bytes(p, widths);
    const double total = csr.total();
    const double columns = 4 * static_cast<double>(p.nnz);
    const std::vector<std::pair<const char*, double>> parts{
        {"values", csr.values}, {"columns", columns}, {"offsets", csr.indices - columns}, {"x and y", csr.vectors}};
    std::string line;
    for (const auto& [name, bytes] : parts) {
        line += fmt::format("{}{} {}", line.empty() ? "CSR: " : ", ", name, percent_text(share_of(bytes, total)));
    }
    step.facts.push_back(fmt::format("{} of {}", line, bytes_text(total)));
    step.facts.push_back(fmt::format(
        "{:.3g} flops a byte; at {:.0f} GB/s ({}) at least {}", share_of(2 * static_cast<double>(p.nnz), total),
        rates.copy_bytes_per_second * 1e-9, rates.origin, time_text(total / rates.copy_bytes_per_second)));
    std::string savings;
    const auto add_saving = [&](const char* what, double bytes) {
        savings +=
            fmt::format("{}{} {}", savings.empty() ? "" : ", ", what, percent_text(share_of(total - bytes, total)));
    };
    if (p.nnz > 0 && p.span256 <= kNarrowSpan)
        add_saving("16-bit columns", csr_bytes(p, widths, ColumnWidth::bits16).total());
    if (p.nnz > 0 && widths.value_bytes > 4 && p.exact_fp32)
        add_saving("values in fp32", csr_bytes(p, {4, widths.vector_bytes}).total());
    if (p.nnz > 0 && widths.value_bytes > 2 && p.exact_bf16)
        add_saving("values in bf16", csr_bytes(p, {2, widths.vector_bytes}).total());
    if (p.nnz > 0 && p.constant) add_saving("one value for all", total - csr.values);
    step.facts.push_back(savings.empty() ? std::string("nothing can be narrowed without loss")
                                         : "narrowing without loss saves: " + savings);
    const auto largest =
        std::max_element(parts.begin(), parts.end(), [](const auto& l, const auto& r) { return l.second < r.second; });
    step.verdict = fmt::format("bound by the bytes of {}, {} of the traffic", largest->first,
                               percent_text(share_of(largest->second, total)));
    return step;
}

DiagnosisStep locality(const OrientationProfile& p, ProductWidths widths, const Rates& rates) {
    DiagnosisStep step{"x locality", {}, {}};
    const double footprint = static_cast<double>(p.cols) * widths.vector_bytes;
    const double sectors = widths.vector_bytes == 8 ? p.sectors_fp64 : p.sectors_fp32;
    step.facts.push_back(fmt::format("the vector gathered from is {}; rows span up to {} columns, 256 rows up to {}{}",
                                     bytes_text(footprint), count_text(p.row_span), count_text(p.span256),
                                     p.sorted_columns ? "" : "; columns are not sorted"));
    step.facts.push_back(
        fmt::format("right neighbour {}, near one in the row before {}, {:.3g} sectors of 32 bytes an entry",
                    percent_text(p.neighbour), percent_text(p.similarity), sectors));
    const double fetches = sector_fetches(p, widths.vector_bytes);
    const double bytes = csr_bytes(p, widths).total();
    if (p.nnz == 0) {
        step.verdict = "nothing is gathered";
        return step;
    }
    if (!rates.random_access) {
        // Sectors beyond those of x itself are what scattered columns cost.
        const double again = std::max(32 * fetches - footprint, 0.0);
        step.facts.push_back(fmt::format("{} of x beyond the first-level cache, {} of it again",
                                         bytes_text(32 * fetches), bytes_text(again)));
        step.verdict = again > 0.25 * bytes
                           ? "scattered: x moves again and again, more than a quarter of what the stream moves"
                           : "local: what is gathered again is little beside the stream";
        return step;
    }
    const double gather_seconds = h200_sector_seconds(p, widths.vector_bytes);
    const double stream_seconds = bytes / rates.copy_bytes_per_second;
    step.facts.push_back(
        fmt::format("{} sectors beyond the first-level cache, at {:.0f} G/s at least {}; the stream {}",
                    count_text(std::llround(fetches)), h200_gathers_per_second(footprint) * 1e-9,
                    time_text(gather_seconds), time_text(stream_seconds)));
    step.verdict = gather_seconds > stream_seconds ? fmt::format("scattered: bound by sectors, {:.3g} times the stream",
                                                                 gather_seconds / stream_seconds)
                                                   : "local: bound by the stream, not by gathers";
    return step;
}

DiagnosisStep skew(const OrientationProfile& p) {
    DiagnosisStep step{"skew", {}, {}};
    std::int64_t long_rows = 0;
    for (std::size_t bin = 15; bin < p.length_histogram.size(); ++bin)
        long_rows += p.length_histogram[bin];  // above 8,192
    const double longest = share_of(static_cast<double>(p.longest), static_cast<double>(p.nnz));
    step.facts.push_back(fmt::format("the longest row holds {} of the entries; {} rows are longer than {}",
                                     percent_text(longest), count_text(long_rows), count_text(kLongRow)));
    if (long_rows > 0) {
        step.verdict = "rows must be split among blocks, and their parts added in a fixed order";
    } else if (static_cast<double>(p.longest) > 64 * p.average && p.longest > 32) {
        step.verdict = "some rows are far above the average: they need a block each, beside the short ones";
    } else {
        step.verdict = "none: no row needs more than one block";
    }
    return step;
}

DiagnosisStep atomics(const OrientationProfile& p, const OrientationProfile& columns, ProductWidths widths,
                      const Rates& rates) {
    DiagnosisStep step{"atomics", {}, {}};
    const double footprint = static_cast<double>(p.cols) * widths.vector_bytes;
    step.facts.push_back(
        fmt::format("the transposed product by scattering from these rows: {} additions to {}, {} at one address",
                    count_text(p.nnz), bytes_text(footprint), count_text(columns.longest)));
    if (p.nnz == 0) {
        step.verdict = "nothing is added";
        return step;
    }
    if (!rates.random_access) {
        step.verdict = "not needed: the other orientation is stored, its product is a gather of fixed order";
        return step;
    }
    const double scatter = std::max(static_cast<double>(p.nnz) / h200_atomics_per_second(footprint),
                                    static_cast<double>(columns.longest) / kH200HotAtomicsPerSecond);
    const double gather = std::max(csr_bytes(columns, widths).total() / rates.copy_bytes_per_second,
                                   h200_sector_seconds(columns, widths.vector_bytes));
    step.facts.push_back(fmt::format("by atomics at least {}, by a gather from the other orientation at least {}",
                                     time_text(scatter), time_text(gather)));
    if (footprint <= kSharedBytes) {
        step.verdict = "in shared memory only: the target fits there, so one pass for both products may pay";
    } else {
        step.verdict = scatter > gather
                           ? fmt::format("no: {:.3g} times the gather, and the order varies", scatter / gather)
                           : "no: no slower by this bound, but the order varies";
    }
    return step;
}

}  // namespace

std::vector<DiagnosisStep> diagnose(const OrientationProfile& rows, const OrientationProfile& columns,
                                    ProductWidths widths, const Rates& rates) {
    return {row_lengths(rows),
            regular(rows),
            roofline(rows, widths, rates),
            locality(rows, widths, rates),
            skew(rows),
            atomics(rows, columns, widths, rates)};
}

std::string count_text(std::int64_t count) {
    std::string digits = std::to_string(count);
    const std::size_t sign = count < 0 ? 1 : 0;
    for (std::size_t at = digits.size(); at > sign + 3;) {
        at -= 3;
        digits.insert(at, ",");
    }
    return digits;
}

std::string bytes_text(double bytes) {
    const char* unit = "B";
    for (const char* larger : {"KB", "MB", "GB", "TB"}) {
        if (bytes < 999.5) break;  // three digits are shown
        bytes *= 1e-3;
        unit = larger;
    }
    return fmt::format("{:.3g} {}", bytes, unit);
}

std::string time_text(double seconds) {
    return seconds < 1e-4 ? fmt::format("{:.3g} us", seconds * 1e6) : fmt::format("{:.3g} ms", seconds * 1e3);
}

std::string percent_text(double share) {
    return fmt::format("{:.3g} %", 100 * share);
}

}  // namespace lsmr
