// Rows whose sums were left in pieces: the second step of products that cut rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/stream_plan.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cuda {
namespace {

// Cut rows: a warp adds the pieces of a row, in a fixed order, and writes its y.
inline constexpr int kCutThreads = 256;
inline int cut_row_blocks(std::int64_t rows, int multiprocessors) {
    constexpr std::int64_t kRowsPerBlock = kCutThreads / 32;
    return static_cast<int>(std::min({(rows + kRowsPerBlock - 1) / kRowsPerBlock, std::int64_t{8} * multiprocessors, std::int64_t{kMaxPartials / 2}}));
}
template <class X>
__global__ void __launch_bounds__(kCutThreads)
    cut_rows_kernel(std::int32_t count, const CutRow* rows, double* piece_sums, bool atomic, const X* a_pointer, const X* b_pointer, X* y, double* partials) {
    __shared__ double scratch[32];
    await_previous();
    admit_next();
    const X a = *a_pointer;
    const X b = *b_pointer;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    double squares = 0;
    for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x * (kCutThreads / 32) + threadIdx.x / 32); i < count;
         i += static_cast<std::int32_t>(gridDim.x) * (kCutThreads / 32)) {
        const CutRow row = rows[i];
        double sum = 0;
        if (atomic) {
            if (lane == 0) {
                sum = piece_sums[i];
                piece_sums[i] = 0;
            }
        } else {
            for (std::int32_t k = lane; k < row.count; k += 32) sum += piece_sums[row.first_piece + k];
            for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        }
        if (lane != 0) continue;
        const X value = b != X(0) ? a * static_cast<X>(sum) + b * y[row.row] : a * static_cast<X>(sum);
        y[row.row] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    const double total = block_sum(squares, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

}  // namespace
}  // namespace lsmr::cuda
