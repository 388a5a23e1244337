#include "net/channel.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace weft {

namespace {

// If a peer dies, both lanes are lost within a millisecond. If only one is lost, the other may
// still bring the reason: the time to wait after its last frame, and at most.
constexpr int64_t kOtherLaneMs = 50, kMostOtherLaneMs = 1000;
// The time to wait for a peer that does not read, to send it the end of the connection.
constexpr int64_t kByeMs = 1000;

// The data after the text. False: it has another size.
template <typename T>
bool read_rest(std::span<const std::byte> message, std::string_view head, T& out) {
  if (message.size() != head.size() + sizeof out) return false;
  std::memcpy(&out, message.data() + head.size(), sizeof out);
  return true;
}

class Handle final : public Connection {
 public:
  explicit Handle(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
  ~Handle() override { channel_->drop(); }
  void start(Events& events) override { channel_->start(events); }
  void send(int lane, std::span<const std::byte> header, std::span<const std::byte> payload,
            uint64_t token) override {
    channel_->send(lane, header, payload, token);
  }
  void forget() override { channel_->forget(); }
  void close_after(int64_t linger_ms) override { channel_->close_after(linger_ms); }
  const std::string& peer() const override { return channel_->peer(); }
  const PublicKey* key() const override { return channel_->key(); }
  const std::string& trouble() const override { return channel_->trouble(); }

 private:
  std::shared_ptr<Channel> channel_;
};

}  // namespace

std::unique_ptr<Connection> make_connection(std::shared_ptr<Channel> channel) {
  return std::make_unique<Handle>(std::move(channel));
}

bool Message::compose(std::string_view head, std::span<const std::byte> rest) {
  if (!allocate(head.size() + rest.size())) return false;
  std::memcpy(bytes().data(), head.data(), head.size());
  if (!rest.empty()) std::memcpy(bytes().data() + head.size(), rest.data(), rest.size());
  return true;
}

int Message::send(void* socket, int flags) {
  for (;;) {
    if (zmq_msg_send(&message_, socket, flags | ZMQ_DONTWAIT) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

int Message::receive(void* socket) {
  for (;;) {
    if (zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

void Outbox::clear() {
  frames_.clear();
  bytes_ = 0;
}

void Outbox::forget() {
  frames_.remove([this](const Frame& frame) {
    if (!frame.built) bytes_ -= bytes_of(frame);
    return !frame.built;
  });
}

bool Outbox::build(Frame& frame, Slab* slab) {
  if (frame.built) return true;
  const bool large = frame.payload.size() >= Slab::kLeastPayload;
  if (std::byte* const slot = slab != nullptr && large ? slab->take() : nullptr) {
    std::memcpy(slot, frame.header.data(), kHeaderBytes);
    std::memcpy(slot + kHeaderBytes, frame.payload.data(), frame.payload.size());
    const std::array<uint32_t, 2> place = {
        slab->index_of(slot), static_cast<uint32_t>(kHeaderBytes + frame.payload.size())};
    frame.built = frame.message.compose(kSlabFrame, std::as_bytes(std::span(place)));
    return frame.built;
  }
  if (!frame.message.allocate(kHeaderBytes + frame.payload.size())) return false;
  const std::span<std::byte> bytes = frame.message.bytes();
  std::memcpy(bytes.data(), frame.header.data(), kHeaderBytes);
  if (!frame.payload.empty())
    std::memcpy(bytes.data() + kHeaderBytes, frame.payload.data(), frame.payload.size());
  frame.built = true;
  return true;
}

bool Outbox::build_all(Slab* slab) {
  for (size_t i = 0; i < frames_.size(); ++i)
    if (!build(frames_[i], slab)) return false;
  return true;
}

void Channel::send(int lane, std::span<const std::byte> header, std::span<const std::byte> payload,
                   uint64_t token) {
  assert(header.size() == kHeaderBytes && payload.size() <= kMaxPayload);
  if (!is_live() || is_lost(lane)) return;
  Outbox::Frame frame;
  std::copy(header.begin(), header.end(), frame.header.begin());
  frame.payload = payload;
  frame.token = token;
  if (shares_memory_ && payload.size() >= Slab::kLeastPayload) offer_slab(lane);
  if (token == 0 && !Outbox::build(frame, slab())) return fail("out of memory for a frame");
  push(lane, std::move(frame));
}

void Channel::say(int lane, std::string_view head, std::span<const std::byte> rest) {
  Outbox::Frame frame;
  if (!frame.message.compose(head, rest)) return fail("out of memory for a frame");
  frame.built = true;
  push(lane, std::move(frame));
}

void Channel::push(int lane, Outbox::Frame frame) {
  Outbox& out = out_[static_cast<size_t>(lane)];
  if (out.full()) return fail("the peer does not read");
  out.push(std::move(frame));
}

void Channel::forget() {
  for (Outbox& out : out_) out.forget();
}

void Channel::close_after(int64_t linger_ms) {
  if (!is_live()) return;
  if (state_ == State::connecting) return give_up();  // nothing has been sent to the peer
  for (Outbox& out : out_)
    if (!out.build_all(slab())) out.clear();
  begin_closing(linger_ms);
}

void Channel::drop() {
  events_ = nullptr;
  if (!is_live()) return;
  for (Outbox& out : out_) out.clear();
  if (state_ == State::connecting) return finish(0);
  begin_closing(kByeMs);
}

// The next turn of the loop finishes.
void Channel::give_up() {
  for (Outbox& out : out_) out.clear();
  state_ = State::closing;
  deadline_ = group_->loop().now_ms();
  expired_ = true;
}

void Channel::begin_closing(int64_t linger_ms) {
  state_ = State::closing;
  deadline_ = group_->loop().now_ms() + linger_ms;
  expired_ = false;
  wake_in(linger_ms);
  const Status said = attempt([this] {
    for (int lane = 0; lane < kLanes; ++lane)
      if (!is_lost(lane)) say(lane, kBye);
    // Sends at once, because the event loop may not run again.
    flush();
  });
  if (!said.ok()) give_up();  // out of memory
  // Otherwise later, because an owner is not called from within its call.
  if (events_ == nullptr && (is_closed() || expired_)) finish_closing();
}

void Channel::finish_closing() {
  finish(std::max<int64_t>(deadline_ - group_->loop().now_ms(), 0));
}

void Channel::finish(int64_t linger_ms) {
  if (state_ == State::gone) return;
  state_ = State::gone;
  events_ = nullptr;
  for (Outbox& out : out_) out.clear();
  timer_.reset();
  const auto self = shared_from_this();
  close_sockets(linger_ms);
  group_->remove(*this);
}

void Channel::end() {
  if (state_ == State::gone) return;
  if (is_live()) {
    drop();
    if (state_ == State::gone) return;
  }
  (void)attempt([this] { flush(); });
  finish_closing();
}

// Sends from each lane until ZeroMQ does not accept more.
void Channel::flush() {
  for (int lane = 0; lane < kLanes; ++lane) {
    Outbox& out = out_[static_cast<size_t>(lane)];
    while (!out.empty()) {
      Outbox::Frame& frame = out.front();
      if (!Outbox::build(frame, slab())) return fail("out of memory for a frame");
      const int error = transmit(lane, frame.message);
      if (error == EAGAIN) break;
      if (error != 0) {
        lane_lost(lane, error == EHOSTUNREACH ? "connection closed"
                                              : cat("cannot send: ", zmq_strerror(error)));
        break;
      }
      if (frame.token != 0) sent_.push_back(frame.token);
      out.pop();
    }
  }
}

void Channel::send_waiting() {
  if (state_ != State::gone) flush();
}

bool Channel::ready() {
  if (state_ == State::gone) return false;
  return !sent_.empty() || expired_ || (is_live() && lost_[0] && lost_[1]) ||
         (state_ == State::closing && is_closed()) || readable();
}

void Channel::after_wake() {
  const bool all_read = read();
  if (state_ == State::gone) return;
  flush();
  report_sent();
  if (state_ == State::closing) {
    if (!is_closed() && !expired_) return;
    Connection::Events* const events = events_;
    finish_closing();
    if (events != nullptr) events->closed();
    return;
  }
  if (all_read) report_loss();
}

void Channel::report_sent() {
  // The owner may send again, which adds to the list, or destroy the connection.
  for (size_t i = 0; i < sent_.size(); ++i)
    if (events() != nullptr) events()->sent(sent_[i]);
  sent_.clear();
}

void Channel::report_loss() {
  const bool both = lost_[0] && lost_[1];
  if (!both && !(expired_ && (lost_[0] || lost_[1]))) return;
  Connection::Events* events = events_;
  const std::string why = why_;
  events_ = nullptr;
  if (!both && state_ == State::open) {  // the peer may still be connected on the other lane
    for (Outbox& out : out_) out.clear();
    begin_closing(0);
  }
  if (both && (waits(0) || waits(1)))  // a listener's answers to byes
    begin_closing(kByeMs);
  else
    finish(0);
  if (events != nullptr) events->disconnected(why);
}

void Channel::deliver(int lane, std::span<const std::byte> frame) {
  if (refused_) return;
  if (broken_ && !expired_)
    wake_in(std::clamp<int64_t>(deadline_ - group_->loop().now_ms(), 0, kOtherLaneMs));
  if (Connection::Events* to = events(); to != nullptr) to->received(lane, frame);
}

// Until the peer has accepted it, and if the peer cannot open it, payloads use the socket.
void Channel::offer_slab(int lane) {
  if (slab_offered_ || state_ != State::open) return;
  slab_offered_ = true;
  outgoing_ = Slab::make();
  if (!outgoing_) return;
  const SlabOffer offer = outgoing_->offer();
  say(lane, kSlabOffer, std::as_bytes(std::span(&offer, 1)));
}

bool Channel::take_slab_message(int lane, Message& message) {
  if (!message.text().starts_with(kSlab)) return false;
  if (message.text().starts_with(kSlabFrame)) {
    take_slab_frame(lane, message.bytes());
    return true;
  }
  if (SlabOffer offer; message.text().starts_with(kSlabOffer)) {
    if (incoming_ || !read_rest(message.bytes(), kSlabOffer, offer)) return false;
    if (shares_memory_) incoming_ = Slab::open(offer);
    say(lane, incoming_ ? kSlabTaken : kSlabRefused);
    return true;
  }
  const bool answers = message.is(kSlabTaken) || message.is(kSlabRefused);
  if (!answers || !outgoing_ || slab_taken_) return false;
  slab_taken_ = message.is(kSlabTaken);
  if (slab_taken_)
    outgoing_->close_descriptor();
  else
    outgoing_.reset();
  return true;
}

void Channel::take_slab_frame(int lane, std::span<const std::byte> message) {
  std::array<uint32_t, 2> place{};
  std::span<const std::byte> frame;
  if (incoming_ && read_rest(message, kSlabFrame, place))
    frame = incoming_->read(place[0], place[1]);
  if (frame.empty()) return fail("the peer sent a frame in memory that it does not share");
  deliver(lane, frame);
  incoming_->release(place[0]);
}

void Channel::lane_ended(int lane) {
  if (!refused_) why_.clear();  // a bye explains a loss that was detected before the bye was read
  end_lane(lane, "the peer closed the connection");
}

void Channel::lane_lost(int lane, const std::string& why) {
  if (is_lost(lane)) return out_[static_cast<size_t>(lane)].clear();
  end_lane(lane, why);
  if (!is_live() || broken_) return;
  broken_ = true;
  deadline_ = group_->loop().now_ms() + kMostOtherLaneMs;
  wake_in(kOtherLaneMs);
}

void Channel::end_lane(int lane, const std::string& why) {
  lost_[static_cast<size_t>(lane)] = true;
  out_[static_cast<size_t>(lane)].clear();
  if (why_.empty()) why_ = why;
}

void Channel::fail(const std::string& why) {
  refused_ = true;
  why_ = why;
  for (int lane = 0; lane < kLanes; ++lane) lane_lost(lane, why);
  expired_ = true;  // there is nothing to wait for
}

void Channel::wake_in(int64_t ms) {
  if (timer_) timer_->start(ms);
}

}  // namespace weft
