#include "operator/cuda/product_bench.hpp"

#include <cusparse.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/cuda/choose_product.hpp"
#include "operator/cuda/device_csr.hpp"
#include "operator/cuda/profile.hpp"
#include "operator/cuda/vector_kernels.hpp"

namespace lsmr {
namespace {

template <class T>
std::vector<T> random_values(std::int64_t n, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::vector<T> v(static_cast<std::size_t>(n));
    for (T& value : v) value = static_cast<T>(static_cast<double>(static_cast<std::int64_t>(generator() >> 11)) * 0x1p-52 - 1.0);
    return v;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

template <class T>
struct ProductBench<T>::State {
    const CudaContext& context;
    const CsrMatrix& stored;
    cuda::DeviceCsr<T> a;
    DeviceBuffer<T> x, y, y0, first;
    DeviceBuffer<Coefficient<T>> coefficients;  // 1, -1/2
    // Rows that are checked: about kChecked entries in rows at even distances, and the longest row.
    static constexpr std::int64_t kChecked = std::int64_t{1} << 22;
    std::vector<std::int64_t> checked;
    std::vector<double> reference;  // their y, of the stored values rounded to T, added up in long double
    std::vector<double> unit;       // the rounding bound of each

    State(const CsrMatrix& matrix, const CudaContext& of)
        : context(of), stored(matrix), a(cuda::upload<T>(matrix, 0, of)), x(of, matrix.cols()), y(of, matrix.rows()),
          y0(of, matrix.rows()), first(of, matrix.rows()), coefficients(of, 3) {
        const std::vector<T> x0 = random_values<T>(matrix.cols(), 1);
        const std::vector<T> host_y0 = random_values<T>(matrix.rows(), 2);
        cuda::Uploader up(context);
        up(x.data(), x0.data(), matrix.cols(), [](T v) { return v; });
        up(y0.data(), host_y0.data(), matrix.rows(), [](T v) { return v; });
        const Coefficient<T> host[3] = {{1, 1}, {-0.5, T(-0.5)}, {-1, -1}};
        LSMR_CHECK(cudaMemcpyAsync(coefficients.data(), host, sizeof host, cudaMemcpyHostToDevice, context.stream()));
        constexpr double kEps = std::numeric_limits<T>::epsilon();
        const auto length = [&](std::int64_t i) { return matrix.offsets()[i + 1] - matrix.offsets()[i]; };
        const std::int64_t step = matrix.nnz() / kChecked + 1;
        std::int64_t longest = 0;
        for (std::int64_t i = 0; i < matrix.rows(); ++i) longest = length(i) > length(longest) ? i : longest;
        for (std::int64_t i = 0; i < matrix.rows(); i += step) checked.push_back(i);
        if (matrix.rows() > 0) checked.push_back(longest);
        for (const std::int64_t i : checked) {
            long double sum = -0.5L * host_y0[static_cast<std::size_t>(i)];
            long double size = std::abs(sum);
            for (std::int64_t k = matrix.offsets()[i]; k < matrix.offsets()[i + 1]; ++k) {
                const long double term = static_cast<long double>(static_cast<T>(matrix.values()[k])) * x0[static_cast<std::size_t>(matrix.columns()[k])];
                sum += term;
                size += std::abs(term);
            }
            reference.push_back(static_cast<double>(sum));
            unit.push_back(kEps * static_cast<double>(size) * static_cast<double>(length(i) + 2));
        }
        context.synchronize();
    }

    void copy(DeviceBuffer<T>& to, const DeviceBuffer<T>& from) {
        LSMR_CHECK(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(stored.rows()) * sizeof(T), cudaMemcpyDeviceToDevice, context.stream()));
    }
    // Whether y has the bits of `first`, which is then overwritten with the difference. (A difference of zeros of other signs passes.)
    bool y_is_first() {
        DeviceBuffer<double> partials(context, cuda::vector_blocks(stored.rows()));
        cuda::launch_axpby(stored.rows(), Scalar<T>(coefficients.data() + 2), 1.0, y.data(), Scalar<T>(coefficients.data()), first.data(), partials.data(),
                           context.stream());
        std::vector<double> sums(static_cast<std::size_t>(partials.size()));
        LSMR_CHECK(cudaMemcpyAsync(sums.data(), partials.data(), sums.size() * sizeof(double), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        return std::all_of(sums.begin(), sums.end(), [](double sum) { return sum == 0; });
    }
    HostBuffer<T> host_y() {
        HostBuffer<T> host(stored.rows());
        LSMR_CHECK(cudaMemcpyAsync(host.data(), y.data(), static_cast<std::size_t>(host.bytes()), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        return host;
    }
};

template <class T>
ProductBench<T>::ProductBench(const CsrMatrix& stored, const CudaContext& context) : state_(std::make_unique<State>(stored, context)) {}
template <class T>
ProductBench<T>::~ProductBench() = default;

template <class T>
OrientationProfile ProductBench<T>::profile() const {
    const cuda::DeviceCsr<T>& a = state_->a;
    OrientationProfile profile;
    a.with_offsets([&](const auto* offsets) {
        profile = profile_on_device(a.rows, a.cols, a.nnz, offsets, a.columns->data(), a.values->data(), state_->context);
    });
    return profile;
}

template <class T>
ProductMeasurement ProductBench<T>::measure(const ProductRequest& request, int warm_up, int repeats) {
    State& s = *state_;
    ProductMeasurement m;
    m.label = request.label;
    if (request.kernel) m.kernel = text(*request.kernel);
    try {
        cuda::ChoiceRules rules;
        rules.kind = request.kind;
        rules.narrow = request.narrow;
        rules.forced = request.kernel;
        rules.timing = request.timing;
        const auto start = std::chrono::steady_clock::now();
        cuda::ChosenProduct<T> chosen = cuda::choose_product<T>(s.a, {nullptr, s.stored.offsets()}, rules, nullptr, s.context);
        const auto scratch = chosen.product->make_scratch(s.context);
        s.context.synchronize();
        m.setup_seconds = seconds_since(start);
        m.decision = chosen.decision;
        if (request.kernel) m.decision.candidates.clear();  // there was no choice
        m.kernel = text(*chosen.decision.choice);
        m.words = chosen.product->words();
        m.bytes = chosen.product->bytes();
        m.idle_lanes = chosen.product->idle_lanes();
        const auto run = [&] { chosen.product->run(s.coefficients.data(), s.x.data(), s.coefficients.data() + 1, s.y.data(), nullptr, *scratch); };

        s.copy(s.y, s.y0);
        const auto first_run = std::chrono::steady_clock::now();
        run();
        s.context.synchronize();
        // A thread with a row of a million entries takes a second: three times tell as much as fifteen.
        constexpr double kSlow = 0.02;
        if (seconds_since(first_run) > kSlow) {
            warm_up = 0;
            repeats = std::min(repeats, 3);
        }
        const HostBuffer<T> y = s.host_y();
        for (std::size_t i = 0; i < s.checked.size(); ++i) {
            const double error = std::abs(static_cast<double>(y[s.checked[i]]) - s.reference[i]);
            if (std::isnan(error)) m.error = INFINITY;
            else if (error > 0) m.error = std::max(m.error, error / s.unit[i]);
        }
        for (int i = 0; i < 4 && m.repeatable; ++i) {
            s.copy(s.first, s.y);
            s.copy(s.y, s.y0);
            run();
            m.repeatable = s.y_is_first();
        }

        cudaEvent_t from = nullptr, to = nullptr;
        LSMR_CHECK(cudaEventCreate(&from));
        LSMR_CHECK(cudaEventCreate(&to));
        for (int i = 0; i < warm_up; ++i) run();
        std::vector<float> times(static_cast<std::size_t>(std::max(repeats, 1)));
        for (float& milliseconds : times) {
            LSMR_CHECK(cudaEventRecord(from, s.context.stream()));
            run();
            LSMR_CHECK(cudaEventRecord(to, s.context.stream()));
            LSMR_CHECK(cudaEventSynchronize(to));
            LSMR_CHECK(cudaEventElapsedTime(&milliseconds, from, to));
        }
        LSMR_CHECK(cudaEventDestroy(from));
        LSMR_CHECK(cudaEventDestroy(to));
        std::sort(times.begin(), times.end());
        m.seconds = 1e-3 * static_cast<double>(times[times.size() / 2]);
        m.least_seconds = 1e-3 * static_cast<double>(times.front());
        m.most_seconds = 1e-3 * static_cast<double>(times.back());
        s.context.synchronize();
        const auto calls = std::chrono::steady_clock::now();
        for (int i = 0; i < repeats; ++i) run();
        s.context.synchronize();
        m.call_seconds = seconds_since(calls) / std::max(repeats, 1);
    } catch (const InputError& error) {
        m.failure = error.what();
    } catch (const OutOfMemory& error) {
        m.failure = error.what();
    }
    return m;
}

std::string benchmark_device_text(const CudaContext& context) {
    int runtime = 0, cusparse = 0, l2 = 0, clock = 0, memory_clock = 0;
    LSMR_CHECK(cudaRuntimeGetVersion(&runtime));
    LSMR_CHECK(cusparseGetVersion(context.cusparse(), &cusparse));
    LSMR_CHECK(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, context.device()));
    LSMR_CHECK(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, context.device()));
    LSMR_CHECK(cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, context.device()));
    return fmt::format("{}, {} multiprocessors, {} MiB of L2, up to {} MHz, memory up to {} MHz; CUDA {}.{}, cuSPARSE {}.{}.{}", context.device_name(),
                       context.multiprocessors(), l2 >> 20, clock / 1000, memory_clock / 1000, runtime / 1000, runtime % 1000 / 10, cusparse / 1000,
                       cusparse % 1000 / 100, cusparse % 100);
}

template class ProductBench<double>;
template class ProductBench<float>;

}  // namespace lsmr
