// The report as JSON, schema "lsmr_solve/1". Numbers that are not finite are null, and so is what a run did not come
// to.
#pragma once

#include <string>

#include "environment.hpp"
#include "options.hpp"
#include "outcome.hpp"
#include "problem.hpp"
#include "solver/solve.hpp"

namespace lsmr {

std::string solve_json(const CommandLine& line, const Problem& problem, const PreparedInfo& prepared,
                       const Outcome& outcome, const std::vector<std::string>& warnings);
// --check: the same members; those of a solve are null, and "values" describes the matrix.
std::string check_json(const CommandLine& line, const Problem& problem, const std::vector<std::string>& warnings);
// --env: schema "lsmr_env/1".
std::string environment_json(const Environment& environment);

}  // namespace lsmr
