// Solvers under test that need no CUDA of their own: ours, through the library's front door, and Eigen's.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigen_dual.hpp"
#include "memory/error.hpp"
#include "solver_under_test.hpp"
#include "stopwatch.hpp"

namespace lsmr {
namespace {

class Ticker final : public Observer {
  public:
    explicit Ticker(BlockClock& clock) : clock_(clock) {}
    Verdict on_iterations(std::span<const IterationRecord> records) override {
        if (!records.empty()) done_ = records.back().iteration;
        return clock_.tick(done_) ? Verdict::go_on : Verdict::stop;
    }

  private:
    BlockClock& clock_;
    std::int64_t done_ = 0;
};

class OurSolver final : public SolverUnderTest {
  public:
    explicit OurSolver(std::shared_ptr<PreparedProblem> problem) : problem_(std::move(problem)) {}
    SolverRun run(std::span<const double> b, std::span<double> x, const RunLimits& limits, BlockClock* clock) override {
        SolveOptions options;
        options.atol = options.btol = options.conlim = 0;
        options.stall_window = 0;
        options.ar_bound = limits.ar_bound;
        // Tests that must pass more often than there are iterations never stop.
        if (limits.ar_bound == 0) options.passes = std::numeric_limits<std::int64_t>::max();
        options.max_iterations = limits.iterations;
        options.time_limit_seconds = limits.seconds;
        SolveResult result;
        if (clock != nullptr) {
            Ticker ticker(*clock);
            result = problem_->solve(b, x, options, false, &ticker);
        } else {
            result = problem_->solve(b, x, options);
        }
        return {result.iterations, result.solve_seconds};
    }
    SetupSeconds setup() const override { return problem_->info().plan.setup; }
    double setup_seconds() const override { return problem_->info().setup_seconds; }
    std::string words() const override {
        const PreparedInfo& info = problem_->info();
        std::string words = fmt::format("A x: {}; A^T y: {}", info.plan.forward, info.plan.adjoint);
        if (info.executor == ExecutorKind::persistent) words = info.executor_words;
        const OrderDecision& order = info.plan.order;
        if (!order.reason.empty()) words += fmt::format("; order {}: {}, {:.0f} ms", name(order.kind), order.reason, 1e3 * order.setup_seconds);
        for (const OrderDecision::Candidate& candidate : order.candidates) {
            words += fmt::format("; {}: {:.0f} us predicted, {:.0f} measured, {:.0f} ms", name(candidate.kind), 1e6 * candidate.predicted_seconds,
                                 1e6 * candidate.measured_seconds, 1e3 * candidate.seconds);
        }
        return words;
    }
    bool on_gpu() const override { return problem_->info().device == DeviceKind::cuda; }
    bool is_lsmr() const override { return true; }

  private:
    std::shared_ptr<PreparedProblem> problem_;
};

// The values of a matrix in another type; the matrix's own where it is the same.
template <class T>
class ValuesAs {
  public:
    explicit ValuesAs(const CsrMatrix& a) : own_(a.values(), static_cast<std::size_t>(a.nnz())) {
        if constexpr (!std::is_same_v<T, double>) converted_.assign(own_.begin(), own_.end());
    }
    std::span<const T> get() const {
        if constexpr (std::is_same_v<T, double>) return own_;
        else return converted_;
    }

  private:
    std::span<const double> own_;
    std::vector<T> converted_;
};

template <class T>
class EigenSolver final : public SolverUnderTest {
    using Vector = Eigen::Vector<T, Eigen::Dynamic>;

  public:
    explicit EigenSolver(const CsrMatrix& a)
        : transposed_(transpose(a, setup_.transpose)),
          a_values_(a),
          at_values_(transposed_),
          a_(a, a_values_.get()),
          at_(transposed_, at_values_.get()) {
        preconditioner_.compute(a_.view());
        setup_seconds_ = watch_.seconds();
    }
    SolverRun run(std::span<const double> b, std::span<double> x, const RunLimits& limits, BlockClock* clock) override {
        const Stopwatch watch;
        const Vector eigen_b = Eigen::Map<const Eigen::VectorXd>(b.data(), static_cast<Eigen::Index>(b.size())).template cast<T>();
        Vector eigen_x = Vector::Zero(static_cast<Eigen::Index>(x.size()));
        std::int64_t products = 0;  // so far; the first forms the residual
        const std::function<bool()> should_stop = [&] {
            const std::int64_t done = std::max<std::int64_t>(products++ - 1, 0);
            return (clock != nullptr && !clock->tick(done)) || watch.seconds() >= limits.seconds;
        };
        const View a = a_.view();
        const View at = at_.view();
        const EigenDual<T> dual(a, at, should_stop);
        Eigen::Index iterations = static_cast<Eigen::Index>(limits.iterations);
        T tolerance = 0;  // on ||A^T r|| / ||A^T b||
        if (limits.ar_bound > 0) tolerance = static_cast<T>(limits.ar_bound / static_cast<double>((at * eigen_b).eval().norm()));
        try {
            Eigen::internal::least_square_conjugate_gradient(dual, eigen_b, eigen_x, preconditioner_, iterations, tolerance);
        } catch (const typename EigenDual<T>::Stopped&) {
            // x is that of the last iteration.
        }
        for (std::size_t j = 0; j < x.size(); ++j) x[j] = static_cast<double>(eigen_x[static_cast<Eigen::Index>(j)]);
        return {dual.products_in_loop(), watch.seconds()};
    }
    SetupSeconds setup() const override { return setup_; }
    double setup_seconds() const override { return setup_seconds_; }
    std::string words() const override {
        return fmt::format("Eigen {}.{}.{}, LeastSquaresConjugateGradient, diagonal preconditioner", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION,
                           EIGEN_MINOR_VERSION);
    }
    bool on_gpu() const override { return false; }
    bool is_lsmr() const override { return false; }

  private:
    using View = typename EigenArrays<T>::View;
    static CsrMatrix transpose(const CsrMatrix& a, double& seconds) {
        constexpr std::int64_t kMost = std::numeric_limits<int>::max();
        if (a.nnz() > kMost) throw InputError(fmt::format("Eigen's sparse matrix has 32-bit indices, and {} entries do not fit", a.nnz()));
        const Stopwatch watch;
        CsrMatrix at = a.transposed();
        seconds = watch.seconds();
        return at;
    }

    Stopwatch watch_;
    SetupSeconds setup_;
    double setup_seconds_ = 0;
    CsrMatrix transposed_;
    ValuesAs<T> a_values_;
    ValuesAs<T> at_values_;
    EigenArrays<T> a_;
    EigenArrays<T> at_;
    Eigen::LeastSquareDiagonalPreconditioner<T> preconditioner_;
};

}  // namespace

std::unique_ptr<SolverUnderTest> make_our_solver(std::shared_ptr<PreparedProblem> problem) { return std::make_unique<OurSolver>(std::move(problem)); }

std::unique_ptr<SolverUnderTest> make_eigen_solver(const CsrMatrix& a, Precision precision) {
    if (precision == Precision::fp64) return std::make_unique<EigenSolver<double>>(a);
    return std::make_unique<EigenSolver<float>>(a);
}

}  // namespace lsmr
