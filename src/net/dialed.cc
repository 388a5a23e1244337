#include "net/dialed.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "net/router.h"
#include "net/socket.h"

namespace weft {

namespace {

constexpr int64_t kNotYet = -1, kKeyPatienceMs = 5000;
// A listener that closes connections is tried at first every 50 to 100 ms, then every 0.5 to 1 s.
constexpr int kQuickTries = 4, kSlowTriesMs = 500;
constexpr const char* kNoWeft = "the listener is not weft";

class Dialed final : public Channel {
 public:
  explicit Dialed(PollGroup& group) : Channel(group) {}

  Status connect(const std::string& endpoint, bool v6, const DialKeys* keys) {
    set_peer(endpoint);
    if (keys != nullptr) set_key(keys->server);
    // A random name, which no other process knows, connects the two lanes.
    RoutingId id{};
    if (getrandom(id.nonce, sizeof id.nonce, 0) != static_cast<ssize_t>(sizeof id.nonce))
      return Status(Code::io, "the system provides no random numbers");
    for (int lane = 0; lane < kLanes; ++lane) {
      auto& socket = sockets_[static_cast<size_t>(lane)];
      WEFT_TRY_ASSIGN(socket, Socket::make(group().loop(), group().context(), ZMQ_DEALER));
      id.lane = static_cast<char>('0' + lane);
      zmq_setsockopt(socket->raw(), ZMQ_ROUTING_ID, &id, sizeof id);
      socket->set(ZMQ_IPV6, v6 ? 1 : 0);
      if (keys != nullptr) socket->encrypt_to(keys->server, keys->own);
      if (zmq_connect(socket->raw(), endpoint.c_str()) != 0)
        return system_failure(cat("'", endpoint, "': cannot be dialed"), errno);
      say(lane, kHello);
    }
    return {};
  }

 private:
  int transmit(int lane, Message& message) override {
    // Only the hello is sent before the listener has accepted.
    const auto l = static_cast<size_t>(lane);
    if (said_hello_[l] && is_connecting()) return EAGAIN;
    const int error = sockets_[l]->send(message);
    if (error == 0) said_hello_[l] = true;
    return error;
  }

  bool readable() override {
    for (int lane = 0; lane < kLanes; ++lane) {
      Socket& socket = *sockets_[static_cast<size_t>(lane)];
      if (socket.has_events() || socket.ready(reads(lane), writes(lane))) return true;
    }
    return false;
  }

  bool writes(int lane) const {
    return waits(lane) && (!is_connecting() || !said_hello_[static_cast<size_t>(lane)]);
  }
  // An accepted lane waits for the other one.
  bool reads(int lane) const { return !is_connecting() || !accepted_[static_cast<size_t>(lane)]; }

  bool read() override {
    for (int lane = 0; lane < kLanes && !is_gone(); ++lane) read_events(lane);
    bool all = true;
    for (int lane = 0; lane < kLanes && !is_gone(); ++lane) all = read_lane(lane) && all;
    return all;
  }

  void read_events(int lane) {
    Socket& socket = *sockets_[static_cast<size_t>(lane)];
    if (!socket.has_events()) return;
    for (SocketEvent event; socket.next_event(&event);) take_event(lane, event);
    slow_down(lane);
  }

  void take_event(int lane, const SocketEvent& event) {
    switch (event.event) {
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        lane_lost(lane, fault_of_answer(event.value));
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        lane_lost(lane,
                  "the listener does not admit this key: expected a key that it allows, or "
                  "the join line of a run that still waits");
        break;
      // A tunnel accepted the connection but did not reach the listener, or the listener requests
      // another try.
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        turned_away_[static_cast<size_t>(lane)] = true;
        set_trouble(
            key() ? "the listener closes connections before the handshake, as if it expects "
                    "another key, or is not weft"
                  : "the listener closes connections before the handshake, as if it encrypts: "
                    "expected its join line, without --insecure");
        check_key_in_time(lane);
        ++refusals_[static_cast<size_t>(lane)];
        break;
      case ZMQ_EVENT_DISCONNECTED:
        if (!std::exchange(turned_away_[static_cast<size_t>(lane)], false) ||
            accepted_[static_cast<size_t>(lane)])
          lane_lost(lane,
                    key() && !shaken_[static_cast<size_t>(lane)] ? kNoWeft : "connection closed");
        break;
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: shaken_[static_cast<size_t>(lane)] = true; break;
      default:  // CLOSED: it is tried again
        set_trouble("no process listens there");
        refused_since_ = kNotYet;
        break;
    }
  }

  const char* fault_of_answer(int value) const {
    if (value != ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) return kNoWeft;
    return key() ? "the listener does not encrypt: it runs with --insecure, or is not weft"
                 : "the listener encrypts: expected its join line, without --insecure";
  }

  // A listener with another key than expected closes the connection without a message; so does one
  // that does not encrypt, if it is faster to notice that this side does.
  void check_key_in_time(int lane) {
    if (key() == nullptr) return;
    const int64_t now = group().loop().now_ms();
    if (refused_since_ == kNotYet) refused_since_ = now;
    if (now - refused_since_ < kKeyPatienceMs) return;
    lane_lost(lane,
              "the listener closes connections during the handshake: it has another key than "
              "the join line, runs with --insecure, or is not weft");
  }

  // ZeroMQ waits longer only while no connection is made, and an endpoint keeps its interval. The
  // hello is lost with the endpoint.
  void slow_down(int lane) {
    const auto l = static_cast<size_t>(lane);
    if (is_gone() || is_slow_[l] || shaken_[l] || refusals_[l] < kQuickTries) return;
    is_slow_[l] = true;
    Socket& socket = *sockets_[l];
    zmq_disconnect(socket.raw(), peer().c_str());
    socket.set(ZMQ_RECONNECT_IVL, kSlowTriesMs);
    if (zmq_connect(socket.raw(), peer().c_str()) != 0)
      return fail(cat("cannot be dialed again: ", zmq_strerror(errno)));
    Message hello;
    if (!hello.compose(kHello, {})) return fail("out of memory for a frame");
    if (const int error = socket.send(hello); error != 0)
      fail(cat("cannot send: ", zmq_strerror(error)));
  }

  bool read_lane(int lane) {
    size_t bytes = 0;
    for (int frames = 0; frames < kFramesPerTurn && bytes < kBytesPerTurn; ++frames) {
      if (is_gone() || !reads(lane)) return true;
      if (const int error = sockets_[static_cast<size_t>(lane)]->receive(message_); error != 0) {
        if (error != EAGAIN) fail(cat("cannot receive: ", zmq_strerror(error)));
        return true;
      }
      bytes += message_.bytes().size();
      take(lane);
    }
    return false;
  }

  void take(int lane) {
    if (is_connecting() && !message_.is(kAccepted) && !message_.is(kBye)) return fail(kNoWeft);
    if (message_.more() || in_parts_) {
      in_parts_ = message_.more();
      return fail("the peer sent a frame of several parts");
    }
    if (message_.bytes().size() >= kHeaderBytes) return deliver(lane, message_.bytes());
    if (!is_connecting() && take_slab_message(lane, message_)) return;
    if (message_.is(kBye)) return lane_ended(lane);
    if (!message_.is(kAccepted) || !is_connecting())
      return fail("the peer sent a frame without a header");
    accepted_[static_cast<size_t>(lane)] = true;
    if (!accepted_[0] || !accepted_[1]) return;
    open();
    if (events() != nullptr) events()->connected();
  }

  void close_sockets(int64_t linger_ms) override {
    for (auto& socket : sockets_) {
      if (socket) socket->set_linger(has_arrived() ? 0 : linger_ms);
      socket.reset();
    }
  }

  // If the listener closes before it has received all, ZeroMQ keeps trying to connect for the whole
  // time to linger. So the sockets stay open until each lane has brought the listener's bye or has
  // ended, and have nothing to send then.
  bool has_arrived() const override { return is_lost(0) && is_lost(1); }

  std::array<std::unique_ptr<Socket>, kLanes> sockets_;
  std::array<bool, kLanes> said_hello_{}, accepted_{}, turned_away_{}, shaken_{}, is_slow_{};
  std::array<int, kLanes> refusals_{};  // during the handshake
  bool in_parts_ = false;
  int64_t refused_since_ = kNotYet;  // during the handshake
  Message message_;
};

}  // namespace

Result<std::unique_ptr<Connection>> dial(PollGroup& group, const std::string& endpoint, bool v6,
                                         const DialKeys* keys, bool shares_memory) {
  auto channel = std::make_shared<Dialed>(group);
  if (shares_memory) channel->share_memory();
  WEFT_TRY(channel->connect(endpoint, v6, keys));
  auto connection = make_connection(channel);
  group.add(std::move(channel));
  return connection;
}

}  // namespace weft
