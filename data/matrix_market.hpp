// The text formats: Matrix Market (NIST: Boisvert, Pozo, Remington, "The Matrix Market Exchange Formats", NISTIR 5935)
// and plain numbers. The cursor stands at the start of the text; what follows the data is read too, up to the end of
// the file. Memory grows with what was read, never with what the header promised.
#pragma once

#include "data/byte_source.hpp"
#include "data/read.hpp"

namespace lsmr {

// A sparse matrix from a coordinate or an array file; symmetric kinds are expanded, duplicates summed.
MatrixFile parse_matrix_market(TextCursor& text, const ReadOptions& options);
// The same as a dense array.
DenseFile parse_matrix_market_dense(TextCursor& text, const ReadOptions& options);
// One number a line; blank lines and lines that start with '#' or '%' are skipped.
DenseFile parse_plain_numbers(TextCursor& text, const ReadOptions& options);

}  // namespace lsmr
