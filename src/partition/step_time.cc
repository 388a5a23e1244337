#include "partition/step_time.h"

#include <algorithm>

#include "partition/schedule_costs.h"
#include "schedule/chain_time.h"
#include "schedule/lock_step.h"

namespace weft {

namespace {

// With the slots that a plan has, but without times. Replicas take turns, and each has its own
// slots: then there is no limit.
std::vector<ChainEdge> edges_of(const Schedule& order) {
  std::vector<ChainEdge> out(static_cast<size_t>(order.stages) - 1);
  const StageTimes times = lock_step_of_chain(order);
  const Phase last = order.forward_only ? kPhaseF : kPhaseW;
  for (int32_t s = 0; s + 1 < static_cast<int32_t>(times.size()); ++s) {
    if (order.replicas_of(s) > 1 || order.replicas_of(s + 1) > 1) continue;
    const auto &from = times[static_cast<size_t>(s)], &to = times[static_cast<size_t>(s) + 1];
    ChainEdge& edge = out[static_cast<size_t>(s)];
    edge.forward_slots = 1 + slots_needed(from[kPhaseF], to[last]);
    if (!order.forward_only) edge.gradient_slots = 1 + slots_needed(to[kPhaseI], from[last]);
  }
  return out;
}

}  // namespace

StepTime::StepTime(const Model& model, const PlanConfig& config, const OpNodes& ops,
                   const Schedule& order, const std::vector<StageRoom>& rooms,
                   const CutTime& cut_time, const std::vector<LinkSpeed>& links, RunBytes* bytes)
    : order_(order),
      rooms_(rooms),
      cut_time_(cut_time),
      links_(links),
      bytes_(bytes),
      before_(1),
      edges_(edges_of(order)),
      work_(1000) {
  for (const auto& row : order.rows) work_ += static_cast<int64_t>(row.size());
  const std::vector<NodeTimes> times =
      config.times.empty() ? analysed_times(model, config.micro_batch_size) : config.times;
  for (NodeId id : ops.ids) {
    const NodeTimes& own = times[static_cast<size_t>(id)];
    NodeTimes sum = before_.back();
    sum.forward += own.forward;
    sum.input += own.input;
    sum.weight += own.weight;
    before_.push_back(sum);
  }
  find_tied(model, config, ops);
  if (bytes_) of_pieces_ = times_of_pieces(bytes_->pieces(), config.micro_batch_size, times);
}

void StepTime::find_tied(const Model& model, const PlanConfig& config, const OpNodes& ops) {
  const double bandwidth = config.machines.bandwidth;
  if (bandwidth <= 0) return;
  std::vector<std::vector<size_t>> users(model.params().size());
  for (size_t i = 0; i < ops.ids.size(); ++i)
    for (ParamId w : model.node(ops.ids[i]).weights) users[static_cast<size_t>(w)].push_back(i);
  for (size_t w = 0; w < users.size(); ++w) {
    if (users[w].size() < 2) continue;
    const auto elements = static_cast<double>(model.params()[w].shape.elements());
    tied_.push_back({std::move(users[w]), 2 * elements * sizeof(float) / bandwidth});
  }
}

double StepTime::tied_seconds(const std::vector<size_t>& first) const {
  const auto rank_of = [&](size_t node) {
    const auto after = std::upper_bound(first.begin(), first.end(), node);
    return order_.rank_of_stage[static_cast<size_t>(after - first.begin()) - 1];
  };
  double sum = 0;
  for (const Tied& tied : tied_) {
    const auto elsewhere = [&](size_t node) { return rank_of(node) != rank_of(tied.nodes[0]); };
    if (std::any_of(tied.nodes.begin(), tied.nodes.end(), elsewhere)) sum += tied.seconds;
  }
  return sum;
}

NodeTimes StepTime::again(size_t stage, const std::vector<size_t>& first, size_t end) {
  const auto [at, is_new] = again_.try_emplace({stage, first[stage], end});
  if (is_new) at->second = recompute_times(stage, first, *bytes_, of_pieces_);
  return at->second;
}

double StepTime::of(const std::vector<size_t>& first) {
  ScheduleCosts costs;
  for (size_t s = 0; s < first.size(); ++s) {
    const size_t end = s + 1 < first.size() ? first[s + 1] : nodes();
    const NodeTimes &to = before_[end], &from = before_[first[s]];
    // A room is as fast as its replicas, which run in turn.
    const double forward = to.forward - from.forward,
                 speed = rooms_[s].speed / order_.replicas_of(static_cast<int32_t>(s));
    const NodeTimes more =
        bytes_ ? again(s, first, end) : NodeTimes{.forward = forward, .input = 0, .weight = 0};
    costs.forward.push_back(forward / speed);
    costs.input.push_back((to.input - from.input + more.input) / speed);
    costs.weight.push_back((to.weight - from.weight + more.weight) / speed);
    costs.again.push_back(more.forward / speed);
    if (s == 0 || order_.rank_of_stage[s] == order_.rank_of_stage[s - 1]) continue;
    edges_[s - 1].latency = links_[s].latency;
    edges_[s - 1].transfer = std::max(cut_time_({s, first[s], end}) - links_[s].latency, 0.0);
  }
  return chain_time(order_, costs, edges_) + tied_seconds(first);
}

std::vector<size_t> StepTime::with_moved_cuts(std::vector<size_t> first,
                                              const std::vector<size_t>& needed) {
  const auto has_needed = [&](size_t begin, size_t end) {
    if (needed.empty()) return begin < end;
    const auto at = std::lower_bound(needed.begin(), needed.end(), begin);
    return at != needed.end() && *at < end;
  };
  double least = of(first);
  const size_t cuts = first.size() - 1;
  size_t still = 0;  // cuts in succession that have not moved
  for (size_t s = 1; still < cuts; s = s < cuts ? s + 1 : 1) {
    ++still;
    const auto before = static_cast<int64_t>(first[s - 1]);
    const auto begin = static_cast<int64_t>(first[s]);
    const size_t end = s < cuts ? first[s + 1] : nodes();
    for (const int64_t shift : {-1, 1, -2, 2, -3, 3}) {
      if (begin + shift <= before) continue;
      std::vector<size_t> moved = first;
      moved[s] = static_cast<size_t>(begin + shift);
      if (!has_needed(moved[s - 1], moved[s]) || !has_needed(moved[s], end)) continue;
      left_ -= work_;
      if (left_ < 0) return first;
      const double seconds = of(moved);
      if (!(seconds < least)) continue;
      least = seconds;
      first = std::move(moved);
      still = 0;
    }
  }
  return first;
}

}  // namespace weft
