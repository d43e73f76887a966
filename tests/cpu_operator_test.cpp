// The operator suite on the CPU.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "memory/error.hpp"
#include "operator/cpu/row_storage.hpp"
#include "operator/formats/row_plans.hpp"
#include "operator/function_operator.hpp"
#include "operator/profile.hpp"
#include "operator/spmv_choice.hpp"
#include "operator/stacked_operator.hpp"
#include "cpu_rig.hpp"
#include "operator_suite.hpp"

using namespace lsmr;
using namespace lsmr::test::products;

namespace {

// The operator with kernels that this CPU would not choose.
template <class T, cpu::InstructionSet set, cpu::Narrowing narrowing, std::int64_t panels, cpu::Slicing slicing = cpu::Slicing::none>
std::unique_ptr<Rig<T>> make_forced(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    return std::make_unique<CpuRig<T>>(cpu::make_operator<T>(std::move(a), options, {set, narrowing, panels, slicing}));
}

// What this CPU chooses, but row by row.
template <class T>
OperatorPlan plan_of_rows(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options = {}) {
    return cpu::make_operator<T>(std::move(a), options, {.slicing = cpu::Slicing::none})->plan();
}

// All that must hold of the kernels of one set of instructions, on the forms that a matrix can have in memory.
template <class T, cpu::InstructionSet set>
void suite_instruction_set() {
    if (set > cpu::best_instruction_set<T>()) {
        MESSAGE("skipped: this CPU has no " << cpu::name(set));
        return;
    }
    const OperatorOptions dual{.storage = StorageKind::dual};
    using enum cpu::Narrowing;
    const MakeRig<T> forms[] = {make_forced<T, set, none, 1>, make_forced<T, set, lossless, 1>, make_forced<T, set, none, 3>,
                                make_forced<T, set, lossless, 3>, make_forced<T, set, none, 1, cpu::Slicing::all>,
                                make_forced<T, set, lossless, 1, cpu::Slicing::all>, make_forced<T, set, none, 3, cpu::Slicing::all>,
                                make_forced<T, set, lossless, 3, cpu::Slicing::all>};
    for (MakeRig<T> make : forms) {
        suite_products<T>(make, dual);
        suite_products<T>(make, dual, Values::exact_in_fp32);
        suite_long_rows<T>(make, dual);
        suite_repeats<T>(make, dual, 4);
        suite_adjoint<T>(make, dual);
        suite_exponent<T>(make, dual);
        suite_nonfinite<T>(make, dual);
    }
    for (MakeRig<T> make : {forms[0], forms[1], forms[4], forms[5]}) suite_infinite_coefficient<T>(make, dual);  // a panel may leave a row empty: inf 0
    suite_products<T>(forms[1], {.storage = StorageKind::single});
    // Narrowing changes no bit.
    for (const ShapeCase& shape : shape_cases()) {
        CAPTURE(shape.name);
        for (const auto& a : {shape.a, rounded_to_fp32(*shape.a)}) {
            for (std::size_t form : {0, 2, 4, 6}) {
                const auto plain = forms[form](a, dual);
                const auto narrowed = forms[form + 1](a, dual);
                for (bool adjoint : {false, true}) {
                    const auto x = narrow<T>(random_vector(adjoint ? a->rows() : a->cols(), 23));
                    auto y = narrow<T>(random_vector(adjoint ? a->cols() : a->rows(), 24));
                    auto z = y;
                    CHECK(plain->product(adjoint, 1.75, x, -0.5, y) == narrowed->product(adjoint, 1.75, x, -0.5, z));
                    CHECK(y == z);
                }
            }
        }
    }
}

OperatorOptions with(StorageKind storage) {
    OperatorOptions options;
    options.storage = storage;
    return options;
}

}  // namespace

TEST_CASE("cpu operator: products fp64 dual") { suite_products<double>(make_rig<double>, with(StorageKind::dual)); }
TEST_CASE("cpu operator: products fp32 dual") { suite_products<float>(make_rig<float>, with(StorageKind::dual)); }
TEST_CASE("cpu operator: products fp64 single") { suite_products<double>(make_rig<double>, with(StorageKind::single)); }
TEST_CASE("cpu operator: products fp32 single") { suite_products<float>(make_rig<float>, with(StorageKind::single)); }
TEST_CASE("cpu operator: long rows single") {
    suite_long_rows<double>(make_rig<double>, with(StorageKind::single));
    suite_long_rows<float>(make_rig<float>, with(StorageKind::single));
}

namespace {

const char* const kFormats[] = {"sell-32", "sell-32-32", "sell-32-1024", "ell", "hyb", "hyb-q80", "coo"};

// All that must hold of the formats, with one set of instructions.
template <class T, cpu::InstructionSet set>
void suite_formats() {
    if (set > cpu::best_instruction_set<T>()) {
        MESSAGE("skipped: this CPU has no " << cpu::name(set));
        return;
    }
    constexpr MakeRig<T> make = where_it_fits<T, make_forced<T, set, cpu::Narrowing::lossless, 1>>;
    for (const char* format : kFormats) {
        CAPTURE(format);
        OperatorOptions options;
        options.forward = options.adjoint = parse_format(format);
        suite_products<T>(make, options);
        suite_long_rows<T>(make, options);
        suite_repeats<T>(make, options, 4);
        suite_adjoint<T>(make, options);
        suite_exponent<T>(make, options);
        suite_nonfinite<T>(make, options);
        suite_infinite_coefficient<T>(make, options);
    }
}

}  // namespace

TEST_CASE("cpu operator: formats, portable, fp64") { suite_formats<double, cpu::InstructionSet::portable>(); }
TEST_CASE("cpu operator: formats, portable, fp32") { suite_formats<float, cpu::InstructionSet::portable>(); }
TEST_CASE("cpu operator: formats, avx2, fp64") { suite_formats<double, cpu::InstructionSet::avx2>(); }
TEST_CASE("cpu operator: formats, avx2, fp32") { suite_formats<float, cpu::InstructionSet::avx2>(); }
TEST_CASE("cpu operator: formats, avx512, fp64") { suite_formats<double, cpu::InstructionSet::avx512>(); }

TEST_CASE("cpu operator: a forced format is said, holds its own arrays, and is refused where it does not fit") {
    const auto a = matrix_with_rows(random_lengths(640, 1, 9, 121), 320, 121);
    const CsrMatrix at = a->transposed();
    const auto longest = [](const CsrMatrix& m) { return longest_row(m.rows(), m.offsets()); };
    OperatorOptions ell;
    ell.forward = ell.adjoint = parse_format("ell");
    const OperatorPlan plan = make_rig<double>(a, ell)->plan();
    CHECK(plan.forward.find(fmt::format("ell (OpenMP, {}; width {}, ", cpu::name(cpu::best_instruction_set<double>()), longest(*a))) == 0);
    CHECK(text(*plan.forward_decision.choice) == "ell");
    CHECK(text(*plan.adjoint_decision.choice) == "ell");
    CHECK(plan.bytes == a->bytes() + 12 * (640 * longest(*a) + 320 * longest(at)));  // no second CSR
    OperatorOptions coo;
    coo.forward = coo.adjoint = parse_format("coo");
    CHECK(make_rig<float>(a, coo)->plan().bytes == a->bytes() + 2 * 12 * a->nnz());
    OperatorOptions one;
    one.adjoint = parse_format("coo");
    CHECK(make_rig<double>(a, one)->plan().forward.find("own csr rows") == 0);
    CHECK(make_rig<double>(a, one)->plan().adjoint.find("coo (") == 0);

    ell.storage = StorageKind::single;
    CHECK_THROWS_AS(make_rig<double>(a, ell), InputError);
    for (const char* kernel : {"stream-128x2048", "sell-32+columns16", "ell+fp32", "hyb+atomic"}) {
        OperatorOptions gpu;
        gpu.forward = parse_spmv_choice(kernel);
        CHECK_THROWS_WITH_AS(make_rig<double>(a, gpu), fmt::format("the kernel {} needs a GPU: this operator is on the CPU", kernel).c_str(), InputError);
    }
    std::vector<std::int64_t> lengths(300, 2);
    lengths[17] = 5000;
    const auto uneven = matrix_with_rows(lengths, 5000, 122);
    for (const char* format : {"ell", "sell-32", "sell-32-1024", "hyb-q100"}) {
        OperatorOptions options;
        options.forward = parse_format(format);
        CHECK_THROWS_AS(make_rig<double>(uneven, options), InputError);
    }
}

TEST_CASE("cpu operator: portable kernels fp64") { suite_instruction_set<double, cpu::InstructionSet::portable>(); }
TEST_CASE("cpu operator: portable kernels fp32") { suite_instruction_set<float, cpu::InstructionSet::portable>(); }
TEST_CASE("cpu operator: avx2 kernels fp64") { suite_instruction_set<double, cpu::InstructionSet::avx2>(); }
TEST_CASE("cpu operator: avx2 kernels fp32") { suite_instruction_set<float, cpu::InstructionSet::avx2>(); }
TEST_CASE("cpu operator: avx512 kernels fp64") { suite_instruction_set<double, cpu::InstructionSet::avx512>(); }

TEST_CASE("cpu operator: what is narrowed, in words and in bytes") {
    const std::string own = fmt::format("own csr rows (OpenMP, {})", cpu::name(cpu::best_instruction_set<double>()));
    const auto near = matrix_with_rows(random_lengths(5000, 1, 9, 101), 700, 101);
    const std::int64_t nnz = near->nnz(), pad = 2 * cpu::kPadding;
    const std::int64_t offsets = 8 * 5001, offsets_of_adjoint = 8 * 701;

    // Random values: the forward product reads the values in place.
    const OperatorPlan columns = plan_of_rows<double>(near);
    CHECK(columns.forward == own + ", 16-bit columns");
    CHECK(columns.adjoint == own + " of A^T, 16-bit columns");
    CHECK(columns.bytes == (12 * nnz + offsets) + (2 * nnz + pad) + (10 * nnz + pad + offsets_of_adjoint));

    const OperatorPlan both = plan_of_rows<double>(rounded_to_fp32(*near));
    CHECK(both.forward == own + ", 16-bit columns, values exact in fp32");
    CHECK(both.bytes == (12 * nnz + offsets) + (6 * nnz + pad) + (6 * nnz + pad + offsets_of_adjoint));

    const OperatorPlan single = make_rig<double>(rounded_to_fp32(*near), with(StorageKind::single))->plan();
    CHECK(single.forward == own);
    CHECK(single.bytes == near->bytes());

    // fp32: the values are its own in any case.
    const OperatorPlan fp32 = plan_of_rows<float>(near);
    CHECK(fp32.forward == fmt::format("own csr rows (OpenMP, {}), 16-bit columns", cpu::name(cpu::best_instruction_set<float>())));
    CHECK(fp32.bytes == (12 * nnz + offsets) + (6 * nnz + pad) + (6 * nnz + pad + offsets_of_adjoint));

    // One value that fp32 cannot hold; one that it can hold only before the scaling.
    const auto one = [](double value) {
        return share(CsrMatrix::from_coo(2, 70000, std::vector<std::int64_t>{0, 0, 1}, std::vector<std::int64_t>{0, 69999, 3},
                                         std::vector<double>{0.5, value, 2.0}));
    };
    CHECK(make_rig<double>(one(0.1), {})->plan().forward == own);
    CHECK(make_rig<double>(one(0x1p-120), {})->plan().forward == own + ", values exact in fp32");
    CHECK(make_rig<double>(one(0x1p-120), {.exponent = -60})->plan().forward == own);
    CHECK(make_rig<double>(one(0x1p-180), {.exponent = 60})->plan().forward == own + ", values exact in fp32");

    // Columns too far apart in some rows.
    const auto shapes = shape_cases();
    const auto mixed = std::find_if(shapes.begin(), shapes.end(), [](const ShapeCase& s) { return s.name == "near columns and far ones"; });
    REQUIRE(mixed != shapes.end());
    const std::string words = make_forced<double, cpu::InstructionSet::portable, cpu::Narrowing::lossless, 1>(mixed->a, {})->plan().forward;
    CAPTURE(words);
    CHECK(words.starts_with("own csr rows (OpenMP, portable), 16-bit columns for "));
    CHECK(words.ends_with(" % of the entries"));
}

TEST_CASE("cpu operator: rows by eights where they are of like length") {
    using cpu::slices_pay;
    CHECK(slices_pay({.entries = 1000, .places = 1100, .longest = 512}));
    CHECK_FALSE(slices_pay({.entries = 1000, .places = 1101, .longest = 10}));  // too much padding
    CHECK_FALSE(slices_pay({.entries = 1000, .places = 1000, .longest = 513}));
    CHECK_FALSE(slices_pay({}));

    const auto own = [](cpu::InstructionSet set) { return fmt::format("own csr rows (OpenMP, {})", cpu::name(set)); };
    const auto tens = matrix_with_rows(std::vector<std::int64_t>(3001, 10), 2000, 113);
    std::vector<std::int64_t> rows, columns;
    for (std::int64_t i = 0; i < 3001; ++i) {
        for (std::int64_t k = 0; k < 10; ++k) {
            rows.push_back(i);
            columns.push_back(k == 0 ? 0 : 1 + (37 * i + k) % 1999);
        }
    }
    const auto one_dense_column = share(CsrMatrix::from_coo(3001, 2000, rows, columns, random_vector(30010, 116)));
    const auto check = [&]<cpu::InstructionSet set>() {
        if (set > cpu::best_instruction_set<double>()) return;
        using enum cpu::Narrowing;
        const auto plan = [&](const auto& make, const std::shared_ptr<const CsrMatrix>& a) { return make(a, with(StorageKind::dual))->plan(); };
        const auto chosen = make_forced<double, set, lossless, 1, cpu::Slicing::where_it_pays>;
        const bool pays = set != cpu::InstructionSet::portable;
        CHECK(plan(chosen, tens).forward == own(set) + (pays ? ", rows by eights" : "") + ", 16-bit columns");
        CHECK(plan(chosen, matrix_with_rows(random_lengths(3001, 0, 300, 113), 2000, 113)).forward == own(set) + ", 16-bit columns");
        // Bits are those of the matrix, for any number of threads.
        const auto sliced = make_forced<double, set, none, 1, cpu::Slicing::all>;
        const auto x = random_vector(2000, 114);
        std::vector<double> first(3001);
        const double norm = sliced(tens, with(StorageKind::dual))->product(false, 1.5, x, 0, first);
        const int before = omp_get_max_threads();
        for (int threads = 1; threads <= 17; ++threads) {
            omp_set_num_threads(threads);
            std::vector<double> y(3001);
            CHECK(sliced(tens, with(StorageKind::dual))->product(false, 1.5, x, 0, y) == norm);
            CHECK(y == first);
        }
        omp_set_num_threads(before);
        // Bytes are those of the arrays: the last slice has one row of eight. The transpose has a row that is too long, and stays as it is.
        const std::int64_t slices = 376;
        CHECK(plan(sliced, one_dense_column).forward == own(set) + ", rows by eights");
        CHECK(plan(sliced, one_dense_column).adjoint == own(set) + " of A^T");
        CHECK(plan(sliced, one_dense_column).bytes ==
              plan(make_forced<double, set, none, 1>, one_dense_column).bytes + 8 * slices * (2 + 10 * (4 + 8)) + 8 * (slices + 1));
    };
    check.template operator()<cpu::InstructionSet::portable>();
    check.template operator()<cpu::InstructionSet::avx2>();
    check.template operator()<cpu::InstructionSet::avx512>();
}

TEST_CASE("cpu operator: panels of columns where x is long and gathered from all over") {
    using cpu::choose_panels;
    const std::int64_t mib = 1 << 20;
    CHECK(choose_panels(1000, 10 * mib / 8, 1000 * 20, 8, 0.9) == 10);
    CHECK(choose_panels(1000, 10 * mib / 4, 1000 * 20, 4, 0.9) == 10);
    CHECK(choose_panels(1000, 10 * mib / 8, 1000 * 20 - 1, 8, 0.9) == 9);   // too few entries a row: wider panels
    CHECK(choose_panels(1000, 10 * mib / 8, 1000 * 10, 8, 0.9) == 5);
    CHECK(choose_panels(1000, 10 * mib / 8, 1000 * 10 - 1, 8, 0.9) == 1);
    CHECK(choose_panels(1000, 10 * mib / 8, 1000 * 300, 8, 0.2) == 1);     // near columns
    CHECK(choose_panels(1000, 3 * mib / 16 - 1, 1000 * 300, 8, 0.9) == 1);  // x fits the cache
    CHECK(choose_panels(1000, 3 * mib / 16, 1000 * 300, 8, 0.9) == 2);
    CHECK(choose_panels(0, 0, 0, 8, 0) == 1);

    const std::string own = fmt::format("own csr rows (OpenMP, {})", cpu::name(cpu::best_instruction_set<double>()));
    const auto scattered = matrix_with_rows(std::vector<std::int64_t>(2000, 40), 300000, 111);
    const OperatorPlan plan = plan_of_rows<double>(scattered);
    CHECK(plan.forward == own + ", 3 column panels");
    CHECK(plan.adjoint == own + " of A^T, 16-bit columns");
    const std::int64_t nnz = scattered->nnz();
    const std::int64_t copies = 12 * nnz + 3 * 8 * 2001;
    CHECK(plan.bytes == scattered->bytes() + copies + 10 * nnz + 2 * cpu::kPadding + 8 * 300001);
    CHECK(make_rig<double>(scattered, with(StorageKind::single))->plan().forward == own);

    std::vector<std::int64_t> rows, columns;  // as many columns, but near one another
    for (std::int64_t i = 0; i < 2000; ++i) {
        for (std::int64_t k = 0; k < 40; ++k) {
            rows.push_back(i);
            columns.push_back(140 * i + k);
        }
    }
    const auto banded = share(CsrMatrix::from_coo(2000, 300000, rows, columns, random_vector(80000, 112)));
    CHECK(plan_of_rows<double>(banded).forward == own + ", 16-bit columns");
}

TEST_CASE("cpu operator: repeats are bit-identical") {
    suite_repeats<double>(make_rig<double>, with(StorageKind::dual), 20);
    suite_repeats<float>(make_rig<float>, with(StorageKind::single), 20);
}
TEST_CASE("cpu operator: adjoint identity") {
    suite_adjoint<double>(make_rig<double>, with(StorageKind::dual));
    suite_adjoint<float>(make_rig<float>, with(StorageKind::dual));
}
TEST_CASE("cpu operator: exponent") {
    suite_exponent<double>(make_rig<double>, with(StorageKind::dual));
    suite_exponent<float>(make_rig<float>, with(StorageKind::single));
}

TEST_CASE("cpu operator: the same bits for any number of threads") {
    const auto a = matrix_with_rows(random_lengths(30000, 0, 20, 61), 9001, 61);
    const auto x = random_vector(a->cols(), 62);
    const auto u = random_vector(a->rows(), 63);
    for (StorageKind storage : {StorageKind::dual, StorageKind::single}) {
        std::vector<double> y1, z1;
        double s1 = 0, t1 = 0;
        for (int threads : {1, 2, 3, 7}) {
            const int before = omp_get_max_threads();
            omp_set_num_threads(threads);
            const auto rig = make_rig<double>(a, with(storage));
            std::vector<double> y(static_cast<std::size_t>(a->rows())), z(static_cast<std::size_t>(a->cols()));
            const double s = rig->product(false, 1.0, x, 0.0, y, false);
            const double t = rig->product(true, 1.0, u, 0.0, z, false);
            omp_set_num_threads(before);
            if (threads == 1) {
                y1 = y;
                z1 = z;
                s1 = s;
                t1 = t;
            }
            CHECK(y == y1);
            CHECK(z == z1);
            CHECK(s == s1);
            CHECK(t == t1);
        }
    }
}

TEST_CASE("cpu operator: storage follows the expected products and says why") {
    const auto a = matrix_with_rows({2, 3}, 5, 71);
    OperatorOptions few;
    few.expected_products = 4;
    CHECK(make_rig<double>(a, few)->plan().storage == StorageKind::single);
    CHECK(make_rig<double>(a, few)->plan().storage_reason == "only 4 products are expected");
    CHECK(make_rig<double>(a, {})->plan().storage == StorageKind::dual);
    OperatorOptions cusparse;
    cusparse.spmv = SpmvKind::cusparse;
    CHECK_THROWS_AS(make_rig<double>(a, cusparse), InputError);
}

TEST_CASE("cpu operator: stack of A and lambda I") {
    const auto a = matrix_with_rows(random_lengths(40, 0, 6, 81), 23, 81);
    const auto top = make_cpu_operator<double>(a);
    const auto bottom = make_cpu_scaled_identity<double>(23, 0.25);
    const Coefficient<double> one{1.0, 1.0}, two{2.0, 2.0}, minus{-1.0, -1.0};
    const StackedOperator<double> stack(*top, *bottom, &one);
    const auto workspace = stack.make_workspace(nullptr);
    const auto x = random_vector(23, 82);
    const auto u = random_vector(63, 83);
    auto y = random_vector(63, 84);
    auto z = random_vector(23, 85);
    const auto y0 = y;
    const auto z0 = z;
    std::vector<double> sums(static_cast<std::size_t>(stack.max_partials()));
    NormPartials norm{sums.data(), 0};
    stack.apply(&two, x.data(), &minus, y.data(), *workspace, &norm);
    std::vector<double> upper(40);
    make_rig<double>(a, {})->product(false, 1.0, x, 0.0, upper, false);
    double squares = 0;
    for (std::size_t i = 0; i < 63; ++i) {
        const double product = i < 40 ? upper[i] : 0.25 * x[i - 40];
        CHECK(y[i] == doctest::Approx(2 * product - y0[i]).epsilon(1e-14));
        squares += y[i] * y[i];
    }
    CHECK(std::accumulate(sums.begin(), sums.begin() + norm.count, 0.0) == doctest::Approx(squares).epsilon(1e-14));
    norm.count = 0;
    stack.apply_adjoint(&two, u.data(), &minus, z.data(), *workspace, &norm);
    std::vector<double> lower(23);
    make_rig<double>(a, {})->product(true, 1.0, std::vector<double>(u.begin(), u.begin() + 40), 0.0, lower, false);
    for (std::size_t j = 0; j < 23; ++j) CHECK(z[j] == doctest::Approx(2 * (lower[j] + 0.25 * u[40 + j]) - z0[j]).epsilon(1e-13));

    const auto narrow_bottom = make_cpu_scaled_identity<double>(22, 0.25);
    CHECK_THROWS_WITH_AS(StackedOperator<double>(*top, *narrow_bottom, &one), "stack: the upper operator has 23 columns, the lower 22", InputError);
}

TEST_CASE("cpu operator: an update that fails between the two products leaves neither") {
    const auto [diagonal, scattered] = diagonal_and_scattered();
    const std::int64_t n = diagonal->rows();
    OperatorOptions options;
    options.forward = parse_format("coo");
    options.adjoint = parse_format("dia");
    auto op = make_cpu_operator<double>(diagonal, options);
    MatrixOperator<double>& same = *op;
    CpuRig<double> rig(std::move(op));
    check_both_products<double>(diagonal, rig);
    CHECK_THROWS_AS(same.update(scattered), InputError);  // A x has its arrays by then
    auto y = random_vector(n, 90);
    CHECK_THROWS_AS(rig.product(true, 1, random_vector(n, 91), 0.5, y, false), InputError);
    CHECK_THROWS_AS(rig.product(false, 1, random_vector(n, 91), 0.5, y, false), InputError);
    same.update(diagonal);
    check_both_products<double>(diagonal, rig);
}

TEST_CASE("cpu operator: two functions as an operator") {
    FunctionOperator<double> twice(2, 2, [](const double* x, double* y) { y[0] = 2 * x[0], y[1] = 2 * x[1]; },
                                   [](const double* y, double* x) { x[0] = 2 * y[0], x[1] = 2 * y[1]; });
    const auto workspace = twice.make_workspace(nullptr);
    const Coefficient<double> a{0.5, 0.5}, b{0, 0};
    const double x[] = {3, 4};
    double y[] = {NAN, NAN};
    double sums[kMaxPartials];
    NormPartials norm{sums, 0};
    twice.apply(&a, x, &b, y, *workspace, &norm);
    CHECK(y[0] == 3);
    CHECK(y[1] == 4);
    REQUIRE(norm.count == 1);
    CHECK(sums[0] == 25);
    CHECK_THROWS_WITH_AS(FunctionOperator<double>(2, 2, [](const double*, double*) {}, nullptr),
                         "operator: the function for A^T y is missing; least squares needs both products", InputError);
}
