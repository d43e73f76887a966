// Writing results. Every write, flush, sync and close is checked.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "memory/error.hpp"
#include "operator/csr_matrix.hpp"

namespace lsmr {

// The output cannot be created (create) or writing it failed (write: disk full, EIO, ...).
class OutputError : public Error {
  public:
    enum class Kind { create, write };
    OutputError(const std::string& what, Kind kind) : Error(what), kind_(kind) {}
    Kind kind() const { return kind_; }

  private:
    Kind kind_;
};

// A file that appears whole or not at all: bytes go to a temporary file of its own in the same folder, commit() syncs
// and renames it. "-" is standard output; a FIFO, socket or device is written directly. Without commit() nothing is
// left behind.
class OutputFile {
  public:
    // Opens now, so that a bad path is known before the work is done. Throws OutputError (create).
    explicit OutputFile(const std::string& path);
    ~OutputFile();
    OutputFile(OutputFile&&) noexcept;
    OutputFile& operator=(OutputFile&&) noexcept;

    void write(std::string_view bytes);  // buffered; throws OutputError (write)
    void flush();                        // hands the buffer to the system
    void commit();                       // flush, fsync, close, rename, fsync of the folder
    const std::string& path() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// Throws OutputError (create) unless `path` can be written: not a folder, folder writable, and not the same file as any
// of `inputs`.
void check_output_path(const std::string& path, std::span<const std::string> inputs);

// Matrix Market, array real general, rows x cols values column-major; shortest digits that read back to the same
// double. Comment lines are written below the banner, each behind "% ".
void write_dense(OutputFile& file, std::int64_t rows, std::int64_t cols, std::span<const double> values,
                 std::string_view comment = {});
// Matrix Market, coordinate real general.
void write_matrix(OutputFile& file, const CsrMatrix& a, std::string_view comment = {});

}  // namespace lsmr
