// Random plans and steps for equality tests: partitions as lopsided as they can be, every schedule,
// short micro-batches, ties.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "engine/messages.h"
#include "plan/plan.h"
#include "support/random_model.h"
#include "tune/make_plan.h"

namespace weft::test {

struct PlanCase {
  std::shared_ptr<const Model> model;  // that of the plan, if there is one
  std::shared_ptr<const Plan> plan;    // null after a failed expectation
  std::string text;
};

// Any schedule at all that can run: stages lie on ranks as they fall, and the actions are in the
// order of some run of them, I and W apart or not. Some stages recompute.
inline Schedule random_schedule(std::mt19937& rng, int32_t ranks, int32_t stages,
                                int32_t micro_batches) {
  auto below = [&rng](size_t n) { return static_cast<size_t>(rng() % n); };
  Schedule out{.stages = stages,
               .micro_batches = micro_batches,
               .forward_only = false,
               .rank_of_stage = {},
               .rows = {}};
  for (int32_t s = 0; s < stages; ++s)
    out.rank_of_stage.push_back(
        s < ranks ? s : static_cast<int32_t>(below(static_cast<size_t>(ranks))));
  std::shuffle(out.rank_of_stage.begin(), out.rank_of_stage.end(), rng);
  out.rows.resize(static_cast<size_t>(ranks));
  struct Progress {
    bool split, again;
    int32_t f = 0, r = 0, i = 0, w = 0;
  };
  std::vector<Progress> done;
  for (int32_t s = 0; s < stages; ++s)
    done.push_back({.split = below(2) == 0, .again = below(3) == 0});
  // The actions that may run now, of every stage.
  for (;;) {
    std::vector<Action> ready;
    for (int32_t s = 0; s < stages; ++s) {
      const Progress& p = done[static_cast<size_t>(s)];
      if (p.f < micro_batches && (s == 0 || done[static_cast<size_t>(s) - 1].f > p.f))
        ready.push_back({s, Kind::F, p.f});
      if (p.again && p.r < p.f) ready.push_back({s, Kind::R, p.r});
      if (p.i < (p.again ? p.r : p.f) &&
          (s + 1 == stages || done[static_cast<size_t>(s) + 1].i > p.i))
        ready.push_back({s, p.split && (p.w < p.i || below(2)) ? Kind::I : Kind::B, p.i});
      if (p.w < p.i) ready.push_back({s, Kind::W, p.w});
    }
    if (ready.empty()) return out;
    Action action = ready[below(ready.size())];
    Progress& p = done[static_cast<size_t>(action.stage)];
    out.rows[static_cast<size_t>(out.rank_of_stage[static_cast<size_t>(action.stage)])].push_back(
        action);
    p.f += action.kind == Kind::F;
    p.r += action.kind == Kind::R;
    p.i += action.kind == Kind::I || action.kind == Kind::B;
    p.w += action.kind == Kind::W || action.kind == Kind::B;
  }
}

// Makes a plan of one replica a plan of several, of which the largest has its micro-batches.
inline void add_replicas(std::mt19937& rng, PlanConfig& config) {
  auto below = [&rng](int32_t n) { return static_cast<int32_t>(rng() % static_cast<uint32_t>(n)); };
  const int32_t own = config.micro_batches;
  config.data = 2 + below(3);
  config.gradient_groups = config.data;
  config.micro_batches = config.data * own;
  if (config.data != 3 && below(2))
    config.gradient_groups *= 1 + below(own);
  else if (own > 1)
    config.micro_batches -= below(config.data);
  config.ranks *= config.data;
  const char* shards[] = {"none", "optimizer", "parameters"};
  config.bucket_bytes = below(2) ? 1 : config.bucket_bytes;
  config.shard = shards[below(3)];
}

// Freezes some parameters, half of the time in a plan with bf16 values of some nodes, but leaves
// one if nothing else has a gradient. Takes no number from the generator.
inline void add_groups(std::mt19937 rng, const Model& model, PlanConfig& config) {
  std::mt19937 own(static_cast<uint32_t>(rng()) + 1);
  if (own() % 4 > 0) return;
  const auto& inputs = model.inputs();
  bool trains = std::any_of(inputs.begin(), inputs.end(),
                            [&](NodeId id) { return model.node(id).wants_grad; });
  const std::vector<bool> has_gradient = model.params_below_loss();
  const Param* last = nullptr;  // with a gradient
  for (size_t p = 0; p < has_gradient.size(); ++p) {
    const Param& param = model.params()[p];
    if (own() % 2 == 0)
      config.groups.push_back({.pattern = param.name, .frozen = true});
    else
      trains = trains || has_gradient[p];
    if (has_gradient[p]) last = &param;
  }
  if (!trains && last) config.groups.push_back({.pattern = last->name});
  if (!trains && !last) config.groups.clear();
  if (own() % 2 == 0) config.precision = "bf16";
  for (const Node& node : model.nodes())
    if (!node.is_input() && own() % 4 == 0 && config.precision == "bf16")
      config.f32_nodes += cat(config.f32_nodes.empty() ? "" : ",", node.name);
}

// The rest of a plan whose model, ranks, micro-batches and schedule are there already, for `stages`
// stages.
inline PlanCase random_case(std::mt19937& rng, std::shared_ptr<const Model> model,
                            PlanConfig config, int32_t stages, std::string text) {
  auto below = [&rng](uint32_t n) { return static_cast<int32_t>(rng() % n); };
  config.micro_batch_size = 1 + below(3);
  config.short_size =
      config.micro_batch_size > 1 ? below(static_cast<uint32_t>(config.micro_batch_size)) : 0;
  const char* recomputes[] = {"none", "none", "stage", "every:1", "every:2", "every:3", "auto"};
  config.recompute = recomputes[below(7)];
  config.split = below(2) ? SplitBy::uniform : SplitBy::cost;
  config.optim.rule = below(2) ? Rule::sgd : Rule::adamw;
  config.optim.clip = below(2) ? 0.5 : 0;
  if (below(2)) config.gradient_groups = 1 + below(static_cast<uint32_t>(config.micro_batches));
  if (below(3) == 0) add_replicas(rng, config);
  add_groups(rng, *model, config);
  // Half of the time any cut at all, so that stages are as lopsided as they can be.
  if (below(2) && stages > 1) {
    std::vector<std::string> names;
    for (const Node& n : model->nodes())
      if (!n.is_input()) names.push_back(n.name);
    names.erase(names.begin());
    while (static_cast<int32_t>(names.size()) >= stages)
      names.erase(names.begin() + below(static_cast<uint32_t>(names.size())));
    config.cuts = names;
  }
  PlanCase c{.model = std::move(model), .plan = nullptr, .text = std::move(text)};
  c.text += ": " + std::to_string(config.ranks) + " ranks of " + std::to_string(stages) +
            " stages, " + std::to_string(config.micro_batches) + " micro-batches, " +
            (config.schedule_text.empty() ? config.schedule : config.schedule_text) +
            ", recompute " + config.recompute + ", " + std::to_string(config.gradient_groups) +
            " gradient groups, " + std::to_string(config.data) + " replicas, shard " +
            config.shard + ", " + std::to_string(config.tensor) + " shards, " + config.precision;
  for (const ParamGroup& group : config.groups)
    if (group.frozen) c.text += ", frozen " + group.pattern;
  auto plan = make_plan(c.model, config);
  EXPECT_TRUE(plan.ok()) << c.text << ": " << plan.status().text();
  if (!plan.ok()) return c;
  c.plan = plan.take();
  c.model = c.plan->model;
  return c;
}

// A random plan whose nodes lie on any of the ranks that share their stage: every value that they
// pass on is an exchange in the middle of an action. `plan` is null where a stage has too few
// nodes.
inline PlanCase random_sharded_plan(uint32_t seed) {
  std::mt19937 rng(seed);
  auto below = [&rng](uint32_t n) { return static_cast<int32_t>(rng() % n); };
  const int32_t shards = 2 + below(3);
  PlanConfig config;
  config.micro_batches = 1 + below(6);
  const char* schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "v-half"};
  config.schedule = schedules[below(6)];
  const ScheduleKind* kind = find_schedule(config.schedule);
  config.chunks = kind->chunks ? kind->chunks : 2;
  config.ranks = 1 + below(2);
  const int32_t stages = config.ranks * config.chunks;
  const std::shared_ptr<Model> model = random_model(rng, stages * (shards + 2) + below(8));
  PlanCase c = random_case(rng, model, config, stages, "sharded, seed " + std::to_string(seed));
  if (!c.plan) return c;
  const Plan whole = *c.plan;
  c.plan = nullptr;
  std::vector<int32_t> nodes(static_cast<size_t>(stages), 0);
  for (NodeId id = 0; id < static_cast<NodeId>(model->nodes().size()); ++id)
    if (!model->node(id).is_input()) {
      int32_t& before = nodes[static_cast<size_t>(whole.stage_of_node[static_cast<size_t>(id)])];
      model->set_shard(id, before < shards ? before : below(static_cast<uint32_t>(shards)));
      ++before;
    }
  if (*std::min_element(nodes.begin(), nodes.end()) < shards) return c;
  config = whole.config;
  config.shard_ranks = 2 + below(static_cast<uint32_t>(shards - 1));
  config.ranks *= config.shard_ranks;
  auto plan = make_plan(model, config);
  EXPECT_TRUE(plan.ok()) << c.text << ": " << plan.status().text();
  if (!plan.ok()) return c;
  c.plan = plan.take();
  c.model = c.plan->model;
  return c;
}

inline PlanCase random_plan(uint32_t seed) {
  std::mt19937 rng(seed);
  auto below = [&rng](uint32_t n) { return static_cast<int32_t>(rng() % n); };
  const int nodes = 1 + below(14);
  auto model = random_model(rng, nodes);
  PlanConfig config;
  if (below(3) == 0) config.tensor = 2 + below(3);
  config.micro_batches = below(3) ? 1 + below(17) : 1;
  if (!model->outputs().empty() && below(4) == 0) config.step_kinds = 0x3f;  // all, with outputs
  // In a third of the cases a random schedule, else one of the table; one with enough
  // nodes for its stages.
  int32_t stages = 1 + below(static_cast<uint32_t>(std::min(nodes + 1, 8)));
  if (below(3) == 0) {
    config.ranks = 1 + below(static_cast<uint32_t>(stages));
    config.schedule_text = random_schedule(rng, config.ranks, stages, config.micro_batches).text();
  } else {
    const ScheduleKind* kind =
        &all_schedules()[static_cast<size_t>(below(static_cast<uint32_t>(all_schedules().size())))];
    if (kind->name == "forward" || kind->asynchronous || kind->chunks > stages)
      kind = find_schedule("gpipe");
    config.schedule = kind->name;
    config.chunks =
        kind->chunks ? kind->chunks : 1 + below(static_cast<uint32_t>(std::min(stages, 3)));
    config.ranks = std::max(1, stages / config.chunks);
    stages = config.ranks * config.chunks;
  }
  return random_case(rng, std::move(model), std::move(config), stages,
                     "seed " + std::to_string(seed));
}

// A schedule of the table at those sizes, on a random model that has nodes enough.
inline PlanCase random_plan_of(const ScheduleKind& kind, int32_t ranks, int32_t micro_batches,
                               int32_t chunks) {
  std::mt19937 rng(static_cast<uint32_t>(ranks * 10007 + micro_batches * 101 + chunks) * 31u +
                   static_cast<uint32_t>(kind.name.size()));
  const int32_t stages = ranks * chunks;
  auto model = random_model(rng, stages + static_cast<int>(rng() % 6));
  PlanConfig config;
  config.ranks = ranks;
  config.micro_batches = micro_batches;
  config.chunks = chunks;
  config.schedule = kind.name;
  return random_case(rng, std::move(model), std::move(config), stages, std::string(kind.name));
}

// The n-th step of a run; `trained`: how many updates came before.
inline StepDescriptor random_step(const Plan& plan, uint64_t n, uint64_t trained,
                                  std::mt19937& rng) {
  StepDescriptor step;
  step.sequence = n;
  step.step = trained;
  step.mode = n == 0 ? Mode::train : static_cast<Mode>(rng() % kModes);
  if (!plan.mode(step.mode).present) step.mode = Mode::eval;
  step.update = rng() % 4 != 0;
  step.micro_batches =
      1 + static_cast<int32_t>(rng() % static_cast<uint32_t>(plan.config.micro_batches));
  step.short_last = plan.config.short_size > 0 && rng() % 2;
  step.denominator = 1 + static_cast<double>(rng() % 7);
  return step;
}

}  // namespace weft::test
