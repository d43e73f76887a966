// Launchers of the row kernels: y <- a A x + b y for CSR as it is stored, a fixed number of threads a row. Raw device pointers, a stream;
// they never allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

// CSR in device memory. Offset is std::int32_t where nnz < 2^31, else std::int64_t.
template <class T, class Offset>
struct CsrDevice {
    std::int64_t rows = 0;
    const Offset* offsets = nullptr;
    const std::int32_t* columns = nullptr;
    const T* values = nullptr;
};

// Blocks of a launch: from the shape and the device. team: threads of a row, 1 (the baseline of every table), 2, 4, 8, 16, 32; or a block of
// 128, 256, 512.
int row_blocks(int team, std::int64_t rows, int multiprocessors);

// b = 0: y is not read. partials: null, or blocks values, which get partial sums of ||y||^2.
template <class T, class Offset>
void launch_rows(int team, int blocks, const CsrDevice<T, Offset>& matrix, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials,
                 cudaStream_t stream);

// Rows of thousands of entries, a warp for each segment of a row. One segment: team_rows does the same in one kernel.
struct SegmentLaunch {
    int segments = 1;
    int blocks = 0;
    int finish_blocks = 0;  // of the kernel that adds the segments of each row
};
SegmentLaunch segment_launch(std::int64_t rows, std::int64_t nnz, int multiprocessors);
// pieces: scratch of segments * rows values. partials: null, or finish_blocks values.
template <class T, class Offset>
void launch_segments(const SegmentLaunch& launch, const CsrDevice<T, Offset>& matrix, double* pieces, Scalar<T> a, const T* x, Scalar<T> b, T* y,
                     double* partials, cudaStream_t stream);

}  // namespace lsmr::cuda
