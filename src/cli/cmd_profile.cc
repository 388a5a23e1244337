// weft profile
#include <algorithm>
#include <chrono>

#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/launch.h"
#include "cli/signals.h"
#include "cli/train_data.h"

namespace weft::cli {

namespace {

struct Options {
  ModelOptions model;
  std::string out;
  weft_profile_config config = defaults(weft_profile_config_init);
  std::string precision = "f32", f32_nodes;
  uint32_t stages = 1, ranks = 1;
  bool json = false;
};

using Clock = std::chrono::steady_clock;
constexpr uint32_t kFewest = 3;                      // measured steps
constexpr uint32_t kUncounted = 3;                   // steps, before those that are measured
constexpr auto kShortest = std::chrono::seconds(5);  // for which at least is measured
constexpr uint32_t kMostJobs = 100000;               // that are recorded of each rank

// Trains on generated samples, with the ranks as processes of this machine.
class TrialRun {
 public:
  TrialRun(const Options& options, Built& built) : options_(options), built_(built) {
    plan_.ranks = options.ranks;
    plan_.schedule = "zb-h1";  // has input and weight gradients as separate actions
    plan_.micro_batches = std::max(plan_.micro_batches, 2 * options.ranks);
    plan_.micro_batch_size = options.config.micro_batch_size;
    plan_.precision = options.precision;
    plan_.f32_nodes = options.f32_nodes;
    launch_.command = "profile";
    launch_.ranks = options.ranks;
    launch_.threads = options.config.threads;
    launch_.quiet = true;
  }

  // Replaces the profile by that of the run.
  Outcome adjust(ProfilePtr& profile) {
    watch_signals();  // before, a signal ends the process, which has nothing to remove
    Outcome outcome = train(profile);
    return ranks_.explain(std::move(outcome), run_.get());
  }

 private:
  Outcome train(ProfilePtr& profile) {
    weft_error err = sized<weft_error>();
    PlanRequest request;
    CLI_TRY(request.fill(plan_, {}, 1));
    request.config.profile = profile.get();
    CLI_CALL(weft_plan_new(built_.model.get(), &request.config, Out(built_.plan), &err));
    DataOptions generated;
    generated.file = kSynthetic;
    DataPtr data;
    CLI_TRY(open_data(generated, built_.info, /*ends=*/{}, plan_.micro_batch_size, true, data));
    std::vector<TensorPtr> inputs(inputs_of(options_.model));
    CLI_TRY(make_inputs(built_.info, samples_of_step(plan_), inputs));
    CLI_TRY(ranks_.start(built_.plan.get(), launch_, run_));
    CLI_CALL(weft_run_trace(run_.get(), kMostJobs, &err));
    std::vector<weft_tensor*> batch;
    for (const TensorPtr& input : inputs) batch.push_back(input.get());
    const auto begin = Clock::now();
    const uint32_t least = kUncounted + std::max(options_.config.repeats, kFewest);
    for (uint32_t step = 0; step < least || Clock::now() - begin < kShortest; ++step) {
      if (const int signal = stop_signal()) return {128 + signal, "stopped", ""};
      CLI_TRY(fill_samples(data.get(), plan_.seed, step, inputs));
      CLI_CALL(weft_run_step(run_.get(), batch.data(), static_cast<uint32_t>(batch.size()),
                             WEFT_TRAIN, nullptr, 0, nullptr, &err));
    }
    ProfilePtr adjusted;
    CLI_CALL(weft_run_profile(run_.get(), profile.get(), Out(adjusted), &err));
    profile = std::move(adjusted);
    return {};
  }

  const Options& options_;
  Built& built_;
  PlanOptions plan_;
  LaunchOptions launch_;
  Ranks ranks_;
  RunPtr run_;
};

Outcome show(const weft_profile* profile, const Options& o, const Built& built) {
  weft_error err = sized<weft_error>();
  int64_t total_ns = 0;
  std::vector<JsonObject> nodes;
  if (!o.json) print_line("  forward ms    input ms   weight ms   output KiB  node");
  for (uint32_t i = 0; i < weft_profile_nodes(profile); ++i) {
    weft_node_times t = sized<weft_node_times>();
    CLI_CALL(weft_profile_node(profile, i, &t));
    total_ns += t.forward_ns + t.input_ns + t.weight_ns;
    if (o.json) {
      nodes.push_back(JsonObject()
                          .add("name", t.name)
                          .add("forward", seconds_of(t.forward_ns))
                          .add("input", seconds_of(t.input_ns))
                          .add("weight", seconds_of(t.weight_ns))
                          .add("output_bytes", t.output_bytes)
                          .add("stash_bytes", t.stash_bytes));
      continue;
    }
    print_format("%12.3f%12.3f%12.3f%13.1f  %s", 1e3 * seconds_of(t.forward_ns),
                 1e3 * seconds_of(t.input_ns), 1e3 * seconds_of(t.weight_ns),
                 static_cast<double>(t.output_bytes) / 1024, t.name);
  }
  if (o.json) {
    print_line(JsonObject()
                   .add("model", built.info.text)
                   .add("micro_batch_size", o.config.micro_batch_size)
                   .add("seconds", seconds_of(total_ns))
                   .add("nodes", nodes)
                   .text());
  } else {
    print_line("");
    print_format("%s: %.3f ms for a micro-batch of %u", built.info.text, 1e3 * seconds_of(total_ns),
                 o.config.micro_batch_size);
  }
  return {};
}

Outcome make_profile(const Options& o) {
  weft_error err = sized<weft_error>();
  Built built;
  CLI_TRY(check_outputs({{"--out", o.out}}, {{"MODEL", o.model.model}}));
  CLI_TRY(build_model(o.model, std::max(o.stages, o.ranks), built));
  ProfilePtr profile;
  weft_profile_config config = o.config;
  config.precision = o.precision.c_str();
  config.f32_nodes = o.f32_nodes.c_str();
  CLI_CALL(weft_profile_new(built.model.get(), &config, Out(profile), &err));
  if (o.ranks > 1) CLI_TRY(TrialRun(o, built).adjust(profile));
  if (!o.out.empty()) CLI_CALL(weft_profile_save(profile.get(), o.out.c_str(), &err));
  return show(profile.get(), o, built);
}

}  // namespace

Action add_profile(Parser& parser) {
  auto o = std::make_shared<Options>();
  auto settings = std::make_shared<StoredOptions>(parser);
  parser
      .add("MODEL", o->model.model,
           model_names() + "; or a checkpoint or a directory of Transformers")
      .required()
      .type("")
      .offers(offered_models());
  add_model_options(*settings, o->model);
  parser
      .add("--out", o->out,
           "Write the profile to this file, for --profile of 'weft plan' and 'weft train'")
      .type("FILE");
  parser
      .add("--micro-batch-size", o->config.micro_batch_size,
           "Samples per micro-batch; a plan that uses the profile must have the same value")
      .type("N")
      .range(1, 1u << 20);
  add_precision_options(parser, o->precision, o->f32_nodes);
  parser.add("--repeats", o->config.repeats, "Number of measured micro-batches, and steps")
      .type("N")
      .range(1, 100000);
  parser
      .add("--threads", o->config.threads,
           "Compute threads; use the number that each rank will have")
      .type("N")
      .range(1, kMostThreads);
  parser
      .add("--ranks", o->ranks,
           "Also measure steps of so many ranks, which share this machine, and adjust the times")
      .type("P")
      .range(1, kMostRanks);
  parser.add("--stages", o->stages, "Number of stages of the plan; mlp has at least as many layers")
      .type("P")
      .range(1, kMostRanks);
  parser.add("--json", o->json, "Print one JSON object");
  o->model.command = "profile";
  return [o, settings] { return make_profile(*o); };
}

}  // namespace weft::cli
