// The place of this process among those that a launcher started with the same command line: Slurm,
// mpirun, Kubernetes, or a script that sets variables of the environment.
#pragma once

#include <string>
#include <vector>

#include "cli/outcome.h"

namespace weft::cli {

struct Place {
  uint32_t rank = 0;
  uint32_t ranks = 0;                 // 0: the launcher does not say
  std::string rank_from, ranks_from;  // variables, for errors
  std::string host;                   // of rank 0; empty: the launcher does not say
  uint32_t port = 4711;               // at which rank 0 listens there
};

// The values of --launcher.
std::vector<std::string> launcher_names();

// Reads the environment. With "auto", all launchers that have set their variables must agree.
Outcome read_place(const std::string& launcher, Place& place);

// Refuses another number of ranks than that of the processes.
Outcome check_ranks(const Place& place, uint32_t ranks);

// Where others dial rank 0. The launcher must say on which host it is.
std::string meeting_point(const Place& place);
// Where rank 0 listens so that it is reached there. With port 0 any port is free to choose.
std::string listening_point(const Place& place, uint32_t port);

}  // namespace weft::cli
