// Reading matrices and vectors from files. What a file is, is told by its content, never by its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/csr_matrix.hpp"

namespace lsmr {

class ByteSource;

struct ReadOptions {
    bool fortran_numbers = false;  // also accept 1.5+02 (an exponent without its letter)
    bool allow_nonfinite = false;  // keep NaN and infinities (to count them); otherwise they are an error
    // What a small file may ask for: beyond expansion_free_bytes, neither decompression nor the sizes that a header
    // declares may claim more than max_expansion_ratio (at least 1) bytes of memory or text per byte of the file.
    std::int64_t max_expansion_ratio = 1000;
    std::int64_t expansion_free_bytes = std::int64_t{1} << 30;
};

struct MatrixFile {
    CsrMatrix matrix;
    std::vector<std::string> warnings;  // each a sentence, with path:line:column where there is one
};

// A dense rows x cols array, column-major (a right-hand side, a start).
struct DenseFile {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<double> values;
    std::vector<std::string> warnings;
};

// path "-" is standard input. Matrix Market (coordinate or array), plain or gzip. Throws InputError; its kind says
// whether the content is wrong (malformed), the file cannot be opened (unreadable), or the system failed while reading
// (io).
MatrixFile read_matrix(const std::string& path, const ReadOptions& options = {});
// The same from bytes that are not a file of their own (data/byte_source.hpp).
MatrixFile read_matrix(ByteSource& source, const ReadOptions& options = {});

// A vector or an array: Matrix Market array or coordinate (densified), or plain text with one number a line ('#' or '%'
// comments). Throws InputError.
DenseFile read_dense(const std::string& path, const ReadOptions& options = {});
DenseFile read_dense(ByteSource& source, const ReadOptions& options = {});

// The right-hand side that lies beside a matrix file: for DIR/NAME.mtx[.gz] the first of DIR/NAME_b.mtx[.gz],
// DIR/NAME_rhs.mtx[.gz] that exists.
struct RhsBeside {
    std::string chosen;               // empty: none
    std::vector<std::string> others;  // those that exist too and were not chosen
};
RhsBeside find_rhs_beside(const std::string& matrix_path);

}  // namespace lsmr
