// Launchers of the products with COO, entries in the order of their rows, and of what fills its arrays. Raw device pointers, a stream; they never
// allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "operator/cuda/coo_plan.hpp"
#include "operator/cuda/stream_kernels.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

// The row of places beyond the last entry.
inline constexpr std::int32_t kNoRow = std::numeric_limits<std::int32_t>::max();

// Arrays are readable up to the next multiple of 8 entries, where rows are kNoRow and columns 0. V: stored values, double, float or Bf16.
template <class V>
struct CooDevice {
    std::int64_t entries = 0;
    std::int64_t chunk_entries = kCooStep;
    std::int64_t chunks = 0;
    const std::int32_t* rows = nullptr;
    const std::int32_t* columns = nullptr;
    const V* values = nullptr;
    const CutRow* cut_rows = nullptr;
    std::int32_t cut_row_count = 0;
    const std::int32_t* piece_rows = nullptr;
};

// Blocks of the kernel and of the one that adds the pieces of cut rows: from the plan alone. Together at most `most`; no entries: none.
struct CooLaunch {
    std::int32_t blocks = 0;
    std::int32_t cut_blocks = 0;
    std::int32_t partials() const { return blocks + cut_blocks; }
};
CooLaunch choose_coo_launch(std::int64_t chunks, std::int64_t cut_rows, std::int32_t most);

// y_i <- a (A x)_i + b y_i for the rows i that have entries, others are left alone; b = 0: y is not read. partials: null, or launch.partials()
// values, which get partial sums of the squares of these y_i. piece_sums: scratch, 2 values a chunk. atomic: pieces of a row are added in the
// order of their arrival, so bits may differ between runs; piece_sums must then be zero before the first product, and is so after each.
template <class V, class X>
void launch_coo(const CooLaunch& launch, const CooDevice<V>& matrix, double* piece_sums, bool atomic, Scalar<X> a, const X* x, Scalar<X> b, X* y,
                double* partials, cudaStream_t stream);

// y_i <- b y_i for the `count` rows of the list; partials as above, `blocks` of them.
std::int32_t scale_rows_blocks(std::int64_t count, std::int32_t most);
template <class X>
void launch_scale_rows(std::int32_t blocks, std::int64_t count, const std::int32_t* list, Scalar<X> b, X* y, double* partials, cudaStream_t stream);

// From CSR in device memory: the entries of each row beyond the first `width`, one row after the other; places[i]: where those of row i go.
// to_columns and to_values: null, or to be filled. The places up to the next multiple of 8 from `entries` on are padded.
template <class V, class T, class Offset, class Place>
void launch_fill_coo(std::int64_t rows, const Offset* offsets, std::int64_t width, const Place* places, std::int64_t entries, const std::int32_t* columns,
                     const T* values, std::int32_t* to_rows, std::int32_t* to_columns, V* to_values, cudaStream_t stream);

}  // namespace lsmr::cuda
