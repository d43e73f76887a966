// The window kernel: x in shared memory window by window, sums of panels of rows beside it.
#include <cuda_runtime_api.h>

#include <cmath>
#include <limits>

#include "cuda_rig.hpp"
#include "memory/cuda_check.hpp"
#include "operator_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

// Segments of every length up to 130 in windows of 512 columns, so teams of 1 to 16 lanes, and rows without entries there; a row of everything.
std::shared_ptr<const CsrMatrix> matrix_of_segments() {
    constexpr std::int64_t kRows = 900, kCols = 3000, kWindow = 512;
    std::vector<std::int64_t> rows, columns;
    for (std::int64_t i = 0; i < kRows; ++i) {
        for (std::int64_t first = 0; first < kCols; first += kWindow) {
            const std::int64_t here = std::min(kWindow, kCols - first);
            const std::int64_t length = i == 437 ? here : std::min(here, (i * 7 + first / kWindow * 31) % 400 < 131 ? (i * 7 + first / kWindow * 31) % 400 : 0);
            for (std::int64_t k = 0; k < length; ++k) {
                rows.push_back(i);
                columns.push_back(first + k * here / length);
            }
        }
    }
    return share(CsrMatrix::from_coo(kRows, kCols, rows, columns, random_vector(static_cast<std::int64_t>(rows.size()), 91)));
}

}  // namespace

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda window: small windows") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_of_segments();
    for (const char* kernel : {"window-64", "window-512"}) {
        CAPTURE(kernel);
        const auto rig = from_csr<double>(a, forced(kernel));
        REQUIRE(text(*rig->plan().forward_decision.choice) == kernel);
        REQUIRE(text(*rig->plan().adjoint_decision.choice) == kernel);
        check_products(*a, *rig);
        check_products(*a, *from_csr<float>(a, forced(kernel)));
    }
}

TEST_SUITE_END();

TEST_CASE("cuda window: the suite of operators") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"window", "window-8", "window-256"}) {
        CAPTURE(kernel);
        suite_products<double>(from_csr<double>, forced(kernel));
        suite_products<float>(from_csr<float>, forced(kernel));
    }
}

TEST_CASE("cuda window: several panels and windows of full size") {
    LSMR_NEEDS_GPU();
    // 70 entries a row over 90,000 columns, some rows much longer, some empty.
    std::vector<std::int64_t> lengths = random_lengths(60000, 40, 100, 92);
    for (std::size_t i = 11; i < lengths.size(); i += 997) lengths[i] = i % 2 == 0 ? 0 : 5000;
    lengths[59999] = 90000;
    const auto a = matrix_with_rows(lengths, 90000, 93);
    const auto rig = from_csr<double>(a, forced("window"));
    CHECK(rig->plan().forward.find("panels of rows") != std::string::npos);
    check_products(*a, *rig);
    check_products(*a, *from_csr<float>(a, forced("window")));
    // One row of everything alone, and one column of everything.
    const auto row = matrix_with_rows({100000}, 100000, 94);
    for (const char* kernel : {"window", "window-4096"}) {
        CAPTURE(kernel);
        check_products(*row, *from_csr<double>(row, forced(kernel)));
        check_products(*row, *from_csr<float>(row, forced(kernel)));
    }
}

TEST_CASE("cuda window: narrow values") {
    LSMR_NEEDS_GPU();
    for (const ShapeCase& shape : shape_cases()) {
        CAPTURE(shape.name);
        const auto fp32 = with_exact_values(*shape.a, 24);
        check_products(*fp32, *from_csr<double>(fp32, forced("window-128+fp32")));
        const auto bf16 = with_exact_values(*shape.a, 8);
        check_products(*bf16, *from_csr<double>(bf16, forced("window+bf16")));
        check_products(*bf16, *from_csr<float>(bf16, forced("window-128+bf16")));
    }
    CHECK_THROWS_AS(from_csr<double>(matrix_of_segments(), forced("window+fp32")), InputError);
}

TEST_CASE("cuda window: non-finite x touches only the rows that use it") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(3000, 0, 30, 71), 500, 71);
    for (const char* kernel : {"window", "window-64"}) {
        CAPTURE(kernel);
        const auto rig = from_csr<double>(a, forced(kernel));
        for (const std::int64_t infinite : {0, 63, 499}) {
            auto x = random_vector(a->cols(), 72);
            x[static_cast<std::size_t>(infinite)] = std::numeric_limits<double>::infinity();
            x[77] = std::numeric_limits<double>::quiet_NaN();
            std::vector<double> y(3000);
            rig->product(false, 1.0, x, 0.0, y);
            for (std::int64_t i = 0; i < 3000; ++i) {
                bool inf = false, nan = false;
                for (std::int64_t k = a->offsets()[i]; k < a->offsets()[i + 1]; ++k) {
                    inf = inf || a->columns()[k] == infinite;
                    nan = nan || a->columns()[k] == 77;
                }
                const double value = y[static_cast<std::size_t>(i)];
                if (nan) REQUIRE(std::isnan(value));
                else if (inf) REQUIRE(std::isinf(value));
                else REQUIRE(std::isfinite(value));
            }
        }
    }
}

TEST_CASE("cuda window: repeats are bit-identical, of the same and of another plan") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_of_segments();
    const auto x = random_vector(a->cols(), 95);
    for (const char* kernel : {"window", "window-64", "window-512"}) {
        CAPTURE(kernel);
        suite_repeats<double>(from_csr<double>, forced(kernel), 20);
        suite_repeats<float>(from_csr<float>, forced(kernel), 20);
        const auto rig = from_csr<double>(a, forced(kernel));
        std::vector<double> first(static_cast<std::size_t>(a->rows())), y = first;
        const double squares = rig->product(false, 1.0, x, 0.0, first);
        for (int i = 0; i < 200; ++i) {
            REQUIRE(rig->product(false, 1.0, x, 0.0, y) == squares);
            REQUIRE(y == first);
        }
        // Which segments share a slice may differ from plan to plan; sums may not.
        for (int i = 0; i < 5; ++i) {
            const auto again = from_csr<double>(a, forced(kernel));
            REQUIRE(again->product(false, 1.0, x, 0.0, y) == squares);
            REQUIRE(y == first);
        }
    }
}

TEST_CASE("cuda window: captured, replayed, and updated") {
    LSMR_NEEDS_GPU();
    CudaContext& context = shared_context();
    const auto a = matrix_with_rows(random_lengths(5000, 0, 60, 75), 3000, 75);
    auto op = make_cuda_operator<double>(*a, context, forced("window-512"));
    check_captured(*op);
    MatrixOperator<double>& same = *op;
    CudaRig<double> rig(std::move(op));
    const auto values = with_values(*a, [](double v) { return v * 1.5 + 0.25; });
    same.update(values);
    CHECK(same.plan().forward.find("window-512") != std::string::npos);
    check_products(*values, rig);
    const auto structure = matrix_with_rows(random_lengths(5000, 10, 90, 82), 3000, 82);
    same.update(structure);
    check_products(*structure, rig);
}
