// Standard error: messages by level, and one rewritten line of progress. Nothing here writes to standard output.
#pragma once

#include <string_view>

#include "options.hpp"

namespace lsmr {

class Console {
  public:
    Console(Talk talk, ProgressMode progress, const char* program = "lsmr_solve");

    void error(std::string_view text);    // "PROGRAM: error: ...", unless silent
    void warning(std::string_view text);  // "warning: ...", unless -q
    void line(std::string_view text);     // unless -q
    void detail(std::string_view text);   // with -v

    bool shows_lines() const { return talk_ >= Talk::normal; }
    bool shows_details() const { return talk_ >= Talk::verbose; }
    bool shows_progress() const { return shows_progress_; }
    void progress(std::string_view text);  // overwrites the line of progress
    void clear_progress();

  private:
    void write(std::string_view text);

    Talk talk_;
    const char* program_;
    bool shows_progress_;
    bool progress_is_visible_ = false;
};

}  // namespace lsmr
