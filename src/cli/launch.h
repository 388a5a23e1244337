// Where the ranks of a run live, and how they are started: threads of this process, processes that
// it spawns, or processes that others start on this machine or elsewhere.
#pragma once

#include <string>
#include <vector>

#include "cli/handles.h"
#include "cli/launcher.h"
#include "cli/refusal_reporter.h"
#include "cli/stored_options.h"

namespace weft::cli {

struct LaunchOptions {
  const char* command = "";  // the name of the command, for messages
  uint32_t ranks = 1, threads = 1;
  bool in_process = false;
  std::string listen;     // empty: a socket file of this machine
  uint32_t external = 0;  // ranks that others start
  std::string launcher;   // which has started this process; empty: none
  Place place;            // with a launcher
  bool insecure = false;
  std::string key, allow, join_file;  // files
  uint32_t join_timeout = 60;         // seconds
  uint32_t peer_timeout = 5;          // seconds
  bool quiet = false;
};

// More than any machine has, and what the library takes.
inline constexpr uint32_t kMostThreads = 1024;

// For Option::check: where ranks meet.
std::string check_endpoint(const std::string& text);
bool is_wildcard(const std::string& endpoint);
// What a person may see of an endpoint with which a process joins.
std::string without_key(const std::string& endpoint);
// The note that nothing is encrypted, if that is so.
void warn_of_insecure(const char* command, const std::string& endpoint, bool insecure);
void add_launch_options(Parser& parser, LaunchOptions& options);

// With --launcher: reads the place of this process. A rank other than 0 then serves until the run
// ends, and rank 0 begins it.
Outcome take_place(LaunchOptions& options);
Outcome serve_launched(const LaunchOptions& options);
// The number of ranks of the plan. A launcher must have started as many processes.
Outcome set_ranks(LaunchOptions& options, uint32_t ranks);

// The processes of a run's other ranks, and the way to them. Destroyed after the run: waits until
// they have left.
class Ranks {
 public:
  Ranks() = default;
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Outcome start(const weft_plan* plan, const LaunchOptions& options, RunPtr& out);
  // A line about who came and was turned away, if there is something new to tell.
  std::string refused() { return refused_text(mesh_.get(), refused_); }
  // The end of a run. If a rank was lost whose process this one started, with what became of the
  // process.
  Outcome explain(Outcome outcome, const weft_run* run);

 private:
  Outcome listen(const LaunchOptions& options);
  Outcome invite(const LaunchOptions& options);
  Outcome spawn(uint32_t rank, const LaunchOptions& options);
  Outcome not_started(weft_status status, const weft_error& err);

  MeshPtr mesh_;
  std::string public_key_;  // of rank 0, if --allow says who may join
  uint64_t refused_ = 0;    // connections turned away, as told
  std::vector<int> pids_;   // by rank; 0: not ours, or gone
};

}  // namespace weft::cli
