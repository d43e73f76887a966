// The persistent kernel: its plan, when it is taken, and that it gives what the graph gives.
#include <doctest/doctest.h>

#include <numeric>

#include "cuda_support.hpp"
#include "checkpoint_suite.hpp"
#include "solver/cuda/small_problem.hpp"
#include "solver_suite.hpp"
#include "stop_suite.hpp"
#include "transform_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

PrepareOptions with_executor(ExecutorKind executor) {
    PrepareOptions options;
    options.device = DeviceKind::cuda;
    options.executor = executor;
    return options;
}
PrepareOptions on_graph() { return with_executor(ExecutorKind::graph); }
PrepareOptions persistent() { return with_executor(ExecutorKind::persistent); }
PrepareOptions automatic() { return with_executor(ExecutorKind::automatic); }

constexpr Method kRun[] = {Method::lsmr, Method::lsqr, Method::cgls};

// Where blocks gather; where they send one another values: cuda_mail_test.cpp.
SmallPlan plan_of(const CsrMatrix& a, std::int64_t value_bytes, const PersistentLimits& limits = {132, std::int64_t{60} << 20, 228352, true}) {
    return plan_small_problem(a.rows(), a.cols(), a.offsets(), a.transposed().offsets(), value_bytes, limits, cuda::Crossing::gathered);
}

// A tridiagonal matrix (-1, 2, -1): of n distinct singular values, so that no method ends early.
Matrix chain(std::int64_t n) {
    Triplets t{n, n, {}, {}, {}};
    for (std::int64_t i = 0; i < n; ++i) {
        if (i > 0) t.add(i, i - 1, -1);
        t.add(i, i, 2);
        if (i + 1 < n) t.add(i, i + 1, -1);
    }
    return t.matrix();
}
SolveOptions without_end(Method method, std::int64_t iterations) {
    SolveOptions options = exactly(method, iterations);
    options.stall_window = 0;
    options.passes = std::int64_t{1} << 40;
    return options;
}

}  // namespace

// Where the kernel can run, gpu() of cuda_solver_test.cpp takes it; here the same suites see the graph.
TEST_CASE("cuda graph: start centre and damping against dense answers") { LSMR_NEEDS_GPU(); suite_start_and_center(on_graph()); }
TEST_CASE("cuda graph: scaled by powers of two") { LSMR_NEEDS_GPU(); suite_scaled_by_powers_of_two(on_graph()); }
TEST_CASE("cuda graph: status 0 start solves") { LSMR_NEEDS_GPU(); suite_status_start_solves(on_graph()); }
TEST_CASE("cuda graph: status 1 compatible") { LSMR_NEEDS_GPU(); suite_status_compatible(on_graph()); }
TEST_CASE("cuda graph: status 2 least squares") { LSMR_NEEDS_GPU(); suite_status_least_squares(on_graph()); }
TEST_CASE("cuda graph: status 3 condition limit") { LSMR_NEEDS_GPU(); suite_status_condition_limit(on_graph()); }
TEST_CASE("cuda graph: status 7 iteration limit") { LSMR_NEEDS_GPU(); suite_status_iteration_limit(on_graph()); }
TEST_CASE("cuda graph: status 8 time limit" * doctest::test_suite("alone")) { LSMR_NEEDS_GPU(); suite_status_time_limit(on_graph()); }
TEST_CASE("cuda graph: status 9 stopped by the observer") { LSMR_NEEDS_GPU(); suite_status_stopped(on_graph()); }
TEST_CASE("cuda graph: records are complete and in order") { LSMR_NEEDS_GPU(); suite_records(on_graph()); }
TEST_CASE("cuda graph: empty rows and columns") { LSMR_NEEDS_GPU(); suite_empty_rows_and_columns(on_graph()); }
TEST_CASE("cuda graph: degenerate shapes") { LSMR_NEEDS_GPU(); suite_degenerate_shapes(on_graph()); }
TEST_CASE("cuda graph: early breakdown") { LSMR_NEEDS_GPU(); suite_early_breakdown(on_graph()); }
TEST_CASE("cuda graph: one problem many solves") { LSMR_NEEDS_GPU(); suite_reuse(on_graph()); }
TEST_CASE("cuda graph: repeats give the same bits") { LSMR_NEEDS_GPU(); suite_repeats(on_graph()); }
TEST_CASE("cuda graph: several passes in a row") { LSMR_NEEDS_GPU(); suite_passes(on_graph()); }
TEST_CASE("cuda graph: scaled columns") { LSMR_NEEDS_GPU(); suite_scaled_columns(on_graph()); }
TEST_CASE("cuda graph: an interrupted solve goes on to the same bits") { LSMR_NEEDS_GPU(); suite_checkpoints(on_graph()); }

TEST_CASE("persistent plan: rows are dealt out whole, in order, by their work") {
    const Matrix a = random_sparse(20000, 8000, 10, 501);
    const SmallPlan plan = plan_of(*a, 8);
    REQUIRE(plan.impossible.empty());
    CHECK(plan.unwise.empty());
    CHECK(plan.blocks == 132);
    const CsrMatrix transpose = a->transposed();
    const std::pair<const SidePlan*, const CsrMatrix*> sides[] = {{&plan.forward, a.get()}, {&plan.adjoint, &transpose}};
    for (const auto& [side, of] : sides) {
        REQUIRE(side->block_rows.size() == 133);
        CHECK(side->block_rows.front() == 0);
        CHECK(side->block_rows.back() == of->rows());
        std::int64_t entries = 0;
        for (std::size_t b = 0; b < 132; ++b) {
            REQUIRE(side->block_rows[b] <= side->block_rows[b + 1]);
            const std::int64_t own = of->offsets()[side->block_rows[b + 1]] - of->offsets()[side->block_rows[b]];
            CHECK(own <= side->most_entries);
            CHECK(side->block_rows[b + 1] - side->block_rows[b] <= side->most_rows);
            entries += own;
        }
        CHECK(entries == a->nnz());
        // A row at most beside the even share.
        CHECK(side->most_entries <= a->nnz() / 132 + 3 * side->longest_row);
        CHECK(side->resident);
        CHECK(side->narrow);
        CHECK((side->team & (side->team - 1)) == 0);
    }
    // 128 KiB of values beside tags lie in too few parts of the L2 cache; more are spread by themselves.
    CHECK(plan.adjoint.copies == 4);
    CHECK(plan.forward.copies == 2);
    CHECK(plan_of(*random_sparse(50000, 41000, 2, 505), 8).adjoint.copies == 1);
    CHECK(plan.shared_bytes <= 228352);
    CHECK(plan.words().find("132 blocks of 512 threads") != std::string::npos);
    CHECK(plan.words().find("A and A^T in shared memory") != std::string::npos);
}

TEST_CASE("persistent plan: one block for the smallest, L2 for what does not fit, and refusals in words") {
    CHECK(plan_of(*random_sparse(120, 40, 3, 502), 8).blocks == 1);
    const SmallPlan empty = plan_of(*zero_matrix(0, 0), 8);
    CHECK(empty.impossible.empty());
    CHECK(empty.blocks == 1);
    // More blocks than rows: those beyond have none.
    const SmallPlan flat = plan_of(*random_sparse(3, 30000, 25000, 503), 8);
    CHECK(flat.blocks > 3);
    CHECK(flat.forward.most_rows <= 3);
    CHECK(flat.unwise.find("nonzeros, more than") != std::string::npos);

    const Matrix a = random_sparse(60000, 70000, 20, 504);
    const SmallPlan both = plan_of(*a, 8);
    CHECK_FALSE(both.forward.narrow);  // 70,000 columns
    CHECK(both.adjoint.narrow);
    const SmallPlan mixed = plan_of(*a, 8, {132, std::int64_t{60} << 20, 160000, true});
    CHECK(mixed.forward.resident != mixed.adjoint.resident);
    CHECK(mixed.streamed_bytes >= a->nnz() * 10);
    const SmallPlan none = plan_of(*a, 8, {132, std::int64_t{60} << 20, 60000, true});
    CHECK_FALSE(none.forward.resident);
    CHECK_FALSE(none.adjoint.resident);
    CHECK(none.forward.team >= 8);  // of 20 entries a row, so that reads from L2 are long
    CHECK(none.words().find("A and A^T in L2") != std::string::npos);
    CHECK(plan_of(*a, 8, {132, std::int64_t{8} << 20, 60000, true}).unwise.find("the L2 cache keeps") != std::string::npos);
    CHECK(plan_of(*a, 8, {132, std::int64_t{60} << 20, 8000, true}).impossible.find("its shared memory has") != std::string::npos);
    CHECK(plan_of(*a, 8, {132, std::int64_t{60} << 20, 228352, false}).impossible.find("all blocks") != std::string::npos);
}

TEST_CASE("cuda persistent: taken for a small matrix, and said") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(2000, 700, 6, 511);
    const auto executor = [&](const PrepareOptions& options) { return PreparedProblem(a, options).info(); };
    CHECK(executor(automatic()).executor == ExecutorKind::persistent);
    CHECK(executor(automatic()).executor_words.find("one persistent kernel") != std::string::npos);
    CHECK(executor(persistent()).executor == ExecutorKind::persistent);
    const auto graph_since = [&](const PrepareOptions& options, const char* words) {
        const PreparedInfo info = executor(options);
        CAPTURE(info.executor_words);
        CHECK(info.executor == ExecutorKind::graph);
        CHECK(info.executor_words.find(words) != std::string::npos);
    };
    graph_since(on_graph(), "asked for");
    PrepareOptions own = automatic();
    own.spmv = SpmvKind::own;
    graph_since(own, "kernels of the products are asked for");
    PrepareOptions single = automatic();
    single.storage = StorageKind::single;
    graph_since(single, "A is stored once");
    PrepareOptions preconditioned = automatic();
    preconditioned.preconditioner = Preconditioner::columns;
    graph_since(preconditioned, "preconditioner");
    CHECK(PreparedProblem(random_sparse(3, 30000, 25000, 512), automatic()).info().executor == ExecutorKind::graph);
}

TEST_CASE("cuda persistent: refused in words where it is asked for and cannot be") {
    LSMR_NEEDS_GPU();
    const Matrix a = random_sparse(200, 70, 6, 521);
    const Vector b = random_vector(200, 522);
    PrepareOptions preconditioned = persistent();
    preconditioned.preconditioner = Preconditioner::columns;
    CHECK_THROWS_WITH_AS(PreparedProblem(a, preconditioned), "the persistent executor is refused: there is a preconditioner", InputError);
    const Vector damping(70, 0.1);
    PrepareOptions rows = persistent();
    rows.column_damp = damping;
    CHECK_THROWS_AS(PreparedProblem(a, rows), InputError);
    PreparedProblem problem(a, persistent());
    Vector x(70, 0.0);
    PreparedProblem definite(chain(40), persistent());
    Vector x_of_chain(40, 0.0);
    CHECK_THROWS_WITH_AS(definite.solve(Vector(40, 1.0), x_of_chain, with_method(Method::cg)), "the persistent executor is refused: it runs lsmr, lsqr and cgls, not cg",
                         InputError);
    SolveOptions bounded = with_method(Method::lsmr);
    bounded.trust_radius = 1;
    CHECK_THROWS_WITH_AS(problem.solve(b, x, bounded), "the persistent executor is refused: it has no trust radius", InputError);
    SolveOptions damped = with_method(Method::lsmr);
    damped.damp = 1;
    CHECK_THROWS_AS(problem.solve(b, x, damped, true), InputError);
    CHECK(problem.solve(b, x, damped).converged());
    damped.method = Method::cgls;
    CHECK(problem.solve(b, x, damped, true).converged());
    damped.method = Method::lsmr;
    damped.damp_center = DampCenter::x0;
    CHECK(problem.solve(b, x, damped, true).converged());
}

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda persistent: what the graph gives, for every shape") {
    LSMR_NEEDS_GPU();
    // One block; a few; all. Fewer rows or columns than blocks; long rows; columns of 16 and 32 bits.
    const Matrix matrices[] = {
        random_sparse(1, 1, 1, 531),      random_sparse(1, 40, 20, 532),    random_sparse(40, 1, 1, 533),        random_sparse(33, 31, 5, 534),
        random_sparse(900, 300, 6, 535),  random_sparse(300, 900, 6, 536),  random_sparse(1300, 500, 7, 545),
        random_sparse(5000, 20, 4, 537),      random_sparse(20, 5000, 900, 538),
        random_sparse(20000, 8000, 10, 539), random_sparse(500, 70000, 60, 540),
    };
    for (const Matrix& a : matrices) {
        const Vector b = random_vector(a->rows(), 541);
        const Vector x0 = random_vector(a->cols(), 542);
        for (const Precision precision : kPrecisions) {
            PreparedProblem ours(a, with_precision(persistent(), precision));
            PreparedProblem theirs(a, with_precision(on_graph(), precision));
            REQUIRE(ours.info().executor == ExecutorKind::persistent);
            REQUIRE(theirs.info().executor == ExecutorKind::graph);
            for (const Method method : kRun) {
                for (const double damp : {0.0, 0.1}) {
                    for (const bool warm : {false, true}) {
                        SolveOptions options = exactly(method, 5, damp);
                        if (warm) options.damp_center = DampCenter::x0;
                        const std::optional<Vector> start = warm ? std::optional<Vector>(x0) : std::nullopt;
                        const Answer one = solve(ours, b, options, start);
                        const Answer two = solve(theirs, b, options, start);
                        CAPTURE(a->rows());
                        CAPTURE(a->cols());
                        CAPTURE(word(precision));
                        CAPTURE(word(method));
                        CAPTURE(damp);
                        CAPTURE(warm);
                        CAPTURE(ours.info().executor_words);
                        CAPTURE(one.result.message);
                        CAPTURE(two.result.message);
                        const double eps = precision == Precision::fp64 ? kEps64 : kEps32;
                        // After few steps rounding has not grown: the orders of the sums differ, by about
                        // (steps) (entries) eps ||x||; the first shapes are solved to rounding within the five.
                        CHECK(distance(one.x, two.x) <= 5 * 8 * 40 * eps * (norm(two.x) + norm(start.value_or(Vector{}))));
                        if (a->rows() > 40 && a->cols() > 40) {
                            CHECK(one.result.status == two.result.status);
                            CHECK(one.result.iterations == two.result.iterations);
                        } else {
                            CHECK(one.result.converged() == two.result.converged());
                        }
                    }
                }
            }
        }
    }
}

TEST_SUITE_END();

TEST_CASE("cuda persistent: the status and the answer of the graph to the end") {
    LSMR_NEEDS_GPU();
    const Matrix matrices[] = {tall_matrix(), wide_matrix(), square_matrix(), graded(*random_sparse(3000, 900, 5, 551), 100), random_sparse(1000, 300, 7, 554),
                               random_sparse(20000, 5000, 8, 552)};
    for (const Matrix& a : matrices) {
        const Vector b = random_vector(a->rows(), 553);
        for (const Precision precision : kPrecisions) {
            for (const Method method : kRun) {
                for (const double damp : {0.0, 0.1}) {
                    SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-10 : 1e-5);
                    options.conlim = 0;
                    options.max_iterations = 5000;
                    options.damp = damp;
                    Recorder ours, theirs;
                    const Answer one = solve(with_precision(persistent(), precision), a, b, options, {}, &ours);
                    const Answer two = solve(with_precision(on_graph(), precision), a, b, options, {}, &theirs);
                    CAPTURE(a->rows());
                    CAPTURE(word(precision));
                    CAPTURE(word(method));
                    CAPTURE(damp);
                    CHECK(one.result.status == two.result.status);
                    const std::int64_t slack = precision == Precision::fp64 ? two.result.iterations / 10 + 2 : two.result.iterations / 3 + 3;
                    CHECK(std::abs(one.result.iterations - two.result.iterations) <= slack);
                    CHECK(static_cast<std::int64_t>(ours.all.size()) == one.result.iterations);
                    check_claim(one.result, truth(*a, b, one.x, damp), options, precision == Precision::fp64 ? kEps64 : kEps32);
                    check_norms(one.result, truth(*a, b, one.x, damp));
                    // The first records are the same numbers but for rounding.
                    for (std::size_t k = 0; k < std::min<std::size_t>({5, ours.all.size(), theirs.all.size()}); ++k) {
                        const double eps = precision == Precision::fp64 ? kEps64 : kEps32;
                        CHECK(ours.all[k].r_norm == doctest::Approx(theirs.all[k].r_norm).epsilon(1e4 * eps));
                        CHECK(ours.all[k].x_norm == doctest::Approx(theirs.all[k].x_norm).epsilon(1e4 * eps));
                    }
                }
            }
        }
    }
}

TEST_CASE("cuda persistent: 200 repeats of a solve are bit-identical") {
    LSMR_NEEDS_GPU();
    for (const Matrix& a : {random_sparse(30000, 12000, 9, 560), random_sparse(20000, 5000, 8, 561), random_sparse(300, 100, 5, 562), random_sparse(3000, 1000, 5, 563),
                            random_sparse(1000, 400, 8, 565), random_sparse(80, 40, 5, 566)}) {
        const Vector b = random_vector(a->rows(), 564);
        PreparedProblem problem(a, persistent());
        for (const Method method : kRun) {
            const Answer first = solve(problem, b, with_method(method, 1e-10));
            int different = 0;
            for (int i = 0; i < 200; ++i) {
                const Answer again = solve(problem, b, with_method(method, 1e-10));
                different += !same_bits(again.x, first.x) || again.result.iterations != first.result.iterations;
            }
            CHECK(different == 0);
        }
        // And from another object, whose tags begin anew.
        CHECK(same_bits(solve(persistent(), a, b, with_method(Method::lsmr, 1e-10)).x, solve(problem, b, with_method(Method::lsmr, 1e-10)).x));
    }
}

TEST_CASE("cuda persistent: it stops at the limit, to the iteration, and x is that iteration's") {
    LSMR_NEEDS_GPU();
    for (const std::int64_t n : {150, 2000, 9000}) {  // one block, a cluster, more blocks
        const Matrix a = chain(n);
        const Vector b = random_vector(n, 571);
        for (const Method method : kRun) {
            PreparedProblem problem(a, persistent());
            Recorder all;
            const Answer longest = solve(problem, b, without_end(method, 140), {}, &all);
            REQUIRE(longest.result.iterations == 140);
            for (const std::int64_t k : {0, 1, 2, 3, 7, 31, 32, 33, 64, 100, 127}) {
                CAPTURE(k);
                const Answer answer = solve(problem, b, without_end(method, k));
                CHECK(answer.result.status == Status::iteration_limit);
                CHECK(answer.result.iterations == k);
                check_norms(answer.result, truth(*a, b, answer.x));
                // ||x|| of iteration k, as the longer run saw it.
                if (k > 0) CHECK(norm(answer.x) == doctest::Approx(all.all[index(k - 1)].x_norm).epsilon(1e-12));
            }
        }
    }
}

TEST_CASE("cuda persistent: few launches, and what they leave for the host is the recurrence's" * doctest::test_suite("alone")) {
    LSMR_NEEDS_GPU();
    const Matrix a = chain(6000);
    const Vector b = random_vector(6000, 577);
    PreparedProblem problem(a, persistent());
    const auto waits = [&](Method method, std::int64_t iterations) {
        const std::int64_t before = cuda_counters().synchronizations;
        CHECK(solve(problem, b, without_end(method, iterations)).result.iterations == iterations);
        return cuda_counters().synchronizations - before;
    };
    for (const Method method : kRun) {
        waits(method, 1);
        CHECK(waits(method, 60) == waits(method, 1));        // all in the first launch
        CHECK(waits(method, 2000) <= waits(method, 1) + 6);  // they grow
    }

    const CudaContext context;
    const SmallMatrix<double> matrix(*a, 0, context);
    SmallProblem<double> small(matrix, matrix.plan(persistent_limits(context.device())), context);
    CHECK(small.first_launch() == 64);
    DeviceBuffer<double> u(context, 6000), columns[4];
    for (auto& column : columns) column = DeviceBuffer<double>(context, 6000);
    DeviceBuffer<IterationRecord> records(context, 64);
    DeviceBuffer<LsmrRecurrence<double>> r(context, 1);
    PinnedBuffer<Progress> left(1);
    const Vector zero(6000, 0.0);
    const auto upload = [&](auto& to, const auto* from) {
        LSMR_CHECK(cudaMemcpyAsync(to.data(), from, static_cast<std::size_t>(to.bytes()), cudaMemcpyHostToDevice, context.stream()));
        context.synchronize();
    };
    LsmrRecurrence<double> host{};
    host.prepare(1, 0, StopRules{.max_iterations = 45}, {records.data(), 64}, 0);
    const double ones[1] = {1};
    host.finish(LsmrRecurrence<double>::start_forward, ones, kGoOn);
    host.finish(LsmrRecurrence<double>::start_adjoint, ones, kGoOn);
    upload(u, b.data());
    upload(columns[0], random_vector(6000, 578).data());
    for (int c = 1; c < 4; ++c) upload(columns[c], zero.data());
    upload(r, &host);
    Lsmr<double>::Vectors w{};
    w.u = u.data();
    w.v = w.p = columns[0].data();
    w.h = columns[1].data();
    w.hbar = columns[2].data();
    w.x = columns[3].data();
    for (const std::int64_t end : {30, 45}) {
        small.iterate<Lsmr<double>>(w, r.data(), 30, {}, left.device_data());
        LSMR_CHECK(cudaMemcpyAsync(&host, r.data(), sizeof(host), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        CHECK(host.progress.iteration == end);
        CHECK(left[0].iteration == end);
        CHECK(left[0].published == host.progress.published);
        CHECK(left[0].finished == (end == 45));
        CHECK(left[0].code == host.progress.code);
        CHECK(left[0].r_norm == host.progress.r_norm);
        CHECK(left[0].x_norm == host.progress.x_norm);
    }
}

TEST_CASE("cuda persistent: the history is complete beyond the length of the ring") {
    LSMR_NEEDS_GPU();
    const Matrix a = chain(20000);
    const Vector b = random_vector(20000, 581);
    for (const Method method : kRun) {
        Recorder recorder;
        const Answer answer = solve(persistent(), a, b, without_end(method, 9001), {}, &recorder);
        CHECK(answer.result.status == Status::iteration_limit);
        REQUIRE(answer.result.iterations == 9001);
        REQUIRE(recorder.all.size() == 9001);
        int wrong = 0;
        for (std::size_t k = 0; k < recorder.all.size(); ++k) wrong += recorder.all[k].iteration != static_cast<std::int64_t>(k) + 1;
        CHECK(wrong == 0);
        CHECK(norm(answer.x) == doctest::Approx(recorder.all.back().x_norm).epsilon(1e-10));
    }
}

TEST_CASE("cuda persistent: a time limit and an observer are heard between launches" * doctest::test_suite("alone")) {
    LSMR_NEEDS_GPU();
    const Matrix a = chain(20000);
    const Vector b = random_vector(20000, 591);
    for (const Method method : kRun) {
        SolveOptions options = without_end(method, 100000000);
        options.time_limit_seconds = 0.2;
        const Answer late = solve(persistent(), a, b, options);
        CHECK(late.result.status == Status::time_limit);
        CHECK(late.result.iterations > 1000);
        CHECK(late.result.solve_seconds < 1.0);
        check_norms(late.result, truth(*a, b, late.x));
        options.time_limit_seconds = std::numeric_limits<double>::infinity();
        Recorder recorder(3000);
        const Answer stopped = solve(persistent(), a, b, options, {}, &recorder);
        CHECK(stopped.result.status == Status::stopped);
        CHECK(static_cast<std::int64_t>(recorder.all.size()) == stopped.result.iterations);
        options.max_iterations = stopped.result.iterations;
        CHECK(same_bits(stopped.x, solve(persistent(), a, b, options).x));
    }
}

// In the middle of a launch: every block must leave at the same pass, or the others wait for it for ever.
TEST_CASE("cuda persistent: a number that is not finite ends the launch, and x stays") {
    LSMR_NEEDS_GPU();
    const CudaContext context;
    for (const Matrix& a : {random_sparse(20000, 5000, 8, 595), random_sparse(300, 100, 5, 596), random_sparse(80, 40, 5, 599)}) {
        const SmallMatrix<double> matrix(*a, 0, context);
        SmallProblem<double> problem(matrix, matrix.plan(persistent_limits(context.device())), context);
        DeviceBuffer<double> u(context, a->rows());
        DeviceBuffer<double> columns[4];
        for (auto& column : columns) column = DeviceBuffer<double>(context, a->cols());
        DeviceBuffer<IterationRecord> records(context, 64);
        DeviceBuffer<LsmrRecurrence<double>> r(context, 1);
        const auto upload = [&](auto& to, const auto* from) {
            LSMR_CHECK(cudaMemcpyAsync(to.data(), from, static_cast<std::size_t>(to.bytes()), cudaMemcpyHostToDevice, context.stream()));
            context.synchronize();
        };
        Vector b = random_vector(a->rows(), 597);
        LsmrRecurrence<double> host{};
        host.prepare(1, 0, StopRules{.max_iterations = 1000}, {records.data(), 64}, 0);
        const double ones[1] = {1};
        host.finish(LsmrRecurrence<double>::start_forward, ones, kGoOn);
        host.finish(LsmrRecurrence<double>::start_adjoint, ones, kGoOn);
        b[7] = std::numeric_limits<double>::infinity();
        const Vector v = random_vector(a->cols(), 598), zero(v.size(), 0.0), x(v.size(), 3.0);
        upload(u, b.data());
        upload(columns[0], v.data());
        upload(columns[1], zero.data());
        upload(columns[2], zero.data());
        upload(columns[3], x.data());
        upload(r, &host);
        Lsmr<double>::Vectors w{};
        w.u = u.data();
        w.v = w.p = columns[0].data();
        w.h = columns[1].data();
        w.hbar = columns[2].data();
        w.x = columns[3].data();
        problem.iterate<Lsmr<double>>(w, r.data(), 50);
        Vector after(v.size());
        LSMR_CHECK(cudaMemcpyAsync(&host, r.data(), sizeof(host), cudaMemcpyDeviceToHost, context.stream()));
        LSMR_CHECK(cudaMemcpyAsync(after.data(), w.x, after.size() * sizeof(double), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        CHECK(host.progress.finished);
        CHECK(host.progress.code == static_cast<int>(Status::non_finite));
        CHECK(host.progress.suspect == Suspect::beta);
        CHECK(host.progress.iteration == 0);
        CHECK(same_bits(after, x));
    }
}

// Rows without entries at every border between blocks, and a zero matrix of many rows.
TEST_CASE("cuda persistent: empty rows and columns") {
    LSMR_NEEDS_GPU();
    Triplets t{9000, 7000, {}, {}, {}};
    const Vector values = random_vector(20000, 601);
    for (std::int64_t k = 0; k < 20000; ++k) t.add((k * 37) % 3000 * 3, (k * 101 + k / 3000) % 2333 * 3 + 1, values[index(k)]);
    const Matrix a = t.matrix();
    const Vector b = random_vector(9000, 602);
    for (const Method method : kRun) {
        const SolveOptions options = exactly(method, 6);
        const Answer one = solve(persistent(), a, b, options);
        const Answer two = solve(on_graph(), a, b, options);
        CHECK(one.result.iterations == two.result.iterations);
        CHECK(distance(one.x, two.x) <= 1e4 * kEps64 * norm(two.x));
        for (std::size_t j = 0; j < one.x.size(); ++j) {
            if (j % 3 != 1) REQUIRE(one.x[j] == 0);
        }
        const Answer nothing = solve(persistent(), zero_matrix(9000, 7000), b, options);
        CHECK(nothing.result.status == Status::start_solves);
        CHECK(norm(nothing.x) == 0);
    }
}
