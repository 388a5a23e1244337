// The options that several commands share.
#pragma once

#include <string>
#include <vector>

#include "cli/stored_options.h"
#include "weft.h"

namespace weft::cli {

// The value of --schedule and other options that selects by prediction.
inline constexpr const char* kAuto = "auto";

// What completion offers for MODEL.
std::vector<std::string> offered_models();
// The beginning of the help for MODEL.
std::string model_names();

struct ModelOptions {
  const char* command = "";  // for warnings
  std::string model;
  bool is_checkpoint = false;  // not the name of a model
  int64_t seq_len = 0;
  double dropout = -1;        // below 0: that of the model
  std::string train = "all";  // --train, which may add adapters
  std::string adapter;        // a directory of PEFT, whose adapters MODEL gets
  bool packed = false;        // a sample may have several sequences
};

struct PlanOptions {
  PlanOptions();  // the defaults of weft_plan_config_init
#define PLAN_OPTION(field, value, type, ...) type field;
#include "plan/settings.def"
  std::string schedule_file, partition = "cost", cut, cluster, profile, speeds, plan_file;
  double link_latency = 0, link_bandwidth = 0;
  std::string mesh;
  uint32_t data = 1, shard_ranks = 1;  // of --mesh; `ranks` are those of all
  uint32_t pipeline_ranks() const;     // of a replica
  uint32_t step_kinds = WEFT_STEPS_TRAIN | WEFT_STEPS_EVAL;
  uint64_t seed = 0;
};

struct OptimizerOptions {
  OptimizerOptions();  // the defaults of weft_optimizer_init
#define OPTIMIZER_OPTION(field, value, type, ...) type field;
#include "plan/settings.def"
  std::string train = "all", freeze, param_groups;
};

// The values of --optimizer and --lr-schedule, which have been checked.
weft_rule rule_named(const std::string& name);
weft_rate_curve curve_named(const std::string& name);

// For plan and train.
void add_cluster_option(StoredOptions& settings, PlanOptions& options);
// For eval and generate.
void add_precision_options(Parser& parser, std::string& precision, std::string& f32_nodes);
// MODEL itself is added by each command.
void add_model_options(StoredOptions& settings, ModelOptions& options);
void add_plan_options(StoredOptions& settings, PlanOptions& options);
void add_optimizer_options(StoredOptions& settings, OptimizerOptions& options);

// Sets the defaults that depend on the schedule: asynchronous schedules cannot clip, and
// 'pipedream' requires one micro-batch per update.
void settle_defaults(const StoredOptions& settings, PlanOptions& plan, OptimizerOptions& optimizer);

constexpr uint32_t kMostRanks = 4096;
// The sum of --stage-replicas; a wrong list is refused later.
uint32_t ranks_of(const std::string& stage_replicas);

// Resets the options of a checkpoint, whose schedule is `stored`, that do not apply to the
// schedule, the ranks or the micro-batches of the command line.
void forget_options(const StoredOptions& settings, const std::string& stored, PlanOptions& plan);

// Refuses options that a cluster file replaces.
Outcome check_cluster(const StoredOptions& settings, const PlanOptions& plan);
// Refuses a falling curve that would have no step after the warm-up.
Outcome check_curve(const OptimizerOptions& optimizer, uint64_t steps);

}  // namespace weft::cli
