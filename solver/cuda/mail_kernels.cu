#include <algorithm>

#include "memory/cuda_check.hpp"
#include "solver/cuda/mail_kernels.hpp"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAll = 0xffffffffu;

// i in low .. high - 1 with begins[i] <= value < begins[i + 1], where begins[low] <= value < begins[high] and they ascend: the last one that
// begins at or before the value, for those that are empty end where they begin.
__device__ int last_at_or_before(const std::int32_t* begins, int low, int high, std::int32_t value) {
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (begins[middle] <= value) low = middle;
        else high = middle;
    }
    return low;
}

// How many of the ascending values are less.
__device__ std::int32_t count_less(const std::int32_t* values, std::int32_t size, std::int32_t value) {
    std::int32_t low = 0;
    std::int32_t high = size;
    while (low < high) {
        const std::int32_t middle = low + (high - low) / 2;
        if (values[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low;
}

__device__ void fetch_block_cols(const MailPattern& a, std::int32_t* block_cols) {
    for (int c = static_cast<int>(threadIdx.x); c <= a.blocks; c += kThreads) block_cols[c] = a.block_cols[c];
}

// A block of threads a block of rows.
__global__ void __launch_bounds__(kThreads) count_kernel(const MailPattern a, std::int32_t* counts) {
    __shared__ std::int32_t block_cols[kMostPersistentBlocks + 1];
    __shared__ std::int32_t of_block[kMostPersistentBlocks];
    const int thread = static_cast<int>(threadIdx.x);
    const int r = static_cast<int>(blockIdx.x);
    fetch_block_cols(a, block_cols);
    for (int c = thread; c < a.blocks; c += kThreads) of_block[c] = 0;
    __syncthreads();
    const std::int32_t end = a.offsets[a.block_rows[r + 1]];
    for (std::int32_t k = a.offsets[a.block_rows[r]] + thread; k < end; k += kThreads) {
        atomicAdd(&of_block[last_at_or_before(block_cols, 0, a.blocks, a.columns[k])], 1);
    }
    __syncthreads();
    for (int c = thread; c < a.blocks; c += kThreads) counts[r * a.blocks + c] = of_block[c];
}

// The same. Each warp takes a stretch of the block's entries, so that their order within a run is that of the rows: first all count, then each
// knows where it begins in every run.
template <class T>
__global__ void __launch_bounds__(kThreads) fill_kernel(const MailPattern a, const T* values, const MailPlaces to, T* mailed) {
    __shared__ std::int32_t block_cols[kMostPersistentBlocks + 1];
    __shared__ std::int32_t next[kWarps][kMostPersistentBlocks];
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = thread / 32;
    const int r = static_cast<int>(blockIdx.x);
    const std::int32_t first_row = a.block_rows[r];
    const std::int32_t end_row = a.block_rows[r + 1];
    const std::int32_t first = a.offsets[first_row];
    const std::int32_t end = a.offsets[end_row];
    const std::int32_t stretch = (end - first + kThreads - 1) / kThreads * 32;  // of a warp
    const std::int32_t begin_mine = min(first + warp * stretch, end);
    const std::int32_t end_mine = min(begin_mine + stretch, end);
    fetch_block_cols(a, block_cols);
    for (int i = thread; i < kWarps * kMostPersistentBlocks; i += kThreads) next[i / kMostPersistentBlocks][i % kMostPersistentBlocks] = 0;
    __syncthreads();
    for (std::int32_t k = begin_mine + lane; k < end_mine; k += 32) atomicAdd(&next[warp][last_at_or_before(block_cols, 0, a.blocks, a.columns[k])], 1);
    __syncthreads();
    for (int c = thread; c < a.blocks; c += kThreads) {
        std::int32_t slot = to.in_mailbox[r * a.blocks + c];
        for (int w = 0; w < kWarps; ++w) {
            const std::int32_t of_warp = next[w][c];
            next[w][c] = slot;
            slot += of_warp;
        }
    }
    __syncthreads();
    const MailDiagonal* const row_diagonals = to.rows.diagonals + to.rows.diagonals_at[r];
    for (std::int32_t begin = begin_mine; begin < end_mine; begin += 32) {
        const std::int32_t k = begin + lane;
        const bool has = k < end_mine;
        const std::int32_t j = has ? a.columns[k] : 0;
        const int c = has ? last_at_or_before(block_cols, 0, a.blocks, j) : -1;
        const unsigned alike = __match_any_sync(kAll, c);
        const int before = __popc(alike & ((1u << lane) - 1));
        const std::int32_t slot = has ? next[warp][c] + before : 0;
        __syncwarp();
        if (has && before == 0) next[warp][c] += __popc(alike);
        __syncwarp();
        if (!has) continue;
        const std::int32_t i = last_at_or_before(a.offsets, first_row, end_row, k);
        const std::int32_t of_column = count_less(a.transposed_columns + a.transposed_offsets[j], a.transposed_offsets[j + 1] - a.transposed_offsets[j], i);
        const int run = r * a.blocks + c;
        const std::int32_t listed = to.in_list[run] + slot - to.in_mailbox[run];
        const std::int32_t row = to.rows.at[i];
        const std::int32_t col = to.cols.at[j];
        mailed[slot] = values[k];
        to.rows.products[slot] = static_cast<std::uint16_t>(row_diagonals[k - a.offsets[i]].begin + row);
        to.rows.lines[slot] = static_cast<std::uint16_t>(row);
        to.cols.products[listed] = static_cast<std::uint16_t>(to.cols.diagonals[to.cols.diagonals_at[c] + of_column].begin + col);
        to.cols.lines[listed] = static_cast<std::uint16_t>(col);
    }
    // What fills the last sector of each run, and where its sectors lie.
    for (int c = warp; c < a.blocks; c += kWarps) {
        const int run = r * a.blocks + c;
        const std::int32_t sectors = (to.counts[run] + to.sector - 1) / to.sector;
        for (std::int32_t s = lane; s < sectors; s += 32) {
            to.sectors[to.in_list[run] / to.sector + s] = static_cast<std::uint32_t>(to.in_mailbox[run] / to.sector + s);
        }
        for (std::int32_t s = to.counts[run] + lane; s < sectors * to.sector; s += 32) {
            mailed[to.in_mailbox[run] + s] = 0;
            to.rows.products[to.in_mailbox[run] + s] = to.spare;
            to.rows.lines[to.in_mailbox[run] + s] = 0;
            to.cols.products[to.in_list[run] + s] = to.spare;
            to.cols.lines[to.in_list[run] + s] = 0;
        }
    }
}

__global__ void __launch_bounds__(256) narrow_kernel(std::int64_t n, const std::int32_t* from, std::uint16_t* to) {
    const std::int64_t step = std::int64_t{256} * gridDim.x;
    for (std::int64_t k = std::int64_t{256} * blockIdx.x + threadIdx.x; k < n; k += step) to[k] = static_cast<std::uint16_t>(from[k]);
}

}  // namespace

void launch_count_mail(const MailPattern& a, std::int32_t* counts, cudaStream_t stream) {
    count_kernel<<<static_cast<unsigned>(a.blocks), kThreads, 0, stream>>>(a, counts);
    LSMR_CHECK(cudaGetLastError());
}

template <class T>
void launch_fill_mail(const MailPattern& a, const T* values, const MailPlaces& to, T* mailed, cudaStream_t stream) {
    fill_kernel<<<static_cast<unsigned>(a.blocks), kThreads, 0, stream>>>(a, values, to, mailed);
    LSMR_CHECK(cudaGetLastError());
}

void launch_narrow_columns(std::int64_t n, const std::int32_t* from, std::uint16_t* to, cudaStream_t stream) {
    if (n == 0) return;
    constexpr std::int64_t kMostBlocks = 1024;
    narrow_kernel<<<static_cast<unsigned>(std::min((n + 255) / 256, kMostBlocks)), 256, 0, stream>>>(n, from, to);
    LSMR_CHECK(cudaGetLastError());
}

template void launch_fill_mail(const MailPattern&, const double*, const MailPlaces&, double*, cudaStream_t);
template void launch_fill_mail(const MailPattern&, const float*, const MailPlaces&, float*, cudaStream_t);

}  // namespace lsmr::cuda
