// Recipes that have the shape, the row and column lengths and the locality of well-known matrices, with random values
// in
// [-1, 1) where the originals' are not integers. Sizes and statistics of the originals: SuiteSparse Matrix Collection,
// https://sparse.tamu.edu.
#include <fmt/format.h>

#include <cmath>

#include "data/generators_recipes.hpp"

namespace lsmr::recipes {
namespace {

using portable::Random;

// Appends columns drawn by draw() until there are `count` different ones. draw() must be able to give several times as
// many.
template <class Draw>
void draw_distinct(std::vector<std::int32_t>& columns, std::int64_t count, const Draw& draw) {
    const auto wanted = static_cast<std::size_t>(count);
    while (columns.size() < wanted) {
        while (columns.size() < wanted) columns.push_back(static_cast<std::int32_t>(draw()));
        std::sort(columns.begin(), columns.end());
        columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    }
}

// `count` different columns of 0 .. cols - 1, in ascending order. Few: all choices equally likely. Many: one from each
// of `count` equal parts, which needs no sorting.
void draw_uniform(std::vector<std::int32_t>& columns, std::int64_t count, std::int64_t cols, Random& random) {
    constexpr std::int64_t kFew = 64;
    if (count <= kFew && count <= cols / 4) {
        draw_distinct(columns, count, [&] { return random.below(cols); });
        return;
    }
    for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t begin = k * cols / count;
        const std::int64_t end = (k + 1) * cols / count;
        columns.push_back(static_cast<std::int32_t>(begin + random.below(end - begin)));
    }
}

// Pareto's law: at least `shortest`, P(length > t) = (t / shortest)^-exponent, cut at `longest`.
std::int64_t power_law(Random& random, double shortest, double exponent, double longest) {
    return static_cast<std::int64_t>(std::min(longest, shortest * portable::power(1 - random.unit(), -1 / exponent)));
}

// A place of 0 .. n - 1 with density falling from the front: n w^2, n w^3.
std::int64_t skewed(double n, double power_of_w) {
    return static_cast<std::int64_t>(n * power_of_w);
}

void check_row_length(const char* name, const Spread& length, std::int64_t cols) {
    if (length.most() > cols) {
        throw InputError(fmt::format("{}: rows of {} entries do not fit into {} columns", name, length.most(), cols));
    }
}

}  // namespace

// Ratings: each observation is {student, instructor, department of the instructor, 1}, all ones; then one penalty row
// for each column but the last. Students and instructors that come early are more active.
GeneratedProblem make_sls(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t observations = arguments.whole("observations");
    const std::int64_t students = arguments.whole("students");
    const std::int64_t instructors = arguments.whole("instructors");
    const std::int64_t departments = arguments.whole("departments");
    const double penalty = arguments.real("penalty");
    const std::int64_t cols = students + instructors + departments + 1;
    check_shape("sls", observations + cols - 1, cols);
    GeneratedProblem problem;
    problem.a = build_rows(
        observations + cols - 1, cols, [&](std::int64_t i) { return i < observations ? 4 : 1; },
        [&](std::int64_t i, Row& row) {
            if (i >= observations) {
                row.add(i - observations, penalty);
                return;
            }
            Random random(seed, kRow, i);
            const double w = random.unit(), v = random.unit();
            // The first ones visit everybody once.
            const std::int64_t student = i < students ? i : skewed(static_cast<double>(students), w * std::sqrt(w));
            const std::int64_t instructor = i < instructors ? i : skewed(static_cast<double>(instructors), v * v);
            Random kind(seed, kKind, instructor);
            const std::int64_t department = instructor < departments ? instructor : kind.below(departments);
            row.add(student, 1);
            row.add(students + instructor, 1);
            row.add(students + instructors + department, 1);
            row.add(cols - 1, 1);
        });
    return problem;
}

// Random columns, all equally likely.
GeneratedProblem make_uniform(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t cols = arguments.whole("cols");
    const Spread length = spread_average(arguments.real("per_row"), rows);
    check_row_length("uniform", length, cols);
    GeneratedProblem problem;
    problem.a = build_rows(rows, cols, length, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        draw_uniform(row.columns, length(i), cols, random);
        row.sort_and_fill(random);
    });
    return problem;
}

// A few columns a row, close together, moving along with the row.
GeneratedProblem make_short(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t cols = arguments.whole("cols");
    const Spread length = spread_average(arguments.real("per_row"), rows);
    check_row_length("short", length, cols);
    // Columns of a row are up to `gap` apart, so that a row never meets itself around the end.
    const std::int64_t gap = std::clamp<std::int64_t>(cols / std::max<std::int64_t>(length.most(), 1), 1, 16);
    GeneratedProblem problem;
    problem.a = build_rows(rows, cols, length, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        std::int64_t column = i * cols / rows;
        for (std::int64_t k = 0; k < length(i); ++k) {
            row.columns.push_back(static_cast<std::int32_t>(column % cols));
            column += 1 + random.below(gap);
        }
        row.sort_and_fill(random);
    });
    return problem;
}

// Power laws in both directions: row lengths shortest (1 - u)^(-1/exponent), columns cols w^3.
GeneratedProblem make_powerlaw(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t cols = arguments.whole("cols");
    const double shortest = arguments.real("shortest");
    const double exponent = arguments.real("exponent");
    const double longest = arguments.real("longest");
    GeneratedProblem problem;
    problem.a = build_rows(rows, cols, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        for (std::int64_t left = power_law(random, shortest, exponent, longest); left > 0; --left) {
            const double w = random.unit();
            row.columns.push_back(static_cast<std::int32_t>(skewed(static_cast<double>(cols), w * w * w)));
        }
        row.sort_and_fill(random);
    });
    return problem;
}

// Values 1 and -1 in random columns; a fraction of the rows is empty, the others have 2, 3 or 4 entries (1 : 2 : 2).
GeneratedProblem make_relat(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t cols = arguments.whole("cols");
    const double empty = arguments.real("empty");
    GeneratedProblem problem;
    problem.a = build_rows(rows, cols, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        if (random.unit() < empty) return;
        const std::int64_t draw = random.below(5);
        draw_uniform(row.columns, draw == 0 ? 2 : draw <= 2 ? 3 : 4, cols, random);
        for (std::size_t k = 0; k < row.columns.size(); ++k) row.values.push_back(random.below(2) == 0 ? 1 : -1);
    });
    return problem;
}

// More columns than rows, many of them empty: each row has a column of its own, so that the rows are independent, and
// others near it among the columns in use.
GeneratedProblem make_wide(const Arguments& arguments, std::uint64_t seed) {
    constexpr std::int64_t kWindow = 200;
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t cols = arguments.whole("cols");
    const auto used = static_cast<std::int64_t>(static_cast<double>(cols) * arguments.real("used"));
    const Spread length = spread_average(arguments.real("per_row"), rows);
    if (used < rows)
        throw InputError(fmt::format("wide: {} rows need as many columns in use, but there are {}", rows, used));
    const std::int64_t window = std::min(used, kWindow);
    if (length.most() > std::max<std::int64_t>(window / 4, 1)) {
        throw InputError(
            fmt::format("wide: rows of {} entries are too long; at most {} here", length.most(), window / 4));
    }
    GeneratedProblem problem;
    problem.a = build_rows(rows, cols, length, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        const std::int64_t own = i * used / rows;
        const auto column_of = [&](std::int64_t place) { return place % used * cols / used; };
        if (length(i) > 0) row.columns.push_back(static_cast<std::int32_t>(column_of(own)));
        draw_distinct(row.columns, length(i), [&] { return column_of(own + random.below(window)); });
        row.sort_and_fill(random);
    });
    return problem;
}

// A linear program's constraints: columns of nearly equal length, rows of very different ones (rows w^2). Made by
// columns.
GeneratedProblem make_lp(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t cols = arguments.whole("cols");
    const Spread length = spread_average(arguments.real("per_col"), cols);
    if (length.most() > rows / 4) {
        throw InputError(fmt::format("lp: columns of {} entries are too long for {} rows; at most {}", length.most(),
                                     rows, rows / 4));
    }
    GeneratedProblem problem;
    const CsrMatrix transpose = build_rows(cols, rows, length, [&](std::int64_t j, Row& column) {
        Random random(seed, kRow, j);
        draw_distinct(column.columns, length(j), [&] {
            const double w = random.unit();
            return skewed(static_cast<double>(rows), w * w);
        });
        column.sort_and_fill(random);
    });
    problem.a = transpose.transposed();
    return problem;
}

// A circuit: almost all rows have 1 to 9 entries, a few nets touch much of the circuit. Row lengths by class, as
// counted in circuit5M: lengths from a share of the rows, low (high / low)^(u^4).
GeneratedProblem make_circuit(const Arguments& arguments, std::uint64_t seed) {
    constexpr std::int64_t kWindow = 50;
    const std::int64_t rows = arguments.whole("rows");
    struct Class {
        double share;  // of the rows
        double low, high;
    };
    const double n = static_cast<double>(rows);
    const Class classes[] = {
        {6 / 5558326.0, 0.18 * n, 0.232 * n},
        {14 / 5558326.0, 0.018 * n, 0.06 * n},
        {7568 / 5558326.0, 1000, 9999},
        {20298 / 5558326.0, 100, 999},
        {0.059, 10, 99},
    };
    GeneratedProblem problem;
    problem.a = build_rows(rows, rows, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        const auto rank = static_cast<double>(scatter(i, rows));  // classes are exact counts, spread over the rows
        double end = 0;
        for (const Class& c : classes) {
            const double begin = end;
            end += std::max(1.0, std::floor(c.share * n + 0.5));
            if (rank >= end || rank < begin) continue;
            const double u = random.unit();
            const double length = std::min(c.low * portable::power(c.high / c.low, u * u * u * u), n / 4);
            draw_uniform(row.columns, static_cast<std::int64_t>(length), rows, random);
        }
        if (rank >= end) {
            for (std::int64_t left = random.below(9); left > 0; --left) {
                const double w = random.unit();
                const bool net = random.unit() < 0.3;  // a net shared with many others, else a neighbour
                const std::int64_t near = i + random.below(2 * kWindow + 1) - kWindow;
                const std::int64_t column =
                    net ? skewed(n, w * w * w * w) : std::clamp<std::int64_t>(near, 0, rows - 1);
                row.columns.push_back(static_cast<std::int32_t>(column));
            }
        }
        row.columns.push_back(static_cast<std::int32_t>(i));
        row.sort_and_fill(random);
    });
    return problem;
}

// Links between pages: runs of neighbouring columns, mostly near the row; with probability `copy` a row has the columns
// of the row before it.
GeneratedProblem make_web(const Arguments& arguments, std::uint64_t seed) {
    constexpr double kGoOn = 2.0 / 3;       // so that runs have 3 columns on average
    constexpr double kNear = 0.8;           // share of the runs on the same host
    constexpr std::int64_t kWindow = 5000;  // pages of a host to either side
    const std::int64_t rows = arguments.whole("rows");
    const double shortest = arguments.real("shortest");
    const double longest = std::min(arguments.real("longest"), static_cast<double>(rows) / 4);
    const double copy = arguments.real("copy");
    GeneratedProblem problem;
    problem.a = build_rows(rows, rows, [&](std::int64_t i, Row& row) {
        std::int64_t origin = i;
        while (origin > 0 && Random(seed, kKind, origin).unit() < copy) --origin;
        Random pattern(seed, kPlace, origin);
        std::int64_t left = power_law(pattern, shortest, 2, std::max(longest, 1.0));
        while (left > 0) {
            const bool near = pattern.unit() < kNear;
            std::int64_t column =
                near ? std::clamp<std::int64_t>(origin + pattern.below(2 * kWindow + 1) - kWindow, 0, rows - 1)
                     : pattern.below(rows);
            do {
                row.columns.push_back(static_cast<std::int32_t>(column++ % rows));
                --left;
            } while (left > 0 && pattern.unit() < kGoOn);
        }
        Random random(seed, kRow, i);
        row.sort_and_fill(random);
    });
    return problem;
}

// One row holds most columns; every other has its own column, and some one more.
GeneratedProblem make_star(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const double share = arguments.real("share");
    const double second = arguments.real("second");
    GeneratedProblem problem;
    problem.a = build_rows(rows, rows, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        if (i == rows / 2) {
            draw_uniform(row.columns, static_cast<std::int64_t>(share * static_cast<double>(rows)), rows, random);
        } else if (random.unit() < second) {
            row.columns.push_back(static_cast<std::int32_t>(random.below(rows)));
        }
        row.columns.push_back(static_cast<std::int32_t>(i));
        row.sort_and_fill(random);
    });
    return problem;
}

// Orbits: rows in arcs; an arc has unknowns of its own, and all rows share a few global ones (a third of a row's
// entries).
GeneratedProblem make_arcs(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t arcs = arguments.whole("arcs");
    const std::int64_t locals = arguments.whole("locals");
    const std::int64_t globals = arguments.whole("globals");
    const std::int64_t cols = globals + arcs * locals;
    check_shape("arcs", rows, cols);
    const Spread length = spread_average(arguments.real("per_row"), rows);
    const std::int64_t most_shared = length.most() / 3;
    if (4 * most_shared > globals || length.most() - most_shared > locals) {
        throw InputError(fmt::format("arcs: rows of {} entries need at least {} globals and {} locals", length.most(),
                                     4 * most_shared, length.most() - most_shared));
    }
    GeneratedProblem problem;
    problem.a = build_rows(rows, cols, length, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        draw_uniform(row.columns, length(i) - length(i) / 3, locals, random);
        const std::int64_t first = globals + i * arcs / rows * locals;
        for (std::int32_t& column : row.columns) column += static_cast<std::int32_t>(first);
        draw_distinct(row.columns, length(i), [&] { return random.below(globals); });
        row.sort_and_fill(random);
    });
    return problem;
}

// Columns from `rank` on are exact copies of earlier ones, so the rank is at most `rank`; row lengths follow a power
// law.
GeneratedProblem make_deficient(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t cols = arguments.whole("cols");
    const std::int64_t rank = arguments.whole("rank");
    const double shortest = arguments.real("shortest");
    if (rank > cols) throw InputError(fmt::format("deficient: rank {} with {} columns", rank, cols));
    GeneratedProblem problem;
    problem.a = build_rows(rows, cols, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        const double longest = static_cast<double>(rank) / 2;
        for (std::int64_t left = power_law(random, shortest, 1.5, std::max(longest, 1.0)); left > 0; --left) {
            row.columns.push_back(static_cast<std::int32_t>(random.below(rank)));
        }
        row.sort_and_fill(random);
        const std::size_t originals = row.columns.size();
        for (std::size_t k = 0; k < originals; ++k) {
            for (std::int64_t twin = row.columns[k] + rank; twin < cols; twin += rank) row.add(twin, row.values[k]);
        }
        row.sort();
    });
    return problem;
}

}  // namespace lsmr::recipes
