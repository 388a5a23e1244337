// What a plan can be expected to do, before it runs: one step in the simulator, with a cost for
// every job and every message.
#pragma once

#include <memory>
#include <vector>

#include "engine/trace.h"
#include "io/cluster.h"
#include "plan/plan.h"
#include "sim/sim.h"

namespace weft {

struct RankPrediction {
  double first = 0, last = 0;  // begin of its first action, end of its last, in seconds of the step
  double busy = 0;             // seconds in kernels of actions
  double idle = 0;      // share of the step, from its begin to its commit, in which no kernel runs
  double idle_own = 0;  // share of first to last
  int64_t peak_bytes = 0;
};

struct Prediction {
  Mode mode = Mode::train;  // of a model without a loss: infer
  double seconds = 0,
         commit = 0;  // until the controller has heard of everything; until weights may change
  double idle = 0, idle_own = 0;  // means over ranks
  double work = 0;     // of `seconds`: the busiest rank in jobs, and in going from one to the next
  double waiting = 0;  // and what is added by waiting for each other, if links took no time
  std::vector<RankPrediction> ranks;
  std::vector<SimTraffic> links;
  std::vector<std::vector<TraceSpan>> spans;  // per rank, if asked for

  int64_t peak_bytes() const;  // of the largest rank
  int64_t bytes() const;       // over all links
};

// By the times that the plan was made from (analysed ones, if none). `cluster` may be null: then
// ranks and links are as the plan's own settings say. All micro-batches are full.
Result<Prediction> predict(const std::shared_ptr<const Plan>& plan, const Cluster* cluster,
                           bool spans);

// How long the step would take if links took no time: Prediction::waiting follows from it.
Status explain(const std::shared_ptr<const Plan>& plan, const Cluster* cluster, Prediction& out);

// What the partition is to know of a cluster, for its first `ranks`: the speeds, and the slowest
// link between neighbours.
Machines machines_of(const Cluster& cluster, int32_t ranks);

// The most that any of them may take for tensors; 0: some may take as much as they like.
int64_t memory_of(const Cluster& cluster, int32_t ranks);

// Names the first rank that takes more bytes than `limit` (0: none) or its machine (`cluster` may
// be null) allows.
Status check_memory(const Plan& plan, const Cluster* cluster, int64_t limit);

// A plan can be of as many ranks alone as the cluster has.
Status check_ranks(const Cluster& cluster, int32_t ranks);

}  // namespace weft
