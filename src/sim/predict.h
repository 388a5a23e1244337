// The prediction for a plan: one step in the simulator, with a cost for every job and every
// message.
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
         commit = 0;  // until the controller has received all results; until weights may change
  double idle = 0, idle_own = 0;  // means over ranks
  double work = 0;     // part of `seconds`: the time of the busiest rank in jobs and between them
  double waiting = 0;  // and the time that waiting adds if links take no time
  std::vector<RankPrediction> ranks;
  std::vector<SimTraffic> links;
  std::vector<std::vector<TraceSpan>> spans;  // per rank, if requested

  int64_t peak_bytes() const;  // of the largest rank
  int64_t bytes() const;       // over all links
};

// Uses the times that the plan was made from, or estimates. If `cluster` is null, the settings of
// the plan describe ranks and links. All micro-batches are full.
Result<Prediction> predict(const std::shared_ptr<const Plan>& plan, const Cluster* cluster,
                           bool spans);

// The time of the step if links take no time, for Prediction::waiting.
Status explain(const std::shared_ptr<const Plan>& plan, const Cluster* cluster, Prediction& out);

// The input of the partition from a cluster, for its first `ranks`. Of all links: the slowest
// between consecutive ranks.
Machines machines_of(const std::shared_ptr<const Cluster>& cluster, int32_t ranks);

// The largest memory limit of a rank; 0: a rank has no limit.
int64_t memory_of(const Cluster& cluster, int32_t ranks);

// The error names the first rank that needs more bytes than `limit` (0: none) or than its machine
// has (`cluster` may be null).
Status check_memory(const Plan& plan, const Cluster* cluster, int64_t limit);

// A plan must have as many ranks as the cluster.
Status check_ranks(const Cluster& cluster, int32_t ranks);

}  // namespace weft
