// Where parameters live: owned by the rank of their first use; other ranks that use one hold a copy and an accumulator per use.
#include <algorithm>
#include <cassert>
#include <set>

#include "plan/layout.h"
#include "plan/packer.h"

namespace weft {

namespace {

// The first bytes of a rank: its weights, as often as it has versions of them.
void place_weights(Plan& plan) {
  const Model& model = *plan.model;
  for (ParamId p = 0; p < static_cast<ParamId>(model.params().size()); ++p) {
    std::set<int32_t> users;
    for (const Param::Use& use : model.param(p).uses) users.insert(plan.rank_of(use.node));
    for (int32_t rank : users) {
      int64_t& top = plan.permanent_bytes[static_cast<size_t>(rank)];
      plan.resident[static_cast<size_t>(rank)].push_back({.param = p,
                                                          .owned = rank == plan.owner_of_param[static_cast<size_t>(p)],
                                                          .weight = {0, top},
                                                          .uses = {},
                                                          .slots = {},
                                                          .partials = {}});
      top = sum_of_bytes(top, align_up(model.param(p).shape.elements() * 4));
    }
  }
  for (size_t r = 0; r < plan.versions.size(); ++r) {
    plan.versions[r].stride = plan.permanent_bytes[r];
    plan.permanent_bytes[r] = bytes_of_many(plan.permanent_bytes[r], plan.versions[r].count);
  }
}

}  // namespace

void place_parameters(Plan& plan) {
  const Model& model = *plan.model;
  const size_t ranks = static_cast<size_t>(plan.config.ranks);
  plan.resident.assign(ranks, {});
  plan.permanent_bytes.assign(ranks, 0);
  place_weights(plan);
  if (!makes(model, plan.config, Mode::train)) return;
  for (size_t rank = 0; rank < ranks; ++rank)
    for (ResidentParam& resident : plan.resident[rank]) {
      const Param& param = model.param(resident.param);
      const int64_t bytes = param.shape.elements() * 4;
      auto take = [&top = plan.permanent_bytes[rank]](int64_t size) {
        Place place{0, top};
        top = sum_of_bytes(top, align_up(size));
        return place;
      };
      for (size_t u = 0; u < param.uses.size(); ++u) {
        const bool local = plan.rank_of(param.uses[u].node) == static_cast<int32_t>(rank);
        if (resident.owned || local) resident.uses.push_back({static_cast<int32_t>(u), take(bytes), local});
      }
      if (!resident.owned) continue;
      for (int s = 0; s < slots(plan.config.optim); ++s) resident.slots[static_cast<size_t>(s)] = take(bytes);
      resident.partials = take((param.shape.elements() + 4095) / 4096 * 8);
    }
}

const ResidentParam& resident_of(const Plan& plan, int32_t rank, ParamId param) {
  const auto& list = plan.resident[static_cast<size_t>(rank)];
  const auto it = std::lower_bound(list.begin(), list.end(), param, [](const ResidentParam& r, ParamId id) { return r.param < id; });
  assert(it != list.end() && it->param == param);
  return *it;
}

}  // namespace weft
