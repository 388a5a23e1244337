#include "net/router.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "loop/descriptors.h"
#include "net/zap.h"

namespace weft {

namespace {

// Whether the message can be from a peer that has ended: ZeroMQ can report the end of a connection
// before its last messages, and the descriptor can belong to another connection by then.
bool is_late(Message& message) {
  const std::span<const std::byte> bytes = message.bytes();
  return message.is(kBye) || message.text().starts_with(kSlab) ||
         (bytes.size() >= kHeaderBytes && std::memcmp(bytes.data(), "WEFT", 4) == 0);
}

// The key that ZAP reported for the connection of the message; none without encryption.
std::optional<PublicKey> proved_key(Message& message) {
  const char* const user = zmq_msg_gets(message.raw(), "User-Id");
  if (user == nullptr) return std::nullopt;
  auto key = read_public_key(user, "the key of a connection");
  if (!key.ok()) return std::nullopt;
  return key.take();
}

}  // namespace

// A peer that dialed us. The router reads for it.
class Accepted final : public Channel {
 public:
  Accepted(PollGroup& group, std::shared_ptr<Router> router, const Router::Nonce& nonce,
           const std::string& peer, const std::optional<PublicKey>& key)
      : Channel(group), router_(std::move(router)), nonce_(nonce) {
    set_peer(peer);
    if (key) set_key(*key);
    for (int lane = 0; lane < kLanes; ++lane) say(lane, kAccepted);
    open();
  }
  bool is_started() { return events() != nullptr; }
  void received(int lane, Message& message) {
    if (message.is(kBye)) {
      lane_ended(lane);
      return say(lane, kBye);  // a dialer that closes waits for it
    }
    if (take_slab_message(lane, message)) return;
    if (message.bytes().size() < kHeaderBytes)
      return fail("the peer sent a frame without a header");
    deliver(lane, message.bytes());
  }
  using Channel::fail;
  using Channel::lane_lost;

 private:
  int transmit(int lane, Message& message) override {
    return router_->transmit(nonce_, lane, message);
  }
  bool readable() override { return false; }
  bool read() override { return router_->all_read(); }
  void close_sockets(int64_t linger_ms) override {
    std::exchange(router_, nullptr)->forget(nonce_, linger_ms);
  }
  bool has_arrived() const override { return true; }  // ZeroMQ sends it, for the time to linger

  std::shared_ptr<Router> router_;
  const Router::Nonce nonce_;
};

namespace {

// The listening socket, and one to read addresses.
constexpr int kDescriptors = 2;

Status cannot_listen(const std::string& endpoint, int error) {
  switch (error) {
    case EADDRINUSE: return Status(Code::state, cat("'", endpoint, "': the port is taken"));
    case EADDRNOTAVAIL:
    case ENODEV:
      return Status(Code::invalid,
                    cat("'", endpoint, "': this machine does not have this address"));
    default: return system_failure(cat("'", endpoint, "': cannot listen"), error);
  }
}

}  // namespace

Result<std::shared_ptr<Router>> Router::make(PollGroup& group, const std::string& endpoint, bool v6,
                                             const SecretKey* secret, IpcPlace place, Accept accept,
                                             Refused refused) {
  auto router = std::make_shared<Router>(group, std::move(accept), std::move(refused));
  WEFT_TRY_ASSIGN(router->socket_, Socket::make(group.loop(), group.context(), ZMQ_ROUTER));
  router->place_ = std::move(place);
  router->socket_->set(ZMQ_IPV6, v6 ? 1 : 0);
  if (secret != nullptr) {
    router->encrypts_ = true;
    router->socket_->encrypt_as(*secret);
  }
  // ZeroMQ ends the process if it cannot read the addresses of the machine.
  WEFT_TRY(spare_descriptors(kDescriptors, cat("'", endpoint, "': cannot listen")));
  if (zmq_bind(router->socket_->raw(), endpoint.c_str()) != 0)
    return cannot_listen(endpoint, errno);
  char text[256];
  size_t size = sizeof text;
  zmq_getsockopt(router->socket_->raw(), ZMQ_LAST_ENDPOINT, text, &size);
  router->bound_ = text;
  group.add(router);
  return router;
}

Router::~Router() = default;

void Router::serve_own_user(bool shares_memory) {
  only_user_ = geteuid();
  shares_memory_ = shares_memory;
}

void Router::stop_accepting() {
  accepting_ = false;
  if (listening_ >= 0) drop_newcomers(listening_);
  std::erase_if(peers_, [](const auto& peer) { return !peer.second.channel; });
  close_if_idle();
}

bool Router::ready() { return socket_ && (socket_->has_events() || socket_->ready(true, false)); }

void Router::after_wake() {
  // First reads the losses, then all messages: messages that a peer sent before it was lost are
  // delivered before its loss is reported.
  if (socket_ && socket_->has_events()) read_events();
  size_t bytes = 0;
  all_read_ = false;
  for (int frames = 0; frames < kFramesPerTurn && bytes < kBytesPerTurn; ++frames)
    if (!socket_ || !read_frame(&bytes)) {
      all_read_ = true;
      break;
    }
  if (all_read_) forget_closed_streams();
}

void Router::end() {
  accepting_ = false;
  close();
}

void Router::read_events() {
  for (SocketEvent event; socket_ && socket_->next_event(&event);) take_event(event);
}

void Router::take_event(const SocketEvent& event) {
  switch (event.event) {
    case ZMQ_EVENT_LISTENING: listening_ = event.value; break;
    case ZMQ_EVENT_ACCEPTED:
      streams_.push_back({.descriptor = event.value, .peer = peer_of(event.value, bound_)});
      break;
    // These events do not identify the connection. ZeroMQ closes it at once and then identifies
    // it, but a connection that is not admitted gets its reason first.
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL: handshake_error_ = event; break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: not_admitted_.push_back(event); break;
    case ZMQ_EVENT_DISCONNECTED: {
      const SocketEvent error = std::exchange(handshake_error_, {});
      if (Stream* stream = find_stream(event.value)) close_stream(*stream, error);
      lost(event.value);
      break;
    }
    default: break;
  }
}

// A connection with this descriptor is open: the descriptor is reused.
Router::Stream* Router::find_stream(int descriptor) {
  const auto at = std::find_if(streams_.begin(), streams_.end(), [&](const Stream& s) {
    return s.descriptor == descriptor && !s.closed;
  });
  return at == streams_.end() ? nullptr : &*at;
}

namespace {

const char* end_of(const SocketEvent& handshake_error, bool encrypts) {
  switch (handshake_error.event) {
    case 0:  // with encryption, bytes of a protocol without encryption end like this
      return encrypts ? "not a weft connection: expected ZeroMQ's handshake, found something else"
                      : "not a weft connection: it ended before its handshake";
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      return "not a weft connection: expected ZeroMQ's handshake, which did not arrive within 2 s "
             "or before the end";
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: return "its key is not admitted";
    default: break;
  }
  switch (handshake_error.value) {
    case ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
      return encrypts ? "it does not encrypt: expected the join line, and no --insecure"
                      : "it encrypts: expected --insecure on that side, too";
    case ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
      return "it expects another key here, as in an old join line";
    default: return "not a weft connection: expected ZeroMQ's handshake, found something else";
  }
}

}  // namespace

void Router::refuse(Stream& stream, std::string_view why) {
  if (stream.refused || stream.greeted || !accepting_) return;
  stream.refused = true;
  refused_(stream.peer, std::string(why));
}

// The frame is in id_ and message_.
void Router::refuse_frame(int descriptor) {
  read_events();
  const auto at = std::find_if(streams_.rbegin(), streams_.rend(),
                               [&](const Stream& s) { return s.descriptor == descriptor; });
  if (at == streams_.rend()) return;
  const std::string_view id = id_.text(), frame = message_.text();
  // ZeroMQ makes names that begin with a zero byte for connections without a name; then the
  // received bytes are more useful.
  const bool named = !id.empty() && id[0] != 0;
  if (named && id.size() != sizeof(RoutingId))
    return refuse(*at, cat("not a weft connection: expected a name of ", sizeof(RoutingId),
                           " bytes, found ", id.size(), ": ", quoted(id)));
  refuse(*at, cat("not a weft connection: expected ", quoted(kHello), ", found ", frame.size(),
                  " bytes: ", quoted(frame)));
}

void Router::close_stream(Stream& stream, SocketEvent handshake_error) {
  stream.closed = true;
  const bool protocol = handshake_error.event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  if (!stream.greeted && !protocol && !not_admitted_.empty()) {
    handshake_error = not_admitted_.front();
    not_admitted_.erase(not_admitted_.begin());
  }
  stream.how = end_of(handshake_error, encrypts_);
  if (handshake_error.event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH &&
      handshake_error.value == kZapTryAgain)
    stream.refused = true;
}

// Their messages have been read, and would have given a better reason.
void Router::forget_closed_streams() {
  for (Stream& stream : streams_)
    if (stream.closed) refuse(stream, stream.how);
  std::erase_if(streams_, [](const Stream& stream) { return stream.closed; });
}

bool Router::read_frame(size_t* bytes) {
  if (socket_->receive(id_) != 0) return false;
  bool parts = false;
  if (socket_->receive(message_) != 0) return false;
  *bytes += message_.bytes().size();
  RoutingId id;
  const bool known = id_.bytes().size() == sizeof id;
  if (known) std::memcpy(&id, id_.bytes().data(), sizeof id);
  const int descriptor = zmq_msg_get(message_.raw(), ZMQ_SRCFD);
  Message rest;
  for (bool more = message_.more(); more && socket_->receive(rest) == 0; more = rest.more())
    parts = true;
  if (!known || (id.lane != '0' && id.lane != '1')) {
    refuse_frame(descriptor);
    return true;
  }

  Nonce nonce;
  std::copy_n(id.nonce, nonce.size(), nonce.begin());
  const int lane = id.lane - '0';
  const auto at = peers_.find(nonce);
  if (at == peers_.end() || at->second.descriptor[static_cast<size_t>(lane)] < 0) {
    if (!parts && message_.is(kHello))
      greet(nonce, lane, descriptor, message_);
    else if (!is_late(message_))
      refuse_frame(descriptor);
    return true;
  }
  // Another connection with the same name, or the same one after a loss that has not been reported
  // yet. It was not accepted.
  if (at->second.descriptor[static_cast<size_t>(lane)] != descriptor) return true;
  const std::shared_ptr<Accepted> channel = at->second.channel;
  if (!channel) return true;
  if (parts)
    channel->fail("the peer sent a frame of several parts");
  else
    channel->received(lane, message_);
  return true;
}

void Router::greet(const Nonce& nonce, int lane, int descriptor, Message& hello) {
  if (!accepting_) {
    Message bye;
    if (bye.compose(kBye)) transmit(nonce, lane, bye);
    return;
  }
  // Descriptors are reused. The events of the monitor up to here are about earlier connections with
  // this descriptor, or about its end.
  read_events();
  Stream* stream = find_stream(descriptor);
  if (stream == nullptr) return;
  if (only_user_ != kAnyUser)
    if (const uid_t user = user_of(descriptor); user != only_user_ && user != 0)
      return refuse(*stream, cat("it belongs to user ", user, ", expected user ", only_user_));
  const std::optional<PublicKey> key = proved_key(hello);
  const auto other_lane = peers_.find(nonce);
  if ((encrypts_ && !key) || (other_lane != peers_.end() && other_lane->second.key != key))
    return refuse(*stream, "its key was not proved");
  stream->greeted = true;
  lost(descriptor);
  Peer& peer = peers_[nonce];
  peer.key = key;
  peer.descriptor[static_cast<size_t>(lane)] = descriptor;
  if (peer.descriptor[0] < 0 || peer.descriptor[1] < 0) return;
  const auto channel =
      std::make_shared<Accepted>(group_, shared_from_this(), nonce, stream->peer, key);
  if (shares_memory_) channel->share_memory();
  group_.add(channel);  // first, because the group closes its members at the end
  peer.channel = channel;
  accept_(make_connection(channel));
  if (!channel->is_started()) channel->drop();
}

void Router::lost(int descriptor) {
  for (auto at = peers_.begin(); at != peers_.end();) {
    Peer& peer = at->second;
    bool gone = false;
    for (int lane = 0; lane < kLanes; ++lane) {
      int& own = peer.descriptor[static_cast<size_t>(lane)];
      if (own != descriptor) continue;
      if (peer.channel)
        peer.channel->lane_lost(lane, "connection closed");
      else
        gone = true;
    }
    at = gone ? peers_.erase(at) : std::next(at);
  }
}

int Router::transmit(const Nonce& nonce, int lane, Message& message) {
  if (!socket_) return EHOSTUNREACH;
  RoutingId id;
  id.lane = static_cast<char>('0' + lane);
  std::copy(nonce.begin(), nonce.end(), id.nonce);
  Message to;
  if (!to.allocate(sizeof id)) return ENOMEM;
  std::memcpy(to.bytes().data(), &id, sizeof id);
  const int error = socket_->send(to, ZMQ_SNDMORE);
  if (error == EAGAIN) again_.start(1);
  return error != 0 ? error : socket_->send(message);
}

void Router::forget(const Nonce& nonce, int64_t linger_ms) {
  linger_until_ = std::max(linger_until_, group_.loop().now_ms() + linger_ms);
  peers_.erase(nonce);
  close_if_idle();
}

void Router::close_if_idle() {
  if (!accepting_ && peers_.empty()) close();
}

void Router::close() {
  if (!socket_) return;
  const int64_t linger = std::max<int64_t>(linger_until_ - group_.loop().now_ms(), 0);
  socket_->set(ZMQ_LINGER, static_cast<int>(linger));
  socket_->set_linger(linger);
  // The thread of ZeroMQ closes the address; only then can another listener use it. This takes
  // microseconds.
  zmq_unbind(socket_->raw(), bound_.c_str());
  for (bool closed = false; !closed && socket_->wait_event(1000);)
    for (SocketEvent event; socket_->next_event(&event);)
      closed = closed || event.event == ZMQ_EVENT_CLOSED;
  const auto self = shared_from_this();
  socket_.reset();
  place_ = IpcPlace();
  group_.remove(*this);
}

}  // namespace weft
