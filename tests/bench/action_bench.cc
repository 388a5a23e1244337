// What an action costs beside its arithmetic: steps of a multilayer perceptron of width 16 over 4
// ranks with one micro-batch of one sample, so that its 8 actions (F and B of each stage) follow
// one another and compute next to nothing.
//
//   build/tests/bench/bench_action [ROUNDS [STEPS]]     (7 200)
//
// Per driver: microseconds of wall time per action, and the ratio to hops that
// the driver cannot avoid, measured in the same round: nothing on the thread of the caller (the
// ratio is to a hop between threads all the same), a handover between two threads, and a message
// of 64 bytes between two processes, through a Unix or a TCP socket and through ZeroMQ over one. A
// hop is half a round trip. An action is an eighth of a step, with its share of updates and of the
// start and end of the step; an isolated action is without that share: what 8 more micro-batches
// add to a step, divided by their 64 actions. Medians of the rounds; the programs of a round run
// one after the other.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

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

#include "bench/copies.h"
#include "bench/wall_time.h"
#include "support/config.h"
#include "weft.h"

namespace {

using weft::bench::join;
using weft::bench::median;
using weft::bench::must;
using weft::bench::start_copy;
using weft::bench::wall_seconds;

constexpr int kRanks = 4, kActions = 2 * kRanks;
constexpr uint32_t kMore = 8;  // micro-batches

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

// One end of a pair of ZeroMQ's sockets.
class Pair {
 public:
  Pair() : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_PAIR)) {
    must(socket_ != nullptr, "cannot make a socket of ZeroMQ");
  }
  ~Pair() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  std::string bind(const char* endpoint) {
    char bound[256];
    size_t size = sizeof bound;
    must(zmq_bind(socket_, endpoint) == 0, "ZeroMQ cannot listen");
    must(zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, bound, &size) == 0, "ZeroMQ has no endpoint");
    return bound;
  }
  void connect(const char* endpoint) {
    must(zmq_connect(socket_, endpoint) == 0, "ZeroMQ cannot connect");
  }
  void send(size_t size) {
    must(zmq_send(socket_, message_, size, 0) == static_cast<int>(size), "ZeroMQ cannot send");
  }
  size_t receive() {
    const int size = zmq_recv(socket_, message_, sizeof message_, 0);
    must(size >= 0, "ZeroMQ cannot receive");
    return static_cast<size_t>(size);
  }

 private:
  void* context_;
  void* socket_;
  char message_[64] = "";
};

// Seconds of a message through ZeroMQ to a copy of this process, which echoes until an empty one.
double zmq_hop(bool tcp, int trips) {
  Pair pair;
  const std::string endpoint = pair.bind(tcp ? "tcp://127.0.0.1:*" : "ipc://*");
  const pid_t child = start_copy("--echo", endpoint.c_str());
  const auto trip = [&] {
    pair.send(64);
    must(pair.receive() == 64, "the echo differs");
  };
  trip();  // waits for the connection
  const double time = wall_seconds([&] {
    for (int i = 0; i < trips; ++i) trip();
  });
  pair.send(0);
  waitpid(child, nullptr, 0);
  return time / (2 * trips);
}

int echo(const char* endpoint) {
  Pair pair;
  pair.connect(endpoint);
  while (const size_t size = pair.receive()) pair.send(size);
  return 0;
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

struct Driver {
  uint32_t threads;
  const char* endpoint;  // nullptr: all ranks in this process
};

// Seconds of a step: of a run that starts, makes a few steps, and then `steps`.
double step_seconds(const Driver& driver, int steps, uint32_t micro_batches = 1) {
  weft_error err = sized<weft_error>();
  weft_model* model = nullptr;
  must(weft_model_preset("mlp:layers=4,width=16", 0, kRanks, &model, nullptr, &err), err);
  weft_optimizer sgd = unclipped();
  sgd.rule = WEFT_SGD;
  sgd.rate = 1e-6;
  weft_plan_config config = defaults(weft_plan_config_init);
  config.ranks = kRanks;
  config.micro_batches = micro_batches;
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
    for (int rank = 1; rank < kRanks; ++rank)
      children[rank] = start_copy("--join", weft_mesh_join_endpoint(mesh));
  }
  weft_run_config options = defaults(weft_run_config_init);
  options.threads = driver.threads;
  weft_run* run = nullptr;
  must(weft_run_start(plan, mesh, &options, &run, &err), err);
  const weft_desc rows = {WEFT_F32, 2, {micro_batches, 16}};
  weft_tensor* batch[2] = {};
  for (weft_tensor*& input : batch) {
    must(weft_tensor_new(&rows, &input, &err), err);
    std::memset(weft_tensor_data(input), 0, micro_batches * 16 * sizeof(float));
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
  return time / steps;
}

double action(const Driver& driver, int steps) { return step_seconds(driver, steps) / kActions; }

double isolated_action(const Driver& driver, int steps) {
  const double one = step_seconds(driver, steps);
  return (step_seconds(driver, steps, 1 + kMore) - one) / (kMore * kActions);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--join") == 0) return join(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "--echo") == 0) return echo(argv[2]);
  const int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 7;
  const int steps = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 200;
  constexpr int kTrips = 2000;
  struct Hop {
    const char* name;
    double (*measure)();
    std::vector<double> times = {}, ratios = {};
  };
  struct Row {
    const char* name;
    Driver driver;
    double (*measure)(const Driver& driver, int steps);
    std::vector<Hop> hops;
    std::vector<double> times = {};
  };
  const Hop threads{"threads", [] { return thread_hop(kTrips); }};
  const Driver caller{0, nullptr};
  Row rows[] = {
      {"isolated", caller, isolated_action, {threads}},
      {"caller", caller, action, {threads}},
      {"threads", {1, nullptr}, action, {threads}},
      {"ipc",
       {1, "ipc://"},
       action,
       {{"Unix socket", [] { return socket_hop(false, kTrips); }},
        {"ZeroMQ", [] { return zmq_hop(false, kTrips); }}}},
      {"tcp",
       {1, "tcp://127.0.0.1:0"},
       action,
       {{"TCP socket", [] { return socket_hop(true, kTrips); }},
        {"ZeroMQ", [] { return zmq_hop(true, kTrips); }}}},
  };
  for (int i = 0; i < rounds; ++i)
    for (Row& row : rows) {
      for (Hop& hop : row.hops) hop.times.push_back(hop.measure());
      row.times.push_back(row.measure(row.driver, steps));
      for (Hop& hop : row.hops) hop.ratios.push_back(row.times.back() / hop.times.back());
    }
  std::printf("mlp of width 16, 4 ranks, one micro-batch, medians of %d rounds of %d steps\n",
              rounds, steps);
  for (Row& row : rows)
    for (Hop& hop : row.hops) {
      std::sort(hop.ratios.begin(), hop.ratios.end());
      std::printf("%-8s %8.2f us/action   %-11s %7.2f us/hop   ratio %6.2f  (%.2f to %.2f)\n",
                  row.name, 1e6 * median(row.times), hop.name, 1e6 * median(hop.times),
                  median(hop.ratios), hop.ratios.front(), hop.ratios.back());
    }
  return 0;
}
