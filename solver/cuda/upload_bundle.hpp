// Small host arrays that go to the device in one copy. For CUDA code only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory/device_buffer.hpp"
#include "operator/cuda/uploader.hpp"

namespace lsmr::cuda {

class UploadBundle {
  public:
    // Where an array lies in the buffer that upload() gives, or in one that this was moved to.
    template <class Value>
    class Place {
      public:
        explicit Place(std::size_t at) : at_(at) {}
        const Value* operator()(const DeviceBuffer<std::byte>& uploaded) const { return reinterpret_cast<const Value*>(uploaded.data() + at_); }

      private:
        std::size_t at_;
    };
    template <class Value>
    Place<Value> add(const std::vector<Value>& values) {
        constexpr std::size_t kAlignment = 16;
        const std::size_t at = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
        bytes_.resize(at + values.size() * sizeof(Value));
        if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(Value));
        return Place<Value>(at);
    }
    // Asynchronous; this may go at once.
    DeviceBuffer<std::byte> upload(const CudaContext& context) const {
        constexpr std::int64_t kChunk = std::int64_t{1} << 18;
        const auto size = static_cast<std::int64_t>(bytes_.size());
        DeviceBuffer<std::byte> device(context, std::max<std::int64_t>(size, 1));
        Uploader(context).by_chunks(device.data(), size, kChunk, [&](std::int64_t begin, std::int64_t count, std::byte* staged) {
            std::memcpy(staged, bytes_.data() + begin, static_cast<std::size_t>(count));
        });
        return device;
    }

  private:
    std::vector<std::byte> bytes_;
};

}  // namespace lsmr::cuda
