// Presets: sizes, names and partitions that others rely on.
#include <gtest/gtest.h>

#include "graph/presets.h"
#include "plan/plan.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

int64_t elements(const Model& model) {
  int64_t n = 0;
  for (const Param& p : model.params()) n += p.shape.elements();
  return n;
}

TEST(Presets, Gpt2HasItsSizeAndNames) {
  auto preset = make_preset("gpt2", {});
  ASSERT_TRUE(preset.ok()) << preset.status().text();
  const Model& model = *preset.value().model;
  EXPECT_EQ(elements(model), 124439808);  // as published
  EXPECT_EQ(model.params().size(), 148u);
  const ParamId w = model.find_param("h.11.attn.c_attn.weight");
  ASSERT_GE(w, 0);
  EXPECT_EQ(model.param(w).shape, (Shape{768, 2304}));
  EXPECT_EQ(model.param(model.find_param("wte.weight")).uses.size(), 2u);
  EXPECT_EQ(preset.value().text,
            "gpt2:blocks=12,width=768,heads=12,context=1024,vocabulary=50257,dropout=0,tied=1");
}

TEST(Presets, Gpt2CutAfterEveryThirdBlockOwnsWhatTheBlocksHold) {
  auto preset = make_preset("gpt2", {.seq_len = 8});
  ASSERT_TRUE(preset.ok()) << preset.status().text();
  PlanConfig config;
  config.ranks = 4;
  config.cuts = {"h.3", "h.6", "h.9"};
  auto plan = make_plan(preset.value().model, config);
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  std::vector<int64_t> owned(4);
  for (size_t r = 0; r < 4; ++r)
    for (const ResidentParam& p : plan.value()->resident[r])
      if (p.owned) owned[r] += plan.value()->model->param(p.param).shape.elements();
  EXPECT_EQ(owned, (std::vector<int64_t>{60647424, 21263616, 21263616, 21265152}));
  // One tensor crosses each cut forward and one back, though it has two uses; the tied head adds
  // one each way.
  int forward = 0, gradient = 0, ties = 0;
  for (const Edge& e : plan.value()->mode(Mode::train).edges) {
    forward += e.kind == EdgeKind::forward;
    gradient += e.kind == EdgeKind::gradient;
    ties += e.kind == EdgeKind::tie_grad || e.kind == EdgeKind::tie_value;
  }
  EXPECT_EQ(forward, 3);
  EXPECT_EQ(gradient, 3);
  EXPECT_EQ(ties, 2);
}

TEST(Presets, KeysAreCheckedByName) {
  auto text = [](std::string_view model, PresetOptions options = {}) {
    return make_preset(model, options).status().text();
  };
  EXPECT_EQ(text("gpt3"),
            "model 'gpt3' is not known; there are mlp, gpt-nano, gpt2, gpt_neox, llama, mistral, "
            "phi3, qwen2, qwen3, gemma2, gemma3");
  EXPECT_EQ(text("mlp:depth=3"), "model 'mlp' has no key 'depth'; it has layers, width");
  EXPECT_EQ(text("mlp:layers=0"),
            "model 'mlp': layers is 0, expected a whole number from 1 to 10000");
  EXPECT_EQ(text("mlp:layers=x"), "model 'mlp': layers is 'x', expected a number");
  EXPECT_EQ(text("mlp:layers"), "model 'mlp': expected key=value, found 'layers'");
  EXPECT_EQ(text("mlp:width=8,layers=4,width=16"), "model 'mlp' has the key width twice");
  EXPECT_EQ(text("mlp:"), "model 'mlp:': expected key=value at its end");
  EXPECT_EQ(text("mlp:width=8,"), "model 'mlp:width=8,': expected key=value at its end");
  EXPECT_EQ(text("gpt-nano:width=130"), "model 'gpt-nano': width 130 is not a multiple of heads 4");
  EXPECT_EQ(text("gpt-nano", {.seq_len = 200}),
            "sequence length is 200, model 'gpt-nano' has a context of 128");
  EXPECT_EQ(make_preset("mlp", {.stages = 6}).value().text, "mlp:layers=6,width=256");
}

}  // namespace
}  // namespace weft
