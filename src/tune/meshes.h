// The ways to divide ranks into replicas, ranks of a pipeline and ranks that share a stage.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace weft {

// The value of PlanConfig::data and shard_ranks for a mesh that weft selects. gradient_groups and
// tensor may then be 0, too: the sizes of the axes.
constexpr int32_t kAutoMesh = 0;
// The value of PlanConfig::shard if weft selects it. It does not affect results.
inline constexpr std::string_view kAutoShard = "auto";

struct MeshSizes {
  int32_t data = 0, stage = 0, tensor = 0;

  std::string text() const;  // "data=2,stage=4,tensor=1"
};

// All meshes with the number of ranks of the configuration, whose data is kAutoMesh, and with its
// gradient groups and pieces if they are given. Ascending by tensor, then data.
Result<std::vector<MeshSizes>> meshes_of(const PlanConfig& config);

// The configuration for this mesh. If gradient groups and pieces are 0, the mesh determines them.
PlanConfig with_mesh(const PlanConfig& config, const MeshSizes& mesh);

}  // namespace weft
