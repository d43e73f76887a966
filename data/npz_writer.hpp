// NumPy's and SciPy's files: what numpy.load and scipy.sparse.load_npz read.
#pragma once

#include <cstdint>
#include <span>

#include "data/write.hpp"
#include "operator/csr_matrix.hpp"

namespace lsmr {

// Sizes and offsets from here on need zip64 records.
inline constexpr std::uint64_t kZip32Limit = 0xFFFFFFFF;

// A CSR matrix as scipy.sparse.save_npz writes it: a zip archive of arrays, stored uncompressed. zip64_from is smaller
// in tests. Throws OutputError.
void write_npz(OutputFile& file, const CsrMatrix& a, std::uint64_t zip64_from = kZip32Limit);

// A one-dimensional array of doubles. Throws OutputError.
void write_npy(OutputFile& file, std::span<const double> values);

}  // namespace lsmr
