// Low-rank adapters (LoRA, Hu et al. 2021): a linear node with the weight W computes
// W x + alpha / rank * B A x, where A and B have `rank` rows and columns. Training can drop
// elements of x for A.
//
// The adapter of node NAME has the parameters NAME.lora_A.weight [rank, in] and
// NAME.lora_B.weight [out, rank], as in files of Hugging Face's PEFT, and consists of ordinary
// nodes. NAME is then the sum; the linear node is NAME.base_layer. Training only the adapters is up
// to the plan, which freezes the other parameters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/model.h"

namespace weft {

// Every linear node, except one that computes an output of the model.
inline constexpr std::string_view kAllLinear = "all-linear";

struct AdapterOptions {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;  // probability
  // A linear node is adapted if its name is a target or ends with '.' and a target. Or only
  // kAllLinear. Empty: the usual names of the projections to queries and values.
  std::vector<std::string> targets = {};
};

// A finished copy of a model whose linear nodes have adapters. B is 0, so that it computes the same
// numbers until B is trained. Sets options.targets if it is empty.
Result<std::shared_ptr<Model>> adapt(const Model& model, AdapterOptions& options);

struct Adapter {
  std::string name;  // of the adapted node
  ParamId weight, a, b;
  bool out_in;   // the weight is stored as [out, in]
  double scale;  // alpha / rank
};

// In the order of the nodes.
std::vector<Adapter> adapters_of(const Model& model);

// Whether it is the name of A or B.
bool is_adapter(std::string_view param);

}  // namespace weft
