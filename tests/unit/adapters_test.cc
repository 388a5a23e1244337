// Adapters: which linear nodes get them, what the new nodes compute, and what is refused.
#include "graph/adapters.h"

#include <gtest/gtest.h>

#include "graph/presets.h"

namespace weft {
namespace {

constexpr const char* kLlama =
    "llama:blocks=1,width=8,heads=2,key_heads=1,head_size=4,inner=6,vocabulary=9,context=4";

std::shared_ptr<Model> model_of(const std::string& text) {
  auto preset = make_preset(text, {});
  EXPECT_TRUE(preset.ok()) << preset.status().text();
  return preset.ok() ? preset.value().model : nullptr;
}

std::vector<std::string> adapted(const std::string& text) {
  std::vector<std::string> out;
  for (const Adapter& adapter : adapters_of(*model_of(text))) out.push_back(adapter.name);
  return out;
}

std::string fault(const std::string& text) { return make_preset(text, {}).status().text(); }

using Names = std::vector<std::string>;

TEST(Adapters, ALinearNodeBecomesASum) {
  const auto model =
      model_of(std::string(kLlama) + ",lora_rank=2,lora_alpha=6,lora_targets=o_proj");
  const std::string name = "model.layers.0.self_attn.o_proj";
  const std::vector<Adapter> list = adapters_of(*model);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].name, name);
  EXPECT_EQ(list[0].scale, 3);
  EXPECT_TRUE(list[0].out_in);
  EXPECT_EQ(model->param(list[0].weight).name, name + ".weight");
  const Param &a = model->param(list[0].a), &b = model->param(list[0].b);
  EXPECT_EQ(a.name, name + ".lora_A.weight");
  EXPECT_EQ(a.shape, (Shape{2, 8}));
  EXPECT_EQ(a.init.kind, InitKind::normal);
  EXPECT_EQ(b.name, name + ".lora_B.weight");
  EXPECT_EQ(b.shape, (Shape{8, 2}));
  EXPECT_EQ(b.init, Init{});
  EXPECT_TRUE(is_adapter(a.name) && is_adapter(b.name));
  EXPECT_FALSE(is_adapter(name + ".weight"));
  const Node& sum = model->node(model->find_node(name));
  EXPECT_EQ(sum.op->name(), "add");
  EXPECT_EQ(model->node(sum.in[0]).name, name + ".base_layer");
  EXPECT_EQ(model->node(sum.in[1]).name, name + ".lora_B");
}

TEST(Adapters, Gpt2StoresItsWeightsTheOtherWayRound) {
  const auto model = model_of("gpt-nano:blocks=1,width=8,heads=2,lora_rank=2");
  const std::vector<Adapter> list = adapters_of(*model);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_FALSE(list[0].out_in);
  EXPECT_EQ(model->param(list[0].weight).shape, (Shape{8, 24}));
  EXPECT_EQ(model->param(list[0].a).shape, (Shape{2, 8}));
  EXPECT_EQ(model->param(list[0].b).shape, (Shape{24, 2}));
}

TEST(Adapters, TargetsAreWholePartsOfNames) {
  const std::string block = "model.layers.0.", attention = block + "self_attn.",
                    llama = std::string(kLlama) + ",lora_targets=";
  EXPECT_EQ(adapted(std::string(kLlama) + ",lora_rank=2"),
            (Names{attention + "q_proj", attention + "v_proj"}));
  EXPECT_EQ(adapted(llama + "mlp.up_proj"), (Names{block + "mlp.up_proj"}));
  EXPECT_EQ(adapted(llama + "lm_head"), (Names{"lm_head"}));
  EXPECT_EQ(adapted(llama + "all-linear").size(), 7u);  // not the head
  EXPECT_EQ(
      adapted("gpt_neox:blocks=1,width=16,heads=2,inner=8,vocabulary=9,context=4,lora_rank=1"),
      (Names{"gpt_neox.layers.0.attention.query_key_value"}));
  EXPECT_NE(fault(llama + "proj").find("target 'proj' of the adapters: no linear node"),
            Names::value_type::npos);
}

TEST(Adapters, OtherParametersKeepTheirNamesAndOrder) {
  const auto base = model_of(kLlama), model = model_of(std::string(kLlama) + ",lora_rank=2");
  ASSERT_LT(base->params().size(), model->params().size());
  for (size_t p = 0; p < base->params().size(); ++p) {
    EXPECT_EQ(model->params()[p].name, base->params()[p].name);
    EXPECT_EQ(model->params()[p].init, base->params()[p].init);
  }
  EXPECT_EQ(model->node(model->outputs().front()).name, base->node(base->outputs().front()).name);
}

TEST(Adapters, TheTextOfThePresetMakesThemAgain) {
  auto preset = make_preset(std::string(kLlama) + ",lora_rank=2", {});
  ASSERT_TRUE(preset.ok());
  const std::string text = preset.value().text;
  EXPECT_TRUE(text.ends_with(",lora_rank=2,lora_alpha=8,lora_targets=q_proj/v_proj")) << text;
  EXPECT_EQ(model_of(text)->hash(), preset.value().model->hash());
  auto decoder = make_preset(text, {.cache = {.sequences = 2, .length = 4}});
  ASSERT_TRUE(decoder.ok()) << decoder.status().text();
  EXPECT_EQ(adapters_of(*decoder.value().model).size(), 2u);
}

TEST(Adapters, FaultsAreNamed) {
  const std::string llama = std::string(kLlama) + ",";
  EXPECT_EQ(fault("mlp:width=4,lora_rank=1"),
            "model 'mlp': no linear node has one of the names that have adapters by default: "
            "q_proj, v_proj, c_attn, query_key_value, qkv_proj. Name the targets");
  EXPECT_EQ(fault(llama + "lora_rank=0"),
            "model 'llama': lora_rank is 0, expected a whole number from 1 to 65536");
  EXPECT_NE(fault(llama + "lora_size=1").find("has no key 'lora_size'; it has lora_rank"),
            Names::value_type::npos);
  AdapterOptions options;
  EXPECT_NE(adapt(*model_of(llama + "lora_rank=1"), options)
                .status()
                .text()
                .find("the model already has adapters: parameter "
                      "'model.layers.0.self_attn.q_proj.lora_A.weight'"),
            Names::value_type::npos);
}

}  // namespace
}  // namespace weft
