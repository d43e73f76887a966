// A stored once, for one pass that gives both products of an iteration: prepared, as csr_product.hpp prepares one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/one_pass_kernels.hpp"
#include "operator/operator_options.hpp"

namespace lsmr::cuda {

template <class T>
class OnePassProduct {
  public:
    virtual ~OnePassProduct() = default;
    // Of the stream of `context`, as CsrProduct::make_scratch.
    virtual std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const = 0;
    // y <- a A x + b y; keep: z = A^T y stays in the scratch. partials: null, or row_partials() values, which get partial sums of ||y||^2.
    enum class Keep { nothing, adjoint };
    virtual void apply(Keep keep, Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const = 0;
    // x <- a z + b x, with the z that was kept. partials: null, or col_partials() values.
    virtual void apply_kept_adjoint(Scalar<T> a, Scalar<T> b, T* x, double* partials, ProductScratch& scratch) const = 0;
    // x <- a A^T y + b x.
    virtual void apply_adjoint(Scalar<T> a, const T* y, Scalar<T> b, T* x, double* partials, ProductScratch& scratch) const = 0;
    // The values of another matrix of this shape in the places of those before. False: its entries are not at the same places, or its values need a wider
    // type, and the product is not to be used. Waits.
    virtual bool refill(const DeviceCsr<T>& a, const CudaContext& context) = 0;
    virtual std::int32_t row_partials() const = 0;
    virtual std::int32_t col_partials() const = 0;
    virtual std::int64_t bytes() const = 0;
    virtual std::string words() const = 0;
    virtual bool rounded_values() const = 0;  // stored values differ from those given
    virtual double least_pair_seconds() const = 0;  // of both products by two stored orientations, however they are stored: their bytes by the bandwidth
};

// Time of the two products of an iteration over that of one pass, both by their bytes on an H200, or the pass by the turns that its warps take where
// panels are few. rows, cols, nnz: of A; places: of the slices; widths in bytes of the stored values and of the vectors.
double one_pass_gain(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t places, int value_bytes, int vector_bytes,
                     const OnePassLaunch& launch);
// One pass is tried, and timed against two products, where it promises at least this; and taken without timing where it promises more.
inline constexpr double kOnePassGainToTry = 1.15;
inline constexpr double kOnePassGainUntimed = 1.5;
// One pass that is timed to be so many times as fast as least_pair_seconds() is taken before anything is known of the two products.
inline constexpr double kOnePassGainAtOnce = 1.15;

// Why A can have no such product, in words; empty: it can. longest_row: of A.
template <class T>
std::string why_not_one_pass(std::int64_t rows, std::int64_t cols, std::int64_t nnz, std::int64_t longest_row, const CudaContext& context);

// Throws InputError with those words, or where the gain is less than least_gain; OutOfMemory.
template <class T>
std::unique_ptr<OnePassProduct<T>> make_one_pass_product(const DeviceCsr<T>& a, NarrowKind narrow, double least_gain, const CudaContext& context);

// Median seconds of y <- A x + y with A^T y, over `repeats` runs after `warm_up` runs; vectors of zeros, times by events.
template <class T>
double time_one_pass(std::int64_t rows, std::int64_t cols, const OnePassProduct<T>& product, int warm_up, int repeats, const CudaContext& context);

}  // namespace lsmr::cuda
