// One orientation of a matrix on the CPU in a format with places that hold no entry: BSR, Blocked-ELL, DIA, dense. Only where it is asked for:
// the twins of the GPU's formats, OpenMP over chunks that do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "operator/csr_matrix.hpp"
#include "operator/linear_operator.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr::cpu {

template <class T>
class PaddedStorage {
  public:
    virtual ~PaddedStorage() = default;
    // y <- a A x + b y; b = 0: y is not read. But in dense storage, a place without an entry multiplies nothing.
    virtual void apply(double a, const T* x, double b, T* y, NormPartials* norm) const = 0;
    virtual std::int64_t bytes() const = 0;
    virtual std::string words() const = 0;
};

// 2^exponent a, rounded to T. choice: bsr (values as vectors), bell, dia, dense. Throws InputError where the matrix does not fit the format.
template <class T>
std::unique_ptr<PaddedStorage<T>> make_padded_storage(const CsrMatrix& a, int exponent, const SpmvChoice& choice);

}  // namespace lsmr::cpu
