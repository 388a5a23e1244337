// Makes a model and a plan from options, for train, generate and plan.
#pragma once

#include "cli/handles.h"
#include "cli/settings.h"

namespace weft::cli {

// The value of --schedule and other options that selects by prediction.
inline constexpr const char* kAuto = "auto";

struct ModelOptions {
  const char* command = "";  // for warnings
  std::string model;
  bool is_checkpoint = false;  // not the name of a model
  int64_t seq_len = 0;
  double dropout = -1;  // below 0: that of the model
};

struct PlanOptions {
  uint32_t ranks = 1, micro_batches = 8, micro_batch_size = 4;
  std::string schedule = "1f1b", schedule_file, partition = "cost", cut, recompute = "none";
  std::string warm_up = "1", cluster;
  uint32_t chunks = 0, group = 0;
  uint64_t memory_limit = 0;
  std::string profile, speeds, plan_file;
  double link_latency = 0, link_bandwidth = 0;
  uint32_t segment = 0;
  bool vertical_sync = false;
  uint32_t step_kinds = WEFT_STEPS_TRAIN | WEFT_STEPS_EVAL;
  uint64_t seed = 0;
};

struct OptimizerOptions {
  std::string rule = "adamw", curve = "constant";
  double rate = 1e-3, weight_decay = 0, clip = 1;
  uint64_t warmup = 0;
};

// For plan and train. A checkpoint does not store this option.
void add_cluster_option(Parser& parser, PlanOptions& options);
// MODEL itself is added by each command.
void add_model_options(Settings& settings, ModelOptions& options);
void add_plan_options(Settings& settings, PlanOptions& options);
void add_optimizer_options(Settings& settings, OptimizerOptions& options);

// Sets the defaults that depend on the schedule: asynchronous schedules cannot clip, and 'pipedream' requires one micro-batch per update.
void settle_defaults(const Settings& settings, PlanOptions& plan, OptimizerOptions& optimizer);

// Resets the options of a checkpoint that do not apply to the schedule or the ranks of the command line.
void forget_options(const Settings& settings, PlanOptions& plan);

// Refuses options that a cluster file replaces.
Outcome check_cluster(const Settings& settings, const PlanOptions& plan);
// Refuses a cosine that would have no step after the warm-up.
Outcome check_curve(const OptimizerOptions& optimizer, uint64_t steps);

struct Built {
  ModelPtr model;
  weft_preset_info info = WEFT_PRESET_INFO_INIT;
  PlanPtr plan;
  CheckpointPtr checkpoint;  // if MODEL is a checkpoint
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
  weft_plan_config config = WEFT_PLAN_INIT;
  Outcome fill(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps);

 private:
  weft_optimizer rule_ = WEFT_OPTIMIZER_INIT;
  Cutting cutting_;
  std::string rows_;
  ClusterPtr cluster_;
};

// With a cluster, if the number of ranks is 1: sets it to the number of ranks of the cluster.
Outcome take_ranks(PlanOptions& options);
// Replaces "auto" by the selected value, so that a checkpoint stores that value.
Outcome settle_choices(const ModelOptions& model, PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps);

// Makes the model: a preset, or that of the checkpoint that MODEL names. `dropout` overrides the value in the text.
Outcome build_model(const ModelOptions& options, uint32_t stages, Built& out);
// The same for the name of a preset.
Outcome make_preset(std::string text, const ModelOptions& options, uint32_t stages, Built& out);
// The number of stages of the plan; some models require at least as many layers.
uint32_t stages_of(const PlanOptions& options);
// Takes these options from the saved plan, if there is one, so that a checkpoint stores them. Refuses options that the plan contains.
Outcome take_plan_file(const Settings& settings, PlanOptions& options, OptimizerOptions& optimizer, uint64_t& steps);
// `steps`: the last step of the cosine.
Outcome build_plan(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps, Built& out);

// Splits a list at its commas. An empty list has no items.
std::vector<std::string> split(const std::string& list);
// Reads a whole file.
Outcome read_text(const std::string& path, std::string& out);

// Opens a checkpoint and prints its warning, if it has one.
Outcome open_checkpoint(const std::string& command, const std::string& path, CheckpointPtr& out, weft_checkpoint_info& info);

// Makes a view of `samples` samples of such a pair, starting at `first`. The pair must outlive it.
Outcome make_part(const TensorPtr (&whole)[2], int64_t first, int64_t samples, TensorPtr (&out)[2]);

// Makes the pair of input tensors of a preset for a number of samples.
Outcome make_inputs(const weft_preset_info& info, int64_t samples, TensorPtr (&out)[2]);

}  // namespace weft::cli
