#include "cli/joined_checkpoint.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "cli/build.h"
#include "cli/files.h"
#include "cli/launch.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

// A run in this process has the weights of both, and saves them.
Outcome save_joined(const ModelOptions& model, const std::string& directory) {
  PlanOptions plan;
  plan.micro_batches = plan.micro_batch_size = 1;
  plan.step_kinds = WEFT_STEPS_EVAL;
  OptimizerOptions optimizer;
  optimizer.rule = "sgd";  // it has no state
  Built built;
  CLI_TRY(build_model(model, stages_of(plan), built));
  CLI_TRY(build_plan(plan, optimizer, 1, built));
  Ranks ranks;
  RunPtr run;
  CLI_TRY(ranks.start(built.plan.get(), LaunchOptions(), run));
  CLI_TRY(load_weights(built, run.get()));
  weft_error err = sized<weft_error>();
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.c_str();
  config.model = built.info.text;
  CLI_CALL(weft_run_save(run.get(), &config, &err));
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  CLI_CALL(weft_checkpoint_describe(built.checkpoint.get(), &info));
  CLI_CALL(weft_checkpoint_keep_source(directory.c_str(), info.source, nullptr, &err));
  return {};
}

}  // namespace

JoinedCheckpoint::~JoinedCheckpoint() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Outcome JoinedCheckpoint::make(const std::string& checkpoint, const std::string& adapter,
                               const std::string& output) {
  CLI_TRY(check_outside_checkpoints(output));
  watch_signals();
  answer_signal_with("weft: export: stopping; ^C again stops now, and leaves temporary files\n");
  std::error_code ignored;
  const std::string parent = output.substr(0, output.find_last_not_of('/') + 1) + "/..";
  std::string path = (existing_part(parent, ignored) / "weft-joined-XXXXXX").string();
  if (!mkdtemp(path.data()))
    return {kFailed, "'" + path + "' cannot be created: " + reason(errno), ""};
  path_ = path;
  ModelOptions model;
  model.command = "export";
  model.model = checkpoint;
  model.is_checkpoint = true;
  model.adapter = adapter;
  CLI_TRY(save_joined(model, path_));
  if (const int signal = stop_signal()) return {128 + signal, "stopped before the export", ""};
  return {};
}

}  // namespace weft::cli
