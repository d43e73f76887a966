// The profile of a matrix that lies in device memory. No CUDA header is needed to include this one.
#pragma once

#include <cstdint>

#include "memory/cuda_context.hpp"
#include "operator/profile.hpp"

namespace lsmr {

namespace detail {
struct ProfileCounts;
}

// As profile_orientation() in operator/profile.hpp: the same numbers, to the last bit. All pointers are to device memory: offsets has
// rows + 1 entries (Offset: std::int32_t or std::int64_t), columns and values nnz. Reads offsets once, values once, columns
// once and again around the ends of rows, and fixed samples. One piece of scratch of about 40 KB from the context's pool, one copy back; waits
// once for the context's stream.
template <class T, class Offset>
OrientationProfile profile_on_device(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns,
                                     const T* values, const CudaContext& context);

// The same for a matrix in host memory, with its values as T; the copy on the device goes afterwards.
// device_seconds, where given: the time of the profile alone, without the copy.
template <class T>
OrientationProfile profile_on_device(const CsrMatrix& stored, const CudaContext& context, double* device_seconds = nullptr);

// Bytes a second of copies from device memory to device memory, read and written: the median of 15 copies of up to 1 GiB (less where memory
// is short), timed by events.
double measure_copy_bandwidth(const CudaContext& context);

namespace cuda {

// Queues the count. counts is device memory, whatever it held before.
template <class T, class Offset>
void launch_profile(std::int64_t rows, std::int64_t nnz, const Offset* offsets, const std::int32_t* columns, const T* values,
                    detail::ProfileCounts* counts, CUstream_st* stream);

}  // namespace cuda

}  // namespace lsmr
