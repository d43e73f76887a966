// Every kernel of the products on a GPU, forced: precisions, directions, shapes, stored forms; and the choice among them.
#include <cuda_runtime_api.h>

#include <cmath>
#include <limits>

#include "cuda_rig.hpp"
#include "memory/cuda_check.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/profile_counts.hpp"
#include "operator_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using namespace lsmr::test::products;

namespace {

template <class T>
void check_kernel(const std::string& kernel) {
    CAPTURE(kernel);
    const auto rig = from_csr<T>(matrix_with_rows({3, 0, 2}, 5, 1), forced(kernel));
    REQUIRE(text(*rig->plan().forward_decision.choice) == kernel);
    REQUIRE(text(*rig->plan().adjoint_decision.choice) == kernel);
    suite_products<T>(from_csr<T>, forced(kernel));
}

// Three diagonals; and the same but for 300 rows, none of those that a profile samples, whose last entries lie on a diagonal each.
struct BandPair {
    std::shared_ptr<const CsrMatrix> band;
    std::shared_ptr<const CsrMatrix> spread;
};
BandPair bands_of_one_key() {
    constexpr std::int64_t n = 400000;
    const std::int64_t samples = detail::diagonal_row_samples(n);
    std::vector<std::int64_t> rows, columns;
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = i - 1; j <= i + 1; ++j) {
            if (j < 0 || j >= n) continue;
            rows.push_back(i);
            columns.push_back(j);
        }
    }
    const auto values = random_vector(static_cast<std::int64_t>(rows.size()), 88);
    BandPair pair{share(CsrMatrix::from_coo(n, n, rows, columns, values)), nullptr};
    for (std::int64_t r = 0; r < 300; ++r) {
        std::int64_t row = 7 + 1300 * r;
        while (detail::sample_at(row * samples / n, samples, n) == row || detail::sample_at(row * samples / n + 1, samples, n) == row) ++row;
        columns[static_cast<std::size_t>(3 * row + 1)] = row + 1000 + 11 * r;  // rows begin at 3 i - 1
    }
    pair.spread = share(CsrMatrix::from_coo(n, n, rows, columns, values));
    return pair;
}

const char* const kShapes[] = {"128x2048", "128x1024", "256x1024", "256x2048"};

}  // namespace

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda spmv: stream kernels") {
    LSMR_NEEDS_GPU();
    for (const char* shape : kShapes) check_kernel<double>(std::string("stream-") + shape);
    check_kernel<float>("stream-128x2048");
    check_kernel<float>("stream-256x1024");
}
TEST_CASE("cuda spmv: merge kernels") {
    LSMR_NEEDS_GPU();
    check_kernel<double>("merge-128x1024");
    check_kernel<double>("merge-256x1024+columns16");
    check_kernel<float>("merge-256x1024");
    check_kernel<float>("merge-128x1024+panels3");
    // Rows that end at, just before and just after where threads, warps and items do; and rows over many threads, warps and items.
    std::vector<std::int64_t> lengths;
    for (std::int64_t length : {4, 8, 32, 255, 256, 257, 1023, 1024, 1025, 3000, 1, 0, 0, 7}) {
        lengths.insert(lengths.end(), 5, length);
    }
    lengths.insert(lengths.end(), 3000, 0);
    lengths.insert(lengths.end(), 3000, 1);
    const auto a = matrix_with_rows(lengths, 5000, 81);
    for (const char* kernel : {"merge-128x1024", "merge-256x1024", "merge-128x1024+columns16"}) {
        CAPTURE(kernel);
        check_products(*a, *from_csr<double>(a, forced(kernel)));
        check_products(*a, *from_csr<float>(a, forced(kernel)));
    }
}
TEST_CASE("cuda spmv: balanced kernels cut rows where items end") {
    LSMR_NEEDS_GPU();
    check_kernel<double>("balanced-128x1024");
    check_kernel<float>("balanced-256x2048");
}
TEST_CASE("cuda spmv: 16-bit columns") {
    LSMR_NEEDS_GPU();
    check_kernel<double>("stream-128x1024+columns16");
    check_kernel<float>("balanced-128x2048+columns16");
    const auto a = mixed_spans();
    for (const char* kernel : {"stream-128x1024+columns16", "balanced-256x1024+columns16"}) {
        CAPTURE(kernel);
        const auto rig = from_csr<double>(a, forced(kernel));
        CHECK(rig->plan().forward.find("16-bit columns for") != std::string::npos);
        CHECK(rig->plan().forward.find("for 100 %") == std::string::npos);  // both widths are in use
        check_products(*a, *rig);
        check_products(*a, *from_csr<float>(a, forced(kernel)));
    }
}
TEST_CASE("cuda spmv: narrow values") {
    LSMR_NEEDS_GPU();
    for (const ShapeCase& shape : shape_cases()) {
        CAPTURE(shape.name);
        const auto fp32 = with_exact_values(*shape.a, 24);
        check_products(*fp32, *from_csr<double>(fp32, forced("stream-128x1024+fp32")));
        const auto bf16 = with_exact_values(*shape.a, 8);
        check_products(*bf16, *from_csr<double>(bf16, forced("stream-128x2048+columns16+bf16")));
        check_products(*bf16, *from_csr<float>(bf16, forced("balanced-128x1024+bf16")));
    }
}
TEST_CASE("cuda spmv: panels") {
    LSMR_NEEDS_GPU();
    check_kernel<double>("stream-256x1024+panels3");
    check_kernel<float>("stream-128x1024+columns16+panels16");
    const auto a = mixed_spans();
    check_products(*a, *from_csr<double>(a, forced("stream-256x1024+columns16+panels4")));
}
TEST_CASE("cuda spmv: pieces added by atomics") {
    LSMR_NEEDS_GPU();
    check_kernel<double>("stream-128x1024+atomic");
    check_kernel<float>("balanced-128x1024+atomic");
}
// A block takes row after row, each as an item of its own or a warp each, from global memory: its threads may be a whole item apart, not two.
TEST_CASE("cuda spmv: blocks that meet nothing but long rows") {
    LSMR_NEEDS_GPU();
    constexpr std::int64_t kRows = 5600, kCols = 20000;
    HostBuffer<std::int64_t> offsets(kRows + 1);
    offsets[0] = 0;
    // Five of 700, then one of 1,500, of 4,500: warps side by side, blocks alone, and both in turn.
    for (std::int64_t i = 0; i < kRows; ++i) offsets[i + 1] = offsets[i] + (i % 7 < 5 ? 700 : i % 7 == 5 ? 1500 : 4500);
    HostBuffer<std::int32_t> columns(offsets[kRows]);
    HostBuffer<double> values(offsets[kRows]);
    const auto entries = random_vector(offsets[kRows], 63);
    for (std::int64_t i = 0; i < kRows; ++i) {
        for (std::int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
            columns[k] = static_cast<std::int32_t>((k - offsets[i]) * 4 + i % 4);
            values[k] = entries[static_cast<std::size_t>(k)];
        }
    }
    const auto a = std::make_shared<const CsrMatrix>(CsrMatrix::from_csr(kRows, kCols, std::move(offsets), std::move(columns), std::move(values)));
    for (const char* kernel : {"stream-128x1024", "stream-256x1024", "stream-128x1024+columns16", "merge-128x1024"}) {
        CAPTURE(kernel);
        check_products(*a, *from_csr<double>(a, forced(kernel)));
    }
}
TEST_CASE("cuda spmv: row kernels") {
    LSMR_NEEDS_GPU();
    for (int threads : {1, 4, 32, 256}) check_kernel<double>("rows-" + std::to_string(threads));
    check_kernel<float>("rows-8");
    // Rows of thousands of entries go in segments.
    std::vector<std::int64_t> lengths(70, 5000);
    for (std::size_t i = 3; i < lengths.size(); i += 9) lengths[i] = static_cast<std::int64_t>(i % 2);
    const auto a = matrix_with_rows(lengths, 9000, 82);
    const auto rig = from_csr<double>(a, forced("rows-32"));
    CHECK(rig->plan().forward.find("segments") != std::string::npos);
    check_products(*a, *rig);
    check_products(*a, *from_csr<float>(a, forced("rows-32")));
}
TEST_CASE("cuda spmv: non-finite x touches only the rows that use it") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(3000, 0, 30, 71), 500, 71);
    for (const char* kernel : {"stream-128x2048", "stream-256x1024+columns16", "balanced-128x1024", "merge-128x1024", "stream-128x1024+panels3", "rows-1", "rows-16"}) {
        CAPTURE(kernel);
        const auto rig = from_csr<double>(a, forced(kernel));
        auto x = random_vector(a->cols(), 72);
        x[3] = std::numeric_limits<double>::infinity();
        x[77] = std::numeric_limits<double>::quiet_NaN();
        std::vector<double> y(3000);
        rig->product(false, 1.0, x, 0.0, y);
        for (std::int64_t i = 0; i < 3000; ++i) {
            bool inf = false, nan = false;
            for (std::int64_t k = a->offsets()[i]; k < a->offsets()[i + 1]; ++k) {
                inf = inf || a->columns()[k] == 3;
                nan = nan || a->columns()[k] == 77;
            }
            const double value = y[static_cast<std::size_t>(i)];
            if (nan) REQUIRE(std::isnan(value));
            else if (inf) REQUIRE(std::isinf(value));
            else REQUIRE(std::isfinite(value));
        }
    }
}

TEST_SUITE_END();

TEST_CASE("cuda spmv: every other tuning") {
    LSMR_NEEDS_GPU();
    for (const char* shape : kShapes) {
        check_kernel<float>(std::string("stream-") + shape + "+columns16");
        check_kernel<double>(std::string("balanced-") + shape);
        check_kernel<float>(std::string("balanced-") + shape);
    }
    for (const char* kernel : {"merge-128x1024+columns16", "merge-256x1024+columns16", "merge-128x1024+panels4", "merge-256x1024"}) {
        check_kernel<double>(kernel);
        check_kernel<float>(kernel);
    }
    for (int threads : {1, 2, 4, 8, 16, 32, 128, 256, 512}) {
        check_kernel<double>("rows-" + std::to_string(threads));
        check_kernel<float>("rows-" + std::to_string(threads));
    }
    for (const char* kernel : {"cusparse-alg1", "cusparse-alg2"}) {
        check_kernel<double>(kernel);
        check_kernel<float>(kernel);
    }
}

TEST_CASE("cuda spmv: repeats of every fixed-order kernel are bit-identical") {
    LSMR_NEEDS_GPU();
    for (const char* kernel : {"stream-128x2048", "stream-128x1024+columns16", "stream-256x1024+panels4", "stream-256x2048", "merge-128x1024", "merge-256x1024", "balanced-128x2048",
                               "balanced-256x1024+columns16", "rows-1", "rows-8", "rows-32", "rows-256", "cusparse-alg2"}) {
        CAPTURE(kernel);
        suite_repeats<double>(from_csr<double>, forced(kernel), 20);
        suite_repeats<float>(from_csr<float>, forced(kernel), 20);
    }
    // Rows cut into many pieces, whose last one arrives at another time in every run.
    std::vector<std::int64_t> lengths(400, 3);
    for (std::size_t i = 5; i < lengths.size(); i += 40) lengths[i] = 150000;
    const auto a = matrix_with_rows(lengths, 200000, 73);
    const auto x = random_vector(200000, 74);
    for (const char* kernel : {"stream-128x1024", "merge-256x1024", "merge-128x1024", "balanced-128x1024", "rows-32"}) {
        const auto rig = from_csr<double>(a, forced(kernel));
        std::vector<double> first(400), y(400);
        const double squares = rig->product(false, 1.0, x, 0.0, first);
        check_product(*a, false, 1.0, x, 0.0, first, first, squares);
        for (int i = 0; i < 200; ++i) {
            REQUIRE(rig->product(false, 1.0, x, 0.0, y) == squares);
            REQUIRE(y == first);
        }
    }
}

TEST_CASE("cuda spmv: products are captured in global mode and replayed with new vectors") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(random_lengths(5000, 0, 60, 75), 3000, 75);
    for (const char* kernel : {"stream-128x2048+columns16", "balanced-128x1024", "merge-128x1024", "stream-256x1024+panels3", "rows-8", "rows-32", "cusparse-alg2"}) {
        CAPTURE(kernel);
        check_captured(*make_cuda_operator<double>(*a, shared_context(), forced(kernel)));
    }
}

TEST_CASE("cuda spmv: the choice is timed, said, repeated by force, and by rule where deterministic") {
    LSMR_NEEDS_GPU();
    const auto a = matrix_with_rows(std::vector<std::int64_t>(200000, 12), 90000, 78);
    const auto rig = from_csr<double>(a, {});
    for (const ProductDecision* decision : {&rig->plan().forward_decision, &rig->plan().adjoint_decision}) {
        REQUIRE(decision->choice);
        REQUIRE(decision->candidates.size() >= 2);
        double best = 1e9;
        for (const auto& candidate : decision->candidates) {
            if (candidate.seconds > 0) best = std::min(best, candidate.seconds);
        }
        for (const auto& candidate : decision->candidates) {
            if (candidate.kernel == text(*decision->choice)) CHECK(candidate.seconds == best);
        }
        CHECK(decision->reason.find("fastest of those timed") != std::string::npos);
        CHECK(decision->key.find("csr fp64") == 0);
    }
    OperatorOptions again;
    again.forward = rig->plan().forward_decision.choice;
    again.adjoint = rig->plan().adjoint_decision.choice;
    const auto replayed = from_csr<double>(a, again);
    CHECK(replayed->plan().forward == rig->plan().forward);
    const auto x = random_vector(90000, 79);
    std::vector<double> y(200000), z(200000);
    rig->product(false, 1.0, x, 0.0, y);
    replayed->product(false, 1.0, x, 0.0, z);
    CHECK(y == z);

    OperatorOptions by_rule;
    by_rule.deterministic = true;
    const auto first = from_csr<double>(a, by_rule);
    CHECK(first->plan().forward_decision.candidates.front().kernel == text(*first->plan().forward_decision.choice));
    for (const auto& candidate : first->plan().forward_decision.candidates) CHECK(candidate.seconds == 0);
    by_rule.forward = parse_spmv_choice("stream-128x1024+atomic");
    CHECK_THROWS_AS(from_csr<double>(a, by_rule), InputError);
}

TEST_CASE("cuda spmv: lossless forms are taken by themselves, and rounding only when asked for") {
    LSMR_NEEDS_GPU();
    const auto random = matrix_with_rows(std::vector<std::int64_t>(3000, 12), 900, 80);
    CHECK(from_csr<double>(random, {})->plan().forward.find("+columns16 (") != std::string::npos);
    const auto integers = with_exact_values(*random, 8);
    CHECK(from_csr<double>(integers, {})->plan().forward.find("+columns16+bf16 (") != std::string::npos);
    OperatorOptions options;
    options.narrow = NarrowKind::none;
    CHECK(from_csr<double>(integers, options)->plan().forward.find('+') == std::string::npos);
    options.narrow = NarrowKind::fp32_values;
    const auto rounded = from_csr<double>(random, options);
    REQUIRE(rounded->plan().notes.size() == 1);
    CHECK(rounded->plan().notes[0].find("rounded in storage") != std::string::npos);
    CHECK(from_csr<double>(integers, options)->plan().notes.empty());
    CHECK_THROWS_AS(from_csr<double>(random, forced("stream-128x2048+fp32")), InputError);
    CHECK_THROWS_AS(from_csr<float>(random, forced("stream-128x2048+bf16")), InputError);
    // The product is that of the rounded matrix, in fp64.
    check_products(*with_values(*random, [](double v) { return static_cast<double>(static_cast<float>(v)); }), *rounded);
}

TEST_CASE("cuda spmv: update puts another matrix in the place of A") {
    LSMR_NEEDS_GPU();
    CudaContext& context = shared_context();
    const auto a = matrix_with_rows(random_lengths(2000, 0, 20, 81), 700, 81);
    const auto values = with_values(*a, [](double v) { return v * 1.5 + 0.25; });
    const auto structure = matrix_with_rows(random_lengths(2000, 30, 90, 82), 700, 82);
    auto op = make_cuda_operator<double>(*a, context);
    CHECK(op->version() == 0);
    const std::string kernel = op->plan().forward;
    MatrixOperator<double>& same = *op;
    CudaRig<double> rig(std::move(op));
    check_products(*a, rig);
    same.update(values);
    CHECK(same.version() == 1);
    CHECK(same.plan().forward == kernel);
    check_products(*values, rig);  // with the workspace from before
    same.update(structure);
    CHECK(same.version() == 2);
    check_products(*structure, rig);
    CHECK_THROWS_AS(same.update(matrix_with_rows({1, 2}, 700, 83)), InputError);
    check_products(*structure, rig);
}

TEST_CASE("cuda spmv: an update without memory leaves no wrong matrix behind") {
    LSMR_NEEDS_GPU();
    CudaContext context(0, std::int64_t{8} << 20);
    const auto a = matrix_with_rows(random_lengths(2000, 0, 20, 84), 700, 84);
    const auto large = matrix_with_rows(std::vector<std::int64_t>(2000, 700), 700, 85);  // 16 MB, even in single storage
    const auto op = make_cuda_operator<double>(*a, context);
    CHECK_THROWS_AS(op->update(large), OutOfMemory);
    CHECK_THROWS_AS(op->make_workspace(&context), InputError);
    op->update(a);
    CHECK(op->make_workspace(&context) != nullptr);
}

TEST_CASE("cuda spmv: an update that fails between the two products leaves neither") {
    LSMR_NEEDS_GPU();
    const auto [diagonal, scattered] = diagonal_and_scattered();
    const std::int64_t n = diagonal->rows();
    OperatorOptions options;
    options.forward = parse_spmv_choice("rows-1");
    options.adjoint = parse_spmv_choice("dia");
    auto op = make_cuda_operator<double>(*diagonal, shared_context(), options);
    MatrixOperator<double>& same = *op;
    CudaRig<double> rig(std::move(op));
    check_products(*diagonal, rig);
    CHECK_THROWS_AS(same.update(scattered), InputError);  // A x has its kernel by then
    CHECK_THROWS_AS(same.make_workspace(&shared_context()), InputError);
    auto y = random_vector(n, 90);
    CHECK_THROWS_AS(rig.product(true, 1, random_vector(n, 91), 0.5, y, false), InputError);
    CHECK_THROWS_AS(rig.product(false, 1, random_vector(n, 91), 0.5, y, false), InputError);
    same.update(diagonal);
    check_products(*diagonal, rig);
}

TEST_CASE("cuda spmv: an update chooses anew where the kernel of before does not fit, though the key is the same") {
    LSMR_NEEDS_GPU();
    const BandPair pair = bands_of_one_key();
    OperatorOptions options;
    options.deterministic = true;  // the first candidate, which is that of the fewest bytes
    const auto op = make_cuda_operator<double>(*pair.band, shared_context(), options);
    const std::string key = op->plan().forward_decision.key;
    REQUIRE(op->plan().forward_decision.choice->kernel == SpmvKernel::dia);
    op->update(pair.spread);
    CHECK(op->plan().forward_decision.key == key);
    CHECK(op->plan().forward_decision.choice->kernel != SpmvKernel::dia);
    REQUIRE(!op->plan().forward_decision.candidates.empty());
    CHECK(op->plan().forward_decision.candidates[0].reason.find("dia: the entries lie on") != std::string::npos);
}

TEST_CASE("cuda spmv: offsets have 64 bits before a loop over a row can step past 2^31") {
    cuda::DeviceCsr<double> a;
    a.nnz = kMaxDimension - 2048;  // a block of 512 threads looks 4 entries ahead each
    CHECK(a.wide());
    a.nnz = kMaxDimension / 2;
    CHECK_FALSE(a.wide());
}

TEST_CASE("cuda spmv: cuSPARSE is timed where it has been loaded, and not loaded to be timed") {
    LSMR_NEEDS_GPU();
    std::vector<std::int64_t> lengths(300000, 4);
    lengths[1000] = 20000;  // makes it a candidate
    const auto a = matrix_with_rows(lengths, 30000, 31);
    CudaContext context;
    const auto of_cusparse = [&] {
        const auto made = make_cuda_operator<double>(*a, context, {});
        for (const ProductDecision::Timing& timing : made->plan().forward_decision.candidates) {
            if (timing.kernel == "cusparse-alg2") return timing;
        }
        return ProductDecision::Timing{};
    };
    const ProductDecision::Timing without = of_cusparse();
    CHECK(without.seconds == 0);
    CHECK(without.reason.find("loading cuSPARSE") != std::string::npos);
    CHECK_FALSE(context.has_cusparse());
    context.cusparse();
    CHECK(context.has_cusparse());
    const ProductDecision::Timing with = of_cusparse();
    CHECK(with.seconds > 0);
    CHECK(with.reason.find("loading cuSPARSE") == std::string::npos);
}
