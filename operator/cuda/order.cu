#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <cmath>
#include <vector>

#include "memory/cuda_check.hpp"
#include "operator/cuda/order.hpp"
#include "operator/cuda/vector_kernels.hpp"

namespace lsmr::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPoint = lsmr::detail::kPoint;
__device__ std::int64_t first_index() { return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; }
__device__ std::int64_t index_step() { return static_cast<std::int64_t>(gridDim.x) * kThreads; }
unsigned blocks_for(std::int64_t n) { return static_cast<unsigned>(vector_blocks(n)); }

__global__ void iota_kernel(std::int64_t n, std::int32_t* p) {
    for (std::int64_t i = first_index(); i < n; i += index_step()) p[i] = static_cast<std::int32_t>(i);
}

__global__ void inverse_kernel(std::int64_t n, const std::int32_t* order, std::int32_t* inverse) {
    for (std::int64_t i = first_index(); i < n; i += index_step()) inverse[order[i]] = static_cast<std::int32_t>(i);
}

template <class T>
__global__ void differ_kernel(std::int64_t n, const T* p, const T* q, int* differ) {
    for (std::int64_t i = first_index(); i < n; i += index_step()) {
        if (p[i] != q[i]) *differ = 1;
    }
}

template <class Offset>
__global__ void row_keys_kernel(OrderKind kind, std::int64_t rows, const Offset* offsets, const std::int32_t* columns, std::uint64_t* keys) {
    for (std::int64_t i = first_index(); i < rows; i += index_step()) {
        keys[i] = lsmr::detail::row_key(kind, columns + offsets[i], static_cast<std::int64_t>(offsets[i + 1] - offsets[i]));
    }
}

// Sorts indices by keys with a stable radix sort. One set of buffers for any number of sorts of up to `most` keys.
template <class Key>
class Sorter {
  public:
    Sorter(std::int64_t most, const CudaContext& context)
        : context_(context), indices_(context, most), sorted_keys_(context, most), temporary_(context, temporary_bytes(most)) {
        if (most == 0) return;
        iota_kernel<<<blocks_for(most), kThreads, 0, context.stream()>>>(most, indices_.data());
        LSMR_CHECK(cudaGetLastError());
    }
    // order: n indices.
    void operator()(std::int64_t n, const Key* keys, std::int32_t* order) {
        if (n == 0) return;
        auto bytes = static_cast<std::size_t>(temporary_.bytes());
        LSMR_CHECK(cub::DeviceRadixSort::SortPairs(temporary_.data(), bytes, keys, sorted_keys_.data(), indices_.data(), order, n, 0,
                                                   static_cast<int>(8 * sizeof(Key)), context_.stream()));
    }

  private:
    static std::int64_t temporary_bytes(std::int64_t most) {
        std::size_t bytes = 0;
        const Key* keys = nullptr;
        const std::int32_t* indices = nullptr;
        LSMR_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, static_cast<Key*>(nullptr), indices, static_cast<std::int32_t*>(nullptr), most));
        return static_cast<std::int64_t>(bytes);
    }
    const CudaContext& context_;
    DeviceBuffer<std::int32_t> indices_;
    DeviceBuffer<Key> sorted_keys_;
    DeviceBuffer<std::byte> temporary_;
};

// --- points ---

template <class Offset>
__global__ void start_kernel(std::int64_t cols, std::int64_t longest, const Offset* transposed_offsets, float* points) {
    for (std::int64_t k = first_index(); k < cols * kPoint; k += index_step()) {
        const std::int64_t j = k / kPoint;
        const bool counts = static_cast<std::int64_t>(transposed_offsets[j + 1] - transposed_offsets[j]) <= longest;
        points[k] = counts ? lsmr::detail::start_point(j, static_cast<int>(k % kPoint)) : 0.0F;
    }
}

// The sum of coordinate `lane` over entries begin, begin + step, ... below end.
__device__ float point_sum(const std::int32_t* columns, std::int64_t begin, std::int64_t end, int step, const float* from, int lane) {
    float sum = 0;
    std::int64_t k = begin;
    for (; k + 3 * step < end; k += 4 * step) {
        const std::int64_t j0 = columns[k], j1 = columns[k + step], j2 = columns[k + 2 * step], j3 = columns[k + 3 * step];
        const float v0 = from[j0 * kPoint + lane], v1 = from[j1 * kPoint + lane], v2 = from[j2 * kPoint + lane], v3 = from[j3 * kPoint + lane];
        sum += (v0 + v1) + (v2 + v3);
    }
    for (; k < end; k += step) sum += from[static_cast<std::int64_t>(columns[k]) * kPoint + lane];
    return sum;
}

// to[i] <- the mean of `from` over the entries of row i that count, weight[i] <- how many (null: not wanted). Eight lanes hold a point: a gather is one
// sector. A row is of one group of eight lanes; one of more than kShort entries is of all groups of the block, one such row after the other.
constexpr std::int64_t kShort = 512;
constexpr int kGroups = kThreads / kPoint;
template <int kRows, class Offset>
__global__ void average_kernel(std::int64_t rows, std::int64_t longest, const Offset* offsets, const std::int32_t* columns, const float* from, float* to,
                               float* weight) {
    static_assert(kRows == kGroups || kRows == 1);
    __shared__ float parts[kGroups][kPoint];
    const int group = static_cast<int>(threadIdx.x) / kPoint;
    const int lane = static_cast<int>(threadIdx.x) % kPoint;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
    // All eight lanes of a group come here together.
    const auto write = [&](std::int64_t row, float sum) {
        const unsigned mask = 0xffU << (threadIdx.x % 32 / kPoint * kPoint);
        const float count = __shfl_sync(mask, sum, 0, kPoint);
        to[row * kPoint + lane] = count > 0 ? sum / count : 0.0F;
        if (weight != nullptr && lane == 0) weight[row] = count;
    };
    if constexpr (kRows > 1) {
        bool is_long = false;
        const std::int64_t row = first + group;
        if (row < rows) {
            const auto begin = static_cast<std::int64_t>(offsets[row]);
            const auto end = static_cast<std::int64_t>(offsets[row + 1]);
            is_long = end - begin > kShort;
            if (!is_long) write(row, point_sum(columns, begin, end, 1, from, lane));
        }
        if (!__syncthreads_or(is_long)) return;
    }
    for (int r = 0; r < kRows && first + r < rows; ++r) {
        const std::int64_t row = first + r;
        const auto begin = static_cast<std::int64_t>(offsets[row]);
        const auto end = static_cast<std::int64_t>(offsets[row + 1]);
        if (kRows > 1 && end - begin <= kShort) continue;  // the same for all threads
        parts[group][lane] = end - begin <= longest ? point_sum(columns, begin + group, end, kGroups, from, lane) : 0.0F;
        __syncthreads();
        if (group == 0) {
            float sum = 0;
            for (int g = 0; g < kGroups; ++g) sum += parts[g][lane];
            write(row, sum);
        }
        __syncthreads();
    }
}

template <class Offset>
void launch_average(std::int64_t rows, std::int64_t nnz, std::int64_t longest, const Offset* offsets, const std::int32_t* columns, const float* from, float* to,
                    float* weight, cudaStream_t stream) {
    if (rows == 0) return;
    if (nnz / rows > kShort) {
        average_kernel<1><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(rows, longest, offsets, columns, from, to, weight);
    } else {
        average_kernel<kGroups><<<static_cast<unsigned>((rows + kGroups - 1) / kGroups), kThreads, 0, stream>>>(rows, longest, offsets, columns, from, to, weight);
    }
    LSMR_CHECK(cudaGetLastError());
}

// Each block's part of sum_j w_j x_j x_j^T, 64 numbers.
constexpr int kPairs = kPoint * kPoint;
constexpr int kTilePoints = 128;
constexpr int kGramBlocks = 264;
__global__ void gram_kernel(std::int64_t cols, const float* points, const float* weight, double* partial) {
    __shared__ float tile[kTilePoints * kPoint];
    __shared__ float tile_weight[kTilePoints];
    __shared__ double sums[kThreads];
    const int pair = static_cast<int>(threadIdx.x) % kPairs;
    const int left = pair / kPoint, right = pair % kPoint;
    double sum = 0;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTilePoints; first < cols; first += static_cast<std::int64_t>(gridDim.x) * kTilePoints) {
        const auto count = static_cast<int>(cols - first < kTilePoints ? cols - first : kTilePoints);
        __syncthreads();
        for (int k = static_cast<int>(threadIdx.x); k < count * kPoint; k += kThreads) tile[k] = points[first * kPoint + k];
        for (int k = static_cast<int>(threadIdx.x); k < count; k += kThreads) tile_weight[k] = weight[first + k];
        __syncthreads();
        for (int k = static_cast<int>(threadIdx.x) / kPairs; k < count; k += kThreads / kPairs) {
            sum += static_cast<double>(tile_weight[k]) * static_cast<double>(tile[k * kPoint + left]) * static_cast<double>(tile[k * kPoint + right]);
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= kPairs) return;
    double total = 0;
    for (int k = static_cast<int>(threadIdx.x); k < kThreads; k += kPairs) total += sums[k];
    partial[static_cast<std::int64_t>(blockIdx.x) * kPairs + threadIdx.x] = total;
}

struct Triangle {
    float t[kPairs];
};
__global__ void transform_kernel(std::int64_t cols, Triangle triangle, float* points) {
    for (std::int64_t j = first_index(); j < cols; j += index_step()) {
        float p[kPoint], q[kPoint] = {};
        for (int c = 0; c < kPoint; ++c) p[c] = points[j * kPoint + c];
        for (int r = 0; r < kPoint; ++r) {
            for (int c = r; c < kPoint; ++c) q[c] += p[r] * triangle.t[r * kPoint + c];
        }
        for (int c = 0; c < kPoint; ++c) points[j * kPoint + c] = q[c];
    }
}

// --- ranks ---

// Coordinate c of the columns' points, then of the rows'.
__global__ void coordinate_kernel(std::int64_t cols, std::int64_t rows, int c, const float* col_points, const float* row_points, float* keys) {
    for (std::int64_t i = first_index(); i < cols + rows; i += index_step()) keys[i] = i < cols ? col_points[i * kPoint + c] : row_points[(i - cols) * kPoint + c];
}

// The bits of coordinate c's ranks into the Morton keys: order[r] is the line of rank r.
__global__ void rank_kernel(std::int64_t count, int c, const std::int32_t* order, std::uint64_t* keys) {
    for (std::int64_t r = first_index(); r < count; r += index_step()) {
        std::uint32_t ranks[kPoint - 1] = {};
        const std::uint32_t rank = lsmr::detail::short_rank(r, count);
#pragma unroll
        for (int k = 0; k < kPoint - 1; ++k) ranks[k] = k == c - 1 ? rank : 0;
        keys[order[r]] |= lsmr::detail::morton_key(ranks);
    }
}

// Lines without a point come last.
__global__ void last_kernel(std::int64_t lines, const float* points, std::uint64_t* keys) {
    for (std::int64_t i = first_index(); i < lines; i += index_step()) {
        if (!(points[i * kPoint] > 0)) keys[i] = ~std::uint64_t{0};
    }
}

// --- locality ---

// One window a block: distinct sectors of each run of 32 entries by warp votes, those of the window by a table.
constexpr unsigned kSlots = 2 * kLocalityWindow;
constexpr unsigned kFree = ~0U;
__global__ void locality_kernel(std::int64_t nnz, const std::int32_t* columns, int columns_per_sector, lsmr::detail::LocalityCounts* counts) {
    static_assert((kSlots & (kSlots - 1)) == 0 && kLocalityWindow % kThreads == 0);
    __shared__ unsigned table[kSlots];
    __shared__ unsigned found[2];  // in runs, in the window
    for (unsigned slot = threadIdx.x; slot < kSlots; slot += kThreads) table[slot] = kFree;
    if (threadIdx.x < 2) found[threadIdx.x] = 0;
    __syncthreads();
    const std::int64_t begin =
        static_cast<std::int64_t>(blockIdx.x) * lsmr::detail::locality_windows(nnz) / static_cast<std::int64_t>(gridDim.x) * kLocalityWindow;
    const auto count = static_cast<int>(nnz - begin < kLocalityWindow ? nnz - begin : kLocalityWindow);
    for (int k = static_cast<int>(threadIdx.x); k < kLocalityWindow; k += kThreads) {
        const unsigned sector = k < count ? static_cast<unsigned>(columns[begin + k] / columns_per_sector) : kFree;
        const unsigned same = __match_any_sync(0xffffffffU, sector);
        if (sector == kFree || static_cast<int>(threadIdx.x % 32) != __ffs(static_cast<int>(same)) - 1) continue;
        atomicAdd(&found[0], 1U);
        for (unsigned slot = sector * 2654435761U % kSlots;; slot = (slot + 1) % kSlots) {
            const unsigned before = atomicCAS(&table[slot], kFree, sector);
            if (before == kFree) atomicAdd(&found[1], 1U);
            if (before == kFree || before == sector) break;
        }
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    atomicAdd(&counts->entries, static_cast<unsigned long long>(count));
    atomicAdd(&counts->run_sectors, static_cast<unsigned long long>(found[0]));
    atomicAdd(&counts->window_sectors, static_cast<unsigned long long>(found[1]));
}

// --- permutation ---

template <class Offset>
__global__ void lengths_kernel(std::int64_t rows, const std::int32_t* row, const Offset* offsets, Offset* lengths) {
    for (std::int64_t i = first_index(); i <= rows; i += index_step()) {
        const std::int64_t from = i < rows && row != nullptr ? row[i] : i;
        lengths[i] = i < rows ? offsets[from + 1] - offsets[from] : 0;
    }
}

// The row of [low, high] that holds entry k: the last one that begins at or before it.
template <class Offset>
__device__ std::int64_t row_of(const Offset* offsets, std::int64_t low, std::int64_t high, std::int64_t k) {
    while (low < high) {
        const std::int64_t middle = low + (high - low + 1) / 2;
        if (static_cast<std::int64_t>(offsets[middle]) <= k) low = middle;
        else high = middle - 1;
    }
    return low;
}

// A block writes kTileEntries entries, whatever rows they are of.
constexpr std::int64_t kTileEntries = 2048;
template <class T, class Offset>
__global__ void gather_rows_kernel(std::int64_t rows, std::int64_t nnz, const std::int32_t* row, const std::int32_t* new_column, const Offset* offsets,
                                   const std::int32_t* columns, const T* values, const Offset* out_offsets, std::int32_t* out_columns, T* out_values) {
    __shared__ std::int64_t bounds[2];
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTileEntries;
    const std::int64_t last = (first + kTileEntries < nnz ? first + kTileEntries : nnz) - 1;
    if (threadIdx.x < 2) bounds[threadIdx.x] = row_of(out_offsets, 0, rows - 1, threadIdx.x == 0 ? first : last);
    __syncthreads();
    for (std::int64_t k = first + threadIdx.x; k <= last; k += kThreads) {
        const std::int64_t i = row_of(out_offsets, bounds[0], bounds[1], k);
        const std::int64_t from_row = row != nullptr ? row[i] : i;
        const std::int64_t from = static_cast<std::int64_t>(offsets[from_row]) + (k - static_cast<std::int64_t>(out_offsets[i]));
        const std::int32_t column = columns[from];
        out_columns[k] = new_column != nullptr ? new_column[column] : column;
        out_values[k] = values[from];
    }
}

template <class Offset>
bool spectral_order(const DevicePattern<Offset>& a, bool may_give_up, DeviceOrder& order, const CudaContext& context) {
    const cudaStream_t stream = context.stream();
    const std::int64_t m = a.rows, n = a.cols;
    const std::int64_t longest_row = lsmr::detail::longest_of_order(m, a.nnz);
    const std::int64_t longest_col = lsmr::detail::longest_of_order(n, a.nnz);
    DeviceBuffer<float> x(context, n * kPoint), y(context, m * kPoint), weight(context, n);
    {
        DeviceBuffer<double> partial(context, std::int64_t{kGramBlocks} * kPairs);
        std::vector<double> host(static_cast<std::size_t>(kGramBlocks * kPairs));
        if (n > 0) {
            start_kernel<<<blocks_for(n * kPoint), kThreads, 0, stream>>>(n, longest_col, a.transposed_offsets, x.data());
            LSMR_CHECK(cudaGetLastError());
        }
        for (int round = 0; round < lsmr::detail::kRounds && n > 0; ++round) {
            launch_average(m, a.nnz, longest_row, a.offsets, a.columns, x.data(), y.data(), nullptr, stream);
            launch_average(n, a.nnz, longest_col, a.transposed_offsets, a.transposed_columns, y.data(), x.data(), weight.data(), stream);
            gram_kernel<<<kGramBlocks, kThreads, 0, stream>>>(n, x.data(), weight.data(), partial.data());
            LSMR_CHECK(cudaGetLastError());
            LSMR_CHECK(cudaMemcpyAsync(host.data(), partial.data(), host.size() * sizeof(double), cudaMemcpyDeviceToHost, stream));
            context.synchronize();
            double gram[kPairs] = {};
            for (std::size_t k = 0; k < host.size(); ++k) gram[k % kPairs] += host[k];
            Triangle triangle;
            double growth = 0;
            lsmr::detail::orthonormalising(gram, triangle.t, &growth);
            if (may_give_up && round == lsmr::detail::kTrialRounds && lsmr::detail::lacks_structure(growth, m, n, a.nnz)) return false;
            transform_kernel<<<blocks_for(n), kThreads, 0, stream>>>(n, triangle, x.data());
            LSMR_CHECK(cudaGetLastError());
        }
        launch_average(m, a.nnz, longest_row, a.offsets, a.columns, x.data(), y.data(), nullptr, stream);
    }
    const std::int64_t count = m + n;
    DeviceBuffer<std::uint64_t> keys(context, count);
    if (count > 0) LSMR_CHECK(cudaMemsetAsync(keys.data(), 0, static_cast<std::size_t>(keys.bytes()), stream));
    {
        DeviceBuffer<float> coordinate(context, count);
        DeviceBuffer<std::int32_t> line(context, count);
        Sorter<float> sort(count, context);
        for (int c = 1; c < kPoint && count > 0; ++c) {
            coordinate_kernel<<<blocks_for(count), kThreads, 0, stream>>>(n, m, c, x.data(), y.data(), coordinate.data());
            LSMR_CHECK(cudaGetLastError());
            sort(count, coordinate.data(), line.data());
            rank_kernel<<<blocks_for(count), kThreads, 0, stream>>>(count, c, line.data(), keys.data());
            LSMR_CHECK(cudaGetLastError());
        }
    }
    Sorter<std::uint64_t> sort(std::max(m, n), context);
    order.row = DeviceBuffer<std::int32_t>(context, m);
    order.col = DeviceBuffer<std::int32_t>(context, n);
    if (n > 0) last_kernel<<<blocks_for(n), kThreads, 0, stream>>>(n, x.data(), keys.data());
    if (m > 0) last_kernel<<<blocks_for(m), kThreads, 0, stream>>>(m, y.data(), keys.data() + n);
    LSMR_CHECK(cudaGetLastError());
    sort(n, keys.data(), order.col.data());
    sort(m, keys.data() + n, order.row.data());
    return true;
}

}  // namespace

template <class Offset>
bool is_symmetric(const DevicePattern<Offset>& a, const CudaContext& context) {
    if (a.rows != a.cols) return false;
    DeviceBuffer<int> differ(context, 1);
    LSMR_CHECK(cudaMemsetAsync(differ.data(), 0, sizeof(int), context.stream()));
    differ_kernel<<<blocks_for(a.rows + 1), kThreads, 0, context.stream()>>>(a.rows + 1, a.offsets, a.transposed_offsets, differ.data());
    LSMR_CHECK(cudaGetLastError());
    differ_kernel<<<blocks_for(a.nnz), kThreads, 0, context.stream()>>>(a.nnz, a.columns, a.transposed_columns, differ.data());
    LSMR_CHECK(cudaGetLastError());
    int host = 0;
    LSMR_CHECK(cudaMemcpyAsync(&host, differ.data(), sizeof(int), cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
    return host == 0;
}

template <class Offset>
bool make_order(OrderKind kind, const DevicePattern<Offset>& a, bool may_give_up, DeviceOrder& order, const CudaContext& context) {
    order.kind = kind;
    const bool symmetric = is_symmetric(a, context);
    const auto copy = [&](DeviceBuffer<std::int32_t>& to, const DeviceBuffer<std::int32_t>& from) {
        to = DeviceBuffer<std::int32_t>(context, from.size());
        if (from.size() > 0)
            LSMR_CHECK(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(from.bytes()), cudaMemcpyDeviceToDevice, context.stream()));
    };
    if (kind == OrderKind::spectral) {
        if (!spectral_order(a, may_give_up, order, context)) return false;
        if (symmetric) copy(order.row, order.col);
        return true;
    }
    order.row = DeviceBuffer<std::int32_t>(context, a.rows);
    if (a.rows == 0) return true;
    DeviceBuffer<std::uint64_t> keys(context, a.rows);
    row_keys_kernel<<<blocks_for(a.rows), kThreads, 0, context.stream()>>>(kind, a.rows, a.offsets, a.columns, keys.data());
    LSMR_CHECK(cudaGetLastError());
    Sorter<std::uint64_t>(a.rows, context)(a.rows, keys.data(), order.row.data());
    if (symmetric) copy(order.col, order.row);
    return true;
}

GatherShape gather_shape(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const std::int32_t* columns, int value_bytes, const CudaContext& context) {
    lsmr::detail::LocalityCounts host;
    if (nnz > 0) {
        DeviceBuffer<lsmr::detail::LocalityCounts> counts(context, 1);
        LSMR_CHECK(cudaMemsetAsync(counts.data(), 0, sizeof(host), context.stream()));
        const auto samples = static_cast<unsigned>(lsmr::detail::locality_samples(nnz));
        locality_kernel<<<samples, kThreads, 0, context.stream()>>>(nnz, columns, 32 / value_bytes, counts.data());
        LSMR_CHECK(cudaGetLastError());
        LSMR_CHECK(cudaMemcpyAsync(&host, counts.data(), sizeof(host), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
    }
    return lsmr::detail::make_shape(rows, cols, nnz, host);
}

DeviceBuffer<std::int32_t> inverse_order(const DeviceBuffer<std::int32_t>& order, const CudaContext& context) {
    DeviceBuffer<std::int32_t> inverse(context, order.size());
    if (order.size() == 0) return inverse;
    inverse_kernel<<<blocks_for(order.size()), kThreads, 0, context.stream()>>>(order.size(), order.data(), inverse.data());
    LSMR_CHECK(cudaGetLastError());
    return inverse;
}

template <class T, class Offset>
void permute_rows(std::int64_t rows, std::int64_t nnz, const std::int32_t* row, const std::int32_t* new_column, const Offset* offsets,
                  const std::int32_t* columns, const T* values, Offset* out_offsets, std::int32_t* out_columns, T* out_values,
                  const CudaContext& context) {
    const cudaStream_t stream = context.stream();
    lengths_kernel<<<blocks_for(rows + 1), kThreads, 0, stream>>>(rows, row, offsets, out_offsets);
    LSMR_CHECK(cudaGetLastError());
    std::size_t bytes = 0;
    LSMR_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, bytes, out_offsets, out_offsets, rows + 1));
    DeviceBuffer<std::byte> temporary(context, static_cast<std::int64_t>(bytes));
    LSMR_CHECK(cub::DeviceScan::ExclusiveSum(temporary.data(), bytes, out_offsets, out_offsets, rows + 1, stream));
    if (nnz == 0) return;
    gather_rows_kernel<<<static_cast<unsigned>((nnz + kTileEntries - 1) / kTileEntries), kThreads, 0, stream>>>(
        rows, nnz, row, new_column, offsets, columns, values, out_offsets, out_columns, out_values);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE(Offset)                                                                                                           \
    template bool is_symmetric(const DevicePattern<Offset>&, const CudaContext&);                                                           \
    template bool make_order(OrderKind, const DevicePattern<Offset>&, bool, DeviceOrder&, const CudaContext&);                             \
    template void permute_rows(std::int64_t, std::int64_t, const std::int32_t*, const std::int32_t*, const Offset*, const std::int32_t*,    \
                               const double*, Offset*, std::int32_t*, double*, const CudaContext&);                                        \
    template void permute_rows(std::int64_t, std::int64_t, const std::int32_t*, const std::int32_t*, const Offset*, const std::int32_t*,    \
                               const float*, Offset*, std::int32_t*, float*, const CudaContext&);
LSMR_INSTANTIATE(std::int32_t)
LSMR_INSTANTIATE(std::int64_t)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
