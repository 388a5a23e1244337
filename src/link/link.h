// One connection between two ranks: a state machine that takes frames and times, and returns frames
// and events. It owns no socket, thread or clock, knows only bytes and tags of engines and plans,
// and allocates nothing after the handshake except for long messages and failures.
//
//   waiting ── connected ──► greeting ── hello both ways ──► open ── bye both ways ──► ended
//      │                        │                            │
//      └────────────────────────┴────────── failed ◄─────────┘
//                                              │
//                  aborting (until the peer has heard why, at most 300 ms) ──► ended
//
//  - Two lanes: control (hello, grants, messages, heartbeats, abort) and data (tensors), each with
//    its own sequence numbers. A gap, a repeat, a frame of another incarnation, a wrong check: the
//    link fails with Code::protocol and names it. Nothing is retried.
//  - Frames on one lane can overtake those on the other. So a side is open, and can send tensors,
//    when it knows that the other side has accepted its hello: from the heartbeat that answers a
//    hello.
//  - Tensors are cut into pieces of 1 MiB, which are written to the memory that the owner provides.
//    Tensors of one lane never interleave.
//  - Heartbeats every 250 ms. A peer is lost if no frame arrives on either lane for
//    LinkTimes::silence, the peer timeout: long enough for TCP to repeat the packets that an
//    interruption of 2 s has lost. A heartbeat contains the number of data frames sent: if no data
//    frame arrives although some are announced, the data lane is lost after kDataSilence times the
//    peer timeout. The factor is for slow links, where one frame of 1 MiB can take longer than the
//    peer timeout while heartbeats still arrive.
//  - A closed connection is not repeated. It is a suspicion for 300 ms: the abort that explains it
//    can still arrive, here or from another rank, and its origin is then reported instead. The same
//    applies to a connection that cannot be made. While the transport still tries, it reports
//    nothing, and the deadline of the hello counts.
//  - Every state but ended has a deadline; see next_tick().
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "base/fifo.h"
#include "link/frame.h"
#include "link/payload.h"

namespace weft {

enum class Lane : uint8_t { control = 0, data = 1 };

struct Tag {
  uint64_t step = 0;  // sequence of the step
  int32_t edge = 0, micro_batch = 0;
  friend bool operator==(const Tag&, const Tag&) = default;
};

// Milliseconds of a monotonic clock, which the link does not read itself.
using LinkTime = int64_t;
constexpr LinkTime kNever = std::numeric_limits<LinkTime>::max();

// An announced data frame can take this number of peer timeouts.
constexpr LinkTime kDataSilence = 4;
// The shortest peer timeout that a user may set: four heartbeats.
constexpr LinkTime kLeastSilence = 1000;

struct LinkTimes {
  LinkTime heartbeat = 250;
  LinkTime silence = 5000;  // the peer timeout: without a frame on either lane
  // From a closed connection to the loss; also the limit for an abort-ack.
  LinkTime suspicion = 300;
  LinkTime hello = 10000;  // from start() to open
};

// The effects of a link on its transport and its owner. None of these functions calls the link
// before it returns, except that message() may call abort().
class LinkEffects {
 public:
  virtual ~LinkEffects() = default;
  // One frame: header and payload, to be joined. The payload stays valid until the transport calls
  // Link::sent(token); token 0: copied by the transport before it returns. Only data frames have
  // tokens.
  virtual void send(Lane lane, std::span<const std::byte, kHeaderBytes> header,
                    std::span<const std::byte> payload, uint64_t token) = 0;
  virtual void open() = 0;  // hello accepted in both directions
  // The memory for the tensor with this tag, of its size, or the reason why it is refused (no
  // grant, unknown, wrong size). Tensors can arrive just before open().
  virtual Result<std::span<std::byte>> landing(const Tag&, uint64_t) {
    return Status(Code::protocol, "no tensors before the run");
  }
  virtual void arrived(const Tag&) {}
  virtual void released(const Tag&) {}  // all pieces of a tensor have been read
  virtual void granted(const Tag&) {}
  virtual void message(uint32_t type, std::span<const std::byte> bytes) = 0;
  virtual void leaving() = 0;  // the peer sent bye; answer with bye() in time
  virtual void failed(const Origin& origin, bool by_abort) = 0;  // once; the link cannot be used
  virtual void closed() = 0;                                     // orderly: bye both ways
  // The message of the transport about its last try, called if there is no connection in time.
  // Empty: unknown.
  virtual std::string trouble() { return {}; }
};

class Link {
 public:
  static constexpr size_t kMaxMessage = size_t{64} << 20;
  // Data given to the transport and not yet sent, at most.
  static constexpr size_t kWindowBytes = size_t{4} << 20, kWindowFrames = 64;

  // `tensors`: the number that can be in transit at the same time without an allocation.
  // `most_message`: bytes of a message that the peer may send.
  Link(int32_t self, int32_t peer, Identity identity, LinkTimes times = {}, size_t tensors = 64,
       size_t most_message = kMaxMessage);

  // All functions take the current time. From start() on, the peer has LinkTimes::hello to connect
  // and to send hello.
  void start(LinkTime now);
  // The transport has a connection; sends hello.
  void connected(LinkTime now, LinkEffects& effects);
  // The transport has lost the connection or cannot make one, with the reason as text.
  void disconnected(const std::string& why, LinkTime now, LinkEffects& effects);
  void received(Lane lane, std::span<const std::byte> frame, LinkTime now, LinkEffects& effects);
  void sent(uint64_t token, LinkTime now, LinkEffects& effects);
  void tick(LinkTime now, LinkEffects& effects);
  LinkTime next_tick() const;  // time of the next tick(); kNever when the link has ended

  // Only when open; otherwise they do nothing. A tensor's memory stays valid until released(tag);
  // after a failure until the transport is closed.
  void send_tensor(const Tag& tag, std::span<const std::byte> bytes, LinkEffects& effects);
  void send_grant(const Tag& tag, LinkEffects& effects);
  void send_message(uint32_t type, std::span<const std::byte> bytes, LinkTime now,
                    LinkEffects& effects);  // copied
  // The run has failed here: sends an abort to the peer once, also if it connects within
  // LinkTimes::suspicion. failed() is not called, because the owner reported the failure.
  void abort(const Origin& origin, LinkTime now, LinkEffects& effects);
  // Normal end; no tensor or message may be in transit.
  void bye(LinkTime now, LinkEffects& effects);
  // The activity in the heartbeats of this rank, and the last one of the peer with its time.
  void set_activity(const Activity& activity) { activity_ = activity; }
  const Activity& peer_activity() const { return peer_activity_; }
  LinkTime peer_activity_at() const { return peer_activity_at_; }
  // From its hello.
  const Process& peer_process() const { return peer_process_; }
  LinkTime last_heard() const { return last_heard_; }

  bool is_open() const { return state_ == State::open; }
  // Nothing more will be sent: the transport can be closed when all frames have been sent.
  bool is_dead() const { return state_ == State::ended; }
  int32_t peer() const { return peer_; }

 private:
  enum class State : uint8_t { waiting, greeting, open, aborting, ended };
  struct Sending {  // a tensor that is being sent
    Tag tag;
    std::span<const std::byte> bytes;
  };

  FrameHeader header(FrameKind kind) const;
  void send_control(FrameHeader h, std::span<const std::byte> payload, LinkEffects& effects);
  void send_heartbeat(LinkTime now, LinkEffects& effects);
  void tick_live(LinkTime now, LinkEffects& effects);
  void send_pieces(LinkEffects& effects);
  void send_abort(LinkTime now, LinkEffects& effects);
  void fail(const Origin& origin, LinkTime now, LinkEffects& effects);
  void fail_here(std::string detail, LinkTime now, LinkEffects& effects);
  void lose(Cause cause, std::string detail, LinkTime now, LinkEffects& effects);
  Origin of_peer(Code code, Cause cause, std::string detail = {}) const;
  void end();
  Status check_header(Lane lane, const FrameHeader& h);
  Status live_frame(Lane lane, const FrameHeader& h, std::span<const std::byte> payload,
                    LinkTime now, LinkEffects& effects);
  void heard_abort(std::span<const std::byte> payload, LinkTime now, LinkEffects& effects);
  Status control_frame(const FrameHeader& h, std::span<const std::byte> payload, LinkTime now,
                       LinkEffects& effects);
  Status hello_frame(std::span<const std::byte> payload, LinkTime now, LinkEffects& effects);
  Status heartbeat_frame(const FrameHeader& h, std::span<const std::byte> payload, LinkTime now);
  Status message_frame(const FrameHeader& h, std::span<const std::byte> payload,
                       LinkEffects& effects);
  Status data_frame(const FrameHeader& h, std::span<const std::byte> payload, LinkTime now,
                    LinkEffects& effects);
  LinkTime silent_at() const;
  LinkTime lag_at() const;
  bool lagging() const { return announced_ > in_sequence_[1]; }
  bool live() const { return state_ == State::greeting || state_ == State::open; }

  const int32_t self_, peer_;
  const Identity identity_;
  const LinkTimes times_;
  const size_t most_message_;
  State state_ = State::waiting;
  bool connection_ = false;  // the transport has one
  bool greeted_ = false;     // the peer's hello was taken
  bool said_bye_ = false, heard_bye_ = false;

  LinkTime hello_by_ = kNever;
  LinkTime last_heard_ = 0, next_heartbeat_ = kNever;
  LinkTime last_tick_ = 0;
  // A rank that was stopped itself receives before it treats others as silent.
  LinkTime deaf_until_ = 0;
  LinkTime lost_at_ = kNever;  // end of a suspicion
  std::string lost_why_;
  LinkTime abort_by_ = kNever, bye_by_ = kNever;
  std::vector<std::byte> abort_payload_;
  uint64_t out_sequence_[2] = {0, 0}, in_sequence_[2] = {0, 0};  // per lane
  uint64_t announced_ = 0;  // data frames that the peer has announced
  LinkTime lag_since_ = 0;  // lagging(): the last data frame, or the heartbeat that announced more

  Fifo<Sending> sending_;  // the first `posted_` have been given to the transport, the next one
                           // from piece `next_piece_`
  size_t posted_ = 0;
  uint32_t next_piece_ = 0;
  struct Piece {
    uint64_t token;
    uint32_t bytes;
    bool last;
  };
  Fifo<Piece> in_flight_;
  size_t in_flight_bytes_ = 0;
  uint64_t next_token_ = 1;

  bool landing_ = false;  // a tensor has begun to arrive
  Tag landing_tag_;
  std::span<std::byte> landing_bytes_;
  uint32_t landing_piece_ = 0;
  std::vector<std::byte> long_message_;
  uint32_t message_type_ = 0, message_piece_ = 0;
  uint64_t message_total_ = 0;
  Process peer_process_;
  Activity activity_, peer_activity_;
  std::vector<std::byte> activity_bytes_;
  LinkTime peer_activity_at_ = 0;
};

}  // namespace weft
