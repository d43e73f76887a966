// --history: every iteration as a row of a CSV file, written as the solve goes on, so that it can be followed (tail -f)
// and outlives an interrupted run.
#pragma once

#include <span>
#include <string>

#include "solver/result.hpp"

namespace lsmr {

class HistoryFile {
  public:
    // Opens (and empties) the file and writes the header line; "-" is standard output. Throws OutputError.
    explicit HistoryFile(const std::string& path);
    ~HistoryFile();
    HistoryFile(const HistoryFile&) = delete;
    HistoryFile& operator=(const HistoryFile&) = delete;

    // One row each, handed to the system at once. A failed write is remembered, and no more is written: the solve is
    // worth more than its history. Values that are not finite stay empty.
    void add(std::span<const IterationRecord> records) noexcept;

    // Syncs and closes. Throws OutputError if this or any write failed.
    void finish();

  private:
    void write(const std::string& bytes) noexcept;
    std::string path_;
    int descriptor_ = -1;
    int error_ = 0;  // errno of the first failure
};

}  // namespace lsmr
