// One product with one stored orientation, prepared: kernel, plan, arrays in the form that the kernel reads.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "memory/device_buffer.hpp"
#include "operator/csr_matrix.hpp"
#include "operator/linear_operator.hpp"
#include "operator/spmv_choice.hpp"

namespace lsmr::cuda {

// cuSPARSE takes 32-bit offsets with 32-bit columns only, and its transpose a 32-bit nnz.
inline constexpr std::int64_t kMax32 = kMaxNarrowEntries;

// CSR in device memory as it came: offsets of 32 bits where nnz allows. Buffers are shared: a product keeps those that its kernel reads, and
// the rest is freed when this goes.
template <class T>
struct DeviceCsr {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
    std::shared_ptr<DeviceBuffer<std::int32_t>> offsets32;
    std::shared_ptr<DeviceBuffer<std::int64_t>> offsets64;
    std::shared_ptr<DeviceBuffer<std::int32_t>> columns;  // readable, and zero, up to the next multiple of 8
    std::shared_ptr<DeviceBuffer<T>> values;              // the same

    DeviceCsr() = default;
    DeviceCsr(const CudaContext& context, std::int64_t rows, std::int64_t cols, std::int64_t nnz);
    bool wide() const { return nnz > kMax32; }
    // f(offsets), with the type that is in use.
    template <class F>
    void with_offsets(const F& f) const {
        if (wide()) f(offsets64->data());
        else f(offsets32->data());
    }
};

// The offsets of the same matrix in host memory, of either width.
struct HostOffsets {
    const std::int32_t* narrow = nullptr;
    const std::int64_t* wide = nullptr;
    template <class F>
    void with(const F& f) const {
        if (wide != nullptr) f(wide);
        else f(narrow);
    }
};

// What concurrent runs of a product may not share.
struct ProductScratch {
    virtual ~ProductScratch() = default;
};
// Of products that need the stream alone.
struct NoScratch final : ProductScratch {
    explicit NoScratch(const CudaContext& of) : context(of) {}
    const CudaContext& context;
};

template <class T>
class CsrProduct {
  public:
    virtual ~CsrProduct() = default;
    // Of the stream of `context`; its memory comes from that context's pool.
    virtual std::unique_ptr<ProductScratch> make_scratch(const CudaContext& context) const = 0;
    // y <- a A x + b y on the stream of the scratch's context; b = 0: y is not read. partials: null, or partials() values, which get partial
    // sums of ||y||^2. Never waits; never allocates, but for cuSPARSE's copies of vectors that are not aligned to 16 bytes, at the first such product.
    virtual void run(Scalar<T> a, const T* x, Scalar<T> b, T* y, double* partials, ProductScratch& scratch) const = 0;
    virtual std::int32_t partials() const = 0;
    virtual std::int64_t bytes() const = 0;  // of the arrays it holds
    virtual std::string words() const = 0;   // what it does, for people
    // Share of the lanes that have no block while their warp works, where the kernel deals blocks to lanes.
    virtual std::optional<double> idle_lanes() const { return std::nullopt; }
};

// longest_row: an upper bound of the entries of a row.
// Throws InputError where the choice does not fit the matrix (cuSPARSE beyond 2^31 - 1 entries), OutOfMemory.
template <class T>
std::unique_ptr<CsrProduct<T>> make_csr_product(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice,
                                                const CudaContext& context);

template <class T>
std::unique_ptr<CsrProduct<T>> make_stream_product(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice,
                                                   const CudaContext& context);
// Also throws InputError where shared memory has no room for it.
template <class T>
std::unique_ptr<CsrProduct<T>> make_window_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context);
// Also throws InputError where padding would be too much.
template <class T>
std::unique_ptr<CsrProduct<T>> make_format_product(const DeviceCsr<T>& a, const HostOffsets& offsets, std::int64_t longest_row, const SpmvChoice& choice,
                                                   const CudaContext& context);
template <class T>
std::unique_ptr<CsrProduct<T>> make_cusparse_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context);
// bsr, bell.
template <class T>
std::unique_ptr<CsrProduct<T>> make_block_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context);
template <class T>
std::unique_ptr<CsrProduct<T>> make_diagonal_product(const DeviceCsr<T>& a, const CudaContext& context);
template <class T>
std::unique_ptr<CsrProduct<T>> make_dense_product(const DeviceCsr<T>& a, const CudaContext& context);
template <class T>
std::unique_ptr<CsrProduct<T>> make_cusparse_bsr_product(const DeviceCsr<T>& a, const SpmvChoice& choice, const CudaContext& context);

}  // namespace lsmr::cuda
