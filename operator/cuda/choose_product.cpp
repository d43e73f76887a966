#include "operator/cuda/choose_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "operator/cuda/profile.hpp"
#include "operator/dispatch.hpp"

namespace lsmr::cuda {
namespace {

int compute_capability(const CudaContext& context) {
    int major = 0, minor = 0;
    LSMR_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, context.device()));
    LSMR_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, context.device()));
    return 10 * major + minor;
}

struct Events {
    cudaEvent_t start = nullptr;
    cudaEvent_t end = nullptr;
    Events() {
        LSMR_CHECK(cudaEventCreate(&start));
        LSMR_CHECK(cudaEventCreate(&end));
    }
    ~Events() {
        if (start) LSMR_CHECK_NOTHROW(cudaEventDestroy(start));
        if (end) LSMR_CHECK_NOTHROW(cudaEventDestroy(end));
    }
    Events(const Events&) = delete;
    Events& operator=(const Events&) = delete;
};

// A candidate that takes so many times as long as the best one's median, twice, is not run again.
constexpr double kHopeless = 1.25;

bool is_cusparse(const SpmvChoice& choice) {
    return choice.kernel == SpmvKernel::cusparse_alg1 || choice.kernel == SpmvKernel::cusparse_alg2 || choice.kernel == SpmvKernel::cusparse_transposed;
}

// The candidates that the rules leave.
std::vector<Candidate> permitted(const DispatchKey& key, const ChoiceRules& rules) {
    if (rules.forced) return {{*rules.forced, "asked for"}};
    if (rules.kind == SpmvKind::cusparse) {
        SpmvChoice cusparse;
        cusparse.kernel = SpmvKernel::cusparse_alg2;
        return {{cusparse, "asked for"}};
    }
    std::vector<Candidate> candidates = spmv_candidates(key, rules.expected_products);
    if (rules.kind == SpmvKind::own) std::erase_if(candidates, [](const Candidate& c) { return is_cusparse(c.choice); });
    if (rules.narrow == NarrowKind::lossless) return candidates;
    if (rules.narrow == NarrowKind::fp32_values) std::erase_if(candidates, [](const Candidate& c) { return !takes_narrow_values(c.choice); });
    for (Candidate& candidate : candidates) {
        candidate.choice.narrow_columns = candidate.choice.narrow_columns && rules.narrow != NarrowKind::none;
        candidate.choice.values = ValueForm::as_vectors;
        if (rules.narrow == NarrowKind::fp32_values && key.type == VectorType::fp64) candidate.choice.values = ValueForm::fp32;
    }
    return candidates;
}

}  // namespace

double median_seconds(const std::function<void()>& run, int warm_up, int repeats, const CudaContext& context, double too_slow) {
    const Events events;
    for (int i = 0; i < warm_up; ++i) run();
    std::vector<float> times(static_cast<std::size_t>(std::max(repeats, 1)));
    float least = std::numeric_limits<float>::infinity();
    int runs = 0;
    for (float& milliseconds : times) {
        LSMR_CHECK(cudaEventRecord(events.start, context.stream()));
        run();
        LSMR_CHECK(cudaEventRecord(events.end, context.stream()));
        LSMR_CHECK(cudaEventSynchronize(events.end));
        LSMR_CHECK(cudaEventElapsedTime(&milliseconds, events.start, events.end));
        least = std::min(least, milliseconds);
        if (++runs == 2 && 1e-3 * static_cast<double>(least) > too_slow) return 1e-3 * static_cast<double>(least);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return 1e-3 * static_cast<double>(times[times.size() / 2]);
}

template <class T>
double time_product(const DeviceCsr<T>& a, const CsrProduct<T>& product, int warm_up, int repeats, const CudaContext& context, double too_slow) {
    DeviceBuffer<T> x(context, a.cols), y(context, a.rows);
    DeviceBuffer<Coefficient<T>> one(context, 1);
    DeviceBuffer<double> partials(context, product.partials());
    const Coefficient<T> host_one{1, 1};
    LSMR_CHECK(cudaMemcpyAsync(one.data(), &host_one, sizeof host_one, cudaMemcpyHostToDevice, context.stream()));
    LSMR_CHECK(cudaMemsetAsync(x.data(), 0, static_cast<std::size_t>(x.bytes()), context.stream()));
    LSMR_CHECK(cudaMemsetAsync(y.data(), 0, static_cast<std::size_t>(y.bytes()), context.stream()));
    const auto scratch = product.make_scratch(context);
    return median_seconds([&] { product.run(one.data(), x.data(), one.data(), y.data(), partials.data(), *scratch); }, warm_up, repeats, context, too_slow);
}

template <class T>
ChosenProduct<T> choose_product(const DeviceCsr<T>& a, const HostOffsets& offsets, const ChoiceRules& rules, const ProductDecision* before,
                                const CudaContext& context) {
    OrientationProfile profile;
    a.with_offsets([&](const auto* device) { profile = profile_on_device(a.rows, a.cols, a.nnz, device, a.columns->data(), a.values->data(), context); });
    const DispatchKey key = make_dispatch_key(profile, sizeof(T) == sizeof(double) ? VectorType::fp64 : VectorType::fp32, compute_capability(context));

    ChosenProduct<T> chosen;
    chosen.decision.key = text(key);
    const auto rounds = [&](const SpmvChoice& choice) {
        return (choice.values == ValueForm::bf16 && !profile.exact_bf16) || (choice.values == ValueForm::fp32 && sizeof(T) == sizeof(double) && !profile.exact_fp32);
    };
    // Rounding is never silent: the residuals at the end of a solve would be those of another matrix.
    if (rules.forced && rules.narrow != NarrowKind::fp32_values && rounds(*rules.forced)) {
        throw InputError(fmt::format("{} would round the values of A, which its stored form does not hold exactly", text(*rules.forced)));
    }
    if (before != nullptr && before->choice && before->key == chosen.decision.key) {
        try {
            chosen.product = make_csr_product(a, offsets, profile.longest, *before->choice, context);
            chosen.decision = *before;
            chosen.rounded_values = rounds(*before->choice);
            return chosen;
        } catch (const InputError&) {
            // What the key took from a sample of the matrix before does not hold for this one: chosen anew, as below.
        } catch (const OutOfMemory&) {
        }
    }

    const std::vector<Candidate> candidates = permitted(key, rules);
    const bool time = rules.timing && candidates.size() > 1 && a.nnz >= kEntriesForTiming;
    double best_seconds = 0;
    double budget = kTimingSeconds;
    for (const Candidate& candidate : candidates) {
        ProductDecision::Timing timing{text(candidate.choice), candidate.reason, 0};
        if (chosen.product != nullptr && (!time || budget <= 0)) {
            chosen.decision.candidates.push_back(timing);
            continue;
        }
        if (chosen.product != nullptr && is_cusparse(candidate.choice) && !context.has_cusparse()) {
            timing.reason += "; not tried: loading cuSPARSE takes as long as all timing may";
            chosen.decision.candidates.push_back(timing);
            continue;
        }
        std::unique_ptr<CsrProduct<T>> product;
        try {
            auto start = std::chrono::steady_clock::now();
            product = make_csr_product(a, offsets, profile.longest, candidate.choice, context);
            if (chosen.product == nullptr) start = std::chrono::steady_clock::now();  // one is made in any case
            if (time) {
                const double too_slow = best_seconds > 0 ? kHopeless * best_seconds : std::numeric_limits<double>::infinity();
                timing.seconds = time_product(a, *product, 1, 5, context, too_slow);
                budget -= std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            }
        } catch (const InputError& error) {
            // What the profile took from a sample may not hold for all of the matrix; a GPU may have less shared memory than the one of the model.
            if (rules.forced || (!is_format(candidate.choice) && candidate.choice.kernel != SpmvKernel::window)) throw;
            timing.reason += fmt::format("; {}", error.what());
            chosen.decision.candidates.push_back(timing);
            continue;
        } catch (const OutOfMemory&) {
            if (rules.forced) throw;
            timing.reason += "; no memory for it";
            chosen.decision.candidates.push_back(timing);
            continue;
        }
        if (time && rules.expected_products > 0 && best_seconds == 0) {
            budget = std::min(budget, kTimingShare * static_cast<double>(rules.expected_products) * timing.seconds);
        }
        if (time && candidate.choice.kernel == SpmvKernel::window && timing.seconds * kWindowGainAtOnce <= predict_window(key).others_seconds) budget = 0;
        chosen.decision.candidates.push_back(timing);
        if (chosen.product == nullptr || timing.seconds < best_seconds) {
            chosen.product = std::move(product);
            chosen.decision.choice = candidate.choice;
            chosen.decision.reason = candidate.reason;
            best_seconds = timing.seconds;
        }
    }
    if (chosen.product == nullptr) {
        // Nothing that needs arrays of its own had room.
        SpmvChoice plain;
        plain.threads = 128;
        plain.capacity = 1024;
        chosen.product = make_csr_product(a, offsets, profile.longest, plain, context);
        chosen.decision.choice = plain;
        chosen.decision.reason = "no memory for narrow forms";
    }
    if (time) chosen.decision.reason += fmt::format("; the fastest of those timed, {:.1f} us", 1e6 * best_seconds);
    chosen.rounded_values = rounds(*chosen.decision.choice);
    return chosen;
}

#define LSMR_INSTANTIATE(T)                                                                                                             \
    template double time_product(const DeviceCsr<T>&, const CsrProduct<T>&, int, int, const CudaContext&, double);                      \
    template ChosenProduct<T> choose_product(const DeviceCsr<T>&, const HostOffsets&, const ChoiceRules&, const ProductDecision*,        \
                                             const CudaContext&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
