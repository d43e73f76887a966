#include <fmt/format.h>
#include <omp.h>

#include "operator/cuda/cuda_operators.hpp"
#include "solver/cuda/cuda_backend.hpp"
#include "solver/cuda/cuda_inverse.hpp"
#include "solver/cuda/cuda_sketch.hpp"
#include "solver/cuda/small_problem.hpp"
#include "solver/drive_matrix.hpp"
#include "solver/solve_cuda.hpp"

namespace lsmr {
namespace detail {
namespace {

template <class T>
class CudaEngine final : public Engine {
  public:
    CudaEngine(const EngineMatrix& a, const PrepareOptions& options)
        : options_(options), context_(options.device_index, options.gpu_memory_limit_bytes) {
        SetupSeconds setup;
        clock_.lap(setup.context);
        update(a);
        info_.plan.setup += setup;
        info_.device = DeviceKind::cuda;
        info_.device_name = context_.device_name();
        if (context_.pool().backend() == MemoryPool::Backend::plain) {
            info_.notes.push_back("this device has no memory pools: cudaMalloc is used");
        }
    }

    void update(const EngineMatrix& a) override {
        const DeviceScope scope(context_.device());
        SetupClock clock;
        SetupSeconds setup;
        double of_operators = 0;  // they have clocks of their own
        const auto lap = [&](double& phase) {
            context_.synchronize();
            clock.lap(phase);
        };
        a_ = a;
        k_.reset();
        sketch_.reset();
        if (operator_ && a.sized && keeps_exponent(a, options_.precision, operator_->exponent())) {
            operator_->update(a.working);
            if (below_) below_->update(a.below);
        } else {
            make_operators(setup);
        }
        setup += operator_->plan().setup;
        if (below_) setup += below_->plan().setup;
        clock.lap(of_operators);
        const std::vector<std::int32_t> order = column_order();
        if (a.preconditioner) k_ = make_cuda_operator<T>(a.preconditioner->k, context_, small_operator_options(options_, 0, order, order));
        if (a.sketch) {
            sketch_ = std::make_unique<CudaSketch>(a.sketch, context_);
            k_ = sketch_->template inverse<T>(order);
        }
        if (a.cholesky) k_ = make_cuda_inverse<T>(*a.cholesky, order, context_);
        lap(setup.preconditioner);
        if (!backend_) {
            check_vectors_fit();
            backend_ = std::make_unique<CudaBackend<T>>(stack_ ? *stack_ : static_cast<const LinearOperator<T>&>(*operator_), context_, operator_->order());
        }
        if (k_) backend_->set_preconditioner(*k_);
        lap(setup.buffers);
        choose_executor();
        lap(setup.executor);
        // The products are those of a rounded matrix: the truth is on the host.
        if (kNarrow || options_.narrow == NarrowKind::fp32_values) audit_ = std::make_unique<HostAudit>(*a_.working, a_.below.get());
        lap(setup.buffers);
        context_.pool().trim(vector_bytes());  // what only the setup needed, and a solve does not
        lap(setup.release);
        info_.plan = operator_->plan();
        info_.plan.setup = setup;
        info_.order = operator_->order();
        info_.threads = omp_get_max_threads();
    }

    SolveResult solve(std::span<const double> b, std::span<const double> linear, std::span<double> x, const SolveOptions& options,
                      bool use_x0, Observer* observer, const Resumption& resumption) override {
        const DeviceScope scope(context_.device());
        if (options_.executor == ExecutorKind::persistent) check_persistent(options, use_x0, !linear.empty());
        DriveProblem problem = drive_problem(a_, b, linear, x, use_x0, audit_.get(), resumption, options.damp, options_.preconditioner_damp);
        std::vector<double> guess;
        if (sketch_ && linear.empty() && options.damp == options_.preconditioner_damp) {
            guess = sketch_solution(*sketch_, a_, b, use_x0 ? std::span<const double>(x) : std::span<const double>(), options,
                                    options_.preconditioner_damp);
            problem.guess = guess;
        }
        return drive(*backend_, problem, options, resolved_conlim(options, options_.precision), observer);
    }
    void add_kept(std::span<const double> y, std::span<double> x) override {
        const DeviceScope scope(context_.device());
        add_kept_vectors(*backend_, y, x);
    }
    const EngineMatrix& engine_matrix() const override { return a_; }
    const CsrMatrix& matrix() const override { return *a_.original; }
    const PreparedInfo& info() const override { return info_; }
    MemoryUse memory() const override {
        const MemoryPool& pool = context_.pool();
        return {pool.live_bytes(), pool.peak_bytes(), pool.reserved_bytes()};
    }

  private:
    static constexpr bool kNarrow = sizeof(T) < sizeof(double);

    // setup: of operators that were made in vain.
    void make_operators(SetupSeconds& setup) {
        backend_.reset();
        stack_.reset();
        operator_.reset();
        below_.reset();
        const int exponent = narrowing_exponent(a_, options_.precision);
        operator_ = make_cuda_operator<T>(*a_.working, context_, operator_options(options_, exponent));
        if (!a_.sized) {
            a_ = sized(a_, *operator_->plan().entries);
            // Seldom: the largest of all entries is far from the largest of some.
            if (a_.exponent != 0 || !keeps_exponent(a_, options_.precision, exponent)) {
                setup += operator_->plan().setup;
                return make_operators(setup);
            }
        }
        if (a_.below) {
            below_ = make_cuda_operator<T>(*a_.below, context_, small_operator_options(options_, exponent, {}, column_order()));
            one_ = DeviceBuffer<Coefficient<T>>(context_, 1);
            Coefficient<T> one;
            set(one, 1.0);
            LSMR_CHECK(cudaMemcpyAsync(one_.data(), &one, sizeof(one), cudaMemcpyHostToDevice, context_.stream()));
            context_.synchronize();
            stack_ = std::make_unique<StackedOperator<T>>(*operator_, *below_, one_.data());
        }
    }

    std::vector<std::int32_t> column_order() const { return operator_->order() ? operator_->order()->col : std::vector<std::int32_t>(); }
    // The persistent kernel where it can run and is taken to be faster, or was asked for.
    void choose_executor() {
        backend_->set_small_problem(nullptr);
        small_.reset();
        const std::string why_not = options_.executor == ExecutorKind::graph ? "asked for" : make_small_problem(operator_->exponent());
        if (why_not.empty()) {
            info_.executor = ExecutorKind::persistent;
            return;
        }
        if (options_.executor == ExecutorKind::persistent) throw InputError("the persistent executor is refused: " + why_not);
        info_.executor = ExecutorKind::graph;
        info_.executor_words = "kernels in a graph: " + why_not;
    }
    // Why there is none; empty where it was made.
    std::string make_small_problem(int exponent) {
        const bool asked = options_.executor == ExecutorKind::persistent;
        if (a_.below) return "the regularising rows are an operator of their own";
        if (k_) return "there is a preconditioner";
        if (operator_->order()) return "rows and columns are reordered";
        if (options_.narrow == NarrowKind::fp32_values) return "values are to be rounded in storage";
        if (!asked && operator_->plan().storage == StorageKind::single) return "A is stored once";
        if (!asked && operator_->plan().storage == StorageKind::one_pass) return "one pass gives both products";
        if (!asked && (options_.spmv != SpmvKind::automatic || options_.forward_kernel || options_.adjoint_kernel)) {
            return "kernels of the products are asked for";
        }
        const CsrMatrix& a = *a_.working;
        const std::int64_t most = asked ? cuda::kMax32 : kMostSmallEntries;
        if (a.nnz() > most) return fmt::format("A has {} nonzeros, more than {}", a.nnz(), most);
        const auto no_room_for = [this](std::int64_t bytes) -> std::string {
            const std::int64_t needed = bytes + vector_bytes();
            const std::int64_t free_bytes = context_.free_bytes();
            if (needed <= free_bytes) return {};
            return fmt::format("A once more, beside the vectors, needs {}, {} is free", format_bytes(needed), format_bytes(free_bytes));
        };
        if (std::string why = no_room_for(small_matrix_bytes<T>(a.rows(), a.cols(), a.nnz())); !why.empty()) return why;
        const SmallMatrix<T> matrix(a, exponent, context_);
        const SmallPlan plan = matrix.plan(persistent_limits(context_.device()));
        if (!plan.impossible.empty()) return plan.impossible;
        if (!asked && !plan.unwise.empty()) return plan.unwise;
        if (std::string why = no_room_for(plan.device_bytes); !why.empty()) return why;
        small_ = std::make_unique<SmallProblem<T>>(matrix, plan, context_);
        backend_->set_small_problem(small_.get());
        info_.executor_words = plan.words();
        return {};
    }
    // What the kernel does not have; a restart on a damped problem still takes the graph.
    void check_persistent(const SolveOptions& options, bool use_x0, bool with_linear) const {
        const auto refuse = [](const std::string& why) { throw InputError("the persistent executor is refused: " + why); };
        if (options.method == Method::cg) refuse("it runs lsmr, lsqr and cgls, not cg");
        if (with_linear) refuse("it has no linear term");
        if (options.trust_radius > 0) refuse("it has no trust radius");
        if (options.estimate_variances) refuse("it estimates no variances");
        if (options.reorthogonalize != 0) refuse("it keeps no vectors to orthogonalise to");
        const bool any_center = options.method == Method::cgls || options.damp_center == DampCenter::x0 || (options.damp_center == DampCenter::zero && !use_x0);
        if (options.damp > 0 && !any_center) refuse("the damping is around another point than the start, so that it becomes rows of A");
        if (options.damp > 0 && !a_.column_scale.empty()) refuse("the damping of scaled columns becomes rows of A");
    }
    std::int64_t vector_bytes() const {
        constexpr std::int64_t kRowVectors = 3;
        const std::int64_t col_vectors = k_ ? 12 : 10;
        const std::int64_t m = a_.original->rows() + (a_.below ? a_.below->rows() : 0);
        return (kRowVectors * m + col_vectors * a_.original->cols()) * static_cast<std::int64_t>(sizeof(T));
    }
    // Known before the solve, so that it does not fail in the middle: the most vectors that a method and the audit use.
    void check_vectors_fit() {
        const std::int64_t needed = vector_bytes();
        const std::int64_t free_bytes = context_.free_bytes();
        if (needed > free_bytes) {
            throw OutOfMemory(needed, context_.pool().live_bytes(), free_bytes, "the vectors of a solve need that much beside the matrix");
        }
    }

    SetupClock clock_;  // of the making of the context
    EngineMatrix a_;
    PrepareOptions options_;
    CudaContext context_;
    std::unique_ptr<MatrixOperator<T>> operator_;
    std::unique_ptr<MatrixOperator<T>> below_;  // rows that regularise
    std::unique_ptr<CudaSketch> sketch_;
    std::unique_ptr<LinearOperator<T>> k_;      // of the preconditioner
    DeviceBuffer<Coefficient<T>> one_{context_, 0};
    std::unique_ptr<LinearOperator<T>> stack_;  // of both
    std::unique_ptr<SmallProblem<T>> small_;
    std::unique_ptr<CudaBackend<T>> backend_;
    std::unique_ptr<HostAudit> audit_;
    PreparedInfo info_;
};

}  // namespace

std::unique_ptr<Engine> make_cuda_engine(const EngineMatrix& a, const PrepareOptions& options) {
    if (options.precision == Precision::fp64) return std::make_unique<CudaEngine<double>>(a, options);
    return std::make_unique<CudaEngine<float>>(a, options);
}

}  // namespace detail

template <class T>
SolveResult solve(const LinearOperator<T>& a, CudaContext& context, std::span<const double> b, std::span<double> x,
                  const SolveOptions& options, bool use_x0, Observer* observer, const LinearOperator<T>* k) {
    const SolveOptions resolved = resolved_options(options, a.rows(), a.cols(), nullptr);
    if (a.space() != Space::cuda) throw InputError("solve: this operator works in host memory");
    if (static_cast<std::int64_t>(b.size()) != a.rows() || static_cast<std::int64_t>(x.size()) != a.cols()) {
        throw InputError(fmt::format("solve: b has {} entries and x {}, A is {} x {}", b.size(), x.size(), a.rows(), a.cols()));
    }
    check_finite(b, "b");
    if (use_x0) check_finite(x, "x0");
    const DeviceScope scope(context.device());
    CudaBackend<T> backend(a, context);
    if (k != nullptr) {
        detail::check_preconditioner(*k, a, resolved);
        backend.set_preconditioner(*k);
    }
    DriveProblem problem;
    problem.b = b;
    problem.data_rows = a.rows();
    problem.x = x;
    problem.use_x0 = use_x0;
    const Precision precision = sizeof(T) == sizeof(double) ? Precision::fp64 : Precision::fp32;
    return detail::drive(backend, problem, resolved, resolved_conlim(resolved, precision), observer);
}
template SolveResult solve(const LinearOperator<double>&, CudaContext&, std::span<const double>, std::span<double>, const SolveOptions&, bool,
                           Observer*, const LinearOperator<double>*);
template SolveResult solve(const LinearOperator<float>&, CudaContext&, std::span<const double>, std::span<double>, const SolveOptions&, bool,
                           Observer*, const LinearOperator<float>*);

}  // namespace lsmr
