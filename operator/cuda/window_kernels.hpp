// Launchers of the window kernel: y <- a A x + b y where x goes through shared memory, window by window; and of what makes its arrays from CSR. Raw device
// pointers, a stream; they never allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "operator/cuda/bf16.hpp"
#include "operator/cuda/window_plan.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

// Warps of a block of the window kernel, and so of a cell's shares.
inline constexpr int kWindowWarps = 32;

// The matrix in device memory. V: stored values, double, float or Bf16.
template <class V>
struct WindowMatrix {
    WindowShape shape;
    std::int64_t rows = 0;
    bool direct = false;
    const WindowCell* cells = nullptr;
    const WindowShare* shares = nullptr;        // kWindowWarps a cell
    const std::int32_t* block_first = nullptr;  // blocks + 1 cells
    const V* values = nullptr;
    const std::uint16_t* columns = nullptr;
    const std::uint16_t* rows_of = nullptr;     // of each slice's lanes: a row of the panel, or kNoSegment; readable for kRowGroupsAhead groups more
    const std::int32_t* panel_leaves = nullptr;  // panels + 1
};
inline constexpr int kRowGroupsAhead = 2;

// Blocks of the window kernel, none where no cell has entries; and of the kernel that adds the panels' sums, none where they are complete.
struct WindowLaunch {
    std::int32_t blocks = 0;
    std::int32_t finish_blocks = 0;
    std::int32_t partials() const { return finish_blocks > 0 ? finish_blocks : blocks; }
};
template <class V, class X>
WindowLaunch choose_window_launch(const WindowPlan& plan, std::int64_t rows, int multiprocessors);

// y <- a A x + b y; b = 0: y is not read. sums: scratch, panel_rows values for each time that sums are left, not used where they are
// complete then. partials: null, or launch.partials() values,
// which get partial sums of ||y||^2.
template <class V, class X>
void launch_window(const WindowLaunch& launch, const WindowMatrix<V>& matrix, X* sums, Scalar<X> a, const X* x, Scalar<X> b, X* y, double* partials,
                   cudaStream_t stream);

// Of CSR, in device memory; the columns of a row ascend and differ.
template <class Offset>
struct WindowSource {
    std::int64_t rows = 0;
    WindowShape shape;
    const Offset* offsets = nullptr;
    const std::int32_t* columns = nullptr;
    // windows + 1 of each row: its first entry in the window, counted from the row's first.
    std::int32_t* starts = nullptr;
};
// Fills in the starts.
template <class Offset>
void launch_window_starts(const WindowSource<Offset>& source, cudaStream_t stream);
// counts: kWindowWarps for each cell, of all panels x windows.
template <class Offset>
void launch_window_counts(const WindowSource<Offset>& source, WindowCount* counts, cudaStream_t stream);
// Values, columns and rows of the cells `numbers`. rows_of: all kNoSegment before. slots, slice_forms: scratch, 4 values a group of rows.
template <class V, class T, class Offset>
void launch_window_fill(const WindowSource<Offset>& source, std::int32_t cells, const std::int32_t* numbers, const WindowShare* shares, const T* from,
                        V* values, std::uint16_t* columns, std::uint16_t* rows_of, std::int32_t* slots, std::int32_t* slice_forms, cudaStream_t stream);

}  // namespace lsmr::cuda
