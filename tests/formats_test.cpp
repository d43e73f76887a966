// The formats in host memory: how rows are laid out, what the arrays hold, how many bytes that is, and a matrix that grows.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "memory/error.hpp"
#include "operator/byte_model.hpp"
#include "operator/cuda/coo_plan.hpp"
#include "operator/formats/coo_builder.hpp"
#include "operator/formats/host_formats.hpp"
#include "operator_suite.hpp"

using namespace lsmr;
using namespace lsmr::test::products;

namespace {

std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& lengths) {
    std::vector<std::int64_t> offsets{0};
    for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
    return offsets;
}

// (1 2 .)
// (. . 3)
// (. . .)
// (4 5 6)
CsrMatrix small() {
    return CsrMatrix::from_coo(4, 3, std::vector<std::int64_t>{0, 0, 1, 3, 3, 3}, std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}, std::vector<double>{1, 2, 3, 4, 5, 6});
}

template <class E>
std::vector<E> list(const HostBuffer<E>& buffer) { return {buffer.begin(), buffer.end()}; }

// The matrix that padded arrays hold; place(row, k): where entry k of a row lies.
template <class T, class Width, class Place>
std::map<std::pair<std::int64_t, std::int32_t>, T> entries_of(std::int64_t rows, const HostBuffer<std::int32_t>& columns, const HostBuffer<T>& values,
                                                              const Width& width, const Place& place) {
    std::map<std::pair<std::int64_t, std::int32_t>, T> entries;
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t k = 0; k < width(i); ++k) {
            const std::int64_t at = place(i, k);
            if (columns[at] >= 0) entries[{i, columns[at]}] = values[at];
            else CHECK(values[at] == 0);
        }
    }
    return entries;
}

template <class T>
std::map<std::pair<std::int64_t, std::int32_t>, T> entries_of(const CsrMatrix& a) {
    std::map<std::pair<std::int64_t, std::int32_t>, T> entries;
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) entries[{i, a.columns()[k]}] = static_cast<T>(a.values()[k]);
    }
    return entries;
}

}  // namespace

TEST_CASE("formats: the arrays of a small matrix") {
    const CsrMatrix a = small();
    const CooMatrix<double> coo = make_coo<double>(a, 0, 0);
    CHECK(list(coo.rows) == std::vector<std::int32_t>{0, 0, 1, 3, 3, 3});
    CHECK(list(coo.columns) == std::vector<std::int32_t>{0, 1, 2, 0, 1, 2});
    CHECK(list(coo.values) == std::vector<double>{1, 2, 3, 4, 5, 6});
    CHECK(coo.bytes() == 16 * 6);

    const EllMatrix<float> ell = make_ell<float>(a, 1, 3);
    CHECK(ell.stride == 32);
    const auto column = [&](std::int64_t k) { return std::vector<std::int32_t>(ell.columns.begin() + 32 * k, ell.columns.begin() + 32 * k + 5); };
    const auto value = [&](std::int64_t k) { return std::vector<float>(ell.values.begin() + 32 * k, ell.values.begin() + 32 * k + 5); };
    CHECK(column(0) == std::vector<std::int32_t>{0, 2, -1, 0, -1});
    CHECK(column(1) == std::vector<std::int32_t>{1, -1, -1, 1, -1});
    CHECK(column(2) == std::vector<std::int32_t>{-1, -1, -1, 2, -1});
    CHECK(value(0) == std::vector<float>{2, 6, 0, 8, 0});
    CHECK(value(2) == std::vector<float>{0, 0, 0, 12, 0});
    CHECK(ell.bytes() == 3 * 32 * 8);

    const SellMatrix<double> sell = make_sell<double>(a, 0, 1);
    CHECK(sell.plan.offsets == std::vector<std::uint32_t>{0, 3});
    CHECK(sell.plan.order.empty());
    CHECK(sell.columns[32] == 1);
    CHECK(sell.columns[32 + 1] == -1);
    CHECK(sell.values[64 + 3] == 6);

    // HYB: a third of four rows, rounded up, is two; two rows have two entries.
    CHECK(hyb_width(4, a.offsets(), 0) == 2);
    CHECK(hyb_width(4, a.offsets(), 100) == 3);
    CHECK(hyb_width(4, a.offsets(), 50) == 1);
    CHECK(hyb_width(4, a.offsets(), 1) == 0);
    CHECK(hyb_width_words(2, 0) == "2, what a third of the rows fills");
    CHECK(hyb_width_words(3, 95) == "3, what 95 % of the rows need");
    CHECK(rest_offsets(4, a.offsets(), 2) == std::vector<std::int64_t>{0, 0, 0, 0, 1});
    const CooMatrix<double> rest = make_coo<double>(a, 0, 2);
    CHECK(list(rest.rows) == std::vector<std::int32_t>{3});
    CHECK(list(rest.columns) == std::vector<std::int32_t>{2});
    CHECK(list(rest.values) == std::vector<double>{6});
}

TEST_CASE("formats: long rows are found, in order") {
    std::vector<std::int64_t> lengths = std::vector<std::int64_t>(200000, 3);
    for (const std::size_t i : {0, 255, 256, 511, 65535, 65536, 131071, 199999}) lengths[i] = 9;
    lengths[77] = 8;
    const auto offsets = offsets_of(lengths);
    CHECK(rows_longer_than(8, 200000, offsets.data()) == std::vector<std::int32_t>{0, 255, 256, 511, 65535, 65536, 131071, 199999});
    CHECK(rows_longer_than(9, 200000, offsets.data()).empty());
    CHECK(rows_longer_than(2, 200000, offsets.data()).size() == 200000);
    CHECK(rows_longer_than(2, 0, offsets.data()).empty());
}

TEST_CASE("formats: SELL windows of rows of any length, each by falling length and then as given") {
    for (const std::int64_t long_row : {std::int64_t{9}, std::int64_t{4095}, std::int64_t{4096}, std::int64_t{90000}}) {
        std::vector<std::int64_t> lengths = random_lengths(70000, 0, 9, 23);
        for (std::size_t i = 5; i < lengths.size(); i += 1000) lengths[i] = long_row;
        const auto offsets = offsets_of(lengths);
        for (const int sigma : {64, 1024, 65536}) {
            CAPTURE(long_row);
            CAPTURE(sigma);
            const SellPlan plan = make_sell_plan(70000, offsets.data(), sigma);
            REQUIRE(plan.order.size() == 32 * plan.slices());
            for (std::int64_t first = 0; first < 70000; first += sigma) {
                std::vector<std::int64_t> order(static_cast<std::size_t>(std::min<std::int64_t>(sigma, 70000 - first)));
                std::iota(order.begin(), order.end(), first);
                std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)]; });
                bool same = true;
                for (std::size_t i = 0; i < order.size(); ++i) same = same && plan.row_of(first + static_cast<std::int64_t>(i)) == order[i];
                REQUIRE(same);
            }
            for (std::int64_t s = 0; s < plan.slices(); ++s) {
                std::int64_t width = 0;
                for (std::int64_t p = 32 * s; p < std::min<std::int64_t>(32 * s + 32, 70000); ++p) width = std::max(width, lengths[static_cast<std::size_t>(plan.row_of(p))]);
                REQUIRE(plan.offsets[static_cast<std::size_t>(s) + 1] - plan.offsets[static_cast<std::size_t>(s)] == width);
            }
        }
    }
}

TEST_CASE("formats: SELL sorts within its windows where that saves places, and only there") {
    std::vector<std::int64_t> lengths(160, 1);
    for (std::size_t i : {0, 33, 70}) lengths[i] = 8;  // the window 0..63 gains by sorting, 64..127 and 128..159 do not
    const auto offsets = offsets_of(lengths);
    const SellPlan given = make_sell_plan(160, offsets.data(), 1);
    CHECK(given.offsets == std::vector<std::uint32_t>{0, 8, 16, 24, 25, 26});
    CHECK(given.order.empty());
    const SellPlan sorted = make_sell_plan(160, offsets.data(), 64);
    CHECK(sorted.offsets == std::vector<std::uint32_t>{0, 8, 9, 17, 18, 19});
    REQUIRE(sorted.order.size() == 160);
    CHECK(sorted.row_of(0) == 0);
    CHECK(sorted.row_of(1) == 33);
    CHECK(sorted.row_of(2) == 1);  // equal lengths keep their order
    CHECK(sorted.row_of(63) == 63);
    for (std::int64_t place = 64; place < 160; ++place) CHECK(sorted.row_of(place) == place);
    CHECK(make_sell_plan(160, offsets_of(std::vector<std::int64_t>(160, 3)).data(), 64).order.empty());

    for (int sigma : {1, 32, 64, 256, 65536}) {
        CAPTURE(sigma);
        for (const ShapeCase& shape : shape_cases()) {
            CAPTURE(shape.name);
            const SellMatrix<double> sell = make_sell<double>(*shape.a, 0, sigma);
            const SellPlan& plan = sell.plan;
            REQUIRE(plan.slices() == (shape.a->rows() + 31) / 32);
            std::vector<std::int64_t> place_of(static_cast<std::size_t>(shape.a->rows()), -1);
            for (std::int64_t p = 0; p < shape.a->rows(); ++p) {
                const std::int64_t row = plan.row_of(p);
                REQUIRE(row < shape.a->rows());
                if (sigma > 1) REQUIRE(row / sigma == p / sigma);
                place_of[static_cast<std::size_t>(row)] = p;
            }
            REQUIRE(std::find(place_of.begin(), place_of.end(), -1) == place_of.end());
            const auto slice = [&](std::int64_t i) { return static_cast<std::size_t>(place_of[static_cast<std::size_t>(i)] / 32); };
            const auto held = entries_of<double>(
                shape.a->rows(), sell.columns, sell.values, [&](std::int64_t i) { return std::int64_t{plan.offsets[slice(i) + 1]} - plan.offsets[slice(i)]; },
                [&](std::int64_t i, std::int64_t k) { return 32 * (plan.offsets[slice(i)] + k) + place_of[static_cast<std::size_t>(i)] % 32; });
            CHECK(held == entries_of<double>(*shape.a));
        }
    }
}

TEST_CASE("formats: ELL and COO together hold every entry, for any width") {
    const auto a = matrix_with_rows(random_lengths(500, 0, 20, 141), 90, 141);
    for (std::int64_t width : {0, 1, 7, 20}) {
        CAPTURE(width);
        const EllMatrix<float> ell = make_ell<float>(*a, 0, width);
        const CooMatrix<float> coo = make_coo<float>(*a, 0, width);
        auto held = entries_of<float>(500, ell.columns, ell.values, [&](std::int64_t) { return width; }, [&](std::int64_t i, std::int64_t k) { return k * ell.stride + i; });
        for (std::int64_t k = 0; k < coo.rows.size(); ++k) CHECK(held.emplace(std::pair{coo.rows[k], coo.columns[k]}, coo.values[k]).second);
        CHECK(held == entries_of<float>(*a));
        CHECK(std::is_sorted(coo.rows.begin(), coo.rows.end()));
    }
}

TEST_CASE("formats: the bytes that are held are those of the byte model") {
    const auto a = matrix_with_rows(random_lengths(6400, 0, 11, 142), 3000, 142);
    const OrientationProfile p = profile_orientation(*a);
    const auto bytes = [](const ByteAccount& account) { return static_cast<std::int64_t>(account.matrix()); };
    CHECK(make_coo<double>(*a, 0, 0).bytes() == bytes(coo_bytes(p, {8, 8})));
    CHECK(make_coo<float>(*a, 0, 0).bytes() == bytes(coo_bytes(p, {4, 4})));
    CHECK(make_ell<double>(*a, 0, p.longest).bytes() == bytes(ell_bytes(p, {8, 8})));
    CHECK(make_sell<double>(*a, 0, 1).bytes() == bytes(sell32_bytes(p, {8, 8}, RowOrder::given)));
    // The permutation has 16 bits a row, the model's 32; windows of all rows sort as the model does.
    CHECK(make_sell<double>(*a, 0, 8192).bytes() == bytes(sell32_bytes(p, {8, 8}, RowOrder::by_length)) - 2 * 6400);
    CHECK(make_ell<double>(*a, 0, p.hyb_width).bytes() + make_coo<double>(*a, 0, p.hyb_width).bytes() == bytes(hyb_bytes(p, {8, 8})));
}

TEST_CASE("formats: chunks of COO and the pieces of the rows that they cut") {
    const auto check = [](const std::vector<std::int64_t>& lengths) {
        const auto offsets = offsets_of(lengths);
        const auto rows = static_cast<std::int64_t>(lengths.size());
        const cuda::CooPlan plan = cuda::make_coo_plan(rows, offsets.data());
        REQUIRE(plan.chunk_entries % cuda::kCooStep == 0);
        REQUIRE(plan.entries == offsets.back());
        REQUIRE(plan.chunks == (plan.entries + plan.chunk_entries - 1) / plan.chunk_entries);
        REQUIRE(plan.piece_rows.size() == static_cast<std::size_t>(2 * plan.chunks));
        std::vector<std::int64_t> row_of;
        for (std::size_t i = 0; i < lengths.size(); ++i) row_of.insert(row_of.end(), static_cast<std::size_t>(lengths[i]), static_cast<std::int64_t>(i));
        // As the kernel does: what a chunk leaves in its two pieces, and the rows that it finishes.
        std::vector<std::int64_t> pieces(static_cast<std::size_t>(2 * plan.chunks), -1), counts(lengths.size(), 0);
        for (std::int64_t c = 0; c < plan.chunks; ++c) {
            const auto begin = static_cast<std::size_t>(c * plan.chunk_entries);
            const std::size_t end = std::min(begin + static_cast<std::size_t>(plan.chunk_entries), row_of.size());
            const std::int64_t head = begin > 0 && row_of[begin - 1] == row_of[begin] ? row_of[begin] : -1;
            const std::int64_t tail = end < row_of.size() && row_of[end] == row_of[end - 1] ? row_of[end - 1] : -1;
            std::map<std::int64_t, std::int64_t> sums;
            for (std::size_t k = begin; k < end; ++k) ++sums[row_of[k]];
            for (const auto& [row, sum] : sums) {
                if (row == head) pieces[static_cast<std::size_t>(2 * c)] = sum;
                else if (row == tail) pieces[static_cast<std::size_t>(2 * c + 1)] = sum;
                else counts[static_cast<std::size_t>(row)] += sum;
            }
            if (head >= 0 && head == tail) pieces[static_cast<std::size_t>(2 * c + 1)] = 0;
        }
        for (std::size_t r = 0; r < plan.cut_rows.size(); ++r) {
            const cuda::CutRow& cut = plan.cut_rows[r];
            REQUIRE(counts[static_cast<std::size_t>(cut.row)] == 0);
            REQUIRE(cut.count >= 2);
            for (std::int32_t p = cut.first_piece; p < cut.first_piece + cut.count; ++p) {
                REQUIRE(pieces[static_cast<std::size_t>(p)] >= 0);
                REQUIRE(plan.piece_rows[static_cast<std::size_t>(p)] == static_cast<std::int32_t>(r));
                counts[static_cast<std::size_t>(cut.row)] += std::exchange(pieces[static_cast<std::size_t>(p)], -1);
            }
        }
        REQUIRE(counts == lengths);
        for (std::size_t p = 0; p < pieces.size(); ++p) REQUIRE(pieces[p] == -1);  // none is left over
        REQUIRE(std::count_if(plan.piece_rows.begin(), plan.piece_rows.end(), [](std::int32_t r) { return r < -1; }) == 0);
    };
    check({});
    check({0});
    check({128});
    check({127, 1, 128, 0, 129, 0, 0});
    check({0, 0, 5000, 0, 3});
    check({128, 256, 384, 1});
    check(std::vector<std::int64_t>(4000, 128));
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        auto lengths = random_lengths(static_cast<std::int64_t>(40 + 7 * seed), 0, static_cast<std::int64_t>(1 + seed % 11), seed);
        for (std::size_t i = seed % 5; i < lengths.size(); i += 23) lengths[i] = static_cast<std::int64_t>(seed * 37);
        check(lengths);
    }
    check(random_lengths(300000, 0, 19, 61));  // chunks of several steps
}

TEST_CASE("formats: too much padding is refused with the numbers") {
    CHECK_NOTHROW(check_padding(parse_format("ell"), 65536, 10, 4096));
    CHECK_NOTHROW(check_padding(parse_format("ell"), 4000000, 1000000, 4096));
    CHECK_THROWS_WITH_AS(check_padding(parse_format("sell-32-64"), 4000001, 1000000, 4096),
                         "sell-32-64 would store 4000001 places for 1000000 entries, more than 4 an entry: the rows differ too much in length (the longest has "
                         "4096); hyb, coo and the kernels of CSR take such a matrix",
                         InputError);
}

TEST_CASE("formats: a matrix that grows between products") {
    CooBuilder builder(3, 4);
    CHECK(builder.version() == 0);
    CHECK(builder.csr()->nnz() == 0);
    const std::vector<std::int64_t> rows{2, 0, 2}, columns{1, 3, 1};
    builder.append(rows, columns, std::vector<double>{1, 2, 4});
    CHECK(builder.version() == 1);
    CHECK(builder.pending() == 3);
    const auto first = builder.csr();
    CHECK(builder.pending() == 0);
    CHECK(builder.csr() == first);  // nothing to merge: the same object
    CHECK(entries_of<double>(*first) == std::map<std::pair<std::int64_t, std::int32_t>, double>{{{0, 3}, 2}, {{2, 1}, 5}});

    // Products between appends, with one operator.
    const auto op = make_cpu_operator<double>(first);
    const auto workspace = op->make_workspace(nullptr);
    const Coefficient<double> one{1, 1}, zero{0, 0};
    const std::vector<double> x{1, 10, 100, 1000};
    std::vector<double> y(3);
    const auto product = [&] { op->apply(&one, x.data(), &zero, y.data(), *workspace); };
    product();
    CHECK(y == std::vector<double>{2000, 0, 50});
    builder.append(std::vector<std::int64_t>{1, 0}, std::vector<std::int64_t>{0, 3}, std::vector<double>{7, 0.5});
    builder.append(std::vector<std::int64_t>{0}, std::vector<std::int64_t>{0}, std::vector<double>{-1});
    builder.append({}, {}, {});
    CHECK(builder.version() == 3);
    CHECK(builder.pending() == 3);
    CHECK(first->nnz() == 2);  // what others hold does not change
    op->update(builder.csr());
    product();
    CHECK(y == std::vector<double>{2499, 7, 50});

    CHECK_THROWS_WITH_AS(builder.append(std::vector<std::int64_t>{0, 3}, std::vector<std::int64_t>{0, 0}, std::vector<double>{1, 1}),
                         "append: entry 1 is at (3, 0); expected a place in a matrix of 3 x 4, counted from 0", InputError);
    CHECK_THROWS_AS(builder.append(std::vector<std::int64_t>{0}, std::vector<std::int64_t>{-1}, std::vector<double>{1}), InputError);
    CHECK_THROWS_AS(builder.append(std::vector<std::int64_t>{0}, std::vector<std::int64_t>{0, 1}, std::vector<double>{1}), InputError);
    CHECK_THROWS_AS(builder.append(std::vector<std::int64_t>{0}, std::vector<std::int64_t>{0}, std::vector<double>{NAN}), InputError);
    CHECK(builder.version() == 3);
    CHECK(builder.pending() == 0);  // all or none

    // Many appends give what one build gives.
    const auto whole = matrix_with_rows(random_lengths(200, 0, 30, 143), 70, 143);
    CooBuilder parts(200, 70);
    for (std::int64_t part = 0; part < 7; ++part) {
        std::vector<std::int64_t> r, c;
        std::vector<double> v;
        for (std::int64_t i = 0; i < 200; ++i) {
            for (std::int64_t k = whole->offsets()[i]; k < whole->offsets()[i + 1]; ++k) {
                if (k % 7 != part) continue;
                r.push_back(i);
                c.push_back(whole->columns()[k]);
                v.push_back(whole->values()[k]);
            }
        }
        parts.append(r, c, v);
        if (part % 2 == 0) parts.csr();
    }
    CHECK(entries_of<double>(*parts.csr()) == entries_of<double>(*whole));
}
