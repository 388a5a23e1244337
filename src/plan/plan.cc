#include "plan/plan.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace weft {

namespace {

// Names contain no space.
bool lists(std::string_view names, std::string_view name) {
  for (size_t at = names.find(name); at != names.npos; at = names.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' '))
      return true;
  }
  return false;
}

}  // namespace

bool keeps_packed(const PlanConfig& config, const Param& weight) {
  return config.shard != "parameters" &&
         (config.packed == kAllPacked || lists(config.packed, weight.name));
}

bool supports(const Model& model, Mode mode) {
  if (mode == Mode::infer) return !model.outputs().empty();
  if (has_loss(mode)) return model.loss() >= 0;
  return std::any_of(model.nodes().begin(), model.nodes().end(),
                     [](const Node& node) { return !node.one.state.empty(); });
}

bool makes(const Model& model, const PlanConfig& config, Mode mode) {
  return config.includes(mode) && supports(model, mode);
}

std::span<const ResidentTensor> ResidentParam::of(ResidentTensor::Role role) const {
  const auto first = std::partition_point(
      tensors.begin(), tensors.end(), [role](const ResidentTensor& t) { return t.role < role; });
  const auto end = std::partition_point(first, tensors.end(),
                                        [role](const ResidentTensor& t) { return t.role == role; });
  return {first, end};
}

bool ResidentParam::only_packed() const {
  return of(ResidentTensor::Role::value).empty() && !of(ResidentTensor::Role::packed).empty();
}

Place ResidentParam::value() const {
  const auto found = of(only_packed() ? ResidentTensor::Role::packed : ResidentTensor::Role::value);
  return found.empty() ? Place{} : found.front().place;
}

Place ResidentParam::gradient() const {
  for (const auto role : {ResidentTensor::Role::gradient, ResidentTensor::Role::accumulator})
    if (const auto found = of(role); updated && !found.empty())
      return std::partition_point(found.begin(), found.end(),
                                  [&](const ResidentTensor& t) { return t.sum < found.back().sum; })
          ->place;
  return {};
}

int32_t Plan::first_rank(int32_t pipeline_stage) const {
  const auto first = std::find_if(segments.begin(), segments.end(), [&](const Segment& s) {
    return s.stage == pipeline_stage && s.tensor_rank == 0;
  });
  return position_of_stage[static_cast<size_t>(first - segments.begin())];
}

int32_t Plan::position_of(int32_t rank) const {
  if (stage_replicas.empty()) return rank % positions();
  return *std::prev(std::upper_bound(position_of_stage.begin(), position_of_stage.end(), rank));
}

int32_t Plan::most_replicas() const {
  return stage_replicas.empty() ? config.data
                                : *std::max_element(stage_replicas.begin(), stage_replicas.end());
}

int32_t Plan::replicas_at(int32_t rank) const {
  if (stage_replicas.empty()) return config.data;
  const auto stage =
      std::prev(std::upper_bound(position_of_stage.begin(), position_of_stage.end(), rank));
  return stage_replicas[static_cast<size_t>(stage - position_of_stage.begin())];
}

MicroBatches Plan::micro_batches_at(Mode m, int32_t rank) const {
  const int32_t replica = replica_of(rank);
  if (stage_replicas.empty())
    return {.first = first_micro_batch(m, replica), .end = first_micro_batch(m, replica + 1)};
  return {.first = replica, .end = micro_batches(m), .stride = replicas_at(rank)};
}

std::vector<uint32_t> Plan::stages_on(int32_t rank) const {
  std::vector<uint32_t> out;
  for (size_t s = 0; s < segments.size(); ++s)
    if (position_of_stage[s] == position_of(rank))
      out.push_back(static_cast<uint32_t>(segments[s].stage));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string Plan::timetable() const {
  const Schedule& schedule = mode(main_mode()).schedule;
  if (config.shard_ranks == 1) return schedule.text();  // each stage is one segment
  Schedule out;
  for (size_t r = 0; r < schedule.rows.size(); r += static_cast<size_t>(config.shard_ranks)) {
    std::vector<Action>& row = out.rows.emplace_back();
    std::set<std::tuple<int32_t, Kind, int32_t>> seen;  // an action has one segment per exchange
    for (const Action& a : schedule.rows[r]) {
      const int32_t stage = segments[static_cast<size_t>(a.stage)].stage;
      if (!seen.insert({stage, a.kind, a.micro_batch}).second) continue;
      // Segments that recompute may come after segments that do not.
      auto at = row.end();
      if (a.kind == Kind::R && (seen.contains({stage, Kind::I, a.micro_batch}) ||
                                seen.contains({stage, Kind::B, a.micro_batch})))
        at = std::find_if(row.begin(), row.end(), [&](const Action& b) {
          return b.stage == stage && b.micro_batch == a.micro_batch &&
                 (b.kind == Kind::I || b.kind == Kind::B);
        });
      row.insert(at, {stage, a.kind, a.micro_batch});
    }
  }
  return out.text();
}

Mode Plan::main_mode() const {
  for (Mode m : {Mode::train, Mode::infer, Mode::eval})
    if (mode(m).present) return m;
  return Mode::fill;
}

PlanConfig replica_config(const PlanConfig& config) {
  PlanConfig out = config;
  if (config.data == 1) return out;
  const int32_t ranks = config.ranks / config.data, groups = config.gradient_groups / config.data;
  const GradientGroups all{config.micro_batches, config.gradient_groups};
  out.ranks = ranks;
  out.data = 1;
  out.gradient_groups = groups;
  out.micro_batches = 0;
  for (int32_t d = 0; d < config.data; ++d)
    out.micro_batches =
        std::max(out.micro_batches, all.begin((d + 1) * groups) - all.begin(d * groups));
  const auto own = static_cast<size_t>(ranks);
  out.machines.keep_least(
      own, static_cast<size_t>(config.data),
      [own](size_t position, size_t replica) { return replica * own + position; });
  return out;
}

}  // namespace weft
