// A and A^T in tiles, on the CPU.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "checkpoint_suite.hpp"
#include "cpu_rig.hpp"
#include "memory/error.hpp"
#include "operator/cpu/row_storage.hpp"
#include "operator/cpu/tile_storage.hpp"
#include "preconditioner_suite.hpp"
#include "solver_suite.hpp"
#include "stop_suite.hpp"
#include "storage_suite.hpp"
#include "transform_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

OperatorOptions in_tiles() {
    OperatorOptions options;
    options.storage = StorageKind::tiles;
    return options;
}

template <class T, cpu::InstructionSet set, cpu::Narrowing narrowing>
std::unique_ptr<Rig<T>> make_forced(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    return std::make_unique<CpuRig<T>>(cpu::make_operator<T>(std::move(a), options, {set, narrowing, 0}));
}

// Columns 0 to 2 are in a third of the rows each, rows 5 and 19,999 hold half of the columns; several panels of rows and of columns.
Matrix hubs() {
    std::vector<std::int64_t> rows, columns;
    const std::int64_t m = 20000, n = 9001;
    for (std::int64_t i = 0; i < m; ++i) {
        if (i == 5 || i == m - 1) {
            for (std::int64_t j = i % 2; j < n; j += 2) {
                rows.push_back(i);
                columns.push_back(j);
            }
            continue;
        }
        if (i >= 6000 && i < 11000) continue;  // empty rows
        for (std::int64_t k = 0; k < 4; ++k) {
            rows.push_back(i);
            columns.push_back(k == 0 ? i % 3 : 3 + (i * 37 + k * 101) % (n - 500));
        }
    }
    return share(CsrMatrix::from_coo(m, n, rows, columns, products::random_vector(static_cast<std::int64_t>(rows.size()), 28)));
}

template <class T, cpu::InstructionSet set>
void suite_tiles() {
    if (set > cpu::best_instruction_set<T>()) {
        MESSAGE("skipped: this CPU has no " << cpu::name(set));
        return;
    }
    using enum cpu::Narrowing;
    for (const int threads : {1, 3}) {
        const Threads scope(threads);
        for (const MakeRig<T> make : {make_forced<T, set, none>, make_forced<T, set, lossless>}) {
            suite_products<T>(make, in_tiles());
            suite_products<T>(make, in_tiles(), Values::exact_in_fp32);
            suite_long_rows<T>(make, in_tiles());
            suite_repeats<T>(make, in_tiles(), 4);
            suite_adjoint<T>(make, in_tiles());
            suite_exponent<T>(make, in_tiles());
            suite_nonfinite<T>(make, in_tiles());
            suite_infinite_coefficient<T>(make, in_tiles());
            for (const Matrix& a : {hubs(), rounded_to_fp32(*hubs()), matrix_with_rows(random_lengths(30000, 0, 20, 21), 12289, 21)}) {
                check_both_products<T>(a, *make(a, in_tiles()));
            }
        }
        // Narrowing changes no bit.
        const Matrix a = rounded_to_fp32(*hubs());
        const auto x = narrow<T>(products::random_vector(a->cols(), 23));
        std::vector<T> y(static_cast<std::size_t>(a->rows())), z = y;
        CHECK(make_forced<T, set, none>(a, in_tiles())->product(false, 1.5, x, 0, y, false) ==
              make_forced<T, set, lossless>(a, in_tiles())->product(false, 1.5, x, 0, z, false));
        CHECK(y == z);
    }
}

PrepareOptions tiles_on_cpu() {
    PrepareOptions options;
    options.device = DeviceKind::cpu;
    options.storage = StorageKind::tiles;
    options.threads = 3;
    return options;
}

}  // namespace

TEST_CASE("cpu tiles: portable fp64") { suite_tiles<double, cpu::InstructionSet::portable>(); }
TEST_CASE("cpu tiles: portable fp32") { suite_tiles<float, cpu::InstructionSet::portable>(); }
TEST_CASE("cpu tiles: avx2 fp64") { suite_tiles<double, cpu::InstructionSet::avx2>(); }
TEST_CASE("cpu tiles: avx2 fp32") { suite_tiles<float, cpu::InstructionSet::avx2>(); }

TEST_CASE_TEMPLATE("cpu tiles: long rows and columns lose no digits", T, double, float) {
    // 40,000 equal terms in each sum, where adding one after another would lose hundreds of units, in one panel of the other side and in several.
    const T value = T(0.1), u = T(0.7);
    const double expected = static_cast<double>(40000.0L * static_cast<long double>(value) * static_cast<long double>(u));
    const auto tall = products::with_values(*matrix_with_rows(std::vector<std::int64_t>(40000, 5), 5, 61), [&](double) { return static_cast<double>(value); });
    for (const bool transposed : {false, true}) {
        const auto a = transposed ? share(tall->transposed()) : tall;
        const Threads scope(2);
        const auto rig = make_rig<T>(a, in_tiles());
        std::vector<T> x(40000, u), y(5, T(0));
        rig->product(!transposed, 1.0, x, 0.0, y, false);
        for (const T z : y) CHECK(std::abs(static_cast<double>(z) - expected) <= 12 * static_cast<double>(std::numeric_limits<T>::epsilon()) * expected);
    }
}

TEST_CASE("cpu tiles: the same bits at every run, for any number of threads, in a parallel region of the caller's too") {
    const Matrix a = hubs();
    const auto x = products::random_vector(a->cols(), 62);
    const auto u = products::random_vector(a->rows(), 63);
    std::vector<double> y1, z1;
    double s1 = 0, t1 = 0;
    const auto check = [&] {
        const auto rig = make_rig<double>(a, in_tiles());
        std::vector<double> y(static_cast<std::size_t>(a->rows())), z(static_cast<std::size_t>(a->cols()));
        const double s = rig->product(false, 1.0, x, 0.0, y, false), t = rig->product(true, 1.0, u, 0.0, z, false);
        if (y1.empty()) {
            y1 = y;
            z1 = z;
            s1 = s;
            t1 = t;
        }
        return y == y1 && z == z1 && s == s1 && t == t1;
    };
    for (int threads = 1; threads <= 17; ++threads) {
        const Threads scope(threads);
        CHECK(check());
    }
    int wrong = 0;
#pragma omp parallel num_threads(3) reduction(+ : wrong)
    wrong += !check();
    CHECK(wrong == 0);
}

TEST_CASE("cpu tiles: values and structure are updated in place") {
    const auto a = matrix_with_rows(random_lengths(20000, 0, 20, 81), 700, 81);
    const auto other = hubs();
    const auto op = make_cpu_operator<double>(hubs(), in_tiles());
    CHECK_THROWS_AS(op->update(a), InputError);  // another shape
    const auto doubled = products::with_values(*other, [](double v) { return 2 * v; });
    op->update(doubled);
    CHECK(op->plan().storage == StorageKind::tiles);
    const auto workspace = op->make_workspace(nullptr);
    const auto x = products::random_vector(other->cols(), 71);
    std::vector<double> y(static_cast<std::size_t>(other->rows())), z = y;
    const Coefficient<double> one{1, 1}, two{2, 2}, zero{0, 0};
    op->apply(&one, x.data(), &zero, y.data(), *workspace, nullptr);
    const auto before = make_cpu_operator<double>(other, in_tiles());
    before->apply(&two, x.data(), &zero, z.data(), *before->make_workspace(nullptr), nullptr);
    CHECK(y == z);
}

TEST_CASE("cpu tiles: what is refused, and what the plan says") {
    const auto a = matrix_with_rows(random_lengths(640, 1, 9, 121), 320, 121);
    OperatorOptions forced = in_tiles();
    forced.adjoint = parse_format("ell");
    CHECK_THROWS_WITH_AS(make_cpu_operator<double>(a, forced), "storage tiles is refused: it has a kernel of its own, and others were asked for", InputError);
    CHECK(cpu::why_not_tiles(60000000, 60000000).empty());
    CHECK(cpu::why_not_tiles(10, 300000000) == "it takes up to 67108864 rows and columns, the matrix has 10 and 300000000");
    const Threads scope(2);
    const auto op = make_cpu_operator<double>(a, in_tiles());
    const OperatorPlan& plan = op->plan();
    const auto set = std::min(cpu::best_instruction_set<double>(), cpu::InstructionSet::avx2);
    CHECK(plan.forward == fmt::format("own tiles (OpenMP, {}), 1 x 1 tiles", cpu::name(set)));
    CHECK(plan.adjoint == fmt::format("own tiles (OpenMP, {}) of A^T, 1 x 1 tiles", cpu::name(set)));
    CHECK(plan.storage_reason == "asked for");
    CHECK(plan.deterministic);
    CHECK(plan.setup.transpose == 0);
    // 12 bytes an entry, where one tile begins and ends, both twice, and the sums of a panel for each thread.
    CHECK(plan.bytes == a->bytes() + 2 * (12 * a->nnz() + 2 * 8) + 2 * 65536 * 8);
    CHECK(make_cpu_operator<double>(rounded_to_fp32(*a), in_tiles())->plan().forward.ends_with(", values exact in fp32"));
}

TEST_CASE("cpu tiles: taken where it pays") {
    const cpu::TileShape scattered{2000000, 500000, 40000000, 8, 0.9, true};
    CHECK(cpu::tiles_pay(scattered));
    const auto but = [&](const auto& change) {
        cpu::TileShape shape = scattered;
        change(shape);
        return cpu::tiles_pay(shape);
    };
    CHECK_FALSE(but([](auto& s) { s.lines_per_entry = 0.2; }));
    CHECK_FALSE(but([](auto& s) { s.rows = 600000; }));            // in the caches
    CHECK_FALSE(but([](auto& s) { s.value_bytes = 4; }));
    CHECK(but([](auto& s) { s.rows = 4000000, s.value_bytes = 4, s.nnz = 80000000; }));
    CHECK_FALSE(but([](auto& s) { s.nnz = 2000000; }));            // few entries a tile

    CHECK(but([](auto& s) { s = {8000000, 2000000, 64000000, 8, 0.9, true}; }));
    CHECK_FALSE(but([](auto& s) { s = {16000000, 4000000, 64000000, 8, 0.9, true}; }));  // each of many panels reads long vectors
    CHECK(but([](auto& s) { s.rows = 600000, s.eights = false; }));
    CHECK(but([](auto& s) { s.value_bytes = 4, s.eights = false; }));
    CHECK_FALSE(but([](auto& s) { s.rows = 500000, s.eights = false; }));
    CHECK_FALSE(but([](auto& s) { s.rows = 1500000, s.value_bytes = 4, s.eights = false; }));
    const auto a = matrix_with_rows(std::vector<std::int64_t>(700000, 12), 100000, 131);
    CHECK(make_cpu_operator<double>(a)->plan().storage == StorageKind::tiles);
    CHECK(make_cpu_operator<double>(a)->plan().storage_reason == "the entries are scattered");
    CHECK(make_cpu_operator<float>(a)->plan().storage == StorageKind::dual);
    CHECK(make_cpu_operator<double>(a, {.forward = parse_format("coo")})->plan().storage == StorageKind::dual);
    CHECK(make_cpu_operator<double>(a, {.expected_products = 4})->plan().storage == StorageKind::single);
}

TEST_CASE("cpu tiles: iterations as with two orientations") {
    suite_iterates_as_dual(tiles_on_cpu(), matrix_with_rows(random_lengths(30000, 4, 8, 91), 9001, 91), 1e-11, 1e-3);
}

TEST_CASE("cpu tiles: start centre and damping against dense answers") { suite_start_and_center(tiles_on_cpu()); }
TEST_CASE("cpu tiles: damping is stacked rows") { suite_damping_is_stacked_rows(tiles_on_cpu()); }
TEST_CASE("cpu tiles: empty rows and columns") { suite_empty_rows_and_columns(tiles_on_cpu()); }
TEST_CASE("cpu tiles: degenerate shapes") { suite_degenerate_shapes(tiles_on_cpu()); }
TEST_CASE("cpu tiles: one problem many solves") { suite_reuse(tiles_on_cpu()); }
TEST_CASE("cpu tiles: repeats give the same bits") { suite_repeats(tiles_on_cpu()); }
TEST_CASE("cpu tiles: scaled columns") { suite_scaled_columns(tiles_on_cpu()); }
TEST_CASE("cpu tiles: preconditioned iterates") { suite_preconditioned_iterates(tiles_on_cpu()); }
TEST_CASE("cpu tiles: an interrupted solve goes on to the same bits") { suite_checkpoints(tiles_on_cpu()); }
