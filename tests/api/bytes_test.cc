// Planned bytes of small plans, counted by hand. Every tensor takes whole lines of 64 bytes.
#include <numeric>
#include <string>
#include <vector>

#include "api/api.h"

namespace {

// Micro-batches of 10 samples: a value of 24 features, one of 40, a loss (a double), the scratch
// memory of a loss.
constexpr int64_t kNarrow = 10 * 24 * 4, kWide = 10 * 40 * 4, kLoss = 64, kLossScratch = 64;
// Of 24 x 40 weights: the weights, and the partial sums of the norm (a double for each 4096
// elements).
constexpr int64_t kWeights = 24 * 40 * 4, kPartials = 64;
// Trained by SGD without momentum: the weights, their accumulator and the partial sums.
constexpr int64_t kOwned = 2 * kWeights + kPartials;
// Packed in strips of 16 columns, if a step has several micro-batches: a.weight for the forward,
// and b.weight for it and for the backward.
constexpr int64_t kPackedA = 24 * 48 * 4, kPackedB = 40 * 32 * 4 + 24 * 48 * 4;

weft_param add_weights(const ModelPtr& model, const char* name, int64_t in, int64_t out) {
  const weft_desc shape = desc({in, out});
  weft_param weights = {};
  Error err;
  EXPECT_EQ(weft_model_add_param(model.get(), name, &shape, WEFT_INIT_NORMAL, 0.1, &weights, &err),
            WEFT_OK)
      << err.text;
  return weights;
}

weft_value multiply(const ModelPtr& model, const char* name, weft_value x, weft_param weights) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = "linear";
  config.name = name;
  config.inputs = &x;
  config.n_inputs = 1;
  config.params = &weights;
  config.n_params = 1;
  weft_value out = {};
  Error err;
  EXPECT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  return out;
}

// x [24] -> a [40] -> relu -> b [24], mean squared error to target.
ModelPtr two_layers() {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 24}), target = add_input(model, "target", {1, 24});
  const weft_value a = multiply(model, "a", x, add_weights(model, "a.weight", 24, 40));
  const weft_value r = add_node(model, "relu", {a}, "r");
  add_node(model, "mse", {multiply(model, "b", r, add_weights(model, "b.weight", 40, 24)), target},
           "loss");
  return model;
}

// The same with one square matrix, used twice.
ModelPtr tied_layers() {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 24}), target = add_input(model, "target", {1, 24});
  const weft_param weights = add_weights(model, "weight", 24, 24);
  const weft_value r = add_node(model, "relu", {multiply(model, "a", x, weights)}, "r");
  add_node(model, "mse", {multiply(model, "b", r, weights), target}, "loss");
  return model;
}

struct Options {
  uint32_t ranks, micro_batches;
  const char* schedule;
  const char* schedule_text = nullptr;
  const char* recompute = "none";
  weft_rule rule = WEFT_SGD;
  double momentum = 0;
};

PlanPtr plan_of(const ModelPtr& model, const Options& options) {
  static const char* const cuts[] = {"b"};
  weft_optimizer optimizer = unclipped();
  optimizer.rule = options.rule;
  optimizer.momentum = options.momentum;
  weft_plan_config config = plan_config(options.ranks, options.micro_batches, 10);
  if (options.schedule) config.schedule = options.schedule;
  config.schedule_text = options.schedule_text;
  config.recompute = options.recompute;
  config.optimizer = &optimizer;
  if (options.ranks == 2) {
    config.cuts = cuts;
    config.n_cuts = 1;
  }
  weft_plan* plan = nullptr;
  Error err;
  EXPECT_EQ(weft_plan_new(model.get(), &config, &plan, &err), WEFT_OK) << err.text;
  return PlanPtr(plan);
}

constexpr weft_memory_kind kKinds[] = {
    WEFT_MEMORY_WEIGHTS,  WEFT_MEMORY_GRADIENTS, WEFT_MEMORY_OPTIMIZER, WEFT_MEMORY_ACTIVATIONS,
    WEFT_MEMORY_MESSAGES, WEFT_MEMORY_SCRATCH,   WEFT_MEMORY_STATE};

std::vector<int64_t> by_kind(const PlanPtr& plan, uint32_t rank) {
  std::vector<int64_t> bytes;
  for (const weft_memory_kind kind : kKinds)
    bytes.push_back(weft_plan_memory(plan.get(), rank, kind));
  return bytes;
}

std::vector<int64_t> planned(const ModelPtr& model, const Options& options) {
  const PlanPtr plan = plan_of(model, options);
  std::vector<int64_t> bytes;
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    bytes.push_back(weft_plan_bytes(plan.get(), rank));
    const std::vector<int64_t> kinds = by_kind(plan, rank);
    EXPECT_EQ(std::accumulate(kinds.begin(), kinds.end(), int64_t{0}), bytes.back());
  }
  return bytes;
}

using Bytes = std::vector<int64_t>;

TEST(PlannedBytes, OfOneRankAndEachUpdateRule) {
  // x and target are kept until the backward, and the next ones may arrive meanwhile. r and y are
  // kept until the backward. Losses leave from one slot and are kept by rank 0 until the end of
  // the step. A backward needs the gradients of y, r and a; the last two and the first two live at
  // the same time.
  const int64_t moving =
      2 * kNarrow + 2 * kNarrow + (kWide + kNarrow) + kLoss + 3 * kLoss + (kNarrow + 2 * kWide);
  EXPECT_EQ(planned(two_layers(), {1, 3, "1f1b"}),
            Bytes{2 * kOwned + kPackedA + kPackedB + moving});
  EXPECT_EQ(
      planned(two_layers(), {.ranks = 1, .micro_batches = 3, .schedule = "1f1b", .momentum = 0.9}),
      Bytes{2 * (kOwned + kWeights) + kPackedA + kPackedB + moving});
  EXPECT_EQ(planned(two_layers(),
                    {.ranks = 1, .micro_batches = 3, .schedule = "1f1b", .rule = WEFT_ADAMW}),
            Bytes{2 * (kOwned + 2 * kWeights) + kPackedA + kPackedB + moving});
}

TEST(PlannedBytes, OfTwoRanksUnderGpipe) {
  // All four micro-batches are kept: x and r by rank 0, r, target and y by rank 1. Two gradients of
  // r may lie at rank 0; rank 1 makes one while the one before is on its way.
  EXPECT_EQ(planned(two_layers(), {2, 4, "gpipe"}),
            (Bytes{kOwned + kPackedA + 4 * kNarrow + 4 * kWide + 2 * kWide + kWide + 4 * kLoss,
                   kOwned + kPackedB + 4 * kWide + 4 * kNarrow + 4 * kNarrow + kLoss + 2 * kWide +
                       (kNarrow + kLossScratch)}));
}

// Rank 0 keeps r for four micro-batches as slots of outgoing values, so all it keeps is in
// messages.
TEST(PlannedBytes, OfEachKind) {
  const PlanPtr plan =
      plan_of(two_layers(), {.ranks = 2, .micro_batches = 4, .schedule = "gpipe", .momentum = 0.9});
  const int64_t gradients = kWeights + kPartials;
  EXPECT_EQ(by_kind(plan, 0), (Bytes{kWeights + kPackedA, gradients, kWeights, 0,
                                     4 * kNarrow + 4 * kWide + 2 * kWide + 4 * kLoss, kWide, 0}));
  EXPECT_EQ(by_kind(plan, 1),
            (Bytes{kWeights + kPackedB, gradients, kWeights, 4 * kNarrow,
                   4 * kWide + 4 * kNarrow + kLoss + 2 * kWide, kNarrow + kLossScratch, 0}));
  EXPECT_EQ(weft_plan_memory(plan.get(), 2, WEFT_MEMORY_WEIGHTS), 0);
  EXPECT_EQ(weft_plan_memory(nullptr, 0, WEFT_MEMORY_WEIGHTS), 0);
}

TEST(PlannedRate, RisesAndFallsAsConfigured) {
  weft_optimizer optimizer = defaults(weft_optimizer_init);
  optimizer.rate = 0.5;
  optimizer.curve = WEFT_RATE_COSINE;
  optimizer.warmup = 2;
  optimizer.total = 6;
  weft_plan_config config = plan_config(1);
  config.optimizer = &optimizer;
  const PlanPtr plan = new_plan(two_layers(), config);
  for (const auto& [step, rate] :
       {std::pair<uint64_t, double>{0, 0.25}, {1, 0.5}, {2, 0.5}, {4, 0.25}})
    EXPECT_NEAR(weft_plan_rate(plan.get(), step), rate, 1e-12) << "step " << step;
  EXPECT_EQ(weft_plan_rate(nullptr, 0), 0);
}

TEST(PlannedBytes, OfTwoRanksUnder1f1b) {
  // Rank 0 keeps two micro-batches, rank 1 one; what arrives has a slot more.
  EXPECT_EQ(planned(two_layers(), {2, 4, "1f1b"}),
            (Bytes{kOwned + kPackedA + 3 * kNarrow + 2 * kWide + 2 * kWide + kWide + 4 * kLoss,
                   kOwned + kPackedB + 2 * kWide + 2 * kNarrow + kNarrow + kLoss + kWide +
                       (kNarrow + kLossScratch)}));
}

TEST(PlannedBytes, OfWeightGradientsThatWait) {
  const char* rows = "0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1F1 1I1 1W0 1W1\n";
  // Rank 0 keeps the gradient of a from I to W, rank 1 that of y of both micro-batches; it keeps y
  // from F to I of one.
  EXPECT_EQ(
      planned(two_layers(), {2, 2, nullptr, rows}),
      (Bytes{kOwned + kPackedA + 2 * kNarrow + 2 * kWide + 2 * kWide + kWide + kWide + 2 * kLoss,
             kOwned + kPackedB + 2 * kWide + 2 * kNarrow + kNarrow + kLoss + 2 * kNarrow + kWide +
                 kLossScratch}));
}

TEST(PlannedBytes, OfRecomputedStages) {
  // As under gpipe, but rank 0 has two slots for r on its way and one for r made again; rank 1 has
  // one for y made again, and y of the forward is scratch memory. The gradient of r leaves before
  // rank 1 has made y again and the next one.
  EXPECT_EQ(
      planned(two_layers(), {2, 4, "gpipe", nullptr, "stage"}),
      (Bytes{kOwned + kPackedA + 4 * kNarrow + 2 * kWide + kWide + 2 * kWide + kWide + 4 * kLoss,
             kOwned + kPackedB + 4 * kWide + 4 * kNarrow + kNarrow + kLoss + kWide +
                 (kNarrow + kLossScratch)}));
}

TEST(PlannedBytes, OfATiedParameter) {
  constexpr int64_t kSquare = 24 * 24 * 4;
  // Rank 0 owns it: the weights, an accumulator for each of the two uses, the momentum and the
  // partial sums. Rank 1 has the weights and the accumulator of its use.
  EXPECT_EQ(planned(tied_layers(),
                    {.ranks = 2, .micro_batches = 1, .schedule = "gpipe", .momentum = 0.9}),
            (Bytes{4 * kSquare + kPartials + kNarrow + kNarrow + kNarrow + kNarrow + kLoss,
                   2 * kSquare + kNarrow + kNarrow + kNarrow + kLoss + kNarrow +
                       (kNarrow + kLossScratch)}));
}

}  // namespace
