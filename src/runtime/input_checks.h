// Whether the nodes of a plan can compute with the i32 inputs of a batch. This is checked before
// its step begins, because a step that fails ends the run.
#pragma once

#include <array>
#include <vector>

#include "plan/plan.h"
#include "runtime/batch.h"

namespace weft {

class InputChecks {
 public:
  explicit InputChecks(const Plan& plan);
  // Errors name the input and the node.
  Status check(const Plan& plan, Mode mode, const Batch& batch);

 private:
  struct Use {
    NodeId node;
    int port;
    std::vector<int32_t> inputs;  // of the node: index into Model::inputs(), -1: another node
    std::vector<View> in;         // during check(), which allocates nothing
    std::vector<Desc> weights;
  };
  std::array<std::vector<Use>, kModes> uses_;
};

}  // namespace weft
