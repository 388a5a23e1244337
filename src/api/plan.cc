#include <algorithm>

#include "api/plan_config.h"
#include "kernels/fpenv.h"
#include "lowering/memory.h"
#include "plan/asynchronous.h"
#include "sim/predict.h"
#include "tune/compare.h"
#include "tune/make_plan.h"

using namespace weft;
using namespace weft::api;

namespace {

int64_t elements(const weft_plan* plan, uint32_t rank, bool owned_only) {
  int64_t sum = 0;
  if (!plan || rank >= plan->plan->resident.size()) return 0;
  for (const ResidentParam& p : plan->plan->resident[rank])
    if (owned_only ? p.owned : static_cast<bool>(p.value()))
      sum += plan->plan->model->param(p.param).shape.elements();
  return sum;
}

}  // namespace

weft_status weft_plan_new(weft_model* model, const weft_plan_config* config, weft_plan** out,
                          weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(model->model->check());
    WEFT_TRY_ASSIGN(const Asked asked, read_plan_config(config, *model->model));
    WEFT_TRY_ASSIGN(const PlanConfig chosen,
                    choose(model->model, asked.config, asked.cluster.get()));
    WEFT_TRY_ASSIGN(auto plan, make_plan(model->model, chosen));
    WEFT_TRY(check_memory(*plan, asked.cluster.get(), 0));
    *out = new weft_plan(std::move(plan), asked.cluster);
    model->model->freeze();
    return {};
  });
}

weft_status weft_schedule_describe(uint32_t index, weft_schedule_info* info) {
  return guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(info, "info"));
    WEFT_TRY(check_result(*info));
    if (index >= all_schedules().size())
      return Status(Code::not_found, cat("there are ", all_schedules().size(), " schedules"));
    const ScheduleKind& kind = all_schedules()[index];
    fill_result(info, {0, static_cast<uint32_t>(kind.chunks), kind.name.data(),
                       kind.about.data(),  // a string literal
                       kind.asynchronous ? 1u : 0u, kind.forward_only ? 1u : 0u});
    return {};
  });
}

void weft_plan_free(weft_plan* plan) { delete plan; }

uint32_t weft_plan_stages(const weft_plan* plan) {
  return plan ? static_cast<uint32_t>(plan->plan->pipeline_stages()) : 0;
}

int64_t weft_plan_bytes(const weft_plan* plan, uint32_t rank) {
  return plan && rank < plan->plan->arena_bytes.size() ? plan->plan->arena_bytes[rank] : 0;
}

int64_t weft_plan_memory(const weft_plan* plan, uint32_t rank, weft_memory_kind kind) {
  static_assert(WEFT_MEMORY_STATE == kMemoryKinds);
  if (!plan || rank >= plan->plan->arena_bytes.size() || kind < WEFT_MEMORY_WEIGHTS ||
      kind > WEFT_MEMORY_STATE)
    return 0;
  return memory_by_kind(*plan->plan, static_cast<int32_t>(rank))[static_cast<size_t>(kind) - 1];
}

double weft_plan_rate(const weft_plan* plan, uint64_t step) {
  const ComputeScope scope;
  return plan ? rate_at(plan->plan->config.optim, step) : 0;
}

uint32_t weft_plan_updates(const weft_plan* plan) {
  return plan ? static_cast<uint32_t>(std::max(plan->plan->config.segment, 1)) : 0;
}

uint32_t weft_plan_noam(const weft_plan* plan) {
  if (!plan || !plan->plan->asynchronous()) return 0;
  uint32_t noam = 0;
  guard(nullptr, [&] {
    const Plan& p = *plan->plan;
    std::vector<int32_t> replicas;
    for (int32_t s = 0; s < p.stages(); ++s) replicas.push_back(p.replicas_of(s));
    noam = static_cast<uint32_t>(pipedream_numbers(replicas).noam);
  });
  return noam;
}

uint32_t weft_plan_versions(const weft_plan* plan, uint32_t rank) {
  return plan && rank < plan->plan->versions.size()
             ? static_cast<uint32_t>(plan->plan->versions[rank].count)
             : 0;
}

int64_t weft_plan_owned(const weft_plan* plan, uint32_t rank) { return elements(plan, rank, true); }
int64_t weft_plan_resident(const weft_plan* plan, uint32_t rank) {
  return elements(plan, rank, false);
}

size_t weft_plan_timetable(const weft_plan* plan, char* buffer, size_t size) {
  if (!plan) return 0;
  size_t needed = 0;
  guard(nullptr, [&] { needed = print_to(plan->plan->timetable(), buffer, size); });
  return needed;
}

const char* weft_plan_first(const weft_plan* plan, uint32_t stage) {
  if (!plan || stage >= weft_plan_stages(plan)) return nullptr;
  const Plan& p = *plan->plan;
  for (size_t id = 0; id < p.stage_of_whole.size(); ++id)
    if (!p.whole->nodes()[id].is_input() && p.stage_of_whole[id] == static_cast<int32_t>(stage))
      return p.whole->nodes()[id].name.c_str();
  return nullptr;
}

weft_status weft_plan_describe(const weft_plan* plan, weft_plan_info* info) {
  return guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(plan, "plan"));
    WEFT_TRY(require(info, "info"));
    WEFT_TRY(check_result(*info));
    const PlanConfig& config = plan->plan->config;
    weft_plan_info full = {};
    full.ranks = static_cast<uint32_t>(config.ranks);
    full.stages = weft_plan_stages(plan);
    full.micro_batches = static_cast<uint32_t>(config.micro_batches);
    full.schedule = config.schedule.c_str();  // also if its rows are stored
    full.warm_up = config.schedule_text.empty() && config.schedule == "1f1b"
                       ? static_cast<uint32_t>(std::max(config.warm_up, 1))
                       : 0;
    if (config.schedule_text.empty() && config.schedule == "1f1b-delayed-w")
      full.group = static_cast<uint32_t>(config.group > 0 ? config.group : kDelayedGroup);
    for (const Param& param : plan->plan->whole->params())
      if (param.has_gradient()) full.trained += param.shape.elements();
    fill_result(info, full);
    return {};
  });
}

uint32_t weft_plan_rank(const weft_plan* plan, uint32_t stage) {
  return stage < weft_plan_stages(plan)
             ? static_cast<uint32_t>(plan->plan->first_rank(static_cast<int32_t>(stage)))
             : 0;
}

uint32_t weft_plan_replicas(const weft_plan* plan, uint32_t stage) {
  if (stage >= weft_plan_stages(plan)) return 0;
  const Plan& p = *plan->plan;
  return static_cast<uint32_t>(p.replicas_at(p.first_rank(static_cast<int32_t>(stage))));
}
