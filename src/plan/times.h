// What a plan is made from beside a model: how long each node's kernels take, and what the machines
// and links can do. None of it is part of the plan. The partition that follows from it is, as the
// names of each stage's first node; that is all that other ranks need, and it is the same on all of
// them whatever their own arithmetic would have made of these numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/model.h"

namespace weft {

// Seconds that the kernels of a node take for one micro-batch.
struct NodeTimes {
  double forward = 0, input = 0,
         weight = 0;  // F, I (with the folds of its output's gradients), W (of all its weights)
  double total() const { return forward + input + weight; }
  friend bool operator==(const NodeTimes&, const NodeTimes&) = default;
};

// By what the ops say, on a core of 100 GFLOP/s (a multiply-add is two) that moves 10 GB/s. Per
// node of the model; 0 for inputs.
std::vector<NodeTimes> analysed_times(const Model& model, int64_t samples);

// Of the nodes of a sharded model: what `of_whole` says of a node is divided among its pieces in
// proportion to the analysis.
std::vector<NodeTimes> times_of_pieces(const Model& model, int64_t samples,
                                       const std::vector<NodeTimes>& of_whole);

struct Machines {
  std::vector<double> speeds;   // per rank, in units of the one that the times are of; empty: all 1
  std::vector<int64_t> memory;  // bytes that each may take for tensors, 0: no limit; empty: none
                                // has one. The partition keeps to it
  double latency = 0;           // of a message, in seconds
  double bandwidth = 0;         // of a link, each way, in bytes a second; 0: no limit
  bool any() const { return !speeds.empty() || latency > 0 || bandwidth > 0; }
};

}  // namespace weft
