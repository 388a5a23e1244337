// The part of RunBytes that counts parameters, and their gathered values.
#include <algorithm>
#include <numeric>
#include <set>

#include "lowering/parameters.h"
#include "lowering/units.h"
#include "partition/run_bytes.h"
#include "tensor/byte_count.h"

namespace weft {

void RunBytes::add_sums(Run& run, const Cut& cut) const {
  if (!drops_gradients(*model_, config_)) return;
  const std::vector<Segment>& segments = cut.segmented.segments;
  const auto sums = sums_of_stages(*model_, modes_.front()->graph, cut.segmented.segment_of_node,
                                   static_cast<int32_t>(segments.size()));
  for (size_t i = cut.own.size(); i-- > 0;) {
    const size_t segment = cut.own[i];
    std::vector<StageSum>& made = run.shares[static_cast<size_t>(segments[segment].place)].sums;
    made.insert(made.end(), sums[segment].begin(), sums[segment].end());
  }
}

std::vector<RunOfSum> RunBytes::runs_of(std::span<const Place> stages) const {
  std::vector<RunOfSum> out(static_cast<size_t>(config_.shard_ranks));
  if (!drops_gradients(*model_, config_)) return out;
  std::vector<Place> backward(stages.begin(), stages.end());
  std::sort(backward.begin(), backward.end(), [this](const Place& a, const Place& b) {
    return turn_[a.at.stage] < turn_[b.at.stage];
  });
  for (size_t share = 0; share < out.size(); ++share)
    for (const Place& stage : backward)
      add_runs(*model_, config_, stage.run->shares[share].sums, out[share]);
  return out;
}

// Which of the ranks that share the stages has the node; -1: another rank.
int32_t RunBytes::share_of(std::span<const Place> stages, NodeId node) const {
  const size_t i = index_[static_cast<size_t>(node)];
  const bool here = std::any_of(stages.begin(), stages.end(), [i](const Place& stage) {
    return stage.at.begin <= i && i < stage.at.end;
  });
  return here ? place_of(*model_, node, config_.shard_ranks) : -1;
}

const RunBytes::Parameters& RunBytes::parameters_of(std::span<const Place> stages) {
  std::vector<size_t> key = {static_cast<size_t>(replicas_of(stages.front().at.stage))};
  for (const Place& stage : stages) key.insert(key.end(), {stage.at.begin, stage.at.end});
  const auto [known, fresh] = known_parameters_.try_emplace(std::move(key));
  if (fresh) known->second = count_parameters(stages);
  return known->second;
}

RunBytes::Parameters RunBytes::count_parameters(std::span<const Place> stages) const {
  const int32_t replicas = replicas_of(stages.front().at.stage);
  const int32_t ranks = config_.shard_ranks * replicas;
  const std::vector<RunOfSum> runs = runs_of(stages);
  const auto candidates = [&](const Param& param) {
    const int32_t share = share_of(stages, param.uses.front().node);
    std::vector<int32_t> out;
    for (int32_t d = 0; share >= 0 && d < replicas; ++d) out.push_back(share * replicas + d);
    return out;
  };
  Parameters out{.values = std::vector<int64_t>(static_cast<size_t>(ranks), 0),
                 .others = std::vector<int64_t>(static_cast<size_t>(ranks), 0),
                 .owner = choose_owners(*model_, ranks, candidates)};
  std::vector<RunSlots> slots(static_cast<size_t>(ranks));
  for (ParamId p = 0; p < static_cast<ParamId>(model_->params().size()); ++p) {
    const Param& param = model_->param(p);
    std::map<int32_t, std::vector<bool>> local;  // per share that uses it
    for (const Param::Use& use : param.uses) {
      const int32_t share = share_of(stages, use.node);
      if (share < 0) continue;
      local[share].resize(static_cast<size_t>(param.sums));
      local[share][static_cast<size_t>(use.sum)] = true;
    }
    for (const auto& [share, here] : local)
      for (int32_t d = 0; d < replicas; ++d) {
        const int32_t rank = share * replicas + d;
        const auto r = static_cast<size_t>(rank);
        for (const ResidentTensor& t :
             resident_param(*model_, config_, p, out.owner[static_cast<size_t>(p)] == rank, here,
                            runs[static_cast<size_t>(share)], d, replicas)
                 .tensors) {
          if (t.run >= 0) {
            slots[r].add(t.run, t.bytes());
            continue;
          }
          const bool has_versions = t.role == ResidentTensor::Role::value && !param.training.frozen;
          int64_t& sum = (has_versions ? out.values : out.others)[r];
          sum = sum_of_bytes(sum, t.bytes());
        }
      }
  }
  for (size_t r = 0; r < slots.size(); ++r)
    for (const int64_t bytes : slots[r].bytes()) out.others[r] = sum_of_bytes(out.others[r], bytes);
  if (config_.shard != "parameters") out.owner.clear();
  return out;
}

void RunBytes::add_reads(Share& share, const ModeInfo& mode, size_t s,
                         const StageWork& work) const {
  RunOfSum runs;
  add_runs(*model_, config_, share.sums, runs);
  const bool train = mode.graph.mode == Mode::train;
  std::set<Kind> kinds = {Kind::F};
  if (train) kinds.insert(kinds_[s].begin(), kinds_[s].end());
  if (!work.calls[kPhaseR].empty()) kinds.insert(Kind::R);
  for (const Kind kind : kinds) {
    Reads& action = share.reads[static_cast<size_t>(mode.graph.mode)].emplace_back();
    for (const auto& unit : units_of(*model_, config_, work, kind, runs))
      action.push_back(reads_of(*model_, work, unit));
  }
}

int64_t RunBytes::slots_of(std::span<const Place> stages, const ModeInfo& mode, size_t place,
                           int32_t rank, const Parameters& parameters) const {
  GatherSlots slots;
  for (const Place& stage : stages)
    for (const Reads& action :
         stage.run->shares[place].reads[static_cast<size_t>(mode.graph.mode)]) {
      slots.begin_action();
      for (const std::vector<ParamId>& unit : action) {
        bool any = false;
        for (const ParamId p : unit) {
          if (parameters.owner[static_cast<size_t>(p)] == rank) continue;
          if (!any) slots.begin_unit();
          any = true;
          slots.add(padded_bytes(model_->param(p).desc()));
        }
      }
    }
  return std::accumulate(slots.bytes().begin(), slots.bytes().end(), int64_t{0}, sum_of_bytes);
}

}  // namespace weft
