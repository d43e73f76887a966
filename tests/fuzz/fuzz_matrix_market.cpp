// libFuzzer target for the text readers, gzip included. Bytes are read as a matrix and as a dense array, strictly and
// with every leniency; what is accepted must be what the kernels rely on, and both readings must agree.
//
//   clang++-14 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -DFMT_HEADER_ONLY -I. -Wno-unknown-pragmas
//     -idirafter "$(dirname "$(g++ -print-file-name=include/omp.h)")" -o fuzz_matrix_market
//     tests/fuzz/fuzz_matrix_market.cpp data/byte_source.cpp data/matrix_market.cpp data/read.cpp
//     operator/csr_matrix.cpp memory/error.cpp memory/host_buffer.cpp -lz -lgomp
//   ./fuzz_matrix_market -runs=1000000 -max_len=4096 NEW_CORPUS tests/fuzz/corpus
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "data/byte_source.hpp"
#include "data/read.hpp"
#include "memory/error.hpp"

using namespace lsmr;

namespace {

void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
}

bool printable(const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

template <class Read>
auto read_or_refuse(std::string_view bytes, const ReadOptions& options, Read read)
    -> std::optional<decltype(read(std::declval<ByteSource&>(), options))> {
    try {
        ByteSource source = ByteSource::from_memory(bytes, "input", options);
        auto file = read(source, options);
        for (const std::string& warning : file.warnings) require(printable(warning), "warnings are printable");
        return file;
    } catch (const InputError& error) {
        require(printable(error.what()), "messages are printable");
        require(error.line() > 0 && error.column() > 0, "errors have a position");
        return std::nullopt;
    }
}

void check_matrix(const CsrMatrix& a, const ReadOptions& options) {
    require(a.rows() >= 0 && a.cols() >= 0 && a.offsets()[0] == 0, "shape");
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        require(a.offsets()[i] <= a.offsets()[i + 1], "offsets ascend");
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            require(a.columns()[k] >= 0 && a.columns()[k] < a.cols(), "columns are in range");
            require(k == a.offsets()[i] || a.columns()[k - 1] < a.columns()[k], "columns ascend");
            // A sum of duplicates may overflow, a single value may not.
            require(std::isfinite(a.values()[k]) || options.allow_nonfinite || a.duplicates_summed() > 0,
                    "values are finite");
        }
    }
}

void check_agreement(const CsrMatrix& a, const DenseFile& dense) {
    require(a.rows() == dense.rows && a.cols() == dense.cols, "shapes agree");
    for (std::int64_t i = 0; i < a.rows(); ++i) {
        for (std::int64_t k = a.offsets()[i]; k < a.offsets()[i + 1]; ++k) {
            const double value = dense.values[static_cast<std::size_t>(a.columns()[k] * a.rows() + i)];
            require(value == a.values()[k] || (std::isnan(value) && std::isnan(a.values()[k])), "values agree");
        }
    }
}

void check(std::string_view bytes, const ReadOptions& options) {
    const auto matrix =
        read_or_refuse(bytes, options, [](auto& source, const auto& o) { return read_matrix(source, o); });
    const auto dense =
        read_or_refuse(bytes, options, [](auto& source, const auto& o) { return read_dense(source, o); });
    if (dense) {
        require(static_cast<std::int64_t>(dense->values.size()) == dense->rows * dense->cols, "a dense array is whole");
    }
    if (!matrix) return;
    check_matrix(matrix->matrix, options);
    if (dense) check_agreement(matrix->matrix, *dense);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    ReadOptions options;
    options.expansion_free_bytes = 1 << 18;  // small, so that headers that lie cost no time
    options.max_expansion_ratio = 100;
    check(bytes, options);
    options.fortran_numbers = true;
    options.allow_nonfinite = true;
    check(bytes, options);
    return 0;
}
