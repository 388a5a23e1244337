// Runs with ops of the caller: their gradients, their failures, and how long they live.
#include <algorithm>
#include <cfenv>
#include <filesystem>
#include <mutex>
#include <set>

#include "api/square_op.h"
#include "support/directory.h"

namespace {

class UserOpTest : public testing::TestWithParam<uint32_t> {
 protected:
  RunPtr start(const ModelPtr& model, const weft_plan_config& config) {
    return ::start(model, config, GetParam());
  }

  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2);
  const std::vector<weft_tensor*> batch = {x.get(), y.get()};
};

INSTANTIATE_TEST_SUITE_P(Threads, UserOpTest, testing::Values(0u, 1u, 2u));

// The run continues while its owner reads the last event: the next step ends, which a step
// behind it shows by beginning.
TEST_P(UserOpTest, WhatAnEventPointsToStaysUntilTheNextPoll) {
  Square square;
  const RunPtr run = start(squaring_model(&square), plan_config(2));
  ASSERT_EQ(submit(run, batch, WEFT_TRAIN, 0), WEFT_OK);
  weft_event event = sized<weft_event>();
  do ASSERT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 1);
  while (event.kind == WEFT_EVENT_MICRO_BATCH);
  ASSERT_EQ(event.n_ranks, 2u);
  const std::vector<double> told(event.idle_by_rank, event.idle_by_rank + event.n_ranks);
  for (uint64_t tag : {1, 2}) ASSERT_EQ(submit(run, batch, WEFT_TRAIN, tag), WEFT_OK);
  if (GetParam() > 0)
    for (int calls = square.forwards; calls < 7; calls = square.forwards)
      square.forwards.wait(calls);  // a step has three
  EXPECT_EQ(std::vector<double>(event.idle_by_rank, event.idle_by_rank + event.n_ranks), told);
  for (uint64_t tag : {1, 2}) EXPECT_EQ(finish(run).tag, tag);
}

TEST_P(UserOpTest, ComputesWhatTheBuiltInDoes) {
  const RunPtr built_in = start(squaring_model(nullptr, WEFT_INPUT_WANT_GRAD), plan_config());
  for (uint32_t ranks = 1; ranks <= 3; ++ranks) {
    Square square;
    {
      const RunPtr run = start(squaring_model(&square, WEFT_INPUT_WANT_GRAD), plan_config(ranks));
      const RunPtr reference = start(squaring_model(nullptr, WEFT_INPUT_WANT_GRAD), plan_config());
      for (int i = 0; i < 3; ++i) EXPECT_EQ(step(run, batch).loss, step(reference, batch).loss);
      EXPECT_EQ(read(run, "x", WEFT_GRAD, {6, 6}), read(reference, "x", WEFT_GRAD, {6, 6}));
      EXPECT_EQ(read(run, "a.weight", WEFT_GRAD, {6, 8}),
                read(reference, "a.weight", WEFT_GRAD, {6, 8}));
      EXPECT_EQ(digest(run), digest(reference));
      EXPECT_EQ(step(run, batch, WEFT_FORWARD).outputs,
                step(reference, batch, WEFT_FORWARD).outputs);
      EXPECT_EQ(square.forwards, 4 * 3);
      EXPECT_EQ(square.backwards, 3 * 3);
    }
    EXPECT_EQ(square.destroyed, 1);
  }
}

// Drops about half of the elements in steps with a backward pass, and notes the seeds.
struct Drop {
  std::mutex mutex;
  std::multiset<uint64_t> seeds;

  static Drop& of(void* payload) { return *static_cast<Drop*>(payload); }
  static void each(const weft_op_call* call, const void* from, void* to) {
    uint64_t bits = call->seed;
    for (int64_t i = 0; i < elements(call->output.desc); ++i) {
      bits = bits * 6364136223846793005u + 1442695040888963407u;
      const float factor = !call->training ? 1.0f : bits >> 63 ? 2.0f : 0.0f;
      static_cast<float*>(to)[i] = static_cast<const float*>(from)[i] * factor;
    }
  }
  static int32_t forward(const weft_op_call* call) {
    each(call, call->inputs[0].data, call->output.data);
    const std::lock_guard lock(of(call->payload).mutex);
    of(call->payload).seeds.insert(call->seed);
    return 0;
  }
  static int32_t backward(const weft_op_call* call) {
    each(call, call->grad_output.data, call->grad_inputs[0].data);
    const std::lock_guard lock(of(call->payload).mutex);
    return of(call->payload).seeds.contains(call->seed) ? 0 : 11;
  }
};

ModelPtr dropping_model(Drop& drop) {
  weft_op op = square_op();
  op.name = "drop";
  op.forward = Drop::forward;
  op.backward = Drop::backward;
  op.backward_reads = 0;
  op.destroy = nullptr;
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 6}), y = add_input(model, "y", {1, 3});
  Error err;
  EXPECT_EQ(weft_model_add_op(model.get(), &op, &drop, &err), WEFT_OK) << err.text;
  weft_value h = add_node(model, "drop", {add_linear(model, "a", x, 8)}, "first");
  h = add_node(model, "drop", {add_linear(model, "b", h, 8)}, "second");
  EXPECT_EQ(weft_model_add_output(model.get(), h, nullptr), WEFT_OK);
  add_node(model, "mse", {add_linear(model, "c", h, 3), y});
  return model;
}

TEST_P(UserOpTest, HasANumberForItsRandomNumbers) {
  std::string expected;
  for (uint32_t ranks = 1; ranks <= 3; ++ranks)
    for (const char* recompute : {"none", "every:1"}) {
      Drop drop;
      weft_plan_config config = plan_config(ranks);
      config.recompute = recompute;
      const RunPtr run = start(dropping_model(drop), config);
      for (int i = 0; i < 3; ++i) step(run, batch);
      // 2 nodes, 3 steps of 3 micro-batches.
      EXPECT_EQ(std::set(drop.seeds.begin(), drop.seeds.end()).size(), 18u);
      if (expected.empty()) expected = digest(run);
      EXPECT_EQ(digest(run), expected) << ranks << ", " << recompute;
      const auto outputs = step(run, batch, WEFT_FORWARD).outputs;
      for (const auto& micro_batch : outputs)
        EXPECT_EQ(std::count(micro_batch[0].begin(), micro_batch[0].end(), 0), 0);
    }
}

// At two coordinates: one number if the operands are the same, otherwise two.
TEST_P(UserOpTest, HasANumberForEachPieceOfAValue) {
  for (const bool cut : {false, true}) {
    Drop drop;
    weft_op op = square_op();
    op.forward = Drop::forward;
    op.backward = Drop::backward;
    op.backward_reads = 0;
    op.destroy = nullptr;
    const ModelPtr model = new_model();
    Error err;
    ASSERT_EQ(weft_model_add_axis(model.get(), "t", 2, &err), WEFT_OK) << err.text;
    ASSERT_EQ(weft_model_add_op(model.get(), &op, &drop, &err), WEFT_OK) << err.text;
    const weft_value in = add_input(model, "x", {1, 6});
    if (cut) {
      ASSERT_EQ(weft_model_cut_input(model.get(), in, 1, "t", 0, &err), WEFT_OK) << err.text;
    }
    const weft_value h = add_node(model, "square", {in});
    ASSERT_EQ(weft_model_add_output(model.get(), h, &err), WEFT_OK) << err.text;
    if (cut) {
      ASSERT_EQ(weft_model_cut_output(model.get(), h, 1, "t", 0, &err), WEFT_OK) << err.text;
    }
    const RunPtr run = start(model, plan_config());
    step(run, {x.get()}, WEFT_FORWARD);
    // Three micro-batches.
    EXPECT_EQ(std::set(drop.seeds.begin(), drop.seeds.end()).size(), cut ? 6u : 3u);
  }
}

TEST_P(UserOpTest, DoesNotChangeHowOtherNodesRound) {
  weft_op op = square_op();
  op.forward = [](const weft_op_call* call) {
    const int32_t status = Square::forward(call);
    std::fesetround(FE_UPWARD);
    return status;
  };
  Square square;
  const RunPtr run = start(squaring_model(&square, 0, op), plan_config());
  const RunPtr reference = start(squaring_model(nullptr), plan_config());
  EXPECT_EQ(step(run, batch).loss, step(reference, batch).loss);
  EXPECT_EQ(digest(run), digest(reference));
  std::fesetround(FE_TONEAREST);
}

TEST_P(UserOpTest, LivesAsLongAsWhatKnowsIt) {
  Square square;
  ModelPtr model = squaring_model(&square);
  PlanPtr plan = new_plan(model, plan_config());
  RunPtr run = ::start(plan, GetParam());
  model.reset();
  plan.reset();
  EXPECT_EQ(square.destroyed, 0);
  step(run, batch);
  run.reset();
  EXPECT_EQ(square.destroyed, 1);
}

TEST_P(UserOpTest, IsDestroyedWithAModelThatNeverRan) {
  Square square;
  squaring_model(&square);
  EXPECT_EQ(square.destroyed, 1);
}

// Whatever fails, each tag has exactly one final event, and every tensor is released exactly once.
void expect_failed(const RunPtr& run, const std::vector<weft_tensor*>& batch, int good_steps,
                   std::initializer_list<const char*> parts) {
  int released = 0;
  float data[6 * 6] = {};
  const weft_desc d = desc({6, 6});
  weft_tensor* mine = nullptr;
  auto release = [](void*, void* payload) { ++*static_cast<int*>(payload); };
  ASSERT_EQ(weft_tensor_wrap(&d, data, release, &released, &mine, nullptr), WEFT_OK);
  for (uint64_t tag = 0; tag < 5; ++tag)
    ASSERT_EQ(submit(run, {mine, batch[1]}, WEFT_TRAIN, tag), WEFT_OK);
  weft_tensor_unref(mine);
  for (uint64_t tag = 0; tag < 5; ++tag) {
    const Outcome outcome = finish(run);
    EXPECT_EQ(outcome.tag, tag);
    if (static_cast<int>(tag) < good_steps) {
      EXPECT_EQ(outcome.kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
      continue;
    }
    EXPECT_EQ(outcome.kind, static_cast<uint32_t>(WEFT_EVENT_ERROR));
    EXPECT_EQ(outcome.status, WEFT_EUSER);
    EXPECT_EQ(outcome.text.rfind("rank " + std::to_string(outcome.rank), 0), 0u)
        << outcome.rank << " and " << outcome.text;
    for (const char* part : parts)
      EXPECT_NE(outcome.text.find(part), std::string::npos) << outcome.text;
  }
  EXPECT_EQ(released, 1);
  weft_event event = sized<weft_event>();
  EXPECT_EQ(weft_run_poll(run.get(), &event, -1, nullptr), 0);
}

TEST_P(UserOpTest, AFailingForwardEndsTheRun) {
  for (uint32_t ranks = 1; ranks <= 3; ++ranks) {
    Square square;
    square.fail_forward_at = 4;  // the second step, its second micro-batch
    const RunPtr run = start(squaring_model(&square), plan_config(ranks));
    expect_failed(run, batch, 1, {"forward returned 7", "'squares'", "micro-batch 1", "rank"});
  }
}

TEST_P(UserOpTest, AFailingBackwardEndsTheRun) {
  for (uint32_t ranks = 1; ranks <= 3; ++ranks) {
    Square square;
    square.fail_backward_at = 0;
    const RunPtr run = start(squaring_model(&square, WEFT_INPUT_WANT_GRAD), plan_config(ranks));
    expect_failed(run, batch, 0, {"backward returned -3", "'squares'", "micro-batch 0", "rank"});
  }
}

TEST_P(UserOpTest, AFailedRunAnswersEveryLaterStepWithItsFailure) {
  Square square;
  square.fail_forward_at = 0;
  const RunPtr run = start(squaring_model(&square), plan_config());
  EXPECT_EQ(step(run, batch, WEFT_TRAIN, 1).status, WEFT_EUSER);
  const Outcome later = step(run, batch, WEFT_EVAL, 2);
  EXPECT_EQ(later.tag, 2u);
  EXPECT_EQ(later.kind, static_cast<uint32_t>(WEFT_EVENT_ERROR));
  EXPECT_EQ(later.status, WEFT_EUSER);
  EXPECT_EQ(later.rank, 0);
  EXPECT_EQ(square.forwards, 1) << "nothing is computed any more";
}

// Each rank has come as far as it had: that is no state of any step, which a checkpoint would make
// it.
TEST_P(UserOpTest, AFailedRunIsNeitherReadNorSaved) {
  Square square;
  square.fail_forward_at = 4;
  const RunPtr run = start(squaring_model(&square), plan_config(2));
  EXPECT_EQ(step(run, batch, WEFT_TRAIN, 1).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
  EXPECT_EQ(step(run, batch, WEFT_TRAIN, 2).status, WEFT_EUSER);
  const weft::test::Directory directory;
  const std::string place = directory / "checkpoints";
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = place.c_str();
  char text[33];
  Error err;
  expect_error(weft_run_save(run.get(), &save, &err), err, WEFT_EUSER,
               {"the run has failed", "'squares'"});
  EXPECT_FALSE(std::filesystem::exists(place));
  expect_error(weft_run_digest(run.get(), text, &err), err, WEFT_EUSER, {"the run has failed"});
  expect_error(weft_run_read(run.get(), "a.bias", WEFT_VALUE, zeros({8}).get(), &err), err,
               WEFT_EUSER, {"the run has failed"});
}

}  // namespace
