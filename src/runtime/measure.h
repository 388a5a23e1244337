// How long a model's kernels take on this machine: the programs of a plan with one rank, run by a
// worker as in any run, each call timed.
#pragma once

#include <memory>
#include <string>

#include "io/profile.h"
#include "plan/plan.h"

namespace weft {

struct Measured {
  std::vector<NodeTimes> times;  // per node of the model: medians
  double update = 0;             // seconds of a step's end for all parameters
  double memory_speed = 0;       // bytes per second there; 0: not measured
};

struct MeasureOptions {
  int64_t micro_batch_size = 1;
  int repeats = 10;  // measured micro-batches, at least; those of a step before are not measured
  int threads = 1;
  std::string precision = "f32", f32_nodes;  // see PlanConfig
};

// Inputs are random; indices are valid for the ops that read them.
Result<Measured> measure(const std::shared_ptr<const Model>& model, const MeasureOptions& options);

// As a file: names and bytes of the nodes from the model; the caller sets the rest of the header.
Profile profile_of(const Measured& measured, const Model& model, const MeasureOptions& options);

}  // namespace weft
