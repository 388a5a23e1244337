// The options that several commands share.
#pragma once

#include <string>

#include "cli/stored_options.h"
#include "weft.h"

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
  std::string mesh;
  uint32_t data = 1;             // replicas, of --mesh; `ranks` are those of all
  uint32_t gradient_groups = 0;  // 0: `data`, until settle_mesh()
  uint32_t tensor = 0, shard_ranks = 1;
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
void add_model_options(StoredOptions& settings, ModelOptions& options);
void add_plan_options(StoredOptions& settings, PlanOptions& options);
void add_optimizer_options(StoredOptions& settings, OptimizerOptions& options);

// Sets the defaults that depend on the schedule: asynchronous schedules cannot clip, and
// 'pipedream' requires one micro-batch per update.
void settle_defaults(const StoredOptions& settings, PlanOptions& plan, OptimizerOptions& optimizer);

// Resets the options of a checkpoint that do not apply to the schedule or the ranks of the command
// line.
void forget_options(const StoredOptions& settings, PlanOptions& plan);

// Refuses options that a cluster file replaces.
Outcome check_cluster(const StoredOptions& settings, const PlanOptions& plan);
// Refuses a cosine that would have no step after the warm-up.
Outcome check_curve(const OptimizerOptions& optimizer, uint64_t steps);

}  // namespace weft::cli
