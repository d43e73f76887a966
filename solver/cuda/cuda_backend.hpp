// The CUDA executor: runs the text of a method as kernels on one stream. Scalars stay on the device; the host does not wait inside an
// iteration. It queues batches of iterations and looks at the progress of the batch before, while the next one runs.
// See solver/driver.hpp for what a backend offers.
#pragma once

#include <chrono>
#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "memory/cuda_capture.hpp"
#include "memory/device_buffer.hpp"
#include "operator/cuda/cuda_operators.hpp"
#include "operator/cuda/uploader.hpp"
#include "operator/cuda/vector_kernels.hpp"
#include "operator/order.hpp"
#include "operator/stacked_operator.hpp"
#include "solver/bidiagonal.hpp"
#include "solver/cuda/recurrence_kernels.hpp"
#include "solver/cuda/small_problem.hpp"
#include "solver/power_of_two.hpp"
#include "solver/recurrence.hpp"
#include "solver/transform.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr {

// A piece of work on a stream, recorded once, launched as one.
class IterationGraph {
  public:
    IterationGraph() = default;
    IterationGraph(const IterationGraph&) = delete;
    IterationGraph& operator=(const IterationGraph&) = delete;
    ~IterationGraph() {
        if (executable_) LSMR_CHECK_NOTHROW(cudaGraphExecDestroy(executable_));
    }
    explicit operator bool() const { return executable_ != nullptr; }
    template <class Work>
    void record(cudaStream_t stream, const Work& work) {
        const CapturedGraph graph(stream, work);
        LSMR_CHECK(cudaGraphInstantiate(&executable_, graph.get(), 0));
    }
    void launch(cudaStream_t stream) const { LSMR_CHECK(cudaGraphLaunch(executable_, stream)); }

  private:
    cudaGraphExec_t executable_ = nullptr;
};

template <class T>
class CudaBackend {
  public:
    using Value = T;

    // order: that of the operator's vectors, and so of all vectors here; those in host memory are as the caller gave them. Null: no other.
    CudaBackend(const LinearOperator<T>& a, CudaContext& context, std::shared_ptr<const MatrixOrder> order = nullptr)
        : base_(a),
          order_(order ? std::move(order) : std::make_shared<const MatrixOrder>()),
          context_(context),
          workspace_(a.make_workspace(&context)),
          constants_(context, kConstants),
          ended_(context, 1) {
        LSMR_CHECK(cudaMemsetAsync(ended_.data(), 0, sizeof(unsigned), stream()));
        set_constant(kOne, 1.0);
        set_constant(kZero, 0.0);
        for (cudaEvent_t& event : events_) LSMR_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    ~CudaBackend() {
        LSMR_CHECK_NOTHROW(cudaStreamSynchronize(context_.stream()));
        for (cudaEvent_t event : events_) LSMR_CHECK_NOTHROW(cudaEventDestroy(event));
    }
    CudaBackend(const CudaBackend&) = delete;
    CudaBackend& operator=(const CudaBackend&) = delete;

    // --- operator ---
    const LinearOperator<T>& base_operator() const { return base_; }
    // In its scope the steps of a method use the stack in place of the operator (null: no change). product() and
    // adjoint_product() always use the operator.
    class StackScope {
      public:
        StackScope(CudaBackend& backend, const LinearOperator<T>* stack) : backend_(backend) {
            backend.stack_ = stack;
            if (stack) backend.stack_workspace_ = stack->make_workspace(&backend.context_);
        }
        ~StackScope() {
            backend_.stack_ = nullptr;
            backend_.stack_workspace_.reset();
        }
        StackScope(const StackScope&) = delete;
        StackScope& operator=(const StackScope&) = delete;

      private:
        CudaBackend& backend_;
    };
    // K; kept by the caller.
    void set_preconditioner(const LinearOperator<T>& k) {
        preconditioner_ = &k;
        preconditioner_workspace_ = k.make_workspace(&context_);
    }
    bool preconditioned() const { return preconditioner_ != nullptr; }
    // The operator's matrix for the persistent kernel, which then runs the methods that it has wherever it can; kept by the caller.
    void set_small_problem(SmallProblem<T>* small) { small_ = small; }
    std::int64_t rows() const { return current().rows(); }
    std::int64_t cols() const { return base_.cols(); }
    Scalar<T> one() const { return constant(kOne); }
    std::unique_ptr<LinearOperator<T>> scaled_identity(std::int64_t n, double lambda) const {
        return make_cuda_scaled_identity<T>(n, lambda);
    }
    std::unique_ptr<LinearOperator<T>> diagonal(std::span<const double> values) const {
        return make_cuda_operator<T>(diagonal_matrix(ordered(order_->col, values)), context_);
    }

    // --- vectors, kept between solves; the content of one that must grow is lost ---
    T* row_vector(std::size_t k) { return vector(row_vectors_, k, rows()); }
    T* col_vector(std::size_t k) { return vector(col_vectors_, k, cols()); }
    // Room for kept vectors, one after another.
    T* basis(std::int64_t values) {
        basis_.reserve(values);
        return basis_.data();
    }
    void zero(T* p, std::int64_t n) {
        if (n > 0) LSMR_CHECK(cudaMemsetAsync(p, 0, static_cast<std::size_t>(n) * sizeof(T), stream()));
    }
    // dst <- 2^exponent src, src in fp64 host memory, where rows and columns are in the caller's order; it is free again at return.
    void upload_row(T* dst, const double* src, std::int64_t n, int exponent) { upload(dst, src, n, exponent, order_->row); }
    void upload_col(T* dst, const double* src, std::int64_t n, int exponent) { upload(dst, src, n, exponent, order_->col); }
    // Waits.
    void download_col(double* dst, const T* src, std::int64_t n, int exponent) {
        const PowerOfTwo scale(exponent);
        cuda::download(context_, src, n, [&](std::int64_t i, T value) { dst[source(order_->col, i)] = scale(static_cast<double>(value)); });
    }
    // As they are, from and to host memory. Both wait.
    void get_vector(T* dst, const T* src, std::int64_t n) const { copy(dst, src, n, cudaMemcpyDeviceToHost); }
    void put_vector(T* dst, const T* src, std::int64_t n) const { copy(dst, src, n, cudaMemcpyHostToDevice); }

    // --- steps of a method; r lies in device memory and is not read here ---
    template <class R>
    void forward(const R*, Scalar<T> a, const T* x, Scalar<T> b, T* y, std::size_t slot) {
        current().apply(a, x, b, y, current_workspace(), begin_slot(slot, current().max_partials()));
    }
    template <class R>
    void adjoint(const R*, Scalar<T> a, const T* x, Scalar<T> b, T* y, std::size_t slot) {
        current().apply_adjoint(a, x, b, y, current_workspace(), begin_slot(slot, current().max_partials()));
    }
    // forward(), then adjoint() with its y: where the operator can, both from one pass over A. Nothing else uses the operator between them.
    template <class R>
    void forward_of_pair(const R* r, Scalar<T> a, const T* x, Scalar<T> b, T* y, std::size_t slot) {
        if (const OnePass<T>* both = current().one_pass()) both->apply_both(a, x, b, y, current_workspace(), begin_slot(slot, current().max_partials()));
        else forward(r, a, x, b, y, slot);
    }
    template <class R>
    void adjoint_of_pair(const R* r, Scalar<T> a, const T* x, Scalar<T> b, T* y, std::size_t slot) {
        if (const OnePass<T>* both = current().one_pass()) both->apply_kept_adjoint(a, b, y, current_workspace(), begin_slot(slot, current().max_partials()));
        else adjoint(r, a, x, b, y, slot);
    }
    // v <- K t, t <- K^T p; partial sums of ||t||^2.
    template <class R>
    void precondition(const R*, const T* p, T* t, T* v, std::size_t slot) {
        const LinearOperator<T>& k = *preconditioner_;
        k.apply_adjoint(constant(kOne), p, constant(kZero), t, *preconditioner_workspace_, begin_slot(slot, k.max_partials()));
        k.apply(constant(kOne), t, constant(kZero), v, *preconditioner_workspace_, nullptr);
    }
    // v <- v - W W^T v, W the kept vectors; partial sums of ||v||^2. Three launches, nothing waits.
    void orthogonalize(const BidiagonalRecurrence<T>* r, const T* basis, std::int64_t window, T* v, std::size_t slot) {
        const std::int64_t n = cols();
        const std::int64_t needed = window * (1 + cuda::vector_blocks(n));
        if (dots_.size() < needed) dots_ = DeviceBuffer<double>(context_, needed);
        NormPartials* list = begin_slot(slot, kMaxPartials);
        list->count = cuda::vector_blocks(n);
        cuda::launch_orthogonalize(r, n, basis, window, v, dots_.data(), list->sums, stream());
    }
    // y <- a A x + b y, outside of a recurrence.
    void product(double a, const T* x, double b, T* y) {
        set_constant(kA, a);
        set_constant(kB, b);
        base_.apply(constant(kA), x, constant(kB), y, *workspace_, nullptr);
    }
    void adjoint_product(double a, const T* x, double b, T* y) {
        set_constant(kA, a);
        set_constant(kB, b);
        base_.apply_adjoint(constant(kA), x, constant(kB), y, *workspace_, nullptr);
    }
    template <class F>
    void elementwise(std::int64_t n, const F& f, std::size_t slot) {
        cuda::launch_elementwise(n, f, begin_sums<F>(n, slot), stream());
    }
    // elementwise(n, f, slot), then finish(r, stage, slots). Beside::product: `forward` with slot 0 was called just before, and shares nothing
    // with f that either writes.
    template <class R, class F>
    void elementwise_finish(std::int64_t n, const F& f, std::size_t slot, R* r, int stage, std::size_t slots, Beside beside) {
        const cuda::SumTargets targets = begin_sums<F>(n, slot);
        // A product that launched no kernel has nothing that this one could run beside.
        const bool beside_product = beside == Beside::product && lists_[0].count > 0;
        cuda::launch_elementwise_finish(n, f, targets, r, stage, partial_lists(slots), ended_.data(), beside_product, stream());
    }
    void norm(std::int64_t n, const T* p, std::size_t slot) { elementwise(n, SquaredNorm<T>{p}, slot); }
    // Waits.
    double norm_now(std::int64_t n, const T* p) {
        norm(n, p, 0);
        return root_of_sum(0);
    }
    // The root of what an elementwise step left in a slot. Waits.
    double root_of_sum(std::size_t slot) {
        const NormPartials& list = lists_[slot];
        std::vector<double> sums(static_cast<std::size_t>(list.count));
        LSMR_CHECK(cudaMemcpyAsync(sums.data(), list.sums, sums.size() * sizeof(double), cudaMemcpyDeviceToHost, stream()));
        context_.synchronize();
        double total = 0;
        for (double sum : sums) total += sum;
        return std::sqrt(total);
    }
    double max_abs_now(std::int64_t n, const T* p) {
        DeviceBuffer<double> result(context_, 1);
        LSMR_CHECK(cudaMemsetAsync(result.data(), 0, sizeof(double), stream()));
        cuda::launch_max_abs(n, p, result.data(), stream());
        double host = 0;
        LSMR_CHECK(cudaMemcpyAsync(&host, result.data(), sizeof(double), cudaMemcpyDeviceToHost, stream()));
        context_.synchronize();
        return host;
    }
    template <class R>
    void finish(R* r, int stage, std::size_t slots, int code = kGoOn) {
        cuda::launch_finish(r, stage, partial_lists(slots), code, stream());
    }

    // --- running ---
    // For the recurrence: addresses on the device. The host reads the same memory.
    RecordRing ring() {
        if (ring_.size() == 0) ring_ = PinnedBuffer<IterationRecord>(kRecords * (small_ ? kLongestLaunch : kLongestBatch));
        return {ring_.device_data(), ring_.size()};
    }
    template <class R>
    R* put_state(const R& state) {
        static_assert(std::is_trivially_copyable_v<R>);
        if (state_.size() < static_cast<std::int64_t>(sizeof(R))) state_ = DeviceBuffer<std::byte>(context_, sizeof(R));
        LSMR_CHECK(cudaMemcpyAsync(state_.data(), &state, sizeof(R), cudaMemcpyHostToDevice, stream()));
        return reinterpret_cast<R*>(state_.data());
    }
    // Waits.
    template <class R>
    R get_state(const R* r) const {
        R state;
        LSMR_CHECK(cudaMemcpyAsync(&state, r, sizeof(R), cudaMemcpyDeviceToHost, stream()));
        context_.synchronize();
        return state;
    }

    // Starts and iterates until the recurrence has finished. poll(progress, ring) is called once a batch, a batch behind the device, and
    // returns a status to stop with, or kGoOn. Iterations that were queued beyond the end leave x as it is. watched: a poll may stop or save, so the
    // first batch has one iteration.
    template <class Method, class Poll>
    Progress run(const typename Method::Vectors& w, typename Method::Recurrence* r, const Anchors<T>& anchors, Entry entry, bool watched, Poll&& poll) {
        using Clock = std::chrono::steady_clock;
        if (progress_.size() == 0) progress_ = PinnedBuffer<Progress>(2);
        const RecordRing host_ring{ring_.data(), ring_.size()};
        const auto copy_progress = [&](std::size_t slot) {
            LSMR_CHECK(cudaMemcpyAsync(progress_.data() + slot, &r->progress, sizeof(Progress), cudaMemcpyDeviceToHost, stream()));
        };
        const auto mark = [&](std::size_t slot) { LSMR_CHECK(cudaEventRecord(events_[slot], stream())); };
        if (entry == Entry::start) Method::start(*this, w, r, anchors);
        copy_progress(0);
        mark(0);
        const bool persistent = runs_persistent<Method>(anchors);
        const std::int64_t longest = persistent ? kLongestLaunch : kLongestBatch;
        // As many iterations as take about a millisecond: enough to hide the host, few enough to lose little at the end. A launch of the persistent
        // kernel ends with the solve, and costs as much as some iterations: fewer and longer ones.
        const double shortest_wait = persistent ? 4e-3 : 0.5e-3;  // seconds
        const double longest_wait = 4 * shortest_wait;
        std::int64_t batch = persistent && !watched ? small_->first_launch() : 1;
        // A launch of the persistent kernel leaves its progress, but where the recurrence had finished before: by a stop of the host's.
        bool copied = !persistent;
        IterationGraph graph;
        for (std::size_t slot = 0;; slot = 1 - slot) {
            // Short iterations are bound by launches: they are recorded once and replayed. By now every buffer has been made, so nothing is
            // allocated while recording.
            if (persistent) {
                Progress* const left = copied ? nullptr : progress_.device_data() + (1 - slot);
                if constexpr (cuda::kRunsPersistent<Method>) small_->template iterate<Method>(w, r, batch, anchors, left);
            } else if (batch >= kGraphIterations && capturable()) {
                if (!graph) graph.record(stream(), [&] {
                    for (std::int64_t i = 0; i < kGraphIterations; ++i) Method::iterate(*this, w, r, anchors);
                });
                for (std::int64_t i = 0; i < batch; i += kGraphIterations) graph.launch(stream());
            } else {
                for (std::int64_t i = 0; i < batch; ++i) Method::iterate(*this, w, r, anchors);
            }
            if (copied) copy_progress(1 - slot);
            mark(1 - slot);
            const auto before = Clock::now();
            LSMR_CHECK(cudaEventSynchronize(events_[slot]));
            ++cuda_counters().synchronizations;
            const double waited = std::chrono::duration<double>(Clock::now() - before).count();
            const Progress progress = progress_[static_cast<std::int64_t>(slot)];
            const int code = poll(progress, host_ring);
            if (progress.finished) break;
            if (code != kGoOn) {
                finish(r, Method::Recurrence::host_stop, 0, code);
                copied = true;
            }
            if (waited < shortest_wait && batch < longest) batch *= 2;
            else if (waited > longest_wait && batch > 1) batch /= 2;
        }
        context_.synchronize();  // also before the graph goes
        if (cuda_counters().count_kernels && persistent) {
            cuda_counters().iteration_kernels = 1;  // and that for many iterations
        } else if (cuda_counters().count_kernels && capturable()) {
            const CapturedGraph one(stream(), [&] { Method::iterate(*this, w, r, anchors); });
            cuda_counters().iteration_kernels = one.kernels();
        }
        return get_state(r).progress;
    }

  private:
    static constexpr std::int64_t kLongestBatch = 64;
    static constexpr std::int64_t kGraphIterations = 16;  // divides kLongestBatch, as batches double
    static constexpr std::int64_t kLongestLaunch = 2048;  // iterations of the persistent kernel: far below 0.2 s
    static constexpr std::int64_t kRecords = 4;           // batches: the one before is read while the next two are written
    enum ConstantSlot : std::int64_t { kOne, kZero, kA, kB, kConstants };

    void copy(T* dst, const T* src, std::int64_t n, cudaMemcpyKind kind) const {
        if (n > 0) LSMR_CHECK(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(n) * sizeof(T), kind, stream()));
        context_.synchronize();
    }
    void upload(T* dst, const double* src, std::int64_t n, int exponent, const std::vector<std::int32_t>& order) {
        const PowerOfTwo scale(exponent);
        cuda::Uploader(context_).fill(dst, n, [&](std::int64_t i) { return static_cast<T>(scale(src[source(order, i)])); });
    }
    CUstream_st* stream() const { return context_.stream(); }
    T* vector(std::vector<DeviceBuffer<T>>& list, std::size_t k, std::int64_t n) {
        while (list.size() <= k) list.emplace_back(context_, 0);
        list[k].reserve(n);
        return list[k].data();
    }
    NormPartials* begin_slot(std::size_t slot, std::int32_t capacity) {
        if (partials_[slot].size() < capacity) partials_[slot] = DeviceBuffer<double>(context_, capacity);
        lists_[slot] = {partials_[slot].data(), 0};
        return &lists_[slot];
    }
    template <class F>
    cuda::SumTargets begin_sums(std::int64_t n, std::size_t slot) {
        cuda::SumTargets targets;
        for (int s = 0; s < F::kSums; ++s) {
            NormPartials* list = begin_slot(slot + static_cast<std::size_t>(s), kMaxPartials);
            list->count = cuda::vector_blocks(n);
            targets.sums[s] = list->sums;
        }
        return targets;
    }
    cuda::PartialLists partial_lists(std::size_t slots) const {
        cuda::PartialLists lists;
        lists.lists = static_cast<std::int32_t>(slots);
        for (std::size_t s = 0; s < slots; ++s) {
            lists.sums[s] = lists_[s].sums;
            lists.count[s] = lists_[s].count;
        }
        return lists;
    }
    void set_constant(std::int64_t slot, double value) {
        Coefficient<T> coefficient;
        set(coefficient, value);
        LSMR_CHECK(cudaMemcpyAsync(constants_.data() + slot, &coefficient, sizeof(coefficient), cudaMemcpyHostToDevice, stream()));
    }
    Scalar<T> constant(std::int64_t slot) const { return constants_.data() + slot; }
    template <class Method>
    bool runs_persistent(const Anchors<T>& anchors) const {
        return cuda::kRunsPersistent<Method> && small_ != nullptr && stack_ == nullptr && preconditioner_ == nullptr && !anchors.bounded && !anchors.variances &&
               anchors.basis == nullptr && anchors.linear == nullptr;
    }
    const LinearOperator<T>& current() const { return stack_ ? *stack_ : base_; }
    bool capturable() const { return current().capturable() && (preconditioner_ == nullptr || preconditioner_->capturable()); }
    Workspace& current_workspace() { return stack_ ? *stack_workspace_ : *workspace_; }

    const LinearOperator<T>& base_;
    std::shared_ptr<const MatrixOrder> order_;
    CudaContext& context_;
    std::unique_ptr<Workspace> workspace_;
    const LinearOperator<T>* stack_ = nullptr;
    std::unique_ptr<Workspace> stack_workspace_;
    const LinearOperator<T>* preconditioner_ = nullptr;
    std::unique_ptr<Workspace> preconditioner_workspace_;
    SmallProblem<T>* small_ = nullptr;
    DeviceBuffer<Coefficient<T>> constants_;
    DeviceBuffer<unsigned> ended_;  // blocks of the elementwise step that runs
    std::vector<DeviceBuffer<T>> row_vectors_;
    std::vector<DeviceBuffer<T>> col_vectors_;
    DeviceBuffer<T> basis_{context_, 0};
    DeviceBuffer<double> dots_{context_, 0};  // with kept vectors: the sums, then those of each block
    DeviceBuffer<double> partials_[cuda::kMaxSlots];
    NormPartials lists_[cuda::kMaxSlots];
    PinnedBuffer<IterationRecord> ring_;
    PinnedBuffer<Progress> progress_;
    DeviceBuffer<std::byte> state_;
    cudaEvent_t events_[2] = {};
};

}  // namespace lsmr
