// cuSPARSE's descriptors as owned objects, so that a constructor that throws leaves none behind.
#pragma once

#include <cusparse.h>

#include <cstdint>
#include <memory>

#include "memory/cuda_check.hpp"
#include "operator/cuda/csr_product.hpp"

namespace lsmr::cuda {

template <class T>
inline constexpr cudaDataType kCudaType = sizeof(T) == sizeof(double) ? CUDA_R_64F : CUDA_R_32F;

struct DestroyDescriptor {
    void operator()(cusparseSpMatDescr_t descriptor) const { LSMR_CHECK_NOTHROW(cusparseDestroySpMat(descriptor)); }
    void operator()(cusparseDnVecDescr_t descriptor) const { LSMR_CHECK_NOTHROW(cusparseDestroyDnVec(descriptor)); }
    void operator()(cusparseSpSVDescr_t descriptor) const { LSMR_CHECK_NOTHROW(cusparseSpSV_destroyDescr(descriptor)); }
};
using MatrixDescriptor = std::unique_ptr<cusparseSpMatDescr, DestroyDescriptor>;
using VectorDescriptor = std::unique_ptr<cusparseDnVecDescr, DestroyDescriptor>;
using SolveDescriptor = std::unique_ptr<cusparseSpSVDescr, DestroyDescriptor>;

// Of arrays in device memory, which stay the caller's. a: offsets of 32 bits.
template <class T>
MatrixDescriptor describe(const DeviceCsr<T>& a) {
    cusparseSpMatDescr_t descriptor = nullptr;
    LSMR_CHECK(cusparseCreateCsr(&descriptor, a.rows, a.cols, a.nnz, a.offsets32->data(), a.columns->data(), a.values->data(), CUSPARSE_INDEX_32I,
                                 CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, kCudaType<T>));
    return MatrixDescriptor(descriptor);
}
template <class T>
VectorDescriptor describe(std::int64_t size, T* values) {
    cusparseDnVecDescr_t descriptor = nullptr;
    LSMR_CHECK(cusparseCreateDnVec(&descriptor, size, values, kCudaType<T>));
    return VectorDescriptor(descriptor);
}

// Where cuSPARSE wants a vector to begin.
inline bool is_aligned(const void* vector) { return reinterpret_cast<std::uintptr_t>(vector) % 16 == 0; }

}  // namespace lsmr::cuda
