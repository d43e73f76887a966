#include "solver/incomplete_cholesky.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "memory/error.hpp"
#include "memory/host_buffer.hpp"
#include "solver/power_of_two.hpp"
#include "solver/preconditioner.hpp"

namespace lsmr {
namespace {

constexpr double kFirstShift = 1e-3;        // of a diagonal of 1, where one is needed
constexpr double kLeastPivot = 1e-14;       // below it a pivot is rounding
constexpr std::int64_t kEntryBytes = 12;

}  // namespace

// y <- a P K x + b y and y <- a K^T P^T x + b y, P the order of the columns of A. One thread: each entry of the solution waits for those before it.
template <class T>
class TriangularInverse final : public LinearOperator<T> {
  public:
    TriangularInverse(const IncompleteCholesky& factor, std::vector<std::int32_t> order)
        : l_(factor), order_(std::move(order)), values_(factor.values_.begin(), factor.values_.end()), scale_(factor.scale_.begin(), factor.scale_.end()) {}
    std::int64_t rows() const override { return l_.cols(); }
    std::int64_t cols() const override { return l_.cols(); }
    Space space() const override { return Space::host; }
    bool capturable() const override { return false; }
    std::unique_ptr<Workspace> make_workspace(CudaContext*) const override { return std::make_unique<Scratch>(); }

    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        std::vector<T>& z = static_cast<Scratch&>(workspace).z;
        z.assign(x, x + cols());
        for (std::int64_t j = cols() - 1; j >= 0; --j) {  // L^T z = x
            const std::int64_t begin = l_.begins_[at(j)];
            T sum = z[at(j)];
            for (std::int64_t k = begin + 1; k < l_.begins_[at(j + 1)]; ++k) sum -= values_[at(k)] * z[at(l_.rows_[at(k)])];
            z[at(j)] = sum / values_[at(begin)];
        }
        for (std::size_t j = 0; j < z.size(); ++j) z[j] *= scale_[j];
        put(a, z, order_, b, y, norm);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        std::vector<T>& z = static_cast<Scratch&>(workspace).z;
        z.resize(at(cols()));
        for (std::int64_t j = 0; j < cols(); ++j) z[at(source(order_, j))] = x[j];
        for (std::size_t j = 0; j < z.size(); ++j) z[j] *= scale_[j];
        for (std::int64_t j = 0; j < cols(); ++j) {  // L z = S x
            const std::int64_t begin = l_.begins_[at(j)];
            const T zj = z[at(j)] / values_[at(begin)];
            z[at(j)] = zj;
            for (std::int64_t k = begin + 1; k < l_.begins_[at(j + 1)]; ++k) z[at(l_.rows_[at(k)])] -= values_[at(k)] * zj;
        }
        put(a, z, {}, b, y, norm);
    }

  private:
    struct Scratch : Workspace {
        std::vector<T> z;
    };
    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
    // y <- a P z + b y; an empty order: P = I.
    static void put(Scalar<T> a, const std::vector<T>& z, const std::vector<std::int32_t>& order, Scalar<T> b, T* y, NormPartials* norm) {
        constexpr std::size_t kBlock = 4096;  // so that rounding does not grow with the length
        double total = 0;
        for (std::size_t begin = 0; begin < z.size(); begin += kBlock) {
            double sum = 0;
            for (std::size_t j = begin; j < std::min(z.size(), begin + kBlock); ++j) {
                double value = *a.wide * static_cast<double>(z[at(source(order, static_cast<std::int64_t>(j)))]);
                if (*b.wide != 0) value += *b.wide * static_cast<double>(y[j]);
                y[j] = static_cast<T>(value);
                sum += static_cast<double>(y[j]) * static_cast<double>(y[j]);
            }
            total += sum;
        }
        if (norm != nullptr) norm->sums[norm->count++] = total;
    }

    const IncompleteCholesky& l_;
    std::vector<std::int32_t> order_;
    std::vector<T> values_;
    std::vector<T> scale_;
};

IncompleteCholesky::IncompleteCholesky(const CsrMatrix& a, const CsrMatrix* below, const std::vector<double>& column_scale, double damp,
                                       const IncompleteCholeskyOptions& options) {
    const auto n = static_cast<std::size_t>(a.cols());
    exponent_ = largest_exponent(a, below, column_scale, damp);
    const CsrMatrix scaled = a.scaled_by_power_of_two(-exponent_);
    const CsrMatrix scaled_t = scaled.transposed();
    CsrMatrix below_scaled, below_t;
    if (below != nullptr) {
        below_scaled = below->scaled_by_power_of_two(-exponent_);
        below_t = below_scaled.transposed();
    }
    std::vector<double> diagonal(n, 0.0);  // of damp^2 D^2
    std::vector<double> squares(n, 0.0);   // that of N
    for (std::size_t j = 0; j < n; ++j) {
        const double d = PowerOfTwo(-exponent_)(damp) * (column_scale.empty() ? 1.0 : column_scale[j]);
        squares[j] = diagonal[j] = d * d;
    }
    for (const CsrMatrix* part : {&scaled_t, static_cast<const CsrMatrix*>(below != nullptr ? &below_t : nullptr)}) {
        if (part == nullptr) continue;
        for (std::size_t j = 0; j < n; ++j) {
            for (std::int64_t k = part->offsets()[j]; k < part->offsets()[j + 1]; ++k) squares[j] += part->values()[k] * part->values()[k];
        }
    }
    scale_.resize(n);
    for (std::size_t j = 0; j < n; ++j) scale_[j] = squares[j] > 0 ? 1 / std::sqrt(std::max(squares[j], kLeastSquaredNorm)) : 1.0;
    shift_ = options.shift;
    while (!factor(scaled, scaled_t, below != nullptr ? &below_scaled : nullptr, below != nullptr ? &below_t : nullptr, diagonal, options)) {
        shift_ = std::max(2 * shift_, kFirstShift);
    }
}

bool IncompleteCholesky::factor(const CsrMatrix& a, const CsrMatrix& at, const CsrMatrix* below, const CsrMatrix* below_t,
                                const std::vector<double>& diagonal, const IncompleteCholeskyOptions& options) {
    const std::int64_t n = a.cols();
    const auto size = static_cast<std::size_t>(n);
    begins_.assign(1, 0);
    rows_.clear();
    values_.clear();
    std::vector<double> w(size, 0.0);               // the column that is made
    std::vector<std::int64_t> in_pattern(size, -1);  // j: row i is in column j of N, or of what is kept
    std::vector<std::int32_t> pattern;
    // Columns of L whose next unused entry lies in row j, as a list: first[j], then next[column]; cursor[column] is that entry.
    std::vector<std::int32_t> first(size, -1), next(size, -1);
    std::vector<std::int64_t> cursor(size, 0);
    const bool level_0 = options.drop < 0;
    for (std::int32_t j = 0; j < n; ++j) {
        const auto column = static_cast<std::size_t>(j);
        pattern.clear();
        const auto touch = [&](std::int32_t i) {
            if (in_pattern[static_cast<std::size_t>(i)] == j) return;
            in_pattern[static_cast<std::size_t>(i)] = j;
            w[static_cast<std::size_t>(i)] = 0;
            pattern.push_back(i);
        };
        touch(j);
        // Column j of S N S, from row j down.
        const auto add_gram = [&](const CsrMatrix& rows, const CsrMatrix& cols) {
            for (std::int64_t k = cols.offsets()[j]; k < cols.offsets()[j + 1]; ++k) {
                const std::int64_t row = cols.columns()[k];
                const std::int32_t* begin = rows.columns() + rows.offsets()[row];
                const std::int32_t* end = rows.columns() + rows.offsets()[row + 1];
                for (const std::int32_t* p = std::lower_bound(begin, end, j); p != end; ++p) {
                    touch(*p);
                    w[static_cast<std::size_t>(*p)] += cols.values()[k] * rows.values()[p - rows.columns()];
                }
            }
        };
        add_gram(a, at);
        if (below != nullptr) add_gram(*below, *below_t);
        w[column] += diagonal[column];
        for (const std::int32_t i : pattern) w[static_cast<std::size_t>(i)] *= scale_[column] * scale_[static_cast<std::size_t>(i)];
        w[column] += shift_;
        if (w[column] < 0.5) w[column] = 1;  // an empty column, or one too short for its scale
        // Less what earlier columns of L contribute.
        for (std::int32_t k = first[column]; k >= 0;) {
            const auto source = static_cast<std::size_t>(k);
            const std::int32_t after = next[source];
            const std::int64_t begin = cursor[source];
            const std::int64_t end = begins_[source + 1];
            const double ljk = values_[static_cast<std::size_t>(begin)];
            for (std::int64_t p = begin; p < end; ++p) {
                const std::int32_t i = rows_[static_cast<std::size_t>(p)];
                if (in_pattern[static_cast<std::size_t>(i)] != j) {
                    if (level_0) continue;
                    touch(i);
                }
                w[static_cast<std::size_t>(i)] -= ljk * values_[static_cast<std::size_t>(p)];
            }
            if (begin + 1 < end) {
                cursor[source] = begin + 1;
                const auto row = static_cast<std::size_t>(rows_[static_cast<std::size_t>(begin + 1)]);
                next[source] = first[row];
                first[row] = k;
            }
            k = after;
        }
        if (!(w[column] > kLeastPivot)) return false;
        const double pivot = std::sqrt(w[column]);
        std::sort(pattern.begin(), pattern.end());
        rows_.push_back(j);
        values_.push_back(pivot);
        for (const std::int32_t i : pattern) {
            if (i == j) continue;
            const double value = w[static_cast<std::size_t>(i)] / pivot;
            if (level_0 ? value == 0 : std::abs(value) < options.drop) continue;
            rows_.push_back(i);
            values_.push_back(value);
        }
        begins_.push_back(static_cast<std::int64_t>(rows_.size()));
        if (nnz() * kEntryBytes > options.limit_bytes) {
            throw InputError(fmt::format("the incomplete factor of A^T A takes more than {:.1f} GiB after {} of {} columns: drop more, or take another "
                                         "preconditioner",
                                         static_cast<double>(options.limit_bytes) / 0x1p30, j + 1, n));
        }
        if (begins_[column] + 1 < begins_[column + 1]) {
            cursor[column] = begins_[column] + 1;
            const auto row = static_cast<std::size_t>(rows_[static_cast<std::size_t>(cursor[column])]);
            next[column] = first[row];
            first[row] = j;
        }
    }
    return true;
}

CsrMatrix IncompleteCholesky::upper() const {
    HostBuffer<std::int64_t> offsets(cols() + 1);
    HostBuffer<std::int32_t> columns(nnz());
    HostBuffer<double> values(nnz());
    std::copy(begins_.begin(), begins_.end(), offsets.data());
    std::copy(rows_.begin(), rows_.end(), columns.data());
    std::copy(values_.begin(), values_.end(), values.data());
    return CsrMatrix::from_csr(cols(), cols(), std::move(offsets), std::move(columns), std::move(values));
}

template <class T>
std::unique_ptr<LinearOperator<T>> IncompleteCholesky::inverse(const std::vector<std::int32_t>& order) const {
    return std::make_unique<TriangularInverse<T>>(*this, order);
}
template std::unique_ptr<LinearOperator<double>> IncompleteCholesky::inverse(const std::vector<std::int32_t>&) const;
template std::unique_ptr<LinearOperator<float>> IncompleteCholesky::inverse(const std::vector<std::int32_t>&) const;

}  // namespace lsmr
