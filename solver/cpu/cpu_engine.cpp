#include <omp.h>

#include <algorithm>

#include "operator/matrix_operator.hpp"
#include "solver/cpu/cpu_backend.hpp"
#include "solver/drive_matrix.hpp"
#include "solver/solve.hpp"

namespace lsmr {
namespace detail {
namespace {

// --threads for the time of a call; the caller's setting comes back after.
class ThreadScope {
  public:
    explicit ThreadScope(int threads) : previous_(omp_get_max_threads()) {
        if (threads > 0) omp_set_num_threads(threads);
    }
    ~ThreadScope() { omp_set_num_threads(previous_); }
    ThreadScope(const ThreadScope&) = delete;
    ThreadScope& operator=(const ThreadScope&) = delete;

  private:
    int previous_;
};

template <class T>
class CpuEngine final : public Engine {
  public:
    CpuEngine(const EngineMatrix& a, const PrepareOptions& options) : options_(options) {
        update(a);
        info_.device = DeviceKind::cpu;
        info_.device_name = "CPU";
    }

    void update(const EngineMatrix& a) override {
        const ThreadScope threads(options_.threads);
        a_ = a;
        if (operator_ && keeps_exponent(a, options_.precision, operator_->exponent())) {
            operator_->update(a.working);
            if (below_) below_->update(a.below);
        } else {
            make_operators();
        }
        SetupSeconds setup = operator_->plan().setup;
        if (below_) setup += below_->plan().setup;
        SetupClock clock;
        k_.reset();
        const std::vector<std::int32_t> order = column_order();
        if (a.preconditioner) {
            k_ = make_cpu_operator<T>(std::shared_ptr<const CsrMatrix>(a.preconditioner, &a.preconditioner->k),
                                      small_operator_options(options_, 0, order, order));
        }
        if (a.sketch) {
            if (!a_.host_sketch) a_.host_sketch = std::make_shared<const Sketch>(a.sketch);
            k_ = a_.host_sketch->template inverse<T>(order);
        }
        if (a.cholesky) k_ = a.cholesky->template inverse<T>(order);
        if (k_) backend_->set_preconditioner(*k_);
        clock.lap(setup.preconditioner);
        if (kNarrow) audit_ = std::make_unique<HostAudit>(*a.working, a.below.get());
        info_.plan = operator_->plan();
        info_.plan.setup = setup;
        info_.order = operator_->order();
        info_.threads = omp_get_max_threads();
        const std::int64_t most = std::min(omp_get_max_threads(), omp_get_num_procs());
        backend_->set_team(static_cast<int>(std::clamp<std::int64_t>(a.working->nnz() / kLeastEntries, 1, most)));
    }

    SolveResult solve(std::span<const double> b, std::span<const double> linear, std::span<double> x, const SolveOptions& options,
                      bool use_x0, Observer* observer, const Resumption& resumption) override {
        const ThreadScope threads(options_.threads);
        DriveProblem problem = drive_problem(a_, b, linear, x, use_x0, audit_.get(), resumption, options.damp, options_.preconditioner_damp);
        std::vector<double> guess;
        if (a_.sketch && linear.empty() && options.damp == options_.preconditioner_damp) {
            guess = sketch_solution(*a_.host_sketch, a_, b, use_x0 ? std::span<const double>(x) : std::span<const double>(), options,
                                    options_.preconditioner_damp);
            problem.guess = guess;
        }
        return drive(*backend_, problem, options, resolved_conlim(options, options_.precision), observer);
    }
    void add_kept(std::span<const double> y, std::span<double> x) override {
        add_kept_vectors(*backend_, y, x);
    }
    const EngineMatrix& engine_matrix() const override { return a_; }
    const CsrMatrix& matrix() const override { return *a_.original; }
    const PreparedInfo& info() const override { return info_; }
    MemoryUse memory() const override { return {}; }

  private:
    static constexpr bool kNarrow = sizeof(T) < sizeof(double);
    // Of a thread: with fewer, more threads wait for each other longer than they save.
    static constexpr std::int64_t kLeastEntries = 12 * 1024;

    void make_operators() {
        const int exponent = narrowing_exponent(a_, options_.precision);
        operator_ = make_cpu_operator<T>(a_.working, operator_options(options_, exponent));
        if (a_.below) {
            set(one_, 1.0);
            below_ = make_cpu_operator<T>(a_.below, small_operator_options(options_, exponent, {}, column_order()));
            stack_ = std::make_unique<StackedOperator<T>>(*operator_, *below_, &one_);
        }
        backend_ = std::make_unique<CpuBackend<T>>(stack_ ? *stack_ : static_cast<const LinearOperator<T>&>(*operator_), operator_->order());
    }
    std::vector<std::int32_t> column_order() const { return operator_->order() ? operator_->order()->col : std::vector<std::int32_t>(); }

    EngineMatrix a_;
    PrepareOptions options_;
    std::unique_ptr<MatrixOperator<T>> operator_;
    std::unique_ptr<MatrixOperator<T>> below_;  // rows that regularise
    std::unique_ptr<LinearOperator<T>> k_;      // of the preconditioner
    Coefficient<T> one_;
    std::unique_ptr<LinearOperator<T>> stack_;  // of both
    std::unique_ptr<CpuBackend<T>> backend_;
    std::unique_ptr<HostAudit> audit_;
    PreparedInfo info_;
};

}  // namespace

std::unique_ptr<Engine> make_cpu_engine(const EngineMatrix& a, const PrepareOptions& options) {
    if (options.precision == Precision::fp64) return std::make_unique<CpuEngine<double>>(a, options);
    return std::make_unique<CpuEngine<float>>(a, options);
}

}  // namespace detail

template <class T>
SolveResult solve(const LinearOperator<T>& a, std::span<const T> b, std::span<T> x, const SolveOptions& options, bool use_x0,
                  Observer* observer, const LinearOperator<T>* k) {
    const SolveOptions resolved = resolved_options(options, a.rows(), a.cols(), nullptr);
    if (a.space() != Space::host) throw InputError("solve: this operator works on the GPU; its vectors must lie there too");
    if (static_cast<std::int64_t>(b.size()) != a.rows() || static_cast<std::int64_t>(x.size()) != a.cols()) {
        throw InputError(fmt::format("solve: b has {} entries and x {}, A is {} x {}", b.size(), x.size(), a.rows(), a.cols()));
    }
    const std::vector<double> b_wide(b.begin(), b.end());
    std::vector<double> x_wide(x.begin(), x.end());
    check_finite(b_wide, "b");
    if (use_x0) check_finite(x_wide, "x0");
    CpuBackend<T> backend(a);
    if (k != nullptr) {
        detail::check_preconditioner(*k, a, resolved);
        backend.set_preconditioner(*k);
    }
    DriveProblem problem;
    problem.b = b_wide;
    problem.data_rows = a.rows();
    problem.x = x_wide;
    problem.use_x0 = use_x0;
    const Precision precision = sizeof(T) == sizeof(double) ? Precision::fp64 : Precision::fp32;
    const auto hand_over = [&] { std::transform(x_wide.begin(), x_wide.end(), x.begin(), [](double v) { return static_cast<T>(v); }); };
    try {
        const SolveResult result = detail::drive(backend, problem, resolved, resolved_conlim(resolved, precision), observer);
        hand_over();
        return result;
    } catch (...) {
        hand_over();
        throw;
    }
}
template SolveResult solve(const LinearOperator<double>&, std::span<const double>, std::span<double>, const SolveOptions&, bool, Observer*,
                           const LinearOperator<double>*);
template SolveResult solve(const LinearOperator<float>&, std::span<const float>, std::span<float>, const SolveOptions&, bool, Observer*,
                           const LinearOperator<float>*);

}  // namespace lsmr
