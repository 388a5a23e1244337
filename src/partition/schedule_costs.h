// The input of a schedule besides sizes, from the stages of a model: their times, and the bytes
// that they keep.
#pragma once

#include "partition/run_bytes.h"

namespace weft {

// Estimated times if `times` is empty, for ranks of equal speed. Without bytes.
ScheduleCosts schedule_costs(const Model& model, const PlanConfig& config,
                             const std::vector<NodeTimes>& times,
                             const std::vector<int32_t>& stage_of_node);

// Of a micro-batch of a stage: `forward` in R, the others in I and W. `first`: of all stages;
// `of_pieces`: times of the nodes of the model that is run.
NodeTimes recompute_times(size_t stage, const std::vector<size_t>& first, RunBytes& bytes,
                          const std::vector<NodeTimes>& of_pieces);

// `config`: of all ranks; `first`: of the stages. Bytes: of the tensors that the stages will keep
// from one action to another, and of parameters, with config.memory_limit as the cap. Messages in
// transit, and memory that only one action needs, are not included. Adds the time of recompute.
void add_bytes(const Model& model, const PlanConfig& config, const std::vector<size_t>& first,
               RunBytes& bytes, ScheduleCosts& out);

// The same for ranks of these speeds, if rank r has stage r only; otherwise unchanged.
ScheduleCosts at_speeds(ScheduleCosts costs, const std::vector<double>& speeds);

// Number of slots in addition to those that a stage holds, so that throughput does not depend on
// the time of a grant and its message. It is the number of forward actions of the busiest rank, the
// shortest cycle of a phase, in that time.
int32_t slack_for(const ScheduleCosts& costs, const std::vector<int32_t>& rank_of_stage,
                  const PlanConfig& config);

}  // namespace weft
