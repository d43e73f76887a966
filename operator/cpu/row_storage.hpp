// One orientation of a matrix as the CPU's products read it: chunks of rows, narrowed where nothing is lost.
//
// Products are bound by memory bandwidth, so fewer bytes an entry are time: 12 in fp64 become 10 where columns fit in 16 bits (those of
// a chunk count from its first one), 8 where all values are exact in fp32, 6 where both hold. The arithmetic stays that of T: the bits
// of a product do not change.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "memory/host_buffer.hpp"
#include "operator/cpu/csr_kernels.hpp"
#include "operator/matrix_operator.hpp"

namespace lsmr::cpu {

enum class Narrowing { none, lossless };
// Whether arrays that need no other form are read where they are, or copied as soon as one array is, so that the matrix can go.
enum class Sharing { in_place, copied };

template <class T>
class RowStorage {
  public:
    RowStorage() = default;
    // 2^exponent a, rounded to T.
    RowStorage(const CsrMatrix& a, int exponent, Narrowing narrowing, Sharing sharing);

    const std::vector<RowChunk<T>>& chunks() const { return chunks_; }
    // Whether an array of the matrix is read in place: it must outlive this.
    bool reads_matrix() const { return reads_matrix_; }
    // Of arrays of its own.
    std::int64_t bytes() const {
        return offsets_.bytes() + columns_.bytes() + short_columns_.bytes() + values_.bytes() + short_values_.bytes();
    }
    // What was narrowed: empty, or ", 16-bit columns, values exact in fp32".
    const std::string& narrowed() const { return narrowed_; }

    // Of the whole matrix, one after the other: unless they were narrowed from T.
    const T* values() const { return chunks_.empty() ? nullptr : chunks_.front().values; }

  private:
    std::vector<RowChunk<T>> chunks_;
    HostBuffer<std::int64_t> offsets_;
    HostBuffer<std::int32_t> columns_;
    HostBuffer<std::uint16_t> short_columns_;
    HostBuffer<T> values_;
    HostBuffer<float> short_values_;
    bool reads_matrix_ = true;
    std::string narrowed_;
};

// make_cpu_operator() with these in place of its own choice, for tests and measurements.
struct Kernels {
    InstructionSet set = best_instruction_set();
    Narrowing narrowing = Narrowing::lossless;
};
template <class T>
std::unique_ptr<MatrixOperator<T>> make_operator(std::shared_ptr<const CsrMatrix> a, const OperatorOptions& options, const Kernels& kernels);

}  // namespace lsmr::cpu
