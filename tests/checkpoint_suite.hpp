// Checkpoints: a solve that was interrupted goes on to the bits that it would have had. As solver_suite.hpp: called per
// backend.
#pragma once

#include <doctest/doctest.h>

#include <set>

#include "cg_suite.hpp"
#include "solver/checkpoint.hpp"
#include "solver_suite.hpp"

namespace lsmr::test {

// Takes a checkpoint when it was asked so many times, and at the end.
class Saver : public Recorder {
  public:
    explicit Saver(std::set<int> at, std::int64_t stop_after = std::numeric_limits<std::int64_t>::max())
        : Recorder(stop_after), at_(std::move(at)) {}
    bool wants_checkpoint(Moment moment) override { return moment == Moment::end || at_.contains(++asked_); }
    // As a file would give it back.
    void on_checkpoint(const Checkpoint& checkpoint) override {
        saved.push_back(read_checkpoint(checkpoint_bytes(checkpoint), "state"));
    }
    std::vector<Checkpoint> saved;

  private:
    std::set<int> at_;
    int asked_ = 0;
};

inline Answer resumed(PreparedProblem& problem, const Vector& b, const SolveOptions& options,
                      const std::optional<Vector>& x0, const Checkpoint& from, Observer* observer = nullptr) {
    Answer answer;
    answer.x = x0 ? *x0 : Vector(index(problem.matrix().cols()), std::numeric_limits<double>::quiet_NaN());
    answer.result = problem.solve(b, answer.x, options, x0.has_value(), observer, &from);
    return answer;
}

inline void check_same(const Answer& now, const Answer& whole) {
    CHECK(same_bits(now.x, whole.x));
    CHECK(now.result.status == whole.result.status);
    CHECK(now.result.iterations == whole.result.iterations);
    CHECK(now.result.norms.ar == whole.result.norms.ar);
    CHECK(now.result.norms.r_estimated == whole.result.norms.r_estimated);
    CHECK(
        (now.result.norms.start_ratio == whole.result.norms.start_ratio || std::isnan(whole.result.norms.start_ratio)));
}

// Every method and form of the problem, interrupted at 0, 1, 2, k: from states taken on the way, and from those that a
// limit or a stop left.
inline void suite_checkpoints(const PrepareOptions& base) {
    const Matrix tall = graded(*random_sparse(150, 50, 4, 1001), 30);
    const Vector x0 = random_vector(50, 1003);
    const Vector c = random_vector(50, 1004);
    for (const Precision precision : kPrecisions) {
        for (const Scaling scale : {Scaling::none, Scaling::columns}) {
            PrepareOptions prepare = with_precision(base, precision);
            prepare.scale = scale;
            for (const Method method : {Method::lsmr, Method::lsqr, Method::cgls, Method::cg}) {
                if (method == Method::cg && scale != Scaling::none) continue;
                const Matrix a = method == Method::cg ? laplacian(7, 0) : tall;
                const Vector b = random_vector(a->rows(), 1002);
                for (const int form : {0, 1, 2}) {  // plain; from x0; damped around c, from x0
                    if (method == Method::cg && form == 2) continue;
                    SolveOptions options = with_method(method, precision == Precision::fp64 ? 1e-9 : 1e-4);
                    options.passes = 2;
                    options.ar_relative = method == Method::cg ? 0.0 : 1e-12;
                    if (form == 2) {
                        options.damp = 0.3;
                        options.damp_center = DampCenter::given;
                        options.center = c;
                    }
                    const std::optional<Vector> start =
                        form > 0 ? std::optional<Vector>(Vector(x0.begin(), x0.begin() + a->cols())) : std::nullopt;
                    PreparedProblem problem(a, prepare);
                    Saver saver({1, 2, 3, 4, 9});
                    Recorder plain;
                    const Answer whole = solve(problem, b, options, start, &plain);
                    const Answer watched = solve(problem, b, options, start, &saver);
                    CAPTURE(word(method));
                    CAPTURE(word(precision));
                    CAPTURE(static_cast<int>(scale));
                    CAPTURE(form);
                    REQUIRE(whole.result.converged());
                    REQUIRE(whole.result.iterations > 10);
                    check_same(watched, whole);  // saving changes nothing
                    REQUIRE(saver.saved.size() >= 3);
                    for (const Checkpoint& from : saver.saved) {
                        CAPTURE(from.iteration);
                        Recorder rest;
                        PreparedProblem other(a, prepare);
                        check_same(resumed(other, b, options, start, from, &rest), whole);
                        // The records go on where those before the checkpoint ended; a GPU saves where a batch of iterations ends, which
                        // may be the last one of the solve.
                        if (rest.all.empty()) {
                            CHECK(from.iteration == whole.result.iterations);
                            continue;
                        }
                        const std::int64_t first = rest.all.front().iteration;
                        CHECK(first <= from.iteration + 1);
                        CHECK(first >= from.iteration);
                        CHECK(rest.all.size() == static_cast<std::size_t>(whole.result.iterations - first + 1));
                        for (const IterationRecord& record : rest.all) {
                            const IterationRecord& before = plain.all.at(index(record.iteration - 1));
                            CHECK(record.r_norm == before.r_norm);
                            CHECK(record.x_norm == before.x_norm);
                        }
                    }
                    for (const std::int64_t k : {0, 1, 2, 8}) {
                        SolveOptions limited = options;
                        limited.max_iterations = k;
                        Saver at_end({});
                        const Answer part = solve(problem, b, limited, start, &at_end);
                        CAPTURE(k);
                        CHECK(part.result.status == Status::iteration_limit);
                        REQUIRE(at_end.saved.size() == 1);
                        CHECK(at_end.saved[0].iteration == k);
                        check_same(resumed(problem, b, options, start, at_end.saved[0]), whole);
                    }
                    Saver stopped({}, 5);
                    const Answer until = solve(problem, b, options, start, &stopped);
                    if (until.result.converged()) {  // a GPU may be done with a short solve before it hears of the stop
                        check_same(until, whole);
                        continue;
                    }
                    CHECK(until.result.status == Status::stopped);
                    REQUIRE(stopped.saved.size() == 1);
                    check_same(resumed(problem, b, options, start, stopped.saved[0]), whole);
                }
            }
        }
    }
}

// Solves that go on after a claim that x did not hold, or start again from x: from a large x0, with b zero or small beside it.
inline void suite_checkpoint_restarts(const PrepareOptions& base) {
    int restarted = 0;
    for (std::uint64_t seed = 1021; seed < 1029; ++seed) {
        const std::int64_t rows = 20 + static_cast<std::int64_t>(seed % 30);
        const Matrix a = graded(*random_sparse(rows, 9, 3, seed), 1e3);
        Vector x0 = random_vector(a->cols(), seed + 100);
        for (double& value : x0) value *= 1e6;
        for (const Method method : kMethods) {
            for (const double size : {0.0, 1e-3}) {
                Vector b = random_vector(a->rows(), seed + 200);
                for (double& value : b) value *= size;
                PrepareOptions prepare = base;
                prepare.scale = Scaling::columns;
                SolveOptions options = with_method(method, 1e-10);
                options.conlim = 0;
                options.estimate_variances = method == Method::lsqr;
                PreparedProblem problem(a, prepare);
                Saver saver({1, 2, 5, 9, 13, 17, 25, 33});
                const Answer whole = solve(problem, b, options, x0, &saver);
                restarted += whole.result.restarts > 0 ? 1 : 0;
                CAPTURE(word(method));
                CAPTURE(seed);
                CAPTURE(size);
                for (const Checkpoint& from : saver.saved) {
                    CAPTURE(from.iteration);
                    const Answer now = resumed(problem, b, options, x0, from);
                    check_same(now, whole);
                    CHECK(now.result.restarts == whole.result.restarts);
                    CHECK(same_bits(now.result.variances, whole.result.variances));
                }
            }
        }
    }
    CHECK(restarted > 0);
}

// A limit that the state has reached already.
inline void suite_checkpoint_limits(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(150, 50, 4, 1031), 30);
    const Vector b = random_vector(a->rows(), 1032);
    PreparedProblem problem(a, base);
    for (const Method method : kMethods) {
        SolveOptions options = with_method(method, 1e-9);
        Saver saver({6});
        options.max_iterations = 8;
        const Answer part = solve(problem, b, options, {}, &saver);
        CAPTURE(word(method));
        REQUIRE(!saver.saved.empty());
        for (const Checkpoint& from : saver.saved) {
            for (const std::int64_t limit : {std::int64_t{2}, from.iteration}) {
                options.max_iterations = limit;
                const Answer now = resumed(problem, b, options, {}, from);
                CAPTURE(limit);
                CHECK(now.result.status == Status::iteration_limit);
                CHECK(now.result.iterations == from.iteration);
                SolveOptions as_far = options;
                as_far.max_iterations = from.iteration;
                CHECK(same_bits(now.x, solve(problem, b, as_far).x));
            }
        }
    }
}

// What changed is named; a state that is damaged is no state.
inline void suite_checkpoint_refusals(const PrepareOptions& base) {
    const Matrix a = graded(*random_sparse(150, 50, 4, 1011), 30);
    const Vector b = random_vector(a->rows(), 1012);
    const Vector x0 = random_vector(a->cols(), 1013);
    SolveOptions options = with_method(Method::lsmr, 1e-9);
    options.max_iterations = 6;
    Saver saver({});
    PreparedProblem problem(a, base);
    solve(problem, b, options, x0, &saver);
    REQUIRE(saver.saved.size() == 1);
    const Checkpoint& state = saver.saved[0];
    options.max_iterations = 500;
    options.time_limit_seconds = 1000;  // limits may differ
    CHECK(resumed(problem, b, options, x0, state).result.converged());
    const auto refused = [&](const Matrix& matrix, const PrepareOptions& prepare, const Vector& rhs,
                             const SolveOptions& o, const std::optional<Vector>& start, const std::string& part) {
        PreparedProblem other(matrix, prepare);
        std::string message;
        try {
            resumed(other, rhs, o, start, state);
        } catch (const InputError& error) {
            message = error.what();
        }
        INFO(message << ", expected: " << part);
        CHECK(message.find(part) != std::string::npos);
    };
    Vector b_other = b, x0_other = x0;
    b_other[7] = std::nextafter(b_other[7], 1);
    x0_other[3] = -x0_other[3];
    bool first = true;
    const Matrix a_other = with_values(*a, [&](std::int64_t, std::int64_t, double value) {
        return std::exchange(first, false) ? std::nextafter(value, 10) : value;
    });
    refused(a_other, base, b, options, x0, "another A");
    refused(a, base, b_other, options, x0, "another b");
    refused(a, base, b, options, x0_other, "another x0");
    refused(a, base, b, options, {}, "another x0");
    SolveOptions changed = options;
    changed.atol = 1e-8;
    refused(a, base, b, changed, x0, "atol was 1e-09, now it is 1e-08");
    changed = options;
    changed.method = Method::lsqr;
    refused(a, base, b, changed, x0, "the method was lsmr, now it is lsqr");
    changed = options;
    changed.damp = 1;
    refused(a, base, b, changed, x0, "damp was 0, now it is 1");
    refused(a, with_precision(base, Precision::fp32), b, options, x0, "the precision was fp64, now it is fp32");
    PrepareOptions prepare = base;
    prepare.storage = StorageKind::single;
    refused(a, prepare, b, options, x0, "the storage of A was dual, now it is single");
    prepare = base;
    prepare.scale = Scaling::columns;
    refused(a, prepare, b, options, x0, "another A");
    const Vector weights(index(a->rows()), 2.0);
    prepare = base;
    prepare.weights = weights;
    refused(a, prepare, b, options, x0, "another");

    const std::string bytes = checkpoint_bytes(state);
    CHECK(checkpoint_bytes(read_checkpoint(bytes, "s")) == bytes);
    const auto unreadable = [](const std::string& damaged, const std::string& part) {
        std::string message;
        try {
            read_checkpoint(damaged, "F");
        } catch (const InputError& error) {
            message = error.what();
        }
        return message.starts_with("F: ") && message.find(part) != std::string::npos;
    };
    CHECK(unreadable("", "no saved state"));
    CHECK(unreadable("%%MatrixMarket", "no saved state"));
    CHECK(unreadable("lsmr state 7\n", "another version"));
    for (std::size_t n = 13; n < bytes.size(); n += 97) CHECK(unreadable(bytes.substr(0, n), "state is"));
    for (std::size_t at = 13; at < bytes.size(); at += 61) {
        std::string flipped = bytes;
        flipped[at] = static_cast<char>(flipped[at] ^ 16);
        CHECK(unreadable(flipped, "damaged"));
    }
}

}  // namespace lsmr::test
