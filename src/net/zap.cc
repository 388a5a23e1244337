#include "net/zap.h"

#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace weft {

namespace {

// A request: version, id, domain, address, routing id, mechanism, and for CURVE the key.
constexpr size_t kRequestFrames = 7, kId = 1, kDomain = 2, kMechanism = 5, kKey = 6;

bool send_text(Socket& socket, std::string_view text, bool more) {
  Message message;
  if (!message.allocate(text.size())) return false;
  if (!text.empty()) std::memcpy(message.bytes().data(), text.data(), text.size());
  return socket.send(message, more ? ZMQ_SNDMORE : 0) == 0;
}

}  // namespace

Result<std::shared_ptr<Zap>> Zap::make(PollGroup& group) {
  auto zap = std::make_shared<Zap>();
  WEFT_TRY_ASSIGN(zap->socket_, Socket::make(group.loop(), group.context(), ZMQ_REP));
  if (zmq_bind(zap->socket_->raw(), "inproc://zeromq.zap.01") != 0)
    return system_failure("ZeroMQ: cannot authenticate", errno);
  group.add(zap);
  return zap;
}

void Zap::admit(std::vector<PublicKey> keys, bool more) {
  admitted_ = std::move(keys);
  more_ = more;
}

bool Zap::ready() { return socket_ && (socket_->has_events() || socket_->ready(true, false)); }

void Zap::after_wake() {
  if (!socket_) return;
  if (socket_->has_events())
    for (SocketEvent event; socket_->next_event(&event);) {}
  while (answer()) {}
}

// False: there is no request.
bool Zap::answer() {
  std::array<Message, kRequestFrames> frames;
  size_t count = 0;
  for (bool more = true; more; ++count) {
    Message surplus;
    Message& frame = count < frames.size() ? frames[count] : surplus;
    if (socket_->receive(frame) != 0) return false;
    more = frame.more();
  }
  int status = kZapRefused;
  PublicKey key{};
  if (count == kRequestFrames && frames[kDomain].is(kZapDomain) && frames[kMechanism].is("CURVE") &&
      frames[kKey].bytes().size() == key.size()) {
    std::memcpy(key.data(), frames[kKey].bytes().data(), key.size());
    status = judge(key);
  }
  const std::span<const std::byte> id = frames[kId].bytes();
  Socket& socket = *socket_;
  // A reply: version, id, status, its text, the user (every message of the connection contains it),
  // and no properties.
  return send_text(socket, "1.0", true) &&
         send_text(socket, {reinterpret_cast<const char*>(id.data()), id.size()}, true) &&
         send_text(socket, to_text(status), true) && send_text(socket, "", true) &&
         send_text(socket, status == 200 ? key_text(key) : "", true) &&
         send_text(socket, "", false);
}

int Zap::judge(const PublicKey& key) const {
  if (std::find(admitted_.begin(), admitted_.end(), key) != admitted_.end()) return 200;
  return more_ ? kZapTryAgain : kZapRefused;
}

}  // namespace weft
