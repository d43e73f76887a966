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
class Sorter {
  public:
    Sorter(std::int64_t most, const CudaContext& context)
        : context_(context), indices_(context, most), sorted_keys_(context, most), temporary_(context, temporary_bytes(most)) {
        if (most == 0) return;
        iota_kernel<<<blocks_for(most), kThreads, 0, context.stream()>>>(most, indices_.data());
        LSMR_CHECK(cudaGetLastError());
    }
    // order: n indices.
    void operator()(std::int64_t n, const std::uint64_t* keys, std::int32_t* order) {
        if (n == 0) return;
        auto bytes = static_cast<std::size_t>(temporary_.bytes());
        LSMR_CHECK(cub::DeviceRadixSort::SortPairs(temporary_.data(), bytes, keys, sorted_keys_.data(), indices_.data(), order, n, 0, 64,
                                                   context_.stream()));
    }

  private:
    static std::int64_t temporary_bytes(std::int64_t most) {
        std::size_t bytes = 0;
        const std::uint64_t* keys = nullptr;
        const std::int32_t* indices = nullptr;
        LSMR_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, static_cast<std::uint64_t*>(nullptr), indices,
                                                   static_cast<std::int32_t*>(nullptr), most));
        return static_cast<std::int64_t>(bytes);
    }
    const CudaContext& context_;
    DeviceBuffer<std::int32_t> indices_;
    DeviceBuffer<std::uint64_t> sorted_keys_;
    DeviceBuffer<std::byte> temporary_;
};

// --- points ---

// The point of its group in the coarser problem (group: null where there is none), or a random one.
template <class Offset>
__global__ void start_kernel(std::int64_t cols, std::int64_t longest, const Offset* transposed_offsets, const std::int32_t* group, const float* coarse,
                             float* points) {
    for (std::int64_t k = first_index(); k < cols * kPoint; k += index_step()) {
        const std::int64_t j = k / kPoint;
        const auto c = static_cast<int>(k % kPoint);
        const std::int64_t from = group != nullptr ? group[j] : -1;
        if (static_cast<std::int64_t>(transposed_offsets[j + 1] - transposed_offsets[j]) > longest) points[k] = 0.0F;
        else if (from >= 0 && coarse[from * kPoint] > 0) points[k] = coarse[from * kPoint + c];
        else points[k] = lsmr::detail::start_point(j, c);
    }
}

// Eight lanes hold a point, so that a gather of one is a sector. A row is of one group of eight lanes; one of more than kShort entries is of all groups
// of the block, one such row after the other. What is done with rows are the works below: in each of kSteps steps kSums sums, of what term() says of the
// row's columns, and then finish(), in all groups that share the row; one of them writes.
constexpr std::int64_t kShort = 512;
constexpr int kGroups = kThreads / kPoint;
constexpr int kLine = lsmr::detail::kLine;
__device__ unsigned group_mask() { return 0xffU << (threadIdx.x % 32 / kPoint * kPoint); }
__device__ float first_of_group(float v) { return __shfl_sync(group_mask(), v, 0, kPoint); }
__device__ float group_sum(float v) {
    for (int other = kPoint / 2; other > 0; other /= 2) v += __shfl_xor_sync(group_mask(), v, other, kPoint);
    return v;
}
template <int kSums>
struct Sums {
    float of[kSums];
    __device__ Sums operator+(const Sums& other) const {
        Sums sum{};
        for (int s = 0; s < kSums; ++s) sum.of[s] = of[s] + other.of[s];
        return sum;
    }
};

// to[row] <- the mean of the points of the row's columns that count, weight[row] <- how many (null: not wanted).
struct Mean {
    static constexpr int kSums = 1;
    static constexpr int kSteps = 1;
    const float* from;
    float* to;
    float* weight;
    __device__ void start(std::int64_t, std::int64_t, std::int64_t, int) {}
    __device__ Sums<1> term(std::int64_t column, int lane) const { return {{from[column * kPoint + lane]}}; }
    __device__ void finish(std::int64_t row, int, int lane, const Sums<1>& sums, bool writes) {
        const float count = first_of_group(sums.of[0]);
        if (!writes) return;
        to[row * kPoint + lane] = count > 0 ? sums.of[0] / count : 0.0F;
        if (weight != nullptr && lane == 0) weight[row] = count;
    }
};

// lines[row] <- the line through the points of the row's columns: kLine floats.
struct Fit {
    static constexpr int kSums = 2;  // of points, and of points by how far they are along d
    static constexpr int kSteps = lsmr::detail::kLineSteps;
    const float* from;
    float* lines;
    float d = 0;  // of this lane's coordinate
    __device__ void start(std::int64_t, std::int64_t first, std::int64_t last, int lane) {
        d = lane > 0 ? from[last * kPoint + lane] - from[first * kPoint + lane] : 0.0F;
    }
    __device__ Sums<2> term(std::int64_t column, int lane) const {
        const float v = from[column * kPoint + lane];
        return {{v, group_sum(v * d) * v}};
    }
    __device__ void finish(std::int64_t row, int step, int lane, const Sums<2>& sums, bool writes) {
        const float count = first_of_group(sums.of[0]);
        const float mean = count > 0 ? sums.of[0] / count : 0.0F;
        const float at_mean = group_sum(mean * d);
        const float v = count > 0 && lane > 0 ? sums.of[1] / count - at_mean * mean : 0.0F;  // the covariance times d
        const float square = group_sum(v * v), product = group_sum(v * d);
        const float variance = product > 0 ? square / product : 0.0F;
        d = variance > 0 ? v / sqrtf(square) : 0.0F;
        if (step + 1 < kSteps) return;
        float most = d;  // the first of the longest coordinates tells the sign
        for (int other = 1; other < kPoint; other *= 2) {
            const float of = __shfl_xor_sync(group_mask(), most, other, kPoint);
            if (fabsf(of) > fabsf(most) || (fabsf(of) == fabsf(most) && (lane & other) != 0)) most = of;
        }
        if (!writes) return;
        const float spread = most < 0 ? -sqrtf(variance) : sqrtf(variance);
        lines[row * kLine + lane] = mean;
        lines[row * kLine + kPoint + lane] = lane > 0 ? spread * d : variance > 0 ? 1 / variance : 0.0F;
    }
};

// For the rows of A^T: points[row] <- the mean of its nearest points on the lines of its columns, which are rows of A; weight[row] <- of how many.
struct ToLines {
    static constexpr int kSums = 1;
    static constexpr int kSteps = 1;
    const float* lines;
    float* points;
    float* weight;
    float p = 0;
    __device__ void start(std::int64_t row, std::int64_t, std::int64_t, int lane) { p = points[row * kPoint + lane]; }
    __device__ Sums<1> term(std::int64_t line, int lane) const {
        const float mean = lines[line * kLine + lane];
        const float along = lines[line * kLine + kPoint + lane];
        const float t = group_sum(lane > 0 ? (p - mean) * along : 0.0F) * first_of_group(along);
        return {{lane > 0 ? mean + t * along : mean}};
    }
    __device__ void finish(std::int64_t row, int, int lane, const Sums<1>& sums, bool writes) {
        const float count = first_of_group(sums.of[0]);
        if (!writes) return;
        points[row * kPoint + lane] = count > 0 ? sums.of[0] / count : 0.0F;
        if (lane == 0) weight[row] = count;
    }
};

// Over entries begin, begin + step, ... below end.
template <class Work>
__device__ Sums<Work::kSums> sums_of(const Work& work, const std::int32_t* columns, std::int64_t begin, std::int64_t end, int step, int lane) {
    Sums<Work::kSums> sums{};
    std::int64_t k = begin;
    for (; k + 3 * step < end; k += 4 * step) {
        const std::int64_t j0 = columns[k], j1 = columns[k + step], j2 = columns[k + 2 * step], j3 = columns[k + 3 * step];
        const auto t0 = work.term(j0, lane), t1 = work.term(j1, lane), t2 = work.term(j2, lane), t3 = work.term(j3, lane);
        sums = sums + ((t0 + t1) + (t2 + t3));
    }
    for (; k < end; k += step) sums = sums + work.term(columns[k], lane);
    return sums;
}

template <int kRows, class Offset, class Work>
__global__ void rows_kernel(std::int64_t rows, std::int64_t longest, const Offset* offsets, const std::int32_t* columns, Work given) {
    static_assert(kRows == kGroups || kRows == 1);
    __shared__ Sums<Work::kSums> parts[kGroups][kPoint];
    const int group = static_cast<int>(threadIdx.x) / kPoint;
    const int lane = static_cast<int>(threadIdx.x) % kPoint;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
    const auto start = [&](Work& work, std::int64_t row, std::int64_t begin, std::int64_t end) {
        if (begin < end) work.start(row, columns[begin], columns[end - 1], lane);
    };
    if constexpr (kRows > 1) {
        bool is_long = false;
        const std::int64_t row = first + group;
        if (row < rows) {
            const auto begin = static_cast<std::int64_t>(offsets[row]);
            const auto end = static_cast<std::int64_t>(offsets[row + 1]);
            is_long = end - begin > kShort;
            if (!is_long) {
                Work work = given;
                start(work, row, begin, end);
                for (int step = 0; step < Work::kSteps; ++step) work.finish(row, step, lane, sums_of(work, columns, begin, end, 1, lane), true);
            }
        }
        if (!__syncthreads_or(is_long)) return;
    }
    for (int r = 0; r < kRows && first + r < rows; ++r) {
        const std::int64_t row = first + r;
        const auto begin = static_cast<std::int64_t>(offsets[row]);
        const auto end = static_cast<std::int64_t>(offsets[row + 1]);
        if (kRows > 1 && end - begin <= kShort) continue;  // the same for all threads
        Work work = given;
        start(work, row, begin, end);
        for (int step = 0; step < Work::kSteps; ++step) {
            parts[group][lane] = end - begin <= longest ? sums_of(work, columns, begin + group, end, kGroups, lane) : Sums<Work::kSums>{};
            __syncthreads();
            Sums<Work::kSums> sums{};
            for (int g = 0; g < kGroups; ++g) sums = sums + parts[g][lane];
            __syncthreads();
            work.finish(row, step, lane, sums, group == 0);
        }
    }
}

template <class Offset, class Work>
void for_rows(std::int64_t rows, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns, const Work& work, cudaStream_t stream) {
    if (rows == 0) return;
    const std::int64_t longest = lsmr::detail::longest_of_order(rows, nnz);
    if (nnz / rows > kShort) {
        rows_kernel<1><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(rows, longest, offsets, columns, work);
    } else {
        rows_kernel<kGroups><<<static_cast<unsigned>((rows + kGroups - 1) / kGroups), kThreads, 0, stream>>>(rows, longest, offsets, columns, work);
    }
    LSMR_CHECK(cudaGetLastError());
}
template <class Offset, class Work>
void for_rows(const DevicePattern<Offset>& a, const Work& work, cudaStream_t stream) {
    for_rows(a.rows, a.nnz, a.offsets, a.columns, work, stream);
}
template <class Offset, class Work>
void for_columns(const DevicePattern<Offset>& a, const Work& work, cudaStream_t stream) {
    for_rows(a.cols, a.nnz, a.transposed_offsets, a.transposed_columns, work, stream);
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

struct Transform {
    float t[kPairs];
};
__global__ void transform_kernel(std::int64_t cols, Transform transform, float* points) {
    for (std::int64_t j = first_index(); j < cols; j += index_step()) {
        float p[kPoint], q[kPoint] = {};
        for (int c = 0; c < kPoint; ++c) p[c] = points[j * kPoint + c];
        for (int r = 0; r < kPoint; ++r) {
            for (int c = 0; c < kPoint; ++c) q[c] += p[r] * transform.t[r * kPoint + c];
        }
        for (int c = 0; c < kPoint; ++c) points[j * kPoint + c] = q[c];
    }
}

// --- groups ---

template <class Offset>
__global__ void seed_kernel(std::int64_t cols, std::int64_t longest, int round, const Offset* transposed_offsets, std::uint32_t* labels) {
    for (std::int64_t j = first_index(); j < cols; j += index_step()) {
        const auto length = static_cast<std::int64_t>(transposed_offsets[j + 1] - transposed_offsets[j]);
        if (labels[j] == lsmr::detail::kNoLabel && length > 0 && length <= longest && lsmr::detail::is_seed(j, round))
            labels[j] = lsmr::detail::label_of(static_cast<std::int32_t>(j));
    }
}

// Rows without a label take the least of their columns; eight lanes a row.
template <class Offset>
__global__ void label_kernel(std::int64_t rows, std::int64_t longest, const Offset* offsets, const std::int32_t* columns, const std::uint32_t* from,
                             std::uint32_t* to) {
    const std::int64_t row = first_index() / kPoint;
    const int lane = static_cast<int>(threadIdx.x) % kPoint;
    // The same for the eight lanes: those that leave are in no shuffle.
    if (row >= rows || to[row] != lsmr::detail::kNoLabel) return;
    const auto begin = static_cast<std::int64_t>(offsets[row]);
    const auto length = static_cast<std::int64_t>(offsets[row + 1]) - begin;
    if (length == 0 || length > longest) return;
    const unsigned mask = 0xffU << (threadIdx.x % 32 / kPoint * kPoint);
    const std::int64_t step = lsmr::detail::label_step(length);
    std::uint32_t least = lsmr::detail::kNoLabel;
    for (std::int64_t k = lane * step; k < length; k += kPoint * step) {
        const std::uint32_t label = from[columns[begin + k]];
        least = label < least ? label : least;
    }
    for (int other = kPoint / 2; other > 0; other /= 2) {
        const std::uint32_t label = __shfl_xor_sync(mask, least, other, kPoint);
        least = label < least ? label : least;
    }
    if (lane == 0) to[row] = least;
}

// 1 for seeds, and for the place behind the last column 0.
__global__ void is_seed_kernel(std::int64_t cols, const std::uint32_t* labels, std::int32_t* seed) {
    for (std::int64_t j = first_index(); j <= cols; j += index_step())
        seed[j] = j < cols && labels[j] == lsmr::detail::label_of(static_cast<std::int32_t>(j)) ? 1 : 0;
}

// Labels to the numbers of groups; -1: none.
__global__ void group_kernel(std::int64_t lines, const std::int32_t* group_of_seed, const std::uint32_t* labels, std::int32_t* group) {
    for (std::int64_t i = first_index(); i < lines; i += index_step())
        group[i] = labels[i] != lsmr::detail::kNoLabel ? group_of_seed[lsmr::detail::seed_of(labels[i])] : -1;
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

constexpr std::uint64_t kNoEntry = ~std::uint64_t{0};
// The groups of the sampled entries, the row's in the upper half; kNoEntry where one of them is none.
template <class Offset>
__global__ void sample_kernel(std::int64_t samples, std::int64_t step, std::int64_t rows, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns,
                              const std::int32_t* row_group, const std::int32_t* col_group, std::uint64_t* entries) {
    for (std::int64_t s = first_index(); s < samples; s += index_step()) {
        const std::int64_t k = lsmr::detail::sampled_entry(s, step, nnz);
        const std::int32_t row = row_group[row_of(offsets, 0, rows - 1, k)];
        const std::int32_t col = col_group[columns[k]];
        entries[s] = row >= 0 && col >= 0 ? static_cast<std::uint64_t>(row) << 32 | static_cast<std::uint64_t>(col) : kNoEntry;
    }
}

// CSR of sorted entries. offsets: groups + 1 of them.
__global__ void coarse_offsets_kernel(std::int64_t groups, std::int64_t count, const std::uint64_t* entries, std::int32_t* offsets) {
    for (std::int64_t g = first_index(); g <= groups; g += index_step()) {
        const std::uint64_t key = static_cast<std::uint64_t>(g) << 32;
        std::int64_t low = 0, high = count;  // the first entry that is not below the key
        while (low < high) {
            const std::int64_t middle = low + (high - low) / 2;
            if (entries[middle] < key) low = middle + 1;
            else high = middle;
        }
        offsets[g] = static_cast<std::int32_t>(low);
    }
}
// The columns of sorted entries, and the entries of the transpose.
__global__ void coarse_columns_kernel(std::int64_t count, const std::uint64_t* entries, std::int32_t* columns, std::uint64_t* transposed) {
    for (std::int64_t k = first_index(); k < count; k += index_step()) {
        columns[k] = static_cast<std::int32_t>(entries[k] & 0xffffffffU);
        transposed[k] = entries[k] << 32 | entries[k] >> 32;
    }
}

// --- runs and halvings ---

// Mean points of runs of columns, and each block's part of how far columns are from their run's mean and from the origin.
constexpr int kScatterBlocks = 264;
__global__ void run_kernel(std::int64_t cols, const float* points, float* means, double* partial) {
    constexpr std::int64_t kRun = lsmr::detail::kKeptRun;
    __shared__ double sums[2][kThreads];
    double within = 0, all = 0;
    for (std::int64_t run = first_index(); run * kRun < cols; run += index_step()) {
        const std::int64_t first = run * kRun;
        const std::int64_t end = first + kRun < cols ? first + kRun : cols;
        float mean[kPoint] = {};
        for (std::int64_t j = first; j < end; ++j) {
#pragma unroll
            for (int c = 0; c < kPoint; ++c) mean[c] += points[j * kPoint + c];
        }
#pragma unroll
        for (int c = kPoint - 1; c >= 0; --c) {
            mean[c] = mean[0] > 0 ? mean[c] / mean[0] : 0.0F;
            means[run * kPoint + c] = mean[c];
        }
        for (std::int64_t j = first; j < end; ++j) {
            if (!(points[j * kPoint] > 0)) continue;
#pragma unroll
            for (int c = 1; c < kPoint; ++c) {
                const float p = points[j * kPoint + c];
                const float off = p - mean[c];
                within += static_cast<double>(off * off);
                all += static_cast<double>(p * p);
            }
        }
    }
    sums[0][threadIdx.x] = within;
    sums[1][threadIdx.x] = all;
    __syncthreads();
    if (threadIdx.x >= 2) return;
    double total = 0;
    for (int k = 0; k < kThreads; ++k) total += sums[threadIdx.x][k];
    partial[2 * static_cast<std::int64_t>(blockIdx.x) + threadIdx.x] = total;
}

__global__ void take_means_kernel(std::int64_t cols, const float* means, float* points) {
    for (std::int64_t j = first_index(); j < cols; j += index_step()) {
        if (!(points[j * kPoint] > 0)) continue;
        for (int c = 0; c < kPoint; ++c) points[j * kPoint + c] = means[j / lsmr::detail::kKeptRun * kPoint + c];
    }
}

// The coordinate that spreads widest over a sample of each piece of points of kFloats floats; a warp a piece, in which kFloats lanes hold a point.
template <int kFloats>
__global__ void widest_kernel(std::int64_t count, const float* points, std::int64_t size, const std::int32_t* order, int* widest) {
    constexpr unsigned kAll = 0xffffffffU;
    const std::int64_t piece = first_index() / 32;
    const std::int64_t begin = piece * size;
    if (begin >= count) return;  // all of the warp
    const int lane = static_cast<int>(threadIdx.x) % kFloats;
    const std::int64_t end = begin + size < count ? begin + size : count;
    const std::int64_t step = (end - begin + lsmr::detail::kPieceSample - 1) / lsmr::detail::kPieceSample;
    const auto coordinate = [&](std::int64_t r) { return points[static_cast<std::int64_t>(order[r]) * kFloats + lane]; };
    const float origin = coordinate(begin);
    float sum = 0, squares = 0, samples = 0;
    for (std::int64_t r = begin + static_cast<std::int64_t>(threadIdx.x % 32 / kFloats) * step; r < end; r += 32 / kFloats * step) {
        const float v = coordinate(r) - origin;
        sum += v;
        squares += v * v;
        samples += 1;
    }
    for (int other = kFloats; other < 32; other *= 2) {
        sum += __shfl_xor_sync(kAll, sum, other);
        squares += __shfl_xor_sync(kAll, squares, other);
        samples += __shfl_xor_sync(kAll, samples, other);
    }
    float most = lane % kPoint == 0 ? -1.0F : squares / samples - sum / samples * (sum / samples);
    int best = lane;
    for (int other = 1; other < kFloats; other *= 2) {
        const float spread = __shfl_xor_sync(kAll, most, other);
        const int of = __shfl_xor_sync(kAll, best, other);
        if (spread > most || (spread == most && of < best)) {
            most = spread;
            best = of;
        }
    }
    if (threadIdx.x % 32 == 0) widest[piece] = best;
}

// The piece of each place, and the coordinate of its point that the piece is cut across.
template <int kFloats>
__global__ void piece_kernel(std::int64_t count, const float* points, std::int64_t size, const std::int32_t* order, const int* widest, std::uint64_t* keys) {
    for (std::int64_t r = first_index(); r < count; r += index_step()) {
        const std::int64_t piece = r / size;
        const float coordinate = points[static_cast<std::int64_t>(order[r]) * kFloats + widest[piece]];
        const auto bits = static_cast<std::uint32_t>(__float_as_int(coordinate + 0.0F));  // -0 becomes 0
        const std::uint32_t ascending = bits >> 31 != 0 ? ~bits : bits | std::uint32_t{1} << 31;
        keys[r] = static_cast<std::uint64_t>(piece) << 32 | ascending;
    }
}

__global__ void place_kernel(std::int64_t count, const std::int32_t* order, std::uint32_t* place) {
    for (std::int64_t r = first_index(); r < count; r += index_step()) place[order[r]] = static_cast<std::uint32_t>(r);
}

// Places to keys of columns (run: of how many a place is) or rows; those without a point come last.
__global__ void place_key_kernel(std::int64_t lines, std::int64_t run, int floats, const float* points, const std::uint32_t* place, std::uint64_t* keys) {
    for (std::int64_t i = first_index(); i < lines; i += index_step()) keys[i] = points[i * floats] > 0 ? place[i / run] : ~std::uint64_t{0};
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

// --- the spectral order ---

// Groups of columns and rows, and the matrix of the groups, whose entries repeat.
struct Coarse {
    std::int64_t groups = 0;
    DeviceBuffer<std::int32_t> col_group;
    DeviceBuffer<std::int32_t> offsets, columns, transposed_offsets, transposed_columns;
    DevicePattern<std::int32_t> pattern;
};

template <class Offset>
struct Groups {
    Groups(const DevicePattern<Offset>& a, const CudaContext& context) : col(context, a.cols), row(context, a.rows) {
        const cudaStream_t stream = context.stream();
        DeviceBuffer<std::uint32_t> col_labels(context, a.cols), row_labels(context, a.rows);
        LSMR_CHECK(cudaMemsetAsync(col_labels.data(), 0xff, static_cast<std::size_t>(col_labels.bytes()), stream));  // kNoLabel
        LSMR_CHECK(cudaMemsetAsync(row_labels.data(), 0xff, static_cast<std::size_t>(row_labels.bytes()), stream));
        const std::int64_t longest_row = lsmr::detail::longest_of_order(a.rows, a.nnz);
        const std::int64_t longest_col = lsmr::detail::longest_of_order(a.cols, a.nnz);
        // Blocks of label_kernel; no grid is empty.
        const auto lanes = [](std::int64_t lines) { return static_cast<unsigned>((std::max<std::int64_t>(lines, 1) * kPoint + kThreads - 1) / kThreads); };
        for (int round = lsmr::detail::first_group_round(a.cols); round < lsmr::detail::kGroupRounds; ++round) {
            seed_kernel<<<blocks_for(a.cols), kThreads, 0, stream>>>(a.cols, longest_col, round, a.transposed_offsets, col_labels.data());
            label_kernel<<<lanes(a.rows), kThreads, 0, stream>>>(a.rows, longest_row, a.offsets, a.columns, col_labels.data(), row_labels.data());
            label_kernel<<<lanes(a.cols), kThreads, 0, stream>>>(a.cols, longest_col, a.transposed_offsets, a.transposed_columns, row_labels.data(),
                                                                 col_labels.data());
            LSMR_CHECK(cudaGetLastError());
        }
        DeviceBuffer<std::int32_t> number(context, a.cols + 1);  // of the group of a seed
        is_seed_kernel<<<blocks_for(a.cols + 1), kThreads, 0, stream>>>(a.cols, col_labels.data(), number.data());
        LSMR_CHECK(cudaGetLastError());
        std::size_t bytes = 0;
        LSMR_CHECK(cub::DeviceScan::ExclusiveSum(nullptr, bytes, number.data(), number.data(), a.cols + 1));
        DeviceBuffer<std::byte> temporary(context, static_cast<std::int64_t>(bytes));
        LSMR_CHECK(cub::DeviceScan::ExclusiveSum(temporary.data(), bytes, number.data(), number.data(), a.cols + 1, stream));
        std::int32_t last = 0;
        LSMR_CHECK(cudaMemcpyAsync(&last, number.data() + a.cols, sizeof last, cudaMemcpyDeviceToHost, stream));
        group_kernel<<<blocks_for(a.cols), kThreads, 0, stream>>>(a.cols, number.data(), col_labels.data(), col.data());
        group_kernel<<<blocks_for(a.rows), kThreads, 0, stream>>>(a.rows, number.data(), row_labels.data(), row.data());
        LSMR_CHECK(cudaGetLastError());
        context.synchronize();
        count = last;
    }
    std::int64_t count = 0;
    DeviceBuffer<std::int32_t> col, row;
};

// False: the groups are hardly fewer than the columns.
template <class Offset>
bool make_coarse(const DevicePattern<Offset>& a, Coarse& coarse, const CudaContext& context) {
    const cudaStream_t stream = context.stream();
    Groups<Offset> groups(a, context);
    if (!lsmr::detail::are_few_groups(groups.count, a.cols)) return false;
    const std::int64_t step = lsmr::detail::sample_step(a.nnz, groups.count);
    const std::int64_t samples = (a.nnz + step - 1) / step;
    DeviceBuffer<std::uint64_t> entries(context, samples), sorted(context, samples);
    std::size_t bytes = 0;
    LSMR_CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, entries.data(), sorted.data(), samples));
    DeviceBuffer<std::byte> temporary(context, static_cast<std::int64_t>(bytes));
    const auto sort = [&](std::int64_t count) {
        LSMR_CHECK(cub::DeviceRadixSort::SortKeys(temporary.data(), bytes, entries.data(), sorted.data(), count, 0, 64, stream));
    };
    sample_kernel<<<blocks_for(samples), kThreads, 0, stream>>>(samples, step, a.rows, a.nnz, a.offsets, a.columns, groups.row.data(), groups.col.data(),
                                                               entries.data());
    LSMR_CHECK(cudaGetLastError());
    sort(samples);
    coarse.groups = groups.count;
    coarse.offsets = DeviceBuffer<std::int32_t>(context, groups.count + 1);
    coarse_offsets_kernel<<<blocks_for(groups.count + 1), kThreads, 0, stream>>>(groups.count, samples, sorted.data(), coarse.offsets.data());
    LSMR_CHECK(cudaGetLastError());
    std::int32_t nnz = 0;
    LSMR_CHECK(cudaMemcpyAsync(&nnz, coarse.offsets.data() + groups.count, sizeof nnz, cudaMemcpyDeviceToHost, stream));
    context.synchronize();
    if (nnz == 0) return false;
    coarse.columns = DeviceBuffer<std::int32_t>(context, nnz);
    coarse.transposed_offsets = DeviceBuffer<std::int32_t>(context, groups.count + 1);
    coarse.transposed_columns = DeviceBuffer<std::int32_t>(context, nnz);
    coarse_columns_kernel<<<blocks_for(nnz), kThreads, 0, stream>>>(nnz, sorted.data(), coarse.columns.data(), entries.data());
    LSMR_CHECK(cudaGetLastError());
    sort(nnz);
    coarse_offsets_kernel<<<blocks_for(groups.count + 1), kThreads, 0, stream>>>(groups.count, nnz, sorted.data(), coarse.transposed_offsets.data());
    coarse_columns_kernel<<<blocks_for(nnz), kThreads, 0, stream>>>(nnz, sorted.data(), coarse.transposed_columns.data(), entries.data());
    LSMR_CHECK(cudaGetLastError());
    coarse.col_group = std::move(groups.col);
    coarse.pattern = {groups.count, groups.count, nnz, coarse.offsets.data(), coarse.columns.data(), coarse.transposed_offsets.data(),
                      coarse.transposed_columns.data()};
    return true;
}

// Gram matrices of points on the host.
class Grams {
  public:
    Grams(std::int64_t cols, const CudaContext& context)
        : cols_(cols),
          blocks_(std::min<std::int64_t>(kGramBlocks, (cols + kTilePoints - 1) / kTilePoints)),
          context_(context),
          partial_(context, blocks_ * kPairs),
          host_(static_cast<std::size_t>(partial_.size())) {}
    void operator()(const float* points, const float* weight, double* gram) {
        gram_kernel<<<static_cast<unsigned>(blocks_), kThreads, 0, context_.stream()>>>(cols_, points, weight, partial_.data());
        LSMR_CHECK(cudaGetLastError());
        LSMR_CHECK(cudaMemcpyAsync(host_.data(), partial_.data(), host_.size() * sizeof(double), cudaMemcpyDeviceToHost, context_.stream()));
        context_.synchronize();
        std::fill(gram, gram + kPairs, 0.0);
        for (std::size_t k = 0; k < host_.size(); ++k) gram[k % kPairs] += host_[k];
    }

  private:
    std::int64_t cols_;
    std::int64_t blocks_;
    const CudaContext& context_;
    DeviceBuffer<double> partial_;
    std::vector<double> host_;
};

void transform(std::int64_t cols, const Transform& by, float* points, cudaStream_t stream) {
    transform_kernel<<<blocks_for(cols), kThreads, 0, stream>>>(cols, by, points);
    LSMR_CHECK(cudaGetLastError());
}

// Points of the columns, of which there is one at least. lengths: of the directions, after the last round. False: given up.
template <class Offset>
bool embed(const DevicePattern<Offset>& a, bool may_give_up, float* x, double* lengths, const CudaContext& context) {
    const cudaStream_t stream = context.stream();
    const bool coarsest = lsmr::detail::is_coarsest(a.cols, a.nnz);
    int rounds = coarsest ? lsmr::detail::kCoarsestRounds : lsmr::detail::kFlatRounds;
    Coarse coarse;
    DeviceBuffer<float> start;
    if (!coarsest && make_coarse(a, coarse, context)) {
        start = DeviceBuffer<float>(context, coarse.groups * kPoint);
        embed(coarse.pattern, false, start.data(), lengths, context);
        rounds = lsmr::detail::kRounds;
    }
    const std::int32_t* group = start.size() > 0 ? coarse.col_group.data() : nullptr;
    start_kernel<<<blocks_for(a.cols * kPoint), kThreads, 0, stream>>>(a.cols, lsmr::detail::longest_of_order(a.cols, a.nnz), a.transposed_offsets, group,
                                                                       start.data(), x);
    LSMR_CHECK(cudaGetLastError());
    DeviceBuffer<float> y(context, a.rows * kPoint), weight(context, a.cols);
    Grams gram_of(a.cols, context);
    for (int round = 0; round < rounds; ++round) {
        for_rows(a, Mean{x, y.data(), nullptr}, stream);
        for_columns(a, Mean{y.data(), x, weight.data()}, stream);
        double gram[kPairs];
        gram_of(x, weight.data(), gram);
        Transform by;
        lsmr::detail::orthonormalising(gram, by.t, lengths);
        if (may_give_up && round == lsmr::detail::kTrialRounds &&
            lsmr::detail::lacks_structure(lsmr::detail::mean_length(lengths), a.rows, a.cols, a.nnz))
            return false;
        transform(a.cols, by, x, stream);
        if (lsmr::detail::are_enough(round + 1, start.size() > 0, lengths)) break;
    }
    return true;
}

// Gives points the weights of their coordinates; where rows are long, after rounds with lines.
template <class Offset>
void weigh(const DevicePattern<Offset>& a, float* x, double* lengths, const CudaContext& context) {
    const cudaStream_t stream = context.stream();
    lsmr::detail::Weights weights = lsmr::detail::coordinate_weights(lengths);
    Transform by{};
    for (int c = 0; c < kPoint; ++c) by.t[c * kPoint + c] = weights.of[c];
    transform(a.cols, by, x, stream);
    if (!lsmr::detail::has_long_rows(lengths)) return;
    DeviceBuffer<float> lines(context, a.rows * kLine), weight(context, a.cols);
    Grams gram_of(a.cols, context);
    for (int round = 0; round < lsmr::detail::kLineRounds; ++round) {
        for_rows(a, Fit{x, lines.data()}, stream);
        for_columns(a, ToLines{lines.data(), x, weight.data()}, stream);
        double gram[kPairs];
        gram_of(x, weight.data(), gram);
        lsmr::detail::take_weights(weights, gram);
        lsmr::detail::orthonormalising(gram, by.t, lengths);
        const lsmr::detail::Weights after = lsmr::detail::coordinate_weights(lengths);
        lsmr::detail::take_weights(weights, after, by.t);
        transform(a.cols, by, x, stream);
        weights = after;
    }
}

// Where it is worth it, gives all columns of a run the run's mean point. The points of runs; else nothing.
DeviceBuffer<float> join_runs(std::int64_t cols, float* x, const CudaContext& context) {
    const cudaStream_t stream = context.stream();
    DeviceBuffer<float> means(context, (cols + lsmr::detail::kKeptRun - 1) / lsmr::detail::kKeptRun * kPoint);
    DeviceBuffer<double> partial(context, 2 * kScatterBlocks);
    run_kernel<<<kScatterBlocks, kThreads, 0, stream>>>(cols, x, means.data(), partial.data());
    LSMR_CHECK(cudaGetLastError());
    double host[2 * kScatterBlocks];
    LSMR_CHECK(cudaMemcpyAsync(host, partial.data(), sizeof host, cudaMemcpyDeviceToHost, stream));
    context.synchronize();
    double within = 0, all = 0;
    for (int block = 0; block < kScatterBlocks; ++block) {
        within += host[2 * block];
        all += host[2 * block + 1];
    }
    if (!(within < lsmr::detail::kRunScatter * all)) return {};
    take_means_kernel<<<blocks_for(cols), kThreads, 0, stream>>>(cols, means.data(), x);
    LSMR_CHECK(cudaGetLastError());
    return means;
}

// Places of points of kFloats floats along the halvings.
template <int kFloats>
DeviceBuffer<std::uint32_t> places(std::int64_t count, const float* points, const CudaContext& context) {
    const cudaStream_t stream = context.stream();
    DeviceBuffer<std::uint32_t> place(context, count);
    if (count == 0) return place;
    DeviceBuffer<std::int32_t> order(context, count), sorted_order(context, count);
    DeviceBuffer<std::uint64_t> keys(context, count), sorted_keys(context, count);
    DeviceBuffer<int> widest(context, count / lsmr::detail::kPiece + 1);
    std::size_t bytes = 0;
    LSMR_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys.data(), sorted_keys.data(), order.data(), sorted_order.data(), count));
    DeviceBuffer<std::byte> temporary(context, static_cast<std::int64_t>(bytes));
    iota_kernel<<<blocks_for(count), kThreads, 0, stream>>>(count, order.data());
    int piece_bits = 0;
    for (std::int64_t size = lsmr::detail::first_piece(count); size > lsmr::detail::kPiece; size /= 2, ++piece_bits) {
        const std::int64_t pieces = (count + size - 1) / size;
        widest_kernel<kFloats><<<static_cast<unsigned>((32 * pieces + kThreads - 1) / kThreads), kThreads, 0, stream>>>(count, points, size, order.data(),
                                                                                                                  widest.data());
        piece_kernel<kFloats><<<blocks_for(count), kThreads, 0, stream>>>(count, points, size, order.data(), widest.data(), keys.data());
        LSMR_CHECK(cudaGetLastError());
        LSMR_CHECK(cub::DeviceRadixSort::SortPairs(temporary.data(), bytes, keys.data(), sorted_keys.data(), order.data(), sorted_order.data(), count, 0,
                                                   32 + piece_bits, stream));
        std::swap(order, sorted_order);
    }
    place_kernel<<<blocks_for(count), kThreads, 0, stream>>>(count, order.data(), place.data());
    LSMR_CHECK(cudaGetLastError());
    return place;
}

// Lines by their places (run: of how many a place is), those without a point last.
DeviceBuffer<std::int32_t> by_place(std::int64_t lines, std::int64_t run, int floats, const float* points, const DeviceBuffer<std::uint32_t>& place,
                                    const CudaContext& context) {
    DeviceBuffer<std::int32_t> order(context, lines);
    if (lines == 0) return order;
    DeviceBuffer<std::uint64_t> keys(context, lines);
    place_key_kernel<<<blocks_for(lines), kThreads, 0, context.stream()>>>(lines, run, floats, points, place.data(), keys.data());
    LSMR_CHECK(cudaGetLastError());
    Sorter(lines, context)(lines, keys.data(), order.data());
    return order;
}

template <class Offset>
bool spectral_order(const DevicePattern<Offset>& a, bool may_give_up, DeviceOrder& order, const CudaContext& context) {
    const cudaStream_t stream = context.stream();
    DeviceBuffer<float> x(context, a.cols * kPoint), joined;
    double lengths[kPoint - 1] = {};
    if (a.cols > 0 && !embed(a, may_give_up, x.data(), lengths, context)) return false;
    const bool long_rows = lsmr::detail::has_long_rows(lengths);
    if (a.cols > 0) {
        weigh(a, x.data(), lengths, context);
        joined = join_runs(a.cols, x.data(), context);
    }
    const std::int64_t run = joined.size() > 0 ? lsmr::detail::kKeptRun : 1;
    order.col = by_place(a.cols, run, kPoint, x.data(), places<kPoint>((a.cols + run - 1) / run, run > 1 ? joined.data() : x.data(), context), context);
    DeviceBuffer<float> y(context, a.rows * (long_rows ? kLine : kPoint));
    if (long_rows) {
        for_rows(a, Fit{x.data(), y.data()}, stream);
        order.row = by_place(a.rows, 1, kLine, y.data(), places<kLine>(a.rows, y.data(), context), context);
    } else {
        for_rows(a, Mean{x.data(), y.data(), nullptr}, stream);
        order.row = by_place(a.rows, 1, kPoint, y.data(), places<kPoint>(a.rows, y.data(), context), context);
    }
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
    Sorter(a.rows, context)(a.rows, keys.data(), order.row.data());
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
