// weft worker
#include <algorithm>

#include "cli/command.h"
#include "cli/launch.h"
#include "cli/secrets.h"
#include "cli/worker.h"

namespace weft::cli {

namespace {

constexpr std::string_view kRepeats[] = {"never", "lost", "always"};  // in the order of Repeat

struct Command {
  WorkerOptions worker;
  std::string repeat = "never";
  uint32_t ranks = 0;

  Outcome run();
  Outcome take_place();
  Outcome check_join() const;
};

Outcome Command::take_place() {
  Place& place = worker.place;
  if (worker.launcher.empty()) {
    place.rank = worker.rank;
    place.rank_from = "--rank";
  } else {
    CLI_TRY(read_place(worker.launcher, place));
    if (place.rank == 0)
      return {kUsage, place.rank_from + " is 0, but a worker is not rank 0",
              "start rank 0 with 'weft train --launcher'"};
    if (worker.rank && worker.rank != place.rank)
      return {kUsage,
              "--rank is " + std::to_string(worker.rank) + ", but " + place.rank_from + " is " +
                  std::to_string(place.rank),
              ""};
    worker.rank = place.rank;
  }
  return ranks ? check_ranks(place, ranks) : Outcome();
}

Outcome Command::check_join() const {
  if (!worker.join.empty() && !worker.join_file.empty())
    return not_combined("--join", "--join-file");
  if (worker.parent > 0 && !worker.launcher.empty())
    return not_combined("--parent", "--launcher", "a launcher ends its ranks");
  if (worker.parent > 0 && worker.repeat != Repeat::never)
    return not_combined("--parent", "--repeat", "that process starts this one");
  if (worker.join_file == "-" && worker.repeat != Repeat::never)
    return not_combined("--join-file -", "--repeat: it can be read only once");
  if (permits_to_join(worker.join) && worker.repeat != Repeat::never)
    return {kUsage, "the key in --join is that of one run, which --repeat cannot use again",
            "give --key FILE, which rank 0 has too, and --join without '?key=...'"};
  if (worker.repeat != Repeat::never) CLI_TRY(check_read_again("--key", worker.key));
  if (worker.join.empty() && worker.join_file.empty() && worker.place.host.empty())
    return {kUsage, "--join or --join-file is missing", ""};
  return {};
}

Outcome Command::run() {
  const auto when =
      std::find(std::begin(kRepeats), std::end(kRepeats), repeat) - std::begin(kRepeats);
  worker.repeat = static_cast<Repeat>(when);
  CLI_TRY(take_place());
  CLI_TRY(check_join());
  Outcome outcome = serve_rank(worker);
  // Rank 0 reports the lost rank.
  if (worker.quiet && outcome.exit == kLost) outcome.text.clear();
  return outcome;
}

// The key is not repeated in a message.
std::string check_join_text(const std::string& text) { return check_endpoint(without_key(text)); }

}  // namespace

Action add_worker(Parser& parser) {
  auto command = std::make_shared<Command>();
  WorkerOptions& o = command->worker;
  parser.add("--join", o.join, "Address and key of rank 0, as rank 0 prints them")
      .type("ENDPOINT")
      .check(check_join_text);
  parser
      .add("--join-file", o.join_file,
           "File with the text for --join, which may be written later. -: standard input")
      .type("FILE");
  parser
      .add("--key", o.key,
           "File with the secret key of this machine, made by 'weft key'; rank 0 must allow its "
           "public key, or have the same key")
      .type("FILE");
  parser
      .add("--listen", o.listen,
           "Address at which the other ranks reach this one. Default: found on the route to rank 0")
      .type("ENDPOINT")
      .check(check_endpoint);
  parser
      .add("--weights", o.weights,
           "Directory whose safetensors files this rank reads itself if rank 0 loads them from the "
           "same path. Default: rank 0 sends all weights")
      .type("DIR");
  parser.add("--rank", o.rank, "The rank to run. 0: any free rank").type("N");
  parser
      .add("--ranks", command->ranks,
           "Number of ranks of the run, for a check of --rank and --launcher. 0: not checked")
      .type("P");
  parser
      .add("--launcher", o.launcher,
           "Read the rank, the number of ranks and the address of rank 0 from the variables of "
           "this launcher: auto, env, slurm, mpi or kubernetes; see weft-launch(7)")
      .type("NAME")
      .one_of(launcher_names());
  parser
      .add(
          "--repeat", command->repeat,
          "Join again after a run. never; lost: until a run ends that is not lost; always: until a "
          "signal")
      .type("WHEN")
      .one_of({std::begin(kRepeats), std::end(kRepeats)});
  parser.add("--threads", o.threads, "Compute threads").type("N").range(1, kMostThreads);
  parser
      .add("--join-timeout", o.join_timeout,
           "Time to wait for --join-file and for an answer of rank 0, in seconds")
      .type("N")
      .range(1, 4294967);
  parser
      .add("--parent", o.parent,
           "Id of the process that starts this one: if it ends before the run begins, so does this "
           "one")
      .type("PID");
  parser.add("--insecure", o.insecure, "Do not encrypt. Rank 0 requires the same option");
  parser.add("--verbose", o.verbose, "Print what happens: connections, ranks, long waits");
  parser.add("-q,--quiet", o.quiet,
             "Do not report progress and lost ranks; the exit status is the same");
  return [command] { return command->run(); };
}

}  // namespace weft::cli
