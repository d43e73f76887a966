#include "operator/cuda/stream_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_STREAM(float, float)
}  // namespace lsmr::cuda
