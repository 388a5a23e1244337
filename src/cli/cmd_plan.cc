// weft plan
#include "cli/command.h"
#include "cli/console.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/mesh_option.h"
#include "cli/plan_report.h"
#include "cli/saved_plan.h"

namespace weft::cli {

namespace {

struct Options {
  ModelOptions model;
  PlanOptions plan;
  OptimizerOptions optimizer;
  uint64_t steps = 100;
  bool json = false, timetable = false, schedules = false, compare = false;
  std::string write_schedule, save, trace;
};

void print_schedules(bool json) {
  weft_schedule_info info = sized<weft_schedule_info>();
  std::vector<JsonObject> rows;
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i) {
    if (info.forward_only) continue;  // --schedule does not accept it
    if (!json) print_format("%-15s %s", info.name, info.about);
    rows.push_back(JsonObject()
                       .add("schedule", info.name)
                       .add("chunks", info.chunks)
                       .add("asynchronous", info.asynchronous != 0)
                       .add("about", info.about));
  }
  if (json) print_line(JsonObject().add("schedules", rows).text());
}

Outcome write_rows(const std::string& path, const std::vector<std::string>& rows) {
  std::string text;
  for (const std::string& row : rows) text += row + '\n';
  return write_file(path, text);
}

// Options that concern one plan are errors with --compare.
Outcome check_mode(const Options& o, const StoredOptions& settings) {
  if (!o.compare) return {};
  const char* const compare = "--compare, which tries all schedules";
  const std::pair<const char*, bool> given[] = {{"--plan", !o.plan.plan_file.empty()},
                                                {"--write-schedule", !o.write_schedule.empty()},
                                                {"--save", !o.save.empty()},
                                                {"--trace", !o.trace.empty()},
                                                {"--timetable", o.timetable}};
  for (const auto& [name, is] : given)
    if (is) return not_combined(name, compare);
  CLI_TRY(settings.check_not_combined({"schedule", "schedule-file", "warmup-depth"}, compare));
  return settings.check_not_combined({"segment", "vertical-sync", "stage-replicas"},
                                     "--compare, which tries synchronous schedules");
}

Outcome compare(const Options& o) {
  weft_error err = sized<weft_error>();
  PlanOptions all = o.plan;
  all.schedule = all.warm_up = "auto";
  Built built;
  CLI_TRY(build_model(o.model, stages_of(all), built));
  PlanRequest request;
  CLI_TRY(request.fill(all, o.optimizer, o.steps));
  ComparisonPtr comparison;
  CLI_CALL(weft_plan_compare(built.model.get(), &request.config, Out(comparison), &err));
  (o.json ? print_comparison_json : print_comparison)(*comparison);
  return {};
}

Outcome show_plan(Options& o) {
  if (o.model.model.empty()) return {kUsage, "MODEL is missing", ""};
  CLI_TRY(take_ranks(o.plan));
  CLI_TRY(check_outputs(
      {{"--save", o.save}, {"--trace", o.trace}, {"--write-schedule", o.write_schedule}},
      {{"--plan", o.plan.plan_file},
       {"--profile", o.plan.profile},
       {"--cluster", o.plan.cluster},
       {"--schedule-file", o.plan.schedule_file},
       {"MODEL", o.model.model}}));
  if (o.compare) return compare(o);
  weft_error err = sized<weft_error>();
  Built built;
  CLI_TRY(build_model(o.model, stages_of(o.plan), built));
  CLI_TRY(build_plan(o.plan, o.optimizer, o.steps, built));
  if (!o.write_schedule.empty() && !stage_replicas(built.plan.get()).empty())
    return {kUsage,
            "--write-schedule: the ranks of a stage take turns, which a schedule file cannot say",
            "--save writes the plan"};
  if (!o.save.empty()) CLI_CALL(weft_plan_save(built.plan.get(), o.save.c_str(), &err));
  PredictionPtr prediction;
  CLI_CALL(weft_plan_simulate(built.plan.get(), o.trace.empty() ? 0 : WEFT_PREDICT_TIMELINE,
                              Out(prediction), &err));
  if (!o.trace.empty())
    CLI_CALL(weft_prediction_save_trace(prediction.get(), o.trace.c_str(), &err));
  if (!o.write_schedule.empty())
    CLI_TRY(write_rows(o.write_schedule, timetable_rows(built.plan.get())));
  std::vector<ShardCost> shards;
  CLI_TRY(shard_costs(o.plan, o.optimizer, o.steps, built, *prediction, shards));
  (o.json ? print_plan_json : print_plan)({built, *prediction, o.plan, shards, o.timetable});
  return {};
}

}  // namespace

Action add_plan(Parser& parser) {
  auto o = std::make_shared<Options>();
  auto settings = std::make_shared<StoredOptions>(parser);
  parser
      .add("MODEL", o->model.model,
           model_names() + "; or a checkpoint or a directory of Transformers")
      .type("")
      .offers(offered_models());
  add_model_options(*settings, o->model);
  parser.add("--packed", o->model.packed, "Plan for samples in NAME.jsonl, which share windows");
  add_plan_options(*settings, o->plan);
  add_cluster_option(*settings, o->plan);
  add_optimizer_options(*settings, o->optimizer);
  settings
      ->add("--steps", o->steps, "Number of steps over which --lr-schedule cosine or linear falls")
      .type("N");
  settings
      ->add("--seed", o->plan.seed,
            "Seed of the initial parameters, dropout and the choice of samples of 'weft train "
            "--plan'")
      .type("N");
  parser.section("Output");
  parser.add("--schedules", o->schedules,
             "List all schedules and the sizes that each one accepts, and exit");
  parser
      .add("--write-schedule", o->write_schedule,
           "Also write the timetable to a file, for --schedule-file")
      .type("FILE");
  parser.add("--plan", o->plan.plan_file, "Show the plan that --save wrote").type("FILE");
  parser.add("--save", o->save, "Also save the plan, for --plan").type("FILE");
  parser.add("--compare", o->compare,
             "Predict every schedule that the other options allow, and mark the fastest");
  parser
      .add("--trace", o->trace,
           "Also write the predicted timeline, in the format of 'weft train --trace'")
      .type("FILE");
  parser.add("--timetable", o->timetable,
             "Print all actions of each rank, however many; with --json, add them to the object");
  parser.add("--json", o->json, "Print one JSON object");
  parser.common({"--seq-len", "--micro-batches", "--micro-batch-size", "--ranks", "--mesh",
                 "--schedule", "--memory-limit", "--profile", "--compare", "--save"});
  o->model.command = "plan";
  return [o, settings]() -> Outcome {
    if (o->schedules) {
      print_schedules(o->json);
      return {};
    }
    CLI_TRY(check_mode(*o, *settings));
    CLI_TRY(check_cluster(*settings, o->plan));
    CLI_TRY(take_plan_file(*settings, o->plan, o->optimizer, o->steps));
    CLI_TRY(settle_mesh(*settings, o->plan, o->compare));
    settle_defaults(*settings, o->plan, o->optimizer);
    CLI_TRY(check_curve(o->optimizer, o->steps));
    o->model.train = o->optimizer.train;
    return show_plan(*o);
  };
}

}  // namespace weft::cli
