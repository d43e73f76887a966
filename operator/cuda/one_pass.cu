#include "operator/cuda/one_pass_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "memory/cuda_check.hpp"
#include "operator/cuda/block_sum.cuh"
#include "operator/cuda/dependent_launch.cuh"
#include "operator/cuda/shared_memory.hpp"
#include "operator/cuda/stored_values.cuh"

namespace lsmr::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kRefillThreads = 128;
constexpr int kRefillRow = 64;  // entries of a row that one word has a bit for

// Row of a lane of a slice; beyond the last row: none. Lanes by fours have neighbouring rows, which are a sector of y in fp64; the fours lie an
// eighth of the rows apart, so that rows of a slice have little in common where neighbours have much.
constexpr int kNearRows = 4;
__device__ inline std::uint32_t slice_row(std::int32_t slices, std::int32_t slice, int lane) {
    const auto near = static_cast<std::uint32_t>(kNearRows);
    return static_cast<std::uint32_t>(lane) / near * near * static_cast<std::uint32_t>(slices) + static_cast<std::uint32_t>(slice) * near +
           static_cast<std::uint32_t>(lane) % near;
}

// Where the value of a step of a group lies, as OnePassMatrix has it.
template <class V>
__device__ std::int64_t value_place(std::int64_t group, int lane, int step) {
    if constexpr (sizeof(V) == 8) return ((group * 2 + step / 2) * kSliceRows + lane) * 2 + step % 2;
    else return (group * kSliceRows + lane) * kGroupSteps + step;
}

// --- placing ---

// A warp places the entries of a slice, step by step, and in a step lane by lane: all threads look at the entries that this lane has left, and take
//   one whose column must come now, since it occurs as often as there are batches left, then
//   one whose column occurs again, since those that do not find a place easily later, then any;
// and of several one whose bank no lane before has in this step. Columns of this batch are not taken. Nothing depends on timing.
// kWrite: the places are written; else only counted.
template <bool kWrite, class V, class X, class Offset>
__global__ void __launch_bounds__(kSliceRows)
    place_kernel(std::uint32_t rows, std::int32_t cols, std::int32_t slices, int batch, std::int32_t room, const Offset* __restrict__ offsets,
                 const std::int32_t* __restrict__ columns, const X* __restrict__ values, std::int32_t* group_counts,
                 const std::int32_t* __restrict__ first_groups, std::uint16_t* placed_columns, V* placed_values) {
    extern __shared__ std::uint32_t lists[];
    constexpr int kBanks = 128 / static_cast<int>(sizeof(X));  // of one access; values of 8 bytes are served half a warp at a time
    std::uint32_t* const columns_state = lists;                // of each column: entries left << 16 | 1 + batch of the last one placed
    std::uint32_t* const left_entries = lists + cols;          // of each lane `room`: entry of the row << 16 | column
    const int lane = static_cast<int>(threadIdx.x);
    for (std::int32_t j = lane; j < cols; j += kSliceRows) columns_state[j] = 0;
    __syncwarp();
    for (std::int32_t slice = static_cast<std::int32_t>(blockIdx.x); slice < slices; slice += static_cast<std::int32_t>(gridDim.x)) {
        const std::uint32_t row = slice_row(slices, slice, lane);
        const Offset begin = row < rows ? offsets[row] : Offset(0);
        const int length = row < rows ? static_cast<int>(offsets[row + 1] - begin) : 0;
        int left = length;
        int longest = length;
        for (int d = 16; d > 0; d /= 2) longest = max(longest, __shfl_xor_sync(kAll, longest, d));
        for (int k = 0; k < length; ++k) {
            const auto column = static_cast<std::uint32_t>(columns[begin + k]);
            left_entries[lane * room + k] = static_cast<std::uint32_t>(k) << 16 | column;
            atomicAdd(columns_state + column, 1u << 16);
        }
        __syncwarp();
        const int least_batches = (longest + batch - 1) / batch;
        const auto write = [&](int step, std::uint16_t column, V value) {
            const std::int64_t group = first_groups[slice] + step / kGroupSteps;
            const int k = step % kGroupSteps;
            placed_columns[(group * kSliceRows + lane) * kGroupSteps + k] = column;
            placed_values[value_place<V>(group, lane, k)] = value;
        };
        int step = 0;
        for (; __ballot_sync(kAll, left > 0) != 0; ++step) {
            const int its_batch = step / batch;
            const int batches_left = max(least_batches - its_batch, 1);
            std::uint32_t taken_banks = 0;
            auto my_column = static_cast<std::uint16_t>(cols + lane);
            V my_value{};
            for (int l = 0; l < kSliceRows; ++l) {
                if (l % kBanks == 0) taken_banks = 0;
                const int its_left = __shfl_sync(kAll, left, l);
                int place = -1;  // in its list
                std::uint32_t entry = 0;
                for (int first = 0; first < its_left && place < 0; first += kSliceRows) {
                    const int k = first + lane;
                    std::uint32_t candidate = 0;
                    bool possible = false, again = false, urgent = false, own_bank = false;
                    if (k < its_left) {
                        candidate = left_entries[l * room + k];
                        const std::uint32_t state = columns_state[candidate & 0xffffu];
                        const int more = static_cast<int>(state >> 16);
                        possible = (state & 0xffffu) != static_cast<std::uint32_t>(its_batch + 1);
                        again = possible && more > 1;
                        urgent = again && more >= batches_left;
                        own_bank = possible && (taken_banks >> (candidate & (kBanks - 1)) & 1u) == 0;
                    }
                    unsigned best = __ballot_sync(kAll, urgent && own_bank);
                    if (best == 0) best = __ballot_sync(kAll, urgent);
                    if (best == 0) best = __ballot_sync(kAll, again && own_bank);
                    if (best == 0) best = __ballot_sync(kAll, own_bank);
                    if (best == 0) best = __ballot_sync(kAll, again);
                    if (best == 0) best = __ballot_sync(kAll, possible);
                    if (best == 0) continue;
                    const int winner = __ffs(static_cast<int>(best)) - 1;
                    entry = __shfl_sync(kAll, candidate, winner);
                    place = first + winner;
                }
                if (place < 0) continue;
                const std::uint32_t column = entry & 0xffffu;
                taken_banks |= 1u << (column & (kBanks - 1));
                __syncwarp();  // all have read
                if (lane == l) {
                    columns_state[column] = ((columns_state[column] >> 16) - 1) << 16 | static_cast<std::uint32_t>(its_batch + 1);
                    left_entries[l * room + place] = left_entries[l * room + its_left - 1];
                    --left;
                    my_column = static_cast<std::uint16_t>(column);
                    if constexpr (kWrite) my_value = narrowed<V>(values[begin + static_cast<Offset>(entry >> 16)]);
                }
                __syncwarp();
            }
            if constexpr (kWrite) write(step, my_column, my_value);
        }
        if constexpr (kWrite) {
            for (; step % kGroupSteps != 0; ++step) write(step, static_cast<std::uint16_t>(cols + lane), V{});
        } else {
            if (lane == 0) group_counts[slice] = (step + kGroupSteps - 1) / kGroupSteps;
        }
        for (int k = 0; k < length; ++k) columns_state[columns[begin + k]] = 0;
        __syncwarp();
    }
}

// A warp has a slice, a lane a row, and looks each of its places up in the row: every entry must be found, and once. *misfits: rows where that is not so, or
// where a value is not one of V.
template <class V, class X, class Offset>
__global__ void __launch_bounds__(kRefillThreads)
    refill_kernel(std::uint32_t rows, std::int32_t cols, std::int32_t slices, const std::int32_t* __restrict__ first_groups,
                  const std::uint16_t* __restrict__ placed_columns, const Offset* __restrict__ offsets, const std::int32_t* __restrict__ columns,
                  const X* __restrict__ values, V* __restrict__ placed_values, unsigned* misfits) {
    const int lane = static_cast<int>(threadIdx.x) % kSliceRows;
    const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x) * (kRefillThreads / kSliceRows) + static_cast<std::int32_t>(threadIdx.x) / kSliceRows;
    if (slice >= slices) return;
    const std::uint32_t row = slice_row(slices, slice, lane);
    const Offset begin = row < rows ? offsets[row] : Offset(0);
    const auto length = row < rows ? static_cast<std::int64_t>(offsets[row + 1] - begin) : 0;
    bool fits = length <= kRefillRow;
    std::uint64_t found = 0;  // a bit for each entry of the row
    for (std::int64_t group = first_groups[slice]; fits && group < first_groups[slice + 1]; ++group) {
        for (int step = 0; step < kGroupSteps; ++step) {
            const std::int32_t column = placed_columns[(group * kSliceRows + lane) * kGroupSteps + step];
            if (column >= cols) continue;  // a place without an entry
            std::uint64_t here = 0;
            for (int k = 0; k < static_cast<int>(length); ++k) here |= static_cast<std::uint64_t>(columns[begin + k] == column) << k;
            fits = fits && __popcll(here) == 1 && (found & here) == 0;
            if (!fits) break;
            found |= here;
            const X value = values[begin + (__ffsll(static_cast<long long>(here)) - 1)];
            const V stored = narrowed<V>(value);
            fits = widened<X>(stored) == value;
            placed_values[value_place<V>(group, lane, step)] = stored;
        }
    }
    if (!fits || __popcll(found) != length) atomicAdd(misfits, 1u);
}

// --- the pass ---

template <class V>
struct Group {
    uint2 columns;
    std::conditional_t<sizeof(V) == 8, double2[2], float4[1]> values;

    __device__ void load(const OnePassMatrix<V>& matrix, std::int64_t group, int lane) {
        using Word = std::remove_reference_t<decltype(values[0])>;
        constexpr int kWords = sizeof(V) == 8 ? 2 : 1;
        columns = __ldcs(reinterpret_cast<const uint2*>(matrix.columns) + group * kSliceRows + lane);
#pragma unroll
        for (int w = 0; w < kWords; ++w) values[w] = __ldcs(reinterpret_cast<const Word*>(matrix.values) + (group * kWords + w) * kSliceRows + lane);
    }
    __device__ int column(int k) const {
        const unsigned both = k < 2 ? columns.x : columns.y;
        return static_cast<int>(k % 2 == 0 ? both & 0xffffu : both >> 16);
    }
    __device__ V value(int k) const {
        if constexpr (sizeof(V) == 8) {
            return k % 2 == 0 ? values[k / 2].x : values[k / 2].y;
        } else {
            return k == 0 ? values[0].x : k == 1 ? values[0].y : k == 2 ? values[0].z : values[0].w;
        }
    }
};

template <class V, class X>
__device__ X add_group(const Group<V>& group, const X* x, X sum) {
#pragma unroll
    for (int k = 0; k < kGroupSteps; ++k) sum += widened<X>(group.value(k)) * x[group.column(k)];
    return sum;
}
// All lanes; the columns of kBatch steps differ, but for those of a lane's places without entries.
template <int kBatch, class V, class X>
__device__ void scatter_group(const Group<V>& group, X* z, X y) {
#pragma unroll
    for (int first = 0; first < kGroupSteps; first += kBatch) {
        X sums[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) sums[k] = z[group.column(first + k)];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) sums[k] += widened<X>(group.value(first + k)) * y;
#pragma unroll
        for (int k = 0; k < kBatch; ++k) z[group.column(first + k)] = sums[k];
        __syncwarp();
    }
}

// Barriers of shared memory by which the warps of a team hand their sums on: 32 arrivals end a phase. Each lane arrives for what it wrote itself, as
// racecheck has it; one lane for all, after a __syncwarp(), is no faster.
__device__ inline std::uint32_t shared_address(const void* p) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(p)); }
__device__ inline void gate_init(std::uint64_t* gate) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(shared_address(gate)) : "memory");
}
__device__ inline void gate_open(std::uint64_t* gate) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(gate)) : "memory");
}
__device__ inline void gate_wait(std::uint64_t* gate, std::uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred open;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 open, [%0], %1;\n"
        "@!open bra again;\n"
        "}" ::"r"(shared_address(gate)),
        "r"(parity)
        : "memory");
}

constexpr int kPassThreads = 512;
constexpr int kHeldGroups = 4;  // of a slice in registers; more are read again, from the caches
// Elements between two panels, sums of z: n and the lanes' places without entries, in whole cache lines.
__host__ __device__ constexpr int panel_stride(int cols) { return (cols + kSliceRows + 31) / 32 * 32; }

// A slice on its way: its first groups, and y of the lane's row.
template <class V, class X>
struct Slice {
    X y;
    std::int32_t first;
    std::int32_t count;
    Group<V> held[kHeldGroups];
};

// old: what y is before, in the adjoint pass y itself.
template <Pass kPass, int kBatch, class V, class X>
__global__ void __launch_bounds__(kPassThreads, 1)
    one_pass_kernel(OnePassMatrix<V> matrix, int panels, int team, const X* a_pointer, const X* x, const X* b_pointer, const X* old, X* y, X* block_sums, double* partials) {
    extern __shared__ __align__(16) std::byte shared[];
    __shared__ double sum_scratch[32];
    __shared__ std::uint64_t gates[kPassThreads / 32];  // of each warp: its panel is free
    const int stride = panel_stride(matrix.cols);
    X* const near_x = reinterpret_cast<X*>(shared);
    X* const near_z = near_x + stride;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int warps = static_cast<int>(blockDim.x) / 32;
    const std::int32_t step = static_cast<std::int32_t>(gridDim.x) * warps;
    std::int32_t turn = static_cast<std::int32_t>(blockIdx.x) * warps + warp;

    // Where the slice of the turn after next lies, so that no turn waits for that.
    std::int32_t next_first = 0;
    std::int32_t next_end = 0;
    const auto look_up = [&](std::int32_t slice) {
        next_first = slice < matrix.slices ? matrix.first_groups[slice] : 0;
        next_end = slice < matrix.slices ? matrix.first_groups[slice + 1] : 0;
    };
    const auto fetch_entries = [&](Slice<V, X>& slice, std::int32_t turn_after) {
        slice.first = next_first;
        slice.count = next_end - next_first;
#pragma unroll
        for (int g = 0; g < kHeldGroups; ++g) {
            if (g < slice.count) slice.held[g].load(matrix, slice.first + g, lane);
        }
        look_up(turn_after);
    };
    Slice<V, X> slice;
    look_up(turn);
    fetch_entries(slice, turn + step);
    for (int j = static_cast<int>(threadIdx.x); j < panels * stride && kPass != Pass::forward; j += static_cast<int>(blockDim.x)) near_z[j] = X(0);
    if (threadIdx.x == 0) {
        for (int w = 0; w < warps; ++w) gate_init(gates + w);
    }
    // What is begun by now is of the matrix, which no kernel of an iteration writes.
    await_previous();
    admit_next();
    if constexpr (kPass != Pass::adjoint) {
        for (int j = static_cast<int>(threadIdx.x); j < stride; j += static_cast<int>(blockDim.x)) near_x[j] = j < matrix.cols ? x[j] : X(0);
    }
    __syncthreads();
    // Warp w has place w / panels in the team of panel w % panels.
    X* const z = near_z + warp % panels * stride;
    const int place = warp / panels;
    std::uint64_t* const next_gate = gates + (place + 1 < team ? warp + panels : warp % panels);
    X a = 0;
    X b = 1;
    if constexpr (kPass != Pass::adjoint) {
        a = *a_pointer;
        b = *b_pointer;
    }
    const auto has_row = [&](std::int32_t slice) { return slice < matrix.slices && slice_row(matrix.slices, slice, lane) < matrix.rows; };
    const auto fetch_y = [&](Slice<V, X>& of, std::int32_t slice) {
        of.y = b != X(0) && has_row(slice) ? old[slice_row(matrix.slices, slice, lane)] : X(0);
    };
    fetch_y(slice, turn);
    double squares = 0;
    // Slice `now`, while `next` comes.
    const auto take_turn = [&](Slice<V, X>& now, Slice<V, X>& next, std::uint32_t round) {
        fetch_entries(next, turn + 2 * step);
        fetch_y(next, turn + step);
        X value = now.y;
        if constexpr (kPass != Pass::adjoint) {
            X sum = 0;
#pragma unroll
            for (int g = 0; g < kHeldGroups; ++g) {
                if (g < now.count) sum = add_group(now.held[g], near_x, sum);
            }
#pragma unroll 1
            for (int g = kHeldGroups; g < now.count; ++g) {
                Group<V> more;
                more.load(matrix, now.first + g, lane);
                sum = add_group(more, near_x, sum);
            }
            value = b != X(0) ? a * sum + b * now.y : a * sum;
            if (has_row(turn)) {
                y[slice_row(matrix.slices, turn, lane)] = value;
                squares += static_cast<double>(value) * static_cast<double>(value);
            }
        }
        if constexpr (kPass != Pass::forward) {
            // The first of a team waits for the last one's turn before.
            if (team > 1 && (place > 0 || round > 0)) gate_wait(gates + warp, (place > 0 ? round : round - 1) & 1u);
#pragma unroll
            for (int g = 0; g < kHeldGroups; ++g) {
                if (g < now.count) scatter_group<kBatch>(now.held[g], z, value);
            }
#pragma unroll 1
            for (int g = kHeldGroups; g < now.count; ++g) {
                Group<V> more;
                more.load(matrix, now.first + g, lane);
                scatter_group<kBatch>(more, z, value);
            }
            if (team > 1) gate_open(next_gate);
        }
        turn += step;
    };
    // All warps take as many turns, the last perhaps without a slice, so that gates are opened as often as they are waited for. Two by two: what
    // is fetched stays in the registers that it came to.
    const std::uint32_t rounds = (static_cast<std::uint32_t>(matrix.slices) + static_cast<std::uint32_t>(step) - 1) / static_cast<std::uint32_t>(step);
    Slice<V, X> other;
    for (std::uint32_t round = 0; round < rounds; round += 2) {
        take_turn(slice, other, round);
        if (round + 1 < rounds) take_turn(other, slice, round + 1);
    }
    if (kPass != Pass::adjoint && partials != nullptr) {
        const double total = block_sum(squares, sum_scratch);
        if (threadIdx.x == 0) partials[blockIdx.x] = total;
    }
    if constexpr (kPass != Pass::forward) {
        __syncthreads();
        X* const sums = block_sums + static_cast<std::int64_t>(blockIdx.x) * matrix.cols;
        for (int j = static_cast<int>(threadIdx.x); j < matrix.cols; j += static_cast<int>(blockDim.x)) {
            X sum = 0;
            for (int p = 0; p < panels; ++p) sum += near_z[p * stride + j];
            sums[j] = sum;
        }
    }
}

constexpr int kAddColumns = 32;  // of a block, a lane each
constexpr int kAddWarps = 16;    // which share the blocks' sums

template <class X>
__global__ void __launch_bounds__(kAddColumns * kAddWarps)
    add_columns_kernel(std::int64_t cols, int blocks, const X* block_sums, const X* a_pointer, const X* b_pointer, X* x, double* partials) {
    __shared__ double parts[kAddWarps][kAddColumns];
    const int lane = static_cast<int>(threadIdx.x) % kAddColumns;
    const int warp = static_cast<int>(threadIdx.x) / kAddColumns;
    const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kAddColumns + lane;
    await_previous();
    admit_next();
    double part = 0;
    if (j < cols) {
#pragma unroll 4
        for (int k = warp; k < blocks; k += kAddWarps) part += static_cast<double>(block_sums[k * cols + j]);
    }
    parts[warp][lane] = part;
    __syncthreads();
    if (warp != 0) return;
    double squares = 0;
    if (j < cols) {
        double sum = 0;
        for (int w = 0; w < kAddWarps; ++w) sum += parts[w][lane];
        const X a = *a_pointer;
        const X b = *b_pointer;
        const X value = b != X(0) ? a * static_cast<X>(sum) + b * x[j] : a * static_cast<X>(sum);
        x[j] = value;
        squares = static_cast<double>(value) * static_cast<double>(value);
    }
    if (partials == nullptr) return;
    for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(kAll, squares, d);
    if (lane == 0) partials[blockIdx.x] = squares;
}

template <bool kWrite, class V, class X, class Offset>
void launch_place(std::int64_t rows, std::int32_t cols, std::int32_t slices, int batch, std::int64_t longest_row, const Offset* offsets, const std::int32_t* columns,
                  const X* values, std::int32_t* group_counts, const std::int32_t* first_groups, std::uint16_t* placed_columns, V* placed_values,
                  int multiprocessors, cudaStream_t stream) {
    if (slices == 0) return;
    const auto kernel = place_kernel<kWrite, V, X, Offset>;
    const std::int64_t bytes = placing_bytes(cols, longest_row);
    allow_shared(reinterpret_cast<const void*>(kernel), static_cast<int>(bytes));
    int resident = 0;
    LSMR_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kSliceRows, static_cast<std::size_t>(bytes)));
    const int blocks = std::min(slices, std::max(resident, 1) * multiprocessors);
    kernel<<<static_cast<unsigned>(blocks), kSliceRows, static_cast<std::size_t>(bytes), stream>>>(
        static_cast<std::uint32_t>(rows), cols, slices, batch, static_cast<std::int32_t>(longest_row), offsets, columns, values, group_counts, first_groups, placed_columns, placed_values);
    LSMR_CHECK(cudaGetLastError());
}

}  // namespace

std::int64_t placing_bytes(std::int64_t cols, std::int64_t longest_row) {
    return static_cast<std::int64_t>(sizeof(std::uint32_t)) * (cols + kSliceRows * longest_row);
}

template <class X, class Offset>
void launch_count_groups(std::int64_t rows, std::int32_t cols, std::int32_t slices, int batch, std::int64_t longest_row, const Offset* offsets, const std::int32_t* columns,
                         std::int32_t* group_counts, int multiprocessors, cudaStream_t stream) {
    launch_place<false, X, X, Offset>(rows, cols, slices, batch, longest_row, offsets, columns, nullptr, group_counts, nullptr, nullptr, nullptr, multiprocessors,
                                      stream);
}

template <class V, class X, class Offset>
void launch_place_entries(const OnePassMatrix<V>& matrix, int batch, std::int64_t longest_row, const Offset* offsets, const std::int32_t* columns, const X* values,
                          std::uint16_t* placed_columns, V* placed_values, int multiprocessors, cudaStream_t stream) {
    launch_place<true, V, X, Offset>(std::int64_t{matrix.rows}, matrix.cols, matrix.slices, batch, longest_row, offsets, columns, values, nullptr, matrix.first_groups,
                                     placed_columns, placed_values, multiprocessors, stream);
}

template <class V, class X, class Offset>
void launch_refill(const OnePassMatrix<V>& matrix, const Offset* offsets, const std::int32_t* columns, const X* values, V* placed_values, unsigned* misfits,
                   cudaStream_t stream) {
    LSMR_CHECK(cudaMemsetAsync(misfits, 0, sizeof(unsigned), stream));
    if (matrix.slices == 0) return;
    constexpr int kSlices = kRefillThreads / kSliceRows;
    refill_kernel<V, X, Offset><<<static_cast<unsigned>((matrix.slices + kSlices - 1) / kSlices), kRefillThreads, 0, stream>>>(
        matrix.rows, matrix.cols, matrix.slices, matrix.first_groups, matrix.columns, offsets, columns, values, placed_values, misfits);
    LSMR_CHECK(cudaGetLastError());
}

OnePassLaunch choose_one_pass_launch(std::int64_t cols, std::int32_t slices, int vector_bytes, int multiprocessors, std::int64_t shared_bytes) {
    OnePassLaunch launch;
    constexpr std::int64_t kOfTheKernel = 1024;
    launch.most_shared_bytes = shared_bytes - kOfTheKernel;
    const std::int64_t panel = static_cast<std::int64_t>(panel_stride(static_cast<int>(cols))) * vector_bytes;
    // What shared memory leaves of the 256 KiB is L1, through which the entries come: loads in flight need some. More than 8 panels gain nothing.
    constexpr std::int64_t kForLoads = 32 * 1024;
    constexpr int kMostWarps = kPassThreads / 32;
    const std::int64_t most = (shared_bytes - kForLoads) / panel - 1;
    for (const int panels : {8, 5, 4, 3, 2}) {
        if (panels > most) continue;
        launch.panels = panels;
        break;
    }
    if (launch.panels == 0) return launch;
    launch.team = kMostWarps / launch.panels;
    // Where panels are few their turns are what takes the time, and larger batches shorten them; where columns are few, rows share more of them.
    launch.batch = launch.panels >= 8 ? 1 : launch.panels >= 4 ? 2 : 4;
    launch.blocks = std::clamp((slices + launch.warps() - 1) / launch.warps(), 1, multiprocessors);
    launch.column_blocks = static_cast<int>(std::max<std::int64_t>((cols + kAddColumns - 1) / kAddColumns, 1));
    return launch;
}

namespace {

template <Pass kPass, int kBatch, class V, class X>
void launch_pass_in_batches(const OnePassLaunch& launch, const OnePassMatrix<V>& matrix, const X* a, const X* x, const X* b, const X* old, X* y, X* block_sums,
                 double* partials, cudaStream_t stream) {
    const auto kernel = one_pass_kernel<kPass, kBatch, V, X>;
    const std::size_t bytes = static_cast<std::size_t>(panel_stride(matrix.cols)) * static_cast<std::size_t>(launch.panels + 1) * sizeof(X);
    // The same value from every operator, so that threads may launch side by side.
    LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(launch.most_shared_bytes)));
    launch_dependent(kernel, launch.blocks, 32 * launch.warps(), bytes, stream, matrix, launch.panels, launch.team, a, x, b, old, y, block_sums, partials);
}
template <Pass kPass, class V, class X, class... Arguments>
void launch_pass(const OnePassLaunch& launch, Arguments... arguments) {
    if (launch.batch == 1) launch_pass_in_batches<kPass, 1, V, X>(launch, arguments...);
    else if (launch.batch == 2) launch_pass_in_batches<kPass, 2, V, X>(launch, arguments...);
    else launch_pass_in_batches<kPass, 4, V, X>(launch, arguments...);
}

}  // namespace

template <class V, class X>
void launch_one_pass(const OnePassLaunch& launch, Pass pass, const OnePassMatrix<V>& matrix, Scalar<X> a, const X* x, Scalar<X> b, X* y, X* block_sums,
                     double* partials, cudaStream_t stream) {
    if (pass == Pass::forward) launch_pass<Pass::forward, V, X>(launch, matrix, a.narrow, x, b.narrow, static_cast<const X*>(y), y, static_cast<X*>(nullptr), partials, stream);
    else launch_pass<Pass::both, V, X>(launch, matrix, a.narrow, x, b.narrow, static_cast<const X*>(y), y, block_sums, partials, stream);
}
template <class V, class X>
void launch_one_pass_adjoint(const OnePassLaunch& launch, const OnePassMatrix<V>& matrix, const X* y, X* block_sums, cudaStream_t stream) {
    launch_pass<Pass::adjoint, V, X>(launch, matrix, nullptr, nullptr, nullptr, y, nullptr, block_sums, nullptr, stream);
}
template <class X>
void launch_add_columns(const OnePassLaunch& launch, std::int64_t cols, const X* block_sums, Scalar<X> a, Scalar<X> b, X* x, double* partials,
                        cudaStream_t stream) {
    launch_dependent(add_columns_kernel<X>, launch.column_blocks, kAddColumns * kAddWarps, 0, stream, cols, launch.blocks, block_sums, a.narrow, b.narrow, x,
                     partials);
}

#define LSMR_INSTANTIATE_OFFSET(V, X, Offset)                                                                                                          \
    template void launch_place_entries<V, X, Offset>(const OnePassMatrix<V>&, int, std::int64_t, const Offset*, const std::int32_t*, const X*,              \
                                                     std::uint16_t*, V*, int, cudaStream_t);                                                           \
    template void launch_refill<V, X, Offset>(const OnePassMatrix<V>&, const Offset*, const std::int32_t*, const X*, V*, unsigned*, cudaStream_t);
#define LSMR_INSTANTIATE(V, X)                                                                                                                         \
    LSMR_INSTANTIATE_OFFSET(V, X, std::int32_t)                                                                                                        \
    LSMR_INSTANTIATE_OFFSET(V, X, std::int64_t)                                                                                                        \
    template void launch_one_pass<V, X>(const OnePassLaunch&, Pass, const OnePassMatrix<V>&, Scalar<X>, const X*, Scalar<X>, X*, X*, double*,          \
                                        cudaStream_t);                                                                                                 \
    template void launch_one_pass_adjoint<V, X>(const OnePassLaunch&, const OnePassMatrix<V>&, const X*, X*, cudaStream_t);
#define LSMR_INSTANTIATE_VECTOR(X)                                                                                                                     \
    template void launch_count_groups<X, std::int32_t>(std::int64_t, std::int32_t, std::int32_t, int, std::int64_t, const std::int32_t*,                    \
                                                       const std::int32_t*, std::int32_t*, int, cudaStream_t);                                         \
    template void launch_count_groups<X, std::int64_t>(std::int64_t, std::int32_t, std::int32_t, int, std::int64_t, const std::int64_t*,                    \
                                                       const std::int32_t*, std::int32_t*, int, cudaStream_t);                                         \
    template void launch_add_columns<X>(const OnePassLaunch&, std::int64_t, const X*, Scalar<X>, Scalar<X>, X*, double*, cudaStream_t);
LSMR_INSTANTIATE(double, double)
LSMR_INSTANTIATE(float, double)
LSMR_INSTANTIATE(float, float)
LSMR_INSTANTIATE_VECTOR(double)
LSMR_INSTANTIATE_VECTOR(float)
#undef LSMR_INSTANTIATE_VECTOR
#undef LSMR_INSTANTIATE
#undef LSMR_INSTANTIATE_OFFSET

}  // namespace lsmr::cuda
