// Launchers of our CSR kernels. Raw device pointers, a stream; they never allocate and never wait.
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

// How a product is laid out on the device: lanes of a warp that share a row (1, 2, ..., 32), and blocks, which step through the rows.
struct CsrLaunch {
    int lanes = 32;
    int blocks = 1;
};
inline constexpr int kCsrThreads = 256;
// From the shape alone, so that a plan does not depend on timing.
CsrLaunch choose_csr_launch(std::int64_t rows, std::int64_t nnz, int multiprocessors);

// y <- a A x + b y; partials (blocks values, or null) get partial sums of ||y||^2. b = 0: y is not read.
template <class T, class Offset>
void launch_csr_apply(const CsrDevice<T, Offset>& matrix, const CsrLaunch& launch, Scalar<T> a, const T* x, Scalar<T> b, T* y,
                      double* partials, cudaStream_t stream);

}  // namespace lsmr::cuda
