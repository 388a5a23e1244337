// weft worker
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/handles.h"
#include "cli/kernels.h"
#include "cli/launch.h"
#include "cli/secrets.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

struct Worker {
  std::string join, join_file, key_file, listen;
  uint32_t rank = 0, threads = 1, join_timeout = 60, parent = 0;
  bool insecure = false, quiet = false;

  Outcome run() const;
  Outcome read_keys(std::string& endpoint, std::string& key) const;
  Outcome open(MeshPtr& mesh) const;
  Outcome serve() const;
};

Outcome Worker::read_keys(std::string& endpoint, std::string& key) const {
  if (join.empty() == join_file.empty())
    return {kUsage,
            join.empty() ? "--join or --join-file is missing"
                         : "--join cannot be combined with --join-file",
            ""};
  endpoint = join;
  if (!join_file.empty()) CLI_TRY(read_secret(join_file, endpoint));
  if (!key_file.empty()) CLI_TRY(read_secret(key_file, key));
  return {};
}

Outcome Worker::open(MeshPtr& mesh) const {
  weft_error err = WEFT_ERROR_INIT;
  weft_mesh_config config = WEFT_MESH_INIT;
  std::string endpoint, key;
  CLI_TRY(read_keys(endpoint, key));
  config.endpoint = endpoint.c_str();
  config.listen = listen.empty() ? nullptr : listen.c_str();
  config.rank = rank;
  config.flags = insecure ? WEFT_MESH_INSECURE : 0;
  config.join_timeout_ms = join_timeout * 1000;
  config.key = key.empty() ? nullptr : key.c_str();
  const weft_status status = weft_mesh_join(&config, Out(mesh), &err);
  const std::string address = without_key(endpoint);
  wipe(endpoint);
  wipe(key);
  CLI_CALL(status);
  if (quiet) return {};
  warn_of_insecure("worker", address, insecure);
  warn_of_slow_kernels("worker");
  Progress(false).note("joining " + address);
  return {};
}

Outcome Worker::serve() const {
  weft_error err = WEFT_ERROR_INIT;
  weft_run_config config = WEFT_RUN_INIT;
  config.threads = threads;
  MeshPtr joined;
  CLI_TRY(open(joined));
  const CancelOnSignal cancel(joined.get());
  if (parent) cancel.watch_parent(static_cast<int>(parent));
  uint64_t told = 0;
  const weft_status served = [&] {
    const RefusalReporter refusal_reporter("worker", joined.get(), told);
    return weft_run_serve(joined.get(), nullptr, nullptr, &config, &err);
  }();
  if (served == WEFT_ECANCELED && parent_ended())
    return {kLost, "the process that started this rank has ended", ""};
  if (served < 0 && stop_signal()) return {128 + stop_signal(), quiet ? "" : "stopped", ""};
  CLI_CALL(served);
  if (!quiet) Progress(false).note("the run has ended");
  return {};
}

Outcome Worker::run() const {
  watch_signals();
  Outcome outcome = serve();
  // Rank 0 reports the lost rank.
  if (quiet && outcome.exit == kLost) outcome.text.clear();
  return outcome;
}

// The key is not repeated in a message.
std::string check_join(const std::string& text) { return check_endpoint(without_key(text)); }

}  // namespace

Action add_worker(Parser& parser) {
  auto worker = std::make_shared<Worker>();
  parser.add("--join", worker->join, "Address and key of rank 0, as rank 0 prints them")
      .type("ENDPOINT")
      .check(check_join);
  parser.add("--join-file", worker->join_file, "File with the text for --join. -: standard input")
      .type("FILE");
  parser
      .add("--key", worker->key_file,
           "File with the secret key of this machine, made by 'weft key'; rank 0 must allow its "
           "public key")
      .type("FILE");
  parser
      .add("--listen", worker->listen,
           "Address at which the other ranks reach this one. Default: found on the route to rank 0")
      .type("ENDPOINT")
      .check(check_endpoint);
  parser.add("--rank", worker->rank, "The rank to run. 0: any free rank").type("N");
  parser.add("--threads", worker->threads, "Compute threads").type("N").range(1, kMostThreads);
  parser
      .add("--join-timeout", worker->join_timeout,
           "Time to wait for the start of the run, in seconds")
      .type("N")
      .range(1, 4294967);
  parser
      .add("--parent", worker->parent,
           "Id of the process that starts this one: if it ends before the run begins, so does this "
           "one")
      .type("PID");
  parser.add("--insecure", worker->insecure, "Do not encrypt. Rank 0 requires the same option");
  parser.add("-q,--quiet", worker->quiet,
             "Do not report progress and lost ranks; the exit status is the same");
  return [worker] { return worker->run(); };
}

}  // namespace weft::cli
