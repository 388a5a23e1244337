// Cutting a chain of nodes for machines and links of different speed.
//
// The model: once a pipeline is full, a step takes the number of micro-batches times its
// bottleneck, which is the largest of
//   - over stages: the time of the stage's nodes, divided by the speed of its rank;
//   - over cuts between two ranks: the time for which the cut's messages of one micro-batch occupy
//   a link.
// Messages travel while a rank computes, so the two are compared, not added. For a rank with
// several stages, each of them counts separately; CutSearch adds them.
#pragma once

#include <functional>

#include "partition/partition.h"

namespace weft {

struct RunOfNodes {
  size_t stage, begin, end;
};

struct BytesOfRun {
  int64_t all = 0, limit = INT64_MAX;  // of the rank that exceeds its limit most
  bool more = true;    // whether a longer run that begins at the same node can be within the limits
  bool within = true;  // whether any run that contains it can

  bool fits() const { return all <= limit; }
};

// The time for which the messages to a stage with these nodes, which is not the first, occupy the
// link from the rank of the stage before it. A longer run does not take less.
using CutTime = std::function<double(const RunOfNodes&)>;

struct ChainLoads {
  CutTime cut_time;                                    // may be empty: zero
  std::function<BytesOfRun(const RunOfNodes&)> bytes;  // may be empty: no limits
  // Every stage has one of these nodes, which ascend and of which there are enough. May be empty:
  // any node.
  std::span<const size_t> needed = {};
  std::span<const double> forward = {};  // per node, for stages that recompute
};

struct StageRoom {
  int32_t rank = 0;
  double speed = 1;         // above 0
  bool recomputes = false;  // the time of its nodes contains their forward twice
};

// The partition with the smallest bottleneck. If there are several, for example because a cut is
// the bottleneck: the one whose slowest stage takes the least time; then the one with the earliest
// first cut, second cut, and so on. Every stage has at least one node. If no partition fits, the
// error names the rank, the bytes that it needs and its limit.
Result<Partition> partition_for(const NodeCosts& nodes, const ChainLoads& loads,
                                std::span<const StageRoom> stages);

}  // namespace weft
