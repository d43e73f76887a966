// The problem as the command line describes it: A, b and the start, read or made, and checked against each other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"
#include "options.hpp"

namespace lsmr {

struct Problem {
    std::shared_ptr<const CsrMatrix> a;  // transposed already where --transpose asks for it
    MatrixSummary summary;
    std::int64_t duplicates_summed = 0;  // when A was read

    std::int64_t columns = 0;                      // of b; 0 where --check was given no b
    std::vector<double> b;                         // rows x columns, column-major
    std::string b_origin;                          // for people
    std::vector<double> x;                         // cols x columns: x0 or zero, then the solution
    std::vector<double> center;                    // cols x columns; empty where none is given
    std::vector<double> weights;                   // rows; empty where none are given
    std::vector<double> column_damp;               // cols; the same
    std::shared_ptr<const CsrMatrix> regulariser;  // null: none
    std::shared_ptr<const CsrMatrix> preconditioner;  // K; null: none is given
    std::vector<double> x_true;                    // that b was made from; empty otherwise

    std::vector<std::string> warnings;
    double read_seconds = 0;  // from opening A to its finished CSR form
};

// Puts the file that lies beside A in the place of RhsSource::Kind::beside. Returns how it was found, for people; empty
// where there was nothing to find. Throws UsageError if there is no b.
std::string resolve_rhs(CommandLine& line);

// The files that the command reads, standard input left out.
std::vector<std::string> input_paths(const CommandLine& line);

// rhs_note: from resolve_rhs(). Throws InputError, UsageError (standard input is a terminal).
Problem load_problem(const CommandLine& line, const std::string& rhs_note);

}  // namespace lsmr
