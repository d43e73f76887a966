// Blocks, Blocked-ELL, diagonals and dense storage on the CPU.
#include <omp.h>

#include "cpu_rig.hpp"
#include "place_format_suite.hpp"
#include "memory/error.hpp"

using namespace lsmr;
using namespace lsmr::test::products;

namespace {

template <class T>
void check_format(const std::string& kernel, const std::vector<ShapeCase>& cases, Absent absent = Absent::skipped) {
    CAPTURE(kernel);
    suite_format<T>(make_rig<T>, forced(kernel), cases, absent);
}

}  // namespace

TEST_CASE("cpu place formats: blocks of every kind") {
    for (const char* kernel : {"bsr-1x1-columns", "bsr-2x2-blocks", "bsr-3x3-stream", "bsr-3x3-columns", "bsr-3x3-columns+rowmajor", "bsr-2x3-columns", "bsr-9x3-columns",
                               "bsr-3x9-columns+rowmajor", "bsr-5x7-columns", "bsr-8x8-blocks+rowmajor", "bell-4x4", "bell-16x16"}) {
        check_format<double>(kernel, small_cases());
        check_format<double>(kernel, block_cases(parse_spmv_choice(kernel)));
        check_format<float>(kernel, block_cases(parse_spmv_choice(kernel)));
        suite_long_rows<double>(make_rig<double>, forced(kernel));
        suite_long_rows<float>(make_rig<float>, forced(kernel));
    }
    check_format<float>("bsr-32x32-columns", block_cases(parse_spmv_choice("bsr-32x32-columns")));
    CHECK_THROWS_AS(make_rig<double>(block_matrix(3, 3, 5, 5, 3, 8, 1), forced("bsr-3x3-stream+fp32")), InputError);
}
TEST_CASE("cpu place formats: diagonals") {
    check_format<double>("dia", band_cases());
    check_format<float>("dia", band_cases());
    const auto many = matrix_with_rows(random_lengths(400, 1, 5, 3), 400, 3);
    CHECK_THROWS_WITH_AS(make_rig<double>(many, forced("dia")), doctest::Contains("at most 256 are stored"), InputError);
}
TEST_CASE("cpu place formats: dense") {
    check_format<double>("dense", small_cases(), Absent::zero);
    check_format<float>("dense", band_cases(), Absent::zero);
    const auto full = matrix_with_rows(std::vector<std::int64_t>(40, 33), 33, 4);
    check_format<double>("dense", {{"every place", full}});  // then nothing spreads
    CHECK(make_rig<double>(full, forced("dense"))->plan().forward.find("non-finite") == std::string::npos);
    CHECK(make_rig<double>(band_cases().back().a, forced("dense"))->plan().forward.find("non-finite x reaches all rows") != std::string::npos);
}
TEST_CASE("cpu place formats: the same bits for any number of threads, and a scaled copy") {
    const int threads = omp_get_max_threads();
    const auto blocks = block_matrix(3, 3, 4000, 1500, 9, 8, 5);
    const auto band = band_cases()[7].a;
    for (const char* kernel : {"bsr-3x3-columns", "bell-8x8", "dia", "dense"}) {
        CAPTURE(kernel);
        const auto a = std::string(kernel) == "dia" || std::string(kernel) == "dense" ? band : blocks;
        const auto x = random_vector(a->cols(), 6);
        std::vector<double> one(static_cast<std::size_t>(a->rows())), three(one.size()), scaled(one.size());
        omp_set_num_threads(1);
        const double squares = make_rig<double>(a, forced(kernel))->product(false, 1.0, x, 0.0, one, false);
        omp_set_num_threads(3);
        CHECK(make_rig<double>(a, forced(kernel))->product(false, 1.0, x, 0.0, three, false) == squares);
        omp_set_num_threads(threads);
        CHECK(one == three);
        OperatorOptions options = forced(kernel);
        options.exponent = -7;
        make_rig<double>(a, options)->product(false, 128.0, x, 0.0, scaled, false);
        CHECK(scaled == one);
    }
}
TEST_CASE("cpu place formats: one direction alone, single storage, and an update") {
    const auto a = block_matrix(3, 3, 50, 40, 6, 8, 8);
    OperatorOptions forward;
    forward.forward = parse_spmv_choice("bsr-3x3-columns");
    const auto rig = make_rig<double>(a, forward);
    CHECK(rig->plan().forward.find("bsr-3x3-columns") == 0);
    CHECK(rig->plan().adjoint.find("csr rows") != std::string::npos);
    forward.storage = StorageKind::single;
    const auto single = make_rig<double>(a, forward);
    for (Rig<double>* each : {rig.get(), single.get()}) {
        for (const bool adjoint : {false, true}) {
            const auto x = random_vector(adjoint ? a->rows() : a->cols(), 9);
            std::vector<double> y(static_cast<std::size_t>(adjoint ? a->cols() : a->rows()));
            const double squares = each->product(adjoint, 1.0, x, 0.0, y, false);
            check_product(*a, adjoint, 1.0, x, 0.0, y, y, squares);
        }
    }
    OperatorOptions both = forced("bsr-3x3-columns");
    both.storage = StorageKind::single;
    CHECK_THROWS_AS(make_rig<double>(a, both), InputError);
    both.storage = StorageKind::automatic;
    auto op = make_cpu_operator<double>(a, both);
    const auto other = with_values(*a, [](double v) { return 3 * v; });
    op->update(other);
    CpuRig<double> updated(std::move(op));
    const auto x = random_vector(a->cols(), 10);
    std::vector<double> y(static_cast<std::size_t>(a->rows()));
    const double squares = updated.product(false, 1.0, x, 0.0, y, false);
    check_product(*other, false, 1.0, x, 0.0, y, y, squares);
}
