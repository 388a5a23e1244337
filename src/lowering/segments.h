// Stages whose nodes are cut into shards, which several ranks run at the same time. If a node of
// one rank reads a value of another rank of the same stage, both exchange a tensor within an
// action. An action is therefore cut at its exchanges into segments. Programs, memory, the deadlock
// check and the engine treat each segment of each rank as a stage.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace weft {

// The model that is run: `whole`, or the pieces of its nodes.
Result<std::shared_ptr<const Model>> pieces_of(const std::shared_ptr<const Model>& whole,
                                               int32_t tensor);

// Micro-batches of a mode without backward, by the schedule of training.
int32_t forward_micro_batches(const PlanConfig& config, Mode mode, const Schedule& train);

// The tensor rank that has the node: which of the ranks that share its stage.
int32_t tensor_rank_of(const Model& model, NodeId node, int32_t shard_ranks);

// The stages of a pipeline as segments, in an order in which tensors are sent forward only.
struct SegmentedStages {
  std::vector<Segment> segments;
  std::vector<int32_t> segment_of_node;
};

// `shard_ranks`: ranks that share each stage. With 1, every stage is one segment.
SegmentedStages cut_segments(const Model& model, const std::vector<int32_t>& stage_of_node,
                             int32_t shard_ranks);

// The same schedule for the ranks that share the rows: each runs its own segments of an action,
// forward in their order and backward in the reverse order. Ranks of a row are consecutive.
Schedule with_segments(const Schedule& schedule, const std::vector<Segment>& segments,
                       int32_t shard_ranks);

}  // namespace weft
