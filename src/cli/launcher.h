// The place of this process among the processes that a launcher started with the same command line:
// Slurm, mpirun, Kubernetes, or a script that sets environment variables.
#pragma once

#include <string>
#include <vector>

#include "cli/outcome.h"

namespace weft::cli {

struct Place {
  uint32_t rank = 0;
  uint32_t ranks = 0;                 // 0: not known
  std::string rank_from, ranks_from;  // variables, for errors
  std::string host;                   // of rank 0; empty: not known
  uint32_t port = 4711;               // at which rank 0 listens on that host
};

// The values of --launcher.
std::vector<std::string> launcher_names();

// Reads the environment. With "auto", all launchers that have set their variables must agree.
Outcome read_place(const std::string& launcher, Place& place);

// Fails if the number of ranks differs from that of the processes.
Outcome check_ranks(const Place& place, uint32_t ranks);

// The address to dial for rank 0. The launcher must have set its host.
std::string meeting_point(const Place& place);
// The address at which rank 0 listens, to be reached there. Port 0: any free port.
std::string listening_point(const Place& place, uint32_t port);

}  // namespace weft::cli
