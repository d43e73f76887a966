// Launchers of the stream kernel: y <- a A x + b y for CSR whose entries pass through shared memory. Raw device pointers, a stream; they
// never allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/cuda/bf16.hpp"
#include "operator/cuda/stream_plan.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

// The matrix in device memory. V: stored values, double, float or Bf16. Columns and values are read in whole groups of 8 entries: both
// arrays are readable up to the next multiple of 8.
template <class V>
struct StreamMatrix {
    const StreamItem* items = nullptr;
    std::int32_t item_count = 0;
    const std::uint16_t* row_starts = nullptr;  // of each row: its first entry, counted from the begin of the item where it starts
    const std::byte* columns = nullptr;         // 32 or 16 bits each, as the item says
    const V* values = nullptr;
    const CutRow* cut_rows = nullptr;
    std::int32_t cut_row_count = 0;
    const std::int32_t* piece_rows = nullptr;
    std::int32_t piece_count = 0;
};

// How the block sums an item of several rows.
//   rows   each row by its threads, which gather as they go: neighbouring rows gather neighbouring x together
//   merge  all threads gather, entry by entry; then each thread sums as many entries, and a segmented scan joins what rows have in several
enum class StreamOrder { rows, merge };

// A tuning of the kernel: threads of a block, entries of an item. Rows: 128x2048, 128x1024, 256x1024 and 256x2048; merge:
// 128x1024, with two stages, and 256x1024. Measured on an H200 (docs/benchmarks/h200_spmv.md): 128x2048 is best where x is local, since one
// thread a row makes neighbouring rows gather neighbouring values; the others leave more L1 to scattered gathers.
struct StreamShape {
    int threads = 128;
    int capacity = 2048;
};

// How a product is launched: blocks of the main kernel, as many as the device holds at once, bounded by the items and by kMaxPartials; and
// blocks that add the pieces of cut rows, afterwards. No blocks: there is no such shape, or not with these types.
struct StreamLaunch {
    StreamShape shape;
    StreamOrder order = StreamOrder::rows;
    int blocks = 0;
    int cut_blocks = 0;
    std::int32_t partials() const { return blocks + cut_blocks; }
};
template <class V, class X>
StreamLaunch choose_stream_launch(StreamShape shape, StreamOrder order, std::int64_t items, std::int64_t cut_rows, int multiprocessors);

// y <- a A x + b y; b = 0: y is not read. partials: null, or launch.partials() values, which get partial sums of ||y||^2.
// piece_sums: scratch, a value a piece. atomic: pieces of a row are added in the order of their arrival, so bits may differ between runs;
// piece_sums then has a value a cut row, all zero before the first product and again after each.
template <class V, class X>
void launch_stream(const StreamLaunch& launch, const StreamMatrix<V>& matrix, double* piece_sums, bool atomic, Scalar<X> a, const X* x, Scalar<X> b,
                   X* y, double* partials, cudaStream_t stream);

}  // namespace lsmr::cuda
