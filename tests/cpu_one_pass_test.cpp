// One pass over A for both products of an iteration on the CPU, and the team of threads that runs it.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "checkpoint_suite.hpp"
#include "cpu_rig.hpp"
#include "data/generators.hpp"
#include "memory/error.hpp"
#include "operator/cpu/one_pass.hpp"
#include "operator/cpu/row_storage.hpp"
#include "operator/stacked_operator.hpp"
#include "preconditioner_suite.hpp"
#include "solver/cpu/team_choice.hpp"
#include "solver_suite.hpp"
#include "stop_suite.hpp"
#include "storage_suite.hpp"
#include "transform_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

OperatorOptions once() {
    OperatorOptions options;
    options.storage = StorageKind::one_pass;
    return options;
}

template <class T, cpu::InstructionSet set, cpu::Narrowing narrowing, cpu::Grouping grouping>
constexpr cpu::Kernels<T> kForced{.set = set, .narrowing = narrowing, .grouping = grouping};

template <class T, cpu::InstructionSet set, cpu::Narrowing narrowing, cpu::Grouping grouping>
std::unique_ptr<Rig<T>> make_forced(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    return std::make_unique<CpuRig<T>>(cpu::make_operator<T>(std::move(a), options, kForced<T, set, narrowing, grouping>));
}

// What a pair of products left.
template <class T>
struct Both {
    std::vector<T> y, z;
    double y_squares = 0, z_squares = 0;
};
// y <- a A x + b y, then z <- c A^T y + d z.
template <class T>
Both<T> run_both(const MatrixOperator<T>& op, Workspace& workspace, double a, const std::vector<T>& x, double b, std::vector<T> y, double c, double d,
                 std::vector<T> z) {
    REQUIRE(op.one_pass() != nullptr);
    const auto coefficient = [](double value) { return Coefficient<T>{value, static_cast<T>(value)}; };
    const Coefficient<T> ca = coefficient(a), cb = coefficient(b), cc = coefficient(c), cd = coefficient(d);
    std::vector<double> sums(2 * static_cast<std::size_t>(op.max_partials()));
    NormPartials rows{sums.data(), 0}, cols{sums.data() + op.max_partials(), 0};
    op.one_pass()->apply_both(&ca, x.data(), &cb, y.data(), workspace, &rows);
    op.one_pass()->apply_kept_adjoint(&cc, &cd, z.data(), workspace, &cols);
    REQUIRE(rows.count <= op.max_partials());
    REQUIRE(cols.count <= op.max_partials());
    return {std::move(y), std::move(z), std::accumulate(rows.sums, rows.sums + rows.count, 0.0), std::accumulate(cols.sums, cols.sums + cols.count, 0.0)};
}

template <class T>
void check_both(const std::shared_ptr<const CsrMatrix>& a, const MatrixOperator<T>& op) {
    const auto workspace = op.make_workspace(nullptr);
    const auto x = narrow<T>(products::random_vector(a->cols(), 71));
    const auto y0 = narrow<T>(products::random_vector(a->rows(), 72));
    const auto z0 = narrow<T>(products::random_vector(a->cols(), 73));
    for (const double b : {-0.5, 0.0}) {
        // Where b is 0, y and z are not read.
        const std::vector<T> no_y(y0.size(), std::numeric_limits<T>::quiet_NaN()), no_z(z0.size(), std::numeric_limits<T>::quiet_NaN());
        const auto& y = b == 0 ? no_y : y0;
        const auto& z = b == 0 ? no_z : z0;
        const Both<T> both = run_both<T>(op, *workspace, 0.75, x, b, y, 1.5, b, z);
        check_product(*a, false, 0.75, x, b, y, both.y, both.y_squares);
        // The second product is that of the y which the first one left.
        check_product(*a, true, 1.5, both.y, b, z, both.z, both.z_squares);
    }
}

// Rows of runs of up to 20 columns, which begin anywhere: they overlap those of the rows before, the last ones too. Some rows are like the one before, or like it
// but for one column, or empty, or of 512 entries.
Matrix rows_of_runs(std::int64_t m = 3000, std::int64_t n = 700) {
    std::mt19937_64 generator(77);
    std::vector<std::int64_t> rows, columns;
    std::vector<std::int64_t> row;
    for (std::int64_t i = 0; i < m; ++i) {
        switch (i == 0 ? 0 : generator() % 5) {
            case 0:
            case 1: {
                std::vector<bool> has(static_cast<std::size_t>(n), false);
                for (auto runs = generator() % 7; runs > 0; --runs) {
                    const auto first = generator() % static_cast<std::uint64_t>(n);
                    for (auto k = first; k < std::min(first + 1 + generator() % 20, static_cast<std::uint64_t>(n)); ++k) has[k] = true;
                }
                if (i % 997 == 500) std::fill_n(has.begin() + 40, 512, true);
                row.clear();
                for (std::int64_t j = 0; j < n; ++j) {
                    if (has[static_cast<std::size_t>(j)] && row.size() < 512) row.push_back(j);
                }
                break;
            }
            case 2:
                if (!row.empty() && row.front() > 0) row.front() -= 1;
                break;
            default: break;
        }
        for (const std::int64_t j : row) {
            rows.push_back(i);
            columns.push_back(j);
        }
    }
    return share(CsrMatrix::from_coo(m, n, rows, columns, products::random_vector(static_cast<std::int64_t>(rows.size()), 78)));
}

std::vector<ShapeCase> cases() {
    std::vector<ShapeCase> all = shape_cases();
    all.push_back({"columns of hundreds of entries", matrix_with_rows(random_lengths(30000, 0, 20, 21), 900, 21)});
    all.push_back({"runs", rows_of_runs()});
    all.push_back({"bundle", share(generate("bundle", {{"cameras", 20.0}, {"points", 300.0}, {"observations", 2400.0}}).a)});
    all.push_back({"some columns in most rows", [] {
                       std::vector<std::int64_t> rows, columns;
                       for (std::int64_t i = 0; i < 20000; ++i) {
                           for (std::int64_t k = 0; k < 4; ++k) {
                               rows.push_back(i);
                               columns.push_back(k == 0 ? i % 3 : 3 + (i * 37 + k * 101) % 4997);
                           }
                       }
                       return share(CsrMatrix::from_coo(20000, 5000, rows, columns, products::random_vector(static_cast<std::int64_t>(rows.size()), 28)));
                   }()});
    return all;
}

template <class T, cpu::InstructionSet set>
void suite_one_pass() {
    if (set > cpu::best_instruction_set<T>()) {
        MESSAGE("skipped: this CPU has no " << cpu::name(set));
        return;
    }
    using enum cpu::Narrowing;
    for (const int threads : {1, 3}) {
        const Threads scope(threads);
        constexpr cpu::Grouping single = cpu::Grouping::none, groups = cpu::Grouping::all;
        for (const MakeRig<T> make : {make_forced<T, set, none, single>, make_forced<T, set, lossless, single>, make_forced<T, set, none, groups>,
                                      make_forced<T, set, lossless, groups>}) {
            suite_products<T>(make, once());
            suite_products<T>(make, once(), Values::exact_in_fp32);
            suite_long_rows<T>(make, once());
            suite_repeats<T>(make, once(), 4);
            suite_adjoint<T>(make, once());
            suite_exponent<T>(make, once());
            suite_nonfinite<T>(make, once());
            suite_infinite_coefficient<T>(make, once());
        }
        for (const ShapeCase& shape : cases()) {
            CAPTURE(shape.name);
            for (const auto& a : {shape.a, rounded_to_fp32(*shape.a)}) {
                check_both<T>(a, *cpu::make_operator<T>(a, once(), kForced<T, set, none, single>));
                check_both<T>(a, *cpu::make_operator<T>(a, once(), kForced<T, set, lossless, single>));
                check_both<T>(a, *cpu::make_operator<T>(a, once(), kForced<T, set, lossless, groups>));
            }
        }
        // Narrowing changes no bit.
        const Matrix a = rounded_to_fp32(*rows_of_runs());
        const auto x = narrow<T>(products::random_vector(a->cols(), 23));
        std::vector<T> y(static_cast<std::size_t>(a->rows())), z = y;
        CHECK(make_forced<T, set, none, groups>(a, once())->product(false, 1.5, x, 0, y, false) ==
              make_forced<T, set, lossless, groups>(a, once())->product(false, 1.5, x, 0, z, false));
        CHECK(y == z);
    }
}

PrepareOptions one_pass_on_cpu() {
    PrepareOptions options;
    options.device = DeviceKind::cpu;
    options.storage = StorageKind::one_pass;
    options.threads = 3;
    return options;
}

}  // namespace

TEST_CASE("cpu one pass: portable fp64") { suite_one_pass<double, cpu::InstructionSet::portable>(); }
TEST_CASE("cpu one pass: portable fp32") { suite_one_pass<float, cpu::InstructionSet::portable>(); }
TEST_CASE("cpu one pass: avx2 fp64") { suite_one_pass<double, cpu::InstructionSet::avx2>(); }
TEST_CASE("cpu one pass: avx2 fp32") { suite_one_pass<float, cpu::InstructionSet::avx2>(); }
TEST_CASE("cpu one pass: avx512 fp64") { suite_one_pass<double, cpu::InstructionSet::avx512>(); }

TEST_CASE_TEMPLATE("cpu one pass: long columns lose no digits", T, double, float) {
    // 40,000 equal terms in each column, where adding one after another would lose hundreds of units, in one part and in several.
    const std::int64_t rows = 40000, cols = 5;
    const T value = T(0.1), u = T(0.7);
    const auto a = products::with_values(*matrix_with_rows(std::vector<std::int64_t>(static_cast<std::size_t>(rows), cols), cols, 61),
                               [&](double) { return static_cast<double>(value); });
    const double expected = static_cast<double>(static_cast<long double>(rows) * static_cast<long double>(value) * static_cast<long double>(u));
    for (const int threads : {1, 2, 4}) {
        const Threads scope(threads);
        const auto op = make_cpu_operator<T>(a, once());
        const auto workspace = op->make_workspace(nullptr);
        const std::size_t m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(cols);
        // y <- 0 A x + y leaves y as it is.
        const Both<T> both = run_both<T>(*op, *workspace, 0, std::vector<T>(n, T(0)), 1, std::vector<T>(m, u), 1, 0, std::vector<T>(n, T(0)));
        for (const T z : both.z) CHECK(std::abs(static_cast<double>(z) - expected) <= 12 * static_cast<double>(std::numeric_limits<T>::epsilon()) * expected);
    }
}

TEST_CASE("cpu one pass: the same bits at every run, for any number of threads") {
    bool groups = false;
    Matrix a;
    SUBCASE("rows") { a = matrix_with_rows(random_lengths(30000, 0, 20, 61), 901, 61); }
    SUBCASE("rows in groups") {
        a = share(generate("bundle", {{"cameras", 60.0}, {"points", 900.0}, {"observations", 40000.0}}).a);
        groups = true;
    }
    const auto x = products::random_vector(a->cols(), 62);
    const auto y0 = products::random_vector(a->rows(), 63);
    const auto z0 = products::random_vector(a->cols(), 64);
    Both<double> first;
    for (int threads = 1; threads <= 17; ++threads) {
        const Threads scope(threads);
        const auto op = make_cpu_operator<double>(a, once());
        CHECK(op->plan().forward.ends_with(" parts)"));
        if (cpu::best_instruction_set<double>() == cpu::InstructionSet::avx512) CHECK((op->plan().forward.find("in groups") != std::string::npos) == groups);
        for (int repeat = 0; repeat < 3; ++repeat) {
            const auto workspace = op->make_workspace(nullptr);
            const Both<double> both = run_both<double>(*op, *workspace, 0.5, x, 1.0, y0, 0.5, 1.0, z0);
            if (first.y.empty()) first = both;
            CHECK(both.y == first.y);
            CHECK(both.z == first.z);
            CHECK(both.y_squares == first.y_squares);
            CHECK(both.z_squares == first.z_squares);
        }
    }
}

TEST_CASE("cpu one pass: values and structure are updated in place") {
    const Threads scope(2);
    const auto a = matrix_with_rows(random_lengths(20000, 0, 20, 81), 700, 81);
    const auto other = matrix_with_rows(random_lengths(20000, 0, 9, 82), 700, 82);
    const auto op = make_cpu_operator<double>(a, once());
    check_both<double>(a, *op);
    op->update(other);
    CHECK(op->plan().storage == StorageKind::one_pass);
    check_both<double>(other, *op);
    op->update(products::with_values(*other, [](double v) { return 2 * v; }));
    check_both<double>(products::with_values(*other, [](double v) { return 2 * v; }), *op);
}

TEST_CASE("cpu one pass: what it refuses, and what the plan says") {
    const auto a = matrix_with_rows(random_lengths(640, 1, 9, 121), 320, 121);
    OperatorOptions forced = once();
    forced.adjoint = parse_format("ell");
    CHECK_THROWS_WITH_AS(make_cpu_operator<double>(a, forced), "storage one-pass is refused: it has a kernel of its own, and others were asked for", InputError);
    const Threads scope(1);
    const auto op = make_cpu_operator<double>(a, once());
    const OperatorPlan& plan = op->plan();
    CHECK(plan.forward == fmt::format("one pass (own csr rows (OpenMP, {}), 16-bit columns, 1 part)", cpu::name(cpu::best_instruction_set<double>())));
    CHECK(plan.adjoint == "the same pass");
    CHECK(plan.storage_reason == "asked for");
    CHECK(plan.deterministic);
    CHECK(make_cpu_operator<double>(a, {.storage = StorageKind::dual})->one_pass() == nullptr);
}

TEST_CASE("cpu one pass: the bytes of a plan hold what the pass adds into") {
    // One part, whose columns are each in 64 rows at most: a pair for each column, a list of steps, a mark of every 64 columns.
    const auto a = matrix_with_rows(std::vector<std::int64_t>(640, 5), 320, 121);
    const Threads scope(1);
    const auto op = cpu::make_operator<double>(a, once(), {cpu::InstructionSet::portable, cpu::Narrowing::none, 0});
    const std::int64_t kept = op->plan().bytes - a->bytes() - 320 * 2 * std::int64_t{sizeof(double)};
    CHECK(kept >= 0);
    CHECK(kept < 1000);
}

TEST_CASE_TEMPLATE("cpu one pass: a stack is read once too", T, double, float) {
    const Threads scope(2);
    const auto top = matrix_with_rows(random_lengths(3000, 0, 20, 61), 700, 61);
    const auto bottom = matrix_with_rows(random_lengths(900, 0, 3, 62), 700, 62);
    const Coefficient<T> one{1.0, T(1)};
    const auto op = make_cpu_operator<T>(top, once()), below = make_cpu_operator<T>(bottom), two = make_cpu_operator<T>(top, {.storage = StorageKind::dual});
    const StackedOperator<T> stack(*op, *below, &one), plain(*two, *below, &one);
    REQUIRE(stack.one_pass() != nullptr);
    CHECK(plain.one_pass() == nullptr);
    const auto workspace = stack.make_workspace(nullptr), plain_workspace = plain.make_workspace(nullptr);
    const auto x = narrow<T>(products::random_vector(700, 71));
    auto y = narrow<T>(products::random_vector(3900, 72)), z = narrow<T>(products::random_vector(700, 73)), y2 = y, z2 = z;
    const Coefficient<T> a{0.75, T(0.75)}, b{-0.5, T(-0.5)};
    std::vector<double> sums(static_cast<std::size_t>(stack.max_partials())), sums2 = sums;
    NormPartials norm{sums.data(), 0}, norm2{sums2.data(), 0};
    const auto total = [](const NormPartials& partials) { return std::accumulate(partials.sums, partials.sums + partials.count, 0.0); };
    const auto same = [](const std::vector<T>& p, const std::vector<T>& q) {
        for (std::size_t i = 0; i < p.size(); ++i) {
            if (std::abs(p[i] - q[i]) > 200 * std::numeric_limits<T>::epsilon() * (1 + std::abs(q[i]))) return false;
        }
        return true;
    };
    stack.one_pass()->apply_both(&a, x.data(), &b, y.data(), *workspace, &norm);
    plain.apply(&a, x.data(), &b, y2.data(), *plain_workspace, &norm2);
    CHECK(same(y, y2));
    CHECK(total(norm) == doctest::Approx(total(norm2)).epsilon(1e-5));
    norm.count = norm2.count = 0;
    stack.one_pass()->apply_kept_adjoint(&a, &b, z.data(), *workspace, &norm);
    plain.apply_adjoint(&a, y.data(), &b, z2.data(), *plain_workspace, &norm2);
    CHECK(same(z, z2));
    CHECK(total(norm) == doctest::Approx(total(norm2)).epsilon(1e-5));
}

TEST_CASE("cpu one pass: taken where it pays, for any number of threads") {
    const cpu::OnePassShape near{2000000, 500000, 20000000, 8, 0.01};
    CHECK(cpu::one_pass_pays(near));
    const auto but = [&](const auto& change) {
        cpu::OnePassShape shape = near;
        change(shape);
        return cpu::one_pass_pays(shape);
    };
    CHECK_FALSE(but([](auto& s) { s.value_bytes = 4; }));
    CHECK(but([](auto& s) { s.value_bytes = 4, s.grouped = true; }));
    CHECK(but([](auto& s) { s.lines_per_entry = 1.0 / 54; }));  // a stencil of 27 points, whose neighbours share two thirds of their columns
    CHECK_FALSE(but([](auto& s) { s.lines_per_entry = 0.025; }));
    CHECK_FALSE(but([](auto& s) { s.rows = 4000000; }));                              // 5 a row
    CHECK_FALSE(but([](auto& s) { s.rows = s.cols = 1000, s.nnz = 100000; }));        // in the caches
    CHECK_FALSE(but([](auto& s) { s.rows = s.cols = cpu::kMostPairs, s.nnz = 10 * s.cols; }));

    // 27 neighbouring columns a row, the same for 10 rows; 1.6 million entries.
    const std::int64_t m = 60000, n = 6000;
    std::vector<std::int64_t> rows, columns;
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t k = 0; k < 27; ++k) {
            rows.push_back(i);
            columns.push_back((i / 10 + k) % n);
        }
    }
    const auto a = share(CsrMatrix::from_coo(m, n, rows, columns, products::random_vector(27 * m, 7)));
    const auto storage = [&](int threads, const OperatorOptions& options = {}) {
        const Threads scope(threads);
        return make_cpu_operator<double>(a, options)->plan().storage;
    };
    CHECK(storage(1) == StorageKind::one_pass);
    CHECK(storage(8) == StorageKind::one_pass);
    CHECK(storage(1, {.forward = parse_format("coo")}) == StorageKind::dual);
    CHECK(storage(1, {.expected_products = 4}) == StorageKind::single);
    CHECK(storage(1, {.separate_products = true}) == StorageKind::dual);
    CHECK(storage(1, {.storage = StorageKind::one_pass, .separate_products = true}) == StorageKind::one_pass);
    PrepareOptions on_cpu;
    on_cpu.device = DeviceKind::cpu;
    CHECK(PreparedProblem(a, on_cpu).info().plan.storage == StorageKind::one_pass);
    on_cpu.separate_products = true;
    CHECK(PreparedProblem(a, on_cpu).info().plan.storage == StorageKind::dual);
    const Threads scope(1);
    CHECK(make_cpu_operator<float>(a, {})->plan().storage == StorageKind::dual);
    const auto op = make_cpu_operator<double>(a);
    CHECK(op->plan().storage_reason == "one reading of A gives both products");
    CHECK(op->plan().forward.ends_with(", 16 parts)"));
    CHECK(op->plan().setup.transpose == 0);
    CHECK(op->plan().bytes < make_cpu_operator<double>(a, {.storage = StorageKind::dual})->plan().bytes);
}

TEST_CASE("cpu one pass: rows in groups, where they have runs of columns") {
    const auto bundle = share(generate("bundle", {{"cameras", 200.0}, {"points", 3000.0}, {"observations", 24000.0}}).a);
    if (cpu::best_instruction_set<float>() != cpu::InstructionSet::portable) {
        const Threads scope(1);
        CHECK(make_cpu_operator<float>(bundle, once())->plan().forward.find(", rows in groups, ") != std::string::npos);
    }
    const auto takes = [](const Matrix& a, const cpu::Kernels<float>& kernels) { return cpu::takes_groups<float>(*a, kernels); };
    const cpu::Kernels<float> usual{.set = cpu::InstructionSet::avx2}, all{.set = cpu::InstructionSet::avx2, .grouping = cpu::Grouping::all};
    const cpu::GroupCounts counts = cpu::count_groups(*bundle, 8);
    CHECK(counts.longest == 12);
    CHECK(counts.entries == 4 * counts.steps);  // 8, 1 and 3
    CHECK(takes(bundle, usual));
    CHECK_FALSE(takes(bundle, {.set = cpu::InstructionSet::avx2, .grouping = cpu::Grouping::none}));
    const auto scattered = matrix_with_rows(random_lengths(3000, 8, 8, 91), 700, 91);
    CHECK_FALSE(takes(scattered, usual));
    CHECK(takes(scattered, all));
    CHECK_FALSE(takes(matrix_with_rows({513, 2, 2}, 700, 91), all));
    CHECK(takes(matrix_with_rows({512, 2, 2}, 700, 91), all));
}

TEST_CASE("cpu one pass: iterations as with two products") {
    suite_iterates_as_dual(one_pass_on_cpu(), matrix_with_rows(random_lengths(30000, 8, 8, 91), 700, 91), 1e-12, 1e-4);
    suite_iterates_as_dual(one_pass_on_cpu(), share(generate("bundle", {{"cameras", 20.0}, {"points", 300.0}, {"observations", 2400.0}}).a), 1e-11, 1e-3);
}

TEST_CASE("cpu team: a solve that tries its sizes has the same iterates as one thread") {
    const auto a = matrix_with_rows(random_lengths(20000, 4, 12, 91), 5000, 91);  // some 10,000 entries a thread
    const Vector b = products::random_vector(a->rows(), 92);
    PrepareOptions options;
    options.device = DeviceKind::cpu;
    Vector first;
    for (const int threads : {1, 4, 9}) {
        options.threads = threads;
        PreparedProblem problem(a, options);
        for (int repeat = 0; repeat < 3; ++repeat) {
            Vector x(static_cast<std::size_t>(a->cols()), 0.0);
            problem.solve(b, x, exactly(Method::lsmr, 120, 0.1));
            if (first.empty()) first = x;
            CHECK(x == first);
        }
    }
}

TEST_CASE("cpu one pass: start centre and damping against dense answers") { suite_start_and_center(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: damping is stacked rows") { suite_damping_is_stacked_rows(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: scaled by powers of two") { suite_scaled_by_powers_of_two(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: status 1 compatible") { suite_status_compatible(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: status 2 least squares") { suite_status_least_squares(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: records are complete and in order") { suite_records(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: empty rows and columns") { suite_empty_rows_and_columns(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: degenerate shapes") { suite_degenerate_shapes(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: early breakdown") { suite_early_breakdown(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: one problem many solves") { suite_reuse(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: repeats give the same bits") { suite_repeats(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: an observer that throws") { suite_observer_throws(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: scaled columns") { suite_scaled_columns(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: preconditioned iterates") { suite_preconditioned_iterates(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: trust radius") { suite_trust_radius(one_pass_on_cpu()); }
TEST_CASE("cpu one pass: an interrupted solve goes on to the same bits") { suite_checkpoints(one_pass_on_cpu()); }

TEST_CASE("cpu team: every chunk once, whoever is in the team") {
    for (const int threads : {1, 2, 3, 5, 17}) {
        for (const int team : {1, 2, 4, 17}) {
            CAPTURE(threads);
            CAPTURE(team);
            const Threads scope(threads);
            cpu::Team::run(team, [&] {
                for (const std::int64_t count : {0, 1, 2, 3, 16, 17, 1000, 4096}) {
                    for (int repeat = 0; repeat < 20; ++repeat) {
                        for (const cpu::Team::Grain grain : {cpu::Team::Grain{}, {.least = 7}, {.large = true}, {.least = 100000}}) {
                            std::vector<int> seen(static_cast<std::size_t>(count), 0);
                            cpu::Team::loop(count, [&](std::int64_t c) { ++seen[static_cast<std::size_t>(c)]; }, grain);
                            REQUIRE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
                        }
                    }
                }
            });
        }
    }
}

TEST_CASE("cpu team: loops inside loops and teams inside teams run; what is thrown comes out, and the next team works") {
    const Threads scope(3);
    std::atomic<std::int64_t> total{0};
    cpu::Team::run(3, [&] {
        cpu::Team::loop(10, [&](std::int64_t) { cpu::Team::loop(10, [&](std::int64_t c) { total += c; }); });
        cpu::Team::run(2, [&] { cpu::Team::loop(10, [&](std::int64_t c) { total += c; }); });
    });
    CHECK(total == 45 * 11);
    CHECK_THROWS_WITH_AS(cpu::Team::run(3, [] { throw std::runtime_error("from a step"); }), "from a step", std::runtime_error);
    total = 0;
    cpu::Team::run(3, [&] { cpu::Team::loop(100, [&](std::int64_t) { ++total; }); });
    CHECK(total == 100);
    // From any chunk, with a team, with none, and alone; all others are done.
    for (const int team : {0, 1, 3}) {
        for (const std::int64_t bad : {0, 57, 99}) {
            CAPTURE(team);
            CAPTURE(bad);
            total = 0;
            cpu::Team::run(team, [&] {
                CHECK_THROWS_WITH_AS(cpu::Team::loop(100,
                                                     [&](std::int64_t c) {
                                                         if (c == bad) throw std::runtime_error("from a chunk");
                                                         ++total;
                                                     }),
                                     "from a chunk", std::runtime_error);
                total = 0;
                cpu::Team::loop(100, [&](std::int64_t) { ++total; });
            });
            CHECK(total == 100);
        }
    }
}

TEST_CASE("cpu team: threads leave and come back between loops") {
    cpu::Team::use(2);  // without a team: nothing
    std::mt19937 random(9);
    for (const int team : {2, 3, 5, 17}) {
        const Threads scope(team);
        for (const bool ends_small : {false, true}) {
            std::atomic<std::int64_t> total{0};
            std::int64_t expected = 0;
            cpu::Team::run(team, [&] {
                for (int repeat = 0; repeat < 200; ++repeat) {
                    const int in_use = static_cast<int>(random() % 20);  // also 0 and more than there are: the nearest there is
                    cpu::Team::use(in_use);
                    for (int loops = static_cast<int>(random() % 3); loops > 0; --loops) {
                        std::mutex mutex;
                        std::set<std::thread::id> who;
                        const std::int64_t count = repeat % 2 == 0 ? 100 : 1000;
                        cpu::Team::loop(count, [&](std::int64_t c) {
                            total += c;
                            const std::lock_guard<std::mutex> lock(mutex);
                            who.insert(std::this_thread::get_id());
                        });
                        expected += count * (count - 1) / 2;
                        REQUIRE(who.size() <= static_cast<std::size_t>(std::clamp(in_use, 1, team)));
                    }
                    if (repeat % 50 == 7) CHECK_THROWS_AS(cpu::Team::loop(100, [](std::int64_t c) { if (c == 99) throw std::runtime_error("from a chunk"); }), std::runtime_error);
                }
                cpu::Team::use(ends_small ? 1 : team);
            });
            CHECK(total == expected);
        }
    }
}

TEST_CASE("cpu team: the size that iterations are fastest with, where they are short") {
    const auto settle = [](int most, const auto& seconds_of) {
        cpu::TeamChoice choice(most);
        for (int i = 0; i < 1000 && !choice.settled(); ++i) {
            if (i % 37 == 36) choice.interrupt();
            choice.took(seconds_of(choice.threads(), i));
        }
        CHECK(choice.settled());
        return choice.threads();
    };
    const auto linear = [](double work, double handing) { return [=](int threads, int) { return 1e-6 * (work / threads + handing * threads); }; };
    CHECK(settle(16, linear(300, 7)) == 8);
    CHECK(settle(16, linear(300, 0.1)) == 16);
    CHECK(settle(16, linear(100, 10)) == 4);
    CHECK(settle(6, linear(1, 10)) == 3);
    CHECK(settle(3, linear(1, 10)) == 3);
    CHECK(settle(1, linear(1, 10)) == 1);
    CHECK(settle(16, linear(30000, 400)) == 16);  // milliseconds
    // Single iterations of another's making do not matter.
    CHECK(settle(16, [&](int threads, int i) { return linear(300, 7)(threads, i) + (i % 31 == 0 ? 1e-4 : 0); }) == 8);
    // A short solve is none of trying.
    cpu::TeamChoice choice(16);
    for (int i = 0; i < 50; ++i) {
        CHECK(choice.threads() == 16);
        choice.took(1e-4);
    }
}

TEST_CASE("cpu team: few small chunks stay with few threads, large ones are taken over") {
    const Threads scope(4);
    cpu::Team::run(4, [&] {
        std::vector<std::thread::id> by(30);
        cpu::Team::loop(30, [&](std::int64_t c) { by[static_cast<std::size_t>(c)] = std::this_thread::get_id(); }, {.least = 15});
        CHECK(std::set<std::thread::id>(by.begin(), by.end()).size() == 2);
        // The first chunk waits for all others, also for the second one, of the same share.
        std::atomic<int> done{0};
        bool last = false;
        cpu::Team::loop(
            8,
            [&](std::int64_t c) {
                if (c == 0) {
                    for (int naps = 0; naps < 20000 && done < 7; ++naps) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    last = done == 7;
                }
                ++done;
            },
            {.large = true});
        CHECK(last);
    });
}

TEST_CASE("cpu team: a team of one is one thread") {
    const Threads scope(4);
    const auto self = std::this_thread::get_id();
    std::atomic<int> others{0};
    cpu::Team::run(1, [&] { cpu::Team::loop(1000, [&](std::int64_t) { others += std::this_thread::get_id() != self; }); });
    CHECK(others == 0);
}

namespace {

// y of one row, of values that fp32 holds exactly.
template <class V, class C>
double one_row(const std::vector<float>& values, const std::vector<std::int32_t>& columns, Vector x) {
    const std::vector<V> v(values.begin(), values.end());
    std::vector<C> c(columns.begin(), columns.end());
    c.resize(c.size() + cpu::kPadding);
    const std::int64_t offsets[] = {0, static_cast<std::int64_t>(values.size())};
    std::vector<cpu::Pair<double>> pairs;
    for (const double value : x) pairs.push_back({value, 0});
    double y = 0;
    cpu::one_pass_kernels<double, V, C>(cpu::best_instruction_set<double>()).rows_and_adjoint({1, offsets, c.data(), v.data()}, 1.0, pairs.data(), 0.0, &y);
    return y;
}

}  // namespace

TEST_CASE("cpu one pass: narrowing changes no bit of a row, however long") {
    constexpr std::int64_t kCols = 3000;
    const Vector x = lsmr::test::products::random_vector(kCols, 411);
    std::mt19937 random(412);
    for (const std::size_t length : {1, 63, 64, 65, 128, 200, 256, 257, 300, 512, 513, 600, 1000, 2000}) {
        CAPTURE(length);
        for (int repeat = 0; repeat < 20; ++repeat) {
            std::vector<std::int32_t> columns(kCols);
            std::iota(columns.begin(), columns.end(), 0);
            std::shuffle(columns.begin(), columns.end(), random);
            columns.resize(length);
            std::vector<float> values(length);
            for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random);
            const double wide = one_row<double, std::int32_t>(values, columns, x);
            CHECK(one_row<double, std::uint16_t>(values, columns, x) == wide);
            CHECK(one_row<float, std::int32_t>(values, columns, x) == wide);
            CHECK(one_row<float, std::uint16_t>(values, columns, x) == wide);
            double sum = 0, most = 0;
            for (std::size_t k = 0; k < length; ++k) {
                const double product = static_cast<double>(values[k]) * x[static_cast<std::size_t>(columns[k])];
                sum += product;
                most += std::fabs(product);
            }
            CHECK(std::fabs(sum - wide) <= 1e-14 * most);
        }
    }
}

TEST_CASE("cpu team: threads that slept wake up") {
    const Threads scope(4);
    std::atomic<int> total{0};
    cpu::Team::run(4, [&] {
        for (int i = 0; i < 5; ++i) {
            const double start = omp_get_wtime();
            while (omp_get_wtime() - start < 0.01) {}
            cpu::Team::loop(4, [&](std::int64_t) {
                ++total;
                const double begun = omp_get_wtime();
                while (omp_get_wtime() - begun < 0.002) {}
            });
        }
    });
    CHECK(total == 20);
}
