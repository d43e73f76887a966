// The GPU engine in a build without CUDA: it says so.
#include "memory/cuda_context.hpp"
#include "memory/error.hpp"
#include "solver/engine.hpp"

namespace lsmr::detail {

std::unique_ptr<Engine> make_cuda_engine(const EngineMatrix&, const PrepareOptions& options) {
    throw DeviceError("no GPU can be used: " + probe_cuda(options.device_index).reason, DeviceError::Kind::unavailable);
}

}  // namespace lsmr::detail
