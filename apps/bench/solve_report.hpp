// What `lsmr_bench solve` measures, and its report as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/operator_options.hpp"
#include "solver/options.hpp"

namespace lsmr {

// One solver on one matrix in one precision.
struct SolverMeasurement {
    std::string label;
    std::string words;
    std::string failure;  // why there are no numbers
    bool on_gpu = false;
    // Of an iteration: median, least and most of the blocks.
    double seconds = 0;
    double least_seconds = 0;
    double most_seconds = 0;
    std::int64_t iterations = 0;      // that were timed; 0: by somebody else
    std::int64_t kernels = 0;         // of an iteration; 0: unknown, or on the CPU
    std::optional<double> waits;      // for the device, an iteration
    std::optional<double> setup_seconds;
    SetupSeconds setup;               // parts of it
    std::optional<double> x_difference;  // ||x - x_ref|| / ||x_ref|| after kCheckedIterations
    // To the tolerance.
    std::optional<double> solve_seconds;
    std::int64_t solve_iterations = 0;
    double ls = 0;                    // ||A^T r|| / (||A||_F ||r||), recomputed from x in fp64
    bool reached = false;             // ||A^T r|| is at most twice the bound: estimates may differ
};

// x is compared after so many iterations: enough for every term of the recurrence, few enough for rounding not to grow.
inline constexpr std::int64_t kCheckedIterations = 20;

struct SolveTable {
    std::string matrix;  // for people
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
    Precision precision = Precision::fp64;
    double ar_bound = 0;          // what every solver is asked for; 0: not reached by ours in fp64 within the time
    double reference_ls = 0;      // that of ours in fp64
    std::vector<SolverMeasurement> solvers;
};

struct SolveBenchReport {
    std::string device;
    std::string comparison;  // the label of what ours is compared with: "textbook", "eigen"
    double gpu_copy_bytes_per_second = 0;  // 0: no GPU
    double host_copy_bytes_per_second = 0;
    std::int64_t block_iterations = 0;
    int blocks = 0;
    double tolerance = 0;
    double time_limit_seconds = 0;
    std::vector<SolveTable> tables;
};

// The least bytes of an LSMR iteration with A and A^T stored: 24 nnz + 28 m + 76 n in fp64, 16 nnz + 16 m + 40 n in fp32: values, columns
// and offsets of both, u and v read and written, v gathered once more, x, h, hbar read and written.
double least_iteration_bytes(std::int64_t rows, std::int64_t cols, std::int64_t nnz, Precision precision);

std::string solve_heading(const SolveBenchReport& report);
std::string solve_table_text(const SolveBenchReport& report, const SolveTable& table);
// Every solver against what it is compared with, over all tables: geometric mean and least.
std::string solve_summary(const SolveBenchReport& report);
// Schema "lsmr_bench_solve/1".
std::string solve_json(const SolveBenchReport& report);

}  // namespace lsmr
