// weft profile
#include <cstdio>

#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/json.h"

namespace weft::cli {

namespace {

struct Options {
  ModelOptions model;
  std::string out;
  weft_profile_config config = defaults(weft_profile_config_init);
  uint32_t ranks = 1;
  bool json = false;
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
    char line[128];
    std::snprintf(line, sizeof line, "%12.3f%12.3f%12.3f%13.1f  ", 1e3 * seconds_of(t.forward_ns),
                  1e3 * seconds_of(t.input_ns), 1e3 * seconds_of(t.weight_ns),
                  static_cast<double>(t.output_bytes) / 1024);
    print_line(line + std::string(t.name));
  }
  if (o.json) {
    print_line(JsonObject()
                   .add("model", built.info.text)
                   .add("micro_batch_size", o.config.micro_batch_size)
                   .add("seconds", seconds_of(total_ns))
                   .add("nodes", nodes)
                   .text());
  } else {
    char line[64];
    std::snprintf(line, sizeof line, ": %.3f ms for a micro-batch of %u",
                  1e3 * seconds_of(total_ns), o.config.micro_batch_size);
    print_line("");
    print_line(built.info.text + std::string(line));
  }
  return {};
}

Outcome make_profile(const Options& o) {
  weft_error err = sized<weft_error>();
  Built built;
  CLI_TRY(build_model(o.model, o.ranks, built));
  ProfilePtr profile;
  CLI_CALL(weft_profile_new(built.model.get(), &o.config, Out(profile), &err));
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
      .offers(kModelNames);
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
  parser.add("--repeats", o->config.repeats, "Number of measured micro-batches")
      .type("N")
      .range(1, 100000);
  parser
      .add("--threads", o->config.threads,
           "Compute threads; use the number that each rank will have")
      .type("N")
      .range(1, 1024);
  parser.add("--stages", o->ranks, "Number of stages of the plan; mlp has at least as many layers")
      .type("P")
      .range(1, 4096);
  parser.add("--json", o->json, "Print one JSON object");
  o->model.command = "profile";
  return [o, settings] { return make_profile(*o); };
}

}  // namespace weft::cli
