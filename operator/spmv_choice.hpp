// Which kernel computes one product, and from which stored form. Printable, comparable, and read back from its own text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lsmr {

enum class SpmvKernel {
    rows,                 // a fixed number of threads, or a block, for each row of the CSR arrays as they are
    stream,               // items of whole rows through shared memory, each row gathers; rows beyond an item are cut
    balanced,             // items of equal entries through shared memory; rows are cut where items end
    merge,                // the same items; all entries gather, then every thread sums as many entries, whatever the rows
    window,               // runs of columns in turn, whose x lies in shared memory; sums of runs of rows there too
    cusparse_alg1,        // the order of additions varies between runs: benchmarks only, never chosen
    cusparse_alg2,        // fixed order
    cusparse_transposed,  // A^T y from CSR(A), for single storage; the order varies
    // Formats with arrays of their own: on the GPU and on the CPU.
    sell,                 // slices of 32 rows, column by column, each as wide as its longest row
    ell,                  // all rows as wide as the longest one, column by column
    hyb,                  // the first entries of each row in ELL, the rest in COO
    coo,                  // a row, a column and a value an entry; sums of runs of equal rows
    bsr,                  // dense blocks, those that hold an entry
    bell,                 // Blocked-ELL: as many blocks in every block row
    dia,                  // diagonals
    dense,                // all places, by cuBLAS; places without an entry are zeros
    cusparse_bsr,         // benchmarks only, never chosen
};

// How values are stored; the vectors and the arithmetic keep their type.
enum class ValueForm { as_vectors, fp32, bf16 };
// How a GPU's threads cover the blocks: through shared memory, items of whole block rows (stream; any size, by columns), or a warp straight from global
// memory, by columns of blocks (any size) or by whole blocks (squares with sides of 1, 2, 4, 8, 16, 32). On the CPU they are the same.
enum class BlockMapping { stream, columns, blocks };
// How the places of a block lie in memory.
enum class BlockOrder { column_major, row_major };
inline constexpr int kLargestBlockSide = 32;  // rows, and columns
inline constexpr int kLargestWindow = 32760;  // columns

struct SpmvChoice {
    SpmvKernel kernel = SpmvKernel::stream;
    int threads = 128;      // rows: of a row; stream, balanced, merge: of a block
    int capacity = 2048;    // of these three: entries of an item; window: most columns of a window, 0: as many as shared memory holds
    bool narrow_columns = false;  // of these three: 16-bit columns in items whose columns span at most 2^16; sell: in slices, below 2^16
    ValueForm values = ValueForm::as_vectors;  // stream, balanced, window, sell, ell, hyb, coo, bsr (stream)
    int panels = 1;         // of these three: runs of columns, multiplied one after the other, so that a run of x stays in L2
    bool atomic = false;    // of these three, hyb, coo: pieces of cut rows are added in the order of their arrival
    int sigma = 1;          // sell: rows are sorted by length within windows of so many rows, 2^5 to 2^16; 1: they keep their order
    int quantile = 0;       // hyb: the ELL part is as wide as this percentage of the rows needs; 0: as a third of the rows can fill
    int block_rows = 0;     // bsr, bell, cusparse_bsr
    int block_cols = 0;
    BlockMapping mapping = BlockMapping::columns;  // bsr; bell: blocks
    BlockOrder order = BlockOrder::column_major;   // bsr; bell: row_major
    bool operator==(const SpmvChoice&) const = default;
};

// Through shared memory, by items: stream, balanced, merge.
bool is_staged(const SpmvChoice& choice);
// With arrays of its own, on the GPU and on the CPU: sell, ell, hyb, coo, bsr, bell, dia, dense.
bool is_format(const SpmvChoice& choice);
// Which narrow forms the kernel has.
bool takes_narrow_columns(const SpmvChoice& choice);
bool takes_narrow_values(const SpmvChoice& choice);
// Blocks that the mapping by blocks and Blocked-ELL take.
bool is_power_square(const SpmvChoice& choice);
// Same bits at every run.
bool is_deterministic(const SpmvChoice& choice);

// "stream-128x2048+columns16+fp32", "balanced-256x1024", "merge-128x1024", "window", "window-4096", "rows-32", "cusparse-alg2",
// "stream-256x1024+panels4", "...+atomic",
// "sell-32", "sell-32-1024+columns16" (sigma 1024), "ell+bf16", "hyb", "hyb-q95" (a quantile of 95 %), "coo",
// "bsr-3x3-stream", "bsr-3x3-columns", "bsr-4x4-blocks+rowmajor", "bell-16x16", "dia", "dense", "cusparse-bsr-3x3".
std::string text(const SpmvChoice& choice);
// Throws InputError with the forms that exist.
SpmvChoice parse_spmv_choice(std::string_view text);
// A format by its name, "sell" for "sell-32-1024"; or as above. Throws InputError with the formats that exist.
SpmvChoice parse_format(std::string_view text);

}  // namespace lsmr
