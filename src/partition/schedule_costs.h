// What a schedule is made from beside sizes, from a model that is cut: times of its stages, and the
// bytes that they keep.
#pragma once

#include "plan/plan.h"

namespace weft {

// Times by analysis if `times` is empty; as if all ranks were equally fast. No bytes yet.
ScheduleCosts schedule_costs(const Model& model, const PlanConfig& config,
                             const std::vector<NodeTimes>& times,
                             const std::vector<int32_t>& stage_of_node);

// Bytes: of the tensors that the stages will keep from one action to another, and of parameters,
// with config.memory_limit as the cap. Messages on their way, and what a single action needs, are
// not in it. With recompute also the time that it takes.
Status add_bytes(const Model& model, const PlanConfig& config, const std::vector<NodeTimes>& times,
                 const std::vector<int32_t>& stage_of_node, ScheduleCosts& out);

// The same for ranks of these speeds, each with the one stage of its number; unchanged if stages
// are not so placed.
ScheduleCosts at_speeds(ScheduleCosts costs, const std::vector<double>& speeds);

// Landing places to have beyond what a stage holds, so that throughput does not wait for the way of
// a grant and of the message that answers it: as many as forwards of the busiest rank, the shortest
// cycle that a phase can have, fit into that time.
int32_t slack_for(const ScheduleCosts& costs, const std::vector<int32_t>& rank_of_stage,
                  const PlanConfig& config);

}  // namespace weft
