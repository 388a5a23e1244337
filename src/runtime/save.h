// Checkpoints of a run: parameters and optimizer state by name, one tensor in memory at a time,
// whoever holds them.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "io/checkpoint.h"

namespace weft {

class Run;

struct SaveRequest {
  std::string directory;
  Manifest
      manifest;  // the number of steps is set by Run::submit_save, seed and optimizer by save_run
  std::string path;  // of the checkpoint, once it is there
};

// Writes the checkpoint. `left` is called when everything that it needs has left the ranks; it is
// given up once `stop` is set.
Status save_run(Run& run, SaveRequest& request, const std::function<void()>& left,
                const std::atomic<bool>& stop);
// Takes parameters, optimizer state and the number of steps. Nothing is written unless all names
// and shapes agree.
Status load_run(Run& run, Checkpoint& checkpoint);
// Takes only parameters.
Status load_weights(Run& run, Checkpoint& checkpoint);
Status load_weights(Run& run, const SafetensorsFile& file);

}  // namespace weft
