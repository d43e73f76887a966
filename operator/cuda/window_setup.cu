// What the window kernel's arrays are made of, from CSR: where each row's windows begin, how a cell's segments become slices and its slices the shares of
// warps, and the arrays themselves. At set-up, on the device.
//
// The segments of a cell are taken by their teams, widest first, and by length, longest first; so slices are narrow only where segments are short. Each
// slice goes to the warp that has the fewest steps so far. Which of the segments of one length share a slice is left to chance: it changes no sum.
#include <algorithm>
#include <cstdint>

#include "memory/cuda_check.hpp"
#include "operator/cuda/stored_values.cuh"
#include "operator/cuda/window_kernels.hpp"

namespace lsmr::cuda {
namespace {

constexpr int kRowThreads = 128;
constexpr int kCountThreads = 256;
constexpr int kFillThreads = 512;

// A segment's form: the level of its team, and the steps of its lanes. Teams below the widest have up to kSliceSteps.
struct Form {
    int level;
    int steps;
};
constexpr int kLongestSteps = (kWidestWindow + 31) / 32;
constexpr int kForms = (kTeamLevels - 1) * kSliceSteps + kLongestSteps;
__device__ Form form_of(int length) {
    int level = 0;
    while (level < kTeamLevels - 1 && ((length + (1 << level) - 1) >> level) > kSliceSteps) ++level;
    return {level, (length + (1 << level) - 1) >> level};
}
__device__ int number_of(Form form) { return form.level * kSliceSteps + form.steps - 1; }

template <class Offset>
__global__ void __launch_bounds__(kRowThreads) starts_kernel(WindowSource<Offset> source) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int windows = source.shape.windows;
    const std::int64_t warps = std::int64_t{gridDim.x} * (kRowThreads / 32);
    for (std::int64_t row = std::int64_t{blockIdx.x} * (kRowThreads / 32) + threadIdx.x / 32; row < source.rows; row += warps) {
        const Offset begin = source.offsets[row];
        const auto length = static_cast<std::int32_t>(source.offsets[row + 1] - begin);
        std::int32_t* const starts = source.starts + row * (windows + 1);
        int last = -1;  // the window of the entry before these
        for (std::int32_t first = 0; first < length; first += 32) {
            const std::int32_t k = first + lane;
            const int window = k < length ? source.columns[begin + static_cast<Offset>(k)] / source.shape.width : windows;
            int before = __shfl_up_sync(0xffffffffu, window, 1);
            if (lane == 0) before = last;
            if (k < length) {
                for (int w = before + 1; w <= window; ++w) starts[w] = k;
            }
            last = __shfl_sync(0xffffffffu, window, 31);
            if (first + 32 >= length) last = __shfl_sync(0xffffffffu, window, length - 1 - first);
        }
        for (int w = last + 1 + lane; w <= windows; w += 32) starts[w] = length;
    }
}

struct Segment {
    int first;  // entry of its row
    int length;
};
// A cell's segments, by the rows of its panel.
template <class Offset>
struct CellSegments {
    const WindowSource<Offset>& source;
    std::int32_t panel;
    std::int32_t window;
    __device__ CellSegments(const WindowSource<Offset>& of, std::int32_t number)
        : source(of), panel(number / of.shape.windows), window(number % of.shape.windows) {}
    __device__ std::int64_t row(int r) const { return window_row(source.shape.panels, panel, r); }
    __device__ Segment operator()(int r) const {
        if (row(r) >= source.rows) return {0, 0};
        const std::int32_t* starts = source.starts + row(r) * (source.shape.windows + 1) + window;
        return {starts[0], starts[1] - starts[0]};
    }
};

// How many segments of each form a cell has. All threads call it; the counts can be read after.
template <class Offset>
__device__ void count_forms(const CellSegments<Offset>& segments, int* counts) {
    for (int i = static_cast<int>(threadIdx.x); i < kForms; i += static_cast<int>(blockDim.x)) counts[i] = 0;
    __syncthreads();
    for (int r = static_cast<int>(threadIdx.x); r < segments.source.shape.panel_rows; r += static_cast<int>(blockDim.x)) {
        const int length = segments(r).length;
        if (length > 0) atomicAdd(counts + number_of(form_of(length)), 1);
    }
    __syncthreads();
}

// By one warp: the slices in turn, each to a warp. place(slice, level, steps, step, number): called by one lane for each slice; step: of its warp's
// share; number: of the share's slices. ranks: null, or what segments of a form have before them, those of the level's longer forms; may be counts.
// level_slices: null, or the first slice of each level. Returns this lane's share, which is that of the warp of the same number.
template <class Place>
__device__ WindowCount deal_slices(const int* counts, int* ranks, int* level_slices, const Place& place) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    WindowCount share{0, 0};
    int slice = 0;
    for (int level = kTeamLevels - 1; level >= 0; --level) {
        const int segments = 32 >> level;  // of a slice
        if (level_slices != nullptr && lane == 0) level_slices[level] = slice;
        int rank = 0;
        int room = 0;  // of the slice that was begun
        for (int steps = level == kTeamLevels - 1 ? kLongestSteps : kSliceSteps; steps > 0; --steps) {
            const int number = number_of({level, steps});
            int count = counts[number];
            __syncwarp();
            if (ranks != nullptr && lane == 0) ranks[number] = rank;
            rank += count;
            count -= room;
            for (; count > 0; count -= segments) {
                const unsigned least = __reduce_min_sync(0xffffffffu, static_cast<unsigned>(share.steps) << 5 | static_cast<unsigned>(lane));
                if (static_cast<int>(least & 31u) == lane) {
                    place(slice, level, steps, share.steps, share.slices);
                    share.steps += steps;
                    ++share.slices;
                }
                ++slice;
            }
            room = -count;
        }
    }
    return share;
}

template <class Offset>
__global__ void __launch_bounds__(kCountThreads) counts_kernel(WindowSource<Offset> source, WindowCount* counts) {
    __shared__ int forms[kForms];
    const std::int32_t cells = source.shape.panels * source.shape.windows;
    for (std::int32_t number = static_cast<std::int32_t>(blockIdx.x); number < cells; number += static_cast<std::int32_t>(gridDim.x)) {
        count_forms(CellSegments<Offset>(source, number), forms);
        if (threadIdx.x < 32) {
            counts[std::int64_t{number} * kWindowWarps + threadIdx.x] = deal_slices(forms, nullptr, nullptr, [](int, int, int, int, int) {});
        }
        __syncthreads();
    }
}

// Where the row of a lane of a slice lies.
__device__ std::int64_t row_place(std::int64_t slot, int lane) { return (slot / 4 * 32 + lane) * 4 + slot % 4; }

template <class V, class T, class Offset>
__global__ void __launch_bounds__(kFillThreads)
    fill_kernel(WindowSource<Offset> source, std::int32_t cells, const std::int32_t* numbers, const WindowShare* shares, const T* from, V* values,
                std::uint16_t* columns, std::uint16_t* rows_of, std::int32_t* slots, std::int32_t* slice_forms) {
    static_assert(kWindowWarps == 32);
    __shared__ int forms[kForms];
    __shared__ int level_slices[kTeamLevels];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x); i < cells; i += static_cast<std::int32_t>(gridDim.x)) {
        const CellSegments<Offset> segments(source, numbers[i]);
        const WindowShare* const cell_shares = shares + std::int64_t{i} * kWindowWarps;
        const std::int64_t first_slot = std::int64_t{4} * cell_shares[0].row_group;
        count_forms(segments, forms);
        if (threadIdx.x < 32) {
            const std::int32_t own = 4 * cell_shares[lane].row_group;
            deal_slices(forms, forms, level_slices, [&](int slice, int level, int steps, int, int number) {
                slots[first_slot + slice] = own + number;
                slice_forms[own + number] = level << 16 | steps;
            });
        }
        __syncthreads();
        // Each segment to its lanes.
        for (int r = static_cast<int>(threadIdx.x); r < source.shape.panel_rows; r += kFillThreads) {
            const int length = segments(r).length;
            if (length == 0) continue;
            const Form form = form_of(length);
            const int rank = atomicAdd(forms + number_of(form), 1);
            const int side_by_side = 32 >> form.level;
            const std::int64_t slot = slots[first_slot + level_slices[form.level] + rank / side_by_side];
            rows_of[row_place(slot, rank % side_by_side << form.level)] = static_cast<std::uint16_t>(r);
        }
        __syncthreads();
        // Share by share, as they will be read.
        for (int w = static_cast<int>(threadIdx.x) / 32; w < kWindowWarps; w += kFillThreads / 32) {
            const WindowShare share = cell_shares[w];
            std::int64_t slot = std::int64_t{4} * share.row_group;
            uint2* const to_columns = reinterpret_cast<uint2*>(columns) + std::int64_t{32} * share.group + lane;
            std::uint32_t pair[2] = {0, 0};
            for (int step = 0; step < share.steps; ++slot) {
                const int level = slice_forms[slot] >> 16;
                const int steps = slice_forms[slot] & 0xffff;
                const int in_team = lane & ((1 << level) - 1);
                const int row = rows_of[row_place(slot, lane - in_team)];
                Segment segment{0, 0};
                std::int64_t begin = 0;
                if (row != kNoSegment) {
                    segment = segments(row);
                    begin = static_cast<std::int64_t>(source.offsets[segments.row(row)]) + segment.first;
                }
                for (int s = 0; s < steps; ++s, ++step) {
                    const int k = (s << level) + in_team;
                    const bool exists = k < segment.length;
                    std::uint32_t column = static_cast<std::uint32_t>(source.shape.width);
                    if (exists) column = static_cast<std::uint32_t>(source.columns[begin + k] - segments.window * source.shape.width);
                    if (s + 1 == steps && in_team == 0) column |= kSliceEnd;
                    values[std::int64_t{32} * (share.step + step) + lane] = exists ? narrowed<V>(from[begin + k]) : V{};
                    if (step % 2 == 0) pair[step / 2 % 2] = column;
                    else pair[step / 2 % 2] |= column << 16;
                    if (step % 4 == 3) to_columns[32 * (step / 4)] = make_uint2(pair[0], pair[1]);
                }
            }
            if (share.steps % 4 == 0) continue;
            // The rest of the last group.
            const auto padding = static_cast<std::uint32_t>(source.shape.width);
            for (int step = share.steps; step % 4 != 0; ++step) {
                if (step % 2 == 0) pair[step / 2 % 2] = padding;
                else pair[step / 2 % 2] |= padding << 16;
            }
            to_columns[32 * (share.steps / 4)] = make_uint2(pair[0], pair[1]);
        }
        __syncthreads();
    }
}

unsigned blocks_for(std::int64_t n) { return static_cast<unsigned>(std::clamp<std::int64_t>(n, 1, 1 << 20)); }

}  // namespace

template <class Offset>
void launch_window_starts(const WindowSource<Offset>& source, cudaStream_t stream) {
    if (source.rows == 0) return;
    starts_kernel<<<blocks_for((source.rows + 3) / 4), kRowThreads, 0, stream>>>(source);
    LSMR_CHECK(cudaGetLastError());
}

template <class Offset>
void launch_window_counts(const WindowSource<Offset>& source, WindowCount* counts, cudaStream_t stream) {
    counts_kernel<<<blocks_for(std::int64_t{source.shape.panels} * source.shape.windows), kCountThreads, 0, stream>>>(source, counts);
    LSMR_CHECK(cudaGetLastError());
}

template <class V, class T, class Offset>
void launch_window_fill(const WindowSource<Offset>& source, std::int32_t cells, const std::int32_t* numbers, const WindowShare* shares, const T* from,
                        V* values, std::uint16_t* columns, std::uint16_t* rows_of, std::int32_t* slots, std::int32_t* slice_forms, cudaStream_t stream) {
    if (cells == 0) return;
    fill_kernel<<<blocks_for(cells), kFillThreads, 0, stream>>>(source, cells, numbers, shares, from, values, columns, rows_of, slots, slice_forms);
    LSMR_CHECK(cudaGetLastError());
}

#define LSMR_INSTANTIATE_FILL(V, T, Offset)                                                                                                        \
    template void launch_window_fill(const WindowSource<Offset>&, std::int32_t, const std::int32_t*, const WindowShare*, const T*, V*, std::uint16_t*, \
                                     std::uint16_t*, std::int32_t*, std::int32_t*, cudaStream_t);
#define LSMR_INSTANTIATE(Offset)                                                                              \
    template void launch_window_starts(const WindowSource<Offset>&, cudaStream_t);                            \
    template void launch_window_counts(const WindowSource<Offset>&, WindowCount*, cudaStream_t);              \
    LSMR_INSTANTIATE_FILL(double, double, Offset)                                                             \
    LSMR_INSTANTIATE_FILL(float, double, Offset)                                                              \
    LSMR_INSTANTIATE_FILL(Bf16, double, Offset)                                                               \
    LSMR_INSTANTIATE_FILL(float, float, Offset)                                                               \
    LSMR_INSTANTIATE_FILL(Bf16, float, Offset)
LSMR_INSTANTIATE(std::int32_t)
LSMR_INSTANTIATE(std::int64_t)
#undef LSMR_INSTANTIATE
#undef LSMR_INSTANTIATE_FILL

}  // namespace lsmr::cuda
