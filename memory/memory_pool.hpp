// MemoryPool: the only allocator of device memory. A private cudaMemPool: never made current, so a host program's own
// allocations do not meet it; its release threshold is unlimited, so memory freed between solves is kept and a second solve
// allocates nothing from the driver; handle type none. Where the device has no pools (virtual GPUs), cudaMalloc behind the same
// interface, with freed blocks kept for reuse.
#pragma once

#include <cstdint>
#include <memory>

struct CUstream_st;

namespace lsmr {

class MemoryPool {
  public:
    enum class Backend { cuda_pool, plain };

    // limit_bytes: the most that may be live at once, 0 for no bound; makes running out reproducible.
    // Environment LSMR_FORCE_NO_POOL=1 takes the plain backend.
    MemoryPool(int device, std::int64_t limit_bytes);
    ~MemoryPool();
    MemoryPool(const MemoryPool&) = delete;
    MemoryPool& operator=(const MemoryPool&) = delete;

    // Stream-ordered; aligned to 256 bytes; null for 0 bytes. When it fails: waits for the pool's streams, gives unused memory back, tries
    // once more; then throws OutOfMemory. Throws DeviceError where the stream is being captured.
    void* allocate(std::int64_t bytes, CUstream_st* stream);
    // On the stream of last use. Never throws.
    void deallocate(void* pointer, std::int64_t bytes, CUstream_st* stream) noexcept;

    Backend backend() const;
    std::int64_t limit_bytes() const;
    std::int64_t live_bytes() const;      // handed out now
    std::int64_t peak_bytes() const;      // the most ever handed out since reset_peak()
    std::int64_t reserved_bytes() const;  // held from the driver, in use or not
    void reset_peak();
    // Gives memory that is not in use back to the driver, but for so many bytes, which the next allocations will take (the plain backend: all).
    // Waits for the streams that used the pool first: a free counts only once it was seen. These streams must still exist.
    void trim(std::int64_t kept_bytes = 0);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lsmr
