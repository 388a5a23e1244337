// The ways to divide ranks into replicas, ranks of a pipeline and ranks that share a stage.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace weft {

// PlanConfig::data and shard_ranks of a mesh that is to be chosen. gradient_groups and tensor may
// then be 0, too, which stands for the sizes of its axes.
constexpr int32_t kAutoMesh = 0;
// PlanConfig::shard that is to be chosen, too. No choice changes a bit.
inline constexpr std::string_view kAutoShard = "auto";

struct MeshSizes {
  int32_t data = 0, stage = 0, tensor = 0;

  std::string text() const;  // "data=2,stage=4,tensor=1"
};

// All with as many ranks as the configuration, whose data is kAutoMesh, and with its gradient
// groups and pieces where it says them. Ascending by tensor, then data.
Result<std::vector<MeshSizes>> meshes_of(const PlanConfig& config);

// Of that mesh. Gradient groups and pieces that are 0 follow from it.
PlanConfig with_mesh(const PlanConfig& config, const MeshSizes& mesh);

}  // namespace weft
