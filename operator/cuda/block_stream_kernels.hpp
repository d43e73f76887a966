// Launchers of the block stream kernel: y <- a A x + b y for BSR whose blocks pass through shared memory. Raw device pointers, a stream; they
// never allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/cuda/block_kernels.hpp"
#include "operator/cuda/block_plan.hpp"

namespace lsmr::cuda {

// A in items of blocks, in device memory. `blocks`: by columns; values and columns are readable up to the next multiple of 16 bytes.
template <class V>
struct BlockStream {
    BlockMatrix<V> blocks;
    const BlockItem* items = nullptr;
    std::int32_t item_count = 0;
    std::int32_t capacity = 1;              // blocks that shared memory has room for
    const std::uint16_t* starts = nullptr;  // of each block row: its first block, counted from the begin of the item where it starts
    const CutRow* cut_rows = nullptr;
    std::int32_t cut_row_count = 0;
};

template <class V, class X>
using BlockStreamKernel = void (*)(BlockStream<V> matrix, double* piece_sums, const X* a, const X* x, const X* b, X* y, double* partials);

// blocks: of the main kernel, as many as the device holds at once, bounded by the items and by kMaxPartials; cut_blocks: that add the pieces of cut
// block rows, afterwards.
template <class V, class X>
struct BlockStreamLaunch {
    BlockStreamKernel<V, X> kernel = nullptr;
    std::size_t shared_bytes = 0;
    int blocks = 0;
    int cut_blocks = 0;
    std::int32_t partials() const { return blocks + cut_blocks; }
};
template <class V, class X>
BlockStreamLaunch<V, X> choose_block_stream_launch(const BlockStream<V>& matrix, int multiprocessors);

// y <- a A x + b y; b = 0: y is not read. partials: null, or launch.partials() values, which get partial sums of ||y||^2.
// piece_sums: scratch, a value a row of each piece.
template <class V, class X>
void launch_block_stream(const BlockStreamLaunch<V, X>& launch, const BlockStream<V>& matrix, double* piece_sums, Scalar<X> a, const X* x, Scalar<X> b,
                         X* y, double* partials, cudaStream_t stream);

}  // namespace lsmr::cuda
