// Writes checkpoints of a run: parameters and optimizer state by name, one tensor in memory at a
// time, from the ranks of all processes.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "io/manifest.h"

namespace weft {

class Run;

struct SaveRequest {
  std::string directory;
  Manifest
      manifest;  // the number of steps is set by Run::submit_save, seed and optimizer by save_run
  std::string path;  // of the complete checkpoint
};

// Writes the checkpoint. Calls `left` when all data has left the ranks. Stops with an error when
// `stop` is set.
Status save_run(Run& run, SaveRequest& request, const std::function<void()>& left,
                const std::atomic<bool>& stop);

}  // namespace weft
