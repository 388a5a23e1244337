#include "net/socket.h"

#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "link/frame.h"
#include "net/channel.h"
#include "net/zap.h"

namespace weft {

namespace {

// Number of messages in a pipe of ZeroMQ on each side, in addition to the socket buffers of the
// kernel. Small, because plans do not include this memory.
constexpr int kFramesInPipe = 16;

constexpr int kWatched = ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED |
                         ZMQ_EVENT_CLOSED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                         ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                         ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

// The bytes that CURVE adds to a message: the name of its command, a nonce, flags and an
// authenticator. The limit is for the encrypted message.
constexpr int64_t kCurveBytes = 8 + 8 + 1 + 16;

// ZMQ_ZAP_ENFORCE_DOMAIN, which the header of this version declares only for drafts.
constexpr int kZapEnforceDomain = 93;

// Names of monitors, unique in the context.
constinit std::atomic<uint64_t> monitors = 0;

int pending(void* socket) {
  int events = 0;
  size_t size = sizeof events;
  return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 ? events : 0;
}

Result<std::unique_ptr<Loop::Waker>> watch(Loop& loop, void* socket) {
  int descriptor = -1;
  size_t size = sizeof descriptor;
  zmq_getsockopt(socket, ZMQ_FD, &descriptor, &size);
  return Loop::Waker::make(loop, descriptor);
}

Status failed(const char* what) { return system_failure(cat("ZeroMQ: ", what), errno); }

}  // namespace

Result<std::unique_ptr<Socket>> Socket::make(Loop& loop, void* context, int type) {
  std::unique_ptr<Socket> socket(new Socket);
  WEFT_TRY(socket->open(loop, context, type));
  return socket;
}

Status Socket::open(Loop& loop, void* context, int type) {
  socket_ = zmq_socket(context, type);
  if (socket_ == nullptr) return failed("cannot make a socket");
  set(ZMQ_LINGER, 0);
  set(ZMQ_SNDHWM, kFramesInPipe);
  set(ZMQ_RCVHWM, kFramesInPipe);
  // With IMMEDIATE, a dialed socket drops unread messages when it detects the loss of its
  // connection, including those with the reason. Without it, frames can be queued without a
  // connection; therefore none is sent before the listener has accepted the connection.
  set(ZMQ_IMMEDIATE, 0);
  set(ZMQ_HANDSHAKE_IVL, 2000);
  set(ZMQ_CONNECT_TIMEOUT, 2000);
  // Until the first connection; after it the socket is closed at the first loss. ZeroMQ adds up to
  // the first interval to each one.
  set(ZMQ_RECONNECT_IVL, 50);
  set(ZMQ_RECONNECT_IVL_MAX, 500);
  // Only the heartbeats of weft and LinkTimes::silence decide whether a silent peer is lost.
  // ZeroMQ's heartbeats report a loss during a long frame on a slow link. TCP keepalive and a short
  // TCP_USER_TIMEOUT close a link that loses packets but still makes progress.
  set(ZMQ_BACKLOG, 64);
  set_most(kMaxFrame);
  if (type == ZMQ_ROUTER) {
    set(ZMQ_ROUTER_MANDATORY, 1);
    set(ZMQ_ROUTER_HANDOVER, 1);
  }

  const std::string name = cat("inproc://weft-monitor-", monitors.fetch_add(1));
  if (zmq_socket_monitor(socket_, name.c_str(), kWatched) != 0)
    return failed("cannot monitor a socket");
  monitor_ = zmq_socket(context, ZMQ_PAIR);
  if (monitor_ == nullptr) return failed("cannot make a socket");
  const int zero = 0;
  zmq_setsockopt(monitor_, ZMQ_LINGER, &zero, sizeof zero);
  zmq_setsockopt(monitor_, ZMQ_RCVHWM, &zero,
                 sizeof zero);  // no limit: a dropped event would be an undetected loss
  if (zmq_connect(monitor_, name.c_str()) != 0) return failed("cannot monitor a socket");
  WEFT_TRY_ASSIGN(messages_.waker, watch(loop, socket_));
  WEFT_TRY_ASSIGN(events_.waker, watch(loop, monitor_));
  return {};
}

Socket::~Socket() {
  messages_.waker.reset();
  events_.waker.reset();
  if (socket_ != nullptr) {
    set(ZMQ_LINGER, static_cast<int>(std::clamp<int64_t>(linger_, 0, 60000)));
    zmq_socket_monitor(socket_, nullptr, 0);
    zmq_close(socket_);
  }
  if (monitor_ != nullptr) zmq_close(monitor_);
}

void Socket::set(int option, int value) {
  [[maybe_unused]] const int result = zmq_setsockopt(socket_, option, &value, sizeof value);
  assert(result == 0);
}

void Socket::set_key(int option, const std::array<unsigned char, kKeyBytes>& key) {
  [[maybe_unused]] const int result = zmq_setsockopt(socket_, option, key.data(), key.size());
  assert(result == 0);
}

void Socket::set_most(int64_t bytes) {
  zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &bytes, sizeof bytes);
}

void Socket::encrypt_as(const SecretKey& own) {
  set(ZMQ_CURVE_SERVER, 1);
  set_key(ZMQ_CURVE_SECRETKEY, own.bytes());
  zmq_setsockopt(socket_, ZMQ_ZAP_DOMAIN, kZapDomain, std::strlen(kZapDomain));
  // Without an authenticator, no peer may connect. Not every build of ZeroMQ has the option.
  const int enforced = 1;
  zmq_setsockopt(socket_, kZapEnforceDomain, &enforced, sizeof enforced);
  set_most(kMaxFrame + kCurveBytes);
}

void Socket::encrypt_to(const PublicKey& server, const KeyPair& own) {
  set_key(ZMQ_CURVE_SERVERKEY, server);
  set_key(ZMQ_CURVE_PUBLICKEY, own.public_key);
  set_key(ZMQ_CURVE_SECRETKEY, own.secret.bytes());
  set_most(kMaxFrame + kCurveBytes);
}

int Socket::send(Message& message, int flags) {
  messages_.settled = false;
  return message.send(socket_, flags);
}

int Socket::receive(Message& message) {
  if (messages_.is_settled()) return EAGAIN;
  const int error = message.receive(socket_);
  messages_.settled = error == EAGAIN;
  return error;
}

// Room to send that was missing makes the descriptor readable, too.
bool Socket::ready(bool to_read, bool to_send) {
  if (messages_.is_settled()) return false;
  const int events = pending(socket_);
  messages_.settled = (events & ZMQ_POLLIN) == 0;
  return (to_read && (events & ZMQ_POLLIN) != 0) || (to_send && (events & ZMQ_POLLOUT) != 0);
}

bool Socket::has_events() {
  if (events_.is_settled()) return false;
  events_.settled = (pending(monitor_) & ZMQ_POLLIN) == 0;
  return !events_.settled;
}

bool Socket::wait_event(int ms) {
  zmq_pollitem_t item{monitor_, 0, ZMQ_POLLIN, 0};
  int ready;
  do ready = zmq_poll(&item, 1, ms);
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool Socket::next_event(SocketEvent* event) {
  // Two frames: event (16 bits) and value (32 bits);
  // the endpoint, which is known.
  zmq_msg_t message;
  zmq_msg_init(&message);
  int bytes;
  do bytes = zmq_msg_recv(&message, monitor_, ZMQ_DONTWAIT);
  while (bytes < 0 && errno == EINTR);
  events_.settled = bytes < 0 && errno == EAGAIN;
  const bool found = bytes == 6;
  if (found) {
    uint16_t kind;
    int32_t value;
    std::memcpy(&kind, zmq_msg_data(&message), sizeof kind);
    std::memcpy(&value, static_cast<const char*>(zmq_msg_data(&message)) + sizeof kind,
                sizeof value);
    *event = {kind, value};
  }
  while (bytes >= 0 && zmq_msg_more(&message) != 0)
    bytes = zmq_msg_recv(&message, monitor_, ZMQ_DONTWAIT);
  zmq_msg_close(&message);
  return found;
}

}  // namespace weft
