#include "problem.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "stopwatch.hpp"

namespace lsmr {
namespace {

// Uniform numbers in [-1, 1) from a seed: the splitmix64 sequence (Steele, Lea, Flood, doi:10.1145/2660193.2660195),
// whose upper 53 bits become the number. The same on every machine.
class UniformSequence {
  public:
    explicit UniformSequence(std::uint64_t seed) : state_(seed) {}
    double next() {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        z ^= z >> 31;
        return static_cast<double>(z >> 11) * 0x1p-52 - 1.0;
    }

  private:
    std::uint64_t state_;
};

std::vector<double> uniform_vector(std::int64_t size, std::uint64_t seed) {
    UniformSequence sequence(seed);
    std::vector<double> values(static_cast<std::size_t>(size));
    for (double& value : values) value = sequence.next();
    return values;
}

std::vector<double> product(const CsrMatrix& a, const std::vector<double>& x) {
    std::vector<double> y(static_cast<std::size_t>(a.rows()));
    for (std::size_t i = 0; i < y.size(); ++i) {
        double sum = 0;
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            sum += a.values()[k] * x[static_cast<std::size_t>(a.columns()[k])];
        }
        y[i] = sum;
    }
    return y;
}

void refuse_terminal(const std::string& path) {
    if (path == "-" && isatty(STDIN_FILENO) == 1)
        throw UsageError("standard input is a terminal: give a file, or a pipe");
}

void refuse_unreadable(const std::string& path) {
    if (std::filesystem::is_directory(path)) throw InputError(path + ": is a directory", InputError::Kind::unreadable);
    if (access(path.c_str(), R_OK) == 0) return;
    throw InputError(fmt::format("{}: {}", path, std::strerror(errno)), InputError::Kind::unreadable);
}

DenseFile read_columns(const std::string& path, const CommandLine& line, std::vector<std::string>& warnings) {
    refuse_terminal(path);
    DenseFile file = read_dense(path, line.read);
    warnings.insert(warnings.end(), file.warnings.begin(), file.warnings.end());
    return file;
}

[[noreturn]] void refuse_b(const std::string& path, const DenseFile& b, const CsrMatrix& a, bool transposed) {
    std::string hint;
    if (b.rows == 1 && b.cols == a.rows()) {
        hint = "; it is one row, a column is needed";
    } else if (b.rows == a.cols()) {
        hint = transposed ? "; it would fit without --transpose" : "; it would fit A^T (--transpose)";
    }
    throw InputError(fmt::format("{}: b has {} rows, {} is {} x {}: {} rows are needed{}", path, b.rows,
                                 transposed ? "A^T" : "A", a.rows(), a.cols(), a.rows(), hint));
}

void load_b(Problem& problem, const CommandLine& line, const std::string& note) {
    const CsrMatrix& a = *problem.a;
    problem.columns = 1;
    switch (line.rhs.kind) {
        case RhsSource::Kind::beside:
            problem.columns = 0;
            break;  // --check: b was not asked for
        case RhsSource::Kind::file: {
            DenseFile file = read_columns(line.rhs.path, line, problem.warnings);
            if (file.rows != a.rows()) refuse_b(line.rhs.path, file, a, line.transpose);
            if (file.cols == 0) throw InputError(line.rhs.path + ": b has no columns");
            problem.columns = file.cols;
            problem.b = std::move(file.values);
            problem.b_origin = note.empty() ? line.rhs.path : fmt::format("{} ({})", line.rhs.path, note);
            break;
        }
        case RhsSource::Kind::ones:
            problem.b.assign(static_cast<std::size_t>(a.rows()), 1.0);
            problem.b_origin = "ones";
            break;
        case RhsSource::Kind::product:
            problem.x_true = uniform_vector(a.cols(), line.rhs.seed);
            problem.b = product(a, problem.x_true);
            problem.b_origin = fmt::format("A xtrue, with xtrue uniform in [-1, 1) from seed {}", line.rhs.seed);
            break;
        case RhsSource::Kind::random:
            problem.b = uniform_vector(a.rows(), line.rhs.seed);
            problem.b_origin = fmt::format("uniform in [-1, 1) from seed {}", line.rhs.seed);
            break;
    }
}

// A vector for each column of b: x0 or the centre, from a file that holds one for all or one for each.
std::vector<double> load_each(Problem& problem, const CommandLine& line, const std::string& path, const char* what) {
    const std::int64_t cols = problem.a->cols();
    const DenseFile file = read_columns(path, line, problem.warnings);
    const bool fits = file.rows == cols && (file.cols == 1 || file.cols == problem.columns || problem.columns == 0);
    if (!fits) {
        throw InputError(fmt::format(
            "{0}: {1} is {2} x {3}, {4} is {5} x {6} and b has {7} column{8}: {1} must be {6} x {7}{9}", path, what,
            file.rows, file.cols, line.transpose ? "A^T" : "A", problem.a->rows(), cols, problem.columns,
            problem.columns == 1 ? "" : "s", problem.columns == 1 ? "" : fmt::format(" or {} x 1", cols)));
    }
    std::vector<double> each(static_cast<std::size_t>(cols * problem.columns));
    for (std::size_t i = 0; i < each.size(); ++i) each[i] = file.values[i % file.values.size()];
    return each;
}

// One number of at least 0 for each row or column of A.
std::vector<double> load_factors(Problem& problem, const CommandLine& line, const std::string& path, const char* what,
                                 std::int64_t size, const char* of) {
    DenseFile file = read_columns(path, line, problem.warnings);
    const char* a = line.transpose ? "A^T" : "A";
    if (file.rows != size || file.cols != 1) {
        throw InputError(fmt::format("{}: {} are {} x {}, {} is {} x {}: one for each {} is needed, {} x 1", path, what,
                                     file.rows, file.cols, a, problem.a->rows(), problem.a->cols(), of, size));
    }
    for (std::size_t i = 0; i < file.values.size(); ++i) {
        if (file.values[i] < 0) {
            throw InputError(
                fmt::format("{}: entry {} is {}: {} must not be negative", path, i + 1, file.values[i], what));
        }
    }
    return std::move(file.values);
}

void load_regularisation(Problem& problem, const CommandLine& line) {
    const CsrMatrix& a = *problem.a;
    if (!line.weights.empty())
        problem.weights = load_factors(problem, line, line.weights, "the weights", a.rows(), "row");
    if (!line.column_damp.empty()) {
        problem.column_damp = load_factors(problem, line, line.column_damp, "the dampings", a.cols(), "column");
    }
    if (!line.preconditioner.empty()) {
        MatrixFile file = read_matrix(line.preconditioner, line.read);
        problem.warnings.insert(problem.warnings.end(), file.warnings.begin(), file.warnings.end());
        if (file.matrix.rows() != a.cols() || file.matrix.cols() != a.cols()) {
            throw InputError(fmt::format("{}: K is {} x {}, {} is {} x {}: {} x {} is needed", line.preconditioner, file.matrix.rows(),
                                         file.matrix.cols(), line.transpose ? "A^T" : "A", a.rows(), a.cols(), a.cols(), a.cols()));
        }
        problem.preconditioner = std::make_shared<const CsrMatrix>(std::move(file.matrix));
    }
    if (line.regulariser.empty()) return;
    MatrixFile file = read_matrix(line.regulariser, line.read);
    problem.warnings.insert(problem.warnings.end(), file.warnings.begin(), file.warnings.end());
    if (file.matrix.cols() != a.cols()) {
        throw InputError(fmt::format("{}: L is {} x {}, {} is {} x {}: both need as many columns", line.regulariser,
                                     file.matrix.rows(), file.matrix.cols(), line.transpose ? "A^T" : "A", a.rows(),
                                     a.cols()));
    }
    problem.regulariser = std::make_shared<const CsrMatrix>(std::move(file.matrix));
}

void load_x(Problem& problem, const CommandLine& line) {
    if (!line.center.empty()) problem.center = load_each(problem, line, line.center, "the centre");
    if (line.x0.empty()) {
        problem.x.assign(static_cast<std::size_t>(problem.a->cols() * problem.columns), 0.0);
    } else {
        problem.x = load_each(problem, line, line.x0, "x0");
    }
}

}  // namespace

std::string resolve_rhs(CommandLine& line) {
    if (line.rhs.kind != RhsSource::Kind::beside || line.action == Action::check) return {};
    const bool from_stdin = line.matrix == "-";
    const RhsBeside beside = from_stdin ? RhsBeside{} : find_rhs_beside(line.matrix);
    if (beside.chosen.empty()) {
        if (!from_stdin) refuse_unreadable(line.matrix);  // a mistyped A explains a missing b
        throw UsageError(
            fmt::format("no right-hand side: there is no _b.mtx or _rhs.mtx beside {}; give b, or --rhs ones, "
                        "random:SEED or Ax:SEED",
                        from_stdin ? "standard input" : line.matrix));
    }
    line.rhs.kind = RhsSource::Kind::file;
    line.rhs.path = beside.chosen;
    if (beside.others.empty()) return "found beside A";
    std::string others;
    for (const std::string& other : beside.others) others += " " + std::filesystem::path(other).filename().string();
    return "found beside A; not taken:" + others;
}

std::vector<std::string> input_paths(const CommandLine& line) {
    std::vector<std::string> paths;
    for (const std::string& path :
         {line.matrix, line.rhs.path, line.x0, line.center, line.weights, line.column_damp, line.regulariser, line.preconditioner, line.plan}) {
        if (!path.empty() && path != "-") paths.push_back(path);
    }
    return paths;
}

Problem load_problem(const CommandLine& line, const std::string& rhs_note) {
    refuse_terminal(line.matrix);
    Problem problem;
    const Stopwatch watch;
    MatrixFile file = read_matrix(line.matrix, line.read);
    problem.duplicates_summed = file.matrix.duplicates_summed();
    if (line.transpose) file.matrix = file.matrix.transposed();
    problem.read_seconds = watch.seconds();
    problem.a = std::make_shared<const CsrMatrix>(std::move(file.matrix));
    problem.summary = summarize(*problem.a);
    problem.warnings = std::move(file.warnings);
    load_b(problem, line, rhs_note);
    load_x(problem, line);
    load_regularisation(problem, line);
    return problem;
}

}  // namespace lsmr
