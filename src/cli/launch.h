// Where the ranks of a run live, and how they are started.
#pragma once

#include "cli/handles.h"
#include "cli/settings.h"

namespace weft::cli {

struct LaunchOptions {
  uint32_t ranks = 1, threads = 0;
  bool in_process = false;
};

Outcome launch(const weft_plan* plan, const LaunchOptions& options, RunPtr& out);

}  // namespace weft::cli
