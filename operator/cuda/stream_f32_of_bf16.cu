#include "operator/cuda/stream_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_STREAM(Bf16, float)
}  // namespace lsmr::cuda
