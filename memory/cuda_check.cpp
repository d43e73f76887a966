#include "memory/cuda_check.hpp"

#include <fmt/format.h>

#include <cstring>

#include "memory/error.hpp"

namespace lsmr {

CudaCounters& cuda_counters() {
    static CudaCounters counters;  // plain integers: nothing to destroy, nothing that calls CUDA
    return counters;
}

namespace {

// Out of line: the cold path.
[[noreturn]] void fail(const char* library, int code, const char* name, const char* text, const char* call, const char* file,
                       int line) {
    const char* base = std::strrchr(file, '/');
    throw DeviceError(fmt::format("{} failed: {} ({}, code {}) in {} at {}:{}", library, text, name, code, call,
                                  base ? base + 1 : file, line));
}

}  // namespace

void detail::check(cudaError_t code, const char* call, const char* file, int line) {
    if (ok(code)) return;
    cudaGetLastError();  // a failed call must not be found again by the next check
    fail("CUDA", static_cast<int>(code), cudaGetErrorName(code), cudaGetErrorString(code), call, file, line);
}

void detail::check(cublasStatus_t code, const char* call, const char* file, int line) {
    if (ok(code)) return;
    fail("cuBLAS", static_cast<int>(code), cublasGetStatusName(code), cublasGetStatusString(code), call, file, line);
}

void detail::check(cusparseStatus_t code, const char* call, const char* file, int line) {
    if (ok(code)) return;
    fail("cuSPARSE", static_cast<int>(code), cusparseGetErrorName(code), cusparseGetErrorString(code), call, file, line);
}

}  // namespace lsmr
