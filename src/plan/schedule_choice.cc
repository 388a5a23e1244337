#include "plan/schedule_choice.h"

#include <algorithm>

#include "base/text.h"
#include "plan/asynchronous.h"

namespace weft {

namespace {

Result<ScheduleChoice> read_written(const PlanConfig& config) {
  ScheduleChoice out;
  WEFT_TRY_ASSIGN(out.written, parse_schedule(config.schedule_text).within("schedule"));
  const auto differs = [](const char* what, int64_t found, int64_t expected) {
    return Status(Code::invalid, cat("the schedule is written for ", found, " ", what,
                                     ", the plan has ", expected));
  };
  if (out.written.ranks() != config.ranks)
    return differs("ranks", out.written.ranks(), config.ranks);
  if (config.segment > 0 && out.written.updates > 0 && out.written.updates != config.segment)
    return differs("updates", out.written.updates, config.segment);
  const int64_t micro_batches = int64_t{config.micro_batches} * std::max(out.written.updates, 1);
  if (out.written.micro_batches != micro_batches)
    return differs(config.data > 1 ? "micro-batches per replica" : "micro-batches",
                   out.written.micro_batches, micro_batches);
  out.stages = out.written.stages;
  return out;
}

}  // namespace

Result<ScheduleChoice> choose_schedule(const PlanConfig& config) {
  if (!config.schedule_text.empty()) return read_written(config);
  ScheduleChoice out;
  out.kind = find_schedule(config.schedule);
  if (!out.kind) {
    std::string known;
    for (const ScheduleKind& k : all_schedules()) known += cat(known.empty() ? "" : ", ", k.name);
    return Status(Code::not_found,
                  cat("schedule '", config.schedule, "' is not known; there are ", known));
  }
  WEFT_TRY_ASSIGN(const int32_t chunks, chunks_of(*out.kind, config.chunks));
  if (!config.stage_replicas.empty()) {
    WEFT_TRY_ASSIGN(const std::vector<int32_t> replicas, replicas_of(config));
    out.stages = static_cast<int32_t>(replicas.size());
    return out;
  }
  if (int64_t{chunks} * config.ranks > kMaxStages)
    return Status(Code::invalid,
                  cat(config.ranks, " ranks of ", chunks, " stages make ",
                      int64_t{chunks} * config.ranks, " stages, expected at most ", kMaxStages));
  out.stages = chunks * config.ranks;
  return out;
}

Result<Schedule> make_schedule(const ScheduleChoice& choice, const PlanConfig& config,
                               ScheduleCosts costs) {
  if (!choice.kind) return choice.written;
  WEFT_TRY_ASSIGN(std::vector<int32_t> replicas, replicas_of(config));
  return choice.kind->make({.ranks = config.ranks,
                            .micro_batches = config.micro_batches,
                            .chunks = config.chunks,
                            .group = config.group,
                            .segment = config.segment,
                            .warm_up = config.warm_up,
                            .replicas = std::move(replicas),
                            .costs = std::move(costs)});
}

}  // namespace weft
