// Checkpoints of a run: parameters and optimizer state by name, one tensor in memory at a time,
// whoever holds them.
#pragma once

#include <string>

#include "io/checkpoint.h"
#include "runtime/run.h"

namespace weft {

// Writes a checkpoint into the directory; the manifest's step, seed and optimizer settings are
// filled in here. Returns its path.
Result<std::string> save_run(Run& run, const std::string& directory, Manifest manifest);
// Takes parameters, optimizer state and the number of steps. Nothing is written unless all names
// and shapes agree.
Status load_run(Run& run, Checkpoint& checkpoint);
// Takes parameters alone.
Status load_weights(Run& run, Checkpoint& checkpoint);
Status load_weights(Run& run, const SafetensorsFile& file);

}  // namespace weft
