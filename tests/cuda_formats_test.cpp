// Products on a GPU with the formats that keep arrays of their own: SELL-32-sigma, ELL, HYB, COO, forced in both directions.
#include <cuda_runtime_api.h>

#include <cmath>
#include <limits>

#include "cuda_rig.hpp"
#include "memory/cuda_check.hpp"
#include "operator/cuda/product_bench.hpp"
#include "operator/formats/row_plans.hpp"
#include "operator_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

// Without the narrow forms.
const char* const kFormats[] = {"sell-32", "sell-32-32", "sell-32-1024", "sell-32-65536", "ell", "hyb", "hyb-q80", "coo"};

template <class T>
void check_format(const std::string& kernel) {
    CAPTURE(kernel);
    const auto rig = from_csr<T>(matrix_with_rows({3, 0, 2}, 5, 1), forced(kernel));
    REQUIRE(text(*rig->plan().forward_decision.choice) == kernel);
    REQUIRE(text(*rig->plan().adjoint_decision.choice) == kernel);
    suite_products<T>(where_it_fits<T, from_csr<T>>, forced(kernel));
}

// Rows of 0 to 12 entries, and a few of up to 5,000.
std::shared_ptr<const CsrMatrix> uneven_rows() {
    std::vector<std::int64_t> lengths = random_lengths(20000, 0, 12, 201);
    for (std::size_t i = 3; i < lengths.size(); i += 1000) lengths[i] = static_cast<std::int64_t>(i) / 4;
    return matrix_with_rows(lengths, 30000, 202);
}

void check_narrow_values(const std::string& kernel) {
    for (const ShapeCase& shape : shape_cases()) {
        CAPTURE(shape.name);
        const auto fp32 = with_exact_values(*shape.a, 24);
        const auto bf16 = with_exact_values(*shape.a, 8);
        check_products(*fp32, *where_it_fits<double, from_csr<double>>(fp32, forced(kernel + "+fp32")));
        check_products(*bf16, *where_it_fits<double, from_csr<double>>(bf16, forced(kernel + "+bf16")));
        check_products(*bf16, *where_it_fits<float, from_csr<float>>(bf16, forced(kernel + "+bf16")));
    }
}

void check_cut_rows(const std::vector<std::string>& kernels, bool deterministic) {
    const auto a = uneven_rows();
    const auto row = matrix_with_rows({5000}, 5000, 205);
    for (const std::string& kernel : kernels) {
        CAPTURE(kernel);
        const auto rig = where_it_fits<double, from_csr<double>>(a, forced(kernel));
        check_products(*a, *rig);
        CHECK(rig->plan().deterministic == deterministic);
        if (kernel.starts_with("coo")) check_products(*row, *from_csr<float>(row, forced(kernel)));
    }
    // Runs that begin and end at every place of a chunk of 128 entries, rows over several chunks, one row over all.
    for (std::int64_t before = 0; before < 130; before += 3) {
        CAPTURE(before);
        const auto cut = matrix_with_rows({before, 1, 0, 126, 2, 0, 0, 128, 300, 1, 1, 4, 3, 700, 5, 0}, 1500, 204);
        for (const std::string& kernel : kernels) {
            OperatorOptions options = forced(kernel);
            options.adjoint.reset();
            check_products(*cut, *from_csr<double>(cut, options));
        }
    }
}

}  // namespace

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda formats: SELL") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"sell-32", "sell-32-1024"}) check_format<double>(kernel);
    check_format<float>("sell-32-32");
}
TEST_CASE("cuda formats: ELL") {
    LSMR_NEEDS_GPU();
    check_format<double>("ell");
    check_format<float>("ell");
}
TEST_CASE("cuda formats: HYB") {
    LSMR_NEEDS_GPU();
    check_format<double>("hyb");
    check_format<float>("hyb-q80");
}
TEST_CASE("cuda formats: COO") {
    LSMR_NEEDS_GPU();
    check_format<double>("coo");
    check_format<float>("coo");
}
TEST_CASE("cuda formats: 16-bit columns in the slices that allow them") {
    LSMR_NEEDS_GPU();
    check_format<double>("sell-32+columns16");
    check_format<float>("sell-32-1024+columns16");
    // Slices of neighbouring columns, slices over all of 300,000, and spans of just below and above what 16 bits hold beside padding.
    std::vector<std::int64_t> rows, columns;
    for (std::int64_t i = 0; i < 6400; ++i) {
        for (std::int64_t k = 0; k < 1 + i % 7; ++k) {
            rows.push_back(i);
            const std::int64_t kind = i / 64 % 4;  // of two slices, and of the rows that are sorted together
            columns.push_back(kind == 0 ? 40 * i + k : kind == 1 ? (i * 7919 + k * 40009) % 300000 : 20000 + (k != 1 ? k : kind == 2 ? 65534 : 65535));
        }
    }
    const auto a = share(CsrMatrix::from_coo(6400, 300000, rows, columns, random_vector(static_cast<std::int64_t>(rows.size()), 203)));
    for (const char* kernel : {"sell-32+columns16", "sell-32-64+columns16"}) {
        CAPTURE(kernel);
        OperatorOptions options = forced(kernel);
        options.adjoint.reset();
        const auto rig = from_csr<double>(a, options);
        CAPTURE(rig->plan().forward);
        CHECK(rig->plan().forward.find("16-bit columns for") != std::string::npos);
        CHECK(rig->plan().forward.find("for 100 %") == std::string::npos);  // both widths are in use
        check_products(*a, *rig);
        check_products(*a, *from_csr<float>(a, options));
    }
}
TEST_CASE("cuda formats: narrow values of SELL") { LSMR_NEEDS_GPU(); check_narrow_values("sell-32-1024+columns16"); }
TEST_CASE("cuda formats: narrow values of ELL") { LSMR_NEEDS_GPU(); check_narrow_values("ell"); }
TEST_CASE("cuda formats: narrow values of HYB") { LSMR_NEEDS_GPU(); check_narrow_values("hyb"); }
TEST_CASE("cuda formats: narrow values of COO") { LSMR_NEEDS_GPU(); check_narrow_values("coo"); }
TEST_CASE("cuda formats: rows cut by chunks of COO, in a fixed order") { LSMR_NEEDS_GPU(); check_cut_rows({"coo", "hyb", "hyb-q95"}, true); }
TEST_CASE("cuda formats: rows cut by chunks of COO, by atomics") { LSMR_NEEDS_GPU(); check_cut_rows({"coo+atomic", "hyb-q50+atomic"}, false); }
TEST_CASE("cuda formats: non-finite x touches only the rows that use it, never through padding") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"sell-32", "sell-32+columns16", "sell-32-1024", "ell", "hyb", "hyb-q80", "coo"}) {
        CAPTURE(kernel);
        suite_nonfinite<double>(where_it_fits<double, from_csr<double>>, forced(kernel));
        suite_nonfinite<float>(where_it_fits<float, from_csr<float>>, forced(kernel));
        suite_infinite_coefficient<double>(where_it_fits<double, from_csr<double>>, forced(kernel));
    }
}

TEST_SUITE_END();

TEST_CASE("cuda formats: every other format and precision") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : kFormats) {
        check_format<double>(kernel);
        check_format<float>(kernel);
    }
    check_format<double>("coo+atomic");
    check_format<float>("hyb+atomic");
}

TEST_CASE("cuda formats: padded rows of every width, and more slices than warps") {
    LSMR_NEEDS_GPU();
    const auto check = [](const std::shared_ptr<const CsrMatrix>& a, const char* kernel) {
        OperatorOptions options = forced(kernel);
        options.adjoint.reset();
        check_products(*a, *from_csr<double>(a, options));
        check_products(*a, *from_csr<float>(a, options));
    };
    std::vector<std::int64_t> lengths(20 * 32 + 5);
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int64_t>(i) / 32;  // slices of 0 to 20 columns
    const auto widths = matrix_with_rows(lengths, 301, 219);
    // 2,048 blocks of 8 warps come to a second and a third slice; the last one is ragged.
    const auto many = matrix_with_rows(random_lengths(1100003, 0, 3, 220), 4001, 220);
    for (const char* kernel : {"sell-32", "sell-32+columns16", "sell-32-1024"}) {
        CAPTURE(kernel);
        check(widths, kernel);
        check(many, kernel);
    }
    check(many, "ell");
    for (std::int64_t width = 0; width <= 20; ++width) {
        CAPTURE(width);
        check(matrix_with_rows(random_lengths(100, width / 2, width, 221), 301, 221), "ell");
    }
}

TEST_CASE("cuda formats: repeats are bit-identical, also through vectors that are not aligned") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"sell-32", "sell-32-1024", "sell-32-1024+columns16", "ell", "hyb", "hyb-q80", "coo"}) {
        CAPTURE(kernel);
        suite_repeats<double>(where_it_fits<double, from_csr<double>>, forced(kernel), 20);
        suite_repeats<float>(where_it_fits<float, from_csr<float>>, forced(kernel), 20);
        suite_adjoint<double>(where_it_fits<double, from_csr<double>>, forced(kernel));
        suite_exponent<float>(where_it_fits<float, from_csr<float>>, forced(kernel));
    }
    // Rows over many chunks.
    std::vector<std::int64_t> lengths(400, 3);
    for (std::size_t i = 5; i < lengths.size(); i += 40) lengths[i] = 150000;
    const auto a = matrix_with_rows(lengths, 200000, 206);
    const auto x = random_vector(200000, 207);
    for (const char* kernel : {"coo", "hyb"}) {
        OperatorOptions options = forced(kernel);
        options.adjoint.reset();
        const auto rig = from_csr<double>(a, options);
        std::vector<double> first(400), y(400);
        const double squares = rig->product(false, 1.0, x, 0.0, first);
        check_product(*a, false, 1.0, x, 0.0, first, first, squares);
        for (int i = 0; i < 200; ++i) {
            REQUIRE(rig->product(false, 1.0, x, 0.0, y) == squares);
            REQUIRE(y == first);
        }
    }
}

TEST_CASE("cuda formats: products are captured in global mode and replayed with new vectors") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(5000, 0, 60, 208), 3000, 208);
    for (const char* kernel : {"sell-32-1024+columns16", "ell", "hyb", "coo"}) {
        CAPTURE(kernel);
        check_captured(*make_cuda_operator<double>(*a, shared_context(), forced(kernel)));
    }
}

TEST_CASE("cuda formats: a product holds the arrays of its format and no others, and takes no memory when it runs") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    // Rows in multiples of 32, entries in multiples of 8, no empty rows.
    std::vector<std::int64_t> lengths = random_lengths(3200, 1, 9, 211);
    std::int64_t nnz = 0;
    for (const std::int64_t length : lengths) nnz += length;
    lengths[0] += (8 - nnz % 8) % 8;
    const auto a = matrix_with_rows(lengths, 3000, 212);
    REQUIRE(a->nnz() % 8 == 0);
    const SellPlan sell = make_sell_plan(a->rows(), a->offsets(), 1);
    const SellPlan sorted = make_sell_plan(a->rows(), a->offsets(), 1024);
    const std::int64_t longest = longest_row(a->rows(), a->offsets());
    const std::int64_t width = hyb_width(a->rows(), a->offsets(), 0);
    const std::int64_t rest = rest_offsets(a->rows(), a->offsets(), width).back();
    const std::int64_t padded_rest = (rest + 7) / 8 * 8;
    const auto chunks = [](std::int64_t entries) { return (entries + 127) / 128; };
    struct Account {
        const char* kernel;
        std::int64_t bytes;
        std::int64_t slack;  // of lists of cut rows
    };
    for (const Account& account : {Account{"sell-32", 12 * sell.places() + 4 * 101, 0}, Account{"sell-32-1024", 12 * sorted.places() + 4 * 101 + 2 * 3200, 0},
                                   Account{"ell", 12 * 3200 * longest, 0}, Account{"hyb", 12 * 3200 * width + 16 * padded_rest + 4 * 100 + 2 * 16, 20 * chunks(rest)},
                                   Account{"coo", 16 * a->nnz(), 20 * chunks(a->nnz())}}) {
        CAPTURE(account.kernel);
        OperatorOptions options;
        options.forward = parse_spmv_choice(account.kernel);
        options.adjoint = parse_spmv_choice("rows-1");
        const std::int64_t adjoint = 12 * a->nnz() + 4 * 3001;
        context.synchronize();
        const std::int64_t before = context.pool().live_bytes();
        {
            const auto op = make_cuda_operator<double>(*a, context, options);
            const std::int64_t held = op->plan().bytes - adjoint;
            CHECK(held >= account.bytes);
            CHECK(held <= account.bytes + account.slack);
            // The pool rounds every array up to 256 bytes: of 8 of the format at most, 3 of rows-1, and a coefficient.
            CHECK(context.pool().live_bytes() - before <= op->plan().bytes + 12 * 256);
            const auto workspace = op->make_workspace(&context);
            DeviceBuffer<double> x(context, 3000), y(context, 3200), sums(context, op->max_partials());
            DeviceBuffer<Coefficient<double>> coefficients(context, 2);
            to_device(coefficients, 0, std::vector<Coefficient<double>>{{1, 1}, {0, 0}}, context);
            to_device(x, 0, random_vector(3000, 213), context);
            context.pool().reset_peak();
            const std::int64_t live = context.pool().live_bytes();
            NormPartials norm{sums.data(), 0};
            op->apply(coefficients.data(), x.data(), coefficients.data() + 1, y.data(), *workspace, &norm);
            context.synchronize();
            CHECK(context.pool().peak_bytes() == live);
            CHECK(context.pool().live_bytes() == live);
        }
        CHECK(context.pool().live_bytes() == before);
    }
}

TEST_CASE("cuda formats: what does not fit is refused in words") {
    LSMR_NEEDS_GPU();
    std::vector<std::int64_t> lengths(300, 2);
    lengths[17] = 5000;
    const auto a = matrix_with_rows(lengths, 5000, 214);
    for (const char* kernel : {"ell", "sell-32", "sell-32-1024", "hyb-q100"}) {
        CAPTURE(kernel);
        OperatorOptions options;
        options.forward = parse_spmv_choice(kernel);
        try {
            from_csr<double>(a, options);
            FAIL("not refused");
        } catch (const InputError& error) {
            const std::string what = error.what();
            CAPTURE(what);
            CHECK(what.find(std::string(kernel) + " would store ") == 0);
            CHECK(what.find("places for 5598 entries, more than 4 an entry") != std::string::npos);
            CHECK(what.find("the longest has 5000") != std::string::npos);
        }
    }
    for (const char* kernel : {"hyb", "coo"}) {
        OperatorOptions options;
        options.forward = parse_spmv_choice(kernel);
        CHECK_NOTHROW(from_csr<double>(a, options));
    }
    const auto random = matrix_with_rows(random_lengths(300, 0, 9, 215), 200, 215);
    for (const char* kernel : {"sell-32+fp32", "ell+fp32", "hyb+bf16", "coo+fp32"}) CHECK_THROWS_AS(from_csr<double>(random, forced(kernel)), InputError);
    OperatorOptions deterministic = forced("coo+atomic");
    deterministic.deterministic = true;
    CHECK_THROWS_AS(from_csr<double>(random, deterministic), InputError);
    // Rounded where that is asked for, and said.
    OperatorOptions rounding = forced("sell-32+fp32");
    rounding.narrow = NarrowKind::fp32_values;
    CHECK(from_csr<double>(random, rounding)->plan().notes.at(0).find("rounded in storage") != std::string::npos);
}

TEST_CASE("cuda formats: update keeps a forced format") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(2000, 0, 20, 216), 700, 216);
    const auto other = matrix_with_rows(random_lengths(2000, 5, 30, 217), 700, 217);
    for (const char* kernel : {"sell-32-1024", "ell", "hyb", "coo"}) {
        CAPTURE(kernel);
        auto op = make_cuda_operator<double>(*a, shared_context(), forced(kernel));
        MatrixOperator<double>& same = *op;
        CudaRig<double> rig(std::move(op));
        check_products(*a, rig);
        same.update(other);
        CHECK(same.plan().forward.find(kernel) == 0);
        check_products(*other, rig);
    }
}

TEST_CASE("cuda performance: SELL-32 on a stencil of 27 points is at least 1.4 times as fast as cuSPARSE, in fp64 with 32-bit columns" * doctest::test_suite("alone")) {
    LSMR_NEEDS_GPU();
    const std::int64_t n = 130;
    HostBuffer<std::int64_t> offsets(n * n * n + 1);
    HostBuffer<std::int32_t> column_list(27 * n * n * n);
    std::int64_t nnz = 0;
    for (std::int64_t i = 0; i < n * n * n; ++i) {
        offsets[i] = nnz;
        const std::int64_t at[3] = {i / (n * n), i / n % n, i % n};
        for (std::int64_t d = 0; d < 27; ++d) {
            const std::int64_t to[3] = {at[0] + d / 9 - 1, at[1] + d / 3 % 3 - 1, at[2] + d % 3 - 1};
            if (std::all_of(to, to + 3, [&](std::int64_t t) { return t >= 0 && t < n; })) {
                column_list[nnz++] = static_cast<std::int32_t>((to[0] * n + to[1]) * n + to[2]);
            }
        }
    }
    offsets[n * n * n] = nnz;
    HostBuffer<std::int32_t> columns_exact(nnz);
    std::copy_n(column_list.begin(), nnz, columns_exact.begin());
    HostBuffer<double> values(nnz);
    const auto random = random_vector(1 << 20, 218);
    for (std::int64_t k = 0; k < nnz; ++k) values[k] = random[static_cast<std::size_t>(k & ((1 << 20) - 1))];
    const CsrMatrix a = CsrMatrix::from_csr(n * n * n, n * n * n, std::move(offsets), std::move(columns_exact), std::move(values));
    ProductBench<double> bench(a, shared_context());
    const auto seconds = [&](const char* name) {
        const ProductMeasurement m = bench.measure({name, parse_spmv_choice(name), SpmvKind::automatic, NarrowKind::lossless, true}, 5, 31);
        CAPTURE(m.failure);
        REQUIRE(m.failure.empty());
        CHECK(m.error <= 1);
        if (is_deterministic(parse_spmv_choice(name))) CHECK(m.repeatable);
        return m.seconds;
    };
    const double theirs = std::min(seconds("cusparse-alg1"), seconds("cusparse-alg2"));
    const double ours = seconds("sell-32");
    CAPTURE(theirs);
    CAPTURE(ours);
    CHECK(ours <= theirs / 1.4);
}
