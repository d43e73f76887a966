// The choice of a kernel and the plan of the stream kernel: pure functions, so no GPU is needed.
#include <doctest/doctest.h>

#include <numeric>
#include <random>

#include "memory/error.hpp"
#include "operator/cuda/block_plan.hpp"
#include "operator/cuda/stream_plan.hpp"
#include "operator/dispatch.hpp"
#include "operator_suite.hpp"

using namespace lsmr;
using namespace lsmr::test::products;

TEST_CASE("spmv choice: the text of every choice is read back") {
    std::vector<SpmvChoice> choices;
    for (int threads : {1, 2, 4, 8, 16, 32, 128, 256, 512}) {
        SpmvChoice choice;
        choice.kernel = SpmvKernel::rows;
        choice.threads = threads;
        choices.push_back(choice);
    }
    for (SpmvKernel kernel : {SpmvKernel::stream, SpmvKernel::balanced, SpmvKernel::merge}) {
        for (int panels : {1, 2, 16}) {
            for (ValueForm values : {ValueForm::as_vectors, ValueForm::fp32, ValueForm::bf16}) {
                if (kernel == SpmvKernel::merge && values != ValueForm::as_vectors) continue;
                for (int bits = 0; bits < 4; ++bits) choices.push_back({kernel, 256, 1024, bits % 2 == 1, values, panels, bits / 2 == 1});
            }
        }
    }
    for (SpmvKernel kernel : {SpmvKernel::cusparse_alg1, SpmvKernel::cusparse_alg2, SpmvKernel::cusparse_transposed}) {
        SpmvChoice choice;
        choice.kernel = kernel;
        choices.push_back(choice);
    }
    for (SpmvKernel kernel : {SpmvKernel::sell, SpmvKernel::ell, SpmvKernel::hyb, SpmvKernel::coo}) {
        for (ValueForm values : {ValueForm::as_vectors, ValueForm::fp32, ValueForm::bf16}) {
            for (int parameter : {0, 32, 64}) {
                SpmvChoice choice;
                choice.kernel = kernel;
                choice.values = values;
                if (kernel == SpmvKernel::sell && parameter > 0) choice.sigma = 32 * parameter;
                if (kernel == SpmvKernel::hyb) choice.quantile = parameter;
                choice.narrow_columns = kernel == SpmvKernel::sell && parameter == 64;
                choice.atomic = kernel == SpmvKernel::coo && parameter == 64;
                choices.push_back(choice);
            }
        }
    }
    for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 3}, {2, 3}, {9, 3}, {8, 8}, {32, 32}, {5, 31}}) {
        for (BlockMapping mapping : {BlockMapping::stream, BlockMapping::columns, BlockMapping::blocks}) {
            for (int form = 0; form < 3; ++form) {
                SpmvChoice choice;
                choice.kernel = SpmvKernel::bsr;
                choice.block_rows = rows;
                choice.block_cols = cols;
                choice.mapping = mapping;
                if (mapping == BlockMapping::stream) choice.values = static_cast<ValueForm>(form);
                else choice.order = form == 0 ? BlockOrder::column_major : BlockOrder::row_major;
                if (mapping == BlockMapping::blocks && !is_power_square(choice)) continue;
                choices.push_back(choice);
            }
        }
    }
    for (const char* words : {"bsr-3x3-stream", "bsr-5x31-stream+bf16", "bsr-3x3-columns", "bsr-4x4-blocks", "bsr-9x3-columns+rowmajor", "bsr-2x2-blocks+rowmajor",
                              "bsr-6x6-stream+fp32", "bell-16x16",
                              "bell-1x1", "dia", "dense", "cusparse-bsr-3x3"}) {
        CAPTURE(words);
        choices.push_back(parse_spmv_choice(words));
        CHECK(text(choices.back()) == words);
    }
    for (const SpmvChoice& choice : choices) {
        CAPTURE(text(choice));
        const SpmvChoice back = parse_spmv_choice(text(choice));
        CHECK(text(back) == text(choice));
        if (is_staged(choice) || is_format(choice)) CHECK(back == choice);
    }
    CHECK(text(choices[4]) == "rows-16");
    CHECK(text({SpmvKernel::stream, 128, 2048, true, ValueForm::bf16, 4, true}) == "stream-128x2048+columns16+bf16+panels4+atomic");
    for (const char* bad : {"", "rows", "rows-3", "rows-32x", "stream", "stream-128", "stream-128x", "stream-64x1024", "stream-128x512", "stream-128x2048+",
                            "sell", "sell-32-1", "sell-32-33", "sell-32-131072", "sell-64", "ell+columns16", "coo+columns16", "ell+atomic", "sell-32+atomic",
                            "hyb-q0", "hyb-q101", "hyb95", "coo+panels2", "ell-32", "coo+fp32+bf16", "stream-128x2048+panels1", "stream-128x2048+panels17",
                            "stream-128x2048+fp32+bf16", "cusparse", "Stream-128x2048", "products-256x2048", "merge-128x1024+bf16", "merge-128x2048", "merge-512x1024", "cusparse-alg1+fp32", "rows-32+columns16",
                            "stream-128x2048+rowmajor", "coo+panels1",
                            "bsr", "bsr-3x3", "bsr-3x-columns", "bsr-0x3-columns", "bsr-33x3-columns", "bsr-3x3-blocks", "bsr-4x2-blocks", "bsr-4x4-blocks+",
                            "bsr-4x4-columns+fp32+rowmajor", "bsr-3x3-columns+columns16", "bsr-3x3-stream+rowmajor", "bsr-3x3-columns+fp32", "bsr-33x3-stream", "bell", "bell-3x3", "bell-16x8", "bell-16x16+fp32", "bell-16x16+rowmajor",
                            "dia-3", "dense+fp32", "cusparse-bsr", "cusparse-bsr-3x3-columns"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(parse_spmv_choice(bad), InputError);
    }
    CHECK(text(parse_format("sell")) == "sell-32-1024");
    for (const char* words : {"hyb-q95+bf16", "bsr-3x3-stream+fp32", "bell-8x8", "dia", "dense"}) CHECK(text(parse_format(words)) == words);
    for (const char* bad : {"", "csr", "stream-128x2048", "rows-4", "sell-33", "bsr", "cusparse-bsr-3x3"}) CHECK_THROWS_AS(parse_format(bad), InputError);
}

TEST_CASE("spmv choice: which bits vary") {
    CHECK(is_deterministic(parse_spmv_choice("stream-128x2048")));
    CHECK(is_deterministic(parse_spmv_choice("cusparse-alg2")));
    CHECK_FALSE(is_deterministic(parse_spmv_choice("cusparse-alg1")));
    CHECK_FALSE(is_deterministic(parse_spmv_choice("cusparse-transposed")));
    CHECK_FALSE(is_deterministic(parse_spmv_choice("balanced-128x1024+atomic")));
    for (const char* format : {"sell-32", "ell", "hyb", "coo"}) CHECK(is_deterministic(parse_spmv_choice(format)));
    CHECK_FALSE(is_deterministic(parse_spmv_choice("hyb+atomic")));
    CHECK_FALSE(is_deterministic(parse_spmv_choice("coo+atomic")));
    CHECK_FALSE(is_deterministic(parse_spmv_choice("cusparse-bsr-3x3")));
    for (const char* own : {"bsr-3x3-stream", "bsr-3x3-columns", "bsr-4x4-blocks", "bell-8x8", "dia", "dense"}) CHECK(is_deterministic(parse_spmv_choice(own)));
}

namespace {

DispatchKey key_of(const CsrMatrix& a, VectorType type) { return make_dispatch_key(profile_orientation(a), type, 90); }

}  // namespace

TEST_CASE("dispatch: keys compare and print") {
    const auto a = matrix_with_rows(random_lengths(1000, 0, 9, 1), 300, 1);
    const DispatchKey key = key_of(*a, VectorType::fp64);
    CHECK(key == key_of(*a, VectorType::fp64));
    CHECK(key != key_of(*a, VectorType::fp32));
    CHECK(key != key_of(*matrix_with_rows(random_lengths(1000, 0, 9, 2), 300, 1), VectorType::fp64));
    CHECK(text(key) == text(key_of(*a, VectorType::fp64)));
    CHECK(text(key).find("csr fp64 offsets32 1000x300 N=1") == 0);
    CHECK(key.narrow == 1.0);  // 300 columns fit in 16 bits
}

TEST_CASE("dispatch: local rows take large items, scattered ones small items, scattered gathers from much of x panels") {
    DispatchKey key;
    key.rows = key.cols = 3000000;
    key.nnz = 81000000;
    key.average = 27;
    key.p95 = key.p99 = key.longest = 27;
    key.scattered = 0.05;
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-128x2048");
    key.scattered = 0.95;
    key.cols = 1000000;  // 8 MB of x
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-256x2048");
    key.cols = 8000000;  // 64 MB
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-256x1024+panels4");
    key.type = VectorType::fp32;
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-256x1024+panels2");
    // Few products: a conversion would not pay.
    CHECK(text(spmv_candidates(key, kProductsForPanels - 1).front().choice) == "stream-256x2048");
    CHECK(text(spmv_candidates(key, kProductsForPanels).front().choice) == "stream-256x1024+panels2");
    // Short rows would fall apart into pieces of one or two entries.
    key.average = 3;
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-256x2048");
    // Uneven rows have cuSPARSE among the candidates, after our kernels that do not mind.
    key.longest = 100000;
    const auto words = [&] {
        std::string all;
        for (const Candidate& candidate : spmv_candidates(key, 0)) all += text(candidate.choice) + " ";
        return all;
    };
    CHECK(words() == "stream-256x2048 balanced-256x2048 merge-256x1024 cusparse-alg2 ");
    key.scattered = 0.05;
    key.variation = 3;
    CHECK(words() == "stream-128x1024 stream-256x2048 merge-128x1024 cusparse-alg2 ");
    // Long rows of like length.
    key.scattered = 0.95;
    key.variation = 0.1;
    key.average = 5000;
    key.longest = 5200;
    key.cols = 500000;
    CHECK(words() == "window stream-256x2048 rows-32 balanced-256x2048 ");
}

TEST_CASE("dispatch: SELL is proposed where its bytes promise 8 % and the products pay for it, sorted where that saves places") {
    DispatchKey key;
    key.rows = key.cols = 3000000;
    key.nnz = 12000000;
    key.average = 4;
    key.longest = 5;
    key.scattered = 0.05;
    const auto sell = [&](std::int64_t expected) -> std::string {
        for (const Candidate& candidate : spmv_candidates(key, expected)) {
            if (candidate.choice.kernel == SpmvKernel::sell) return text(candidate.choice);
        }
        return "";
    };
    CHECK(sell(0).empty());  // places not known
    key.sell_places = 1.01;
    key.sell_sorted_places = 1.0;
    CHECK(sell(0) == "sell-32");
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-128x2048");  // the rule without timing keeps CSR
    CHECK(sell(kProductsForFormats) == "sell-32");
    CHECK(sell(kProductsForFormats - 1).empty());
    key.sell_places = 1.5;
    CHECK(sell(0) == "sell-32-1024");
    key.narrow = 1;
    key.exact = ValueForm::bf16;
    CHECK(sell(0) == "sell-32-1024+columns16+bf16");
    // 12 of 36 M bytes are padding: no gain is left.
    key.sell_sorted_places = 1.4;
    CHECK(sell(0).empty());
    CHECK(predict_sell(key).gain < kLeastFormatGain);
    key.sell_places = key.sell_sorted_places = 1;
    CHECK(predict_sell(key).gain > kLeastFormatGain);
    // By hand: (12 nnz + 4 m + 24 m) / 0.82 over (12 nnz + m / 8 + 24 m) / 0.95.
    CHECK(predict_sell(key).gain == doctest::Approx((12 * 4 + 28) / 0.82 / ((12 * 4 + 0.125 + 24) / 0.95)));
    key.average = 27;
    key.nnz = 81000000;
    CHECK(sell(0).empty());  // CSR is as near to the copy
    key.average = 4;
    key.scattered = 0.9;
    CHECK(sell(0).empty());
    // Of a matrix: rows of equal lengths need no sorting, unlike ones do.
    const DispatchKey even = key_of(*matrix_with_rows(std::vector<std::int64_t>(640, 5), 300, 1), VectorType::fp64);
    CHECK(even.sell_places == 1);
    CHECK(even.sell_sorted_places == 1);
    std::vector<std::int64_t> lengths(640, 1);
    for (std::size_t i = 0; i < lengths.size(); i += 32) lengths[i] = 9;
    const DispatchKey uneven = key_of(*matrix_with_rows(lengths, 300, 1), VectorType::fp64);
    CHECK(uneven.sell_places == doctest::Approx(9 * 32 / 40.0));
    CHECK(uneven.sell_sorted_places == doctest::Approx(32.0 * (9 + 19) / (20 * 40)));
}

namespace {

DispatchKey fem_key(double fill) {
    DispatchKey key;
    key.rows = key.cols = 1000000;
    key.nnz = 72000000;
    key.average = 72;
    key.p95 = key.p99 = key.longest = 81;
    key.scattered = 0.05;
    key.narrow = 0;
    key.block_rows = key.block_cols = 3;
    key.block_fill = fill;
    return key;
}

}  // namespace

TEST_CASE("dispatch: offsets have 64 bits before a loop over a row can step past 2^31") {
    OrientationProfile profile;
    profile.rows = profile.cols = 1000000;
    profile.nnz = kMaxDimension - 2048;
    CHECK(make_dispatch_key(profile, VectorType::fp64, 90).index_bits == 64);
    profile.nnz = kMaxDimension / 2;
    CHECK(make_dispatch_key(profile, VectorType::fp64, 90).index_bits == 32);
}

TEST_CASE("dispatch: what the row before gathered is near only where rows are short") {
    OrientationProfile profile;
    profile.rows = 1600;
    profile.cols = 3820000;
    profile.sectors_fp64 = profile.sectors_fp32 = 0.9;
    profile.similarity = 0.75;
    profile.average = 16;
    CHECK(make_dispatch_key(profile, VectorType::fp64, 90).scattered == doctest::Approx(0.225));
    profile.average = 38200;  // L1 has long lost the beginning of the row
    CHECK(make_dispatch_key(profile, VectorType::fp64, 90).scattered == doctest::Approx(0.9));
}

TEST_CASE("dispatch: blocks are taken where they save bytes over the narrowest CSR") {
    const auto taken = [](const DispatchKey& key, std::int64_t expected = 0) { return text(spmv_candidates(key, expected).front().choice); };
    DispatchKey key = fem_key(1);
    CHECK(taken(key) == "bsr-3x3-stream");
    CHECK(spmv_candidates(key, 0)[0].reason.find("3x3") != std::string::npos);
    CHECK(spmv_candidates(key, 0)[1].choice.kernel == SpmvKernel::stream);  // timed beside them
    CHECK(taken(key, kProductsForFormats) == "bsr-3x3-stream");
    CHECK(taken(key, kProductsForFormats - 1) == "stream-128x2048");
    // 8.44 bytes a place against 12 an entry: 1.42 places an entry would be as many bytes, 1.30 are 8 % less.
    CHECK(taken(fem_key(1 / 1.25)) == "bsr-3x3-stream");
    CHECK(taken(fem_key(1 / 1.35)) == "stream-128x2048");
    // Against 10 bytes, with 16-bit columns, only nearly full blocks pay.
    key.narrow = 1;
    CHECK(taken(key) == "bsr-3x3-stream");
    key.block_fill = 0.9;
    CHECK(taken(key) == "stream-128x2048+columns16");
    // fp32: 4.44 against 8.
    key.type = VectorType::fp32;
    key.narrow = 0;
    key.block_fill = 0.7;
    CHECK(taken(key) == "bsr-3x3-stream");
    // Values that bf16 holds are stored so in both.
    key.exact = ValueForm::bf16;
    key.block_fill = 1;
    CHECK(taken(key) == "bsr-3x3-stream+bf16");
    key = fem_key(1);
    key.longest = 500000;  // is cut
    CHECK(taken(key) == "bsr-3x3-stream");
    key = fem_key(0);
    CHECK(taken(key) == "stream-128x2048");
}

TEST_CASE("dispatch: diagonals and dense storage") {
    DispatchKey key;
    key.rows = key.cols = 1000000;
    key.nnz = 4999000;
    key.average = 5;
    key.longest = 5;
    key.narrow = 0;
    key.diagonals = 5;
    CHECK(text(spmv_candidates(key, 0).front().choice) == "dia");
    key.diagonals = 8;  // 64 bytes a row against 64: no gain
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-128x2048");
    key.diagonals = kDiagonalCap + 1;
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-128x2048");
    key.diagonals = 5;
    key.rows = key.cols = 100000;  // launches decide, not bytes
    key.nnz = 499900;
    CHECK(text(spmv_candidates(key, 0).front().choice) == "stream-128x2048");

    DispatchKey full;
    full.rows = 4000;
    full.cols = 3000;
    full.nnz = full.rows * full.cols;
    full.average = 3000;
    full.longest = 3000;
    full.narrow = 1;
    CHECK(text(spmv_candidates(full, 0).front().choice) == "dense");
    full.nnz -= 1;  // a place without an entry
    CHECK(text(spmv_candidates(full, 0).front().choice) != "dense");
}

TEST_CASE("dispatch: the key names the blocks that need the fewest bytes") {
    const auto blocks = [](std::int64_t block_rows, std::int64_t block_cols, std::int64_t count) {
        std::vector<std::int64_t> rows, columns;
        for (std::int64_t i = 0; i < count; ++i) {
            for (std::int64_t step : {0, 7, 19}) {
                for (std::int64_t r = 0; r < block_rows; ++r) {
                    for (std::int64_t c = 0; c < block_cols; ++c) {
                        rows.push_back(i * block_rows + r);
                        columns.push_back((i + step) % count * block_cols + c);
                    }
                }
            }
        }
        return share(CsrMatrix::from_coo(count * block_rows, count * block_cols, rows, columns, random_vector(static_cast<std::int64_t>(rows.size()), 4)));
    };
    for (const auto& [rows, cols] : {std::pair{3, 3}, {6, 6}, {9, 3}, {3, 9}, {2, 3}, {16, 16}}) {
        const DispatchKey key = key_of(*blocks(rows, cols, 64), VectorType::fp64);
        CHECK(key.block_rows == rows);
        CHECK(key.block_cols == cols);
        CHECK(key.block_fill == 1);
    }
    const DispatchKey none = key_of(*matrix_with_rows(random_lengths(1000, 0, 9, 1), 3000, 1), VectorType::fp64);
    CHECK(none.block_fill == 0);
    const DispatchKey band = key_of(*blocks(1, 1, 500), VectorType::fp64);
    CHECK(band.diagonals == 5);  // two of the three wrap around
}

TEST_CASE("block plan: teams of lanes fit in a warp, whatever the block") {
    using cuda::block_groups;
    for (BlockMapping mapping : {BlockMapping::columns, BlockMapping::blocks}) {
        for (int lanes = 1; lanes <= 32; ++lanes) {
            if (mapping == BlockMapping::blocks && (lanes & (lanes - 1)) != 0) continue;
            for (double units : {0.0, 1.0, 3.0, 8.5, 40.0, 81.0, 1e6}) {
                const int groups = block_groups(lanes, units, mapping);
                REQUIRE(groups >= 1);
                REQUIRE(groups * lanes <= 32);
                if (mapping == BlockMapping::blocks) REQUIRE((groups & (groups - 1)) == 0);
                // One more would leave room for fewer teams.
                else REQUIRE(32 / lanes / (groups + 1) < 32 / lanes / groups);
            }
        }
    }
    CHECK(block_groups(3, 81, BlockMapping::columns) == 10);  // a warp a block row of 27 blocks of 3x3
    CHECK(block_groups(3, 21, BlockMapping::columns) == 2);   // five block rows of 7 blocks
    CHECK(block_groups(1, 4, BlockMapping::blocks) == 1);
    CHECK(cuda::block_unit_lanes(6, 6, BlockMapping::columns, BlockOrder::column_major, 8) == 3);
    CHECK(cuda::block_unit_lanes(6, 6, BlockMapping::columns, BlockOrder::row_major, 8) == 6);
    CHECK(cuda::block_unit_lanes(4, 4, BlockMapping::blocks, BlockOrder::row_major, 4) == 4);
    CHECK(cuda::block_unit_lanes(32, 32, BlockMapping::blocks, BlockOrder::row_major, 8) == 32);
}

TEST_CASE("block plan: shapes of the mapping by items") {
    for (int rows = 1; rows <= kLargestBlockSide; ++rows) {
        for (int cols = 1; cols <= kLargestBlockSide; ++cols) {
            for (int bytes : {2, 4, 8}) {
                const cuda::BlockStreamShape shape = cuda::block_stream_shape(rows, cols, bytes);
                REQUIRE(shape.block_rows == rows);
                REQUIRE(shape.packs() * shape.pack == rows);
                const bool known = shape.beside == 1 || shape.beside == shape.packs();
                REQUIRE(known);
                const int teams = shape.beside << shape.largest_team();
                REQUIRE(teams <= 32);  // the threads of a block row's teams lie in a warp
                // Packs are loaded whole from places that are multiples of them.
                if (shape.pack * bytes % 16 == 0 || shape.pack * bytes % 8 == 0) REQUIRE(rows * cols % shape.pack == 0);
                REQUIRE(cuda::block_stream_capacity(rows, cols, bytes, 1 << 30) >= 1);
                REQUIRE(cuda::block_stream_capacity(rows, cols, bytes, 4000) <= 65535);
            }
        }
    }
    CHECK(cuda::block_stream_shape(3, 3, 8).pack == 3);
    CHECK(cuda::block_stream_shape(6, 6, 8).pack == 2);
    CHECK(cuda::block_stream_shape(16, 16, 8).beside == 8);
    CHECK(cuda::block_stream_capacity(3, 3, 8, 27) == 215);
    CHECK(cuda::block_stream_capacity(9, 9, 8, 27) == 27);  // a whole block row, of 17.6 KB
    CHECK(cuda::block_stream_capacity(9, 9, 8, 100) == 25);
    CHECK(cuda::block_stream_shape(10, 10, 8).pack == 1);  // the general kernel
}

TEST_CASE("block plan: items cover every block once, in order, and long block rows are cut") {
    std::vector<std::int64_t> offsets{0};
    for (std::int64_t row = 0; row < 500; ++row) offsets.push_back(offsets.back() + (row % 9 == 4 ? 0 : row == 77 ? 1000 : row == 499 ? 40 : row % 30));
    const std::int64_t count = static_cast<std::int64_t>(offsets.size()) - 1;
    for (const auto& [rows, cols] : {std::pair{3, 3}, {6, 6}, {2, 3}, {1, 1}, {16, 16}, {10, 4}}) {
        const cuda::BlockStreamShape shape = cuda::block_stream_shape(rows, cols, 8);
        for (std::int64_t capacity : {1, 7, 64, 215, 4000}) {
            CAPTURE(rows);
            CAPTURE(capacity);
            const std::int64_t matrix_rows = count * rows - (rows > 1 ? 1 : 0);
            const cuda::BlockPlan plan = cuda::make_block_plan(matrix_rows, count, offsets.data(), shape, capacity);
            std::int64_t block = 0, row = 0, sums = 0;
            for (const cuda::BlockItem& item : plan.items) {
                REQUIRE(item.begin == block);
                REQUIRE(item.count <= capacity);
                REQUIRE(item.team <= shape.largest_team());
                REQUIRE(item.first_row == row);
                if (item.pieces > 0) {
                    const std::int64_t last = offsets[static_cast<std::size_t>(row) + 1];
                    REQUIRE(item.rows == 1);
                    REQUIRE(offsets[static_cast<std::size_t>(row) + 1] - offsets[static_cast<std::size_t>(row)] > capacity);
                    REQUIRE(item.piece >= sums);
                    if (item.begin + item.count == last) {
                        sums += std::int64_t{item.pieces} * rows;
                        REQUIRE(item.piece + (rows - 1) * item.pieces == sums - 1);  // the last row's last piece
                        ++row;
                    }
                } else {
                    for (int r = 0; r < item.rows; ++r, ++row) {
                        REQUIRE(plan.starts[static_cast<std::size_t>(row)] == offsets[static_cast<std::size_t>(row)] - item.begin);
                    }
                    REQUIRE(item.begin + item.count == offsets[static_cast<std::size_t>(row)]);
                }
                block += item.count;
            }
            CHECK(row == count);
            CHECK(block == offsets.back());
            CHECK(plan.piece_sums == sums);
            std::int64_t cut = 0;
            for (std::int64_t r = 0; r < matrix_rows; ++r) {
                const std::size_t at = static_cast<std::size_t>(r / rows);
                if (offsets[at + 1] - offsets[at] <= capacity) continue;
                REQUIRE(plan.cut_rows[static_cast<std::size_t>(cut)].row == r);
                REQUIRE(plan.cut_rows[static_cast<std::size_t>(cut)].count == (offsets[at + 1] - offsets[at] + capacity - 1) / capacity);
                ++cut;
            }
            CHECK(cut == static_cast<std::int64_t>(plan.cut_rows.size()));
        }
    }
}

TEST_CASE("block plan: idle lanes follow from the mapping") {
    // Block rows of 27 blocks of 3x3. By columns: 10 columns of 3 lanes, 81 columns in 9 steps of 32 lanes.
    std::vector<std::int64_t> offsets;
    for (std::int64_t row = 0; row <= 960; ++row) offsets.push_back(27 * row);
    const cuda::LaneSteps columns = cuda::direct_lane_steps(960, offsets.data(), 3, 10, 3);
    CHECK(columns.idle() == doctest::Approx(1 - 81.0 * 3 / (9 * 32)));
    // By items: 7 block rows of 8 threads each, a thread with all three rows of up to 4 blocks: a warp and three quarters of one.
    const cuda::BlockStreamShape shape = cuda::block_stream_shape(3, 3, 8);
    const cuda::BlockPlan plan = cuda::make_block_plan(2880, 960, offsets.data(), shape, 7 * 27);
    CHECK(plan.items.front().rows == 7);
    CHECK(plan.items.front().team == 3);
    const cuda::LaneSteps items = cuda::stream_lane_steps(plan, shape);
    CHECK(items.idle() == doctest::Approx(1 - 27.0 * 7 / (2 * 4 * 32)).epsilon(0.01));
    // Block rows of one block: by blocks, 8 of them in a warp of 4 lanes each, none idle; as teams of 8 blocks, seven eighths.
    for (std::size_t row = 0; row < offsets.size(); ++row) offsets[row] = static_cast<std::int64_t>(row);
    CHECK(cuda::direct_lane_steps(960, offsets.data(), 4, 1, 1).idle() == 0);
    CHECK(cuda::direct_lane_steps(960, offsets.data(), 4, 8, 1).idle() == doctest::Approx(7.0 / 8));
    CHECK(cuda::direct_lane_steps(0, offsets.data(), 4, 8, 1).idle() == 0);
    CHECK(cuda::stream_lane_steps(cuda::make_block_plan(2880, 960, offsets.data(), shape, 64), shape).idle() == 0);
}

TEST_CASE("dispatch: what moves the fewest bytes is the first guess, SELL is timed against it and CSR") {
    DispatchKey key;
    key.rows = key.cols = 3000000;
    key.nnz = 12000000;
    key.average = 4;
    key.longest = 5;
    key.scattered = 0.05;
    key.sell_places = key.sell_sorted_places = 1.01;
    key.diagonals = 4;
    const auto candidates = spmv_candidates(key, 0);
    REQUIRE(candidates.size() == 4);
    CHECK(text(candidates[0].choice) == "dia");
    CHECK(text(candidates[1].choice) == "stream-128x2048");
    CHECK(text(candidates[2].choice) == "sell-32");
    const std::string words = text(key);
    CHECK(words.find("diagonals 4") != std::string::npos);
    CHECK(words.find("sell 1.01 1.01") != std::string::npos);
}

TEST_CASE("dispatch: candidates are few, different, and never vary in their bits") {
    std::mt19937_64 random(5);
    const auto uniform = [&](double least, double most) { return least + (most - least) * static_cast<double>(random() >> 11) * 0x1p-53; };
    for (int i = 0; i < 5000; ++i) {
        DispatchKey key;
        key.type = i % 2 == 0 ? VectorType::fp64 : VectorType::fp32;
        key.rows = static_cast<std::int64_t>(std::exp(uniform(0, 18)));
        key.cols = static_cast<std::int64_t>(std::exp(uniform(0, 18)));
        key.average = std::exp(uniform(-1, 8));
        key.longest = static_cast<std::int64_t>(key.average * std::exp(uniform(0, 10)));
        key.p95 = static_cast<std::int64_t>(key.average * uniform(0.5, 4));
        key.variation = uniform(0, 5);
        key.scattered = uniform(0, 1);
        key.narrow = uniform(0, 1);
        key.index_bits = i % 7 == 0 ? 64 : 32;
        key.exact = static_cast<ValueForm>(i % 3);
        key.sell_sorted_places = uniform(0, 1.5);
        key.sell_places = key.sell_sorted_places * uniform(1, 2);
        key.block_rows = key.block_cols = 3;
        key.block_fill = uniform(0, 1);
        key.diagonals = static_cast<std::int64_t>(uniform(0, 300));
        key.nnz = static_cast<std::int64_t>(key.average * static_cast<double>(key.rows));
        const std::int64_t expected = i % 5 == 0 ? static_cast<std::int64_t>(std::exp(uniform(0, 8))) : 0;
        const auto candidates = spmv_candidates(key, expected);
        REQUIRE(candidates.size() >= 1);
        REQUIRE(candidates.size() <= 4);
        for (std::size_t c = 0; c < candidates.size(); ++c) {
            REQUIRE(is_deterministic(candidates[c].choice));
            REQUIRE_FALSE(candidates[c].reason.empty());
            REQUIRE_FALSE((candidates[c].choice.kernel == SpmvKernel::cusparse_alg2 && key.index_bits == 64));
            if (expected > 0 && expected < kProductsForNarrowing) {
                REQUIRE_FALSE(candidates[c].choice.narrow_columns);
                REQUIRE(candidates[c].choice.values == ValueForm::as_vectors);
            }
            for (std::size_t d = 0; d < c; ++d) REQUIRE(candidates[c].choice != candidates[d].choice);
        }
    }
}

TEST_CASE("dispatch: forms that lose nothing are found from the values") {
    const auto random = matrix_with_rows(random_lengths(200, 0, 9, 3), 100, 3);
    CHECK(key_of(*random, VectorType::fp64).exact == ValueForm::as_vectors);
    const std::vector<std::int64_t> rows{0, 1, 2}, columns{0, 1, 2};
    const auto of_values = [&](std::vector<double> values) { return CsrMatrix::from_coo(3, 3, rows, columns, values); };
    CHECK(key_of(of_values({1, -3, 0.5}), VectorType::fp64).exact == ValueForm::bf16);
    CHECK(key_of(of_values({1, -3, 0.5}), VectorType::fp32).exact == ValueForm::bf16);
    CHECK(key_of(of_values({1, 257, 0.5}), VectorType::fp64).exact == ValueForm::fp32);
    CHECK(key_of(of_values({1, 257, 0.5}), VectorType::fp32).exact == ValueForm::as_vectors);
    CHECK(key_of(of_values({1, 0.1, 0.5}), VectorType::fp64).exact == ValueForm::as_vectors);
}

namespace {

// How many items hold long rows side by side.
std::int64_t warp_items(const std::vector<std::int64_t>& lengths, std::int64_t capacity, int threads) {
    std::vector<std::int32_t> offsets{0};
    for (std::int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
    const cuda::StreamPlan plan = cuda::make_stream_plan(static_cast<std::int64_t>(lengths.size()), offsets.data(),
                                                         *std::max_element(lengths.begin(), lengths.end()), capacity, threads, cuda::StreamCut::rows);
    return std::count_if(plan.items.begin(), plan.items.end(), [](const cuda::StreamItem& item) { return item.team == cuda::kWarpRows; });
}

// Every entry in one item, in order; rows where they belong; pieces of a row one after the other.
void check_plan(const std::vector<std::int64_t>& lengths, std::int64_t capacity, int threads, cuda::StreamCut cut) {
    CAPTURE(capacity);
    CAPTURE(static_cast<int>(cut));
    std::vector<std::int32_t> offsets{0};
    for (std::int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
    const auto rows = static_cast<std::int64_t>(lengths.size());
    const std::int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    const std::int64_t whole = cut == cuda::StreamCut::rows ? std::max(capacity, cuda::kEntriesPerThread * threads) : capacity;
    const cuda::StreamPlan plan = cuda::make_stream_plan(rows, offsets.data(), longest, capacity, threads, cut);
    std::int64_t entry = 0;
    std::int64_t row = 0;
    std::int32_t piece = 0;
    std::vector<int> written(lengths.size(), 0);
    std::vector<std::vector<std::int32_t>> pieces(lengths.size());
    for (const cuda::StreamItem& item : plan.items) {
        REQUIRE(item.begin == entry);
        REQUIRE(item.first_row == row);
        REQUIRE(item.piece == piece);
        if (item.team != cuda::kWarpRows) REQUIRE(item.count <= (item.team == cuda::kWholeBlock ? whole : capacity));
        REQUIRE(item.rows >= 1);
        REQUIRE(item.rows <= capacity);
        if (item.team == cuda::kWholeBlock) REQUIRE(item.rows == 1);
        else if (item.team == cuda::kWarpRows) {
            // A warp each, whole, long, and of like length.
            REQUIRE(cut == cuda::StreamCut::rows);
            REQUIRE(item.rows >= 2);
            REQUIRE(item.rows <= threads / 32);
            REQUIRE(item.flags == 0);
            const auto begin = lengths.begin() + item.first_row;
            const auto [least, most] = std::minmax_element(begin, begin + item.rows);
            REQUIRE(*least > capacity / 2);
            REQUIRE(*most <= 4096);
            REQUIRE(*most <= 2 * *least);
        } else REQUIRE(item.team <= 5);
        for (int r = 0; r < item.rows; ++r) {
            const auto i = static_cast<std::size_t>(item.first_row + r);
            const bool first = r == 0 && (item.flags & cuda::kFirstIsPiece) != 0;
            const bool last = r == item.rows - 1 && !first && (item.flags & cuda::kLastIsPiece) != 0;
            const std::int64_t begin = r == 0 ? item.begin : offsets[i];
            const std::int64_t end = r == item.rows - 1 ? item.begin + item.count : offsets[i + 1];
            REQUIRE(begin >= offsets[i]);
            REQUIRE(end <= offsets[i + 1]);
            if (first || last) pieces[i].push_back(piece++);
            else {
                REQUIRE(begin == offsets[i]);
                REQUIRE(end == offsets[i + 1]);
                ++written[i];
            }
        }
        entry += item.count;
        row = item.first_row + item.rows;
        if (row > 0 && entry < offsets[static_cast<std::size_t>(row)]) --row;  // its rest comes next
    }
    REQUIRE(entry == offsets.back());
    REQUIRE(row == rows);
    REQUIRE(plan.piece_rows.size() == static_cast<std::size_t>(piece));
    std::size_t cuts = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        if (written[i] == 1) {
            REQUIRE(pieces[i].empty());
            continue;
        }
        REQUIRE(written[i] == 0);
        REQUIRE(pieces[i].size() >= 2);
        REQUIRE(cuts < plan.cut_rows.size());
        const cuda::CutRow& of = plan.cut_rows[cuts];
        REQUIRE(of.row == static_cast<std::int32_t>(i));
        REQUIRE(of.first_piece == pieces[i].front());
        REQUIRE(of.count == static_cast<std::int32_t>(pieces[i].size()));
        for (std::int32_t p : pieces[i]) REQUIRE(plan.piece_rows[static_cast<std::size_t>(p)] == static_cast<std::int32_t>(cuts));
        ++cuts;
    }
    REQUIRE(cuts == plan.cut_rows.size());
    // A plan of whole rows cuts only what does not fit; a balanced one fills every item but for runs of empty rows.
    if (cut == cuda::StreamCut::rows) {
        for (const cuda::CutRow& c : plan.cut_rows) REQUIRE(lengths[static_cast<std::size_t>(c.row)] > whole);
        // An item of short rows ends where the next one is long or does not fit.
        const auto length = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; };
        for (const cuda::StreamItem& item : plan.items) {
            const std::int64_t next = item.first_row + item.rows;
            if (length(item.first_row) > capacity / 2 || next == static_cast<std::int64_t>(lengths.size())) continue;
            for (std::int64_t i = item.first_row; i < next; ++i) REQUIRE(length(i) <= capacity / 2);
            REQUIRE((length(next) > capacity / 2 || item.count + length(next) > capacity || item.rows == capacity));
        }
    } else {
        for (std::size_t i = 0; i + 1 < plan.items.size(); ++i) {
            const bool full = plan.items[i].count == capacity || plan.items[i].rows == capacity || plan.items[i].rows == capacity - 1;
            REQUIRE(full);
        }
    }
}

}  // namespace

TEST_CASE("stream plan: long rows of like length go side by side") {
    CHECK(warp_items(std::vector<std::int64_t>(20, 2400), 1024, 128) == 5);
    CHECK(warp_items(std::vector<std::int64_t>(20, 2400), 1024, 256) == 3);
    CHECK(warp_items(std::vector<std::int64_t>(20, 400), 1024, 256) == 0);   // several fit into an item
    CHECK(warp_items(std::vector<std::int64_t>(20, 5000), 1024, 256) == 0);  // a block each
    CHECK(warp_items({2400, 1100, 2400, 1100}, 1024, 128) == 0);             // one would wait for the other
}

TEST_CASE("stream plan: every entry once, every row whole or in pieces in order") {
    for (cuda::StreamCut cut : {cuda::StreamCut::rows, cuda::StreamCut::balanced}) {
        for (std::int64_t capacity : {8, 16, 1024, 2048}) {
            check_plan({}, capacity, 128, cut);
            check_plan({0}, capacity, 128, cut);
            check_plan({capacity}, capacity, 128, cut);
            check_plan({capacity + 1}, capacity, 128, cut);
            check_plan({capacity - 1, 1, capacity, 0, 0, 2 * capacity, 3}, capacity, 128, cut);
            check_plan({3 * capacity, 0, 1}, capacity, 256, cut);
            check_plan({1, 40000, 2, 8192, 4096, 8193, 5}, capacity, 128, cut);
            check_plan({1, 40000, 2, 8192, 4096, 8193, 5}, capacity, 256, cut);
            check_plan(std::vector<std::int64_t>(static_cast<std::size_t>(5 * capacity + 3), 0), capacity, 128, cut);
            // Long rows side by side, as many as there are warps; not with rows twice as long, or too long, or short.
            check_plan({1500, 1500, 1500, 1500, 1500, 2900, 3100, 1400, 1, 4096, 4096, 4097, 4097, 2500, 2500}, capacity, 128, cut);
            check_plan(std::vector<std::int64_t>(21, 2400), capacity, 256, cut);
            for (std::uint64_t seed = 0; seed < 40; ++seed) {
                auto lengths = random_lengths(static_cast<std::int64_t>(50 + 13 * seed), 0, static_cast<std::int64_t>(1 + seed % 9), seed);
                for (std::size_t i = seed; i < lengths.size(); i += 29) lengths[i] = static_cast<std::int64_t>(seed) * capacity / 4;
                check_plan(lengths, capacity, 128, cut);
            }
        }
    }
}
