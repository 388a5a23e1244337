// One connection between two ranks: a state machine. Frames and time go in; frames and events come out. It owns no socket, thread or
// clock, knows nothing of engines or plans beyond bytes and tags, and allocates nothing after the handshake except for long messages.
//
//        connecting ── hello each way, equal ──► open ──► bye ──► closed
//                │                                 │
//                └────────── refused ◄─────────────┴──► lost (suspected ≤ 300 ms, then named)
//
//  - Two lanes: control (hello, grants, messages, heartbeats, abort) and data (tensors), each with its own sequence numbers. A gap, a
//    repeat, a frame of another incarnation, a wrong check: the link fails with Code::protocol and names it. Nothing is retried.
//  - Tensors are cut into pieces of at most 1 MiB and land where the owner says, piece by piece.
//  - Heartbeats every 250 ms; a peer silent for 3 s is lost. A closed connection is a suspicion for 300 ms: the abort that explains it
//    may still arrive, and then its origin is named instead of the messenger.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "link/frame.h"

namespace weft {

enum class Lane : uint8_t { control = 0, data = 1 };

struct Tag {
  uint64_t step = 0;         // sequence of the step
  int32_t edge = 0, micro_batch = 0;
  friend bool operator==(const Tag&, const Tag&) = default;
};

// What both ends must agree on, section by section; a difference refuses the link and names the section with both values.
struct Identity {
  uint32_t incarnation = 0;
  std::string version;       // of weft
  std::string profile;       // numeric profile
  Digest run, model, partition, schedule, settings;
};

// Why a run failed, as every rank tells it.
struct Origin {
  int32_t rank = -1;         // the rank that failed (not the one that noticed)
  Code code = Code::peer;
  std::string text;          // "rank 2 lost: connection closed, in 2B5 of step 12"
};

// Milliseconds of a monotonic clock; the link never reads one itself.
using LinkTime = int64_t;

struct LinkTimes {
  LinkTime heartbeat = 250, silence = 3000, suspicion = 300, hello = 10000;
};

// What the link asks of its transport and tells its owner. None of these calls back into the link before it returns.
class LinkEffects {
 public:
  virtual ~LinkEffects() = default;
  // One frame: header and payload, to be joined. The payload stays valid until the transport calls Link::sent(token); token 0: copied
  // by the transport before it returns.
  virtual void send(Lane lane, std::span<const std::byte, kHeaderBytes> header, std::span<const std::byte> payload, uint64_t token) = 0;
  virtual void open() = 0;                                         // handshake done both ways
  // Where the tensor with this tag lands; an empty span refuses it (no grant, unknown, wrong size).
  virtual std::span<std::byte> landing(const Tag& tag, uint64_t bytes) = 0;
  virtual void arrived(const Tag& tag) = 0;
  virtual void released(const Tag& tag) = 0;                       // all pieces of a tensor have left its memory
  virtual void granted(const Tag& tag) = 0;
  virtual void message(uint32_t type, std::span<const std::byte> bytes) = 0;
  virtual void failed(const Origin& origin, bool by_abort) = 0;    // once; the link is dead
  virtual void closed() = 0;                                       // orderly: bye both ways
};

class Link {
 public:
  Link(int32_t self, int32_t peer, Identity identity, LinkTimes times = {});

  // The transport has a connection; sends hello. Everything below takes the present time.
  void connected(LinkTime now, LinkEffects& effects);
  void disconnected(LinkTime now, LinkEffects& effects);
  void received(Lane lane, std::span<const std::byte> frame, LinkTime now, LinkEffects& effects);
  void sent(uint64_t token, LinkTime now, LinkEffects& effects);
  void tick(LinkTime now, LinkEffects& effects);
  LinkTime next_tick() const;    // when tick() has something to do

  // Only when open. A tensor's memory stays valid until released(tag).
  void send_tensor(const Tag& tag, std::span<const std::byte> bytes, LinkTime now, LinkEffects& effects);
  void send_grant(const Tag& tag, LinkTime now, LinkEffects& effects);
  void send_message(uint32_t type, std::span<const std::byte> bytes, LinkTime now, LinkEffects& effects);   // copied
  // The run has failed here: tells the peer, once.
  void abort(const Origin& origin, LinkTime now, LinkEffects& effects);
  void bye(LinkTime now, LinkEffects& effects);
  // What this rank tells with its heartbeats, and what the peer told last and when.
  void set_status(std::string status);
  const std::string& peer_status() const;
  LinkTime last_heard() const;

  bool is_open() const;
  bool is_dead() const;
  int32_t peer() const;
};

}  // namespace weft
