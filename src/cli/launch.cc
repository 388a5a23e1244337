#include "cli/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "cli/console.h"
#include "cli/files.h"
#include "cli/secrets.h"

extern char** environ;

namespace weft::cli {

namespace {

using Clock = std::chrono::steady_clock;

// Waits for a child for at most that time; false if it still runs. Asks again and again, because
// old systems and some containers have no descriptor of a process to wait for.
bool wait_for(int pid, int milliseconds, int& status) {
  constexpr int kPauseMs = 2;
  const auto until = Clock::now() + std::chrono::milliseconds(milliseconds);
  for (;;) {
    if (const int ended = waitpid(pid, &status, WNOHANG); ended != 0) return ended == pid;
    if (Clock::now() >= until) return false;
    poll(nullptr, 0, kPauseMs);
  }
}

// Each start must have the address of the one before, and admit the same workers.
Outcome check_restarts(const LaunchOptions& o) {
  if (o.restarts == 0) return {};
  CLI_TRY(check_read_again("--key", o.key));
  const bool elsewhere = o.external && o.launcher.empty() && o.listen.starts_with("tcp://");
  if (!elsewhere || !o.join_file.empty()) return {};
  if (o.key.empty() && !o.insecure)
    return {kUsage,
            "--restarts with --external requires --join-file or --key: otherwise each start has "
            "new keys, and the workers of the last one cannot join",
            "for example: --key FILE here, and 'weft worker --key FILE --repeat lost'"};
  if (o.listen.ends_with(":0"))
    return {kUsage,
            "--listen is '" + o.listen + "', expected a port, at which workers join each start",
            ""};
  return {};
}

std::string text_of(const weft_failure& failure) {
  std::string text(weft_failure_text(&failure, nullptr, 0), '\0');
  weft_failure_text(&failure, text.data(), text.size());
  text.pop_back();  // the NUL
  return text;
}

std::string end_of(int status) {
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Outcome check_launch(const LaunchOptions& o) {
  const auto number = [](uint32_t n) { return std::to_string(n); };
  if (o.external >= o.ranks && o.external > 0)
    return {kUsage,
            "--external is " + number(o.external) + ", expected at most " + number(o.ranks - 1) +
                ", because rank 0 is this process",
            ""};
  const std::pair<const char*, bool> of_links[] = {{"--external", o.external > 0},
                                                   {"--listen", !o.listen.empty()},
                                                   {"--key", !o.key.empty()},
                                                   {"--allow", !o.allow.empty()},
                                                   {"--insecure", o.insecure}};
  for (const auto& [name, given] : of_links)
    if (given && (o.in_process || o.threads == 0))
      return not_combined(o.in_process ? "--in-process" : "--threads 0",
                          std::string(name) + ": all ranks run in this process");
  const std::pair<const char*, bool> of_joining[] = {{"--join-file", !o.join_file.empty()},
                                                     {"--key", !o.key.empty()},
                                                     {"--allow", !o.allow.empty()}};
  for (const auto& [name, given] : of_joining)
    if (given && !o.external && o.launcher.empty())
      return {kUsage,
              std::string(name) + " requires --external or --launcher: no other process joins", ""};
  CLI_TRY(check_restarts(o));
  // The ranks of this machine listen at the address of rank 0, which ranks of other machines must
  // be able to reach.
  if (o.external && o.ranks - o.external > 1 && is_wildcard(o.listen))
    return {kUsage,
            "--listen is '" + o.listen +
                "', expected one address of this machine, at which ranks of other machines reach "
                "the ranks here",
            "for example: --listen tcp://192.0.2.1:5555"};
  return {};
}

std::string check_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  const bool tcp = text.starts_with("tcp://") && colon > 6 &&
                   read_value(text.substr(colon + 1), &port) && port <= 65535;
  if (tcp || text.starts_with("ipc://")) return "";
  if (const std::string address = without_key(text); address != text)
    return "'" + address +
           "?...', expected an address without a key, which is for weft worker --join";
  return "'" + text + "', expected tcp://ADDRESS:PORT with a PORT of at most 65535";
}

bool is_wildcard(const std::string& endpoint) {
  const std::string_view host = std::string_view(endpoint).substr(0, endpoint.rfind(':'));
  return host == "tcp://*" || host == "tcp://0.0.0.0" || host == "tcp://[::]";
}

std::string without_key(const std::string& endpoint) {
  return endpoint.starts_with("ipc://") ? endpoint : endpoint.substr(0, endpoint.find('?'));
}

bool permits_to_join(const std::string& endpoint) {
  constexpr std::string_view kKey = "?key=";
  const size_t at = endpoint.find(kKey);
  // Two keys: the public one of rank 0, and the permission.
  return at != std::string::npos && endpoint.size() - at - kKey.size() >= WEFT_KEY_SIZE;
}

void warn_of_insecure(const char* command, const std::string& endpoint, bool insecure) {
  if (insecure && endpoint.starts_with("tcp://"))
    complain(command,
             "nothing is encrypted (--insecure): any process that reaches the address can join, "
             "read and change the run");
}

void add_launch_options(Parser& parser, LaunchOptions& o) {
  parser.section("Processes and machines");
  parser.add("--in-process", o.in_process, "Run all ranks in this process, on threads");
  parser
      .add("--listen", o.listen,
           "Address at which ranks of other machines join: tcp://ADDRESS:PORT")
      .type("ENDPOINT")
      .check(check_endpoint);
  parser
      .add("--external", o.external,
           "Number of ranks that are started elsewhere with 'weft worker'; they are the last ranks")
      .type("N");
  parser
      .add("--launcher", o.launcher,
           "The command is started once for each rank, by this launcher: auto, env, slurm, mpi or "
           "kubernetes; see weft-launch(7)")
      .type("NAME")
      .one_of(launcher_names());
  parser
      .add("--join-file", o.join_file,
           "Write the line with which other ranks join to this file, for 'weft worker --join-file'")
      .type("FILE");
  parser
      .add("--key", o.key,
           "File with the secret key of this machine, made by 'weft key'. Default: a new key for "
           "this run")
      .type("FILE");
  parser.add("--allow", o.allow, "File with the public keys of machines that may join")
      .type("FILE");
  parser.add(
      "--insecure", o.insecure,
      "Do not encrypt: any process that reaches the address can join, read and change the run");
  parser.add("--verbose", o.verbose,
             "Print what happens: connections, ranks, checkpoints, long waits");
  parser.add("--join-timeout", o.join_timeout, "Time to wait for the other ranks, in seconds")
      .type("N")
      .range(1, 4294967);
  parser
      .add("--peer-timeout", o.peer_timeout,
           "Time after which a rank that sends nothing is lost, in seconds")
      .type("N")
      .range(1, 4294967);
}

void add_rank_options(Parser& parser, StoredOptions& settings, PlanOptions& plan, LaunchOptions& o,
                      const std::string& same) {
  parser.section("Processes and machines");
  settings
      .add("--ranks,--stages", plan.ranks, "Number of pipeline ranks; does not affect the " + same)
      .type("P")
      .range(1, kMostRanks);
  add_mesh_option(settings, plan);
  parser
      .add("--threads", o.threads,
           "Compute threads per rank. 0: all ranks in turn on one thread of this process")
      .type("N")
      .range(0, kMostThreads);
  add_launch_options(parser, o);
}

Outcome Ranks::start(const weft_plan* plan, const LaunchOptions& options, RunPtr& out) {
  weft_error err = sized<weft_error>();
  weft_run_config config = defaults(weft_run_config_init);
  config.threads = options.threads;
  if (options.verbose) log_to_stderr(config, options.command);
  if (options.in_process || options.threads == 0 ||
      (options.ranks == 1 && options.listen.empty())) {
    CLI_CALL(weft_run_start(plan, nullptr, &config, Out(out), &err));
    return {};
  }
  CLI_TRY(listen(options));
  socket_.emplace(mesh_.get());
  CancelOnSignal cancel(mesh_.get());
  pids_.assign(options.ranks, 0);
  for (uint32_t rank = 1; rank < options.ranks - options.external; ++rank)
    CLI_TRY(spawn(rank, options));
  cancel.watch(pids_);
  if (options.external) CLI_TRY(invite(options));
  const FileToRemove join_file(options.external ? options.join_file : "");
  config.flags = WEFT_RUN_NOWAIT;
  RunPtr run;
  CLI_CALL(weft_run_start(plan, mesh_.get(), &config, Out(run), &err));
  CLI_TRY(wait_for_start(options.command, run.get()));
  out = std::move(run);
  return {};
}

Outcome Ranks::wait_for_start(const char* command, weft_run* run) {
  weft_error err = sized<weft_error>();
  for (;;) {
    weft_event event = sized<weft_event>();
    CLI_CALL(weft_run_poll(run, &event, -1, &err));
    if (const std::string line = text(event); !line.empty()) complain(command, line);
    if (event.kind == WEFT_EVENT_STARTED) return {};
    if (event.kind == WEFT_EVENT_FAILED) return not_started(failed(event), event.status);
  }
}

Outcome Ranks::listen(const LaunchOptions& options) {
  weft_error err = sized<weft_error>();
  weft_mesh_config mesh = defaults(weft_mesh_config_init);
  std::string key, allow;
  CLI_TRY(read_key(options.key, !options.launcher.empty() && !options.insecure, key));
  constexpr size_t kMostKeys = size_t{16} << 20;  // bytes
  if (!options.allow.empty()) CLI_TRY(read_text(options.allow, kMostKeys, allow));
  if (key.empty() && !options.allow.empty()) {
    char made[WEFT_KEY_SIZE];
    CLI_CALL(weft_key_new(made, &err));
    key = made;
  }
  mesh.endpoint = options.listen.empty() ? nullptr : options.listen.c_str();
  mesh.flags = options.insecure ? WEFT_MESH_INSECURE : 0;
  mesh.join_timeout_ns = options.join_timeout * kSecond;
  mesh.peer_timeout_ns = options.peer_timeout * kSecond;
  mesh.key = key.empty() ? nullptr : key.c_str();
  mesh.allow = options.allow.empty() ? nullptr : allow.c_str();
  const weft_status status = weft_mesh_listen(&mesh, Out(mesh_), &err);
  char public_key[WEFT_KEY_SIZE] = "";
  if (status >= 0 && !options.allow.empty())
    CLI_CALL(weft_key_public(key.c_str(), public_key, &err));
  public_key_ = public_key;
  wipe(key);
  if (status < 0) return about_file(failed(status, err), options.allow, {"line "});
  warn_of_insecure(options.command, options.listen, options.insecure);
  return {};
}

// Prints the command line with which ranks that are started elsewhere join. If it contains the only
// key, --quiet does not omit it.
Outcome Ranks::invite(const LaunchOptions& options) {
  const std::string join = weft_mesh_join_endpoint(mesh_.get()),
                    address = weft_mesh_endpoint(mesh_.get());
  std::string how = "--join " + shell_word(join);
  bool needed = options.listen.starts_with("tcp://") && !options.insecure;
  if (!options.join_file.empty()) {
    CLI_TRY(write_secret(options.join_file, join, true));
    how = "--join-file " + shell_word(options.join_file);
    needed = false;
  } else if (!public_key_.empty()) {
    how = "--key FILE --join " + shell_word(address + "?key=" + public_key_);
    needed = options.key.empty();
  } else if (options.restarts > 0 && needed) {  // another start has another permission
    how = "--key FILE --join " + shell_word(address);
    needed = false;
  }
  if (options.insecure) how += " --insecure";
  if (options.restarts > 0) how += " --repeat lost";
  std::string line = "weft worker " + how;
  if (!options.launcher.empty()) line.clear();  // all ranks already have it
  if ((needed && !line.empty()) || !options.quiet)
    Progress(false).note("waiting for " + std::to_string(options.external) +
                         (options.external > 1 ? " ranks" : " rank") +
                         (line.empty() ? "" : ": " + line));
  return {};
}

Outcome Ranks::not_started(Outcome outcome, weft_status status) {
  if (stop_signal()) return {128 + stop_signal(), "stopped before all ranks had joined", ""};
  std::string gone;
  for (size_t rank = 1; rank < pids_.size(); ++rank)
    if (int ended = 0; pids_[rank] && wait_for(pids_[rank], 0, ended)) {
      pids_[rank] = 0;
      gone += (gone.empty() ? "rank " : "; rank ") + std::to_string(rank) + " " + end_of(ended);
    }
  if (status == WEFT_ECANCELED && !gone.empty())
    outcome.text = gone + " before all ranks had joined";
  else if (!gone.empty())
    outcome.text += "; " + gone;
  return outcome;
}

// In a separate process group, so that Ctrl-C reaches only rank 0, which ends the step and then the
// run.
Outcome Ranks::spawn(uint32_t rank, const LaunchOptions& options) {
  // The permission to join is passed through a pipe: all users of this machine can read the
  // arguments of a command. The rank may read all files, because rank 0 is the same user.
  std::vector<std::string> words = {"weft",           "worker",
                                    "--join-file",    "-",
                                    "--rank",         std::to_string(rank),
                                    "--threads",      std::to_string(options.threads),
                                    "--join-timeout", std::to_string(options.join_timeout),
                                    "--parent",       std::to_string(getpid()),
                                    "--weights",      "/",
                                    "--quiet"};
  if (options.insecure) words.push_back("--insecure");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe_ends[2];
  std::string line = weft_mesh_join_endpoint(mesh_.get()) + std::string("\n");
  if (pipe2(pipe_ends, O_CLOEXEC) != 0)
    return {kResource, "cannot start rank " + std::to_string(rank) + ": " + reason(errno), ""};
  const ssize_t written =
      write(pipe_ends[1], line.data(), line.size());  // shorter than the buffer of a pipe
  wipe(line);
  close(pipe_ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[0], STDIN_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = written < 0 ? EIO
                                : posix_spawn(&pids_[rank], "/proc/self/exe", &actions, &attributes,
                                              argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[0]);
  if (error == 0) return {};
  pids_[rank] = 0;
  return {kResource, "cannot start rank " + std::to_string(rank) + ": " + std::strerror(error), ""};
}

Outcome Ranks::explain(Outcome outcome, const weft_run* run) {
  weft_failure failure = sized<weft_failure>();
  if (outcome.exit != kLost || !run || weft_run_failure(run, &failure) <= 0) return outcome;
  const bool lost = failure.status == WEFT_EPEER && failure.other < 0 &&
                    failure.cause >= WEFT_CAUSE_CLOSED && failure.cause <= WEFT_CAUSE_UNREACHABLE;
  const auto rank = static_cast<size_t>(failure.rank);
  if (!lost || rank >= pids_.size() || !pids_[rank]) return outcome;
  // The exit status of a process is a better reason than its closed connection; it may be available
  // a moment later.
  int ended = 0;
  if (!wait_for(pids_[rank], 200, ended)) {
    kill(pids_[rank], SIGKILL);  // stopped or stuck: it would not exit
    return outcome;
  }
  pids_[rank] = 0;
  const std::string told = text_of(failure), end = end_of(ended);
  failure.cause = WEFT_CAUSE_CLOSED;
  failure.detail = end.c_str();
  const std::string more = outcome.text.starts_with(told) ? outcome.text.substr(told.size()) : "";
  outcome.text = text_of(failure) + more;
  return outcome;
}

Ranks::~Ranks() {
  // The end of the run ends the ranks. Without a run, canceling the mesh refuses late ones.
  weft_mesh_cancel(mesh_.get());
  const auto until = Clock::now() + std::chrono::seconds(5);
  for (int pid : pids_) {
    if (!pid) continue;
    int status = 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (wait_for(pid, static_cast<int>(left.count()), status)) continue;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  mesh_.reset();  // last: it removes the files that killed ranks left behind
}

}  // namespace weft::cli
