// The arrays of A in dense blocks, made on the device from CSR.
#pragma once

#include <cstdint>

#include "memory/device_buffer.hpp"
#include "memory/host_buffer.hpp"
#include "operator/cuda/block_kernels.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/pack_kernels.hpp"

namespace lsmr::cuda {

template <class V>
class BlockArrays {
  public:
    // Blocks of the size and order of `choice` (bsr, bell, cusparse_bsr). Waits for the stream. Throws InputError where the columns of a row do not
    // ascend, OutOfMemory.
    template <class T>
    BlockArrays(const DeviceCsr<T>& a, const SpmvChoice& choice, EmptyPlaces empty, const CudaContext& context);

    std::int64_t block_row_count() const { return block_row_count_; }
    std::int64_t block_count() const { return block_count_; }  // with those that Blocked-ELL fills up with
    const DeviceBuffer<std::int64_t>& offsets() const { return offsets_; }
    // On the host, of Blocked-ELL too. Waits for the stream.
    HostBuffer<std::int64_t> host_offsets(const CudaContext& context) const;
    // For kernels that need them no more.
    void forget_offsets() { offsets_ = {}; }
    DeviceBuffer<std::int32_t>& columns() { return columns_; }
    DeviceBuffer<V>& values() { return values_; }
    std::int64_t bytes() const;
    template <class T>
    BlockMatrix<V> matrix(const DeviceCsr<T>& a) const {
        return {a.rows, a.cols, block_row_count_, block_rows_, block_cols_, offsets_.data(), width_, columns_.data(), values_.data()};
    }

  private:
    std::int32_t block_rows_;
    std::int32_t block_cols_;
    std::int64_t block_row_count_;
    std::int64_t block_count_ = 0;
    std::int64_t width_ = 0;  // Blocked-ELL
    DeviceBuffer<std::int64_t> offsets_;
    DeviceBuffer<std::int32_t> columns_;  // these two: readable up to the next multiple of 16 bytes
    DeviceBuffer<V> values_;
};

}  // namespace lsmr::cuda
