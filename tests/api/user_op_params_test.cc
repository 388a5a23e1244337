// User ops with parameters and a stash take part in everything that built-in ops do.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>

#include "api/low_rank_model.h"

namespace {

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
  MeshPtr mesh(made);
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
  } else {
    mesh.reset();  // so that they end
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

TEST(UserOpParams, APlanFileMakesTheSamePlanWithTheSameOp) {
  const std::string path = testing::TempDir() + "/user-op-plan-" + std::to_string(getpid());
  weft_plan_config config = four(3);
  config.schedule = "zb-h1";
  Error err;
  ASSERT_EQ(weft_plan_save(new_plan(low_rank_model(), config).get(), path.c_str(), &err), WEFT_OK)
      << err.text;
  const auto load = [&](const ModelPtr& model) {
    weft_plan* out = nullptr;
    weft_plan_load(model.get(), path.c_str(), &out, &err);
    return PlanPtr(out);
  };
  const PlanPtr loaded = load(low_rank_model());
  ASSERT_TRUE(loaded) << err.text;
  weft_prediction* prediction = nullptr;
  EXPECT_EQ(weft_plan_simulate(loaded.get(), 0, &prediction, &err), WEFT_OK) << err.text;
  weft_prediction_free(prediction);
  EXPECT_EQ(train(start(loaded)), train(low_rank_model(), four()));

  weft_op other = low_rank_op();
  other.backward_reads = WEFT_OP_READS_ALL;
  EXPECT_FALSE(load(low_rank_model(other)));
  expect_error(err.status, err, WEFT_EINVAL, {path.c_str(), "hash"});
  std::remove(path.c_str());
}

}  // namespace
