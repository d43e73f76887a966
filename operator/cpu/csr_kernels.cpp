#include "operator/cpu/csr_kernels.hpp"

#include <algorithm>
#include <type_traits>

#include "operator/cpu/block_sum.hpp"

namespace lsmr::cpu {
namespace {

// The chunk's product with the kernel for its types.
template <class T>
double chunk_apply(const RowChunk<T>& chunk, InstructionSet set, T a, const T* x, T b, T* y) {
    return visit_entries(chunk, [&]<class V, class C>(const V* values, const C* columns) {
        if (chunk.order) {
            const SlicedBlock<T, V, C> block{chunk.rows, chunk.offsets, chunk.order, columns, values};
            return sliced_kernel<T, V, C>(set)(block, a, x + chunk.first_column, b, y + chunk.first_row);
        }
        const RowBlock<T, V, C> block{chunk.rows, chunk.offsets, columns, values};
        return rows_kernel<T, V, C>(set)(block, a, x + chunk.first_column, b, y + chunk.first_row);
    });
}

}  // namespace

std::vector<std::int64_t> balanced_chunks(std::int64_t rows, const std::int64_t* offsets, std::int64_t chunk_work) {
    if (rows == 0) return {0};
    // A row costs about as much as a few entries of it.
    constexpr std::int64_t kRowCost = 4;
    const auto work_before = [&](std::int64_t row) { return offsets[row] + kRowCost * row; };
    const std::int64_t total = work_before(rows);
    const std::int64_t count = std::clamp<std::int64_t>(total / chunk_work, 1, kMaxPartials);
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
    constexpr std::int64_t kLeast = 512;
    count = std::clamp<std::int64_t>(n / kLeast, 1, kMaxPartials);
    length = (n + count - 1) / count;
}

const char* name(InstructionSet set) {
    switch (set) {
        case InstructionSet::portable: return "portable";
        case InstructionSet::avx2: return "avx2";
        case InstructionSet::avx512: return "avx512";
    }
    return "";
}

template <class T>
void csr_apply(std::span<const std::span<const RowChunk<T>>> panels, InstructionSet set, double a, const T* x, double b, T* y, NormPartials* norm) {
    const auto count = static_cast<std::int64_t>(panels.front().size());
    double* sums = norm ? norm->sums + norm->count : nullptr;
    // All threads in one panel, so that they find what they gather in the caches that they share, then all in the next.
    for (std::size_t p = 0; p < panels.size(); ++p) {
        for_each_chunk(count, [&](std::int64_t c) {
            const double sum = chunk_apply(panels[p][static_cast<std::size_t>(c)], set, static_cast<T>(a), x, static_cast<T>(p == 0 ? b : 1.0), y);
            if (sums && p + 1 == panels.size()) sums[c] = sum;
        });
    }
    if (norm) norm->count += static_cast<std::int32_t>(count);
}

template <class T>
void csr_apply(const CsrView<T>& matrix, const std::vector<std::int64_t>& chunks, double a, const T* x, double b, T* y,
               NormPartials* norm) {
    std::vector<RowChunk<T>> rows(chunks.size() - 1);
    for (std::size_t c = 0; c < rows.size(); ++c) {
        const std::int64_t k = matrix.offsets[chunks[c]];
        rows[c] = {.first_row = chunks[c], .rows = chunks[c + 1] - chunks[c], .offsets = matrix.offsets + chunks[c],
                   .columns = matrix.columns + k, .values = matrix.values + k};
    }
    const std::span<const RowChunk<T>> panel = rows;
    csr_apply<T>({&panel, 1}, best_instruction_set<T>(), a, x, b, y, norm);
}

template <class T>
void csr_apply_adjoint(const CsrView<T>& matrix, double a, const T* x, double b, T* y, Compensated<T>* scratch, NormPartials* norm) {
    const std::int64_t nnz = matrix.offsets[matrix.rows];
    const std::int64_t cols = matrix.cols;
    for_each_chunk(kPanels, [&](std::int64_t p) {
        Compensated<T>* panel = scratch + p * cols;
        std::fill(panel, panel + cols, Compensated<T>());
        const auto row_at = [&](std::int64_t part) {
            return part == kPanels ? matrix.rows
                                   : std::lower_bound(matrix.offsets, matrix.offsets + matrix.rows, nnz / kPanels * part) - matrix.offsets;
        };
        const std::int64_t end = row_at(p + 1);
        for (std::int64_t i = p == 0 ? 0 : row_at(p); i < end; ++i) {
            for (std::int64_t k = matrix.offsets[i]; k < matrix.offsets[i + 1]; ++k) panel[matrix.columns[k]].add(matrix.values[k] * x[i]);
        }
    });
    const T a_t = static_cast<T>(a);
    const T b_t = static_cast<T>(b);
    const VectorChunks chunks(cols);
    double* sums = norm ? norm->sums + norm->count : nullptr;
    for_each_chunk(chunks.count, [&](std::int64_t c) {
        BlockSum sum;
        for (std::int64_t j = c * chunks.length; j < std::min(cols, (c + 1) * chunks.length); ++j) {
            T product = 0;
            for (std::int64_t p = 0; p < kPanels; ++p) product += scratch[p * cols + j].value();
            product *= a_t;
            const T value = b_t != T(0) ? product + b_t * y[j] : product;
            y[j] = value;
            sum.add(static_cast<double>(value) * static_cast<double>(value));
        }
        if (sums) sums[c] = sum.value();
    });
    if (norm) norm->count += static_cast<std::int32_t>(chunks.count);
}

#define LSMR_INSTANTIATE(T)                                                                                                            \
    template void csr_apply(std::span<const std::span<const RowChunk<T>>>, InstructionSet, double, const T*, double, T*, NormPartials*);                \
    template void csr_apply(const CsrView<T>&, const std::vector<std::int64_t>&, double, const T*, double, T*, NormPartials*);          \
    template void csr_apply_adjoint(const CsrView<T>&, double, const T*, double, T*, Compensated<T>*, NormPartials*);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cpu
