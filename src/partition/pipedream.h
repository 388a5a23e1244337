// PipeDream's partitioner (Narayanan et al. 2019): stages of a pipeline, each on one or several
// machines that share its work as replicas.
//
// A state is a set of nodes that is closed under predecessors; a stage is the difference of two
// states. The states of a model are a chain: its first 1, 2, ... nodes. T, P and a are the time,
// the parameter bytes and the output bytes of a state. On M machines, one stage takes
//
//   (T + 4 (M - 1) P / (bandwidth M)) / M
//
// and a further one on R of them the maximum of the best time of what is before it on M - R
// machines, its own time on R, 2 a_in / (bandwidth R) and 2 a_out / (bandwidth R). Beyond the
// paper, the inputs of a stage after the first machine count with 2 a_in.
//
// The time of a step is that of the slowest part. The paper also nests machines (hosts in a rack).
// Weft does not: it gives consecutive ranks to a stage, and a stage that is replicated together
// with its neighbours on several hosts would not have these.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace weft {

// In topological order. Times and bytes are those of all nodes in the state.
struct ModelState {
  double time = 0;        // seconds, forward and backward
  double kept_bytes = 0;  // activations
  double param_bytes = 0;
  double output_bytes = 0;  // of the state's edge: the bytes that a stage that ends here sends
  // States that this one contains. If no state has any, each contains all before it.
  std::vector<int32_t> before = {};
};

struct ReplicaOptions {
  int32_t machines = 1;
  double bandwidth = 0;   // bytes per second between them
  double memory = 0;      // bytes that a stage may keep; 0: no limit
  bool straight = false;  // one machine per stage
  // Bytes of inputs that the first machine sends to a stage with the states `first` to `last`. They
  // count if this machine is the stage before. May be empty: none.
  std::function<double(size_t first, size_t last)> fed_bytes = {};
};

struct ReplicatedStage {
  int32_t first = 0, last = 0;  // states: the nodes of `last` that are not in `first` - 1
  int32_t replicas = 1;
};

struct ReplicatedPlan {
  std::vector<ReplicatedStage> stages;
  double time = 0;  // of a minibatch, once the pipeline is full
};

Result<ReplicatedPlan> partition_replicated(std::span<const ModelState> states,
                                            const ReplicaOptions& options);

}  // namespace weft
