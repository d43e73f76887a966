// --plot: the history of a solve as an SVG picture, drawn by gnuplot.
#pragma once

#include <string>

namespace lsmr {

// Where the history is written that the picture is drawn from, when no --history names one: F.csv for F.svg.
std::string history_of_plot(const std::string& svg);

// Runs gnuplot on the CSV file. Throws OutputError where there is no gnuplot or it fails; the CSV file stays either way.
void plot_history(const std::string& csv, const std::string& svg);

}  // namespace lsmr
