// Reads the options that a saved plan contains, and refuses options that cannot be combined with
// one.
#pragma once

#include "cli/options.h"

namespace weft::cli {

// Takes these options from the saved plan, if there is one, so that a checkpoint stores them.
// Refuses options that the plan contains.
Outcome take_plan_file(const StoredOptions& settings, PlanOptions& options,
                       OptimizerOptions& optimizer, uint64_t& steps);

}  // namespace weft::cli
