// LinearOperator<T>: A as two products. Solvers drive it; users derive from it to embed their own A.
#pragma once

#include <cstdint>
#include <memory>

namespace lsmr {

class CudaContext;

enum class Space { host, cuda };  // where x and y live

// A coefficient, by pointer: it lies where the vectors live, so that on a GPU a recurrence writes it and no step waits for the
// host. Kept in fp64 and in T, since cuSPARSE wants T.
template <class T>
struct Coefficient {
    double wide = 0;
    T narrow = 0;
};

// The coefficient as an operator takes it.
template <class T>
struct Scalar {
    const double* wide = nullptr;
    const T* narrow = nullptr;
    Scalar() = default;
    Scalar(const Coefficient<T>* c) : wide(&c->wide), narrow(&c->narrow) {}  // NOLINT: implicit on purpose
};

// Partial sums of ||y||^2, fp64, in the space of y. A product appends its partials at sums[count...] and raises count (on the
// host, at the call: how many there are depends on the shape and the plan only). Added in order they give ||y||^2, the same bits at
// every run.
struct NormPartials {
    double* sums = nullptr;
    std::int32_t count = 0;
};
// A product appends at most this many partials.
inline constexpr std::int32_t kMaxPartials = 4096;

// What a caller keeps for one stream or thread: scratch memory, and what an operator cannot share between concurrent products
// (cuSPARSE descriptors and buffers). Made by make_workspace(); the operator and the context must outlive it.
class Workspace {
  public:
    explicit Workspace(CudaContext* context = nullptr) : context_(context) {}
    virtual ~Workspace() = default;
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    CudaContext* context() const { return context_; }  // its stream carries the products; null on the host

  private:
    CudaContext* context_;
};

// Both products of an iteration that asks for y <- a A x + b y and then for A^T y, where an operator reads A once for them.
template <class T>
class OnePass {
  public:
    // y <- a A x + b y as LinearOperator::apply, and z = A^T y stays in the workspace until its next product.
    virtual void apply_both(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm) const = 0;
    // x <- a z + b x: what LinearOperator::apply_adjoint gives for that y, which must still be there.
    virtual void apply_kept_adjoint(Scalar<T> a, Scalar<T> b, T* x, Workspace& workspace, NormPartials* norm) const = 0;

  protected:
    ~OnePass() = default;
};

template <class T>
class LinearOperator {
  public:
    virtual ~LinearOperator() = default;

    virtual std::int64_t rows() const = 0;
    virtual std::int64_t cols() const = 0;
    virtual Space space() const = 0;
    // False where a product may synchronise or allocate, so that it cannot be part of a CUDA graph.
    virtual bool capturable() const = 0;

    // y <- a A x + b y.  x: cols values, y: rows values, in space(), not overlapping. Where b is 0, y is not read.
    // Asynchronous on the stream of the workspace's context, whose device is the thread's current one (DeviceScope); on the host, done at return.
    // With `norm`, partial sums of ||y||^2 of the result are appended to it.
    virtual void apply(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace, NormPartials* norm = nullptr) const = 0;
    // y <- a A^T x + b y.  x: rows values, y: cols values.
    virtual void apply_adjoint(Scalar<T> a, const T* x, Scalar<T> b, T* y, Workspace& workspace,
                               NormPartials* norm = nullptr) const = 0;

    // Null: A is read for each product.
    virtual const OnePass<T>* one_pass() const { return nullptr; }

    // The operator's values are those of 2^exponent() A, where A is what its user means by it: 0 but for scaled copies.
    virtual int exponent() const { return 0; }
    // How many partials a product may append.
    virtual std::int32_t max_partials() const { return kMaxPartials; }
    // context: required for Space::cuda, ignored on the host.
    virtual std::unique_ptr<Workspace> make_workspace(CudaContext* context) const {
        return std::make_unique<Workspace>(context);
    }

    LinearOperator() = default;
    LinearOperator(const LinearOperator&) = delete;
    LinearOperator& operator=(const LinearOperator&) = delete;
};

}  // namespace lsmr
