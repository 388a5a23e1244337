// One of several processes that a launcher started with the same command line: rank 0 of them
// begins the run, the others are its workers.
#include <cstdlib>

#include "cli/launch.h"
#include "cli/worker.h"

namespace weft::cli {

namespace {

Outcome check_options(const LaunchOptions& o) {
  const char* const option = o.in_process       ? "--in-process"
                             : o.threads == 0   ? "--threads 0"
                             : o.external       ? "--external"
                             : !o.allow.empty() ? "--allow"
                                                : nullptr;
  return option ? not_combined(option, "--launcher") : Outcome();
}

// All ranks must derive the same address, and rank 0 must recognize its ranks.
Outcome check_meeting(const LaunchOptions& o) {
  if (!o.join_file.empty() || o.place.ranks == 1) return {};
  if (o.listen.empty() && o.place.host.empty())
    return {kUsage, "--launcher " + o.launcher + ": the address of rank 0 is not known",
            "give --join-file or --listen, or set MASTER_ADDR"};
  if (is_wildcard(o.listen) || o.listen.ends_with(":0"))
    return {kUsage, "--listen is '" + o.listen + "', expected the address and port of rank 0",
            "other ranks need them to join, unless --join-file is given"};
  const char* const set = std::getenv("WEFT_KEY");
  const bool key = !o.key.empty() || (set && *set);
  if (o.listen.starts_with("ipc://") || key || o.insecure) return {};
  return {kUsage, "the ranks have no permission to join",
          "give --join-file or --key, set WEFT_KEY, or do not encrypt (--insecure)"};
}

}  // namespace

Outcome take_place(LaunchOptions& o) {
  if (o.launcher.empty()) return {};
  CLI_TRY(check_options(o));
  CLI_TRY(read_place(o.launcher, o.place));
  return check_meeting(o);
}

Outcome serve_launched(const LaunchOptions& o, const std::string& weights) {
  WorkerOptions worker;
  worker.join = o.listen;
  worker.join_file = o.join_file;
  worker.key = o.key;
  worker.launcher = o.launcher;
  worker.weights = weights;
  worker.place = o.place;
  worker.rank = o.place.rank;
  worker.threads = o.threads;
  worker.join_timeout = o.join_timeout;
  worker.repeat = o.restarts > 0 ? Repeat::lost : Repeat::never;
  worker.insecure = o.insecure;
  worker.quiet = true;
  worker.verbose = o.verbose;
  Outcome outcome = serve_rank(worker);
  if (!outcome.text.empty())
    outcome.text = "rank " + std::to_string(worker.rank) + ": " + outcome.text;
  return outcome;
}

Outcome set_ranks(LaunchOptions& o, uint32_t ranks) {
  o.ranks = ranks;
  if (o.launcher.empty()) return check_launch(o);
  CLI_TRY(check_ranks(o.place, ranks));
  if (!o.place.ranks && ranks == 1)
    return {kUsage, o.place.rank_from + " is set, but the number of ranks is not known",
            "give --ranks or set WORLD_SIZE"};
  o.external = ranks - 1;
  if (o.external && o.listen.empty())
    o.listen = listening_point(o.place, o.join_file.empty() ? o.place.port : 0);
  return check_launch(o);
}

Outcome settle_ranks(const StoredOptions& settings, PlanOptions& plan, LaunchOptions& o) {
  if (o.place.ranks && !settings.given("ranks") && !settings.given("mesh"))
    plan.ranks = o.place.ranks;
  CLI_TRY(settle_mesh(settings, plan));
  return set_ranks(o, plan.ranks);
}

}  // namespace weft::cli
