#include "operator/cpu/csr_kernels.hpp"

#include <algorithm>

namespace lsmr::cpu {
namespace {

// Entries of work: large beside the start of a chunk or of a team of threads, small beside a cache. Less than this runs on one thread.
constexpr std::int64_t kSerialWork = 32 * 1024;

// A sum formed in blocks, so that its rounding does not grow with the number of terms: errors in norms cost orthogonality.
class BlockSum {
  public:
    void add(double value) {
        block_ += value;
        if (++count_ == kBlock) {
            total_ += block_;
            block_ = 0;
            count_ = 0;
        }
    }
    double value() const { return total_ + block_; }

  private:
    static constexpr int kBlock = 64;
    double total_ = 0;
    double block_ = 0;
    int count_ = 0;
};

// Four sums, so that the additions of a row do not wait for each other; combined in a fixed order.
template <class T>
T row_product(const std::int32_t* columns, const T* values, std::int64_t begin, std::int64_t end, const T* x) {
    T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    std::int64_t k = begin;
    for (; k + 4 <= end; k += 4) {
        s0 += values[k] * x[columns[k]];
        s1 += values[k + 1] * x[columns[k + 1]];
        s2 += values[k + 2] * x[columns[k + 2]];
        s3 += values[k + 3] * x[columns[k + 3]];
    }
    for (; k < end; ++k) s0 += values[k] * x[columns[k]];
    return (s0 + s1) + (s2 + s3);
}

}  // namespace

std::vector<std::int64_t> balanced_chunks(std::int64_t rows, const std::int64_t* offsets) {
    if (rows == 0) return {0};
    // A row costs about as much as a few entries of it.
    constexpr std::int64_t kRowCost = 4;
    const auto work_before = [&](std::int64_t row) { return offsets[row] + kRowCost * row; };
    const std::int64_t total = work_before(rows);
    const std::int64_t count = std::clamp<std::int64_t>(total / kSerialWork, 1, kMaxPartials);
    std::vector<std::int64_t> first{0};
    for (std::int64_t c = 1; c < count; ++c) {
        const std::int64_t target = total / count * c;
        std::int64_t low = first.back();
        std::int64_t high = rows;
        while (low < high) {
            const std::int64_t middle = low + (high - low) / 2;
            if (work_before(middle) < target) low = middle + 1;
            else high = middle;
        }
        if (low > first.back() && low < rows) first.push_back(low);
    }
    first.push_back(rows);
    return first;
}

VectorChunks::VectorChunks(std::int64_t n) {
    constexpr std::int64_t kLeast = 16 * 1024;
    count = std::clamp<std::int64_t>(n / kLeast, 1, kMaxPartials);
    length = (n + count - 1) / count;
}

template <class T>
void csr_apply(const CsrView<T>& matrix, const std::vector<std::int64_t>& chunks, double a, const T* x, double b, T* y,
               NormPartials* norm) {
    const T a_t = static_cast<T>(a);
    const T b_t = static_cast<T>(b);
    const auto count = static_cast<std::int64_t>(chunks.size()) - 1;
    double* sums = norm ? norm->sums + norm->count : nullptr;
#pragma omp parallel for schedule(dynamic, 1) if (count > 1)
    for (std::int64_t c = 0; c < count; ++c) {
        BlockSum sum;
        const std::int64_t end = chunks[static_cast<std::size_t>(c) + 1];
        for (std::int64_t i = chunks[static_cast<std::size_t>(c)]; i < end; ++i) {
            const T product = a_t * row_product(matrix.columns, matrix.values, matrix.offsets[i], matrix.offsets[i + 1], x);
            const T value = b_t != T(0) ? product + b_t * y[i] : product;
            y[i] = value;
            sum.add(static_cast<double>(value) * static_cast<double>(value));
        }
        if (sums) sums[c] = sum.value();
    }
    if (norm) norm->count += static_cast<std::int32_t>(count);
}

template <class T>
void csr_apply_adjoint(const CsrView<T>& matrix, double a, const T* x, double b, T* y, T* scratch, NormPartials* norm) {
    const std::int64_t nnz = matrix.offsets[matrix.rows];
    const std::int64_t cols = matrix.cols;
#pragma omp parallel for schedule(dynamic, 1) if (nnz > kSerialWork)
    for (std::int64_t p = 0; p < kPanels; ++p) {
        T* panel = scratch + p * cols;
        std::fill(panel, panel + cols, T(0));
        const auto row_at = [&](std::int64_t part) {
            return part == kPanels ? matrix.rows
                                   : std::lower_bound(matrix.offsets, matrix.offsets + matrix.rows, nnz / kPanels * part) - matrix.offsets;
        };
        const std::int64_t end = row_at(p + 1);
        for (std::int64_t i = p == 0 ? 0 : row_at(p); i < end; ++i) {
            for (std::int64_t k = matrix.offsets[i]; k < matrix.offsets[i + 1]; ++k) panel[matrix.columns[k]] += matrix.values[k] * x[i];
        }
    }
    const T a_t = static_cast<T>(a);
    const T b_t = static_cast<T>(b);
    const VectorChunks chunks(cols);
    double* sums = norm ? norm->sums + norm->count : nullptr;
#pragma omp parallel for schedule(static) if (chunks.count > 1)
    for (std::int64_t c = 0; c < chunks.count; ++c) {
        BlockSum sum;
        for (std::int64_t j = c * chunks.length; j < std::min(cols, (c + 1) * chunks.length); ++j) {
            T product = 0;
            for (std::int64_t p = 0; p < kPanels; ++p) product += scratch[p * cols + j];
            product *= a_t;
            const T value = b_t != T(0) ? product + b_t * y[j] : product;
            y[j] = value;
            sum.add(static_cast<double>(value) * static_cast<double>(value));
        }
        if (sums) sums[c] = sum.value();
    }
    if (norm) norm->count += static_cast<std::int32_t>(chunks.count);
}

template void csr_apply(const CsrView<double>&, const std::vector<std::int64_t>&, double, const double*, double, double*, NormPartials*);
template void csr_apply(const CsrView<float>&, const std::vector<std::int64_t>&, double, const float*, double, float*, NormPartials*);
template void csr_apply_adjoint(const CsrView<double>&, double, const double*, double, double*, double*, NormPartials*);
template void csr_apply_adjoint(const CsrView<float>&, double, const float*, double, float*, float*, NormPartials*);

}  // namespace lsmr::cpu
