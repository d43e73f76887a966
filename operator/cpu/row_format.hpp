// One orientation of a matrix in a format of its own, multiplied on the CPU: OpenMP over chunks of rows that depend on the matrix alone, so the bits
// do not depend on the number of threads.
#pragma once

#include <memory>
#include <string>

#include "operator/cpu/csr_rows.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/linear_operator.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr::cpu {

template <class T>
class RowFormat {
  public:
    virtual ~RowFormat() = default;
    // y <- a A x + b y; b = 0: y is not read.
    virtual void apply(double a, const T* x, double b, T* y, NormPartials* norm) const = 0;
    virtual std::int64_t bytes() const = 0;
    virtual std::string words() const = 0;
};

// 2^exponent a, rounded to T. Throws InputError where the choice is no format, has a form that only the GPU has, or padding would be too much.
template <class T>
std::unique_ptr<RowFormat<T>> make_row_format(const CsrMatrix& a, int exponent, const SpmvChoice& choice, InstructionSet set);

}  // namespace lsmr::cpu
