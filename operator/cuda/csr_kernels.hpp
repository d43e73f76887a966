// Launchers of our CSR kernels. Raw device pointers, a stream; they never allocate and never wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "operator/cuda/csr_plan.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cuda {

// CSR in device memory with its plan. Offset is std::int32_t where nnz < 2^31, else std::int64_t.
template <class T, class Offset>
struct CsrDevice {
    const Offset* offsets = nullptr;
    const std::int32_t* columns = nullptr;
    const T* values = nullptr;
    const CsrItem* items = nullptr;
    std::int32_t item_count = 0;
    const CsrSegment* segments = nullptr;
    std::int32_t segment_count = 0;
    const CsrSplitRow* split_rows = nullptr;
    std::int32_t split_row_count = 0;
};

inline constexpr int kCsrThreads = 256;
// Entries that a block keeps in shared memory: 16 KiB, so that eight blocks fill a multiprocessor.
template <class T>
inline constexpr std::int64_t kCsrCapacity = (std::int64_t{16} << 10) / static_cast<std::int64_t>(sizeof(T));

// Thread blocks of a product, and the partials that it leaves: from the plan's sizes and the device.
struct CsrLaunch {
    int blocks = 1;        // of the main kernel
    int split_blocks = 0;  // of the second, which finishes split rows
    int partials() const { return blocks + split_blocks; }
};
CsrLaunch choose_csr_launch(const CsrPlan& plan, int multiprocessors);

// y <- a A x + b y; partials (launch.partials() values, or null) get partial sums of ||y||^2. b = 0: y is not read.
// segment_sums: segment_count values of scratch.
template <class T, class Offset>
void launch_csr_apply(const CsrDevice<T, Offset>& matrix, const CsrLaunch& launch, Scalar<T> a, const T* x, Scalar<T> b, T* y,
                      double* partials, double* segment_sums, cudaStream_t stream);

}  // namespace lsmr::cuda
