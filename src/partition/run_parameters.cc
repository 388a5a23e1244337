// The part of RunBytes that counts parameters, and their gathered values.
#include <algorithm>
#include <numeric>
#include <set>

#include "lowering/parameters.h"
#include "lowering/units.h"
#include "partition/run_bytes.h"
#include "tensor/byte_count.h"

namespace weft {

std::vector<RunOfSum> RunBytes::runs_of(std::span<const StageRun> stages) const {
  std::vector<RunOfSum> out(static_cast<size_t>(config_.shard_ranks));
  if (!drops_gradients(*model_, config_)) return out;
  std::vector<StageRun> backward(stages.begin(), stages.end());
  std::sort(backward.begin(), backward.end(), [this](const StageRun& a, const StageRun& b) {
    return turn_[a.at.stage] < turn_[b.at.stage];
  });
  for (size_t t = 0; t < out.size(); ++t)
    for (const StageRun& stage : backward)
      add_runs(*model_, config_, stage.run->shares[t].sums, out[t]);
  return out;
}

// The tensor rank that has the node; -1: a rank without these stages.
int32_t RunBytes::tensor_rank_in(std::span<const StageRun> stages, NodeId node) const {
  const size_t i = terms_->index(node);
  const bool here = std::any_of(stages.begin(), stages.end(), [i](const StageRun& stage) {
    return stage.at.begin <= i && i < stage.at.end;
  });
  return here ? tensor_rank_of(*model_, node, config_.shard_ranks) : -1;
}

const RunBytes::Parameters& RunBytes::parameters_of(std::span<const StageRun> stages) {
  // Stages have other numbers of replicas and of versions.
  std::vector<size_t> key = {stages.front().at.stage};
  const bool drops = drops_gradients(*model_, config_);  // then slots depend on all nodes
  for (const StageRun& stage : stages)
    for (const size_t node : {stage.at.begin, stage.at.end})
      key.push_back(drops ? node : terms_->resident_before(node));
  const auto [known, fresh] = known_parameters_.try_emplace(std::move(key));
  if (fresh) known->second = count_parameters(stages);
  return known->second;
}

// The bytes of a parameter that its rank may not need if it has more nodes: the copy for other
// ranks, if they no longer use it; with replicas, what only the owner has, if another replica is
// the owner.
int64_t RunBytes::spare_bytes(const ResidentParam& param, int32_t replicas) const {
  using Role = ResidentTensor::Role;
  const bool shards = config_.shard != "none", moves = param.owned && replicas > 1;
  int64_t out = 0;
  for (const ResidentTensor& t : param.tensors) {
    const bool is_owners = t.role == Role::gradient || t.role == Role::squares ||
                           (t.role == Role::accumulator && !t.local) ||
                           (t.role == Role::state && shards);
    if (t.role == Role::sent || (moves && is_owners))
      out = sum_of_bytes(out, t.bytes());
    else if (t.role == Role::value && moves)
      out += t.bytes() - (config_.shard == "parameters"
                              ? 0
                              : padded_bytes(stored_desc(*model_, config_, param.param, !shards)));
  }
  return out;
}

RunBytes::Used RunBytes::used_by(std::span<const StageRun> stages) const {
  Used out;
  for (const StageRun& stage : stages)
    for (size_t i = stage.at.begin; i < stage.at.end; ++i) {
      const auto& params = terms_->params(i);
      out.params.insert(out.params.end(), params.begin(), params.end());
      const auto& stateful = terms_->stateful(i);
      out.stateful.insert(out.stateful.end(), stateful.begin(), stateful.end());
    }
  std::sort(out.params.begin(), out.params.end());
  out.params.erase(std::unique(out.params.begin(), out.params.end()), out.params.end());
  std::sort(out.stateful.begin(), out.stateful.end());
  return out;
}

RunBytes::Parameters RunBytes::count_parameters(std::span<const StageRun> stages) {
  const size_t first = stages.front().at.stage;
  const int32_t replicas = replicas_of(first), ranks = config_.shard_ranks * replicas;
  const std::vector<RunOfSum> runs = runs_of(stages);
  const auto ranks_of = [&](NodeId node) {
    const int32_t tensor_rank = tensor_rank_in(stages, node);
    std::vector<int32_t> out;
    for (int32_t d = 0; tensor_rank >= 0 && d < replicas; ++d)
      out.push_back(tensor_rank * replicas + d);
    return out;
  };
  const auto [params, stateful] = used_by(stages);
  const std::vector<int32_t> owner = choose_owners(*model_, config_, params, ranks, ranks_of);
  const auto count = [&](std::span<const ParamId> some) {
    std::vector<ParamBytes> out;
    for (auto& resident :
         residents_of(*model_, config_, some, owner, ranks, ranks_of, [&](int32_t rank) {
           return Replica{rank % replicas, replicas, &runs[static_cast<size_t>(rank / replicas)],
                          versions_[first].in_flight};
         })) {
      WeightVersions versions = versions_[first];
      ParamBytes& bytes = out.emplace_back();
      bytes.all = place_residents(*model_, resident, versions);
      for (const ResidentParam& param : resident)
        bytes.spare = sum_of_bytes(bytes.spare, spare_bytes(param, replicas));
    }
    return out;
  };
  // What the ranks keep of a parameter depends only on its key, unless accumulators of several
  // parameters share slots.
  const auto known_count = [&](const ParamId& param) -> const std::vector<ParamBytes>& {
    std::vector<int32_t> key = {static_cast<int32_t>(first), owner[static_cast<size_t>(param)]};
    for (const Param::Use& use : model_->param(param).uses)
      key.push_back(tensor_rank_in(stages, use.node));
    const auto [known, fresh] =
        known_param_bytes_[static_cast<size_t>(param)].try_emplace(std::move(key));
    if (fresh) known->second = count({&param, 1});
    return known->second;
  };
  const bool drops = drops_gradients(*model_, config_);
  std::vector<ParamBytes> sums(static_cast<size_t>(ranks));
  if (drops) {
    sums = count(params);
  } else {
    for (const ParamId& param : params) {
      const std::vector<ParamBytes>& bytes = known_count(param);
      for (size_t rank = 0; rank < sums.size(); ++rank) sums[rank].add(bytes[rank]);
    }
  }
  Parameters out{.bytes = {}, .least = {}, .owner = owner};
  for (const ParamBytes& bytes : sums) {
    out.bytes.push_back(bytes.all);
    // Accumulators that are kept here may share slots in a longer run.
    out.least.push_back(drops ? 0 : bytes.all - bytes.spare);
  }
  auto states = states_of(*model_, config_, stateful, ranks, ranks_of);
  for (size_t rank = 0; rank < states.size(); ++rank) place_states(states[rank], out.bytes[rank]);
  if (config_.shard != "parameters") out.owner.clear();
  return out;
}

int64_t RunBytes::gathered_bytes(std::span<const StageRun> stages, const ModeInfo& mode,
                                 size_t tensor_rank, int32_t rank,
                                 const Parameters& parameters) const {
  GatherSlots slots;
  for (const StageRun& stage : stages)
    for (const Reads& action :
         stage.run->shares[tensor_rank].reads[static_cast<size_t>(mode.mode)]) {
      slots.begin_action();
      for (const std::vector<ParamId>& unit : action) {
        bool any = false;
        for (const ParamId p : unit) {
          if (parameters.owner[static_cast<size_t>(p)] == rank) continue;
          if (!any) slots.begin_unit();
          any = true;
          slots.add(padded_bytes(stored_desc(*model_, config_, p, false)));
        }
      }
    }
  return std::accumulate(slots.bytes().begin(), slots.bytes().end(), int64_t{0}, sum_of_bytes);
}

}  // namespace weft
