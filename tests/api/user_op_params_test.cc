// User ops with parameters and a stash take part in everything that built-in ops do.
#include <cmath>
#include <thread>

#include "api/api.h"
#include "support/low_rank_op.h"

namespace {

void add_low_rank_op(const ModelPtr& model, const weft_op& op = low_rank_op()) {
  Error err;
  EXPECT_EQ(weft_model_add_op(model.get(), &op, nullptr, &err), WEFT_OK) << err.text;
}

weft_param add_param(const ModelPtr& model, const char* name, std::initializer_list<int64_t> dims) {
  const weft_desc d = desc(dims);
  weft_param out = {};
  Error err;
  EXPECT_EQ(weft_model_add_param(model.get(), name, &d, WEFT_INIT_NORMAL, 0.4, &out, &err), WEFT_OK)
      << err.text;
  return out;
}

weft_status add_node(const ModelPtr& model, const char* op, const char* name, weft_value x,
                     std::vector<weft_param> params, weft_value* out, Error& err) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = op;
  config.name = name;
  config.inputs = &x;
  config.n_inputs = 1;
  config.params = params.data();
  config.n_params = static_cast<uint32_t>(params.size());
  return weft_model_add_node(model.get(), &config, out, &err);
}

weft_value add_node(const ModelPtr& model, const char* op, const char* name, weft_value x,
                    std::vector<weft_param> params) {
  weft_value out = {};
  Error err;
  EXPECT_EQ(add_node(model, op, name, x, std::move(params), &out, err), WEFT_OK) << err.text;
  return out;
}

using AddLowRank = weft_value (*)(const ModelPtr&, const char*, weft_value, weft_param, weft_param);

weft_value add_own(const ModelPtr& model, const char* name, weft_value x, weft_param a,
                   weft_param b) {
  return add_node(model, "low_rank", name, x, {a, b});
}

// The same from built-in ops.
weft_value add_built_in(const ModelPtr& model, const char*, weft_value x, weft_param a,
                        weft_param b) {
  const weft_value low = add_node(model, "linear", nullptr, x, {a});
  return add_node(model, "add", {x, add_node(model, "linear", nullptr, low, {b})});
}

// x [6] -> 8, then two nodes with the same A and B and one with its own, -> 3; all of it is below
// a loss. The values after the last of them are an output.
ModelPtr low_rank_model(const weft_op& op = low_rank_op(), AddLowRank add = add_own,
                        bool tied = true) {
  ModelPtr model = new_model();
  add_low_rank_op(model, op);
  const weft_value x = add_input(model, "x", {1, 6}, WEFT_INPUT_WANT_GRAD),
                   y = add_input(model, "y", {1, 3});
  const weft_param a = add_param(model, "own.a", {8, 2}), b = add_param(model, "own.b", {2, 8}),
                   c = add_param(model, "own.c", {8, 4}), d = add_param(model, "own.d", {4, 8}),
                   e = tied ? a : add_param(model, "own.e", {8, 2}),
                   f = tied ? b : add_param(model, "own.f", {2, 8});
  weft_value h = add_node(model, "linear", "in", x, {add_param(model, "in.weight", {6, 8})});
  h = add(model, "first", h, a, b);
  h = add(model, "second", add_node(model, "tanh", {h}, "middle"), c, d);
  h = add(model, "third", add_node(model, "tanh", {h}), e, f);
  Error err;
  EXPECT_EQ(weft_model_add_output(model.get(), h, &err), WEFT_OK) << err.text;
  h = add_node(model, "linear", "out", h, {add_param(model, "out.weight", {8, 3})});
  add_node(model, "mse", {h, y});
  return model;
}

const TensorPtr& batch_x() {
  static const TensorPtr x = noise({12, 6}, 1);
  return x;
}
const TensorPtr& batch_y() {
  static const TensorPtr y = noise({12, 3}, 2);
  return y;
}

// The results of some steps.
struct Trained {
  std::vector<double> losses;
  std::string digest;
  std::vector<std::vector<std::vector<float>>> outputs;
  friend bool operator==(const Trained&, const Trained&) = default;
};

Trained train_only(const RunPtr& run) {
  Trained out;
  weft_tensor* batch[] = {batch_x().get(), batch_y().get()};
  Error err;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(weft_run_step(run.get(), batch, 2, WEFT_TRAIN, &out.losses.emplace_back(), &err),
              WEFT_OK)
        << err.text;
  out.digest = digest(run);
  EXPECT_LT(out.losses.back(), out.losses.front());
  return out;
}

Trained train(const RunPtr& run) {
  Trained out = train_only(run);
  out.outputs = step(run, {batch_x().get(), batch_y().get()}, WEFT_FORWARD).outputs;
  return out;
}

Trained train(const ModelPtr& model, const weft_plan_config& config, uint32_t threads = 0) {
  return train(start(model, config, threads));
}

// 12 samples as 4 micro-batches.
weft_plan_config four(uint32_t ranks = 1) { return plan_config(ranks, 4, 3); }

TEST(UserOpParams, HaveTheGradientsOfTheSameFromBuiltInOps) {
  const RunPtr own = start(low_rank_model(), four()),
               built_in = start(low_rank_model(low_rank_op(), add_built_in), four());
  EXPECT_NEAR(step(own, {batch_x().get(), batch_y().get()}).loss,
              step(built_in, {batch_x().get(), batch_y().get()}).loss, 1e-5);
  const auto compare = [&](const char* name, std::initializer_list<int64_t> dims) {
    const auto found = read(own, name, WEFT_GRAD, dims),
               expected = read(built_in, name, WEFT_GRAD, dims);
    double most = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-5) << name << ", element " << i;
      most = std::max(most, std::fabs(static_cast<double>(expected[i])));
    }
    EXPECT_GT(most, 1e-3) << name;
  };
  compare("own.a", {8, 2});
  compare("own.b", {2, 8});
  compare("own.c", {8, 4});
  compare("own.d", {4, 8});
  compare("in.weight", {6, 8});
  compare("x", {12, 6});
}

TEST(UserOpParams, HaveOneDigestOverSchedulesRanksThreadsAndRecomputation) {
  const Trained expected = train(low_rank_model(), four());
  weft_schedule_info schedule = sized<weft_schedule_info>();
  int turn = 0;
  for (uint32_t i = 0; weft_schedule_describe(i, &schedule) == WEFT_OK; ++i) {
    if (schedule.asynchronous || schedule.forward_only) continue;
    for (const uint32_t ranks : {2u, 3u}) {
      weft_plan_config config = four(ranks);
      config.schedule = schedule.name;
      const char* recomputes[] = {"none", "stage", "every:1"};
      config.recompute = recomputes[turn % 3];
      const uint32_t threads = static_cast<uint32_t>(turn++ % 4);
      EXPECT_EQ(train(low_rank_model(), config, threads), expected)
          << schedule.name << ", " << ranks << " ranks, " << threads << " threads, recompute "
          << config.recompute;
    }
  }
  EXPECT_GT(turn, 16);
}

TEST(UserOpParams, HaveOneDigestOverReplicasThatDivideParameters) {
  weft_plan_config config = four();
  config.gradient_groups = 2;
  const Trained expected = train_only(start(low_rank_model(), config));
  const weft_axis axes[] = {{"data", 2, 0}, {"stage", 2, 0}};
  config.axes = axes;
  config.n_axes = 2;
  for (const char* shard : {"none", "optimizer", "parameters"})
    for (const char* schedule : {"1f1b", "zb-h1"}) {
      config.shard = shard;
      config.schedule = schedule;
      EXPECT_EQ(train_only(start(low_rank_model(), config)), expected) << shard << ", " << schedule;
    }
}

TEST(UserOpParams, HaveOneDigestOverRanksThatShareAStage) {
  weft_plan_config config = four();
  config.tensor = 2;
  const Trained expected = train(low_rank_model(), config);
  config.tensor = 0;
  const weft_axis axes[] = {{"stage", 2, 0}, {"tensor", 2, 0}};
  config.axes = axes;
  config.n_axes = 2;
  EXPECT_EQ(train(low_rank_model(), config, 1), expected);
}

// Schedules with stale weights: the weights of a backward are those of its forward.
TEST(UserOpParams, WorkWithStaleWeights) {
  for (const std::string schedule : {"pipedream", "pipedream-2bw"}) {
    weft_plan_config config = plan_config(2, schedule == "pipedream" ? 1 : 2, 3);
    config.segment = 4 / config.micro_batches;
    const char* cut = "middle";  // how stale weights are depends on the stages
    config.cuts = &cut;
    config.n_cuts = 1;
    config.schedule = schedule.c_str();
    const auto trained = [&](AddLowRank add, uint32_t threads) {
      return train_only(start(low_rank_model(low_rank_op(), add, false), config, threads));
    };
    const Trained own = trained(add_own, 0), built_in = trained(add_built_in, 0);
    EXPECT_EQ(trained(add_own, 2), own) << schedule;
    for (size_t i = 0; i < own.losses.size(); ++i)
      EXPECT_NEAR(own.losses[i], built_in.losses[i], 1e-4) << schedule;
  }
}

// Ranks 1 and 2 get the plan from rank 0 and have only the op.
TEST(UserOpParams, HaveOneDigestInRanksThatJoinWithTheOp) {
  const Trained expected = train(low_rank_model(), four());
  weft_mesh* made = nullptr;
  Error err;
  ASSERT_EQ(weft_mesh_listen(nullptr, &made, &err), WEFT_OK) << err.text;
  const MeshPtr mesh(made);
  const auto serve = [endpoint = std::string(weft_mesh_endpoint(made))] {
    const ModelPtr ops = new_model();
    add_low_rank_op(ops);
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = endpoint.c_str();
    weft_mesh* own = nullptr;
    Error theirs;
    EXPECT_EQ(weft_mesh_join(&config, &own, &theirs), WEFT_OK) << theirs.text;
    EXPECT_EQ(weft_run_serve(own, nullptr, ops.get(), nullptr, &theirs), WEFT_OK) << theirs.text;
    weft_mesh_free(own);
  };
  std::thread first(serve), second(serve);
  weft_plan_config config = four(3);
  config.schedule = "zb-h1";
  const PlanPtr plan = new_plan(low_rank_model(), config);
  weft_run* run = nullptr;
  EXPECT_EQ(weft_run_start(plan.get(), mesh.get(), nullptr, &run, &err), WEFT_OK) << err.text;
  if (run) {
    EXPECT_EQ(train(RunPtr(run)), expected);
  }
  first.join();
  second.join();
}

TEST(UserOpParams, HaveOneDigestAtTheCoordinatesOfAProgram) {
  const auto program = [] {
    ModelPtr model = new_model();
    add_low_rank_op(model);
    Error err;
    EXPECT_EQ(weft_model_add_axis(model.get(), "half", 2, &err), WEFT_OK) << err.text;
    const weft_value x = add_input(model, "x", {1, 6}), y = add_input(model, "y", {1, 3});
    const weft_param a = add_param(model, "own.a", {8, 4}), b = add_param(model, "own.b", {4, 8});
    EXPECT_EQ(weft_model_cut_param(model.get(), a, 1, "half", 0, &err), WEFT_OK) << err.text;
    EXPECT_EQ(weft_model_cut_param(model.get(), b, 0, "half", 0, &err), WEFT_OK) << err.text;
    const weft_value part = add_own(model, "part", add_linear(model, "in", x, 8), a, b);
    weft_node_config sum = defaults(weft_node_config_init);
    sum.op = "all_reduce";
    sum.axis_name = "half";
    sum.inputs = &part;
    sum.n_inputs = 1;
    weft_value h = {};
    EXPECT_EQ(weft_model_add_node(model.get(), &sum, &h, &err), WEFT_OK) << err.text;
    EXPECT_EQ(weft_model_add_output(model.get(), h, &err), WEFT_OK) << err.text;
    add_node(model, "mse", {add_linear(model, "out", h, 3), y});
    return model;
  };
  weft_plan_config config = four();
  const Trained expected = train(program(), config);
  const weft_axis axes[] = {{"stage", 2, 0}, {"half", 2, 0}};
  config.axes = axes;
  config.n_axes = 2;
  EXPECT_EQ(train(program(), config, 1), expected);
}

// A gradient of a micro-batch is added to the sum of the step whether the callback writes it, adds
// to it, or does both.
TEST(UserOpParams, AGradientMayBeWrittenOrAdded) {
  weft_op adds = low_rank_op(), writes = low_rank_op();
  adds.backward = [](const weft_op_call* call) -> int32_t {
    const weft_view& grad = call->grad_inputs[0];
    if (!grad.data) return 0;
    std::vector<float> made(static_cast<size_t>(elements(grad.desc)));
    weft_view here = grad;
    here.data = made.data();
    weft_op_call inner = *call;
    inner.grad_inputs = &here;
    LowRank::backward(&inner);
    for (size_t i = 0; i < made.size(); ++i) static_cast<float*>(grad.data)[i] += made[i];
    return 0;
  };
  writes.backward_params = [](const weft_op_call* call) -> int32_t {
    std::vector<float> made[2];
    std::vector<weft_view> views(call->grad_params, call->grad_params + 2);
    for (size_t p = 0; p < 2; ++p) {
      if (!views[p].data) continue;
      made[p].resize(static_cast<size_t>(elements(views[p].desc)));
      views[p].data = made[p].data();
    }
    weft_op_call inner = *call;
    inner.grad_params = views.data();
    LowRank::backward_params(&inner);
    for (size_t p = 0; p < 2; ++p)
      for (size_t i = 0; i < made[p].size(); ++i)
        static_cast<float*>(call->grad_params[p].data)[i] = made[p][i];
    return 0;
  };
  const Trained expected = train(low_rank_model(), four());
  EXPECT_EQ(train(low_rank_model(adds), four()), expected);
  EXPECT_EQ(train(low_rank_model(writes), four()), expected);
}

TEST(UserOpParams, AGradientSeesWhatItSaysThatItReads) {
  weft_op op = low_rank_op();
  op.backward = [](const weft_op_call* call) -> int32_t {
    const bool others = call->inputs[0].data || call->output.data || call->stash.data;
    return others || !call->params[0].data || call->grad_params ? 8 : LowRank::backward(call);
  };
  op.backward_params = [](const weft_op_call* call) -> int32_t {
    const bool all = call->inputs[0].data && call->params[1].data && call->stash.data;
    return !all || call->output.data || call->grad_inputs ? 9 : LowRank::backward_params(call);
  };
  EXPECT_EQ(train(low_rank_model(op), four()), train(low_rank_model(), four()));
}

TEST(UserOpParams, WhatNoGradientReadsIsNotKept) {
  weft_op all = low_rank_op();
  all.backward_reads = all.backward_params_reads = WEFT_OP_READS_ALL;
  weft_plan_config config = four();
  config.schedule = "gpipe";
  const PlanPtr more = new_plan(low_rank_model(all), config),
                less = new_plan(low_rank_model(), config);
  // The outputs of `first` and `second`, f32[3,8], of each of 4 micro-batches: tanh reads its own.
  EXPECT_GT(weft_plan_bytes(more.get(), 0), weft_plan_bytes(less.get(), 0));
  EXPECT_EQ(train(low_rank_model(all), config), train(low_rank_model(), config));
}

// A stash of the samples and one that does not depend on them, with full and short micro-batches.
TEST(UserOpParams, AStashMayGrowWithTheSamplesOrNot) {
  weft_op constant = low_rank_op();
  constant.shape = [](weft_op_call* call) -> int32_t {
    const int32_t code = LowRank::shape(call);
    call->stash.desc = desc({64}, WEFT_I32);  // room for up to 3 samples
    return code;
  };
  weft_plan_config config = plan_config(2, 4, 3);
  config.short_size = 2;
  const TensorPtr x = noise({11, 6}, 3), y = noise({11, 3}, 4);
  std::string digests[2];
  for (int i = 0; i < 2; ++i) {
    const RunPtr run = start(low_rank_model(i ? constant : low_rank_op()), config);
    EXPECT_EQ(step(run, {x.get(), y.get()}).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
    digests[i] = digest(run);
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(UserOpParams, ProfilesHaveTheTimesAndTheStashOfTheOp) {
  const ModelPtr model = low_rank_model();
  weft_profile_config config = defaults(weft_profile_config_init);
  config.repeats = 3;
  config.micro_batch_size = 3;
  weft_profile* profile = nullptr;
  Error err;
  ASSERT_EQ(weft_profile_new(model.get(), &config, &profile, &err), WEFT_OK) << err.text;
  weft_node_times times = sized<weft_node_times>();
  for (uint32_t i = 0; weft_profile_node(profile, i, &times) == WEFT_OK; ++i)
    if (std::string(times.name) == "second") break;
  EXPECT_STREQ(times.name, "second");
  EXPECT_GT(times.forward_ns, 0);
  EXPECT_GT(times.input_ns, 0);
  EXPECT_GT(times.weight_ns, 0);
  EXPECT_EQ(times.stash_bytes, 3u * 4 * 4);
  weft_profile_free(profile);
}

struct Refusal {
  const char* what;
  void (*change)(weft_op& op);
  std::vector<const char*> parts;
};

TEST(UserOpParams, AWrongStashIsRefusedWithTheNode) {
  const Refusal rows[] = {
      {"samples",
       [](weft_op& op) {
         op.shape = [](weft_op_call* call) -> int32_t {
           LowRank::shape(call);
           call->stash.desc.dims[1] = call->inputs[0].desc.dims[0];
           return 0;
         };
       },
       {"node 'n' (low_rank)", "stash mixes samples", "f32[1,1]", "f32[2,2]"}},
      {"dtype",
       [](weft_op& op) {
         op.shape = [](weft_op_call* call) -> int32_t {
           LowRank::shape(call);
           call->stash.desc.dtype = WEFT_F64;
           return 0;
         };
       },
       {"node 'n' (low_rank)", "shape's stash is f64[1,2]", "f32 or i32"}},
      {"only for two",
       [](weft_op& op) {
         op.shape = [](weft_op_call* call) -> int32_t {
           LowRank::shape(call);
           if (call->inputs[0].desc.dims[0] == 1) call->stash.desc = {};
           return 0;
         };
       },
       {"node 'n' (low_rank)", "the stash depends on the number of samples"}},
  };
  for (const Refusal& row : rows) {
    SCOPED_TRACE(row.what);
    const ModelPtr model = new_model();
    weft_op op = low_rank_op();
    row.change(op);
    add_low_rank_op(model, op);
    Error err;
    weft_value out = {};
    const weft_value x = add_input(model, "x", {1, 8});
    const weft_param a = add_param(model, "a", {8, 2}), b = add_param(model, "b", {2, 8});
    EXPECT_EQ(add_node(model, "low_rank", "n", x, {a, b}, &out, err), WEFT_EINVAL);
    for (const char* part : row.parts)
      EXPECT_NE(std::strstr(err.text, part), nullptr) << part << " is not in: " << err.text;
  }
}

TEST(UserOpParams, WrongParametersAreRefusedWithTheReasonAndTheShapes) {
  const ModelPtr model = new_model();
  add_low_rank_op(model);
  Error err;
  weft_value out = {};
  const weft_value x = add_input(model, "x", {1, 8});
  const weft_param a = add_param(model, "a", {8, 2}), b = add_param(model, "b", {3, 8});
  expect_error(add_node(model, "low_rank", "n", x, {a, b}, &out, err), err, WEFT_EUSER,
               {"node 'n' (low_rank)", "shape returned 3: expected x [n, width], A [width, rank]",
                "inputs: f32[1,8]", "parameters: f32[8,2], f32[3,8]"});
  expect_error(add_node(model, "low_rank", "n", x, {}, &out, err), err, WEFT_EUSER,
               {"one input and two parameters", "parameters: none"});
}

TEST(UserOpParams, TheReasonOfAFailureIsInTheError) {
  weft_op op = low_rank_op();
  op.backward_params = [](const weft_op_call* call) -> int32_t {
    std::memset(call->err->text, 'z', sizeof call->err->text);
    std::memcpy(call->err->text, "no\tluck", 7);
    return -4;
  };
  const RunPtr run = start(low_rank_model(op), four());
  const Outcome outcome = step(run, {batch_x().get(), batch_y().get()});
  EXPECT_EQ(outcome.status, WEFT_EUSER);
  EXPECT_NE(outcome.text.find("node 'third' (low_rank)"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("backward_params returned -4: no\\x09luckzzz"), std::string::npos)
      << outcome.text;
}

TEST(UserOpParams, WithoutTheirGradientTheyCannotBeTrained) {
  weft_op op = low_rank_op();
  op.backward_params = nullptr;
  const ModelPtr model = low_rank_model(op);
  const weft_plan_config config = four();
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"(low_rank)", "has no gradient for its parameters"});

  const ModelPtr forward = new_model();
  add_low_rank_op(forward, op);
  const weft_value x = add_input(forward, "x", {1, 8});
  const weft_param a = add_param(forward, "a", {8, 2}), b = add_param(forward, "b", {2, 8});
  EXPECT_EQ(weft_model_add_output(forward.get(), add_own(forward, "n", x, a, b), &err), WEFT_OK);
  const RunPtr run = start(forward, plan_config());
  EXPECT_EQ(step(run, {noise({6, 8}).get()}, WEFT_FORWARD).outputs.size(), 3u);
}

}  // namespace
