#include "operator/cuda/stream_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_STREAM(Bf16, double)
}  // namespace lsmr::cuda
