// A ZeroMQ socket on the event loop, with its monitor. Both descriptors only wake the loop; the
// group checks and reads the sockets, so that no wake-up is lost.
//
// Asking ZeroMQ whether a message has arrived takes two system calls. A descriptor is readable from
// the arrival until the next call for its socket, so that a socket is settled, and is not asked,
// from a call that found nothing until its descriptor is readable or something is sent.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "loop/loop.h"
#include "net/curve.h"

namespace weft {

class Message;

struct SocketEvent {
  int event = 0;  // ZMQ_EVENT_*
  int value = 0;  // mostly a descriptor
};

class Socket {
 public:
  // With all options that do not depend on the endpoint; monitors loss and handshakes.
  static Result<std::unique_ptr<Socket>> make(Loop& loop, void* context, int type);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void* raw() const { return socket_; }
  void set(int option, int value);
  // CURVE, as a listener or as a dialer.
  void encrypt_as(const SecretKey& own);
  void encrypt_to(const PublicKey& server, const KeyPair& own);
  // The most time after the destruction in which sent messages are transmitted in the background.
  void set_linger(int64_t ms) { linger_ = ms; }
  // As those of the message.
  int send(Message& message, int flags = 0);
  int receive(Message& message);
  // A message to read, or room to send. For a ROUTER, the latter means that any peer has room.
  bool ready(bool to_read, bool to_send);
  bool has_events();
  bool next_event(SocketEvent* event);  // false: no event; asks in any case
  bool wait_event(int ms);              // blocks; false: none in that time

 private:
  Socket() = default;
  Status open(Loop& loop, void* context, int type);
  void set_key(int option, const std::array<unsigned char, kKeyBytes>& key);
  void set_most(int64_t bytes);

  void* socket_ = nullptr;
  void* monitor_ = nullptr;
  // With a descriptor, what is known about its socket.
  struct Watched {
    std::unique_ptr<Loop::Waker> waker;
    bool settled = false;
    bool is_settled() {
      if (waker->take()) settled = false;
      return settled;
    }
  };
  Watched messages_, events_;
  int64_t linger_ = 0;
};

}  // namespace weft
