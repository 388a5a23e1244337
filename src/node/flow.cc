// What flows through a node during a step: tensors, grants and control messages, to other ranks by
// link, to itself by copy.
#include <cstring>

#include "base/text.h"
#include "node/adapters.h"
#include "node/control_codec.h"

namespace weft {

namespace {
Status wrong(std::string text) { return Status(Code::protocol, std::move(text)); }
constexpr int64_t kNsPerMs = 1'000'000;  // JobTime counts the former, LinkTime the latter
}  // namespace

// --- places
// ----------------------------------------------------------------------------------------------------------------

MessageAt RankNode::at(int32_t edge, int32_t micro_batch) const {
  const bool tie = plan_->mode(step_.mode).edges[static_cast<size_t>(edge)].param >= 0;
  const bool is_short = !tie && step_.short_last && micro_batch == step_.micro_batches - 1;
  return {step_.mode, edge, micro_batch, is_short ? 1 : 0};
}

const Edge& RankNode::edge_at(const MessageAt& at) const {
  return plan_->mode(at.mode).edges[static_cast<size_t>(at.edge)];
}

Result<MessageAt> RankNode::decode_tag(const Tag& tag) const {
  const int32_t mode = tag.edge >> kModeShift, edge = tag.edge & ((1 << kModeShift) - 1);
  if (mode < 0 || mode >= static_cast<int32_t>(kModes))
    return wrong(cat("tensor of mode ", mode, ", which is unknown"));
  const ModePlan& plan = plan_->mode(static_cast<Mode>(mode));
  if (static_cast<size_t>(edge) >= plan.edges.size())
    return wrong(cat("edge ", edge, " is not one of the ", plan.edges.size(), " of mode ",
                     mode_name(plan.mode)));
  const int32_t count =
      plan.edges[static_cast<size_t>(edge)].param >= 0 ? 1 : plan.schedule.micro_batches;
  if (tag.micro_batch < 0 || tag.micro_batch >= count)
    return wrong(cat("edge ", edge, " has no micro-batch ", tag.micro_batch, " (", count, ")"));
  return MessageAt{static_cast<Mode>(mode), edge, tag.micro_batch, 0};
}

// Every tensor is expected: its edge ends here and begins there, it is the next of its edge, there
// is room for it, and it has the size.
Result<std::span<std::byte>> RankNode::landing(Peer& from, const Tag& tag, uint64_t bytes) {
  WEFT_TRY_ASSIGN(MessageAt here, decode_tag(tag));
  const Edge& edge = edge_at(here);
  if (edge.to_rank != rank_ || edge.from_rank != from.rank)
    return wrong(
        cat("edge ", here.edge, " goes from rank ", edge.from_rank, " to rank ", edge.to_rank));
  const bool begun = next_sequence_ > 0 && tag.step == step_.sequence;
  if (!begun && (tag.step != next_sequence_ || !engine_.idle() || controller_))
    return wrong(cat("tensor of step ", tag.step, ", which neither runs nor is next"));
  Incoming& in = incoming_[static_cast<size_t>(here.mode)][static_cast<size_t>(here.edge)];
  if (in.step != tag.step) in = {.step = tag.step, .next = 0, .room = edge.landing_slots};
  if (here.micro_batch != in.next)
    return wrong(
        cat("edge ", here.edge, " brings micro-batch ", here.micro_batch, ", expected ", in.next));
  if (here.micro_batch >= in.room)
    return wrong(
        cat("edge ", here.edge, " brings micro-batch ", here.micro_batch, " without a grant"));
  if (begun) {
    if (here.mode != step_.mode || here.micro_batch >= step_.micro_batches)
      return wrong(cat("edge ", here.edge, ", micro-batch ", here.micro_batch,
                       " does not belong to step ", step_.step));
    here = at(here.edge, here.micro_batch);
  }
  WEFT_TRY_ASSIGN(std::span<std::byte> place, effects_.landing(here));
  if (place.size() != bytes && !begun && plan_->config.short_size > 0 && edge.param < 0) {
    here.variant = 1;  // the step will say whether it is the short one
    WEFT_TRY_ASSIGN(place, effects_.landing(here));
  }
  if (place.size() != bytes)
    return wrong(cat("edge ", here.edge, ", micro-batch ", here.micro_batch, " has ", bytes,
                     " bytes, expected ", place.size()));
  ++in.next;
  from.landing_at = here;
  from.landing_bytes = bytes;
  return place;
}

// --- out
// -------------------------------------------------------------------------------------------------------------------

Status RankNode::post(int32_t edge, int32_t micro_batch, bool feed) {
  const MessageAt here = at(edge, micro_batch);
  const int32_t to = edge_at(here).to_rank;
  if (to == rank_) return copy_here(here, feed);
  WEFT_TRY_ASSIGN(const std::span<const std::byte> bytes, effects_.outgoing(here));
  Peer* peer = find(to);
  peer->link.send_tensor(tag_of(step_.sequence, here), bytes, now_, *peer);
  return {};
}

Status RankNode::copy_here(const MessageAt& here, bool feed) {
  WEFT_TRY_ASSIGN(const std::span<const std::byte> from, effects_.outgoing(here));
  WEFT_TRY_ASSIGN(const std::span<std::byte> to, effects_.landing(here));
  if (from.size() != to.size())
    return Status(Code::internal, cat("edge ", here.edge, " leaves with ", from.size(),
                                      " bytes and lands with ", to.size()));
  if (!from.empty()) std::memmove(to.data(), from.data(), from.size());
  Event event{.kind = Event::Kind::released,
              .peer = -1,
              .tag = {},
              .at = here,
              .sequence = step_.sequence,
              .control = {}};
  if (!feed) push(event);
  event.kind = Event::Kind::arrived;
  event.bytes = to.size();
  push(event);
  return {};
}

void RankNode::grant(int32_t edge, int32_t micro_batch) {
  const MessageAt here = at(edge, micro_batch);
  const Tag tag = tag_of(step_.sequence, here);
  const int32_t from = edge_at(here).from_rank;
  if (from == rank_)
    return push({.kind = Event::Kind::granted,
                 .peer = -1,
                 .tag = tag,
                 .at = here,
                 .sequence = tag.step,
                 .control = {}});
  Incoming& in = incoming_[static_cast<size_t>(here.mode)][static_cast<size_t>(edge)];
  in.room = std::max(in.room, micro_batch + 1);
  Peer* peer = find(from);
  peer->link.send_grant(tag, now_, *peer);
}

void RankNode::control(int32_t to, const Control& message) {
  const int32_t rank = to == kController ? 0 : to;
  if (rank == rank_) {
    Event event{.kind = Event::Kind::control,
                .peer = -1,
                .tag = {},
                .at = {},
                .sequence = 0,
                .control = message};
    if (message.kind == ControlKind::ready) {
      numbers_.assign(message.squares.begin(), message.squares.end());
      event.control.squares = {};
    }
    return push(event);
  }
  Control told = message;
  if (message.kind == ControlKind::done) {
    told.times.heard = begun_at_ * kNsPerMs;
    told.times.told = now_ * kNsPerMs;
  }
  encode_control(told, bytes_);
  Peer* peer = find(rank);
  peer->link.send_message(kControlMessage, bytes_, now_, *peer);
}

// --- in
// --------------------------------------------------------------------------------------------------------------------

Status RankNode::heard_message(int32_t from, uint32_t type, std::span<const std::byte> bytes) {
  if (type >= kFirstFreeType) {
    effects_.message(from, type, bytes);
    return {};
  }
  Event event{
      .kind = Event::Kind::joined, .peer = from, .tag = {}, .at = {}, .sequence = 0, .control = {}};
  if (type == kControlMessage) {
    WEFT_TRY_ASSIGN(event.control, decode_control(bytes, numbers_));
    event.control.squares = {};
    event.control.step.denominators = {};
    event.kind = Event::Kind::control;
  } else if (type == kLostMessage) {
    return heard_accusation(from, bytes);
  } else if (type != kJoinedMessage || !bytes.empty()) {
    return wrong(cat("message of type ", type, " and ", bytes.size(), " bytes, which is unknown"));
  }
  push(event);
  return {};
}

Status RankNode::heard_control(int32_t from, const Control& received) {
  Control message = received;
  const bool to_controller =
      message.kind == ControlKind::ready || message.kind == ControlKind::done;
  if (to_controller) {
    if (!controller_) return wrong("a message for the controller, which is not here");
    if (message.kind == ControlKind::ready) message.squares = numbers_;
    if (message.kind == ControlKind::done && from > 0)
      message.times = on_our_clock(message.times, begun_at_ * kNsPerMs, now_ * kNsPerMs);
    return controller_->heard(from < 0 ? rank_ : from, message, *from_controller_);
  }
  if (from > 0) return wrong("a message that only the controller sends");
  if (message.kind == ControlKind::begin) return begin_here(message.step, from >= 0);
  return engine_.commit(message.sequence, message.scale, *from_engine_);
}

// `remote`: the numbers that came with it are its denominators, which live here until the step is
// over.
Status RankNode::begin_here(StepDescriptor step, bool remote) {
  const bool fits = step.sequence == next_sequence_ && engine_.idle();
  if (fits) {
    if (remote) {
      denominators_.assign(numbers_.begin(), numbers_.end());
      step.denominators = denominators_;
    }
    step_ = step;
    ++next_sequence_;
    if (!controller_) begun_at_ = now_;
  }
  WEFT_TRY(engine_.begin(step, *from_engine_));
  for (const Event& event : early_) WEFT_TRY(take(event));
  early_.clear();
  return {};
}

Status RankNode::arrived(const Event& event) {
  WEFT_TRY(effects_.landed(event.at));
  if (event.sequence != next_sequence_) return take(event);
  early_.push_back(event);
  return {};
}

// A tensor of the step that runs, unless it began to land before that step did, and is something
// else: landing() could not know.
Status RankNode::take(const Event& event) {
  const MessageAt& here = event.at;
  const Edge& edge = edge_at(here);
  bool fits =
      here.mode == step_.mode && (edge.param >= 0 || here.micro_batch < step_.micro_batches);
  if (fits) {
    WEFT_TRY_ASSIGN(const std::span<std::byte> place,
                    effects_.landing(at(here.edge, here.micro_batch)));
    fits = place.size() == event.bytes;
  }
  if (!fits)
    return wrong(cat("edge ", here.edge, ", micro-batch ", here.micro_batch,
                     " does not belong to step ", step_.step));
  if (edge.kind == EdgeKind::sink)
    return controller_->delivered(event.sequence, here.edge, here.micro_batch, effects_.loss(here),
                                  *from_controller_);
  return engine_.arrived(event.sequence, here.edge, here.micro_batch, *from_engine_);
}

Status RankNode::granted(const Event& event) {
  WEFT_TRY_ASSIGN(const MessageAt here, decode_tag(event.tag));
  const Edge& edge = edge_at(here);
  if (here.mode != step_.mode || edge.from_rank != rank_ ||
      (event.peer >= 0 && edge.to_rank != event.peer))
    return wrong(cat("grant of edge ", here.edge, ", which goes from rank ", edge.from_rank,
                     " to rank ", edge.to_rank));
  if (edge.kind == EdgeKind::feed) {
    if (!controller_) return wrong("grant for the controller, which is not here");
    return controller_->granted(event.tag.step, here.edge, here.micro_batch, *from_controller_);
  }
  return engine_.granted(event.tag.step, here.edge, here.micro_batch, *from_engine_);
}

}  // namespace weft
