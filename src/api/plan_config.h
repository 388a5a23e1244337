// A plan's configuration as callers give it.
#pragma once

#include "api/handles.h"

namespace weft::api {

struct Asked {
  PlanConfig config;  // `schedule` and `warm_up` may still ask for a choice (tune/compare.h)
  std::shared_ptr<const Cluster> cluster;
};

Result<Asked> read_plan_config(const weft_plan_config* config, const Model& model);

}  // namespace weft::api
