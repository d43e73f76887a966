// The matrix operator on the GPU: upload, the other orientation, one prepared product a direction; or one pass for both.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "memory/device_buffer.hpp"
#include "memory/host_buffer.hpp"
#include "operator/cuda/choose_order.hpp"
#include "operator/cuda/choose_product.hpp"
#include "operator/cuda/csr_product.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator/cuda/device_csr.hpp"
#include "operator/cuda/one_pass_product.hpp"
#include "operator/cuda/vector_kernels.hpp"
#include "operator/dispatch.hpp"

namespace lsmr {
namespace {

using cuda::DeviceCsr;
using cuda::HostOffsets;
using cuda::kMax32;

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
        build(stored, stored_is_transpose, nullptr, nullptr);
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
        OperatorPlan before = std::move(plan_);
        plan_ = {};
        std::unique_ptr<cuda::OnePassProduct<T>> placed = std::move(one_pass_);
        drop_products();
        ++version_;
        try {
            rebuild(*a, before, std::move(placed));
        } catch (...) {
            // One product without the other would pass for a matrix without entries. The plan is what the next update goes by.
            drop_products();
            plan_ = std::move(before);
            throw;
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

    void drop_products() {
        forward_.reset();
        adjoint_.reset();
        one_pass_.reset();
    }
    void rebuild(const CsrMatrix& a, const OperatorPlan& before, std::unique_ptr<cuda::OnePassProduct<T>> placed) {
        try {
            build(a, false, &before, std::move(placed));
        } catch (const InputError&) {
            if (before.storage != StorageKind::one_pass || options_.storage == StorageKind::one_pass) throw;
            // One pass was chosen for the matrix before, and does not fit this one.
            plan_ = {};
            build(a, false, nullptr, nullptr);
            plan_.order = before.order;
        }
    }

    // From the host's matrix to two prepared products. before: the plan of the matrix that this one replaces; placed: one pass over that, or null.
    void build(const CsrMatrix& stored, bool stored_is_transpose, const OperatorPlan* before, std::unique_ptr<cuda::OnePassProduct<T>> placed) {
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
        choose_storage(stored, options_, wide, before, placed != nullptr ? placed->bytes() : 0);
        SetupClock clock;
        const auto lap = [&](double& phase) {
            context_.synchronize();
            clock.lap(phase);
        };
        EntrySizer sizer(stored);
        DeviceCsr<T> given = cuda::upload<T>(stored, options_.exponent, context_, &sizer);
        plan_.entries = sizer.sizes();
        lap(plan_.setup.upload);
        const HostOffsets given_offsets{nullptr, stored.offsets()};
        DeviceCsr<T> other;
        const auto transpose = [&] {
            other = cuda::transposed(given, context_);
            lap(plan_.setup.transpose);
        };
        if (stored_is_transpose) transpose();
        const bool tries_once = before == nullptr && plan_.storage == StorageKind::dual && tries_one_pass(stored);
        // Where one pass is clearly the faster, nothing else is made or timed.
        std::unique_ptr<cuda::OnePassProduct<T>> pass_as_given;
        std::string no_pass;  // why it is not taken
        const bool orders_before = orders_first();
        if (tries_once && !orders_before) {
            pass_as_given = make_one_pass(stored_is_transpose ? other : given, no_pass);
            if (pass_as_given != nullptr) take_at_once(pass_as_given, no_pass);
            lap(plan_.setup.one_pass);
        }
        const bool dual = plan_.storage == StorageKind::dual;
        const bool once = plan_.storage == StorageKind::one_pass;
        if (dual && !stored_is_transpose) transpose();
        const bool no_order = once && options_.reorder == OrderKind::automatic;
        if (no_order) options_.reorder = OrderKind::none;
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
        tools.transpose = [this](const DeviceCsr<T>& a) { return cuda::transposed(a, context_); };
        if (!options_.deterministic) {
            tools.measure = [&](const DeviceCsr<T>& a, const DeviceCsr<T>& at) {
                cuda::PairTiming timing;
                const auto add = [&](const DeviceCsr<T>& of, const std::optional<SpmvChoice>& forced, ProductDecision& decision) {
                    const auto choose = [&](const HostOffsets& offsets) { return cuda::choose_product(of, offsets, rules_of(of, forced), nullptr, context_); };
                    auto chosen = &of == &given ? choose(given_offsets) : choose(cuda_offsets(of).view());
                    timing.seconds += cuda::time_product(of, *chosen.product, 1, 5, context_);
                    decision = std::move(chosen.decision);
                };
                add(a, options_.forward, timing.forward);
                add(at, options_.adjoint, timing.adjoint);
                return timing;
            };
        }
        const cuda::ChosenOrder chosen_order = cuda::choose_order<T>(a_rows, at_rows, options_, tools, plan_.order, context_);
        if (no_order) plan_.order.reason = "one pass gathers from shared memory, whatever the order";
        options_.order = chosen_order.order;
        lap(plan_.setup.order);
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
        // One pass over the matrix as given is none over the one that was ordered since.
        const bool makes_again = tries_once && dual && (orders_before || options_.order != nullptr);
        if (makes_again) pass_as_given.reset();
        const DeviceCsr<T> whole = makes_again ? a_rows : DeviceCsr<T>();
        if (once) {
            if (one_pass_ == nullptr && placed != nullptr && placed->refill(a_rows, context_)) one_pass_ = std::move(placed);
            placed.reset();
            if (one_pass_ == nullptr) one_pass_ = cuda::make_one_pass_product(a_rows, options_.narrow, 0.0, context_);
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
        lap(plan_.setup.choice);
        if (whole.nnz > 0) pass_as_given = make_one_pass(whole, no_pass);
        if (pass_as_given != nullptr) consider(std::move(pass_as_given), no_pass);
        if (!no_pass.empty()) plan_.notes.push_back("no pass for both products: " + no_pass);
        lap(plan_.setup.one_pass);
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
    // An order that is not for this operator to choose.
    bool orders_first() const { return options_.order != nullptr || (options_.reorder != OrderKind::automatic && options_.reorder != OrderKind::none); }
    // Null, and why, where it does not fit or promises too little; by its bytes alone where timing is not to decide.
    std::unique_ptr<cuda::OnePassProduct<T>> make_one_pass(const DeviceCsr<T>& a, std::string& why_not) const {
        why_not.clear();
        try {
            return cuda::make_one_pass_product(a, options_.narrow, options_.deterministic ? cuda::kOnePassGainUntimed : cuda::kOnePassGainToTry, context_);
        } catch (const InputError& error) {
            why_not = error.what();
        } catch (const OutOfMemory&) {
            why_not = kNoMemory;
        }
        return nullptr;
    }
    // Takes the product where it needs no comparison with those that it would replace, and leaves it otherwise; drops it where memory does not
    // suffice for its vectors, and says so.
    void take_at_once(std::unique_ptr<cuda::OnePassProduct<T>>& product, std::string& why_not) {
        std::string times;
        if (!options_.deterministic) {
            double once = 0;
            try {
                once = time_once(*product);
            } catch (const OutOfMemory&) {
                why_not = kNoMemory;
                product.reset();
                return;
            }
            const double pair = product->least_pair_seconds();
            if (once * cuda::kOnePassGainAtOnce > pair) return;
            times = fmt::format(", {:.1f} us where two take {:.1f} us at least", 1e6 * once, 1e6 * pair);
        }
        take(std::move(product), times);
    }
    // Takes the product in the place of both others where it takes less time than they do.
    void consider(std::unique_ptr<cuda::OnePassProduct<T>> product, std::string& why_not) {
        std::string times;
        if (!options_.deterministic) {
            DeviceCsr<T> forward, adjoint;  // shapes
            forward.rows = adjoint.cols = rows_;
            forward.cols = adjoint.rows = cols_;
            double pair = 0, once = 0;
            try {
                pair = cuda::time_product(forward, *forward_, kWarmUp, kRepeats, context_) + cuda::time_product(adjoint, *adjoint_, kWarmUp, kRepeats, context_);
                once = time_once(*product);
            } catch (const OutOfMemory&) {
                why_not = kNoMemory;
                return;
            }
            if (once >= pair) {
                why_not = fmt::format("it takes {:.1f} us, they take {:.1f} us", 1e6 * once, 1e6 * pair);
                return;
            }
            times = fmt::format(", {:.1f} us where two take {:.1f} us", 1e6 * once, 1e6 * pair);
        }
        take(std::move(product), times);
    }
    void take(std::unique_ptr<cuda::OnePassProduct<T>> product, const std::string& times) {
        one_pass_ = std::move(product);
        forward_.reset();
        adjoint_.reset();
        plan_.storage = StorageKind::one_pass;
        plan_.storage_reason = "A is read once for both products" + times;
        plan_.forward_decision = {};
        plan_.adjoint_decision = {};
    }
    double time_once(const cuda::OnePassProduct<T>& product) const { return cuda::time_one_pass(rows_, cols_, product, kWarmUp, kRepeats, context_); }
    static constexpr const char* kNoMemory = "no memory to try it";
    static constexpr int kWarmUp = 1;
    static constexpr int kRepeats = 5;

    static bool is_deterministic(const std::optional<SpmvChoice>& choice) { return !choice || lsmr::is_deterministic(*choice); }
    cuda::DownloadedOffsets<T> cuda_offsets(const DeviceCsr<T>& a) const { return cuda::DownloadedOffsets<T>(a, context_); }
    static std::string words(const ProductDecision& decision, const cuda::CsrProduct<T>* product) {
        if (product == nullptr) return "scaling alone, no entries";
        return fmt::format("{} ({})", text(*decision.choice), product->words());
    }

    // kept_bytes: of device memory that this matrix will take over from the one before.
    void choose_storage(const CsrMatrix& stored, const OperatorOptions& options, bool wide, const OperatorPlan* before, std::int64_t kept_bytes) {
        const std::int64_t dual_bytes = cuda_operator_bytes<T>(stored.rows(), stored.cols(), stored.nnz(), StorageKind::dual);
        const std::int64_t free_bytes = context_.free_bytes() + kept_bytes;
        const auto refuse_single = [&]() -> const char* {
            if (options.deterministic) return "the product with A^T of single storage adds in an order that varies, and a deterministic solve was asked for";
            if (options.spmv == SpmvKind::own || options.adjoint) return "single storage multiplies by A^T with cuSPARSE, and our own kernels were asked for";
            if (wide) return "single storage multiplies by A^T with cuSPARSE, which is limited to 2^31 - 1 nonzeros";
            return nullptr;
        };
        if (options.storage == StorageKind::tiles) throw InputError("storage tiles is refused: it is made on the CPU, and this operator is on a GPU");
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
