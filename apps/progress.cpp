#include "progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lsmr {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Where the least-squares line through (x, y) crosses zero; infinity where it does not fall.
template <class Sample>
double zero_of_fit(std::span<const Sample> samples, double Sample::*y) {
    const double count = static_cast<double>(samples.size());
    double mean_x = 0;
    double mean_y = 0;
    for (const Sample& sample : samples) {
        mean_x += sample.iteration / count;
        mean_y += sample.*y / count;
    }
    double xx = 0;
    double xy = 0;
    for (const Sample& sample : samples) {
        xx += (sample.iteration - mean_x) * (sample.iteration - mean_x);
        xy += (sample.iteration - mean_x) * (sample.*y - mean_y);
    }
    const double slope = xy / xx;
    return slope < 0 ? mean_x - mean_y / slope : kNever;  // NaN slopes say never, too
}

std::string rough_duration(double seconds) {
    if (seconds < 100) return fmt::format("{:.0f} s", seconds);
    if (seconds < 6000) return fmt::format("{:.0f} min", seconds / 60);
    return fmt::format("{:.0f} h", seconds / 3600);
}

}  // namespace

void Forecast::add(const IterationRecord& record) {
    if (record.iteration <= last_.iteration) {  // the next column of b
        samples_.clear();
        stride_ = 1;
    }
    last_ = record;
    if (record.iteration % stride_ != 0) return;
    // ||r|| <= btol ||b|| + atol ||A|| ||x||  and  ||A^T r|| <= atol ||A|| ||r||, with compat = ||r|| / ||b||.
    const double b_norm = record.compat > 0 ? record.r_norm / record.compat : 0;
    const double compat_bound = options_.btol + options_.atol * record.a_norm * record.x_norm / b_norm;
    samples_.push_back({static_cast<double>(record.iteration), std::log(record.compat / compat_bound),
                        std::log(record.ls / options_.atol)});
    if (samples_.size() < kMostSamples) return;
    stride_ *= 2;
    std::erase_if(samples_,
                  [this](const Sample& sample) { return static_cast<std::int64_t>(sample.iteration) % stride_ != 0; });
}

double Forecast::seconds_left() const {
    if (last_.iteration < kFirstForecast || last_.seconds <= 0) return -1;
    // The second half: the beginning of a solve is usually faster than the rest.
    const std::span<const Sample> recent = std::span(samples_).subspan(samples_.size() / 2);
    const double end = std::min({zero_of_fit(recent, &Sample::log_compat), zero_of_fit(recent, &Sample::log_ls),
                                 static_cast<double>(options_.max_iterations)});
    const double now = static_cast<double>(last_.iteration);
    const double left = std::max(0.0, end - now) * last_.seconds / now;
    return std::min(left, std::max(0.0, options_.time_limit_seconds - last_.seconds));
}

std::string Forecast::text() const {
    std::string text = fmt::format("itn {}   compat {:.2e}   LS {:.2e}   {:.1f} s", last_.iteration, last_.compat,
                                   last_.ls, last_.seconds);
    const double left = seconds_left();
    if (left >= 0) text += fmt::format(", about {} left", rough_duration(left));
    return text;
}

}  // namespace lsmr
