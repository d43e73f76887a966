#include "operator/cuda/stream_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_STREAM(double, double)
}  // namespace lsmr::cuda
