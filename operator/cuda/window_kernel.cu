#include "operator/cuda/window_kernel.cuh"

namespace lsmr::cuda {
LSMR_INSTANTIATE_WINDOW(double, double)
LSMR_INSTANTIATE_WINDOW(float, double)
LSMR_INSTANTIATE_WINDOW(Bf16, double)
LSMR_INSTANTIATE_WINDOW(float, float)
LSMR_INSTANTIATE_WINDOW(Bf16, float)
}  // namespace lsmr::cuda
