// Measurements of other solvers, made by scripts/peers.py on the same matrices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "solve_report.hpp"

namespace lsmr {

struct PeerRecord {
    std::string engine;
    Precision precision = Precision::fp64;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t nnz = 0;
    SolverMeasurement row;
    bool used = false;
};

// One JSON object a line. Throws InputError that names file and line.
std::vector<PeerRecord> read_peers(const std::string& path);
// Adds the rows that belong to the table, by its sizes and precision.
void add_peers(std::vector<PeerRecord>& peers, SolveTable& table);

}  // namespace lsmr
