#include "data/generators.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "data/generators_recipes.hpp"
#include "operator/order.hpp"

namespace lsmr {
namespace recipes {

void Row::sort() {
    scratch_.clear();
    for (std::size_t k = 0; k < columns.size(); ++k) scratch_.emplace_back(columns[k], values[k]);
    std::sort(scratch_.begin(), scratch_.end());
    clear();
    for (const auto& [column, value] : scratch_) {
        if (!columns.empty() && columns.back() == column) {
            values.back() += value;
        } else {
            add(column, value);
        }
    }
}

void Row::sort_and_fill(portable::Random& random) {
    if (!std::is_sorted(columns.begin(), columns.end())) std::sort(columns.begin(), columns.end());
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    values.resize(columns.size());
    for (double& value : values) value = random.symmetric();
}

void check_shape(const std::string& name, std::int64_t rows, std::int64_t cols) {
    if (rows >= 1 && cols >= 1 && rows <= kMaxDimension && cols <= kMaxDimension) return;
    throw InputError(fmt::format("{}: the matrix would be {} x {}; rows and columns are between 1 and {}", name, rows,
                                 cols, kMaxDimension));
}

Spread spread_average(double average, std::int64_t places) {
    return Spread(static_cast<std::int64_t>(std::floor(average * static_cast<double>(places) + 0.5)), places);
}

void make_rhs(GeneratedProblem& problem, double deviation, std::uint64_t seed) {
    const CsrMatrix& a = problem.a;
    problem.b.resize(static_cast<std::size_t>(a.rows()));
    std::vector<double> noise(deviation > 0 ? problem.b.size() : 0);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        double sum = 0;
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            sum += a.values()[k] * problem.x[static_cast<std::size_t>(a.columns()[k])];
        }
        problem.b[static_cast<std::size_t>(i)] = sum;
        if (deviation > 0) {
            const double error = deviation * portable::Random(seed, kNoise, i).normal();
            noise[static_cast<std::size_t>(i)] = error;
            problem.b[static_cast<std::size_t>(i)] += error;
        }
    }
    problem.residual_norm = std::sqrt(std::inner_product(noise.begin(), noise.end(), noise.begin(), 0.0));
    problem.x_is_exact = deviation == 0;
}

}  // namespace recipes

namespace {

using Number = GeneratorParameter::Number;

constexpr double kMany = static_cast<double>(kMaxDimension);
constexpr double kSide = 1 << 20;  // of a grid: three of them still multiply within 64 bits
constexpr GeneratorParameter kNoise = {"noise",     0.01, 0, 1e6, 0, "norm of the noise in b, relative to ||A x||",
                                       Number::real};
constexpr GeneratorParameter kTranspose = {"transpose", 0, 0, 1, 0, "1: use the transposed matrix"};
constexpr GeneratorParameter kShuffle = {"shuffle", 0, 0, 1, 0, "1: rows and columns in random order"};

// Behind each recipe its own parameters; generators() adds the common ones.
struct Entry {
    GeneratorInfo info;
    recipes::Recipe recipe;
};

const std::vector<Entry>& table() {
    using namespace recipes;
    constexpr double kHalf = 1.0 / 2, kThird = 1.0 / 3;
    static const std::vector<Entry> entries = {
        {{"lstp",
          "dense SOL test problem with prescribed singular values and an exact answer",
          {{"rows", 80, 1, 1e8, 1, "rows"},
           {"cols", 40, 1, 1e8, 1, "columns"},
           {"duplicates", 1, 1, 1e8, 0, "how often each singular value repeats"},
           {"power", 1, 0, 20, 0, "singular values are (i / n)^power"},
           {"damp", 0, 0, 1e6, 0, "the problem's damping", Number::real}}},
         make_lstp},
        {{"tomography",
          "straight rays through a box of cells, exact lengths inside each",
          {{"nx", 20, 1, kSide, kThird, "cells along x"},
           {"ny", 20, 1, kSide, kThird, "cells along y"},
           {"nz", 20, 1, kSide, kThird, "cells along z"},
           {"rays", 12000, 1, kMany, 1, "rays between random points of opposite faces"},
           {"legs", 1, 1, 100, 0, "straight legs of a ray, which is reflected between them"}}},
         make_tomography},
        {{"parallel_beam",
          "a square slice seen by parallel beams from all sides",
          {{"grid", 64, 1, kSide, kHalf, "cells along each side"},
           {"angles", 90, 1, kSide, kHalf, "directions over half a turn"},
           {"detectors", 64, 1, kSide, kHalf, "beams in each direction"}}},
         make_parallel_beam},
        {{"levelling",
          "heights of benchmarks from measured height differences, weighted",
          {{"width", 30, 2, kSide, kHalf, "benchmarks from west to east"},
           {"height", 30, 2, kSide, kHalf, "benchmarks from south to north"},
           {"fixed", 3, 0, kMany, 0, "benchmarks with a given height"},
           {"noise", 1, 0, 1e6, 0, "noise in standard deviations (1 mm on 1 km)", Number::real}}},
         make_levelling},
        {{"bundle",
          "bundle adjustment: two rows an observation, 9 camera and 3 point columns",
          {{"cameras", 50, 1, kMany, 1, "cameras"},
           {"points", 3000, 1, kMany, 1, "points"},
           {"observations", 12000, 1, kMany, 1, "observations"}}},
         make_bundle},
        {{"stencil",
          "a square operator on a grid with random coefficients",
          {{"nx", 20, 1, kSide, kThird, "points along x"},
           {"ny", 20, 1, kSide, kThird, "points along y"},
           {"nz", 20, 1, kSide, kThird, "points along z (1: a plane)"},
           {"points", 27, 5, 27, 0, "5 or 9 (plane), 7 or 27 points of the stencil"},
           {"unknowns", 1, 1, 64, 0, "unknowns a point, coupled in dense blocks"}}},
         make_stencil},
        {{"spline",
          "bicubic B-spline surface observed at random places: 16 entries a row",
          {{"rows", 20000, 1, kMany, 1, "observations"}, {"grid", 20, 4, 46340, 0, "coefficients along each side"}}},
         make_spline},
        {{"hardesty",
          "an image from scattered samples: 5-point Laplacian and bilinear rows",
          {{"width", 100, 2, kSide, kHalf, "pixels in a line"},
           {"height", 100, 2, kSide, kHalf, "lines"},
           {"samples", 800, 0, kMany, 1, "sample rows"}}},
         make_hardesty},
        {{"rucci",
          "radar survey: each row compares two unknowns of two near points",
          {{"rows", 20000, 1, kMany, 1, "comparisons"},
           {"width", 37, 2, kSide, kHalf, "points from west to east"},
           {"height", 30, 2, kSide, kHalf, "points from south to north"},
           {"per_row", 3.94, 3, 4, 0, "entries a row, on average", Number::real}}},
         make_rucci},
        {{"sls",
          "ratings: student, instructor, department and a constant in each row; penalty rows",
          {{"observations", 16854, 1, kMany, 1, "ratings"},
           {"students", 547, 1, kMany, 1, "students"},
           {"instructors", 79, 1, kMany, 1, "instructors"},
           {"departments", 10, 1, kMany, 1, "departments"},
           {"penalty", 1, 0, 1e6, 0, "the entry of each penalty row", Number::real}}},
         make_sls},
        {{"uniform",
          "random columns",
          {{"rows", 20000, 1, kMany, 1, "rows"},
           {"cols", 8000, 1, kMany, 1, "columns"},
           {"per_row", 10, 0, kMany, 0, "entries a row, on average", Number::real}}},
         make_uniform},
        {{"short",
          "short rows with columns near one another, moving along with the row",
          {{"rows", 50000, 1, kMany, 1, "rows"},
           {"cols", 10000, 1, kMany, 1, "columns"},
           {"per_row", 4, 0, kMany, 0, "entries a row, on average", Number::real}}},
         make_short},
        {{"powerlaw",
          "row lengths and column lengths by power laws",
          {{"rows", 20000, 1, kMany, 1, "rows"},
           {"cols", 10000, 1, kMany, 1, "columns"},
           {"shortest", 3, 1, 1e6, 0, "the shortest row", Number::real},
           {"exponent", 1.15, 0.5, 10, 0, "of the row lengths' distribution", Number::real},
           {"longest", 2000, 1, 1e7, 1, "the longest row, before repeated columns are dropped"}}},
         make_powerlaw},
        {{"relat",
          "entries 1 and -1, at most 4 a row, many empty rows",
          {{"rows", 40000, 1, kMany, 1, "rows"},
           {"cols", 1100, 4, kMany, 1, "columns"},
           {"empty", 0.25, 0, 1, 0, "share of the rows that are empty", Number::real}}},
         make_relat},
        {{"wide",
          "more columns than rows, many of them empty",
          {{"rows", 3000, 1, kMany, 1, "rows"},
           {"cols", 9000, 1, kMany, 1, "columns"},
           {"per_row", 12, 0, 50, 0, "entries a row, on average", Number::real},
           {"used", 0.6, 0, 1, 0, "share of the columns that have entries", Number::real}}},
         make_wide},
        {{"lp",
          "constraints of a linear program: wide, columns of equal length, rows of very different ones",
          {{"rows", 1400, 4, kMany, 1, "rows"},
           {"cols", 10000, 1, kMany, 1, "columns"},
           {"per_col", 11.4, 0, kMany, 0, "entries a column, on average", Number::real}}},
         make_lp},
        {{"circuit",
          "a square circuit matrix: short rows, a few that cover much of it",
          {{"rows", 20000, 16, kMany, 1, "rows and columns"}}},
         make_circuit},
        {{"web",
          "links between pages: square, runs of columns, rows that repeat the one before",
          {{"rows", 10000, 16, kMany, 1, "rows and columns"},
           {"shortest", 11.5, 1, 1e6, 0, "the shortest row", Number::real},
           {"longest", 6985, 1, 1e7, 0, "the longest row"},
           {"copy", 0.76, 0, 0.999, 0, "share of the rows that repeat the row before", Number::real}}},
         make_web},
        {{"star",
          "square, one row with most of the columns (transpose: one column)",
          {{"rows", 20000, 2, kMany, 1, "rows and columns"},
           {"share", 0.883, 0, 1, 0, "columns in the long row", Number::real},
           {"second", 0.165, 0, 1, 0, "share of the other rows that have two entries, not one", Number::real}}},
         make_star},
        {{"arcs",
          "orbits: rows in arcs with unknowns of their own and a few global ones",
          {{"rows", 9000, 1, kMany, 1, "rows"},
           {"arcs", 30, 1, kMany, 1, "arcs"},
           {"locals", 30, 1, kMany, 0, "columns of each arc"},
           {"globals", 100, 1, kMany, 0, "columns that all arcs share"},
           {"per_row", 18.4, 1, kMany, 0, "entries a row, on average", Number::real}}},
         make_arcs},
        {{"deficient",
          "dependent columns: copies of earlier ones; row lengths by a power law",
          {{"rows", 5000, 1, kMany, 1, "rows"},
           {"cols", 2600, 1, kMany, 1, "columns"},
           {"rank", 2500, 1, kMany, 1, "columns that are no copies"},
           {"shortest", 9, 1, 1e6, 0, "the shortest row", Number::real}}},
         make_deficient},
    };
    return entries;
}

// lstp's answer belongs to its matrix, and levelling has a noise of its own.
bool takes_common_parameters(std::string_view name) {
    return name != "lstp" && name != "levelling";
}

recipes::Recipe recipe_of(const GeneratorInfo& info) {
    for (const Entry& entry : table()) {
        if (entry.info.name == info.name) return entry.recipe;
    }
    throw InternalError(fmt::format("generator '{}' has no recipe", info.name));
}

std::string names_of(std::span<const std::string_view> names) {
    std::string list;
    for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
    return list;
}

double checked(const GeneratorInfo& info, const GeneratorParameter& parameter, double value) {
    const bool whole = parameter.number == Number::whole;
    if (!(value >= parameter.min && value <= parameter.max)) {
        throw InputError(fmt::format("{}: {} is {}; it must be between {} and {}", info.name, parameter.name, value,
                                     parameter.min, parameter.max));
    }
    if (whole && value != std::floor(value)) {
        throw InputError(fmt::format("{}: {} is {}; it must be a whole number", info.name, parameter.name, value));
    }
    return value;
}

// The parameters of a call: what is given, and scaled defaults for the rest.
std::map<std::string, double> complete(const GeneratorChoice& choice, const std::map<std::string, double>& given) {
    const GeneratorInfo& info = *choice.info;
    std::vector<std::string_view> known = {"scale"};
    for (const GeneratorParameter& p : info.parameters) known.push_back(p.name);
    for (const auto& [name, value] : given) {
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        const std::string nearest = nearest_name(name, known);
        throw InputError(nearest.empty()
                             ? fmt::format("{} has no parameter '{}'; it has {}", info.name, name, names_of(known))
                             : fmt::format("{} has no parameter '{}'; did you mean '{}'?", info.name, name, nearest));
    }
    double scale = 1;
    if (const auto s = given.find("scale"); s != given.end()) {
        scale = s->second;
        if (!(scale > 0 && scale <= 1e6)) {
            throw InputError(fmt::format("{}: scale is {}; it must be above 0 and at most 1e6", info.name, scale));
        }
    }
    std::map<std::string, double> values;
    for (const GeneratorParameter& p : info.parameters) {
        const std::string name(p.name);
        if (const auto v = given.find(name); v != given.end()) {
            values[name] = checked(info, p, v->second);
            continue;
        }
        double value = choice.defaults.at(name);
        if (p.scaling > 0 && scale != 1) {
            value = std::max(p.min, std::floor(value * portable::power(scale, p.scaling) + 0.5));
        }
        values[name] = checked(info, p, value);
    }
    return values;
}

}  // namespace

const std::vector<GeneratorInfo>& generators() {
    static const std::vector<GeneratorInfo> infos = [] {
        std::vector<GeneratorInfo> all;
        for (const Entry& entry : table()) {
            all.push_back(entry.info);
            if (takes_common_parameters(entry.info.name)) {
                all.back().parameters.push_back(kNoise);
                all.back().parameters.push_back(kTranspose);
                all.back().parameters.push_back(kShuffle);
            }
        }
        return all;
    }();
    return infos;
}

const std::vector<StandIn>& stand_ins() {
    // Sizes of the originals: SuiteSparse Matrix Collection. Averages are written as nonzeros over rows, which makes
    // the number of nonzeros exact.
    static const std::vector<StandIn> all = {
        {"like-sls",
         "s1",
         "sls",
         "Bates/sls: 1,748,122 x 62,729, 6,804,304 nonzeros",
         {{"observations", 1685394}, {"students", 54711}, {"instructors", 7915}, {"departments", 102}}},
        {"like-rucci1",
         "",
         "rucci",
         "Rucci/Rucci1: 1,977,885 x 109,900, 7,791,168 nonzeros",
         {{"rows", 1977885}, {"width", 350}, {"height", 157}, {"per_row", 7791168 / 1977885.0}}},
        {"bench-rucci4",
         "s2",
         "rucci",
         "four times Rucci1: 7,911,540 x 439,600, 31,164,672 nonzeros",
         {{"rows", 7911540}, {"width", 700}, {"height", 314}, {"per_row", 7791168 / 1977885.0}}},
        {"like-specular",
         "s3",
         "spline",
         "Brogan/specular: 477,976 x 1,600, 16 a row",
         {{"rows", 477976}, {"grid", 40}}},
        {"like-landmark",
         "s3b",
         "spline",
         "Pereyra/landmark: 71,952 x 2,704, 16 a row",
         {{"rows", 71952}, {"grid", 52}}},
        {"like-jp",
         "s4",
         "tomography",
         "Harvard_Seismology/JP: 87,616 x 67,320, about 160 a row",
         {{"nx", 66}, {"ny", 68}, {"nz", 15}, {"rays", 87616}, {"legs", 2}}},
        {"like-hardesty3",
         "s5",
         "hardesty",
         "Hardesty/Hardesty3: 8,217,820 x 7,591,564, about 40.4 million nonzeros",
         {{"width", 2323}, {"height", 3268}, {"samples", 626256}}},
        {"like-tp-6",
         "s6",
         "lp",
         "Meszaros/tp-6: 142,752 x 1,014,301, 11,537,419 nonzeros",
         {{"rows", 142752}, {"cols", 1014301}, {"per_col", 11537419 / 1014301.0}}},
        {"like-tp-6-transposed",
         "s6t",
         "lp",
         "the transpose of like-tp-6",
         {{"rows", 142752}, {"cols", 1014301}, {"per_col", 11537419 / 1014301.0}, {"transpose", 1}}},
        {"like-rel9",
         "s7",
         "relat",
         "JGD_Relat/rel9: 9,888,048 x 274,669, 2.4 a row, a quarter of the rows empty",
         {{"rows", 9888048}, {"cols", 274669}}},
        {"like-circuit5m",
         "s8",
         "circuit",
         "Freescale/circuit5M: 5,558,326 square, about 60 million nonzeros",
         {{"rows", 5558326}}},
        {"like-gl7d20",
         "s9",
         "uniform",
         "JGD_GL7d/GL7d20: 1,437,547 x 1,911,130, 29,893,084 nonzeros",
         {{"rows", 1437547}, {"cols", 1911130}, {"per_row", 29893084 / 1437547.0}}},
        {"like-eu-2005", "s10", "web", "LAW/eu-2005: 862,664 square, about 22 a row", {{"rows", 862664}}},
        {"like-bone010",
         "s11",
         "stencil",
         "three unknowns a point on a thin grid: 985,608 square, 72 a row",
         {{"nx", 234}, {"ny", 234}, {"nz", 6}, {"points", 27}, {"unknowns", 3}}},
        {"like-cant",
         "",
         "stencil",
         "Williams/cant: 62,451 square, 64 a row; three unknowns a point on a beam",
         {{"nx", 9}, {"ny", 9}, {"nz", 257}, {"points", 27}, {"unknowns", 3}}},
        {"like-consph",
         "",
         "stencil",
         "Williams/consph: 83,334 square, 72 a row; three unknowns a point",
         {{"nx", 31}, {"ny", 32}, {"nz", 28}, {"points", 27}, {"unknowns", 3}}},
        {"like-pwtk",
         "",
         "stencil",
         "Boeing/pwtk: 217,918 square, 53 a row; six unknowns a point of a surface",
         {{"nx", 190}, {"ny", 191}, {"nz", 1}, {"points", 9}, {"unknowns", 6}}},
        {"bench-blocks6",
         "",
         "stencil",
         "six unknowns a point on a 60^3 grid: 1,296,000 square, 158 a row",
         {{"nx", 60}, {"ny", 60}, {"nz", 60}, {"points", 27}, {"unknowns", 6}}},
        {"like-mawi",
         "s12",
         "star",
         "MAWI/mawi_201512012345: 18,571,154 square, one row with 88 % of the columns",
         {{"rows", 18571154}}},
        {"like-mawi-transposed",
         "s13",
         "star",
         "the transpose of like-mawi: one column with 88 % of the rows",
         {{"rows", 18571154}, {"transpose", 1}}},
        {"like-mesh_deform",
         "s14",
         "short",
         "Yoshiyasu/mesh_deform: 234,023 x 9,393, 853,829 nonzeros",
         {{"rows", 234023}, {"cols", 9393}, {"per_row", 853829 / 234023.0}}},
        {"like-maragal_7",
         "s14b",
         "deficient",
         "NYPA/Maragal_7: 46,845 x 26,564, rank 25,866 at most",
         {{"rows", 46845}, {"cols", 26564}, {"rank", 25866}}},
        {"like-c8_mat11",
         "s14c",
         "uniform",
         "JGD_Groebner/c8_mat11: 4,562 x 5,761, 2,462,970 nonzeros",
         {{"rows", 4562}, {"cols", 5761}, {"per_row", 2462970 / 4562.0}}},
        {"bench-small",
         "s14d",
         "uniform",
         "20,000 x 8,000, 10 a row",
         {{"rows", 20000}, {"cols", 8000}, {"per_row", 10}}},
        {"bench-medium",
         "",
         "uniform",
         "200,000 x 60,000, 10 a row",
         {{"rows", 200000}, {"cols", 60000}, {"per_row", 10}}},
        {"bench-huge",
         "s15",
         "stencil",
         "27 points on a 432^3 grid: more than 2^31 nonzeros (26 GB)",
         {{"nx", 432}, {"ny", 432}, {"nz", 432}, {"points", 27}}},
        {"like-esoc",
         "",
         "arcs",
         "Springer/ESOC: 327,062 x 37,830, 18.4 a row",
         {{"rows", 327062}, {"arcs", 1242}, {"locals", 30}, {"globals", 570}, {"per_row", 6019939 / 327062.0}}},
        {"like-largeregfile",
         "",
         "short",
         "Stevenson/LargeRegFile: 2,111,154 x 801,374, 4,944,201 nonzeros",
         {{"rows", 2111154}, {"cols", 801374}, {"per_row", 4944201 / 2111154.0}}},
        {"like-delor338k",
         "",
         "wide",
         "ANSYS/Delor338K: 343,236 x 887,058, 4,211,599 nonzeros",
         {{"rows", 343236}, {"cols", 887058}, {"per_row", 4211599 / 343236.0}}},
        {"like-spal_004",
         "",
         "uniform",
         "Mittelmann/spal_004: 10,203 x 321,696, 46,168,124 nonzeros",
         {{"rows", 10203}, {"cols", 321696}, {"per_row", 46168124 / 10203.0}}},
        {"bench-short",
         "",
         "short",
         "4,936,800 x 1,000,000, 19,747,202 nonzeros: 4 a row and two more",
         {{"rows", 4936800}, {"cols", 1000000}, {"per_row", 19747202 / 4936800.0}}},
        {"bench-uniform8",
         "",
         "uniform",
         "8,000,000 x 2,000,000, 8 a row",
         {{"rows", 8000000}, {"cols", 2000000}, {"per_row", 8}}},
        {"bench-tomography",
         "",
         "tomography",
         "400,000 rays through 100^3 cells, about 167 a row",
         {{"nx", 100}, {"ny", 100}, {"nz", 100}, {"rays", 400000}}},
        {"bench-powerlaw",
         "",
         "powerlaw",
         "2,000,000 x 1,000,000, about 37 million nonzeros",
         {{"rows", 2000000}, {"cols", 1000000}, {"longest", 200000}}},
        {"bench-stencil27",
         "",
         "stencil",
         "27 points on a 140^3 grid: 2,744,000 square",
         {{"nx", 140}, {"ny", 140}, {"nz", 140}, {"points", 27}}},
        {"bench-bundle",
         "",
         "bundle",
         "4,800,000 x 918,000, 12 a row",
         {{"cameras", 2000}, {"points", 300000}, {"observations", 2400000}}},
        {"bench-spline", "", "spline", "3,820,000 x 1,600, 16 a row", {{"rows", 3820000}, {"grid", 40}}},
    };
    return all;
}

GeneratorChoice find_generator(const std::string& name) {
    const auto stand_in = std::find_if(stand_ins().begin(), stand_ins().end(), [&](const StandIn& s) {
        return s.name == name || (!s.suite.empty() && s.suite == name);
    });
    const bool is_stand_in = stand_in != stand_ins().end();
    const std::string_view wanted = is_stand_in ? stand_in->generator : name;
    std::vector<std::string_view> known;
    for (const GeneratorInfo& info : generators()) {
        known.push_back(info.name);
        if (info.name != wanted) continue;
        GeneratorChoice choice{&info, {}};
        for (const GeneratorParameter& p : info.parameters) choice.defaults[std::string(p.name)] = p.value;
        if (is_stand_in) {
            for (const auto& [parameter, value] : stand_in->parameters) choice.defaults.at(parameter) = value;
        }
        return choice;
    }
    for (const StandIn& s : stand_ins()) known.push_back(s.name);
    const std::string nearest = nearest_name(name, known);
    throw InputError(nearest.empty() ? fmt::format("there is no generator '{}'; there are {}", name, names_of(known))
                                     : fmt::format("there is no generator '{}'; did you mean '{}'?", name, nearest));
}

namespace {

std::vector<std::int32_t> random_order(std::int64_t n, std::uint64_t seed, std::int64_t which) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    portable::Random random(seed, recipes::kOrder, which);
    for (std::int64_t i = n - 1; i > 0; --i) std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.below(i + 1))]);
    return order;
}

}  // namespace

GeneratedProblem generate(const std::string& name, const std::map<std::string, double>& parameters,
                          std::uint64_t seed) {
    const GeneratorChoice choice = find_generator(name);
    const std::map<std::string, double> values = complete(choice, parameters);
    const recipes::Arguments arguments(values);
    if (values.contains("rows") && values.contains("cols")) {
        recipes::check_shape(name, arguments.whole("rows"), arguments.whole("cols"));
    }

    GeneratedProblem problem = recipe_of(*choice.info)(arguments, seed);
    if (values.contains("transpose") && arguments.whole("transpose") == 1) {
        problem.a = problem.a.transposed();
        problem.x.clear();  // the recipe's x belongs to the columns, which are now the rows
    }
    if (values.contains("shuffle") && arguments.whole("shuffle") == 1) {
        problem.a = permuted(problem.a, random_order(problem.a.rows(), seed, 0), random_order(problem.a.cols(), seed, 1));
        problem.x.clear();
    }
    if (problem.x.empty()) {
        problem.x.resize(static_cast<std::size_t>(problem.a.cols()));
        for (std::size_t j = 0; j < problem.x.size(); ++j) {
            problem.x[j] = portable::Random(seed, recipes::kAnswer, static_cast<std::int64_t>(j)).symmetric();
        }
    }
    if (problem.b.empty()) {
        recipes::make_rhs(problem, 0, seed);
        if (const double noise = arguments.real("noise"); noise > 0) {
            const double norm =
                std::sqrt(std::inner_product(problem.b.begin(), problem.b.end(), problem.b.begin(), 0.0));
            recipes::make_rhs(problem, noise * norm / std::sqrt(static_cast<double>(problem.a.rows())), seed);
        }
    }
    problem.description = fmt::format("{}: {} x {}, {} nonzeros; seed={}", name, problem.a.rows(), problem.a.cols(),
                                      problem.a.nnz(), seed);
    for (const auto& [parameter, value] : values) problem.description += fmt::format(" {}={}", parameter, value);
    return problem;
}

std::string nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
    constexpr std::size_t kFar = 3;
    std::size_t best = kFar;
    std::string_view nearest;
    for (const std::string_view candidate : candidates) {
        // Row by row of the Levenshtein table; distance[j] is that of the name so far to the candidate's first j
        // letters.
        std::vector<std::size_t> distance(candidate.size() + 1);
        std::iota(distance.begin(), distance.end(), std::size_t{0});
        for (std::size_t i = 0; i < name.size(); ++i) {
            std::size_t diagonal = std::exchange(distance[0], i + 1);
            for (std::size_t j = 0; j < candidate.size(); ++j) {
                const std::size_t replaced = diagonal + (name[i] != candidate[j]);
                diagonal = distance[j + 1];
                distance[j + 1] = std::min({replaced, diagonal + 1, distance[j] + 1});
            }
        }
        if (distance.back() < best) {
            best = distance.back();
            nearest = candidate;
        }
    }
    return std::string(nearest);
}

}  // namespace lsmr
