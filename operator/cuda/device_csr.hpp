// CSR in device memory from CSR in host memory, and its transpose.
#pragma once

#include "memory/host_buffer.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/uploader.hpp"

namespace lsmr::cuda {

// 2^exponent a, rounded to T after that scaling. sizer: null, or that of a, to which all its chunks are added, each while its values are at hand.
template <class T>
DeviceCsr<T> upload(const CsrMatrix& a, int exponent, const CudaContext& context, EntrySizer* sizer = nullptr);

// CSR of the transpose, its columns ascending whether those of A do or not.
template <class T>
DeviceCsr<T> transposed(const DeviceCsr<T>& a, const CudaContext& context);

// The offsets of an orientation that only the device has.
template <class T>
class DownloadedOffsets {
  public:
    DownloadedOffsets(const DeviceCsr<T>& a, const CudaContext& context) {
        a.with_offsets([&](const auto* device) {
            auto& host = buffer(device);
            host = std::remove_reference_t<decltype(host)>(a.rows + 1);
            download(context, device, a.rows + 1, [to = host.data()](std::int64_t i, auto offset) { to[i] = offset; });
        });
    }
    HostOffsets view() const { return {narrow_.size() > 0 ? narrow_.data() : nullptr, wide_.size() > 0 ? wide_.data() : nullptr}; }

  private:
    HostBuffer<std::int32_t>& buffer(const std::int32_t*) { return narrow_; }
    HostBuffer<std::int64_t>& buffer(const std::int64_t*) { return wide_; }
    HostBuffer<std::int32_t> narrow_;
    HostBuffer<std::int64_t> wide_;
};

}  // namespace lsmr::cuda
