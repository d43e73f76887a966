// The plan of the window kernel: pure functions, so no GPU is needed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "memory/error.hpp"
#include "operator/cuda/window_plan.hpp"
#include "operator/dispatch.hpp"

using namespace lsmr;
using namespace lsmr::cuda;

namespace {

constexpr std::int64_t kRoom = std::int64_t{226} << 10;

DispatchKey scattered_key(std::int64_t rows, std::int64_t cols, std::int64_t nnz, VectorType type) {
    DispatchKey key;
    key.type = type;
    key.rows = rows;
    key.cols = cols;
    key.nnz = nnz;
    key.average = static_cast<double>(nnz) / static_cast<double>(rows);
    key.longest = static_cast<std::int64_t>(2 * key.average);
    key.scattered = 0.95;
    return key;
}

}  // namespace

TEST_CASE("window plan: a shape covers the matrix and fits into shared memory") {
    for (int bytes : {8, 4}) {
        for (const std::int64_t rows : {0, 1, 31, 33, 5000, 400'000, 30'000'000}) {
            for (const std::int64_t cols : {0, 1, 9, 4000, 1'000'000}) {
                for (const std::int32_t most : {0, 8, 4096}) {
                    CAPTURE(bytes);
                    CAPTURE(rows);
                    CAPTURE(cols);
                    CAPTURE(most);
                    const WindowShape shape = choose_window_shape(rows, cols, 50 * rows, bytes, most, kRoom, 132);
                    REQUIRE(shape.panels >= 1);
                    CHECK(std::int64_t{shape.panels} * shape.panel_rows >= rows);
                    CHECK(std::int64_t{shape.windows} * shape.width >= cols);
                    CHECK(shape.width % 8 == 0);
                    CHECK(shape.width <= (most > 0 ? most : kWidestWindow));
                    CHECK((std::int64_t{shape.width} + kWindowPlaces + shape.panel_rows) * bytes <= kRoom);
                }
            }
        }
    }
    CHECK(choose_window_shape(1000, 1000, 5000, 8, 0, 256, 132).panels == 0);
    // Every row has one place.
    const WindowShape shape = choose_window_shape(10'000, 50'000, 1'000'000, 8, 0, kRoom, 132);
    std::set<std::int64_t> rows;
    for (std::int32_t p = 0; p < shape.panels; ++p) {
        for (std::int32_t r = 0; r < shape.panel_rows; ++r) CHECK(rows.insert(window_row(shape.panels, p, r)).second);
    }
    for (std::int64_t i = 0; i < 10'000; ++i) CHECK(rows.count(i) == 1);
}

TEST_CASE("window plan: cells in turn, shares side by side, sums left once for each block and panel") {
    constexpr int kWarps = 4;
    for (const int blocks : {1, 3, 7, 40}) {
        CAPTURE(blocks);
        WindowPlan plan;
        plan.shape = {5, 6, 16, 64};
        std::vector<WindowCount> counts(5 * 6 * kWarps);
        std::int64_t steps = 0, slices = 0, filled = 0;
        for (int cell = 0; cell < 30; ++cell) {
            const bool empty = cell % 7 == 3 || (cell >= 12 && cell < 18);  // panel 2 has no entries
            for (int w = 0; w < kWarps && !empty; ++w) {
                WindowCount& count = counts[static_cast<std::size_t>(cell * kWarps + w)];
                count = {1 + (cell * 5 + w * 3) % 9, 1 + w % 2};
                steps += count.steps;
                slices += count.slices;
            }
            filled += empty ? 0 : 1;
        }
        deal_window_cells(counts, kWarps, 90, blocks, plan);
        CHECK(plan.steps == steps);
        CHECK(plan.slices == slices);
        REQUIRE(static_cast<std::int64_t>(plan.cells.size()) == filled);
        REQUIRE(plan.shares.size() == plan.cells.size() * kWarps);
        std::int64_t step = 0, group = 0, row_group = 0;
        for (std::size_t s = 0; s < plan.shares.size(); ++s) {
            const auto number = static_cast<std::size_t>(plan.numbers[s / kWarps]);
            CHECK(plan.shares[s].step == step);
            CHECK(plan.shares[s].group == group);
            CHECK(plan.shares[s].row_group == row_group);
            CHECK(plan.shares[s].steps == counts[number * kWarps + s % kWarps].steps);
            step += plan.shares[s].steps;
            group += (plan.shares[s].steps + 3) / 4;
            row_group += (counts[number * kWarps + s % kWarps].slices + 3) / 4;
        }
        CHECK(plan.groups == group);
        CHECK(plan.row_groups == row_group);
        CHECK(plan.block_first.front() == 0);
        CHECK(plan.block_first.back() == filled);
        CHECK(std::is_sorted(plan.block_first.begin(), plan.block_first.end()));
        // Each block leaves the sums of every panel it works at, after its last cell there, at places that go by panels.
        std::int32_t leaves = 0;
        std::vector<int> of_panel(5, 0);
        for (std::size_t b = 0; b + 1 < plan.block_first.size(); ++b) {
            for (std::int32_t c = plan.block_first[b]; c < plan.block_first[b + 1]; ++c) {
                const WindowCell& cell = plan.cells[static_cast<std::size_t>(c)];
                CHECK(cell.panel == plan.numbers[static_cast<std::size_t>(c)] / 6);
                CHECK(cell.first_column == plan.numbers[static_cast<std::size_t>(c)] % 6 * 16);
                CHECK(cell.width == (cell.first_column == 80 ? 10 : 16));
                const bool last = c + 1 == plan.block_first[b + 1] || plan.cells[static_cast<std::size_t>(c) + 1].panel != cell.panel;
                CHECK(cell.leave == (last ? leaves : -1));
                if (!last) continue;
                CHECK(leaves >= plan.panel_leaves[static_cast<std::size_t>(cell.panel)]);
                CHECK(leaves < plan.panel_leaves[static_cast<std::size_t>(cell.panel) + 1]);
                ++leaves;
                ++of_panel[static_cast<std::size_t>(cell.panel)];
            }
        }
        CHECK(plan.panel_leaves.back() == leaves);
        CHECK(of_panel[2] == 0);
        CHECK_FALSE(plan.direct);  // panel 2 is left by no one
    }
    // One block for each panel: sums are complete.
    WindowPlan plan;
    plan.shape = {4, 2, 8, 32};
    deal_window_cells(std::vector<WindowCount>(4 * 2 * kWarps, WindowCount{3, 1}), kWarps, 16, 4, plan);
    CHECK(plan.direct);
    WindowPlan none;
    none.shape = {4, 2, 8, 32};
    deal_window_cells(std::vector<WindowCount>(4 * 2 * kWarps), kWarps, 16, 4, none);
    CHECK(none.cells.empty());
    CHECK(none.block_first.size() == 1);
    CHECK_FALSE(none.direct);
}

TEST_CASE("window kernel: proposed first where rows are long for the width of scattered columns") {
    const auto names = [](const DispatchKey& key) {
        std::vector<std::string> kernels;
        for (const Candidate& candidate : spmv_candidates(key, 0)) kernels.push_back(text(candidate.choice));
        return kernels;
    };
    const auto proposes = [&](const DispatchKey& key) {
        const auto kernels = names(key);
        const auto at = std::find(kernels.begin(), kernels.end(), "window");
        if (at != kernels.end()) CHECK(at == kernels.begin());
        CHECK(kernels.size() <= 4);
        return at != kernels.end();
    };
    for (const VectorType type : {VectorType::fp64, VectorType::fp32}) {
        CHECK(proposes(scattered_key(400'000, 1'000'000, 66'700'000, type)));
        CHECK(proposes(scattered_key(1'000'000, 400'000, 66'700'000, type)));
        CHECK_FALSE(proposes(scattered_key(8'000'000, 2'000'000, 64'000'000, type)));
        CHECK_FALSE(proposes(scattered_key(2'000'000, 8'000'000, 64'000'000, type)));
    }
    DispatchKey key = scattered_key(400'000, 1'000'000, 66'700'000, VectorType::fp64);
    key.exact = ValueForm::fp32;
    CHECK(names(key).front() == "window+fp32");
    CHECK_FALSE(proposes(scattered_key(40'000, 100'000, 6'670'000, VectorType::fp64)));  // too few entries
    key.sorted_columns = false;
    CHECK_FALSE(proposes(key));
    key.sorted_columns = true;
    key.scattered = 0.2;
    CHECK_FALSE(proposes(key));
    CHECK(predict_window(key).gain == 0);
}

TEST_CASE("window kernel: its text") {
    for (const char* words : {"window", "window-8", "window-4096", "window-32760", "window+fp32", "window-64+bf16"}) {
        const SpmvChoice choice = parse_spmv_choice(words);
        CHECK(choice.kernel == SpmvKernel::window);
        CHECK(text(choice) == words);
        CHECK(is_deterministic(choice));
        CHECK(takes_narrow_values(choice));
        CHECK_FALSE(takes_narrow_columns(choice));
    }
    for (const char* words : {"window-", "window-0", "window-12", "window-32768", "window-x", "window+columns16", "window+panels2", "window+atomic"}) {
        CAPTURE(words);
        CHECK_THROWS_AS(parse_spmv_choice(words), InputError);
    }
}
