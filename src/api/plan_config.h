// Converts the configuration of a plan from the C API.
#pragma once

#include "api/handles.h"

namespace weft::api {

struct Asked {
  PlanConfig config;  // `schedule` and `warm_up` may still ask for a selection (tune/compare.h)
  std::shared_ptr<const Cluster> cluster;
};

Result<Asked> read_plan_config(const weft_plan_config* config, const Model& model);

}  // namespace weft::api
