#include "operator/cuda/block_stream_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_BLOCK_STREAM(double, double)
}  // namespace lsmr::cuda
