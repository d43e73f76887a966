#include "operator/cuda/block_stream_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_BLOCK_STREAM(Bf16, float)
}  // namespace lsmr::cuda
