// The CPU executor: runs the text of a method at once, in host memory. See solver/driver.hpp for what a backend offers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "memory/error.hpp"
#include "memory/host_buffer.hpp"
#include "operator/cpu/csr_kernels.hpp"
#include "operator/matrix_operator.hpp"
#include "operator/pairwise_sum.hpp"
#include "operator/stacked_operator.hpp"
#include "solver/cpu/team_choice.hpp"
#include "solver/power_of_two.hpp"
#include "solver/recurrence.hpp"
#include "solver/transform.hpp"
#include "solver/vector_steps.hpp"

namespace lsmr {

template <class T>
class CpuBackend {
  public:
    using Value = T;
    static constexpr Space kSpace = Space::host;

    // order: that of the operator's vectors, and so of all vectors here; those in host memory are as the caller gave them. Null: no other.
    explicit CpuBackend(const LinearOperator<T>& a, std::shared_ptr<const MatrixOrder> order = nullptr)
        : base_(a),
          order_(order ? std::move(order) : std::make_shared<const MatrixOrder>()),
          workspace_(a.make_workspace(nullptr)),
          one_(std::make_unique<Coefficient<T>>()),
          zero_(std::make_unique<Coefficient<T>>()) {
        set(*one_, 1.0);
    }

    // --- operator ---
    const LinearOperator<T>& base_operator() const { return base_; }
    // In its scope the steps of a method use the stack in place of the operator (null: no change). product() and
    // adjoint_product() always use the operator.
    class StackScope {
      public:
        StackScope(CpuBackend& backend, const LinearOperator<T>* stack) : backend_(backend) {
            backend.stack_ = stack;
            if (stack) backend.stack_workspace_ = stack->make_workspace(nullptr);
        }
        ~StackScope() {
            backend_.stack_ = nullptr;
            backend_.stack_workspace_.reset();
        }
        StackScope(const StackScope&) = delete;
        StackScope& operator=(const StackScope&) = delete;

      private:
        CpuBackend& backend_;
    };
    // K; kept by the caller.
    void set_preconditioner(const LinearOperator<T>& k) {
        preconditioner_ = &k;
        preconditioner_workspace_ = k.make_workspace(nullptr);
    }
    // Threads that stay together through run(); 0: each loop has its own. What runs in between must not open parallel regions: they would get one thread.
    void set_team(int threads) {
        team_ = threads;
        choice_ = cpu::TeamChoice(threads);
    }
    bool preconditioned() const { return preconditioner_ != nullptr; }
    std::int64_t rows() const { return current().rows(); }
    std::int64_t cols() const { return base_.cols(); }
    Scalar<T> one() const { return one_.get(); }
    std::unique_ptr<LinearOperator<T>> scaled_identity(std::int64_t n, double lambda) const {
        return make_cpu_scaled_identity<T>(n, lambda);
    }
    std::unique_ptr<LinearOperator<T>> diagonal(std::span<const double> values) const {
        return make_cpu_operator<T>(std::make_shared<const CsrMatrix>(diagonal_matrix(ordered(order_->col, values))));
    }

    // --- vectors, kept between solves; the content of one that must grow is lost ---
    T* row_vector(std::size_t k) { return vector(row_vectors_, k, rows()); }
    T* col_vector(std::size_t k) { return vector(col_vectors_, k, cols()); }
    // Room for kept vectors, one after another.
    T* basis(std::int64_t values) {
        if (basis_.size() < values) basis_ = HostBuffer<T>(values);
        return basis_.data();
    }
    void zero(T* p, std::int64_t n) { std::fill(p, p + n, T(0)); }
    // dst <- 2^exponent src, from and to fp64 host memory, where rows and columns are in the caller's order.
    void upload_row(T* dst, const double* src, std::int64_t n, int exponent) { upload(dst, src, n, exponent, order_->row); }
    void upload_col(T* dst, const double* src, std::int64_t n, int exponent) { upload(dst, src, n, exponent, order_->col); }
    void download_col(double* dst, const T* src, std::int64_t n, int exponent) {
        const PowerOfTwo scale(exponent);
#pragma omp parallel for schedule(static) if (cpu::VectorChunks(n).count > 1)
        for (std::int64_t i = 0; i < n; ++i) dst[source(order_->col, i)] = scale(static_cast<double>(src[i]));
    }
    // As they are, from and to host memory.
    void get_vector(T* dst, const T* src, std::int64_t n) const { std::copy(src, src + n, dst); }
    void put_vector(T* dst, const T* src, std::int64_t n) { std::copy(src, src + n, dst); }

    // --- steps of a method; r lies in host memory ---
    template <class R>
    void forward(const R* r, Scalar<T> a, const T* x, Scalar<T> b, T* y, std::size_t slot) {
        if (r->progress.stopped()) return;
        current().apply(a, x, b, y, current_workspace(), begin_slot(slot, current().max_partials()));
    }
    template <class R>
    void adjoint(const R* r, Scalar<T> a, const T* x, Scalar<T> b, T* y, std::size_t slot) {
        if (r->progress.stopped()) return;
        current().apply_adjoint(a, x, b, y, current_workspace(), begin_slot(slot, current().max_partials()));
    }
    // forward(), then adjoint() with its y.
    template <class R>
    void forward_of_pair(const R* r, Scalar<T> a, const T* x, Scalar<T> b, T* y, std::size_t slot) {
        const OnePass<T>* both = current().one_pass();
        if (both == nullptr) return forward(r, a, x, b, y, slot);
        if (!r->progress.stopped()) both->apply_both(a, x, b, y, current_workspace(), begin_slot(slot, current().max_partials()));
    }
    template <class R>
    void adjoint_of_pair(const R* r, Scalar<T> a, const T* x, Scalar<T> b, T* y, std::size_t slot) {
        const OnePass<T>* both = current().one_pass();
        if (both == nullptr) return adjoint(r, a, x, b, y, slot);
        if (!r->progress.stopped()) both->apply_kept_adjoint(a, b, y, current_workspace(), begin_slot(slot, current().max_partials()));
    }
    // v <- K t, t <- K^T p; partial sums of ||t||^2.
    template <class R>
    void precondition(const R* r, const T* p, T* t, T* v, std::size_t slot) {
        if (r->progress.stopped()) return;
        const LinearOperator<T>& k = *preconditioner_;
        k.apply_adjoint(one_.get(), p, zero_.get(), t, *preconditioner_workspace_, begin_slot(slot, k.max_partials()));
        k.apply(one_.get(), t, zero_.get(), v, *preconditioner_workspace_, nullptr);
    }
    // v <- v - W W^T v, W the kept vectors; partial sums of ||v||^2.
    template <class R>
    void orthogonalize(const R* r, const T* basis, std::int64_t window, T* v, std::size_t slot) {
        if (r->progress.stopped()) return;
        const std::int64_t n = cols();
        const std::int64_t count = r->kept(window);
        const cpu::VectorChunks chunks(n);
        if (dots_.size() < (chunks.count + 1) * count) dots_ = HostBuffer<double>((chunks.count + 1) * window);
        double* parts = dots_.data() + count;
        cpu::for_each_chunk(chunks.count, [&](std::int64_t c) {
            const std::int64_t end = std::min(n, (c + 1) * chunks.length);
            for (std::int64_t k = 0; k < count; ++k) {
                PairwiseSum total;
                for (std::int64_t begin = c * chunks.length; begin < end; begin += kBlock) {
                    double sum = 0;
                    for (std::int64_t i = begin; i < std::min(end, begin + kBlock); ++i) {
                        sum += static_cast<double>(basis[k * n + i]) * static_cast<double>(v[i]);
                    }
                    total.add(sum);
                }
                parts[c * count + k] = total.value();
            }
        });
        for (std::int64_t k = 0; k < count; ++k) {
            dots_[k] = pairwise_sum(0, chunks.count, [&](std::int64_t c) { return parts[c * count + k]; });
        }
        NormPartials* list = begin_slot(slot, kMaxPartials);
        list->count = static_cast<std::int32_t>(chunks.count);
        cpu::for_each_chunk(chunks.count, [&](std::int64_t c) {
            const std::int64_t end = std::min(n, (c + 1) * chunks.length);
            PairwiseSum total;
            for (std::int64_t begin = c * chunks.length; begin < end; begin += kBlock) {
                const std::int64_t length = std::min(end, begin + kBlock) - begin;
                double away[kBlock] = {};
                for (std::int64_t k = 0; k < count; ++k) {
                    for (std::int64_t i = 0; i < length; ++i) away[i] += dots_[k] * static_cast<double>(basis[k * n + begin + i]);
                }
                double sum = 0;
                for (std::int64_t i = 0; i < length; ++i) {
                    const T value = static_cast<T>(static_cast<double>(v[begin + i]) - away[i]);
                    v[begin + i] = value;
                    sum += static_cast<double>(value) * static_cast<double>(value);
                }
                total.add(sum);
            }
            list->sums[c] = total.value();
        });
    }
    // y <- a A x + b y, outside of a recurrence.
    void product(double a, const T* x, double b, T* y) {
        const auto [ca, cb] = coefficients(a, b);
        base_.apply(&ca, x, &cb, y, *workspace_, nullptr);
    }
    void adjoint_product(double a, const T* x, double b, T* y) {
        const auto [ca, cb] = coefficients(a, b);
        base_.apply_adjoint(&ca, x, &cb, y, *workspace_, nullptr);
    }

    // f(i, coefficients, sums) for i < n; its F::kSums sums go to the slots from `slot` on.
    template <class F>
    void elementwise(std::int64_t n, const F& f, std::size_t slot) {
        const cpu::VectorChunks chunks(n);
        double* partials[F::kSums];
        for (int s = 0; s < F::kSums; ++s) {
            NormPartials* list = begin_slot(slot + static_cast<std::size_t>(s), kMaxPartials);
            list->count = static_cast<std::int32_t>(chunks.count);
            partials[s] = list->sums;
        }
        const auto coefficients = f.load();
        cpu::for_each_chunk(chunks.count, [&](std::int64_t c) {
            const std::int64_t end = std::min(n, (c + 1) * chunks.length);
            PairwiseSum total[F::kSums];
            for (std::int64_t begin = c * chunks.length; begin < end; begin += kBlock) {
                double sums[kLanes][F::kSums] = {};  // so that additions do not wait for each other
                std::int64_t i = begin;
                for (; i + kLanes <= std::min(end, begin + kBlock); i += kLanes) {
                    for (std::int64_t l = 0; l < kLanes; ++l) f(i + l, coefficients, sums[l]);
                }
                for (; i < std::min(end, begin + kBlock); ++i) f(i, coefficients, sums[0]);
                for (int s = 0; s < F::kSums; ++s) total[s].add((sums[0][s] + sums[1][s]) + (sums[2][s] + sums[3][s]));
            }
            for (int s = 0; s < F::kSums; ++s) partials[s][c] = total[s].value();
        }, cpu::VectorChunks::kGrain);
    }
    // elementwise(n, f, slot), then finish(r, stage, slots): one kernel on a GPU.
    template <class R, class F>
    void elementwise_finish(std::int64_t n, const F& f, std::size_t slot, R* r, int stage, std::size_t slots, Beside) {
        elementwise(n, f, slot);
        finish(r, stage, slots);
    }
    // Partial sums of ||p||^2 into a slot.
    void norm(std::int64_t n, const T* p, std::size_t slot) { elementwise(n, SquaredNorm<T>{p}, slot); }
    // ||p||, at once.
    double norm_now(std::int64_t n, const T* p) {
        norm(n, p, 0);
        return root_of_sum(0);
    }
    // The root of what an elementwise step left in a slot, at once.
    double root_of_sum(std::size_t slot) const { return std::sqrt(sum(slot)); }
    // max |p_i|, infinite or NaN where an element is.
    double max_abs_now(std::int64_t n, const T* p) {
        double largest = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const double magnitude = std::abs(static_cast<double>(p[i]));
            if (!(magnitude <= largest)) largest = magnitude;
        }
        return largest;
    }

    template <class R>
    void finish(R* r, int stage, std::size_t slots) {
        double sums[kSlots] = {};
        for (std::size_t s = 0; s < slots; ++s) sums[s] = sum(s);
        r->finish(stage, sums, kGoOn);
    }

    // --- running ---
    RecordRing ring() {
        if (ring_.empty()) ring_ = HostBuffer<IterationRecord>(1);
        return {ring_.data(), ring_.size()};
    }
    template <class R>
    R* put_state(const R& state) {
        static_assert(std::is_trivially_copyable_v<R>);
        if (state_.size() < static_cast<std::int64_t>(sizeof(R))) state_ = HostBuffer<std::byte>(sizeof(R));
        std::memcpy(state_.data(), &state, sizeof(R));
        return reinterpret_cast<R*>(state_.data());
    }
    template <class R>
    R get_state(const R* r) const {
        return *r;
    }

    // Starts and iterates until the recurrence has finished. poll(progress, ring) is called after every iteration and returns a
    // status to stop with, or kGoOn.
    template <class Method, class Poll>
    Progress run(const typename Method::Vectors& w, typename Method::Recurrence* r, const Anchors<T>& anchors, Entry entry, bool /*watched*/, Poll&& poll) {
        cpu::Team::run(team_, [&] {
            cpu::Team::use(choice_.threads());
            choice_.interrupt();
            if (entry == Entry::start) Method::start(*this, w, r, anchors);
            for (;;) {
                const int code = poll(r->progress, ring());
                if (code != kGoOn) r->finish(Method::Recurrence::host_stop, nullptr, code);
                if (r->progress.finished) return;
                if (choice_.settled()) {
                    Method::iterate(*this, w, r, anchors);
                    continue;
                }
                const auto begin = std::chrono::steady_clock::now();
                Method::iterate(*this, w, r, anchors);
                choice_.took(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
                cpu::Team::use(choice_.threads());
            }
        });
        return r->progress;
    }

  private:
    static constexpr std::size_t kSlots = 4;
    // Sums are formed in blocks, and these by halves, so that their rounding does not grow with the length: errors in norms cost orthogonality.
    static constexpr std::int64_t kBlock = 32;
    static constexpr std::int64_t kLanes = 4;

    void upload(T* dst, const double* src, std::int64_t n, int exponent, const std::vector<std::int32_t>& order) {
        const PowerOfTwo scale(exponent);
#pragma omp parallel for schedule(static) if (cpu::VectorChunks(n).count > 1)
        for (std::int64_t i = 0; i < n; ++i) dst[i] = static_cast<T>(scale(src[source(order, i)]));
    }
    T* vector(std::vector<HostBuffer<T>>& list, std::size_t k, std::int64_t n) {
        if (list.size() <= k) list.resize(k + 1);
        if (list[k].size() < n) list[k] = HostBuffer<T>(n);
        return list[k].data();
    }
    NormPartials* begin_slot(std::size_t slot, std::int32_t capacity) {
        if (partials_[slot].size() < capacity) partials_[slot] = HostBuffer<double>(capacity);
        lists_[slot] = {partials_[slot].data(), 0};
        return &lists_[slot];
    }
    double sum(std::size_t slot) const {
        return pairwise_sum(0, lists_[slot].count, [&](std::int64_t i) { return lists_[slot].sums[i]; });
    }
    static std::pair<Coefficient<T>, Coefficient<T>> coefficients(double a, double b) {
        std::pair<Coefficient<T>, Coefficient<T>> both;
        set(both.first, a);
        set(both.second, b);
        return both;
    }
    const LinearOperator<T>& current() const { return stack_ ? *stack_ : base_; }
    Workspace& current_workspace() { return stack_ ? *stack_workspace_ : *workspace_; }

    const LinearOperator<T>& base_;
    int team_ = 0;
    cpu::TeamChoice choice_;
    std::shared_ptr<const MatrixOrder> order_;
    std::unique_ptr<Workspace> workspace_;
    const LinearOperator<T>* stack_ = nullptr;
    std::unique_ptr<Workspace> stack_workspace_;
    std::unique_ptr<Coefficient<T>> one_;
    std::unique_ptr<Coefficient<T>> zero_;
    const LinearOperator<T>* preconditioner_ = nullptr;
    std::unique_ptr<Workspace> preconditioner_workspace_;
    std::vector<HostBuffer<T>> row_vectors_;
    std::vector<HostBuffer<T>> col_vectors_;
    HostBuffer<T> basis_;
    HostBuffer<double> dots_;  // with kept vectors: the sums, then those of each chunk
    HostBuffer<double> partials_[kSlots];
    NormPartials lists_[kSlots];
    HostBuffer<IterationRecord> ring_;
    HostBuffer<std::byte> state_;
};

}  // namespace lsmr
