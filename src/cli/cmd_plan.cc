// weft plan
#include <cstdio>
#include <fstream>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/setup.h"

namespace weft::cli {

namespace {

struct Options {
  ModelOptions model;
  PlanOptions plan;
  OptimizerOptions optimizer;
  uint64_t steps = 100;
  bool json = false, timetable = false, schedules = false;
  std::string write_schedule, save;
};

void print_schedules() {
  weft_schedule_info info = WEFT_SCHEDULE_INFO_INIT;
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i) {
    char line[512];
    std::snprintf(line, sizeof line, "%-15s %s", info.name, info.about);
    print_line(line);
  }
}

Outcome write_rows(const std::string& path, const std::vector<std::string>& rows) {
  std::ofstream file(path, std::ios::binary);
  for (const std::string& row : rows) file << row << '\n';
  file.close();
  if (!file) return {kBadInput, "cannot write '" + path + "'", ""};
  return {};
}

std::vector<std::string> timetable_rows(const weft_plan* plan) {
  std::string text(weft_plan_timetable(plan, nullptr, 0), 0);
  weft_plan_timetable(plan, text.data(), text.size());
  std::vector<std::string> rows;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) rows.push_back(text.substr(begin, end - begin));
  return rows;
}

void print_table(const Built& built, const Options& o, const std::vector<double>& idle, double mean, const std::vector<std::string>& rows) {
  char line[256];
  std::snprintf(line, sizeof line, "%s: %.2f M parameters, %u ranks, %s, %u micro-batches of %u", built.info.text,
                static_cast<double>(weft_model_parameters(built.model.get())) / 1e6, o.plan.ranks, o.plan.schedule.c_str(), o.plan.micro_batches,
                o.plan.micro_batch_size);
  print_line(line);
  print_line("");
  print_line("rank   owned M  resident M   peak MiB   idle  from");
  for (uint32_t r = 0; r < o.plan.ranks; ++r) {
    std::snprintf(line, sizeof line, "%4u  %8.2f    %8.2f  %9.1f  %4.1f%%  ", r, static_cast<double>(weft_plan_owned(built.plan.get(), r)) / 1e6,
                  static_cast<double>(weft_plan_resident(built.plan.get(), r)) / 1e6, static_cast<double>(weft_plan_bytes(built.plan.get(), r)) / 0x1p20,
                  100 * idle[r]);
    const char* first = weft_plan_first(built.plan.get(), r);
    print_line(std::string(line) + (first ? first : ""));
  }
  std::snprintf(line, sizeof line, "predicted idle: %.1f%%", 100 * mean);
  print_line("");
  print_line(line);
  print_line("");
  for (size_t r = 0; r < rows.size(); ++r) print_line(std::to_string(r) + ": " + rows[r]);
}

void print_json(const Built& built, const Options& o, const std::vector<double>& idle, double mean, const std::vector<std::string>& rows) {
  std::vector<JsonObject> ranks;
  for (uint32_t r = 0; r < o.plan.ranks; ++r) {
    const char* first = weft_plan_first(built.plan.get(), r);
    ranks.push_back(JsonObject()
                        .add("rank", r)
                        .add("from", first ? first : "")
                        .add("owned", weft_plan_owned(built.plan.get(), r))
                        .add("resident", weft_plan_resident(built.plan.get(), r))
                        .add("peak_bytes", weft_plan_bytes(built.plan.get(), r))
                        .add("idle", idle[r]));
  }
  JsonObject object;
  object.add("model", built.info.text)
      .add("parameters", weft_model_parameters(built.model.get()))
      .add("schedule", o.plan.schedule)
      .add("micro_batches", o.plan.micro_batches)
      .add("micro_batch_size", o.plan.micro_batch_size)
      .add("idle", mean)
      .add("ranks", ranks);
  if (o.timetable) object.add("timetable", rows);
  print_line(object.text());
}

Outcome show_plan(const Options& o) {
  if (o.schedules) {
    print_schedules();
    return {};
  }
  if (o.model.model.empty()) return {kUsage, "MODEL is missing", "weft plan --help"};
  weft_error err = WEFT_ERROR_INIT;
  Built built;
  CLI_TRY(build_model(o.model, stages_of(o.plan), built));
  CLI_TRY(build_plan(o.plan, o.optimizer, o.steps, built));
  if (!o.save.empty()) CLI_CALL(weft_plan_save(built.plan.get(), o.save.c_str(), &err));
  std::vector<double> idle(o.plan.ranks);
  CLI_CALL(weft_plan_predict(built.plan.get(), idle.data(), o.plan.ranks, &err));
  double mean = 0;
  for (double share : idle) mean += share / o.plan.ranks;
  const std::vector<std::string> rows = timetable_rows(built.plan.get());
  if (!o.write_schedule.empty()) CLI_TRY(write_rows(o.write_schedule, rows));
  (o.json ? print_json : print_table)(built, o, idle, mean, rows);
  return {};
}

}  // namespace

Action add_plan(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto settings = std::make_shared<Settings>(app);
  app.add_option("MODEL", o->model.model, "NAME[:key=value,...] (mlp, gpt-nano, gpt2), or a checkpoint")->type_name("");
  add_model_options(*settings, o->model);
  add_plan_options(*settings, o->plan);
  add_rule_option(*settings, o->optimizer);
  app.add_flag("--schedules", o->schedules, "List the schedules that there are, with the sizes that each allows");
  app.add_option("--write-schedule", o->write_schedule, "Also write the timetable to a file, for --schedule-file")->type_name("FILE");
  app.add_option("--plan", o->plan.plan_file, "Take a saved plan instead of making one")->type_name("FILE");
  app.add_option("--save", o->save, "Also save the plan, for --plan")->type_name("FILE");
  app.add_flag("--timetable", o->timetable, "With --json: the actions of each rank as well");
  app.add_flag("--json", o->json, "One JSON object instead of text");
  return [o, settings]() -> Outcome {
    CLI_TRY(take_plan_file(*settings, o->plan));
    return show_plan(*o);
  };
}

}  // namespace weft::cli
