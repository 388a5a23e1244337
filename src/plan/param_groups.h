// Groups of parameters by name: how a plan trains them, and which it does not train.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "graph/model.h"

namespace weft {

struct ParamGroup {
  std::string pattern;  // of names, see base/patterns.h
  bool frozen = false;
  double rate_factor = 1, weight_decay_factor = 1;
};

// The model as a plan with these groups trains it; the same model if there are none and the loss
// has a gradient for each parameter. The last group that matches a parameter determines its
// training. Parameters without a gradient are frozen. `trains`: the groups must leave one of a
// parameter or an input.
Result<std::shared_ptr<const Model>> with_groups(const std::shared_ptr<const Model>& model,
                                                 std::span<const ParamGroup> groups, bool trains);

}  // namespace weft
