// Products with a CSR matrix in host memory, OpenMP over chunks of rows that do not depend on the number of threads: the same bits
// for any of them.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/linear_operator.hpp"

namespace lsmr::cpu {

template <class T>
struct CsrView {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const std::int64_t* offsets = nullptr;
    const std::int32_t* columns = nullptr;
    const T* values = nullptr;
};

// First rows of the chunks, and the end: at most kMaxPartials chunks of about equal work.
std::vector<std::int64_t> balanced_chunks(std::int64_t rows, const std::int64_t* offsets);

// y <- a A x + b y, row by row; chunks from balanced_chunks(). One partial of ||y||^2 a chunk.
template <class T>
void csr_apply(const CsrView<T>& matrix, const std::vector<std::int64_t>& chunks, double a, const T* x, double b, T* y,
               NormPartials* norm);

// y <- a A^T x + b y from CSR(A): each of kPanels row panels adds into a vector of its own (scratch: kPanels cols values), then these
// are added in order.
inline constexpr std::int64_t kPanels = 8;
template <class T>
void csr_apply_adjoint(const CsrView<T>& matrix, double a, const T* x, double b, T* y, T* scratch, NormPartials* norm);

// The chunks in which loops over a vector of n values run, and in which their sums are formed.
struct VectorChunks {
    explicit VectorChunks(std::int64_t n);
    std::int64_t count;
    std::int64_t length;
};

}  // namespace lsmr::cpu
