#include "plan/plan_hash.h"

#include <algorithm>

#include "base/text.h"
#include "plan/settings.h"

namespace weft {

namespace {

void hash_schedule(const Schedule& schedule, Hasher& hasher) {
  hasher.number(static_cast<uint64_t>(schedule.ranks()));
  std::vector<int32_t> row;
  for (const auto& actions : schedule.rows) {
    row.resize(3 * actions.size());
    auto at = row.begin();
    for (const Action& a : actions)
      for (int32_t part : {a.stage, static_cast<int32_t>(a.kind), a.micro_batch}) *at++ = part;
    hasher.number(static_cast<uint64_t>(actions.size()))
        .bytes(row.data(), row.size() * sizeof row[0]);
  }
}

}  // namespace

std::vector<std::pair<std::string, Digest>> setting_digests(const PlanConfig& config) {
  // They only choose the actions, which plan.hash.schedule has. Schedules of other names can have
  // the same ones.
  constexpr std::string_view kChoices[] = {"schedule", "chunks", "group", "warm_up"};
  std::vector<std::pair<std::string, Digest>> out;
  const auto add = [&](const std::string& name, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if (std::find(std::begin(kChoices), std::end(kChoices), name) != std::end(kChoices)) return;
    Hasher hasher;
    if constexpr (std::is_same_v<T, std::string>)
      hasher.text(value);
    else if constexpr (std::is_floating_point_v<T>)
      hasher.number(value);
    else
      hasher.number(static_cast<uint64_t>(value));
    out.emplace_back(name, hasher.finish());
  };
  each_plan_setting(config, add);
  each_optim_setting(config.optim, add);
  for (size_t i = 0; i < config.groups.size(); ++i)
    each_group_setting(config.groups[i], [&](const char* name, const auto& value) {
      add(cat("groups[", i, "].", name), value);
    });
  return out;
}

void hash_plan(Plan& plan) {
  const PlanConfig& c = plan.config;
  plan.hash.model = plan.whole->hash();
  Hasher partition, schedule, settings;
  partition.number(static_cast<uint64_t>(c.ranks));
  for (int32_t s : plan.stage_of_node) partition.number(static_cast<uint64_t>(s));
  plan.hash.partition = partition.finish();
  for (const ModePlan& mode : plan.modes)
    if (mode.present)
      hash_schedule(mode.schedule, schedule);
    else
      schedule.number(uint64_t{0});
  plan.hash.schedule = schedule.finish();
  for (const auto& [name, digest] : setting_digests(c)) {
    plan.hash.each.push_back(digest);
    settings.number(digest.high).number(digest.low);
  }
  plan.hash.settings = settings.finish();
}

}  // namespace weft
