// Frozen parameters: one digest however a step is split, and no work, message or memory for
// gradients that nothing needs. Those that only products read are stored once for each form that
// the products read, in the type of the values.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "graph/presets.h"
#include "lowering/memory.h"
#include "lowering/parameters.h"
#include "support/bf16_reference.h"
#include "support/cases.h"
#include "support/small_gpt.h"

namespace weft {
namespace {

std::vector<ParamGroup> frozen(std::initializer_list<const char*> patterns) {
  std::vector<ParamGroup> out;
  for (const char* pattern : patterns) out.push_back({.pattern = pattern, .frozen = true});
  return out;
}

// "wte.weight" is the table of the embedding and of the head.
const std::vector<ParamGroup> kGroups[] = {
    frozen({"wte.*", "wpe.*", "h.0.*"}),
    frozen({"h.1.*"}),
    frozen({"wte.*"}),
    frozen({"*.bias", "*ln_?.*"}),
    {{.pattern = "*", .frozen = true}, {.pattern = "h.1.c_*", .rate_factor = 0.5}}};

std::string text_of(const std::vector<ParamGroup>& groups) {
  std::string out;
  for (const ParamGroup& group : groups) out += group.pattern + (group.frozen ? " frozen " : " ");
  return out;
}

class Frozen : public testing::TestWithParam<const char*> {
 protected:
  static PlanConfig config_with(const std::vector<ParamGroup>& groups) {
    PlanConfig config = test::small_gpt_config();
    const bool some = std::string(GetParam()) == "some_bf16";
    config.precision = some ? "bf16" : GetParam();
    if (some) config.f32_nodes = "lm_head,h.0.*";
    config.groups = groups;
    return config;
  }
};

INSTANTIATE_TEST_SUITE_P(Precision, Frozen, testing::Values("f32", "bf16", "some_bf16"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Frozen, OneDigestOverRanksSchedulesAndRecompute) {
  const auto model = test::small_gpt();
  int turn = 0, cases = 0;
  for (const auto& groups : kGroups) {
    PlanConfig config = config_with(groups);
    const test::Outcome expected = test::train(model, config, 11, 4);
    for (int32_t ranks : {1, 2, 4}) {
      config.ranks = ranks;
      for (const ScheduleKind* kind : test::schedules_for(config)) {
        if (++cases % test::kEvery != 0) continue;
        const char* recomputes[] = {"none", "stage", "every:3"};
        config.schedule = kind->name;
        config.recompute = recomputes[turn++ % 3];
        EXPECT_EQ(test::train(model, config, 11, 4, turn % 3), expected)
            << text_of(groups) << ranks << " ranks, " << kind->name;
      }
    }
  }
}

TEST_P(Frozen, OneDigestOverReplicasAndShards) {
  const auto model = test::small_gpt();
  int turn = 0, cases = 0;
  for (const auto& groups : kGroups)
    for (const int32_t tensor : {1, 2}) {
      PlanConfig config = config_with(groups);
      config.gradient_groups = 2;
      config.tensor = tensor;
      const test::Outcome expected = test::train_on_one_rank(model, config, 11, 4);
      config.data = 2;
      config.shard_ranks = tensor;
      for (const int32_t stage : {1, 2})
        for (const char* shard : {"none", "optimizer", "parameters"}) {
          if (++cases % test::kEvery != 0) continue;
          config.ranks = 2 * tensor * stage;
          config.shard = shard;
          config.bucket_bytes = turn % 2 ? 1024 : 1 << 20;
          config.packed = turn % 5 > 0 ? kAllPacked : "";
          EXPECT_EQ(test::train(model, config, 11, 4, turn++ % 3), expected)
              << text_of(groups) << config.ranks << " ranks, tensor " << tensor << ", " << shard;
        }
    }
}

// The gradients of the other parameters are those of a plan that trains all.
TEST_P(Frozen, OtherGradientsAreUnchanged) {
  const auto model = test::small_gpt();
  std::vector<int32_t> tokens(12 * 12, 3), targets(12 * 12, 5);
  const auto gradients = [&](const std::vector<ParamGroup>& groups) {
    PlanConfig config = config_with(groups);
    config.ranks = 2;
    auto run = start_inline(make_plan(model, config).take(), [](void*) {}).take();
    Step* step = run->acquire();
    step->update = false;
    step->batch.samples = 12;
    step->batch.inputs = {tokens.data(), targets.data()};
    EXPECT_TRUE(run->submit(step).ok());
    for (RunEvent event; run->poll(event, -1);) EXPECT_TRUE(event.status.ok());
    std::vector<std::vector<float>> out;
    for (ParamId p = 0; p < static_cast<ParamId>(model->params().size()); ++p) {
      out.emplace_back(static_cast<size_t>(model->param(p).shape.elements()));
      const bool has = !run->plan().whole->param(p).training.frozen;
      if (has)
        EXPECT_TRUE(run->read(p, Part::grad, out.back()).ok());
      else
        out.back().clear();
    }
    return out;
  };
  const auto all = gradients({});
  for (const auto& groups : kGroups) {
    const auto some = gradients(groups);
    size_t compared = 0;
    for (size_t p = 0; p < all.size(); ++p) {
      if (some[p].empty()) continue;
      EXPECT_EQ(some[p], all[p]) << text_of(groups) << model->params()[p].name;
      ++compared;
    }
    EXPECT_GT(compared, 0u);
    EXPECT_LT(compared, all.size());
  }
}

int64_t weight_bytes(const Plan& plan, int32_t rank) {
  return memory_by_kind(plan, rank)[static_cast<size_t>(MemoryKind::weights)];
}

int64_t ring_bytes(const Plan& plan, int32_t rank) {
  return plan.mode(Mode::train).ranks[static_cast<size_t>(rank)].bytes;
}

// Blocks in stages of their own, the lower two of four frozen.
TEST(FrozenPlan, NothingRunsBackwardBelowTheLowestTrainedParameter) {
  const auto model = make_preset("mlp:layers=4,width=32", {.seq_len = 0}).take().model;
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
    PlanConfig config;
    config.ranks = 4;
    config.schedule = schedule;
    config.cuts = {"layers.1", "layers.2", "layers.3"};
    config.optim.rule = Rule::adamw;
    const auto all = make_plan(model, config).take();
    config.groups = frozen({"layers.0.*", "layers.1.*"});
    const auto plan = make_plan(model, config).take();
    const ModePlan& mode = plan->mode(Mode::train);
    std::set<std::pair<int32_t, int32_t>> gradients;
    for (const Edge& e : mode.edges)
      if (e.kind == EdgeKind::gradient) gradients.insert({e.from_rank, e.to_rank});
    EXPECT_EQ(gradients, (std::set<std::pair<int32_t, int32_t>>{{3, 2}})) << schedule;
    for (int32_t r = 0; r < 4; ++r) {
      const auto rank = static_cast<size_t>(r);
      size_t calls = 0;
      for (const ActionProgram& action : mode.ranks[rank].programs)
        if (action.kind != Kind::F) calls += action.calls.size();
      EXPECT_EQ(calls > 0, r >= 2) << schedule << ", rank " << r;
      // A frozen rank keeps only its parameters, and no activation from one action to the next.
      int64_t values = 0;
      for (const ResidentParam& p : plan->resident[rank])
        for (const ResidentTensor& t : p.tensors) values += t.bytes();
      if (r < 2) {
        EXPECT_EQ(plan->permanent_bytes[rank], values) << schedule << ", rank " << r;
        EXPECT_LT(ring_bytes(*plan, r), ring_bytes(*all, r)) << schedule << ", rank " << r;
      } else {
        EXPECT_EQ(plan->permanent_bytes[rank], all->permanent_bytes[rank]);
      }
    }
  }
}

// Each stage would keep several versions of values that change.
TEST(FrozenPlan, ValuesHaveOneVersion) {
  const auto model = make_preset("mlp:layers=4,width=32", {.seq_len = 0}).take().model;
  PlanConfig config;
  config.ranks = 4;
  config.schedule = "pipedream";
  config.micro_batches = 1;
  config.cuts = {"layers.1", "layers.2", "layers.3"};
  config.groups = frozen({"*.weight"});
  const auto plan = make_plan(model, config).take();
  config.precision = "bf16";
  const auto half = make_plan(model, config).take();
  const int64_t weight = padded_bytes({DType::f32, {32, 32}}),
                bias = padded_bytes({DType::f32, {32}});
  for (int32_t r = 0; r < 4; ++r) {
    const WeightVersions& versions = plan->versions[static_cast<size_t>(r)];
    EXPECT_EQ(versions.count, 4 - r);
    EXPECT_EQ(weight_bytes(*plan, r), weight + versions.count * bias);
    EXPECT_EQ(weight_bytes(*half, r), weight / 2 + versions.count * bias);
  }
}

// Four layers of 32 x 32 with a bias of 128 bytes. Those above a trained one have a packed form for
// the forward and one for the backward.
TEST(FrozenPlan, KeepsValuesInTheFormsThatProductsRead) {
  const auto model = make_preset("mlp:layers=4,width=32", {.seq_len = 0}).take().model;
  PlanConfig config;
  config.precision = "bf16";
  constexpr int64_t kBiases = 4 * 128;
  const auto bytes = [&](std::initializer_list<const char*> patterns) {
    config.groups = frozen(patterns);
    return weight_bytes(*make_plan(model, config).take(), 0);
  };
  // float32, and a form for the forward and, except of the lowest layer, for the backward.
  EXPECT_EQ(bytes({}), 4 * 4096 + 7 * 2048 + kBiases);
  EXPECT_EQ(bytes({"*.weight"}), 7 * 2048 + kBiases);  // the biases are trained
  EXPECT_EQ(bytes({"layers.0.*", "layers.1.*", "layers.2.*"}), 3 * 2048 + 4096 + 2048 + kBiases);
  config.packed.clear();
  EXPECT_EQ(bytes({"*.weight"}), 4 * 2048 + kBiases);
  config.packed = kAllPacked;
  config.step_kinds = 1u << static_cast<uint32_t>(Mode::infer);
  EXPECT_EQ(bytes({}), 4 * 2048 + kBiases);
}

TEST(FrozenPlan, KeepsFloatsInTheFormsThatProductsRead) {
  const auto model = make_preset("mlp:layers=4,width=32", {.seq_len = 0}).take().model;
  PlanConfig config;
  config.micro_batches = 2;
  constexpr int64_t kBiases = 4 * 128;
  const auto bytes = [&](std::initializer_list<const char*> patterns) {
    config.groups = frozen(patterns);
    return weight_bytes(*make_plan(model, config).take(), 0);
  };
  EXPECT_EQ(bytes({}), (4 + 7) * 4096 + kBiases);
  EXPECT_EQ(bytes({"*.weight"}), 7 * 4096 + kBiases);
  EXPECT_EQ(bytes({"layers.0.*", "layers.1.*"}), (2 + 2 + 3) * 4096 + kBiases);
  // A copy beside a value that changes does not pay, and two forms are more than one value.
  config.micro_batches = 1;
  EXPECT_EQ(bytes({}), 4 * 4096 + kBiases);
  EXPECT_EQ(bytes({"*.weight"}), 4 * 4096 + kBiases);
  EXPECT_EQ(bytes({"layers.0.*"}), 4 * 4096 + kBiases);
  config.step_kinds = 1u << static_cast<uint32_t>(Mode::eval);
  for (const int64_t samples : {1, 1024}) {
    config.micro_batch_size = samples;
    const auto plan = make_plan(model, config).take();
    EXPECT_EQ(weight_bytes(*plan, 0), 4 * 4096 + kBiases);
    for (const ResidentParam& p : plan->resident[0])
      EXPECT_EQ(p.only_packed(), model->param(p.param).shape.rank == 2);
  }
}

// A copy pays for a weight of at most 512 x 512, or for at most 256 rows.
TEST(FrozenPlan, KeepsCopiesOfSmallWeightsAndForFewRows) {
  PlanConfig config;
  config.micro_batches = 2;
  const auto copies = [&](int64_t width, int64_t rows) {
    const auto model = make_preset(cat("mlp:layers=2,width=", width), {.seq_len = 0}).take().model;
    config.micro_batch_size = rows;
    const auto plan = make_plan(model, config).take();
    int count = 0;
    for (const ResidentParam& p : plan->resident[0])
      for (const ResidentTensor& t : p.tensors) count += t.role == ResidentTensor::Role::packed;
    return count;
  };
  EXPECT_EQ(copies(512, 257), 3);
  EXPECT_EQ(copies(528, 256), 3);
  EXPECT_EQ(copies(528, 257), 0);
}

// At the smallest limit that a plan without packed forms has.
TEST(FrozenPlan, NeedsNoMoreFloatsUnderALimit) {
  const auto model = make_preset("mlp:layers=3,width=33", {.seq_len = 0}).take().model;
  for (const bool trains : {true, false}) {
    PlanConfig config;
    config.groups = frozen({"*.weight"});
    if (!trains) config.step_kinds = 1u << static_cast<uint32_t>(Mode::infer);
    config.packed.clear();
    config.memory_limit = make_plan(model, config).take()->arena_bytes[0];
    config.packed = kAllPacked;
    const auto plan = make_plan(model, config);
    ASSERT_TRUE(plan.ok()) << plan.status().text();
    EXPECT_LE(plan.value()->arena_bytes[0], config.memory_limit);
  }
}

// They fit where a product with its own copy would not.
TEST(FrozenPlan, NeedsNoMemoryToPackUnderALimit) {
  const auto model = make_preset("mlp:layers=2,width=64", {.seq_len = 0}).take().model;
  PlanConfig config;
  config.precision = "bf16";
  config.micro_batch_size = 1;
  config.step_kinds = 1u << static_cast<uint32_t>(Mode::infer);
  const int64_t needed = make_plan(model, config).take()->arena_bytes[0];
  config.packed.clear();
  EXPECT_GT(make_plan(model, config).take()->arena_bytes[0], needed);
  config.packed = kAllPacked;
  config.memory_limit = needed;
  const auto plan = make_plan(model, config);
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  EXPECT_EQ(plan.value()->arena_bytes[0], needed);
  config.memory_limit = needed - 1;
  EXPECT_FALSE(make_plan(model, config).ok());
}

// A tied table of 37 x 16 is padded to 48 x 16 and 37 x 16 floats, or 64 x 32 in bf16, in the forms
// that the head reads; the table of positions has 12 x 16.
TEST_P(Frozen, ATiedTableIsStoredAsTheHeadReadsIt) {
  const auto model = test::small_gpt();
  const bool half = std::string(GetParam()) == "bf16";  // of the head
  const int64_t positions = std::string(GetParam()) == "f32" ? 768 : 384;
  const auto bytes = [&](const PlanConfig& config, const char* name) {
    int64_t sum = 0;
    const auto plan = make_plan(model, config).take();
    for (const ResidentTensor& t : resident_of(*plan, 0, plan->model->find_param(name)).tensors)
      sum += t.bytes();
    return sum;
  };
  PlanConfig config = config_with(frozen({"w?e.*"}));
  EXPECT_EQ(bytes(config, "wte.weight"), half ? 2 * 4096 : (48 + 37) * 16 * 4);
  EXPECT_EQ(bytes(config, "wpe.weight"), positions);
  config.packed.clear();
  EXPECT_EQ(bytes(config, "wte.weight"), half ? 1216 : 37 * 64);
  config = config_with({});
  config.step_kinds = 1u << static_cast<uint32_t>(Mode::infer);
  EXPECT_EQ(bytes(config, "wte.weight"), half ? 4096 : 48 * 64);
  EXPECT_EQ(bytes(config, "wpe.weight"), positions);
  config.ranks = 2;  // the first has the embedding, the last the head
  const auto plan = make_plan(model, config).take();
  const ParamId wte = plan->model->find_param("wte.weight");
  EXPECT_FALSE(resident_of(*plan, 0, wte).only_packed());
  EXPECT_TRUE(resident_of(*plan, 1, wte).only_packed());
}

// What a run that only evaluates has: losses, digests and values.
struct Evaluation {
  std::vector<double> losses;
  std::vector<Digest> digests;
  std::vector<std::vector<float>> values;
  bool operator==(const Evaluation&) const = default;
};

Evaluation evaluate(const PlanConfig& config) {
  std::vector<int32_t> tokens, targets;
  for (int32_t i = 0; i < 12 * 12; ++i) {
    tokens.push_back(i * 5 % 37);
    targets.push_back(i * 3 % 37);
  }
  auto run = start_inline(make_plan(test::small_gpt(), config).take(), [](void*) {}).take();
  Evaluation out;
  const auto run_step = [&] {
    Step* step = run->acquire();
    step->mode = Mode::eval;
    step->batch.samples = 12;
    step->batch.inputs = {tokens.data(), targets.data()};
    EXPECT_TRUE(run->submit(step).ok());
    for (RunEvent event; run->poll(event, -1);)
      if (event.kind == RunEvent::Kind::done) out.losses.push_back(event.loss);
    out.digests.push_back(run->digest().take());
  };
  run_step();
  const auto& params = run->plan().whole->params();
  for (ParamId p = 0; p < static_cast<ParamId>(params.size()); ++p) {
    std::vector<float>& values = out.values.emplace_back(
        static_cast<size_t>(params[static_cast<size_t>(p)].shape.elements()));
    EXPECT_TRUE(run->read(p, Part::value, values).ok());
    std::vector<float> written = values;
    std::reverse(written.begin(), written.end());
    EXPECT_TRUE(run->write(p, Part::value, written).ok());
  }
  run_step();
  return out;
}

TEST_P(Frozen, WeightsThatAreStoredOnlyPackedHaveTheSameValues) {
  PlanConfig config = config_with({});
  config.step_kinds = 1u << static_cast<uint32_t>(Mode::eval);
  for (const int32_t tensor : {1, 2}) {
    config.tensor = tensor;
    config.ranks = config.shard_ranks = 1;
    config.packed.clear();
    const Evaluation expected = evaluate(config);
    ASSERT_EQ(expected.losses.size(), 2u);
    EXPECT_NE(expected.losses[0], expected.losses[1]);
    config.packed = kAllPacked;
    for (const int32_t stages : {1, 2})
      for (int32_t shards = 1; shards <= tensor; ++shards) {
        config.shard_ranks = shards;
        config.ranks = shards * stages;
        EXPECT_TRUE(evaluate(config) == expected) << tensor << ", " << shards << ", " << stages;
      }
  }
}

// The same as with float32 values of parameters that the optimizer does not change.
TEST(FrozenRun, TrainsAsIfFrozenParametersWereFloats) {
  const auto model = test::small_gpt();
  const auto trained = [&](const std::vector<ParamGroup>& groups) {
    PlanConfig config = test::small_gpt_config();
    config.precision = "bf16";
    config.optim.clip = 0;  // the norm is that of all gradients
    config.groups = groups;
    auto run = start_inline(make_plan(model, config).take(), [](void*) {}).take();
    test::train(*run, 11, 4);
    std::vector<std::vector<float>> out;
    for (ParamId p = 0; p < static_cast<ParamId>(model->params().size()); ++p) {
      out.emplace_back(static_cast<size_t>(model->param(p).shape.elements()));
      EXPECT_TRUE(run->read(p, Part::value, out.back()).ok());
    }
    return out;
  };
  for (const std::vector<ParamGroup>& groups : kGroups) {
    std::vector<ParamGroup> still = groups;
    for (ParamGroup& group : still)
      if (std::exchange(group.frozen, false)) group.rate_factor = 0;
    const auto as_bf16 = trained(groups), as_f32 = trained(still);
    const auto plan = with_groups(model, groups, true).take();
    size_t rounded = 0;
    for (size_t p = 0; p < as_f32.size(); ++p) {
      std::vector<float> expected = as_f32[p];
      const bool half = as_bf16[p] != expected;
      EXPECT_TRUE(!half || plan->params()[p].training.frozen) << plan->params()[p].name;
      if (half)
        for (float& value : expected) value = test::widened(test::rounded(value));
      EXPECT_EQ(as_bf16[p], expected) << plan->params()[p].name;
      rounded += half;
    }
    EXPECT_EQ(rounded > 0, &groups != &kGroups[3]) << text_of(groups);
  }
}

}  // namespace
}  // namespace weft
