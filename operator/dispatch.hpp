// From what a matrix is to the kernels that may be best for it: pure functions of plain data, the same on every machine.
//   profile (operator/profile.hpp) -> key -> candidates -> [timed on the matrix itself] -> kernel
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/profile.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr {

enum class VectorType { fp64, fp32 };

// What the choice of a kernel may depend on, and nothing else, of one stored orientation and one kind of product.
struct DispatchKey {
    std::string format = "csr";
    VectorType type = VectorType::fp64;
    int index_bits = 32;  // of offsets
    std::int64_t rows = 0;     // M
    std::int64_t cols = 0;     // K
    std::int64_t vectors = 1;  // N, right-hand sides of one product
    std::int64_t nnz = 0;
    double average = 0;  // row lengths
    std::int64_t p95 = 0;
    std::int64_t p99 = 0;
    std::int64_t longest = 0;
    double variation = 0;
    bool sorted_columns = true;
    std::int32_t block_rows = 1;  // of the dense blocks that need the fewest bytes
    std::int32_t block_cols = 1;
    double block_fill = 0;         // entries over their places, by a sample; 0: not known
    std::int64_t diagonals = 0;    // that hold an entry, at least; more than kDiagonalCap: too many
    int alignment_bytes = 16;  // of vectors
    int batch = 1;             // matrices of one product
    int arch = 90;             // compute capability x 10
    double scattered = 0;      // distinct sectors of x an entry that the rows beside do not share: 0 local, 1 random
    double narrow = 0;         // share of the entries that 16-bit columns can serve
    // Places of SELL-32 for each entry, rows in their order and sorted by length; 0: not known.
    double sell_places = 0;
    double sell_sorted_places = 0;
    ValueForm exact = ValueForm::as_vectors;  // the narrowest form that holds every value exactly
    bool operator==(const DispatchKey&) const = default;
};
DispatchKey make_dispatch_key(const OrientationProfile& profile, VectorType type, int arch);
std::string text(const DispatchKey& key);

struct Candidate {
    SpmvChoice choice;
    std::string reason;
};
// 1 to 4 candidates, the best guess first; never one whose bits vary. expected_products: 0 for many; forms that cost a conversion are proposed
// only where the expected products pay for it.
std::vector<Candidate> spmv_candidates(const DispatchKey& key, std::int64_t expected_products);

// Blocks of that size by the fastest mapping.
SpmvChoice block_choice(std::int32_t block_rows, std::int32_t block_cols, ValueForm values);

// Blocks, diagonals or dense storage are proposed where a product moves at most this share of the bytes that it moves with CSR in its narrowest
// form, and where there are entries enough for timing: below that launches decide, not bytes. Then they are the best guess.
inline constexpr double kFormatBytes = 0.92;
// Dense storage is proposed from this share of places with entries on. By bytes it would pay from two thirds on, but its zeros spread a non-finite
// x to rows that have no entry there; nearly full matrices are served by large blocks, which do not.
inline constexpr double kDenseDensity = 1.0;
// SELL-32, of the rows in their order where that hardly costs places, else sorted; and how many times as fast as the kernels of CSR its product
// is by the bytes that both move and the shares of the copy bandwidth that they reach on an H200. 0 where SELL cannot be judged or is not meant:
// scattered gathers, unknown places. (ELL, HYB and COO never move fewer bytes than CSR: they are taken only where asked for.)
struct SellPrediction {
    SpmvChoice choice;
    double gain = 0;
};
SellPrediction predict_sell(const DispatchKey& key);
// SELL is proposed, to be timed, where it promises at least this.
inline constexpr double kLeastFormatGain = 1.08;
// The window kernel, and how many times as fast as the others its product is on an H200, by what both read and by the sectors of x that the others gather.
// 0 where it is not meant: local gathers, rows that do not ascend.
struct WindowPrediction {
    SpmvChoice choice;
    double gain = 0;
    double others_seconds = 0;  // what others take at least
};
WindowPrediction predict_window(const DispatchKey& key);
// It is proposed, as the best guess, where it promises at least this.
inline constexpr double kLeastWindowGain = 1.1;
// Where it is measured to be so many times as fast as others can be, they are not timed.
inline constexpr double kWindowGainAtOnce = 1.25;
// And from so many entries on: below, beginnings of cells decide, and vectors lie in L2.
inline constexpr std::int64_t kEntriesForWindows = std::int64_t{1} << 23;
// Products that pay for a format: its conversion costs about ten, and saves 8 % to 40 % of each.
inline constexpr std::int64_t kProductsForFormats = 128;

// Products that a conversion must serve before it pays: narrow columns and values cost about three products, panels about ten, and save 10 %
// to 40 % of each.
inline constexpr std::int64_t kProductsForNarrowing = 32;
inline constexpr std::int64_t kProductsForPanels = 64;

// Timing pays above this many entries; below, launches decide and the best guess is taken.
inline constexpr std::int64_t kEntriesForTiming = std::int64_t{1} << 20;
// No candidate is made to be timed once timing, and the making of candidates beside the first, has taken this much time, or this share of the
// expected products'.
inline constexpr double kTimingSeconds = 0.05;
inline constexpr double kTimingShare = 0.02;

}  // namespace lsmr
