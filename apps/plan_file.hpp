// A plan: which kernels, storage and order a solve used, to use them again. Schema "lsmr_plan/1".
#pragma once

#include <string>
#include <string_view>

#include "solver/checkpoint.hpp"
#include "solver/options.hpp"
#include "solver/result.hpp"

namespace lsmr {

// Of a solve on a GPU; throws UsageError for one on the CPU, which has no choice of kernels.
std::string plan_text(const CsrMatrix& a, Precision precision, const PreparedInfo& prepared);

// Sets kernels, storage and, where none is asked for, the order in `options` as the plan says. Throws InputError, with `name`, where the text is
// not a plan, or is one of a matrix
// of another shape or of another precision.
void read_plan(std::string_view text, const std::string& name, const CsrMatrix& a, PrepareOptions& options);

// Sets the order of rows and columns as the saved solve used it, where none is asked for: what pays depends on limits, and with it the bits.
void adopt_order(const Checkpoint& checkpoint, PrepareOptions& options);
// Sets kernels, the executor and the storage of A in `options` as the saved solve used them, where nothing else is asked for: a timed choice may fall
// differently, and with it the bits. Nothing of a solve on the other kind of device.
void adopt_kernels(const Checkpoint& checkpoint, PrepareOptions& options);

}  // namespace lsmr
