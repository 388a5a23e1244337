// Where parameters live: owned by the rank of their first use; other ranks that use one hold a copy and an accumulator per use.
#include <algorithm>
#include <set>

#include "plan/lower.h"
#include "plan/packer.h"

namespace weft {

void place_parameters(Plan& plan) {
  const Model& model = *plan.model;
  const size_t ranks = static_cast<size_t>(plan.config.ranks);
  const int state = model.loss() >= 0 ? slots(plan.config.optim) : 0;
  const bool trains = model.loss() >= 0;
  plan.resident.assign(ranks, {});
  plan.permanent_bytes.assign(ranks, 0);
  for (ParamId p = 0; p < static_cast<ParamId>(model.params().size()); ++p) {
    const Param& param = model.param(p);
    const int64_t bytes = param.shape.elements() * 4;
    const int32_t owner = plan.owner_of_param[static_cast<size_t>(p)];
    std::set<int32_t> users;
    for (const Param::Use& use : param.uses) users.insert(plan.rank_of(use.node));
    for (int32_t rank : users) {
      int64_t& top = plan.permanent_bytes[static_cast<size_t>(rank)];
      auto take = [&top](int64_t size) {
        Place place{0, top};
        top += align_up(size);
        return place;
      };
      ResidentParam resident{.param = p, .owned = rank == owner, .weight = take(bytes), .uses = {}, .slots = {}, .partials = {}};
      for (size_t u = 0; trains && u < param.uses.size(); ++u) {
        const bool local = plan.rank_of(param.uses[u].node) == rank;
        if (resident.owned || local) resident.uses.push_back({static_cast<int32_t>(u), take(bytes), local});
      }
      if (resident.owned && trains) {
        for (int s = 0; s < state; ++s) resident.slots[static_cast<size_t>(s)] = take(bytes);
        resident.partials = take((param.shape.elements() + 4095) / 4096 * 8);
      }
      plan.resident[static_cast<size_t>(rank)].push_back(std::move(resident));
    }
  }
}

}  // namespace weft
