// The matrix operator in host memory.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "memory/error.hpp"
#include "operator/cpu/one_pass.hpp"
#include "operator/cpu/row_format.hpp"
#include "operator/cpu/row_storage.hpp"
#include "operator/cpu/tile_storage.hpp"
#include "operator/matrix_operator.hpp"

namespace lsmr {
namespace {

template <class T>
class CpuMatrixOperator final : public MatrixOperator<T>, private OnePass<T> {
  public:
    CpuMatrixOperator(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options, const cpu::Kernels<T>& kernels)
        : options_(options), kernels_(kernels) {
        choose_order(a);
        build(std::move(a));
    }

    void update(std::shared_ptr<const CsrMatrix> a) override {
        if (a->rows() != rows() || a->cols() != cols()) {
            throw InputError(fmt::format("update: the new matrix is {} x {}, the operator {} x {}", a->rows(), a->cols(), rows(), cols()));
        }
        ++version_;
        const OrderDecision order = plan_.order;
        holds_matrix_ = false;
        try {
            choose_order(a);
            build(std::move(a));
        } catch (...) {
            // One product without the other would pass for a matrix without entries.
            drop_products();
            plan_.order = order_decision_ = order;
            throw;
        }
        holds_matrix_ = true;
        plan_.order = order_decision_ = order;
    }
    std::int64_t version() const override { return version_; }
    const std::shared_ptr<const MatrixOrder>& order() const override { return options_.order; }

  private:
    // Puts a copy in the order that was chosen in the place of a. It stays from now on: those who use this operator have their vectors in it.
    void choose_order(std::shared_ptr<const CsrMatrix>& a) {
        const auto start = std::chrono::steady_clock::now();
        OrderDecision decision;
        decision.kind = options_.order ? options_.order->kind : options_.reorder;
        decision.reason = options_.order ? "given" : "asked for";
        if (decision.kind == OrderKind::automatic) {
            decision.kind = OrderKind::none;
            decision.reason = "on the CPU orders are made where they are asked for";
        }
        if (!options_.order && decision.kind != OrderKind::none) {
            options_.order = std::make_shared<const MatrixOrder>(make_order(decision.kind, *a, a->transposed()));
        }
        options_.reorder = OrderKind::none;
        if (options_.order) {
            a = std::make_shared<const CsrMatrix>(permuted(*a, options_.order->row, options_.order->col));
            decision.setup_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        }
        order_decision_ = std::move(decision);
    }

    void drop_products() {
        forward_ = {};
        adjoint_ = {};
        one_pass_.reset();
        tiles_.reset();
        adjoint_tiles_.reset();
        forward_format_.reset();
        adjoint_format_.reset();
        transposed_.reset();
    }
    void check_matrix() const {
        if (!holds_matrix_) throw InputError("operator: its last update failed, so it holds no matrix; update it again");
    }

    void build(std::shared_ptr<const CsrMatrix> a) {
        const OperatorOptions& options = options_;
        cpu::Kernels<T> kernels = kernels_;
        if (options.narrow == NarrowKind::none) kernels.narrowing = cpu::Narrowing::none;
        if (options.narrow == NarrowKind::fp32_values) throw InputError("values rounded to fp32 under fp64 vectors need a GPU: this operator is on the CPU");
        const bool forced = options.forward || options.adjoint;
        if ((options.storage == StorageKind::one_pass || options.storage == StorageKind::tiles) && forced) {
            throw InputError(fmt::format("storage {} is refused: it has a kernel of its own, and others were asked for", name(options.storage)));
        }
        if (options.storage == StorageKind::tiles) {
            const std::string reason = cpu::why_not_tiles(a->rows(), a->cols());
            if (!reason.empty()) throw InputError("storage tiles is refused: " + reason);
        }
        if (options.storage == StorageKind::one_pass && a->cols() >= cpu::kMostPairs) {
            throw InputError(fmt::format("storage one-pass is refused: it takes fewer than 2^30 columns, the matrix has {}", a->cols()));
        }
        if (options.adjoint && options.storage == StorageKind::single) {
            throw InputError(fmt::format("storage single is refused: it multiplies by A^T from CSR of A, and {} was asked for", text(*options.adjoint)));
        }
        a_ = std::move(a);
        drop_products();
        plan_ = {};
        plan_.order = order_decision_;
        plan_.setup.order = order_decision_.setup_seconds;
        SetupClock clock;
        if (options.spmv == SpmvKind::cusparse) throw InputError("cuSPARSE products need a GPU: this operator is on the CPU");
        plan_.storage = options.storage;
        if (options.storage == StorageKind::automatic) {
            const bool few = options.expected_products > 0 && options.expected_products < kFewProducts && !options.adjoint;
            const bool free = !few && !forced && kernels.panels == 0;
            const bool once = free && !options.separate_products && one_pass_pays(kernels);
            const bool tiles = free && !once && tiles_pay();
            plan_.storage = few ? StorageKind::single : once ? StorageKind::one_pass : tiles ? StorageKind::tiles : StorageKind::dual;
            plan_.storage_reason = few     ? fmt::format("only {} products are expected", options.expected_products)
                                   : once  ? "one reading of A gives both products"
                                   : tiles ? "the entries are scattered"
                                           : "both products are gathers of fixed order";
        } else {
            plan_.storage_reason = "asked for";
        }
        const std::string own = fmt::format("own csr rows (OpenMP, {})", cpu::name(kernels.set));
        if (options.forward) forward_format_ = make_format(*a_, *options.forward, plan_.forward, plan_.forward_decision);
        if (plan_.storage == StorageKind::dual) {
            if (!options.forward) forward_ = cpu::RowStorage<T>(*a_, options.exponent, kernels, cpu::Sharing::in_place);
            clock.lap(plan_.setup.choice);
            transposed_ = a_->transposed();
            clock.lap(plan_.setup.transpose);
            if (options.adjoint) {
                adjoint_format_ = make_format(*transposed_, *options.adjoint, plan_.adjoint, plan_.adjoint_decision);
            } else {
                adjoint_ = cpu::RowStorage<T>(*transposed_, options.exponent, kernels, cpu::Sharing::copied);
                plan_.adjoint = own + " of A^T" + adjoint_.words();
            }
            if (adjoint_format_ || !adjoint_.reads_matrix()) transposed_.reset();
        } else if (plan_.storage == StorageKind::one_pass) {
            kernels.panels = 1;
            kernels.slicing = cpu::Slicing::none;
            const bool grouped = cpu::takes_groups(*a_, kernels);
            if (grouped) kernels.narrowing = std::min(kernels.narrowing, cpu::Narrowing::values);
            forward_ = cpu::RowStorage<T>(*a_, options.exponent, kernels, cpu::Sharing::in_place);
            clock.lap(plan_.setup.choice);
            one_pass_.emplace(forward_.chunks(), kernels.set, a_->cols(), grouped);
            clock.lap(plan_.setup.one_pass);
            plan_.adjoint = "the same pass";
        } else if (plan_.storage == StorageKind::tiles) {
            tiles_.emplace(*a_, cpu::Orientation::forward, options.exponent, kernels.set, kernels.narrowing);
            adjoint_tiles_.emplace(*a_, cpu::Orientation::adjoint, options.exponent, kernels.set, kernels.narrowing);
            clock.lap(plan_.setup.choice);
            const std::string own_tiles = fmt::format("own tiles (OpenMP, {})", cpu::name(std::min(kernels.set, cpu::InstructionSet::avx2)));
            plan_.forward = fmt::format("{}, {}", own_tiles, tiles_->words());
            plan_.adjoint = fmt::format("{} of A^T, {}", own_tiles, adjoint_tiles_->words());
        } else {
            // The memory is short, or the products are few: one form of A that both read.
            const cpu::Kernels<T> plain{kernels.set, cpu::Narrowing::none, 1, cpu::Slicing::none};
            forward_ = cpu::RowStorage<T>(*a_, options.exponent, plain, cpu::Sharing::in_place);
            plan_.adjoint = "own csr row panels (OpenMP)";
        }
        if (!options.forward && !tiles_) plan_.forward = own + forward_.words();
        if (one_pass_) {
            plan_.forward = fmt::format("one pass ({}{}, {} part{})", plan_.forward, one_pass_->grouped() ? ", rows in groups" : "", one_pass_->parts(),
                                        one_pass_->parts() == 1 ? "" : "s");
        }
        plan_.bytes = a_->bytes() + forward_.bytes() + adjoint_.bytes() + (transposed_ ? transposed_->bytes() : 0) + (one_pass_ ? one_pass_->bytes() : 0);
        if (tiles_) {
            plan_.bytes += tiles_->bytes() + adjoint_tiles_->bytes() + cpu::TileStorage<T>::scratch_bytes(std::max(tiles_->totals(), adjoint_tiles_->totals()));
        }
        for (const auto* format : {forward_format_.get(), adjoint_format_.get()}) plan_.bytes += format ? format->bytes() : 0;
        clock.lap(plan_.setup.choice);
    }

    bool one_pass_pays(const cpu::Kernels<T>& kernels) const {
        cpu::OnePassShape shape{rows(), cols(), a_->nnz(), sizeof(T), 0, true};
        if (!cpu::one_pass_pays(shape)) return false;  // even where all gathers are near, in groups
        shape.grouped = cpu::takes_groups(*a_, kernels);
        shape.lines_per_entry = cpu::lines_per_entry(*a_, cpu::kCacheLine / std::int64_t{sizeof(T)});
        return cpu::one_pass_pays(shape);
    }

    bool tiles_pay() const {
        cpu::TileShape shape{rows(), cols(), a_->nnz(), sizeof(T), 1.0, false};
        if (!cpu::tiles_pay(shape)) return false;  // even where all gathers are far and rows unlike
        shape.lines_per_entry = cpu::lines_per_entry(*a_, cpu::kCacheLine / std::int64_t{sizeof(T)});
        const std::int64_t* offsets = a_->offsets();
        shape.eights = std::adjacent_find(offsets, offsets + rows() + 1, [](std::int64_t begin, std::int64_t end) { return end - begin > cpu::kLongestSliced; }) ==
                       offsets + rows() + 1;
        return cpu::tiles_pay(shape);
    }

    std::unique_ptr<cpu::RowFormat<T>> make_format(const CsrMatrix& stored, const SpmvChoice& choice, std::string& words, ProductDecision& decision) const {
        auto format = cpu::make_row_format<T>(stored, options_.exponent, choice, kernels_.set);
        words = fmt::format("{} ({})", text(choice), format->words());
        decision.choice = choice;
        decision.reason = "asked for";
        return format;
    }

  public:

    std::int64_t rows() const override { return a_->rows(); }
    std::int64_t cols() const override { return a_->cols(); }
    Space space() const override { return Space::host; }
    int exponent() const override { return options_.exponent; }
    const OperatorPlan& plan() const override { return plan_; }
    const OnePass<T>* one_pass() const override { return one_pass_ ? this : nullptr; }

    void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        check_matrix();
        if (tiles_) tiles_->apply(*a.wide, x, *b.wide, y, static_cast<HostWorkspace&>(workspace).tiles, norm);
        else if (forward_format_) forward_format_->apply(*a.wide, x, *b.wide, y, norm);
        else forward_.apply(*a.wide, x, *b.wide, y, norm);
    }

    void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        check_matrix();
        if (one_pass_) {
            auto& scratch = static_cast<HostWorkspace&>(workspace).pass;
            one_pass_->keep_adjoint(x, scratch);
            one_pass_->apply_kept(*a.wide, *b.wide, y, scratch, norm);
            return;
        }
        if (tiles_) return adjoint_tiles_->apply(*a.wide, x, *b.wide, y, static_cast<HostWorkspace&>(workspace).tiles, norm);
        if (plan_.storage == StorageKind::dual) {
            if (adjoint_format_) adjoint_format_->apply(*a.wide, x, *b.wide, y, norm);
            else adjoint_.apply(*a.wide, x, *b.wide, y, norm);
            return;
        }
        HostBuffer<cpu::Compensated<T>>& panels = static_cast<HostWorkspace&>(workspace).panels;
        if (panels.size() == 0) panels = HostBuffer<cpu::Compensated<T>>(cpu::kPanels * cols());
        const cpu::CsrView<T> view{rows(), cols(), a_->offsets(), a_->columns(), forward_.values()};
        cpu::csr_apply_adjoint(view, *a.wide, x, *b.wide, y, panels.data(), norm);
    }

    std::unique_ptr<Workspace> make_workspace(CudaContext*) const override { return std::make_unique<HostWorkspace>(); }

  private:
    struct HostWorkspace : Workspace {
        HostBuffer<cpu::Compensated<T>> panels;        // of single storage
        typename cpu::OnePassRows<T>::Scratch pass;
        typename cpu::TileStorage<T>::Scratch tiles;
    };

    void apply_both(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const override {
        one_pass_->apply_both(*a.wide, x, *b.wide, y, static_cast<HostWorkspace&>(workspace).pass, norm);
    }
    void apply_kept_adjoint(Scalar<T> a, Scalar<T> b, T* x, Workspace& workspace, NormPartials* norm) const override {
        one_pass_->apply_kept(*a.wide, *b.wide, x, static_cast<HostWorkspace&>(workspace).pass, norm);
    }

    std::shared_ptr<const CsrMatrix> a_;
    OperatorOptions options_;
    cpu::Kernels<T> kernels_;
    std::int64_t version_ = 0;
    bool holds_matrix_ = true;  // false after an update that failed
    cpu::RowStorage<T> forward_;
    cpu::RowStorage<T> adjoint_;
    std::optional<cpu::OnePassRows<T>> one_pass_;        // over forward_
    std::optional<cpu::TileStorage<T>> tiles_;
    std::optional<cpu::TileStorage<T>> adjoint_tiles_;   // where tiles_ are
    std::unique_ptr<cpu::RowFormat<T>> forward_format_;  // in place of forward_, where one is forced
    std::unique_ptr<cpu::RowFormat<T>> adjoint_format_;
    std::optional<CsrMatrix> transposed_;  // while adjoint_ reads it
    OrderDecision order_decision_;
    OperatorPlan plan_;
};

}  // namespace

template <class T>
std::unique_ptr<MatrixOperator<T>> cpu::make_operator(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options,
                                                      const Kernels<T>& kernels) {
    return std::make_unique<CpuMatrixOperator<T>>(std::move(a), options, kernels);
}
template <class T>
std::unique_ptr<MatrixOperator<T>> make_cpu_operator(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options) {
    return cpu::make_operator<T>(std::move(a), options, cpu::Kernels<T>{});
}

#define LSMR_INSTANTIATE(T)                                                                                                                  \
    template std::unique_ptr<MatrixOperator<T>> cpu::make_operator(std::shared_ptr<const CsrMatrix>, const OperatorOptions&, const Kernels<T>&); \
    template std::unique_ptr<MatrixOperator<T>> make_cpu_operator(std::shared_ptr<const CsrMatrix>, const OperatorOptions&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr
