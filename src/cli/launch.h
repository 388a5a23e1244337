// How the ranks of a run are started: as threads of this process, as processes that it starts, or
// as processes that others start on this machine or elsewhere.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/handles.h"
#include "cli/launcher.h"
#include "cli/mesh_events.h"
#include "cli/mesh_option.h"
#include "cli/signals.h"

namespace weft::cli {

struct LaunchOptions {
  const char* command = "";  // the name of the command, for messages
  uint32_t ranks = 1, threads = 1;
  bool in_process = false;
  std::string listen;     // empty: a socket file of this machine
  uint32_t external = 0;  // ranks that are started elsewhere
  uint32_t restarts = 0;  // of the run, after a rank is lost
  std::string launcher;   // that has started this process; empty: none
  Place place;            // with a launcher
  bool insecure = false;
  std::string key, allow, join_file;  // files
  uint32_t join_timeout = 60;         // seconds
  uint32_t peer_timeout = 5;          // seconds
  bool quiet = false, verbose = false;
};

// The largest number that the library accepts.
inline constexpr uint32_t kMostThreads = 1024;

// For Option::check: an address of rank 0.
std::string check_endpoint(const std::string& text);
bool is_wildcard(const std::string& endpoint);
// The part of an endpoint for joining that may be shown to a person.
std::string without_key(const std::string& endpoint);
// Whether the endpoint contains the permission to join the run of one start.
bool permits_to_join(const std::string& endpoint);
// The note that nothing is encrypted, if --insecure is given.
void warn_of_insecure(const char* command, const std::string& endpoint, bool insecure);
void add_launch_options(Parser& parser, LaunchOptions& options);
// Of a command that runs a stored model: also --ranks, --mesh and --threads. `same`: what they do
// not affect.
void add_rank_options(Parser& parser, StoredOptions& settings, PlanOptions& plan,
                      LaunchOptions& options, const std::string& same);

// With --launcher: reads the place of this process. A rank other than 0 then serves until the run
// ends, and rank 0 begins it. `weights`: the file or directory that the command line names.
Outcome take_place(LaunchOptions& options);
Outcome serve_launched(const LaunchOptions& options, const std::string& weights);
// Refuses options that contradict each other or the number of ranks.
Outcome check_launch(const LaunchOptions& options);
// Sets the number of ranks and checks the options before a log is replaced or a rank started, and
// that a launcher has started as many processes as the plan has ranks.
Outcome set_ranks(LaunchOptions& options, uint32_t ranks);
// For add_rank_options(): sets the ranks and the mesh of the plan, too. Without --ranks and --mesh,
// the processes of a launcher are the ranks.
Outcome settle_ranks(const StoredOptions& settings, PlanOptions& plan, LaunchOptions& options);

// The processes of a run's other ranks, and the mesh. Must be destroyed after the run; the
// destructor waits until they have ended.
class Ranks {
 public:
  Ranks() = default;
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Outcome start(const weft_plan* plan, const LaunchOptions& options, RunPtr& out);
  // A line about a process that was refused, or an empty string.
  std::string text(const weft_event& event) { return mesh_events_.text(event); }
  // Adds to the outcome of a failed run how the process of a lost rank ended, if this process
  // started it.
  Outcome explain(Outcome outcome, const weft_run* run);

 private:
  Outcome listen(const LaunchOptions& options);
  Outcome invite(const LaunchOptions& options);
  Outcome spawn(uint32_t rank, const LaunchOptions& options);
  Outcome wait_for_start(const char* command, weft_run* run);
  Outcome not_started(Outcome outcome, weft_status status);

  MeshPtr mesh_;
  std::optional<SocketFiles> socket_;
  std::string public_key_;  // of rank 0, if it admits the keys of --allow
  MeshEvents mesh_events_;
  std::vector<int> pids_;  // by rank; 0: not started here, or ended
};

}  // namespace weft::cli
