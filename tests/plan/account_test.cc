// Stages are cut by bytes that are counted before there is a plan. They are the bytes of the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/text.h"
#include "graph/presets.h"
#include "partition/run_bytes.h"
#include "plan/schedule_choice.h"
#include "support/cases.h"
#include "support/random_model.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

using namespace std::string_view_literals;

// The account of the partitioner. Runs that were counted for another configuration do not affect
// it.
RunBytes account_of(const Plan& plan, const PlanConfig& config, const OpNodes& ops) {
  const PlanConfig pipeline = pipeline_config(config);
  const Schedule schedule = make_schedule(choose_schedule(pipeline).take(), pipeline, {}).take();
  KnownRuns known;
  PlanConfig other = config;
  other.recompute = "every:3";
  other.packed.clear();
  RunBytes::make(*plan.whole, other, ops, schedule, known)
      .take()
      .of_ranks(first_nodes(ops, plan.stage_of_whole));
  return RunBytes::make(*plan.whole, config, ops, schedule, known).take();
}

// Per rank.
std::vector<int64_t> accounted(const Plan& plan, const PlanConfig& config) {
  const OpNodes ops(*plan.whole, config.micro_batch_size, {});
  RunBytes bytes = account_of(plan, config, ops);
  const std::vector<size_t> first = first_nodes(ops, plan.stage_of_whole);
  // Nodes of a stage that were those of the next one do not affect the result.
  if (first.size() > 2 && first[1] > 1) {
    std::vector<size_t> later = first;
    later.pop_back();
    later.insert(later.begin() + 1, 1);
    bytes.of_ranks(later);
  }
  // Nor do other cuts.
  for (size_t s = 1; s < first.size(); ++s)
    for (const size_t other : {first[s] - 1, first[s] + 1}) {
      std::vector<size_t> cuts = first;
      cuts[s] = other;
      const size_t end = s + 1 < cuts.size() ? cuts[s + 1] : ops.ids.size();
      if (cuts[s] > cuts[s - 1] && cuts[s] < end) bytes.of_ranks(cuts);
    }
  std::vector<int64_t> out;
  for (const RankBytes& rank : bytes.of_ranks(first)) out.push_back(rank.all);
  return out;
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : rng_(seed) {}
  int32_t below(int32_t n) { return static_cast<int32_t>(rng_() % static_cast<uint32_t>(n)); }
  template <typename T>
  T of(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int32_t>(list.size()))];
  }

 private:
  std::mt19937 rng_;
};

// Values of random models skip stages.
std::shared_ptr<const Model> drawn_model(std::string_view text, uint32_t seed) {
  if (text != "random") return make_preset(text, {.seq_len = text[0] == 'g' ? 4 : 0}).take().model;
  std::mt19937 rng(seed);
  return test::random_model(rng, 14);
}

bool is_asynchronous(const PlanConfig& config) {
  return config.schedule == "pipedream" || config.schedule == "pipedream-2bw";
}

void set_asynchronous(Draw& draw, PlanConfig& config) {
  const bool gathers = config.schedule == "pipedream-2bw";
  const int32_t replicas = 1 + draw.below(2);
  config.data = config.gradient_groups = config.shard_ranks = 1;
  config.shard = "optimizer";
  config.ranks = 1 + draw.below(4);
  config.micro_batches = gathers ? config.ranks + draw.below(2) : 1;
  config.vertical_sync = draw.below(2) == 0;
  if (replicas == 1) return;
  for (int32_t s = 0; s < config.ranks; ++s) config.stage_replicas += s > 0 ? ",2" : "2";
  config.ranks *= 2;
}

PlanConfig drawn_config(Draw& draw, int32_t tensor) {
  PlanConfig config;
  config.schedule = draw.of({"gpipe", "1f1b", "zb-h1", "zb-h2", "interleaved", "zb-v", "v-half",
                             "interleaved-zb", "dualpipe-v", "pipedream", "pipedream-2bw"});
  config.micro_batches = 2 * (2 + draw.below(3));
  config.micro_batch_size = 1 + draw.below(3);
  config.tensor = tensor;
  config.data = draw.of({1, 2, 3, 4});
  if (config.data > config.micro_batches) config.data = 1;
  config.gradient_groups = config.data == 2 && draw.below(2) ? 4 : config.data;
  // With one micro-batch per replica, gradients that have left are dropped.
  if (config.data > 1 && draw.below(3) == 0)
    config.micro_batches = config.gradient_groups = config.data;
  config.shard = draw.of({"none", "optimizer", "parameters"});
  config.bucket_bytes = draw.below(2) ? 1 : config.bucket_bytes;
  config.optim.rule = draw.below(2) ? Rule::sgd : Rule::adamw;
  config.recompute = draw.of({"none", "none", "stage", "every:2", "every:5"});
  config.split = draw.of({SplitBy::cost, SplitBy::uniform, SplitBy::parameters});
  config.step_kinds = static_cast<uint32_t>(draw.of({0, 0, 1, 2, 0x11, 0x3f}));
  config.slack = draw.below(3);
  config.precision = draw.of({"f32", "bf16"});
  config.packed = draw.of({kAllPacked, "", "h.0.mlp.c_fc.weight layers.1.weight"});
  config.machines.latency = draw.of({0.0, 1e-7});
  if (tensor == 2) config.shard_ranks = draw.of({1, 2});
  config.ranks = config.data * config.shard_ranks * (1 + draw.below(3));
  if (is_asynchronous(config)) set_asynchronous(draw, config);
  return config;
}

// None, some parameters, or all below a block.
std::vector<ParamGroup> drawn_groups(Draw& draw, std::string_view model) {
  if (model == "random"sv) return {};
  const bool gpt = model.starts_with("gpt");
  const auto frozen = [](const char* pattern) {
    return ParamGroup{.pattern = pattern, .frozen = true};
  };
  switch (draw.below(4)) {
    case 0: return {frozen("*.weight")};
    case 1:
      return gpt ? std::vector{frozen("w?e.*"), frozen("h.0.*")} : std::vector{frozen("*.0.*")};
    case 2: return {frozen("*"), {.pattern = gpt ? "h.2.*" : "layers.5.*"}};
    default: return {};
  }
}

// None, or some with bf16.
const char* drawn_f32_nodes(Draw& draw, std::string_view model, const std::string& precision) {
  if (model == "random"sv || draw.below(2) || precision == "f32") return "";
  return model.starts_with("gpt") ? "lm_head,h.1.*" : "layers.2*";
}

std::string text_of(const PlanConfig& c) {
  return cat(c.schedule, ", ", c.ranks, " ranks, data=", c.data, ", ", c.shard_ranks,
             " ranks per stage, tensor=", c.tensor, ", ", c.micro_batches, " micro-batches in ",
             c.gradient_groups, " groups, shard ", c.shard, ", recompute ", c.recompute,
             ", bucket ", c.bucket_bytes, ", slack ", c.slack, ", latency ", c.machines.latency,
             ", kinds ", c.step_kinds, ", ", c.precision, ", packed '", c.packed, "'",
             ", parameter groups ", c.groups.size(), c.groups.empty() ? "" : " ",
             c.groups.empty() ? "" : c.groups.front().pattern);
}

// Whether accumulators share slots.
bool drops(const Plan& plan) {
  for (const ResidentParam& p : plan.resident.front())
    for (const ResidentTensor& t : p.tensors)
      if (t.run >= kRunSlots) return true;
  return false;
}

struct Drawn {
  explicit Drawn(uint32_t seed) {
    Draw draw(seed);
    const char* text =
        draw.of({"mlp:layers=6,width=8", "gpt-nano:blocks=3,width=16,heads=2,vocabulary=32,tied=0",
                 "gpt-nano:blocks=3,width=16,heads=2,vocabulary=32,tied=1", "random"});
    model = drawn_model(text, seed);
    config = drawn_config(draw, text == "random"sv ? 1 : draw.of({1, 2}));
    config.groups = drawn_groups(draw, text);
    config.f32_nodes = drawn_f32_nodes(draw, text, config.precision);
    name = cat(text, ": ", text_of(config));
  }

  std::shared_ptr<const Model> model;
  PlanConfig config;
  std::string name;
};

TEST(Account, OfThePartitionerIsThatOfThePlan) {
  int compared = 0, shared = 0, several = 0, dropped = 0, frozen = 0, delivered = 0,
      asynchronous = 0;
  for (uint32_t seed = 0; seed < 300; seed += test::kEvery) {
    const Drawn drawn(seed);
    const PlanConfig& config = drawn.config;
    const auto plan = make_plan(drawn.model, config);
    if (!plan.ok()) continue;  // of some schedules for one rank
    SCOPED_TRACE(drawn.name);
    EXPECT_EQ(accounted(*plan.value(), config), plan.value()->arena_bytes);
    shared += config.shard_ranks > 1;
    several += plan.value()->pipeline_stages() * config.shard_ranks > plan.value()->positions();
    dropped += drops(*plan.value());
    frozen += !config.groups.empty();
    delivered += config.delivers_outputs(Mode::train);
    asynchronous += plan.value()->asynchronous();
    ++compared;
  }
  EXPECT_GT(shared, 30 / test::kEvery);
  EXPECT_GT(several, 50 / test::kEvery);
  EXPECT_GT(frozen, 100 / test::kEvery);
  EXPECT_GT(delivered, 50 / test::kEvery);
  EXPECT_GT(dropped, 5 / test::kEvery);
  EXPECT_GT(asynchronous, 20 / test::kEvery);
  EXPECT_GT(compared, 200 / test::kEvery);
}

// A search that tries several orders lowers a run once.
TEST(Account, OrdersShareRuns) {
  const auto model = make_preset("mlp:layers=6,width=8", {.seq_len = 0}).take().model;
  PlanConfig config;
  config.ranks = 2;
  const OpNodes ops(*model, config.micro_batch_size, {});
  KnownRuns known;
  const auto runs_for = [&](const char* schedule, int64_t limit) {
    config.schedule = schedule;
    config.memory_limit = limit;
    const Schedule order = make_schedule(choose_schedule(config).take(), config, {}).take();
    return known.of(*model, config, ops, order).take();
  };
  const auto runs = runs_for("gpipe", 0);
  EXPECT_EQ(runs_for("1f1b", 1000), runs);
  config.packed.clear();
  EXPECT_NE(runs_for("1f1b", 1000), runs);
}

// Linear nodes of several widths: runs of equal calls have tensors of other sizes.
std::shared_ptr<const Model> model_of_widths() {
  Model model;
  const int64_t widths[] = {4, 64, 4, 64, 128, 4, 128, 64, 4, 4, 4};
  NodeId at = model.add_input("x", {DType::f32, {1, widths[0]}}, false).take();
  const NodeId target = model.add_input("target", {DType::f32, {1, 4}}, false).take();
  for (size_t i = 1; i < std::size(widths); ++i) {
    const ParamId w = model.add_param(cat("w", i), {widths[i - 1], widths[i]}, {}).take();
    at = model.add_node("", find_op("linear"), {}, {{at}}, {{w}}).take();
    if (i % 2) at = model.add_node("", find_op("relu"), {}, {{at}}, {}).take();
    if (widths[i] == 4 && !model.add_output(at).ok()) std::abort();
  }
  EXPECT_TRUE(model.add_node("", find_op("mse"), {}, {{at, target}}, {}).ok());
  EXPECT_TRUE(model.finish().ok());
  return std::make_shared<Model>(std::move(model));
}

// Runs that are alike are lowered once.
TEST(Account, ARunIsCountedAsIfThereWasNoOther) {
  std::vector<std::shared_ptr<const Model>> models = {
      model_of_widths(), drawn_model("gpt-nano:blocks=3,width=16,heads=2,vocabulary=32,tied=1", 0)};
  for (uint32_t seed = 0; seed < 8; ++seed) models.push_back(drawn_model("random", seed));
  for (size_t m = 0; m < models.size(); ++m) {
    const std::shared_ptr<const Model>& model = models[m];
    PlanConfig config;
    config.micro_batches = 4;
    config.precision = m % 2 ? "bf16" : "f32";
    config.shard = m % 3 == 1 ? "parameters" : "none";
    config.step_kinds = 0x3f;
    const OpNodes ops(*model, config.micro_batch_size, {});
    const Schedule order = make_schedule(choose_schedule(config).take(), config, {}).take();
    RunTerms shared(*model, model, config, ops, order);
    const StageForm forms[] = {{{Kind::F, Kind::B}, {0}},
                               {{Kind::F, Kind::I, Kind::W}, {0}},
                               {{Kind::F, Kind::B}, {2}},
                               {{Kind::F, Kind::B}, {3}},
                               {{Kind::F, Kind::B}, {Recompute::kWhole}}};
    const size_t n = ops.ids.size();
    const std::vector<size_t> cuts = {0, n / 5, n / 3, n / 2, n - 2};
    const auto check = [&](const RunOfNodes& at, const StageForm& form,
                           const std::vector<size_t>* first) {
      RunTerms own(*model, model, config, ops, order);
      const auto& expected = own.run(at, own.form(form), first).shares.front();
      const auto& found = shared.run(at, shared.form(form), first).shares.front();
      EXPECT_EQ(found.terms, expected.terms);
      EXPECT_EQ(found.until, expected.until);
      EXPECT_EQ(found.scratch, expected.scratch);
      EXPECT_EQ(found.reads, expected.reads);
    };
    for (size_t begin = 0; m == 1 && begin < n; ++begin)
      for (size_t end = begin + 1; end <= n; ++end)
        shared.run({0, begin, end}, shared.form(forms[0]), nullptr);
    if (m == 1) {
      EXPECT_LT(shared.patterns(Mode::train), n * (n + 1) * 3 / 8);  // it has equal blocks
    }
    for (size_t f = 0; f < std::size(forms); ++f) {
      SCOPED_TRACE(cat("model ", m, ", form ", f));
      for (size_t begin = 0; begin < n; begin += test::kEvery)
        for (size_t end = begin + 1; end <= n; ++end) check({0, begin, end}, forms[f], nullptr);
      for (size_t s = 0; s + 1 < cuts.size(); ++s)
        check({s, cuts[s], cuts[s + 1]}, forms[f], &cuts);
    }
  }
}

// Segments that are alike are lowered once.
TEST(Account, ARunOfASharedStageIsCountedAsIfThereWasNoOther) {
  const auto model =
      make_preset("gpt-nano:blocks=3,width=16,heads=2,vocabulary=32", {.seq_len = 8}).take().model;
  const auto pieces = pieces_of(model, 2).take();
  PlanConfig config;
  config.micro_batches = 4;
  config.tensor = config.shard_ranks = 2;
  config.shard = "parameters";
  const OpNodes ops(*model, config.micro_batch_size, {});
  const Schedule order = make_schedule(choose_schedule(config).take(), config, {}).take();
  RunTerms shared(*model, pieces, config, ops, order);
  const size_t n = ops.ids.size();
  size_t runs = 0;
  for (const StageForm& form :
       {StageForm{{Kind::F, Kind::B}, {0}}, StageForm{{Kind::F, Kind::I, Kind::W}, {0}},
        StageForm{{Kind::F, Kind::B}, {2}}})
    for (size_t begin = 0; begin < n; begin += 2)
      for (size_t end = begin + 1; end <= n; end += 3, ++runs) {
        const RunOfNodes at{0, begin, end};
        const auto& found = shared.run(at, shared.form(form), nullptr).shares;
        if (runs % test::kEvery) continue;
        RunTerms own(*model, pieces, config, ops, order);
        const auto& expected = own.run(at, own.form(form), nullptr).shares;
        SCOPED_TRACE(cat("nodes ", begin, " to ", end));
        ASSERT_EQ(found.size(), expected.size());
        for (size_t t = 0; t < found.size(); ++t) {
          EXPECT_EQ(found[t].terms, expected[t].terms);
          EXPECT_EQ(found[t].until, expected[t].until);
          EXPECT_EQ(found[t].scratch, expected[t].scratch);
          EXPECT_EQ(found[t].reads, expected[t].reads);
        }
      }
  // Most runs have several segments, each for two ranks.
  EXPECT_LT(shared.patterns(Mode::train), runs);
}

// Each weight has two uses far from one another, and the replicas drop gradients: accumulators of a
// run with both uses share slots.
Drawn of_distant_uses() {
  Drawn out(0);
  Model model;
  NodeId at = model.add_input("x", {DType::f32, {1, 64}}, false).take();
  const NodeId target = model.add_input("target", {DType::f32, {1, 64}}, false).take();
  std::vector<ParamId> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(model.add_param(cat("w", i), {64, 64}, {}).take());
  for (int i = 0; i < 8; ++i)
    at = model.add_node("", find_op("linear"), {}, {{at}}, {{weights[i % 4]}}).take();
  EXPECT_TRUE(model.add_node("", find_op("mse"), {}, {{at, target}}, {}).ok());
  EXPECT_TRUE(model.finish().ok());
  out.model = std::make_shared<Model>(std::move(model));
  out.config = PlanConfig();
  out.config.data = out.config.micro_batches = out.config.gradient_groups = 4;
  out.config.ranks = 8;
  out.config.optim.rule = Rule::sgd;
  out.config.bucket_bytes = 1;
  out.name = "distant uses";
  return out;
}

// The search for cuts does not count the bytes of runs that contain one that cannot fit.
TEST(Account, ARunThatCannotFitIsInNoneThatCan) {
  int fitting = 0, hopeless = 0;
  for (uint32_t seed = 0; seed < 90; seed += test::kEvery) {
    Drawn drawn = seed < 60 ? Drawn(seed) : of_distant_uses();
    const auto plan = make_plan(drawn.model, drawn.config);
    if (!plan.ok()) continue;
    SCOPED_TRACE(drawn.name);
    const std::vector<int64_t>& all = plan.value()->arena_bytes;
    const int64_t most = *std::max_element(all.begin(), all.end());
    drawn.config.memory_limit = seed < 60 ? most / (1 + seed % 3) : most * (seed - 59) / 30;
    const OpNodes ops(*plan.value()->whole, drawn.config.micro_batch_size, {});
    RunBytes bytes = account_of(*plan.value(), drawn.config, ops);
    const auto stages = static_cast<size_t>(plan.value()->pipeline_stages());
    for (size_t s = 0; s < stages; ++s)
      for (size_t begin = 0; begin < ops.ids.size(); ++begin)
        for (size_t end = begin + 1; end <= ops.ids.size(); ++end) {
          const BytesOfRun run = bytes.of({s, begin, end});
          ASSERT_TRUE(run.more || !run.fits()) << s << " " << begin << " " << end;
          fitting += run.fits();
          hopeless += !run.more;
          if (begin + 1 == end) continue;
          const BytesOfRun shorter = bytes.of({s, begin, end - 1}),
                           later = bytes.of({s, begin + 1, end});
          ASSERT_TRUE(!run.more || shorter.more) << s << " " << begin << " " << end;
          ASSERT_TRUE(!run.within() || (shorter.within() && later.within()))
              << s << " " << begin << " " << end;
        }
  }
  EXPECT_GT(fitting, 1000 / test::kEvery);
  EXPECT_GT(hopeless, 1000 / test::kEvery);
}

}  // namespace
}  // namespace weft
