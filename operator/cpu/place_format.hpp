// The formats with places that hold no entry, between those that do: BSR, Blocked-ELL, DIA, dense. The twins of the GPU's.
#pragma once

#include <cstdint>
#include <memory>

#include "operator/cpu/row_format.hpp"

namespace lsmr::cpu {

// 2^exponent a, rounded to T. choice: bsr, bell, dia, dense. But in dense storage, a place without an entry multiplies nothing. Throws InputError
// where the matrix does not fit the format.
template <class T>
std::unique_ptr<RowFormat<T>> make_place_format(const CsrMatrix& a, int exponent, const SpmvChoice& choice);

}  // namespace lsmr::cpu
