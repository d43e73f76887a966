// Launchers of the kernels that run a method's text on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace lsmr::cuda {

inline constexpr std::size_t kMaxSlots = 4;

// Lists of partial sums in device memory.
struct PartialLists {
    const double* sums[kMaxSlots] = {};
    std::int32_t count[kMaxSlots] = {};
    std::int32_t lists = 0;
};
// Where an elementwise step leaves its sums: vector_blocks(n) partials each; null: nowhere.
struct SumTargets {
    double* sums[kMaxSlots] = {};
};

// f(i, coefficients, sums) for i < n. F: the steps of the methods (solver/lsmr.hpp and its like) and of
// solver/vector_steps.hpp.
template <class F>
void launch_elementwise(std::int64_t n, const F& f, const SumTargets& targets, cudaStream_t stream);

// The same, and then what launch_finish does, by the block that ends last. *ended: 0, and left so. beside_product: the kernel before is a
// product's, which was launched after everything that f reads or writes was done, and f and the product touch nothing that either writes.
template <class F, class R>
void launch_elementwise_finish(std::int64_t n, const F& f, const SumTargets& targets, R* r, int stage, const PartialLists& lists, unsigned* ended,
                               bool beside_product, cudaStream_t stream);

// One block: adds each list in a fixed order and calls r->finish(stage, sums, code).
template <class R>
void launch_finish(R* r, int stage, const PartialLists& lists, int code, cudaStream_t stream);

}  // namespace lsmr::cuda
