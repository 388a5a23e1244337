// The training loop of `weft train`: steps, evaluations and checkpoints, until all steps are done,
// a signal stops it, or it fails.
#pragma once

#include "cli/build.h"
#include "cli/checkpoint_directory.h"
#include "cli/launch.h"
#include "cli/report.h"
#include "cli/run_facts.h"
#include "cli/start_weights.h"
#include "cli/train_data.h"

namespace weft::cli {

struct TrainOptions {
  ModelOptions model;
  PlanOptions plan;
  OptimizerOptions optimizer;
  LaunchOptions launch;
  DataOptions data;
  std::string checkpoint, resume, init, init_except, trace, log;
  uint64_t steps = 100, epochs = 0, eval_every = 0, checkpoint_every = 100;
  bool json = false, quiet = false;
  bool adds_to_log = false;  // the lines of this run to those of another one
};

class Trainer {
 public:
  // `settings` is stored in checkpoints. `data` is opened if it is null, and stays open.
  Trainer(const TrainOptions& options, std::vector<std::pair<std::string, std::string>> settings,
          DataPtr& data);

  // `resumed`: the checkpoint from which to continue, or null.
  Outcome run(weft_checkpoint* resumed);
  // Whether all ranks have joined.
  bool has_started() const { return run_ != nullptr; }
  // The path of the one from which a run could continue now, or empty.
  const std::string& last_checkpoint() const { return last_checkpoint_; }
  // Reports that the run starts again, because it has lost a rank.
  void restarts(uint32_t number, const Outcome& failure);

 private:
  Outcome prepare(weft_checkpoint* resumed);
  Outcome announce();
  uint32_t ranks_here() const;
  Outcome check_rounds() const;
  Outcome open_weights(weft_checkpoint* resumed);
  Outcome load(bool resumes);
  Outcome keep_source();
  Outcome check_finite(const weft_event& update);
  Outcome not_finite() const;  // the failure of the last steps
  Outcome step();
  Outcome sample(int64_t updates);
  double counted_targets(const weft_tensor* targets) const;
  Outcome evaluate();
  Outcome save();
  void take_saved(const weft_event& event);
  Outcome finish_saves();
  Outcome save_trace();
  Outcome save_before(Outcome failure);
  Outcome train();
  Outcome report_done();
  Outcome finish();
  struct Events {
    std::vector<double> losses;       // of micro-batches
    std::vector<weft_event> updates;  // of a segment
    weft_event last;                  // the final one
  };
  // Waits for the next event, and handles the first signal meanwhile.
  Outcome next(weft_event& event);
  // Submits a step and waits for its final event.
  Outcome drive(std::span<const TensorPtr> inputs, weft_step_mode mode, Events& events);
  Outcome finish(Events& events);
  // Whether the last steps (several after a segment) include a multiple of `every`.
  bool due(uint64_t every) const { return every > 0 && step_ / every > before_ / every; }
  int64_t samples_of_update() const { return samples_of_step(options_.plan); }

  const TrainOptions& options_;
  std::vector<std::pair<std::string, std::string>> settings_;
  Built built_;
  StartWeights weights_;
  DataPtr& data_;
  CheckpointDirectory directory_;  // outlives the run, which writes into it
  Ranks ranks_;
  RunPtr run_;
  std::vector<TensorPtr> inputs_;
  std::unique_ptr<Report> report_;
  bool computes_step_ = false, answered_ = false;  // the first signal
  uint64_t step_ = 0,
           before_ = 0;  // steps that the weights have seen, now and before the last were made
  std::chrono::steady_clock::time_point begin_;
  uint64_t steps_run_ = 0;
  uint64_t saved_ = ~uint64_t{0}, evaluated_ = ~uint64_t{0};  // the step of the last one
  std::string last_checkpoint_;
  int saves_under_way_ = 0;
  int left_out_ = 0;       // steps in a row whose gradients were not finite
  bool save_due_ = false;  // after the next step that is not left out
  Outcome save_failure_;   // the first
};

}  // namespace weft::cli
