// HostBuffer<T>: an array in host memory, aligned to 64 bytes, uninitialised, move-only.
// Uninitialised on purpose: the loop that first writes a page decides which core's memory it lies in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace lsmr {

namespace detail {
// Asks for 2 MiB pages under a large allocation: fewer page faults when it is filled, fewer TLB misses when it is gathered from.
void advise_large_pages(void* pointer, std::size_t bytes) noexcept;
}

template <class T>
class HostBuffer {
    static_assert(std::is_trivially_copyable_v<T>, "HostBuffer holds plain data");

  public:
    static constexpr std::size_t kAlignment = 64;  // one cache line, and the widest vector register

    HostBuffer() = default;
    // size values, uninitialised. Throws std::bad_alloc.
    explicit HostBuffer(std::int64_t size) : data_(allocate(size)), size_(size) {}
    HostBuffer(std::int64_t size, T value) : HostBuffer(size) { std::fill(begin(), end(), value); }
    HostBuffer(HostBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    HostBuffer& operator=(HostBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;
    ~HostBuffer() { ::operator delete[](data_, std::align_val_t{kAlignment}); }

    HostBuffer clone() const {
        HostBuffer copy(size_);
        std::copy(begin(), end(), copy.begin());
        return copy;
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    std::int64_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    std::int64_t bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }
    T& operator[](std::int64_t i) { return data_[i]; }
    const T& operator[](std::int64_t i) const { return data_[i]; }
    T* begin() { return data_; }
    T* end() { return data_ + size_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }

  private:
    static T* allocate(std::int64_t size) {
        if (size < 0 || size > static_cast<std::int64_t>(PTRDIFF_MAX / sizeof(T))) throw std::bad_array_new_length();
        if (size == 0) return nullptr;
        const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
        void* pointer = ::operator new[](bytes, std::align_val_t{kAlignment});
        detail::advise_large_pages(pointer, bytes);
        return static_cast<T*>(pointer);
    }

    T* data_ = nullptr;
    std::int64_t size_ = 0;
};

}  // namespace lsmr
