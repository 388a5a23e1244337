#include "node/effect_router.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

EffectRouter::EffectRouter(std::shared_ptr<const Plan> plan, int32_t rank, RankLinks& links,
                           const std::function<int32_t(int32_t peer)>& link_to)
    : links_(links), engine_(plan, rank) {
  for (const ModePlan& mode : plan->modes) {
    if (!mode.present) continue;
    const int32_t feeds = plan->config.can_overlap(mode.mode) ? 2 : 1;  // of this step and the next
    for (int32_t id : mode.ranks[static_cast<size_t>(rank)].edges) {
      const Edge& e = mode.edges[static_cast<size_t>(id)];
      const int32_t peer = e.from_rank == rank ? e.to_rank : e.from_rank;
      routes_[static_cast<size_t>(mode.mode)].push_back(
          {.edge = id,
           .kind = e.kind,
           .incoming = e.to_rank == rank,
           .outgoing = e.from_rank == rank,
           .out_slots = e.kind == EdgeKind::feed ? feeds * e.landing_slots : e.out_slots,
           .bytes = {static_cast<int64_t>(e.desc[0].bytes()),
                     static_cast<int64_t>(e.desc[1].bytes())},
           .other = {peer, peer == rank ? -1 : link_to(peer)}});
    }
  }
  if (rank == 0) controller_ = std::make_unique<Controller>(std::move(plan));
}

Route* EffectRouter::find(Mode mode, int32_t edge) {
  auto& routes = routes_[static_cast<size_t>(mode)];
  const auto at = std::lower_bound(routes.begin(), routes.end(), edge,
                                   [](const Route& r, int32_t id) { return r.edge < id; });
  return at != routes.end() && at->edge == edge ? &*at : nullptr;
}

size_t EffectRouter::most_posts(int32_t peer) const {
  size_t most = 0;
  for (const auto& routes : routes_) {
    size_t sum = 0;
    for (const Route& r : routes)
      if (r.outgoing && (peer < 0 || r.other.rank == peer)) sum += static_cast<size_t>(r.out_slots);
    most = std::max(most, sum);
  }
  return most;
}

const StepDescriptor* EffectRouter::find_step(EdgeKind kind, uint64_t sequence) const {
  if (controller_ && (kind == EdgeKind::sink || kind == EdgeKind::feed))
    return controller_->find(sequence);
  return engine_.find(sequence);
}

// Whether the controller has this end of the edge.
bool EffectRouter::is(EdgeKind kind, uint64_t sequence, int32_t edge) {
  const StepDescriptor* step = controller_ ? controller_->find(sequence) : nullptr;
  const Route* route = step ? find(step->mode, edge) : nullptr;
  return route && route->kind == kind;
}

void EffectRouter::describe(std::string& out) const {
  if (controller_) out += controller_->describe();
  if (!engine_.idle())
    out += cat("; rank ", engine_.rank(), " ", activity_text(engine_.activity()));
}

Status EffectRouter::begin(const StepDescriptor& step) { return controller_->begin(step, *this); }

Status EffectRouter::ran(int32_t job, std::span<const double> squares, const JobTime& time) {
  return engine_.ran(job, squares, *this, time);
}

Status EffectRouter::arrived(uint64_t sequence, int32_t edge, int32_t micro_batch, double loss) {
  if (is(EdgeKind::sink, sequence, edge))
    return controller_->delivered(sequence, edge, micro_batch, loss, *this);
  return engine_.arrived(sequence, edge, micro_batch, *this);
}

Status EffectRouter::granted(uint64_t sequence, int32_t edge, int32_t micro_batch) {
  if (is(EdgeKind::feed, sequence, edge))
    return controller_->granted(sequence, edge, micro_batch, *this);
  return engine_.granted(sequence, edge, micro_batch, *this);
}

Status EffectRouter::released(int32_t edge, int32_t micro_batch) {
  return engine_.released(edge, micro_batch, *this);
}

Status EffectRouter::received(int32_t from, const Control& message) {
  if (message.kind == ControlKind::ready || message.kind == ControlKind::done) {
    if (!controller_)
      return Status(Code::protocol, "a message for the controller, which is on rank 0");
    return controller_->received(from, message, *this);
  }
  if (from != 0) return Status(Code::protocol, "a message that only the controller sends");
  if (message.kind == ControlKind::commit)
    return engine_.commit(message.sequence, message.scale, *this);
  return engine_.begin(message.step, *this);
}

}  // namespace weft
