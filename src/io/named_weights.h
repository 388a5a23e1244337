// The tensors of files by the names of a model's parameters. Names in files may have the prefix of
// the architecture, which is removed.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/model.h"
#include "io/weights.h"

namespace weft {

struct NamedWeights {
  // Valid as long as the weights and the model.
  static Result<NamedWeights> of(const Weights& weights, const Model& model);

  std::vector<std::string_view> names() const;  // of the parameters
  // Without what matches one of these patterns. What is tied to such a parameter is not compared.
  void leave_out(std::string_view patterns);
  // As SafetensorsFile::read_floats converts them. Not the tied head.
  Result<std::vector<TensorSpec>> specs() const;
  // A head that differs from the embedding was not tied when it was trained.
  Status check_tied_head() const;

  const Weights* weights = nullptr;
  std::map<std::string_view, Weights::Tensor> params;
  // Those that PEFT has stored beside the adapter of a head.
  std::vector<std::string_view> bases;
  std::optional<Weights::Tensor> tied_head;  // if the model has tied the head ..
  std::string_view tied_to;                  // .. to this parameter
};

}  // namespace weft
