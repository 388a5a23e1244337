// The option --mesh: replicas, pipeline ranks and ranks that share a stage.
#pragma once

#include "cli/options.h"

namespace weft::cli {

void add_mesh_option(StoredOptions& settings, PlanOptions& options);

// Sets the ranks, the replicas and the default of the gradient groups from --mesh. Without --mesh,
// --ranks is the number of ranks of one replica.
// `compares`: --mesh may be auto, which leaves `data` and `shard_ranks` 0.
Outcome settle_mesh(const StoredOptions& settings, PlanOptions& options, bool compares = false);

}  // namespace weft::cli
