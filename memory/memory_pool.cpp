#include "memory/memory_pool.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "memory/cuda_check.hpp"
#include "memory/cuda_context.hpp"
#include "memory/error.hpp"

namespace lsmr {
namespace {

constexpr std::int64_t kAlignment = 256;  // what cudaMalloc promises and vector loads rely on

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool pools_supported(int device) {
    // The attribute, not the driver's version, is what tells: virtual GPUs of new drivers have none.
    const char* forced = std::getenv("LSMR_FORCE_NO_POOL");
    if (forced != nullptr && std::string_view(forced) == "1") return false;
    int supported = 0;
    LSMR_CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
    return supported == 1;
}

}  // namespace

struct MemoryPool::State {
    int device = 0;
    std::int64_t limit = 0;
    cudaMemPool_t pool = nullptr;  // null: the plain backend
    std::mutex mutex;              // several solvers may share the pool
    std::set<cudaStream_t> streams;  // that allocated from it
    std::int64_t live = 0;
    std::int64_t peak = 0;
    // Plain backend: freed blocks, by size, and what cudaMalloc gave in all.
    std::multimap<std::int64_t, void*> unused;
    std::int64_t plain_reserved = 0;

    std::int64_t reserved() const {
        if (pool == nullptr) return plain_reserved;
        std::uint64_t bytes = 0;
        LSMR_CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes));
        return static_cast<std::int64_t>(bytes);
    }

    // The plain backend takes the smallest unused block that is at most twice too large. Blocks are reused across streams of one
    // context only, whose stream order keeps this safe.
    cudaError_t try_plain(void** pointer, std::int64_t bytes) {
        const auto fit = unused.lower_bound(bytes);
        if (fit != unused.end() && fit->first <= 2 * bytes) {
            *pointer = fit->second;
            sizes[*pointer] = fit->first;
            unused.erase(fit);
            return cudaSuccess;
        }
        const cudaError_t code = cudaMalloc(pointer, static_cast<std::size_t>(bytes));
        if (code == cudaSuccess) {
            plain_reserved += bytes;
            sizes[*pointer] = bytes;
        }
        return code;
    }
    std::map<void*, std::int64_t> sizes;  // of the plain blocks that are handed out

    cudaError_t try_allocate(void** pointer, std::int64_t bytes, CUstream_st* stream) {
        if (limit > 0 && live + bytes > limit) return cudaErrorMemoryAllocation;
        return pool != nullptr ? cudaMallocFromPoolAsync(pointer, static_cast<std::size_t>(bytes), pool, stream)
                               : try_plain(pointer, bytes);
    }

    // Waits for the streams that used this pool, and for no other: another thread may be recording a graph, which a wait for the whole device
    // would break.
    void trim(std::int64_t kept_bytes) {
        for (cudaStream_t stream : streams) {
            LSMR_CHECK(cudaStreamSynchronize(stream));
            ++cuda_counters().synchronizations;
        }
        if (pool != nullptr) {
            LSMR_CHECK(cudaMemPoolTrimTo(pool, kept_bytes > 0 ? static_cast<std::size_t>(live + kept_bytes) : 0));
            return;
        }
        for (const auto& [bytes, pointer] : unused) {
            LSMR_CHECK(cudaFree(pointer));
            plain_reserved -= bytes;
        }
        unused.clear();
    }
};

MemoryPool::MemoryPool(int device, std::int64_t limit_bytes) : state_(std::make_unique<State>()) {
    state_->device = device;
    state_->limit = limit_bytes;
    const DeviceScope scope(device);
    if (!pools_supported(device)) return;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypeNone;  // others fail under WSL although they are said to be supported
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    if (limit_bytes > 0) {
        // What is reserved stays within the limit too, to the driver's granularity.
        constexpr std::int64_t kGranularity = std::int64_t{32} << 20;
        properties.maxSize = static_cast<std::size_t>((limit_bytes + kGranularity - 1) / kGranularity * kGranularity);
    }
    LSMR_CHECK(cudaMemPoolCreate(&state_->pool, &properties));
    std::uint64_t threshold = UINT64_MAX;  // 0, the default, gives memory back at every synchronisation
    LSMR_CHECK(cudaMemPoolSetAttribute(state_->pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

MemoryPool::~MemoryPool() {
    for (const auto& [bytes, pointer] : state_->unused) LSMR_CHECK_NOTHROW(cudaFree(pointer));
    if (state_->pool != nullptr) LSMR_CHECK_NOTHROW(cudaMemPoolDestroy(state_->pool));
}

void* MemoryPool::allocate(std::int64_t bytes, CUstream_st* stream) {
    LSMR_EXPECT(bytes >= 0);
    if (bytes == 0) return nullptr;
    bytes = rounded_up(bytes);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    LSMR_CHECK(cudaStreamIsCapturing(stream, &capture));
    if (capture != cudaStreamCaptureStatusNone) {
        // It would be the graph's memory.
        throw DeviceError("device memory was asked for by work that is being captured into a CUDA graph; run the same work once before");
    }
    const DeviceScope scope(state_->device);  // cudaMalloc and cudaMemGetInfo mean the current one
    const std::lock_guard lock(state_->mutex);
    ++cuda_counters().allocations;
    state_->streams.insert(stream);
    void* pointer = nullptr;
    if (state_->try_allocate(&pointer, bytes, stream) != cudaSuccess) {
        cudaGetLastError();
        // Frees that the driver has not seen yet, or fragments, may stand in the way: wait, give back, and try once more.
        state_->trim(0);
        const cudaError_t code = state_->try_allocate(&pointer, bytes, stream);
        if (code != cudaSuccess) {
            cudaGetLastError();
            if (code != cudaErrorMemoryAllocation) LSMR_CHECK(code);
            std::size_t free_bytes = 0;
            std::size_t total_bytes = 0;
            LSMR_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
            std::int64_t usable = static_cast<std::int64_t>(free_bytes);
            if (state_->limit > 0) usable = std::min(usable, state_->limit - state_->live);
            throw OutOfMemory(bytes, state_->live, usable,
                              state_->limit > 0 && state_->live + bytes > state_->limit
                                  ? "the limit is " + format_bytes(state_->limit)
                                  : std::string());
        }
    }
    state_->live += bytes;
    state_->peak = std::max(state_->peak, state_->live);
    return pointer;
}

void MemoryPool::deallocate(void* pointer, std::int64_t bytes, CUstream_st* stream) noexcept {
    if (pointer == nullptr) return;
    const std::lock_guard lock(state_->mutex);
    state_->live -= rounded_up(bytes);
    if (state_->pool != nullptr) {
        LSMR_CHECK_NOTHROW(cudaFreeAsync(pointer, stream));
        return;
    }
    const auto size = state_->sizes.find(pointer);
    state_->unused.emplace(size->second, pointer);
    state_->sizes.erase(size);
}

MemoryPool::Backend MemoryPool::backend() const { return state_->pool != nullptr ? Backend::cuda_pool : Backend::plain; }
std::int64_t MemoryPool::limit_bytes() const { return state_->limit; }
std::int64_t MemoryPool::live_bytes() const {
    const std::lock_guard lock(state_->mutex);
    return state_->live;
}
std::int64_t MemoryPool::peak_bytes() const {
    const std::lock_guard lock(state_->mutex);
    return state_->peak;
}
std::int64_t MemoryPool::reserved_bytes() const {
    const std::lock_guard lock(state_->mutex);
    return state_->reserved();
}
void MemoryPool::reset_peak() {
    const std::lock_guard lock(state_->mutex);
    state_->peak = state_->live;
}
void MemoryPool::trim(std::int64_t kept_bytes) {
    const DeviceScope scope(state_->device);
    const std::lock_guard lock(state_->mutex);
    state_->trim(kept_bytes);
}

}  // namespace lsmr
