#include "memory/cuda_context.hpp"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusparse.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "memory/cuda_check.hpp"
#include "memory/device_buffer.hpp"
#include "memory/error.hpp"
#include "memory/staging.hpp"

namespace lsmr {
namespace {

std::string version_words(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// Smallest compute capability that our kernels are compiled for; newer GPUs of the same major version run them.
constexpr int kBuiltMajor = LSMR_BUILT_ARCH / 10;

}  // namespace

CudaProbe probe_cuda(int device) {
    CudaProbe probe;
    probe.built_in = true;
    int runtime = 0;
    int driver = 0;
    cudaRuntimeGetVersion(&runtime);
    probe.runtime = version_words(runtime);
    // The order matters: without a driver the first call succeeds with version 0, and later ones would print to stderr.
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        cudaGetLastError();
        probe.reason = "no NVIDIA driver is installed";
        return probe;
    }
    probe.driver = version_words(driver);
    if (driver / 1000 < runtime / 1000) {
        probe.reason = fmt::format("the NVIDIA driver supports CUDA {}, this program needs {} (driver 580 or newer for CUDA 13)",
                                   version_words(driver), version_words(runtime));
        return probe;
    }
    int count = 0;
    const cudaError_t counted = cudaGetDeviceCount(&count);
    if (counted != cudaSuccess || count == 0) {
        cudaGetLastError();
        const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
        probe.reason = visible != nullptr
                           ? fmt::format("no GPU is visible (CUDA_VISIBLE_DEVICES is set to \"{}\")", visible)
                           : fmt::format("no GPU is visible ({})",
                                         counted == cudaSuccess ? "the driver lists none" : cudaGetErrorString(counted));
        return probe;
    }
    for (int i = 0; i < count; ++i) {
        cudaDeviceProp properties = {};
        if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
            cudaGetLastError();
            probe.devices.push_back("unknown");
            continue;
        }
        probe.devices.push_back(fmt::format("{}, sm_{}{}, {}", properties.name, properties.major, properties.minor,
                                            format_bytes(static_cast<std::int64_t>(properties.totalGlobalMem))));
    }
    if (device < 0 || device >= count) {
        probe.reason = fmt::format("there is no GPU {}; there {} {}: {}", device, count == 1 ? "is" : "are", count,
                                   fmt::join(probe.devices, "; "));
        return probe;
    }
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (major != kBuiltMajor) {
        probe.reason = fmt::format("GPU {} ({}) is not one that this program was compiled for (sm_{})", device,
                                   probe.devices[static_cast<std::size_t>(device)], LSMR_BUILT_ARCH);
        return probe;
    }
    int mode = 0;
    cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device);
    if (mode == cudaComputeModeProhibited) {
        probe.reason = fmt::format("GPU {} is in compute mode prohibited", device);
        return probe;
    }
    probe.usable = true;
    return probe;
}

struct CudaContext::State {
    int device = 0;
    std::string name;
    int multiprocessors = 1;
    cudaStream_t stream = nullptr;
    bool owns_stream = false;
    pid_t process = 0;
    std::unique_ptr<MemoryPool> pool;
    cusparseHandle_t cusparse = nullptr;
    cublasHandle_t cublas = nullptr;
    DeviceBuffer<std::byte> cublas_workspace;
    std::mutex staging_mutex;
    std::unique_ptr<Staging> staging;  // null: lent, or not made
};

CudaContext::CudaContext(int device, std::int64_t memory_limit_bytes, CUstream_st* stream)
    : state_(std::make_unique<State>()) {
    const CudaProbe probe = probe_cuda(device);
    if (!probe.usable) throw DeviceError("no GPU can be used: " + probe.reason, DeviceError::Kind::unavailable);
    state_->device = device;
    state_->process = getpid();
    const DeviceScope scope(device);
    // The first call that needs a context on the device: another process may hold it exclusively.
    const cudaError_t first = cudaFree(nullptr);
    if (first != cudaSuccess) {
        cudaGetLastError();
        throw DeviceError(fmt::format("GPU {} cannot be used: {}{}", device, cudaGetErrorString(first),
                                      first == cudaErrorDevicesUnavailable ? " (exclusive compute mode, and another process has it?)"
                                                                           : ""),
                          DeviceError::Kind::unavailable);
    }
    cudaDeviceProp properties = {};
    LSMR_CHECK(cudaGetDeviceProperties(&properties, device));
    state_->name = properties.name;
    state_->multiprocessors = properties.multiProcessorCount;
    state_->pool = std::make_unique<MemoryPool>(device, memory_limit_bytes);
    if (stream != nullptr) {
        int of_stream = device;
        LSMR_CHECK(cudaStreamGetDevice(stream, &of_stream));
        if (of_stream != device) {
            throw DeviceError(fmt::format("the stream belongs to GPU {}, the context to GPU {}", of_stream, device));
        }
        state_->stream = stream;
    } else {
        LSMR_CHECK(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking));
        state_->owns_stream = true;
    }
}

CudaContext::~CudaContext() {
    int previous = state_->device;
    cudaGetDevice(&previous);
    const bool elsewhere = previous != state_->device;
    if (elsewhere) LSMR_CHECK_NOTHROW(cudaSetDevice(state_->device));
    LSMR_CHECK_NOTHROW(cudaStreamSynchronize(state_->stream));
    if (state_->cublas != nullptr) LSMR_CHECK_NOTHROW(cublasDestroy(state_->cublas));
    if (state_->cusparse != nullptr) LSMR_CHECK_NOTHROW(cusparseDestroy(state_->cusparse));
    state_->cublas_workspace = {};
    state_->staging.reset();
    LSMR_CHECK_NOTHROW(cudaStreamSynchronize(state_->stream));
    state_->pool.reset();
    if (state_->owns_stream) LSMR_CHECK_NOTHROW(cudaStreamDestroy(state_->stream));
    if (elsewhere) LSMR_CHECK_NOTHROW(cudaSetDevice(previous));
}

int CudaContext::device() const { return state_->device; }
const std::string& CudaContext::device_name() const { return state_->name; }
int CudaContext::multiprocessors() const { return state_->multiprocessors; }
CUstream_st* CudaContext::stream() const { return state_->stream; }
MemoryPool& CudaContext::pool() const { return *state_->pool; }

cusparseContext* CudaContext::cusparse() const {
    if (state_->cusparse == nullptr) {
        const DeviceScope scope(state_->device);
        LSMR_CHECK(cusparseCreate(&state_->cusparse));
        LSMR_CHECK(cusparseSetStream(state_->cusparse, state_->stream));
        LSMR_CHECK(cusparseSetPointerMode(state_->cusparse, CUSPARSE_POINTER_MODE_DEVICE));
    }
    return state_->cusparse;
}

bool CudaContext::has_cusparse() const { return state_->cusparse != nullptr; }

cublasContext* CudaContext::cublas() const {
    if (state_->cublas == nullptr) {
        const DeviceScope scope(state_->device);
        LSMR_CHECK(cublasCreate(&state_->cublas));
        LSMR_CHECK(cublasSetStream(state_->cublas, state_->stream));
        // cublasSetStream resets the workspace, so it comes after. 32 MiB is what cuBLAS asks for on Hopper.
        constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
        state_->cublas_workspace = DeviceBuffer<std::byte>(*this, kWorkspaceBytes);
        LSMR_CHECK(cublasSetWorkspace(state_->cublas, state_->cublas_workspace.data(), kWorkspaceBytes));
        LSMR_CHECK(cublasSetPointerMode(state_->cublas, CUBLAS_POINTER_MODE_DEVICE));
    }
    return state_->cublas;
}

std::unique_ptr<Staging> CudaContext::lend_staging() const {
    const std::lock_guard lock(state_->staging_mutex);
    return state_->staging != nullptr ? std::move(state_->staging) : std::make_unique<Staging>();
}
void CudaContext::take_back(std::unique_ptr<Staging> staging) const {
    const std::lock_guard lock(state_->staging_mutex);
    if (state_->staging == nullptr) state_->staging = std::move(staging);
}

void CudaContext::synchronize() const {
    if (getpid() != state_->process) {
        throw DeviceError("a CUDA context cannot be used after fork(); start the child with exec or make the solver in it");
    }
    ++cuda_counters().synchronizations;
    LSMR_CHECK(cudaStreamSynchronize(state_->stream));
}

std::int64_t CudaContext::free_bytes() const {
    const DeviceScope scope(state_->device);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    LSMR_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    const MemoryPool& pool = *state_->pool;
    // The driver counts memory that our pool holds unused as taken.
    std::int64_t usable = static_cast<std::int64_t>(free_bytes) + std::max<std::int64_t>(0, pool.reserved_bytes() - pool.live_bytes());
    if (pool.limit_bytes() > 0) usable = std::min(usable, pool.limit_bytes() - pool.live_bytes());
    return usable;
}

DeviceScope::DeviceScope(int device) : previous_(device) {
    LSMR_CHECK(cudaGetDevice(&previous_));
    if (previous_ != device) LSMR_CHECK(cudaSetDevice(device));
}
DeviceScope::~DeviceScope() {
    int current = previous_;
    if (cudaGetDevice(&current) == cudaSuccess && current != previous_) LSMR_CHECK_NOTHROW(cudaSetDevice(previous_));
}

}  // namespace lsmr
