// The file config.json of Hugging Face's Transformers, which describes a model.
//
// Each architecture is a row of tables (model_architectures.h). A field that affects results is
// used, or must have the only value that weft computes; a field that is not known is refused by its
// name.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/shape.h"

namespace weft {

// The model as make_preset reads it: "gpt2:blocks=12,width=768,...".
Result<std::string> parse_model_config(std::string_view json);

struct ConfigFacts {
  DType dtype = DType::f32;  // of the weights: that, or bf16
  std::string_view source;   // a config.json, from which the ids of special tokens are taken
};
// The reverse. Fails for a model that Transformers does not have.
Result<std::string> print_model_config(std::string_view model, const ConfigFacts& facts = {});

// Of the names of GPT-2's parameters in files, except the head.
inline constexpr std::string_view kGpt2Prefix = "transformer.";
// Of such a model: that, or "".
std::string_view weight_prefix(std::string_view model);

}  // namespace weft
