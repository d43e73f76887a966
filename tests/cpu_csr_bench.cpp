// Measures the CPU's CSR products, for docs/benchmarks/cpu_csr.md: cpu_csr_bench NAME SCALE THREADS (a generator's name).
// y <- a A x + b y with ||y||^2, medians of 15 after 3 warm-ups; on one thread the thread's processor time, else wall time.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "data/generators.hpp"
#include "memory/host_buffer.hpp"
#include "operator/cpu/row_storage.hpp"

using namespace lsmr;

namespace {

double median_seconds(const std::function<void()>& f) {
    const clockid_t clock = omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const auto now = [&] {
        timespec t{};
        clock_gettime(clock, &t);
        return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
    };
    constexpr int kWarmUps = 3, kRuns = 15;
    std::vector<double> seconds;
    for (int run = 0; run < kWarmUps + kRuns; ++run) {
        const double start = now();
        f();
        if (run >= kWarmUps) seconds.push_back(now() - start);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
    return seconds[kRuns / 2];
}

// Bytes a second of a <- b + 3 c on 128 MiB each, three arrays counted.
double triad() {
    const std::int64_t n = std::int64_t{1} << 24;
    HostBuffer<double> a(n), b(n), c(n);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < n; ++i) a[i] = b[i] = c[i] = 1;
    const double seconds = median_seconds([&] {
#pragma omp parallel for schedule(static)
        for (std::int64_t i = 0; i < n; ++i) a[i] = b[i] + 3 * c[i];
    });
    return 24.0 * static_cast<double>(n) / seconds;
}

// What a product must move at least: the stored entries and offsets, x once, y twice.
template <class T>
double least_bytes(const CsrMatrix& a, bool adjoint, const std::string& words) {
    const auto rows = static_cast<double>(adjoint ? a.cols() : a.rows());
    const auto cols = static_cast<double>(adjoint ? a.rows() : a.cols());
    const bool short_columns = words.find("16-bit") != std::string::npos;
    const bool short_values = words.find("exact in fp32") != std::string::npos;
    const double value = sizeof(T);
    const double entry = (short_columns ? 2.0 : 4.0) + (short_values ? 4.0 : value);
    return static_cast<double>(a.nnz()) * entry + 8 * rows + value * (cols + 2 * rows);
}

template <class T>
void measure(const std::string& title, std::shared_ptr<const CsrMatrix> a, const cpu::Kernels<T>& kernels, double peak) {
    const auto op = cpu::make_operator<T>(a, {.storage = StorageKind::dual}, kernels);
    const auto workspace = op->make_workspace(nullptr);
    std::vector<T> row_vector(static_cast<std::size_t>(a->rows()), T(1)), col_vector(static_cast<std::size_t>(a->cols()), T(1));
    std::vector<double> sums(static_cast<std::size_t>(op->max_partials()));
    const Coefficient<T> ca{0.5, T(0.5)}, cb{-0.25, T(-0.25)};
    for (const bool adjoint : {false, true}) {
        const double seconds = median_seconds([&] {
            NormPartials norm{sums.data(), 0};
            if (adjoint) op->apply_adjoint(&ca, row_vector.data(), &cb, col_vector.data(), *workspace, &norm);
            else op->apply(&ca, col_vector.data(), &cb, row_vector.data(), *workspace, &norm);
        });
        const std::string words = adjoint ? op->plan().adjoint : op->plan().forward;
        const double rate = least_bytes<T>(*a, adjoint, words) / seconds;
        std::printf("| %s | fp%d | %s | %.2f | %.1f | %.0f %% | %s |\n", title.c_str(), static_cast<int>(8 * sizeof(T)), adjoint ? "A^T" : "A",
                    1e9 * seconds / static_cast<double>(a->nnz()), rate / 1e9, 100 * rate / peak, words.c_str());
        std::fflush(stdout);
    }
}

// The same with values that are exact in fp32.
std::shared_ptr<const CsrMatrix> with_short_values(const CsrMatrix& a) {
    HostBuffer<std::int64_t> offsets(a.rows() + 1);
    HostBuffer<std::int32_t> columns(a.nnz());
    HostBuffer<double> values(a.nnz());
    std::copy_n(a.offsets(), a.rows() + 1, offsets.begin());
    std::copy_n(a.columns(), a.nnz(), columns.begin());
    for (std::int64_t k = 0; k < a.nnz(); ++k) values[k] = static_cast<double>(static_cast<float>(a.values()[k]));
    return std::make_shared<const CsrMatrix>(
        CsrMatrix::from_csr(a.rows(), a.cols(), std::move(offsets), std::move(columns), std::move(values)));
}

template <class T>
void measure_all(const std::string& title, const std::shared_ptr<const CsrMatrix>& a, double peak) {
    using enum cpu::Narrowing;
    const cpu::InstructionSet best = cpu::best_instruction_set<T>();
    measure<T>(title, a, {cpu::InstructionSet::portable, none, 1}, peak);
    for (cpu::InstructionSet set : {cpu::InstructionSet::avx2, cpu::InstructionSet::avx512}) {
        if (set <= best) measure<T>(title, a, {set, none, 1}, peak);
    }
    measure<T>(title, a, {best, lossless, 1}, peak);
    measure<T>(title, a, {}, peak);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: cpu_csr_bench NAME SCALE THREADS\n");
        return 64;
    }
    omp_set_num_threads(std::atoi(argv[3]));
    const auto a = std::make_shared<const CsrMatrix>(generate(argv[1], {{"scale", std::atof(argv[2])}}).a);
    const double peak = triad();
    std::printf("%s: %ld x %ld, %ld nonzeros; %s threads; triad %.1f GB/s\n", argv[1], static_cast<long>(a->rows()),
                static_cast<long>(a->cols()), static_cast<long>(a->nnz()), argv[3], peak / 1e9);
    measure_all<double>(argv[1], a, peak);
    measure<double>(std::string(argv[1]) + ", fp32 values", with_short_values(*a), {}, peak);
    measure_all<float>(argv[1], a, peak);
}
