// weft train
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/command.h"
#include "cli/file_digest.h"
#include "cli/mesh_option.h"
#include "cli/saved_plan.h"
#include "cli/signals.h"
#include "cli/token_text.h"
#include "cli/trainer.h"

namespace weft::cli {

namespace {

constexpr uint32_t kMostEpochs = 1'000'000;

struct Train {
  explicit Train(Parser& parser) : settings(parser, /*resets=*/true) {}
  StoredOptions settings;
  TrainOptions options;
  DataPtr data;
  std::string trained_data;  // the digest of --data of the checkpoint

  Outcome run();
  Outcome train();
  Outcome resume(CheckpointPtr& checkpoint);
  Outcome take_epochs(weft_checkpoint* resumed);
  Outcome run_trainer(CheckpointPtr checkpoint);
  void choose_tokenizer();
  std::vector<std::pair<std::string, std::string>> stored_texts() const;
};

bool is_the_same(const std::string& path, const std::string& other) {
  std::error_code ignored;
  return std::filesystem::equivalent(path, other, ignored);
}

// Sets what follows from other options.
void complete_model(TrainOptions& options) {
  options.model.train = options.optimizer.train;
  options.model.packed = options.data.has_json();
}

// A profile or a cluster affects only where and how fast a run computes, so it can continue without
// it.
void forget_missing(const StoredOptions& settings, const std::string& name, std::string& path) {
  std::error_code ignored;
  if (path.empty() || settings.given(name) || std::filesystem::exists(path, ignored)) return;
  complain("train", "'" + path + "', the --" + name +
                        " of the checkpoint, does not exist here; the run continues without it");
  path.clear();
}

// That of the checkpoint has as many ranks as the run that saved it.
Outcome forget_other_cluster(const StoredOptions& settings, PlanOptions& plan) {
  if (plan.cluster.empty() || settings.given("cluster")) return {};
  weft_error err = sized<weft_error>();
  ClusterPtr cluster;
  CLI_CALL(weft_cluster_load(plan.cluster.c_str(), Out(cluster), &err));
  if (weft_cluster_ranks(cluster.get()) == plan.ranks) return {};
  complain("train", "'" + plan.cluster + "', the --cluster of the checkpoint, has " +
                        std::to_string(weft_cluster_ranks(cluster.get())) +
                        " ranks; the run continues without it");
  plan.cluster.clear();
  return {};
}

// The user did not name the file, and its path may be relative to the directory of another run.
Outcome check_stored_file(const StoredOptions& settings, const std::string& name,
                          const std::string& path) {
  std::error_code ignored;
  double share = 0;  // of --eval
  if (path.empty() || path == kSynthetic || settings.given(name) || read_value(path, &share) ||
      std::filesystem::exists(path, ignored))
    return {};
  const bool relative = std::filesystem::path(path).is_relative();
  return {
      kBadInput, "'" + path + "', the --" + name + " of the checkpoint, does not exist here",
      std::string(relative ? "the path is relative to the directory where the run began; " : "") +
          "--" + name + " FILE names another one"};
}

// Earlier versions stored 0, which was the whole context.
Outcome take_whole_context(const char* model, int64_t& seq_len) {
  weft_error err = sized<weft_error>();
  weft_preset_info info = sized<weft_preset_info>();
  ModelPtr made;
  CLI_CALL(weft_model_preset(model, 0, 1, Out(made), &info, &err));
  seq_len = info.seq_len;
  return {};
}

// The settings of the checkpoint are the defaults of all options.
Outcome Train::resume(CheckpointPtr& checkpoint) {
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  CLI_TRY(open_checkpoint("train", options.resume, checkpoint, info));
  if (info.weights_only)
    return {kBadInput, "'" + options.resume + "' contains only weights, expected a checkpoint",
            "start from the weights with --init"};
  std::vector<std::pair<std::string, std::string>> texts;
  for (uint32_t i = 0; i < info.n_options; ++i)
    texts.emplace_back(info.options[i].key, info.options[i].value);
  const auto schedule = std::find_if(texts.begin(), texts.end(),
                                     [](const auto& text) { return text.first == "schedule"; });
  const std::string stored = schedule == texts.end() ? "" : schedule->second;
  CLI_TRY(settings.restore(texts));
  for (const auto& [name, text] : texts)
    if (name == kDataDigest) trained_data = text;
  if (const std::string kept = tokenizer_of(options.resume);
      !kept.empty() && !settings.given("tokenizer"))
    options.data.tokenizer = kept;
  CLI_TRY(settle_mesh(settings, options.plan));
  forget_options(settings, stored, options.plan);
  forget_missing(settings, "profile", options.plan.profile);
  forget_missing(settings, "cluster", options.plan.cluster);
  CLI_TRY(check_stored_file(settings, "data", options.data.file));
  CLI_TRY(check_stored_file(settings, "eval", options.data.eval));
  // The data may be of another kind than that of the checkpoint.
  if (!options.data.has_json() && !settings.given("long-samples"))
    options.data.long_samples = DataOptions().long_samples;
  complete_model(options);
  if (options.model.seq_len == 0 && !settings.given("seq-len") && info.model)
    CLI_TRY(take_whole_context(info.model, options.model.seq_len));
  if (options.model.model.empty()) {
    if (info.model) options.model.model = info.model;
  } else if (info.model) {
    ModelOptions saved = options.model;  // with --dropout and --seq-len of the command line
    saved.model = info.model;
    Built asked, kept;
    CLI_TRY(build_model(options.model, stages_of(options.plan), asked));
    CLI_TRY(build_model(saved, stages_of(options.plan), kept));
    if (std::string_view(asked.info.text) != kept.info.text)
      return {kBadInput,
              "MODEL is " + std::string(asked.info.text) +
                  ", expected the model of the checkpoint, " + kept.info.text,
              "omit MODEL to resume"};
  }
  // New checkpoints go to the directory that --resume names, but not into the directory of a single
  // checkpoint.
  if (!options.checkpoint.empty()) return {};
  if (!is_the_same(options.resume, info.path))
    options.checkpoint = options.resume;
  else if (!options.quiet)
    complain("train",
             "--resume names a single checkpoint, so that nothing is saved without "
             "--checkpoint DIR");
  return {};
}

// Without --tokenizer: that of the weights, which the training starts from.
void Train::choose_tokenizer() {
  std::string& path = options.data.tokenizer;
  for (const std::string& from :
       path.empty() ? std::vector{options.model.model, options.init} : std::vector{path})
    if (const std::string found = tokenizer_of(from); !found.empty()) {
      path = found;
      return;
    }
}

// The data determines the number of steps, which the plan contains.
Outcome Train::take_epochs(weft_checkpoint* resumed) {
  if (options.epochs == 0) return {};
  if (!options.plan.plan_file.empty() && options.optimizer.curve != "constant")
    return not_combined("--epochs", "--plan, whose learning rate has a last step");
  Built built;
  StartWeights weights;
  CLI_TRY(build_model(options.model, stages_of(options.plan), built));
  CLI_TRY(weights.open(options.init, built, resumed));
  CLI_TRY(open_data(options.data, built.info, weights.ends(), options.plan.micro_batch_size,
                    /*trains=*/true, data));
  CLI_TRY(steps_of_epochs(options.epochs, data.get(), options.plan, options.steps));
  Outcome curve = check_curve(options.optimizer, options.steps);
  if (!curve.ok())
    curve.hint = "--epochs " + std::to_string(options.epochs) + " has this number of steps";
  return curve;
}

// With the digest of --data, if something is saved or compared with it.
std::vector<std::pair<std::string, std::string>> Train::stored_texts() const {
  std::vector<std::pair<std::string, std::string>> texts = settings.texts();
  if (options.checkpoint.empty() && trained_data.empty()) return texts;
  const auto digest = file_digest(options.data.file);
  if (!digest) return texts;
  if (!trained_data.empty() && trained_data != *digest)
    complain("train", "'" + options.data.file +
                          "' has other bytes than the --data of the checkpoint, so the result "
                          "is not that of an uninterrupted run");
  texts.emplace_back(kDataDigest, *digest);
  return texts;
}

Outcome Train::run() {
  if (options.resume.empty()) CLI_TRY(settings.check_no_resets());
  CLI_TRY(take_place(options.launch));
  if (options.launch.place.rank == 0) return train();
  if (settings.given("ranks")) CLI_TRY(check_ranks(options.launch.place, options.plan.ranks));
  return serve_launched(options.launch, !options.resume.empty() ? options.resume
                                        : !options.init.empty() ? options.init
                                                                : options.model.model);
}

Outcome Train::train() {
  CheckpointPtr checkpoint;
  if (!options.resume.empty()) CLI_TRY(resume(checkpoint));
  if (settings.given("eval-every") && options.eval_every && options.data.eval.empty())
    return {kUsage, "--eval-every requires --eval",
            "for example, --eval 0.1 holds out a tenth of the data"};
  if (settings.given("checkpoint-every") && options.checkpoint_every && options.checkpoint.empty())
    return {kUsage, "--checkpoint-every requires --checkpoint DIR",
            "name the directory for checkpoints"};
  if (options.model.model.empty())
    return {kUsage, "MODEL is missing", "for example: weft train gpt-nano --data book.txt"};
  if (options.launch.place.ranks && !settings.given("ranks"))
    options.plan.ranks = options.launch.place.ranks;
  CLI_TRY(take_plan_file(settings, options.plan, options.optimizer, options.steps));
  CLI_TRY(check_cluster(settings, options.plan));
  CLI_TRY(settle_mesh(settings, options.plan));
  if (!options.resume.empty()) CLI_TRY(forget_other_cluster(settings, options.plan));
  settle_defaults(settings, options.plan, options.optimizer);
  complete_model(options);
  choose_tokenizer();
  CLI_TRY(take_epochs(checkpoint.get()));
  if (options.steps > 0) CLI_TRY(check_curve(options.optimizer, options.steps));
  CLI_TRY(settle_choices(options.model, options.plan, options.optimizer, options.steps));
  CLI_TRY(set_ranks(options.launch, options.plan.ranks));
  options.launch.quiet = options.quiet;
  watch_signals();
  if (!options.checkpoint.empty()) CLI_TRY(settings.check_storable());
  options.adds_to_log = !options.resume.empty();
  return run_trainer(std::move(checkpoint));
}

// A run that ranks have joined starts again if one of them is lost.
Outcome Train::run_trainer(CheckpointPtr checkpoint) {
  constexpr unsigned kPause = 1;  // seconds; a signal ends it
  const auto texts = stored_texts();
  bool has_started = false;
  for (uint32_t restarts = 1;; ++restarts) {
    auto trainer = std::make_unique<Trainer>(options, texts, data);
    Outcome outcome = trainer->run(checkpoint.get());
    has_started = has_started || trainer->has_started();
    if (outcome.exit != kLost || !has_started || restarts > options.launch.restarts) return outcome;
    const std::string last = trainer->last_checkpoint();
    if (!stop_signal()) trainer->restarts(restarts, outcome);
    trainer.reset();  // its ranks have ended before others start
    if (!stop_signal()) sleep(kPause);
    if (stop_signal()) {
      outcome.exit = 128 + stop_signal();
      return outcome;
    }
    options.adds_to_log = true;
    if (last.empty()) continue;
    weft_checkpoint_info info = sized<weft_checkpoint_info>();
    options.resume = last;
    CLI_TRY(open_checkpoint("train", last, checkpoint, info));
  }
}

void add_data_options(StoredOptions& settings, TrainOptions& o) {
  settings.section("Data");
  settings
      .add("--data", o.data.file,
           "Training data: a text, samples of prompt and completion, of text or of messages "
           "(NAME.jsonl), or token ids (NAME.u16, NAME.u32). synthetic: generated from the seed; a "
           "model without tokens uses no other")
      .type("FILE");
  settings
      .add("--tokenizer", o.data.tokenizer,
           "A file tokenizer.json, or its directory, for --data that is text. Default: that of "
           "MODEL; without one, each byte is a token")
      .type("FILE");
  add_long_samples_option(settings, o.data.long_samples);
  settings.add("--eval", o.data.eval, "Held-out data: a file, or a share of --data such as 0.1")
      .type("FILE|SHARE");
  settings
      .add("--eval-every", o.eval_every,
           "Evaluate before the first step and every N steps. 0: only at the end")
      .type("N");
  settings
      .add("--seed", o.plan.seed,
           "Seed of the initial parameters, the choice of samples and dropout")
      .type("N");
}

void add_rank_options(Parser& parser, StoredOptions& settings, TrainOptions& o) {
  add_plan_options(settings, o.plan);
  add_cluster_option(settings, o.plan);
  parser.add("--plan", o.plan.plan_file, "Use the plan that 'weft plan --save' wrote").type("FILE");
  settings.section("Processes and machines");
  settings
      .add("--threads", o.launch.threads,
           "Compute threads per rank. 0: all ranks in turn on one thread of this process")
      .type("N")
      .range(0, kMostThreads);
  add_launch_options(parser, o.launch);
  parser
      .add("--restarts", o.launch.restarts,
           "If a rank is lost, start again from the last checkpoint, at most N times")
      .type("N");
}

void add_checkpoint_options(Parser& parser, StoredOptions& settings, TrainOptions& o) {
  parser.section("Checkpoints");
  parser
      .add("--checkpoint", o.checkpoint,
           "Save checkpoints in this directory. Default with --resume DIR: that directory")
      .type("DIR");
  settings
      .add("--checkpoint-every", o.checkpoint_every,
           "Save every N steps and at the end. 0: only at the end")
      .type("N");
  parser
      .add("--resume", o.resume,
           "Continue from a checkpoint, or from the latest one in a directory. Its settings are "
           "the defaults")
      .type("DIR");
  parser
      .add("--init", o.init,
           "Start from the weights in this safetensors file or directory of Transformers")
      .type("FILE")
      .excludes("--resume");
  parser
      .add("--init-except", o.init_except,
           "Load no parameters whose names match these patterns, separated by commas; they keep "
           "their initial values")
      .type("NAMES")
      .excludes("--resume");
  parser
      .add("--adapter", o.model.adapter,
           "Add the adapters in this directory of PEFT to MODEL, with their weights")
      .type("DIR")
      .excludes("--resume");
}

void add_output_options(Parser& parser, TrainOptions& o) {
  parser.section("Output");
  parser
      .add("--trace", o.trace,
           "Write when each action ran, as a Chrome trace of up to 100000 actions per rank")
      .type("FILE");
  parser
      .add("--log", o.log,
           "Write the lines of --json to a file, for 'weft report'. With --resume: add them to it")
      .type("FILE");
  parser.add("--json", o.json, "Print one JSON object per line");
  parser.add("-q,--quiet", o.quiet, "Print no progress on standard error");
}

}  // namespace

Action add_train(Parser& parser) {
  auto train = std::make_shared<Train>(parser);
  TrainOptions& o = train->options;
  parser
      .add("MODEL", o.model.model,
           model_names() +
               "; or a checkpoint or a directory of Transformers to take the weights from")
      .type("")
      .offers(offered_models());
  o.model.command = "train";
  o.launch.command = "train";
  add_model_options(train->settings, o.model);
  add_data_options(train->settings, o);
  train->settings.section("Optimization");
  train->settings.add("--steps", o.steps, "Total number of steps, including those before --resume")
      .type("N");
  parser
      .add("--epochs", o.epochs,
           "Total number of passes over --data, including those before --resume, which determines "
           "--steps. 0: --steps does")
      .type("N")
      .range(0, kMostEpochs)
      .excludes("--steps");
  add_rank_options(parser, train->settings, o);
  add_optimizer_options(train->settings, o.optimizer);
  add_checkpoint_options(parser, train->settings, o);
  add_output_options(parser, o);
  parser.common({"--data", "--eval", "--epochs", "--steps", "--lr", "--micro-batches",
                 "--micro-batch-size", "--ranks", "--schedule", "--checkpoint", "--resume"});
  return [train] { return train->run(); };
}

}  // namespace weft::cli
