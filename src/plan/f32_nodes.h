// Nodes that compute and store float32 where the others have bf16.
#pragma once

#include <memory>

#include "graph/model.h"
#include "plan/plan.h"

namespace weft {

// The model with the nodes that PlanConfig::f32_nodes names; the same model if it names none.
Result<std::shared_ptr<const Model>> with_f32_nodes(const std::shared_ptr<const Model>& model,
                                                    const PlanConfig& config);

}  // namespace weft
