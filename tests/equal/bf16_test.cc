// Values in bf16, of all nodes or of some: one digest over schedules, ranks, replicas, shards and
// threads, whether packed weights are kept or not, and half the bytes in messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/presets.h"
#include "plan/encode.h"
#include "runtime/parameter_access.h"
#include "runtime/run.h"
#include "runtime/worker.h"
#include "support/cases.h"
#include "support/small_gpt.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

using test::Outcome;
using test::schedules_for;
using test::small_gpt;
using test::train;
using test::train_on_one_rank;

PlanConfig bf16_config() {
  PlanConfig config = test::small_gpt_config();
  config.precision = "bf16";
  return config;
}

// The parameter: nodes that have f32.
class Bf16 : public testing::TestWithParam<const char*> {
 protected:
  static PlanConfig base_config() {
    PlanConfig config = bf16_config();
    config.f32_nodes = GetParam();
    return config;
  }
};

INSTANTIATE_TEST_SUITE_P(Nodes, Bf16, testing::Values("", "lm_head,h.1.*"), [](const auto& test) {
  return std::string(*test.param ? "Some" : "All");
});

TEST_P(Bf16, OneDigestOverRanksSchedulesAndRecompute) {
  const auto model = small_gpt();
  const Outcome expected = train(model, base_config(), 11, 6);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  int turn = 0;
  for (const int32_t ranks : {1, 2, 3, 5}) {
    PlanConfig config = base_config();
    config.ranks = ranks;
    for (const ScheduleKind* kind : schedules_for(config)) {
      if (turn++ % test::kEvery != 0) continue;
      config.schedule = kind->name;
      const char* recomputes[] = {"none", "stage", "every:4"};
      config.recompute = recomputes[turn % 3];
      const int threads = turn % 4;
      EXPECT_EQ(train(model, config, 11, 6, threads), expected)
          << ranks << " ranks, " << kind->name << ", recompute " << config.recompute << ", "
          << threads << " threads";
    }
  }
}

TEST_P(Bf16, OneDigestOverReplicasAndShards) {
  const auto model = small_gpt();
  int turn = 0;
  for (const int32_t tensor : {1, 2}) {
    PlanConfig config = base_config();
    config.gradient_groups = 4;
    config.tensor = tensor;
    const Outcome expected = train_on_one_rank(model, config, 11, 6);
    for (const char* shard : {"none", "optimizer", "parameters"})
      for (const int32_t data : {1, 2, 4})
        for (int32_t shares = 1; shares <= tensor; ++shares) {
          if (turn++ % test::kEvery != 0) continue;
          config.shard = shard;
          config.data = data;
          config.shard_ranks = shares;
          config.ranks = data * shares * 2;
          EXPECT_EQ(train(model, config, 11, 6), expected)
              << "data " << data << ", shard " << shard << ", tensor " << tensor << " on "
              << shares;
        }
  }
}

size_t kept_packed(const Plan& plan, size_t rank) {
  size_t out = 0;
  for (const ResidentParam& param : plan.resident[rank])
    out += param.of(ResidentTensor::Role::packed).size();
  return out;
}

// From one byte below what rank 0 needs for all copies to what it needs for none, it keeps fewer
// and fewer. Rank 1 has room.
TEST_P(Bf16, KeepsThePackedWeightsForWhichALimitHasRoom) {
  const auto model = small_gpt();
  PlanConfig config = base_config();
  config.ranks = 2;
  const Outcome expected = train(model, config, 11, 3);
  const auto all = make_plan(model, config).take();
  EXPECT_EQ(all->config.packed, kAllPacked);
  config.cuts = all->config.cuts;
  config.packed.clear();
  const auto none = make_plan(model, config).take();
  config.packed = kAllPacked;
  ASSERT_GT(all->arena_bytes[0], none->arena_bytes[0]);
  constexpr int64_t kSteps = 4;
  size_t most = kept_packed(*all, 0);
  for (int64_t step = 1; step <= kSteps; ++step) {
    config.memory_limit =
        all->arena_bytes[0] - 1 -
        (step - 1) * (all->arena_bytes[0] - none->arena_bytes[0] - 1) / (kSteps - 1);
    const auto plan = make_plan(model, config).take();
    EXPECT_LE(plan->arena_bytes[0], config.memory_limit);
    const size_t kept = kept_packed(*plan, 0);
    EXPECT_LT(kept, most) << "step " << step;
    EXPECT_EQ(kept > 0, step < kSteps) << "step " << step;
    EXPECT_GT(kept_packed(*plan, 1), 0u) << "step " << step;
    most = kept;
    EXPECT_EQ(train(model, config, 11, 3), expected);
    const auto sent = decode_config(encode_config(plan->config));
    ASSERT_TRUE(sent.ok()) << sent.status().text();
    const auto received = make_plan(model, sent.value());
    ASSERT_TRUE(received.ok()) << received.status().text();
    EXPECT_EQ(received.value()->hash, plan->hash);
    EXPECT_EQ(received.value()->arena_bytes, plan->arena_bytes);
  }
}

// With several versions of the weights each call packs its own.
TEST_P(Bf16, AsynchronousSchedules) {
  const auto model =
      make_preset("gpt-nano:width=16,heads=4,blocks=3,tied=0,dropout=0", {.seq_len = 12})
          .take()
          .model;
  PlanConfig config = base_config();
  config.schedule = "pipedream";
  config.micro_batches = 1;
  config.short_size = 0;
  config.segment = 4;
  config.optim.clip = 0;
  config.ranks = 3;
  const Outcome inline_run = train(model, config, 12, 3);
  EXPECT_EQ(train(model, config, 12, 3, 2), inline_run);
  EXPECT_EQ(make_plan(model, config).take()->config.packed, "");
}

TEST(Bf16Values, AreNearFloat32AndHalveMessages) {
  const auto model = small_gpt();
  PlanConfig bf16 = bf16_config();
  PlanConfig f32 = bf16;
  f32.precision = "f32";
  const Outcome a = train(model, bf16, 11, 40), b = train(model, f32, 11, 40);
  EXPECT_NE(a.digest, b.digest);
  for (size_t s = 0; s < a.losses.size(); ++s)
    EXPECT_NEAR(a.losses[s], b.losses[s], 0.01 * b.losses[s]) << "step " << s;
  bf16.ranks = f32.ranks = 3;
  const auto bytes = [&](const PlanConfig& config, EdgeKind kind) {
    const auto plan = make_plan(model, config).take();
    size_t out = 0;
    for (const Edge& e : plan->mode(Mode::train).edges)
      if (e.kind == kind) out += e.desc[0].bytes();
    return out;
  };
  bf16.cuts = f32.cuts = {"h.0.c_fc", "h.1.c_fc"};
  for (const EdgeKind kind : {EdgeKind::forward, EdgeKind::gradient, EdgeKind::tie_value})
    EXPECT_EQ(2 * bytes(bf16, kind), bytes(f32, kind));
  for (const EdgeKind kind : {EdgeKind::feed, EdgeKind::tie_grad})
    EXPECT_EQ(bytes(bf16, kind), bytes(f32, kind));
}

// What only products and lookups read. The rank that updates it keeps float32.
TEST(Bf16Values, AreWhatReplicasGetOfMatrices) {
  const auto model = small_gpt();
  for (const char* shard : {"none", "optimizer", "parameters"})
    for (const char* f32_nodes : {"", "lm_head"}) {
      PlanConfig config = bf16_config();
      config.ranks = 4;
      config.data = config.gradient_groups = 2;
      config.shard = shard;
      config.f32_nodes = f32_nodes;
      const auto plan = make_plan(model, config).take();
      const auto dtype_of = [&](ParamId id) {
        const bool tied = model->param(id).name == "wte.weight";
        const bool read_as_f32 = model->param(id).shape.rank < 2 || (tied && *f32_nodes);
        return read_as_f32 ? DType::f32 : DType::bf16;
      };
      int sent = 0;
      for (const Edge& e : plan->mode(Mode::train).edges) {
        if (e.kind != EdgeKind::tie_value && e.kind != EdgeKind::gather) continue;
        EXPECT_EQ(e.desc[0].dtype, dtype_of(e.param)) << model->param(e.param).name;
        ++sent;
      }
      EXPECT_GT(sent, 0) << shard;
      for (const auto& rank : plan->resident)
        for (const ResidentParam& p : rank)
          EXPECT_EQ(p.dtype, p.updated ? DType::f32 : dtype_of(p.param))
              << model->param(p.param).name << ", shard " << shard;
    }
}

// Values that a program writes reach the ranks that get them when they read them.
TEST(Bf16Values, AreGatheredAsTheyWereWritten) {
  const auto model = small_gpt();
  PlanConfig config = bf16_config();
  config.gradient_groups = 2;
  const auto losses = [&](const PlanConfig& of) {
    const auto run = start_inline(make_plan(model, of).take(), [](void*) {}).take();
    for (ParamId id = 0; id < static_cast<ParamId>(model->params().size()); ++id) {
      std::vector<float> values(static_cast<size_t>(model->param(id).shape.elements()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = 0.01f * static_cast<float>(i % 19) - 0.05f * static_cast<float>(id % 3);
      EXPECT_TRUE(run->write(id, Part::value, values).ok());
    }
    return train(*run, 11, 2);
  };
  const Outcome expected = losses(config);
  config.data = config.ranks = 2;
  config.shard = "parameters";
  EXPECT_EQ(losses(config), expected);
}

// The value and the copy that other ranks get stay equal.
TEST(Bf16Values, AreThoseBeforeAWriteThatFails) {
  const auto model = small_gpt();
  PlanConfig config = bf16_config();
  config.data = config.ranks = config.gradient_groups = 2;
  const std::shared_ptr<const Plan> plan = make_plan(model, config).take();
  SerialTiles tiles;
  int copies = 0;
  for (const int32_t rank : {0, 1}) {
    const auto worker = Worker::make(plan, rank, tiles).take();
    for (const ResidentParam& p : plan->resident[static_cast<size_t>(rank)]) {
      if (p.of(ResidentTensor::Role::sent).empty()) continue;
      const auto count = static_cast<uint64_t>(model->param(p.param).shape.elements());
      const auto whole = [&] {
        return PartRange::find(*plan, worker->param(p.param), p.param, Part::value, 0, count)
            .take();
      };
      PartRange read = whole(), failing = whole(), after = whole();
      const std::vector<float> before(read.read().begin(), read.read().end());
      std::fill_n(failing.floats().data(), count, 42.f);  // and no store()
      EXPECT_TRUE(std::equal(before.begin(), before.end(), after.read().begin()));
      ++copies;
    }
  }
  EXPECT_GT(copies, 5);
}

TEST(Bf16Values, OfNoNodeAreFloat32) {
  const auto model = small_gpt();
  PlanConfig config = bf16_config();
  config.f32_nodes = "*";
  config.ranks = 2;
  const Outcome found = train(model, config, 11, 4);
  config.precision = "f32";
  config.f32_nodes = "";
  EXPECT_EQ(train(model, config, 11, 4), found);
}

// Those of a node, and their gradients.
TEST(Bf16Values, AreThoseOfTheOtherNodes) {
  const auto model = small_gpt();
  PlanConfig config = bf16_config();
  config.ranks = 2;
  config.cuts = {"h.1.c_fc"};
  config.f32_nodes = "h.1.ln_?";
  const auto plan = make_plan(model, config).take();
  int found = 0;
  for (const Edge& e : plan->mode(Mode::train).edges) {
    if (e.kind != EdgeKind::forward && e.kind != EdgeKind::gradient) continue;
    const auto& graph = plan->mode(Mode::train).graph;
    const std::string& name = model->node(graph.tensors[static_cast<size_t>(e.tensor)].node).name;
    const bool f32 = name == "h.1.ln_2";
    found += f32;
    EXPECT_EQ(e.desc[0].dtype, f32 ? DType::f32 : DType::bf16) << name;
  }
  EXPECT_EQ(found, 2);
  config.f32_nodes = "wte,nothing";
  EXPECT_EQ(make_plan(model, config).status().text(),
            "plan: pattern 'nothing' of f32_nodes matches none of the nodes, from 'wte' to 'loss'");
  config.precision = "f32";
  EXPECT_EQ(make_plan(model, config).status().text(),
            "plan: f32_nodes is 'wte,nothing', expected '' with precision f32");
}

}  // namespace
}  // namespace weft
