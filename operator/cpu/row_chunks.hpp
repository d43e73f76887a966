// Products over chunks of rows that depend on the matrix alone: how the rows of a chunk are finished, and the partial sums of ||y||^2.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/cpu/block_sum.hpp"
#include "operator/cpu/csr_kernels.hpp"
#include "operator/linear_operator.hpp"

namespace lsmr::cpu {

// y_i <- a sum + b y_i, and its square.
template <class T>
struct Finish {
    T a;
    T b;
    T* y;
    BlockSum squares;
    void operator()(std::int64_t row, T sum) {
        const T product = a * sum;
        y[row] = b != T(0) ? product + b * y[row] : product;
        squares.add(static_cast<double>(y[row]) * static_cast<double>(y[row]));
    }
};

// f(first, end, finish) for every chunk; one partial of ||y||^2 each.
template <class T, class F>
void run_chunks(const std::vector<std::int64_t>& chunks, double a, double b, T* y, NormPartials* norm, const F& f) {
    const auto count = static_cast<std::int64_t>(chunks.size()) - 1;
    double* sums = norm ? norm->sums + norm->count : nullptr;
    for_each_chunk(count, [&](std::int64_t c) {
        Finish<T> finish{static_cast<T>(a), static_cast<T>(b), y, {}};
        f(chunks[static_cast<std::size_t>(c)], chunks[static_cast<std::size_t>(c) + 1], finish);
        if (sums) sums[c] = finish.squares.value();
    });
    if (norm) norm->count += static_cast<std::int32_t>(count);
}

}  // namespace lsmr::cpu
