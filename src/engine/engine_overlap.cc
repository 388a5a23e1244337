// What steps that overlap need of an engine: slots that are granted while the step before runs,
// and grants that come before their step begins here.
#include <algorithm>

#include "base/text.h"
#include "engine/engine.h"

namespace weft {

namespace {

// Whether a micro-batch of the rank has that slot of the ring in the step; those after the first
// `count` ones have the same ones again. Messages of several ranks can land in one ring.
bool uses_slot(const StepDescriptor& step, const MicroBatches& own, const Ring& ring,
               int64_t slot) {
  const int32_t end = std::min({own.end, step.micro_batches, own.first + ring.count * ring.turn});
  for (int32_t mb = own.first; mb < end; mb += own.stride)
    if (ring.at(mb, step.sequence) == slot) return true;
  return false;
}

}  // namespace

// Grants slots of a step that overlaps: those that the step before it does not use, when it is the
// next one, and the others when that step is finished here. The controller grants sinks.
void Engine::open_edges(const StepDescriptor& step, const StepDescriptor* before, bool unused,
                        Effects& effects) const {
  const ModePlan& mode = plan_->mode(step.mode);
  const RankProgram& program = mode.ranks[static_cast<size_t>(rank_)];
  const MicroBatches own = plan_->micro_batches_at(step.mode, rank_);
  for (int32_t id : program.edges) {
    const Edge& e = mode.edges[static_cast<size_t>(id)];
    if (e.to_rank != rank_ || e.kind == EdgeKind::sink) continue;
    const Ring& ring = program.rings[static_cast<size_t>(e.landing.ring)];
    const MicroBatches& all = e.micro_batches;
    for (int32_t mb = all.first; mb < std::min(e.open, step.micro_batches); mb += all.stride) {
      const bool used = before && uses_slot(*before, own, ring, ring.at(mb, step.sequence));
      if (used != unused) effects.grant(step, id, mb);
    }
  }
}

// A rank that has begun a later step asks for a value, or has room for a sum, or for any message of
// a step that overlaps.
Status Engine::take_early(uint64_t sequence, int32_t edge, int32_t micro_batch) {
  const bool twice =
      std::any_of(early_grants_.begin(), early_grants_.end(), [&](const Grant& grant) {
        return grant.sequence == sequence && grant.edge == edge && grant.micro_batch == micro_batch;
      });
  if (twice || port_of(edge) < 0 || sequence >= next_sequence_ + kStepsAtOnce ||
      early_grants_.size() == early_grants_.capacity())
    return Status(Code::protocol, cat("grant of edge ", edge, ", micro-batch ", micro_batch,
                                      " of a step that has not begun here"));
  early_grants_.push_back({sequence, edge, micro_batch});
  return {};
}

}  // namespace weft
