// Cutting a chain of nodes for machines and links that are not alike.
//
// The model: once a pipeline is full, a step takes the number of micro-batches times its
// bottleneck, which is the largest of
//   - over stages: the time of the stage's nodes, divided by the speed of its rank;
//   - over cuts between two ranks: the time for which the cut's messages of one micro-batch occupy
//   a link.
// Messages travel while a rank computes, so the two are compared, not added. A rank that hosts
// several stages is judged by each of them.
#pragma once

#include <functional>

#include "partition/partition.h"

namespace weft {

struct RunOfNodes {
  size_t stage, begin, end;
};

struct BytesOfRun {
  int64_t all = 0;
  int64_t least = 0;    // no longer run of the stage that begins there needs less
  int64_t scratch = 0;  // of `all`, what the stages of a rank share
};

struct ChainLoads {
  std::span<const double>
      cut_time;  // per node, of the messages if a stage begins at it; may be empty: zero
  std::function<BytesOfRun(const RunOfNodes&)> bytes;  // asked of stages with a limit only
};

struct StageRoom {
  int32_t rank = 0;
  double speed = 1;        // above 0
  int64_t max_bytes = -1;  // below 0: no limit
};

// The smallest bottleneck; of several such partitions one whose slowest stage takes the least time,
// which counts where a cut is the bottleneck; and of these the one whose first cut is earliest,
// then its second, and so on. Every stage gets at least one node. Where nothing fits, the error
// names the rank, the bytes it needs and those it has.
Result<Partition> partition_for(const NodeCosts& nodes, const ChainLoads& loads,
                                std::span<const StageRoom> stages);

}  // namespace weft
