#include "operator/cuda/block_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_BLOCKS(float)
}  // namespace lsmr::cuda
