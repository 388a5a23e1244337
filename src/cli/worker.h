// A rank of a run that another process began, and of the runs after it.
#pragma once

#include "cli/launcher.h"

namespace weft::cli {

// After which runs a worker joins again.
enum class Repeat : uint8_t { never, lost, always };

struct WorkerOptions {
  std::string join;            // address of rank 0; may contain the permission to join
  std::string join_file, key;  // files
  std::string listen;
  std::string weights;   // directory of files that rank 0 may have this rank load; empty: none
  std::string launcher;  // empty: no launcher
  Place place;
  uint32_t rank = 0, threads = 1, join_timeout = 60, parent = 0;
  Repeat repeat = Repeat::never;
  bool insecure = false, quiet = false, verbose = false;
};

// Joins, and serves until the run has ended; if it repeats, then joins the next one.
Outcome serve_rank(const WorkerOptions& options);

}  // namespace weft::cli
