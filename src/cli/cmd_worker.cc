// weft worker
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/handles.h"
#include "cli/kernels.h"
#include "cli/launch.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

struct Worker {
  std::string join, listen;
  uint32_t rank = 0, threads = 1, join_timeout = 60;
  bool insecure = false, quiet = false;

  Outcome run() const;
  Outcome serve() const;
};

Outcome Worker::serve() const {
  weft_error err = WEFT_ERROR_INIT;
  weft_mesh_config mesh = WEFT_MESH_INIT;
  mesh.endpoint = join.c_str();
  mesh.listen = listen.empty() ? nullptr : listen.c_str();
  mesh.rank = rank;
  mesh.flags = insecure ? WEFT_MESH_INSECURE : 0;
  mesh.join_timeout_ms = join_timeout * 1000;
  weft_run_config config = WEFT_RUN_INIT;
  config.threads = threads;
  MeshPtr joined;
  CLI_CALL(weft_mesh_join(&mesh, Out(joined), &err));
  if (!quiet) warn_of_slow_kernels("worker");
  if (!quiet) Progress(false).note("joining " + join);
  const CancelOnSignal cancel(joined.get());
  uint64_t told = 0;
  const weft_status served = [&] {
    const Doorkeeper doorkeeper("worker", joined.get(), told);
    return weft_run_serve(joined.get(), nullptr, nullptr, &config, &err);
  }();
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

}  // namespace

Action add_worker(Parser& parser) {
  auto worker = std::make_shared<Worker>();
  parser.add("--join", worker->join, "Address of rank 0: tcp://ADDRESS:PORT").required().type("ENDPOINT").check(check_endpoint);
  parser.add("--listen", worker->listen, "Address at which the other ranks reach this one. Default: found on the route to rank 0")
      .type("ENDPOINT")
      .check(check_endpoint);
  parser.add("--rank", worker->rank, "The rank to run. 0: any free rank").type("N");
  parser.add("--threads", worker->threads, "Compute threads").type("N").range(1, kMostThreads);
  parser.add("--join-timeout", worker->join_timeout, "Time to wait for the start of the run, in seconds").type("N").range(1, 4294967);
  parser.add("--insecure", worker->insecure, "Allow an address that is not loopback: nothing is encrypted");
  parser.add("-q,--quiet", worker->quiet, "Do not report progress and lost ranks; the exit status is the same");
  return [worker] { return worker->run(); };
}

}  // namespace weft::cli
