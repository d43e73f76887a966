// DeviceBuffer<T>, PinnedBuffer<T>: owned arrays in device memory and in page-locked host memory; move-only. For CUDA code only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "memory/cuda_check.hpp"
#include "memory/cuda_context.hpp"
#include "memory/error.hpp"
#include "memory/memory_pool.hpp"

namespace lsmr {

// size values of T from the context's pool, ordered on the context's stream; uninitialised. The context must outlive it.
template <class T>
class DeviceBuffer {
  public:
    DeviceBuffer() = default;
    DeviceBuffer(const CudaContext& context, std::int64_t size) : context_(&context) { reserve(size); }
    DeviceBuffer(DeviceBuffer&& other) noexcept
        : context_(std::exchange(other.context_, nullptr)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
        std::swap(context_, other.context_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;
    ~DeviceBuffer() { release(); }

    // At least size values; only grows; the content is lost when it does.
    void reserve(std::int64_t size) {
        if (size <= size_) return;
        release();
        data_ = static_cast<T*>(context_->pool().allocate(size * static_cast<std::int64_t>(sizeof(T)), context_->stream()));
        size_ = size;
    }
    T* data() { return data_; }
    const T* data() const { return data_; }
    std::int64_t size() const { return size_; }
    std::int64_t bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }

  private:
    void release() noexcept {
        if (data_) context_->pool().deallocate(data_, bytes(), context_->stream());
        data_ = nullptr;
        size_ = 0;
    }

    const CudaContext* context_ = nullptr;
    T* data_ = nullptr;
    std::int64_t size_ = 0;
};

// Page-locked host memory, also visible to the device at device_data(). Allocation is slow: made once, kept.
template <class T>
class PinnedBuffer {
  public:
    PinnedBuffer() = default;
    explicit PinnedBuffer(std::int64_t size) : size_(size) {
        if (size == 0) return;
        ++cuda_counters().page_locked;
        LSMR_CHECK(cudaHostAlloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(size) * sizeof(T),
                                 cudaHostAllocMapped | cudaHostAllocPortable));
        if (cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_data_), data_, 0) != cudaSuccess) device_data_ = data_;
    }
    PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(device_data_, other.device_data_);
        std::swap(size_, other.size_);
        return *this;
    }
    PinnedBuffer(const PinnedBuffer&) = delete;
    PinnedBuffer& operator=(const PinnedBuffer&) = delete;
    ~PinnedBuffer() {
        if (data_) LSMR_CHECK_NOTHROW(cudaFreeHost(data_));
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    T* device_data() { return device_data_; }
    std::int64_t size() const { return size_; }
    T& operator[](std::int64_t i) { return data_[i]; }
    const T& operator[](std::int64_t i) const { return data_[i]; }

  private:
    T* data_ = nullptr;
    T* device_data_ = nullptr;
    std::int64_t size_ = 0;
};

}  // namespace lsmr
