// Runs that never block their host: one thread polls rank 0 and another rank, both in this process,
// and frees or cancels them at any moment of the start. Lines of the log.
#include <poll.h>

#include <mutex>

#include "api/api.h"

namespace {

MeshPtr listen(int64_t join_timeout_ns = 60000000000) {
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.join_timeout_ns = join_timeout_ns;
  weft_mesh* out = nullptr;
  Error err;
  EXPECT_EQ(weft_mesh_listen(&config, &out, &err), WEFT_OK) << err.text;
  return MeshPtr(out);
}

MeshPtr join(const MeshPtr& zero) {
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = weft_mesh_join_endpoint(zero.get());
  weft_mesh* out = nullptr;
  Error err;
  EXPECT_EQ(weft_mesh_join(&config, &out, &err), WEFT_OK) << err.text;
  return MeshPtr(out);
}

weft_run_config nowait() {
  weft_run_config config = defaults(weft_run_config_init);
  config.flags = WEFT_RUN_NOWAIT;
  return config;
}

RunPtr begin(const PlanPtr& plan, const MeshPtr& mesh, const weft_run_config& config = nowait()) {
  weft_run* out = nullptr;
  Error err;
  EXPECT_EQ(weft_run_start(plan.get(), mesh.get(), &config, &out, &err), WEFT_OK) << err.text;
  return RunPtr(out);
}

RunPtr serve(const MeshPtr& mesh, const weft_model* ops = nullptr,
             const weft_run_config* config = nullptr) {
  weft_run* out = nullptr;
  Error err;
  EXPECT_EQ(weft_run_join(mesh.get(), nullptr, ops, config, &out, &err), WEFT_OK) << err.text;
  return RunPtr(out);
}

// The next event, awaited at the descriptor as a loop of a host would.
weft_event next(const RunPtr& run) {
  weft_event event = sized<weft_event>();
  Error err;
  pollfd entry = {weft_run_fd(run.get()), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 60000), 1);
  EXPECT_EQ(weft_run_poll(run.get(), &event, 0, &err), 1) << err.text;
  return event;
}

weft_event next(const RunPtr& run, weft_event_kind kind) {
  const weft_event event = next(run);
  EXPECT_EQ(event.kind, kind) << (event.text ? event.text : "");
  return event;
}

// The mesh is canceled before the loop has taken the step.
TEST(Events, AStepBeforeAFailureIsItsOnlyEvent) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  int failed = 0;  // a step may also end before the run
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    const MeshPtr zero = listen(), one = join(zero);
    const RunPtr served = serve(one), run = begin(plan, zero, defaults(weft_run_config_init));
    Error err;
    ASSERT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 7, &err), WEFT_OK) << err.text;
    weft_mesh_cancel(zero.get());
    const Outcome step = finish(run);
    if (step.kind == WEFT_EVENT_DONE) continue;
    EXPECT_EQ(step.kind, static_cast<uint32_t>(WEFT_EVENT_ERROR)) << step.text;
    EXPECT_EQ(step.tag, 7u);
    weft_event event = sized<weft_event>();
    EXPECT_EQ(weft_run_poll(run.get(), &event, -1, &err), 0) << event.kind;
    ++failed;
  }
  EXPECT_GT(failed, 0);
}

TEST(NoWait, ARunInOneProcessTellsThatItHasStarted) {
  for (const uint32_t threads : {0u, 1u, 2u}) {
    weft_run_config config = nowait();
    config.threads = threads;
    const RunPtr run = begin(new_plan(small_model(), plan_config(2)), nullptr, config);
    const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
    Error err;
    expect_error(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_ESTATE,
                 {"has not started", "WEFT_EVENT_STARTED"});
    const weft_event started = next(run, WEFT_EVENT_STARTED);
    EXPECT_EQ(started.ranks, 2u);
    EXPECT_EQ(started.rank, 0);
    EXPECT_EQ(step(run, {x.get(), y.get()}).kind, WEFT_EVENT_DONE);
  }
}

TEST(NoWait, OneThreadDrivesBothEndsOfAMesh) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  const RunPtr here = start(plan);
  step(here, {x.get(), y.get()});

  const MeshPtr mesh = listen();
  RunPtr zero = begin(plan, mesh);
  weft_event event = sized<weft_event>();
  Error err;
  EXPECT_EQ(weft_run_poll(zero.get(), &event, 0, &err), 0);
  char text[33];
  expect_error(weft_run_digest(zero.get(), text, &err), err, WEFT_ESTATE, {"has not started"});
  const MeshPtr joined = join(mesh);
  const RunPtr one = serve(joined);
  event = next(zero, WEFT_EVENT_JOINED);
  EXPECT_EQ(event.rank, 1);
  EXPECT_EQ(event.missing, 0u);
  EXPECT_EQ(event.ranks, 2u);
  EXPECT_EQ(event.pid, static_cast<uint32_t>(getpid()));
  char host[257] = "";
  gethostname(host, sizeof host - 1);
  EXPECT_STREQ(event.host, host);
  event = next(one, WEFT_EVENT_JOINED);
  EXPECT_EQ(event.rank, 1);
  EXPECT_EQ(event.ranks, 2u);
  next(one, WEFT_EVENT_STARTED);
  next(zero, WEFT_EVENT_STARTED);
  EXPECT_EQ(step(zero, {x.get(), y.get()}).kind, WEFT_EVENT_DONE);
  EXPECT_EQ(digest(zero), digest(here));
  expect_error(submit(one, {x.get(), y.get()}, WEFT_TRAIN, 0, &err), err, WEFT_ESTATE,
               {"serves the run"});
  expect_error(weft_run_digest(one.get(), text, &err), err, WEFT_ESTATE, {"serves the run"});
  zero.reset();
  next(one, WEFT_EVENT_ENDED);
  EXPECT_EQ(weft_run_poll(one.get(), &event, -1, &err), 0) << "nothing can follow";
}

TEST(NoWait, ATimeoutNamesTheMissingRanksAndTheMeshMayBeUsedAgain) {
  const MeshPtr mesh = listen(1000000);
  const PlanPtr plan = new_plan(small_model(), plan_config(3));
  const RunPtr late = begin(plan, mesh);
  const weft_event event = next(late, WEFT_EVENT_FAILED);
  EXPECT_EQ(event.status, WEFT_ETIMEDOUT);
  EXPECT_NE(std::strstr(event.text, "ranks 1, 2 have not joined"), nullptr) << event.text;
  Error err;
  char text[33];
  EXPECT_EQ(weft_run_digest(late.get(), text, &err), WEFT_ETIMEDOUT);
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  EXPECT_EQ(submit(late, {x.get(), y.get()}, WEFT_TRAIN, 0, &err), WEFT_ETIMEDOUT);
  // The failed run does not disturb the one after it, whenever it is freed.
  const RunPtr again = begin(plan, mesh);
  EXPECT_EQ(next(again, WEFT_EVENT_FAILED).status, WEFT_ETIMEDOUT);
}

TEST(NoWait, AMeshThatAnotherRunWaitsAtIsRefused) {
  const MeshPtr mesh = listen();
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  RunPtr first = begin(plan, mesh);
  weft_run* out = nullptr;
  Error err;
  const weft_run_config config = nowait();
  expect_error(weft_run_start(plan.get(), mesh.get(), &config, &out, &err), err, WEFT_ESTATE,
               {"has not started"});
  first.reset();
  first = begin(plan, mesh);
  weft_mesh_cancel(mesh.get());
  EXPECT_EQ(next(first, WEFT_EVENT_FAILED).status, WEFT_ECANCELED);
}

// How a rank ends: both the moment (polls of both ends) and the way vary with the cycle.
TEST(NoWait, BothEndsMayBeFreedOrCanceledAtAnyMoment) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  for (int cycle = 0; cycle < 400 && !testing::Test::HasFailure(); ++cycle) {
    const MeshPtr mesh = listen(), joined = join(mesh);
    RunPtr zero = begin(plan, mesh), one = serve(joined);
    weft_event event = sized<weft_event>();
    Error err;
    for (int turn = 0; turn < cycle % 23; ++turn) {
      if (weft_run_poll(zero.get(), &event, cycle % 7 * 30000, &err) == 1 &&
          event.kind == WEFT_EVENT_STARTED) {
        EXPECT_EQ(submit(zero, {x.get(), y.get()}, WEFT_TRAIN, 1), WEFT_OK);
      }
      (void)weft_run_poll(one.get(), &event, cycle % 5 * 30000, &err);
    }
    switch (cycle % 4) {
      case 0: zero.reset(); break;
      case 1: one.reset(); break;
      case 2: weft_mesh_cancel(mesh.get()); break;
      case 3: weft_mesh_cancel(joined.get()); break;
    }
    // The other end learns of it, or still waits for a rank.
    if (cycle % 8 < 4) one.reset();
  }
}

TEST(NoWait, ARankThatLeavesEndsTheRunByItsName) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  const MeshPtr mesh = listen(), joined = join(mesh);
  const RunPtr zero = begin(plan, mesh);
  RunPtr one = serve(joined);
  while (next(zero).kind != WEFT_EVENT_STARTED) continue;
  while (next(one).kind != WEFT_EVENT_STARTED) continue;
  one.reset();
  // No step is in progress.
  const weft_event event = next(zero, WEFT_EVENT_FAILED);
  EXPECT_EQ(event.status, WEFT_ECANCELED);
  EXPECT_EQ(event.rank, 1);
  ASSERT_NE(event.failure, nullptr);
  EXPECT_EQ(event.failure->rank, 1);
  EXPECT_NE(std::strstr(event.text, "its own process left the run"), nullptr) << event.text;
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  EXPECT_EQ(step(zero, {x.get(), y.get()}).kind, WEFT_EVENT_ERROR) << "each step has its own event";
}

struct Lines {
  std::mutex mutex;
  std::vector<std::string> lines;
  static void add(weft_log_level level, const char* text, void* payload) {
    auto& self = *static_cast<Lines*>(payload);
    EXPECT_TRUE(self.mutex.try_lock()) << "two lines at a time";
    self.lines.push_back(std::to_string(level) + " " + text);
    self.mutex.unlock();
  }
  bool has(const std::string& part) const {
    for (const std::string& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }
  std::string all() const {
    std::string out;
    for (const std::string& line : lines) out += line + "\n";
    return out;
  }
};

TEST(Log, HasTheRanksAndTheEndOfARunUpToItsLevel) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  for (const weft_log_level level : {WEFT_LOG_WARNING, WEFT_LOG_INFO, WEFT_LOG_DEBUG}) {
    const MeshPtr mesh = listen(), joined = join(mesh);
    Lines of_zero, of_one;
    weft_run_config config = nowait();
    config.log = Lines::add;
    config.log_level = level;
    config.log_payload = &of_zero;
    RunPtr zero = begin(plan, mesh, config);
    config.log_payload = &of_one;
    RunPtr one = serve(joined, nullptr, &config);
    while (next(zero).kind != WEFT_EVENT_STARTED) continue;
    zero.reset();
    while (next(one).kind != WEFT_EVENT_ENDED) continue;
    one.reset();
    const std::string pid = "pid " + std::to_string(getpid()) + " on ";
    EXPECT_EQ(of_zero.has("2 " + pid), level >= WEFT_LOG_INFO) << of_zero.all();
    EXPECT_EQ(of_zero.has(" joined as rank 1; all 2 ranks have joined"), level >= WEFT_LOG_INFO);
    EXPECT_EQ(of_zero.has("2 the run has started with 2 ranks"), level >= WEFT_LOG_INFO);
    EXPECT_EQ(of_zero.has("3 connected with rank 1"), level >= WEFT_LOG_DEBUG) << of_zero.all();
    EXPECT_EQ(of_one.has("2 joined as rank 1 of 2"), level >= WEFT_LOG_INFO) << of_one.all();
    EXPECT_EQ(of_one.has("2 the run has ended"), level >= WEFT_LOG_INFO) << of_one.all();
    EXPECT_EQ((of_zero.all() + of_one.all()).empty(), level == WEFT_LOG_WARNING);
  }
}

TEST(Log, RefusesALevelThatDoesNotExist) {
  weft_run_config config = nowait();
  config.log_level = weft_log_level{4};
  weft_run* out = nullptr;
  Error err;
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  expect_error(weft_run_start(plan.get(), nullptr, &config, &out, &err), err, WEFT_EINVAL,
               {"log_level is 4"});
}

}  // namespace
