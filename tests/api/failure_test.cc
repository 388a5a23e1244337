// The facts of a failed run: which rank with which stages, in which process, what it did and why it
// failed. Rank 1 hosts two stages.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "api/drivers.h"

namespace {

// What the op does when it runs for the third micro-batch.
enum class Then { succeeds, fails, dies };
struct Own {
  Then then = Then::succeeds;
  int calls = 0;
};

int32_t same_shape(weft_op_call* call) {
  call->output.desc = call->inputs[0].desc;
  return 0;
}

size_t bytes_of(const weft_view& view) {
  return static_cast<size_t>(elements(view.desc)) * sizeof(float);
}

int32_t forward(const weft_op_call* call) {
  Own& own = *static_cast<Own*>(call->payload);
  if (++own.calls == 3 && own.then == Then::dies) raise(SIGKILL);
  if (own.calls == 3 && own.then == Then::fails) return -3;
  std::memcpy(call->output.data, call->inputs[0].data, bytes_of(call->output));
  return 0;
}

int32_t backward(const weft_op_call* call) {
  const weft_view& grad = call->grad_inputs[0];
  if (grad.data) std::memcpy(grad.data, call->grad_output.data, bytes_of(grad));
  return 0;
}

void add_own_op(const ModelPtr& model, Own* own) {
  weft_op op = defaults(weft_op_init);
  op.version = 1;
  op.name = "own";
  op.shape = same_shape;
  op.forward = forward;
  op.backward = backward;
  Error err;
  EXPECT_EQ(weft_model_add_op(model.get(), &op, own, &err), WEFT_OK) << err.text;
}

// Four stages on two ranks: rank 1 has stages 1 and 3, and the op is in stage 3.
PlanPtr plan_with(Own* own) {
  const ModelPtr model = new_model();
  add_own_op(model, own);
  weft_value x = add_input(model, "x", {1, 6});
  const weft_value y = add_input(model, "y", {1, 6});
  for (const char* name : {"a", "b", "c", "d"}) x = add_linear(model, name, x, 6);
  add_node(model, "mse", {add_node(model, "own", {x}, "mine"), y});
  static const char* const cuts[] = {"b", "c", "d"};
  weft_plan_config config = plan_config(2, 4);
  config.schedule = "interleaved";
  config.chunks = 2;
  config.cuts = cuts;
  config.n_cuts = 3;
  return new_plan(model, config);
}

std::string text_of(const weft_failure& failure) {
  std::string text(weft_failure_text(&failure, nullptr, 0), '\0');
  weft_failure_text(&failure, text.data(), text.size());
  text.pop_back();
  return text;
}

// Polls to the error and compares it with what the run says afterwards.
void expect_failure(const RunPtr& run,
                    void (*check)(const weft_event& event, const weft_failure& failure)) {
  const TensorPtr x = zeros({8, 6}), y = zeros({8, 6});
  weft_failure before = sized<weft_failure>(), after = sized<weft_failure>();
  EXPECT_EQ(weft_run_failure(run.get(), &before), 0);
  ASSERT_EQ(submit(run, {x.get(), y.get()}, WEFT_TRAIN, 0), WEFT_OK);
  weft_event event = sized<weft_event>();
  while (weft_run_poll(run.get(), &event, -1, nullptr) == 1 && event.kind != WEFT_EVENT_ERROR) {}
  ASSERT_EQ(event.kind, static_cast<uint32_t>(WEFT_EVENT_ERROR));
  ASSERT_NE(event.failure, nullptr);
  EXPECT_EQ(event.failure->status, event.status);
  EXPECT_EQ(event.failure->rank, event.rank);
  EXPECT_EQ(text_of(*event.failure), event.text);
  check(event, *event.failure);
  ASSERT_EQ(weft_run_failure(run.get(), &after), 1);
  EXPECT_EQ(text_of(after), event.text);
}

void expect_both_stages(const weft_failure& failure) {
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.other, -1);
  EXPECT_EQ(failure.joining, 0u);
  EXPECT_EQ(std::vector<uint32_t>(failure.stages, failure.stages + failure.n_stages),
            (std::vector<uint32_t>{1, 3}));
}

void expect_the_op(const weft_event& event, const weft_failure& failure) {
  expect_both_stages(failure);
  EXPECT_EQ(failure.cause, static_cast<uint32_t>(WEFT_CAUSE_FAILED));
  EXPECT_EQ(failure.status, WEFT_EUSER);
  EXPECT_EQ(failure.activity, static_cast<uint32_t>(WEFT_ACTIVITY_RUNS));
  EXPECT_EQ(failure.job, static_cast<uint32_t>('F'));
  EXPECT_EQ(failure.stage, 3);
  EXPECT_EQ(failure.micro_batch, 2);
  EXPECT_EQ(failure.mode, static_cast<uint32_t>(WEFT_TRAIN));
  EXPECT_EQ(failure.step, 0u);
  EXPECT_EQ(std::string(failure.detail).rfind("node 'mine' (own)", 0), 0u) << failure.detail;
  const std::string text = event.text;
  EXPECT_EQ(text.rfind("rank 1 (stages 1 and 3", 0), 0u) << text;
  EXPECT_NE(text.find(") failed in 3F2 of step 1: node 'mine' (own)"), std::string::npos) << text;
}

TEST(Failure, OfAnOpNamesTheStageAndTheActionOfItsRank) {
  for (const uint32_t threads : {0u, 1u}) {
    Own own{.then = Then::fails};
    expect_failure(start(plan_with(&own), threads), expect_the_op);
  }
}

// Rank 1 is a process of its own.
struct TwoProcesses {
  explicit TwoProcesses(Then then, int64_t peer_timeout_ms = 5000) {
    EXPECT_EQ(pipe(way), 0);
    child = fork();
    if (child == 0) serve(then);
    plan = plan_with(&own);
    weft_mesh* out = nullptr;
    Error err;
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.peer_timeout_ns = peer_timeout_ms * 1000000;
    EXPECT_EQ(weft_mesh_listen(&config, &out, &err), WEFT_OK) << err.text;
    mesh.reset(out);
    const std::string endpoint = weft_mesh_endpoint(out);
    EXPECT_EQ(write(way[1], endpoint.data(), endpoint.size()),
              static_cast<ssize_t>(endpoint.size()));
    weft_run* started = nullptr;
    EXPECT_EQ(weft_run_start(plan.get(), out, nullptr, &started, &err), WEFT_OK) << err.text;
    run.reset(started);
  }
  ~TwoProcesses() {
    run.reset();
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    for (const int end : way) close(end);
  }
  [[noreturn]] void serve(Then then) {
    alarm(60);  // if the test ends before it joins
    close(way[1]);
    char endpoint[200] = "";
    if (read(way[0], endpoint, sizeof endpoint - 1) <= 0) _exit(1);
    Own its_own{.then = then};
    const ModelPtr ops = new_model();
    add_own_op(ops, &its_own);
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = endpoint;
    weft_mesh* joined = nullptr;
    Error err;
    if (weft_mesh_join(&config, &joined, &err) == WEFT_OK)
      weft_run_serve(joined, nullptr, ops.get(), nullptr, &err);
    _exit(2);
  }

  int way[2];
  pid_t child;
  Own own;
  PlanPtr plan;
  MeshPtr mesh;
  RunPtr run;
};

pid_t other_process;

void expect_the_process(const weft_failure& failure) {
  char host[257] = "";
  gethostname(host, sizeof host - 1);
  EXPECT_EQ(failure.pid, static_cast<uint32_t>(other_process));
  EXPECT_STREQ(failure.host, host);
}

TEST(Failure, OfAnOpInAnotherProcessNamesTheSameAndTheProcess) {
  const TwoProcesses both(Then::fails);
  other_process = both.child;
  expect_failure(both.run, [](const weft_event& event, const weft_failure& failure) {
    expect_the_op(event, failure);
    expect_the_process(failure);
  });
}

TEST(Failure, OfAProcessThatDiesNamesAllItsStages) {
  const TwoProcesses both(Then::dies);
  other_process = both.child;
  expect_failure(both.run, [](const weft_event& event, const weft_failure& failure) {
    expect_both_stages(failure);
    expect_the_process(failure);
    EXPECT_EQ(failure.cause, static_cast<uint32_t>(WEFT_CAUSE_CLOSED));
    EXPECT_EQ(failure.status, WEFT_EPEER);
    EXPECT_GE(failure.heard_ns, 0);
    const std::string who = "rank 1 (stages 1 and 3, pid " + std::to_string(other_process);
    EXPECT_EQ(std::string(event.text).rfind(who, 0), 0u) << event.text;
    EXPECT_NE(std::string(event.text).find(") lost: connection closed; last frame "),
              std::string::npos)
        << event.text;
  });
}

// Also a call that is no poll finds out, and a caller that knows the cause may put it into the
// text.
TEST(Failure, IsRememberedOfEveryCall) {
  const TwoProcesses both(Then::succeeds);
  kill(both.child, SIGKILL);
  char digest[33];
  Error err;
  EXPECT_EQ(weft_run_digest(both.run.get(), digest, &err), WEFT_EPEER);
  weft_failure failure = sized<weft_failure>();
  ASSERT_EQ(weft_run_failure(both.run.get(), &failure), 1);
  expect_both_stages(failure);
  EXPECT_EQ(std::string(err.text).rfind(text_of(failure), 0), 0u) << err.text;
  failure.detail = "killed by signal 9";
  EXPECT_NE(text_of(failure).find(") lost: killed by signal 9; last frame "), std::string::npos)
      << text_of(failure);
}

// A save asks rank 1 for its parameters, and waits for a process that stands still.
TEST(Failure, DuringASaveNamesTheRankAndWhatItWasAskedFor) {
  const TwoProcesses both(Then::succeeds, 1000);
  const Directory directory;
  kill(both.child, SIGSTOP);
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.path().c_str();
  config.flags = WEFT_SAVE_QUEUE;
  Error err;
  ASSERT_EQ(weft_run_save(both.run.get(), &config, &err), WEFT_OK) << err.text;
  weft_event event = sized<weft_event>();
  ASSERT_EQ(weft_run_poll(both.run.get(), &event, -1, nullptr), 1);
  kill(both.child, SIGKILL);
  EXPECT_EQ(event.kind, static_cast<uint32_t>(WEFT_EVENT_SAVED));
  EXPECT_EQ(event.status, WEFT_EPEER);
  const std::string text = event.text;
  EXPECT_EQ(text.rfind("rank 1 (stages 1 and 3, pid " + std::to_string(both.child), 0), 0u) << text;
  EXPECT_NE(text.find(") lost: silent for 1 s; "), std::string::npos) << text;
  EXPECT_NE(text.find("it was asked for a piece of parameter '"), std::string::npos) << text;
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "what was written is given up";
}

TEST(Failure, TakesNoArgumentsThatCannotBe) {
  weft_failure failure = sized<weft_failure>();
  EXPECT_EQ(weft_run_failure(nullptr, &failure), WEFT_EINVAL);
  char text[8] = "before";
  EXPECT_EQ(weft_failure_text(nullptr, text, sizeof text), 1u);
  EXPECT_STREQ(text, "");
  failure.size = 8;
  EXPECT_EQ(weft_failure_text(&failure, nullptr, 0), 1u);
  // Values of a newer weft, or none at all, are no crash.
  failure = sized<weft_failure>();
  failure.cause = weft_cause{1000};
  failure.activity = weft_activity{1000};
  failure.job = 1000;
  failure.awaited = weft_awaited{1000};
  failure.mode = weft_step_mode{1000};
  EXPECT_GT(weft_failure_text(&failure, nullptr, 0), 1u);
}

}  // namespace
