// Describes a run of `weft train` before its first step: the model, the mesh, the schedule, and the
// predicted bytes and time of a step.
#pragma once

#include <string>
#include <vector>

#include "cli/build.h"
#include "cli/json.h"

namespace weft::cli {

struct RunFacts {
  const Built& built;
  const PlanOptions& plan;
  const weft_data* data;
  weft_plan_info info = sized<weft_plan_info>();
  weft_prediction_info predicted = sized<weft_prediction_info>();
  PredictionPtr prediction;

  RunFacts(const Built& made, const PlanOptions& options, const weft_data* source)
      : built(made), plan(options), data(source) {}
  Outcome predict();
  const char* unit() const { return built.info.tokens ? "tokens" : "samples"; }
  // Per submission of several updates, see weft_plan_updates().
  double submission_seconds() const { return seconds_of(predicted.step_ns); }
  int64_t windows() const { return weft_data_windows(data); }  // 0: the data is generated
  double steps_per_epoch() const;
};

// "gpt-nano: 0.84 M parameters, 2 ranks (stage=2), 1f1b, ..." and, with a file,
// "data: 248 sequences of 128 tokens, 7.75 steps per epoch, ..."
std::vector<std::string> run_lines(const RunFacts& facts, uint64_t steps);
// Warnings about a step that takes minutes, more than all data, or most of the memory of this
// machine, on which the first `ranks_here` ranks run. One warning per item.
std::vector<std::string> run_warnings(const RunFacts& facts, uint32_t ranks_here);
// Planned bytes of a rank by kind.
JsonObject memory_json(const weft_plan* plan, uint32_t rank);
// The event "run" of --json and --log.
JsonObject run_json(const RunFacts& facts, uint64_t first_step, uint64_t steps);

}  // namespace weft::cli
