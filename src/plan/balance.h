// Cutting a chain of nodes for machines and links that are not alike.
//
// The model: once a pipeline is full, a step takes the number of micro-batches times its bottleneck, which is the largest of
//   - over stages: the time of the stage's nodes, divided by the speed of its rank;
//   - over cuts between two ranks: the time for which the cut's messages of one micro-batch occupy a link.
// Messages travel while a rank computes, so the two are compared, not added. A rank that hosts several stages is judged by each of them.
#pragma once

#include "plan/partition.h"

namespace weft {

// Per node; a span may be empty, which stands for all zero.
struct ChainLoads {
  std::span<const int64_t> fixed;    // bytes of it on its rank whatever runs: parameters, accumulators, optimizer state
  std::span<const int64_t> held;     // bytes that it keeps for each micro-batch between F and W
  std::span<const double> cut_time;  // of the messages if a stage begins at it
};

struct StageRoom {
  int32_t rank = 0;
  double speed = 1;        // above 0
  int64_t in_flight = 1;   // micro-batches that it holds at its peak
  int64_t max_bytes = -1;  // fixed and in_flight times held may be so many; below 0: no limit
};

// The smallest bottleneck; of several such partitions one whose slowest stage takes the least time, which counts where a cut is the
// bottleneck; and of these the one whose first cut is earliest, then its second, and so on. Every stage gets at least one node. Where
// nothing fits, the error names the rank, the bytes it needs and those it has.
Result<Partition> partition_for(const NodeCosts& nodes, const ChainLoads& loads, std::span<const StageRoom> stages);

}  // namespace weft
