// The tensors of a run by their names in files.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "plan/plan.h"
#include "runtime/transfer.h"

namespace weft {

struct NamedTensors {
  std::vector<TensorAt> tensors;
  std::vector<CheckpointWriter::Place> places;

  void add(const TensorAt& tensor, ShardPart part, std::string name) {
    tensors.push_back(tensor);
    places.push_back({part, std::move(name)});
  }
};

// All parameters, and the optimizer state of those that are not frozen.
NamedTensors model_of(const Plan& plan);
NamedTensors optimizer_of(const Plan& plan);
std::vector<TensorSpec> specs_of(const Plan& plan, const NamedTensors& named);

}  // namespace weft
