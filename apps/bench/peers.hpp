// Other solvers, timed on the same matrices by a command such as scripts/peers.py.
#pragma once

#include <string>

#include "operator/csr_matrix.hpp"
#include "solve_report.hpp"

namespace lsmr {

// Rows of a matrix's tables by `command`, which a shell runs with a file of A (scipy.sparse.load_npz) behind it. Each line that it prints
// is a JSON object: engine, dtype (f64 or f32), rows, cols, nnz, seconds_per_iteration, spread. The file is removed.
class Peers {
  public:
    // Throws InputError that names the command: it failed, or a line is none of that, or of another matrix.
    Peers(const std::string& command, const CsrMatrix& a);
    void add_to(SolveTable& table) const;

  private:
    struct Record {
        Precision precision;
        SolverMeasurement row;
    };
    std::vector<Record> records_;
};

}  // namespace lsmr
