#include "lowering/memory.h"

#include <algorithm>

#include "lowering/layout.h"

namespace weft {

namespace {

// The mode whose activations and messages need the most bytes: the others share its memory.
const ModePlan& largest_mode(const Plan& plan, size_t rank) {
  const auto bytes = [rank](const ModePlan& mode) {
    return rank < mode.ranks.size() ? mode.ranks[rank].bytes : 0;
  };
  return *std::max_element(
      plan.modes.begin(), plan.modes.end(),
      [&](const ModePlan& a, const ModePlan& b) { return bytes(a) < bytes(b); });
}

MemoryKind kind_of(const ModePlan& mode, int32_t rank, int32_t ring) {
  if (ring == kScratchRing) return MemoryKind::scratch;
  for (const int32_t i : mode.ranks[static_cast<size_t>(rank)].edges) {
    const Edge& edge = mode.edges[static_cast<size_t>(i)];
    if ((edge.to_rank == rank && edge.landing.ring == ring) ||
        (edge.from_rank == rank && edge.outgoing.ring == ring))
      return MemoryKind::messages;
  }
  return MemoryKind::activations;
}

}  // namespace

std::array<int64_t, kMemoryKinds> memory_by_kind(const Plan& plan, int32_t rank) {
  const auto r = static_cast<size_t>(rank);
  std::array<int64_t, kMemoryKinds> out = {};
  const auto of = [&out](MemoryKind kind) -> int64_t& { return out[static_cast<size_t>(kind)]; };
  of(MemoryKind::weights) = plan.versions[r].stride * plan.versions[r].count;
  for (const ResidentParam& param : plan.resident[r]) {
    for (const ResidentTensor& state : param.of(ResidentTensor::Role::state))
      of(MemoryKind::optimizer) += state.bytes();
    for (const auto role : {ResidentTensor::Role::packed, ResidentTensor::Role::sent})
      for (const ResidentTensor& copy : param.of(role)) of(MemoryKind::weights) += copy.bytes();
    for (const ResidentTensor& value : param.of(ResidentTensor::Role::value))
      if (!plan.versions[r].has(value.place.offset)) of(MemoryKind::weights) += value.bytes();
  }
  for (const ResidentState& state : plan.states[r])
    of(MemoryKind::state) += padded_bytes(state.desc);
  of(MemoryKind::gradients) = plan.permanent_bytes[r] - of(MemoryKind::weights) -
                              of(MemoryKind::optimizer) - of(MemoryKind::state);
  const ModePlan& mode = largest_mode(plan, r);
  const std::vector<Ring>& rings = mode.ranks[r].rings;
  for (size_t i = 1; i < rings.size(); ++i)
    of(kind_of(mode, rank, static_cast<int32_t>(i))) += rings[i].stride * rings[i].count;
  return out;
}

}  // namespace weft
