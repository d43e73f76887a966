#include "operator/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "memory/error.hpp"

namespace lsmr {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<std::int32_t> iota(std::int64_t n) {
    std::vector<std::int32_t> order(at(n));
    std::iota(order.begin(), order.end(), 0);
    return order;
}

// Indices by key, and by index where keys are equal.
std::vector<std::int32_t> sorted_by(const std::vector<std::uint64_t>& keys) {
    std::vector<std::int32_t> order = iota(static_cast<std::int64_t>(keys.size()));
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t i, std::int32_t j) { return keys[at(i)] < keys[at(j)]; });
    return order;
}

using Points = std::vector<float>;  // kPoint a row or column; of lines, kLine a row
constexpr int kPoint = detail::kPoint;

// Offsets and columns of a matrix and of its transpose.
struct Pattern {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const std::int64_t* offsets = nullptr;
    const std::int32_t* columns = nullptr;
    const std::int64_t* transposed_offsets = nullptr;
    const std::int32_t* transposed_columns = nullptr;
    std::int64_t nnz() const { return offsets[rows]; }
    Pattern transposed() const { return {cols, rows, transposed_offsets, transposed_columns, offsets, columns}; }
    std::int64_t longest() const { return detail::longest_of_order(rows, nnz()); }
};

// to[i] <- the mean of `from` over the entries of row i that count, zero where none does; weight[i] <- how many, where it is wanted.
void average(const Pattern& a, const Points& from, Points& to, std::vector<float>* weight) {
    const std::int64_t longest = a.longest();
#pragma omp parallel for schedule(dynamic, 256)
    for (std::int64_t i = 0; i < a.rows; ++i) {
        float sum[kPoint] = {};
        const std::int64_t begin = a.offsets[i];
        const std::int64_t end = a.offsets[i + 1];
        if (end - begin <= longest) {
            for (std::int64_t k = begin; k < end; ++k) {
                const float* p = from.data() + std::int64_t{kPoint} * a.columns[k];
                for (int c = 0; c < kPoint; ++c) sum[c] += p[c];
            }
        }
        for (int c = 0; c < kPoint; ++c) to[at(kPoint * i + c)] = sum[0] > 0 ? sum[c] / sum[0] : 0.0F;
        if (weight != nullptr) (*weight)[at(i)] = sum[0];
    }
}

// X <- X T.
void transform(Points& x, const float* t) {
#pragma omp parallel for schedule(static)
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(x.size()) / kPoint; ++j) {
        float* p = x.data() + kPoint * j;
        float q[kPoint] = {};
        for (std::size_t r = 0; r < kPoint; ++r) {
            for (std::size_t c = 0; c < kPoint; ++c) q[c] += p[r] * t[r * kPoint + c];
        }
        std::copy(q, q + kPoint, p);
    }
}

using Gram = std::array<double, kPoint * kPoint>;
Gram gram_of(const Points& x, const std::vector<float>& weight) {
    constexpr std::int64_t kChunk = 4096;
    const auto n = static_cast<std::int64_t>(weight.size());
    const std::int64_t chunks = (n + kChunk - 1) / kChunk;
    std::vector<Gram> partial(at(chunks));
#pragma omp parallel for schedule(static)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        Gram& g = partial[at(chunk)];
        g.fill(0.0);
        for (std::int64_t j = chunk * kChunk; j < std::min(n, (chunk + 1) * kChunk); ++j) {
            const float* p = x.data() + kPoint * j;
            for (std::size_t r = 0; r < kPoint; ++r) {
                const double left = static_cast<double>(weight[at(j)]) * static_cast<double>(p[r]);
                for (std::size_t c = r; c < kPoint; ++c) g[r * kPoint + c] += left * static_cast<double>(p[c]);
            }
        }
    }
    Gram gram{};
    for (const Gram& g : partial) {
        for (std::size_t k = 0; k < gram.size(); ++k) gram[k] += g[k];
    }
    return gram;
}

// Rows without a label take the least of their columns.
void take_labels(const Pattern& a, const std::vector<std::uint32_t>& from, std::vector<std::uint32_t>& to) {
    const std::int64_t longest = a.longest();
#pragma omp parallel for schedule(dynamic, 1024)
    for (std::int64_t i = 0; i < a.rows; ++i) {
        const std::int64_t begin = a.offsets[i];
        const std::int64_t length = a.offsets[i + 1] - begin;
        if (to[at(i)] != detail::kNoLabel || length == 0 || length > longest) continue;
        std::uint32_t least = detail::kNoLabel;
        for (std::int64_t k = 0; k < length; k += detail::label_step(length)) least = std::min(least, from[at(a.columns[begin + k])]);
        to[at(i)] = least;
    }
}

// Groups of columns and rows, -1 for those that do not count, and the matrix of the groups: entries of a sample, those that repeat count as often.
struct Groups {
    std::int64_t count = 0;
    std::vector<std::int32_t> col;
    std::vector<std::int32_t> row;
};
Groups make_groups(const Pattern& a) {
    std::vector<std::uint32_t> col(at(a.cols), detail::kNoLabel);
    std::vector<std::uint32_t> row(at(a.rows), detail::kNoLabel);
    const Pattern transposed = a.transposed();
    const std::int64_t longest = transposed.longest();
    for (int round = detail::first_group_round(a.cols); round < detail::kGroupRounds; ++round) {
        for (std::int64_t j = 0; j < a.cols; ++j) {
            const std::int64_t length = a.transposed_offsets[j + 1] - a.transposed_offsets[j];
            if (col[at(j)] == detail::kNoLabel && length > 0 && length <= longest && detail::is_seed(j, round))
                col[at(j)] = detail::label_of(static_cast<std::int32_t>(j));
        }
        take_labels(a, col, row);
        take_labels(transposed, row, col);
    }
    std::vector<std::int32_t> group(at(a.cols), -1);  // of a seed
    Groups groups;
    for (std::int64_t j = 0; j < a.cols; ++j) {
        if (col[at(j)] == detail::label_of(static_cast<std::int32_t>(j))) group[at(j)] = static_cast<std::int32_t>(groups.count++);
    }
    const auto grouped = [&](const std::vector<std::uint32_t>& labels) {
        std::vector<std::int32_t> to(labels.size(), -1);
        for (std::size_t i = 0; i < to.size(); ++i) {
            if (labels[i] != detail::kNoLabel) to[i] = group[detail::seed_of(labels[i])];
        }
        return to;
    };
    groups.col = grouped(col);
    groups.row = grouped(row);
    return groups;
}

struct OwnPattern {
    std::vector<std::int64_t> offsets, transposed_offsets;
    std::vector<std::int32_t> columns, transposed_columns;
    Pattern view() const {
        const auto n = static_cast<std::int64_t>(offsets.size()) - 1;
        return {n, n, offsets.data(), columns.data(), transposed_offsets.data(), transposed_columns.data()};
    }
};
OwnPattern coarse_pattern(const Pattern& a, const Groups& groups) {
    std::vector<std::pair<std::int32_t, std::int32_t>> entries;
    const std::int64_t step = detail::sample_step(a.nnz(), groups.count);
    for (std::int64_t s = 0; s * step < a.nnz(); ++s) {
        const std::int64_t k = detail::sampled_entry(s, step, a.nnz());
        const std::int64_t i = std::upper_bound(a.offsets, a.offsets + a.rows + 1, k) - a.offsets - 1;
        const std::int32_t row = groups.row[at(i)];
        const std::int32_t col = groups.col[at(a.columns[k])];
        if (row >= 0 && col >= 0) entries.emplace_back(row, col);
    }
    const auto compress = [&](std::vector<std::int64_t>& offsets, std::vector<std::int32_t>& columns) {
        std::sort(entries.begin(), entries.end());
        offsets.assign(at(groups.count + 1), 0);
        for (auto& [row, col] : entries) {
            ++offsets[at(row + 1)];
            columns.push_back(col);
            std::swap(row, col);  // for the transpose, which is next
        }
        std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    };
    OwnPattern coarse;
    compress(coarse.offsets, coarse.columns);
    compress(coarse.transposed_offsets, coarse.transposed_columns);
    return coarse;
}

// Points of the columns. lengths: of the directions, after the last round.
Points embed(const Pattern& a, double* lengths) {
    const Pattern transposed = a.transposed();
    const std::int64_t longest = transposed.longest();
    Points x(at(kPoint * a.cols)), y(at(kPoint * a.rows));
    const bool coarsest = detail::is_coarsest(a.cols, a.nnz());
    int rounds = coarsest ? detail::kCoarsestRounds : detail::kFlatRounds;
    Groups groups;
    Points start;
    if (!coarsest) {
        groups = make_groups(a);
        if (detail::are_few_groups(groups.count, a.cols)) {
            const OwnPattern coarse = coarse_pattern(a, groups);
            start = embed(coarse.view(), lengths);
            rounds = detail::kRounds;
        }
    }
    for (std::int64_t j = 0; j < a.cols; ++j) {
        const std::int64_t length = a.transposed_offsets[j + 1] - a.transposed_offsets[j];
        const std::int64_t group = start.empty() ? -1 : groups.col[at(j)];
        for (int c = 0; c < kPoint; ++c) {
            float& p = x[at(kPoint * j + c)];
            if (length > longest) p = 0.0F;
            else if (group >= 0 && start[at(kPoint * group)] > 0) p = start[at(kPoint * group + c)];
            else p = detail::start_point(j, c);
        }
    }
    std::vector<float> weight(at(a.cols));
    for (int round = 0; round < rounds; ++round) {
        average(a, x, y, nullptr);
        average(transposed, y, x, &weight);
        float t[kPoint * kPoint];
        detail::orthonormalising(gram_of(x, weight).data(), t, lengths);
        transform(x, t);
        if (detail::are_enough(round + 1, !start.empty(), lengths)) break;
    }
    return x;
}

float dot(const float* p, const float* q) {  // without the constant
    float sum = 0;
    for (int c = 1; c < kPoint; ++c) sum += p[c] * q[c];
    return sum;
}

// The lines of rows: kLine floats each, all zero where no column counts.
Points lines_of(const Pattern& a, const Points& x) {
    Points lines(at(detail::kLine * a.rows), 0.0F);
    const std::int64_t longest = a.longest();
#pragma omp parallel for schedule(dynamic, 256)
    for (std::int64_t i = 0; i < a.rows; ++i) {
        const std::int64_t begin = a.offsets[i];
        const std::int64_t end = a.offsets[i + 1];
        if (begin == end || end - begin > longest) continue;
        const auto point = [&](std::int64_t k) { return x.data() + std::int64_t{kPoint} * a.columns[k]; };
        float* mean = lines.data() + detail::kLine * i;
        float* along = mean + kPoint;
        float d[kPoint], variance = 0;
        for (int c = 0; c < kPoint; ++c) d[c] = point(end - 1)[c] - point(begin)[c];
        for (int step = 0; step < detail::kLineSteps; ++step) {
            float sum[kPoint] = {}, moment[kPoint] = {};
            for (std::int64_t k = begin; k < end; ++k) {
                const float t = dot(point(k), d);
                for (int c = 0; c < kPoint; ++c) {
                    sum[c] += point(k)[c];
                    moment[c] += t * point(k)[c];
                }
            }
            if (!(sum[0] > 0)) break;
            for (int c = 0; c < kPoint; ++c) mean[c] = sum[c] / sum[0];
            float v[kPoint];  // the covariance times d
            const float at_mean = dot(mean, d);
            for (int c = 0; c < kPoint; ++c) v[c] = moment[c] / sum[0] - at_mean * mean[c];
            const float square = dot(v, v), product = dot(v, d);
            variance = product > 0 ? square / product : 0.0F;
            for (int c = 0; c < kPoint; ++c) d[c] = variance > 0 ? v[c] / std::sqrt(square) : 0.0F;
        }
        if (!(variance > 0)) continue;
        int longest_of_d = 1;
        for (int c = 2; c < kPoint; ++c) longest_of_d = std::abs(d[c]) > std::abs(d[longest_of_d]) ? c : longest_of_d;
        const float spread = d[longest_of_d] < 0 ? -std::sqrt(variance) : std::sqrt(variance);
        for (int c = 1; c < kPoint; ++c) along[c] = spread * d[c];
        along[0] = 1 / variance;
    }
    return lines;
}

// Columns go to the mean of their nearest points on the lines of their rows.
void to_lines(const Pattern& transposed, const Points& lines, Points& x, std::vector<float>& weight) {
    const std::int64_t longest = transposed.longest();
#pragma omp parallel for schedule(dynamic, 256)
    for (std::int64_t j = 0; j < transposed.rows; ++j) {
        float* p = x.data() + kPoint * j;
        float sum[kPoint] = {};
        const std::int64_t begin = transposed.offsets[j];
        const std::int64_t end = transposed.offsets[j + 1];
        for (std::int64_t k = begin; k < end && end - begin <= longest; ++k) {
            const float* mean = lines.data() + std::int64_t{detail::kLine} * transposed.columns[k];
            const float* along = mean + kPoint;
            float t = 0;
            for (int c = 1; c < kPoint; ++c) t += (p[c] - mean[c]) * along[c];
            t *= along[0];
            sum[0] += mean[0];
            for (int c = 1; c < kPoint; ++c) sum[c] += mean[c] + t * along[c];
        }
        for (int c = 0; c < kPoint; ++c) p[c] = sum[0] > 0 ? sum[c] / sum[0] : 0.0F;
        weight[at(j)] = sum[0];
    }
}

// Gives points the weights of their coordinates; where rows are long, after rounds with lines.
void weigh(const Pattern& a, Points& x, double* lengths) {
    detail::Weights weights = detail::coordinate_weights(lengths);
    float t[kPoint * kPoint] = {};
    for (int c = 0; c < kPoint; ++c) t[c * kPoint + c] = weights.of[c];
    transform(x, t);
    if (!detail::has_long_rows(lengths)) return;
    std::vector<float> weight(at(a.cols));
    for (int round = 0; round < detail::kLineRounds; ++round) {
        to_lines(a.transposed(), lines_of(a, x), x, weight);
        Gram gram = gram_of(x, weight);
        detail::take_weights(weights, gram.data());
        detail::orthonormalising(gram.data(), t, lengths);
        const detail::Weights after = detail::coordinate_weights(lengths);
        detail::take_weights(weights, after, t);
        transform(x, t);
        weights = after;
    }
}

// Where it is worth it, gives all columns of a run the run's mean point. The points of runs; else nothing.
Points join_runs(Points& x) {
    const auto cols = static_cast<std::int64_t>(x.size()) / kPoint;
    double within = 0, all = 0;
    Points means;
    for (std::int64_t first = 0; first < cols; first += detail::kKeptRun) {
        const std::int64_t end = std::min(cols, first + detail::kKeptRun);
        float mean[kPoint] = {};
        for (std::int64_t j = first; j < end; ++j) {
            for (int c = 0; c < kPoint; ++c) mean[c] += x[at(kPoint * j + c)];
        }
        for (int c = kPoint - 1; c >= 0; --c) mean[c] = mean[0] > 0 ? mean[c] / mean[0] : 0.0F;
        means.insert(means.end(), mean, mean + kPoint);
        for (std::int64_t j = first; j < end; ++j) {
            for (int c = 1; c < kPoint && x[at(kPoint * j)] > 0; ++c) {
                const float p = x[at(kPoint * j + c)];
                const float off = p - mean[c];
                within += static_cast<double>(off * off);
                all += static_cast<double>(p * p);
            }
        }
    }
    if (!(within < detail::kRunScatter * all)) return {};
    for (std::int64_t j = 0; j < cols; ++j) {
        for (int c = 0; c < kPoint && x[at(kPoint * j)] > 0; ++c) x[at(kPoint * j + c)] = means[at(kPoint * (j / detail::kKeptRun) + c)];
    }
    return means;
}

// Places of points of `floats` floats along the halvings.
std::vector<std::uint32_t> places(const Points& points, int floats) {
    const auto lines = static_cast<std::int64_t>(points.size()) / floats;
    std::vector<std::int32_t> order = iota(lines);
    const auto point = [&](std::int32_t i) { return points.data() + std::int64_t{floats} * i; };
    for (std::int64_t size = detail::first_piece(lines); size > detail::kPiece; size /= 2) {
#pragma omp parallel for schedule(dynamic, 16)
        for (std::int64_t begin = 0; begin < lines; begin += size) {
            const std::int64_t end = std::min(lines, begin + size);
            if (end - begin <= size / 2) continue;
            const std::int64_t step = (end - begin + detail::kPieceSample - 1) / detail::kPieceSample;
            int widest = 1;
            float most = -1;
            for (int c = 1; c < floats; ++c) {
                if (c == kPoint) continue;
                const float origin = point(order[at(begin)])[c];
                float sum = 0, squares = 0, count = 0;
                for (std::int64_t r = begin; r < end; r += step) {
                    const float v = point(order[at(r)])[c] - origin;
                    sum += v;
                    squares += v * v;
                    count += 1;
                }
                const float spread = squares / count - sum / count * (sum / count);
                if (spread > most) {
                    most = spread;
                    widest = c;
                }
            }
            const auto before = [&](std::int32_t i, std::int32_t j) {
                const float p = point(i)[widest], q = point(j)[widest];
                return p != q ? p < q : i < j;
            };
            std::nth_element(order.begin() + begin, order.begin() + begin + size / 2, order.begin() + end, before);
        }
    }
    std::vector<std::uint32_t> place(at(lines));
    for (std::int64_t r = 0; r < lines; ++r) place[at(order[at(r)])] = static_cast<std::uint32_t>(r);
    return place;
}

MatrixOrder spectral_order(const CsrMatrix& a, const CsrMatrix& transposed) {
    const std::int64_t m = a.rows();
    const std::int64_t n = a.cols();
    const Pattern pattern{m, n, a.offsets(), a.columns(), transposed.offsets(), transposed.columns()};
    double lengths[kPoint - 1] = {};
    Points x = embed(pattern, lengths);
    const bool long_rows = detail::has_long_rows(lengths);
    weigh(pattern, x, lengths);
    const Points joined = join_runs(x);
    const std::int64_t run = joined.empty() ? 1 : detail::kKeptRun;
    Points y;
    if (long_rows) {
        y = lines_of(pattern, x);
    } else {
        y.resize(at(kPoint * m));
        average(pattern, x, y, nullptr);
    }
    // Those without a point come last.
    const auto sorted = [](const Points& points, int floats, const std::vector<std::uint32_t>& place, std::int64_t of_place) {
        std::vector<std::uint64_t> keys(points.size() / at(floats));
        for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = points[at(floats) * i] > 0 ? place[i / at(of_place)] : ~std::uint64_t{0};
        return sorted_by(keys);
    };
    const int floats = long_rows ? detail::kLine : kPoint;
    MatrixOrder order;
    order.kind = OrderKind::spectral;
    order.col = sorted(x, kPoint, places(run > 1 ? joined : x, kPoint), run);
    order.row = sorted(y, floats, places(y, floats), 1);
    return order;
}

}  // namespace

namespace detail {

GatherShape make_shape(std::int64_t rows, std::int64_t cols, std::int64_t nnz, const LocalityCounts& counts) {
    GatherShape shape{rows, cols, nnz};
    if (counts.entries == 0) return shape;
    shape.run_sectors = static_cast<double>(counts.run_sectors) / static_cast<double>(counts.entries);
    shape.window_sectors = static_cast<double>(counts.window_sectors) / static_cast<double>(counts.entries);
    return shape;
}

void orthonormalising(const double* gram, float* t, double* lengths) {
    // The constant is taken out of the others, whose Gram matrix H = V diag(h) V^T is diagonalised by Jacobi rotations: T = V diag(h)^(-1/2).
    constexpr int kOthers = kPoint - 1;
    std::fill(t, t + kPoint * kPoint, 0.0F);
    std::fill(lengths, lengths + kOthers, 0.0);
    const double constant = gram[0];
    if (!(constant > 0)) return;
    t[0] = 1;
    double h[kOthers][kOthers], v[kOthers][kOthers] = {};
    for (int r = 0; r < kOthers; ++r) {
        v[r][r] = 1;
        for (int c = r; c < kOthers; ++c) h[r][c] = h[c][r] = (gram[(r + 1) * kPoint + c + 1] - gram[r + 1] * gram[c + 1] / constant) / constant;
    }
    for (int sweep = 0; sweep < 16; ++sweep) {
        for (int p = 0; p < kOthers; ++p) {
            for (int q = p + 1; q < kOthers; ++q) {
                if (!(std::abs(h[p][q]) > 1e-18 * (std::abs(h[p][p]) + std::abs(h[q][q])))) continue;
                const double theta = (h[q][q] - h[p][p]) / (2 * h[p][q]);
                const double tangent = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::hypot(theta, 1.0));
                const double cosine = 1 / std::hypot(tangent, 1.0);
                const double sine = tangent * cosine;
                const auto rotate = [&](double& a, double& b) {
                    const double before = a;
                    a = cosine * before - sine * b;
                    b = sine * before + cosine * b;
                };
                for (int k = 0; k < kOthers; ++k) rotate(h[k][p], h[k][q]);
                for (int k = 0; k < kOthers; ++k) rotate(h[p][k], h[q][k]);
                for (int k = 0; k < kOthers; ++k) rotate(v[k][p], v[k][q]);
            }
        }
    }
    int longest[kOthers];
    std::iota(longest, longest + kOthers, 0);
    std::stable_sort(longest, longest + kOthers, [&](int a, int b) { return h[a][a] > h[b][b]; });
    for (int c = 0; c < kOthers; ++c) {
        const int from = longest[c];
        // Below this, coordinates in fp32 hold nothing but rounding errors.
        if (!(h[from][from] > 1e-11 * h[longest[0]][longest[0]])) break;
        const double length = std::sqrt(h[from][from]);
        lengths[c] = length;
        double mean = 0;
        for (int r = 0; r < kOthers; ++r) {
            t[(r + 1) * kPoint + c + 1] = static_cast<float>(v[r][from] / length);
            mean += v[r][from] / length * gram[r + 1] / constant;
        }
        t[c + 1] = static_cast<float>(-mean);
    }
}

double mean_length(const double* lengths) {
    double sum = 0;
    int counted = 0;
    for (int c = 0; c < kPoint - 1; ++c) {
        sum += lengths[c];
        counted += lengths[c] > 0 ? 1 : 0;
    }
    return counted > 0 ? sum / counted : 0.0;
}

Weights coordinate_weights(const double* lengths) {
    Weights weights{};
    weights.of[0] = 1;
    for (int c = 1; c < kPoint; ++c) {
        if (lengths[c - 1] > 0) weights.of[c] = static_cast<float>(1 / std::sqrt(std::max(1 - lengths[c - 1], 1e-6)));
    }
    return weights;
}

void take_weights(const Weights& before, double* gram) {
    for (int r = 0; r < kPoint; ++r) {
        for (int c = 0; c < kPoint; ++c) {
            const double by = static_cast<double>(before.of[r]) * static_cast<double>(before.of[c]);
            if (by > 0) gram[r * kPoint + c] /= by;
        }
    }
}

void take_weights(const Weights& before, const Weights& after, float* t) {
    for (int r = 0; r < kPoint; ++r) {
        for (int c = 0; c < kPoint; ++c) t[r * kPoint + c] *= before.of[r] > 0 ? after.of[c] / before.of[r] : 0.0F;
    }
}

bool lacks_structure(double growth, std::int64_t rows, std::int64_t cols, std::int64_t nnz) {
    if (nnz == 0) return true;
    const auto entries = static_cast<double>(nnz);
    const double singular = std::sqrt(static_cast<double>(rows) / entries) + std::sqrt(static_cast<double>(cols) / entries);
    // A round multiplies by the square of a singular value. Meshes of few entries a row have growths near 1.
    return growth < std::min(1.5 * singular * singular, 0.8);
}

}  // namespace detail

GatherShape gather_shape(const CsrMatrix& stored, int value_bytes) {
    detail::LocalityCounts counts;
    const std::int64_t samples = detail::locality_samples(stored.nnz());
    std::vector<std::int32_t> sectors;
    const auto distinct = [&](std::int64_t begin, std::int64_t end) {
        sectors.assign(stored.columns() + begin, stored.columns() + end);
        for (std::int32_t& sector : sectors) sector /= 32 / value_bytes;
        std::sort(sectors.begin(), sectors.end());
        return static_cast<unsigned long long>(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
    };
    for (std::int64_t s = 0; s < samples; ++s) {
        const std::int64_t begin = s * detail::locality_windows(stored.nnz()) / samples * kLocalityWindow;
        const std::int64_t end = std::min(begin + kLocalityWindow, stored.nnz());
        counts.entries += static_cast<unsigned long long>(end - begin);
        counts.window_sectors += distinct(begin, end);
        for (std::int64_t run = begin; run < end; run += 32) counts.run_sectors += distinct(run, std::min(run + 32, end));
    }
    return detail::make_shape(stored.rows(), stored.cols(), stored.nnz(), counts);
}

std::uint64_t MatrixOrder::hash() const {
    std::uint64_t h = 0xcbf29ce484222325U;
    for (const auto* part : {&row, &col}) {
        for (const std::int32_t i : *part) h = (h ^ static_cast<std::uint32_t>(i)) * 0x100000001b3U;
        h = (h ^ part->size()) * 0x100000001b3U;
    }
    return h;
}

std::vector<double> ordered(const std::vector<std::int32_t>& order, std::span<const double> values) {
    std::vector<double> to(values.size());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) to[at(i)] = values[at(source(order, i))];
    return to;
}

std::vector<std::int32_t> inverse_order(const std::vector<std::int32_t>& order) {
    std::vector<std::int32_t> inverse(order.size());
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(order.size()); ++i) inverse[at(order[at(i)])] = static_cast<std::int32_t>(i);
    return inverse;
}

CsrMatrix permuted(const CsrMatrix& a, const std::vector<std::int32_t>& row, const std::vector<std::int32_t>& col) {
    const auto fits = [](const std::vector<std::int32_t>& order, std::int64_t n) { return order.empty() || static_cast<std::int64_t>(order.size()) == n; };
    if (!fits(row, a.rows()) || !fits(col, a.cols())) {
        throw InputError(fmt::format("order: it has {} rows and {} columns, the matrix is {} x {}", row.size(), col.size(), a.rows(), a.cols()));
    }
    const std::vector<std::int32_t> to = inverse_order(col);
    const auto from_row = [&](std::int64_t i) { return source(row, i); };
    HostBuffer<std::int64_t> offsets(a.rows() + 1);
    offsets[0] = 0;
    for (std::int64_t i = 0; i < a.rows(); ++i) offsets[i + 1] = offsets[i] + a.offsets()[from_row(i) + 1] - a.offsets()[from_row(i)];
    HostBuffer<std::int32_t> columns(a.nnz());
    HostBuffer<double> values(a.nnz());
#pragma omp parallel
    {
        std::vector<std::pair<std::int32_t, double>> entries;
#pragma omp for schedule(dynamic, 1024)
        for (std::int64_t i = 0; i < a.rows(); ++i) {
            const std::int64_t from = a.offsets()[from_row(i)];
            const std::int64_t length = offsets[i + 1] - offsets[i];
            if (to.empty()) {
                std::copy(a.columns() + from, a.columns() + from + length, columns.data() + offsets[i]);
                std::copy(a.values() + from, a.values() + from + length, values.data() + offsets[i]);
                continue;
            }
            entries.clear();
            for (std::int64_t k = from; k < from + length; ++k) entries.emplace_back(to[at(a.columns()[k])], a.values()[k]);
            std::sort(entries.begin(), entries.end(), [](const auto& p, const auto& q) { return p.first < q.first; });
            for (std::int64_t k = 0; k < length; ++k) {
                columns[offsets[i] + k] = entries[at(k)].first;
                values[offsets[i] + k] = entries[at(k)].second;
            }
        }
    }
    return CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(columns), std::move(values));
}

MatrixOrder make_order(OrderKind kind, const CsrMatrix& a, const CsrMatrix& transposed) {
    LSMR_EXPECT(kind != OrderKind::automatic && kind != OrderKind::none);
    const bool symmetric = a.rows() == a.cols() && std::equal(a.offsets(), a.offsets() + a.rows() + 1, transposed.offsets()) &&
                           std::equal(a.columns(), a.columns() + a.nnz(), transposed.columns());
    if (kind == OrderKind::spectral) {
        MatrixOrder order = spectral_order(a, transposed);
        if (symmetric) order.row = order.col;
        return order;
    }
    std::vector<std::uint64_t> keys(at(a.rows()));
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        keys[at(i)] = detail::row_key(kind, a.columns() + a.offsets()[i], a.offsets()[i + 1] - a.offsets()[i]);
    }
    MatrixOrder order;
    order.kind = kind;
    order.row = sorted_by(keys);
    if (symmetric) order.col = order.row;
    return order;
}

}  // namespace lsmr
