// PreparedProblem: checks, the choice of the device, and the fall-backs before a solve.
#include "solver/solve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "memory/cuda_context.hpp"
#include "memory/error.hpp"
#include "operator/order.hpp"
#include "solver/cpu/host_audit.hpp"
#include "solver/engine.hpp"
#include "solver/method_choice.hpp"
#include "solver/power_of_two.hpp"
#include "solver/refine.hpp"

namespace lsmr {
namespace detail {
namespace {

// Within these bounds products of entries with vectors of norm about 1 neither overflow nor lose digits to underflow, and the scale
// is folded into the coefficients instead; beyond, the entries are scaled once, in a copy.
bool needs_scaled_copy(double max_abs) {
    constexpr int kLargest = 900;
    constexpr int kSmallest = -800;
    const int exponent = binary_exponent(max_abs);
    return max_abs > 0 && (exponent > kLargest || exponent < kSmallest);
}

}  // namespace

EngineMatrix sized(const EngineMatrix& a, const EntrySizes& entries) {
    Transform plain;
    plain.a = a.original;
    plain.max_abs = entries.max_abs;
    plain.data_frobenius = plain.claim_frobenius = entries.frobenius;
    return make_engine_matrix(a.original, plain);
}

EngineMatrix make_engine_matrix(std::shared_ptr<const CsrMatrix> original, const Transform& transform) {
    EngineMatrix m;
    m.original = std::move(original);
    m.working = transform.a;
    m.below = transform.below;
    m.column_scale = transform.column_scale;
    if (!transform.sized) {
        m.max_abs = sampled_max_abs(*m.original);
        if (needs_scaled_copy(m.max_abs)) return sized(m, entry_sizes(*m.original));
        m.sized = false;
        return m;
    }
    m.max_abs = transform.max_abs;
    if (needs_scaled_copy(m.max_abs)) {
        const int exponent = binary_exponent(m.max_abs);
        const auto scaled = [exponent](const CsrMatrix& a) {
            return std::make_shared<const CsrMatrix>(a.scaled_by_power_of_two(-exponent));
        };
        m.working = scaled(*m.working);
        if (m.below) m.below = scaled(*m.below);
        m.max_abs = PowerOfTwo(-exponent)(m.max_abs);
        m.exponent = -exponent;
    }
    // Where nothing was transformed these are the same number, to the bit.
    const bool plain = transform.a == m.original && !m.below;
    m.frobenius = plain && m.exponent == 0 ? transform.data_frobenius : frobenius_norm(*m.working, m.max_abs);
    if (m.below) m.frobenius = std::hypot(m.frobenius, frobenius_norm(*m.below, m.max_abs));
    m.claim_frobenius = plain ? m.frobenius : PowerOfTwo(m.exponent)(transform.claim_frobenius);
    m.data_frobenius = plain ? m.frobenius : PowerOfTwo(m.exponent)(transform.data_frobenius);
    return m;
}

int narrowing_exponent(const EngineMatrix& a, Precision precision) {
    return precision == Precision::fp64 ? 0 : -binary_exponent(a.max_abs);
}

bool keeps_exponent(const EngineMatrix& a, Precision precision, int exponent) {
    constexpr int kFar = 20;  // of the 126 that fp32 has: entries that are smaller by eps^2 must survive too
    return std::abs(narrowing_exponent(a, precision) - exponent) <= kFar;
}

namespace {

// The engine that options ask for, with the fall-backs that they allow: dual -> single -> CPU, each one said.
std::unique_ptr<Engine> make_engine(const EngineMatrix& a, const PrepareOptions& options, std::vector<std::string>& notes, SetupSeconds& setup) {
    const auto on_cpu = [&](const PrepareOptions& of_cpu) {
        SetupClock clock;
        const EngineMatrix& m = a.sized ? a : sized(a, entry_sizes(*a.original));
        clock.lap(setup.check);
        return make_cpu_engine(m, of_cpu);
    };
    const auto refuse_without_gpu = [&](const std::string& why) {
        if (options.executor == ExecutorKind::persistent) throw InputError("the persistent executor needs a GPU: " + why);
    };
    if (options.device == DeviceKind::cpu) {
        refuse_without_gpu("the CPU was asked for");
        return on_cpu(options);
    }
    if (options.device == DeviceKind::automatic) {
        const CudaProbe probe = probe_cuda(options.device_index);
        if (!probe.usable) {
            if (probe.built_in) notes.push_back("running on the CPU: " + probe.reason);
            if (options.spmv == SpmvKind::cusparse) throw InputError("cuSPARSE products need a GPU: " + probe.reason);
            refuse_without_gpu(probe.reason);
            return on_cpu(options);
        }
    }
    std::vector<PrepareOptions> attempts{options};
    // A forced choice is not overridden, and single storage has no fixed order on the GPU.
    if (options.storage == StorageKind::automatic && !options.deterministic && options.spmv != SpmvKind::own) {
        attempts.push_back(options);
        attempts.back().storage = StorageKind::single;
    }
    for (std::size_t i = 0; i < attempts.size(); ++i) {
        try {
            return make_cuda_engine(a, attempts[i]);
        } catch (const OutOfMemory& error) {
            const bool last = i + 1 == attempts.size();
            if (!options.allow_fallback || (last && options.device == DeviceKind::cuda)) throw;
            notes.push_back(fmt::format("{}; {}", error.what(),
                                        last ? "running on the CPU instead" : "storing A once instead (bits may vary between runs)"));
            if (last && (options.spmv == SpmvKind::cusparse || options.executor == ExecutorKind::persistent)) throw;
        }
    }
    PrepareOptions cpu = options;
    cpu.device = DeviceKind::cpu;
    return on_cpu(cpu);
}

// The damping that M allows for, beside the entries of m.working.
double scaled_damp_hint(const EngineMatrix& m, const PrepareOptions& options) {
    const double damp = options.preconditioner_damp;
    if (!(damp >= 0) || std::isinf(damp)) {
        throw InputError(fmt::format("the preconditioner's damping must be a finite number of at least 0, not {}", damp));
    }
    const double scaled = PowerOfTwo(m.exponent)(damp);
    if (std::isinf(scaled)) throw InputError(fmt::format("a damping of {} is beyond the range of doubles beside the entries of A", damp));
    return scaled;
}

void make_sketch(EngineMatrix& m, const PrepareOptions& options, std::string& note) {
    m.sketch = std::make_shared<const SketchPlan>(plan_sketch(m.working, m.below, m.column_scale,
                                                              scaled_damp_hint(m, options), options.sketch_seed,
                                                              options.preconditioner_limit_bytes));
    note = fmt::format("preconditioner: R of a sketch of {} rows, seed {}; the iteration starts from the sketch's solution",
                       m.sketch->rows, options.sketch_seed);
}

void make_cholesky(EngineMatrix& m, const PrepareOptions& options, std::string& note) {
    if (!(options.cholesky_drop >= 0 && options.cholesky_drop < 1) && options.cholesky_drop != -1) {
        throw InputError(fmt::format("the drop tolerance of the incomplete factor must be at least 0 and below 1, not {}", options.cholesky_drop));
    }
    if (!(options.cholesky_shift >= 0) || std::isinf(options.cholesky_shift)) {
        throw InputError(fmt::format("the shift of the incomplete factor must be a finite number of at least 0, not {}", options.cholesky_shift));
    }
    const IncompleteCholeskyOptions factor{options.cholesky_drop, options.cholesky_shift, options.preconditioner_limit_bytes};
    m.cholesky = std::make_shared<const IncompleteCholesky>(*m.working, m.below.get(), m.column_scale,
                                                            scaled_damp_hint(m, options), factor);
    note = fmt::format("preconditioner: incomplete Cholesky of A^T A, {}, {} entries, shift {:g} of a diagonal of 1",
                       options.cholesky_drop < 0 ? std::string("level 0") : fmt::format("entries below {:g} dropped", options.cholesky_drop),
                       m.cholesky->nnz(), m.cholesky->shift());
}

std::shared_ptr<const BlockPreconditioner> make_preconditioner(const EngineMatrix& m, const PrepareOptions& options, std::string& note) {
    if (options.preconditioner == Preconditioner::given) {
        if (!options.preconditioner_matrix) throw InputError("preconditioner: no matrix K is given");
        note = fmt::format("preconditioner: a given K, {} entries", options.preconditioner_matrix->nnz());
        return std::make_shared<const BlockPreconditioner>(
            given_preconditioner(*options.preconditioner_matrix, *m.original, m.column_scale, m.exponent));
    }
    const std::int64_t cols = m.original->cols();
    const ColumnBlocks blocks = options.preconditioner == Preconditioner::columns ? even_blocks(cols, 1)
                                : options.block_size != 0                         ? even_blocks(cols, options.block_size)
                                                                                  : detect_blocks(*m.original);
    auto p = std::make_shared<const BlockPreconditioner>(
        make_block_preconditioner(*m.working, m.below.get(), m.column_scale, scaled_damp_hint(m, options), blocks));
    note = fmt::format("preconditioner: {} blocks of A^T A, at most {} columns each, {} entries", blocks.count(), blocks.largest(),
                       p->k.nnz());
    if (p->singular > 0) note += fmt::format("; {} of them hold columns that depend on others", p->singular);
    return p;
}

void check_length(std::int64_t found, std::int64_t expected, const char* what, const CsrMatrix& a) {
    if (found != expected) throw InputError(fmt::format("solve: {} has {} entries, A is {} x {}", what, found, a.rows(), a.cols()));
}

}  // namespace
}  // namespace detail

void check_finite(std::span<const double> values, const char* what) {
    constexpr std::size_t kSerial = 1 << 16;  // below, starting threads would take longer
    bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite) if (values.size() > kSerial)
    for (std::size_t i = 0; i < values.size(); ++i) finite = finite && std::isfinite(values[i]);
    if (finite) return;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) throw InputError(fmt::format("{}: entry {} is {}, not a finite number", what, i + 1, values[i]));
    }
}

detail::EngineMatrix PreparedProblem::transform(std::shared_ptr<const CsrMatrix> a, std::span<const double> weights, SetupSeconds& setup) {
    SetupClock clock;
    PrepareOptions options = options_;
    options.weights = weights;
    transform_ = make_transform(a, options, options.preconditioner == Preconditioner::none ? Sizing::later_where_plain : Sizing::at_once);
    detail::EngineMatrix m = detail::make_engine_matrix(std::move(a), transform_);
    clock.lap(setup.check);
    preconditioner_note_.clear();
    if (options.preconditioner == Preconditioner::sketch) {
        detail::make_sketch(m, options, preconditioner_note_);
    } else if (options.preconditioner == Preconditioner::cholesky) {
        detail::make_cholesky(m, options, preconditioner_note_);
    } else if (options.preconditioner != Preconditioner::none) {
        m.preconditioner = detail::make_preconditioner(m, options, preconditioner_note_);
    }
    clock.lap(setup.preconditioner);
    // The engine has what it needs of the copies.
    transform_.a.reset();
    transform_.below.reset();
    return m;
}

void PreparedProblem::describe(const PreparedInfo& engine, const SetupSeconds& transform) {
    const double setup_seconds = info_.setup_seconds;
    const SetupSeconds before = info_.plan.setup;
    info_ = engine;
    info_.precision = options_.precision;
    info_.setup_seconds = setup_seconds;
    info_.plan.setup += before;
    info_.plan.setup += transform;
    info_.notes.insert(info_.notes.begin(), fallbacks_.begin(), fallbacks_.end());
    if (!transform_.column_scale.empty()) {
        info_.plan.notes.push_back(fmt::format("columns scaled by powers of two, from 1 to {:g}",
                                               *std::max_element(transform_.column_scale.begin(), transform_.column_scale.end())));
    }
    if (transform_.g) {
        info_.plan.notes.push_back(
            fmt::format("{} regularising rows, {} entries, as an operator of their own", transform_.g->rows(), transform_.g->nnz()));
    }
    if (!preconditioner_note_.empty()) info_.plan.notes.push_back(preconditioner_note_);
}

PreparedProblem::PreparedProblem(std::shared_ptr<const CsrMatrix> a, const PrepareOptions& options)
    : options_(options),
      weights_(options.weights.begin(), options.weights.end()),
      column_damp_(options.column_damp.begin(), options.column_damp.end()) {
    LSMR_EXPECT(a != nullptr);
    const auto start = std::chrono::steady_clock::now();
    options_.weights = weights_;
    options_.column_damp = column_damp_;
    SetupSeconds setup;
    const detail::EngineMatrix m = transform(std::move(a), options_.weights, setup);
    PrepareOptions as_made = options_;
    if (options.precision == Precision::mixed) as_made.precision = Precision::fp32;
    engine_ = detail::make_engine(m, as_made, fallbacks_, setup);
    if (options.scale == Scaling::rows || options.scale == Scaling::both) {
        fallbacks_.push_back(
            "scaled rows weigh the equations differently: where A x = b cannot be met, another x is the least-squares solution");
    }
    describe(engine_->info(), setup);
    info_.setup_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void PreparedProblem::reweight(std::span<const double> factors) {
    detail::check_length(static_cast<std::int64_t>(factors.size()), matrix().rows(), "the vector of weights", matrix());
    const auto start = std::chrono::steady_clock::now();
    std::vector<double> weights(factors.begin(), factors.end());
    for (std::size_t i = 0; i < weights_.size(); ++i) weights[i] *= weights_[i];
    SetupSeconds setup;
    engine_->update(transform(engine_->engine_matrix().original, weights, setup));
    if (wide_engine_) {
        wide_engine_->update(engine_->engine_matrix());
        setup += wide_engine_->info().plan.setup;
    }
    describe(engine_->info(), setup);
    info_.setup_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

detail::Engine& PreparedProblem::wide_engine() {
    if (options_.precision != Precision::mixed) return *engine_;
    if (!wide_engine_) {
        PrepareOptions options = options_;
        options.precision = Precision::fp64;
        if (info_.device == DeviceKind::cpu) options.device = DeviceKind::cpu;  // where the fp32 one is
        std::vector<std::string> notes;
        SetupSeconds sizing;  // none: the engine's matrix is sized
        wide_engine_ = detail::make_engine(engine_->engine_matrix(), options, notes, sizing);
        info_.notes.insert(info_.notes.end(), notes.begin(), notes.end());
    }
    return *wide_engine_;
}

PreparedProblem::~PreparedProblem() = default;
PreparedProblem::PreparedProblem(PreparedProblem&&) noexcept = default;
PreparedProblem& PreparedProblem::operator=(PreparedProblem&&) noexcept = default;

SolveIdentity PreparedProblem::identity(std::span<const double> b, std::span<const double> x0, const SolveOptions& options) const {
    const auto hash = [](std::initializer_list<std::span<const double>> parts) {
        Fingerprint f;
        for (const auto& part : parts) f.add(part.data(), static_cast<std::int64_t>(part.size()));
        return f.value();
    };
    const detail::EngineMatrix& m = engine_->engine_matrix();
    Fingerprint matrix;
    for (const CsrMatrix* part : {m.working.get(), static_cast<const CsrMatrix*>(m.below.get())}) {
        if (part == nullptr) continue;
        matrix.add(part->offsets(), part->rows() + 1);
        matrix.add(part->columns(), part->nnz());
        matrix.add(part->values(), part->nnz());
    }
    if (m.sketch) {
        matrix.add(&m.sketch->seed, 1);
        if (options_.preconditioner_damp > 0) matrix.add(&options_.preconditioner_damp, 1);
    }
    if (m.cholesky) matrix.add(m.cholesky->values().data(), m.cholesky->nnz());
    if (m.preconditioner) matrix.add(m.preconditioner->k.values(), m.preconditioner->k.nnz());
    matrix.add(m.column_scale.data(), static_cast<std::int64_t>(m.column_scale.size()));
    SolveIdentity identity;
    identity.matrix = matrix.value();
    identity.rhs = hash({b});
    identity.start = hash({x0, options.damp_center == DampCenter::given ? options.center : std::span<const double>()});
    const auto number = [](double value) { return fmt::format("{}", value); };  // the shortest that reads back
    identity.settings = {
        {"the method", name(options.method)},
        {"the preconditioner", name(options_.preconditioner)},
        {"the precision", name(info_.precision)},
        {"the device", info_.device == DeviceKind::cuda ? info_.device_name : "CPU"},
        {"the storage of A", name(info_.plan.storage)},
        {"the product with A", info_.plan.forward},
        {"the product with A^T", info_.plan.adjoint},
        {"the executor", name(info_.executor)},
        {"the order of rows and columns", fmt::format("{} {:016x}", name(info_.plan.order.kind), info_.order ? info_.order->hash() : 0)},
        {"damp", number(options.damp)},
        {"the centre of the damping", name(options.damp_center)},
        {"atol", number(options.atol)},
        {"btol", number(options.btol)},
        {"conlim", number(resolved_conlim(options, info_.precision))},
        {"the bound on ||A'r||", number(options.ar_bound)},
        {"the relative bound on ||A'r||", number(options.ar_relative)},
        {"the number of passes", std::to_string(options.passes)},
        {"the window of stagnation", std::to_string(resolved_stall_window(options, this->matrix().rows(), this->matrix().cols()))},
        {"the trust radius", number(options.trust_radius)},
        {"the window of reorthogonalisation", std::to_string(options.reorthogonalize)},
        {"variances", options.estimate_variances ? "estimated" : "not wanted"},
    };
    return identity;
}

SolveResult PreparedProblem::solve(std::span<const double> b, std::span<double> x, const SolveOptions& options, bool use_x0,
                                   Observer* observer, const Checkpoint* resume) {
    SolveOptions resolved = resolved_options(options, matrix().rows(), matrix().cols(), &matrix());
    resolved.method = choose_method(options).method;
    const bool scales_columns = !transform_.column_scale.empty();
    if (resolved.method == Method::cg && (scales_columns || transform_.changes_the_problem())) {
        throw InputError("cg solves A x = b as it is: without weights, scaling or regularising rows");
    }
    if (options.trust_radius > 0 && scales_columns) {
        throw InputError("a trust radius bounds ||x - x0||, which does not grow steadily where columns are scaled: take one of the two");
    }
    detail::check_length(static_cast<std::int64_t>(b.size()), matrix().rows(), "b", matrix());
    detail::check_length(static_cast<std::int64_t>(x.size()), matrix().cols(), "x", matrix());
    check_finite(b, "b");
    if (use_x0) check_finite(x, "x0");
    std::vector<double> right_side;
    if (transform_.changes_the_problem()) {
        const std::span<const double> center = options.damp_center == DampCenter::given ? options.center
                                               : options.damp_center == DampCenter::x0 && use_x0 ? std::span<const double>(x)
                                                                                                  : std::span<const double>();
        right_side = transform_.right_side(b, center);
        b = right_side;
    }
    detail::Resumption resumption;
    const std::span<const double> x0 = use_x0 ? std::span<const double>(x) : std::span<const double>();
    resumption.identity = [&] { return identity(b, x0, resolved); };
    resumption.from = resume;
    if (resume != nullptr) check_identity(resume->identity, resumption.identity());
    if (options_.preconditioner != Preconditioner::none) {
        if (resolved.method == Method::cg) throw InputError("cg takes no preconditioner: lsmr, lsqr and cgls do");
        if (options.trust_radius > 0) {
            throw InputError("a trust radius bounds ||x - x0||, which does not grow steadily with a preconditioner: take one of the two");
        }
    }
    if (options_.precision == Precision::mixed && resume != nullptr) throw InputError("a solve in mixed precision cannot be resumed: take fp64 or fp32");
    SolveResult result = options_.precision == Precision::mixed
                             ? detail::refine(*engine_, [this]() -> detail::Engine& { return wide_engine(); }, b, x, resolved, use_x0, observer)
                             : engine_->solve(b, {}, x, resolved, use_x0, observer, resumption);
    const std::int64_t rows = matrix().rows() + (transform_.g ? transform_.g->rows() : 0);
    if (result.converged() && resolved.damp == 0 && rows < matrix().cols()) {
        const char* which = options_.preconditioner != Preconditioner::none
                                ? "||K^-1 D^-1 (x - x0)||, of the preconditioner's metric, and not of least ||x - x0||"
                            : scales_columns ? "||D^-1 (x - x0)||, D being the column scale, and not of least ||x - x0||"
                            : use_x0         ? "||x - x0||"
                                             : "||x||";
        result.notes.push_back(fmt::format("there are fewer equations than unknowns: of all solutions, x is the one of least {}{}", which,
                                           options_.precision == Precision::mixed ? ", to the precision of fp32" : ""));
    }
    return result;
}

SolveResult PreparedProblem::solve_normal(std::span<const double> g, std::span<double> z, const SolveOptions& options, Observer* observer) {
    SolveOptions normal = options;
    normal.method = Method::cgls;
    normal.damp_center = DampCenter::zero;
    normal.atol = normal.btol = normal.ar_bound = normal.trust_radius = 0;
    normal.ar_relative = options.atol;
    normal.estimate_variances = false;
    normal.reorthogonalize = 0;
    normal = resolved_options(normal, matrix().rows(), matrix().cols(), nullptr);
    detail::check_length(static_cast<std::int64_t>(g.size()), matrix().cols(), "g", matrix());
    detail::check_length(static_cast<std::int64_t>(z.size()), matrix().cols(), "z", matrix());
    check_finite(g, "g");
    const std::int64_t rows = matrix().rows() + (transform_.g ? transform_.g->rows() : 0);
    const std::vector<double> zero(static_cast<std::size_t>(rows), 0.0);
    return wide_engine().solve(zero, g, z, normal, false, observer, {});
}

SolveResult PreparedProblem::bidiagonalize(std::span<const double> b, std::span<double> x, const SolveOptions& options, bool use_x0,
                                           Observer* observer) {
    const SolveOptions resolved = resolved_options(options, matrix().rows(), matrix().cols(), &matrix());
    detail::check_length(static_cast<std::int64_t>(b.size()), matrix().rows(), "b", matrix());
    detail::check_length(static_cast<std::int64_t>(x.size()), matrix().cols(), "x", matrix());
    check_finite(b, "b");
    if (use_x0) check_finite(x, "x0");
    const std::vector<double> right_side = transform_.right_side(b, {});
    return wide_engine().solve(right_side, {}, x, resolved, use_x0, observer, {});
}
double PreparedProblem::residual_norm(std::span<const double> b, std::span<const double> x0) const {
    detail::check_length(static_cast<std::int64_t>(b.size()), matrix().rows(), "b", matrix());
    std::vector<double> r = transform_.right_side(b, {});
    const detail::EngineMatrix& m = engine_->engine_matrix();
    if (!x0.empty()) {
        std::vector<double> z(x0.begin(), x0.end());
        for (double& value : z) value = PowerOfTwo(-m.exponent)(value);
        HostAudit(*m.working, m.below.get()).subtract_product(1.0, z.data(), r.data());
    }
    const double largest = max_abs(r.data(), static_cast<std::int64_t>(r.size()));
    double sum = 0;
    for (const double value : r) sum += largest > 0 ? (value / largest) * (value / largest) : 0;
    return largest * std::sqrt(sum);
}
void PreparedProblem::add_kept(std::span<const double> y, std::span<double> x) { wide_engine().add_kept(y, x); }
double PreparedProblem::frobenius() const {
    const detail::EngineMatrix& m = engine_->engine_matrix();
    return std::ldexp(m.data_frobenius, -m.exponent);
}

std::vector<SolveResult> PreparedProblem::solve_many(std::span<const double> b, std::span<double> x, std::int64_t k,
                                                     const SolveOptions& options, bool use_x0, Observer* observer) {
    if (k < 0) throw InputError(fmt::format("solve: {} right-hand sides", k));
    const auto rows = static_cast<std::size_t>(matrix().rows());
    const auto cols = static_cast<std::size_t>(matrix().cols());
    detail::check_length(static_cast<std::int64_t>(b.size()), matrix().rows() * k, "b", matrix());
    detail::check_length(static_cast<std::int64_t>(x.size()), matrix().cols() * k, "x", matrix());
    std::vector<SolveResult> results;
    for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
        results.push_back(solve(b.subspan(j * rows, rows), x.subspan(j * cols, cols), options, use_x0, observer));
        if (results.back().status == Status::stopped) break;  // the columns after it were not asked for any more
    }
    return results;
}

MethodChoice PreparedProblem::choose_method(const SolveOptions& options) const {
    // CG takes A as it is; rows that regularise make a least-squares problem of any A.
    const bool plain = options_.preconditioner == Preconditioner::none && transform_.column_scale.empty() && !transform_.changes_the_problem();
    const std::int64_t rows = matrix().rows() + (transform_.g ? transform_.g->rows() : 0);
    return lsmr::choose_method(options, rows, matrix().cols(), plain ? &matrix() : nullptr);
}
const CsrMatrix& PreparedProblem::matrix() const { return engine_->matrix(); }
const PreparedInfo& PreparedProblem::info() const { return info_; }
MemoryUse PreparedProblem::memory() const { return engine_->memory(); }

}  // namespace lsmr
