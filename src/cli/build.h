// Makes a model and a plan from options, for train, generate and plan.
#pragma once

#include <span>

#include "cli/handles.h"
#include "cli/options.h"
#include "cli/parameter_groups.h"
#include "cli/parser.h"

namespace weft::cli {

struct Built {
  ModelPtr model;
  weft_preset_info info = sized<weft_preset_info>();
  PlanPtr plan;
  CheckpointPtr checkpoint;  // if MODEL is a checkpoint
  CheckpointPtr adapter;     // if --adapter is given
};

// The settings of the partition. The configuration refers to this object.
struct Cutting {
  std::vector<std::string> names;
  std::vector<const char*> cuts;
  std::vector<double> speeds;
  ProfilePtr profile;
  Outcome fill(const PlanOptions& options, weft_plan_config& config);
};

// The options as a configuration, which refers to the options and to this object.
struct PlanRequest {
  weft_plan_config config = defaults(weft_plan_config_init);
  Outcome fill(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps);

 private:
  weft_optimizer rule_ = defaults(weft_optimizer_init);
  weft_axis axes_[3] = {};
  ParameterGroups groups_;
  Cutting cutting_;
  std::string rows_;
  ClusterPtr cluster_;
};

// With a cluster, if the number of ranks is 1: sets it to the number of ranks of the cluster.
Outcome take_ranks(PlanOptions& options);
// "1f1b-delayed-w group 8"
std::string schedule_text(const weft_plan_info& info);
// Replaces "auto" by the selected value, so that a checkpoint stores that value.
Outcome settle_choices(const ModelOptions& model, PlanOptions& options,
                       const OptimizerOptions& optimizer, uint64_t steps);

// CHECKPOINT, and adapters that its model gets.
void add_checkpoint_options(Parser& parser, std::string& checkpoint, std::string& adapter);
// Loads the weights of the checkpoint, and of the adapters if there are any.
Outcome load_weights(const Built& built, weft_run* run);

// Makes the model: a preset, or that of the checkpoint that MODEL names. `dropout` overrides the
// value in the text.
Outcome build_model(const ModelOptions& options, uint32_t stages, Built& out);
// The same for the name of a preset.
Outcome make_preset(std::string text, const ModelOptions& options, uint32_t stages, Built& out);
// The number of stages of the plan; some models require at least as many layers.
uint32_t stages_of(const PlanOptions& options);
// `steps`: the last step of a curve that falls.
Outcome build_plan(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps,
                   Built& out);

// Fails if a key that gives parameters their meaning has another value in the model that a source
// of weights names. Other keys, and models with other keys, may differ.
Outcome check_same_weights(const std::string& model, const std::string& source,
                           const std::string& its_model);

// Opens a checkpoint and prints its warning, if it has one.
Outcome open_checkpoint(const std::string& command, const std::string& path, CheckpointPtr& out,
                        weft_checkpoint_info& info);

// For a path that has adapters and no model.
Outcome only_adapters(const std::string& path);
// The tokens that end a text.
inline std::span<const int32_t> ends_of(const weft_checkpoint_info& info) {
  return {info.ends, info.n_ends};
}

// Makes a view of `samples` samples of such inputs, starting at `first`. They must outlive it.
Outcome make_part(std::span<const TensorPtr> whole, int64_t first, int64_t samples,
                  std::span<TensorPtr> out);

// Makes the input tensors of a preset, two or three, for a number of samples.
Outcome make_inputs(const weft_preset_info& info, int64_t samples, std::span<TensorPtr> out);

}  // namespace weft::cli
