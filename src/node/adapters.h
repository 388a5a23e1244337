// The effects of links on their node. Calls to a link, the engine or the controller are queued, so
// that none is called from within.
#pragma once

#include "node/node.h"

namespace weft {

// Types of link messages below RankNode::kFirstFreeType.
constexpr uint32_t kControlMessage = 1, kJoinedMessage = 2, kLostMessage = 3;

// On the wire an edge contains its mode, because a tensor may arrive before the step that
// determines the mode.
constexpr int32_t kModeShift = 28;
inline Tag tag_of(const MessageAt& at) {
  return {at.sequence, static_cast<int32_t>(at.mode) << kModeShift | at.edge, at.micro_batch};
}
// As received: the numbers have not been checked.
inline MessageAt message_at(const Tag& tag) {
  return {.mode = static_cast<Mode>(tag.edge >> kModeShift),
          .edge = tag.edge & ((1 << kModeShift) - 1),
          .micro_batch = tag.micro_batch,
          .sequence = tag.step};
}

struct RankNode::Event {
  enum class Kind : uint8_t {
    opened,
    failed,
    leaving,
    closed,
    joined,
    arrived,
    granted,
    released,
    control
  } kind;
  int32_t peer;          // the sender; rank_ for messages within this rank
  MessageAt at = {};     // arrived, granted, released
  uint64_t bytes = 0;    // arrived
  Control control = {};  // its numbers are in numbers_
};

struct RankNode::Peer final : LinkEffects {
  Peer(RankNode& owner, int32_t peer_rank, const Identity& identity, LinkTimes times,
       size_t tensors)
      : node(owner), rank(peer_rank), link(owner.rank_, peer_rank, identity, times, tensors) {}

  void send(Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    node.effects_.send(rank, lane, header, payload, token);
  }
  void open() override {
    opened = true;
    push(Event::Kind::opened);
  }
  Result<std::span<std::byte>> landing(const Tag& tag, uint64_t bytes) override {
    return node.landing(*this, tag, bytes);
  }
  void arrived(const Tag&) override {
    node.push({Event::Kind::arrived, rank, landing_at, landing_bytes});
  }
  void released(const Tag& tag) override { push(Event::Kind::released, tag); }
  void granted(const Tag& tag) override { push(Event::Kind::granted, tag); }
  void message(uint32_t type, std::span<const std::byte> bytes) override {
    if (Status s = node.received_message(rank, type, bytes); !s.ok()) {
      origin = {.rank = rank, .code = s.code(), .cause = Cause::protocol, .detail = s.text()};
      push(Event::Kind::failed);
    }
  }
  void leaving() override { push(Event::Kind::leaving); }
  void failed(const Origin& why, bool by_abort) override {
    origin = why;
    reported_by_peer = by_abort;
    push(Event::Kind::failed);
  }
  void closed() override { push(Event::Kind::closed); }
  std::string trouble() override { return node.effects_.trouble(rank); }

  void push(Event::Kind kind, const Tag& tag = {}) { node.push({kind, rank, message_at(tag)}); }

  RankNode& node;
  const int32_t rank;
  Link link;
  MessageAt landing_at;  // of the tensor that is arriving
  uint64_t landing_bytes = 0;
  Origin origin;                  // for a failed event
  bool reported_by_peer = false;  // the failure arrived in an abort
  bool connected = false, opened = false, hung_up = false, joined = false;
};

}  // namespace weft
