// The solver suite on a GPU, and what only a GPU has: the same answers as the CPU, no allocation in a loop, fall-backs, faults.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "cuda_support.hpp"
#include "data/generators.hpp"
#include "data/read.hpp"
#include "memory/cuda_check.hpp"
#include "memory/device_buffer.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator/cuda/vector_kernels.hpp"
#include "solver/cuda/cuda_backend.hpp"
#include "solver/lsmr.hpp"
#include "solver/solve_cuda.hpp"
#include "solver_suite.hpp"
#include "checkpoint_suite.hpp"
#include "preconditioner_suite.hpp"
#include "stop_suite.hpp"
#include "support/devices.hpp"
#include "transform_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;

TEST_CASE("cuda solver: SOL test family") { LSMR_NEEDS_GPU(); suite_lstp(gpu()); }
TEST_CASE("cuda solver: start centre and damping against dense answers") { LSMR_NEEDS_GPU(); suite_start_and_center(gpu()); }
TEST_CASE("cuda solver: damping is stacked rows") { LSMR_NEEDS_GPU(); suite_damping_is_stacked_rows(gpu()); }
TEST_CASE("cuda solver: a damping that dwarfs the matrix") { LSMR_NEEDS_GPU(); suite_damping_dwarfs_the_matrix(gpu()); }
TEST_CASE("cuda solver: permuted problem") { LSMR_NEEDS_GPU(); suite_permuted_problem(gpu()); }
TEST_CASE("cuda solver: methods meet") { LSMR_NEEDS_GPU(); suite_methods_meet(gpu()); }
TEST_CASE("cuda solver: equilibrated columns give the same x") { LSMR_NEEDS_GPU(); suite_equilibrated(gpu()); }
TEST_CASE("cuda solver: against LSCG of Eigen") { LSMR_NEEDS_GPU(); suite_against_eigen(gpu()); }
TEST_CASE("cuda solver: scaled by powers of two") { LSMR_NEEDS_GPU(); suite_scaled_by_powers_of_two(gpu()); }
TEST_CASE("cuda solver: scaled by powers of ten") { LSMR_NEEDS_GPU(); suite_scaled_by_powers_of_ten(gpu()); }
TEST_CASE("cuda solver: the largest entry is found late") { LSMR_NEEDS_GPU(); suite_hidden_largest_entry(gpu()); }
TEST_CASE("cuda solver: status 0 start solves") { LSMR_NEEDS_GPU(); suite_status_start_solves(gpu()); }
TEST_CASE("cuda solver: status 1 compatible") { LSMR_NEEDS_GPU(); suite_status_compatible(gpu()); }
TEST_CASE("cuda solver: status 2 least squares") { LSMR_NEEDS_GPU(); suite_status_least_squares(gpu()); }
TEST_CASE("cuda solver: status 3 condition limit") { LSMR_NEEDS_GPU(); suite_status_condition_limit(gpu()); }
TEST_CASE("cuda solver: status 4 and 5 machine precision") { LSMR_NEEDS_GPU(); suite_status_machine_precision(gpu()); }
TEST_CASE("cuda solver: status 7 iteration limit") { LSMR_NEEDS_GPU(); suite_status_iteration_limit(gpu()); }
TEST_CASE("cuda solver: status 8 time limit" * doctest::test_suite("alone")) { LSMR_NEEDS_GPU(); suite_status_time_limit(gpu()); }
TEST_CASE("cuda solver: status 9 stopped by the observer") { LSMR_NEEDS_GPU(); suite_status_stopped(gpu()); }
TEST_CASE("cuda solver: records are complete and in order") { LSMR_NEEDS_GPU(); suite_records(gpu()); }
TEST_CASE("cuda solver: estimates are the truth at first") { LSMR_NEEDS_GPU(); suite_estimates(gpu()); }
TEST_CASE("cuda solver: condition estimate") { LSMR_NEEDS_GPU(); suite_condition_estimate(gpu()); }
TEST_CASE("cuda solver: empty rows and columns") { LSMR_NEEDS_GPU(); suite_empty_rows_and_columns(gpu()); }
TEST_CASE("cuda solver: degenerate shapes") { LSMR_NEEDS_GPU(); suite_degenerate_shapes(gpu()); }
TEST_CASE("cuda solver: early breakdown") { LSMR_NEEDS_GPU(); suite_early_breakdown(gpu()); }
TEST_CASE("cuda solver: bad input") { LSMR_NEEDS_GPU(); suite_bad_input(gpu()); }
TEST_CASE("cuda solver: one problem many solves") { LSMR_NEEDS_GPU(); suite_reuse(gpu()); }
TEST_CASE("cuda solver: the phases of a set-up") { LSMR_NEEDS_GPU(); suite_setup_phases(gpu()); }
TEST_CASE("cuda solver: many right-hand sides") { LSMR_NEEDS_GPU(); suite_many_right_hand_sides(gpu()); }
TEST_CASE("cuda solver: observer throws") { LSMR_NEEDS_GPU(); suite_observer_throws(gpu()); }
TEST_CASE("cuda solver: repeats give the same bits") { LSMR_NEEDS_GPU(); suite_repeats(gpu()); }
TEST_CASE("cuda solver: single storage equals dual") { LSMR_NEEDS_GPU(); suite_storage(gpu()); }
TEST_CASE("cuda cg: answers against dense ones") { LSMR_NEEDS_GPU(); suite_cg_answers(gpu()); }
TEST_CASE("cuda cg: records and statuses") { LSMR_NEEDS_GPU(); suite_cg_statuses(gpu()); }
TEST_CASE("cuda cg: refuses what it cannot solve") { LSMR_NEEDS_GPU(); suite_cg_refusals(gpu()); }
TEST_CASE("cuda cg: scaled by powers of two") { LSMR_NEEDS_GPU(); suite_cg_scaled(gpu()); }
TEST_CASE("cuda stop: bounds on the gradient") { LSMR_NEEDS_GPU(); suite_gradient_bounds(gpu()); }
TEST_CASE("cuda stop: several passes in a row") { LSMR_NEEDS_GPU(); suite_passes(gpu()); }
TEST_CASE("cuda stop: status 12 by a window of one's own") { LSMR_NEEDS_GPU(); suite_stall_window(gpu()); }
TEST_CASE("cuda stop: status 14 trust radius") { LSMR_NEEDS_GPU(); suite_trust_radius(gpu()); }
TEST_CASE("cuda stop: options that are refused") { LSMR_NEEDS_GPU(); suite_stop_options_refused(gpu()); }
TEST_CASE("cuda transform: problem forms against dense answers") { LSMR_NEEDS_GPU(); suite_problem_forms(gpu()); }
TEST_CASE("cuda transform: weights") { LSMR_NEEDS_GPU(); suite_weights_are_a_weighted_matrix(gpu()); }
TEST_CASE("cuda transform: scaled columns") { LSMR_NEEDS_GPU(); suite_scaled_columns(gpu()); }
TEST_CASE("cuda transform: which solution of least norm is said") { LSMR_NEEDS_GPU(); suite_least_norm_is_said(gpu()); }
TEST_CASE("cuda transform: refusals") { LSMR_NEEDS_GPU(); suite_transform_refusals(gpu()); }
TEST_CASE("cuda checkpoint: an interrupted solve goes on to the same bits") { LSMR_NEEDS_GPU(); suite_checkpoints(gpu()); }
TEST_CASE("cuda checkpoint: solves that go on or start again") { LSMR_NEEDS_GPU(); suite_checkpoint_restarts(gpu()); }
TEST_CASE("cuda checkpoint: limits that are reached already") { LSMR_NEEDS_GPU(); suite_checkpoint_limits(gpu()); }
TEST_CASE("cuda checkpoint: refusals") { LSMR_NEEDS_GPU(); suite_checkpoint_refusals(gpu()); }
TEST_CASE("cuda preconditioner: iterates are those on A K") { LSMR_NEEDS_GPU(); suite_preconditioned_iterates(gpu()); }
TEST_CASE("cuda preconditioner: answers against dense ones") { LSMR_NEEDS_GPU(); suite_preconditioned_answers(gpu()); }
TEST_CASE("cuda preconditioner: fewer iterations") { LSMR_NEEDS_GPU(); suite_preconditioners_save_iterations(gpu()); }
TEST_CASE("cuda preconditioner: refusals") { LSMR_NEEDS_GPU(); suite_preconditioner_refusals(gpu()); }
TEST_CASE("cuda solver: the automatic method") { LSMR_NEEDS_GPU(); suite_automatic_method(gpu()); }

TEST_SUITE_BEGIN("sanitizer");

// A little of everything, for compute-sanitizer: both methods, precisions, kernels; damping, start, stop by the limit; the pool empties.
TEST_CASE("cuda solver: a tour of the executor") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(600, 200, 5, 301);
    const Vector b = random_vector(600, 302);
    for (const SpmvKind spmv : {SpmvKind::own, SpmvKind::cusparse}) {
        for (const Precision precision : kPrecisions) {
            for (const Method method : kMethods) {
                for (const double damp : {0.0, 0.1}) {
                    PrepareOptions base = with_precision(gpu(), precision);
                    base.spmv = spmv;
                    PreparedProblem problem(a, base);
                    SolveOptions options = with_method(method, 1e-5);
                    options.damp = damp;
                    options.max_iterations = 40;
                    Vector x(200, 0.5);
                    const SolveResult result = problem.solve(b, x, options, true);
                    CHECK(result.iterations > 3);
                    CHECK(result.norms.ar < 1e-2 * result.norms.b);
                }
            }
        }
    }
}

// A user's operator: y = D x with D = 2 I, by a launcher of ours standing for theirs.
TEST_CASE("cuda solver: two functions as an operator") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    DeviceBuffer<Coefficient<double>> constants(context, 2);
    const std::vector<Coefficient<double>> host{{2, 2}, {0, 0}};
    LSMR_CHECK(cudaMemcpyAsync(constants.data(), host.data(), sizeof(host[0]) * 2, cudaMemcpyHostToDevice, context.stream()));
    const auto twice = [&](const double* in, double* out, CUstream_st* stream) {
        cuda::launch_axpby<double>(300, constants.data(), 1.0, in, constants.data() + 1, out, nullptr, stream);
    };
    const auto op = make_cuda_function_operator<double>(300, 300, twice, twice);
    const Vector b = random_vector(300, 311);
    Vector x(300);
    const SolveResult result = solve<double>(*op, context, b, x, {});
    CHECK(result.status == Status::compatible);
    CHECK(result.iterations == 1);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(b[i] / 2));

    // An exception of the function comes out as it was, and the context stays usable.
    int calls = 0;
    const auto throwing = [&](const double* in, double* out, CUstream_st* stream) {
        if (++calls == 3) throw std::out_of_range("mine");
        twice(in, out, stream);
    };
    const Matrix a = random_sparse(300, 300, 4, 312);
    const auto bad = make_cuda_function_operator<double>(300, 300, throwing, throwing);
    CHECK_THROWS_WITH_AS(solve<double>(*bad, context, b, x, {}), "mine", std::out_of_range);
    CHECK(solve<double>(*op, context, b, x, {}).converged());
}

TEST_SUITE_END();

TEST_CASE("cuda solver: the same status and answer as the CPU on real matrices") {
    LSMR_NEEDS_GPU();
    const std::string folder = std::string(LSMR_SHARED_DATA) + "/files/";
    const char* names[] = {"well1033.mtx", "illc1033.mtx", "ash219.mtx", "Maragal_2.mtx", "ct_parallel24.mtx.gz", "insteval.mtx.gz"};
    int compared = 0;
    for (const char* file : names) {
        if (!std::ifstream(folder + file)) {
            MESSAGE("skipped: " << folder << file << " is not there");
            continue;
        }
        const auto a = std::make_shared<const CsrMatrix>(read_matrix(folder + file).matrix);
        const Vector b = read_dense(find_rhs_beside(folder + file).chosen).values;
        for (const Precision precision : kPrecisions) {
            for (const Method method : kMethods) {
                SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-10 : 1e-5);
                options.conlim = 1e12;
                options.max_iterations = 50000;
                const Answer here = solve(with_precision(on_cpu(), precision), a, b, options);
                const Answer there = solve(with_precision(gpu(), precision), a, b, options);
                CAPTURE(std::string(file));
                CAPTURE(std::string(name(precision)));
                CAPTURE(std::string(name(method)));
                CAPTURE(here.result.iterations);
                CAPTURE(there.result.iterations);
                // In fp32 the true ||A^T r|| of the ill-conditioned ones ends near the tolerance (CGLS on illc1033: 1.5 and 2 times atol,
                // by rounding alone), so the audit may report either "to the tolerance" or "to what fp32 resolves".
                const auto kind = [&](Status status) {
                    if (precision == Precision::fp64) return status;
                    return status == Status::least_squares_eps ? Status::least_squares : status == Status::compatible_eps ? Status::compatible : status;
                };
                CHECK(kind(here.result.status) == kind(there.result.status));
                check_norms(there.result, truth(*a, b, there.x));
                // 10 cond max(atol, eps): cond of these is at most 2e4 (MANIFEST), of the rank-deficient ones 300 on the range.
                CHECK(distance(here.x, there.x) <= 10 * 2e4 * options.atol * norm(here.x));
                ++compared;
            }
        }
    }
    if (compared == 0) MESSAGE("skipped: no real matrix was found in " << folder);
}

TEST_CASE("cuda solver: 200 repeats of a solve are bit-identical") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(20000, 5000, 8, 321);
    const Vector b = random_vector(20000, 322);
    for (const SpmvKind spmv : {SpmvKind::own, SpmvKind::cusparse}) {
        PrepareOptions base = gpu();
        base.spmv = spmv;
        PreparedProblem problem(a, base);
        const Answer first = solve(problem, b, with_method(Method::lsmr, 1e-10));
        int different = 0;
        for (int i = 0; i < 200; ++i) {
            const Answer again = solve(problem, b, with_method(Method::lsmr, 1e-10));
            different += !same_bits(again.x, first.x) || again.result.iterations != first.result.iterations;
        }
        CHECK(different == 0);
    }
}

TEST_CASE("cuda solver: iterations allocate nothing and do not wait") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(5000, 1500, 6, 331);
    CudaContext context(0);
    for (const SpmvKind spmv : {SpmvKind::own, SpmvKind::cusparse}) {
        OperatorOptions options;
        options.spmv = spmv;
        const auto op = make_cuda_operator<double>(*a, context, options);
        CudaBackend<double> backend(*op, context);
        double* x = backend.col_vector(5);
        Anchors<double> anchors;
        if (spmv == SpmvKind::own) {  // and keep vectors
            anchors.window = 8;
            anchors.basis = backend.basis(8 * 1500);
        }
        const auto w = Lsmr<double>::vectors(backend, x, anchors);
        backend.zero(x, 1500);
        backend.upload_row(w.u, random_vector(5000, 332).data(), 5000, 0);
        LsmrRecurrence<double> state{};
        StopRules rules;
        rules.b_norm = 1;
        rules.a_norm = 1e-300;
        rules.max_iterations = 1000000;
        rules.stall_window = 1000000;
        state.prepare(1.0, 0.0, rules, backend.ring(), 0.0);
        auto* r = backend.put_state(state);
        Lsmr<double>::start(backend, w, r, anchors);
        Lsmr<double>::iterate(backend, w, r, anchors);
        context.synchronize();
        const std::int64_t allocations = cuda_counters().allocations;
        const std::int64_t waits = cuda_counters().synchronizations;
        const std::int64_t reserved = context.pool().reserved_bytes();
        // A batch is captured in global mode, in which the driver refuses whatever could allocate or wait.
        cudaGraph_t graph = nullptr;
        LSMR_CHECK(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeGlobal));
        for (int i = 0; i < 20; ++i) Lsmr<double>::iterate(backend, w, r, anchors);
        LSMR_CHECK(cudaStreamEndCapture(context.stream(), &graph));
        CHECK(graph != nullptr);
        LSMR_CHECK(cudaGraphDestroy(graph));
        for (int i = 0; i < 20; ++i) Lsmr<double>::iterate(backend, w, r, anchors);
        CHECK(cuda_counters().allocations == allocations);
        CHECK(cuda_counters().synchronizations == waits);
        context.synchronize();
        CHECK(context.pool().reserved_bytes() == reserved);
    }
}

TEST_CASE("cuda solver: recorded iterations equal plain launches bitwise") {
    LSMR_NEEDS_GPU();
    // A function operator cannot be recorded, so its solve runs as plain launches; the matrix below is recorded once iterations prove short.
    const Matrix a = random_sparse(4000, 1000, 5, 341);
    const Vector b = random_vector(4000, 342);
    CudaContext context(0);
    OperatorOptions own;
    own.spmv = SpmvKind::own;
    const auto op = make_cuda_operator<double>(*a, context, own);
    class Plain final : public LinearOperator<double> {
      public:
        explicit Plain(const LinearOperator<double>& a) : a_(a) {}
        std::int64_t rows() const override { return a_.rows(); }
        std::int64_t cols() const override { return a_.cols(); }
        Space space() const override { return a_.space(); }
        bool capturable() const override { return false; }
        void apply(Scalar<double> p, const double* x, Scalar<double> q, double* y, Workspace& w, NormPartials* norm) const override {
            a_.apply(p, x, q, y, w, norm);
        }
        void apply_adjoint(Scalar<double> p, const double* x, Scalar<double> q, double* y, Workspace& w, NormPartials* norm) const override {
            a_.apply_adjoint(p, x, q, y, w, norm);
        }
        std::unique_ptr<Workspace> make_workspace(CudaContext* context) const override { return a_.make_workspace(context); }

      private:
        const LinearOperator<double>& a_;
    };
    const Plain plain(*op);
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method, 1e-12);
        options.max_iterations = 333;
        Vector x1(1000), x2(1000);
        const SolveResult recorded = solve<double>(*op, context, b, x1, options);
        const SolveResult launched = solve<double>(plain, context, b, x2, options);
        CHECK(same_bits(x1, x2));
        CHECK(recorded.iterations == launched.iterations);
        CHECK(recorded.norms.ar_estimated == launched.norms.ar_estimated);
    }
}

TEST_CASE("cuda solver: a second solve leaves the reserved bytes unchanged") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(50000, 20000, 6, 351);
    PreparedProblem problem(a, gpu());
    const Vector b = random_vector(50000, 352);
    solve(problem, b, with_method(Method::lsmr, 1e-6));
    const MemoryUse first = problem.memory();
    CHECK(first.pool_live_bytes > 0);
    CHECK(first.pool_peak_bytes >= first.pool_live_bytes);
    for (int i = 0; i < 5; ++i) solve(problem, b, with_method(Method::lsmr, 1e-6));
    CHECK(problem.memory().pool_reserved_bytes == first.pool_reserved_bytes);
    CHECK(problem.memory().pool_live_bytes == first.pool_live_bytes);
}

TEST_CASE("cuda solver: page-locked memory is got once") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(50000, 20000, 6, 353);
    const Vector b = random_vector(50000, 354);
    for (const ExecutorKind executor : {ExecutorKind::graph, ExecutorKind::persistent}) {
        PrepareOptions options = gpu();
        options.executor = executor;
        const std::int64_t before = cuda_counters().page_locked;
        PreparedProblem problem(a, options);
        // Two pieces of staging, each of which may have begun smaller.
        CHECK(cuda_counters().page_locked - before <= 4);
        solve(problem, b, with_method(Method::lsmr, 1e-6));
        // Records and progress.
        CHECK(cuda_counters().page_locked - before <= 6);
        const std::int64_t after = cuda_counters().page_locked;
        solve(problem, b, with_method(Method::lsmr, 1e-6));
        problem.reweight(Vector(50000, 2.0));
        CHECK(cuda_counters().page_locked == after);
    }
}

TEST_CASE("cuda solver: nothing stays allocated") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    {
        const auto op = make_cuda_operator<double>(*random_sparse(500, 100, 5, 361), context);
        Vector x(100);
        solve<double>(*op, context, random_vector(500, 362), x, {});
    }
    CHECK(context.pool().live_bytes() == 0);
}

TEST_CASE("cuda solver: eight threads with a problem each") {
    LSMR_NEEDS_GPU();
    std::vector<Vector> answers(8), expected(8);
    const auto work = [](int t, Vector& x) {
        const Matrix a = random_sparse(800 + 10 * t, 300, 5, static_cast<unsigned>(371 + t));
        PreparedProblem problem(a, gpu());
        const Vector b = random_vector(a->rows(), static_cast<unsigned>(381 + t));
        for (int i = 0; i < 5; ++i) x = solve(problem, b, with_method(Method::lsmr, 1e-9)).x;
    };
    for (int t = 0; t < 8; ++t) work(t, expected[static_cast<std::size_t>(t)]);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) threads.emplace_back([&, t] { work(t, answers[static_cast<std::size_t>(t)]); });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t t = 0; t < 8; ++t) CHECK(same_bits(answers[t], expected[t]));
}

TEST_CASE("cuda solver: without pool support the answers are the same bits") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(3000, 900, 5, 391);
    const Vector b = random_vector(3000, 392);
    const Answer pooled = solve(gpu(), a, b, with_method(Method::lsmr, 1e-9));
    setenv("LSMR_FORCE_NO_POOL", "1", 1);
    PreparedProblem problem(a, gpu());
    unsetenv("LSMR_FORCE_NO_POOL");
    REQUIRE(problem.info().notes.size() == 1);
    CHECK(same_bits(solve(problem, b, with_method(Method::lsmr, 1e-9)).x, pooled.x));
}

TEST_CASE("cuda solver: what does not fit falls back step by step and says so") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(100000, 30000, 12, 401);
    const Vector b = random_vector(100000, 402);
    const std::int64_t single = cuda_operator_bytes<double>(100000, 30000, a->nnz(), StorageKind::single);
    const std::int64_t vectors = (3 * 100000 + 6 * 30000) * 8;

    PrepareOptions options;  // automatic
    options.gpu_memory_limit_bytes = single + vectors + (std::int64_t{4} << 20);
    {
        PreparedProblem problem(a, options);
        CHECK(problem.info().device == DeviceKind::cuda);
        CHECK(problem.info().plan.storage == StorageKind::single);
        CHECK(problem.info().plan.storage_reason.find("both orientations need") != std::string::npos);
        CHECK(solve(problem, b, with_method(Method::lsmr, 1e-8)).result.converged());
    }
    {
        PrepareOptions deterministic = options;
        deterministic.deterministic = true;
        PreparedProblem problem(a, deterministic);
        CHECK(problem.info().device == DeviceKind::cpu);
        REQUIRE_FALSE(problem.info().notes.empty());
        CHECK(problem.info().notes[0].find("running on the CPU instead") != std::string::npos);
    }
    options.gpu_memory_limit_bytes = 1 << 20;
    {
        PreparedProblem problem(a, options);
        CHECK(problem.info().device == DeviceKind::cpu);
    }
    PrepareOptions forced = options;
    forced.device = DeviceKind::cuda;
    CHECK_THROWS_AS(PreparedProblem(a, forced), OutOfMemory);
    PrepareOptions strict = options;
    strict.allow_fallback = false;
    CHECK_THROWS_AS(PreparedProblem(a, strict), OutOfMemory);
}

namespace {

// In a child of its own: a fault takes the CUDA context of a process with it. exec, since CUDA does not survive fork.
int run_self(const char* test_case) {
    const pid_t child = fork();
    if (child == 0) {
        setenv("LSMR_TEST_CHILD", "1", 1);
        const std::string filter = std::string("--test-case=") + test_case;
        execl("/proc/self/exe", "test_cuda", filter.c_str(), "--no-skip", static_cast<char*>(nullptr));
        _exit(99);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("cuda solver child: a fault on the device is one error and no abort" * doctest::skip(std::getenv("LSMR_TEST_CHILD") == nullptr)) {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    DeviceBuffer<double> kept(context, 1000);
    const auto fault = [&](const double* in, double* out, CUstream_st* stream) {
        cuda::launch_norm<double>(1000, reinterpret_cast<const double*>(0x10), out, stream);  // an address that is not mapped
        static_cast<void>(in);
    };
    const auto op = make_cuda_function_operator<double>(1000, 1000, fault, fault);
    Vector x(1000);
    CHECK_THROWS_AS(solve<double>(*op, context, random_vector(1000, 411), x, {}), DeviceError);
    CHECK_THROWS_AS(context.synchronize(), DeviceError);  // it stays so
}

TEST_CASE("cuda solver child: a problem that is alive at exit" * doctest::skip(std::getenv("LSMR_TEST_CHILD") == nullptr)) {
    LSMR_NEEDS_GPU();
    static PreparedProblem problem(random_sparse(500, 100, 5, 421), gpu());
    CHECK(solve(problem, random_vector(500, 422), with_method(Method::lsmr, 1e-6)).result.converged());
}

TEST_CASE("cuda solver: a fault on the device does not abort the process") {
    LSMR_NEEDS_GPU();
    CHECK(run_self("cuda solver child: a fault*") == 0);
}

TEST_CASE("cuda solver: a static problem may outlive main") {
    LSMR_NEEDS_GPU();
    for (int i = 0; i < 5; ++i) CHECK(run_self("cuda solver child: a problem that is alive*") == 0);
}

// 2^31 + 2^20 entries: offsets beyond 32 bits, our transpose. Needs 60 GiB of host memory and 40 GiB on the device.
TEST_CASE("cuda solver: more entries than 32 bits count" * doctest::skip(std::getenv("LSMR_LARGE_TESTS") == nullptr)) {
    LSMR_NEEDS_GPU();
    constexpr std::int64_t kCols = 1 << 16;
    constexpr std::int64_t kLength = 1 << 11;
    constexpr std::int64_t kRows = ((std::int64_t{1} << 31) + (1 << 20)) / kLength;
    constexpr std::int64_t kNnz = kRows * kLength;
    HostBuffer<std::int64_t> offsets(kRows + 1);
    HostBuffer<std::int32_t> columns(kNnz);
    HostBuffer<double> values(kNnz, 1.0);
    for (std::int64_t i = 0; i <= kRows; ++i) offsets[i] = i * kLength;
    // Row i holds every 32nd column, from i mod 32.
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < kRows; ++i) {
        for (std::int64_t k = 0; k < kLength; ++k) columns[i * kLength + k] = static_cast<std::int32_t>(i % 32 + 32 * k);
    }
    const auto a = std::make_shared<const CsrMatrix>(CsrMatrix::from_csr(kRows, kCols, std::move(offsets), std::move(columns), std::move(values)));
    REQUIRE(a->nnz() > std::numeric_limits<std::int32_t>::max());
    CudaContext context(0);
    OperatorOptions options;
    const auto op = make_cuda_operator<float>(*a, context, options);
    const auto workspace = op->make_workspace(&context);
    const auto run = [&](bool adjoint, std::int64_t in, std::int64_t out) {
        DeviceBuffer<float> x(context, in), y(context, out);
        DeviceBuffer<Coefficient<float>> c(context, 2);
        const std::vector<Coefficient<float>> host{{1, 1}, {0, 0}};
        const std::vector<float> ones(static_cast<std::size_t>(in), 1.0f);
        LSMR_CHECK(cudaMemcpyAsync(c.data(), host.data(), 2 * sizeof(host[0]), cudaMemcpyHostToDevice, context.stream()));
        LSMR_CHECK(cudaMemcpyAsync(x.data(), ones.data(), ones.size() * 4, cudaMemcpyHostToDevice, context.stream()));
        if (adjoint) op->apply_adjoint(c.data(), x.data(), c.data() + 1, y.data(), *workspace);
        else op->apply(c.data(), x.data(), c.data() + 1, y.data(), *workspace);
        std::vector<float> result(static_cast<std::size_t>(out));
        LSMR_CHECK(cudaMemcpyAsync(result.data(), y.data(), result.size() * 4, cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        return result;
    };
    // A 1 counts the entries of rows, A^T 1 those of columns: exact in fp32.
    for (float sum : run(false, kCols, kRows)) REQUIRE(sum == static_cast<float>(kLength));
    const std::vector<float> counts = run(true, kRows, kCols);
    for (std::int64_t j = 0; j < kCols; ++j) REQUIRE(counts[static_cast<std::size_t>(j)] == static_cast<float>(kRows / 32 + (j % 32 < kRows % 32)));
    options.spmv = SpmvKind::cusparse;
    CHECK_THROWS_AS(make_cuda_operator<float>(*a, context, options), InputError);
}
