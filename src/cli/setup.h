// From options to a model and a plan: what train, generate and plan share.
#pragma once

#include "cli/handles.h"
#include "cli/settings.h"

namespace weft::cli {

// A value of --schedule and others: whatever is predicted to be best.
inline constexpr const char* kAuto = "auto";

struct ModelOptions {
  const char* command = "";  // which warns
  std::string model;
  bool is_checkpoint = false;  // not a name, whatever it looks like
  int64_t seq_len = 0;
  double dropout = -1;  // below 0: what the model says
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

// Of plan and train; not among the settings that a checkpoint keeps.
void add_cluster_option(Parser& parser, PlanOptions& options);
// MODEL itself is the command's.
void add_model_options(Settings& settings, ModelOptions& options);
void add_plan_options(Settings& settings, PlanOptions& options);
void add_optimizer_options(Settings& settings, OptimizerOptions& options);

// What the defaults are with the schedule that was asked for: an asynchronous one has no gradient of all parameters to clip, and 'pipedream'
// makes one micro-batch of the samples of an update.
void settle_defaults(const Settings& settings, PlanOptions& plan, OptimizerOptions& optimizer);

// A checkpoint's options that have no meaning under what the command line says now: back to their defaults.
void forget_options(const Settings& settings, PlanOptions& plan);

// Refuses what a cluster says of machines and links, if there is one.
Outcome check_cluster(const Settings& settings, const PlanOptions& plan);
// A cosine falls from the end of the warm-up to the last step.
Outcome check_curve(const OptimizerOptions& optimizer, uint64_t steps);

struct Built {
  ModelPtr model;
  weft_preset_info info = WEFT_PRESET_INFO_INIT;
  PlanPtr plan;
  CheckpointPtr checkpoint;  // if MODEL is one
};

// Where stages are cut, and what that is decided by. The configuration borrows from this.
struct Cutting {
  std::vector<std::string> names;
  std::vector<const char*> cuts;
  std::vector<double> speeds;
  ProfilePtr profile;
  Outcome fill(const PlanOptions& options, weft_plan_config& config);
};

// Options as a configuration, which borrows from them and from this.
struct PlanRequest {
  weft_plan_config config = WEFT_PLAN_INIT;
  Outcome fill(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps);

 private:
  weft_optimizer rule_ = WEFT_OPTIMIZER_INIT;
  Cutting cutting_;
  std::string rows_;
  ClusterPtr cluster_;
};

// If a cluster is named, and the number of ranks left at 1: as many as it has.
Outcome take_ranks(PlanOptions& options);
// Replaces "auto" by what it comes to, so that it can be kept.
Outcome settle_choices(const ModelOptions& model, PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps);

// Makes the preset, or the model of the checkpoint that MODEL is; `dropout` overrides what its text says.
Outcome build_model(const ModelOptions& options, uint32_t stages, Built& out);
// The same of a text that is no path.
Outcome make_preset(std::string text, const ModelOptions& options, uint32_t stages, Built& out);
// Stages that the plan will have: a model may want at least as many layers.
uint32_t stages_of(const PlanOptions& options);
// A saved plan says all of these options itself: takes them from it, so that they are what a checkpoint keeps, and refuses options beside it.
Outcome take_plan_file(const Settings& settings, PlanOptions& options, OptimizerOptions& optimizer, uint64_t& steps);
// `steps`: where the cosine ends.
Outcome build_plan(const PlanOptions& options, const OptimizerOptions& optimizer, uint64_t steps, Built& out);

// What stands between the commas; nothing of an empty list.
std::vector<std::string> split(const std::string& list);
// The whole of a file.
Outcome read_text(const std::string& path, std::string& out);

// Opens a checkpoint and warns if it is not the one that was asked for.
Outcome open_checkpoint(const std::string& command, const std::string& path, CheckpointPtr& out, weft_checkpoint_info& info);

// A part of such a pair: `samples` of them from `first` on. Valid as long as the whole.
Outcome make_part(const TensorPtr (&whole)[2], int64_t first, int64_t samples, TensorPtr (&out)[2]);

// Makes the pair of tensors that a preset takes for that many samples.
Outcome make_inputs(const weft_preset_info& info, int64_t samples, TensorPtr (&out)[2]);

}  // namespace weft::cli
