#include "proc/rank_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

extern char** environ;

namespace weft::test {

namespace {

constexpr int kWidth = 32, kLayers = 8;

[[noreturn]] void die(const char* what, const weft_error& err) {
  std::fprintf(stderr, "rank program: %s: %s\n", what, err.text);
  std::exit(9);
}

std::string value(const Options& options, const char* name, const char* fallback) {
  const auto at = options.find(name);
  return at == options.end() ? fallback : at->second;
}

uint32_t number(const Options& options, const char* name, uint32_t fallback) {
  return static_cast<uint32_t>(std::stoul(value(options, name, std::to_string(fallback).c_str())));
}

weft_value node(weft_model* model, const char* name, const char* op, std::vector<weft_value> in) {
  weft_error err = sized<weft_error>();
  weft_node_config config = defaults(weft_node_config_init);
  config.name = name;
  config.op = op;
  config.inputs = in.data();
  config.n_inputs = static_cast<uint32_t>(in.size());
  weft_value out = {0};
  if (weft_model_add_node(model, &config, &out, &err) < 0) die(name, err);
  return out;
}

int32_t same_shape(weft_op_call* call) {
  call->output.desc = call->inputs[0].desc;
  return 0;
}
int32_t never_called(const weft_op_call*) { return -1; }

// One of an op that only those know who register it.
int32_t no_shape(weft_op_call*) { return -1; }

void add_user_op(weft_model* model, int32_t (*shape)(weft_op_call*)) {
  weft_error err = sized<weft_error>();
  weft_op op = defaults(weft_op_init);
  op.name = "own";
  op.shape = shape;
  op.forward = never_called;
  op.backward = never_called;
  if (weft_model_add_op(model, &op, nullptr, &err) < 0) die("own", err);
}

weft_value user_node(weft_model* model, weft_value x) {
  add_user_op(model, same_shape);
  return node(model, "own", "own", {x});
}

}  // namespace

Program::~Program() {
  weft_plan_free(plan);
  weft_model_free(model);
}

void make_program(const Options& options, Program& out) {
  weft_error err = sized<weft_error>();
  if (weft_model_new(&out.model, &err) < 0) die("model", err);
  weft_desc row = {WEFT_F32, 2, {1, kWidth}};
  weft_value x = {0}, target = {0};
  if (weft_model_add_input(out.model, "x", &row, 0, &x, &err) < 0) die("x", err);
  if (weft_model_add_input(out.model, "target", &row, 0, &target, &err) < 0) die("target", err);
  const weft_value first = x;
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "l" + std::to_string(i);
    weft_value y = {0};
    if (weft_model_add_linear(out.model, name.c_str(), x, kWidth, &y, &err) < 0) die("linear", err);
    y = node(out.model, (name + ".relu").c_str(), "relu", {y});
    x = node(out.model, (name + ".add").c_str(), "add",
             {y, i == kLayers - 1 ? first : x});  // the last one skips every stage
  }
  if (value(options, "user_op", "") == "yes") x = user_node(out.model, x);
  node(out.model, "loss", "mse", {x, target});
  weft_plan_config config = defaults(weft_plan_config_init);
  const weft_axis axes[] = {{"data", 2, 0}, {"stage", 2, 0}, {"tensor", 2, 0}};
  if (value(options, "mesh", "") == "2x2x2") {
    config.axes = axes;
    config.n_axes = 3;
  } else {
    config.ranks = number(options, "ranks", 3);
  }
  config.micro_batches = number(options, "micro", 6);
  config.micro_batch_size = 2;
  config.seed = number(options, "seed", 1);
  const std::string schedule = value(options, "schedule", "1f1b"), cut = value(options, "cut", "");
  config.schedule = schedule.c_str();
  const char* cuts[] = {cut.c_str(), "l7"};
  if (!cut.empty()) {
    config.cuts = cuts;
    config.n_cuts = 2;
  }
  if (weft_plan_new(out.model, &config, &out.plan, &err) < 0) die("plan", err);
}

static void keep_failure(const weft_run* run, Outcome& out) {
  if (weft_run_failure(run, &out.failure) != 1) return;
  out.stages.assign(out.failure.stages, out.failure.stages + out.failure.n_stages);
}

Outcome train(weft_run* run, int steps, const std::function<void(int)>& after) {
  Outcome out;
  weft_error err = sized<weft_error>();
  const weft_desc desc = {WEFT_F32, 2, {12, kWidth}};
  std::vector<float> x(12 * kWidth), target(x.size());
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>((i * 7 + static_cast<size_t>(step) * 13) % 17) / 17.0f - 0.5f;
      target[i] = x[(i * 3) % x.size()];
    }
    weft_tensor* inputs[2] = {nullptr, nullptr};
    if (weft_tensor_wrap(&desc, x.data(), nullptr, nullptr, &inputs[0], &err) < 0 ||
        weft_tensor_wrap(&desc, target.data(), nullptr, nullptr, &inputs[1], &err) < 0)
      die("tensor", err);
    const weft_status submitted =
        weft_run_submit(run, inputs, 2, WEFT_TRAIN, static_cast<uint64_t>(step), &err);
    for (weft_tensor* t : inputs) weft_tensor_unref(t);
    if (submitted < 0) die("submit", err);
    weft_event event = sized<weft_event>();
    while (weft_run_poll(run, &event, -1, nullptr) == 1) {
      if (event.kind == WEFT_EVENT_ERROR) {
        out.status = event.status;
        out.text = event.text;
        if (!event.failure || event.failure->rank != event.rank) die("event", err);
        keep_failure(run, out);
        return out;
      }
      if (event.kind == WEFT_EVENT_DONE) out.losses.push_back(event.loss);
    }
    if (after) after(step);
  }
  char digest[33];
  if (weft_run_digest(run, digest, &err) < 0) {
    out.status = err.status;
    out.text = err.text;
    keep_failure(run, out);
  } else {
    out.digest = digest;
  }
  return out;
}

void die_soon(const Options& options) {
  const uint32_t after = number(options, "dies_after_us", 0);
  const itimerval when = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = after}};
  if (after) setitimer(ITIMER_REAL, &when, nullptr);
}

int serve(const Options& options) {
  weft_error err = sized<weft_error>();
  weft_mesh_config config = defaults(weft_mesh_config_init);
  const std::string endpoint = value(options, "join", "");
  config.endpoint = endpoint.c_str();
  if (options.count("rank")) config.rank = static_cast<int32_t>(number(options, "rank", 0));
  config.join_timeout_ns = int64_t{number(options, "timeout", 60000)} * 1000000;
  weft_mesh* mesh = nullptr;
  weft_status status = weft_mesh_join(&config, &mesh, &err);
  if (status >= 0) {
    Program program;
    if (value(options, "own", "") == "yes") make_program(options, program);
    weft_model* ops = nullptr;
    if (value(options, "broken_op", "") == "yes") {
      if (weft_model_new(&ops, &err) < 0) die("model", err);
      add_user_op(ops, no_shape);
    }
    die_soon(options);
    status = weft_run_serve(mesh, program.plan, ops, nullptr, &err);
    weft_model_free(ops);
    weft_mesh_free(mesh);
  }
  if (status < 0) std::fprintf(stderr, "%s: %s\n", weft_status_text(status), err.text);
  return status >= 0                                                                    ? 0
         : status == WEFT_EPEER || status == WEFT_ETIMEDOUT || status == WEFT_ECANCELED ? 4
                                                                                        : 3;
}

// This program on this machine. Meson names the emulator of a program for another processor: the
// kernel cannot start such a program itself.
std::vector<std::string> this_program() {
  const char* emulator = std::getenv("MESON_EXE_WRAPPER");
  std::istringstream words(emulator ? emulator : "");
  std::vector<std::string> out{std::istream_iterator<std::string>(words), {}};
  out.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  return out;
}

Child::Child(const Options& options, const std::string& log) : pid_(0), log_(log) {
  std::vector<std::string> words = this_program();
  for (const auto& [name, text] : options) words.push_back(name + "=" + text);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
}

Child::~Child() {
  unlink(log_.c_str());
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  kill(pid_, SIGCONT);
  waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) const { kill(pid_, number); }

int Child::wait(int milliseconds) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  pollfd entry = {descriptor, POLLIN, 0};
  const int ready = poll(&entry, 1, milliseconds);
  close(descriptor);
  if (ready != 1) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string Child::last_line() const {
  std::ifstream file(log_);
  std::string line, last;
  while (std::getline(file, line))
    if (!line.empty()) last = line;
  return last;
}

}  // namespace weft::test
