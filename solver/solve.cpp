// PreparedProblem: checks, the choice of the device, and the fall-backs before a solve.
#include "solver/solve.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "memory/cuda_context.hpp"
#include "memory/error.hpp"
#include "solver/engine.hpp"
#include "solver/method_choice.hpp"
#include "solver/power_of_two.hpp"

namespace lsmr {
namespace detail {

EngineMatrix make_engine_matrix(std::shared_ptr<const CsrMatrix> a) {
    EngineMatrix m;
    m.original = std::move(a);
    m.working = m.original;
    m.max_abs = max_abs_value(*m.original);
    const int exponent = binary_exponent(m.max_abs);
    // Within these bounds products of entries with vectors of norm about 1 neither overflow nor lose digits to underflow, and the scale
    // is folded into the coefficients instead; beyond, the entries are scaled once, in a copy.
    constexpr int kLargest = 900;
    constexpr int kSmallest = -800;
    if (m.max_abs > 0 && (exponent > kLargest || exponent < kSmallest)) {
        CsrMatrix scaled = m.original->scaled_by_power_of_two(-exponent);
        m.max_abs = PowerOfTwo(-exponent)(m.max_abs);
        m.working = std::make_shared<const CsrMatrix>(std::move(scaled));
        m.exponent = -exponent;
    }
    m.frobenius = frobenius_norm(*m.working, m.max_abs);
    return m;
}

namespace {

// The engine that options ask for, with the fall-backs that they allow: dual -> single -> CPU, each one said.
std::unique_ptr<Engine> make_engine(const EngineMatrix& a, const PrepareOptions& options, std::vector<std::string>& notes) {
    if (options.device == DeviceKind::cpu) return make_cpu_engine(a, options);
    if (options.device == DeviceKind::automatic) {
        const CudaProbe probe = probe_cuda(options.device_index);
        if (!probe.usable) {
            if (probe.built_in) notes.push_back("running on the CPU: " + probe.reason);
            if (options.spmv == SpmvKind::cusparse) throw InputError("cuSPARSE products need a GPU: " + probe.reason);
            return make_cpu_engine(a, options);
        }
    }
    std::vector<PrepareOptions> attempts{options};
    // A forced choice is not overridden, and single storage has no fixed order on the GPU.
    if (options.storage == StorageKind::automatic && !options.deterministic && options.spmv != SpmvKind::own) {
        attempts.push_back(options);
        attempts.back().storage = StorageKind::single;
    }
    for (std::size_t i = 0; i < attempts.size(); ++i) {
        try {
            return make_cuda_engine(a, attempts[i]);
        } catch (const OutOfMemory& error) {
            const bool last = i + 1 == attempts.size();
            if (!options.allow_fallback || (last && options.device == DeviceKind::cuda)) throw;
            notes.push_back(fmt::format("{}; {}", error.what(),
                                        last ? "running on the CPU instead" : "storing A once instead (bits may vary between runs)"));
            if (last && options.spmv == SpmvKind::cusparse) throw;
        }
    }
    PrepareOptions cpu = options;
    cpu.device = DeviceKind::cpu;
    return make_cpu_engine(a, cpu);
}

void check_length(std::int64_t found, std::int64_t expected, const char* what, const CsrMatrix& a) {
    if (found != expected) throw InputError(fmt::format("solve: {} has {} entries, A is {} x {}", what, found, a.rows(), a.cols()));
}

}  // namespace
}  // namespace detail

void check_finite(std::span<const double> values, const char* what) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) throw InputError(fmt::format("{}: entry {} is {}, not a finite number", what, i + 1, values[i]));
    }
}

PreparedProblem::PreparedProblem(std::shared_ptr<const CsrMatrix> a, const PrepareOptions& options) {
    LSMR_EXPECT(a != nullptr);
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::string> notes;
    engine_ = detail::make_engine(detail::make_engine_matrix(std::move(a)), options, notes);
    info_ = engine_->info();
    info_.notes.insert(info_.notes.begin(), notes.begin(), notes.end());
    info_.setup_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
PreparedProblem::~PreparedProblem() = default;
PreparedProblem::PreparedProblem(PreparedProblem&&) noexcept = default;
PreparedProblem& PreparedProblem::operator=(PreparedProblem&&) noexcept = default;

SolveResult PreparedProblem::solve(std::span<const double> b, std::span<double> x, const SolveOptions& options, bool use_x0,
                                   Observer* observer) {
    const SolveOptions resolved = resolved_options(options, matrix().rows(), matrix().cols(), &matrix());
    detail::check_length(static_cast<std::int64_t>(b.size()), matrix().rows(), "b", matrix());
    detail::check_length(static_cast<std::int64_t>(x.size()), matrix().cols(), "x", matrix());
    check_finite(b, "b");
    if (use_x0) check_finite(x, "x0");
    return engine_->solve(b, x, resolved, use_x0, observer);
}

std::vector<SolveResult> PreparedProblem::solve_many(std::span<const double> b, std::span<double> x, std::int64_t k,
                                                     const SolveOptions& options, bool use_x0, Observer* observer) {
    if (k < 0) throw InputError(fmt::format("solve: {} right-hand sides", k));
    const auto rows = static_cast<std::size_t>(matrix().rows());
    const auto cols = static_cast<std::size_t>(matrix().cols());
    detail::check_length(static_cast<std::int64_t>(b.size()), matrix().rows() * k, "b", matrix());
    detail::check_length(static_cast<std::int64_t>(x.size()), matrix().cols() * k, "x", matrix());
    std::vector<SolveResult> results;
    for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
        results.push_back(solve(b.subspan(j * rows, rows), x.subspan(j * cols, cols), options, use_x0, observer));
        if (results.back().status == Status::stopped) break;  // the columns after it were not asked for any more
    }
    return results;
}

MethodChoice PreparedProblem::choose_method(const SolveOptions& options) const {
    return lsmr::choose_method(options, matrix().rows(), matrix().cols(), &matrix());
}
const CsrMatrix& PreparedProblem::matrix() const { return engine_->matrix(); }
const PreparedInfo& PreparedProblem::info() const { return info_; }
MemoryUse PreparedProblem::memory() const { return engine_->memory(); }

}  // namespace lsmr
