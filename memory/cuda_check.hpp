// Checked calls. LSMR_CHECK(cudaMemsetAsync(...)) throws DeviceError whose text holds the call, the code and its meaning;
// LSMR_CHECK_NOTHROW is for destructors: the first failure is kept for later, nothing is thrown.
// CUDA, cuBLAS and cuSPARSE results go through the same macro.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusparse.h>

#include <atomic>
#include <cstdint>

namespace lsmr {

// How often the library allocated memory and waited for a device, in this process: the proof that an iteration does
// neither is that these do not move.
struct CudaCounters {
    std::atomic<std::int64_t> allocations{0};
    std::atomic<std::int64_t> synchronizations{0};
    // While the first is set, a solve leaves the number of kernels of one of its iterations in the second, by capturing one: for benchmarks.
    std::atomic<bool> count_kernels{false};
    std::atomic<std::int64_t> iteration_kernels{0};
    std::atomic<std::int64_t> page_locked{0};  // arrays of page-locked memory that were asked for
};
CudaCounters& cuda_counters();

namespace detail {
void check(cudaError_t code, const char* call, const char* file, int line);
void check(cublasStatus_t code, const char* call, const char* file, int line);
void check(cusparseStatus_t code, const char* call, const char* file, int line);
inline bool ok(cudaError_t code) { return code == cudaSuccess; }
inline bool ok(cublasStatus_t code) { return code == CUBLAS_STATUS_SUCCESS; }
inline bool ok(cusparseStatus_t code) { return code == CUSPARSE_STATUS_SUCCESS; }
}  // namespace detail

}  // namespace lsmr

#define LSMR_CHECK(call) ::lsmr::detail::check((call), #call, __FILE__, __LINE__)
#define LSMR_CHECK_NOTHROW(call) static_cast<void>(::lsmr::detail::ok(call))
