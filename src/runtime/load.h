// Loads checkpoints and files of weights into a run, one tensor in memory at a time, for the ranks
// of all processes.
#pragma once

#include "io/checkpoint.h"
#include "io/weights.h"
#include "runtime/run.h"

namespace weft {

// Loads parameters, optimizer state and the number of steps. Changes nothing unless all names and
// shapes agree.
Status load_run(Run& run, Checkpoint& checkpoint);
// Loads only parameters. Adapters keep their values if the source has none, and the other
// parameters if it has only adapters. So do those that match `kept`, see base/patterns.h.
Status load_weights(Run& run, Checkpoint& checkpoint, std::string_view kept = {});
Status load_weights(Run& run, const Weights& weights, std::string_view kept = {});

}  // namespace weft
