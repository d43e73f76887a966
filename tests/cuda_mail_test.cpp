// Values of the persistent kernel that cross between blocks by mail, or within a cluster: who writes what where, and that the kernel gives what it
// gives by gathers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "cuda_support.hpp"
#include "solver/cuda/small_problem.hpp"
#include "solver_suite.hpp"

using namespace lsmr;
using namespace lsmr::test;
using cuda::Crossing;

namespace {

constexpr PersistentLimits kH200{132, std::int64_t{60} << 20, 228352, true, 16};

SmallPlan plan_of(const CsrMatrix& a, std::int64_t value_bytes, std::optional<Crossing> wanted = std::nullopt, const PersistentLimits& limits = kH200) {
    return plan_small_problem(a.rows(), a.cols(), a.offsets(), a.transposed().offsets(), value_bytes, limits, wanted);
}

// Rows of 0 to 40 entries, columns of very different lengths, every seventh row and every fifth column empty.
Matrix ragged(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
    Random random(seed);
    Triplets t{rows, cols, {}, {}, {}};
    for (std::int64_t i = 0; i < rows; ++i) {
        if (i % 7 == 3) continue;
        const std::int64_t length = random.below(i % 50 == 0 ? 41 : 12);
        for (std::int64_t k = 0; k < length; ++k) {
            const std::int64_t j = random.below(1 + random.below(cols));
            if (j % 5 != 2) t.add(i, j, random());
        }
    }
    return t.matrix();
}

// The mail as it is made on the device, entry after entry on the host.
struct HostMail {
    MailSide forward, adjoint;
    MailRuns runs;
    Vector values;
    std::vector<std::uint32_t> sectors;
    std::vector<std::uint16_t> row_products, rows, col_products, cols;
};
HostMail host_mail(const CsrMatrix& a, const SmallPlan& plan, std::int64_t sector) {
    const CsrMatrix transpose = a.transposed();
    const std::vector<std::int32_t>& block_rows = plan.forward.block_rows;
    const std::vector<std::int32_t>& block_cols = plan.adjoint.block_rows;
    const std::int64_t blocks = plan.blocks;
    HostMail mail;
    mail.forward = arrange_mail(a.offsets(), block_rows);
    mail.adjoint = arrange_mail(transpose.offsets(), block_cols);
    const auto owner = [](const std::vector<std::int32_t>& of_blocks, std::int64_t line) {
        return std::upper_bound(of_blocks.begin(), of_blocks.end(), static_cast<std::int32_t>(line)) - of_blocks.begin() - 1;
    };
    std::vector<std::int32_t> counts(index(blocks * blocks), 0);
    const auto for_each_entry = [&](const auto& f) {
        for (std::int64_t i = 0; i < a.rows(); ++i) {
            for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) f(i, k, owner(block_rows, i), owner(block_cols, a.columns()[k]));
        }
    };
    for_each_entry([&](std::int64_t, std::int64_t, std::int64_t r, std::int64_t c) { ++counts[index(r * blocks + c)]; });
    mail.runs = deal_mail(counts, blocks, sector);
    const std::size_t slots = index(mail.runs.slots());
    mail.values.assign(slots, 0.0);
    mail.sectors.assign(slots / index(sector), 0);
    for (auto* products : {&mail.row_products, &mail.col_products}) products->assign(slots, static_cast<std::uint16_t>(plan.mail_products - 1));
    for (auto* lines : {&mail.rows, &mail.cols}) lines->assign(slots, 0);
    std::vector<std::int32_t> next(counts.size(), 0);
    std::vector<std::int32_t> seen(index(a.cols()), 0);
    for_each_entry([&](std::int64_t i, std::int64_t k, std::int64_t r, std::int64_t c) {
        const std::size_t j = index(a.columns()[k]);
        const std::size_t run = index(r * blocks + c);
        const std::size_t slot = index(mail.runs.in_mailbox[run] + next[run]);
        const std::size_t listed = index(mail.runs.in_list[run] + next[run]++);
        const std::int32_t row = mail.forward.at[index(i)];
        const std::int32_t col = mail.adjoint.at[j];
        const cuda::MailDiagonal& of_row = mail.forward.diagonals[index(mail.forward.diagonals_at[index(r)] + k - a.offsets()[i])];
        const cuda::MailDiagonal& of_col = mail.adjoint.diagonals[index(mail.adjoint.diagonals_at[index(c)] + seen[j]++)];
        mail.values[slot] = a.values()[k];
        mail.row_products[slot] = static_cast<std::uint16_t>(of_row.begin + row);
        mail.rows[slot] = static_cast<std::uint16_t>(row);
        mail.col_products[listed] = static_cast<std::uint16_t>(of_col.begin + col);
        mail.cols[listed] = static_cast<std::uint16_t>(col);
    });
    for (std::size_t run = 0; run < counts.size(); ++run) {
        for (std::int64_t s = 0; s < (counts[run] + sector - 1) / sector; ++s) {
            mail.sectors[index(mail.runs.in_list[run] / sector + s)] = static_cast<std::uint32_t>(mail.runs.in_mailbox[run] / sector + s);
        }
    }
    return mail;
}

template <class Value>
std::vector<Value> downloaded(const DeviceBuffer<Value>& from, std::size_t size, const CudaContext& context) {
    std::vector<Value> host(size);
    LSMR_CHECK(cudaMemcpyAsync(host.data(), from.data(), size * sizeof(Value), cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
    return host;
}

// What a kernel leaves behind; of CGLS r and p are u and v.
struct Left {
    Vector x, u, v;
    Progress progress;
};
// The method on the kernel alone, started on the host, in launches of so many iterations each. bad: replaces a value of u after the start.
template <class Method>
Left run(const CudaContext& context, SmallProblem<typename Method::Value>& problem, const CsrMatrix& a, const Vector& b, double damp,
         std::int64_t max_iterations, const std::vector<std::int64_t>& launches, double first_x = 0, std::optional<double> bad = std::nullopt) {
    using T = typename Method::Value;
    using Recurrence = typename Method::Recurrence;
    DeviceBuffer<T> u(context, a.rows());
    DeviceBuffer<T> columns[4];
    for (auto& column : columns) column = DeviceBuffer<T>(context, a.cols());
    DeviceBuffer<IterationRecord> records(context, 64);
    DeviceBuffer<Recurrence> r(context, 1);
    const auto upload = [&](auto& to, const Vector& from) {
        std::vector<T> narrow(from.begin(), from.end());
        LSMR_CHECK(cudaMemcpyAsync(to.data(), narrow.data(), narrow.size() * sizeof(T), cudaMemcpyHostToDevice, context.stream()));
        context.synchronize();
    };
    const auto download = [&](auto& from, std::int64_t n) {
        std::vector<T> narrow(index(n));
        LSMR_CHECK(cudaMemcpyAsync(narrow.data(), from.data(), narrow.size() * sizeof(T), cudaMemcpyDeviceToHost, context.stream()));
        context.synchronize();
        return Vector(narrow.begin(), narrow.end());
    };
    constexpr bool kCgls = std::is_same_v<Method, Cgls<T>>;
    const double beta = norm(b);
    Vector v = product(a.transposed(), b);
    Recurrence host{};
    host.prepare(1, damp, StopRules{.max_iterations = max_iterations}, {records.data(), 64}, 0);
    const Vector zero(v.size(), 0.0);
    Vector first_u = b;
    if (bad) first_u[7] = *bad;
    upload(u, first_u);
    upload(columns[2], zero);
    upload(columns[3], Vector(v.size(), first_x));
    if constexpr (kCgls) {
        const double sums[4] = {norm(v) * norm(v), beta * beta, 0, 0};
        host.finish(Recurrence::start_adjoint, sums, kGoOn);
        upload(columns[0], zero);
        upload(columns[1], v);
    } else {
        for (double& value : v) value /= beta;
        const double beta2[1] = {beta * beta};
        const double alpha2[1] = {norm(v) * norm(v)};
        host.finish(Recurrence::start_forward, beta2, kGoOn);
        host.finish(Recurrence::start_adjoint, alpha2, kGoOn);
        upload(columns[0], v);
        upload(columns[1], zero);
    }
    LSMR_CHECK(cudaMemcpyAsync(r.data(), &host, sizeof(host), cudaMemcpyHostToDevice, context.stream()));
    context.synchronize();
    typename Method::Vectors w{};
    w.x = columns[3].data();
    if constexpr (kCgls) {
        w.r = u.data();
        w.p = columns[0].data();
        w.s = w.z = columns[1].data();
    } else {
        w.u = u.data();
        w.v = w.p = columns[0].data();
        if constexpr (std::is_same_v<Method, Lsmr<T>>) {
            w.h = columns[1].data();
            w.hbar = columns[2].data();
        } else {
            w.w = columns[1].data();
        }
    }
    for (const std::int64_t iterations : launches) problem.template iterate<Method>(w, r.data(), iterations);
    LSMR_CHECK(cudaMemcpyAsync(&host, r.data(), sizeof(host), cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
    return {download(columns[3], a.cols()), download(u, a.rows()), download(columns[0], a.cols()), host.progress};
}

bool has_cluster() { return persistent_limits(CudaContext().device()).cluster_blocks > 1; }

template <class Method>
void compare(const Matrix& a, std::uint64_t seed, Crossing ours) {
    using T = typename Method::Value;
    constexpr bool kCgls = std::is_same_v<Method, Cgls<T>>;
    const CudaContext context;
    const SmallMatrix<T> matrix(*a, 0, context);
    const auto make = [&](Crossing crossing) {
        const SmallPlan plan = matrix.plan(persistent_limits(context.device()), crossing);
        REQUIRE(plan.impossible.empty());
        REQUIRE((plan.crossing == crossing || (crossing == Crossing::gathered && plan.blocks == 1)));
        return std::make_unique<SmallProblem<T>>(matrix, plan, context);
    };
    const auto problem = make(ours);
    const auto gathered = make(Crossing::gathered);
    const Vector b = random_vector(a->rows(), seed);
    const double eps = sizeof(T) == 8 ? kEps64 : kEps32;
    CAPTURE(a->rows());
    CAPTURE(a->cols());
    CAPTURE(a->nnz());
    CAPTURE(sizeof(T));
    for (const double damp : {0.0, 0.1}) {
        // To the limit within a launch, at its end, and in the next; and not to it.
        for (const std::vector<std::int64_t>& launches : {std::vector<std::int64_t>{20}, {6, 1}, {1, 2, 3, 4, 0, 5}, {3, 3}}) {
            const Left one = run<Method>(context, *problem, *a, b, damp, 6, launches);
            const Left two = run<Method>(context, *gathered, *a, b, damp, 6, launches);
            CHECK(one.progress.code == two.progress.code);
            CHECK(one.progress.iteration == two.progress.iteration);
            CHECK(one.progress.finished == two.progress.finished);
            // Few steps: rounding, to which the tag's bit adds another, has not grown.
            const double slack = 6 * 8 * 40 * eps;
            CHECK(distance(one.x, two.x) <= slack * norm(two.x));
            // r and p of CGLS shrink, what rounding left in them does not.
            CHECK(distance(one.u, two.u) <= slack * (kCgls ? norm(b) : norm(two.u)));
            CHECK(distance(one.v, two.v) <= slack * (kCgls ? norm(product(a->transposed(), b)) : norm(two.v)));
            CHECK(one.progress.x_norm == doctest::Approx(two.progress.x_norm).epsilon(slack));
            CHECK(one.progress.r_norm == doctest::Approx(two.progress.r_norm).epsilon(slack));
        }
    }
    // However the iterations are launched, the bits are the same.
    const Left whole = run<Method>(context, *problem, *a, b, 0.1, 30, {40});
    for (const std::vector<std::int64_t>& launches : {std::vector<std::int64_t>{40}, {1, 1, 28}, {30, 1}, {29, 1, 1}, {7, 11, 13, 17}}) {
        const Left again = run<Method>(context, *problem, *a, b, 0.1, 30, launches);
        CHECK(same_bits(again.x, whole.x));
        CHECK(again.progress.iteration == whole.progress.iteration);
    }
}

SmallPlan planned(const SmallMatrix<double>& matrix, Crossing crossing, const CudaContext& context) {
    SmallPlan plan = matrix.plan(persistent_limits(context.device()), crossing);
    REQUIRE(plan.crossing == crossing);
    return plan;
}

// x stays, and the next solve is not disturbed.
void check_not_finite(const Matrix& a, Crossing crossing) {
    const CudaContext context;
    const SmallMatrix<double> matrix(*a, 0, context);
    SmallProblem<double> problem(matrix, planned(matrix, crossing, context), context);
    const Vector b = random_vector(a->rows(), 732);
    const Left before = run<Lsmr<double>>(context, problem, *a, b, 0, 9, {20});
    const Left before_cgls = run<Cgls<double>>(context, problem, *a, b, 0, 9, {20});
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        const Left left = run<Lsmr<double>>(context, problem, *a, b, 0, 100, {50}, 3.0, bad);
        CHECK(left.progress.code == static_cast<int>(Status::non_finite));
        for (const double value : left.x) REQUIRE(value == 3.0);
        const Left after = run<Lsmr<double>>(context, problem, *a, b, 0, 9, {20});
        CHECK(same_bits(after.x, before.x));
        // r is not part of the first step, which stands.
        const Left left_cgls = run<Cgls<double>>(context, problem, *a, b, 0, 100, {50}, 0.0, bad);
        CHECK(left_cgls.progress.code == static_cast<int>(Status::non_finite));
        CHECK(left_cgls.progress.iteration == 1);
        for (const double value : left_cgls.x) REQUIRE(std::isfinite(value));
        const Left after_cgls = run<Cgls<double>>(context, problem, *a, b, 0, 9, {20});
        CHECK(same_bits(after_cgls.x, before_cgls.x));
    }
}

void check_repeats(const Matrix& a, Crossing crossing) {
    const CudaContext context;
    const SmallMatrix<double> matrix(*a, 0, context);
    SmallProblem<double> problem(matrix, planned(matrix, crossing, context), context);
    const Vector b = random_vector(a->rows(), 742);
    const Left first = run<Lsmr<double>>(context, problem, *a, b, 0.01, 60, {70});
    int different = 0;
    for (int i = 0; i < 200; ++i) {
        const Left again = run<Lsmr<double>>(context, problem, *a, b, 0.01, 60, {70});
        different += !same_bits(again.x, first.x) || again.progress.iteration != first.progress.iteration;
    }
    CHECK(different == 0);
}

}  // namespace

TEST_CASE("mail plan: taken for many entries where there is room") {
    const Matrix a = random_sparse(100000, 30000, 9, 701);
    for (const std::int64_t value_bytes : {8, 4}) {
        const SmallPlan plan = plan_of(*a, value_bytes);
        CHECK(plan.crossing == Crossing::mailed);
        CHECK(plan.impossible.empty());
        CHECK(plan.unwise.empty());
        CHECK(plan.shared_bytes <= kH200.shared_bytes);
        CHECK(plan.mail_products > a->nnz() / 132);
        CHECK(plan.mail_resident > 0);
        CHECK(plan.words().find("values in runs") != std::string::npos);
    }
    CHECK(plan_of(*a, 8, Crossing::gathered).crossing == Crossing::gathered);
    CHECK(plan_of(*random_sparse(90, 40, 4, 702), 8).crossing == Crossing::none);
    CHECK(plan_of(*random_sparse(20000, 8000, 10, 702), 8).crossing == Crossing::mailed);
    CHECK(plan_of(*random_sparse(10000, 4000, 9, 702), 8).crossing == Crossing::mailed);
    // A row is added by one thread, which all wait for.
    CHECK(plan_of(*random_sparse(900, 30000, 900, 703), 8).crossing == Crossing::gathered);
    // A block's products, or what streams past, would not fit.
    CHECK(plan_of(*a, 8, std::nullopt, {132, std::int64_t{60} << 20, 60000, true}).crossing == Crossing::gathered);
    CHECK(plan_of(*a, 8, std::nullopt, {132, std::int64_t{10} << 20, 228352, true}).crossing == Crossing::gathered);
}

TEST_CASE("cluster plan: taken for some thousand entries, where the device has clusters and there is room") {
    const Matrix a = random_sparse(1000, 400, 8, 704);
    for (const std::int64_t value_bytes : {8, 4}) {
        const SmallPlan plan = plan_of(*a, value_bytes);
        CHECK(plan.crossing == Crossing::clustered);
        CHECK(plan.impossible.empty());
        CHECK(plan.unwise.empty());
        CHECK(plan.blocks > 1);
        CHECK(plan.blocks <= 16);
        CHECK(plan.shared_bytes >= (a->rows() + a->cols()) * value_bytes + 2 * a->nnz() / plan.blocks * value_bytes);
        CHECK(plan.shared_bytes <= kH200.shared_bytes);
        CHECK(plan.words().find("of one cluster") != std::string::npos);
    }
    CHECK(plan_of(*random_sparse(90, 40, 4, 702), 8).crossing == Crossing::none);
    PersistentLimits limits = kH200;
    limits.cluster_blocks = 8;
    CHECK(plan_of(*a, 8, std::nullopt, limits).blocks <= 8);
    CHECK(plan_of(*random_sparse(4000, 1600, 8, 702), 8, Crossing::clustered, limits).blocks == 8);
    limits.cluster_blocks = 0;
    CHECK(plan_of(*a, 8, std::nullopt, limits).crossing == Crossing::mailed);
    CHECK(plan_of(*a, 8, Crossing::clustered, limits).crossing == Crossing::gathered);
    // Each block would hold all of both vectors; where these do not fit, or the entries beside them, not even if it is asked for.
    CHECK(plan_of(*random_sparse(9000, 4000, 60, 706), 8, Crossing::clustered).crossing == Crossing::gathered);
    CHECK(plan_of(*a, 8, std::nullopt, {132, std::int64_t{60} << 20, 12000, true, 16}).crossing != Crossing::clustered);
    CHECK(plan_of(*random_sparse(20000, 12000, 2, 705), 8, Crossing::clustered).crossing == Crossing::gathered);
    CHECK(plan_of(*zero_matrix(9000, 0), 8, Crossing::clustered).crossing != Crossing::clustered);
}

TEST_CASE("mail: every entry has one slot, and both products come out of the lists") {
    for (const Matrix& a : {ragged(3000, 1100, 711), ragged(900, 4000, 712), random_sparse(500, 300, 10, 713), ragged(90, 2000, 714)}) {
        for (const std::int64_t value_bytes : {8, 4}) {
            const std::int64_t sector = slots_of_sector(value_bytes);
            const SmallPlan plan = plan_of(*a, value_bytes, Crossing::mailed);
            REQUIRE(plan.crossing == Crossing::mailed);
            const CsrMatrix transpose = a->transposed();
            const std::vector<std::int32_t>& block_rows = plan.forward.block_rows;
            const std::vector<std::int32_t>& block_cols = plan.adjoint.block_rows;
            const HostMail mail = host_mail(*a, plan, sector);
            const Vector x = random_vector(a->cols(), 715), y = random_vector(a->rows(), 716);
            Vector slots(mail.values.size(), std::numeric_limits<double>::quiet_NaN()), ax(index(a->rows()), 0.0), aty(index(a->cols()), 0.0);
            const auto blocks = static_cast<std::size_t>(plan.blocks);
            const auto of_sector = static_cast<std::size_t>(sector);
            std::set<std::size_t> written;
            const auto slot = [&](std::size_t place) { return mail.sectors[place / of_sector] * of_sector + place % of_sector; };
            const auto order = [](const MailSide& side, const std::vector<std::int32_t>& of_blocks, std::size_t b, std::size_t row) {
                return index(side.order[index(of_blocks[b]) + row]);
            };
            // As the kernel adds: diagonals of the row, then the row's vector value.
            const auto add = [&](const MailSide& side, const std::vector<std::int32_t>& of_blocks, std::size_t b, const Vector& products, Vector& sums) {
                for (std::int32_t i = 0; i < of_blocks[b + 1] - of_blocks[b]; ++i) {
                    double sum = 0;
                    for (std::int32_t d = side.diagonals_at[b]; d < side.diagonals_at[b + 1]; ++d) {
                        const cuda::MailDiagonal& diagonal = side.diagonals[index(d)];
                        if (i < diagonal.size) sum += products[index(diagonal.begin + i)];
                    }
                    sums[order(side, of_blocks, b, index(i))] = sum;
                }
            };
            for (std::size_t c = 0; c < blocks; ++c) {
                REQUIRE(mail.runs.lists[c] % sector == 0);
                for (std::size_t p = index(mail.runs.lists[c]); p < index(mail.runs.lists[c + 1]); ++p) {
                    REQUIRE(written.insert(slot(p)).second);
                    slots[slot(p)] = x[order(mail.adjoint, block_cols, c, mail.cols[p])];
                }
                CHECK((mail.adjoint.diagonals_at[c + 1] - mail.adjoint.diagonals_at[c]) % cuda::kMailDiagonals == 0);
            }
            std::int64_t entries = 0;
            for (std::size_t r = 0; r < blocks; ++r) {
                Vector products(index(plan.mail_products), std::numeric_limits<double>::quiet_NaN());
                for (std::size_t p = index(mail.runs.mailboxes[r]); p < index(mail.runs.mailboxes[r + 1]); ++p) {
                    REQUIRE(written.count(p) == 1);  // so that it can come
                    const bool fills = mail.row_products[p] == plan.mail_products - 1;
                    REQUIRE((fills || std::isnan(products[mail.row_products[p]])));
                    entries += !fills;
                    products[mail.row_products[p]] = mail.values[p] * slots[p];
                    slots[p] = mail.values[p] * y[order(mail.forward, block_rows, r, mail.rows[p])];
                }
                add(mail.forward, block_rows, r, products, ax);
            }
            CHECK(entries == a->nnz());
            CHECK(written.size() == mail.values.size());
            for (std::size_t c = 0; c < blocks; ++c) {
                Vector products(index(plan.mail_products), std::numeric_limits<double>::quiet_NaN());
                for (std::size_t p = index(mail.runs.lists[c]); p < index(mail.runs.lists[c + 1]); ++p) {
                    const bool fills = mail.col_products[p] == plan.mail_products - 1;
                    REQUIRE((fills || std::isnan(products[mail.col_products[p]])));
                    products[mail.col_products[p]] = slots[slot(p)];
                }
                add(mail.adjoint, block_cols, c, products, aty);
            }
            CHECK(distance(ax, product(*a, x)) <= 100 * kEps64 * norm(ax));
            CHECK(distance(aty, product(transpose, y)) <= 100 * kEps64 * norm(aty));
        }
    }
}

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda mail: made on the device as on the host, entry after entry") {
    LSMR_NEEDS_GPU();
    const CudaContext context;
    const auto check = [&]<class T>(T, const CsrMatrix& a, int exponent) {
        const SmallMatrix<T> matrix(a, exponent, context);
        const SmallPlan plan = matrix.plan(persistent_limits(context.device()), Crossing::mailed);
        REQUIRE(plan.crossing == Crossing::mailed);
        CAPTURE(a.rows());
        CAPTURE(sizeof(T));
        const HostMail host = host_mail(a, plan, slots_of_sector(sizeof(T)));
        const Mail<T> mail = make_mail(matrix.a, matrix.transpose, matrix.row_offsets, matrix.col_offsets.data(), plan.forward.block_rows,
                                       plan.adjoint.block_rows, plan.mail_products - 1, context);
        const std::size_t slots = host.values.size();
        REQUIRE(index(mail.runs.slots()) == slots);
        CHECK(mail.runs.in_list == host.runs.in_list);
        CHECK(mail.runs.in_mailbox == host.runs.in_mailbox);
        CHECK(mail.forward.order == host.forward.order);
        CHECK(mail.adjoint.order == host.adjoint.order);
        std::vector<T> values;
        for (const double value : host.values) values.push_back(static_cast<T>(std::ldexp(value, exponent)));
        CHECK(downloaded(mail.slots.values, slots, context) == values);
        CHECK(downloaded(mail.slots.sectors, host.sectors.size(), context) == host.sectors);
        CHECK(downloaded(mail.slots.row_products, slots, context) == host.row_products);
        CHECK(downloaded(mail.slots.rows, slots, context) == host.rows);
        CHECK(downloaded(mail.slots.col_products, slots, context) == host.col_products);
        CHECK(downloaded(mail.slots.cols, slots, context) == host.cols);
    };
    // Rows and columns without entries, long ones, blocks without rows or columns, runs without entries and of some hundred.
    for (const Matrix& a : {ragged(3000, 1100, 751), ragged(900, 4000, 752), ragged(90, 2000, 753), random_sparse(5000, 20, 4, 754),
                            random_sparse(200000, 60000, 10, 755)}) {
        check(double{}, *a, 0);
        check(float{}, *a, -3);
    }
}

TEST_CASE("cuda mail: what gathers give, and the same bits however it is launched") {
    LSMR_NEEDS_GPU();
    // All but the last have few letters a thread, and all but the fourth no long columns; those of the fifth have more products than a thread keeps the places of.
    for (const Matrix& a : {ragged(3000, 1100, 721), ragged(900, 4000, 722), ragged(700, 2000, 723), random_sparse(5000, 20, 4, 724), random_sparse(20000, 8000, 10, 725),
                            random_sparse(60000, 25000, 9, 727)}) {
        compare<Lsmr<double>>(a, 726, Crossing::mailed);
        compare<Lsqr<double>>(a, 726, Crossing::mailed);
        compare<Lsmr<float>>(a, 726, Crossing::mailed);
        compare<Lsqr<float>>(a, 726, Crossing::mailed);
        if (a->cols() <= 20) continue;  // CGLS has solved it before the limit
        compare<Cgls<double>>(a, 726, Crossing::mailed);
        compare<Cgls<float>>(a, 726, Crossing::mailed);
    }
}

TEST_CASE("cuda persistent cluster: what gathers give, and the same bits however it is launched") {
    LSMR_NEEDS_GPU();
    if (!has_cluster()) return;
    // Of 2 to 16 blocks; more blocks than rows or columns; long rows, and more rows than teams of threads.
    for (const Matrix& a : {ragged(700, 300, 761), ragged(300, 900, 762), ragged(1500, 600, 763), ragged(6000, 2500, 764), random_sparse(90, 70, 6, 765),
                            random_sparse(9, 3000, 900, 766), random_sparse(9000, 1000, 10, 767)}) {
        compare<Lsmr<double>>(a, 768, Crossing::clustered);
        compare<Lsqr<double>>(a, 768, Crossing::clustered);
        compare<Lsmr<float>>(a, 768, Crossing::clustered);
        compare<Lsqr<float>>(a, 768, Crossing::clustered);
    }
    compare<Cgls<double>>(ragged(1500, 600, 763), 768, Crossing::clustered);
    compare<Cgls<float>>(ragged(1500, 600, 763), 768, Crossing::clustered);
}

TEST_CASE("cuda mail: a number that is not finite ends the launch, x stays, and the next solve is not disturbed") {
    LSMR_NEEDS_GPU();
    check_not_finite(ragged(20000, 9000, 731), Crossing::mailed);
}
TEST_CASE("cuda persistent cluster: a number that is not finite ends the launch, x stays, and the next solve is not disturbed") {
    LSMR_NEEDS_GPU();
    if (has_cluster()) check_not_finite(ragged(1500, 600, 733), Crossing::clustered);
}

TEST_SUITE_END();

TEST_CASE("cuda mail: 200 repeats of a solve are bit-identical") {
    LSMR_NEEDS_GPU();
    check_repeats(ragged(60000, 20000, 741), Crossing::mailed);
}
TEST_CASE("cuda persistent cluster: 200 repeats of a solve are bit-identical") {
    LSMR_NEEDS_GPU();
    if (has_cluster()) check_repeats(ragged(1700, 600, 743), Crossing::clustered);
}
