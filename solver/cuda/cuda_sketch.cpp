#include "solver/cuda/cuda_sketch.hpp"

#include <cublas_v2.h>
#include <cusolverDn.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "memory/cuda_check.hpp"
#include "memory/error.hpp"
#include "operator/cuda/transpose.hpp"
#include "operator/cuda/uploader.hpp"
#include "solver/cuda/cuda_inverse.hpp"
#include "solver/cuda/preconditioner_kernels.hpp"
#include "solver/power_of_two.hpp"
#include "solver/sparse_sign.hpp"

namespace lsmr {

namespace detail {
// For LSMR_CHECK, as those of memory/cuda_check.hpp; here alone, for nothing else calls cuSOLVER.
static bool ok(cusolverStatus_t code) { return code == CUSOLVER_STATUS_SUCCESS; }
static void check(cusolverStatus_t code, const char* call, const char*, int line) {
    if (!ok(code)) throw DeviceError(fmt::format("cuSOLVER failed: code {} in {} at cuda_sketch.cpp:{}", static_cast<int>(code), call, line));
}
}  // namespace detail

namespace {

// Rows of A, and entries, that pass through at a time: 100 MB of buffers.
constexpr std::int64_t kPieceRows = std::int64_t{1} << 17;
constexpr std::int64_t kPieceEntries = std::int64_t{1} << 22;

std::int64_t longest_row(const SketchPlan& plan) {
    std::int64_t longest = 0;
    for (const auto& part : plan.parts) {
        for (std::int64_t i = 0; i < part->rows(); ++i) longest = std::max(longest, part->offsets()[i + 1] - part->offsets()[i]);
    }
    return longest;
}
// Of the rows that pass through at a time: as many as there are, at most kPieceRows.
std::int64_t piece_rows(const SketchPlan& plan) {
    std::int64_t rows = 0;
    for (const auto& part : plan.parts) rows = std::max(rows, part->rows());
    return std::min(rows, kPieceRows);
}
std::int64_t piece_entries(const SketchPlan& plan) {
    std::int64_t entries = 0;
    for (const auto& part : plan.parts) entries = std::max(entries, part->nnz());
    return std::max(std::min(entries, kPieceEntries), longest_row(plan));
}
// Device bytes of the pieces, beside S A: 48 for each entry of S, which stands there twice and is sorted.
std::int64_t piece_bytes(const SketchPlan& plan) { return 48 * kSigns * piece_rows(plan) + 12 * piece_entries(plan); }

}  // namespace

DeviceBuffer<double> cuda_sketched_matrix(const SketchPlan& plan, CudaContext& context) {
    const cudaStream_t stream = context.stream();
    DeviceBuffer<double> sa(context, plan.rows * plan.cols);
    if (sa.size() == 0) return sa;
    LSMR_CHECK(cudaMemsetAsync(sa.data(), 0, static_cast<std::size_t>(sa.bytes()), stream));
    const std::int64_t most_rows = piece_rows(plan);
    const std::int64_t most_entries = piece_entries(plan);
    if (most_entries == 0) return sa;
    const std::int64_t signs = kSigns * most_rows;
    DeviceBuffer<std::int32_t> st_offsets(context, most_rows + 1), st_columns(context, signs), s_offsets(context, plan.rows + 1), s_columns(context, signs);
    DeviceBuffer<double> st_values(context, signs), s_values(context, signs);
    DeviceBuffer<std::int32_t> offsets(context, most_rows + 1), columns(context, most_entries);
    DeviceBuffer<double> values(context, most_entries);
    cuda::TransposeScratch scratch(context, plan.rows, signs);
    std::vector<std::int64_t> sign_offsets(static_cast<std::size_t>(most_rows) + 1);  // those of S^T
    for (std::size_t i = 0; i < sign_offsets.size(); ++i) sign_offsets[i] = static_cast<std::int64_t>(i) * kSigns;
    cuda::Uploader up(context);
    const PowerOfTwo scale(-plan.exponent);

    std::int64_t above = 0;  // rows of the parts before
    for (const auto& part : plan.parts) {
        const std::int64_t* of = part->offsets();
        for (std::int64_t first = 0; first < part->rows();) {
            const std::int64_t most = std::min(first + most_rows, part->rows());
            const std::int64_t end = std::upper_bound(of + first, of + most + 1, of[first] + most_entries) - of - 1;  // holds the longest row
            const std::int64_t count = end - first;
            const std::int64_t base = of[first];
            up(offsets.data(), of + first, count + 1, [base](std::int64_t k) { return static_cast<std::int32_t>(k - base); });
            up(columns.data(), part->columns() + base, of[end] - base, [](std::int32_t j) { return j; });
            up(values.data(), part->values() + base, of[end] - base, scale);
            cuda::launch_signs(plan.seed, above + first, count, plan.rows, st_offsets.data(), st_columns.data(), st_values.data(), stream);
            cuda::launch_transpose(count, plan.rows, sign_offsets.data(), st_offsets.data(), st_columns.data(), st_values.data(), s_offsets.data(),
                                   s_columns.data(), s_values.data(), scratch, stream);
            cuda::launch_sketch(plan.rows, plan.cols, s_offsets.data(), s_columns.data(), s_values.data(), offsets.data(), columns.data(), values.data(),
                                sa.data(), stream);
            first = end;
        }
        above += part->rows();
    }
    return sa;
}

struct CudaSketch::State {
    State(std::shared_ptr<const SketchPlan> of, CudaContext& of_context)
        : plan(std::move(of)), context(of_context), tau(context, plan->cols), right_side(context, plan->rows), info(context, 1) {
        LSMR_CHECK(cusolverDnCreate(&handle));
        LSMR_CHECK(cusolverDnSetStream(handle, context.stream()));
    }
    ~State() {
        if (handle) LSMR_CHECK_NOTHROW(cusolverDnDestroy(handle));
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    int rows() const { return static_cast<int>(plan->rows); }
    int cols() const { return static_cast<int>(plan->cols); }

    std::shared_ptr<const SketchPlan> plan;
    CudaContext& context;
    cusolverDnHandle_t handle = nullptr;
    DeviceBuffer<double> qr;  // R and the reflectors of Q, as geqrf leaves them
    DeviceBuffer<double> tau;
    DeviceBuffer<double> right_side;
    DeviceBuffer<double> work;
    DeviceBuffer<int> info;
};

CudaSketch::CudaSketch(std::shared_ptr<const SketchPlan> plan, CudaContext& context) : state_(std::make_unique<State>(std::move(plan), context)) {
    State& s = *state_;
    const cudaStream_t stream = context.stream();
    if (s.plan->cols == 0) return;
    int factor = 0, apply = 0;  // values of work space; no array is read
    double* any = s.right_side.data();
    LSMR_CHECK(cusolverDnDgeqrf_bufferSize(s.handle, s.rows(), s.cols(), any, s.rows(), &factor));
    LSMR_CHECK(cusolverDnDormqr_bufferSize(s.handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_T, s.rows(), 1, s.cols(), any, s.rows(), s.tau.data(), any, s.rows(),
                                           &apply));
    const std::int64_t work = std::max(factor, apply);
    // S A, R beside it, and what making them takes.
    const std::int64_t value_bytes = sizeof(double);
    const std::int64_t needed = (s.plan->rows * s.plan->cols + s.plan->cols * s.plan->cols + work) * value_bytes + piece_bytes(*s.plan);
    const std::int64_t free_bytes = context.free_bytes();
    if (needed > free_bytes) {
        throw OutOfMemory(needed, context.pool().live_bytes(), free_bytes,
                          fmt::format("the sketch of A, {} x {}, and its QR need that much beside the matrix", s.plan->rows, s.plan->cols));
    }
    s.qr = cuda_sketched_matrix(*s.plan, context);
    s.work = DeviceBuffer<double>(context, work);
    LSMR_CHECK(cusolverDnDgeqrf(s.handle, s.rows(), s.cols(), s.qr.data(), s.rows(), s.tau.data(), s.work.data(), static_cast<int>(work), s.info.data()));
    std::vector<double> diagonal(static_cast<std::size_t>(s.plan->cols));
    LSMR_CHECK(cudaMemcpy2DAsync(diagonal.data(), sizeof(double), s.qr.data(), static_cast<std::size_t>(s.plan->rows + 1) * sizeof(double), sizeof(double),
                                 diagonal.size(), cudaMemcpyDeviceToHost, stream));
    context.synchronize();
    check_sketch_rank(diagonal);
}
CudaSketch::~CudaSketch() = default;

template <class T>
std::unique_ptr<LinearOperator<T>> CudaSketch::inverse(const std::vector<std::int32_t>& order) const {
    const State& s = *state_;
    DeviceBuffer<T> r(s.context, s.plan->cols * s.plan->cols);
    cuda::launch_upper_triangle(s.plan->cols, s.qr.data(), s.plan->rows, r.data(), s.context.stream());
    return make_cuda_inverse(s.plan->cols, std::move(r), order, s.context);
}
template std::unique_ptr<LinearOperator<double>> CudaSketch::inverse(const std::vector<std::int32_t>&) const;
template std::unique_ptr<LinearOperator<float>> CudaSketch::inverse(const std::vector<std::int32_t>&) const;

std::vector<double> CudaSketch::solve(std::span<const double> r) {
    State& s = *state_;
    const cudaStream_t stream = s.context.stream();
    std::vector<double> d(static_cast<std::size_t>(s.plan->cols));
    if (d.empty()) return d;
    const std::vector<double> sr = sketched(*s.plan, r);
    LSMR_CHECK(cudaMemcpyAsync(s.right_side.data(), sr.data(), sr.size() * sizeof(double), cudaMemcpyHostToDevice, stream));
    LSMR_CHECK(cusolverDnDormqr(s.handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_T, s.rows(), 1, s.cols(), s.qr.data(), s.rows(), s.tau.data(), s.right_side.data(),
                                s.rows(), s.work.data(), static_cast<int>(s.work.size()), s.info.data()));
    LSMR_CHECK(cublasDtrsv(s.context.cublas(), CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, s.cols(), s.qr.data(), s.rows(),
                           s.right_side.data(), 1));
    LSMR_CHECK(cudaMemcpyAsync(d.data(), s.right_side.data(), d.size() * sizeof(double), cudaMemcpyDeviceToHost, stream));
    s.context.synchronize();
    return d;
}

}  // namespace lsmr
