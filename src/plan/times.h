// The input of a plan besides the model: the times of the kernels of each node, and the speed of
// machines and links. It is not part of the plan. The plan contains the resulting partition as the
// names of the first node of each stage. Other ranks need only these names, so that all ranks have
// the same partition even if their arithmetic differs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/model.h"

namespace weft {

// Seconds that the kernels of a node take for one micro-batch.
struct NodeTimes {
  double forward = 0, input = 0,
         weight = 0;  // F, I (with the folds of its output's gradients), W (of all its weights)
  double weight_together = 0;  // W, where those of kMostTogether run at once; 0: not measured
  double total() const { return forward + input + weight; }
  friend bool operator==(const NodeTimes&, const NodeTimes&) = default;
};

// Estimates of the ops for a core of 100 GFLOP/s (a multiply-add is two) that moves 10 GB/s. Per
// node of the model; 0 for inputs.
std::vector<NodeTimes> analysed_times(const Model& model, int64_t samples);

// Removes the times of calls that are not made because parameters are frozen. Empty times stay so.
void drop_frozen(const Model& model, std::vector<NodeTimes>& times);

// The times of the nodes of a sharded model: the time of a node in `of_whole` is divided among its
// pieces in proportion to the estimates.
std::vector<NodeTimes> times_of_pieces(const Model& model, int64_t samples,
                                       const std::vector<NodeTimes>& of_whole);

struct LinkSpeed {
  double latency = 0;    // of a message, in seconds
  double bandwidth = 0;  // in each direction, in bytes per second; 0: no limit
  void keep_slower(const LinkSpeed& other);
};

struct Machines {
  std::vector<double> speeds;   // per rank, relative to the machine of the times; empty: all 1
  std::vector<int64_t> memory;  // memory limit of each rank for tensors, 0: no limit; empty: no
                                // limits. The partition observes it
  double latency = 0, bandwidth = 0;                      // of all links, or of the slowest
  std::function<LinkSpeed(size_t from, size_t to)> link;  // of two ranks; empty: all are as above
  double overhead = 0;      // seconds of a rank between two actions; 0: not measured
  double memory_speed = 0;  // bytes per second of jobs that only move data; 0: not measured
  bool any() const { return !speeds.empty() || latency > 0 || bandwidth > 0; }
  LinkSpeed between(size_t from, size_t to) const;
  // Groups of `size` ranks as one rank each, which is as fast and as large as the least of them.
  // Links are those between members of the same number. `member`: a rank, by group and number.
  void keep_least(size_t groups, size_t size,
                  const std::function<size_t(size_t group, size_t number)>& member);
};

}  // namespace weft
