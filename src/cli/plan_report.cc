#include "cli/plan_report.h"

#include <algorithm>

#include "cli/console.h"
#include "cli/json.h"
#include "cli/lists.h"
#include "cli/run_facts.h"
#include "cli/units.h"

namespace weft::cli {

namespace {

// Limits of the tables; --json prints everything.
constexpr uint32_t kMostRows = 64, kMostLinks = 32;
constexpr size_t kMostColumns = 120;
constexpr uint64_t kMostActions = 100000;

weft_prediction_info info_of(const weft_prediction& prediction) {
  weft_prediction_info info = sized<weft_prediction_info>();
  weft_prediction_describe(&prediction, &info);
  return info;
}

weft_plan_info info_of(const Built& built) {
  weft_plan_info info = sized<weft_plan_info>();
  weft_plan_describe(built.plan.get(), &info);
  return info;
}

// Per rank, the first nodes of its stages.
std::vector<std::vector<std::string>> stages_by_rank(const PlanReport& r, uint32_t ranks) {
  const weft_plan* plan = r.built.plan.get();
  std::vector<std::vector<std::string>> out(ranks);
  const uint32_t step = r.options.data > 1 ? ranks / r.options.data : 1;
  for (uint32_t s = 0; s < weft_plan_stages(plan); ++s)
    for (uint32_t i = 0; i < weft_plan_replicas(plan, s); ++i)
      for (uint32_t shard = 0; shard < r.options.shard_ranks; ++shard)
        out[weft_plan_rank(plan, s) + i * step + shard].push_back(weft_plan_first(plan, s));
  return out;
}

void print_ranks(const PlanReport& r, uint32_t ranks) {
  const weft_plan* plan = r.built.plan.get();
  const auto stages = stages_by_rank(r, ranks);
  print_line("rank   owned M  resident M   peak MiB   idle    own  from");
  for (uint32_t i = 0; i < std::min(ranks, kMostRows); ++i) {
    weft_rank_prediction p = sized<weft_rank_prediction>();
    weft_prediction_rank(&r.prediction, i, &p);
    print_format("%4u  %8.2f    %8.2f  %9.1f  %4.1f%%  %4.1f%%  %s", i,
                 static_cast<double>(weft_plan_owned(plan, i)) / 1e6,
                 static_cast<double>(weft_plan_resident(plan, i)) / 1e6,
                 static_cast<double>(p.peak_bytes) / 0x1p20, 100 * p.idle, 100 * p.idle_own,
                 joined(stages[i]).c_str());
  }
  if (ranks > kMostRows) print_format("...  and %u more", ranks - kMostRows);
}

void print_links(const weft_prediction& prediction, const weft_prediction_info& info,
                 const char* step) {
  if (info.links == 0) return;
  print_line("");
  print_format("link                   messages   bytes per %s", step);
  for (uint32_t i = 0; i < std::min(info.links, kMostLinks); ++i) {
    weft_link_prediction link = sized<weft_link_prediction>();
    weft_prediction_link(&prediction, i, &link);
    print_format("rank %4u to %-4u  %12lld  %15s", link.from, link.to,
                 static_cast<long long>(link.messages), bytes_text(link.bytes).c_str());
  }
  if (info.links > kMostLinks) print_format("...  and %u more", info.links - kMostLinks);
  print_format("total              %12lld  %15s", static_cast<long long>(info.messages),
               bytes_text(info.bytes).c_str());
}

uint64_t actions_of(const weft_plan_info& info) {
  return uint64_t{2} * info.stages * info.micro_batches;
}

void print_timetable(const PlanReport& r, const weft_plan_info& info) {
  print_line("");
  if (!r.timetable && actions_of(info) > kMostActions) {
    print_line("The timetable is long; --timetable prints it.");
    return;
  }
  const std::vector<std::string> rows = timetable_rows(r.built.plan.get());
  for (size_t i = 0; i < rows.size() && (r.timetable || i < kMostRows); ++i) {
    const bool cut = !r.timetable && rows[i].size() > kMostColumns;
    print_line(std::to_string(i) + ": " +
               (cut ? rows[i].substr(0, rows[i].rfind(' ', kMostColumns)) + " ..." : rows[i]));
  }
}

std::vector<weft_candidate> rows_of(const weft_comparison& comparison) {
  std::vector<weft_candidate> out;
  weft_candidate row = sized<weft_candidate>();
  for (uint32_t i = 0; weft_comparison_row(&comparison, i, &row) == WEFT_OK; ++i)
    out.push_back(row);
  return out;
}

std::string candidate_name(const weft_candidate& row) {
  std::string name = row.schedule;
  if (row.chunks > 1) name += " x" + std::to_string(row.chunks);
  if (row.warm_up > 1) name += " warm-up " + std::to_string(row.warm_up);
  if (row.group > 0) name += " group " + std::to_string(row.group);
  return name;
}

// Prints nothing for one replica.
void print_shards(const PlanReport& r) {
  if (r.shards.empty()) return;
  print_line("");
  print_line("  shard             step  largest rank   over links");
  for (const ShardCost& cost : r.shards) {
    const char mark = cost.shard == r.options.shard ? '*' : ' ';
    if (!cost.refused.empty())
      print_format("%c %-10s  %s", mark, cost.shard.c_str(), cost.refused.c_str());
    else
      print_format("%c %-10s  %10s  %12s  %11s", mark, cost.shard.c_str(),
                   time_text(seconds_of(cost.step_ns)).c_str(), bytes_text(cost.peak_bytes).c_str(),
                   bytes_text(cost.bytes).c_str());
  }
}

std::vector<JsonObject> shards_json(const PlanReport& r) {
  std::vector<JsonObject> out;
  for (const ShardCost& cost : r.shards) {
    JsonObject& object = out.emplace_back();
    object.add("shard", cost.shard).add("chosen", cost.shard == r.options.shard);
    if (!cost.refused.empty())
      object.add("refused", cost.refused);
    else
      object.add("seconds", seconds_of(cost.step_ns))
          .add("peak_bytes", cost.peak_bytes)
          .add("bytes", cost.bytes);
  }
  return out;
}

std::string mesh_name(const weft_candidate& row) {
  return "data=" + std::to_string(row.data) + ",stage=" + std::to_string(row.stage) +
         ",tensor=" + std::to_string(row.tensor);
}

int64_t messages_of(const weft_candidate& row) {
  return std::max(int64_t{0}, row.step_ns - row.work_ns - row.waiting_ns);
}

// What a mesh has most more of than the best.
std::string behind(const weft_candidate& row, const weft_candidate& best) {
  if (row.over) return "over the limit";
  const std::pair<int64_t, const char*> parts[] = {
      {row.work_ns - best.work_ns, "work"},
      {row.waiting_ns - best.waiting_ns, "waiting"},
      {messages_of(row) - messages_of(best), "messages"}};
  const auto most = *std::max_element(std::begin(parts), std::end(parts));
  return most.first > 0 ? "+" + time_text(seconds_of(most.first)) + " " + most.second : "";
}

const weft_candidate* best_of(const std::vector<weft_candidate>& rows) {
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [](const weft_candidate& row) { return row.best != 0; });
  return at == rows.end() ? nullptr : &*at;
}

// After a table without a best row.
void print_none(const std::vector<weft_candidate>& rows) {
  if (std::none_of(rows.begin(), rows.end(), [](const auto& row) { return row.over != 0; })) return;
  print_line("");
  print_line(
      "none is within the limit; --recompute, a smaller --micro-batch-size and more ranks need "
      "less");
}

void print_meshes(const std::vector<weft_candidate>& rows) {
  const weft_candidate* best = best_of(rows);
  print_line(
      "  mesh                          schedule                    step        work     waiting    "
      "messages  largest rank  shard");
  for (const weft_candidate& row : rows) {
    if (row.refused) {
      print_format("  %-28s  %s", mesh_name(row).c_str(), row.refused);
      continue;
    }
    const std::string why = best && !row.best ? behind(row, *best)
                            : row.over        ? "over the limit"
                                              : "";
    print_format(
        "%c %-28s  %-22s  %10s  %10s  %10s  %10s  %12s  %-10s%s%s", row.best ? '*' : ' ',
        mesh_name(row).c_str(), candidate_name(row).c_str(),
        time_text(seconds_of(row.step_ns)).c_str(), time_text(seconds_of(row.work_ns)).c_str(),
        time_text(seconds_of(row.waiting_ns)).c_str(),
        time_text(seconds_of(messages_of(row))).c_str(), bytes_text(row.peak_bytes).c_str(),
        row.data > 1 ? row.shard : "", why.empty() ? "" : "  ", why.c_str());
  }
  if (!best) return print_none(rows);
  print_line("");
  const std::string shard = best->data > 1 ? std::string(" and --shard ") + best->shard : "";
  print_format("best: %s with %s%s, %s per step and at most %s per rank", mesh_name(*best).c_str(),
               candidate_name(*best).c_str(), shard.c_str(),
               time_text(seconds_of(best->step_ns)).c_str(), bytes_text(best->peak_bytes).c_str());
}

// Prints nothing for synchronous schedules.
void print_versions(const weft_plan* plan, uint32_t ranks) {
  if (weft_plan_noam(plan) == 0) return;
  std::string text = "segments of " + std::to_string(weft_plan_updates(plan)) + " updates" +
                     (stage_replicas(plan).empty() ? "; " : " of a stage with one rank; ") +
                     std::to_string(weft_plan_noam(plan)) +
                     " minibatches in flight (NOAM); versions of the weights by rank:";
  for (uint32_t r = 0; r < ranks; ++r) text += " " + std::to_string(weft_plan_versions(plan, r));
  print_line(text);
}

}  // namespace

std::vector<uint32_t> stage_replicas(const weft_plan* plan) {
  std::vector<uint32_t> out;
  for (uint32_t s = 0; weft_plan_noam(plan) > 0 && s < weft_plan_stages(plan); ++s)
    out.push_back(weft_plan_replicas(plan, s));
  const bool takes_turns = std::any_of(out.begin(), out.end(), [](uint32_t r) { return r > 1; });
  return takes_turns ? out : std::vector<uint32_t>();
}

std::vector<std::string> timetable_rows(const weft_plan* plan) {
  std::string text(weft_plan_timetable(plan, nullptr, 0), 0);
  weft_plan_timetable(plan, text.data(), text.size());
  std::vector<std::string> rows;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    rows.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return rows;
}

std::vector<JsonObject> links_json(const weft_prediction& prediction) {
  std::vector<JsonObject> links;
  weft_link_prediction link = sized<weft_link_prediction>();
  for (uint32_t i = 0; weft_prediction_link(&prediction, i, &link) == WEFT_OK; ++i)
    links.push_back(JsonObject()
                        .add("from", link.from)
                        .add("to", link.to)
                        .add("messages", link.messages)
                        .add("bytes", link.bytes));
  return links;
}

std::string parameters_text(const weft_model& model, const weft_plan_info& plan) {
  const int64_t all = weft_model_parameters(&model);
  const auto millions = [](int64_t n) {
    return fixed_text(static_cast<double>(n) / 1e6, 2) + " M";
  };
  return millions(all) + " parameters" +
         (plan.trained == all ? "" : " (" + millions(plan.trained) + " trained)");
}

void print_plan(const PlanReport& r) {
  const weft_plan_info plan = info_of(r.built);
  const weft_prediction_info info = info_of(r.prediction);
  print_format("%s: %s, %u rank%s, %s, %u micro-batch%s of %u", r.built.info.text,
               parameters_text(*r.built.model, plan).c_str(), plan.ranks,
               plan.ranks == 1 ? "" : "s", schedule_text(plan).c_str(), plan.micro_batches,
               plan.micro_batches == 1 ? "" : "es", r.options.micro_batch_size);
  print_line("");
  print_ranks(r, plan.ranks);
  print_line("");
  const char* const step = weft_plan_updates(r.built.plan.get()) > 1 ? "segment" : "step";
  print_format(
      "predicted: %s per %s, %s to its commit; idle %.1f%% of the %s, %.1f%% of each rank's own "
      "span",
      time_text(seconds_of(info.step_ns)).c_str(), step,
      time_text(seconds_of(info.commit_ns)).c_str(), 100 * info.idle, step, 100 * info.idle_own);
  print_versions(r.built.plan.get(), plan.ranks);
  print_shards(r);
  print_links(r.prediction, info, step);
  print_timetable(r, plan);
}

void print_plan_json(const PlanReport& r) {
  const weft_plan* plan = r.built.plan.get();
  const weft_plan_info made = info_of(r.built);
  const weft_prediction_info info = info_of(r.prediction);
  const auto stages = stages_by_rank(r, made.ranks);
  std::vector<JsonObject> ranks;
  for (uint32_t i = 0; i < made.ranks; ++i) {
    weft_rank_prediction p = sized<weft_rank_prediction>();
    weft_prediction_rank(&r.prediction, i, &p);
    ranks.push_back(JsonObject()
                        .add("rank", i)
                        .add("from", stages[i].empty() ? "" : stages[i][0])
                        .add("begins", stages[i])
                        .add("owned", weft_plan_owned(plan, i))
                        .add("resident", weft_plan_resident(plan, i))
                        .add("peak_bytes", p.peak_bytes)
                        .add("memory", memory_json(plan, i))
                        .add("first", seconds_of(p.first_ns))
                        .add("last", seconds_of(p.last_ns))
                        .add("busy", seconds_of(p.busy_ns))
                        .add("idle", p.idle)
                        .add("idle_own", p.idle_own)
                        .add("versions", weft_plan_versions(plan, i)));
  }
  JsonObject object;
  object.add("model", r.built.info.text)
      .add("parameters", weft_model_parameters(r.built.model.get()))
      .add("trained_parameters", made.trained)
      .add("schedule", made.schedule)
      .add("warmup_depth", made.warm_up)
      .add("group", made.group)
      .add("stages", made.stages)
      .add("micro_batches", made.micro_batches)
      .add("micro_batch_size", r.options.micro_batch_size)
      .add("seconds", seconds_of(info.step_ns))
      .add("commit_seconds", seconds_of(info.commit_ns))
      .add("idle", info.idle)
      .add("idle_own", info.idle_own)
      .add("peak_bytes", info.peak_bytes)
      .add("updates", weft_plan_updates(plan))
      .add("noam", weft_plan_noam(plan))
      .add("shards", shards_json(r))
      .add("ranks", ranks)
      .add("links", links_json(r.prediction));
  if (r.timetable) object.add("timetable", timetable_rows(plan));
  print_line(object.text());
}

void print_comparison(const weft_comparison& comparison) {
  const std::vector<weft_candidate> all = rows_of(comparison);
  if (!all.empty() && all.front().data > 0) return print_meshes(all);
  print_line("  schedule                      step   idle    own  largest rank   over links");
  for (const weft_candidate& row : all) {
    const std::string name = candidate_name(row);
    if (row.refused)
      print_format("  %-22s  %s", name.c_str(), row.refused);
    else
      print_format("%c %-22s  %10s  %4.1f%%  %4.1f%%  %12s  %11s%s", row.best ? '*' : ' ',
                   name.c_str(), time_text(seconds_of(row.step_ns)).c_str(), 100 * row.idle,
                   100 * row.idle_own, bytes_text(row.peak_bytes).c_str(),
                   bytes_text(row.bytes).c_str(), row.over ? "  over the limit" : "");
  }
  if (!best_of(all)) print_none(all);
}

void print_comparison_json(const weft_comparison& comparison) {
  std::vector<JsonObject> schedules;
  std::string best = "null";
  for (const weft_candidate& row : rows_of(comparison)) {
    JsonObject object;
    object.add("schedule", row.schedule)
        .add("chunks", row.chunks)
        .add("warmup_depth", row.warm_up)
        .add("group", row.group)
        .add("best", row.best != 0);
    if (row.data > 0) object.add("mesh", mesh_name(row));
    if (row.refused)
      object.add("refused", row.refused);
    else
      object.add("seconds", seconds_of(row.step_ns))
          .add("idle", row.idle)
          .add("idle_own", row.idle_own)
          .add("peak_bytes", row.peak_bytes)
          .add("bytes", row.bytes)
          .add("over", row.over != 0);
    if (row.data > 0 && !row.refused)
      object.add("work", seconds_of(row.work_ns))
          .add("waiting", seconds_of(row.waiting_ns))
          .add("messages", seconds_of(messages_of(row)))
          .add("shard", row.shard);
    if (row.best) best = quoted_text(row.data > 0 ? mesh_name(row).c_str() : row.schedule);
    schedules.push_back(object);
  }
  const bool meshes = !schedules.empty() && rows_of(comparison).front().data > 0;
  print_line(JsonObject().raw("best", best).add(meshes ? "meshes" : "schedules", schedules).text());
}

}  // namespace weft::cli
