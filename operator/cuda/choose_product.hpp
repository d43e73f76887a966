// The kernel of one product: profile -> key -> candidates -> timed on the matrix itself -> prepared product. At set-up, never in the loop.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "operator/cuda/csr_product.hpp"
#include "operator/operator_options.hpp"

namespace lsmr::cuda {

struct ChoiceRules {
    SpmvKind kind = SpmvKind::automatic;
    NarrowKind narrow = NarrowKind::lossless;
    std::optional<SpmvChoice> forced;
    bool timing = true;  // false: the first candidate
    std::int64_t expected_products = 0;
};

template <class T>
struct ChosenProduct {
    std::unique_ptr<CsrProduct<T>> product;
    ProductDecision decision;
    bool rounded_values = false;  // stored values differ from those given
};

// Throws InputError where a forced kernel does not fit the matrix, or would round its values and rules.narrow does not ask for that.
// before: the decision for the matrix that this one replaces; kept where the dispatch key is the same and the kernel fits.
template <class T>
ChosenProduct<T> choose_product(const DeviceCsr<T>& a, const HostOffsets& offsets, const ChoiceRules& rules, const ProductDecision* before,
                                const CudaContext& context);

// Median seconds of run(), which queues work on the context's stream, over `repeats` runs after `warm_up` runs; times by events. Where the first two
// take more than too_slow, the lesser of theirs.
double median_seconds(const std::function<void()>& run, int warm_up, int repeats, const CudaContext& context,
                      double too_slow = std::numeric_limits<double>::infinity());
// The same of one product y <- A x + y; vectors of zeros.
template <class T>
double time_product(const DeviceCsr<T>& a, const CsrProduct<T>& product, int warm_up, int repeats, const CudaContext& context,
                    double too_slow = std::numeric_limits<double>::infinity());

}  // namespace lsmr::cuda
