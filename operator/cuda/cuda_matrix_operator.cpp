// The dual CSR/CSC operator on the GPU: upload, the other orientation, one plan a direction, products.
#include <cusparse.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "memory/device_buffer.hpp"
#include "memory/host_buffer.hpp"
#include "operator/cuda/csr_kernels.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator/cuda/transpose.hpp"
#include "operator/cuda/uploader.hpp"
#include "operator/cuda/vector_kernels.hpp"

namespace lsmr {
namespace {

template <class T>
constexpr cudaDataType kCudaType = sizeof(T) == sizeof(double) ? CUDA_R_64F : CUDA_R_32F;

// cuSPARSE takes 32-bit offsets with 32-bit columns only, and its transpose a 32-bit nnz.
constexpr std::int64_t kMax32 = std::numeric_limits<std::int32_t>::max();

// One stored orientation: a CSR matrix in device memory, with 32-bit offsets where nnz allows.
template <class T>
struct DeviceCsr {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
    DeviceBuffer<std::int32_t> offsets32;
    DeviceBuffer<std::int64_t> offsets64;
    DeviceBuffer<std::int32_t> columns;
    DeviceBuffer<T> values;
    std::int64_t longest_row = 0;
    // The plan of our kernel.
    DeviceBuffer<cuda::CsrItem> items;
    DeviceBuffer<cuda::CsrSegment> segments;
    DeviceBuffer<cuda::CsrSplitRow> split_rows;
    cuda::CsrLaunch launch;

    DeviceCsr() = default;
    DeviceCsr(const CudaContext& context, std::int64_t rows_, std::int64_t cols_, std::int64_t nnz_)
        : rows(rows_), cols(cols_), nnz(nnz_), columns(context, nnz_), values(context, nnz_) {
        if (wide()) offsets64 = DeviceBuffer<std::int64_t>(context, rows + 1);
        else offsets32 = DeviceBuffer<std::int32_t>(context, rows + 1);
    }
    bool wide() const { return nnz > kMax32; }
    std::int64_t bytes() const {
        return offsets32.bytes() + offsets64.bytes() + columns.bytes() + values.bytes() + items.bytes() + segments.bytes() + split_rows.bytes();
    }

    // f(offsets), with the type that is in use.
    template <class F>
    void with_offsets(const F& f) {
        if (wide()) f(offsets64.data());
        else f(offsets32.data());
    }
    // The plan of our kernel, and the longest row, from the offsets on the host.
    template <class Offset>
    void make_plan(const CudaContext& context, const Offset* host_offsets) {
        for (std::int64_t i = 0; i < rows; ++i) {
            longest_row = std::max(longest_row, static_cast<std::int64_t>(host_offsets[i + 1]) - static_cast<std::int64_t>(host_offsets[i]));
        }
        const cuda::CsrPlan plan = cuda::make_csr_plan(rows, host_offsets, cuda::kCsrCapacity<T>);
        launch = cuda::choose_csr_launch(plan, context.multiprocessors());
        const auto send = [&](auto& buffer, const auto& list) {
            buffer = std::remove_reference_t<decltype(buffer)>(context, static_cast<std::int64_t>(list.size()));
            if (list.empty()) return;
            LSMR_CHECK(cudaMemcpyAsync(buffer.data(), list.data(), list.size() * sizeof(list[0]), cudaMemcpyHostToDevice, context.stream()));
        };
        send(items, plan.items);
        send(segments, plan.segments);
        send(split_rows, plan.split_rows);
        context.synchronize();  // the lists on the host go
    }
    // The same where only the device has the offsets.
    void make_plan(const CudaContext& context) {
        with_offsets([&](const auto* offsets) {
            HostBuffer<std::remove_const_t<std::remove_pointer_t<decltype(offsets)>>> host(rows + 1);
            LSMR_CHECK(cudaMemcpyAsync(host.data(), offsets, static_cast<std::size_t>(host.bytes()), cudaMemcpyDeviceToHost, context.stream()));
            context.synchronize();
            make_plan(context, host.data());
        });
    }
    template <class Offset>
    cuda::CsrDevice<T, Offset> view(const Offset* offsets) const {
        return {offsets, columns.data(), values.data(), items.data(), static_cast<std::int32_t>(items.size()), segments.data(),
                static_cast<std::int32_t>(segments.size()), split_rows.data(), static_cast<std::int32_t>(split_rows.size())};
    }
};

template <class T>
DeviceCsr<T> upload(const CsrMatrix& a, const CudaContext& context, int exponent) {
    DeviceCsr<T> device(context, a.rows(), a.cols(), a.nnz());
    cuda::Uploader up(context);
    device.with_offsets([&](auto* offsets) {
        using Offset = std::remove_pointer_t<decltype(offsets)>;
        up(offsets, a.offsets(), a.rows() + 1, [](std::int64_t o) { return static_cast<Offset>(o); });
    });
    up(device.columns.data(), a.columns(), a.nnz(), [](std::int32_t c) { return c; });
    if (exponent == 0) {
        up(device.values.data(), a.values(), a.nnz(), [](double v) { return static_cast<T>(v); });
    } else {
        const double half = std::ldexp(1.0, exponent / 2);
        const double rest = std::ldexp(1.0, exponent - exponent / 2);
        up(device.values.data(), a.values(), a.nnz(), [=](double v) { return static_cast<T>(v * half * rest); });
    }
    return device;
}

// CSR of the transpose. Below 2^31 entries cusparseCsr2cscEx2: CSC(A) is CSR(A^T). Beyond, our own.
template <class T>
DeviceCsr<T> transposed(DeviceCsr<T>& a, const CsrMatrix& host, const CudaContext& context) {
    DeviceCsr<T> t(context, a.cols, a.rows, a.nnz);
    if (a.nnz == 0) {
        t.with_offsets([&](auto* offsets) {
            LSMR_CHECK(cudaMemsetAsync(offsets, 0, static_cast<std::size_t>(t.rows + 1) * sizeof(*offsets), context.stream()));
        });
    } else if (!a.wide()) {
        std::size_t bytes = 0;
        const auto m = static_cast<int>(a.rows);
        const auto n = static_cast<int>(a.cols);
        const auto nnz = static_cast<int>(a.nnz);
        LSMR_CHECK(cusparseCsr2cscEx2_bufferSize(context.cusparse(), m, n, nnz, a.values.data(), a.offsets32.data(), a.columns.data(),
                                                 t.values.data(), t.offsets32.data(), t.columns.data(), kCudaType<T>,
                                                 CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG_DEFAULT, &bytes));
        DeviceBuffer<std::byte> buffer(context, static_cast<std::int64_t>(bytes));
        LSMR_CHECK(cusparseCsr2cscEx2(context.cusparse(), m, n, nnz, a.values.data(), a.offsets32.data(), a.columns.data(),
                                      t.values.data(), t.offsets32.data(), t.columns.data(), kCudaType<T>, CUSPARSE_ACTION_NUMERIC,
                                      CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG_DEFAULT, buffer.data()));
    } else {
        constexpr std::int64_t kChunk = std::int64_t{1} << 27;
        cuda::TransposeScratch scratch(context, a.cols, std::max(kChunk, a.longest_row));
        cuda::launch_transpose(a.rows, a.cols, host.offsets(), a.offsets64.data(), a.columns.data(), a.values.data(), t.offsets64.data(),
                               t.columns.data(), t.values.data(), scratch, context.stream());
    }
    return t;
}

// cuSPARSE's view of one product: descriptor and buffer of its own, made once; the loop only sets the vectors' addresses.
template <class T>
class CusparseProduct {
  public:
    CusparseProduct(DeviceCsr<T>& a, cusparseOperation_t operation, const CudaContext& context, const T* one)
        : context_(context), operation_(operation) {
        const bool plain = operation == CUSPARSE_OPERATION_NON_TRANSPOSE;
        x_size_ = plain ? a.cols : a.rows;
        y_size_ = plain ? a.rows : a.cols;
        LSMR_CHECK(cusparseCreateCsr(&matrix_, a.rows, a.cols, a.nnz, a.offsets32.data(), a.columns.data(), a.values.data(),
                                     CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, kCudaType<T>));
        // Any address will do until the first product.
        LSMR_CHECK(cusparseCreateDnVec(&x_, x_size_, a.values.data(), kCudaType<T>));
        LSMR_CHECK(cusparseCreateDnVec(&y_, y_size_, a.values.data(), kCudaType<T>));
        std::size_t bytes = 0;
        LSMR_CHECK(cusparseSpMV_bufferSize(context.cusparse(), operation_, one, matrix_, x_, one, y_, kCudaType<T>, kAlgorithm, &bytes));
        // Never null, even where cuSPARSE asks for nothing.
        buffer_ = DeviceBuffer<std::byte>(context, std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 256));
        LSMR_CHECK(cusparseSpMV_preprocess(context.cusparse(), operation_, one, matrix_, x_, one, y_, kCudaType<T>, kAlgorithm, buffer_.data()));
    }
    ~CusparseProduct() {
        if (y_) LSMR_CHECK_NOTHROW(cusparseDestroyDnVec(y_));
        if (x_) LSMR_CHECK_NOTHROW(cusparseDestroyDnVec(x_));
        if (matrix_) LSMR_CHECK_NOTHROW(cusparseDestroySpMat(matrix_));
    }
    CusparseProduct(const CusparseProduct&) = delete;
    CusparseProduct& operator=(const CusparseProduct&) = delete;

    void operator()(Scalar<T> a, const T* x, Scalar<T> b, T* y) {
        // cuSPARSE wants 16-byte alignment; a vector that is not so goes through a copy.
        const bool aligned = is_aligned(x) && is_aligned(y);
        const cudaStream_t stream = context_.stream();
        T* to = y;
        if (!aligned) {
            if (copy_x_.size() == 0) copy_x_ = DeviceBuffer<T>(context_, x_size_);
            if (copy_y_.size() == 0) copy_y_ = DeviceBuffer<T>(context_, y_size_);
            LSMR_CHECK(cudaMemcpyAsync(copy_x_.data(), x, static_cast<std::size_t>(x_size_) * sizeof(T), cudaMemcpyDeviceToDevice, stream));
            LSMR_CHECK(cudaMemcpyAsync(copy_y_.data(), y, static_cast<std::size_t>(y_size_) * sizeof(T), cudaMemcpyDeviceToDevice, stream));
            x = copy_x_.data();
            to = copy_y_.data();
        }
        LSMR_CHECK(cusparseDnVecSetValues(x_, const_cast<T*>(x)));
        LSMR_CHECK(cusparseDnVecSetValues(y_, to));
        LSMR_CHECK(cusparseSpMV(context_.cusparse(), operation_, a.narrow, matrix_, x_, b.narrow, y_, kCudaType<T>, kAlgorithm, buffer_.data()));
        if (!aligned) LSMR_CHECK(cudaMemcpyAsync(y, to, static_cast<std::size_t>(y_size_) * sizeof(T), cudaMemcpyDeviceToDevice, stream));
    }

  private:
    // The default algorithm's bits vary between runs; this one's do not (without transposition).
    static constexpr cusparseSpMVAlg_t kAlgorithm = CUSPARSE_SPMV_CSR_ALG2;
    static bool is_aligned(const T* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

    const CudaContext& context_;
    cusparseOperation_t operation_;
    std::int64_t x_size_ = 0;
    std::int64_t y_size_ = 0;
    cusparseSpMatDescr_t matrix_ = nullptr;
    cusparseDnVecDescr_t x_ = nullptr;
    cusparseDnVecDescr_t y_ = nullptr;
    DeviceBuffer<std::byte> buffer_;
    DeviceBuffer<T> copy_x_;
    DeviceBuffer<T> copy_y_;
};

template <class T>
struct ProductWorkspace : Workspace {
    using Workspace::Workspace;
    std::unique_ptr<CusparseProduct<T>> forward;  // null: our kernel
    std::unique_ptr<CusparseProduct<T>> adjoint;
    DeviceBuffer<double> segment_sums;  // of split rows
};

template <class T>
class CudaMatrixOperator final : public MatrixOperator<T> {
  public:
    // `stored` is CSR of A, or of A^T where stored_is_transpose.
    CudaMatrixOperator(const CsrMatrix& stored, bool stored_is_transpose, CudaContext& context, const OperatorOptions& options)
        : context_(context), exponent_(options.exponent) {
        const DeviceScope scope(context.device());
        const bool wide = stored.nnz() > kMax32;
        if (wide && options.spmv == SpmvKind::cusparse) {
            throw InputError(fmt::format("cuSPARSE products are limited to {} nonzeros, the matrix has {}; use our own kernels (own or auto)",
                                         kMax32, stored.nnz()));
        }
        choose_storage(stored, options, wide);
        rows_ = stored_is_transpose ? stored.cols() : stored.rows();
        cols_ = stored_is_transpose ? stored.rows() : stored.cols();
        one_ = DeviceBuffer<T>(context, 1);
        const T one = 1;
        LSMR_CHECK(cudaMemcpyAsync(one_.data(), &one, sizeof(T), cudaMemcpyHostToDevice, context.stream()));

        DeviceCsr<T> given = upload<T>(stored, context, exponent_);
        given.make_plan(context, stored.offsets());
        if (plan_.storage == StorageKind::dual || stored_is_transpose) {
            DeviceCsr<T> other = transposed(given, stored, context);
            other.make_plan(context);
            a_ = stored_is_transpose ? std::move(other) : std::move(given);
            if (plan_.storage == StorageKind::dual) at_ = stored_is_transpose ? std::move(given) : std::move(other);
        } else {
            a_ = std::move(given);
        }

        const bool has_entries = stored.nnz() > 0;
        const bool dual = plan_.storage == StorageKind::dual;
        forward_cusparse_ = has_entries && !wide && use_cusparse(options.spmv, a_);
        adjoint_cusparse_ = has_entries && (!dual || (!wide && use_cusparse(options.spmv, at_)));
        plan_.forward = forward_cusparse_ ? "cusparse csr_alg2" : own_words(a_);
        plan_.adjoint = !dual ? "cusparse csr transposed" : adjoint_cusparse_ ? "cusparse csr_alg2 of A^T" : own_words(at_) + " of A^T";
        plan_.deterministic = dual || !has_entries;
        if (!plan_.deterministic) plan_.notes.push_back("the product with A^T adds in an order that varies: bits may differ between runs");
        plan_.bytes = a_.bytes() + at_.bytes();
    }

    std::int64_t rows() const override { return rows_; }
    std::int64_t cols() const override { return cols_; }
    Space space() const override { return Space::cuda; }
    int exponent() const override { return exponent_; }
    const OperatorPlan& plan() const override { return plan_; }

    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        auto& w = static_cast<ProductWorkspace<T>&>(workspace);
        product(a_, w.forward.get(), rows_, a, x, b, y, w, norm);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        auto& w = static_cast<ProductWorkspace<T>&>(workspace);
        if (plan_.storage == StorageKind::single && w.adjoint == nullptr) {
            // No entries: y <- b y.
            double* sums = norm ? norm->sums + norm->count : nullptr;
            cuda::launch_scale(cols_, b, y, sums, w.context()->stream());
            if (norm) norm->count += cuda::vector_blocks(cols_);
            return;
        }
        product(at_, w.adjoint.get(), cols_, a, x, b, y, w, norm);
    }

    std::unique_ptr<Workspace> make_workspace(CudaContext* context) const override {
        LSMR_EXPECT(context != nullptr);
        if (context->device() != context_.device()) {
            throw InputError(fmt::format("operator: A lies on GPU {}, the context is of GPU {}", context_.device(), context->device()));
        }
        auto w = std::make_unique<ProductWorkspace<T>>(context);
        w->segment_sums = DeviceBuffer<double>(*context, std::max(a_.segments.size(), at_.segments.size()));
        if (forward_cusparse_) {
            w->forward = std::make_unique<CusparseProduct<T>>(a_, CUSPARSE_OPERATION_NON_TRANSPOSE, *context, one_.data());
        }
        if (adjoint_cusparse_ && plan_.storage == StorageKind::dual) {
            w->adjoint = std::make_unique<CusparseProduct<T>>(at_, CUSPARSE_OPERATION_NON_TRANSPOSE, *context, one_.data());
        } else if (adjoint_cusparse_) {
            w->adjoint = std::make_unique<CusparseProduct<T>>(a_, CUSPARSE_OPERATION_TRANSPOSE, *context, one_.data());
        }
        return w;
    }

  private:
    // Our stream kernel is the faster one on average (docs/benchmarks/h200_csr.md); with rows far beyond the average cuSPARSE's balanced product is.
    static bool use_cusparse(SpmvKind kind, const DeviceCsr<T>& a) {
        if (kind != SpmvKind::automatic) return kind == SpmvKind::cusparse;
        constexpr std::int64_t kLong = 4096;
        constexpr std::int64_t kUneven = 64;
        return a.longest_row > kLong && a.longest_row > kUneven * (a.nnz / std::max<std::int64_t>(a.rows, 1) + 1);
    }
    static std::string own_words(const DeviceCsr<T>& a) {
        return fmt::format("own csr stream, {} blocks{}", a.launch.blocks,
                           a.split_rows.size() > 0 ? fmt::format(", {} rows split", a.split_rows.size()) : std::string());
    }

    void choose_storage(const CsrMatrix& stored, const OperatorOptions& options, bool wide) {
        const std::int64_t dual_bytes = cuda_operator_bytes<T>(stored.rows(), stored.cols(), stored.nnz(), StorageKind::dual);
        const std::int64_t single_bytes = cuda_operator_bytes<T>(stored.rows(), stored.cols(), stored.nnz(), StorageKind::single);
        const std::int64_t free_bytes = context_.free_bytes();
        const auto refuse_single = [&]() -> const char* {
            if (options.deterministic) return "the product with A^T of single storage adds in an order that varies, and a deterministic solve was asked for";
            if (options.spmv == SpmvKind::own) return "single storage multiplies by A^T with cuSPARSE, and our own kernels were asked for";
            if (wide) return "single storage multiplies by A^T with cuSPARSE, which is limited to 2^31 - 1 nonzeros";
            return nullptr;
        };
        if (options.storage == StorageKind::single) {
            if (const char* reason = refuse_single()) throw InputError(fmt::format("storage single is refused: {}", reason));
            plan_.storage = StorageKind::single;
            plan_.storage_reason = "asked for";
        } else if (options.storage == StorageKind::dual) {
            plan_.storage = StorageKind::dual;
            plan_.storage_reason = "asked for";
        } else if (dual_bytes > free_bytes && refuse_single() == nullptr) {
            plan_.storage = StorageKind::single;
            plan_.storage_reason = fmt::format("both orientations need {}, {} is free", format_bytes(dual_bytes), format_bytes(free_bytes));
        } else if (options.expected_products > 0 && options.expected_products < kFewProducts && refuse_single() == nullptr) {
            plan_.storage = StorageKind::single;
            plan_.storage_reason = fmt::format("only {} products are expected", options.expected_products);
        } else {
            plan_.storage = StorageKind::dual;
            plan_.storage_reason = "both products are gathers of fixed order";
        }
        const std::int64_t needed = plan_.storage == StorageKind::dual ? dual_bytes : single_bytes;
        if (needed > free_bytes) {
            throw OutOfMemory(needed, context_.pool().live_bytes(), free_bytes,
                              fmt::format("the matrix alone needs that much with {} storage", name(plan_.storage)));
        }
    }

    void product(DeviceCsr<T>& matrix, CusparseProduct<T>* cusparse, std::int64_t y_size, Scalar<T> a, const T* x, Scalar<T> b, T* y,
                 ProductWorkspace<T>& workspace, NormPartials* norm) const {
        const cudaStream_t stream = workspace.context()->stream();
        double* sums = norm ? norm->sums + norm->count : nullptr;
        if (cusparse != nullptr) {
            (*cusparse)(a, x, b, y);
            if (norm) {
                cuda::launch_norm(y_size, y, sums, stream);
                norm->count += cuda::vector_blocks(y_size);
            }
            return;
        }
        matrix.with_offsets([&](const auto* offsets) {
            cuda::launch_csr_apply(matrix.view(offsets), matrix.launch, a, x, b, y, sums, workspace.segment_sums.data(), stream);
        });
        if (norm) norm->count += matrix.launch.partials();
    }

    CudaContext& context_;
    int exponent_;
    std::int64_t rows_ = 0;
    std::int64_t cols_ = 0;
    // Read by const products; cuSPARSE's interface and DeviceBuffer want non-const access to the addresses.
    mutable DeviceCsr<T> a_;
    mutable DeviceCsr<T> at_;
    DeviceBuffer<T> one_;
    bool forward_cusparse_ = false;
    bool adjoint_cusparse_ = false;
    OperatorPlan plan_;
};

}  // namespace

template <class T>
std::int64_t cuda_operator_bytes(std::int64_t rows, std::int64_t cols, std::int64_t nnz, StorageKind storage) {
    const std::int64_t offset_bytes = nnz > kMax32 ? 8 : 4;
    const std::int64_t entries = nnz * static_cast<std::int64_t>(sizeof(T) + sizeof(std::int32_t));
    const std::int64_t single = entries + (rows + 1) * offset_bytes;
    return storage == StorageKind::single ? single : single + entries + (cols + 1) * offset_bytes;
}

template <class T>
std::unique_ptr<MatrixOperator<T>> make_cuda_operator(const CsrMatrix& a, CudaContext& context, const OperatorOptions& options) {
    return std::make_unique<CudaMatrixOperator<T>>(a, false, context, options);
}
template <class T>
std::unique_ptr<MatrixOperator<T>> make_cuda_operator_from_csc(const CsrMatrix& transpose, CudaContext& context, const OperatorOptions& options) {
    return std::make_unique<CudaMatrixOperator<T>>(transpose, true, context, options);
}

#define LSMR_INSTANTIATE(T)                                                                                                          \
    template std::int64_t cuda_operator_bytes<T>(std::int64_t, std::int64_t, std::int64_t, StorageKind);                             \
    template std::unique_ptr<MatrixOperator<T>> make_cuda_operator<T>(const CsrMatrix&, CudaContext&, const OperatorOptions&);       \
    template std::unique_ptr<MatrixOperator<T>> make_cuda_operator_from_csc<T>(const CsrMatrix&, CudaContext&, const OperatorOptions&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr
