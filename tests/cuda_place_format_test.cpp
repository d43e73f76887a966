// Blocks, Blocked-ELL, diagonals and dense storage on a GPU, forced: kernels, precisions, directions, shapes; and what the dispatch makes of them.
#include <cuda_runtime_api.h>

#include "cuda_rig.hpp"
#include "operator/cuda/choose_product.hpp"
#include "place_format_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

template <class T>
void check_blocks(const std::string& kernel, Values values = Values::full_mantissa) {
    CAPTURE(kernel);
    suite_format<T>(from_csr<T>, forced(kernel), block_cases(parse_spmv_choice(kernel)), Absent::skipped, values);
}

// Values that bf16 holds.
// (Entries of a place that comes twice are added, so that some are beyond 1.)
std::vector<ShapeCase> eight_bit_cases(const SpmvChoice& choice) {
    std::vector<ShapeCase> cases = block_cases(choice);
    for (ShapeCase& shape : cases) shape.a = with_values(*shape.a, [](double v) { return std::ldexp(std::round(std::ldexp(v / 16, 7)), -7); });
    return cases;
}

std::shared_ptr<const CsrMatrix> stencil_of_blocks(std::int64_t points, std::int64_t unknowns) {
    std::vector<std::int64_t> rows, columns;
    for (std::int64_t p = 0; p < points; ++p) {
        for (std::int64_t q = std::max<std::int64_t>(0, p - 4); q < std::min(points, p + 5); ++q) {
            for (std::int64_t place = 0; place < unknowns * unknowns; ++place) {
                rows.push_back(p * unknowns + place / unknowns);
                columns.push_back(q * unknowns + place % unknowns);
            }
        }
    }
    return share(CsrMatrix::from_coo(points * unknowns, points * unknowns, rows, columns, random_vector(static_cast<std::int64_t>(rows.size()), 3)));
}

}  // namespace

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda place formats: blocks, by items through shared memory") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"bsr-1x1-stream", "bsr-2x2-stream", "bsr-3x3-stream", "bsr-6x6-stream", "bsr-8x8-stream", "bsr-9x3-stream", "bsr-5x7-stream"}) {
        check_blocks<double>(kernel);
        check_blocks<float>(kernel);
    }
    suite_format<double>(from_csr<double>, forced("bsr-3x3-stream"), small_cases());
    suite_format<float>(from_csr<float>, forced("bsr-4x4-stream"), small_cases());
}
TEST_CASE("cuda place formats: block rows longer than an item are cut") {
    LSMR_NEEDS_GPU();
    const auto long_rows = block_matrix(3, 3, 4, 20011, 2500, 7, 105);
    suite_format<double>(from_csr<double>, forced("bsr-3x3-stream"), {{"cut block rows", long_rows}});
    suite_format<float>(from_csr<float>, forced("bsr-16x16-stream"), {{"cut block rows of large blocks", block_matrix(16, 16, 5, 997, 90, 8, 106)}});
    CHECK(from_csr<double>(long_rows, forced("bsr-3x3-stream"))->plan().forward.find("rows cut") != std::string::npos);
}
TEST_CASE("cuda place formats: blocks, by columns") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"bsr-1x1-columns", "bsr-2x2-columns", "bsr-3x3-columns", "bsr-6x6-columns", "bsr-9x3-columns", "bsr-3x3-columns+rowmajor"}) {
        check_blocks<double>(kernel);
        check_blocks<float>(kernel);
    }
    suite_format<double>(from_csr<double>, forced("bsr-3x3-columns"), small_cases());
    suite_format<float>(from_csr<float>, forced("bsr-4x4-columns"), small_cases());
}
TEST_CASE("cuda place formats: whole blocks") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"bsr-2x2-blocks", "bsr-4x4-blocks+rowmajor", "bsr-8x8-blocks", "bsr-16x16-blocks", "bsr-32x32-blocks+rowmajor"}) {
        check_blocks<double>(kernel);
        check_blocks<float>(kernel);
    }
    suite_format<double>(from_csr<double>, forced("bsr-4x4-blocks"), small_cases());
}
TEST_CASE("cuda place formats: blocks of narrow values") {
    LSMR_NEEDS_GPU();
    check_blocks<double>("bsr-3x3-stream+fp32", Values::exact_in_fp32);
    check_blocks<double>("bsr-4x4-stream+fp32", Values::exact_in_fp32);
    for (const char* kernel : {"bsr-3x3-stream+bf16", "bsr-8x8-stream+bf16"}) {
        suite_format<double>(from_csr<double>, forced(kernel), eight_bit_cases(parse_spmv_choice(kernel)));
        suite_format<float>(from_csr<float>, forced(kernel), eight_bit_cases(parse_spmv_choice(kernel)));
    }
    CHECK_THROWS_AS(from_csr<double>(stencil_of_blocks(9, 3), forced("bsr-3x3-stream+fp32")), InputError);  // would round
}
TEST_CASE("cuda place formats: Blocked-ELL") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"bell-2x2", "bell-16x16"}) {
        check_blocks<double>(kernel);
        check_blocks<float>(kernel);
    }
    suite_format<double>(from_csr<double>, forced("bell-8x8"), small_cases());
}
TEST_CASE("cuda place formats: diagonals") {
    LSMR_NEEDS_GPU();
    suite_format<double>(from_csr<double>, forced("dia"), band_cases());
    suite_format<float>(from_csr<float>, forced("dia"), band_cases());
    const auto many = matrix_with_rows(random_lengths(400, 1, 5, 3), 400, 3);
    CHECK_THROWS_WITH_AS(from_csr<double>(many, forced("dia")), doctest::Contains("at most 256 are stored"), InputError);
}
TEST_CASE("cuda place formats: dense") {
    LSMR_NEEDS_GPU();
    suite_format<double>(from_csr<double>, forced("dense"), small_cases(), Absent::zero);
    suite_format<float>(from_csr<float>, forced("dense"), band_cases(), Absent::zero);
    const auto full = matrix_with_rows(std::vector<std::int64_t>(40, 33), 33, 4);
    suite_format<double>(from_csr<double>, forced("dense"), {{"every place", full}});
    CHECK(from_csr<double>(full, forced("dense"))->plan().forward.find("non-finite") == std::string::npos);
    CHECK(from_csr<double>(band_cases().back().a, forced("dense"))->plan().forward.find("non-finite x reaches all rows") != std::string::npos);
}
TEST_CASE("cuda place formats: rows whose columns do not ascend are refused by blocks") {
    LSMR_NEEDS_GPU();
    const CudaContext& context = shared_context();
    cuda::DeviceCsr<double> a(context, 2, 4, 3);
    const std::int32_t offsets[] = {0, 2, 3}, columns[] = {3, 0, 1};
    const double values[] = {1, 2, 3};
    LSMR_CHECK(cudaMemcpyAsync(a.offsets32->data(), offsets, sizeof offsets, cudaMemcpyHostToDevice, context.stream()));
    LSMR_CHECK(cudaMemcpyAsync(a.columns->data(), columns, sizeof columns, cudaMemcpyHostToDevice, context.stream()));
    LSMR_CHECK(cudaMemcpyAsync(a.values->data(), values, sizeof values, cudaMemcpyHostToDevice, context.stream()));
    context.synchronize();
    for (const char* kernel : {"bsr-2x2-columns", "bell-2x2"}) {
        CHECK_THROWS_WITH_AS(cuda::make_csr_product(a, {offsets, nullptr}, 2, parse_spmv_choice(kernel), context), doctest::Contains("columns ascend"), InputError);
    }
}

TEST_SUITE_END();

TEST_CASE("cuda place formats: every other size, order and mapping of blocks") {
    LSMR_NEEDS_GPU();
    for (const char* size : {"1x1", "2x2", "3x3", "4x4", "5x5", "6x6", "7x7", "8x8", "9x9", "16x16", "32x32", "2x3", "3x2", "9x3", "3x9"}) {
        for (const char* order : {"", "+rowmajor"}) {
            check_blocks<double>(std::string("bsr-") + size + "-columns" + order);
            check_blocks<float>(std::string("bsr-") + size + "-columns" + order);
        }
        check_blocks<double>(std::string("bsr-") + size + "-stream");
        check_blocks<float>(std::string("bsr-") + size + "-stream");
        check_blocks<double>(std::string("bsr-") + size + "-stream+fp32", Values::exact_in_fp32);
    }
    for (const char* size : {"1x1", "2x2", "4x4", "8x8", "16x16", "32x32"}) {
        for (const char* order : {"", "+rowmajor"}) {
            check_blocks<double>(std::string("bsr-") + size + "-blocks" + order);
            check_blocks<float>(std::string("bsr-") + size + "-blocks" + order);
        }
        check_blocks<double>(std::string("bell-") + size);
        check_blocks<float>(std::string("bell-") + size);
    }
}

TEST_CASE("cuda place formats: blocks of any other size go through the general kernel, which is said") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"bsr-5x7-stream", "bsr-31x17-stream", "bsr-1x32-stream", "bsr-10x10-stream", "bsr-5x7-columns", "bsr-11x2-columns+rowmajor",
                               "bsr-31x17-columns", "bsr-1x32-columns", "bsr-10x10-columns"}) {
        check_blocks<double>(kernel);
        check_blocks<float>(kernel);
        const auto a = stencil_of_blocks(50, 4);
        CHECK(from_csr<double>(a, forced(kernel))->plan().forward.find("by the general kernel") != std::string::npos);
        CHECK(from_csr<double>(a, forced("bsr-9x9-stream"))->plan().forward.find("general") == std::string::npos);
    }
}

TEST_CASE("cuda place formats: cuSPARSE's blocks, for comparison") {
    LSMR_NEEDS_GPU();
    for (const ShapeCase& shape : block_cases(parse_spmv_choice("cusparse-bsr-4x4"))) {
        CAPTURE(shape.name);
        const auto rig = from_csr<double>(shape.a, forced("cusparse-bsr-4x4"));
        for (const bool adjoint : {false, true}) {
            const auto x = random_vector(adjoint ? shape.a->rows() : shape.a->cols(), 5);
            const auto y0 = random_vector(adjoint ? shape.a->cols() : shape.a->rows(), 6);
            auto y = y0;
            const double squares = rig->product(adjoint, -0.5, x, 1.5, y, false);
            check_product(*shape.a, adjoint, -0.5, x, 1.5, y0, y, squares);
        }
        CHECK_FALSE(rig->plan().deterministic);
    }
}

TEST_CASE("cuda place formats: products are captured in global mode and replayed with new vectors") {
    LSMR_NEEDS_GPU();
    const auto a = stencil_of_blocks(600, 4);
    for (const char* kernel : {"bsr-4x4-stream", "bsr-4x4-columns", "bsr-4x4-blocks+rowmajor", "bell-4x4", "dia", "dense"}) {
        CAPTURE(kernel);
        check_captured(*make_cuda_operator<double>(*a, shared_context(), forced(kernel)));
    }
}

TEST_CASE("cuda place formats: the dispatch takes blocks and diagonals where they save bytes") {
    LSMR_NEEDS_GPU();
    OperatorOptions by_rule;
    by_rule.deterministic = true;
    const auto blocks = stencil_of_blocks(30000, 3);
    const auto chosen = from_csr<double>(blocks, by_rule);
    CHECK(text(*chosen->plan().forward_decision.choice) == "bsr-3x3-stream");
    CHECK(chosen->plan().deterministic);
    std::vector<double> y(static_cast<std::size_t>(blocks->rows()));
    const auto x = random_vector(blocks->cols(), 8);
    const double squares = chosen->product(false, 1.0, x, 0.0, y, false);
    check_product(*blocks, false, 1.0, x, 0.0, y, y, squares);
    const auto proposed = [](const std::shared_ptr<const CsrMatrix>& a, const OperatorOptions& options) -> std::string {
        const auto rig = from_csr<double>(a, options);
        for (const auto& candidate : rig->plan().forward_decision.candidates) {
            if (candidate.kernel.starts_with("bsr-")) return candidate.kernel;
        }
        return "none";
    };
    CHECK(proposed(blocks, {}) == "bsr-3x3-stream");
    const auto nine_diagonals = stencil_of_blocks(200000, 1);
    const auto diagonals = from_csr<double>(nine_diagonals, by_rule);
    CHECK(text(*diagonals->plan().forward_decision.choice) == "dia");
    CHECK(text(*diagonals->plan().adjoint_decision.choice) == "dia");

    // Values that bf16 holds are stored so, unless that is forbidden.
    const auto integers = with_values(*blocks, [](double v) { return v > 0 ? 1.0 : -2.0; });
    const std::string narrow = proposed(integers, {});
    CHECK(narrow.starts_with("bsr-"));
    CHECK(narrow.ends_with("+bf16"));
    OperatorOptions as_given;
    as_given.narrow = NarrowKind::none;
    const std::string wide = proposed(integers, as_given);
    CHECK(wide.starts_with("bsr-"));
    CHECK(wide.find('+') == std::string::npos);
}
