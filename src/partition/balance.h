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
  int64_t most = 0;                    // of the rank that needs most
  int64_t least = 0;  // `most` of a longer run that begins at the same node is at least that
  bool more = true;   // whether a longer run that begins at the same node can be within the limits
  bool grows = true;  // whether both hold for any run that contains it

  bool within() const { return more || !grows; }  // whether a run that contains it can be
  bool fits() const { return all <= limit; }
  // With a limit for all ranks, too.
  BytesOfRun capped(int64_t cap) const;
};

// The time for which the messages to a stage with these nodes, which is not the first, occupy the
// link from the rank of the stage before it. A longer run does not take less.
using CutTime = std::function<double(const RunOfNodes&)>;

struct ChainLoads {
  CutTime cut_time;                                    // may be empty: zero
  std::function<BytesOfRun(const RunOfNodes&)> bytes;  // may be empty: not counted
  // Per node: of the values that are sent there if a stage begins with it. May be empty: zero.
  std::span<const double> cut_bytes = {};
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

// Which of the partitions with the smallest bottleneck, of which there are several if a node or a
// cut is the bottleneck, and with the fastest slowest stage of these.
enum class Among : uint8_t {
  // One whose largest rank needs the fewest bytes, or up to 1 % more; of these the one that divides
  // the time most evenly, with narrow cuts. Bytes are not compared if there are too many runs.
  smallest,
  // The one with the earliest first cut, then second cut, and so on.
  earliest,
};

// Every stage has at least one node. If no partition fits, the error names the rank, the bytes that
// it needs and its limit.
Result<Partition> partition_for(const NodeCosts& nodes, const ChainLoads& loads,
                                std::span<const StageRoom> stages, Among among = Among::smallest);

}  // namespace weft
