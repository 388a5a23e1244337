// The messages of a node during a step: tensors, grants and control messages. Those for other ranks
// use a link, those within this rank use its queue.
#include <algorithm>

#include "base/text.h"
#include "engine/steps.h"
#include "node/adapters.h"
#include "node/control_codec.h"

namespace weft {

namespace {

constexpr int64_t kNsPerMs = 1'000'000;  // JobTime is in nanoseconds, LinkTime in milliseconds

Status wrong(std::string text) { return Status(Code::protocol, std::move(text)); }

std::string name_of(const MessageAt& at) {
  return cat("edge ", at.edge, ", micro-batch ", at.micro_batch);
}

}  // namespace

// --- slots

MessageAt RankNode::at(const StepDescriptor& step, int32_t edge, int32_t micro_batch) {
  return {step.mode, edge, micro_batch, variant_of(step, micro_batch), step.sequence};
}

const Edge& RankNode::edge_at(const MessageAt& at) const {
  return plan_->mode(at.mode).edges[static_cast<size_t>(at.edge)];
}

// What is expected on the route in that step; at first as if no tensor of it had arrived, except
// one that came early.
Route::Expected& RankNode::expected(Mode mode, Route& route, uint64_t sequence,
                                    bool overlaps) const {
  Route::Expected& expected = route.expected[sequence % 2];
  if (expected.sequence == sequence) return expected;
  const Edge& edge = plan_->mode(mode).edges[static_cast<size_t>(route.edge)];
  expected = {
      .next = edge.micro_batches.first, .room = overlaps ? 0 : edge.open, .sequence = sequence};
  return expected;
}

// Checks a message of a peer: the plan has such a message, and its edge ends or begins here.
Result<Route*> RankNode::route_of(const MessageAt& at) {
  if (static_cast<size_t>(at.mode) >= kModes)
    return wrong(cat("tensor of mode ", static_cast<int>(at.mode), ", which is unknown"));
  const ModePlan& mode = plan_->mode(at.mode);
  if (static_cast<size_t>(at.edge) >= mode.edges.size())
    return wrong(cat("edge ", at.edge, " is not one of the ", mode.edges.size(), " of mode ",
                     mode_name(at.mode)));
  const Edge& edge = edge_at(at);
  if (!edge.has(at.micro_batch))
    return wrong(cat("edge ", at.edge, " has no micro-batch ", at.micro_batch, " (",
                     edge.micro_batches.first, " to ", edge.micro_batches.end - 1, ")"));
  return router_.find(at.mode, at.edge);
}

// A tensor must be expected: its edge leads from the peer to this rank, it is the next one of its
// edge, it has a grant, and its size is right.
Result<std::span<std::byte>> RankNode::landing(Peer& from, const Tag& tag, uint64_t bytes) {
  MessageAt here = message_at(tag);
  WEFT_TRY_ASSIGN(Route * route, route_of(here));
  const Edge& edge = edge_at(here);
  if (!route || !route->incoming || route->other.rank != from.rank)
    return wrong(
        cat("edge ", here.edge, " goes from rank ", edge.from_rank, " to rank ", edge.to_rank));
  const StepDescriptor* const step = router_.find_step(route->kind, tag.step);
  if (!step && (tag.step != next_sequence_ || !engine().idle() || controls()))
    return wrong(cat("tensor of step ", tag.step, ", which neither runs nor is next"));
  Route::Expected& is = expected(here.mode, *route, tag.step, step && step->overlaps);
  if (here.micro_batch != is.next)
    return wrong(
        cat("edge ", here.edge, " brings micro-batch ", here.micro_batch, ", expected ", is.next));
  if (here.micro_batch >= is.room)
    return wrong(
        cat("edge ", here.edge, " brings micro-batch ", here.micro_batch, " without a grant"));
  if (step) {
    if (here.mode != step->mode || here.micro_batch >= step->micro_batches)
      return wrong(cat(name_of(here), " does not belong to step ", step->step));
    here = at(*step, here.edge, here.micro_batch);
  }
  WEFT_TRY_ASSIGN(std::span<std::byte> slot, effects_.landing(here));
  if (slot.size() != bytes && !step && plan_->config.short_size > 0 && edge.param < 0) {
    here.variant = 1;  // the step determines whether it is the short one
    WEFT_TRY_ASSIGN(slot, effects_.landing(here));
  }
  if (slot.size() != bytes)
    return wrong(cat(name_of(here), " has ", bytes, " bytes, expected ", slot.size()));
  is.next += edge.micro_batches.stride;
  from.landing_at = here;
  from.landing_bytes = bytes;
  return slot;
}

// --- out

void RankNode::run(int32_t job, bool deliver) {
  effects_.run(engine().step(), engine().scale(), job, deliver);
}

void RankNode::post(const Route& route, const StepDescriptor& step, int32_t micro_batch,
                    bool delivered) {
  const MessageAt here = at(step, route.edge, micro_batch);
  const Route::Peer& to = route.other;
  // The job that waits for a feed copies it.
  const bool copied = delivered || route.kind == EdgeKind::feed;
  if (to.rank == rank_) return copied ? copied_here(here) : effects_.copy(here);
  const auto bytes = effects_.outgoing(here);
  if (!bytes.ok()) return note(bytes.status());
  Peer& peer = *links_[static_cast<size_t>(to.link)];
  peer.link.send_tensor(tag_of(here), bytes.value(), peer);
}

void RankNode::copied_here(const MessageAt& at) {
  for (const Event::Kind kind : {Event::Kind::arrived, Event::Kind::released})
    push({kind, rank_, at});
}

void RankNode::grant(Route& route, const StepDescriptor& step, int32_t micro_batch) {
  const MessageAt here = at(step, route.edge, micro_batch);
  const Route::Peer& from = route.other;
  if (from.rank == rank_) return push({Event::Kind::granted, rank_, here});
  Route::Expected& is = expected(here.mode, route, step.sequence, step.overlaps);
  if (route.kind == EdgeKind::gather) is.next = is.room = micro_batch;  // none is in transit
  is.room = std::max(is.room, micro_batch + 1);
  Peer& peer = *links_[static_cast<size_t>(from.link)];
  peer.link.send_grant(tag_of(here), peer);
}

void RankNode::control(int32_t to, const Control& message) {
  Control sent = message;
  if (to == rank_) {
    if (message.kind == ControlKind::ready) {
      numbers_.assign(message.squares.begin(), message.squares.end());
      sent.squares = {};
    }
    return push({.kind = Event::Kind::control, .peer = rank_, .control = sent});
  }
  if (message.kind == ControlKind::done) {
    sent.times.begin_received = begun_at_[message.sequence % kStepsAtOnce] * kNsPerMs;
    sent.times.end_sent = now_ * kNsPerMs;
  }
  encode_control(sent, bytes_);
  Peer& peer = *find(to);
  peer.link.send_message(kControlMessage, bytes_, now_, peer);
}

// --- in

Status RankNode::received_message(int32_t from, uint32_t type, std::span<const std::byte> bytes) {
  if (type >= kFirstFreeType) {
    effects_.message(from, type, bytes);
    return {};
  }
  Event event{.kind = Event::Kind::joined, .peer = from};
  if (type == kControlMessage) {
    WEFT_TRY_ASSIGN(event.control, decode_control(bytes, numbers_));
    event.control.squares = {};
    event.control.step.denominators = {};
    event.kind = Event::Kind::control;
  } else if (type == kLostMessage) {
    return received_suspicion(from, bytes);
  } else if (type != kJoinedMessage || !bytes.empty()) {
    return wrong(cat("message of type ", type, " and ", bytes.size(), " bytes, which is unknown"));
  }
  push(event);
  return {};
}

Status RankNode::received_control(int32_t from, Control message) {
  const bool begins = message.kind == ControlKind::begin;
  if (message.kind == ControlKind::ready) message.squares = numbers_;
  if (message.kind == ControlKind::done && from != rank_)
    message.times = on_our_clock(
        message.times, begun_at_[message.sequence % kStepsAtOnce] * kNsPerMs, now_ * kNsPerMs);
  if (begins && message.step.sequence == next_sequence_ &&
      (engine().idle() || message.step.overlaps)) {
    if (from != rank_ && !message.step.overlaps) {
      denominators_ = numbers_;  // they are stored here until the end of the step
      message.step.denominators = denominators_;
    }
    ++next_sequence_;
    if (!controls()) begun_at_[message.step.sequence % kStepsAtOnce] = now_;
  }
  WEFT_TRY(router_.received(from, message));
  if (!begins) return {};
  for (const Event& event : early_) WEFT_TRY(take(event));
  early_.clear();
  return {};
}

Status RankNode::arrived(const Event& event) {
  WEFT_TRY(effects_.landed(event.at));
  if (event.at.sequence != next_sequence_) return take(event);
  early_.push_back(event);
  return {};
}

// A tensor of the current step. If it began to arrive before the step began, it may be another one,
// which landing() could not check.
Status RankNode::take(const Event& event) {
  const MessageAt& here = event.at;
  const Edge& edge = edge_at(here);
  const StepDescriptor* const step = router_.find_step(edge.kind, here.sequence);
  bool fits = step && here.mode == step->mode &&
              (edge.param >= 0 || here.micro_batch < step->micro_batches);
  if (fits && event.peer != rank_) {
    WEFT_TRY_ASSIGN(const std::span<std::byte> slot,
                    effects_.landing(at(*step, here.edge, here.micro_batch)));
    fits = slot.size() == event.bytes;
  }
  if (!fits)
    return wrong(
        cat(name_of(here), " does not belong to step ", step ? step->step : router_.step().step));
  const double loss = edge.kind == EdgeKind::sink ? effects_.loss(here) : 0;
  return router_.arrived(here.sequence, here.edge, here.micro_batch, loss);
}

// A grant for an edge that begins here, of a step that has begun here, or of a later one if its
// places are granted before.
Status RankNode::granted(const Event& event) {
  const MessageAt& here = event.at;
  WEFT_TRY_ASSIGN(Route * route, route_of(here));
  const StepDescriptor* const step =
      route ? router_.find_step(route->kind, here.sequence) : nullptr;
  if ((step && here.mode != step->mode) || !route || !route->outgoing ||
      route->other.rank != event.peer) {
    const Edge& edge = edge_at(here);
    return wrong(cat("grant of edge ", here.edge, ", which goes from rank ", edge.from_rank,
                     " to rank ", edge.to_rank));
  }
  const bool early = edge_at(here).open == 0 || steps_granted_early(plan_->config, here.mode) > 0;
  if (!step && (!early || route->kind == EdgeKind::feed))
    return wrong(cat("grant of ", name_of(here), " of a step that has not begun here"));
  return router_.granted(here.sequence, here.edge, here.micro_batch);
}

// Inputs are not moved.
Status RankNode::released(const Event& event) {
  if (edge_at(event.at).kind == EdgeKind::feed) return {};
  return router_.released(event.at.edge, event.at.micro_batch);
}

}  // namespace weft
