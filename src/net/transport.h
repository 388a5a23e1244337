// A transport moves whole frames between this process and its peers. It runs on the loop thread.
// None of its functions blocks, except that listen() and dial() resolve host names, and that the
// end of a listener waits some microseconds until its address is free. Frames of a lane arrive
// whole and in order while a connection lasts. A lost connection is reported and is not repeated.
// Every transport passes tests/net/conformance.
//
// Connections and listeners are destroyed before their transport, the transport before its loop: on
// the loop thread, or after run().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/curve.h"

namespace weft {

class Loop;

constexpr int kLanes = 2;  // 0 control, 1 data: neither blocks the other

// One connection to one peer, with a control and a data lane.
class Connection {
 public:
  // Called on the loop thread, never from within a function of the connection. Each may destroy the
  // connection.
  class Events {
   public:
    virtual ~Events() = default;
    virtual void connected() = 0;  // dialed connections only
    // The frame is borrowed for the call and may have any alignment.
    virtual void received(int lane, std::span<const std::byte> frame) = 0;
    virtual void sent(uint64_t token) = 0;  // the payload of send(token != 0) may be overwritten
    virtual void disconnected(const std::string& why) = 0;  // once; no event follows
    // Once after close_after(), unless disconnected() came before: the frames have arrived, or
    // their time is over. No event follows.
    virtual void closed() {}
  };
  virtual ~Connection() =
      default;  // drops what waits, and closes; no event follows. No effect after close_after()
  virtual void start(Events& events) = 0;
  // Joins header (kHeaderBytes) and payload (at most kMaxPayload) into one frame. With token 0 the
  // payload is copied before send returns; otherwise it must stay valid until sent(token). Frames
  // are sent in order per lane. Frames sent before connected() wait for it; after a loss, or
  // close_after(), they are dropped.
  virtual void send(int lane, std::span<const std::byte> header, std::span<const std::byte> payload,
                    uint64_t token) = 0;
  // Drops the frames whose payload is still borrowed, and no longer reads it. For an owner that has
  // failed and no longer needs the frames.
  virtual void forget() = 0;
  // No more frames, and no event but closed(). Frames that have been given to send() are still
  // transmitted for at most this time, also if the connection is destroyed meanwhile. Payloads
  // without a sent(token) yet are copied.
  virtual void close_after(int64_t linger_ms) = 0;
  // The peer, as far as the system reports it: "tcp://127.0.0.1:40123", "process 4711", the dialed
  // address; or empty.
  virtual const std::string& peer() const = 0;
  // The public key that the peer has proved to own; null without encryption.
  virtual const PublicKey* key() const = 0;
  // For a dialed connection that is not connected yet: the result of the last try, or empty.
  virtual const std::string& trouble() const = 0;
};

class Listener {
 public:
  // A tcp address no longer answers; with other schemes, new connections are closed. Accepted peers
  // remain, and keep the address in use until they end.
  virtual ~Listener() = default;
  virtual std::string endpoint()
      const = 0;  // the address for peers to dial: "tcp://127.0.0.1:40123", "ipc:///run/.../rank0"
};

// Connections over tcp are encrypted and authenticated, unless `insecure`. Those over ipc are not:
// only processes of the same user, and of root, may connect.
struct Security {
  bool insecure = false;
  KeyPair own;                // of this process
  bool shared_memory = true;  // over ipc, large payloads use shared memory
};

// The key of the listener and the keys of the dialer. The pair is borrowed for the call.
struct DialKeys {
  PublicKey server;
  const KeyPair& own;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual bool encrypts() const = 0;
  // Replaces the keys of peers that may connect to the listeners of a transport that encrypts; a
  // peer with another key is refused. Existing connections remain. Until the first call peers wait
  // for it, and are asked to try again if it takes long.
  virtual void admit(std::vector<PublicKey> keys) = 0;
  // Accepts peers at an endpoint. tcp://HOST:PORT: port 0 chooses one. ipc://PATH: a socket file,
  // which no other process can replace meanwhile, and which is removed at the end. If PATH is a
  // directory, it is in a new directory there with mode 0700; if it is empty, in one under
  // XDG_RUNTIME_DIR or the directory for temporary files.
  //
  // Each new peer is passed as a connection that is already connected. The callback must start it,
  // or it is closed. `refused` is called for connections that are not from weft, with
  // Connection::peer() and the reason, once per connection of the system. Other peers are not
  // affected. Neither callback may destroy the listener.
  virtual Result<std::unique_ptr<Listener>> listen(
      const std::string& endpoint, std::function<void(std::unique_ptr<Connection>)> accepted,
      std::function<void(const std::string& peer, const std::string& why)> refused) = 0;
  // The connection must be started before the next iteration of the loop. While no process listens
  // at the endpoint, or the listener closes the connection without a message, it remains pending
  // and tries again several times per second, until the deadline of the owner. After an answer, a
  // failure is final and is reported by disconnected(). A transport that encrypts needs `keys`. For
  // it, a listener that closes connections during the handshake for 5 s is also a failure: a
  // listener with another key than expected sends no message.
  virtual Result<std::unique_ptr<Connection>> dial(const std::string& endpoint,
                                                   const DialKeys* keys) = 0;
  // The address to listen at so that the process at `endpoint`, and processes that it can reach,
  // can dial this one.
  virtual Result<std::string> listening_endpoint(const std::string& endpoint) = 0;
  // Removes the files that a killed listener of this machine left at its endpoint, but not those of
  // an active one.
  virtual void clear(const std::string& endpoint) = 0;
};

// The transport for the scheme of an endpoint ("tcp://", "ipc://", or a whole endpoint). Errors
// contain the endpoint and the known schemes.
Result<std::unique_ptr<Transport>> make_transport(Loop& loop, const std::string& scheme,
                                                  const Security& security);

// The endpoint with the address instead of the name of its host, for dial(). May be called on any
// thread, and may take long.
Result<std::string> resolve(const std::string& endpoint);

}  // namespace weft
