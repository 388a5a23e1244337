// What an action costs beside its arithmetic: steps of a multilayer perceptron of width 16 over 4
// ranks with one micro-batch of one sample, so that its 8 actions (F and B of each stage) follow
// one another and compute next to nothing.
//
//   build/tests/bench/bench_action [ROUNDS [STEPS]]     (7 200)
//
// Per driver: microseconds of wall time per action, steps per second, and the ratio to the hop that
// the driver cannot avoid, measured in the same round: nothing on the thread of the caller (the
// ratio is to a hop between threads all the same), a handover between two threads, and a message
// of 64 bytes between two processes through a Unix or a TCP socket. A hop is half a round trip.
// An action is an eighth of a step, with its share of updates and of the start and end of the step.
// Medians of the rounds; the programs of a round run one after the other.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/wall_time.h"
#include "support/config.h"
#include "weft.h"

extern char** environ;

namespace {

using weft::bench::median;
using weft::bench::wall_seconds;

constexpr int kRanks = 4, kActions = 2 * kRanks;

void must(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "bench_action: %s\n", what);
  std::exit(1);
}

void must(weft_status status, const weft_error& err) { must(status >= 0, err.text); }

// Seconds of a handover between two threads that wait for each other.
double thread_hop(int trips) {
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;
  const auto play = [&](int parity) {
    for (int i = 0; i < trips; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return turn % 2 == parity; });
      ++turn;
      changed.notify_one();
    }
  };
  return wall_seconds([&] {
           std::thread other(play, 1);
           play(0);
           other.join();
         }) /
         (2 * trips);
}

void exchange(int socket, int trips, bool begins) {
  char message[64] = "";
  for (int i = 0; i < trips; ++i) {
    if (begins) must(write(socket, message, sizeof message) == sizeof message, "cannot write");
    must(recv(socket, message, sizeof message, MSG_WAITALL) == sizeof message, "cannot read");
    if (!begins) must(write(socket, message, sizeof message) == sizeof message, "cannot write");
  }
}

void connect_tcp(int ends[2]) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  must(bind(listener, at, size) == 0 && listen(listener, 1) == 0, "cannot listen");
  must(getsockname(listener, at, &size) == 0, "cannot read the address");
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  must(connect(ends[0], at, size) == 0, "cannot connect");
  ends[1] = accept(listener, nullptr, nullptr);
  for (int i = 0; i < 2; ++i)
    must(setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "no TCP_NODELAY");
  close(listener);
}

// Seconds of a message to a copy of this process. The copy only makes system calls, since other
// threads may have held locks.
double socket_hop(bool tcp, int trips) {
  int ends[2];
  if (tcp)
    connect_tcp(ends);
  else
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "cannot make a socket");
  const pid_t child = fork();
  must(child >= 0, "cannot fork");
  if (child == 0) {
    exchange(ends[1], trips, false);
    _exit(0);
  }
  const double time = wall_seconds([&] { exchange(ends[0], trips, true); });
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return time / (2 * trips);
}

void wait_for_end(weft_run* run) {
  weft_error err = sized<weft_error>();
  weft_event event = sized<weft_event>();
  while (weft_run_poll(run, &event, -1, &err) > 0) {
    if (event.kind == WEFT_EVENT_DONE) return;
    must(event.kind != WEFT_EVENT_ERROR, event.text);
  }
  must(false, "the run has ended");
}

int join(const char* endpoint) {
  weft_error err = sized<weft_error>();
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = endpoint;
  weft_mesh* mesh = nullptr;
  must(weft_mesh_join(&config, &mesh, &err), err);
  must(weft_run_serve(mesh, nullptr, nullptr, nullptr, &err), err);
  weft_mesh_free(mesh);
  return 0;
}

struct Driver {
  const char* name;
  uint32_t threads;
  const char* endpoint;  // nullptr: all ranks in this process
};

// Seconds of an action: of a run that starts, makes a few steps, and then `steps`.
double action(const Driver& driver, int steps) {
  weft_error err = sized<weft_error>();
  weft_model* model = nullptr;
  must(weft_model_preset("mlp:layers=4,width=16", 0, kRanks, &model, nullptr, &err), err);
  weft_optimizer sgd = unclipped();
  sgd.rule = WEFT_SGD;
  sgd.rate = 1e-6;
  weft_plan_config config = defaults(weft_plan_config_init);
  config.ranks = kRanks;
  config.micro_batches = 1;
  config.micro_batch_size = 1;
  config.optimizer = &sgd;
  weft_plan* plan = nullptr;
  must(weft_plan_new(model, &config, &plan, &err), err);
  weft_mesh* mesh = nullptr;
  pid_t children[kRanks] = {};
  if (driver.endpoint) {
    weft_mesh_config listen = defaults(weft_mesh_config_init);
    listen.endpoint = driver.endpoint;
    must(weft_mesh_listen(&listen, &mesh, &err), err);
    std::string self = "/proc/self/exe", flag = "--join", endpoint = weft_mesh_join_endpoint(mesh);
    char* args[] = {self.data(), flag.data(), endpoint.data(), nullptr};
    for (int rank = 1; rank < kRanks; ++rank)
      must(posix_spawn(&children[rank], self.c_str(), nullptr, nullptr, args, environ) == 0,
           "cannot start a rank");
  }
  weft_run_config options = defaults(weft_run_config_init);
  options.threads = driver.threads;
  weft_run* run = nullptr;
  must(weft_run_start(plan, mesh, &options, &run, &err), err);
  const weft_desc row = {WEFT_F32, 2, {1, 16}};
  weft_tensor* batch[2] = {};
  for (weft_tensor*& input : batch) {
    must(weft_tensor_new(&row, &input, &err), err);
    std::memset(weft_tensor_data(input), 0, 16 * sizeof(float));
  }
  const auto step = [&] {
    must(weft_run_submit(run, batch, 2, WEFT_TRAIN, 0, &err), err);
    wait_for_end(run);
  };
  for (int i = 0; i < 20; ++i) step();
  const double time = wall_seconds([&] {
    for (int i = 0; i < steps; ++i) step();
  });
  for (weft_tensor* input : batch) weft_tensor_unref(input);
  weft_run_free(run);
  for (int rank = 1; rank < kRanks && mesh; ++rank) waitpid(children[rank], nullptr, 0);
  weft_mesh_free(mesh);
  weft_plan_free(plan);
  weft_model_free(model);
  return time / steps / kActions;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--join") == 0) return join(argv[2]);
  const int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 7;
  const int steps = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 200;
  struct Row {
    Driver driver;
    const char* hop;
    std::vector<double> actions, hops, ratios;
  };
  Row rows[] = {{{"caller", 0, nullptr}, "threads", {}, {}, {}},
                {{"threads", 1, nullptr}, "threads", {}, {}, {}},
                {{"ipc", 1, "ipc://"}, "Unix socket", {}, {}, {}},
                {{"tcp", 1, "tcp://127.0.0.1:0"}, "TCP socket", {}, {}, {}}};
  constexpr int kTrips = 2000;
  for (int i = 0; i < rounds; ++i)
    for (Row& row : rows) {
      const bool tcp = std::strcmp(row.driver.name, "tcp") == 0;
      row.hops.push_back(row.driver.endpoint ? socket_hop(tcp, kTrips) : thread_hop(kTrips));
      row.actions.push_back(action(row.driver, steps));
      row.ratios.push_back(row.actions.back() / row.hops.back());
    }
  std::printf("mlp of width 16, 4 ranks, one micro-batch, medians of %d rounds of %d steps\n",
              rounds, steps);
  for (Row& row : rows) {
    std::sort(row.ratios.begin(), row.ratios.end());
    std::printf(
        "%-8s %8.2f us/action %8.0f steps/s   %-11s %7.2f us/hop   ratio %6.2f  (%.2f to %.2f)\n",
        row.driver.name, 1e6 * median(row.actions), 1 / (kActions * median(row.actions)), row.hop,
        1e6 * median(row.hops), row.ratios[row.ratios.size() / 2], row.ratios.front(),
        row.ratios.back());
  }
  return 0;
}
