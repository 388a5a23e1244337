// Sequences that are packed into one sample are trained as if each were a sample.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/presets.h"
#include "runtime/run.h"
#include "support/small_gpt.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

constexpr int64_t kTime = 140;
constexpr int kSteps = 4;

class Packing : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Presets, Packing,
    testing::Values("gpt-nano:blocks=2,width=16,heads=2,context=140,vocabulary=37",
                    "llama:blocks=2,width=16,heads=4,key_heads=2,head_size=4,inner=24,context=140,"
                    "vocabulary=37",
                    "gpt_neox:blocks=2,width=16,heads=2,inner=24,context=140,vocabulary=37"));

// Rows of kTime tokens. Padding has no target.
struct Rows {
  std::vector<int32_t> tokens, targets, positions;
  int64_t count = 0;

  void begin_row() {
    end_ = tokens.size();
    tokens.resize(end_ + kTime, 0);
    positions.resize(tokens.size(), 0);
    targets.resize(tokens.size(), -1);
    ++count;
  }

  // The first half of a sequence is its prompt.
  void add(int32_t number, int32_t length) {
    for (int32_t i = 0; i < length; ++i, ++end_) {
      tokens[end_] = (number * 7 + i * 3) % 37;
      targets[end_] = i < length / 2 ? -1 : (number * 7 + (i + 1) * 3) % 37;
      positions[end_] = i;
    }
  }

 private:
  size_t end_ = 0;
};

const std::vector<std::vector<int32_t>> kLengths = {{40, 70, 30}, {1, 139}, {64, 65, 5}, {100, 20}};

Rows make_rows(bool packed) {
  Rows rows;
  int32_t number = 0;
  for (const std::vector<int32_t>& lengths : kLengths) {
    if (packed) rows.begin_row();
    for (const int32_t length : lengths) {
      if (!packed) rows.begin_row();
      rows.add(number++, length);
    }
  }
  return rows;
}

test::Outcome train(const char* preset, bool packed, const Rows& rows, const PlanConfig& config) {
  auto made = make_preset(preset, {.packed = packed});
  EXPECT_TRUE(made.ok()) << made.status().text();
  auto plan = make_plan(made.value().model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  if (!plan.ok()) return {};
  auto run = start_inline(plan.take(), [](void*) {}).take();
  test::Outcome out;
  for (int s = 0; s < kSteps; ++s) {
    Step* step = run->acquire();
    step->batch.samples = rows.count;
    step->batch.inputs = {rows.tokens.data(), rows.targets.data()};
    if (packed) step->batch.inputs.push_back(rows.positions.data());
    EXPECT_TRUE(run->submit(step).ok());
    RunEvent event;
    while (run->poll(event, -1)) {
      EXPECT_TRUE(event.status.ok()) << event.status.text();
      if (event.kind != RunEvent::Kind::done) continue;
      out.losses.push_back(event.loss);
      out.norms.push_back(event.grad_norm);
    }
  }
  out.digest = run->digest().take();
  return out;
}

PlanConfig config_of(const Rows& rows) {
  PlanConfig config = test::small_gpt_config();
  config.micro_batches = static_cast<int32_t>(rows.count);
  config.micro_batch_size = 1;
  config.short_size = 0;
  return config;
}

TEST_P(Packing, TrainsEachSequenceAsIfItWereASample) {
  const Rows packed = make_rows(true), separate = make_rows(false);
  const test::Outcome together = train(GetParam(), true, packed, config_of(packed)),
                      alone = train(GetParam(), false, separate, config_of(separate));
  ASSERT_EQ(together.losses.size(), static_cast<size_t>(kSteps));
  EXPECT_LT(together.losses.back(), together.losses.front());
  for (size_t i = 0; i < together.losses.size(); ++i) {
    EXPECT_NEAR(together.losses[i], alone.losses[i], 1e-5) << i;
    EXPECT_NEAR(together.norms[i], alone.norms[i], 1e-4 * alone.norms[i]) << i;
  }
}

TEST_P(Packing, HasTheBitsOfTheModelWithoutPositionsIfARowIsOneSequence) {
  Rows rows = make_rows(false);
  for (size_t i = 0; i < rows.positions.size(); ++i)
    rows.positions[i] = static_cast<int32_t>(i % kTime);  // also in the padding
  const PlanConfig config = config_of(rows);
  EXPECT_EQ(train(GetParam(), true, rows, config), train(GetParam(), false, rows, config));
}

TEST_P(Packing, HasOneDigestOverShardsReplicasAndStages) {
  const Rows rows = make_rows(true);
  for (const char* precision : {"f32", "bf16"}) {
    PlanConfig config = config_of(rows);
    config.precision = precision;
    config.tensor = config.gradient_groups = 2;
    const test::Outcome expected = train(GetParam(), true, rows, config);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const int32_t shares : {1, 2})
      for (const int32_t data : {1, 2})
        for (const int32_t stages : {1, 2}) {
          config.shard_ranks = shares;
          config.data = data;
          config.ranks = shares * data * stages;
          config.recompute = stages == 2 ? "stage" : "none";
          EXPECT_EQ(train(GetParam(), true, rows, config), expected)
              << precision << ", " << shares << " shards, " << data << " replicas, " << stages
              << " stages";
        }
  }
}

}  // namespace
}  // namespace weft
