// How engine, controller and links speak to their node: everything that would call one of them back
// is queued.
#pragma once

#include "node/node.h"

namespace weft {

// Types of link messages below RankNode::kFirstFreeType.
constexpr uint32_t kControlMessage = 1, kJoinedMessage = 2, kLostMessage = 3;

// On the wire an edge carries its mode: a tensor may come before the step that says which mode
// runs.
constexpr int32_t kModeShift = 28;
inline Tag tag_of(uint64_t sequence, const MessageAt& at) {
  return {sequence, static_cast<int32_t>(at.mode) << kModeShift | at.edge, at.micro_batch};
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
  int32_t peer = -1;      // whom it comes from; -1: this rank
  Tag tag;                // granted
  MessageAt at;           // arrived, released
  uint64_t sequence = 0;  // arrived, released
  uint64_t bytes = 0;     // arrived
  Control control;        // its numbers: in numbers_
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
  void arrived(const Tag& tag) override {
    Event event{.kind = Event::Kind::arrived,
                .peer = rank,
                .tag = tag,
                .at = landing_at,
                .sequence = tag.step,
                .control = {}};
    event.bytes = landing_bytes;
    node.push(event);
  }
  void released(const Tag& tag) override { push(Event::Kind::released, tag); }
  void granted(const Tag& tag) override { push(Event::Kind::granted, tag); }
  void message(uint32_t type, std::span<const std::byte> bytes) override {
    if (Status s = node.heard_message(rank, type, bytes); !s.ok()) {
      origin = {
          .rank = rank, .code = s.code(), .text = "rank " + std::to_string(rank) + ": " + s.text()};
      push(Event::Kind::failed);
    }
  }
  void leaving() override { push(Event::Kind::leaving); }
  void failed(const Origin& why, bool by_abort) override {
    origin = why;
    told_by_peer = by_abort;
    push(Event::Kind::failed);
  }
  void closed() override { push(Event::Kind::closed); }
  std::string trouble() override { return node.effects_.trouble(rank); }

  void push(Event::Kind kind, const Tag& tag = {}) {
    node.push(
        {.kind = kind, .peer = rank, .tag = tag, .at = {}, .sequence = tag.step, .control = {}});
  }

  RankNode& node;
  const int32_t rank;
  Link link;
  MessageAt landing_at;  // of the tensor that lands
  uint64_t landing_bytes = 0;
  Origin origin;              // of a failed event
  bool told_by_peer = false;  // the failure: in an abort
  bool connected = false, opened = false, hung_up = false, joined = false;
};

class RankNode::EngineAdapter final : public ControllerEffects {
 public:
  EngineAdapter(RankNode& node, bool controller) : node_(node), controller_(controller) {}
  void run(int32_t job) override {
    node_.effects_.run(node_.engine_.step(), node_.engine_.scale(), job);
  }
  void post(int32_t edge, int32_t micro_batch) override {
    if (Status s = node_.post(edge, micro_batch, controller_); !s.ok() && node_.fault_.ok())
      node_.fault_ = s;
  }
  void grant(int32_t edge, int32_t micro_batch) override { node_.grant(edge, micro_batch); }
  void control(int32_t to, const Control& message) override { node_.control(to, message); }
  void micro_batch(int32_t micro_batch) override { node_.effects_.micro_batch(micro_batch); }
  void step_done(const StepResult& result) override { node_.effects_.step_done(result); }

 private:
  RankNode& node_;
  const bool controller_;
};

}  // namespace weft
