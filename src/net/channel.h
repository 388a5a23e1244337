// The common part of dialed and accepted connections: two lanes with frames that wait to be sent,
// and the end of the connection.
//
//   connecting ──► open ──► lost (one lane: the other may bring more, and the reason) ──► gone
//                    └────► closing (waiting frames and a bye are sent, until a deadline) ──► gone
#pragma once

#include <zmq.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fifo.h"
#include "link/frame.h"
#include "net/poll_group.h"
#include "net/slab.h"
#include "net/transport.h"

namespace weft {

// Messages of the transport itself are shorter than a header, which distinguishes them.
//   dialer, each lane:    hello
//   listener, each lane:  accepted, when both lanes have sent hello
//   both, each lane:      bye, after the last frame: ZeroMQ cannot close one connection of a
//                         listening socket, and the other lane may have more frames. A listener
//                         answers bye with bye, for which a dialer that closes waits
//   either, one lane:     slab offer, before the first large payload; the peer answers with slab
//                         taken or slab refused. Then a slab frame stands for a frame that lies in
//                         a slot of the slab
constexpr std::string_view kHello = "weft-hello-1", kAccepted = "weft-accepted-1",
                           kBye = "weft-bye-1";
constexpr std::string_view kSlab = "weft-slab-", kSlabOffer = "weft-slab-offer-1",
                           kSlabTaken = "weft-slab-taken-1", kSlabRefused = "weft-slab-refused-1",
                           kSlabFrame = "weft-slab-frame-1";

// A message of ZeroMQ.
class Message {
 public:
  Message() { zmq_msg_init(&message_); }
  ~Message() { zmq_msg_close(&message_); }
  Message(Message&& other) noexcept : Message() { zmq_msg_move(&message_, &other.message_); }
  Message& operator=(Message&& other) noexcept {
    zmq_msg_move(&message_, &other.message_);
    return *this;
  }
  bool allocate(size_t bytes) {
    zmq_msg_close(&message_);
    if (zmq_msg_init_size(&message_, bytes) == 0) return true;
    zmq_msg_init(&message_);
    return false;
  }
  // A message of the transport: a fixed text, and the data after it. False: out of memory.
  bool compose(std::string_view head, std::span<const std::byte> rest = {});
  std::span<std::byte> bytes() {
    return {static_cast<std::byte*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  bool is(std::string_view expected) { return text() == expected; }
  std::string_view text() {
    return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  // 0, or errno (EAGAIN: later). Repeats after EINTR.
  int send(void* socket, int flags = 0);
  int receive(void* socket);
  bool more() { return zmq_msg_more(&message_) != 0; }
  zmq_msg_t* raw() { return &message_; }

 private:
  zmq_msg_t message_;
};

// The frames of one lane that ZeroMQ has not accepted yet, oldest first. It keeps memory for the
// maximum number of waiting frames of a link, so that a step with a slow ZeroMQ does not allocate.
class Outbox {
 public:
  static constexpr size_t kRoom = 128;
  // Without borrowed payloads, for which the sender waits. A peer that reads has fewer before it: a
  // message of the longest kind (a welcome of 64 MiB), the requests or answers of a transfer (4
  // MiB), grants and heartbeats. One that sends requests and does not read the answers has more.
  static constexpr size_t kMostBytes = size_t{128} << 20;
  struct Frame {
    Message message;  // the whole frame, once built
    bool built = false;
    std::array<std::byte, kHeaderBytes> header{};
    std::span<const std::byte> payload;
    uint64_t token = 0;
  };

  bool empty() const { return frames_.empty(); }
  Frame& front() { return frames_.front(); }
  bool full() const { return bytes_ > kMostBytes; }
  void pop() { bytes_ -= bytes_of(frames_.pop()); }
  void push(Frame frame) {
    bytes_ += bytes_of(frame);
    frames_.push(std::move(frame));
  }
  void clear();
  void forget();  // removes the frames that are not built
  // Copies the payload after the header: into a slot of `slab` if one is free, or into memory of
  // ZeroMQ. False: out of memory.
  static bool build(Frame& frame, Slab* slab);
  bool build_all(Slab* slab);

 private:
  static size_t bytes_of(const Frame& frame) {
    return sizeof frame + (frame.token == 0 ? frame.payload.size() : 0);
  }

  Fifo<Frame> frames_{kRoom};
  size_t bytes_ = 0;  // of the waiting frames, without borrowed payloads
};

class Channel : public PollGroup::Member, public std::enable_shared_from_this<Channel> {
 public:
  explicit Channel(PollGroup& group)
      : group_(&group), timer_(std::in_place, group.loop(), [this] { expired_ = true; }) {
    sent_.reserve(Outbox::kRoom);
  }
  void start(Connection::Events& events) { events_ = &events; }
  // Both ends are on this machine and belong to one user.
  void share_memory() { shares_memory_ = true; }
  const std::string& peer() const { return peer_; }
  const PublicKey* key() const { return key_ ? &*key_ : nullptr; }
  const std::string& trouble() const { return trouble_; }
  void send(int lane, std::span<const std::byte> header, std::span<const std::byte> payload,
            uint64_t token);
  void forget();
  void close_after(int64_t linger_ms);
  void drop();  // the owner has been destroyed

  void send_waiting() override;
  bool ready() override;
  void after_wake() override;
  void end() override;

 protected:
  enum class State { connecting, open, closing, gone };

  // ---- of the two kinds ----
  // Gives the message to ZeroMQ: 0, EAGAIN, or another errno: the lane is lost.
  virtual int transmit(int lane, Message& message) = 0;
  // Whether ZeroMQ has a message to read, or accepts a waiting frame.
  virtual bool readable() = 0;
  // Calls deliver() and lane_lost(); returns true when all messages have been read.
  virtual bool read() = 0;
  virtual void close_sockets(int64_t linger_ms) = 0;
  // Whether the peer has what ZeroMQ was given, or does not need it.
  virtual bool has_arrived() const = 0;

  void set_peer(std::string peer) { peer_ = std::move(peer); }
  void set_key(const PublicKey& key) { key_ = key; }
  void set_trouble(const char* trouble) { trouble_ = trouble; }
  void open() { state_ = State::open; }
  bool is_connecting() const { return state_ == State::connecting; }
  bool is_live() const { return state_ == State::open || state_ == State::connecting; }
  bool is_gone() const { return state_ == State::gone; }
  PollGroup& group() { return *group_; }
  Connection::Events* events() { return is_live() ? events_ : nullptr; }
  void say(int lane, std::string_view head, std::span<const std::byte> rest = {});
  void deliver(int lane, std::span<const std::byte> frame);
  // False: the message is not about shared memory.
  bool take_slab_message(int lane, Message& message);
  void lane_ended(int lane);  // the peer has sent bye on it
  void lane_lost(int lane, const std::string& why);
  void fail(const std::string& why);  // both lanes at once
  bool waits(int lane) const { return !out_[static_cast<size_t>(lane)].empty(); }
  bool is_lost(int lane) const { return lost_[static_cast<size_t>(lane)]; }

 private:
  void push(int lane, Outbox::Frame frame);
  void offer_slab(int lane);
  Slab* slab() { return slab_taken_ ? outgoing_.get() : nullptr; }
  void take_slab_frame(int lane, std::span<const std::byte> message);
  void flush();
  void end_lane(int lane, const std::string& why);
  void report_sent();
  void report_loss();
  void begin_closing(int64_t linger_ms);
  bool is_closed() const { return !waits(0) && !waits(1) && has_arrived(); }
  void give_up();
  void finish_closing();
  void finish(int64_t linger_ms);
  void wake_in(int64_t ms);

  PollGroup* group_;
  std::string peer_, trouble_;
  std::optional<PublicKey> key_;
  State state_ = State::connecting;
  Connection::Events* events_ = nullptr;
  std::array<Outbox, kLanes> out_;
  bool shares_memory_ = false, slab_offered_ = false, slab_taken_ = false;
  std::unique_ptr<Slab> outgoing_, incoming_;
  std::array<bool, kLanes> lost_{};
  bool broken_ = false;         // a lane was lost without a bye
  bool refused_ = false;        // its frames are ignored from now on
  std::string why_;             // of the first lane that was lost
  std::vector<uint64_t> sent_;  // not reported yet
  std::optional<Loop::Timer> timer_;
  bool expired_ = false;
  int64_t deadline_ = 0;  // of closing, and of the wait for the lane that is not lost
};

// The object of the owner.
std::unique_ptr<Connection> make_connection(std::shared_ptr<Channel> channel);

}  // namespace weft
