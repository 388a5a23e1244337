#include "net/zap.h"

#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace weft {

namespace {

// A request: the session of ZeroMQ, an empty frame, version, id, domain, address, routing id,
// mechanism, and for CURVE the key.
constexpr size_t kRequestFrames = 9, kSession = 0, kId = 3, kDomain = 4, kMechanism = 7, kKey = 8;
// Less than the time of a handshake.
constexpr int64_t kHoldMs = 1000;

void send_text(Socket& socket, std::string_view text, bool more) {
  Message message;
  if (message.compose(text)) socket.send(message, more ? ZMQ_SNDMORE : 0);
}

}  // namespace

Result<std::shared_ptr<Zap>> Zap::make(PollGroup& group) {
  auto zap = std::make_shared<Zap>(group);
  WEFT_TRY_ASSIGN(zap->socket_, Socket::make(group.loop(), group.context(), ZMQ_ROUTER));
  if (zmq_bind(zap->socket_->raw(), "inproc://zeromq.zap.01") != 0)
    return system_failure("ZeroMQ: cannot authenticate", errno);
  group.add(zap);
  return zap;
}

void Zap::admit(std::vector<PublicKey> keys) {
  admitted_ = std::move(keys);
  answer_held();
}

bool Zap::ready() { return socket_ && (socket_->has_events() || socket_->ready(true, false)); }

void Zap::after_wake() {
  if (!socket_) return;
  if (socket_->has_events())
    for (SocketEvent event; socket_->next_event(&event);) {}
  while (read_request()) {}
}

// False: there is no request.
bool Zap::read_request() {
  std::array<Message, kRequestFrames> frames;
  size_t count = 0;
  for (bool more = true; more; ++count) {
    Message surplus;
    Message& frame = count < frames.size() ? frames[count] : surplus;
    if (socket_->receive(frame) != 0) return false;
    more = frame.more();
  }
  Request request{.session = std::move(frames[kSession]),
                  .id = std::move(frames[kId]),
                  .key = {},
                  .until = loop_.now_ms() + kHoldMs};
  if (count != kRequestFrames || !frames[kDomain].is(kZapDomain) ||
      !frames[kMechanism].is("CURVE") || frames[kKey].bytes().size() != request.key.size()) {
    answer(request, kZapRefused);
    return true;
  }
  std::memcpy(request.key.data(), frames[kKey].bytes().data(), request.key.size());
  if (const int status = judge(request.key); status != kZapTryAgain) {
    answer(request, status);
    return true;
  }
  held_.push_back(std::move(request));
  if (held_.size() == 1) timer_.start(kHoldMs);
  return true;
}

// A reply: session, empty frame, version, id, status, its text, the user (every message of the
// connection contains it), and no properties.
void Zap::answer(Request& request, int status) {
  Socket& socket = *socket_;
  if (socket.send(request.session, ZMQ_SNDMORE) != 0) return;  // the connection has ended
  for (const char* const text : {"", "1.0"}) send_text(socket, text, true);
  socket.send(request.id, ZMQ_SNDMORE);
  send_text(socket, to_text(status), true);
  send_text(socket, "", true);
  send_text(socket, status == kZapAdmitted ? key_text(request.key) : "", true);
  send_text(socket, "", false);
}

// Those that have been held for long are asked to try again.
void Zap::answer_held() {
  if (!socket_) return;
  const int64_t now = loop_.now_ms();
  std::erase_if(held_, [&](Request& request) {
    const int status = judge(request.key);
    if (status == kZapTryAgain && now < request.until) return false;
    answer(request, status);
    return true;
  });
  if (!held_.empty()) timer_.start(std::max<int64_t>(held_.front().until - now, 1));
}

int Zap::judge(const PublicKey& key) const {
  if (!admitted_) return kZapTryAgain;
  const bool is_admitted = std::find(admitted_->begin(), admitted_->end(), key) != admitted_->end();
  return is_admitted ? kZapAdmitted : kZapRefused;
}

}  // namespace weft
