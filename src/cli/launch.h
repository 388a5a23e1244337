// Where the ranks of a run live, and how they are started: threads of this process, processes that it spawns, or processes that others start
// on this machine or elsewhere.
#pragma once

#include <string>
#include <vector>

#include "cli/handles.h"
#include "cli/settings.h"

namespace weft::cli {

struct LaunchOptions {
  uint32_t ranks = 1, threads = 1;
  bool in_process = false;
  std::string listen;          // empty: a socket file of this machine
  uint32_t external = 0;       // ranks that others start
  bool insecure = false;
  uint32_t join_timeout = 60;  // seconds
  bool quiet = false;
};

void add_launch_options(CLI::App& app, LaunchOptions& options);

// The processes of a run's other ranks, and the way to them. Destroyed after the run: waits until they have left.
class Ranks {
 public:
  Ranks() = default;
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Outcome start(const weft_plan* plan, const LaunchOptions& options, RunPtr& out);
  // What the library says of a failed run, with what became of the process of that rank, if it is one of ours.
  std::string explain(const weft_event& event);

 private:
  Outcome spawn(uint32_t rank, const LaunchOptions& options);

  MeshPtr mesh_;
  std::vector<int> pids_;   // by rank; 0: not ours, or gone
};

}  // namespace weft::cli
