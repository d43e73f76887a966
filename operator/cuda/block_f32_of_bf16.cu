#include "operator/cuda/block_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_BLOCKS(Bf16, float)
}  // namespace lsmr::cuda
