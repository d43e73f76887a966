// The solver on the CPU.
#include <doctest/doctest.h>
#include <omp.h>

#include <chrono>
#include <thread>

#include "checkpoint_suite.hpp"
#include "operator/function_operator.hpp"
#include "order_suite.hpp"
#include "preconditioner_suite.hpp"
#include "solver/cpu/cpu_backend.hpp"
#include "solver/incomplete_cholesky.hpp"
#include "solver_suite.hpp"
#include "stop_suite.hpp"
#include "support/devices.hpp"
#include "transform_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {

// A user's operator: products with a matrix, counted, and whatever a test does to their results. In adjoint products
// the first is that by which the solver measures the scale, the second begins the solve, and number k + 2 belongs to
// iteration k.
template <class T>
class UserOperator {
  public:
    using Spoil = std::function<void(int call, T* out)>;  // call counts from 1

    explicit UserOperator(Matrix a) : a_(std::move(a)), at_(test::transposed(*a_)) {}
    FunctionOperator<T> make() {
        return FunctionOperator<T>(
            a_->rows(), a_->cols(),
            [this](const T* x, T* y) {
                multiply(*a_, x, y);
                ++forward_calls;
                if (spoil_forward) spoil_forward(forward_calls, y);
            },
            [this](const T* x, T* y) {
                multiply(*at_, x, y);
                ++adjoint_calls;
                if (spoil_adjoint) spoil_adjoint(adjoint_calls, y);
            });
    }
    void set_adjoint(Matrix at) { at_ = std::move(at); }

    int forward_calls = 0;
    int adjoint_calls = 0;
    Spoil spoil_forward;
    Spoil spoil_adjoint;

  private:
    static void multiply(const CsrMatrix& a, const T* x, T* y) {
        for (std::int64_t i = 0; i < a.rows(); ++i) {
            double sum = 0;
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
                sum += a.values()[k] * static_cast<double>(x[a.columns()[k]]);
            }
            y[i] = static_cast<T>(sum);
        }
    }
    Matrix a_;
    Matrix at_;
};

template <class T>
Answer solve_operator(UserOperator<T>& user, const Vector& b, const SolveOptions& options,
                      const std::optional<Vector>& x0 = {}, Observer* observer = nullptr) {
    user.forward_calls = user.adjoint_calls = 0;
    const FunctionOperator<T> a = user.make();
    const std::vector<T> b_t(b.begin(), b.end());
    std::vector<T> x(index(a.cols()), std::numeric_limits<T>::quiet_NaN());
    if (x0) x.assign(x0->begin(), x0->end());
    Answer answer;
    answer.result = lsmr::solve<T>(a, b_t, x, options, x0.has_value(), observer);
    answer.x.assign(x.begin(), x.end());
    return answer;
}

Vector as_fp32(const Vector& p) {
    const std::vector<float> narrow(p.begin(), p.end());
    return {narrow.begin(), narrow.end()};
}

}  // namespace

TEST_CASE("solver: SOL test family") {
    suite_lstp(on_cpu());
}
TEST_CASE("solver: start centre and damping against dense answers") {
    suite_start_and_center(on_cpu());
}
TEST_CASE("solver: damping is stacked rows") {
    suite_damping_is_stacked_rows(on_cpu());
    suite_damping_dwarfs_the_matrix(on_cpu());
}
TEST_CASE("solver: permuted problem") {
    suite_permuted_problem(on_cpu());
}
TEST_CASE("solver: methods meet") {
    suite_methods_meet(on_cpu());
}
TEST_CASE("solver: equilibrated columns give the same x") {
    suite_equilibrated(on_cpu());
}
TEST_CASE("solver: against LSCG of Eigen") {
    suite_against_eigen(on_cpu());
}
TEST_CASE("solver: scaled by powers of two") {
    suite_scaled_by_powers_of_two(on_cpu());
}
TEST_CASE("solver: scaled by powers of ten") {
    suite_scaled_by_powers_of_ten(on_cpu());
}
TEST_CASE("solver: the largest entry is found late") {
    suite_hidden_largest_entry(on_cpu());
}
TEST_CASE("solver: status 0 start solves") {
    suite_status_start_solves(on_cpu());
}
TEST_CASE("solver: status 1 compatible") {
    suite_status_compatible(on_cpu());
}
TEST_CASE("solver: status 2 least squares") {
    suite_status_least_squares(on_cpu());
}
TEST_CASE("solver: status 3 condition limit") {
    suite_status_condition_limit(on_cpu());
}
TEST_CASE("solver: status 4 and 5 machine precision") {
    suite_status_machine_precision(on_cpu());
}
TEST_CASE("solver: status 7 iteration limit") {
    suite_status_iteration_limit(on_cpu());
}
TEST_CASE("solver: status 8 time limit") {
    suite_status_time_limit(on_cpu());
}
TEST_CASE("solver: status 9 stopped by the observer") {
    suite_status_stopped(on_cpu());
}
TEST_CASE("solver: records are complete and in order") {
    suite_records(on_cpu());
}
TEST_CASE("solver: estimates are the truth at first") {
    suite_estimates(on_cpu());
}
TEST_CASE("solver: condition estimate") {
    suite_condition_estimate(on_cpu());
}
TEST_CASE("solver: empty rows and columns") {
    suite_empty_rows_and_columns(on_cpu());
}
TEST_CASE("solver: degenerate shapes") {
    suite_degenerate_shapes(on_cpu());
}
TEST_CASE("solver: early breakdown") {
    suite_early_breakdown(on_cpu());
}
TEST_CASE("solver: bad input") {
    suite_bad_input(on_cpu());
}
TEST_CASE("solver: the phases of a set-up") {
    suite_setup_phases(on_cpu());
}
TEST_CASE("solver: one problem many solves") {
    suite_reuse(on_cpu());
}
TEST_CASE("solver: many right-hand sides") {
    suite_many_right_hand_sides(on_cpu());
}
TEST_CASE("solver: observer throws") {
    suite_observer_throws(on_cpu());
}
TEST_CASE("solver: repeats give the same bits") {
    suite_repeats(on_cpu());
}
TEST_CASE("solver: single storage equals dual") {
    suite_storage(on_cpu());
}

// --- CG, and the choice of a method ---

TEST_CASE("cg: answers against dense ones") {
    suite_cg_answers(on_cpu());
}
TEST_CASE("cg: records and statuses") {
    suite_cg_statuses(on_cpu());
}
TEST_CASE("cg: refuses what it cannot solve") {
    suite_cg_refusals(on_cpu());
}
TEST_CASE("cg: scaled by powers of two") {
    suite_cg_scaled(on_cpu());
}
TEST_CASE("method: the automatic choice") {
    suite_automatic_method(on_cpu());
}

// --- other stops ---

TEST_CASE("stop: bounds on the gradient") {
    suite_gradient_bounds(on_cpu());
}
TEST_CASE("stop: several passes in a row") {
    suite_passes(on_cpu());
}
TEST_CASE("stop: status 12 by a window of one's own") {
    suite_stall_window(on_cpu());
}
TEST_CASE("stop: status 14 trust radius") {
    suite_trust_radius(on_cpu());
}
TEST_CASE("stop: options that are refused") {
    suite_stop_options_refused(on_cpu());
}

// --- weights, scaling, regularisation ---

TEST_CASE("transform: problem forms against dense answers") {
    suite_problem_forms(on_cpu());
}
TEST_CASE("transform: weights") {
    suite_weights_are_a_weighted_matrix(on_cpu());
}
TEST_CASE("transform: its sizes are those of all rows, and a column is doubled 60 times at most") {
    const Matrix a = diagonal({1, std::ldexp(1.0, -80), 0.25});
    PrepareOptions options = on_cpu();
    options.scale = Scaling::columns;
    const Transform columns = make_transform(a, options);
    CHECK(columns.column_scale == Vector{1, std::ldexp(1.0, 60), 4});
    CHECK(columns.max_abs == 1);
    options.scale = Scaling::none;
    options.regulariser = diagonal({1, 2, 3});
    options.regulariser_weight = 1e6;
    const Transform regularised = make_transform(a, options);
    CHECK(regularised.max_abs == 3e6);
    CHECK(regularised.claim_frobenius == doctest::Approx(1e6 * std::sqrt(14.0)));
    CHECK(regularised.data_frobenius == doctest::Approx(std::sqrt(1.0625)));
    options.regulariser_weight = 1e200;  // beside which squares of entries of A vanish, and whose own would overflow
    CHECK(make_transform(a, options).claim_frobenius == doctest::Approx(1e200 * std::sqrt(14.0)));
    // Rows are evened out as they are weighted.
    PrepareOptions rows = on_cpu();
    rows.scale = Scaling::rows;
    const Vector weights{16, 1};
    rows.weights = weights;
    CHECK(make_transform(diagonal({1, 1}), rows).row_scale == Vector{4, 4});
}
TEST_CASE("transform: scaled columns") {
    suite_scaled_columns(on_cpu());
}
TEST_CASE("transform: which solution of least norm is said") {
    suite_least_norm_is_said(on_cpu());
}
TEST_CASE("transform: refusals") {
    suite_transform_refusals(on_cpu());
}

// --- orders ---

TEST_CASE("order: solves against dense answers") {
    suite_orders(on_cpu());
}
TEST_CASE("order: solves under a sketch and an incomplete factor") {
    suite_preconditioned_orders(on_cpu());
}
TEST_CASE("order: solves beside those without an order") {
    suite_orders_beside_none(on_cpu());
}
TEST_CASE("order: states go on in their own order") {
    suite_order_of_checkpoints(on_cpu());
}

// --- checkpoints ---

TEST_CASE("checkpoint: an interrupted solve goes on to the same bits") {
    suite_checkpoints(on_cpu());
}
TEST_CASE("checkpoint: solves that go on or start again") {
    suite_checkpoint_restarts(on_cpu());
}
TEST_CASE("checkpoint: limits that are reached already") {
    suite_checkpoint_limits(on_cpu());
}
TEST_CASE("checkpoint: refusals") {
    suite_checkpoint_refusals(on_cpu());
}
TEST_CASE("checkpoint: fingerprints see every bit") {
    const Vector p = random_vector(1000, 1021);
    const auto hash = [](const Vector& values) {
        Fingerprint f;
        f.add(values.data(), static_cast<std::int64_t>(values.size()));
        return f.value();
    };
    std::set<std::uint64_t> seen{hash(p), hash({}), hash(Vector(p.begin(), p.end() - 1))};
    for (std::size_t i = 0; i < p.size(); ++i) {
        Vector q = p;
        q[i] = std::nextafter(q[i], 2);
        seen.insert(hash(q));
        q[i] = -p[i];
        seen.insert(hash(q));
    }
    CHECK(seen.size() == 3 + 2 * p.size());
}

// --- preconditioners ---

TEST_CASE("preconditioner: iterates are those on A K") {
    suite_preconditioned_iterates(on_cpu());
}
TEST_CASE("preconditioner: answers against dense ones") {
    suite_preconditioned_answers(on_cpu());
}
TEST_CASE("preconditioner: fewer iterations") {
    suite_preconditioners_save_iterations(on_cpu());
}
TEST_CASE("preconditioner: refusals") {
    suite_preconditioner_refusals(on_cpu());
}
TEST_CASE("preconditioner: sketch") {
    suite_sketch(on_cpu());
}
TEST_CASE("preconditioner: incomplete Cholesky") {
    suite_incomplete_cholesky(on_cpu());
}
TEST_CASE("preconditioner: blocks are found") {
    const ColumnBlocks found = detect_blocks(*bundle_matrix(4, 14));
    REQUIRE(found.count() == 18);
    for (std::size_t b = 0; b < 18; ++b) CHECK(found.begins[b + 1] - found.begins[b] == (b < 4 ? 9 : 3));
    CHECK(found.largest() == 9);
    // Never more than fits a block; single columns where no neighbours are alike.
    Triplets full{3, 70, {}, {}, {}};
    for (std::int64_t i = 0; i < 3; ++i) {
        for (std::int64_t j = 0; j < 70; ++j) full.add(i, j, 1.0);
    }
    CHECK(detect_blocks(*full.matrix()).begins == std::vector<std::int64_t>{0, 32, 64, 70});
    CHECK(detect_blocks(*diagonal({1, 2, 3})).begins == std::vector<std::int64_t>{0, 1, 2, 3});
    CHECK(detect_blocks(*zero_matrix(2, 0)).count() == 0);
    CHECK(even_blocks(10, 4).begins == std::vector<std::int64_t>{0, 4, 8, 10});
}
// K^T (A^T A + damp^2 I)_b K = I; in singular blocks A K has singular values 1 and 0; empty columns are those of I.
TEST_CASE("preconditioner: factors of the blocks") {
    const Matrix a = bundle_matrix();
    for (const double damp : {0.0, 0.3}) {
        const ColumnBlocks blocks = detect_blocks(*a);
        const BlockPreconditioner p = make_block_preconditioner(*a, nullptr, {}, damp, blocks);
        CHECK(p.singular == 0);
        const DenseMatrix k = dense(p.k) * std::ldexp(1.0L, -p.exponent);
        const DenseMatrix gram = dense(*a).transpose() * dense(*a);
        for (std::size_t b = 0; b + 1 < blocks.begins.size(); ++b) {
            const auto begin = blocks.begins[b], n = blocks.begins[b + 1] - begin;
            const DenseMatrix kb = k.block(begin, begin, n, n);
            const DenseMatrix m =
                gram.block(begin, begin, n, n) + static_cast<long double>(damp * damp) * DenseMatrix::Identity(n, n);
            CHECK((kb.transpose() * m * kb - DenseMatrix::Identity(n, n)).norm() <
                  1e-8L);  // the blocks' condition is about 1e7
        }
        CHECK((k.triangularView<Eigen::StrictlyLower>().toDenseMatrix()).norm() == 0);
        check_within(p.frobenius, static_cast<double>((dense(*a) * k).norm()), 1e-9 * p.frobenius, "||A K||_F");
        check_within(p.scaled_frobenius, static_cast<double>(dense(p.k).norm()), 1e-12 * p.scaled_frobenius, "||K||_F");
    }
    // Two equal columns, and one that is empty.
    const Matrix singular = matrix_of(3, 3, {1, 1, 0, 2, 2, 0, 3, 3, 0});
    const BlockPreconditioner p = make_block_preconditioner(*singular, nullptr, {}, 0, even_blocks(3, 2));
    CHECK(p.singular == 1);
    const DenseMatrix k = dense(p.k);
    CHECK(k(2, 2) == 1);
    const Eigen::JacobiSVD<DenseMatrix> svd(dense(*singular) * std::ldexp(1.0L, -p.exponent) * k);
    CHECK(std::abs(static_cast<double>(svd.singularValues()(0)) - 1) <= 8 * kEps64);
    CHECK(svd.singularValues()(1) <= 8 * kEps64);
    CHECK(k.cwiseAbs().maxCoeff() <= 4);  // near 1, as the entries of A are there: no rounding of A^T r is enlarged
    // A column too short for its scale weakens no other: the incomplete factor needs no shift.
    const IncompleteCholesky factor(*matrix_of(2, 2, {1, 0x1p-200, -1, 0x1p-200}), nullptr, {}, 0, {0.0, 0.0, 1 << 20});
    CHECK(factor.shift() == 0);
    CHECK(factor.scale()[1] == 0x1p60);
    const Vector b{1, 0, 2};
    const Answer answer = solve(with_blocks(on_cpu(), 2), singular, b, with_method(Method::lsmr, 1e-8));
    CHECK(answer.result.converged());
    check_norms(answer.result, truth(*singular, b, answer.x));
}

// --- several threads ---

TEST_CASE("solver: threads do not change bits") {
    const Matrix a = random_sparse(40000, 20000, 4, 401);  // several chunks of rows, of columns and of vectors
    const Vector b = random_vector(a->rows(), 402);
    const Vector x0 = random_vector(a->cols(), 403);
    for (const Precision precision : kPrecisions) {
        for (const StorageKind storage : {StorageKind::dual, StorageKind::single}) {
            for (const Method method : kMethods) {
                PrepareOptions prepare = with_precision(on_cpu(), precision);
                prepare.storage = storage;
                Answer first;
                for (const int threads : {1, 2, 3}) {
                    prepare.threads = threads;
                    const Answer answer = solve(prepare, a, b, exactly(method, 12, 0.1), x0);
                    if (threads == 1) first = answer;
                    CHECK(same_bits(answer.x, first.x));
                    CHECK(answer.result.norms.ar == first.result.norms.ar);
                    CHECK(answer.result.norms.r_estimated == first.result.norms.r_estimated);
                    CHECK(answer.result.norms.a_frobenius == first.result.norms.a_frobenius);
                }
            }
        }
    }
    CHECK(omp_get_max_threads() == 1);  // the caller's setting is back
}

TEST_CASE("solver: two hundred repeats give the same bits") {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 411);
    for (const Method method : kMethods) {
        const Vector first = solve(on_cpu(), a, b, with_method(method, 1e-10)).x;
        int different = 0;
        for (int repeat = 0; repeat < 200; ++repeat) {
            different += !same_bits(solve(on_cpu(), a, b, with_method(method, 1e-10)).x, first);
        }
        CHECK(different == 0);
    }
}

TEST_CASE("solver: problems in two threads at once") {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 421);
    const Vector expected = solve(on_cpu(), a, b, with_method(Method::lsmr)).x;
    int different[2] = {0, 0};
    const auto work = [&](int& count) {
        for (int k = 0; k < 50; ++k) count += !same_bits(solve(on_cpu(), a, b, with_method(Method::lsmr)).x, expected);
    };
    std::thread other([&] { work(different[1]); });
    work(different[0]);
    other.join();
    CHECK(different[0] == 0);
    CHECK(different[1] == 0);
}

TEST_CASE("solver: no device memory on the CPU") {
    PreparedProblem problem(tall_matrix(), on_cpu());
    CHECK(problem.memory().pool_live_bytes == 0);
    CHECK(problem.memory().pool_peak_bytes == 0);
    CHECK(problem.memory().pool_reserved_bytes == 0);
    CHECK(problem.info().device == DeviceKind::cpu);
    PrepareOptions cusparse = on_cpu();
    cusparse.spmv = SpmvKind::cusparse;
    CHECK_THROWS_AS(PreparedProblem(tall_matrix(), cusparse), InputError);
}

// Norms decide how long the Lanczos vectors stay orthogonal: their sums are formed in blocks, so that the error grows
// with the number of blocks, not of terms. Equal terms are the worst case: every addition rounds the same way.
TEST_CASE("solver: norms on the CPU are accurate") {
    UserOperator<double> user(tall_matrix());
    const FunctionOperator<double> a = user.make();
    CpuBackend<double> backend(a);
    for (const double value : {0.1, 0.7, 1e-3}) {
        const Vector p(8191, value);
        const double expected = norm(p);
        check_within(backend.norm_now(8191, p.data()), expected, norm_rounding(64 + 128) * expected, "norm");
    }
}

// --- users' operators ---

TEST_CASE("solver: a user's operator") {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 431);
    const Vector x0 = random_vector(a->cols(), 432);
    UserOperator<double> wide(a);
    UserOperator<float> narrow(a);
    for (const Method method : kMethods) {
        for (const double damp : {0.0, 0.4}) {
            for (const int start : {0, 1, 2}) {
                const Vector center = start == 2 ? x0 : Vector{};
                const std::optional<Vector> given = start > 0 ? std::optional<Vector>(x0) : std::nullopt;
                SolveOptions options = with_method(method, 1e-10);
                options.damp = damp;
                options.damp_center = start == 2 ? DampCenter::x0 : DampCenter::zero;
                const Oracle oracle = dense_solution(*a, b, damp, damp > 0 ? center : Vector{});
                const Answer answer = solve_operator(wide, b, options, given);
                const Truth t = truth(*a, b, answer.x, damp, center, given.value_or(Vector{}));
                CHECK(answer.result.status == Status::least_squares);
                CHECK(distance(answer.x, oracle.x) <= error_bound(t, oracle.sigma_min));
                check_within(answer.result.norms.ar, t.ar, gradient_rounding(t), "||A'r||");
                check_within(answer.result.norms.r_damped, t.r_damped, residual_rounding(t), "damped ||r||");
                check_within(answer.result.norms.dx, t.dx, norm_rounding(t.cols) * (t.x + t.dx), "||x - x0||");

                // In fp32 the user's products are all there is: x solves to their rounding, k eps ||A|| (||A|| ||x|| +
                // ||b||) in the gradient.
                options.atol = options.btol = 1e-5;
                const Answer rough = solve_operator(narrow, b, options, given);
                CHECK(rough.result.converged());
                const Truth rough_t = truth(*a, b, rough.x, damp, center, given.value_or(Vector{}));
                CHECK(rough_t.ar <=
                      2e-5 * rough_t.stacked * rough_t.r_damped +
                          16 * kEps32 * rough_t.stacked * (rough_t.stacked * (rough_t.x + rough_t.dx) + rough_t.b));
            }
        }
    }
}

// CGLS and CG take the largest gain that they have met along a direction for the norm of a user's operator: ||A p|| / ||p||, p^T A p / ||p||^2.
TEST_CASE("solver: what stands for the norm of a user's operator is the largest gain so far") {
    for (const Method method : {Method::cgls, Method::cg}) {
        const Matrix a = method == Method::cg ? spd_matrix() : tall_matrix();
        const Vector b = random_vector(a->rows(), 433);
        for (const double damp : {0.0, 0.4}) {
            if (method == Method::cg && damp > 0) continue;
            CAPTURE(word(method));
            CAPTURE(damp);
            SolveOptions options = exactly(method, 6);
            options.damp = damp;
            UserOperator<double> user(a);
            Recorder recorder;
            solve_operator(user, b, options, {}, &recorder);
            REQUIRE(recorder.all.size() == 6);
            DenseVector before = DenseVector::Zero(a->cols());
            long double largest = 0;
            for (const IterationRecord& record : recorder.all) {
                options.max_iterations = record.iteration;
                const DenseVector x = dense(solve_operator(user, b, options).x);
                const DenseVector step = x - before;
                const DenseVector image = dense(*a) * step;
                const long double gain = method == Method::cg ? step.dot(image) / step.squaredNorm()
                                                              : std::sqrt(image.squaredNorm() / step.squaredNorm() + damp * damp);
                largest = std::max(largest, gain);
                before = x;
                check_within(record.a_norm, static_cast<double>(largest), 1e-9 * static_cast<double>(largest), "the norm");
            }
        }
    }
}

// Without max |a_ij| the scale is measured.
TEST_CASE("solver: a user's operator of any scale") {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 441);
    for (const Method method : kMethods) {
        UserOperator<double> plain_user(a);
        const Answer plain = solve_operator(plain_user, b, with_method(method));
        CHECK(plain.result.status == Status::least_squares);
        for (const auto& [ea, eb] : {std::pair{300, 0}, {-300, 0}, {400, 500}, {-400, 200}}) {
            UserOperator<double> user(std::make_shared<const CsrMatrix>(a->scaled_by_power_of_two(ea)));
            const Answer other = solve_operator(user, scaled(b, std::ldexp(1.0, eb)), with_method(method));
            CHECK(other.result.status == plain.result.status);
            CHECK(other.result.iterations == plain.result.iterations);
            CHECK(same_bits(other.x, scaled(plain.x, std::ldexp(1.0, eb - ea))));
        }
    }
}

TEST_CASE("solver: an operator of the wrong size or place") {
    UserOperator<double> user(tall_matrix());
    const FunctionOperator<double> a = user.make();
    Vector x(40), b(120), short_b(3);
    CHECK_THROWS_WITH_AS(lsmr::solve<double>(a, short_b, x, {}), "solve: b has 3 entries and x 40, A is 120 x 40",
                         InputError);
    b[7] = std::numeric_limits<double>::infinity();
    CHECK_THROWS_AS(lsmr::solve<double>(a, b, x, {}), InputError);
    SolveOptions negative;
    negative.damp = -1;
    CHECK_THROWS_AS(lsmr::solve<double>(a, x, b, negative), InputError);
    CHECK(user.forward_calls + user.adjoint_calls == 0);
}

// Wherever the operator throws - while the scale is measured, in the loop, in the audit - the exception comes out as it
// was, and x holds the iterate so far.
TEST_CASE("solver: operator throws") {
    struct Broken {
        int call;
    };
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 451);
    UserOperator<double> user(a);
    for (const Method method : kMethods) {
        const SolveOptions options = with_method(method, 1e-10);
        const Answer whole = solve_operator(user, b, options);
        const int calls = user.forward_calls + user.adjoint_calls;
        REQUIRE(calls > 20);
        for (int call = 1; call <= calls; ++call) {
            const auto thrower = [&](int, double*) {
                if (user.forward_calls + user.adjoint_calls == call) throw Broken{call};
            };
            user.spoil_forward = user.spoil_adjoint = thrower;
            user.forward_calls = user.adjoint_calls = 0;
            const FunctionOperator<double> op = user.make();
            Vector x(index(a->cols()), 5.0);
            bool thrown = false;
            try {
                lsmr::solve<double>(op, b, x, options);
            } catch (const Broken& broken) {
                thrown = broken.call == call;
            }
            CAPTURE(call);
            CHECK(thrown);
            if (call == 1) CHECK(same_bits(x, Vector(x.size(), 5.0)));  // before the start x is not touched
            if (call == 2) CHECK(norm(x) == 0);
            if (call > 8) CHECK(truth(*a, b, x).ar < truth(*a, b, Vector(x.size(), 0.0)).ar);
            // In the audit x is complete.
            if (call == calls) CHECK(same_bits(x, whole.x));
        }
        user.spoil_forward = user.spoil_adjoint = nullptr;
        CHECK(same_bits(solve_operator(user, b, options).x, whole.x));
    }
}

// A NaN or an infinity in the products of iteration 5. LSMR keeps iterate 4. CGLS has made its fifth step when the
// adjoint product fails, and keeps that.
TEST_CASE("solver: status 10 non-finite") {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 461);
    for (const Method method : kMethods) {
        for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
            for (const bool in_adjoint : {false, true}) {
                UserOperator<double> user(a);
                if (in_adjoint) {
                    user.spoil_adjoint = [&](int call, double* out) {
                        if (call == 7) out[3] = bad;
                    };
                } else {
                    user.spoil_forward = [&](int call, double* out) {
                        if (call == 5) out[3] = bad;
                    };
                }
                Recorder recorder;
                const Answer answer = solve_operator(user, b, with_method(method, 1e-12), {}, &recorder);
                CAPTURE(word(method));
                CAPTURE(in_adjoint);
                CAPTURE(answer.result.message);
                CHECK(answer.result.status == Status::non_finite);
                CHECK(answer.result.message.find(in_adjoint ? "product with A^T" : "product with A,") !=
                      std::string::npos);
                CHECK(answer.result.message.find("in iteration 5") != std::string::npos);
                const std::int64_t kept = method == Method::cgls && in_adjoint ? 5 : 4;
                CHECK(answer.result.iterations == kept);
                UserOperator<double> sound(a);
                CHECK(same_bits(answer.x, solve_operator(sound, b, exactly(method, kept)).x));
                REQUIRE(static_cast<std::int64_t>(recorder.all.size()) == kept);
                check_within(recorder.all.back().x_norm, norm(answer.x), 8 * kEps64 * norm(answer.x), "||x||");
                // The audit's products were sound again.
                const Truth t = truth(*a, b, answer.x);
                check_within(answer.result.norms.ar, t.ar, gradient_rounding(t), "||A'r||");
            }
        }
    }
}

TEST_CASE("solver: status 10 non-finite at the start") {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 471);
    const Vector x0 = random_vector(a->cols(), 472);
    for (const Method method : kMethods) {
        UserOperator<double> user(a);
        user.spoil_adjoint = [](int call, double* out) {
            if (call == 2) out[0] = std::nan("");
        };
        const Answer cold = solve_operator(user, b, with_method(method));
        CHECK(cold.result.status == Status::non_finite);
        CHECK(cold.result.iterations == 0);
        CHECK(cold.result.message.find("before the first iteration") != std::string::npos);
        CHECK(norm(cold.x) == 0);
        user.spoil_adjoint = nullptr;
        user.spoil_forward = [](int call, double* out) {
            if (call == 1) out[0] = std::nan("");
        };  // A x0
        const Answer warm = solve_operator(user, b, with_method(method), x0);
        CHECK(warm.result.status == Status::non_finite);
        CHECK(same_bits(warm.x, x0));
        // Only while the scale is measured: no harm.
        user.spoil_forward = nullptr;
        user.spoil_adjoint = [](int call, double* out) {
            if (call == 1) out[0] = std::nan("");
        };
        CHECK(solve_operator(user, b, with_method(method)).result.status == Status::least_squares);
    }
}

// CGLS meets p with A p = 0 although A^T r is not 0: the two products do not belong together.
TEST_CASE("solver: status 11 breakdown") {
    const Matrix a = tall_matrix();
    UserOperator<double> user(a);
    user.spoil_forward = [&](int, double* out) { std::fill(out, out + a->rows(), 0.0); };
    const Answer answer = solve_operator(user, random_vector(a->rows(), 481), with_method(Method::cgls));
    CHECK(answer.result.status == Status::breakdown);
    CHECK(answer.result.iterations == 0);
    CHECK(norm(answer.x) == 0);
    CHECK(!answer.result.message.empty());
}

// Code 6. With exact products test 5 passes first: ||A'r|| is as small beside ||A|| ||r|| as the least singular value
// beside the largest. An operator whose first products are far too small makes LSQR see a condition of 1e17 while
// ||A'r|| is not small.
TEST_CASE("solver: status 6 condition at machine precision") {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 482);
    UserOperator<double> user(a);
    const auto shrink = [](double* out, std::int64_t n, double factor) {
        for (std::int64_t i = 0; i < n; ++i) out[i] *= factor;
    };
    user.spoil_adjoint = [&](int call, double* out) {
        if (call == 2) shrink(out, a->cols(), 1e-27);
    };
    user.spoil_forward = [&](int call, double* out) {
        if (call == 1) shrink(out, a->rows(), 1e-17);
    };
    SolveOptions options = exactly(Method::lsqr, 1000);
    options.conlim = 1e300;
    const Answer answer = solve_operator(user, b, options);
    CAPTURE(answer.result.message);
    CHECK(answer.result.status == Status::condition_eps);
    CHECK(!answer.result.converged());
    CHECK(answer.result.norms.cond_estimate >= 1 / kEps64);
    CHECK(answer.result.message.find("the estimate is") != std::string::npos);
    const Truth t = truth(*a, b, answer.x);
    check_within(answer.result.norms.r, t.r, residual_rounding(t), "||r||");
}

// Code 15: an operator that runs out of memory. x is what there was; what was not recomputed is not claimed.
TEST_CASE("solver: status 15 resource error") {
    const Matrix a = tall_matrix();
    const Vector b = random_vector(a->rows(), 483);
    UserOperator<double> sound(a);
    for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
        for (const bool device_memory : {false, true}) {
            for (const int call : {1, 6}) {
                UserOperator<double> user(a);
                user.spoil_forward = [&](int now, double*) {
                    if (now != call) return;
                    if (device_memory) throw OutOfMemory(4096, 1024, 512, "take less");
                    throw std::bad_alloc();
                };
                Recorder recorder;
                const Answer answer = solve_operator(user, b, with_method(method, 1e-10), {}, &recorder);
                CAPTURE(word(method));
                CAPTURE(call);
                CAPTURE(answer.result.message);
                CHECK(answer.result.status == Status::resource_error);
                CHECK(exit_code(answer.result.status) == 71);
                CHECK(answer.result.message.find(device_memory ? "take less" : "host memory") != std::string::npos);
                // In the product of iteration 6 LSMR and LSQR have published 4, CGLS 5.
                const std::int64_t done = call == 1 ? 0 : method == Method::cgls ? 5 : 4;
                CHECK(answer.result.iterations == done);
                CHECK(same_bits(answer.x, solve_operator(sound, b, exactly(method, done)).x));
                CHECK(std::isnan(answer.result.norms.r));
                check_within(answer.result.norms.x, norm(answer.x), 8 * kEps64 * norm(answer.x), "||x||");
            }
        }
    }
    // Before an iteration: in the product with x0.
    for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls}) {
        UserOperator<double> user(a);
        user.spoil_forward = [](int, double*) { throw std::bad_alloc(); };
        const Vector x0 = random_vector(a->cols(), 484);
        const Answer answer = solve_operator(user, b, with_method(method, 1e-10), x0);
        CHECK(answer.result.status == Status::resource_error);
        CHECK(answer.result.iterations == 0);
        CHECK(same_bits(answer.x, x0));
    }
    // What the observer throws is the caller's own and comes out as it was.
    class Hungry : public Observer {
        Verdict on_iterations(std::span<const IterationRecord>) override { throw std::bad_alloc(); }
    } hungry;
    CHECK_THROWS_AS(solve_operator(sound, b, with_method(Method::lsmr), {}, &hungry), std::bad_alloc);
}

// A user's operator that is not square, or has no inverse, under CG.
TEST_CASE("cg: a user's operator") {
    const Matrix a = spd_matrix();
    const Vector b = random_vector(a->rows(), 485);
    UserOperator<double> user(a);
    const Answer answer = solve_operator(user, b, with_method(Method::cg, 1e-10));
    CHECK(answer.result.status == Status::compatible);
    check_within(answer.result.norms.r, truth(*a, b, answer.x).r, residual_rounding(truth(*a, b, answer.x)), "||r||");
    user.spoil_forward = [](int call, double* out) {
        if (call == 4) out[2] = std::nan("");
    };
    const Answer spoiled = solve_operator(user, b, with_method(Method::cg, 1e-10));
    CHECK(spoiled.result.status == Status::non_finite);
    CHECK(spoiled.result.iterations == 3);
    CHECK(spoiled.result.message.find("in iteration 4") != std::string::npos);
    CHECK(same_bits(spoiled.x, solve(on_cpu(), a, b, exactly(Method::cg, 3)).x) ==
          false);  // another ||A||, other scale
    UserOperator<double> plain(a);
    CHECK(same_bits(spoiled.x, solve_operator(plain, b, exactly(Method::cg, 3)).x));
    UserOperator<double> tall(tall_matrix());
    CHECK_THROWS_WITH_AS(solve_operator(tall, random_vector(120, 486), with_method(Method::cg)),
                         "cg needs a symmetric positive definite A; this one is 120 x 40", InputError);
    // Of a user's operator only the shape is known.
    CHECK(solve_operator(plain, b, with_method(Method::automatic)).result.method == Method::lsqr);
    CHECK(solve_operator(tall, random_vector(120, 487), with_method(Method::automatic)).result.method == Method::lsmr);
}

// Condition 4e17 and no tolerance at all: nothing improves any more, long before any limit.
TEST_CASE("solver: status 12 stagnated") {
    const GeneratedProblem p = lstp(40, 40, 1, 11, 0);
    const auto a = std::make_shared<const CsrMatrix>(p.a.clone());
    SolveOptions options = exactly(Method::lsmr, 100000);
    Recorder recorder;
    const Answer answer = solve(on_cpu(), a, p.b, options, {}, &recorder);
    CHECK(answer.result.status == Status::stagnated);
    CHECK(!answer.result.converged());
    const auto k = static_cast<std::int64_t>(recorder.all.size());
    REQUIRE(k == answer.result.iterations);
    const std::int64_t window = 2000;
    CHECK(k > window);
    CHECK(k < 50000);
    // In the window neither number came 10 % below its best before.
    double best_r = recorder.all[0].r_norm, best_ls = recorder.all[0].ls;
    for (std::int64_t i = 0; i < k - window; ++i) {
        best_r = std::min(best_r, recorder.all[index(i)].r_norm);
        best_ls = std::min(best_ls, recorder.all[index(i)].ls);
    }
    for (std::int64_t i = k - window + 1; i < k; ++i) {
        CHECK_FALSE(recorder.all[index(i)].r_norm < 0.9 * best_r);
        CHECK_FALSE(recorder.all[index(i)].ls < 0.9 * best_ls);
    }
    check_norms(answer.result, truth(*a, p.b, answer.x));
}

// An adjoint that rounds its argument to fp32: with such products no x can be had to 1e-10.
class CoarseAdjoint {
  public:
    CoarseAdjoint() : a_(graded(*random_sparse(200, 60, 4, 491), 10)), at_(test::transposed(*a_)) {}
    const CsrMatrix& matrix() const { return *a_; }
    // before: called before each product with A.
    FunctionOperator<double> make(std::function<void()> before = [] {}) const {
        return FunctionOperator<double>(
            a_->rows(), a_->cols(),
            [this, before](const double* x, double* y) {
                before();
                const Vector y_wide = product(*a_, Vector(x, x + a_->cols()));
                std::copy(y_wide.begin(), y_wide.end(), y);
            },
            [this](const double* y, double* x) {
                const Vector x_wide = product(*at_, as_fp32(Vector(y, y + a_->rows())));
                std::copy(x_wide.begin(), x_wide.end(), x);
            });
    }

  private:
    Matrix a_;
    Matrix at_;
};

// LSMR's recurrence believes that it converged.
TEST_CASE("solver: status 13 audit refused") {
    const CoarseAdjoint coarse;
    const FunctionOperator<double> op = coarse.make();
    const Vector b = random_vector(op.rows(), 492);
    SolveOptions options = with_method(Method::lsmr, 1e-10);
    options.max_iterations = 5000;
    Vector x(index(op.cols()));
    Recorder recorder;
    const SolveResult result = lsmr::solve<double>(op, b, x, options, false, &recorder);
    CHECK(result.status == Status::audit_refused);
    CHECK(!result.converged());
    CHECK(result.restarts >= 1);
    CHECK(result.restarts <= 3);
    // The message holds both pairs of numbers; the recomputed one is far above what was believed.
    CHECK(result.message.find("recomputed") != std::string::npos);
    const Truth t = truth(coarse.matrix(), b, x);
    CHECK(result.norms.ar_estimated <= 1e-10 * result.norms.a_frobenius * result.norms.r);
    CHECK(result.norms.ar > 2e-10 * t.a_frobenius * result.norms.r);
    // Records go on counting through the restarts.
    REQUIRE(static_cast<std::int64_t>(recorder.all.size()) == result.iterations);
    for (std::size_t k = 0; k < recorder.all.size(); ++k) {
        CHECK(recorder.all[k].iteration == static_cast<std::int64_t>(k) + 1);
    }
    // x is the best that was found, good to the fp32 of the adjoint.
    CHECK(t.ar <= 16 * kEps32 * t.a_frobenius * t.r);

    // A restart that made it worse is dropped: the norms are those of the x that is returned.
    bool one_got_worse = false;
    for (std::uint64_t seed = 500; seed < 520; ++seed) {
        const Vector other = random_vector(op.rows(), seed);
        const SolveResult again = lsmr::solve<double>(op, other, x, options);
        if (again.status != Status::audit_refused) continue;
        one_got_worse = one_got_worse || again.restarts < 3;
        const Truth worse = truth(coarse.matrix(), other, x);
        check_within(again.norms.x, worse.x, norm_rounding(op.cols()) * worse.x, "||x||");
        check_within(again.norms.r, worse.r, residual_rounding(worse), "||r||");
    }
    CHECK(one_got_worse);

    // Memory that runs out at any moment: no iteration is counted that was not made, and none twice.
    std::int64_t products = 0, fails_at = 0;
    const FunctionOperator<double> hungry = coarse.make([&] {
        if (++products == fails_at) throw std::bad_alloc();
    });
    Recorder whole;
    lsmr::solve<double>(hungry, b, x, options, false, &whole);
    for (const std::int64_t all = products; fails_at < all;) {
        ++fails_at;
        products = 0;
        Recorder seen;
        const SolveResult part = lsmr::solve<double>(hungry, b, x, options, false, &seen);
        CAPTURE(fails_at);
        CHECK(part.status == Status::resource_error);
        CHECK(part.iterations == static_cast<std::int64_t>(seen.all.size()));
    }

    // The limit counts iterations over restarts too.
    for (const std::int64_t less : {1, 2, 5}) {
        options.max_iterations = result.iterations - less;
        CHECK(lsmr::solve<double>(op, b, x, options).iterations <= options.max_iterations);
    }
}

// CGLS measures its gradient. It sees that it cannot go on, or is refused, but never runs away: unnoticed, ||x|| would
// grow until it overflows.
TEST_CASE("solver: CGLS with products that do not belong together") {
    const CoarseAdjoint coarse;
    const FunctionOperator<double> op = coarse.make();
    for (const std::uint64_t seed : {491u, 492u, 493u, 494u}) {
        const Vector b = random_vector(op.rows(), seed);
        SolveOptions options = with_method(Method::cgls, 1e-10);
        options.max_iterations = 5000;
        Vector x(index(op.cols()));
        const SolveResult result = lsmr::solve<double>(op, b, x, options);
        CAPTURE(result.message);
        CHECK((result.status == Status::breakdown || result.status == Status::audit_refused));
        CHECK(result.iterations < 5000);
        // ||r|| is within the root of eps of the least that was seen, so of the least there is.
        const double least = truth(coarse.matrix(), b, dense_solution(coarse.matrix(), b).x).r;
        CHECK(truth(coarse.matrix(), b, x).r <= least * (1 + 2 * std::sqrt(kEps64)));
    }
}

TEST_CASE("solver: time limit in the middle") {
    const Matrix a = graded(*random_sparse(200, 80, 4, 501), 1e4);
    const Vector b = random_vector(a->rows(), 502);
    for (const Method method : kMethods) {
        UserOperator<double> user(a);
        user.spoil_forward = [](int, double*) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
        SolveOptions options = exactly(method, 1000000);
        options.time_limit_seconds = 0.05;
        const Answer answer = solve_operator(user, b, options);
        CHECK(answer.result.status == Status::time_limit);
        CHECK(answer.result.iterations >= 1);
        CHECK(answer.result.iterations <= 25);  // 2 ms each at least
        UserOperator<double> quick(a);
        CHECK(same_bits(answer.x, solve_operator(quick, b, exactly(method, answer.result.iterations)).x));
    }
}
