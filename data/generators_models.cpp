// Recipes that model something: rays, surveys, cameras, grids, surfaces, and the SOL test family.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "data/generators_recipes.hpp"

namespace lsmr {
namespace {

using portable::Random;
using Point = std::array<double, 3>;
using Cell = std::array<std::int64_t, 3>;

std::vector<double> unit_vector(std::int64_t size, double (*wave)(double)) {
    constexpr double kTurnsPerRadian = 0.159154943091895336;
    std::vector<double> v(static_cast<std::size_t>(size));
    double sum = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
        v[i] = wave(static_cast<double>(i + 1) * kTurnsPerRadian);
        sum += v[i] * v[i];
    }
    for (double& value : v) value /= std::sqrt(sum);
    return v;
}

// v <- (I - 2 w w^T) v
void reflect(const std::vector<double>& w, std::vector<double>& v) {
    const double dot = std::inner_product(w.begin(), w.end(), v.begin(), 0.0);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] -= 2 * dot * w[i];
}

// A box of nx * ny * nz unit cells with a corner at the origin. Cell (x, y, z) is column (z ny + y) nx + x.
struct Box {
    Cell cells;
    std::int64_t size() const { return cells[0] * cells[1] * cells[2]; }
};

// visit(column, length) for each cell on the straight way between two points of the box, in order, with the length
// inside it. Source: J. Amanatides and A. Woo, Eurographics 1987; the crossings are computed afresh, so that errors do
// not add up.
template <class Visit>
void trace(const Box& box, const Point& from, const Point& to, const Visit& visit) {
    Cell cell;
    Cell step;
    Point way;
    for (std::size_t a = 0; a < 3; ++a) {
        way[a] = to[a] - from[a];
        step[a] = way[a] > 0 ? 1 : -1;
        cell[a] = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(from[a])), 0, box.cells[a] - 1);
    }
    const double length = std::sqrt(way[0] * way[0] + way[1] * way[1] + way[2] * way[2]);
    const auto crossing =
        [&](std::size_t a) {  // where the way leaves the cell through axis a, as a fraction of the way
            if (way[a] == 0) return std::numeric_limits<double>::infinity();
            return (static_cast<double>(cell[a] + (step[a] > 0)) - from[a]) / way[a];
        };
    Point next = {crossing(0), crossing(1), crossing(2)};
    for (double done = 0;;) {
        const auto axis = static_cast<std::size_t>(std::min_element(next.begin(), next.end()) - next.begin());
        const double leave = std::min(next[axis], 1.0);
        if (leave > done) {
            visit((cell[2] * box.cells[1] + cell[1]) * box.cells[0] + cell[0], (leave - done) * length);
            done = leave;
        }
        cell[axis] += step[axis];
        if (next[axis] >= 1 || cell[axis] < 0 || cell[axis] >= box.cells[axis]) return;
        next[axis] = crossing(axis);
    }
}

// What the rays look at: a shell with a few bodies inside, in coordinates from -1 to 1.
double phantom(double u, double v, double w) {
    struct Ellipsoid {
        double u, v, w, ru, rv, rw, density;
    };
    static constexpr Ellipsoid kBodies[] = {
        {0, 0, 0, 0.90, 0.90, 0.90, 1.0},          {0, 0, 0, 0.70, 0.70, 0.70, -0.75},
        {-0.28, 0.25, 0, 0.20, 0.20, 0.35, 1.25},  {0.32, 0.20, 0.1, 0.15, 0.30, 0.30, 0.75},
        {0, -0.35, -0.1, 0.35, 0.15, 0.30, -0.25},
    };
    double density = 0;
    for (const Ellipsoid& e : kBodies) {
        const double a = (u - e.u) / e.ru, b = (v - e.v) / e.rv, c = (w - e.w) / e.rw;
        if (a * a + b * b + c * c <= 1) density += e.density;
    }
    return density;
}

std::vector<double> phantom_of(const Box& box) {
    const auto centre = [&box](std::int64_t cell, std::size_t a) {
        return (2 * static_cast<double>(cell) + 1) / static_cast<double>(box.cells[a]) - 1;
    };
    std::vector<double> x;
    x.reserve(static_cast<std::size_t>(box.size()));
    for (std::int64_t z = 0; z < box.cells[2]; ++z) {
        for (std::int64_t y = 0; y < box.cells[1]; ++y) {
            for (std::int64_t i = 0; i < box.cells[0]; ++i)
                x.push_back(phantom(centre(i, 0), centre(y, 1), centre(z, 2)));
        }
    }
    return x;
}

}  // namespace

// With h = Y r and w = Z x, the condition A^T r = damp^2 x reads d_i h_i = damp^2 w_i for i <= k, and 0 = damp^2 w_i
// for i > k. So w and the rest of h (i > k) are free, w_i = 0 for i > k (which also makes x the shortest where damp =
// 0), and h_i = damp^2 w_i / d_i.
GeneratedProblem lstp(std::int64_t rows, std::int64_t cols, std::int64_t duplicates, std::int64_t power, double damp) {
    constexpr std::int64_t kMaxEntries = 100'000'000;
    recipes::check_shape("lstp", rows, cols);
    if (rows > kMaxEntries / cols) {
        throw InputError(
            fmt::format("lstp: the matrix is dense; {} x {} is more than {} entries", rows, cols, kMaxEntries));
    }
    if (duplicates < 1) throw InputError(fmt::format("lstp: duplicates is {}; it must be at least 1", duplicates));
    if (power < 0 || power > 20) throw InputError(fmt::format("lstp: power is {}; it must be between 0 and 20", power));
    if (!(damp >= 0 && damp <= 1e6))
        throw InputError(fmt::format("lstp: damp is {}; it must be between 0 and 1e6", damp));

    const auto k = static_cast<std::size_t>(std::min(rows, cols));
    std::vector<double> d(k);
    for (std::size_t i = 0; i < k; ++i) {
        const std::int64_t step = (static_cast<std::int64_t>(i) + duplicates) / duplicates * duplicates;
        d[i] = 1;
        for (std::int64_t p = 0; p < power; ++p) d[i] *= static_cast<double>(step) / static_cast<double>(k);
    }
    const std::vector<double> y = unit_vector(rows, portable::sin_turns);
    const std::vector<double> z = unit_vector(cols, portable::cos_turns);

    // A = D - 2 y (D^T y)^T - 2 (D z) z^T + 4 (y^T D z) y z^T
    double ydz = 0;
    for (std::size_t i = 0; i < k; ++i) ydz += y[i] * d[i] * z[i];
    GeneratedProblem problem;
    problem.a = recipes::build_rows(
        rows, cols, [cols](std::int64_t) { return cols; },
        [&](std::int64_t row, recipes::Row& out) {
            const auto i = static_cast<std::size_t>(row);
            const double dz_i = i < k ? d[i] * z[i] : 0.0;
            for (std::size_t j = 0; j < z.size(); ++j) {
                const double dy_j = j < k ? d[j] * y[j] : 0.0;
                const double diagonal = i == j && i < k ? d[i] : 0.0;
                out.add(static_cast<std::int64_t>(j), diagonal - 2 * y[i] * dy_j - 2 * (dz_i - 2 * ydz * y[i]) * z[j]);
            }
        });

    std::vector<double> w(z.size(), 0.0);
    for (std::size_t i = 0; i < k; ++i)
        w[i] = 1 + static_cast<double>(k - i) / static_cast<double>(k);  // 2 down to above 1
    std::vector<double> h(y.size());
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = i < k ? damp * damp * w[i] / d[i] : (i % 2 == 0 ? 0.01 : -0.01);
    std::vector<double> b(h);
    for (std::size_t i = 0; i < k; ++i) b[i] += d[i] * w[i];  // Y b = D w + h
    problem.residual_norm = std::sqrt(std::inner_product(h.begin(), h.end(), h.begin(), 0.0));
    reflect(y, b);
    reflect(z, w);
    problem.b = std::move(b);
    problem.x = std::move(w);
    problem.x_is_exact = true;
    problem.damp = damp;
    problem.cond = d.back() / d.front();
    return problem;
}

namespace recipes {

GeneratedProblem make_lstp(const Arguments& arguments, std::uint64_t) {
    return lstp(arguments.whole("rows"), arguments.whole("cols"), arguments.whole("duplicates"),
                arguments.whole("power"), arguments.real("damp"));
}

// Row: the cells along a ray between random points of two opposite faces. With more than one leg it is reflected there.
GeneratedProblem make_tomography(const Arguments& arguments, std::uint64_t seed) {
    const Box box{{arguments.whole("nx"), arguments.whole("ny"), arguments.whole("nz")}};
    const std::int64_t rays = arguments.whole("rays");
    const std::int64_t legs = arguments.whole("legs");
    check_shape("tomography", rays, box.size());
    GeneratedProblem problem;
    problem.a = build_rows(rays, box.size(), [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        const auto axis = static_cast<std::size_t>(random.below(3));
        const auto on_face = [&](bool far) {
            Point p;
            for (std::size_t a = 0; a < 3; ++a) p[a] = random.unit() * static_cast<double>(box.cells[a]);
            p[axis] = far ? static_cast<double>(box.cells[axis]) : 0.0;
            return p;
        };
        Point from = on_face(false);
        for (std::int64_t leg = 0; leg < legs; ++leg) {
            const Point to = on_face(leg % 2 == 0);
            trace(box, from, to, [&row](std::int64_t column, double length) { row.add(column, length); });
            from = to;
        }
        row.sort();
    });
    problem.x = phantom_of(box);
    return problem;
}

// Row: the cells of a square along one of `detectors` parallel lines, at one of `angles` angles that divide half a
// turn.
GeneratedProblem make_parallel_beam(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t grid = arguments.whole("grid");
    const std::int64_t angles = arguments.whole("angles");
    const std::int64_t detectors = arguments.whole("detectors");
    const Box box{{grid, grid, 1}};
    check_shape("parallel_beam", angles * detectors, box.size());
    const double side = static_cast<double>(grid);
    GeneratedProblem problem;
    problem.a = build_rows(angles * detectors, box.size(), [&](std::int64_t i, Row& row) {
        const double turns = static_cast<double>(i / detectors) / static_cast<double>(2 * angles);
        const double cosine = portable::cos_turns(turns);
        const double sine = portable::sin_turns(turns);
        const double offset =
            ((static_cast<double>(i % detectors) + 0.5) / static_cast<double>(detectors) - 0.5) * side;
        const Point middle = {side / 2 + offset * cosine, side / 2 + offset * sine, 0.5};
        const Point direction = {-sine, cosine, 0};
        // The part of the line inside the square. |offset| < side / 2, so the line meets it.
        double enter = -2 * side;
        double leave = 2 * side;
        for (std::size_t a = 0; a < 2; ++a) {
            if (direction[a] == 0) continue;
            const double low = -middle[a] / direction[a];
            const double high = (side - middle[a]) / direction[a];
            enter = std::max(enter, std::min(low, high));
            leave = std::min(leave, std::max(low, high));
        }
        const auto at = [&](double t) {
            return Point{middle[0] + t * direction[0], middle[1] + t * direction[1], 0.5};
        };
        trace(box, at(enter), at(leave), [&row](std::int64_t column, double length) { row.add(column, length); });
        row.sort();
    });
    problem.x = phantom_of(box);
    static_cast<void>(seed);  // everything but the noise is given by the geometry
    return problem;
}

// Heights in metres of benchmarks on a jittered lattice with a side of 1 km, from height differences measured along its
// edges: row = (h_q - h_p) / s with s = 1 mm per square root of a kilometre; then rows h_p / s, s = 1 mm, for
// benchmarks whose heights are given. Rows are weighted, so the residual is in standard deviations.
GeneratedProblem make_levelling(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t width = arguments.whole("width");
    const std::int64_t height = arguments.whole("height");
    const std::int64_t fixed = arguments.whole("fixed");
    const std::int64_t points = width * height;
    const std::int64_t across = (width - 1) * height;
    const std::int64_t down = width * (height - 1);
    check_shape("levelling", across + down + fixed, points);
    if (fixed > points)
        throw InputError(fmt::format("levelling: {} fixed heights, but only {} benchmarks", fixed, points));
    constexpr double kPerMillimetre = 1000;

    const auto place = [&](std::int64_t p) {
        Random random(seed, kPlace, p);
        return Point{static_cast<double>(p % width) + 0.3 * random.symmetric(),
                     static_cast<double>(p / width) + 0.3 * random.symmetric(), 0};
    };
    GeneratedProblem problem;
    problem.a = build_rows(
        across + down + fixed, points, [&](std::int64_t i) { return i < across + down ? 2 : 1; },
        [&](std::int64_t i, Row& row) {
            if (i >= across + down) {
                // Spread over the network: the middles of equal parts of it.
                row.add((2 * (i - across - down) + 1) * points / (2 * fixed), kPerMillimetre);
                return;
            }
            const bool is_across = i < across;
            const std::int64_t p = is_across ? i / (width - 1) * width + i % (width - 1) : i - across;
            const std::int64_t q = is_across ? p + 1 : p + width;
            const Point from = place(p), to = place(q);
            const double dx = to[0] - from[0], dy = to[1] - from[1];
            const double weight = kPerMillimetre / std::sqrt(std::sqrt(dx * dx + dy * dy));
            row.add(p, -weight);
            row.add(q, weight);
        });
    for (std::int64_t p = 0; p < points; ++p) {  // a hill, rounded to the millimetre as heights are given
        const Point at = place(p);
        const double u = at[0] / static_cast<double>(width) - 0.4, v = at[1] / static_cast<double>(height) - 0.6;
        const double metres = 180 + 95 / (1 + 8 * (u * u + v * v)) + 4 * Random(seed, kAnswer, p).symmetric();
        problem.x.push_back(std::floor(metres * kPerMillimetre + 0.5) / kPerMillimetre);
    }
    make_rhs(problem, arguments.real("noise"), seed);
    return problem;
}

// Two rows an observation: the 9 unknowns of its camera and the 3 of its point. Points in order, each seen by cameras
// near one another, as along a flight.
GeneratedProblem make_bundle(const Arguments& arguments, std::uint64_t seed) {
    constexpr std::int64_t kCamera = 9, kPoint = 3, kNeighbours = 32;
    const std::int64_t cameras = arguments.whole("cameras");
    const std::int64_t points = arguments.whole("points");
    const std::int64_t observations = arguments.whole("observations");
    const std::int64_t cols = kCamera * cameras + kPoint * points;
    check_shape("bundle", 2 * observations, cols);
    GeneratedProblem problem;
    problem.a = build_rows(
        2 * observations, cols, [](std::int64_t) { return kCamera + kPoint; },
        [&](std::int64_t i, Row& row) {
            const std::int64_t observation = i / 2;
            const std::int64_t point = observation * points / observations;
            const std::int64_t home = point * cameras / points;
            Random place(seed, kPlace, observation);
            const std::int64_t camera = (home + place.below(std::min(cameras, kNeighbours))) % cameras;
            Random random(seed, kRow, i);
            for (std::int64_t k = 0; k < kCamera; ++k) row.add(kCamera * camera + k, random.symmetric());
            for (std::int64_t k = 0; k < kPoint; ++k)
                row.add(kCamera * cameras + kPoint * point + k, random.symmetric());
        });
    return problem;
}

// A second-order operator with random conductances on a grid, zero outside: row = sum over neighbours of w (x_p - x_q).
// With several unknowns a point, its other unknowns and its neighbours' are coupled by random values, and the diagonal
// is the sum of absolute values, so the matrix stays diagonally dominant.
GeneratedProblem make_stencil(const Arguments& arguments, std::uint64_t seed) {
    const Box box{{arguments.whole("nx"), arguments.whole("ny"), arguments.whole("nz")}};
    const std::int64_t reach = arguments.whole("points");
    const std::int64_t unknowns = arguments.whole("unknowns");
    if (reach != 5 && reach != 7 && reach != 9 && reach != 27) {
        throw InputError(fmt::format("stencil: points is {}; it must be 5, 7, 9 or 27", reach));
    }
    const bool flat = reach == 5 || reach == 9;
    if (flat && box.cells[2] != 1) {
        throw InputError(
            fmt::format("stencil: {} points are for plane grids, but nz is {}; set it to 1", reach, box.cells[2]));
    }
    check_shape("stencil", box.size(), box.size());  // box.size() fits in 64 bits: each side is below 2^20
    check_shape("stencil", box.size() * unknowns, box.size() * unknowns);

    std::vector<Cell> offsets;
    for (std::int64_t dz = flat ? 0 : -1; dz <= (flat ? 0 : 1); ++dz) {
        for (std::int64_t dy = -1; dy <= 1; ++dy) {
            for (std::int64_t dx = -1; dx <= 1; ++dx) {
                if (reach >= 9 || std::abs(dx) + std::abs(dy) + std::abs(dz) <= 1) offsets.push_back({dx, dy, dz});
            }
        }
    }
    const auto cell_of = [&box](std::int64_t point) {
        const auto& [nx, ny, nz] = box.cells;
        return Cell{point % nx, point / nx % ny, point / (nx * ny)};
    };
    const auto inside = [&box](const Cell& cell, const Cell& offset) {
        bool all = true;
        for (std::size_t a = 0; a < 3; ++a) all &= cell[a] + offset[a] >= 0 && cell[a] + offset[a] < box.cells[a];
        return all;
    };
    const auto length = [&](std::int64_t i) {
        const Cell cell = cell_of(i / unknowns);
        return unknowns * std::count_if(offsets.begin(), offsets.end(), [&](const Cell& o) { return inside(cell, o); });
    };
    GeneratedProblem problem;
    problem.a = build_rows(box.size() * unknowns, box.size() * unknowns, length, [&](std::int64_t i, Row& row) {
        const std::int64_t point = i / unknowns;
        const Cell cell = cell_of(point);
        Random random(seed, kRow, i);
        double sum = 0;
        std::size_t diagonal = 0;
        for (const Cell& offset : offsets) {
            const std::int64_t other = point + (offset[2] * box.cells[1] + offset[1]) * box.cells[0] + offset[0];
            for (std::int64_t e = 0; e < unknowns; ++e) {
                const bool same = e == i % unknowns;
                const double value = same ? -0.5 - random.unit() : 0.25 * random.symmetric();
                // Not where a neighbour outside of a grid that is one point wide gets the number of the point itself.
                const bool is_diagonal = same && offset == Cell{0, 0, 0};
                if (is_diagonal) {
                    diagonal = row.columns.size();
                } else {
                    sum += std::abs(value);
                }
                if (is_diagonal || inside(cell, offset)) row.add(other * unknowns + e, value);
            }
        }
        row.values[diagonal] = sum;
    });
    return problem;
}

// A surface of bicubic B-splines on a grid of coefficients, observed at random places: 4 x 4 weights a row.
GeneratedProblem make_spline(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t grid = arguments.whole("grid");
    check_shape("spline", rows, grid * grid);
    const auto weights = [](double f) {
        const double g = 1 - f;
        return std::array<double, 4>{g * g * g / 6, (3 * f * f * (f - 2) + 4) / 6, (3 * g * g * (g - 2) + 4) / 6,
                                     f * f * f / 6};
    };
    GeneratedProblem problem;
    problem.a = build_rows(
        rows, grid * grid, [](std::int64_t) { return 16; },
        [&](std::int64_t i, Row& row) {
            Random random(seed, kRow, i);
            const double u = random.unit() * static_cast<double>(grid - 3);
            const double v = random.unit() * static_cast<double>(grid - 3);
            const auto wu = weights(u - std::floor(u));
            const auto wv = weights(v - std::floor(v));
            const std::int64_t corner = static_cast<std::int64_t>(v) * grid + static_cast<std::int64_t>(u);
            for (std::size_t y = 0; y < 4; ++y) {
                for (std::size_t x = 0; x < 4; ++x) {
                    row.add(corner + static_cast<std::int64_t>(y) * grid + static_cast<std::int64_t>(x), wu[x] * wv[y]);
                }
            }
        });
    return problem;
}

// An image from scattered samples: a weighted 5-point Laplacian for every pixel (free edges), then bilinear samples.
GeneratedProblem make_hardesty(const Arguments& arguments, std::uint64_t seed) {
    const std::int64_t width = arguments.whole("width");
    const std::int64_t height = arguments.whole("height");
    const std::int64_t samples = arguments.whole("samples");
    const std::int64_t pixels = width * height;
    check_shape("hardesty", pixels + samples, pixels);
    const auto length = [&](std::int64_t i) {
        if (i >= pixels) return 4;
        const std::int64_t x = i % width, y = i / width;
        return 1 + (x > 0) + (x + 1 < width) + (y > 0) + (y + 1 < height);
    };
    GeneratedProblem problem;
    problem.a = build_rows(pixels + samples, pixels, length, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        if (i >= pixels) {
            const double u = random.unit() * static_cast<double>(width - 1);
            const double v = random.unit() * static_cast<double>(height - 1);
            const double fu = u - std::floor(u), fv = v - std::floor(v);
            const std::int64_t corner = static_cast<std::int64_t>(v) * width + static_cast<std::int64_t>(u);
            row.add(corner, (1 - fu) * (1 - fv));
            row.add(corner + 1, fu * (1 - fv));
            row.add(corner + width, (1 - fu) * fv);
            row.add(corner + width + 1, fu * fv);
            return;
        }
        const std::int64_t x = i % width, y = i / width;
        double sum = 0;
        const auto neighbour = [&](bool exists, std::int64_t column) {
            const double weight = 0.5 + random.unit();
            if (!exists) return;
            sum += weight;
            row.add(column, -weight);
        };
        neighbour(y > 0, i - width);
        neighbour(x > 0, i - 1);
        const std::size_t diagonal = row.columns.size();
        row.add(i, 0);
        neighbour(x + 1 < width, i + 1);
        neighbour(y + 1 < height, i + width);
        row.values[diagonal] = sum;
    });
    return problem;
}

// A survey by satellite radar: each row compares two unknowns of a point (velocity and height) with those of a point
// nearby. Rows with three entries leave out one unknown of the second point, which fixes what would otherwise be free
// to shift.
GeneratedProblem make_rucci(const Arguments& arguments, std::uint64_t seed) {
    constexpr std::int64_t kWindow = 5;
    const std::int64_t rows = arguments.whole("rows");
    const std::int64_t width = arguments.whole("width");
    const std::int64_t height = arguments.whole("height");
    const std::int64_t points = width * height;
    check_shape("rucci", rows, 2 * points);
    const Spread length = spread_average(arguments.real("per_row"), rows);
    GeneratedProblem problem;
    problem.a = build_rows(rows, 2 * points, length, [&](std::int64_t i, Row& row) {
        Random random(seed, kRow, i);
        const std::int64_t p = i * points / rows;
        std::int64_t q = p;
        while (q == p) {
            const std::int64_t x = p % width + random.below(2 * kWindow + 1) - kWindow;
            const std::int64_t y = p / width + random.below(2 * kWindow + 1) - kWindow;
            q = std::clamp<std::int64_t>(y, 0, height - 1) * width + std::clamp<std::int64_t>(x, 0, width - 1);
        }
        const double time = 0.1 + random.unit();
        const double baseline = random.symmetric();
        row.add(2 * p, -time);
        row.add(2 * p + 1, -baseline);
        row.add(2 * q, time);
        if (length(i) == 4) row.add(2 * q + 1, baseline);
        row.sort();
    });
    return problem;
}

}  // namespace recipes
}  // namespace lsmr
