#include "operator/dispatch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "operator/byte_model.hpp"
#include "operator/cuda/window_plan.hpp"

namespace lsmr {
namespace {

// Gathers from a run of x run at full speed up to here on an H200 (60 MB of L2 in two halves, each of which keeps what its side reads):
// 148 G/s at 4 to 16 MB, 75 at 64 MB.
constexpr std::int64_t kPanelBytes = std::int64_t{16} << 20;
constexpr std::int64_t kScatteredBytes = std::int64_t{24} << 20;

SpmvChoice staged(SpmvKernel kernel, int threads, int capacity) {
    SpmvChoice choice;
    choice.kernel = kernel;
    choice.threads = threads;
    choice.capacity = capacity;
    return choice;
}

double vector_width(VectorType type) { return type == VectorType::fp64 ? 8 : 4; }
// Of a value in that form.
double stored_bytes(ValueForm values, VectorType type) {
    if (values == ValueForm::bf16) return 2;
    return values == ValueForm::fp32 ? 4 : vector_width(type);
}

// Of an entry in blocks, its share of the block's column and of the places without one.
double block_entry_bytes(const BlockFill& block, double value_bytes) { return (value_bytes + 4.0 / (block.rows * block.cols)) / block.fill; }

// Of blocks, diagonals and dense storage what moves the fewest bytes, where that pays: as kFormatBytes says.
std::optional<Candidate> places_candidate(const DispatchKey& key) {
    const double width = vector_width(key.type);
    const double value_bytes = stored_bytes(key.exact, key.type);
    const auto rows = static_cast<double>(key.rows);
    const auto cols = static_cast<double>(key.cols);
    const auto nnz = static_cast<double>(key.nnz);
    const double vectors = width * (cols + 2 * rows);
    const double csr = (value_bytes + (key.narrow >= 0.5 ? 2 : 4)) * nnz + 4 * rows + vectors;
    double least = kFormatBytes * csr;
    std::optional<Candidate> best;
    const auto offer = [&](const SpmvChoice& choice, double bytes, const std::string& what) {
        if (!(bytes <= least)) return;
        least = bytes;
        best = Candidate{choice, fmt::format("{}: {:.0f} % of the bytes of CSR", what, 100 * bytes / csr)};
    };
    if (key.block_fill > 0) {
        const BlockFill block{key.block_rows, key.block_cols, key.block_fill};
        offer(block_choice(block.rows, block.cols, key.exact), block_entry_bytes(block, value_bytes) * nnz + 2 * rows / block.rows + vectors,
              fmt::format("blocks of {}x{}, {:.0f} % full", block.rows, block.cols, 100 * block.fill));
    }
    if (key.diagonals > 0 && key.diagonals <= kDiagonalCap) {
        SpmvChoice dia;
        dia.kernel = SpmvKernel::dia;
        offer(dia, width * rows * static_cast<double>(key.diagonals) + vectors, fmt::format("{} diagonals", key.diagonals));
    }
    if (nnz > 0 && nnz >= kDenseDensity * rows * cols) {
        SpmvChoice dense;
        dense.kernel = SpmvKernel::dense;
        offer(dense, width * rows * cols + vectors, "every place holds an entry");
    }
    return best;
}

// Of the copy bandwidth, by our kernels of CSR with local gathers (docs/benchmarks/h200_spmv.md): rows of 2 entries, of 4 and 5, of 12 and 16, of 27.
double csr_share(double average) { return average < 3 ? 0.65 : average < 8 ? 0.82 : average < 20 ? 0.88 : 0.93; }
// By SELL-32, a thread a row.
constexpr double kSellShare = 0.95;

}  // namespace

SpmvChoice block_choice(std::int32_t block_rows, std::int32_t block_cols, ValueForm values) {
    SpmvChoice choice;
    choice.kernel = SpmvKernel::bsr;
    choice.block_rows = block_rows;
    choice.block_cols = block_cols;
    choice.mapping = BlockMapping::stream;
    choice.values = values;
    return choice;
}

SellPrediction predict_sell(const DispatchKey& key) {
    if (key.sell_places <= 0 || key.sell_sorted_places <= 0 || key.scattered > 0.5) return {};
    SellPrediction prediction;
    prediction.choice.kernel = SpmvKernel::sell;
    prediction.choice.sigma = key.sell_places <= 1.02 * key.sell_sorted_places ? 1 : 1024;
    const auto rows = static_cast<double>(key.rows);
    const auto entries = static_cast<double>(key.nnz);
    const double width = vector_width(key.type);
    const double vectors = width * (static_cast<double>(key.cols) + 2 * rows);
    const double csr = (width + 4) * entries + 4 * rows + vectors;
    const bool sorted = prediction.choice.sigma > 1;
    const double sell = (width + 4) * entries * (sorted ? key.sell_sorted_places : key.sell_places) + rows * (4.0 / 32 + (sorted ? 2 : 0)) + vectors;
    prediction.gain = csr / csr_share(key.average) / (sell / kSellShare);
    return prediction;
}

WindowPrediction predict_window(const DispatchKey& key) {
    if (key.scattered <= 0.5 || !key.sorted_columns || key.nnz < kEntriesForWindows) return {};
    WindowPrediction prediction;
    prediction.choice.kernel = SpmvKernel::window;
    prediction.choice.capacity = 0;
    const double width = vector_width(key.type);
    const double value_bytes = stored_bytes(key.exact, key.type);
    const auto entries = static_cast<double>(key.nnz);
    const double vectors = width * (static_cast<double>(key.cols) + 2 * static_cast<double>(key.rows));
    const double bytes = ((value_bytes + 4) * entries + 4 * static_cast<double>(key.rows) + vectors) / kH200CopyBytesPerSecond;
    const double gathers = entries * key.scattered / h200_gathers_per_second(static_cast<double>(key.cols) * width);
    const double window = cuda::least_window_seconds(key.rows, key.cols, key.nnz, static_cast<int>(width), value_bytes);
    prediction.others_seconds = std::max(bytes, gathers);
    if (window > 0) prediction.gain = prediction.others_seconds / window;
    return prediction;
}

DispatchKey make_dispatch_key(const OrientationProfile& profile, VectorType type, int arch) {
    DispatchKey key;
    key.type = type;
    key.index_bits = profile.nnz > kMaxNarrowEntries ? 64 : 32;
    key.rows = profile.rows;
    key.cols = profile.cols;
    key.nnz = profile.nnz;
    key.average = profile.average;
    key.p95 = profile.p95;
    key.p99 = profile.p99;
    key.longest = profile.longest;
    key.variation = profile.variation;
    key.sorted_columns = profile.sorted_columns;
    key.arch = arch;
    // What the row before has fetched is still near where both fit into the first-level cache: 2,048 sectors of 32 bytes each, 128 KB in all.
    constexpr double kNearEntries = 2048;
    const double near = profile.average < kNearEntries ? profile.similarity : 0;
    key.scattered = (type == VectorType::fp64 ? profile.sectors_fp64 : profile.sectors_fp32) * (1 - near);
    // Items have about as many rows as the shorter of the two runs, where rows are short or long.
    key.narrow = profile.cols <= kNarrowSpan ? 1.0 : (profile.average < 16 ? profile.narrow256 : profile.narrow32);
    if (profile.nnz > 0) {
        key.sell_places = static_cast<double>(profile.sell32_entries) / static_cast<double>(profile.nnz);
        key.sell_sorted_places = static_cast<double>(profile.sell32_sorted_entries) / static_cast<double>(profile.nnz);
    }
    if (profile.exact_bf16) key.exact = ValueForm::bf16;
    else if (profile.exact_fp32 && type == VectorType::fp64) key.exact = ValueForm::fp32;
    const double value_bytes = stored_bytes(key.exact, type);
    double least = value_bytes + 4;
    for (const BlockFill& block : profile.blocks) {
        if (!(block.fill > 0) || block_entry_bytes(block, value_bytes) >= least) continue;
        least = block_entry_bytes(block, value_bytes);
        key.block_rows = block.rows;
        key.block_cols = block.cols;
        key.block_fill = block.fill;
    }
    key.diagonals = profile.diagonals;
    return key;
}

std::string text(const DispatchKey& key) {
    const char* exact = key.exact == ValueForm::bf16 ? "bf16" : key.exact == ValueForm::fp32 ? "fp32" : "as stored";
    return fmt::format(
        "{} {} offsets{} {}x{} N={} nnz={} rows avg {:.1f} p95 {} p99 {} max {} cv {:.2f} {} block {}x{} fill {:.2f} diagonals {} align {} batch {} sm_{} "
        "scattered {:.2f} narrow {:.2f} sell {:.2f} {:.2f} values {}",
        key.format, key.type == VectorType::fp64 ? "fp64" : "fp32", key.index_bits, key.rows, key.cols, key.vectors, key.nnz, key.average, key.p95, key.p99,
        key.longest, key.variation, key.sorted_columns ? "sorted" : "unsorted", key.block_rows, key.block_cols, key.block_fill, key.diagonals,
        key.alignment_bytes, key.batch, key.arch, key.scattered, key.narrow, key.sell_places, key.sell_sorted_places, exact);
}

std::vector<Candidate> spmv_candidates(const DispatchKey& key, std::int64_t expected_products) {
    const auto pays = [&](std::int64_t products) { return expected_products == 0 || expected_products >= products; };
    const std::int64_t x_bytes = key.cols * (key.type == VectorType::fp64 ? 8 : 4);
    // Half of the gathers miss what neighbours have fetched.
    const bool scattered = key.scattered > 0.5;
    const bool uneven = static_cast<double>(key.longest) > 64 * (key.average + 1) && key.longest > 4096;

    std::vector<Candidate> candidates;
    const auto add = [&](const SpmvChoice& choice, std::string reason) {
        if (candidates.size() < 4) candidates.push_back({choice, std::move(reason)});
    };
    const auto add_cusparse = [&] {
        SpmvChoice cusparse;
        cusparse.kernel = SpmvKernel::cusparse_alg2;
        if (key.index_bits == 32) add(cusparse, fmt::format("rows of up to {} entries, {:.0f} on average", key.longest, key.average));
    };
    // As fast as their bytes promise.
    if (pays(kProductsForFormats) && key.nnz >= kEntriesForTiming) {
        if (const auto format = places_candidate(key)) add(format->choice, format->reason);
    }
    if (scattered) {
        const WindowPrediction window = predict_window(key);
        if (window.gain >= kLeastWindowGain && pays(kProductsForFormats)) {
            add(window.choice, fmt::format("scattered gathers from shared memory, window by window: {:.2f} times as fast by what they read", window.gain));
        }
        const auto panels = static_cast<int>(std::clamp<std::int64_t>((x_bytes + kPanelBytes - 1) / kPanelBytes, 1, 8));
        if (x_bytes > kScatteredBytes && key.average >= 4.0 * panels && pays(kProductsForPanels)) {
            SpmvChoice choice = staged(SpmvKernel::stream, 256, 1024);
            choice.panels = panels;
            add(choice, fmt::format("scattered gathers from {:.0f} MB of x: panels of {:.0f} MB stay in L2", static_cast<double>(x_bytes) / 1e6,
                                    static_cast<double>(x_bytes) / panels / 1e6));
        }
        add(staged(SpmvKernel::stream, 256, 2048), "scattered gathers: many threads a block leave L1 to misses in flight");
        if (key.average >= 64 && key.variation < 1) {
            SpmvChoice rows;
            rows.kernel = SpmvKernel::rows;
            rows.threads = 32;
            add(rows, "long rows of like length");
        }
        add(staged(SpmvKernel::balanced, 256, 2048), "scattered gathers: full items");
        add(staged(SpmvKernel::merge, 256, 1024), "scattered gathers: all threads gather, whatever the rows");
        if (uneven) add_cusparse();
    } else if (key.variation > 0.5) {
        add(staged(SpmvKernel::stream, 128, 1024), "rows of unlike length, local gathers: small items");
        add(staged(SpmvKernel::stream, 256, 2048), "rows of unlike length: more threads an item");
        add(staged(SpmvKernel::merge, 128, 1024), "rows of unlike length: equal runs of entries, whatever the rows");
        if (uneven) add_cusparse();
    } else {
        add(staged(SpmvKernel::stream, 128, 2048), "local gathers: large items, neighbouring rows gather together");
        const SellPrediction sell = predict_sell(key);
        if (sell.gain >= kLeastFormatGain && pays(kProductsForFormats)) {
            add(sell.choice, fmt::format("local gathers, {:.1f} places an entry: {:.2f} times as fast by its bytes",
                                         sell.choice.sigma > 1 ? key.sell_sorted_places : key.sell_places, sell.gain));
        }
        add(staged(SpmvKernel::stream, 128, 1024), "local gathers: smaller items");
        add(staged(SpmvKernel::stream, 256, 2048), "local gathers: more threads an item");
    }
    for (Candidate& candidate : candidates) {
        SpmvChoice& choice = candidate.choice;
        if (!pays(kProductsForNarrowing)) continue;
        if (takes_narrow_columns(choice)) choice.narrow_columns = key.narrow >= 0.5;
        if (takes_narrow_values(choice)) choice.values = key.exact;
    }
    return candidates;
}

}  // namespace lsmr
