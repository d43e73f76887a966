// The generated problems: shapes, laws, answers, errors, and the same bytes for the same arguments.
#include "data/generators.hpp"

#include <doctest/doctest.h>
#include <omp.h>
#include <unistd.h>
#include <zlib.h>

#include <Eigen/Dense>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "data/generators_random.hpp"
#include "data/npz_writer.hpp"
#include "memory/error.hpp"

using namespace lsmr;

namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

// FNV-1a
class Hash {
  public:
    template <class T>
    void add(const T* values, std::int64_t count) {
        const auto* bytes = reinterpret_cast<const unsigned char*>(values);
        for (std::size_t i = 0; i < static_cast<std::size_t>(count) * sizeof(T); ++i) {
            value_ = (value_ ^ bytes[i]) * 0x100000001B3;
        }
    }
    std::uint64_t value() const { return value_; }

  private:
    std::uint64_t value_ = 0xCBF29CE484222325;
};

std::uint64_t hash_of(const GeneratedProblem& p) {
    Hash hash;
    hash.add(p.a.offsets(), p.a.rows() + 1);
    hash.add(p.a.columns(), p.a.nnz());
    hash.add(p.a.values(), p.a.nnz());
    hash.add(p.b.data(), static_cast<std::int64_t>(p.b.size()));
    hash.add(p.x.data(), static_cast<std::int64_t>(p.x.size()));
    return hash.value();
}

Eigen::VectorXd vector_of(const std::vector<double>& v) {
    return Eigen::Map<const Eigen::VectorXd>(v.data(), static_cast<Eigen::Index>(v.size()));
}

Eigen::MatrixXd dense(const CsrMatrix& a) {
    Eigen::MatrixXd m = Eigen::MatrixXd::Zero(a.rows(), a.cols());
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) m(i, a.columns()[k]) = a.values()[k];
    }
    return m;
}

std::int64_t row_length(const CsrMatrix& a, std::int64_t i) {
    return a.offsets()[i + 1] - a.offsets()[i];
}

double row_sum(const CsrMatrix& a, std::int64_t i) {
    return std::accumulate(a.values() + a.offsets()[i], a.values() + a.offsets()[i + 1], 0.0);
}

bool same_matrix(const CsrMatrix& a, const CsrMatrix& b) {
    return a.rows() == b.rows() && a.cols() == b.cols() && a.nnz() == b.nnz() &&
           std::equal(a.offsets(), a.offsets() + a.rows() + 1, b.offsets()) &&
           std::equal(a.columns(), a.columns() + a.nnz(), b.columns()) &&
           std::equal(a.values(), a.values() + a.nnz(), b.values());
}

std::string message_of(const std::string& name, const std::map<std::string, double>& parameters = {}) {
    try {
        generate(name, parameters);
    } catch (const InputError& error) {
        return error.what();
    }
    return "no error";
}

struct SmallCase {
    const char* name;
    std::map<std::string, double> parameters;
    std::int64_t rows, cols, nnz;
    std::uint64_t hash;  // of the bytes of A, b and x with seed 7
};

// One small case of each generator. A hash changes only when the problems that people have made change with it.
const std::vector<SmallCase>& small_cases() {
    static const std::vector<SmallCase> cases = {
        {"lstp",
         {{"rows", 30}, {"cols", 20}, {"duplicates", 2}, {"power", 2}, {"damp", 0.1}},
         30,
         20,
         600,
         0x6E51DCAB5381B624ULL},
        {"tomography",
         {{"nx", 6}, {"ny", 5}, {"nz", 4}, {"rays", 60}, {"legs", 2}},
         60,
         120,
         816,
         0xB1474163027619A6ULL},
        {"parallel_beam", {{"grid", 9}, {"angles", 7}, {"detectors", 9}}, 63, 81, 671, 0xF2A128A4A1CAE40DULL},
        {"levelling", {{"width", 7}, {"height", 5}}, 61, 35, 119, 0xD27F428667BB760BULL},
        {"bundle", {{"cameras", 4}, {"points", 30}, {"observations", 90}}, 180, 126, 2160, 0x174078BDDE80709DULL},
        {"stencil",
         {{"nx", 5}, {"ny", 4}, {"nz", 3}, {"points", 27}, {"unknowns", 2}},
         120,
         120,
         3640,
         0x1C0D950F671091E9ULL},
        {"spline", {{"rows", 100}, {"grid", 8}}, 100, 64, 1600, 0xE6FF2787D6BE0095ULL},
        {"hardesty", {{"width", 9}, {"height", 8}, {"samples", 20}}, 92, 72, 406, 0x44E360576C22F393ULL},
        {"rucci", {{"rows", 200}, {"width", 7}, {"height", 6}}, 200, 84, 788, 0xBC6CF585E33D6CD4ULL},
        {"sls",
         {{"observations", 300}, {"students", 20}, {"instructors", 6}, {"departments", 3}},
         329,
         30,
         1229,
         0x98E19D082A154AAEULL},
        {"uniform", {{"rows", 100}, {"cols", 70}, {"per_row", 4.5}}, 100, 70, 450, 0x5BDFDED060688707ULL},
        {"short", {{"rows", 100}, {"cols", 40}}, 100, 40, 400, 0xF2B991829084989AULL},
        {"powerlaw", {{"rows", 150}, {"cols", 80}, {"longest", 60}}, 150, 80, 965, 0xE9D49112E0315C43ULL},
        {"relat", {{"rows", 200}, {"cols", 30}}, 200, 30, 454, 0xEC4682C9E6BCD5B1ULL},
        {"wide", {{"rows", 40}, {"cols", 150}, {"per_row", 6}}, 40, 150, 240, 0x69762AA3B45BB68EULL},
        {"lp", {{"rows", 60}, {"cols", 200}, {"per_col", 5.5}}, 60, 200, 1100, 0x62B42FDB09EBE995ULL},
        {"circuit", {{"rows", 300}}, 300, 300, 1958, 0xB4203B79E2632DB5ULL},
        {"web", {{"rows", 300}, {"longest", 40}}, 300, 300, 2999, 0xB1690AFE985C8C1DULL},
        {"star", {{"rows", 200}}, 200, 200, 411, 0x1A681B9AA1A75864ULL},
        {"arcs", {{"rows", 100}, {"arcs", 5}, {"locals", 15}, {"globals", 30}}, 100, 105, 1840, 0x052A010DD9F5D3B4ULL},
        {"deficient",
         {{"rows", 100}, {"cols", 60}, {"rank", 50}, {"shortest", 4}},
         100,
         60,
         883,
         0x06315DF716D64885ULL},
    };
    return cases;
}

}  // namespace

TEST_CASE("generators: elementary functions agree with the C library") {
    for (int i = 1; i < 2000; ++i) {
        const double x = i * 0.0137;
        CHECK(portable::log(x) == doctest::Approx(std::log(x)).epsilon(1e-14));
        CHECK(portable::exp(x) == doctest::Approx(std::exp(x)).epsilon(1e-13));
        CHECK(portable::exp(-x) == doctest::Approx(std::exp(-x)).epsilon(1e-13));
        CHECK(portable::power(x, -1.3) == doctest::Approx(std::pow(x, -1.3)).epsilon(1e-13));
        CHECK(std::abs(portable::cos_turns(x - 13) - std::cos(2 * M_PI * (x - 13))) < 1e-13);
        CHECK(std::abs(portable::sin_turns(x - 13) - std::sin(2 * M_PI * (x - 13))) < 1e-13);
    }
    CHECK(portable::cos_turns(0.25) == 0);
    CHECK(portable::cos_turns(0.5) == -1);
    CHECK(portable::sin_turns(0) == 0);
    CHECK(portable::sin_turns(0.25) == 1);
}

TEST_CASE("generators: random numbers have their ranges and moments") {
    double sum = 0, squares = 0, units = 0, symmetric = 0;
    std::vector<int> counts(7, 0);
    constexpr int kDraws = 200'000;
    for (int i = 0; i < kDraws; ++i) {
        portable::Random random(3, 1, i);
        const double u = random.unit();
        CHECK_UNARY(u >= 0 && u < 1);
        const double s = random.symmetric();
        CHECK_UNARY(s >= -1 && s < 1);
        ++counts.at(static_cast<std::size_t>(random.below(7)));
        const double z = random.normal();
        units += u;
        symmetric += s;
        sum += z;
        squares += z * z;
    }
    CHECK(units / kDraws == doctest::Approx(0.5).epsilon(0.01));
    CHECK(std::abs(symmetric / kDraws) < 0.01);
    CHECK(std::abs(sum / kDraws) < 0.01);
    CHECK(squares / kDraws == doctest::Approx(1).epsilon(0.01));
    for (const int count : counts) CHECK(count == doctest::Approx(kDraws / 7.0).epsilon(0.03));
}

TEST_CASE("generators: every generator has its shape and its bytes for any number of threads") {
    const int threads = omp_get_max_threads();
    std::set<std::string_view> covered;
    for (const SmallCase& c : small_cases()) {
        CAPTURE(c.name);
        covered.insert(c.name);
        for (const int used : {1, 2, 5}) {
            omp_set_num_threads(used);
            const GeneratedProblem p = generate(c.name, c.parameters, 7);
            CHECK(p.a.rows() == c.rows);
            CHECK(p.a.cols() == c.cols);
            CHECK(p.a.nnz() == c.nnz);
            CHECK(p.a.duplicates_summed() == 0);
            CHECK(p.b.size() == static_cast<std::size_t>(c.rows));
            CHECK(p.x.size() == static_cast<std::size_t>(c.cols));
            CHECK(hash_of(p) == c.hash);
        }
    }
    omp_set_num_threads(threads);
    for (const GeneratorInfo& info : generators()) CHECK_MESSAGE(covered.contains(info.name), std::string(info.name));
}

TEST_CASE("generators: another seed gives another problem") {
    for (const SmallCase& c : small_cases()) {
        if (std::string_view(c.name) == "lstp") continue;  // has no random part
        CAPTURE(c.name);
        CHECK(hash_of(generate(c.name, c.parameters, 8)) != c.hash);
    }
}

TEST_CASE("generators: b is A x plus noise of the stated size") {
    for (const SmallCase& c : small_cases()) {
        CAPTURE(c.name);
        const GeneratedProblem p = generate(c.name, c.parameters, 7);
        const Eigen::VectorXd ax = dense(p.a) * vector_of(p.x);
        const Eigen::VectorXd r = vector_of(p.b) - ax;
        CHECK(r.norm() == doctest::Approx(p.residual_norm).epsilon(1e-9));
        if (c.parameters.contains("noise") || std::string_view(c.name) == "lstp") continue;
        CHECK_FALSE(p.x_is_exact);
        const double expected =
            std::string_view(c.name) == "levelling" ? std::sqrt(static_cast<double>(c.rows)) : 0.01 * ax.norm();
        CHECK(r.norm() == doctest::Approx(expected).epsilon(0.25));
    }
    const GeneratedProblem exact = generate("uniform", {{"rows", 50}, {"cols", 20}, {"per_row", 5}, {"noise", 0}});
    CHECK(exact.x_is_exact);
    CHECK(exact.residual_norm == 0);
    CHECK((dense(exact.a) * vector_of(exact.x) - vector_of(exact.b)).norm() < 1e-14);
}

TEST_CASE("generators: lstp satisfies the normal equations to rounding") {
    for (const auto& [rows, cols] : {std::pair{40, 40}, {80, 40}, {40, 80}, {1, 1}, {7, 1}, {1, 7}}) {
        for (int power = 0; power <= 4; ++power) {
            for (const int duplicates : {1, 4}) {
                for (const double damp : {0.0, 1e-6, 0.1}) {
                    CAPTURE(rows);
                    CAPTURE(cols);
                    CAPTURE(power);
                    CAPTURE(damp);
                    const GeneratedProblem p = lstp(rows, cols, duplicates, power, damp);
                    const Eigen::MatrixXd a = dense(p.a);
                    const Eigen::VectorXd x = vector_of(p.x), b = vector_of(p.b);
                    const Eigen::VectorXd r = b - a * x;
                    const double rounding = 100 * kEps * (a.norm() * x.norm() + b.norm());
                    CHECK(std::abs(r.norm() - p.residual_norm) <= rounding);
                    CHECK((a.transpose() * r - damp * damp * x).norm() <= a.norm() * rounding);
                    CHECK(p.x_is_exact);
                    CHECK(p.damp == damp);
                }
            }
        }
    }
}

TEST_CASE("generators: lstp gives the solution of least norm and the condition number") {
    for (const auto& [rows, cols] : {std::pair{40, 40}, {80, 40}, {40, 80}}) {
        for (const int power : {1, 2}) {
            for (const double damp : {0.0, 1e-6, 0.1}) {
                const GeneratedProblem p = lstp(rows, cols, 1, power, damp);
                const Eigen::MatrixXd a = dense(p.a);
                const Eigen::VectorXd sigma = a.jacobiSvd().singularValues();
                CHECK(sigma(0) / sigma(sigma.size() - 1) == doctest::Approx(p.cond).epsilon(1e-9));

                Eigen::MatrixXd stacked(rows + cols, cols);
                stacked << a, damp * Eigen::MatrixXd::Identity(cols, cols);
                Eigen::VectorXd rhs = Eigen::VectorXd::Zero(rows + cols);
                rhs.head(rows) = vector_of(p.b);
                Eigen::CompleteOrthogonalDecomposition<Eigen::MatrixXd> qr;
                qr.setThreshold(1e-12);
                qr.compute(damp > 0 ? stacked : a);
                const Eigen::VectorXd x = qr.solve(damp > 0 ? rhs : vector_of(p.b));
                if (cols > rows && damp > 0 && damp < 1e-3) continue;  // numerically neither damped nor undamped
                CHECK((x - vector_of(p.x)).norm() <= 1e3 * kEps * p.cond * p.cond * x.norm());
            }
        }
    }
}

TEST_CASE("generators: lstp repeats singular values as asked") {
    const Eigen::VectorXd sigma = dense(lstp(12, 12, 4, 1, 0).a).jacobiSvd().singularValues();
    for (int i = 0; i < 12; ++i) CHECK(sigma(i) == doctest::Approx(i < 4 ? 1.0 : i < 8 ? 2.0 / 3 : 1.0 / 3));
}

TEST_CASE("generators: rays have the length of their way through the box") {
    const GeneratedProblem p = generate("tomography", {{"nx", 9}, {"ny", 9}, {"nz", 9}, {"rays", 500}});
    for (std::int64_t i = 0; i < p.a.rows(); ++i) {
        const double length = row_sum(p.a, i);
        CHECK(length >= 9 - 1e-12);
        CHECK(length <= 9 * std::sqrt(3.0) + 1e-12);
        CHECK(row_length(p.a, i) >= 9);
        CHECK(row_length(p.a, i) <= 27);
        for (std::int64_t k = p.a.offsets()[i]; k < p.a.offsets()[i + 1]; ++k) {
            CHECK_UNARY(p.a.values()[k] > 0 && p.a.values()[k] <= std::sqrt(3.0) + 1e-12);
        }
    }
    const GeneratedProblem two = generate("tomography", {{"nx", 9}, {"ny", 9}, {"nz", 9}, {"rays", 500}, {"legs", 2}});
    for (std::int64_t i = 0; i < two.a.rows(); ++i) CHECK(row_sum(two.a, i) >= 18 - 1e-12);
}

TEST_CASE("generators: parallel beams along an axis cross one line of cells") {
    const GeneratedProblem p = generate("parallel_beam", {{"grid", 8}, {"angles", 4}, {"detectors", 8}});
    for (std::int64_t i : {0, 3, 7, 16, 19, 23}) {  // 0 and 90 degrees
        CHECK(row_length(p.a, i) == 8);
        CHECK(row_sum(p.a, i) == doctest::Approx(8));
    }
    for (std::int64_t i = 8; i < 16; ++i) {  // 45 degrees, mirrored about the middle
        CHECK(row_sum(p.a, i) == doctest::Approx(row_sum(p.a, 23 - i)));
    }
}

TEST_CASE("generators: a levelling network is solved to millimetres") {
    const GeneratedProblem p = generate("levelling", {{"width", 6}, {"height", 5}});
    const Eigen::VectorXd x = dense(p.a).colPivHouseholderQr().solve(vector_of(p.b));
    CHECK((x - vector_of(p.x)).lpNorm<Eigen::Infinity>() < 0.005);
    CHECK(vector_of(p.x).minCoeff() > 100);
}

TEST_CASE("generators: a stencil is dominated by its diagonal and vanishes on constants inside") {
    for (const double unknowns : {1.0, 3.0}) {
        const GeneratedProblem p =
            generate("stencil", {{"nx", 5}, {"ny", 4}, {"nz", 3}, {"points", 27}, {"unknowns", unknowns}});
        const Eigen::MatrixXd a = dense(p.a);
        for (Eigen::Index i = 0; i < a.rows(); ++i) CHECK(2 * a(i, i) >= a.row(i).cwiseAbs().sum() - 1e-12);
        CHECK(((a.array() != 0) == (a.transpose().array() != 0)).all());
    }
    const GeneratedProblem seven = generate("stencil", {{"nx", 5}, {"ny", 5}, {"nz", 5}, {"points", 7}});
    const std::int64_t middle = (2 * 5 + 2) * 5 + 2;
    CHECK(row_length(seven.a, middle) == 7);
    CHECK(row_length(seven.a, 0) == 4);
    CHECK(std::abs(row_sum(seven.a, middle)) < 1e-14);
    CHECK(row_sum(seven.a, 0) > 0.1);
}

TEST_CASE("generators: spline weights and bilinear weights add up to one") {
    const GeneratedProblem spline = generate("spline", {{"rows", 300}, {"grid", 7}});
    for (std::int64_t i = 0; i < 300; ++i) CHECK(row_sum(spline.a, i) == doctest::Approx(1));
    const GeneratedProblem image = generate("hardesty", {{"width", 7}, {"height", 5}, {"samples", 50}});
    for (std::int64_t i = 0; i < 35; ++i) CHECK(std::abs(row_sum(image.a, i)) < 1e-14);
    for (std::int64_t i = 35; i < 85; ++i) CHECK(row_sum(image.a, i) == doctest::Approx(1));
}

TEST_CASE("generators: sls rows hold one of each kind") {
    const GeneratedProblem p = generate(
        "sls", {{"observations", 900}, {"students", 70}, {"instructors", 20}, {"departments", 5}, {"penalty", 0.5}});
    const std::int64_t begins[] = {0, 70, 90, 95, 96};
    for (std::int64_t i = 0; i < 900; ++i) {
        REQUIRE(row_length(p.a, i) == 4);
        for (int k = 0; k < 4; ++k) {
            const std::int64_t column = p.a.columns()[p.a.offsets()[i] + k];
            CHECK_UNARY(column >= begins[k] && column < begins[k + 1]);
        }
        CHECK(row_sum(p.a, i) == 4);
    }
    for (std::int64_t i = 900; i < p.a.rows(); ++i) CHECK(row_sum(p.a, i) == 0.5);
    CHECK(summarize(p.a).empty_cols == 0);
}

TEST_CASE("generators: long and empty rows are as stated") {
    const GeneratedProblem star = generate("star", {{"rows", 1000}, {"share", 0.5}});
    CHECK(row_length(star.a, 500) >= 500);
    CHECK(row_length(star.a, 500) <= 501);
    CHECK(row_length(star.a, 0) <= 2);
    const GeneratedProblem relat = generate("relat", {{"rows", 4000}, {"cols", 100}});
    CHECK(static_cast<double>(summarize(relat.a).empty_rows) == doctest::Approx(1000).epsilon(0.1));
    for (std::int64_t k = 0; k < relat.a.nnz(); ++k) CHECK(std::abs(relat.a.values()[k]) == 1);
    const GeneratedProblem wide = generate("wide", {{"rows", 100}, {"cols", 1000}, {"used", 0.2}, {"per_row", 5}});
    CHECK(summarize(wide.a).empty_cols >= 800);
    CHECK(summarize(wide.a).empty_rows == 0);
    const GeneratedProblem circuit = generate("circuit", {{"rows", 8000}});
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < 8000; ++i) longest = std::max(longest, row_length(circuit.a, i));
    CHECK(longest > 1400);
    CHECK(summarize(circuit.a).empty_rows == 0);
    const GeneratedProblem web = generate("web", {{"rows", 3000}});
    std::int64_t copies = 0;
    for (std::int64_t i = 1; i < 3000; ++i) {
        copies += row_length(web.a, i) == row_length(web.a, i - 1) &&
                  std::equal(web.a.columns() + web.a.offsets()[i], web.a.columns() + web.a.offsets()[i + 1],
                             web.a.columns() + web.a.offsets()[i - 1]);
    }
    CHECK(static_cast<double>(copies) == doctest::Approx(0.76 * 3000).epsilon(0.05));
}

TEST_CASE("generators: deficient columns are copies") {
    const GeneratedProblem p = generate("deficient", {{"rows", 120}, {"cols", 50}, {"rank", 20}, {"shortest", 4}});
    const Eigen::MatrixXd a = dense(p.a);
    for (Eigen::Index j = 20; j < 50; ++j) CHECK(a.col(j) == a.col(j - 20));
    CHECK(a.colPivHouseholderQr().rank() == 20);
}

TEST_CASE("generators: shuffled problems have the same entries in other rows and columns") {
    const GeneratedProblem p = generate("stencil", {{"nx", 9}, {"ny", 8}, {"nz", 7}});
    const GeneratedProblem s = generate("stencil", {{"nx", 9}, {"ny", 8}, {"nz", 7}, {"shuffle", 1}});
    CHECK(same_matrix(s.a, generate("stencil", {{"nx", 9}, {"ny", 8}, {"nz", 7}, {"shuffle", 1}}).a));
    CHECK_FALSE(same_matrix(s.a, p.a));
    const auto sorted = [](const CsrMatrix& a) {
        std::vector<double> values(a.values(), a.values() + a.nnz());
        std::sort(values.begin(), values.end());
        return values;
    };
    CHECK(sorted(s.a) == sorted(p.a));
    std::int64_t far = 0;  // neighbours of a row of the stencil lie anywhere now
    for (std::int64_t i = 0; i < s.a.rows(); ++i) {
        for (std::int64_t k = s.a.offsets()[i]; k < s.a.offsets()[i + 1]; ++k) far += std::abs(s.a.columns()[k] - i) > 100;
    }
    CHECK(far > s.a.nnz() / 2);
    CHECK(static_cast<std::int64_t>(s.x.size()) == s.a.cols());
}

TEST_CASE("generators: transposed problems have the transposed matrix") {
    for (const char* name : {"star", "lp", "relat", "tomography"}) {
        const GeneratedProblem p = generate(name, {{"scale", 0.05}});
        const GeneratedProblem t = generate(name, {{"scale", 0.05}, {"transpose", 1}});
        CHECK(same_matrix(t.a, p.a.transposed()));
        CHECK(t.b.size() == p.x.size());
        CHECK(t.x.size() == p.b.size());
    }
}

TEST_CASE("generators: stand-ins have the exact counts of their originals") {
    const auto counts = [](const char* name, const std::map<std::string, double>& parameters = {}) {
        const GeneratedProblem p = generate(name, parameters);
        return std::vector<std::int64_t>{p.a.rows(), p.a.cols(), p.a.nnz()};
    };
    CHECK(counts("like-sls") == std::vector<std::int64_t>{1748122, 62729, 6804304});
    CHECK(counts("s1") == std::vector<std::int64_t>{1748122, 62729, 6804304});
    CHECK(counts("like-rucci1") == std::vector<std::int64_t>{1977885, 109900, 7791168});
    CHECK(counts("bench-short") == std::vector<std::int64_t>{4936800, 1000000, 19747202});
    CHECK(counts("bench-medium") == std::vector<std::int64_t>{200000, 60000, 2000000});
    CHECK(counts("s14") == std::vector<std::int64_t>{234023, 9393, 853829});
    CHECK(counts("s14c") == std::vector<std::int64_t>{4562, 5761, 2462970});
    CHECK(counts("s6", {{"scale", 0.1}}) == std::vector<std::int64_t>{14275, 101430, 1153741});
}

TEST_CASE("generators: every stand-in can be made small") {
    for (const StandIn& s : stand_ins()) {
        CAPTURE(std::string(s.name));
        const double scale = s.generator == "uniform" ? 0.1 : 0.002;  // row lengths do not scale: they must still fit
        const GeneratedProblem p = generate(std::string(s.name), {{"scale", scale}});
        CHECK(p.a.rows() > 0);
        CHECK(p.description.starts_with(s.name));
        CHECK(std::isfinite(p.residual_norm));
    }
}

TEST_CASE("generators: a stencil on a grid one point wide is one on a line") {
    const CsrMatrix a = generate("stencil", {{"nx", 1}, {"ny", 1}, {"nz", 5}, {"points", 27}, {"unknowns", 2}}).a;
    CHECK(a.rows() == 10);
    CHECK(a.nnz() == (3 * 3 + 2 * 2) * 2 * 2);
}

TEST_CASE("generators: sizes given beside a scale are taken as they are") {
    const GeneratedProblem p = generate("bench-uniform8", {{"scale", 0.001}, {"rows", 123}});
    CHECK(p.a.rows() == 123);
    CHECK(p.a.cols() == 2000);
}

TEST_CASE("generators: wrong names are answered with the nearest") {
    CHECK(message_of("unifrm") == "there is no generator 'unifrm'; did you mean 'uniform'?");
    CHECK(message_of("like-sl") == "there is no generator 'like-sl'; did you mean 'like-sls'?");
    CHECK(message_of("qqqqqqqq").starts_with("there is no generator 'qqqqqqqq'; there are lstp, tomography"));
    CHECK(message_of("uniform", {{"row", 3}}) == "uniform has no parameter 'row'; did you mean 'rows'?");
    CHECK(message_of("lstp", {{"noise", 1}}).starts_with("lstp has no parameter 'noise'; it has scale, rows"));
}

TEST_CASE("generators: values outside their limits are refused in words") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(message_of("uniform", {{"rows", 1.5}}) == "uniform: rows is 1.5; it must be a whole number");
    CHECK(message_of("uniform", {{"rows", 0}}) == "uniform: rows is 0; it must be between 1 and 2147483647");
    CHECK(message_of("uniform", {{"rows", nan}}) == "uniform: rows is nan; it must be between 1 and 2147483647");
    CHECK(message_of("uniform", {{"rows", 3e9}}) == "uniform: rows is 3000000000; it must be between 1 and 2147483647");
    CHECK(message_of("uniform", {{"cols", 5}}) == "uniform: rows of 10 entries do not fit into 5 columns");
    CHECK(message_of("uniform", {{"scale", 0}}).starts_with("uniform: scale is 0;"));
    CHECK(message_of("uniform", {{"scale", 1e6}}).starts_with("uniform: rows is 20000000000; it must be"));
    CHECK(message_of("stencil", {{"nx", 1e6}, {"ny", 1e6}})
              .starts_with("stencil: the matrix would be 20000000000000 x "));
    CHECK(message_of("stencil", {{"points", 6}}) == "stencil: points is 6; it must be 5, 7, 9 or 27");
    CHECK(message_of("stencil", {{"points", 9}}).starts_with("stencil: 9 points are for plane grids"));
    CHECK(message_of("bundle", {{"cameras", 1e9}}).starts_with("bundle: the matrix would be 24000 x 9000009000;"));
    CHECK(message_of("lstp", {{"rows", 1e6}, {"cols", 1000}}) ==
          "lstp: the matrix is dense; 1000000 x 1000 is more than 100000000 entries");
    CHECK(message_of("lp", {{"rows", 20}}).starts_with("lp: columns of 12 entries are too long for 20 rows"));
    CHECK(message_of("wide", {{"used", 0.1}}).starts_with("wide: 3000 rows need as many columns in use"));
    CHECK(message_of("wide", {{"cols", 3000}, {"rows", 10}, {"used", 0.01}})
              .starts_with("wide: rows of 12 entries are too long"));
    CHECK(message_of("arcs", {{"locals", 5}}).starts_with("arcs: rows of 19 entries need"));
    CHECK(message_of("deficient", {{"rank", 2601}}) == "deficient: rank 2601 with 2600 columns");
    CHECK(message_of("levelling", {{"fixed", 901}}) == "levelling: 901 fixed heights, but only 900 benchmarks");
    CHECK_THROWS_AS(lstp(0, 5, 1, 1, 0), InputError);
    CHECK_THROWS_AS(lstp(5, 5, 0, 1, 0), InputError);
    CHECK_THROWS_AS(lstp(5, 5, 1, -1, 0), InputError);
    CHECK_THROWS_AS(lstp(5, 5, 1, 1, -1), InputError);
    CHECK_THROWS_AS(lstp(5, 5, 1, 1, nan), InputError);
}

TEST_CASE("generators: every parameter at its smallest makes a problem or says why not") {
    for (const GeneratorInfo& info : generators()) {
        CAPTURE(std::string(info.name));
        std::map<std::string, double> smallest;
        for (const GeneratorParameter& p : info.parameters) smallest[std::string(p.name)] = p.min;
        try {
            const GeneratedProblem p = generate(std::string(info.name), smallest);
            CHECK(p.b.size() == static_cast<std::size_t>(p.a.rows()));
        } catch (const InputError& error) {
            CHECK(std::string(error.what()).starts_with(info.name));
        }
    }
}

namespace {

template <class T>
T number_at(const std::string& bytes, std::size_t position) {
    REQUIRE(position + sizeof(T) <= bytes.size());
    T value;
    std::memcpy(&value, bytes.data() + position, sizeof(T));
    return value;
}

struct TemporaryFile {
    std::string path;
    TemporaryFile() {
        static int count = 0;
        path = (std::filesystem::temp_directory_path() /
                ("lsmr_npz_" + std::to_string(::getpid()) + "_" + std::to_string(count++)))
                   .string();
    }
    ~TemporaryFile() { std::filesystem::remove(path); }
    std::string content() const {
        std::ifstream file(path, std::ios::binary);
        std::ostringstream bytes;
        bytes << file.rdbuf();
        return bytes.str();
    }
};

// The members of an archive by name, read through its directory, with every count and checksum compared.
std::map<std::string, std::string> unzip(const std::string& bytes, bool expect_zip64) {
    const std::size_t end = bytes.size() - 22;
    REQUIRE(number_at<std::uint32_t>(bytes, end) == 0x06054B50);
    const std::size_t count = number_at<std::uint16_t>(bytes, end + 10);
    std::size_t at = number_at<std::uint32_t>(bytes, end + 16);
    if (expect_zip64) {
        CHECK(at == 0xFFFFFFFF);
        REQUIRE(number_at<std::uint32_t>(bytes, end - 20) == 0x07064B50);
        const std::size_t record = number_at<std::uint64_t>(bytes, end - 12);
        REQUIRE(number_at<std::uint32_t>(bytes, record) == 0x06064B50);
        CHECK(record + 12 + number_at<std::uint64_t>(bytes, record + 4) == end - 20);
        CHECK(number_at<std::uint64_t>(bytes, record + 32) == count);
        at = number_at<std::uint64_t>(bytes, record + 48);
        CHECK(at + number_at<std::uint64_t>(bytes, record + 40) == record);
    }
    std::map<std::string, std::string> members;
    for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(number_at<std::uint32_t>(bytes, at) == 0x02014B50);
        const std::size_t name_length = number_at<std::uint16_t>(bytes, at + 28);
        const std::size_t extra_length = number_at<std::uint16_t>(bytes, at + 30);
        const std::string name = bytes.substr(at + 46, name_length);
        std::size_t size = number_at<std::uint32_t>(bytes, at + 20);
        std::size_t local = number_at<std::uint32_t>(bytes, at + 42);
        if (extra_length > 0) {
            CHECK(extra_length == 28);
            CHECK(size == 0xFFFFFFFF);
            size = number_at<std::uint64_t>(bytes, at + 46 + name_length + 4);
            local = number_at<std::uint64_t>(bytes, at + 46 + name_length + 20);
        }
        REQUIRE(number_at<std::uint32_t>(bytes, local) == 0x04034B50);
        CHECK(bytes.substr(local + 30, name_length) == name);
        const std::size_t local_extra = number_at<std::uint16_t>(bytes, local + 28);
        const std::string data = bytes.substr(local + 30 + name_length + local_extra, size);
        const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size());
        CHECK(crc == number_at<std::uint32_t>(bytes, at + 16));
        CHECK(crc == number_at<std::uint32_t>(bytes, local + 14));
        members[name] = data;
        at += 46 + name_length + extra_length;
    }
    return members;
}

// What follows the header of a .npy file, which must name this type and shape.
std::string npy_data(const std::string& bytes, const std::string& type, const std::string& shape) {
    REQUIRE(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
    const std::size_t length = number_at<std::uint16_t>(bytes, 8);
    CHECK((10 + length) % 64 == 0);
    const std::string header = bytes.substr(10, length);
    CHECK(header.starts_with("{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }"));
    CHECK(header.ends_with('\n'));
    return bytes.substr(10 + length);
}

template <class T>
std::string raw(const T* values, std::int64_t count) {
    return {reinterpret_cast<const char*>(values), static_cast<std::size_t>(count) * sizeof(T)};
}

}  // namespace

TEST_CASE("generators: npz archives hold the matrix with and without zip64 records") {
    const CsrMatrix a = generate("uniform", {{"rows", 40}, {"cols", 30}, {"per_row", 3}}).a;
    for (const std::uint64_t limit : {kZip32Limit, std::uint64_t{0}, std::uint64_t{600}}) {
        CAPTURE(limit);
        const TemporaryFile file;
        OutputFile out(file.path);
        write_npz(out, a, limit);
        out.commit();
        const auto members = unzip(file.content(), limit != kZip32Limit);
        CHECK(members.size() == 5);
        CHECK(npy_data(members.at("indices.npy"), "<i4", "120,") == raw(a.columns(), 120));
        CHECK(npy_data(members.at("indptr.npy"), "<i8", "41,") == raw(a.offsets(), 41));
        CHECK(npy_data(members.at("data.npy"), "<f8", "120,") == raw(a.values(), 120));
        CHECK(npy_data(members.at("format.npy"), "|S3", "") == "csr");
        const std::int64_t shape[] = {40, 30};
        CHECK(npy_data(members.at("shape.npy"), "<i8", "2,") == raw(shape, 2));
    }
}

TEST_CASE("generators: npy files hold the vector") {
    const TemporaryFile file;
    OutputFile out(file.path);
    const std::vector<double> values = {1.5, -0.0, 1e-310};
    write_npy(out, values);
    out.commit();
    CHECK(npy_data(file.content(), "<f8", "3,") == raw(values.data(), 3));
}
