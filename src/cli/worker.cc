#include "cli/worker.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "cli/console.h"
#include "cli/handles.h"
#include "cli/kernels.h"
#include "cli/launch.h"
#include "cli/secrets.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLookAgainNs = 500'000'000;  // for another join file

class Worker {
 public:
  // Joins until the deadline. `announces`: says so.
  Worker(const WorkerOptions& options, Clock::time_point deadline, bool announces)
      : o_(options), deadline_(deadline), announces_(announces && !options.quiet) {}

  Outcome serve();
  bool has_started() const { return started_; }
  bool has_another_file() const { return replaced_; }
  bool repeats(const Outcome& outcome) const;

 private:
  std::chrono::milliseconds remaining() const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }
  Outcome find_rank_zero(std::string& endpoint, std::string& key);
  weft_status join(weft_mesh_config config, MeshPtr& mesh, weft_error& err) const;
  Outcome open(MeshPtr& mesh);
  // Whether a rank 0 has written the join file since it was read.
  bool has_new_rank_zero() const;
  Outcome end_of(const weft_event& event) const;

  const WorkerOptions& o_;
  const Clock::time_point deadline_;
  const bool announces_;
  FileId join_file_;
  bool started_ = false, refused_ = false, replaced_ = false;
};

Outcome Worker::find_rank_zero(std::string& endpoint, std::string& key) {
  CLI_TRY(read_key(o_.key, !o_.launcher.empty() && !o_.insecure, key));
  if (!o_.join_file.empty()) return await_secret(o_.join_file, remaining(), endpoint, join_file_);
  endpoint = o_.join.empty() ? meeting_point(o_.place) : o_.join;
  return {};
}

// The host name of a rank 0 that a launcher has just started, or that starts again, may not be
// known.
weft_status Worker::join(weft_mesh_config config, MeshPtr& mesh, weft_error& err) const {
  for (;;) {
    config.join_timeout_ns = std::chrono::nanoseconds(remaining()).count();
    const weft_status status = weft_mesh_join(&config, Out(mesh), &err);
    const bool comes_later = !o_.launcher.empty() || o_.repeat != Repeat::never;
    const bool waits = status == WEFT_ENOENT && comes_later && Clock::now() < deadline_;
    if (!waits || stop_signal()) return status;
    usleep(200000);
  }
}

bool Worker::has_new_rank_zero() const {
  const FileId found = file_id(o_.join_file);
  return found != FileId() && found != join_file_;
}

Outcome Worker::open(MeshPtr& mesh) {
  weft_error err = sized<weft_error>();
  weft_mesh_config config = defaults(weft_mesh_config_init);
  std::string endpoint, key;
  CLI_TRY(find_rank_zero(endpoint, key));
  config.endpoint = endpoint.c_str();
  config.listen = o_.listen.empty() ? nullptr : o_.listen.c_str();
  if (o_.rank > 0) config.rank = static_cast<int32_t>(std::min<uint32_t>(o_.rank, INT32_MAX));
  config.flags = o_.insecure ? WEFT_MESH_INSECURE : 0;
  config.key = key.empty() ? nullptr : key.c_str();
  const weft_status status = join(config, mesh, err);
  const std::string address = without_key(endpoint);
  wipe(endpoint);
  wipe(key);
  CLI_CALL(status);
  if (!announces_) return {};
  warn_of_insecure("worker", address, o_.insecure);
  warn_of_slow_kernels("worker");
  Progress(false).note("joining " + address);
  return {};
}

Outcome Worker::serve() {
  weft_error err = sized<weft_error>();
  weft_run_config config = defaults(weft_run_config_init);
  config.threads = o_.threads;
  config.weights_dir = o_.weights.empty() ? nullptr : o_.weights.c_str();
  MeshPtr joined;
  CLI_TRY(open(joined));
  const SocketFiles socket(joined.get());
  CancelOnSignal cancel(joined.get());
  if (o_.parent) cancel.watch_parent(static_cast<int>(o_.parent));
  if (o_.verbose) log_to_stderr(config, "worker");
  RunPtr run;
  CLI_CALL(weft_run_join(joined.get(), nullptr, nullptr, &config, Out(run), &err));
  MeshEvents mesh_events;
  weft_event event = sized<weft_event>();
  bool has_joined = join_file_ == FileId();  // else the file may name a rank 0 that has ended
  do {
    const weft_status got = weft_run_poll(run.get(), &event, has_joined ? -1 : kLookAgainNs, &err);
    CLI_CALL(got);
    if (got == 0) {
      if (!has_new_rank_zero()) continue;
      replaced_ = true;
      return {kLost, "rank 0 has written '" + o_.join_file + "' again", ""};
    }
    has_joined = has_joined || event.kind == WEFT_EVENT_JOINED;
    if (const std::string line = mesh_events.text(event); !line.empty()) complain("worker", line);
    if (event.kind == WEFT_EVENT_STARTED) started_ = true;
    if (event.kind == WEFT_EVENT_STARTED && !o_.launcher.empty()) cancel.leave_to_rank_zero();
  } while (event.kind != WEFT_EVENT_ENDED && event.kind != WEFT_EVENT_FAILED);
  weft_failure failure = sized<weft_failure>();
  refused_ = weft_run_failure(run.get(), &failure) > 0 && failure.cause == WEFT_CAUSE_REFUSED;
  return end_of(event);
}

Outcome stopped(const WorkerOptions& options) {
  return {128 + stop_signal(), options.quiet ? "" : "stopped", ""};
}

Outcome Worker::end_of(const weft_event& event) const {
  if (event.status == WEFT_ECANCELED && parent_ended())
    return {kLost, "the process that started this rank has ended", ""};
  if (event.kind == WEFT_EVENT_FAILED) return stop_signal() ? stopped(o_) : failed(event);
  if (!o_.quiet) Progress(false).note("the run has ended");
  return {};
}

// After a lost run, rank 0 may need some time to start again, and so may other ranks.
bool Worker::repeats(const Outcome& outcome) const {
  if (stop_signal()) return false;
  if (replaced_) return true;
  if (o_.repeat == Repeat::never) return false;
  if (o_.repeat == Repeat::always) return outcome.exit != kUsage;
  return outcome.exit == kLost && !refused_ && (started_ || Clock::now() < deadline_);
}

// For comparison: times, ports and counts differ.
std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

}  // namespace

Outcome serve_rank(const WorkerOptions& options) {
  constexpr unsigned kPause = 1;  // seconds; a signal ends it
  watch_signals();
  const auto deadline_from_now = [&] {
    return Clock::now() + std::chrono::seconds(options.join_timeout);
  };
  Clock::time_point deadline = deadline_from_now();
  std::string last;
  for (bool announces = true;;) {
    Worker worker(options, deadline, announces);
    const Outcome outcome = worker.serve();
    if (!worker.repeats(outcome))  // with `always`, only a signal ends a sequence of good runs
      return outcome.ok() && options.repeat == Repeat::always ? stopped(options) : outcome;
    // While there is no rank 0, every attempt ends in the same way.
    const std::string text = without_digits(outcome.text);
    if (!options.quiet && !text.empty() && text != last)
      complain("worker", outcome.text + "; joining again");
    last = text;
    announces = worker.has_started() || worker.has_another_file();
    if (worker.has_started() || options.repeat == Repeat::always) deadline = deadline_from_now();
    sleep(kPause);
    if (stop_signal() != 0) return stopped(options);
  }
}

}  // namespace weft::cli
