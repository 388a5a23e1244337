// A transport moves whole frames between this process and its peers. It lives on the loop thread; none of its calls blocks. It promises
// order and wholeness per lane while a connection lives, and nothing across a loss: a lost connection is reported and never retried in
// hiding. Every transport passes tests/net/conformance.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace weft {

class Loop;

// One connection to one peer, with a control and a data lane.
class Connection {
 public:
  // Called on the loop thread, never from inside a call of the connection.
  class Events {
   public:
    virtual ~Events() = default;
    virtual void connected() = 0;
    virtual void received(int lane, std::span<const std::byte> frame) = 0;   // borrowed for the call
    virtual void sent(uint64_t token) = 0;                                   // payload of send(token != 0) may be written again
    virtual void disconnected(const std::string& why) = 0;                   // once; no event follows
  };
  virtual ~Connection() = default;                          // closes at once; no event follows
  virtual void start(Events& events) = 0;
  // Joins header and payload into one frame. With token 0 the payload is copied before send returns; otherwise it stays valid until
  // sent(token) and frames leave in order per lane.
  virtual void send(int lane, std::span<const std::byte> header, std::span<const std::byte> payload, uint64_t token) = 0;
  // No more frames from here; what was sent still leaves, for at most that long; then disconnected() is not called.
  virtual void close_after(int64_t linger_ms) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual std::string endpoint() const = 0;     // as a peer may dial it: "tcp://127.0.0.1:40123", "ipc:///run/.../rank0"
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Accepts peers at an endpoint (port 0, or an ipc directory: chooses). Each new peer is handed over as a connection that is
  // connected already.
  virtual Result<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                                   std::function<void(std::unique_ptr<Connection>)> accepted) = 0;
  virtual Result<std::unique_ptr<Connection>> dial(const std::string& endpoint) = 0;
};

// The transport for an endpoint's scheme ("tcp://", "ipc://"); errors name the endpoint and the known schemes.
Result<std::unique_ptr<Transport>> make_transport(Loop& loop, const std::string& scheme);

}  // namespace weft
