// Ops of the caller: their gradients, their failures, and how long they live.
#include <stdlib.h>

#include <atomic>
#include <filesystem>

#include "api/api.h"

namespace {

// y = x * x, as the built-in `mul` of a value with itself. Callbacks may run on several threads at once.
struct Square {
  int fail_forward_at = -1, fail_backward_at = -1;  // number of the call
  std::atomic<int> forwards{0}, backwards{0}, destroyed{0};

  static Square& of(void* payload) { return *static_cast<Square*>(payload); }
  static int32_t shape(const weft_desc* in, uint32_t n_in, weft_desc* out, void*) {
    if (n_in != 1) return 5;
    *out = in[0];
    return 0;
  }
  static int32_t forward(const weft_view* in, uint32_t, weft_view* out, void* payload) {
    const int call = of(payload).forwards++;
    of(payload).forwards.notify_all();
    if (call == of(payload).fail_forward_at) return 7;
    const float* x = static_cast<const float*>(in[0].data);
    float* y = static_cast<float*>(out->data);
    for (int64_t i = 0; i < elements(out->desc); ++i) y[i] = x[i] * x[i];
    return 0;
  }
  static int32_t backward(const weft_view* in, uint32_t, const weft_view* out, const weft_view* grad_out, weft_view* grad_in,
                          void* payload) {
    if (of(payload).backwards++ == of(payload).fail_backward_at) return -3;
    const float *x = static_cast<const float*>(in[0].data), *y = static_cast<const float*>(out->data),
                *dy = static_cast<const float*>(grad_out->data);
    float* dx = static_cast<float*>(grad_in[0].data);
    if (!dx) return 0;
    for (int64_t i = 0; i < elements(out->desc); ++i) {
      if (y[i] != x[i] * x[i]) return 9;  // what forward read and wrote is still there
      dx[i] = dy[i] * x[i] + dy[i] * x[i];
    }
    return 0;
  }
  static void destroy(void* payload) { ++of(payload).destroyed; }
};

weft_op square_op() {
  weft_op op = WEFT_OP_INIT;
  op.name = "square";
  op.shape = Square::shape;
  op.forward = Square::forward;
  op.backward = Square::backward;
  op.destroy = Square::destroy;
  return op;
}

// x [6] -> 8, squared -> 3. Squared by the caller's op, or, if there is none, by the built-in one.
ModelPtr squaring_model(Square* square, uint32_t flags = 0, weft_op op = square_op()) {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 6}, flags), y = add_input(model, "y", {1, 3});
  weft_value h = add_linear(model, "a", x, 8);
  if (square) {
    Error err;
    EXPECT_EQ(weft_model_add_op(model.get(), &op, square, &err), WEFT_OK) << err.text;
    h = add_node(model, "square", {h}, "squares");
  } else {
    h = add_node(model, "mul", {h, h}, "squares");
  }
  EXPECT_EQ(weft_model_add_output(model.get(), h, nullptr), WEFT_OK);
  add_node(model, "mse", {add_linear(model, "b", h, 3), y});
  return model;
}

class UserOpTest : public testing::TestWithParam<uint32_t> {
 protected:
  RunPtr start(const ModelPtr& model, const weft_plan_config& config) { return ::start(model, config, GetParam()); }

  const TensorPtr x = noise({6, 6}, 1), y = noise({6, 3}, 2);
  const std::vector<weft_tensor*> batch = {x.get(), y.get()};
};

INSTANTIATE_TEST_SUITE_P(Threads, UserOpTest, testing::Values(0u, 1u, 2u));

// The run goes on while its owner looks at what it was told last: the next step ends, which a step behind it shows by beginning.
TEST_P(UserOpTest, WhatAnEventPointsToStaysUntilTheNextPoll) {
  Square square;
  const RunPtr run = start(squaring_model(&square), plan_config(2));
  ASSERT_EQ(submit(run, batch, WEFT_TRAIN, 0), WEFT_OK);
  weft_event event = WEFT_EVENT_INIT;
  do ASSERT_EQ(weft_run_poll(run.get(), &event, -1), 1);
  while (event.kind == WEFT_EVENT_MICRO_BATCH);
  ASSERT_EQ(event.n_ranks, 2u);
  const std::vector<double> told(event.idle_by_rank, event.idle_by_rank + event.n_ranks);
  for (uint64_t tag : {1, 2}) ASSERT_EQ(submit(run, batch, WEFT_TRAIN, tag), WEFT_OK);
  if (GetParam() > 0)
    for (int calls = square.forwards; calls < 7; calls = square.forwards) square.forwards.wait(calls);  // a step has three
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
      EXPECT_EQ(read(run, "a.weight", WEFT_GRAD, {6, 8}), read(reference, "a.weight", WEFT_GRAD, {6, 8}));
      EXPECT_EQ(digest(run), digest(reference));
      EXPECT_EQ(step(run, batch, WEFT_FORWARD).outputs, step(reference, batch, WEFT_FORWARD).outputs);
      EXPECT_EQ(square.forwards, 4 * 3);
      EXPECT_EQ(square.backwards, 3 * 3);
    }
    EXPECT_EQ(square.destroyed, 1);
  }
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
void expect_failed(const RunPtr& run, const std::vector<weft_tensor*>& batch, int good_steps, std::initializer_list<const char*> parts) {
  int released = 0;
  float data[6 * 6] = {};
  const weft_desc d = desc({6, 6});
  weft_tensor* mine = nullptr;
  auto release = [](void*, void* payload) { ++*static_cast<int*>(payload); };
  ASSERT_EQ(weft_tensor_wrap(&d, data, release, &released, &mine, nullptr), WEFT_OK);
  for (uint64_t tag = 0; tag < 5; ++tag) ASSERT_EQ(submit(run, {mine, batch[1]}, WEFT_TRAIN, tag), WEFT_OK);
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
    EXPECT_EQ(outcome.text.rfind("rank " + std::to_string(outcome.rank), 0), 0u) << outcome.rank << " and " << outcome.text;
    for (const char* part : parts) EXPECT_NE(outcome.text.find(part), std::string::npos) << outcome.text;
  }
  EXPECT_EQ(released, 1);
  weft_event event = WEFT_EVENT_INIT;
  EXPECT_EQ(weft_run_poll(run.get(), &event, -1), 0);
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

// Each rank has come as far as it had: that is no state of any step, which a checkpoint would make it.
TEST_P(UserOpTest, AFailedRunIsNeitherReadNorSaved) {
  Square square;
  square.fail_forward_at = 4;
  const RunPtr run = start(squaring_model(&square), plan_config(2));
  EXPECT_EQ(step(run, batch, WEFT_TRAIN, 1).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
  EXPECT_EQ(step(run, batch, WEFT_TRAIN, 2).status, WEFT_EUSER);
  std::string own = testing::TempDir() + "/weft-failed-XXXXXX";
  ASSERT_NE(mkdtemp(own.data()), nullptr);
  const std::string place = own + "/checkpoints";
  weft_save_config save = WEFT_SAVE_INIT;
  save.directory = place.c_str();
  char text[33];
  Error err;
  expect_error(weft_run_save(run.get(), &save, &err), err, WEFT_EUSER, {"the run has failed", "'squares'"});
  EXPECT_FALSE(std::filesystem::exists(place));
  std::filesystem::remove_all(own);
  expect_error(weft_run_digest(run.get(), text, &err), err, WEFT_EUSER, {"the run has failed"});
  expect_error(weft_run_read(run.get(), "a.bias", WEFT_VALUE, zeros({8}).get(), &err), err, WEFT_EUSER, {"the run has failed"});
}

// ---- registering ----

TEST(UserOpRegistration, SaysWhatIsMissing) {
  Square square;
  const ModelPtr model = new_model();
  auto refused = [&](auto change, std::initializer_list<const char*> parts) {
    weft_op op = square_op();
    change(op);
    Error err;
    expect_error(weft_model_add_op(model.get(), &op, &square, &err), err, WEFT_EINVAL, parts);
  };
  refused([](weft_op& op) { op.name = nullptr; }, {"op name is NULL"});
  refused([](weft_op& op) { op.name = ""; }, {"op name", "1 to 200 bytes, has 0"});
  refused([](weft_op& op) { op.name = "a b\n"; }, {"op name", "space or control character"});
  const std::string endless(100000, 'a');
  refused([&](weft_op& op) { op.name = endless.c_str(); }, {"op name", "has 100000"});
  refused([](weft_op& op) { op.shape = nullptr; }, {"'square'", "shape is NULL"});
  refused([](weft_op& op) { op.forward = nullptr; }, {"'square'", "forward is NULL"});
  refused([](weft_op& op) { op.name = "relu"; }, {"'relu'", "built in"});
  const weft_op op = square_op();
  EXPECT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  refused([](weft_op&) {}, {"'square'", "registered already"});
  EXPECT_EQ(square.destroyed, 0) << "after a failure the payload is the caller's";
}

TEST(UserOpRegistration, IsRefusedAfterAPlan) {
  Square square;
  const ModelPtr model = small_model();
  new_plan(model, plan_config());
  const weft_op op = square_op();
  Error err;
  expect_error(weft_model_add_op(model.get(), &op, &square, &err), err, WEFT_ESTATE, {"finished", "ops"});
  EXPECT_EQ(square.destroyed, 0) << "after a failure the payload is the caller's";
}

TEST(UserOpRegistration, TheNameIsCopied) {
  Square square;
  const ModelPtr model = new_model();
  std::string name = "mine";
  weft_op op = square_op();
  op.name = name.data();
  ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  name = "####";
  add_node(model, "mine", {add_input(model, "x", {1, 2})});
}

weft_status add_squares(const ModelPtr& model, std::vector<weft_value> inputs, Error& err) {
  weft_node_config config = WEFT_NODE_INIT;
  config.op = "square";
  config.name = "n";
  config.inputs = inputs.data();
  config.n_inputs = static_cast<uint32_t>(inputs.size());
  weft_value out = {};
  return weft_model_add_node(model.get(), &config, &out, &err);
}

TEST(UserOpRegistration, AFailingShapeIsAnErrorOfTheNode) {
  Square square;
  const ModelPtr model = new_model();
  const weft_op op = square_op();
  ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  const weft_value x = add_input(model, "x", {1, 2});
  Error err;
  expect_error(add_squares(model, {x, x}, err), err, WEFT_EUSER, {"node 'n'", "shape returned 5"});
}

TEST(UserOpRegistration, AShapeThatRefusesTheMicroBatchIsAnErrorOfThePlan) {
  Square square;
  weft_op op = square_op();
  op.shape = [](const weft_desc* in, uint32_t, weft_desc* out, void*) {
    *out = in[0];
    return in[0].dims[0] > 2 ? 5 : 0;
  };
  const ModelPtr model = squaring_model(&square, 0, op);
  weft_plan_config config = plan_config(1, 2, 3);
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EUSER, {"squares", "3 samples", "shape returned 5"});
  for (const char* schedule : {"auto", "gpipe"}) {
    config.schedule = schedule;
    expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EUSER, {"squares", "3 samples", "shape returned 5"});
    weft_comparison* comparison = nullptr;
    expect_error(weft_plan_compare(model.get(), &config, &comparison, &err), err, WEFT_EUSER, {"squares", "shape returned 5"});
  }
  weft_workers workers = WEFT_WORKERS_INIT;
  expect_error(weft_plan_workers(model.get(), &config, 2, nullptr, 0, &workers, &err), err, WEFT_EUSER, {"squares", "shape returned 5"});
  config.micro_batch_size = 2;
  EXPECT_EQ(weft_plan_new(model.get(), &config, &plan, &err), WEFT_OK) << err.text;
  weft_plan_free(plan);
}

// A callback that takes no 0 samples, and none at all once the plan is made, when nobody could be told.
TEST(UserOpRegistration, AShapeIsAskedForSamplesThatThereAreAndNeverAfterThePlan) {
  static bool planned;
  planned = false;
  Square square;
  weft_op op = square_op();
  op.shape = [](const weft_desc* in, uint32_t, weft_desc* out, void*) {
    *out = in[0];
    return planned || in[0].dims[0] < 1 ? 5 : 0;
  };
  const ModelPtr model = squaring_model(&square, 0, op);
  weft_profile_config profile_config = WEFT_PROFILE_INIT;
  profile_config.repeats = 1;
  weft_profile* profile = nullptr;
  Error err;
  ASSERT_EQ(weft_profile_new(model.get(), &profile_config, &profile, &err), WEFT_OK) << err.text;
  weft_profile_free(profile);
  for (const uint32_t short_size : {0u, 1u}) {
    planned = false;
    weft_plan_config config = plan_config(2, 3, 2);
    config.short_size = short_size;
    const PlanPtr plan = new_plan(model, config);
    planned = true;
    weft_prediction* prediction = nullptr;
    ASSERT_EQ(weft_plan_simulate(plan.get(), 0, &prediction, &err), WEFT_OK) << err.text;
    weft_prediction_free(prediction);
    const RunPtr run = start(plan);
    const int64_t samples = short_size ? 5 : 6;
    EXPECT_EQ(step(run, {noise({samples, 6}).get(), noise({samples, 3}).get()}).status, WEFT_OK);
  }
  weft_plan* refused = nullptr;
  const weft_plan_config config = plan_config();
  expect_error(weft_plan_new(model.get(), &config, &refused, &err), err, WEFT_EUSER, {"'squares'", "shape returned 5"});
  profile = nullptr;
  expect_error(weft_profile_new(model.get(), &profile_config, &profile, &err), err, WEFT_EUSER, {"'squares'", "shape returned 5"});
}

// Gradients are summed as F32 where a value has several uses, so there are no others.
TEST(UserOpRegistration, OnlyF32HasAGradient) {
  Square square;
  weft_op op = square_op();
  op.shape = [](const weft_desc* in, uint32_t, weft_desc* out, void*) {
    *out = in[0];
    out->dtype = WEFT_F64;
    return 0;
  };
  const ModelPtr wide = new_model();
  ASSERT_EQ(weft_model_add_op(wide.get(), &op, &square, nullptr), WEFT_OK);
  Error err;
  expect_error(add_squares(wide, {add_input(wide, "x", {1, 2})}, err), err, WEFT_EINVAL, {"node 'n'", "f64[1,2]", "f32 or i32"});

  op.shape = [](const weft_desc* in, uint32_t, weft_desc* out, void*) {
    *out = in[0];
    out->dtype = in[0].dtype == WEFT_F32 ? WEFT_I32 : WEFT_F32;
    return 0;
  };
  for (const bool trained : {false, true}) {
    const ModelPtr model = new_model();
    ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
    weft_value x = add_input(model, "x", {1, 3});
    if (trained) x = add_linear(model, "below", x, 3);
    const weft_value whole = add_node(model, "square", {x}, "whole");
    const weft_value both = add_node(model, "add", {add_node(model, "square", {whole}), add_node(model, "square", {whole})});
    add_node(model, "mse", {add_linear(model, "above", both, 3), add_input(model, "y", {1, 3})});
    const weft_plan_config config = plan_config();
    weft_plan* out = nullptr;
    if (trained) {
      expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL, {"node 'whole'", "i32[1,3]", "only f32"});
    } else {
      EXPECT_EQ(weft_plan_new(model.get(), &config, &out, &err), WEFT_OK) << err.text;
    }
    weft_plan_free(out);
  }
}

TEST(UserOpRegistration, AShapeThatIsNotInProportionIsAnErrorOfThePlan) {
  Square square;
  weft_op op = square_op();
  op.shape = [](const weft_desc* in, uint32_t, weft_desc* out, void*) {
    *out = in[0];
    if (in[0].dims[0] > 2) out->dims[1] = 1;
    return 0;
  };
  const ModelPtr model = squaring_model(&square, 0, op);
  weft_plan_config config = plan_config(1, 2, 3);
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL, {"squares", "f32[3,1]", "f32[1,8]"});
}

TEST(UserOpRegistration, AShapeMustKeepTheBatch) {
  Square square;
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 2});
  weft_op op = square_op();
  op.shape = [](const weft_desc* in, uint32_t, weft_desc* out, void*) -> int32_t {
    *out = in[0];
    std::swap(out->dims[0], out->dims[1]);
    return 0;
  };
  ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  Error err;
  expect_error(add_squares(model, {x}, err), err, WEFT_EINVAL, {"node 'n'", "samples"});

  const ModelPtr other = new_model();
  const weft_value z = add_input(other, "x", {1, 2});
  op.shape = [](const weft_desc*, uint32_t, weft_desc* out, void*) -> int32_t {
    out->rank = 99;
    return 0;
  };
  ASSERT_EQ(weft_model_add_op(other.get(), &op, &square, nullptr), WEFT_OK);
  expect_error(add_squares(other, {z}, err), err, WEFT_EINVAL, {"node 'n'", "shape's output"});
}

TEST(UserOpRegistration, WithoutBackwardItCanStillRunForward) {
  Square square;
  weft_op op = square_op();
  op.backward = nullptr;
  const ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 6});
  ASSERT_EQ(weft_model_add_op(model.get(), &op, &square, nullptr), WEFT_OK);
  ASSERT_EQ(weft_model_add_output(model.get(), add_node(model, "square", {x}), nullptr), WEFT_OK);
  const RunPtr run = start(model, plan_config());
  const TensorPtr in = noise({2, 6}, 5);
  const auto outputs = step(run, {in.get()}, WEFT_FORWARD).outputs;
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(outputs[0][0][i], floats(in)[i] * floats(in)[i]);
}

// Weights under an op without a gradient cannot be trained; that is said, not left at zero.
TEST(UserOpRegistration, WithoutBackwardItCannotBeTrainedThrough) {
  Square square;
  weft_op op = square_op();
  op.backward = nullptr;
  const ModelPtr model = squaring_model(&square, 0, op);
  const weft_plan_config config = plan_config();
  weft_plan* out = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &out, &err), err, WEFT_EINVAL, {"'squares'", "gradient"});
  weft_plan_free(out);
}

}  // namespace
