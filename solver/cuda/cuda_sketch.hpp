// The factors of a sketch in device memory: S A by a kernel, its QR by cuSOLVER, in fp64 whatever the precision of the solve. See
// solver/sketch.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/cuda_context.hpp"
#include "memory/device_buffer.hpp"
#include "operator/linear_operator.hpp"
#include "solver/sketch.hpp"

namespace lsmr {

// S A in fp64, plan.rows x plan.cols, by columns: the bits of sketched_matrix(). The rows of A pass through in pieces. Throws OutOfMemory.
DeviceBuffer<double> cuda_sketched_matrix(const SketchPlan& plan, CudaContext& context);

class CudaSketch {
  public:
    // The context must outlive it. Throws OutOfMemory, before anything is made where the device has not enough free; InputError where S A is
    // singular to rounding.
    CudaSketch(std::shared_ptr<const SketchPlan> plan, CudaContext& context);
    ~CudaSketch();
    CudaSketch(const CudaSketch&) = delete;
    CudaSketch& operator=(const CudaSketch&) = delete;

    // P R^-1 in device memory, with R in T, P the order of the columns of A (operator/order.hpp).
    template <class T>
    std::unique_ptr<LinearOperator<T>> inverse(const std::vector<std::int32_t>& order) const;
    // As Sketch::solve(); r and d in host memory. Waits.
    std::vector<double> solve(std::span<const double> r);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lsmr
