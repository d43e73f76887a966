// The matrix operator on the GPU: upload, the other orientation, one prepared product a direction; or one pass for both.
#include <cusparse.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "memory/device_buffer.hpp"
#include "memory/host_buffer.hpp"
#include "operator/cuda/choose_order.hpp"
#include "operator/cuda/choose_product.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator/cuda/one_pass_product.hpp"
#include "operator/cuda/transpose.hpp"
#include "operator/cuda/uploader.hpp"
#include "operator/cuda/vector_kernels.hpp"
#include "operator/dispatch.hpp"

namespace lsmr {
namespace {

using cuda::DeviceCsr;
using cuda::HostOffsets;
using cuda::kMax32;

template <class T>
constexpr cudaDataType kCudaType = sizeof(T) == sizeof(double) ? CUDA_R_64F : CUDA_R_32F;

template <class T>
DeviceCsr<T> upload(const CsrMatrix& a, const CudaContext& context, int exponent) {
    DeviceCsr<T> device(context, a.rows(), a.cols(), a.nnz());
    cuda::Uploader up(context);
    device.with_offsets([&](auto* offsets) {
        using Offset = std::remove_pointer_t<decltype(offsets)>;
        up(offsets, a.offsets(), a.rows() + 1, [](std::int64_t o) { return static_cast<Offset>(o); });
    });
    up(device.columns->data(), a.columns(), a.nnz(), [](std::int32_t c) { return c; });
    if (exponent == 0) {
        up(device.values->data(), a.values(), a.nnz(), [](double v) { return static_cast<T>(v); });
    } else {
        const double half = std::ldexp(1.0, exponent / 2);
        const double rest = std::ldexp(1.0, exponent - exponent / 2);
        up(device.values->data(), a.values(), a.nnz(), [=](double v) { return static_cast<T>(v * half * rest); });
    }
    return device;
}

template <class T>
class DownloadedOffsets;

std::int64_t longest_row(std::int64_t rows, const std::int64_t* offsets) {
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < rows; ++i) longest = std::max(longest, offsets[i + 1] - offsets[i]);
    return longest;
}

// CSR of the transpose, its columns ascending whether those of A do or not. Below 2^31 entries cusparseCsr2cscEx2: CSC(A) is CSR(A^T). Beyond, our own.
template <class T>
DeviceCsr<T> transposed(const DeviceCsr<T>& a, const CudaContext& context) {
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
        LSMR_CHECK(cusparseCsr2cscEx2_bufferSize(context.cusparse(), m, n, nnz, a.values->data(), a.offsets32->data(), a.columns->data(),
                                                 t.values->data(), t.offsets32->data(), t.columns->data(), kCudaType<T>,
                                                 CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG_DEFAULT, &bytes));
        DeviceBuffer<std::byte> buffer(context, static_cast<std::int64_t>(bytes));
        LSMR_CHECK(cusparseCsr2cscEx2(context.cusparse(), m, n, nnz, a.values->data(), a.offsets32->data(), a.columns->data(),
                                      t.values->data(), t.offsets32->data(), t.columns->data(), kCudaType<T>, CUSPARSE_ACTION_NUMERIC,
                                      CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG_DEFAULT, buffer.data()));
    } else {
        constexpr std::int64_t kChunk = std::int64_t{1} << 27;
        const DownloadedOffsets<T> offsets(a, context);
        const std::int64_t* host = offsets.view().wide;
        cuda::TransposeScratch scratch(context, a.cols, std::max(kChunk, longest_row(a.rows, host)));
        cuda::launch_transpose(a.rows, a.cols, host, a.offsets64->data(), a.columns->data(), a.values->data(), t.offsets64->data(),
                               t.columns->data(), t.values->data(), scratch, context.stream());
    }
    return t;
}

// The offsets of an orientation that only the device has.
template <class T>
class DownloadedOffsets {
  public:
    DownloadedOffsets(const DeviceCsr<T>& a, const CudaContext& context) {
        a.with_offsets([&](const auto* device) {
            auto& host = buffer(device);
            host = std::remove_reference_t<decltype(host)>(a.rows + 1);
            LSMR_CHECK(cudaMemcpyAsync(host.data(), device, static_cast<std::size_t>(host.bytes()), cudaMemcpyDeviceToHost, context.stream()));
        });
        context.synchronize();
    }
    HostOffsets view() const { return {narrow_.size() > 0 ? narrow_.data() : nullptr, wide_.size() > 0 ? wide_.data() : nullptr}; }

  private:
    HostBuffer<std::int32_t>& buffer(const std::int32_t*) { return narrow_; }
    HostBuffer<std::int64_t>& buffer(const std::int64_t*) { return wide_; }
    HostBuffer<std::int32_t> narrow_;
    HostBuffer<std::int64_t> wide_;
};

struct ProductWorkspace final : Workspace {
    using Workspace::Workspace;
    std::int64_t version = -1;  // of the operator that the scratch fits
    std::unique_ptr<cuda::ProductScratch> forward;
    std::unique_ptr<cuda::ProductScratch> adjoint;
    std::unique_ptr<cuda::ProductScratch> one_pass;
};

template <class T>
class CudaMatrixOperator final : public MatrixOperator<T>, private OnePass<T> {
  public:
    // `stored` is CSR of A, or of A^T where stored_is_transpose.
    CudaMatrixOperator(const CsrMatrix& stored, bool stored_is_transpose, CudaContext& context, const OperatorOptions& options)
        : context_(context), options_(options) {
        const DeviceScope scope(context.device());
        rows_ = stored_is_transpose ? stored.cols() : stored.rows();
        cols_ = stored_is_transpose ? stored.rows() : stored.cols();
        build(stored, stored_is_transpose, nullptr);
    }

    std::int64_t rows() const override { return rows_; }
    std::int64_t cols() const override { return cols_; }
    Space space() const override { return Space::cuda; }
    int exponent() const override { return options_.exponent; }
    const OperatorPlan& plan() const override { return plan_; }
    std::int64_t version() const override { return version_; }
    const std::shared_ptr<const MatrixOrder>& order() const override { return options_.order; }

    void update(std::shared_ptr<const CsrMatrix> a) override {
        if (a->rows() != rows_ || a->cols() != cols_) {
            throw InputError(fmt::format("update: the new matrix is {} x {}, the operator {} x {}", a->rows(), a->cols(), rows_, cols_));
        }
        const DeviceScope scope(context_.device());
        const OperatorPlan before = std::move(plan_);
        plan_ = {};
        forward_.reset();
        adjoint_.reset();
        one_pass_.reset();
        ++version_;
        try {
            build(*a, false, &before);
        } catch (const InputError&) {
            if (before.storage != StorageKind::one_pass || options_.storage == StorageKind::one_pass) throw;
            // One pass was chosen for the matrix before, and does not fit this one.
            plan_ = {};
            build(*a, false, nullptr);
            plan_.order = before.order;
        }
    }
    const OnePass<T>* one_pass() const override { return one_pass_ ? this : nullptr; }

    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        ProductWorkspace& w = ready(workspace);
        if (one_pass_ != nullptr) pass(Keep::nothing, w, a, x, b, y, norm);
        else run(*forward_, *w.forward, a, x, b, y, norm);
    }
    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        ProductWorkspace& w = ready(workspace);
        if (one_pass_ != nullptr) {
            one_pass_->apply_adjoint(a, x, b, y, norm ? norm->sums + norm->count : nullptr, *w.one_pass);
            if (norm) norm->count += one_pass_->col_partials();
            return;
        }
        if (adjoint_ != nullptr) {
            run(*adjoint_, *w.adjoint, a, x, b, y, norm);
            return;
        }
        // Single storage of no entries: y <- b y.
        double* sums = norm ? norm->sums + norm->count : nullptr;
        cuda::launch_scale(cols_, b, y, sums, w.context()->stream());
        if (norm) norm->count += cuda::vector_blocks(cols_);
    }

    std::unique_ptr<Workspace> make_workspace(CudaContext* context) const override {
        LSMR_EXPECT(context != nullptr);
        if (context->device() != context_.device()) {
            throw InputError(fmt::format("operator: A lies on GPU {}, the context is of GPU {}", context_.device(), context->device()));
        }
        auto w = std::make_unique<ProductWorkspace>(context);
        ready(*w);
        return w;
    }

  private:
    using Keep = typename cuda::OnePassProduct<T>::Keep;

    void apply_both(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        pass(Keep::adjoint, ready(workspace), a, x, b, y, norm);
    }
    void apply_kept_adjoint(Scalar<T> a, Scalar<T> b, T* x, Workspace& workspace, NormPartials* norm) const override {
        one_pass_->apply_kept_adjoint(a, b, x, norm ? norm->sums + norm->count : nullptr, *ready(workspace).one_pass);
        if (norm) norm->count += one_pass_->col_partials();
    }
    void pass(Keep keep, ProductWorkspace& w, Scalar<T> a, const T* x, Scalar<T> b, T* y, NormPartials* norm) const {
        one_pass_->apply(keep, a, x, b, y, norm ? norm->sums + norm->count : nullptr, *w.one_pass);
        if (norm) norm->count += one_pass_->row_partials();
    }

    // The workspace with scratch for the products as they are now.
    ProductWorkspace& ready(Workspace& workspace) const {
        auto& w = static_cast<ProductWorkspace&>(workspace);
        if (w.version != version_) {
            if (forward_ == nullptr && one_pass_ == nullptr) throw InputError("operator: its last update failed, so it holds no matrix; update it again");
            if (forward_ != nullptr) w.forward = forward_->make_scratch(*w.context());
            if (adjoint_ != nullptr) w.adjoint = adjoint_->make_scratch(*w.context());
            if (one_pass_ != nullptr) w.one_pass = one_pass_->make_scratch(*w.context());
            w.version = version_;
        }
        return w;
    }

    static void run(const cuda::CsrProduct<T>& product, cuda::ProductScratch& scratch, Scalar<T> a, const T* x, Scalar<T> b, T* y, NormPartials* norm) {
        product.run(a, x, b, y, norm ? norm->sums + norm->count : nullptr, scratch);
        if (norm) norm->count += product.partials();
    }

    // From the host's matrix to two prepared products. before: the plan of the matrix that this one replaces.
    void build(const CsrMatrix& stored, bool stored_is_transpose, const OperatorPlan* before) {
        const bool wide = stored.nnz() > kMax32;
        if (wide && options_.spmv == SpmvKind::cusparse) {
            throw InputError(fmt::format("cuSPARSE products are limited to {} nonzeros, the matrix has {}; use our own kernels (own or auto)",
                                         kMax32, stored.nnz()));
        }
        if (options_.deterministic) {
            for (const auto& forced : {options_.forward, options_.adjoint}) {
                if (forced && !is_deterministic(*forced)) {
                    throw InputError(fmt::format("{} adds in an order that varies, and a deterministic solve was asked for", text(*forced)));
                }
            }
        }
        choose_storage(stored, options_, wide, before);
        const bool dual = plan_.storage == StorageKind::dual;
        const bool once = plan_.storage == StorageKind::one_pass;
        // x is near wherever it is gathered from.
        if (once && options_.reorder == OrderKind::automatic) options_.reorder = OrderKind::none;
        auto start = std::chrono::steady_clock::now();
        // Adds the seconds since the last call, the device's work included.
        const auto lap = [&](double& seconds) {
            context_.synchronize();
            const auto now = std::chrono::steady_clock::now();
            seconds += std::chrono::duration<double>(now - start).count();
            start = now;
        };
        DeviceCsr<T> given = upload<T>(stored, context_, options_.exponent);
        lap(plan_.setup.upload);
        const HostOffsets given_offsets{nullptr, stored.offsets()};
        DeviceCsr<T> other;
        if (dual || stored_is_transpose) {
            other = transposed(given, context_);
            lap(plan_.setup.transpose);
        }
        DeviceCsr<T> none;
        DeviceCsr<T>& a_rows = stored_is_transpose ? other : given;
        DeviceCsr<T>& at_rows = !dual ? none : stored_is_transpose ? given : other;
        if (stored_is_transpose && !dual) given = {};
        bool rounded = false;
        const auto rules_of = [&](const DeviceCsr<T>& a, const std::optional<SpmvChoice>& forced) {
            cuda::ChoiceRules rules;
            rules.kind = a.nnz > 0 ? options_.spmv : SpmvKind::own;
            rules.narrow = options_.narrow;
            rules.forced = forced;
            rules.timing = !options_.deterministic;
            rules.expected_products = options_.expected_products;
            return rules;
        };
        cuda::OrderTools<T> tools;
        tools.transpose = [this](const DeviceCsr<T>& a) { return transposed(a, context_); };
        if (!options_.deterministic) {
            tools.measure = [&](const DeviceCsr<T>& a, const DeviceCsr<T>& at) {
                cuda::PairTiming timing;
                const auto add = [&](const DeviceCsr<T>& of, const std::optional<SpmvChoice>& forced, ProductDecision& decision) {
                    auto chosen = cuda::choose_product(of, cuda_offsets(of).view(), rules_of(of, forced), nullptr, context_);
                    timing.seconds += cuda::time_product(of, *chosen.product, 1, 5, context_);
                    decision = std::move(chosen.decision);
                };
                add(a, options_.forward, timing.forward);
                add(at, options_.adjoint, timing.adjoint);
                return timing;
            };
        }
        const cuda::ChosenOrder chosen_order = cuda::choose_order<T>(a_rows, at_rows, options_, tools, plan_.order, context_);
        options_.order = chosen_order.order;
        double order_seconds = 0;  // the order's decision has its own account
        lap(order_seconds);
        // It stays from now on: those who use this operator have their vectors in it.
        options_.reorder = OrderKind::none;
        if (before != nullptr) plan_.order = before->order;
        const auto prepare = [&](DeviceCsr<T>& a, const HostOffsets& offsets, const std::optional<SpmvChoice>& forced, const ProductDecision* was,
                                 ProductDecision& decision) {
            auto chosen = cuda::choose_product(a, offsets, rules_of(a, forced), was, context_);
            decision = std::move(chosen.decision);
            rounded = rounded || chosen.rounded_values;
            a = {};  // the product keeps what it reads
            return std::move(chosen.product);
        };
        const auto forward = [&](DeviceCsr<T>& a, const HostOffsets& offsets) {
            const ProductDecision* was = before ? &before->forward_decision : chosen_order.timing ? &chosen_order.timing->forward : nullptr;
            forward_ = prepare(a, offsets, options_.forward, was, plan_.forward_decision);
        };
        const auto adjoint = [&](DeviceCsr<T>& a, const HostOffsets& offsets) {
            const ProductDecision* was = before ? &before->adjoint_decision : chosen_order.timing ? &chosen_order.timing->adjoint : nullptr;
            adjoint_ = prepare(a, offsets, options_.adjoint, was, plan_.adjoint_decision);
        };
        // With the offsets of its matrix in host memory: those that came from there, or a copy of those on the device.
        const auto with_offsets = [&](DeviceCsr<T>& a, const auto& use) {
            if (&a == &given && options_.order == nullptr) use(a, given_offsets);
            else use(a, cuda_offsets(a).view());
        };
        const DeviceCsr<T> whole = dual && before == nullptr && tries_one_pass(stored) ? a_rows : DeviceCsr<T>();
        if (once) {
            one_pass_ = cuda::make_one_pass_product(a_rows, options_.narrow, 0.0, context_);
            a_rows = {};
        } else if (!dual) {
            if (stored.nnz() > 0) {
                SpmvChoice transposed_choice;
                transposed_choice.kernel = SpmvKernel::cusparse_transposed;
                adjoint_ = cuda::make_csr_product(a_rows, HostOffsets{}, 0, transposed_choice, context_);
                plan_.adjoint_decision.choice = transposed_choice;
                plan_.adjoint_decision.reason = "single storage";
            }
            with_offsets(a_rows, forward);
        } else if (stored_is_transpose) {
            with_offsets(at_rows, adjoint);
            with_offsets(a_rows, forward);
        } else {
            with_offsets(a_rows, forward);
            with_offsets(at_rows, adjoint);
        }
        if (whole.nnz > 0) consider_one_pass(whole);
        lap(plan_.setup.choice);
        if (one_pass_ != nullptr) {
            plan_.forward = fmt::format("one pass ({})", one_pass_->words());
            plan_.adjoint = "the same pass";
            plan_.bytes = one_pass_->bytes();
            rounded = one_pass_->rounded_values();
        } else {
            plan_.forward = words(plan_.forward_decision, forward_.get());
            plan_.adjoint = words(plan_.adjoint_decision, adjoint_.get());
            // Arrays that both products of single storage read count once.
            plan_.bytes = (adjoint_ && dual ? adjoint_->bytes() : 0) + forward_->bytes();
            if (adjoint_ && !dual) plan_.bytes = std::max(plan_.bytes, adjoint_->bytes());
        }
        plan_.deterministic = is_deterministic(plan_.forward_decision.choice) && is_deterministic(plan_.adjoint_decision.choice);
        if (!plan_.deterministic) plan_.notes.push_back("a product adds in an order that varies: bits may differ between runs");
        if (rounded) plan_.notes.push_back("values are rounded in storage, as asked for: the products are those of the rounded matrix");
    }

    // Where nothing else is asked for, and there are products enough that timing and placing are repaid.
    bool tries_one_pass(const CsrMatrix& stored) const {
        return options_.storage == StorageKind::automatic && options_.spmv != SpmvKind::cusparse && !options_.forward && !options_.adjoint &&
               stored.nnz() >= kEntriesForTiming && (options_.expected_products == 0 || options_.expected_products >= kProductsForFormats) &&
               rows_ > cols_ && cuda::why_not_one_pass<T>(rows_, cols_, stored.nnz(), 0, context_).empty();
    }
    // One pass over `a` in the place of both products, where it takes less time than they do; where timing is not to decide, by its bytes.
    void consider_one_pass(const DeviceCsr<T>& a) {
        constexpr int kWarmUp = 1;
        constexpr int kRepeats = 5;
        std::unique_ptr<cuda::OnePassProduct<T>> product;
        const auto refuse = [&](const std::string& why) { plan_.notes.push_back("no pass for both products: " + why); };
        try {
            product = cuda::make_one_pass_product(a, options_.narrow, options_.deterministic ? cuda::kOnePassGainUntimed : cuda::kOnePassGainToTry, context_);
        } catch (const InputError& error) {  // it does not fit, or promises too little: the products stay
            return refuse(error.what());
        } catch (const OutOfMemory&) {
            return refuse("no memory to try it");
        }
        std::string reason = "A is read once for both products";
        if (!options_.deterministic) {
            DeviceCsr<T> forward, adjoint;  // shapes
            forward.rows = adjoint.cols = rows_;
            forward.cols = adjoint.rows = cols_;
            const double pair = cuda::time_product(forward, *forward_, kWarmUp, kRepeats, context_) +
                                cuda::time_product(adjoint, *adjoint_, kWarmUp, kRepeats, context_);
            const double once = cuda::time_one_pass(rows_, cols_, *product, kWarmUp, kRepeats, context_);
            reason += fmt::format(", {:.1f} us where two take {:.1f} us", 1e6 * once, 1e6 * pair);
            if (once >= pair) return refuse(fmt::format("it takes {:.1f} us, they take {:.1f} us", 1e6 * once, 1e6 * pair));
        }
        one_pass_ = std::move(product);
        forward_.reset();
        adjoint_.reset();
        plan_.storage = StorageKind::one_pass;
        plan_.storage_reason = std::move(reason);
        plan_.forward_decision = {};
        plan_.adjoint_decision = {};
    }

    static bool is_deterministic(const std::optional<SpmvChoice>& choice) { return !choice || lsmr::is_deterministic(*choice); }
    DownloadedOffsets<T> cuda_offsets(const DeviceCsr<T>& a) const { return DownloadedOffsets<T>(a, context_); }
    static std::string words(const ProductDecision& decision, const cuda::CsrProduct<T>* product) {
        if (product == nullptr) return "scaling alone, no entries";
        return fmt::format("{} ({})", text(*decision.choice), product->words());
    }

    void choose_storage(const CsrMatrix& stored, const OperatorOptions& options, bool wide, const OperatorPlan* before) {
        const std::int64_t dual_bytes = cuda_operator_bytes<T>(stored.rows(), stored.cols(), stored.nnz(), StorageKind::dual);
        const std::int64_t free_bytes = context_.free_bytes();
        const auto refuse_single = [&]() -> const char* {
            if (options.deterministic) return "the product with A^T of single storage adds in an order that varies, and a deterministic solve was asked for";
            if (options.spmv == SpmvKind::own || options.adjoint) return "single storage multiplies by A^T with cuSPARSE, and our own kernels were asked for";
            if (wide) return "single storage multiplies by A^T with cuSPARSE, which is limited to 2^31 - 1 nonzeros";
            return nullptr;
        };
        if (options.storage == StorageKind::one_pass) {
            if (options.spmv == SpmvKind::cusparse || options.forward || options.adjoint) {
                throw InputError("storage one-pass is refused: it has a kernel of its own, and others were asked for");
            }
            plan_.storage = StorageKind::one_pass;
            plan_.storage_reason = "asked for";
        } else if (before != nullptr && before->storage == StorageKind::one_pass) {
            plan_.storage = StorageKind::one_pass;
            plan_.storage_reason = before->storage_reason;
        } else if (options.storage == StorageKind::single) {
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
        const std::int64_t needed = cuda_operator_bytes<T>(stored.rows(), stored.cols(), stored.nnz(), plan_.storage);
        if (needed > free_bytes) {
            throw OutOfMemory(needed, context_.pool().live_bytes(), free_bytes,
                              fmt::format("the matrix alone needs that much with {} storage", name(plan_.storage)));
        }
    }

    CudaContext& context_;
    OperatorOptions options_;
    std::int64_t rows_ = 0;
    std::int64_t cols_ = 0;
    std::int64_t version_ = 0;
    std::unique_ptr<cuda::CsrProduct<T>> forward_;
    std::unique_ptr<cuda::CsrProduct<T>> adjoint_;  // null: single storage of no entries
    std::unique_ptr<cuda::OnePassProduct<T>> one_pass_;  // in the place of both, or null
    OperatorPlan plan_;
};

}  // namespace

template <class T>
std::int64_t cuda_operator_bytes(std::int64_t rows, std::int64_t cols, std::int64_t nnz, StorageKind storage) {
    const std::int64_t offset_bytes = nnz > kMax32 ? 8 : 4;
    const std::int64_t entries = nnz * static_cast<std::int64_t>(sizeof(T) + sizeof(std::int32_t));
    const std::int64_t single = entries + (rows + 1) * offset_bytes;
    if (storage == StorageKind::single) return single;
    if (storage == StorageKind::one_pass) return single + nnz * static_cast<std::int64_t>(sizeof(T) + sizeof(std::uint16_t));
    return single + entries + (cols + 1) * offset_bytes;
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
