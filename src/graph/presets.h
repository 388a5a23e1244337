// Models by name: NAME[:key=value,...]. The command trains them. They are built with the public
// functions of Model.
//
//   mlp        layers of linear + ReLU, mean squared error
//              keys: layers, width
//   gpt-nano   GPT-2's architecture, 4 blocks, width 128, 4 heads, context 128, vocabulary 256
//   gpt2       GPT-2 small (Radford et al. 2019): 12 blocks, width 768, 12 heads, context 1024,
//              vocabulary 50257
//              keys of both: blocks, width, heads, context, vocabulary, dropout, tied
//
//   gemma2, gemma3, llama, mistral, phi3, qwen2, qwen3
//              Llama (Touvron et al. 2023) and models that differ in a few settings
//   gpt_neox   GPT-NeoX (Black et al. 2022)
//
// All models also have the keys lora_rank, lora_alpha, lora_dropout and lora_targets (names,
// separated by '/'): if one is given, the model has adapters (adapters.h).
//
// weft-train(1) lists the keys.
//
// Names and shapes of parameters are those of Hugging Face's Transformers, so that weights load by
// name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "graph/adapters.h"
#include "graph/model.h"

namespace weft {

// Of a decoder: for how many sequences, of how many tokens, it keeps keys and values.
struct CacheOptions {
  int32_t sequences = 0;  // 0: the model is no decoder
  int64_t length = 0;     // 0: the whole context
  bool bf16 = false;
};

struct PresetOptions {
  int64_t seq_len = 0;  // tokens per sample; 0: the whole context
  int32_t stages = 1;   // mlp: layers defaults to max(4, stages)
  CacheOptions cache = {};
  bool packed = false;  // a sample has several sequences, one after another
};

struct Preset {
  std::shared_ptr<Model> model;  // finished
  std::string text;     // NAME with every key, in a fixed order: makes the same model even if
                        // defaults change
  bool tokens = false;  // inputs "tokens" and "targets" (i32), output logits; otherwise "x" and
                        // "target" (f32). With packed samples, a third input "positions" has those
                        // of each token in its sequence. A decoder has inputs "tokens",
                        // "positions" and "sequences", a sample is a token, and there is no loss
  int64_t vocabulary = 0, context = 0, seq_len = 0;  // tokens
  int64_t width = 0;
  std::optional<AdapterOptions> adapters = {};
};

// Errors contain the key, what was expected and what was found, or list the known names.
Result<Preset> make_preset(std::string_view text, const PresetOptions& options);

}  // namespace weft
