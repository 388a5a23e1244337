// Which numbers the nodes of a plan take from i32 inputs of the model. A batch with another one is
// refused before its step begins: a step that fails ends the run.
#pragma once

#include <array>
#include <vector>

#include "plan/plan.h"
#include "runtime/batch.h"

namespace weft {

class InputRanges {
 public:
  explicit InputRanges(const Plan& plan);
  // Errors name the input and the node.
  Status check(const Plan& plan, Mode mode, const Batch& batch) const;

 private:
  struct Use {
    size_t input;  // index into Model::inputs()
    NodeId node;
    IndexRange range;
  };
  std::array<std::vector<Use>, kModes> uses_;
};

}  // namespace weft
