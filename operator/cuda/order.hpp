// Orders of rows and columns on the device, and the permutation of a matrix there. The same bits at every run.
#pragma once

#include <cstdint>

#include "memory/device_buffer.hpp"
#include "operator/order.hpp"

namespace lsmr::cuda {

// An order in device memory, new position -> old index; of size 0: as given.
struct DeviceOrder {
    OrderKind kind = OrderKind::none;
    DeviceBuffer<std::int32_t> row;
    DeviceBuffer<std::int32_t> col;
};

// Offsets and columns of A and of A^T in device memory; columns ascend.
template <class Offset>
struct DevicePattern {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
    const Offset* offsets = nullptr;
    const std::int32_t* columns = nullptr;
    const Offset* transposed_offsets = nullptr;  // of A^T
    const std::int32_t* transposed_columns = nullptr;
};

// kind: not automatic, not none. Columns of a symmetric structure are in the order of the rows. may_give_up: the spectral order is left, and false
// returned, where after a few rounds the points shrink as those
// of a matrix without structure do. Temporaries come from the context's pool; waits for the stream.
template <class Offset>
bool make_order(OrderKind kind, const DevicePattern<Offset>& a, bool may_give_up, DeviceOrder& order, const CudaContext& context);

// Whether A and A^T have the same structure. Waits for the stream.
template <class Offset>
bool is_symmetric(const DevicePattern<Offset>& a, const CudaContext& context);

// As gather_shape() on the host: the same numbers. columns: device memory. Waits for the stream.
GatherShape gather_shape(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const std::int32_t* columns, int value_bytes, const CudaContext& context);

// old -> new.
DeviceBuffer<std::int32_t> inverse_order(const DeviceBuffer<std::int32_t>& order, const CudaContext& context);

// Rows gathered by `row` (null: as they are), columns renamed by new_column (old -> new; null: as they are), so that they need not ascend. The
// output arrays are as large as those given. Asynchronous.
template <class T, class Offset>
void permute_rows(std::int64_t rows, std::int64_t nnz, const std::int32_t* row, const std::int32_t* new_column, const Offset* offsets,
                  const std::int32_t* columns, const T* values, Offset* out_offsets, std::int32_t* out_columns, T* out_values,
                  const CudaContext& context);

}  // namespace lsmr::cuda
