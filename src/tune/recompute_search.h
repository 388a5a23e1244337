// The choice of what `recompute` auto drops.
#pragma once

#include "partition/run_bytes.h"

namespace weft {

// Drops the activations that take the least time to recompute, so that no rank exceeds
// config.memory_limit. `first`: of the stages; `bytes`: of the schedule, with what it recomputes in
// any case. Each option is tried on the j-th segment of all ranks at the same time. The bytes of
// combinations are estimated first and then counted. The times are estimates, which are the same
// for all ranks.
Result<RunBytes::Again> fit_recompute(const PlanConfig& config, const std::vector<size_t>& first,
                                      RunBytes& bytes);

}  // namespace weft
