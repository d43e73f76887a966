// Which kernel computes one product, and from which stored form. Printable, comparable, and read back from its own text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lsmr {

enum class SpmvKernel {
    rows,                 // a fixed number of threads, or a block, for each row of the CSR arrays as they are
    stream,               // items of whole rows through shared memory, each row gathers; rows beyond an item are cut
    products,             // the same items; all entries gather, then rows add their products
    balanced,             // items of equal entries through shared memory; rows are cut where items end
    cusparse_alg1,        // the order of additions varies between runs: benchmarks only, never chosen
    cusparse_alg2,        // fixed order
    cusparse_transposed,  // A^T y from CSR(A), for single storage; the order varies
};

// How values are stored; the vectors and the arithmetic keep their type.
enum class ValueForm { as_vectors, fp32, bf16 };

struct SpmvChoice {
    SpmvKernel kernel = SpmvKernel::stream;
    int threads = 128;      // rows: of a row; stream, products, balanced: of a block
    int capacity = 2048;    // of these three: entries of an item
    bool narrow_columns = false;  // of these three: 16-bit columns in items whose columns span at most 2^16
    ValueForm values = ValueForm::as_vectors;  // stream, balanced
    int panels = 1;         // of these three: runs of columns, multiplied one after the other, so that a run of x stays in L2
    bool atomic = false;    // of these three: pieces of cut rows are added in the order of their arrival
    bool operator==(const SpmvChoice&) const = default;
};

// Through shared memory, by items: stream, products, balanced.
bool is_staged(const SpmvChoice& choice);
// Same bits at every run.
bool is_deterministic(const SpmvChoice& choice);

// "stream-128x2048+columns16+fp32", "products-256x2048", "balanced-256x1024", "rows-32", "cusparse-alg2", "stream-256x1024+panels4", "...+atomic".
std::string text(const SpmvChoice& choice);
// Throws InputError with the forms that exist.
SpmvChoice parse_spmv_choice(std::string_view text);

}  // namespace lsmr
