// weft train
#include <filesystem>

#include "cli/command.h"
#include "cli/signals.h"
#include "cli/trainer.h"

namespace weft::cli {

namespace {

struct Train {
  explicit Train(Parser& parser) : settings(parser) {}
  Settings settings;
  TrainOptions options;

  Outcome run();
  Outcome resume(CheckpointPtr& checkpoint);
};

bool is_the_same(const std::string& path, const std::string& other) {
  std::error_code ignored;
  return std::filesystem::equivalent(path, other, ignored);
}

// What the command line does not say, the checkpoint does.
Outcome Train::resume(CheckpointPtr& checkpoint) {
  weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
  CLI_TRY(open_checkpoint("train", options.resume, checkpoint, info));
  if (info.weights_only)
    return {kBadInput, "'" + options.resume + "' holds weights alone; there is nothing to resume", "start from them with --init"};
  std::vector<std::pair<std::string, std::string>> texts;
  for (uint32_t i = 0; i < info.n_options; ++i) texts.emplace_back(info.options[i].key, info.options[i].value);
  CLI_TRY(settings.restore(texts));
  forget_options(settings, options.plan);
  if (options.model.model.empty()) {
    if (info.model) options.model.model = info.model;
  } else if (info.model) {
    ModelOptions saved = options.model;  // with the dropout and the tokens that are asked for now
    saved.model = info.model;
    Built asked, kept;
    CLI_TRY(build_model(options.model, stages_of(options.plan), asked));
    CLI_TRY(build_model(saved, stages_of(options.plan), kept));
    if (std::string_view(asked.info.text) != kept.info.text)
      return {kBadInput, "the checkpoint is of model " + std::string(kept.info.text) + ", not of " + asked.info.text,
              "leave MODEL out to resume"};
  }
  // A directory of checkpoints goes on where it is; a single one is left as it is.
  if (options.checkpoint.empty() && !is_the_same(options.resume, info.path)) options.checkpoint = options.resume;
  return {};
}

Outcome Train::run() {
  CheckpointPtr checkpoint;
  if (!options.resume.empty()) CLI_TRY(resume(checkpoint));
  if (settings.given("eval-every") && options.eval_every && options.eval.empty())
    return {kUsage, "--eval-every without --eval", "hold out a share of the data: --eval 0.1"};
  if (settings.given("checkpoint-every") && options.checkpoint_every && options.checkpoint.empty())
    return {kUsage, "--checkpoint-every without --checkpoint", "say where to: --checkpoint DIR"};
  if (options.model.model.empty()) return {kUsage, "MODEL is missing", "for example: weft train gpt-nano --data book.txt"};
  CLI_TRY(take_plan_file(settings, options.plan, options.optimizer, options.steps));
  CLI_TRY(check_cluster(settings, options.plan));
  settle_defaults(settings, options.plan, options.optimizer);
  if (options.steps > 0) CLI_TRY(check_curve(options.optimizer, options.steps));
  CLI_TRY(settle_choices(options.model, options.plan, options.optimizer, options.steps));
  options.launch.ranks = options.plan.ranks;
  options.launch.quiet = options.quiet;
  watch_signals();
  Trainer trainer(options, settings.texts());
  CLI_TRY(trainer.prepare(checkpoint.get()));
  return trainer.run();
}

void add_run_options(Parser& parser, Settings& settings, TrainOptions& o) {
  settings.add("--data", o.data, "File of tokens (bytes; NAME.u16, NAME.u32: ids), or 'synthetic': drawn from the seed").type("FILE");
  settings.add("--seed", o.plan.seed, "Seed of first values, data and dropout").type("N");
  settings.add("--steps", o.steps, "Train until this many steps were made, those before --resume included").type("N");
  settings.add("--eval", o.eval, "Held-out data: a file, or a share of --data such as 0.1").type("FILE|SHARE");
  settings.add("--eval-every", o.eval_every, "Evaluate at the start and every N steps; 0: at the end alone").type("N");
  settings.add("--checkpoint-every", o.checkpoint_every, "Save every N steps and at the end; 0: at the end alone").type("N");
  settings.add("--threads", o.launch.threads, "Compute threads per rank; 0: everything on one thread").type("N").range(0, kMostThreads);
  parser.add("--plan", o.plan.plan_file, "Take a plan that weft plan saved instead of making one").type("FILE");
  parser.add("--checkpoint", o.checkpoint, "Save checkpoints into this directory; with --resume DIR, that directory is the default")
      .type("DIR");
  parser.add("--resume", o.resume, "Go on from a checkpoint, or from the latest in a directory; its settings are the defaults").type("DIR");
  parser.add("--init", o.init, "Start from these weights, by name").type("FILE").excludes("--resume");
  parser.add("--trace", o.trace, "Write when every action really ran, as a Chrome trace; the first 100000 of each rank").type("FILE");
  o.model.command = o.launch.command = "train";
  add_launch_options(parser, o.launch);
  parser.add("--json", o.json, "One JSON object per line instead of text");
  parser.add("-q,--quiet", o.quiet, "No progress on standard error");
}

}  // namespace

Action add_train(Parser& parser) {
  auto train = std::make_shared<Train>(parser);
  TrainOptions& o = train->options;
  parser.add("MODEL", o.model.model, "NAME[:key=value,...] (mlp, gpt-nano, gpt2), or a checkpoint whose weights to start from").type("");
  add_run_options(parser, train->settings, o);
  add_model_options(train->settings, o.model);
  add_plan_options(train->settings, o.plan);
  add_cluster_option(parser, o.plan);
  add_optimizer_options(train->settings, o.optimizer);
  return [train] { return train->run(); };
}

}  // namespace weft::cli
